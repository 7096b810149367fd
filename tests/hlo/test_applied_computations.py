"""Instructions that apply computations to elements: reduce (R2), reduce-window and select-and-scatter
(R4), sort and topk (E10), map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.core.test_windows import arithmetic, random_window
from tests.hlo.single import binary, comparison, computation, module_of, ours, theirs, words
from tests.hlo.test_indexing import random_bits
from tests.support.parameters import each_of

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidModel, UnsupportedOperator
from neuronsim.hlo.module import Computation, Instruction, Shape
from neuronsim.hlo.verify import verify
from neuronsim.ops import ArrayType, Bits, WindowDimension
from neuronsim.profiles import Profile
from neuronsim.reference import indexing, windows
from neuronsim.reference.order import merge_order
from neuronsim.reference.sums import WindowAxis

F32, S32, BF16, F64, PRED = (
    dtypes.float32, dtypes.int32, dtypes.bfloat16, dtypes.float64, dtypes.boolean
)  # fmt: skip
INTEGERS = [dtypes.int32, dtypes.uint32, dtypes.int8, dtypes.uint16, dtypes.int64]


def axes_of(window: Sequence[WindowDimension]) -> list[WindowAxis]:
    return [
        WindowAxis(d.size, d.stride, d.padding[0], d.base_dilation, d.window_dilation) for d in window
    ]


def bits(data: Any, dtype: DType) -> Bits:
    return Bits(np.asarray(data, dtype.storage), dtype)


def near_one(rng: np.random.Generator, dims: Sequence[int]) -> Bits:
    """bfloat16 values of a few binades, so that every addition rounds."""
    raw = rng.integers(0, 1 << 16, dims).astype(np.uint16)
    return Bits(np.asarray(raw & 0x81FF | 0x3F00, np.uint16), BF16)


def horner_of(t: DType) -> Computation:
    """Not simple (R2): the accumulator times the element, plus the element."""
    return computation("horner", [t] * 2, [("multiply", t, (0, 1), {}), ("add", t, (2, 1), {})], [3])


HORNER = horner_of(BF16)


def applied(
    opcode: str, inputs: Sequence[Bits], attributes: dict[str, Any], *bodies: Computation, **fields: str
) -> tuple[np.ndarray, ...]:
    """The results of the instruction alone."""
    module = module_of(opcode, [x.type for x in inputs], attributes, bodies)
    return ours(module, inputs, Profile(**fields))


def horner(a: int, x: int) -> int:
    return arithmetic("add", "bfloat16", arithmetic("multiply", "bfloat16", a, x), x)


def largest_with_index(t: DType) -> Computation:
    """The reducer of argmax as JAX writes it: the greater value, of equal ones the lower index."""
    kind = {"comparison_type": ""}
    steps: list[tuple[str, DType, Sequence[int], dict[str, Any]]] = [
        ("compare", PRED, (0, 2), {"comparison_direction": "GT", **kind}),
        ("compare", PRED, (0, 2), {"comparison_direction": "EQ", **kind}),
        ("compare", PRED, (1, 3), {"comparison_direction": "LT", **kind}),
        ("and", PRED, (5, 6), {}),
        ("or", PRED, (4, 7), {}),
        ("select", t, (4, 0, 2), {}),
        ("select", S32, (8, 1, 3), {}),
    ]
    return computation("largest", [t, S32, t, S32], steps, [9, 10])


# ---- reduce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 2), (2, 0), (0, 1, 2), ()])
def test_reduce_R2_of_several_operations_runs_as_written(dimensions: tuple[int, ...]) -> None:
    """From the initial value, in ascending order of the axes, untiled, each operation rounded."""
    x, start = near_one(np.random.default_rng(130), (5, 3, 700)), bits(0x3F80, BF16)
    if len(dimensions) == 3:
        x = Bits(x.data[:, :, :120], BF16)
    (found,) = applied("reduce", [x, start], {"dimensions": dimensions}, HORNER)
    kept = [d for d in range(3) if d not in dimensions]
    rows = x.data.transpose(*kept, *sorted(dimensions)).reshape(found.size, -1)
    if rows.shape[0] > 100:
        rows, found = rows[::97], found.reshape(-1)[::97]
    expected = [windows.fold(horner, 0x3F80, [int(v) for v in row]) for row in rows]
    np.testing.assert_array_equal(found.reshape(-1), expected)


@each_of("t", [*INTEGERS, F32, BF16], ids=lambda t: t.name)
@each_of("axis", [0, 1])
def test_reduce_R2_of_values_and_indices_is_argmax(t: DType, axis: int) -> None:
    rng = np.random.default_rng(131)
    x = Bits(rng.integers(0, 9, (40, 30)).astype(t.storage), t)  # of bfloat16: tiny, and in order
    index = bits(np.indices((40, 30))[axis], S32)
    inputs = [x, index, bits(0, t), bits(99, S32)]
    values, indices = applied("reduce", inputs, {"dimensions": (axis,)}, largest_with_index(t))
    np.testing.assert_array_equal(indices, np.argmax(x.data, axis))
    np.testing.assert_array_equal(values.view(t.storage), np.max(x.data, axis))


@pytest.mark.parametrize("t", [dtypes.int32, dtypes.uint16, dtypes.int8], ids=lambda t: t.name)
def test_reduce_R2_peer_xla(t: DType) -> None:
    rng = np.random.default_rng(132)
    inputs = [
        random_bits(rng, t, (7, 11, 5)), bits(np.indices((7, 11, 5))[1], S32), bits(0, t), bits(0, S32)
    ]  # fmt: skip
    types = [b.type for b in inputs]
    module = module_of("reduce", types, {"dimensions": (1, 2)}, [largest_with_index(t)])
    for a, b in zip(ours(module, inputs), theirs(module, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_reduce_R2_of_no_element_is_the_initial_value() -> None:
    start, over_1 = bits(0x1234, BF16), {"dimensions": (1,)}
    for dims, expected in (((3, 0), [0x1234] * 3), ((0, 3), [])):
        x = Bits(np.zeros(dims, np.uint16), BF16)
        assert applied("reduce", [x, start], over_1, HORNER)[0].tolist() == expected


def test_reduce_R2_of_a_view_reads_its_elements() -> None:
    x, start = near_one(np.random.default_rng(133), (6, 8)), bits(0x3F80, BF16)
    module = module_of("reduce", [ArrayType(BF16, (8, 6)), start.type], {"dimensions": (1,)}, [HORNER])
    dense = Bits(np.ascontiguousarray(x.data.T[::-1]), BF16)
    (found,) = ours(module, [Bits(x.data.T[::-1], BF16), start])
    np.testing.assert_array_equal(found, ours(module, [dense, start])[0])


def test_reduce_C7_of_64_bit_integers_is_the_32_bit_computation() -> None:
    """2^31 + 2^31 wraps to 0 in 32 bits at each step."""
    int64 = dtypes.int64
    int64, along = dtypes.int64, {"dimensions": (0,)}
    twice = computation("t", [int64] * 2, [("add", int64, (0, 1), {}), ("add", int64, (2, 1), {})], [3])
    inputs = bits([1 << 30, 3], int64), bits(0, int64)
    (wide,) = applied("reduce", inputs, along, twice)
    (narrow,) = applied("reduce", inputs, along, twice, int64="truncate")
    assert wide.view(np.int64) == (1 << 31) + 6
    assert narrow.view(np.int64) == 6 - (1 << 31)


@pytest.mark.parametrize("t", [F64, dtypes.complex128], ids=lambda t: t.name)
def test_reduce_H1_computes_with_the_hosts_types(t: DType) -> None:
    x, start = bits(1 + np.arange(12).reshape(3, 4) * 2.0**-40, t), bits(1, t)
    acc = np.ones(3, t.storage)
    for column in x.data.T:
        acc = acc * column + column
    found = applied("reduce", [x, start], {"dimensions": (1,)}, horner_of(t))[0]
    np.testing.assert_array_equal(found, words(acc))


def test_reduce_S2_has_no_words_for_the_steps() -> None:
    x, start = near_one(np.random.default_rng(134), (4,)), bits(0, BF16)
    with pytest.raises(UnsupportedOperator, match="S2"):
        applied("reduce", [x, start], {"dimensions": (0,)}, HORNER, rounding="stochastic")


@pytest.mark.parametrize(("constant", "draws"), [("0.5", False), ("0.1", True)])
def test_sort_S2_needs_no_words_for_constants_that_the_type_holds(constant: str, draws: bool) -> None:
    text = f"""HloModule m
    below {{
      a = bf16[] parameter(0)
      b = bf16[] parameter(1)
      wide = f32[] constant({constant})
      pivot = bf16[] convert(wide)
      first = pred[] compare(a, pivot), direction=LT
      second = pred[] compare(b, pivot), direction=GE
      ROOT both = pred[] and(first, second)
    }}
    ENTRY main {{
      x = bf16[5] parameter(0)
      ROOT y = bf16[5] sort(x), dimensions={{0}}, to_apply=below
    }}"""
    program = neuronsim.compile(text.encode(), auto_cast="none", profile=Profile(rounding="stochastic"))
    x = np.array([1, 0.25, 0.75, 0.125, 0.5], dtypes.bfloat16.numpy)
    if draws:
        with pytest.raises(UnsupportedOperator, match="S2 has no words"):
            program(x)
    else:
        assert program(x).tolist() == [0.25, 0.125, 1, 0.75, 0.5]


@pytest.mark.parametrize(
    ("given", "constant", "to", "fields"),
    [
        ("f32", "7.34683969e-40", "bf16", {"subnormals": "flush"}),
        ("s64", "3000000000", "f32", {"int64": "truncate"}),
        ("f32", "inf", "f8e5m2", {"fp8_overflow": "nan"}),
    ],
)
@pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
def test_map_C3_C4_C7_of_a_constant_is_converted_as_elsewhere(
    given: str, constant: str, to: str, fields: dict[str, Any], rounding: Any
) -> None:
    """A computation's constant by the profile's rules, as an instruction of the entry is."""
    body = f"c = {given}[] constant({constant})\n ROOT d = {to}[] convert(c)"
    applied_text = f"""HloModule m
    one {{
      a = f32[] parameter(0)
      {body}
    }}
    ENTRY main {{
      x = f32[1] parameter(0)
      ROOT y = {to}[1] map(x), dimensions={{0}}, to_apply=one
    }}"""
    plain_text = f"HloModule m\n ENTRY main {{ x = f32[1] parameter(0)\n {body} }}"
    found = []
    for text in (applied_text, plain_text):
        profile = Profile(rounding=rounding, **fields)
        program = neuronsim.compile(text.encode(), auto_cast="none", profile=profile)
        try:
            found.append(np.asarray(program(np.zeros(1, np.float32)), np.float32).tobytes())
        except UnsupportedOperator:
            assert rounding == "stochastic"
            return
    assert found[0] == found[1]


@pytest.mark.parametrize("op", ["minimum", "maximum"])
def test_scatter_S2_needs_no_words_for_what_chooses(op: str) -> None:
    text = f"""HloModule m
    chosen {{
      a = bf16[] parameter(0)
      b = bf16[] parameter(1)
      ROOT c = bf16[] {op}(a, b)
    }}
    ENTRY main {{
      x = bf16[3] parameter(0)
      i = s32[2,1] constant({{{{0}},{{2}}}})
      u = bf16[2] parameter(1)
      ROOT y = bf16[3] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
        scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=chosen
    }}"""
    program = neuronsim.compile(text.encode(), auto_cast="none", profile=Profile(rounding="stochastic"))
    x, u = (np.array(v, dtypes.bfloat16.numpy) for v in ([1, 2, 3], [0.5, 4]))
    assert program(x, u).tolist() == ([0.5, 2, 3] if op == "minimum" else [1, 2, 4])


# ---- reduce-window -------------------------------------------------------------------------------


@each_of("seed", range(20))
def test_reduce_window_R2_R4_of_several_operations(seed: int) -> None:
    rng = np.random.default_rng([135, seed])
    dims = [int(n) for n in rng.integers(1, (30, 7, 4)[seed % 3], seed % 3 + 1)]
    window = random_window(rng, dims)
    x, start = near_one(rng, dims), bits(0x3F80, BF16)
    (found,) = applied("reduce-window", [x, start], {"window": window}, HORNER)
    for output in indexing.positions(found.shape):
        places = windows.reduced_elements(dims, axes_of(window), found.shape, output)
        assert found[output] == windows.fold(horner, 0x3F80, [int(x.data[p]) for p in places])


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reduce_window_R4_of_several_operations_that_runs_along_a_dimension(
    axis: int, backwards: bool
) -> None:
    """From the initial value, every accumulator being a result; float64 by the host's steps (H1)."""
    dims = (3, 40, 4)
    window = [WindowDimension(1)] * 3
    n = dims[axis]
    window[axis] = WindowDimension(n + 2, padding=(0, n + 1) if backwards else (n + 1, 0))
    stated = {"window": tuple(window)}
    x, start = near_one(np.random.default_rng(141), dims), bits(0x3F80, BF16)
    (found,) = applied("reduce-window", [x, start], stated, HORNER)
    wide = bits(np.random.default_rng(142).integers(-2, 3, dims) / 4, F64)
    on_host = applied("reduce-window", [wide, bits(3, F64)], stated, horner_of(F64))[0]
    on_host = on_host.view(np.float64)
    for output in indexing.positions(dims):
        places = windows.reduced_elements(dims, axes_of(window), dims, output)
        at = output[axis]
        assert len(places) == (n - at if backwards else at + 1)
        assert found[output] == windows.fold(horner, 0x3F80, [int(x.data[p]) for p in places])
        acc = 3.0
        for p in places:
            acc = acc * wide.data[p] + wide.data[p]
        assert on_host[output] == acc


