"""Plans: the decision for every instruction, JSON, differences, and what does not fit."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.casting.reading import rounded
from tests.support.graphs import computation, inst, module_of, parameter
from tests.support.parameters import each_of
from tests.support.running import result_bytes

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.plans.plan import Plan, load_plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Computation, Metadata, Module, Shape
from neuronsim.hlo.parse import from_text
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

F32, BF16, S32 = dtypes.float32, dtypes.bfloat16, dtypes.int32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)
# What A2 leaves alone in the fixture: parameters, integers, a product of float16, the tuple.
UNTOUCHED = {"x", "n", "nn", "hh", "out"}


def plan_of(module: Module, auto_cast: str, cast_type: str = "bf16", field: str = "documented") -> Plan:
    return make_plan(module, neuron_policy(auto_cast, cast_type, field))  # type: ignore[arg-type]


def edited(plan: Plan, **changes: Any) -> str:
    """The plan's JSON with other values in the decision for `y`."""
    body = json.loads(plan.to_json())
    body["decisions"]["y"] |= changes
    return json.dumps(body)


@TYPES
def test_none_decides_nothing(model: Module, cast_type: str) -> None:
    assert plan_of(model, "none", cast_type).decisions == {}


@TYPES
def test_only_dots_change_and_results_stay_float32_A1(model: Module, cast_type: str) -> None:
    plan = plan_of(model, "matmult", cast_type)
    assert set(plan.decisions) == {"d"}
    d = plan.decisions["d"]
    assert (d.operand, d.accumulate, d.output) == (CAST_TYPES[cast_type], F32, F32)


@TYPES
def test_every_float32_instruction_is_decided_A2(model: Module, cast_type: str) -> None:
    plan, low = plan_of(model, "all", cast_type), CAST_TYPES[cast_type]
    names = {i.name for i in model.entry_computation.instructions}
    assert set(plan.decisions) == names - UNTOUCHED
    by_name = model.entry_computation.by_name
    for name, d in plan.decisions.items():
        stated = by_name[name].array.dtype
        assert d.operand is low
        assert d.output is (low if stated is F32 else stated), name
        assert d.reason.startswith("A2")


def test_sums_stay_in_float32_A2(model: Module) -> None:
    decisions = plan_of(model, "all").decisions
    assert all(decisions[n].accumulate is F32 for n in ("d", "r", "s"))


@TYPES
def test_observed_all_is_matmult_A2(model: Module, cast_type: str) -> None:
    observed = plan_of(model, "all", cast_type, "observed").decisions
    matmult = plan_of(model, "matmult", cast_type).decisions
    assert {n: dataclasses.replace(d, reason="") for n, d in observed.items()} == {
        n: dataclasses.replace(d, reason="") for n, d in matmult.items()
    }


def narrow_dot(lhs: dtypes.DType, rhs: dtypes.DType) -> Module:
    numbers = ops.DotDimensions((1,), (0,))
    d = inst("d", "dot", (2, 2), "a", "b", dot_dimensions=numbers)
    return module_of(parameter("a", (2, 2), 0, lhs), parameter("b", (2, 2), 1, rhs), d)


def test_dots_of_narrow_operands_are_untouched_A1() -> None:
    plan = plan_of(narrow_dot(BF16, BF16), "matmult", "fp16")
    assert plan.decisions == {}
    assert plan.kept["d"].endswith("but it reads no float32, and its result keeps its type")
    assert set(plan_of(narrow_dot(F32, F32), "matmult", "fp16").decisions) == {"d"}


# By hand: of which of the model's own types A1 and A2 round a product's operands, and its results.
OWN = {"f32": F32, "bf16": BF16, "f16": dtypes.float16, "f8e4m3": dtypes.float8_e4m3}
ROUNDED: dict[str, tuple[set[str], set[str]]] = {
    "none": (set(), set()),
    "matmult": ({"f32"}, set()),
    "all": ({"f32"}, {"f32"}),
}


