"""How many trips loops take and how often computations run: against loops that are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of

from neuronsim import api
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text
from neuronsim.hlo.text import to_text
from neuronsim.hlo.trip_counts import LoopTrips, loop_trips, run_counts

pytestmark = pytest.mark.isa_independent

LOOP = """
HloModule counted

body {{
  p = ({t}[], s32[], f32[2]) parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  x = f32[2] get-tuple-element(p), index=2
  step = {t}[] constant({step})
  next = {t}[] {op}
  one = s32[] constant(1)
  more = s32[] add(n, one)
  y = f32[2] tanh(x)
  ROOT r = ({t}[], s32[], f32[2]) tuple(next, more, y)
}}

condition {{
  p = ({t}[], s32[], f32[2]) parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  x = f32[2] get-tuple-element(p), index=2
  limit = {t}[] constant({limit})
  {test}
}}

ENTRY main {{
  x = f32[2] parameter(0)
  start = {t}[] constant({start})
  zero = s32[] constant(0)
  given = ({t}[], s32[], f32[2]) tuple(start, zero, x)
  loop = ({t}[], s32[], f32[2]) while(given), condition=condition, body=body{config}
  ROOT trips = s32[] get-tuple-element(loop), index=1
}}
"""
TEST = "ROOT c = pred[] compare(i, limit), direction={}"


def counted(start: Any, test: str, limit: Any, step: Any, t: str = "s32", **more: str) -> Module:
    """A loop that counts its trips."""
    test_line = more.pop("line", TEST.format(test))
    parts = {"op": "add(i, step)", "config": ""} | more
    return from_text(LOOP.format(t=t, start=start, limit=limit, step=step, test=test_line, **parts))


def trips_of(module: Module, assumed: Any = None) -> list[tuple[int, str]]:
    return [(loop.trips, loop.evidence) for loop in loop_trips(inline_calls(module), assumed)]


def executed(module: Module) -> int:
    return int(np.asarray(api.compile(module, auto_cast="none")(np.zeros(2, np.float32))))


@each_of(
    ("start", "test", "limit", "step"),
    [
        (0, "LT", 7, 1),
        (0, "LT", 7, 3),
        (0, "LE", 6, 3),
        (0, "LE", 7, 3),
        (-5, "NE", 7, 4),
        (9, "GT", 0, -2),
        (9, "GE", 0, -3),
        (9, "GE", 1, -4),
        (3, "EQ", 3, 2),
        (3, "EQ", 4, 1),
        (7, "LT", 7, 1),
        (8, "GE", 9, 1),
        (0, "LT", 1000, 1),
    ],
)
def test_the_trips_of_counted_loops_are_those_that_are_run(
    start: int, test: str, limit: int, step: int
) -> None:
    module = counted(start, test, limit, step)
    assert trips_of(module) == [(executed(module), "known")]


@each_of(
    "parts",
    [
        {"line": "ROOT c = pred[] compare(limit, i), direction=GT"},
        {"line": "d = pred[] compare(i, limit), direction=GE\n  ROOT c = pred[] not(d)"},
        {"op": "add(step, i)"},
        {"op": "multiply(i, step)"},
        {"op": "subtract(i, step)", "start": "20", "limit": "1", "dir": "GT"},
        {"line": "k = s32[] add(limit, limit)\n  ROOT c = pred[] compare(i, k), direction=LT"},
        {"line": "j = s32[] multiply(i, i)\n  ROOT c = pred[] compare(j, limit), direction=LT"},
        {"t": "u8"},
        {"t": "u8", "start": "253", "limit": "255"},
        {"t": "u8", "start": "250", "limit": "255", "step": "3"},  # 253, 0, 3, ... 255
        {"t": "f32", "start": "0.5"},
        {"line": "m = s32[] add(i, n)\n  ROOT c = pred[] compare(m, limit), direction=LT"},
    ],
    ids=str,
)
def test_what_constants_alone_decide_is_known_in_every_form(parts: dict[str, str]) -> None:
    more = {k: v for k, v in parts.items() if k in ("line", "op", "t")}
    start, limit = parts.get("start", "1"), parts.get("limit", "20")
    module = counted(start, parts.get("dir", "LT"), limit, parts.get("step", 2), **more)
    assert trips_of(module) == [(executed(module), "known")]


@pytest.mark.parametrize(
    ("start", "test", "limit", "step", "t"),
    [
        (0, "LT", 7, 0, "s32"),
        (0, "LT", 7, -1, "s32"),  # until it wraps
        (0, "NE", 7, 2, "s32"),
        (0, "LE", 255, 1, "u8"),
        (0, "LT", 2**40, 2**20, "s64"),  # 32 bits on the device (C7)
        (0, "LE", 2**31 - 1, 2**20, "s32"),
    ],
)
def test_a_counter_that_never_fails_its_test_or_leaves_its_type_has_no_known_trips(
    start: int, test: str, limit: int, step: int, t: str
) -> None:
    assert trips_of(counted(start, test, limit, step, t)) == [(1, "assumed")]


SEEN = "s = f32[1] slice(x), slice={[0:1]}\n  v = f32[] reshape(s)\n  f = f32[] constant(0.5)\n  "
UNKNOWN = SEEN + "ROOT c = pred[] compare(v, f), direction=GT"
EITHER = (
    SEEN + "d = pred[] compare(v, f), direction=GT\n  e = pred[] compare(i, limit), direction=LT\n  "
)


def test_a_condition_on_data_is_assumed_and_beside_a_counter_bounded() -> None:
    assert trips_of(counted(0, "LT", 7, 1, line=UNKNOWN)) == [(1, "assumed")]
    both, either = EITHER + "ROOT c = pred[] and(d, e)", EITHER + "ROOT c = pred[] or(d, e)"
    assert trips_of(counted(0, "LT", 7, 1, line=both)) == [(7, "bound")]
    assert trips_of(counted(0, "LT", 7, 1, line=either)) == [(1, "assumed")]


def test_given_trips_count_for_what_is_not_known() -> None:
    unknown = counted(0, "LT", 7, 1, line=UNKNOWN)
    bounded = counted(0, "LT", 7, 1, line=EITHER + "ROOT c = pred[] and(d, e)")
    known = counted(0, "LT", 7, 1)
    assert trips_of(unknown, 12) == trips_of(unknown, {"loop": 12, "*": 3}) == [(12, "given")]
    assert trips_of(bounded, 5) == [(5, "given")]
    assert trips_of(bounded, 50) == [(7, "given")]  # no more than it can take
    assert trips_of(known, 12) == trips_of(known, {"loop": 7}) == [(7, "known")]
    assert trips_of(unknown, 0) == [(0, "given")]


@pytest.mark.parametrize(
    ("assumed", "message"),
    [
        (-1, "at least 0"),
        (1.5, "an integer"),
        (True, "an integer"),
        ("3", "an integer"),
        (2**63, "below 2"),
        ({"lop": 3}, "no loop 'lop' (did you mean 'loop'?): its loops are loop"),
        ({"loop": 8}, "loop takes 7 trips, as its condition says, not 8"),
        ({"loop": None}, "an integer"),
    ],
)
def test_trips_that_cannot_be_are_refused(assumed: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        trips_of(counted(0, "LT", 7, 1), assumed)
    assert message in str(error.value)


def test_more_trips_than_a_loop_can_take_are_refused_by_its_name() -> None:
    bounded = counted(0, "LT", 7, 1, line=EITHER + "ROOT c = pred[] and(d, e)")
    with pytest.raises(InvalidArgument, match="at most 7 trips"):
        trips_of(bounded, {"loop": 8})


CONFIG = ', backend_config={"known_trip_count":{"n":"16"},"known_init_step":{"init":"0"}}'


def test_what_xla_wrote_down_counts_where_nothing_else_is_known_and_is_kept() -> None:
    module = counted(0, "LT", 7, 1, line=UNKNOWN, config=CONFIG)
    for same in (module, proto.from_bytes(proto.to_bytes(module)), from_text(to_text(module))):
        assert trips_of(same) == [(16, "known")]
    assert trips_of(counted(0, "LT", 7, 1, config=CONFIG)) == [(7, "known")]
    for wrong in ('"no JSON"', "{}", '{"known_trip_count":{"n":"-1"}}', '{"known_trip_count":[3]}'):
        broken = counted(0, "LT", 7, 1, line=UNKNOWN, config=f", backend_config={wrong}")
        assert trips_of(broken) == [(1, "assumed")]


def test_what_xla_wrote_down_makes_no_other_module_of_it() -> None:
    plain, noted = counted(0, "LT", 7, 1), counted(0, "LT", 7, 1, config=CONFIG)
    assert api.plan(plain, auto_cast="all") == api.plan(noted, auto_cast="all")


NESTED = """
HloModule nested

