"""What NumPy computes on the host for types of the device (H1): exact operands, one rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import convert, float_array
from neuronsim.dtypes import DType
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, refusal
from neuronsim.processor import interruptible


class InvalidMatrix(InvalidArgument, np.linalg.LinAlgError):
    """A matrix lacks what a decomposition needs: it is not square, or singular, or not finite."""


def host_operand(x: Any) -> Array:
    """An array of a float or complex type; integers and bool take the default float type."""
    a = float_array(x)
    if not (a.dtype.device or ops.is_host(a.dtype)):
        raise UnsupportedType(f"nothing computes with {a.dtype.name}: use astype")
    return a


def real_type(dtype: DType) -> DType:
    """The type of the real part.

    >>> real_type(dtypes.complex64), real_type(dtypes.bfloat16)
    (neuronsim.float32, neuronsim.bfloat16)
    """
    parts = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
    return parts.get(dtype, dtype)


def complex_type(dtype: DType) -> DType:
    """The complex type of a float one: complex64 for the device's.

    >>> complex_type(dtypes.float64), complex_type(dtypes.bfloat16)
    (neuronsim.complex128, neuronsim.complex64)
    """
    if dtype.kind == "complex":
        return dtype
    return dtypes.complex128 if dtype is dtypes.float64 else dtypes.complex64


def on_host(
    what: str,
    function: Callable[..., Any],
    *operands: Array,
    operations: float | None = None,
    finite: bool = False,
    **options: Any,
) -> Any:
    """What NumPy's function gives for the operands in float64 or complex128, which hold them exactly.
    It takes about so many `operations`, by default those of decomposing matrices.

    Raises InvalidMatrix for NumPy's LinAlgError and ours of the same class for its other errors; where
    only `finite` operands do, for others (H1): LAPACK's singular values may never end at an Inf.
    """
    exact = [
        convert(x, dtypes.complex128 if x.dtype.kind == "complex" else dtypes.float64) for x in operands
    ]
    shapes = " and ".join(str(x.bits.type) for x in operands)
    if finite and not all(np.isfinite(x.bits.data).all() for x in exact):
        raise InvalidMatrix(f"{what} of {shapes}: an element is Inf or NaN: there is no decomposition")
    try:
        with np.errstate(all="ignore"):
            if operations is None:
                operations = sum(x.size * max(x.shape[-2:], default=1) for x in exact)
            return interruptible(operations, function, *(x.bits.data for x in exact), **options)
    except np.linalg.LinAlgError as error:
        raise InvalidMatrix(f"{what} of {shapes}: {error}") from error
    except REFUSALS as error:
        raise refusal(f"{what} of {shapes}", error) from error


def rounded(found: npt.NDArray[Any], dtype: DType) -> Array:
    """What NumPy computed, rounded once."""
    exact = np.asarray(found)
    wide = dtypes.as_dtype(exact.dtype)
    return convert(Array(ops.Bits(exact, wide)), dtype)
