"""Loops that count (steps.Count): trips, counters and what they select, against Python's own loops; and
windows: slices whose place is known only when they run, read where they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.executor.test_control_flow import DOUBLING, compiled, loop, run

from neuronsim.executor.record_movement import FEW_BYTES
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Chain, Count, Region, While, all_steps

pytestmark = pytest.mark.usefixtures("loops_stay")


def counting(start: int, step: int, test: str, limit: int, dtype: str = "s32") -> str:
    """A loop that adds its counter, and one that runs backwards, to a vector."""
    state = f"({dtype}[], {dtype}[3], s32[])"
    return f"""
condition {{
  p = {state} parameter(0)
  i = {dtype}[] get-tuple-element(p), index=0
  n = {dtype}[] constant({limit})
  ROOT less = pred[] compare(i, n), direction={test}
}}

body {{
  p = {state} parameter(0)
  i = {dtype}[] get-tuple-element(p), index=0
  x = {dtype}[3] get-tuple-element(p), index=1
  k = s32[] get-tuple-element(p), index=2
  step = {dtype}[] constant({step})
  j = {dtype}[] add(i, step)
  back = s32[] constant(-2)
  l = s32[] add(k, back)
  own = {dtype}[] convert(k)
  both = {dtype}[] subtract(i, own)
  b = {dtype}[3] broadcast(both), dimensions={{}}
  y = {dtype}[3] add(x, b)
  ROOT out = {state} tuple(j, y, l)
}}

ENTRY main {{
  x = {dtype}[3] parameter(0)
  start = {dtype}[] constant({start})
  ten = s32[] constant(10)
  state = {state} tuple(start, x, ten)
  ROOT w = {state} while(state), condition=condition, body=body
}}
"""


def the_loop(program: Schedule) -> While:
    (found,) = (s.action for s in all_steps(program.steps) if isinstance(s.action, While))
    return found


@pytest.mark.parametrize(
    ("start", "step", "test", "limit", "dtype"),
    [(0, 1, "LT", 5, "s32"), (7, -3, "GT", -6, "s32"), (2, 5, "LE", 12, "s32"), (5, 1, "LT", 6, "s32"),
     (4294967290, 2, "LT", 4294967294, "u32"), (3, 4, "NE", 19, "s32")],
)  # fmt: skip
def test_counters_are_start_plus_steps(
    start: int, step: int, test: str, limit: int, dtype: str
) -> None:
    holds = {"LT": int.__lt__, "GT": int.__gt__, "LE": int.__le__, "NE": int.__ne__}[test]
    program = compiled(counting(start, step, test, limit, dtype))
    condition = the_loop(program).condition
    assert isinstance(condition, Count)
    i, k, total = start, 10, 0
    while holds(i, limit):
        total += i - k
        i, k = i + step, k - 2
    x = np.array([1, 2, 3], np.uint32 if dtype == "u32" else np.int32)
    expected = (x.astype(np.int64) + total).astype(x.dtype).tolist()
    assert run(program, x) == (i, expected, k)
    assert len(condition.counters) == 2


@pytest.mark.parametrize("limit", ["the state's", "wraps"])
def test_no_counter_where_a_trip_may_decide(limit: str) -> None:
    text = counting(0, 1, "LT", 5)
    if limit == "wraps":  # past the greatest int32
        text = counting(2147483640, 100, "LT", 2147483647)
    else:
        text = text.replace("n = s32[] constant(5)", "n = s32[] get-tuple-element(p), index=2")
    program = compiled(text)
    assert isinstance(the_loop(program).condition, Region)
    if limit != "wraps":  # i below 10 - 2 i
        assert run(program, [1, 2, 3]) == (4, [1 - 22, 2 - 22, 3 - 22], 2)


SELECTING = """
  zero = s32[] constant(0)
  below = pred[] compare({of}, zero), direction=LT
  seven = s32[] constant(7)
  added = s32[] add({of}, seven)
  at = s32[] select(below, added, {of})
  b = s32[3] broadcast(at), dimensions={{}}
  d = s32[3] add(e1, b)
