"""Losses in float32 steps, rounded once at the end (R7). `nn` exports them.

>>> mse_loss([1.0, 4.0], [2.0, 2.0])
Array(2.5, dtype=float32)
"""

from __future__ import annotations

from typing import Any, Literal

from neuronsim.arrays import reductions
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.indexing import take_along_axis
from neuronsim.arrays.manipulation import expand_dims, squeeze
from neuronsim.arrays.normalization import log_softmax
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument

__all__ = ["cross_entropy", "mse_loss"]

Reduction = Literal["mean", "sum", "none"]


def _reduced(x: Array, reduction: Reduction) -> Array:
    if reduction not in ("mean", "sum", "none"):
        raise InvalidArgument(f"the reduction is mean, sum or none, not {reduction!r}")
    return x if reduction == "none" else getattr(reductions, reduction)(x)


@in_float32("x", "target")
def mse_loss(x: Any, target: Any, reduction: Reduction = "mean") -> Array:
    """The squares of x - target: their mean (R7), their sum by R2, or all of them, in float32 steps."""
    difference = x - target
    return _reduced(difference * difference, reduction)


@in_float32("logits")
def cross_entropy(logits: Any, target: Any, reduction: Reduction = "mean", axis: int = -1) -> Array:
    """Minus the log_softmax of `logits` along `axis` at the classes `target`, integers: the mean (R7),
    the sum by R2, or all of them, in float32 steps. PyTorch has the classes along axis 1.

    >>> cross_entropy([[0.0, 0.0], [100.0, 0.0]], [1, 0], reduction="sum")
    Array(0.6931472, dtype=float32)
    """
    classes, at = asarray(target), one_axis(logits.shape, axis)
    rest = logits.shape[:at] + logits.shape[at + 1 :]
    if classes.dtype.kind not in ("signed", "unsigned") or classes.shape != rest:
        raise InvalidArgument(
            f"cross_entropy: the target {classes.bits.type} is not one class for each of {list(rest)}"
        )
    found = take_along_axis(log_softmax(logits, at), expand_dims(classes, at), at)
    return _reduced(-squeeze(found, at), reduction)
