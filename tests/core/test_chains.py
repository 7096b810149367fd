"""Tile programs: chains of steps in registers (D2), layouts and sizes of their operands (E1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats
from tests.support.draws import random_words
from tests.support.evaluation import CODES, chain_of, evaluate
from tests.support.parameters import each_of
from tests.support.processors import every_processor
from tests.support.words import FLOATS, Words

ARITY = {name: arity for name, arity, _ in _core.OPS}
INTEGERS = ["int8", "int32", "int64", "uint8", "uint32", "bool"]
WORDS = ["float32", "int32", "uint32"]  # whose bits a chain moves from one to another (E6)
PLAIN = ops.numerics(Profile())
COMPARISONS = [name for name, _, kind in _core.OPS if kind == "comparison"]


# ---- layouts and sizes -------------------------------------------------------------------------


def layouts(words: Words) -> Iterator[tuple[str, Words]]:
    """Views of a [6, 70, 40] array of words."""
    yield "dense", words
    yield "rows that are no multiple of a vector", words[:, :, :33]
    yield "every second", words[:, :, ::2]
    yield "backwards", words[::-1, ::-1, ::-1]
    yield "backwards in steps", words[::-2, :, 37::-3]
    yield "transposed", words.transpose(2, 0, 1)
    yield "a broadcast row", np.broadcast_to(words[2, 3], (50, 40))
    yield "a broadcast column", np.broadcast_to(words[2, :, 3:4], (70, 600))
    yield "one element", np.broadcast_to(words[1, 1, 1], (3, 500))
    yield "a window that overlaps", np.lib.stride_tricks.sliding_window_view(words[0, 0], 7)
    yield "no element", words[:, :0]
    yield "rank 0", words[0, 0, 0, ...]
    records = np.zeros(70, [("row", words.dtype, (64,)), ("odd", np.uint8, (2,))])
    records["row"][:, :40] = words[3]
    yield "rows that lie no whole elements apart", records["row"]
    shifted = np.frombuffer(b"\0" + words.tobytes(), np.uint8)[1:]
    yield "not aligned", shifted.view(words.dtype)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e4m3", "int8", "int64", "uint16"])
def test_every_layout_E1_gives_the_same_bits(isa: str, threads: int, type_name: str) -> None:
    rng = np.random.default_rng(18)
    words = random_words(rng, type_name, (6, 70, 40), "near")
    for label, view in layouts(words):
        dense = np.array(view, order="C")
        other = random_words(rng, type_name, view.shape, "near")
        expected = evaluate("subtract", (type_name, dense), (type_name, other))
        ours = evaluate("subtract", (type_name, view), (type_name, other))
        assert np.array_equal(ours, expected), label
        condition = ("bool", (other & 1).astype(np.uint8))
        ours = evaluate("select", condition, (type_name, view), (type_name, other))
        assert np.array_equal(ours, np.where(other & 1 == 1, dense, other)), label


SIZES = [0, 1, 2, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 8191, 8192, 8193, 16385, 65535, 400_001]


def test_every_size_E1_around_tiles_and_grains(isa: str, threads: int) -> None:
    for n in SIZES:
        rng = np.random.default_rng(n)
        cases = ("add", "float32"), ("multiply", "int16"), ("subtract", "int32"), ("add", "uint8")
        for name, type_name in cases:
            a, b = (random_words(rng, type_name, n, "near") for _ in range(2))
            expected = getattr(np, name)(a.view(type_name), b.view(type_name))
            ours = evaluate(name, (type_name, a), (type_name, b))
            assert np.array_equal(ours, expected.view(a.dtype))


def test_bools_E8_may_be_any_byte_but_zero(isa: str) -> None:
    """Where they lie in memory: another library's may be so."""
    words = np.random.default_rng(8).choice(np.array([0, 1, 2, 128, 255], np.uint8), (6, 70, 40))
    for label, view in layouts(words):
        plain = (view != 0).astype(np.uint8)
        for name in ("bitwise_and", "bitwise_xor", "equal", "bitwise_invert"):
            ours, expected = (
                evaluate(name, *[("bool", w), ("bool", np.flip(plain))][: ARITY[name]])
                for w in (view, plain)
            )
            assert np.array_equal(ours, expected), (label, name)
        ones, zeros = (np.full(view.shape, v, np.float32).view(np.uint32) for v in (1, 0))
        chosen = evaluate("select", ("bool", view), ("float32", ones), ("float32", zeros))
        assert np.array_equal(chosen, np.where(plain == 1, ones, zeros)), label
        found = evaluate("convert", ("bool", view), dtype=dtypes.int32)
        assert np.array_equal(found, plain), label


