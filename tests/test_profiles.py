"""Profile: every field has evidence, a source and a rule of the contract; who sees which profile."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from neuronsim.errors import InvalidArgument
from neuronsim.profiles import Profile, avx512_bf16, current_profile, in_force, use_profile
from tests.support.parameters import each_of

CONTRACT = (Path(__file__).parents[1] / "docs" / "numerics.md").read_text()
FIELDS = dataclasses.fields(Profile)


@each_of("field", FIELDS, ids=lambda f: f.name)
def test_field_says_where_it_comes_from(field: dataclasses.Field[object]) -> None:
    meta = field.metadata
    assert meta["evidence"] in ("documented", "inferred", "assumed")
    assert meta["source"].endswith(".")
    assert len(meta["source"].split()) >= 4
    assert f"- **{meta['rule']}** " in CONTRACT
    assert field.default == meta["values"][0]
    assert len(set(meta["values"])) == len(meta["values"])


def test_fields_have_the_contracts_names_and_values() -> None:
    """`Field `x`` in the contract, with its values; the profile may know fewer values as yet."""
    known = {f.name: f.metadata for f in FIELDS}
    stated = re.findall(r"[Ff]ield `(\w+)`[^:]*: `(\w+)`[^|]*\| `(\w+)`", CONTRACT)
    assert len(stated) > 8
    for name, first, second in stated:
        if name in known:
            assert set(known[name]["values"]) & {first, second}, name


@each_of("field", FIELDS, ids=lambda f: f.name)
def test_every_value_is_accepted_and_others_are_not(field: dataclasses.Field[object]) -> None:
    for value in field.metadata["values"]:
        assert getattr(Profile(**{field.name: value}), field.name) == value
    with pytest.raises(InvalidArgument) as caught:
        Profile(**{field.name: "neither"})
    message = str(caught.value)
    assert field.name in message
    assert field.metadata["rule"] in message
    assert all(repr(v) in message for v in field.metadata["values"])


def test_defaults_of_eager_arrays() -> None:
    """C1, R2, R3, M2 and C7 as the contract gives them."""
    p = Profile()
    assert (p.int_to_float, p.reduce_tile, p.accumulate) == ("via_float32", 512, "psum128")
    assert (p.mixed_precision_accumulation, p.int64, p.float_to_int) == ("on", "keep", "truncate")
    assert (p.subnormals, p.fp8_overflow, p.divide) == ("keep", "inf", "ieee")


def test_replace_names_the_nearest_field() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'int_to_float'"):
        Profile().replace(int_to_floot="exact")
    with pytest.raises(InvalidArgument, match="reduce_tile"):
        Profile().replace(colour="red")
    with pytest.raises(InvalidArgument, match="reduce_tile"):
        Profile().replace(reduce_tile=256)


def test_a_profile_cannot_be_changed_and_is_equal_by_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Profile().int64 = "truncate"  # type: ignore[misc]
    assert Profile(int64="truncate") == Profile().replace(int64="truncate")
    assert hash(Profile()) == hash(Profile().replace())
    assert Profile() != Profile(int64="truncate")


def test_describe_lists_every_field() -> None:
    rows = Profile(accumulate="sequential").describe()
    assert [r["field"] for r in rows] == [f.name for f in FIELDS]
    assert {"field", "value", "rule", "evidence", "values", "source"} == set(rows[0])
    assert next(r for r in rows if r["field"] == "accumulate")["value"] == "sequential"


def test_what_is_kept_is_no_choice() -> None:
    """It is neither given, compared, described nor copied."""
    p = Profile()
    p.parts["x"] = {}
    assert p == Profile()
    assert hash(p) == hash(Profile())
    assert not p.replace().parts
    assert "parts" not in p.to_dict()
    assert "parts" not in repr(p)
    with pytest.raises(InvalidArgument, match="parts"):
        p.replace(parts={})
    with pytest.raises(TypeError):
        Profile(parts={})  # type: ignore[call-arg]


def test_use_profile_nests_and_ends() -> None:
    with use_profile(int_to_float="exact") as outer:
        assert current_profile() is outer
        with use_profile(accumulate="sequential") as inner:
            assert (inner.int_to_float, inner.accumulate) == ("exact", "sequential")
        assert current_profile() is outer
    assert current_profile() == Profile()


def test_a_named_profile_is_put_in_force_and_changed_like_any_other() -> None:
    changed = {n: v for n, v in avx512_bf16.to_dict().items() if v != Profile().to_dict()[n]}
    assert changed == {"subnormals": "flush", "accumulate": "pairs"}
    with in_force(avx512_bf16):
        assert current_profile() is avx512_bf16
        with use_profile(subnormals="keep") as inner:
            assert inner == Profile(accumulate="pairs")
    assert current_profile() == Profile()


def test_use_profile_ends_with_an_error() -> None:
    with pytest.raises(KeyError), use_profile(int_to_float="exact"):
        raise KeyError
    assert current_profile() == Profile()
    with pytest.raises(InvalidArgument), use_profile(int_to_float="other"):
        pass
    assert current_profile() == Profile()
