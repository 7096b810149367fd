"""The functions of rule E3: every ratio of one run against the peers that are installed, and the
geometric means by type and peer.

python bench/functions.py [--isa ISA] [--threads N] [--touched] [--only OP] [--all] [--json FILE]
"""

from __future__ import annotations

from collections import defaultdict

from neuronsim import ops, processor
from neuronsim.bench import Measurement
from neuronsim.bench.report import print_measurements
from neuronsim.bench.suite import arguments, geometric_mean, measured, terminal, write_figures

SHAPE = (1 << 24,)
FUNCTIONS = (
    *("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "rsqrt", "sigmoid", "silu"),
    *("gelu", "softplus"),
)
PEERS = {"float32": ("torch",), "bfloat16": ("torch", "ml_dtypes"), "float16": ("torch", "numpy")}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--isa", help="default: the widest of this processor")
    parser.add_argument("--all", action="store_true", help="every function, not only those of the goal")
    options = parser.parse_args()
    console = terminal(130)
    isa = options.isa or processor.available_isas()[-1]
    more = {"threads": options.threads, "isa": isa, "touched": options.touched}
    names = sorted(ops.FUNCTIONS_OF_FLOATS) if options.all else FUNCTIONS
    found: list[Measurement] = []
    for dtype, peers in PEERS.items():
        for peer in peers:
            for name in names:
                if options.only in (None, name):
                    found += measured(console, name, SHAPE, dtype, peer=peer, **more)
    print_measurements(found, console)
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for m in found:
        if m.ratio is not None and m.peer is not None:
            ratios[m.dtype, m.peer].append(m.ratio)
    for (dtype, peer), values in ratios.items():
        mean = geometric_mean(values)
        console.print(f"{dtype} / {peer}: geometric mean {mean:.2f}, least {min(values):.2f}")
    write_figures(options.json, [m.to_dict() for m in found])


if __name__ == "__main__":
    main()
