"""The cases of the matrix product and of convolution: plain eager calls, packing included, and bound
calls where the weights are packed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neuronsim import dtypes, ops
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, convert
from neuronsim.bench.case import Case, check_shape, normal_values
from neuronsim.bench.layer import Layer
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.profiles import current_profile


def matmul_case(shape: tuple[int, ...], dtype: DType, cast: DType | None) -> Case:
    """The product of rows x depth and depth x columns, in a batch if there is a fourth, first number.

    With `cast` the float32 operands are rounded to that type in the product (A1).
    """
    if len(shape) not in (3, 4):
        raise InvalidArgument(f"matmul takes [BATCHx]ROWSxDEPTHxCOLUMNS, not {shape}")
    _check_cast("matmul", dtype, cast)
    *batch, rows, depth, columns = shape
    left, right = (*batch, rows, depth), (*batch, depth, columns)
    check_shape(shape, (left, right, (*batch, rows, columns)))
    values = (normal_values(left, 0), normal_values(right, 1))
    a, b = (asarray(v, dtype) for v in values)
    run: Callable[[], Any] = lambda: a @ b  # noqa: E731
    if cast is not None:
        axes = tuple(range(len(batch)))
        dims = ops.DotDimensions((len(batch) + 1,), (len(batch),), axes, axes)
        run = lambda: Array(ops.apply("dot", (a.bits, b.bits), dot_dimensions=dims, cast=cast))  # noqa: E731
    times = math.prod(batch)
    return Case(
        op="matmul",
        shape=shape,
        dtype=dtype,
        target=dtype,
        operands=values,
        run=run,
        run_touched=run,
        elements=times * rows * columns,
        bytes=times * (rows * depth + depth * columns + rows * columns) * dtype.itemsize,
        flops=2 * times * rows * depth * columns,
        cast=cast,
    )


def convolution_case(
    shape: tuple[int, ...], dtype: DType, cast: DType | None, layer: Layer | None
) -> Case:
    """An input (batch, channels, lengths) convolved with a layer's weights; `cast` as above."""
    if layer is None:
        raise InvalidArgument("convolution needs a layer such as 64k7x7s2p3")
    _check_cast("convolution", dtype, cast)
    weight_shape, output_shape = layer.weight_shape(shape), layer.output_shape(shape)
    check_shape(shape, (shape, weight_shape, output_shape))
    values = (normal_values(shape, 0), normal_values(weight_shape, 1))
    x, w = (asarray(v, dtype) for v in values)
    run = _convolution_run(x, w, layer, cast)
    outputs = math.prod(output_shape)
    return Case(
        op="convolution",
        shape=shape,
        dtype=dtype,
        target=dtype,
        operands=values,
        run=run,
        run_touched=run,
        elements=outputs,
        bytes=(x.size + w.size + outputs) * dtype.itemsize,
        flops=2 * outputs * math.prod(weight_shape[1:]),
        cast=cast,
        layer=layer,
    )


def _convolution_run(x: Array, w: Array, layer: Layer, cast: DType | None) -> Callable[[], Any]:
    if cast is None and not layer.packed:
        return lambda: nn.conv(
            x,
            w,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
        )
    spatial = tuple(range(2, x.ndim))
    attributes: dict[str, Any] = {
        "window": tuple(
            ops.WindowDimension(n, layer.stride, (layer.padding,) * 2, window_dilation=layer.dilation)
            for n in layer.kernel
        ),
        "dimension_numbers": ops.ConvolutionDimensions(0, 1, spatial, 1, 0, spatial, 0, 1, spatial),
        "feature_group_count": layer.groups,
        "batch_group_count": 1,
        "dtype": x.dtype,
    }
    if cast is not None:
        attributes["cast"] = cast
    if not layer.packed:
        return lambda: Array(ops.apply("convolution", (x.bits, w.bits), **attributes))
    weights = w if cast is None else convert(w, cast)
    op, setting = ops.by_name("convolution"), ops.Setting(current_profile())
    result = op.infer_array((x.bits.type, weights.bits.type), attributes)
    evaluation = ops.Evaluation(op, (x.bits, weights.bits), attributes, result, setting)
    fusion = ops.Fusion(packed=ops.pack_columns(evaluation))
    # Bound to its arrays, as a compiled program has it and as the peer's are.
    return ops.bind_product(evaluation, ops.empty(result), fusion).run


def _check_cast(op: str, dtype: DType, cast: DType | None) -> None:
    if cast is not None and (dtype is not dtypes.float32 or not cast.exponent_bits or not cast.device):
        raise InvalidArgument(
            f"{op} takes one type, or float32:TYPE for operands that the product rounds to a float "
            f"type, not {dtype.name}:{cast.name}"
        )
