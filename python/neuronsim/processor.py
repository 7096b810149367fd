"""The instruction set, the form of bfloat16 products, the number of threads and the floating-point
environment: none of them changes a bit (rules D1 and M2).

The environment variables NEURONSIM_ISA, NEURONSIM_BF16_PRODUCTS and NEURONSIM_NUM_THREADS set them at
import.

>>> isa() in available_isas()
True
"""

from __future__ import annotations

import contextvars
import functools
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from neuronsim import _core
from neuronsim.errors import InvalidArgument
from neuronsim.records import is_int

_Door = TypeVar("_Door", bound=Callable[..., Any])

MAX_THREADS = 1024
BFLOAT16_PRODUCTS = ("auto", "pairs", "fma")
_MANY_ROWS = 1 << 20
_MOST_ROWS = (1 << 63) - 1
_LONG = 1 << 22  # operations of NumPy's, some milliseconds: a thread's start takes a hundredth
_environment_error: InvalidArgument | None = None


def check_environment() -> None:
    """Raises InvalidArgument if an environment variable of this module was wrong at import.

    The first use reports it, not the import, so that a program can say it in its own way.
    """
    if _environment_error is not None:
        raise _environment_error


def isa() -> str:
    """The instruction set whose kernels run, by its x86-64 psABI name."""
    check_environment()
    return str(_core.isa())


def available_isas() -> tuple[str, ...]:
    """The instruction sets that this processor has kernels for, narrowest first."""
    return tuple(_core.available_isas())


def set_isa(name: str) -> None:
    """Run the kernels of this instruction set; raises InvalidArgument if it is not available."""
    if name not in available_isas():
        raise InvalidArgument(
            f"instruction set {name!r} is not available here: NEURONSIM_ISA and set_isa take "
            + ", ".join(available_isas())
        )
    _core.select_isa(name)


def bfloat16_products(rows: int = _MANY_ROWS) -> str:
    """How products of bfloat16 and float8 with so many rows are computed: "pairs" by VDPBF16PS, "fma"
    in float32. The bits are the same; which is quicker differs between processors, and unless it is set
    a timing of some 40 microseconds finds it at the first product. Few rows are always multiplied in
    pairs where there is that instruction, unless "fma" is set, since they wait for memory; but not by
    columns that were packed before (a graph's weights) and stay in the second cache.
    """
    check_environment()
    if not is_int(rows, 0, _MOST_ROWS):
        raise InvalidArgument(
            f"the number of rows (bfloat16_products) is an integer from 0 to {_MOST_ROWS}, not {rows!r}"
        )
    return "pairs" if _core.multiplies_pairs(rows) else "fma"


def set_bfloat16_products(form: str) -> None:
    """Compute products of bfloat16 in "pairs", by "fma", or, with "auto", as is quicker here; raises
    InvalidArgument for others, and for pairs on a processor without VDPBF16PS.
    """
    if form not in BFLOAT16_PRODUCTS:
        raise InvalidArgument(
            "the form of bfloat16 products (NEURONSIM_BF16_PRODUCTS, set_bfloat16_products) is one of "
            f"{', '.join(BFLOAT16_PRODUCTS)}, not {form!r}"
        )
    if form == "pairs" and not _core.pairs_are_proved():
        raise InvalidArgument(
            "bfloat16 products in pairs (NEURONSIM_BF16_PRODUCTS, set_bfloat16_products) need the "
            "instruction VDPBF16PS, which this processor does not have: take fma or auto"
        )
    _core.select_bfloat16_products(form)


def num_threads() -> int:
    """How many threads a kernel may use."""
    check_environment()
    return int(_core.thread_count())


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, from 1 to MAX_THREADS."""
    if not is_int(n, 1, MAX_THREADS):
        raise InvalidArgument(
            f"the number of threads (NEURONSIM_NUM_THREADS, --threads) is an integer from 1 to "
            f"{MAX_THREADS}, not {n!r}"
        )
    _core.set_thread_count(n)


def pinned(door: _Door) -> _Door:
    """A function whose calls, or a class whose public methods, run to nearest even, with subnormals and
    without traps, whatever the caller's floating-point environment is, which is restored (D1). It is
    for what Python and NumPy compute inside; the core pins it itself.
    """
    if isinstance(door, FunctionType):
        function: _Door = _pinned_function(door)
        return function
    assert isinstance(door, type)
    for name, method in list(vars(door).items()):
        if name.startswith("_") and not name.endswith("__"):
            continue
        kind = type(method)
        if kind is FunctionType:
            setattr(door, name, _pinned_function(method))
        elif kind in (staticmethod, classmethod):
            setattr(door, name, kind(_pinned_function(method.__func__)))
    return door


def _pinned_function(function: Any) -> Any:
    if hasattr(function, "__pinned__"):  # two names of one function stay so
        return function.__pinned__

    door: Any = functools.update_wrapper(_core.DoorMethod(function), function)
    function.__pinned__ = door.__pinned__ = door
    return door


def interruptible(operations: float, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a function of NumPy's gives, which hears no signals. In the main thread one of many
    `operations` runs in a thread beside it, so that handlers run meanwhile; one that raises ends the
    wait, and what NumPy goes on to compute is dropped. The function writes into nothing that it was
    given.

    >>> interruptible(1e9, sorted, [3, 1, 2])
    [1, 2, 3]
    """
    if operations < _LONG or threading.current_thread() is not threading.main_thread():
        return function(*args, **options)
    found: Future[Any] = Future()
    context = contextvars.copy_context()

    def compute() -> None:
        try:
            found.set_result(context.run(_core.Door(function), *args, **options))
        except BaseException as error:  # which the main thread raises in its place
            found.set_exception(error)

    try:
        threading.Thread(target=compute, daemon=True).start()
    except RuntimeError:  # there may be no more threads, or the interpreter ends
        return function(*args, **options)
    return found.result()


class _Resting:
    """How many hold the collector of cycles, and whether it was at work before the first."""

    lock = threading.Lock()
    count, was_enabled = 0, False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Without Python's collector of cycles, which else reads the whole heap, a framework's too, when
    many small objects have been made. Nested and concurrent ones count as one.

    >>> with collector_at_rest():
    ...     gc.isenabled()
    False
    """
    with _Resting.lock:
        if not _Resting.count:
            _Resting.was_enabled = gc.isenabled()
        _Resting.count += 1
        gc.disable()
    try:
        yield
    finally:
        with _Resting.lock:
            _Resting.count -= 1
            if not _Resting.count and _Resting.was_enabled:
                gc.enable()


def pin_doors(chapters: Iterable[ModuleType]) -> None:
    """`pinned` for every public function and class of modules of the package."""
    for chapter in chapters:
        for name in chapter.__all__:
            door = getattr(chapter, name)
            if isinstance(door, FunctionType | type) and door.__module__.startswith("neuronsim."):
                setattr(chapter, name, pinned(door))


def _from_environment() -> None:
    name = os.environ.get("NEURONSIM_ISA")
    if name:
        set_isa(name)
    form = os.environ.get("NEURONSIM_BF16_PRODUCTS")
    if form:
        set_bfloat16_products(form)
    threads = os.environ.get("NEURONSIM_NUM_THREADS")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    default = min(usable or 1, MAX_THREADS)
    # What is no number is reported as it was written.
    is_number = threads is not None and threads.isdecimal() and len(threads) <= 20
    set_num_threads(int(threads or 0) if is_number else threads or default)  # type: ignore[arg-type]


try:
    _from_environment()
except InvalidArgument as error:
    _environment_error = error
