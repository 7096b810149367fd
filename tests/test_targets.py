"""Releases and targets: what a name stands for and what its flags default to."""

from __future__ import annotations

import pytest

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.targets import RELEASES, TARGETS, Release, find_release, find_target


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