"""


@pytest.mark.parametrize(
    ("start", "of", "links"), [(0, "i", 1), (0, "j", 3), (-2, "i", 6), (-1, "j", 3)]
)
def test_selections_that_the_range_of_a_counter_decides(start: int, of: str, links: int) -> None:
    """They are no links; those that another trip would decide otherwise are."""
    entry = DOUBLING.replace("constant(0)", f"constant({start})")
    program = compiled(loop("s32[3]", SELECTING.format(of=of), "d") + entry)
    chains = [s.action for s in all_steps(the_loop(program).body.steps) if isinstance(s.action, Chain)]
    assert sum(len(c.links) for c in chains) == links
    x = np.array([1, 2, 3])
    for i in range(start, 3):
        at = i + (of == "j")
        x = x + (at + 7 if at < 0 else at)
    assert run(program, [1, 2, 3]) == (3, x.tolist())


INSIDE = loop(
    "s32[3]",
    "  z = s32[] constant(0)\n  state = (s32[], s32[3], s32[]) tuple(z, e1, i)\n"
    "  w = (s32[], s32[3], s32[]) while(state), condition=condition, body=body\n"
    "  d = s32[3] get-tuple-element(w), index=1",
    "d",
)
NEST = loop("s32[3] s32[]", SELECTING.format(of="e2"), "d, e2") + INSIDE.replace(
    "condition {", "condition2 {"
).replace("body {", "body2 {")


def test_a_counter_is_known_in_the_loops_inside() -> None:
    """An inner loop's index of the outer one selects nothing: a jitted nest over a table has the links
    of the values alone.
    """
    entry = DOUBLING.replace("=condition", "=condition2").replace("=body", "=body2")
    program = compiled(NEST + entry)
    chains = [s.action for s in all_steps(program.steps) if isinstance(s.action, Chain)]
    assert [len(c.links) for c in chains] == [1]
    assert run(program, [1, 2, 3]) == (3, [1 + 9, 2 + 9, 3 + 9])


@pytest.mark.parametrize("starts", [(0, -2), (-2, 0)])
def test_two_loops_over_one_body_have_the_ranges_of_both(starts: tuple[int, int]) -> None:
    """What one of them decides, of its counter in a loop inside, the other does not."""
    program = compiled(
        NEST
        + f"""
ENTRY main {{
  x = s32[3] parameter(0)
  a = s32[] constant({starts[0]})
  b = s32[] constant({starts[1]})
  from_a = (s32[], s32[3]) tuple(a, x)
  from_b = (s32[], s32[3]) tuple(b, x)
  u = (s32[], s32[3]) while(from_a), condition=condition2, body=body2
  v = (s32[], s32[3]) while(from_b), condition=condition2, body=body2
  ROOT t = ((s32[], s32[3]), (s32[], s32[3])) tuple(u, v)
}}
"""
    )
    added = [3 * sum(i + 7 if i < 0 else i for i in range(start, 3)) for start in starts]
    assert run(program, [1, 2, 3]) == tuple((3, [x + n for x in (1, 2, 3)]) for n in added)


def test_a_loop_in_a_branch_counts() -> None:
    branches = """
looping {
  x = s32[3] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], s32[3]) tuple(zero, x)
  w = (s32[], s32[3]) while(state), condition=condition, body=body
  ROOT y = s32[3] get-tuple-element(w), index=1
}

as_it_is {
  ROOT x = s32[3] parameter(0)
}

