"""The verifier: one bad module for each thing that it must notice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import computation, inst, parameter, reducer
from tests.support.parameters import each_of

from neuronsim import api, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel, NeuronSimError, UnsupportedOperator, UnsupportedType
from neuronsim.executor.compile import compile_module
from neuronsim.hlo import parse, proto
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape, simple_reducer
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, S32, PRED = dtypes.float32, dtypes.int32, dtypes.boolean
SCALAR, VECTOR, MATRIX = Shape(F32), Shape(F32, (3,)), Shape(F32, (2, 3))


def zero(name: str = "zero", dtype: DType = F32) -> Instruction:
    literal = ops.Bits(np.zeros((), dtype.storage), dtype)
    return inst(name, "constant", Shape(dtype), literal=literal)


def module_of(*instructions: Instruction, others: tuple[Computation, ...] = ()) -> Module:
    return Module("bad", "main", (*others, computation("main", *instructions)))


X, Y = parameter("x", MATRIX, 0), parameter("y", MATRIX, 1)


def bad(name: str, *instructions: Instruction, others: tuple[Computation, ...] = ()) -> Any:
    return pytest.param(module_of(*instructions, others=others), id=name)


# What each entry computation reads beside x = f32[2,3] and the instruction that contradicts.
SUMS = """
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
whole { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }"""
DOT = "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims"
WRONG = {
    "one operand of two": "z = f32[2,3] add(x)",
    "three operands of two": "z = f32[2,3] add(x, x, x)",
    "no operand of one": "z = f32[2,3] negate()",
    "concatenate of nothing": "z = f32[2,3] concatenate(), dimensions={0}",
    "operands of two shapes": "z = f32[2,3] add(x, v)",
    "operands of two types": "z = f32[2,3] add(x, n)",
    "result of another shape": "z = f32[3] add(x, y)",
    "result of another type": "z = s32[2,3] add(x, y)",
    "compare that gives floats": "z = f32[2,3] compare(x, x), direction=LT",
    "select by a float": "z = f32[2,3] select(x, x, x)",
    "select by another shape": "z = f32[2,3] select(p, x, x)",
    "broadcast along a missing axis": "z = f32[3] broadcast(x), dimensions={0,1}",
    "broadcast twice along one axis": "z = f32[2,3] broadcast(x), dimensions={1,1}",
    "broadcast of one axis to another length": "z = f32[3] broadcast(o), dimensions={0}",
    "broadcast by a negative axis": "z = f32[2,3] broadcast(x), dimensions={-2,-1}",
    "reshape to fewer elements": "z = f32[5] reshape(x)",
    "transpose by one axis": "z = f32[2,3] transpose(x), dimensions={0}",
    "transpose with an axis twice": "z = f32[2,3] transpose(x), dimensions={0,0}",
    "transpose that forgets the shape": "z = f32[2,3] transpose(x), dimensions={1,0}",
    "reverse of a missing axis": "z = f32[2,3] reverse(x), dimensions={2}",
    "slice with one range": "z = f32[2,3] slice(x), slice={[0:2]}",
    "slice past the end": "z = f32[2,4] slice(x), slice={[0:2], [0:4]}",
    "slice with stride 0": "z = f32[2,3] slice(x), slice={[0:2], [0:3:0]}",
    "slice from a negative start": "z = f32[2,1] slice(x), slice={[0:2], [-1:0]}",
    "concatenate of different widths": "z = f32[4,3] concatenate(x, w), dimensions={0}",
    "concatenate along two axes": "z = f32[2,3] concatenate(x), dimensions={0,1}",
    "concatenate along no axis": "z = f32[2,3] concatenate(x), dimensions={}",
    "iota along a missing axis": "z = f32[3] iota(), iota_dimension=1",
    "dot of axes of different lengths": f"z = f32[2,3] {DOT}={{0}}",
    "dot of unequal numbers of axes": "z = f32[2] dot(x, y), lhs_contracting_dims={1,0}, "
    "rhs_contracting_dims={1}",
    "dot with an axis as batch and contracted": f"z = f32[] {DOT}={{1}}, lhs_batch_dims={{1}}, "
    "rhs_batch_dims={1}",
    "dot with a wrong result": f"z = f32[3,3] {DOT}={{1}}",
    "reduce over a missing axis": "z = f32[3] reduce(x, s), dimensions={2}, to_apply=sum",
    "reduce from a value of another type": "z = f32[3] reduce(x, i), dimensions={0}, to_apply=sum",
    "reduce from an array": "z = f32[3] reduce(x, x), dimensions={0}, to_apply=sum",
    "reduce with a wrong result": "z = f32[3] reduce(x, s), dimensions={1}, to_apply=sum",
    "reduce of floats by integers": "z = f32[3] reduce(x, s), dimensions={0}, to_apply=whole",
    "tuple of too few": "z = (f32[2,3], f32[2,3]) tuple(x)",
    "tuple with another shape": "z = (f32[3]) tuple(x)",
    "tuple that says it is an array": "z = f32[2,3] tuple(x)",
    "element past the end": "z = f32[2,3] get-tuple-element(t), index=1",
    "element before the start": "z = f32[2,3] get-tuple-element(t), index=-1",
    "element of an array": "z = f32[2,3] get-tuple-element(x), index=0",
    "element of another shape": "z = f32[3] get-tuple-element(t), index=0",
    "arithmetic on a tuple": "z = f32[2,3] negate(t)",
    "arithmetic that gives a tuple": "z = (f32[2,3]) negate(x)",
    "call with too few arguments": "z = f32[] call(s), to_apply=sum",
    "call with an argument of another shape": "z = f32[] call(s, v), to_apply=sum",
    "call with another result": "z = f32[3] call(s, s), to_apply=sum",
}
GIVEN = ("x = f32[2,3]", "y = f32[2,3]", "v = f32[3]", "n = s32[2,3]", "p = pred[3]", "o = f32[1]")
GIVEN += ("w = f32[2,4]", "s = f32[]", "i = s32[]")
# What text cannot say.
BUILT = [
    bad("iota along no axis", inst("z", "iota", VECTOR, dimensions=())),
    bad("iota along two axes", inst("z", "iota", MATRIX, dimensions=(0, 1))),
    bad("parameter with an operand", X, inst("z", "parameter", MATRIX, "x", number=1)),
    bad("parameter numbers with a gap", X, parameter("z", MATRIX, 2)),
    bad("two parameters with one number", X, parameter("z", MATRIX, 0)),
    bad("a negative parameter number", X, parameter("z", MATRIX, -1)),
    bad(
        "constant of another shape than its literal",
        inst("z", "constant", VECTOR, literal=ops.Bits(np.zeros(2, np.float32), F32)),
    ),
]


@each_of("line", WRONG.values(), ids=WRONG)
def test_contradiction_is_an_invalid_model_that_names_the_place(line: str) -> None:
    given = [f"{p} parameter({n})" for n, p in enumerate(GIVEN)]
    body = "\n".join([*given, "t = (f32[2,3]) tuple(x)", f"ROOT {line}"])
    module = parse.from_text(f"HloModule bad{SUMS}\nENTRY main {{\n{body}\n}}")
    with pytest.raises(InvalidModel, match=r"main/z\b"):
        verify(module)


@pytest.mark.parametrize("module", BUILT)
def test_contradiction_of_a_module_of_python_names_the_place(module: Module) -> None:
    with pytest.raises(InvalidModel, match=r"\bmain\b"):
        verify(module)


def test_message_names_computation_instruction_and_reason() -> None:
    with pytest.raises(InvalidModel) as error:
        verify(module_of(X, Y, inst("z", "add", VECTOR, "x", "y")))
    for part in ("main/z", "add", "float32[2,3]", "float32[3]", "NCC_EVRF064"):
        assert part in str(error.value)


def test_contradictions_inside_a_called_computation_are_found_too() -> None:
    inner = computation("inner", parameter("a", SCALAR), inst("r", "negate", VECTOR, "a"))
    with pytest.raises(InvalidModel, match="inner/r"):
        verify(
            module_of(
                parameter("s", SCALAR),
                inst("z", "call", VECTOR, "s", called=("inner",)),
                others=(inner,),
            )
        )


def test_unknown_opcodes_are_all_listed_with_aws_code() -> None:
    module = module_of(
        X,
        inst("f1", "infeed", MATRIX, "x"),
        inst("f2", "infeed", MATRIX, "f1"),
        inst("s", "ragged-dot", MATRIX, "f2"),
    )
    with pytest.raises(UnsupportedOperator) as error:
        verify(module)
    for part in ("NCC_EVRF001", "infeed (f1 and 1 more)", "ragged-dot (s)", "list-operators"):
        assert part in str(error.value)


def test_unknown_direction_of_compare_is_refused() -> None:
    equal = inst("z", "compare", Shape(PRED, (2, 3)), "x", "x", comparison_direction="SAME")
    with pytest.raises(UnsupportedOperator):
        verify(module_of(X, equal))


def test_totalorder_is_a_row_of_its_own_E7() -> None:
    order = {"comparison_direction": "LT", "comparison_type": "TOTALORDER"}
    compare = inst("z", "compare", Shape(PRED, (2, 3)), "x", "x", **order)
    verify(module_of(X, compare))
    assert row(compare).name == "less_total_order"


@pytest.mark.parametrize("opcode", ["convert", "reshape", "broadcast", "iota", "bitcast-convert"])
def test_tuple_where_the_shape_says_which_array_it_is(opcode: str) -> None:
    operands = () if opcode == "iota" else ("x",)
    i = inst("z", opcode, TupleShape((MATRIX,)), *operands, dimensions=(0,))
    with pytest.raises(InvalidModel, match="one array"):
        verify(module_of(X, i))


def test_reduce_by_several_operations_is_elementwise_arithmetic_on_scalars_R2() -> None:
    a, b = parameter("a", SCALAR, 0), parameter("b", SCALAR, 1)
    two = computation(
        "two", a, b, inst("p", "multiply", SCALAR, "a", "b"), inst("r", "add", SCALAR, "p", "b")
    )
    reduce = inst("z", "reduce", VECTOR, "x", "zero", dimensions=(0,), called=("two",))
    verify(module_of(X, zero(), reduce, others=(two,)))
    table = inst("t", "iota", Shape(F32, (2,)), dimensions=(0,))
    first = inst("r", "slice", Shape(F32, (1,)), "t", slice=((0, 1, 1),))
    odd = computation("two", a, b, table, first, inst("s", "reshape", SCALAR, "r"))
    with pytest.raises(UnsupportedOperator, match="'two' of a reduce has iota"):
        verify(module_of(X, zero(), reduce, others=(odd,)))


@pytest.mark.parametrize("opcode", ["exponential", "sqrt", "tanh", "rsqrt"])
def test_float_functions_of_integers_are_refused(opcode: str) -> None:
    whole = Shape(S32, (3,))
    with pytest.raises(UnsupportedType):
        verify(module_of(parameter("n", whole), inst("z", opcode, whole, "n")))


def test_bit_operations_on_floats_are_refused() -> None:
    with pytest.raises(UnsupportedType):
        verify(module_of(X, inst("z", "xor", MATRIX, "x", "x")))


def test_layouts_do_not_matter_to_the_verifier() -> None:
    column_major = Shape(F32, (2, 3), layout=(0, 1))
    verify(module_of(X, inst("z", "negate", column_major, "x")))


# ---- simple reducers (R2) ------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
def test_R2_one_operation_on_both_parameters_is_simple(opcode: str) -> None:
    assert simple_reducer(reducer("r", opcode)) == opcode


def test_R2_converts_to_a_wider_float_and_back_are_ignored() -> None:
    low = Shape(dtypes.bfloat16)
    wide = computation(
        "r",
        parameter("a", low, 0),
        parameter("b", low, 1),
        inst("wa", "convert", SCALAR, "a"),
        inst("wb", "convert", SCALAR, "b"),
        inst("s", "add", SCALAR, "wa", "wb"),
        inst("r", "convert", low, "s"),
    )
    assert simple_reducer(wide) == "add"


def test_R2_converts_to_a_narrower_float_are_not_ignored() -> None:
    # float32 parameters summed in bfloat16 round at every step: that is not one sum in float32.
    low = Shape(dtypes.bfloat16)
    narrow = computation(
        "r",
        parameter("a", SCALAR, 0),
        parameter("b", SCALAR, 1),
        inst("na", "convert", low, "a"),
        inst("nb", "convert", low, "b"),
        inst("s", "add", low, "na", "nb"),
        inst("r", "convert", SCALAR, "s"),
    )
    assert simple_reducer(narrow) is None


@pytest.mark.parametrize("operands", [("a", "a"), ("b", "b")])
def test_R2_one_parameter_twice_is_not_simple(operands: tuple[str, str]) -> None:
    a, b = parameter("a", SCALAR, 0), parameter("b", SCALAR, 1)
    assert simple_reducer(computation("r", a, b, inst("s", "add", SCALAR, *operands))) is None


def test_R2_subtract_is_not_simple() -> None:
    assert simple_reducer(reducer("r", "subtract")) is None


# ---- what the reader refuses before the verifier sees it -------------------------------------------


def message_of(module: Module) -> proto.Message:
    return proto.read_message(memoryview(proto.to_bytes(module)), proto.MODULE)


def reread(message: Mapping[str, Any]) -> Module:
    return proto.from_bytes(proto.write_message(dict(message), proto.MODULE))


def two_step_message() -> tuple[proto.Message, proto.Message, list[proto.Message]]:
    message = message_of(
        module_of(X, inst("y", "negate", MATRIX, "x"), inst("z", "negate", MATRIX, "y"))
    )
    main = message["computations"][0]
    return message, main, main["instructions"]


def test_cycle_among_instructions() -> None:
    message, _, (_, y, z) = two_step_message()
    y["operand_ids"] = [z["id"]]
    with pytest.raises(InvalidModel, match="needs itself"):
        reread(message)


def test_instruction_that_reads_itself() -> None:
    message, _, (_, y, _) = two_step_message()
    y["operand_ids"] = [y["id"]]
    with pytest.raises(InvalidModel, match="needs itself"):
        reread(message)


def test_cycle_among_computations() -> None:
    module = module_of(
        parameter("s", SCALAR),
        inst("z", "call", SCALAR, "s", called=("one",)),
        others=(
            computation("two", parameter("s", SCALAR), inst("n", "negate", SCALAR, "s")),
            computation("one", parameter("s", SCALAR), inst("n", "call", SCALAR, "s", called=("two",))),
        ),
    )
    message = message_of(module)
    two, one = message["computations"][:2]
    two["instructions"][1].update(opcode="call", called_computation_ids=[one["id"]])
    with pytest.raises(InvalidModel, match="needs itself"):
        reread(message)


def test_two_instructions_with_one_name() -> None:
    message, _, (_, y, z) = two_step_message()
    z["name"] = y["name"]
    with pytest.raises(InvalidModel, match="'y'"):
        reread(message)


def test_two_instructions_with_one_id() -> None:
    message, _, (_, y, z) = two_step_message()
    z["id"] = y["id"]
    with pytest.raises(InvalidModel, match="same id"):
        reread(message)


def test_two_computations_with_one_name_or_id() -> None:
    module = module_of(parameter("s", SCALAR), others=(reducer("a"), reducer("b")))
    for key, value in (("name", "a"), ("id", 1)):
        message = message_of(module)
        message["computations"][1][key] = value
        with pytest.raises(InvalidModel, match=r"two computations|same id"):
            reread(message)


def test_operand_root_entry_and_callee_that_do_not_exist() -> None:
    message, main, (_, y, _) = two_step_message()
    y["operand_ids"] = [99]
    with pytest.raises(InvalidModel, match="operand 99"):
        reread(message)
    message, main, _ = two_step_message()
    main["root_id"] = 99
    with pytest.raises(InvalidModel, match="root"):
        reread(message)
    message, main, _ = two_step_message()
    del message["entry_computation_id"]
    message["entry_computation_name"] = "nowhere"
    with pytest.raises(InvalidModel, match="nowhere"):
        reread(message)
    message, main, (_, y, _) = two_step_message()
    y.update(opcode="call", called_computation_ids=[99])
    with pytest.raises(InvalidModel, match="99"):
        reread(message)


def test_call_of_nothing() -> None:
    message, _, (_, y, _) = two_step_message()
    y["opcode"] = "call"
    with pytest.raises(InvalidModel, match="calls no computation"):
        reread(message)


def constant_message() -> tuple[proto.Message, proto.Message]:
    data = ops.Bits(np.arange(6, dtype=np.float32).reshape(2, 3), F32)
    message = message_of(module_of(inst("c", "constant", MATRIX, literal=data)))
    return message, message["computations"][0]["instructions"][0]


@pytest.mark.parametrize("elements", [0, 1, 5, 7])
def test_literal_with_a_wrong_number_of_elements(elements: int) -> None:
    message, c = constant_message()
    c["literal"]["f32s"] = np.zeros(elements, np.float32).tobytes()
    with pytest.raises(InvalidModel, match="elements"):
        reread(message)


def test_literal_that_ends_inside_an_element() -> None:
    message, c = constant_message()
    c["literal"]["f32s"] = b"\0" * 22
    with pytest.raises(InvalidModel):
        reread(message)


def test_literal_of_another_type() -> None:
    message, c = constant_message()
    c["literal"]["shape"]["element_type"] = 4
    with pytest.raises(InvalidModel, match="literal"):
        reread(message)


def test_constant_without_a_literal() -> None:
    message, c = constant_message()
    del c["literal"]
    with pytest.raises(InvalidModel, match="literal"):
        reread(message)


def test_tuple_constant_is_refused_in_words() -> None:
    message, c = constant_message()
    c["shape"] = {"element_type": 13, "tuple_shapes": [c["shape"]]}
    with pytest.raises(NeuronSimError, match="tuple"):
        reread(message)


def shaped(**changes: Any) -> proto.Message:
    message = message_of(module_of(X))
    main = message["computations"][0]
    main["instructions"][0]["shape"].update(changes)
    return message


@pytest.mark.parametrize(
    "dims",
    [[2**62, 2**62], [2**63 - 1], [-1], [2**62] * 64, [1] * 65],
    ids=lambda d: f"{d[:2]}x{len(d)}",
)
def test_dimensions_without_measure_are_refused_or_do_not_fit(dims: list[int]) -> None:
    message = shaped(dimensions=dims, layout={}, is_dynamic_dimension=[])
    with pytest.raises(NeuronSimError):
        compile_module(reread(message), Profile(), find_target("trn1"))


def test_dynamic_shape_has_aws_code() -> None:
    with pytest.raises(InvalidModel, match="NCC_EMOD025"):
        reread(shaped(is_dynamic_dimension=[1, 0]))


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [
        *((21, "s4", "ESPP004"), (22, "u4", "ESPP004"), (26, "s2", "ESPP004"), (27, "u2", "ESPP004")),
        *((n, f"f8{kind}fnuz", "EVRF005") for n, kind in ((23, "e4m3b11"), (24, "e5m2"), (25, "e4m3"))),
        *((33, "f8e8m0fnu", "ESPP047"), (99, "99", "ESPP004")),
    ],
)
def test_element_types_that_are_not_read_are_named(number: int, name: str, code: str) -> None:
    with pytest.raises(UnsupportedType, match=rf"NCC_{code}.*{name}"):
        reread(shaped(element_type=number))


@pytest.mark.parametrize("layout", [[0], [0, 0], [0, 2], [0, 1, 2], [-1, 0]], ids=str)
def test_layout_that_orders_other_dimensions(layout: list[int]) -> None:
    with pytest.raises(InvalidModel, match="layout"):
        reread(shaped(layout={"minor_to_major": layout}))


@pytest.mark.parametrize(
    ("type_name", "code", "advice"),
    [
        ("f8e4m3fn", "NCC_EVRF051", "convert to bfloat16 or float32, which have all of its values"),
        ("c64", "NCC_EVRF004", "compute on real and imaginary parts"),
        ("c128", "NCC_EVRF004", "compute on real and imaginary parts"),
        ("f64", "NCC_ESPP004", "convert to float32"),
    ],
)
@pytest.mark.parametrize("target", ["trn1", "host"])
def test_a_convolution_of_a_type_that_trainium_lacks_names_awss_code(
    target: str, type_name: str, code: str, advice: str
) -> None:
    source = f"""HloModule m
