"""Whole networks against XLA, torch and onnxruntime: speed, compile time, memory, steps.

pip install ".[peers]" torch
python -m bench.networks [--only NETWORK]... [--threads 1|2] [--rounds N] [--json FILE]

Each number of threads has a process of its own, held to so many processors: XLA sizes its pool when it
starts. In it all contenders take turns with the same weights and input; a figure is the best of the
rounds, a ratio a peer's time over ours (above 1 neuronsim is faster). What each computes is compared
with XLA's float32 results first. torch runs in eager mode, its images channels-last; under autocast
its weights stay cast between the runs, and on a processor with AMX it takes tiles, whose order is not
M2's, unless ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is set. A machine that is busy with something else
measures nothing: `others` is how many processors other processes kept busy meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import neuronsim
from neuronsim.bench import SETTLE_SECONDS, alternate, timer
from neuronsim.bench.report import shown, table_of
from neuronsim.bench.suite import geometric_mean, left_out, load_average, terminal, write_figures
from neuronsim.errors import NeuronSimError

try:
    import jax
    import torch
    from bench.network_peers import in_onnxruntime, in_torch
    from tests.data.make_networks import Network, make_network, to_hlo
except ImportError as missing:
    raise SystemExit(
        f"the bench of networks compares with peers, and there is no {missing.name}: run it as a "
        'module from the repository\'s folder, after pip install ".[peers]" torch'
    ) from None

Run = Callable[..., Any]

NETWORKS = ("transformer", "resnet18", "lstm")
SETTINGS: dict[str, dict[str, str]] = {
    "none": {"auto_cast": "none"},
    "matmult/bf16": {"auto_cast": "matmult", "auto_cast_type": "bf16"},
    "all/bf16": {"auto_cast": "all", "auto_cast_type": "bf16"},
}
XLA, TORCH, ONNX, AUTOCAST = "XLA", "torch", "onnxruntime", "torch bfloat16"
# How far from XLA's float32 results a peer may be, relative to their Frobenius norm.
TOLERANCES = {
    TORCH: 1e-5,
    ONNX: 1e-5,
    AUTOCAST: 2e-2,
    "none": 1e-5,
    "matmult/bf16": 2e-2,
    "all/bf16": 5e-2,
}


@dataclass(frozen=True)
class Goal:
    """What the geometric mean over the networks of peer time over ours should reach."""

    setting: str
    peers: tuple[str, ...]
    least: float


GOALS = (
    Goal("none", (XLA, TORCH), 1.0),
    Goal("matmult/bf16", (XLA, TORCH), 1.7),
    Goal("all/bf16", (XLA, TORCH), 1.2),
    Goal("none", (ONNX,), 0.95),
    Goal("matmult/bf16", (ONNX,), 1.6),
    Goal("matmult/bf16", (AUTOCAST,), 1.0),
)


# ---- one process: one number of threads ----------------------------------------------------------


def measure_network(name: str, threads: int, rounds: int) -> dict[str, Any]:
    """The figures of one network: times by contender, compile times, memory, steps."""
    network = make_network(name)
    module = to_hlo(network)
    torch.set_num_threads(threads)
    lowered = jax.jit(network.callable).lower(*network.examples)
    executable = lowered.compile()
    held = [jax.device_put(x) for x in network.examples]
    wait: Run = jax.block_until_ready
    runs: dict[str, Run] = {
        XLA: lambda: wait(executable(*held)),
        TORCH: in_torch(network, autocast=False),
        AUTOCAST: in_torch(network, autocast=True),
        ONNX: in_onnxruntime(network, threads),
    }
    found: dict[str, Any] = {"network": name, "threads": threads, "left_out": {}, "memory": {}}
    for setting, choice in SETTINGS.items():
        try:
            program = neuronsim.compile(module, threads=threads, **choice)
        except NeuronSimError as error:
            found["left_out"][setting] = str(error)
            continue
        runs[setting] = lambda program=program: program(*network.inputs)
        found["memory"][setting] = dict(getattr(program, "memory", {}))
    found["differences"] = differences(runs, found["left_out"])
    settle = SETTLE_SECONDS if threads > 1 else 0
    before = busy_seconds()
    times = alternate([timer(run) for run in runs.values()], rounds, warm=True, settle=settle)
    everyone, own, passed = (b - a for a, b in zip(before, busy_seconds(), strict=True))
    found["others"] = max(everyone - own, 0.0) / passed
    found["seconds"] = dict(zip(runs, times, strict=True))
    found["compile_seconds"] = compile_seconds(network, module, found["memory"])
    memory: Any = executable.memory_analysis()
    found["xla_temporaries"] = memory.temp_size_in_bytes
    found["weights"] = sum(leaf.nbytes for leaf in jax.tree.leaves(network.parameters))
    return found


def busy_seconds() -> tuple[float, float, float]:
    """The processors' busy time since the machine started, this process's own, and the clock."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    mine = os.times()
    everyone = (user + nice + system) / os.sysconf("SC_CLK_TCK")
    return everyone, mine.user + mine.system, time.perf_counter()


