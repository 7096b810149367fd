"""Rule D1: instruction set, threads and the caller's floating-point environment change no bit."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import os
import platform
import re
import shutil
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference.formats import FORMATS
from tests.support.draws import mixed_words, random_words
from tests.support.evaluation import evaluate, evaluate_dot, evaluate_fold
from tests.support.processes import run_python
from tests.support.words import FLOAT8, FLOATS, INTEGERS, REDUCERS, Words

TYPES = [*FLOATS, *INTEGERS, "bool"]
BATCHES = ops.DotDimensions((2,), (2,), (0,), (0,))


def everything() -> Iterator[tuple[str, Words]]:
    """Every operation on every type that has it, with enough elements for two threads."""
    for type_name in TYPES:
        rng = np.random.default_rng(40)
        a, b = (mixed_words(rng, type_name, 9000) for _ in range(2))
        condition = rng.integers(0, 2, a.size, np.uint8)
        for name, row in ops.OPS.items():
            if row.core is None:
                continue
            kind = {n: k for n, _, k in _core.OPS}[row.core]
            if kind in (("integral",) if type_name in FLOATS else ("floating", "function", "sign")):
                continue
            on_bool = row.on_bool or kind in ("comparison", "selection") or name in twin.BOOL
            if type_name == "bool" and not on_bool:
                continue
            operands = [(type_name, x) for x in (a, b, a[::-1])[: row.arity]]
            if name == "select":
                operands = [("bool", condition), (type_name, a), (type_name, b)]
            yield f"{name} {type_name}", evaluate(name, *operands)
        for target in (*TYPES, "float8_e4m3fn", "float64"):
            found = evaluate("convert", (type_name, a), dtype=dtypes.DTYPES[target])
            yield f"convert {type_name} {target}", found
        table = a[: 18 * 1500].reshape(18, 1500)
        window = (ops.WindowDimension(3, 2, (1, 1)), ops.WindowDimension(5, 3, (0, 2), 1, 2))
        folds: list[tuple[str, Words, dict[str, Any]]] = [
            *(("reduce", table, {"dimensions": axes}) for axes in ((0,), (1,), (0, 1))),
            *(("cumulative", table, {"axis": axis}) for axis in (0, 1)),
            ("reduce_window", table[:, :300], {"window": window}),
        ]
        for reducer, (name, x, more) in itertools.product(REDUCERS, folds):
            found = evaluate_fold(name, type_name, x, reducer=reducer, **more)
            yield f"{name} {reducer} {type_name} {more}", found
        for name in ("argmax", "argmin", "argsort"):
            yield f"{name} {type_name}", evaluate(name, (type_name, table), axis=1)
        yield f"top_k {type_name}", evaluate("top_k", (type_name, table), k=7)
        if type_name in FLOATS:
            yield f"nextafter {type_name}", evaluate("nextafter", (type_name, a), (type_name, b))
            yield from under_other_profiles(type_name, a, b)
            yield from sums_of_products(type_name)
        near = random_words(rng, type_name, 40 * 200 + 200 * 70, "near")
        lhs, rhs = near[: 40 * 200].reshape(40, 200), near[40 * 200 :].reshape(200, 70)
        yield f"dot {type_name}", evaluate_dot(type_name, lhs, type_name, rhs, type_name)
        for label in CONVOLUTIONS:
            x, w, attributes = convolution_of(type_name, label)
            operands = (type_name, x), (type_name, w)
            yield f"convolution {label} {type_name}", evaluate("convolution", *operands, **attributes)


# The ways through the core: image, kernel, groups; features last.
CONVOLUTIONS = {
    "direct": ((3, 15, 13, 40), (1, 1, 40, 70), 1),
    "image": ((1, 15, 13, 24), (3, 3, 24, 34), 1),
    "odd image": ((1, 15, 13, 5), (3, 2, 5, 9), 1),
    "depthwise": ((1, 20, 23, 66), (3, 3, 1, 66), 66),
    "multiplied": ((1, 20, 23, 22), (2, 3, 1, 66), 22),
    "groups": ((2, 9, 13, 36), (3, 3, 12, 21), 3),
}


def convolution_of(type_name: str, label: str) -> tuple[Words, Words, dict[str, object]]:
    image, kernel, groups = CONVOLUTIONS[label]
    rng = np.random.default_rng(44)
    x, w = (random_words(rng, type_name, shape, "near") for shape in (image, kernel))
    window = tuple(ops.WindowDimension(n, 1, (n // 2, n // 2)) for n in kernel[:2])
    numbers = ops.ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    attributes = {"window": window, "dimension_numbers": numbers, "batch_group_count": 1}
    return x, w, attributes | {"feature_group_count": groups}


def sums_of_products(type_name: str) -> Iterator[tuple[str, Words]]:
    """Every way of adding up (M6), with and without C4, where sums are small and where they are not;
    convolutions under profiles that change their sums, their padding or their stores.
    """
    rng = np.random.default_rng(45)
    lhs, rhs = (random_words(rng, type_name, s, "near") for s in ((25, 300), (300, 70)))
    f = FORMATS[type_name]
    exponents = ((1 << f.exponent_bits) - 1) << f.mantissa_bits + f.shift
    small = lhs & lhs.dtype.type(np.iinfo(lhs.dtype).max ^ exponents)  # subnormals
    small[::2] |= lhs.dtype.type(3 << f.mantissa_bits + f.shift)
    wide = type_name in ("float32", "tfloat32")
    models: list[tuple[str, str | None]] = [("psum128", "bfloat16"), ("sequential", "float16")]
    models += [(field, None) for field in ("psum128", "sequential", "exact", "pairs")]
    models += [] if wide else [("product_bf16", None)]
    for field, dtype in models:
        for subnormals in ("keep", "flush"):
            more = {} if dtype is None else {"accumulate": dtypes.DTYPES[dtype]}
            profile = Profile(accumulate=field, subnormals=subnormals)
            for size, x in (("near", lhs), ("small", small)):
                found = evaluate_dot(type_name, x, type_name, rhs, profile=profile, **more)
                yield f"dot {type_name} {field} {dtype} {subnormals} {size}", found
    found = evaluate_dot(type_name, lhs, type_name, rhs, type_name, cast=dtypes.bfloat16)
    yield f"dot {type_name} cast", found
    for fields in (
        {"subnormals": "flush"},
        {"accumulate": "pairs", "subnormals": "flush"},
        {"accumulate": "sequential", "rounding": "stochastic"},
    ):
        setting = ops.Setting(Profile(**fields), seed=5, path="0/main/x/")
        for label in CONVOLUTIONS:
            x, w, attributes = convolution_of(type_name, label)
            operands = (type_name, x), (type_name, w)
            found = evaluate("convolution", *operands, **attributes, setting=setting)
            yield f"convolution {label} {type_name} {fields}", found


def under_other_profiles(type_name: str, a: Words, b: Words) -> Iterator[tuple[str, Words]]:
    """The paths that roundings take under the profile's other choices (C3, C4, S)."""
    for fields in (
        {"rounding": "stochastic"},
        {"subnormals": "flush", "fp8_overflow": "saturate"},
        {"subnormals": "flush", "fp8_overflow": "nan", "divide": "reciprocal_multiply"},
    ):
        setting = ops.Setting(Profile(**fields), seed=5, path="0/main/x/")
        for name in ("add", "divide"):
            found = evaluate(name, (type_name, a), (type_name, b), setting=setting)
            yield f"{name} {type_name} {fields}", found
        for target in FLOATS:
            dtype = dtypes.DTYPES[target]
            found = evaluate("convert", (type_name, a), dtype=dtype, setting=setting)
            yield f"convert {type_name} {target} {fields}", found
        table = a[:6000].reshape(4, 1500)
        found = evaluate_fold("reduce", type_name, table, dimensions=(1,), setting=setting)
        yield f"reduce {type_name} {fields}", found
        lhs, rhs = a[:2000].reshape(10, 200), b[:2000].reshape(200, 10)
        found = evaluate_dot(type_name, lhs, type_name, rhs, type_name, setting=setting)
        yield f"dot {type_name} {fields}", found


