"""k-means finds the ten digits without being told which they are.

python examples/arrays/kmeans.py
"""

from __future__ import annotations

from pathlib import Path

import neuronsim as np

DIGITS = Path(__file__).parents[1] / "digits" / "test.npz"
CLUSTERS = 10


def squared_distances(x, centres):
    """|x - c|^2 for every point and every centre, [points, centres]."""
    return (x * x).sum(axis=1)[:, np.newaxis] - 2 * (x @ centres.T) + (centres * centres).sum(axis=1)


def first_centres(x, rng):
    """Far points, each drawn with a probability in proportion to its distance (k-means++)."""
    chosen = [int(rng.integers(len(x)))]
    while len(chosen) < CLUSTERS:
        nearest = squared_distances(x, x[np.array(chosen)]).min(axis=1)
        share = np.cumsum(np.maximum(nearest, 0))
        chosen.append(int(np.searchsorted(share, share[-1] * rng.random())))
    return x[np.array(chosen)].copy()


def fit(x, rng, steps):
    """The centres and each point's cluster after `steps` rounds of Lloyd's algorithm."""
    centres = first_centres(x, rng)
    for _ in range(steps):
        cluster = np.argmin(squared_distances(x, centres), axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, cluster, x)
        counts = np.bincount(cluster, minlength=CLUSTERS)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled][:, np.newaxis]
    return centres, np.argmin(squared_distances(x, centres), axis=1)


def picture(image):
    """An image of 8 x 8 grey levels from 0 to 1 as text."""
    shades = np.clip(np.rint(image * 9), 0, 9).astype(np.int64)
    return ["".join(" .:-=+*#%@"[int(v)] * 2 for v in row) for row in shades]


def main(steps=15):
    with np.load(DIGITS) as data:
        x = data["x"].reshape(-1, 64) / 255.0
        labels = data["labels"]
    rng = np.random.default_rng(3)
    centres, cluster = fit(x, rng, steps)

    table = np.zeros((CLUSTERS, 10), dtype=np.int64)
    np.add.at(table, (cluster, labels), 1)
    named = np.argmax(table, axis=1)  # a cluster is named after most of its points
    purity = np.mean(named[cluster] == labels)
    spread = np.mean(np.maximum(squared_distances(x, centres).min(axis=1), 0))

    first = np.argsort(named)[:5]
    for rows in zip(*(picture(centres[k].reshape(8, 8)) for k in first)):
        print("  ".join(rows))
    print("  ".join(f"cluster of {int(named[k])}".center(16) for k in first))
    print(f"{float(purity):.1%} of the digits lie in a cluster that is named after them")
    return {"purity": purity, "mean squared distance": spread}


if __name__ == "__main__":
    main()
