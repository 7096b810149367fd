"""Products of matrices, vectors and tensors (rules M), with the names of NumPy's main namespace.

>>> tensordot(asarray([[1.0, 2.0]]), asarray([[3.0], [4.0]]), axes=1)
Array([[11.]], dtype=float32)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.complex_numbers import conj
from neuronsim.arrays.conversion import asarray, common_arrays, convert, write
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.doors import remembered
from neuronsim.arrays.evaluation import apply_elementwise, remember_product
from neuronsim.arrays.manipulation import move_bits, swapaxes
from neuronsim.arrays.reductions import sum as sum_of
from neuronsim.arrays.steps import step_type
from neuronsim.dtypes import DType, DTypeLike, result_type
from neuronsim.errors import InvalidArgument, UnsupportedType

__all__ = [
    *("cross", "diagonal", "dot", "inner", "kron", "matmul", "matrix_transpose", "matvec", "outer"),
    *("tensordot", "trace", "vdot", "vecdot", "vecmat"),
]


def contract(
    lhs: ops.Bits, rhs: ops.Bits, dimensions: ops.DotDimensions, dtype: DType | None = None
) -> Array:
    """One product, with the axes of an HLO dot: M2 and M7, rounded once to `dtype` or the common type
    (M4); NumPy's on host types (H1).
    """
    common = result_type(lhs.dtype, rhs.dtype)
    result = dtype or common
    operand = operand_type(common, result)
    if ops.is_host(operand) and isinstance(lhs.data, np.ndarray) and isinstance(rhs.data, np.ndarray):
        x, y = (convert(Array(v), operand).bits.data for v in (lhs, rhs))
        return convert(Array(ops.Bits(ops.host_product(x, y, dimensions), operand)), result)
    kinds = {lhs.dtype.kind, rhs.dtype.kind, result.kind}
    mixed = len(kinds) > 1 and not kinds <= INTEGERS
    if mixed or ops.is_host(operand):  # M1: the lattice type first; M7 converts itself
        lhs, rhs = (convert(Array(x), operand).bits for x in (lhs, rhs))
    attributes = {"dot_dimensions": dimensions} | ({} if dtype is None else {"dtype": dtype})
    return Array(ops.apply("dot", (lhs, rhs), **attributes))


INTEGERS = {"signed", "unsigned"}


def operand_type(common: DType, result: DType) -> DType:
    """The type of operands, of the type `common` together, whose products are rounded to `result`."""
    if common.kind == "float" and result.kind not in ("float", "complex"):
        raise UnsupportedType(f"a product of {common.name} is not rounded to {result.name}: use astype")
    if ops.is_host(common) or ops.is_host(result):
        return result_type(common, result)
    return common if common.kind == "float" else result


def _product_dtype(dtype: DTypeLike | None) -> DType | None:
    return None if dtype is None else array_type(dtype)


@remembered
def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix product by rule M2, batched as NumPy's matmul is, rounded once to `dtype` or the
    common type (M4): `dtype=float32` of narrower floats is the PSUM value.

    >>> float(matmul(asarray([1.0, 2.0]), asarray([3.0, 4.0])))
    11.0
    """
    a = x1 if type(x1) is Array else asarray(x1)
    b = x2 if type(x2) is Array else asarray(x2)
    x, y = a._data, b._data
    if a._dtype is b._dtype:
        remember_product(a._dtype)
    row, column = x.ndim == 1, y.ndim == 1
    if x.ndim == 0 or y.ndim == 0:
        raise InvalidArgument("matmul needs arrays with at least one axis: use * for scalars")
    if row:
        x = x[np.newaxis]
    if column:
        y = y[:, np.newaxis]
    if x.shape[-1] != y.shape[-2]:
        raise InvalidArgument(f"matmul: {a.bits.type} and {b.bits.type} do not contract")
    if y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        batch = _batch("matmul", a, b, x.shape[:-2], y.shape[:-2])
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
    dimensions = _matmul_dimensions(x.ndim, y.ndim)
    found = contract(ops.Bits(x, a._dtype), ops.Bits(y, b._dtype), dimensions, _product_dtype(dtype))
    if row or column:
        shape = found.shape
        kept = shape[: -1 - row] + shape[len(shape) - 1 :] if row else shape
        found = Array(ops.Bits(found._data.reshape(kept[:-1] if column else kept), found._dtype))
    return found if out is None else write(out, found)


@lru_cache
def _matmul_dimensions(left: int, right: int) -> ops.DotDimensions:
    """Which axes a matmul of arrays with so many axes contracts. A matrix on the right serves all rows
    on the left.
    """
    axes = tuple(range(right - 2))
    return ops.DotDimensions((left - 1,), (right - 2,), axes, axes)


