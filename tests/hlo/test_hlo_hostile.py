"""Damaged and hostile model files: a clear error or a result, quickly, in bounded memory.

The files are read in a child process whose address space is limited, so that a crash, an endless loop
or a flood of memory fails a test instead of the test run. This file is also the child's program.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import large_modules
from tests.hlo.messages import bytes_of, message_of
from tests.support.commands import Commands
from tests.support.graphs import constant, inst, parameter, unverified
from tests.support.parameters import each_of

from neuronsim import api, dtypes
from neuronsim.casting.plans import explain
from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import InvalidModel, NeuronSimError
from neuronsim.hlo import element_types, fields, inlining, parse, proto, text, wire
from neuronsim.hlo import module as ir
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "model.hlo.pb"
ADDRESS_SPACE = 1536 * 2**20
SECONDS_EACH = 2.0
F32 = dtypes.float32


# ---- the files -----------------------------------------------------------------------------------


def truncations() -> Iterator[bytes]:
    data = EXAMPLE.read_bytes()
    for n in range(100):
        yield data[: len(data) * n // 100]


def mutations() -> Iterator[bytes]:
    """Bits, bytes and slices of the example changed; the seed makes the files the same each time."""
    data = EXAMPLE.read_bytes()
    rng = random.Random(20)
    for n in range(120):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(changed))
            match n % 6:
                case 0:
                    changed[at] ^= 1 << rng.randrange(8)
                case 1:
                    changed[at] = rng.randrange(256)
                case 2:
                    changed[at : at + rng.randrange(1, 40)] = b""
                case 3:
                    changed[at:at] = rng.randbytes(rng.randrange(1, 40))
                case 4:
                    source = rng.randrange(len(changed))
                    changed[at : at + 30] = changed[source : source + 30]
                case 5:
                    changed[at : at + 9] = b"\xff" * 9
        yield bytes(changed)


def structural_mutations() -> Iterator[bytes]:
    """Bytes changed outside the weights, where they mean lengths, ids, types and shapes."""
    data = EXAMPLE.read_bytes()
    weights = []
    for c in proto.read(EXAMPLE).computations:
        for i in c.instructions:
            if i.opcode == "constant" and i.attributes["literal"].data.size > 8:
                raw = i.attributes["literal"].data.tobytes()
                weights.append((data.index(raw), len(raw)))
    inside = {at for start, size in weights for at in range(start, start + size)}
    structure = [at for at in range(len(data)) if at not in inside]
    rng = random.Random(21)
    for n in range(100):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2))):
            at = rng.choice(structure)
            changed[at] = (changed[at] ^ (1 << rng.randrange(8))) if n % 2 else rng.randrange(256)
        yield bytes(changed)


def random_files() -> Iterator[bytes]:
    rng = random.Random(22)
    yield b""
    yield b"\n"
    yield b"PK\x03\x04" + bytes(100)
    yield b"\x1a\x00"
    yield b"\x1a\x02\x12\x00"
    for n in range(100):
        yield rng.randbytes(rng.randrange(1, 2000))
        # As above, in the shape of a module: length-delimited fields of every number.
        yield bytes(v for k in range(40) for v in ((k << 3 | 2) & 0x7F, 3, n & 255, k, 0))


def nested() -> Iterator[bytes]:
    """Messages inside messages, and tuples inside tuples, 10,000 times."""
    for number in (1, 2, 3, 4):
        table = {number: wire.Field("inside", "bytes")}
        data = b""
        for _ in range(10_000):
            data = wire.write_message({"inside": data}, table)
        yield data
        yield wire.write_message({"inside": data}, {3: table[number]})


def many_large_constants() -> Module:
    """Twenty constant expressions of 64 MiB each, in a file of a few kilobytes."""
    large = (1 << 24,)
    body = [inst("i0", "iota", large, dimensions=(0,))]
    body += [inst(f"i{n}", "add", large, f"i{n - 1}", "i0") for n in range(1, 20)]
    return unverified(*body)


def large_intermediate() -> Module:
    """One number broadcast to 12 GiB, which the device's memory would hold."""
    wide = inst("w", "broadcast", (3 << 30,), "x", dimensions=())
    return unverified(parameter("x", ()), wide, inst("y", "negate", (3 << 30,), "w"))


