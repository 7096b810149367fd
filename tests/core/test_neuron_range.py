"""Rule E3, `activation="neuron_range"`: outside the documented input ranges a function gives NaN."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile, use_profile
from tests.support.evaluation import evaluate
from tests.support.parameters import each_of
from tests.support.words import FLOATS, Words, as_bits

# The activation table of the NKI ISA, π as the float32 nearest to it.
RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (0.0, float(np.float32(math.pi))),
    "atan": (0.0, float(np.float32(math.pi / 2))),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
RESTRICTED = Profile(activation="neuron_range")
SIGN = np.uint32(0x80000000)
UNLISTED = sorted(
    row.name
    for row in ops.OPS.values()
    if row.core is not None and row.arity == 1 and row.name not in RANGES
)


def test_the_ranges_are_the_documented_ones() -> None:
    assert _core.INPUT_RANGES == RANGES


def around_bounds(name: str, step: int = 1) -> Words:
    """The words about each bound, zeros, subnormals, extremes, Inf and NaN, of both signs."""
    words = [0, step, 0x3F800000, 0x7F7FFFFF // step * step, 0x7F800000, 0x7FC00000, 0x7F800000 + step]
    for bound in RANGES[name]:
        word = int(np.float32(bound).view(np.uint32)) // step * step
        words += [word + n * step for n in range(-3, 4) if word + n * step >= 0]
    found = np.array(words, np.uint32)
    return np.concatenate([found, found | SIGN])


def inputs(name: str, type_name: str) -> Words:
    size = dtypes.DTYPES[type_name].itemsize
    if size < 4:
        return np.arange(1 << 8 * size, dtype=f"u{size}")
    return around_bounds(name, 1 << 13 if type_name == "tfloat32" else 1)


def outside(name: str, type_name: str, x: Words) -> np.ndarray:
    wide = evaluate("convert", (type_name, x), dtype=dtypes.float64).view(np.float64)
    low, high = RANGES[name]
    return ~np.isnan(wide) & ~((low <= np.abs(wide)) & (np.abs(wide) <= high))


def canonical_nan(type_name: str) -> int:
    nan = np.array([0x7FC00000], np.uint32)
    return int(evaluate("convert", ("float32", nan), dtype=dtypes.DTYPES[type_name])[0])


@pytest.mark.parametrize("name", RANGES)
def test_range_E3_its_bounds_belong_to_it(isa: str, name: str) -> None:
    for type_name in FLOATS:
        x = inputs(name, type_name)
        found = evaluate(name, (type_name, x), profile=RESTRICTED)
        expected = evaluate(name, (type_name, x)).copy()
        beyond = outside(name, type_name, x)
        expected[beyond] = canonical_nan(type_name)
        assert np.array_equal(found, expected)
        counted = ops.count_outside_range(ops.by_name(name), [as_bits(type_name, x)], RESTRICTED)
        assert counted == int(beyond.sum())


@each_of("name", UNLISTED)
def test_range_E3_other_operations_are_unchanged(name: str) -> None:
    assert not ops.has_input_range(ops.by_name(name), RESTRICTED)
    words = np.random.default_rng(3).integers(0, 1 << 32, 2000, np.uint32)
    kind = {n: k for n, _, k in _core.OPS}[ops.by_name(name).core or ""]
    type_name = "uint32" if kind == "integral" else "float32"
    found = evaluate(name, (type_name, words), profile=RESTRICTED)
    assert np.array_equal(found, evaluate(name, (type_name, words)))


@each_of("changes", [{"subnormals": "flush"}, {"fp8_overflow": "saturate"}, {"rounding": "stochastic"}])
@each_of("name", RANGES)
def test_range_E3_beside_other_fields(name: str, changes: dict[str, Any]) -> None:
    """The function of what is inside rounds as the other field says."""
    plain, both = (Profile(**changes, activation=a) for a in ("exact", "neuron_range"))
    for type_name in FLOATS:
        x = inputs(name, type_name)
        found, exact = (
            evaluate(name, (type_name, x), setting=ops.Setting(p, 5, "0/main/y/"))
            for p in (both, plain)
        )
        beyond = outside(name, type_name, x)
        assert np.array_equal(found[~beyond], exact[~beyond])
        assert set(found[beyond].tolist()) <= {canonical_nan(type_name)}
        counted = ops.count_outside_range(ops.by_name(name), [as_bits(type_name, x)], both)
        assert counted == int(beyond.sum())


# ---- what eager arrays report --------------------------------------------------------------------


def test_eager_arrays_warn_once_with_the_count_E3() -> None:
    x = neuronsim.asarray([0.5, 4.0, -4.0, math.nan, math.inf, math.pi])
    with use_profile(activation="neuron_range"):
        with pytest.warns(RuntimeWarning, match=r"^sin: 3 elements outside the input range") as seen:
            y = neuronsim.sin(x)
        assert len(seen) == 1
        assert "neuron_range" in str(seen[0].message)
    assert np.isnan(np.asarray(y)).tolist() == [False, True, True, True, True, False]


def test_eager_arrays_without_such_elements_do_not_warn_E3() -> None:
    """NaN is not counted: it was there before."""
    with warnings.catch_warnings(), use_profile(activation="neuron_range"):
        warnings.simplefilter("error")
        assert neuronsim.isnan(neuronsim.log(neuronsim.asarray([math.nan, 1.0]))).tolist() == [
            True,
            False,
        ]
        neuronsim.exp(neuronsim.asarray([1e30, -math.inf]))
        neuronsim.sin(neuronsim.asarray([], dtype="bfloat16"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not neuronsim.isnan(neuronsim.sin(neuronsim.asarray([1e30])))


def test_host_arrays_and_integers_E3() -> None:
    """float64 is on no engine; integers are float32 by then."""
    with warnings.catch_warnings(), use_profile(activation="neuron_range"):
        warnings.simplefilter("error")
        assert float(neuronsim.sin(neuronsim.asarray(9.0, "float64"))) == math.sin(9.0)
        with pytest.raises(RuntimeWarning, match=r"^sqrt: 1 element "):
            neuronsim.sqrt(neuronsim.asarray([0, 4]))


def test_exact_lowers_to_the_function_alone_E3() -> None:
    """The default has no step before the function."""
    row = ops.by_name("sin")
    for profile, count in ((Profile(), 1), (RESTRICTED, 2)):
        steps: list[ops.Link] = []

        def push(step: ops.Link, steps: list[ops.Link] = steps) -> int:
            steps.append(step)
            return len(steps)

        ops.lower(row, {}, [(0, dtypes.float32)], dtypes.float32, profile, push)
        assert len(steps) == count


@pytest.mark.parametrize(
    "field", [{}, {"fp8_overflow": "nan"}, {"subnormals": "flush"}, {"divide": "reciprocal_multiply"}]
)
def test_composites_read_the_table_too_E3_R7(field: dict[str, str]) -> None:
    """Whatever else the profile says, and with a warning that names the composite."""
    zeros = neuronsim.zeros(4)
    low = neuronsim.asarray([-math.inf, -math.inf])
    with use_profile(activation="neuron_range", **field):
        for name, run in (
            ("vector_norm", lambda: neuronsim.linalg.vector_norm(zeros)),
            ("std", lambda: neuronsim.std(zeros)),
            ("logsumexp", lambda: neuronsim.nn.logsumexp(low)),
        ):
            with pytest.warns(RuntimeWarning, match=f"^{name}: 1 element ") as met:
                assert math.isnan(float(run()))
            assert met[0].filename == __file__
