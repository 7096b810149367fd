"""Target: what a device can do; Release: which compiler, what its flags default to, which operators AWS
documents for it and with which notes and known issues.

Facts are those of `reference/neuron.md` in the project's research notes: sections 1.3 (releases),
3.1 (types), 6.1 and 6.2 (clocks, memory), 7.1 (operators), all from AWS's documentation; releases that
1.3 leaves out are those of aws-neuron-sdk's release notes of the compiler and lists of artifacts.

>>> find_release("2.26").auto_cast, find_release("2.27").auto_cast
('matmult', 'none')
>>> str(find_release("2.3.0.4"))
'SDK 2.6, neuronx-cc 2.3.0.4'
>>> "Rev" in operators(find_release("2.2.0.73")), "Rev" in operators(find_release("2.3.0.4"))
(False, True)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from neuronsim import dtypes
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.records import check_fields

AutoCast = Literal["none", "matmult", "all", ""]  # "" where a plan or policy decides
CastType = Literal["", "bf16", "fp16", "tf32", "fp8_e4m3"]  # likewise
Compiler = Literal["neuronx-cc", "neuron-cc"]


@dataclass(frozen=True)
class Target:
    """One NeuronCore of a device, or the host. Clocks in GHz, memory in bytes, bandwidth in bytes/s.

    `truncates_int64` is rule C7. An engine without a clock has the cost of its rate (operations a
    second), if it has one; the host has neither. `sbuf` is the memory on the chip that holds
    activations, 0 where it is not published. `int8_rate` is how many products of bytes the hardware's
    table lists for one of 16 bits, 0 for none, `runs_int8` whether the compiler makes them, and
    `int8_evidence` where both stand. `engine_types` says which of the types an engine computes
    with, or an opcode where that differs from its engine; what it does not name computes with all.
    `compiler` is the one whose flags count, for the host that of Trainium.
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
    compiler: Compiler = "neuronx-cc"
    is_host: bool = False
    rounds_stochastically: bool = True  # NeuronCore-v2 and later
    rates: Mapping[str, float] = field(default_factory=dict)
    sbuf: int = 0
    int8_rate: float = 0.0
    runs_int8: bool = False
    int8_evidence: str = ""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def int8_note(self) -> str:
        """What there is to say of a plan that quantizes: empty where the target runs its products.

        >>> print(TARGETS["host"].int8_note)
        products of INT8 run in the emulator: host is no device
        """
        if self.runs_int8:
            return ""
        priced = ", and are priced as products of bfloat16" if self.bandwidth else ""
        return f"products of INT8 run in the emulator{priced}: {self.int8_evidence}"

    def computes_with(self, dtype: DType, engine: str, opcode: str) -> bool:
        """Whether an operation on an engine can read or give a type; an open format, which no device
        has, travels in float32 and is computed with where that is (C9).

        >>> from neuronsim.dtypes import bfloat16, float8_e4m3fn
        >>> [TARGETS["trn1"].computes_with(t, "tensor", "dot") for t in (bfloat16, float8_e4m3fn)]
        [True, False]
        """
        dtype = dtypes.float32 if dtype.is_open else dtype
        return dtype in self.engine_types.get(opcode, self.engine_types.get(engine, self.types))


_DEVICE_TYPES = frozenset(t for t in DTYPES.values() if t.device)
_NARROW_INTEGERS = frozenset(
    t for t in DTYPES.values() if t.kind in ("bool", "signed", "unsigned") and t.bits <= 32
)
# neuron.md 3.1, 6.2: NeuronCore-v1 has no tfloat32 and no float8, and its products no float32; 2.5: it
# has no 64-bit inputs and outputs.
_INF1_PRODUCTS = frozenset({dtypes.bfloat16, dtypes.float16, dtypes.int8})