def differences(runs: dict[str, Run], left_out: dict[str, str]) -> dict[str, float]:
    """How far each contender is from XLA's float32 results; raises ValueError for too far.

    A peer that this processor has no kernel for, as torch has none for an LSTM in bfloat16 without
    AVX-512, leaves the runs.
    """
    expected = arrays(runs[XLA]())
    found = {}
    for name, run in list(runs.items()):
        try:
            results = arrays(run())
        except RuntimeError as error:
            if name in SETTINGS:
                raise
            left_out[name] = f"{name}: {str(error).splitlines()[0]}"
            del runs[name]
            continue
        pairs = list(zip(results, expected, strict=True))
        found[name] = max(float(np.linalg.norm(a - e) / np.linalg.norm(e)) for a, e in pairs)
        if found[name] > TOLERANCES.get(name, 0.0):
            raise ValueError(f"{name} is {found[name]:.1e} away from XLA's results")
    return found


def arrays(results: Any) -> list[Any]:
    """The results of any contender as float32 arrays."""
    leaves = results if isinstance(results, tuple | list) else [results]
    return [np.asarray(r.float() if isinstance(r, torch.Tensor) else r, np.float32) for r in leaves]


def compile_seconds(network: Network, module: bytes, settings: Iterable[str]) -> dict[str, float]:
    """The best of three, from HLO: XLA's from a lowered function, ours from the serialized module."""
    best = dict.fromkeys((XLA, *settings), float("inf"))
    for _ in range(3):
        lowered = jax.jit(network.callable).lower(*network.examples)
        best[XLA] = min(best[XLA], timer(lowered.compile)(1))
        for setting in settings:
            compiling = partial(neuronsim.compile, module, **SETTINGS[setting])
            best[setting] = min(best[setting], timer(compiling)(1))
    return best


def measure_overhead(threads: int) -> dict[str, float]:
    """Seconds a call and an instruction of a transformer so small that arithmetic takes no time."""
    network = make_network("transformer", reduced=True)
    program = neuronsim.compile(to_hlo(network), auto_cast="none", threads=threads)
    live = [
        i
        for i in program.module.entry_computation.instructions
        if i.opcode not in ("parameter", "constant")
    ]
    (seconds,) = alternate([timer(lambda: program(*network.inputs))], 20, warm=True, settle=0)
    return {"call": seconds, "instructions": len(live), "instruction": seconds / len(live)}


def worker(names: list[str], threads: int, rounds: int, file: str) -> None:
    figures = {
        "networks": [measure_network(name, threads, rounds) for name in names],
        "overhead": measure_overhead(threads),
    }
    Path(file).write_text(json.dumps(figures))


# ---- all processes -------------------------------------------------------------------------------


def in_process(names: list[str], threads: int, rounds: int) -> dict[str, Any]:
    """The figures of a process that is held to as many processors as it has threads."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[variable] = str(threads)
    available = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/figures.json"
        command = [sys.executable, "-m", "bench.networks", "--worker", file, "--threads", str(threads)]
        command += ["--rounds", str(rounds), *(word for name in names for word in ("--only", name))]
        os.sched_setaffinity(0, sorted(available)[-threads:])
        try:
            subprocess.run(command, env=environment, check=True)
        finally:
            os.sched_setaffinity(0, available)
        figures: dict[str, Any] = json.loads(Path(file).read_text())
    return figures


def ratio(figures: Mapping[str, Any], goal: Goal) -> float | None:
    """The time of the best of the goal's peers over ours; None without ours or all of those."""
    seconds = figures["seconds"]
    peers = [seconds[peer] for peer in goal.peers if peer in seconds]
    return float(min(peers) / seconds[goal.setting]) if peers and goal.setting in seconds else None


