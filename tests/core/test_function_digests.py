"""Rule D1: the functions give the same bits on every instruction set and with any number of threads.

    pytest -m exhaustive tests/core/test_function_digests.py

takes 2^24 inputs for each function and prints their digests with `-s`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from neuronsim import _core, processor
from tests.support.evaluation import evaluate
from tests.support.parameters import some
from tests.support.words import Words

PAIRS = ["power", "atan2", "hypot", "logaddexp", "logaddexp2"]
FUNCTIONS = [name for name, _, kind in _core.OPS if kind == "function"]
FUNCTIONS += ["sqrt", "reciprocal", *PAIRS]
CHUNK = 1 << 18


def drawn(seed: int, operand: int) -> Words:
    """Any words, numbers uniform in [-8, 8], and words with exponents about that of 1; mixed, so that
    a vector holds all of them.
    """
    rng = np.random.default_rng([17, seed, operand])
    words = rng.integers(0, 1 << 32, CHUNK, np.uint32)
    words[1::4] = rng.uniform(-8, 8, CHUNK // 4).astype(np.float32).view(np.uint32)
    for first in (2, 3):
        exponents = rng.integers(100, 133, CHUNK // 4).astype(np.uint32) << np.uint32(23)
        words[first::4] = words[first::4] & np.uint32(0x807FFFFF) | exponents
    return words


def digest(name: str, chunks: int, row: Callable[..., Words] = evaluate) -> str:
    found = hashlib.sha256()
    for seed in range(chunks):
        operands = [("float32", drawn(seed, n)) for n in range(2 if name in PAIRS else 1)]
        found.update(row(name, *operands))
    return found.hexdigest()


def differing(name: str, chunks: int) -> list[tuple[str, int]]:
    """The instruction sets and numbers of threads whose digest is not the first one's."""
    found = {}
    for isa in processor.available_isas():
        for threads in (1, 2):
            processor.set_isa(isa)
            processor.set_num_threads(threads)
            found[isa, threads] = digest(name, chunks)
    first = next(iter(found.values()))
    print(f"{name}: {chunks * CHUNK} inputs, {first}", flush=True)
    return [way for way, one in found.items() if one != first]


@pytest.mark.parametrize("chunks", some([1, 64], 1))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_D1_at_a_quarter_of_a_million_inputs_or_sixteen(
    restored_processor: None, name: str, chunks: int
) -> None:
    assert differing(name, chunks) == []
