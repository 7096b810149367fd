"""Rule E5: on types of 16 bits or fewer a function is looked up, and gives what it gives directly."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import Profile
from neuronsim.reference.functions import ONE_VARIABLE
from tests.support.evaluation import chain_of, evaluate
from tests.support.processes import run_python
from tests.support.words import FLOAT8, Words, word_type

KINDS = {name: kind for name, _, kind in _core.OPS}
FUNCTIONS = sorted(row.name for row in ops.OPS.values() if KINDS.get(row.core or "") == "function")
TYPES = ["bfloat16", "float16", *FLOAT8]


def encodings(type_name: str) -> Words:
    word = word_type(type_name)
    return np.arange(1 << 8 * word.itemsize, dtype=word)


def directly(name: str, type_name: str, x: Words, setting: ops.Setting | None = None) -> Words:
    """The float32 function between conversions, each an operation of its own."""
    wide = evaluate("convert", (type_name, x), setting=setting, dtype=dtypes.float32)
    y = evaluate(name, ("float32", wide), setting=setting)
    return evaluate("convert", ("float32", y), setting=setting, dtype=dtypes.DTYPES[type_name])


def test_the_functions_are_those_of_the_rule() -> None:
    assert set(FUNCTIONS) == set(ONE_VARIABLE) - {"sqrt", "reciprocal"}  # which are one instruction


def test_table_E5_equals_direct_evaluation_at_every_encoding(isa: str) -> None:
    for name in FUNCTIONS:
        for type_name in TYPES:
            x = encodings(type_name)
            ours = evaluate(name, (type_name, x))
            assert np.array_equal(ours, directly(name, type_name, x)), type_name


ALL_TABLES = """
import sys
import numpy as np
from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import Profile

processor.set_isa(sys.argv[1])
plain = ops.numerics(Profile())
for name, _, kind in _core.OPS:
    if kind != "function":
        continue
    op = [row[0] for row in _core.OPS].index(name)
    for type_name in sys.argv[2:]:
        t = dtypes.DTYPES[type_name]
        x = np.arange(1 << 8 * t.itemsize, dtype=f"u{t.itemsize}")
        program = _core.Chain([t.code], [(op, t.code, [0])], [1], plain)
        output = np.empty_like(x)
        program.on([x], [output]).run()
        sys.stdout.buffer.write(output.tobytes())
"""


@cache
def built_by(isa: str) -> bytes:
    """All tables, built in a process of its own on one instruction set."""
    command = [sys.executable, "-c", ALL_TABLES, isa, *TYPES]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.mark.isa_independent
def test_tables_D1_built_by_any_instruction_set_are_the_same() -> None:
    first, *others = processor.available_isas()
    expected = built_by(first)
    assert len(expected) == len(FUNCTIONS) * (2 * 2 * 65536 + 3 * 256)
    assert [isa for isa in others if built_by(isa) != expected] == []


# ---- every way to a table ------------------------------------------------------------------------


def chain(type_name: str, *names: str) -> _core.Chain:
    """The operations of one operand, one after the other, in one program."""
    return chain_of(
        [type_name], [(name, type_name, (n,)) for n, name in enumerate(names)], [len(names)]
    )


def test_table_E5_inside_a_chain(isa: str) -> None:
    """Before, after and between other steps, whose values lie in tiles, and after itself."""
    for name in FUNCTIONS:
        for type_name in TYPES:
            x = encodings(type_name)
            for names in (("floor", name), (name, "sqrt"), ("negative", name, "abs"), (name, name)):
                expected = x
                for step in names:
                    if KINDS[step] == "function":
                        expected = directly(step, type_name, expected)
                    else:
                        expected = evaluate(step, (type_name, expected))
                ours = np.empty_like(x)
                chain(type_name, *names).on([x], [ours]).run()
                assert np.array_equal(ours, expected), (type_name, names)


def drawn(type_name: str, n: int) -> Words:
    return np.random.default_rng(n).choice(encodings(type_name), n)


def unaligned(x: Words) -> Words:
    """The same elements from an odd address on."""
    buffer = np.empty(x.nbytes + 64, np.uint8)
    start = 1 - buffer.ctypes.data % 2 + 2
    buffer[start : start + x.nbytes] = x.view(np.uint8)
    found = buffer[start : start + x.nbytes].view(x.dtype)
    assert found.ctypes.data % 2 == 1
    return found


LAYOUTS: dict[str, Callable[[Words], Words]] = {
    "strided": lambda x: x[::3],
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x[: x.size // 7 * 7].reshape(7, -1).T,
    "from the second on": lambda x: x[1:],
    "broadcast": lambda x: np.broadcast_to(x[:5, None], (5, 9)),
    "unaligned": unaligned,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype),
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type_name", TYPES)
def test_table_E5_takes_operands_in_any_layout(type_name: str, layout: str) -> None:
    x = LAYOUTS[layout](drawn(type_name, 3001))
    expected = directly("gelu", type_name, np.ascontiguousarray(x))
    assert np.array_equal(evaluate("gelu", (type_name, x)), expected)


@pytest.mark.parametrize("type_name", TYPES)
def test_table_E5_takes_scalars(type_name: str) -> None:
    for word in drawn(type_name, 50):
        scalar = np.array(word)
        ours = evaluate("tanh", (type_name, scalar))
        assert ours.shape == ()
        assert ours == directly("tanh", type_name, scalar)


SIZES = [*range(1, 40), 511, 512, 513, 4095, 16383, 16385, 65535, 65537, 131075]


@pytest.mark.parametrize("type_name", ["bfloat16", "float8_e4m3"])
def test_table_E5_of_every_size(threads: int, type_name: str) -> None:
    """Around the words, tiles and grains in which results are looked up; nothing else is written."""
    x = drawn(type_name, max(SIZES))
    expected = directly("sigmoid", type_name, x)
    program = chain(type_name, "sigmoid")
    for n in SIZES:
        output = np.full(n + 16, 0xA5, x.dtype)
        program.on([x[:n]], [output[8:-8]]).run()
        assert np.array_equal(output[8:-8], expected[:n]), n
        assert (output[:8] == 0xA5).all(), n
        assert (output[-8:] == 0xA5).all(), n


FIRST_CALLS = """
import hashlib
import sys
import threading
import numpy as np
from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile

