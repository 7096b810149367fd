"""Lint of plans: for each rule a module that breaks it and its repair; bounds against the formats."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests import large_modules
from tests.large_modules import ROW, made
from tests.support.hlo_text import text_module
from tests.support.parameters import each_of
from tests.support.places import ROOT
from tests.support.running import result_bytes

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.lint import RULES, float32_rules, lint
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies import with_rules
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.findings import Finding, group, locations, summary
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Computation, Instruction, Module, TupleShape
from neuronsim.hlo.parse import from_text
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

TRN1 = find_target("trn1")
BF16, FP16, FP8 = "bf16", "fp16", "fp8_e4m3"


def found_in(module: Module, low: str, setting: str = "all") -> tuple[Finding, ...]:
    return lint(module, make_plan(module, neuron_policy(setting, low)), TRN1)


def of_rule(module: Module, low: str, rule: str, setting: str = "all") -> list[Finding]:
    return [f for f in found_in(module, low, setting) if f.rule == rule]


@dataclass(frozen=True)
class Case:
    """A module with one finding of the rule, and what is replaced to repair it."""

    rule: str
    low: str
    instruction: str
    said: str  # in the message
    body: str
    repair: tuple[str, str]
    more: str = ""
    setting: str = "all"
    repaired_low: str = ""


SOFTMAX = """
x = f32[4,16] parameter(0)
zero = f32[] constant(0)
low = f32[] constant(-inf)
m = f32[4] reduce(x, low), dimensions={1}, to_apply=max
mb = f32[4,16] broadcast(m), dimensions={0}
s = f32[4,16] subtract(x, mb)
e = f32[4,16] exponential(s)
t = f32[4] reduce(e, zero), dimensions={1}, to_apply=add
tb = f32[4,16] broadcast(t), dimensions={0}
"""
DIVIDED = "ROOT y = f32[4,16] divide(e, tb)"
NORM = """
x = f32[4,64] parameter(0)
zero = f32[] constant(0)
n = f32[] constant(64)
nb = f32[4] broadcast(n), dimensions={}
t = f32[4] reduce(x, zero), dimensions={1}, to_apply=add
m = f32[4] divide(t, nb)
mb = f32[4,64] broadcast(m), dimensions={0}
d = f32[4,64] subtract(x, mb)
"""
TWO_PASSES = """
q = f32[4,64] multiply(d, d)
u = f32[4] reduce(q, zero), dimensions={1}, to_apply=add
v = f32[4] divide(u, nb)
"""
ONE_PASS = """
q = f32[4,64] multiply(x, x)
u = f32[4] reduce(q, zero), dimensions={1}, to_apply=add
w = f32[4] divide(u, nb)
mm = f32[4] multiply(m, m)
v = f32[4] subtract(w, mm)
"""
INVERSE = """
eps = f32[] constant(1e-3)
epsb = f32[4] broadcast(eps), dimensions={}
a = f32[4] add(v, epsb)
r = f32[4] rsqrt(a)
rb = f32[4,64] broadcast(r), dimensions={0}
ROOT y = f32[4,64] multiply(d, rb)
"""
LOOP = """
body {
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  f = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  step = f32[] constant(1)
  j = s32[] add(i, one)
  g = f32[] OPERATION(f, step)
  ROOT out = (s32[], f32[]) tuple(j, g)
}
condition {
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(1000)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""
GATHER = (
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,4}"
)

SEGMENTS = """
z = f32[10] parameter(1)
i = s32[2000,1] parameter(2)
x = f32[2000] parameter(0)
ROOT s = f32[10] scatter(z, i, x), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
"""
GREATER = """ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE }"""
PAIRS = """
x = f32[257] parameter(0)
z = f32[] constant(0)
ROOT t = (f32[], f32[]) reduce(x, x, z, z), dimensions={0}, to_apply=both
"""
PAIR = """both { a = f32[] parameter(0)
  n = f32[] parameter(1)
  b = f32[] parameter(2)
  k = f32[] parameter(3)
  c = f32[] add(a, b)
  m = f32[] add(n, k)
  ROOT t = (f32[], f32[]) tuple(c, m) }"""

