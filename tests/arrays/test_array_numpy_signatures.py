"""Functions of NumPy take NumPy's arguments, by place and by name; what the array API makes positional
alone may have another name.
"""

from __future__ import annotations

import inspect
import tomllib
from types import ModuleType

import numpy
import pytest
from tests.support.places import DOCS

import neuronsim as np
from neuronsim.arrays import creation, indexing, manipulation, padding, progressions

pytestmark = pytest.mark.isa_independent

CHAPTERS = (creation, indexing, manipulation, padding, progressions)
# asarray's type is its argument's; ndmax is of NumPy 2.4.
ABSENT = {("asarray", "like"), ("asanyarray", "like"), ("array", "ndmax")}


def differences(name: str, ours: inspect.Signature, theirs: inspect.Signature) -> list[str]:
    """NumPy's parameters that a call of ours does not take in the same way."""
    mine = list(ours.parameters.values())
    by_name = ours.parameters
    found = []
    for place, parameter in enumerate(theirs.parameters.values()):
        wanted = parameter.name
        if (name, wanted) in ABSENT or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            continue
        if place == 0 and mine[0].kind is mine[0].POSITIONAL_ONLY:
            continue
        if wanted not in by_name or by_name[wanted].kind is parameter.POSITIONAL_ONLY:
            found.append(f"no keyword {wanted}")
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and mine[place].name != wanted:
            found.append(f"argument {place} is {mine[place].name}, not {wanted}")
        elif (parameter.default is parameter.empty) < (
            by_name[wanted].default is parameter.empty
        ) and name != "permute_dims":  # whose axes the array API wants
            found.append(f"{wanted} has no default")
    return found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.__name__.rpartition(".")[2])
def test_arguments_are_numpys(chapter: ModuleType) -> None:
    compared = 0
    for name in chapter.__all__:
        if inspect.isroutine(getattr(np, name)):
            try:
                theirs = inspect.signature(getattr(numpy, name))
            except ValueError:
                continue  # compiled functions of earlier releases of NumPy say nothing
            assert differences(name, inspect.signature(getattr(np, name)), theirs) == [], name
            compared += 1
    assert compared > len(chapter.__all__) // 2


# Whose arguments the array API names otherwise, or takes by place alone.
STANDARDS = {
    *("isin", "outer", "searchsorted", "tensordot"),
    *("fft.fftfreq", "fft.rfftfreq", "linalg.lstsq", "linalg.matrix_power", "linalg.solve"),
}


def test_every_other_argument_is_on_the_coverage_page() -> None:
    notes = tomllib.loads((DOCS / "numpy_coverage.toml").read_text(encoding="utf-8"))["differing"]
    listed = {f"{g['namespace']}.{n}".removeprefix("numpy.") for g in notes for n in g["names"]}
    found = set()
    for place, ours, theirs in (
        ("", np, numpy),
        ("linalg.", np.linalg, numpy.linalg),
        ("fft.", np.fft, numpy.fft),
    ):
        for name in {*ours.__all__} & {*theirs.__all__}:
            own = getattr(ours, name)
            if not inspect.isroutine(own) or name == "dtype":
                continue
            try:
                signatures = inspect.signature(own), inspect.signature(getattr(theirs, name))
            except ValueError:
                continue
            options = signatures[0].parameters.values()
            has_all = any(p.kind is p.VAR_KEYWORD for p in options)
            if not has_all and differences(name, *signatures):
                found.add(place + name)
    assert found - listed <= STANDARDS
    assert {"quantile", "load"} <= found & listed


def test_another_signature_is_found() -> None:
    """The control."""

    def roll(a: object, axis: int | None) -> None: ...

    found = differences("roll", inspect.signature(roll), inspect.signature(numpy.rot90))
    assert found == ["no keyword m", "no keyword k", "no keyword axes"]
    found = differences("expand_dims", inspect.signature(roll), inspect.signature(numpy.squeeze))
    assert found == ["axis has no default"]
