"""Arrays as text: the fewest digits that name each element among those of its type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
from tests.support.words import of_words, words

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.ops import Bits
from neuronsim.reference import formats

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits]
SMALL = [t for t in FLOATS if t.bits <= 16]


@pytest.fixture(autouse=True)
def _restored_options() -> Iterator[None]:
    with np.printoptions():
        yield


def every_value(dtype: DType) -> np.Array:
    """All finite values of a type of 16 bits or fewer; of a wider one some from every binade."""
    if dtype.bits <= 16:
        bits = numpy.arange(1 << dtype.bits).astype(dtype.storage)
    else:
        drawn = numpy.random.default_rng(0).integers(0, 1 << 32, 6000, numpy.uint32)
        binades = numpy.arange(0, 255, dtype=numpy.uint32) << 23
        ends = numpy.concatenate([drawn, binades, binades + 0x2000, binades - 0x2000])
        bits = (ends & 0xFFFFE000).astype(numpy.uint32).view(numpy.float32)
    x = np.Array(Bits(bits, dtype))
    return x[numpy.isfinite(x.tolist())]


def printed(x: np.Array) -> list[str]:
    """Each element, by the printing of arrays."""
    found = []
    with np.printoptions(threshold=10**9, linewidth=10**9, precision=20):
        for start in range(0, x.size, 500):
            found += np.array2string(x[start : start + 500], separator=",")[1:-1].split(",")
    return found


def rounded(text: str, dtype: DType) -> int:
    """The word of a decimal number, by exact rounding to nearest even (C2)."""
    exact = formats.Number("finite", text.startswith("-"), abs(Fraction(text)))
    return formats.round_number(dtype.name, exact)


# ---- the shortest digits ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*SMALL, np.tfloat32], ids=lambda t: t.name)
def test_digits_name_the_element_and_no_fewer_do(dtype: DType) -> None:
    x = every_value(dtype)[:: 1 if dtype.bits == 8 else 17]
    for value, word in zip(x.tolist(), words(x).tolist(), strict=True):
        if value == 0:
            continue
        text = np.format_float_scientific(of_words([word], dtype, ()), trim="-")
        assert rounded(text, dtype) == word
        digits = len(re.sub(r"e.*|\D", "", text))
        if digits > 1:  # the nearest below and above, with a digit less
            step = Decimal(10) ** (Decimal(text).adjusted() - digits + 2)
            low = abs(Decimal(value)) // step * step
            for shorter in (low, low + step):
                assert rounded(str(shorter.copy_sign(Decimal(value))), dtype) != word, (text, shorter)


@pytest.mark.parametrize("dtype", [*SMALL, np.tfloat32], ids=lambda t: t.name)
def test_printed_text_read_again_gives_the_same_bits(dtype: DType) -> None:
    x = every_value(dtype)[:: 1 if dtype.bits == 8 else 5]
    again = np.asarray([float(text) for text in printed(x)], dtype)
    assert numpy.array_equal(words(again), words(x))


def test_the_control_fails_for_three_digits() -> None:
    x = every_value(np.bfloat16)
    again = np.asarray([float(f"{v:.2e}") for v in x.tolist()], np.bfloat16)
    assert not numpy.array_equal(words(again), words(x))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1 / 3, "bfloat16", "0.334"),
        (1 / 3, "float16", "0.3333"),
        (1 / 3, "tfloat32", "0.3333"),
        (1 / 3, "float32", "0.33333334"),
        (1 / 3, "float64", "0.3333333333333333"),
        (1 / 3, "float8_e4m3", "0.34"),
        (1 / 3, "float8_e5m2", "0.3"),
        (240, "float8_e4m3", "240.0"),
        (448, "float8_e4m3fn", "450.0"),
        (3.38953139e38, "bfloat16", "3.39e+38"),
        (2.0**-133, "bfloat16", "9e-41"),
        (-0.0, "bfloat16", "-0.0"),
        (float("nan"), "float8_e3m4", "nan"),
        (float("-inf"), "bfloat16", "-inf"),
        (7, "int8", "7"),
        (True, "bool", "True"),
        (1 - 2j, "complex64", "(1-2j)"),
    ],
)
def test_str_of_a_number(value: Any, dtype: str, text: str) -> None:
    assert str(np.asarray(value, dtype)) == text


# ---- NumPy's layout and options --------------------------------------------------------------------

SAMPLES = [
    numpy.arange(12.0).reshape(3, 4) / 4,
    numpy.array([1e-5, 1.0, 60000.0]),
    numpy.array([-0.0, numpy.nan, numpy.inf, -1.5]),
    numpy.array([]),
    numpy.zeros((0, 3)),
    numpy.array(2.5),
    numpy.linspace(-1, 1, 2000).reshape(40, 50),
    numpy.arange(3000),
    numpy.arange(6).reshape(2, 3)[:, ::-1],
    numpy.array([True, False]),
    numpy.array([1 + 2j, 0.1 - 1e-3j]),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda a: f"{a.dtype}{a.shape}")
def test_native_types_print_as_numpys_arrays(sample: Any, dtype: str) -> None:
    for options in [
        {},
        {"precision": 3},
        {"precision": 3, "suppress": True},
        {"threshold": 5, "edgeitems": 1},
        {"floatmode": "fixed", "precision": 4},
        {"floatmode": "unique", "sign": "+"},
        {"nanstr": "NA", "infstr": "INF", "linewidth": 30},
        {"formatter": {"float_kind": lambda v: f"<{v:.2f}>"}},
    ]:
        theirs = sample.astype(dtype) if sample.dtype.kind == "f" else sample
        ours = np.asarray(theirs)
        with np.printoptions(**options):
            assert np.array2string(ours) == numpy.array2string(theirs)
            assert str(ours) == str(theirs)
            assert np.array2string(ours, separator="; ", prefix="xxx") == numpy.array2string(
                theirs, separator="; ", prefix="xxx"
            )


@pytest.mark.parametrize("sample", SAMPLES[:9], ids=lambda a: f"{a.dtype}{a.shape}")
def test_repr_is_numpys_with_the_type(sample: Any) -> None:
    theirs = sample.astype("float16") if sample.dtype.kind == "f" else sample.astype("int16")
    text = repr(np.asarray(theirs))
    expected = repr(theirs).replace("array(", "Array(")
    assert text == expected


def test_a_summary_prints_the_ends_of_each_axis() -> None:
    x = np.asarray(numpy.arange(1.0, 2401.0).reshape(40, 60) / 8, np.bfloat16)
    shown = repr(x).split("\n")
    assert shown[0] == "Array([[1.250e-01, 2.500e-01, 3.750e-01, ..., 7.250e+00, 7.380e+00,"
    assert [line.strip() for line in shown].count("...,") == 1
    assert shown[-1].strip() == "3.000e+02]], shape=(40, 60), dtype=bfloat16)"
    assert len(re.findall(r"\de[+-]", repr(x))) == 36


def test_precision_rounds_the_digits() -> None:
    x = np.asarray([1 / 3, 2.5], np.bfloat16)
    assert np.array2string(x, precision=1) == "[0.3 2.5]"
    with np.printoptions(precision=2):
        assert repr(x) == "Array([0.33, 2.5 ], dtype=bfloat16)"
    assert repr(x) == "Array([0.334, 2.5  ], dtype=bfloat16)"


def test_fixed_digits_and_formatters_see_the_exact_values() -> None:
    x = np.asarray([1 / 3], np.bfloat16)
    assert np.array2string(x, floatmode="fixed", precision=9) == "[0.333984375]"
    assert np.array2string(x, formatter={"float": "{:.9f}".format}) == "[0.333984375]"


def test_options_are_numpys() -> None:
    np.set_printoptions(precision=2)
    assert numpy.get_printoptions()["precision"] == np.get_printoptions()["precision"] == 2


def test_format_float() -> None:
    x = np.asarray(1 / 3, np.bfloat16)
    assert np.format_float_positional(x) == "0.334"
    assert np.format_float_positional(x, 2) == "0.33"
    assert np.format_float_positional(x, unique=False, precision=9) == "0.333984375"
    assert np.format_float_scientific(x, exp_digits=3) == "3.34e-001"
    assert np.format_float_positional(0.1) == numpy.format_float_positional(0.1)


def test_a_large_array_prints_without_its_other_elements() -> None:
    view = numpy.broadcast_to(numpy.array(0x3F80, numpy.uint16), (1 << 40, 1 << 20))
    assert str(np.Array(Bits(view, np.bfloat16))).count("1.") == 36
