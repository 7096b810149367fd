"""Composites as frameworks spell them out, values for them, and what their instructions give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    TupleShape,
)
from neuronsim.hlo.parse import from_text

DATA = Path(__file__).parents[1] / "data"
FILES = sorted((DATA / "composites").glob("*.hlo"))
Values = npt.NDArray[np.float64]


@cache
def spelled_out(path: Path) -> Module:
    return inline_calls(from_text(path.read_text()))


def values_of(module: Module, names: list[str], inputs: dict[str, Values]) -> list[Values]:
    """What instructions of the entry computation give."""
    entry = module.entry_computation
    shapes = TupleShape(tuple(entry.by_name[n].shape for n in names))
    out = Instruction("values of", "tuple", shapes, tuple(names))
    watched = module.replace_entry(Computation(entry.name, (*entry.instructions, out), out.name))
    watched = replace(watched, entry_layout=None)
    given = [inputs[n] for n in module.input_names()]
    bits = [ops.Bits(np.asarray(x, np.float32), dtypes.float32) for x in given]
    return [ops.numbers(b).astype(np.float64) for b in execute(watched, bits)]


def example(module: Module, seed: int = 3) -> dict[str, Values]:
    """Random values; a scale of 1, an offset of 0, and a mean and variance that are x's."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.5, 2, (8, 8))
    known = {"x": x, "scale": np.ones(8), "offset": np.zeros(8)}
    known |= {"mean": x.mean(0), "variance": x.var(0)}
    return {n: known.get(n, x) for n in module.input_names()}
