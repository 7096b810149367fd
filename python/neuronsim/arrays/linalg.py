"""The linear algebra extension of the array API standard, and NumPy's further names of it.

Products are the device's (M2); decompositions are NumPy's, in float64 on the exact values, and each
result is rounded once (H1).

>>> inv(asarray([[2.0, 0.0], [0.0, 4.0]], dtype="bfloat16"))
Array([[0.5 , 0.  ],
       [0.  , 0.25]], dtype=bfloat16)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError as LinAlgError

from neuronsim import dtypes, ops
from neuronsim.arrays import products, reductions
from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.arguments import integers, number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, kept_shape, one_axis, reduced_axes
from neuronsim.arrays.conversion import asarray, common_arrays, convert, float_array, write
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.host import InvalidMatrix, complex_type, host_operand, on_host, real_type, rounded
from neuronsim.arrays.products import matmul as matmul
from neuronsim.arrays.products import matrix_transpose as matrix_transpose
from neuronsim.arrays.products import tensordot as tensordot
from neuronsim.arrays.products import vecdot as vecdot
from neuronsim.arrays.products import widened
from neuronsim.arrays.types import finfo
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument, refusal

__all__ = [
    *("LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals"),
    *("eigvalsh", "inv", "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank"),
    *("matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd"),
    *("svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm"),
]

if not TYPE_CHECKING:
    __getattr__ = refuse("numpy.linalg", __all__)
    __dir__ = __all__.copy


class EighResult(NamedTuple):
    """The real eigenvalues of a symmetric or Hermitian matrix, ascending, and its eigenvectors."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """The complex eigenvalues of a matrix and its eigenvectors, as columns."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The orthonormal and the upper triangular factor."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """The left singular vectors, the singular values, and the right ones' conjugate transpose."""

    U: Array
    S: Array
    Vh: Array


# ---- products and what the main namespace has otherwise ----------------------------------------------


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along `axis`, in float32 steps (R7)."""
    return products.cross(x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of the matrices in the last two axes: a read-only view."""
    return products.diagonal(x, offset, -2, -1)


