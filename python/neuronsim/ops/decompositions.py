"""Fourier transforms and linear algebra that no engine of the device has: the host computes them by
NumPy in float64 or complex128, from exact operands, and rounds each result once (H1).

HLO's `fft`, `cholesky` and `triangular-solve`, and the calls of LAPACK that JAX puts in the place of
the last two and of decompositions where it lowers for a CPU. A matrix that has no decomposition, or is
not finite, gives NaN, and a call of LAPACK says so in its `info`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType
from neuronsim.ops.chains import COMPLEX, REAL
from neuronsim.ops.elementwise import converted
from neuronsim.ops.rows import ArrayType, Attributes, Bits, BitsArray, Evaluation, Result, Setting

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


@dataclass(frozen=True)
class TriangularOptions:
    """Of a triangular-solve: on which side of x the matrix stands, which triangle of it counts, whether
    its diagonal is 1 whatever stands there, and what is done to it first (`TRANSPOSES`).
    """

    left_side: bool = False
    lower: bool = False
    unit_diagonal: bool = False
    transpose_a: str = "NO_TRANSPOSE"


# ---- types -------------------------------------------------------------------------------------------


def _check_numbers(what: str, *types: ArrayType) -> None:
    for t in types:
        if t.dtype.kind not in ("float", "complex") or t.dtype is not types[0].dtype:
            raise UnsupportedType(
                f"{what} of {' and '.join(str(t) for t in types)}: one float or complex type is needed"
            )


def _matrix(what: str, t: ArrayType, *, square: bool = False) -> tuple[tuple[int, ...], int, int]:
    """The batch, rows and columns of matrices."""
    if len(t.dims) < 2:
        raise InvalidArgument(f"{what} of {t}: the last two axes are a matrix")
    *batch, rows, columns = t.dims
    if square and rows != columns:
        raise InvalidArgument(f"{what} of {t}: its matrices are not square")
    return tuple(batch), rows, columns


def _wide(x: Bits, setting: Setting) -> BitsArray:
    """The values in float64 or complex128, which hold them exactly."""
    if x.dtype.kind == "complex":
        return x.data.astype(np.complex128)
    return converted(x, dtypes.float64, setting).data


def _narrow(found: Any, dtype: DType, setting: Setting) -> BitsArray:
    """The values in a type, rounded once."""
    found = np.ascontiguousarray(found)
    if dtype.kind == "complex":
        with np.errstate(all="ignore"):
            return np.asarray(found.astype(dtype.storage))
    return converted(Bits(found.astype(np.float64), dtypes.float64), dtype, setting).data


# ---- Fourier transforms ------------------------------------------------------------------------------

FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def infer_fft(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    (x,) = operands
    kind, lengths = attributes["fft_type"], tuple(attributes["fft_length"])
    if not 1 <= len(lengths) <= min(3, len(x.dims)):
        raise InvalidArgument(
            f"an fft_length of {len(lengths)} axes for {x}: it has one to three, the operand's last"
        )
    is_real = kind == "RFFT"
    known = COMPLEX if is_real else REAL
    if x.dtype not in known:
        needed = "float32 or float64" if is_real else "complex64 or complex128"
        raise UnsupportedType(f"{kind} of {x.dtype.name}: {needed} is needed (H1): convert it first")
    batch, own = x.dims[: -len(lengths)], x.dims[-len(lengths) :]
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    wanted = half if kind == "IRFFT" else lengths
    if own != wanted:
        raise InvalidArgument(f"{kind} with fft_length {lengths} takes the last axes {wanted}, not {x}")
    changed = {"RFFT": half, "IRFFT": lengths}.get(kind, own)
    dtype = known[x.dtype] if kind in ("RFFT", "IRFFT") else x.dtype
    return ArrayType(dtype, (*batch, *changed))


def evaluate_fft(e: Evaluation) -> BitsArray:
    if 0 in e.result.dims or 0 in e.operands[0].data.shape:
        return np.zeros(e.result.dims, e.result.dtype.storage)
    axes = tuple(range(-len(e.attributes["fft_length"]), 0))
    transform = _TRANSFORMS[e.attributes["fft_type"]]
    with np.errstate(all="ignore"):
        found = transform(_wide(e.operands[0], e.setting), e.attributes["fft_length"], axes)
    return _narrow(found, e.result.dtype, e.setting)


# ---- Cholesky factors and triangular systems ---------------------------------------------------------


def infer_cholesky(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    (a,) = operands
    _check_numbers("cholesky", a)
    _matrix("cholesky", a, square=True)
    return a


def evaluate_cholesky(e: Evaluation) -> BitsArray:
    found, _ = _cholesky(_wide(e.operands[0], e.setting), lower=e.attributes["lower"])
    return _narrow(found, e.result.dtype, e.setting)


def _cholesky(a: BitsArray, *, lower: bool) -> tuple[BitsArray, BitsArray]:
    """The factors of the matrices that one triangle gives, and for each the first leading minor that is
    not positive, or 0; such a matrix gives NaN.
    """
    lows = a if lower else np.conj(np.swapaxes(a, -1, -2))
    factors, info = np.empty_like(lows), np.zeros(a.shape[:-2], np.int32)
    for place in np.ndindex(info.shape):
        own = np.tril(lows[place])
        with np.errstate(all="ignore"):
            factors[place], info[place] = _cholesky_of_one(own)
    return (factors if lower else np.conj(np.swapaxes(factors, -1, -2))), info


def _cholesky_of_one(a: BitsArray) -> tuple[BitsArray, int]:
    """Of the lower triangle of a matrix, column by column."""
    found = np.zeros_like(a)
    for n in range(len(a)):
        row = found[n, :n]
        pivot = (a[n, n] - row @ np.conj(row)).real
        if not 0 < pivot < math.inf:
            return np.full_like(a, math.nan), n + 1
        found[n, n] = math.sqrt(pivot)
        found[n + 1 :, n] = (a[n + 1 :, n] - found[n + 1 :, :n] @ np.conj(row)) / found[n, n]
    return found, 0


def infer_triangular_solve(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    a, b = operands
    _check_numbers("triangular-solve", a, b)
    batch, rows, _ = _matrix("triangular-solve", a, square=True)
    others, b_rows, b_columns = _matrix("triangular-solve", b)
    left = attributes["triangular_solve_options"].left_side
    if others != batch or (b_rows if left else b_columns) != rows:
        raise InvalidArgument(f"{a} on the {'left' if left else 'right'} does not go with {b}")
    return b


def evaluate_triangular_solve(e: Evaluation) -> BitsArray:
    a, b = (_wide(x, e.setting) for x in e.operands)
    found = _triangular_solve(a, b, e.attributes["triangular_solve_options"])
    return _narrow(found, e.result.dtype, e.setting)


def _triangular_solve(a: BitsArray, b: BitsArray, options: TriangularOptions) -> BitsArray:
    """The x of op(a) x = b, or of x op(a) = b, by substitution."""
    turned = np.swapaxes(a, -1, -2) if options.transpose_a != "NO_TRANSPOSE" else a
    turned = np.conj(turned) if options.transpose_a == "ADJOINT" else turned
    lower = options.lower == (options.transpose_a == "NO_TRANSPOSE")
    if not options.left_side:  # x op(a) = b is transpose(op(a)) transpose(x) = transpose(b)
        turned, b, lower = np.swapaxes(turned, -1, -2), np.swapaxes(b, -1, -2), not lower
    size = turned.shape[-1]
    found = np.zeros(b.shape, np.result_type(turned, b))
    with np.errstate(all="ignore"):
        for n in range(size) if lower else reversed(range(size)):
            done = slice(0, n) if lower else slice(n + 1, size)
            rest = b[..., n, :] - (turned[..., n, None, done] @ found[..., done, :])[..., 0, :]
            found[..., n, :] = rest if options.unit_diagonal else rest / turned[..., n, n, None]
    return found if options.left_side else np.swapaxes(found, -1, -2)


# ---- calls of LAPACK ---------------------------------------------------------------------------------

# A routine gives, from matrices in float64 or complex128 and its configuration, its arrays in order.
_Arrays: TypeAlias = tuple[BitsArray, ...]
_Routine: TypeAlias = Callable[[Sequence[BitsArray], Attributes], _Arrays]
_Types: TypeAlias = Callable[[Sequence[ArrayType], Attributes], tuple[ArrayType, ...]]


def infer_lapack(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    """The types by the routine; `results`, the types that a file states, say what only they can."""
    routine = attributes["routine"]
    _, types, arity = _ROUTINES[routine]
    if len(operands) != arity:
        raise InvalidArgument(f"{routine} takes {arity} operands, not {len(operands)}")
    _check_numbers(routine, *operands)
    found = types(operands, attributes)
    return found if len(found) > 1 else found[0]


def evaluate_lapack(e: Evaluation) -> tuple[BitsArray, ...]:
    run, _, _ = _ROUTINES[e.attributes["routine"]]
    found = run([_wide(x, e.setting) for x in e.operands], e.attributes)
    return tuple(
        x.astype(t.dtype.storage)
        if t.dtype.kind == "signed"
        else _narrow(np.broadcast_to(x, t.dims), t.dtype, e.setting)
        for x, t in zip(found, e.types, strict=True)
    )


def _info(batch: tuple[int, ...]) -> ArrayType:
    return ArrayType(dtypes.int32, batch)


def _each(a: BitsArray, run: Callable[[BitsArray], _Arrays], like: _Arrays) -> _Arrays:
    """A decomposition of each matrix, with `info` at the end: NaN and 1 where there is none."""
    batch = a.shape[:-2]
    found = tuple(np.empty((*batch, *x.shape), x.dtype) for x in like)
    info = np.zeros(batch, np.int32)
    for place in np.ndindex(batch):
        try:
            if not np.isfinite(a[place]).all():  # at which LAPACK may never end
                raise np.linalg.LinAlgError
            parts = run(a[place])
        except np.linalg.LinAlgError:
            parts, info[place] = tuple(np.full_like(x, math.nan) for x in like), 1
        for whole, part in zip(found, parts, strict=True):
            whole[place] = part
    return (*found, info)


def _potrf_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, _, _ = _matrix("potrf", a, square=True)
    return a, _info(batch)


def _potrf(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    (a,) = operands
    lower = attributes["uplo"] == "L"
    factor, info = _cholesky(a, lower=lower)
    rest = np.triu(a, 1) if lower else np.tril(a, -1)  # the other triangle stays
    return factor + rest, info


def _trsm_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    options = {"triangular_solve_options": _trsm_options(attributes)}
    return (infer_triangular_solve(operands, options),)


def _trsm_options(attributes: Attributes) -> TriangularOptions:
    transposes = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    return TriangularOptions(
        attributes["side"] == "L",
        attributes["uplo"] == "L",
        attributes["diag"] == "U",
        transposes[attributes["trans_x"]],
    )


def _trsm(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    a, b = operands
    return (_triangular_solve(a, b, _trsm_options(attributes)),)


def _getrf_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, rows, columns = _matrix("getrf", a)
    return a, ArrayType(dtypes.int32, (*batch, min(rows, columns))), _info(batch)


def _getrf(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """L and U in one matrix, the rows that were exchanged (from 1), and the first pivot that is 0."""
    a = operands[0].copy()
    batch, least = a.shape[:-2], min(a.shape[-2:])
    pivots, info = np.zeros((*batch, least), np.int32), np.zeros(batch, np.int32)
    for place in np.ndindex(batch):
        own = a[place]
        for n in range(least):
            sizes = np.abs(own[n:, n].real) + np.abs(own[n:, n].imag)
            chosen = n + int(np.argmax(sizes))
            pivots[(*place, n)] = chosen + 1
            own[[n, chosen]] = own[[chosen, n]]
            if own[n, n] == 0:
                info[place] = info[place] or n + 1
                continue
            with np.errstate(all="ignore"):
                own[n + 1 :, n] /= own[n, n]
                own[n + 1 :, n + 1 :] -= np.outer(own[n + 1 :, n], own[n, n + 1 :])
    return a, pivots, info


def _geqrf_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, rows, columns = _matrix("geqrf", a)
    return a, ArrayType(a.dtype, (*batch, min(rows, columns)))


def _geqrf(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """R above the diagonal, Householder's vectors below it, and their factors."""
    (a,) = operands
    packed, factors = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2), factors


