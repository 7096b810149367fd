"""What the array API standard's `__array_namespace_info__` tells of this namespace.

>>> info = __array_namespace_info__()
>>> info.default_dtypes()["real floating"], list(info.dtypes(kind="complex floating"))
(neuronsim.float32, ['complex64', 'complex128'])
"""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes
from neuronsim.arrays.default_types import default_dtype
from neuronsim.arrays.device import TRN1, Device, check_device
from neuronsim.arrays.types import isdtype
from neuronsim.dtypes import DTYPES, DType

__all__ = ["__array_namespace_info__"]

# The standard's types; DTYPES has the device's formats as well.
_STANDARD = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
_MOST_AXES = 32  # those that NumPy broadcasts; its arrays have up to 64


class ArrayNamespaceInfo:
    """The standard's inspection of a namespace, and the types that the device has."""

    def capabilities(self) -> dict[str, Any]:
        """Whether shapes may depend on data: they may; and how many axes an array may have."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MOST_AXES,
        }

    def default_device(self) -> Device:
        """The only device."""
        return TRN1

    def devices(self) -> tuple[Device, ...]:
        """The only device."""
        return (TRN1,)

    def default_dtypes(self, *, device: Device | str | None = None) -> dict[str, DType]:
        """The types that functions give without `dtype=`; `set_default_dtype` changes the floats'."""
        check_device(device)
        real = default_dtype()
        return {
            "real floating": real,
            "complex floating": dtypes.complex128 if real is dtypes.float64 else dtypes.complex64,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(
        self, *, device: Device | str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's types by name, all or those of a kind as `isdtype` knows it; float64 and the
        complex ones are the host's (H1). `device_dtypes` has the formats beyond the standard.
        """
        check_device(device)
        return {name: DTYPES[name] for name in _STANDARD if kind is None or isdtype(DTYPES[name], kind)}

    def device_dtypes(self) -> dict[str, DType]:
        """The types that Trn1 has, by name, the formats that the standard does not know among them.

        >>> found = __array_namespace_info__().device_dtypes()
        >>> "bfloat16" in found, "float64" in found
        (True, False)
        """
        return {name: t for name, t in DTYPES.items() if t.device}


def __array_namespace_info__() -> ArrayNamespaceInfo:  # noqa: N807 (the standard's name)
    """The standard's inspection of this namespace."""
    return ArrayNamespaceInfo()
