"""Recorded steps: planned memory, views that are no steps, buffers reused and updated in place, and the
core's copies between all strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.executor.test_control_flow import DOUBLING, PAIR, compiled, loop, run
from tests.support.processors import check_everywhere

from neuronsim import _core, ops
from neuronsim.errors import OutOfMemory
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.memory import ALIGNMENT, Memory, address, plan_memory
from neuronsim.executor.record import Recording
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Call, Chain, Product, all_steps

pytestmark = pytest.mark.usefixtures("loops_stay")

X, Y = [1, 2, 3], [10, 20, 30]


# ---- planned memory ------------------------------------------------------------------------------


def memories(draw: st.DrawFn) -> list[Memory]:
    found = []
    for _ in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 12))
        last = first + draw(st.sampled_from([0, 0, 1, 2, 3, 12]))
        size = draw(st.sampled_from([0, 1, 63, 64, 65, 100, 200, 320, 1000]))
        found.append(Memory(np.empty(size, np.uint8), first, last))
    return found


def meet(a: Memory, b: Memory) -> bool:
    return a.first <= b.last and b.first <= a.last


def free(offset: int, m: Memory, placed: dict[Memory, int]) -> bool:
    """Whether no array that is needed at the same time lies in these lines of the arena."""
    lines = range(offset // ALIGNMENT, (offset + m.bytes + ALIGNMENT - 1) // ALIGNMENT)
    taken = {
        at // ALIGNMENT + n
        for other, at in placed.items()
        if meet(m, other)
        for n in range(-(-other.bytes // ALIGNMENT))
    }
    return not taken & set(lines)


@settings(max_examples=150)
@given(st.data())
def test_planned_memory_does_not_overlap(data: st.DataObject) -> None:
    """Each array lies in the first free lines, as a search of all lines finds them."""
    listed = memories(data.draw)
    offsets, size = plan_memory(listed)
    placed: dict[Memory, int] = {}
    for m in sorted(listed, key=lambda m: (-m.bytes, m.first)):
        at = offsets[m]
        assert at % ALIGNMENT == 0
        assert at + m.bytes <= size
        assert free(at, m, placed)
        assert not any(free(k, m, placed) for k in range(0, at, ALIGNMENT)) or m.bytes == 0
        placed[m] = at
    rounded = [-(-m.bytes // ALIGNMENT) * ALIGNMENT for m in listed]
    assert size <= sum(rounded)
    assert size >= max(rounded, default=0)


def entry(body: str, *parameters: str) -> Schedule:
    given = "\n".join(f"  {p} parameter({n})" for n, p in enumerate(parameters))
    return compiled(f"ENTRY main {{\n{given}\n{body}\n}}\n")


def count(program: Schedule) -> int:
    return len(program.recording().names)


def test_buffers_are_reused() -> None:
    """A line of products that each read the one before takes two buffers, however long it is."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    body = "\n".join(f"  d{n + 1} = f32[64,64] dot(d{n}, d0), {dims}" for n in range(20))
    program = entry(f"{body}\n  ROOT y = f32[64,64] negate(d20)", "d0 = f32[64,64]")
    assert program.recording().arena_bytes == 2 * 64 * 64 * 4


