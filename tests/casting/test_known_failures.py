"""Failures that users of the compilers met, each in a small network: found before it runs by the lint,
or when it runs by the diagnostics, with the instruction named; in the repaired network nothing is.

Sources: AWS's release notes and huggingface/transformers pull request 20605 (masks), flax
`use_fast_variance`, the README's example (squares), neuron-cc's documentation of `--fast-math`, AWS's
release notes (INT64).
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.casting.test_cast_lint import INVERSE, NORM, ONE_PASS, TWO_PASSES
from tests.support.hlo_text import text_module

import neuronsim
from neuronsim.api import CompiledProgram
from neuronsim.casting.lint import lint
from neuronsim.hlo.findings import Finding
from neuronsim.hlo.module import Module
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent  # what is found does not depend on the kernels


def linted(module: Module, program: CompiledProgram, rule: str, target: str = "trn1") -> list[Finding]:
    return [f for f in lint(module, program.plan, find_target(target)) if f.rule == rule]


# Attention over 4 keys; the mask has 1 where a key counts.
ATTENTION = """
q = f32[2,8] parameter(0)
k = f32[4,8] parameter(1)
mask = f32[2,4] parameter(2)
scores = f32[2,4] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}
one = f32[] constant(1)
ones = f32[2,4] broadcast(one), dimensions={}
away = f32[2,4] subtract(ones, mask)
least = f32[] constant(LEAST)
leasts = f32[2,4] broadcast(least), dimensions={}
bias = f32[2,4] multiply(away, leasts)
masked = f32[2,4] add(scores, bias)
low = f32[] constant(-inf)
m = f32[2] reduce(masked, low), dimensions={1}, to_apply=max
mb = f32[2,4] broadcast(m), dimensions={0}
s = f32[2,4] subtract(masked, mb)
e = f32[2,4] exponential(s)
zero = f32[] constant(0)
t = f32[2] reduce(e, zero), dimensions={1}, to_apply=add
tb = f32[2,4] broadcast(t), dimensions={0}
ROOT p = f32[2,4] divide(e, tb)
"""


def test_mask_constant_of_float32_is_nan_in_bfloat16() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(2, 8)), rng.normal(size=(4, 8)), np.tri(2, 4, 1)]
    inputs = [x.astype(np.float32) for x in inputs]
    for least, broken in ((np.finfo(np.float32).min, True), (-1e4, False)):
        module = text_module(ATTENTION.replace("LEAST", repr(float(least))))
        exact = np.asarray(neuronsim.compile(module, auto_cast="none")(*inputs))
        assert np.isfinite(exact).all()
        program = neuronsim.compile(module, auto_cast="all", auto_cast_type="bf16")
        result = np.asarray(program(*inputs, observe="counts"), np.float32)
        assert np.isnan(result).any() == broken
        found = linted(module, program, "mask constant becomes -Inf")
        assert [f.instruction for f in found] == ["least"] * broken
        origins = program.diagnostics["nan_origin"]
        assert ("bias" in origins) == broken  # 0 * Inf
        if broken:
            assert "0 * Inf in bias (multiply) is NaN" in found[0].message


# What float32 leaves of a variance is never below 0.
AT_LEAST_0 = """
z = f32[4] broadcast(zero), dimensions={}
v = f32[4] maximum(cancelled, z)
"""
VARIANCES = {
    "one pass": ONE_PASS.replace("v = ", "cancelled = ") + AT_LEAST_0,
    "two passes": TWO_PASSES,
}


def test_fast_variance_cancels_in_bfloat16() -> None:
    """A mean of 16 standard deviations: nothing is left of the variance."""
    x = np.random.default_rng(1).normal(16, 1, (4, 256)).astype(np.float32)
    errors = {}
    for name, variance in VARIANCES.items():
        module = text_module((NORM + variance + INVERSE).replace("64", "256"))
        exact = np.asarray(neuronsim.compile(module, auto_cast="none")(x))
        program = neuronsim.compile(module, auto_cast="all", auto_cast_type="bf16")
        errors[name] = np.abs(np.asarray(program(x), np.float32) - exact).max()
        found = linted(module, program, "fast variance")
        assert [f.instruction for f in found] == ["cancelled"] * (name == "one pass")
    assert errors["one pass"] > 10 * errors["two passes"]


SQUARES = """
x = u8[4,64] parameter(0)
f = f32[4,64] convert(x)
k = f32[] constant(SCALE)
kb = f32[4,64] broadcast(k), dimensions={}
g = f32[4,64] multiply(f, kb)
q = f32[4,64] multiply(g, g)
zero = f32[] constant(0)
ROOT t = f32[4] reduce(q, zero), dimensions={1}, to_apply=add
"""


def test_sum_of_squares_beyond_65504_in_float16() -> None:
    x = np.full((4, 64), 200, np.uint8)
    for scale, broken in (("1", True), ("0.00390625", False)):
        module = text_module(SQUARES.replace("SCALE", scale))
        program = neuronsim.compile(module, auto_cast="all", auto_cast_type="fp16")
        result = np.asarray(program(x, observe="counts"), np.float32)
        assert np.isinf(result).all() == broken
        assert program.diagnostics["overflow"] == ({"t": 4} if broken else {})
        found = linted(module, program, "sum beyond the type")
        assert [f.instruction for f in found] == ["t"] * broken
        assert all("a sum of 64 elements of up to 65025" in f.message for f in found)


DENSE = """
x = f32[2,8] parameter(0)
w = f32[8,4] parameter(1)
d = f32[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT y = f32[2,4] negate(d)
"""


def test_fast_math_none_rounds_products_on_inf1() -> None:
    """1 + 2^-9 is no bfloat16; the eight products of 1 + 2^-9 with 1 add up to 8, not to 8 + 2^-6."""
    x, w = np.full((2, 8), 1 + 2.0**-9, np.float32), np.ones((8, 4), np.float32)
    module = text_module(DENSE)
    for target, flags, broken in (
        ("inf1", "--fast-math none", True),
        ("trn1", "--auto-cast none", False),
    ):
        program = neuronsim.compile(module, target=target, flags=flags)
        assert (np.asarray(program(x, w)) == (-8 if broken else -8 - 2.0**-6)).all()
        found = linted(module, program, "float32 product is rounded", target)
        assert [f.instruction for f in found] == ["d"] * broken
        assert all("inf1 has no float32 product" in f.message for f in found)


# A table of 6 rows by 4, read by flat 64-bit indices row * 2^32 + column: what a compiler with 64-bit
# integers could do.
INDICES = """
table = f32[24] parameter(0)
row = s64[5] parameter(1)
column = s64[5] parameter(2)
stride = s64[] constant(STRIDE)
strides = s64[5] broadcast(stride), dimensions={}
base = s64[5] multiply(row, strides)
flat = s64[5] add(base, column)
back = s64[5] divide(flat, strides)
four = s64[] constant(4)
fours = s64[5] broadcast(four), dimensions={}
start = s64[5] multiply(back, fours)
index = s64[5] add(start, column)
at = s64[5,1] reshape(index)
ROOT g = f32[5] gather(table, at), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
  index_vector_dim=1, slice_sizes={1}
"""
SMALL_INDICES = """
table = f32[6,4] parameter(0)
row = s32[5] parameter(1)
column = s32[5] parameter(2)
r = s32[5,1] reshape(row)
c = s32[5,1] reshape(column)
at = s32[5,2] concatenate(r, c), dimensions={1}
ROOT g = f32[5] gather(table, at), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
  index_vector_dim=1, slice_sizes={1,1}
"""


def test_int64_indices_lose_their_high_bits_C7() -> None:
    table = np.arange(24, dtype=np.float32)
    row, column = np.array([0, 1, 2, 3, 5]), np.array([0, 1, 2, 3, 1])
    wanted = table.reshape(6, 4)[row, column]
    module = text_module(INDICES.replace("STRIDE", str(2**32)))
    program = neuronsim.compile(module)
    result = np.asarray(program(table, row, column, observe="counts"))
    assert (result != wanted).any()
    named = {f.instruction for f in linted(module, program, "64-bit indices are truncated")}
    assert {"stride", "base"} <= named
    assert "stride" in program.diagnostics["int64_truncated"]
    module = text_module(SMALL_INDICES)
    repaired = neuronsim.compile(module)
    given = (table.reshape(6, 4), row.astype(np.int32), column.astype(np.int32))
    assert (np.asarray(repaired(*given, observe="counts")) == wanted).all()
    assert linted(module, repaired, "64-bit indices are truncated") == []
    assert repaired.diagnostics["int64_truncated"] == {}


def test_limits_of_int64_are_no_lost_indices_C7() -> None:
    entry = """
x = s64[4] parameter(0)
ends = s64[2] constant({-9223372036854775808, 9223372036854775807})
beyond = s64[2] constant({-9223372036854775808, 9223372036854775806})
ROOT both = (s64[2], s64[2]) tuple(ends, beyond)
"""
    module = text_module(entry)
    program = neuronsim.compile(module)
    (found,) = linted(module, program, "64-bit indices are truncated")
    assert found.instruction == "beyond"
