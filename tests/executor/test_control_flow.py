"""Loops, branches, calls and tuples of compiled programs: values by hand and against Python's own
control flow, random words by trip (S2), errors and interrupts in loops, threads.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.executor import random_loops
from tests.support import interpreter

from neuronsim import dtypes, ops, processor
from neuronsim.errors import InvalidModel, NeuronSimError
from neuronsim.executor import compile as compiling
from neuronsim.executor.compile import compile_module
from neuronsim.executor.diagnostics import Diagnostics
from neuronsim.executor.run import Context, run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

pytestmark = pytest.mark.usefixtures("loops_stay")


def module(text: str) -> Module:
    found = from_text(f"HloModule m\n{text}")
    verify(found)
    return found


def compiled(text: str, **fields: Any) -> Schedule:
    return compile_module(module(text), Profile(**fields), find_target("trn1"))


def listed(value: Value) -> Any:
    """The arrays as lists, in tuples as they are nested."""
    return tuple(map(listed, value.elements)) if isinstance(value, TupleValue) else value.data.tolist()


def run(program: Schedule, *arrays: Any, **more: Any) -> Any:
    given = {
        name: ops.Bits(np.asarray(a, t.dtype.storage), t.dtype)
        for (name, t), a in zip(program.inputs, arrays, strict=True)
    }
    return listed(run_schedule(program, given, **more))


def loop(state: str, changes: str, following: str, limit: str = "3", **conditions: str) -> str:
    """A loop's two computations: `i` counts the trips, elements of the state are e1, e2, ..."""
    types = state.split()
    shape = f"(s32[], {', '.join(types)})"
    elements = "\n".join(
        f"  e{n} = {t} get-tuple-element(p), index={n}" for n, t in enumerate(types, start=1)
    )
    return f"""
condition {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({limit})
  ROOT less = pred[] compare(i, n), direction=LT
}}

body {{
  p = {shape} parameter(0)
  i = s32[] get-tuple-element(p), index=0
{elements}
  one = s32[] constant(1)
  j = s32[] add(i, one)
{changes}
  ROOT out = {shape} tuple(j, {following})
}}
"""


X, Y = [1, 2, 3], [10, 20, 30]


# ---- while ---------------------------------------------------------------------------------------

DOUBLING = """
ENTRY main {
  x = s32[3] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], s32[3]) tuple(zero, x)
  ROOT w = (s32[], s32[3]) while(state), condition=condition, body=body
}
"""


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_while_of_so_many_trips(trips: int) -> None:
    text = loop("s32[3]", "  d = s32[3] add(e1, e1)", "d", limit=str(trips)) + DOUBLING
    program = compiled(text)
    for _ in range(2):  # the states begin anew in every call
        assert run(program, X) == (trips, [x << trips for x in X])


@pytest.mark.parametrize("fields", [{"int64": "truncate"}, {"activation": "neuron_range"}], ids=str)
def test_what_trips_meet_is_counted_together_C7_E3(fields: dict[str, str]) -> None:
    """The first trip wraps 2^30 and -2^31, the second what the former became; the third takes the sine
    of 4, which is beyond pi.
    """
    changes = "  d = s64[3] add(e1, e1)\n  s = f32[3] sine(e2)\n  f = f32[3] add(e2, e2)"
    text = loop("s64[3] f32[3] f32[3]", changes, "d, f, s", limit="3") + DOUBLING
    text = text.replace("x = s32[3] parameter(0)", "x = s64[3] parameter(0)\n  y = f32[3] parameter(1)")
    text = text.replace("(zero, x)", "(zero, x, y, y)")
    text = text.replace("s32[3])", "s64[3], f32[3], f32[3])")
    program = compiled(text, **fields)
    for schedule in (program, program.op_by_op):
        for _ in range(2):
            counts = Diagnostics()
            found = run(schedule, [2**30, 3, -(2**31)], [1.0, 0.0, 0.5], diagnostics=counts)
            truncates = fields.get("int64") == "truncate"
            assert found[1] == ([0, 24, 0] if truncates else [2**33, 24, -(2**34)])
            assert found[2] == [8.0, 0.0, 4.0]
            assert list(counts.of("int64_truncated").values()) == ([3] if truncates else [])
            assert list(counts.of("outside_range").values()) == ([] if truncates else [1])
    assert program.recording().python == ()


