"""Rule M7: products of integers and bool, exact and through float32; C7's 32-bit ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes, ops
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from tests.support.draws import random_words
from tests.support.evaluation import evaluate
from tests.support.words import Words

PLAIN = ops.DotDimensions((1,), (0,))
VIA_FLOAT32 = Profile(int_dot="via_float32")


@pytest.mark.parametrize("type_name", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_dot_M7_integers_wrap(type_name: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (random_words(rng, type_name, s) for s in ((5, 37), (37, 700)))
    found = evaluate("dot", (type_name, x), (type_name, y), dot_dimensions=PLAIN)
    bits = 8 * x.itemsize
    exact = x.astype(object) @ y.astype(object)
    np.testing.assert_array_equal(found.astype(object), exact % (1 << bits))


def test_dot_M7_bool_is_or_of_ands() -> None:
    rng = np.random.default_rng(4)
    x, y = (random_words(rng, "bool", s) for s in ((9, 5), (5, 9)))
    found = evaluate("dot", ("bool", x), ("bool", y), dot_dimensions=PLAIN)
    np.testing.assert_array_equal(found, ((x.astype(int) @ y.astype(int)) > 0).astype(np.uint8))


INTEGER_DOTS = [("int8", "int8", "int32"), ("uint8", "int8", "int32"), ("int8", "uint8", "int16")]
INTEGER_DOTS += [("uint16", "int64", "int64"), ("int32", "int32", "int8"), ("bool", "int8", "int16")]
INTEGER_DOTS += [
    ("bool", "bool", "int32"),
    ("uint64", "uint64", "uint64"),
    ("int64", "int64", "uint32"),
]


@pytest.mark.parametrize(("a", "b", "result"), INTEGER_DOTS)
def test_integer_dot_M7_converts_to_the_result_and_wraps(
    isa: str, threads: int, a: str, b: str, result: str
) -> None:
    rng = np.random.default_rng(35)
    x, y = random_words(rng, a, (7, 40)), random_words(rng, b, (40, 530))
    ours = evaluate("dot", (a, x), (b, y), dot_dimensions=PLAIN, dtype=dtypes.DTYPES[result])
    exact = x.view(dtypes.DTYPES[a].numpy).astype(int).astype(object) @ y.view(
        dtypes.DTYPES[b].numpy
    ).astype(object)
    assert np.array_equal(ours.astype(object), exact % (1 << np.iinfo(result).bits))


def test_integer_dot_M7_to_bool_converts_first(isa: str) -> None:
    """M7: operands are converted to the result type, and 2 is true."""
    x, y = np.array([[2, 0]], np.uint32), np.array([[1], [1]], np.uint32)
    ours = evaluate("dot", ("int32", x), ("int32", y), dot_dimensions=PLAIN, dtype=dtypes.boolean)
    assert ours.tolist() == [[1]]


VIA = [("int8", "int8", "int32"), ("uint8", "int8", "int16"), ("int32", "int32", "int32")]
VIA += [("uint32", "int32", "uint32"), ("int64", "uint64", "int64"), ("bool", "int16", "uint8")]
VIA += [("int32", "int32", "int8"), ("uint64", "uint64", "uint64")]


@cache
def via_float32(a: str, b: str, result: str) -> list[tuple[Words, Words, list[list[int]]]]:
    """Operands of several depths, and the twin's product."""
    rng = np.random.default_rng(76)
    t = dtypes.DTYPES[result]
    problems = []
    for depth in (0, 1, 3, 129, 260):
        x, y = random_words(rng, a, (3, depth)), random_words(rng, b, (depth, 3))
        if depth == 3:  # sums within the result's range
            x, y = x & 7, y & 7
        rows, columns = (v.view(dtypes.DTYPES[n].numpy).tolist() for n, v in ((a, x), (b, y.T.copy())))
        expected = [
            [
                sums.dot_integer_via_float32(r, c, bits=t.bits, signed=t.kind == "signed")
                for c in columns
            ]
            for r in rows
        ]
        problems.append((x, y, expected))
    return problems


@pytest.mark.parametrize(("a", "b", "result"), VIA)
def test_integer_dot_M7_via_float32_equals_the_twin(
    isa: str, threads: int, a: str, b: str, result: str
) -> None:
    t = dtypes.DTYPES[result]
    for x, y, expected in via_float32(a, b, result):
        found = evaluate("dot", (a, x), (b, y), dot_dimensions=PLAIN, dtype=t, profile=VIA_FLOAT32)
        assert found.view(t.storage).tolist() == expected, x.shape


def test_integer_dot_M7_via_float32_leaves_bool() -> None:
    x, ones = np.array([[1, 255]], np.uint8), np.ones((2, 1), np.uint8)  # int8: 1 and -1
    found = evaluate(
        "dot", ("int8", x), ("int8", ones), dot_dimensions=PLAIN, dtype=dtypes.boolean,
        profile=VIA_FLOAT32,
    )  # fmt: skip
    assert found.tolist() == [[1]]


def test_integer_dot_M7_via_float32_adds_up_as_the_profile_says() -> None:
    ones = np.ones((300, 1), np.uint32)
    x = ones.T.copy()
    x[0, 0] = 1 << 24
    operands = ("int32", x), ("int32", ones)
    for accumulate, total in (
        ("psum128", (1 << 24) + 172),
        ("sequential", 1 << 24),
        ("exact", (1 << 24) + 300),
    ):
        profile = Profile(int_dot="via_float32", accumulate=accumulate)
        found = evaluate("dot", *operands, dot_dimensions=PLAIN, profile=profile)
        assert found.tolist() == [[total]], accumulate
    profile = Profile(int_dot="via_float32", accumulate="product_bf16")
    with pytest.raises(UnsupportedType, match="product_bf16"):
        evaluate("dot", *operands, dot_dimensions=PLAIN, profile=profile)


def test_integer_dot_M7_has_no_accumulate_type() -> None:
    x = np.ones((1, 1), np.uint32)
    with pytest.raises(UnsupportedType, match=r"int32.*bfloat16.*M7"):
        evaluate("dot", ("int32", x), ("int32", x), dot_dimensions=PLAIN, accumulate=dtypes.bfloat16)


@pytest.mark.parametrize("accumulate", ["exact", "product_bf16", "pairs"])
def test_integer_dot_M7_does_not_see_M6(accumulate: str) -> None:
    x = np.array([[1 << 20, 3]], np.uint32)
    found = evaluate(
        "dot", ("int32", x), ("int32", x.T.copy()), dot_dimensions=PLAIN,
        profile=Profile(accumulate=accumulate),
    )  # fmt: skip
    assert found.tolist() == [[9]]


def test_integer_dot_C7_via_float32_saturates_as_32_bits() -> None:
    """C7: the s64 product is the s32 one, which saturates at 2^31 - 1."""
    x = ns.asarray([1 << 30, 1 << 30], dtype=ns.int64)
    with (
        ns.use_profile(int64="truncate", int_dot="via_float32"),
        pytest.warns(RuntimeWarning, match="C7"),
    ):
        assert int(ns.matmul(x, ns.asarray([2, 2], dtype=ns.int64))) == (1 << 31) - 1
    with ns.use_profile(int_dot="via_float32"):
        assert int(ns.matmul(x, ns.asarray([2, 2], dtype=ns.int64))) == 1 << 32
