"""Elementwise functions: what moves bits against NumPy, composites step by step, and complex types on
the host; test_array_narrow_types.py has the slow twin, test_array_special_cases.py special values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
from tests.support.draws import encodings
from tests.support.words import assert_same, of_words, words

import neuronsim as np
from neuronsim import dtypes
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import elementwise as twin
from neuronsim.reference.formats import decode, round_number

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.kind == "float" and t is not dtypes.float8_e4m3fn]
NARROW = [t for t in FLOATS if t not in (dtypes.float32, dtypes.float64)]
inf, nan = math.inf, math.nan


def of_types(types: list[DType]) -> Any:
    return pytest.mark.parametrize("dtype", types, ids=lambda t: t.name)


def is_same(a: float, b: float) -> bool:
    """Equal, zeros by their sign; every NaN is alike."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def drawn(dtype: DType) -> numpy.ndarray:
    """Random encodings: some near 1, some special, some of any exponent."""
    return numpy.concatenate(
        [words(encodings(dtype, (24,), mode=mode)) for mode in ("near", "special", "any")]
    )


# ---- what moves bits, and what is exact ------------------------------------------------------------


@of_types([t for t in FLOATS if t is not dtypes.float64])
def test_frexp_modf_ldexp_and_spacing_are_exact(dtype: DType) -> None:
    """By Fractions of the elements; ldexp rounds once to float32 and once to the type (E1)."""
    x = of_words(drawn(dtype), dtype)
    values = x.tolist()
    (mantissa, exponent), (fraction, whole) = np.frexp(x), np.modf(x)
    assert (mantissa.dtype, exponent.dtype) == (dtype, np.int32)
    assert (fraction.dtype, whole.dtype) == (dtype, dtype)
    parts = zip(*(a.tolist() for a in (mantissa, exponent, fraction, whole)), strict=True)
    for v, (m, e, f, w) in zip(values, parts, strict=True):
        if math.isfinite(v):
            assert Fraction(v) == Fraction(m) * Fraction(2) ** e
            assert 0.5 <= abs(m) < 1 or (v == 0 and is_same(m, v) and e == 0)
        else:
            assert is_same(m, v)
            assert e == 0
        assert all(is_same(a, b) for a, b in zip(math.modf(v), (f, w), strict=True))
    for n in (-300, -150, -130, -20, -1, 0, 1, 7, 130, 300):
        found = words(np.ldexp(x, n)).tolist()
        for word, v, own in zip(words(x).tolist(), values, found, strict=True):
            exact = decode(dtype.name, word)
            if exact.kind == "finite":
                scaled = dataclasses.replace(exact, magnitude=exact.magnitude * Fraction(2) ** n)
                word = round_number(dtype.name, decode("float32", round_number("float32", scaled)))
                assert own == word, (v, n)
            else:
                # E6: a product's NaN is the canonical one.
                assert own == (word if exact.kind == "inf" else dtype.nan_bits)
    sizes = zip(values, np.spacing(x).tolist(), np.nextafter(np.abs(x), inf).tolist(), strict=True)
    for v, found_size, above in sizes:
        if math.isfinite(above):
            assert Fraction(found_size) == (Fraction(above) - Fraction(abs(v))) * (-1 if v < 0 else 1)


def test_frexp_moves_the_bits_of_nan_and_inf_and_ldexp_makes_nan_canonical_E6() -> None:
    words_in = numpy.array([0xFF80_0000, 0x7FA0_0001, 0xFFC0_1234, 0x8000_0000], numpy.uint32)
    x = np.asarray(words_in.view(numpy.float32))
    mantissa, exponent = np.frexp(x)
    assert words(mantissa).tolist() == words_in.tolist()
    assert exponent.tolist() == [0] * 4
    for n in (-200, -1, 0, 300):
        assert words(np.ldexp(x, n)).tolist() == [0xFF80_0000, 0x7FC0_0000, 0x7FC0_0000, 0x8000_0000]


def test_C4_ldexp_flushes_its_result_alone() -> None:
    """Inf has no factor that is flushed; what rounds to 2^-126 is kept."""
    x = np.asarray([math.inf, 2 - 2.0**-23, 1.5, -1.0])
    with np.use_profile(subnormals="flush"):
        found = np.ldexp(x, -127)
    assert words(found).tolist() == [0x7F80_0000, 0x0080_0000, 0, 0x8000_0000]


