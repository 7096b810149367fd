"""HLO text as XLA prints it. That XLA reads it back is in test_hlo_peer_xla.py."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.graphs import constant
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo import text
from neuronsim.hlo.module import Computation, Instruction, Metadata, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, S32 = dtypes.float32, dtypes.int32
MATRIX = Shape(F32, (2, 3))

GOLDEN = """\
HloModule small, entry_computation_layout={(f32[2,3]{1,0}, bf16[])->(f32[2]{0}, (s32[2]{0}))}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %both = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (x: f32[2,3], k: bf16[]) -> (f32[2], (s32[2])) {
  %x = f32[2,3]{1,0} parameter(0)
  %k = bf16[] parameter(1)
  %zero = f32[] constant(0.5)
  %r = f32[2]{0} reduce(f32[2,3]{1,0} %x, f32[] %zero), \
dimensions={1}, to_apply=%sum, metadata={op_name="jit(f)/sum"}
  %n = s32[2]{0} iota(), iota_dimension=0
  %s = s32[2]{0} slice(s32[2]{0} %n), slice={[0:2]}
  %one = (s32[2]{0}) tuple(s32[2]{0} %s)
  ROOT %all = (f32[2]{0}, (s32[2]{0})) \
tuple(f32[2]{0} %r, (s32[2]{0}) %one)
}
"""


def test_small_module_is_printed_as_expected() -> None:
    scalar, pair = Shape(F32), Shape(S32, (2,))
    a = Instruction("a", "parameter", scalar, (), {"number": 0})
    b = Instruction("b", "parameter", scalar, (), {"number": 1})
    adds = Computation("sum", (a, b, Instruction("both", "add", scalar, ("a", "b"))), "both")
    zero = ops.Bits(np.array(0.5, np.float32), F32)
    origin = Metadata(op_name="jit(f)/sum")
    over_1 = {"called": ("sum",), "dimensions": (1,)}
    entry = (
        Instruction("x", "parameter", MATRIX, (), {"number": 0}),
        Instruction("k", "parameter", Shape(dtypes.bfloat16), (), {"number": 1}),
        Instruction("zero", "constant", scalar, (), {"literal": zero}),
        Instruction("r", "reduce", Shape(F32, (2,)), ("x", "zero"), over_1, origin),
        Instruction("n", "iota", pair, (), {"dimensions": (0,)}),
        Instruction("s", "slice", pair, ("n",), {"slice": ((0, 2, 1),)}),
        Instruction("one", "tuple", TupleShape((pair,)), ("s",)),
        Instruction("all", "tuple", TupleShape((Shape(F32, (2,)), TupleShape((pair,)))), ("r", "one")),
    )
    module = Module("small", "main", (adds, Computation("main", entry, "all")))
    verify(module)
    assert text.to_text(module) == GOLDEN


@each_of(
    ("value", "dtype", "printed"),
    [
        (1.0, dtypes.float32, "constant(1)"),
        (1 / 3, dtypes.float32, "constant(0.333333343)"),
        (float("inf"), dtypes.float32, "constant(inf)"),
        (float("-inf"), dtypes.bfloat16, "constant(-inf)"),
        (float("nan"), dtypes.float16, "constant(nan)"),
        (0.1, dtypes.float64, "constant(0.10000000000000001)"),
        (True, dtypes.boolean, "constant(true)"),
        (-(2**63), dtypes.int64, "constant(-9223372036854775808)"),
        (2**64 - 1, dtypes.uint64, "constant(18446744073709551615)"),
        (1 - 2j, dtypes.complex64, "constant((1, -2))"),
        ([[1, 2], [3, 4]], dtypes.int8, "constant({ { 1, 2 }, { 3, 4 } })"),
    ],
)
def test_constants_are_printed_exactly(value: object, dtype: DType, printed: str) -> None:
    assert printed in text.format_instruction(constant("c", value, dtype))


def test_negative_zero_is_printed_as_a_float() -> None:
    # XLA reads the text `-0` as an integer and so as +0.
    assert "-0." in text.format_instruction(constant("c", -0.0))


def test_nine_digits_give_every_float32_back() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 500, dtype=np.uint32).view(np.float32)
    values = bits[np.isfinite(bits)]
    printed = text.format_instruction(constant("c", values)).partition("t({")[2].partition("}")[0]
    # float() of nine digits is a float64 that rounds to the same float32.
    assert np.array([float(v) for v in printed.split(", ")], np.float32).tolist() == values.tolist()


def test_large_constants_may_be_shortened() -> None:
    c = constant("c", np.arange(text.LARGE + 1))
    assert "{...}" in text.format_instruction(c, print_large_constants=False)
    assert "32" in text.format_instruction(c)
    small = constant("c", np.arange(text.LARGE))
    assert "{...}" not in text.format_instruction(small, print_large_constants=False)


def test_layouts_are_printed_minor_to_major() -> None:
    assert text.format_shape(Shape(F32, (2, 3, 4))) == "f32[2,3,4]{2,1,0}"
    assert text.format_shape(Shape(F32, (2, 3), layout=(0, 1))) == "f32[2,3]{0,1}"
    assert text.format_shape(Shape(S32)) == "s32[]"
    assert text.format_shape(TupleShape(())) == "()"


def test_quotes_in_metadata_are_escaped() -> None:
    i = Instruction("y", "negate", MATRIX, ("x",), {}, Metadata(op_name='f["a\\b"]'))
    assert r'op_name="f[\"a\\b\"]"' in text.format_instruction(i)


def test_a_module_that_no_one_verified_is_printed() -> None:
    """A conditional whose selector is an empty tuple."""
    nothing = Instruction("t", "tuple", TupleShape(()))
    y = Instruction("y", "conditional", TupleShape(()), ("t", "t", "t"), {"called": ("a", "b")})
    computation = Computation("main", (nothing, y), "y")
    assert "branch_computations={%a, %b}" in text.to_text(Module("m", "main", (computation,)))
