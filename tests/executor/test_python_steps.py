"""What a compiled program runs in Python: nothing that the core has kernels for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.executor.test_control_flow import DOUBLING, PAIR, compiled, loop, run
from tests.hlo.single import comparison, computation, module_of
from tests.hlo.test_applied_computations import BF16, F32, PRED, S32, bits, largest_with_index
from tests.hlo.test_indexing import random_bits

from neuronsim import _core, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.executor import compile as compiling
from neuronsim.executor.compile import compile_module
from neuronsim.executor.steps import Chain, While
from neuronsim.hlo.module import Computation, Module, Shape
from neuronsim.hlo.opcodes import row_attributes
from neuronsim.ops import GatherDimensions, ScatterDimensions, WindowDimension
from neuronsim.ops.computations import computation_chain
from neuronsim.ops.order import sort_keys
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

RNG = np.random.default_rng(230)
ROWS = GatherDimensions((1,), (0,), (0,), (), (), 1)
PLACES = ScatterDimensions((1,), (0,), (0,), (), (), 1)
ADD = computation("add", [F32] * 2, [("add", F32, (0, 1), {})], [2])
GREATER = comparison("ge", "GE", F32)
TABLE, INDICES, UPDATES = (
    bits(RNG.random((6, 4)), F32),
    bits([[1], [5], [1]], S32),
    bits(RNG.random((3, 4)), F32),
)
START = bits(0, F32)


def scatter_module(body: Computation) -> Module:
    types = [TABLE.type, INDICES.type, UPDATES.type]
    attributes: dict[str, Any] = {"scatter_dimensions": PLACES}
    attributes |= {"indices_are_sorted": False, "unique_indices": False}
    return module_of("scatter", types, attributes, [body])


def modules() -> dict[str, Module]:
    pair = [TABLE.type, bits(np.zeros((6, 4)), S32).type, START.type, bits(0, S32).type]
    window = (WindowDimension(2), WindowDimension(2))
    source = bits(np.zeros((5, 3)), F32).type
    sort = {"dimensions": (0,), "is_stable": True}
    gather = {"gather_dimensions": ROWS, "slice_sizes": (1, 4), "indices_are_sorted": False}
    return {
        "gather": module_of("gather", [TABLE.type, INDICES.type], gather),
        "scatter": scatter_module(ADD),
        "argmax": module_of("reduce", pair, {"dimensions": (1,)}, [largest_with_index(F32)]),
        "sort": module_of("sort", [TABLE.type], sort, [comparison("lt", "LT", F32, "TOTALORDER")]),
        "pad": module_of("pad", [TABLE.type, START.type], {"padding": ((-3, 2, 1), (1, -2, 0))}),
        "topk": module_of("topk", [TABLE.type], {"k": 2, "largest": True}),
        "select-and-scatter": module_of(
            "select-and-scatter", [TABLE.type, source, START.type], {"window": window}, [GREATER, ADD]
        ),
    }


@pytest.mark.parametrize("interior", [0, 1, 2])
@pytest.mark.parametrize("low", range(-9, 3))
def test_negative_padding_is_a_part_of_the_array(low: int, interior: int) -> None:
    x = ops.Bits(np.arange(1, 5, dtype=np.float32), F32)
    wide = np.zeros(3 * interior + 4, np.float32)
    wide[:: interior + 1] = x.data
    for high in range(-9, 3):
        expected = np.concatenate([np.zeros(max(low, 0)), wide, np.zeros(max(high, 0))])
        expected = expected[max(-low, 0) : max(len(expected) - max(-high, 0), 0)]
        if len(wide) + low + high < 0:
            continue
        module = module_of("pad", [x.type, START.type], {"padding": ((low, high, interior),)})
        program = compile_module(module, Profile(), find_target("trn1"))
        assert program.recording().python == ()
        assert run(program, x.data, START.data) == expected.tolist()


@pytest.mark.parametrize("name", modules())
def test_a_program_runs_in_the_core(name: str) -> None:
    """And so the values of each instruction on its own, which the tests of tests/hlo compare."""
    module = modules()[name]
    program = compile_module(module, Profile(), find_target("trn1"))
    assert program.recording().python == ()


def test_python_steps_are_named() -> None:
    """A rounding that draws words is a step of Python's; without it there is none."""
    module = scatter_module(ADD)
    for rounding, steps in (("nearest_even", ()), ("stochastic", (module.root.name,))):
        profile = Profile(rounding=rounding)
        program = compile_module(module, profile, find_target("trn1"))
        assert program.recording().python == steps


# ---- sorting by keys -----------------------------------------------------------------------------


