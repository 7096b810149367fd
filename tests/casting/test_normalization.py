"""Plans of batch norms, which give several results, and of random numbers (A2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.casting.reading import read_module, rounded
from tests.support.graphs import inst, module_of, parameter
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo.module import Instruction, Module, Shape, TupleShape
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

F32, BF16, TF32, U32, U64 = (
    dtypes.float32, dtypes.bfloat16, dtypes.tfloat32, dtypes.uint32, dtypes.uint64,
)  # fmt: skip
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
IMAGES, CHANNELS = Shape(F32, (6, 4, 3)), Shape(F32, (3,))
SEVERAL = TupleShape((IMAGES, CHANNELS, CHANNELS))


def module(opcode: str, shape: Any, *operands: Shape) -> Module:
    given = [parameter(f"p{n}", s, n) for n, s in enumerate(operands)]
    attributes = {"epsilon": float(np.float32(1e-3)), "feature_index": 2}
    return module_of(*given, inst("norm", opcode, shape, *(p.name for p in given), **attributes))


def applied(model: Module, auto_cast: str, cast_type: str) -> Module:
    result = apply_plan(model, make_plan(model, neuron_policy(auto_cast, cast_type)))  # type: ignore[arg-type]
    verify(result)
    return result


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(module("batch-norm-training", SEVERAL, IMAGES, CHANNELS, CHANNELS), id="training"),
        pytest.param(module("batch-norm-inference", IMAGES, IMAGES, *[CHANNELS] * 4), id="inference"),
        pytest.param(module("batch-norm-grad", SEVERAL, IMAGES, *[CHANNELS] * 3, IMAGES), id="grad"),
    ],
)
@TYPES
def test_batch_norm_reads_and_gives_rounded_values_A2(model: Module, cast_type: str) -> None:
    rng = np.random.default_rng(7)
    inputs = [rng.uniform(0.5, 2, p.array.dims).astype(np.float32) for p in model.parameters]

    def in_float32(i: Instruction, v: list[Any]) -> Any:
        """R7: float32 steps, each result rounded once."""
        operands, setting = [ops.Bits(x, F32) for x in v], ops.Setting(Profile())
        found = ops.evaluate(row(i), operands, row_attributes(model, i), setting, i.result)
        return tuple(b.data for b in found) if isinstance(i.shape, TupleShape) else found[0].data

    low = CAST_TYPES[cast_type]
    functions = {model.root.opcode: in_float32}
    expected = read_module(model, inputs, low, "all", **functions)
    result = applied(model, "all", cast_type)
    got = execute(result, [ops.Bits(x, F32) for x in inputs])
    values = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    for x, y in values:
        assert x.dtype is F32
        np.testing.assert_array_equal(x.data, y)
    types = {s.dtype for i in result.entry_computation.instructions for s in i.shape.arrays()}
    assert types == ({F32} if low is TF32 else {F32, low})
    assert applied(model, "matmult", cast_type) == model


@TYPES
def test_random_numbers_are_rounded_and_generators_keep_their_bits_A2(cast_type: str) -> None:
    low = CAST_TYPES[cast_type]
    both = TupleShape((Shape(U64, (2,)), Shape(U32, (8,))))
    model = module_of(
        *(parameter("a", ()), parameter("b", (), 1), parameter("s", both.elements[0], 2)),
        inst("u", "rng", (64,), "a", "b", distribution="RNG_UNIFORM"),
        inst("g", "rng-bit-generator", both, "s", rng_algorithm="RNG_PHILOX"),
        inst("out", "tuple", TupleShape((Shape(F32, (64,)), both)), "u", "g"),
    )
    result = applied(model, "all", cast_type)
    by_name = result.entry_computation.by_name
    assert by_name["g"] is model.entry_computation.by_name["g"]
    assert by_name["u"].array.dtype is (F32 if low is TF32 else low)
    assert result.root.shape == model.root.shape
    inputs = [ops.Bits(np.asarray(v, np.float32), F32) for v in (-1.0, 1.0)]
    inputs.append(ops.Bits(np.array([1, 2], np.uint64), U64))
    drawn, _ = execute(result, inputs)
    np.testing.assert_array_equal(drawn.data, rounded(drawn.data, low))
    assert len(np.unique(drawn.data)) > 8
