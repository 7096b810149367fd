"""Rules M1-M4, M6, M7: the matrix product against the twin and a NumPy k-loop proved equal to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from neuronsim import dtypes, ops, processor
from neuronsim.errors import NeuronSimError
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from neuronsim.reference.formats import convert as twin_convert

Words = npt.NDArray[Any]
FLOATS = ["float32", "tfloat32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4"]
NARROW = FLOATS[2:]
DEPTHS = [0, 1, 2, 3, 64, 127, 128, 129, 255, 256, 257, 300]
PLAIN = ops.DotDimensions((1,), (0,))


def twin_dot(a: str, b: str, result: str, x: Words, y: Words, tile: int = 128) -> Words:
    """The product [rows, depth] x [depth, columns] of words, output by output."""
    word = np.dtype(f"u{dtypes.DTYPES[result].itemsize}")
    out = np.empty((x.shape[0], y.shape[1]), word)
    for i, row in enumerate(x.tolist()):
        for j, column in enumerate(y.T.tolist()):
            out[i, j] = sums.dot(a, b, result, row, column, tile=tile)
    return out


def fma_float32(a: Words, b: Words, c: Words) -> Words:
    """The sum a * b + c with one rounding: exact product in float64, then round-to-odd there."""
    product = a.astype(np.float64) * b.astype(np.float64)
    wide = c.astype(np.float64)
    total = product + wide
    part = total - product
    error = (product - (total - part)) + (wide - part)
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & np.isfinite(total) & (bits & 1 == 0), bits + step, bits)
    return odd.view(np.float64).astype(np.float32)


def loop_dot(x: Words, y: Words, tile: int = 128) -> Words:
    """Rule M2 as a loop over k with all outputs at once, from float32 values; float32 words."""
    psum = np.zeros((x.shape[0], y.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, x.shape[1], tile):
            acc = np.zeros_like(psum)
            for k in range(start, min(start + tile, x.shape[1])):
                acc = fma_float32(x[:, k : k + 1], y[k : k + 1], acc)
            psum = psum + acc
    return np.where(np.isnan(psum), np.uint32(0x7FC00000), psum.view(np.uint32))


def widened(type_name: str, words: Words) -> npt.NDArray[np.float32]:
    """The float32 values of words, by the twin's decoder for 8 and 16 bits."""
    if words.dtype == np.uint32:
        return words.view(np.float32)
    table = np.array(
        [twin_convert(type_name, "float32", w) for w in range(1 << (8 * words.itemsize))], np.uint32
    )
    return table[words].view(np.float32)


@pytest.mark.parametrize("seed", range(200))
def test_dot_M2_equals_the_twin(seed: int, evaluate: Any, random_words: Any) -> None:
    rng = np.random.default_rng(seed)
    a, b = (str(t) for t in rng.choice(NARROW if seed % 3 else FLOATS, 2))
    if seed % 3 == 0:  # M1: float32 and tfloat32 go only with each other
        a, b = (str(t) for t in rng.choice(FLOATS[:2], 2))
    depth = 1000 if seed % 40 == 7 else int(rng.choice(DEPTHS))
    rows, columns = (int(n) for n in rng.integers(1, 4, 2))
    mode = str(rng.choice(["any", "near", "near", "special"]))
    x = random_words(rng, a, (rows, depth), mode)
    y = random_words(rng, b, (depth, columns), mode)
    result = str(rng.choice(["float32", "bfloat16", "float16", "float8_e5m2"]))
    found = evaluate("dot", (a, x), (b, y), dot_dimensions=PLAIN, dtype=dtypes.DTYPES[result])
    np.testing.assert_array_equal(found, twin_dot(a, b, result, x, y))


@pytest.mark.parametrize(
    "special", [0x7F800000, 0xFF800000, 0x7FC12345, 0xFFC00001, 0x00000001, 0x80000003]
)
def test_dot_M2_single_specials(special: int, evaluate: Any, isa: str) -> None:
    # One Inf, NaN or subnormal among ones, at each place around the tile's end.
    for place in (0, 127, 128, 129):
        x = np.full((2, 130), 0x3F800000, np.uint32)
        x[1, place] = special
        y = np.full((130, 2), 0x3F800000, np.uint32)
        y[:, 1] = 0x00000001
        found = evaluate("dot", ("float32", x), ("float32", y), dot_dimensions=PLAIN)
        np.testing.assert_array_equal(found, twin_dot("float32", "float32", "float32", x, y))


