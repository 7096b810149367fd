"""Releases and targets: what a name stands for and what its flags default to."""

from __future__ import annotations

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


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_release_is_found_by_each_of_its_versions(release: Release) -> None:
    names = [n for n in (release.sdk, release.compiler) if n]
    assert names
    assert all(find_release(n) is release for n in names)


def test_no_version_names_two_releases() -> None:
    names = [n for r in RELEASES for n in (r.sdk, r.compiler) if n]
    assert len(set(names)) == len(names)


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


@pytest.mark.parametrize("version", ["", "2", "2.99", "2.3.0", "v2.26", "latest", " 2.26"])
def test_unknown_release_lists_the_known_ones(version: str) -> None:
    with pytest.raises(InvalidArgument, match="unknown release") as error:
        find_release(version)
    assert all(r.sdk in str(error.value) and r.compiler in str(error.value) for r in RELEASES)


def test_unknown_release_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match=r"did you mean '2\.3\.0\.4'"):
        find_release("2.3.0.5")


def test_release_prints_its_compiler() -> None:
    assert str(find_release("2.27")) == "SDK 2.27, neuronx-cc 2.22.12471.0"
    assert str(find_release("2.26")) == "SDK 2.26"
    assert str(find_release("2.3.0.4")) == "neuronx-cc 2.3.0.4"


def test_targets_by_name() -> None:
    assert {find_target(n).name for n in TARGETS} == {"trn1", "host"}


def test_trn1_has_the_device_types_of_rule_F() -> None:
    absent = {t.name for t in dtypes.DTYPES.values()} - {t.name for t in find_target("trn1").types}
    assert absent == {"float64", "complex64", "complex128", "float8_e4m3fn"}


def test_host_has_every_type_and_keeps_int64_C7() -> None:
    host = find_target("host")
    assert host.types == frozenset(dtypes.DTYPES.values())
    assert not host.truncates_int64
    assert find_target("trn1").truncates_int64


@pytest.mark.parametrize("name", ["", "TRN1", "trn9", "inf1"])
def test_unknown_target_lists_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArgument, match="neuronsim knows trn1, host"):
        find_target(name)


def test_unknown_target_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'trn1'"):
        find_target("trn11")


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
    assert [len(operators(r)) for r in RELEASES[:3]] == [56, 59, 60]


def test_an_operator_is_listed_since_the_compiler_that_added_it() -> None:
    assert listed_since("Rev") == "2.3.0.4"
    assert listed_since("Abs") == "2.1.0.76"
    assert listed_since("Fft") is None


def test_releases_are_ordered_by_version_of_sdk_or_compiler() -> None:
    for earlier, later in pairwise(RELEASES):
        for version in filter(None, (later.sdk, later.compiler)):
            assert at_least(later, version)
            assert not at_least(earlier, version)


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
    held = [TABLE_NOTES["DynamicUpdateSlice"].holds(r) for r in RELEASES[:3]]
    assert held == [False, True, True]
