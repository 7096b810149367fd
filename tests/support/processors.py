"""Every way in which this processor runs the core; the fixture `restored_processor` restores it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from tests.support.evaluation import evaluate
from tests.support.words import Words

from neuronsim import _core, processor

PAIRS = "x86-64-v4-bf16"  # the instruction set that has VDPBF16PS


def every_processor(threads: Sequence[int] = (1, 2)) -> Iterator[str]:
    """Sets each instruction set with each number of threads, and where there are pairs of bfloat16
    products both forms of these, whichever is quicker here.
    """
    for isa, count in itertools.product(processor.available_isas(), threads):
        processor.set_isa(isa)
        processor.set_num_threads(count)
        has_pairs = isa == PAIRS and _core.pairs_are_proved()
        for form in ("fma", "pairs") if has_pairs else ("auto",):
            processor.set_bfloat16_products(form)
            yield f"{isa}, {count} threads, {form}"


def check_everywhere(
    run: Callable[[], Words], expected: Words | None = None, threads: Sequence[int] = (1,)
) -> Words:
    """What is computed is the same on each of them, and what is expected where that is given."""
    for where in every_processor(threads):
        found = run()
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected, err_msg=where)
    assert expected is not None
    return expected


def everywhere(
    name: str, *operands: tuple[str, Words], threads: Sequence[int] = (1,), **more: Any
) -> Words:
    """A row of the op table, whose result is the same on each of them."""
    return check_everywhere(partial(evaluate, name, *operands, **more), threads=threads)
