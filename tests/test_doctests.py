"""Every example in a docstring of the package runs and gives what it says."""

from __future__ import annotations

import doctest
import functools
import importlib
import pkgutil

import pytest

import neuronsim
from tests.support.parameters import each_of
from tests.support.places import ROOT

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


@functools.cache
def with_examples(name: str) -> list[doctest.DocTest]:
    """The docstrings that have examples; to run a module's others takes longer than to run these."""
    return [t for t in doctest.DocTestFinder().find(importlib.import_module(name)) if t.examples]


@each_of("name", MODULES)
def test_examples_in_docstrings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # some read the bundled example
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    failed = [test.name for test in with_examples(name) if runner.run(test, clear_globs=False).failed]
    assert failed == []


def test_the_package_has_examples() -> None:
    assert sum(len(with_examples(name)) for name in MODULES) >= 20


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name in MODULES if not importlib.import_module(name).__doc__] == []
