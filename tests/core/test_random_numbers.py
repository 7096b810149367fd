"""Rule S2 and XLA's bit generators: rng-bit-generator, rng and rng-get-and-update-state by the twin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neuronsim import api, dtypes, ops, processor
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.profiles import Profile
from neuronsim.reference import distributions, formats
from neuronsim.reference import random as twin
from tests.support.parameters import each_of
from tests.support.words import bits

ALGORITHMS = ["RNG_PHILOX", "RNG_DEFAULT", "RNG_THREE_FRY"]
SHAPES = [(), (1,), (5,), (8,), (2, 3), (3, 3, 5), (3, 5, 3), (0,), (3, 0), (4, 1, 2)]
TOP = (1 << 64) - 1
PATH = "3/main/rng.1/"


def generate(
    algorithm: str, state: list[int], dtype: dtypes.DType, dims: tuple[int, ...], **fields: str
) -> tuple[list[int], np.ndarray]:
    operand = bits(state, dtypes.uint64)
    results = (operand.type, ops.ArrayType(dtype, dims))
    attributes = {"rng_algorithm": algorithm, "results": results}
    setting = ops.Setting(Profile(**fields))
    row = ops.by_opcode("rng-bit-generator", {})
    new, found = ops.evaluate(row, [operand], attributes, setting)
    assert (new.type, found.type) == results
    return new.data.tolist(), found.data.view(f"u{dtype.itemsize}")


def distributed(
    distribution: str,
    dtype: dtypes.DType,
    parameters: tuple[Any, Any],
    dims: tuple[int, ...],
    setting: ops.Setting,
) -> np.ndarray:
    operands = [bits(x, dtype) for x in parameters]
    attributes = {"distribution": distribution, "dims": dims, "dtype": dtype}
    (found,) = ops.evaluate(ops.by_opcode("rng", {}), operands, attributes, setting)
    assert found.type == ops.ArrayType(dtype, dims)
    return np.ascontiguousarray(found.data).reshape(dims)


def setting(seed: int = 0, path: str = PATH, **fields: str) -> ops.Setting:
    return ops.Setting(Profile(**fields), seed, path)


# ---- rng-bit-generator -------------------------------------------------------------------------------


@each_of("dims", SHAPES, ids=str)
@each_of("algorithm", ALGORITHMS)
def test_bit_generator_equals_the_twin(algorithm: str, dims: tuple[int, ...]) -> None:
    types = (dtypes.uint8, dtypes.int16, dtypes.float32, dtypes.uint64, dtypes.bfloat16)
    for dtype in types:
        for state in ([7, 11], [TOP, TOP], [1 << 63, TOP - 2]):
            new, found = generate(algorithm, state, dtype, dims)
            expected = twin.bit_generator(algorithm, state, dims, 8 * dtype.itemsize)
            assert (new, found.ravel().tolist()) == expected


def test_philox_counter_carries_into_its_high_half() -> None:
    for state in ([7, TOP, 5], [7, TOP - 1, TOP], [0, 3, 4]):
        new, found = generate("RNG_PHILOX", state, dtypes.uint32, (11,))
        assert (new, found.tolist()) == twin.bit_generator("RNG_PHILOX", state, [11], 32)
    assert generate("RNG_PHILOX", [7, TOP - 1, TOP], dtypes.uint32, (11,))[0] == [7, 1, 0]


def test_philox_of_many_blocks_is_that_of_each(restored_processor: None) -> None:
    """By two threads too, whose blocks lie on both sides of the carry."""
    for threads in (1, 2):
        processor.set_num_threads(threads)
        new, words = generate("RNG_PHILOX", [5, TOP - 9000, 0], dtypes.uint32, (80_000,))
        assert new == [5, 20_000 - 9001, 1]
        for block in (0, 8191, 8192, 9000, 9001, 19_999):
            at = TOP - 9000 + block
            counter = (at & 0xFFFFFFFF, at >> 32 & 0xFFFFFFFF, at >> 64, 0)
            expected = twin.philox4x32(counter, (5, 0))
            assert words[4 * block : 4 * block + 4].tolist() == list(expected)


def test_bit_generator_is_no_step_of_python_in_a_loop() -> None:
    text = """HloModule m
