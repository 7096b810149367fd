"""use_profile on eager arrays: fields, seeds, nesting; threads, tasks, contexts, generators."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import neuronsim as np
from neuronsim.errors import InvalidArgument
from neuronsim.profiles import Profile, avx512_bf16, current_profile, rounding_state

pytestmark = pytest.mark.isa_independent

# 1000 values a quarter of the way between neighbours of bfloat16, to which S rounds them at random.
BETWEEN = np.asarray([1 + n / 128 + 1 / 512 for n in range(100)] * 10)


def drawn() -> bytes:
    """One stochastic rounding: bytes that depend on the seed and on how many came before."""
    return BETWEEN.astype(np.bfloat16).tobytes()


def in_a_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def draws_of(seed: int, count: int) -> list[bytes]:
    """What a fresh thread draws after seed_rounding: the sequence that `seed=` must give."""

    def run() -> list[bytes]:
        np.seed_rounding(seed)
        with np.use_profile(rounding="stochastic"):
            return [drawn() for _ in range(count)]

    found: list[bytes] = in_a_thread(run)
    return found


@pytest.fixture(autouse=True)
def own_context() -> Iterator[None]:
    """Each test seeds and counts for itself."""
    before = rounding_state()
    np.seed_rounding(0)
    yield
    np.seed_rounding(before.seed)


def test_the_draws_differ_S2() -> None:
    """Control: the sequences of these tests tell seeds and places apart."""
    sequences = [draws_of(seed, 3) for seed in (0, 7, 8)]
    assert len({d for s in sequences for d in s}) == 9


def test_a_seed_starts_the_words_anew_inside_the_block_S2() -> None:
    for _ in range(2):
        with np.use_profile(rounding="stochastic", seed=7):
            assert [drawn() for _ in range(3)] == draws_of(7, 3)


def test_the_outer_sequence_goes_on_untouched_S2() -> None:
    expected = draws_of(0, 4)
    with np.use_profile(rounding="stochastic"):
        found = [drawn()]
        with np.use_profile(seed=7):
            assert [drawn(), drawn()] == draws_of(7, 2)
            with np.use_profile(seed=8):
                assert drawn() == draws_of(8, 1)[0]
            assert drawn() == draws_of(7, 3)[2]
        found += [drawn()]
        with pytest.raises(ZeroDivisionError), np.use_profile(seed=9):
            1 / len(drawn()[:0])
        found += [drawn()]
        with np.use_profile(subnormals="flush"):  # without a seed the sequence is the same one
            found += [drawn()]
    assert found == expected


def test_seed_rounding_inside_a_seeded_block_ends_with_it() -> None:
    with np.use_profile(rounding="stochastic", seed=7):
        np.seed_rounding(8)
        assert drawn() == draws_of(8, 1)[0]
    assert (rounding_state().seed, rounding_state().calls) == (0, 0)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "7", True], ids=repr)
def test_a_seed_is_an_unsigned_64_bit_integer(seed: Any) -> None:
    with pytest.raises(InvalidArgument, match="seed"), np.use_profile(seed=seed):
        pass
    assert current_profile() == Profile()


def test_a_decorated_function_runs_under_the_profile_of_each_call() -> None:
    @np.use_profile(seed=7)
    def twice() -> list[bytes]:
        return [drawn(), drawn()]

    with np.use_profile(rounding="stochastic"):
        assert twice() == twice() == draws_of(7, 2)
    assert len(set(twice())) == 1  # to nearest: the profile outside is that of the call
    assert twice.__name__ == "twice"


def test_a_profile_and_fields_upon_it() -> None:
    with np.use_profile(avx512_bf16):
        assert current_profile() is avx512_bf16
        with np.use_profile(Profile(), divide="reciprocal_multiply"):
            assert current_profile() == Profile(divide="reciprocal_multiply")
        with np.use_profile(divide="reciprocal_multiply") as inner:
            assert inner == avx512_bf16.replace(divide="reciprocal_multiply")
    with pytest.raises(InvalidArgument, match="Profile"), np.use_profile("exact"):  # type: ignore[arg-type]
        pass


def test_a_block_entered_again_finds_its_programs() -> None:
    seen = []
    for _ in range(2):
        with np.use_profile(subnormals="flush") as p:
            seen.append(p)
    assert seen[0] is seen[1]


def test_threads_have_profiles_and_sequences_of_their_own() -> None:
    with np.use_profile(rounding="stochastic", seed=7):
        assert in_a_thread(lambda: current_profile().rounding) == "nearest_even"
        in_a_thread(lambda: np.seed_rounding(99))
        assert [drawn(), drawn()] == draws_of(7, 2)
    barrier = threading.Barrier(4)

    def run(seed: int) -> list[bytes]:
        with np.use_profile(rounding="stochastic", seed=seed):
            barrier.wait()
            return [drawn() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(4)))
    assert found == [draws_of(seed, 20) for seed in range(4)]


def test_tasks_have_profiles_and_sequences_of_their_own() -> None:
    async def run(seed: int) -> list[bytes]:
        found = []
        with np.use_profile(rounding="stochastic", seed=seed):
            for _ in range(5):
                found.append(drawn())
                await asyncio.sleep(0)
        return found

    async def main() -> list[list[bytes]]:
        return await asyncio.gather(*(run(seed) for seed in range(4)))

    assert asyncio.run(main()) == [draws_of(seed, 5) for seed in range(4)]
    assert current_profile() == Profile()


def test_a_copied_context_goes_on_for_itself() -> None:
    with np.use_profile(rounding="stochastic", seed=7):
        first = drawn()
        context = contextvars.copy_context()
        second = drawn()
    assert [first, second] == draws_of(7, 2)
    assert context.run(drawn) == second  # from where it was copied
    assert context.run(drawn) == draws_of(7, 3)[2]
    assert current_profile() == Profile()


def test_a_generator_leaves_its_profile_with_its_caller_until_it_ends() -> None:
    """Python's context variables do so; NumPy's errstate too."""

    def generate() -> Iterator[str]:
        with np.use_profile(subnormals="flush"):
            yield current_profile().subnormals
            yield current_profile().subnormals

    generator = generate()
    assert next(generator) == "flush"
    assert current_profile().subnormals == "flush"
    generator.close()
    assert current_profile() == Profile()
    assert list(generate()) == ["flush", "flush"]
    assert current_profile() == Profile()
