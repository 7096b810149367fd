"""The cost model against cycles worked out by hand from neuron.md 6.3 (MIN_II 64, overhead 100)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.graphs import parameter
from tests.support.parameters import each_of

import neuronsim
from neuronsim import api, dtypes
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.hlo.parse import from_text
from neuronsim.ops import ConvolutionDimensions, DotDimensions, WindowDimension
from neuronsim.targets import TARGETS
from neuronsim.tuning.cost import Estimate, estimate
from neuronsim.tuning.loop_facts import loop_facts
from neuronsim.tuning.rungs import LADDER

pytestmark = pytest.mark.isa_independent

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
TENSOR, VECTOR, SCALAR, GPSIMD = 2.8e9, 1.12e9, 1.4e9, 1.4e9
TRN1 = TARGETS["trn1"]


def cost_of(*instructions: Instruction, others: tuple[Computation, ...] = ()) -> Estimate:
    entry = Computation("main", instructions, instructions[-1].name)
    return estimate(Module("small", "main", (*others, entry)), 0, TRN1)


def busy(found: Estimate) -> float:
    """The seconds of all engines, whatever the memory takes."""
    return sum(found.by_engine.values())


def unary(opcode: str, dtype: DType, n: int) -> Estimate:
    x = parameter("x", (128, n), dtype=dtype)
    return cost_of(x, Instruction("y", opcode, x.shape, ("x",)))


def binary(opcode: str, dtype: DType, n: int) -> Estimate:
    x = parameter("x", (128, n), dtype=dtype)
    return cost_of(x, Instruction("y", opcode, x.shape, ("x", "x")))


def dot(m: int, k: int, n: int, dtype: DType) -> Estimate:
    x, y = parameter("x", (m, k), dtype=dtype), parameter("y", (k, n), 1, dtype=dtype)
    dims = {"dot_dimensions": DotDimensions((1,), (0,), (), ())}
    return cost_of(x, y, Instruction("z", "dot", Shape(F32, (m, n)), ("x", "y"), dims))


def reduce(dtype: DType, n: int) -> Estimate:
    scalar = Shape(dtype)
    a, b = parameter("a", (), dtype=dtype), parameter("b", (), 1, dtype=dtype)
    add = Computation("add", (a, b, Instruction("c", "add", scalar, ("a", "b"))), "c")
    x, zero = parameter("x", (128, n), dtype=dtype), parameter("zero", (), 1, dtype=dtype)
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
    assert dot(m, k, n, BF16).by_engine["tensor"] == pytest.approx((100 + cycles) / TENSOR, rel=1e-12)


def test_a_matmul_of_float32_takes_four_passes() -> None:
    assert dot(128, 128, 512, F32).by_engine["tensor"] == pytest.approx(
        (100 + 4 * 512) / TENSOR, rel=1e-12
    )
    assert dot(128, 128, 512, F16).by_engine["tensor"] == pytest.approx((100 + 512) / TENSOR, rel=1e-12)


def test_a_large_matmul_is_about_four_times_faster_in_bfloat16() -> None:
    # 4096^3 in 32 x 8 x 32 tiles of 512 cycles: 4.2 million cycles, 1.5 ms at 2.8 GHz.
    slow, fast = (dot(4096, 4096, 4096, t).by_engine["tensor"] for t in (F32, BF16))
    assert fast == pytest.approx(32 * 8 * 32 * 512 / TENSOR, rel=1e-3)
    assert slow / fast == pytest.approx(4.0, rel=1e-3)


def test_batched_matmuls_add_up() -> None:
    x, y = parameter("x", (6, 128, 128), dtype=BF16), parameter("y", (6, 128, 512), 1, dtype=BF16)
    dims = {"dot_dimensions": DotDimensions((2,), (1,), (0,), (0,))}
    z = Instruction("z", "dot", Shape(F32, (6, 128, 512)), ("x", "y"), dims)
    assert cost_of(x, y, z).by_engine["tensor"] == pytest.approx((100 + 6 * 512) / TENSOR, rel=1e-12)


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
    x = parameter("x", (1, 14, 14, features * groups), dtype=dtype)
    w = parameter("w", (3, 3, features, outputs), 1, dtype=dtype)
    attributes = {
        "window": (WindowDimension(3, 1, (1, 1)),) * 2,
        "dimension_numbers": ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
        "feature_group_count": groups,
        "batch_group_count": 1,
    }
    y = Instruction("y", "convolution", Shape(F32, (1, 14, 14, outputs)), ("x", "w"), attributes)
    assert cost_of(x, w, y).by_engine["tensor"] == pytest.approx((100 + cycles) / TENSOR, rel=1e-12)


def test_a_convolution_in_batch_groups_is_one_product_for_each() -> None:
    x, w = parameter("x", (8, 16, 128), dtype=BF16), parameter("w", (1, 128, 256), 1, dtype=BF16)
    attributes = {
        "window": (WindowDimension(1),),
        "dimension_numbers": ConvolutionDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)),
        "feature_group_count": 1,
        "batch_group_count": 4,
    }
    y = Instruction("y", "convolution", Shape(F32, (2, 16, 256)), ("x", "w"), attributes)
    # 4 products of 32 patches, 128 terms and 64 kernels: 64 stay and 32 move, or 32 and 64.
    assert cost_of(x, w, y).by_engine["tensor"] == pytest.approx((100 + 4 * 64) / TENSOR, rel=1e-12)


@pytest.mark.parametrize(("cast_type", "passes"), [("bf16", 1), ("fp16", 1), ("tf32", 1), (None, 4)])
def test_a_planned_matmul_has_the_passes_of_its_operand_type(
    cast_type: str | None, passes: int
) -> None:
    # HLO carries tfloat32 in float32: one pass is enough where the operands were rounded to it (C9).
    x, y = parameter("x", (1024, 1024)), parameter("y", (1024, 1024), 1)
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


@each_of(
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
    x, s = parameter("x", (128, 1000)), parameter("s", (), 1)
    wide = Instruction("w", "broadcast", x.shape, ("s",), {"dimensions": ()})
    found = cost_of(x, s, wide, Instruction("y", "multiply", x.shape, ("x", "w")))
    assert busy(found) == pytest.approx((100 + 1000) / VECTOR, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "n", "cycles"), [(F32, 1000, 1000), (F16, 1000, 1000), (BF16, 1000, 500), (BF16, 100, 64)]
)
def test_a_reduce_of_bfloat16_takes_half(dtype: DType, n: int, cycles: int) -> None:
    assert busy(reduce(dtype, n)) == pytest.approx((100 + cycles) / VECTOR, rel=1e-12)


def test_elements_are_spread_over_128_partitions() -> None:
    one, next_one = (
        cost_of(p := parameter("x", (n,)), Instruction("y", "tanh", p.shape, ("x",)))
        for n in (128 * 100, 128 * 100 + 1)
    )
    assert busy(one) == pytest.approx(200 / SCALAR, rel=1e-12)
    assert busy(next_one) == pytest.approx(201 / SCALAR, rel=1e-12)


def test_iota_runs_on_gpsimd() -> None:
    found = cost_of(Instruction("i", "iota", Shape(F32, (128, 10)), (), {"dimensions": (1,)}))
    assert found.by_engine == {"gpsimd": pytest.approx((150 + 10) / GPSIMD, rel=1e-12)}


def test_a_transpose_reads_and_writes_memory() -> None:
    x = parameter("x", (256, 128))
    y = Instruction("y", "transpose", Shape(F32, (128, 256)), ("x",), {"dimensions": (1, 0)})
    found = cost_of(x, y)
    assert found.by_engine == {"dma": pytest.approx(2 * 4 * 256 * 128 / (410 * 2**30), rel=1e-12)}


def test_converts_are_free_where_an_engine_or_a_dma_stores_their_operand() -> None:
    # neuron.md 4.2: they cast as they store; an input is loaded by a DMA.
    x = parameter("x", (128, 1000))
    y = Instruction("y", "exponential", x.shape, ("x",))
    z = Instruction("z", "convert", Shape(BF16, (128, 1000)), ("y",))
    assert busy(cost_of(x, y, z)) == busy(cost_of(x, y))
    assert busy(cost_of(x, Instruction("z", "convert", Shape(BF16, (128, 1000)), ("x",)))) == 0.0
    moved = Instruction("y", "transpose", Shape(F32, (1000, 128)), ("x",), {"dimensions": (1, 0)})
    cast = Instruction("z", "convert", Shape(BF16, (1000, 128)), ("y",))
    assert busy(cost_of(x, moved, cast)) == busy(cost_of(x, moved))


def test_a_cast_after_gpsimd_is_a_copy() -> None:
    i = Instruction("i", "iota", Shape(F32, (128, 1000)), (), {"dimensions": (1,)})
    x = parameter("x", (128, 1000))
    p = Instruction("p", "power", x.shape, ("x", "x"))
    z = Instruction("z", "convert", Shape(BF16, (128, 1000)), ("p",))
    found = cost_of(x, p, z)
    assert found.by_engine["vector"] == pytest.approx((100 + 1000) / VECTOR, rel=1e-12)
    assert busy(cost_of(i)) > 0


@pytest.mark.parametrize(
    ("readers", "copies"),
    [
        (("dot",), 0),  # as bfloat16 alone: the engine stores that
        (("dot", "tanh"), 1),  # and as float32
        (("dot", "f16"), 1),  # and as float16
        (("dot", "f16", "tanh"), 2),
    ],
)
def test_each_further_type_in_which_a_value_is_read_takes_a_copy(
    readers: tuple[str, ...], copies: int
) -> None:
    lines = {
        "dot": "a = bf16[128,1024] convert(y)\n"
        "  d = f32[128,128] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "tanh": "t = f32[128,1024] tanh(y)",
        "f16": "c = f16[128,1024] convert(y)",
    }
    given = {"dot": "f32[128,128] d", "tanh": "f32[128,1024] t", "f16": "f16[128,1024] c"}
    shapes, names = zip(*(given[r].split() for r in readers), strict=True)
    found = estimate(
        from_text(f"""HloModule forms
