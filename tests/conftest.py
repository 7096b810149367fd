"""Fixtures that choose the processor's path and put it back; repeatable hypothesis examples."""

from __future__ import annotations

import gc
import inspect
import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import settings

from neuronsim import processor
from tests.support import parameters
from tests.support.commands import Commands

# The same examples on every run, and no failure because the machine was busy.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# pytest-xdist's workers say how wide their terminal is, which they do not have.
os.environ.pop("COLUMNS", None)
# The same XLA on every machine: with AVX512-FP16 it rounds a dot's sums to float16 at each step.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")


@pytest.fixture
def isa() -> Iterator[str]:
    """The test runs once on each instruction set of this processor (`pytest_pyfunc_call`)."""
    before = processor.isa()
    yield before
    processor.set_isa(before)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "isa" not in pyfuncitem.fixturenames:
        return None
    signature = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in signature}

    def run_on(isa: str) -> None:
        __tracebackhide__ = True
        processor.set_isa(isa)
        pyfuncitem.obj(**arguments | ({"isa": isa} if "isa" in signature else {}))

    parameters.run_all([(isa, partial(run_on, isa)) for isa in processor.available_isas()])
    return True


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The test runs once with each number of threads."""
    before = processor.num_threads()
    processor.set_num_threads(request.param)
    yield request.param
    processor.set_num_threads(before)


@pytest.fixture
def restored_processor() -> Iterator[None]:
    """The test chooses the instruction sets that it runs on, and perhaps the number of threads and the
    form of bfloat16 products.
    """
    yield from restored()


@pytest.fixture
def restored_settings() -> Iterator[None]:
    """What the test calls may change the number of threads, and the instruction set for a while; it
    runs on the one that is set.
    """
    yield from restored()


def restored() -> Iterator[None]:
    before = processor.isa(), processor.num_threads()
    yield
    processor.set_isa(before[0])
    processor.set_num_threads(before[1])
    processor.set_bfloat16_products(os.environ.get("NEURONSIM_BF16_PRODUCTS") or "auto")


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands of neuronsim, called in this process."""
    from neuronsim import cli  # most tests call none, and it takes long to load

    return Commands(capsys, cli.main)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants", "planted bugs (-m mutants)")
    group.addoption("--journal", help="a file of results; what was caught is not run again")
    group.addoption("--minutes", type=float, default=float("inf"), help="begin no row after so long")
    group.addoption("--part", default="1/1", help="K/N: every N-th row, from the K-th")
    group.addoption("--changed-since", help="only rows changed since a commit, or their files or tests")


def pytest_configure(config: pytest.Config) -> None:
    # What a shell starts in the background ignores interrupts, which tests send.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    parameters.ends_at_first = config.getoption("maxfail") == 1
    if hasattr(config, "workerinput"):  # processes beside each other (-n) share the processors
        processor.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"isa", "restored_processor"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("isa_independent")


def pytest_collection_finish() -> None:
    """What was collected lives until the end: the collector of garbage need not walk its objects."""
    gc.collect()
    gc.freeze()
