"""Products of ONNX models that scale or add a bias, as several nodes: so that a plan's roundings
between these steps have their places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim.casting.application.commuting import MOVES
from neuronsim.frontends.onnx.borders import is_float32
from neuronsim.frontends.onnx.files import (
    node_name,
    operator_set_version,
    require_onnx,
    store,
    taken_names,
)
from neuronsim.hlo.module import Computation, Instruction, fresh_name

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_BIAS_SINCE = 11  # the operator set whose Gemm may have none


def split_products(model: ModelProto, entry: Computation, names: Set[str]) -> dict[str, str]:
    """Make the products of these nodes, which scale or add a bias, several nodes: the product, with the
    node's name, and the steps behind it. Gives the nodes' names by their instructions.
    """
    groups: dict[str, list[Instruction]] = defaultdict(list)
    for i in entry.instructions:
        if i.metadata.op_name in names:
            groups[i.metadata.op_name].append(i)
    splitter = _Splitter(model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for n in nodes:
        steps = splitter.steps(n, groups.get(node_name(n), ()))
        model.graph.node.extend(splitter.split(n, steps) if steps is not None else [n])
    return splitter.parts


@dataclass(frozen=True)
class _ProductSteps:
    """The instructions of a product's node: of the product itself, of its scaling, of its bias's, and
    of their sum.
    """

    product: Instruction
    scaled: tuple[str, ...]
    bias: tuple[str, ...]
    sum: tuple[str, ...]


class _Splitter:
    """The nodes and tensors that stand for the steps of products."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.version = operator_set_version(model)
        self.parts: dict[str, str] = {}
        self._taken = taken_names(model.graph)

    def steps(self, n: NodeProto, group: Sequence[Instruction]) -> _ProductSteps | None:
        """The steps of a node, if it is a product that can be several nodes."""
        if n.domain not in ("", "ai.onnx") or n.op_type not in ("Gemm", "Conv", "ConvTranspose"):
            return None
        if n.op_type == "Gemm" and self.version < _BIAS_SINCE:
            return None
        computing = [i for i in group if i.opcode not in MOVES and i.opcode != "constant"]
        products = [i for i in computing if i.opcode in ("dot", "convolution")]
        adds = [i for i in computing if i.opcode == "add"]
        others = [i for i in computing if i.opcode not in ("dot", "convolution", "add", "multiply")]
        if len(products) != 1 or len(adds) > 1 or others or not all(map(is_float32, computing)):
            return None
        behind = {products[0].name}  # the product, and what is computed of it
        for i in group:
            if behind.intersection(i.operands):
                behind.add(i.name)
        scales = [i for i in computing if i.opcode == "multiply"]
        before = {i.name: i for i in group}
        ends = {i.name for i in group if i.opcode != "constant"} - {
            o for i in group for o in i.operands
        }
        if ends != {i.name for i in (adds or [i for i in scales if i.name in behind])[-1:]}:
            return None  # more than these steps

        def feeding(step: Instruction) -> tuple[str, ...]:
            """A step and the moves and numbers that only lead to it."""
            found, pending = [step.name], list(step.operands)
            while pending:
                name = pending.pop()
                if name in before and before[name].opcode in {*MOVES, "constant"}:
                    found.append(name)
                    pending += before[name].operands
            return tuple(found)

        scaled = tuple(x for i in scales if i.name in behind for x in feeding(i))
        bias = tuple(x for i in scales if i.name not in behind for x in feeding(i))
        added = tuple(x for i in adds for x in feeding(i))
        return _ProductSteps(products[0], scaled, bias, added)

    def split(self, n: NodeProto, steps: _ProductSteps) -> list[NodeProto]:
        """The nodes in the place of one."""
        onnx: Any = require_onnx()
        make, name = onnx.helper.make_node, node_name(n)
        result, bias = n.output[0], n.input[2] if len(n.input) > 2 else ""
        factors = {a.name: float(a.f) for a in n.attribute if a.name in ("alpha", "beta")}
        factors = factors if n.op_type == "Gemm" else {}
        kept = [a for a in n.attribute if a.name not in factors]
        del n.attribute[:], n.input[2:]
        n.attribute.extend(kept)
        n.name = name  # it may have had none
        found = [n]

        def step(operator: str, operands: list[str], what: str, own: tuple[str, ...]) -> str:
            """The tensor of a further node."""
            label, tensor = self._fresh(f"{name}.{what}"), self._fresh(f"{result}.{what}")
            found.append(make(operator, operands, [tensor], name=label))
            self.parts |= dict.fromkeys(own, label)
            return tensor

        n.output[0] = self._fresh(f"{result}.product")
        last = n.output[0]
        alpha, beta = factors.get("alpha", 1.0), factors.get("beta", 1.0)
        if alpha != 1:
            number = store(self.model, f"{name}.alpha", np.array(alpha, np.float32), self._taken)
            last = step("Mul", [last, number], "scaled", steps.scaled)
        if bias and beta != 0:
            if n.op_type != "Gemm":
                dims = [-1] + [1] * (len(steps.product.array.dims) - 2)
                shape = store(self.model, f"{name}.shape", np.array(dims, np.int64), self._taken)
                bias = step("Reshape", [bias, shape], "channels", ())
            elif beta != 1:
                number = store(self.model, f"{name}.beta", np.array(beta, np.float32), self._taken)
                bias = step("Mul", [bias, number], "bias", steps.bias)
            last = step("Add", [last, bias], "sum", steps.sum)
        found[-1].output[0] = result
        return found

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)
