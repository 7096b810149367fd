"""Norms, their statistics and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.frontends.primitives import in_float
from neuronsim.frontends.torch.table import Node, operator


def _statistics(rows: Array, epsilon: float, dims: Sequence[int]) -> tuple[Array, Array]:
    """The mean and the inverse standard deviation along the last axis."""
    mean = np.reshape(np.mean(rows, axis=-1), dims)
    return mean, np.reshape(np.rsqrt(np.var(rows, axis=-1) + epsilon), dims)


def _of_types(node: Node, found: Sequence[Array | None]) -> list[Array | None]:
    """The results in the types that PyTorch states."""
    pairs = zip(found, node.dtypes, strict=False)
    return [x if x is None or t is None else x.astype(t) for x, t in pairs]


def _masked(node: Node, found: Sequence[Array], mask: Sequence[bool]) -> list[Array | None]:
    """Of the gradients those that are asked for, in their types."""
    return _of_types(node, [x if wanted else None for x, wanted in zip(found, mask, strict=True)])


@operator("aten.native_layer_norm.default")
def _layer_norm(
    node: Node,
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> list[Array | None]:
    rank = len(normalized_shape)
    kept, normed = x.shape[: x.ndim - rank], math.prod(normalized_shape)
    rows = np.reshape(x, (*kept, normed))
    w, b = (None if t is None else np.reshape(t, (normed,)) for t in (weight, bias))
    found: list[Array | None] = [np.reshape(nn.layer_norm(rows, w, b, epsilon=eps), x.shape)]
    if node.wants(1) or node.wants(2):
        found += _statistics(in_float(rows), eps, (*kept, *[1] * rank))
    return _of_types(node, found)


@operator("aten.native_layer_norm_backward.default")
def _layer_norm_backward(
    node: Node,
    grad: Array,
    x: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    """The gradients of the input, the weight and the bias."""
    inner = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(inner[0])) if inner else tuple(range(x.ndim))
    wide = in_float(grad)
    normal = (in_float(x) - in_float(mean)) * in_float(rstd)
    scaled = wide if weight is None else wide * in_float(weight)
    along = np.mean(scaled * normal, axis=inner, keepdims=True)
    of_input = (scaled - np.mean(scaled, axis=inner, keepdims=True) - normal * along) * in_float(rstd)
    of_weight = np.sum(wide * normal, axis=outer) if outer else wide * normal
    of_bias = np.sum(wide, axis=outer) if outer else wide
    return _masked(node, (of_input, of_weight, of_bias), output_mask)


@operator("aten._fused_rms_norm.default")
def _rms_norm(
    node: Node, x: Array, normalized_shape: Sequence[int], weight: Array | None, eps: float | None
) -> list[Array | None]:
    rank = len(normalized_shape)
    kept, normed = x.shape[: x.ndim - rank], math.prod(normalized_shape)
    rows = np.reshape(x, (*kept, normed))
    term = None if weight is None else np.reshape(weight, (normed,))
    own = 2.0**-52 if x.dtype is dtypes.float64 else 2.0**-23
    epsilon = own if eps is None else eps
    found: list[Array | None] = [np.reshape(nn.rms_norm(rows, term, epsilon=epsilon), x.shape)]
    if node.wants(1):
        wide = in_float(rows)
        rstd = np.rsqrt(np.mean(wide * wide, axis=-1) + epsilon)
        found.append(np.reshape(rstd, (*kept, *[1] * rank)))
    return _of_types(node, found)


# ---- batches ---------------------------------------------------------------------------------------


@operator("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(
    node: Node,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    momentum: float,
    eps: float,
) -> list[Array | None]:
    found = nn.batch_norm(x, mean, variance, weight, bias, epsilon=eps)
    nothing = np.zeros((0,), dtype=found.dtype)
    return _of_types(node, [found, nothing, nothing])


def _batch(
    x: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Normalised by its own statistics, with these: the mean and the variance."""
    axes = tuple(d for d in range(x.ndim) if d != 1)
    wide = in_float(x)
    mean, variance = np.mean(wide, axis=axes), np.var(wide, axis=axes)
    return nn.batch_norm(x, mean, variance, weight, bias, epsilon=eps), mean, variance


