"""Rule M7 of 32 bits or fewer: products of bytes in tiles, in quads and widened, of int16 and of int32,
on every instruction set, against Python's integers.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import Profile
from tests.core.test_convolution import (
    Convolution,
    by_dot,
    random_convolution,
    run,
    square_depthwise,
)
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_dot
from tests.support.processors import every_processor
from tests.support.words import Words, as_bits

PAIRS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]
OTHERS = [("int16", "int8"), ("bool", "uint8"), ("int16", "int16"), ("uint16", "int8")]
OTHERS += [("int32", "int32"), ("uint32", "int8"), ("int64", "uint16"), ("int8", "bool")]


FORMS = ("auto", "quads", "widened")


@pytest.fixture(params=FORMS)
def byte_products(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs with AMX's tiles and with VPDPBUSD, where this processor has them, and without."""
    _core.select_byte_products(request.param)
    yield request.param
    _core.select_byte_products("auto")


def every_form() -> Iterator[str]:
    """Each instruction set, number of threads and form of products of bytes."""
    try:
        for form in FORMS:
            _core.select_byte_products(form)
            yield from (f"{form}, {where}" for where in every_processor())
    finally:
        _core.select_byte_products("auto")


def numbers(type_name: str, words: Words) -> Any:
    """The words as int64, in which sums of these depths are exact modulo 2^32."""
    if type_name == "bool":
        return (words != 0).astype(np.int64)
    return words.view(dtypes.DTYPES[type_name].numpy).astype(np.int64)


def extreme_words(rng: np.random.Generator, type_name: str, shape: tuple[int, ...]) -> Words:
    """Some of them all the least or the greatest number, whose sums overflow 16 bits."""
    words = random_words(rng, type_name, shape)
    if type_name == "bool" or rng.random() < 0.5:
        return words
    info = np.iinfo(dtypes.DTYPES[type_name].numpy)
    chosen = rng.choice([info.min, info.max], shape if rng.random() < 0.5 else ())
    return np.ascontiguousarray(np.broadcast_to(chosen, shape).astype(info.dtype)).view(words.dtype)


def laid_out(rng: np.random.Generator, x: Words) -> Words:
    """The same matrix, perhaps transposed in memory, or with a distance between rows."""
    kind = rng.integers(3)
    if kind == 0:
        return x
    if kind == 1:
        return np.ascontiguousarray(x.T).T
    wide = np.zeros((x.shape[0], x.shape[1] + 5), x.dtype)
    wide[:, 3 : 3 + x.shape[1]] = x
    return wide[:, 3 : 3 + x.shape[1]]


def choose(at: int) -> None:
    """The way in which the processor computes a random problem."""
    isas = processor.available_isas()
    _core.select_byte_products(FORMS[at % len(FORMS)])
    processor.set_isa(isas[at % len(isas)])
    processor.set_num_threads(1 + at % 2)


def flags_of_processor() -> set[str]:
    """What Linux says that this processor has."""
    known = Path("/proc/cpuinfo")
    if not known.exists():
        pytest.skip("no /proc/cpuinfo: nothing else says what this processor has")
    lines = [line for line in known.read_text().splitlines() if line.startswith("flags")]
    return set(lines[0].split(":")[1].split()) if lines else set()


def tiles_are_permitted() -> bool:
    """Whether Linux lets this process use the tiles' registers, once it has asked for them."""
    _core.byte_products()
    get_permission, tile_data = 0x1022, 18  # asm/prctl.h, "x86/xstate"
    allowed = ctypes.c_uint64(0)
    arch_prctl = 158
    failed = ctypes.CDLL(None).syscall(arch_prctl, get_permission, ctypes.byref(allowed))
    return not failed and bool(allowed.value >> tile_data & 1)


def test_form_of_byte_products_is_the_first_that_the_processor_has(isa: str) -> None:
    flags = flags_of_processor()
    wide = isa.startswith("x86-64-v4")
    has_tiles = wide and {"amx_tile", "amx_int8", "avx512_vnni"} <= flags and tiles_are_permitted()
    has_quads = "avx512_vnni" in flags if wide else isa == "x86-64-v3" and "avx_vnni" in flags
    first = "tiles" if has_tiles else "quads" if has_quads else "widened"
    found = []
    try:
        for form in ("auto", "tiles", "quads", "widened"):
            _core.select_byte_products(form)
            found.append(_core.byte_products())
    finally:
        _core.select_byte_products("auto")
    assert found == [first, first, "quads" if has_quads else "widened", "widened"]
    with pytest.raises(ValueError, match="unknown form"):
        _core.select_byte_products("nibbles")


@pytest.mark.parametrize("seed", range(0, 1000, 50))
def test_integer_dot_M7_equals_the_oracle_on_random_configurations(
    seed: int, restored_processor: None
) -> None:
    """Every pair of signs, odd sizes, depths up to 20,000; every instruction set and thread count."""
    for at in range(seed, seed + 50):
        rng = np.random.default_rng([24, at])
        a, b = (PAIRS * 3 + OTHERS)[at % 20]
        depth = int(
            rng.choice([0, 1, 3, 4, 7, 64, 127, 300, 1025, 20_000], p=[0.03] + 8 * [0.11] + [0.09])
        )
        rows, columns = (int(rng.choice([1, 2, 5, 14, 15, 33, 70])) for _ in range(2))
        x, y = extreme_words(rng, a, (rows, depth)), extreme_words(rng, b, (depth, columns))
        result = str(rng.choice(["int32", "int32", "uint32", "int16", "uint8"]))
        bits = np.iinfo(result).bits
        with np.errstate(over="ignore"):
            exact = (numbers(a, x) @ numbers(b, y)) % (1 << bits)
        choose(at)
        found = evaluate_dot(a, laid_out(rng, x), b, laid_out(rng, y), result)
        _core.select_byte_products("auto")
        assert np.array_equal(found, exact), (at, a, b, result, x.shape, y.shape)


