"""Rule R6 and data movement between replicas: the rows, evaluated by every replica in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType
from neuronsim.executor.rendezvous import Rendezvous
from neuronsim.ops import ArrayType, Bits, Replica, ScalarComputation, ScalarStep
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats, random, sums
from tests.core.test_windows import arithmetic
from tests.support.draws import random_words
from tests.support.parameters import each_of
from tests.support.processors import check_everywhere
from tests.support.words import (
    BITWISE,
    FLOATS,
    INTEGERS,
    REDUCERS,
    Words,
    as_bits,
    encoded,
    widened,
    word_type,
)
from tests.support.words import words as words_of

# Lists of groups of four replicas: all, ascending and not, pairs, of several sizes.
GROUPS: list[tuple[tuple[int, ...], ...]] = [
    (),
    ((0, 1, 2, 3),),
    ((2, 0, 3, 1),),
    ((0, 2), (3, 1)),
    ((3,), (0,), (2,), (1,)),
]
UNEVEN: tuple[tuple[int, ...], ...] = ((3, 0, 2), (1,))
F32, S32 = dtypes.float32, dtypes.int32


def together(
    name: str,
    operands: Sequence[Sequence[Bits]],
    attributes: dict[str, Any],
    profile: Profile = Profile(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> list[tuple[np.ndarray, ...]]:
    """What each replica gets, as words, from the operands of each."""
    count = len(operands)
    rendezvous = Rendezvous(count)
    defaults = {"replica_groups": (), "channel_id": 0}
    row = ops.by_name(name)

    def evaluate(number: int) -> tuple[np.ndarray, ...]:
        replica = Replica(number, count, partial(rendezvous.meet, number))
        setting = ops.Setting(profile, seed, "0/main/c/", replica)
        try:
            found = ops.evaluate(row, operands[number], defaults | attributes, setting)
            return tuple(map(words_of, found))
        finally:
            rendezvous.leave(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(evaluate, range(count), timeout=60))


def with_one_each(
    name: str, type_name: str, given: Sequence[Words], attributes: dict[str, Any], **more: Any
) -> list[Words]:
    """The same where each replica has one operand of these words, and gets one array."""
    operands = [[as_bits(type_name, w)] for w in given]
    return [x for (x,) in together(name, operands, attributes, **more)]


def simple(reducer: str, t: dtypes.DType) -> dict[str, Any]:
    """The attributes of a simple reducer of one type."""
    step = ScalarStep(ops.by_name(reducer), {}, (0, 1), t)
    computation = ScalarComputation(reducer, (t, t), (step,), (2,), reducer)
    return {"computations": (computation,), "reducer": reducer}


def members(groups: Sequence[Sequence[int]], number: int, count: int = 4) -> Sequence[int]:
    return next((g for g in groups or [range(count)] if number in g), ())


# ---- R6: all-reduce and reduce-scatter -----------------------------------------------------------


def reduced(reducer: str, type_name: str, columns: Sequence[Words]) -> Words:
    """The twin's reduction of the words of a group's arrays, ascending."""
    t = dtypes.DTYPES[type_name]

    def combine(row: Sequence[int]) -> int:
        if t.kind == "float":
            return sums.reduce_replicas(reducer, type_name, row)
        step = (twin.BOOL if t is dtypes.boolean else twin.INTEGER)[reducer]
        return sums.reduce_integer(step, row[1:], row[0]) % (1 << 8 * t.itemsize)

    given = [c if t.kind == "float" else c.view(t.storage) for c in columns]
    rows = zip(*(c.ravel().tolist() for c in given), strict=True)
    return np.array([combine(row) for row in rows], word_type(type_name)).reshape(columns[0].shape)


def random_words_of_group(
    type_name: str, seed: int, dims: tuple[int, ...], count: int = 4
) -> list[Words]:
    rng = np.random.default_rng(seed)
    mode = ("near", "any", "special")[seed % 3]
    return [random_words(rng, type_name, dims, mode) for _ in range(count)]


@each_of("type_name", [*FLOATS, *INTEGERS, "bool"])
def test_all_reduce_R6_adds_replicas_ascending(type_name: str) -> None:
    for seed in range(12):
        t = dtypes.DTYPES[type_name]
        reducers = REDUCERS if t.kind == "float" else [*REDUCERS, *BITWISE]
        reducer = "add" if seed < 6 else reducers[seed % len(reducers)]
        groups = [*GROUPS, UNEVEN][seed % 6]
        words = random_words_of_group(type_name, seed, ((), (37,), (3, 5))[seed % 3])
        attributes = {"replica_groups": groups, **simple(reducer, t)}
        for number, data in enumerate(with_one_each("all_reduce", type_name, words, attributes)):
            columns = [words[n] for n in sorted(members(groups, number))]
            assert np.array_equal(data, reduced(reducer, type_name, columns))


def test_all_reduce_R6_is_no_other_order() -> None:
    """A sum that every other order, and a rounding at each step, would give otherwise."""
    wide = encoded("float32", [1.0, 2.0**24, -(2.0**24), 2.0**-24])
    attributes = {"replica_groups": ((3, 2, 1, 0),), **simple("add", F32)}
    found = with_one_each("all_reduce", "float32", list(wide), attributes)
    assert {int(x) for x in found} == {encoded("float32", [2.0**-24])[0]}
    narrow = encoded("bfloat16", [1, 2.0**-8, 2.0**-8, 2.0**-8])
    found = with_one_each("all_reduce", "bfloat16", list(narrow), simple("add", dtypes.bfloat16))
    assert {int(x) for x in found} == {0x3F82}  # 1 + 3 * 2^-8


def test_all_reduce_of_one_replica_moves_bits() -> None:
    words = np.array([0x80000000, 0xFFC00001, 1, 0x7F800001], np.uint32)
    (found,) = with_one_each("all_reduce", "float32", [words], simple("add", F32))
    assert found.tolist() == words.tolist()


def test_all_reduce_takes_several_arrays() -> None:
    names = ["float32", "bfloat16", "int32"]  # by one computation, of float32: XLA reads its kind
    words = [random_words_of_group(n, 3, (5,)) for n in names]
    operands = [[as_bits(t, w[n]) for t, w in zip(names, words, strict=True)] for n in range(4)]
    found = together("all_reduce", operands, simple("add", F32))
    for n, name in enumerate(names):
        expected = reduced("add", name, words[n])
        assert all(np.array_equal(x[n], expected) for x in found)


def difference_of_squares() -> dict[str, Any]:
    """No simple reducer: a * a - b, each step rounded to bfloat16."""
    t = dtypes.bfloat16
    steps = (
        ScalarStep(ops.by_name("multiply"), {}, (0, 0), t),
        ScalarStep(ops.by_name("subtract"), {}, (2, 1), t),
    )
    return {"computations": (ScalarComputation("f", (t, t), steps, (3,)),), "reducer": None}


def test_all_reduce_R6_runs_other_computations_as_they_are_typed() -> None:
    words = random_words_of_group("bfloat16", 0, (41,))
    groups = ((1, 3, 0), (2,))

    def step(a: int, b: int) -> int:
        return arithmetic("subtract", "bfloat16", arithmetic("multiply", "bfloat16", a, a), b)

    attributes = {"replica_groups": groups, **difference_of_squares()}
    found = with_one_each("all_reduce", "bfloat16", words, attributes)
    rows = zip(words[0].tolist(), words[1].tolist(), words[3].tolist(), strict=True)
    expected = [step(step(a, b), c) for a, b, c in rows]
    assert all(found[number].tolist() == expected for number in (0, 1, 3))
    assert np.array_equal(found[2], words[2])


@each_of("groups", GROUPS)
@each_of("type_name", ["float32", "bfloat16", "uint8"])
def test_reduce_scatter_R6_gives_each_member_its_part(
    type_name: str, groups: tuple[tuple[int, ...], ...]
) -> None:
    words = random_words_of_group(type_name, 0, (3, 8, 2))
    size = len(members(groups, 0))
    attributes = {"replica_groups": groups, "dimensions": (1,), "dims": (3, 8 // size, 2)}
    attributes |= simple("add", dtypes.DTYPES[type_name])
    for number, data in enumerate(with_one_each("reduce_scatter", type_name, words, attributes)):
        group = members(groups, number)
        whole = reduced("add", type_name, [words[n] for n in sorted(group)])
        part = np.split(whole, size, axis=1)[group.index(number)]
        assert np.array_equal(data, part)


def test_all_reduce_S2_draws_the_same_words_on_every_replica() -> None:
    wide = random_words_of_group("float32", 0, (64,))
    narrow = [np.array([formats.convert("float32", "bfloat16", int(x)) for x in w]) for w in wide]
    operands = [[as_bits("bfloat16", w.astype(np.uint16))] * 2 for w in narrow]
    profile = Profile(rounding="stochastic")
    found = together("all_reduce", operands, simple("add", dtypes.bfloat16), profile, seed=9)
    rows = zip(*(widened("bfloat16", w) for w in narrow), strict=True)
    totals = [reduce(twin.add, row) for row in rows]
    for place, path in enumerate(("0/main/c//", "0/main/c//1/")):
        assert all(np.array_equal(x[place], found[0][place]) for x in found)
        identifier = random.identifier(path)
        for i, total in enumerate(totals):
            word = random.word(9, identifier, i)
            expected = formats.round_number("bfloat16", formats.decode("float32", total), word=word)
            assert int(found[0][place][i]) == expected


def test_all_reduce_C4_flushes_subnormals() -> None:
    given = [np.array([w], np.uint32) for w in (1, 0x00800000, 0x807FFFFF)]
    for subnormals, expected in (("keep", 2), ("flush", 0x00800000)):
        profile = Profile(subnormals=subnormals)
        found = with_one_each("all_reduce", "float32", given, simple("add", F32), profile=profile)
        assert found[0].tolist() == [expected]


@pytest.mark.usefixtures("restored_processor")
def test_all_reduce_D1_is_the_same_by_threads_and_instruction_sets() -> None:
    given = random_words_of_group("bfloat16", 0, (70_000,)), simple("add", dtypes.bfloat16)
    run = partial(with_one_each, "all_reduce", "bfloat16", *given)
    found = check_everywhere(lambda: np.stack(run()), threads=(1, 2))
    assert (found == found[0]).all()


# ---- data movement -------------------------------------------------------------------------------


@each_of("type_name", ["float32", "bfloat16", "bool", "int64", "float8_e4m3fn"])
@each_of("groups", GROUPS)
def test_movement_between_replicas_is_of_bits(
    groups: tuple[tuple[int, ...], ...], type_name: str
) -> None:
    words = random_words_of_group(type_name, 1, (2, 4))
    size = len(members(groups, 0))
    listed = {"replica_groups": groups, "dimensions": (1,)}
    gathered = with_one_each("all_gather", type_name, words, listed | {"dims": (2, 4 * size)})
    exchanged = with_one_each("all_to_all", type_name, words, listed | {"dims": (2, 4)})
    spread = with_one_each("collective_broadcast", type_name, words, {"replica_groups": groups})
    for number in range(4):
        group = members(groups, number)
        own = group.index(number)
        whole = np.concatenate([words[n] for n in group], axis=1)
        assert np.array_equal(gathered[number], whole)
        parts = [np.split(words[n], size, axis=1)[own] for n in group]
        assert np.array_equal(exchanged[number], np.concatenate(parts, axis=1))
        assert np.array_equal(spread[number], words[group[0]])


def test_all_to_all_of_a_tuple_gives_each_member_an_array() -> None:
    words = [random_words_of_group("float16", n, (3,), 2) for n in range(4)]
    operands = [[as_bits("float16", w) for w in pair] for pair in words]
    groups = ((0, 3), (2, 1))
    found = together("all_to_all", operands, {"replica_groups": groups, "dimensions": ()})
    for number in range(4):
        group = members(groups, number)
        expected = [words[n][group.index(number)] for n in group]
        assert [x.tolist() for x in found[number]] == [w.tolist() for w in expected]


@each_of(
    ("name", "attributes", "sources"),
    [
        ("collective_permute", {"source_target_pairs": ((0, 2), (2, 1), (3, 3))}, [None, 2, 0, 3]),
        ("collective_broadcast", {"replica_groups": ((2, 0),)}, [2, None, 2, None]),
    ],
)
def test_collective_permute_and_broadcast_give_zeros_where_there_is_no_source(
    name: str, attributes: dict[str, Any], sources: list[int | None]
) -> None:
    words = random_words_of_group("float32", 1, (3,))
    expected = [np.zeros(3) if n is None else words[n] for n in sources]
    assert np.array_equal(with_one_each(name, "float32", words, attributes), expected)


@pytest.mark.parametrize("name", ["collective_permute", "all_to_all", "collective_broadcast"])
def test_results_share_no_memory_with_operands(name: str) -> None:
    """Their owner overwrites them while the others still read what they got."""
    operands = [[Bits(np.arange(4, dtype=np.int32) + n, S32)] for n in range(2)]
    attributes = {"source_target_pairs": ((0, 1), (1, 0)), "dimensions": (0,)}
    found = together(name, operands, attributes)
    pairs = [(x, y.data) for (x,) in found for (y,) in operands]
    assert not any(np.may_share_memory(x, y) for x, y in pairs)


def test_replica_id_is_the_number_and_partition_id_that_of_a_partitioned_module() -> None:
    for name, more, expected in (
        ("replica_id", {}, [0, 1, 2]),
        ("partition_id", {"partitioned": False}, [0, 0, 0]),
        ("partition_id", {"partitioned": True}, [0, 1, 2]),
    ):
        found = [x for (x,) in together(name, [[], [], []], more)]
        assert [int(x) for x in found] == expected
        assert {(x.dtype.str, x.shape) for x in found} == {("<u4", ())}


# ---- shapes --------------------------------------------------------------------------------------


def infer(name: str, *types: ArrayType, **attributes: Any) -> ops.Result:
    defaults = {"replica_groups": (), "channel_id": 0, "dims": ()}
    return ops.by_name(name).infer(types, defaults | attributes)


def f32(*dims: int) -> ArrayType:
    return ArrayType(F32, dims)


PAIRS = ((0, 1), (2, 3))


def test_shapes_follow_the_size_of_the_groups() -> None:
    add = simple("add", F32)
    two = {"replica_groups": PAIRS, "dimensions": (0,)}
    assert infer("all_reduce", f32(4), f32(2, 2), **add) == (f32(4), f32(2, 2))
    assert infer("all_gather", f32(4, 3), **two) == f32(8, 3)
    assert infer("all_gather", f32(4, 3), f32(1), **two) == (f32(8, 3), f32(2))
    assert infer("reduce_scatter", f32(4, 3), **two, **add) == f32(2, 3)
    assert infer("all_to_all", f32(4, 3), **two) == f32(4, 3)
    assert infer("all_to_all", f32(4), f32(4), dimensions=()) == (f32(4), f32(4))
    assert infer("all_to_all", f32(4), dimensions=()) == (f32(4),)


def test_shapes_without_groups_are_as_the_graph_states() -> None:
    add = simple("add", F32)
    assert infer("all_gather", f32(4), dimensions=(0,), dims=(12,)) == f32(12)
    assert infer("all_gather", f32(4), dimensions=(0,), dims=(13,)) == f32(12)
    assert infer("all_gather", f32(0), dimensions=(0,), dims=(0,)) == f32(0)
    assert infer("reduce_scatter", f32(12), dimensions=(0,), dims=(4,), **add) == f32(4)
    assert infer("reduce_scatter", f32(0), dimensions=(0,), dims=(0,), **add) == f32(0)


@each_of(
    ("name", "types", "attributes", "message"),
    [
        ("all_gather", [f32(4)], {"dimensions": (1,)}, "distinct axes"),
        ("all_gather", [f32(4)], {"dimensions": ()}, "one axis"),
        ("all_gather", [f32(4)], {"replica_groups": ((0, 1), (2,))}, "different sizes"),
        ("all_gather", [f32(4)], {"replica_groups": ((0, 1), (1, 2))}, "twice"),
        ("all_gather", [f32(4)], {"replica_groups": ((0, 1), ())}, "empty replica group"),
        ("all_gather", [f32(4)], {"replica_groups": ((0, -1),)}, "below 0"),
        ("all_gather", [f32(4)], {"use_global_device_ids": True}, "channel_id"),
        ("all_to_all", [f32(3)], {"replica_groups": PAIRS}, "2 equal parts"),
        ("all_to_all", [f32(4), f32(4)], {}, "one operand"),
        ("all_to_all", [f32(4)] * 3, {"dimensions": (), "replica_groups": PAIRS}, "3 operands"),
        ("all_to_all", [f32(4), f32(2)], {"dimensions": ()}, "different types"),
        ("collective_permute", [f32(4)], {"source_target_pairs": ((0, 1), (0, 2))}, "source twice"),
        ("collective_permute", [f32(4)], {"source_target_pairs": ((0, 1), (2, 1))}, "target twice"),
        ("reduce_scatter", [f32(3)], {"replica_groups": PAIRS, **simple("add", F32)}, "2 equal"),
        ("all_reduce", [f32(3)], difference_of_squares(), "takes"),
        ("all_reduce", [f32(3)], simple("add", F32) | {"computations": ()}, "applies 1"),
    ],
)
def test_shapes_that_cannot_be_are_refused(
    name: str, types: list[ArrayType], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        infer(name, *types, **({"dimensions": (0,)} | attributes))


def test_reducers_that_a_type_has_not_are_refused() -> None:
    for t in (F32, dtypes.boolean):
        reducer = "bitwise_and" if t is F32 else "power"
        with pytest.raises(UnsupportedType, match="not defined"):
            infer("all_reduce", ArrayType(t, (3,)), **simple(reducer, t))
    with pytest.raises(UnsupportedOperator, match="stochastic"):
        together(
            "all_reduce",
            [[Bits(np.zeros(2, np.uint16), dtypes.bfloat16)]] * 2,
            difference_of_squares(),
            Profile(rounding="stochastic"),
        )
