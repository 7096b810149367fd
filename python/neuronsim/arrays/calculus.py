"""Interpolation, differences, integrals, convolution of sequences, polynomials: float32 steps (R7).

>>> trapezoid(asarray([1.0, 2.0, 4.0], dtype="bfloat16"))
Array(4.5, dtype=bfloat16)
"""

from __future__ import annotations

from math import pi
from typing import Any, Literal

import numpy as np

from neuronsim import ops
from neuronsim.arrays.arguments import number
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import Axis, one_axis, reduced_axes
from neuronsim.arrays.conversion import asarray, check_cast, common_arrays, is_weak, weak_type
from neuronsim.arrays.cumulative import cumulative_sum, diff
from neuronsim.arrays.elementwise import where
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.host import complex_type, host_operand, on_host, real_type, rounded
from neuronsim.arrays.manipulation import broadcast_to, concat, flip, move_bits, moveaxis
from neuronsim.arrays.order import argsort, searchsorted
from neuronsim.arrays.products import matmul
from neuronsim.arrays.reductions import sum  # noqa: A004
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidArgument, UnsupportedType, nearest, with_warnings_at_the_users_line

__all__ = [
    *("convolve", "correlate", "ediff1d", "gradient", "interp", "polyfit", "polyval", "roots"),
    *("trapezoid", "unwrap"),
]

Mode = Literal["valid", "same", "full"]


@in_float32("x", "xp", "fp", "left", "right", "period")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    """The values at `x` of the line through the points (xp, fp), `xp` ascending (R7): between two of
    them (fp[j+1] - fp[j]) / (xp[j+1] - xp[j]) * (x - xp[j]) + fp[j], at one of them its fp, before the
    first `left`, fp[0] if None, behind the last `right`, fp[-1] if None.

    With a `period` p, x and xp are remainders by |p| first, and the last point, less p, comes before
    the first, which plus p follows the last.

    >>> interp([1.5, 9.0], [1.0, 2.0, 4.0], [10.0, 20.0, 0.0])
    Array([15.,  0.], dtype=float32)
    """
    if any(v is None for v in (x, xp, fp)):
        raise InvalidArgument("interp needs x, xp and fp: None is no array")
    if x.dtype.kind == "complex":
        raise UnsupportedType("interp of complex numbers: take the real and the imaginary part")
    if xp.ndim != 1 or xp.shape != fp.shape or xp.size == 0:
        raise InvalidArgument(f"interp needs points, an fp for each xp, not {xp.shape} and {fp.shape}")
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, apply_elementwise("abs", period))
        left = right = None
    last = xp.size - 1
    place = np.clip(searchsorted(xp, x, side="right").bits.data - 1, 0, max(last - 1, 0))
    x0, y0 = xp[place], fp[place]
    x1, y1 = (points[np.minimum(place + 1, last)] for points in (xp, fp))
    between = (y1 - y0) / (x1 - x0) * (x - x0) + y0
    found = where(x == x0, y0, where(x == xp[last], fp[last], between))
    found = where(x < xp[0], fp[0] if left is None else left, found)
    result: Array = where(x > xp[last], fp[last] if right is None else right, found)
    return result


def _periodic(x: Array, xp: Array, fp: Array, period: Array) -> tuple[Array, Array, Array]:
    if period.ndim or period.tolist() == 0:
        raise InvalidArgument(f"the period is a number other than 0, not {period.tolist()}")
    x, xp = x % period, xp % period
    order = argsort(xp).bits.data
    xp, fp = xp[order], fp[order]
    return x, concat([xp[-1:] - period, xp, xp[:1] + period]), concat([fp[-1:], fp, fp[:1]])


