"""Open formats in plans (C9): float32 values rounded once to `float(e,m)`, against exact arithmetic by
hand; it shares no code with the conversions, the planner or the kernels.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.casting.border_modules import network
from tests.casting.planning_by_hand import decide as low
from tests.casting.planning_by_hand import plan_of, planned
from tests.casting.reading import read_module, rounded
from tests.support.graphs import computation, constant, inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.value_sets import contains
from neuronsim.dtypes import DType, float_format
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Instruction, Module
from neuronsim.hlo.verify import verify

F32, F16, BF16 = dtypes.float32, dtypes.float16, dtypes.bfloat16
BITS = [(6, 9), (4, 3), (2, 1), (3, 22), (5, 10), (7, 23), (8, 1), (8, 9), (8, 22)]
Array = npt.NDArray[Any]


def nearest(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """The value of the format next to x, ties to even; Inf beyond, and zero below, its range (C9)."""
    if x == 0 or math.isinf(x) or math.isnan(x):
        return x
    exact = abs(Fraction(x))
    exponent = math.frexp(x)[1] - 1
    if exponent_bits == 8:
        exponent = max(exponent, -126)  # float32's subnormals stay on their grid
    step = Fraction(2) ** (exponent - mantissa_bits)
    value = round(exact / step) * step
    bias = 2 ** (exponent_bits - 1) - 1
    if value > (2 - Fraction(2) ** -mantissa_bits) * Fraction(2) ** bias:
        return math.copysign(math.inf, x)
    if exponent_bits < 8 and value < Fraction(2) ** (1 - bias):
        return math.copysign(0.0, x)
    return math.copysign(float(value), x)


def all_nearest(x: Array, dtype: DType) -> Array:
    values = [nearest(float(v), dtype.exponent_bits, dtype.mantissa_bits) for v in x.ravel()]
    return np.array(values, np.float32).reshape(x.shape)


def boundaries(exponent_bits: int, mantissa_bits: int) -> Array:
    """Values, the midpoints between them, and both neighbours of each, at the ends and in the middle of
    the range; the special values; and random bits.
    """
    bias = 2 ** (exponent_bits - 1) - 1
    rng = np.random.default_rng(exponent_bits * 32 + mantissa_bits)
    exponents = {-149, -130, -127, -126, -bias, 1 - bias, 2 - bias, -1, 0, 1, bias - 1, bias, bias + 1}
    found = [0.0, math.inf, 3.4028234663852886e38, 2.0**-149]
    for e in exponents:
        for half in (0, 1, 2, 3, *rng.integers(0, 2 << mantissa_bits, 8), (2 << mantissa_bits) - 1):
            value = (1 + int(half) / (2 << mantissa_bits)) * 2.0**e
            found.append(value if value < 3.4028235e38 else 1.0)
    near = np.array(found, np.float32)
    with np.errstate(all="ignore"):
        around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))]
    bits = rng.integers(0, 1 << 32, 500, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([*around, bits[~np.isnan(bits)]])
    return np.concatenate([x, -x])


def chain(size: int, *names: str) -> Module:
    """A copy of a copy ... of x."""
    steps = (inst(n, "copy", (size,), of) for n, of in zip(names, ("x", *names), strict=False))
    return module_of(parameter("x", (size,)), *steps)


def run(module: Module, x: Array) -> Array:
    return np.asarray(execute(module, [ops.Bits(x, F32)]).data)


def assert_same_bits(got: Array, expected: Array) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("bits", BITS, ids=str)
def test_a_float32_is_rounded_to_an_open_format_C9(bits: tuple[int, int]) -> None:
    x, dtype = boundaries(*bits), float_format(*bits)
    result = planned(chain(len(x), "a"), a=low(dtype))
    assert_same_bits(run(result, x), all_nearest(x, dtype))
    stated = {"exponent_bits": bits[0], "mantissa_bits": bits[1]}
    rounding = [i for i in result.entry_computation.instructions if i.opcode == "reduce-precision"]
    assert [i.attributes for i in rounding] == [stated]  # one rounding: the copy only moves


@pytest.mark.parametrize("bits", [(8, 10), (8, 23)], ids=str)
def test_formats_that_have_a_name_are_it_C9(bits: tuple[int, int]) -> None:
    x = boundaries(*bits)
    dtype = float_format(*bits)
    result = planned(chain(len(x), "a"), a=low(dtype))
    assert_same_bits(run(result, x), all_nearest(x, dtype))


@pytest.mark.parametrize("bits", BITS, ids=str)
def test_the_readings_rounding_is_that_of_fractions_C9(bits: tuple[int, int]) -> None:
    x, dtype = boundaries(*bits), float_format(*bits)
    assert_same_bits(rounded(x, dtype), all_nearest(x, dtype))


SOURCES = [F16, BF16, dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4]
TARGETS = [(6, 9), (4, 3), (5, 10), (4, 12), (3, 4), (5, 2), (8, 7), (7, 7), (8, 10)]


@each_of("source", SOURCES, ids=lambda t: t.name)
@each_of("bits", TARGETS, ids=str)
def test_a_narrow_value_is_rounded_once_C1(source: DType, bits: tuple[int, int]) -> None:
    """All values of the source."""
    wanted = float_format(*bits)
    words = np.arange(1 << source.bits, dtype=f"u{source.itemsize}")
    x = words.view(source.numpy).astype(np.float32)
    x = np.ascontiguousarray(x[~np.isnan(x)])
    result = planned(chain(len(x), "a", "b"), a=low(source), b=low(wanted))
    expected = rounded(x, wanted)
    assert_same_bits(run(result, x), expected)
    # It is widened only where that gives all of the source's values as they are.
    opcodes = [i.opcode for i in result.entry_computation.instructions]
    holds = bool(np.array_equal(x.view(np.uint32), expected.view(np.uint32)))
    assert contains(wanted, source) is holds
    assert ("reduce-precision" not in opcodes) is holds


@pytest.mark.parametrize(
    ("first", "then"),
    [((6, 9), (4, 3)), ((4, 3), (6, 9)), ((8, 10), (6, 9)), ((6, 9), (8, 10)), ((5, 12), (6, 9))],
    ids=str,
)
def test_one_open_format_is_rounded_to_another_C9(
    first: tuple[int, int], then: tuple[int, int]
) -> None:
    x = boundaries(*first)
    a, b = float_format(*first), float_format(*then)
    result = planned(chain(len(x), "a", "b"), a=low(a), b=low(b))
    assert_same_bits(run(result, x), all_nearest(all_nearest(x, a), b))


@pytest.mark.parametrize("wanted", [F16, BF16, dtypes.float8_e5m2], ids=lambda t: t.name)
def test_an_open_format_is_rounded_to_a_narrow_type_once_C1(wanted: DType) -> None:
    x, a = boundaries(6, 9), float_format(6, 9)
    result = planned(chain(len(x), "a", "b"), a=low(a), b=low(wanted))
    with np.errstate(over="ignore"):
        expected = all_nearest(x, a).astype(wanted.numpy).astype(np.float32)
    assert_same_bits(run(result, x), expected)


def test_an_operand_and_a_result_may_have_two_open_formats_E1() -> None:
    x = boundaries(6, 9)
    model = module_of(parameter("x", x.shape), inst("y", "multiply", x.shape, "x", "x"))
    read, given = float_format(6, 9), float_format(5, 4)
    with np.errstate(over="ignore"):
        square, unrounded = all_nearest(x, read) ** 2, x * x
    expected = all_nearest(square, given)
    assert_same_bits(run(planned(model, y=low(read, given)), x), expected)
    assert not np.array_equal(all_nearest(unrounded, given), expected)  # the operand's rounding shows


# ---- a network ---------------------------------------------------------------------------------


def float32_of(x: Fraction) -> Fraction:
    return Fraction(nearest_float32(x))


def nearest_float32(x: Fraction) -> float:
    """A fraction in float32's normal range, to nearest even."""
    if x == 0:
        return 0.0
    exponent = 0
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (exponent - 23)
    return float(round(x / step) * step)