# ---- chains ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["uint8", "int16", "uint32", "int64"])
def test_a_constant_D2_beside_blocks_of_any_length(isa: str, type_name: str) -> None:
    """Narrow elements run in longer blocks: a constant is there for all of one."""
    constant = ops.constant_link(ops.Bits(np.array(3, type_name), dtypes.DTYPES[type_name]))
    code = _core.DTYPES.index(type_name)
    chain = ops.make_chain((code,), (constant, (CODES["add"], code, (0, 1))), (2,), Profile())
    x = random_words(np.random.default_rng(3), type_name, 9000).view(type_name)
    out = np.empty_like(x)
    chain.on([x], [out]).run()
    assert np.array_equal(out, x + np.array(3, type_name))


def random_chain(rng: np.random.Generator) -> tuple[list[str], list[tuple[str, str, list[int]]]]:
    """Types of the inputs and up to ten well-typed steps (operation, result type, operands)."""
    values = [str(t) for t in rng.choice([*FLOATS, "int32", "bool"], rng.integers(1, 4))]
    inputs = list(values)
    steps: list[tuple[str, str, list[int]]] = []
    for _ in range(rng.integers(1, 11)):
        v = int(rng.integers(len(values)))
        same = [i for i, t in enumerate(values) if t == values[v]]
        bools = [i for i, t in enumerate(values) if t == "bool"]
        is_float = values[v] in FLOATS
        choices = list(twin.FLOAT) if is_float else list(twin.INTEGER)
        if values[v] == "bool":
            choices = ["bitwise_and", "bitwise_or", "bitwise_xor"]
        others = ["select", "convert", "convert", "bitcast_convert"]
        name = str(rng.choice([*choices, *COMPARISONS, *others]))
        if (name == "select" and not bools) or (name == "bitcast_convert" and values[v] not in WORDS):
            name = "convert"
        if name == "bitcast_convert":
            steps.append((name, str(rng.choice(WORDS)), [v]))
        elif name == "convert":
            result = str(rng.choice([*FLOATS, *INTEGERS]))
            steps.append((name, result, [v]))
        else:
            operands = [int(rng.choice(same)) for _ in range(ARITY[name])]
            if name == "select":
                operands[0] = int(rng.choice(bools))
            result = "bool" if name in COMPARISONS else values[v]
            steps.append((name, result, operands))
        values.append(steps[-1][1])
    return inputs, steps


@each_of("seed", range(120))
def test_chain_D2_equals_op_by_op(restored_processor: None, seed: int) -> None:
    """Several steps of different types in registers, against the same steps through memory."""
    rng = np.random.default_rng(seed)
    inputs, steps = random_chain(rng)
    n = int(rng.choice([1, 7, 16, 17, 100, 513, 1200]))
    modes = ["any", "near", "special"]
    values = [(t, random_words(rng, t, n, str(rng.choice(modes)))) for t in inputs]
    data = [words for _, words in values]
    for name, result, operands in steps:
        if name == "bitcast_convert":
            values.append((result, values[operands[0]][1]))
            continue
        more = {"dtype": dtypes.DTYPES[result]} if name == "convert" else {}
        values.append((result, evaluate(name, *(values[i] for i in operands), **more)))
    every_step = list(range(len(inputs), len(values)))
    for outputs in (every_step, every_step[-1:]):
        program = chain_of(inputs, steps, outputs)
        for where in every_processor((1,)):
            results = [np.empty(n, values[i][1].dtype) for i in outputs]
            program.on(data, results).run()
            for i, ours in zip(outputs, results, strict=True):
                assert np.array_equal(ours, values[i][1]), (where, i, inputs, steps)


