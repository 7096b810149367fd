"""Modules compiled and run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.executor.compile import compile_module
from neuronsim.executor.run import run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import TupleValue, Value
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile
from neuronsim.targets import find_target


def execute(module: Module, inputs: Sequence[ops.Bits]) -> Any:
    """What the module gives: an array, or a tuple of what it holds."""
    program = compile_module(module, Profile(), find_target("host"))
    names = (p.name for p in module.parameters)
    return _unpacked(run_schedule(program, dict(zip(names, inputs, strict=True))))


def program_of(module: Module, int64: str = "truncate", target: str = "trn1") -> Schedule:
    """A module compiled with a value of the field int64 (C7) for a target."""
    return compile_module(module, Profile(int64=int64), find_target(target))


def flat(value: Any) -> list[Any]:
    """The arrays of a result, in order."""
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


def flat_bits(value: Any) -> list[ops.Bits]:
    """The arrays inside a result, in order, in tuples of either kind."""
    if isinstance(value, ops.Bits):
        return [value]
    return [
        x for v in (value.elements if isinstance(value, TupleValue) else value) for x in flat_bits(v)
    ]


def contents(value: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """The type, shape and bytes of each of them."""
    return [(x.dtype.name, x.data.shape, x.data.tobytes()) for x in flat_bits(value)]


def _unpacked(value: Value) -> Any:
    return tuple(map(_unpacked, value.elements)) if isinstance(value, TupleValue) else value


def result_bytes(
    module: Module, *inputs: Any, rounding: str = "nearest_even", seed: int = 0
) -> list[bytes]:
    """The bytes of each array that the module gives under a rounding and a seed."""
    program = compile_module(module, Profile(rounding=rounding), find_target("host"))
    given = {
        name: ops.Bits(np.ascontiguousarray(x).view(t.dtype.storage), t.dtype)
        for (name, t), x in zip(program.inputs, inputs, strict=True)
    }
    return [a.data.tobytes() for a in flat_bits(run_schedule(program, given, seed=seed))]
