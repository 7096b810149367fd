"""Donated inputs: results take their memory where the module's aliases say so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.support.graphs import constant, inst, reducer

import neuronsim
from neuronsim import dtypes
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape
from neuronsim.program import CompiledProgram

F32, S32 = dtypes.float32, dtypes.int32


def aliased(aliases: dict[tuple[int, ...], int], *body: Instruction) -> Module:
    """A module whose results, by their places, may take the memory of parameters."""
    module = Module("m", "main", (Computation("main", body, body[-1].name),))
    listed = tuple((at, p, (), "MAY_ALIAS") for at, p in aliases.items())
    return dataclasses.replace(module, input_output_alias=listed)


def cache_step() -> Module:
    """A cache that gets a new row at a place, and the sum of the updated cache."""
    body = (
        inst("cache", "parameter", (4, 3), number=0),
        inst("row", "parameter", (1, 3), number=1),
        inst("at", "parameter", (), number=2, dtype=S32),
        constant("column", 0, S32),
        constant("zero", 0),
        inst("new", "dynamic-update-slice", (4, 3), "cache", "row", "at", "column"),
        inst("total", "reduce", (), "new", "zero", dimensions=(0, 1), called=("adds",)),
        Instruction("t", "tuple", TupleShape((Shape(F32, (4, 3)), Shape(F32, ()))), ("new", "total")),
    )
    module = aliased({(0,): 0}, *body)
    return dataclasses.replace(module, computations=(reducer("adds"), *module.computations))


@pytest.fixture
def program() -> CompiledProgram:
    return neuronsim.compile(cache_step(), auto_cast="none")


CACHE = np.arange(12, dtype=np.float32).reshape(4, 3)
ROW = np.full((1, 3), 100, np.float32)


def test_a_donated_cache_is_updated_in_place(program: CompiledProgram) -> None:
    cache = neuronsim.asarray(CACHE.copy())
    new, total = program(cache, ROW, np.int32(2), donate=True)
    expected = CACHE.copy()
    expected[2] = 100
    assert np.asarray(new).tolist() == np.asarray(cache).tolist() == expected.tolist()
    assert np.shares_memory(new.bits.data, cache.bits.data)
    assert float(total) == expected.sum()


def test_nothing_is_overwritten_without_donation(program: CompiledProgram) -> None:
    cache = neuronsim.asarray(CACHE.copy())
    new, _ = program(cache, ROW, np.int32(2))
    assert np.asarray(cache).tolist() == CACHE.tolist()
    assert not np.shares_memory(new.bits.data, cache.bits.data)


def test_donated_inputs_may_change_places() -> None:
    shape = Shape(F32, (3,))
    body = (
        inst("x", "parameter", (3,), number=0),
        inst("y", "parameter", (3,), number=1),
        inst("n", "negate", (3,), "x"),
        Instruction("t", "tuple", TupleShape((shape,) * 3), ("y", "x", "n")),
    )
    program = neuronsim.compile(aliased({(0,): 0, (1,): 1}, *body), auto_cast="none")
    x, y = neuronsim.asarray(np.float32([1, 2, 3])), neuronsim.asarray(np.float32([4, 5, 6]))
    first, second, third = program(x, y, donate=True)
    assert np.asarray(first).tolist() == np.asarray(x).tolist() == [4, 5, 6]
    assert np.asarray(second).tolist() == np.asarray(y).tolist() == [1, 2, 3]
    assert np.asarray(third).tolist() == [-1, -2, -3]


def test_memory_that_cannot_be_written_is_not_donated(program: CompiledProgram) -> None:
    cache = CACHE.copy()
    cache.flags.writeable = False
    new, _ = program(cache, ROW, np.int32(2), donate=True)
    assert cache.tolist() == CACHE.tolist()
    assert np.asarray(new)[2].tolist() == [100] * 3


def test_donation_is_not_observed(program: CompiledProgram) -> None:
    with pytest.raises(InvalidArgument, match="donate"):
        program(CACHE, ROW, np.int32(0), donate=True, observe="counts")


def test_a_donated_scalar_stays_one() -> None:
    body = (inst("x", "parameter", (), number=0), inst("n", "negate", (), "x"))
    program = neuronsim.compile(aliased({(): 0}, *body), auto_cast="none")
    assert np.asarray(program(neuronsim.asarray(np.float32(3)), donate=True)).tolist() == -3


def test_memory_of_two_inputs_is_not_donated(program: CompiledProgram) -> None:
    """What is stored in the first would be read from the second."""
    cache = neuronsim.asarray(np.zeros((4, 3), np.float32))
    new, _ = program(cache, neuronsim.asarray(cache.bits.data[:1]), np.int32(0), donate=True)
    assert not np.shares_memory(new.bits.data, cache.bits.data)
    body = (
        inst("x", "parameter", (4,), number=0),
        inst("y", "parameter", (4,), number=1),
        constant("nine", [9]),
        constant("zero", 0, S32),
        inst("new", "dynamic-update-slice", (4,), "x", "nine", "zero"),
        inst("sum", "add", (4,), "new", "y"),
    )
    x = neuronsim.asarray(np.float32([0, 1, 2, 3]))
    found = neuronsim.compile(aliased({(): 0}, *body), auto_cast="none")(x, x, donate=True)
    assert np.asarray(found).tolist() == [9, 2, 4, 6]