@pytest.mark.parametrize("t", [F32, F64, dtypes.int16], ids=lambda t: t.name)
def test_reduce_window_of_simple_reducers_on_exact_sums(t: DType) -> None:
    """Whatever the order, the sums are exact; the host's types are NumPy's (H1)."""
    rng = np.random.default_rng(136)
    for _ in range(6):
        window = random_window(rng, (5, 6))
        x, start = bits(rng.integers(-9, 9, (5, 6)), t), bits(100, t)
        (found,) = applied("reduce-window", [x, start], {"window": window}, binary("a", "add", t))
        for output in indexing.positions(found.shape):
            places = windows.window_elements((5, 6), axes_of(window), output)
            assert found[output].view(t.storage) == 100 + sum(x.data[p] for p in places)


def test_reduce_window_H1_of_several_operations_agrees_with_the_device() -> None:
    """On small whole numbers float64 and int32 compute the same."""
    rng = np.random.default_rng(137)
    for _ in range(6):
        window, numbers = random_window(rng, (4, 5)), rng.integers(-2, 3, (4, 5))
        inputs = {t: [bits(numbers, t), bits(3, t)] for t in (F64, S32)}
        found = [
            applied("reduce-window", x, {"window": window}, horner_of(t))[0].view(t.storage)
            for t, x in inputs.items()
        ]
        np.testing.assert_array_equal(found[0], found[1])


