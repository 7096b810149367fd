"""The principal components of the digits by power iteration, without an eigenvalue routine.

python examples/arrays/pca.py
"""

from __future__ import annotations

from pathlib import Path

import neuronsim as np

DIGITS = Path(__file__).parents[1] / "digits" / "test.npz"


def leading_eigenvector(matrix, rng, steps):
    """The eigenvector of the largest eigenvalue, and that eigenvalue (Rayleigh's quotient)."""
    v = rng.normal(size=matrix.shape[0])
    v /= np.linalg.norm(v)
    for _ in range(steps):
        v = matrix @ v
        v /= np.linalg.norm(v)
    return v, v @ matrix @ v


def components(x, count, rng, steps):
    """`count` directions of most variance as rows, and the variance along each."""
    covariance = x.T @ x / (len(x) - 1)
    directions, variances = [], []
    for _ in range(count):
        v, variance = leading_eigenvector(covariance, rng, steps)
        v *= np.sign(v[np.argmax(np.abs(v))])  # of v and -v always the same one
        covariance -= variance * np.outer(v, v)
        directions.append(v)
        variances.append(variance)
    return np.stack(directions), np.stack(variances)


def scatter(points, labels, shown, height=16, width=60):
    """Some of the classes in the plane of the first two components, as text."""
    canvas = [[" "] * width for _ in range(height)]
    low, high = points.min(axis=0), points.max(axis=0)
    place = (points - low) / (high - low) * np.array([width - 1.0, height - 1.0])
    for (column, row), label in zip(np.rint(place).astype(np.int64), labels):
        if int(label) in shown:
            canvas[int(row)][int(column)] = str(int(label))
    return "\n".join("".join(row) for row in canvas)


def main(count=4, steps=60):
    with np.load(DIGITS) as data:
        x = data["x"].reshape(-1, 64) / 255.0
        labels = data["labels"]
    centred = x - x.mean(axis=0)
    total = centred.var(axis=0, ddof=1).sum()
    directions, variances = components(centred, count, np.random.default_rng(0), steps)
    explained = variances / total

    projected = centred @ directions.T
    restored = projected @ directions + x.mean(axis=0)
    error = np.sqrt(np.mean((restored - x) ** 2))
    print(scatter(projected[:, :2], labels, shown={0, 4, 6}))
    for i, share in enumerate(explained):
        print(f"component {i + 1} explains {float(share):6.2%} of the variance")
    print(f"{count} of 64 numbers restore a pixel within {float(error):.3f}")
    return {"explained": explained, "error": error, "first direction": directions[0]}


if __name__ == "__main__":
    main()