def test_the_arena_begins_with_a_cache_line() -> None:
    """Every buffer then does: offsets are whole lines. A vector that crosses lines costs two loads."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    body = f"  a = f32[256,256] dot(x, x), {dims}\n  ROOT b = f32[256,256] dot(a, x), {dims}"
    program = entry(body, "x = f32[256,256]")
    run(program, np.eye(256))
    (arena,) = program.recording().arenas
    assert arena.nbytes == program.recording().arena_bytes == 4 * 256 * 256
    assert address(arena) % ALIGNMENT == 0


def test_values_that_a_loop_reads_outlive_it() -> None:
    """What lies around a loop keeps its memory in every trip, whatever the body needs."""
    changes = "\n".join(
        f"  r{n} = s32[3] sort(e{1 + n % 2}), dimensions={{0}}, to_apply=less" for n in range(4)
    )
    changes += "\n  a = s32[3] add(r0, r1)\n  b = s32[3] add(r2, r3)\n  s = s32[3] add(a, b)"
    changes += "\n  u = s32[3] sort(s), dimensions={0}, to_apply=less"
    less = """
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
"""
    text = less + loop("s32[3] s32[3]", changes, "u, e2") + PAIR.replace("ROOT w", "w")
    program = compiled(text.rstrip("}\n") + "\n  ROOT g = s32[3] get-tuple-element(w), index=1\n}\n")
    a, b = [-x for x in X], sorted(-y for y in Y)
    for _ in range(3):
        a = sorted(2 * x + 2 * y for x, y in zip(sorted(a), b, strict=True))
    assert run(program, X, Y) == a


# ---- views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("s32[2,3] reshape(y)", [[-1, -2, -3], [-4, -5, -6]]),
        ("s32[2,6] broadcast(y), dimensions={1}", [[-1, -2, -3, -4, -5, -6]] * 2),
        ("s32[2] slice(y), slice={[1:6:3]}", [-2, -5]),
        ("s32[6] reverse(y), dimensions={0}", [-6, -5, -4, -3, -2, -1]),
        ("s32[6] copy(y)", [-1, -2, -3, -4, -5, -6]),
    ],
    ids=["reshape", "broadcast", "slice", "reverse", "copy"],
)
def test_views_are_no_steps(view: str, expected: Any) -> None:
    kind = view.split()[0]
    program = entry(
        f"  y = s32[6] negate(x)\n  v = {view}\n"
        f"  m = {kind} multiply(v, v)\n  ROOT s = {kind} add(m, v)",
        "x = s32[6]",
    )
    assert [n for names in program.recording().names for n in names] == ["y", "m", "s"]
    v = np.array(expected)
    assert run(program, range(1, 7)) == (v * v + v).tolist()


@pytest.mark.parametrize(
    ("opcode", "initial", "axis", "op"),
    [
        ("and", "true", 1, "reshape"),
        ("or", "false", 1, "reshape"),
        ("and", "false", 1, "reduce"),
        ("or", "true", 1, "reduce"),
        ("xor", "false", 1, "reduce"),
        ("and", "true", 0, "reduce"),
    ],
)
def test_a_reduction_of_single_bools_is_a_view(opcode: str, initial: str, axis: int, op: str) -> None:
    """By which JAX asks whether an index of one number is inside; others are computed."""
    reducer = f"""r {{
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] {opcode}(a, b)
}}
ENTRY main {{
  x = s32[3,1] parameter(0)
  z = s32[3,1] constant({{{{1}}, {{2}}, {{1}}}})
  g = pred[3,1] compare(x, z), direction=GT
  i = pred[] constant({initial})
  ROOT t = pred[{3 if axis else 1}] reduce(g, i), dimensions={{{axis}}}, to_apply=r
}}
"""
    program = compiled(reducer)
    greater = np.array(X)[:, None] > [[1], [2], [1]]
    of = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[opcode]
    assert (
        run(program, [[n] for n in X]) == of.reduce(greater, axis, initial=initial == "true").tolist()
    )
    assert [s.action.op.name for s in program.steps if isinstance(s.action, Call)] == [op]


@pytest.mark.parametrize("operand", ["x", "c"], ids=["input", "constant"])
def test_reverse_of_what_no_step_makes(operand: str) -> None:
    program = entry(
        f"  c = s32[3] constant({{1, 2, 3}})\n  r = s32[3] reverse({operand}), dimensions={{0}}\n"
        "  ROOT s = s32[3] add(r, x)",
        "x = s32[3]",
    )
    assert run(program, X) == [4, 4, 4]


@pytest.mark.parametrize("late", ["k", "q"], ids=["view", "element"])
def test_views_and_single_elements_part_no_chains(late: str) -> None:
    """Both lie between two chains that are one."""
    program = entry(
        "  t = f32[6] exponential(x)\n  s = f32[] add(k, k)\n  q = f32[] multiply(s, s)\n"
        f"  b = f32[6] broadcast({late}), dimensions={{}}\n  u = f32[6] add(t, b)\n"
        "  ROOT o = (f32[6], f32[6], f32[]) tuple(t, u, q)",
        "x = f32[6]", "k = f32[]",
    )  # fmt: skip
    chains = [s for s in program.steps if isinstance(s.action, Chain) and s.results[0][1].dims]
    assert [len(s.results) for s in chains] == [2]


def test_a_chain_takes_bitcasts_in_E6() -> None:
    program = entry(
        "  n = s32[3] add(x, x)\n  f = f32[3] bitcast-convert(n)\n  a = f32[3] abs(f)\n"
        "  ROOT u = u32[3] bitcast-convert(a)",
        "x = s32[3]",
    )
    assert len(program.steps) == 1
    nan = 0x7FA00001  # whose payload moves, and whose sign goes
    assert run(program, [1, (nan >> 1) - (1 << 31), -5]) == [2, nan & ~1, 0x7FFFFFF6]


# ---- loops ---------------------------------------------------------------------------------------


def beside_the_loop(recording: Recording) -> list[tuple[str, ...]]:
    """The instructions of the steps beside the loop `l` and the copies of its state."""
    return [names for names in recording.names if names not in ((), ("l",), ("y",))]


def test_integers_that_no_trip_changes_are_computed_before_the_loop() -> None:
    """Though a chain of the same shape that each trip computes comes first."""
    changes = "  c = s32[3] add(e1, e1)\n  v = s32[3] multiply(e2, e2)\n  z = s32[3] add(v, e2)\n"
    changes += "  r = s32[3] reverse(z), dimensions={0}\n  f = s32[3] reverse(c), dimensions={0}\n"
    changes += "  s = s32[3] add(r, f)"
    text = loop("s32[3] s32[3]", changes, "s, e2") + PAIR
    program = compiled(text)
    for recording in (program.recording(), program.recording("counts")):
        assert ("v", "z") in beside_the_loop(recording)
    x, y = -np.array(X), -np.array(Y)
    for _ in range(3):
        x = (y * y + y + 2 * x)[::-1]
    assert run(program, X, Y)[1] == x.tolist()


def test_control_floats_that_are_counted_stay_in_their_loop() -> None:
    """What they meet is counted in each trip, where that is asked for."""
    changes = "  v = f32[3] multiply(e2, e2)\n"
    changes += "  r = f32[3] reverse(v), dimensions={0}\n  s = f32[3] add(r, e1)"
    text = loop("f32[3] f32[3]", changes, "s, e2") + PAIR.replace("s32[3]", "f32[3]")
    program = compiled(text)
    assert ("v",) in beside_the_loop(program.recording())
    assert ("v",) not in beside_the_loop(program.recording("counts"))
    counts = Diagnostics()
    assert run(program, [1e30, 0, 1], [-1e30, 1, 2]) == run(
        program, [1e30, 0, 1], [-1e30, 1, 2], diagnostics=counts, observe="counts"
    )
    assert counts.of("overflow")["v"] == 3


# ---- concatenations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "copies"),
    [("n, y", 0), ("y, n", 0), ("x, n", 1), ("n, n", 1), ("r, n", 0)],
    ids=["two", "turned", "an input", "one twice", "of one chain"],
)
def test_parts_of_a_concatenation_are_stored_in_it(parts: str, copies: int) -> None:
    program = entry(
        "  n = s32[3] negate(x)\n  y = s32[3] add(x, x)\n  r = s32[3] reshape(y)\n"
        f"  ROOT c = s32[6] concatenate({parts}), dimensions={{0}}",
        "x = s32[3]",
    )
    x = np.array(X)
    values = {"x": x, "n": -x, "y": x + x, "r": x + x}
    assert run(program, X) == np.concatenate([values[p] for p in parts.split(", ")]).tolist()
    assert [n for names in program.recording().names for n in names].count("c") == copies


def test_parts_that_concatenations_and_pads_make_are_stored_in_it() -> None:
    """As of arrays that are turned and then stacked; of one that is read twice the second is a copy."""
    program = entry(
        "  a = s32[2] slice(x), slice={[0:2]}\n  b = s32[1] slice(x), slice={[2:3]}\n"
        "  t = s32[3] concatenate(b, a), dimensions={0}\n  n = s32[] constant(7)\n"
        "  p = s32[5] pad(t, n), padding=1_1\n"
        "  ROOT c = s32[11] concatenate(t, p, t), dimensions={0}",
        "x = s32[3]",
    )
    assert run(program, X) == [3, 1, 2, 7, 3, 1, 2, 7, 3, 1, 2]
    assert [n for names in program.recording().names for n in names].count("c") == 1


def test_an_array_that_a_scatter_changes_is_copied_once() -> None:
    """A transposed one too: a dense copy before the one that is changed would serve nothing."""
    program = compiled(
        "add { a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT c = s32[] add(a, b)\n}\n"
        "ENTRY main {\n  x = s32[3,2] parameter(0)\n  i = s32[1,1] constant({{1}})\n"
        "  u = s32[1,3] constant({{5,6,7}})\n  t = s32[2,3] transpose(x), dimensions={1,0}\n"
        "  ROOT s = s32[2,3] scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n}\n"
    )
    assert run(program, [[1, 2], [3, 4], [5, 6]]) == [[1, 3, 5], [7, 10, 13]]
    assert program.recording().names == (("s",), ("s",))


def test_a_part_that_is_read_later_keeps_its_elements() -> None:
    """An update in place of the concatenation would change it."""
    program = entry(
        "  n = s32[3] negate(x)\n  y = s32[3] add(x, x)\n"
        "  c = s32[6] concatenate(n, y), dimensions={0}\n  k = s32[2] constant({9, 9})\n"
        "  one = s32[] constant(1)\n  d = s32[6] dynamic-update-slice(c, k, one)\n"
        "  h = s32[3] slice(d), slice={[0:3]}\n  ROOT s = s32[3] subtract(h, n)",
        "x = s32[3]",
    )
    assert run(program, X) == [0, 11, 12]


# ---- in place ------------------------------------------------------------------------------------

UPDATE = """
  u = s32[1] broadcast(i), dimensions={}
  d = s32[3] dynamic-update-slice(e1, u, i)