def test_H1_frexp_ldexp_modf_and_spacing_of_float64_are_numpys() -> None:
    rng = numpy.random.default_rng(2)
    x = numpy.concatenate([rng.normal(0, 1e3, 50), [0.0, 1e-45, 6e-8, -inf]])
    n = rng.integers(-20, 20, len(x))
    for name, operands in (("frexp", (x,)), ("modf", (x,)), ("spacing", (x[:-1],)), ("ldexp", (x, n))):
        assert_same(getattr(np, name)(*operands), getattr(numpy, name)(*operands))


@of_types([t for t in DTYPES.values() if t is not dtypes.float8_e4m3fn and t.kind != "complex"])
def test_clip_has_the_type_of_its_array(dtype: DType) -> None:
    x = np.asarray([0, 1, 1, 0], dtype)
    one = dtype.kind == "bool" or 1
    found = np.clip(x, one, None)
    assert (found.dtype, found.tolist()) == (dtype, [1, 1, 1, 1])
    copied = np.clip(x)
    assert copied.tolist() == x.tolist()
    assert not numpy.shares_memory(copied.bits.data, x.bits.data)


def test_clip_takes_numpys_calls_and_refuses_other_kinds() -> None:
    x = np.asarray([-5.0, 0.5, 7.0, nan], "bfloat16")
    out = np.zeros(4, dtype="bfloat16")
    assert np.clip(x, 0, 1, out) is out
    for found in (out, np.clip(x, a_min=0, a_max=1), np.clip(x, min=0, max=1)):
        assert found.tolist()[:3] == [0, 0.5, 1]
    assert numpy.isnan(out.tolist()[3])
    assert np.clip(x[:3], np.asarray([[-9.0], [1.0]]), 3).dtype is np.bfloat16
    assert np.clip(x[:3], 3, 1).tolist() == [1, 1, 1]  # minimum comes last
    assert np.clip(x[:3], 0, 1, where=[True, False, True]).tolist() == [0, 0, 1]
    i = np.asarray([1, 2, 3])
    for bound in (0.5, numpy.float32(1), np.asarray([0.5]), 1j):
        with pytest.raises(TypeError, match="clip"):
            np.clip(i, bound, None)
    with pytest.raises(TypeError, match="clip"):
        np.clip(x, i[0], None)


@of_types([*FLOATS, dtypes.complex64])
def test_nan_to_num_gives_the_largest_values(dtype: DType) -> None:
    x = np.asarray([nan, inf, -inf, 1.5], dtype)
    largest = dtype.max if dtype.exponent_bits else None
    if dtype is dtypes.float64:
        largest = float(numpy.finfo(float).max)
    if dtype is dtypes.complex64:
        largest = float(numpy.finfo(numpy.float32).max)
    assert np.nan_to_num(x).tolist() == [0, largest, -largest, 1.5]
    assert np.nan_to_num(x, nan=2, posinf=3, neginf=4).tolist() == [2, 3, 4, 1.5]
    assert np.nan_to_num(x, False) is x
    assert x.tolist() == [0, largest, -largest, 1.5]


def test_isclose_is_its_formula() -> None:
    a = numpy.array([1.0, 1.0, inf, -inf, nan, 0.0, 1e-9, 100.0], numpy.float32)
    b = numpy.array([1.000001, 1.1, inf, inf, nan, 1e-9, 0.0, 100.0009], numpy.float32)
    for options in ({}, {"equal_nan": True}, {"rtol": 0.2}, {"atol": 0.0}, {"rtol": 0, "atol": 0}):
        assert np.isclose(a, b, **options).tolist() == numpy.isclose(a, b, **options).tolist()
    assert np.isclose(np.asarray([1, 2]), 1).tolist() == [True, False]
    assert np.isclose(np.asarray([1 + 1j]), 1 + 1.000001j).tolist() == [True]
    assert np.isclose(np.asarray([1.0], "bfloat16"), np.asarray([1.0078125], "bfloat16")).tolist() == [
        False
    ]


# ---- composites, step by step (R7) -----------------------------------------------------------------


def rounded(value: float) -> int:
    return round_number("float32", decode("float32", int(numpy.float32(value).view(numpy.uint32))))


COMPOSITES: dict[str, Callable[[int], int]] = {
    "deg2rad": lambda a: twin.FLOAT["multiply"](a, rounded(math.pi / 180)),
    "rad2deg": lambda a: twin.FLOAT["multiply"](a, rounded(180 / math.pi)),
    "sinc": lambda a: sinc_by_steps(a),
}


