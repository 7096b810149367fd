"""Fuzzing of what reads files: protobuf, HLO text, the verifier, saved programs, and what follows.

    python -m tests.hlo.fuzz --count 360

Of three cases one is of each target: 500 inputs by its own seed. Every input is a mutant of the corpus
in tests/data/fuzz (which `--make-corpus` writes), of a drawn nest of calls, loops and branches, or of
a drawn module of one instruction. It must give a module or a NeuronSimError, within 2 s of processor
time and 64 MiB plus ten times its size of memory. What is read goes on: it is linted, planned and
compiled under several settings, explained, saved, loaded and, unless it loops, run; one of eight goes
through the command line, one is read again where subnormals are zero. Mutants whose error is new join
the pool. A finding is kept as a file, and the command ends with 1.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import random
import re
import resource
import sys
import tempfile
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests import campaign
from tests.core.test_determinism import HOSTILE, environment, mxcsr_register
from tests.executor import random_instructions

from neuronsim import api, cli, ops, processor
from neuronsim.arrays.array_object import Array
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.hlo import fields, parse, proto, text, wire
from neuronsim.hlo.opcodes import ATTRIBUTES
from neuronsim.hlo.verify import verify
from neuronsim.ops import OPCODES

CORPUS = Path(__file__).parents[1] / "data" / "fuzz"
SECONDS = 2.0
FREE_BYTES = 64 << 20
FREE_BYTES_GOING_ON = 512 << 20  # programs have memory of their own
RUN_ELEMENTS = 1 << 14  # of all arrays of what is run
DRAWN = 0.3  # of all mutants come from a drawn module
BYTES_PER_BYTE = 10
TARGETS = ("proto", "text", "nsim")
MAX_INPUT = 1 << 16
POOL = 400
INPUTS = 500  # of a case

# ---- the corpus ----------------------------------------------------------------------------------

SOURCES = {
    "dense": """\
HloModule dense

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[2,3] parameter(0)
  w = bf16[3,4] constant({ { 1, 2, 3, 0.5 }, { nan, -inf, -0.0, 7 }, { 1e-3, 3e38, 9, 0 } })
  wide = f32[3,4] convert(w)
  d = f32[2,4] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[2,4] broadcast(zero), dimensions={}
  p = pred[2,4] compare(d, zeros), direction=GT
  relu = f32[2,4] select(p, d, zeros)
  n = s32[2,4] iota(), iota_dimension=1
  f = f32[2,4] convert(n)
  sum = f32[2,4] add(relu, f)
  total = f32[2] reduce(sum, zero), dimensions={1}, to_apply=add
  t = f32[4,2] transpose(sum), dimensions={1,0}
  s = f32[2,2] slice(t), slice={[0:4:2], [0:2:1]}
  both = f32[4,2] concatenate(s, s), dimensions={0}
  b = (f32[4,2], f32[2]) tuple(both, total)
  g = f32[4,2] get-tuple-element(b), index=0
  ROOT y = f32[4,2] tanh(g), metadata={op_type="Tanh" op_name="f/\\"g\\"" source_line=3}
}
""",
    "control": """\
HloModule control, input_output_alias={ {1}: (0, {}, may-alias) }

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

body {
  t = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  v = f32[4] get-tuple-element(t), index=1
  w = f32[4] exponential(v)
  ROOT r = (s32[], f32[4]) tuple(m, w)
}

less {
  t = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  five = s32[] constant(5)
  ROOT p = pred[] compare(n, five), direction=LT
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4]) tuple(zero, x)
  loop = (s32[], f32[4]) while(start), condition=less, body=body
  y = f32[4] get-tuple-element(loop), index=1
  low = f32[] constant(-inf)
  sum = f32[] reduce(y, low), dimensions={0}, to_apply=add
  p = pred[] compare(sum, low), direction=GT
  z = f32[] conditional(p, sum, low), true_computation=double, false_computation=double
  ROOT r = (f32[], f32[4]) tuple(z, y)
}

double { a = f32[] parameter(0)  ROOT b = f32[] call(a, a), to_apply=add }
""",
    "network": """\
HloModule network

max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }

