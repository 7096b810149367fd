"""The attributes of HLO's instructions: one row each, for text and protobuf, in both directions.

>>> from neuronsim.hlo.module import Instruction, Shape
>>> from neuronsim import dtypes
>>> index = BY_NAME["tuple_index"]
>>> index.spell(Instruction("y", "get-tuple-element", Shape(dtypes.float32)), 1), index.write(1)
(['index=1'], {'tuple_index': 1})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.errors import InvalidModel
from neuronsim.hlo import lexer
from neuronsim.hlo.attribute_kinds import (
    Attribute,
    Parse,
    axes,
    enumeration,
    flag,
    group_count,
    number,
    one_key,
    plain,
    record,
    rows,
    truth,
    unless,
)
from neuronsim.hlo.dimension_attributes import CONVOLUTION, PADDING, SLICE, WINDOW
from neuronsim.hlo.fields import DISTRIBUTIONS, DOT_ALGORITHMS, RNG_ALGORITHMS, enumerated
from neuronsim.hlo.lexer import Cursor, braces, integer, integers, quoted, word
from neuronsim.hlo.module import Instruction
from neuronsim.hlo.replica_groups import REPLICA_GROUPS, show_groups
from neuronsim.hlo.wire import Message


def _float(c: Cursor) -> float:
    given = word(c, "a number")
    try:
        return float(np.float32(float(given)))
    except ValueError:
        lexer.fail(c, f"{given[:24]!r} is no number", c.at - len(given))


def _show_float32(value: float) -> str:
    """In the fewest digits that give the float32 back."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((t for t in texts if np.float32(t) == np.float32(value)), str(value))


def _text(c: Cursor) -> str:
    return lexer.string(c).decode("utf-8", "replace")


def _text_or_json(c: Cursor) -> bytes:
    if lexer.peek(c) == '"':
        return lexer.string(c)
    return lexer.skip_value(c).encode("utf-8", "surrogateescape")


def _pairs(c: Cursor) -> tuple[tuple[int, ...], ...]:
    pairs = tuple(lexer.items(c, "{", "}", integers))
    if any(len(p) != 2 for p in pairs):
        lexer.fail(c, "pairs of two devices are expected")
    return pairs


def _show_unimplied(comparison: str) -> str | None:
    """A comparison's type is printed where it is not what the operands' type implies."""
    return comparison if comparison not in ("", "FLOAT", "SIGNED", "UNSIGNED") else None


def _spell_dot(i: Instruction, value: ops.DotDimensions) -> list[str]:
    return [f"{side}_dims={braces(found)}" for side, found in sorted(vars(value).items()) if found]


def _spell_indexing(i: Instruction, value: Any) -> list[str]:
    """The lists of a gather or scatter and its index_vector_dim, in XLA's order."""
    lists = {k: v for k, v in vars(value).items() if k != "index_vector_dim"}
    found = [f"{k}={braces(v)}" for k, v in lists.items() if v or "batching" not in k]
    return [*found, f"index_vector_dim={value.index_vector_dim}"]


def _dimensions() -> Attribute:
    """An iota has one, under its own key."""
    row = axes("dimensions")

    def take(raw: dict[str, Any]) -> tuple[int, ...]:
        return (raw.pop("iota_dimension"),) if "iota_dimension" in raw else row.take(raw)

    def spell(i: Instruction, value: Sequence[int]) -> list[str]:
        if i.opcode == "iota":
            return [f"iota_dimension={d}" for d in value]
        if i.opcode == "all-to-all" and not value:
            return []  # the form that takes and gives a tuple
        return row.spell(i, value)

    keys = {**row.keys, "iota_dimension": integer}
    return dataclasses.replace(row, keys=keys, take=take, spell=spell)


def _dot_algorithm() -> Attribute:
    """A part of the precision_config, whose other part changes no value."""
    row = enumeration("algorithm", DOT_ALGORITHMS, prefix="alg_", absent="")

    def read(message: Message) -> str:
        found = message.get("precision_config", {}).get("algorithm", 0)
        return enumerated(found, DOT_ALGORITHMS, "dot algorithm")

    def write(value: str) -> Message:
        return {"precision_config": row.write(value)} if value else {}

    return dataclasses.replace(row, fields=("precision_config",), read=read, write=write)


def _fft_type() -> Attribute:
    """Its name stands in text as it is; files leave out the first."""
    row = enumeration("fft_type", dict(enumerate(ops.FFT_TYPES)))
    return dataclasses.replace(
        row,
        spell=lambda i, value: [f"fft_type={value}"],
        write=lambda value: {"fft_type": n} if (n := ops.FFT_TYPES.index(value)) else {},
    )


def _cholesky_lower() -> Attribute:
    row = flag("lower")

    def read(message: Message) -> bool:
        return bool(message.get("cholesky_options", {}).get("lower", 0))

    def write(value: bool) -> Message:
        return {"cholesky_options": {"lower": int(value)} if value else {}}

    return dataclasses.replace(row, fields=("cholesky_options",), read=read, write=write)