ENTRY main {{
  x = f32[128,1024] parameter(0)
  y = f32[128,1024] negate(x)
  {chr(10).join(lines[r] for r in readers)}
  ROOT r = ({", ".join(shapes)}) tuple({", ".join(names)})
}}"""),
        0,
        TRN1,
    )
    casts = [i for i in found.instructions if i.opcode == "convert"]
    assert len(casts) == copies
    assert all(i.seconds == pytest.approx((100 + 1024) / VECTOR) for i in casts)


def test_engines_widen_what_they_read() -> None:
    # The product reads a float32 form, which a DMA makes of the input; tanh widens as it reads.
    text = """HloModule widened
ENTRY main {{
  x = bf16[128,1024] parameter(0)
  p = bf16[128,1024] power(x, x)
  y = f32[128,1024] convert(p)
  ROOT r = {}
}}"""
    product = "f32[128,128] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    for root, copies in (("f32[128,1024] tanh(y)", 0), (product, 1)):
        found = estimate(from_text(text.format(root)), 0, TRN1)
        assert sum(i.opcode == "convert" for i in found.instructions) == copies


# ---- PSUM and SBUF -------------------------------------------------------------------------------

DOT = "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}"


@pytest.mark.parametrize(
    ("lines", "vector", "scalar"),
    [
        # An instruction that alone reads a product takes its sums from PSUM at an element a cycle.
        (f"d = f32[128,128] {DOT}\n  ROOT r = f32[128,128] add(d, b)", 128, 0),
        (f"d = f32[128,128] {DOT}\n  ROOT r = f32[128,128] tanh(d)", 0, 128),
        # Through a cast and a reshape too.
        (
            f"d = f32[128,128] {DOT}\n  c = f16[128,128] convert(d)\n"
            "  e = f16[16384] reshape(c)\n  ROOT r = f16[16384] tanh(e)",
            *(0, 128),
        ),
        # Two readers, a movement or the result: the scalar engine copies the sums first.
        (f"ROOT d = f32[128,128] {DOT}", 0, 128),
        (f"d = f32[128,128] {DOT}\n  t = f32[128,128] tanh(d)\n  ROOT r = f32[128,128] add(d, t)",
         2 * 128, 128 + 100 + 128),
    ],
)  # fmt: skip
def test_a_products_sums_are_read_from_psum_or_copied_out(lines: str, vector: int, scalar: int) -> None:
    text = f"""HloModule psum
