"""Array: an ndarray of storage bits and the type that they encode.

>>> x = asarray([1.0, 2.5, 1 / 3], dtype="bfloat16")
>>> x
Array([1.   , 2.5  , 0.334], dtype=bfloat16)
>>> x + 1
Array([2.   , 3.5  , 1.336], dtype=bfloat16)
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from numbers import Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes, ops
from neuronsim.arrays.device import TRN1, Device, check_device
from neuronsim.arrays.methods import FunctionMethods, function_named
from neuronsim.dtypes import Casting, DType, DTypeLike, as_dtype, can_cast, result_type
from neuronsim.errors import (
    REFUSALS,
    IntegerOverflow,
    InvalidArgument,
    InvalidIndex,
    OutOfMemory,
    UnsupportedType,
    refusal,
)
from neuronsim.processor import interruptible, pinned
from neuronsim.profiles import Profile, current_profile, profile_variable
from neuronsim.reference.formats import exact as exact_number
from neuronsim.reference.formats import round_number

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


_Operator = Callable[["Array", Any], "Array"]


def _operators(symbol: str) -> tuple[_Operator, _Operator, _Operator]:
    """The method of a binary operator, its reflection and its in-place form, from the op table."""
    row = next(row for row in ops.OPS.values() if row.operator == symbol)
    name = row.name

    def method(self: Array, other: Any, *modulus: Any) -> Any:
        if modulus:  # pow's third argument
            raise UnsupportedType(f"{name} of {self.bits.type} has no modulus: use (x {symbol} y) % m")
        return _elementwise(name, self, other) if _is_operand(other) else NotImplemented

    def reflected(self: Array, other: Any) -> Any:
        return apply_elementwise(name, other, self) if _is_operand(other) else NotImplemented

    short = _core.ElementwiseMethod(name, profile_variable, method)
    return functools.update_wrapper(short, method), reflected, _in_place(short)


def _unary(name: str) -> Callable[[Array], Array]:
    """The method of an operator of one array."""

    def method(self: Array) -> Array:
        return _elementwise(name, self)

    short = _core.ElementwiseMethod(name, profile_variable, method)
    return functools.update_wrapper(short, method)


def _in_place(method: _Operator) -> _Operator:
    """The operator that writes its result into its left operand, which keeps its type and shape."""

    def in_place(self: Array, other: Any) -> Any:
        result = method(self, other)
        if result is NotImplemented:
            return result
        # A product of matrices may have fewer axes, which would broadcast without a word.
        if result.shape != self.shape:
            raise InvalidArgument(
                f"{self.bits.type} keeps its shape in place: the result is {result.bits.type}"
            )
        return write(self, result)

    return in_place


def _remember(name: str, types: tuple[DType, ...], result: DType, profile: Profile) -> None:
    """Keeps the program of an operation for the short way (`_core.Elementwise`), which says nothing of
    errors: what the operands are, and how Python numbers are rounded to their type (C1, C8).
    """
    op, dtype = ops.by_name(name), types[-1]
    known = profile.derived.setdefault(name, {})
    checks = ops.has_input_range(op, profile) or (name == "power" and dtype.kind == "signed")
    if checks or not has_short_way(profile) or not dtype.device or dtype in known:
        return
    program, _ = ops.elementwise_program(op, {}, types, result, profile)
    takes_floats = dtype.exponent_bits > 0 and profile.scalar == "dtype"
    takes_integers = dtype.kind in ("signed", "unsigned") or takes_floats
    numbers = [
        _conversion_program(t, dtype, profile) if takes else None
        for t, takes in ((dtypes.float64, takes_floats), (dtypes.int64, takes_integers))
    ]
    known[dtype] = (Array, result, program, types, *numbers)


def has_short_way(profile: Profile) -> bool:
    """Whether an operation is what its program gives: nothing is drawn, truncated or said."""
    return profile.rounding == "nearest_even" and profile.int64 == "keep" and profile.handling is None


def _conversion_program(source: DType, target: DType, profile: Profile) -> _core.TileProgram:
    """The program that rounds one type to another (C1)."""
    return ops.elementwise_program(ops.by_name("convert"), {}, (source,), target, profile)[0]


def _is_operand(x: Any) -> bool:
    return isinstance(x, Array | np.ndarray | np.generic | int | float | complex | list | tuple)


@pinned
class Array(FunctionMethods):
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
        return self._data.shape

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
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element in storage."""
        return self._data.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in storage."""
        return self._data.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._data.strides

    @property
    def flags(self) -> Any:
        """NumPy's flags of the storage: writeable, c_contiguous, owndata, ..."""
        return self._data.flags

    def setflags(
        self, write: bool | None = None, align: bool | None = None, uic: bool | None = None
    ) -> None:
        """Make the array read-only, or its own memory writable again; other flags stay as they are."""
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
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The array with its axes reversed, by `permute_dims`."""
        found: Array = function_named("transpose")(self)
        return found

    @property
    def mT(self) -> Array:  # noqa: N802 (the standard's name)
        """The transposed matrices, which the last two axes are, by `permute_dims`."""
        found: Array = function_named("matrix_transpose")(self)
        return found

    @property
    def real(self) -> Array:
        """A view of the real parts; of a real type the array itself."""
        if self._dtype.kind != "complex":
            return self
        return _of_ndarray(self._data.real, None)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Array:
        """A view of the imaginary parts; of a real type zeros, which are read-only."""
        if self._dtype.kind != "complex":
            return self._like(np.broadcast_to(np.zeros((), self._dtype.storage), self.shape))
        return _of_ndarray(self._data.imag, None)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    @property
    def flat(self) -> Flat:
        """The elements in row-major order, to iterate over, to index and to assign to."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

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

    def transpose(self, *axes: Any) -> Array:
        """A view with the axes in the order `axes`, a tuple or integers; reversed without them."""
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        found: Array = function_named("transpose")(self, given)
        return found

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Array:
        """A view without the axes of length 1: those of `axis`, or all."""
        ones = tuple(d for d, n in enumerate(self.shape) if n == 1)
        found: Array = function_named("squeeze")(self, ones if axis is None else axis)
        return found

    # ---- copies ----

    def copy(self, order: Literal["K", "A", "C", "F"] = "C") -> Array:
        """A copy with memory of its own."""
        _check_order(order)
        return self._like(np.array(self._data, order=order))

    def flatten(self, order: Literal["K", "A", "C", "F"] = "C") -> Array:
        """A copy of one axis."""
        _check_order(order)
        return self._like(self._data.flatten(order))

    def astype(
        self,
        dtype: DTypeLike,
        order: Literal["K", "A", "C", "F"] = "K",
        casting: Casting = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Array:
        """The elements converted by rules C, rounded once; a copy unless `copy` is false and the type
        stays.
        """
        target = array_type(dtype)
        if casting != "unsafe":
            check_cast(self._dtype, target, casting)
        found = convert(self, target)
        if found is not self and order in ("C", "K"):
            return found  # of its own, and row-major
        return asarray(found, order=order, copy=copy and found is self)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Array:
        """The elements, or along `axis` the subarrays, where `condition` holds."""
        found: Array = function_named("compress")(condition, self, axis, out)
        return found

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

    def sort(
        self, axis: int = -1, kind: str | None = None, order: None = None, *, stable: bool | None = None
    ) -> None:
        """Sort along an axis in place (E10); the order is stable whatever `kind` is."""
        write(self, function_named("sort")(self, axis, kind, order))

    def partition(
        self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None
    ) -> None:
        """Put the element `kth` along an axis where sorting puts it, smaller ones before it."""
        write(self, function_named("partition")(self, kth, axis, kind, order))

    # ---- elements ----

    if TYPE_CHECKING:

        def __getitem__(self, key: Any, /) -> Array: ...  # the core's, which calls _at

    def _at(self, key: Any) -> Array:
        """`self[key]`, for what is no tuple of integers and slices, or no index at all."""
        try:
            places = _index_array(key) if type(key) is Array else _index(key)
            size = getattr(places, "size", 0)
            data = (
                interruptible(4 * size, self._data.__getitem__, places) if size else self._data[places]
            )
            return Array(ops.Bits(np.asarray(data), self._dtype))
        except (IndexError, ValueError) as error:
            raise InvalidIndex(f"{self.bits.type}[{_shown(key)}]: {error}") from error

    def __setitem__(self, key: Any, value: Any) -> None:
        given = _weak_array(value, self._dtype) if is_weak(value) else asarray(value, self._dtype)
        try:
            self._data[_index(key)] = given._data
        except IndexError as error:
            raise InvalidIndex(f"{self.bits.type}[{_shown(key)}]: {error}") from error
        except ValueError as error:
            where = f"{self.bits.type}[{_shown(key)}] = {given.bits.type}"
            raise InvalidArgument(f"{where}: {error}") from error

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

    def __contains__(self, value: Any) -> bool:
        return _is_operand(value) and bool((self == value).bits.data.any())

    def tobytes(self, order: Literal["C", "F", "A"] = "C") -> bytes:
        """The storage bits, row-major."""
        _check_order(order)
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
        return self.reshape(()).tolist()

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

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        try:
            return format(self._number(f"number to format as {spec!r}"), spec)
        except (TypeError, ValueError) as error:
            raise refusal(f"format of {self.bits.type}", error) from error

    def __repr__(self) -> str:
        text: str = function_named("array_repr")(self)
        return text

    def __str__(self) -> str:
        text: str = function_named("array_str")(self)
        return text

    # ---- protocols ----

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """The package, for every version of the array API standard up to 2025.12."""
        if api_version not in (None, *_API_VERSIONS):
            raise InvalidArgument(
                f"the array API standard of {api_version!r}: {', '.join(_API_VERSIONS)} are known"
            )
        import neuronsim  # which imports this module

        return neuronsim

    def to_device(self, device: Any, /, *, stream: None = None) -> Array:
        """The array itself: there is one device. Raises InvalidArgument for any other."""
        check_device(device)
        if stream is not None:
            raise InvalidArgument(
                f"to_device: stream is None, not {stream!r}: the device has no streams"
            )
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        native = self._data.view(self._dtype.numpy)
        if dtype is not None and np.dtype(dtype) != native.dtype:
            if copy is False:
                raise InvalidArgument(f"{self.bits.type} does not become {dtype} without a copy")
            return native.astype(dtype)
        if self._dtype is dtypes.tfloat32 and not copy:
            native.flags.writeable = False  # what is written as float32 would not be rounded (C2)
        return native.copy() if copy else native

    def __buffer__(self, flags: int, /) -> memoryview:
        from neuronsim.arrays import interop  # which imports this module

        return interop.buffer(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from neuronsim.arrays import interop  # which imports this module

        return interop.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from neuronsim.arrays import interop  # which imports this module

        return interop.DLPACK_DEVICE

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from neuronsim.arrays.ufuncs import array_ufunc  # which imports this module

        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from neuronsim.arrays import interop  # which imports this module

        return interop.array_function(func, types, args, kwargs)

    # ---- operators ----

    def __pos__(self) -> Array:
        return self.copy("K")

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _is_operand(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _is_operand(other) else NotImplemented

    def __round__(self, ndigits: int | None = None) -> Any:
        # Python's protocol: without digits a number gives an int.
        is_number = ndigits is None and not self.ndim
        return self._whole_number(round) if is_number else self.round(ndigits or 0)

    __neg__, __abs__, __invert__ = map(_unary, ("negative", "abs", "bitwise_invert"))
    __add__, __radd__, __iadd__ = _operators("+")
    __sub__, __rsub__, __isub__ = _operators("-")
    __mul__, __rmul__, __imul__ = _operators("*")
    __truediv__, __rtruediv__, __itruediv__ = _operators("/")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators("//")
    __mod__, __rmod__, __imod__ = _operators("%")
    __pow__, __rpow__, __ipow__ = _operators("**")
    __lshift__, __rlshift__, __ilshift__ = _operators("<<")
    __and__, __rand__, __iand__ = _operators("&")
    __or__, __ror__, __ior__ = _operators("|")
    __xor__, __rxor__, __ixor__ = _operators("^")
    __eq__ = _operators("==")[0]  # type: ignore[assignment]  # elementwise
    __ne__ = _operators("!=")[0]  # type: ignore[assignment]
    __lt__ = _operators("<")[0]
    __le__ = _operators("<=")[0]
    __gt__ = _operators(">")[0]
    __ge__ = _operators(">=")[0]

    def __rshift__(self, other: Any) -> Array:
        return function_named("right_shift")(self, other) if _is_operand(other) else NotImplemented

    def __rrshift__(self, other: Any) -> Array:
        return function_named("right_shift")(other, self) if _is_operand(other) else NotImplemented

    def __matmul__(self, other: Any) -> Array:
        return function_named("matmul")(self, other) if _is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Array:
        return function_named("matmul")(other, self) if _is_operand(other) else NotImplemented

    __irshift__ = _in_place(__rshift__)
    __imatmul__ = _in_place(__matmul__)


@pinned
class Flat:
    """The elements of an array in row-major order, as NumPy's flatiter."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[Array]:
        return iter(self._array.reshape(-1))

    def __getitem__(self, key: Any) -> Array:
        return self._array.reshape(-1)[key].copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        what = f"flat[{_shown(key)}] of {self._array.bits.type}"
        try:
            places = np.arange(len(self))[_index(key)].reshape(-1)
        except REFUSALS as error:
            raise InvalidIndex(f"{what}: {error}") from error
        dtype = self._array.dtype
        given = _weak_array(value, dtype) if is_weak(value) else asarray(value, dtype)
        if given.size == 0 != places.size:
            raise InvalidArgument(f"{what}: no values for {places.size} elements")
        try:
            np.put(self._array._data, places, given._data)  # again and again
        except ValueError as error:
            raise InvalidArgument(f"{what}: {error}") from error


_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

# Types of which some bits are no values: the unsigned type of their size, and the bits that may be set.
_RESTRICTED: dict[DType, tuple[str, int]] = {
    dtypes.tfloat32: ("u4", 0xFFFFE000),
    dtypes.boolean: ("u1", 1),
}


def _index(key: Any) -> Any:
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


def _shown(key: Any) -> str:
    """An index in an error, short."""
    return reprlib.repr(key)


def _restore(data: npt.NDArray[Any], dtype: str) -> Array:
    """An Array from a pickle."""
    return Array(ops.Bits(data, dtypes.DTYPES[dtype]))


_PLAIN = ops.Setting(Profile())


def exact_values(x: Array) -> npt.NDArray[Any]:
    """The elements in a NumPy type that holds every value of theirs; by the core, whatever
    the caller's floating-point environment is (D1).
    """
    if not x.dtype.exponent_bits:
        return np.asarray(x)
    wide = ops.evaluate(ops.by_name("convert"), [x.bits], {"dtype": dtypes.float64}, _PLAIN)
    return wide.data


# ---- from and to other types -------------------------------------------------------------------


def asarray(
    obj: Any,
    /,
    dtype: DTypeLike | None = None,
    order: Literal["K", "A", "C", "F"] | None = None,
    *,
    device: Any = None,
    copy: bool | None = None,
) -> Array:
    """An Array of `obj`: an Array, an ndarray (ml_dtypes' types too), a number, nested sequences of
    these, or what exports memory by the buffer protocol, `__array_interface__`, DLPack or `__array__`.

    Memory is shared where the type stays (`copy=True` copies, `copy=False` raises InvalidArgument where
    a copy is needed). Python floats take the default type and ints int64; arrays and NumPy scalars keep
    theirs. With `dtype` every element is rounded once from its exact value (C1). Raises UnsupportedType
    for types that neuronsim does not have.

    >>> asarray([1, 2]).dtype.name, asarray(0.1).dtype.name
    ('int64', 'float32')
    """
    if device is not None:
        check_device(device)
    if dtype is None and order is None and not copy:  # the short ways
        if type(obj) is Array:
            return obj
        if type(obj) is np.ndarray:
            return _of_ndarray(obj, copy)
    target = None if dtype is None else array_type(dtype)
    if type(obj) is float and copy is not False:
        return convert(Array(ops.Bits(np.asarray(obj), dtypes.float64)), target or _default_float)
    source = obj if isinstance(obj, Array) else _of_memory(obj, copy)
    if source is None:
        if copy is False:
            raise InvalidArgument(
                f"asarray: {type(obj).__name__} does not become an array without a copy"
            )
        result = _of_numbers(obj, target)
    elif target is None or target is source.dtype:
        result = source
    elif copy is False:
        raise InvalidArgument(f"asarray: {source.bits.type} to {target.name} needs a copy")
    else:
        result = convert(source, target)
    if order is None and not copy:
        return result
    if order is not None:
        _check_order(order)
    data = np.asarray(result.bits.data, order=order)
    if copy and source is not None and data is source.bits.data:
        data = np.array(data, order=order or "K")
    return result if data is result.bits.data else Array(ops.Bits(data, result.dtype))


def _check_order(order: Any) -> None:
    if order not in ("K", "A", "C", "F"):
        raise InvalidArgument(f"order is 'K', 'A', 'C' or 'F', not {order!r}")


_NUMBERS = (bool, int, float, complex)


def is_weak(x: Any) -> bool:
    """Whether `x` is a Python number, which takes the type of the arrays beside it (C8)."""
    return isinstance(x, _NUMBERS) and not isinstance(x, np.generic)


def _of_memory(obj: Any, copy: bool | None) -> Array | None:
    """The memory that an object exports, as it lies there; None of numbers and sequences of them."""
    if isinstance(obj, np.ndarray | np.generic):
        return _of_ndarray(np.asarray(obj), copy)
    if is_weak(obj) or isinstance(obj, list | tuple):
        return None
    if isinstance(obj, str | bytes):
        raise UnsupportedType(
            f"asarray: {reprlib.repr(obj)} is no number: make numbers of text with int or float, "
            "of bytes with frombuffer"
        )
    try:
        exported: Any = memoryview(obj)
    except TypeError:
        exported = obj if hasattr(obj, "__array_interface__") else None
    if exported is None and hasattr(obj, "__dlpack__"):
        from neuronsim.arrays import interop  # which imports this module

        return interop.from_dlpack(obj)
    if exported is None and hasattr(obj, "__array__"):
        exported = obj.__array__()
    return None if exported is None else _of_ndarray(np.asarray(exported), copy)


def _of_ndarray(array: npt.NDArray[Any], copy: bool | None) -> Array:
    """The memory of an ndarray; a copy of one whose bytes are swapped or not aligned."""
    is_native = array.dtype.isnative
    dtype = as_dtype(array.dtype if is_native else array.dtype.newbyteorder("="))
    if not (is_native and array.flags.aligned):
        if copy is False:
            raise InvalidArgument("asarray: swapped or unaligned bytes need a copy")
        array = array.astype(dtype.numpy)
    return Array(ops.Bits(array if array.dtype == dtype.storage else array.view(dtype.storage), dtype))


def _strong_leaves(x: Any) -> Iterator[Any]:
    """What nested sequences hold beside Python numbers."""
    if isinstance(x, list | tuple):
        if not set(map(type, x)) <= set(_NUMBERS):  # the quick way through a long list
            for v in x:
                yield from _strong_leaves(v)
    elif not is_weak(x):
        yield x


def _of_numbers(obj: Any, target: DType | None) -> Array:
    """Python numbers and nested sequences of them, perhaps with arrays in them: their common type, or
    `target`; each element is rounded once (C1).
    """
    if not isinstance(obj, (list, tuple, *_NUMBERS)) and isinstance(obj, Sequence):
        obj = _listed(obj)
    try:
        strong = list(map(asarray, _strong_leaves(obj))) if isinstance(obj, list | tuple) else []
    except RecursionError as error:
        raise InvalidArgument("asarray: the sequences are nested beyond any axes") from error
    if not strong:
        return _of_python_numbers(obj, target)
    common = target or reduce(result_type, (x.dtype for x in strong))

    def nested(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [nested(v) for v in x]
        return asarray(x, common).bits.data

    return Array(ops.Bits(_regular(nested(obj), common.storage), common))


def _listed(x: Sequence[Any]) -> list[Any]:
    """The elements of a sequence, of which a range may promise more than there is memory."""
    try:
        np.empty(len(x), object)
    except (MemoryError, OverflowError, ValueError) as error:
        raise OutOfMemory(f"asarray: {x!r} does not fit in memory") from error
    return list(x)


def _regular(x: Any, dtype: Any = None) -> npt.NDArray[Any]:
    try:
        return np.asarray(x, dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"asarray: the sequences do not make an array: {error}") from error


def _of_python_numbers(x: Any, target: DType | None) -> Array:
    if not (is_weak(x) or isinstance(x, list | tuple)):
        raise UnsupportedType(f"asarray: {type(x).__name__} is no number, array or sequence of them")
    array = _regular(x)
    exact = np.asarray(x, object) if array.dtype.kind in "fO" else array
    if target is None and array.dtype.kind in "fc":
        target = _default_float if array.dtype.kind == "f" else default_complex()
    if target is None and array.dtype == object:
        target = dtypes.int64
    if exact.dtype == object and target is not None and _needs_exact(exact):
        return _exactly(exact, target)
    if target is not None and target.kind in ("signed", "unsigned") and array.dtype.kind in "iu":
        _check_range(array, target)
    result = _of_ndarray(array, None)
    return result if target is None else convert(result, target)


def _needs_exact(x: npt.NDArray[Any]) -> bool:
    """Whether a list holds an integer that float64 or int64 does not."""
    return any(isinstance(v, int) and abs(v) > 2**53 for v in x.ravel().tolist())


def _exactly(x: npt.NDArray[Any], target: DType) -> Array:
    """Python numbers rounded one by one from their exact values (C1)."""
    if target.kind != "float" or not target.exponent_bits:
        if target.kind in ("signed", "unsigned"):
            _check_range(x, target)
        return Array(ops.Bits(x.astype(target.numpy), target))
    profile = current_profile()

    def rounded(v: float | int) -> int:
        return round_number(
            target.name,
            exact_number(v),
            fp8_overflow=profile.fp8_overflow,
            subnormals=profile.subnormals,
        )

    words = np.fromiter(map(rounded, x.ravel().tolist()), f"u{target.itemsize}", x.size)
    return Array(ops.Bits(words.view(target.storage).reshape(x.shape), target))


def _check_range(x: npt.NDArray[Any], target: DType) -> None:
    """Raises OverflowError for integers that the type does not hold (C8)."""
    info = np.iinfo(target.numpy)
    for v in (x.min(), x.max()) if x.size else ():
        if not info.min <= v <= info.max:
            raise IntegerOverflow(f"{v} is outside {target.name}: it holds {info.min} to {info.max}")


def convert(x: Array, dtype: DType) -> Array:
    """`x` in another type by rules C; a complex type from another one by NumPy (H1)."""
    if dtype is x._dtype:
        return x
    known = current_profile().derived.get((x._dtype, dtype))
    if known is not None:
        data = _core.run_dense(known, x._data)
        if data is not None:
            return Array(ops.Bits(data, dtype))
    if "complex" in (dtype.kind, x.dtype.kind):
        if dtype is dtypes.boolean:
            return Array(ops.Bits(np.asarray(x.bits.data != 0), dtype))
        if x.dtype.kind == "complex" and dtype.kind != "complex":
            raise UnsupportedType(f"{x.dtype.name} to {dtype.name} (C6): take the real part first")
    result: ops.Bits = ops.apply("convert", [x.bits], dtype=dtype)
    profile = current_profile()
    if has_short_way(profile) and dtype.code is not None:
        profile.derived[x._dtype, dtype] = _conversion_program(x._dtype, dtype, profile)
    return Array(result)


def weak_type(value: bool | int | float | complex, beside: DType) -> DType:
    """The type of a Python number beside an array of another type (C8)."""
    if isinstance(value, int):
        # An integer beside a bool array is an int64; a bool takes any type.
        is_number = beside is dtypes.boolean and not isinstance(value, bool)
        return dtypes.int64 if is_number else beside
    if isinstance(value, complex) and beside.kind != "complex":
        wide = beside if beside.kind == "float" else _default_float
        return dtypes.complex128 if wide is dtypes.float64 else dtypes.complex64
    return beside if beside.kind in ("float", "complex") else _default_float


def _typed(operands: Sequence[Any]) -> tuple[list[Array], DType]:
    """The operands as arrays, Python numbers in the type of the others (C8), and their common type."""
    if not operands:
        raise InvalidArgument("nothing has no common type: give an array or a number")
    strong = [None if is_weak(x) else asarray(x) for x in operands]
    types = [a.dtype for a in strong if a is not None] or [asarray(x).dtype for x in operands]
    common = reduce(result_type, types)
    arrays = [
        _weak_array(x, weak_type(x, common)) if a is None else a
        for x, a in zip(operands, strong, strict=True)
    ]
    return arrays, reduce(result_type, (a.dtype for a in arrays), common)


_MOST_WEAK_ARRAYS = 1024


def _weak_array(value: bool | int | float | complex, dtype: DType) -> Array:
    """A Python number rounded once to a type (C8): read-only, and kept with the profile."""
    if value != value:  # a NaN, whose sign no key tells
        return asarray(value, dtype)
    known = current_profile().derived.setdefault("weak numbers", {})
    key = (dtype, type(value), value if isinstance(value, int) else repr(value))
    found: Array | None = known.get(key)
    if found is None:
        found = asarray(value, dtype)
        found.setflags(write=False)
        if len(known) >= _MOST_WEAK_ARRAYS:
            known.clear()
        known[key] = found
    return found


def common_arrays(*operands: Any) -> list[Array]:
    """The operands as arrays of their common type, of whatever shapes: arrays, NumPy's scalars and
    sequences have their own types, Python numbers take the others' (C8).

    Raises UnsupportedType for types without a common one.

    >>> [a.dtype.name for a in common_arrays(asarray([1.5], "bfloat16"), 2)]
    ['bfloat16', 'bfloat16']
    """
    arrays, common = _typed(operands)
    return [convert(a, common) for a in arrays]


def check_cast(source: DType, target: DType, casting: Casting) -> None:
    """Raises UnsupportedType where `casting` does not let one type become the other."""
    if not can_cast(source, target, casting):
        raise UnsupportedType(
            f"{source.name} to {target.name} is no {casting!r} cast: say casting='unsafe', or convert "
            "with astype"
        )


def write(
    out: Any, value: Any, where: Any = True, casting: Casting = "same_kind", *, broadcasts: bool = False
) -> Array:
    """Write `value`, converted by rules C, into `out` where `where` holds; gives `out`, an Array or an
    ndarray of one of its types, or the only one in a tuple. It has the shape of `value`, or one that
    this broadcasts to if it `broadcasts`, as elementwise functions do.

    Raises InvalidArgument if `out` is read-only or of another shape, and UnsupportedType if `casting`
    does not allow the conversion.

    >>> x = asarray([0.0, 0.0], dtype="bfloat16")
    >>> write(x, asarray([1 / 4, 2.0])) is x, x
    (True, Array([0.25, 2.  ], dtype=bfloat16))
    """
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if type(out) is not Array and not isinstance(out, Array | np.ndarray):
        raise UnsupportedType(f"out is an array, not {type(out).__name__}")
    given: Any = out
    target = out if type(out) is Array else asarray(out, copy=False)
    # A Python number is rounded once, and has neither width nor, as an integer, a sign (C1, C8).
    number_type = weak_type(value, target._dtype) if is_weak(value) else None
    source = value if type(value) is Array else asarray(value, number_type)
    if source._dtype is not target._dtype:
        check_cast(source._dtype, target._dtype, casting)
    chosen = where if where is True or isinstance(where, bool) else _mask(where)
    data = target._data
    if not data.flags.writeable:
        raise InvalidArgument(f"the array {target.bits.type} is read-only: write into a copy of it")
    if not broadcasts and data.shape != source._data.shape:
        raise InvalidArgument(f"out is {target.bits.type}, and the result {source.bits.type}")
    try:
        np.copyto(data, convert(source, target._dtype)._data, where=chosen)
    except ValueError as error:
        raise InvalidArgument(
            f"{source.bits.type}, where {np.shape(chosen)}, does not broadcast into {target.bits.type}"
        ) from error
    result: Array = given
    return result


def _mask(where: Any) -> npt.NDArray[np.bool]:
    chosen = asarray(where)
    if chosen.dtype is not dtypes.boolean:
        raise UnsupportedType(f"where is a bool array, not {chosen.dtype.name}")
    return chosen.bits.data


def apply_elementwise(name: str, *operands: Any) -> Array:
    """Evaluate an elementwise row of `ops` on arrays and numbers, broadcast, in their common type."""
    return elementwise_function(name)(*operands)  # type: ignore[no-any-return]


@functools.cache
def elementwise_function(name: str) -> _core.Elementwise:
    """An elementwise row of `ops` as a function of arrays and numbers."""
    ops.by_name(name)

    def otherwise(*operands: Any) -> Array:
        return _elementwise(name, *operands)

    return _core.Elementwise(name, profile_variable, otherwise)


# What gives floats for integers, as NumPy's functions and its true division do.
_TO_FLOAT = ops.FUNCTIONS_OF_FLOATS | {"divide"}
_NOT_PLAIN = _TO_FLOAT | {"power"}


def _elementwise(name: str, *operands: Any) -> Array:
    for x in operands:
        if hasattr(x, "__neuronsim_apply__"):
            recorded: Array = ops.apply(name, operands)
            return recorded
    first = operands[0]
    profile = current_profile()
    is_plain = type(first) is Array and (first.dtype.exponent_bits or name not in _NOT_PLAIN)
    if is_plain and first.dtype.device and not _unlike(first, operands):
        result: ops.Bits = ops.apply(name, [x.bits for x in operands])
        _remember(name, (first.dtype,) * len(operands), result.dtype, profile)
        return Array(result)
    condition = [asarray(x) for x in operands[:1]] if name == "select" else []
    arrays, common = _typed(operands[len(condition) :])
    filled = [*condition, *arrays]
    op = ops.by_name(name)
    if common.kind in ("signed", "unsigned", "bool") and name in _TO_FLOAT:
        common = _default_float
    values = [a if i < len(condition) else convert(a, common) for i, a in enumerate(filled)]
    immediate = profile.scalar == "float32_immediate" and common.device and common.bits < 32
    if immediate and common.kind == "float" and not ops.moves_bits(op):  # C8
        values = [
            asarray(x, dtypes.float32) if is_weak(x) else v
            for x, v in zip(operands, values, strict=True)
        ]
    try:
        dims = ops.broadcast_dims(*(a.shape for a in values))
    except ValueError as error:
        shapes = ", ".join(str(a.shape) for a in values)
        raise InvalidArgument(f"{name}: the shapes {shapes} do not broadcast") from error
    ops.check_elementwise(op, common, common)
    is_integer_power = name == "power" and common.kind == "signed" and 0 not in dims
    if is_integer_power and (np.asarray(values[1]) < 0).any():
        raise InvalidArgument("integers to negative integer powers are not integers: use a float type")
    bits = [ops.Bits(np.broadcast_to(a.bits.data, dims), a.dtype) for a in values]
    like = [
        ops.ArrayType(v.dtype if i < len(condition) else common, dims) for i, v in enumerate(values)
    ]
    found = Array(ops.apply(name, bits, result=op.infer_array(like, {})))
    if all(b.dtype is common for b in bits[len(condition) :]):
        _remember(name, tuple(b.dtype for b in bits), found.dtype, profile)
    return found


def _unlike(first: Array, operands: Sequence[Any]) -> bool:
    """Whether an operand is not an Array of the first one's type and shape."""
    return any(
        type(x) is not Array or x.dtype is not first.dtype or x.shape != first.shape for x in operands
    )


def float_array(x: Any) -> Array:
    """An array of a float type: integers and bool take the default one."""
    a = asarray(x)
    if a.dtype.kind in ("signed", "unsigned", "bool"):
        return convert(a, default_dtype())
    return a


def number(what: str, value: Any) -> float:
    """`value` as a float; raises InvalidArgument if it is not a number within float64's range."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise InvalidArgument(f"{what} is a number, not {value!r}")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} is a number within float64's range: {error}") from error
