"""Composites as JAX lowers them, each a module in HLO text: what `casting.recognition` must find.

    python -m tests.data.make_composites --out DIR

Needs jax. A file's name is the kind that must be recognised, and the form after a hyphen. Arrays are
square, so that a value that is spread along the wrong axis still has the right shape.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax, nn

jax.config.update("jax_traceback_in_locations_limit", 0)

SIZE = 8
X = jnp.ones((SIZE, SIZE))
ROW = jnp.ones(SIZE)


def one_pass(x: Array, axis: int) -> tuple[Array, Array]:
    """The mean and the variance as E[x^2] - E[x]^2, clipped at 0."""
    mean = jnp.mean(x, axis, keepdims=True)
    return mean, jnp.maximum(0.0, jnp.mean(lax.square(x), axis, keepdims=True) - lax.square(mean))


def layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * scale + offset


def fast_layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    mean, variance = one_pass(x, -1)
    return (x - mean) * (lax.rsqrt(variance + 1e-6) * scale) + offset


def batch_norm(x: Array, scale: Array, offset: Array) -> Array:
    mean, variance = one_pass(x, 0)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * scale + offset


def folded_batch_norm(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    factor = scale * lax.rsqrt(variance + 1e-6)
    return x * factor + (offset - mean * factor)


def given_batch_norm(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    return (x - mean) / jnp.sqrt(variance + 1e-6) * scale + offset


def rms_norm(x: Array, scale: Array) -> Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def softmax_in_narrow_model(x: Array) -> Array:
    """As models in bfloat16 write it."""
    return nn.softmax(x.astype(jnp.bfloat16).astype(jnp.float32)).astype(jnp.bfloat16)


COMPOSITES: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "softmax": (nn.softmax, (X,)),
    "softmax-axis0": (lambda x: nn.softmax(x, 0), (X,)),
    "softmax-unshifted": (lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True), (X,)),
    "softmax-casts": (softmax_in_narrow_model, (X,)),
    "log_softmax": (nn.log_softmax, (X,)),
    "log_softmax-subtracted": (lambda x: x - nn.logsumexp(x, -1, keepdims=True), (X,)),
    "logsumexp": (lambda x: nn.logsumexp(x, -1), (X,)),
    "layer_norm": (layer_norm, (X, ROW, ROW)),
    "layer_norm-one_pass": (fast_layer_norm, (X, ROW, ROW)),
    "layer_norm-plain": (lambda x: layer_norm(x, jnp.ones(()), jnp.zeros(())), (X,)),
    "layer_norm-standardize": (nn.standardize, (X,)),
    "batch_norm": (batch_norm, (X, ROW, ROW)),
    "batch_norm-given": (given_batch_norm, (X, ROW, ROW, ROW, ROW)),
    "batch_norm-folded": (folded_batch_norm, (X, ROW, ROW, ROW, ROW)),
    "rms_norm": (rms_norm, (X, ROW)),
    "rms_norm-plain": (lambda x: rms_norm(x, jnp.ones(())), (X,)),
    "mean": (lambda x: x.mean(0), (X,)),
    "var": (lambda x: x.var(-1), (X,)),
    "var-unbiased": (lambda x: x.var(-1, ddof=1), (X,)),
    "var-one_pass": (lambda x: one_pass(x, -1)[1], (X,)),
    "gelu": (lambda x: nn.gelu(x, approximate=False), (X,)),
    "gelu-erf": (lambda x: 0.5 * x * (1 + lax.erf(x / jnp.sqrt(2.0))), (X,)),
    "gelu_tanh": (nn.gelu, (X,)),
    "silu": (nn.silu, (X,)),
    "sigmoid": (nn.sigmoid, (X,)),
    "softplus": (nn.softplus, (X,)),
    "softplus-plain": (lambda x: jnp.log1p(jnp.exp(x)), (X,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, (function, arguments) in COMPOSITES.items():
        text = jax.jit(function).lower(*arguments).compiler_ir("hlo").as_hlo_text()
        (out / f"{name}.hlo").write_text(text)


if __name__ == "__main__":
    main()