@TYPES
@pytest.mark.parametrize("auto_cast", ROUNDED)
def test_products_of_every_combination_of_types_A1_A2(auto_cast: str, cast_type: str) -> None:
    """Operands, result and the result's bits of a dot and a convolution whose sums are exact."""
    low, (read, given) = CAST_TYPES[cast_type], ROUNDED[auto_cast]
    values = np.array([[1.0, 1.40625, -0.783203125], [2.001953125, -0.5, 5.25]], np.float32)
    for a, b, r in itertools.product(OWN, repeat=3):
        word = f"u{OWN[r].bits}"
        module = from_text(f"""HloModule m
            ENTRY main {{
              x = {a}[2,3] parameter(0)
              w = {b}[2,3] parameter(1)
              d = {r}[2,2] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
              c = {r}[2,2] convolution(x, w), dim_labels=bf_oi->bf
              u = {word}[2,2] bitcast-convert(d)
              n = {r}[2,2] negate(c)
              ROOT t = ({r}[2,2], {r}[2,2], {word}[2,2], {r}[2,2]) tuple(d, c, u, n)
            }}""")
        verify(module)
        plan = plan_of(module, auto_cast, cast_type)
        inputs = [values.astype(OWN[n].numpy) for n in (a, b)]
        wide = [v.astype(np.float32) for v in inputs]
        x, w = (rounded(v, low) if n in read else v for n, v in zip((a, b), wide, strict=True))
        total = rounded(x @ w.T, OWN[r])
        expected = (rounded(total, low) if r in given else total).astype(OWN[r].numpy)
        four = [v.tobytes() for v in (expected, expected, expected, -expected)]
        for clean in (True, False):
            assert result_bytes(apply_plan(module, plan, clean=clean), *inputs) == four, (a, b, r)
        operands, result = {a, b} & read, {r} & given
        said = " and ".join(["operands"] * bool(operands) + ["result"] * bool(result))
        for name in ("d", "c"):
            reason = {n: d.reason for n, d in plan.decisions.items()}.get(name, "")
            assert (f"rounds {said} to {low.name}" in reason) == (auto_cast == "all" and bool(said))
            assert ("rounds float32 operands" in reason) == (auto_cast == "matmult" and bool(said))


@pytest.mark.parametrize("auto_cast", ["none", "matmult", "all"])
@TYPES
def test_json_round_trip(model: Module, auto_cast: str, cast_type: str, tmp_path: Path) -> None:
    plan = plan_of(model, auto_cast, cast_type)
    assert Plan.from_json(plan.to_json()) == plan
    (tmp_path / "plan.json").write_text(plan.to_json())
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded == plan
    check_plan(loaded, model)


def test_json_names_its_schema_and_types(model: Module) -> None:
    body = json.loads(plan_of(model, "all", "tf32").to_json())
    assert body["schema"] == "neuronsim.plan/3"
    assert body["decisions"]["d"]["operand"] == "tfloat32"


def test_diff_lists_the_instructions_that_differ(model: Module) -> None:
    none, matmult, every = (plan_of(model, a) for a in ("none", "matmult", "all"))
    assert every.diff(every) == {}
    assert none.diff(matmult) == {"d": (None, matmult.decisions["d"])}
    assert matmult.diff(none) == {"d": (matmult.decisions["d"], None)}
    difference = matmult.diff(every)
    assert set(difference) == set(every.decisions)
    assert difference["d"] == (matmult.decisions["d"], every.decisions["d"])


def test_explain(model: Module) -> None:
    plan = plan_of(model, "matmult")
    text = plan.explain("d", model)
    assert text.startswith("d reads bfloat16, sums in float32 and gives float32 (A1")
    assert plan.explain("s", model) == "s keeps the types of the model under matmult/bf16"
    assert plan.explain("d").startswith("d reads bfloat16 and gives float32 (A1")  # sums: unknown


def test_explain_refuses_what_is_not_there(model: Module) -> None:
    plan = plan_of(model, "all")
    with pytest.raises(
        InvalidArgument, match=r"says nothing of an instruction 'dd' \(did you mean 'd'"
    ):
        plan.explain("dd")
    with pytest.raises(InvalidArgument, match=r"'m' has no instruction 'dd' \(did you mean 'd'"):
        plan.explain("dd", model)


