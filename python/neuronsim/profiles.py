"""Profile: every choice that decides a bit, with its evidence.

>>> Profile().reduce_tile
512
>>> with use_profile(int_to_float="exact"):
...     current_profile().int_to_float
'exact'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from neuronsim.errors import InvalidArgument, nearest

Evidence = Literal["documented", "inferred", "assumed"]


def _choice(rule: str, evidence: Evidence, values: tuple[Any, ...], source: str) -> Any:
    """A field whose first value is the default."""
    meta = {"rule": rule, "evidence": evidence, "values": values, "source": source}
    return field(default=values[0], metadata=meta)


@dataclass(frozen=True)
class Profile:
    """How a bit is decided. A field lists its possible values, the default first.

    The defaults are those of eager arrays; `compile` takes `int64` and
    `mixed_precision_accumulation` from the target and the release instead.
    """

    rounding: str = _choice(
        "C2", "documented", ("nearest_even",), "RNE is the default on every generation."
    )
    subnormals: str = _choice(
        "C4", "assumed", ("keep",), "Nothing public says whether an engine flushes subnormals."
    )
    fp8_overflow: str = _choice(
        "C3", "assumed", ("inf",), "IEEE overflow; AWS's text on e4m3 mentions NaN beyond 240."
    )
    nan: str = _choice(
        "E6", "assumed", ("canonical",), "Nothing public gives the NaN that an engine writes."
    )
    max_nan: str = _choice(
        "E7", "assumed", ("propagate",), "Nothing public says how max and min treat NaN."
    )
    int_to_float: str = _choice(
        "C1", "documented", ("via_float32", "exact"), "DMA and copies convert through FP32."
    )
    float_to_int: str = _choice(
        "C6", "documented", ("truncate",), "XLA's convert truncates toward zero and saturates."
    )
    int64: str = _choice(
        "C7", "documented", ("keep", "truncate"), "On trn1 64-bit integers are read as 32-bit."
    )
    scalar: str = _choice(
        "C8", "assumed", ("dtype",), "A Python scalar takes the array's type before the operation."
    )
    divide: str = _choice(
        "E2", "assumed", ("ieee",), "Plain FP32 math; the NKI guide advises reciprocal and multiply."
    )
    activation: str = _choice(
        "E3", "assumed", ("exact",), "AWS publishes neither coefficients nor errors."
    )
    int32_elementwise: str = _choice(
        "E8", "assumed", ("exact",), "GpSimd has 32-bit integers, though VectorE computes in FP32."
    )
    reduce_order: str = _choice(
        "R2", "assumed", ("tiles",), "The order of a reduction's additions is not public."
    )
    reduce_tile: int = _choice(
        "R2", "inferred", (512,), "The engines' limit of 512 elements in the free dimension."
    )
    mixed_precision_accumulation: str = _choice(
        "R3",
        "documented",
        ("on", "off"),
        "--enable-mixed-precision-accumulation, on from SDK 2.27.",
    )
    fp32_matmul: str = _choice(
        "M3", "assumed", ("fma",), "The four-pass algorithm of FP32 products is not public."
    )
    accumulate: str = _choice(
        "M6", "inferred", ("psum128", "sequential"), "Partial sums run down a column of 128 PEs."
    )
    int_dot: str = _choice(
        "M7", "assumed", ("exact",), "AWS's pages contradict each other on integer products."
    )
    transpose: str = _choice(
        "A3", "assumed", ("move_bits",), "A release note says transposes are cast to FP32."
    )
    auto_cast_all: str = _choice(
        "A2", "documented", ("documented", "observed"), "AWS: all FP32 operations; one user saw less."
    )

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value not in f.metadata["values"]:
                allowed = ", ".join(repr(v) for v in f.metadata["values"])
                raise InvalidArgument(
                    f"profile field {f.name!r} (rule {f.metadata['rule']}) cannot be {value!r}: "
                    f"this version of neuronsim knows {allowed}"
                )

    def replace(self, **fields: Any) -> Profile:
        """A copy with other values; raises InvalidArgument for an unknown field or value."""
        names = [f.name for f in dataclasses.fields(self)]
        for name in fields:
            if name not in names:
                raise InvalidArgument(
                    f"Profile has no field {name!r}{nearest(name, names)}; it has {', '.join(names)}"
                )
        return dataclasses.replace(self, **fields)

    def describe(self) -> list[dict[str, Any]]:
        """Every field with its value, rule, evidence, possible values and source.

        >>> Profile().describe()[0]["evidence"]
        'documented'
        """
        return [
            {"field": f.name, "value": getattr(self, f.name), **f.metadata}
            for f in dataclasses.fields(self)
        ]


_current: ContextVar[Profile] = ContextVar("neuronsim_profile")
_DEFAULT = Profile()


def current_profile() -> Profile:
    """The profile that eager arrays use in this context."""
    return _current.get(_DEFAULT)


@contextmanager
def use_profile(**fields: Any) -> Iterator[Profile]:
    """Eager arrays use these field values inside the `with` block (in this thread or task only)."""
    profile = current_profile().replace(**fields)
    token = _current.set(profile)
    try:
        yield profile
    finally:
        _current.reset(token)