def summaries(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each number of threads and goal the geometric mean over the networks, if ours ran all of
    them; those that no peer has a kernel for are not in it.
    """
    for threads in sorted({f["threads"] for f in found}):
        for goal in GOALS:
            here = [f for f in found if f["threads"] == threads]
            ratios = {f["network"]: ratio(f, goal) for f in here}
            known = [r for r in ratios.values() if r is not None]
            whole = all(goal.setting in f["seconds"] for f in here)
            yield {
                "threads": threads,
                "setting": goal.setting,
                "peers": list(goal.peers),
                "ratios": ratios,
                "mean": geometric_mean(known) if known and whole else None,
                "goal": goal.least,
            }


def mebibytes(*sizes: int | None) -> list[str]:
    return [shown(size, 2.0**-20) for size in sizes]


def print_figures(console: Console, processes: list[dict[str, Any]]) -> None:
    found = [f for p in processes for f in p["networks"]]
    contenders = [XLA, TORCH, ONNX, AUTOCAST, *SETTINGS]
    times = table_of("ms", ["threads", "others", *contenders])
    for f in found:
        seconds = [shown(f["seconds"].get(c), 1e3) for c in contenders]
        times.add_row(f["network"], str(f["threads"]), shown(f["others"]), *seconds)
    console.print(times)
    names = list(dict.fromkeys(f["network"] for f in found))
    ratios = table_of("ratio", ["threads", *names, "mean", "goal"])
    for row in summaries(found):
        label = f"{row['setting']} against {' or '.join(row['peers'])}"
        each = [shown(row["ratios"][n]) for n in names]
        ratios.add_row(label, str(row["threads"]), *each, shown(row["mean"]), shown(row["goal"]))
    console.print(ratios)
    compiling = table_of("compile, ms", ["threads", XLA, *SETTINGS])
    for f in found:
        each = [shown(f["compile_seconds"].get(c), 1e3, 0) for c in (XLA, *SETTINGS)]
        compiling.add_row(f["network"], str(f["threads"]), *each)
    console.print(compiling)
    memory = table_of("memory, MiB", ["threads", XLA, *SETTINGS])
    for f in found:
        label, count = f["network"], str(f["threads"])
        planned = [f["memory"].get(s, {}).get("temporaries") for s in SETTINGS]
        memory.add_row(f"{label} temporaries", count, *mebibytes(f["xla_temporaries"], *planned))
        kept = [f["memory"].get(s, {}) for s in SETTINGS]
        sums = [k["constants"] + k["packed"] if k else None for k in kept]
        memory.add_row(f"{label} weights", count, *mebibytes(f["weights"], *sums))
    console.print(memory)
    for p in processes:
        threads, o = p["networks"][0]["threads"], p["overhead"]
        console.print(
            f"{threads} threads: {1e6 * o['instruction']:.2f} us an instruction in a network of "
            f"{o['instructions']} instructions on small arrays"
        )
    for network, why in dict.fromkeys((f["network"], w) for f in found for w in f["left_out"].values()):
        left_out(console, network, why)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=NETWORKS, metavar="NETWORK")
    parser.add_argument("--threads", type=int, choices=(1, 2), help="default: both")
    parser.add_argument("--rounds", type=int, default=15, help="default: 15")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.only or list(NETWORKS)
    if options.worker:
        worker(names, options.threads, options.rounds, options.worker)
        return
    console = terminal(160)
    load = load_average(console)
    began = time.time()
    threads = (1, 2) if options.threads is None else (options.threads,)
    processes = [in_process(names, n, options.rounds) for n in threads]
    print_figures(console, processes)
    figures = {
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began)),
        "load_average": load,
        "summary": list(summaries([f for p in processes for f in p["networks"]])),
        "processes": processes,
    }
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