"""


def body_steps(program: Schedule) -> int:
    """How many steps the core got for the body of the program's loop, by recording it anew."""
    recorded: list[int] = []
    before = _core.record_count

    def counting(count: Any, counters: Any, body: Any, trips: Any) -> Any:
        recorded.append(len(body))
        return before(count, counters, body, trips)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "record_count", counting)
        _ = program.recording()
    (found,) = recorded
    return found


def test_update_in_a_loop_is_in_place() -> None:
    """The body is the update: nothing counts, and nothing copies the array."""
    program = compiled(loop("s32[3]", UPDATE, "d") + DOUBLING)
    assert body_steps(program) == 1
    assert run(program, X) == (3, [0, 1, 2])


def test_update_of_what_is_read_later_is_not_in_place() -> None:
    program = compiled(loop("s32[3]", f"{UPDATE}  s = s32[3] add(d, e1)", "s") + DOUBLING)
    x = np.array(X)
    for i in range(3):
        d = x.copy()
        d[i] = i
        x = d + x
    assert run(program, X) == (3, x.tolist())


def test_update_by_a_part_of_itself_is_not_in_place() -> None:
    program = entry(
        """
  y = s32[6] negate(x)
  h = s32[4] slice(y), slice={[0:4]}
  r = s32[4] reverse(h), dimensions={0}
  one = s32[] constant(1)
  ROOT d = s32[6] dynamic-update-slice(y, r, one)
""",
        "x = s32[6]",
    )
    assert run(program, range(6)) == [0, -3, -2, -1, 0, -5]


