"""Complex numbers, which are the host's (H1), and their Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuronsim import arrays as np
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.host import complex_type
from neuronsim.frontends.primitives import apply, part, transposed, where
from neuronsim.frontends.torch.promotion import floating, promoted
from neuronsim.frontends.torch.table import Node, operator


def is_complex(x: Array) -> bool:
    """Whether elements have imaginary parts."""
    return x.dtype.kind == "complex"


@operator("aten.real.default")
def real_part(node: Node, x: Array) -> Array:
    """The real parts; real numbers are their own."""
    return apply("real", x) if is_complex(x) else x


@operator("aten.imag.default")
def imaginary_part(node: Node, x: Array) -> Array:
    """The imaginary parts."""
    return apply("imag", x)


@operator("aten.complex.default")
def _complex(node: Node, real: Array, imaginary: Array) -> Array:
    return apply("complex", *np.broadcast_arrays(*promoted(real, imaginary)))


@operator("aten.polar.default")
def _polar(node: Node, size: Array, angle: Array) -> Array:
    size, angle = promoted(size, angle)
    parts = np.multiply(size, np.cos(angle)), np.multiply(size, np.sin(angle))
    return apply("complex", *np.broadcast_arrays(*parts))


@operator("aten.view_as_real.default")
def _view_as_real(node: Node, x: Array) -> Array:
    return np.stack([apply("real", x), apply("imag", x)], axis=-1)


@operator("aten.view_as_complex.default")
def _view_as_complex(node: Node, x: Array) -> Array:
    parts = [np.reshape(part(x, x.ndim - 1, n, n + 1), x.shape[:-1]) for n in (0, 1)]
    return apply("complex", *parts)


@operator("aten._conj.default", "aten._conj_physical.default")
def conjugate(node: Node, x: Array) -> Array:
    """The complex conjugates; real numbers are their own."""
    if not is_complex(x):
        return x
    return apply("complex", apply("real", x), np.negative(apply("imag", x)))


@operator("aten.angle.default")
def _angle(node: Node, x: Array) -> Array:
    if is_complex(x):
        return np.atan2(apply("imag", x), apply("real", x))
    wide = floating(x)
    turned = where(np.less(wide, 0), np.asarray(math.pi, dtype=wide.dtype), np.zeros_like(wide))
    return where(np.not_equal(wide, wide), wide, turned)


# ---- Fourier transforms ----------------------------------------------------------------------------

_MOST_AXES = 3  # that HLO's fft has


def _transformed(x: Array, kind: str, dims: Sequence[int], lengths: Sequence[int]) -> Array:
    """HLO's fft along axes, of which a real transform halves or doubles the last one."""
    order = [d for d in range(x.ndim) if d not in dims] + list(dims)
    found = apply("fft", transposed(x, order), fft_type=kind, fft_length=tuple(lengths))
    return transposed(found, sorted(range(x.ndim), key=order.__getitem__))


def _along(x: Array, kind: str, dims: Sequence[int]) -> Array:
    """A complex transform along however many axes."""
    for first in range(0, len(dims), _MOST_AXES):
        some = dims[first : first + _MOST_AXES]
        x = _transformed(x, kind, some, [x.shape[d] for d in some])
    return x


def _scaled(x: Array, count: int, normalization: int, *, inverse: bool) -> Array:
    """What HLO's transform gives, whose inverse has 1/count, as PyTorch asks: of 0 with nothing, of 1
    with its root, of 2 with 1/count.
    """
    power = (0.0, -0.5, -1.0)[normalization] + inverse
    return np.multiply(x, float(count) ** power) if power and count else x


@operator("aten._fft_c2c.default")
def _fft_c2c(node: Node, x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    dims = list(dim)
    found = _along(x, "FFT" if forward else "IFFT", dims)
    return _scaled(found, math.prod(x.shape[d] for d in dims), normalization, inverse=not forward)


@operator("aten._fft_r2c.default")
def _fft_r2c(node: Node, x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    dims = list(dim)
    count = math.prod(x.shape[d] for d in dims)
    if onesided:
        others, last = dims[:-_MOST_AXES], dims[-_MOST_AXES:]
        found = _transformed(x, "RFFT", last, [x.shape[d] for d in last])
        found = _along(found, "FFT", others)
    else:
        found = _along(x.astype(complex_type(x.dtype)), "FFT", dims)
    return _scaled(found, count, normalization, inverse=False)


@operator("aten._fft_c2r.default")
def _fft_c2r(node: Node, x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    dims = list(dim)
    others, last = dims[:-_MOST_AXES], dims[-_MOST_AXES:]
    lengths = [*(x.shape[d] for d in last[:-1]), last_dim_size]
    found = _transformed(_along(x, "IFFT", others), "IRFFT", last, lengths)
    count = math.prod(x.shape[d] for d in dims[:-1]) * last_dim_size
    return _scaled(found, count, normalization, inverse=True)
