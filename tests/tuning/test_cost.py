"""The cost model against cycles worked out by hand from neuron.md 6.3 (MIN_II 64, overhead 100)."""

from __future__ import annotations

import pytest

from neuronsim import api, dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.policy import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.ops import ConvolutionDimensions, DotDimensions, WindowDimension
from neuronsim.targets import TARGETS
from neuronsim.tuning.cost import Estimate, estimate

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
TENSOR, VECTOR, SCALAR, GPSIMD = 2.8e9, 1.12e9, 1.4e9, 1.4e9
TRN1 = TARGETS["trn1"]


def parameter(name: str, dtype: DType, dims: tuple[int, ...], number: int = 0) -> Instruction:
    return Instruction(name, "parameter", Shape(dtype, dims), (), {"number": number})


def cost_of(*instructions: Instruction, others: tuple[Computation, ...] = ()) -> Estimate:
    entry = Computation("main", instructions, instructions[-1].name)
    return estimate(Module("small", "main", (*others, entry)), 0, TRN1)


def unary(opcode: str, dtype: DType, n: int) -> Estimate:
    x = parameter("x", dtype, (128, n))
    return cost_of(x, Instruction("y", opcode, x.shape, ("x",)))


def binary(opcode: str, dtype: DType, n: int) -> Estimate:
    x = parameter("x", dtype, (128, n))
    return cost_of(x, Instruction("y", opcode, x.shape, ("x", "x")))


def dot(m: int, k: int, n: int, dtype: DType) -> Estimate:
    x, y = parameter("x", dtype, (m, k)), parameter("y", dtype, (k, n), 1)
    dims = {"dot_dimensions": DotDimensions((1,), (0,), (), ())}
    return cost_of(x, y, Instruction("z", "dot", Shape(F32, (m, n)), ("x", "y"), dims))


def reduce(dtype: DType, n: int) -> Estimate:
    scalar = Shape(dtype)
    a, b = parameter("a", dtype, ()), parameter("b", dtype, (), 1)
    add = Computation("add", (a, b, Instruction("c", "add", scalar, ("a", "b"))), "c")
    x, zero = parameter("x", dtype, (128, n)), parameter("zero", dtype, (), 1)
    attributes = {"dimensions": (1,), "called": ("add",)}
    result = Instruction("y", "reduce", Shape(dtype, (128,)), ("x", "zero"), attributes)
    return cost_of(x, zero, result, others=(add,))


@pytest.mark.parametrize(
    ("m", "k", "n", "cycles"),
    [
        # max(min(64, stationary), moving) for each tile of 128 x 512, once for 128 of the depth.
        (128, 128, 512, 512),
        (128, 128, 16, 64),  # 16 move past 128: min(64, 128)
        (16, 128, 16, 16),
        (128, 1024, 512, 8 * 512),
        (128, 129, 512, 2 * 512),
        (256, 128, 512, 2 * 512),
        (128, 128, 513, 512 + 64),  # the last column costs min(64, 128)
    ],
)
def test_a_matmul_of_bfloat16_takes_the_documented_cycles(m: int, k: int, n: int, cycles: int) -> None:
    assert dot(m, k, n, BF16).seconds == pytest.approx((100 + cycles) / TENSOR, rel=1e-12)


def test_a_matmul_of_float32_takes_four_passes() -> None:
    assert dot(128, 128, 512, F32).seconds == pytest.approx((100 + 4 * 512) / TENSOR, rel=1e-12)
    assert dot(128, 128, 512, F16).seconds == pytest.approx((100 + 512) / TENSOR, rel=1e-12)


def test_a_large_matmul_is_about_four_times_faster_in_bfloat16() -> None:
    # 4096^3 in 32 x 8 x 32 tiles of 512 cycles: 4.2 million cycles, 1.5 ms at 2.8 GHz.
    slow, fast = dot(4096, 4096, 4096, F32).seconds, dot(4096, 4096, 4096, BF16).seconds
    assert fast == pytest.approx(32 * 8 * 32 * 512 / TENSOR, rel=1e-3)
    assert slow / fast == pytest.approx(4.0, rel=1e-3)


def test_batched_matmuls_add_up() -> None:
    x, y = parameter("x", BF16, (6, 128, 128)), parameter("y", BF16, (6, 128, 512), 1)
    dims = {"dot_dimensions": DotDimensions((2,), (1,), (0,), (0,))}
    z = Instruction("z", "dot", Shape(F32, (6, 128, 512)), ("x", "y"), dims)
    assert cost_of(x, y, z).seconds == pytest.approx((100 + 6 * 512) / TENSOR, rel=1e-12)