@pytest.mark.parametrize("reader", ["x", "v"], ids=["value", "view"])
def test_update_outside_of_loops(reader: str) -> None:
    """In place if nothing reads the operand later, through a view of it either."""
    body = """
  y = s32[3] negate(x)
  v = s32[3] reverse(y), dimensions={0}
  one = s32[] constant(1)
  u = s32[1] constant({9})
  d = s32[3] dynamic-update-slice(y, u, one)
"""
    program = entry(f"{body}  ROOT s = s32[3] subtract(d, {reader})", "x = s32[3]")
    expected = {"x": [-2, 7, -6], "v": [2, 11, -2]}[reader]
    assert run(program, X) == expected
    assert count(program) == {"x": 3, "v": 4}[reader]


# ---- weights -------------------------------------------------------------------------------------


def test_invariant_weights_are_packed_once() -> None:
    """A constant that a loop's body multiplies by, its own or one that it passes on."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    changes = f"  d = f32[24,24] dot(e1, e2), {dims}"
    text = loop("f32[24,24] f32[24,24]", changes, "d, e2") + """
ENTRY main {
  x = f32[24,24] parameter(0)
  k = f32[] constant(0.5)
  w = f32[24,24] broadcast(k), dimensions={}
  zero = s32[] constant(0)
  state = (s32[], f32[24,24], f32[24,24]) tuple(zero, x, w)
  l = (s32[], f32[24,24], f32[24,24]) while(state), condition=condition, body=body
  ROOT y = f32[24,24] get-tuple-element(l), index=1
}
"""  # fmt: skip
    program = compiled(text)
    (product,) = (s.action for s in all_steps(program.steps) if isinstance(s.action, Product))
    assert product.fusion.packed is not None
    assert run(program, np.eye(24)) == np.full((24, 24), 0.5 * 12 * 12).tolist()


DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
RUNNING = """
ENTRY main {{
  x = {x} parameter(0)
  w = {w} parameter(1)
  zero = s32[] constant(0)
  state = (s32[], {x}, {w}) tuple(zero, x, w)
  l = (s32[], {x}, {w}) while(state), condition=condition, body=body
  ROOT y = {x} get-tuple-element(l), index=1
}}
"""


@pytest.mark.parametrize(
    ("changes", "following", "packed"),
    [
        (f"  d = f32[24,24] dot(e1, e2), {DOT}", "d, e2", [("d",)]),
        (f"  c = f32[24,24] dot(e1, e2), {DOT}\n  d = f32[24,24] dot(c, e2), {DOT}", "d, e2", [("c",)]),
        (
            "  v = f32[24,24] transpose(e2), dimensions={1,0}\n"
            f"  d = f32[24,24] dot(e1, v), {DOT}",
            "d, e2",
            [("d",)],
        ),
        (
            "  a = f32[24,12] slice(e1), slice={[0:24], [0:12]}\n"
            "  b = f32[12,24] slice(e2), slice={[0:12], [0:24]}\n"
            f"  ab = f32[24,24] dot(a, b), {DOT}\n"
            "  f = f32[12,24] slice(e2), slice={[12:24], [0:24]}\n"
            f"  af = f32[24,24] dot(a, f), {DOT}\n  d = f32[24,24] subtract(ab, af)",
            "d, e2",
            [("af",), ("ab", "d")],
        ),
        (f"  d = f32[24,24] dot(e1, e2), {DOT}\n  n = f32[24,24] negate(e2)", "d, n", []),
        (
            "  z = s32[] constant(0)\n  v = f32[12,24] dynamic-slice(e2, i, z),"
            " dynamic_slice_sizes={12,24}\n  h = f32[24,12] slice(e1), slice={[0:24], [0:12]}\n"
            f"  d = f32[24,24] dot(h, v), {DOT}",
            "d, e2",
            [],
        ),
    ],
    ids=["once", "for_two", "view", "parts", "changed", "window"],
)  # fmt: skip
def test_right_operands_that_a_loop_keeps_are_packed_before_it(
    changes: str, following: str, packed: list[tuple[str, ...]], isa: str
) -> None:
    """Once for all of its products; none that it changes, or whose place only a trip knows."""
    text = loop("f32[24,24] f32[24,24]", changes, following)
    program = compiled(text + RUNNING.format(x="f32[24,24]", w="f32[24,24]"))
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-2, 3, (24, 24)).astype(np.float32) for _ in range(2))
    expected, sign = x, 1
    for i in range(3):
        if "dynamic-slice" in changes:
            expected = expected[:, :12] @ w[i : i + 12]
        elif "subtract" in changes:
            expected = expected[:, :12] @ (w[:12] - w[12:])
        elif "transpose" in changes:
            expected = expected @ w.T
        else:
            expected = expected @ (sign * w) @ (w if "dot(c" in changes else np.eye(24))
        sign = -sign if "negate" in changes else 1
    assert run(program, x, w) == expected.tolist()
    assert beside_the_loop(program.recording()) == packed
    assert run(program, w, x) != expected.tolist()  # nothing of the last run is kept


def test_what_an_outer_loop_keeps_is_packed_before_that() -> None:
    """The inner loop keeps both right operands, the outer one `k` alone."""
    kept = f"  c = f32[24,24] dot(e1, e2), {DOT}\n  d = f32[24,24] dot(c, e3), {DOT}"
    inner = loop("f32[24,24] f32[24,24] f32[24,24]", kept, "d, e2, e3", "2")
    inner = inner.replace("condition {", "condition2 {").replace("body {", "body2 {")
    shape = "(s32[], f32[24,24], f32[24,24], f32[24,24])"
    outer = loop(
        "f32[24,24] f32[24,24] f32[24,24]",
        f"""  zero = s32[] constant(0)
  state2 = {shape} tuple(zero, e1, e2, e3)
  m = {shape} while(state2), condition=condition2, body=body2
  r = f32[24,24] get-tuple-element(m), index=1
  n = f32[24,24] negate(e3)""",
        "r, e2, n",
    )
    program = compiled(f"""{inner}{outer}