def test_reduce_window_H1_of_an_empty_array_is_the_initial_value() -> None:
    body = computation("h", [F64] * 2, [("subtract", F64, (0, 1), {})], [2])
    inputs = [bits(np.zeros((0, 3)), F64), bits(5, F64)]
    window = (WindowDimension(2, padding=(3, 0)), WindowDimension(1))
    (found,) = applied("reduce-window", inputs, {"window": window}, body)
    assert found.view(np.float64).tolist() == [[5.0] * 3] * 2


def test_reduce_window_H1_overflows_to_inf_without_a_warning() -> None:
    inputs = [bits([1e308, 1e308], F64), bits(0, F64)]
    (found,) = applied("reduce-window", inputs, {"window": WINDOW}, binary("a", "add", F64))
    assert np.isinf(found.view(np.float64)).all()


# ---- select-and-scatter --------------------------------------------------------------------------


def random_pooling(seed: int, t: DType) -> tuple[tuple[WindowDimension, ...], list[Bits]]:
    rng = np.random.default_rng([139, seed])
    dims = (7, 6)
    window = random_window(rng, dims)
    source = tuple(d.output_size(n) for d, n in zip(window, dims, strict=True))
    x = bits(rng.integers(-5, 6, dims), t)
    return window, [x, bits(rng.integers(-100, 100, source), t), bits(7, t)]


