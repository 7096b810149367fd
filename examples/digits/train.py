"""Trains the bundled example, a small attention classifier on scikit-learn's digits, and writes it.

Writes model.hlo.pb (an XLA HloModuleProto whose constants are the trained weights) and test.npz
(`x`: 8-bit grey levels [597, 8, 8], `labels`: [597]) beside this file. Development-time only:

    pip install jax==0.10.2 scikit-learn && python examples/digits/train.py
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

BATCH = 64
WIDTH, HEADS, HIDDEN = 48, 4, 96
STEPS, LEARNING_RATE, WEIGHT_DECAY = 1500, 2e-3, 1e-2
TEST_SAMPLES = 597


def normalise(x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """Normalisation over the last axis with the one-pass variance E[x^2] - E[x]^2.

    Flax's LayerNorm computes its variance in this way by default (`use_fast_variance=True`).
    """
    mean = jnp.mean(x, axis=-1, keepdims=True)
    mean_of_squares = jnp.mean(x * x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(mean_of_squares - mean * mean + epsilon)


def layer_norm(p: dict, x: jax.Array) -> jax.Array:
    return normalise(x) * p["scale"] + p["bias"]


def attention(p: dict, x: jax.Array) -> jax.Array:
    batch, tokens, _ = x.shape
    query, key, value = (
        (x @ p[name]).reshape(batch, tokens, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(WIDTH // HEADS)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), value)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, WIDTH) @ p["output"]


def mlp(p: dict, x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]


def model(p: dict, x: jax.Array) -> jax.Array:
    """Logits [batch, 10] of 8-bit grey-level images [batch, 8, 8]."""
    batch = x.shape[0]
    # Each image is standardised as it comes, 0..255: its sum of squares reaches four million.
    x = normalise(x.reshape(batch, 64))
    patches = x.reshape(batch, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(batch, 16, 4)
    x = patches @ p["embed"] + p["position"]
    x = x + attention(p["attention"], layer_norm(p["norm_1"], x))
    x = x + mlp(p["mlp"], layer_norm(p["norm_2"], x))
    x = layer_norm(p["norm_3"], x).reshape(batch, 16 * WIDTH)
    return x @ p["head"] + p["head_bias"]


def initial_parameters(seed: int) -> dict:
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    def norm() -> dict:
        return {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    return {
        "embed": weight(4, WIDTH),
        "position": weight(16, WIDTH),
        "norm_1": norm(),
        "attention": {name: weight(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
        "norm_2": norm(),
        "mlp": {
            "up": weight(WIDTH, HIDDEN),
            "up_bias": np.zeros(HIDDEN, np.float32),
            "down": weight(HIDDEN, WIDTH),
            "down_bias": np.zeros(WIDTH, np.float32),
        },
        "norm_3": norm(),
        "head": weight(16 * WIDTH, 10) * np.float32(0.1),
        "head_bias": np.zeros(10, np.float32),
    }


def loss(p: dict, x: jax.Array, labels: jax.Array) -> jax.Array:
    log_probability = jax.nn.log_softmax(model(p, x))
    return -jnp.mean(jnp.take_along_axis(log_probability, labels[:, None], axis=1))


@jax.jit
def train_step(p: dict, moments: tuple, step: jax.Array, x: jax.Array, labels: jax.Array) -> tuple:
    """One AdamW step with a cosine learning-rate schedule."""
    gradient = jax.grad(loss)(p, x, labels)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradient)
    rate = LEARNING_RATE * 0.5 * (1 + jnp.cos(jnp.pi * step / STEPS))

    def update(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        m, v = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
        return w - rate * (m / (jnp.sqrt(v) + 1e-8) + WEIGHT_DECAY * w)

    return jax.tree.map(update, p, first, second), (first, second)


def main() -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = np.round(digits.images[order] * (255 / 16)).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    train_x, train_labels = images[:-TEST_SAMPLES], labels[:-TEST_SAMPLES]
    test_x, test_labels = images[-TEST_SAMPLES:], labels[-TEST_SAMPLES:]

    parameters = initial_parameters(seed=0)
    zeros = jax.tree.map(np.zeros_like, parameters)
    moments = (zeros, zeros)
    rng = np.random.default_rng(1)
    for step in range(STEPS):
        rows = rng.integers(0, len(train_x), BATCH)
        parameters, moments = train_step(
            parameters, moments, np.float32(step), train_x[rows], train_labels[rows]
        )
    trained = jax.tree.map(np.asarray, parameters)

    def classify(x: jax.Array) -> jax.Array:
        return model(trained, x)

    logits = jax.jit(classify)(test_x)
    print(f"XLA float32 accuracy {np.mean(np.argmax(logits, axis=1) == test_labels):.4f}")
    lowered = jax.jit(classify).lower(jax.ShapeDtypeStruct((BATCH, 8, 8), np.float32))
    here = Path(__file__).parent
    (here / "model.hlo.pb").write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    np.savez_compressed(here / "test.npz", x=test_x.astype(np.uint8), labels=test_labels)


if __name__ == "__main__":
    main()
