"""The edges of a handwritten digit: two-dimensional convolutions, gradients and pooling.

python examples/arrays/convolution.py
"""

from __future__ import annotations

from pathlib import Path

import neuronsim as np

DIGITS = Path(__file__).parents[1] / "digits" / "test.npz"
SOBEL = [[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]]


def convolve(images, kernel):
    """Each image convolved with the kernel; the border is padded with its nearest pixel."""
    kernel = np.flip(kernel)
    rows, columns = kernel.shape
    padded = np.pad(images, ((0, 0), (rows // 2,) * 2, (columns // 2,) * 2), mode="edge")
    height, width = images.shape[1:]
    out = np.zeros_like(images)
    for i in range(rows):
        for j in range(columns):
            out += kernel[i, j] * padded[:, i : i + height, j : j + width]
    return out


def gaussian(radius, sigma):
    offset = np.arange(-radius, radius + 1) / sigma
    line = np.exp(-0.5 * offset**2)
    kernel = np.outer(line, line)
    return kernel / kernel.sum()


def max_pool(images, size):
    count, height, width = images.shape
    return images.reshape(count, height // size, size, width // size, size).max(axis=(2, 4))


def enlarge(images, factor):
    return np.repeat(np.repeat(images, factor, axis=1), factor, axis=2)


def picture(image):
    """An image as text, from its least to its largest value."""
    low, high = image.min(), image.max()
    shades = np.rint((image - low) / (high - low) * 9).astype(np.int64)
    return ["".join(" .:-=+*#%@"[int(v)] for v in row) for row in shades]


def main(count=16):
    with np.load(DIGITS) as data:
        images = enlarge(data["x"][:count] / 255.0, 3)
    smooth = convolve(images, gaussian(2, 1.2))
    kernel = np.array(SOBEL)
    across, down = convolve(smooth, kernel), convolve(smooth, kernel.T)
    strength = np.hypot(across, down)
    angle = np.arctan2(down, across)
    edges = np.where(strength > 0.5 * strength.max(axis=(1, 2), keepdims=True), strength, 0)
    pooled = max_pool(edges, 4)

    for row in zip(picture(images[3]), picture(smooth[3]), picture(edges[3])):
        print("   ".join(row))
    print("the digit".center(24), "smoothed".center(26), "its edges".center(26))
    upright = np.mean(np.abs(np.cos(angle[edges > 0])))
    print(f"mean |cos| of the edges' directions: {float(upright):.3f} (1 were all upright)")
    return {"strength": strength, "pooled": pooled, "upright": upright}


if __name__ == "__main__":
    main()