ENTRY main {{
  x = f32[128,128] parameter(0)
  b = f32[128,128] parameter(1)
  {lines}
}}"""
    found = estimate(from_text(text), 0, TRN1).by_engine
    expected = {}
    if vector:
        expected["vector"] = pytest.approx((100 + vector) / VECTOR, rel=1e-12)
    if scalar:
        expected["scalar"] = pytest.approx((100 + scalar) / SCALAR, rel=1e-12)
    assert {k: v for k, v in found.items() if k != "tensor"} == expected


def spilled(rows: int, between: str = "abs(b)") -> int:
    text = f"""HloModule large
ENTRY main {{
  x = f32[{rows},1024] parameter(0)
  a = f32[{rows},1024] tanh(x)
  b = f32[{rows},1024] negate(a)
  c = f32[{rows},1024] {between}
  d = f32[{rows},1024] add(a, c)
  ROOT e = f32[{rows},1024] add(d, b)
}}"""
    return estimate(from_text(text), 0, TRN1).spilled_bytes


def test_what_fits_in_sbuf_stays_there() -> None:
    # a, b and d at one time: 3 of 4 KiB rows; c is passed on tile by tile.
    assert spilled(2000) == 0


def test_what_does_not_fit_is_written_and_read_again() -> None:
    # a and b are needed at one time, 40 MiB of 24: a waits longer, and is written and read again.
    size = 5120 * 1024 * 4
    assert spilled(5120) == 2 * size


def test_weights_that_do_not_fit_are_read_in_every_trip() -> None:
    def module(width: int) -> Module:
        shape = f"(s32[], f32[8,{width}])"
        return from_text(f"""HloModule loop