def product(i: Instruction, v: list[Array]) -> Array:
    """M2: one tile, each step a fused multiply-add in float32."""
    a, b = v
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for m, n in np.ndindex(out.shape):
        total = Fraction(0)
        for k in range(a.shape[1]):
            total = float32_of(total + Fraction(float(a[m, k])) * Fraction(float(b[k, n])))
        out[m, n] = float(total)
    return out


def total(i: Instruction, v: list[Array]) -> Array:
    """R2: left to right, the initial value last, in float32."""
    out = v[0][:, 0]
    for k in range(1, v[0].shape[1]):
        out = out + v[0][:, k]
    return np.asarray(out + v[1], np.float32)


@pytest.mark.parametrize("bits", [(6, 9), (5, 4), (8, 3), (4, 12)], ids=str)
@pytest.mark.parametrize("auto_cast", ["matmult", "all"])
def test_a_network_under_an_open_format_C9(auto_cast: str, bits: tuple[int, int]) -> None:
    dtype, model = float_format(*bits), network()
    policy = neuron_policy(auto_cast, "tf32")  # type: ignore[arg-type]
    plan = make_plan(model, dataclasses.replace(policy, low=dtype))
    assert Plan.from_json(plan.to_json()) == plan
    assert {d.operand for d in plan.decisions.values()} == {dtype}
    x = np.random.default_rng(4).normal(size=(4, 6)).astype(np.float32)
    expected = read_module(model, [x], dtype, auto_cast, dot=product, reduce=total)
    result = apply_plan(model, plan)
    verify(result)
    assert_same_bits(run(result, x), expected)
    assert not np.array_equal(expected, read_module(model, [x], F32, "none", dot=product, reduce=total))


def test_a_loop_cannot_carry_an_open_format_A2() -> None:
    condition = computation("condition", parameter("r", ()), constant("stop", False, dtypes.boolean))
    loop = inst("l", "while", (), "x", called=("body", "condition"))
    model = module_of(
        parameter("x", ()), loop, others=(computation("body", parameter("p", ())), condition)
    )
    open_format = float_format(6, 9)
    policy = dataclasses.replace(neuron_policy("all", "bf16"), low=open_format)
    assert make_plan(model, policy).decisions == {}
    assert set(make_plan(model, neuron_policy("all", "bf16")).decisions) == {"l"}
    plan = plan_of(model, {"l": low(open_format)})
    with pytest.raises(InvalidArgument, match=r"l carries .* float\(6,9\)"):
        check_plan(plan, model)
