"""Types: what a type holds, which kind it is of, and which type several have in common.

>>> finfo("bfloat16").max, iinfo("int8").min
(3.3895313892515355e+38, -128)
>>> result_type("bfloat16", "float16"), issubdtype("bfloat16", floating)
(neuronsim.float32, True)
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, is_weak, weak_type
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.dtypes import Casting, DType, DTypeLike
from neuronsim.errors import InvalidArgument, UnsupportedType, nearest
from neuronsim.processor import pinned

__all__ = [
    *("can_cast", "common_type", "dtype", "finfo", "iinfo", "iscomplexobj", "isdtype", "isrealobj"),
    *("isscalar", "issubdtype", "iterable", "min_scalar_type", "promote_types", "result_type"),
]


def _is_scalar(x: object) -> bool:
    return isinstance(x, np.generic) or (isinstance(x, Array) and x.ndim == 0)


DType.make_array = pinned(asarray)
DType.is_scalar = _is_scalar
iterable = np.iterable  # asks only for __iter__


def dtype(x: DTypeLike | Array, /) -> DType:
    """The DType that a name, a NumPy type, Python's `float`, `int`, `bool` or `complex`, or an array's
    type stands for. Raises UnsupportedType for anything else.

    >>> dtype("bfloat16"), dtype(np.int8), dtype(float)
    (neuronsim.bfloat16, neuronsim.int8, neuronsim.float64)
    """
    return array_type(x.dtype if isinstance(x, Array) else x)


# ---- kinds --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AbstractType:
    """A node of NumPy's hierarchy of scalar types: no array has it, `issubdtype` and `issubclass` take
    it, and `isinstance` finds the 0-d Arrays and NumPy scalars below it.

    >>> isinstance(asarray(1.5), floating), isinstance(asarray([1.5]), floating)
    (True, False)
    >>> issubclass(asarray([1, 2]).dtype.type, integer)
    True
    """

    name: str
    parent: AbstractType | None

    def __repr__(self) -> str:
        return f"neuronsim.{self.name}"

    def __instancecheck__(self, x: Any) -> bool:
        return _is_scalar(x) and self.__subclasscheck__(x.dtype.type)

    def __subclasscheck__(self, other: Any) -> bool:
        is_type = isinstance(other, type) and issubclass(other, np.generic)
        try:
            return (is_type or type(other) in (DType, AbstractType)) and issubdtype(other, self)
        except UnsupportedType:
            return False


generic = AbstractType("generic", None)
number = AbstractType("number", generic)
integer = AbstractType("integer", number)
signedinteger = AbstractType("signedinteger", integer)
unsignedinteger = AbstractType("unsignedinteger", integer)
inexact = AbstractType("inexact", number)
floating = AbstractType("floating", inexact)
complexfloating = AbstractType("complexfloating", inexact)

_PARENTS: dict[dtypes.Kind, AbstractType] = {
    "bool": generic,
    "signed": signedinteger,
    "unsigned": unsignedinteger,
    "float": floating,
    "complex": complexfloating,
}
_ABSTRACT = {
    t.name: t
    for t in (
        *(generic, number, integer, signedinteger, unsignedinteger, inexact, floating),
        complexfloating,
    )
}

# NumPy 2's other names of its types, as it has them on 64-bit Linux.
byte, short, intc, int_, intp, long, longlong = (
    *(dtypes.int8, dtypes.int16, dtypes.int32),
    *(dtypes.int64,) * 4,
)
ubyte, ushort, uintc, uint, uintp, ulong, ulonglong = (
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32),
    *(dtypes.uint64,) * 4,
)
half, single, double = dtypes.float16, dtypes.float32, dtypes.float64
csingle, cdouble, bool_ = dtypes.complex64, dtypes.complex128, dtypes.boolean

# What the package exports beside the types' own names.
TYPE_NAMES = (
    *(*_ABSTRACT, "bool_", "byte", "cdouble", "csingle", "double", "half", "int_", "intc", "intp"),
    *("long", "longlong", "short", "single", "ubyte", "uint", "uintc", "uintp", "ulong", "ulonglong"),
    "ushort",
)

# The standard's words for kinds of types.
KINDS: dict[str, tuple[dtypes.Kind, ...]] = {
    "bool": ("bool",),
    "signed integer": ("signed",),
    "unsigned integer": ("unsigned",),
    "integral": ("signed", "unsigned"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed", "unsigned", "float", "complex"),
}


def isdtype(dtype: DTypeLike, kind: DTypeLike | str | tuple[DTypeLike | str, ...]) -> bool:
    """Whether a type is of a kind: a type, one of the standard's words ("bool", "signed integer",
    "unsigned integer", "integral", "real floating", "complex floating", "numeric"), or a tuple of
    these. The device's formats are real floating.

    >>> isdtype(dtypes.bfloat16, "real floating"), isdtype(dtypes.int8, ("bool", "unsigned integer"))
    (True, False)
    """
    t = array_type(dtype)
    if isinstance(kind, tuple):
        return any(_is_of(t, k) for k in kind)
    return _is_of(t, kind)


def _is_of(t: DType, kind: DTypeLike) -> bool:
    if isinstance(kind, str):
        if kind not in KINDS:
            raise InvalidArgument(
                f"isdtype knows the kinds {', '.join(map(repr, KINDS))}, not {kind!r}"
                f"{nearest(kind, KINDS)}"
            )
        return t.kind in KINDS[kind]
    return t is array_type(kind)


def issubdtype(arg1: DTypeLike | AbstractType, arg2: DTypeLike | AbstractType) -> bool:
    """Whether the first type is the second one or lies below it in NumPy's hierarchy: `generic` over
    `bool` and `number`, this over `integer` (`signedinteger`, `unsignedinteger`) and `inexact`
    (`floating`, `complexfloating`). Every float type of the device is `floating`.

    >>> issubdtype(dtypes.float8_e4m3, inexact), issubdtype("bool", number)
    (True, False)
    """
    below, above = _node(arg1), _node(arg2)
    while below is not above:
        parent = below.parent if isinstance(below, AbstractType) else _PARENTS[below.kind]
        if parent is None:
            return False
        below = parent
    return True


def _node(x: DTypeLike | AbstractType) -> DType | AbstractType:
    if isinstance(x, AbstractType):
        return x
    named = x.__name__ if isinstance(x, type) and issubclass(x, np.generic) else x
    if isinstance(named, str) and named in _ABSTRACT:
        return _ABSTRACT[named]
    return array_type(x)


def iscomplexobj(x: Any) -> bool:
    """Whether the elements of `x` are of a complex type, whatever their imaginary parts are."""
    return asarray(x).dtype.kind == "complex"


def isrealobj(x: Any) -> bool:
    """Whether the elements of `x` are of no complex type."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number, a string or a NumPy scalar, or what stands for one here: a 0-d
    Array.
    """
    if isinstance(element, Array):
        return element.ndim == 0
    return isinstance(element, np.generic | numbers.Number | str | bytes)


# ---- ranges -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FloatingLimits:
    """What `finfo` tells of a float type, as Python floats, which hold them all. `dtype` is the type
    of a complex type's parts.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's name of `smallest_normal`."""
        return self.smallest_normal

    @property
    def precision(self) -> int:
        """How many decimal digits the type is sure to hold."""
        return int(-math.log10(self.eps))

    @property
    def resolution(self) -> float:
        """10 to the power of minus `precision`."""
        return float(10.0**-self.precision)


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` tells of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


_PARTS = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}


def _type_of(x: Any) -> DType:
    """The type of an array, or that `x` stands for."""
    if isinstance(x, Array | np.ndarray | np.generic):
        return array_type(x.dtype)
    return array_type(x)


def finfo(type: DTypeLike | Array, /) -> FloatingLimits:  # noqa: A002
    """The limits of a float type, of an array's one, or of the parts of a complex one: rule F's table.
    Subnormals are the format's, whatever the profile's `subnormals` says (C4).

    Raises InvalidArgument for other kinds.

    >>> finfo(dtypes.float8_e4m3).max, finfo("tfloat32").eps == 2**-10
    (240.0, True)
    """
    t = _type_of(type)
    t = _PARTS.get(t, t)
    if t.kind != "float":
        raise InvalidArgument(f"finfo of {t.name}: a float type is needed; iinfo knows integer types")
    if not t.exponent_bits:
        host = np.finfo(t.numpy)
        return FloatingLimits(
            host.bits,
            float(host.eps),
            float(host.max),
            float(host.min),
            float(host.smallest_normal),
            float(host.smallest_subnormal),
            t,
        )
    least = t.smallest_normal
    return FloatingLimits(t.bits, t.eps, t.max, -t.max, least, least * t.eps, t)


def iinfo(type: DTypeLike | Array, /) -> IntegerLimits:  # noqa: A002
    """The limits of an integer type or of an array's one; raises InvalidArgument for other kinds.

    >>> iinfo("uint16").max
    65535
    """
    t = _type_of(type)
    if t.kind not in ("signed", "unsigned"):
        raise InvalidArgument(f"iinfo of {t.name}: an integer type is needed; finfo knows float types")
    host = np.iinfo(t.numpy)
    return IntegerLimits(t.bits, int(host.max), int(host.min), t)


# ---- common types -------------------------------------------------------------------------------


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type of an operation on these arrays, types and Python numbers: the small lattice; numbers
    are weak and take the others' type (C8).

    Raises UnsupportedType for types that have no common one, InvalidArgument for no operands.

    >>> result_type("bfloat16", dtypes.float8_e5m2, 1.5), result_type(asarray([1, 2]), 0.5)
    (neuronsim.bfloat16, neuronsim.float32)
    """
    weak = [x for x in arrays_and_dtypes if is_weak(x)]
    strong = [_type_of(x) for x in arrays_and_dtypes if not is_weak(x)]
    if not arrays_and_dtypes:
        raise InvalidArgument("result_type needs an array, a type or a number")
    found = strong[0] if strong else dtypes.boolean
    for t in strong[1:]:
        found = dtypes.result_type(found, t)
    for x in weak:
        found = dtypes.result_type(found, weak_type(x, found))
    return found