@pytest.mark.parametrize(
    ("features", "outputs", "groups", "dtype", "cycles"),
    [
        # 14 x 14 positions: 128 kernels stay, 196 patches move, for each 128 of 9 x features terms.
        (128, 128, 1, BF16, 9 * 196),
        (128, 128, 1, F32, 4 * 9 * 196),
        (15, 128, 1, BF16, 2 * 196),
        (128, 256, 1, BF16, 9 * 2 * 196),
        # Two groups of 64: 576 terms each, and either side may stay: 128 + 68 patches, 64 kernels.
        (64, 128, 2, BF16, 2 * 5 * (64 + 64)),
        (1, 96, 96, BF16, 96 * (64 + 64)),  # depthwise: one column moves past 128 and 68 patches
    ],
)
def test_a_convolution_takes_the_cycles_of_its_patches(
    features: int, outputs: int, groups: int, dtype: DType, cycles: int
) -> None:
    x = parameter("x", dtype, (1, 14, 14, features * groups))
    w = parameter("w", dtype, (3, 3, features, outputs), 1)
    attributes = {
        "window": (WindowDimension(3, 1, (1, 1)),) * 2,
        "dimension_numbers": ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
        "feature_group_count": groups,
        "batch_group_count": 1,
    }
    y = Instruction("y", "convolution", Shape(F32, (1, 14, 14, outputs)), ("x", "w"), attributes)
    assert cost_of(x, w, y).seconds == pytest.approx((100 + cycles) / TENSOR, rel=1e-12)


def test_a_convolution_in_batch_groups_is_one_product_for_each() -> None:
    x, w = parameter("x", BF16, (8, 16, 128)), parameter("w", BF16, (1, 128, 256), 1)
    attributes = {
        "window": (WindowDimension(1),),
        "dimension_numbers": ConvolutionDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)),
        "feature_group_count": 1,
        "batch_group_count": 4,
    }
    y = Instruction("y", "convolution", Shape(F32, (2, 16, 256)), ("x", "w"), attributes)
    # 4 products of 32 patches, 128 terms and 64 kernels: 64 stay and 32 move, or 32 and 64.
    assert cost_of(x, w, y).seconds == pytest.approx((100 + 4 * 64) / TENSOR, rel=1e-12)


@pytest.mark.parametrize(("cast_type", "passes"), [("bf16", 1), ("fp16", 1), ("tf32", 1), (None, 4)])
def test_a_planned_matmul_has_the_passes_of_its_operand_type(
    cast_type: str | None, passes: int
) -> None:
    # HLO carries tfloat32 in float32: one pass is enough where the operands were rounded to it (C9).
    x, y = parameter("x", F32, (1024, 1024)), parameter("y", F32, (1024, 1024), 1)
    dims = {"dot_dimensions": DotDimensions((1,), (0,), (), ())}
    z = Instruction("z", "dot", Shape(F32, (1024, 1024)), ("x", "y"), dims)
    module = Module("small", "main", (Computation("main", (x, y, z), "z"),))
    policy = neuron_policy("none" if cast_type is None else "matmult", cast_type or "bf16")
    program = api.compile(module, plan=make_plan(module, policy))
    found = estimate(program.module, 0, TRN1).by_engine["tensor"]
    assert found == pytest.approx((100 + passes * 8 * 8 * 2 * 512) / TENSOR, rel=1e-12)


@pytest.mark.parametrize(("n", "cycles"), [(1, 64), (64, 64), (1000, 1000)])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_an_activation_takes_an_element_a_cycle(n: int, cycles: int, dtype: DType) -> None:
    found = unary("exponential", dtype, n)
    assert found.by_engine == {"scalar": pytest.approx((100 + cycles) / SCALAR, rel=1e-12)}


