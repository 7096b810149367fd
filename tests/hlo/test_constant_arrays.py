"""Which arrays are there before a module runs, and its weights' bytes."""

from __future__ import annotations

import pytest
from tests.support.parameters import each_of

from neuronsim.hlo.constant_arrays import constant_arrays, weight_bytes
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text

pytestmark = pytest.mark.isa_independent

W = "f32[2,2] constant({ { 1, 2 }, { 3, 4 } })"


def entry(*lines: str, before: str = "") -> Module:
    body = "\n  ".join(["x = f32[2,2] parameter(0)", *lines])
    return inline_calls(from_text(f"HloModule m\n{before}\nENTRY main {{\n  {body}\n}}\n"))


V = "f32[2,2] constant({ { 5, 2 }, { 3, 4 } })"


@each_of(
    ("lines", "expected"),
    [
        (f"w = {W} | ROOT y = f32[2,2] add(x, w)", 16),
        # Once, however often and however moved it is read; in each type that it is read in.
        (
            f"w = {W} | t = f32[2,2] transpose(w), dimensions={{1,0}} | a = f32[2,2] add(x, w) | "
            "ROOT y = f32[2,2] add(a, t)",
            16,
        ),
        (
            f"w = {W} | h = bf16[2,2] convert(w) | f = f32[2,2] convert(h) | a = f32[2,2] add(x, f) | "
            "k = bf16[2,2] convert(a) | ROOT y = bf16[2,2] add(k, h)",
            16 + 8,
        ),
        (
            f"w = {W} | h = bf16[2,2] convert(w) | k = bf16[2,2] convert(x) | "
            "ROOT y = bf16[2,2] add(k, h)",
            8,
        ),
        # Scalars and what repeats them are no weights; constants that nothing reads are none.
        (
            f"s = f32[] constant(2) | b = f32[2,2] broadcast(s), dimensions={{}} | w = {W} | "
            "ROOT y = f32[2,2] add(x, b)",
            0,
        ),
        # What is folded of one weight is that weight; of several it counts where they are not read.
        (f"w = {W} | n = f32[2,2] negate(w) | ROOT y = f32[2,2] add(x, n)", 16),
        (f"w = {W} | v = {V} | n = f32[2,2] multiply(w, v) | ROOT y = f32[2,2] add(x, n)", 16),
        (
            f"w = {W} | v = {V} | n = f32[2,2] multiply(w, v) | a = f32[2,2] add(x, n) | "
            "b = f32[2,2] add(a, v) | ROOT y = f32[2,2] add(b, w)",
            32,
        ),
        # A slice is read from its weight, and the same literal twice is one weight.
        (
            f"w = {W} | s = f32[1,2] slice(w), slice={{[0:1],[0:2]}} | z = f32[1,2] slice(x), "
            "slice={[0:1],[0:2]} | ROOT y = f32[1,2] add(z, s)",
            16,
        ),
        (f"w = {W} | v = {W} | a = f32[2,2] add(x, w) | ROOT y = f32[2,2] add(a, v)", 16),
        # New biases that are all zero are two.
        (
            "w = f32[2] constant({0, 0}) | v = f32[2] constant({0, 0}) | "
            "b = f32[2,2] broadcast(w), dimensions={0} | c = f32[2,2] broadcast(v), dimensions={1} | "
            "a = f32[2,2] add(x, b) | ROOT y = f32[2,2] add(a, c)",
            16,
        ),
        (f"ROOT w = {W}", 16),  # a result
    ],
)
def test_weights_are_the_constants_in_the_types_that_are_read(lines: str, expected: int) -> None:
    assert weight_bytes(entry(*lines.split(" | "))) == expected


CALLED = """
layer { a = f32[2,2] parameter(0)  w = f32[2,2] constant({ { 1, 2 }, { 3, 4 } })
  ROOT b = f32[2,2] add(a, w) }
"""
BRANCHES = """
one { a = (f32[2,2], f32[2,2]) parameter(0)  ROOT w = f32[2,2] get-tuple-element(a), index=1 }
two { a = f32[2,2] parameter(0)  ROOT b = f32[2,2] tanh(a) }
"""


def test_a_layer_that_is_called_twice_has_its_weights_once() -> None:
    calls = ["y = f32[2,2] call(x), to_apply=layer", "ROOT z = f32[2,2] call(y), to_apply=layer"]
    assert weight_bytes(entry(*calls, before=CALLED)) == 16


def test_weights_pass_through_branches() -> None:
    lines = ["p = s32[] constant(0)", f"w = {W}", "t = (f32[2,2], f32[2,2]) tuple(x, w)"]
    last = "ROOT y = f32[2,2] conditional(p, t, x), branch_computations={one, two}"
    module = entry(*lines, last, before=BRANCHES)
    assert weight_bytes(module) == 16
    (given,) = constant_arrays(module)["one"]["w.1"]
    assert given is not None
    assert given.size == 4


LOOP = """
body {
  p = (s32[], f32[2,2], f32[2,2], f32[2,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[2,2] get-tuple-element(p), index=1
  h = f32[2,2] get-tuple-element(p), index=2
  k = f32[2,2] get-tuple-element(p), index=3
  c = bf16[2,2] convert(w)
  d = f32[2,2] convert(c)
  g = f32[2,2] add(h, d)
  l = f32[2,2] tanh(k)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[2,2], f32[2,2], f32[2,2]) tuple(next, w, g, l)
}
condition {
  p = (s32[], f32[2,2], f32[2,2], f32[2,2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
"""


def test_a_constant_without_elements_is_no_weight() -> None:
    module = entry("c = f32[0,2,3] constant({  })", "ROOT y = f32[0,2,3] negate(c)")
    assert weight_bytes(module) == 0


def test_what_a_loop_passes_on_is_constant_in_it_and_what_it_changes_is_not() -> None:
    shape = "(s32[], f32[2,2], f32[2,2], f32[2,2])"
    start = "v = f32[2,2] constant({ { 9, 2 }, { 3, 4 } })"
    lines = [f"w = {W}", start, "z = s32[] constant(0)", f"t = {shape} tuple(z, w, x, v)"]
    loop = f"o = {shape} while(t), condition=condition, body=body"
    last = "ROOT y = f32[2,2] get-tuple-element(o), index=2"
    module = entry(*lines, loop, last, before=LOOP)
    body = constant_arrays(module)["body"]
    assert [body[name][0] is not None for name in ("w.1", "d", "h", "k", "l")] == [
        *(True, True, False, False, False)
    ]
    # w as the bfloat16 that it was rounded to, in float32, and what k starts with.
    assert weight_bytes(module) == 16 + 16
