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
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import api, dtypes, ops
from neuronsim.errors import NeuronSimError
from neuronsim.hlo import fields, proto, wire
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "model.hlo.pb"
ADDRESS_SPACE = 1536 * 2**20
SECONDS_EACH = 2.0
F32 = dtypes.float32


# ---- the files -----------------------------------------------------------------------------------


def truncations() -> Iterator[bytes]:
    data = EXAMPLE.read_bytes()
    for n in range(300):
        yield data[: len(data) * n // 300]


def mutations() -> Iterator[bytes]:
    """Bits, bytes and slices of the example changed; the seed makes the files the same each time."""
    data = EXAMPLE.read_bytes()
    rng = random.Random(20)
    for n in range(300):
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
    for n in range(200):
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
    for n in range(200):
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


def parameter(name: str, dims: tuple[int, ...], number: int = 0) -> Instruction:
    return Instruction(name, "parameter", Shape(F32, dims), (), {"number": number})


def module_of(*instructions: Instruction, others: tuple[Computation, ...] = ()) -> bytes:
    entry = Computation("main", instructions, instructions[-1].name)
    return proto.to_bytes(Module("hostile", "main", (*others, entry)))


def many_calls() -> bytes:
    """Each computation calls the one before it twice: 2^40 instructions when they are inlined."""
    scalar = Shape(F32)
    levels = [
        Computation(
            "level0",
            (parameter("p", ()), Instruction("q", "add", scalar, ("p", "p"))),
            "q",
        )
    ]
    for n in range(1, 40):
        below = {"called": (f"level{n - 1}",)}
        one = Instruction("q", "call", scalar, ("p",), below)
        two = Instruction("r", "call", scalar, ("q",), below)
        levels.append(Computation(f"level{n}", (parameter("p", ()), one, two), "r"))
    call = Instruction("y", "call", scalar, ("x",), {"called": ("level39",)})
    return module_of(parameter("x", ()), call, others=tuple(levels))


def many_large_constants() -> bytes:
    """Forty constant expressions of 64 MiB each, in a file of a few kilobytes."""
    large = Shape(F32, (1 << 24,))
    body = [Instruction("i0", "iota", large, (), {"dimensions": (0,)})]
    for n in range(1, 40):
        body.append(Instruction(f"i{n}", "add", large, (f"i{n - 1}", "i0")))
    return module_of(*body)


def large_intermediate() -> bytes:
    """One number broadcast to 12 GiB, which the device's memory would hold."""
    large = Shape(F32, (3 << 30,))
    wide = Instruction("w", "broadcast", large, ("x",), {"dimensions": ()})
    return module_of(parameter("x", ()), wide, Instruction("y", "negate", large, ("w",)))


def long_chain() -> bytes:
    """Deeper than any recursion over operands could go."""
    scalar = Shape(F32)
    body = [parameter("x0", ())]
    body += [Instruction(f"x{n}", "negate", scalar, (f"x{n - 1}",)) for n in range(1, 8_000)]
    return module_of(*body)


def twice_the_same_name() -> bytes:
    """Two equal names among twenty thousand."""
    scalar = Shape(F32)
    body = [Instruction(f"x{n}", "parameter", scalar, (), {"number": n}) for n in range(20_000)]
    message = wire.read_message(memoryview(module_of(*body)), fields.MODULE)
    message["computations"][0]["instructions"][-1]["name"] = "x19998"
    return wire.write_message(message, fields.MODULE)


def tuples_of_tuples() -> bytes:
    """A tree of 2^11 leaves, all the same value."""
    shape: Any = Shape(F32)
    body = [parameter("t0", ())]
    for n in range(1, 12):
        shape = TupleShape((shape, shape))
        body.append(Instruction(f"t{n}", "tuple", shape, (f"t{n - 1}", f"t{n - 1}")))
    return module_of(*body)


def hidden_varints() -> bytes:
    """A literal whose integers have the wire type of fixed numbers."""
    data = ops.Bits(np.zeros(9, np.int32), dtypes.int32)
    c = Instruction("c", "constant", Shape(dtypes.int32, (9,)), (), {"literal": data})
    message = wire.read_message(memoryview(module_of(c)), fields.MODULE)
    literal = message["computations"][0]["instructions"][0]["literal"]
    del literal["s32s"]
    literal["unread"] = b"\x21" + bytes(8) + b"\x20\x00"  # field 4: fixed64, then a varint
    return wire.write_message(message, fields.MODULE)


MADE = {
    f.__name__: f
    for f in (
        many_calls,
        many_large_constants,
        large_intermediate,
        long_chain,
        twice_the_same_name,
        tuples_of_tuples,
        hidden_varints,
    )
}
FAMILIES = {f.__name__: f for f in (truncations, mutations, structural_mutations, random_files, nested)}


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
    files = [MADE[which]()] if which in MADE else FAMILIES[which]()
    for n, data in enumerate(files):
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


def in_child(which: str, seconds: float) -> dict[str, Any]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NEURONSIM_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, __file__, which],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    report: dict[str, Any] = json.loads(run.stdout)
    return report


# ---- the tests -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """Of each child; two run at a time."""
    two = ThreadPoolExecutor(2)
    seconds = dict.fromkeys(FAMILIES, 300.0) | dict.fromkeys(MADE, 60.0)
    yield {which: two.submit(in_child, which, limit) for which, limit in seconds.items()}
    two.shutdown(cancel_futures=True)


@pytest.mark.isa_independent  # the reader and the checks, in one thread
@pytest.mark.parametrize("family", FAMILIES)
def test_files_of_a_family_run_or_are_refused(
    family: str, reports: dict[str, Future[dict[str, Any]]]
) -> None:
    report = reports[family].result()
    assert report["wrong"] == []
    assert report["slow"] == []
    assert report["peak_mib"] < 1024
    if family == "truncations":
        assert report["outcomes"] == {"refused": 300}  # no part is taken for a whole model
    if family in ("mutations", "structural_mutations"):
        # Otherwise the mutations would test only one side.
        assert report["outcomes"]["ran"] > 20
        assert report["outcomes"]["refused"] > 20


@pytest.mark.isa_independent
@pytest.mark.parametrize("made", MADE)
def test_file_made_to_hurt_runs_or_is_refused(
    made: str, reports: dict[str, Future[dict[str, Any]]]
) -> None:
    report = reports[made].result()
    assert report["wrong"] == []
    assert report["slow"] == []


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 11, b"hello, world", b"\x08\x01"], ids=repr)
def test_what_is_no_module_says_so(data: bytes) -> None:
    with pytest.raises(NeuronSimError, match="HloModuleProto"):
        api.compile(data)


def test_directory_missing_file_and_unreadable_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.hlo.pb", EXAMPLE / "inside"):
        with pytest.raises(NeuronSimError, match="cannot read the model"):
            api.compile(path)


def test_error_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "half.hlo.pb"
    path.write_bytes(EXAMPLE.read_bytes()[:5000])
    with pytest.raises(NeuronSimError, match=r"half\.hlo\.pb"):
        api.compile(path)


if __name__ == "__main__":
    child(sys.argv[1])
