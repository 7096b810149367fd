"""Every way in which this processor runs the core; the fixture `restored_processor` restores it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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


def everywhere(
    name: str, *operands: tuple[str, Words], threads: Sequence[int] = (1,), **more: Any
) -> Words:
    """A row of the op table, whose result is the same on each of them."""
    found: Words | None = None
    for where in every_processor(threads):
        ours = evaluate(name, *operands, **more)
        assert found is None or np.array_equal(ours, found), (name, where)
        found = ours
    assert found is not None
    return found
