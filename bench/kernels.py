"""The kernel suite: every ratio of one run against the peers that are installed.

python bench/kernels.py [--isa ISA]... [--threads N] [--touched] [--only OP] [--json FILE]
"""

from __future__ import annotations

from neuronsim import processor
from neuronsim.bench import Measurement
from neuronsim.bench.report import print_measurements
from neuronsim.bench.suite import arguments, measured, terminal, write_figures

ROWS = (4096, 4096)
NARROW = ("bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fn")
FLOAT32 = ("numpy", "torch")
BFLOAT16 = ("ml_dtypes", "torch")
CASES: tuple[tuple[str, tuple[int, ...], str, int | None, tuple[str, ...]], ...] = (
    *(
        ("convert", ROWS, pair, None, ("numpy" if t == "float16" else "ml_dtypes", "torch"))
        for t in NARROW
        for pair in (f"float32:{t}", f"{t}:float32")
    ),
    *((op, ROWS, "float32", None, FLOAT32) for op in ("add", "multiply", "maximum")),
    *((op, ROWS, "bfloat16", None, BFLOAT16) for op in ("add", "multiply", "maximum")),
    ("sum", ROWS, "float32", 1, FLOAT32),
    ("sum", ROWS, "float32", 0, FLOAT32),
    ("sum", (1 << 24,), "float32", None, FLOAT32),
    ("sum", (1 << 24,), "bfloat16", None, BFLOAT16),
    ("chain", ROWS, "bfloat16", None, ("op_by_op", "torch")),
    ("chain", ROWS, "float32", None, ("op_by_op", *FLOAT32)),
    ("add", (16,), "float32", None, FLOAT32),
    ("exp", ROWS, "float32", None, FLOAT32),
    ("tanh", ROWS, "float32", None, FLOAT32),
    ("rsqrt", ROWS, "float32", None, FLOAT32),
    ("matmul", (1024, 1024, 1024), "float32", None, FLOAT32),
    ("matmul", (1024, 1024, 1024), "bfloat16", None, ("torch",)),
    ("matmul", (64, 512, 384), "float32", None, FLOAT32),
)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--isa", action="append", help="default: the widest of this processor")
    options = parser.parse_args()
    console = terminal(130)
    found: list[Measurement] = []
    for isa in options.isa or [processor.available_isas()[-1]]:
        for op, shape, dtype, axis, peers in CASES:
            if options.only not in (None, op):
                continue
            for peer in peers:
                more = {"threads": options.threads, "isa": isa, "touched": options.touched}
                found += measured(console, op, shape, dtype, peer=peer, axis=axis, **more)
    print_measurements(found, console)
    write_figures(options.json, [m.to_dict() for m in found])


if __name__ == "__main__":
    main()
