"""Rule R7: batch-norm-training, -inference and -grad against the twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import composites as twin
from tests.support.draws import random_words
from tests.support.parameters import each_of
from tests.support.words import FLOATS, Words, as_bits, words

FIELDS = ["two_pass", "xla"]
SHAPES = [((4, 3, 5), 1), ((2, 600), 0), ((600, 2), 1), ((3, 4), 1), ((5,), 0), ((1, 2, 1, 1), 1)]


def run(
    opcode: str, operands: list[tuple[str, Words]], epsilon: float, feature: int, **fields: str
) -> list[Words]:
    arrays = [as_bits(name, w) for name, w in operands]
    row, attributes = ops.by_opcode(opcode, {}), {"epsilon": epsilon, "feature_index": feature}
    inferred = row.infer([a.type for a in arrays], attributes)
    found = ops.evaluate(row, arrays, attributes, ops.Setting(Profile(**fields)))
    assert tuple(f.type for f in found) == (
        (inferred,) if isinstance(inferred, ops.ArrayType) else inferred
    )
    return [words(f) for f in found]


def operands_of(
    shape: tuple[int, ...], feature: int, type_name: str, seed: int
) -> tuple[Words, Words, list[Words]]:
    """The array, another like it, and four of one float32 for each channel, the last not negative."""
    rng = np.random.default_rng([seed, len(shape), feature])
    mode = ["near", "near", "special"][seed % 3]
    arrays = [random_words(rng, type_name, shape, mode) for _ in range(2)]
    terms = [random_words(rng, "float32", (shape[feature],), "near") for _ in range(4)]
    terms[3] &= np.uint32(0x7FFFFFFF)
    return arrays[0], arrays[1], terms


def by_channel(shape: tuple[int, ...], feature: int, array: Words) -> list[list[int]]:
    moved = np.moveaxis(array, feature, 0).reshape(shape[feature], -1)
    return [row.tolist() for row in moved]


def assembled(shape: tuple[int, ...], feature: int, rows: list[list[int]]) -> list[Any]:
    rest = [n for d, n in enumerate(shape) if d != feature]
    return np.moveaxis(np.array(rows).reshape(shape[feature], *rest), 0, feature).tolist()


# Beyond a tile of a sum with one type each: the twin is slow.
CASES = [
    (shape, feature, name, seed)
    for shape, feature in SHAPES
    for name in FLOATS
    for seed in range(3)
    if max(shape) < 512 or (seed == 0 and name == ("float32" if feature else "bfloat16"))
]


@each_of("field", FIELDS)
@each_of(("shape", "feature", "type_name", "seed"), CASES, ids=str)
def test_batch_norms_R7_equal_the_twin(
    shape: tuple[int, ...], feature: int, type_name: str, seed: int, field: str
) -> None:
    epsilon = [1e-5, 0.0, 1.0][seed]
    x, grad, (weight, bias, mean, variance) = operands_of(shape, feature, type_name, seed)
    rows, channels = by_channel(shape, feature, x), range(shape[feature])
    wide = [("float32", t) for t in (weight, bias, mean, variance)]

    found = run("batch-norm-training", [(type_name, x), *wide[:2]], epsilon, feature, batch_norm=field)
    one_pass = field == "xla"
    expected = [
        twin.batch_norm_training(
            *(type_name, rows[c], int(weight[c]), int(bias[c])), epsilon=epsilon, one_pass=one_pass
        )
        for c in channels
    ]
    assert found[0].tolist() == assembled(shape, feature, [e[0] for e in expected])
    assert [f.tolist() for f in found[1:]] == [[e[n] for e in expected] for n in (1, 2)]

    (found_row,) = run(
        "batch-norm-inference", [(type_name, x), *wide], epsilon, feature, batch_norm=field
    )
    formula = twin.xla_batch_norm if one_pass else twin.batch_norm
    terms = [[int(t[c]) for t in (mean, variance, weight, bias)] for c in channels]
    assert found_row.tolist() == assembled(
        shape, feature, [formula(type_name, rows[c], *terms[c], epsilon=epsilon) for c in channels]
    )

    operands = [(type_name, x), wide[0], wide[2], wide[3], (type_name, grad)]
    found = run("batch-norm-grad", operands, epsilon, feature, batch_norm=field)
    grads = by_channel(shape, feature, grad)
    expected = [
        twin.batch_norm_grad(
            *(type_name, rows[c], *(int(t[c]) for t in (weight, mean, variance)), grads[c]),
            epsilon=epsilon,
        )
        for c in channels
    ]
    assert found[0].tolist() == assembled(shape, feature, [e[0] for e in expected])
    assert [f.tolist() for f in found[1:]] == [[e[n] for e in expected] for n in (1, 2)]


def test_batch_norm_field_changes_the_variance() -> None:
    """In one pass a large mean cancels; in two it does not."""
    x = (np.float32(4096) + np.arange(8, dtype=np.float32) / 8).view(np.uint32).reshape(8, 1)
    terms = [("float32", np.full(1, t, np.float32).view(np.uint32)) for t in (1.0, 0.0)]
    variances = [
        run("batch-norm-training", [("float32", x), *terms], 0.0, 1, batch_norm=field)[2].view(
            np.float32
        )
        for field in FIELDS
    ]
    assert variances[0] == np.float32(0.08203125)
    assert variances[1] != variances[0]


def test_batch_norm_of_float64_is_the_hosts() -> None:
    """H1, against the formula in NumPy."""
    rng = np.random.default_rng(4)
    x, grad = rng.standard_normal((2, 6, 3, 4))
    weight, bias = rng.standard_normal((2, 3))
    words = [("float64", a.view(np.uint64)) for a in (x, weight, bias)]
    out, mean, variance = (w.view(np.float64) for w in run("batch-norm-training", words, 1e-3, 1))
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-13)
    np.testing.assert_allclose(variance, x.var((0, 2)), rtol=1e-13)
    centred = x - x.mean((0, 2), keepdims=True)
    scale = weight / np.sqrt(variance + 1e-3)
    np.testing.assert_allclose(out, centred * scale[:, None] + bias[:, None], rtol=1e-12)
    words = [("float64", a.view(np.uint64)) for a in (x, weight, mean, variance, grad)]
    of_x, of_weight, of_bias = (w.view(np.float64) for w in run("batch-norm-grad", words, 1e-3, 1))
    np.testing.assert_allclose(of_bias, grad.sum((0, 2)), rtol=1e-12)
    total = (grad * centred).sum((0, 2))
    np.testing.assert_allclose(of_weight, total / np.sqrt(variance + 1e-3), rtol=1e-12)
    inner = grad - grad.mean((0, 2), keepdims=True)
    inner -= centred * (total / 24 / (variance + 1e-3))[:, None]
    np.testing.assert_allclose(of_x, inner * scale[:, None], rtol=1e-11, atol=1e-14)


def test_results_round_stochastically_by_words_of_their_own() -> None:
    """S2: the words of a channel's mean and of its variance are independent."""
    x = np.broadcast_to(np.array([[0x3F80], [0x3F81], [0xBF9A]], np.uint16), (3, 4096))
    terms = [("float32", np.zeros(4096, np.uint32)) for _ in range(2)]
    operands = [("bfloat16", np.ascontiguousarray(x)), *terms]
    _, mean, variance = run("batch-norm-training", operands, 0.0, 1, rounding="stochastic")
    up = [words == words.max() for words in (mean, variance)]
    assert [len(np.unique(words)) for words in (mean, variance)] == [2, 2]
    assert all(0.15 < u.mean() < 0.85 for u in up)
    assert abs((up[0] & up[1]).mean() - up[0].mean() * up[1].mean()) < 0.03


@pytest.mark.parametrize(
    ("shapes", "feature", "error"),
    [
        ([(2, 3), (3,), (3,)], 2, "feature_index 2"),
        ([(2, 3), (3,), (3,)], -1, "feature_index -1"),
        ([(2, 3), (2,), (3,)], 1, r"float32\[2\]"),
    ],
)
def test_batch_norm_of_what_does_not_fit(
    shapes: list[tuple[int, ...]], feature: int, error: str
) -> None:
    row = ops.by_opcode("batch-norm-training", {})
    types = [ops.ArrayType(dtypes.float32, s) for s in shapes]
    with pytest.raises(InvalidArgument, match=error):
        row.infer(types, {"epsilon": 1e-5, "feature_index": feature})
    grad = ops.by_opcode("batch-norm-grad", {})
    x, own = ops.ArrayType(dtypes.float32, (2, 3)), ops.ArrayType(dtypes.float32, (3,))
    with pytest.raises(InvalidArgument, match="gradient"):
        grad.infer([x, own, own, own, own], {"epsilon": 1e-5, "feature_index": 1})
    with pytest.raises(UnsupportedType, match="int32"):
        row.infer([x._replace(dtype=dtypes.int32), own, own], {"epsilon": 0.0, "feature_index": 1})
