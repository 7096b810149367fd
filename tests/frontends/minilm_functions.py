"""all-MiniLM-L6-v2 as a function of JAX and of neuronsim's NumPy names, by those of its safetensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.minilm import CONFIG

import neuronsim

jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")
import jax.numpy as jnp  # noqa: E402

NAMES: dict[str, tuple[Any, Any, Any]] = {
    "jax": (jnp, jax.nn.softmax, jax.lax.erf),
    "numpy": (neuronsim, neuronsim.nn.softmax, neuronsim.erf),
}


def network(framework: str, layers: int) -> Any:
    """The sentences' embeddings as a function of weights, token ids and what counts of them."""
    np_, softmax, erf = NAMES[framework]

    def linear(w: Any, name: str, x: Any) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(w: Any, name: str, x: Any) -> Any:
        centred = x - np_.mean(x, axis=-1, keepdims=True)
        variance = np_.mean(centred * centred, axis=-1, keepdims=True)
        scaled = centred / np_.sqrt(variance + np.float32(CONFIG.epsilon))
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(x: Any) -> Any:  # PyTorch's: that of jax.nn is by erfc, which XLA spells out as a series
        return x / 2 * (1 + erf(x / np.float32(2**0.5)))

    def weighted(scores: Any) -> Any:
        return softmax(scores, axis=-1)

    def split(x: Any) -> Any:
        batch, length, _ = x.shape
        return np_.transpose(x.reshape(batch, length, CONFIG.heads, -1), (0, 2, 1, 3))

    def layer(w: Any, at: str, x: Any, bias: Any) -> Any:
        q, k, v = (split(linear(w, f"{at}.attention.self.{n}", x)) for n in ("query", "key", "value"))
        scores = q @ np_.swapaxes(k, -1, -2) / np.float32((CONFIG.width / CONFIG.heads) ** 0.5)
        mixed = np_.transpose(weighted(scores + bias) @ v, (0, 2, 1, 3)).reshape(x.shape)
        x = norm(
            w, f"{at}.attention.output.LayerNorm", x + linear(w, f"{at}.attention.output.dense", mixed)
        )
        h = gelu(linear(w, f"{at}.intermediate.dense", x))
        return norm(w, f"{at}.output.LayerNorm", x + linear(w, f"{at}.output.dense", h))

    def embed(w: Any, ids: Any, mask: Any) -> Any:
        length = ids.shape[1]
        x = np_.take(w["embeddings.word_embeddings.weight"], ids, axis=0)
        x = x + w["embeddings.position_embeddings.weight"][:length]
        x = norm(w, "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
        counts = mask.astype(np_.float32)
        bias = (counts[:, None, None, :] - 1) * np.float32(1e9)
        for n in range(layers):
            x = layer(w, f"encoder.layer.{n}", x, bias)
        pooled = np_.sum(x * counts[:, :, None], axis=1) / np_.sum(counts, axis=1, keepdims=True)
        return pooled / np_.sqrt(np_.sum(pooled * pooled, axis=-1, keepdims=True))

    return embed
