"""Dots in a graph with a stated algorithm (M1, M6), and of integers (M7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hlo.single import run_on_host
from tests.support.graphs import inst, parameter, unverified
from tests.support.parameters import each_of
from tests.support.words import words

import neuronsim as ns
from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedOperator
from neuronsim.profiles import Profile

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
DIMENSIONS = ops.DotDimensions((1,), (0,))


def program(
    lhs: ns.Array, rhs: ns.Array, dtype: DType, algorithm: str = "", *, before: str = "", **fields: str
) -> Any:
    """A dot of two parameters; `before` is an operation on the right one."""
    body = [parameter(f"p{n}", x.shape, n, x.dtype) for n, x in enumerate((lhs, rhs))]
    if before:
        body.append(inst("b", before, rhs.shape, "p1", dtype=rhs.dtype))
    attributes = {"dot_dimensions": DIMENSIONS, "algorithm": algorithm, "dtype": dtype}
    dot = inst("y", "dot", (lhs.shape[0], rhs.shape[1]), "p0", body[-1].name, **attributes)
    return run_on_host(unverified(*body, dot), lhs, rhs, **fields)


def operands(seed: int = 0, depth: int = 300) -> tuple[ns.Array, ns.Array]:
    rng = np.random.default_rng(seed)
    draw = lambda *dims: ns.asarray(rng.standard_normal(dims).astype(np.float32))  # noqa: E731
    return draw(5, depth), draw(depth, 7)


@each_of(
    ("algorithm", "cast"),
    [
        ("ALG_UNSET", F32),
        ("ALG_DOT_F32_F32_F32", F32),
        ("ALG_DOT_TF32_TF32_F32", dtypes.tfloat32),
        ("ALG_DOT_BF16_BF16_F32", BF16),
        ("ALG_DOT_F16_F16_F32", F16),
    ],
)
@each_of("before", ["", "negate"])
def test_algorithm_rounds_the_operands(algorithm: str, cast: DType, before: str) -> None:
    """Also where the compiler would make an operand while it is packed."""
    a, b = operands()
    found = program(a, b, F32, algorithm, before=before)
    b = -b if before else b
    low = [ns.astype(ns.astype(x, cast), F32) for x in (a, b)]
    assert words(found).tolist() == words(low[0] @ low[1]).tolist()
    assert cast is F32 or words(found).tolist() != words(a @ b).tolist()


@pytest.mark.parametrize(("algorithm", "sums"), [("BF16_BF16_BF16", BF16), ("F16_F16_F16", F16)])
def test_algorithm_sums_in_its_type_M6(algorithm: str, sums: DType) -> None:
    a, b = (ns.astype(x, sums) for x in operands(1))
    found = program(a, b, sums, f"ALG_DOT_{algorithm}")
    row, setting = ops.by_name("dot"), ops.Setting(Profile())
    attributes = {"dot_dimensions": DIMENSIONS, "dtype": sums, "accumulate": sums}
    (expected,) = ops.evaluate(row, [a.bits, b.bits], attributes, setting)
    assert words(found).tolist() == words(ns.Array(expected)).tolist()
    assert words(found).tolist() != words(program(a, b, sums)).tolist()


@pytest.mark.parametrize("algorithm", ["ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM"])
def test_algorithm_of_float8_is_psums(algorithm: str) -> None:
    a, b = (ns.astype(x, "float8_e4m3") for x in operands(2))
    found = program(a, b, F32, f"ALG_DOT_{algorithm}")
    assert words(found).tolist() == words(program(a, b, F32)).tolist()


@pytest.mark.parametrize("algorithm", ["BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "TF32_TF32_F32_X3"])
def test_algorithm_of_several_products_is_refused(algorithm: str) -> None:
    with pytest.raises(UnsupportedOperator, match=rf"main/y .*{algorithm}.*ALG_DOT_F32_F32_F32"):
        program(*operands(), F32, f"ALG_DOT_{algorithm}")


@pytest.mark.parametrize(
    ("types", "result"),
    [
        (("int8", "int8"), dtypes.int32),
        (("uint8", "int8"), dtypes.int32),
        (("int8", "int8"), dtypes.int8),
        (("int16", "int8"), dtypes.int32),
        (("bool", "bool"), dtypes.boolean),
    ],
)
def test_dot_of_integers_M7(types: tuple[str, str], result: DType) -> None:
    rng = np.random.default_rng(3)
    a, b = (
        ns.asarray(rng.integers(0, 2, dims).astype(bool))
        if name == "bool"
        else ns.asarray(rng.integers(np.iinfo(name).min, np.iinfo(name).max + 1, dims), name)
        for name, dims in zip(types, ((4, 200), (200, 3)), strict=True)
    )
    found = np.asarray(program(a, b, result))
    exact = np.asarray(a).astype(np.int64) @ np.asarray(b).astype(np.int64)
    expected = exact > 0 if result is dtypes.boolean else exact.astype(result.numpy)
    assert found.dtype == result.numpy
    assert found.tolist() == expected.tolist()


def test_dot_of_integers_M7_via_float32() -> None:
    a = ns.asarray(np.full((1, 2), 127), "int8")
    b = ns.asarray(np.array([[[127]], [[2]]]).reshape(2, 1), "int8")
    found = program(a, b, dtypes.int8, int_dot="via_float32")
    assert np.asarray(found).tolist() == [[127]]  # it saturates
    exact = program(a, b, dtypes.int8)
    assert np.asarray(exact).tolist() == [[np.int64(127 * 129).astype(np.int8)]]