@pytest.mark.parametrize("seed", range(40))
def test_chain_D2_of_steps_that_are_computed_again(restored_processor: None, seed: int) -> None:
    """Every step twice, its operands those of either time: the same values, stored and read on."""
    rng = np.random.default_rng(seed)
    inputs, steps = random_chain(rng)
    n, first = int(rng.choice([1, 16, 17, 1200])), len(inputs)
    data = [random_words(rng, t, n, "special") for t in inputs]
    twice = [
        (name, result, [v if v < first else 2 * v - first + int(rng.integers(2)) for v in operands])
        for name, result, operands in steps
        for _ in range(2)
    ]
    once = chain_of(inputs, steps, list(range(first, first + len(steps))))
    again = chain_of(inputs, twice, list(range(first, first + len(twice))))
    last = chain_of(inputs, twice, [first + len(twice) - 1])
    types = [dtypes.DTYPES[result].storage for _, result, _ in steps]
    for where in every_processor((1,)):
        expected = [np.empty(n, t) for t in types]
        once.on(data, expected).run()
        found = [np.empty(n, t) for t in types for _ in range(2)]
        again.on(data, found).run()
        for i, ours in enumerate(found):
            assert ours.tobytes() == expected[i // 2].tobytes(), (where, i, inputs, twice)
        last.on(data, found[-1:]).run()
        assert found[-1].tobytes() == expected[-1].tobytes(), (where, inputs, twice)


@pytest.mark.parametrize("type_name", ["bfloat16", "float16", "float8_e4m3", "int8"])
def test_chain_D2_of_a_stored_value_that_is_computed_again_and_read(isa: str, type_name: str) -> None:
    """What storing rounds is not rounded for the step that reads it."""
    words = random_words(np.random.default_rng(5), type_name, 64, "near")
    x = type_name, words
    square = evaluate("multiply", x, x)
    expected = square, evaluate("add", (type_name, square), x)
    again, read = ("multiply", type_name, [0, 0]), ("add", type_name, [2, 0])
    found = [np.empty_like(words) for _ in expected]
    chain_of([type_name], [again, again, read], [1, 3]).on([words], found).run()
    for ours, values in zip(found, expected, strict=True):
        assert np.array_equal(ours, values)


@pytest.mark.parametrize("name", ["exp", "sqrt", "negative", "multiply"])
def test_chain_D2_of_one_operation_with_records(isa: str, name: str) -> None:
    """Observed blocks are tiles, whose outputs may lie where the input does."""
    words = random_words(np.random.default_rng(6), "float32", 5000, "special")
    program = chain_of(["float32"], [(name, "float32", [0] * ARITY[name])], [1])
    found, own = np.empty_like(words), words.copy()
    program.on([words], [found]).run()
    met = []
    for target in (np.empty_like(words), own):
        records = ops.empty_records(1)
        program.on([own], [target]).run(records=records)
        assert np.array_equal(target, found)
        met.append(records)
    assert np.array_equal(*met)


JOINING = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]


def in_rows(rng: np.random.Generator, shape: tuple[int, int]) -> Iterator[Words]:
    """Arrays of a shape: whole ones, a row for all, one element for each row, one for all."""
    for part in (shape, shape, (1, shape[1]), (shape[0], 1), (1, 1)):
        mode = str(rng.choice(["near", "special"]))
        yield np.broadcast_to(random_words(rng, "float32", part, mode), shape)


