"""Composites are found where graphs spell them out, and what is found computes what its name says: the
values of the composite's input and root, executed, against the formula in float64.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.casting.composite_examples import DATA, FILES, Values, example, spelled_out, values_of
from tests.support.graphs import inst, parameter, unverified
from tests.support.hlo_text import text_module
from tests.support.parameters import each_of

from neuronsim import ops
from neuronsim.errors import NeuronSimError
from neuronsim.hlo import proto
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    graph_computations,
    make_computation,
)
from neuronsim.hlo.recognition.composites import COMPOSITES, Composite, recognise
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent  # the kernels' bits are not the subject


def found_in(module: Module) -> tuple[Composite, ...]:
    return tuple(c for g in graph_computations(module) for c in recognise(g, module))


# ---- the formulas --------------------------------------------------------------------------------


def _softmax(x: Values, axes: tuple[int, ...]) -> Values:
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def _logsumexp(x: Values, axes: tuple[int, ...]) -> Values:
    high = x.max(axes, keepdims=True)
    return (np.log(np.exp(x - high).sum(axes, keepdims=True)) + high).squeeze(axes)


def _norm(x: Values, axes: tuple[int, ...]) -> Values:
    return (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)


def _gelu(x: Values, axes: tuple[int, ...]) -> Values:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _gelu_tanh(x: Values, axes: tuple[int, ...]) -> Values:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS: dict[str, Callable[[Values, tuple[int, ...]], Values]] = {
    "softmax": _softmax,
    "log_softmax": lambda x, axes: np.log(_softmax(x, axes)),
    "logsumexp": _logsumexp,
    "layer_norm": _norm,
    "batch_norm": _norm,
    "rms_norm": lambda x, axes: x / np.sqrt((x * x).mean(axes, keepdims=True)),
    "mean": lambda x, axes: x.mean(axes),
    "var": lambda x, axes: x.var(axes),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x, axes: x / (1 + np.exp(-x)),
    "sigmoid": lambda x, axes: 1 / (1 + np.exp(-x)),
    "softplus": lambda x, axes: np.log1p(np.exp(x)),
}


def is_what_it_says(module: Module, c: Composite) -> bool:
    """Whether the root's values are the formula's of the input's values over the axes."""
    x, root = values_of(module, [c.input, c.root], example(module))
    if not np.isfinite(x).all():
        return True  # nothing to compare
    axes = c.axes or ((0,) if c.kind == "batch_norm" else ())
    with np.errstate(all="ignore"):
        wanted = FORMULAS[c.kind](x, axes)
        scale = x.shape[0] / (x.shape[0] - 1) if c.kind == "var" else 1.0
    near = [wanted, wanted * scale]  # the unbiased variance is one too
    if math.prod(root.shape) != math.prod(wanted.shape):
        return False
    narrow = 2.0**-7 if module.by_name[module.entry].by_name[c.root].array.dtype.bits < 32 else 1e-4
    return any(np.allclose(root.ravel(), w.ravel(), rtol=narrow, atol=1e-4) for w in near)


# ---- what JAX writes -----------------------------------------------------------------------------


@each_of("path", FILES, ids=lambda p: p.stem)
def test_composites_as_jax_spells_them_out(path: Path) -> None:
    module = spelled_out(path)
    (found,) = found_in(module)
    assert found.kind == path.stem.partition("-")[0]
    assert is_what_it_says(module, found)


def test_every_kind_has_a_fixture_and_is_a_row_of_the_table() -> None:
    kinds = {row.kind for row in COMPOSITES}
    assert kinds == {p.stem.partition("-")[0] for p in FILES} == FORMULAS.keys()
    assert kinds <= ops.OPS.keys()


def test_composites_parts() -> None:
    """What the lint reads: the maximum, the statistics, which variance it is."""

    def parts(stem: str) -> Composite:
        (found,) = found_in(spelled_out(DATA / "composites" / f"{stem}.hlo"))
        return found

    assert {"maximum", "shifted", "exponential", "sum"} <= parts("softmax").parts.keys()
    assert "maximum" not in parts("softmax-unshifted").parts
    assert "mean_of_squares" not in parts("layer_norm").parts
    assert {"mean", "mean_of_squares", "variance"} <= parts("layer_norm-one_pass").parts.keys()
    assert {"variance", "mean"} <= parts("var").parts.keys()
    assert [parts(s).axes for s in ("softmax", "softmax-axis0", "batch_norm")] == [(1,), (0,), (0,)]
    assert [parts(s).axes for s in ("batch_norm-folded", "gelu")] == [(), ()]


