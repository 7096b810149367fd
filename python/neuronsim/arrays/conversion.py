"""From and to other types: what an object is as an array, and each rounding to another type (rules C).

>>> asarray([1.0, 2.5, 1 / 3], dtype="bfloat16")
Array([1.   , 2.5  , 0.334], dtype=bfloat16)
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes, ops
from neuronsim.arrays import dlpack
from neuronsim.arrays.array_object import Array, check_order, of_ndarray, traced_part
from neuronsim.arrays.default_types import array_type, default_complex, default_dtype
from neuronsim.arrays.device import check_device
from neuronsim.arrays.doors import door, remember
from neuronsim.dtypes import Casting, DType, DTypeLike, can_cast, result_type
from neuronsim.errors import IntegerOverflow, InvalidArgument, OutOfMemory, UnsupportedType
from neuronsim.profiles import Profile, current_profile
from neuronsim.reference.formats import exact as exact_number
from neuronsim.reference.formats import round_number


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
            return of_ndarray(obj, copy)
    target = None if dtype is None else array_type(dtype)
    if type(obj) is float and copy is not False:
        return convert(Array(ops.Bits(np.asarray(obj), dtypes.float64)), target or default_dtype())
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
        check_order(order)
    if not isinstance(result._data, np.ndarray):  # what records
        turned = order == "C" and not result._data.flags.c_contiguous
        return copied(result) if copy or turned else result
    data = np.asarray(result.bits.data, order=order)
    if copy and source is not None and data is source.bits.data:
        data = np.array(data, order=order or "K")
    return result if data is result.bits.data else Array(ops.Bits(data, result.dtype))


INTEGRAL = ("signed", "unsigned", "bool")  # the kinds of types that hold no fractions
_NUMBERS = (bool, int, float, complex)


def is_weak(x: Any) -> bool:
    """Whether `x` is a Python number, which takes the type of the arrays beside it (C8)."""
    return isinstance(x, _NUMBERS) and not isinstance(x, np.generic)


def _of_memory(obj: Any, copy: bool | None) -> Array | None:
    """The memory that an object exports, as it lies there; None of numbers and sequences of them."""
    if isinstance(obj, np.ndarray | np.generic):
        return of_ndarray(np.asarray(obj), copy)
    if is_weak(obj) or isinstance(obj, list | tuple):
        return None
    if isinstance(obj, str | bytes):
        raise UnsupportedType(
            f"asarray: {reprlib.repr(obj)} is no number: make numbers of text with int or float, "
            "of bytes with frombuffer"
        )
    try:
        exported: Any = memoryview(obj)
    except (TypeError, BufferError):  # JAX exports no memory of types that Python has not
        exported = obj if hasattr(obj, "__array_interface__") else None
    if exported is None and hasattr(obj, "__dlpack__"):
        return Array(dlpack.from_dlpack(obj))
    if exported is None and hasattr(obj, "__array__"):
        exported = obj.__array__()
    return None if exported is None else of_ndarray(np.asarray(exported), copy)


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
    if traced_part(tuple(x._data for x in strong)) is not None:
        return _joined(obj, common)

    def nested(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [nested(v) for v in x]
        return asarray(x, common).bits.data

    return Array(ops.Bits(_regular(nested(obj), common.storage), common))


def _joined(x: Any, dtype: DType) -> Array:
    """Nested sequences in which an array records, along new axes."""
    if not isinstance(x, list | tuple):
        return asarray(x, dtype)
    parts = [_joined(v, dtype).bits.data for v in x]
    if len({p.shape for p in parts}) != 1:
        shapes = ", ".join(str(p.shape) for p in parts) or "none"
        raise InvalidArgument(f"asarray: the sequences do not make an array: parts of {shapes}")
    return Array(ops.Bits(np.stack(parts), dtype))


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
    exact = array
    if array.dtype == object or (array.dtype.kind == "f" and not (abs(array) < 2**53).all()):
        exact = np.asarray(x, object)
    if target is None and array.dtype.kind in "fc":
        target = default_dtype() if array.dtype.kind == "f" else default_complex()
    if target is None and array.dtype == object:
        target = dtypes.int64
    if exact.dtype == object and target is not None and _needs_exact(exact):
        return _exactly(exact, target)
    if target is not None and target.kind in ("signed", "unsigned") and array.dtype.kind in "iu":
        _check_range(array, target)
    result = of_ndarray(array, None)
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
    return x if dtype is x._dtype else _converted(x, dtype)


def _evaluate_conversion(x: Array, dtype: DType) -> Array:
    if "complex" in (dtype.kind, x.dtype.kind):
        if dtype is dtypes.boolean:
            return Array(ops.Bits(np.asarray(x.bits.data != 0), dtype))
        if x.dtype.kind == "complex" and dtype.kind != "complex":
            raise UnsupportedType(f"{x.dtype.name} to {dtype.name} (C6): take the real part first")
    result: ops.Bits = ops.apply("convert", [x.bits], dtype=dtype)

    def call() -> _core.EagerCall:
        program = conversion_program(x._dtype, dtype, current_profile())
        return _core.EagerChain(dtype, [x._dtype], program, None, None)

    if dtype.code is not None and x._dtype.code is not None:
        remember("convert", x._dtype, call, dtype)
    return Array(result)


_converted = door(_evaluate_conversion, "convert")


def conversion_program(source: DType, target: DType, profile: Profile) -> _core.Chain:
    """The program that rounds one type to another (C1)."""
    return ops.elementwise_chain(ops.by_name("convert"), {}, (source,), target, profile)[0]


def weak_type(value: bool | int | float | complex, beside: DType) -> DType:
    """The type of a Python number beside an array of another type (C8)."""
    if isinstance(value, int):
        # An integer beside a bool array is an int64; a bool takes any type.
        is_number = beside is dtypes.boolean and not isinstance(value, bool)
        return dtypes.int64 if is_number else beside
    if isinstance(value, complex) and beside.kind != "complex":
        wide = beside if beside.kind == "float" else default_dtype()
        return dtypes.complex128 if wide is dtypes.float64 else dtypes.complex64
    return beside if beside.kind in ("float", "complex") else default_dtype()


def typed(operands: Sequence[Any]) -> tuple[list[Array], DType]:
    """The operands as arrays, Python numbers in the type of the others (C8), and their common type."""
    if not operands:
        raise InvalidArgument("nothing has no common type: give an array or a number")
    strong = [None if is_weak(x) else asarray(x) for x in operands]
    types = [a.dtype for a in strong if a is not None] or [asarray(x).dtype for x in operands]
    common = reduce(result_type, types)
    arrays = [
        weak_array(x, weak_type(x, common)) if a is None else a
        for x, a in zip(operands, strong, strict=True)
    ]
    return arrays, reduce(result_type, (a.dtype for a in arrays), common)


_MOST_WEAK_ARRAYS = 1024


def weak_array(value: bool | int | float | complex, dtype: DType) -> Array:
    """A Python number rounded once to a type (C8): read-only, and kept with the profile."""
    if value != value:  # a NaN, whose sign no key tells
        return asarray(value, dtype)
    known = current_profile().parts.setdefault(weak_array, {})
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
    arrays, common = typed(operands)
    return [convert(a, common) for a in arrays]


def check_cast(source: DType, target: DType, casting: Casting) -> None:
    """Raises UnsupportedType where `casting` does not let one type become the other."""
    if not can_cast(source, target, casting):
        raise UnsupportedType(
            f"{source.name} to {target.name} is no {casting!r} cast: say casting='unsafe', or convert "
            "with astype"
        )


def let_record(x: Array, other: Any) -> None:
    """Makes the memory of an array record where what is written into it, or where, does.

    Raises InvalidArgument if another array shares the memory, which could not follow.
    """
    if not isinstance(x._data, np.ndarray) or isinstance(other, np.ndarray):
        return
    if sys.getrefcount(x._data) > 2 or isinstance(x._data.base, np.ndarray):
        raise InvalidArgument(
            f"a traced value is written into {x.bits.type}, whose memory another array shares: write "
            "into a copy of it"
        )
    other.__neuronsim_adopt__(x)


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
    converted = convert(source, target._dtype)._data
    if not isinstance(converted, np.ndarray) and isinstance(data, np.ndarray):
        del data
        let_record(target, converted)
        data = target._data
    try:
        np.copyto(data, converted, where=chosen)
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


def float_array(x: Any) -> Array:
    """An array of a float type: integers and bool take the default one."""
    a = asarray(x)
    if a.dtype.kind in INTEGRAL:
        return convert(a, default_dtype())
    return a


def in_floats(*operands: Any) -> list[Array]:
    """The operands in their common float type; integers and bool take the default one."""
    arrays = common_arrays(*operands)
    return [convert(a, default_dtype()) if a.dtype.kind in INTEGRAL else a for a in arrays]


def real_float(name: str, x: Any) -> Array:
    a = float_array(x)
    if a.dtype.kind != "float":
        raise UnsupportedType(
            f"{name} is not defined for {a.dtype.name}: take its real or imaginary part"
        )
    return a


def native(x: Any) -> Any:
    """An array as NumPy's; anything else as it is."""
    return np.asarray(x) if isinstance(x, Array) else x


def copied(x: Array) -> Array:
    """The elements themselves, in an array of their own (E6)."""
    return Array(ops.Bits(x.bits.data.copy(), x.dtype))
