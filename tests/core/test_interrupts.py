"""A long kernel hears signals: Ctrl-C ends it, every other handler runs as it does between calls."""

from __future__ import annotations

import functools
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import _core, dtypes, ops, processor
from neuronsim.errors import NeuronSimError
from neuronsim.profiles import Profile
from tests.support.evaluation import PLAIN_DOT, chain_of, core_scatter, pair_chain
from tests.support.parameters import some
from tests.support.processes import run_python

F32 = dtypes.float32.code
DELAY = 0.1  # until the signal comes
SLACK = 2.0  # after that, on a machine that does other things; docs/validation.md has measured times
Run = Callable[[], Any]


class Ended(BaseException):
    """What a user's handler may raise."""


def apply(name: str, operands: tuple[ops.Bits, ...], profile: Profile, **attributes: Any) -> ops.Bits:
    (found,) = ops.evaluate(ops.by_name(name), operands, attributes, ops.Setting(profile))
    return found


def wide(type_name: str, *shape: int, value: float = 1.0) -> ops.Bits:
    """An array of any size that takes one element's memory."""
    t = dtypes.DTYPES[type_name]
    one = ops.apply("convert", (ops.Bits(np.array(value, np.float32), dtypes.float32),), dtype=t)
    return ops.Bits(np.broadcast_to(one.data, shape), t)


def chain(op: str, type_name: str, count: int, arity: int, value: float = 1.0, **fields: Any) -> Run:
    """One step after another on a large array."""
    steps = [(op, type_name, [n] * arity) for n in range(count)]
    program = chain_of([type_name], steps, [count], Profile(**fields))
    n, storage = 1 << 25, dtypes.DTYPES[type_name].storage
    ids = list(range(count)) if program.draws else []
    x = np.full(n, value, storage)
    return lambda: program.on([x], [np.empty(n, storage)]).run(1, ids)


def converts() -> Run:
    types = ["int32" if n % 2 else "bfloat16" for n in range(200)]
    steps = [("convert", t, (n,)) for n, t in enumerate(types)]
    program = chain_of(["float32"], steps, [200])
    n = 1 << 25
    return lambda: program.on([np.ones(n, np.float32)], [np.empty(n, np.int32)]).run()


def dot(a: str, b: str, rows: int, depth: int, columns: int, **fields: Any) -> Run:
    profile = Profile(**{k: v for k, v in fields.items() if k != "dtype"})
    x, y = wide(a, rows, depth), wide(b, depth, columns)
    dtype = dtypes.DTYPES[fields.get("dtype", a)]
    return lambda: apply("dot", (x, y), profile, dot_dimensions=PLAIN_DOT, dtype=dtype)


def convolve(
    x: tuple[int, ...],
    w: tuple[int, ...],
    padding: int,
    groups: int = 1,
    last: bool = False,
    **fields: Any,
) -> Run:
    rank = len(x) - 2
    spatial = tuple(range(1, rank + 1)) if last else tuple(range(2, rank + 2))
    of_x = (0, rank + 1 if last else 1, spatial)
    inner = tuple(range(2, rank + 2))
    attributes = {
        "window": tuple(ops.WindowDimension(n, 1, (padding, padding)) for n in w[2:]),
        "dimension_numbers": ops.ConvolutionDimensions(*of_x, 1, 0, inner, *of_x),
        "feature_group_count": groups,
        "batch_group_count": 1,
        "dtype": dtypes.float32,
    }
    operands = wide("float32", *x), wide("float32", *w)
    profile = Profile(**fields)
    return lambda: apply("convolution", operands, profile, **attributes)


def reduction(
    dtype: str, reducer: str, shape: tuple[int, ...], axes: tuple[int, ...], **fields: Any
) -> Run:
    x, initial, profile = wide(dtype, *shape), wide(dtype), Profile(**fields)
    return lambda: apply("reduce", (x, initial), profile, dimensions=axes, reducer=reducer)


def cumulative(**fields: Any) -> Run:
    x, initial, profile = wide("float32", 1 << 26), wide("float32"), Profile(**fields)
    return lambda: apply("cumulative", (x, initial), profile, axis=0, reducer="add")


def windows(*sizes: int, dilation: int = 1) -> Run:
    window = tuple(ops.WindowDimension(n, 1, base_dilation=dilation) for n in sizes)
    x, initial = wide("float32", 50_000, 3000), wide("float32")
    return lambda: apply("reduce_window", (x, initial), Profile(), window=window, reducer="add")


