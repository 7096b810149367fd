"""Rule M7: products of integers and bool, exact and through float32; C7's 32-bit ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes
from neuronsim.errors import UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_dot
from tests.support.words import INTEGERS, Words

VIA_FLOAT32 = Profile(int_dot="via_float32")


INTEGER_DOTS = [("int8", "int8", "int32"), ("uint8", "int8", "int32"), ("int8", "uint8", "int16")]
INTEGER_DOTS += [("uint16", "int64", "int64"), ("int32", "int32", "int8"), ("bool", "int8", "int16")]
INTEGER_DOTS += [("bool", "bool", "int32"), ("int64", "int64", "uint32")]
INTEGER_DOTS += [(t, t, t) for t in INTEGERS]


@pytest.mark.parametrize(("a", "b", "result"), INTEGER_DOTS)
def test_integer_dot_M7_converts_to_the_result_and_wraps(
    isa: str, threads: int, a: str, b: str, result: str
) -> None:
    rng = np.random.default_rng(35)
    x, y = random_words(rng, a, (7, 40)), random_words(rng, b, (40, 530))
    ours = evaluate_dot(a, x, b, y, result)
    lhs, rhs = (v.view(dtypes.DTYPES[t].numpy).astype(int) for t, v in ((a, x), (b, y)))
    exact = lhs.astype(object) @ rhs.astype(object)
    assert np.array_equal(ours.astype(object), exact % (1 << np.iinfo(result).bits))


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
    for x, y, expected in via_float32(a, b, result):
        found = evaluate_dot(a, x, b, y, result, profile=VIA_FLOAT32)
        assert found.view(dtypes.DTYPES[result].storage).tolist() == expected, x.shape


def test_integer_dot_M7_via_float32_leaves_bool() -> None:
    x, ones = np.array([[1, 255]], np.uint8), np.ones((2, 1), np.uint8)  # int8: 1 and -1
    found = evaluate_dot("int8", x, "int8", ones, "bool", profile=VIA_FLOAT32)
    assert found.tolist() == [[1]]


def test_integer_dot_M7_via_float32_adds_up_as_the_profile_says() -> None:
    ones = np.ones((300, 1), np.uint32)
    x = ones.T.copy()
    x[0, 0] = 1 << 24
    operands = "int32", x, "int32", ones, "int32"
    for accumulate, total in (
        ("psum128", (1 << 24) + 172),
        ("sequential", 1 << 24),
        ("exact", (1 << 24) + 300),
    ):
        profile = Profile(int_dot="via_float32", accumulate=accumulate)
        assert evaluate_dot(*operands, profile=profile).tolist() == [[total]], accumulate
    profile = Profile(int_dot="via_float32", accumulate="product_bf16")
    with pytest.raises(UnsupportedType, match="product_bf16"):
        evaluate_dot(*operands, profile=profile)


def test_integer_dot_M7_has_no_accumulate_type() -> None:
    x = np.ones((1, 1), np.uint32)
    with pytest.raises(UnsupportedType, match=r"int32.*bfloat16.*M7"):
        evaluate_dot("int32", x, "int32", x, "int32", accumulate=dtypes.bfloat16)


@pytest.mark.parametrize("accumulate", ["exact", "product_bf16", "pairs"])
def test_integer_dot_M7_does_not_see_M6(accumulate: str) -> None:
    x = np.array([[1 << 20, 3]], np.uint32)
    profile = Profile(accumulate=accumulate)
    assert evaluate_dot("int32", x, "int32", x.T.copy(), "int32", profile=profile).tolist() == [[9]]


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
