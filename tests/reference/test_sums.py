"""The twin's sums (rules R2, R3, M2, M6-M8) against NumPy's IEEE float32 and exact sums."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, sums
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent

ONE = 0x3F800000
SIGN = 0x80000000


def random_words(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng([52, seed])
    drawn = rng.integers(0, 1 << 32, n, np.uint32) & np.uint32(0x807FFFFF)
    return drawn | rng.integers(120, 134, n, np.uint32) << np.uint32(23)


@each_of("n", [1, 2, 511, 512, 513, 1024, 1300])
@each_of("reducer", ["add", "multiply", "maximum", "minimum"])
def test_reduce_R2_equals_a_loop_of_numpy(reducer: str, n: int) -> None:
    x = random_words(n, n)
    if reducer == "multiply":
        x = x & np.uint32(0x807FFFFF) | np.uint32(127 << 23)  # [1, 2): overflows late
    fold = getattr(np, reducer)
    start = np.float32(0.75)
    with np.errstate(over="ignore"):
        tiles = []
        for begin in range(0, n, 512):
            values = x[begin : begin + 512].view(np.float32)
            total = values[0]
            for v in values[1:]:
                total = fold(total, v)
            tiles.append(total)
        total = tiles[0]
        for v in tiles[1:]:
            total = fold(total, v)
        total = fold(total, start)
    expected = int(np.float32(total).view(np.uint32))
    assert sums.reduce_float(reducer, "float32", x.tolist(), int(start.view(np.uint32))) == expected


def test_reduce_R2_order_by_hand() -> None:
    """With 2^24 every single 1 is lost; what is added first shows."""
    big = formats.from_float("float32", 2**24)
    assert sums.reduce_float("add", "float32", [big, ONE, ONE], 0) == big
    assert sums.reduce_float("add", "float32", [ONE, ONE, big], 0) == big + 1
    assert sums.reduce_float("add", "float32", [ONE, ONE], big) == big + 1  # the initial value last
    assert sums.reduce_float("add", "float32", [big, ONE, ONE], 0, tile=1) == big
    assert sums.reduce_float("add", "float32", [big, ONE, ONE, ONE], 0, tile=2) == big + 1


def test_reduce_R1_rounds_once_at_the_end() -> None:
    """600 ones in bfloat16: exact in float32 on the way; rounded at each step they would stick."""
    one = formats.from_float("bfloat16", 1)
    total = sums.reduce_float("add", "bfloat16", [one] * 600, 0)
    assert formats.decode("bfloat16", total).value == 600
    stuck = 0
    for _ in range(600):
        wide = twin.add(formats.convert("bfloat16", "float32", stuck), ONE)
        stuck = formats.convert("float32", "bfloat16", wide)
    assert formats.decode("bfloat16", stuck).value == 256


def test_reduce_R3_rounds_each_tile() -> None:
    one, zero = formats.from_float("bfloat16", 1), 0
    x = [one] * 257 + [zero] * 255 + [one] * 258
    on, off = (sums.reduce_float("add", "bfloat16", x, 0, round_tiles=r) for r in (False, True))
    assert formats.decode("bfloat16", on).value == 516
    assert formats.decode("bfloat16", off).value == 512


def test_reduce_R2_of_nothing_and_of_minus_zero() -> None:
    assert sums.reduce_float("add", "float16", [], 0x8000) == 0x8000
    assert sums.reduce_float("add", "float32", [0x80000000], 0) == 0
    assert sums.reduce_float("add", "float32", [0x80000000], 0x80000000) == 0x80000000


def test_reduce_E6_gives_the_canonical_nan() -> None:
    assert sums.reduce_float("add", "float32", [0xFFC12345], 0) == 0x7FC00000
    assert sums.reduce_float("maximum", "bfloat16", [0xFF81, 0x3F80], 0x3F80) == 0x7FC0


def test_reduce_integer_E8() -> None:
    assert sums.reduce_integer(twin.INTEGER["add"], [1, 2, 3], 10) == 16
    assert sums.reduce_integer(twin.INTEGER["minimum"], [5, -3], 2) == -3
    assert sums.reduce_integer(twin.INTEGER["bitwise_xor"], [], 9) == 9


@pytest.mark.parametrize("depth", [0, 1, 2, 127, 128, 129, 256, 300])
def test_dot_M2_equals_exact_steps(depth: int) -> None:
    """Each step is the exact a * b + acc rounded once; each tile is added to PSUM."""
    a, b = random_words(1, depth).tolist(), random_words(2, depth).tolist()

    def rounded(x: Fraction) -> Fraction:
        bits = formats.round_number("float32", formats.Number("finite", x < 0, abs(x)))
        return formats.decode("float32", bits).value

    values = [[formats.decode("float32", w).value for w in words] for words in (a, b)]
    psum = Fraction(0)
    for start in range(0, depth, 128):
        acc = Fraction(0)
        for x, y in zip(*(v[start : start + 128] for v in values), strict=True):
            acc = rounded(x * y + acc)
        psum = rounded(psum + acc)
    found = sums.dot("float32", "float32", "float32", a, b)
    assert formats.decode("float32", found).value == psum


def test_dot_M2_tiles_by_hand() -> None:
    """2^24 in the first tile absorbs the ones of its own tile, not the sum of the next one's."""
    big = formats.from_float("float32", 2**24)
    x = [big] + [ONE] * 255
    found = sums.dot("float32", "float32", "float32", x, [ONE] * 256)
    assert formats.decode("float32", found).value == 2**24 + 128
    sequential = sums.dot("float32", "float32", "float32", x, [ONE] * 256, tile=256)
    assert sequential == big