def test_plan_names_inlined_instructions() -> None:
    inner = computation("f", parameter("x", (2,)), inst("e", "exponential", (2,), "x"))
    call = inst("twice", "call", (2,), "x", called=("f",))
    module = module_of(parameter("x", (2,)), call, others=(inner,))
    assert set(plan_of(module, "all").decisions) == {"twice.e"}


def test_fingerprint_depends_on_the_constants(model: Module) -> None:
    entry = model.entry_computation
    eps = entry.by_name["eps"]
    other = eps.replace(attributes={"literal": ops.Bits(np.array(2e-3, np.float32), F32)})
    body = tuple(other if i is eps else i for i in entry.instructions)
    changed = model.replace_entry(Computation("main", body, entry.root))
    assert fingerprint(changed) != fingerprint(model) == fingerprint(model)


def changed(model: Module, name: str, **changes: Any) -> Module:
    """The model with another instruction in the place of one."""
    entry = model.entry_computation
    body = tuple(i.replace(**changes) if i.name == name else i for i in entry.instructions)
    return model.replace_entry(Computation(entry.name, body, entry.root))


def test_fingerprint_depends_on_what_is_computed(model: Module) -> None:
    entry = model.entry_computation.by_name
    others = [
        changed(model, "v", opcode="subtract"),
        changed(model, "v", operands=("e", "r")),
        changed(model, "r", attributes={**entry["r"].attributes, "dimensions": (0,)}),
        changed(model, "c", attributes={"comparison_direction": "GE"}),
        changed(model, "c", attributes={"comparison_direction": "GT", "comparison_type": "TOTALORDER"}),
        changed(model, "eps", attributes={"literal": ops.Bits(np.array(-1e-3, np.float32), F32)}),
        changed(model, "nn", shape=Shape(S32, (4,))),
        dataclasses.replace(model, name="another"),
        model.replace_entry(dataclasses.replace(model.entry_computation, root="t")),
        dataclasses.replace(model, computations=(model.entry_computation,)),
    ]
    assert len({fingerprint(m) for m in (model, *others)}) == 1 + len(others)


def test_fingerprint_ignores_what_changes_no_value(model: Module) -> None:
    others = [
        changed(model, "s", metadata=Metadata(op_name="layer/add", source_line=7)),
        changed(model, "s", unread=b"\x42\x00"),
        changed(model, "s", shape=Shape(F32, (3, 4), (0, 1))),
        changed(model, "s", shape=Shape(F32, (3, 4), (1, 0))),
        # Attributes that a file leaves out where they are as usual.
        changed(model, "c", attributes={"comparison_direction": "GT", "comparison_type": ""}),
        changed(model, "c", attributes={"comparison_direction": "GT", "comparison_type": "FLOAT"}),
        changed(model, "x", attributes={}),
        changed(
            model, "d", attributes={**model.entry_computation.by_name["d"].attributes, "algorithm": ""}
        ),
        proto.from_bytes(proto.to_bytes(model)),
    ]
    assert {fingerprint(m) for m in others} == {fingerprint(model)}


def test_fingerprint_takes_a_fraction_as_a_file_keeps_it(model: Module) -> None:
    one, other, more = (
        changed(model, "s", opcode="batch-norm-inference", attributes={"epsilon": e})
        for e in (1e-5, float(np.float32(1e-5)), 2e-5)
    )
    assert fingerprint(one) == fingerprint(other) != fingerprint(more)


def test_fingerprint_reads_the_arrays_of_a_tuple(model: Module) -> None:
    arrays = [ops.Bits(np.full(2, v, np.float32), F32) for v in (1, 2)]
    pairs = [tuple(arrays), tuple(reversed(arrays)), (arrays[0], (arrays[0],))]
    found = {fingerprint(changed(model, "w", attributes={"literal": p})) for p in pairs}
    assert len(found) == 3


