"""A network whose variance is the difference of two large numbers: all/bf16 breaks it."""

NETWORK = """HloModule network
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[8,64] parameter(0) big = f32[] constant(40)
  offset = f32[8,64] broadcast(big), dimensions={} h = f32[8,64] add(x, offset)
  square = f32[8,64] multiply(h, h) zero = f32[] constant(0)
  total = f32[8] reduce(square, zero), dimensions={1}, to_apply=sum
  plain = f32[8] reduce(h, zero), dimensions={1}, to_apply=sum
  n = f32[] constant(0.015625) inverse = f32[8] broadcast(n), dimensions={}
  mean = f32[8] multiply(plain, inverse) second = f32[8] multiply(total, inverse)
  third = f32[8] multiply(mean, mean) variance = f32[8] subtract(second, third)
  wide = f32[8,64] broadcast(variance), dimensions={0} ROOT y = f32[8,64] multiply(wide, x) }"""