CASES = (
    Case("normalisation in a narrow type", BF16, "t", "64 elements are rounded to bfloat16, 8 signif",
         NORM + TWO_PASSES + INVERSE, ("", ""), repaired_low=FP16),  # 11 significant bits
    Case("fast variance", BF16, "v", "cancels in bfloat16, 8 significant bits: a variance below 0.0039",
         NORM + ONE_PASS + INVERSE, (ONE_PASS, TWO_PASSES)),
    Case("softmax of narrow logits", FP16, "s", "65504, and logits of 64 are off by up to 0.03125",
         SOFTMAX + DIVIDED,
         (DIVIDED, "ROOT y = f32[4,16] divide(x, tb)")),
    Case("softmax of narrow logits", BF16, "s", "a softmax reads bfloat16: logits of 64 are off by up "
         "to 0.25", SOFTMAX + DIVIDED, ("", ""), repaired_low="tf32"),
    Case("exponential without maximum", FP16, "e", "beyond 11.09 its result is Inf",
         "x = f32[4] parameter(0)\nROOT e = f32[4] exponential(x)",
         ("x = f32[4] parameter(0)", "p = f32[4] parameter(0)\nx = f32[4] tanh(p)")),
    Case("mask constant becomes -Inf", BF16, "c", "-3.40282e+38 becomes -Inf in bfloat16: "
         "bfloat16's largest finite "
         "value is 3.38953e+38; 0 * Inf in y (multiply) is NaN",
         "x = f32[4] parameter(0)\nc = f32[] constant(-3.4028235e38)\nb = f32[4] broadcast(c), "
         "dimensions={}\n"
         "ROOT y = f32[4] multiply(x, b)", ("-3.4028235e38", "-1e4")),
    Case("mask constant becomes -Inf", FP16, "c", "a row that y (select) masks throughout",
         "x = f32[4] parameter(0)\np = pred[4] parameter(1)\nc = f32[] constant(-1e9)\n"
         "b = f32[4] broadcast(c), dimensions={}\nROOT y = f32[4] select(p, x, b)", ("-1e9", "-6e4")),
    Case("constant beyond the type", FP16, "c", "100000 becomes Inf in float16",
         "x = f32[4] parameter(0)\nc = f32[] constant(1e5)\nb = f32[4] broadcast(c), dimensions={}\n"
         "ROOT y = f32[4] multiply(x, b)", ("1e5", "1e4")),
    Case("constant beyond the type", FP8, "c", "300 becomes Inf in float8_e4m3: float8_e4m3's "
         "largest finite "
         "value is 240",
         "x = f32[4] parameter(0)\nc = f32[4] constant({1, 2, 300, 4})\nROOT y = f32[4] multiply(x, c)",
         ("300", "240")),
    Case("epsilon vanishes", FP16, "eps", "1e-12 becomes 0 in float16, whose least value is "
         "5.96e-08: it no longer "
         "keeps r (rsqrt) from 0",
         NORM + TWO_PASSES + INVERSE.replace("1e-3", "1e-12"), ("1e-12", "1e-4")),
    Case("constant underflows", FP16, "c", "1e-06 is subnormal in float16, whose least normal value "
         "is 6.1e-05",
         "x = f32[4] parameter(0)\nc = f32[] constant(1e-6)\nb = f32[4] broadcast(c), dimensions={}\n"
         "ROOT y = f32[4] multiply(x, b)", ("1e-6", "1e-3")),
    Case("clamp beyond the type", FP8, "y", "c clamps to 448, and float8_e4m3's largest finite "
         "value is 240",
         "x = f32[4] parameter(0)\nl = f32[4] parameter(1)\nh = f32[] constant(448)\n"
         "n = f32[] constant(-448)\nc = f32[4] clamp(n, x, h)\nROOT y = f8e4m3[4] convert(c)",
         ("448", "240"), setting="none"),
    Case("sum beyond the type", FP16, "t", "a sum of 64 elements of up to 65025 reaches 4.1616e+06",
         "p = u8[4,64] parameter(0)\nx = f32[4,64] convert(p)\nq = f32[4,64] multiply(x, x)\n"
         "zero = f32[] constant(0)\nROOT t = f32[4] reduce(q, zero), dimensions={1}, to_apply=add",
         ("multiply(x, x)", "tanh(x)")),
    Case("sum beyond the type", FP16, "t", "a sum of 4096 squares is Inf from magnitudes of 4 on",
         "x = f32[4096] parameter(0)\nq = f32[4096] multiply(x, x)\nzero = f32[] constant(0)\n"
         "ROOT t = f32[] reduce(q, zero), dimensions={0}, to_apply=add", ("4096", "8")),
    Case("sum beyond the type", FP16, "t", "a sum of 4096 elements is Inf from magnitudes of 16 on",
         "x = f32[4096] parameter(0)\nzero = f32[] constant(0)\n"
         "ROOT t = f32[] reduce(x, zero), dimensions={0}, to_apply=add", ("4096", "256")),
    Case("sum beyond the type", FP16, "d", "a sum of 100000 squares is Inf from magnitudes of 0.809 on",
         "x = f32[100000] parameter(0)\nROOT d = f32[] dot(x, x), lhs_contracting_dims={0}, "
         "rhs_contracting_dims={0}", ("100000", "8")),
    Case("sum beyond the type", FP16, "d", "a sum of 4096 products is Inf from magnitudes of 16 on",
         "x = f32[4096] parameter(0)\nw = f32[4096] parameter(1)\n"
         "ROOT d = f32[] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
         ("4096", "256")),
    Case("sum beyond the type", FP16, "d", "a sum of 257 products of up to 255 reaches 65535",
         "x = u8[257] parameter(0)\nf = f32[257] convert(x)\np = f32[257] parameter(1)\n"
         "t = f32[257] tanh(p)\nROOT d = f32[] dot(f, t), lhs_contracting_dims={0}, "
         "rhs_contracting_dims={0}", ("257", "256")),
    Case("sum beyond the type", FP16, "d", "a sum of 1152 products with up to 2 is Inf from magnitudes "
         "of 28.4 on",
         "x = f32[1,9,9,128] parameter(0)\ntwo = f32[] constant(2)\n"
         "k = f32[3,3,128,4] broadcast(two), dimensions={}\nROOT d = f32[1,7,7,4] convolution(x, k), "
         "window={size=3x3}, dim_labels=b01f_01io->b01f", ("constant(2)", "constant(1)")),
    Case("updates add up in a narrow type", BF16, "s", "up to 2000 updates meet in one place, and each "
         "sum is rounded to bfloat16, 8 significant bits: from 256 equal ones on", SEGMENTS,
         ("2000", "256")),
    Case("updates add up in a narrow type", BF16, "s", "up to 2000 updates", SEGMENTS,
         ("index_vector_dim=1", "index_vector_dim=1, unique_indices=true")),
    Case("updates add up in a narrow type", BF16, "s", "up to 2000 updates", SEGMENTS,
         ("i = s32[2000,1] parameter(2)", "n = s32[2000] iota(), iota_dimension=0\n"
          "i = s32[2000,1] reshape(n)")),
    Case("updates add up in a narrow type", BF16, "s", "up to 2000 updates", SEGMENTS,
         ("to_apply=add", "to_apply=max")),
    Case("updates add up in a narrow type", FP16, "s", "each product is rounded to float16, 11 "
         "significant bits: the product is off by up to 1.5 of its value",
         SEGMENTS.replace("2000", "3000").replace("=add", "=times"), ("3000", "2048"),
         more="times { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
         " ROOT c = f32[] multiply(a, b) }"),
    Case("updates add up in a narrow type", BF16, "s", "up to 289 updates meet in one place",
         "x = f32[64,64] parameter(0)\nu = f32[48,48] parameter(1)\nz = f32[] constant(0)\n"
         "ROOT s = f32[64,64] select-and-scatter(x, u, z), window={size=17x17}, select=ge, "
         "scatter=add", ("", ""), more=GREATER, repaired_low=FP16),
    Case("reducer adds up in a narrow type", BF16, "t", "adds 257 elements one after the other, each "
         "sum rounded to bfloat16", PAIRS, ("257", "256"), more=PAIR),
    Case("reducer adds up in a narrow type", BF16, "t", "adds 257 elements", PAIRS, ("", ""), more=PAIR,
         repaired_low=FP16),
    Case("sum beyond the type", FP16, "w", "a sum of 4096 elements is Inf from magnitudes of 16 on",
         "x = f32[4096] parameter(0)\nzero = f32[] constant(0)\n"
         "ROOT w = f32[4096] reduce-window(x, zero), window={size=4096 pad=4095_0}, to_apply=add",
         ("=add", "=max")),
    Case("sum beyond the type", FP16, "s", "a sum of 2500 elements is Inf from magnitudes of 26.2 on",
         SEGMENTS.replace("2000", "2500"), ("2500", "1000")),
    Case("64-bit indices are truncated", BF16, "c", "4294967296 to 4294967296 lose their high 32 bits",
         "x = s64[4] parameter(0)\nc = s64[] constant(4294967296)\nb = s64[4] broadcast(c), "
         "dimensions={}\n"
         "ROOT y = s64[4] add(x, b)", ("4294967296", "65536")),
    Case("64-bit indices are truncated", BF16, "c", "values from 5000000000 to 6000000000 lose their",
         "x = s64[4] parameter(0)\n"
         "c = s64[4] constant({-9223372036854775808, 5000000000, 7, 6000000000})\n"
         "ROOT y = s64[4] add(x, c)", ("000000000", "000")),
    Case("64-bit indices are truncated", BF16, "k", "int64 values that it makes can exceed 32 "
         "bits and lose the "
         "rest; g (gather) indexes with it",
         "t = f32[9,4] parameter(0)\nx = s64[5,1] parameter(1)\nc = s64[] constant(1000)\n"
         "b = s64[5,1] broadcast(c), dimensions={}\nk = s64[5,1] multiply(x, b)\n"
         f"ROOT g = f32[5,4] gather(t, k), {GATHER}", ("s64[5,1] multiply(x, b)", "s64[5,1] add(x, "
         "b)")),
    Case("integers in a narrow float", BF16, "i", "integers up to 999 in bfloat16, which holds all "
         "only up to 256",
         "ROOT i = f32[1000] iota(), iota_dimension=0", ("1000", "257")),
    Case("integers in a narrow float", FP16, "f", "integers up to 65535 in float16, which holds all "
         "only up to 2048",
         "p = u16[4] parameter(0)\nROOT f = f32[4] convert(p)", ("u16", "u8")),
    Case("integers in a narrow float", BF16, "h", "indices of g (gather), into 900 elements, pass "
         "bfloat16",
         "t = f32[900,4] parameter(0)\nf = f32[5,1] parameter(1)\nh = f32[5,1] floor(f)\n"
         "k = s32[5,1] convert(h)\n" f"ROOT g = f32[5,4] gather(t, k), {GATHER}", ("900", "200")),
    Case("loop carries a narrow sum", BF16, "g", "counts by 1 in a bfloat16 that it carries, 8 "
         "significant bits: "
         "after 256 equal steps",
         "z = s32[] constant(0)\nf0 = f32[] parameter(0)\nt = (s32[], f32[]) tuple(z, f0)\n"
         "w = (s32[], f32[]) while(t), body=body, condition=condition\n"
         "ROOT y = f32[] get-tuple-element(w), index=1", ("OPERATION", "maximum"), more=LOOP),
    Case("zero in a denominator", FP16, "l", "p is a softmax in float16: below 3e-08 it is 0, where "
         "log gives",
         SOFTMAX + "p = f32[4,16] divide(e, tb)\nROOT l = f32[4,16] log(p)", ("log(p)", "negate(p)")),
    Case("zero in a denominator", FP16, "r", "q is a square in float16",
         "x = f32[4] parameter(0)\nq = f32[4] multiply(x, x)\nROOT r = f32[4] rsqrt(q)",
         ("multiply(x, x)", "abs(x)")),
)  # fmt: skip