def test_integer_dot_M7_in_tiles_of_every_size(byte_products: str, restored_processor: None) -> None:
    """Rows, columns and depths about the ends of tiles; depths that are taken in parts."""
    processor.set_num_threads(1)
    depths = itertools.product((1, 16, 17, 32, 33), (1, 4, 60, 63, 64, 65, 132, 1030))
    sizes = [(PAIRS[n % len(PAIRS)], *size) for n, size in enumerate(depths)]
    sizes += [(pair, 17, 11_000) for pair in PAIRS]
    for at, rows in enumerate((3, 8, 15, 16, 17, 31, 32, 33, 49)):
        rng = np.random.default_rng([27, at])
        for (a, b), columns, depth in sizes:
            x, y = extreme_words(rng, a, (rows, depth)), extreme_words(rng, b, (depth, columns))
            found = evaluate_dot(a, laid_out(rng, x), b, laid_out(rng, y), "int32")
            expected = (numbers(a, x) @ numbers(b, y)) % (1 << 32)
            assert np.array_equal(found, expected), (a, b, x.shape, y.shape)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_integer_dot_M7_extremes_do_not_saturate(isa: str, byte_products: str, a: str, b: str) -> None:
    """Sums of two products of the extremes leave 16 bits, where VPMADDUBSW would saturate."""
    ends = ((np.iinfo(t).min, np.iinfo(t).max) for t in (a, b))
    for low, high in itertools.product(*ends):
        x, y = np.full((3, 70_001), low, a), np.full((70_001, 20), high, b)
        found = evaluate_dot(a, x.view("u1"), b, y.view("u1"), "int32")
        assert (found == 70_001 * int(low) * int(high) % (1 << 32)).all()


def test_integer_dot_M7_batches_and_packed_columns(restored_processor: None) -> None:
    """Columns that were packed once give the same sums as those that are packed anew."""
    rng = np.random.default_rng(8)
    for a, b in (*PAIRS, ("int16", "int8"), ("int32", "int16")):
        for depth in (5, 300, 19_000):  # the last one in two parts, which have the sums of the whole
            rows = 17 if depth < 1_000 else 7
            x, y = random_words(rng, a, (2, rows, depth)), random_words(rng, b, (2, depth, 70))
            d = ops.DotDimensions((2,), (1,), (0,), (0,))
            lhs, rhs = as_bits(a, x), as_bits(b, y)
            op, setting = ops.by_name("dot"), ops.Setting(Profile())
            result = ops.ArrayType(dtypes.int32, (2, rows, 70))
            attributes = {"dot_dimensions": d, "dtype": dtypes.int32}
            with np.errstate(over="ignore"):
                exact = numbers(a, x) @ numbers(b, y) % (1 << 32)
            for where in every_form():
                product = ops.Evaluation(op, (lhs, rhs), attributes, result, setting)
                packed = ops.pack_columns(product)
                assert packed is not None
                found = ops.evaluate_fused(product, ops.Fusion(packed=packed)).data
                assert np.array_equal(found.view(np.uint32), exact), (where, a, b, depth)


def by_patches(c: Convolution, a: str, x: Words, b: str, y: Words) -> Any:
    """The oracle: each group's matrix of patches times its part of the kernel, in int64."""
    return by_dot(
        *(c, a, x, b, y), lambda a, v, b, w: numbers(a, v) @ numbers(b, np.ascontiguousarray(w))
    )


@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_integer_convolution_M7_equals_the_oracle_on_random_configurations(
    seed: int, restored_processor: None
) -> None:
    """Groups, strides, dilations, padding and reversal; features of whole words among them."""
    for at in range(seed, seed + 100):
        rng = np.random.default_rng([25, at])
        a, b = (PAIRS * 3 + OTHERS)[at % 20]
        c = random_convolution(rng)
        if c.features and at % 2:
            c = c.__class__(**{**vars(c), "features": 4 * c.features})
        x, y = extreme_words(rng, a, c.image_shape), extreme_words(rng, b, c.kernel_shape)
        choose(at)
        found = run(c, a, x, b, y, dtype=dtypes.int32)
        _core.select_byte_products("auto")
        assert np.array_equal(found, by_patches(c, a, x, b, y) % (1 << 32)), (at, a, b, c)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_integer_convolution_M7_depthwise_on_lines(a: str, b: str, restored_processor: None) -> None:
    for at in range(24):
        rng = np.random.default_rng([26, at])
        c = square_depthwise(rng, at)
        x, y = extreme_words(rng, a, c.image_shape), extreme_words(rng, b, c.kernel_shape)
        expected = by_patches(c, a, x, b, y) % (1 << 32)
        for where in every_form():
            found = run(c, a, x, b, y, dtype=dtypes.int32)
            assert np.array_equal(found, expected), (where, at, c)
