"""Counts of n-grams: traced as eager, and onnxruntime's; ONNX's evaluator weights by the places of the
output, not by those of the pool as ONNX has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import Case, check, check_traced_as_eager, run
from tests.frontends.onnx_coverage import uncovered

from neuronsim.errors import InvalidModel, UnsupportedOperator
from neuronsim.frontends.onnx.operators import ngrams

pytestmark = pytest.mark.isa_independent

ROWS = np.random.default_rng(1).integers(1, 6, (4, 30))
POOL: dict[str, Any] = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 2,
    "ngram_counts": [0, 3, 9],
    "ngram_indexes": [4, 0, 2, 6, 1, 9, 3, 5],
    "pool_int64s": [2, 3, 5, 5, 4, 1, 1, 4, 5, 1, 2, 3, 4, 4, 4],
}
WEIGHTS = [0.5, 1.0, 0.25, 3.0, 1.5, 0.1, 2.0, 7.0]


def case(rows: Any = ROWS, **attributes: Any) -> Case:
    return Case("TfIdfVectorizer", [rows], attributes={**POOL, **attributes})


CASES = [
    case(),
    case(ROWS.astype(np.int32)),
    case(ROWS[0]),
    case(ROWS[:, :2]),
    case(max_skip_count=0),
    case(min_gram_length=2, max_gram_length=2),
]
WEIGHTED = [
    case(mode="IDF"),
    case(mode="IDF", weights=WEIGHTS),
    case(mode="TFIDF", weights=WEIGHTS),
    case(mode="TFIDF"),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_counts_are_those_of_onnx(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", WEIGHTED, ids=range(len(WEIGHTED)))
def test_counts_are_weighted_as_onnxruntime_does(case: Case) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    model = case.model
    model.ir_version = 9
    model.graph.output[0].type.tensor_type.elem_type = 1
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, case.values)
    (found,) = check_traced_as_eager(case)
    np.testing.assert_allclose(found, wanted, rtol=2e-7)  # whose product may be one ulp off


def test_every_row_has_a_case() -> None:
    assert not uncovered(ngrams, CASES)


def test_a_number_that_the_rows_type_does_not_hold_is_in_none() -> None:
    pool = [2 + (1 << 32), *POOL["pool_int64s"][1:]]
    (found,) = run(case(ROWS.astype(np.int32), pool_int64s=pool))
    assert not found[:, POOL["ngram_indexes"][0]].any()


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (case(pool_strings=["a"]), UnsupportedOperator, "of strings"),
        (case(ROWS[None]), InvalidModel, "one or two axes"),
        (case(mode="TFX"), InvalidModel, "the mode 'TFX'"),
        (case(ngram_indexes=[0] * 8), UnsupportedOperator, "not all different"),
        (case(ngram_indexes=[-1, *range(7)]), UnsupportedOperator, "not all different and from 0 on"),
        (case(ngram_counts=[0, 3, 10]), InvalidModel, "do not fit"),
        (case(weights=[1.0]), InvalidModel, "do not fit"),
    ],
    ids=range(7),
)
def test_what_does_not_fit_is_named(wrong: Case, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=rf"node \(TfIdfVectorizer\).*{said}"):
        run(wrong)
