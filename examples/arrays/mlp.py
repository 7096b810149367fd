"""A network with one hidden layer learns the digits; every gradient is written by hand.

python examples/arrays/mlp.py
"""

from __future__ import annotations

from pathlib import Path

import neuronsim as np

DIGITS = Path(__file__).parents[1] / "digits" / "test.npz"
HIDDEN, BATCH, RATE, MOMENTUM = 32, 50, 0.2, 0.8


def initial(rng):
    return {
        "w1": rng.normal(size=(64, HIDDEN)) * np.sqrt(2.0 / 64),
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(size=(HIDDEN, 10)) * np.sqrt(1.0 / HIDDEN),
        "b2": np.zeros(10),
    }


def forward(p, x):
    """The hidden layer and the probabilities of the ten digits."""
    hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
    scores = hidden @ p["w2"] + p["b2"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradients(p, x, labels):
    """The mean cross-entropy of a batch, and its gradient in every parameter."""
    hidden, chances = forward(p, x)
    rows = np.arange(len(labels))
    loss = -np.mean(np.log(chances[rows, labels] + 1e-7))
    error = chances.copy()
    error[rows, labels] -= 1
    error /= len(labels)
    back = (error @ p["w2"].T) * (hidden > 0)
    return loss, {
        "w2": hidden.T @ error,
        "b2": error.sum(axis=0),
        "w1": x.T @ back,
        "b1": back.sum(axis=0),
    }


def main(epochs=8):
    with np.load(DIGITS) as data:
        x = data["x"].reshape(-1, 64) / 255.0
        labels = data["labels"].astype(np.int64)
    train, test = slice(0, 450), slice(450, None)
    rng = np.random.default_rng(0)
    p = initial(rng)
    speed = {name: np.zeros_like(value) for name, value in p.items()}

    losses = []
    for epoch in range(epochs):
        order = rng.permutation(450)
        total = 0.0
        for start in range(0, 450, BATCH):
            batch = order[start : start + BATCH]
            loss, gradient = gradients(p, x[train][batch], labels[train][batch])
            total += float(loss) / (450 // BATCH)
            for name in p:
                speed[name] *= MOMENTUM
                speed[name] -= RATE * gradient[name]
                p[name] += speed[name]
        losses.append(total)
        print(f"epoch {epoch + 1}  loss {total:.3f}  {'#' * round(20 * total)}")
    _, chances = forward(p, x[test])
    accuracy = np.mean(np.argmax(chances, axis=1) == labels[test])
    print(f"{float(accuracy):.1%} of {len(labels) - 450} digits that it has not seen are right")
    return {"accuracy": accuracy, "losses": np.array(losses)}


if __name__ == "__main__":
    main()