def promote_types(type1: DTypeLike, type2: DTypeLike) -> DType:
    """The type that holds the values of both, by the small lattice; raises UnsupportedType if none is.

    >>> promote_types("float8_e4m3", "float8_e5m2")
    neuronsim.bfloat16
    """
    return dtypes.result_type(array_type(type1), array_type(type2))


def can_cast(from_: DTypeLike | Array, to: DTypeLike, /, casting: Casting = "safe") -> bool:
    """Whether values of a type, or of an array's one, may become another under a rule of casting:
    "no", "equiv", "safe", "same_kind" or "unsafe" (`neuronsim.dtypes.can_cast` states them).

    >>> can_cast("float32", "bfloat16"), can_cast("float32", "bfloat16", casting="same_kind")
    (False, True)
    """
    return dtypes.can_cast(_type_of(from_), array_type(to), casting)


def common_type(*arrays: Any) -> DType:
    """The float or complex type that these arrays have in common, integers counting as the default
    float type. Raises InvalidArgument for bool, as NumPy does.

    >>> common_type(asarray([1, 2]), asarray([0.5], dtype="bfloat16"))
    neuronsim.float32
    """
    found = [asarray(a).dtype for a in arrays]
    if dtypes.boolean in found:
        raise InvalidArgument("common_type of bool: a number is needed; convert it with astype")
    integers = ("signed", "unsigned")
    floats = [default_dtype() if t.kind in integers else t for t in found]
    return result_type(*floats) if floats else default_dtype()


def min_scalar_type(a: Any, /) -> DType:
    """The least of NumPy's types that holds a number without overflow, as NumPy counts; the own type
    of an array with axes, and of values in formats that NumPy does not have.

    >>> min_scalar_type(300), min_scalar_type(-3), min_scalar_type(1e30)
    (neuronsim.uint16, neuronsim.int8, neuronsim.float32)
    """
    x = asarray(a)
    if x.ndim or x.dtype is dtypes.tfloat32 or x.dtype.numpy.isbuiltin != 1:
        return x.dtype
    return array_type(np.min_scalar_type(a if is_weak(a) else np.asarray(x)))
