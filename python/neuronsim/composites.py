"""The formulas of composites (R7), step by step: float32 on the device, float64 on the host.

`csrc/reductions/composite.cpp` computes the same bits a row at a time; these formulas serve the
profiles and types that it does not know. The caller rounds the result once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Value: TypeAlias = Any


class Steps(Protocol):
    """How one step is evaluated: on values and Python numbers, broadcast, in the type of the steps."""

    def __call__(self, name: str, *operands: Value | float) -> Value:
        """An elementwise operation."""

    def reduce(self, reducer: str, x: Value) -> Value:
        """A reduction of the composite's axes by R2, which stay with length 1."""

    def count(self, x: Value) -> int:
        """How many elements are reduced to one."""


Formula: TypeAlias = Callable[[Steps, Sequence[Value], Mapping[str, Any]], Value]


def _exponentials(step: Steps, centred: Value) -> tuple[Value, Value]:
    powers = step("exp", centred)
    return powers, step.reduce("add", powers)


def _softmax(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """exp(x - max x) / sum of exp(x - max x)."""
    (x,) = operands
    return step("divide", *_exponentials(step, step("subtract", x, step.reduce("maximum", x))))


def _log_softmax(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """(x - max x) - log(sum of exp(x - max x))."""
    (x,) = operands
    centred = step("subtract", x, step.reduce("maximum", x))
    return step("subtract", centred, step("log", _exponentials(step, centred)[1]))


def _logsumexp(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """log(sum of exp(x - m)) + m, where m is max x, or 0 where that is infinite."""
    (x,) = operands
    top = step.reduce("maximum", x)
    top = step("select", step("isinf", top), 0.0, top)
    total = _exponentials(step, step("subtract", x, top))[1]
    return step("add", step("log", total), top)


def _mean(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """Sum x / n."""
    return step("divide", step.reduce("add", operands[0]), step.count(operands[0]))


def _sum_of_squares(step: Steps, x: Value) -> Value:
    return step.reduce("add", step("multiply", x, x))


def _variance(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """Sum (x - mean)^2 / (n - correction), in two passes; a negative divisor is 0."""
    (x,) = operands
    centred = step("subtract", x, _mean(step, operands, attributes))
    divisor = max(step.count(x) - attributes["correction"], 0)
    return step("divide", _sum_of_squares(step, centred), divisor)


def _standard_deviation(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The square root of the variance."""
    return step("sqrt", _variance(step, operands, attributes))


def _vector_norm(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """sqrt(sum x^2); of the orders 1, inf and -inf the sum, the largest and the least of |x|."""
    (x,) = operands
    order = attributes.get("ord", 2)
    if order == 2:
        return step("sqrt", _sum_of_squares(step, x))
    reducer = {1: "add", math.inf: "maximum", -math.inf: "minimum"}[order]
    return step.reduce(reducer, step("abs", x))


def _scaled(
    step: Steps,
    centred: Value,
    variance: Value,
    terms: Sequence[Value],
    attributes: Mapping[str, Any],
) -> Value:
    """By a variance: centred * rsqrt(variance + epsilon), then * weight + bias."""
    scale = step("rsqrt", step("add", variance, attributes["epsilon"]))
    result = step("multiply", centred, scale)
    for name, term in zip(attributes.get("terms", ("weight", "bias")), terms, strict=True):
        result = step("multiply" if name == "weight" else "add", result, term)
    return result


def _normalized(
    step: Steps, centred: Value, terms: Sequence[Value], attributes: Mapping[str, Any]
) -> Value:
    """By its root mean square: centred * rsqrt(mean of centred^2 + epsilon), then * weight + bias."""
    mean_square = step("divide", _sum_of_squares(step, centred), step.count(centred))
    return _scaled(step, centred, mean_square, terms, attributes)


def _layer_norm(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """(x - mean) * rsqrt(var + epsilon) * weight + bias, the variance in two passes."""
    x, *terms = operands
    centred = step("subtract", x, _mean(step, [x], attributes))
    return _normalized(step, centred, terms, attributes)


def _rms_norm(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The row x * rsqrt(mean of x^2 + epsilon) * weight."""
    x, *terms = operands
    return _normalized(step, x, terms, attributes)


def _batch_norm(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """(x - mean) * rsqrt(var + epsilon) * weight + bias with statistics that are given."""
    x, mean, variance, *terms = operands
    return _scaled(step, step("subtract", x, mean), variance, terms, attributes)


def _xla_batch_norm(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The row x * s + (bias - mean * s), where s is weight * rsqrt(var + epsilon)."""
    x, mean, variance, *terms = operands
    named = dict(zip(attributes["terms"], terms, strict=True))
    scale = step("rsqrt", step("add", variance, attributes["epsilon"]))
    scale = step("multiply", named["weight"], scale) if "weight" in named else scale
    moved = step("multiply", mean, scale)
    shift = step("subtract", named.get("bias", 0.0), moved)
    return step("add", step("multiply", x, scale), shift)


def _batch_norm_training(
    step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]
) -> tuple[Value, ...]:
    """The batch norm with the mean and variance of each channel, and these."""
    x, *terms = operands
    mean = _mean(step, [x], attributes)
    centred = step("subtract", x, mean)
    variance = step("divide", _sum_of_squares(step, centred), step.count(x))
    return _scaled(step, centred, variance, terms, attributes), mean, variance


def _xla_batch_norm_training(
    step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]
) -> tuple[Value, ...]:
    """The same, the variance in one pass: mean of x^2 - mean^2."""
    x, *terms = operands
    mean = _mean(step, [x], attributes)
    squares = step("divide", _sum_of_squares(step, x), step.count(x))
    variance = step("subtract", squares, step("multiply", mean, mean))
    return _scaled(step, step("subtract", x, mean), variance, terms, attributes), mean, variance


def _batch_norm_grad(
    step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]
) -> tuple[Value, ...]:
    """With c = x - mean, v = var + epsilon, n elements and t = sum(grad * c), the gradients weight *
    rsqrt(v) / n * (grad * n - sum(grad) - t * c / v), t * rsqrt(v) and sum(grad), as XLA has them.
    """
    x, weight, mean, variance, grad = operands
    count, centred = step.count(x), step("subtract", x, mean)
    spread = step("add", variance, attributes["epsilon"])
    inverse = step("rsqrt", spread)
    total = step.reduce("add", step("multiply", grad, centred))
    grad_bias = step.reduce("add", grad)
    factor = step("divide", step("multiply", weight, inverse), count)
    along = step("divide", step("multiply", total, centred), spread)
    across = step("subtract", step("multiply", grad, count), grad_bias)
    grad_x = step("multiply", factor, step("subtract", across, along))
    return grad_x, step("multiply", total, inverse), grad_bias


def _gelu_backward(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The gradient times gelu'(x)."""
    grad, x = operands
    return step("multiply", grad, step("gelu_dx", x))


def _silu_backward(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The gradient times silu'(x)."""
    grad, x = operands
    return step("multiply", grad, step("silu_dx", x))


def _softmax_backward(step: Steps, operands: Sequence[Value], attributes: Mapping[str, Any]) -> Value:
    """The softmax y times grad - sum(grad * y)."""
    grad, y = operands
    total = step.reduce("add", step("multiply", grad, y))
    return step("multiply", y, step("subtract", grad, total))


FORMULAS: dict[str, Formula] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "mean": _mean,
    "var": _variance,
    "std": _standard_deviation,
    "vector_norm": _vector_norm,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_grad": _batch_norm_grad,
    "gelu_backward": _gelu_backward,
    "silu_backward": _silu_backward,
    "softmax_backward": _softmax_backward,
}
# What takes its place under `batch_norm: xla` (xla/service/batchnorm_expander.cc).
XLA_FORMULAS: dict[str, Formula] = {
    "batch_norm": _xla_batch_norm,
    "batch_norm_training": _xla_batch_norm_training,
}