def test_dot_M4_rounds_the_sum_once_to_the_result() -> None:
    half_unit = formats.from_float("float32", 1 + 2**-8)
    found = [sums.dot("float32", "float32", t, [half_unit], [ONE]) for t in ("bfloat16", "float16")]
    assert found == [0x3F80, 0x3C04]


def test_dot_M2_without_elements_is_plus_zero() -> None:
    assert sums.dot("bfloat16", "float16", "float32", [], []) == 0


def test_dot_takes_mixed_formats() -> None:
    a, b = formats.from_float("bfloat16", 1.5), formats.from_float("float8_e4m3", -3)
    found = sums.dot("bfloat16", "float8_e4m3", "float32", [a], [b])
    assert formats.decode("float32", found).value == Fraction(-9, 2)


def test_convolution_M5_terms_by_hand() -> None:
    """Two features of one image of three positions, a padded and reversed window of two."""
    image = {(0, (p,), f): 10 * p + f + 1 for p in range(3) for f in range(2)}
    kernel = {((t,), f, 0): 100 * (t + 1) + f for t in range(2) for f in range(2)}
    sizes = {"batch": 1, "outputs": 1, "features": 2}

    def terms(place: int, **changes: int | bool) -> tuple[list[int], list[int]]:
        axis = sums.WindowAxis(2, padding_low=1, **changes)
        return sums.convolution_terms(image, kernel, [axis], (0, (place,), 0), **sizes)

    assert terms(0) == ([0, 0, 1, 2], [100, 101, 200, 201])
    assert terms(1) == ([1, 2, 11, 12], [100, 101, 200, 201])
    assert terms(3) == ([21, 22, 0, 0], [100, 101, 200, 201])
    assert terms(1, reversal=True) == ([1, 2, 11, 12], [200, 201, 100, 101])
    assert terms(1, stride=2) == ([11, 12, 21, 22], [100, 101, 200, 201])
    assert terms(0, window_dilation=2) == ([0, 0, 11, 12], [100, 101, 200, 201])
    assert terms(2, base_dilation=2) == ([0, 0, 11, 12], [100, 101, 200, 201])
    assert terms(3, base_dilation=2) == ([11, 12, 0, 0], [100, 101, 200, 201])


