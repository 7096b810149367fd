"""The suite of the matrix product and of convolution: plain eager calls, packing included, and bound
calls where the weights are packed.

pip install ".[peers]" torch
python bench/matmul.py [--only GROUP]... [--threads 1|2] [--repeats N] [--isa ISA] [--json FILE]

Ours and the peer's runs alternate, and every figure is a ratio of one run: GFLOP/s over the peer's, in
the group one-row of bytes a second over those of a pure read, in scaling of one thread's time over that
of two. NumPy's OpenBLAS runs in a process of its own, whatever OPENBLAS_CORETYPE says here; the table
names the processor that it was made for. The fraction of the peak is that of the core's multiply-adds
or, for bfloat16 and float8 on x86-64-v4-bf16, of VDPBF16PS. On a processor with AMX torch multiplies
bfloat16 in tiles, whose order is not M2's (docs/numerics.md); ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 holds
it to vectors. The group memory counts what one cold run takes beside its operands and its result. A
machine that is busy with something else measures nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from neuronsim import processor
from neuronsim.bench import Layer, Measurement, MemoryUse, measure_memory
from neuronsim.bench.report import shown, table_of
from neuronsim.bench.suite import (
    geometric_mean,
    left_out,
    load_average,
    measured,
    terminal,
    write_figures,
)
from neuronsim.errors import NeuronSimError


@dataclass(frozen=True)
class Entry:
    """One line of the suite; `threads` are the numbers of threads that it makes sense with."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    peer: str
    layer: Layer | None = None
    isa: str | None = None
    threads: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Target:
    """What a group should reach: the geometric mean of its ratios and the least of them."""

    mean: float | None = None
    least: float | None = None


SQUARES = tuple((n, n, n) for n in (256, 512, 1024, 2048))
TRANSFORMER = ((512, 384, 1536), (512, 1536, 384), (2048, 768, 768), (96, 64, 64, 32))
SHAPES = SQUARES + TRANSFORMER
LARGE = SQUARES[2:]
ROW = (1, 4096, 4096)
POSITIONS = (1, 256, 2048), Layer(512, (5,), padding=2)


def products(
    dtype: str, peer: str, shapes: Sequence[tuple[int, ...]], **more: Any
) -> tuple[Entry, ...]:
    return tuple(Entry("matmul", shape, dtype, peer, **more) for shape in shapes)


def convolutions(dtype: str, layers: Sequence[tuple[tuple[int, ...], Layer]]) -> tuple[Entry, ...]:
    return tuple(Entry("convolution", shape, dtype, "onnxruntime", layer) for shape, layer in layers)


