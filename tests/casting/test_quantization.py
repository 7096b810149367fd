"""Rules Q: quantizing, dequantizing and requantizing as a plan's HLO computes them, against exact
numbers; what a quantization may be.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.casting.decisions.quantization import Quantization, last_sums_below, quantization_of
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.ops import DotDimensions
from neuronsim.reference import quantization as twin
from neuronsim.reference.formats import from_float

F32 = dtypes.float32
QUANTIZATIONS = [
    Quantization(dtypes.uint8, (float(np.float32(0.05)),), (100,)),
    Quantization(dtypes.int8, (0.25,), (0,)),
    Quantization(dtypes.int8, (float(np.float32(3e-38)),), (-128,)),
    Quantization(dtypes.uint8, (float(np.float32(1e36)),), (255,)),
]


def quantize_only(q: Quantization, dims: tuple[int, ...]) -> Any:
    """A program that gives its input as bytes, written by a plan."""
    x = Instruction("x", "parameter", Shape(F32, dims), (), {"number": 0})
    y = Instruction("y", "negate", Shape(F32, dims), ("x",))
    module = Module("m", "main", (Computation("main", (x, y), "y"),))
    d = Decision(F32, F32, F32, "test", quantized_result=q)
    plan = Plan("test", "m", fingerprint(module), {"y": d})
    return neuronsim.compile(module, plan=plan)


def values_of(program: Any, q: Quantization, x: Any) -> Any:
    """The integers that the dequantized results of a negation stand for."""
    found = np.asarray(program(-x))
    integers = np.rint(found.astype(np.float64) / q.scale[0]).astype(int) + q.zero_point[0]
    np.testing.assert_array_equal(q.dequantized(integers.astype(q.type.numpy)), found)
    return integers


def floats_of_16_bits(kind: str) -> Any:
    words = np.arange(1 << 16, dtype=np.uint16)
    if kind == "float16":
        return words.view(np.float16).astype(np.float32)
    return (words.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("q", QUANTIZATIONS, ids=str)
@pytest.mark.parametrize("step", [101, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_quantize_Q1_every_16_bit_input(kind: str, q: Quantization, step: int) -> None:
    x = floats_of_16_bits(kind)[::step].copy()
    scale = from_float("float32", q.scale[0])
    signed = q.type is dtypes.int8
    expected = [
        twin.quantize(int(w), scale, q.zero_point[0], bits=8, signed=signed) for w in x.view(np.uint32)
    ]
    np.testing.assert_array_equal(q.quantized(x).astype(int), expected)
    np.testing.assert_array_equal(values_of(quantize_only(q, x.shape), q, x), expected)


@pytest.mark.parametrize("q", QUANTIZATIONS, ids=str)
def test_quantize_Q1_every_tie(q: Quantization) -> None:
    """Halves between integers, and the neighbours of these, where the quotient is exact or nearly."""
    halves = (np.arange(-300, 301) + np.float32(0.5)).astype(np.float32)
    with np.errstate(over="ignore"):
        middle = halves * np.float32(q.scale[0])
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    x = x.astype(np.float32)
    scale, signed = from_float("float32", q.scale[0]), q.type is dtypes.int8
    expected = [
        twin.quantize(int(w), scale, q.zero_point[0], bits=8, signed=signed) for w in x.view(np.uint32)
    ]
    np.testing.assert_array_equal(values_of(quantize_only(q, x.shape), q, x), expected)


def check_random(count: int) -> None:
    q = QUANTIZATIONS[0]
    program = quantize_only(q, (100_000,))
    for seed in range(count // 100_000):
        rng = np.random.default_rng(seed)
        words = rng.integers(0, 1 << 32, 100_000, np.uint32)
        near = rng.normal(0, 8, 100_000).astype(np.float32)
        x = np.where(rng.random(100_000) < 0.5, words.view(np.float32), near)
        np.testing.assert_array_equal(values_of(program, q, x), q.quantized(x).astype(int))


def test_quantize_Q1_float32_inputs() -> None:
    check_random(200_000)


@pytest.mark.exhaustive
def test_quantize_Q1_ten_million_float32_inputs() -> None:
    check_random(10_000_000)


@pytest.mark.parametrize("q", QUANTIZATIONS, ids=str)
def test_dequantize_Q2_every_byte_and_back(q: Quantization) -> None:
    """Q2: what was dequantized is quantized to the byte that it was, which a clean module rests on."""
    low, high = q.limits
    data = np.arange(low, high + 1).astype(q.type.numpy)
    scale = from_float("float32", q.scale[0])
    expected = [twin.dequantize(int(v), scale, q.zero_point[0]) for v in data]
    values = q.dequantized(data)
    assert values.view(np.uint32).tolist() == expected
    np.testing.assert_array_equal(q.quantized(values), data)


def one_product(
    lhs: Quantization, rhs: Quantization, result: Quantization | None, depth: int, requantize: str = ""
) -> Any:
    x = Instruction("x", "parameter", Shape(F32, (64, depth)), (), {"number": 0})
    y = Instruction("y", "parameter", Shape(F32, (depth, 8)), (), {"number": 1})
    attributes = {"dot_dimensions": DotDimensions((1,), (0,))}
    z = Instruction("z", "dot", Shape(F32, (64, 8)), ("x", "y"), attributes)
    module = Module("m", "main", (Computation("main", (x, y, z), "z"),))
    d = Decision(F32, F32, F32, "test", quantized_operands=(lhs, rhs), quantized_result=result)
    profile = neuronsim.Profile(requantize=requantize) if requantize else None
    plan = Plan("test", "m", fingerprint(module), {"z": d})
    return neuronsim.compile(module, plan=plan, profile=profile)


@pytest.mark.parametrize("seed", range(8))
def test_requantize_Q3_Q4_products_with_zero_points(seed: int) -> None:
    """The sums of (a - zero point) (b - zero point), exact, by one multiplier; zero points on both
    sides, and a scale for each column.
    """
    rng = np.random.default_rng([26, seed])
    depth = [1, 5, 64, 301][seed % 4]
    kinds = [dtypes.uint8, dtypes.int8]
    lhs = quantization_of(-2.0, 3.0, kinds[seed % 2], symmetric=False)
    if seed < 4:
        rhs = quantization_of(-1.0, 2.0, kinds[seed // 2 % 2], symmetric=False)
    else:
        rhs = quantization_of(-rng.random(8), rng.random(8), dtypes.int8, symmetric=True, axis=1)
    result = quantization_of(-4.0 * depth**0.5, 9.0, dtypes.uint8, symmetric=False)
    x, y = rng.normal(0, 1, (64, depth)).astype("f"), rng.normal(0, 1, (depth, 8)).astype("f")
    a, b = (lhs.quantized(x).astype(int) - lhs.zero_point[0], rhs.quantized(y).astype(int))
    totals = a @ (b - rhs.zero_point[0])
    found = np.asarray(one_product(lhs, rhs, result, depth)(x, y))
    scales = np.broadcast_to(rhs.scale, 8)
    for r, c in itertools.product(range(0, 64, 7), range(8)):
        pair = from_float("float32", lhs.scale[0]), from_float("float32", float(scales[c]))
        own = from_float("float32", result.scale[0])
        q = twin.requantize(int(totals[r, c]), pair, own, result.zero_point[0], bits=8, signed=False)
        assert found[r, c] == result.dequantized(np.array(q, np.uint8)), (r, c)


def test_requantize_Q3_rounds_the_factor_step_by_step() -> None:
    """(scale_a * scale_b) / scale_out, each rounded to float32, on scales where other orders differ."""
    rng = np.random.default_rng(32)
    differing = 0
    for _ in range(20):
        a, b, c = (float(s) for s in rng.random(3).astype(np.float32))
        q = [Quantization(dtypes.int8, (s,)) for s in (a, b, c)]
        entry = one_product(q[0], q[1], q[2], 4).module.entry_computation
        (factor,) = (
            float(ops.numbers(i.attributes["literal"]))
            for i in entry.instructions
            if i.name == "z.scale"
        )
        x, y, z = (np.float32(s) for s in (a, b, c))
        assert factor == float(x * y / z)
        differing += factor not in (float(x * (y / z)), float(np.float32(a * b / c)))
    assert differing > 0


@pytest.mark.parametrize("by_column", [False, True])
def test_requantize_Q3_exact_rounds_once(by_column: bool) -> None:
    """The field: sums at ties of the exact ratio and beside them, where float32's steps go the other
    way in some; all equal the twin.
    """
    rng, a, out = np.random.default_rng(35), 3.0, 7.0
    b = [2.0**-9 * n for n in (7, 35, 49, 63, 77, 91, 105, 119)]
    lhs, rhs = (
        Quantization(dtypes.int8, (a,)),
        Quantization(dtypes.int8, tuple(b) if by_column else (b[2],), (0,) * (8 if by_column else 1),
                     1 if by_column else None),
    )  # fmt: skip
    result = Quantization(dtypes.uint8, (out * 2.0**-9,), (9,))
    depth = 4
    x = rng.integers(-128, 128, (64, depth)).astype(np.float32) * np.float32(a)
    columns = np.broadcast_to(np.float32(rhs.scale), 8)
    y = rng.integers(-5, 6, (depth, 8)).astype(np.float32) * columns
    totals = np.rint(x / np.float32(a)).astype(int) @ np.rint(y / columns).astype(int)
    found = {r: np.asarray(one_product(lhs, rhs, result, depth, r)(x, y)) for r in ("float32", "exact")}
    own = from_float("float32", result.scale[0])
    for requantize, values in found.items():
        for r, c in itertools.product(range(64), range(8)):
            pair = from_float("float32", a), from_float("float32", float(columns[c]))
            q = twin.requantize(
                int(totals[r, c]), pair, own, 9, bits=8, signed=False, exact=requantize == "exact"
            )
            assert values[r, c] == result.dequantized(np.array(q, np.uint8)), (requantize, r, c)


def test_sums_at_which_integers_end_Q3() -> None:
    """By the twin, for ratios with ties and without; float32's steps end elsewhere for some."""
    one, differing = from_float("float32", 1.0), 0
    for words in ((0.1, 0.3, 0.7), (3.0, 0.875, 7.0), (1e-6, 1e-3, 0.37), (0.5, 0.5, 0.125)):
        a, b, c = (from_float("float32", float(np.float32(w))) for w in words)
        ratio = Fraction(*float(np.float32(words[0])).as_integer_ratio())
        ratio *= Fraction(float(np.float32(words[1]))) / Fraction(float(np.float32(words[2])))
        ends = last_sums_below([ratio], -128)[0]
        for k, end in zip(range(-128, 129), ends.tolist(), strict=True):
            if abs(end) < (1 << 31) - 1 and -128 < k < 128:
                below, above = (
                    twin.requantize(s, (a, b), c, 0, bits=8, signed=True, exact=True)
                    for s in (end, end + 1)
                )
                assert below < k <= above
                steps = [twin.requantize(s, (a, b), c, 0, bits=8, signed=True) for s in (end, end + 1)]
                differing += steps != [below, above]
    assert differing > 10
    assert (
        twin.requantize(3, (one, one), from_float("float32", 6.0), 0, bits=8, signed=True, exact=True)
        == 0
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-40, float("inf"), 0.1, 3e38])
def test_scale_Q5_that_is_refused(scale: float) -> None:
    """Zero, negative, subnormal, infinite, no float32, or so large that a difference overflows."""
    with pytest.raises(InvalidArgument, match="Q5"):
        Quantization(dtypes.int8, (scale,))


def test_quantization_of_ranges() -> None:
    """0 is always a number that a byte stands for; a range of nothing, and tiny and huge ones."""
    for low, high in ((0.0, 0.0), (1.0, 3.0), (-3.0, -1.0), (0.0, 1e-44), (-3e38, 3e38)):
        for symmetric, kind in itertools.product((False, True), (dtypes.int8, dtypes.uint8)):
            q = quantization_of(low, high, kind, symmetric=symmetric)
            zero = q.quantized(np.zeros(1, np.float32))
            assert q.dequantized(zero).tolist() == [0.0]
    by_channel = quantization_of([0, -1], [0, 2], dtypes.int8, symmetric=True, axis=0)
    assert by_channel.scale[0] == 1.0
    with pytest.raises(InvalidArgument, match="not finite"):
        quantization_of(-np.inf, 1.0, dtypes.int8, symmetric=False)