TARGETS = {
    "trn1": Target(
        name="trn1",
        description="one NeuronCore-v2 of Trainium1",
        types=_DEVICE_TYPES,
        truncates_int64=True,
        clocks={"tensor": 2.8, "vector": 1.12, "scalar": 1.4, "gpsimd": 1.4},
        memory=16 * 2**30,  # 32 GiB of HBM for two cores
        bandwidth=820 * 2**30 / 2,
        sbuf=24 * 2**20,
        int8_rate=2.0,  # neuron.md 6.2: 380 INT8 TOPS of the chip beside 190 TFLOPS of bfloat16
        int8_evidence="the hardware pages of NeuronCore-v2 and Trainium list INT8 products, twice as "
        "many as of bfloat16, and the compiler's guide says that INT8 is \"planned for a future "
        'release"',
    ),
    "inf1": Target(
        name="inf1",
        description="one NeuronCore-v1 of Inferentia",
        types=_INF1_PRODUCTS | _NARROW_INTEGERS | {dtypes.float32},
        truncates_int64=False,
        clocks={},  # AWS publishes none
        # neuron.md 6.2; those of the other engines are NeuronCore-v2's by AWS's "3x" and "10x".
        rates={"tensor": 16e12, "scalar": 2.9e12 / 3, "vector": 2.3e12 / 10, "gpsimd": 2.3e12 / 10},
        memory=2 * 2**30,  # 8 GiB for four cores
        bandwidth=50 * 2**30 / 4,
        engine_types={"tensor": _INF1_PRODUCTS},
        compiler="neuron-cc",
        rounds_stochastically=False,
        int8_rate=2.0,  # neuron.md 6.2: 128 INT8 TOPS of the chip beside 64 TFLOPS of 16-bit types
        int8_evidence="the hardware pages of NeuronCore-v1 and Inferentia list INT8 products, twice as "
        "many as of 16-bit types, and no option of neuron-cc makes them",
    ),
    "host": Target(
        name="host",
        description="the host: float64 and complex values are computed by NumPy (rule H1)",
        types=frozenset(DTYPES.values()),
        truncates_int64=False,
        clocks={},
        memory=16 * 2**30,
        bandwidth=0.0,
        is_host=True,
        int8_evidence="host is no device",
    ),
}
INT8 = "+int8"  # after a target's name: the same device, as if its compiler made INT8 products


# Instances with the same NeuronCore-v2 as trn1 (neuron.md 6.2).
SAME_CORE = {"trn1n": "trn1", "inf2": "trn1"}
_OTHER_CORES = {"trn2": "NeuronCore-v3", "trn3": "NeuronCore-v4"}


def find_target(name: str) -> Target:
    """The target of this name; `trn1n` and `inf2` are `trn1`, whose core they have. `+int8` after a
    name is the same device as if its compiler made the INT8 products that the hardware's table lists.

    Raises InvalidArgument with the known ones.

    >>> find_target("inf2").description, find_target("trn1+int8").runs_int8
    ('one NeuronCore-v2 of Trainium1', True)
    """
    known = (*TARGETS, *SAME_CORE)
    if not isinstance(name, str):
        raise InvalidArgument(f"a target is one of the names {', '.join(known)}, not {name!r}")
    if name.endswith(INT8):
        return _with_int8(find_target(name.removesuffix(INT8)))
    name = SAME_CORE.get(name, name)
    if name in _OTHER_CORES:
        raise InvalidArgument(
            f"{name} has {_OTHER_CORES[name]}, and neuronsim emulates NeuronCore-v2 and NeuronCore-v1 "
            f"only: it knows {', '.join(known)}"
        )
    if name not in TARGETS:
        raise InvalidArgument(
            f"unknown target {name!r}{nearest(name, known)}: neuronsim knows {', '.join(known)}"
        )
    return TARGETS[name]


_assumed: dict[str, Target] = {}  # each target once


def _with_int8(target: Target) -> Target:
    """A target with the INT8 products of its table. Raises InvalidArgument where it lists none."""
    if not target.int8_rate:
        raise InvalidArgument(f"no table lists INT8 products of {target.name}: leave {INT8!r} out")
    if target.name not in _assumed:
        _assumed[target.name] = replace(
            target,
            name=target.name + INT8,
            description=f"{target.description}, with the INT8 products of its table",
            runs_int8=True,
        )
    return _assumed[target.name]


@dataclass(frozen=True)
class Release:
    """An SDK release with its neuronx-cc: what its flags default to.

    `compiler` and `date` are empty where AWS's notes do not give them.
    """

    sdk: str
    compiler: str
    date: str
    auto_cast: AutoCast
    auto_cast_type: CastType
    mixed_precision_accumulation: bool

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        return f"SDK {self.sdk}, neuronx-cc {self.compiler}" if self.compiler else f"SDK {self.sdk}"


def _row(sdk: str, compiler: str, date: str) -> Release:
    modern = _version(sdk) >= (2, 27)
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


