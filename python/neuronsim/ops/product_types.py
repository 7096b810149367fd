"""What products and convolutions give: the types and shapes of results, and dots' algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType
from neuronsim.ops.chains import instead_of, is_host
from neuronsim.ops.rows import (
    MAX_ELEMENTS,
    ArrayType,
    Attributes,
    ConvolutionDimensions,
    DotDimensions,
    WindowDimension,
    check_axes,
    check_dims,
)
from neuronsim.ops.windows import check_window


def infer_dot(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return _dot_type(*operands, attributes["dot_dimensions"], attributes.get("dtype"))


@lru_cache(4096)
def _dot_type(lhs: ArrayType, rhs: ArrayType, d: DotDimensions, dtype: DType | None) -> ArrayType:
    check_axes(d.lhs_contracting + d.lhs_batch, len(lhs.dims), "lhs dimensions")
    check_axes(d.rhs_contracting + d.rhs_batch, len(rhs.dims), "rhs dimensions")
    for left, right in ((d.lhs_contracting, d.rhs_contracting), (d.lhs_batch, d.rhs_batch)):
        if tuple(lhs.dims[i] for i in left) != tuple(rhs.dims[i] for i in right):
            raise InvalidArgument(f"dot of {lhs} and {rhs}: axes {left} and {right} do not match")
    rows = tuple(lhs.dims[i] for i in d.lhs_batch + d.free_lhs(len(lhs.dims)))
    dims = rows + tuple(rhs.dims[i] for i in d.free_rhs(len(rhs.dims)))
    check_dims(f"dot of {lhs} and {rhs}", dims)
    return ArrayType(_product_type("dot", lhs.dtype, rhs.dtype, dtype), dims)


def _product_type(what: str, lhs: DType, rhs: DType, dtype: DType | None) -> DType:
    """The result's type of a dot or convolution; raises UnsupportedType for what M1 and M7 lack."""
    dtype = dtype or dtypes.result_type(lhs, rhs)
    if what == "dot" and lhs is rhs is dtype and is_host(dtype):  # H1, on the target that has it
        return dtype
    operand_kinds = {dot_kind(lhs), dot_kind(rhs)}
    if operand_kinds != {dot_kind(dtype)} or "host" in operand_kinds:
        lacking = next((t for t in (lhs, rhs, dtype) if not t.device), None)
        raise UnsupportedType(
            f"{what} of {lhs.name} and {rhs.name} to {dtype.name}: operands and result must be "
            "all device floats, or all integers or bool, on every target (M1, M7): "
            f"{'convert them first' if lacking is None else instead_of(lacking)}"
        )
    return dtype


# What each algorithm of a dot (PrecisionConfig.Algorithm) rounds the operands to and sums in; of
# float8 every sum is float32's here, PSUM's, fast or not.
_ALGORITHMS: dict[str, tuple[DType | None, DType | None]] = {
    "": (None, None),
    "ALG_UNSET": (None, None),
    "ALG_DOT_F32_F32_F32": (None, None),
    "ALG_DOT_F64_F64_F64": (None, None),
    "ALG_DOT_ANY_F8_ANY_F8_F32": (None, None),
    "ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM": (None, None),
    "ALG_DOT_TF32_TF32_F32": (dtypes.tfloat32, None),
    "ALG_DOT_BF16_BF16_F32": (dtypes.bfloat16, None),
    "ALG_DOT_BF16_BF16_BF16": (dtypes.bfloat16, dtypes.bfloat16),
    "ALG_DOT_F16_F16_F32": (dtypes.float16, None),
    "ALG_DOT_F16_F16_F16": (dtypes.float16, dtypes.float16),
}


def algorithm_attributes(algorithm: str) -> dict[str, DType]:
    """The row's attributes for a dot's algorithm; raises UnsupportedOperator for one that the tensor
    engine does not have.

    >>> algorithm_attributes("ALG_DOT_BF16_BF16_F32")
    {'cast': neuronsim.bfloat16}
    """
    if algorithm not in _ALGORITHMS:
        raise UnsupportedOperator(
            f"a dot with algorithm={algorithm}: neuronsim executes "
            f"{', '.join(a for a in _ALGORITHMS if a)}. In place of one of several products of "
            "narrower operands (_X3, _X6, _X9) take ALG_DOT_F32_F32_F32"
        )
    cast, accumulate = _ALGORITHMS[algorithm]
    named = {"cast": cast, "accumulate": accumulate}
    return {name: dtype for name, dtype in named.items() if dtype is not None}


def dot_kind(dtype: DType) -> str:
    if dtype.kind in ("signed", "unsigned", "bool"):
        return "integer"
    return "float" if dtype.exponent_bits and dtype.device else "host"


def infer_convolution(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    lhs, rhs = operands
    window = tuple(attributes["window"])
    numbers: ConvolutionDimensions = attributes["dimension_numbers"]
    groups = (attributes["feature_group_count"], attributes["batch_group_count"])
    return _convolution_type(lhs, rhs, window, numbers, *groups, attributes.get("dtype"))


@lru_cache(4096, typed=True)
def _convolution_type(
    lhs: ArrayType,
    rhs: ArrayType,
    window: tuple[WindowDimension, ...],
    d: ConvolutionDimensions,
    features: int,
    batches: int,
    dtype: DType | None,
) -> ArrayType:
    what = f"convolution of {lhs} and {rhs}"
    sides = (("input", d.input, lhs), ("kernel", d.kernel, rhs), ("output", d.output, None))
    for side, axes, t in sides:
        rank = len(window) + 2
        if sorted(axes) != list(range(rank)) or (t is not None and len(t.dims) != rank):
            raise InvalidArgument(
                f"{what}: a window of {len(window)} dimensions needs {rank} in the {side}, each "
                f"listed once: they are listed as {axes}"
            )
    check_window(window)
    if not all(type(n) is int and n >= 1 for n in (features, batches)) or min(features, batches) > 1:
        raise InvalidArgument(
            f"{what}: feature_group_count {features} and batch_group_count {batches} must be positive "
            "integers, and one of them 1"
        )
    batch, feature = lhs.dims[d.input_batch], lhs.dims[d.input_feature]
    reads, writes = rhs.dims[d.kernel_input_feature], rhs.dims[d.kernel_output_feature]
    if reads * features != feature:
        raise InvalidArgument(
            f"{what}: the input has {feature} features, the kernel reads {reads} in each of {features} "
            "feature groups"
        )
    for length, name, groups in (
        (writes, "output features", features * batches),
        (batch, "batch", batches),
    ):
        if length % groups:
            raise InvalidArgument(f"{what}: {groups} groups do not divide the {name}, {length}")
    sizes = tuple(rhs.dims[a] for a in d.kernel_spatial)
    if sizes != tuple(w.size for w in window):
        raise InvalidArgument(f"{what}: the kernel is {sizes}, its window {tuple(window)}")
    dims = [0] * (len(window) + 2)
    dims[d.output_batch], dims[d.output_feature] = batch // batches, writes
    for axis, w, source in zip(d.output_spatial, window, d.input_spatial, strict=True):
        dims[axis] = w.output_size(lhs.dims[source])
        if lhs.dims[source] * w.base_dilation > MAX_ELEMENTS:
            raise InvalidArgument(f"{what}: the dilated input has more than {MAX_ELEMENTS} places")
    if math.prod(n for n in dims if n) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"{what}: a result of {tuple(dims)} has more than {MAX_ELEMENTS} elements"
        )
    return ArrayType(_product_type("convolution", lhs.dtype, rhs.dtype, dtype), tuple(dims))
