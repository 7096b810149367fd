"""Metrics against figures worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuronsim.tuning.metrics import error_metrics, predictions, top1

pytestmark = pytest.mark.isa_independent

REFERENCE = np.array([[3.0, 0.0], [0.0, 4.0]])  # its Frobenius norm is 5
NAN, INF = math.nan, math.inf


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


def test_predictions_of_more_axes_are_of_the_flat_sample() -> None:
    assert predictions(np.array([[[0.0, 1.0], [5.0, 2.0]]])).tolist() == [2]


def test_top1_is_the_share_that_is_right() -> None:
    outputs = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [NAN, 0.0]])
    assert top1(outputs, np.array([0, 1, 1, 0])) == 0.5


def test_top1_of_a_nan_is_wrong_whatever_the_label() -> None:
    # -1 is a common label for "ignore"; the docstring says that such a sample is never right.
    assert top1(np.array([[NAN, 0.0]]), np.array([-1])) == 0.0