SUMMED, NARROW_SUM = "updates add up in a narrow type", "loop carries a narrow sum"
OBSERVED = {
    "values beyond the type",
    "values vanish",
    "difference of near values",
    "steep function of a rounded argument",
    "counts beyond the type",
}


def _broken(case: Case) -> Module:
    return text_module(case.body, case.more.replace("OPERATION", "add"))


def _repaired(case: Case) -> Module:
    old, new = case.repair
    if not old:
        return _broken(case)
    more = case.more.replace(old, new).replace("OPERATION", "add")
    return text_module(case.body.replace(old, new), more)


@each_of("case", CASES, ids=lambda case: f"{case.rule}-{case.low}-{case.instruction}")
def test_lint_finds_what_breaks_a_rule_and_not_its_repair(case: Case) -> None:
    (finding,) = of_rule(_broken(case), case.low, case.rule, case.setting)
    assert finding.instruction == case.instruction
    assert case.said in finding.message
    assert of_rule(_repaired(case), case.repaired_low or case.low, case.rule, case.setting) == []


def test_lint_knows_every_rule_by_a_case() -> None:
    """Three rules need what these flags do not give: tests of their own (one a known failure), as the
    rules that judge by a calibration (test_lint_observed.py).
    """
    others = {"long sum in a narrow accumulator", "partial sums are rounded"}
    others |= {"float32 product is rounded"} | OBSERVED
    assert {c.rule for c in CASES} | others == {r.name for r in RULES}
    labels = (ROOT / "docs" / "numerics.md").read_text()
    for row in RULES:
        assert f"**{row.label}**" in labels
        assert f"`{row.name}`" in (ROOT / "docs" / "casting_lint.md").read_text()