def test_dot_M2_no_contraction_gives_plus_zero(evaluate: Any) -> None:
    empty = np.zeros((3, 0), np.uint16)
    found = evaluate("dot", ("bfloat16", empty), ("bfloat16", empty.T.copy()), dot_dimensions=PLAIN)
    np.testing.assert_array_equal(found, np.zeros((3, 3), np.uint16))


def test_the_loop_is_the_twin(random_words: Any) -> None:
    # The oracle for the large problems below is itself checked on the twin.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        mode = ["any", "near", "special"][seed % 3]
        x = random_words(rng, "float32", (3, 200), mode)
        y = random_words(rng, "float32", (200, 3), mode)
        expected = twin_dot("float32", "float32", "float32", x, y)
        np.testing.assert_array_equal(loop_dot(x.view(np.float32), y.view(np.float32)), expected)


LARGE = [
    ("float32", 257, 1000, 311),
    ("float32", 64, 4096, 48),
    ("bfloat16", 1, 2048, 1000),
    ("float16", 300, 129, 1),
    ("tfloat32", 129, 257, 130),
    ("bfloat16", 513, 128, 513),
    ("float8_e5m2", 200, 1000, 65),
    ("float8_e4m3", 37, 3000, 97),
    ("float32", 13, 640, 1025),
    ("float16", 1000, 127, 33),
    ("bfloat16", 96, 1537, 96),
]


@pytest.mark.parametrize(("type_name", "rows", "depth", "columns"), LARGE)
def test_dot_M2_larger_than_every_block(
    type_name: str, rows: int, depth: int, columns: int, evaluate: Any, random_words: Any,
    restored_processor: None,
) -> None:  # fmt: skip
    rng = np.random.default_rng(rows * depth + columns)
    x = random_words(rng, type_name, (rows, depth), "near")
    y = random_words(rng, type_name, (depth, columns), "near")
    expected = loop_dot(widened(type_name, x), widened(type_name, y))
    for isa in processor.available_isas():
        processor.set_isa(isa)
        for threads in (1, 2):
            processor.set_num_threads(threads)
            found = evaluate(
                "dot", (type_name, x), (type_name, y), dot_dimensions=PLAIN, dtype=dtypes.float32
            )
            np.testing.assert_array_equal(found, expected, err_msg=f"{isa}, {threads} threads")


def test_dot_M2_tile_length_shows(evaluate: Any, random_words: Any) -> None:
    # Control: on this data tiles of 64 or one long tile give other bits, so a wrong one is seen.
    rng = np.random.default_rng(0)
    x, y = (random_words(rng, "float32", s, "near") for s in ((8, 500), (500, 8)))
    values = x.view(np.float32), y.view(np.float32)
    found = evaluate("dot", ("float32", x), ("float32", y), dot_dimensions=PLAIN)
    np.testing.assert_array_equal(found, loop_dot(*values))
    assert np.any(found != loop_dot(*values, tile=64))
    assert np.any(found != loop_dot(*values, tile=500))
    assert np.any(found != (values[0] @ values[1]).view(np.uint32))


