"""Element types: the device's number formats (rule F), integers, bool, and the host's types.

>>> bfloat16.mantissa_bits, bfloat16.max
(7, 3.3895313892515355e+38)
>>> result_type(bfloat16, float16).name
'float32'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import ml_dtypes
import numpy as np

from neuronsim import _core
from neuronsim.errors import InvalidArgument, UnsupportedType, nearest

Kind = Literal["float", "signed", "unsigned", "bool", "complex"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. Instances are unique; `==` also takes the names and NumPy types that stand for
    one, whose hashes differ, as they do for NumPy's types.

    Called, it makes an Array, as NumPy's scalar types make scalars. `kind` is a word, where NumPy has a
    letter; `device` says whether Trn1 has the type. `storage` is the NumPy type of the bits in memory,
    `numpy` the type that `__array__` gives; `code` is the core's number for it (None for types that
    only the host computes with, and for open formats).

    >>> float32 == "float32", float32 == np.float32, tfloat32 == np.float32
    (True, True, False)
    """

    name: str
    kind: Kind
    bits: int
    storage: np.dtype
    numpy: np.dtype
    code: int | None
    device: bool
    exponent_bits: int = 0
    mantissa_bits: int = 0
    has_inf: bool = False
    nan_bits: int = 0

    # How an Array is made of a value and a type: set by `arrays`, which lies above.
    make_array: ClassVar[Callable[[Any, DType], Any]]
    # Whether a value stands for one of NumPy's scalars, and has a type: set likewise.
    is_scalar: ClassVar[Callable[[object], bool]]

    def __call__(self, x: Any = 0, /) -> Any:
        """An Array of `x` in this type, rounded once from its exact value (C1); 0-d of a number."""
        return DType.make_array(x, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType) or other is None:
            return self is other
        try:
            return self is as_dtype(other)  # type: ignore[arg-type]
        except UnsupportedType:
            return False

    __hash__ = object.__hash__

    def __instancecheck__(self, x: Any) -> bool:
        """Whether `x` is a 0-d Array or a NumPy scalar of this type, as `isinstance` asks.

        >>> isinstance(float32(1.5), float32), isinstance(np.int8(1), int8), isinstance(1, int64)
        (True, True, False)
        """
        return DType.is_scalar(x) and bool(self == x.dtype)

    def __subclasscheck__(self, other: Any) -> bool:
        """Whether `other` is this type or NumPy's of its name, as `issubclass` asks of `dtype.type`."""
        is_type = isinstance(other, type) and issubclass(other, np.generic)
        return (is_type or type(other) is DType) and bool(self == other)

    def __repr__(self) -> str:
        return f"neuronsim.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)  # so that a copy is the same instance

    @property
    def type(self) -> DType:
        """The type itself: what NumPy's dtypes call to make a scalar."""
        return self

    @property
    def __numpy_dtype__(self) -> np.dtype:
        """NumPy's own type, which NumPy 2.4 and newer ask for where they take one: an ndarray's
        `astype(float32)` in a program that changed its import.

        Raises UnsupportedType where it has none.
        """
        if _BY_NUMPY.get(self.numpy) is not self:
            raise UnsupportedType(f"NumPy has no {self.name}: make an Array, asarray(x, {self.name!r})")
        return self.numpy

    @property
    def itemsize(self) -> int:
        """Bytes of one element in storage."""
        return self.storage.itemsize

    @property
    def max(self) -> float:
        """The largest finite value of a device float format.

        >>> float16.max, float8_e4m3.max, float8_e4m3fn.max
        (65504.0, 240.0, 448.0)
        """
        top = (1 << self.exponent_bits) - 1 - (1 if self.has_inf else 0)
        # Without Inf the top exponent holds numbers too; its last significand is the NaN.
        significand = 2 - 2.0**-self.mantissa_bits * (1 if self.has_inf else 2)
        bias = (1 << (self.exponent_bits - 1)) - 1
        return float(significand * 2.0 ** (top - bias))

    @property
    def eps(self) -> float:
        """The distance from 1 to the next larger value of a device float format."""
        return 2.0**-self.mantissa_bits

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal value of a device float format.

        >>> float16.smallest_normal == 2**-14, float_format(4, 3).smallest_normal == 2**-6
        (True, True)
        """
        return 2.0 ** (2 - (1 << (self.exponent_bits - 1)))

    @property
    def is_open(self) -> bool:
        """Whether it is an open format: one that plans round to, and that no array has."""
        return self.code is None and self.exponent_bits > 0


def _format_row(row: tuple[str, int, int, int, bool, int, int]) -> DType:
    name, exponent_bits, mantissa_bits, _, has_inf, nan_bits, storage_bytes = row
    wide = name in ("float32", "tfloat32")
    own = {"tfloat32": np.float32, "float32": np.float32, "float16": np.float16}
    return DType(
        name=name,
        kind="float",
        bits=1 + exponent_bits + mantissa_bits,
        storage=np.dtype(np.float32 if wide else f"u{storage_bytes}"),
        numpy=np.dtype(own.get(name) or getattr(ml_dtypes, name)),
        code=_core.DTYPES.index(name),
        # Trn1 has no e4m3fn (NCC_EVRF051): it is read and cast, not computed with.
        device=name != "float8_e4m3fn",
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        has_inf=has_inf,
        nan_bits=nan_bits,
    )


def _plain(name: str, kind: Kind, device: bool) -> DType:
    numpy = np.dtype(name)
    code = _core.DTYPES.index(name) if name in _core.DTYPES else None
    bits = 1 if kind == "bool" else 8 * numpy.itemsize
    return DType(name, kind, bits, numpy, numpy, code, device)


_FORMATS = {row[0]: _format_row(row) for row in _core.FORMATS}
float32, tfloat32 = _FORMATS["float32"], _FORMATS["tfloat32"]
bfloat16, float16 = _FORMATS["bfloat16"], _FORMATS["float16"]
float8_e5m2, float8_e4m3 = _FORMATS["float8_e5m2"], _FORMATS["float8_e4m3"]
float8_e3m4, float8_e4m3fn = _FORMATS["float8_e3m4"], _FORMATS["float8_e4m3fn"]
float64 = _plain("float64", "float", device=False)
int8, int16 = _plain("int8", "signed", True), _plain("int16", "signed", True)
int32, int64 = _plain("int32", "signed", True), _plain("int64", "signed", True)
uint8, uint16 = _plain("uint8", "unsigned", True), _plain("uint16", "unsigned", True)
uint32, uint64 = _plain("uint32", "unsigned", True), _plain("uint64", "unsigned", True)
boolean = _plain("bool", "bool", True)
complex64 = _plain("complex64", "complex", device=False)
complex128 = _plain("complex128", "complex", device=False)

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        *_FORMATS.values(),
        *(float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, boolean),
        *(complex64, complex128),
    )
}
_BY_NUMPY = {t.numpy: t for t in DTYPES.values() if t is not tfloat32}


def _numpy_spellings() -> dict[str, DType]:
    """NumPy's other names of its types: "float", "half", "e", "f2", "<f2", ..."""
    native = {t.numpy: t for t in _BY_NUMPY.values() if t.numpy.isbuiltin == 1}
    codes = [f"{order}{t.str[1:]}" for t in native for order in ("", "=", "<", "|")]
    names = [*np.typecodes["AllInteger"], *np.typecodes["AllFloat"], "?", *codes]
    names += [name for name in np.sctypeDict if isinstance(name, str)]
    known = {name: np.dtype(name) for name in names if name != "a"}  # deprecated by NumPy
    return {name: native[t] for name, t in known.items() if t in native}