@pytest.mark.parametrize("setting", ["none", "matmult"])
def test_lint_of_float32_finds_nothing(setting: str) -> None:
    for case in CASES:
        integers = case.rule.startswith(("64-bit", "clamp"))
        assert integers or found_in(_broken(case), BF16, setting) == ()


@pytest.mark.parametrize("setting", ["none", "matmult"])
def test_lint_of_shipped_networks_in_float32_or_with_bfloat16_products_finds_nothing(
    setting: str,
) -> None:
    files = [
        *(ROOT / "tests" / "data" / "networks").glob("*.pb"),
        *(ROOT / "examples").rglob("*.hlo.pb"),
    ]
    assert len(files) > 5
    assert {p.name: f for p in files if (f := found_in(proto.read(p), BF16, setting))} == {}


SUM = """x = f32[4,LENGTH] parameter(0)
zero = f32[] constant(0)
ROOT t = f32[4] reduce(x, zero), dimensions={1}, to_apply=add"""


def sum_of(length: int) -> Module:
    return text_module(SUM.replace("LENGTH", str(length)))


@pytest.mark.parametrize(("dtype", "longest"), [(dtypes.bfloat16, 256), (dtypes.float16, 2048)])
def test_lint_R1_narrow_accumulators(dtype: DType, longest: int) -> None:
    """Adding ones, in NumPy: the sum stands still at 2^(significant bits)."""
    one = np.ones(1, dtype.numpy)[0]
    total = one
    for _ in range(longest + 10):
        total = dtype.numpy.type(np.float32(total) + np.float32(one))
    assert float(total) == longest
    for length in (longest, longest + 1):
        module = sum_of(length)
        decisions = {"t": Decision(dtypes.float32, dtype, dtypes.float32, "test")}
        found = lint(module, Plan("test", module.name, fingerprint(module), decisions))
        assert [f.rule for f in found] == ["long sum in a narrow accumulator"] * (length > longest)
        assert all(
            f"adds {length} elements in {dtype.name}: from {longest}" in f.message for f in found
        )


def test_lint_R3_rounded_tiles() -> None:
    cases = ((512, "off", 0), (513, "off", 2), (2000, "off", 4), (2000, "on", 0))
    for (length, setting, tiles), window in itertools.product(cases, (False, True)):
        module = sum_of(length)
        if window:  # R4 is R2 on each window
            module = text_module(f"""x = f32[{length}] parameter(0)
                zero = f32[] constant(0)
                ROOT t = f32[1] reduce-window(x, zero), window={{size={length}}}, to_apply=add""")
        plan = make_plan(module, neuron_policy("all", BF16))
        profile = Profile(mixed_precision_accumulation=setting)
        found = [f for f in lint(module, plan, TRN1, profile=profile) if f.label.startswith("R3")]
        assert len(found) == bool(tiles)
        assert all(f"each of the {tiles} partial sums of 512" in f.message for f in found)
    assert not [f for f in lint(module, plan, TRN1) if f.code == "R3"]  # nothing is known


TYPES = {BF16: dtypes.bfloat16, FP16: dtypes.float16, FP8: dtypes.float8_e4m3}


@pytest.mark.parametrize("low", TYPES)
def test_lint_C3_constants_at_the_bounds_of_the_type(low: str) -> None:
    """Against NumPy's and ml_dtypes' conversions, around the largest and the least numbers."""
    dtype = TYPES[low]
    finite = np.arange(2 ** (dtype.bits - 1), dtype=f"u{dtype.itemsize}").view(dtype.numpy)
    with np.errstate(invalid="ignore"):  # NaN
        wide = finite.astype(np.float64)
    wide = wide[np.isfinite(wide) & (wide > 0)]
    normal = 2.0 ** (2 - 2 ** (dtype.exponent_bits - 1))
    marks = [wide.max() * (1 + f) for f in (0, dtype.eps / 8, dtype.eps / 4, dtype.eps / 2)]
    marks += [wide.min() * f for f in (0.5, 0.51, 1, 2)]
    marks += [normal, float(np.nextafter(np.float32(normal), 0))]
    text = "x = f32[2] parameter(0)\nc = f32[] constant({})\nb = f32[2] broadcast(c), dimensions={{}}\n"
    for mark in marks:
        value = np.float32(mark)
        if not np.isfinite(value):
            continue
        with np.errstate(over="ignore"):
            rounded = float(value.astype(dtype.numpy))
        module = text_module(text.format(repr(float(value))) + "ROOT y = f32[2] multiply(x, b)")
        rules = {f.rule for f in found_in(module, low)}
        assert ("constant beyond the type" in rules) == math.isinf(rounded), mark
        assert ("constant underflows" in rules) == (0 < value < normal), mark
        if rounded == 0:
            assert "becomes 0" in found_in(module, low)[0].message


def test_lint_R1_bounded_sums_at_the_bound() -> None:
    """Integers of eight bits have sums of up to 255 a piece: 256 of them are 65280, 257 beyond 65504,
    but below 65520 float16 rounds down.
    """
    for length, wrong in ((256, False), (257, True)):
        module = text_module(f"""p = u8[{length}] parameter(0)
            x = f32[{length}] convert(p)
            zero = f32[] constant(0)
            ROOT t = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add""")
        assert bool(of_rule(module, FP16, "sum beyond the type")) is wrong
        with np.errstate(over="ignore"):
            assert np.isinf(np.float16(255.0 * length)) == wrong


