"""What auto-cast does to a convolution (A1, A2)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.graphs import module_of

from neuronsim import api, dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Module, Shape
from neuronsim.ops import ConvolutionDimensions, WindowDimension

F32, BF16 = dtypes.float32, dtypes.bfloat16


@pytest.fixture(scope="module")
def model() -> Module:
    """One float32 convolution with everything that it can have."""
    attributes = {
        "window": (WindowDimension(3, 2, (1, -2), 2, 1, True), WindowDimension(2, 1, (0, 3), 1, 3)),
        "dimension_numbers": ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
        "feature_group_count": 2,
        "batch_group_count": 1,
    }
    x, w = (
        Instruction(name, "parameter", Shape(F32, dims), (), {"number": number})
        for number, (name, dims) in enumerate({"x": (2, 9, 8, 6), "w": (3, 2, 3, 4)}.items())
    )
    shape = Shape(F32, (2, 7, 8, 4))
    return module_of(x, w, Instruction("c", "convolution", shape, ("x", "w"), attributes))


@pytest.mark.parametrize(("cast_type", "dtype"), [("bf16", BF16), ("fp16", dtypes.float16)])
def test_convolution_A1_rounds_both_operands_and_keeps_float32(
    cast_type: str, dtype: DType, model: Module
) -> None:
    program = api.compile(model, auto_cast="matmult", auto_cast_type=cast_type)
    planned = program.module.entry_computation.by_name
    c = planned["c"]
    assert c.array.dtype is F32
    assert [planned[o].array.dtype for o in c.operands] == [dtype, dtype]
    stated = {n: v for n, v in c.attributes.items() if n != "frontend_attributes"}
    assert stated == model.root.attributes
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(i.array.dims).astype(np.float32) for i in model.parameters)
    rounded = [v.astype(dtype.numpy).astype(np.float32) for v in (x, w)]
    plain = np.asarray(api.compile(model, auto_cast="none")(*rounded))
    np.testing.assert_array_equal(np.asarray(program(x, w)), plain)
    assert np.any(plain != np.asarray(api.compile(model, auto_cast="none")(x, w)))


def test_convolution_A1_tf32_goes_through_reduce_precision(model: Module) -> None:
    planned = api.compile(model, auto_cast="matmult", auto_cast_type="tf32").module.entry_computation
    c = planned.by_name["c"]
    assert [planned.by_name[o].opcode for o in c.operands] == ["reduce-precision"] * 2
    assert c.array.dtype is F32


def test_convolution_A2_rounds_its_result_too(model: Module) -> None:
    planned = api.compile(model, auto_cast="all", auto_cast_type="bf16").module.entry_computation
    assert planned.by_name["c"].array.dtype is BF16
    assert planned.by_name[planned.root].array.dtype is F32  # entry results keep their types
