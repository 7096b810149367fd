"""Operators of shapes: constants, reshapes, transposes, joins and splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx import files
from neuronsim.frontends.onnx.carried import CarriedArray, carried
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    axis_of,
    integers,
    joined,
    part,
    transposed,
    where,
)


def _int64(values: Any) -> Array:
    return asarray(numpy.asarray(values, numpy.int64))


@operator("Constant")
def _constant(node: Node) -> Array:
    given = {k: v for k, v in node.attributes.items() if k.startswith(("value", "sparse"))}
    if len(given) != 1:
        raise InvalidModel(f"Constant has {len(given)} values")
    ((kind, value),) = given.items()
    match kind:
        case "value":
            assert isinstance(value, Array)
            return value
        case "value_float" | "value_floats":
            return asarray(numpy.asarray(value, numpy.float32))
        case "value_int" | "value_ints":
            return _int64(value)
    raise node.refuse(f"takes no {kind}")


@operator("ConstantOfShape")
def _constant_of_shape(node: Node, shape: Array) -> Array:
    value = node.get("value")
    one = asarray(numpy.float32(0)) if value is None else value
    found = np.broadcast_to(one.reshape(()), _dims(shape))
    return carried(found, one.element) if isinstance(one, CarriedArray) else found


def _dims(shape: Any) -> tuple[int, ...]:
    dims = tuple(integers(shape))
    if any(n < 0 for n in dims):
        raise InvalidModel(f"a shape of {dims}")
    ops.check_dims("a shape", dims)
    return dims


operator("Shape")(lambda node, x: _int64(x.shape[slice(node.get("start", 0), node.get("end"))]))
operator("Size")(lambda node, x: _int64(x.size))


@operator("Reshape")
def _reshape(node: Node, x: Array, shape: Array) -> Array:
    dims = integers(shape)
    if not node.get("allowzero", 0):
        dims = [x.shape[d] if n == 0 and d < x.ndim else n for d, n in enumerate(dims)]
    if dims.count(-1) > 1 or (-1 in dims and 0 in dims):
        raise InvalidModel(f"{x.bits.type} cannot take the shape {dims}")
    return np.reshape(x, dims)


@operator("Flatten")
def _flatten(node: Node, x: Array) -> Array:
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return np.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


operator("Transpose")(lambda node, x: transposed(x, node.get("perm", range(x.ndim)[::-1])))


@operator("Concat")
def _concat(node: Node, *arrays: Array) -> Array:
    ranks = {x.ndim for x in arrays}
    if len(ranks) != 1 or len({x.dtype for x in arrays}) != 1:
        raise InvalidModel(f"joins {', '.join(str(x.bits.type) for x in arrays)}")
    return joined(arrays, axis_of(node.require("axis"), arrays[0].ndim))


@operator("Split")
def _split(node: Node, x: Array, lengths: Array | None = None) -> list[Array]:
    axis = axis_of(node.get("axis", 0), x.ndim)
    n = x.shape[axis]
    if lengths is not None or "split" in node.attributes:
        sizes = integers(lengths if lengths is not None else node.require("split"))
    else:
        count = node.get("num_outputs", len(node.outputs))
        if not 1 <= count <= len(node.outputs):
            raise InvalidModel(f"splits into {count} and has {len(node.outputs)} outputs")
        longest = -(-n // count)
        sizes = [max(min(longest, n - k * longest), 0) for k in range(count)]
    if sum(sizes) != n or any(s < 0 for s in sizes):
        raise InvalidModel(f"splits axis {axis} of {x.bits.type} into {sizes}")
    ends = numpy.cumsum(sizes).tolist()
    return [part(x, axis, end - size, end) for end, size in zip(ends, sizes, strict=True)]


@operator("Squeeze")
def _squeeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    given = axes if axes is not None else node.get("axes")
    if given is None:
        dropped = {d for d, n in enumerate(x.shape) if n == 1}
    else:
        dropped = {axis_of(d, x.ndim) for d in integers(given)}
    if any(x.shape[d] != 1 for d in dropped):
        raise InvalidModel(f"the axes {sorted(dropped)} of {x.bits.type} are not all of length 1")
    return np.reshape(x, [n for d, n in enumerate(x.shape) if d not in dropped])


@operator("Unsqueeze")
def _unsqueeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    given = integers(axes if axes is not None else node.require("axes"))
    rank = x.ndim + len(given)
    added = {axis_of(d, rank) for d in given}
    if len(added) != len(given):
        raise InvalidModel(f"adds the axes {given}")
    rest = iter(x.shape)
    return np.reshape(x, [1 if d in added else next(rest) for d in range(rank)])


operator("Expand")(lambda node, x, shape: np.broadcast_to(x, ops.broadcast_dims(x.shape, _dims(shape))))


@operator("Tile", since=6)
def _tile(node: Node, x: Array, repeats: Array) -> Array:
    times = integers(repeats)
    if len(times) != x.ndim or any(n < 0 for n in times):
        raise InvalidModel(f"repeats {x.bits.type} {times} times")
    spread = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    kept = [n for m in x.shape for n in (1, m)]
    whole = [n * m for n, m in zip(times, x.shape, strict=True)]
    return np.reshape(np.broadcast_to(np.reshape(x, kept), spread), whole)


@operator("EyeLike")
def _eye_like(node: Node, x: Array) -> Array:
    if x.ndim != 2:
        raise InvalidModel(f"the diagonal of {x.bits.type}")
    rows, columns = x.shape
    code = node.get("dtype")
    dtype = x.dtype if code is None else files.dtype_of(code, "the result")
    return asarray(numpy.eye(rows, columns, k=node.get("k", 0), dtype=numpy.int8)).astype(dtype)


@operator("Trilu")
def _trilu(node: Node, x: Array, k: Array | None = None) -> Array:
    ones = numpy.ones(x.shape[-2:], bool)
    diagonal = int(k.reshape(())) if k is not None else 0
    # A diagonal outside of the matrix is as good as the nearest one.
    diagonal = max(min(diagonal, ones.shape[1] + 1), -ones.shape[0] - 1)
    mask = numpy.triu(ones, diagonal) if node.get("upper", 1) else numpy.tril(ones, diagonal)
    return where(asarray(mask), x, asarray(0, x.dtype))


@operator("Range")
def _range(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (x.reshape(()).tolist() for x in (start, limit, delta))
    if not step:
        raise InvalidModel("steps of 0 lead nowhere")
    count = max(math.ceil((last - first) / step), 0)
    ops.check_dims("a range", [count])
    if start.dtype.kind in ("signed", "unsigned"):
        return asarray(first + numpy.arange(count, dtype=numpy.int64) * step).astype(start.dtype)
    return asarray(first + numpy.arange(count) * step).astype(start.dtype)


def _blocks(x: Array, size: int) -> Sequence[int]:
    if x.ndim != 4 or size < 1:
        raise InvalidModel(f"blocks of {size} of {x.bits.type}")
    return x.shape


@operator("DepthToSpace")
def _depth_to_space(node: Node, x: Array) -> Array:
    size = node.require("blocksize")
    n, c, h, w = _blocks(x, size)
    inner = c // (size * size)
    if node.get("mode", "DCR") == "DCR":
        spread = np.permute_dims(np.reshape(x, (n, size, size, inner, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        spread = np.permute_dims(np.reshape(x, (n, inner, size, size, h, w)), (0, 1, 4, 2, 5, 3))
    return np.reshape(spread, (n, inner, h * size, w * size))


@operator("SpaceToDepth")
def _space_to_depth(node: Node, x: Array) -> Array:
    size = node.require("blocksize")
    n, c, h, w = _blocks(x, size)
    spread = np.reshape(x, (n, c, h // size, size, w // size, size))
    rows_first = node.get("mode", "DCR") == "DCR"
    spread = np.permute_dims(spread, (0, 3, 5, 1, 2, 4) if rows_first else (0, 1, 3, 5, 2, 4))
    return np.reshape(spread, (n, c * size * size, h // size, w // size))


@operator("OneHot")
def _one_hot(node: Node, indices: Array, depth: Array, values: Array) -> Array:
    (count,) = integers(depth)
    rank = indices.ndim + 1
    axis = axis_of(node.get("axis", -1), rank)
    places = np.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    line = numpy.arange(count).reshape([-1 if d == axis else 1 for d in range(rank)])
    if places.dtype.exponent_bits or places.dtype.kind == "unsigned":
        places = places.astype(dtypes.int64)
    places = np.where(places < 0, places + count, places)
    off, on = (part(values, 0, n, n + 1).reshape(()) for n in (0, 1))
    return where(places == asarray(line).astype(places.dtype), on, off)
