"""A Gaussian process learns a curve from a few noisy points and says how sure it is.

python examples/arrays/gaussian_process.py
"""

from __future__ import annotations

import neuronsim as np

NOISE = 0.2


def curve(x):
    return np.sin(3 * x) + 0.5 * x


def kernel(a, b, length):
    """How much the curve's values at two places have in common."""
    return np.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)


def fit(x, y, length):
    """The Cholesky factor, the weights of the points and the evidence for this length."""
    covariance = kernel(x, x, length) + NOISE**2 * np.eye(len(x))
    factor = np.linalg.cholesky(covariance)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y))
    evidence = -0.5 * y @ weights - np.log(np.diag(factor)).sum() - 0.5 * len(x) * np.log(2 * np.pi)
    return factor, weights, evidence


def predict(x, places, length, factor, weights):
    """The mean and the deviation of the curve at the places."""
    common = kernel(x, places, length)
    mean = common.T @ weights
    solved = np.linalg.solve(factor, common)
    return mean, np.sqrt(np.maximum(1 - np.sum(solved**2, axis=0), 0))


def plot(places, mean, deviation, x, y, height=17):
    """The mean (o), two deviations around it (:) and the points (+) as text."""

    def row(v):
        return np.clip(np.rint((v + 2.5) / 5 * (height - 1)), 0, height - 1).astype(np.int64)

    canvas = [[" "] * len(places) for _ in range(height)]
    for column, (low, high) in enumerate(zip(row(mean - 2 * deviation), row(mean + 2 * deviation))):
        for r in range(int(low), int(high) + 1):
            canvas[r][column] = ":"
    for column, r in enumerate(row(mean)):
        canvas[int(r)][column] = "o"
    for column, r in zip(np.searchsorted(places, x), row(y)):
        canvas[int(r)][min(int(column), len(places) - 1)] = "+"
    return "\n".join("".join(line) for line in reversed(canvas))


def main(points=14):
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(-2.0, 2.0, points))
    y = curve(x) + NOISE * rng.standard_normal(points)
    lengths = np.array([0.15, 0.3, 0.6, 1.2])
    evidence = np.stack([fit(x, y, length)[2] for length in lengths])
    best = lengths[np.argmax(evidence)]

    places = np.linspace(-2.0, 2.0, 64)
    factor, weights, _ = fit(x, y, best)
    mean, deviation = predict(x, places, best, factor, weights)
    inside = np.mean(np.abs(curve(places) - mean) <= 2 * deviation)
    print(plot(places, mean, deviation, x, y))
    for length, value in zip(lengths, evidence):
        print(
            f"length {float(length):.2f}: evidence {float(value):7.2f}{'  <' if length == best else ''}"
        )
    print(f"{float(inside):.0%} of the true curve lies within two deviations")
    return {"mean": mean, "deviation": deviation, "evidence": evidence, "inside": inside}


if __name__ == "__main__":
    main()
