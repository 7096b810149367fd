"""Whole QLinearMatMul and QLinearConv models against onnxruntime's, requantizing included.

pip install ".[peers]"
python -m bench.quantized [--only GROUP]... [--threads 1|2] [--isa ISA] [--repeats N] [--json FILE]

u8 by s8 weights that are known, so that both sides pack them once, into u8, with zero points and a
scale for each column or output channel. The shapes are those of bench/matmul.py. Both take turns; a
ratio is onnxruntime's best time over ours, on one thread in processor time. `of bfloat16` is our own
program of the same product in bfloat16. A machine that is busy with something else measures little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bench.matmul import NETWORKS, SHAPES

import neuronsim
from neuronsim import _core, processor
from neuronsim.bench import SETTLE_SECONDS, Layer, alternate, timer
from neuronsim.bench.onnx_convolution import bound_run
from neuronsim.bench.report import table_of
from neuronsim.bench.suite import (
    geometric_mean,
    load_average,
    terminal,
    write_figures,
)
from neuronsim.errors import NeuronSimError

try:
    import onnx
    import onnxruntime  # noqa: F401 (bound_run imports it)
except ImportError as missing:
    raise SystemExit(
        f'there is no {missing.name}: this bench compares with onnxruntime, pip install ".[peers]"'
    ) from None

GROUPS: dict[str, Sequence[Any]] = {
    "matmul": SHAPES,
    "resnet50": NETWORKS["resnet50"],
    "mobilenetv2": NETWORKS["mobilenetv2"],
}
# The geometric mean where tiles or VPDPBUSD multiply, and elsewhere.
GOALS = (0.9, 0.45)
BFLOAT16_GOAL = 1.5
Run = Callable[[], Any]


def model_of(group: str, entry: Any) -> tuple[Any, Any, Any]:
    """The model, its input and the weights."""
    rng = np.random.default_rng(24)
    layer: Layer | None = None
    if group == "matmul":
        *batch, rows, depth, columns = entry
        dims, weight_dims, channels = (*batch, rows, depth), (*batch, depth, columns), columns
    else:
        dims, layer = entry
        weight_dims = layer.weight_shape(dims)
        channels, depth = weight_dims[0], int(np.prod(weight_dims[1:]))
    x = rng.integers(0, 256, dims).astype(np.uint8)
    w = rng.integers(-127, 128, weight_dims).astype(np.int8)
    # onnxruntime takes scales by column of matrices alone.
    scales = 1 if len(weight_dims) > 2 and layer is None else channels
    w_scale = (0.005 + 0.01 * rng.random(scales)).astype(np.float32)
    given = {
        "x_scale": np.float32(0.02), "x_zero": np.uint8(117), "w": w, "w_scale": w_scale,
        "w_zero": np.zeros(scales, np.int8), "scale": np.float32(0.02 * depth**0.5),
        "zero": np.uint8(121),
    }  # fmt: skip
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "scale", "zero"]
    if scales == 1:
        given |= {"w_scale": w_scale[0], "w_zero": np.int8(0)}
    attributes: dict[str, Any] = {}
    if layer is not None:
        given["bias"] = rng.integers(-9999, 10_000, channels).astype(np.int32)
        names.append("bias")
        rank = len(layer.kernel)
        attributes = {
            "kernel_shape": list(layer.kernel), "strides": [layer.stride] * rank,
            "pads": [layer.padding] * (2 * rank), "group": layer.groups,
        }  # fmt: skip
    helper = onnx.helper
    kind = onnx.TensorProto.UINT8
    node = helper.make_node(
        "QLinearMatMul" if layer is None else "QLinearConv", names, ["y"], **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, dims)],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in given.items()],
    )
    imports = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), x, w


def in_bfloat16(x: Any, w: Any) -> Run:
    """Our own product of as many numbers in bfloat16, its weights packed once too."""
    weights = neuronsim.asarray(w.astype(np.float32), dtype="bfloat16")
    values = neuronsim.asarray(x.astype(np.float32), dtype="bfloat16")
    program = neuronsim.compile(lambda a: neuronsim.matmul(a, weights), values, auto_cast="none")
    return lambda: program(values)


def measure(group: str, entry: Any, threads: int, repeats: int) -> dict[str, Any]:
    model, x, w = model_of(group, entry)
    program = neuronsim.compile(model, auto_cast="none", threads=threads)
    held = neuronsim.asarray(x)
    runs: list[Run] = [lambda: program(held), bound_run(model, x, threads)]
    differing = float((np.asarray(runs[0]()) != runs[1]()[0].copy_outputs_to_cpu()[0]).mean())
    if group == "matmul":
        runs.append(in_bfloat16(x, w))
    settle = SETTLE_SECONDS if threads > 1 else 0
    clock = time.process_time if threads == 1 else time.perf_counter
    best = alternate([timer(r, clock) for r in runs], repeats, warm=True, settle=settle)
    shape = entry if group == "matmul" else (*entry[0], str(entry[1]))
    return {
        "group": group, "shape": "x".join(map(str, shape)), "threads": threads, "seconds": best[0],
        "peer_seconds": best[1], "ratio": best[1] / best[0], "differing": differing,
        "of_bfloat16": best[2] / best[0] if group == "matmul" else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=GROUPS, metavar="GROUP")
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--isa", help="default: the widest of this processor")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    console = terminal(120)
    load_average(console)
    processor.set_isa(options.isa or processor.available_isas()[-1])
    table = table_of("model", ("threads", "time", "onnxruntime", "ratio", "of bfloat16", "differing"))
    found = []
    for group in options.only or GROUPS:
        for threads in (1, 2) if options.threads is None else (options.threads,):
            processor.set_num_threads(threads)
            some = []
            for entry in GROUPS[group]:
                try:
                    some.append(measure(group, entry, threads, options.repeats))
                except NeuronSimError as error:
                    console.print(f"left out: {group} {entry}: {error}", markup=False)
            for m in some:
                times = (f"{1e3 * m[n]:.3f} ms" for n in ("seconds", "peer_seconds"))
                own = "" if m["of_bfloat16"] is None else f"{m['of_bfloat16']:.2f}"
                table.add_row(
                    f"{group} {m['shape']}", str(threads), *times, f"{m['ratio']:.2f}", own,
                    f"{m['differing']:.1e}",
                )  # fmt: skip
            mean = geometric_mean([m["ratio"] for m in some])
            goal = GOALS[1 if _core.byte_products() == "widened" else 0]
            table.add_row(f"{group}: mean", str(threads), "", f"goal {goal}", f"{mean:.2f}", "", "")
            found += some
    console.print(table)
    write_figures(options.json, found)


if __name__ == "__main__":
    main()
