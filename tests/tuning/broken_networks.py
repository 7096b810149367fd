"""Small networks, each broken in one known way under the setting that breaks it, and healthy ones.

Each is written with NumPy's names, so that JAX (`jax.numpy`) and neuronsim's own arrays run it alike.
`planted` has the opcodes of the instructions that are broken, any of which is the right answer, and
`kinds` the classes of docs/blame.md that fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FP16, BF16 = "fp16", "bf16"


@dataclass(frozen=True)
class Network:
    """A function of (np, x) and its data, under a type of `--auto-cast all`."""

    name: str
    low: str
    function: Callable[..., Any]
    data: Callable[[np.random.Generator], np.ndarray]
    planted: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def inputs(self) -> dict[str, np.ndarray]:
        return {"x": self.data(np.random.default_rng(7)).astype(np.float32)}


def _weights(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=shape)
    return (values * scale / np.sqrt(shape[0])).astype(np.float32)


W = _weights(1, 32, 32)
V = _weights(2, 32, 8)
U = _weights(3, 32, 64)
BIAS = np.linspace(-0.5, 0.5, 32).astype(np.float32)


def _dense(np: Any, x: Any, w: Any) -> Any:
    return np.tanh(x @ np.asarray(w))


def _head(np: Any, x: Any) -> Any:
    return x @ np.asarray(V)


def _normal(scale: float = 1.0, mean: float = 0.0) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.normal(size=(16, 32)) * scale + mean


def _positive(rng: np.random.Generator) -> np.ndarray:
    return np.abs(rng.normal(size=(16, 32))) * 20 + 20


def _mean(x: Any) -> Any:
    return x.mean(-1, keepdims=True)


# ---- overflow ------------------------------------------------------------------------------------


def sum_of_squares(np: Any, x: Any) -> Any:
    return _head(np, x / np.sqrt((x * x).sum(-1, keepdims=True)))


def rms_norm(np: Any, x: Any) -> Any:
    return _head(np, x / np.sqrt(_mean(x * x) + 1e-3))


def euclidean_distance(np: Any, x: Any) -> Any:
    d = x[:, None, :] - x[None, :, :]
    return np.exp(-np.sqrt((d * d).sum(-1)) / 1000.0)


def exp_of_large_logits(np: Any, x: Any) -> Any:
    e = np.exp(x)
    return _head(np, e / e.sum(-1, keepdims=True))


def log_sum_exp(np: Any, x: Any) -> Any:
    return np.log(np.exp(x).sum(-1)) - x[:, 0]


def integer_power(np: Any, x: Any) -> Any:
    y = x * x * x * x
    return np.tanh(y * 1e-5) @ np.asarray(V)


def gelu_by_tanh(np: Any, x: Any) -> Any:
    inner = 0.7978845608 * (x + 0.044715 * (x * x * x))
    return _head(np, x * np.sqrt(1.0 / (1.0 + (inner / 100.0) * (inner / 100.0))))


def large_embedding(np: Any, x: Any) -> Any:
    table = np.asarray(_weights(5, 32, 16, scale=3e5))
    return (x @ table) / 1e4


def variance_overflow(np: Any, x: Any) -> Any:
    d = x - _mean(x)
    return _head(np, d / np.sqrt(_mean(d * d) + 1e-5))


def scaled_logits(np: Any, x: Any) -> Any:
    y = (x @ np.asarray(W)) / 1e-4
    return np.tanh(y * 1e-5) @ np.asarray(V)


def product_of_factors(np: Any, x: Any) -> Any:
    """A geometric mean by the product."""
    p = x[:, 0] * x[:, 1] * x[:, 2] * x[:, 3]
    return np.sqrt(np.sqrt(p))


def hyperbolic(np: Any, x: Any) -> Any:
    e, f = np.exp(x), np.exp(-x)
    return _head(np, (e - f) / (e + f))


def mask_of_1e9(np: Any, x: Any) -> Any:
    """Added masks, one row of which masks everything."""
    mask = np.asarray(_MASK) * np.asarray(np.float32(-1e9))
    s = x @ x.T + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


_MASK = np.triu(np.ones((16, 16), np.float32), 1)
_MASK[3] = 1.0


def masked_mean(np: Any, x: Any) -> Any:
    kept = np.where(x > 0, 1.0, 0.0)
    s = x * kept + (1.0 - kept) * np.asarray(np.float32(-3.4028235e38))
    return np.maximum(s.max(-1), -100.0)


def sums_of_counts(np: Any, x: Any) -> Any:
    y = np.abs(x) * 100.0
    return y / y.sum(-1, keepdims=True) @ np.asarray(V)


# ---- underflow -----------------------------------------------------------------------------------


def _some_constant(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(16, 32))
    x[3] = 2.0
    return x


def tiny_epsilon(np: Any, x: Any) -> Any:
    d = x - _mean(x)
    return _head(np, d / np.sqrt(_mean(d * d) + 1e-12))


def tiny_epsilon_of_a_norm(np: Any, x: Any) -> Any:
    return _head(np, x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-10))


def _some_zero(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(16, 32))
    x[5] = 0.0
    return x


def log_of_probabilities(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return np.log(p)


def cross_entropy(np: Any, x: Any) -> Any:
    p = 1.0 / (1.0 + np.exp(-x))
    return -(np.log(p) + np.log(1.0 - p)) / 20.0


def small_variance(np: Any, x: Any) -> Any:
    """A batch norm of a channel that hardly varies."""
    d = x - _mean(x)
    return _head(np, d / np.sqrt(_mean(d * d) + 1e-14))


def kl_divergence(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    q = np.asarray(np.full((32,), 1 / 32, np.float32))
    return (q * (np.log(q) - np.log(p))).sum(-1)


def product_of_probabilities(np: Any, x: Any) -> Any:
    p = 1.0 / (1.0 + np.exp(x))
    q = p[:, 0] * p[:, 1] * p[:, 2] * p[:, 3] * p[:, 4] * p[:, 5]
    return np.log(q) / 10.0


def gradient_scale(np: Any, x: Any) -> Any:
    y = (x * 1e-4) * (x * 1e-4)
    return _head(np, np.sqrt(y) * 1e4)


# ---- cancellation --------------------------------------------------------------------------------


def fast_variance(np: Any, x: Any) -> Any:
    m = _mean(x)
    v = _mean(x * x) - m * m
    return _head(np, (x - m) / np.sqrt(np.abs(v) + 1e-3))


def large_mean(np: Any, x: Any) -> Any:
    d = x - _mean(x)
    return _head(np, d / np.sqrt(_mean(d * d) + 1e-3))


def near_vectors(np: Any, x: Any) -> Any:
    """1 - cosine similarity of vectors that are nearly alike."""
    y = x + 0.02 * np.tanh(x @ np.asarray(W))
    norms = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return (1.0 - (x * y).sum(-1) / norms) * 1000.0


def near_difference(np: Any, x: Any) -> Any:
    a = x + 100.0
    b = a + 0.05 * np.tanh(x @ np.asarray(W))
    return (b - a) @ np.asarray(V)


def pairwise_distance(np: Any, x: Any) -> Any:
    """|x|^2 + |y|^2 - 2 x y of points far from 0."""
    s = (x * x).sum(-1)
    d = s[:, None] + s[None, :] - 2.0 * (x @ x.T)
    return np.exp(-np.abs(d) / 50.0)


def one_minus_exp(np: Any, x: Any) -> Any:
    small = np.abs(x) * 1e-3
    return (np.exp(small) - 1.0) * 1e3


def log_of_one_plus(np: Any, x: Any) -> Any:
    small = np.abs(x) * 1e-3
    return np.log(1.0 + small) * 1e3


def quadratic_root(np: Any, x: Any) -> Any:
    b = 50.0 + x
    return (b - np.sqrt(b * b - 1.0)) * 50.0


def small_norm(np: Any, x: Any) -> Any:
    """Division by the norm of a small difference."""
    d = (x + 40.0) - 40.0 * (1.0 + 0.01 * np.tanh(x @ np.asarray(W)))
    return d / np.sqrt((d * d).sum(-1, keepdims=True) + 1e-3)


def cumulative_difference(np: Any, x: Any) -> Any:
    c = np.cumsum(np.abs(x) + 20.0, -1)
    return (c[:, 1:] - c[:, :-1] - 20.0) @ np.asarray(_weights(9, 31, 8))


def polynomial(np: Any, x: Any) -> Any:
    y = 1.0 + 0.01 * np.tanh(x)
    return (((y - 4.0) * y + 6.0) * y - 4.0) * y + 1.0 + 1e-3 * x * x


# ---- steep functions, integers, loops ------------------------------------------------------------


def large_angles(np: Any, x: Any) -> Any:
    angle = np.abs(x[:, :1]) * 1000.0 * np.asarray(_FREQUENCIES)
    return np.sin(angle)


_FREQUENCIES = (10000.0 ** -(np.arange(32) / 64)).astype(np.float32)


def positions(np: Any, x: Any) -> Any:
    """Positional angles of 2,048 positions."""
    place = np.arange(16, dtype=np.float32) * 128.0 + 1.0 + np.abs(x[:, 0])
    return np.cos(place[:, None] * np.asarray(_FREQUENCIES)[None, :])


def low_temperature(np: Any, x: Any) -> Any:
    y = x / 0.01
    e = np.exp(y - y.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return _head(np, p)


def softmax_without_maximum(np: Any, x: Any) -> Any:
    e = np.exp(x)
    return _head(np, e / e.sum(-1, keepdims=True))


def exp_of_logits(np: Any, x: Any) -> Any:
    return np.exp(x @ np.asarray(W) * 16.0)


def large_power(np: Any, x: Any) -> Any:
    y = 1.0 + 0.1 * np.tanh(x)
    z = y * y
    z = z * z
    z = z * z
    z = z * z
    z = z * z
    return z * z


def token_numbers(np: Any, x: Any) -> Any:
    """Numbers of tokens in floats, compared."""
    ids = np.floor(np.abs(x[:, :1]) * 1000.0)
    return np.where(ids == np.asarray(_IDS), 1.0, 0.0) @ np.asarray(_weights(8, 3001, 8, scale=50.0))


_IDS = np.arange(3001, dtype=np.float32)


def parity(np: Any, x: Any) -> Any:
    """Whether a large count is even."""
    n = np.floor(np.abs(x) * 1000.0)
    return (n - 2.0 * np.floor(n / 2.0)) @ np.asarray(V)


def fractional_part(np: Any, x: Any) -> Any:
    y = x * 300.0
    return (y - np.floor(y)) @ np.asarray(V)


def _network(low: str, function: Callable[..., Any], data: Any, planted: str, kinds: str) -> Network:
    return Network(
        f"{function.__name__}-{low}",
        low,
        function,
        data,
        frozenset(planted.split()),
        frozenset(kinds.split(",")),
    )


_OVER, _STEEP = "overflow,nan", "cancellation,steep function"
BROKEN = (
    _network(FP16, sum_of_squares, _normal(60), "reduce multiply", _OVER),
    _network(FP16, rms_norm, _normal(300), "multiply reduce", _OVER),
    _network(FP16, euclidean_distance, _normal(100), "multiply reduce", _OVER),
    _network(FP16, exp_of_large_logits, _normal(6), "exponential reduce", _OVER),
    _network(FP16, log_sum_exp, _normal(6), "exponential reduce", _OVER),
    _network(FP16, integer_power, _normal(12), "multiply power", _OVER),
    _network(FP16, gelu_by_tanh, _normal(30), "multiply", _OVER),
    _network(FP16, large_embedding, _normal(2), "dot", _OVER),
    _network(FP16, variance_overflow, _normal(200), "multiply reduce", _OVER),
    _network(FP16, scaled_logits, _normal(30), "divide multiply", _OVER + ",underflow"),
    _network(FP16, product_of_factors, _positive, "multiply", _OVER),
    _network(FP16, hyperbolic, _normal(5), "exponential", _OVER),
    _network(FP16, mask_of_1e9, _normal(1), "multiply constant add broadcast", _OVER),
    _network(BF16, masked_mean, _normal(), "multiply constant broadcast", _OVER),
    _network(FP16, sums_of_counts, _normal(60), "reduce", _OVER),
    _network(FP16, tiny_epsilon, _some_constant, "constant add broadcast", "underflow,overflow"),
    _network(FP16, tiny_epsilon_of_a_norm, _some_zero, "constant add broadcast", "underflow,overflow"),
    _network(FP16, log_of_probabilities, _normal(8), "exponential divide", "underflow"),
    _network(FP16, cross_entropy, _normal(3.5), "subtract divide add", "underflow,cancellation"),
    _network(FP16, small_variance, _normal(1e-4, 0.0), "multiply reduce divide constant", "underflow"),
    _network(FP16, kl_divergence, _normal(8), "exponential divide", "underflow"),
    _network(FP16, product_of_probabilities, _normal(2, 3), "multiply", "underflow"),
    _network(FP16, gradient_scale, _normal(1), "multiply", "underflow"),
    _network(BF16, fast_variance, _normal(1, 30), "subtract", "cancellation"),
    _network(FP16, fast_variance, _normal(0.1, 30), "subtract", "cancellation"),
    _network(BF16, large_mean, _normal(1, 200), "subtract", "cancellation"),
    _network(BF16, near_vectors, _normal(), "subtract", "cancellation"),
    _network(BF16, near_difference, _normal(), "subtract", "cancellation"),
    _network(BF16, pairwise_distance, _normal(1, 10), "subtract add", "cancellation"),
    _network(BF16, one_minus_exp, _normal(), "subtract", "cancellation"),
    _network(BF16, log_of_one_plus, _normal(), "add log", "cancellation,steep function"),
    _network(BF16, quadratic_root, _normal(), "subtract", "cancellation"),
    _network(BF16, small_norm, _normal(), "subtract", "cancellation"),
    _network(BF16, cumulative_difference, _normal(), "subtract", "cancellation"),
    _network(BF16, polynomial, _normal(), "add subtract multiply", "cancellation"),
    _network(BF16, large_angles, _normal(), "sine", "steep function"),
    _network(FP16, positions, _normal(), "cosine", "steep function"),
    _network(BF16, low_temperature, _normal(), "subtract exponential divide", _STEEP),
    _network(BF16, softmax_without_maximum, _normal(25), "exponential", "steep function"),
    _network(BF16, exp_of_logits, _normal(), "exponential", "steep function"),
    _network(BF16, large_power, _normal(), "multiply power", _STEEP + ",rounding"),
    _network(BF16, token_numbers, _normal(), "floor multiply compare", "integers,discontinuity"),
    _network(BF16, parity, _normal(), "floor subtract", "integers,discontinuity,cancellation"),
    _network(BF16, fractional_part, _normal(), "subtract floor multiply", "cancellation,discontinuity"),
)  # fmt: skip


# ---- healthy -------------------------------------------------------------------------------------


def dense(np: Any, x: Any) -> Any:
    return _head(np, _dense(np, _dense(np, x, W), W))


def layer_norm(np: Any, x: Any) -> Any:
    d = x - _mean(x)
    return _head(np, d / np.sqrt(_mean(d * d) + 1e-3))


def attention(np: Any, x: Any) -> Any:
    s = (x @ np.asarray(W)) @ x.T / 32.0
    s = np.where(np.asarray(_MASK[:, :16] * (np_eye() == 0)) > 0, -1e4, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return _head(np, (e / e.sum(-1, keepdims=True)) @ x)


def np_eye() -> np.ndarray:
    return np.eye(16, dtype=np.float32)


def relu_network(np: Any, x: Any) -> Any:
    h = np.maximum(x @ np.asarray(U), 0.0)
    return np.maximum(h @ np.asarray(_weights(4, 64, 32)) + np.asarray(BIAS), 0.0) @ np.asarray(V)


def residual(np: Any, x: Any) -> Any:
    for _ in range(3):
        x = x + 0.5 * _dense(np, x, W)
    return _head(np, x)


def gated(np: Any, x: Any) -> Any:
    h = x @ np.asarray(W)
    return _head(np, h / (1.0 + np.exp(-h)))


def rms(np: Any, x: Any) -> Any:
    return _head(np, x / np.sqrt(_mean(x * x) + 1e-3))


def rotary(np: Any, x: Any) -> Any:
    angle = np.asarray(np_angles())
    return x[:, :16] * np.cos(angle) + x[:, 16:] * np.sin(angle)


def np_angles() -> np.ndarray:
    return (np.arange(16)[:, None] * 0.1 * np.ones((1, 16))).astype(np.float32)


def cosine_similarity(np: Any, x: Any) -> Any:
    y = x @ np.asarray(W)
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1) + 1e-3)


def mixture(np: Any, x: Any) -> Any:
    s = x @ np.asarray(V)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ np.asarray(_weights(6, 8, 4)) + np.tanh(x[:, :4])


HEALTHY = tuple(
    Network(f"{f.__name__}-{low}", low, f, _normal())
    for f in (
        dense,
        layer_norm,
        attention,
        relu_network,
        residual,
        gated,
        rms,
        rotary,
        cosine_similarity,
        mixture,
    )
    for low in (BF16, FP16)
)


def module_of(network: Network, front: str) -> Any:
    """The model in the form of a front door: HLO by JAX, or a function of neuronsim's arrays."""
    import neuronsim

    if front == "jax":
        import jax
        import jax.numpy as jnp

        (x,) = network.inputs().values()
        lowered = jax.jit(lambda x: network.function(jnp, x)).lower(x)
        return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()

    def traced(x: Any) -> Any:
        return network.function(neuronsim, x)

    return traced