body {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8,{width}] get-tuple-element(p), index=1
  k = f32[] constant(0.5)
  w = f32[{width},{width}] broadcast(k), dimensions={{}}
  v = f32[{width},{width}] copy(w)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  g = f32[8,{width}] dot(h, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {shape} tuple(next, g)
}}
condition {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  h = f32[8,{width}] parameter(0)
  null = s32[] constant(0)
  given = {shape} tuple(null, h)
  loop = {shape} while(given), condition=condition, body=body
  ROOT y = f32[8,{width}] get-tuple-element(loop), index=1
}}""")

    assert estimate(module(1024), 0, TRN1).spilled_bytes == 0
    assert estimate(module(4096), 0, TRN1).spilled_bytes == 9 * 4096 * 4096 * 4


@pytest.mark.parametrize(
    ("opcode", "vector", "scalar"),
    [
        # softmax: a maximum, a subtraction, an exponential, a sum, a division of 1000 and of 1 each.
        ("softmax", 1000 + 1000 + 1000 + 8000 + 2000, 1000)
    ],
)
def test_a_composite_takes_the_steps_of_its_formula(opcode: str, vector: float, scalar: float) -> None:
    def model(x: object) -> object:
        return neuronsim.nn.softmax(x, axis=-1)

    made = api.compile(model, np.zeros((128, 1000), np.float32), auto_cast="none", composites="kept")
    found = estimate(made.module, 0, TRN1).by_engine
    assert found["scalar"] == pytest.approx((100 + scalar) / SCALAR)
    assert found["vector"] == pytest.approx((100 + vector) / VECTOR, rel=0.01)


@pytest.mark.parametrize("opcode", ["reshape", "broadcast"])
def test_moves_that_only_rename_are_free(opcode: str) -> None:
    x = parameter("x", (128, 10))
    attributes = {"dimensions": (0, 1)} if opcode == "broadcast" else {}
    assert busy(cost_of(x, Instruction("y", opcode, x.shape, ("x",), attributes))) == 0.0


def test_the_time_is_that_of_the_weights_if_loading_them_is_longer() -> None:
    x = parameter("x", (128, 10))
    y = Instruction("y", "tanh", x.shape, ("x",))
    module = Module("small", "main", (Computation("main", (x, y), "y"),))
    found = estimate(module, 410 * 2**30, TRN1)
    assert found.weight_seconds == 1.0
    assert found.seconds == pytest.approx(1 + 2 * 128 * 10 * 4 / TRN1.bandwidth)  # and x and y
    assert found.by_engine["scalar"] == pytest.approx(164 / SCALAR, rel=1e-12)


def test_the_host_has_no_cost() -> None:
    x = parameter("x", (128, 10))
    y = Instruction("y", "tanh", x.shape, ("x",))
    module = Module("small", "main", (Computation("main", (x, y), "y"),))
    assert estimate(module, 10**9, TARGETS["host"]) == Estimate(0.0, {}, 0.0)


# ---- loops, branches and what is applied to elements ---------------------------------------------

T, B, I, H = 12, 8, 24, 32


def literal(rows: int, columns: int, seed: int) -> str:
    values = np.random.default_rng(seed).integers(-9, 9, (rows, columns)) / 8
    return "{ " + ", ".join("{ " + ", ".join(map(str, row)) + " }" for row in values) + " }"


WEIGHTS = f"""
  v = f32[{I},{H}] constant({literal(I, H, 0)})
  w = f32[{H},{H}] constant({literal(H, H, 1)})"""


def cell(x: str, h: str, n: str) -> str:
    """A step of a gated recurrence; `x` is the line that gives the step's input."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"""
  s{n} = f32[1,{B},{I}] {x}
  x{n} = f32[{B},{I}] reshape(s{n})
  a{n} = f32[{B},{H}] dot(x{n}, v), {dims}
  b{n} = f32[{B},{H}] dot({h}, w), {dims}
  c{n} = f32[{B},{H}] add(a{n}, b{n})
  z{n} = f32[{B},{H}] logistic(c{n})
  t{n} = f32[{B},{H}] tanh(c{n})
  d{n} = f32[{B},{H}] subtract(t{n}, {h})
  e{n} = f32[{B},{H}] multiply(z{n}, d{n})
  h{n} = f32[{B},{H}] add(e{n}, {h})
  y{n} = f32[1,{B},{H}] reshape(h{n})"""


def unrolled() -> Module:
    steps, h = "", "start"
    for n in range(T):
        steps += cell(f"slice(x), slice={{[{n}:{n + 1}],[0:{B}],[0:{I}]}}", h, str(n))
        h = f"h{n}"
    ys = ", ".join(f"y{n}" for n in range(T))
    return from_text(f"""HloModule unrolled