def digests() -> dict[str, str]:
    return {label: hashlib.sha256(words.tobytes()).hexdigest() for label, words in everything()}


@pytest.fixture(scope="module")
def digests_by_path() -> dict[tuple[str, int], dict[str, str]]:
    """On each instruction set with 1 and 2 threads."""
    before = processor.isa(), processor.num_threads()
    seen: dict[tuple[str, int], dict[str, str]] = {}
    for name, count in itertools.product(processor.available_isas(), (1, 2)):
        processor.set_isa(name)
        assert processor.isa() == _core.isa() == name
        processor.set_num_threads(count)
        assert processor.num_threads() == _core.thread_count() == count
        seen[name, count] = digests()
    processor.set_isa(before[0])
    processor.set_num_threads(before[1])
    return seen


@pytest.mark.isa_independent
def test_every_isa_and_thread_count_D1_gives_the_same_bits(
    digests_by_path: dict[tuple[str, int], dict[str, str]],
) -> None:
    first = next(iter(digests_by_path.values()))
    assert len(first) > 1000
    for where, found in digests_by_path.items():
        assert [label for label in first if found[label] != first[label]] == [], where


# ---- the form of bfloat16 products ---------------------------------------------------------------

needs_pairs = pytest.mark.skipif(
    not _core.pairs_are_proved(), reason="this processor does not have VDPBF16PS"
)