def square(features: int, kernel: int, stride: int = 1, groups: int = 1) -> Layer:
    """A layer of an image that keeps its size but for the stride."""
    return Layer(features, (kernel, kernel), stride, kernel // 2, groups=groups)


def resnet50() -> tuple[tuple[tuple[int, ...], Layer], ...]:
    """The distinct layers of ResNet-50 at 224 x 224, with the stride in the 3 x 3 kernels."""
    found = [((1, 3, 224, 224), square(64, 7, 2))]
    channels, size = 64, 56
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            found.append(((1, channels, size, size), square(width, 1)))
            if block == 0:
                found.append(((1, channels, size, size), square(4 * width, 1, stride)))
            found.append(((1, width, size, size), square(width, 3, stride)))
            channels, size = 4 * width, size // stride
            found.append(((1, width, size, size), square(channels, 1)))
    return tuple(dict.fromkeys(found))


def mobilenet_v2() -> tuple[tuple[tuple[int, ...], Layer], ...]:
    """The distinct layers of MobileNetV2 at 224 x 224: expansion, depthwise, projection."""
    found = [((1, 3, 224, 224), square(32, 3, 2))]
    channels, size = 32, 112
    blocks = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for factor, features, repeats, first_stride in blocks:
        for block in range(repeats):
            stride, wide = first_stride if block == 0 else 1, factor * channels
            if factor > 1:
                found.append(((1, channels, size, size), square(wide, 1)))
            found.append(((1, wide, size, size), square(wide, 3, stride, wide)))
            size //= stride
            found.append(((1, wide, size, size), square(features, 1)))
            channels = features
    found.append(((1, channels, size, size), square(1280, 1)))
    return tuple(dict.fromkeys(found))


def packed(
    layers: Sequence[tuple[tuple[int, ...], Layer]],
) -> tuple[tuple[tuple[int, ...], Layer], ...]:
    """The same layers with weights that were packed before, as the peer keeps them."""
    return tuple((shape, replace(layer, packed=True)) for shape, layer in layers)


CAST = "float32:bfloat16"
NETWORKS = {"resnet50": resnet50(), "mobilenetv2": mobilenet_v2(), "positions": (POSITIONS,)}
GROUPS: dict[str, tuple[Entry, ...]] = {
    "bfloat16": products("bfloat16", "torch", SHAPES),
    "float32": products("float32", "sgemm", SHAPES),
    "tfloat32": products("tfloat32", "sgemm", SHAPES),
    "float16": products("float16", "sgemm", SHAPES),
    "float16-torch": products("float16", "torch", SQUARES[2:3]),
    "float8_e4m3": products("float8_e4m3", "bfloat16", SHAPES),
    "float8_e5m2": products("float8_e5m2", "bfloat16", SHAPES),
    "auto-cast": products(CAST, "sgemm", LARGE),
    "one-row": products("float32", "read", (ROW,)) + products("bfloat16", "read", (ROW,)),
    "avx2": products("float32", "sgemm_haswell", SHAPES, isa="x86-64-v3"),
    **{name: convolutions("float32", layers) for name, layers in NETWORKS.items()},
    **{f"{name}-auto-cast": convolutions(CAST, layers) for name, layers in NETWORKS.items()},
    **{f"{name}-packed": convolutions("float32", packed(layers)) for name, layers in NETWORKS.items()},
    **{
        f"{name}-auto-cast-packed": convolutions(CAST, packed(layers))
        for name, layers in NETWORKS.items()
    },
    "scaling": (
        *products("float32", "one_thread", LARGE, threads=(2,)),
        *products("bfloat16", "one_thread", LARGE, threads=(2,)),
    ),
    "small": products("float32", "numpy", ((16, 16, 16),), threads=(1,)),
}
MEMORY: tuple[tuple[str, tuple[int, ...], str, Layer | None], ...] = (
    *(("matmul", SQUARES[3], t, None) for t in ("float32", "bfloat16", CAST)),
    *(("matmul", (64, 65536, 64), t, None) for t in ("float32", "bfloat16", CAST)),
    *(("convolution", (8, 64, 224, 224), t, square(64, 3)) for t in ("float32", CAST)),
)
# The targets of the issue by group: a group that is not here has none.
TARGETS: dict[str, Target] = {
    **dict.fromkeys(("bfloat16", "float32", "tfloat32", "float16"), Target(1.0, 0.9)),
    "float16-torch": Target(50.0),
    **dict.fromkeys(("float8_e4m3", "float8_e5m2"), Target(0.9)),
    "auto-cast": Target(1.5, 1.5),
    "one-row": Target(0.9, 0.9),
    "avx2": Target(0.9),
    **dict.fromkeys((f"{n}{p}" for n in NETWORKS for p in ("", "-packed")), Target(0.9)),
    **dict.fromkeys((f"{n}-auto-cast{p}" for n in NETWORKS for p in ("", "-packed")), Target(1.6)),
    "scaling": Target(least=1.8),
}


def duration(seconds: float) -> str:
    unit, factor = next(
        u for u in (("s", 1), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)) if seconds * u[1] >= 1
    )
    return f"{seconds * factor:.1f} {unit}"


def kernel_table(found: Sequence[Measurement]) -> Table:
    columns = ("isa", "threads", "time", "GB/s", "GFLOP/s", "of peak", "peer", "its GFLOP/s", "ratio")
    table = table_of("kernel", columns)
    for m in found:
        shape, layer = "x".join(map(str, m.shape)), f" {m.layer}" if m.layer else ""
        detail = f" {m.peer_detail.split()[-1]}" if m.peer_detail else ""
        computes = m.peer_seconds is not None and m.peer != "read"
        table.add_row(
            f"{m.dtype} {shape}{layer}",
            f"{m.isa}, {m.bfloat16_products}" if m.bfloat16_products else m.isa,
            str(m.threads),
            duration(m.seconds),
            f"{m.gb_per_s:.1f}",
            f"{m.gflop_per_s:.1f}",
            f"{m.of_peak:.2f}",
            f"{m.peer}{detail}",
            f"{m.flops / m.peer_seconds / 1e9:.1f}" if computes else "",
            f"{m.ratio:.2f}",
        )
    return table


