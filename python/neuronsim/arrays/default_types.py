"""Which types arrays have, and which one they have where none is said.

>>> array_type("bfloat16"), default_dtype()
(neuronsim.bfloat16, neuronsim.float32)
"""

from __future__ import annotations

from neuronsim import dtypes
from neuronsim.dtypes import DType, DTypeLike, as_dtype
from neuronsim.errors import InvalidArgument, UnsupportedType

_default_float = dtypes.float32


def array_type(dtype: DTypeLike) -> DType:
    """The DType of arrays that `dtype` stands for; raises UnsupportedType for open formats too."""
    found = dtype if type(dtype) is DType else as_dtype(dtype)
    if found.code is None and found.is_open:
        raise UnsupportedType(
            f"there are no arrays of {found.name}: a plan rounds float32 values to open formats (C9); "
            f"for arrays take {', '.join(t.name for t in dtypes.DTYPES.values() if t.exponent_bits)}"
        )
    return found


def set_default_dtype(dtype: DTypeLike) -> None:
    """The type that Python floats, and creation functions without `dtype`, give."""
    global _default_float
    found = array_type(dtype)
    if found.kind != "float":
        raise InvalidArgument(f"the default type is a float type, not {found.name}")
    _default_float = found


def default_dtype() -> DType:
    """The type that Python floats give: float32 unless `set_default_dtype` changed it."""
    return _default_float


def default_complex() -> DType:
    """The type that Python complex numbers give: complex128 where float64 is the default float type."""
    return dtypes.complex128 if _default_float is dtypes.float64 else dtypes.complex64
