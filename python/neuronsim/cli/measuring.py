"""`neuronsim tune` and `bench`: what is measured."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from neuronsim import api
from neuronsim.bench import PEERS, kernel_names, measure
from neuronsim.bench.report import print_measurements
from neuronsim.cli.arguments import (
    Declare,
    add_model,
    add_release,
    add_threads,
    add_trips,
    model_inputs,
    trips,
    version,
)
from neuronsim.cli.output import check_writable, progress_bar, write
from neuronsim.errors import InvalidArgument
from neuronsim.setups import DEFAULT_TARGET
from neuronsim.tables import output_console
from neuronsim.tuning.ladder import METRICS
from neuronsim.tuning.report import print_ladder


def declare_tune(declare: Declare) -> None:
    tune = declare("tune", _tune, "Measure every auto-cast setting on data and recommend one.")
    add_model(tune)
    tune.add_argument("--data", required=True, help=".npz: inputs by name, optional labels")
    tune.add_argument("--metric", choices=METRICS, help="default: top1 with labels")
    tune.add_argument(
        "--tolerance", type=float, default=0.01, help="default: 0.01, for top1 one point of accuracy"
    )
    add_trips(tune)
    tune.add_argument("--json", metavar="FILE", help="write all figures; - for standard output")
    add_release(tune)
    add_threads(tune)


def _tune(options: argparse.Namespace) -> None:
    check_writable(options.json)
    with progress_bar("reading") as progress:
        result = api.tune(
            options.model,
            options.data,
            metric=options.metric,
            tolerance=options.tolerance,
            sdk=version(options),
            target=DEFAULT_TARGET if options.target is None else options.target,
            threads=options.threads,
            trips=trips(options),
            progress=progress,
            **model_inputs(options),
        )
    if options.json == "-":
        print(result.to_json())
        return
    if options.json is not None:
        write(options, options.json, result.to_json() + "\n")
    print_ladder(result, Console())
    if options.json is not None:
        print(f"\nall figures are in {options.json}")


def declare_bench(declare: Declare) -> None:
    bench = declare("bench", _bench, "Time a kernel, alone or against a peer in the same run.")
    bench.add_argument("--op", required=True, help="a kernel such as add, convert, sum, matmul")
    bench.add_argument(
        "--shape", default="4096x4096", help="lengths; matmul: [BATCHx]ROWSxDEPTHxCOLUMNS"
    )
    bench.add_argument(
        "--dtype",
        default="float32",
        help="a type; convert: SOURCE:TARGET; products that cast: float32:TYPE",
    )
    bench.add_argument("--layer", help="of a convolution, such as 64k7x7s2p3")
    bench.add_argument("--axis", type=int, help="of a reduction; default: all axes")
    bench.add_argument("--isa", help="default: the widest of this processor")
    bench.add_argument("--threads", type=int, default=1, help="default: 1")
    bench.add_argument("--peer", help=", ".join(PEERS))
    bench.add_argument("--touched", action="store_true", help="results to memory written before")
    bench.add_argument("--json", action="store_true", help="print all figures as JSON")
    bench.tell(
        "examples",
        (
            "neuronsim bench --op add --dtype bfloat16 --peer numpy",
            "neuronsim bench --op matmul --shape 512x512x512 --threads 2",
        ),
    )
    bench.tell_names("kernels (--op)", kernel_names())
    bench.tell_names("peers (--peer)", PEERS)


def _bench(options: argparse.Namespace) -> None:
    parts = options.shape.lower().split("x")
    if not all(p.isdecimal() for p in parts):
        raise InvalidArgument(f"--shape is lengths such as 4096x1024, not {options.shape!r}")
    result = measure(
        options.op,
        tuple(int(p) for p in parts),
        options.dtype,
        axis=options.axis,
        layer=options.layer,
        threads=options.threads,
        isa=options.isa,
        peer=options.peer,
        touched=options.touched,
    )
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        print_measurements([result], output_console())
