"""`neuronsim cost`: what settings take on the device, estimated."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.console import Console

from neuronsim import reports
from neuronsim.cli.arguments import (
    FIGURES,
    MODELS,
    Declare,
    add_casts,
    add_model,
    add_trips,
    casts,
    model_inputs,
    trips,
)
from neuronsim.cli.output import write
from neuronsim.errors import InvalidArgument
from neuronsim.setups import DEFAULT_TARGET
from neuronsim.tables import output_console, say
from neuronsim.tuning.assumptions import ASSUMPTIONS
from neuronsim.tuning.cost_order import disagreements
from neuronsim.tuning.cost_report import ladder_json, print_assumptions, print_cost, print_cost_ladder


def declare_cost(declare: Declare) -> None:
    cost = declare(
        "cost",
        _cost,
        "Estimate how long a model takes on the device: under the settings of AWS's table, or "
        "instruction by instruction under one that is given.",
    )
    add_model(cost, f"{MODELS}; without it the assumptions are printed", nargs="?")
    add_trips(cost)
    cost.add_argument("--assumptions", action="store_true", help="print what is assumed, with sources")
    cost.writes("--json", FIGURES)
    add_casts(cost)
    cost.tell(
        "examples",
        (
            "neuronsim cost model.onnx",
            "neuronsim cost model.onnx --auto-cast all --json cost.json",
            "neuronsim cost --assumptions",
        ),
    )


def _cost(options: argparse.Namespace) -> None:
    console = output_console()
    if options.model is None:
        _print_assumptions(options, console)
        return
    setting = casts(options)
    if options.flags or options.compiler_options or options.policy or options.plan:
        report = reports.cost(options.model, trips=trips(options), **setting)
        text = report.to_json()
    else:
        settings = reports.cost_ladder(
            options.model,
            sdk=setting["sdk"],
            target=DEFAULT_TARGET if options.target is None else options.target,
            trips=trips(options),
            **model_inputs(options),
        )
        found = disagreements([(r.setting, r.estimate) for r in settings])
        report, text = None, ladder_json(settings, found)
    if options.json == "-":
        print(text)
        return
    if options.json is not None:
        write(options, options.json, text + "\n")
    if report is not None:
        print_cost(report, console)
    else:
        print_cost_ladder(settings, found, console)
    if options.assumptions:
        print_assumptions(console)
    else:
        say("`neuronsim cost --assumptions` says what this rests on")


def _print_assumptions(options: argparse.Namespace, console: Console) -> None:
    if options.json == "-":
        print(json.dumps([asdict(a) for a in ASSUMPTIONS], indent=1))
    elif options.json is not None:
        raise InvalidArgument("cost --json FILE writes a model's figures: name the model")
    else:
        print_assumptions(console)