ENTRY main {
  image = f32[1,4,4,2] parameter(0)
  k = f32[8] constant({1, -2.5, 0, nan, 1e-3, 3, 4, inf})
  kernel = f32[2,2,2,1] reshape(k)
  c = f32[1,4,4,1] convolution(image, kernel), window={size=2x2 pad=0_1x1_0}, dim_labels=b01f_01io->b01f
  low = f32[] constant(-inf)
  pooled = f32[1,2,2,1] reduce-window(c, low), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=max
  flat = f32[1,4] reshape(pooled)
  w = bf16[4,3] constant({ { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 0, -1, 0.5 } })
  wide = f32[4,3] convert(w)
  dot = f32[1,3] dot(flat, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[3] constant({0.5, -0.0, 2})
  all = f32[1,3] broadcast(bias), dimensions={1}
  ROOT y = f32[1,3] add(dot, all), metadata={op_type="Add" op_name="f/\\"g\\"" source_line=3}
}
""",
    "movement": """\
HloModule movement

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY main {
  x = f32[4,4]{0,1} parameter(0)
  i = s32[2,1] constant({ {3}, {0} })
  zero = f32[] constant(0)
  g = f32[2,4] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, \
index_vector_dim=1, slice_sizes={1,4}
  s = f32[4,4] scatter(x, i, g), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add
  p = f32[6,9] pad(s, zero), padding=1_1_0x0_2_1
  t = f32[9,6] transpose(p), dimensions={1,0}
  u = f32[5,3] slice(t), slice={[0:9:2], [1:4:1]}
  v = f32[5,6] concatenate(u, u), dimensions={1}
  n = s32[] constant(1)
  d = f32[2,2] dynamic-slice(v, n, n), dynamic_slice_sizes={2,2}
  r = f32[2,2] all-reduce(d), replica_groups=[1,2]<=[2], to_apply=add
  k = (f32[2,1], s32[2,1]) topk(r), k=1, largest=true
  c = (u8[3], (pred[2], c64[])) constant(( {1, 2, 255}, ( {1, 0}, (1, -2) ) ))
  f = f32[2,2] custom-call(d), custom_call_target="AwsNeuronGelu", backend_config="\\001{"
  ROOT y = ((f32[2,1], s32[2,1]), f32[2,2]) tuple(k, f)
}
""",
}


def make_corpus() -> None:
    """Write the corpus: each source as text in both dialects and as protobuf, one of them wrapped."""
    CORPUS.mkdir(exist_ok=True)
    for name, source in SOURCES.items():
        module = parse.from_text(source)
        (CORPUS / f"{name}.short.txt").write_text(text.to_text(module, dialect="short"))
        (CORPUS / f"{name}.long.txt").write_text(text.to_text(module, dialect="long"))
        (CORPUS / f"{name}.pb").write_bytes(proto.to_bytes(module, wrap=name == "movement"))


def saved_program() -> bytes:
    """A `.nsim` file of today's format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.nsim"
        api.compile(SAVED.encode(), auto_cast="all").save(path)
        return path.read_bytes()


SAVED = """\
HloModule saved
ENTRY main {
  x = f32[2,3] parameter(0)
  w = f32[3,2] constant({ { 1, 2 }, { 3, 4 }, { 5, 6 } })
  d = f32[2,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[2,2] tanh(d)
}
"""


def corpus(target: str) -> list[bytes]:
    if target == "nsim":
        return [saved_program()]
    pattern = "*.pb" if target == "proto" else "*.txt"
    return [path.read_bytes() for path in sorted(CORPUS.glob(pattern))]


# ---- nests ---------------------------------------------------------------------------------------


def nest(rng: random.Random) -> str:
    """Computations that call the next one, once or twice; now and then in a ring."""
    depth = rng.choice((1, 2, 3, 8, 20, 40, 70, 150, 250))
    twice = rng.random() < 0.3
    opcodes = [
        rng.choice(("call", "while", "conditional", "fusion", "reduce", "map")) for _ in range(2)
    ]
    computations = []
    for n in range(depth):
        last = n == depth - 1
        callee = f"c{0 if last and rng.random() < 0.05 else n + 1}"
        opcode = rng.choice(opcodes)
        lines = [f"t{n} {{ p = f32[] parameter(0)  ROOT r = pred[] compare(p, p), direction=NE }}"]
        calls = {
            "call": f"f32[] call({{}}), to_apply={callee}",
            "while": f"f32[] while({{}}), condition=t{n}, body={callee}",
            "conditional": "f32[] conditional(q, {0}, {0}), "
            f"true_computation={callee}, false_computation={callee}",
            "fusion": f"f32[] fusion({{}}), kind=kLoop, calls={callee}",
            "reduce": "f32[] reduce({0}, {0}), dimensions={{}}, to_apply=add",
            "map": f"f32[] map({{}}), dimensions={{{{}}}}, to_apply={callee}",
        }
        body = [f"c{n} {{", "  p = f32[] parameter(0)", "  q = pred[] compare(p, p), direction=LT"]
        body.append(f"  x = {calls[opcode].format('p')}")
        body.append(f"  ROOT y = {calls[opcode if twice else 'reduce'].format('x')}")
        computations += [*lines, *body, "}"]
    computations.append(f"c{depth} {{ p = f32[] parameter(0)  ROOT r = f32[] negate(p) }}")
    constant = rng.choice(("1e-40", "4e-45", "-1.1754942e-38", "1", "nan", "3.4028236e38"))
    return "\n".join((
        "HloModule nest",
        "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }",
        *computations,
        f"ENTRY main {{ k = f32[] constant({constant})  x = f32[] parameter(0)  y = f32[] add(k, x)",
        "  ROOT r = f32[] call(y), to_apply=c0 }",
    ))  # fmt: skip


# ---- mutations -----------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 7, 13, 16, 63, 64, 65, 127, 128, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32,
           1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, -1, -2, -(1 << 31), -(1 << 63))  # fmt: skip