condition { p = (s32[], u64[3], u32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
  ROOT less = pred[] compare(i, n), direction=LT }
body { p = (s32[], u64[3], u32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  s = u64[3] get-tuple-element(p), index=1
  x = u32[7] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  g = (u64[3], u32[7]) rng-bit-generator(s), algorithm=rng_philox
  t = u64[3] get-tuple-element(g), index=0
  b = u32[7] get-tuple-element(g), index=1
  y = u32[7] xor(x, b)
  ROOT r = (s32[], u64[3], u32[7]) tuple(j, t, y) }
ENTRY main { s = u64[3] parameter(0)
  x = u32[7] parameter(1)
  z = s32[] constant(0)
  q = (s32[], u64[3], u32[7]) tuple(z, s, x)
  ROOT l = (s32[], u64[3], u32[7]) while(q), condition=condition, body=body }"""
    program = api.compile(text.encode(), auto_cast="none")
    assert program.python_steps == ()
    state, expected = [7, 3, 5], np.zeros(7, np.uint32)
    _, last, found = program(np.array(state, np.uint64), expected)
    for _ in range(20):
        state, words = twin.bit_generator("RNG_PHILOX", state, [7], 32)
        expected = expected ^ np.array(words, np.uint32)
    assert np.asarray(last).tolist() == state
    assert np.asarray(found).tolist() == expected.tolist()


def test_known_answers_of_random123() -> None:
    """Threefry's are published beside philox's, which test_stochastic_rounding.py has."""
    ones = (1 << 32) - 1
    assert twin.threefry2x32((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert twin.threefry2x32((ones, ones), (ones, ones)) == (0x1CB996FC, 0xBB002BE7)


def test_rng_seed_ignored_is_a_state_of_zeros() -> None:
    for algorithm in ALGORITHMS:
        zero = generate(algorithm, [0, 0], dtypes.uint32, (6,))
        ignored = generate(algorithm, [7, 11], dtypes.uint32, (6,), rng_seed="ignore")
        assert (ignored[0], ignored[1].tolist()) == (zero[0], zero[1].tolist())
        assert generate(algorithm, [7, 11], dtypes.uint32, (6,))[1].tolist() != zero[1].tolist()


@pytest.mark.parametrize(
    ("algorithm", "state", "dtype", "error"),
    [
        ("RNG_MERSENNE", ops.ArrayType(dtypes.uint64, (2,)), dtypes.uint32, "RNG_THREE_FRY"),
        ("RNG_PHILOX", ops.ArrayType(dtypes.uint64, (4,)), dtypes.uint32, r"uint64\[3\]"),
        ("RNG_THREE_FRY", ops.ArrayType(dtypes.uint64, (3,)), dtypes.uint32, r"uint64\[2\]"),
        ("RNG_PHILOX", ops.ArrayType(dtypes.uint32, (2,)), dtypes.uint32, r"uint32\[2\]"),
        ("RNG_PHILOX", ops.ArrayType(dtypes.uint64, (2,)), dtypes.boolean, "bool"),
    ],
)
def test_bit_generator_of_what_xla_lacks(
    algorithm: str, state: ops.ArrayType, dtype: dtypes.DType, error: str
) -> None:
    attributes = {"rng_algorithm": algorithm, "results": (state, ops.ArrayType(dtype, (3,)))}
    with pytest.raises((InvalidArgument, UnsupportedType), match=error):
        ops.by_opcode("rng-bit-generator", {}).infer([state], attributes)
    with pytest.raises(InvalidArgument, match="tuple"):
        ops.by_opcode("rng-bit-generator", {}).infer(
            [ops.ArrayType(dtypes.uint64, (2,))], {"rng_algorithm": "RNG_PHILOX", "results": (state,)}
        )


# ---- rng ---------------------------------------------------------------------------------------------

FLOATS = [t for t in dtypes.DTYPES.values() if t.exponent_bits and t.device]
BOUNDS = [(0.0, 1.0), (-3.0, 1.5), (2.0, 2.0), (1.0, -1.0), (-0.25, math.nan), (0.875, 1.0)]


@each_of("bounds", BOUNDS, ids=str)
@each_of("dtype", FLOATS, ids=lambda t: t.name)
@each_of("distribution", ["RNG_UNIFORM", "RNG_NORMAL"])
def test_distribution_S2_equals_the_twin(
    distribution: str, dtype: dtypes.DType, bounds: tuple[float, float]
) -> None:
    seed, dims = 12345678901234567890, (3, 7)
    found = distributed(distribution, dtype, bounds, dims, setting(seed))
    function = distributions.uniform if distribution == "RNG_UNIFORM" else distributions.normal
    place = twin.identifier(f"{PATH}/rng")
    low, high = (formats.from_float(dtype.name, x) for x in bounds)
    expected = [function(dtype.name, seed, place, i, low, high) for i in range(21)]
    assert found.view(f"u{dtype.itemsize}").ravel().tolist() == expected


def test_uniform_stays_below_its_open_end() -> None:
    """In bfloat16 one value of 512 would round to 1; in float8 one of 32."""
    for dtype in (dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float32):
        found = distributed("RNG_UNIFORM", dtype, (0.5, 1.0), (4000,), setting())
        values = found.view(dtype.numpy).astype(np.float64)
        assert values.min() >= 0.5
        assert values.max() == 1 - dtype.eps / 2 or dtype is dtypes.float32
        assert values.max() < 1


@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.int64, dtypes.uint64]
)
def test_uniform_integers_S2_equal_the_twin(dtype: dtypes.DType) -> None:
    info, place = np.iinfo(dtype.numpy), twin.identifier(f"{PATH}/rng")
    for low, high in ((0, 10), (info.min, info.max), (5, 5), (100, 3)):
        found = distributed("RNG_UNIFORM", dtype, (low, high), (9,), setting(7))
        ends = (x % (1 << dtype.bits) for x in (low, high))
        a, b = ends
        expected = [distributions.uniform_integer(dtype.bits, 7, place, i, a, b) for i in range(9)]
        assert found.view(f"u{dtype.itemsize}").tolist() == expected
        if low < high:
            assert all(low <= x < high for x in found.tolist())


def test_distribution_has_its_moments() -> None:
    n = 200_000
    uniform = distributed("RNG_UNIFORM", dtypes.float32, (-1, 3), (n,), setting()).astype(np.float64)
    normal = distributed("RNG_NORMAL", dtypes.float32, (1, 2), (n,), setting()).astype(np.float64)
    # Five standard deviations of the estimates.
    assert abs(uniform.mean() - 1) < 5 * math.sqrt(16 / 12 / n)
    assert abs(uniform.var() - 16 / 12) < 5 * math.sqrt((4**4 / 80 - (16 / 12) ** 2) / n)
    assert abs(normal.mean() - 1) < 5 * 2 / math.sqrt(n)
    assert abs(normal.var() - 4) < 5 * 4 * math.sqrt(2 / n)


def test_distribution_of_float64_is_the_hosts() -> None:
    """H1: 53 bits of a word of 64."""
    found = distributed("RNG_UNIFORM", dtypes.float64, (0, 1), (5,), setting(9))
    place = twin.identifier(f"{PATH}/rng")
    words = [twin.word(9, place, 2 * i) | twin.word(9, place, 2 * i + 1) << 32 for i in range(5)]
    assert found.tolist() == [(w >> 11) / 2**53 for w in words]
    normal = distributed("RNG_NORMAL", dtypes.float64, (0, 1), (100_000,), setting(9))
    assert abs(normal.std() - 1) < 5 / math.sqrt(200_000)


def test_distribution_draws_anew_by_seed_call_and_place() -> None:
    def drawn(seed: int, path: str, **fields: str) -> bytes:
        case = setting(seed, path, **fields)
        return distributed("RNG_UNIFORM", dtypes.float32, (0, 1), (8,), case).tobytes()

    usual = drawn(1, "0/main/rng.1/")
    assert usual == drawn(1, "0/main/rng.1/")
    # A float32 element takes no part in stochastic rounding.
    assert usual == drawn(1, "0/main/rng.1/", rounding="stochastic")
    others = [drawn(2, "0/main/rng.1/"), drawn(1, "1/main/rng.1/"), drawn(1, "0/main/rng.2/")]
    others.append(drawn(1, "0/main/rng.1/5"))
    assert len({usual, *others}) == 5


def test_distribution_rounds_stochastically_by_other_words() -> None:
    case = setting(3, rounding="stochastic")
    found = distributed("RNG_UNIFORM", dtypes.bfloat16, (0, 4), (2000,), case)
    nearest = distributed("RNG_UNIFORM", dtypes.bfloat16, (0, 4), (2000,), setting(3))
    wide = distributed("RNG_UNIFORM", dtypes.float32, (0, 4), (2000,), setting(3))
    away = found.view(np.uint16) != nearest.view(np.uint16)
    assert 0.15 < away.mean() < 0.35
    distance = found.view(dtypes.bfloat16.numpy).astype(np.float64) - wide
    assert abs(np.mean(distance / np.maximum(np.abs(wide), 1e-3))) < 2e-4


@pytest.mark.parametrize(
    ("distribution", "operands", "error"),
    [
        ("RNG_NORMAL", [(dtypes.int32, ()), (dtypes.int32, ())], "RNG_NORMAL of int32"),
        ("RNG_UNIFORM", [(dtypes.boolean, ()), (dtypes.boolean, ())], "bool"),
        ("RNG_UNIFORM", [(dtypes.float32, (2,)), (dtypes.float32, (2,))], "scalars"),
        ("RNG_UNIFORM", [(dtypes.float32, ()), (dtypes.float16, ())], "different types"),
        ("RNG_BETA", [(dtypes.float32, ()), (dtypes.float32, ())], "RNG_UNIFORM and RNG_NORMAL"),
    ],
)
def test_distribution_of_what_xla_lacks(
    distribution: str, operands: list[tuple[dtypes.DType, tuple[int, ...]]], error: str
) -> None:
    types = [ops.ArrayType(*t) for t in operands]
    with pytest.raises((InvalidArgument, UnsupportedType), match=error):
        ops.by_opcode("rng", {}).infer(types, {"distribution": distribution, "dims": (3,)})


# ---- rng-get-and-update-state ------------------------------------------------------------------------


def state(path: str, delta: int) -> list[int]:
    attributes = {"delta": delta, "dims": (2,), "dtype": dtypes.uint64}
    row = ops.by_opcode("rng-get-and-update-state", {})
    (found,) = ops.evaluate(row, [], attributes, ops.Setting(Profile(), 0, path))
    return found.data.tolist()


def test_rng_state_advances_with_each_call() -> None:
    assert state("0/main/s/", 5) == state("0/main/t/", 9) == [0x7012395, 0]
    assert state("4/main/s/", 5) == [0x7012395 + 20, 0]
    assert state("", 5) == [0x7012395, 0]
    trips = [state(f"0/body/s/{n}", 5) for n in range(3)]
    assert len({high for _, high in trips}) == 3
    with pytest.raises(InvalidArgument, match="uint64"):
        ops.by_opcode("rng-get-and-update-state", {}).infer([], {"dims": (3,), "dtype": dtypes.uint64})