@each_of("seed", range(20))
@each_of("t", [S32, F64], ids=lambda t: t.name)
def test_select_and_scatter_R4_equals_the_twin(t: DType, seed: int) -> None:
    window, inputs = random_pooling(seed, t)
    bodies = [comparison("ge", "GE", t), binary("sum", "add", t)]
    (found,) = applied("select-and-scatter", inputs, {"window": window}, *bodies)
    x, source, start = (dict(np.ndenumerate(b.data)) for b in inputs)
    expected = windows.select_and_scatter(
        x, inputs[0].data.shape, axes_of(window), source, inputs[1].data.shape, start[()],
        lambda a, b: bool(a >= b), lambda a, u: a + u,
    )  # fmt: skip
    assert found.view(t.storage).reshape(-1).tolist() == list(expected.values())


def test_select_and_scatter_R5_rounds_each_application() -> None:
    """256 + 1 is 256 in bfloat16, three times over."""
    inputs = bits([0x3F80], BF16), bits([0x3F80] * 3, BF16), bits(0x4380, BF16)
    stated = {"window": (WindowDimension(3, 1, (2, 2)),)}
    bodies = comparison("ge", "GE", BF16), binary("sum", "add", BF16)
    assert applied("select-and-scatter", inputs, stated, *bodies)[0].tolist() == [0x4380]