def test_lint_of_scatter_adds_says_what_they_do_R5() -> None:
    """A segment mean of N(3, 1): both bfloat16 sums stand still, the second at 256."""
    body = (
        SEGMENTS.replace("ROOT s", "s")
        + """one = f32[] constant(1)
        u = f32[2000] broadcast(one), dimensions={}
        n = f32[10] scatter(z, i, u), update_window_dims={}, inserted_window_dims={0}, \
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
        ROOT t = (f32[10], f32[10]) tuple(s, n)"""
    )
    module = text_module(body)
    found = of_rule(module, BF16, SUMMED)
    assert [f.instruction for f in found] == ["s", "n"]
    assert {f.label for f in found} == {f"R5, {SUMMED}"}
    x = np.random.default_rng(0).normal(3, 1, 2000).astype(np.float32)
    inputs = [x, np.zeros(10, np.float32), np.zeros((2000, 1), np.int32)]
    plan = make_plan(module, neuron_policy("all", BF16))
    kept = with_rules(neuron_policy("all", BF16), *float32_rules(found))
    totals = {}
    for name, p in (("all", plan), ("kept", make_plan(module, kept))):
        data = result_bytes(apply_plan(module, p), *inputs)
        totals[name] = [float(np.frombuffer(d, np.float32)[0]) for d in data]
    assert totals["all"][1] == 256
    assert abs(totals["all"][0] / totals["all"][1] - 3) > 2
    assert totals["kept"][1] == 2000
    assert abs(totals["kept"][0] / totals["kept"][1] - 3) < 0.1


PART = """
inner {
  f = f32[4] parameter(0)
  j = s32[] parameter(1)
  one = f32[] constant(1)
  b = f32[1] dynamic-slice(f, j), dynamic_slice_sizes={1}
  l = f32[1] reshape(one)
  r = f32[1] add(b, l)
  ROOT t = (f32[4], s32[]) tuple(UPDATE, j)
}
body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  f = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = (f32[4], s32[]) call(f, i), to_apply=inner
  g = f32[4] get-tuple-element(c), index=0
  ROOT out = (s32[], f32[4]) tuple(j, g)
}
condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""
WRITTEN = "dynamic-update-slice(f, NEW, j)"
SCATTERED = (
    "scatter(f, j, l), update_window_dims={0}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply="
)


@pytest.mark.parametrize("trips", [256, 257])
@pytest.mark.parametrize(
    ("update", "adds"),
    [
        (WRITTEN.replace("NEW", "r"), True),
        (WRITTEN.replace("NEW", "l"), False),
        (SCATTERED + "add", True),
        (SCATTERED + "max", False),
    ],
)
def test_lint_of_loops_that_add_to_a_part_of_what_they_carry(
    update: str, adds: bool, trips: int
) -> None:
    """In a call that returns a tuple, as JAX's scans do; what 256 trips add bfloat16 still tells."""
    part = PART.replace("tuple(UPDATE, j)", "tuple(g, j)").replace(
        "  ROOT t", f"  g = f32[4] {update}\n  ROOT t"
    )
    entry = """z = s32[] constant(0)
        x = f32[4] parameter(0)
        t = (s32[], f32[4]) tuple(z, x)
        w = (s32[], f32[4]) while(t), body=body, condition=condition
        ROOT y = f32[4] get-tuple-element(w), index=1"""
    module = text_module(entry, part.replace("TRIPS", str(trips)))
    assert bool(of_rule(module, BF16, NARROW_SUM)) == (adds and trips > 256)


COUNTED = """
add_y {
  a = (f32[], f32[]) parameter(0)
  ac = f32[] get-tuple-element(a), index=0
  av = f32[] get-tuple-element(a), index=1
  ROOT as = f32[] add(ac, av)
}
same { ROOT same.c = f32[] parameter(0) }
body {
  p = (s32[], f32[], f32[], f32[2000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = f32[] get-tuple-element(p), index=1
  d = f32[] get-tuple-element(p), index=2
  y = f32[2000] get-tuple-element(p), index=3
  k = s32[] constant(1)
  j = s32[] add(i, k)
  s = f32[1] dynamic-slice(y, i), dynamic_slice_sizes={1}
  v = f32[] reshape(s)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  most = f32[] constant(1e4)
  q = pred[] compare(v, zero), direction=GT
  t = f32[] add(c, v)
  UPDATE
  ROOT out = (s32[], f32[], f32[], f32[2000]) tuple(j, n, m, y)
}
condition {
  h = (s32[], f32[], f32[], f32[2000]) parameter(0)
  hi = s32[] get-tuple-element(h), index=0
  hn = s32[] constant(2000)
  ROOT hr = pred[] compare(hi, hn), direction=LT
}
"""
KEPT = "m = f32[] copy(d)"
ONLINE = """m = f32[] maximum(d, v)
  dm = f32[] subtract(d, m)
  vm = f32[] subtract(v, m)
  ed = f32[] exponential(dm)
  ev = f32[] exponential(vm)
  cd = f32[] multiply(c, ed)
  n = f32[] add(cd, ev)"""
EMA = (
    """beta = f32[] constant(BETA)
  e = f32[] multiply(c, beta)
  n = f32[] add(e, v)\n"""
    + KEPT
)
BRANCHES = (
    """g = (f32[], f32[]) tuple(c, v)
  n = f32[] conditional(q, g, c), true_computation=add_y, false_computation=same\n"""
    + KEPT
)
GATE = (
    """z = f32[] logistic(v)
  u = f32[] subtract(one, z)
  cu = f32[] multiply(c, u)
  vz = f32[] multiply(v, z)
  n = f32[] add(cu, vz)\n"""
    + KEPT
)
RESET = (
    """w = f32[] convert(q)
  cw = f32[] multiply(c, w)
  n = f32[] add(cw, v)\n"""
    + KEPT
)
STACKED = (
    """c1 = f32[1] reshape(c)
  both = f32[2] concatenate(c1, s), dimensions={0}
  n = f32[] reduce(both, zero), dimensions={0}, to_apply=add\n"""
    + KEPT
)