def gradient(f: Any, *spacing: Any, axis: Axis = None, edge_order: int = 1) -> Any:
    """The derivatives of `f` along each axis, in float32 steps (R7), a tuple if there are several:
    (f[i+1] - f[i-1]) / (2 h) at a distance h, one number for all axes or one for each.

    Instead of a number an axis may have its coordinates: with a = x[i] - x[i-1] and b = x[i+1] - x[i],
    unless all are equal, -b / (a (a + b)) f[i-1] + (b - a) / (a b) f[i] + a / (b (a + b)) f[i+1]. At
    both ends the line through 2 points, or the parabola through 3 if `edge_order` is 2.

    >>> gradient([1.0, 4.0, 9.0, 16.0])
    Array([3., 4., 6., 7.], dtype=float32)
    """
    a = asarray(f)
    axes = reduced_axes(a.shape, None) if axis is None else _listed_axes(a, axis)
    if edge_order not in (1, 2):
        raise InvalidArgument(f"edge_order is 1 or 2, not {edge_order!r}")
    if len(spacing) not in (0, 1, len(axes)):
        raise InvalidArgument(
            f"{len(spacing)} spacings for {len(axes)} axes: none, one or one for each"
        )
    steps = [1.0] * len(axes) if not spacing else [*spacing] * (len(axes) // len(spacing))
    found = tuple(_derivative(a, h, d, edge_order) for d, h in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _listed_axes(x: Array, axis: Axis) -> tuple[int, ...]:
    """The axes in the order in which they are named."""
    reduced_axes(x.shape, axis)  # which refuses wrong ones
    return tuple(
        one_axis(x.shape, a) for a in (axis if isinstance(axis, tuple) else (axis,)) if a is not None
    )


@in_float32("f", "spacing")
def _derivative(f: Any, spacing: Any, axis: int, edge_order: int) -> Array:
    if spacing is None:
        raise InvalidArgument("gradient: a spacing is a number or coordinates, not None")
    f = moveaxis(f, axis, 0)
    n = f.shape[0]
    if n <= edge_order:
        raise InvalidArgument(f"gradient along {n} elements: edge_order {edge_order} needs one more")
    if spacing.ndim > 1 or (spacing.ndim and spacing.shape != (n,)):
        raise InvalidArgument(f"a spacing is a number or {n} coordinates, not {spacing.bits.type}")
    h = diff(spacing) if spacing.ndim else spacing
    if h.ndim and np.all((h == h[0]).bits.data):
        h = h[0]
    if h.ndim:
        column = h.reshape((n - 1, *(1 for _ in f.shape[1:])))
        a, b = column[:-1], column[1:]
        middle = -b / (a * (a + b)) * f[:-2] + (b - a) / (a * b) * f[1:-1]
        inner = middle + a / (b * (a + b)) * f[2:]
    else:
        column = broadcast_to(h, (n - 1,))
        inner = (f[2:] - f[:-2]) / (2 * h)
    if edge_order == 1:
        first = (f[1] - f[0]) / column[0]
        last = (f[-1] - f[-2]) / column[-1]
    else:
        first = _end(f[0], f[1], f[2], column[0], column[1])
        last = -_end(f[-1], f[-2], f[-3], column[-1], column[-2])
    return moveaxis(concat([first[np.newaxis], inner, last[np.newaxis]]), 0, axis)


def _end(f0: Array, f1: Array, f2: Array, a: Array, b: Array) -> Array:
    """The slope at the first of three points of a parabola, at distances a and b."""
    ahead = -(2 * a + b) / (a * (a + b)) * f0 + (a + b) / (a * b) * f1
    return ahead - a / (b * (a + b)) * f2


@in_float32("y", "x", "dx")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of `y` along `axis` by the trapezoidal rule: the sum (R2) of
    d (y[i+1] + y[i]) / 2, where d is x[i+1] - x[i], or dx (R7).
    """
    at = one_axis(y.shape, axis)
    d = dx
    if x is not None and x.ndim == 1:
        d = diff(x)
        d = d.reshape(tuple(d.size if a == at else 1 for a in range(y.ndim)))
    elif x is not None:
        d = diff(x, axis=at)
    heights = moveaxis(y, at, 0)
    return sum(d * moveaxis(heights[1:] + heights[:-1], 0, at) / 2, at)


@in_float32("p")
def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * pi) -> Array:
    """`p` with multiples of the period added along `axis`, so that no step is larger than half of it;
    steps below `discont` stay. Of each step d the remainder r = (d + h) mod period - h, h being half of
    the period (h itself, where that is -h and d > 0), replaces d: p[i] takes the sum (R4) of r - d up
    to it, in float32 steps (R7).

    >>> unwrap([0.0, 3.0, 7.0, 8.0], period=4.0)
    Array([ 0., -1., -1.,  0.], dtype=float32)
    """
    at = one_axis(p.shape, axis)
    lines = move_bits(np.moveaxis, p, at, 0)
    half = period / 2
    step = diff(lines, axis=0)
    remainder = (step + half) % period - half
    remainder = where((remainder == -half) & (step > 0), half, remainder)
    least = half if discont is None else max(number("discont", discont), half)
    change = where(apply_elementwise("abs", step) < least, 0.0, remainder - step)
    found = concat([lines[:1], lines[1:] + cumulative_sum(change, axis=0)])
    return move_bits(np.moveaxis, found, 0, at)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """The differences of successive elements in row-major order, each rounded once (E2); what is before
    and behind them, if anything, takes the type of `ary`, which is of its kind or a later one.

    >>> ediff1d(asarray([1, 4, 9]), to_end=[0]).tolist()
    [3, 5, 0]
    """
    a = asarray(ary).reshape(-1)
    inner = apply_elementwise("subtract", a[1:], a[:-1])
    for v in (to_begin, to_end):
        if v is not None:
            source = weak_type(v, a.dtype) if is_weak(v) else asarray(v).dtype
            check_cast(source, a.dtype, "same_kind")
    ends = [None if v is None else asarray(v, a.dtype).reshape(-1) for v in (to_begin, to_end)]
    parts = [v for v in (ends[0], inner, ends[1]) if v is not None]
    return concat(parts) if len(parts) > 1 else inner


# ---- sums of products --------------------------------------------------------------------------------


def correlate(a: Any, v: Any, mode: Mode = "valid") -> Array:
    """The products of `v` with `a` at each offset: sum over k of a[j + k] conj(v[k]) by rule M2, k
    ascending, where `a` ends in zeros, which count. Of the results "full" has all with a product,
    "same" as many as the longer operand, "valid" those without a zero. If `v` is the longer, the
    operands are exchanged and the results reversed (and conjugated).

    >>> correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5])
    Array([3.5], dtype=float32)
    """
    a, b = _sequences(a, v)
    if b.size <= a.size:
        return _slide(a, _conjugate(b), mode)
    return _conjugate(flip(_slide(b, _conjugate(a), mode)))


def convolve(a: Any, v: Any, mode: Mode = "full") -> Array:
    """The convolution of two sequences: sum over k of x[j + k] y[n - 1 - k] by rule M2, k ascending,
    where x is the longer one and ends in zeros, which count, and n the length of y, the other. `mode`
    is that of `correlate`.

    >>> convolve([1.0, 2.0], [1.0, 1.0, 1.0])
    Array([1., 3., 3., 2.], dtype=float32)
    """
    a, b = _sequences(a, v)
    return _slide(a, flip(b), mode) if b.size <= a.size else _slide(b, flip(a), mode)


def _sequences(x1: Any, x2: Any) -> list[Array]:
    values = [v.reshape(-1) if v.ndim == 0 else v for v in common_arrays(x1, x2)]
    if any(v.ndim != 1 or v.size == 0 for v in values):
        shapes = " and ".join(str(v.shape) for v in values)
        raise InvalidArgument(f"sequences have one axis and at least one element, not {shapes}")
    return values


def _slide(x: Array, weights: Array, mode: str) -> Array:
    n = weights.size
    padding = {"valid": (0, 0), "same": (n // 2, n - 1 - n // 2), "full": (n - 1, n - 1)}
    if not isinstance(mode, str) or mode not in padding:
        raise InvalidArgument(f"the mode is valid, same or full, not {mode!r}{nearest(mode, padding)}")
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.bits.data, padding[mode]), n)
    return matmul(Array(ops.Bits(windows, x.dtype)), weights)


def _conjugate(x: Array) -> Array:
    return asarray(x.bits.data.conj()) if x.dtype.kind == "complex" else x


# ---- polynomials -------------------------------------------------------------------------------------


def polyval(p: Any, x: Any) -> Array:
    """The polynomial with the coefficients `p`, the highest power first, at `x`: by Horner's rule,
    y = y x + p[i], in float32 steps (R7); of integers modulo 2^n.

    >>> polyval([1.0, 0.0, -2.0], 3.0)
    Array(7., dtype=float32)
    """
    coefficients, at = common_arrays(asarray(p), x)
    if coefficients.ndim != 1:
        raise InvalidArgument(f"the coefficients have one axis, not {coefficients.bits.type}")
    if coefficients.dtype.kind in ("float", "complex"):
        return in_float32("p", "x")(_horner)(coefficients, at)
    return _horner(coefficients, at)


def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: bool | str = False,
) -> Any:
    """The coefficients, the highest power first, of the polynomial of degree `deg` that is nearest to
    the points (x, y) by least squares, the residuals weighted by `w`; NumPy's, in float64 on the exact
    values, each result rounded once (H1).

    With `full` also the sums of squared residuals, the rank, the singular values and `rcond`; with
    `cov` also the coefficients' covariance.

    >>> polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1)
    Array([2., 1.], dtype=float32)
    """
    points = [host_operand(v) for v in common_arrays(x, y, *([] if w is None else [w]))]
    if points[0].ndim != 1 or points[0].size == 0 or points[1].ndim not in (1, 2):
        shapes = " and ".join(str(v.bits.type) for v in points)
        raise InvalidArgument(f"polyfit of {shapes}: x has one axis and points, y one or two axes")
    if any(len(v) != points[0].size or v.ndim == 0 for v in points[1:]):
        raise InvalidArgument(
            f"polyfit: {' and '.join(str(v.bits.type) for v in points)} differ in length"
        )

    options: Any = {"rcond": rcond, "full": full, "cov": cov}

    def fit(x: Any, y: Any, w: Any = None) -> Any:
        return with_warnings_at_the_users_line(np.polyfit, x, y, deg, w=w, **options)

    found = on_host("polyfit", fit, *points)
    dtype, real = points[0].dtype, real_type(points[0].dtype)
    if full:
        fitted, residuals, rank, values, cut = found
        return (
            *(rounded(fitted, dtype), rounded(residuals, real), int(rank), rounded(values, real)),
            float(cut),
        )
    return tuple(rounded(v, dtype) for v in found) if cov else rounded(found, dtype)


def roots(p: Any) -> Array:
    """The zeros of the polynomial with the coefficients `p`, the highest power first: NumPy's, in
    float64 on the exact values, rounded once (H1); of a complex type where one of them is complex.

    >>> roots([1.0, 0.0, -4.0])
    Array([-2.,  2.], dtype=float32)
    """
    coefficients = host_operand(p)
    if coefficients.ndim > 1:
        raise InvalidArgument(f"the coefficients have one axis, not {coefficients.bits.type}")
    # The eigenvalues of a matrix with a row for each coefficient.
    found = on_host("roots", np.roots, coefficients, operations=float(coefficients.size) ** 3)
    dtype = coefficients.dtype
    return rounded(found, complex_type(dtype) if found.dtype.kind == "c" else dtype)


def _horner(p: Array, x: Array) -> Array:
    if len(p) == 0:
        return Array(ops.Bits(np.zeros(x.shape, x.dtype.storage), x.dtype))
    found = broadcast_to(p[0], x.shape).copy()
    for coefficient in p[1:]:
        found = found * x + coefficient
    return found