# ---- sort and topk -------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sort_E10_by_two_keys_along_any_dimension(axis: int) -> None:
    """The first key descending, equal ones by the second; a third array comes along."""
    rng = np.random.default_rng(140)
    a, b = (bits(rng.integers(0, 4, (6, 7, 5)), S32) for _ in "ab")
    c = random_bits(rng, BF16, (6, 7, 5))
    kind = {"comparison_type": ""}
    steps = [
        ("compare", PRED, (0, 1), {"comparison_direction": "GT", **kind}),
        ("compare", PRED, (0, 1), {"comparison_direction": "EQ", **kind}),
        ("compare", PRED, (2, 3), {"comparison_direction": "LT", **kind}),
        ("and", PRED, (7, 8), {}),
        ("or", PRED, (6, 9), {}),
    ]
    body = computation("order", [S32, S32, S32, S32, BF16, BF16], steps, [10])
    attributes = {"dimensions": (axis,), "is_stable": False}
    found = [np.moveaxis(f, axis, -1) for f in applied("sort", [a, b, c], attributes, body)]
    moved = [np.moveaxis(x.data, axis, -1) for x in (a, b, c)]
    for line in np.ndindex(moved[0].shape[:-1]):
        keys = list(zip(*(m[line].tolist() for m in moved[:2]), strict=True))
        order = merge_order(keys, lambda l, r: l[0] > r[0] or (l[0] == r[0] and l[1] < r[1]))
        for f, m in zip(found, moved, strict=True):
            np.testing.assert_array_equal(f[line], words(m[line])[order])


@pytest.mark.parametrize("t", [S32, F32, BF16, F64], ids=lambda t: t.name)
def test_sort_E10_by_total_order_moves_every_nan(t: DType) -> None:
    x = random_bits(np.random.default_rng(141), t, (300,))
    kind = "TOTALORDER" if t.kind == "float" else "SIGNED"
    (found,) = applied("sort", [x], {"dimensions": (0,)}, comparison("lt", "LT", t, kind))
    order = np.argsort(ops.order_keys(x, nan_last=False), kind="stable")
    np.testing.assert_array_equal(found, words(x.data)[order])


@each_of("largest", [True, False])
@each_of("t", [S32, F32, BF16, dtypes.uint8, F64], ids=lambda t: t.name)
def test_topk_E10_takes_equal_keys_by_index(t: DType, largest: bool) -> None:
    rng = np.random.default_rng(143)
    x = bits(rng.integers(0, 5, (4, 30)), t)
    if t.kind == "float":
        x = Bits(np.where(rng.random((4, 30)) < 0.3, random_bits(rng, t, (4, 30)).data, x.data), t)
    module = module_of("topk", [x.type], {"k": 7, "largest": largest})
    values, indices = ours(module, [x])
    assert module.root.result == (ArrayType(t, (4, 7)), ArrayType(S32, (4, 7)))
    for line, i in zip(ops.order_keys(x, nan_last=False), indices, strict=True):
        keys = line.tolist()
        order = sorted(range(30), key=lambda n: (-keys[n] if largest else keys[n], n))
        assert i.tolist() == order[:7]
    np.testing.assert_array_equal(values, np.take_along_axis(words(x.data), indices.astype(int), -1))


# ---- map -----------------------------------------------------------------------------------------


def test_map_applies_its_computation_to_every_element() -> None:
    x, y = near_one(np.random.default_rng(144), (9, 70)), near_one(np.random.default_rng(145), (9, 70))
    (found,) = applied("map", [x, y], {"dimensions": (0, 1)}, HORNER)
    expected = [horner(int(a), int(b)) for a, b in zip(x.data.flat, y.data.flat, strict=True)]
    assert found.reshape(-1).tolist() == expected


@pytest.mark.parametrize("t", [F64, dtypes.complex64], ids=lambda t: t.name)
def test_map_H1_computes_with_the_hosts_types(t: DType) -> None:
    steps: list[Any] = [
        ("constant", t, (), {"literal": bits(2.5, t)}),
        ("multiply", t, (0, 1), {}),
        ("compare", PRED, (0, 0), {"comparison_direction": "NE", "comparison_type": ""}),
        ("select", t, (3, 0, 2), {}),
    ]
    x = bits(np.arange(6).reshape(2, 3), t)
    (found,) = applied("map", [x], {"dimensions": (0, 1)}, computation("m", [t], steps, [4]))
    np.testing.assert_array_equal(found, words(x.data * t.storage.type(2.5)))


