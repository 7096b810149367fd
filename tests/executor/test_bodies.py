"""Bodies of loops and branches whose chains, copies and products of few elements run as steps (D2):
every type, few elements and one too many, values in registers, in place and broadcast, against the
interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.support import interpreter
from tests.support.draws import random_words
from tests.support.running import contents
from tests.support.words import Words, as_bits

import neuronsim
from neuronsim import ops
from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import run_schedule
from neuronsim.hlo.parse import from_text
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

pytestmark = pytest.mark.usefixtures("loops_stay")

FEW = 64  # elements of a step: Body::few_elements
NAMES = {
    "float32": "f32", "bfloat16": "bf16", "float16": "f16", "float8_e5m2": "f8e5m2", "int32": "s32",
    "uint32": "u32", "int64": "s64", "int16": "s16", "int8": "s8", "uint8": "u8",
}  # fmt: skip
# A state that is read after it is given anew, one that its own chain overwrites, a bool, a scalar that
# goes everywhere, an element at a computed place, a selection by what only it reads.
LOOP = """HloModule m
condition {
  p = (s32[], T[N], T[N], T[], pred[N], T[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=0
  last = s32[] constant(5)
  ROOT less = pred[] compare(i, last), direction=LT
}

body {
  p = (s32[], T[N], T[N], T[], pred[N], T[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = T[N] get-tuple-element(p), index=1
  y = T[N] get-tuple-element(p), index=2
  e = T[] get-tuple-element(p), index=3
  b = pred[N] get-tuple-element(p), index=4
  z = T[N] get-tuple-element(p), index=5
  one = s32[] constant(1)
  next = s32[] add(i, one)
  es = T[N] broadcast(e), dimensions={}
  sum = T[N] add(x, es)
  less = pred[N] compare(sum, y), direction=LT
  either = pred[N] xor(less, b)
  chosen = T[N] select(either, sum, y)
  narrow = bf16[N] convert(chosen)
  wide = T[N] convert(narrow)
  product = T[N] multiply(wide, y)
  part = T[1] dynamic-slice(product, i), dynamic_slice_sizes={1}
  element = T[] reshape(part)
  doubled = T[] add(element, e)
  changed = T[N] dynamic-update-slice(z, part, next)
  turned = T[N] negate(changed)
  above = pred[N] compare(turned, y), direction=GT
  picked = T[N] select(above, turned, x)
  ROOT state = (s32[], T[N], T[N], T[], pred[N], T[N]) tuple(next, y, product, doubled, either, picked)
}

ENTRY main {
  x = T[N] parameter(0)
  y = T[N] parameter(1)
  e = T[] parameter(2)
  b = pred[N] parameter(3)
  zero = s32[] constant(0)
  state = (s32[], T[N], T[N], T[], pred[N], T[N]) tuple(zero, x, y, e, b, x)
  ROOT w = (s32[], T[N], T[N], T[], pred[N], T[N]) while(state), condition=condition, body=body
}
"""
# A shift that becomes a rotation, a result rounded to 8 bits, one that no step stores twice.
ROTATIONS = """HloModule m
condition {
  p = (s32[], u32[N], s8[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  last = s32[] constant(9)
  ROOT less = pred[] compare(i, last), direction=LT
}

body {
  p = (s32[], u32[N], s8[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = u32[N] get-tuple-element(p), index=1
  y = s8[N] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = u32[] constant(13)
  b = u32[] constant(19)
  as = u32[N] broadcast(a), dimensions={}
  bs = u32[N] broadcast(b), dimensions={}
  left = u32[N] shift-left(x, as)
  right = u32[N] shift-right-logical(x, bs)
  turned = u32[N] or(left, right)
  square = s8[N] multiply(y, y)
  more = s8[N] add(square, y)
  word = u32[N] convert(more)
  mixed = u32[N] xor(turned, word)
  ROOT state = (s32[], u32[N], s8[N]) tuple(next, mixed, more)
}

ENTRY main {
  x = u32[N] parameter(0)
  y = s8[N] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], u32[N], s8[N]) tuple(zero, x, y)
  ROOT w = (s32[], u32[N], s8[N]) while(state), condition=condition, body=body
}
"""


# A product whose result lies turned, one that goes on through a chain, one of the results of both.
PRODUCTS = """HloModule m
condition {
  p = (s32[], T[A], T[B], T[M,N], T[N,M], T[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  last = s32[] constant(3)
  ROOT less = pred[] compare(i, last), direction=LT
}

body {
  p = (s32[], T[A], T[B], T[M,N], T[N,M], T[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = T[A] get-tuple-element(p), index=1
  w = T[B] get-tuple-element(p), index=2
  y = T[M,N] get-tuple-element(p), index=3
  e = T[] get-tuple-element(p), index=5
  one = s32[] constant(1)
  next = s32[] add(i, one)
  alone = T[M,N] dot(x, w), CONTRACTING
  other = T[A] negate(x)
  passed = T[M,N] dot(other, w), CONTRACTING
  es = T[M,N] broadcast(e), dimensions={}
  added = T[M,N] add(passed, y)
  less = T[M,N] subtract(added, passed)
  product = T[M,N] multiply(added, es)
  scaled = T[M,N] maximum(less, product)
  turned = T[N,M] transpose(alone), dimensions={1,0}
  back = T[M,M] dot(scaled, turned), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  first = T[1,1] slice(back), slice={[0:1], [0:1]}
  element = T[] reshape(first)
  ROOT state = (s32[], T[A], T[B], T[M,N], T[N,M], T[]) tuple(next, other, w, scaled, turned, element)
}

ENTRY main {
  x = T[A] parameter(0)
  w = T[B] parameter(1)
  y = T[M,N] parameter(2)
  z = T[N,M] parameter(3)
  e = T[] parameter(4)
  zero = s32[] constant(0)
  state = (s32[], T[A], T[B], T[M,N], T[N,M], T[]) tuple(zero, x, w, y, z, e)
  ROOT w2 = (s32[], T[A], T[B], T[M,N], T[N,M], T[]) while(state), condition=condition, body=body
}
"""
# A product whose results become bytes in one pass.
BYTES = """HloModule m
condition {
  p = (s32[], f32[4,5], Q[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  last = s32[] constant(3)
  ROOT less = pred[] compare(i, last), direction=LT
}

body {
  p = (s32[], f32[4,5], Q[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,5] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  other = f32[4,5] negate(x)
  product = f32[4,4] dot(other, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  scale = f32[] constant(0.37)
  scales = f32[4,4] broadcast(scale), dimensions={}
  scaled = f32[4,4] multiply(product, scales)
  rounded = f32[4,4] round-nearest-even(scaled)
  low = f32[] constant(LOW)
  high = f32[] constant(HIGH)
  clamped = f32[4,4] clamp(low, rounded, high)
  q = Q[4,4] convert(clamped)
  ROOT state = (s32[], f32[4,5], Q[4,4]) tuple(next, other, q)
}

ENTRY main {
  x = f32[4,5] parameter(0)
  q = Q[4,4] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[4,5], Q[4,4]) tuple(zero, x, q)
  ROOT w = (s32[], f32[4,5], Q[4,4]) while(state), condition=condition, body=body
}
"""
MOST = 16  # rows, columns and elements of the contraction of a step: FewProduct::most
ROW = (1, 128, 64)  # and of a step of one row: most_depth, most_columns


def products(rows: int, depth: int, columns: int, contracting: tuple[int, int], kind: str) -> str:
    a = (rows, depth) if contracting[0] else (depth, rows)
    b = (columns, depth) if contracting[1] else (depth, columns)
    lhs, rhs = contracting
    axes = f"lhs_contracting_dims={{{lhs}}}, rhs_contracting_dims={{{rhs}}}"
    text = PRODUCTS.replace("CONTRACTING", axes).replace("[A]", f"[{a[0]},{a[1]}]")
    text = (
        text.replace("[B]", f"[{b[0]},{b[1]}]").replace("[M,", f"[{rows},").replace(",M]", f",{rows}]")
    )
    return text.replace("[N,", f"[{columns},").replace(",N]", f",{columns}]").replace("T[", f"{kind}[")


def check(text: str, words: Sequence[Words] = (), **fields: str) -> None:
    """On random words where the first parameters get no others."""
    module = from_text(text)
    verify(module)
    profile = Profile(int64="keep", **fields)
    program = compile_module(module, profile, find_target("host"))
    rng = np.random.default_rng(len(text))
    types = [(p.array.dtype.name, p.array.dims) for p in module.parameters]
    arrays = [as_bits(name, random_words(rng, name, dims)) for name, dims in types]
    for n, given_words in enumerate(words):
        arrays[n] = as_bits(types[n][0], given_words)
    expected = contents(interpreter.evaluate(module, arrays, profile)[0])
    # Elements may lie where no vector begins.
    for given, observe in ((arrays, "off"), (list(map(_apart, arrays)), "off"), (arrays, "counts")):
        named = {p.name: x for p, x in zip(module.parameters, given, strict=True)}
        assert contents(run_schedule(program, named, observe=observe)) == expected


def _apart(x: ops.Bits) -> ops.Bits:
    room = np.empty(x.data.size + 1, x.data.dtype)
    room[1:] = x.data.ravel()
    return ops.Bits(room[1:].reshape(x.data.shape), x.dtype)


@pytest.mark.parametrize("count", [1, 5, FEW + 1])
@pytest.mark.parametrize("name", NAMES)
def test_body_of_few_elements_equals_the_interpreters_D2(name: str, count: int, isa: str) -> None:
    check(LOOP.replace("T[", f"{NAMES[name]}[").replace("[N]", f"[{count}]"))


@pytest.mark.parametrize("contracting", [(1, 0), (1, 1), (0, 0), (0, 1)])
def test_body_multiplies_few_elements_M2(contracting: tuple[int, int], isa: str) -> None:
    sizes = [(4, 4, 4), (1, MOST, MOST), (MOST, MOST, 1), (5, 3, 7), (8, 8, 8), (9, 1, 8), (MOST,) * 3]
    sizes += [(MOST + 1, 4, 3), (3, MOST + 1, 4), (4, 3, MOST + 1)]  # too many
    for rows, depth, columns in sizes:
        check(products(rows, depth, columns, contracting, "f32"))


@pytest.mark.parametrize("contracting", [(1, 0), (1, 1), (0, 0)])
def test_body_multiplies_a_row_of_few_elements_M2(contracting: tuple[int, int], isa: str) -> None:
    sizes = [ROW, (1, 128, 1), (1, 17, 37), (1, 3, 20), (64, 50, 1)]
    sizes += [(1, 129, 5), (1, 6, 65)]  # too many
    for rows, depth, columns in sizes:
        text = products(rows, depth, columns, contracting, "f32")
        check(text)
        # Ordinary values too, whose sums are numbers.
        rng = np.random.default_rng([rows, depth, columns])
        dims = [p.array.dims for p in from_text(text).parameters]
        check(text, [random_words(rng, "float32", d, "near") for d in dims])


def test_body_adds_a_row_of_vanished_products_to_psum_M2() -> None:
    x, w = np.full((1, 1), 2.0**-100, np.float32), np.full((1, 40), -(2.0**-100), np.float32)
    check(products(1, 1, 40, (1, 0), "f32"), (x.view(np.uint32), w.view(np.uint32)))
    for columns in (40, 3, 1):  # which the same kernel computes
        assert not np.signbit(
            np.asarray(neuronsim.asarray(x) @ neuronsim.asarray(w[:, :columns]))
        ).any()


def test_body_multiplies_what_leaves_its_loop_M2() -> None:
    invariant = products(3, 4, 5, (1, 0), "f32").replace("negate(x)", "copy(x)")
    check(invariant.replace("tuple(next, other,", "tuple(next, x,"))


def test_body_multiplies_other_types_and_otherwise_M6_D2() -> None:
    for kind in ("bf16", "s32"):
        check(products(3, 4, 5, (1, 0), kind))
    for fields in ({"subnormals": "flush"}, {"accumulate": "exact"}, {"accumulate": "sequential"}):
        check(products(3, 4, 5, (1, 0), "f32"), **fields)


def test_body_multiplies_into_bytes_Q1() -> None:
    check(BYTES.replace("Q[", "s8[").replace("LOW", "-128").replace("HIGH", "127"))
    check(BYTES.replace("Q[", "u8[").replace("LOW", "0").replace("HIGH", "255"))


@pytest.mark.parametrize("count", [1, 7, FEW + 1])
def test_body_rotates_and_wraps_D2(count: int, isa: str) -> None:
    check(ROTATIONS.replace("[N]", f"[{count}]"))


def test_body_flushes_subnormals_C4_and_sums_integers_through_float32_C1() -> None:
    text = LOOP.replace("[N]", "[3]")
    check(text.replace("T[", "f32["), subnormals="flush")
    check(text.replace("T[", "s32["), int32_elementwise="via_float32")
