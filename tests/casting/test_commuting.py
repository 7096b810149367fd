"""Rounding commutes with the operations of casting/application/commuting.py, and not with others.

That an operation with an order commutes follows for all pairs from neighbours: rounding that keeps the
order of each value and the next keeps that of all; the pairs with zeros, Inf and NaN are tried all.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.casting.rounding_cases import (
    FLOAT8,
    FORMATS,
    OPEN,
    Floats,
    apply,
    bits_of,
    cases,
    profiles,
    rounded,
)
from tests.support.graphs import reducer
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.casting.application.commuting import MOVES, ORDERS, commuted_operands
from neuronsim.casting.conversions import carrier
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.hlo.opcodes import STRUCTURE
from neuronsim.profiles import Profile

pytestmark = pytest.mark.isa_independent

F32, S32, PRED = dtypes.float32, dtypes.int32, dtypes.boolean
ALL_FORMATS = (*FORMATS, *OPEN)
# What only moves values or chooses among them and yet stays where the plan has it.
STAYS: dict[str, str] = {
    **dict.fromkeys(
        ("all-gather", "all-to-all", "collective-broadcast", "collective-permute"),
        "its type is what travels between replicas, which the plan decides",
    ),
    "compare": "numbers that differ may be equal once they are rounded",
    "custom-call": "its types are those that the called operator takes",
    "map": "it applies a computation, each step of which rounds",
    "partition-id": "it reads nothing",
    "replica-id": "it reads nothing",
    "rng-bit-generator": "it makes bits",
    "rng-get-and-update-state": "it makes bits",
    "scatter": "it applies a computation, each step of which rounds (R5)",
    "select-and-scatter": "numbers that differ may be equal once they are rounded, and it adds (R5)",
    "set-dimension-size": "it states a size, which a move of its convert would separate from the value",
    "sign": "a small number may be zero once it is rounded",
    "sort": "numbers that differ may be equal once they are rounded, and in another order (E10)",
    "topk": "numbers that differ may be equal once they are rounded, with other indices (E10)",
}


def _opcodes_of(*casts: str) -> set[str]:
    return {o.opcode for o in ops.OPS.values() if o.opcode and o.cast in casts}


def test_every_operation_that_moves_values_is_in_a_table() -> None:
    listed = [*MOVES, *ORDERS, *STAYS]
    assert len(set(listed)) == len(listed)
    assert _opcodes_of("movement") - set(listed) == set()
    assert set(listed) <= ops.OPCODES
    assert not set(listed) & STRUCTURE


def scalar(opcode: str, dtype: DType) -> ops.ScalarComputation:
    step = ops.ScalarStep(ops.by_opcode(opcode, {}), {}, (0, 1), dtype)
    return ops.ScalarComputation(opcode, (dtype, dtype), (step,), (2,), ops.by_opcode(opcode, {}).name)


def bits(x: Any, dtype: DType = F32) -> ops.Bits:
    return ops.Bits(np.ascontiguousarray(x, dtype.storage), dtype)


class Case:
    """An application of an operation: operands, of which float32 ones are rounded, and attributes."""

    def __init__(
        self, opcode: str, dims: tuple[int, ...], *operands: ops.Bits, reduce: str = "", **more: Any
    ) -> None:
        self.opcode, self.dims, self.operands, self.reduce, self.more = (
            *(opcode, dims, operands, reduce, more),
        )

    def instruction(self, dtype: DType) -> Instruction:
        called = {"called": (self.reduce,)} if self.reduce else {}
        names = tuple(f"o{n}" for n in range(len(self.operands)))
        return Instruction("y", self.opcode, Shape(dtype, self.dims), names, {**self.more, **called})

    def run(self, dtype: DType, operands: list[ops.Bits], profile: Profile) -> ops.Bits:
        attributes = {}
        if self.reduce:
            applied = scalar(self.reduce, dtype)
            attributes = {"computations": (applied,), "reducer": applied.reducer}
        return apply(self.instruction(dtype), operands, profile, **attributes)


def differences(case: Case, dtype: DType, profile: Profile) -> int:
    """The elements of which rounding before the operation and after it gives other bits."""
    computations = {case.reduce: reducer(case.reduce, case.reduce)} if case.reduce else {}
    low = [rounded(x, dtype, profile) if x.dtype is F32 else x for x in case.operands]
    after = rounded(case.run(F32, list(case.operands), profile), dtype, profile)
    before = case.run(carrier(dtype), low, profile)
    numbers = commuted_operands(case.instruction(F32), computations, dtype)
    if numbers:
        assert numbers == tuple(n for n, x in enumerate(case.operands) if x.dtype is F32)
    return int((bits_of(before) != bits_of(after)).sum())


def pairs(x: Floats) -> tuple[ops.Bits, ops.Bits]:
    """Each value with its neighbours, with what is special, and with one at random."""
    mixed = np.random.default_rng(3).permutation(x)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1.0, -1.0], np.float32)
    left = np.concatenate([x[:-1], x[1:], x, np.tile(x, len(special))])
    right = np.concatenate([x[1:], x[:-1], mixed, np.repeat(special, len(x))])
    return bits(left), bits(right)


def moves(x: Floats) -> dict[str, Case]:
    """A case of each operation that moves values, over all of these."""
    x = x[: len(x) // 8 * 8]
    n = len(x)
    flat, square, other = bits(x), bits(x.reshape(8, -1)), bits(x[::-1])
    where = bits(np.random.default_rng(1).permutation(n).reshape(-1, 1), S32)
    start = bits(np.int32(3), S32)
    gather = ops.GatherDimensions(collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1)
    chosen = bits(np.arange(n) % 3 == 0, PRED)
    return {
        "abs": Case("abs", (n,), flat),
        "broadcast": Case("broadcast", (2, n), flat, dimensions=(1,)),
        "concatenate": Case("concatenate", (2 * n,), flat, other, dimensions=(0,)),
        "copy": Case("copy", (n,), flat),
        "dynamic-slice": Case("dynamic-slice", (n - 3,), flat, start, dynamic_slice_sizes=(n - 3,)),
        "dynamic-update-slice": Case("dynamic-update-slice", (n,), flat, bits(x[:-5]), start),
        "gather": Case("gather", (n,), flat, where, gather_dimensions=gather, slice_sizes=(1,)),
        "negate": Case("negate", (n,), flat),
        "pad": Case("pad", (2 * n + 1,), flat, bits(np.float32(0.3)), padding=((1, 1, 1),)),
        "reshape": Case("reshape", (8, n // 8), flat),
        "reverse": Case("reverse", (n,), flat, dimensions=(0,)),
        "select": Case("select", (n,), chosen, flat, other),
        "slice": Case("slice", (n // 2,), flat, slice=((0, n, 2),)),
        "transpose": Case("transpose", (n // 8, 8), square, dimensions=(1, 0)),
    }


def orders(x: Floats) -> dict[str, list[Case]]:
    """Cases of each operation that chooses a value by its size."""
    a, b = pairs(x)
    n, both = len(a.data), bits(np.stack([a.data, b.data]))
    window = (ops.WindowDimension(2), ops.WindowDimension(1))
    found: dict[str, list[Case]] = {
        "clamp": [
            Case("clamp", (n,), low, bits(np.roll(a.data, 7)), high) for low, high in ((a, b), (b, a))
        ]
    }
    for opcode, start in (("maximum", -np.inf), ("minimum", np.inf)):
        first = bits(np.float32(start))
        found[opcode] = [Case(opcode, (n,), a, b)]
        found.setdefault("reduce", []).append(
            Case("reduce", (n,), both, first, reduce=opcode, dimensions=(0,))
        )
        found.setdefault("reduce-window", []).append(
            Case("reduce-window", (1, n), both, first, reduce=opcode, window=window)
        )
    return found


@pytest.mark.parametrize("dtype", ALL_FORMATS, ids=lambda t: t.name)
def test_moving_commutes_with_rounding(dtype: DType) -> None:
    tried = moves(cases(dtype))
    assert tried.keys() == MOVES.keys()
    for case, profile in itertools.product(tried.values(), profiles(dtype)):
        assert commuted_operands(case.instruction(F32), {}, dtype)
        assert differences(case, dtype, profile) == 0, (case.opcode, profile)


@pytest.mark.parametrize("dtype", [t for t in ALL_FORMATS if t.itemsize > 1], ids=lambda t: t.name)
def test_orders_commute_with_rounding_E7(dtype: DType) -> None:
    tried = orders(cases(dtype))
    assert tried.keys() == ORDERS.keys()
    for case, profile in itertools.product(itertools.chain(*tried.values()), profiles(dtype)):
        assert differences(case, dtype, profile) == 0, (case.opcode, case.reduce, profile)


@pytest.mark.parametrize("dtype", FLOAT8, ids=lambda t: t.name)
def test_orders_do_not_commute_where_overflow_is_nan_C3(dtype: DType) -> None:
    for case in itertools.chain(*orders(cases(dtype)).values()):
        computations = {case.reduce: reducer(case.reduce, case.reduce)}
        assert commuted_operands(case.instruction(F32), computations, dtype) == ()
        assert differences(case, dtype, Profile(fp8_overflow="nan")) > 0


def test_nothing_runs_in_a_type_that_the_device_lacks() -> None:
    for case in moves(cases(dtypes.float8_e3m4)).values():
        assert commuted_operands(case.instruction(F32), {}, dtypes.float8_e4m3fn) == ()


@each_of("dtype", [t for t in ALL_FORMATS if t.itemsize > 1], ids=lambda t: t.name)
@each_of("opcode", ["add", "multiply", "sign"])
def test_arithmetic_does_not_commute(opcode: str, dtype: DType) -> None:
    a, b = pairs(cases(dtype))
    case = Case(opcode, a.data.shape, *((a,) if opcode == "sign" else (a, b)))
    assert commuted_operands(case.instruction(F32), {}, dtype) == ()
    assert differences(case, dtype, Profile()) > 0 or (opcode == "sign" and dtype.exponent_bits == 8)


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda t: t.name)
def test_comparing_and_sorting_do_not_commute(dtype: DType) -> None:
    x, profile = bits(cases(dtype)), Profile()
    low = rounded(x, dtype, profile)
    less = Instruction("y", "compare", Shape(PRED, (len(x.data) - 1,)), ("a", "b"))
    less = less.replace(attributes={"comparison_direction": "LT", "comparison_type": "FLOAT"})

    def compared(v: ops.Bits) -> ops.Bits:
        return apply(less, [bits(v.data[:-1], v.dtype), bits(v.data[1:], v.dtype)], profile)

    assert commuted_operands(less, {}, dtype) == ()
    assert (compared(x).data != compared(low).data).any()
    assert "sort" in STAYS
    assert "topk" in STAYS


def test_sums_and_instructions_that_state_how_they_compute_stay() -> None:
    tried = orders(cases(dtypes.float8_e3m4))
    case = tried["reduce"][0]
    sums = {case.reduce: reducer("add")}
    assert commuted_operands(case.instruction(F32), sums, dtypes.bfloat16) == ()
    y = Instruction("y", "transpose", Shape(F32, (2, 2)), ("x",), {"dimensions": (1, 0)})
    assert commuted_operands(y, {}, dtypes.bfloat16) == (0,)
    for key, numbers in (
        ("neuronsim.reason", (0,)),
        ("inlineable", (0,)),
        ("neuronsim.relayout", ()),
        ("neuronsim.rounding", ()),
    ):
        stated = y.replace(attributes={**y.attributes, "frontend_attributes": {key: "bfloat16"}})
        assert commuted_operands(stated, {}, dtypes.bfloat16) == numbers


@pytest.mark.exhaustive
@pytest.mark.parametrize("opcode", ["negate", "maximum"])
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16], ids=lambda t: t.name)
def test_rounding_of_all_float32_commutes(dtype: DType, opcode: str) -> None:
    for start in range(0, 1 << 32, 1 << 24):
        numbers = np.arange(start, start + (1 << 24) + 1, dtype=np.uint64)
        x = (numbers & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
        operands = (bits(x[:-1]), bits(x[1:])) if opcode == "maximum" else (bits(x),)
        case = Case(opcode, operands[0].data.shape, *operands)
        assert differences(case, dtype, Profile()) == 0, hex(start)