_NUMPY_SPELLINGS = _numpy_spellings()
# The short names of flags and of other frameworks; AWS's float8 is e4m3 (`--auto-cast-type fp8_e4m3`).
_SHORT_NAMES = {
    "bf16": bfloat16,
    "fp16": float16,
    "fp32": float32,
    "fp64": float64,
    "tf32": tfloat32,
    "fp8": _FORMATS["float8_e4m3"],
    "fp8_e4m3": _FORMATS["float8_e4m3"],
    "fp8_e5m2": _FORMATS["float8_e5m2"],
}

DTypeLike: TypeAlias = DType | str | type | np.dtype
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
CASTING: tuple[Casting, ...] = get_args(Casting)


def float_format(exponent_bits: int, mantissa_bits: int) -> DType:
    """The open format with these bits beside the sign: a type that a plan rounds float32 values to by
    `reduce-precision` (C9): to nearest even, as IEEE 754 has it but for subnormals, which only formats
    with float32's exponent have. (8, 10) is tfloat32 and (8, 23) float32; the others have no arrays.

    Raises UnsupportedType unless there are 2 to 8 exponent bits and 1 to 23 of the mantissa.

    >>> float_format(6, 9), float_format(6, 9).max, float_format(6, 9) is as_dtype("float(6,9)")
    (neuronsim.float(6,9), 4290772992.0, True)
    >>> float_format(8, 10) is tfloat32
    True
    """
    if not (2 <= exponent_bits <= 8 and 1 <= mantissa_bits <= 23):
        raise UnsupportedType(
            f"float({exponent_bits},{mantissa_bits}) is not an open format: they have 2 to 8 exponent "
            "bits and 1 to 23 mantissa bits, since they travel in float32 (C9)"
        )
    return _open_format(exponent_bits, mantissa_bits)


