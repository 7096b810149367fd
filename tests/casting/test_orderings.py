"""Orderings: exponents that are never positive, and the same with one thing changed, which can be; both
are also run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.support.hlo_text import text_module
from tests.support.parameters import each_of
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.lint import lint
from neuronsim.casting.plans.plan import make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.hlo.module import Computation, Instruction, Module, TupleShape

pytestmark = pytest.mark.isa_independent  # the kernels' bits are not the subject

REGIONS = """
min { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] minimum(a, b) }
lt { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
gt { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GT }
jax_lt { a = f32[] parameter(0)
  an = pred[] compare(a, a), direction=NE
  nan = f32[] constant(nan)
  zero = f32[] constant(0)
  az = pred[] compare(a, zero), direction=EQ
  ag = f32[] select(az, zero, a)
  ah = f32[] select(an, nan, ag)
  b = f32[] parameter(1)
  bn = pred[] compare(b, b), direction=NE
  bz = pred[] compare(b, zero), direction=EQ
  bg = f32[] select(bz, zero, b)
  bh = f32[] select(bn, nan, bg)
  ROOT c = pred[] compare(ah, bh), direction=LT, type=TOTALORDER }
lt_of_two { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
  k = s32[] parameter(2)
  l = s32[] parameter(3) }
argmax { a = f32[] parameter(0)
  b = f32[] parameter(2)
  more = pred[] compare(a, b), direction=GT
  nan = pred[] compare(a, a), direction=NE
  p = pred[] or(more, nan)
  v = f32[] select(p, a, b)
  same = pred[] compare(a, b), direction=EQ
  k = s32[] parameter(1)
  l = s32[] parameter(3)
  before = pred[] compare(k, l), direction=LT
  first = pred[] and(same, before)
  q = pred[] or(p, first)
  n = s32[] select(q, k, l)
  ROOT t = (f32[], s32[]) tuple(v, n) }
argmin { a = f32[] parameter(0)
  b = f32[] parameter(2)
  p = pred[] compare(a, b), direction=LT
  v = f32[] select(p, a, b)
  k = s32[] parameter(1)
  l = s32[] parameter(3)
  n = s32[] select(p, k, l)
  ROOT t = (f32[], s32[]) tuple(v, n) }
"""


@dataclass(frozen=True)
class Case:
    """A computation whose exponent `s` is never positive, and what is replaced so that it can be."""

    name: str
    body: str
    broken: tuple[str, str]


ROWS = """
x = f32[4,6] parameter(0)
low = f32[] constant(-inf)
m = f32[4] reduce(x, low), dimensions={1}, to_apply=max
"""
SPREAD = """
mb = f32[4,6] broadcast(MAXIMUM), dimensions={0}
s = f32[4,6] subtract(x, mb)
"""
PLAIN = SPREAD.replace("MAXIMUM", "m")
GUARDED = SPREAD.replace("MAXIMUM", "g")
TWO = "x = f32[4,6] parameter(0)\ny = f32[4,6] parameter(1)\n"
SEGMENTS = """
x = f32[40] parameter(0)
i = s32[40] parameter(1)
o = s32[40] parameter(2)
low = f32[] constant(-inf)
z = f32[5] broadcast(low), dimensions={}
k = s32[40,1] reshape(i)
m = f32[5] scatter(z, k, x), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=max
"""
WRAPPED = """
nil = s32[] constant(0)
n = s32[40] broadcast(nil), dimensions={}
five = s32[] constant(5)
f = s32[40] broadcast(five), dimensions={}
lt = pred[40] compare(i, n), direction=LT
w = s32[40] add(i, f)
j = s32[40] select(lt, w, i)
v = s32[40,1] reshape(j)
"""
GATHERED = """
t = f32[40] gather(MAXIMA, v), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, \
index_vector_dim=1, slice_sizes={1}
s = f32[40] subtract(x, t)
"""
FINITE = """
zero = f32[] constant(0)
zb = f32[4] broadcast(zero), dimensions={}
p = pred[4] is-finite(m)
g = f32[4] select(p, m, zb)
"""
ADDED = """
x = f32[4] parameter(0)
y = f32[4] parameter(1)
inf = f32[] constant(inf)
ib = f32[4] broadcast(inf), dimensions={}
zero = f32[] constant(0)
zb = f32[4] broadcast(zero), dimensions={}
isx = pred[4] compare(x, ib), direction=EQ
gx = f32[4] select(isx, zb, x)
d = f32[4] subtract(x, y)
nan = pred[4] compare(d, d), direction=NE
a = f32[4] add(x, y)
m = f32[4] maximum(x, y)
h = f32[4] abs(d)
n = f32[4] negate(h)
q = f32[4] exponential(n)
l = f32[4] log-plus-one(q)
u = f32[4] add(m, l)
r = f32[4] select(nan, a, u)
isr = pred[4] compare(r, ib), direction=EQ
gr = f32[4] select(isr, zb, r)
s = f32[4] subtract(gx, gr)
"""
TOP = """
x = f32[16] parameter(0)
t = (f32[4], s32[4]) topk(x), k=4, largest=true
v = f32[4] get-tuple-element(t), index=0
u = f32[1] slice(v), slice={[0:1]}
w = f32[] reshape(u)
wb = f32[4] broadcast(w), dimensions={}
s = f32[4] subtract(v, wb)
"""
TOP_ROWS = """
x = f32[3,16] parameter(0)
t = (f32[3,4], s32[3,4]) topk(x), k=4, largest=true
v = f32[3,4] get-tuple-element(t), index=0
u = f32[3,1] slice(v), slice={[0:3], [0:1]}
w = f32[3] reshape(u)
wb = f32[3,4] broadcast(w), dimensions={0}
s = f32[3,4] subtract(v, wb)
"""
SORTED = """
x = f32[16] parameter(0)
v = f32[16] sort(x), dimensions={0}, to_apply=jax_lt
u = f32[1] slice(v), slice={[15:16]}
w = f32[] reshape(u)
wb = f32[16] broadcast(w), dimensions={}
s = f32[16] subtract(x, wb)
"""
PAIRS = """
x = f32[16] parameter(0)
k = s32[16] iota(), iota_dimension=0
t = (f32[16], s32[16]) sort(x, k), dimensions={0}, to_apply=lt_of_two
v = f32[16] get-tuple-element(t), index=0
u = f32[1] slice(v), slice={[15:16]}
""" + SORTED[SORTED.index("w =") :]
PLACED = """
x = f32[16] parameter(0)
k = s32[16] iota(), iota_dimension=0
low = f32[] constant(-inf)
nil = s32[] constant(0)
t = (f32[], s32[]) reduce(x, k, low, nil), dimensions={0}, to_apply=argmax
i = s32[] get-tuple-element(t), index=1
lt = pred[] compare(i, nil), direction=LT
c = s32[] constant(16)
j = s32[] add(i, c)
n = s32[] select(lt, j, i)
u = f32[1] dynamic-slice(x, n), dynamic_slice_sizes={1}
""" + SORTED[SORTED.index("w =") :]

CASES = (
    Case("the first of a top-k", TOP, ("[0:1]", "[1:2]")),
    Case("the first of a top-k of the largest", TOP, ("largest=true", "largest=false")),
    Case("the first of each row's top-k", TOP_ROWS, ("slice={[0:3], [0:1]}", "slice={[0:3], [1:2]}")),
    Case("the first of the same row's top-k", TOP_ROWS.replace("[3", "[4").replace("[0:3]", "[0:4]"),
         ("broadcast(w), dimensions={0}", "broadcast(w), dimensions={1}")),
    Case("what is below a top-k's first", TOP.replace("[4]", "[1]").replace("k=4", "k=1")
         .replace("wb = f32[1]", "wb = f32[16]").replace("s = f32[1]", "s = f32[16]")
         .replace("subtract(v", "subtract(x"), ("subtract(x, wb)", "subtract(wb, x)")),
    Case("a top-k's elements below the maximum", TOP.replace("w = f32[] reshape(u)", "low = f32[] "
         "constant(-inf)\nw = f32[] reduce(x, low), dimensions={0}, to_apply=max"),
         ("to_apply=max", "to_apply=min")),
    Case("the last of a sort", SORTED, ("[15:16]", "[0:1]")),
    Case("the last of a sort, not the one before", SORTED, ("[15:16]", "[14:15]")),
    Case("the first of a falling sort", SORTED.replace("jax_lt", "gt").replace("[15:16]", "[0:1]"),
         ("to_apply=gt", "to_apply=lt")),
    Case("the first of a sort turned round", SORTED.replace("slice(v)", "slice(r)").replace("u =",
         "r = f32[16] reverse(v), dimensions={0}\nu =").replace("[15:16]", "[0:1]"),
         ("[0:1]", "[15:16]")),
    Case("the least of a sort taken from", SORTED.replace("[15:16]", "[0:1]").replace("subtract(x, wb)",
         "subtract(wb, x)"), ("[0:1]", "[15:16]")),
    Case("the last of sorted pairs", PAIRS, ("[15:16]", "[0:1]")),
    Case("the element at an argmax", PLACED, ("to_apply=argmax", "to_apply=argmin")),
    Case("the element at the same value's argmax", PLACED,
         ("t = (f32[], s32[]) reduce(x,", "x2 = f32[16] cosine(x)\nt = (f32[], s32[]) reduce(x2,")),
    Case("the maximum of a row", ROWS + PLAIN, ("to_apply=max", "to_apply=min")),
    Case("of the same row", (ROWS + PLAIN).replace("[4", "[6"),
         ("mb = f32[6,6] broadcast(m), dimensions={0}", "mb = f32[6,6] broadcast(m), dimensions={1}")),
    Case("taken away, not taken from", ROWS + PLAIN, ("subtract(x, mb)", "subtract(mb, x)")),
    Case("of the value itself", "y = f32[4,6] parameter(1)" + ROWS + PLAIN,
         ("reduce(x, low)", "reduce(y, low)")),
    Case("scaled", ROWS + PLAIN.replace("s =", "r =") + "c = f32[] constant(2)\n"
         "cb = f32[4,6] broadcast(c), dimensions={}\ns = f32[4,6] multiply(r, cb)",
         ("constant(2)", "constant(-2)")),
    Case("both scaled", ROWS + "c = f32[] constant(2)\nk = f32[] constant(2)\n"
         "cb = f32[4,6] broadcast(c), dimensions={}\nkb = f32[4] broadcast(k), dimensions={}\n"
         "xs = f32[4,6] multiply(x, cb)\nms = f32[4] multiply(m, kb)\n"
         "mb = f32[4,6] broadcast(ms), dimensions={0}\ns = f32[4,6] subtract(xs, mb)",
         ("k = f32[] constant(2)", "k = f32[] constant(1)")),
    Case("the negative of a maximum added", ROWS + "mb = f32[4,6] broadcast(m), dimensions={0}\n"
         "n = f32[4,6] negate(mb)\ns = f32[4,6] add(n, x)", ("negate(mb)", "abs(mb)")),
    Case("behind a barrier", ROWS + "g = f32[4] opt-barrier(m)" + GUARDED,
         ("opt-barrier(m)", "tanh(m)")),
    Case("through a tuple", ROWS + "y = f32[4] parameter(1)\nt = (f32[4], f32[4]) tuple(m, y)\n"
         "o = (f32[4], f32[4]) opt-barrier(t)\ng = f32[4] get-tuple-element(o), index=0" + GUARDED,
         ("index=0", "index=1")),
    Case("through converts", ROWS + "h = bf16[4] convert(m)\ng = f32[4] convert(h)" + GUARDED,
         ("h = bf16[4] convert(m)\ng = f32[4] convert(h)", "h = s32[4] convert(m)\ng = f32[4] "
          "convert(h)")),
    Case("by way of one axis more", "y = f32[4,6] parameter(1)" + ROWS + "a = f32[4,1] reshape(m)\n"
         "b = f32[4,1] broadcast(a), dimensions={0,1}\ng = f32[4] reshape(b)" + GUARDED,
         ("reduce(x, low)", "reduce(y, low)")),
    Case("of a reshaped value", "x = f32[4,6] parameter(0)\nlow = f32[] constant(-inf)\n"
         "r = f32[4,2,3] reshape(x)\nm = f32[4,3] reduce(r, low), dimensions={1}, to_apply=max\n"
         "k = f32[4] reduce(m, low), dimensions={1}, to_apply=max\n"
         + SPREAD.replace("MAXIMUM", "k"), ("dimensions={1}, to_apply=max\nk", "dimensions={1}, "
         "to_apply=min\nk")),
    Case("guarded against infinity", ROWS + FINITE + GUARDED, ("select(p, m, zb)", "select(p, zb, m)")),
    Case("guarded by a comparison", ROWS + FINITE.replace("is-finite(m)", "compare(m, lb), "
         "direction=NE").replace("p =", "lb = f32[4] broadcast(low), dimensions={}\np =") + GUARDED,
         ("direction=NE", "direction=EQ")),
    Case("the maximum of a mask's choice", "y = pred[4,6] parameter(1)\nx = f32[4,6] parameter(0)\n"
         "low = f32[] constant(-1e9)\nlb = f32[4,6] broadcast(low), dimensions={}\n"
         "w = f32[4,6] select(y, x, lb)\nv = f32[4,6] select(y, x, lb)\n"
         "m = f32[4] reduce(w, low), dimensions={1}, to_apply=max\n"
         "mb = f32[4,6] broadcast(m), dimensions={0}\ns = f32[4,6] subtract(v, mb)",
         ("subtract(v, mb)", "subtract(x, mb)")),
    Case("clamped below", ROWS + "a = f32[] constant(-100)\nb = f32[] constant(3.4e38)\n"
         "g = f32[4] clamp(a, m, b)" + GUARDED, ("3.4e38", "1")),
    Case("the larger of two", TWO + "m = f32[4,6] maximum(y, x)\ns = f32[4,6] subtract(x, m)",
         ("maximum(y, x)", "minimum(y, x)")),
    Case("the smaller of two", TWO + "m = f32[4,6] minimum(y, x)\ns = f32[4,6] subtract(m, x)",
         ("subtract(m, x)", "subtract(x, m)")),
    Case("a running maximum", ROWS + "o = f32[4] parameter(1)\nn = f32[4] maximum(o, m)\n"
         "s = f32[4] subtract(o, n)", ("subtract(o, n)", "subtract(n, o)")),
    Case("what is below a running maximum", ROWS + "o = f32[4] parameter(1)\nn = f32[4] maximum(o, m)"
         + SPREAD.replace("MAXIMUM", "n"), ("broadcast(n)", "broadcast(o)")),
    Case("a cumulative maximum", "x = f32[6] parameter(0)\nlow = f32[] constant(-inf)\n"
         "m = f32[6] reduce-window(x, low), window={size=6 pad=5_0}, to_apply=max\n"
         "s = f32[6] subtract(x, m)", ("to_apply=max", "to_apply=min")),
    Case("a window that holds the element", "x = f32[6] parameter(0)\nlow = f32[] constant(-1e9)\n"
         "m = f32[6] reduce-window(x, low), window={size=3 pad=2_0}, to_apply=max\n"
         "s = f32[6] subtract(x, m)", ("pad=2_0", "pad=3_-1")),
    Case("a segment's maximum", SEGMENTS + WRAPPED + GATHERED.replace("MAXIMA", "m"),
         ("v = s32[40,1] reshape(j)", "v = s32[40,1] reshape(o)")),
    Case("a segment's maximum, wrapped otherwise", SEGMENTS + WRAPPED + GATHERED.replace("MAXIMA", "m"),
         ("select(lt, w, i)", "select(lt, i, w)")),
    Case("a segment's minimum", SEGMENTS + WRAPPED + GATHERED.replace("MAXIMA", "m"),
         ("to_apply=max", "to_apply=min")),
    Case("a segment's guarded maximum", SEGMENTS + FINITE.replace("[4]", "[5]") + WRAPPED
         + GATHERED.replace("MAXIMA", "g"), ("select(p, m, zb)", "select(p, zb, m)")),
    Case("the logarithm of a sum", ADDED, ("m = f32[4] maximum(x, y)", "m = f32[4] minimum(x, y)")),
    Case("logsumexp", ROWS + PLAIN.replace("s =", "c =").replace("mb", "mc") + "zero = f32[] "
         "constant(0)\nq = f32[4,6] exponential(c)\nt = f32[4] reduce(q, zero), dimensions={1}, "
         "to_apply=add\nl = f32[4] log(t)\nk = f32[4] add(l, m)" + SPREAD.replace("MAXIMUM", "k"),
         ("add(l, m)", "subtract(l, m)")),
    Case("log_softmax", ROWS + PLAIN.replace("s =", "c =").replace("mb", "mc") + "zero = f32[] "
         "constant(0)\nq = f32[4,6] exponential(c)\nt = f32[4] reduce(q, zero), dimensions={1}, "
         "to_apply=add\nl = f32[4] log(t)\nlb = f32[4,6] broadcast(l), dimensions={0}\n"
         "s = f32[4,6] subtract(c, lb)", ("l = f32[4] log(t)", "k = f32[4] log(t)\nl = f32[4] "
         "multiply(k, m)")),
    Case("a transposed value", ROWS + "xt = f32[6,4] transpose(x), dimensions={1,0}\n"
         "mb = f32[6,4] broadcast(m), dimensions={1}\ns = f32[6,4] subtract(xt, mb)",
         ("dimensions={1}, to_apply=max", "dimensions={1}, to_apply=min")),
    Case("a padded maximum", "x = f32[6] parameter(0)\nlow = f32[] constant(-inf)\n"
         "p = f32[8] pad(x, low), padding=1_1\nm = f32[] reduce(p, low), dimensions={0}, to_apply=max\n"
         "mb = f32[6] broadcast(m), dimensions={}\ns = f32[6] subtract(x, mb)",
         ("padding=1_1", "padding=5_-3")),
    Case("the maximum of what is joined", TWO + "low = f32[] constant(-inf)\nj = f32[8,6] "
         "concatenate(x, y), dimensions={0}\nm = f32[6] reduce(j, low), dimensions={0}, to_apply=max\n"
         "mb = f32[4,6] broadcast(m), dimensions={1}\ns = f32[4,6] subtract(y, mb)",
         ("concatenate(x, y)", "concatenate(x, x)")),
    Case("a slice", "x = f32[8] parameter(0)\na = f32[4] slice(x), slice={[0:4]}\n"
         "b = f32[4] slice(x), slice={[0:4]}\nc = f32[4] parameter(1)\nm = f32[4] maximum(b, c)\n"
         "s = f32[4] subtract(a, m)", ("b = f32[4] slice(x), slice={[0:4]}",
                                       "b = f32[4] slice(x), slice={[1:5]}")),
    Case("a square's negative", "x = f32[4] parameter(0)\nn = f32[4] negate(x)\n"
         "s = f32[4] multiply(n, x)", ("negate(x)", "abs(x)")),
    Case("where it is negative", "x = f32[4] parameter(0)\nzero = f32[] constant(0)\n"
         "zb = f32[4] broadcast(zero), dimensions={}\np = pred[4] compare(x, zb), direction=GT\n"
         "s = f32[4] select(p, zb, x)", ("direction=GT", "direction=LT")),
)  # fmt: skip


def module_of(body: str, root: str) -> Module:
    lines = [line for line in body.splitlines() if line]
    shape = next(line for line in lines if line.startswith("s = ")).split(" ")[2]
    return text_module("\n".join([*lines, root.format(shape)]), REGIONS)


def is_found(module: Module) -> bool:
    found = lint(module, make_plan(module, neuron_policy("all", "fp16")))
    return any(f.rule == "exponential without maximum" and f.instruction == "e" for f in found)


def largest_exponent(module: Module) -> float:
    """Over some random inputs; indices are from 0 to 4."""
    entry = module.entry_computation
    out = Instruction("out", "tuple", TupleShape((entry.by_name["s"].shape,)), ("s",))
    watched = module.replace_entry(Computation(entry.name, (*entry.instructions, out), out.name))
    watched = replace(watched, entry_layout=None)
    largest = -np.inf
    for seed in range(4):
        rng = np.random.default_rng(seed)
        inputs = []
        for p in module.parameters:
            dtype = p.array.dtype
            values = rng.normal(0, 3, p.array.dims)
            if dtype.kind == "signed":
                values = rng.integers(0, 5, p.array.dims)
            elif dtype is dtypes.boolean:
                values = rng.integers(0, 2, p.array.dims)
            inputs.append(ops.Bits(np.ascontiguousarray(values.astype(dtype.numpy)), dtype))
        (exponent,) = execute(watched, inputs)
        largest = max(largest, float(np.nanmax(ops.numbers(exponent))))
    return largest


@each_of("case", CASES, ids=lambda c: c.name)
def test_an_exponent_that_is_never_positive_is_no_finding_and_its_near_miss_is(case: Case) -> None:
    root = "ROOT e = {0} exponential(s)"
    safe = module_of(case.body, root)
    assert case.broken[0] in case.body
    broken = module_of(case.body.replace(*case.broken, 1), root)
    assert largest_exponent(safe) <= 2.0**-6  # exact but for the casts in between
    assert largest_exponent(broken) > 0.1
    assert not is_found(safe)
    assert is_found(broken)
