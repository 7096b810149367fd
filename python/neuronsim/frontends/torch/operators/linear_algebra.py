"""Linear algebra: HLO's `cholesky` and `triangular-solve` and calls of LAPACK, which are the host's
(H1), with products and elementwise steps between them.

A matrix that has no decomposition gives NaN, or what LAPACK leaves of it: a program raises no error.
"""

from __future__ import annotations

import math
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.host import real_type
from neuronsim.arrays.types import finfo
from neuronsim.frontends import lax
from neuronsim.frontends.primitives import apply, lapack, padded, part, where
from neuronsim.frontends.torch.operators.complex_numbers import conjugate, is_complex
from neuronsim.frontends.torch.table import Node, operator

_Pair = tuple[Array, Array]


def _transpose(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _adjoint(node: Node, x: Array) -> Array:
    return _transpose(conjugate(node, x))


def _rows(x: Array, count: int) -> Array:
    return part(x, x.ndim - 2, 0, count)


def _columns(x: Array, count: int) -> Array:
    return part(x, x.ndim - 1, 0, count)


def _identity(size: int, like: Array) -> Array:
    """The unit matrix for each matrix of a batch."""
    return np.broadcast_to(np.eye(size, dtype=like.dtype), (*like.shape[:-2], size, size))


def _diagonal(x: Array) -> Array:
    return np.diagonal(x, axis1=-2, axis2=-1)


def _of_one_batch(a: Array, b: Array) -> _Pair:
    """Matrices of two batches as those of their common one."""
    batch = ops.broadcast_dims(a.shape[:-2], b.shape[:-2])
    found = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b)]
    return found[0], found[1]


def _none(node: Node, result: int) -> Array:
    """What PyTorch gives in the place of a result that was not asked for."""
    dtype = node.dtypes[result]
    assert dtype is not None
    return np.zeros((0,), dtype=dtype)


# ---- triangular systems ----------------------------------------------------------------------------


def solved_by_triangle(
    a: Array, b: Array, *, upper: bool, left: bool = True, unit: bool = False, op: str = "NO_TRANSPOSE"
) -> Array:
    """The x of op(a) x = b, or of x op(a) = b; only a triangle of a counts."""
    a, b = _of_one_batch(a, b)
    options = ops.TriangularOptions(left, not upper, unit, op)
    return apply("triangular_solve", a, b, triangular_solve_options=options)


