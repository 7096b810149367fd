"""ONNX's reductions and cumulative sums: traced as eager, and right by ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.onnx_cases import BFLOAT16, Case, check, check_traced_as_eager, floats, ints, run
from tests.frontends.onnx_coverage import uncovered
from tests.support.parameters import each_of

from neuronsim.errors import InvalidArgument
from neuronsim.frontends.onnx.model import UnknownInput, to_module
from neuronsim.frontends.onnx.operators import reductions

X = floats(2, 3, 4)
POSITIVE = abs(X) + np.float32(0.1)
INTS = np.int32([[7, -7, 5], [-5, 6, 0]])
EMPTY = np.zeros((2, 0, 4), np.float32)
TIES = np.float32([[1, 3, 3], [2, 2, -1]])

_OPS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean")
_OPS += ("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
_OF_INTS = ("ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum")

CASES = [
    *[Case(op, [POSITIVE]) for op in _OPS],
    *[Case(op, [POSITIVE, ints(1)], 1, {"keepdims": k}) for op in _OPS for k in (0, 1)],
    *[Case(op, [POSITIVE.astype(np.float16), ints(0, -1)]) for op in _OPS],
    *[Case(op, [POSITIVE], 1, {"axes": [0, -1]}, 11) for op in _OPS],
    *[Case(op, [X], 1, {"noop_with_empty_axes": 1}) for op in ("ReduceSum", "ReduceL2", "ReduceMax")],
    *[Case(op, [INTS, ints(1)]) for op in _OF_INTS],
    *[Case(op, [np.float32(2)]) for op in _OPS if op != "ReduceLogSumExp"],
    Case("ReduceSumSquare", [INTS, ints(1)], wanted=np.sum(INTS**2, 1, np.int32, keepdims=True)),
    Case("ReduceMean", [INTS, ints(1)], wanted=np.int32([[1], [0]])),
    *[Case(op, [INTS > 0, ints(1)]) for op in ("ReduceMax", "ReduceMin")],
    *[Case(op, [EMPTY, ints(1)]) for op in _OPS if op not in ("ReduceMean", "ReduceMax", "ReduceMin")],
    Case("ReduceMax", [EMPTY, ints(1)], wanted=np.full((2, 1, 4), -np.inf, np.float32)),
    Case("ReduceMin", [EMPTY.astype(np.int8), ints(1)], wanted=np.full((2, 1, 4), 127, np.int8)),
    Case("ReduceLogSumExp", [1000 * X, ints(2)]),
    *[
        Case(op, [TIES], 1, {"axis": a, "keepdims": k, "select_last_index": last})
        for op in ("ArgMax", "ArgMin") for a in (0, -1) for k in (0, 1) for last in (0, 1)
    ],
    *[
        Case(op, [x, np.int64(1)], 1, {"exclusive": e, "reverse": r}, 26 if op == "CumProd" else 24)
        for op in ("CumSum", "CumProd") for e in (0, 1) for r in (0, 1)
        for x in (X, np.int32([[1, 2, 3], [4, 5, 6]]))
    ],
    Case("CumSum", [X, np.int32(-3)]),
    *[Case("LpNormalization", [X], 1, {"axis": a}) for a in (-1, 1)],
    Case("LpNormalization", [X], 1, {"axis": 1, "p": 1}, wanted=X / abs(X).sum(1, keepdims=True)),
    Case("LpNormalization", [np.float32([[0, 0], [3, 4]])], wanted=np.float32([[0, 0], [0.6, 0.8]])),
    Case("MeanVarianceNormalization", [floats(2, 3, 4, 5)]),
    Case("MeanVarianceNormalization", [floats(2, 3, 4, 5)], 1, {"axes": [1]}),
]  # fmt: skip


@each_of("case", CASES, ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    check(case, 2e-3)


@each_of("op", _OPS)
def test_bfloat16_is_rounded_once(op: str) -> None:
    narrow = POSITIVE.astype(BFLOAT16)
    exact = run(Case(op, [narrow.astype(np.float32), ints(1)]))[0]
    found = check_traced_as_eager(Case(op, [narrow, ints(1)]))[0]
    np.testing.assert_array_equal(found, exact.astype(BFLOAT16))


def test_every_row_has_a_case() -> None:
    assert uncovered(reductions, CASES) == []


@pytest.mark.parametrize(
    "case", [Case("CumSum", [X, np.int64(1)], 2), Case("ReduceSum", [X, ints(1)], 2)]
)
def test_axes_that_nobody_knows_are_named(case: Case) -> None:
    shapes = {name: x.shape for name, x in case.values.items()}
    with pytest.raises(UnknownInput, match="'x1'") as caught:
        to_module(case.model, input_shapes=shapes)
    assert caught.value.inputs == ("x1",)
    assert isinstance(caught.value, InvalidArgument)
