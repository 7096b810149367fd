"""A loop that counts to five, and takes the tanh of 128,000 values in each trip."""

from __future__ import annotations

FIVE_TANH = """HloModule loop
body {
  p = (s32[], f32[128,1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[128,1000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[128,1000] tanh(x)
  ROOT r = (s32[], f32[128,1000]) tuple(next, y)
}
condition {
  p = (s32[], f32[128,1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[128,1000] parameter(0)
  w = f32[128,1000] negate(x)
  null = s32[] constant(0)
  given = (s32[], f32[128,1000]) tuple(null, w)
  loop = (s32[], f32[128,1000]) while(given), condition=condition, body=body
  z = f32[128,1000] get-tuple-element(loop), index=1
  ROOT v = f32[128,1000] abs(z)
}"""
