"""A quantized plan back in an ONNX model: QuantizeLinear and DequantizeLinear in front of the products
that read bytes (QDQ); weights are stored as bytes, biases that the sums take (Q7) as int32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.biases import find_biases, integer_bias
from neuronsim.casting.decisions.post_training import PRODUCTS
from neuronsim.casting.decisions.quantization import Quantization
from neuronsim.casting.decisions.record import Decision
from neuronsim.errors import InvalidArgument, UnsupportedType, warn
from neuronsim.frontends.onnx import files
from neuronsim.frontends.onnx.files import Folder, node_name, require_onnx, store, taken_names
from neuronsim.hlo.module import Computation, Instruction, Module, fresh_name

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

# The operator sets of QuantizeLinear, of its axis and of float8.
_SINCE, _CHANNELS_SINCE, _FLOATS_SINCE = 10, 13, 19
_RENAMES = frozenset({"copy", "convert"})


@dataclass(frozen=True)
class _Read:
    """What a node reads quantized: the number of its input, and how, by the axes of that tensor."""

    number: int
    by: Quantization


def quantize_nodes(
    model: ModelProto,
    original: Module,
    decisions: Mapping[str, Decision],
    folder: Folder | None,
) -> ModelProto:
    """A copy of a model, whose tensors may lie in the folder: the nodes of products that are quantized
    read dequantized bytes. Products of functions and subgraphs, and of nodes whose inputs are not told
    apart, are left out with a warning.

    Raises InvalidArgument for a model whose operator set has no such nodes.
    """
    reads, left_out = _reads(model, original.entry_computation, decisions, folder)
    if left_out:
        warn(
            f"the quantization of {len(left_out)} products is left out of the ONNX model, since no "
            f"inputs of single nodes are theirs, such as {left_out[0]}"
        )
    if not reads:
        return model
    version = files.operator_set_version(model)
    how_read = [r.by for rs in reads.values() for r in rs]
    channels = any(by.axis is not None for by in how_read)
    floats = {by.type for by in how_read if by.is_float}
    if dtypes.float8_e4m3 in floats:
        raise UnsupportedType(
            "ONNX has no float8_e4m3 that ends at 240, as a Trn1's: quantize to fp8_e5m2 or int8, or "
            "write the plan (.json) or the module (.hlo.pb)"
        )
    needed, how = (_CHANNELS_SINCE, "by channel ") if channels else (_SINCE, "")
    needed, how = (_FLOATS_SINCE, "of float8 ") if floats else (needed, how)
    if version < needed:
        raise InvalidArgument(
            f"the model's operator set is {version}, and QuantizeLinear {how}is "
            f"there from {needed} on: convert it with onnx.version_converter first"
        )
    found: ModelProto = require_onnx().ModelProto()
    found.CopyFrom(model)
    writer = _Writer(found, folder)
    nodes = list(found.graph.node)
    del found.graph.node[:]
    for n in nodes:
        for r in reads.get(node_name(n), ()):
            n.input[r.number] = writer.dequantized(n.input[r.number], r.by)
        found.graph.node.extend([*writer.made, n])
        writer.made.clear()
    writer.drop_unread()
    return found


def _reads(
    model: ModelProto, c: Computation, decisions: Mapping[str, Decision], folder: Folder | None
) -> tuple[dict[str, list[_Read]], list[str]]:
    """What each node reads quantized, and the products that no node's inputs are found of."""
    nodes = {node_name(n): n for n in model.graph.node}
    given = {o: node_name(n) for n in model.graph.node for o in n.output}
    stored = {t.name: t for t in model.graph.initializer}
    found: dict[str, list[_Read]] = {}
    left_out = []
    biases = find_biases(c, {n for n, d in decisions.items() if d.bias})

    def placed(i: Instruction, number: int, by: Quantization) -> _Read | None:
        node = nodes.get(i.metadata.op_name)
        if node is None:
            return None
        source, axis = _source(c, c.by_name[i.operands[number]], by.axis, node_name(node))
        able: dict[int, int | None] = {}
        others: dict[int, int | None] = {}
        for n, tensor in enumerate(node.input):
            if source.opcode == "constant":  # of a node that changed what is stored no input is it
                moved = _moved(stored[tensor], source, folder) if tensor in stored else None
                able |= {} if moved is None else {n: None if axis is None else moved[axis]}
            elif tensor and (tensor == source.name or given.get(tensor) == source.metadata.op_name):
                others[n] = axis
        able = able or others
        if len(able) != 1:
            able = {n: a for n, a in able.items() if n == number}
        for n, own in able.items():
            if (own is None) == (by.axis is None):
                return _Read(n, Quantization(by.type, by.scale, by.zero_point, own))
        return None

    for i in c.instructions:
        by_operand = _quantized_operands(i, decisions) if i.opcode in PRODUCTS else {}
        if not by_operand:
            continue
        reads = [placed(i, n, q) for n, q in by_operand.items()]
        known = [r for r in reads if r is not None]
        if len(known) < len(reads) or i.metadata.op_name in found:
            left_out.append(i.metadata.op_name or i.name)
        else:
            found[i.metadata.op_name] = known
        if i.name in biases and i.metadata.op_name not in left_out:
            bias = biases[i.name]
            by, _ = integer_bias(bias, by_operand[0], by_operand[1])
            r = placed(bias.addition, bias.number, by)
            if r is None:
                warn(f"the bias of {bias.addition.name} is float32 in the ONNX model: no input is it")
            else:
                found.setdefault(bias.addition.metadata.op_name, []).append(r)
    return {name: reads for name, reads in found.items() if name not in left_out}, left_out


