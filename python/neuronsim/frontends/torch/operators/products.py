"""Matrix products, convolutions and distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.layers import add_bias, psum_type
from neuronsim.dtypes import DType
from neuronsim.frontends.torch.operators.complex_numbers import conjugate
from neuronsim.frontends.torch.operators.pooling import each
from neuronsim.frontends.torch.promotion import floating
from neuronsim.frontends.torch.table import Node, operator
from neuronsim.frontends.windows import Window, convolved, transposed_kernel


@operator("aten.linear.default")
def _linear(node: Node, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """One product, however many axes there are before the last."""
    return nn.linear(x, weight, bias)


@operator("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def _product(node: Node, x: Array, y: Array) -> Array:
    return np.matmul(x, y)


@operator("aten.vdot.default")
def _vdot(node: Node, x: Array, y: Array) -> Array:
    return np.matmul(conjugate(node, x), y)


@operator("aten.conv_tbc.default")
def _convolution_of_time(node: Node, x: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """Of time, batch and channels: weights of a place, a channel in and one out."""
    lines, kernel = np.permute_dims(x, (1, 2, 0)), np.permute_dims(weight, (2, 1, 0))
    found = convolved(lines, kernel, bias, Window(kernel.shape[2:], [1], [1], [(pad, pad)]), [1], 1)
    return np.permute_dims(found, (2, 0, 1))


@operator("aten.mm.dtype", "aten.bmm.dtype")
def _product_of_type(node: Node, x: Array, y: Array, out_dtype: DType) -> Array:
    return np.matmul(x, y, dtype=out_dtype)


@operator("aten.addmm.default", "aten.baddbmm.default")
def _add_product(
    node: Node, bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    """The product in PSUM, in float32, and the bias, rounded once."""
    sums = np.matmul(x, y, dtype=psum_type(x, y) if x.dtype.exponent_bits else x.dtype)
    sums = sums if alpha == 1 else sums * alpha
    if beta == 0:
        return sums.astype(node.dtype)
    scaled = bias if beta == 1 else bias * beta
    return add_bias(sums, scaled, x, y) if x.dtype.exponent_bits else sums + scaled


@operator("aten.addbmm.default")
def _add_products(
    node: Node, bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    """The sum of the products of a batch, which is one product."""
    batch, rows, inner = x.shape
    left = np.reshape(np.permute_dims(x, (1, 0, 2)), (rows, batch * inner))
    right = np.reshape(y, (batch * inner, y.shape[2]))
    found: Array = _add_product(node, bias, left, right, beta=beta, alpha=alpha)
    return found


@operator("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def _grouped_product(
    node: Node,
    x: Array,
    y: Array,
    offs: Array | None = None,
    bias: Array | None = None,
    out_dtype: DType | None = None,
) -> Array:
    """Each row times the matrix of its group (an expert's), the groups being the rows up to each offset
    that no group before has: the products with all groups, of which the row's is chosen.
    """
    if bias is not None:
        raise node.refuse("with a bias is not read: add it to the result")
    if offs is None:
        return np.matmul(x, y, dtype=out_dtype)
    if (x.ndim, y.ndim) != (2, 3):
        raise node.refuse(f"of {x.ndim} and {y.ndim} axes is not read: the rows of 2 have groups, of 3")
    rows = np.arange(x.shape[0])
    group = np.sum(np.less_equal(offs[None, :], rows[:, None]), axis=1, dtype=dtypes.int64)
    sums = np.matmul(x[None], y, dtype=out_dtype)
    last = y.shape[0] - 1
    own: Array = np.take_along_axis(sums, np.minimum(group, last)[None, :, None], axis=0)[0]
    found: Array = np.where(np.less_equal(group, last)[:, None], own, np.zeros((), dtype=own.dtype))
    return found


@operator("aten._trilinear.default")
def _trilinear(
    node: Node,
    x: Array,
    y: Array,
    z: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    """Three arrays, each without some of the axes, multiplied and summed along others (nn.Bilinear)."""
    lacking = [set(expand1), set(expand2), set(expand3)]
    axes = range(x.ndim + len(lacking[0]))
    lines = [[d for d in axes if d not in own] for own in lacking]
    kept = [d for d in axes if d not in sumdim]
    found: Array = np.einsum(x, lines[0], y, lines[1], z, lines[2], kept)
    return found


# ---- convolutions ----------------------------------------------------------------------------------


@operator("aten.convolution.default")
def _convolution(
    node: Node,
    x: Array,
    w: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    rank = w.ndim - 2
    strides, pads, dilations, more = (
        each(v, rank) for v in (stride, padding, dilation, output_padding)
    )
    sizes = w.shape[2:]
    if not transposed:
        window = Window(sizes, strides, dilations, [(p, p) for p in pads])
        return convolved(x, w, bias, window, [1] * rank, groups)
    return _transposed(x, w, bias, (strides, pads, dilations, more), groups)


def _transposed(
    x: Array,
    w: Array,
    bias: Array | None,
    settings: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
) -> Array:
    """By strides, pads, dilations and how much longer the result is at its end."""
    strides, pads, dilations, more = settings
    reach = [d * (k - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]
    padding = [(r - p, r - p + m) for r, p, m in zip(reach, pads, more, strict=True)]
    window = Window(w.shape[2:], [1] * len(strides), dilations, padding)
    return convolved(x, transposed_kernel(w, groups), bias, window, strides, groups)


@operator("aten.convolution_backward.default")
def _convolution_backward(
    node: Node,
    grad: Array,
    x: Array,
    w: Array,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    """The gradients of the input, the kernel and the bias, of those that are asked for."""
    rank = w.ndim - 2
    strides, pads, dilations = (each(v, rank) for v in (stride, padding, dilation))
    wants = [m and node.wants(n) for n, m in enumerate(output_mask)]
    settings = strides, pads, dilations
    of_input = of_kernel = of_bias = None
    if wants[0] and transposed:
        window = Window(w.shape[2:], strides, dilations, [(p, p) for p in pads])
        of_input = convolved(grad, w, None, window, [1] * rank, groups)
    elif wants[0]:
        columns = zip(x.shape[2:], grad.shape[2:], strides, pads, dilations, w.shape[2:], strict=True)
        more = [n - ((m - 1) * s + d * (k - 1) + 1 - 2 * p) for n, m, s, p, d, k in columns]
        of_input = _transposed(grad, w, None, (*settings, more), groups)
    if wants[1]:
        pair = (grad, x) if transposed else (x, grad)
        of_kernel = _kernel_gradient(*pair, w.shape, settings, groups)
    if wants[2]:
        of_bias = np.sum(grad, axis=(0, *range(2, grad.ndim)))
    return [of_input, of_kernel, of_bias]


def _kernel_gradient(
    x: Array,
    grad: Array,
    kernel: tuple[int, ...],
    settings: tuple[Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
) -> Array:
    """The convolution of the input by the gradient, the samples in the place of channels."""
    strides, pads, dilations = settings
    batch, channels, *lengths = x.shape
    rank = len(lengths)
    split = np.reshape(x, (batch, groups, channels // groups, *lengths))
    order = (2, 1, 0, *range(3, rank + 3))
    turned = np.reshape(np.permute_dims(split, order), (channels // groups, groups * batch, *lengths))
    weights = np.permute_dims(grad, (1, 0, *range(2, rank + 2)))
    columns = zip(lengths, kernel[2:], strides, pads, dilations, grad.shape[2:], strict=True)
    # A stride that leaves elements over: they take no part.
    ends = [(k - 1) * d + (m - 1) * s + 1 - n - p for n, k, s, p, d, m in columns]
    window = Window(grad.shape[2:], dilations, strides, list(zip(pads, ends, strict=True)))
    found = convolved(turned, weights, None, window, [1] * rank, groups)
    return np.permute_dims(found, (1, 0, *range(2, rank + 2)))


# ---- distances -------------------------------------------------------------------------------------


@operator("aten._cdist_forward.default")
def _cdist(node: Node, x: Array, y: Array, p: float, compute_mode: int | None) -> Array:
    return _norms(np.expand_dims(x, -2) - np.expand_dims(y, -3), p)


@operator("aten._pdist_forward.default")
def _pdist(node: Node, x: Array, p: float = 2.0) -> Array:
    rows = [(i, j) for i in range(x.shape[0]) for j in range(i + 1, x.shape[0])]
    first, second = (np.take(x, [pair[k] for pair in rows], axis=0) for k in (0, 1))
    return _norms(first - second, p)


def _norms(x: Array, p: float) -> Array:
    """The p-norms along the last axis."""
    if p == 0:
        return np.sum(np.not_equal(x, 0).astype(x.dtype), axis=-1)
    if p in (1, 2, float("inf")):
        return np.linalg.vector_norm(floating(x), axis=-1, ord=p)
    return np.power(np.sum(np.power(np.abs(x), p), axis=-1), 1 / p)