def test_convolution_M5_groups_by_hand() -> None:
    image = {(n, (), f): 10 * n + f for n in range(4) for f in range(4)}
    kernel = {((), f, o): 100 * f + o for f in range(4) for o in range(4)}

    def lhs(n: int, out: int, features: int, **groups: int) -> list[int]:
        sizes = {"batch": 4, "outputs": 4, "features": features}
        return sums.convolution_terms(image, kernel, [], (n, (), out), **sizes, **groups)[0]

    assert [lhs(1, o, 2, feature_groups=2) for o in range(4)] == [[10, 11]] * 2 + [[12, 13]] * 2
    assert [lhs(1, o, 1, feature_groups=4) for o in range(4)] == [[10], [11], [12], [13]]
    assert [lhs(1, o, 4, batch_groups=2)[0] for o in range(4)] == [10, 10, 30, 30]
    assert [lhs(0, o, 4, batch_groups=4)[0] for o in range(4)] == [0, 10, 20, 30]


def test_convolution_M5_is_the_dot_of_its_terms() -> None:
    """Zeros of the padding count: under an infinite weight they give NaN."""
    one, inf = ONE, 0x7F800000
    image = {(0, (p,), 0): one for p in range(2)}
    kernel = {((0,), 0, 0): inf, ((1,), 0, 0): one}
    found = [
        sums.convolution(
            *("float32", "float32", "bfloat16", image, kernel, [sums.WindowAxis(2, padding_low=1)]),
            (0, (place,), 0),
            batch=1,
            outputs=1,
            features=1,
        )
        for place in range(2)
    ]
    assert found == [0x7FC0, 0x7F80]


@each_of("seed", range(60))
def test_dot_M2_is_a_chain_of_the_twins_fma_and_add(seed: int) -> None:
    """The units of 2^-298 against `fma` and `add` of E2 on float32 words, special values too."""
    rng = np.random.default_rng(seed)
    special = [0, SIGN, 1, SIGN | 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001]
    for _ in range(20):
        n = int(rng.integers(0, 9))
        words = rng.integers(0, 1 << 32, (2, n))
        if seed % 3 == 1:
            words = rng.choice(special, (2, n))
        elif seed % 3 == 2:  # sums near 2^-126
            words = words & 0x807FFFFF | rng.integers(50, 80, (2, n)) << 23
        a, b = words.tolist()
        psum = 0
        for start in range(0, n, 3):
            acc = 0
            for x, y in zip(a[start : start + 3], b[start : start + 3], strict=True):
                acc = twin.fma(x, y, acc)
            psum = twin.add(psum, acc)
        for result in ("float32", "bfloat16", "float8_e4m3"):
            expected = formats.convert("float32", result, psum)
            assert sums.dot("float32", "float32", result, a, b, tile=3) == expected


def words_of(format_name: str, values: list[float]) -> list[int]:
    return [formats.from_float(format_name, v) for v in values]


def dot_of(lhs: list[float], rhs: list[float], *, t: str = "float32", **more: Any) -> float:
    """The product of numbers that the type holds, as a number."""
    found = sums.dot(t, t, "float32", words_of(t, lhs), words_of(t, rhs), **more)
    x = formats.decode("float32", found)
    return float(x.value) if x.kind == "finite" else math.nan if x.kind == "nan" else math.inf


def test_dot_M6_exact_keeps_what_every_order_loses() -> None:
    big = [2.0**100, 1.0, -(2.0**100), 2.0**-100]
    assert dot_of(big, [1.0] * 4, accumulate="exact") == 1.0
    assert dot_of(big, [1.0] * 4) == 2.0**-100
    assert dot_of([2.0**-149], [2.0**-1], accumulate="exact") == 0.0  # a tie, to even
    assert sums.dot(*["float32"] * 3, [SIGN | 1], [1], accumulate="exact") == SIGN  # rounds from below
    minus, one = words_of("float32", [-1.0, 1.0])
    assert sums.dot(*["float32"] * 3, [one, minus], [one, one], accumulate="exact") == 0
    assert sums.dot(*["float32"] * 3, [SIGN], [one], accumulate="exact") == 0