sys.setswitchinterval(1e-6)
rows = [(op, name) for op, (name, _, kind) in enumerate(_core.OPS) if kind == "function"]
found, start = {}, threading.Barrier(16)

def call(number):
    # Long arrays, for which the interpreter is handed over; each thread begins at another function,
    # but two of them at the same.
    start.wait()
    for i in range(len(rows)):
        op, name = rows[(i + number // 2) % len(rows)]
        for t in (dtypes.bfloat16, dtypes.float8_e3m4):
            x = np.arange(1 << 16).astype(f"u{t.itemsize}")
            program = _core.Chain([t.code], [(op, t.code, [0])], [1], ops.numerics(Profile()))
            y = np.empty_like(x)
            program.on([x], [y]).run()
            digest = hashlib.sha256(y.tobytes()).hexdigest()
            found.setdefault((name, t.name), set()).add(digest)

threads = [threading.Thread(target=call, args=(n,)) for n in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for (name, t), digests in sorted(found.items()):
    print(name, t, *digests)
"""


def test_tables_E5_are_built_once_for_threads_that_come_at_once() -> None:
    lines = [line.split() for line in run_python(FIRST_CALLS).stdout.splitlines()]
    assert len(lines) == 2 * len(FUNCTIONS)
    for name, type_name, *digests in lines:
        y = directly(name, type_name, np.arange(1 << 16).astype(word_type(type_name)))
        assert digests == [hashlib.sha256(y.tobytes()).hexdigest()], (name, type_name)


# ---- profiles that round otherwise ---------------------------------------------------------------


CHANGES: list[tuple[dict[str, Any], list[str]]] = [  # and the types for which they change exp
    ({"fp8_overflow": "nan"}, FLOAT8),
    ({"fp8_overflow": "saturate"}, FLOAT8),
    ({"subnormals": "flush"}, ["bfloat16"]),
    ({"rounding": "stochastic"}, TYPES),
]


@pytest.mark.parametrize(("changes", "differs"), CHANGES, ids=lambda c: "-".join(map(str, c)))
def test_functions_of_narrow_types_follow_the_profile(
    changes: dict[str, Any], differs: list[str]
) -> None:
    setting, changed = ops.Setting(Profile(**changes), 5, "0/main/f/"), []
    for name in FUNCTIONS:
        for type_name in TYPES:
            x = encodings(type_name)
            usual = evaluate(name, (type_name, x))  # the table is there
            ours = evaluate(name, (type_name, x), setting=setting)
            assert np.array_equal(ours, directly(name, type_name, x, setting)), type_name
            if name == "exp" and not np.array_equal(ours, usual):  # a control
                changed.append(type_name)
    assert changed == differs
