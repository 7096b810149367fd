"""Every way in which this processor runs the core; the fixture `restored_processor` restores it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.support.evaluation import evaluate
from tests.support.words import Words

from neuronsim import processor


def every_processor(threads: Sequence[int] = (1, 2)) -> Iterator[str]:
    """Sets each instruction set with each number of threads."""
    for isa, count in itertools.product(processor.available_isas(), threads):
        processor.set_isa(isa)
        processor.set_num_threads(count)
        yield f"{isa}, {count} threads"


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
