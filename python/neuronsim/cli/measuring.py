"""`neuronsim bench`: what kernels take."""

from __future__ import annotations

import argparse
import json

from neuronsim.bench import PEERS, kernel_names, measure
from neuronsim.bench.report import print_measurements
from neuronsim.cli.arguments import Declare
from neuronsim.errors import InvalidArgument
from neuronsim.tables import output_console


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