def products_of_narrow_types() -> Iterator[tuple[str, Words]]:
    """Dots of few and of many rows, narrow, turned round and in batches; every kind of convolution."""
    rng = np.random.default_rng(46)
    for type_name in ("bfloat16", *FLOAT8):
        for mode in ("near", "special", "any"):
            for rows, depth, columns in ((1, 301, 70), (4, 300, 70), (40, 301, 70), (300, 257, 3)):
                label = f"{type_name} {mode} {rows} x {depth} x {columns}"
                x, y = (
                    random_words(rng, type_name, s, mode) for s in ((rows, depth), (depth, columns))
                )
                for result in (type_name, "float32"):
                    found = evaluate_dot(type_name, x, type_name, y, result)
                    yield f"dot to {result} {label}", found
                turned: Any = type_name, x.T.copy(), type_name, y, type_name
                found = evaluate_dot(*turned, dot_dimensions=ops.DotDimensions((0,), (0,)))
                yield f"turned dot {label}", found
            several: Any = (type_name, random_words(rng, type_name, (6, 20, 32), mode)) * 2
            found = evaluate_dot(*several, type_name, dot_dimensions=BATCHES)
            yield f"batches {type_name} {mode}", found
        for label in CONVOLUTIONS:
            x, w, attributes = convolution_of(type_name, label)
            found = evaluate("convolution", (type_name, x), (type_name, w), **attributes)
            yield f"convolution {label} {type_name}", found
        # One that reaches too far for an image: its windows are copied.
        x = random_words(rng, type_name, (1, 2_000_003, 2), "near")
        w = random_words(rng, type_name, (2, 2, 5), "near")
        far = {
            "window": (ops.WindowDimension(2, 1, window_dilation=2_000_000),),
            "dimension_numbers": ops.ConvolutionDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)),
            "feature_group_count": 1,
            "batch_group_count": 1,
        }
        found = evaluate("convolution", (type_name, x), (type_name, w), **far)
        yield f"convolution of far {type_name}", found
        yield from sums_of_products(type_name)


@needs_pairs
@pytest.mark.isa_independent
def test_products_M2_have_the_same_bits_in_pairs_and_by_fma(restored_processor: None) -> None:
    processor.set_isa("x86-64-v4-bf16")
    digests: dict[str, dict[str, str]] = {}
    for form, count in itertools.product(("pairs", "fma"), (1, 2)):
        processor.set_bfloat16_products(form)
        processor.set_num_threads(count)
        assert processor.bfloat16_products() == form
        digests[f"{form} {count}"] = {
            label: hashlib.sha256(words.tobytes()).hexdigest()
            for label, words in products_of_narrow_types()
        }
    first = digests["pairs 1"]
    assert len(first) > 100
    for where, found in digests.items():
        assert [label for label in first if found[label] != first[label]] == [], where


