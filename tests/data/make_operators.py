"""Makes tests/data/operators: for every opcode a small module, inputs, and XLA's results.

    python -m tests.data.make_operators

Needs jax. The modules come from the generator of random modules: up to four applications of an opcode
to different types, each on parameters of its own; opcodes of structure and control flow stand in whole
modules of exact operations. `operators.npz` has `OPCODE/x0`... (inputs) and `OPCODE/y0`... (results)
as storage words; functions that XLA lacks have the exact twin's, and what no other implementation
defines has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.executor import agreement, xla
from tests.executor.random_modules import ELSEWHERE, PROFILE, Example, examples
from tests.support import interpreter
from tests.support.interpreter import Applied
from tests.support.words import words

from neuronsim import ops
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module
from neuronsim.hlo.opcodes import STRUCTURE

FOLDER = Path(__file__).parent / "operators"
SMALL = 40  # elements of an array
EXAMPLES = 400
# What stands around the opcodes of structure: XLA computes it exactly.
EXACT = ("add", "and", "multiply", "maximum", "select", "compare", "slice", "reshape", "transpose")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    applied = [
        a
        for e in examples(EXAMPLES)
        for a in interpreter.evaluate(e.module, e.inputs, PROFILE)[1]
        if all(0 < x.data.size <= SMALL for x in (*a.operands, *a.results))
    ]
    for opcode in sorted(ops.OPCODES - ELSEWHERE):
        chosen = _of_different_types([a for a in applied if a.instruction.opcode == opcode])
        module = xla.joined(chosen)
        inputs = [x for a in chosen for x in a.operands]
        _save(opcode, module, inputs, _results(opcode, chosen), arrays)
    for opcode in sorted(STRUCTURE):
        example, results = _whole(opcode)
        _save(opcode, example.module, example.inputs, results, arrays)
    np.savez_compressed(FOLDER / "operators.npz", **arrays)


def _of_different_types(applied: Sequence[Applied]) -> list[Applied]:
    found: dict[object, Applied] = {}
    for a in sorted(applied, key=lambda a: -sum(x.data.size for x in (*a.operands, *a.results))):
        found.setdefault(tuple(x.dtype.name for x in (*a.operands, *a.results)), a)
    return list(found.values())[:4]


def _results(opcode: str, chosen: Sequence[Applied]) -> list[np.ndarray]:
    if opcode in agreement.NO_ORACLE:
        return []
    if opcode in agreement.NO_CODE:
        return [
            np.array(
                [agreement.correctly_rounded(a, at) for at in np.ndindex(a.results[0].data.shape)],
                words(a.results[0]).dtype,
            ).reshape(a.results[0].data.shape)
            for a in chosen
        ]
    theirs = xla.alone(chosen)
    assert not [d for a, y in zip(chosen, theirs, strict=True) for d in agreement.differences(a, y)]
    return [_words(y) for several in theirs for y in several]


def _whole(opcode: str) -> tuple[Example, list[np.ndarray]]:
    """The first small module with the opcode of which XLA computes the same bits."""
    opcodes = tuple(sorted({opcode, *EXACT}))
    for e in examples(40, opcodes):
        listed = [i.opcode for c in e.module.computations for i in c.instructions]
        if opcode not in listed or any(x.data.size > SMALL for x in e.inputs):
            continue
        ours = interpreter.leaves(interpreter.evaluate(e.module, e.inputs, PROFILE)[0])
        theirs = [_words(y) for y in xla.execute(e.module, e.inputs)]
        same = [np.array_equal(words(x), y) for x, y in zip(ours, theirs, strict=True)]
        if all(same):
            return e, theirs
    raise AssertionError(f"no module with {opcode}")


def _words(y: np.ndarray) -> np.ndarray:
    y = np.asarray(y)
    return np.ascontiguousarray(y).reshape(y.shape).view(f"u{y.itemsize}")


def _save(
    opcode: str,
    module: Module,
    inputs: Sequence[ops.Bits],
    results: Sequence[np.ndarray],
    arrays: dict[str, np.ndarray],
) -> None:
    (FOLDER / f"{opcode}.hlo.pb").write_bytes(proto.to_bytes(module))
    arrays |= {f"{opcode}/x{n}": x.data for n, x in enumerate(inputs)}
    arrays |= {f"{opcode}/y{n}": y for n, y in enumerate(results)}


if __name__ == "__main__":
    main()
