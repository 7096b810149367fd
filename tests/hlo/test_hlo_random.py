"""Random numbers in a graph: bit generators are XLA's, distributions draw anew in each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hlo.xla import run_by_xla
from tests.support.graphs import inst, parameter, unverified
from tests.support.parameters import each_of

from neuronsim import api, dtypes
from neuronsim.hlo.module import Instruction, Shape, TupleShape
from neuronsim.profiles import Profile

TYPES = {
    "u8": dtypes.uint8,
    "s16": dtypes.int16,
    "u32": dtypes.uint32,
    "u64": dtypes.uint64,
    "f32": dtypes.float32,
    "bf16": dtypes.bfloat16,
}
ALGORITHMS = {"rng_philox": 3, "rng_default": 2, "rng_three_fry": 2}
SHAPES = [(), (0, 4), (3, 3, 5), (130, 33)]


def program(*instructions: Instruction, **fields: str) -> Any:
    profile = Profile(int64="keep", **fields)
    return api.compile(unverified(*instructions), auto_cast="none", target="host", profile=profile)


def generator(algorithm: str, length: int, dtype: dtypes.DType, dims: tuple[int, ...]) -> Any:
    shape = TupleShape((Shape(dtypes.uint64, (length,)), Shape(dtype, dims)))
    state = parameter("p0", (length,), dtype=dtypes.uint64)
    bits = inst("bits", "rng-bit-generator", shape, "p0", rng_algorithm=algorithm.upper())
    return program(state, bits)


@each_of("type_name", TYPES)
@each_of("algorithm", ALGORITHMS)
def test_bit_generator_is_bit_exact_to_xla(algorithm: str, type_name: str) -> None:
    for dims in SHAPES:
        length, dtype = ALGORITHMS[algorithm], TYPES[type_name]
        shape = f"{type_name}[{','.join(map(str, dims))}]"
        text = f"""HloModule m
            ENTRY main {{ k = u64[{length}] parameter(0)
            ROOT r = (u64[{length}], {shape}) rng-bit-generator(k), algorithm={algorithm} }}"""
        for state in ([7, 11, 13], [2**64 - 1] * 3, [1 << 63, 2**64 - 3, 5]):
            key = np.array(state[:length], np.uint64)
            theirs = run_by_xla(text, key)
            new, bits = generator(algorithm, length, dtype, dims)(key)
            assert np.asarray(new).tolist() == theirs[0].tolist()
            # XLA's client gives the bits of a float or signed type as an unsigned array.
            words = np.ascontiguousarray(bits.bits.data).view(f"u{dtype.itemsize}").reshape(dims)
            np.testing.assert_array_equal(words, theirs[1].view(words.dtype))


def test_bits_of_jax_random() -> None:
    """jax.random's `rbg` keys are u32[4] that the program casts to u64[2]."""
    jax = pytest.importorskip("jax")
    key = jax.random.key(42, impl="rbg")
    words = np.asarray(jax.random.key_data(key)).view(np.uint64)
    drawn = np.asarray(jax.random.bits(key, (17,), "uint32"))
    _, bits = generator("rng_default", 2, dtypes.uint32, (17,))(words)
    assert np.asarray(bits).tolist() == drawn.tolist()


def test_threefry_block_is_that_of_jax_random() -> None:
    """jax.random's default generator is spelled out in a graph, over the same block function."""
    jax = pytest.importorskip("jax")
    from jax.extend.random import threefry_2x32

    counters = np.arange(6, dtype=np.uint64) + np.uint64(5 << 31)
    pairs = np.concatenate([counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)])
    theirs = np.asarray(threefry_2x32(jax.numpy.array([3, 9], "uint32"), pairs))
    state = np.array([3 | 9 << 32, 5 << 31], np.uint64)
    _, bits = generator("rng_three_fry", 2, dtypes.uint64, (6,))(state)
    ours = np.asarray(bits).view(np.uint32).reshape(6, 2).T.reshape(-1)
    assert ours.tolist() == theirs.tolist()


def test_rng_draws_anew_in_each_call_and_again_from_a_seed() -> None:
    uniform = inst("rng.1", "rng", (64,), "p0", "p1", distribution="RNG_UNIFORM")
    run = program(parameter("p0", ()), parameter("p1", (), 1), uniform)
    low, high = np.float32(-2), np.float32(5)
    first, second = (np.asarray(run(low, high)) for _ in range(2))
    assert not np.array_equal(first, second)
    assert all(((x >= low) & (x < high)).all() for x in (first, second))
    again = np.asarray(run(low, high, seed=0))
    other = np.asarray(run(low, high, seed=1))
    assert not np.array_equal(other, again)


def test_state_of_an_instruction_starts_as_xlas() -> None:
    state = Shape(dtypes.uint64, (2,))
    updates = [inst(n, "rng-get-and-update-state", state, delta=d) for n, d in (("a", 3), ("b", 5))]
    pair = inst("r", "tuple", TupleShape((state, state)), "a", "b")
    text = """HloModule m
        ENTRY main { a = u64[2] rng-get-and-update-state(), delta=3
        b = u64[2] rng-get-and-update-state(), delta=5
        ROOT r = (u64[2], u64[2]) tuple(a, b) }"""
    theirs = [x.tolist() for x in run_by_xla(text)]
    assert [np.asarray(x).tolist() for x in program(*updates, pair)()] == theirs