def test_plan_for_another_module_lists_all_problems(model: Module) -> None:
    d = Decision(BF16, F32, F32, "test")
    plan = Plan("mine", "another", "0123456789abcdef", {"d": d, "no_such": d, "nor_this": d})
    with pytest.raises(InvalidArgument) as error:
        check_plan(plan, model)
    for part in ("'another' (0123456789abcdef)", "'no_such'", "'nor_this'", "module 'm'"):
        assert part in str(error.value)
    with pytest.raises(InvalidArgument, match="no_such"):
        apply_plan(model, plan)


@each_of(
    "text",
    [
        *("", "{", "[]", "null", "1", '"plan"', "{}"),
        '{"schema": "neuronsim.plan/1"}',
        '{"schema": "neuronsim.plan/3"}',
        '{"schema": "neuronsim.plan/3", "policy": "p", "module": "m", "fingerprint": "f",'
        ' "decisions": []}',
        '{"schema": "neuronsim.plan/3", "policy": "p", "module": "m", "fingerprint": "f",'
        ' "decisions": {"d": null}}',
        '{"schema": "neuronsim.plan/3", "policy": "p", "module": "m", "decisions": {}}',
        '{"schema": ' + "9" * 5000 + "}",
        "[" * 100_000,
        "\ud800",
    ],
)
def test_hostile_json_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Plan.from_json(text)


@pytest.mark.parametrize("part", ["operand", "accumulate", "output"])
@pytest.mark.parametrize("value", [None, 5, "", "float31", [], {}, {"a": 1}, True])
def test_json_types_are_names(model: Module, part: str, value: Any) -> None:
    with pytest.raises(InvalidArgument):
        Plan.from_json(edited(plan_of(model, "all"), **{part: value}))


@pytest.mark.parametrize("part", ["policy", "module", "fingerprint"])
def test_json_texts_are_texts(model: Module, part: str) -> None:
    body = json.loads(plan_of(model, "all").to_json()) | {part: [1]}
    with pytest.raises(InvalidArgument):
        Plan.from_json(json.dumps(body))


def test_json_reason_is_a_text(model: Module) -> None:
    with pytest.raises(InvalidArgument):
        Plan.from_json(edited(plan_of(model, "all"), reason=5))


@pytest.mark.parametrize("part", ["operand", "accumulate", "output"])
@pytest.mark.parametrize("value", ["int32", "bool", "complex64"])
def test_a_decision_with_no_float_type_does_not_fit(model: Module, part: str, value: str) -> None:
    with pytest.raises(InvalidArgument):
        check_plan(Plan.from_json(edited(plan_of(model, "all"), **{part: value})), model)


def test_an_accumulate_type_that_is_not_carried_out_is_refused(model: Module) -> None:
    # R1 and M6 let a plan ask for another type of the sums; the plan must not say what does not happen.
    with pytest.raises(InvalidArgument):
        apply_plan(model, Plan.from_json(edited(plan_of(model, "all"), accumulate="float16")))


def test_load_plan_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no\.json"):
        load_plan(tmp_path / "no.json")


def test_load_plan_names_the_file_that_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("nonsense")
    with pytest.raises(InvalidArgument, match=r"plan\.json: not a plan of neuronsim"):
        load_plan(tmp_path / "plan.json")


def test_load_plan_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InvalidArgument):
        load_plan(tmp_path / "plan.json")


def test_what_a_list_keeps_says_why(model: Module, tmp_path: Path) -> None:
    policy = Policy("mine", BF16, {"always": frozenset({"compute"}), "never": frozenset({"dot"})})
    plan = make_plan(model, policy)
    assert set(plan.kept) == {"d"}
    assert plan.explain("d") == "d keeps the types of the model under mine (mine: lists dot as never)"
    assert Plan.from_json(plan.to_json()).kept == plan.kept
    other = dataclasses.replace(plan, kept={"dd": "no such instruction"})
    with pytest.raises(InvalidArgument, match="it has no instruction 'dd'"):
        check_plan(other, model)