def sinc_by_steps(a: int) -> int:
    p = twin.FLOAT["multiply"](a, rounded(math.pi))
    return twin.FLOAT["divide"](twin.FLOAT["sin"](p), p) if a & 0x7FFFFFFF else rounded(1.0)


@of_types([dtypes.float32, *NARROW])
def test_R7_composites_are_their_steps(dtype: DType) -> None:
    bits = drawn(dtype)
    for name, function in COMPOSITES.items():
        wide = [round_number("float32", decode(dtype.name, w)) for w in bits.tolist()]
        expected = [round_number(dtype.name, decode("float32", function(w))) for w in wide]
        assert words(getattr(np, name)(of_words(bits, dtype))).tolist() == expected, name


def test_R7_round_to_decimals_is_its_steps() -> None:
    bits = drawn(dtypes.float32)
    x = of_words(bits, dtypes.float32)
    for places in (1, 3, -1, -3):
        scale = rounded(10.0 ** abs(places))
        there, back = ("multiply", "divide") if places > 0 else ("divide", "multiply")
        expected = [
            twin.FLOAT[back](twin.FLOAT["rint"](twin.FLOAT[there](w, scale)), scale)
            for w in bits.tolist()
        ]
        assert words(np.round(x, places)).tolist() == expected
    assert np.round(np.asarray([1.25 + 2.75j]), 1).tolist() == [numpy.complex64(1.2 + 2.8j)]
    out = np.zeros(x.shape)
    assert np.around(x, out=out) is out
    with pytest.raises(InvalidArgument, match="decimals"):
        np.round(x, 39)


def test_composites_of_integers_and_float64() -> None:
    assert np.deg2rad(np.asarray([180])).dtype is np.float32
    for name in ("deg2rad", "rad2deg", "sinc"):
        x = numpy.linspace(-3, 3, 13)
        found = numpy.asarray(getattr(np, name)(np.asarray(x)))
        numpy.testing.assert_allclose(found, getattr(numpy, name)(x), rtol=1e-14, atol=1e-16)
    assert np.angle(np.asarray([1j, -1.0])).tolist() == [
        numpy.float32(math.pi / 2),
        numpy.float32(math.pi),
    ]
    assert np.angle(np.asarray([1j]), deg=True).tolist() == [90]


# ---- complex types, on the host (H1) ---------------------------------------------------------------


def test_H1_what_complex_types_do_not_have_is_refused() -> None:
    z = np.asarray([1 + 1j])
    for name in (
        *("floor", "ceil", "trunc", "signbit", "cbrt", "erf", "frexp", "modf", "spacing", "fabs"),
    ):
        with pytest.raises(UnsupportedType, match="complex64"):
            getattr(np, name)(z)
    for name in (
        *("maximum", "less", "remainder", "atan2", "hypot", "copysign", "nextafter", "logaddexp"),
    ):
        with pytest.raises(UnsupportedType):
            getattr(np, name)(z, z)


# ---- promotion -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["frexp", "modf", "spacing", "sinc", "round", "clip", "logical_not", "sign"]
)
def test_shapes_empty_scalar_and_not_contiguous(name: str) -> None:
    function = getattr(np, name)
    x = np.asarray(numpy.linspace(-4, 4, 24).reshape(2, 3, 4), "bfloat16")
    for view in (x.T, x[:, ::2], x[0, 0, 0], x[:0], x[::-1]):
        dense = np.asarray(view, copy=True)
        results = zip(
            *(r if isinstance(r := function(v), tuple) else (r,) for v in (view, dense)), strict=True
        )
        for found, expected in results:
            assert found.shape == view.shape
            assert found.tolist() == expected.tolist()


def test_where_of_one_array_gives_indices() -> None:
    (found,) = np.where(np.asarray([True, False, True]))
    assert found.tolist() == [0, 2]


@pytest.mark.parametrize("name", ["gcd", "lcm", "nextafter"])
def test_shapes_that_do_not_broadcast_are_refused(name: str) -> None:
    for shapes in (((5, 0), (0, 3)), ((2,), (3,))):
        with pytest.raises(InvalidArgument, match="broadcast"):
            getattr(np, name)(*(np.ones(s, dtype="int8") for s in shapes))