@each_of("seed", range(150))
def test_links_that_join_values_D2_E6_equal_op_by_op(restored_processor: None, seed: int) -> None:
    """Of float32 alone, on arrays in rows and otherwise, between others; values that are read again, at
    once and later, and computed again; results as they are, and narrow.
    """
    rng = np.random.default_rng(seed)
    shape = [(1, 700), (3, 520), (40, 33), (70, 48), (5, 128), (9, 1100)][seed % 6]
    data = list(in_rows(rng, shape))
    order = rng.permutation(len(data))
    data = [data[i] for i in order]
    if seed % 5 == 4:  # rows that lie apart, or in no order that rows have
        data[0] = random_words(rng, "float32", (shape[0], 2 * shape[1]), "near")[:, :: 1 + seed % 2]
        data[0] = data[0][:, : shape[1]][::-1]
    values = [("float32", np.ascontiguousarray(x)) for x in data]
    steps: list[tuple[str, str, list[int]]] = []

    def add(name: str, operands: list[int]) -> int:
        steps.append((name, "float32", operands))
        values.append(("float32", evaluate(name, *(values[i] for i in operands))))
        return len(values) - 1

    last = 0
    for _ in range(int(rng.integers(1, 24))):
        other, kind = int(rng.integers(len(values))), int(rng.integers(6))
        if kind == 0:  # what does not join, between those that do
            add(str(rng.choice(["negative", "abs", "rint"])), [other])
        elif kind == 1 and steps:  # computed again
            name, _, again = steps[int(rng.integers(len(steps)))]
            add(name, again)
        else:
            operands = [last, other] if rng.integers(2) else [other, last]
            last = add(str(rng.choice(JOINING)), operands)
    last = add("add", [last, 0])
    if seed % 3 == 2:
        narrow = str(rng.choice(["bfloat16", "float16", "tfloat32", "float8_e4m3"]))
        steps.append(("convert", narrow, [last]))
        values.append((narrow, evaluate("convert", values[-1], dtype=dtypes.DTYPES[narrow])))
    program = chain_of(["float32"] * len(data), steps, [len(values) - 1])
    for where in every_processor((1, 2)):
        found = np.empty(shape, values[-1][1].dtype)
        program.on(data, [found]).run()
        assert np.array_equal(found, values[-1][1]), (where, shape, steps)


def kinds_of_rows(rng: np.random.Generator, rows: int, columns: int) -> list[Words]:
    """Arrays of a shape that lie in rows, of which the last ones lie so that only tiles read them."""
    whole, row, column, one, _ = in_rows(rng, (rows, columns))
    apart = random_words(rng, "float32", (rows, columns + 5), "near")
    records = np.zeros(rows, [("row", np.uint32, (columns,)), ("odd", np.int16)])
    records["row"] = whole
    every_second = random_words(rng, "float32", (rows, 2 * columns), "near")[:, ::2]
    return [whole, row, column, one, apart[:, 5:], apart[::-1, :columns], records["row"], every_second]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 33])
def test_links_that_join_values_E1_of_arrays_in_rows(restored_processor: None, count: int) -> None:
    """Each kind of array first and as a term, from memory to memory where rows are long; threads begin
    within rows. More links than one step has room for, results as they are and narrow.
    """
    rng = np.random.default_rng(count)
    shapes = [(3, 5000), (9, 1100), (130, 611), (40, 70), (40, 33), (1, 4097)]
    types = ["float32", "bfloat16", "float32", "float16", "float8_e5m2"]
    for trial in range(24):
        shape, result = shapes[trial % len(shapes)], types[trial % len(types)]
        kinds = kinds_of_rows(rng, *shape)
        # Those that only tiles read make all of a chain go by tiles.
        data = kinds[:6] if trial < 18 else kinds
        data = data[trial % len(data) :] + data[: trial % len(data)]
        values = [("float32", np.ascontiguousarray(x)) for x in data]
        steps: list[tuple[str, str, list[int]]] = []
        last = 0
        for i in range(count):
            operands = [last, 1 + i % (len(data) - 1)]
            name = JOINING[int(rng.integers(len(JOINING)))]
            steps.append((name, "float32", operands[:: 1 if rng.integers(2) else -1]))
            values.append(("float32", evaluate(name, *(values[v] for v in steps[-1][2]))))
            last = len(values) - 1
        if result != "float32":
            steps.append(("convert", result, [last]))
            values.append((result, evaluate("convert", values[last], dtype=dtypes.DTYPES[result])))
        program = chain_of(["float32"] * len(data), steps, [len(values) - 1])
        for where in every_processor((1, 2)):
            found = np.empty(shape, values[-1][1].dtype)
            program.on(data, [found]).run()
            assert np.array_equal(found, values[-1][1]), (where, shape, trial, steps)


