"""NumPy-style code as a type checker sees it; tests/test_stub.py has mypy read it."""

from typing import assert_type

import neuronsim as np


def normalized(x: np.Array) -> np.Array:
    mean = np.mean(x, axis=0, keepdims=True)
    spread = np.sqrt(np.var(x, axis=0) + 1e-5)
    return (x - mean) / spread


x = np.asarray([[1.0, 2.5], [0.5, 7.0]], dtype=np.bfloat16)
assert_type(normalized(x), np.Array)
assert_type(x.shape, tuple[int, ...])
assert_type(x.dtype, np.DType)
assert_type(np.float8_e4m3, np.DType)
assert_type(x.T, np.Array)

assert_type(np.exp(x), np.Array)
assert_type(np.exp(x, out=x, where=x > 0, dtype="float32", casting="unsafe"), np.Array)
assert_type(np.maximum(x, 0.0), np.Array)
assert_type(np.frexp(x), tuple[np.Array, np.Array])
assert_type(np.add.reduce(x, axis=0, keepdims=True), np.Array)
np.add.at(x, [0, 0], 1.0)

assert_type(np.zeros((2, 3), dtype="float16"), np.Array)
assert_type(np.matmul(x, x), np.Array)
assert_type(np.linalg.svdvals(x), np.Array)
assert_type(np.linalg.qr(x), np.linalg.QRResult | np.Array)
assert_type(np.fft.rfft(x), np.Array)
assert_type(np.nn.softmax(x), np.Array)
assert_type(np.random.default_rng(0), np.random.Generator)
np.testing.assert_bits_equal(x, x)

assert_type(np.pi, float)
assert_type(np.allclose(x, x), bool)
assert_type(np.shape(x), tuple[int, ...])
assert_type(np.finfo(np.bfloat16).max, float)
assert_type(np.isdtype(np.bool, "bool"), bool)

with np.use_profile(rounding="stochastic", seed=1), np.errstate(over="warn"):
    assert_type(np.current_profile(), np.Profile)
