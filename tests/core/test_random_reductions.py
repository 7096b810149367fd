"""Rules R2, R3 and E8 on 2,000 random reductions: every bit is the twin's."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronsim import dtypes, processor
from neuronsim.profiles import Profile
from tests.core.test_cumulative import rounds_tiles
from tests.core.test_reductions import twin_reduce
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_fold
from tests.support.parameters import each_of
from tests.support.words import BITWISE, FLOATS, INTEGERS, REDUCERS, Words

TYPES = [*FLOATS, *FLOATS, *INTEGERS, "bool"]
PROFILES = [
    Profile(mixed_precision_accumulation=setting, int_to_float=other)
    for setting in ("on", "off")
    for other in ("via_float32", "exact")  # which is none of a reduction's business
]


def random_shape(rng: np.random.Generator, deep: bool) -> list[int]:
    """Of rank 0 to 4, mostly small; a deep one has 500 to 1600 elements on one axis or on two."""
    if deep:
        n = int(rng.integers(500, 1601))
        shape = [[n], [n, 1], [1, n], [2, n // 2], [n // 40, 40], [n // 60, 3, 20]][
            int(rng.integers(6))
        ]
        return [int(v) for v in shape]
    rank = int(rng.integers(0, 5))
    shape = [int(v) for v in rng.integers(1, (1, 60, 9, 5, 4)[rank] + 1, rank)]
    if rank and rng.random() < 0.04:
        shape[int(rng.integers(rank))] = 0
    return shape


def laid_out(rng: np.random.Generator, type_name: str, shape: list[int]) -> Words:
    """Words of a shape, in memory by one of many strides."""
    mode = str(rng.choice(["any", "near", "near", "special"]))
    rank = len(shape)
    layout = rng.choice(["dense", "permuted", "reversed", "sliced", "broadcast"])
    if layout == "permuted":
        order = [int(a) for a in rng.permutation(rank)]
        stored = random_words(rng, type_name, [shape[a] for a in order], mode)
        return np.asarray(stored.transpose(np.argsort(order)))
    if layout == "reversed":
        flipped = tuple(slice(None, None, int(s)) for s in rng.choice([-1, 1], rank))
        return np.asarray(random_words(rng, type_name, shape, mode))[flipped]
    if layout == "sliced":
        steps = [int(s) for s in rng.choice([-2, 1, 2, 3], rank)]
        stored = random_words(
            rng, type_name, [n * abs(s) for n, s in zip(shape, steps, strict=True)], mode
        )
        return np.asarray(stored)[tuple(slice(None, None, s) for s in steps)]
    if layout == "broadcast":
        stored = random_words(
            rng, type_name, [n if rng.random() < 0.5 else min(n, 1) for n in shape], mode
        )
        return np.broadcast_to(stored, shape)
    return np.asarray(random_words(rng, type_name, shape, mode))


@each_of("seed", range(20))
def test_random_reductions_R2_R3_equal_the_twin(seed: int, restored_processor: None) -> None:
    rng = np.random.default_rng([90, seed])
    isas = processor.available_isas()
    for i in range(100):
        processor.set_isa(isas[i % len(isas)])
        processor.set_num_threads(1 + i // 3 % 2)
        deep = i % 10 == 7
        type_name = TYPES[int(rng.integers(len(TYPES)))]
        t = dtypes.DTYPES[type_name]
        is_float = t.kind == "float"
        reducer = str(rng.choice(REDUCERS if is_float else [*REDUCERS, *BITWISE]))
        x = laid_out(rng, type_name, random_shape(rng, deep=deep))
        axes = tuple(
            int(a) for a in rng.permutation(x.ndim)[: x.ndim if deep else rng.integers(0, x.ndim + 1)]
        )
        initial = random_words(rng, type_name, (), str(rng.choice(["near", "special"])))
        profile = PROFILES[int(rng.integers(len(PROFILES)))]
        more: dict[str, Any] = {"dimensions": axes, "reducer": reducer, "profile": profile}
        found = evaluate_fold("reduce", type_name, x, initial, **more)
        options = {"round_tiles": rounds_tiles(profile, type_name, reducer)} if is_float else {}
        expected = twin_reduce(reducer, type_name, x, axes, int(initial), **options)
        np.testing.assert_array_equal(
            found, expected, err_msg=f"{i}: {reducer} of {type_name}{list(x.shape)} over {axes}"
        )