# ---- the floating-point environment ------------------------------------------------------------

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR is a register of x86-64")
HOSTILE = {
    "round up": 0x1F80 | 2 << 13,
    "round down": 0x1F80 | 1 << 13,
    "round to zero": 0x1F80 | 3 << 13,
    "flush to zero": 0x1F80 | 1 << 15,
    "denormals are zero": 0x1F80 | 1 << 6,
    "all of them": 0x1F80 | 2 << 13 | 1 << 15 | 1 << 6,
}


@pytest.fixture(scope="module")
def mxcsr() -> Iterator[Callable[[int | None], int]]:
    try:
        with mxcsr_register() as access:
            yield access
    except PermissionError:
        pytest.skip("this system has no executable pages for a process to write")


@contextmanager
def mxcsr_register() -> Iterator[Callable[[int | None], int]]:
    """Read MXCSR, and set it if a value is given: two instructions in an executable page."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\x0f\xae\x1f\xc3" + b"\x90" * 12)  # stmxcsr [rdi]; ret
    page.write(b"\x0f\xae\x17\xc3")  # ldmxcsr [rdi]; ret
    anchor = ctypes.c_char.from_buffer(page)
    start = ctypes.addressof(anchor)
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
    store, load = kind(start), kind(start + 16)
    word = ctypes.c_uint32()

    def access(value: int | None = None) -> int:
        store(ctypes.byref(word))
        found = word.value
        if value is not None:
            word.value = value
            load(ctypes.byref(word))
        return found

    yield access
    del anchor


@contextmanager
def environment(mxcsr: Callable[[int | None], int], value: int) -> Iterator[None]:
    before = mxcsr(value)
    try:
        yield
    finally:
        mxcsr(before)


@on_x86
def test_control_D1_the_hostile_environment_acts_here(mxcsr: Callable[[int | None], int]) -> None:
    """NumPy does not pin it: 1 + 2^-30 rounds up, and a subnormal is flushed."""
    one, small = np.ones(1, np.float32), np.full(1, 2.0**-30, np.float32)
    tiny = np.full(1, 2.0**-140, np.float32)
    with environment(mxcsr, HOSTILE["all of them"]), np.errstate(all="ignore"):
        above, flushed = one + small, tiny * one
    assert above[0] > 1
    assert flushed[0] == 0


@on_x86
@pytest.mark.parametrize("label", HOSTILE)
def test_environment_D1_is_pinned_and_restored(
    isa: str, threads: int, mxcsr: Callable[[int | None], int], label: str
) -> None:
    """At every entry, and in worker threads that are born in the hostile environment."""
    rng = np.random.default_rng(41)
    n = 20000
    a, b = (mixed_words(rng, "float32", n, ("near", "special")) for _ in "ab")
    narrow = random_words(rng, "bfloat16", n, "any")
    wide = rng.standard_normal(n).view(np.uint64)
    square = a[:n].reshape(100, 200), b[:n].reshape(200, 100)

    def run() -> list[Words]:
        return [
            *(evaluate(name, ("float32", a), ("float32", b)) for name in ("add", "multiply", "divide")),
            *(evaluate(name, ("float32", a)) for name in ("sqrt", "rsqrt", "exp", "tanh")),
            evaluate("add", ("bfloat16", narrow), ("bfloat16", narrow[::-1])),
            evaluate("convert", ("float64", wide), dtype=dtypes.float32),
            evaluate("convert", ("float64", wide), dtype=dtypes.bfloat16),
            evaluate("convert", ("float32", a), dtype=dtypes.float16),
            evaluate("convert", ("float32", a), dtype=dtypes.int32),
            evaluate("convert", ("int64", wide), dtype=dtypes.float32),
            evaluate_fold("reduce", "float32", a, dimensions=(0,)),
            evaluate_dot("float32", square[0], "float32", square[1]),
        ]

    expected = run()
    processor.set_num_threads(1)
    processor.set_num_threads(threads)  # new workers, which inherit what follows
    with environment(mxcsr, HOSTILE[label]):
        found = run()
        after = mxcsr(None)
    assert after & 0xFFC0 == HOSTILE[label] & 0xFFC0  # the flags below bit 6 are sticky reports
    for x, y in zip(found, expected, strict=True):
        assert np.array_equal(x, y)


@on_x86
def test_environment_D1_changes_no_digest(
    isa: str,
    restored_settings: None,
    digests_by_path: dict[tuple[str, int], dict[str, str]],
    mxcsr: Callable[[int | None], int],
) -> None:
    """Every operation and type: the caller rounds up and flushes subnormals."""
    processor.set_num_threads(2)
    expected = digests_by_path[isa, 2]
    with environment(mxcsr, HOSTILE["all of them"]):
        found = digests()
    assert [label for label in expected if found[label] != expected[label]] == []


@on_x86
def test_environment_D1_with_traps_enabled_does_not_trap(mxcsr: Callable[[int | None], int]) -> None:
    """A caller who unmasks exceptions: 0/0, 1/0, overflow and underflow inside must not kill it."""
    script = """