def twice_the_same_name() -> bytes:
    """Two equal names among ten thousand."""
    message = message_of(unverified(*(parameter(f"x{n}", (), n) for n in range(10_000))))
    message["computations"][0]["instructions"][-1]["name"] = "x9998"
    return bytes_of(message)


def tuples_of_tuples() -> Module:
    """A tree of 2^11 leaves, all the same value."""
    shape: Any = Shape(F32)
    body = [parameter("t0", ())]
    for n in range(1, 12):
        shape = TupleShape((shape, shape))
        body.append(inst(f"t{n}", "tuple", shape, f"t{n - 1}", f"t{n - 1}"))
    return unverified(*body)


def loops_inside_loops() -> bytes:
    return proto.to_bytes(large_modules.nested("while", 180))


def hidden_varints() -> bytes:
    """A literal whose integers have the wire type of fixed numbers."""
    message = message_of(unverified(constant("c", np.zeros(9), dtypes.int32)))
    literal = message["computations"][0]["instructions"][0]["literal"]
    del literal["s32s"]
    literal["unread"] = b"\x21" + bytes(8) + b"\x20\x00"  # field 4: fixed64, then a varint
    return bytes_of(message)


def made_to_hurt() -> Iterator[bytes]:
    for module in (
        *(many_large_constants(), large_intermediate(), tuples_of_tuples()),
        large_modules.chain(3_000),  # deeper than any recursion over operands could go
        # Calls that are inlined to 2^40 instructions, so many of both branches, and additions.
        large_modules.nested("call", 40, twice=True),
        large_modules.nested("conditional", 40, twice=True),
        large_modules.nested_reducer(40),
        *(large_modules.nested("conditional", 1000), large_modules.nested("call", 1000)),
    ):
        yield proto.to_bytes(module)
    yield from (twice_the_same_name(), hidden_varints(), loops_inside_loops())


FAMILIES = {
    f.__name__: f
    for f in (truncations, mutations, structural_mutations, random_files, nested, made_to_hurt)
}


# ---- the child -----------------------------------------------------------------------------------


def try_one(data: bytes) -> str:
    """Compile and run a file on zeros; what happened, in one word or an error's repr."""
    try:
        program = api.compile(data, auto_cast="none")
        if sum(math.prod(t.dims) for t in program.inputs.values()) > 1 << 22:
            return "compiled"  # the zeros would be large, not the program
        zeros = {n: np.zeros(t.dims, t.dtype.numpy) for n, t in program.inputs.items()}
        program(**zeros)
    except NeuronSimError as error:
        return "refused" if str(error).strip() else f"an empty message of {type(error).__name__}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "ran"