# The lists of artifacts give the compilers of 2.3 to 2.6; from 2.19 to 2.25 it is the compiler whose
# notes have the date of the SDK's; 2.28 and 2.17 have none.
RELEASES = (
    _row("2.3", "2.1.0.76", "2022-10-05"),
    _row("2.4", "2.2.0.73", "2022-10-27"),
    _row("2.5", "2.2.0.73", "2022-11-23"),
    _row("2.6", "2.3.0.4", "2022-12-09"),
    _row("2.7", "2.4.0.21", "2023-02-08"),
    _row("2.8", "2.4.0.21", "2023-02-24"),
    _row("2.9", "2.5.0.28", "2023-03-28"),
    _row("2.10", "2.6.0.19", "2023-05-01"),
    _row("2.11", "2.7.0.40", "2023-06-14"),
    _row("2.12", "2.8.0.25", "2023-07-19"),
    _row("2.13", "2.9.0.16", "2023-08-28"),
    _row("2.14", "2.10.0.34", "2023-09-15"),
    _row("2.15", "2.11.0.34", "2023-10-26"),
    _row("2.16", "2.12.54.0", "2023-12-21"),
    _row("2.17", "", "2024-02-13"),
    _row("2.18", "2.13.66.0", "2024-04-01"),
    _row("2.19", "2.14.213.0", "2024-07-03"),
    _row("2.20", "2.15.128.0", "2024-09-16"),
    _row("2.21", "2.16.345.0", "2024-12-20"),
    _row("2.22", "2.17.194.0", "2025-04-03"),
    _row("2.23", "2.18.121.0", "2025-05-19"),
    _row("2.24", "2.19.8089.0", "2025-06-24"),
    _row("2.25", "2.20.9961.0", "2025-07-31"),
    _row("2.26", "2.21.18209.0", "2025-09-08"),
    _row("2.27", "2.22.12471.0", "2025-12-19"),
    _row("2.28", "", ""),
    _row("2.29", "2.24.5133.0", "2026-04-09"),
    _row("2.30", "2.25.3371.0", "2026-05-21"),
    _row("2.31", "2.26.6360.0", "2026-07-07"),
    _row("2.32", "2.27.5334.0", "2026-08-17"),
)

# The compilers of patched SDKs, as far as AWS's lists of artifacts and notes give them.
_PATCHED = {
    "2.14.1": "2.10.0.35",
    "2.15.2": "2.11.0.35",
    "2.16.1": "2.12.68.0",
    "2.18.1": "2.13.68.0",
    "2.18.2": "2.13.72.0",
    "2.19.1": "2.14.227.0",
    "2.26.1": "2.21.33363.0",
}
_SDK = re.compile(r"v?(\d+\.\d+)(?:\.(\d+))?")


def find_release(version: str) -> Release:
    """The release of an SDK version (2.26, 2.26.1, v2.26.0) or of a compiler version (four parts): the
    first that has this compiler. A patch has the defaults of its SDK.

    Raises InvalidArgument with the known ones.

    >>> print(find_release("v2.26.0"), find_release("2.21.33363.0"), find_release("2.26.2"), sep="; ")
    SDK 2.26, neuronx-cc 2.21.18209.0; SDK 2.26.1, neuronx-cc 2.21.33363.0; SDK 2.26.2
    """
    if not isinstance(version, str):
        raise InvalidArgument(f"a release is named by a text such as '2.26', not {version!r}")
    by_compiler = {r.compiler: r.sdk for r in reversed(RELEASES) if r.compiler}
    by_compiler |= {compiler: sdk for sdk, compiler in _PATCHED.items()}
    parts = _SDK.fullmatch(by_compiler.get(version, version))
    for r in RELEASES:
        if parts and parts[1] == r.sdk:
            patched = f"{r.sdk}.{int(parts[2] or 0)}"
            return (
                r
                if patched.endswith(".0")
                else replace(r, sdk=patched, compiler=_PATCHED.get(patched, ""))
            )
    sdks, compilers = [r.sdk for r in RELEASES], sorted(by_compiler, key=_version)
    raise InvalidArgument(
        f"unknown release {version!r}{nearest(version, sdks + compilers)}: neuronsim knows the SDK "
        f"versions {', '.join(sdks)} and the compiler versions {', '.join(compilers)}"
    )


def at_least(release: Release, version: str) -> bool:
    """Whether a release is the one of this version or a later one.

    >>> at_least(find_release("2.10"), "2.9"), at_least(find_release("2.2.0.73"), "2.3.0.4")
    (True, False)
    """
    return _version(release.sdk) >= _version(find_release(version).sdk)


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
