"""The NumPy k-loop is the twin: every model of M6, every type, special values (D3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuronsim.reference import formats, sums
from tests.core.loop_dot import loop_dot, rounded
from tests.support.draws import random_words
from tests.support.words import FLOATS, Words

pytestmark = pytest.mark.isa_independent

MODELS: list[dict[str, Any]] = [
    {},
    {"tile": 7},
    {"accumulate": "sequential"},
    {"accumulate": "exact"},
    {"accumulate": "product_bf16"},
    {"accumulate": "pairs"},
    {"accumulate_format": "bfloat16"},
    {"accumulate_format": "float16"},
    {"accumulate": "sequential", "accumulate_format": "float16"},
    {"accumulate": "pairs", "accumulate_format": "bfloat16"},
    {"accumulate": "product_bf16", "accumulate_format": "float16"},
]


def twin_dot(a: str, x: Words, b: str, y: Words, result: str, **choices: Any) -> list[list[int]]:
    """The twin's product of words [rows, depth] and [depth, columns]."""
    columns = y.T.tolist()
    return [[sums.dot(a, b, result, row, c, **choices) for c in columns] for row in x.tolist()]


@pytest.mark.parametrize("subnormals", ["keep", "flush"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_loop_is_the_twin(model: dict[str, Any], subnormals: str) -> None:
    types = FLOATS[2:] if model.get("accumulate") == "product_bf16" else FLOATS
    for seed in range(30):
        rng = np.random.default_rng([70, seed])
        a, b, result = (str(t) for t in (*rng.choice(types, 2), rng.choice(FLOATS)))
        mode = ["any", "near", "special"][seed % 3]
        depth = int(rng.choice([0, 1, 2, 3, 16, 127, 129, 260]))
        x, y = random_words(rng, a, (2, depth), mode), random_words(rng, b, (depth, 2), mode)
        if mode != "near":  # else NaN is everywhere
            x[rng.random(x.shape) < 0.8] = 0
        if seed % 5 == 0 and a in FLOATS[:3] and b in FLOATS[:3]:  # sums near 2^-126
            x, y = (
                (v & v.dtype.type(0x807F << 8 * (v.itemsize - 2)))
                | rng.integers(60, 66, v.shape).astype(v.dtype) << v.dtype.type(8 * v.itemsize - 9)
                for v in (x, y)
            )
        found = loop_dot(a, x, b, y, result, subnormals=subnormals, **model)
        expected = twin_dot(a, x, b, y, result, subnormals=subnormals, **model)
        assert found.tolist() == expected, (seed, a, b, result, depth)


@pytest.mark.parametrize("type_name", FLOATS)
def test_the_oracles_rounding_is_the_twins(type_name: str) -> None:
    rng = np.random.default_rng(71)
    f = formats.FORMATS[type_name]
    scale = rng.integers(-f.bias - f.mantissa_bits - 2, f.bias + 3, 3000)
    ties = rng.integers(0, 1 << (f.mantissa_bits + 3), 3000) * 2.0 ** -(f.mantissa_bits + 2)
    values = np.ldexp(np.where(rng.random(3000) < 0.5, ties, rng.random(3000) * 2), scale)
    values = np.concatenate([values, -values, [0.0, -0.0, np.inf, -np.inf, np.nan]])
    for flush in (False, True):
        subnormals = "flush" if flush else "keep"
        expected = [
            formats.round_number(type_name, formats.exact(float(v)), subnormals=subnormals)
            for v in values
        ]
        assert rounded(type_name, values, flush).tolist() == expected
