"""The reduced networks under `all`/bf16: the compiled program gives the exact twin's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.executor import op_by_op, twin

from neuronsim import api, ops
from neuronsim.arrays.array import Array
from neuronsim.hlo import proto
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


def flat(value: Any) -> list[Array]:
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("path", NETWORKS, ids=name)
def test_reduced_network_under_all_bf16_is_the_twin(path: Path) -> None:
    program = api.compile(proto.read(path), auto_cast="all", auto_cast_type="bf16")
    given = inputs(program.model)
    ours = flat(program(*(Array(x) for x in given)))
    expected, applied = op_by_op.evaluate(program.module, given, program.setup.profile, twin.apply)
    assert len(applied) > 20
    for found, exact in zip(ours, op_by_op.leaves(expected), strict=True):
        assert found.bits.type == exact.type
        assert found.bits.data.tobytes() == exact.data.tobytes()
    finite = [np.isfinite(np.asarray(a, np.float32)).mean() for a in ours if a.dtype.kind == "float"]
    assert all(f > 0.5 for f in finite)  # no comparison of NaN alone