@operator("aten.linalg_solve_triangular.default")
def _solve_triangular(
    node: Node, a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    return solved_by_triangle(a, b, upper=upper, left=left, unit=unitriangular)


@operator("aten.triangular_solve.default")
def _old_triangular_solve(
    node: Node,
    b: Array,
    a: Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> _Pair:
    op = "TRANSPOSE" if transpose else "NO_TRANSPOSE"
    a, b = _of_one_batch(a, b)
    return solved_by_triangle(a, b, upper=upper, unit=unitriangular, op=op), a


# ---- Cholesky --------------------------------------------------------------------------------------


@operator("aten.linalg_cholesky_ex.default", "aten.cholesky.default")
def _cholesky(node: Node, x: Array, upper: bool = False, check_errors: bool = False) -> Any:
    """The factor, and the first leading minor that is not positive."""
    triangle = np.triu if upper else np.tril
    if not node.wants(1):
        factor: Array = triangle(apply("cholesky", x, lower=not upper))
        return factor if len(node.dtypes) == 1 else (factor, None)
    factor, info = lapack("potrf", x, uplo="U" if upper else "L")
    return triangle(factor), info


@operator("aten.cholesky_solve.default")
def _cholesky_solve(node: Node, b: Array, factor: Array, upper: bool = False) -> Array:
    first, second = ("ADJOINT", "NO_TRANSPOSE") if upper else ("NO_TRANSPOSE", "ADJOINT")
    half = solved_by_triangle(factor, b, upper=upper, op=first)
    return solved_by_triangle(factor, half, upper=upper, op=second)


@operator("aten.cholesky_inverse.default")
def _cholesky_inverse(node: Node, factor: Array, upper: bool = False) -> Array:
    found: Array = _cholesky_solve(node, _identity(factor.shape[-1], factor), factor, upper)
    return found


# ---- LU --------------------------------------------------------------------------------------------


def _order_of(pivots: Array, rows: int) -> Array:
    """Which row of a matrix each one of its factors is: the exchanges, one after the other."""
    places = np.arange(rows, dtype=dtypes.int32)
    batch = pivots.shape[:-1]
    steps = np.arange(pivots.shape[-1], dtype=dtypes.int32)

    def exchanged(n: Any, order: Array) -> Array:
        at = np.sum(where(np.equal(steps, n), pivots - 1, 0), axis=-1, keepdims=True)
        at = at.astype(dtypes.int32)
        here, there = np.equal(places, n), np.equal(places, at)
        mine = np.sum(where(here, order, 0), axis=-1, keepdims=True).astype(dtypes.int32)
        other = np.sum(where(there, order, 0), axis=-1, keepdims=True).astype(dtypes.int32)
        return where(here, other, where(there, mine, order))

    start = np.broadcast_to(places, (*batch, rows))
    found: Array = lax.fori_loop(0, pivots.shape[-1], exchanged, start)
    return found


def _permutation(pivots: Array, rows: int, like: Array) -> Array:
    """The matrix P of A = P L U."""
    order = _order_of(pivots, rows)
    places = np.arange(rows, dtype=dtypes.int32)
    return np.equal(places[:, None], order[..., None, :]).astype(like.dtype)


def _factors(lu: Array) -> _Pair:
    """L, with its ones, and U of what LAPACK keeps in one matrix."""
    rows, columns = lu.shape[-2:]
    least = min(rows, columns)
    ones = np.eye(rows, least, dtype=lu.dtype)
    return np.tril(_columns(lu, least), -1) + ones, np.triu(_rows(lu, least))


def _solved(
    node: Node, lu: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    """The x of A x = b with the factors of A, or of x A = b, or with the adjoint of A."""
    if not left:  # x A = b is the transpose of A.T x.T = b.T, and A.T the conjugate of the adjoint
        turned = conjugate(node, _transpose(b)) if not adjoint else _adjoint(node, b)
        found = _solved(node, lu, pivots, turned, adjoint=not adjoint)
        return _adjoint(node, found)
    rows = lu.shape[-1]
    order = _order_of(pivots, rows)
    if not adjoint:
        batch = ops.broadcast_dims(order.shape[:-1], b.shape[:-2])
        places = np.broadcast_to(order[..., None], (*batch, rows, b.shape[-1]))
        b = np.take_along_axis(np.broadcast_to(b, places.shape), places, axis=-2)
        half = solved_by_triangle(lu, b, upper=False, unit=True)
        return solved_by_triangle(lu, half, upper=True)
    half = solved_by_triangle(lu, b, upper=True, op="ADJOINT")
    half = solved_by_triangle(lu, half, upper=False, unit=True, op="ADJOINT")
    places = np.argsort(order, axis=-1)[..., None]
    places = np.broadcast_to(places, (*half.shape[:-2], rows, half.shape[-1]))
    return np.take_along_axis(half, places, axis=-2)


@operator("aten.linalg_lu_factor_ex.default")
def _lu_factor(
    node: Node, a: Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Array, ...]:
    if not pivot:
        raise node.refuse("without pivots is not read: PyTorch has it on GPUs alone")
    return lapack("getrf", a)


@operator("aten.linalg_lu.default")
def _lu(node: Node, a: Array, *, pivot: bool = True) -> tuple[Array, ...]:
    lu, pivots, _ = _lu_factor(node, a, pivot=pivot)
    return (_permutation(pivots, a.shape[-2], a), *_factors(lu))


@operator("aten.lu_unpack.default")
def _lu_unpack(
    node: Node, lu: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> list[Array]:
    p = _permutation(pivots, lu.shape[-2], lu) if unpack_pivots else _none(node, 0)
    return [p, *(_factors(lu) if unpack_data else (_none(node, 1), _none(node, 2)))]


@operator("aten.linalg_lu_solve.default")
def _lu_solve(
    node: Node, lu: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    return _solved(node, lu, pivots, b, left=left, adjoint=adjoint)


@operator("aten._linalg_solve_ex.default")
def _solve(
    node: Node, a: Array, b: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, ...]:
    lu, pivots, info = lapack("getrf", a)
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    if not is_vector:
        return _solved(node, lu, pivots, b, left=left), lu, pivots, info
    found = _solved(node, lu, pivots, b[..., None])
    return np.reshape(found, found.shape[:-1]), lu, pivots, info


@operator("aten.linalg_inv_ex.default")
def _inv(node: Node, a: Array, *, check_errors: bool = False) -> _Pair:
    lu, pivots, info = lapack("getrf", a)
    return _solved(node, lu, pivots, _identity(a.shape[-1], a)), info


def _factored_for_gradients(node: Node, a: Array) -> tuple[Array, ...]:
    """The factors, pivots and info of the matrix or, as a gradient that takes them from PyTorch's
    determinants expects, of the transpose of a real one that lies row after row.
    """
    row_after_row = [math.prod(a.shape[d + 1 :]) for d in range(a.ndim)]
    strides = row_after_row if node.memory is None else node.memory[0]
    lies_so = all(n < 2 or x == y for n, x, y in zip(a.shape, strides, row_after_row, strict=True))
    return lapack("getrf", _transpose(a) if lies_so and not is_complex(a) else a)


def _sign_of_exchanges(pivots: Array, like: Array) -> Array:
    rows = np.arange(1, pivots.shape[-1] + 1, dtype=dtypes.int32)
    odd = np.sum(np.not_equal(pivots, rows).astype(dtypes.int32), axis=-1).astype(dtypes.int32) % 2
    return (1 - 2 * odd).astype(like.dtype)


@operator("aten._linalg_det.default")
def _det(node: Node, a: Array) -> tuple[Array, ...]:
    lu, pivots, _ = _factored_for_gradients(node, a)
    found = np.prod(_diagonal(lu), axis=-1, dtype=a.dtype) * _sign_of_exchanges(pivots, a)
    return found, lu, pivots


@operator("aten._linalg_slogdet.default")
def _slogdet(node: Node, a: Array) -> tuple[Array, ...]:
    lu, pivots, _ = _factored_for_gradients(node, a)
    own = _diagonal(lu)
    sizes = np.abs(own)
    signs = own / where(np.equal(sizes, 0), 1, sizes).astype(own.dtype)
    sign = np.prod(signs, axis=-1, dtype=a.dtype) * _sign_of_exchanges(pivots, a)
    return sign, np.sum(np.log(sizes), axis=-1, dtype=sizes.dtype), lu, pivots


# ---- QR --------------------------------------------------------------------------------------------


def _product_of_reflections(packed: Array, factors: Array) -> Array:
    return lapack("ungqr" if is_complex(packed) else "orgqr", packed, factors)[0]


def _whole_product(packed: Array, factors: Array) -> Array:
    """The same as a square matrix."""
    rows, columns = packed.shape[-2:]
    if columns > rows:
        return _product_of_reflections(_columns(packed, rows), factors)
    wider = [(0, 0, 0)] * (packed.ndim - 1) + [(0, rows - columns, 0)]
    return _product_of_reflections(padded(packed, wider), factors)


@operator("aten.linalg_qr.default")
def _qr(node: Node, a: Array, mode: str = "reduced") -> _Pair:
    packed, factors = lapack("geqrf", a)
    rows, columns = a.shape[-2:]
    least = min(rows, columns)
    if mode == "r":
        return _none(node, 0), np.triu(_rows(packed, least))
    if mode == "complete":
        return _whole_product(packed, factors), np.triu(packed)
    q = _product_of_reflections(_columns(packed, least), factors)
    return q, np.triu(_rows(packed, least))


@operator("aten.geqrf.default")
def _geqrf(node: Node, a: Array) -> tuple[Array, ...]:
    return lapack("geqrf", a)


@operator("aten.linalg_householder_product.default")
def _householder_product(node: Node, packed: Array, factors: Array) -> Array:
    return _product_of_reflections(packed, factors)


@operator("aten.ormqr.default")
def _ormqr(
    node: Node, packed: Array, factors: Array, x: Array, left: bool = True, transpose: bool = False
) -> Array:
    q = _whole_product(packed, factors)
    q = _adjoint(node, q) if transpose else q
    return np.matmul(q, x) if left else np.matmul(x, q)


# ---- eigenvalues and singular values ---------------------------------------------------------------


@operator("aten._linalg_eigh.default")
def _eigh(node: Node, a: Array, uplo: str = "L", compute_v: bool = True) -> _Pair:
    routine = "heevd" if is_complex(a) else "syevd"
    vectors, values, _ = lapack(routine, a, uplo=uplo.upper())
    return values, vectors if compute_v else _none(node, 1)


@operator("aten._linalg_svd.default")
def _svd(
    node: Node,
    a: Array,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Array, ...]:
    mode = ("A" if full_matrices else "S") if compute_uv else "N"
    _, values, left, right, _ = lapack("gesdd", a, mode=mode)
    return (left, values, right) if compute_uv else (_none(node, 0), values, _none(node, 2))


@operator("aten.linalg_eig.default", "aten._linalg_eigvals.default")
def _eig(node: Node, a: Array) -> Any:
    *parts, _, right, _ = lapack("geev", a, compute_left="N", compute_right="V")
    values = parts[0] if is_complex(a) else apply("complex", *parts)
    return values if "eigvals" in node.target else (values, right)


@operator("aten.linalg_pinv.atol_rtol_tensor", "aten.linalg_pinv.atol_rtol_float")
def _pinv(
    node: Node, a: Array, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Array:
    """By the singular values that are larger than atol, and than rtol times the largest."""
    real = real_type(a.dtype)
    if rtol is None:
        is_given = atol is not None and not isinstance(atol, Array) and atol > 0
        rtol = 0.0 if is_given else max(a.shape[-2:]) * float(finfo(real).eps)
        if isinstance(atol, Array):
            rtol = where(np.greater(atol, 0), 0, np.asarray(rtol, dtype=real))
    if hermitian:
        values, left = _eigh(node, a)
        sizes, right = np.abs(values), left
    else:
        left, values, adjoint = _svd(node, a)
        sizes, right = values, _adjoint(node, adjoint)
    most = np.max(sizes, axis=-1, keepdims=True)
    bounds = [
        x[..., None] if isinstance(x, Array) else x for x in (0.0 if atol is None else atol, rtol)
    ]
    bound = np.maximum(bounds[0] + np.zeros_like(most), bounds[1] * most)
    counts = np.greater(sizes, bound.astype(real))
    inverse = where(counts, 1 / where(counts, values, 1), 0).astype(a.dtype)
    return np.matmul(right * inverse[..., None, :], _adjoint(node, left))


@operator("aten.linalg_lstsq.default")
def _lstsq(
    node: Node, a: Array, b: Array, rcond: float | None = None, *, driver: str | None = None
) -> list[Array]:
    """The shortest of the solutions that are off least, by the singular values that count."""
    is_vector = b.ndim == 1 or b.ndim == a.ndim - 1
    columns = b[..., None] if is_vector else b
    least = float(finfo(real_type(a.dtype)).eps) * max(a.shape[-2:]) if rcond is None else rcond
    left, values, adjoint = _svd(node, a)
    counts = np.greater(values, least * np.max(values, axis=-1, keepdims=True))
    inverse = where(counts, 1 / where(counts, values, 1), 0).astype(a.dtype)[..., None]
    x = np.matmul(_adjoint(node, adjoint), inverse * np.matmul(_adjoint(node, left), columns))
    found = [_none(node, n) for n in range(4)]
    found[0] = np.reshape(x, x.shape[:-1]) if is_vector else x
    if a.shape[-2] > a.shape[-1] and driver not in (None, "gelsy"):
        off = np.abs(np.matmul(a, x) - columns)
        found[1] = np.sum(off * off, axis=-2)
    if driver != "gels":
        found[2] = np.sum(counts, axis=-1, dtype=dtypes.int64)
    if driver in ("gelsd", "gelss"):
        found[3] = values
    return found


# ---- the exponential of matrices -------------------------------------------------------------------

_MOST_SQUARINGS = 64


@operator("aten.linalg_matrix_exp.default")
def _matrix_exp(node: Node, a: Array) -> Array:
    """Taylor's polynomial of A / 2^s, whose norm is 1 at most, squared s times."""
    real = real_type(a.dtype)
    norm = np.max(np.sum(np.abs(a), axis=-2, dtype=real), axis=-1)
    squarings = np.minimum(np.maximum(np.ceil(np.log2(norm)), 0), _MOST_SQUARINGS)
    scaled = a * np.exp2(-squarings).astype(a.dtype)[..., None, None]
    ones = _identity(a.shape[-1], a)
    found = ones
    for n in reversed(range(1, 19 if real is dtypes.float64 else 13)):
        found = ones + np.matmul(scaled, found) * (1 / n)

    def squared(state: tuple[Array, Array]) -> tuple[Array, Array]:
        n, x = state
        more = np.less(n, squarings)[..., None, None]
        return n + 1, where(more, np.matmul(x, x), x)

    def is_left(state: tuple[Array, Array]) -> Array:
        return np.any(np.less(state[0], squarings))

    if not math.prod(a.shape):
        return a
    return lax.while_loop(is_left, squared, (np.zeros((), dtype=real), found))[1]  # type: ignore[no-any-return]
