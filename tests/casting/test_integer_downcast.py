"""--implicit-integer-downcast on modules: what is refused with AWS's code, and what it warns of."""

from __future__ import annotations

from contextlib import nullcontext as nothing
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import constant, inst, module_of, parameter, reducer

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.casting.flags.integer_downcast import INTEGER_DOWNCASTS, check_integer_downcasts
from neuronsim.dtypes import DType
from neuronsim.errors import FlagWarning, UnsupportedOperator
from neuronsim.hlo.module import Instruction, Module, Shape
from neuronsim.targets import find_release, find_target

S32, S64, F32 = dtypes.int32, dtypes.int64, dtypes.float32
LAST, TRN1 = find_release("2.32"), find_target("trn1")
NAMES = tuple(INTEGER_DOWNCASTS)

# neuron.md 1.4, row by row: operation, operands, computed in, exact to, AWS's code.
TABLE = [
    ("dot", (S64,), "float32", "2^24", "NCC_EVRF035"),
    ("scatter", (S32, S64), "float32", "2^24", "NCC_EVRF060"),
    ("all_reduce", (S32, S64), "float32", "2^24", "NCC_EVRF061"),
    ("reduce_scatter", (S32, S64), "float32", "2^24", "NCC_EVRF063"),
    ("pow", (S64,), "int32", "2^31", "NCC_EVRF062"),
]
ROWS = [(name, t, *rest) for name, types, *rest in TABLE for t in types]


def operation(name: str, t: DType, result: str = "found", x: str = "x") -> list[Instruction]:
    """The operation of the option's list on the parameter x, a 4x4 array."""
    square, two, at, new = Shape(t, (4, 4)), f"{result}_two", f"{result}_at", f"{result}_new"
    if name == "dot":
        return [inst(result, "dot", square, x, x, dot_dimensions=ops.DotDimensions((1,), (0,)))]
    if name == "pow":
        twos = inst(f"{two}s", "broadcast", square, two, dimensions=())
        return [constant(two, 2, t), twos, inst(result, "power", square, x, f"{two}s")]
    if name == "scatter":
        numbers = ops.ScatterDimensions((1,), (0,), (0,), index_vector_dim=1)
        stated = {"scatter_dimensions": numbers, "called": ("sum",)}
        given = constant(at, [[0], [1], [1]], S32), constant(new, np.zeros((3, 4)), t)
        return [*given, inst(result, "scatter", square, x, at, new, **stated)]
    opcode = name.replace("_", "-")
    extra = {"dimensions": (0,)} if name == "reduce_scatter" else {}
    return [inst(result, opcode, square, x, replica_groups=((0,),), called=("sum",), **extra)]


def build(name: str, t: DType) -> Module:
    body = [parameter("x", (4, 4), dtype=t), *operation(name, t)]
    others = (reducer("sum", "add", t),) if name not in ("dot", "pow") else ()
    return module_of(*body, others=others)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r[0]} {r[1].name}")
def test_what_is_not_permitted_is_refused_with_the_code(row: Any) -> None:
    name, t, _, _, code = row
    others = tuple(n for n in NAMES if n != name)
    for permitted in ((), others):
        with pytest.raises(UnsupportedOperator) as error:
            check_integer_downcasts(build(name, t), permitted, LAST, TRN1)
        message = str(error.value)
        assert "main/found" in message
        assert f"[{code}]" in message
        assert "does not permit" in message
        needed = message.rpartition("--implicit-integer-downcast ")[2]
        assert set(needed.split(",")) == {name, *permitted}  # what to give instead


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r[0]} {r[1].name}")
def test_what_is_permitted_gets_a_warning_with_the_bound(row: Any) -> None:
    name, t, computed_in, bound, code = row
    for permitted in ((name,), NAMES):
        (warning,) = check_integer_downcasts(build(name, t), permitted, LAST, TRN1)
        for part in (
            "main/found",
            f"computed in {computed_in}",
            f"up to {bound}",
            f"[{code}]",
            f"permits {name}",
        ):
            assert part in warning


@pytest.mark.parametrize("name", NAMES)
def test_floats_are_neither_refused_nor_warned_of(name: str) -> None:
    module = build(name, F32)
    assert check_integer_downcasts(module, (), LAST, TRN1) == ()
    assert check_integer_downcasts(module, NAMES, LAST, TRN1) == ()


@pytest.mark.parametrize("name", ["dot", "pow"])
def test_NeuronCore_v2_takes_32_bit_integers_here(name: str) -> None:
    # neuron.md 1.4: dot on int32 is in the table from trn2 on (EVRF035.rst), pow on int64 only.
    assert check_integer_downcasts(build(name, S32), (), LAST, TRN1) == ()


def test_all_refused_instructions_are_one_error() -> None:
    body: list[Instruction] = [parameter("x", (4, 4), dtype=S64)]
    for name in NAMES:
        body += operation(name, S64, f"the_{name}")
    module = module_of(*body, others=(reducer("sum", "add", S64),))
    with pytest.raises(UnsupportedOperator) as error:
        check_integer_downcasts(module, (), LAST, TRN1)
    for name, *_, code in TABLE:
        assert f"main/the_{name} " in str(error.value)
        assert f"[{code}]" in str(error.value)
    assert str(error.value).endswith(
        "--implicit-integer-downcast dot,scatter,all_reduce,reduce_scatter,pow"
    )


def test_releases_before_the_option_say_nothing() -> None:
    module = build("dot", S64)
    assert check_integer_downcasts(module, (), find_release("2.31"), TRN1) == ()


def test_compile_refuses_and_warns() -> None:
    module = build("scatter", S32)
    with pytest.raises(UnsupportedOperator, match="NCC_EVRF060"):
        neuronsim.compile(module, sdk="2.32", flags="--implicit-integer-downcast none")
    with pytest.warns(FlagWarning, match="NCC_EVRF060") as caught:
        neuronsim.compile(module, sdk="2.32")
    assert len(caught) == 1


def test_permitting_dot_computes_it_via_float32_M7() -> None:
    module = build("dot", S32)
    x = np.zeros((4, 4), np.int32)
    x[0, :2], x[:2, 0] = (2**24, 1), (1, 1)
    x[0, 0] = 2**24 + 1  # no float32
    found = {}
    for flags in ("", "--implicit-integer-downcast pow", "--implicit-integer-downcast dot"):
        with pytest.warns(FlagWarning, match="NCC_EVRF035") if "pow" not in flags else nothing():
            program = neuronsim.compile(module, sdk="2.32", flags=flags)
        found[flags] = np.asarray(program(x))
        assert program.setup.profile.int_dot == ("via_float32" if "dot" in flags else "exact")
    exact = (x.astype(np.int64) @ x).astype(np.int32)
    assert np.array_equal(found[""], exact)
    assert np.array_equal(found["--implicit-integer-downcast pow"], exact)
    assert not np.array_equal(found["--implicit-integer-downcast dot"], exact)
