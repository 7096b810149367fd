"""Rule E3 in compiled programs: what `activation="neuron_range"` makes NaN is counted by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import constant, inst, module_of, parameter

import neuronsim
from neuronsim import api, cli, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile, use_profile

pytestmark = pytest.mark.usefixtures("restored_settings")

RESTRICTED = Profile(activation="neuron_range")
F32, BF16 = dtypes.float32, dtypes.bfloat16


def chain(n: int, dtype: DType = F32) -> Module:
    """Functions with ranges between operations that fuse."""
    steps = [("twice", "add", "x", "x"), ("s", "sine", "twice"), ("back", "negate", "s")]
    steps += [("e", "exponential", "back"), ("l", "log", "x"), ("r", "rsqrt", "x"), ("q", "sqrt", "x")]
    steps += [
        ("sum.1", "add", "l", "r"),
        ("sum.2", "add", "sum.1", "q"),
        ("y", "multiply", "e", "sum.2"),
    ]
    body = (inst(name, opcode, (n,), *operands, dtype=dtype) for name, opcode, *operands in steps)
    return module_of(parameter("x", (n,), dtype=dtype), *body)


VALUES = [0.5, 1.5, 2.0, math.nan, 0.0, 2.0**70, 2.0**119, math.inf]


def by_hand(x: neuronsim.Array) -> neuronsim.Array:
    e = neuronsim.exp(-neuronsim.sin(x + x))
    return e * ((neuronsim.log(x) + neuronsim.rsqrt(x)) + neuronsim.sqrt(x))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_elements_are_counted_by_instruction_E3(dtype: Any) -> None:
    x = neuronsim.asarray(VALUES, dtype=dtype)
    program = api.compile(chain(len(VALUES), dtype), auto_cast="none", profile=RESTRICTED)
    y = program(x)
    # Twice 2, 2^70, 2^119 and Inf leave [-π, π]; 0 leaves the others' ranges.
    assert program.diagnostics["outside_range"] == {"s": 4, "l": 4, "r": 3, "q": 3}
    with use_profile(activation="neuron_range"), pytest.warns(RuntimeWarning, match="neuron_range"):
        expected = by_hand(x)
    assert y.tobytes() == expected.tobytes()
    assert np.isnan(np.asarray(y, np.float32)).tolist() == [False, False, *[True] * 6]
    program(neuronsim.asarray([0.5] * len(VALUES), dtype=dtype))
    assert program.diagnostics["outside_range"] == {}


def test_exact_counts_nothing_and_fuses_all_E3() -> None:
    x = neuronsim.asarray(VALUES)
    module = chain(len(VALUES))
    program = api.compile(module, auto_cast="none")
    y = program(x)
    assert program.diagnostics["outside_range"] == {}
    assert y.tobytes() == by_hand(x).tobytes()
    assert [s.name for s in program._schedule.steps] == ["y"]
    restricted = api.compile(module, auto_cast="none", profile=RESTRICTED)
    assert [s.name for s in restricted._schedule.steps] == ["twice", "s", "y"]  # of which s counts
    assert restricted.python_steps == ()


def with_constants() -> Module:
    return module_of(
        parameter("x", (4,)),
        constant("c", [0.0, 1.0, 2.0**100, math.nan]),
        inst("l", "log", (4,), "c"),
        inst("s", "sine", (4,), "x"),
        inst("y", "add", (4,), "l", "s"),
    )


def test_folded_constants_are_counted_E3() -> None:
    program = api.compile(with_constants(), auto_cast="none", profile=RESTRICTED)
    assert [s.name for s in program._schedule.steps] == ["s", "y"]
    for value, more in ((1.0, {}), (4.0, {"s": 4})):
        y = program(np.full(4, value, np.float32))
        assert program.diagnostics["outside_range"] == {"l": 2, **more}
        assert np.isnan(np.asarray(y)).tolist() == [True, bool(more), True, True]


def test_a_saved_program_keeps_its_ranges_E3(tmp_path: Path) -> None:
    path = tmp_path / "p.nsim"
    api.compile(with_constants(), auto_cast="none", profile=RESTRICTED).save(path)
    program = api.load(path)
    program(np.full(4, 4.0, np.float32))
    assert program.diagnostics["outside_range"] == {"l": 2, "s": 4}


def test_run_warns_of_a_saved_programs_ranges_E3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` takes no profile, but the one that a program was saved with. Constants are counted once,
    not for each batch.
    """
    path, data, output = (str(tmp_path / name) for name in ("p.nsim", "x.npz", "y.npz"))
    api.compile(with_constants(), auto_cast="none", profile=RESTRICTED).save(path)
    np.savez(data, x=np.array([1.0, 4.0, 1.0, 5.0, -6.0, 1.0, 1.0, 1.0], np.float32))
    assert cli.main(["run", path, "--inputs", data, "--output", output]) == 0
    warned = capsys.readouterr().err.splitlines()
    said = [ops.outside_range_warning(*met) for met in (("l", 2), ("s", 3))]
    assert warned == [f"warning: {text}" for text in said]
