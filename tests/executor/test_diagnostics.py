"""What a program's diagnostics hold: exceptions of IEEE 754 by instruction, and the values they leave
as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.executor.random_modules import HEALTH, PROFILE, Example, modules
from tests.support.parameters import each_of
from tests.support.running import flat

import neuronsim
from neuronsim import api, cli, dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import parse, proto
from neuronsim.profiles import Profile

pytestmark = pytest.mark.usefixtures("restored_settings")

FLOATS = ("float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3")
HLO = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
HLO |= {"float8_e5m2": "f8e5m2", "float8_e4m3": "f8e4m3"}


def compiled(body: str, parameters: str = "x: f32[4]", more: str = "", **options: Any) -> Any:
    """A program of HLO text: the entry computation's instructions after its parameters."""
    named = [p.split(": ") for p in parameters.split("; ") if p]
    lines = [f"  {name} = {kind} parameter({n})" for n, (name, kind) in enumerate(named)]
    text = "\n".join(["HloModule m", more, "ENTRY main {", *lines, body, "}"])
    return api.compile(parse.from_text(text), **{"auto_cast": "none", **options})


def events(program: Any, *inputs: Any, observe: str = "counts") -> dict[str, dict[str, int]]:
    """What a call met, without the categories of which there was nothing."""
    program(*inputs, observe=observe)
    categories = (*ops.EVENTS, "int64_truncated", "outside_range")
    found = {c: program.diagnostics[c] for c in categories}
    return {c: met for c, met in found.items() if met}


