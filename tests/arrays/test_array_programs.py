"""Random programs of arrays agree with NumPy; 200,000 of them with the marker `exhaustive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.arrays import random_programs
from tests.arrays.random_programs import Running, Step

import neuronsim as np

pytestmark = pytest.mark.isa_independent


@pytest.mark.parametrize("count", [400, pytest.param(200_000, marks=pytest.mark.exhaustive)])
def test_programs_agree_with_numpy(count: int) -> None:
    outcome = random_programs.run(0, count)
    assert outcome.findings == []
    assert outcome.counts["agrees"] > 2 * count
    assert outcome.counts["excused"] < 0.1 * outcome.counts["agrees"]


def wrong_type(x: Any) -> Any:
    return np.add(x, 1).astype("float64")


CONTROLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a value": (lambda x: x + 2, "different"),
    "a type": (wrong_type, "different"),
    "a shape": (lambda x: (x + 1)[None], "different"),
    "an error": (lambda x: {}[x.shape], "foreign"),
    "a refusal": (lambda x: np.reshape(x, (7,)), "refused"),
    "a hang": (lambda x: [None for _ in iter(int, 1)], "hang"),
}


@pytest.mark.parametrize("what", CONTROLS)
def test_control_what_differs_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_programs, "SECONDS", 0.2)
    call, kind = CONTROLS[what]
    running = Running()
    running.here["f"], running.there["f"] = call, lambda x: x + numpy.float32(1)
    made = "v0 = arr('float32', (2, 3), 1, 'columns')"
    assert running.run(Step(made, made, "moved", "v0")) == ("", "")
    assert running.run(Step("v1 = f(v0)", "v1 = f(v0)", "exact", "v1"))[0] == kind


def test_control_a_write_that_numpy_does_not_see_is_found() -> None:
    running = Running()
    for made in ("v0 = arr('int64', (3,), 1)", "v1 = v0[1:]"):
        running.run(Step(made, made, "moved", made[:2]))
    found = running.run(Step("v0 += 1", "v0 = v0 + 1", "exact"))
    assert found[0] == "different"
    assert found[1].startswith("v1 afterwards")
