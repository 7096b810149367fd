"""DLPack: memory of other libraries as storage bits, and the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedBuffer, UnsupportedType

DLPACK_DEVICE = (1, 0)  # kDLCPU: every array lies in the host's memory

# The code and the bits of DLPack 1.0 (dmlc/dlpack, include/dlpack/dlpack.h) for each type.
_DLPACK_TYPES: dict[DType, tuple[int, int]] = {
    **{t: (0, t.bits) for t in dtypes.DTYPES.values() if t.kind == "signed"},
    **{t: (1, t.bits) for t in dtypes.DTYPES.values() if t.kind == "unsigned"},
    **{t: (2, t.bits) for t in (dtypes.float16, dtypes.float32, dtypes.float64)},
    dtypes.bfloat16: (4, 16),
    **{t: (5, t.bits) for t in (dtypes.complex64, dtypes.complex128)},
    dtypes.boolean: (6, 8),
    dtypes.float8_e3m4: (7, 8),
    dtypes.float8_e4m3: (8, 8),
    dtypes.float8_e4m3fn: (10, 8),
    dtypes.float8_e5m2: (12, 8),
}
_BY_DLPACK = {key: t for t, key in _DLPACK_TYPES.items()}


def from_dlpack(x: Any, copy: bool | None = None) -> ops.Bits:
    """The memory of an object with `__dlpack__`, shared unless `copy` is true. Raises UnsupportedType
    for a type that neuronsim has not, and UnsupportedBuffer for memory of another device.
    """
    if not hasattr(x, "__dlpack__"):
        raise UnsupportedType(
            f"from_dlpack: {type(x).__name__} has no __dlpack__: asarray takes others"
        )
    try:
        device = tuple(map(int, x.__dlpack_device__()))
    except ValueError as error:  # PyTorch's, of a device that has no memory
        raise UnsupportedBuffer(f"from_dlpack of {type(x).__name__}: {error}") from error
    if device[0] != DLPACK_DEVICE[0]:
        raise UnsupportedBuffer(
            f"from_dlpack: the memory of {type(x).__name__} is on the device {device}: move it to the "
            f"CPU, {DLPACK_DEVICE}, first"
        )
    try:
        capsule = x.__dlpack__(max_version=(1, 0), copy=copy)
    except TypeError:  # an exporter of before 2023.12
        capsule = x.__dlpack__()
    except BufferError as error:
        raise UnsupportedBuffer(f"from_dlpack of {type(x).__name__}: {error}") from error
    elements, code, bits = _core.dlpack_array(capsule)
    dtype = _BY_DLPACK.get((code, bits))
    if dtype is None:
        raise UnsupportedType(
            f"from_dlpack: neuronsim has no type of DLPack's code {code}, {bits} bits"
        )
    data = elements.view(dtype.storage)
    if not data.flags.aligned and copy is False:
        raise UnsupportedBuffer("from_dlpack: unaligned memory needs a copy")
    return ops.Bits(data.copy() if copy or not data.flags.aligned else data, dtype)


def to_dlpack(
    x: ops.Bits,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule that `Array.__dlpack__` gives; a tfloat32 array is copied to float32, since what
    others write would not be rounded (C2).
    """
    if stream is not None:
        raise InvalidArgument(f"__dlpack__: stream is None for memory of the CPU, not {stream!r}")
    if dl_device is not None and tuple(dl_device) != DLPACK_DEVICE:
        raise UnsupportedBuffer(f"__dlpack__: arrays are on the CPU, {DLPACK_DEVICE}, not {dl_device}")
    versioned = max_version is not None and max_version[0] >= 1
    dtype, data = x.dtype, x.data
    if not isinstance(data, np.ndarray):  # what records has no memory, and says so
        data = np.asarray(data)
    if dtype is dtypes.tfloat32:
        if copy is False:
            raise UnsupportedBuffer("__dlpack__: a tfloat32 array becomes float32 by a copy only")
        dtype, copy = dtypes.float32, True
    if copy:
        data = data.copy()
    if not data.flags.writeable and not versioned:
        raise UnsupportedBuffer(
            "__dlpack__: only a capsule of version 1 says that an array is read-only: copy the array"
        )
    code, bits = _DLPACK_TYPES[dtype]
    return _core.dlpack_capsule(data, code, bits, versioned, bool(copy))
