"""all-MiniLM-L6-v2 through three doors side by side: a module of PyTorch's, and functions of JAX and
of neuronsim's NumPy names.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.minilm import CONFIG, find_weights, mask, tokens, weights

import neuronsim
from neuronsim.hlo.module import Instruction

pytestmark = [pytest.mark.exhaustive, pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]

DOORS = ("torch", "jax", "numpy")
FUNCTIONS = Path(__file__).with_name("minilm_functions.py")


@cache
def torch_network() -> Any:
    pytest.importorskip("torch", reason="the peer torch is not installed (extra `torch`)")
    from tests.frontends.torch_minilm import minilm

    find_weights()
    return minilm()


@cache
def program(door: str) -> Any:
    """The whole network of six layers, without casts."""
    ids, counts = tokens(), mask()
    if door == "torch":
        network = torch_network()
        import torch

        examples = torch.from_numpy(ids), torch.from_numpy(counts)
        return neuronsim.compile(network, *examples, auto_cast="none")
    pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")
    from tests.frontends.minilm_functions import network as function_of

    own = {n: np.asarray(x) for n, x in weights().items()}
    function = function_of(door, CONFIG.layers)
    args = own, ids.astype("i4"), counts.astype("i4")
    return neuronsim.compile(function, *args, constants=(0,), auto_cast="none")


def values(door: str) -> Any:
    kind = "i8" if door == "torch" else "i4"
    return np.asarray(program(door)(tokens().astype(kind), mask().astype(kind)))


def test_values_of_the_three_doors_are_equal_within_1e_5() -> None:
    network = torch_network()
    import torch

    with torch.no_grad():
        eager = network(torch.from_numpy(tokens()), torch.from_numpy(mask())).numpy()
    for door in DOORS:
        np.testing.assert_allclose(values(door), eager, 0, 1e-5, err_msg=door)


# ---- planned types ---------------------------------------------------------------------------------

OF_FUNCTIONS = {"norm": "layer norm", "gelu": "gelu", "weighted": "softmax"}
OF_OPERATORS = {"layer_norm": "layer norm", "gelu": "gelu", "softmax": "softmax"}


@cache
def function_lines() -> dict[int, str]:
    """The function of `minilm_functions` that each of its lines is in."""
    tree = ast.parse(FUNCTIONS.read_text())
    found: dict[int, str] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.FunctionDef):
            found |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), node.name)
    return found


def part(i: Instruction) -> str | None:
    """Which part of a layer an instruction computes: by the operator of PyTorch's, or by the line."""
    if i.opcode == "dot":
        return "product"
    if i.metadata.source_file.endswith(FUNCTIONS.name):
        return OF_FUNCTIONS.get(function_lines().get(i.metadata.source_line, ""))
    return next((p for name, p in OF_OPERATORS.items() if name in i.metadata.op_type), None)


MOVES = frozenset({"constant", "broadcast", "reshape", "transpose", "copy"})


def planned_types(door: str, **setting: str) -> dict[str, Counter[Any] | set[Any]]:
    """The operands', sums' and results' types of the steps of each part; of products how often."""
    model = program(door).model
    plan = neuronsim.plan(model, **setting)
    found: dict[str, Any] = {"product": Counter()}
    for i in model.entry_computation.instructions:
        name = part(i)
        if name is None or i.opcode in MOVES or i.shape.arrays()[0].dtype.name != "float32":
            continue  # what moves elements, and tests that masks make
        d = plan.decisions.get(i.name)  # None: float32, as the model has it
        types = (d.operand, d.accumulate, d.output) if d is not None else (None, None, None)
        kept = tuple("float32" if t is None else t.name for t in types)
        found.setdefault(name, set())
        found[name].update([kept if i.opcode in ("dot", "reduce") else kept[::2]])
    return found


@pytest.mark.parametrize(
    ("setting", "products", "others"),
    [
        ("all", "bfloat16", "bfloat16"),
        ("matmult", "bfloat16", "float32"),
        ("none", "float32", "float32"),
    ],
)
def test_planned_types_of_the_three_doors_are_equal(setting: str, products: str, others: str) -> None:
    flags = {"auto_cast": setting} | ({} if setting == "none" else {"auto_cast_type": "bf16"})
    by_door = {door: planned_types(door, **flags) for door in DOORS}
    assert by_door["torch"] == by_door["jax"] == by_door["numpy"]
    found = by_door["torch"]
    assert set(found) == {"product", "softmax", "layer norm", "gelu"}
    ((types, count),) = found["product"].items()
    assert count == 8 * CONFIG.layers
    assert types[0] == products
    for name in ("softmax", "layer norm", "gelu"):
        assert {(t[0], t[-1]) for t in found[name]} == {(others, others)}, name


def test_instructions_say_where_they_come_from() -> None:
    found = program("torch").model.entry_computation.by_name
    dot = next(
        i for i in found.values() if i.opcode == "dot" and "layer.3.attention.self.key" in i.name
    )
    assert dot.metadata.op_name.startswith("encoder/layer/3/attention/self/key/")
    assert dot.metadata.source_file.endswith("torch_minilm.py")
    assert dot.metadata.source_line