@each_of(
    ("update", "adds"),
    [
        ("n = f32[] select(q, t, c)\n" + KEPT, True),
        ("n = f32[] select(q, c, t)\n" + KEPT, True),
        ("n = f32[] select(q, v, c)\n" + KEPT, False),
        ("n = f32[] maximum(t, zero)\n" + KEPT, True),
        ("n = f32[] clamp(zero, t, most)\n" + KEPT, True),
        ("n = f32[] copy(d)\nm = f32[] copy(t)", True),  # in two trips
        ("n = f32[] copy(d)\nm = f32[] add(v, one)", False),
        (ONLINE, True),
        (ONLINE.replace("subtract(d, m)", "subtract(m, d)"), False),  # its factor is not bounded
        (EMA.replace("BETA", "0.9"), False),
        (EMA.replace("BETA", "0.999"), True),  # 1 in bfloat16
        (BRANCHES, True),
        (BRANCHES.replace("add_y", "take_y"), False),
        (GATE, False),
        (RESET, True),
        (STACKED, True),
        ("r = f32[] multiply(c, v)\nn = f32[] add(r, v)\n" + KEPT, False),  # a factor of any size
    ],
)  # fmt: skip
def test_lint_of_loops_that_add_to_what_they_carry_by_any_way(update: str, adds: bool) -> None:
    entry = """z = s32[] constant(0)
        o = f32[] constant(0)
        x = f32[2000] parameter(0)
        w0 = (s32[], f32[], f32[], f32[2000]) tuple(z, o, o, x)
        w = (s32[], f32[], f32[], f32[2000]) while(w0), condition=condition, body=body
        ROOT r = f32[] get-tuple-element(w), index=1"""
    more = COUNTED.replace("UPDATE", update)
    if "take_y" in update:
        more = more.replace("add_y {", "take_y {").replace("add(ac, av)", "multiply(ac, av)")
    assert bool(of_rule(text_module(entry, more), BF16, NARROW_SUM)) == adds


BARE = """
body { p = f32[] parameter(0)
  one = f32[] constant(1)
  ROOT n = f32[] add(p, one) }
condition { h = f32[] parameter(0)
  m = f32[] constant(LIMIT)
  ROOT r = pred[] compare(h, m), direction=LT }
"""


@pytest.mark.parametrize(("limit", "endless"), [("1000", True), ("256", False)])
def test_lint_of_a_loop_that_ends_by_a_float_that_stands_still(limit: str, endless: bool) -> None:
    """Its state is one array, no tuple; a count up to 256 is exact in bfloat16."""
    body = "x = f32[] parameter(0)\nROOT w = f32[] while(x), condition=condition, body=body"
    found = of_rule(text_module(body, BARE.replace("LIMIT", limit)), BF16, NARROW_SUM)
    assert [f.instruction for f in found] == ["n"] * endless
    assert all("which ends by that value, never does" in f.message for f in found)


@pytest.mark.parametrize(("limit", "sums"), [("10", False), ("1000", True)])
def test_lint_knows_the_trips_of_a_loop_that_counts_in_floats(limit: str, sums: bool) -> None:
    loop = """
body { p = (f32[], f32[]) parameter(0)
  i = f32[] get-tuple-element(p), index=0
  c = f32[] get-tuple-element(p), index=1
  one = f32[] constant(1)
  j = f32[] add(i, one)
  n = f32[] add(c, i)
  ROOT o = (f32[], f32[]) tuple(j, n) }
condition { h = (f32[], f32[]) parameter(0)
  k = f32[] get-tuple-element(h), index=0
  m = f32[] constant(LIMIT)
  ROOT r = pred[] compare(k, m), direction=LT }
"""
    body = """x = f32[] parameter(0)
        z = f32[] constant(0)
        s = (f32[], f32[]) tuple(z, x)
        w = (f32[], f32[]) while(s), condition=condition, body=body
        ROOT y = f32[] get-tuple-element(w), index=1"""
    found = of_rule(text_module(body, loop.replace("LIMIT", limit)), BF16, NARROW_SUM)
    assert {f.instruction for f in found} == ({"j", "n"} if sums else set())


def test_a_mask_that_is_only_compared_or_begins_a_maximum_is_no_finding() -> None:
    body = SOFTMAX.replace("constant(-inf)", "constant(-3.4028235e38)") + DIVIDED
    assert {f.rule for f in found_in(text_module(body), BF16)} == {"softmax of narrow logits"}
    assert found_in(text_module(body), "tf32") == ()


# ---- programs of JAX and optax -------------------------------------------------------------------

