"""ONNX's random numbers, which a program draws while it runs, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import Case, check, floats, onnx, run
from tests.frontends.onnx_coverage import uncovered

import neuronsim
from neuronsim.errors import UnsupportedOperator
from neuronsim.frontends.onnx.graph import context_of, run_graph
from neuronsim.frontends.onnx.model import to_module
from neuronsim.frontends.onnx.operators import random

X = floats(3, 4)
TYPE = onnx.TensorProto
SHAPE = [40, 50]

DRAWS = [
    Case("RandomUniform", [], 0, {"shape": SHAPE, "low": 2.0, "high": 5.0}),
    Case("RandomNormal", [], 0, {"shape": SHAPE, "mean": 3.5, "scale": 0.5, "dtype": TYPE.FLOAT16}),
    Case("RandomUniformLike", [np.zeros(SHAPE, np.float32)], 1, {"low": 3.0, "high": 4.0}),
    Case("RandomNormalLike", [np.zeros(SHAPE, np.int32)], 1, {"mean": 3.5, "dtype": TYPE.FLOAT}),
]
PROBABILITIES = np.full(SHAPE, 0.25, np.float32)
CHOICES = [
    Case("Bernoulli", [PROBABILITIES], 1),
    Case("Multinomial", [np.log(np.float32([[0.5, 0.25, 0.25]] * 4))], 1, {"sample_size": 1000}),
]
DROPOUTS = [
    Case("Dropout", [X], 1, {"ratio": 0.3}, 7, 1, wanted=X),
    Case("Dropout", [X], version=10),
    Case("Dropout", [X, np.float32(0.3)], version=12),
    Case("Dropout", [X, np.float32(0), np.array(True)], version=13),
]


def _eager(case: Case) -> Any:
    given = {name: neuronsim.asarray(x) for name, x in case.values.items()}
    return np.asarray(run_graph(case.model.graph, given, context_of(case.model, None))[0])


def _mean(x: Any) -> float:
    return float(x.astype(np.float64).mean())


@pytest.mark.parametrize("case", DRAWS, ids=str)
def test_draws_have_their_mean(case: Case) -> None:
    for found in (run(case)[0], _eager(case)):
        assert found.shape == tuple(SHAPE)
        assert abs(_mean(found) - 3.5) < 0.1


def test_a_program_draws_by_the_seed_of_its_call() -> None:
    case = Case("RandomUniformLike", [X])
    program = neuronsim.compile(to_module(case.model), auto_cast="none", target="host")
    first, again, other = (np.asarray(program(X, seed=s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_choices_have_their_probabilities() -> None:
    drawn, classes = (run(c)[0] for c in CHOICES)
    assert set(drawn.reshape(-1).tolist()) == {0.0, 1.0}
    assert abs(_mean(drawn) - 0.25) < 0.05
    assert classes.shape == (4, 1000)
    assert classes.dtype == np.int32
    assert abs(_mean(classes == 0) - 0.5) < 0.05


@pytest.mark.parametrize("case", DROPOUTS, ids=str)
def test_nothing_is_dropped_in_inference(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("version", "dtype"), [(7, np.float32), (10, np.bool_), (13, np.bool_)])
def test_the_mask_of_a_dropout(version: int, dtype: Any) -> None:
    mask = run(Case("Dropout", [X], version=version, outputs=2))[1]
    assert mask.dtype == dtype
    assert mask.all()


def test_dropout_that_trains_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="eval mode"):
        run(Case("Dropout", [X, np.float32(0.5), np.array(True)]))


def test_every_row_has_a_case() -> None:
    assert uncovered(random, [*DRAWS, *CHOICES, *DROPOUTS]) == []
