"""Rule R7: composites against the twin and against their steps as array functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import _core, ops
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import composites as twin
from tests.support.draws import random_words
from tests.support.parameters import each_of, some
from tests.support.processors import every_processor
from tests.support.words import FLOATS, Words, as_bits, words

BY_ROWS = ["softmax", "log_softmax", "layer_norm", "rms_norm"]
STATISTICS = ["logsumexp", "mean", "var", "std", "vector_norm"]
COMPOSITES = [*BY_ROWS, *STATISTICS]
LENGTHS = [1, 2, 16, 17, 511, 512, 513, 1024]


def array(type_name: str, words: Words) -> ns.Array:
    return ns.Array(as_bits(type_name, words))


def attributes_of(name: str, rng: np.random.Generator) -> dict[str, Any]:
    if name in ("layer_norm", "rms_norm"):
        return {"epsilon": float(rng.choice([1e-5, 1e-6, 0.0, 1.0]))}
    return {"correction": float(rng.choice([0, 1, 0.5]))} if name in ("var", "std") else {}


def evaluated(
    name: str, type_name: str, x: Words, axes: tuple[int, ...], terms: dict[str, Words], **more: Any
) -> Words:
    if name in ("layer_norm", "rms_norm"):
        more["terms"] = tuple(terms)
    operands = [array(type_name, x), *(array("float32", t) for t in terms.values())]
    found = ops.apply(name, [o.bits for o in operands], dimensions=axes, **more)
    assert found.dtype.name == type_name
    return words(ns.Array(found))


def by_twin(
    name: str, type_name: str, x: Words, axes: tuple[int, ...], terms: dict[str, Words], **more: Any
) -> Words:
    kept = [d for d in range(x.ndim) if d not in axes]
    order = [*kept, *sorted(axes)]
    moved = x.transpose(order)
    rows = moved.reshape([*moved.shape[: len(kept)], -1]) if x.size else moved
    flat = {key: t.ravel().tolist() for key, t in terms.items()}
    function: Callable[..., list[int]] = getattr(twin, name)
    out = np.empty(rows.shape if name in BY_ROWS else rows.shape[:-1], x.dtype)
    for i in np.ndindex(rows.shape[:-1]):
        found = function(type_name, rows[i].tolist(), **flat, **more)
        out[i] = found if name in BY_ROWS else found[0]
    return out.reshape(moved.shape).transpose(np.argsort(order)) if name in BY_ROWS else out


def draw_terms(
    name: str, shape: list[int], axes: tuple[int, ...], rng: np.random.Generator
) -> dict[str, Words]:
    names = {"layer_norm": ["weight", "bias"], "rms_norm": ["weight"]}.get(name, [])
    own = [shape[a] for a in sorted(axes)]
    return {n: random_words(rng, "float32", own, "near") for n in names if rng.random() < 0.6}


@pytest.mark.parametrize("seed", some(range(60), 24))
def test_composite_R7_equals_the_twin(seed: int) -> None:
    """Random shapes, axes, types, layouts and special values."""
    for name in COMPOSITES:
        rng = np.random.default_rng([seed, COMPOSITES.index(name)])
        type_name = FLOATS[seed % len(FLOATS)]
        rank = int(rng.integers(1, 4))
        shape = [int(n) for n in rng.integers(1, 8, rank)]
        axes = tuple(int(a) for a in rng.permutation(rank)[: rng.integers(1, rank + 1)])
        mode = ["near", "near", "any", "special"][seed % 4]
        x = random_words(rng, type_name, shape, mode)
        if seed % 3 == 1:
            x = np.asfortranarray(x)
        elif seed % 3 == 2:
            x = x[::-1].transpose()[::2].transpose()
        terms = draw_terms(name, list(x.shape), axes, rng)
        more = attributes_of(name, rng)
        found = evaluated(name, type_name, x, axes, terms, **more)
        np.testing.assert_array_equal(found, by_twin(name, type_name, x, axes, terms, **more))


@each_of(
    ("type_name", "length"), [*(("float32", n) for n in LENGTHS), ("bfloat16", 17), ("bfloat16", 513)]
)
@each_of("name", COMPOSITES)
def test_composite_R7_around_the_tile(
    name: str, type_name: str, length: int, restored_processor: None
) -> None:
    """The twin's bits on every instruction set and with one and two threads."""
    rng = np.random.default_rng(length)
    x = random_words(rng, type_name, (70, length), "near")
    x[3, length // 2] = words(ns.asarray(math.inf, type_name))
    x[5, 0] = words(ns.asarray(math.nan, type_name)) | (1 << (8 * x.itemsize - 1))
    terms = draw_terms(name, [length], (0,), rng)
    more = attributes_of(name, rng)
    sampled = [0, 3, 5, 33] if length > 100 else [0, 3, 5, 33, 69]
    expected = by_twin(name, type_name, x[sampled], (1,), terms, **more)
    seen = set()
    for _ in every_processor():
        found = evaluated(name, type_name, x, (1,), terms, **more)
        np.testing.assert_array_equal(found[sampled], expected)
        seen.add(found.tobytes())
    assert len(seen) == 1


def by_array_functions(name: str, x: ns.Array, **more: Any) -> ns.Array:
    """The formula over the last axis as a user would write it: every function rounds to float32."""
    wide = ns.astype(x, "float32")
    total = lambda v: ns.sum(v, -1, keepdims=True)  # noqa: E731
    n = x.shape[-1]
    if name in ("softmax", "log_softmax"):
        centred = wide - ns.max(wide, -1, keepdims=True)
        powers = ns.exp(centred)
        if name == "softmax":
            return ns.astype(powers / total(powers), x.dtype)
        return ns.astype(centred - ns.log(total(powers)), x.dtype)
    if name == "logsumexp":
        top = ns.max(wide, -1, keepdims=True)
        return ns.astype(ns.log(total(ns.exp(wide - top))) + top, x.dtype).reshape(x.shape[:-1])
    centred = wide if name in ("rms_norm", "vector_norm") else wide - total(wide) / n
    squares = total(centred * centred)
    if name in ("layer_norm", "rms_norm"):
        return ns.astype(centred * ns.rsqrt(squares / n + more["epsilon"]), x.dtype)
    statistic = {
        "mean": lambda: total(wide) / n,
        "var": lambda: squares / (n - more["correction"]),
        "std": lambda: ns.sqrt(squares / (n - more["correction"])),
        "vector_norm": lambda: ns.sqrt(squares),
    }[name]()
    return ns.astype(statistic, x.dtype).reshape(x.shape[:-1])


@each_of("type_name", FLOATS)
@each_of("name", COMPOSITES)
def test_composite_R7_equals_its_steps(name: str, type_name: str) -> None:
    rng = np.random.default_rng(11)
    more = attributes_of(name, rng)
    for shape in ((300, 1000), (9, 40, 130), (2, 70_000), (1, (1 << 20) + 1), (2000, 3)):
        x = random_words(rng, type_name, shape, "near")
        found = evaluated(name, type_name, x, (len(shape) - 1,), {}, **more)
        expected = by_array_functions(name, array(type_name, x), **more)
        np.testing.assert_array_equal(found, words(expected))


@pytest.mark.parametrize("type_name", FLOATS)
def test_composite_R7_other_axes_are_rows_too(type_name: str) -> None:
    x = array(type_name, random_words(np.random.default_rng(2), type_name, (40, 3, 50), "near"))
    for axis in (0, 1, -2):
        turned = ns.permute_dims(x, tuple(np.argsort([d == axis % 3 for d in range(3)], kind="stable")))
        back = np.moveaxis(words(ns.nn.softmax(turned)), -1, axis % 3)
        np.testing.assert_array_equal(words(ns.nn.softmax(x, axis)), back)
    for axes in ((0, 2), (2, 0), None):
        flat = ns.permute_dims(x, (1, 0, 2)).reshape(3, -1) if axes else x.reshape(1, -1)
        expected = words(ns.var(flat, 1)).reshape(3 if axes else ())
        np.testing.assert_array_equal(words(ns.var(x, axes)), expected)


PROFILES = [
    {"subnormals": "flush"},
    {"divide": "reciprocal_multiply"},
    {"fp8_overflow": "saturate"},
    {"fp8_overflow": "nan"},
    {"mixed_precision_accumulation": "off"},
    {"int64": "truncate"},
]


@each_of("fields", PROFILES, ids=str)
@each_of("name", COMPOSITES)
def test_composite_R7_follows_the_profile(name: str, fields: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    more = attributes_of(name, rng)
    for type_name in ("float32", "bfloat16", "float8_e4m3"):
        x = random_words(rng, type_name, (40, 600), "any" if "subnormals" in fields else "near")
        x &= x.dtype.type(0xFF) << x.dtype.type(8 * x.itemsize - 8) | x.dtype.type(0xF)
        with ns.use_profile(**fields):
            found = evaluated(name, type_name, x, (1,), {}, **more)
            expected = by_array_functions(name, array(type_name, x), **more)
        np.testing.assert_array_equal(found, words(expected))


def test_composite_C4_E2_and_C3_show() -> None:
    # Controls: each of these fields gives other bits than the default on these data.
    x = array("float32", random_words(np.random.default_rng(4), "float32", (40, 600), "near"))
    for fields, value in (
        ({"divide": "reciprocal_multiply"}, x),
        ({"subnormals": "flush"}, ns.asarray([[0.0, -100.0]])),
    ):
        plain = ns.nn.softmax(value).tobytes()
        with ns.use_profile(**fields):
            assert ns.nn.softmax(value).tobytes() != plain
    big = ns.asarray([[200.0, 200.0]], "float8_e4m3")
    assert words(ns.linalg.vector_norm(big, axis=1)) == [0x78]
    with ns.use_profile(fp8_overflow="saturate"):
        assert words(ns.linalg.vector_norm(big, axis=1)) == [0x77]


def test_composite_S_draws_in_its_last_rounding() -> None:
    x = array("bfloat16", random_words(np.random.default_rng(5), "bfloat16", (40, 600), "near"))
    exact = ns.nn.softmax(x.astype("float32"))
    near = ns.nn.softmax(x)
    with ns.use_profile(rounding="stochastic"):
        ns.seed_rounding(7)
        first, second = ns.nn.softmax(x), ns.nn.softmax(x)
        ns.seed_rounding(7)
        again = ns.nn.softmax(x)
        ns.seed_rounding(7)
        wide = ns.nn.softmax(x.astype("float32"))
    assert first.tobytes() == again.tobytes() != second.tobytes()
    assert first.tobytes() != near.tobytes()
    assert wide.tobytes() == exact.tobytes()
    # One of the two neighbours of the float32 result, each time.
    low = words(exact) >> 16
    assert (words(first).astype(np.uint32) - low <= 1).all()


@pytest.mark.parametrize("name", ["mean", "rms_norm"])
def test_composite_R7_order_shows(name: str) -> None:
    # Controls: other tiles, and the row from its end, give other bits.
    values = np.random.default_rng(6).standard_normal((2, 700))
    x = values.astype(np.float32).view(np.uint32)
    more = attributes_of(name, np.random.default_rng(0))
    found = evaluated(name, "float32", x, (1,), {}, **more)
    np.testing.assert_array_equal(found, by_twin(name, "float32", x, (1,), {}, **more))
    for tile in (256, 700):
        assert np.any(found != by_twin(name, "float32", x, (1,), {}, tile=tile, **more))
    turned = by_twin(name, "float32", x[:, ::-1], (1,), {}, **more)
    assert np.any(found != (turned[:, ::-1] if name in BY_ROWS else turned))


def test_composite_R7_of_infinite_and_missing_elements() -> None:
    inf, nan = math.inf, math.nan
    canonical = 0x7FC00000
    for row in ([inf, 1.0], [nan, 1.0], [-inf, -inf], [-nan, 2.0]):
        assert words(ns.nn.softmax(ns.asarray([row]))).tolist() == [[canonical] * 2]
    assert ns.nn.softmax(ns.asarray([-inf, 0.0])).tolist() == [0, 1]
    assert words(ns.nn.layer_norm(ns.asarray([[inf, 1.0]]))).tolist() == [[canonical] * 2]
    for function in (ns.mean, ns.var, ns.std, ns.linalg.vector_norm):
        assert words(function(ns.asarray([nan, 1.0]))) == canonical
        assert words(function(ns.asarray([-nan, 1.0]))) == canonical
    for function in (ns.var, ns.std):
        assert words(function(ns.asarray([inf, 1.0]))) == canonical
    assert words(ns.mean(ns.asarray([-0.0]))) == 0


@pytest.mark.parametrize(("dims", "kept"), [((3, 0, 0), 1), ((3, 2, 0, 0), 2), ((2, 0, 2, 0), 1)])
def test_composite_R7_of_nothing_whatever_its_strides(dims: tuple[int, ...], kept: int) -> None:
    """Some of them look like rows side by side, of which there are none to divide by."""
    memory, mean = np.zeros(64, np.float32), _core.Composite("mean", ns.float32.code, 512)
    for strides in itertools.product((0, 4, 8), repeat=len(dims)):
        x = np.lib.stride_tricks.as_strided(memory, dims, strides)
        out = np.zeros(dims[:kept], np.float32)
        mean.on(x, kept, out).run()
        assert np.isnan(out).all()


def test_composite_R7_of_nothing() -> None:
    assert ns.nn.softmax(ns.asarray(np.zeros((2, 0)), "float64")).shape == (2, 0)  # H1
    for function in (ns.nn.softmax, ns.nn.layer_norm, ns.nn.rms_norm):
        assert function(ns.zeros((3, 0))).shape == (3, 0)
        assert function(ns.zeros((0, 3))).shape == (0, 3)
    for function in (ns.mean, ns.var, ns.std):
        assert words(function(ns.zeros((2, 0), "bfloat16"), 1)).tolist() == [0x7FC0] * 2
        assert function(ns.zeros((0, 3)), 1).shape == (0,)
    assert ns.linalg.vector_norm(ns.zeros((2, 0)), axis=1).tolist() == [0, 0]
    assert ns.linalg.vector_norm(ns.zeros((2, 0)), axis=1, ord=math.inf).tolist() == [0, 0]
    with pytest.raises(InvalidArgument, match="no elements"):
        ns.linalg.vector_norm(ns.zeros((2, 0)), axis=1, ord=-math.inf)


@pytest.mark.skipif("log" not in ops.OPS, reason="the logarithm is not a row of ops.def yet")
def test_logsumexp_R7_of_infinite_and_missing_elements() -> None:
    inf = math.inf
    rows = ns.asarray([[-inf, -inf], [inf, 1.0], [inf, inf], [-inf, 3.0]])
    assert ns.nn.logsumexp(rows, 1).tolist() == [-inf, inf, inf, 3]
    assert ns.nn.logsumexp(ns.zeros((2, 0)), 1).tolist() == [-inf, -inf]


def test_composite_of_integers_is_of_the_default_type() -> None:
    x = ns.asarray([[1, 2], [3, 5]])
    for function in (ns.mean, ns.var, ns.std, ns.linalg.vector_norm, ns.nn.softmax, ns.nn.layer_norm):
        assert function(x).dtype is ns.float32
        assert function(x > 1).dtype is ns.float32
    assert ns.mean(x).item() == 2.75


def test_composite_keepdims_and_correction() -> None:
    x = ns.asarray([[1.0, 2.0, 6.0]])
    assert ns.var(x, 1, correction=1, keepdims=True).tolist() == [[7]]
    assert ns.std(x, 1, correction=1.75).tolist() == [np.float32(math.sqrt(np.float32(14 / 1.25)))]
    assert ns.var(x, 1, correction=3).tolist() == [math.inf]
    assert ns.var(x, 1, correction=9).tolist() == [math.inf]
    for correction in (None, "1", True, math.nan):
        with pytest.raises(InvalidArgument, match="correction"):
            ns.var(x, correction=correction)


def test_vector_norm_of_four_orders() -> None:
    x = ns.asarray([[3.0, -4.0], [0.0, -1.0]], "bfloat16")
    expected = {1: [7, 1], 2: [5, 1], math.inf: [4, 1], -math.inf: [3, 0]}
    for order, values in expected.items():
        found = ns.linalg.vector_norm(x, axis=1, ord=order)
        assert (found.tolist(), found.dtype.name) == (values, "bfloat16")


def test_composite_R7_large_rows_and_few(threads: int) -> None:
    """Few long rows, and rows of a view that do not follow each other."""
    rng = np.random.default_rng(12)
    for type_name in ("float32", "bfloat16"):
        x = array(type_name, random_words(rng, type_name, (3, 300_001), "near"))
        for name in ("mean", "std", "softmax"):
            if name == "softmax":
                found, expected = ns.nn.softmax(x), by_array_functions(name, x)
            else:
                found = getattr(ns, name)(x, 1)
                expected = by_array_functions(name, x, correction=0)
            assert found.tobytes() == expected.tobytes()
        view = ns.Array(ops.Bits(x.bits.data[:, : 512 * 40], x.dtype))
        assert ns.mean(view, 1).tobytes() == by_array_functions("mean", view).tobytes()


def test_host_composites_are_float64() -> None:
    values = np.random.default_rng(13).standard_normal((3, 50))
    x = ns.asarray(values)
    for found, expected in (
        (ns.var(x, 1, correction=1), values.var(1, ddof=1)),
        (ns.std(x, 1), values.std(1)),
        (ns.linalg.vector_norm(x, axis=1), np.linalg.norm(values, axis=1)),
        (ns.nn.rms_norm(x, epsilon=0.0), values / np.sqrt((values**2).mean(1, keepdims=True))),
    ):
        assert found.dtype is ns.float64
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


def test_formulas_serve_what_the_core_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuronsim.ops.composites.FORMULAS", {})
    x = ns.ones((2, 3))
    assert ns.nn.softmax(x).shape == (2, 3)
    with ns.use_profile(subnormals="flush"), pytest.raises(KeyError):
        ns.nn.softmax(x)


@each_of(
    ("call", "error", "message"),
    [
        (lambda x: ns.nn.softmax(x, 2), InvalidArgument, "axis 2"),
        (lambda x: ns.nn.softmax(x, None), InvalidArgument, "axis is an integer"),
        (lambda x: ns.nn.softmax(x, (0,)), InvalidArgument, "axis is an integer"),
        (lambda x: ns.mean(x, [0]), InvalidArgument, "axis is an integer"),
        (lambda x: ns.nn.softmax(x[0, 0]), InvalidArgument, "scalar"),
        (lambda x: ns.nn.layer_norm(x[0, 0]), InvalidArgument, "scalar"),
        (lambda x: ns.nn.rms_norm(x[0, 0]), InvalidArgument, "scalar"),
        (
            lambda x: ns.nn.layer_norm(x, ns.ones(2)),
            InvalidArgument,
            r"weight float32\[2\] is not as long",
        ),
        (
            *(lambda x: ns.nn.batch_norm(x, ns.ones(2), ns.ones(3)), InvalidArgument),
            r"mean float32\[2\] is not as long",
        ),
        (lambda x: ns.nn.layer_norm(x, epsilon="1"), InvalidArgument, "epsilon"),
        (lambda x: ns.nn.layer_norm(x, epsilon=10**400), InvalidArgument, "epsilon"),
        (lambda x: ns.nn.rms_norm(x, epsilon="1"), InvalidArgument, "epsilon is a number"),
        (lambda x: ns.var(x, correction=10**400), InvalidArgument, "correction"),
        (lambda x: ns.linalg.vector_norm(x, ord=True), InvalidArgument, "is a number, not True"),
        (lambda x: ns.nn.softmax(x.astype("float8_e4m3fn")), UnsupportedType, "float8_e4m3fn"),
        (lambda x: ns.nn.softmax(x.astype("complex64")), UnsupportedType, "complex64"),
    ],
    ids=map(str, range(16)),
)
def test_composites_refuse_what_does_not_fit(
    call: Callable[[ns.Array], ns.Array], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(ns.ones((2, 3)))


def test_composites_take_numpys_numbers() -> None:
    x = ns.asarray([[1.0, 2.0, 4.0]])
    plain = ns.nn.layer_norm(x, epsilon=0.5)
    assert ns.nn.layer_norm(x, epsilon=np.float32(0.5)).tobytes() == plain.tobytes()
    assert ns.var(x, correction=np.int64(1)).tobytes() == ns.var(x, correction=1).tobytes()
