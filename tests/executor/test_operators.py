"""Every opcode has a fixture of our own: a module, inputs, and XLA's results of it."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from tests.executor import agreement
from tests.executor.random_modules import ELSEWHERE, PROFILE
from tests.support import interpreter
from tests.support.parameters import each_of
from tests.support.running import flat
from tests.support.words import words

from neuronsim import api, ops
from neuronsim.arrays.array_object import Array
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module
from neuronsim.hlo.opcodes import STRUCTURE

FOLDER = Path(__file__).parents[1] / "data" / "operators"
# What needs several replicas is in tests/core/test_collectives.py and test_replicas.py; the host's own
# operators are in tests/hlo/test_hlo_decompositions.py.
OPCODES = sorted((ops.OPCODES | STRUCTURE) - ELSEWHERE)


@functools.cache
def arrays() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "operators.npz") as file:
        return dict(file)


def fixture(opcode: str) -> tuple[Module, list[ops.Bits], list[np.ndarray]]:
    """The module, its inputs, and the words of the results where there is an oracle."""
    module = proto.read(FOLDER / f"{opcode}.hlo.pb")
    types = [p.array.dtype for p in module.parameters]
    inputs = [ops.Bits(arrays()[f"{opcode}/x{n}"], t) for n, t in enumerate(types)]
    names = [name for name in arrays() if name.startswith(f"{opcode}/y")]
    return module, inputs, [arrays()[f"{opcode}/y{n}"] for n in range(len(names))]


@each_of("opcode", OPCODES)
def test_fixture_of_every_opcode_agrees_with_xla(opcode: str) -> None:
    module, inputs, expected = fixture(opcode)
    assert opcode in {i.opcode for c in module.computations for i in c.instructions}
    value, applied = interpreter.evaluate(module, inputs, PROFILE)
    compiled = flat(
        api.compile(module, auto_cast="none", target="host", profile=PROFILE)(
            *(Array(x) for x in inputs)
        )
    )
    for found, one_by_one in zip(compiled, interpreter.leaves(value), strict=True):
        assert found.bits.data.tobytes() == one_by_one.data.tobytes()
    if opcode in agreement.NO_ORACLE:
        assert expected == []
        return
    found = [words(x) for x in interpreter.leaves(value)]
    assert len(found) == len(expected) > 0
    if opcode in STRUCTURE:
        assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))
        return
    theirs = iter(expected)
    for a in applied:
        given = tuple(next(theirs) for _ in a.results)
        assert [str(d) for d in agreement.differences(a, given)] == []


def test_fixtures_are_of_known_opcodes_and_small() -> None:
    found = {path.name.removesuffix(".hlo.pb") for path in FOLDER.glob("*.hlo.pb")}
    assert found == set(OPCODES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 400_000