ENTRY main {{
  x = f32[24,24] parameter(0)
  k = f32[24,24] parameter(1)
  w = f32[24,24] parameter(2)
  zero = s32[] constant(0)
  state = {shape} tuple(zero, x, k, w)
  l = {shape} while(state), condition=condition, body=body
  ROOT y = f32[24,24] get-tuple-element(l), index=1
}}
""")
    rng = np.random.default_rng(6)
    x, k, w = (np.eye(24, dtype=np.float32)[rng.permutation(24)] for _ in range(3))
    expected = x
    for sign in (1, -1, 1):
        expected = expected @ k @ (sign * w) @ k @ (sign * w)
    assert run(program, x, k, w) == expected.tolist()
    assert beside_the_loop(program.recording()) == [("c",)]


@pytest.mark.parametrize(("rows", "dtype"), [(1, "f32"), (8, "f32"), (8, "bf16")])
def test_packed_before_a_loop_or_in_every_trip_are_the_same_bits(
    rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch, restored_processor: None
) -> None:
    """With a cast that packing takes in, on every processor; what one row meets stays if large."""
    x, w = f"f32[{rows},96]", "f32[96,96]"
    body = f"  a = {x} convert(e1)\n  b = {w} convert(e2)\n  d = {x} dot(a, b), {DOT}"
    body = body.replace("= f32", "= bf16", 2) if dtype == "bf16" else f"  d = {x} dot(e1, e2), {DOT}"
    text = loop(f"{x} {w}", body, "d, e2") + RUNNING.format(x=x, w=w)
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((rows, 96), (96, 96))]
    check_everywhere(lambda: np.array(run(compiled(text), *given), np.float32).view(np.uint32))
    assert beside_the_loop(compiled(text).recording()) != []
    packed = run(compiled(text), *given)
    monkeypatch.setattr(ops.products, "_LARGE_BYTES", 96 * 96 * 4 - 1)
    assert (beside_the_loop(compiled(text).recording()) == []) == (rows == 1)
    monkeypatch.setattr(ops, "pack_in_run", lambda *_: None)
    assert beside_the_loop(compiled(text).recording()) == []
    assert run(compiled(text), *given) == packed


ALONG = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"


@pytest.mark.parametrize(
    ("size", "changes", "fields", "is_packed"),
    [
        (64, f"d = {{x}} dot(e1, e2), {DOT}", {}, False),
        (65, f"d = {{x}} dot(e1, e2), {DOT}", {}, True),
        (64, f"d = {{x}} dot(e1, e2), {ALONG}", {}, True),
        (64, f"t = {{x}} tanh(e1)\n  d = {{x}} dot(t, e2), {DOT}", {}, True),
        (64, f"d = {{x}} dot(e1, e2), {DOT}", {"subnormals": "flush"}, True),
    ],
)
def test_operands_of_a_trips_few_elements_stay_where_they_lie_D2(
    size: int, changes: str, fields: dict[str, str], is_packed: bool
) -> None:
    """A row by columns side by side is a step of the trip; others' columns are packed before it."""
    x, w = f"f32[1,{size}]", f"f32[{size},{size}]"
    changes = changes.replace("{x}", x)
    text = loop(f"{x} {w}", f"  {changes}", "d, e2") + RUNNING.format(x=x, w=w)
    assert (beside_the_loop(compiled(text, **fields).recording()) != []) == is_packed
    weights = ", ".join("{" + ", ".join(["0.5"] * size) + "}" for _ in range(size))
    constant = f"  k = {w} constant({{{weights}}})\n  {changes.replace('e2', 'k')}"
    program = compiled(loop(f"{x} {w}", constant, "d, e2") + RUNNING.format(x=x, w=w), **fields)
    (product,) = (s.action for s in all_steps(program.steps) if isinstance(s.action, Product))
    assert (product.fusion.packed is not None) == is_packed


