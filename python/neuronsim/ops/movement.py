"""Operations that move bits, and iota."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType
from neuronsim.ops.elementwise import converted
from neuronsim.ops.product_types import dot_kind
from neuronsim.ops.products import transpose_on_tensor_engine
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Evaluation,
    check_axes,
    sole_axis,
)
from neuronsim.profiles import Profile


def infer_broadcast(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, mapping = attributes["dims"], attributes["dimensions"]
    check_axes(mapping, len(dims), "dimensions")
    if tuple(dims[d] for d in mapping) != operands[0].dims:
        raise InvalidArgument(f"{operands[0]} does not lie along axes {mapping} of {tuple(dims)}")
    return ArrayType(operands[0].dtype, tuple(dims))


def infer_reshape(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    if math.prod(dims) != operands[0].size:
        raise InvalidArgument(f"{operands[0]} has not as many elements as shape {dims}")
    return ArrayType(operands[0].dtype, dims)


def infer_transpose(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    axes = attributes["dimensions"]
    check_axes(axes, len(operands[0].dims), "dimensions")
    if len(axes) != len(operands[0].dims):
        raise InvalidArgument(f"{tuple(axes)} does not permute the axes of {operands[0]}")
    if "relayout" in attributes and not _on_tensor_engine(operands[0].dtype, axes):
        raise InvalidArgument(
            f"a relayout in {attributes['relayout'].name} of {operands[0]} by {tuple(axes)}: the "
            "tensor engine transposes floats whose minor-most dimension moves (A3)"
        )
    return ArrayType(operands[0].dtype, tuple(operands[0].dims[a] for a in axes))


def infer_reverse(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    check_axes(attributes["dimensions"], len(operands[0].dims), "dimensions")
    return operands[0]


def infer_slice(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    ranges: Sequence[tuple[int, int, int]] = attributes["slice"]
    dims = operands[0].dims
    if len(ranges) != len(dims):
        raise InvalidArgument(f"a slice of {operands[0]} needs {len(dims)} ranges")
    for (start, limit, stride), size in zip(ranges, dims, strict=True):
        if not (0 <= start <= limit <= size and stride >= 1):
            raise InvalidArgument(f"slice [{start}:{limit}:{stride}] leaves an axis of {size}")
    return ArrayType(operands[0].dtype, tuple(len(range(*r)) for r in ranges))


def infer_concatenate(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    first = operands[0]
    axis = sole_axis(attributes, len(first.dims))
    for t in operands[1:]:
        if (
            t.dtype is not first.dtype
            or len(t.dims) != len(first.dims)
            or any(a != b for d, (a, b) in enumerate(zip(t.dims, first.dims, strict=True)) if d != axis)
        ):
            raise InvalidArgument(f"{t} cannot follow {first} along axis {axis}")
    joined = sum(t.dims[axis] for t in operands)
    return ArrayType(first.dtype, (*first.dims[:axis], joined, *first.dims[axis + 1 :]))


def infer_iota(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    sole_axis(attributes, len(dims))
    return ArrayType(attributes["dtype"], dims)


def infer_bitcast_convert(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    (x,), target = operands, attributes["dtype"]
    if x.dtype is target:
        return x
    for t in (x.dtype, target):
        if t in (dtypes.boolean, dtypes.tfloat32) or t.kind == "complex":
            raise UnsupportedType(
                f"bitcast-convert of {x.dtype.name} to {target.name}: not every bit pattern is a "
                f"{t.name}, nor is it made of others: convert to an integer first"
            )
    source, size = x.dtype.itemsize, target.itemsize
    if source > size:
        return ArrayType(target, (*x.dims, source // size))
    if source < size:
        if x.dims[-1:] != (size // source,):
            raise InvalidArgument(f"the last dimension of {x} does not make one {target.name}")
        return ArrayType(target, x.dims[:-1])
    return ArrayType(target, x.dims)


def infer_bitcast(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    (x,), result = operands, ArrayType(attributes["dtype"], tuple(attributes["dims"]))
    same_width = x.dtype is result.dtype or (x.dtype.itemsize == result.dtype.itemsize)
    if not same_width or x.size != result.size:
        raise InvalidArgument(f"{result} is not the memory of {x}")
    return result


def infer_get_dimension_size(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    sole_axis(attributes, len(operands[0].dims))
    return ArrayType(dtypes.int32, ())


def infer_set_dimension_size(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x, size = operands
    sole_axis(attributes, len(x.dims))
    if size != ArrayType(dtypes.int32, ()):
        raise InvalidArgument(f"the size of a dimension is an int32 scalar, not {size}")
    return x


def evaluate_copy(e: Evaluation) -> BitsArray:
    return e.operands[0].data


def evaluate_broadcast(e: Evaluation) -> BitsArray:
    x = e.operands[0].data
    order = sorted(range(x.ndim), key=lambda i: int(e.attributes["dimensions"][i]))
    aligned = x.transpose(order)
    shape = [1] * len(e.result.dims)
    for i in order:
        shape[e.attributes["dimensions"][i]] = x.shape[i]
    return np.broadcast_to(aligned.reshape(shape), e.result.dims)


def evaluate_reshape(e: Evaluation) -> BitsArray:
    return e.operands[0].data.reshape(e.result.dims)


def evaluate_transpose(e: Evaluation) -> BitsArray:
    x, axes = e.operands[0], e.attributes["dimensions"]
    relayout = relayout_type(x.dtype, e.attributes, e.setting.profile)
    if relayout is None:
        return x.data.transpose(axes)
    saturate = e.attributes.get("saturate_infinity", False)
    return transpose_on_tensor_engine(x, axes, relayout, e.setting, saturate_infinity=saturate)


def relayout_type(dtype: DType, attributes: Attributes, profile: Profile) -> DType | None:
    """The type in which a transpose runs on the tensor engine (A3); None where it moves bits."""
    on_engine = _on_tensor_engine(dtype, attributes["dimensions"])
    absent = dtypes.float32 if on_engine and profile.transpose == "tensor_engine" else None
    relayout: DType | None = attributes.get("relayout", absent)
    return relayout


def _on_tensor_engine(dtype: DType, axes: Sequence[int]) -> bool:
    """Whether a transpose may be the tensor engine's (A3): of floats, moving the minor-most axis."""
    return dot_kind(dtype) == "float" and len(axes) > 0 and axes[-1] != len(axes) - 1