def outer(x1: Any, x2: Any, /) -> Array:
    """The product of every element of a vector with every one of another, rounded once (E2)."""
    a, b = asarray(x1), asarray(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise InvalidArgument(f"linalg.outer of {a.bits.type} and {b.bits.type}: both have one axis")
    return products.outer(a, b)


def trace(x: Any, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sums of the diagonals of the matrices in the last two axes, by R2."""
    return products.trace(x, offset, -2, -1, dtype)


def matrix_power(x: Any, n: int, /) -> Array:
    """The product of n equal matrices by M2; of n < 0, of the inverse. With z = x, x^2, x^4, ... the
    result is the product from the left of those z that the bits of n name, lowest first; in float32,
    rounded once (R7). The first power is x itself, as NumPy's is.

    >>> matrix_power(asarray([[1, 1], [1, 0]]), 5)
    Array([[8, 5],
           [5, 3]], dtype=int64)
    """
    try:
        power = operator.index(n)
    except TypeError as error:
        raise InvalidArgument(f"matrix_power: n is an integer, not {n!r}") from error
    a = asarray(x) if power >= 0 else host_operand(x)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise InvalidMatrix(f"matrix_power of {a.bits.type}: the last two axes must be of one length")
    if power == 1:
        return a
    square = widened(a)
    if power < 0:
        square = inv(square)
    found = None
    for place, bit in enumerate(reversed(f"{abs(power):b}")):
        square = matmul(square, square) if place else square
        if bit == "1":
            found = square if found is None else matmul(found, square)
    if found is None:
        identity = np.eye(a.shape[-1], dtype=bool)
        found = convert(asarray(np.broadcast_to(identity, a.shape)), a.dtype)
    return convert(found, a.dtype)


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Array:
    """The product of two or more arrays from left to right by M2, in float32, rounded once (R7); the
    first and the last may be vectors.
    """
    if len(arrays) < 2:
        raise InvalidArgument(f"multi_dot needs two arrays or more, not {len(arrays)}")
    values = common_arrays(*arrays)
    if any(v.ndim != 2 for v in values[1:-1]) or any(v.ndim not in (1, 2) for v in values):
        raise InvalidArgument("multi_dot needs matrices; the first and the last may be vectors")
    found = convert(reduce(matmul, map(widened, values)), values[0].dtype)
    return found if out is None else write(out, found)


# ---- norms -------------------------------------------------------------------------------------------


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Array:  # noqa: A002
    """The norm of vectors in float32 steps (R7): sqrt(sum x^2) for 2; the sum, the largest and the
    least |x| for 1, inf and -inf; the number of elements that are not 0 for 0; for other orders
    sum(|x|^ord)^(1 / ord). NumPy's for complex numbers (H1).

    >>> vector_norm(asarray([3.0, 4.0])), vector_norm(asarray([3.0, 0.0]), ord=0)
    (Array(5., dtype=float32), Array(1., dtype=float32))
    """
    order = number("the order of a norm", ord)
    a = float_array(x)
    reduced = reduced_axes(a.shape, axis)
    if a.dtype.kind == "complex":
        options: dict[str, Any] = {"axis": reduced, "keepdims": keepdims, "ord": order}
        return rounded(on_host("vector_norm", np.linalg.vector_norm, a, **options), real_type(a.dtype))
    empty = math.prod(a.shape[d] for d in reduced) == 0
    if order == -math.inf and empty:
        raise InvalidArgument("the norm of the order -inf of no elements has no value")
    if order == math.inf and empty:
        order = 1  # no |x| is above 0
    if order in (1, 2, math.inf, -math.inf):
        return reductions.statistic("vector_norm", a, reduced, keepdims, ord=order)
    if order == 0:
        other = apply_elementwise("not_equal", widened(a), 0)
        return convert(reductions.sum(other, reduced, keepdims=keepdims), a.dtype)
    powers = apply_elementwise("power", apply_elementwise("abs", widened(a)), order)
    total = reductions.sum(powers, reduced, keepdims=keepdims)
    return convert(apply_elementwise("power", total, 1 / order), a.dtype)


# The norms of matrices that are vector norms of the 1-norms of columns (axis -2) or rows (-1).
_NORMS_OF_SUMS = {
    1: (-2, math.inf),
    -1: (-2, -math.inf),
    math.inf: (-1, math.inf),
    -math.inf: (-1, -math.inf),
}
_SINGULAR_NORMS = ("nuc", 2, -2)


def matrix_norm(
    x: Any,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] | None = "fro",  # noqa: A002
) -> Array:
    """The norm of the matrices in the last two axes. Of the order "fro", 1, -1, inf and -inf in float32
    steps (R7): sqrt(sum x^2), or the largest or least sum of |x| of a column (1) or row (inf). Of
    "nuc", 2 and -2 by the singular values, on the host like all norms of complex matrices (H1).

    >>> matrix_norm(asarray([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    Array(6., dtype=float32)
    """
    order = "fro" if ord is None else ord
    if order not in ("fro", *_SINGULAR_NORMS, *_NORMS_OF_SUMS) or isinstance(order, bool):
        raise InvalidArgument(f"matrix_norm: ord is fro, nuc, 1, -1, 2, -2, inf or -inf, not {ord!r}")
    a = host_operand(x)
    if a.ndim < 2:
        raise InvalidArgument(f"matrix_norm of {a.bits.type}: it needs at least 2 axes")
    if a.dtype.kind == "complex" or order in _SINGULAR_NORMS:
        options: dict[str, Any] = {"axis": (-2, -1), "keepdims": keepdims, "ord": order}
        found = on_host("matrix_norm", np.linalg.norm, a, finite=order in _SINGULAR_NORMS, **options)
        return rounded(found, real_type(a.dtype))
    if order == "fro":
        return vector_norm(a, axis=(-2, -1), keepdims=keepdims)
    axis, outer_order = _NORMS_OF_SUMS[float(order)]
    sums = vector_norm(widened(a), axis=axis, keepdims=True, ord=1)
    kept = vector_norm(sums, axis=-3 - axis, keepdims=True, ord=outer_order)
    return convert(kept if keepdims else kept.reshape(a.shape[:-2]), a.dtype)


def norm(
    x: Any,
    ord: float | Literal["fro", "nuc"] | None = None,  # noqa: A002
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Array:
    """NumPy's norm: `matrix_norm` along two axes (or of a matrix, with `ord`), else `vector_norm`;
    without `ord` and `axis` the 2-norm of all elements.
    """
    a = float_array(x)
    if ord is None and axis is None:
        return vector_norm(a, keepdims=keepdims)
    axes = axis if isinstance(axis, tuple) else (axis,) if axis is not None else tuple(range(a.ndim))
    if len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(a, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise InvalidArgument(f"norm of {a.bits.type} of the order {ord!r} along {axes}")
    reduced = reduced_axes(a.shape, axes)
    pair = (one_axis(a.shape, axes[0]), one_axis(a.shape, axes[1]))
    moved = Array(ops.Bits(np.moveaxis(a.bits.data, pair, (-2, -1)), a.dtype))
    found = matrix_norm(moved, ord=ord)
    return found.reshape(kept_shape(a.shape, reduced)) if keepdims else found


# ---- decompositions, on the host (H1) ----------------------------------------------------------------


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """The lower triangular L with L times its conjugate transpose = x, or the upper triangular one.

    Raises InvalidMatrix, a LinAlgError, unless x is positive definite.
    """
    a = host_operand(x)
    return rounded(on_host("cholesky", np.linalg.cholesky, a, upper=upper), a.dtype)


def det(x: Any, /) -> Array:
    """The determinant.

    >>> det(asarray([[1.0, 2.0], [3.0, 4.0]], dtype="float16"))
    Array(-2., dtype=float16)
    """
    a = host_operand(x)
    return rounded(on_host("det", np.linalg.det, a), a.dtype)


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value."""
    a = host_operand(x)
    sign, logarithm = on_host("slogdet", np.linalg.slogdet, a)
    return SlogdetResult(rounded(sign, a.dtype), rounded(logarithm, real_type(a.dtype)))


def inv(x: Any, /) -> Array:
    """The inverse; raises InvalidMatrix, a LinAlgError, for a singular matrix."""
    a = host_operand(x)
    return rounded(on_host("inv", np.linalg.inv, a), a.dtype)


def solve(x1: Any, x2: Any, /) -> Array:
    """The solution of x1 @ result = x2; x2 is a vector if it has one axis, else matrices, broadcast.

    >>> solve(asarray([[2.0, 0.0], [0.0, 4.0]]), asarray([1.0, 1.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    a, b = map(host_operand, common_arrays(x1, x2))
    return rounded(on_host("solve", np.linalg.solve, a, b), a.dtype)


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Array:
    """The x with tensordot(a, x, x.ndim) = b, by `solve`: the first axes of `a` are those of `b`, its
    last ones those of x; `axes` are moved to the end before.

    >>> tensorsolve(asarray([[[2.0, 0.0]], [[0.0, 4.0]]]), asarray([1.0, 1.0])).tolist()
    [[0.5, 0.25]]
    """
    matrix, right = asarray(a), asarray(b)
    if axes is not None:
        moved = [one_axis(matrix.shape, d) for d in integers("axes", axes)]
        if len({*moved}) != len(moved):
            raise InvalidArgument(f"tensorsolve: axes {axes} names an axis twice")
        kept = [d for d in range(matrix.ndim) if d not in moved]
        matrix = Array(ops.Bits(matrix.bits.data.transpose((*kept, *moved)), matrix.dtype))
    shape = matrix.shape[right.ndim :]
    if math.prod(shape) != right.size or matrix.size != right.size**2:
        raise InvalidMatrix(
            f"tensorsolve of {matrix.bits.type} and {right.bits.type}: as many unknowns as equations"
        )
    return solve(matrix.reshape((right.size, right.size)), right.reshape(-1)).reshape(shape)


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse under tensordot: tensordot(tensorinv(a, ind), a, ind) is the identity, where the
    product of the lengths of the first `ind` axes is that of the others; by `inv`.
    """
    x = asarray(a)
    (count,) = integers("ind", (ind,))
    if not 0 < count <= x.ndim:
        raise InvalidArgument(f"tensorinv of {x.bits.type}: ind is from 1 to {x.ndim}, not {ind}")
    first, last = x.shape[:count], x.shape[count:]
    if math.prod(first) != math.prod(last):
        raise InvalidMatrix(f"tensorinv: {first} and {last} are of unequal size")
    return inv(x.reshape((math.prod(first), math.prod(last)))).reshape((*last, *first))


def lstsq(x1: Any, x2: Any, /, rcond: float | None = None) -> tuple[Array, Array, int, Array]:
    """The least squares solution of x1 @ result = x2, the sums of squared residuals, the rank, and the
    singular values; those of at most `rcond` times the largest, without it max(M, N) eps, count as 0.
    """
    a, b = map(host_operand, common_arrays(x1, x2))
    cut = _tolerance(a) if rcond is None else number("rcond", rcond)
    found, residuals, rank, values = on_host("lstsq", np.linalg.lstsq, a, b, finite=True, rcond=cut)
    real = real_type(a.dtype)
    return rounded(found, a.dtype), rounded(residuals, real), int(rank), rounded(values, real)


def eig(x: Any, /) -> EigResult:
    """The eigenvalues and right eigenvectors, complex64 for the device's types."""
    a = host_operand(x)
    values, vectors = on_host("eig", np.linalg.eig, a)
    dtype = complex_type(a.dtype)
    return EigResult(rounded(values, dtype), rounded(vectors, dtype))


def eigvals(x: Any, /) -> Array:
    """The eigenvalues, complex64 for the device's types."""
    a = host_operand(x)
    return rounded(on_host("eigvals", np.linalg.eigvals, a), complex_type(a.dtype))


def eigh(x: Any, /, UPLO: Literal["L", "U"] = "L") -> EighResult:  # noqa: N803 (NumPy's name)
    """The eigenvalues, ascending, and eigenvectors of a symmetric or Hermitian matrix, of which the
    lower or upper triangle is read.
    """
    a = host_operand(x)
    values, vectors = on_host("eigh", np.linalg.eigh, a, finite=True, UPLO=UPLO)
    return EighResult(rounded(values, real_type(a.dtype)), rounded(vectors, a.dtype))


def eigvalsh(x: Any, /, UPLO: Literal["L", "U"] = "L") -> Array:  # noqa: N803 (NumPy's name)
    """The eigenvalues, ascending, of a symmetric or Hermitian matrix."""
    a = host_operand(x)
    return rounded(
        on_host("eigvalsh", np.linalg.eigvalsh, a, finite=True, UPLO=UPLO), real_type(a.dtype)
    )


def qr(x: Any, /, mode: Literal["reduced", "complete", "r"] = "reduced") -> QRResult | Array:
    """The orthonormal Q and the upper triangular R with Q @ R = x; with `mode="r"` only R."""
    if mode not in ("reduced", "complete", "r"):
        raise InvalidArgument(f"qr: mode is reduced, complete or r, not {mode!r}")
    a = host_operand(x)
    found = on_host("qr", np.linalg.qr, a, mode=mode)
    if mode == "r":
        return rounded(found, a.dtype)
    return QRResult(*(rounded(factor, a.dtype) for factor in found))


def svd(
    x: Any, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> SVDResult | Array:
    """U, S and Vh with U @ diag(S) @ Vh = x, S descending; without `compute_uv` only S."""
    a = host_operand(x)
    options = {"full_matrices": full_matrices, "hermitian": hermitian}
    if not compute_uv:
        return svdvals(a)
    u, s, vh = on_host("svd", np.linalg.svd, a, finite=True, **options)
    return SVDResult(rounded(u, a.dtype), rounded(s, real_type(a.dtype)), rounded(vh, a.dtype))


def svdvals(x: Any, /) -> Array:
    """The singular values, descending."""
    a = host_operand(x)
    return rounded(on_host("svdvals", np.linalg.svdvals, a, finite=True), real_type(a.dtype))


def pinv(x: Any, /, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """The pseudo-inverse; singular values of at most `rtol` (NumPy's old name: `rcond`) times the
    largest count as 0; max(M, N) eps of the array's type without it.
    """
    a = host_operand(x)
    cut = _given_tolerance(rcond if rtol is None else rtol, a)
    return rounded(
        on_host("pinv", np.linalg.pinv, a, finite=True, rtol=cut, hermitian=hermitian), a.dtype
    )


def matrix_rank(x: Any, /, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """How many singular values are above `tol`, or `rtol` times the largest; max(M, N) eps of the
    array's type times the largest without both. Of less than two axes 1, or 0 where all are zero.

    >>> matrix_rank(asarray([[1.0, 2.0], [2.0, 4.0]]))
    Array(1, dtype=int64)
    """
    a = host_operand(x)
    if a.ndim < 2:
        return asarray(np.asarray(on_host("matrix_rank", np.any, a), np.int64))
    values = on_host(
        "matrix_rank", np.linalg.svd, a, finite=True, compute_uv=False, hermitian=hermitian
    )
    largest = values.max(axis=-1, initial=0)
    limit = _given_tolerance(rtol, a) * largest if tol is None else _given_tolerance(tol, a)
    try:
        return asarray(np.count_nonzero(values > np.asarray(limit)[..., np.newaxis], axis=-1))
    except ValueError as error:
        raise refusal(f"matrix_rank of {a.bits.type}", error) from error


def _given_tolerance(value: Any, x: Array) -> Any:
    """A tolerance, or one for each matrix, in float64."""
    if value is None:
        return _tolerance(x)
    return convert(asarray(value), dtypes.float64).bits.data


def _tolerance(x: Array) -> float:
    """The array API standard's: max(M, N) eps."""
    return max(x.shape[-2:], default=0) * finfo(x.dtype).eps


def cond(x: Any, p: float | Literal["fro", "nuc"] | None = None) -> Array:
    """The condition number: norm(x, p) norm(inv(x), p), of the order 2 without `p`; inf if singular."""
    a = host_operand(x)
    found = on_host("cond", np.linalg.cond, a, finite=p in (None, *_SINGULAR_NORMS), p=p)
    return rounded(found, real_type(a.dtype))