KINDS = [(F32, "TOTALORDER"), (F32, ""), (BF16, "TOTALORDER"), (BF16, ""), (S32, "SIGNED")]
KINDS += [(dtypes.uint8, "UNSIGNED"), (dtypes.int64, "SIGNED"), (dtypes.float8_e4m3, "TOTALORDER")]


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(("t", "kind"), KINDS, ids=str)
@pytest.mark.parametrize("length", [1, 2, 50, 3000])
def test_sort_E10_by_keys_is_the_merge(t: DType, kind: str, direction: str, length: int) -> None:
    """The comparator's own merges, with repeated keys, signed zeros and, at random, NaN."""
    body = applied(comparison("c", direction, t, kind))
    (key,) = sort_keys(body)
    assert (key.descends, key.total) == (direction == "GT", kind == "TOTALORDER")
    profile = Profile(int64="keep")
    programs = [computation_chain(c, profile) for c in (body, key.key)]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = random_bits(rng, t, (2, length)).data
        x = x[:, rng.integers(0, min(length, 40), length)] if seed else x
        found, expected = np.empty_like(x), np.empty_like(x)
        keys = [(programs[1], key.descends, key.total)]
        _core.sort_lines(programs[0], keys, [x], [found]).run()
        _core.sort_lines(programs[0], [], [x], [expected]).run()
        np.testing.assert_array_equal(found, expected)


def compared(name: str, direction: str, t: DType, kind: str, left: int) -> Any:
    order = {"comparison_direction": direction, "comparison_type": kind}
    return (name, PRED, (left, left + 1), order)


@pytest.mark.parametrize("form", ["or", "turned", "select"])
@pytest.mark.parametrize(("t", "kind"), KINDS, ids=str)
@pytest.mark.parametrize("length", [1, 2, 50, 3000])
def test_sort_E10_by_several_keys_is_the_merge(t: DType, kind: str, form: str, length: int) -> None:
    """Equal first keys are in the order of the second ones, and equal pairs of them as they stood."""
    second = (F32, "TOTALORDER") if t is S32 else (S32, "SIGNED")
    steps = [
        compared("compare", "GT", t, kind, 0),
        compared("compare", "EQ", t, kind, 0),
        compared("compare", "LT", *second, 2),
    ]
    if form == "select":
        steps.append(("select", PRED, (7, 8, 6), {}))
    else:
        steps.append(("and", PRED, (7, 8) if form == "or" else (8, 7), {}))
        steps.append(("or", PRED, (6, 9) if form == "or" else (9, 6), {}))
    parameters = [t, t, second[0], second[0], S32, S32]
    body = applied(computation("c", parameters, steps, [5 + len(steps)]))
    first, last = sort_keys(body)
    assert (first.descends, first.total) == (True, kind == "TOTALORDER")
    assert not last.descends
    profile = Profile(int64="keep")
    program = computation_chain(body, profile)
    keys = [(computation_chain(k.key, profile), k.descends, k.total) for k in (first, last)]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = (random_bits(rng, u, (2, length)).data for u in (t, second[0]))
        few = rng.integers(0, min(length, 9), (2, length))
        x, y = (z[:, i] for z, i in zip((x, y), few, strict=True)) if seed else (x, y)
        lines = [x, y, np.broadcast_to(np.arange(length, dtype=np.int32), x.shape)]
        found, expected = ([np.empty_like(z) for z in lines] for _ in range(2))
        _core.sort_lines(program, keys, lines, found).run()
        _core.sort_lines(program, [], lines, expected).run()
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_sort_E10_by_keys_that_are_not_asked_first_has_none() -> None:
    """That the first keys are equal is asked of other values, or of floats in another way."""
    for equal in (compared("compare", "EQ", S32, "SIGNED", 2), compared("compare", "NE", S32, "", 0)):
        steps = [compared("compare", "LT", S32, "SIGNED", 0), equal]
        steps += [compared("compare", "LT", S32, "SIGNED", 2), ("and", PRED, (5, 6), {})]
        steps.append(("or", PRED, (4, 7), {}))
        assert sort_keys(applied(computation("c", [S32] * 4, steps, [8]))) == ()
    steps = [compared("compare", "LT", F32, "TOTALORDER", 0), compared("compare", "EQ", F32, "", 0)]
    steps += [compared("compare", "LT", F32, "", 2), ("and", PRED, (5, 6), {})]
    steps.append(("or", PRED, (4, 7), {}))
    assert sort_keys(applied(computation("c", [F32] * 4, steps, [8]))) == ()


def test_sort_E10_of_other_functions_of_both_elements_has_no_key() -> None:
    """That x + 1 < y - 1 is no comparison of one function's values; nor is x <= y an order of keys."""
    steps = [("add", S32, (0, 0), {}), ("subtract", S32, (1, 1), {})]
    kind = {"comparison_direction": "LT", "comparison_type": ""}
    minus_one: Any = [*steps, ("compare", PRED, (2, 3), kind)]
    assert sort_keys(applied(computation("c", [S32, S32], minus_one, [4]))) == ()
    assert sort_keys(applied(comparison("c", "LE", S32))) == ()


