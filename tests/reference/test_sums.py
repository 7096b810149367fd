"""The twin's sums (rules R2, R3, M2) against loops of NumPy's IEEE float32 and against exact sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, sums

ONE = 0x3F800000


def random_words(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng([52, seed])
    drawn = rng.integers(0, 1 << 32, n, np.uint32) & np.uint32(0x807FFFFF)
    return drawn | rng.integers(120, 134, n, np.uint32) << np.uint32(23)


@pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1024, 1300])
@pytest.mark.parametrize("reducer", ["add", "multiply", "maximum", "minimum"])
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