def child(which: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    outcomes: dict[str, int] = {}
    wrong, slow = [], []
    for n, data in enumerate(FAMILIES[which]()):
        start = time.process_time()  # what others do on the machine does not count
        outcome = try_one(data)
        taken = time.process_time() - start
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome not in ("ran", "compiled", "refused"):
            wrong.append(f"{n}: {outcome}")
        if taken > SECONDS_EACH:
            slow.append(f"{n}: {taken:.1f} s ({outcome})")
    print(json.dumps({"outcomes": outcomes, "wrong": wrong, "slow": slow, "peak_mib": peak_mib()}))


def peak_mib() -> float:
    """The most memory that this process had; `ru_maxrss` begins with what its parent had."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


def in_child(which: str) -> dict[str, Any]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NEURONSIM_NUM_THREADS": "1"}
    searched = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]  # this package of tests
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, searched))
    run = subprocess.run(
        [sys.executable, __file__, which], capture_output=True, text=True, timeout=300, env=environment
    )
    assert run.returncode == 0, run.stderr[-2000:]
    report: dict[str, Any] = json.loads(run.stdout)
    return report


# ---- the tests -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """Of each child; two run at a time."""
    two = ThreadPoolExecutor(2)
    yield {which: two.submit(in_child, which) for which in FAMILIES}
    two.shutdown(cancel_futures=True)


@pytest.mark.isa_independent  # the reader and the checks, in one thread
@pytest.mark.parametrize("family", FAMILIES)
def test_files_of_a_family_run_or_are_refused(
    family: str, reports: dict[str, Future[dict[str, Any]]]
) -> None:
    report = reports[family].result()
    assert report["wrong"] == []
    assert report["slow"] == []
    assert report["peak_mib"] < 1024 or family == "made_to_hurt"
    if family == "truncations":
        assert report["outcomes"] == {"refused": 100}  # no part is taken for a whole model
    if family in ("mutations", "structural_mutations"):
        # Otherwise the mutations would test only one side.
        assert report["outcomes"]["ran"] > 20
        assert report["outcomes"]["refused"] > 20


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 11, b"hello, world", b"\x12\x01"], ids=repr)
def test_what_is_no_module_says_so(data: bytes) -> None:
    with pytest.raises(NeuronSimError, match="HloModuleProto"):
        api.compile(data)


def test_directory_missing_file_and_unreadable_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.hlo.pb", EXAMPLE / "inside"):
        with pytest.raises(NeuronSimError, match="cannot read the model"):
            api.compile(path)
    with pytest.raises(NeuronSimError, match=r"holds no model\.hlo_module\.pb"):
        api.compile(tmp_path)


def test_error_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "half.hlo.pb"
    path.write_bytes(EXAMPLE.read_bytes()[:5000])
    with pytest.raises(NeuronSimError, match=r"half\.hlo\.pb"):
        api.compile(path)


# ---- modules that nest ---------------------------------------------------------------------------

NESTED: dict[str, Callable[[], Module]] = {
    "shared branches": lambda: large_modules.nested("conditional", 40, twice=True),
    "branches shared just too often": lambda: large_modules.nested("conditional", 13, twice=True),
    "a size of thousands of digits": lambda: large_modules.nested("conditional", 15_000, twice=True),
    "shared callees": lambda: large_modules.nested("call", 40, twice=True),
    "shared reducers": lambda: large_modules.nested_reducer(40),
    "conditionals": lambda: large_modules.nested("conditional", inlining.MAX_CONTROL_FLOW_DEPTH + 1),
    "loops": lambda: large_modules.nested("while", inlining.MAX_CONTROL_FLOW_DEPTH + 1),
    "calls": lambda: large_modules.nested("call", inlining.MAX_CALL_DEPTH + 1),
}
DATA = {"x": np.zeros((2, 4), np.float32)}
DOORS: dict[str, Callable[[ir.Module], object]] = {
    "verify": verify,
    "inline_calls": inlining.inline_calls,
    "compile": api.compile,
    "plan": api.plan,
    "lint": api.lint,
    "calibrate": lambda m: api.calibrate(m, DATA),
    "tune": lambda m: api.tune(m, DATA),
    "explain": lambda m: explain.lines(m, Plan("p", m.name, fingerprint(m), {})),
    "apply": lambda m: Plan("p", m.name, fingerprint(m), {}).apply(m),
}


@pytest.mark.isa_independent
@each_of("which", NESTED)
def test_module_that_nests_too_much_is_refused_at_once_in_every_door(which: str) -> None:
    module = NESTED[which]()
    for door, enter in DOORS.items():
        start = time.process_time()
        with pytest.raises(InvalidModel, match=r"NCC_EVRF007.*up to [0-9]+") as raised:
            enter(module)
        assert len(str(raised.value)) < 300, door
        assert time.process_time() - start < SECONDS_EACH, door


@pytest.mark.isa_independent
@pytest.mark.parametrize("kind", ["conditional", "while", "call"])
def test_module_at_the_limit_of_nesting_is_read_planned_saved_and_run(
    kind: large_modules.Kind, tmp_path: Path
) -> None:
    module = large_modules.nested(kind, inlining.MAX_CONTROL_FLOW_DEPTH)
    assert fingerprint(parse.from_text(text.to_text(module))) == fingerprint(module)
    program = api.compile(proto.to_bytes(module), auto_cast="all")
    api.lint(module, auto_cast="all")
    program.save(tmp_path / "nested.nsim")
    x = np.ones(4, np.float32)
    for found in (program, api.load(tmp_path / "nested.nsim")):
        assert found.plan == program.plan
        if kind != "while":  # 3^100 trips
            np.testing.assert_array_equal(np.asarray(found(x=x)), -x)
            np.testing.assert_array_equal(np.asarray(found(x=x, observe="full")), -x)


@pytest.mark.isa_independent
def test_branches_shared_as_often_as_can_be_are_compiled_in_seconds() -> None:
    module = large_modules.nested("conditional", 12, twice=True)  # 13 are refused
    start = time.process_time()
    api.compile(module)
    assert time.process_time() - start < SECONDS_EACH


@pytest.mark.isa_independent
def test_deeper_nesting_is_read_and_written_all_the_same() -> None:
    module = large_modules.nested("conditional", 1000)
    assert fingerprint(proto.from_bytes(proto.to_bytes(module))) == fingerprint(module)
    assert fingerprint(parse.from_text(text.to_text(module))) == fingerprint(module)


@pytest.mark.isa_independent
def test_command_line_refuses_nested_loops_in_one_line(tmp_path: Path, commands: Commands) -> None:
    path = tmp_path / "loops.hlo.pb"
    path.write_bytes(loops_inside_loops())
    for words in (("explain",), ("plan",), ("lint",), ("compile", "--output", tmp_path / "out.nsim")):
        assert "nests loops and conditionals 180 deep" in commands.refused(*words, path)


def tuple_of(depth: int) -> ir.AnyShape:
    shape: ir.AnyShape = Shape(F32)
    for _ in range(depth):
        shape = TupleShape((shape,))
    return shape


@pytest.mark.isa_independent
def test_tuples_nest_up_to_a_limit_in_every_form() -> None:
    """The deepest shape goes through text and protobuf; a deeper one cannot be."""
    module = unverified(parameter("p", tuple_of(ir.MAX_TUPLE_DEPTH)))
    assert fingerprint(proto.from_bytes(proto.to_bytes(module))) == fingerprint(module)
    assert fingerprint(parse.from_text(text.to_text(module))) == fingerprint(module)
    with pytest.raises(InvalidModel, match="nested deeper than 64: put"):
        tuple_of(ir.MAX_TUPLE_DEPTH + 1)
    for depth in (ir.MAX_TUPLE_DEPTH + 1, 1000, 100_000):
        shape = "(" * depth + "f32[]" + ")" * depth
        with pytest.raises(InvalidModel, match=r"line 1, column .*nested deeper than 64: put"):
            parse.from_text(f"HloModule m ENTRY e {{ p = {shape} parameter(0) }}")
        with pytest.raises(InvalidModel, match="nested deeper than"):
            proto.from_bytes(in_tuples(min(depth, 5000)))


def in_tuples(depth: int) -> bytes:
    """A parameter whose shape is that deep."""
    message = message_of(unverified(parameter("p", ())))
    i = message["computations"][0]["instructions"][0]
    shape = wire.write_message(i.pop("shape"), fields.SHAPE)
    for _ in range(depth):
        shape = wire.write_message(
            {"element_type": element_types.TUPLE}, fields.SHAPE
        ) + wire.write_length(4, shape)
    i["unread"] = wire.write_length(3, shape)
    return bytes_of(message)


@pytest.mark.isa_independent
def test_tuple_that_repeats_its_elements_has_a_limited_number_of_arrays() -> None:
    shape: ir.AnyShape = Shape(F32)
    for _ in range(19):
        shape = TupleShape((shape, shape))
    with pytest.raises(InvalidModel, match="1048576 arrays: neuronsim takes up to 1000000"):
        TupleShape((shape, shape))


if __name__ == "__main__":
    child(sys.argv[1])