def evaluate_reverse(e: Evaluation) -> BitsArray:
    # NumPy flips an array without dimensions to a scalar that is no array.
    return np.asarray(np.flip(e.operands[0].data, tuple(e.attributes["dimensions"])))


def evaluate_slice(e: Evaluation) -> BitsArray:
    # With the ellipsis the slice of a scalar is an array as well.
    ranges: list[Any] = [slice(*r) for r in e.attributes["slice"]]
    return e.operands[0].data[(*ranges, ...)]


def evaluate_concatenate(e: Evaluation) -> BitsArray:
    return np.concatenate([x.data for x in e.operands], axis=e.attributes["dimensions"][0])


def evaluate_iota(e: Evaluation) -> BitsArray:
    (axis,) = e.attributes["dimensions"]
    if 0 in e.result.dims:
        return np.empty(e.result.dims, e.result.dtype.storage)
    count = Bits(np.arange(e.result.dims[axis], dtype=np.int64), dtypes.int64)
    line = converted(count, e.result.dtype, e.setting)
    return evaluate_broadcast(e._replace(operands=[line], attributes={"dimensions": (axis,)}))


def evaluate_bitcast_convert(e: Evaluation) -> BitsArray:
    x = np.array(e.operands[0].data, order="C", copy=None)
    # With a last axis whose elements are together as wide as one of the wider type.
    storage: np.dtype[Any] = e.result.dtype.storage
    wide = x if x.dtype.itemsize < storage.itemsize else x[..., np.newaxis]
    return np.ascontiguousarray(wide).view(storage).reshape(e.result.dims)


def evaluate_get_dimension_size(e: Evaluation) -> BitsArray:
    (axis,) = e.attributes["dimensions"]
    return np.array(e.operands[0].data.shape[axis], np.int32)


def evaluate_set_dimension_size(e: Evaluation) -> BitsArray:
    x, size = e.operands
    (axis,) = e.attributes["dimensions"]
    if int(size.data) != e.result.dims[axis]:
        raise UnsupportedOperator(
            f"set-dimension-size to {int(size.data)} of {e.result.dims[axis]} elements along dimension "
            f"{axis}: neuronsim executes static shapes: export the model with the size that it has"
        )
    return x.data