def test_what_no_trip_changes_is_counted_in_each_C7() -> None:
    changes = "  h = s64[] add(e2, e2)\n  b = s64[3] broadcast(h), dimensions={}"
    text = (
        loop("s64[3] s64[]", f"{changes}\n  d = s64[3] maximum(e1, b)", "d, e2", limit="3") + DOUBLING
    )
    text = text.replace("x = s32[3] parameter(0)", "x = s64[3] parameter(0)\n  y = s64[] parameter(1)")
    text = text.replace("(zero, x)", "(zero, x, y)").replace("s32[3])", "s64[3], s64[])")
    program = compiled(text, int64="truncate")
    for schedule in (program, program.op_by_op):
        counts = Diagnostics()
        assert run(schedule, [0, 1, -(2**31)], 2**30 + 1, diagnostics=counts)[1] == [0, 1, -(2**31) + 2]
        assert list(counts.of("int64_truncated").values()) == [3]


PAIR = """
ENTRY main {
  x = s32[3] parameter(0)
  y = s32[3] parameter(1)
  a = s32[3] negate(x)
  b = s32[3] negate(y)
  zero = s32[] constant(0)
  state = (s32[], s32[3], s32[3]) tuple(zero, a, b)
  ROOT w = (s32[], s32[3], s32[3]) while(state), condition=condition, body=body
}
"""


def test_while_reads_in_every_trip_what_it_also_begins_with() -> None:
    """One array begins as a state that changes and as one that is passed on."""
    text = loop("s32[3] s32[3]", "  s = s32[3] add(e1, e2)", "s, e2")
    entry = PAIR.replace("tuple(zero, a, b)", "tuple(zero, a, a)").replace("ROOT w", "w")
    last = "  ROOT s = s32[3] get-tuple-element(w), index=1\n}\n"
    program = compiled(text + entry.rstrip("}\n") + f"\n{last}")
    assert run(program, X, Y) == [-4 * x for x in X]


# A view whose only row is all that it views, written in place.
ROW_OF_A_ROW = """
  b = s32[1,3] broadcast(e2), dimensions={1}
  r = s32[1,3] reshape(e1)
  k = s32[] constant(0)
  u = s32[1,3] dynamic-update-slice(b, r, i, k)
  v = s32[3] reshape(u)
"""