ENTRY e {{ a = {type_name}[1,2,2] parameter(0)
  ROOT d = {type_name}[1,2,2] convolution(a, a), window={{size=1}}, dim_labels=b0f_0io->b0f }}
"""
    with pytest.raises(UnsupportedType, match=code) as caught:
        api.compile(source.encode(), target=target)
    assert str(caught.value).endswith(f"on every target (M1, M7): {advice}")


PRODUCT = """HloModule m
ENTRY e {{ a = {0}[2,2] parameter(0)
  ROOT d = {0}[2,2] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
"""


@pytest.mark.parametrize("type_name", ["f64", "c64", "c128"])
def test_a_product_of_a_hosts_type_runs_on_the_host_alone(type_name: str) -> None:
    source = PRODUCT.format(type_name).encode()
    with pytest.raises(UnsupportedType, match=f"trn1 has no {type_name[0]}.*target 'host'"):
        api.compile(source)
    kind = {"f64": "f8", "c64": "c8", "c128": "c16"}[type_name]
    x = np.asarray([[1 + 2**-40, 3], [5, -7]], kind)
    found = np.asarray(api.compile(source, target="host", auto_cast="all")(x))
    assert found.dtype == x.dtype
    assert found.tolist() == (x @ x).tolist()


@pytest.mark.parametrize("target", ["trn1", "host"])
@pytest.mark.parametrize("opcode", ["add", "maximum"])
def test_arithmetic_in_a_type_that_is_only_cast_says_what_to_do_on_every_target(
    target: str, opcode: str
) -> None:
    source = f"""HloModule m
ENTRY e {{ a = f8e4m3fn[2] parameter(0)  ROOT d = f8e4m3fn[2] {opcode}(a, a) }}
"""
    with pytest.raises(
        UnsupportedType, match=r"NCC_EVRF051.*: convert to bfloat16 or float32"
    ) as caught:
        api.compile(source.encode(), target=target)
    assert "TRN" not in str(caught.value)


def test_every_type_that_trainium_lacks_has_its_code() -> None:
    """Moved values too, which only the target refuses."""
    for short, code in (
        ("f8e4m3fn", "051"),
        ("c64", "EVRF004"),
        ("c128", "EVRF004"),
        ("f64", "ESPP004"),
    ):
        reverse = f"{short}[2] reverse(a), dimensions={{0}}"
        source = f"HloModule m\nENTRY e {{ a = {short}[2] parameter(0)  ROOT r = {reverse} }}"
        with pytest.raises(UnsupportedType, match=code) as caught:
            api.compile(source.encode())
        assert "target 'host'" in str(caught.value)


@pytest.mark.parametrize("opcode", ["call", "fusion", "map", "sort", "reduce"])
def test_module_of_python_whose_call_names_no_computation(opcode: str) -> None:
    x = Instruction("x", "parameter", Shape(F32, (2,)), (), {"number": 0})
    y = Instruction("y", opcode, Shape(F32, (2,)), ("x",), {"called": (), "dimensions": (0,)})
    with pytest.raises(InvalidModel, match="calls no computation"):
        verify(Module("m", "main", (Computation("main", (x, y), "y"),)))


@pytest.mark.parametrize(
    "alias", ["{}: (-1, {}, may-alias)", "{}: (1, {})", "{-1}: (0, {})", "{}: (0, {-2})"]
)
def test_alias_of_what_is_not_there(alias: str) -> None:
    source = (
        f"HloModule m, input_output_alias={{ {alias} }}\nENTRY e {{ ROOT x = f32[2] parameter(0) }}"
    )
    with pytest.raises(InvalidModel):
        api.compile(source.encode())
