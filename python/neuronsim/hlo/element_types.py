"""XLA's element types: their numbers, their names in HLO text, and where a literal keeps elements.

>>> BY_NAME["bf16"].dtype
neuronsim.bfloat16
"""

from __future__ import annotations

from dataclasses import dataclass

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import UnsupportedType


@dataclass(frozen=True)
class ElementType:
    """One row: xla.PrimitiveType's number, the text's name, and the field of a LiteralProto."""

    number: int
    name: str
    dtype: DType
    literal_field: str


ELEMENT_TYPES = tuple(
    ElementType(number, name, dtype, f"{name}s")
    for number, name, dtype in (
        (1, "pred", dtypes.boolean),
        (2, "s8", dtypes.int8),
        (3, "s16", dtypes.int16),
        (4, "s32", dtypes.int32),
        (5, "s64", dtypes.int64),
        (6, "u8", dtypes.uint8),
        (7, "u16", dtypes.uint16),
        (8, "u32", dtypes.uint32),
        (9, "u64", dtypes.uint64),
        (10, "f16", dtypes.float16),
        (11, "f32", dtypes.float32),
        (12, "f64", dtypes.float64),
        (15, "c64", dtypes.complex64),
        (16, "bf16", dtypes.bfloat16),
        (18, "c128", dtypes.complex128),
        (19, "f8e5m2", dtypes.float8_e5m2),
        (20, "f8e4m3fn", dtypes.float8_e4m3fn),
        (28, "f8e4m3", dtypes.float8_e4m3),
        (29, "f8e3m4", dtypes.float8_e3m4),
    )
)
BY_NUMBER = {t.number: t for t in ELEMENT_TYPES}
BY_NAME = {t.name: t for t in ELEMENT_TYPES}
BY_DTYPE = {t.dtype: t for t in ELEMENT_TYPES}
TUPLE, TOKEN = 13, 17

# What neuronsim does not read: the name and the code that AWS's compiler gives it.
_UNSUPPORTED = {
    14: ("opaque", "NCC_ESPP004"),
    21: ("s4", "NCC_ESPP004"),
    22: ("u4", "NCC_ESPP004"),
    23: ("f8e4m3b11fnuz", "NCC_EVRF005"),
    24: ("f8e5m2fnuz", "NCC_EVRF005"),
    25: ("f8e4m3fnuz", "NCC_EVRF005"),
    26: ("s2", "NCC_ESPP004"),
    27: ("u2", "NCC_ESPP004"),
    30: ("s1", "NCC_ESPP004"),
    31: ("u1", "NCC_ESPP004"),
    32: ("f4e2m1fn", "NCC_ESPP004"),
    33: ("f8e8m0fnu", "NCC_ESPP047"),
    34: ("buffer", "NCC_ESPP004"),
    35: ("f6e3m2fn", "NCC_ESPP004"),
    36: ("f6e2m3fn", "NCC_ESPP004"),
}


def by_number(number: int) -> ElementType:
    """The row of a number in a file; raises UnsupportedType where there is none."""
    if number in BY_NUMBER:
        return BY_NUMBER[number]
    name, code = _UNSUPPORTED.get(number, (f"number {number}", "NCC_ESPP004"))
    raise _unsupported(name, code)


def by_name(name: str) -> ElementType:
    """The row of a name in HLO text; raises UnsupportedType where there is none."""
    if name in BY_NAME:
        return BY_NAME[name]
    raise _unsupported(name, dict(_UNSUPPORTED.values()).get(name, "NCC_ESPP004"))


def _unsupported(name: str, code: str) -> UnsupportedType:
    return UnsupportedType(
        f"[{code}] element type {name} is not one that neuronsim reads: convert the model to a device "
        "type first"
    )
