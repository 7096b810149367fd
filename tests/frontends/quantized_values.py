"""What ONNX's operators on quantized integers give before they round, in float64, in units of the
result's scale: the evidence that a byte in which two implementations differ lies at a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Some roundings of float32 at 256 steps: what lies so near to the middle of two bytes may be either.
NEAR = 2.0**-12

Arrays = list[Any]  # of a node's inputs; None where one is left out


def _real(x: Any, scale: Any, zero: Any, axis: int | None = None) -> Any:
    """The values that integers stand for; scales of several numbers lie along an axis."""
    spread = [np.asarray(v, np.float64) for v in (scale, 0 if zero is None else zero)]
    if axis is not None:
        dims = [-1 if d == axis else 1 for d in range(x.ndim)]
        spread = [v.reshape(dims) if v.size > 1 else v.reshape(()) for v in spread]
    return (x.astype(np.float64) - spread[1]) * spread[0]


def _windows(x: Any, a: dict[str, Any], window: list[int]) -> Any:
    """(batch, channels, places ..., window ...) of what is padded with zeros."""
    rank = x.ndim - 2
    pads, strides = a.get("pads", [0] * 2 * rank), a.get("strides", [1] * rank)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=tuple(range(2, x.ndim)))
    return views[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]


def _convolved(a: dict[str, Any], i: Arrays) -> Any:
    x, w = _real(i[0], i[1], i[2]), _real(i[3], i[4], i[5], 0)
    groups, found = a.get("group", 1), []
    inner = tuple(range(2, w.ndim))
    for part, kernel in zip(np.split(x, groups, 1), np.split(w, groups), strict=True):
        v = _windows(part, a, list(w.shape[2:]))
        axes = (1, *(n + len(inner) for n in inner)), (1, *inner)
        found.append(np.moveaxis(np.tensordot(v, kernel, axes), -1, 1))
    sums = np.concatenate(found, 1)
    if len(i) > 8 and i[8] is not None:
        scale = np.asarray(i[1], np.float64) * np.asarray(i[4], np.float64)
        sums = sums + (i[8] * scale).reshape(-1, *(1 for _ in inner))
    return sums / float(i[6])


def _gemm(a: dict[str, Any], i: Arrays) -> Any:
    turns = a.get("transB", 0)
    left, right = _real(*i[:3]), _real(*i[3:6], 0 if turns else 1)
    left, right = left.T if a.get("transA", 0) else left, right.T if turns else right
    found = a.get("alpha", 1.0) * (left @ right)
    if i[6] is not None:
        found = found + i[6] * (np.asarray(i[1], np.float64) * np.asarray(i[4], np.float64))
    return found / float(i[7])


def _pooled(a: dict[str, Any], i: Arrays) -> Any:
    rank = len(a["kernel_shape"])
    x, last = _real(*i[:3]), tuple(range(-rank, 0))
    sums = _windows(x, a, a["kernel_shape"]).sum(last)
    counts = _windows(np.ones_like(x), a, a["kernel_shape"]).sum(last)
    whole = float(np.prod(a["kernel_shape"]))
    return sums / (whole if a.get("count_include_pad") else counts) / float(i[3])


def _softmax(a: dict[str, Any], i: Arrays) -> Any:
    """Before operator set 13 over the axis and all after it."""
    x = _real(*i[:3])
    axis = a.get("axis", -1) % x.ndim
    rows = x if a["opset"] >= 13 else x.reshape(*x.shape[:axis], -1)
    along = axis if a["opset"] >= 13 else -1
    e = np.exp(rows - rows.max(along, keepdims=True))
    return (e / e.sum(along, keepdims=True)).reshape(x.shape) / float(i[3])


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda a, i: function(_real(*i[:3]), _real(*i[3:6])) / float(i[6])


def _unary(function: Callable[[dict[str, Any], Any], Any]) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda a, i: function(a, _real(*i[:3])) / float(i[3])


BEFORE_ROUNDING: dict[str, Callable[[dict[str, Any], Arrays], Any]] = {
    "QuantizeLinear": lambda a, i: (
        _real(i[0], 1, 0) / _real(np.ones_like(i[0]), i[1], 0, a.get("axis", 1) % max(i[0].ndim, 1))
    ),
    "QLinearMatMul": lambda a, i: _real(*i[:3]) @ _real(*i[3:6], axis=i[3].ndim - 1) / float(i[6]),
    "QLinearConv": _convolved,
    "QGemm": _gemm,
    "QLinearAdd": _binary(np.add),
    "QLinearMul": _binary(np.multiply),
    "QLinearSigmoid": _unary(lambda a, x: 1 / (1 + np.exp(-x))),
    "QLinearLeakyRelu": _unary(lambda a, x: np.where(x < 0, a.get("alpha", 0.01) * x, x)),
    "QLinearConcat": lambda a, i: (
        np.concatenate([_real(*i[n : n + 3]) for n in range(2, len(i), 3)], a["axis"]) / float(i[0])
    ),
    "QLinearAveragePool": _pooled,
    "QLinearGlobalAveragePool": _unary(lambda a, x: x.mean(tuple(range(2, x.ndim)), keepdims=True)),
    "QLinearSoftmax": _softmax,
}


def before_rounding(node: Any, inputs: Arrays) -> Any:
    """The exact result of a node over its scale, but for float64's roundings."""
    from onnx.helper import get_attribute_value

    attributes = {a.name: get_attribute_value(a) for a in node.attribute}
    return BEFORE_ROUNDING[node.op_type](attributes, inputs)


def lies_at_a_tie(values: Any) -> Any:
    """Whether each lies as near as NEAR to the middle of two integers."""
    return np.abs(values - np.floor(values) - 0.5) <= NEAR
