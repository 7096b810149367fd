"""Frontend attributes: read and written by file and text as XLA does, and what neuronsim's own say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.hlo.messages import bytes_of, message_of, reread
from tests.hlo.xla import hlo
from tests.hlo.xla import through_file as through_xla_as_file
from tests.hlo.xla import through_text as through_xla_as_text
from tests.support.graphs import inst, module_of, parameter, unverified
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidModel
from neuronsim.hlo import fields, parse, proto, text, wire
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.instruction_settings import InstructionSettings, read_settings
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, S32 = dtypes.float32, dtypes.int32
SQUARE = (4, 4)
TEXTS = {
    "neuronsim.accumulate": "bfloat16",
    "a.key-with_all": "",
    "quoted": "a \"b\" \\ 'c' \n\r\t \x01 \x7f é ☃ \U0001f600",
    "braces": "{not JSON, , =",
    "json": '{"a": {"b": [1, 2]}, "c": "}"}',
    "long": "x" * 100_000,
}


def attributed(frontend: Mapping[str, str], opcode: str = "negate", **attributes: Any) -> Module:
    """A module whose root, and parameter, have these frontend attributes."""
    own = {k: v for k, v in frontend.items() if not k.startswith("neuronsim.")}
    x = inst("x", "parameter", SQUARE, number=0, frontend_attributes=own)
    more = {**attributes, "frontend_attributes": dict(frontend)} if frontend else attributes
    count = 2 if opcode in ("dot", "add") else 1
    return unverified(x, inst("y", opcode, SQUARE, *("x",) * count, **more))


def dot(**frontend: str) -> Module:
    own = {f"neuronsim.{k}": v for k, v in frontend.items()}
    return attributed(own, "dot", dot_dimensions=ops.DotDimensions((1,), (0,)), algorithm="")


def transpose(*dimensions: int, **frontend: str) -> Module:
    own = {f"neuronsim.{k}": v for k, v in frontend.items()}
    return attributed(own, "transpose", dimensions=dimensions)


def through_file(module: Module) -> Module:
    return proto.from_bytes(proto.to_bytes(module))


def through_text(module: Module, dialect: Any = "long") -> Module:
    return parse.from_text(text.to_text(module, dialect=dialect))


def through_short_text(module: Module) -> Module:
    return through_text(module, "short")


def through_xla_s_text(module: Module) -> Module:
    peer = hlo().HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module))
    return parse.from_text(peer.to_string())


WAYS = [through_file, through_text, through_short_text]
XLA_WAYS = [through_xla_as_file, through_xla_as_text, through_xla_s_text]


@pytest.mark.parametrize("through", [*WAYS, *XLA_WAYS], ids=lambda f: f.__name__)
def test_frontend_attributes_survive(through: Callable[[Module], Module]) -> None:
    read = through(attributed(TEXTS))
    assert read.root.attributes["frontend_attributes"] == TEXTS
    assert list(read.root.attributes["frontend_attributes"]) == sorted(TEXTS)
    own = {k: v for k, v in TEXTS.items() if not k.startswith("neuronsim.")}
    assert read.parameters[0].attributes["frontend_attributes"] == own
    assert b"\xa2\x04" not in read.root.unread  # the field's tag


@pytest.mark.parametrize("through", WAYS, ids=lambda f: f.__name__)
def test_an_instruction_without_frontend_attributes_has_no_such_attribute(
    through: Callable[[Module], Module],
) -> None:
    read = through(attributed({}))
    assert dict(read.root.attributes) == {}
    empty = "HloModule m\nENTRY e { ROOT x = f32[] parameter(0), frontend_attributes={} }"
    assert "frontend_attributes" not in parse.from_text(empty).root.attributes


def test_frontend_attributes_stand_where_xla_prints_them() -> None:
    module = attributed({"a": "1", "b": "2"})
    peer = hlo().HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module))
    assert 'negate(%x), frontend_attributes={a="1",b="2"}' in peer.to_string()
    assert 'negate(f32[4,4]{1,0} %x), frontend_attributes={a="1",b="2"}' in text.to_text(module)


def test_frontend_attributes_of_the_module_and_of_unknown_operators_are_read() -> None:
    source = (
        'HloModule m, frontend_attributes={a="1"}\n'
        'ENTRY e { ROOT x = f32[] unheard-of(), frontend_attributes={b="2"}, metadata={op_name="n"} }'
    )
    root = parse.from_text(source).root
    assert root.attributes == {"frontend_attributes": {"b": "2"}}
    assert through_file(parse.from_text(source)).root.attributes == root.attributes


# ---- hostile files -------------------------------------------------------------------------------


def with_map(*entries: tuple[bytes, bytes]) -> bytes:
    """A module whose root has these entries in its map, in this order."""
    message = message_of(attributed({}))
    root = message["computations"][0]["instructions"][1]
    root["frontend_attributes"] = {"map": [{"key": k, "value": v} for k, v in entries]}
    return bytes_of(message)


def test_map_of_a_file_is_read() -> None:
    read = proto.from_bytes(with_map((b"z", b"1"), (b"a", "é".encode())))
    assert list(read.root.attributes["frontend_attributes"].items()) == [("a", "é"), ("z", "1")]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(b"a", b"1"), (b"a", b"2")], "'a' occurs twice"),
        ([(b"a", b"\xff")], "not UTF-8"),
        ([(b"\xc3", b"")], "not UTF-8"),
        ([(b"a" * 1000, b""), (b"a" * 1000, b"")], "'a{40}' occurs twice"),
    ],
)
def test_hostile_map_of_a_file_is_an_error(entries: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(InvalidModel, match=f"main/y: .*{message}"):
        proto.from_bytes(with_map(*entries))


def test_truncated_map_of_a_file_is_an_error() -> None:
    """Every prefix of the message, whole in its instruction otherwise."""
    message = message_of(attributed({}))
    root = message["computations"][0]["instructions"][1]
    whole = wire.write_message({"map": [{"key": b"abc", "value": b"def"}]}, fields.FRONTEND_ATTRIBUTES)
    for length in range(1, len(whole)):
        root["unread"] = wire.write_length(68, whole[:length])
        with pytest.raises(InvalidModel, match="the file ends inside"):
            reread(message)


def test_a_map_in_two_parts_is_joined() -> None:
    """Protobuf's rule for messages that occur twice."""
    message = wire.read_message(memoryview(with_map((b"a", b"1"))), fields.MODULE)
    more = wire.write_message({"map": [{"key": b"b", "value": b"2"}]}, fields.FRONTEND_ATTRIBUTES)
    message["computations"][0]["instructions"][1]["unread"] = wire.write_length(68, more)
    assert reread(message).root.attributes["frontend_attributes"] == {"a": "1", "b": "2"}