import ctypes, mmap
import numpy as np
from neuronsim import _core, ops, processor
from neuronsim.profiles import Profile
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\x0f\\xae\\x17\\xc3")
load = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))(
    ctypes.addressof(ctypes.c_char.from_buffer(page)))
a = np.array([0, 1, 3e38, 1e-38] * 9000, np.float32)
b = np.array([0, 0, 1e-10, 1e10] * 9000, np.float32)
names = [n for n, _, _ in _core.OPS]
program = _core.Chain([0, 0], [(names.index("divide"), 0, [0, 1])], [2], ops.numerics(Profile()))
out = np.empty_like(a)
hostile, calm = ctypes.c_uint32(0x1F80 & ~0xE80), ctypes.c_uint32(0x1F80)
for name in processor.available_isas():
    for threads in (1, 2):
        processor.set_isa(name)
        processor.set_num_threads(threads)
        load(ctypes.byref(hostile))
        program.on([a, b], [out]).run()
        load(ctypes.byref(calm))
        assert np.isnan(out[0]) and np.isinf(out[1]) and np.isinf(out[2]) and out[3] == 0
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


def test_environment_D1_survives_an_error() -> None:
    program = _core.Chain([0], [], [0], ops.numerics(Profile()))
    with pytest.raises(ValueError, match="shapes"):
        program.on([np.zeros(3, np.float32)], [np.zeros(4, np.float32)]).run()
    one = np.array([0x3F800000], np.uint32)
    assert evaluate("exp", ("float32", one)).tolist() == [twin.FLOAT["exp"](0x3F800000)]


# ---- threads and processes ---------------------------------------------------------------------


def callers(count: int, call: Callable[[int], None]) -> list[threading.Thread]:
    """So many threads, each of which calls this with its number."""
    found = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    for t in found:
        t.start()
    return found


def test_callers_in_several_threads_D1_get_their_own_results(restored_settings: None) -> None:
    """While one caller has the workers the others compute alone: the same bits."""
    processor.set_num_threads(2)
    rng = np.random.default_rng(42)
    inputs = [random_words(rng, "float32", 30000, "near") for _ in range(4)]
    expected = [evaluate("tanh", ("float32", x)) for x in inputs]
    wrong: list[int] = []

    def call(i: int) -> None:
        for _ in range(20):
            if not np.array_equal(evaluate("tanh", ("float32", inputs[i])), expected[i]):
                wrong.append(i)

    for t in callers(4, call):
        t.join()
    assert wrong == []


