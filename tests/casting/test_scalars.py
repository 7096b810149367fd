"""Computations of scalars in another type (A2): parameters, steps, constants, what stays float32."""

from __future__ import annotations

import numpy as np
import pytest
from tests.casting.reading import read_module, rounded
from tests.support.graphs import constant, inst
from tests.support.running import execute

from neuronsim import dtypes, ops
from neuronsim.casting.application.scalars import retype_scalars
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape, simple_reducer
from neuronsim.hlo.opcodes import scalar_computation
from neuronsim.hlo.verify import verify

F32, F64, BF16, S32 = dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int32
TF32 = dtypes.tfloat32
TYPES = pytest.mark.parametrize("cast_type", CAST_TYPES)


def pair(dtype: DType = F32) -> list[Instruction]:
    return [inst(n, "parameter", dtype, number=k) for k, n in enumerate("ab")]


def computation(*body: Instruction, name: str = "f") -> Computation:
    return Computation(name, body, body[-1].name)


def retyped(old: Computation, dtype: DType, opcode: str = "reduce") -> Computation:
    """As `retype_scalars`, verified as a module of its own."""
    taken = {i.name for i in old.instructions} | {old.name}

    def fresh(name: str) -> str:
        assert name not in taken  # no test here needs a number
        taken.add(name)
        return name

    new = retype_scalars(old, opcode, dtype, fresh)
    verify(Module("m", new.name, (new,)))
    return new


def carried(dtype: DType) -> DType:
    return F32 if dtype is TF32 else dtype


def weighted() -> Computation:
    """The sum of b and 0.3 a."""
    return computation(
        *pair(),
        constant("k", 0.3),
        inst("m", "multiply", F32, "a", "k"),
        inst("s", "add", F32, "m", "b"),
    )


A, B = np.float32(1.4345678), np.float32(-0.7567891)


@TYPES
def test_each_step_is_rounded_and_constants_are_converted_A2(cast_type: str) -> None:
    low, old = CAST_TYPES[cast_type], weighted()
    new = retyped(old, low)
    assert [p.array.dtype for p in new.parameters] == [carried(low)] * 2
    given = [rounded(np.asarray(v), low) for v in (A, B)]
    expected = read_module(Module("m", "f", (old,)), given, low, "all")
    assert expected != read_module(Module("m", "f", (old,)), given, F32, "none")
    inputs = [
        ops.Bits(v.astype(carried(low).numpy).view(carried(low).storage), carried(low)) for v in given
    ]
    got = execute(Module("m", new.name, (new,)), inputs)
    assert got.dtype is carried(low)
    assert np.float32(got.data.view(carried(low).numpy)) == expected


@TYPES
def test_a_retyped_computation_is_one_of_scalars(cast_type: str) -> None:
    new = retyped(weighted(), CAST_TYPES[cast_type])
    found = scalar_computation(Module("m", new.name, (new,)), new.name, "reduce")
    assert found.result_types == (carried(CAST_TYPES[cast_type]),)
    assert found.reducer is None


@TYPES
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
def test_a_simple_reducer_stays_simple_R2(cast_type: str, opcode: str) -> None:
    low = CAST_TYPES[cast_type]
    old = computation(*pair(), inst("s", opcode, F32, "a", "b"))
    new = retyped(old, low)
    assert simple_reducer(new) == opcode
    if low is TF32:
        assert new is old  # one rounding, after the sum in float32
    else:
        assert [(i.name, i.array.dtype) for i in new.instructions] == [
            (f"{n}.{short(low)}", low) for n in ("a", "b", "s")
        ]


def short(low: DType) -> str:
    return {"bfloat16": "bf16", "float16": "f16", "float8_e4m3": "f8e4m3", "tfloat32": "tf32"}[low.name]


@pytest.mark.parametrize("opcode", ["scatter", "select-and-scatter"])
def test_each_application_of_a_scatter_is_rounded_to_tfloat32_R5(opcode: str) -> None:
    old = computation(*pair(), inst("s", "add", F32, "a", "b"))
    new = retyped(old, TF32, opcode)
    assert [i.opcode for i in new.instructions] == ["parameter", "parameter", "add", "reduce-precision"]
    assert new.root == "s.tf32"


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_what_rounds_nothing_is_not_rounded_again_C9(opcode: str) -> None:
    old = computation(*pair(), inst("s", opcode, F32, "a", "b"))
    assert retyped(old, TF32, "scatter") is old
    assign = Computation("f", tuple(pair()), "b")
    assert retyped(assign, TF32, "scatter") is assign


