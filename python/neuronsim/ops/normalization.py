"""Batch norms as HLO has them: rule R7."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.chains import is_float
from neuronsim.ops.composites import evaluate_formula, run_formula
from neuronsim.ops.elementwise import converted
from neuronsim.ops.rows import ArrayType, Attributes, Bits, BitsArray, Evaluation, Result, by_name


def _channels(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """The type of what has one element for each channel; raises for what is no batch norm."""
    x, *others = operands
    if not is_float(x.dtype):
        raise UnsupportedType(f"batch norm of {x.dtype.name}: a float type of the device is needed")
    feature = attributes["feature_index"]
    if not 0 <= feature < len(x.dims):
        raise InvalidArgument(f"feature_index {feature} is no axis of {x}")
    own = (x.dims[feature],)
    for t in others:
        if t.dims != own or t.dtype.kind != "float":
            raise InvalidArgument(
                f"an operand of {t}: the channels of {x} along {feature} are {own[0]}"
            )
    return ArrayType(x.dtype, own)


def infer_batch_norm_training(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    own = _channels(operands, attributes)
    return operands[0], own, own


def infer_batch_norm_inference(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    _channels(operands, attributes)
    return operands[0]


def infer_batch_norm_grad(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    *before, grad = operands
    own = _channels(before, attributes)
    if grad.dims != operands[0].dims or grad.dtype.kind != "float":
        raise InvalidArgument(f"a gradient of {grad}: the output has the dimensions of {operands[0]}")
    return operands[0], own, own


def evaluate_batch_norm(e: Evaluation) -> tuple[BitsArray, ...]:
    """Training and grad: three results, each rounded once."""
    assert not isinstance(e.result, ArrayType)
    x, *others = e.operands
    feature, rank = e.attributes["feature_index"], x.data.ndim
    own = [n if d == feature else 1 for d, n in enumerate(x.data.shape)]
    terms = [t if t.data.ndim == rank > 1 else Bits(t.data.reshape(own), t.dtype) for t in others]
    axes = [d for d in range(rank) if d != feature]
    found: tuple[Bits, ...] = run_formula(e.op, x, terms, axes, e.attributes, e.setting)
    rounded = []
    for n, (value, t) in enumerate(zip(found, e.result, strict=True)):
        data = np.ascontiguousarray(value.data).reshape(t.dims)
        rounded.append(converted(Bits(data, value.dtype), t.dtype, e.setting.of_result(n)).data)
    return tuple(rounded)


def evaluate_batch_norm_inference(e: Evaluation) -> BitsArray:
    """The row of arrays, whose operands come in another order."""
    x, weight, bias, mean, variance = e.operands
    own = {
        "dimensions": (e.attributes["feature_index"],),
        "terms": ("weight", "bias"),
        "epsilon": e.attributes["epsilon"],
    }
    operands = [x, mean, variance, weight, bias]
    return evaluate_formula(Evaluation(by_name("batch_norm"), operands, own, e.result, e.setting))
