"""Explanations and differences of plans, as data and as the command line prints them."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support.commands import Commands
from tests.support.graphs import inst, module_of, parameter
from tests.support.hlo_text import text_module

from neuronsim import api
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.flags import CastSettings
from neuronsim.casting.plans.casts import Cast, casts, count_casts
from neuronsim.casting.plans.explain import describe, group, line_sentence, lines, type_difference
from neuronsim.casting.plans.plan import Plan, load_plan, make_plan
from neuronsim.casting.plans.report import print_casts
from neuronsim.casting.policies.neuron import neuron_policy, policy_of
from neuronsim.errors import InvalidArgument
from neuronsim.executor.steps import all_steps
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module, graph_computations
from neuronsim.hlo.opcodes import CONVERTS
from neuronsim.hlo.parse import from_text
from neuronsim.tuning.rungs import LADDER

pytestmark = pytest.mark.isa_independent

MODEL = "examples/digits/model.hlo.pb"
SMALL = """
HloModule small

ENTRY main {
  x = f32[4,8] parameter(0)
  v = f32[8,2] parameter(1)
  e = f32[4,8] exponential(x), metadata={op_name="layer_0/exp"}
  d = f32[4,2] dot(e, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[4,2] tanh(d), metadata={op_name="layer_1/tanh"}
}
"""


def planned(auto_cast: str) -> tuple[Module, Plan, tuple[Cast, ...]]:
    module = from_text(SMALL)
    plan = make_plan(module, neuron_policy(auto_cast, "bf16"))  # type: ignore[arg-type]
    return module, plan, casts(module, apply_plan(module, plan), plan)


def test_casts_name_source_types_bytes_readers_and_reason() -> None:
    _, _, found = planned("matmult")
    # 4x8 and 8x2 elements of 4 bytes are read and of 2 bytes written.
    assert [(c.source, c.from_type, c.to_type, c.bytes, c.readers) for c in found] == [
        ("e", "float32", "bfloat16", 4 * 8 * 6, ("d",)),
        ("v", "float32", "bfloat16", 8 * 2 * 6, ("d",)),
    ]
    assert all(c.reason.startswith("d reads bfloat16: A1") and not c.of_constant for c in found)


def test_a_widened_result_says_that_the_model_keeps_its_type_A2() -> None:
    _, _, found = planned("all")
    (last,) = [c for c in found if c.to_type == "float32"]
    assert (last.source, last.readers, last.bytes) == ("t", ("t.to_f32",), 4 * 2 * 6)
    assert "keeps the model's type float32 (A2)" in last.reason


def test_none_casts_nothing() -> None:
    module, plan, found = planned("none")
    assert found == ()
    assert lines(module, plan) == ()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("d", ["d"]),
        ("exponential", ["e"]),
        ("layer_*", ["e", "t"]),
        ("bfloat16", ["d"]),
        ("?", ["x", "v", "e", "d", "t"]),
    ],
)
def test_lines_filter_by_name_opcode_op_name_and_type(pattern: str, names: list[str]) -> None:
    module, plan, _ = planned("matmult")
    assert [line.instruction.name for line in lines(module, plan, [pattern])] == names


def test_a_pattern_that_matches_nothing_names_the_nearest() -> None:
    module, plan, _ = planned("matmult")
    with pytest.raises(InvalidArgument, match="no instruction matches 'tan'"):
        lines(module, plan, ["tan"])


def test_describe_says_why_each_cast_around_an_instruction_is_there() -> None:
    module, plan, found = planned("matmult")
    (line,) = lines(module, plan, ["d"])
    first, *rest = describe(line, found, plan)
    assert first.startswith("d (dot): reads bfloat16, sums in float32 and gives float32 (A1")
    assert len(rest) == 2
    assert all("for it, float32 to bfloat16" in t for t in rest)
    (line,) = lines(module, plan, ["e"])
    texts = describe(line, found, plan)
    assert "keeps the types of the model" in texts[0]
    assert "layer_0/exp" in texts[1]
    assert "d reads bfloat16: A1" in texts[2]


def test_only_what_sums_is_said_to_sum() -> None:
    module, plan, _ = planned("all")
    assert "sums in float32" in plan.explain("d", module)
    assert "sums" not in plan.explain("e", module) + plan.explain("t", module)
    found = {s.instruction.name: s.sums for s in lines(module, plan)}
    assert found == {"e": False, "d": True, "t": False}


@pytest.mark.parametrize(
    ("reducer", "summed"), [("add", True), ("multiply", True), ("maximum", False), ("minimum", False)]
)
def test_a_reduce_sums_as_its_reducer_says(reducer: str, summed: bool) -> None:
    entry = "x = f32[4,8] parameter(0)\nz = f32[] constant(1)\n"
    entry += "ROOT s = f32[4] reduce(x, z), dimensions={1}, to_apply=r"
    applied = f"ROOT c = f32[] {reducer}(a, b)"
    module = text_module(entry, f"r {{ a = f32[] parameter(0)  b = f32[] parameter(1)  {applied} }}")
    plan = make_plan(module, neuron_policy("all", "bf16"))
    assert ("sums in float32" in plan.explain("s", module)) == summed


def test_filters_take_computations_and_composites() -> None:
    module = api.read_model(MODEL)
    plan = api.plan(MODEL, policy="tvm/float16")
    (line,) = lines(module, plan, [f"{module.entry}/exp.1"])
    assert line.instruction.name == "exp.1"
    members = {s.instruction.name for s in lines(module, plan, ["softmax"])}
    assert {"reduce_max.7", "sub.37", "exp.1", "div.23"} <= members
    assert not any(name.startswith(("dot", "tanh", "rsqrt")) for name in members)


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no cell of a table wraps."""
    monkeypatch.setenv("COLUMNS", "300")


def cells_of(row: str) -> list[str]:
    return re.split(r"\s{2,}", row.strip())


@pytest.mark.usefixtures("wide_terminal")
def test_what_the_policy_kept_is_in_the_table(commands: Commands) -> None:
    out = commands.ok("explain", MODEL, "--policy", "tvm/float16")
    (row,) = [r for r in out.splitlines() if r.startswith(" exp.1 ")]
    assert cells_of(row) == [
        *("exp.1 (jit(classify)/exp)", "exponential", "as the model", "lists softmax as never")
    ]
    (row,) = [r for r in out.splitlines() if r.startswith(" add.59 ")]
    assert cells_of(row) == [
        *("add.59 (jit(classify)/add)", "add", "float16", "float16", "follows its inputs")
    ]


def test_a_cast_that_clean_up_moved_says_so() -> None:
    module = text_module("""x = f32[4] parameter(0)
        v = f32[8,2] parameter(1)
        e = f32[4] exponential(x)
        b = f32[4,8] broadcast(e), dimensions={0}
        ROOT d = f32[4,2] dot(b, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    plan = make_plan(module, neuron_policy("matmult", "bf16"))
    for clean, expected in ((True, ["b"]), (False, [])):
        found = casts(module, apply_plan(module, plan, clean=clean), plan)
        told = {s.instruction.name: describe(s, found, plan) for s in lines(module, plan, ["*"])}
        moved = [n for n, texts in told.items() if any("clean-up moved" in t for t in texts)]
        assert moved == expected


def test_a_transpose_that_is_no_relayout_says_so_A3() -> None:
    module = text_module("""x = f32[2,3,4] parameter(0)
        outer = f32[3,2,4] transpose(x), dimensions={1,0,2}
        ROOT inner = f32[3,4,2] transpose(outer), dimensions={0,2,1}""")
    for auto_cast in ("matmult", "all"):
        settings = CastSettings(auto_cast, "bf16", False, "neuron-cc", relayout="fp16")  # type: ignore[arg-type]
        plan = make_plan(module, policy_of(settings))
        assert "no relayout, since its minor-most dimension stays" in plan.explain("outer")
        assert "no relayout" not in plan.explain("inner")
        plain = make_plan(module, neuron_policy(auto_cast, "bf16"))  # type: ignore[arg-type]
        assert "relayout" not in plain.explain("outer", module)


def restated(plan: Plan, *names: str, **changes: Any) -> Plan:
    """The plan with something else in some of its decisions."""
    new = {n: dataclasses.replace(plan.decisions[n], **changes) for n in names}
    return dataclasses.replace(plan, decisions=plan.decisions | new)


def test_plans_that_differ_in_reasons_alone_are_the_same(tmp_path: Path, commands: Commands) -> None:
    _, plan, _ = planned("all")
    other = restated(plan, *plan.decisions, reason="another")
    assert set(plan.diff(other)) == set(plan.decisions)
    assert type_difference(plan, other) == {}
    assert set(type_difference(plan, restated(other, "e", rounding="stochastic"))) == {"e"}
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path, p in zip(paths, (plan, other), strict=True):
        path.write_text(p.to_json())
    assert commands.ok("diff", *paths) == "The plans decide the same types.\n"


@pytest.fixture
def two_plans(tmp_path: Path, commands: Commands) -> list[Path]:
    """The files of two plans of the digits, under matmult and all."""
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path, setting in zip(paths, ("matmult", "all"), strict=True):
        assert str(path) in commands.ok("plan", MODEL, "--auto-cast", setting, "--output", path)
    return paths


@pytest.mark.usefixtures("wide_terminal")
def test_differences_are_counted_and_grouped_by_opcode(
    two_plans: list[Path], commands: Commands
) -> None:
    status, out, _ = commands.run("diff", *two_plans, "--model", MODEL)
    differing = type_difference(*(Plan.from_json(p.read_text()) for p in two_plans))
    assert status == 1
    assert (
        f"{len(differing)} of the {len(differing)} instructions that either plan decides differ" in out
    )
    table = [cells_of(line) for line in out.splitlines()]
    rows = [cells for cells in table if len(cells) > 2 and cells[1].isdigit()]
    assert sum(int(cells[1]) for cells in rows) == len(differing)
    assert next(cells for cells in rows if cells[2] == "dot")[1] == "10"


def test_group_puts_equal_decisions_together() -> None:
    module, plan, _ = planned("all")
    sizes = {g[0].instruction.opcode: len(g) for g in group(lines(module, plan), plan)}
    assert sizes == {"exponential": 1, "dot": 1, "tanh": 1}


@pytest.mark.usefixtures("wide_terminal")
def test_plan_writes_what_explain_and_diff_read(two_plans: list[Path], commands: Commands) -> None:
    first = Plan.from_json(two_plans[0].read_text())
    assert first == api.plan(MODEL, auto_cast="matmult")
    out = commands.ok("explain", MODEL, "--plan", two_plans[0])
    assert "matmult/bf16" in out
    assert "A1: rounds float32 operands of the tensor engine to bfloat16" in out
    status, out, _ = commands.run("diff", *two_plans)
    assert status == 1
    assert "as the model" in out
    assert "bfloat16 -> float32 -> bfloat16" in out
    assert commands.ok("diff", *two_plans[:1] * 2) == "The plans decide the same types.\n"


def test_plan_prints_json_to_standard_output(commands: Commands) -> None:
    out = commands.ok("plan", MODEL, "--auto-cast", "all")
    assert Plan.from_json(out) == api.plan(MODEL, auto_cast="all")


def test_plans_of_two_modules_cannot_be_compared(tmp_path: Path, commands: Commands) -> None:
    small = tmp_path / "small.hlo.pb"
    small.write_bytes(proto.to_bytes(from_text(SMALL)))
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    commands.ok("plan", MODEL, "--output", paths[0])
    commands.ok("plan", str(small), "--output", paths[1])
    assert "plans of one module" in commands.refused("diff", *paths)
    said = commands.refused("explain", MODEL, "--plan", paths[1])
    assert "was made for 'small'" in said
    assert "another batch, shape or weight" in said  # of which the module's name says nothing


def test_explain_prints_json(commands: Commands) -> None:
    body: dict[str, Any] = json.loads(commands.ok("explain", MODEL, "--json"))
    assert body["schema"] == "neuronsim.explanation/1"
    assert set(body["instructions"]) == set(api.plan(MODEL).decisions)
    assert {c["to_type"] for c in body["casts"]} == {"bfloat16"}


OWN_ROUNDING = """
HloModule own

ENTRY main {
  x = f32[4] parameter(0)
  p = f32[4] reduce-precision(x), exponent_bits=5, mantissa_bits=10
  h = f16[4] convert(p)
  c = f32[4] convert(h)
  ROOT y = f32[4] exponential(c)
}
"""


@pytest.mark.parametrize(("low", "name"), [("bf16", "bfloat16"), ("tf32", "tfloat32")])
def test_the_models_own_rounding_is_no_cast_but_what_a_plan_decides_of_it_is_A2(
    low: str, name: str
) -> None:
    module = from_text(OWN_ROUNDING)
    plan = make_plan(module, neuron_policy("all", low))
    planned = apply_plan(module, plan)
    found = {c.name: c for c in casts(module, planned, plan)}
    by_name = planned.entry_computation.by_name
    kept = by_name["p.f32"]  # the model's, whose result the plan rounds
    assert (kept.attributes["exponent_bits"], kept.attributes["mantissa_bits"]) == (5, 10)
    assert not {"p.f32", "c.f32", "h"} & found.keys()
    assert (found["p"].from_type, found["p"].to_type) == ("float(5,10)", name)
    assert found["p"].reason.startswith("its result is rounded: A2")
    (last,) = [c for c in found.values() if c.readers == ("p",) and c.name != "p"]
    assert last.reason.startswith(f"p reads {last.to_type}: A2")  # not p.f32, a name of the plan's own
    assert sum(i.opcode in CONVERTS for i in by_name.values()) == len(found) + len(
        {"p.f32", "h", "c.f32" if "c.f32" in by_name else "c"}
    )


@pytest.mark.parametrize("command", ["explain", "lint", "plan"])
def test_a_plan_of_types_that_the_target_lacks_is_refused_as_compile_does(
    command: str, tmp_path: Path, commands: Commands
) -> None:
    path = str(tmp_path / "p.json")
    commands.ok("plan", MODEL, "--auto-cast", "matmult", "--auto-cast-type", "tf32", "--output", path)
    given = [command, MODEL, "--plan", path]
    assert "inf1 lacks tfloat32" in commands.refused(*given, "--target", "inf1")
    with pytest.raises(InvalidArgument, match="inf1 lacks tfloat32"):
        api.compile(MODEL, plan=load_plan(path), target="inf1")
    commands.ok(*given, "--target", "trn1")


def test_many_instructions_are_grouped_and_singles_are_found(
    tmp_path: Path, commands: Commands
) -> None:
    path, opcodes = tmp_path / "wide.hlo.pb", ("exponential", "tanh", "negate")
    steps = [inst(f"x{n}", opcodes[n % 3], (8,), f"x{n - 1}") for n in range(1, 1_999)]
    root = inst("r", "add", (8,), "x1998", "x0")
    path.write_bytes(proto.to_bytes(module_of(parameter("x0", (8,)), *steps, root)))
    out = commands.ok("explain", path, "--auto-cast", "all")
    assert "and 663 more" in out
    assert len(out.splitlines()) < 20
    out = commands.ok("explain", path, "--auto-cast", "all", "--filter", "x1900")
    assert out.startswith("x1900 (tanh): reads bfloat16")


# ---- what the planned module has -----------------------------------------------------------------

LOOP = """
HloModule loop

body {
  p = (s32[], f32[4,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[4,8] get-tuple-element(p), index=1
  w = f32[8,8] get-tuple-element(p), index=2
  d = f32[4,8] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,8] tanh(d)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4,8], f32[8,8]) tuple(next, t, w)
}
condition {
  q = (s32[], f32[4,8], f32[8,8]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  LIMIT
}
ENTRY main {
  x = f32[4,8] parameter(0)
  v = f32[8,8] parameter(1)
  zero = s32[] constant(0)
  given = (s32[], f32[4,8], f32[8,8]) tuple(zero, x, v)
  loop = (s32[], f32[4,8], f32[8,8]) while(given), condition=condition, body=body
  y = f32[4,8] get-tuple-element(loop), index=1
  ROOT z = f32[4,8] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
KNOWN = "n = s32[] constant(8)\n  ROOT k = pred[] compare(j, n), direction=LT"
UNKNOWN = """g = f32[4,8] get-tuple-element(q), index=1
  s = f32[1,1] slice(g), slice={[0:1],[0:1]}
  f = f32[] reshape(s)
  n = s32[] convert(f)
  ROOT k = pred[] compare(j, n), direction=LT"""
CONDITIONAL = """
HloModule branches

few { a = f32[4,8] parameter(0)  ROOT b = f32[4,8] negate(a) }
many { c = f32[4,8] parameter(0)  d = f32[8,4] transpose(c), dimensions={1,0}
  e = f32[4,4] dot(c, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT f = f32[4,8] dot(e, c), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
ENTRY main {
  p = s32[] parameter(0)
  x = f32[4,8] parameter(1)
  ROOT y = f32[4,8] conditional(p, x, x), branch_computations={few, many}
}
"""


def explained(text: str, auto_cast: str, trips: int | None = None) -> str:
    """What is printed of a module's casts."""
    module = from_text(text)
    plan = make_plan(module, neuron_policy(auto_cast, "bf16"))  # type: ignore[arg-type]
    found, counts = count_casts(module, apply_plan(module, plan), plan, trips)
    console = Console(width=200, file=io.StringIO())
    print_casts(found, counts, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_casts_of_a_loops_body_are_counted_in_every_trip() -> None:
    # In a trip 4 x 8 and 8 x 8 elements, and once those behind the loop.
    text = explained(LOOP.replace("LIMIT", KNOWN), "matmult")
    assert text == f"18 casts of float32 to bfloat16 in each run, {9 * (32 + 64) * 6} bytes\n"


def test_casts_of_a_loop_whose_trips_are_not_known_say_so() -> None:
    module = LOOP.replace("LIMIT", UNKNOWN)
    text = explained(module, "matmult")
    assert text.startswith(f"4 casts of float32 to bfloat16 in each run, {2 * (32 + 64) * 6} bytes\n")
    assert "loops whose number is not known (--trips): loop 1" in text
    text = explained(module, "matmult", 8)
    assert text == f"18 casts of float32 to bfloat16 in each run, {9 * (32 + 64) * 6} bytes\n"


def test_casts_of_the_branch_with_most_bytes_are_counted() -> None:
    assert explained(CONDITIONAL, "matmult").startswith("2 casts of float32 to bfloat16 in each run")
    other = CONDITIONAL.replace(
        "ROOT b = f32[4,8] negate(a)",
        """o = f32[8,4] transpose(a), dimensions={1,0}
  q = f32[4,4] dot(a, o), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[4,8] dot(q, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = f32[4,4] dot(r, o), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b = f32[4,8] dot(u, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    )
    text = explained(other, "matmult")
    assert text.startswith("4 casts of float32 to bfloat16 in each run")
    assert "2 more in branches that cast fewer bytes" in text


def test_a_weight_that_a_loop_passes_on_is_cast_at_compilation() -> None:
    weights = "{ " + ", ".join(["{ 1, 2, 3, 4, 5, 6, 7, 8 }"] * 8) + " }"
    module = LOOP.replace("LIMIT", KNOWN).replace(
        "v = f32[8,8] parameter(1)", f"v = f32[8,8] constant({weights})"
    )
    text = explained(module, "matmult")
    assert text.startswith(f"9 casts of float32 to bfloat16 in each run, {9 * 32 * 6} bytes\n")
    assert "2 casts of constants, once at compilation" in text
    for model, is_run in ((module, False), (LOOP.replace("LIMIT", KNOWN), True)):
        program = api.compile(from_text(model), auto_cast="matmult", auto_cast_type="bf16")
        run = {name for step in all_steps(program._schedule.steps) for name in step.members}
        assert ("w.to_bf16" in run) == is_run


def said_types(text: str, model: tuple[str, ...]) -> set[str]:
    """The types that the first sentence on an instruction says it gives."""
    if "keeps the types of the model" in text:
        return set(model)
    match = re.search(r"gives ([a-z0-9_]+(?:, [a-z0-9_]+)*)", text)
    assert match is not None, text
    return set(match[1].split(", "))


@pytest.mark.parametrize(("auto_cast", "cast_type"), LADDER)
def test_every_sentence_agrees_with_the_planned_module(auto_cast: str, cast_type: str) -> None:
    models = [from_text(t) for t in (SMALL, OWN_ROUNDING, CONDITIONAL, LOOP.replace("LIMIT", KNOWN))]
    folder = Path(__file__).parents[1] / "data"
    models += [api.read_model(path) for path in sorted((folder / "networks").glob("*.hlo.pb"))]
    operators = ("while", "conditional", "after-all", "gather", "pad")
    models += [api.read_model(folder / "operators" / f"{name}.hlo.pb") for name in operators]
    for model in models:
        plan = make_plan(model, neuron_policy(auto_cast, cast_type))  # type: ignore[arg-type]
        planned = apply_plan(model, plan)
        has = {i.name: i for c in graph_computations(planned) for i in c.instructions}
        for line in lines(model, plan, ["*"], planned):
            i = line.instruction
            text = line_sentence(line, plan)
            if i.name not in has:
                assert "is no more there" in text
                continue
            own = tuple(s.dtype.name for s in i.shape.arrays())
            found = {s.dtype.name for s in has[i.name].shape.arrays()}
            said = said_types(text, own)
            if "keeps the types" in text or "in the planned module" in text:
                assert {t.replace("tfloat32", "float32") for t in said} == found, text
            else:  # the type of its float32 results
                (low,) = said
                assert low.replace("tfloat32", "float32") in found, text
                kept = line.decision is not None and bool(line.decision.float32_results)
                assert kept or low in ("float32", "tfloat32") or "float32" not in found, text


def test_what_a_loop_carries_is_explained_in_the_type_that_it_has() -> None:
    module = from_text(LOOP.replace("LIMIT", KNOWN))
    plan = make_plan(module, neuron_policy("all", "bf16"))
    assert plan.explain("h", module).startswith("h gives bfloat16 in the planned module")
    assert plan.explain("i", module).startswith("i keeps the types of the model")
