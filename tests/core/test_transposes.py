"""Rules M8 and A3: transposes on the tensor engine against the twin."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes, ops
from neuronsim.ops import products
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from tests.support.draws import random_words
from tests.support.evaluation import evaluate
from tests.support.parameters import each_of
from tests.support.words import FLOATS, Words, as_bits

ON_ENGINE = Profile(transpose="tensor_engine")


def relaid(
    x: Words, type_name: str, relayout: str, axes: tuple[int, ...], saturate: bool, profile: Profile
) -> Words:
    found = products.transpose_on_tensor_engine(
        as_bits(type_name, x),
        axes,
        dtypes.DTYPES[relayout],
        ops.Setting(profile),
        saturate_infinity=saturate,
    )
    return found.view(x.dtype)


def drawn(rng: np.random.Generator, t: str, shape: tuple[int, ...]) -> Words:
    """Any words, with a few of the special ones: a NaN fills 128 places of the result."""
    x = random_words(rng, t, shape)
    finite = random_words(rng, t, shape, "near")
    special = random_words(rng, t, shape, "special")
    choice = rng.random(shape)
    return np.where(choice < 0.01, special, np.where(choice < 0.05, x, finite))


@each_of("saturate", [False, True])
@each_of("relayout", ["float32", "bfloat16", "float16", "float8_e5m2"])
@each_of("type_name", FLOATS)
def test_transpose_M8_equals_the_twin(type_name: str, relayout: str, saturate: bool) -> None:
    rng = np.random.default_rng([77, len(type_name), len(relayout)])
    for rows, columns in ((1, 1), (5, 3), (2, 140), (131, 1)):
        x = drawn(rng, type_name, (rows, columns))
        found = relaid(x, type_name, relayout, (1, 0), saturate, Profile())
        expected = sums.transpose(type_name, relayout, x.tolist(), saturate_infinity=saturate)
        assert found.tolist() == expected, (rows, columns)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
def test_transpose_M8_flushes_as_C4_says(type_name: str, isa: str) -> None:
    x = random_words(np.random.default_rng(78), type_name, (20, 5))
    shift = 8 * x.itemsize - 9
    x[::2] = x[::2] & x.dtype.type((1 << shift) - 1)  # subnormals
    found = relaid(x, type_name, "float32", (1, 0), False, Profile(subnormals="flush"))
    assert found.tolist() == sums.transpose(type_name, "float32", x.tolist(), subnormals="flush")


def test_transpose_M8_contaminates_its_block_only(isa: str) -> None:
    x = np.full((300, 2), 0x3F800000, np.uint32)
    x[130, 0], x[299, 1] = 0x7F800000, 0xFFC12345
    found = relaid(x, "float32", "float32", (1, 0), False, Profile())
    expected = np.full((2, 300), 0x3F800000, np.uint32)
    expected[0, 128:256] = expected[1, 256:300] = 0x7FC00000
    expected[0, 130] = 0x7F800000  # a lone Inf stays
    np.testing.assert_array_equal(found, expected)
    kept = relaid(x, "float32", "float32", (1, 0), True, Profile())
    expected[0, 128:256], expected[0, 130] = 0x3F800000, 0x7F7FFFFF
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize("accumulate", ["sequential", "exact", "product_bf16", "pairs"])
def test_transpose_M8_is_by_M2_whatever_the_dots_do(accumulate: str) -> None:
    x = np.array([[0x3F800001, 0x80000000], [0x00000001, 0x7F800000]], np.uint32)
    profile = Profile(transpose="tensor_engine", accumulate=accumulate)
    found = evaluate("transpose", ("float32", x), dimensions=(1, 0), profile=profile)
    assert found.tolist() == sums.transpose("float32", "float32", x.tolist())


# ---- A3: which transposes ------------------------------------------------------------------------


@cache
def relaid_by_the_twin(
    type_name: str,
) -> tuple[Words, list[list[list[int]]], Words, list[list[list[int]]]]:
    """Words with their last two axes exchanged, and words with the outer ones."""
    rng = np.random.default_rng(79)
    x = drawn(rng, type_name, (2, 131, 3))
    y = drawn(rng, type_name, (3, 2, 4))
    of_x = [sums.transpose(type_name, "float32", x[i].tolist()) for i in range(2)]
    of_y = [sums.transpose(type_name, "float32", y[:, j].tolist()) for j in range(2)]
    return x, of_x, y, of_y


@pytest.mark.parametrize("type_name", FLOATS)
def test_transpose_A3_of_the_minor_most_axis_is_a_product_in_float32(type_name: str, isa: str) -> None:
    x, of_x, y, of_y = relaid_by_the_twin(type_name)
    found = evaluate("transpose", (type_name, x), dimensions=(0, 2, 1), profile=ON_ENGINE)
    assert found.tolist() == of_x
    # The axis that becomes minor-most is contracted, wherever it was.
    found = evaluate("transpose", (type_name, y), dimensions=(2, 1, 0), profile=ON_ENGINE)
    assert found.transpose(1, 0, 2).tolist() == of_y


@pytest.mark.parametrize(
    ("type_name", "axes"),
    [
        ("float32", (1, 0, 2)),  # the minor-most axis stays
        ("float32", (0, 1, 2)),
        ("int32", (2, 1, 0)),
        ("bool", (2, 1, 0)),
        ("float64", (2, 1, 0)),
        ("float8_e4m3fn", (2, 1, 0)),
    ],
)
def test_transpose_A3_others_move_bits(type_name: str, axes: tuple[int, ...]) -> None:
    x = random_words(np.random.default_rng(80), type_name, (3, 4, 5), "special")
    found = evaluate("transpose", (type_name, x), dimensions=axes, profile=ON_ENGINE)
    np.testing.assert_array_equal(found, x.transpose(axes))


def test_transpose_A3_moves_bits_by_default() -> None:
    x = np.array([[0x80000000, 0xFFC12345]], np.uint32)
    assert evaluate("transpose", ("float32", x), dimensions=(1, 0)).tolist() == x.T.tolist()


def test_transpose_A3_of_nothing() -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        x = np.zeros(shape, np.uint32)
        found = evaluate("transpose", ("float32", x), dimensions=(1, 0), profile=ON_ENGINE)
        assert found.shape == shape[::-1]
    scalar = evaluate("transpose", ("float32", np.uint32(1)), dimensions=(), profile=ON_ENGINE)
    assert scalar.tolist() == 1


def test_arrays_A3_follow_the_profile_in_force() -> None:
    x = ns.asarray([[-0.0, 1.0]])
    with ns.use_profile(transpose="tensor_engine"):
        for y in (x.T, ns.transpose(x), ns.permute_dims(x, (1, 0))):
            assert ns.signbit(y).tolist() == [[False], [False]]
    assert ns.signbit(x.T).tolist() == [[True], [False]]