MASK = "mask constant becomes -Inf"
NARROW = "softmax of narrow logits"
# All that is found of a program (tests/data/make_lint.py) under all/fp16, then under all/bf16.
PROGRAMS: dict[str, tuple[list[str], list[str]]] = {
    "flash_attention": ([], []),
    "segment_softmax": ([], [SUMMED]),
    "masked_attention_grad": ([], []),
    "ctc_loss_grad": ([NARROW, MASK, MASK], [NARROW]),
    "logsumexp_where": ([], []),
    "logaddexp_grad": ([], []),
    "softplus_grad": ([], []),
    "logsumexp_grad": ([], []),
    "cumulative_scan": ([], []),
    "erfc": ([], []),
    "elu": ([], []),
    "embedding_grad": ([], [SUMMED]),
    "sums_by_place": ([], [NARROW_SUM]),
}
EXPONENT = "exponential without maximum"
POLE = "zero in a denominator"
# What is changed in one of them, and what is then found under all/fp16, where.
NEAR_MISSES = (
    ("flash_attention", "subtract(Arg_1.3, max.1)", "subtract(max.1, Arg_1.3)", EXPONENT, "exp.2"),
    ("flash_attention", "reshape(max.1)", "reshape(Arg_1.3)", EXPONENT, "exp.3"),
    ("flash_attention", "maximum(Arg_1.3, reduce_max.7)", "minimum(Arg_1.3, reduce_max.7)", EXPONENT,
     "exp.2"),
    ("segment_softmax", "maximum(", "minimum(", EXPONENT, "exp.1"),
    ("segment_softmax", "subtract(x.1, gather.2)", "subtract(gather.2, x.1)", EXPONENT, "exp.1"),
    ("masked_attention_grad", "dimensions={3}, to_apply=region_0.2",
     "dimensions={2}, to_apply=region_0.2", EXPONENT, "exp.1"),
    ("ctc_loss_grad", "maximum(slice.9, add.20)", "minimum(slice.9, add.20)", EXPONENT, "exp.13"),
    ("ctc_loss_grad", "subtract(select_n.38, select_n.39)", "subtract(select_n.39, select_n.38)",
     EXPONENT, "exp.25"),
    ("logsumexp_where", "select(is_finite.1, max.1, broadcast.2)",
     "select(is_finite.1, broadcast.2, max.1)", EXPONENT, "exp.1"),
    ("logaddexp_grad", "maximum(x_0_.1, x_1_.1)", "minimum(x_0_.1, x_1_.1)", EXPONENT, "exp.4"),
    ("softplus_grad", "select(eq.3, broadcast.4, select_n.3)", "select(eq.3, select_n.3, broadcast.4)",
     EXPONENT, "exp.3"),
    ("elu", "direction=GT", "direction=LT", EXPONENT, "expm1.1"),
    ("erfc", "compare(erfc.177, broadcast.1), direction=LT",
     "compare(erfc.177, broadcast.1), direction=GT", POLE, "erfc.120"),
    ("erfc", "constant.55 = f32[] constant(1)", "constant.55 = f32[] constant(0)", POLE, "erfc.120"),
)  # fmt: skip


def program(name: str) -> str:
    return (ROOT / "tests" / "data" / "lint" / f"{name}.hlo").read_text()


@each_of("name", PROGRAMS)
def test_lint_of_programs_finds_what_breaks_and_nothing_else(name: str) -> None:
    module = from_text(program(name))
    for low, expected in zip((FP16, BF16), PROGRAMS[name], strict=True):
        assert [f.rule for f in found_in(module, low)] == expected


@each_of("case", NEAR_MISSES, ids=lambda c: f"{c[0]}-{c[2]}")
def test_lint_of_near_misses(case: tuple[str, str, str, str, str]) -> None:
    name, old, new, rule, instruction = case
    text = program(name)
    assert old in text
    found = found_in(from_text(text.replace(old, new)), FP16)
    assert any(f.rule == rule and f.instruction.endswith(instruction) for f in found)


@each_of(
    ("test", "guards"),
    [
        ("a = f32[4] abs(x)\np = pred[4] compare(a, cb), direction=GT", True),
        ("p = pred[4] compare(x, cb), direction=GE", True),
        ("q2 = f32[4] multiply(x, x)\np = pred[4] compare(q2, zb), direction=GT", True),
        ("p = pred[4] compare(q, zb), direction=NE", True),
        ("n = pred[4] compare(x, cb), direction=LT\np = pred[4] not(n)", True),
        ("n = pred[4] compare(x, cb), direction=GT\no = pred[4] parameter(1)\n"
         "p = pred[4] and(o, n)", True),
        ("p = pred[4] compare(x, zb), direction=NE", False),  # its square can still be 0
        ("p = pred[4] compare(x, zb), direction=GT", False),
        ("a = f32[4] abs(x)\np = pred[4] compare(a, cb), direction=LT", False),
        ("n = pred[4] compare(x, cb), direction=GT\no = pred[4] parameter(1)\n"
         "p = pred[4] or(o, n)", False),
        ("p = pred[4] compare(q, zb), direction=EQ", False),
    ],
)  # fmt: skip
def test_lint_of_a_pole_that_a_select_does_not_take(test: str, guards: bool) -> None:
    body = f"""x = f32[4] parameter(0)
        zero = f32[] constant(0)
        zb = f32[4] broadcast(zero), dimensions={{}}
        c = f32[] constant(0.5)
        cb = f32[4] broadcast(c), dimensions={{}}
        q = f32[4] multiply(x, x)
        {test}
        r = f32[4] rsqrt(q)
        t = f32[4] tanh(r)
        ROOT s = f32[4] select(p, t, zb)"""
    assert bool(of_rule(text_module(body), FP16, POLE)) is not guards
    read = body.replace("ROOT s", "s") + "\nROOT e = f32[4] add(s, r)"  # taken elsewhere too
    assert [f.instruction for f in of_rule(text_module(read), FP16, POLE)] == ["r"]


# ---- calibration, policies, printing -------------------------------------------------------------


def _statistics(largest: float) -> ops.Statistics:
    return ops.Statistics(64, 0, 0, 0, 0, 1.0, largest, {0: 64})


def test_lint_takes_what_the_data_showed() -> None:
    module = text_module(SOFTMAX + DIVIDED)
    sums = sum_of(4096)

    def found(module: Module, low: str, largest: dict[str, float]) -> list[str]:
        values = {n: _statistics(v) for n, v in largest.items()}
        calibration = Calibration(module.name, fingerprint(module), values)
        plan = make_plan(module, neuron_policy("all", low))
        return [f.message for f in lint(module, plan, TRN1, calibration)]

    assert found(module, FP16, {"x": 9.0}) == []  # without data it is a finding
    (message,) = found(module, BF16, {"x": 200.0})
    assert "inputs reach 200 on the data, where rounding is off by up to 0.78" in message
    assert found(sums, FP16, {"t": 100.0, "x": 40.0}) == []
    assert "reach 70000 on the data" in found(sums, FP16, {"t": 7e4})[0]


