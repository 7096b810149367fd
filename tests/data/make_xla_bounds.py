"""Measures how far XLA's functions are from ours: prints and writes `xla_bounds.json`.

    python -m tests.data.make_xla_bounds

Needs jax. The greatest distance of each opcode and type over random modules of functions, in units in
the last place; where XLA is farther than four (`agreement.FARTHER`), four.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.executor import agreement, xla
from tests.executor.random_modules import ELEMENTWISE, FLOATS
from tests.support import interpreter

from neuronsim import dtypes, ops
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.profiles import Profile

COUNT = 1 << 18


def function_of(opcode: str, arity: int, data: list[ops.Bits]) -> interpreter.Applied:
    shape = Shape(data[0].dtype, data[0].data.shape)
    names = [f"x{n}" for n in range(arity)]
    parameters = [
        Instruction(name, "parameter", shape, (), {"number": n}) for n, name in enumerate(names)
    ]
    body = Instruction("y", opcode, shape, tuple(names))
    module = Module("f", "main", (Computation("main", (*parameters, body), "y"),))
    return interpreter.evaluate(module, data, Profile())[1][0]


def inputs(dtype: dtypes.DType, seed: int) -> ops.Bits:
    """All words of a narrow type; of float32 words of every kind, and numbers near one and zero."""
    rng = np.random.default_rng(seed)
    if dtype.bits <= 16:
        words = np.arange(1 << dtype.bits)
        words = words if seed == 0 else rng.permutation(words)
        return ops.Bits(words.astype(dtype.storage), dtype)
    some = rng.integers(0, 1 << 32, COUNT).astype(np.uint32).view(np.float32)
    near = (rng.standard_normal(COUNT) * 2.0 ** rng.integers(-12, 4, COUNT)).astype(np.float32)
    return ops.Bits(np.concatenate([some, near]), dtype)


def main() -> None:
    functions = [
        row
        for opcode in sorted(ELEMENTWISE)
        if opcode not in agreement.NO_CODE | {"compare", "is-finite"}
        for row in [ops.by_opcode(opcode, {})]
        if ELEMENTWISE[opcode] == FLOATS or opcode == "power"
    ]
    bounds: dict[str, dict[str, int]] = {}
    for row in functions:
        for dtype in FLOATS:
            data = [inputs(dtype, n) for n in range(row.arity)]
            if dtype.bits == 8 and row.arity == 2:  # all pairs
                words = np.arange(1 << 16)
                pairs = (words >> 8, words & 255)
                data = [ops.Bits(w.astype(dtype.storage), dtype) for w in pairs]
            applied = function_of(row.opcode, row.arity, data)
            found = agreement.differences(applied, xla.alone([applied])[0], bounds=False)
            if found:
                print(f"{row.opcode} {dtype.name}: {found[0].distance}; {str(found[0])[:200]}")
                bounds.setdefault(row.opcode, {})[dtype.name] = min(4, found[0].distance)
    path = Path(__file__).parent / "xla_bounds.json"
    path.write_text(json.dumps(bounds, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
