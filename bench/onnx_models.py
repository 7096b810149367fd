"""ONNX models against onnxruntime: magika at batch 8, in float32 and cast to bfloat16.

pip install ".[peers]" && pip install --no-deps magika==1.0.3
python -m bench.onnx_models [--threads 1|2] [--rounds N] [--json FILE]

Both take turns; a ratio is onnxruntime's best time in float32 over ours. A machine that is busy with
something else measures nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

import neuronsim
from neuronsim import api
from neuronsim.bench import SETTLE_SECONDS, alternate, timer
from neuronsim.bench.report import table_of
from neuronsim.bench.suite import terminal, write_figures
from neuronsim.setups import ModelInputs

SETTINGS: dict[str, dict[str, str]] = {
    "none": {"auto_cast": "none"},
    "matmult/bf16": {"auto_cast": "matmult", "auto_cast_type": "bf16"},
}
# Where VDPBF16PS beats the multiply-add, and elsewhere.
GOALS = {"none": (0.95, 0.95), "matmult/bf16": (1.5, 0.95)}
SHAPE = (8, 2048)


def measure(path: Path, threads: int, rounds: int) -> dict[str, Any]:
    """The best times of onnxruntime and of each setting, in seconds."""
    import onnxruntime

    neuronsim.set_num_threads(threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).integers(0, 257, SHAPE).astype(np.int32)
    begun = time.perf_counter()
    module = api.read_model(path, ModelInputs(input_shapes={"bytes": SHAPE}))
    converted = time.perf_counter() - begun
    programs = {name: api.compile(module, **s) for name, s in SETTINGS.items()}
    runs = [lambda: session.run(None, {"bytes": x})]
    runs += [lambda p=p: p(x) for p in programs.values()]
    best = alternate([timer(run) for run in runs], rounds, settle=SETTLE_SECONDS)
    names = ["onnxruntime", *programs]
    return {"threads": threads, "converting": converted, "seconds": dict(zip(names, best, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        raise SystemExit("there is no magika: pip install --no-deps magika==1.0.3")
    path = Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    pairs = neuronsim.bfloat16_products() == "pairs"
    found = [
        measure(path, n, options.rounds) for n in ((options.threads,) if options.threads else (1, 2))
    ]
    table = table_of(f"magika {SHAPE}", ("threads", "onnxruntime", "ours", "ratio", "goal"))
    for m in found:
        peer = m["seconds"]["onnxruntime"]
        for name in SETTINGS:
            ours = m["seconds"][name]
            goal = GOALS[name][0 if pairs else 1]
            figures = (f"{1e3 * peer:.1f} ms", f"{1e3 * ours:.1f} ms", f"{peer / ours:.2f}", f"{goal}")
            table.add_row(name, str(m["threads"]), *figures)
    console = terminal(100)
    console.print(table)
    console.print(f"converting took {1e3 * found[0]['converting']:.0f} ms")
    write_figures(options.json, {"magika": found})


if __name__ == "__main__":
    main()