@each_of("type_name", [*FLOATS, *INTEGERS, "float64"])
def test_chain_E6_an_input_that_is_an_output_moves_bits(isa: str, type_name: str) -> None:
    words = random_words(np.random.default_rng(19), type_name, 600, "special")
    output = np.empty_like(words)
    chain_of([type_name], [], [0]).on([words], [output]).run()
    assert np.array_equal(output, words)


@each_of(
    ("inputs", "steps", "outputs", "message"),
    [
        (["float32"], [("add", "float32", [0])], [1], "takes 2 operands"),
        (["float32"], [("convert", "float32", [0, 0])], [1], "takes one operand"),
        (["float32"], [("exp", "float32", [1])], [1], "not computed yet"),
        (["float32"], [("exp", "float32", [-1])], [1], "not computed yet"),
        (["float32", "int32"], [("add", "float32", [0, 1])], [2], "do not go together"),
        (["float32"], [("bitwise_and", "float32", [0, 0])], [1], "not defined for float32"),
        (["int32"], [("exp", "int32", [0])], [1], "not defined for int32"),
        (["float64"], [("add", "float64", [0, 0])], [1], "not defined for float64"),
        (["float32"], [("less", "float32", [0, 0])], [1], "the result cannot be float32"),
        (["float32"], [("add", "int32", [0, 0])], [1], "the result cannot be int32"),
        (["float32"], [("select", "float32", [0, 0, 0])], [1], "must be bool"),
        (["float32"], [("exp", "float32", [0])], [2], "an output is not computed"),
        (["float32"], [("bitcast_convert", "bfloat16", [0])], [1], "takes and gives 32 bits"),
        (["int8"], [("bitcast_convert", "int32", [0])], [1], "takes and gives 32 bits"),
    ],
)
def test_ill_typed_program_is_refused(
    inputs: list[str], steps: list[Any], outputs: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        chain_of(inputs, steps, outputs)


def test_unknown_codes_are_refused() -> None:
    end = _core.TRUNCATED + 1
    with pytest.raises(ValueError, match="unknown operation"):
        _core.Chain([0], [(end, 0, [0])], [1], PLAIN)
    with pytest.raises(ValueError, match="unknown dtype"):
        _core.Chain([len(_core.DTYPES)], [], [0], PLAIN)


@pytest.mark.parametrize("type_name", ["int64", "uint64"])
def test_C7_truncated_integers_are_counted(isa: str, threads: int, type_name: str) -> None:
    """Over many blocks, by one of each kind of numbers in turn; without a record nothing is counted."""
    dtype = dtypes.DTYPES[type_name]
    program = ops.truncation(dtype, Profile(int64="truncate"))
    kinds = np.array([0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**31), -(2**31) - 1])
    x = np.resize(kinds, 30_011).astype(dtype.storage)
    low = x.astype("i4" if type_name == "int64" else "u4").astype(dtype.storage)
    for records in (None, ops.empty_records(program.link_count)):
        y = np.empty_like(x)
        program.on([x], [y]).run(records=records)
        assert np.array_equal(y, low)
    assert records is not None
    assert [ops.events_of(r) for r in records] == [
        {},
        {},
        {"int64_truncated": np.count_nonzero(x != low)},
    ]
    assert np.count_nonzero(x != low) > len(x) / 2


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("type_name", ["int64", "uint64"])
def test_C7_floats_are_counted_where_64_bits_hold_more(isa: str, type_name: str, nearest: bool) -> None:
    """Against the conversion to 64 bits itself: NaN, and negatives without a sign, are 0 in both."""
    wide, narrow = dtypes.DTYPES[type_name].code, dtypes.DTYPES[type_name.replace("64", "32")].code
    convert = _core.CONVERT_NEAREST if nearest else _core.CONVERT
    links = [(convert, narrow, (0,)), (_core.CONVERT, wide, (1,)), (_core.TRUNCATED, wide, (2, 0))]
    program = ops.make_chain((ops.core_code(dtypes.float32, "x"),), tuple(links), (3,), Profile())
    exact = ops.make_chain(
        (ops.core_code(dtypes.float32, "x"),), ((convert, wide, (0,)),), (1,), Profile()
    )
    edges = [2.0**31, 2.0**32, 2.0**63, 2.0**64, 1.5, 0.5, np.inf, 3e38, 0.0]
    near = [
        f(np.float32(e)) for e in edges for f in (lambda e: np.nextafter(e, np.float32(0)), lambda e: e)
    ]
    x = np.array([*near, *(-e for e in near), np.nan], np.float32)
    y, whole = np.empty(x.size, type_name), np.empty(x.size, type_name)
    records = ops.empty_records(3)
    program.on([x], [y]).run(records=records)
    exact.on([x], [whole]).run()
    assert records[2].tolist() == [np.count_nonzero(y != whole), *[0] * 6]
    assert np.count_nonzero(y != whole) > 8


