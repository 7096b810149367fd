"""Arrays from numbers, lists and other arrays: one rounding from the exact value (C1)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from moved_bits import assert_same, every_pattern
from tests.support.parameters import each_of
from tests.support.words import word_list

import neuronsim as np
from neuronsim.arrays import progressions
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import formats
from neuronsim.reference.elementwise import FLOAT as TWIN

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.exponent_bits]
INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]


# ---- types -----------------------------------------------------------------------------------------


@each_of(
    ("value", "expected"),
    [
        (1.5, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (3, "int64"),
        ([1, 2], "int64"),
        (True, "bool"),
        ([True, False], "bool"),
        (2**63, "uint64"),
        (numpy.float64(1.5), "float64"),
        (numpy.float16(1.5), "float16"),
        (numpy.int8(1), "int8"),
        (numpy.zeros(2), "float64"),
        (numpy.zeros(2, ml_dtypes.bfloat16), "bfloat16"),
        (numpy.zeros(2, ml_dtypes.float8_e4m3), "float8_e4m3"),
        (numpy.zeros(2, "c8"), "complex64"),
        (1j, "complex64"),
        ([1, 2j], "complex64"),
    ],
    ids=repr,
)
def test_type_of_what_comes_in(value: Any, expected: str) -> None:
    assert np.asarray(value).dtype.name == expected


@pytest.mark.parametrize("name", ["float33", "bfloat", "object", "", "f3", None.__class__])
def test_unknown_types_are_refused(name: Any) -> None:
    with pytest.raises(UnsupportedType, match="element type"):
        np.asarray([1.0], dtype=name)
    with pytest.raises(UnsupportedType, match="float32"):
        np.asarray([1.0], dtype="float3")


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_large_python_ints_are_rounded_once_C1(dtype: DType) -> None:
    # 2^70 + 2^60 + 1 lies just above a tie of several formats; float64 would lose the last bit.
    values = [2**70 + 2**60 + 1, -(2**64) - 1, 2**24 + 1, 7, 10**400]
    expected = [formats.from_float(dtype.name, v) for v in values]
    assert word_list(np.asarray(values, dtype=dtype)) == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_ints_are_exact_to_the_ends_of_a_type_and_an_overflow_beyond(dtype: DType) -> None:
    ends = [int(numpy.iinfo(dtype.numpy).min), int(numpy.iinfo(dtype.numpy).max)]
    assert np.asarray(ends, dtype=dtype).tolist() == ends
    assert np.asarray(ends[1], dtype=dtype).item() == ends[1]
    for outside in (ends[1] + 1, ends[0] - 1, 2**70):
        for given in (outside, [outside]):
            with pytest.raises(OverflowError):
                np.asarray(given, dtype=dtype)


# ---- creation functions -----------------------------------------------------------------------------


def test_full_broadcasts_an_array_and_rounds_once_C1() -> None:
    found = np.full((2, 3), [1.0, 1 + 2**-8 + 2**-40, -0.0], "bfloat16")
    assert found.dtype is np.bfloat16
    assert found[1].tobytes() == np.asarray([1.0, 1.0078125, -0.0], "bfloat16").tobytes()
    assert np.full(3, np.asarray(0.5, "float8_e4m3")).dtype is np.float8_e4m3
    assert np.full((), 1j).dtype is np.complex64
    assert np.full_like(np.ones(2, "float32"), numpy.nan).dtype is np.float32


@each_of("k", [-4, -1, 0, 2, 9])
@each_of("dtype", list(DTYPES.values()), ids=lambda t: t.name)
def test_matrices_are_numpys(dtype: DType, k: int) -> None:
    for shape in ((3, None), (2, 4), (0, 2)):
        assert np.eye(*shape, k=k, dtype=dtype).tolist() == numpy.eye(*shape, k=k).tolist()
        assert np.tri(*shape, k=k, dtype=dtype).tolist() == numpy.tri(*shape, k=k).tolist()
    x, words = every_pattern(dtype, (2, 3, 4))
    for name in ("tril", "triu"):
        assert_same(getattr(np, name)(x, k=k), getattr(numpy, name)(words, k=k))
        assert_same(getattr(np, name)(x[0, 0], k=k), getattr(numpy, name)(words[0, 0], k=k))
    assert_same(np.diag(x[0], k), numpy.diag(words[0], k))
    assert_same(np.diag(x[0, 0], k), numpy.diag(words[0, 0], k))
    assert_same(np.diagflat(x[0], k), numpy.diagflat(words[0], k))
    assert np.identity(3, dtype=dtype).tolist() == numpy.identity(3).tolist()


def test_grids_are_numpys_on_exact_values() -> None:
    for name in ("mgrid", "ogrid"):
        ours, theirs = getattr(np, name), getattr(numpy, name)
        for key in (np.s_[0:3], np.s_[1:2:0.25], np.s_[0:1:5j], np.s_[:2, 1:4:2], np.s_[0:2, 0:1:3j]):
            found, expected = ours[key], theirs[key]
            parts = zip(found, expected, strict=True) if isinstance(expected, tuple) else ()
            assert isinstance(found, tuple) or found.tolist() == expected.tolist()
            assert all(f.tolist() == e.tolist() for f, e in parts)
    assert np.indices((2, 3)).tolist() == numpy.indices((2, 3)).tolist()
    assert [x.shape for x in np.indices((2, 3), sparse=True)] == [(2, 1), (1, 3)]
    assert np.indices((2,), "bfloat16").dtype is np.bfloat16
    assert np.fromfunction(lambda i, j: i * 3 + j, (2, 3)).dtype is np.float32


# ---- evenly spaced values: each is rounded once ----------------------------------------------------


def rounded(name: str, value: Fraction) -> int:
    """The bits of the exact value, rounded by the twin."""
    number = formats.Number("finite", value < 0, abs(value))
    return formats.round_number(name, number)


ends = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(-1e6, 1e6), st.floats(-1e-40, 1e-40), st.floats(-1e30, 1e30)
)


@pytest.fixture(params=[200, 0], ids=["exactly", "bracketed"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progressions, "_FEW", request.param)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_progressions_round_each_value_once_C1(dtype: DType, few: None) -> None:
    @settings(max_examples=40)
    @drawn(ends, ends, st.integers(1, 12), st.booleans())
    def check(start: float, stop: float, num: int, endpoint: bool) -> None:
        step = (Fraction(stop) - Fraction(start)) / max(num - endpoint, 1)
        first = Fraction(start)
        found = progressions.progression(first, step, num, dtype)
        assert word_list(found) == [rounded(dtype.name, first + i * step) for i in range(num)]

    check()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_values_just_beside_midpoints_C1(dtype: DType, few: None) -> None:
    # float64 has the midpoint itself in their place, and rounds it the other way.
    half = Fraction(1, 2 ** (dtype.mantissa_bits + 1))
    for middle in (1 + half, 1 + 3 * half, -(1 + half), -(1 + 3 * half)):
        for tiny in (Fraction(1, 2**70), -Fraction(1, 2**70), Fraction(1, 3 * 2**60)):
            found = progressions.progression(middle, tiny, 3, dtype)
            assert word_list(found) == [rounded(dtype.name, middle + i * tiny) for i in range(3)]
    start = float(1 + half)
    line = np.linspace(start, start + 2**-52, 9, dtype=dtype)
    step = Fraction(1, 2**55)
    assert word_list(line) == [rounded(dtype.name, 1 + half + i * step) for i in range(9)]


@settings(max_examples=100)
@drawn(st.integers(-(2**63), 2**64), st.integers(-40, 40), st.integers(-(2**62), 2**62).filter(bool))
def test_arange_of_integers_is_exact(start: int, count: int, step: int) -> None:
    expected = list(range(start, start + count * step, step))
    for name in ("int64", "uint64"):
        low, high = (0, 2**64 - 1) if name == "uint64" else (-(2**63), 2**63 - 1)
        if all(low <= v <= high for v in expected):
            assert np.arange(start, start + count * step, step, dtype=name).tolist() == expected
        else:
            with pytest.raises(OverflowError):
                np.arange(start, start + count * step, step, dtype=name)


@each_of(
    ("arguments", "name"),
    [
        ((3,), "int64"),
        ((True,), "int64"),
        ((numpy.int8(3),), "int64"),
        ((2**63, 2**63 + 2), "uint64"),
        ((2**63 - 2, 2**63), "int64"),
        ((3.0,), "float32"),
        ((0, 1, 0.5), "float32"),
        ((numpy.float64(2),), "float64"),
        ((np.asarray(2, "bfloat16"),), "bfloat16"),
        ((0, np.asarray(2, "bfloat16"), 0.5), "bfloat16"),
    ],
)
def test_type_of_arange(arguments: tuple[Any, ...], name: str) -> None:
    found = np.arange(*arguments)
    assert found.dtype.name == name
    exact = [v.item() if isinstance(v, np.Array) else v for v in arguments]
    whole = all(isinstance(v, int) for v in exact)
    assert found.tolist() == list(range(*exact) if whole else numpy.arange(*exact))


def test_arange_takes_numpys_keywords() -> None:
    assert np.arange(stop=3, start=1).tolist() == [1, 2]
    assert np.arange(0, 2, 1, "float16").dtype is np.float16
    assert np.arange(1, 7, step=3, device="trn1").tolist() == [1, 4]
    assert np.arange(5, None).tolist() == [0, 1, 2, 3, 4]
    assert np.arange(0.0, 1e-300, 1e300).tolist() == [0]
    assert np.arange(-1.5, 2, dtype="int8").tolist() == [-1, 0, 0, 1]  # C6
    assert np.arange(3, dtype="complex64").tolist() == [0, 1, 2]
    assert np.arange(3, dtype="bool").tolist() == [False, True, True]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "float8_e4m3"])
def test_ends_that_are_negative_zero_have_numpys_sign(name: str) -> None:
    def same(found: np.Array, expected: Any) -> bool:
        return numpy.array_equal(numpy.signbit(numpy.asarray(found).astype(float)), expected)

    for arguments in ((-0.0, -1.0, -0.25), (-0.0, 1.0, 0.25), (0.0, -1.0, -0.25), (-0.0, 0.0)):
        found = np.arange(*arguments, dtype=name)
        assert same(found, numpy.signbit(numpy.arange(*arguments)))
    for start, stop in ((-0.0, -1), (-0.0, 1), (1, -0.0), (-1, -0.0), (-0.0, -0.0), (0.0, -0.0)):
        for num in (1, 2, 3):
            for endpoint in (True, False):
                found = np.linspace(start, stop, num, endpoint, dtype=name)
                assert same(found, numpy.signbit(numpy.linspace(start, stop, num, endpoint)))


def test_linspace_has_numpys_shapes_and_ends() -> None:
    assert np.linspace(1, 2, 0).shape == (0,)
    assert np.linspace(1, 2, 1).tolist() == [1]
    assert np.linspace(1, 2, 1, endpoint=False).tolist() == [1]
    assert np.linspace(0, 5).shape == (50,)
    assert np.linspace(0.1, 0.3, 7, dtype="float64")[[0, -1]].tolist() == [0.1, 0.3]
    assert np.linspace(0, 10, 4, dtype="int64").tolist() == [0, 3, 6, 10]
    assert np.linspace(0, -10, 4, dtype="int8").tolist() == [0, -4, -7, -10]
    values, step = np.linspace(0, 1, 5, endpoint=False, retstep=True)
    assert (values[1].tolist(), step.tolist()) == (pytest.approx(0.2), pytest.approx(0.2))
    assert numpy.isnan(np.linspace(0, 1, 1, retstep=True)[1].item())
    lows, highs = np.asarray([0.0, 4.0], "bfloat16"), [[8.0, 8.0]]
    for axis in (0, 1, 2, -1):
        found = np.linspace(lows, highs, 5, axis=axis)
        expected = numpy.linspace([0.0, 4.0], highs, 5, axis=axis)
        assert found.dtype is np.float32  # the list's type
        assert found.tolist() == expected.tolist()
    assert np.linspace(lows, 8, 5).dtype is np.bfloat16
    assert np.linspace(numpy.zeros((0, 2)), 1, 3).shape == (3, 0, 2)


def test_linspace_of_complex_and_infinite_numbers_is_numpys_H1() -> None:
    assert np.linspace(1j, 2, 3).dtype is np.complex64
    assert np.linspace(1j, 2, 3).tolist() == numpy.linspace(1j, 2, 3).tolist()
    found = np.linspace(0, numpy.inf, 3, dtype="bfloat16").tolist()
    assert numpy.isnan(found[0])
    assert found[1:] == [numpy.inf] * 2


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_logspace_and_geomspace_are_their_formula_R7(name: str) -> None:
    exponents = word_list(np.linspace(-1, 1.7, 6))
    powers = [TWIN["power"](formats.from_float("float32", 3.0), e) for e in exponents]
    found = np.logspace(-1, 1.7, 6, base=3.0, dtype=name)
    assert word_list(found) == [formats.convert("float32", name, p) for p in powers]
    ratio = TWIN["divide"](*(formats.from_float("float32", v) for v in (50.0, 3.0)))
    steps = word_list(np.linspace(0, 1, 6))[1:-1]
    inner = [TWIN["power"](ratio, s) for s in steps]
    inner = [TWIN["multiply"](formats.from_float("float32", 3.0), v) for v in inner]
    expected = [formats.convert("float32", name, v) for v in inner]
    outer = [formats.from_float(name, v) for v in (3.0, 50.0)]
    assert word_list(np.geomspace(3, 50, 6, dtype=name)) == [outer[0], *expected, outer[1]]


def test_logspace_and_geomspace_of_host_types_are_numpys_H1() -> None:
    assert np.geomspace(1, 7, 5, dtype="float64").tolist() == numpy.geomspace(1, 7, 5).tolist()
    assert np.geomspace(1j, 8, 3).dtype is np.complex64
    assert np.logspace(0, 2, 3, dtype="float64").tolist() == [1, 10, 100]
    assert np.geomspace(-1, -8, 4).tolist() == [-1, -2, -4, -8]
    assert np.geomspace([1.0, 2.0], 8, 3, axis=1).shape == (2, 3)
    assert np.geomspace(1, 8, 3, endpoint=False).tolist() == pytest.approx([1, 2, 4])
    assert np.geomspace(1, 8, 1).tolist() == [1]
    assert np.geomspace(1, 8, 0).shape == (0,)
    assert np.logspace(0, 2, 3, base=[[2.0], [10.0]], axis=-1).shape == (2, 1, 3)


@pytest.mark.parametrize(
    ("names", "values", "result"),
    [
        (("float32", "bfloat16", "float64"), [-2, 0, 1, 3], None),
        (("uint8", "int8", "int32", "int64"), [100, 3, 0, 1], "int64"),
        (("bool",), [0, 1, 1, 0], "int64"),
    ],
)
def test_vander_is_numpys_on_exact_values(
    names: tuple[str, ...], values: list[int], result: str | None
) -> None:
    for name in names:
        x = numpy.array(values, "float64" if name == "bfloat16" else name)
        for n, increasing in itertools.product((None, 0, 1, 3), (False, True)):
            found = np.vander(np.asarray(x, name), n, increasing)
            assert found.dtype.name == (result or name)
            assert found.tolist() == numpy.vander(x, n, increasing).tolist()
    # Powers in float32, not in the type: 1.0078125^2 rounded once.
    y = np.asarray([1 + 2**-7], "bfloat16")
    exact = Fraction(1 + 2**-7) ** 3
    assert word_list(np.vander(y, 4)[:, :1]) == [rounded("bfloat16", exact)]


# ---- from data -------------------------------------------------------------------------------------


@each_of("dtype", list(DTYPES.values()), ids=lambda t: t.name)
def test_frombuffer_reads_every_type_without_a_copy(dtype: DType) -> None:
    x, _ = every_pattern(dtype, (5,))
    memory = bytearray(x.tobytes())
    found = np.frombuffer(memory, dtype)
    assert found.tobytes() == x.tobytes()
    assert np.frombuffer(memory, dtype, 2, dtype.itemsize).tobytes() == x[1:3].tobytes()
    memory[: dtype.itemsize] = bytes(dtype.itemsize)
    assert found[:1].tobytes() == bytes(dtype.itemsize)
    with pytest.raises(InvalidArgument):
        np.frombuffer(memory, dtype, 6)


def test_frombuffer_refuses_what_is_no_value_of_the_type() -> None:
    assert np.frombuffer(b"\0\0\x80\x3f").tolist() == [1]  # the default type
    for memory, name in ((b"\1\0\x80\x3f", "tfloat32"), (b"\2", "bool")):
        with pytest.raises(InvalidArgument, match=name):
            np.frombuffer(memory, name)


def test_arrays_from_iterators_and_with_more_axes() -> None:
    assert np.fromiter((i / 3 for i in range(2)), "bfloat16").tolist() == [0, 0.333984375]
    assert np.fromiter(iter(range(9)), "int8", 2).tolist() == [0, 1]
    with pytest.raises(InvalidArgument, match="1 numbers"):
        np.fromiter([1], "int8", 2)
    assert np.array([1.0], ndmin=3).shape == (1, 1, 1)
    assert np.ascontiguousarray(3).shape == (1,)
    plane = np.asfortranarray([[1, 2], [3, 4]])
    assert plane.bits.data.flags.f_contiguous
    assert np.ascontiguousarray(plane).bits.data.flags.c_contiguous
    copied = np.copy(plane)
    copied[0, 0] = 9
    assert plane.tolist() == [[1, 2], [3, 4]]
    assert np.asanyarray(plane) is plane


@each_of(
    ("call", "kind"),
    [
        (lambda: np.mgrid[3], UnsupportedType),
        (lambda: np.zeros(-1), ValueError),
        (lambda: np.zeros(1.5), TypeError),
        (lambda: np.zeros((2, "3")), TypeError),
        (lambda: np.zeros(2**62), ValueError),
        (lambda: np.ones(2**45), MemoryError),
        (lambda: np.zeros(2, device="gpu"), ValueError),
        (lambda: np.arange(3, device="gpu"), ValueError),
        (lambda: np.full(2, [1, 2, 3]), ValueError),
        (lambda: np.full(2, 300, "int8"), OverflowError),
        (lambda: np.eye(-1), ValueError),
        (lambda: np.eye(1.5), TypeError),
        (lambda: np.tril(np.ones(())), ValueError),
        (lambda: np.diag(np.ones((2, 2, 2))), ValueError),
        (lambda: np.vander(np.ones((2, 2))), ValueError),
        (lambda: np.arange(0, 1, 0), ValueError),
        (lambda: np.arange(numpy.inf), ValueError),
        (lambda: np.arange(1j), TypeError),
        (lambda: np.arange(0, 1e300, 1e-300), ValueError),
        (lambda: np.arange(2**70), ValueError),
        (lambda: np.arange(10**400), OverflowError),
        (lambda: np.arange(300, dtype="int8"), OverflowError),
        (lambda: np.linspace(0, 1, -1), ValueError),
        (lambda: np.linspace(0, 1, 2.5), TypeError),
        (lambda: np.linspace(0, 1j, 3, dtype="float32"), TypeError),
        (lambda: np.linspace(np.ones(2), np.ones(3)), ValueError),
        (lambda: np.linspace(np.ones(2), 1, 3, axis=2), IndexError),
        (lambda: np.geomspace(-1, 1), ValueError),
        (lambda: np.geomspace(0, 1), ValueError),
        (lambda: np.geomspace(0, 1, dtype="float64"), ValueError),
        (lambda: np.meshgrid([1], indexing="yx"), ValueError),
    ],
)
def test_wrong_arguments_of_creation_are_refused(
    call: Callable[[], Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, NeuronSimError)


def test_lines_along_another_axis_are_no_transpose_of_the_device_A3() -> None:
    ends = (np.asarray([-0.0, 1.0], "bfloat16"), np.asarray([-1.0, 2.0], "bfloat16"))
    with np.use_profile(transpose="tensor_engine"):  # which would make +0 of -0
        found = np.linspace(*ends, 3, axis=0)
        assert np.signbit(found).tolist() == [[True, False], [True, False], [True, False]]
        moved = np.permute_dims(np.asarray([[-0.0, 1.0]], "bfloat16"), (1, 0))
        assert np.signbit(moved).tolist() == [[False], [False]]  # the control
