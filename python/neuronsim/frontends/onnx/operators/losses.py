"""Losses of classes, in float32 steps (R7)."""

from __future__ import annotations

from typing import Any

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.steps import in_float32
from neuronsim.frontends.onnx.table import Node, operator


@operator("NegativeLogLikelihoodLoss", since=12)
def _nll_loss(node: Node, x: Array, target: Array, weight: Array | None = None) -> Array:
    return _loss(x, target, weight, node.get("reduction", "mean"), node.get("ignore_index"))


@operator("SoftmaxCrossEntropyLoss", since=12)
def _cross_entropy(
    node: Node, x: Array, target: Array, weight: Array | None = None
) -> tuple[Array, Array]:
    logarithms = nn.log_softmax(x, axis=1)
    how = node.get("reduction", "mean"), node.get("ignore_index")
    return _loss(logarithms, target, weight, *how), logarithms


@in_float32("x", "weight")
def _loss(x: Any, target: Array, weight: Any, reduction: str, ignored: int | None) -> Array:
    """-x at the target's class (axis 1), times the class's weight; the mean is over the weights. What
    has the ignored class counts nowhere.
    """
    keeps = None if ignored is None else np.not_equal(target, ignored)
    places = np.expand_dims(target if keeps is None else np.where(keeps, target, 0), 1)
    found = np.negative(np.take_along_axis(x, places, 1)[:, 0])
    scales = None
    if weight is not None:
        own = weight.reshape((1, -1, *[1] * (x.ndim - 2)))
        scales = np.take_along_axis(own, places, 1)[:, 0]
    if keeps is not None:
        scales = np.where(keeps, np.ones(target.shape, dtype=x.dtype) if scales is None else scales, 0)
    if scales is not None:
        found = np.multiply(found, scales)
    if reduction == "none":
        return found
    if reduction == "sum" or scales is not None:
        total = np.sum(found)
        return total if reduction == "sum" else np.divide(total, np.sum(scales))
    return np.mean(found)