# ---- pairs that are chosen -------------------------------------------------------------------------

DIRECTIONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]


@st.composite
def choices(draw: st.DrawFn) -> Computation:
    """Comparisons of the two values, and of the two indices, combined; then a choice of each."""
    t = draw(st.sampled_from([F32, BF16, S32, dtypes.uint8, dtypes.float8_e4m3, PRED]))
    index = draw(st.sampled_from([S32, dtypes.uint32, dtypes.int64]))
    steps: list[tuple[str, DType, Any, dict[str, Any]]] = []
    for _ in range(draw(st.integers(1, 3))):
        a = draw(st.integers(0, 3))
        b = draw(st.sampled_from([a, (a + 2) % 4]))
        attributes = {"comparison_direction": draw(st.sampled_from(DIRECTIONS)), "comparison_type": ""}
        steps.append(("compare", PRED, (a, b), attributes))
    for _ in range(draw(st.integers(0, 3))):
        values = (0, 2) if t is PRED else ()  # which may be combined themselves
        known = st.sampled_from([*values, *range(4, 4 + len(steps))])
        steps.append(
            (draw(st.sampled_from(["and", "or", "xor"])), PRED, (draw(known), draw(known)), {})
        )
    known = st.integers(4, 3 + len(steps))
    for kind, one, other in ((t, 0, 2), (index, 1, 3)):
        steps.append(("select", kind, (draw(known), *draw(st.permutations([one, other]))), {}))
    last = 4 + len(steps)
    return computation("choice", [t, index, t, index], steps, [last - 2, last - 1])


@settings(max_examples=150, deadline=None)
@given(choices(), st.integers(0, 99), st.booleans())
def test_reduce_R2_of_pairs_that_are_chosen_is_the_fold(
    body: Computation, seed: int, along: bool
) -> None:
    """With equal values, signed zeros and NaN of any payload, along each axis of a view. What tells two
    pairs of equal bools apart is no choice by comparison.
    """
    rng = np.random.default_rng(seed)
    t, index = (p.array.dtype for p in body.instructions[:2])
    few = random_bits(rng, t, (6,)).data
    x = few[rng.integers(0, 6, (5, 7))].T if seed % 2 else random_bits(rng, t, (7, 5)).data
    i = rng.integers(0, 4, (7, 5)).astype(index.storage)
    starts = [np.asarray(few[0]), np.asarray(i[0, 0])]
    program = computation_chain(applied(body), Profile(int64="keep"))
    moved = [a.T if along else a for a in (x, i)]
    rows = moved[0].shape[0]
    found, expected = ([np.zeros(rows, a.dtype) for a in (x, i)] for _ in "ab")
    call = _core.choose(program, 1, moved, starts, found)
    if call is None:
        assert t is PRED
        return
    call.run()
    window = [(1, 1, 0, 1, 1), (moved[0].shape[1], 1, 0, 1, 1)]
    wide = [a.reshape(rows, 1) for a in expected]
    _core.fold(program, window, moved, starts, wide).run()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_reduce_R2_of_equal_bools_that_are_told_apart_is_no_choice() -> None:
    """The later index of two trues, the earlier one of two falses."""
    steps = [("and", PRED, (0, 2), {}), ("select", PRED, (4, 2, 0), {}), ("select", S32, (4, 3, 1), {})]
    body = computation("last", [PRED, S32, PRED, S32], steps, [5, 6])
    program = computation_chain(applied(body), Profile())
    x, i = np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.int32)
    starts = [np.asarray(a[0, 0]) for a in (x, i)]
    assert _core.choose(program, 1, [x, i], starts, [x[:, 0].copy(), i[:, 0].copy()]) is None
    ahead = {"comparison_direction": "GE", "comparison_type": ""}
    compared: list[Any] = [("compare", PRED, (0, 2), ahead)]
    compared += [("select", PRED, (4, 0, 2), {}), ("select", S32, (4, 1, 3), {})]
    body = computation("first", [PRED, S32, PRED, S32], compared, [5, 6])
    program = computation_chain(applied(body), Profile())
    assert _core.choose(program, 1, [x, i], starts, [x[:, 0].copy(), i[:, 0].copy()]) is not None


def test_reduce_R2_of_pairs_that_are_computed_is_no_choice() -> None:
    steps = [("add", F32, (0, 2), {}), ("add", S32, (1, 3), {})]
    program = computation_chain(applied(computation("sums", [F32, S32] * 2, steps, [4, 5])), Profile())
    x, i = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)
    starts, outputs = [x[0, 0], i[0, 0]], [x[:, 0].copy(), i[:, 0].copy()]
    starts = [np.asarray(a) for a in starts]
    assert _core.choose(program, 1, [x, i], starts, outputs) is None


