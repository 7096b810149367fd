"""Releases and targets: what a name stands for and what its flags default to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.targets import (
    KNOWN_ISSUES,
    RELEASES,
    TABLE_NOTES,
    TARGETS,
    Constraint,
    Release,
    at_least,
    find_release,
    find_target,
    listed_since,
    operators,
)
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent

# The table "Supported XLA Operators" as the notes of 2.3.0.4 print it.
OPERATORS_2_3_0_4 = [
    *("Abs", "Add", "Allgather", "Allreduce", "Atan2", "Batchnorm", "Batchnormgrad"),
    *("Batchnorminference", "Broadcast", "BroadcastInDim", "Ceil", "Clamp", "Compare", "Concatenate"),
    *("Constant", "ConstantLiteral", "ConvertElementType", "Cos", "Customcall", "Div", "Dot"),
    *("DotGeneral", "DynamicUpdateSlice", "Eq", "Exp", "Floor", "Gather", "Ge"),
    *("GetTupleElement", "Gt", "Iota", "Le", "Log", "LogicalAnd", "LogicalNot"),
    *("Lt", "Max", "Min", "Mul", "Ne", "Neg", "Pad"),
    *("Pow", "Reduce", "Reshape", "Rev", "RngBitGenerator", "RngUniform", "Rsqrt"),
    *("Scatter", "Select", "ShiftRightLogical", "Sign", "Sin", "Slice", "Sqrt"),
    *("Sub", "Tanh", "Transpose", "Tuple"),
]
ADDED_2_2_0_73 = ["Atan2", "DynamicUpdateSlice", "LogicalNot"]


def without(*names: str) -> list[str]:
    return [name for name in OPERATORS_2_3_0_4 if name not in names]


def with_more(*names: str) -> list[str]:
    return sorted([*OPERATORS_2_3_0_4, *names])


# Issue 7: all SDKs from 2.3 to 2.32.
SDKS = [f"2.{minor}" for minor in range(3, 33)]


def test_every_sdk_has_its_release_in_order() -> None:
    assert [r.sdk for r in RELEASES] == SDKS
    dates = [r.date for r in RELEASES if r.date]
    assert dates == sorted(dates)


@each_of("release", RELEASES, ids=str)
def test_release_is_found_by_each_of_its_versions(release: Release) -> None:
    for version in (release.sdk, f"v{release.sdk}", f"{release.sdk}.0", f"v{release.sdk}.0"):
        assert find_release(version) is release
    if release.compiler:
        assert find_release(release.compiler).compiler == release.compiler


def test_a_compiler_names_the_first_sdk_that_has_it() -> None:
    # Lists of artifacts: 2.4.0 and 2.5.0 have neuronx-cc 2.2.0.73, 2.7.0 and 2.8.0 have 2.4.0.21.
    found = {r.compiler: find_release(r.compiler).sdk for r in RELEASES if r.compiler}
    assert len(found) == len([r for r in RELEASES if r.compiler]) - 2
    assert (found["2.2.0.73"], found["2.4.0.21"]) == ("2.4", "2.7")


@pytest.mark.parametrize(
    ("version", "printed"),
    [
        ("2.26.2", "SDK 2.26.2"),  # whose compiler is not known here
        ("v2.27.1", "SDK 2.27.1"),
        ("2.26.1", "SDK 2.26.1, neuronx-cc 2.21.33363.0"),
        ("2.12.68.0", "SDK 2.16.1, neuronx-cc 2.12.68.0"),
    ],
)
def test_a_patch_has_the_defaults_of_its_sdk(version: str, printed: str) -> None:
    release = find_release(version)
    assert str(release) == printed
    base = find_release(".".join(release.sdk.split(".")[:2]))
    assert replace(release, sdk=base.sdk, compiler=base.compiler) == base
    assert at_least(release, base.sdk)
    assert not at_least(base, release.sdk)


@pytest.mark.parametrize(
    ("version", "auto_cast", "accumulation"),
    [
        ("2.3", "matmult", False),
        ("2.3.0.4", "matmult", False),  # a compiler version, not an SDK 2.3
        ("2.22.12471.0", "none", True),
        ("2.9", "matmult", False),  # 9 is below 27: versions are numbers, not text
        ("2.25", "matmult", False),
        ("2.26", "matmult", False),
        ("2.27", "none", True),
        ("2.30", "none", True),
        ("2.32", "none", True),
    ],
)
def test_defaults_by_version(version: str, auto_cast: str, accumulation: bool) -> None:
    release = find_release(version)
    assert (release.auto_cast, release.auto_cast_type) == (auto_cast, "bf16")
    assert release.mixed_precision_accumulation is accumulation


UNKNOWN = ["", "2", "2.99", "2.2", "2.33", "2.99.0", "latest", " 2.26", "2.26.", "2.26.x", "2.26.0.0"]


@each_of(
    ("find", "name", "match"),
    [
        *((find_release, version, "unknown release") for version in UNKNOWN),
        (find_release, "2.3.0.5", r"did you mean '2\.3\.0\.4'"),
        *(
            (find_target, name, f"{name} has NeuronCore-v.*emulates NeuronCore-v2")
            for name in ("trn2", "trn3")
        ),
        *(
            (find_target, name, "neuronsim knows trn1, inf1, host, trn1n, inf2")
            for name in ("", "TRN1", "trn9", "inf3")
        ),
        (find_target, "inff2", "did you mean 'inf2'"),
    ],
)
def test_unknown_releases_and_targets_list_the_known_ones_and_name_the_nearest(
    find: Callable[[str], object], name: str, match: str
) -> None:
    with pytest.raises(InvalidArgument, match=match) as error:
        find(name)
    if match == "unknown release":
        assert all(r.sdk in str(error.value) and r.compiler in str(error.value) for r in RELEASES)


def test_release_prints_its_compiler() -> None:
    assert str(find_release("2.27")) == "SDK 2.27, neuronx-cc 2.22.12471.0"
    assert str(find_release("2.28")) == "SDK 2.28"
    assert str(find_release("2.3.0.4")) == "SDK 2.6, neuronx-cc 2.3.0.4"


def test_targets_by_name() -> None:
    assert {find_target(n).name for n in TARGETS} == {"trn1", "inf1", "host"}


def test_trn1_has_the_device_types_of_rule_F() -> None:
    absent = {t.name for t in dtypes.DTYPES.values()} - {t.name for t in find_target("trn1").types}
    assert absent == {"float64", "complex64", "complex128", "float8_e4m3fn"}


def test_host_has_every_type_and_keeps_int64_C7() -> None:
    host = find_target("host")
    assert host.types == frozenset(dtypes.DTYPES.values())
    assert not host.truncates_int64
    assert find_target("trn1").truncates_int64


def test_inf1_has_the_types_of_NeuronCore_v1() -> None:
    # neuron.md 3.1: no TF32, no FP8; FP32 but not in products; 2.5: no 64-bit types.
    inf1 = find_target("inf1")
    assert {t.name for t in inf1.types} == {
        *("float32", "bfloat16", "float16", "bool"),
        *("int8", "int16", "int32", "uint8", "uint16", "uint32"),
    }
    assert not inf1.computes_with(dtypes.float32, "tensor", "dot")
    assert inf1.computes_with(dtypes.float32, "vector", "add")
    assert all(inf1.computes_with(t, "tensor", "dot") for t in (dtypes.bfloat16, dtypes.float16))


def test_each_target_has_its_compiler() -> None:
    compilers = {name: t.compiler for name, t in TARGETS.items()}
    assert compilers == {"trn1": "neuronx-cc", "inf1": "neuron-cc", "host": "neuronx-cc"}


@pytest.mark.parametrize("name", ["trn1n", "inf2"])
def test_instances_with_NeuronCore_v2_are_trn1(name: str) -> None:
    assert find_target(name) is TARGETS["trn1"]


# ---- what the release notes document ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.1.0.76", without("Rev", *ADDED_2_2_0_73)),
        ("2.3", without("Rev", *ADDED_2_2_0_73)),  # the SDK of that compiler
        ("2.2.0.73", without("Rev")),
        ("2.3.0.4", OPERATORS_2_3_0_4),
        ("2.4.0.21", with_more("SelectAndScatter")),
        ("2.9", with_more("SelectAndScatter")),
        ("2.6.0.19", with_more("SelectAndScatter", "BitcastConvertType", "TopK")),
        ("2.26", with_more("SelectAndScatter", "BitcastConvertType", "TopK")),
        ("2.32", with_more("SelectAndScatter", "BitcastConvertType", "TopK")),
    ],
)
def test_operators_are_the_documented_ones_of_a_release(version: str, expected: list[str]) -> None:
    assert list(operators(find_release(version))) == expected


def test_the_first_documented_lists_have_56_59_and_60_names() -> None:
    lists = [operators(find_release(v)) for v in ("2.1.0.76", "2.2.0.73", "2.3.0.4")]
    assert [len(names) for names in lists] == [56, 59, 60]


def test_an_operator_is_listed_since_the_compiler_that_added_it() -> None:
    assert listed_since("Rev") == "2.3.0.4"
    assert listed_since("Abs") == "2.1.0.76"
    assert listed_since("Fft") is None


def test_releases_are_ordered_by_version_of_sdk_or_compiler() -> None:
    for earlier, later in pairwise(RELEASES):
        assert at_least(later, later.sdk)
        assert not at_least(earlier, later.sdk)
        if later.compiler:
            assert at_least(later, later.compiler)
            assert at_least(earlier, later.compiler) == (earlier.compiler == later.compiler)


@pytest.mark.parametrize(
    ("constraint", "last", "first_without"),
    [
        (TABLE_NOTES["RngBitGenerator"], "2.8.0.25", "2.9.0.16"),
        (KNOWN_ISSUES["seed"], "2.12", "2.13"),
        (KNOWN_ISSUES["pow exponent"], "2.2.0.73", "2.3.0.4"),
    ],
    ids=lambda c: getattr(c, "rule", c),
)
def test_a_constraint_holds_until_the_release_that_lifts_it(
    constraint: Constraint, last: str, first_without: str
) -> None:
    assert constraint.holds(RELEASES[0])
    assert constraint.holds(find_release(last))
    assert not constraint.holds(find_release(first_without))


@pytest.mark.parametrize(
    "constraint", [TABLE_NOTES["Pow"], KNOWN_ISSUES["INT64"]], ids=lambda c: c.rule
)
def test_a_constraint_that_no_release_lifts_holds_to_this_day(constraint: Constraint) -> None:
    assert all(constraint.holds(r) for r in RELEASES)


def test_a_note_holds_since_its_operator_is_listed() -> None:
    versions = ("2.1.0.76", "2.2.0.73", "2.3.0.4")
    held = [TABLE_NOTES["DynamicUpdateSlice"].holds(find_release(v)) for v in versions]
    assert held == [False, True, True]
