"""Array: an ndarray of storage bits and the type that they encode.

>>> x = asarray([1.0, 2.5, 1 / 3], dtype="bfloat16")
>>> x
Array([1.   , 2.5  , 0.334], dtype=bfloat16)
>>> x + 1
Array([2.   , 3.5  , 1.336], dtype=bfloat16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes, ops
from neuronsim.dtypes import DType, DTypeLike, as_dtype, result_type
from neuronsim.errors import IntegerOverflow, InvalidArgument, UnsupportedType, nearest
from neuronsim.profiles import Profile, current_profile
from neuronsim.reference.formats import exact as exact_number
from neuronsim.reference.formats import round_number

_default_float = dtypes.float32


def array_type(dtype: DTypeLike) -> DType:
    """The DType of arrays that `dtype` stands for; raises UnsupportedType for open formats too."""
    found = as_dtype(dtype)
    if found.is_open:
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


def _operators(symbol: str) -> tuple[Callable[[Array, Any], Any], Callable[[Array, Any], Any]]:
    """The method of a binary operator and its reflection, from the op table."""
    row = next(row for row in ops.OPS.values() if row.operator == symbol)
    name = row.name

    def method(self: Array, other: Any) -> Any:
        # The short way, for two arrays of one type and shape: small arrays feel every step of it.
        if type(other) is Array:
            result = _run_binary(current_profile().derived.get(name), self, other)
            if result is not None:
                return result
        return _elementwise(name, self, other) if _is_operand(other) else NotImplemented

    def reflected(self: Array, other: Any) -> Any:
        return apply_elementwise(name, other, self) if _is_operand(other) else NotImplemented

    return method, reflected


def _remember(name: str, dtype: DType, result: DType, profile: Profile) -> None:
    """Keeps the program of a binary operation for the short way, which says nothing of errors."""
    known = profile.derived.setdefault(name, {})
    truncates = profile.int64 == "truncate" and dtype in (dtypes.int64, dtypes.uint64)
    if profile.rounding == "stochastic" or not dtype.device or truncates or dtype in known:
        return
    program, _ = ops.elementwise_program(ops.by_name(name), {}, (dtype, dtype), result, profile)
    known[dtype] = (program, result)


def _is_operand(x: Any) -> bool:
    return isinstance(x, Array | np.ndarray | np.generic | int | float | complex | list | tuple)


_run_binary = _core.run_binary
_UFUNC_NAMES = {"true_divide": "divide", "absolute": "abs", "invert": "bitwise_invert"}


class Array(_core.ArrayBase):
    """An n-dimensional array of one element type. Make one with `asarray`."""

    __slots__ = ()
    _dtype: DType
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def __init__(self, bits: ops.Bits) -> None:
        self._data = bits.data
        self._dtype = bits.dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._data, self._dtype.name)

    @property
    def bits(self) -> ops.Bits:
        """The storage bits and their type, not copied."""
        return ops.Bits(self._data, self._dtype)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._data.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The array with its axes reversed."""
        return Array(ops.apply("transpose", [self.bits], dimensions=tuple(reversed(range(self.ndim)))))

    def astype(self, dtype: DTypeLike) -> Array:
        """The elements converted by rules C, rounded once."""
        return convert(self, array_type(dtype))

    def reshape(self, *shape: int | Sequence[int]) -> Array:
        """The same elements in another shape; one length may be -1."""
        dims = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        try:
            return Array(ops.Bits(self._data.reshape(dims), self.dtype))  # type: ignore[arg-type]
        except ValueError as error:
            raise InvalidArgument(f"{self.bits.type} cannot take the shape {dims}") from error

    def tobytes(self) -> bytes:
        """The storage bits, row-major."""
        return self._data.tobytes()

    def tolist(self) -> Any:
        """Nested lists of Python numbers, exact."""
        return exact_values(self).tolist()

    def item(self) -> Any:
        """The only element as a Python number, exact."""
        if self.size != 1:
            raise InvalidArgument(f"item() of an array of {self.size} elements")
        return self.reshape(()).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        native = self._data.view(self.dtype.numpy)
        if dtype is not None and np.dtype(dtype) != native.dtype:
            if copy is False:
                raise ValueError(f"a {self.dtype.name} array does not become {dtype} without a copy")
            return native.astype(dtype)
        return native.copy() if copy else native

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Array:
        # NumPy's functions act by name; nothing falls back to NumPy's own arithmetic.
        name = _UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or kwargs:
            raise UnsupportedType(f"numpy.{ufunc.__name__}.{method} on neuronsim arrays: not there yet")
        from neuronsim import arrays  # whose chapters import this module

        if name not in arrays.FUNCTIONS:
            raise UnsupportedType(f"neuronsim has no numpy.{ufunc.__name__}{nearest(name, ops.OPS)}")
        result: Array = arrays.FUNCTIONS[name](*inputs)
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from neuronsim import arrays  # whose chapters import this module

        own = f"neuronsim.{func.__name__}" if func.__name__ in arrays.FUNCTIONS else "another function"
        raise UnsupportedType(
            f"numpy.{func.__name__} does not compute on neuronsim arrays: call {own}, or numpy.asarray "
            "the array first to use the host's numerics"
        )

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, Array):
            key = np.asarray(key)
        return Array(ops.Bits(np.asarray(self._data[key]), self.dtype))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        text: str = _function("array_repr")(self)
        return text

    def __str__(self) -> str:
        text: str = _function("array_str")(self)
        return text

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in ("signed", "unsigned"):
            raise TypeError(f"a {self.dtype.name} array is not an index")
        return int(self.item())

    def __neg__(self) -> Array:
        return apply_elementwise("negative", self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return apply_elementwise("abs", self)

    def __invert__(self) -> Array:
        return apply_elementwise("bitwise_invert", self)

    __mod__, __rmod__ = _operators("%")
    __floordiv__, __rfloordiv__ = _operators("//")
    __pow__, __rpow__ = _operators("**")
    __lshift__, __rlshift__ = _operators("<<")
    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __truediv__, __rtruediv__ = _operators("/")
    __and__, __rand__ = _operators("&")
    __or__, __ror__ = _operators("|")
    __xor__, __rxor__ = _operators("^")
    __eq__, _ = _operators("==")
    __ne__, _ = _operators("!=")
    __lt__, _ = _operators("<")
    __le__, _ = _operators("<=")
    __gt__, _ = _operators(">")
    __ge__, _ = _operators(">=")

    def __rshift__(self, other: Any) -> Any:
        return _function("right_shift")(self, other) if _is_operand(other) else NotImplemented

    def __rrshift__(self, other: Any) -> Any:
        return _function("right_shift")(other, self) if _is_operand(other) else NotImplemented

    def __matmul__(self, other: Any) -> Any:
        return _function("matmul")(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _function("matmul")(other, self)


def _function(name: str) -> Callable[..., Any]:
    """The function of a chapter, which imports this module."""
    from neuronsim import arrays

    return arrays.FUNCTIONS[name]


def _restore(data: npt.NDArray[Any], dtype: str) -> Array:
    """An Array from a pickle or a deep copy."""
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
        _function("check_device")(device)
    if type(obj) is Array and dtype is None and order is None and not copy:
        return obj
    target = None if dtype is None else array_type(dtype)
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
    data = np.asarray(result.bits.data, order=order)
    copied = copy and source is not None and np.may_share_memory(data, source.bits.data)
    if copied:
        data = np.array(data, order=order or "K")
    return result if data is result.bits.data else Array(ops.Bits(data, result.dtype))


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
            f"{type(obj).__name__} is no array: frombuffer reads the bytes of numbers"
        )
    try:
        exported: Any = memoryview(obj)
    except TypeError:
        exported = obj if hasattr(obj, "__array_interface__") else None
    if exported is None and hasattr(obj, "__dlpack__"):
        found: Array = _function("from_dlpack")(obj)
        return found
    if exported is None and hasattr(obj, "__array__"):
        exported = obj.__array__()
    return None if exported is None else _of_ndarray(np.asarray(exported), copy)


def _of_ndarray(array: npt.NDArray[Any], copy: bool | None) -> Array:
    """The memory of an ndarray; a copy of one whose bytes are swapped or not aligned."""
    dtype = as_dtype(array.dtype.newbyteorder("="))
    if not (array.dtype.isnative and array.flags.aligned):
        if copy is False:
            raise InvalidArgument("asarray: swapped or unaligned bytes need a copy")
        array = array.astype(dtype.numpy)
    return Array(ops.Bits(array.view(dtype.storage), dtype))


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
    if isinstance(obj, Sequence) and not isinstance(obj, list | tuple):
        obj = list(obj)
    strong = [asarray(leaf) for leaf in _strong_leaves(obj)] if isinstance(obj, list | tuple) else []
    if not strong:
        return _of_python_numbers(obj, target)
    common = target or reduce(result_type, (x.dtype for x in strong))

    def nested(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [nested(v) for v in x]
        return asarray(x, common).bits.data

    return Array(ops.Bits(_regular(nested(obj), common.storage), common))


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
    """`x` in another type by rules C; complex and float64 to and from each other by NumPy (H1)."""
    if dtype is x.dtype:
        return x
    if "complex" in (dtype.kind, x.dtype.kind):
        if x.dtype.kind == "complex" and dtype.kind != "complex":
            raise UnsupportedType(f"{x.dtype.name} to {dtype.name} (C6): take the real part first")
        data = x.bits.data if x.dtype.kind == "complex" else convert(x, dtypes.float64).bits.data
        return Array(ops.Bits(data.astype(dtype.numpy), dtype))
    result: ops.Bits = ops.apply("convert", [x.bits], dtype=dtype)
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
    strong = [None if is_weak(x) else asarray(x) for x in operands]
    types = [a.dtype for a in strong if a is not None] or [asarray(x).dtype for x in operands]
    common = reduce(result_type, types)
    arrays = [
        asarray(x, weak_type(x, common)) if a is None else a
        for x, a in zip(operands, strong, strict=True)
    ]
    return arrays, reduce(result_type, (a.dtype for a in arrays), common)


def common_arrays(*operands: Any) -> list[Array]:
    """The operands as arrays of their common type, of whatever shapes: arrays, NumPy's scalars and
    sequences have their own types, Python numbers take the others' (C8).

    Raises UnsupportedType for types without a common one.

    >>> [a.dtype.name for a in common_arrays(asarray([1.5], "bfloat16"), 2)]
    ['bfloat16', 'bfloat16']
    """
    arrays, common = _typed(operands)
    return [convert(a, common) for a in arrays]


_KINDS = ("bool", "unsigned", "signed", "float", "complex")
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def is_cast(source: DType, target: DType, casting: Casting = "same_kind") -> bool:
    """Whether NumPy's `casting` lets a value of one type become one of another: "safe" where the
    lattice says so, "same_kind" where its kind is not of a lower order, "unsafe" always.
    """
    if casting not in get_args(Casting):
        raise InvalidArgument(f"casting is one of {', '.join(get_args(Casting))}, not {casting!r}")
    if source is target or casting == "unsafe":
        return True
    if casting == "same_kind":
        return _KINDS.index(source.kind) <= _KINDS.index(target.kind)
    try:
        return casting == "safe" and result_type(source, target) is target
    except UnsupportedType:
        return False


def write(out: Any, value: Any, where: Any = True, casting: Casting = "same_kind") -> Array:
    """Write `value`, converted by rules C and broadcast, into `out` where `where` holds; gives `out`,
    an Array or an ndarray of one of its types, or the only one in a tuple.

    Raises InvalidArgument if `out` is read-only or of another shape, and UnsupportedType if `casting`
    does not allow the conversion.

    >>> x = asarray([0.0, 0.0], dtype="bfloat16")
    >>> write(x, asarray([1 / 4, 2.0])) is x, x
    (True, Array([0.25, 2.  ], dtype=bfloat16))
    """
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if not isinstance(out, Array | np.ndarray):
        raise UnsupportedType(f"out is an array, not {type(out).__name__}")
    given: Any = out
    target, source = asarray(out, copy=False), asarray(value)
    if not is_cast(source.dtype, target.dtype, casting):
        raise UnsupportedType(
            f"{source.dtype.name} into an array of {target.dtype.name} is no {casting!r} cast: "
            f"convert it with astype, or say casting='unsafe'"
        )
    chosen = asarray(where)
    if chosen.dtype is not dtypes.boolean:
        raise UnsupportedType(f"where is a bool array, not {chosen.dtype.name}")
    data = target.bits.data
    if not data.flags.writeable:
        raise InvalidArgument(f"the array {target.bits.type} is read-only: write into a copy of it")
    try:
        np.copyto(data, convert(source, target.dtype).bits.data, where=chosen.bits.data)
    except ValueError as error:
        raise InvalidArgument(
            f"{source.bits.type}, where {chosen.shape}, does not broadcast into {target.bits.type}"
        ) from error
    result: Array = given
    return result


def apply_elementwise(name: str, *operands: Any) -> Array:
    """Evaluate an elementwise row of `ops` on arrays and numbers, broadcast, in their common type."""
    if len(operands) == 2 and type(operands[0]) is Array and type(operands[1]) is Array:
        known: Array | None = _run_binary(current_profile().derived.get(name), *operands)
        if known is not None:
            return known
    return _elementwise(name, *operands)


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
        if len(operands) == 2:
            _remember(name, first.dtype, result.dtype, profile)
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
        dims = np.broadcast_shapes(*(a.shape for a in values))
    except ValueError as error:
        shapes = ", ".join(str(a.shape) for a in values)
        raise InvalidArgument(f"{name}: the shapes {shapes} do not broadcast") from error
    ops.check_elementwise(op, common, common)
    if name == "power" and common.kind == "signed" and (np.asarray(values[1]) < 0).any():
        raise InvalidArgument("integers to negative integer powers are not integers: use a float type")
    bits = [ops.Bits(np.broadcast_to(a.bits.data, dims), a.dtype) for a in values]
    like = [
        ops.ArrayType(v.dtype if i < len(condition) else common, dims) for i, v in enumerate(values)
    ]
    return Array(ops.apply(name, bits, result=op.infer_array(like, {})))


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
