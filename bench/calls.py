"""What a call costs beside NumPy's: 30 common functions of 16 elements, and the memory of an Array; or
what steps of compiled programs cost, or calls of kernels that are bound to their arrays.

python -m bench.calls [--dtype DTYPE] [--rounds N] [--json FILE]
python -m bench.calls --steps [--rounds N] [--json FILE]
python -m bench.calls --bound [--rounds N] [--json FILE]

The two take turns; a ratio is the best time of one over the best of the other. A step runs on 16
elements in a loop of 1,000 trips on one thread; its time is the processor time of the loop, less that
of the same loop without it, over the trips, each the best of the rounds. A bound call of 16 elements is
run a thousand times from Python, in turn with an executable of as many of it: what the former takes
longer is what stands around the kernel.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy
from rich.markup import escape

import neuronsim
from neuronsim import _core, ops, processor
from neuronsim.bench import alternate, timer
from neuronsim.bench.report import table_of
from neuronsim.bench.suite import geometric_mean, terminal, write_figures
from neuronsim.dtypes import float32
from neuronsim.profiles import Profile

GOAL_RATIO = 1.5
GOAL_BYTES = 200
GOAL_BOUND = 0.5e-6  # seconds
ELEMENTS = 16

Call = Callable[[ModuleType, Any, Any], Any]

# x: 16 positive float32 values, i: eight indices into them.
FUNCTIONS: dict[str, Call] = {
    "x + x": lambda np, x, i: x + x,
    "x * 2.0": lambda np, x, i: x * 2.0,
    "-x": lambda np, x, i: -x,
    "x < x": lambda np, x, i: x < x,
    "x *= 1.0": lambda np, x, i: x.__imul__(1.0),
    "x[2:8]": lambda np, x, i: x[2:8],
    "x[3]": lambda np, x, i: x[3],
    "x[i]": lambda np, x, i: x[i],
    "add": lambda np, x, i: np.add(x, x),
    "maximum": lambda np, x, i: np.maximum(x, x),
    "divide": lambda np, x, i: np.divide(x, x),
    "exp": lambda np, x, i: np.exp(x),
    "sqrt": lambda np, x, i: np.sqrt(x),
    "tanh": lambda np, x, i: np.tanh(x),
    "abs": lambda np, x, i: np.abs(x),
    "where": lambda np, x, i: np.where(x < 0.5, x, x),
    "clip": lambda np, x, i: np.clip(x, 0.25, 0.75),
    "sum": lambda np, x, i: np.sum(x),
    "max": lambda np, x, i: np.max(x),
    "mean": lambda np, x, i: np.mean(x),
    "argmax": lambda np, x, i: np.argmax(x),
    "sort": lambda np, x, i: np.sort(x),
    "matmul": lambda np, x, i: np.matmul(x, x),
    "reshape": lambda np, x, i: np.reshape(x, (4, 4)),
    "concatenate": lambda np, x, i: np.concatenate((x, x)),
    "stack": lambda np, x, i: np.stack((x, x)),
    "broadcast_to": lambda np, x, i: np.broadcast_to(x, (4, 16)),
    "asarray": lambda np, x, i: np.asarray(x),
    "zeros": lambda np, x, i: np.zeros(ELEMENTS),
    "astype": lambda np, x, i: x.astype(np.float16),
}


TRIPS = 1000
LOOP = """HloModule steps
more {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT g = pred[] compare(a, b), direction=GT }}
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }}
mean {{ a = f32[] parameter(0)  b = f32[] parameter(1)  s = f32[] add(a, b)
  h = f32[] constant(0.5)  ROOT m = f32[] multiply(s, h) }}
