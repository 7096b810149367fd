"""docs/numpy_coverage.md is what its generator writes, and no note of it is stale; what the package
says of names that it has not.
"""

from __future__ import annotations

import pickle
import re
from types import ModuleType

import numpy
import pytest

import neuronsim as np
from neuronsim.arrays.absent_names import REASONS
from neuronsim.errors import NeuronSimError
from tests.support.parameters import each_of
from tests.support.scripts import load_script

pytestmark = pytest.mark.isa_independent


COVERAGE = load_script("docs/make_numpy_coverage.py")
VERSION = re.search(r"for NumPy ([\d.]+),", COVERAGE.PAGE.read_text(encoding="utf-8"))[1]
of_its_version = pytest.mark.skipif(
    numpy.__version__ != VERSION, reason=f"the page is of NumPy {VERSION}, here is {numpy.__version__}"
)


@of_its_version
def test_the_page_is_what_its_generator_writes() -> None:
    assert COVERAGE.PAGE.read_text(encoding="utf-8") == COVERAGE.page()


def stale(notes: dict[str, str], kind: str) -> set[str]:
    """Notes of names that are not of that kind."""
    counted = COVERAGE.coverage()
    return set(notes) - {f"{space}.{n}" for space, kinds in counted.items() for n in kinds[kind]}


@of_its_version
def test_no_note_is_stale_and_every_absent_name_has_its_reason() -> None:
    assert stale(COVERAGE.differing(), "differing") == set()
    assert stale(REASONS, "absent") == set()
    absent = {f"{s}.{n}" for s, kinds in COVERAGE.coverage().items() for n in kinds["absent"]}
    assert absent == set(REASONS)


@of_its_version
def test_a_stale_note_is_found() -> None:
    """The control."""
    assert stale({"numpy.exp": "", "numpy.no_such": ""}, "absent") == {"numpy.exp", "numpy.no_such"}


def test_no_name_has_two_notes() -> None:
    listed = [n for _, names, _ in np.arrays.absent_names._ABSENT for n in names.split()]
    assert len(listed) == len(REASONS)
    groups = COVERAGE.tomllib.loads(COVERAGE.NOTES.read_text(encoding="utf-8"))["differing"]
    assert sum(len(g["names"]) for g in groups) == len(COVERAGE.differing())


@each_of("qualified", [n for n in REASONS if "ndarray" not in n])
def test_an_absent_name_says_why(qualified: str) -> None:
    space, _, name = qualified.rpartition(".")
    module = getattr(np, space.partition(".")[2]) if "." in space else np
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert isinstance(caught.value, NeuronSimError)
    assert str(caught.value).startswith(f"{space.replace('numpy', 'neuronsim')} has no {name!r}")
    assert str(caught.value).endswith(REASONS[qualified])


@pytest.mark.parametrize(
    ("module", "name", "nearest"),
    [
        (np, "sofmax", "fmax"),
        (np, "argmx", "argmax"),
        (np.linalg, "sovle", "solve"),
        (np.fft, "ftt", "fft"),
        (np.random, "defualt_rng", "default_rng"),
        (np.testing, "assert_bits_eqal", "assert_bits_equal"),
        (np.nn, "layernorm", "layer_norm"),
    ],
)
def test_a_misspelt_name_says_the_nearest(module: ModuleType, name: str, nearest: str) -> None:
    with pytest.raises(
        AttributeError, match=re.escape(f"has no {name!r} (did you mean {nearest!r}?)")
    ) as e:
        getattr(module, name)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
