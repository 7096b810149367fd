"""Inlining: calls and fusions in every computation, loops and reducers left called, unique names."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.support.graphs import computation, inst, parameter

from neuronsim import dtypes
from neuronsim.errors import InvalidModel
from neuronsim.hlo import inlining
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    graph_computations,
)

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, PRED = dtypes.float32, dtypes.boolean


def scalar(name: str, opcode: str, *operands: str, **more: Any) -> Instruction:
    return inst(name, opcode, (), *operands, **more)


def x(name: str = "x") -> Instruction:
    return parameter(name, ())


def module(*computations: Computation) -> Module:
    return Module("m", computations[-1].name, computations)


def names(c: Computation) -> list[str]:
    return [i.name for i in c.instructions]


def square(name: str = "square") -> Computation:
    return computation(name, x("p"), scalar("q", "multiply", "p", "p"))


def finite(*before: Instruction) -> Computation:
    """A condition: that its parameter, or what is made of it, is finite."""
    read = before[-1].name if before else "c"
    return computation("cond", x("c"), *before, scalar("t", "is-finite", read, dtype=PRED))


BODY = computation("body", x("b"), scalar("n", "negate", "b"))
LOOP = scalar("w", "while", "x", called=("body", "cond"))


@pytest.mark.parametrize("opcode", ["call", "fusion"])
def test_calls_and_fusions_are_inlined_where_a_loop_calls_them(opcode: str) -> None:
    body = computation("body", x("b"), scalar("f", opcode, "b", called=("square",)))
    condition = finite(scalar("g", opcode, "c", called=("square",)))
    result = inline_calls(module(square(), body, condition, computation("main", x(), LOOP)))
    assert [c.name for c in result.computations] == ["body", "cond", "main"]
    assert names(result.by_name["body"]) == ["b", "f.q"]
    assert result.by_name["body"].root == "f.q"
    assert result.by_name["body"].by_name["f.q"].operands == ("b", "b")
    assert names(result.by_name["cond"]) == ["c", "g.q", "t"]
    assert result.root.called == ("body", "cond")


def test_a_fusion_of_several_results_becomes_its_tuple() -> None:
    pair = inst("t", "tuple", TupleShape((Shape(F32), Shape(F32))), "q", "p")
    fused = computation("fused", x("p"), scalar("q", "negate", "p"), pair)
    call = inst("f", "fusion", pair.shape, "x", called=("fused",), fusion_kind="kLoop")
    take = scalar("y", "get-tuple-element", "f", tuple_index=1)
    entry = inline_calls(module(fused, computation("main", x(), call, take))).entry_computation
    assert names(entry) == ["x", "f.q", "f.t", "y"]
    assert entry.by_name["y"].operands == ("f.t",)
    assert entry.by_name["f.t"].operands == ("f.q", "x")


def test_a_callee_that_gives_its_parameter_leaves_nothing() -> None:
    identity = computation("id", x("p"))
    call, y = scalar("f", "call", "x", called=("id",)), scalar("y", "negate", "f")
    entry = inline_calls(module(identity, computation("main", x(), call, y))).entry_computation
    assert names(entry) == ["x", "y"]
    assert entry.by_name["y"].operands == ("x",)


def test_computations_of_elements_stay_called_and_their_calls_are_inlined() -> None:
    b = parameter("b", (), 1)
    add = computation("add", x("a"), b, scalar("s", "add", "a", "b"))
    wrapped = computation("wrapped", x("a"), b, scalar("c", "call", "a", "b", called=("add",)))
    mapped = scalar("y", "map", "x", "x", called=("wrapped",), dimensions=())
    result = inline_calls(module(add, wrapped, computation("main", x(), mapped)))
    assert [c.name for c in result.computations] == ["wrapped", "main"]
    assert result.root.called == ("wrapped",)
    assert names(result.by_name["wrapped"]) == ["a", "b", "c.s"]
    assert graph_computations(result) == (result.entry_computation,)


def test_a_module_without_calls_is_itself() -> None:
    given = module(BODY, finite(), computation("main", x(), LOOP))
    assert inline_calls(given) is given
    assert [c.name for c in graph_computations(given)] == ["body", "cond", "main"]


def test_graph_computations_reach_through_calls() -> None:
    inner = computation("inner", x("p"), scalar("w", "while", "p", called=("body", "cond")))
    call = scalar("f", "call", "x", called=("inner",))
    given = module(square("unused"), BODY, finite(), inner, computation("main", x(), call))
    found = [c.name for c in graph_computations(given)]
    assert found == ["body", "cond", "inner", "main"]
    assert [c.name for c in inline_calls(given).computations] == ["body", "cond", "main"]


def test_names_are_unique_among_graphs_and_the_entry_keeps_its_own() -> None:
    body = computation("body", x(), scalar("y", "negate", "x"), scalar("body.y", "add", "y", "x"))
    condition = computation("cond", x(), scalar("y", "is-finite", "x", dtype=PRED))
    entry = computation("main", x(), LOOP, scalar("y", "negate", "w"))
    result = inline_calls(module(body, condition, entry))
    assert result.entry_computation is entry
    found = [n for c in result.computations for n in names(c)]
    assert len(set(found)) == len(found)
    assert names(result.by_name["cond"]) == ["cond.x", "cond.y"]
    new = result.by_name["body"]
    assert names(new) == ["body.x", "body.y.1", "body.y"]  # body.y was there before
    assert new.by_name["body.y.1"].operands == ("body.x",)
    assert new.by_name["body.y"].operands == ("body.y.1", "body.x")
    assert result.by_name["cond"].root == "cond.y"
    assert inline_calls(result) is result


def test_the_same_callee_twice_has_two_names() -> None:
    calls = [scalar(n, "call", "x", called=("square",)) for n in ("f", "g")]
    main = computation("main", x(), *calls, scalar("y", "add", "f", "g"))
    entry = inline_calls(module(square(), main)).entry_computation
    assert names(entry) == ["x", "f.q", "g.q", "y"]


def nested(depth: int) -> Module:
    levels = [square("level0")]
    for n in range(1, depth + 1):
        call = scalar("q", "call", "p", called=(f"level{n - 1}",))
        levels.append(computation(f"level{n}", x("p"), call))
    return module(*levels)


def test_calls_are_nested_up_to_a_depth() -> None:
    assert len(inline_calls(nested(inlining.MAX_CALL_DEPTH)).entry_computation.instructions) == 2
    with pytest.raises(InvalidModel, match=f"nests calls {inlining.MAX_CALL_DEPTH + 1} deep"):
        inline_calls(nested(inlining.MAX_CALL_DEPTH + 1))


def test_the_instructions_of_loops_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [scalar(f"f{n}", "call", "b", called=("square",)) for n in range(4)]
    body = computation("body", x("b"), *calls)
    given = module(square(), body, finite(), computation("main", x(), LOOP))
    monkeypatch.setattr(inlining, "MAX_INSTRUCTIONS", 17)  # 5 and 4 times 2, 2, 2
    inline_calls(dataclasses.replace(given))  # a copy: calls are inlined once
    monkeypatch.setattr(inlining, "MAX_INSTRUCTIONS", 16)
    with pytest.raises(InvalidModel, match=r"NCC_EVRF007.*more than 16 instructions"):
        inline_calls(given)


def test_what_loops_and_branches_repeat_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls repeat is not, nor what is named once, nor repeats that at most double a module."""
    which = scalar("which", "constant", dtype=PRED)

    def branching(name: str, *called: str, before: tuple[Instruction, ...] = ()) -> Computation:
        taken = scalar("c", "conditional", "which", "x", "x", called=called)
        return computation(name, x(), which, *before, taken)

    def calling(name: str, *called: str) -> Computation:
        calls = (scalar(f"y{n}", "call", "x", called=(c,)) for n, c in enumerate(called))
        return computation(name, x(), *calls)

    monkeypatch.setattr(inlining, "MAX_REPEATED_INSTRUCTIONS", 1)
    four = calling("four", *["square"] * 4)
    inline_calls(module(square(), four, branching("main", "square", "four")))
    more = tuple(scalar(f"a{n}", "abs", "x") for n in range(10))
    twice = branching("twice", "square", "square")
    inline_calls(module(square(), twice, branching("main", "twice", "twice", before=more)))

    given = module(square(), twice, branching("main", "twice", "twice"))
    monkeypatch.setattr(inlining, "MAX_REPEATED_INSTRUCTIONS", 9)  # square 3 times, twice once
    inline_calls(dataclasses.replace(given))  # a copy: calls are inlined once
    monkeypatch.setattr(inlining, "MAX_REPEATED_INSTRUCTIONS", 8)
    with pytest.raises(InvalidModel, match=r"NCC_EVRF007.*repeats 9 instructions.*up to 8 "):
        inline_calls(given)

    levels = [square("level0")]  # calls that stand between change nothing
    for n in range(1, 6):
        one, two = (calling(f"{side}{n}", f"level{n - 1}") for side in ("one", "two"))
        levels += [one, two, branching(f"level{n}", one.name, two.name)]
    with pytest.raises(InvalidModel, match="repeats"):
        inline_calls(module(*levels))
