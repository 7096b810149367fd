"""Target: what a device can do; Release: which compiler, what its flags default to, which operators AWS
documents for it and with which notes and known issues.

Facts are those of `reference/neuron.md` in the project's research notes: sections 1.3 (releases),
3.1 (types), 6.1 and 6.2 (clocks, memory), 7.1 (operators), all from AWS's documentation.

>>> find_release("2.26").auto_cast, find_release("2.27").auto_cast
('matmult', 'none')
>>> find_release("2.3.0.4").compiler
'2.3.0.4'
>>> "Rev" in operators(find_release("2.2.0.73")), "Rev" in operators(find_release("2.3.0.4"))
(False, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from neuronsim.dtypes import DTYPES, DType, float32
from neuronsim.errors import InvalidArgument, nearest

AutoCast = Literal["none", "matmult", "all"]


@dataclass(frozen=True)
class Target:
    """One NeuronCore of a device, or the host. Clocks in GHz, memory in bytes, bandwidth in bytes/s.

    `truncates_int64` is rule C7; a target without engines (the host) takes every type and has no
    cost. `engine_types` says which of the types an engine computes with, or an opcode where that
    differs from its engine; what it does not name computes with all.
    """

    name: str
    description: str
    types: frozenset[DType]
    truncates_int64: bool
    clocks: dict[str, float]
    memory: int
    bandwidth: float
    partitions: int = 128
    engine_types: Mapping[str, frozenset[DType]] = field(default_factory=dict)

    def computes_with(self, dtype: DType, engine: str, opcode: str) -> bool:
        """Whether an operation on an engine can read or give a type; an open format, which no device
        has, travels in float32 and is computed with where that is (C9).

        >>> from neuronsim.dtypes import bfloat16, float8_e4m3fn
        >>> [TARGETS["trn1"].computes_with(t, "tensor", "dot") for t in (bfloat16, float8_e4m3fn)]
        [True, False]
        """
        dtype = float32 if dtype.is_open else dtype
        return dtype in self.engine_types.get(opcode, self.engine_types.get(engine, self.types))


_DEVICE_TYPES = frozenset(t for t in DTYPES.values() if t.device)

TARGETS = {
    "trn1": Target(
        name="trn1",
        description="one NeuronCore-v2 of Trainium1",
        types=_DEVICE_TYPES,
        truncates_int64=True,
        clocks={"tensor": 2.8, "vector": 1.12, "scalar": 1.4, "gpsimd": 1.4},
        memory=16 * 2**30,  # 32 GiB of HBM for two cores
        bandwidth=820 * 2**30 / 2,
    ),
    "host": Target(
        name="host",
        description="the host: float64 and complex values are computed by NumPy (rule H1)",
        types=frozenset(DTYPES.values()),
        truncates_int64=False,
        clocks={},
        memory=16 * 2**30,
        bandwidth=0.0,
    ),
}


def find_target(name: str) -> Target:
    """The target of this name; raises InvalidArgument with the known ones."""
    if name not in TARGETS:
        raise InvalidArgument(
            f"unknown target {name!r}{nearest(name, TARGETS)}: neuronsim knows {', '.join(TARGETS)}"
        )
    return TARGETS[name]


@dataclass(frozen=True)
class Release:
    """An SDK release with its neuronx-cc: what its flags default to.

    `compiler` is empty where AWS's notes do not give the version.
    """

    sdk: str
    compiler: str
    date: str
    auto_cast: AutoCast
    auto_cast_type: str
    mixed_precision_accumulation: bool

    def __str__(self) -> str:
        parts = (f"SDK {self.sdk}" if self.sdk else "", self.compiler and f"neuronx-cc {self.compiler}")
        return ", ".join(p for p in parts if p)


def _row(sdk: str, compiler: str, date: str) -> Release:
    modern = bool(sdk) and _version(sdk) >= (2, 27)
    return Release(
        sdk=sdk,
        compiler=compiler,
        date=date,
        auto_cast="none" if modern else "matmult",
        auto_cast_type="bf16",
        mixed_precision_accumulation=modern,
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


RELEASES = (
    _row("2.3", "2.1.0.76", "2022-10-05"),
    _row("", "2.2.0.73", "2022-10-27"),
    _row("", "2.3.0.4", "2022-12-09"),
    _row("2.8", "2.4.0.21", "2023-02-24"),
    _row("2.9", "2.5.0.28", "2023-03-28"),
    _row("2.10", "2.6.0.19", "2023-05-01"),
    _row("2.11", "2.7.0.40", "2023-06-14"),
    _row("2.12", "2.8.0.25", "2023-07-19"),
    _row("2.13", "2.9.0.16", "2023-08-28"),
    _row("2.14", "2.10.0.34", "2023-09-15"),
    _row("2.15", "2.11.0.34", "2023-10-26"),
    _row("2.16", "2.12.54.0", "2023-12-21"),
    _row("2.18", "2.13.66.0", "2024-04-01"),
    _row("2.25", "2.20.9961.0", "2025-07-31"),
    _row("2.26", "", ""),
    _row("2.27", "2.22.12471.0", "2025-12-19"),
    _row("2.29", "2.24.5133.0", "2026-04-09"),
    _row("2.30", "", "2026-05-21"),
    _row("2.32", "2.27.5334.0", "2026-08-17"),
)


def find_release(version: str) -> Release:
    """The release of an SDK version (two parts) or a compiler version (four parts).

    Raises InvalidArgument with the known ones.
    """
    for r in RELEASES:
        if version and version in (r.sdk, r.compiler):
            return r
    known = [r.sdk for r in RELEASES if r.sdk] + [r.compiler for r in RELEASES if r.compiler]
    raise InvalidArgument(
        f"unknown release {version!r}{nearest(version, known)}: neuronsim knows the SDK versions "
        f"{', '.join(r.sdk for r in RELEASES if r.sdk)} and the compiler versions "
        f"{', '.join(r.compiler for r in RELEASES if r.compiler)}"
    )


def at_least(release: Release, version: str) -> bool:
    """Whether a release is the one of this version or a later one.

    >>> at_least(find_release("2.10"), "2.9"), at_least(find_release("2.2.0.73"), "2.3.0.4")
    (True, False)
    """
    own = find_release(release.sdk or release.compiler)
    return RELEASES.index(own) >= RELEASES.index(find_release(version))


# ---- what the release notes document ---------------------------------------------------------------

FIRST = RELEASES[0].compiler

# The table "Supported XLA Operators": what each compiler added to it, the last one 2.6.0.19.
_OPERATORS_ADDED = {
    FIRST: (
        *("Abs", "Add", "Allgather", "Allreduce", "Batchnorm", "Batchnormgrad", "Batchnorminference"),
        *("Broadcast", "BroadcastInDim", "Ceil", "Clamp", "Compare", "Concatenate", "Constant"),
        *("ConstantLiteral", "ConvertElementType", "Cos", "Customcall", "Div", "Dot", "DotGeneral"),
        *("Eq", "Exp", "Floor", "Gather", "Ge", "GetTupleElement", "Gt", "Iota", "Le", "Log"),
        *("LogicalAnd", "Lt", "Max", "Min", "Mul", "Ne", "Neg", "Pad", "Pow", "Reduce", "Reshape"),
        *("RngBitGenerator", "RngUniform", "Rsqrt", "Scatter", "Select", "ShiftRightLogical", "Sign"),
        *("Sin", "Slice", "Sqrt", "Sub", "Tanh", "Transpose", "Tuple"),
    ),
    "2.2.0.73": ("LogicalNot", "Atan2", "DynamicUpdateSlice"),
    "2.3.0.4": ("Rev",),
    "2.4.0.21": ("SelectAndScatter",),
    "2.6.0.19": ("BitcastConvertType", "TopK"),
}


def operators(release: Release) -> tuple[str, ...]:
    """The XlaBuilder names that AWS documents as supported by a release, in the table's order."""
    added = (names for since, names in _OPERATORS_ADDED.items() if at_least(release, since))
    return tuple(sorted(name for names in added for name in names))