ENTRY main {{
  x = f32[{T},{B},{I}] parameter(0){WEIGHTS}
  zero = f32[] constant(0)
  start = f32[{B},{H}] broadcast(zero), dimensions={{}}{steps}
  ROOT y = f32[{T},{B},{H}] concatenate({ys}), dimensions={{0}}
}}""")


def scanned(*, sunk: bool) -> Module:
    """The same as a loop, whose weights stand in its body or are passed on by it."""
    types = ["s32[]", f"f32[{B},{H}]", f"f32[{T},{B},{H}]", f"f32[{T},{B},{I}]"]
    types += [] if sunk else [f"f32[{I},{H}]", f"f32[{H},{H}]"]
    shape = f"({', '.join(types)})"
    names = ["i", "h", "ys", "x", *([] if sunk else ["v", "w"])]
    pairs = enumerate(zip(names, types, strict=True))
    parts = [f"{n} = {t} get-tuple-element(p), index={k}" for k, (n, t) in pairs]
    body = cell(f"dynamic-slice(x, i, null, null), dynamic_slice_sizes={{1,{B},{I}}}", "h", "0")
    return from_text(f"""HloModule scanned
body {{
  p = {shape} parameter(0)
  {chr(10).join(parts)}{WEIGHTS if sunk else ""}
  null = s32[] constant(0)
  one = s32[] constant(1){body}
  us = f32[{T},{B},{H}] dynamic-update-slice(ys, y0, i, null, null)
  next = s32[] add(i, one)
  ROOT r = {shape} tuple(next, h0, us, x{"" if sunk else ", v, w"})
}}
condition {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({T})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[{T},{B},{I}] parameter(0){"" if sunk else WEIGHTS}
  zero = f32[] constant(0)
  start = f32[{B},{H}] broadcast(zero), dimensions={{}}
  empty = f32[{T},{B},{H}] broadcast(zero), dimensions={{}}
  null = s32[] constant(0)
  given = {shape} tuple(null, start, empty, x{"" if sunk else ", v, w"})
  loop = {shape} while(given), condition=condition, body=body
  ROOT y = f32[{T},{B},{H}] get-tuple-element(loop), index=2
}}""")


@each_of("sunk", [True, False], ids=["weights in the body", "weights passed on"])
@each_of(("auto_cast", "cast_type"), LADDER)
def test_a_loop_and_its_unrolled_form_have_one_time_and_the_same_weights(
    auto_cast: str, cast_type: str, sunk: bool
) -> None:
    policy = neuron_policy(auto_cast, cast_type)  # type: ignore[arg-type]
    found = []
    for module in (scanned(sunk=sunk), unrolled()):
        program = api.compile(module, plan=make_plan(module, policy))
        size = program.weight_bytes
        found.append((size, estimate(program.module, size, TRN1)))
    (loop_bytes, loop), (bytes_, straight) = found
    narrow = {"bf16": 2, "fp16": 2}.get(cast_type, 4) if auto_cast != "none" else 4
    assert loop_bytes == bytes_ == narrow * (I * H + H * H)
    assert busy(loop) == pytest.approx(busy(straight), rel=0.02)
    for engine, seconds in straight.by_engine.items():
        assert loop.by_engine[engine] == pytest.approx(seconds, rel=0.1)
    assert [(found.trips, found.evidence) for found in loop.loops] == [(T, "known")]


def loop_of(body: str, trips: int) -> str:
    """A module of a loop whose body gives y of x."""
    shape = "(s32[], f32[128,1000])"
    return f"""HloModule loop
