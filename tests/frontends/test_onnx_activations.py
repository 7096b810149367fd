"""ONNX's activations: traced as eager, and right by ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import BFLOAT16, Case, check, check_traced_as_eager, floats, run
from tests.frontends.onnx_coverage import uncovered
from tests.support.parameters import each_of

from neuronsim.frontends.onnx.operators import activations

X = 3 * floats(2, 3, 4)
FAR = np.float32([-np.inf, -100, -1e-30, -0.0, 0, 1e-30, 100, np.inf, np.nan])
TIES = np.float32([[1, 3, 3], [2, 2, -1]])


def _of_matrices(case: Case) -> bool:
    """Whether ONNX's evaluator, which knows the newest version alone, takes it for another."""
    return case.op_type in ("Softmax", "LogSoftmax", "Hardmax") and case.version < 13


def _swish(x: Any, alpha: float) -> Any:
    return x / (1 + np.exp(-alpha * x))


_OLD = ("Softmax-1", "LogSoftmax-1", "Hardmax-1")
_PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Mish", "Gelu", "Elu", "Selu")
_PLAIN += ("Celu", "HardSigmoid", "LeakyRelu", "Shrink", "ThresholdedRelu", "Swish")

CASES = [
    *[Case(op, [X]) for op in _PLAIN],
    *[Case(op, [X.astype(np.float16)]) for op in _PLAIN if op != "Swish"],
    *[Case(op, [FAR]) for op in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "ThresholdedRelu")],
    Case("Relu", [np.int32([-1, 2])]),
    Case("Gelu", [X], 1, {"approximate": "tanh"}),
    *[Case(op, [X], 1, {"alpha": 0.3}) for op in ("Elu", "Celu", "LeakyRelu", "ThresholdedRelu")],
    Case("Selu", [X], 1, {"alpha": 2.0, "gamma": 3.0}),
    Case("HardSigmoid", [X], 1, {"alpha": 0.5, "beta": 0.6}),
    Case("Shrink", [X], 1, {"lambd": 1.5, "bias": 1.5}),
    Case("Shrink", [np.int32([-3, -1, 0, 2])], 1, {"lambd": 1.5, "bias": 1.0}),
    Case("Swish", [X], 1, {"alpha": 0.5}, wanted=_swish(X, 0.5)),
    Case("SwiGLU", [X, X[::-1].copy()], 2, version=28, wanted=_swish(X, 1) * X[::-1]),
    Case("SwiGLU", [X, X], 2, {"alpha": 2.0}, 28, wanted=_swish(X, 2) * X),
    Case("PRelu", [X, floats(3, 1)], 2),
    Case("PRelu", [np.int32([-3, 2]), np.int32(2)], 2),
    Case("PRelu", [X, floats(3)], 2, version=6, wanted=np.where(X < 0, X * floats(3)[:, None], X)),
    Case("PRelu", [X, floats(1)], 2, version=6, wanted=np.where(X < 0, X * floats(1), X)),
    *[Case(op, [X], 1, {"axis": a}) for op in ("Softmax", "LogSoftmax") for a in (-1, 0, 1)],
    *[Case(op, [X], 1, {}, 11) for op in ("Softmax", "LogSoftmax")],
    *[Case("Softmax", [X], 1, {"axis": a}, 12) for a in (0, 2, -1)],
    *[Case(op, [TIES], 1, {}, v) for op in ("Softmax", "LogSoftmax", "Hardmax") for v in (11, 13)],
    Case("Hardmax", [TIES], 1, {"axis": 0}),
    Case("Softmax", [1000 * X], 1),
]


@each_of("case", CASES, ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    if _of_matrices(case):
        check_traced_as_eager(case)
    else:
        check(case, 2e-3)


@each_of("op", [*_PLAIN, "Softmax"])
def test_bfloat16_is_traced_as_eager(op: str) -> None:
    found = check_traced_as_eager(Case(op, [X.astype(BFLOAT16)]))[0]
    exact = run(Case(op, [X.astype(BFLOAT16).astype(np.float32)]))[0]
    np.testing.assert_allclose(found.astype(np.float32), exact, 2**-8, 2**-8)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_was_of_matrices(axis: int) -> None:
    """Before version 13 the axes from `axis` on are one."""
    rows = X.reshape(int(np.prod(X.shape[:axis])), -1)
    powers = np.exp(rows.astype(np.float64))
    wanted = (powers / powers.sum(1, keepdims=True)).reshape(X.shape)
    found, newer = (run(Case("Softmax", [X], 1, {"axis": axis}, v))[0] for v in (11, 13))
    np.testing.assert_allclose(found, wanted, 1e-5)
    assert np.array_equal(found, newer) == (axis in (2, -1))


def test_every_row_has_a_case() -> None:
    assert uncovered(activations, CASES) == []
    assert uncovered(activations, [c for c in CASES if c.version >= 13]) == ["PRelu-1", *_OLD]
