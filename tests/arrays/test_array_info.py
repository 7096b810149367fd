"""Inspection and the device, as the array API standard has them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import neuronsim as np
from neuronsim.arrays.device import TRN1, Device, check_device
from neuronsim.dtypes import DTYPES
from neuronsim.errors import InvalidArgument

pytestmark = pytest.mark.isa_independent

KINDS = [None, "bool", "signed integer", "unsigned integer", "integral", "real floating"]
KINDS += ["complex floating", "numeric", ("bool", "real floating"), ("integral", "integral"), ()]


@pytest.fixture
def strict() -> Any:
    return pytest.importorskip("array_api_strict").__array_namespace_info__()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_dtypes_have_the_standards_names(kind: Any, strict: Any) -> None:
    found = np.__array_namespace_info__().dtypes(kind=kind)
    assert set(found) == set(strict.dtypes(kind=kind))
    assert all(found[name] is getattr(np, name) for name in found)
    assert np.__array_namespace_info__().dtypes(kind=kind, device="trn1") == found


def test_default_dtypes_are_what_functions_give(strict: Any) -> None:
    found = np.__array_namespace_info__().default_dtypes()
    assert set(found) == set(strict.default_dtypes())
    assert found["real floating"] is np.asarray(0.5).dtype is np.zeros(2).dtype
    assert found["complex floating"] is np.asarray(0.5j).dtype
    assert found["integral"] is np.asarray([1]).dtype
    assert found["indexing"] is np.argmax(np.asarray([1.0])).dtype


@pytest.mark.parametrize(("real", "complex_"), [("bfloat16", "complex64"), ("float64", "complex128")])
def test_default_dtypes_follow_the_default_type(
    real: str, complex_: str, restored_default: None
) -> None:
    np.set_default_dtype(real)
    found = np.__array_namespace_info__().default_dtypes()
    assert (found["real floating"], found["complex floating"]) == (real, complex_)


def test_capabilities_are_true(strict: Any) -> None:
    """The standard's names; as many axes as it says can be computed with."""
    found = np.__array_namespace_info__().capabilities()
    assert set(found) == set(strict.capabilities())
    most = found["max dimensions"]
    x = np.asarray([2.0], dtype=np.bfloat16).reshape((1,) * most)
    assert (x.ndim, (x + x).item(), np.exp(x - x).item()) == (most, 4.0, 1.0)
    assert found["boolean indexing"] is found["data-dependent shapes"] is True
    assert x[x > 3].shape == (0,)


def test_device_dtypes_are_those_that_trn1_has_F() -> None:
    found = np.__array_namespace_info__().device_dtypes()
    host = {"float8_e4m3fn", "float64", "complex64", "complex128"}
    assert set(found) == set(DTYPES) - host
    assert all(t.device for t in found.values())


def test_there_is_one_device() -> None:
    info = np.__array_namespace_info__()
    assert info.devices() == (info.default_device(),) == (np.Device("trn1"),)
    assert str(TRN1) == "trn1"
    assert hash(TRN1) == hash(np.Device())
    assert TRN1 != "trn1"
    assert pickle.loads(pickle.dumps(TRN1)) == TRN1
    for given in (None, TRN1, Device(), "trn1"):
        assert check_device(given) is TRN1 or check_device(given) == TRN1


@pytest.mark.parametrize("device", ["cpu", "trn2", "", 1, (1, 0)], ids=repr)
def test_other_devices_are_refused(device: Any) -> None:
    info = np.__array_namespace_info__()
    with pytest.raises(InvalidArgument, match="device"):
        check_device(device)
    for names in (info.dtypes, info.default_dtypes):
        with pytest.raises(InvalidArgument, match="device"):
            names(device=device)


def test_kinds_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'integral'"):
        np.__array_namespace_info__().dtypes(kind="integrl")


def test_the_version_is_the_newest() -> None:
    assert np.__array_api_version__ == "2025.12"