WORDS = (
    *("", "x", "add", "main", "%", "\x00", "ROOT", "ENTRY", "é", "a" * 300, "{" * 200, "(" * 200),
    *sorted(ATTRIBUTES),
    *sorted(OPCODES),
)
TOKENS = (
    *("{", "}", "(", ")", "[", "]", ",", "=", "%", ":", "->", "<=", "/*", "*/", "//", '"', "\\", "\n"),
    *("f32[2,3]", "f32[]", "s32[2]{0}", "token[]", "bf16[0]", "f8e4m3fnuz[1]", "f32[<=4]", "{{0}}"),
    *("nan", "-nan", "nan(0x1)", "inf", "0x1.8p3", "1e400", "-0", "true", "...", "{...}", "1_2x0_0_3"),
    *map(str, NUMBERS),
    *("to_apply=", "condition=", "body=", "calls=", "dimensions=", "index=", "window={size=2}"),
    "slice=",
    *WORDS,
)


def mutate_bytes(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(8):
            case 0 if changed:
                changed[at - 1] ^= 1 << rng.randrange(8)
            case 1 if changed:
                changed[at - 1] = rng.randrange(256)
            case 2:
                del changed[at : at + rng.randrange(1, 40)]
            case 3:
                changed[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 4:
                source = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[source : source + rng.randrange(1, 60)]
            case 5:
                changed[at : at + 9] = b"\xff" * 9
            case 6:
                other = rng.choice(pool)
                source = rng.randrange(len(other) + 1)
                changed[at:] = other[source:]
            case _:
                changed[at:at] = changed[at : at + 8] * rng.choice((2, 50, 500))
    return bytes(changed[:MAX_INPUT])


def mutate_text(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    if rng.random() < 0.1:
        return mutate_bytes(data, rng, pool)
    if rng.random() < 0.3:  # what a changed message is in text
        with contextlib.suppress(NeuronSimError, RecursionError):
            message = mutate_message(
                proto.to_bytes(parse.from_text(data.decode("utf-8", "replace"))), rng, pool
            )
            return text.to_text(
                proto.from_bytes(message), dialect=rng.choice(("long", "short"))
            ).encode()
    tokens = re.findall(r"\s+|[\w.\-%]+|.", data.decode("utf-8", "replace"), re.DOTALL)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(6):
            case 0:
                del tokens[at : at + rng.choice((1, 1, 2, 10))]
            case 1:
                tokens.insert(at, rng.choice(TOKENS))
            case 2:
                tokens[at : at + 1] = [rng.choice(TOKENS)]
            case 3:
                source = rng.randrange(len(tokens) + 1)
                tokens[at:at] = tokens[source : source + rng.choice((1, 3, 20))]
            case 4 if tokens:
                tokens[at % len(tokens)] = rng.choice(tokens)
            case _:
                tokens.insert(at, rng.choice(TOKENS) * rng.choice((2, 100, 3000)))
    return "".join(tokens).encode("utf-8", "replace")[:MAX_INPUT]


def places(node: Any, table: Mapping[int, wire.Field]) -> Iterator[tuple[Any, wire.Field]]:
    """Every message inside a message, each with a field of its table."""
    for f in table.values():
        yield node, f
        value = node.get(f.name)
        if f.kind == "message" and value:
            for inside in value if f.repeated else [value]:
                yield from places(inside, f.table or {})


def mutate_message(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    """Fields changed where they mean something, the lengths around them right."""
    if rng.random() < 0.25:
        return mutate_bytes(data, rng, pool)
    try:
        message = wire.read_message(memoryview(data), fields.MODULE)
        if "computations" not in message:  # an HloProto, or damaged already
            message = wire.read_message(wire.read_field(memoryview(data), 0)[2], fields.MODULE)
        for _ in range(rng.choice((1, 1, 2, 4))):
            if rng.random() < 0.3:
                mutate_structure(message, rng)
                continue
            present = [(m, f) for m, f in places(message, fields.MODULE) if f.name in m]
            if not present:
                break
            mutate_field(*rng.choice(present), rng)
        return wire.write_message(message, fields.MODULE)[:MAX_INPUT]
    except (NeuronSimError, TypeError, ValueError, IndexError):
        return mutate_bytes(data, rng, pool)


def mutate_structure(module: dict[str, Any], rng: random.Random) -> None:
    """Values swapped; an instruction or computation doubled, moved or left out; a call turned."""
    computations = [c for c in module.get("computations", []) if c.get("instructions")]
    if not computations:
        return
    c, other = rng.choice(computations), rng.choice(computations)
    listed = c["instructions"]
    i, j = rng.choice(listed), rng.choice(rng.choice((c, other))["instructions"])
    match rng.randrange(8):
        case 0:
            name = rng.choice(sorted({*i, *j}))
            i[name], j[name] = j.get(name, i.get(name)), i.get(name, j.get(name))
        case 1:
            i["shape"] = copy.deepcopy(j.get("shape", {}))
        case 2:
            twin = copy.deepcopy(c)
            twin["id"] = rng.choice((c.get("id", 0), 1 << 20, other.get("id", 0)))
            twin["name"] = rng.choice((c.get("name", ""), "twin"))
            module["computations"].insert(rng.randrange(len(module["computations"]) + 1), twin)
        case 3:
            listed.remove(i) if rng.random() < 0.5 else listed.append(copy.deepcopy(j))
        case 4:
            rng.shuffle(listed if rng.random() < 0.5 else module["computations"])
        case 5:
            i["called_computation_ids"] = [rng.choice((c, other)).get("id", 0)] * rng.choice(
                (1, 1, 2, 3)
            )
        case 6:
            i["operand_ids"] = [rng.choice(listed).get("id", 0) for _ in i.get("operand_ids", [0])]
        case _:
            i["opcode"] = rng.choice((j.get("opcode", ""), rng.choice(sorted(OPCODES))))


def mutate_field(message: dict[str, Any], f: wire.Field, rng: random.Random) -> None:
    value = message[f.name]
    if rng.random() < 0.15:
        del message[f.name]
    elif f.element:
        message[f.name] = value[: rng.randrange(len(value) + 1)]
    elif f.repeated:
        at = rng.randrange(len(value) + 1)
        match rng.randrange(4):
            case 0:
                del value[at : at + 1]
            case 1 if value:
                value.insert(at, rng.choice(value))
            case 2 if f.kind == "int":
                value[at : at + 1] = [rng.choice(NUMBERS)] * rng.choice((1, 1, 1, 70))
            case 3 if value:
                other = rng.randrange(len(value))
                value[at % len(value)], value[other] = value[other], value[at % len(value)]
            case _:
                value.extend(value[:1] * rng.choice((1, 100)))
    elif f.kind == "int":
        message[f.name] = rng.choice((*NUMBERS, rng.randrange(32), value + 1, value - 1))
    elif f.kind == "float":
        message[f.name] = rng.choice((0.0, -1.0, float("nan"), float("inf")))
    elif f.kind == "string":
        message[f.name] = rng.choice(WORDS)
    elif f.kind == "bytes":
        message[f.name] = rng.randbytes(rng.randrange(20))
    elif isinstance(value, dict) and f.table:
        absent = [g for g in f.table.values() if g.name not in value and g.kind == "int"]
        if absent:
            g = rng.choice(absent)
            value[g.name] = [rng.choice(NUMBERS)] if g.repeated else rng.choice(NUMBERS)


def mutate_archive(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    """One member of the archive changed, or the archive itself."""
    if rng.random() < 0.3:
        return mutate_bytes(data, rng, pool)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {n: archive.read(n) for n in archive.namelist()}
    except Exception:  # a mutant's archive may fail in any way
        return mutate_bytes(data, rng, pool)
    if members:
        name = rng.choice(list(members))
        is_text = name.endswith(".json")
        mutate = mutate_json if is_text else mutate_message if name.endswith(".pb") else mutate_bytes
        members[name] = mutate(members[name], rng, [data])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            if rng.random() > 0.02:
                archive.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


def mutate_json(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_text(data, rng, pool)
    if rng.random() < 0.3:
        return mutate_text(data, rng, pool)
    holders: list[Any] = []
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, dict | list) and node:
            holders.append(node)
            pending += node.values() if isinstance(node, dict) else node
    if holders:
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        if isinstance(holder, dict) and rng.random() < 0.2:
            holder[rng.choice(WORDS)] = holder.pop(key)
        else:
            values = (None, True, -1, 0, 1e400, "", "x", [], {}, [[]], {"x": 1}, 1 << 70, *WORDS[:20])
            holder[key] = rng.choice(values)
    return json.dumps(document).encode("utf-8", "replace")


# ---- one input -----------------------------------------------------------------------------------


def read_and_verify(data: bytes) -> None:
    module = proto.from_bytes(data)
    proto.to_bytes(module)
    verify(module)
    for dialect in ("long", "short"):
        parse.from_text(text.to_text(module, dialect=dialect))


def load_saved(data: bytes) -> None:
    with scratch(".nsim") as path:
        path.write_bytes(data)
        api.load(path)


# Settings that what was read is planned and compiled under.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"auto_cast": "none", "target": "host"},
    {"auto_cast": "all", "auto_cast_type": "bf16"},
    {"auto_cast": "matmult", "auto_cast_type": "fp16", "target": "host"},
    {"policy": "torch-cpu/bfloat16"},
)
COMMANDS = (["lint"], ["explain", "--auto-cast", "all"], ["plan", "--auto-cast", "all"], ["compile"])


@contextlib.contextmanager
def scratch(suffix: str) -> Iterator[Path]:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    path = folder / f"neuronsim-fuzz-{os.getpid()}{suffix}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def command(*words: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cli.main([*words])


def go_on(data: bytes) -> None:
    """What is done with a module that was read."""
    number = zlib.crc32(data)
    module = proto.from_bytes(data)
    written = text.to_text(module, dialect="long")
    if text.to_text(proto.from_bytes(proto.to_bytes(module)), dialect="long") != written:
        raise AssertionError("protobuf that was written reads as another module")
    if number % 8 == 0:
        by_command(data, *COMMANDS[number // 8 % len(COMMANDS)])
        return
    if number % 8 == 1:
        with mxcsr_register() as access, environment(access, HOSTILE["denormals are zero"]):
            other = proto.from_bytes(data)
        if text.to_text(other, dialect="long") != written:
            raise AssertionError("where subnormals are zero the file reads as another module")
    setting = SETTINGS[number // 8 % len(SETTINGS)]
    with contextlib.suppress(NeuronSimError):
        api.lint(data, auto_cast="all")
    program = api.compile(data, **setting)
    use(program)
    with scratch(".going-on.nsim") as path:
        program.save(path)
        use(api.load(path))


def use(program: Any) -> None:
    """Ask a program what it is, and run it if that is quick."""
    repr(program)
    for i in program.model.entry_computation.instructions[:20]:
        with contextlib.suppress(InvalidArgument):  # a call has no place of its own where it is inlined
            program.plan.explain(i.name, program.model)
    listed = [i for c in program.module.computations for i in c.instructions]
    sizes = [math.prod(s.dims) for i in listed for s in i.shape.arrays()]
    if sum(sizes) > RUN_ELEMENTS or any(i.opcode in ("while", "convolution", "dot") for i in listed):
        return
    program(
        **{
            name: Array(ops.Bits(np.ones(t.dims, t.dtype.storage), t.dtype))
            for name, t in program.inputs.items()
        }
    )


def by_command(data: bytes, name: str, *options: str) -> None:
    """The command line, whose bad inputs are one paragraph."""
    with scratch(".hlo") as path, scratch(".out") as output:
        path.write_bytes(data)
        written = ("--output", str(output)) if name in ("plan", "compile") else ()
        command(name, str(path), *options, *written)


def use_saved(data: bytes) -> None:
    """What is done with a program that was loaded."""
    with scratch(".nsim") as path, scratch(".again.nsim") as again:
        path.write_bytes(data)
        program = api.load(path)
        use(program)
        program.save(again)
        api.lint(program.model)
        command("explain", str(path))


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def try_one(data: bytes, run: Callable[[bytes], None], free: int = FREE_BYTES) -> tuple[str, str]:
    """What became of an input: "ok", "refused" or "finding", and the error."""
    bound = mapped_bytes() + free + BYTES_PER_BYTE * len(data)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    try:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
        with campaign.limit(SECONDS):
            run(data)
    except NeuronSimError as error:
        message = str(error)
        return ("refused", message) if message.strip() else ("finding", f"{error!r} without words")
    except BaseException:
        return "finding", traceback.format_exc()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return "ok", ""


# ---- many inputs ---------------------------------------------------------------------------------

MUTATE = {"proto": mutate_message, "text": mutate_text, "nsim": mutate_archive}
RUN = {"proto": read_and_verify, "text": read_and_verify, "nsim": load_saved}
GO_ON = {"proto": go_on, "text": go_on, "nsim": use_saved}


def try_all(data: bytes, target: str) -> tuple[str, str]:
    """Read an input, and if it can be read go on with it."""
    result, error = try_one(data, RUN[target])
    if result == "ok":
        result, error = try_one(data, GO_ON[target], FREE_BYTES_GOING_ON)
        result = "refused later" if result == "refused" else result
    return result, error


def drawn(target: str, rng: random.Random) -> bytes:
    """A nest, or a module of one instruction of any opcode."""
    source = nest(rng)
    if rng.random() < 0.7:
        source = random_instructions.listed(random_instructions.module(rng.randrange(10**6))[1])
    if target == "proto":
        with contextlib.suppress(NeuronSimError, RecursionError):
            return proto.to_bytes(parse.from_text(source))
    return source.encode()


@dataclass
class Outcome:
    """What became of all inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[bytes, str]] = field(default_factory=list)
    errors: set[str] = field(default_factory=set)


def fuzz(target: str, seed: int, inputs: int) -> Outcome:
    """Try so many mutants of a target's corpus."""
    rng, pool, outcome = random.Random(f"{target}/{seed}"), corpus(target), Outcome()
    originals = len(pool)
    for data in pool:
        result, error = try_all(data, target)
        if result == "finding":
            outcome.findings.append((data, error))
    for _ in range(inputs):
        # Mutants of mutants are mostly refused at the same place: half start from the corpus.
        parent = rng.choice(pool[:originals] if rng.random() < 0.5 else pool)
        if target != "nsim" and rng.random() < DRAWN:
            parent = drawn(target, rng)
        data = parent if rng.random() < 0.1 else MUTATE[target](parent, rng, pool)
        result, error = try_all(data, target)
        outcome.counts[result] += 1
        kind = re.sub(r"'[^']*'|[0-9]+", "_", error)[:120]
        if result == "finding":
            outcome.findings.append((data, error))
        elif kind not in outcome.errors and len(pool) < POOL:
            pool.insert(rng.randrange(originals, len(pool) + 1), data)
        outcome.errors.add(kind)
    return outcome


def run(start: int, count: int, at: Callable[[int], object] = lambda n: None) -> campaign.Outcome:
    """Case n: mutants of the corpus of one target, by a seed. What is found is kept in files."""
    processor.set_num_threads(1)
    warnings.simplefilter("ignore")
    outcome = campaign.Outcome()
    for n in range(start, start + count):
        at(n)
        target = TARGETS[n % len(TARGETS)]
        found = fuzz(target, n // len(TARGETS), INPUTS)
        outcome.counts.update(found.counts)
        for k, (data, error) in enumerate(found.findings):
            path = Path(tempfile.gettempdir()) / f"neuronsim-fuzz-{n}-{k}.bin"
            path.write_bytes(data)
            outcome.findings.append((n, target, error.strip().splitlines()[-1], str(path)))
    return outcome


if __name__ == "__main__":
    if "--make-corpus" in sys.argv:
        make_corpus()
    else:
        sys.exit(campaign.main("tests.hlo.fuzz", __doc__, run, count=360, chunk=3))