def _quantized_operands(i: Instruction, decisions: Mapping[str, Decision]) -> dict[int, Quantization]:
    """How a product's operands are quantized, by their numbers: as it reads them, or as weights are."""
    own, weight = decisions.get(i.name), decisions.get(i.operands[1])
    if own is not None and any(own.quantized_operands):
        return {n: q for n, q in enumerate(own.quantized_operands) if q is not None}
    stored = weight.quantized_result if weight is not None else None
    return {} if stored is None else {1: stored}


def _moved(t: TensorProto, constant: Instruction, folder: Folder | None) -> tuple[int, ...] | None:
    """The axes of a stored tensor in the order in which a constant has them, if it is that tensor, or
    the kernel of a transposed convolution, whose windows are turned round; of a vector without those of
    size 1.
    """
    dims = constant.array.dims
    axes = [n for n, size in enumerate(t.dims) if len(dims) != 1 or size != 1 or dims == (1,)]
    if sorted(t.dims[n] for n in axes) != sorted(dims):
        return None
    values = np.asarray(files.tensor(t, folder)).reshape([t.dims[n] for n in axes])
    literal = ops.numbers(constant.attributes["literal"])
    windows = tuple(range(2, len(dims)))
    for whole in (literal, np.flip(literal, windows)) if windows else (literal,):
        for order in itertools.permutations(range(len(axes))):
            if np.array_equal(values.transpose(order), whole):
                return tuple(axes[n] for n in order)
    return None


def _source(
    c: Computation, i: Instruction, axis: int | None, node: str
) -> tuple[Instruction, int | None]:
    """What gives a value before the moves of a node, and an axis of it there, if it is still one."""
    while i.metadata.op_name == node and i.operands:
        before = c.by_name[i.operands[0]]
        if i.opcode == "transpose":
            axis = None if axis is None else int(i.attributes["dimensions"][axis])
        elif i.opcode == "reshape":
            axis = None if axis is None else _before_reshape(before.array.dims, i.array.dims, axis)
        elif i.opcode == "broadcast":
            at = i.attributes["dimensions"]
            axis = at.index(axis) if axis in at else None
        elif i.opcode not in _RENAMES:
            break
        i = before
    return i, axis


def _before_reshape(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    lead = math.prod(after[:axis])
    places = [
        n for n, size in enumerate(before) if size == after[axis] and math.prod(before[:n]) == lead
    ]
    return places[0] if places else None


class _Writer:
    """The nodes and tensors that are added to a graph, one pair for each tensor and quantization."""

    def __init__(self, model: ModelProto, folder: Folder | None) -> None:
        self.model, self.folder = model, folder
        self.made: list[NodeProto] = []
        self.stored = {t.name: t for t in model.graph.initializer}
        self._known: dict[tuple[str, Quantization], str] = {}
        self._replaced: set[str] = set()
        self._taken = taken_names(model.graph)

    def dequantized(self, tensor: str, by: Quantization) -> str:
        """The tensor as its bytes stand for it."""
        key = tensor, by
        if key not in self._known:
            onnx: Any = require_onnx()
            make = onnx.helper.make_node
            axis = {} if by.axis is None else {"axis": by.axis}
            scales = [self._scale(tensor, by), self._zero(tensor, by)]
            found = self._fresh(f"{tensor}.dequantized")
            if tensor in self.stored:
                values = np.asarray(files.tensor(self.stored[tensor], self.folder))
                data = store(self.model, f"{tensor}.{by.type.name}", by.quantized(values), self._taken)
                self._replaced.add(tensor)
            else:
                data = self._fresh(f"{tensor}.{by.type.name}")
                name = self._fresh(f"{data}.quantize")
                self.made.append(make("QuantizeLinear", [tensor, *scales], [data], name, **axis))
            name = self._fresh(f"{found}.dequantize")
            self.made.append(make("DequantizeLinear", [data, *scales], [found], name, **axis))
            self._known[key] = found
        return self._known[key]

    def _scale(self, tensor: str, by: Quantization) -> str:
        array = np.array(by.scale, np.float32)
        return store(
            self.model,
            f"{tensor}.scale",
            array if by.axis is not None else array.reshape(()),
            self._taken,
        )

    def _zero(self, tensor: str, by: Quantization) -> str:
        array = np.array(by.zero_point, by.type.numpy)
        return store(
            self.model,
            f"{tensor}.zero",
            array if by.axis is not None else array.reshape(()),
            self._taken,
        )

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self._taken)

    def drop_unread(self) -> None:
        """Remove the weights that are stored as bytes and that nothing else reads."""
        graph = self.model.graph
        read = {name for n in graph.node for name in files.names_read(n)}
        read |= {o.name for o in graph.output}
        kept = [t for t in graph.initializer if t.name in read or t.name not in self._replaced]
        gone = {t.name for t in graph.initializer} - {t.name for t in kept}
        del graph.initializer[:]
        graph.initializer.extend(kept)
        inputs = [i for i in graph.input if i.name not in gone]
        del graph.input[:]
        graph.input.extend(inputs)
