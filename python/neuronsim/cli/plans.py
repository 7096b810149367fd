"""`neuronsim calibrate`, `plan`, `explain` and `diff`: which casts, and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.table import Table

from neuronsim import api
from neuronsim.casting.decisions.checks import check_plan
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
from neuronsim.cli.output import check_writable, progress_bar, wide_console, write
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Module, graph_computations, inline_calls
from neuronsim.setups import CastRequest, CompilerSetting, ModelInputs, resolve


def declare_commands(declare: Declare) -> None:
    calibrate = declare(
        "calibrate", _calibrate, "Write what the values of each instruction are in float32, for rules."
    )
    add_model(calibrate)
    calibrate.add_argument("--data", required=True, help=".npz: inputs by name")
    calibrate.add_argument("--output", required=True, metavar="FILE", help="the JSON to write")

    plan = declare("plan", _plan, "Write what a setting casts, instruction by instruction, to a file.")
    add_model(plan)
    plan.add_argument("--output", metavar="FILE", help="the JSON to write; default: standard output")
    add_casts(plan)

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

    diff = declare("diff", _diff, "Print where two plans differ; exit status 1 if they do.")
    diff.add_argument("plans", nargs=2, metavar="PLAN", help="a plan in JSON")
    diff.add_argument("--model", help="the model of both: the table then has opcodes")
    diff.add_argument("--weights", metavar="FILE", help="of the model, where the plans had them")


def _calibrate(options: argparse.Namespace) -> None:
    check_writable(options.output)
    with progress_bar("float32") as progress:
        found = api.calibrate(
            options.model,
            options.data,
            progress=lambda done, total: progress("float32", done, total),
            **model_inputs(options),
        )
    write(options, options.output, found.to_json() + "\n")
    print(f"the values of {len(found.values)} instructions of {options.model}: wrote {options.output}")


def _plan(options: argparse.Namespace) -> None:
    check_writable(options.output)
    model, plan = _plan_of(options)
    if options.output is None:
        print(plan.to_json())
        return
    write(options, options.output, plan.to_json() + "\n")
    count = sum(len(c.instructions) for c in graph_computations(inline_calls(model)))
    print(
        f"{plan.policy} decides {len(plan.decisions)} of {count} instructions: wrote {options.output}"
    )


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
        print_explanation(found, made, counts, plan, wide_console(), single=bool(options.filter))


def _print_profile(options: argparse.Namespace) -> None:
    table = Table("field", "value", "rule", "evidence", "source")
    for f in resolve(CompilerSetting(**setting(options))).profile.describe():
        table.add_row(f["field"], str(f["value"]), f["rule"], f["evidence"], f["source"])
    wide_console().print(table)


def _diff(options: argparse.Namespace) -> None:
    first, second = (load_plan(path) for path in options.plans)
    if first.fingerprint != second.fingerprint:
        raise InvalidArgument(
            f"{options.plans[0]} was made for {first.module!r} ({first.fingerprint}), "
            f"{options.plans[1]} for {second.module!r} ({second.fingerprint}): plans of one module can "
            "be compared"
        )
    inputs = ModelInputs(weights=options.weights)
    model = api.read_model(options.model, inputs) if options.model else None
    if model is not None:
        check_plan(first, model)
    differ = type_difference(first, second) or first.keep_output_type != second.keep_output_type
    options.status = 1 if differ else 0  # whether or not all of it is read
    print_difference(first, second, wide_console(), model)
