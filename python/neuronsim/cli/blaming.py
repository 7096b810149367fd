"""`neuronsim blame`: which instructions move a model's outputs, and why."""

from __future__ import annotations

import argparse
import json

from neuronsim import diagnosis
from neuronsim.cli.arguments import FIGURES, Declare, add_casts, add_model, casts
from neuronsim.cli.output import PAGES, progress_bar, write, write_page
from neuronsim.tables import say
from neuronsim.tuning.blame.report import print_blame


def declare_commands(declare: Declare) -> None:
    blame = declare(
        "blame", _blame, "Name the operations that move the outputs under a setting: how much, and why."
    )
    add_model(blame)
    blame.add_argument("--data", required=True, help=".npz: inputs by name, optional labels")
    blame.add_argument("--max-causes", type=int, default=5, help="at most as many; default: 5")
    blame.add_argument(
        "--rewrite",
        action="store_true",
        help="also apply known rewrites of the source (two-pass variance, ...) and of quantizations "
        "(per-channel scales, clipping, equalisation), and measure them",
    )
    blame.add_argument(
        "--quantize", metavar="SCHEME", help="products read INT8, as in `tune`, calibrated on the data"
    )
    blame.writes("--json", FIGURES)
    blame.writes("--report", "write an HTML page of what was found", forms=PAGES)
    add_casts(blame)
    blame.tell(
        "examples",
        (
            "neuronsim blame model.onnx --data x.npz --auto-cast all --auto-cast-type fp16",
            "neuronsim blame model.onnx --data x.npz --policy torch-cpu/bfloat16 --report blame.html",
            "neuronsim blame model.onnx --data x.npz --quantize minmax --rewrite",
        ),
    )


def _blame(options: argparse.Namespace) -> None:
    with progress_bar("reading") as progress:
        result = diagnosis.blame(
            options.model,
            options.data,
            max_causes=options.max_causes,
            rewrite=options.rewrite,
            quantize=options.quantize,
            progress=progress,
            **casts(options),
        )
    if options.report is not None:
        write_page(options, [json.loads(result.to_json())], **casts(options))
    if options.json == "-":
        print(result.to_json())
        return
    if options.json is not None:
        write(options, options.json, result.to_json() + "\n")
    print_blame(result)
    if options.json is not None:
        say(f"\nall figures are in {options.json}")
    if options.report is not None:
        say(f"\nthe page is {options.report}")