def general_windows() -> Run:
    """The general reduce-window of 50,000 x 100,000 elements."""
    rows = [(n, 1, 0, 1, 1) for n in (1, 100_000)]
    program = pair_chain("add", "float32")
    x, out = wide("float32", 50_000, 100_000).data, np.empty((50_000, 1), np.float32)
    return lambda: _core.fold(program, rows, [x], [np.zeros((), np.float32)], [out]).run()


def select_and_scatter() -> Run:
    """Of 100,001 windows of 100,000 elements."""
    select, add = pair_chain("greater_equal", "float32", "bool"), pair_chain("add", "float32")
    x, source = (np.ones(n, np.float32) for n in (200_000, 100_001))
    rows = [(100_000, 1, 0, 1, 1)]
    return _core.select_and_scatter(select, add, rows, x, source, np.zeros_like(x)).run


def scatter() -> Run:
    n = 1 << 25
    program = pair_chain("add", "float32")
    places, updates = np.zeros(n, np.int64), np.ones(n, np.float32)
    return lambda: core_scatter(program, places, [updates], [np.zeros(1, np.float32)])


def sort() -> Run:
    program = pair_chain("less", "float32", "bool")
    x = np.random.default_rng(0).standard_normal(1 << 23, np.float32)
    return _core.sort_lines(program, [], [x], [np.empty_like(x)]).run


def composite(name: str) -> Run:
    x, out = wide("float32", 1 << 21, 8192).data, np.empty(1 << 21, np.float32)
    return _core.Composite(name, F32, 128).on(x, 1, out).run


def keys() -> Run:
    x = np.zeros(1 << 29, np.uint8)
    return lambda: [_core.order_keys(x, dtypes.float8_e5m2.code) for _ in range(20)]


def on_isa(name: str, run: Callable[[], Run]) -> Callable[[], Run]:
    def made() -> Run:
        processor.set_isa(name)
        return run()

    return made


NARROWEST = processor.available_isas()[0]
KERNELS: dict[str, Callable[[], Run]] = {
    "elementwise": lambda: chain("add", "float32", 900, 2),
    "elementwise of integers": lambda: chain("multiply", "int32", 400, 2),
    "elementwise, flushed": lambda: chain("add", "float32", 200, 2, subnormals="flush"),
    "function": lambda: chain("tanh", "float32", 100, 1),
    "function by table": lambda: chain("exp", "bfloat16", 100, 1),
    "accurate step": lambda: chain("gelu_dx", "float32", 1, 1, value=-0.7517916),
    "power": lambda: chain("power", "float32", 10, 2),
    "atan2": lambda: chain("atan2", "float32", 10, 2),
    "conversions": converts,
    "stochastic rounding": lambda: chain("add", "bfloat16", 20, 2, rounding="stochastic"),
    "dot": lambda: dot("float32", "float32", 8192, 65536, 8192),
    "dot of bfloat16": lambda: dot("bfloat16", "bfloat16", 8192, 65536, 8192),
    "dot of one row": lambda: dot("float32", "float32", 1, 1 << 22, 8192),
    "dot of few columns": lambda: dot("float32", "float32", 1 << 21, 1 << 14, 2),
    "dot, exact": lambda: dot("float32", "float32", 512, 65536, 512, accumulate="exact"),
    "dot, sequential": lambda: dot("float32", "float32", 8192, 65536, 8192, accumulate="sequential"),
    "dot, pairs": lambda: dot("float32", "float32", 2048, 65536, 2048, accumulate="pairs"),
    "dot, products rounded": lambda: dot(
        "bfloat16", "bfloat16", 1024, 65536, 512, accumulate="product_bf16"
    ),
    "dot, flushed": lambda: dot("float32", "float32", 2048, 65536, 2048, subnormals="flush"),
    "dot, stochastic": lambda: dot("bfloat16", "bfloat16", 30000, 8, 30000, rounding="stochastic"),
    "dot of integers": lambda: dot("int64", "int64", 2048, 4096, 2048),  # not of 32
    "dot of bools": lambda: dot("bool", "bool", 2048, 4096, 2048),
    "dot, narrowest": on_isa(NARROWEST, lambda: dot("float32", "float32", 2048, 65536, 2048)),
    "convolution": lambda: convolve((64, 256, 100, 100), (256, 256, 3, 3), 1),
    "convolution in place": lambda: convolve((64, 100, 100, 2048), (512, 2048, 1, 1), 0, last=True),
    "convolution, exact": lambda: convolve((8, 64, 64, 64), (64, 64, 3, 3), 1, accumulate="exact"),
    "convolution by planes": lambda: convolve((16, 64, 400, 400), (64, 1, 41, 41), 20, 64),
    "convolution by channels": lambda: convolve((16, 200, 200, 64), (64, 1, 41, 41), 20, 64, last=True),
    "convolution of a large window": lambda: convolve(
        (4, 500, 500, 64), (64, 1, 400, 400), 9, 64, last=True
    ),
    "convolution, windows copied": lambda: convolve((8, 64, 300_000), (8, 64, 30_000), 0),
    "reduce": lambda: reduction("float32", "add", (1 << 36,), (0,)),
    "reduce of rows": lambda: reduction("float32", "add", (1 << 20, 1 << 15), (1,)),
    "reduce of columns": lambda: reduction("bfloat16", "maximum", (1 << 20, 1 << 15), (0,)),
    "reduce, sequential": lambda: reduction(
        "float32", "add", (1 << 36,), (0,), accumulate="sequential"
    ),
    "reduce, flushed": lambda: reduction("float32", "add", (1 << 32,), (0,), subnormals="flush"),
    "reduce of integers": lambda: reduction("int32", "add", (1 << 20, 1 << 14), (1,)),
    "reduce, bits": lambda: reduction("int8", "bitwise_or", (1 << 34,), (0,)),
    "cumulative": lambda: cumulative(subnormals="flush"),
    "reduce-window": lambda: windows(1, 500),
    "reduce-window with holes": lambda: windows(40, 40, dilation=2),
    "reduce-window, general": general_windows,
    "select of windows": select_and_scatter,
    "scatter": scatter,
    "sort": sort,
    "softmax": lambda: composite("logsumexp"),
    "norm": lambda: composite("var"),
    "keys": keys,
    "random words": lambda: lambda: _core.random_words(1, 2, 0, 1 << 28),
}


