"""Programs as XLA and JAX write them: random numbers, batch norms, custom calls, dot algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import api

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")


def lowered(function: Any, *arrays: np.ndarray) -> bytes:
    """A function of JAX as the file that neuronx-cc takes."""
    module = jax.jit(function).lower(*arrays).compiler_ir("hlo")
    found: bytes = module.as_serialized_hlo_module_proto()
    return found


def from_text(text: str) -> bytes:
    from jaxlib import _hlo

    found: bytes = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return found


def run(model: bytes, *arrays: np.ndarray, **fields: Any) -> Any:
    return api.compile(model, auto_cast="none", target="trn1", **fields)(*arrays)


@pytest.mark.parametrize("impl", ["rbg", "threefry2x32", "unsafe_rbg"])
@pytest.mark.parametrize("distribution", ["bits", "uniform", "randint", "bernoulli", "permutation"])
def test_jax_random_gives_its_own_numbers(distribution: str, impl: str) -> None:
    """Under the device's 64-bit integers too: jax.random keeps generator states in pairs of words."""

    def draw(data: Any) -> Any:
        key = jax.random.wrap_key_data(data, impl=impl)
        first, second = jax.random.split(jax.random.fold_in(key, 3))
        more = {
            "bits": lambda k: jax.random.bits(k, (3, 5)),
            "uniform": lambda k: jax.random.uniform(k, (7,)),
            "randint": lambda k: jax.random.randint(k, (9,), -5, 17),
            "bernoulli": lambda k: jax.random.bernoulli(k, 0.25, (33,)),
            "permutation": lambda k: jax.random.permutation(k, 20),
        }[distribution]
        return more(first), more(second)

    data = np.asarray(jax.random.key_data(jax.random.key(1234, impl=impl)))
    theirs = [np.asarray(x) for x in jax.jit(draw)(data)]
    ours = [np.asarray(x) for x in run(lowered(draw, data), data)]
    for mine, their in zip(ours, theirs, strict=True):
        assert mine.dtype == their.dtype
        assert mine.tobytes() == their.tobytes()


def test_jax_random_normal_is_within_its_roundings() -> None:
    """Its inverse error function is spelled out as a polynomial, of whose steps XLA fuses some."""

    def draw(data: Any) -> Any:
        return jax.random.normal(jax.random.wrap_key_data(data, impl="threefry2x32"), (500,))

    data = np.asarray(jax.random.key_data(jax.random.key(7)))
    theirs = np.asarray(jax.jit(draw)(data))
    np.testing.assert_allclose(np.asarray(run(lowered(draw, data), data)), theirs, rtol=2e-6, atol=1e-7)


def test_configurations_of_a_file_reach_the_rows() -> None:
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    call = 'custom-call(x), custom_call_target="AwsNeuronSoftmax", backend_config="0"'
    model = from_text(
        f"HloModule m\nENTRY e {{\nx = f32[4,6] parameter(0)\nROOT y = f32[4,6] {call} }}"
    )
    found = run(model, x)
    assert np.array_equal(np.asarray(found), np.asarray(ns.nn.softmax(ns.asarray(x), axis=0)))
    top = 'custom-call(x), custom_call_target="AwsNeuronTopK", backend_config="2"'
    shape = "(f32[4,2], u32[4,2])"
    model = from_text(f"HloModule m\nENTRY e {{\nx = f32[4,6] parameter(0)\nROOT y = {shape} {top} }}")
    values, indices = run(model, x)
    assert np.array_equal(np.asarray(values), -np.sort(-x, axis=1)[:, :2])
    assert np.array_equal(np.asarray(indices), np.argsort(-x, axis=1)[:, :2])


def test_algorithm_of_a_file_rounds_the_operands() -> None:
    x = np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32)
    preset = jax.lax.DotAlgorithmPreset
    dot = lambda a: jax.lax.dot(a, a, precision=preset.BF16_BF16_F32)  # noqa: E731
    low = ns.astype(ns.asarray(x), "bfloat16").astype("float32")
    assert np.array_equal(np.asarray(run(lowered(dot, x), x)), np.asarray(low @ low))


@pytest.mark.parametrize("distribution", ["rng_uniform", "rng_normal"])
def test_distribution_of_a_file_draws(distribution: str) -> None:
    model = from_text(
        "HloModule m\nENTRY e { a = f32[] constant(2) b = f32[] constant(3)\n"
        f"ROOT y = f32[1000] rng(a, b), distribution={distribution} }}"
    )
    program = api.compile(model, auto_cast="none", target="trn1")
    first, second = (np.asarray(program()) for _ in range(2))
    assert not np.array_equal(first, second)
    low, high = (2, 3) if distribution == "rng_uniform" else (-15, 19)
    assert all(low <= x.min() and x.max() < high for x in (first, second))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_a_file_has_its_epsilon_and_feature(training: bool) -> None:
    opcode = "batch-norm-training" if training else "batch-norm-inference"
    names = ["w", "b"] if training else ["w", "b", "m", "v"]
    lines = [f"{n} = f32[3] parameter({i})" for i, n in enumerate(names, 1)]
    shape = "(f32[2,3,4], f32[3], f32[3])" if training else "f32[2,3,4]"
    model = from_text(
        "HloModule m\nENTRY e {\nx = f32[2,3,4] parameter(0)\n"
        + "\n".join(lines)
        + f"\nROOT y = {shape} {opcode}(x, {', '.join(names)}), epsilon=0.5, feature_index=1 }}"
    )
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    terms = [np.abs(rng.standard_normal(3)).astype(np.float32) for _ in names]
    found = run(model, x, *terms)
    mean, variance = (x.mean((0, 2)), x.var((0, 2))) if training else terms[2:]
    column = lambda v: v[:, None]  # noqa: E731
    expected = (x - column(mean)) / np.sqrt(column(variance) + 0.5) * column(terms[0]) + column(
        terms[1]
    )
    np.testing.assert_allclose(
        np.asarray(found[0] if training else found), expected, rtol=1e-5, atol=1e-6
    )
