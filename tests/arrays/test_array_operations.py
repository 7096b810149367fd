"""The exact operations on arrays: operators, functions, NumPy's protocol, and the short way of `+`."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.draws import encodings
from tests.support.evaluation import evaluated
from tests.support.operators import OPERATORS
from tests.support.parameters import each_of
from tests.support.words import assert_same

import neuronsim as np
from neuronsim import ops
from neuronsim.dtypes import DTYPES, DType, result_type
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops import Bits
from neuronsim.profiles import current_profile, rounding_state

pytestmark = pytest.mark.usefixtures("fresh_profile")

INTEGERS = [t for t in DTYPES.values() if t.kind in ("signed", "unsigned")]
SIGNED = [t for t in INTEGERS if t.kind == "signed"]


def by_name(dtypes: list[DType]) -> Any:
    return pytest.mark.parametrize("dtype", dtypes, ids=lambda t: t.name)


# ---- % // ** << >> ---------------------------------------------------------------------------------


def test_E8_a_zero_divisor_gives_zero_as_in_numpy() -> None:
    for dtype in INTEGERS:
        x = np.asarray([0, 1, 7], dtype=dtype)
        assert (x // 0).tolist() == [0, 0, 0]
        assert (x % 0).tolist() == [0, 0, 0]
        assert (7 // np.asarray([0, 3], dtype=dtype)).tolist() == [0, 2]
        assert np.fmod(x, 0).tolist() == [0, 1, 7]  # HLO's remainder: the dividend


@by_name(SIGNED)
def test_E8_the_smallest_integer_by_minus_one(dtype: DType) -> None:
    smallest = int(numpy.iinfo(dtype.numpy).min)
    x = np.asarray([smallest], dtype=dtype)
    assert (x // -1).tolist() == [smallest]
    assert (x % -1).tolist() == [0]
    assert np.fmod(x, -1).tolist() == [0]
    assert abs(x).tolist() == [smallest]


@by_name(INTEGERS)
def test_E8_shifts_by_the_width_or_more(dtype: DType) -> None:
    info = numpy.iinfo(dtype.numpy)
    x = np.asarray([1, 5, int(info.max)], dtype=dtype)
    for amount in (info.bits, info.bits + 1, 100):
        assert (x << amount).tolist() == [0, 0, 0]
        assert (x >> amount).tolist() == [0, 0, 0]
    if dtype.kind == "signed":
        negative = np.asarray([-1, int(info.min)], dtype=dtype)
        assert (negative >> info.bits).tolist() == [-1, -1]
        assert (negative << -1).tolist() == [0, 0]  # unsigned: a huge amount
        assert (negative >> -1).tolist() == [-1, -1]


@by_name([*INTEGERS, np.bool])
@pytest.mark.parametrize("other", [*INTEGERS, np.bool], ids=lambda t: t.name)
def test_E8_shift_right_of_two_types_is_numpys(dtype: DType, other: DType) -> None:
    """The common type decides, by every name, operator and method: of uint8 and bool it is unsigned."""
    if dtype is other is np.bool or any({dtype, other} == {np.uint64, t} for t in SIGNED):
        with pytest.raises(UnsupportedType):  # there is no common type of integers
            np.asarray([1], dtype=dtype) >> np.asarray([1], dtype=other)
        return
    tops = [1 if t is np.bool else int(numpy.iinfo(t.numpy).max) for t in (dtype, other)]
    least = 0 if dtype is np.bool else int(numpy.iinfo(dtype.numpy).min)
    x = numpy.array([tops[0], least, tops[0] // 3], dtype.numpy)
    y = numpy.array([1, tops[1], 0], other.numpy)
    expected = numpy.right_shift(x, y)
    a, b = np.asarray(x), np.asarray(y)
    scalars = zip(list(a), list(b), expected.tolist(), strict=True)
    assert all((v >> n).tolist() == e for v, n, e in scalars)
    for found in (a >> b, np.right_shift(a, b), np.bitwise_right_shift(a, b), numpy.right_shift(a, b)):
        assert found.dtype.numpy == expected.dtype
        assert found.tolist() == expected.tolist()
    assert np.right_shift.outer(a, b).tolist() == numpy.right_shift.outer(x, y).tolist()
    if other is not np.bool:  # a number has the array's type
        for found in (tops[1] >> b, np.right_shift(tops[1], b)):
            assert (found.dtype, found.tolist()) == (other, [tops[1] >> n for n in y.tolist()])
    if expected.dtype == x.dtype:
        a >>= b
        assert a.tolist() == expected.tolist()
        np.right_shift.at(a, [2], b[:1])
        numpy.right_shift.at(expected, [2], y[:1])
        assert a.tolist() == expected.tolist()


# ---- errors ----------------------------------------------------------------------------------------


@by_name(SIGNED)
def test_E8_negative_integer_powers_raise(dtype: DType) -> None:
    x = np.asarray([2, 3], dtype=dtype)
    negative = np.asarray([1, -1], dtype=dtype)
    for wrong in (
        lambda: x**-1,
        lambda: x**negative,
        lambda: 2**negative,
        lambda: np.power(x, negative),
        lambda: numpy.power(x, -1),
        lambda: x[:, None] ** negative,
        lambda: x ** numpy.int8(-2),
    ):
        with pytest.raises(InvalidArgument, match="negative integer powers"):
            wrong()
    # Once more when the same types and shapes were computed before: no short way around the check.
    assert [(x**x).tolist() for _ in range(2)] == [[4, 27]] * 2
    with pytest.raises(InvalidArgument, match="negative integer powers"):
        x**negative
    nothing = np.ones((0, 2), dtype) ** negative
    assert (nothing.shape, nothing.dtype) == ((0, 2), dtype)


@each_of("symbol", ["%", "//", "<<", ">>", "**", "&"])
def test_operators_refuse_what_does_not_meet(symbol: str) -> None:
    x, no_sums, z = np.asarray([1, 2]), np.ones(1, dtype="float8_e4m3fn"), np.asarray([1j])
    rows: list[tuple[Any, Any, type[Exception], str | None]] = [
        (np.asarray([1, 2, 3]), x, InvalidArgument, r"\(3,\), \(2,\) do not broadcast"),
        (np.ones(1, dtype="uint64"), np.ones(1, dtype="int64"), UnsupportedType, "no common type"),
        (no_sums, no_sums, UnsupportedType, "float8_e4m3fn"),
        (np.ones(1, dtype="int8"), 300, OverflowError, "int8"),
        *((x, other, TypeError, None) for other in (None, "a", {})),
        *((other, x, TypeError, None) for other in (None, "a", {})),
    ]
    if symbol != "**":  # which NumPy has (H1)
        rows.append((z, z, UnsupportedType, "complex64"))
    if symbol in ("<<", ">>", "&"):  # E8
        rows += [(x, 1.5, UnsupportedType, "float32"), (1.5, x, UnsupportedType, "float32")]
    for left, right, error, said in rows:
        if not (symbol == "%" and isinstance(left, str)):  # which formats
            with pytest.raises(error, match=said):
                OPERATORS[symbol].plain(left, right)


@by_name([*INTEGERS, np.bool])
def test_E9_whole_numbers_are_themselves(dtype: DType) -> None:
    x = np.asarray([0, 1, 1], dtype=dtype)
    for name in ("floor", "ceil", "trunc", "round", "positive", "abs"):
        found = getattr(np, name)(x)
        assert_same(found, x)
        assert not numpy.shares_memory(found.bits.data, x.bits.data)
    for found in (np.rint(x), np.copysign(x, x)):
        assert_same(found, x.astype(np.float32))


# ---- functions -------------------------------------------------------------------------------------


@by_name([np.float32, np.tfloat32, np.bfloat16, np.float16, np.float8_e5m2])
def test_tolist_and_repr_of_a_signalling_nan_do_not_warn(dtype: DType) -> None:
    """Functions take such bits; looking at them is no arithmetic that could be invalid."""
    shift = 8 * dtype.itemsize - dtype.bits
    bits = (((1 << dtype.exponent_bits) - 1 << dtype.mantissa_bits) + 1) << shift
    x = np.Array(Bits(numpy.array([bits], f"u{dtype.itemsize}").view(dtype.storage), dtype))
    assert np.isnan(x).tolist() == [True]
    assert numpy.isnan(x.tolist()).all()
    assert "nan" in repr(x)


def test_E8_counts_keep_the_type() -> None:
    for dtype in INTEGERS:
        bits = 8 * dtype.itemsize
        x = np.asarray([0, 1, 6, 127], dtype=dtype)
        assert (np.population_count(x).dtype, np.population_count(x).tolist()) == (dtype, [0, 1, 2, 7])
        assert np.count_leading_zeros(x).tolist() == [bits, bits - 1, bits - 3, bits - 7]


# ---- NumPy's protocol ------------------------------------------------------------------------------

N = np.asarray([[6, -3, 12], [100, -128, 127]], dtype="int8")
M = np.asarray([[2, 2, 3], [1, 7, 5]], dtype="int8")


@each_of("symbol", OPERATORS)
def test_ndarray_operators_defer_to_neuronsim(symbol: str) -> None:
    op = OPERATORS[symbol].plain
    assert_same(op(numpy.asarray(N), M), op(N, M))
    assert_same(op(N, numpy.asarray(M)), op(N, M))
    assert isinstance(op(numpy.int8(7), M), np.Array)


def test_ndarray_operators_of_another_type_defer_too() -> None:
    x, native = np.asarray([1.5, -2.25, 4.0], "bfloat16"), numpy.asarray([0.1, 0.2, 0.3], numpy.float32)
    assert_same(native + x, np.asarray(native) + x)
    assert_same(native @ x, np.matmul(np.asarray(native), x))


# ---- the short way -----------------------------------------------------------------------------------
#
# Arrays of one type, and Python numbers, take a remembered program; nothing may show it.


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "%", "//"])
def test_short_way_does_not_bypass_stochastic_rounding_S2(symbol: str, long_ways: list[str]) -> None:
    """Every operation takes its own call number, and so its own random words."""
    _, name, op, _ = OPERATORS[symbol]
    a = np.asarray(numpy.linspace(1, 2, 400), dtype="bfloat16")
    b = np.asarray(numpy.linspace(300, 3, 400), dtype="bfloat16")
    nearest = [op(a, b) for _ in range(2)][1]
    before = len(long_ways)
    with np.use_profile(rounding="stochastic") as profile:
        np.seed_rounding(5)
        found = [op(a, b) for _ in range(3)]
        assert rounding_state().calls == 3
        for call, result in enumerate(found):
            setting = ops.Setting(profile, 5, f"{call}/eager/{name}/")
            assert_same(result, evaluated(name, a, b, setting=setting))
        assert len(long_ways) == before + 3
        if symbol in "+-*/":
            assert len({x.tobytes() for x in (*found, nearest)}) == 4
    assert_same(op(a, b), nearest)
    assert len(long_ways) == before + 3


@pytest.mark.parametrize("n", [0, 1, 31, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 70001])
def test_short_way_of_every_length(n: int, threads: int, long_ways: list[str]) -> None:
    a, b = encodings(np.bfloat16, (n,), 110, "special"), encodings(np.bfloat16, (n,), 111, "special")
    expected = evaluated("add", a, b)
    assert_same(a + b, expected)
    assert_same(a + b, expected)
    assert len(long_ways) == 1
    assert_same(a + a, evaluated("add", a, a))


def test_short_way_leaves_other_types_alone(long_ways: list[str]) -> None:
    """Types of one width are no match for a remembered program."""
    for name in ("float32", "tfloat32", "int32", "uint8", "float8_e5m2", "bfloat16", "float16"):
        x = np.asarray([1, 2, 3], dtype=name)
        for _ in range(2):
            assert (x + x).dtype.name == name
    before = len(long_ways)
    checked = (("float32", "tfloat32"), ("uint8", "float8_e5m2"), ("bfloat16", "float16"))
    for left, right in (*checked, ("int32", "float32")):
        a, b = np.asarray([1, 1, 2], dtype=left), np.asarray([1, 2, 4], dtype=right)
        for found in (a + b, b + a):
            assert found.dtype is result_type(a.dtype, b.dtype)
            assert found.tolist() == [2, 3, 6]
    assert len(long_ways) == before + 8
    x = np.asarray([[1.0], [2.0]])
    assert (x + np.asarray([1.0, 2.0, 3.0])).tolist() == [[2, 3, 4], [3, 4, 5]]
    assert (x + np.asarray([1.0])).tolist() == [[2], [3]]
    assert (np.asarray(1.0) + np.asarray(2.0)).shape == ()
    assert (np.asarray(1.0) + np.asarray([2.0])).shape == (1,)
    with pytest.raises(InvalidArgument, match="do not broadcast"):
        x + np.ones(3)[:, None]
    # Where an operation does not exist, a remembered type does not make it exist.
    with pytest.raises(UnsupportedType):
        np.ones(3) & np.ones(3)
    assert (np.asarray([7], dtype="int32") / np.asarray([2], dtype="int32")).tolist() == [3.5]


def test_short_way_of_read_only_and_unaligned_arrays(long_ways: list[str]) -> None:
    raw = numpy.arange(65, dtype=numpy.uint8).tobytes()
    a = np.Array(Bits(numpy.frombuffer(raw, numpy.uint16, 32, 1), np.bfloat16))
    b = np.Array(Bits(numpy.frombuffer(raw, numpy.uint16, 32, 0), np.bfloat16))
    assert not a.bits.data.flags.aligned
    copies = [np.Array(Bits(v.bits.data.copy(), np.bfloat16)) for v in (a, b)]
    expected = evaluated("multiply", *copies)
    for _ in range(2):
        assert_same(a * b, expected)
        assert_same(b * a, evaluated("multiply", *reversed(copies)))


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_an_array_compute_alike(duplicate: Callable[[np.Array], np.Array]) -> None:
    """A dtype is one object, which the short way compares."""
    x = encodings(np.bfloat16, (3, 4), 130, "special")
    found = duplicate(x)
    assert_same(found, x)
    assert found.dtype is np.bfloat16
    for _ in range(2):
        assert_same(found + x, evaluated("add", x, x))


def test_an_array_without_data_is_an_error_and_no_crash() -> None:
    code = """
