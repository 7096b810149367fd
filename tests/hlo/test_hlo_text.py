"""HLO text as XLA prints it. That XLA reads it back is in test_hlo_peer_xla.py."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.graphs import constant, inst, module_of, parameter, reducer, unverified
from tests.support.parameters import each_of

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.hlo import text
from neuronsim.hlo.module import Instruction, Metadata, Shape, TupleShape

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
    vector, pair = Shape(F32, (2,)), Shape(S32, (2,))
    over_1 = {"called": ("sum",), "dimensions": (1,)}
    module = module_of(
        parameter("x", MATRIX),
        parameter("k", dtypes.bfloat16, 1),
        constant("zero", 0.5),
        Instruction("r", "reduce", vector, ("x", "zero"), over_1, Metadata(op_name="jit(f)/sum")),
        inst("n", "iota", pair, dimensions=(0,)),
        inst("s", "slice", pair, "n", slice=((0, 2, 1),)),
        inst("one", "tuple", TupleShape((pair,)), "s"),
        inst("all", "tuple", TupleShape((vector, TupleShape((pair,)))), "r", "one"),
        others=(reducer("sum"),),
        name="small",
    )
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
        (-0.0, dtypes.float32, "-0."),  # XLA reads the text `-0` as an integer and so as +0
    ],
)
def test_constants_are_printed_exactly(value: object, dtype: DType, printed: str) -> None:
    assert printed in text.format_instruction(constant("c", value, dtype))


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
    nothing = TupleShape(())
    y = inst("y", "conditional", nothing, "t", "t", "t", called=("a", "b"))
    printed = text.to_text(unverified(inst("t", "tuple", nothing), y))
    assert "branch_computations={%a, %b}" in printed