def test_dot_M6_exact_rounds_once_directly_to_the_result() -> None:
    # 1 + 2^-8 + 2^-30 is above the midpoint of two bfloat16; in float32 first it would be the tie.
    x = words_of("float32", [1.0, 2.0**-8, 2.0**-30])
    ones = [ONE] * 3
    assert sums.dot("float32", "float32", "bfloat16", x, ones, accumulate="exact") == 0x3F81
    assert sums.dot("float32", "float32", "bfloat16", x, ones) == 0x3F80


def test_dot_M6_exact_of_inf_and_nan() -> None:
    inf, nan = math.inf, math.nan
    assert dot_of([inf, 1.0], [1.0, 1.0], accumulate="exact") == inf
    assert dot_of([2.0**127, 2.0**127], [2.0, -2.0], accumulate="exact") == 0.0  # no overflow inside
    for lhs, rhs in (
        ([inf, -inf], [1.0, 1.0]),
        ([inf], [0.0]),
        ([nan], [0.0]),
        ([inf, nan], [1.0] * 2),
    ):
        assert math.isnan(dot_of(lhs, rhs, accumulate="exact"))


def test_dot_M6_product_bf16_rounds_the_product_and_not_the_sum() -> None:
    x = 1 + 2.0**-7
    assert dot_of([x], [x], t="bfloat16", accumulate="product_bf16") == 1 + 2.0**-6
    assert dot_of([x, 2.0**-20], [1.0, 1.0], t="bfloat16", accumulate="product_bf16") == x + 2.0**-20
    assert dot_of([2.0**127], [2.0], t="bfloat16", accumulate="product_bf16") == math.inf
    # 207 * 1583 = 5 * 2^16 + 1: above a tie of bfloat16, on it in float32's subnormals.
    x, y = words_of("bfloat16", [207 * 2.0**-126]), words_of("float16", [1583 * 2.0**-24])
    assert sums.dot("bfloat16", "float16", "bfloat16", x, y, accumulate="product_bf16") == 3
    with pytest.raises(ValueError, match="M6"):
        dot_of([1.0], [1.0], accumulate="product_bf16")


def test_dot_M6_accumulate_format_rounds_every_step_and_psum() -> None:
    ones = [1.0] * 300
    assert dot_of(ones, ones, accumulate_format="bfloat16") == 300.0  # 128 + 128 + 44
    assert dot_of(ones, ones, accumulate="sequential", accumulate_format="bfloat16") == 256.0
    assert dot_of([300.0, 1.0], [1.0, 1.0], accumulate_format="bfloat16") == 300.0
    assert dot_of([65504.0, 16.0], [1.0, 1.0], accumulate_format="float16") == math.inf
    # Two roundings: float32 first, which makes 1 + 2^-8 + 2^-30 a tie.
    assert dot_of([1 + 2.0**-8, 2.0**-30], [1.0, 1.0], accumulate_format="bfloat16") == 1.0


def test_dot_M6_pairs_takes_the_odd_one_of_a_pair_first() -> None:
    x = [1.0, 2.0**30, -(2.0**30), 0.0]
    ones = [1.0] * 4
    assert dot_of(x, ones, accumulate="pairs") == 0.0  # (2^30 + 1), then 0, then -2^30
    assert dot_of([2.0**30, 1.0, 1.0, -(2.0**30)], ones, accumulate="pairs") == 1.0
    assert dot_of([2.0**30, 1.0, 1.0, -(2.0**30)], ones) == 0.0
    assert dot_of([1.0, 2.0, 3.0], [1.0] * 3, accumulate="pairs") == 6.0
    long = [2.0**24, *[1.0] * 299]  # one chain: no tile's sum survives
    assert dot_of(long, [1.0] * 300, accumulate="pairs") == 2.0**24
    assert sums.dot(*["bfloat16"] * 3, [], [], accumulate="pairs") == 0