ENTRY main {
  p = pred[] parameter(0)
  x = s32[3] parameter(1)
  ROOT y = s32[3] conditional(p, x, x), true_computation=looping, false_computation=as_it_is
}
"""
    program = compiled(loop("s32[3]", SELECTING.format(of="i"), "d") + branches)
    assert isinstance(the_loop(program).condition, Count)
    assert run(program, True, [1, 2, 3]) == [1 + 3, 2 + 3, 3 + 3]
    assert run(program, False, [1, 2, 3]) == [1, 2, 3]


def test_what_changes_in_a_loop_has_no_range() -> None:
    """An array that begins as a constant: it is 2, then -1, then 0."""
    halved = "  two = s32[] constant(-2)\n  half = s32[] divide(e2, two)"
    text = loop("s32[3] s32[]", SELECTING.format(of="e2") + halved, "d, half")
    program = compiled(
        text
        + """
ENTRY main {
  x = s32[3] parameter(0)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  state = (s32[], s32[3], s32[]) tuple(zero, x, two)
  ROOT w = (s32[], s32[3], s32[]) while(state), condition=condition, body=body
}
"""
    )
    assert run(program, [1, 2, 3]) == (3, [x + 2 + (7 - 1) + 0 for x in (1, 2, 3)], 0)


# ---- windows -------------------------------------------------------------------------------------

WINDOW = """
ENTRY main {
  x = s32[4,W] parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  y = s32[4,W] negate(x)
  r = s32[1,W] dynamic-slice(y, i, zero), dynamic_slice_sizes={1,W}
BODY
}
"""


def rows(body: str, index: int, width: int) -> Any:
    program = compiled(WINDOW.replace("BODY", body).replace("W", str(width)))
    return run(program, np.arange(4 * width).reshape(4, width), index), program


@pytest.mark.parametrize("index", [-3, 0, 2, 3, 9])
def test_window_is_read_where_it_lies(index: int) -> None:
    """Its views too; no memory is planned for it."""
    (found, program) = rows(
        "  v = s32[W] reshape(r)\n  b = s32[W] reverse(v), dimensions={0}\n  ROOT s = s32[W] add(v, b)",
        index,
        3,
    )
    row = -np.arange(12).reshape(4, 3)[min(max(index, 0), 3)]
    assert found == (row + row[::-1]).tolist()
    assert program.memory["temporaries"] == 64  # of y


@pytest.mark.parametrize("width", [3, FEW_BYTES])  # little is copied
def test_window_of_what_is_updated_keeps_its_values(width: int) -> None:
    """An update of the array that a window lies in is not in place while the window is read."""
    found, _ = rows(
        "  n = s32[1,W] add(r, r)\n  u = s32[4,W] dynamic-update-slice(y, n, i, zero)\n"
        "  b = s32[W] reshape(r)\n  w = s32[4,W] broadcast(b), dimensions={1}\n"
        "  ROOT s = s32[4,W] add(u, w)",
        1,
        width,
    )
    y = -np.arange(4 * width).reshape(4, width)
    expected = y + y[1]
    expected[1] += y[1]
    assert found == expected.tolist()


@pytest.mark.parametrize("width", [3, FEW_BYTES])
def test_window_as_a_result_and_in_an_update_of_its_array(width: int) -> None:
    body = "  u = s32[4,W] dynamic-update-slice(y, r, zero, zero)\n"
    found, _ = rows(body + "  ROOT t = (s32[4,W], s32[1,W]) tuple(u, r)", 2, width)
    y = -np.arange(4 * width).reshape(4, width)
    expected = y.copy()
    expected[0] = y[2]
    assert found == (expected.tolist(), [y[2].tolist()])


def test_columns_are_copied() -> None:
    """A window that is no run of memory is moved, as its readers would walk it slowly."""
    row = "r = s32[1,W] dynamic-slice(y, i, zero), dynamic_slice_sizes={1,W}"
    column = "r = s32[4,1] dynamic-slice(y, zero, i), dynamic_slice_sizes={4,1}"
    text = WINDOW.replace(row, column).replace("W", "3")
    program = compiled(text.replace("BODY", "  ROOT s = s32[4,1] add(r, r)"))
    x = np.arange(12).reshape(4, 3)
    assert run(program, x, 1) == (-2 * x[:, 1:2]).tolist()