body {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[128,1000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {body}
  ROOT r = {shape} tuple(next, y)
}}
condition {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[128,1000] parameter(0)
  null = s32[] constant(0)
  given = {shape} tuple(null, x)
  loop = {shape} while(given), condition=condition, body=body
  ROOT z = f32[128,1000] get-tuple-element(loop), index=1
}}"""


def test_a_loops_body_counts_in_every_trip_and_its_counter_is_the_sequencers() -> None:
    found = estimate(from_text(loop_of("y = f32[128,1000] tanh(x)", 30)), 0, TRN1)
    assert found.by_engine == {"scalar": pytest.approx(30 * 1100 / SCALAR, rel=1e-12)}
    none = estimate(from_text(loop_of("y = f32[128,1000] tanh(x)", 0)), 0, TRN1)
    assert busy(none) == 0.0


def test_trips_that_are_not_known_are_those_that_are_given() -> None:
    text = loop_of("y = f32[128,1000] tanh(x)", 30).replace(
        "n = s32[] constant(30)",
        "x = f32[128,1000] get-tuple-element(p), index=1\n"
        "  s = f32[1,1] slice(x), slice={[0:1],[0:1]}\n"
        "  f = f32[] reshape(s)\n"
        "  n = s32[] convert(f)",
    )
    module = from_text(text)
    one, ten = (estimate(module, 0, TRN1, t) for t in (None, 10))
    assert ten.by_engine["scalar"] == pytest.approx(10 * one.by_engine["scalar"], rel=1e-12)
    assert (one.loops[0].evidence, ten.loops[0].evidence) == ("assumed", "given")
    assert "vector" in one.by_engine  # its condition computes with data


def test_what_a_loop_does_not_change_leaves_it() -> None:
    # iota hangs on nothing, its convert on that alone: both run once.
    invariant = """k = s32[128,1000] iota(), iota_dimension=1
  f = f32[128,1000] convert(k)
  y = f32[128,1000] add(x, f)"""
    found = estimate(from_text(loop_of(invariant, 30)), 0, TRN1)
    assert found.by_engine == {
        "gpsimd": pytest.approx((150 + 1000) / GPSIMD, rel=1e-12),
        "vector": pytest.approx((30 * 2100 + 1100) / VECTOR, rel=1e-12),
    }


def recurrence(*, nested: bool, branch: bool = False) -> Module:
    """16 times tanh(h tanh(w)), as one loop or as four times four; h is read behind them too, so that
    an engine makes the form that the first trip reads, unless a `branch` gives h.
    """
    shape = "(s32[], f32[8,64], f32[64,64])"

    def loop(name: str, trips: int, inside: str, h: str) -> str:
        return f"""
{name}.more {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
{name} {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8,64] get-tuple-element(p), index=1
  w = f32[64,64] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {inside}
  ROOT r = {shape} tuple(next, {h}, w)
}}"""

    trips = 4 if nested else 16
    given = f"""null = s32[] constant(0)
  given = {shape} tuple(null, h, w)
  loop = {shape} while(given), condition=NAME.more, body=NAME
  y = f32[8,64] get-tuple-element(loop), index=1"""
    product = """v = f32[64,64] tanh(w)
  d = f32[8,64] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,64] tanh(d)"""
    loops = loop("inner", trips, product, "t")
    if branch:
        loops += "\nsame { ROOT a = f32[8,64] parameter(0) }"
    top = "inner"
    if nested:
        inside = given.replace("NAME", "inner")
        if branch:
            chosen = "g = f32[8,64] conditional(i, h, h), branch_computations={same, same}\n  "
            inside = chosen + inside.replace("tuple(null, h", "tuple(null, g")
        loops += loop("outer", trips, inside, "y")
        top = "outer"
    return from_text(f"""HloModule recurrence{loops}
