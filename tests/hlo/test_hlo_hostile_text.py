"""Damaged and hostile HLO text, literals and graphs: named errors, quickly, in little memory."""

from __future__ import annotations

import contextlib
import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hlo import fuzz
from tests.hlo.messages import bytes_of, message_of
from tests.support.graphs import constant, inst, parameter, unverified
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.errors import InvalidModel, NeuronSimError, UnsupportedType
from neuronsim.hlo import parse, proto, wire
from neuronsim.hlo.module import Shape, fresh_name
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32 = dtypes.float32


def entry(*lines: str) -> str:
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


# ---- text ----------------------------------------------------------------------------------------

MALFORMED = {
    "no module": ("", "HloModule"),
    "no computation": ("HloModule m", "0 computations marked ENTRY"),
    "two entries": (
        entry("x = f32[] parameter(0)") + "ENTRY f { x = f32[] parameter(0) }",
        "2 computations",
    ),
    "an empty body": (entry(), "empty"),
    "no end": ("HloModule m\nENTRY e {\n x = f32[] parameter(0)\n", "line 4, column 1"),
    "two roots": (entry("ROOT x = f32[] parameter(0)", "ROOT y = f32[] negate(x)"), "two roots"),
    "the same name twice": (entry("x = f32[] parameter(0)", "x = f32[] parameter(1)"), "named 'x'"),
    "computations of one name": (
        "HloModule m\nf { x = f32[] parameter(0) }\nf { x = f32[] parameter(0) }\nENTRY "
        "e { x = f32[] parameter(0) }",
        "named 'f'",
    ),
    "a dangling operand": (entry("x = f32[] negate(y)"), "'y' is no instruction"),
    "an instruction that needs itself": (entry("x = f32[] negate(x)"), "needs itself"),
    "a dangling call": (entry("x = f32[] call(), to_apply=f"), "'f' does not exist"),
    "a call of itself": (
        "HloModule m\nf { x = f32[] call(), to_apply=f }\nENTRY e { x = f32[] call(), to_apply=f }",
        "needs itself",
    ),
    "calls in a circle": (
        "HloModule m\nf { x = f32[] call(), to_apply=g }\ng { x = f32[] call(), to_apply=f }\n"
        "ENTRY e { x = f32[] call(), to_apply=f }",
        "needs itself",
    ),
    "too few elements": (entry("x = f32[3] constant({1, 2})"), "holds 2 elements, not 3"),
    "too many elements": (entry("x = f32[1] constant({1, 2})"), "holds 2 elements, not 1"),
    "elements where none can be": (entry("x = f32[0] constant({1})"), "holds 1 elements, not 0"),
    "other nesting": (entry("x = f32[2,2] constant({1, 2, 3, 4})"), "do not nest"),
    "a scalar in braces": (entry("x = f32[] constant({1})"), "do not nest"),
    "an array without braces": (entry("x = f32[2] constant(1)"), "no constant"),
    "a word": (entry("x = f32[] constant(one)"), "no element"),
    "a fraction among integers": (entry("x = s32[2] constant({1, 1.5})"), "no element"),
    "an integer beyond its type": (entry("x = s8[1] constant({128})"), "no element"),
    "a negative unsigned integer": (entry("x = u8[1] constant({-1})"), "no element"),
    "a float beyond its type": (entry("x = f16[1] constant({1e6})"), "does not fit"),
    "an infinity where none is": (entry("x = f8e4m3fn[1] constant({inf})"), "does not fit"),
    "a payload that is no NaN": (entry("x = f32[1] constant({nan(0x0)})"), "no NaN"),
    "an integer of 5000 digits": (entry(f"x = s64[1] constant({{{'9' * 5000}}})"), "no element"),
    "digits of another script": (entry("x = s32[1] constant({\u0661})"), "character"),
    "underscores in numbers": (entry("x = s32[1] constant({1_0})"), "character"),
    "a tuple's literal too short": (entry("x = (f32[], f32[]) constant((1))"), "1 elements, not 2"),
    "a tuple's literal too long": (entry("x = (f32[]) constant((1, 2))"), "more than 1"),
    "a dimension beyond 64 bits": (entry("x = f32[99999999999999999999] parameter(0)"), "64-bit"),
    "a dimension beyond any": (entry("x = f32[9223372036854775807] parameter(0)"), "dimensions"),
    "a negative dimension": (entry("x = f32[-1] parameter(0)"), "dimensions"),
    "65 dimensions": (entry(f"x = f32[{','.join('1' * 65)}] parameter(0)"), "65 dimensions"),
    "a layout of other dimensions": (entry("x = f32[2,2]{1,1} parameter(0)"), "layout"),
    "a parameter's number beyond 64 bits": (entry(f"x = f32[] parameter({'9' * 30})"), "64-bit"),
    "an element type that is none": (entry("x = f31[] parameter(0)"), "f31"),
    "nested tuple shapes": (entry(f"x = {'(' * 10_000}"), "nested deeper"),
    "nested bodies": (entry("x = f32[] call(), to_apply={ " * 1000), "nested deeper"),
    "a string without end": (entry('x = f32[] parameter(0), metadata={op_name="a}'), "string"),
    "a comment without end": (entry("x = f32[] /* parameter(0)"), "opcode"),
    "braces without end": (entry("x = f32[2] constant({" + "{" * 100_000), "not closed"),
    "operands left out": (entry("x = f32[] parameter(0)", "y = f32[] add(x, ...)"), "leaves operands"),
    "operands without names": (entry("y = f32[] add(f32[], f32[])"), "no names of operands"),
    "a word that is not ASCII": (
        entry("x = f32[] parameter(0)", "y = pred[] compare(x, x), direction=L\u0442"),
        "an attribute|'}' is|a name",
    ),
    "no shape": (entry("y = parameter(0)"), "a shape is expected"),
}


