"""Every example in a docstring of the package runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import neuronsim
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent  # what they show is tested by itself

# Importing the command line's modules has no side effect either: they are included.
MODULES = [
    "neuronsim",
    *sorted(
        m.name
        for m in pkgutil.walk_packages(neuronsim.__path__, "neuronsim.")
        if m.name.rpartition(".")[2] != "_core"
    ),
]


@each_of("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.FAIL_FAST)
    assert failed == 0


def test_the_package_has_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) >= 20


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name in MODULES if not importlib.import_module(name).__doc__] == []
