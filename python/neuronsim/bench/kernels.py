"""What can be timed: each kernel as a function of no arguments, with its traffic and its work."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import ops
from neuronsim.arrays import nn, reductions
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.bench.case import Case, check_shape, normal_values
from neuronsim.bench.layer import Layer, parse_layer
from neuronsim.bench.products import convolution_case, matmul_case
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, UnsupportedOperator, nearest
from neuronsim.profiles import current_profile

PRODUCTS = ("matmul", "convolution")
_REDUCTIONS = ("sum", "prod", "max", "min", "mean")
# Composites of the last axis, with how many operations they have for each element.
COMPOSITES = {"softmax": 5, "layer_norm": 7}
# The operations of `chain`, each on the last result and the second operand.
CHAIN = ("add", "multiply", "subtract", "maximum", "add", "multiply", "minimum", "subtract")


def kernel_names() -> tuple[str, ...]:
    """The names that `make_case` takes."""
    elementwise_names = (r.name for r in ops.OPS.values() if r.core is not None and r.name != "select")
    return (*elementwise_names, *_REDUCTIONS, *COMPOSITES, "chain", "convert", *PRODUCTS)


def make_case(
    op: str,
    shape: tuple[int, ...],
    dtype: str,
    axis: int | None = None,
    layer: Layer | str | None = None,
) -> Case:
    """The case of a kernel on a shape.

    `shape` is the operands' (for matmul [batch,] rows, depth, columns; for convolution the input's:
    batch, channels, lengths); `dtype` one type, for convert "source:target" and for a product whose
    float32 operands are rounded in it (A1) "float32:type"; `axis` is a reduction's, `layer` a
    convolution's. Raises UnsupportedOperator or InvalidArgument.

    >>> make_case("matmul", (8, 16, 4), "bfloat16").flops
    1024
    >>> make_case("matmul", (2, 8, 16, 4), "float32:bfloat16").cast
    neuronsim.bfloat16
    """
    if op not in kernel_names():
        raise UnsupportedOperator(
            f"no kernel is named {op!r}{nearest(op, kernel_names())}: `neuronsim bench --help` lists "
            "them"
        )
    check_shape(shape, () if op in PRODUCTS else (shape,))
    source_name, _, target_name = dtype.partition(":")
    source = as_dtype(source_name)
    target = as_dtype(target_name) if target_name else source
    if op not in PRODUCTS and (op == "convert") != bool(target_name):
        raise InvalidArgument(
            "convert takes a pair of types, float32:bfloat16; else only matmul and convolution may"
        )
    if op != "convolution" and layer is not None:
        raise InvalidArgument(f"a layer is convolution's, not {op}'s")
    if axis is not None and (op not in _REDUCTIONS or not -len(shape) <= axis < len(shape)):
        raise InvalidArgument(f"{op} of {shape} has no axis {axis}")
    cast = target if target_name else None
    if op == "matmul":
        return matmul_case(shape, source, cast)
    if op == "convolution":
        found = parse_layer(layer) if isinstance(layer, str) else layer
        return convolution_case(shape, source, cast, found)
    if op in COMPOSITES:
        return _composite_case(op, shape, source)
    size = math.prod(shape)
    row = ops.OPS.get(op)
    arity = 2 if op == "chain" else row.arity if row is not None and op != "convert" else 1
    values = tuple(_values(op, shape, seed) for seed in range(arity))
    arrays = [asarray(v, source) for v in values]
    run, run_touched, outputs = _runs(op, row, arrays, target, axis)
    flops = 0 if op == "convert" else size * (len(CHAIN) if op == "chain" else 1)
    return Case(
        op=op,
        shape=shape,
        dtype=source,
        target=target,
        axis=axis,
        operands=values,
        run=run,
        run_touched=run_touched,
        elements=size,
        bytes=arity * size * source.itemsize + outputs * target.itemsize,
        flops=flops,
    )


def _composite_case(op: str, shape: tuple[int, ...], dtype: DType) -> Case:
    """A composite of rows; layer_norm with its weight and bias."""
    terms = 2 if op == "layer_norm" else 0
    values = (_values(op, shape, 0), *(_values(op, shape[-1:], 1 + i) for i in range(terms)))
    arrays = [asarray(v, dtype) for v in values]
    run = lambda: getattr(nn, op)(*arrays)  # noqa: E731
    size = math.prod(shape)
    return Case(
        op=op,
        shape=shape,
        dtype=dtype,
        target=dtype,
        operands=values,
        run=run,
        run_touched=run,
        elements=size,
        bytes=2 * size * dtype.itemsize,
        flops=size * COMPOSITES[op],
    )


def _runs(
    op: str, row: ops.Op | None, arrays: list[Array], target: DType, axis: int | None
) -> tuple[Callable[[], Any], Callable[[], Any], int]:
    """The kernel with a fresh and with a touched result, and how many elements that has."""
    first = arrays[0]
    if op in _REDUCTIONS:
        reduction = getattr(reductions, op)
        outputs = 1 if axis is None else first.size // first.shape[axis]
        run = lambda: reduction(first, axis)  # noqa: E731
        return run, run, outputs
    profile = current_profile()
    data = [a.bits.data for a in arrays]
    if op == "chain":
        code = ops.core_code(first.dtype, op)
        types = [ops.ArrayType(first.dtype, first.shape)]
        steps: list[ops.Link] = []
        operands = ((0, first.dtype), (1, first.dtype))
        for name in CHAIN:
            push = ops.pusher(steps, len(arrays))
            last = ops.lower(ops.by_name(name), {}, operands, first.dtype, profile, push)
            operands = ((last, first.dtype), (1, first.dtype))
        chain = ops.make_chain((code,) * 2, tuple(steps), (operands[0][0],), profile)
        run = lambda: ops.run_chain(chain, data, types)[0]  # noqa: E731
    else:
        assert row is not None
        inputs = tuple(a.dtype for a in arrays)
        like = [a.bits.type for a in arrays]
        result = target if op == "convert" else row.infer_array(like, {}).dtype
        chain, _ = ops.elementwise_chain(row, {}, inputs, result, profile)
        target = result
        if op == "convert":
            run = lambda: first.astype(target)  # noqa: E731
        elif row.operator in _OPERATORS:
            symbol = _OPERATORS[row.operator]
            run = lambda: symbol(*arrays)  # noqa: E731
        else:
            run = lambda: apply_elementwise(op, *arrays)  # noqa: E731
    touched = np.zeros(first.shape, target.storage)
    touched.fill(0)
    return run, chain.on(data, [touched]).run, first.size


_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def _values(op: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    """Normal values, positive where the operation needs them; a function's are uniform in [-8, 8], or
    where it is defined.
    """
    if op in ops.FUNCTIONS_OF_FLOATS:
        low, high = _DOMAINS.get(op, (-8.0, 8.0))
        drawn = np.random.default_rng(seed).random(shape, np.float32)
        return np.asarray(drawn * np.float32(high - low) + np.float32(low))
    values = normal_values(shape, seed)
    positive: Any = np.abs(values) + np.float32(0.01)
    return positive if op in ("divide", "prod", "power") else values


_POSITIVE, _UNIT = (2.0**-10, 8.0), (-1.0, 1.0)
_DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt"), _POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), _UNIT),
    "acosh": (1.0, 8.0),
}