@each_of(
    ("source", "message"),
    [
        ('{a="1",a="2"}', "line 2, column .*'a' occurs twice"),
        (r'{a="\377"}', "line 2, column .*'a' is not UTF-8"),
        ("{a=b}", "a string is expected"),
        ('{a="1",}', "the key of a frontend attribute is expected"),
        ('{"a"="1"}', "the key of a frontend attribute is expected"),
        ('{a="1', "a string is expected"),
        ('{a={"b": 1', "',' is expected, not the end"),
        ('{a={"b', "a string does not end"),
        ('{a="1" b="2"}', "',' is expected"),
        ('"a"', "'{' is expected"),
    ],
)
def test_hostile_text_is_an_error(source: str, message: str) -> None:
    line = f"HloModule m\nENTRY e {{ ROOT x = f32[] parameter(0), frontend_attributes={source} }}"
    with pytest.raises(InvalidModel, match=message):
        parse.from_text(line)


# ---- what neuronsim's own say --------------------------------------------------------------------


def test_settings_of_an_instruction_are_read() -> None:
    root = dot(accumulate="float16", rounding="nearest_even", reason="A1: a rule").root
    expected = InstructionSettings(dtypes.float16, "nearest_even", reason="A1: a rule")
    assert read_settings(root) == expected
    moved = transpose(1, 0, relayout="bfloat16", saturate_infinity="true")
    assert read_settings(moved.root) == InstructionSettings(
        relayout=dtypes.bfloat16, saturate_infinity=True
    )
    verify(moved)
    assert read_settings(attributed({"a": "1"}).root) == InstructionSettings()


