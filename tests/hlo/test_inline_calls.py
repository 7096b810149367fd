"""Inlining: calls and fusions in every computation, loops and reducers left called, unique names."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.support.graphs import computation

from neuronsim import dtypes
from neuronsim.errors import InvalidModel
from neuronsim.hlo import module as ir
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    graph_computations,
    inline_calls,
)

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, PRED = dtypes.float32, dtypes.boolean


def inst(name: str, opcode: str, *operands: str, dtype: dtypes.DType = F32, **more: Any) -> Instruction:
    return Instruction(name, opcode, Shape(dtype), operands, more)


def x(name: str = "x") -> Instruction:
    return inst(name, "parameter", number=0)


def module(*computations: Computation) -> Module:
    return Module("m", computations[-1].name, computations)


def names(c: Computation) -> list[str]:
    return [i.name for i in c.instructions]


def square(name: str = "square") -> Computation:
    return computation(name, x("p"), inst("q", "multiply", "p", "p"))


@pytest.mark.parametrize("opcode", ["call", "fusion"])
def test_calls_and_fusions_are_inlined_where_a_loop_calls_them(opcode: str) -> None:
    body = computation("body", x("b"), inst("f", opcode, "b", called=("square",)))
    condition = computation(
        "cond",
        x("c"),
        inst("g", opcode, "c", called=("square",)),
        inst("t", "is-finite", "g", dtype=PRED),
    )
    loop = inst("w", "while", "x", called=("body", "cond"))
    result = inline_calls(module(square(), body, condition, computation("main", x(), loop)))
    assert [c.name for c in result.computations] == ["body", "cond", "main"]
    assert names(result.by_name["body"]) == ["b", "f.q"]
    assert result.by_name["body"].root == "f.q"
    assert result.by_name["body"].by_name["f.q"].operands == ("b", "b")
    assert names(result.by_name["cond"]) == ["c", "g.q", "t"]
    assert result.root.called == ("body", "cond")


def test_a_fusion_of_several_results_becomes_its_tuple() -> None:
    pair = Instruction("t", "tuple", TupleShape((Shape(F32), Shape(F32))), ("q", "p"))
    fused = computation("fused", x("p"), inst("q", "negate", "p"), pair)
    call = Instruction(
        "f", "fusion", pair.shape, ("x",), {"called": ("fused",), "fusion_kind": "kLoop"}
    )
    take = inst("y", "get-tuple-element", "f", tuple_index=1)
    entry = inline_calls(module(fused, computation("main", x(), call, take))).entry_computation
    assert names(entry) == ["x", "f.q", "f.t", "y"]
    assert entry.by_name["y"].operands == ("f.t",)
    assert entry.by_name["f.t"].operands == ("f.q", "x")


def test_a_callee_that_gives_its_parameter_leaves_nothing() -> None:
    identity = computation("id", x("p"))
    call = inst("f", "call", "x", called=("id",))
    entry = inline_calls(
        module(identity, computation("main", x(), call, inst("y", "negate", "f")))
    ).entry_computation
    assert names(entry) == ["x", "y"]
    assert entry.by_name["y"].operands == ("x",)


def test_computations_of_elements_stay_called_and_their_calls_are_inlined() -> None:
    add = computation("add", x("a"), inst("b", "parameter", number=1), inst("s", "add", "a", "b"))
    wrapped = Computation(
        "wrapped",
        (x("a"), inst("b", "parameter", number=1), inst("c", "call", "a", "b", called=("add",))),
        "c",
    )
    mapped = inst("y", "map", "x", "x", called=("wrapped",), dimensions=())
    result = inline_calls(module(add, wrapped, computation("main", x(), mapped)))
    assert [c.name for c in result.computations] == ["wrapped", "main"]
    assert result.root.called == ("wrapped",)
    assert names(result.by_name["wrapped"]) == ["a", "b", "c.s"]
    assert graph_computations(result) == (result.entry_computation,)


def test_a_module_without_calls_is_itself() -> None:
    body = computation("body", x("b"), inst("n", "negate", "b"))
    condition = computation("cond", x("c"), inst("t", "is-finite", "c", dtype=PRED))
    loop = inst("w", "while", "x", called=("body", "cond"))
    given = module(body, condition, computation("main", x(), loop))
    assert inline_calls(given) is given
    assert [c.name for c in graph_computations(given)] == ["body", "cond", "main"]


def test_graph_computations_reach_through_calls() -> None:
    inner = computation("inner", x("p"), inst("w", "while", "p", called=("body", "cond")))
    body = computation("body", x("b"), inst("n", "negate", "b"))
    condition = computation("cond", x("c"), inst("t", "is-finite", "c", dtype=PRED))
    unused = square("unused")
    call = inst("f", "call", "x", called=("inner",))
    given = module(unused, body, condition, inner, computation("main", x(), call))
    found = [c.name for c in graph_computations(given)]
    assert found == ["body", "cond", "inner", "main"]
    assert [c.name for c in inline_calls(given).computations] == ["body", "cond", "main"]


def test_names_are_unique_among_graphs_and_the_entry_keeps_its_own() -> None:
    body = computation("body", x(), inst("y", "negate", "x"), inst("body.y", "add", "y", "x"))
    condition = computation("cond", x(), inst("y", "is-finite", "x", dtype=PRED))
    loop = inst("w", "while", "x", called=("body", "cond"))
    entry = computation("main", x(), loop, inst("y", "negate", "w"))
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
    calls = [inst(n, "call", "x", called=("square",)) for n in ("f", "g")]
    entry = inline_calls(
        module(square(), computation("main", x(), *calls, inst("y", "add", "f", "g")))
    ).entry_computation
    assert names(entry) == ["x", "f.q", "g.q", "y"]


def nested(depth: int) -> Module:
    levels = [square("level0")]
    for n in range(1, depth + 1):
        call = inst("q", "call", "p", called=(f"level{n - 1}",))
        levels.append(computation(f"level{n}", x("p"), call))
    return module(*levels)


def test_calls_are_nested_up_to_a_depth() -> None:
    assert len(inline_calls(nested(ir.MAX_CALL_DEPTH)).entry_computation.instructions) == 2
    with pytest.raises(InvalidModel, match=f"nests calls {ir.MAX_CALL_DEPTH + 1} deep"):
        inline_calls(nested(ir.MAX_CALL_DEPTH + 1))


def test_the_instructions_of_loops_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [inst(f"f{n}", "call", "b", called=("square",)) for n in range(4)]
    body = computation("body", x("b"), *calls)
    condition = computation("cond", x("c"), inst("t", "is-finite", "c", dtype=PRED))
    given = module(
        square(),
        body,
        condition,
        computation("main", x(), inst("w", "while", "x", called=("body", "cond"))),
    )
    monkeypatch.setattr(ir, "MAX_INSTRUCTIONS", 17)  # 5 and 4 times 2, 2, 2
    inline_calls(dataclasses.replace(given))  # a copy: calls are inlined once
    monkeypatch.setattr(ir, "MAX_INSTRUCTIONS", 16)
    with pytest.raises(InvalidModel, match=r"NCC_EVRF007.*more than 16 instructions"):
        inline_calls(given)


def test_what_loops_and_branches_repeat_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls repeat is not, nor what is named once, nor repeats that at most double a module."""
    which = inst("which", "constant", dtype=PRED)

    def branching(name: str, *called: str, before: tuple[Instruction, ...] = ()) -> Computation:
        taken = inst("c", "conditional", "which", "x", "x", called=called)
        return computation(name, x(), which, *before, taken)

    def calling(name: str, *called: str) -> Computation:
        return computation(
            name, x(), *(inst(f"y{n}", "call", "x", called=(c,)) for n, c in enumerate(called))
        )

    monkeypatch.setattr(ir, "MAX_REPEATED_INSTRUCTIONS", 1)
    four = calling("four", *["square"] * 4)
    inline_calls(module(square(), four, branching("main", "square", "four")))
    more = tuple(inst(f"a{n}", "abs", "x") for n in range(10))
    twice = branching("twice", "square", "square")
    inline_calls(module(square(), twice, branching("main", "twice", "twice", before=more)))

    given = module(square(), twice, branching("main", "twice", "twice"))
    monkeypatch.setattr(ir, "MAX_REPEATED_INSTRUCTIONS", 9)  # square 3 times, twice once
    inline_calls(dataclasses.replace(given))  # a copy: calls are inlined once
    monkeypatch.setattr(ir, "MAX_REPEATED_INSTRUCTIONS", 8)
    with pytest.raises(InvalidModel, match=r"NCC_EVRF007.*repeats 9 instructions.*up to 8 "):
        inline_calls(given)

    levels = [square("level0")]  # calls that stand between change nothing
    for n in range(1, 6):
        one, two = (calling(f"{side}{n}", f"level{n - 1}") for side in ("one", "two"))
        levels += [one, two, branching(f"level{n}", one.name, two.name)]
    with pytest.raises(InvalidModel, match="repeats"):
        inline_calls(module(*levels))
