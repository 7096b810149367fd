"""Metrics against figures worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Shape
from neuronsim.tuning.metrics import (
    METRICS,
    accuracy,
    call_function,
    find_classes,
    find_metric,
    interval,
    jackknife,
    predictions,
)
from neuronsim.tuning.statistics import exact_sum, output_statistics, scores

pytestmark = pytest.mark.isa_independent

REFERENCE = np.array([[3.0, 0.0], [0.0, 4.0]])  # its Frobenius norm is 5
NAN, INF = math.nan, math.inf


def error_metrics(outputs: Any, reference: Any) -> dict[str, float]:
    found = output_statistics(outputs, reference)
    return {
        "relative_error": found.relative_error,
        "max_error": found.largest_error,
        "not_finite": found.not_finite,
    }


def test_equal_outputs_have_no_error() -> None:
    found = error_metrics(REFERENCE, REFERENCE)
    assert found == {"relative_error": 0.0, "max_error": 0.0, "not_finite": 0}


def test_errors_are_frobenius_over_frobenius_and_the_maximum() -> None:
    difference = np.array([[0.3, 0.0], [0.0, -0.4]])
    found = error_metrics(REFERENCE + difference, REFERENCE)
    assert found["relative_error"] == pytest.approx(0.5 / 5, rel=1e-15)
    assert found["max_error"] == pytest.approx(0.4, rel=1e-15)


@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
def test_not_finite_where_the_reference_is_makes_both_errors_infinite(wrong: float) -> None:
    outputs = REFERENCE.copy()
    outputs[0, 1] = wrong
    found = error_metrics(outputs, REFERENCE)
    assert found == {"relative_error": INF, "max_error": INF, "not_finite": 1}


@pytest.mark.parametrize("shared", [NAN, INF, -INF])
def test_the_same_not_finite_value_is_no_error(shared: float) -> None:
    reference = REFERENCE.copy()
    reference[0, 1] = shared
    outputs = reference.copy()
    outputs[1, 1] += 1.0
    found = error_metrics(outputs, reference)
    assert found == {"relative_error": 1 / 5, "max_error": 1.0, "not_finite": 1}


@pytest.mark.parametrize(("ours", "theirs"), [(INF, -INF), (NAN, INF), (1.0, INF), (1.0, NAN)])
def test_unlike_not_finite_values_are_infinite_errors(ours: float, theirs: float) -> None:
    found = error_metrics(np.array([[ours]]), np.array([[theirs]]))
    assert found["relative_error"] == found["max_error"] == INF


def test_a_reference_of_zeros_has_relative_error_zero_or_infinite() -> None:
    zeros = np.zeros((2, 2))
    assert error_metrics(-zeros, zeros)["relative_error"] == 0.0
    found = error_metrics(zeros + 1e-30, zeros)
    assert (found["relative_error"], found["max_error"]) == (INF, 1e-30)


@pytest.mark.parametrize("spread", [0, 8, 20])
def test_a_sum_of_many_numbers_is_rounded_once_in_any_order(spread: int) -> None:
    rng = np.random.default_rng(spread)
    for size in (256, 257, 5000):
        x = rng.standard_normal(size) * 10.0 ** rng.uniform(-spread, 0, size) * 1e30
        assert exact_sum(x) == math.fsum(x.tolist()) == exact_sum(x[::-1])
    assert exact_sum(np.zeros(300)) == 0.0
    assert exact_sum(np.full(300, 5e-324)) == 300 * 5e-324


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_squares_neither_overflow_nor_vanish(scale: float) -> None:
    found = error_metrics(1.5 * scale * REFERENCE, scale * REFERENCE)
    assert found["relative_error"] == pytest.approx(0.5, rel=1e-12)


def test_a_difference_beyond_float64_is_an_infinite_error() -> None:
    found = error_metrics(np.array([[1.7e308]]), np.array([[-1.7e308]]))
    assert found == {"relative_error": INF, "max_error": INF, "not_finite": 0}


def test_the_order_of_samples_does_not_show() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((100, 7))
    outputs, order = reference + 1e-3 * rng.standard_normal((100, 7)), rng.permutation(100)
    assert error_metrics(outputs, reference) == error_metrics(outputs[order], reference[order])


def test_predictions_are_the_largest_and_the_first_of_equals() -> None:
    outputs = np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 0.0], [-INF, -INF, 0.0], [0.0, INF, 1.0]])
    assert predictions(outputs).tolist() == [1, 0, 2, 1]


def test_predictions_of_nan_are_minus_one() -> None:
    assert predictions(np.array([[0.0, NAN], [0.0, 1.0], [NAN, NAN]])).tolist() == [-1, 1, -1]


def test_top1_is_the_share_that_is_right() -> None:
    outputs = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [NAN, 0.0]])
    shapes = [Shape(dtypes.float32, outputs.shape)]
    assert accuracy([outputs], shapes, np.array([0, 1, 1, 0])) == 0.5
    assert accuracy([outputs], shapes, np.array([0, -100, 1, 0])) == 1 / 3
    assert mean("top1", outputs, outputs, np.array([0, 1, 1, 0])) == 0.5


# ---- the table -----------------------------------------------------------------------------------

LOGITS = np.array([[2.0, 1.0, 0.0, -1.0], [0.0, 1.0, 2.0, 3.0]])
CHANGED = np.array([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 2.0, 3.5]])
LABELS = np.array([0, 2])


def mean(name: str, outputs: Any, reference: Any, labels: Any = None) -> float:
    metric = find_metric(name)
    assert metric.of_samples is not None
    values, weights = metric.of_samples(outputs, reference, labels)
    expected, _ = metric.of_samples(reference, reference, labels)
    own = scores(values, expected, weights)
    return metric.transform(own.largest if metric.extreme else own.mean)


def error(name: str, outputs: Any, reference: Any) -> float:
    metric = find_metric(name)
    assert metric.error is not None
    return metric.error(output_statistics(outputs, reference, correlates=True, mantissa_bits=23))


def softmax(x: Any) -> Any:
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def test_top_k_finds_the_label_among_the_k_largest() -> None:
    assert mean("top1", LOGITS, LOGITS, LABELS) == 0.5
    assert mean("top2", LOGITS, LOGITS, LABELS) == 1.0


def test_top_k_agreement_is_the_share_of_classes_that_both_have() -> None:
    assert mean("top1_agreement", CHANGED, LOGITS) == 0.5
    assert mean("top2_agreement", CHANGED, LOGITS) == 1.0
    other = LOGITS[:, ::-1].copy()
    assert mean("top3_agreement", other, LOGITS) == pytest.approx(2 / 3)


def test_cross_entropy_and_perplexity() -> None:
    expected = -np.log(softmax(LOGITS)[[0, 1], LABELS]).mean()
    assert mean("cross_entropy", LOGITS, LOGITS, LABELS) == pytest.approx(expected, rel=1e-12)
    assert mean("perplexity", LOGITS, LOGITS, LABELS) == pytest.approx(math.exp(expected), rel=1e-12)
    assert mean("perplexity", LOGITS * -1e4, LOGITS, LABELS) == INF  # exp of thousands


def test_kl_is_of_the_classes_of_float32() -> None:
    p, q = softmax(LOGITS), softmax(CHANGED)
    assert mean("kl", CHANGED, LOGITS) == pytest.approx(
        np.sum(p * np.log(p / q), axis=1).mean(), rel=1e-9
    )
    assert mean("kl", LOGITS, LOGITS) == 0.0


def test_labels_per_token_and_per_pixel() -> None:
    tokens = np.stack([LOGITS, LOGITS])  # [samples, tokens, classes]
    labels = np.array([[0, 3], [1, -100]])
    assert mean("top1", tokens, tokens, labels) == 2 / 3  # -100 counts as none
    found = find_classes([Shape(dtypes.float32, (2, 2, 4))], labels)
    assert found is not None
    assert (found.axis, found.count) == (-1, 4)
    pixels = find_classes([Shape(dtypes.float32, (2, 7, 5, 6))], np.zeros((2, 5, 6), int))
    assert pixels is not None
    assert (pixels.axis, pixels.count) == (1, 7)


def test_cosine_is_the_mean_over_samples() -> None:
    cosines = [
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for a, b in zip(CHANGED, LOGITS, strict=True)
    ]
    assert mean("cosine", CHANGED, LOGITS) == pytest.approx(np.mean(cosines), rel=1e-12)
    assert mean("cosine", LOGITS * 0, LOGITS * 0) == 1.0
    assert mean("cosine", LOGITS * NAN, LOGITS) == -1.0


def test_pcc_nmse_and_sqnr() -> None:
    assert error("pcc", CHANGED, LOGITS) == pytest.approx(
        np.corrcoef(CHANGED.ravel(), LOGITS.ravel())[0, 1], rel=1e-12
    )
    nmse = np.sum((CHANGED - LOGITS) ** 2) / np.sum(LOGITS**2)
    assert error("nmse", CHANGED, LOGITS) == pytest.approx(nmse, rel=1e-12)
    assert error("sqnr", CHANGED, LOGITS) == pytest.approx(-10 * math.log10(nmse), rel=1e-12)
    assert error("sqnr", LOGITS, LOGITS) == INF


def test_pcc_does_not_lose_a_small_spread_around_a_large_mean() -> None:
    rng = np.random.default_rng(0)
    x = 1e8 + rng.standard_normal(1000)
    y = x + rng.standard_normal(1000)
    parts = [output_statistics(y[n::4], x[n::4], correlates=True) for n in range(4)]
    whole = parts[0] + parts[1] + parts[2] + parts[3]
    assert whole.moments.correlation == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-6)


def test_ulp_histogram_counts_units_of_the_reference() -> None:
    reference = np.array([1.0, 1.0, 1.0, 2.0])
    unit = 2.0**-23
    outputs = np.array([1.0, 1.0 + unit, 1.0 + 2 * unit, 2.0 + 8 * unit])
    found = output_statistics(outputs, reference, mantissa_bits=23)
    assert found.ulps[:4] == (1, 1, 1, 1)  # the last is 4 units of 2**-22: in the bucket of 3 and 4
    assert error("ulp", outputs, reference) == 4.0


def test_the_logit_check_takes_the_worst_of_awss_thresholds() -> None:
    reference = np.array([[100.0, *np.zeros(99)]])
    outputs = reference.copy()
    outputs[0, 0] += 1.5  # 1.5 % of the largest, allowed 1 % among the top five
    assert mean("logit_check", outputs, reference) == pytest.approx(1.5 / (1 + 1e-5), rel=1e-9)
    outputs = reference.copy()
    outputs[0, 60] += 1.5  # beyond the top 50: allowed 3 %
    assert mean("logit_check", outputs, reference) == pytest.approx(0.5, rel=1e-3)


# ---- losses --------------------------------------------------------------------------------------


def test_losses_are_absolute_or_relative_and_survive_a_baseline_of_zero() -> None:
    assert find_metric("top1").loss(0.7, 0.9) == pytest.approx(0.2)
    assert find_metric("top1", criterion="relative").loss(0.45, 0.9) == pytest.approx(0.5)
    assert find_metric("perplexity", criterion="relative").loss(22.0, 20.0) == pytest.approx(0.1)
    assert find_metric("top1", criterion="relative").loss(-0.1, 0.0) == pytest.approx(0.1)
    assert find_metric("top1").loss(NAN, 0.9) == INF


def test_sqnr_takes_its_tolerance_as_decibels() -> None:
    metric = METRICS["sqnr"]
    assert metric.loss(41.0, INF) <= metric.budget(40.0) < metric.loss(39.0, INF)


def test_a_function_may_be_better_lower_and_give_a_value_for_each_sample() -> None:
    metric = find_metric(lambda outputs, labels: np.abs(outputs - labels), better="lower")
    assert call_function(metric, [np.array([1.0, 3.0])], np.array([0.0, 0.0])) == 2.0
    assert metric.loss(2.0, 1.5) == 0.5


def test_functions_by_name_are_found_and_missing_ones_are_told() -> None:
    assert find_metric("math:fsum").function is math.fsum
    with pytest.raises(InvalidArgument, match="math:none"):
        find_metric("math:none")
    with pytest.raises(InvalidArgument, match="did you mean 'relative_error'"):
        find_metric("relativ_error")


def test_intervals_are_of_paired_differences() -> None:
    # All samples lose alike: the interval is narrow though the values are far apart.
    rng = np.random.default_rng(0)
    reference = 10 * rng.standard_normal(100)
    metric = find_metric(lambda outputs, labels: 0.0)
    paired = scores(reference - 1, reference, np.ones(100))
    assert interval(metric, paired) == pytest.approx((1.0, 1.0))
    unpaired = scores(rng.permutation(reference) - 1, reference, np.ones(100))
    low, high = interval(metric, unpaired) or (0.0, 0.0)
    assert low < 0 < 2 < high


def test_equal_samples_leave_three_in_n_in_doubt() -> None:
    right = np.ones(300)
    assert interval(find_metric("top1"), scores(right, right, right)) == (0.0, 0.01)


# ---- intervals of one number -----------------------------------------------------------------------


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    values = np.random.default_rng(3).standard_normal(9)
    bounds = jackknife(lambda parts: float(np.mean(values[list(parts)])), 9)
    assert bounds is not None
    wide = 2.306 * values.std(ddof=1) / 3  # t of 8 degrees of freedom
    assert bounds == pytest.approx((values.mean() - wide, values.mean() + wide), abs=0.01 * wide)


def test_the_jackknife_covers_the_error_of_all_data() -> None:
    """95 % of the intervals by 8 parts have the relative error of endless data inside."""
    rng = np.random.default_rng(4)
    truth, inside, draws = math.sqrt(0.5), 0, 300
    for _ in range(draws):
        squares = rng.exponential(0.5, (8, 12)), rng.exponential(1.0, (8, 12))

        def error(parts: Any, squares: Any = squares) -> float:
            above, below = (s[list(parts)].sum() for s in squares)
            return math.sqrt(above / below)

        low, high = jackknife(error, 8) or (0.0, 0.0)
        inside += low <= truth <= high
    assert 0.90 <= inside / draws <= 0.99


def test_the_jackknife_needs_three_parts_and_finite_losses() -> None:
    assert jackknife(lambda parts: 1.0, 2) is None
    assert jackknife(lambda parts: INF if 2 in parts else 0.0, 4) is None
    assert jackknife(lambda parts: 0.25, 5) == (0.25, 0.25)