def test_a_matrix_by_a_vector_is_packed_before_the_loop_however_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows, by which the vector is multiplied, do not lie side by side."""
    monkeypatch.setattr(ops.products, "_LARGE_BYTES", 0)
    x, w = "f32[70]", "f32[70,70]"
    text = loop(f"{x} {w}", f"  d = {x} dot(e2, e1), {DOT}", "d, e2") + RUNNING.format(x=x, w=w)
    assert beside_the_loop(compiled(text).recording()) == [("d",)]


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.complex128])
def test_copies_of_few_columns(kind: Any, columns: int) -> None:
    """Elements repeated, backwards, apart in the source and in the target, in more rows than are taken
    at a time.
    """
    base = np.arange(1100 * 5).reshape(1100, 5).astype(kind)
    wide = np.zeros((1100, 40), kind)
    for x in (
        np.broadcast_to(base[:, :1], (1100, columns)),
        base[:, :columns][:, ::-1],
        base[::-1, :columns],
        np.broadcast_to(base[:1, :columns], (1100, columns)),
    ):
        for y in (np.zeros((1100, columns), kind), wide[:, 3 : 3 + columns], wide[:, ::7][:, :columns]):
            y[...] = 0
            _core.record_copy(x, y).run()
            np.testing.assert_array_equal(y, x)
        assert not wide[:, 36:].any()


def test_a_call_that_an_executable_placed_is_of_that_alone() -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    call = _core.record_copy(x, y)
    call.run()
    assert np.array_equal(x, y)
    _core.Executable([call], [(x, 1, 0), (y, 2, 0)])
    with pytest.raises(ValueError, match="a step of an executable runs in it"):
        call.run()
    with pytest.raises(ValueError, match="a step is of one executable"):
        _core.Executable([call], [(x, 1, 0), (y, 2, 0)])


def test_chains_that_compute_the_same_in_every_trip_run_before_the_loop(isa: str) -> None:
    """Of what the loop keeps; not those that give its state or a part of a concatenation."""
    changes = f"""  n = f32[24,24] negate(e2)
  t = f32[24,24] exponential(n)
  k = f32[24,24] dot(n, t), {DOT}
  d = f32[24,24] add(e1, k)
  q = f32[5] negate(e4)
  h = f32[12,24] slice(e2), slice={{[0:12], [0:24]}}
  g = f32[12,24] abs(h)
  c = f32[24,24] concatenate(g, h), dimensions={{0}}
  s = f32[24,24] add(d, c)"""
    text = loop("f32[24,24] f32[24,24] f32[5] f32[5]", changes, "s, e2, q, e4")
    shape = "(s32[], f32[24,24], f32[24,24], f32[5], f32[5])"
    program = compiled(f"""{text}