def test_dot_M6_sequential_is_one_tile(evaluate: Any, random_words: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = (random_words(rng, "float32", s, "near") for s in ((5, 400), (400, 5)))
    found = evaluate(
        "dot", ("float32", x), ("float32", y), dot_dimensions=PLAIN,
        profile=Profile(accumulate="sequential"),
    )  # fmt: skip
    np.testing.assert_array_equal(found, loop_dot(x.view(np.float32), y.view(np.float32), tile=400))


@pytest.mark.parametrize("seed", range(30))
def test_dot_general_M2_contracts_in_the_listed_order(
    seed: int, evaluate: Any, random_words: Any
) -> None:
    """Any batch and contracting dimensions, in any order, of strided operands."""
    rng = np.random.default_rng(seed)
    sizes = {axis: int(rng.integers(1, 6)) for axis in "bcmn"} | {"k": 17, "l": 9}
    lhs_axes, rhs_axes = list("bcmkl"), list("bcnkl")
    rng.shuffle(lhs_axes)
    rng.shuffle(rhs_axes)
    listed = list("kl")
    rng.shuffle(listed)
    batch = list("bc")
    rng.shuffle(batch)
    x = random_words(rng, "float32", [sizes[a] for a in lhs_axes], "near")
    y = random_words(rng, "float32", [sizes[a] for a in rhs_axes], "near")
    if seed % 2:  # a transposed view and a negative stride, not copies
        x, y = np.asfortranarray(x), y[::-1]
    dims = ops.DotDimensions(
        tuple(lhs_axes.index(a) for a in listed),
        tuple(rhs_axes.index(a) for a in listed),
        tuple(lhs_axes.index(a) for a in batch),
        tuple(rhs_axes.index(a) for a in batch),
    )
    found = evaluate("dot", ("float32", x), ("float32", y), dot_dimensions=dims)
    left = x.transpose([lhs_axes.index(a) for a in [*batch, "m", *listed]])
    right = y.transpose([rhs_axes.index(a) for a in [*batch, *listed, "n"]])
    depth = 17 * 9
    for i in np.ndindex(found.shape[:2]):
        a = np.ascontiguousarray(left[i]).reshape(sizes["m"], depth)
        b = np.ascontiguousarray(right[i]).reshape(depth, sizes["n"])
        np.testing.assert_array_equal(found[i], loop_dot(a.view(np.float32), b.view(np.float32)))


@pytest.mark.parametrize("type_name", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_dot_M7_integers_wrap(type_name: str, evaluate: Any, random_words: Any) -> None:
    rng = np.random.default_rng(3)
    x, y = (random_words(rng, type_name, s) for s in ((5, 37), (37, 700)))
    found = evaluate("dot", (type_name, x), (type_name, y), dot_dimensions=PLAIN)
    bits = 8 * x.itemsize
    exact = x.astype(object) @ y.astype(object)
    np.testing.assert_array_equal(found.astype(object), exact % (1 << bits))


def test_dot_M7_operands_take_the_results_type(evaluate: Any) -> None:
    x = np.array([[200, 3]], np.uint8)  # int8: -56, 3
    found = evaluate("dot", ("int8", x), ("int8", x.T.copy()), dot_dimensions=PLAIN, dtype=dtypes.int32)
    assert found.view(np.int32).tolist() == [[56 * 56 + 9]]


def test_dot_M7_bool_is_or_of_ands(evaluate: Any, random_words: Any) -> None:
    rng = np.random.default_rng(4)
    x, y = (random_words(rng, "bool", s) for s in ((9, 5), (5, 9)))
    found = evaluate("dot", ("bool", x), ("bool", y), dot_dimensions=PLAIN)
    np.testing.assert_array_equal(found, ((x.astype(int) @ y.astype(int)) > 0).astype(np.uint8))


@pytest.mark.parametrize(
    ("a", "b", "dims"),
    [
        ("float32", "int32", PLAIN),
        ("float64", "float64", PLAIN),
        ("float8_e4m3fn", "bfloat16", PLAIN),
        ("float32", "float32", ops.DotDimensions((0,), (0,))),
        ("float32", "float32", ops.DotDimensions((2,), (0,))),
        ("float32", "float32", ops.DotDimensions((1, 1), (0, 0))),
    ],
)
def test_dot_bad_input_is_refused_before_any_work(a: str, b: str, dims: ops.DotDimensions) -> None:
    operands = [
        ops.Bits(np.zeros(shape, dtypes.DTYPES[t].storage), dtypes.DTYPES[t])
        for t, shape in ((a, (2, 3)), (b, (3, 4)))
    ]
    with pytest.raises(NeuronSimError):
        ops.evaluate(ops.by_name("dot"), operands, {"dot_dimensions": dims}, ops.Setting(Profile()))