square { a = f32[2] parameter(0)  ROOT b = f32[2] multiply(a, a) }
twice { a = f32[2] parameter(0)  b = f32[2] fusion(a), kind=kLoop, calls=square
  ROOT c = f32[2] add(b, b) }

inner_body {
  p = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  limit = s32[] get-tuple-element(p), index=1
  x = f32[2] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[2] sine(x)
  ROOT r = (s32[], s32[], f32[2]) tuple(next, limit, y)
}
inner_condition {
  p = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  limit = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, limit), direction=LT
}
outer_body {
  p = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  limit = s32[] get-tuple-element(p), index=1
  x = f32[2] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  given = (s32[], s32[], f32[2]) tuple(zero, limit, x)
  inner = (s32[], s32[], f32[2]) while(given), condition=inner_condition, body=inner_body
  y = f32[2] get-tuple-element(inner), index=2
  z = f32[2] conditional(i, y, y, y), branch_computations={twice, square, twice}
  w = f32[2] call(z), to_apply=twice
  one = s32[] constant(1)
  next = s32[] subtract(i, one)
  ROOT r = (s32[], s32[], f32[2]) tuple(next, limit, w)
}
outer_condition {
  p = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  zero = s32[] constant(0)
  ROOT c = pred[] compare(i, zero), direction=GT
}
ENTRY main {
  x = f32[2] parameter(0)
  three = s32[] constant(3)
  two = s32[] constant(2)
  five = s32[] add(three, two)
  given = (s32[], s32[], f32[2]) tuple(three, five, x)
  outer = (s32[], s32[], f32[2]) while(given), condition=outer_condition, body=outer_body
  ROOT y = f32[2] get-tuple-element(outer), index=2
}
"""


def test_nested_loops_multiply_and_the_dearest_branch_runs() -> None:
    flat = inline_calls(from_text(NESTED))
    loops = loop_trips(flat)
    # The inner loop's limit is folded in the entry and passed on by the outer loop.
    assert loops == (LoopTrips("outer", 3, "known"), LoopTrips("inner", 5, "known"))
    found = run_counts(flat, loops, lambda c: len(c.instructions))
    assert found.conditionals == ("z",)
    assert found.counts == {
        "main": 1,
        "outer_body": 3,
        "outer_condition": 4,
        "inner_body": 15,
        "inner_condition": 18,
        "twice": 3,
        "square": 0,
    }
    cheap = run_counts(flat, loops, lambda c: float(c.name == "square"))
    assert (cheap.counts["square"], cheap.counts["twice"]) == (3, 0)


def test_a_loop_that_takes_no_trips_runs_its_condition_once() -> None:
    flat = inline_calls(counted(9, "LT", 7, 1))
    found = run_counts(flat, loop_trips(flat), lambda c: 1.0)
    assert found.counts == {"main": 1, "body": 0, "condition": 1}


def test_counts_of_loops_without_end_stay_numbers() -> None:
    flat = inline_calls(from_text(NESTED.replace("constant(3)", "constant(2000000000)")))
    loops = tuple(LoopTrips(loop.name, 2**62, "given") for loop in loop_trips(flat))
    assert max(run_counts(flat, loops, lambda c: 1.0).counts.values()) == 2**63 - 1