def listed_since(operator: str) -> str | None:
    """The compiler version whose documented operators first had this one, if any has."""
    return next((since for since, names in _OPERATORS_ADDED.items() if operator in names), None)


Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Constraint:
    """What AWS documents that a compiler does not do: its words, where they stand and from which
    compiler version until before which they hold ("" for to this day).

    An "error" is what the compiler is documented to refuse; under a "warning" it may compile, and may
    compute something else than the graph says. `code` is AWS's error code, where there is one.
    """

    rule: str
    quotation: str
    source: str
    advice: str
    severity: Severity = "warning"
    code: str = ""
    since: str = FIRST
    until: str = ""

    def holds(self, release: Release) -> bool:
        """Whether it holds under a release."""
        return at_least(release, self.since) and not (self.until and at_least(release, self.until))


SUPPORTED_OPERATORS = Constraint(
    rule="supported operators",
    quotation="An unsupported operator was used.",
    source="error code NCC_EVRF001; release notes, Supported XLA Operators",
    advice="use operators that `neuronsim list-operators --sdk VERSION` prints, or try the compiler: "
    "it may accept more than AWS documents",
    code="NCC_EVRF001",
)

# The column "Notes" of that table, by operator. It is as it was to this day, but for the seed's: the
# notes of 2.9.0.16 say that the operator "now correctly accepts and uses setting the seed".
TABLE_NOTES = {
    operator: Constraint(
        rule=f"note on {operator}",
        quotation=quotation,
        source="release notes, Supported XLA Operators",
        advice=advice,
        since=listed_since(operator) or FIRST,
        until=until,
    )
    for operator, quotation, advice, until in (
        (
            "Gather",
            "Supports only disjoint start_index_map and remapped_offset_dims",
            "collapse every dimension that the start indices index, or take a slice instead",
            "",
        ),
        (
            "Pow",
            "Exponent argument must be a compile-time integer constant",
            "write the exponent as a constant, or the power as exp(y * log(x)) for x > 0",
            "",
        ),
        (
            "Reduce",
            "Min, Max, Add and Mul are the only supported computations. Init_values must be constant",
            "reduce by one of the four from a constant, one array at a time",
            "",
        ),
        (
            "RngBitGenerator",
            "Ignores user seed",
            "expect other random bits in every run, or use compiler 2.9.0.16 (SDK 2.13) or later",
            "2.9.0.16",
        ),
        (
            "DynamicUpdateSlice",
            "Supports only for constant index",
            "use constant start indices, or a select by comparison with an iota",
            "",
        ),
    )
}

KNOWN_ISSUES = {
    name: Constraint(
        rule=f"known issue: {name}",
        quotation=quotation,
        source=f"release notes of {FIRST}, Known issues",
        advice=advice,
        until=until,
    )
    for name, quotation, advice, until in (
        (
            "seed",
            "The Random Number Generator operation can be passed an initial seed value, however "
            "setting the seed is not supported in this release.",
            "expect other random numbers in every run, or use compiler 2.9.0.16 (SDK 2.13) or later",
            "2.9.0.16",
        ),
        (
            "pow exponent",
            "The exponent value of the pow() function must be a compile-time integer constant.",
            "write an integer constant exponent, or use compiler 2.3.0.4 or later, which takes "
            "floating-point ones",
            "2.3.0.4",
        ),
        (
            "INT64",
            "The compiler treats INT64 datatypes as INT32 by truncating the high-order bits. If "
            "possible, cast these values to 32 bits.",
            "cast to 32 bits where the values allow it",
            "",
        ),
    )
}
