"""What --fast-math does to transposes on Inf1 (A3, M8): the plan, and the executed bits."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest
from tests.casting import reading
from tests.support.graphs import inst, module_of, parameter
from tests.support.parameters import each_of

import neuronsim
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.errors import FlagWarning
from neuronsim.hlo.module import Module

NARROW = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
ROWS, COLUMNS = 5, 7


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    return reading.rounded(x, CAST_TYPES[name]) if name else x


@pytest.fixture(scope="module")
def network() -> Module:
    turn = inst("t", "transpose", (COLUMNS, ROWS), "x", dimensions=(1, 0))
    return module_of(parameter("x", (ROWS, COLUMNS)), turn)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    values = np.random.default_rng(22).uniform(-2, 2, (ROWS, COLUMNS)).astype(np.float32)
    values[0, 0] = -0.0  # which a multiplication with the identity makes +0
    return values


def check(
    network: Module, x: np.ndarray, flags: str, cast: str, relayout: str, want: np.ndarray | None = None
) -> None:
    """The transpose of values rounded to `cast` runs on the tensor engine in `relayout`, if in any."""
    deprecated = pytest.warns(FlagWarning, match="--fp32-cast is deprecated")
    with deprecated if "--fp32-cast" in flags else contextlib.nullcontext():
        program = neuronsim.compile(network, flags=flags, target="inf1")
    decision = program.plan.decisions.get("t")
    assert (decision.relayout if decision else None) is (CAST_TYPES[relayout] if relayout else None)
    if want is None:
        want = rounded(x, cast)
        want = rounded(want, relayout) + np.float32(0) if relayout else want
    assert np.asarray(program(x)).tobytes() == np.ascontiguousarray(want.T).tobytes()


# neuron.md 2.2, row by row, and the priorities of its box: the types that values are cast to, and in
# which the transpose runs.
TRANSPOSES = [
    ("", "bf16", "bf16"),
    ("--fast-math all", "bf16", "bf16"),
    ("--fast-math none", "", ""),
    ("--fast-math fast-relayout", "bf16", "bf16"),
    ("--fast-math no-fast-relayout", "bf16", ""),
    ("--fast-math fp32-cast-all", "bf16", "bf16"),
    ("--fast-math fp32-cast-all-fp16", "fp16", "fp16"),
    ("--fast-math fp32-cast-matmult", "", "fp16"),
    ("--fast-math fp32-cast-matmult-bf16", "", "bf16"),
    ("--fast-math fp32-cast-matmult-fp16", "", "fp16"),
    ("--fast-math none fast-relayout", "", "bf16"),
    ("--fast-math fp32-cast-matmult no-fast-relayout", "", ""),
    ("--fp32-cast matmult", "", "fp16"),
    ("--fp32-cast matmult --fast-math none", "", ""),
    ("--fp32-cast matmult-bf16 --fast-math fp32-cast-matmult", "", "bf16"),
]


@each_of(("flags", "cast", "relayout"), TRANSPOSES)
def test_transposes_of_fast_math_A3(
    flags: str, cast: str, relayout: str, network: Module, x: np.ndarray
) -> None:
    check(network, x, flags, cast, relayout)


def test_a_wrong_expectation_fails(network: Module, x: np.ndarray) -> None:
    program = neuronsim.compile(network, flags="--fast-math fp32-cast-matmult", target="inf1")
    found = np.asarray(program(x)).tobytes()
    for wrong in (x, rounded(x, "bf16"), rounded(x, "fp16")):  # the last has -0
        assert found != np.ascontiguousarray(wrong.T).tobytes()


@pytest.mark.parametrize("relayout", NARROW)
def test_saturate_infinity_acts_on_them_M8(relayout: str, network: Module, x: np.ndarray) -> None:
    infinite = x.copy()
    infinite[2, 3] = -np.inf
    flags = f"--fast-math fp32-cast-matmult-{relayout}"
    largest = float(ml_dtypes.finfo(NARROW[relayout]).max)
    saturated = rounded(np.where(np.isinf(infinite), -largest, infinite), relayout) + np.float32(0)
    check(network, infinite, f"{flags} --enable-saturate-infinity", "", relayout, saturated)
    plain = neuronsim.compile(network, flags=flags, target="inf1")
    assert np.isnan(np.asarray(plain(infinite))).sum() == ROWS - 1  # the other values of its column


def profile_with(transpose: str) -> neuronsim.Profile:
    return neuronsim.Profile().replace(transpose=transpose)


@pytest.mark.parametrize("cast", ["none", "matmult", "all"])
def test_saturate_infinity_on_trn1_acts_where_the_profile_has_them_M8(
    cast: str, network: Module, x: np.ndarray
) -> None:
    infinite = x.copy()
    infinite[2, 3] = np.inf
    flags, profile = f"--auto-cast {cast} --enable-saturate-infinity", profile_with("tensor_engine")
    program = neuronsim.compile(network, flags=flags, profile=profile)  # and no warning
    values = rounded(
        np.where(np.isinf(infinite), np.float32(0), infinite), "bf16" if cast == "all" else ""
    )
    values = values + np.float32(0)
    values[2, 3] = np.finfo(np.float32).max
    found = np.asarray(program(infinite))
    if cast == "all":  # what leaves the engine is rounded to bfloat16, whose largest value is below
        values[2, 3] = np.inf
    assert found.tobytes() == np.ascontiguousarray(values.T).tobytes()
    with pytest.warns(FlagWarning, match="--enable-saturate-infinity has no effect"):
        neuronsim.compile(network, flags=flags, profile=profile_with("move_bits"))
