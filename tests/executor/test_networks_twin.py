"""The reduced networks under `all`/bf16: the compiled program gives the exact twin's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.executor import twin
from tests.executor.reduced_networks import NETWORKS, inputs, name
from tests.support import interpreter
from tests.support.running import flat

from neuronsim import api
from neuronsim.arrays.array_object import Array
from neuronsim.hlo import proto


@pytest.mark.parametrize("path", NETWORKS, ids=name)
def test_reduced_network_under_all_bf16_is_the_twin(path: Path) -> None:
    program = api.compile(proto.read(path), auto_cast="all", auto_cast_type="bf16")
    given = inputs(program.model)
    ours = flat(program(*(Array(x) for x in given)))
    expected, applied = interpreter.evaluate(program.module, given, program.setup.profile, twin.apply)
    assert len(applied) > 20
    for found, exact in zip(ours, interpreter.leaves(expected), strict=True):
        assert found.bits.type == exact.type
        assert found.bits.data.tobytes() == exact.data.tobytes()
    finite = [np.isfinite(np.asarray(a, np.float32)).mean() for a in ours if a.dtype.kind == "float"]
    assert all(f > 0.5 for f in finite)  # no comparison of NaN alone
