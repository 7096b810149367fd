"""A block of a transformer: causal attention with several heads, layer norm and a feed-forward part.

python examples/arrays/attention.py
"""

from __future__ import annotations

import neuronsim as np

TOKENS, WIDTH, HEADS = 24, 64, 4


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def layer_norm(x, epsilon=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def positions():
    """Sines and cosines of the token's number, [tokens, width]."""
    angle = np.arange(TOKENS)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    out = np.zeros((TOKENS, WIDTH))
    out[:, 0::2] = np.sin(angle)
    out[:, 1::2] = np.cos(angle)
    return out


def attention(p, x):
    """What each token takes from those before it, and the weights [heads, tokens, tokens]."""
    query, key, value = (
        (x @ p[name]).reshape(TOKENS, HEADS, -1).transpose(1, 0, 2) for name in ("q", "k", "v")
    )
    scores = np.einsum("hid,hjd->hij", query, key) / np.sqrt(WIDTH / HEADS)
    later = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), k=1)
    weights = softmax(np.where(later, -1e9, scores))
    mixed = np.einsum("hij,hjd->ihd", weights, value)
    return mixed.reshape(TOKENS, WIDTH) @ p["o"], weights


def block(p, x):
    mixed, weights = attention(p, layer_norm(x))
    x = x + mixed
    return x + gelu(layer_norm(x) @ p["up"]) @ p["down"], weights


def main():
    rng = np.random.default_rng(4)
    shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | {
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    p = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    x = rng.normal(size=(TOKENS, WIDTH)) + positions()
    y, weights = block(p, x)

    print("the first head: a row is a token, a column what it looks at")
    shades = np.minimum(weights[0] * 20, 9).astype(np.int64)
    for i, row in enumerate(shades):
        print("  " + "".join(" .:-=+*#%@"[int(v)] * 2 for v in row[: i + 1]))
    entropy = -np.sum(weights * np.log(weights + 1e-9), axis=-1).mean(axis=1)
    print("mean entropy of the heads:", ", ".join(f"{float(v):.3f}" for v in entropy))
    return {"output": y, "weights": weights, "entropy": entropy}


if __name__ == "__main__":
    main()