import neuronsim as np
x = np.ones(2)
x + x
empty = np.Array.__new__(np.Array)
try:
    empty + empty
except Exception as error:
    print(type(error).__name__)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "AttributeError\n")


def test_H1_host_types_take_no_short_way(long_ways: list[str]) -> None:
    for x in (numpy.array([0.1, 2.0]), numpy.array([1 + 2j, 3.0])):
        for _ in range(2):
            assert (np.asarray(x) + np.asarray(x)).tolist() == (x + x).tolist()
    assert len(long_ways) == 4


# ---- what a review found -------------------------------------------------------------------------


def test_short_way_survives_another_thread_that_replaces_its_programs() -> None:
    """Large operands give the interpreter away while they are added."""
    big = np.asarray(numpy.ones(1 << 17, numpy.float32))
    small = np.asarray(numpy.ones((4, 5), numpy.float32)).T
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            current_profile().forget()
            small + small

    threads = [threading.Thread(target=disturb) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(300):
        assert (big + big).shape == big.shape
    stop.set()
    for t in threads:
        t.join()


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "float8_e3m4"])
def test_C3_nan_leaves_the_identities_of_max_and_min(dtype: str) -> None:
    with np.use_profile(fp8_overflow="nan"):
        x = np.asarray([1.0, 2.0, 3.0], dtype)
        assert float(np.max(x)) == 3.0
        assert float(np.min(x)) == 1.0
        window = [np.WindowDimension(2)]
        assert np.reduce_window(x, "maximum", window).tolist() == [2.0, 3.0]


def test_a_used_profile_is_copied_and_pickled() -> None:
    with np.use_profile(fp8_overflow="saturate") as profile:
        x = np.asarray([1.0], "float8_e4m3")
        x + x
        for copied in (copy.deepcopy(profile), pickle.loads(pickle.dumps(profile))):
            assert copied == profile
            assert copied.parts == {}


def test_C8_immediates_round_nothing_that_moves() -> None:
    y = np.asarray([1.0, -2.0], "bfloat16")
    with np.use_profile(scalar="float32_immediate", rounding="stochastic"):
        found = {bytes(np.copysign(1 + 2**-9, y).tobytes()) for _ in range(20)}
    assert len(found) == 1


def test_windows_R4_that_reach_far_outside_are_quick() -> None:
    start = time.process_time()
    window = [np.WindowDimension(2**30, padding=(0, 2**30))]
    found = np.reduce_window(np.asarray([1.0, 2.0]), "add", window)
    assert found.tolist() == [3.0, 2.0, 0.0]
    assert time.process_time() - start < 2
