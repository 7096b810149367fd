"""The reduced networks of the tests, and inputs for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from neuronsim import ops
from neuronsim.hlo.module import Module

FOLDER = Path(__file__).parents[1] / "data" / "networks"
# One replica's program reads what the others give: the twin walks one module alone.
NETWORKS = sorted(set(FOLDER.glob("*.hlo.pb")) - {FOLDER / "data_parallel_step.hlo.pb"})


def name(path: Path) -> str:
    return path.name.partition(".")[0]


def inputs(module: Module) -> list[ops.Bits]:
    """Normal numbers for floats, small ones for indices and labels."""
    rng = np.random.default_rng(7)
    found = []
    for p in module.parameters:
        dtype, dims = p.array.dtype, p.array.dims
        if dtype.kind == "float":
            values = np.asarray(rng.standard_normal(dims))
            values = abs(values) if "__square__" in p.name else values  # Adam takes its root
            data = values.astype(np.float32).astype(dtype.numpy)
        else:
            data = np.asarray(rng.integers(0, 4, dims)).astype(dtype.numpy)
        found.append(ops.Bits(np.asarray(data).view(dtype.storage), dtype))
    return found
