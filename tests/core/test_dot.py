"""Rules M1-M4, M6, M7 and C4: 2,000 random matrix products of any types, shapes and layouts against the
twin, on every instruction set and with 1 and 2 threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from tests.support.draws import random_words
from tests.support.evaluation import evaluate_dot
from tests.support.parameters import some
from tests.support.processors import every_processor
from tests.support.words import FLOATS, Words

NARROW = FLOATS[2:]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
MODELS = ["psum128"] * 4 + ["sequential", "exact", "product_bf16", "pairs"]
ACCUMULATE = [None] * 4 + ["bfloat16", "float16"]
# Around each multiple of 64 (and so of 128 and 256), and none to three.
DEPTHS = [0, 1, 2, 3, *(m + d for m in range(64, 705, 64) for d in (-1, 0, 1))]
GROUPS, GROUP = 40, 50


@dataclass(frozen=True)
class Problem:
    """One random dot; `left` and `right` are the operands as [batch, rows, depth], for the twin."""

    types: tuple[str, str, str]
    x: Words
    y: Words
    left: Words
    right: Words
    dimensions: ops.DotDimensions
    profile: Profile
    accumulate: str | None
    layout: str
    attributes: dict[str, Any] = field(default_factory=dict)


def split(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """One dimension, or two with the same product, or one and a dimension of 1."""
    divisors = [d for d in (2, 3, 5, 7, 8, 16) if n % d == 0]
    if n and rng.random() < 0.4:
        d = int(rng.choice([1, *divisors]))
        return (d, n // d) if rng.random() < 0.5 else (n // d, d)
    return (n,)


def laid_out(rng: np.random.Generator, words: Words) -> tuple[str, Words]:
    """The same words by other strides; `broadcast` repeats the first along an axis by stride 0."""
    name = str(rng.choice(["dense", "transposed", "backwards", "apart", "broadcast"]))
    if name == "transposed":
        axes = rng.permutation(words.ndim)
        return name, np.ascontiguousarray(words.transpose(axes)).transpose(np.argsort(axes))
    if name == "backwards":
        flipped = np.flip(words)
        return name, np.flip(np.ascontiguousarray(flipped))
    if name == "apart":
        wide = np.repeat(words, 3, axis=-1)
        return name, wide[..., ::3]
    if name == "broadcast" and words.size:
        axis = int(rng.integers(0, words.ndim))
        return name, np.broadcast_to(words.take([0], axis), words.shape)
    return "dense", words


def drawn(rng: np.random.Generator, type_name: str, dims: Sequence[int], mode: str) -> Words:
    if mode == "tiny" and dtypes.DTYPES[type_name].exponent_bits == 8:  # products near 2^-126
        words = random_words(rng, type_name, dims)
        shift = dtypes.DTYPES[type_name].itemsize * 8 - 9
        kept = words & words.dtype.type(((1 << shift) - 1) | 1 << (shift + 8))
        return kept | rng.integers(58, 68, dims).astype(words.dtype) << words.dtype.type(shift)
    words = random_words(rng, type_name, dims, "near" if mode == "tiny" else mode)
    if mode in ("any", "special") and type_name in FLOATS:  # or NaN would be in every sum
        words[rng.random(dims) < 0.9] = 0
    return words


def draw_problem(rng: np.random.Generator) -> Problem:
    model, accumulate, kind = str(rng.choice(MODELS)), rng.choice(ACCUMULATE), rng.random()
    if kind < 0.1:  # M7
        a, b = (str(t) for t in rng.choice(INTEGERS, 2))
        result, accumulate = str(rng.choice(INTEGERS)), None
    else:
        pool = NARROW if model == "product_bf16" or kind < 0.6 else FLOATS
        a, b = (str(t) for t in rng.choice(pool, 2))
        if kind > 0.9:
            b = a
        result = str(rng.choice(["float32", a, b, *FLOATS]))
    if model not in ("psum128", "sequential"):  # M6: the others have no such type
        accumulate = None
    depth = int(rng.choice(DEPTHS))
    sizes = {
        "b": split(rng, int(rng.integers(1, 3)) if rng.random() < 0.3 else 1),
        "m": split(rng, int(rng.integers(1, 3))),
        "n": split(rng, int(rng.integers(1, 4))),
        "k": split(rng, depth),
    }
    if sizes["b"] == (1,):
        sizes["b"] = ()
    named = {kind: [(kind, i) for i in range(len(s))] for kind, s in sizes.items()}
    listed = {kind: [named[kind][i] for i in rng.permutation(len(sizes[kind]))] for kind in "bk"}
    mode = str(rng.choice(["any", "near", "near", "special", "tiny"]))
    operands, axes = [], []
    for t, free in ((a, "m"), (b, "n")):
        own = [*named["b"], *named[free], *named["k"]]
        own = [own[i] for i in rng.permutation(len(own))]
        words = drawn(rng, t, [sizes[kind][i] for kind, i in own], mode)
        operands.append(laid_out(rng, words))
        axes.append(own)
    (layout_x, x), (layout_y, y) = operands

    def matrices(words: Words, own: list[tuple[str, int]], free: str) -> Words:
        moved = words.transpose([own.index(n) for n in [*listed["b"], *named[free], *listed["k"]]])
        rows = int(np.prod(sizes[free]))
        return np.ascontiguousarray(moved).reshape(int(np.prod(sizes["b"])), rows, depth)

    return Problem(
        (a, b, result),
        x,
        y,
        matrices(x, axes[0], "m"),
        matrices(y, axes[1], "n"),
        ops.DotDimensions(
            tuple(axes[0].index(n) for n in listed["k"]),
            tuple(axes[1].index(n) for n in listed["k"]),
            tuple(axes[0].index(n) for n in listed["b"]),
            tuple(axes[1].index(n) for n in listed["b"]),
        ),
        Profile(
            accumulate=model,
            subnormals="flush" if rng.random() < 0.3 else "keep",
            fp8_overflow=str(rng.choice(["inf", "inf", "nan", "saturate"])),
        ),
        None if accumulate is None else str(accumulate),
        f"{layout_x}, {layout_y}",
    )


def values_of(type_name: str, words: Words) -> list[int]:
    if type_name == "bool":
        return [int(w != 0) for w in words.tolist()]
    found: list[int] = words.view(dtypes.DTYPES[type_name].numpy).tolist()
    return found


def twin_output(p: Problem, row: Words, column: Words) -> int:
    a, b, result = p.types
    if result in FLOATS:
        return sums.dot(
            a,
            b,
            result,
            row.tolist(),
            column.tolist(),
            accumulate=p.profile.accumulate,
            accumulate_format=p.accumulate or "float32",
            subnormals=p.profile.subnormals,
            fp8_overflow=p.profile.fp8_overflow,
        )
    lhs, rhs = values_of(a, row), values_of(b, column)
    if result == "bool":
        return sums.dot_bool(lhs, rhs)
    t = dtypes.DTYPES[result]
    return sums.dot_integer(lhs, rhs, bits=t.bits, signed=False)


def twin_words(p: Problem) -> list[int]:
    pairs = zip(p.left, p.right, strict=True)
    return [twin_output(p, row, column) for x, y in pairs for row in x for column in y]


@pytest.mark.parametrize("group", some(range(GROUPS), 16))
def test_dot_M2_M6_M7_equals_the_twin(group: int, restored_processor: None) -> None:
    rng = np.random.default_rng([60, group])
    problems = [draw_problem(rng) for _ in range(GROUP)]
    expected = [twin_words(p) for p in problems]
    for path in every_processor():
        for number, (p, words) in enumerate(zip(problems, expected, strict=True)):
            a, b, result = p.types
            accumulate = p.accumulate and dtypes.DTYPES[p.accumulate]
            more = {"dot_dimensions": p.dimensions, "profile": p.profile, "accumulate": accumulate}
            found = evaluate_dot(a, p.x, b, p.y, result, **more)
            assert found.ravel().tolist() == words, (path, number, p.types, more, p.layout)


def test_control_the_random_problems_meet_every_case() -> None:
    """What the 2,000 problems are made of, so that a change of the drawing cannot empty a case."""
    seen: Counter[str] = Counter()
    for group in range(GROUPS):
        rng = np.random.default_rng([60, group])
        for _ in range(GROUP):
            p = draw_problem(rng)
            a, b, result = p.types
            seen[f"{a} x {b}"] += 1
            seen[f"depth {p.left.shape[2]}"] += 1
            seen[f"result {result}"] += 1
            seen.update(p.layout.split(", "))
            if result in FLOATS:
                seen[f"{p.profile.accumulate}, {p.accumulate}, {p.profile.subnormals}"] += 1
    pairs = [f"{a} x {b}" for a in FLOATS for b in FLOATS]
    models = [
        f"{m}, {t}, {s}"
        for m in set(MODELS)
        for t in ("bfloat16", "float16", None)
        for s in ("keep", "flush")
        if t is None or m in ("psum128", "sequential")
    ]
    layouts = ["dense", "transposed", "backwards", "apart", "broadcast"]
    cases = [*pairs, *models, *layouts, *(f"depth {n}" for n in DEPTHS)]
    cases += [f"result {t}" for t in FLOATS + INTEGERS]
    assert [c for c in cases if seen[c] < 2] == []


@pytest.mark.parametrize(
    "special", [0x7F800000, 0xFF800000, 0x7FC12345, 0xFFC00001, 0x00000001, 0x80000003]
)
def test_dot_M2_single_specials(special: int, isa: str) -> None:
    # One Inf, NaN or subnormal among ones, at each place around the tile's end.
    for place in (0, 127, 128, 129):
        x = np.full((2, 130), 0x3F800000, np.uint32)
        x[1, place] = special
        y = np.full((130, 2), 0x3F800000, np.uint32)
        y[:, 1] = 0x00000001
        found = evaluate_dot("float32", x, "float32", y)
        rows, columns = x.tolist(), y.T.tolist()
        assert found.tolist() == [[sums.dot(*["float32"] * 3, r, c) for c in columns] for r in rows]


def test_dot_M2_no_contraction_gives_plus_zero() -> None:
    empty = np.zeros((3, 0), np.uint16)
    for model in set(MODELS):
        profile = Profile(accumulate=model)
        found = evaluate_dot("bfloat16", empty, "bfloat16", empty.T.copy(), "bfloat16", profile=profile)
        np.testing.assert_array_equal(found, np.zeros((3, 3), np.uint16))