body {{
  t = (s32[], f32[16], s32[16], u64[3]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  x = f32[16] get-tuple-element(t), index=1
  i = s32[16] get-tuple-element(t), index=2
  w = u64[3] get-tuple-element(t), index=3
  one = s32[] constant(1)
  zero = f32[] constant(0)
  left = s32[] subtract(n, one)
  {step}
  ROOT next = (s32[], f32[16], s32[16], u64[3]) tuple(left, {x}, {i}, {w})
}}
goes_on {{
  t = (s32[], f32[16], s32[16], u64[3]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  none = s32[] constant(0)
  ROOT more = pred[] compare(n, none), direction=GT
}}
ENTRY main {{
  x = f32[16] parameter(0)
  i = s32[16] parameter(1)
  w = u64[3] parameter(2)
  n = s32[] constant({trips})
  t = (s32[], f32[16], s32[16], u64[3]) tuple(n, x, i, w)
  r = (s32[], f32[16], s32[16], u64[3]) while(t), body=body, condition=goes_on
  ROOT y = f32[16] get-tuple-element(r), index=1
}}
"""
# The step, and which of the loop's values its result is.
STEPS: dict[str, tuple[str, str]] = {
    "add": ("y = f32[16] add(x, x)", "x"),
    "reduce by add": (
        "r = f32[] reduce(x, zero), dimensions={0}, to_apply=add  "
        "y = f32[16] broadcast(r), dimensions={}",
        "x",
    ),
    "gather": (
        "y = f32[16] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}",
        "x",
    ),
    "scatter": (
        "y = f32[16] scatter(x, i, x), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        "x",
    ),
    "sort": ("y = f32[16] sort(x), dimensions={0}, to_apply=more", "x"),
    "topk": (
        "k = (f32[16], s32[16]) topk(x), k=16, largest=true  y = f32[16] get-tuple-element(k), index=0",
        "x",
    ),
    "argmax": (
        'm = s32[] custom-call(x), custom_call_target="AwsNeuronArgMax", backend_config="0"  '
        "y = s32[16] broadcast(m), dimensions={}",
        "i",
    ),
    "reduce by a computation": (
        "r = f32[] reduce(x, zero), dimensions={0}, to_apply=mean  "
        "y = f32[16] broadcast(r), dimensions={}",
        "x",
    ),
    "softmax": (
        'y = f32[16] custom-call(x), custom_call_target="AwsNeuronSoftmax", backend_config="0"',
        "x",
    ),
    "rng-bit-generator": (
        "g = (u64[3], u32[16]) rng-bit-generator(w), algorithm=rng_default  "
        "y = u64[3] get-tuple-element(g), index=0",
        "w",
    ),
}


def step_seconds(rounds: int) -> dict[str, float]:
    """The time that each step takes in a loop of a compiled program."""
    x = numpy.linspace(0.125, 1, ELEMENTS, dtype=numpy.float32)
    inputs = (x, numpy.arange(ELEMENTS, dtype=numpy.int32), numpy.arange(3, dtype=numpy.uint64))
    runs: dict[str, Callable[[], Any]] = {}
    for name, (step, value) in {"": ("", ""), **STEPS}.items():
        state = {v: "y" if v == value else v for v in "xiw"}
        text = LOOP.format(step=step, trips=TRIPS, **state)
        program = neuronsim.compile(text.encode(), auto_cast="none", threads=1)
        runs[name] = lambda program=program: program(*inputs)
    bare, *steps = alternate([timer(run, time.process_time) for run in runs.values()], rounds)
    return {name: (taken - bare) / TRIPS for name, taken in zip(STEPS, steps, strict=True)}


def _bound_call(name: str) -> tuple[_core.Call, list[Any]]:
    """A kernel's call on arrays of its own, and these."""
    profile = Profile()
    x = numpy.linspace(0.125, 1, ELEMENTS, dtype=numpy.float32)
    setting = ops.Setting(profile)
    if name == "matmul":
        a, b = x.reshape(4, 4), x.reshape(4, 4).copy()
        c = numpy.empty((4, 4), numpy.float32)
        attributes = {"dot_dimensions": ops.DotDimensions((1,), (0,))}
        result = ops.ArrayType(float32, (4, 4))
        operands = [ops.Bits(a, float32), ops.Bits(b, float32)]
        e = ops.Evaluation(ops.by_name("dot"), operands, attributes, result, setting)
        return ops.bind_product(e, c, ops.NO_FUSION), [a, b, c]
    if name == "sum":
        zero, total = numpy.zeros((), numpy.float32), numpy.empty((), numpy.float32)
        reduction = ops.reduction("add", float32, {}, profile)
        return reduction.on(x, 0, zero, total), [x, zero, total]
    row = ops.by_name(name)
    chain, _ = ops.elementwise_chain(row, {}, (float32,) * row.arity, float32, profile)
    y = numpy.empty_like(x)
    return chain.on([x] * row.arity, [y]), [x, y]


class _Context:
    """What an executable asks whether to go on."""

    def check(self) -> None:
        pass


def bound_seconds(rounds: int) -> dict[str, tuple[float, float]]:
    """The time of a bound call and that of its kernel alone."""
    processor.set_num_threads(1)
    found: dict[str, tuple[float, float]] = {}
    for name in ("add", "exp", "sum", "matmul"):
        call, memories = _bound_call(name)
        steps, arrays = zip(*(_bound_call(name) for _ in range(TRIPS)), strict=True)
        # All of them run on the arrays of one; memory 0 is nothing.
        standins = [(x, n, 0) for own in arrays for n, x in enumerate(own, start=1)]
        alone = _core.Executable(list(steps), standins)

        def run(call: _core.Call = call) -> None:
            for _ in range(TRIPS):
                call.run()

        def run_alone(alone: _core.Executable = alone, memories: list[Any] = memories) -> None:
            alone.run(memories, _Context(), False)

        best = alternate([timer(run, time.process_time), timer(run_alone, time.process_time)], rounds)
        found[name] = (best[0] / TRIPS, best[1] / TRIPS)
    return found


def measure_bound(rounds: int, file_name: str | None) -> None:
    taken = bound_seconds(rounds)
    table = table_of("bound call", ["us", "kernel us", "above it"])
    for name, (call, kernel) in taken.items():
        table.add_row(name, *(f"{v * 1e6:.2f}" for v in (call, kernel, call - kernel)))
    console = terminal(100)
    console.print(table)
    most = max(call - kernel for call, kernel in taken.values())
    console.print(f"at most {most * 1e6:.2f} us above the kernel (goal {GOAL_BOUND * 1e6:g})")
    write_figures(file_name, {"bound_seconds": taken})


def seconds(call: Call, peers: dict[str, tuple[Any, ...]], rounds: int) -> dict[str, float]:
    """The best time of one call of each peer; they take turns."""
    best = alternate([timer(partial(call, *arguments)) for arguments in peers.values()], rounds)
    return dict(zip(peers, best, strict=True))


def array_bytes(count: int = 10_000) -> float:
    """The bytes that an Array takes beside its elements' own."""
    data = numpy.ones(ELEMENTS, numpy.float32)
    kept: list[Any] = [None] * count
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(count):
        kept[n] = neuronsim.asarray(data.copy())
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / count - data.nbytes


def measure_steps(rounds: int, file_name: str | None) -> None:
    taken = step_seconds(rounds)
    table = table_of("step", ["us"])
    for name, value in taken.items():
        table.add_row(name, f"{value * 1e6:.1f}")
    terminal(100).print(table)
    write_figures(file_name, {"step_seconds": taken})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32", help="of neuronsim's arrays; NumPy's are float32")
    parser.add_argument("--rounds", type=int, default=100)
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--steps", action="store_true", help="of compiled programs, in the place of calls"
    )
    other.add_argument("--bound", action="store_true", help="of kernels, to their arrays")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.steps or options.bound:
        measure = measure_steps if options.steps else measure_bound
        measure(options.rounds, options.json)
        return
    x = numpy.linspace(0.125, 1, ELEMENTS, dtype=numpy.float32)
    i = numpy.arange(0, ELEMENTS, 2)
    peers = {
        "numpy": (numpy, x, i),
        "neuronsim": (
            neuronsim,
            neuronsim.asarray(x.copy(), dtype=options.dtype, copy=True),
            neuronsim.asarray(i),
        ),
    }
    found: dict[str, dict[str, float]] = {}
    table = table_of("call", [*(f"{peer} us" for peer in peers), "ratio"])
    for name, call in FUNCTIONS.items():
        times = found[name] = seconds(call, peers, options.rounds)
        ratio = times["neuronsim"] / times["numpy"]
        shown = [f"{times[peer] * 1e6:.2f}" for peer in peers]
        table.add_row(escape(name), *shown, f"{ratio:.2f}")
    ratios = [t["neuronsim"] / t["numpy"] for t in found.values()]
    mean = geometric_mean(ratios)
    console = terminal(100)
    console.print(table)
    console.print(f"geometric mean {mean:.2f} (goal {GOAL_RATIO:g})")
    own = array_bytes()
    console.print(f"an Array takes {own:.0f} bytes beside its elements (goal {GOAL_BYTES})")
    write_figures(options.json, {"seconds": found, "geometric_mean": mean, "array_bytes": own})


if __name__ == "__main__":
    main()