# ---- calls ----------------------------------------------------------------------------------------


def applied(body: Computation) -> ops.ScalarComputation:
    """A computation as an operation applies it."""
    count = len(body.parameters)
    root = body.by_name[body.root].shape
    opcode = "sort" if isinstance(root, Shape) and root.dtype is PRED else "reduce"
    types = [p.array.dtype for p in body.parameters]
    if opcode == "sort":
        operands = [bits(np.zeros(3), t).type for t in types[::2]]
        attributes: dict[str, Any] = {"dimensions": (0,), "is_stable": True}
    else:
        half = types[: count // 2]
        operands = [*(bits(np.zeros(3), t).type for t in half), *(bits(0, t).type for t in half)]
        attributes = {"dimensions": (0,)}
    module = module_of(opcode, operands, attributes, [body])
    found = row_attributes(module, module.root)["computations"]
    return found[0]  # type: ignore[no-any-return]


def test_a_call_runs_on_the_arrays_that_it_was_made_for() -> None:
    x, places = np.array([3, 1, 2], np.int32), np.zeros(2, np.int64)
    values = np.zeros(2, np.int32)
    call = _core.top(dtypes.int32.code or 0, True, x, places, values)
    for first in (3, 0):
        x[0] = first
        call.run()
        assert values.tolist() == sorted(x.tolist(), reverse=True)[:2]


# ---- unrolled loops --------------------------------------------------------------------------------


OF_FLOATS = DOUBLING.replace("s32[3]", "f32[3]")


@pytest.mark.parametrize(("limit", "steps"), [(0, 0), (3, 1), (8, 1), (9, None)])
def test_a_loop_of_few_known_trips_is_unrolled_D2(limit: int, steps: int | None) -> None:
    square = loop("f32[3]", "  y = f32[3] multiply(e1, e1)", "y", limit=str(limit))
    program = compiled(square + OF_FLOATS)
    loops = [s for s in program.steps if isinstance(s.action, While)]
    assert bool(loops) == (steps is None)
    if steps is not None:
        assert len(program.steps) == steps
    x = np.array([1.5, -0.5, 1.0], np.float32)
    expected = x
    for _ in range(limit):
        with np.errstate(over="ignore", under="ignore"):
            expected = expected * expected
    trips, found = run(program, x)
    assert trips == limit
    np.testing.assert_array_equal(np.asarray(found, np.float32), expected)


def test_a_loop_that_draws_words_keeps_its_trips_S2() -> None:
    draws = "  zero = f32[] constant(0)\n  unit = f32[] constant(1)\n"
    draws += "  y = f32[3] rng(zero, unit), distribution=rng_uniform"
    program = compiled(loop("f32[3]", draws, "y") + OF_FLOATS)
    assert [s for s in program.steps if isinstance(s.action, While)]


# ---- chains that are one ---------------------------------------------------------------------------


def test_a_chain_runs_behind_what_it_reads_D2() -> None:
    """The second sum reads a sorted first one, the third only the input: it joins the first."""
    text = """
below { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT less = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[3] parameter(0)
  one = f32[3] add(x, x)
  sorted = f32[3] sort(one), dimensions={0}, to_apply=below
  two = f32[3] multiply(sorted, x)
  three = f32[3] subtract(x, two)
  four = f32[3] negate(x)
  ROOT all = (f32[3], f32[3], f32[3], f32[3]) tuple(one, two, three, four)
}
"""
    program = compiled(text)
    chains = [s.members for s in program.steps if isinstance(s.action, Chain)]
    assert chains == [("one",), ("two", "three", "four")]
    found = run(program, np.array([3, -1, 2], np.float32))
    assert found == ([6, -2, 4], [-6, -4, 12], [9, 3, -10], [-3, 1, -2])


def test_a_state_that_a_later_step_reads_is_not_overwritten_D2() -> None:
    """Of each trip the new first state comes before a product that reads the old one."""
    changes = """
  y = s32[3] add(e1, e1)
  d = s32[] dot(e1, e1), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  r = s32[3] broadcast(d), dimensions={}
  z = s32[3] add(r, e2)
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "MAX_TRIPS", 0)
        program = compiled(loop("s32[3] s32[3]", changes, "y, z") + PAIR)
    x, y = -np.array([1, 2, 3]), -np.array([10, 20, 30])
    for _ in range(3):
        x, y = 2 * x, x @ x + y
    assert run(program, [1, 2, 3], [10, 20, 30]) == (3, x.tolist(), y.tolist())