def _batch(
    what: str, a: Array, b: Array, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[int, ...]:
    try:
        return ops.broadcast_dims(left, right)
    except ValueError as error:
        raise InvalidArgument(f"{what}: {a.shape} and {b.shape} do not broadcast") from error


def matvec(x1: Any, x2: Any, /, out: Any = None) -> Array:
    """The product of each matrix of x1 with each vector of x2, by M2.

    >>> matvec(asarray([[1.0, 2.0], [3.0, 4.0]]), asarray([1.0, 1.0]))
    Array([3., 7.], dtype=float32)
    """
    matrices, vectors = _with_axes("matvec", x1, 2), _with_axes("matvec", x2, 1)
    found = matmul(matrices, vectors[..., np.newaxis])[..., 0]
    return found if out is None else write(out, found)


def vecmat(x1: Any, x2: Any, /, out: Any = None) -> Array:
    """The product of each vector of x1, conjugated, with each matrix of x2, by M2."""
    vectors, matrices = _with_axes("vecmat", x1, 1), _with_axes("vecmat", x2, 2)
    found = matmul(conj(vectors)[..., np.newaxis, :], matrices)[..., 0, :]
    return found if out is None else write(out, found)


def _with_axes(what: str, x: Any, least: int) -> Array:
    a = asarray(x)
    if a.ndim < least:
        raise InvalidArgument(f"{what} of {a.bits.type}: it needs at least {least} axes")
    return a


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The products of the vectors along `axis`, x1 conjugated, by M2 and rounded once (M4); the other
    axes broadcast.

    >>> vecdot(asarray([[1.0, 2.0], [3.0, 4.0]]), asarray([1.0, 1.0]))
    Array([3., 7.], dtype=float32)
    """
    a, b = (_with_axes("vecdot", x, 1) for x in (x1, x2))
    x, y = (np.moveaxis(v._data, one_axis(v.shape, axis), -1) for v in (conj(a), b))
    if x.shape[-1] != y.shape[-1]:
        raise InvalidArgument(f"vecdot: {a.bits.type} and {b.bits.type} do not contract")
    batch = _batch("vecdot", a, b, x.shape[:-1], y.shape[:-1])
    x, y = (np.broadcast_to(v, (*batch, v.shape[-1])) for v in (x, y))
    axes, last = tuple(range(len(batch))), (len(batch),)
    dimensions = ops.DotDimensions(last, last, axes, axes)
    return contract(ops.Bits(x, a.dtype), ops.Bits(y, b.dtype), dimensions)


def _is_scalar(x: Any) -> bool:
    if isinstance(x, Array | np.ndarray | np.generic):
        return x.ndim == 0
    return not isinstance(x, list | tuple) and np.ndim(x) == 0


def dot(a: Any, b: Any, out: Any = None) -> Array:
    """NumPy's dot: a's last axis with b's last but one (or only) by M2; a scalar multiplies (E2).

    >>> dot(asarray([1.0, 2.0]), asarray([3.0, 4.0])), dot(2, asarray([3, 4]))
    (Array(11., dtype=float32), Array([6, 8], dtype=int64))
    """
    if _is_scalar(a) or _is_scalar(b):
        found = apply_elementwise("multiply", a, b)
    else:
        left, right = asarray(a), asarray(b)
        axis = -2 if right.ndim > 1 else -1
        if max(left.ndim, right.ndim) <= 2 and left.shape[-1] == right.shape[axis]:
            found = matmul(left, right)
        else:
            found = tensordot(left, right, axes=(-1, axis))
    return found if out is None else write(out, found)


def inner(x1: Any, x2: Any, /) -> Array:
    """The products of the last axes by M2; a scalar multiplies (E2)."""
    if _is_scalar(x1) or _is_scalar(x2):
        return apply_elementwise("multiply", x1, x2)
    a, b = asarray(x1), asarray(x2)
    return matmul(a, b) if a.ndim == b.ndim == 1 else tensordot(a, b, axes=(-1, -1))


def vdot(x1: Any, x2: Any, /) -> Array:
    """The product of all elements, row-major, x1 conjugated, by M2.

    >>> vdot(asarray([[1.0, 2.0]]), asarray([[3.0], [4.0]]))
    Array(11., dtype=float32)
    """
    return vecdot(asarray(x1).reshape(-1), asarray(x2).reshape(-1))


def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Array:
    """The sums over several axes: the last `axes` of x1 with the first of x2, or a pair of lists of
    axes, by M2 in the order in which they are listed; rounded once (M4).
    """
    a, b = asarray(x1), asarray(x2)
    left, right = _contracted(a, b, axes)
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise InvalidArgument(
            f"tensordot: the axes {left} of {a.bits.type} and {right} of {b.bits.type} differ in length"
        )
    return contract(a.bits, b.bits, ops.DotDimensions(left, right))


def _contracted(a: Array, b: Array, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        n = operator.index(axes)
    except TypeError:
        try:
            pair = [v if isinstance(v, Sequence | np.ndarray) else [v] for v in axes]
            first, second = pair
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"tensordot: axes is an integer or a pair of integers or lists of them, not {axes!r}"
            ) from error
    else:
        if not 0 <= n <= min(a.ndim, b.ndim):
            raise InvalidArgument(f"tensordot: {a.bits.type} and {b.bits.type} have no {n} axes to sum")
        first, second = range(a.ndim - n, a.ndim), range(n)
    left = tuple(one_axis(a.shape, i) for i in first)
    right = tuple(one_axis(b.shape, i) for i in second)
    for listed in (left, right):
        if len(set(listed)) != len(left) or len(listed) != len(left):
            raise InvalidArgument(f"tensordot: axes={axes!r} must list as many axes of both, each once")
    return left, right


def outer(x1: Any, x2: Any, /, out: Any = None) -> Array:
    """The product of every element of x1 with every one of x2, row-major, each rounded once (E2).

    >>> outer(asarray([1, 2]), asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int64)
    """
    found = apply_elementwise("multiply", asarray(x1).reshape(-1, 1), asarray(x2).reshape(1, -1))
    return found if out is None else write(out, found)


def kron(a: Any, b: Any) -> Array:
    """The Kronecker product: b times each element of a, in blocks; each product rounded once (E2).

    >>> kron(asarray([1, 10]), asarray([1, 2]))
    Array([ 1,  2, 10, 20], dtype=int64)
    """
    if _is_scalar(a) or _is_scalar(b):
        return apply_elementwise("multiply", a, b)
    a, b = asarray(a), asarray(b)
    rank = max(a.ndim, b.ndim)
    left, right = ((1,) * (rank - v.ndim) + v.shape for v in (a, b))
    blocks = apply_elementwise(
        "multiply",
        a.reshape(tuple(n for length in left for n in (length, 1))),
        b.reshape(tuple(n for length in right for n in (1, length))),
    )
    return blocks.reshape(tuple(m * n for m, n in zip(left, right, strict=True)))


def cross(
    x1: Any, x2: Any, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """The cross product of vectors of three elements: a[1] b[2] - a[2] b[1] and so on, in float32
    steps, rounded once (R7). `axis` stands for all three; the other axes broadcast.

    >>> cross(asarray([1, 0, 0]), asarray([0, 1, 0]))
    Array([0, 0, 1], dtype=int64)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = common_arrays(x1, x2)
    x, y = _vectors(a, one_axis(a.shape, axisa)), _vectors(b, one_axis(b.shape, axisb))
    first = apply_elementwise("multiply", x[..., [1, 2, 0]], y[..., [2, 0, 1]])
    second = apply_elementwise("multiply", x[..., [2, 0, 1]], y[..., [1, 2, 0]])
    found = convert(apply_elementwise("subtract", first, second), a.dtype)
    return Array(ops.Bits(np.moveaxis(found._data, -1, one_axis(found.shape, axisc)), found.dtype))


def _vectors(x: Array, axis: int) -> Array:
    """The vectors of three elements as the last axis, in the type of the steps."""
    if x.shape[axis] != 3:
        raise InvalidArgument(
            f"cross of {x.bits.type}: axis {axis} has {x.shape[axis]} elements, not 3"
        )
    return widened(Array(ops.Bits(np.moveaxis(x._data, axis, -1), x.dtype)))


def widened(x: Array) -> Array:
    """The array in the type of a composite's steps (R7); integers stay what they are."""
    return convert(x, step_type(x.dtype))


def matrix_transpose(x: Any, /) -> Array:
    """The array with its last two axes exchanged, by `permute_dims`."""
    return swapaxes(_with_axes("matrix_transpose", x, 2), -1, -2)


def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonals of the matrices that two axes form, as the last axis: a read-only view.

    >>> diagonal(asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int64)
    """
    a = _with_axes("diagonal", x, 2)
    first, second = one_axis(a.shape, axis1), one_axis(a.shape, axis2)
    if first == second:
        raise InvalidArgument(f"diagonal of {a.bits.type}: axis1 and axis2 are the same")
    return move_bits(np.diagonal, a, offset, first, second)


def trace(
    x: Any,
    /,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: Any = None,
) -> Array:
    """The sum of the diagonal by R2, rounded once; integers in 64 bits unless `dtype` says otherwise.

    >>> trace(asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int64)
    """
    return sum_of(diagonal(x, offset, axis1, axis2), -1, dtype, out)
