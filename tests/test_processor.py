"""The instruction set and the threads: functions, environment variables and their errors."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import pytest

from neuronsim import _core, processor
from neuronsim.errors import InvalidArgument
from tests.support.scripts import load_script

REPORT = "from neuronsim import isa, num_threads; print(isa(), num_threads())"


def test_isas_are_listed_narrowest_first() -> None:
    found = processor.available_isas()
    assert len(set(found)) == len(found) >= 1
    assert list(found) == _core.available_isas()
    if platform.machine() == "x86_64":
        order = ["x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"]
        assert list(found) == [name for name in order if name in found]
        assert found[0] == "x86-64"


def test_set_isa(isa: str) -> None:
    assert processor.isa() == isa == _core.isa()


@pytest.mark.parametrize("name", ["x86-64-v9", "", "AVX2", "x86_64"])
def test_set_isa_refuses_others(name: str) -> None:
    before = processor.isa()
    with pytest.raises(InvalidArgument, match=processor.available_isas()[0]):
        processor.set_isa(name)
    assert processor.isa() == before
    with pytest.raises(ValueError, match=r"no kernels were built|does not have"):
        _core.select_isa(name)


def test_set_num_threads(restored_settings: None) -> None:
    for n in (1, 2, 5, 1):
        processor.set_num_threads(n)
        assert processor.num_threads() == n


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, 2**40])
def test_set_num_threads_refuses_others(n: object) -> None:
    before = processor.num_threads()
    with pytest.raises(InvalidArgument, match="threads"):
        processor.set_num_threads(n)  # type: ignore[arg-type]
    assert processor.num_threads() == before


def test_defaults_are_the_widest_isa_and_the_usable_processors() -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("NEURONSIM_")}
    done = subprocess.run([sys.executable, "-c", REPORT], env=plain, capture_output=True, text=True)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert done.stdout.split() == [processor.available_isas()[-1], str(usable)]


def imported_anew(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    """The module as a process with these variables has it."""
    for name in [n for n in os.environ if n.startswith("NEURONSIM_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_script(processor.__file__)


FORMS = ["fma", *(["pairs"] if _core.pairs_are_proved() else [])]


def test_environment_chooses(restored_processor: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in processor.available_isas():
        assert imported_anew(monkeypatch, NEURONSIM_ISA=name).isa() == name
    assert imported_anew(monkeypatch, NEURONSIM_NUM_THREADS="3").num_threads() == 3
    plain = imported_anew(monkeypatch)
    default = plain.isa(), plain.num_threads()
    empty = imported_anew(monkeypatch, NEURONSIM_NUM_THREADS="", NEURONSIM_ISA="")
    assert (empty.isa(), empty.num_threads()) == default
    for form in FORMS:
        anew = imported_anew(monkeypatch, NEURONSIM_BF16_PRODUCTS=form)
        assert (anew.bfloat16_products(), anew.bfloat16_products(4)) == (form, form)
    for value in ("", "auto"):  # a timing chooses
        anew = imported_anew(monkeypatch, NEURONSIM_BF16_PRODUCTS=value)
        assert anew.bfloat16_products() in FORMS
        assert anew.bfloat16_products(4) == FORMS[-1]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("NUM_THREADS", v, "1 to 1024") for v in ("0", "-1", "two", "1.5", "99999999999999")),
        ("ISA", "avx2", ", ".join(processor.available_isas())),
        ("BF16_PRODUCTS", "both", "auto, pairs, fma"),
    ],
)
def test_a_wrong_environment_is_told_at_the_first_use(
    name: str, value: str, said: str, restored_processor: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = imported_anew(monkeypatch, **{f"NEURONSIM_{name}": value})
    with pytest.raises(InvalidArgument, match=f"NEURONSIM_{name}") as told:
        anew.isa()
    assert said in str(told.value)


def test_set_bfloat16_products(restored_processor: None) -> None:
    for form in FORMS:
        processor.set_isa(processor.available_isas()[-1])
        processor.set_bfloat16_products(form)
        assert processor.bfloat16_products() == form
    processor.set_isa(processor.available_isas()[0])
    assert processor.bfloat16_products() == processor.bfloat16_products(1) == "fma"
    for wrong in ("vdpbf16ps", "", None, 1):
        with pytest.raises(InvalidArgument, match="auto, pairs, fma"):
            processor.set_bfloat16_products(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["x", None, 1.5, True, -1, 2**70])
def test_rows_of_bfloat16_products_that_are_none(rows: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"bfloat16_products.*integer from 0"):
        processor.bfloat16_products(rows)


def test_pairs_are_refused_where_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "pairs_are_proved", lambda: False)
    with pytest.raises(InvalidArgument, match="take fma or auto"):
        processor.set_bfloat16_products("pairs")


def test_threads_that_do_not_start_are_done_without() -> None:
    """With little address space only some of 64 threads start; the work is done all the same."""
    program = (
        "import resource, numpy, neuronsim as ns\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 120 * 2**20,) * 2)\n"
        "ns.set_num_threads(64)\n"
        "x = ns.asarray(numpy.ones((512, 512), numpy.float32))\n"
        "print(float((x @ x)[0, 0]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "512.0\n"), done.stderr
