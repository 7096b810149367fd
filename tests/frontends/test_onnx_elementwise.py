"""ONNX's elementwise operators: traced as eager, and right by ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.frontends.onnx_cases import (
    BFLOAT16,
    Case,
    check,
    check_traced_as_eager,
    expected,
    floats,
    onnx,
    run,
)
from tests.frontends.onnx_coverage import uncovered
from tests.support.parameters import each_of

from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.model import to_module
from neuronsim.frontends.onnx.operators import elementwise
from neuronsim.frontends.onnx.table import OPERATORS, Node, Row
from neuronsim.frontends.tracer import is_traced

NUMBERS = np.float32(
    [-np.inf, -300, -2.5, -1.5, -0.5, -0.0, 0, 1e-40, 0.5, 1, 2.5, 1e30, np.inf, np.nan]
)
SMALL = np.float32([-1, -0.75, -0.0, 0.25, 1])
LARGE = np.float32([1, 1.5, 30, 1e30])
A, B = floats(2, 3, 4), floats(3, 1, seed=1)
INTS = np.int32([[7, -7, 5], [-5, 6, 0]])
DIVISORS = np.int32([2, -3, 4])
BITS = np.uint8([[0, 1, 200], [255, 17, 3]])
MASK, OTHER = A > 0, B > 0
F8 = np.float32([0, -0.0, 1, 447, 463, 466, 1e5, -1e6, np.inf, -np.inf, np.nan])
EIGHT_BITS = F8.astype(ml_dtypes.float8_e5m2)
TYPE = onnx.TensorProto

_UNARY = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Reciprocal", "Round", "Sign", "Sin")
_UNARY += ("Sinh", "Cosh", "Tan", "Atan", "Asinh")
_BINARY = ("Add", "Sub", "Mul", "Div")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

CASES = [
    *[Case(op, [NUMBERS]) for op in _UNARY],
    *[Case(op, [A.astype(t)]) for op in ("Abs", "Exp", "Sin") for t in (np.float16, np.float64)],
    *[Case(op, [SMALL]) for op in ("Acos", "Asin", "Atanh")],
    *[Case(op, [LARGE]) for op in ("Acosh", "Log", "Sqrt")],
    *[Case(op, [INTS]) for op in ("Abs", "Neg", "Sign")],
    *[Case(op, [A, B], 2) for op in (*_BINARY, *_COMPARISONS)],
    *[Case(op, [A.astype(t), B.astype(t)], 2) for op in _BINARY for t in (np.float16, np.float64)],
    *[Case(op, [INTS, DIVISORS], 2) for op in (*_BINARY, *_COMPARISONS)],
    *[Case(op, [NUMBERS, NUMBERS[::-1].copy()], 2) for op in _COMPARISONS],
    *[Case(op, [MASK, OTHER], 2) for op in ("And", "Or", "Xor", "Equal")],
    *[Case(op, [INTS, DIVISORS], 2) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")],
    Case("BitwiseNot", [INTS]),
    Case("Not", [MASK]),
    Case("Not", [MASK], version=1),
    Case("Identity", [NUMBERS]),
    Case("Where", [MASK, A, B], 3),
    Case("Where", [INTS > 0, INTS, DIVISORS], 3),
    *[Case("Mod", [INTS, DIVISORS], 2, {"fmod": f}) for f in (0, 1)],
    Case("Mod", [BITS, np.uint8(7)], 2),
    Case("Mod", [A, B], 2, {"fmod": 1}),
    Case("Mod", [A, B], 2, version=28, wanted=np.mod(A, B)),
    *[Case("Pow", [abs(A), np.float32(p)]) for p in (2, 0.5, -1)],
    Case("Pow", [abs(A), B], 2),
    Case("Pow", [A, np.float32([2])], 2),
    Case("Pow", [A, np.int64([1, 2, 3, 2])], 2),
    Case("Pow", [INTS, np.int64(3)]),
    Case("Pow", [INTS, np.float32(3)]),
    *[Case(op, [A, B, np.float32(0.1)], 3) for op in ("Max", "Min", "Sum", "Mean")],
    *[Case(op, [INTS, DIVISORS], 2) for op in ("Max", "Min")],
    Case("Max", [A], 1),
    Case("Clip", [A], attributes={"min": -0.5, "max": 0.25}, version=6),
    Case("Clip", [A], version=6, wanted=A),
    Case("Clip", [A, np.float32(-0.5), np.float32(0.25)], 3),
    Case("Clip", [A, None, np.float32(0.25)]),
    Case("Clip", [INTS, np.int32(-3)]),
    *[Case("BitShift", [BITS, np.uint8([1, 2, 7])], 2, {"direction": d}) for d in ("LEFT", "RIGHT")],
    Case("BitShift", [INTS, np.int32(1)], 2, {"direction": "RIGHT"}, 28, wanted=INTS >> 1),
    *[
        Case("BitCast", [x], 1, {"to": to}, 26, wanted=x.view(t))
        for x, to, t in (
            (A, TYPE.INT32, np.int32),
            (INTS, TYPE.FLOAT, np.float32),
            (A.astype(np.float16), TYPE.UINT16, np.uint16),
        )
    ],
    Case("BitCast", [MASK], 1, {"to": TYPE.UINT8}, 26, wanted=MASK.view(np.uint8)),
    Case("IsNaN", [NUMBERS]),
    Case("IsInf", [NUMBERS]),
    *[
        Case("IsInf", [NUMBERS], 1, {"detect_negative": n, "detect_positive": p})
        for n, p in ((0, 1), (1, 0), (0, 0))
    ],
    Case("IsNaN", [EIGHT_BITS], wanted=np.isnan(EIGHT_BITS)),
    Case("IsInf", [EIGHT_BITS], wanted=np.isinf(EIGHT_BITS)),
    *[Case("Cast", [np.float32([-1.5, 0, 2.75, 100])], 1, {"to": t}) for t in (
        *(TYPE.FLOAT16, TYPE.BFLOAT16, TYPE.DOUBLE, TYPE.INT32, TYPE.INT64, TYPE.INT8, TYPE.BOOL),
    )],
    *[Case("Cast", [INTS], 1, {"to": t}) for t in (TYPE.UINT8, TYPE.FLOAT, TYPE.BOOL, TYPE.INT64)],
    Case("Cast", [A.astype(BFLOAT16)], 1, {"to": TYPE.FLOAT}),
    *[
        Case("Cast", [F8], 1, {"to": to, "saturate": s})
        for to in (TYPE.FLOAT8E4M3FN, TYPE.FLOAT8E5M2)
        for s in (0, 1)
    ],
    Case("CastLike", [A, np.float16(0)], 2),
    *[
        Case(op, [A, B[:, 0]], 2, {"broadcast": 1, "axis": 1}, 6, wanted=f(A, B))
        for op, f in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide))
    ],
    *[
        Case(op, [A, A[0, 0]], 2, {"broadcast": 1}, 6, wanted=f(A, A[0, 0]))
        for op, f in (("Equal", np.equal), ("Less", np.less), ("Greater", np.greater))
    ],
    *[
        Case(op, [MASK, MASK[0]], 2, {"broadcast": 1, "axis": -2}, 6, wanted=f(MASK, MASK[0]))
        for op, f in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor))
    ],
    Case("Pow", [abs(A), B[:, 0]], 2, {"broadcast": 1, "axis": 1}, 6, wanted=abs(A) ** B),
]  # fmt: skip


@each_of("case", CASES, ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    check(case, 1e-3)


def test_every_row_has_a_case() -> None:
    assert uncovered(elementwise, CASES) == []
    assert "Add-7" in uncovered(elementwise, [c for c in CASES if c.op_type != "Add"])


@pytest.mark.parametrize(
    ("op", "inputs", "opcodes"),
    [
        ("IsNaN", [A], ["compare"]),
        ("Div", [INTS, DIVISORS], ["broadcast", "divide"]),
        ("Pow", [A, np.float32(2)], ["multiply"]),
        ("Mul", [A, A], ["multiply"]),
    ],
)
def test_what_is_recorded(op: str, inputs: list[Any], opcodes: list[str]) -> None:
    case = Case(op, inputs)
    known = {f"x{n}": x for n, x in enumerate(inputs) if np.ndim(x) == 0}
    module = to_module(case.model, input_values=known)
    entry = module.entry_computation
    assert [i.opcode for i in entry.instructions if i.opcode != "parameter"] == opcodes


def test_a_row_that_is_traced_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def plus_one(node: Node, x: Array) -> Array:
        return x + (1 if is_traced(x.bits) else 2)

    monkeypatch.setitem(OPERATORS, ("", "PlusOne"), [Row("PlusOne", 1, "", plus_one)])
    with pytest.raises(AssertionError):
        check_traced_as_eager(Case("PlusOne", [A]))


def test_remainders_are_told_apart() -> None:
    (python,), (c,) = (expected(Case("Mod", [INTS, DIVISORS], 2, {"fmod": f})) for f in (0, 1))
    assert (python != c).any()
    np.testing.assert_array_equal(run(Case("Mod", [INTS, DIVISORS], 2))[0], python)


def test_bits_of_another_width_are_refused() -> None:
    with pytest.raises(InvalidModel, match="as many bits"):
        run(Case("BitCast", [A], 1, {"to": TYPE.DOUBLE}, 26))