def test_E3_numbers_outside_a_range_are_counted(isa: str) -> None:
    code = ops.core_code(dtypes.float32, "x")
    (log,) = (n for n, name in enumerate(_core.INPUT_RANGES) if name == "log")
    program = ops.make_chain((code,), ((_core.RESTRICT + log, code, (0,)),), (1,), Profile())
    x = np.resize(np.array([1, 0, np.nan, -1, np.inf, 2], np.float32), 1201)
    y, records = np.empty_like(x), ops.empty_records(1)
    program.on([x], [y]).run(records=records)
    assert ops.events_of(records[0]) == {"outside_range": np.count_nonzero(np.isnan(y) & ~np.isnan(x))}
    assert records[0].any()


def test_wrong_arrays_are_refused() -> None:
    program = chain_of(["float32"], [("exp", "float32", [0])], [1])
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for inputs, outputs in (
        ([], [y]),
        ([x], []),
        ([x[:3]], [y]),
        ([x.astype(np.float64)], [y]),
        ([x], [np.zeros(4, np.uint16)]),
        ([x], [np.zeros(8, np.float32)[::2]]),
    ):
        with pytest.raises(ValueError, match=r"number of|shapes differ|items are not|not dense"):
            program.on(inputs, outputs).run()
    for none in (None, [1, 2], neuronsim.asarray(x)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            program.on([none], [y])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "top"), [("int8", 127), ("uint8", 255), ("int16", 32767), ("uint16", 65535)]
)
def test_chain_E8_wraps_between_its_steps(isa: str, name: str, top: int) -> None:
    """Top + top wraps before it is halved or compared."""
    x, two = (np.array([v], name) for v in (top, 2))
    steps: list[tuple[str, str, list[int]]] = [
        *(("add", name, [0, 0]), ("divide", name, [2, 1]), ("less", "bool", [2, 0]))
    ]
    half, less = np.empty(1, name), np.empty(1, np.bool_)
    chain_of([name, name], steps, [3, 4]).on([x, two], [half, less]).run()
    wrapped = formats.wrap(2 * top, bits=8 * x.itemsize, signed=name[0] != "u")
    assert half.tolist() == [int(wrapped / 2)]
    assert less.tolist() == [wrapped < top]