@each_of(("source", "message"), MALFORMED.values(), ids=MALFORMED)
def test_text_with_a_fault_is_refused_in_words(source: str, message: str) -> None:
    with pytest.raises(NeuronSimError, match=message):
        parse.from_text(source)


# Text of any length, each long in one respect.
LONG: dict[str, Callable[[int], str]] = {
    "repeated comments": lambda n: entry("x = f32[] parameter(0), sharding={" + "/* " * n + "}"),
    "many literals": lambda n: entry("x = f32[2] constant({" + "/* " * n + "1, 2})"),
    "many operands": lambda n: entry(
        "x = f32[] parameter(0)", f"y = ({'f32[],' * (n - 1)}f32[]) tuple({'x,' * (n - 1)}x)"
    ),
    "nameless computations": lambda n: (
        "HloModule m\n" + "{ x = f32[] parameter(0) }\n" * n + "ENTRY e { x = f32[] parameter(0) }"
    ),
    "long strings": lambda n: entry('x = f32[] parameter(0), metadata={op_name="' + '\\"' * n + '"}'),
    "many integers": lambda n: entry(f"x = s32[{n}] constant({{{','.join('7' * n)}}})"),
    "nested array": lambda n: entry(f"x = pred[{n},1,1,1] constant({{{','.join(['{{{1}}}'] * n)}}})"),
    "many lines": lambda n: entry(
        "x0 = f32[] parameter(0)", *(f"x{k} = f32[] negate(x{k - 1})" for k in range(1, n // 8))
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_text_is_read_in_linear_time_and_bounded_memory(name: str) -> None:
    make = LONG[name]

    def taken(data: bytes) -> float:
        gc.disable()  # a collection walks the objects of all tests before this one
        start = time.process_time()
        try:
            with contextlib.suppress(NeuronSimError):
                proto.from_bytes(data)
        finally:
            gc.enable()
        return time.process_time() - start

    small, large = make(500).encode(), make(4_000).encode()
    taken(small)  # what is made once
    assert taken(large) < 8 * 3 * taken(small) + 0.2
    data = make(1_000).encode()  # tracing takes several times as long
    tracemalloc.start()
    taken(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(data) + (16 << 20)


# ---- protobuf ------------------------------------------------------------------------------------


def test_shapes_of_any_legal_size_allocate_nothing_until_they_are_executed() -> None:
    large = Shape(F32, (1 << 40, 1 << 20))
    n, y = inst("n", "iota", large, dimensions=(0,)), inst("y", "add", large, "x", "n")
    data = proto.to_bytes(unverified(parameter("x", large), n, y))
    text = entry(
        "x = f32[1099511627776,1048576] parameter(0)", "ROOT y = f32[1099511627776,1048576] negate(x)"
    )
    verify(proto.from_bytes(data))  # what is imported once
    tracemalloc.start()
    verify(proto.from_bytes(data))
    verify(parse.from_text(text))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "dims", [(1 << 62, 0), (0, 1 << 62, 1 << 62), (1 << 62, 4), (1 << 32, 1 << 32)], ids=str
)
def test_literal_of_overflowing_dimensions(dims: tuple[int, ...]) -> None:
    message = message_of(unverified(constant("c", [])))
    c = message["computations"][0]["instructions"][0]
    for shape in (c["shape"], c["literal"]["shape"]):
        shape.update(dimensions=list(dims), layout={}, is_dynamic_dimension=[])
    with pytest.raises(InvalidModel, match="overflow"):
        proto.from_bytes(bytes_of(message))
    listed = ",".join(map(str, dims))
    with pytest.raises(InvalidModel, match="overflow"):
        parse.from_text(entry(f"x = f32[{listed}] constant({{}})"))


def test_singular_message_in_many_pieces_is_joined_in_linear_time() -> None:
    message = message_of(parse.from_text(entry("x = f32[] parameter(0)")))
    i = message["computations"][0]["instructions"][0]
    i["unread"] = (b"\x1a\x02\x18\x01") * 50_000  # the shape, a dimension at a time
    start = time.process_time()
    with pytest.raises(InvalidModel, match="50000 dimensions"):
        proto.from_bytes(bytes_of(message))
    assert time.process_time() - start < 2


def test_message_in_two_pieces_is_one() -> None:
    table = {
        1: wire.Field(
            "inner",
            "message",
            table={1: wire.Field("a", "int", repeated=True), 2: wire.Field("b", "int")},
        )
    }
    pieces = ({"inner": {"a": [1], "b": 7}}, {"inner": {"a": [2]}})
    data = b"".join(wire.write_message(p, table) for p in pieces)
    assert wire.read_message(memoryview(data), table) == {"inner": {"a": [1, 2], "b": 7}}


def test_element_type_of_aws_code_is_an_unsupported_type() -> None:
    with pytest.raises(UnsupportedType, match=r"line 3, column 5: \[NCC_EVRF005\]"):
        parse.from_text(entry("x = f8e5m2fnuz[2] parameter(0)"))


def test_fresh_name_is_the_first_free_number() -> None:
    taken = {"x"}
    assert [fresh_name("x", taken) for _ in range(40)] == [f"x.{n}" for n in range(1, 41)]
    assert fresh_name("y", taken) == "y"


# ---- fuzzing, a little of it in every run --------------------------------------------------------


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_mutants_are_read_or_refused(target: str) -> None:
    outcome = fuzz.fuzz(target, seed=1, inputs=100)
    assert [error for _, error in outcome.findings] == []
    assert outcome.counts["refused"] > 50
    assert len(outcome.errors) > 15


def test_fuzz_corpus_is_what_its_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {p.name: p.read_bytes() for p in fuzz.CORPUS.iterdir()}
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path)
    fuzz.make_corpus()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == kept
    assert sum(map(len, kept.values())) < 20_000


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (lambda data: 1 // 0, "ZeroDivisionError"),
        (lambda data: all(True for _ in iter(int, 1)), "TooSlow"),
        # More than earlier tests can have left free inside the heap, which the limit does not see.
        (lambda data: bytearray(2 << 30), "MemoryError"),
    ],
    ids=["crash", "hang", "memory"],
)
def test_fuzz_finds_what_it_looks_for(
    run: Callable[[bytes], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    result, error = fuzz.try_one(b"x", run)
    assert (result, error.strip().splitlines()[-1].rpartition(".")[2][: len(what)]) == ("finding", what)
