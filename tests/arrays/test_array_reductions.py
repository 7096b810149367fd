"""Reductions and composites of arrays: axes, types, and the twin's steps (R2, R7)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
from beside_numpy import agree
from float32_steps import number, steps, total
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import assert_same, word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, InvalidIndex, NeuronSimError
from neuronsim.reference import composites, formats, sums

FLOATS = [t for t in DTYPES.values() if t.exponent_bits and t.device]
ORDERED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -numpy.inf, "min": numpy.inf}


# ---- axes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [3, -4, (0, 3), (0, 0), (0, -3)], ids=str)
def test_wrong_axes_are_refused(axis: Any) -> None:
    with pytest.raises(InvalidArgument, match="axis"):
        np.sum(np.ones((2, 3, 4)), axis=axis)


# ---- values ----------------------------------------------------------------------------------------


def test_R2_sum_of_negative_zero_is_positive_zero() -> None:
    assert word_list(np.sum(np.asarray([-0.0]))) == [0]


@each_of("int64", ["keep", "truncate"])
def test_minima_of_int64_begin_at_a_limit_C7_R2(int64: str) -> None:
    with np.use_profile(int64=int64):
        x = np.asarray([[5, 7, 9], [-7, -2, -5]])
        assert np.min(x, axis=1).tolist() == [5, -7]
        assert np.max(x, axis=1).tolist() == [9, -2]
        assert np.min(x).item() == -7
        assert np.maximum.reduce(x, axis=1, where=[True, True, False], initial=-99).tolist() == [7, -2]
        assert np.maximum.accumulate(x, axis=1).tolist() == [[5, 7, 9], [-7, -2, -2]]
        assert np.maximum.reduceat(x[1], [0, 2]).tolist() == [-2, -5]


def test_R2_axes_are_walked_in_ascending_order_whatever_is_asked() -> None:
    x = normal(np.float32, (7, 5, 11))
    assert np.sum(x, axis=(2, 0)).tobytes() == np.sum(x, axis=(0, 2)).tobytes()


def test_empty_sums_and_products() -> None:
    assert np.sum(np.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
    assert np.prod(np.zeros(0)).item() == 1
    assert np.max(np.zeros((0, 3)), axis=1).shape == (0,)
    for function in (np.max, np.min):
        with pytest.raises(InvalidArgument, match="no elements"):
            function(np.zeros((0, 3)), axis=0)


def test_R3_eager_sums_combine_tiles_in_float32() -> None:
    # Eager arrays have mixed_precision_accumulation on: 1025 tiles' ones are exact up to one rounding.
    assert np.sum(np.ones(1025, dtype="bfloat16")).item() == 1024
    with np.use_profile(mixed_precision_accumulation="off"):
        assert np.sum(np.ones(1025, dtype="bfloat16")).item() == 1024
        assert np.sum(np.full(515, 1.0, dtype="float8_e5m2")).item() == 512


# ---- composites in float32 steps (R7) ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_composites_equal_the_twins(dtype: DType) -> None:
    x = normal(dtype, (3, 17))
    rows = numpy.array(word_list(x)).reshape(3, 17).tolist()
    for found, twin in (
        (np.nn.softmax(x), composites.softmax),
        (np.nn.layer_norm(x), partial(composites.layer_norm, epsilon=1e-5)),
    ):
        assert found.dtype is dtype
        assert word_list(found) == [w for row in rows for w in twin(dtype.name, row)]


def test_R7_layer_norm_with_weight_and_bias() -> None:
    x, weight, bias = (normal(np.bfloat16, s, n) for n, s in enumerate([(2, 5), (5,), (5,)]))
    plain = np.nn.layer_norm(x.astype("float32"))
    expected = (plain * weight.astype("float32") + bias.astype("float32")).astype("bfloat16")
    assert np.nn.layer_norm(x, weight, bias).tobytes() == expected.tobytes()


def test_softmax_along_another_axis() -> None:
    x = normal(np.float32, (4, 3))
    assert np.nn.softmax(x, axis=0).tobytes() == np.nn.softmax(x.T, axis=1).T.tobytes()


# ---- the standard's and NumPy's arguments ------------------------------------------------------------

SKIPPING = ("sum", "prod", "max", "min", "mean", "var", "std", "cumsum", "cumprod")
NUMBERS = ["float32", "float64", "complex64", "complex128", "int8", "uint16", "int64", "bool"]


def drawn(dtype: str, shape: tuple[int, ...] = (3, 4, 5), *, with_nan: bool = False) -> Any:
    """Small whole numbers, whose sums are exact."""
    rng = numpy.random.default_rng(5)
    x = rng.integers(0 if dtype in ("uint16", "bool") else -3, 4, shape).astype(dtype)
    if with_nan and x.dtype.kind in "fc":
        x[rng.random(shape) < 0.2] = numpy.nan
    return x


@each_of("dtype", [*NUMBERS, "bfloat16", "float8_e5m2"])
@each_of("name", ["sum", "prod"])
def test_dtype_converts_the_elements_first(name: str, dtype: str) -> None:
    x = np.asarray([300, 300, 7], dtype="int32")
    found = getattr(np, name)(x, dtype=dtype)
    assert found.dtype.name == dtype
    assert found.tobytes() == getattr(np, name)(x.astype(dtype), dtype=dtype).tobytes()
    total = np.cumulative_sum(x, dtype=dtype)
    assert (total.dtype.name, total.shape) == (dtype, (3,))


def test_dtype_of_a_sum_saves_it_from_rounding() -> None:
    x = np.asarray([256.0, 1.0, 1.0], dtype="bfloat16")
    assert np.sum(x[:2]).item() == 256  # a tie, to even
    assert np.sum(x[:2], dtype="float32").item() == 257
    assert np.mean(x[:2], dtype="float32").item() == 128.5


@each_of("name", ["sum", "prod", "max", "min", "mean", "var", "std", "all", "any"])
@each_of("dtype", NUMBERS)
def test_where_leaves_elements_out(name: str, dtype: str) -> None:
    x = drawn(dtype)
    mask = numpy.random.default_rng(3).random(x.shape) < 0.6
    mask[0] = True
    more = {"initial": numpy.ones((), dtype)[()]} if name in ("max", "min") else {}
    for axis in (0, (0, 1)):
        agree(name, x, axis=axis, where=mask, **more, rtol=2e-6)
    agree(name, x, axis=0, where=[True] * 5, **more, rtol=2e-6)  # broadcast


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_mean_and_variance_of_chosen_elements_equal_those_of_them_alone(dtype: DType) -> None:
    """The identity of a sum changes no other, so the chosen alone give the same bits."""
    x = normal(dtype, (40,), seed=3)
    mask = numpy.random.default_rng(3).random(40) < 0.5
    for name in ("mean", "var", "std"):
        function = getattr(np, name)
        found = function(x, where=np.asarray(mask))
        assert found.dtype is dtype
        assert word_list(found) == word_list(function(x[np.asarray(mask)]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_R7_variance_by_a_known_mean(dtype: DType) -> None:
    x, mean = normal(dtype, (2, 30)), np.asarray([[0.25], [-1.0]], dtype=dtype)
    expected = []
    for row, m in zip((steps(x)[:30], steps(x)[30:]), steps(mean), strict=True):
        spread = total([(v - m) * (v - m) for v in row]) / number(29.0)
        expected.append(spread.to(dtype))
    assert word_list(np.var(x, axis=1, mean=mean, ddof=1)) == expected


def test_initial_joins_last() -> None:
    x = drawn("float32")
    for name in ("sum", "prod", "max", "min"):
        agree(name, x, 1, initial=2, rtol=2e-6)
    assert np.max(np.zeros(0), initial=-4).item() == -4
    assert np.min(np.zeros((0, 2), dtype="int8"), axis=0, initial=5).tolist() == [5, 5]
    # R2: the initial value is added after the tiles' results, in float32.
    values = np.asarray([2.0**24, 1.0, 1.0])
    assert np.sum(values, initial=-(2.0**24)).item() == 0
    assert np.sum(np.asarray([1.0, 1.0]), initial=2.0**24).item() == 2**24 + 2


def test_out_takes_the_result_rounded_once() -> None:
    x = np.asarray([[256.0, 1.0], [1.0, 2.0]])
    for name in ("sum", "prod", "max", "min", "mean", "var", "std", "ptp", "nansum", "nanmean"):
        out = np.zeros(2, dtype="bfloat16")
        found = getattr(np, name)(x, axis=1, out=out)
        assert found is out
        assert out.tobytes() == getattr(np, name)(x, axis=1).astype("bfloat16").tobytes()
    for name in ("cumsum", "cumprod"):
        out = np.zeros((2, 2))
        assert getattr(np, name)(x, 1, None, out) is out
        assert out.tolist() == getattr(np, name)(x, 1).tolist()
    flags = np.zeros(2, dtype="bool")
    assert np.all(x, 0, flags) is flags
    assert flags.tolist() == [True, True]
    with pytest.raises(TypeError, match="cast"):
        np.sum(x, axis=1, out=np.zeros(2, dtype="int32"))


@each_of(
    ("call", "match"),
    [
        (lambda x: np.sum(x, where=[1, 0, 1]), "bool"),
        (lambda x: np.sum(x, where=np.ones((3, 3), dtype="bool")), "broadcast"),
        (lambda x: np.max(x, where=[True, False, True]), "initial="),
        (lambda x: np.sum(x, initial=[1.0, 2.0]), "scalar"),
        (lambda x: np.var(x, ddof=1, correction=2), "two names"),
        (lambda x: np.var(x, correction=numpy.inf), "finite"),
        (lambda x: np.var(x, correction="1"), "number"),
        (lambda x: np.diff(x, -1), "0 or more"),
        (lambda x: np.diff(x[0]), "scalar"),
        (lambda x: np.cumulative_sum(np.ones((2, 2))), "axis="),
        (lambda x: np.cumulative_sum(x, axis=0.5), "axis"),
        (lambda x: np.nanmax(x[:0]), "initial="),
        (lambda x: np.mean(x, dtype="int32"), "float"),
    ],
)
def test_wrong_arguments_say_what_to_do(call: Callable[[np.Array], Any], match: str) -> None:
    with pytest.raises(NeuronSimError, match=match) as error:
        call(np.asarray([1.0, 2.0, 3.0]))
    assert isinstance(error.value, ValueError | TypeError)


# ---- cumulative functions and differences ------------------------------------------------------------


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("name", ["sum", "prod"])
def test_R4_cumulative_functions_equal_the_twin(name: str, dtype: DType) -> None:
    x = normal(dtype, (2, 20), seed=9)
    initial = formats.from_float(dtype.name, IDENTITY[name])
    rows = numpy.array(word_list(x)).reshape(2, 20).tolist()
    expected = [sums.cumulative_float(ORDERED[name], dtype.name, r, initial, tile=512) for r in rows]
    found = getattr(np, f"cumulative_{name}")(x, axis=1, include_initial=True)
    assert word_list(found) == [w for row in expected for w in (initial, *row)]
    flat = getattr(np, f"cum{name}")(x)
    whole = sums.cumulative_float(ORDERED[name], dtype.name, rows[0] + rows[1], initial)
    assert word_list(flat) == whole


def test_cumulative_functions_of_no_elements() -> None:
    assert np.cumulative_sum(np.zeros((2, 0)), axis=1, include_initial=True).tolist() == [[0.0], [0.0]]
    assert np.cumulative_prod(np.zeros(0), include_initial=True).tolist() == [1.0]
    assert np.cumsum(np.asarray(3)).tolist() == [3]


def test_differences_join_what_stands_before_and_after() -> None:
    x = drawn("int32", (2, 3))
    agree("diff", x, prepend=0, append=[[5], [6]])
    assert np.diff(np.asarray([1, 2], dtype="int8"), prepend=0.5).dtype.name == "float32"
    assert np.diff(np.asarray([3, 1], dtype="uint8")).tolist() == [254]  # E8
    assert np.diff(np.asarray([1.0, 2.0]), 0).tolist() == [1, 2]
    assert np.diff(np.asarray([1.0, 2.0]), 5).shape == (0,)


# ---- without NaN -------------------------------------------------------------------------------------


@each_of("dtype", NUMBERS)
@each_of("name", SKIPPING)
def test_nan_functions_are_numpys_where_those_are_exact(name: str, dtype: str) -> None:
    x = drawn(dtype, with_nan=True)
    if dtype[:5] in ("float", "compl"):
        x[:, 1, 2] = numpy.nan
    name = f"nan{name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nothing but NaN
        for axis in (0, -1):
            agree(name, x, axis, rtol=2e-6)
        if "cum" not in name:
            mask = numpy.random.default_rng(3).random(x.shape) < 0.6
            is_extreme = name in ("nanmax", "nanmin")
            if not is_extreme or dtype != "bool":
                agree(name, x, 0, where=mask, **({"initial": 2} if is_extreme else {}), rtol=2e-6)
            agree(name, x, (0, 2), keepdims=True, rtol=2e-6)


@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("name", SKIPPING[:7])
def test_nan_functions_equal_the_others_of_the_numbers(name: str, dtype: DType) -> None:
    x = normal(dtype, (30,), seed=6)
    holes = numpy.asarray(x).copy()
    holes[::4] = numpy.nan
    numbers = np.asarray(numpy.isfinite(holes.astype("float32")))
    found = getattr(np, f"nan{name}")(np.asarray(holes, dtype=dtype))
    assert found.dtype is dtype
    assert word_list(found) == word_list(getattr(np, name)(x[numbers]))


@each_of("dtype", DTYPES.values(), ids=lambda t: t.name)
def test_nanmax_of_numbers_alone_is_their_maximum(dtype: DType) -> None:
    if dtype.kind == "complex" or not (dtype.device or dtype is np.float64):
        return
    x = np.asarray(numpy.random.default_rng(6).integers(0, 9, (4, 5, 6))).astype(dtype)
    for axis in (None, 0, -1, (0, 2)):
        for keepdims in (False, True):
            how: Any = {"axis": axis, "keepdims": keepdims}
            assert_same(np.nanmax(x, **how), np.max(x, **how))
            assert_same(np.nanmin(x, **how), np.min(x, **how))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_nanmax_of_nothing_but_nan_is_nan_and_says_so(dtype: DType) -> None:
    x = np.asarray([[numpy.nan, numpy.nan], [1.0, numpy.nan]], dtype=dtype)
    for function in (np.nanmax, np.nanmin):
        with pytest.warns(RuntimeWarning, match="nothing but NaN"):
            found = function(x, axis=1)
        assert word_list(found) == word_list(np.asarray([numpy.nan, 1.0], dtype=dtype))
        for axis in (None, -1, ()):
            with pytest.warns(RuntimeWarning, match="nothing but NaN"):
                found = function(np.asarray(numpy.nan, dtype=dtype), axis=axis)
            assert word_list(found) == word_list(np.asarray(numpy.nan, dtype=dtype))


REDUCED = (
    *("all", "any", "count_nonzero", "max", "min", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd"),
    *("nansum", "nanvar", "prod", "ptp", "sum"),
)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float64"])
def test_arrays_without_axes_are_reduced_along_0_and_minus_1_as_numpys(dtype: str) -> None:
    x = numpy.array(1, dtype)
    for name in (*REDUCED, "argmax", "argmin", "nanargmax", "nanargmin"):
        if (name == "ptp" and dtype == "bool") or (
            name in ("nanmean", "nanstd", "nanvar") and not dtype.startswith("float")
        ):
            continue  # which NumPy refuses
        ours, theirs = getattr(np, name), getattr(numpy, name)
        for axis in (0, -1, None):
            for keepdims in (False, True):
                found = ours(np.asarray(x), axis=axis, keepdims=keepdims)
                expected = theirs(x, axis=axis, keepdims=keepdims)
                assert (found.shape, found.item()) == (expected.shape, expected.item()), name
        for axis in (1, -2, (0,)):
            with pytest.raises(InvalidArgument):
                ours(np.asarray(x), axis=axis)
    cumulative = ("cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nancumprod", "nancumsum")
    for name in ("argsort", *cumulative):
        for axis in (0, -1, None):
            expected = getattr(numpy, name)(x, axis=axis).tolist()
            assert expected == [x if "cum" in name else 0]
            assert getattr(np, name)(np.asarray(x), axis=axis).tolist() == expected
        with pytest.raises(InvalidIndex):
            getattr(np, name)(np.asarray(x), axis=1)
    assert np.argpartition(np.asarray(x), 0).tolist() == numpy.argpartition(x, 0).tolist() == [0]
    assert np.lexsort((np.asarray(x),)).tolist() == numpy.lexsort((x,)).tolist() == 0
    for refused in (np.sort, np.flip, lambda v, axis: np.partition(v, 0, axis)):
        with pytest.raises(InvalidIndex):
            refused(np.asarray(x), axis=0)
