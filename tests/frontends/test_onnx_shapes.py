"""ONNX's operators of shapes and data: traced as eager, and right by ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import BFLOAT16, Case, check, floats, ints, run
from tests.support.parameters import each_of

from neuronsim.errors import InvalidArgument, InvalidModel

X = floats(2, 3, 4)
F16 = floats(2, 3, 4, dtype=np.float16)
INTS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def _scattered() -> Any:
    found = X.copy()
    found[0, [1, 0, 2, 0], range(4)] = floats(1, 1, 4)
    return found


CASES = [
    Case("Reshape", [X, ints(0, -1)]),
    Case("Reshape", [np.zeros((0, 3), np.float32), ints(3, 0)], attributes={"allowzero": 1}),
    Case("Flatten", [X], attributes={"axis": -1}),
    Case("Flatten", [X], attributes={"axis": 0}),
    Case("Transpose", [X]),
    Case("Transpose", [INTS], attributes={"perm": [1, 2, 0]}),
    Case("Concat", [X, X[:, :1], X], 3, {"axis": -2}),
    Case("Concat", [X, floats(2, 3, 1)], 1, {"axis": 2}),
    Case("Split", [X], attributes={"axis": 2, "num_outputs": 3}, version=18, outputs=3),
    Case("Split", [X, ints(1, 3)], attributes={"axis": 2}, outputs=2),
    Case("Split", [X], attributes={"axis": 2, "split": [3, 1]}, version=11, outputs=2),
    Case("Slice", [X, ints(-1, 0), ints(-9, 2), ints(2, 0), ints(-2, 1)]),
    Case("Slice", [X, ints(1), ints(2**31 - 1)]),
    Case("Slice", [X, ints(3), ints(1), ints(2)]),
    Case("Slice", [X], attributes={"starts": [1, 0], "ends": [-1, 9], "axes": [1, 2]}, version=9),
    Case("Squeeze", [floats(1, 3, 1), ints(-1)]),
    Case("Squeeze", [floats(1, 3, 1)]),
    Case("Squeeze", [floats(1, 3, 1)], attributes={"axes": [0]}, version=11),
    Case("Unsqueeze", [X, ints(-1, 0)]),
    Case("Unsqueeze", [X], attributes={"axes": [1, 3]}, version=11),
    Case("Expand", [floats(3, 1), ints(2, 1, 4)]),
    Case("Tile", [X, ints(1, 2, 3)]),
    Case("Trilu", [X, ints(1)]),
    Case("Trilu", [F16, ints(-1)], attributes={"upper": 0}),
    Case("OneHot", [ints(1, -1, 7), np.int64(3), np.float32([0.5, 2])], attributes={"axis": 0}),
    Case("OneHot", [np.float32([1, 2]), np.int64(4), floats(2)]),
    Case("DepthToSpace", [floats(1, 8, 2, 3)], attributes={"blocksize": 2, "mode": "CRD"}),
    Case("DepthToSpace", [floats(1, 8, 2, 3)], attributes={"blocksize": 2}),
    Case("SpaceToDepth", [floats(1, 2, 4, 6)], attributes={"blocksize": 2}),
    Case("Gather", [X, ints(2, -1, 0)], attributes={"axis": 1}),
    Case("Gather", [X, np.int64(1)], attributes={"axis": -1}),
    Case("Gather", [floats(5, 3).astype(BFLOAT16), ints([1, -2], [0, 4])], 2),
    Case("Gather", [X, ints(1, 1)], 2, {"axis": 2}),
    Case("GatherElements", [X, ints([[0, -1]])], 2, {"axis": 2}, wanted=X[:1, :1, [0, -1]]),
    Case("GatherElements", [X, ints([[0, -1]])], 1, {"axis": 1},
         wanted=X[:1, [[0, -1]], [0, 1]]),
    Case("GatherND", [X, ints([1, 2], [0, -1])], 2),
    Case("GatherND", [X, ints([1], [-1])], 1, {"batch_dims": 1}),
    Case("ScatterElements", [X, ints([[1, 0, 2, 0]]), floats(1, 1, 4)], 3, {"axis": 1}),
    *(
        Case("ScatterElements", [x, ints([[1, 1, 1, -1]]), x[:1, 1:2]], 3,
             {"axis": 1, "reduction": reduction}, 18)
        for x in (X, INTS)
        for reduction in ("add", "mul", "min", "max")
    ),
    Case("Scatter", [X, ints([[1, 0, 2, 0]]), floats(1, 1, 4)], 3, {"axis": 1}, version=9,
         wanted=_scattered()),
    Case("ScatterND", [X, ints([1, 2], [0, -1]), floats(2, 4)], 3),
    Case("ScatterND", [F16, ints([1], [1]), F16], 3, {"reduction": "add"}),
    Case("Pad", [X, ints(1, -1, 0, 0, 2, 1), np.float32(7)],
         wanted=np.pad(X[:, 1:], [(1, 0), (0, 2), (0, 1)], constant_values=7)),
    Case("Pad", [X, ints(1, 2), None, ints(2)], attributes={"mode": "edge"}),
    Case("Pad", [X, ints(3, 2), None, ints(-1)], attributes={"mode": "reflect"}),
    Case("Pad", [X, ints(5, 6), None, ints(1)], attributes={"mode": "wrap"}),
    Case("CenterCropPad", [floats(4, 7), ints(6, 4)]),
    Case("TopK", [X, ints(2)], attributes={"axis": 1}, outputs=2),
    Case("TopK", [INTS, ints(3)], attributes={"largest": 0}, outputs=2),
    Case("Compress", [X, np.array([True, False, True])], attributes={"axis": 1}),
    Case("Compress", [X, np.array([False, True, True])]),
    Case("ReverseSequence", [X, ints(1, 3, 2)], 2, {"batch_axis": 1, "time_axis": 2}),
    Case("ReverseSequence", [X, ints(1, 2, 2)], 2, {"batch_axis": 1, "time_axis": 0}),
    Case("Col2Im", [floats(1, 8, 6), ints(3, 4), ints(2, 2)]),
    Case("Col2Im", [floats(1, 4, 12), ints(4, 4), ints(2, 2)],
         attributes={"dilations": [1, 2], "pads": [0, 1, 0, 1], "strides": [1, 1]}),
]  # fmt: skip


KNOWN = [
    Case("Constant", [], 0, {"value_floats": [1.0, 2.0]}),
    Case("Constant", [], 0, {"value_int": 3}),
    Case("ConstantOfShape", [ints(2, 3)], 0),
    Case("Shape", [X], 1, {"start": -2, "end": 9}),
    Case("Size", [X], 1),
    Case("EyeLike", [floats(3, 4)], 1, {"k": -1, "dtype": 7}),
    Case("Range", [np.float32(1), np.float32(2), np.float32(0.25)], 0),
    Case("Range", [np.int64(9), np.int64(1), np.int64(-3)], 0),
    Case("NonZero", [INTS % 5], 0),
    Case("Unique", [INTS % 5], 0, {"sorted": 1}, outputs=4),
    Case("Unique", [np.float32([[2, 1, 2], [1, 1, 1]])], 0, {"axis": 1}, outputs=4),
    Case("NonMaxSuppression", [abs(floats(1, 6, 4)), floats(1, 2, 6), ints(2), np.float32([0.3])], 0),
]


@each_of("case", [*CASES, *KNOWN], ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        Case("NonZero", [X]),
        Case("Compress", [X, np.array([True, False, True])], 2),
        Case("Reshape", [X, ints(2, 12)], 2),
        Case("TopK", [X, ints(2)], 2, outputs=2),
    ],
    ids=str,
)
def test_an_unknown_value_is_named(case: Case) -> None:
    with pytest.raises(InvalidArgument, match=r"input_values=\{'x[01]'"):
        run(case)


@each_of(
    "case",
    [
        Case("Reshape", [X, ints(-1, -1)]),
        Case("Concat", [X, X.astype(np.float16)], 2, {"axis": 0}),
        Case("Gather", [X, ints(3)], attributes={"axis": 1}),
        Case("Split", [X, ints(1, 1)], attributes={"axis": 2}, outputs=2),
        Case("Squeeze", [X, ints(0)]),
        Case("Slice", [X, ints(0), ints(1), ints(0), ints(0)]),
        Case("Transpose", [X], attributes={"perm": [0, 0, 1]}),
        Case("Expand", [X, ints(5)]),
        Case("Split", [X], attributes={"axis": 2, "num_outputs": 2**40}, version=18, outputs=2),
        Case("Pad", [X, ints(1, 2), None, ints(0, 0)]),
        Case("Col2Im", [floats(1, 8, 6), ints(3, 4), ints(2, 2)], attributes={"strides": [1]}),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_an_error_of_the_node(case: Case) -> None:
    with pytest.raises((InvalidArgument, InvalidModel), match="node"):
        run(case)