def memory_table(found: Sequence[MemoryUse]) -> Table:
    table = table_of("memory beside operands and result", ("isa", "threads", "MiB", "result MiB"))
    for m in found:
        kernel = f"{m.op} {m.dtype} {'x'.join(map(str, m.shape))}" + (f" {m.layer}" if m.layer else "")
        table.add_row(kernel, m.isa, str(m.threads), f"{m.mib:.1f}", f"{m.result / 2**20:.1f}")
    return table


def summaries(found: dict[str, list[Measurement]]) -> Iterator[dict[str, Any]]:
    """For each group and number of threads the geometric mean, the least ratio and the target."""
    for group, members in found.items():
        for threads in sorted({m.threads for m in members}):
            ratios = {m: m.ratio for m in members if m.threads == threads and m.ratio is not None}
            least = min(ratios, key=lambda m: ratios[m])
            target = TARGETS.get(group, Target())
            yield {
                "group": group,
                "threads": threads,
                "kernels": len(ratios),
                "mean": geometric_mean(ratios.values()),
                "target_mean": target.mean,
                "least": ratios[least],
                "target_least": target.least,
                "least_at": f"{'x'.join(map(str, least.shape))} {least.layer or ''}".strip(),
            }


def summary_table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("threads", "kernels", "mean", "target", "least", "target", "least at")
    table = table_of("group", columns)
    for row in rows:
        figures = [shown(row[name]) for name in ("mean", "target_mean", "least", "target_least")]
        table.add_row(row["group"], str(row["threads"]), str(row["kernels"]), *figures, row["least_at"])
    return table


def measured_group(
    group: str, threads: Sequence[int], isa: str, repeats: int, console: Console
) -> list[Measurement]:
    """What one group gives, printed."""
    found: list[Measurement] = []
    for e in GROUPS[group]:
        for n in (n for n in e.threads if n in threads):
            more = {"layer": e.layer, "threads": n, "isa": e.isa or isa, "repeats": repeats}
            found += measured(console, e.op, e.shape, e.dtype, peer=e.peer, **more)
    if found:
        console.print(f"{group}: {GROUPS[group][0].op} against {found[0].peer}")
        console.print(kernel_table(found))
    return found


def measured_memory(threads: Sequence[int], isa: str, console: Console) -> list[MemoryUse]:
    """What the kernels of MEMORY take, printed."""
    found: list[MemoryUse] = []
    for op, shape, dtype, layer in MEMORY:
        word = str(layer) if layer else None
        for n in threads:
            try:
                found.append(measure_memory(op, shape, dtype, layer=word, threads=n, isa=isa))
            except NeuronSimError as error:
                left_out(console, f"memory of {op} {dtype} {shape}", error)
    if found:
        console.print(memory_table(found))
    return found


def main() -> None:
    groups = (*GROUPS, "memory")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=groups, metavar="GROUP", help=", ".join(groups)
    )
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--repeats", type=int, default=7, help="default: 7")
    parser.add_argument("--isa", help="default: the widest of this processor; avx2 has its own")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    console = terminal(160)
    isa = options.isa or processor.available_isas()[-1]
    threads = (1, 2) if options.threads is None else (options.threads,)
    chosen = options.only or groups
    load = load_average(console)
    by_group = {
        g: measured_group(g, threads, isa, options.repeats, console) for g in GROUPS if g in chosen
    }
    found = {group: measurements for group, measurements in by_group.items() if measurements}
    memory = measured_memory(threads, isa, console) if "memory" in chosen else []
    rows = list(summaries(found))
    if rows:
        console.print(summary_table(rows))
    figures = {
        "load_average": load,
        "summary": rows,
        "measurements": [{"group": g, **m.to_dict()} for g, ms in found.items() for m in ms],
        "memory": [m.to_dict() for m in memory],
    }
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