ENTRY main {{
  x = f32[24,24] parameter(0)
  w = f32[24,24] parameter(1)
  v = f32[5] parameter(2)
  zero = s32[] constant(0)
  state = {shape} tuple(zero, x, w, v, v)
  l = {shape} while(state), condition=condition, body=body
  y = f32[24,24] get-tuple-element(l), index=1
  z = f32[5] get-tuple-element(l), index=3
  ROOT r = (f32[24,24], f32[5]) tuple(y, z)
}}
""")
    rng = np.random.default_rng(9)
    x, w = (rng.integers(-2, 3, (24, 24)).astype(np.float32) for _ in range(2))
    given = x, w, np.arange(5, dtype=np.float32)
    assert beside_the_loop(program.recording()) == [("n.1",), ("t", "k", "d", "s")]
    counted = run(program, *given, observe="counts")  # every trip computes all of it there
    assert run(program, *given) == counted


@pytest.mark.parametrize("observe", ["off", "counts"])
def test_weights_that_a_body_joins_are_joined_before_the_loop(observe: Observe) -> None:
    """As a cell of an LSTM joins those of its gates."""
    changes = f"""  w = f32[24,48] concatenate(e2, e3), dimensions={{1}}
  o = f32[] constant(1)
  g = f32[48,48] pad(w, o), padding=24_0x0_0
  d = f32[48,48] dot(e1, g), {DOT}"""
    text = loop("f32[48,48] f32[24,24] f32[24,24]", changes, "d, e2, e3")
    shape = "(s32[], f32[48,48], f32[24,24], f32[24,24])"
    program = compiled(f"""{text}
