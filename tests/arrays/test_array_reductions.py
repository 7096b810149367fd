"""Reductions and composites of arrays: axes, types, and the twin's steps (R2, R7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import elementwise, formats, functions, sums

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]
ORDERED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -numpy.inf, "min": numpy.inf}


def words(x: np.Array) -> list[int]:
    flat = numpy.ascontiguousarray(x.bits.data).reshape(-1)
    return [int(w) for w in flat.view(f"u{x.dtype.itemsize}")]


def sample(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> np.Array:
    return np.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype=dtype)


# ---- axes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (2, 0), (-1, -2), (0, 1, 2), ()], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_are_numpys(name: str, axis: Any, keepdims: bool) -> None:
    x = numpy.random.default_rng(1).integers(-3, 4, (2, 3, 4)).astype(numpy.float32)
    found = getattr(np, name)(np.asarray(x), axis=axis, keepdims=keepdims)
    expected = getattr(numpy, name)(x, axis=axis, keepdims=keepdims)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("axis", [3, -4, (0, 3), (0, 0), (0, -3)], ids=str)
def test_wrong_axes_are_refused(axis: Any) -> None:
    with pytest.raises(InvalidArgument, match="axis"):
        np.sum(np.ones((2, 3, 4)), axis=axis)


def test_axis_may_be_a_numpy_integer() -> None:
    assert np.sum(np.ones((2, 3)), axis=numpy.int64(1)).tolist() == [3, 3]


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", ORDERED)
def test_R2_reductions_equal_the_twin(dtype: DType, name: str) -> None:
    x = sample(dtype, (3, 1100), seed=7)
    initial = formats.from_float(dtype.name, IDENTITY[name])
    rows = numpy.array(words(x)).reshape(3, 1100)
    expected = [sums.reduce_float(ORDERED[name], dtype.name, r.tolist(), initial) for r in rows]
    assert words(getattr(np, name)(x, axis=1)) == expected


def test_R2_sum_of_negative_zero_is_positive_zero() -> None:
    assert words(np.sum(np.asarray([-0.0]))) == [0]


def test_R2_axes_are_walked_in_ascending_order_whatever_is_asked() -> None:
    x = sample(np.float32, (7, 5, 11))
    assert np.sum(x, axis=(2, 0)).tobytes() == np.sum(x, axis=(0, 2)).tobytes()


def test_empty_sums_and_products() -> None:
    assert np.sum(np.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
    assert np.prod(np.zeros(0)).item() == 1
    assert np.max(np.zeros((0, 3)), axis=1).shape == (0,)
    for function in (np.max, np.min):
        with pytest.raises(InvalidArgument, match="no elements"):
            function(np.zeros((0, 3)), axis=0)


@pytest.mark.parametrize("name", ["max", "min"])
def test_E7_nan_wins(name: str) -> None:
    assert numpy.isnan(getattr(np, name)(np.asarray([1.0, numpy.nan, 2.0])).item())


@pytest.mark.parametrize(
    ("dtype", "summed"), [("bool", "int64"), ("int8", "int64"), ("uint8", "uint64"), ("int64", "int64")]
)
def test_integers_are_summed_in_64_bits(dtype: str, summed: str) -> None:
    x = np.ones((300,), dtype=dtype)
    assert np.sum(x).dtype.name == np.prod(x).dtype.name == summed
    assert np.sum(x).item() == 300


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64"])
def test_integer_maximum_keeps_its_type(dtype: str) -> None:
    x = np.asarray([0, 1, 1, 0], dtype=dtype)
    assert (np.max(x).item(), np.min(x).item()) == (1, 0)
    assert np.max(x).dtype.name == dtype


def test_R3_eager_sums_combine_tiles_in_float32() -> None:
    # Eager arrays have mixed_precision_accumulation on: 1025 tiles' ones are exact up to one rounding.
    assert np.sum(np.ones(1025, dtype="bfloat16")).item() == 1024
    with np.use_profile(mixed_precision_accumulation="off"):
        assert np.sum(np.ones(1025, dtype="bfloat16")).item() == 1024
        assert np.sum(np.full(515, 1.0, dtype="float8_e5m2")).item() == 512


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_H1_reductions_of_host_types_are_numpys(name: str, dtype: str) -> None:
    x = numpy.random.default_rng(4).standard_normal((3, 50)).astype(dtype)
    found = getattr(np, name)(np.asarray(x), axis=1)
    assert found.dtype.name == dtype
    assert found.tolist() == getattr(numpy, name)(x, axis=1).tolist()


def test_reductions_of_float8_e4m3fn_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        np.sum(np.ones(2, dtype="float8_e4m3fn"))


# ---- composites in float32 steps (R7) ----------------------------------------------------------------


def fold(name: str, values: Sequence[int], start: float) -> int:
    return sums.reduce_float(name, "float32", list(values), formats.from_float("float32", start))


def mean_of(values: Sequence[int]) -> int:
    n = formats.from_float("float32", len(values))
    return elementwise.divide(fold("add", values, 0.0), n)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_mean_is_sum_over_n_rounded_once(dtype: DType) -> None:
    x = sample(dtype, (2, 700))
    rows = numpy.array(words(x.astype("float32"))).reshape(2, 700)
    expected = [formats.convert("float32", dtype.name, mean_of(r.tolist())) for r in rows]
    found = np.mean(x, axis=1)
    assert found.dtype is dtype
    assert words(found) == expected


def test_mean_keeps_dims_and_knows_empty_arrays() -> None:
    assert np.mean(np.ones((2, 3)), axis=0, keepdims=True).shape == (1, 3)
    assert numpy.isnan(np.mean(np.zeros(0)).item())
    assert np.mean(np.zeros((0, 3)), axis=1).shape == (0,)


def softmax_of(row: Sequence[int]) -> list[int]:
    top = fold("maximum", row, -numpy.inf)
    powers = [functions.FUNCTIONS["exp"](elementwise.subtract(v, top)) for v in row]
    total = fold("add", powers, 0.0)
    return [elementwise.divide(p, total) for p in powers]


def layer_norm_of(row: Sequence[int], epsilon: float) -> list[int]:
    mean = mean_of(row)
    centred = [elementwise.subtract(v, mean) for v in row]
    variance = mean_of([elementwise.multiply(v, v) for v in centred])
    shifted = elementwise.add(variance, formats.from_float("float32", epsilon))
    scale = functions.FUNCTIONS["rsqrt"](shifted)
    return [elementwise.multiply(v, scale) for v in centred]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("function", "steps"),
    [(np.nn.softmax, softmax_of), (np.nn.layer_norm, lambda r: layer_norm_of(r, 1e-5))],
    ids=["softmax", "layer_norm"],
)
def test_R7_composites_equal_the_twins_steps(
    dtype: DType, function: Callable[..., Any], steps: Callable[[Sequence[int]], list[int]]
) -> None:
    x = sample(dtype, (3, 17))
    rows = numpy.array(words(x.astype("float32"))).reshape(3, 17)
    expected = [formats.convert("float32", dtype.name, w) for r in rows for w in steps(r.tolist())]
    found = function(x)
    assert found.dtype is dtype
    assert words(found) == expected


def test_R7_layer_norm_with_weight_and_bias() -> None:
    x, weight, bias = (sample(np.bfloat16, s, n) for n, s in enumerate([(2, 5), (5,), (5,)]))
    plain = np.nn.layer_norm(x.astype("float32"))
    expected = (plain * weight.astype("float32") + bias.astype("float32")).astype("bfloat16")
    assert np.nn.layer_norm(x, weight, bias).tobytes() == expected.tobytes()


def test_softmax_along_another_axis() -> None:
    x = sample(np.float32, (4, 3))
    assert np.nn.softmax(x, axis=0).tobytes() == np.nn.softmax(x.T, axis=1).T.tobytes()


@pytest.mark.parametrize("function", [np.nn.softmax, np.nn.layer_norm], ids=lambda f: f.__name__)
def test_composites_of_integers_are_floats_or_refused(function: Callable[..., Any]) -> None:
    try:
        found = function(np.asarray([1, 2, 3]))
    except NeuronSimError:
        return
    assert found.dtype.kind == "float"


def test_mean_of_integers_is_of_the_default_float_type() -> None:
    found = np.mean(np.asarray([1, 2]))
    assert (found.item(), found.dtype.name) == (1.5, "float32")
