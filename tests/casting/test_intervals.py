"""Intervals hold: what is executed lies inside; operations against brute force over their operands."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from tests.casting.composite_examples import FILES, example, spelled_out, values_of
from tests.support.graphs import constant, inst, parameter, reducer, unverified
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.casting.lint.intervals import Interval, intervals
from neuronsim.hlo.module import Module
from neuronsim.hlo.recognition.composites import recognise
from neuronsim.hlo.recognition.patterns import Graph

pytestmark = pytest.mark.isa_independent  # the kernels' bits are not the subject


def found_in(module: Module) -> dict[str, Interval]:
    entry = module.entry_computation
    return intervals(Graph(entry, module), recognise(entry, module))


@each_of("path", FILES, ids=lambda p: p.stem)
def test_executed_values_lie_in_their_intervals(path: Path) -> None:
    module = spelled_out(path)
    found = found_in(module)
    names = [i.name for i in module.entry_computation.instructions if i.name in found]
    bounded = 0
    for seed in range(3):
        for name, values in zip(names, values_of(module, names, example(module, seed)), strict=True):
            low, high = found[name]
            slack = 2.0**-8 * max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
            assert values.size == 0 or np.isnan(values).all() or np.nanmin(values) >= low - slack, name
            assert values.size == 0 or np.isnan(values).all() or np.nanmax(values) <= high + slack, name
            opcode = module.entry_computation.by_name[name].opcode
            bounded += opcode != "constant" and (math.isfinite(low) or math.isfinite(high))
    assert bounded  # something is known


OPERATIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": np.negative,
    "abs": np.abs,
    "exponential": np.exp,
    "sqrt": lambda x: np.sqrt(np.maximum(x, 0)),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}
ENDS = [(-3.0, -2.0), (-2.0, 1.5), (0.0, 4.0), (0.5, 0.5)]


def _grid(low: float, high: float) -> np.ndarray:
    points = np.linspace(low, high, 13)
    return np.append(points, 0.0) if low < 0 < high else points


@each_of("opcode", OPERATIONS)
def test_intervals_of_operations_by_brute_force(opcode: str) -> None:
    """The least and greatest result over a grid of operands: the interval is exactly that."""
    function = OPERATIONS[opcode]
    arity = {"clamp": 3}.get(opcode, 1 if opcode in ("negate", "abs", "exponential", "sqrt") else 2)
    for ends in itertools.product(ENDS, repeat=arity):
        names = "abc"[:arity]
        body = [constant(n, e) for n, e in zip(names, ends, strict=True)]
        found = found_in(unverified(*body, inst("y", opcode, (2,), *names)))["y"]
        grid = np.meshgrid(*(_grid(*e) for e in ends), indexing="ij")
        if opcode == "divide" and ends[1][0] <= 0 <= ends[1][1]:
            assert found == Interval(-math.inf, math.inf)
            continue
        results = function(*grid)
        assert found.low == pytest.approx(results.min(), abs=1e-6)
        assert found.high == pytest.approx(results.max(), abs=1e-6)


def test_intervals_of_sums_and_integers() -> None:
    module = unverified(
        parameter("p", (4, 64), dtype=dtypes.uint8),
        inst("w", "convert", (4, 64), "p"),
        inst("q", "multiply", (4, 64), "w", "w"),
        constant("z", 0.0),
        inst("t", "reduce", (4,), "q", "z", dimensions=(1,), called=("add",)),
        inst("i", "iota", (3, 1000), dtype=dtypes.int64, dimensions=(1,)),
        others=(reducer("add"),),
    )
    found = found_in(module)
    assert found["p"] == found["w"] == (0, 255)
    assert found["q"] == (0, 255**2)
    assert found["t"] == (0, 64 * 255**2)
    assert found["i"] == (0, 999)
