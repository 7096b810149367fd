"""Random numbers are NumPy's of the same seed, rounded once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of
from tests.support.words import word_list

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import formats

pytestmark = pytest.mark.isa_independent

F32 = np.float32
FLOATS = [t for t in DTYPES.values() if t.exponent_bits]
FLOAT_DRAWS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("standard_cauchy", "standard_exponential", "standard_normal"), (9,)),
    **dict.fromkeys(("chisquare", "exponential", "standard_gamma", "weibull"), (2.0, 9)),
    **dict.fromkeys(("pareto", "power"), (3.0, 9)),
    **dict.fromkeys(("gumbel", "laplace", "logistic", "lognormal", "vonmises"), (0.0, 1.0, 9)),
    "beta": (2.0, 3.0, 9),
    "dirichlet": ([1.0, 2.0], 4),
    "f": (2.0, 5.0, 9),
    "gamma": (2.0, 1.5, 9),
    "multivariate_normal": ([0.0, 1.0], [[1.0, 0.5], [0.5, 1.0]], 4),
    "noncentral_chisquare": (2.0, 1.0, 9),
    "noncentral_f": (2.0, 5.0, 1.0, 9),
    "normal": (1.0, 2.0, 9),
    "random": ((3, 3),),
    "rayleigh": (1.0, 9),
    "standard_t": (4.0, 9),
    "triangular": (0.0, 0.5, 1.0, 9),
    "uniform": (-1.0, 1.0, 9),
    "wald": (1.0, 2.0, 9),
}
INTEGER_DRAWS: dict[str, tuple[Any, ...]] = {
    "binomial": (10, 0.3, 9),
    "geometric": (0.3, 9),
    "hypergeometric": (5, 6, 7, 9),
    "logseries": (0.5, 9),
    "multinomial": (10, [0.25, 0.75], 3),
    "multivariate_hypergeometric": ([3, 4], 5, 3),
    "negative_binomial": (3, 0.4, 9),
    "poisson": (3.0, 9),
    "zipf": (2.0, 9),
}


def rounded(values: Any, dtype: DType) -> list[int]:
    """Each float64 rounded once by the slow twin."""
    return [
        formats.round_number(dtype.name, formats.exact(v))
        for v in numpy.asarray(values).ravel().tolist()
    ]


def pair(seed: int = 7) -> tuple[Any, numpy.random.Generator]:
    return np.random.default_rng(seed), numpy.random.default_rng(seed)


# ---- Generator -----------------------------------------------------------------------------------


@each_of("name", FLOAT_DRAWS)
@each_of("dtype", [np.bfloat16, np.tfloat32, np.float8_e5m2], ids=lambda t: t.name)
def test_C1_a_draw_is_numpys_rounded_once(name: str, dtype: DType) -> None:
    ours, theirs = pair()
    found = getattr(ours, name)(*FLOAT_DRAWS[name], dtype=dtype)
    expected = getattr(theirs, name)(*FLOAT_DRAWS[name])
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    assert word_list(found) == rounded(expected, dtype)


def test_C1_a_draw_does_not_pass_through_float32() -> None:
    value = 1 + 2**-8 + 2**-40  # by way of float32 it would become 1
    found = np.random.default_rng(0).uniform(value, value, 2, dtype=np.bfloat16)
    assert found.tolist() == [1.0078125] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_every_float_type_is_drawn(dtype: DType) -> None:
    ours, theirs = pair()
    assert word_list(ours.normal(size=50, dtype=dtype)) == rounded(theirs.normal(size=50), dtype)


@pytest.mark.parametrize("name", INTEGER_DRAWS)
def test_integers_are_numpys(name: str) -> None:
    ours, theirs = pair()
    found = getattr(ours, name)(*INTEGER_DRAWS[name])
    expected = getattr(theirs, name)(*INTEGER_DRAWS[name])
    assert found.dtype is np.int64
    assert numpy.array_equal(numpy.asarray(found), expected)


def test_every_method_of_numpys_generator_is_there() -> None:
    theirs = {name for name in dir(numpy.random.Generator) if not name.startswith("_")}
    assert theirs <= set(dir(np.random.Generator))
    tested = {*FLOAT_DRAWS, *INTEGER_DRAWS, "integers", "choice", "permutation", "permuted", "shuffle"}
    assert theirs - tested == {"bit_generator", "bytes", "spawn"}


def test_the_type_is_the_default_or_the_argument(restored_default: None) -> None:
    ours, theirs = pair()
    assert ours.random().dtype is np.float32
    assert ours.random(2, "float16").dtype is np.float16
    assert ours.standard_gamma(2.0, 2, np.bfloat16).dtype is np.bfloat16
    assert ours.poisson(3.0, 2, dtype=np.float16).dtype is np.float16
    np.set_default_dtype("bfloat16")
    assert ours.normal(size=3).dtype is np.bfloat16
    assert np.random.rand(2).dtype is np.bfloat16
    found = np.random.default_rng(7).random(4, np.float64)
    assert numpy.array_equal(numpy.asarray(found), theirs.random(4))
    with pytest.raises(UnsupportedType):
        ours.random(2, "bfloat17")
    with pytest.raises(InvalidArgument, match="out="):
        ours.random(out=np.zeros(2))


def test_a_uniform_number_below_1_may_round_to_1() -> None:
    draws = numpy.random.default_rng(0).random(2000)
    found = np.random.default_rng(0).random(2000, np.bfloat16).tolist()
    assert draws.max() < 1.0
    assert [v == 1.0 for v in found] == [v >= 1 - 2**-9 for v in draws]
    assert max(found) == 1.0


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64", "bool"])
def test_integers_of_every_type(dtype: str) -> None:
    ours, theirs = pair()
    found = ours.integers(0, 2, (3, 4), dtype)
    assert found.dtype.name == dtype
    assert numpy.array_equal(numpy.asarray(found), theirs.integers(0, 2, (3, 4), dtype))
    assert ours.integers(5, endpoint=True).item() == theirs.integers(5, endpoint=True)
    assert ["a", "b"][ours.integers(2)] in "ab"
    ours, theirs = pair()
    low = np.asarray([0, 10])
    assert ours.integers(low, low + 3).tolist() == theirs.integers([0, 10], [3, 13]).tolist()
    with pytest.raises(InvalidArgument, match="float32"):
        ours.integers(3, dtype=np.float32)


def test_parameters_may_be_arrays() -> None:
    ours, theirs = pair()
    mean = np.asarray([0.3, 100.0], np.bfloat16)
    exact = [0.30078125, 100.0]
    assert word_list(ours.normal(mean, np.ones(2))) == rounded(theirs.normal(exact, [1, 1]), F32)
    assert ours.poisson(lam=mean).tolist() == theirs.poisson(exact).tolist()


# ---- order and choice ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3", "float32", "int8", "bool"])
def test_order_moves_bits(dtype: str) -> None:
    ours, theirs = pair()
    x = np.asarray(numpy.arange(24).reshape(6, 4) % 9, dtype)
    bits = x.bits.data.copy()
    for found, expected in (
        (ours.permutation(x), theirs.permutation(bits)),
        (ours.permuted(x, axis=1), theirs.permuted(bits, axis=1)),
        (ours.choice(x, 3), theirs.choice(bits, 3)),
        (ours.choice(x, 2, replace=False, axis=1), theirs.choice(bits, 2, False, axis=1)),
    ):
        assert numpy.array_equal(found.bits.data, expected)
    assert numpy.array_equal(x.bits.data, bits)
    assert ours.shuffle(x) is None
    theirs.shuffle(bits)
    assert numpy.array_equal(x.bits.data, bits)
    assert x.dtype.name == dtype


def test_order_of_counts_and_lists() -> None:
    ours, theirs = pair()
    assert ours.permutation(10).tolist() == theirs.permutation(10).tolist()
    assert ours.choice(10, 3, p=[0.1] * 10).tolist() == theirs.choice(10, 3, p=[0.1] * 10).tolist()
    assert ours.choice(4).tolist() == theirs.choice(4)
    mine, his = list(range(9)), list(range(9))
    ours.shuffle(mine)
    theirs.shuffle(his)
    assert mine == his


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_probabilities_of_a_narrow_type(dtype: str) -> None:
    logits = np.asarray(numpy.linspace(0, 2, 10), dtype)
    p = np.nn.softmax(logits)
    exact = numpy.array(p.tolist())
    assert abs(exact.sum() - 1) > 0
    ours, theirs = pair()
    chosen = ours.choice(10, 50, p=p)
    assert chosen.tolist() == theirs.choice(10, 50, p=exact / exact.sum()).tolist()
    assert ours.multinomial(20, p).tolist() == theirs.multinomial(20, exact / exact.sum()).tolist()
    with pytest.raises(ValueError, match="sum to 1"):
        ours.choice(10, p=p * 2)


# ---- seeds, states, the legacy functions ---------------------------------------------------------


def test_seeds_sources_and_children() -> None:
    source = np.random.PCG64(3)
    made = np.random.Generator(source)
    assert made.bit_generator is source
    assert np.random.default_rng(made) is made
    assert repr(made) == "Generator(PCG64)"
    sequence = np.random.SeedSequence(5)
    assert np.random.default_rng(sequence).random().item() == pytest.approx(
        numpy.random.default_rng(numpy.random.SeedSequence(5)).random(), rel=2**-24
    )
    ours, theirs = (g.spawn(2)[1] for g in pair())
    assert ours.integers(1000, size=5).tolist() == theirs.integers(1000, size=5).tolist()
    assert np.random.default_rng(7).bytes(5) == numpy.random.default_rng(7).bytes(5)


def test_the_legacy_functions_are_numpys_of_the_same_seed() -> None:
    theirs = numpy.random.RandomState(0)
    np.random.seed(0)
    for name, given in (
        *(("rand", (2, 3)), ("randn", (4,)), ("randint", (0, 100, 5)), ("uniform", (-1, 1, 3))),
        *(("permutation", (6,)), ("normal", (0.0, 1.0, 2)), ("choice", (6, 3))),
    ):
        found, expected = getattr(np.random, name)(*given), getattr(theirs, name)(*given)
        whole = found.tolist() if expected.dtype.kind == "i" else word_list(found)
        assert whole == (expected.tolist() if expected.dtype.kind == "i" else rounded(expected, F32))
    state = np.random.get_state()
    first = np.random.random_sample(3).tolist()
    np.random.set_state(state)
    assert np.random.random(3).tolist() == first
    other = np.random.RandomState(1)
    theirs = numpy.random.RandomState(1)
    assert word_list(other.standard_normal(3)) == rounded(theirs.standard_normal(3), F32)


def test_a_legacy_seed_leaves_numpys_own_state_alone() -> None:
    numpy.random.seed(1)
    expected = numpy.random.RandomState(1).rand(3)
    np.random.seed(2)
    np.random.rand(5)
    assert numpy.array_equal(numpy.random.rand(3), expected)


def test_methods_document_numpys_arguments() -> None:
    text = inspect.getdoc(np.random.Generator.normal)
    assert text is not None
    assert "normal(loc=0.0, scale=1.0, size=None)" in text


REFUSED: dict[str, Callable[[], Any]] = {
    "normal": lambda: np.random.normal(scale=-1),
    "normal, size": lambda: np.random.normal(size=-1),
    "normal, text": lambda: np.random.default_rng(0).normal("a"),
    "randint": lambda: np.random.randint(5, 1),
    "integers": lambda: np.random.default_rng(0).integers(5, 1),
    "rand": lambda: np.random.rand(-1),
    "choice": lambda: np.random.choice(0),
    "choice, probabilities": lambda: np.random.choice(3, p=[0.5, 0.6, 0.7]),
    "permutation": lambda: np.random.default_rng(0).permutation(np.ones(3), axis=5),
    "permuted": lambda: np.random.default_rng(0).permuted(np.ones(3), axis=5),
    "shuffle": lambda: np.random.shuffle(np.asarray(3)),
    "bytes": lambda: np.random.bytes("a"),
    "multivariate_hypergeometric": lambda: np.random.default_rng(0).multivariate_hypergeometric([1], 9),
    "seed": lambda: np.random.seed("a"),
    "set_state": lambda: np.random.set_state("a"),
    "RandomState": lambda: np.random.RandomState(-1),
    "Generator": lambda: np.random.Generator(3),
    "spawn": lambda: np.random.default_rng(0).spawn("a"),
    "default_rng": lambda: np.random.default_rng("a"),
}


@each_of("name", REFUSED)
def test_a_refusal_names_the_function(name: str) -> None:
    with pytest.raises(np.errors.NeuronSimError, match=f"^{name.partition(',')[0]}: "):
        REFUSED[name]()
