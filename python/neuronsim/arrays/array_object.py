"""Array: an ndarray of storage bits and the type that they encode; its memory, views and elements. What
it computes is attached by `methods`, which is above all chapters.
"""

from __future__ import annotations

import functools
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes, ops
from neuronsim.arrays import dlpack
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.device import TRN1, Device, check_device
from neuronsim.dtypes import DType, DTypeLike, as_dtype
from neuronsim.errors import InvalidArgument, InvalidIndex, UnsupportedBuffer, UnsupportedType, refusal
from neuronsim.processor import interruptible, pinned
from neuronsim.profiles import Profile, profile_variable

if TYPE_CHECKING:
    from neuronsim.arrays.methods import ArrayMethods
else:
    ArrayMethods = object


@pinned
class Array(_core.ArrayBase, ArrayMethods):
    """An n-dimensional array of one element type. Make one with `asarray`."""

    __slots__ = ("__weakref__",)
    _dtype: DType
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def _like(self, data: npt.NDArray[Any]) -> Array:
        """Storage bits of this array's type, by the shortest way: indices come here."""
        found = Array.__new__(Array)
        found._data = data
        found._dtype = self._dtype
        return found

    # ---- what it is ----

    @property
    def bits(self) -> ops.Bits:
        """The storage bits and their type, not copied."""
        return ops.Bits(self._data, self._dtype)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def device(self) -> Device:
        """The device whose numbers these are."""
        return TRN1

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis; setting it reshapes the array without a copy."""
        return self._layout.shape

    @shape.setter
    def shape(self, shape: int | tuple[int, ...]) -> None:
        try:
            self._data = np.reshape(self._data, shape, copy=False)
        except ValueError as error:
            raise InvalidArgument(
                f"{self.bits.type} does not take the shape {shape} without a copy: use reshape"
            ) from error

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._layout.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element in storage."""
        return self._layout.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in storage."""
        return self._layout.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._layout.strides

    @property
    def flags(self) -> Any:
        """NumPy's flags of the storage: writeable, c_contiguous, owndata, ..."""
        return self._data.flags

    def setflags(
        self, write: bool | None = None, align: bool | None = None, uic: bool | None = None
    ) -> None:
        """Make the array read-only, or its own memory writable again; other flags stay as they are.

        A read-only matrix to whose memory nothing else refers is packed once, for every product that it
        is the right operand of.
        """
        self._data.setflags(write=write)

    @property
    def base(self) -> Any:
        """What the array is a view of: an Array, or an ndarray of other elements; None of its own."""
        base = self._data.base
        if not isinstance(base, np.ndarray):
            return None
        return self._like(base) if base.dtype == self._dtype.storage else base

    # ---- views ----

    @property
    def real(self) -> Array:
        """A view of the real parts; of a real type the array itself."""
        if self._dtype.kind != "complex":
            return self
        return of_ndarray(self._data.real, None)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Array:
        """A view of the imaginary parts; of a real type zeros, which are read-only."""
        if self._dtype.kind != "complex":
            return self._like(np.broadcast_to(np.zeros((), self._dtype.storage), self.shape))
        return of_ndarray(self._data.imag, None)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def view(self, dtype: DTypeLike | None = None) -> Array:
        """The same memory as an array of another type: the bits, not converted. A tfloat32 or bool
        array from other bits is a copy, checked; of their bits other types have a read-only view.
        """
        target = self._dtype if dtype is None else array_type(dtype)
        try:
            data = self._data.view(target.storage)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{self.bits.type} as {target.name}: {error}") from error
        if target is not self._dtype:
            restricted = _RESTRICTED.get(target)
            if restricted is not None:
                unsigned, allowed = restricted
                data = data.copy()
                if (data.view(unsigned) & ~np.asarray(allowed, unsigned)).any():
                    raise InvalidArgument(f"the bits of {self.bits.type} are no {target.name} values")
            if self._dtype in _RESTRICTED:
                data.flags.writeable = False
        return Array(ops.Bits(data, target))

    def reshape(
        self, *shape: int | Sequence[int], order: Literal["C", "F", "A"] = "C", copy: bool | None = None
    ) -> Array:
        """The same elements in another shape, of which one length may be -1: a view where that can be
        (`copy=True` never gives one, `copy=False` raises InvalidArgument in the place of a copy).
        """
        if len(shape) == 1 and not isinstance(shape[0], int) and isinstance(shape[0], tuple | Sequence):
            shape = tuple(shape[0])
        try:
            data = self._data.reshape(shape, order=order)  # type: ignore[arg-type]
        except ValueError as error:
            raise InvalidArgument(f"{self.bits.type} cannot take the shape {shape}") from error
        except TypeError as error:
            raise refusal(f"reshape of {self.bits.type}", error) from error
        if copy is None:
            return self._like(data)
        shared = np.may_share_memory(data, self._data)
        if not (copy or shared) and self.size:
            raise InvalidArgument(f"reshape of {self.bits.type} to {data.shape} needs a copy")
        return self._like(data.copy(order) if copy and shared else data)

    # ---- copies ----

    def copy(self, order: Literal["K", "A", "C", "F"] = "C") -> Array:
        """A copy with memory of its own."""
        check_order(order)
        return self._like(ops.whole(self._data.copy(order)))

    def flatten(self, order: Literal["K", "A", "C", "F"] = "C") -> Array:
        """A copy of one axis."""
        check_order(order)
        return self._like(self._data.flatten(order))

    def __pos__(self) -> Array:
        return self.copy("K")

    def __copy__(self) -> Array:
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.copy("K")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._data, self._dtype.name)

    # ---- in place ----

    def fill(self, value: Any) -> None:
        """Set every element to `value`, converted by rules C."""
        self[...] = value

    # ---- elements ----

    if TYPE_CHECKING:

        def __getitem__(self, key: Any, /) -> Array: ...  # the core's, which calls _at

    def _at(self, key: Any) -> Array:
        """`self[key]`, for what is no tuple of integers and slices, or no index at all."""
        try:
            places = _index_array(key) if type(key) is Array else index_bits(key)
            traced = None if type(places) is np.ndarray else traced_part(places)
            if traced is not None and isinstance(self._data, np.ndarray):
                return Array(ops.Bits(traced.__neuronsim_storage__(self.bits)[places], self._dtype))
            size = getattr(places, "size", 0)
            data = (
                interruptible(4 * size, self._data.__getitem__, places) if size else self._data[places]
            )
            return Array(ops.Bits(ops.whole(data), self._dtype))
        except (IndexError, ValueError) as error:
            raise InvalidIndex(f"{self.bits.type}[{shown(key)}]: {error}") from error

    def __len__(self) -> int:
        if self.ndim == 0:
            raise UnsupportedType("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if self.ndim == 0:
            raise UnsupportedType("an array without axes has no elements to iterate over: use item()")
        return (self[i] for i in range(len(self)))

    def __reversed__(self) -> Iterator[Array]:
        return iter(self[::-1])

    def tobytes(self, order: Literal["C", "F", "A"] = "C") -> bytes:
        """The storage bits, row-major."""
        check_order(order)
        return self._data.tobytes(order)

    def tolist(self) -> Any:
        """Nested lists of Python numbers, exact."""
        return exact_values(self).tolist()

    def item(self, *index: Any) -> Any:
        """An element as a Python number, exact: the only one, or the one at `index`, which counts all
        elements row-major or names each axis.
        """
        if len(index) == 1 and not isinstance(index[0], tuple):
            return self.flat[index[0]].tolist()
        if index:
            return self[index[0] if len(index) == 1 else index].item()
        if self.size != 1:
            raise InvalidArgument(f"item() of an array of {self.size} elements: say which")
        return exact_values(self).item()

    def _number(self, what: str) -> Any:
        if self.ndim:
            raise UnsupportedType(f"{self.bits.type} is no {what}: only an array without axes is one")
        return self.tolist()

    def _real_number(self, what: str) -> Any:
        if self._dtype.kind == "complex":
            raise UnsupportedType(f"{self.bits.type} is no {what}: take its real part first (C6)")
        return self._number(what)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise InvalidArgument(
                f"{self.bits.type} is neither true nor false: say all() or any(), or compare its size"
            )
        return bool(self.item())

    def _whole_number(self, function: Callable[[Any], int]) -> int:
        try:
            return function(self._real_number("int"))
        except (OverflowError, ValueError) as error:  # Python's, of Inf and NaN
            raise refusal(f"{self.bits.type} as an int", error) from error

    def __int__(self) -> int:
        return self._whole_number(int)

    def __float__(self) -> float:
        return float(self._real_number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        if self._dtype.kind not in ("signed", "unsigned") or self.ndim:
            raise UnsupportedType(f"{self.bits.type} is no index: only an integer without axes is one")
        return int(self._data)

    def __round__(self, ndigits: int | None = None) -> Any:
        # Python's protocol: without digits a number gives an int.
        is_number = ndigits is None and not self.ndim
        return self._whole_number(round) if is_number else self.round(ndigits or 0)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        try:
            return format(self._number(f"number to format as {spec!r}"), spec)
        except (TypeError, ValueError) as error:
            raise refusal(f"format of {self.bits.type}", error) from error

    # ---- protocols ----

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """The package, for every version of the array API standard up to 2025.12."""
        if api_version not in (None, *_API_VERSIONS):
            raise InvalidArgument(
                f"the array API standard of {api_version!r}: {', '.join(_API_VERSIONS)} are known"
            )
        return sys.modules["neuronsim"]

    def to_device(self, device: Any, /, *, stream: None = None) -> Array:
        """The array itself: there is one device. Raises InvalidArgument for any other."""
        check_device(device)
        if stream is not None:
            raise InvalidArgument(
                f"to_device: stream is None, not {stream!r}: the device has no streams"
            )
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        native = known_data(self).view(self._dtype.numpy)
        if dtype is not None and np.dtype(dtype) != native.dtype:
            if copy is False:
                raise InvalidArgument(f"{self.bits.type} does not become {dtype} without a copy")
            return native.astype(dtype)
        if self._dtype is dtypes.tfloat32 and not copy:
            native.flags.writeable = False  # what is written as float32 would not be rounded (C2)
        return native.copy() if copy else native

    def __buffer__(self, flags: int, /) -> memoryview:
        """The memory of an array of one of NumPy's own types."""
        if self._dtype.storage != self._dtype.numpy or self._dtype is dtypes.tfloat32:
            raise UnsupportedBuffer(
                f"the buffer protocol has no {self._dtype.name}: export "
                f"x.view('uint{8 * self.itemsize}'), use DLPack, or convert the array with astype"
            )
        return self._data.data

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return dlpack.to_dlpack(self.bits, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.DLPACK_DEVICE


_core.use_arrays(Array, profile_variable)
_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

# Types of which some bits are no values: the unsigned type of their size, and the bits that may be set.
_RESTRICTED: dict[DType, tuple[str, int]] = {
    dtypes.tfloat32: ("u4", 0xFFFFE000),
    dtypes.boolean: ("u1", 1),
}


def traced_part(places: Any) -> Any:
    """The first part of an index that records; None of one that is known."""
    parts = places if isinstance(places, tuple) else (places,)
    return next((p for p in parts if hasattr(p, "__neuronsim_storage__")), None)


def index_bits(key: Any) -> Any:
    """An index as NumPy takes it: Arrays of integers and bool are their storage bits."""
    if isinstance(key, Array):
        return _index_array(key)
    if isinstance(key, tuple) and any(isinstance(k, Array) for k in key):
        return tuple(_index_array(k) if isinstance(k, Array) else k for k in key)
    return key


def _index_array(x: Array) -> npt.NDArray[Any]:
    if x._dtype.kind not in ("signed", "unsigned", "bool"):
        raise InvalidIndex(f"{x.bits.type} is no index: integers, bool and slices are")
    return x._data


def shown(key: Any) -> str:
    """An index in an error, short."""
    return reprlib.repr(key)


def _restore(data: npt.NDArray[Any], dtype: str) -> Array:
    """An Array from a pickle."""
    return Array(ops.Bits(data, dtypes.DTYPES[dtype]))


_PLAIN = ops.Setting(Profile())


def known_data(x: Array) -> npt.NDArray[Any]:
    """The storage of an array whose values are known; that of another says that they are not."""
    return x._data if isinstance(x._data, np.ndarray) else x._data.__array__()


def exact_values(x: Array) -> npt.NDArray[Any]:
    """The elements in a NumPy type that holds every value of theirs; by the core, whatever
    the caller's floating-point environment is (D1).
    """
    known_data(x)
    if not x.dtype.exponent_bits or x.dtype is dtypes.float64:
        return np.asarray(x)
    wide: Array = _widening(x.dtype)(x)
    return known_data(wide)


@functools.cache
def _widening(dtype: DType) -> _core.Door:
    """Arrays of a type as float64, whatever the profile is."""
    op, attributes, wide = ops.by_name("convert"), {"dtype": dtypes.float64}, dtypes.float64
    program, _ = ops.elementwise_chain(op, attributes, (dtype,), wide, _PLAIN.profile)

    def otherwise(x: Array) -> Array:
        return Array(*ops.evaluate(op, [x.bits], attributes, _PLAIN))

    return _core.Door(otherwise, _core.EagerChain(wide, [dtype], program, None, None))


def of_ndarray(array: npt.NDArray[Any], copy: bool | None) -> Array:
    """The memory of an ndarray; a copy of one whose bytes are swapped or not aligned."""
    is_native = array.dtype.isnative
    dtype = as_dtype(array.dtype if is_native else array.dtype.newbyteorder("="))
    if not (is_native and array.flags.aligned):
        if copy is False:
            raise InvalidArgument("asarray: swapped or unaligned bytes need a copy")
        array = array.astype(dtype.numpy)
    return Array(ops.Bits(array if array.dtype == dtype.storage else array.view(dtype.storage), dtype))


def check_order(order: Any) -> None:
    if order not in ("K", "A", "C", "F"):
        raise InvalidArgument(f"order is 'K', 'A', 'C' or 'F', not {order!r}")
