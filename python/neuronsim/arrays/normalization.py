"""Softmax and the norms: composites of rows in float32 steps, rounded once at the end (R7).
`nn` exports them.

>>> from neuronsim.arrays.conversion import asarray
>>> softmax(asarray([0.0, 0.0], dtype="bfloat16"))
Array([0.5, 0.5], dtype=bfloat16)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuronsim import ops
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, one_axis
from neuronsim.arrays.conversion import float_array
from neuronsim.arrays.manipulation import broadcast_to, reshape
from neuronsim.arrays.reductions import statistic
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument

__all__ = [
    *("batch_norm", "group_norm", "layer_norm", "log_softmax", "logsumexp", "rms_norm", "softmax"),
]


def _by_rows(name: str, x: Any, axis: Any, terms: dict[str, Any], **attributes: Any) -> Array:
    """A composite over one axis; `terms` are as long as that axis, or one number."""
    a = float_array(x)
    if a.ndim == 0:
        raise InvalidArgument(f"{name} of a scalar: it needs an axis")
    at = one_axis(a.shape, axis)
    return _composite(name, a, [], at, terms, attributes)


def _composite(
    name: str,
    x: Array,
    statistics: Sequence[Array],
    axis: int,
    terms: dict[str, Any],
    attributes: dict[str, Any],
) -> Array:
    given = {key: _term(name, key, t, x, axis) for key, t in terms.items() if t is not None}
    if terms:
        attributes["terms"] = tuple(given)
    operands = [v.bits for v in (x, *statistics, *given.values())]
    return Array(ops.apply(name, operands, dimensions=(axis,), **attributes))


def _term(name: str, what: str, term: Any, x: Array, axis: int) -> Array:
    t = float_array(term)
    try:
        return broadcast_to(t, (x.shape[axis],))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{name}: the {what} {t.bits.type} is not as long as axis {axis} of {x.bits.type}"
        ) from error


def _epsilon(value: Any) -> float:
    return number("epsilon", value)


def softmax(x: Any, axis: int = -1) -> Array:
    """exp(x - max x) / sum of exp(x - max x) over `axis`."""
    return _by_rows("softmax", x, axis, {})


def log_softmax(x: Any, axis: int = -1) -> Array:
    """(x - max x) - log(sum of exp(x - max x)) over `axis`."""
    return _by_rows("log_softmax", x, axis, {})


def logsumexp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """log(sum of exp(x - m)) + m over `axis`, where m is max x, or 0 where that is infinite."""
    return statistic("logsumexp", x, axis, keepdims)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Array:
    """(x - mean) * rsqrt(var + epsilon) over the last axis, the variance two-pass; then the affine."""
    terms = {"weight": weight, "bias": bias}
    return _by_rows("layer_norm", x, -1, terms, epsilon=_epsilon(epsilon))


def rms_norm(x: Any, weight: Any = None, epsilon: float = 1e-5) -> Array:
    """Scaled by the root mean square: x * rsqrt(mean of x^2 + epsilon) over the last axis; then times
    the weight.

    >>> rms_norm([2.0, 2.0, -2.0, 2.0], epsilon=0.0)
    Array([ 1.,  1., -1.,  1.], dtype=float32)
    """
    return _by_rows("rms_norm", x, -1, {"weight": weight}, epsilon=_epsilon(epsilon))


def batch_norm(
    x: Any,
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-5,
    axis: int = 1,
) -> Array:
    """(x - mean) * rsqrt(variance + epsilon) with the statistics of each channel along `axis`, as
    inference has them; then the affine.

    >>> batch_norm([[3.0, 5.0]], mean=[1.0, 1.0], variance=[4.0, 4.0], epsilon=0.0)
    Array([[1., 2.]], dtype=float32)
    """
    a = float_array(x)
    at = one_axis(a.shape, axis)
    given = {"mean": mean, "variance": variance}
    statistics = [_term("batch_norm", key, v, a, at) for key, v in given.items()]
    attributes = {"epsilon": _epsilon(epsilon)}
    return _composite("batch_norm", a, statistics, at, {"weight": weight, "bias": bias}, attributes)


@in_float32("x", "weight", "bias")
def group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5
) -> Array:
    """(x - mean) * rsqrt(var + epsilon) over each of `groups` groups of the channels (axis 1) of a
    sample, the variance two-pass; then times the weight and plus the bias of each channel (R7).

    >>> group_norm([[1.0, 3.0, 10.0, 30.0]], 2, epsilon=0.0)
    Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise InvalidArgument(f"group_norm of {x.bits.type}: axis 1 has no {groups} groups of channels")
    rows = reshape(x, (x.shape[0], groups, x.size // max(x.shape[0] * groups, 1)))
    found = reshape(layer_norm(rows, epsilon=epsilon), x.shape)
    own = (x.shape[1], *(1,) * (x.ndim - 2))
    if weight is not None:
        found = found * reshape(_term("group_norm", "weight", weight, x, 1), own)
    if bias is not None:
        found = found + reshape(_term("group_norm", "bias", bias, x, 1), own)
    return found