@operator("aten._native_batch_norm_legit.no_stats")
def _batch_norm_of_batch(
    node: Node,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Array | None]:
    found, mean, variance = _batch(x, weight, bias, eps)
    return _of_types(node, [found, mean, np.rsqrt(variance + eps)])


@operator("aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.default")
def _batch_norm_functional(
    node: Node,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Array | None]:
    """With the running statistics after the batch, of which the variance is the sample's."""
    if not training:
        found = nn.batch_norm(x, mean, variance, weight, bias, epsilon=eps)
        nothing = np.zeros((0,), dtype=found.dtype)
        return _of_types(node, [found, nothing, nothing, mean, variance])
    found, own_mean, own_variance = _batch(x, weight, bias, eps)
    count = x.size // x.shape[1]
    sample = own_variance * (count / max(count - 1, 1))
    running = [
        in_float(old) * (1 - momentum) + new * momentum
        for old, new in ((mean, own_mean), (variance, sample))
    ]
    return _of_types(node, [found, own_mean, np.rsqrt(own_variance + eps), *running])


@operator("aten.native_batch_norm_backward.default")
def _batch_norm_backward(
    node: Node,
    grad: Array,
    x: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_variance: Array | None,
    mean: Array | None,
    rstd: Array | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    axes = tuple(d for d in range(x.ndim) if d != 1)
    dims = [-1 if d == 1 else 1 for d in range(x.ndim)]
    if not train:
        assert running_mean is not None
        assert running_variance is not None
        mean, rstd = in_float(running_mean), np.rsqrt(in_float(running_variance) + eps)
    assert mean is not None
    assert rstd is not None
    wide, scale = in_float(grad), np.reshape(in_float(rstd), dims)
    normal = (in_float(x) - np.reshape(in_float(mean), dims)) * scale
    of_weight, of_bias = np.sum(wide * normal, axis=axes), np.sum(wide, axis=axes)
    factor = scale if weight is None else scale * np.reshape(in_float(weight), dims)
    if train:
        count = x.size // x.shape[1]
        centred = wide - np.reshape(of_bias / count, dims)
        of_input = (centred - normal * np.reshape(of_weight / count, dims)) * factor
    else:
        of_input = wide * factor
    return _masked(node, (of_input, of_weight, of_bias), output_mask)


# ---- groups ----------------------------------------------------------------------------------------


@operator("aten.native_group_norm.default")
def _group_norm(
    node: Node,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> list[Array | None]:
    found: list[Array | None] = [nn.group_norm(x, group, weight, bias, epsilon=eps)]
    if node.wants(1) or node.wants(2):
        rows = np.reshape(in_float(x), (n, group, c // group * hxw))
        found += _statistics(rows, eps, (n, group))
    return _of_types(node, found)


@operator("aten.native_group_norm_backward.default")
def _group_norm_backward(
    node: Node,
    grad: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: Sequence[bool],
) -> list[Array | None]:
    dims = (n, group, c // group, hxw)
    wide, values = (np.reshape(in_float(t), dims) for t in (grad, x))
    centre, scale = (np.reshape(in_float(t), (n, group, 1, 1)) for t in (mean, rstd))
    normal = (values - centre) * scale
    by_weight: Any = wide
    if weight is not None:
        by_weight = wide * np.reshape(in_float(weight), (1, group, c // group, 1))
    mean_grad, along = (np.mean(t, axis=(2, 3), keepdims=True) for t in (by_weight, by_weight * normal))
    of_input = np.reshape((by_weight - mean_grad - normal * along) * scale, x.shape)
    of_weight = np.reshape(np.sum(wide * normal, axis=(0, 3)), (c,))
    of_bias = np.reshape(np.sum(wide, axis=(0, 3)), (c,))
    return _masked(node, (of_input, of_weight, of_bias), output_mask)


@operator("aten._weight_norm_interface_backward.default")
def _weight_norm_backward(
    node: Node, grad: Array, v: Array, g: Array, norms: Array, dim: int
) -> list[Array]:
    """The gradients of v and g in v g / |v|, whose norms are of all axes but one."""
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    wide, direction, scale, size = (in_float(t) for t in (grad, v, g, norms))
    along = np.sum(wide * direction, axis=axes, keepdims=True) / size
    of_v = (wide - direction * (along / size)) * (scale / size)
    return [x.astype(t.dtype) for x, t in ((of_v, v), (along, g))]