@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
def test_one_function_beside_other_inputs_and_outputs(type_name: str) -> None:
    """The short way from memory to memory is for one function of one input, and nothing else."""
    size = 2048
    t = dtypes.DTYPES[type_name]
    words = [np.full(size, v, t.numpy).view(t.storage) for v in (0.5, 2.0)]
    small = np.ones(size, np.int8)
    expected = [evaluate("exp", (type_name, w)) for w in words]

    def run(inputs: list[str], operand: int, outputs: list[int], *arrays: Words) -> list[Words]:
        program = chain_of(inputs, [("exp", type_name, [operand])], outputs)
        results = [np.empty(size, a.dtype) for a in (words[0],) * len(outputs)]
        program.on(list(arrays), results).run()
        return results

    def same(found: Words, wanted: Words) -> bool:
        return np.array_equal(found.view(wanted.dtype), wanted)

    assert same(run([type_name, "int8", "int8"], 0, [3], words[0], small, small)[0], expected[0])
    assert same(run([type_name, type_name], 1, [2], *words)[0], expected[1])
    assert same(run([type_name], 0, [0], words[0])[0], words[0])
    both = run([type_name], 0, [1, 0], words[0])
    assert same(both[0], expected[0])
    assert same(both[1], words[0])


# ---- rotations -----------------------------------------------------------------------------------

ROTATIONS = {
    "one": (7, 25, "shift_right_logical", (6,)),
    "one that another reads too": (7, 25, "shift_right_logical", (6, 7)),
    "the halves are stored too": (1, 31, "shift_right_logical", (4, 5, 7)),
    "amounts that do not add up": (7, 24, "shift_right_logical", (7,)),
    "no shift": (0, 32, "shift_right_logical", (7,)),
    "of the sign": (9, 23, "shift_right_arithmetic", (7,)),
}


@each_of("type_name", ["uint32", "int32"])
@each_of("kind", ROTATIONS)
def test_rotations_E8_are_shifts_that_are_joined(isa: str, kind: str, type_name: str) -> None:
    """(x << a | x >> b) ^ y, and what only looks like a rotation; with records too."""
    left, right, shift, outputs = ROTATIONS[kind]
    code = dtypes.DTYPES[type_name].code
    links = [
        (_core.CONSTANT, code, (left,)),  # 2
        (_core.CONSTANT, code, (right,)),  # 3
        (CODES["shift_left"], code, (0, 2)),  # 4
        (CODES[shift], code, (0, 3)),  # 5
        (CODES["bitwise_or"], code, (5, 4)),  # 6
        (CODES["bitwise_xor"], code, (1, 6)),  # 7
    ]
    program = ops.make_chain((code, code), tuple(links), outputs, Profile())
    storage = dtypes.DTYPES[type_name].storage
    for n in (1, 3, 16, 513):
        rng = np.random.default_rng(n)
        x, y = (rng.integers(0, 2**32, n, np.uint32) for _ in range(2))
        up = x << np.uint32(left)
        wide = (
            x.view(np.int32).astype(np.int64) if shift.endswith("arithmetic") else x.astype(np.uint64)
        )
        down = (wide >> wide.dtype.type(right)).astype(np.uint32)
        values = {4: up, 5: down, 6: up | down, 7: (up | down) ^ y}
        for records in (None, ops.empty_records(len(links))):
            found = [np.empty(n, storage) for _ in outputs]
            program.on([x.view(storage), y.view(storage)], found).run(records=records)
            for v, got in zip(outputs, found, strict=True):
                assert np.array_equal(got.view(np.uint32), values[v]), (n, v, records is None)


# ---- selections by comparisons -------------------------------------------------------------------