def small_products(type_name: str) -> Callable[[], list[Words]]:
    """Products just above the size from which threads share the work."""
    rng = np.random.default_rng(46)
    lhs, rhs = (random_words(rng, type_name, s, "near") for s in ((48, 130), (130, 96)))
    several: Any = (type_name, random_words(rng, type_name, (9, 20, 64), "near")) * 2
    images = [convolution_of(type_name, n) for n in ("depthwise", "odd image", "groups")]

    def run() -> list[Words]:
        found = [
            evaluate_dot(type_name, lhs, type_name, rhs, type_name),
            evaluate_dot(*several, type_name, dot_dimensions=BATCHES),
        ]
        for x, w, attributes in images:
            found.append(evaluate("convolution", (type_name, x), (type_name, w), **attributes))
        return found

    return run


def test_products_of_several_callers_D1_while_the_thread_count_changes(
    isa: str, restored_processor: None
) -> None:
    """Each caller has its own memory for packed operands; workers come and go between its calls."""
    types = ("float32", "bfloat16", "float16", "float8_e4m3")
    calls = [small_products(t) for t in types]
    processor.set_num_threads(1)
    expected = [call() for call in calls]
    wrong: list[str] = []

    def repeat(i: int) -> None:
        for _ in range(10):
            pairs = zip(calls[i](), expected[i], strict=True)
            wrong.extend(types[i] for x, y in pairs if not np.array_equal(x, y))

    running, counts = callers(len(types), repeat), itertools.cycle((2, 3, 1, 4))
    while any(t.is_alive() for t in running):
        processor.set_num_threads(next(counts))
        running[0].join(0.002)
    assert wrong == []


def test_thread_count_D1_may_change_between_small_calls(restored_settings: None) -> None:
    """Calls so short that workers of the last one are still awake, or just fell asleep."""
    call = small_products("bfloat16")
    processor.set_num_threads(1)
    expected = call()
    for count in (2, 3, 2, 1, 4, 2):
        processor.set_num_threads(count)
        for pause in (0, 0, 0.0005, 0):
            time.sleep(pause)
            for x, y in zip(call(), expected, strict=True):
                assert np.array_equal(x, y)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def check_in_a_child(check: Callable[[], bool]) -> None:
    """The check holds in a forked process, within 20 s: one that waits for workers hangs."""
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork beside threads, which is what these tests are about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            status = 0 if check() else 2
        finally:
            os._exit(status)
    _, wait_status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(wait_status) == 0


@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, where a peer's test has loaded it
@forks
def test_fork_D1_products_of_parent_and_child(restored_settings: None) -> None:
    """The child has the parent's packed operands in memory, none of its workers, and makes its own
    while another thread of the parent computes.
    """
    call = small_products("float32")
    processor.set_num_threads(2)
    expected = call()
    stop = threading.Event()
    wrong: list[int] = []

    def compute(_: int) -> None:
        while not stop.is_set():
            wrong.extend(i for i, x in enumerate(call()) if not np.array_equal(x, expected[i]))

    def same() -> bool:
        found = [x for _ in range(3) for x in call()]
        return all(np.array_equal(x, y) for x, y in zip(found, expected * 3, strict=True))

    (busy,) = callers(1, compute)
    try:
        for _ in range(5):
            check_in_a_child(same)
    finally:
        stop.set()
        busy.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, where a peer's test has loaded it
@forks
def test_fork_D1_after_threads_still_computes(restored_settings: None) -> None:
    processor.set_num_threads(2)
    x = random_words(np.random.default_rng(43), "float32", 50000, "near")
    expected = evaluate("tanh", ("float32", x))  # the workers exist now, and the child has none

    def same() -> bool:
        first = evaluate("tanh", ("float32", x))
        processor.set_num_threads(3)
        found = (first, evaluate("tanh", ("float32", x)))
        return all(np.array_equal(y, expected) for y in found)

    check_in_a_child(same)
    assert np.array_equal(evaluate("tanh", ("float32", x)), expected)


# ---- the compiled code -------------------------------------------------------------------------


