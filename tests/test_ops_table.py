"""One op, one row: a test fails when one of the tables does not know an operation."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest

import neuronsim
from neuronsim import _core, dtypes, ops
from neuronsim.arrays import elementwise
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.errors import UnsupportedOperator
from neuronsim.hlo import asynchronous, opcodes
from neuronsim.profiles import Profile
from neuronsim.reference import elementwise as twin
from neuronsim.targets import TARGETS
from tests.support.parameters import each_of

pytestmark = pytest.mark.isa_independent

ROWS = list(ops.OPS.values())
ELEMENTWISE = [row for row in ROWS if row.core is not None]
KERNELS = {name: (arity, kind) for name, arity, kind in _core.OPS}


@each_of("row", ELEMENTWISE, ids=lambda r: r.name)
def test_row_has_its_kernel_with_the_same_arity(row: ops.Op) -> None:
    for name in (row.core, row.on_bool):
        if name is not None:
            assert KERNELS[name][0] == row.arity
    compares = KERNELS[row.core or ""] == (2, "comparison")
    assert compares == (row.direction is not None)
    assert row.total_order == row.name.endswith("_total_order")


@each_of("name", KERNELS)
def test_kernel_is_used_by_a_row(name: str) -> None:
    assert any(name in (row.core, row.on_bool) for row in ROWS)


@each_of("row", ELEMENTWISE, ids=lambda r: r.name)
def test_row_has_its_twin(row: ops.Op) -> None:
    kind = KERNELS[row.core or ""][1]
    if kind == "selection":
        return  # moves bits: there is nothing to compute
    integer = {**twin.INTEGER, **twin.INTEGER_BITS}
    tables: dict[str, tuple[Mapping[str, object], ...]] = {
        "reducer": (twin.FLOAT, integer),
        "arithmetic": (twin.FLOAT, integer),
        "floating": (twin.FLOAT,),
        "function": (twin.FLOAT,),
        "integral": (integer,),
        "bitwise": (twin.FLOAT, integer),
        "sign": (twin.FLOAT,),
        "comparison": (twin.PREDICATE if row.arity == 1 else twin.COMPARISON,),
    }
    for table in tables[kind]:
        assert (row.core or "").removesuffix("_total_order") in table
    if row.on_bool is not None:
        assert row.core in twin.BOOL


def test_twin_knows_no_operation_that_the_core_lacks() -> None:
    integer = (twin.INTEGER, twin.INTEGER_BITS, twin.BOOL)
    for table in (twin.FLOAT, twin.COMPARISON, twin.PREDICATE, *integer):
        assert set(table) <= set(KERNELS)


def test_rows_are_found_by_name_and_by_opcode() -> None:
    in_hlo = [row for row in ROWS if row.opcode]
    assert len({(row.opcode, row.direction, row.total_order) for row in in_hlo}) == len(in_hlo)
    for row in ROWS:
        assert ops.by_name(row.name) is row
    for row in in_hlo:
        attributes = {} if row.direction is None else {"comparison_direction": row.direction}
        if row.total_order:
            attributes["comparison_type"] = "TOTALORDER"
        assert ops.by_opcode(row.opcode, attributes) is row
    assert {row.opcode for row in in_hlo} | {"custom-call"} == ops.OPCODES


def test_rows_of_arrays_alone_have_no_opcode() -> None:
    assert all(row.label == (row.opcode or row.name) for row in ROWS)
    with pytest.raises(UnsupportedOperator):
        ops.by_opcode("", {})


@pytest.mark.parametrize("kind", ["FLOAT", "SIGNED", "UNSIGNED", ""])
def test_comparisons_of_other_kinds_are_the_plain_ones(kind: str) -> None:
    for row in ROWS:
        if row.direction is not None and not row.total_order:
            attributes = {"comparison_direction": row.direction, "comparison_type": kind}
            assert ops.by_opcode("compare", attributes) is row


def test_unknown_names_and_opcodes_raise_with_the_nearest() -> None:
    with pytest.raises(UnsupportedOperator, match="did you mean 'softplus'"):
        ops.by_name("sofplus")
    with pytest.raises(UnsupportedOperator, match=r"NCC_EVRF001.*did you mean 'logistic'"):
        ops.by_opcode("logstic", {})
    with pytest.raises(UnsupportedOperator):
        ops.by_opcode("compare", {"comparison_direction": "XX"})


def test_hlo_knows_every_opcode_once() -> None:
    assert not opcodes.STRUCTURE & ops.OPCODES
    assert set(opcodes.ATTRIBUTES) <= ops.OPCODES | opcodes.STRUCTURE | asynchronous.STARTS
    # Elementwise rows carry no attributes, but for a comparison's direction.
    for row in ELEMENTWISE:
        assert (row.opcode in opcodes.ATTRIBUTES) == (row.direction is not None)


@each_of("row", ELEMENTWISE, ids=lambda r: r.name)
def test_row_has_its_array_function(row: ops.Op) -> None:
    if row.name == "select":
        assert neuronsim.where is elementwise.where  # NumPy's name for it
        return
    function = getattr(neuronsim, row.name)
    assert isinstance(function, Ufunc)
    assert (function.__name__, function.nin, function.nout) == (row.name, row.arity, 1)
    assert row.name in neuronsim.__all__
    assert row.opcode in (function.__doc__ or "")


def test_function_of_a_row_without_opcode_names_none() -> None:
    documented = {n: f.__doc__ or "" for n, f in elementwise.ELEMENTWISE.items()}
    assert [n for n, text in documented.items() if "``" in text] == []


@each_of("row", ROWS, ids=lambda r: r.name)
def test_row_is_complete(row: ops.Op) -> None:
    engines = {"dma", "none"} | {e for t in TARGETS.values() for e in t.clocks}
    assert row.engine in engines
    assert row.cast in ("matmult", "compute", "movement", "host")
    assert (row.cast == "matmult") == (row.engine == "tensor")
    assert bool(row.xla_builder) == bool(row.opcode)
    assert row.xla_builder[:1] == row.xla_builder[:1].upper()
    assert (row.cost == "none") == (row.engine == "none")
    assert row.arity >= -1


def test_row_survives_pickling_as_itself() -> None:
    """Modules that were verified hold the rows of what they apply to elements."""
    assert all(pickle.loads(pickle.dumps(row)) is row for row in ROWS)


def test_operators_are_unique_and_binary() -> None:
    symbols = [row.operator for row in ROWS if row.operator]
    assert len(set(symbols)) == len(symbols)
    assert all(row.arity == 2 for row in ROWS if row.operator)


@pytest.mark.parametrize("row", [r for r in ROWS if r.identity is not None], ids=lambda r: r.name)
def test_identity_R2_changes_nothing(row: ops.Op) -> None:
    """sum, prod, max and min start from it: no value but -0 + 0 may change."""
    words = np.array([0, 1, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000], np.uint32)
    x = words.view(np.float32)
    identity = np.full_like(x, row.identity)
    operands = [ops.Bits(v, dtypes.float32) for v in (x, identity)]
    (found,) = ops.evaluate(row, operands, {}, ops.Setting(Profile()))
    assert np.array_equal(found.data.view(np.uint32), words)