@pytest.fixture(params=["counts", "full"])
def observe(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# ---- each category ------------------------------------------------------------------------------


# What each of these calls meets: its instructions, its inputs, and the categories that are not empty.
CALLS: dict[str, tuple[str, np.ndarray, dict[str, dict[str, int]]]] = {
    "overflow is Inf from finite operands": (
        "  s = f32[4] add(x, x)\n  ROOT e = f32[4] exponential(s)",
        *(f32(2e38, 50, math.inf, 1), {"overflow": {"s": 1, "e": 1}}),
    ),
    "underflow is a zero that is not exact": (
        "  p = f32[4] multiply(x, x)\n  d = f32[4] subtract(p, p)\n  ROOT y = f32[4] add(d, p)",
        *(f32(1e-30, 0, 1, -1e-25), {"underflow": {"p": 2}}),
    ),
    "limit at Inf is no underflow": (
        "  e = f32[4] exponential(x)\n  q = f32[4] divide(e, x)\n  ROOT y = f32[4] add(e, q)",
        *(f32(-math.inf, -200, 1, 2), {"underflow": {"e": 1}}),
    ),
    "division by zero is a pole not an overflow": (
        "  l = f32[4] log(x)\n  r = f32[4] rsqrt(x)\n  d = f32[4] divide(l, x)\n"
        "  ROOT y = (f32[4], f32[4], f32[4]) tuple(l, r, d)",
        *(f32(0, 1e-40, 1, 2), {"division_by_zero": {"l": 1, "r": 1}, "overflow": {"d": 1}}),
    ),
    "nan origin is a NaN without a NaN operand": (
        "  s = f32[4] subtract(x, x)\n  r = f32[4] sqrt(x)\n  ROOT y = f32[4] add(s, r)",
        *(f32(math.inf, -1, math.nan, 4), {"nan_origin": {"s": 1, "r": 1}}),
    ),
    "moved bits meet nothing": (
        "  n = f32[4] negate(x)\n  a = f32[4] abs(n)\n  m = f32[4] maximum(a, x)\n"
        "  c = pred[4] compare(x, m), direction=EQ\n  ROOT y = f32[4] select(c, m, n)",
        *(f32(math.nan, -math.inf, 0, 1), {}),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_events_of_elementwise_instructions(observe: str, case: str) -> None:
    body, x, met = CALLS[case]
    assert events(compiled(body), x, observe=observe) == met


@pytest.mark.parametrize("dtype", [f for f in FLOATS if f != "float32"])
def test_conversion_alone_is_counted_at_both_ends(observe: str, dtype: str) -> None:
    t = dtypes.as_dtype(dtype)
    bias = (1 << (t.exponent_bits - 1)) - 1
    over = np.float32((2 - 2.0 ** -(t.mantissa_bits + 1)) * 2.0**bias)  # a tie with the even neighbour
    half = np.float32(2.0 ** (-bias - t.mantissa_bits))
    program = compiled(f"  ROOT y = {HLO[dtype]}[1] convert(x)", "x: f32[1]")
    for x, met in (
        (over, {"overflow": {"y": 1}}),
        (np.nextafter(over, np.float32(0)), {}),
        (half, {"underflow": {"y": 1}}),
        (-np.nextafter(half, np.float32(1)), {}),
        (0.0, {}),
    ):
        assert events(program, f32(x), observe=observe) == met


@pytest.mark.parametrize(
    ("kind", "count"), [("s32", 3), ("u32", 4), ("s8", 4), ("s64", 3), ("u64", 4), ("s16", 4)]
)
def test_saturated_is_a_float_beyond_an_integer_type_C6(observe: str, kind: str, count: int) -> None:
    program = compiled(f"  ROOT y = {kind}[8] convert(x)", "x: f32[8]", profile=Profile(int64="keep"))
    x = f32(math.nan, math.inf, 1e20, 3, 0, -0.9, {"s": -0.5, "u": -1}[kind[0]], 5)
    if kind in ("s8", "s16"):
        x[3] = 40000
    assert events(program, x, observe=observe) == {"saturated": {"y": count}}


@each_of("rounding", ["truncate", "nearest"])
@each_of("source", ["float32", "float64"])
@each_of("kind", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_saturated_counts_what_the_bounds_leave_out_C6(rounding: str, source: str, kind: str) -> None:
    info = np.iinfo(kind)
    ends = [float(info.min) + d for d in (-2, -1, -0.75, -0.5, -0.25, 0, 0.5)]
    ends += [float(info.max) + d for d in (-1, 0, 0.25, 0.5, 0.75, 1, 2)]
    around = [np.nextafter(np.array(e, source), s * np.inf) for e in ends for s in (-1, 1)]
    x = np.array([*ends, *around, math.nan, math.inf, -math.inf, 1, -1], source)
    whole = np.trunc(x) if rounding == "truncate" else np.rint(x)
    exact = [None if not math.isfinite(w) else int(w) for w in whole.tolist()]
    expected = sum(w is None or not info.min <= w <= info.max for w in exact)
    operand = ops.Bits(x, dtypes.as_dtype(source))
    setting = ops.Setting(Profile(int64="keep", float_to_int=rounding))
    attributes = {"dtype": dtypes.as_dtype(kind)}
    whole_type = ops.ArrayType(dtypes.as_dtype(kind), x.shape)
    convert = ops.Evaluation(ops.by_name("convert"), [operand], attributes, whole_type, setting)
    met = ops.observe(convert, ops.run(convert))
    assert met == {"saturated": expected}


def test_saturated_is_a_float_beyond_a_float8_type_C3(observe: str) -> None:
    profile = Profile(fp8_overflow="saturate")
    program = compiled(
        "  y = f8e4m3[4] convert(x)\n  ROOT z = f8e4m3[4] add(y, y)", profile=profile, target="host"
    )
    assert events(program, f32(247.9, 248, -1e9, 119), observe=observe) == {
        "saturated": {"y": 2, "z": 3}
    }


def test_a_product_saturates_before_its_epilogue_C3(observe: str) -> None:
    """Where a float8 saturates, the sums' own rounding leaves no Inf to see."""
    profile = Profile(fp8_overflow="saturate")
    body = f"  d = f8e4m3[2,2] dot(x, w), {DOT}\n  ROOT y = f8e4m3[2,2] negate(d)"
    program = compiled(body, "x: f8e4m3[2,2]; w: f8e4m3[2,2]", profile=profile, target="host")
    (step,) = program._schedule.steps
    assert step.members == ("d", "y")
    x, w = ([[200, 2], [math.inf, 0]], [[200, 1], [0, 0]])
    given = [neuronsim.asarray(a, dtype="float8_e4m3") for a in (x, w)]
    assert events(program, *given, observe=observe)["saturated"] == {"d": 1}


def test_overflow_of_float8_is_nan_where_the_profile_says_so_C3(observe: str) -> None:
    program = compiled("  ROOT y = f8e4m3[4] convert(x)", profile=Profile(fp8_overflow="nan"))
    assert events(program, f32(247.9, 248, -1e9, math.nan), observe=observe) == {"nan_origin": {"y": 2}}


def test_underflow_of_flushed_subnormals_C4(observe: str) -> None:
    body = "  s = f32[4] add(x, z)\n  ROOT y = f32[4] multiply(s, s)"
    program = compiled(body, "x: f32[4]; z: f32[4]", profile=Profile(subnormals="flush"))
    met = events(program, f32(0, 1e-40, 1, 0), f32(1e-40, 0, -1, 0), observe=observe)
    assert met == {"underflow": {"s": 2}}


def test_int64_truncation_is_counted_by_every_call_C7(observe: str) -> None:
    program = compiled("  ROOT y = s64[2] add(x, x)", "x: s64[2]")
    program(np.array([2**31 - 1, 1]))
    assert program.diagnostics == {"int64_truncated": {"y": 1}, "outside_range": {}}
    met = events(program, np.array([2**31 - 1, 1]), observe=observe)
    assert met == {"int64_truncated": {"y": 1}}


def test_activation_range_left_is_no_origin_of_nan_E3(observe: str) -> None:
    program = compiled("  ROOT y = f32[4] sine(x)", profile=Profile(activation="neuron_range"))
    assert events(program, f32(4, 1, 2, -9), observe=observe) == {"outside_range": {"y": 2}}


# ---- an independent judgement of elementwise operations -------------------------------------------


def powers(x: Any, y: Any) -> Any:
    """Powers that stay in float64: finite and not zero where the exact one is."""
    found = np.power(x, y)
    usual = np.isfinite(x) & np.isfinite(y) & (x != 0)
    found = np.where(usual & (found == 0), 1e-300, found)
    return np.where(usual & np.isinf(found), 1e300, found)


EXACT: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": lambda x, y: powers(x, y),
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "sigmoid": lambda x: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
    "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "negative": np.negative,
}


def operands_of(dtype: dtypes.DType, count: int, seed: int) -> list[np.ndarray]:
    """Numbers of the type whose functions float64 can hold, special values among them."""
    rng = np.random.default_rng(seed)
    special = [0.0, -0.0, 1, -1, 2, math.inf, -math.inf, math.nan, 1e-44, -1e-39, 1e-7, 600, 88.8, -104]
    values = rng.standard_normal((count, 700)) * 2.0 ** rng.integers(-30, 7, (count, 700))
    values = np.where(rng.random(values.shape) < 0.3, rng.choice(special, values.shape), values)
    with np.errstate(all="ignore"):
        return list(values.astype(np.float32).astype(dtype.numpy))


@each_of("name", EXACT)
def test_events_are_those_of_the_exact_value(name: str) -> None:
    for flush in ["keep", "flush"]:
        for dtype in FLOATS:
            op, t = ops.by_name(name), dtypes.as_dtype(dtype)
            arrays = operands_of(t, op.arity, len(name))
            operands = [ops.Bits(a.view(t.storage), t) for a in arrays]
            setting = ops.Setting(Profile(subnormals=flush))
            (result,) = ops.evaluate(op, operands, {}, setting)
            y = result.data.view(t.numpy).astype(np.float64)
            wide = [a.astype(np.float64) for a in arrays]
            with np.errstate(all="ignore"):
                exact = EXACT[name](*wide)
            finite = np.all([np.isfinite(x) for x in wide], axis=0)
            no_nan = ~np.any([np.isnan(x) for x in wide], axis=0)
            infinite = np.isinf(y) & finite
            moved = name in ("maximum", "negative", "floor")
            expected = {
                "overflow": infinite & ~np.isinf(exact),
                "division_by_zero": infinite & np.isinf(exact),
                "underflow": (y == 0) & (exact != 0) & ~np.isnan(exact),
                "nan_origin": np.isnan(y) & no_nan,
            }
            counts = {k: int(v.sum()) for k, v in expected.items() if v.any() and not moved}
            evaluation = ops.Evaluation(op, operands, {}, result.type, setting)
            met = ops.observe(evaluation, [result])
            if flush == "flush" and name in ("hypot", "sqrt", "fmod", "power"):
                # Their underflow would be judged by flushed operands.
                met.pop("underflow", None)
                counts.pop("underflow", None)
            assert met == counts


# ---- products and reductions ---------------------------------------------------------------------


def matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


BIG = matrix([3e38, 3e38], [1, 2], [math.inf, 1], [math.nan, 1], [math.inf, -math.inf])
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize("constant", [False, True])
def test_product_overflows_where_its_vectors_are_finite(observe: str, constant: bool) -> None:
    """Row 0 overflows in column 0; Inf·0 of row 2 and Inf - Inf of row 4 make NaN. An infinite constant
    does not overflow.
    """
    w = "  w = f32[2,2] constant({{inf, 1}, {1, 1}})\n" if constant else ""
    body = f"{w}  ROOT y = f32[5,2] dot(x, w), {DOT}"
    program = compiled(body, "x: f32[5,2]" + ("" if constant else "; w: f32[2,2]"))
    given = (BIG,) if constant else (BIG, matrix([1, 0], [1, 1]))
    nan = 2 if constant else 3
    assert events(program, *given, observe=observe) == {"overflow": {"y": 1}, "nan_origin": {"y": nan}}


def fused(constant: bool = False) -> Any:
    """A product with a prologue and an epilogue of two instructions, of parameters or a constant."""
    weights = "  w = f32[2,2] constant({{1, 0}, {1, 1}})\n" if constant else ""
    body = (
        f"  h = bf16[5,2] convert(x)\n{weights}  v = bf16[2,2] convert(w)\n"
        f"  d = f32[5,2] dot(h, v), {DOT}\n  n = f32[5,2] multiply(d, d)\n"
        "  ROOT y = f32[5,2] add(n, n)"
    )
    return compiled(body, "x: f32[5,2]" + ("" if constant else "; w: f32[2,2]"))


@each_of("dims", [(), (3,)])
def test_a_product_without_contracted_dimensions_is_an_origin(
    observe: str, dims: tuple[int, ...]
) -> None:
    """Of a scalar too, which NumPy's functions give no array of; folded, and in a run."""
    shape = f"f32[{','.join(map(str, dims))}]"
    program = compiled(f"  ROOT y = {shape} dot(x, w)", f"x: f32[]; w: {shape}")
    assert events(program, math.inf, np.zeros(dims, np.float32), observe=observe) == {
        "nan_origin": {"y": math.prod(dims)}
    }
    folded = compiled(
        "  a = f32[] constant(inf)\n  b = f32[] constant(0)\n  ROOT y = f32[] dot(a, b)", ""
    )
    assert events(folded, observe=observe) == {"nan_origin": {"y": 1}}


SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add"
)


@pytest.mark.parametrize("kind", ["f32", "f8e4m3"])
@pytest.mark.parametrize("index", ["s32", "s8", "u64"])
def test_scatter_in_place_is_judged_by_its_operands(observe: str, kind: str, index: str) -> None:
    """Its first operand, in whose memory it may run, as that was; its indices are no floats: an s32 of
    -1 would be a NaN.
    """
    add = f"add {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT c = {kind}[] add(a, b) }}"
    body = f"  n = {kind}[3] negate(x)\n  ROOT y = {kind}[3] scatter(n, i, u), {SCATTER}"
    program = compiled(body, f"x: {kind}[3]; i: {index}[2]; u: {kind}[2]", add)
    dtype = next(name for name, hlo in HLO.items() if hlo == kind)
    x = neuronsim.asarray([math.inf, 1, 2], dtype=dtype)
    u = neuronsim.asarray([math.inf, 1], dtype=dtype)
    indices = {"s32": np.int32, "s8": np.int8, "u64": np.uint64}
    i = np.array([0, 255 if index == "u64" else -1], indices[index])
    assert events(program, x, i, u, observe=observe) == {"nan_origin": {"y": 1}}


@pytest.mark.parametrize("constant", [False, True])
def test_fused_instructions_meet_what_is_theirs(observe: str, constant: bool) -> None:
    program = fused(constant)
    (step,) = program._schedule.steps
    assert step.members[-3:] == ("d", "n", "y")
    x = matrix([3.4e38, 1], [3e38, 3e38], [1e25, 1], [1e-30, 0], [1.5e19, 0])
    given = (x,) if constant else (x, matrix([1, 0], [1, 1]))
    assert events(program, *given, observe=observe) == {
        "overflow": {"h": 1, "d": 1, "n": 2, "y": 1},
        "underflow": {"n": 1},
        "nan_origin": {"d": 1},  # Inf·0
    }


@pytest.mark.parametrize("name", ["y", "d"], ids=["alone", "before_its_epilogue"])
def test_rounding_of_a_product_underflows(observe: str, name: str) -> None:
    body = f"  ROOT y = f16[2,2] dot(x, w), {DOT}"
    if name == "d":
        body = body.replace("ROOT y", "d") + "\n  ROOT y = f16[2,2] add(d, d)"
    program = compiled(body, "x: f16[2,2]; w: f16[2,2]")
    assert len(program._schedule.steps) == 1
    x = np.array([[1e-5, 0], [300, 0]], np.float16)
    w = np.array([[1e-4, 300], [0, 0]], np.float16)
    met = events(program, x, w, observe=observe)
    assert met == {"underflow": {name: 1}, "overflow": {name: 1}}


def test_convolution_overflows_where_its_window_is_finite(observe: str) -> None:
    body = (
        "  c = f32[1,6,1] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f\n"
        "  ROOT y = f32[1,6,1] negate(c)"
    )
    program = compiled(body, "x: f32[1,6,1]; w: f32[3,1,1]")
    x = f32(3e38, 3e38, 1, 1, math.inf, 1).reshape(1, 6, 1)
    met = events(program, x, np.ones((3, 1, 1), np.float32), observe=observe)
    assert met == {"overflow": {"c": 2}}


REDUCERS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
product { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT p = f32[] multiply(a, b) }
"""


def test_reduction_meets_what_its_group_makes(observe: str) -> None:
    body = (
        "  z = f32[] constant(0)\n  o = f32[] constant(1)\n"
        "  s = f32[5] reduce(x, z), dimensions={1}, to_apply=sum\n"
        "  p = f32[5] reduce(x, o), dimensions={1}, to_apply=product\n"
        "  ROOT y = (f32[5], f32[5]) tuple(s, p)"
    )
    program = compiled(body, "x: f32[5,2]", REDUCERS)
    x = matrix([3e38, 3e38], [1e-30, -1e-30], [math.inf, 1e-30], [0, 1e-30], [math.inf, -math.inf])
    assert events(program, x, observe=observe) == {
        "overflow": {"s": 1, "p": 1},
        "underflow": {"p": 1},
        "nan_origin": {"s": 1},
    }


# ---- where instructions run ------------------------------------------------------------------------


OF_CONSTANTS = """
goes_on { s = (s32[], s64[2], f16[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT l = pred[] compare(i, n), direction=LT }
body { s = (s32[], s64[2], f16[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s64[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  large = s64[2] constant({5000000000, 7})
  y = s64[2] add(x, large)
  million = f32[] constant(1e6)
  over = f16[] convert(million)
  thousands = s32[] constant(100000)
  k = s32[] multiply(j, thousands)
  each = f16[] convert(k)
  both = f16[] add(over, each)
  ROOT t = (s32[], s64[2], f16[]) tuple(j, y, both) }
"""


@pytest.mark.parametrize("trips", [3, 9])  # of which the first are unrolled
def test_constants_of_a_loop_count_once_C7(observe: str, trips: int) -> None:
    state = "(s32[], s64[2], f16[])"
    entry = (
        f"  zero = s32[] constant(0)\n  h = f16[] constant(0)\n  i = {state} tuple(zero, x, h)\n"
        f"  ROOT w = {state} while(i), condition=goes_on, body=body"
    )
    program = compiled(entry, "x: s64[2]", OF_CONSTANTS.replace("TRIPS", str(trips)))
    met = events(program, np.array([1, 2]), observe=observe)
    assert met["int64_truncated"]["large"] == 1
    assert met["overflow"] == {"over": 1, "each": trips}


def test_folded_constants_are_part_of_every_calls(observe: str) -> None:
    body = (
        "  c = f32[4] constant({1e5, 1, 1e-30, 2})\n  h = f16[4] convert(c)\n"
        "  f = f32[4] convert(h)\n  ROOT y = f32[4] add(f, x)"
    )
    program = compiled(body)
    expected = {"overflow": {"h": 1}, "underflow": {"h": 1}}
    for _ in range(2):
        assert events(program, f32(1, 2, 3, 4), observe=observe) == expected
    of_constants = program.constant_diagnostics
    assert {k: v for k, v in of_constants.items() if v} == expected


LOOP = """
body { s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  w = f32[4] multiply(v, v)
  ROOT t = (s32[], f32[4]) tuple(m, w) }
goes_on { s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  last = s32[] constant(3)
  ROOT c = pred[] compare(n, last), direction=LT }
"""


def test_loops_add_up_their_trips(observe: str) -> None:
    body = (
        "  k = s32[] constant(0)\n  i = (s32[], f32[4]) tuple(k, x)\n"
        "  ROOT l = (s32[], f32[4]) while(i), condition=goes_on, body=body"
    )
    program = compiled(body, more=LOOP)
    # 1e15 overflows in the third trip, 1e30 in the first; 1e-12 vanishes in the second, and stays zero.
    met = events(program, f32(1e15, 1e30, 1e-12, 1), observe=observe)
    assert met == {"overflow": {"w": 2}, "underflow": {"w": 1}}


def test_branches_count_where_they_run(observe: str) -> None:
    branches = (
        "twice { a = f32[4] parameter(0)\n  ROOT b = f32[4] add(a, a) }\n"
        "square { e = f32[4] parameter(0)\n  ROOT d = f32[4] multiply(e, e) }\n"
    )
    body = "  ROOT y = f32[4] conditional(p, x, x), true_computation=twice, false_computation=square"
    program = compiled(body, "p: pred[]; x: f32[4]", branches)
    x = f32(3e38, 1e20, 1, 1)
    assert events(program, np.array(True), x, observe=observe) == {"overflow": {"b": 1}}
    assert events(program, np.array(False), x, observe=observe) == {"overflow": {"d": 2}}


def test_stochastic_rounding_keeps_its_words_when_observed_S2(observe: str) -> None:
    body = f"  d = f16[64,64] dot(x, w), {DOT}\n  ROOT y = f16[64,64] add(d, d)"
    profile = Profile(rounding="stochastic")
    program = compiled(body, "x: f16[64,64]; w: f16[64,64]", profile=profile)
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal((64, 64)).astype(np.float16) * 80 for _ in range(2))
    plain = program(x, w, seed=5)
    assert program(x, w, seed=5, observe=observe).tobytes() == plain.tobytes()
    y = np.asarray(plain, np.float32)
    met = program.diagnostics["overflow"]
    assert met["d"] + met.get("y", 0) == np.isinf(y).sum() > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_count_the_same(threads: int) -> None:
    neuronsim.set_num_threads(threads)
    body = "  e = f32[300,200] exponential(x)\n  ROOT y = f32[300,200] multiply(e, e)"
    program = compiled(body, "x: f32[300,200]")
    x = (np.random.default_rng(7).standard_normal((300, 200)) * 60).astype(np.float32)
    with np.errstate(over="ignore"):
        e = np.exp(x.astype(np.float64)).astype(np.float32)
        y = (e.astype(np.float64) ** 2).astype(np.float32)
    assert events(program, x) == {
        "overflow": {"e": int(np.isinf(e).sum()), "y": int((np.isinf(y) & np.isfinite(e)).sum())},
        "underflow": {"e": int((e == 0).sum()), "y": int(((y == 0) & (e != 0)).sum())},
    }


def test_instruction_sets_count_the_same() -> None:
    program = fused()
    x = matrix([3.4e38, 1], [3e38, 3e38], [1e25, 1], [1e-30, 0], [1.5e19, 0])
    found = []
    for isa in neuronsim.available_isas():
        neuronsim.set_isa(isa)
        found.append(events(program, x, matrix([1, 0], [1, 1])))
    assert all(f == found[0] for f in found)


@settings(max_examples=50, suppress_health_check=HEALTH, deadline=None)
@given(modules())
def test_observed_execution_has_the_same_values_and_counts(example: Example) -> None:
    program = api.compile(example.module, auto_cast="none", target="host", profile=PROFILE)
    inputs = [Array(x) for x in example.inputs]
    expected = [a.tobytes() for a in flat(program(*inputs, seed=1))]
    met = []
    for observe in ("counts", "full"):
        assert [a.tobytes() for a in flat(program(*inputs, seed=1, observe=observe))] == expected
        met.append({c: program.diagnostics[c] for c in ops.EVENTS})
    assert met[0] == met[1]


@pytest.mark.parametrize("step", ["multiply(v, v)", "log(v)", "exponential(v)", "subtract(v, v)"])
def test_chains_over_a_loops_own_state_count_what_they_met(step: str) -> None:
    """The trips are so many that the loop stays, and its chain overwrites what it reads."""
    state = "(s32[], f32[4])"
    loop = f"""body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[4] {step}
  ROOT t = {state} tuple(j, w)
}}
goes_on {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT p = pred[] compare(i, n), direction=LT
}}"""
    entry = (
        f"  zero = s32[] constant(0)\n  i = {state} tuple(zero, x)\n"
        f"  w2 = {state} while(i), condition=goes_on, body=body\n"
        "  ROOT y = f32[4] get-tuple-element(w2), index=1"
    )
    program = compiled(entry, more=loop)
    x = f32(3e25, math.inf, -3, 0)
    found = [events(program, x, observe=observe) for observe in ("counts", "full")]
    assert found[0] == found[1] != {}


def test_a_kernel_is_read_beside_padding_too(observe: str) -> None:
    """A NaN of it makes the sums NaN, whose origin is not the convolution; an Inf times 0 is one."""
    own = "convolution(x, k), window={size=3x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f"
    holes = own.replace("pad=1_1x0_0", "pad=1_1x0_0 lhs_dilate=2x1")
    padded = "convolution(y, k), window={size=3x1 pad=0_0x0_0}, dim_labels=b01f_01io->b01f"
    pad = "  z = f32[] constant(0)\n  y = f32[1,3,1,4] pad(x, z), padding=0_0x1_1x0_0x0_0\n"
    for body in (own, holes, pad + padded):
        lines = body if body.startswith("  z") else f"  ROOT c = f32[1,1,1,1] {body}"
        lines = lines.replace(padded, f"  ROOT c = f32[1,1,1,1] {padded}")
        program = compiled(lines, "x: f32[1,1,1,4]; k: f32[3,1,4,1]")
        x, k = np.ones((1, 1, 1, 4), np.float32), np.ones((3, 1, 4, 1), np.float32)
        k[0, 0, 0, 0] = math.nan
        assert events(program, x, k, observe=observe) == {}
        k[0, 0, 0, 0] = math.inf
        assert events(program, x, k, observe=observe) == {"nan_origin": {"c": 1}}


# ---- full -----------------------------------------------------------------------------------------


def test_statistics_describe_every_instructions_result() -> None:
    program = compiled("  e = f32[4] multiply(x, x)\n  ROOT y = f16[4] convert(e)")
    program(f32(1e-3, 300, math.nan, 1e-20), observe="full")
    found = program.diagnostics["statistics"]
    assert found["e"] == {
        "elements": 4,
        "nan": 1,
        "infinite": 0,
        "zero": 0,
        "subnormal": 1,
        "smallest": pytest.approx(1e-40, rel=1e-4),
        "largest": 90000.0,
        "exponents": {-132: 1, -19: 1, 17: 1},
    }
    y = found["y"]
    assert (y["infinite"], y["zero"], y["subnormal"], y["nan"]) == (1, 1, 1, 1)
    assert y["smallest"] == y["largest"] == float(np.float16(1e-6))


def test_origins_are_the_first_elements_with_their_operands() -> None:
    program = compiled("  q = f32[4] divide(x, z)\n  ROOT y = f32[4] log(q)", "x: f32[4]; z: f32[4]")
    program(f32(1, -3, 2, 0), f32(2, 4, 0, 0), observe="full")
    found = program.diagnostics["origins"]
    assert list(found) == ["q", "y"]
    assert found["q"] == {"index": (2,), "value": math.inf, "operands": (2.0, 0.0)}
    assert found["y"]["index"] == (1,)
    assert found["y"]["operands"] == (-0.75,)
    assert math.isnan(found["y"]["value"])


def test_off_has_no_categories_that_it_does_not_count() -> None:
    program = compiled("  ROOT y = f32[4] exponential(x)")
    program(f32(1000, 1, 1, 1))
    assert program.diagnostics == {"int64_truncated": {}, "outside_range": {}}
    program(f32(1000, 1, 1, 1), observe="counts")
    assert set(program.diagnostics) == {"int64_truncated", "outside_range", *ops.EVENTS}
    assert program.diagnostics["overflow"] == {"y": 1}
    program(f32(1, 1, 1, 1), observe="full")
    assert program.diagnostics["overflow"] == {}


def test_unknown_observe_is_an_invalid_argument() -> None:
    program = compiled("  ROOT y = f32[4] exponential(x)")
    with pytest.raises(InvalidArgument, match=r"'count'.*counts"):
        program(f32(1, 1, 1, 1), observe="count")


# ---- timings and memory ----------------------------------------------------------------------------


def test_timings_name_every_instruction_that_takes_time() -> None:
    program = fused(constant=True)
    (found,) = program.timings(BIG, repeats=3)
    assert found.instructions == ("h", "d", "n", "y")
    assert found.opcodes == ("convert", "dot", "multiply", "add")
    assert found.seconds > 0
    assert found.share == 1
    with pytest.raises(InvalidArgument, match="repeats"):
        program.timings(BIG, repeats=0)


def test_timings_leave_random_words_and_diagnostics() -> None:
    program = compiled("  ROOT y = f16[4] convert(x)", profile=Profile(rounding="stochastic"))
    x = f32(0.1, 0.2, 0.3, 1e6)
    first = program(x, seed=4, observe="counts").tobytes()
    second = program(x).tobytes()
    program(x, seed=4, observe="counts")
    before = program.diagnostics
    program.timings(x)
    assert program.diagnostics == before
    assert (first, program(x).tobytes()) == (first, second)


def test_memory_of_a_program_is_what_it_holds() -> None:
    body = (
        f"  w = f32[256,128] constant({{{', '.join(['{' + ', '.join(['1'] * 128) + '}'] * 256)}}})\n"
        f"  d = f32[64,128] dot(x, w), {DOT}\n  t = f32[128,64] transpose(d), dimensions={{1,0}}\n"
        f"  ROOT y = f32[64,64] dot(d, t), {DOT}"
    )
    memory = compiled(body, "x: f32[64,256]").memory
    assert memory["constants"] == 0
    assert 256 * 128 * 4 <= memory["packed"] <= 1.1 * 256 * 128 * 4
    assert memory["temporaries"] == 64 * 128 * 4


# ---- the command line ------------------------------------------------------------------------------


def write_model(tmp_path: Path) -> list[str]:
    text = (
        "HloModule m\nENTRY main {\n  x = f32[2,2] parameter(0)\n  e = f32[2,2] exponential(x)\n"
        "  c = f32[2,2] constant({{1e30, 1}, {1, 1}})\n  k = f32[2,2] multiply(c, c)\n"
        "  ROOT y = f32[2,2] add(e, k)\n}\n"
    )
    (tmp_path / "m.hlo.pb").write_bytes(proto.to_bytes(parse.from_text(text)))
    x = np.array([[1, 2], [1000, 3], [-1000, 4]], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    names = ["m.hlo.pb", "--inputs", "x.npz", "--output", "y.npz"]
    return ["run", *(n if n.startswith("--") else str(tmp_path / n) for n in names)]


def test_run_prints_what_was_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*write_model(tmp_path), "--auto-cast", "none"]
    assert cli.main([*arguments, "--observe", "counts"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    cells = {w[0]: [c for c in w if c.isdigit()] for w in lines if len(w) > 2 and w[0] in "eky"}
    # Batches of two, the last padded with its own sample; constants overflowed once.
    assert cells["k"] == ["1"]
    assert cells["e"][0] == "1"
    assert "statistics" not in cells
    assert cli.main([*arguments, "--observe", "full"]) == 0
    out = capsys.readouterr().out
    assert "e: the element [1, 0] is inf from 1000" in out
    assert "largest" in out
    assert cli.main(arguments) == 0
    assert capsys.readouterr().err == ""


def test_run_prints_the_steps_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*write_model(tmp_path), "--auto-cast", "none", "--timings"]) == 0
    out = capsys.readouterr().out
    assert "e y" in out
    assert "100.0%" in out