NETWORKS = {
    "transformer": {"layer_norm": 4, "softmax": 2, "gelu": 2},
    "gpt": {"layer_norm": 3, "softmax": 1, "gelu": 1},
    "resnet18": {"batch_norm": 12},
    "mobilenet": {"batch_norm": 11, "mean": 1},
    "training_step": {"log_softmax": 1, "mean": 1},
    "lstm": {"sigmoid": 3},
    "ssd": {"softmax": 1},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_composites_of_networks(name: str) -> None:
    module = inline_calls(proto.read(DATA / "networks" / f"{name}.hlo.pb"))
    assert Counter(c.kind for c in found_in(module)) == NETWORKS[name]


# ---- what they consist of ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformer", "gpt", "resnet18", "training_step", "ssd"])
def test_members_are_read_by_members_only(name: str) -> None:
    """By brute force: what members give reaches the rest of the graph only through the root."""
    module = inline_calls(proto.read(DATA / "networks" / f"{name}.hlo.pb"))
    for graph in graph_computations(module):
        for c in recognise(graph, module):
            members = set(c.members)
            assert c.root in members
            assert not members & set(c.shared)
            for i in graph.instructions:
                if i.name not in members:
                    assert not (members - {c.root}) & set(i.operands)
            assert not any(graph.by_name[n].opcode in ("constant", "parameter") for n in members)


def test_what_others_read_too_is_shared() -> None:
    """The exponential of a softmax whose sum is kept for a gradient, say."""
    module = spelled_out(DATA / "composites" / "softmax.hlo")
    entry = module.entry_computation
    exp = next(i for i in entry.instructions if i.opcode == "exponential")
    extra = exp.replace(name="read", opcode="negate", operands=(exp.name,))
    pair = Instruction("pair", "tuple", TupleShape((exp.shape, exp.shape)), (entry.root, "read"))
    both = Computation(entry.name, (*entry.instructions, extra, pair), "pair")
    (found,) = found_in(module.replace_entry(both))
    assert exp.name in found.shared
    assert found.parts["shifted"] in found.shared  # it is needed for what is read
    assert set(found.members) < {i.name for i in entry.instructions} - {exp.name}


# ---- near misses ---------------------------------------------------------------------------------


def text_of(*lines: str) -> Module:
    given = ["x = f32[8,8] parameter(0)", "y = f32[8,8] parameter(1)"]
    given += ["zero = f32[] constant(0)", "low = f32[] constant(-inf)"]
    return text_module("\n".join([*given, *lines]))


def softmax_text(max_of: str = "x", sum_of: str = "e", summed: int = 1, spread: int = 0) -> Module:
    return text_of(
        f"m = f32[8] reduce({max_of}, low), dimensions={{1}}, to_apply=max",
        "mb = f32[8,8] broadcast(m), dimensions={0}",
        "s = f32[8,8] subtract(x, mb)",
        "e = f32[8,8] exponential(s)",
        f"t = f32[8] reduce({sum_of}, zero), dimensions={{{summed}}}, to_apply=add",
        f"tb = f32[8,8] broadcast(t), dimensions={{{spread}}}",
        "ROOT r = f32[8,8] divide(e, tb)",
    )


def variance_text(mean_of: str = "x", count: int = 8, axis: int = 1, spread: int = 0) -> Module:
    return text_of(
        f"n = f32[] constant({count})",
        "nb = f32[8] broadcast(n), dimensions={}",
        f"t = f32[8] reduce({mean_of}, zero), dimensions={{{axis}}}, to_apply=add",
        "m = f32[8] divide(t, nb)",
        f"mb = f32[8,8] broadcast(m), dimensions={{{spread}}}",
        "d = f32[8,8] subtract(x, mb)",
        "q = f32[8,8] multiply(d, d)",
        "u = f32[8] reduce(q, zero), dimensions={1}, to_apply=add",
        "ROOT r = f32[8] divide(u, nb)",
    )


def kinds(module: Module) -> list[str]:
    return [c.kind for c in found_in(module)]


def test_near_misses_are_not_recognised() -> None:
    assert kinds(softmax_text()) == ["softmax"]
    assert kinds(softmax_text(spread=1)) == []  # the sum of another row
    assert kinds(softmax_text(summed=0, spread=0)) == []  # summed along another axis than it is spread
    assert kinds(softmax_text(sum_of="s")) == []  # of what is no exponential
    assert kinds(softmax_text(sum_of="y")) == []  # of another array
    assert kinds(variance_text()) == ["var"]
    assert "var" not in kinds(variance_text(mean_of="y"))  # about another array's mean
    assert "var" not in kinds(variance_text(axis=0, spread=0))  # about another row's mean
    assert kinds(variance_text(count=5)) == []  # of another number of elements


def test_a_maximum_along_another_axis_is_not_the_softmax_own() -> None:
    """exp(x - a) / sum(exp(x - a)) is a softmax whatever a is, but only its own maximum guards it."""
    for module in (softmax_text(summed=0, spread=1), softmax_text(max_of="y")):
        (found,) = found_in(module)
        assert (found.kind, found.input) == ("softmax", "s")
        assert "maximum" not in found.parts


# A changed scale or epsilon is one too, and nobody looks into the polynomials of an erfc.
NORMS = ("layer_norm", "batch_norm", "rms_norm")
PLAIN = [p for p in FILES if not p.stem.startswith(NORMS) and p.stem != "gelu"]
CHANGES = 60  # of each module


def _changed(module: Module, choose: random.Random) -> Module | None:
    """The module with one operand replaced by another of its type, or one axis by another."""
    entry = module.entry_computation
    order = [i for i in entry.instructions if i.operands and isinstance(i.shape, Shape)]
    i = choose.choice(order)
    position = entry.instructions.index(i)
    number = choose.randrange(len(i.operands))
    wanted = entry.by_name[i.operands[number]].shape
    earlier = [e.name for e in entry.instructions[:position] if e.shape == wanted]
    if i.opcode in ("reduce", "broadcast") and i.attributes["dimensions"] in ((0,), (1,)):
        (axis,) = i.attributes["dimensions"]
        new = i.replace(attributes={**i.attributes, "dimensions": (1 - axis,)})
    else:
        operands = list(i.operands)
        operands[number] = choose.choice(earlier)
        new = i.replace(operands=tuple(operands))
    if new == i:
        return None
    body = [new if e.name == i.name else e for e in entry.instructions]
    changed = module.replace_entry(make_computation(entry.name, body, entry.root))
    try:
        verify(changed)
    except NeuronSimError:
        return None
    return changed


@each_of("path", PLAIN, ids=lambda p: p.stem)
def test_whatever_is_recognised_computes_what_its_name_says(path: Path) -> None:
    """Modules with one operand or axis changed at random: mostly near misses."""
    module, choose = spelled_out(path), random.Random(path.stem)
    missed = 0
    for _ in range(CHANGES):
        changed = _changed(module, choose)
        if changed is None:
            continue
        found = found_in(changed)
        missed += not any(c.kind == path.stem.partition("-")[0] for c in found)
        for c in found:
            assert is_what_it_says(changed, c), (c, changed.entry_computation)
    assert missed  # changes that break the formula are found out


def test_recognition_of_many_instructions_is_not_quadratic() -> None:
    module = inline_calls(proto.read(DATA / "networks" / "transformer.hlo.pb"))
    entry = module.entry_computation
    body: list[Instruction] = []
    names: dict[str, Any] = {}
    while len(body) < 3_000:
        suffix = f".{len(body)}"
        names = {i.name: i.name + suffix for i in entry.instructions}
        for i in entry.instructions:
            body.append(i.replace(name=names[i.name], operands=tuple(names[o] for o in i.operands)))
    repeated = Computation(entry.name, tuple(body), names[entry.root])
    seconds = []
    for _ in range(2):
        start = time.process_time()
        found = recognise(repeated, module)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 3  # quadratic time is tens of seconds
    copies = len(body) // len(entry.instructions)
    assert Counter(c.kind for c in found)["softmax"] == 2 * copies


def test_chains_that_almost_match_take_linear_time() -> None:
    """Products of products of broadcasts: every one may be the scale of a norm."""

    def seconds(length: int) -> float:
        body = [parameter("p", (4, 4))]
        for n in range(length):
            opcode = ("multiply", "add", "broadcast", "subtract")[n % 4]
            attributes = {"dimensions": (0, 1)} if opcode == "broadcast" else {}
            operands = (body[-1].name,) if opcode == "broadcast" else (body[-1].name, body[n // 2].name)
            body.append(inst(f"i{n}", opcode, (4, 4), *operands, **attributes))
        module = unverified(*body)
        start = time.process_time()
        recognise(module.entry_computation, module)
        return time.process_time() - start

    short, long = min(seconds(500) for _ in range(3)), seconds(2000)
    assert long < 16 * max(short, 0.01)