def _orgqr_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    a, factors = operands
    batch, rows, columns = _matrix("orgqr", a)
    if factors.dims[:-1] != batch or not 0 <= factors.dims[-1] <= columns <= rows:
        raise InvalidArgument(f"orgqr of {a} with the factors {factors}")
    return (a,)


def _orgqr(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """The product of Householder's reflections, of which the last is applied first."""
    packed, factors = operands
    found = np.zeros_like(packed)
    for n in range(packed.shape[-1]):
        found[..., n, n] = 1
    for n in reversed(range(factors.shape[-1])):
        v = packed[..., :, n : n + 1].copy()
        v[..., :n, :], v[..., n, :] = 0, 1
        found -= factors[..., n, None, None] * v @ (np.conj(np.swapaxes(v, -1, -2)) @ found)
    return (found,)


def _syevd_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, rows, _ = _matrix("syevd", a, square=True)
    return a, ArrayType(REAL.get(a.dtype, a.dtype), (*batch, rows)), _info(batch)


def _syevd(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    (a,) = operands
    size = a.shape[-1]

    def run(own: BitsArray) -> _Arrays:
        values, vectors = np.linalg.eigh(own, attributes["uplo"])
        return vectors, values

    return _each(a, run, (np.zeros((size, size), a.dtype), np.zeros(size)))


def _gesdd_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, rows, columns = _matrix("gesdd", a)
    least = min(rows, columns)
    wide = (rows, columns) if attributes["mode"] != "S" else (least, least)
    return (
        a,
        ArrayType(REAL.get(a.dtype, a.dtype), (*batch, least)),
        ArrayType(a.dtype, (*batch, rows, wide[0])),
        ArrayType(a.dtype, (*batch, wide[1], columns)),
        _info(batch),
    )


def _gesdd(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """A, which LAPACK overwrites, the singular values, U and the transpose of V."""
    (a,) = operands
    rows, columns = a.shape[-2:]
    least, mode = min(rows, columns), attributes["mode"]
    wide = (least, least) if mode == "S" else (rows, columns)
    like = np.zeros(least), np.zeros((rows, wide[0]), a.dtype), np.zeros((wide[1], columns), a.dtype)

    def run(own: BitsArray) -> _Arrays:
        if mode == "N":
            return np.linalg.svd(own, compute_uv=False), like[1], like[2]
        left, values, right = np.linalg.svd(own, full_matrices=mode == "A")
        return values, left, right

    return (a, *_each(a, run, like))


def _geev_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    (a,) = operands
    batch, rows, _ = _matrix("geev", a, square=True)
    values = ArrayType(a.dtype, (*batch, rows))
    vectors = ArrayType(COMPLEX.get(a.dtype, a.dtype), a.dims)
    parts = (values,) if a.dtype.kind == "complex" else (values, values)
    return *parts, vectors, vectors, _info(batch)


def _geev(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """The eigenvalues, of real matrices as two parts, the left and the right eigenvectors."""
    (a,) = operands
    size = a.shape[-1]
    is_complex = np.iscomplexobj(a)

    def run(own: BitsArray) -> _Arrays:
        values, right = np.linalg.eig(own.astype(np.complex128) if is_complex else own)
        left = np.zeros((size, size), np.complex128)
        if attributes["compute_left"] == "V":
            left = np.conj(np.linalg.inv(right)).T
            left = left / np.linalg.norm(left, axis=0)
        parts = (values,) if is_complex else (values.real, values.imag)
        return *parts, left, right

    vectors = np.zeros((size, size), np.complex128)
    values = (np.zeros(size, np.complex128),) if is_complex else (np.zeros(size), np.zeros(size))
    return _each(a, run, (*values, vectors, vectors))


def _gtsv_types(operands: Sequence[ArrayType], attributes: Attributes) -> tuple[ArrayType, ...]:
    *diagonals, b = operands
    batch, rows, _ = _matrix("gtsv", b)
    if any(d.dims != (*batch, rows) for d in diagonals):
        raise InvalidArgument(f"diagonals {', '.join(map(str, diagonals))} do not go with {b}")
    return *operands, _info(batch)


def _gtsv(operands: Sequence[BitsArray], attributes: Attributes) -> _Arrays:
    """The diagonals, which LAPACK overwrites, and x of a tridiagonal system."""
    low, middle, high, b = operands
    size = middle.shape[-1]
    n = np.arange(size)
    a = np.zeros((*middle.shape, size), middle.dtype)
    a[..., n, n] = middle
    a[..., n[1:], n[:-1]], a[..., n[:-1], n[1:]] = low[..., 1:], high[..., :-1]
    found = np.empty_like(b)
    info = np.zeros(a.shape[:-2], np.int32)
    for place in np.ndindex(info.shape):
        try:
            found[place] = np.linalg.solve(a[place], b[place])
        except np.linalg.LinAlgError:
            found[place], info[place] = math.nan, 1
    return low, middle, high, found, info


_ROUTINES: dict[str, tuple[_Routine, _Types, int]] = {
    "potrf": (_potrf, _potrf_types, 1),
    "trsm": (_trsm, _trsm_types, 2),
    "getrf": (_getrf, _getrf_types, 1),
    "geqrf": (_geqrf, _geqrf_types, 1),
    "orgqr": (_orgqr, _orgqr_types, 2),
    "ungqr": (_orgqr, _orgqr_types, 2),
    "syevd": (_syevd, _syevd_types, 1),
    "heevd": (_syevd, _syevd_types, 1),
    "gesdd": (_gesdd, _gesdd_types, 1),
    "geev": (_geev, _geev_types, 1),
    "gtsv": (_gtsv, _gtsv_types, 4),
}
# The settings of a call, `{uplo = 76 : ui8}`: a letter each, the first where it is absent.
_LETTERS = {
    "uplo": "LU",
    "side": "LR",
    "diag": "NU",
    "trans_x": "NTC",
    "mode": "VNSA",
    "compute_left": "NV",
    "compute_right": "VN",
}
LAPACK_DEFAULTS = {name: letters[0] for name, letters in _LETTERS.items()}
_LETTER_OF = {
    dtypes.float32: "s",
    dtypes.float64: "d",
    dtypes.complex64: "c",
    dtypes.complex128: "z",
}
_OF_ONE_KIND = {"orgqr": "sd", "syevd": "sd", "ungqr": "cz", "heevd": "cz"}
LAPACK = {
    f"lapack_{letter}{routine}_ffi": routine
    for routine in _ROUTINES
    for letter in _OF_ONE_KIND.get(routine, "sdcz")
} | {"Qr": "geqrf", "ProductOfElementaryHouseholderReflectors": "orgqr"}  # XLA's, of every type


def lapack_attributes(target: str, config: str) -> dict[str, Any]:
    """The row's attributes of a call: its routine, and a letter for each setting.

    >>> lapack_attributes("lapack_spotrf_ffi", "{uplo = 85 : ui8}")["uplo"]
    'U'
    """
    found: dict[str, Any] = dict(LAPACK_DEFAULTS)
    for part in filter(None, config.strip("{} ").split(",")):
        name, _, value = (text.strip() for text in part.partition("="))
        number = value.partition(":")[0].strip()
        letter = chr(int(number)) if number.isdecimal() and int(number) < 128 else ""
        if name not in _LETTERS or letter not in list(_LETTERS[name]):
            raise UnsupportedOperator(f"{target} with {part.strip()!r}, which neuronsim does not know")
        found[name] = letter
    return {**found, "routine": LAPACK[target]}


def lapack_call(dtype: DType, attributes: Attributes) -> tuple[str, bytes]:
    """The target and the configuration of a call with these attributes, as `lapack_attributes` reads
    them.

    >>> lapack_call(dtypes.float32, {"routine": "potrf", "uplo": "U"})
    ('lapack_spotrf_ffi', b'{uplo = 85 : ui8}')
    """
    letter = _LETTER_OF.get(dtype)
    if letter is None:
        raise UnsupportedType(f"linear algebra of {dtype.name}: LAPACK has floats of 32 and 64 bits")
    set_otherwise = {k: v for k, v in attributes.items() if k in _LETTERS and v != LAPACK_DEFAULTS[k]}
    listed = ", ".join(f"{name} = {ord(v)} : ui8" for name, v in set_otherwise.items())
    config = f"{{{listed}}}".encode() if listed else b""
    return f"lapack_{letter}{attributes['routine']}_ffi", config