@each_of(
    ("module", "message"),
    [
        (dot(accumulat="bfloat16"), "neuronsim.accumulat is unknown.*neuronsim.accumulate"),
        (dot(accumulate="bf16"), "accumulate is one of float32, float16, bfloat16, not 'bf16'"),
        (dot(accumulate="tfloat32"), "not 'tfloat32'"),
        (dot(rounding="nearest"), "rounding is one of nearest_even, stochastic, not 'nearest'"),
        (dot(relayout="bfloat16"), "relayout cannot be stated.*accumulate, .*rounding, .*reason"),
        (dot(a="1", accumulate="x"), "neuronsim.a is unknown.*; neuronsim.accumulate is one of"),
        (dot(accumulate="float16", rounding="stochastic"), "float16 under stochastic rounding.*S2"),
        (attributed({"neuronsim.accumulate": "float32"}), "accumulate cannot be stated"),
        (transpose(1, 0, saturate_infinity="yes"), "saturate_infinity is one of true, not 'yes'"),
        (transpose(0, 1, relayout="bfloat16"), r"a relayout in bfloat16 of float32\[4,4\] by \(0, 1\)"),
        (transpose(1, 0, relayout="int8"), "is one of float32, tfloat32, bfloat16.*not 'int8'"),
        (attributed({"neuronsim.rounding": "stochastic"}, "tuple"), "rounding cannot be stated"),
    ],
)
def test_wrong_settings_are_errors_that_list_what_is_right(module: Module, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"main/y \([a-z]+\): .*{message}"):
        verify(module)


def test_a_contradicted_algorithm_is_an_error() -> None:
    own = {"neuronsim.accumulate": "bfloat16"}
    plain = ops.DotDimensions((1,), (0,))
    sums = {"ALG_DOT_F16_F16_F16": False, "ALG_DOT_BF16_BF16_BF16": True, "ALG_DOT_F16_F16_F32": True}
    for algorithm, legal in sums.items():
        module = attributed(own, "dot", dot_dimensions=plain, algorithm=algorithm)
        if legal:
            verify(module)
        else:
            with pytest.raises(InvalidModel, match="sums in float16: leave one of them out"):
                verify(module)


SCALARS = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b)%s }
twice { a = f32[] parameter(0)  b = f32[] parameter(1)
  s = f32[] add(a, b)  ROOT t = f32[] add(s, s) }
ENTRY e { x = f32[4] parameter(0)  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=%s%s }
"""


@pytest.mark.parametrize(
    ("inner", "computation", "outer", "message"),
    [
        ("neuronsim.rounding", "add", "", "'add' of a reduce states neuronsim.rounding of s"),
        ("", "twice", "neuronsim.accumulate", "applies one operation"),
    ],
)
def test_settings_of_what_is_applied_to_elements_are_errors(
    inner: str, computation: str, outer: str, message: str
) -> None:
    value = {"neuronsim.rounding": "stochastic", "neuronsim.accumulate": "bfloat16"}
    stated = [f', frontend_attributes={{{k}="{value[k]}"}}' if k else "" for k in (inner, outer)]
    with pytest.raises(InvalidModel, match=message):
        verify(parse.from_text(SCALARS % (stated[0], computation, stated[1])))
    reason = ', frontend_attributes={neuronsim.reason="because",a="b"}'
    verify(parse.from_text(SCALARS % (reason, "add", reason)))


def test_an_accumulate_type_of_integers_is_an_error() -> None:
    source = SCALARS.replace("f32", "s32") % ("", "add", ', frontend_attributes={%s="float16"}')
    with pytest.raises(InvalidModel, match="it gives int32"):
        verify(parse.from_text(source % "neuronsim.accumulate"))


def test_a_rounding_may_be_stated_of_what_never_rounds() -> None:
    stated = {"neuronsim.rounding": "stochastic"}
    x = parameter("x", (2,), dtype=S32)
    module_of(x, inst("y", "add", (2,), "x", "x", dtype=S32, frontend_attributes=stated))


# ---- the fingerprint -----------------------------------------------------------------------------


def test_fingerprint_follows_what_may_change_a_value() -> None:
    plain = fingerprint(dot())
    assert fingerprint(dot(reason="another")) == plain
    assert fingerprint(attributed({"a": "1"})) == fingerprint(attributed({}))
    stated = [fingerprint(dot(accumulate=t)) for t in ("float16", "bfloat16")]
    assert len({plain, *stated, fingerprint(dot(rounding="stochastic"))}) == 4


@pytest.mark.parametrize("through", [*WAYS, *XLA_WAYS], ids=lambda f: f.__name__)
def test_fingerprint_survives_files_and_text(through: Callable[[Module], Module]) -> None:
    module = dot(accumulate="bfloat16", rounding="nearest_even", reason="a rule")
    assert fingerprint(through(module)) == fingerprint(module)