def _triangular_solve() -> Attribute:
    """Four keys in text, of which those that are false are left out."""
    field, flags = "triangular_solve_options", ("left_side", "lower", "unit_diagonal")
    numbers = {name: n for n, name in enumerate(ops.TRANSPOSES, start=1)}

    def take(raw: dict[str, Any]) -> ops.TriangularOptions:
        given = {name: raw.pop(name) for name in flags if name in raw}
        transpose = str(raw.pop("transpose_a", ops.TRANSPOSES[0])).upper()
        if transpose not in numbers:
            raise InvalidModel(f"{transpose[:40]!r} is not one of {', '.join(numbers)}")
        return ops.TriangularOptions(**given, transpose_a=transpose)

    def spell(i: Instruction, value: ops.TriangularOptions) -> list[str]:
        found = [f"{name}=true" for name in flags if getattr(value, name)]
        return [*found, f"transpose_a={value.transpose_a}"]

    def read(message: Message) -> ops.TriangularOptions:
        found = message.get(field, {})
        names = {0: ops.TRANSPOSES[0]} | {n: name for name, n in numbers.items()}
        transpose = enumerated(found.get("transpose_a", 0), names, "transpose_a")
        given = {name: bool(found.get(name, 0)) for name in flags}
        return ops.TriangularOptions(**given, transpose_a=transpose)

    def write(value: ops.TriangularOptions) -> Message:
        given = {name: 1 for name in flags if getattr(value, name)}
        return {field: {**given, "transpose_a": numbers[value.transpose_a]}}

    keys: dict[str, Parse] = {**dict.fromkeys(flags, truth), "transpose_a": word}
    return Attribute(field, keys, ops.TriangularOptions(), take, spell, (field,), read, write)


def _parameter_number() -> Attribute:
    """Text has it in the place of the operands."""
    row = number("parameter_number")
    return dataclasses.replace(row, name="number", keys={}, spell=lambda i, value: [])


_ROWS = (  # in the order in which XLA prints them
    plain("custom_call_target", _text, "", quoted, absent=""),
    plain("tuple_index", integer, 0, key="index"),
    number("channel_id", unless(0)),
    REPLICA_GROUPS,
    rows("source_target_pairs", _pairs, show_groups, "source_target_pairs", {"source": 0, "target": 0}),
    WINDOW,
    CONVOLUTION,
    group_count("feature_group_count"),
    group_count("batch_group_count"),
    _dimensions(),
    flag("use_global_device_ids"),
    flag("is_stable"),
    flag("is_composite"),
    SLICE,
    PADDING,
    axes("dynamic_slice_sizes"),
    record("gather_dimensions", ops.GatherDimensions(), "gather_dimension_numbers", _spell_indexing),
    record("scatter_dimensions", ops.ScatterDimensions(), "scatter_dimension_numbers", _spell_indexing),
    axes("slice_sizes", "gather_slice_sizes"),
    flag("indices_are_sorted"),
    flag("unique_indices"),
    record("dot_dimensions", ops.DotDimensions(), "dot_dimension_numbers", _spell_dot, "_dims"),
    _dot_algorithm(),
    _fft_type(),
    axes("fft_length"),
    _cholesky_lower(),
    _triangular_solve(),
    plain("comparison_direction", word, "", key="direction"),
    plain("comparison_type", word, "", _show_unimplied, key="type"),
    number("exponent_bits"),
    number("mantissa_bits"),
    number("k"),
    flag("largest", lambda value: str(value).lower()),
    plain("epsilon", _float, 0.0, _show_float32, absent=0.0),
    number("feature_index"),
    enumeration("distribution", DISTRIBUTIONS),
    enumeration("rng_algorithm", RNG_ALGORITHMS, key="algorithm", absent="RNG_DEFAULT"),
    number("delta"),
    plain("fusion_kind", word, "", unless(""), key="kind", absent=""),
    _parameter_number(),
    plain("backend_config", _text_or_json, b"", lambda v: quoted(v) if v else None, absent=b""),
)
BY_NAME = {row.name: row for row in _ROWS}
# What reads the value after each key of HLO text.
KEYS = {key: parse for row in _ROWS for key, parse in row.keys.items()}


# ---- frontend attributes: texts by key, sorted, which any instruction may have -------------------


def _frontend(c: Cursor) -> dict[str, str]:
    """`{key="text",other={"as": "JSON"}}`."""
    found: dict[str, str] = {}

    def pair(inner: Cursor) -> None:
        at = inner.at
        key = lexer.key(inner, "the key of a frontend attribute")
        lexer.expect(inner, "=")
        given = _text_or_json(inner) if lexer.peek(inner) == "{" else lexer.string(inner)
        try:
            value = given.decode()
        except UnicodeDecodeError as error:
            lexer.fail(inner, f"the frontend attribute {key!r} is not UTF-8: {error}", at)
        if key in found:
            lexer.fail(inner, f"the frontend attribute {key[:40]!r} occurs twice", at)
        found[key] = value

    lexer.items(c, "{", "}", pair)
    return dict(sorted(found.items()))


def _show_frontend(value: Mapping[str, str]) -> str:
    return braces(f"{lexer.legal_name(key)}={quoted(text)}" for key, text in sorted(value.items()))


def _decode_frontend(message: Message) -> dict[str, str]:
    """Raises InvalidModel for keys that occur twice and for what is not UTF-8."""
    found: dict[str, str] = {}
    for entry in message.get("frontend_attributes", {}).get("map", ()):
        try:
            key, value = (entry.get(part, b"").decode() for part in ("key", "value"))
        except UnicodeDecodeError as error:
            raise InvalidModel(f"a frontend attribute is not UTF-8: {error}") from error
        if key in found:
            raise InvalidModel(f"the frontend attribute {key[:40]!r} occurs twice")
        found[key] = value
    return dict(sorted(found.items()))


def _encode_frontend(value: Mapping[str, str]) -> Message:
    pairs = [{"key": key.encode(), "value": text.encode()} for key, text in value.items()]
    return {"frontend_attributes": {"map": pairs}}


FRONTEND = one_key(
    *("frontend_attributes", _frontend, _show_frontend, "frontend_attributes"),
    *(_decode_frontend, _encode_frontend),
)
