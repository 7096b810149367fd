"""`neuronsim calibrate`, `plan`, `explain` and `diff`: which casts, and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from neuronsim import api, json_documents
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.fields import MAX_BYTES, read_text
from neuronsim.casting.plans.casts import count_casts
from neuronsim.casting.plans.explain import describe, lines, type_difference
from neuronsim.casting.plans.plan import Plan, load_plan
from neuronsim.casting.plans.report import print_difference, print_explanation
from neuronsim.cli.arguments import (
    MODELS,
    Declare,
    add_casts,
    add_model,
    add_trips,
    casts,
    model_inputs,
    setting,
    trips,
)
from neuronsim.cli.output import progress_bar, write
from neuronsim.errors import InvalidArgument, InvalidData, counted
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, graph_computations
from neuronsim.reading import read_model
from neuronsim.setups import DEFAULT_TARGET, CastRequest, CompilerSetting, resolve
from neuronsim.tables import output_console, print_table, say
from neuronsim.targets import find_target
from neuronsim.tuning.tune_difference import compare_runs, print_tune_difference


def declare_commands(declare: Declare) -> None:
    calibrate = declare(
        "calibrate", _calibrate, "Write what the values of each instruction are in float32, for rules."
    )
    add_model(calibrate)
    calibrate.add_argument("--data", required=True, help=".npz: inputs by name")
    calibrate.writes("--output", "the JSON to write", required=True)

    calibrate.tell("examples", ("neuronsim calibrate model.onnx --data x.npz --output values.json",))

    plan = declare("plan", _plan, "Write what a setting casts, instruction by instruction, to a file.")
    add_model(plan)
    plan.writes("--output", "the JSON to write; default: standard output", forms=(".json",))
    add_casts(plan)

    plan.tell("examples", ("neuronsim plan model.onnx --auto-cast all --output plan.json",))

    explain = declare("explain", _explain, "Print what a setting casts, and why.")
    add_model(explain, f"{MODELS}; without it the profile is printed", nargs="?")
    explain.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="PATTERN",
        help="all on these: names, opcodes, types or op_names, with wildcards such as 'dot*'",
    )
    add_trips(explain)
    explain.add_argument("--json", action="store_true", help="print everything as JSON")
    add_casts(explain)

    explain.tell(
        "examples",
        (
            "neuronsim explain model.onnx --auto-cast all",
            "neuronsim explain model.onnx --policy tvm/float16 --filter 'dot*'",
        ),
    )

    diff = declare(
        "diff",
        _diff,
        "Print where two plans differ, or two runs of tune, and whether that is more than noise; exit "
        "status 1 if they do.",
    )
    diff.add_argument("plans", nargs=2, metavar="JSON", help="a plan, or what tune wrote with --json")
    diff.add_argument("--model", help="the model of two plans: the table then has opcodes")
    diff.add_argument("--weights", metavar="FILE", help="of the model, where the plans had them")
    diff.add_argument("--json", action="store_true", help="print what differs of two runs as JSON")
    diff.tell(
        "examples",
        ("neuronsim diff before.json after.json", "neuronsim diff a.json b.json --model model.onnx"),
    )


def _calibrate(options: argparse.Namespace) -> None:
    with progress_bar("float32") as progress:
        found = api.calibrate(
            options.model,
            options.data,
            progress=lambda done, total: progress("float32", done, total),
            **model_inputs(options),
        )
    write(options, options.output, found.to_json() + "\n")
    met = counted(len(found.values), "instruction")
    say(f"the values of {met} of {options.model}: wrote {options.output}")


def _plan(options: argparse.Namespace) -> None:
    model, plan = _plan_of(options)
    if options.output is None:
        print(plan.to_json())
        return
    write(options, options.output, plan.to_json() + "\n")
    count = sum(len(c.instructions) for c in graph_computations(inline_calls(model)))
    of_all = f"{len(plan.decisions)} of {counted(count, 'instruction')}"
    say(f"{plan.policy} decides {of_all}: wrote {options.output}")


def _plan_of(options: argparse.Namespace) -> tuple[Module, Plan]:
    """The model and its plan under the given setting."""
    return api.plan_with_model(CastRequest(options.model, **casts(options)))


def _explain(options: argparse.Namespace) -> None:
    if options.model is None:
        _print_profile(options)
        return
    model, plan = _plan_of(options)
    planned = plan.apply(model)
    made, counts = count_casts(model, planned, plan, trips(options))
    found = lines(model, plan, options.filter, planned)
    if options.json:
        report = {
            "schema": "neuronsim.explanation/1",
            "policy": plan.policy,
            "instructions": {line.instruction.name: describe(line, made, plan) for line in found},
            "types": {line.instruction.name: line.given for line in found},
            "casts": [asdict(c) for c in made],
            **asdict(counts),
        }
        print(json.dumps(report, indent=1))
    else:
        print_explanation(found, made, counts, plan, output_console(), single=bool(options.filter))
        note = find_target(options.target or DEFAULT_TARGET).int8_note
        if note and any(d.reads_integers for d in plan.decisions.values()):
            print(f"\n{note}")


def _print_profile(options: argparse.Namespace) -> None:
    headers = ("field", "value", "rule", "evidence", "source")
    described = resolve(CompilerSetting(**setting(options))).profile.describe()
    print_table(output_console(), headers, [[str(f[name]) for name in headers] for f in described])


def _diff(options: argparse.Namespace) -> None:
    texts = [read_text(path, "plan", MAX_BYTES) for path in options.plans]
    if any(_is_run(text) for text in texts):
        found = compare_runs(*map(_document, options.plans, texts))
        options.status = 1 if found.differs else 0
        if options.json:
            print(found.to_json())
        else:
            print_tune_difference(found, output_console())
        return
    first, second = (load_plan(path) for path in options.plans)
    if first.fingerprint != second.fingerprint:
        raise InvalidArgument(
            f"{options.plans[0]} was made for {first.module!r} ({first.fingerprint}), "
            f"{options.plans[1]} for {second.module!r} ({second.fingerprint}): plans of one module can "
            "be compared"
        )
    inputs = ModelInputs(weights=options.weights)
    model = read_model(options.model, inputs) if options.model else None
    if model is not None:
        check_plan(first, model)
    differ = type_difference(first, second) or first.keep_output_type != second.keep_output_type
    options.status = 1 if differ else 0  # whether or not all of it is read
    print_difference(first, second, output_console(), model)


def _document(path: str, text: str) -> Any:
    try:
        return json_documents.parse(text)
    except InvalidArgument as error:
        raise InvalidData(f"{path} is no JSON: {error}") from error


def _is_run(text: str) -> bool:
    """Whether a document is what tune wrote; one that cannot be read is left to who reads plans."""
    try:
        found = json_documents.parse(text)
    except InvalidArgument:
        return False
    return isinstance(found, dict) and str(found.get("schema", "")).startswith("neuronsim.tune/")
