"""Slices and gathers of an array without dimensions: NumPy's indexing would make them scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops
from neuronsim.profiles import Profile

F32 = dtypes.float32
ONE, TWO = (ops.Bits(np.asarray(v, np.float32), F32) for v in (1, 2))
PAIR = ops.Bits(np.array([1, 2], np.float32), F32)
INDEX = ops.Bits(np.asarray(1, np.int32), dtypes.int32)
GATHER = {"gather_dimensions": ops.GatherDimensions((), (0,), (0,), (), (), 0), "slice_sizes": (1,)}


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "expected"),
    [
        pytest.param("dynamic_slice", [ONE], {"dynamic_slice_sizes": ()}, 1, id="dynamic-slice"),
        pytest.param("dynamic_update_slice", [ONE, TWO], {}, 2, id="dynamic-update-slice"),
        pytest.param("gather", [PAIR, INDEX], GATHER, 2, id="gather"),
    ],
)
def test_a_result_without_dimensions_is_an_array(
    name: str, operands: list[ops.Bits], attributes: dict[str, Any], expected: float
) -> None:
    found = ops.evaluate(ops.OPS[name], operands, attributes, ops.Setting(Profile()))
    assert isinstance(found[0].data, np.ndarray)
    assert found[0].data.shape == ()
    assert float(found[0].data) == expected
