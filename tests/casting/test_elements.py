"""Plans of what applies computations to elements, gives several results, or moves values (A2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.casting.reading import read_module, rounded
from tests.support.graphs import computation, constant, inst
from tests.support.graphs import unverified as module
from tests.support.parameters import each_of
from tests.support.running import execute, flat

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

F32, BF16, F16, TF32, S32 = (
    dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.tfloat32, dtypes.int32,
)  # fmt: skip
PRED = dtypes.boolean
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
Words = np.ndarray[Any, Any]


def pair(*elements: AnyShape) -> TupleShape:
    return TupleShape(elements)


def scalars(*types: DType) -> list[Instruction]:
    return [inst("abcd"[k], "parameter", t, number=k) for k, t in enumerate(types)]


def compared(name: str, direction: str, *types: DType) -> Computation:
    """The comparison of the first two parameters."""
    test = inst("t", "compare", PRED, "a", "b", comparison_direction=direction)
    return computation(name, *scalars(*types), test)


SUM = computation("sum", *scalars(F32, F32), inst("s", "add", F32, "a", "b"))
ASSIGN = Computation("assign", tuple(scalars(F32, F32)), "b")
WEIGHTED = computation(
    "weighted",
    *scalars(F32, F32),
    constant("k", 0.3),
    inst("m", "multiply", F32, "a", "k"),
    inst("s", "add", F32, "m", "b"),
)
GREATEST = computation(
    "greatest",
    *scalars(F32, S32, F32, S32),
    inst("ge", "compare", PRED, "a", "c", comparison_direction="GE"),
    inst("x", "select", F32, "ge", "a", "c"),
    inst("n", "select", S32, "ge", "b", "d"),
    inst("t", "tuple", pair(Shape(F32), Shape(S32)), "x", "n"),
)
GREATER = compared("greater", "GE", F32, F32)
Function = Callable[[Instruction, list[Words]], Any]


def applied(model: Module, auto_cast: str, cast_type: str, *, clean: bool = True) -> Module:
    verify(model)
    plan = make_plan(model, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
    result = apply_plan(model, plan, clean=clean)
    verify(result)
    types = {s.dtype for c in result.computations for i in c.instructions for s in i.shape.arrays()}
    assert TF32 not in types
    return result


def bits(x: Any) -> ops.Bits:
    dtype = {"f": F32, "i": S32, "b": PRED}[x.dtype.kind]
    return ops.Bits(np.asarray(x, dtype.numpy).view(dtype.storage), dtype)


def check(
    model: Module,
    cast_type: str,
    *inputs: Words,
    **functions: Callable[[Instruction, list[Words]], Any],
) -> Module:
    """The planned module, applied literally, which gives what rule A2 read op by op gives, as the clean
    one does, and not what float32 gives.
    """
    low, given = CAST_TYPES[cast_type], [bits(x) for x in inputs]
    result = applied(model, "all", cast_type)
    expected = flat(read_module(model, list(inputs), low, "all", **functions))
    got = flat(execute(result, given))
    assert [x.type for x in got] == [s.type for s in model.root.shape.arrays()]
    for x, y in zip(got, expected, strict=True):
        assert x.data.tobytes() == np.ascontiguousarray(y).tobytes(), (x.data, y)
    literal = applied(model, "all", cast_type, clean=False)
    found = [x.data.tobytes() for x in got]
    assert found != [x.data.tobytes() for x in flat(execute(applied(model, "none", cast_type), given))]
    assert found == [x.data.tobytes() for x in flat(execute(literal, given))]
    return literal


def normal(*dims: int, seed: int = 3) -> Words:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


X = inst("x", "parameter", (5, 7), number=0)
ZERO = constant("zero", 0.0)


# ---- computations of elements --------------------------------------------------------------------


def greatest(i: Instruction, v: list[Words]) -> tuple[Words, ...]:
    x, n, _, _ = v
    at = x.argmax(axis=1)
    return x[np.arange(len(x)), at], n[np.arange(len(x)), at]


def argmax_model(*after: Instruction) -> Module:
    shape = pair(Shape(F32, (5,)), Shape(S32, (5,)))
    more = {"dimensions": (1,), "called": ("greatest",)}
    return module(
        X,
        inst("n", "iota", Shape(S32, (5, 7)), dimensions=(1,)),
        constant("low", -1e4 if not after else -100.0),
        constant("none", -1, S32),
        inst("r", "reduce", shape, "x", "n", "low", "none", **more),
        *after,
        others=(GREATEST,),
    )


def numbers(i: Instruction, v: list[Words]) -> Words:
    axis = i.attributes["dimensions"][0]
    shape = [n if a == axis else 1 for a, n in enumerate(i.array.dims)]
    return np.broadcast_to(np.arange(i.array.dims[axis], dtype=np.int32).reshape(shape), i.array.dims)


@TYPES
def test_a_reduce_of_several_arrays_rounds_the_float32_ones_A2(cast_type: str) -> None:
    result = check(argmax_model(), cast_type, normal(5, 7), reduce=greatest, iota=numbers)
    low = CAST_TYPES[cast_type]
    carried = F32 if low is TF32 else low
    by_name = result.entry_computation.by_name
    arrays = [s.dtype for i in by_name.values() if i.opcode == "reduce" for s in i.shape.arrays()]
    assert arrays == [carried, S32]
    assert result.root.shape == pair(Shape(F32, (5,)), Shape(S32, (5,)))
    assert by_name["n"].array.dtype is S32


@TYPES
def test_elements_of_a_result_have_its_types_A2(cast_type: str) -> None:
    after = (
        inst("v", "get-tuple-element", (5,), "r", tuple_index=0),
        inst("k", "get-tuple-element", Shape(S32, (5,)), "r", tuple_index=1),
        inst("kf", "convert", (5,), "k"),
        inst("y", "multiply", (5,), "v", "kf"),
    )
    result = check(argmax_model(*after), cast_type, normal(5, 7), reduce=greatest, iota=numbers)
    by_name = result.entry_computation.by_name
    # Between decided instructions there is no convert.
    assert by_name["y"].operands == ("v", "kf") or CAST_TYPES[cast_type] is TF32
    assert "v.to_f32" not in by_name


def test_a_tuple_in_planned_types_is_converted_once_for_its_readers() -> None:
    shape = pair(Shape(F32, (5,)), Shape(S32, (5,)))
    twice = inst("t", "tuple", pair(shape, shape), "r", "r")
    result = applied(argmax_model(twice), "all", "bf16").entry_computation
    made = [i.name for i in result.instructions][-6:]
    assert made == ["r", "r.0", "r.1", "r.0.to_f32", "r.cast", "t"]
    assert result.by_name["t"].operands == ("r.cast", "r.cast")
    assert result.by_name["t"].shape == pair(shape, shape)


def weighted(low: DType) -> Callable[[Instruction, list[Words]], Words]:
    def fold(i: Instruction, v: list[Words]) -> Words:
        total = np.broadcast_to(v[1], v[0].shape[:1])
        k = rounded(np.asarray(0.3, np.float32), low)
        for column in v[0].T:
            total = rounded(rounded(total * k, low) + column, low)
        return total

    return fold


@TYPES
def test_a_general_reducer_rounds_each_step_A2(cast_type: str) -> None:
    r = inst("r", "reduce", (5,), "x", "zero", dimensions=(1,), called=("weighted",))
    model = module(X, ZERO, r, others=(WEIGHTED,))
    check(model, cast_type, normal(5, 7), reduce=weighted(CAST_TYPES[cast_type]))


@TYPES
def test_map_rounds_each_step_A2(cast_type: str) -> None:
    low = CAST_TYPES[cast_type]

    def each(i: Instruction, v: list[Words]) -> Words:
        k = rounded(np.asarray(0.3, np.float32), low)
        return rounded(v[0] * k, low) + v[1]

    y = inst("y", "parameter", (5, 7), number=1)
    r = inst("r", "map", (5, 7), "x", "y", dimensions=(0, 1), called=("weighted",))
    model = module(X, y, r, others=(WEIGHTED,))
    check(model, cast_type, normal(5, 7), normal(5, 7, seed=4), map=each)


SCATTER = {
    "scatter_dimensions": ops.ScatterDimensions((1,), (0,), (0,), (), (), 1),
    "indices_are_sorted": False,
    "unique_indices": False,
}


def scatter_model(called: Computation) -> Module:
    return module(
        X,
        inst("at", "parameter", Shape(S32, (9, 1)), number=1),
        inst("u", "parameter", (9, 7), number=2),
        inst("r", "scatter", (5, 7), "x", "at", "u", **SCATTER, called=(called.name,)),
        others=(called,),
    )


@pytest.mark.parametrize("called", [SUM, ASSIGN], ids=["add", "assign"])
@TYPES
def test_scatter_rounds_each_application_R5(cast_type: str, called: Computation) -> None:
    low = CAST_TYPES[cast_type]

    def applications(i: Instruction, v: list[Words]) -> Words:
        x = v[0].copy()
        for n, row in zip(v[1][:, 0], v[2], strict=True):
            x[n] = rounded(x[n] + row, low) if called is SUM else row
        return x

    at = np.array([[0], [3], [0], [3], [3], [1], [4], [3], [0]], np.int32)
    inputs = normal(5, 7), at, normal(9, 7, seed=8)
    check(scatter_model(called), cast_type, *inputs, scatter=applications)


def test_one_computation_may_be_a_reducer_and_a_scatters_R5() -> None:
    old = scatter_model(SUM).entry_computation.instructions
    r = inst("t", "reduce", (5,), "r", "zero", dimensions=(1,), called=("sum",))
    result = applied(module(*old, ZERO, r, others=(SUM,)), "all", "tf32")
    called = {i.opcode: i.called for i in result.entry_computation.instructions if i.called}
    assert called == {"scatter": ("sum.tf32",), "reduce": ("sum",)}


def test_matmult_leaves_scatter_alone_A1() -> None:
    assert applied(scatter_model(SUM), "matmult", "bf16") == scatter_model(SUM)


@pytest.mark.parametrize("key", [0, 1])
@TYPES
def test_sort_compares_rounded_keys_and_is_stable_A2(cast_type: str, key: int) -> None:
    low = CAST_TYPES[cast_type]

    def ordered(i: Instruction, v: list[Words]) -> tuple[Words, ...]:
        order = np.argsort(v[key], axis=0, kind="stable")
        return tuple(np.take_along_axis(a, order, axis=0) for a in v)

    # Keys that differ by less than any of the types can tell, so that ties keep their order.
    keys = 1 + np.arange(12, 0, -1).reshape(6, 2).astype(np.float32) * 2**-20
    keys[::3] *= 2
    assert len(np.unique(rounded(keys, low))) == 2
    operands = [("k", F32, keys), ("n", S32, np.arange(12, dtype=np.int32).reshape(6, 2))]
    operands = operands[::-1] if key else operands
    less = compared("less", "LT", *(t for _, t, _ in operands for _ in "xy"))
    if key:
        test = less.by_name["t"].replace(operands=("c", "d"))
        less = computation("less", *less.parameters, test)
    shapes = [Shape(t, (6, 2)) for _, t, _ in operands]
    parameters = [
        inst(n, "parameter", Shape(t, (6, 2)), number=k) for k, (n, t, _) in enumerate(operands)
    ]
    names = [p.name for p in parameters]
    more = {"dimensions": (0,), "is_stable": True, "called": ("less",)}
    s = inst("s", "sort", pair(*shapes), *names, **more)
    inputs = [x for _, _, x in operands]
    result = check(module(*parameters, s, others=(less,)), cast_type, *inputs, sort=ordered)
    if low is not TF32:
        called = result.by_name[result.entry_computation.by_name["s"].called[0]]
        expected = [low if t is F32 else S32 for _, t, _ in operands for _ in "xy"]
        assert [p.array.dtype for p in called.parameters] == expected


@TYPES
def test_reduce_window_and_its_gradient_A2(cast_type: str) -> None:
    low = CAST_TYPES[cast_type]
    window = (ops.WindowDimension(1), ops.WindowDimension(3, 2))

    def greatest_of_windows(i: Instruction, v: list[Words]) -> Words:
        windows = [v[0][:, k : k + 3] for k in (0, 2, 4)]
        return np.stack([w.max(axis=1) for w in windows], axis=1)

    def sources(i: Instruction, v: list[Words]) -> Words:
        x, out = v[0], np.zeros_like(v[0])
        for row, k in np.ndindex(5, 3):
            at = 2 * k + int(x[row, 2 * k : 2 * k + 3].argmax())
            out[row, at] = rounded(out[row, at] + v[1][row, k], low)
        return out

    greatest_of_two = computation("max", *scalars(F32, F32), inst("s", "maximum", F32, "a", "b"))
    stated = {"window": window, "called": ("greater", "sum")}
    model = module(
        X,
        ZERO,
        constant("least", -100.0),
        inst("w", "reduce-window", (5, 3), "x", "least", window=window, called=("max",)),
        inst("g", "multiply", (5, 3), "w", "w"),
        inst("r", "select-and-scatter", (5, 7), "x", "g", "zero", **stated),
        others=(greatest_of_two, GREATER, SUM),
    )
    functions = {"reduce_window": greatest_of_windows, "select_and_scatter": sources}
    check(model, cast_type, normal(5, 7), **functions)


# ---- movement ------------------------------------------------------------------------------------

GATHER = ops.GatherDimensions((1,), (0,), (0,), (), (), 1)


@TYPES
def test_movement_moves_rounded_values_A2(cast_type: str) -> None:
    model = module(
        X,
        inst("n", "parameter", S32, number=1),
        ZERO,
        inst("d", "dynamic-slice", (2, 7), "x", "n", "n", dynamic_slice_sizes=(2, 7)),
        inst("p", "pad", (3, 7), "d", "zero", padding=((1, 0, 0), (0, 0, 0))),
        inst("u", "dynamic-update-slice", (5, 7), "x", "p", "n", "n"),
        inst("c", "concatenate", (7, 7), "u", "d", dimensions=(0,)),
        constant("i", [6, 1], S32),
        inst("g", "gather", (2, 7), "c", "i", gather_dimensions=GATHER, slice_sizes=(1, 7)),
    )

    def update(i: Instruction, v: list[Words]) -> Words:
        x = v[0].copy()
        x[1:4] = v[1]
        return x

    functions: dict[str, Function] = {
        "dynamic_slice": lambda i, v: v[0][1:3],
        "pad": lambda i, v: np.pad(v[0], ((1, 0), (0, 0))),
        "dynamic_update_slice": update,
        "concatenate": lambda i, v: np.concatenate(v),
        "gather": lambda i, v: v[0][v[1]],
    }
    check(model, cast_type, normal(5, 7), np.array(1, np.int32), **functions)
    low = CAST_TYPES[cast_type]
    carried = F32 if low is TF32 else low
    # Where movement rounds nothing, a clean application may move float32 (docs/casting_cleanup.md).
    literal = apply_plan(model, make_plan(model, neuron_policy("all", cast_type)), clean=False)
    by_name = literal.entry_computation.by_name
    assert {by_name[n].array.dtype for n in "dpucg"} == {carried}
    # Rounded once, where it enters: the parameter and the padding.
    rounding = [n for n in by_name if n.split(".to_")[-1] in ("bf16", "f16", "tf32", "f8e4m3")]
    assert [n.split(".to_")[0] for n in rounding] == ["x", "zero"]


def test_a_view_of_the_bits_reads_the_models_type() -> None:
    model = module(
        X,
        inst("y", "multiply", (5, 7), "x", "x"),
        inst("v", "bitcast-convert", Shape(S32, (5, 7)), "y"),
        inst("b", "bitcast-convert", (5, 7), "v"),
        inst("z", "add", (5, 7), "b", "b"),
    )
    verify(model)
    assert set(make_plan(model, neuron_policy("all", "bf16")).decisions) == {"y", "z"}
    views = {"bitcast_convert": lambda i, v: v[0].view(i.array.dtype.numpy)}
    result = check(model, "bf16", normal(5, 7), **views)
    assert result.entry_computation.by_name["v"].operands == ("y.to_f32.v.0",)
    plan = make_plan(model, neuron_policy("all", "bf16"))
    by_hand = dataclasses.replace(plan, decisions={"b": plan.decisions["y"]})
    with pytest.raises(InvalidArgument, match="b is a bitcast-convert that keeps"):
        apply_plan(model, by_hand)


# ---- what is left alone ----------------------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("dtype", [F16, BF16, dtypes.float64, S32])
def test_other_types_are_untouched_A2(cast_type: str, dtype: DType) -> None:
    shape = Shape(dtype, (4,))
    add = computation("sum", *scalars(dtype, dtype), Instruction("s", "add", Shape(dtype), ("a", "b")))
    less = compared("less", "LT", dtype, dtype)
    model = module(
        inst("x", "parameter", shape, number=0),
        inst("z", "parameter", Shape(dtype), number=1),
        inst("s", "sort", shape, "x", dimensions=(0,), is_stable=True, called=("less",)),
        inst("r", "reduce", Shape(dtype), "s", "z", dimensions=(0,), called=("sum",)),
        others=(add, less),
    )
    assert applied(model, "all", cast_type) == model


def test_complex_numbers_are_the_hosts_H1() -> None:
    model = module(
        inst("x", "parameter", Shape(dtypes.complex64, (3,)), number=0),
        inst("a", "abs", (3,), "x"),
        inst("y", "multiply", (3,), "a", "a"),
    )
    assert set(make_plan(model, neuron_policy("all", "bf16")).decisions) == {"y"}
    assert (
        applied(model, "all", "bf16").entry_computation.by_name["a"]
        == model.entry_computation.by_name["a"]
    )


@each_of("output", [F32, BF16, F16, TF32])
@each_of("operand", [F32, BF16, F16, TF32])
def test_several_results_may_have_another_type_than_is_read_E1(operand: DType, output: DType) -> None:
    model = argmax_model()
    x = normal(5, 7)
    plan = make_plan(model, neuron_policy("none", "bf16"))
    decision = Decision(operand, F32, output, "by hand")
    result = apply_plan(model, dataclasses.replace(plan, decisions={"r": decision}))
    verify(result)
    value, at = greatest(model.root, [rounded(x, operand), np.broadcast_to(np.arange(7), (5, 7)), x, x])
    got = execute(result, [bits(x)])
    np.testing.assert_array_equal(got[0].data, rounded(value, output))
    np.testing.assert_array_equal(got[1].data, at)