@cache
def _open_format(exponent_bits: int, mantissa_bits: int) -> DType:
    for same in (tfloat32, float32):
        if (exponent_bits, mantissa_bits) == (same.exponent_bits, same.mantissa_bits):
            return same
    return DType(
        name=f"float({exponent_bits},{mantissa_bits})",
        kind="float",
        bits=1 + exponent_bits + mantissa_bits,
        storage=float32.storage,
        numpy=float32.numpy,
        code=None,
        device=True,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        has_inf=True,
        nan_bits=float32.nan_bits,
    )


_OPEN_NAME = re.compile(r"float\((\d{1,2}), ?(\d{1,2})\)", re.ASCII)


def as_dtype(x: DTypeLike) -> DType:
    """The DType that a name, a NumPy type, NumPy's name or code for one ("float" is float64, "f4" is
    float32), a short name (bf16, fp16, tf32, fp8), or a DType stands for; "float(6,9)" names an open
    format.

    Raises UnsupportedType for anything else.

    >>> as_dtype("bfloat16") is as_dtype(ml_dtypes.bfloat16), as_dtype("f4") is float32
    (True, True)
    >>> [as_dtype(name).name for name in ("bf16", "fp16", "tf32", "fp8")]
    ['bfloat16', 'float16', 'tfloat32', 'float8_e4m3']
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        named = DTYPES.get(x) or _NUMPY_SPELLINGS.get(x) or _SHORT_NAMES.get(x)
        if named is not None:
            return named
    if isinstance(x, str) and (bits := _OPEN_NAME.fullmatch(x)):
        return float_format(int(bits[1]), int(bits[2]))
    if x is not None and not isinstance(x, str):
        try:
            found = _BY_NUMPY.get(np.dtype(x))
        except (RecursionError, TypeError, ValueError):
            found = None
        if found is not None:
            return found
    advice = ": a shape is one tuple" if isinstance(x, int) else nearest(str(x), DTYPES)
    raise UnsupportedType(f"{x!r} is not an element type of neuronsim{advice}")


def _float_pair(a: DType, b: DType) -> DType | None:
    if float64 in (a, b):
        return float64
    if a.bits == b.bits == 8:
        return bfloat16  # two kinds of float8
    low, high = (a, b) if a.bits < b.bits else (b, a)
    if low.bits == 8:
        return high
    if high is float32 or low.bits == high.bits == 16:
        return float32  # bfloat16 with float16 holds neither in the other
    return tfloat32 if high is tfloat32 else None


def result_type(a: DType, b: DType) -> DType:
    """The type of an operation on two arrays: the small lattice (C8).

    Raises UnsupportedType for a pair that is not in it.
    """
    if a is b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    found: DType | None = None
    if a.kind == b.kind == "float":
        found = _float_pair(a, b)
    elif a.kind in ("signed", "unsigned") and b.kind in ("signed", "unsigned"):
        numpy = np.result_type(a.numpy, b.numpy)
        found = _BY_NUMPY[numpy] if numpy.kind in "iu" else None
    elif "complex" not in (a.kind, b.kind):
        found = a if a.kind == "float" else b
    else:
        found = _BY_NUMPY.get(np.result_type(a.numpy, b.numpy))
    if found is None:
        raise UnsupportedType(
            f"{a.name} and {b.name} have no common type: convert one of them with astype"
        )
    return found


_ORDER_OF_KINDS: tuple[Kind, ...] = ("bool", "unsigned", "signed", "float", "complex")


def can_cast(a: DType, b: DType, casting: Casting = "safe") -> bool:
    """Whether NumPy's rule `casting` lets values of `a` become `b`: "no" and "equiv" the type itself;
    "safe" a type that holds every value (of NumPy's own types, what NumPy says); "same_kind" also a
    narrower type of the kind and any type of a kind that follows in bool, unsigned, signed, float,
    complex; "unsafe" all.

    >>> can_cast(float16, float32), can_cast(float32, bfloat16), can_cast(float16, bfloat16)
    (True, False, False)
    >>> can_cast(float32, bfloat16, "same_kind")
    True
    """
    if casting not in CASTING:
        raise InvalidArgument(
            f"casting is one of {', '.join(CASTING)}, not {casting!r}{nearest(str(casting), CASTING)}"
        )
    if a is b:
        return True
    if casting in ("no", "equiv"):
        return False
    rank = _ORDER_OF_KINDS.index(b.kind) - _ORDER_OF_KINDS.index(a.kind)
    return casting == "unsafe" or (casting == "same_kind" and rank >= 0) or _holds(b, a)


def _holds(b: DType, a: DType) -> bool:
    """Whether `b` is a safe type for the values of `a`, which is another."""
    if all(t.numpy.isbuiltin == 1 and t is not tfloat32 for t in (a, b)):
        return np.can_cast(a.numpy, b.numpy)
    try:
        common = result_type(a, b)
    except UnsupportedType:
        return False
    is_exact = a.kind not in ("signed", "unsigned") or a.bits <= b.mantissa_bits + 1
    return common is b and is_exact