def test_dot_C4_flushes_operands_and_each_result() -> None:
    tiny, one = 2.0**-127, 2.0**127
    assert dot_of([tiny], [one], subnormals="flush") == 0.0
    assert dot_of([tiny], [one]) == 1.0
    assert dot_of([2.0**-100, 1.0], [2.0**-30, 2.0**-126], subnormals="flush") == 2.0**-126
    assert dot_of([2.0**-100] * 2, [2.0**-27] * 2, subnormals="flush") == 0.0  # the sum is 2^-126
    assert dot_of([2.0**-100] * 2, [2.0**-27] * 2) == 2.0**-126
    # 2^-126 - 2^-150 is a tie and rounds to 2^-126, which is kept.
    edge = [2.0**-126, -(2.0**-75)], [1.0, 2.0**-75]
    assert dot_of(*edge, subnormals="flush") == 2.0**-126
    assert dot_of([2.0**-20], [1.0], t="float16", subnormals="flush") == 2.0**-20
    # A PSUM addition may leave -0 here, and -0 again where the next tile's sum is -0.
    tiles = words_of("float32", [2.0**-126, -1.5 * 2.0**-126])
    minus = [*tiles, SIGN, SIGN]
    found = [
        sums.dot(*["float32"] * 3, minus[:n], [ONE] * n, subnormals="flush", tile=1) for n in (2, 3)
    ]
    assert found == [SIGN, 0]  # fma(-0, 1, +0) is +0
    found = sums.dot(
        *["float32"] * 3, [*tiles, SIGN | 0x800000], [ONE, ONE, 1 << 29], subnormals="flush", tile=1
    )
    assert found == SIGN


def test_integer_dot_M7_by_hand() -> None:
    assert sums.dot_integer([200, 3], [2, 1], bits=8, signed=True) == -109  # -56 * 2 + 3
    assert sums.dot_integer([-1], [1], bits=16, signed=False) == 65535
    assert (sums.dot_bool([2, 0], [1, 1]), sums.dot_bool([2, 0], [0, 1]), sums.dot_bool([], [])) == (
        1,
        0,
        0,
    )


def test_integer_dot_M7_via_float32_rounds_and_saturates() -> None:
    exact = [2**24 + 1, 1]
    assert sums.dot_integer_via_float32(exact, [1, 1], bits=32, signed=True) == 2**24
    assert sums.dot_integer_via_float32([1 << 30] * 2, [2] * 2, bits=32, signed=True) == 2**31 - 1
    assert sums.dot_integer_via_float32([-3], [1], bits=8, signed=False) == 0
    assert sums.dot_integer_via_float32([100, 100], [1, 1], bits=8, signed=True) == 127


def test_transpose_M8_rounds_and_loses_minus_zero() -> None:
    words = [words_of("float32", v) for v in ([1 + 2.0**-10, -0.0, 3.0], [4.0, 5.0, -6.0])]
    same = sums.transpose("float32", "float32", words)
    assert same == [[words[0][0], words[1][0]], [0, words[1][1]], [words[0][2], words[1][2]]]
    narrow = sums.transpose("float32", "bfloat16", words)
    assert narrow[0] == words_of("float32", [1.0, 4.0])
    assert sums.transpose("float32", "float32", []) == []


def test_transpose_M8_spreads_nan_within_the_block() -> None:
    inf, nan = formats.from_float("float32", math.inf), twin.NAN
    words = [[ONE, ONE] for _ in range(5)]
    words[1][0], words[3][1] = inf, 0xFFC12345
    found = sums.transpose("float32", "float32", words, block=2)
    assert found == [[nan, inf, ONE, ONE, ONE], [ONE, ONE, nan, nan, ONE]]
    kept = sums.transpose("float32", "bfloat16", words, block=2, saturate_infinity=True)
    largest = formats.convert("bfloat16", "float32", 0x7F7F)
    assert kept == [[ONE, largest, ONE, ONE, ONE], [ONE, ONE, nan, nan, ONE]]
    # Rounding to the relayout type may make the infinity.
    big = [[formats.from_float("float32", -1e6)]]
    assert sums.transpose("float32", "float16", big) == [[SIGN | inf]]
    expected = words_of("float32", [-65504.0])
    assert sums.transpose("float32", "float16", big, saturate_infinity=True) == [expected]