@pytest.mark.parametrize(
    ("changes", "following", "expected"),
    [
        ("", "e2, e1", (3, [-10, -20, -30], [-1, -2, -3])),
        ("", "e1, e1", (3, [-1, -2, -3], [-1, -2, -3])),
        ("", "e1, e2", (3, [-1, -2, -3], [-10, -20, -30])),
        ("  r = s32[3] reverse(e1), dimensions={0}", "r, e2", (3, [-3, -2, -1], [-10, -20, -30])),
        ("  r = s32[3] reverse(e1), dimensions={0}", "e2, r", (3, [-30, -20, -10], [-1, -2, -3])),
        ("  s = s32[3] add(e1, e2)", "s, e1", (3, [-23, -46, -69], [-12, -24, -36])),
        ("  c = s32[3] constant({7, 8, 9})", "c, e1", (3, [7, 8, 9], [7, 8, 9])),
        ("  c = s32[3] broadcast(i), dimensions={}", "c, c", (3, [2, 2, 2], [2, 2, 2])),
        (ROW_OF_A_ROW, "v, e1", (3, [-1, -2, -3], [-1, -2, -3])),
    ],
    ids=["swapped", "to_both", "passed", "view", "swapped_view", "shifted", "constant", "twice", "row"],
)
def test_states_that_change_places(changes: str, following: str, expected: tuple[Any, ...]) -> None:
    assert run(compiled(loop("s32[3] s32[3]", changes, following) + PAIR), X, Y) == expected


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_loops.modules())
def test_random_loops_and_branches_equal_pythons(drawn: Module) -> None:
    profile = Profile(int64="keep")
    programs = [compile_module(drawn, profile, find_target("trn1"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "MAX_TRIPS", 8)
        programs.append(compile_module(drawn, profile, find_target("trn1")))
    for seed in range(2):
        arrays = random_loops.inputs(seed)
        value, _ = interpreter.evaluate(drawn, arrays, profile)
        expected = [leaf.data.tolist() for leaf in interpreter.leaves(value)]
        for program in programs:
            assert list(run(program, *(a.data for a in arrays))) == expected


def test_each_trip_draws_other_words_S2() -> None:
    changes = """
  c = bf16[] constant(1)
  d = bf16[] constant(0.001)
  cs = bf16[512] broadcast(c), dimensions={}
  ds = bf16[512] broadcast(d), dimensions={}
  s = bf16[512] add(cs, ds)
"""
    entry = """
ENTRY main {
  x = bf16[512] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], bf16[512], bf16[512]) tuple(zero, x, x)
  ROOT w = (s32[], bf16[512], bf16[512]) while(state), condition=condition, body=body
}
"""
    program = compiled(loop("bf16[512] bf16[512]", changes, "e2, s") + entry, rounding="stochastic")
    x = np.zeros(512, np.uint16)
    _, one, other = run(program, x)
    assert one != other  # the last two trips
    assert set(one) == set(other) == {0x3F80, 0x3F81}
    assert run(program, x)[1:] == (one, other)
    assert run(program, x, call=1)[1] != one
    assert run(program, x, seed=1)[1] != one


# ---- conditional ---------------------------------------------------------------------------------

BRANCHES = """
first {
  x = s32[3] parameter(0)
  ROOT y = s32[3] add(x, x)
}

second {
  x = s32[3] parameter(0)
  ROOT y = s32[3] negate(x)
}
"""


@pytest.mark.parametrize(("value", "expected"), [(True, [2, 4, 6]), (False, [-1, -2, -3])])
def test_conditional_by_bool(value: bool, expected: list[int]) -> None:
    program = compiled(
        BRANCHES
        + """
ENTRY main {
  x = s32[3] parameter(0)
  b = pred[] parameter(1)
  ROOT y = s32[3] conditional(b, x, x), true_computation=first, false_computation=second
}
"""
    )
    assert run(program, X, value) == expected


def test_conditional_without_a_branch_is_refused() -> None:
    with pytest.raises(InvalidModel, match="calls no computation"):
        compiled(
            """
ENTRY main {
  n = s32[] parameter(0)
  ROOT y = s32[3] conditional(n), branch_computations={}
}
"""
        )


# ---- calls and other computations ----------------------------------------------------------------

SQUARE_PLUS = """
callee {
  a = s32[3] parameter(0)
  b = s32[3] parameter(1)
  m = s32[3] multiply(a, a)
  ROOT s = s32[3] add(m, b)
}
"""


@pytest.mark.parametrize(
    "caller",
    ["call(x, y), to_apply=callee", "fusion(x, y), kind=kLoop, calls=callee",
     'call(x, y), to_apply=callee, is_composite=true, frontend_attributes={composite.name="n"}'],
    ids=["call", "fusion", "composite"],
)  # fmt: skip
def test_callee_runs_in_place_of_its_caller(caller: str) -> None:
    program = compiled(
        f"""{SQUARE_PLUS}
ENTRY main {{
  x = s32[3] parameter(0)
  y = s32[3] parameter(1)
  ROOT s = s32[3] {caller}
}}
"""
    )
    assert run(program, X, Y) == [11, 24, 39]


# ---- tuples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["x", "y", "c", "r"], ids=["input", "value", "constant", "view"])
def test_results_of_one_array_share_no_memory(source: str) -> None:
    program = compiled(
        f"""
ENTRY main {{
  x = s32[3] parameter(0)
  y = s32[3] add(x, x)
  c = s32[3] constant({{4, 5, 6}})
  r = s32[3] reverse(y), dimensions={{0}}
  ROOT out = (s32[3], s32[3]) tuple({source}, {source})
}}
"""
    )
    x = np.array(X, np.int32)
    value = run_schedule(program, {"x": ops.Bits(x, dtypes.int32)})
    assert isinstance(value, TupleValue)
    first, second = (e.data for e in value.elements if isinstance(e, ops.Bits))
    expected = {"x": X, "y": [2, 4, 6], "c": [4, 5, 6], "r": [6, 4, 2]}[source]
    assert first.tolist() == second.tolist() == expected
    first[:] = -1
    assert second.tolist() == expected
    assert x.tolist() == X
    second[:] = -1
    again = run_schedule(program, {"x": ops.Bits(x, dtypes.int32)})
    assert listed(again) == (expected, expected)


# ---- errors, interrupts, threads -----------------------------------------------------------------


def test_error_in_a_loop_leaves_the_program_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    text = loop("s32[3]", "  s = s32[3] map(e1), dimensions={0}, to_apply=negated", "s") + DOUBLING
    negated = """
negated {
  a = s32[] parameter(0)
  ROOT c = s32[] negate(a)
}
"""
    program = compiled(negated + text)
    assert program.recording().python == ("s",)
    assert run(program, [3, 1, 2]) == (3, [-3, -1, -2])
    calls = []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise NeuronSimError("of the second trip")
        return evaluate(*arguments)

    evaluate = ops.run
    monkeypatch.setattr(ops, "run", failing)
    with pytest.raises(NeuronSimError, match="of the second trip"):
        run(program, [3, 1, 2])
    assert len(calls) == 2
    assert run(program, [3, 1, 2]) == (3, [-3, -1, -2])


def interrupt_soon() -> None:
    """Ctrl-C comes shortly."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize("inner_trips", ["0", "1000000"])
def test_interrupt_ends_an_endless_loop(inner_trips: str) -> None:
    inner = loop("s32[3]", "  d = s32[3] add(e1, e1)", "d", limit=inner_trips)
    inner = inner.replace("condition {", "inner_condition {").replace("body {", "inner_body {")
    changes = """
  zero = s32[] constant(0)
  start = (s32[], s32[3]) tuple(zero, e1)
  w = (s32[], s32[3]) while(start), condition=inner_condition, body=inner_body
  d = s32[3] get-tuple-element(w), index=1
"""
    text = inner + loop("s32[3]", changes, "d").replace("direction=LT", "direction=GE")
    program = compiled(
        text.replace("n = s32[] constant(3)", "n = s32[] constant(-2147483648)") + DOUBLING
    )
    begin = time.monotonic()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        run(program, X)
    assert time.monotonic() - begin < 10


def test_long_run_without_loops_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    body = "\n".join(f"  d{n + 1} = f32[512,512] dot(d{n}, d0), {dims}" for n in range(1000))
    program = compiled(
        f"""
ENTRY main {{
  d0 = f32[512,512] parameter(0)
{body}
  ROOT y = f32[512,512] negate(d1000)
}}
"""
    )

    def check(context: Context) -> None:
        raise NeuronSimError("the run is to end")

    monkeypatch.setattr(Context, "check", check)
    with pytest.raises(NeuronSimError, match="is to end"):
        run(program, np.zeros((512, 512)))


def test_threads_share_a_program(restored_settings: None) -> None:
    """Each run has memory of its own, whatever number of threads the core uses meanwhile."""
    text = (
        loop(
            "f32[64,300]",
            "  d = f32[64,300] dot(e1, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            "  t = f32[64,300] tanh(d)\n  s = f32[64,300] add(t, e1)",
            "s",
            limit="6",
        ).replace("  d = f32", "  k = f32[] constant(0.01)\n"
                  "  w = f32[300,300] broadcast(k), dimensions={}\n  d = f32")
        + DOUBLING.replace("s32[3]", "f32[64,300]")
    )  # fmt: skip
    program = compiled(text)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((64, 300), np.float32) for _ in range(8)]
    expected = [run(compiled(text), a) for a in arrays]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for count in (1, 2, 3):
                processor.set_num_threads(count)
                time.sleep(0.001)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                assert list(pool.map(lambda a: run(program, a), arrays)) == expected
    finally:
        stop.set()
        changing.join()
    assert len(program.recording().arenas) <= 4
