"""AWS's formulas and peaks, worked out by hand from its documentation (neuron.md 6.1 and 6.3)."""

from __future__ import annotations

import pytest
from tests.support.graphs import parameter
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.ops import DotDimensions
from neuronsim.targets import TARGETS, Target
from neuronsim.tuning.cost import estimate
from neuronsim.tuning.engine_formulas import (
    FLOAT32_PASSES,
    engine_cycles,
    matmul_cycles,
    product_cycles,
)

pytestmark = pytest.mark.isa_independent


def peak_flops(target: Target, dtype: DType = dtypes.bfloat16) -> float:
    """Operations a second of products that the tensor engine has at most; 0 where it has none. Of INT8
    they are as many as of bfloat16 where the target does not run them.
    """
    rate = target.int8_rate if dtype is dtypes.int8 and target.runs_int8 else 1.0
    if "tensor" in target.clocks:
        passes = FLOAT32_PASSES if dtype is dtypes.float32 else 1 / rate
        return 2 * target.partitions**2 * target.clocks["tensor"] * 1e9 / passes
    computes = target.computes_with(dtype, "tensor", "dot")
    return rate * target.rates.get("tensor", 0.0) if computes else 0.0


@each_of(
    ("instruction", "facts", "small", "large"),
    [
        # cycles of 10 and of 1000 elements of a partition
        ("activation", {}, 64, 1000),
        ("activation_reduce", {}, 128, 1064),
        ("tensor_scalar", {}, 64, 1000),
        ("tensor_scalar_reduce", {}, 128, 1064),
        ("tensor_tensor", {}, 64, 2000),
        ("tensor_tensor", {"psum": True}, 64, 1000),
        ("tensor_tensor", {"bfloat16": True, "operation": "add"}, 64, 1000),
        ("tensor_tensor", {"bfloat16": True, "operation": "multiply"}, 64, 1000),
        ("tensor_tensor", {"bfloat16": True, "operation": "subtract"}, 64, 1000),
        ("tensor_tensor", {"bfloat16": True, "operation": "maximum"}, 64, 2000),
        ("tensor_tensor", {"operation": "add"}, 64, 2000),
        ("scalar_tensor_tensor", {"bfloat16": True, "operation": "subtract multiply"}, 10, 1000),
        ("scalar_tensor_tensor", {"bfloat16": True, "operation": "add multiply"}, 20, 2000),
        ("scalar_tensor_tensor", {"operation": "subtract multiply"}, 20, 2000),
        ("tensor_reduce", {}, 10, 1000),
        ("tensor_reduce", {"bfloat16": True, "operation": "add"}, 5, 500),
        ("tensor_reduce", {"bfloat16": True, "operation": "maximum"}, 5, 500),
        ("tensor_reduce", {"bfloat16": True, "operation": "multiply"}, 10, 1000),
        ("tensor_tensor_scan", {}, 64, 2000),
        ("reciprocal", {}, 80, 8000),
        ("bn_stats", {}, 64, 1000),
        ("bn_aggr", {}, 64, 13 * 1000 / 3),
        ("max8", {}, 64, 1000),
        ("copy_predicated", {}, 64, 2000),
        ("copy_predicated", {"psum": True}, 64, 1000),
        ("vector_transpose", {}, 64, 1000),
        ("memset", {}, 64, 1000),
        ("memset", {"bfloat16": True}, 64, 500),
        ("iota", {}, 150 - 100 + 10, 150 - 100 + 1000),  # 100 of the 150 are every instruction's
        ("affine_select", {}, 150 - 100 + 10, 150 - 100 + 1000),
        ("tensor_copy_dynamic", {}, 600, 1000),
    ],
)
def test_each_instruction_has_its_documented_cycles(
    instruction: str, facts: dict[str, object], small: float, large: float
) -> None:
    assert engine_cycles(instruction, 10, **facts) == pytest.approx(small)  # type: ignore[arg-type]
    assert engine_cycles(instruction, 1000, **facts) == pytest.approx(large)  # type: ignore[arg-type]


def test_an_instruction_without_a_formula_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="'tensor_sine' has no documented formula"):
        engine_cycles("tensor_sine", 10)


def test_a_matmul_of_the_tensor_engine() -> None:
    assert [matmul_cycles(s, m) for s, m in ((128, 512), (128, 16), (16, 16), (32, 16))] == [
        *(512, 64, 16, 32)
    ]
    assert matmul_cycles(128, 512, passes=4) == 2048


def test_a_product_takes_either_operand_as_the_stationary_one() -> None:
    # 512 rows past 100 columns: 512; or 4 tiles of 128 rows, past which 100 columns move: 400.
    assert product_cycles(1, 512, 128, 100, passes=1, partitions=128) == 400
    assert product_cycles(1, 100, 128, 512, passes=1, partitions=128) == 400


@pytest.mark.parametrize(
    ("dtype", "teraflops"),
    [
        (dtypes.bfloat16, 91.75),
        (dtypes.float16, 91.75),
        (dtypes.tfloat32, 91.75),
        (dtypes.float8_e4m3, 91.75),
        (dtypes.float32, 22.94),
    ],
)
def test_the_peaks_are_those_that_aws_states(dtype: DType, teraflops: float) -> None:
    # AWS: "over 90" TFLOPS (92), and 23 of float32.
    assert peak_flops(TARGETS["trn1"], dtype) / 1e12 == pytest.approx(teraflops, abs=0.01)


@pytest.mark.parametrize(("dtype", "peak"), [(dtypes.bfloat16, 92e12), (dtypes.float32, 23e12)])
def test_a_large_product_reaches_the_peak_in_its_estimate(dtype: DType, peak: float) -> None:
    x, y = (parameter("x", (8192, 8192), dtype=dtype), parameter("y", (8192, 8192), 1, dtype=dtype))
    dims = {"dot_dimensions": DotDimensions((1,), (0,), (), ())}
    z = Instruction("z", "dot", Shape(dtypes.float32, (8192, 8192)), ("x", "y"), dims)
    found = estimate(
        Module("large", "main", (Computation("main", (x, y, z), "z"),)), 0, TARGETS["trn1"]
    )
    assert found.flops == 2 * 8192**3
    assert found.flops / found.by_engine["tensor"] == pytest.approx(peak, rel=0.005)
    assert found.bound == "tensor"


def test_inf1_has_its_published_rate_for_narrow_products_alone() -> None:
    assert peak_flops(TARGETS["inf1"], dtypes.bfloat16) == 16e12
    assert peak_flops(TARGETS["inf1"], dtypes.float32) == 0.0
    assert peak_flops(TARGETS["host"]) == 0.0