ENTRY main {{
  x = f32[8,64] parameter(0)
  w = f32[64,64] parameter(1)
  h = f32[8,64] tanh(x)
  {given.replace("NAME", top)}
  ROOT z = f32[8,64] add(y, {"x" if branch else "h"})
}}""")


@each_of("branch", [False, True], ids=["", "through a conditional"])
@each_of(("auto_cast", "cast_type"), LADDER)
def test_nested_loops_take_the_time_of_one(auto_cast: str, cast_type: str, branch: bool) -> None:
    policy = neuron_policy(auto_cast, cast_type)  # type: ignore[arg-type]
    flat, nested = (
        api.compile(m, plan=make_plan(m, policy)).module
        for m in (recurrence(nested=n, branch=branch) for n in (False, True))
    )
    assert busy(estimate(nested, 0, TRN1)) == pytest.approx(busy(estimate(flat, 0, TRN1)))


def test_a_condition_that_two_bodies_share_counts_for_neither_what_one_computes_with_data() -> None:
    module = from_text("""HloModule shared
more {
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
counts {
  p = (s32[], f32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  ROOT r = (s32[], f32[]) tuple(next, x)
}
computes {
  p = (s32[], f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=1
  next = s32[] convert(x)
  ROOT r = (s32[], f32[]) tuple(next, x)
}
ENTRY main {
  x = f32[] parameter(0)
  null = s32[] constant(0)
  t = (s32[], f32[]) tuple(null, x)
  w1 = (s32[], f32[]) while(t), condition=more, body=counts
  w2 = (s32[], f32[]) while(t), condition=more, body=computes
  a = f32[] get-tuple-element(w1), index=1
  b = f32[] get-tuple-element(w2), index=1
  ROOT y = f32[] add(a, b)
}""")
    facts = loop_facts(module)
    assert facts.control == {"more": {"n"}, "counts": {"k", "one", "next"}, "computes": set()} | {
        "main": {"null"}
    }
    found = estimate(module, 0, TRN1)
    assert [(loop.trips, loop.evidence) for loop in found.loops] == [(3, "known"), (1, "assumed")]


BRANCH = """HloModule branches
cheap {{ a = f32[128,1000] parameter(0)  ROOT b = f32[128,1000] negate(a) }}
dear {{ a = f32[128,1000] parameter(0)  b = f32[128,1000] tanh(a)  ROOT c = f32[128,1000] tanh(b) }}
ENTRY main {{
  p = s32[] parameter(0)
  x = f32[128,1000] parameter(1)
  ROOT y = f32[128,1000] conditional(p, x, x), branch_computations={{{}}}
}}"""


@pytest.mark.parametrize("branches", ["cheap, dear", "dear, cheap"])
def test_a_conditional_takes_its_dearest_branch(branches: str) -> None:
    found = estimate(from_text(BRANCH.format(branches)), 0, TRN1)
    assert found.by_engine == {"scalar": pytest.approx(2 * 1100 / SCALAR, rel=1e-12)}
    assert found.conditionals == ("y",)


SCALARS = """HloModule applied
most { a = f32[] parameter(0)  b = s32[] parameter(1)  c = f32[] parameter(2)  d = s32[] parameter(3)
  e = pred[] compare(a, c), direction=GT
  f = f32[] select(e, a, c)
  g = s32[] select(e, b, d)
  ROOT t = (f32[], s32[]) tuple(f, g) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }
more { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
set { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }
wave { a = f32[] parameter(0)  s = f32[] sine(a)  ROOT b = f32[] multiply(s, a) }
ENTRY main {
  x = f32[128,1024] parameter(0)
  k = s32[128,1024] parameter(1)
  z = f32[] parameter(2)
  n = s32[] parameter(3)
"""


@pytest.mark.parametrize(
    ("lines", "engine", "cycles"),
    [
        # compare and the two selects, on 1024 elements of a partition.
        (
            "ROOT y = (f32[128], s32[128]) reduce(x, k, z, n), dimensions={1}, to_apply=most",
            *("vector", 3 * 2048),
        ),
        # 10 rounds of a merge sort of 1024.
        (
            "ROOT y = (f32[128,1024], s32[128,1024]) sort(x, k), dimensions={1}, to_apply=less",
            *("gpsimd", 10 * 2048),
        ),
        ("ROOT y = f32[128,1024] map(x), dimensions={0,1}, to_apply=wave", "vector", 1024 + 2048),
        # Overlapping windows read each element four times, and give 1021.
        (
            "ROOT y = f32[128,1021] reduce-window(x, z), window={size=1x4}, to_apply=add",
            *("vector", 4 * 1021),
        ),
        # Each of 256 windows of 4 compares its elements, and scatters one.
        (
            "s = f32[128,256] parameter(4)\n  ROOT y = f32[128,1024] select-and-scatter(x, s, z), "
            "window={size=1x4 stride=1x4}, select=more, scatter=add",
            *("gpsimd", 2 * 4 * 256 + 2 * 256),
        ),
        (
            "j = s32[64,1] parameter(4)\n  u = f32[64,1024] parameter(5)\n  ROOT y = f32[128,1024] "
            "scatter(x, j, u), update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=set",
            *("gpsimd", 512),
        ),
        ("ROOT y = (f32[128,8], s32[128,8]) topk(x), k=8, largest=true", "gpsimd", 1024),
        (
            "ROOT y = (f32[128,1024], f32[128,1024]) all-reduce(x, x), to_apply=add",
            *("gpsimd", 2 * 2048),
        ),
    ],
    ids=lambda v: v.split("to_apply")[0][-40:] if isinstance(v, str) else "",
)  # fmt: skip
def test_what_is_applied_to_elements_costs_each_of_its_operations(
    lines: str, engine: str, cycles: int
) -> None:
    found = estimate(from_text(f"{SCALARS}  {lines}\n}}"), 0, TRN1)
    clock = {"vector": VECTOR, "gpsimd": GPSIMD}[engine]
    assert found.by_engine == {engine: pytest.approx((100 + cycles) / clock, rel=1e-12)}


def test_a_sort_is_not_free_behind_an_engine() -> None:
    lines = """e = f32[128,1024] tanh(x)
  ROOT y = (f32[128,1024], s32[128,1024]) sort(e, k), dimensions={1}, to_apply=less"""
    assert estimate(from_text(f"{SCALARS}  {lines}\n}}"), 0, TRN1).by_engine["gpsimd"] > 0


def test_calls_and_fusions_count_where_they_are() -> None:
    text = """HloModule called
wave { a = f32[128,1000] parameter(0)  ROOT b = f32[128,1000] tanh(a) }
ENTRY main {
  x = f32[128,1000] parameter(0)
  y = f32[128,1000] call(x), to_apply=wave
  ROOT z = f32[128,1000] fusion(y), kind=kLoop, calls=wave
}"""
    found = estimate(from_text(text), 0, TRN1)
    assert found.by_engine == {"scalar": pytest.approx(2 * 1100 / SCALAR, rel=1e-12)}


def test_what_nothing_reads_has_no_cost() -> None:
    x = parameter("x", (128, 1000))
    dead, y = (Instruction(name, "tanh", x.shape, ("x",)) for name in "dy")
    assert busy(cost_of(x, dead, y)) == pytest.approx(1100 / SCALAR, rel=1e-12)