def test_map_may_give_another_type() -> None:
    x = bits([1, -2, 0], S32)
    module = module_of("map", [x.type, x.type], {"dimensions": (0,)}, [comparison("lt", "LT", S32)])
    assert module.root.array == Shape(PRED, (3,))
    assert ours(module, [x, bits([2, -2, 1], S32)])[0].tolist() == [1, 0, 1]


# ---- what is refused -----------------------------------------------------------------------------

V, V3, SCALAR = ArrayType(F32, (4,)), ArrayType(F32, (3,)), ArrayType(F32, ())
ADD, LESS, WINDOW = binary("a", "add", F32), comparison("l", "LT", F32), (WindowDimension(2),)
ADD_S32 = binary("i", "add", S32)
ALONG: dict[str, Any] = {"dimensions": (0,)}


@each_of(
    ("opcode", "operands", "attributes", "bodies", "match"),
    [
        ("reduce", [V, SCALAR], ALONG, [ADD_S32], r"takes \(int32, int32\), not \(float32, float32\)"),
        ("reduce", [V, SCALAR], ALONG, [LESS], r"gives \(bool\), not \(float32\)"),
        ("reduce", [V, SCALAR], ALONG, [ADD, LESS], "applies 1 computations, and 2 are named"),
        ("reduce", [V, V, SCALAR, SCALAR], ALONG, [ADD], "takes"),
        ("reduce", [V, ArrayType(F32, (5,)), SCALAR, SCALAR], ALONG, [ADD], "different shapes"),
        ("reduce", [V, V, SCALAR], ALONG, [ADD], "as many initial values"),
        ("reduce", [V], ALONG, [ADD], "as many initial values"),
        ("reduce-window", [V, SCALAR], {"window": WINDOW}, [ADD_S32], "takes"),
        ("reduce-window", [V, SCALAR], {"window": WINDOW * 2}, [ADD], "has 1 dimensions"),
        ("select-and-scatter", [V, V, SCALAR], {"window": WINDOW}, [LESS, ADD], r"take float32\[3\]"),
        ("select-and-scatter", [V, V3, V], {"window": WINDOW}, [LESS, ADD], "initial"),
        ("select-and-scatter", [V, V3, SCALAR], {"window": WINDOW}, [ADD], "applies 2"),
        ("select-and-scatter", [V, V3, SCALAR], {"window": WINDOW}, [ADD, ADD], "gives"),
        ("select-and-scatter", [V, V3, SCALAR], {"window": WINDOW}, [LESS, LESS], "gives"),
        ("sort", [V], ALONG, [ADD], "gives"),
        ("sort", [V, V], ALONG, [LESS], "takes"),
        ("sort", [V, ArrayType(F32, (5,))], ALONG, [LESS], "different shapes"),
        ("sort", [V], {"dimensions": (1,)}, [LESS], "dimensions"),
        ("sort", [SCALAR], {"dimensions": (0,)}, [LESS], "dimensions"),
        ("map", [V], ALONG, [ADD], "takes"),
        ("map", [V, ArrayType(F32, (5,))], ALONG, [ADD], "different shapes"),
        ("topk", [V], {"k": 5, "largest": True}, [], "no 5 largest"),
        ("topk", [SCALAR], {"k": 0, "largest": True}, [], "no 0 largest"),
    ],
)  # fmt: skip
def test_signatures_are_checked(
    opcode: str,
    operands: list[ArrayType],
    attributes: dict[str, Any],
    bodies: list[Computation],
    match: str,
) -> None:
    with pytest.raises(InvalidArgument, match=match):
        module_of(opcode, operands, attributes, bodies)


def test_an_instruction_that_names_no_computation_is_refused() -> None:
    module = module_of("reduce", [V, SCALAR], {**ALONG, "called": ()}, result=SCALAR)
    with pytest.raises(InvalidModel, match="calls no computation"):
        verify(module)


def test_a_computation_of_arrays_is_refused() -> None:
    a, b = (Instruction(f"v.{n}", "parameter", Shape(F32, (2,)), (), {"number": n}) for n in (0, 1))
    arrays = Computation("v", (a, b), "v.1")
    module = module_of("reduce", [V, SCALAR], ALONG, [arrays], result=SCALAR)
    with pytest.raises(InvalidModel, match=r"takes float32\[2\], not a scalar"):
        verify(module)