@pytest.fixture(autouse=True)
def _restored(restored_processor: None) -> None:
    """Some kernels choose an instruction set."""


@contextmanager
def alarm(handler: Callable[..., Any], delay: float = DELAY) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end(*arguments: Any) -> None:
    raise Ended


def works() -> None:
    """Small kernels give what they should."""
    x = ns.asarray(np.arange(200, dtype=np.float32).reshape(10, 20))
    assert np.array_equal((x @ x.T).astype(ns.float64), np.asarray(x) @ np.asarray(x).T)
    assert float(ns.sum(x)) == 19900
    assert np.array_equal(np.asarray(x * 2 + 1), np.arange(200).reshape(10, 20) * 2 + 1)


# Every kernel on two threads, some on one: the others with `exhaustive`.
ON_ONE_THREAD = ("elementwise", "function", "dot", "convolution", "reduce")
ON_ONE_THREAD += ("reduce-window, general", "sort")


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        (n, t) if t == 2 or n in ON_ONE_THREAD else pytest.param(n, t, marks=pytest.mark.exhaustive)
        for n in KERNELS
        for t in (1, 2)
    ],
    indirect=["threads"],
)
def test_signal_ends_a_kernel(
    name: str, threads: int, record_property: Callable[[str, object], None]
) -> None:
    run = KERNELS[name]()
    begin = time.monotonic()
    with alarm(end), pytest.raises(Ended):
        run()
    late = time.monotonic() - begin - DELAY
    record_property("late", late)
    print(f"{name}, {threads} threads: {late:.3f} s after the signal")
    assert late < SLACK
    works()


def drawn(*shape: int) -> ns.Array:
    return ns.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))


NUMPYS: dict[str, Callable[[], Run]] = {
    "argsort": lambda: functools.partial(ns.argsort, drawn(1 << 23)),
    "top-k": lambda: functools.partial(ns.top_k, drawn(1 << 26), 1 << 20),
    "decomposition": lambda: functools.partial(ns.linalg.svd, drawn(1800, 1800)),
    "product of float64": lambda: functools.partial(
        ns.convolve, *2 * [drawn(15_000).astype("float64")]
    ),
    "roots": lambda: functools.partial(ns.roots, drawn(700)),
    "transform": lambda: functools.partial(ns.fft.fft, [1.0], n=40_000_000),
    "lexsort": lambda: functools.partial(ns.lexsort, 2 * (drawn(1 << 22),)),
    "normal": lambda: functools.partial(ns.random.default_rng(0).normal, size=(1 << 13, 1 << 14)),
    "legacy normal": lambda: functools.partial(ns.random.RandomState(0).normal, 0, 1, 1 << 26),
    "randn": lambda: functools.partial(ns.random.RandomState(0).randn, 1 << 13, 1 << 13),
    "integers": lambda: functools.partial(ns.random.default_rng(0).integers, 10**6, size=1 << 28),
    "randint": lambda: functools.partial(ns.random.RandomState(0).randint, 10**6, size=1 << 28),
    "dirichlet": lambda: functools.partial(ns.random.default_rng(0).dirichlet, [1.0] * 200, 1 << 18),
    "choice": lambda: functools.partial(ns.random.default_rng(0).choice, 1 << 27, 1 << 26),
    "permutation": lambda: functools.partial(ns.random.default_rng(0).permutation, 1 << 27),
}