@pytest.mark.parametrize(
    ("opcode", "dtype", "n", "cycles"),
    [
        ("add", F32, 1000, 2000),
        ("add", F16, 1000, 2000),
        ("add", BF16, 1000, 1000),
        ("subtract", BF16, 1000, 1000),
        ("multiply", BF16, 1000, 1000),
        ("maximum", BF16, 1000, 2000),
        ("add", F32, 20, 64),
        ("add", BF16, 20, 64),
        ("divide", F32, 1000, 8000 + 2000),  # a reciprocal and a product
        ("divide", F32, 4, 64 + 64),
    ],
)
def test_two_tensors_take_the_documented_cycles(opcode: str, dtype: DType, n: int, cycles: int) -> None:
    found = binary(opcode, dtype, n)
    assert found.by_engine == {"vector": pytest.approx((100 + cycles) / VECTOR, rel=1e-12)}


def test_a_broadcast_scalar_makes_it_a_tensor_scalar() -> None:
    x, s = parameter("x", F32, (128, 1000)), parameter("s", F32, (), 1)
    wide = Instruction("w", "broadcast", x.shape, ("s",), {"dimensions": ()})
    found = cost_of(x, s, wide, Instruction("y", "multiply", x.shape, ("x", "w")))
    assert found.seconds == pytest.approx((100 + 1000) / VECTOR, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "n", "cycles"), [(F32, 1000, 1000), (F16, 1000, 1000), (BF16, 1000, 500), (BF16, 100, 64)]
)
def test_a_reduce_of_bfloat16_takes_half(dtype: DType, n: int, cycles: int) -> None:
    assert reduce(dtype, n).seconds == pytest.approx((100 + cycles) / VECTOR, rel=1e-12)


def test_elements_are_spread_over_128_partitions() -> None:
    one, next_one = (
        cost_of(p := parameter("x", F32, (n,)), Instruction("y", "tanh", p.shape, ("x",)))
        for n in (128 * 100, 128 * 100 + 1)
    )
    assert one.seconds == pytest.approx(200 / SCALAR, rel=1e-12)
    assert next_one.seconds == pytest.approx(201 / SCALAR, rel=1e-12)


def test_iota_runs_on_gpsimd() -> None:
    found = cost_of(Instruction("i", "iota", Shape(F32, (128, 10)), (), {"dimensions": (1,)}))
    assert found.by_engine == {"gpsimd": pytest.approx((150 + 10) / GPSIMD, rel=1e-12)}


def test_a_transpose_reads_and_writes_memory() -> None:
    x = parameter("x", F32, (256, 128))
    y = Instruction("y", "transpose", Shape(F32, (128, 256)), ("x",), {"dimensions": (1, 0)})
    found = cost_of(x, y)
    assert found.by_engine == {"dma": pytest.approx(2 * 4 * 256 * 128 / (410 * 2**30), rel=1e-12)}


def test_converts_are_free_after_an_engine_only() -> None:
    # neuron.md 4.2: an engine casts as it stores; a parameter must be copied to be cast.
    x = parameter("x", F32, (128, 1000))
    y = Instruction("y", "exponential", x.shape, ("x",))
    z = Instruction("z", "convert", Shape(BF16, (128, 1000)), ("y",))
    assert cost_of(x, y, z).seconds == cost_of(x, y).seconds
    copied = cost_of(x, Instruction("z", "convert", Shape(BF16, (128, 1000)), ("x",)))
    assert copied.seconds == pytest.approx((100 + 1000) / VECTOR, rel=1e-12)


@pytest.mark.parametrize("opcode", ["reshape", "broadcast"])
def test_moves_that_only_rename_are_free(opcode: str) -> None:
    x = parameter("x", F32, (128, 10))
    attributes = {"dimensions": (0, 1)} if opcode == "broadcast" else {}
    assert cost_of(x, Instruction("y", opcode, x.shape, ("x",), attributes)).seconds == 0.0


def test_the_time_is_that_of_the_weights_if_loading_them_is_longer() -> None:
    x = parameter("x", F32, (128, 10))
    y = Instruction("y", "tanh", x.shape, ("x",))
    module = Module("small", "main", (Computation("main", (x, y), "y"),))
    found = estimate(module, 410 * 2**30, TRN1)
    assert found.weight_seconds == found.seconds == 1.0
    assert found.by_engine["scalar"] == pytest.approx(164 / SCALAR, rel=1e-12)


def test_the_host_has_no_cost() -> None:
    x = parameter("x", F32, (128, 10))
    y = Instruction("y", "tanh", x.shape, ("x",))
    module = Module("small", "main", (Computation("main", (x, y), "y"),))
    assert estimate(module, 10**9, TARGETS["host"]) == Estimate(0.0, {}, 0.0)