LESS, CHOICE = ("less", "bool", [0, 1]), ("select", "chosen", [4, 2, 3])
# Steps on x and y, which are compared, and p and q, which are chosen from; what is stored.
SELECTIONS: dict[str, tuple[list[tuple[str, str, list[int]]], list[int]]] = {
    "one": ([LESS, CHOICE], [5]),
    "two by one comparison": ([LESS, CHOICE, ("select", "chosen", [4, 3, 5])], [6, 5]),
    "three": ([LESS, *(("select", "chosen", [4, 2, 3 + k]) for k in (0, 2, 3))], [7]),
    "the bools are stored too": ([LESS, CHOICE], [4, 5]),
    "another reads the bools": ([LESS, CHOICE, ("bitwise_xor", "bool", [4, 4])], [6, 5]),
    "bools are chosen by themselves": ([LESS, ("select", "bool", [4, 4, 4])], [5]),
    "of one operand": ([("signbit", "bool", [1]), CHOICE], [5]),
    "a comparison that comes again": (
        [LESS, LESS, CHOICE, ("select", "chosen", [5, 3, 6]), ("select", "chosen", [4, 7, 2])],
        [7, 8],
    ),
    "values that nothing else reads": (
        [
            *(("negative", "compared", [0]), ("less", "bool", [4, 1]), ("negative", "compared", [1])),
            *(("abs", "compared", [6]), ("select", "chosen", [5, 2, 3])),
        ],
        [8, 7],
    ),
}


@each_of("chosen", ["float32", "bfloat16", "int8", "uint32", "int64", "bool"])
@each_of("kind", SELECTIONS)
def test_selections_E6_E7_by_what_is_compared(isa: str, kind: str, chosen: str) -> None:
    """In one step where the comparison is of 32 bits and only they read it, as op by op."""
    steps, outputs = SELECTIONS[kind]
    for compared in ("float32", "float16", "int32", "uint32", "uint8", "int64"):
        types = {"compared": compared, "chosen": chosen}
        typed = [(op, types.get(t, t), operands) for op, t, operands in steps]
        inputs = [compared, compared, chosen, chosen]
        for n in (1, 17, 513):
            rng = np.random.default_rng(n)
            mode = "special" if compared in FLOATS else "any"
            values = [(t, random_words(rng, t, n, mode)) for t in inputs]
            values[1][1][::3] = values[0][1][::3]  # equal ones
            data = [words for _, words in values]
            for op, t, operands in typed:
                values.append((t, evaluate(op, *(values[v] for v in operands))))
            found = [np.empty(n, values[v][1].dtype) for v in outputs]
            chain_of(inputs, typed, outputs).on(data, found).run()
            for v, got in zip(outputs, found, strict=True):
                assert np.array_equal(got, values[v][1]), (compared, n, v)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int64"])
def test_rows_that_come_again_E1_are_all_of_them(isa: str, type_name: str) -> None:
    """Broadcast dimensions before a short row: blocks end within a row and within its copies."""
    rng = np.random.default_rng(3)
    for shape, axis in (((9, 8, 4), 1), ((3, 300, 3), 1), ((2, 700, 1), 1), ((5, 6, 7, 8), 2)):
        words = random_words(rng, type_name, [*shape[:axis], 1, *shape[axis + 1 :]], "near")
        other, view = random_words(rng, type_name, shape, "near"), np.broadcast_to(words, shape)
        views = (view, np.ascontiguousarray(view))
        ours, expected = (evaluate("subtract", (type_name, v), (type_name, other)) for v in views)
        assert np.array_equal(ours, expected), shape


@pytest.mark.parametrize("type_name", ["float32", "int32", "bfloat16", "uint8"])
def test_short_rows_E1_are_read_where_they_lie(isa: str, type_name: str) -> None:
    """Rows of up to nine elements: side by side, some apart, one after the other and one for all."""
    rng = np.random.default_rng(4)
    for row in range(2, 10):
        table = random_words(rng, type_name, [200, 2 * row + 1], "near")
        column = table[:, row : row + 1]
        views = (table[:, 1 : row + 1], table[:, 1 : 2 * row : 2], table[::-1, row:0:-1])
        for view in (*views, np.broadcast_to(column, (200, row))):
            other = random_words(rng, type_name, view.shape, "near")
            ours, expected = (
                evaluate("subtract", (type_name, v), (type_name, other))
                for v in (view, np.ascontiguousarray(view))
            )
            assert np.array_equal(ours, expected), (row, view.strides)