ENTRY main {{
  x = f32[48,48] parameter(0)
  v = f32[24,24] parameter(1)
  u = f32[24,24] parameter(2)
  zero = s32[] constant(0)
  state = {shape} tuple(zero, x, v, u)
  l = {shape} while(state), condition=condition, body=body
  ROOT y = f32[48,48] get-tuple-element(l), index=1
}}
""")
    rng = np.random.default_rng(10)
    x, v, u = (rng.integers(-2, 3, (n, n)).astype(np.float32) for n in (48, 24, 24))
    names = [n for names in program.recording(observe).names for n in names]
    assert names.count("w") == 2
    assert names.count("g") == 2  # a fill and a copy
    expected = x
    for _ in range(3):
        expected = expected @ np.vstack([np.ones((24, 48), np.float32), np.hstack([v, u])])
    assert run(program, x, v, u, observe=observe) == expected.tolist()


def test_what_depends_on_two_loops_runs_before_the_inner_one() -> None:
    """The outer loop changes `b` and keeps `a`: the inner one's trips alone have the same sum."""
    changes = """  ab = s32[18] add(e2, e3)
  h = s32[9] slice(ab), slice={[9:18]}
  v = s32[9] multiply(e1, h)"""
    inner = loop("s32[9] s32[18] s32[18]", changes, "v, e2, e3", "2")
    inner = inner.replace("condition {", "condition2 {").replace("body {", "body2 {")
    shape = "(s32[], s32[9], s32[18], s32[18])"
    changes = f"""  zero = s32[] constant(0)
  state2 = {shape} tuple(zero, e1, e2, e3)
  m = {shape} while(state2), condition=condition2, body=body2
  r = s32[9] get-tuple-element(m), index=1
  n = s32[18] negate(e3)"""
    outer = loop("s32[9] s32[18] s32[18]", changes, "r, e2, n")
    program = compiled(f"""{inner}{outer}
ENTRY main {{
  x = s32[9] parameter(0)
  a = s32[18] parameter(1)
  b = s32[18] parameter(2)
  zero = s32[] constant(0)
  state = {shape} tuple(zero, x, a, b)
  l = {shape} while(state), condition=condition, body=body
  ROOT y = s32[9] get-tuple-element(l), index=1
}}
""")
    x, a, b = (np.arange(k, k + n, dtype=np.int32) for k, n in ((1, 9), (5, 18), (-3, 18)))
    expected = x
    for sign in (1, -1, 1):
        expected = expected * (a + sign * b)[9:] * (a + sign * b)[9:]
    assert run(program, x, a, b) == expected.tolist()


def test_right_operands_of_several_products_are_packed_for_the_first() -> None:
    """In a region without a loop, for few rows; an array that takes its place has its own columns."""
    body = f"""
  a = f32[8,24] dot(x, w), {DOT}
  b = f32[8,24] dot(a, w), {DOT}
  n = f32[24,24] negate(w)
  c = f32[8,24] dot(b, n), {DOT}
  ROOT d = f32[8,24] dot(c, n), {DOT}"""
    program = entry(body, "x = f32[8,24]", "w = f32[24,24]")
    assert beside_the_loop(program.recording()) == [
        ("a",),
        ("a",),
        ("b",),
        ("n",),
        ("c",),
        ("c",),
        ("d",),
    ]
    rng = np.random.default_rng(10)
    x, w = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((8, 24), (24, 24)))
    assert run(program, x, w) == (x @ w @ w @ w @ w).tolist()
    many = entry(body.replace("[8,", "[33,"), "x = f32[33,24]", "w = f32[24,24]")
    assert beside_the_loop(many.recording()) == [("a",), ("b",), ("n",), ("c",), ("d",)]


def test_bytes_that_a_loop_keeps_are_packed_with_their_sums_M7(restored_processor: None) -> None:
    body = f"  a = s8[8,96] convert(e1)\n  d = s32[8,96] dot(a, e2), {DOT}"
    text = loop("s32[8,96] s8[96,96]", body, "d, e2") + RUNNING.format(x="s32[8,96]", w="s8[96,96]")
    rng = np.random.default_rng(8)
    x, w = rng.integers(-128, 128, (8, 96), np.int32), rng.integers(-128, 128, (96, 96), np.int8)
    expected = x
    for _ in range(3):
        expected = expected.astype(np.int8).astype(np.int32) @ w.astype(np.int32)
    found = check_everywhere(lambda: np.array(run(compiled(text), x, w)))
    np.testing.assert_array_equal(found, expected)
    assert beside_the_loop(compiled(text).recording()) == [("a", "d")]


def test_results_are_no_part_of_the_arena() -> None:
    program = entry("  ROOT y = f32[1000] negate(x)", "x = f32[1000]")
    assert program.recording().arena_bytes == 0


def test_result_that_no_step_makes_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    program = entry("  c = f32[] constant(1)\n  ROOT b = f32[70000] broadcast(c), dimensions={}")

    def fails(*_: Any) -> Any:
        raise MemoryError("no memory")

    monkeypatch.setattr(ops, "empty", fails)
    with pytest.raises(OutOfMemory, match=r"largest array is b, float32\[70000\]"):
        run(program)