def disassembled() -> Iterator[tuple[str, str]]:
    """The mnemonic of every instruction of the extension, and its operands."""
    tool = shutil.which("objdump")
    if tool is None:
        pytest.skip("objdump is not installed")
    listing = subprocess.run(
        [tool, "-d", "--no-show-raw-insn", "--no-addresses", _core.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in listing.splitlines():
        fields = line.split(maxsplit=1)
        if line.startswith(("\t", " ")) and fields:
            yield fields[0], "".join(fields[1:])


@on_x86
def test_machine_code_D1_has_no_x87_and_no_estimates() -> None:
    mnemonics = {m for m, _ in disassembled()}
    assert {"mulsd", "ret"} <= mnemonics
    assert [m for m in sorted(mnemonics) if re.match(r"f(?!s:|nop|emms)[a-z]", m)] == []
    estimate = re.compile(r"v?(rcp|rsqrt)(14|28)?[ps][sd]$")
    assert estimate.match("rsqrtps")
    assert estimate.match("vrcp14ps")
    assert [m for m in sorted(mnemonics) if estimate.match(m)] == []


@on_x86
def test_machine_code_D1_fuses_only_where_a_rule_says_so() -> None:
    """-ffp-contract=off: only simd.h's packed float32 fma is there and line_sums.h's single one, which
    are rule M2's, and doubles.h's packed float64 one, for functions of E3 whose error bounds hold with
    and without it. A product less a float32 is there twice for each of four vectors in both ways of
    AVX-512, in erf's pairs (E3).
    """
    fused = [(m, operands) for m, operands in disassembled() if re.match(r"vfn?m(add|sub)", m)]
    rests = [operands for m, operands in fused if re.fullmatch(r"vfmsub\d{3}ps", m)]
    assert all("%zmm" in operands for operands in rests)
    assert len(rests) <= 16
    allowed = r"vfmadd\d{3}[ps]s|vfmsub\d{3}ps|vfn?m(add|sub)\d{3}pd"
    assert {m for m, _ in fused if not re.fullmatch(allowed, m)} == set()


def test_no_libm_D1() -> None:
    tool = shutil.which("nm")
    if tool is None:
        pytest.skip("nm is not installed")
    listing = subprocess.run(
        [tool, "-D", "--undefined-only", _core.__file__], capture_output=True, text=True, check=True
    ).stdout
    imported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    assert any("PyModule" in name or "pthread" in name for name in imported)
    functions = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p"]
    functions += ["pow", "sqrt", "cbrt", "hypot", "llrint", "fmax", "fmin", "ldexp", "frexp", "modf"]
    functions += ["scalbn", "nextafter", "atan", "atan2"]
    functions += ["sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "tgamma", "lgamma", "fma"]
    functions += ["fmod", "remainder", "floor", "ceil", "trunc", "round", "rint", "nearbyint", "lrint"]

    libm = {name + suffix for name in functions for suffix in ("", "f", "l")}
    assert imported & libm == set()


@pytest.mark.parametrize("count", [1 << 13, 1 << 20])
def test_large_results_D1_have_memory_of_their_own(count: int) -> None:
    """A freed block serves one array at a time, and begins with a cache line."""
    x = np.full(count, 0x3F800000, np.uint32)
    freed = evaluate("add", ("float32", x), ("float32", x))
    del freed
    names = ("add", "subtract", "multiply")
    results = [evaluate(name, ("float32", x), ("float32", x)) for name in names]
    pairs = [(a, b) for i, a in enumerate(results) for b in results[:i]]
    assert not any(np.shares_memory(a, b) for a, b in pairs)
    assert not any(r.ctypes.data % 64 for r in results)
    assert [int(r.max()) for r in results] == [0x40000000, 0, 0x3F800000]


def test_large_results_D1_of_many_sizes_are_freed() -> None:
    """More blocks than are kept at a time, in turn."""
    for count in range(1 << 13, 1 << 20, 5000):
        x = np.full(count, 0x3F800000, np.uint32)
        assert evaluate("add", ("float32", x), ("float32", x))[-1] == 0x40000000