@pytest.mark.parametrize("name", some(NUMPYS, ("argsort", "product of float64")))
def test_signal_ends_the_wait_for_numpy(name: str) -> None:
    """NumPy goes on in a thread of its own; its results are dropped, its errors too."""
    run = NUMPYS[name]()
    begin = time.monotonic()
    with alarm(end), pytest.raises(Ended):
        run()
    assert time.monotonic() - begin - DELAY < SLACK
    works()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(60)  # what NumPy goes on with is no other test's


def test_what_numpy_computes_in_a_thread_is_the_same() -> None:
    x = drawn(1 << 19)
    keys = np.asarray(x)
    assert np.array_equal(np.asarray(ns.argsort(x)), keys.argsort(kind="stable"))
    with pytest.raises(NeuronSimError, match=r"[Ss]ingular"):
        ns.linalg.inv(ns.zeros((300, 300)))
    calls: list[int] = []
    with alarm(lambda *_: calls.append(1), 0.01):
        found = ns.linalg.svdvals(x[: 1 << 18].reshape((512, 512)))
    assert calls
    assert found.shape == (512,)


def test_interrupted_kernels_leave_no_memory() -> None:
    x = ns.ones(1 << 20)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def without_end() -> None:
        while True:
            ns.power(x, x)

    def once() -> None:
        with alarm(end, 0.03), pytest.raises(Ended):
            without_end()

    for _ in range(3):
        once()
    before = resident()
    for _ in range(20):
        once()
    assert resident() - before < 16 << 20


def test_handler_that_returns_changes_nothing(threads: int) -> None:
    """And so does one that computes: the kernel that waits has memory of its own."""
    rng = np.random.default_rng(3)
    a, b = (ns.asarray(rng.standard_normal((1500, 1500), np.float32)) for _ in range(2))
    x = ns.asarray(rng.standard_normal(1 << 20, np.float32))
    k = ns.asarray(rng.integers(-128, 128, (3000, 3000), np.int8))

    def compute() -> list[bytes]:
        y = a @ b
        found = [y, ns.nn.softmax(y), ns.power(ns.abs(x), x), ns.sum(y, axis=0), ns.cumsum(x)]
        image = ns.reshape(x[: 1 << 16], (1, 16, 64, 64))
        found.append(ns.nn.conv(image, ns.ones((16, 16, 3, 3)), padding=1))
        found.append(k @ k)
        return [v.tobytes() for v in found]

    expected = compute()
    calls: list[int] = []

    def handler(*arguments: Any) -> None:
        calls.append(1)
        small = ns.asarray(rng.standard_normal((70, 300), np.float32))
        ns.nn.softmax(small @ small.T)
        k[:70, :300] @ k[:300, :90]
        ns.power(ns.abs(small), small)
        ns.sum(small, axis=0)
        processor.set_num_threads(1 + len(calls) % 2)

    with alarm(handler):
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.06)
        for _ in range(10):
            assert compute() == expected
    assert len(calls) >= 5


def test_other_threads_compute_on() -> None:
    """Handlers are the main thread's: what another thread computes is not ended."""
    run = KERNELS["dot, exact"]()
    x = ns.ones((300, 3000))
    found: list[Any] = []

    def compute() -> None:
        with ns.use_profile(accumulate="exact"):
            found.append(float((x @ x.T)[5, 7]))

    thread = threading.Thread(target=compute)
    thread.start()
    with alarm(end), pytest.raises(Ended):
        run()
    thread.join(60)
    assert found == [3000.0]


CONTROL_C = """
import os, signal, threading, time
import numpy as np, neuronsim as ns
ns.set_num_threads({threads})
x = ns.asarray(np.broadcast_to(np.float32(1), (8192, 65536)))
y = x.T
out = ns.zeros((8192, 8192))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 5, float(ns.sum(ns.ones(100))))
"""


@pytest.mark.parametrize("call", ["x @ y", "ns.matmul(x, y, out=out)"])
def test_control_c_ends_a_product(call: str, threads: int) -> None:
    done = run_python(CONTROL_C.format(call=call, threads=threads), timeout=100)
    assert done.stdout.split() == ["interrupted", "True", "100.0"], done.stderr
