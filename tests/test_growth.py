"""What large modules take: work that grows no faster than they do, counted in calls of functions."""

from __future__ import annotations

import cProfile
import warnings
from collections.abc import Callable

import pytest

from neuronsim.executor import compile as compiling
from neuronsim.hlo.module import Module
from tests import large_modules

pytestmark = pytest.mark.isa_independent  # what is counted are calls in Python

# How much more the last third may take than the one before. A square part takes 1.67 times as much.
ALLOWED = 1.25
SIZES, SLACK = (12, 24, 36), 60
LARGE_SIZES, LARGE_SLACK = (50, 100, 150), 500
# What loops carry, long chains, wide tuples, and what nests or is called.
FIRST = ("carried_arrays", "rotated_arrays", "rotated_casts", "rotated_scalars", "chain", "wide_tuple")
FIRST += ("nested_loops", "conjunction", "called_computations")


def calls_of(module: Module) -> dict[str, int]:
    """The calls, built-in ones too, of all that is done with a module."""
    found = {}
    for name, run in large_modules.work_on(module):
        profile = cProfile.Profile()
        profile.runcall(run)
        found[name] = sum(entry.callcount for entry in profile.getstats())
    return found


def check(case: str, sizes: tuple[int, int, int], slack: int) -> None:
    make: Callable[[int], Module] = large_modules.CASES[case]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # Loops of these sizes are short enough to be unrolled, up to MAX_UNROLLED instructions.
        patch.setattr(compiling, "MAX_TRIPS", 0)
        warnings.simplefilter("ignore")  # TVM's policy names what it does not list
        calls_of(make(4))  # what is made once
        few, more, many = (calls_of(make(n)) for n in sizes)
    steps = {name: (more[name] - few[name], many[name] - more[name]) for name in many}
    assert {name: s for name, s in steps.items() if s[1] > ALLOWED * s[0] + slack} == {}


@pytest.mark.parametrize("case", FIRST)
def test_work_grows_in_proportion_to_the_module(case: str) -> None:
    check(case, SIZES, SLACK)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", large_modules.CASES)
def test_work_on_larger_modules_grows_in_proportion(case: str) -> None:
    check(case, LARGE_SIZES, LARGE_SLACK)
