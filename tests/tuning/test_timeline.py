"""When engines work: beside each other, in the program's order, waiting for operands."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.tuning.counted_loop import FIVE_TANH

from neuronsim.hlo.parse import from_text
from neuronsim.targets import TARGETS
from neuronsim.tuning.cost import estimate
from neuronsim.tuning.timeline import MEMORY, Timeline, timeline

pytestmark = pytest.mark.isa_independent

VECTOR, SCALAR = 1.12e9, 1.4e9


def times(text: str) -> Timeline:
    module = from_text(text)
    return timeline(module, estimate(module, 0, TARGETS["trn1"]))


SIDE_BY_SIDE = """HloModule two
ENTRY main {
  x = f32[128,100000] parameter(0)
  a = f32[128,100000] tanh(x)
  b = f32[128,100000] negate(x)
  c = f32[128,100000] abs(b)
  e = f32[128,100000] tanh(a)
  f = f32[128,100000] tanh(e)
  ROOT d = f32[128,100000] add(f, c)
}"""


def test_engines_work_beside_each_other_and_wait_for_operands() -> None:
    found = {e.instruction: e for e in times(SIDE_BY_SIDE).events}
    a, b, c, d, f = (found[name] for name in "abcdf")
    assert (a.engine, b.engine) == ("scalar", "vector")
    assert a.start == b.start == 0.0
    assert b.end == pytest.approx(100100 / VECTOR)
    assert c.start == b.end  # it reads b, and their engine is busy
    assert d.start == f.end > c.end


def test_an_engine_takes_its_instructions_in_the_programs_order() -> None:
    events = times(SIDE_BY_SIDE).events
    for engine in ("vector", "scalar"):
        own = [e for e in events if e.engine == engine]
        assert all(first.end <= second.start for first, second in pairwise(own))


def test_the_memory_works_beside_all() -> None:
    memory = next(e for e in times(SIDE_BY_SIDE).events if e.engine == MEMORY)
    # The input and the result, and b, c and a pass on what one instruction alone reads.
    assert memory.start == 0.0
    assert memory.end >= 2 * 4 * 128 * 100000 / TARGETS["trn1"].bandwidth


def test_a_loop_is_where_it_stands_with_all_of_its_trips() -> None:
    found = {e.instruction: e for e in times(FIVE_TANH).events}
    assert found["y"].start == found["w"].end
    assert found["y"].end - found["y"].start == pytest.approx(5 * 1100 / SCALAR)
    assert found["v"].start == found["y"].end