def test_lint_findings_are_rules_of_a_policy() -> None:
    """Each named instruction, out of the plan, and the finding is gone."""
    for case in CASES:
        module = _broken(case)
        plan = make_plan(module, neuron_policy(case.setting, case.low))
        (finding,) = [f for f in lint(module, plan, TRN1) if f.rule == case.rule]
        rules = float32_rules([finding])
        assert all(r.category == "never" and finding.rule in r.reason for r in rules)
        kept = {n for r in rules for n in r.name}
        assert kept == set(finding.keep_float32)
        if not kept or case.setting == "none" or case.rule.startswith("loop"):
            continue  # integers; the model's own types; a loop carries one type
        decisions = {n: d for n, d in plan.decisions.items() if n not in kept}
        repaired = Plan(plan.policy, plan.module, plan.fingerprint, decisions)
        left = [f for f in lint(module, repaired, TRN1) if f.rule == case.rule]
        assert left == [], case


def test_lint_findings_print_like_those_of_conformance() -> None:
    module = proto.read(ROOT / "examples" / "digits" / "model.hlo.pb")
    found = found_in(module, FP16)
    assert Counter(f.rule for f in found)["sum beyond the type"] == 4
    assert "reduce_sum.64" in {f.instruction for f in found}  # the one of the README
    assert summary(found).startswith("4 errors and ")
    first = group(found)[0]
    assert first[0].severity == "error"
    assert "main" in locations(first)
    assert first[0].label == "A2, fast variance"
    assert first[0].source == "docs/numerics.md, A2"


def test_lint_of_another_modules_plan_is_an_error() -> None:
    plan = make_plan(sum_of(8), neuron_policy("all", BF16))
    with pytest.raises(InvalidArgument, match="does not fit"):
        lint(sum_of(9), plan)


def _barrier(count: int) -> Module:
    """A tuple of this many arrays, each taken out of it."""
    shape, numbers = TupleShape((ROW,) * count), range(count)
    return large_modules.module_of(
        large_modules.parameter("x"),
        *(made(f"n{k}", "negate", "x") for k in numbers),
        made("t", "tuple", *(f"n{k}" for k in numbers), shape=shape),
        made("o", "opt-barrier", "t", shape=shape),
        *(large_modules.taken(f"g{k}", "o", k) for k in numbers),
        *(made(f"e{k}", "exponential", f"g{k}") for k in numbers),
        made("r", "tuple", *(f"e{k}" for k in numbers), shape=shape),
    )


def _carried(*changed: Instruction) -> Module:
    """A loop of many trips that carries what is changed in each of them."""
    shape = TupleShape((large_modules.COUNT, *[ROW] * len(changed)))
    given = [i.name for i in changed]
    called = large_modules.loop("body", shape, len(changed), changed, given, trips=10_000)
    return large_modules.looped(shape, [large_modules.parameter("x")], ["x"] * len(changed), called)


def _wide_loop(count: int) -> Module:
    """A loop that carries this many arrays."""
    return _carried(*(made(f"body.e{k}", "exponential", f"body.x{k}") for k in range(count)))


def _wide_sums(count: int) -> Module:
    """A loop that adds to each of this many arrays, one scaled by 1."""
    opcodes = ("multiply", *["add"] * (count - 1))
    return _carried(*(made(f"body.e{k}", o, *[f"body.x{k}"] * 2) for k, o in enumerate(opcodes)))


def _constants(count: int) -> Module:
    """A tuple of this many constants that float16 does not hold."""
    body = [large_modules.constant(f"c{k}", 100_000 + k) for k in range(count)]
    shape = TupleShape((large_modules.SCALAR,) * count)
    return large_modules.module_of(*body, made("t", "tuple", *(i.name for i in body), shape=shape))


def _copies(count: int) -> Module:
    """A value that is copied this many times."""
    copies = (made(f"x{k + 1}", "copy", f"x{k}") for k in range(count))
    last = made("r", "negate", f"x{count}")
    return large_modules.module_of(large_modules.parameter("x0"), *copies, last)


def _networks(count: int) -> Module:
    """Copies of a transformer, each reading nothing of the others."""
    module = proto.read(ROOT / "tests" / "data" / "networks" / "transformer.hlo.pb")
    entry, body = module.entry_computation, list[Instruction]()
    for copy in range(count // 60):
        names = {i.name: f"{i.name}.{copy}" for i in entry.instructions}
        for i in entry.instructions:
            new = i.replace(name=names[i.name], operands=tuple(names[o] for o in i.operands))
            if i.opcode == "parameter":
                new = made(new.name, "broadcast", "seed", shape=i.shape, dimensions=())
            body.append(new)
    seed = large_modules.parameter("seed", large_modules.SCALAR)
    return module.replace_entry(Computation(entry.name, (seed, *body), names[entry.root]))


def _lines_per_instruction(module: Module) -> float:
    """How many lines of Python one instruction costs: no seconds, which hang on the machine."""
    plan = make_plan(module, neuron_policy("all", FP16))
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        lint(module, plan, TRN1)
    finally:
        sys.settrace(before)
    return lines / sum(len(c.instructions) for c in module.computations)


@pytest.mark.parametrize(
    "build", [_barrier, _wide_loop, _wide_sums, _constants, _copies, large_modules.loops, _networks]
)
def test_lint_takes_the_same_time_for_each_instruction_of_wide_and_long_modules(
    build: Callable[[int], Module],
) -> None:
    assert _lines_per_instruction(build(480)) < 1.2 * _lines_per_instruction(build(60))


def test_lint_reads_every_operator_and_network() -> None:
    files = sorted((ROOT / "tests" / "data").glob("*/*.pb"))
    assert len(files) > 90
    for path in files:
        for finding in found_in(proto.read(path), FP8):
            assert finding.keep_float32 or finding.rule.startswith("64-bit")
