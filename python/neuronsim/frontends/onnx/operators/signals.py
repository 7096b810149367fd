"""Fourier transforms and what goes with them.

A transform is a product with the matrix of its cosines and sines, as the tensor engine computes it; one
of windows in steps is a convolution by its rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
import numpy.typing as npt

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidModel, UnsupportedOperator
from neuronsim.frontends.onnx.files import dtype_of
from neuronsim.frontends.onnx.table import Node, operator

_LARGEST = 1 << 24  # the angles of a matrix: a whole transform of 4096 elements

_Matrix = npt.NDArray[numpy.float64]


def _angles(rows: int, columns: int, length: int) -> _Matrix:
    """2 pi n k / length, of the exact remainder of n k; raises UnsupportedOperator for too many."""
    if rows * columns > _LARGEST:
        raise UnsupportedOperator(
            f"a Fourier transform of {length} elements: its matrix has {rows} x {columns} angles, and "
            f"neuronsim takes {_LARGEST}: transform shorter frames, or outside of the model"
        )
    products = numpy.outer(numpy.arange(rows), numpy.arange(columns)) % length
    return products.astype(numpy.float64) * (2 * math.pi / length)


def _fourier_matrix(rows: int, channels: int, length: int, *, inverse: bool, half: bool) -> _Matrix:
    """[n, its real and imaginary part, k, its real and imaginary part] of the first `rows` elements;
    all k, or with `half` those up to length // 2.
    """
    columns = length // 2 + 1 if half else length
    angles = _angles(rows, columns, length)
    cosine, sine = numpy.cos(angles), numpy.sin(angles)
    if inverse:
        cosine, sine = cosine / length, -sine / length
    real = numpy.stack([cosine, -sine], axis=-1)
    imaginary = numpy.stack([sine, cosine], axis=-1)
    return numpy.stack([real, imaginary][:channels], axis=1)


def _real_inverse_matrix(rows: int, length: int) -> _Matrix:
    """[k, its real and imaginary part, n, 1] of the first half of a spectrum whose signal is real."""
    angles = _angles(rows, length, length)
    twice = numpy.full((rows, 1), 2.0)
    twice[0] = 1
    if length % 2 == 0 and rows > length // 2:
        twice[length // 2] = 1
    scale = twice / length
    return numpy.stack([scale * numpy.cos(angles), -scale * numpy.sin(angles)], axis=1)[..., None]


def _transformed(node: Node, x: Array, length: int | None, axis: int) -> Array:
    axis %= x.ndim
    inverse, onesided = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    own, channels = x.shape[axis], x.shape[-1]
    if axis == x.ndim - 1 or channels not in (1, 2):
        raise InvalidModel(f"{x.bits.type}: the last axis is 1 or 2 long, and no signal")
    is_real_result = inverse and onesided
    if length is None:
        length = 2 * (own - 1) if is_real_result else own
    if length < 1:
        raise InvalidModel(f"a transform of {length} elements")
    rows = min(own, length // 2 + 1 if is_real_result else length)
    if is_real_result:
        matrix = _real_inverse_matrix(rows, length)[:, :channels]
    else:
        matrix = _fourier_matrix(rows, channels, length, inverse=inverse, half=onesided)
    x = x[(slice(None),) * axis + (slice(rows),)]
    found = np.tensordot(x, np.asarray(matrix, dtype=x.dtype), axes=((axis, x.ndim - 1), (0, 1)))
    return np.moveaxis(found, -2, axis)


def _known(x: Array | None) -> int | None:
    return None if x is None else int(x.reshape(()))


@operator("DFT", since=17)
def _dft_by_attribute(node: Node, x: Array, length: Array | None = None) -> Array:
    return _transformed(node, x, _known(length), node.get("axis", 1))


@operator("DFT", since=20)
def _dft(node: Node, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    along = _known(axis)
    return _transformed(node, x, _known(length), -2 if along is None else along)


@operator("STFT", since=17)
def _stft(
    node: Node, x: Array, step: Array, window: Array | None = None, length: Array | None = None
) -> Array:
    """A convolution by the rows of the transform's matrix, times the window."""
    signal = x.reshape((*x.shape, 1)) if x.ndim == 2 else x
    channels = signal.shape[-1]
    own = _known(length)
    if own is None:
        own = window.shape[0] if window is not None else signal.shape[1]
    half = bool(node.get("onesided", 1))
    matrix = np.asarray(_fourier_matrix(own, channels, own, inverse=False, half=half), dtype=x.dtype)
    if window is not None:
        matrix = np.multiply(matrix, window.reshape((-1, 1, 1, 1)))
    columns = matrix.shape[2]
    kernel = np.permute_dims(matrix, (2, 3, 1, 0)).reshape((columns * 2, channels, own))
    found = nn.conv1d(np.moveaxis(signal, -1, 1), kernel, stride=int(step.reshape(())))
    parts = found.reshape((x.shape[0], columns, 2, found.shape[-1]))
    return np.permute_dims(parts, (0, 3, 1, 2))


@operator("MelWeightMatrix", since=17)
def _mel_weights(node: Node, bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Array:
    """Triangles over a spectrum, evenly spaced on the mel scale: of known numbers, in float64, rounded
    once.
    """
    count, size, sampled = (int(v.reshape(())) for v in (bins, length, rate))
    ends = [2595 * math.log10(1 + float(v.reshape(())) / 700) for v in (low, high)]
    mels = numpy.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2)) + ends[0]
    places = (size + 1) * (700 * (10 ** (mels / 2595) - 1)) // sampled
    edges = places.astype(numpy.int64).tolist()
    weights = numpy.zeros((size // 2 + 1, count))
    for at, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        weights[left : centre + 1, at] = _ramp(left, centre)
        weights[centre:right, at] = _ramp(left=right, centre=centre)[: right - centre]
    return np.asarray(weights, dtype=dtype_of(node.get("output_datatype", 1), "the weights"))


def _ramp(left: int, centre: int) -> Any:
    """From 0 at one end to 1 at the centre, or from the centre down to the other end."""
    if left == centre:
        return numpy.ones(1)
    if left < centre:
        return numpy.arange(centre - left + 1) / (centre - left)
    return numpy.arange(left - centre, -1, -1) / (left - centre)