def test_an_assignment_stays_one() -> None:
    new = retyped(Computation("f", tuple(pair()), "b"), BF16, "scatter")
    assert [i.opcode for i in new.instructions] == ["parameter", "parameter"]
    assert new.by_name[new.root].attributes["number"] == 1


def test_a_reducer_in_a_wider_type_keeps_it_R2() -> None:
    old = computation(
        *pair(),
        *(inst(f"{n}w", "convert", F64, n) for n in "ab"),
        inst("s", "add", F64, "aw", "bw"),
        inst("r", "convert", F32, "s"),
    )
    new = retyped(old, BF16)
    assert [i.array.dtype for i in new.instructions] == [BF16, BF16, F64, F64, F64, BF16]
    assert simple_reducer(new) == "add"


@pytest.mark.parametrize("dtype", [BF16, F64, S32])
def test_a_computation_without_float32_is_untouched_A2(dtype: DType) -> None:
    old = computation(*pair(dtype), inst("s", "add", dtype, "a", "b"))
    assert retyped(old, BF16) is old
    assert retyped(old, TF32) is old


def test_only_the_float32_parameters_of_several_change_A2() -> None:
    body = [
        inst("v", "parameter", F32, number=0),
        inst("n", "parameter", S32, number=1),
        inst("w", "parameter", F32, number=2),
        inst("m", "parameter", S32, number=3),
        inst("c", "compare", dtypes.boolean, "v", "w", comparison_direction="GE"),
        inst("x", "select", F32, "c", "v", "w"),
        inst("k", "select", S32, "c", "n", "m"),
        Instruction("t", "tuple", TupleShape((Shape(F32), Shape(S32))), ("x", "k")),
    ]
    old = computation(*body)
    new = retyped(old, BF16)
    assert [p.array.dtype for p in new.parameters] == [BF16, S32, BF16, S32]
    assert new.by_name[new.root].shape == TupleShape((Shape(BF16), Shape(S32)))
    found = scalar_computation(Module("m", new.name, (new,)), new.name, "reduce")
    assert found.result_types == (BF16, S32)
    assert retyped(old, TF32) is old  # a comparison and selections round nothing


def test_a_comparator_compares_rounded_keys_A2() -> None:
    old = computation(
        *pair(), inst("c", "compare", dtypes.boolean, "a", "b", comparison_direction="LT")
    )
    new = retyped(old, BF16, "sort")
    assert [i.array.dtype for i in new.instructions] == [BF16, BF16, dtypes.boolean]
    assert retyped(old, TF32, "sort") is old


@TYPES
def test_reduce_precision_rounds_a_float32_C9(cast_type: str) -> None:
    low = CAST_TYPES[cast_type]
    bits = {"exponent_bits": 8, "mantissa_bits": 4}
    old = computation(
        *pair(), inst("s", "subtract", F32, "a", "b"), inst("r", "reduce-precision", F32, "s", **bits)
    )
    new = retyped(old, low)
    stated = next(i for i in new.instructions if i.attributes == bits)
    assert stated.array.dtype is F32
    assert {new.by_name[o].array.dtype for o in stated.operands} == {F32}
    assert new.by_name[new.root].array.dtype is carried(low)


@TYPES
def test_a_view_of_the_bits_is_one_of_float32(cast_type: str) -> None:
    low = CAST_TYPES[cast_type]
    old = computation(
        inst("a", "parameter", F32, number=0),
        inst("n", "parameter", S32, number=1),
        inst("v", "bitcast-convert", S32, "a"),
        inst("u", "add", S32, "v", "n"),
        inst("f", "bitcast-convert", F32, "u"),
        name="g",
    )
    new = retyped(old, low)
    stored = np.asarray(A.astype(carried(low).numpy)).view(carried(low).storage)
    one = ops.Bits(np.asarray(3, np.int32), S32)
    got = execute(Module("m", "g", (new,)).replace_entry(new), [ops.Bits(stored, carried(low)), one])
    moved = np.asarray(stored.view(carried(low).numpy).astype(np.float32).view(np.int32) + 3)
    assert got.dtype is carried(low)
    assert np.float32(got.data.view(carried(low).numpy)) == rounded(moved.view(np.float32), low)


def test_new_names_do_not_replace_others() -> None:
    taken = {"f.bf16", "a.bf16", "a", "b", "s", "f"}

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    old = computation(*pair(), inst("s", "add", F32, "a", "b"))
    new = retype_scalars(old, "reduce", BF16, fresh)
    assert (new.name, [i.name for i in new.instructions]) == (
        "f.bf16_",
        ["a.bf16_", "b.bf16", "s.bf16"],
    )
