"""Norms."""

from __future__ import annotations

import math
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx import files
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import axis_of, in_float


@operator("BatchNormalization")
def _batch_norm(
    node: Node, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> list[Array]:
    epsilon = node.get("epsilon", 1e-5)
    if node.version < 9 and not node.get("spatial", 1):
        return [_by_elements(x, scale, bias, mean, variance, epsilon)]
    if node.version >= 14 and node.get("training_mode", 0):
        return _trained(node, x, scale, bias, mean, variance, epsilon)
    found = nn.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon)
    return [found.astype(x.dtype)]


def _by_elements(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    """With statistics for each element of a sample."""
    wide = in_float(x)
    found = (wide - mean) * np.rsqrt(in_float(variance) + epsilon) * scale + bias
    return found.astype(x.dtype)


def _trained(
    node: Node, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> list[Array]:
    """By the batch's own statistics, and the running ones after it."""
    momentum = node.get("momentum", 0.9)
    axes = tuple(d for d in range(x.ndim) if d != 1)
    wide = in_float(x)
    own = np.mean(wide, axis=axes), np.var(wide, axis=axes)
    found = nn.batch_norm(wide, *own, in_float(scale), in_float(bias), epsilon=epsilon)
    running = [
        (in_float(old) * momentum + new * (1 - momentum)).astype(old.dtype)
        for old, new in zip((mean, variance), own, strict=True)
    ]
    return [found.astype(x.dtype), *running]


@operator("InstanceNormalization")
def _instance_norm(node: Node, x: Array, scale: Array, bias: Array) -> Array:
    epsilon = node.get("epsilon", 1e-5)
    return nn.group_norm(x, x.shape[1], scale, bias, epsilon=epsilon).astype(x.dtype)


@operator("GroupNormalization", since=18)
def _group_norm_of_groups(node: Node, x: Array, scale: Array, bias: Array) -> Array:
    """With a weight for each group, not each channel."""
    groups = node.require("num_groups")
    if groups < 1 or x.shape[1] % groups:
        raise InvalidModel(f"{groups} groups of the channels of {x.bits.type}")
    each = x.shape[1] // groups
    weight, shift = (
        np.reshape(np.broadcast_to(np.reshape(t, (-1, 1)), (groups, each)), (-1,))
        for t in (scale, bias)
    )
    return nn.group_norm(x, groups, weight, shift, node.get("epsilon", 1e-5)).astype(x.dtype)


@operator("GroupNormalization", since=21)
def _group_norm(node: Node, x: Array, scale: Array, bias: Array) -> Array:
    epsilon = node.get("epsilon", 1e-5)
    return nn.group_norm(x, node.require("num_groups"), scale, bias, epsilon=epsilon).astype(x.dtype)


def _rows(node: Node, x: Array) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """The array with what is normalised in one axis, in the type of the steps; the axes that are not
    and those that are.
    """
    axis = axis_of(node.get("axis", -1), x.ndim)
    kept, normed = x.shape[:axis], x.shape[axis:]
    stash = files.dtype_of(node.get("stash_type", 1), "the statistics")
    wide = in_float(x) if stash is dtypes.float32 or x.dtype is dtypes.float64 else x.astype(stash)
    return np.reshape(wide, (*kept, math.prod(normed))), kept, normed


def _term(term: Any, normed: tuple[int, ...]) -> Array:
    return np.reshape(np.broadcast_to(in_float(term), normed), (math.prod(normed),))


@operator("LayerNormalization")
def _layer_norm(node: Node, x: Array, scale: Array, bias: Array | None = None) -> list[Array]:
    rows, kept, normed = _rows(node, x)
    epsilon = node.get("epsilon", 1e-5)
    if x.dtype is rows.dtype and _is_line(scale, bias, normed):
        given = None if bias is None else _term(bias, normed)
        found = np.reshape(nn.layer_norm(rows, _term(scale, normed), given, epsilon=epsilon), x.shape)
    else:
        found = np.reshape(nn.layer_norm(rows, epsilon=epsilon), x.shape).astype(x.dtype) * scale
        found = found if bias is None else found + bias
    return [found, *_statistics(node, rows, kept, normed, epsilon)]


def _is_line(scale: Array, bias: Array | None, normed: tuple[int, ...]) -> bool:
    """Whether the terms are no longer than what is normalised."""
    terms = [t for t in (scale, bias) if t is not None]
    return all(
        t.ndim <= len(normed)
        and all(n in (1, m) for n, m in zip(t.shape[::-1], normed[::-1], strict=False))
        for t in terms
    )


def _statistics(
    node: Node, rows: Array, kept: tuple[int, ...], normed: tuple[int, ...], epsilon: float
) -> list[Array]:
    """The mean and the inverse standard deviation, of those that are read."""
    if not (node.wants(1) or node.wants(2)):
        return []
    dims = (*kept, *(1 for _ in normed))
    mean = np.reshape(np.mean(rows, axis=-1), dims)
    return [mean, np.reshape(np.rsqrt(np.var(rows, axis=-1) + epsilon), dims)]


@operator("RMSNormalization")
def _rms_norm(node: Node, x: Array, scale: Array) -> Array:
    rows, _, normed = _rows(node, x)
    epsilon = node.get("epsilon", 1e-5)
    if x.dtype is rows.dtype and _is_line(scale, None, normed):
        return np.reshape(nn.rms_norm(rows, _term(scale, normed), epsilon=epsilon), x.shape)
    found = np.reshape(nn.rms_norm(rows, epsilon=epsilon), x.shape)
    return found.astype(x.dtype) * scale
