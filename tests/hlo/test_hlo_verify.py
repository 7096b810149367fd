"""The verifier: one bad module for each thing that it must notice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.hlo.messages import message_of, reread
from tests.support.graphs import computation, constant, inst, parameter, reducer, unverified
from tests.support.parameters import each_of
from tests.support.words import REDUCERS

from neuronsim import api, dtypes, ops
from neuronsim.errors import InvalidModel, NeuronSimError, UnsupportedOperator, UnsupportedType
from neuronsim.executor.compile import compile_module
from neuronsim.hlo import parse, wire
from neuronsim.hlo.module import Shape, simple_reducer
from neuronsim.hlo.opcodes import row
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import find_target

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, S32, PRED = dtypes.float32, dtypes.int32, dtypes.boolean
SCALAR, VECTOR, MATRIX = Shape(F32), Shape(F32, (3,)), Shape(F32, (2, 3))
X, Y = parameter("x", MATRIX, 0), parameter("y", MATRIX, 1)

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
# What is refused in other words, or as another error.
REFUSED: dict[str, tuple[str, type[NeuronSimError], str]] = {
    "bit operation on floats": ("z = f32[2,3] xor(x, x)", UnsupportedType, "main/z"),
    **{
        f"{opcode} of integers": (f"z = s32[2,3] {opcode}(n)", UnsupportedType, "main/z")
        for opcode in ("exponential", "sqrt", "tanh", "rsqrt")
    },
    # A tuple where the shape says which array it is.
    **{
        line.partition("(")[0]: (f"z = (f32[2,3]) {line}", InvalidModel, "one array")
        for line in ("convert(x)", "reshape(x)", "broadcast(x), dimensions={0}", "bitcast-convert(x)")
    },
    "iota": ("z = (f32[2,3]) iota(), iota_dimension=0", InvalidModel, "one array"),
}
GIVEN = ("x = f32[2,3]", "y = f32[2,3]", "v = f32[3]", "n = s32[2,3]", "p = pred[3]", "o = f32[1]")
GIVEN += ("w = f32[2,4]", "s = f32[]", "i = s32[]")
# What text cannot say.
BUILT = {
    "iota along no axis": [inst("z", "iota", VECTOR, dimensions=())],
    "iota along two axes": [inst("z", "iota", MATRIX, dimensions=(0, 1))],
    "parameter with an operand": [X, inst("z", "parameter", MATRIX, "x", number=1)],
    "parameter numbers with a gap": [X, parameter("z", MATRIX, 2)],
    "two parameters with one number": [X, parameter("z", MATRIX, 0)],
    "a negative parameter number": [X, parameter("z", MATRIX, -1)],
    "constant of another shape than its literal": [
        inst("z", "constant", VECTOR, literal=ops.Bits(np.zeros(2, np.float32), F32))
    ],
}


@each_of(
    ("line", "error", "match"),
    [*((line, InvalidModel, r"main/z\b") for line in WRONG.values()), *REFUSED.values()],
    ids=[*WRONG, *REFUSED],
)
def test_contradiction_is_an_invalid_model_that_names_the_place(
    line: str, error: type[NeuronSimError], match: str
) -> None:
    given = [f"{p} parameter({n})" for n, p in enumerate(GIVEN)]
    body = "\n".join([*given, "t = (f32[2,3]) tuple(x)", f"ROOT {line}"])
    module = parse.from_text(f"HloModule bad{SUMS}\nENTRY main {{\n{body}\n}}")
    with pytest.raises(error, match=match):
        verify(module)


@each_of("body", BUILT.values(), ids=BUILT)
def test_contradiction_of_a_module_of_python_names_the_place(body: list[Any]) -> None:
    with pytest.raises(InvalidModel, match=r"\bmain\b"):
        verify(unverified(*body))


def test_message_names_computation_instruction_and_reason() -> None:
    with pytest.raises(InvalidModel) as error:
        verify(unverified(X, Y, inst("z", "add", VECTOR, "x", "y")))
    for part in ("main/z", "add", "float32[2,3]", "float32[3]", "NCC_EVRF064"):
        assert part in str(error.value)


def test_contradictions_inside_a_called_computation_are_found_too() -> None:
    inner = computation("inner", parameter("a", SCALAR), inst("r", "negate", VECTOR, "a"))
    call = inst("z", "call", VECTOR, "s", called=("inner",))
    with pytest.raises(InvalidModel, match="inner/r"):
        verify(unverified(parameter("s", SCALAR), call, others=(inner,)))


def test_unknown_opcodes_are_all_listed_with_aws_code() -> None:
    module = unverified(
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
        verify(unverified(X, equal))


def test_totalorder_is_a_row_of_its_own_E7() -> None:
    order = {"comparison_direction": "LT", "comparison_type": "TOTALORDER"}
    compare = inst("z", "compare", Shape(PRED, (2, 3)), "x", "x", **order)
    verify(unverified(X, compare))
    assert row(compare).name == "less_total_order"


def test_reduce_by_several_operations_is_elementwise_arithmetic_on_scalars_R2() -> None:
    a, b = parameter("a", SCALAR, 0), parameter("b", SCALAR, 1)
    two = computation(
        "two", a, b, inst("p", "multiply", SCALAR, "a", "b"), inst("r", "add", SCALAR, "p", "b")
    )
    reduce = inst("z", "reduce", VECTOR, "x", "zero", dimensions=(0,), called=("two",))
    verify(unverified(X, constant("zero", 0.0), reduce, others=(two,)))
    table = inst("t", "iota", Shape(F32, (2,)), dimensions=(0,))
    first = inst("r", "slice", Shape(F32, (1,)), "t", slice=((0, 1, 1),))
    odd = computation("two", a, b, table, first, inst("s", "reshape", SCALAR, "r"))
    with pytest.raises(UnsupportedOperator, match="'two' of a reduce has iota"):
        verify(unverified(X, constant("zero", 0.0), reduce, others=(odd,)))


def test_layouts_do_not_matter_to_the_verifier() -> None:
    column_major = Shape(F32, (2, 3), layout=(0, 1))
    verify(unverified(X, inst("z", "negate", column_major, "x")))


# ---- simple reducers (R2) ------------------------------------------------------------------------


# The type of both parameters, what computes of them, and the one operation that it is.
WIDE = ["wa = f32[] convert(a)", "wb = f32[] convert(b)", "s = f32[] add(wa, wb)", "bf16[] convert(s)"]
# float32 parameters summed in bfloat16 round at every step: that is not one sum in float32.
NARROW = ["na = bf16[] convert(a)", "nb = bf16[] convert(b)", "s = bf16[] add(na, nb)"]


@each_of(
    ("kind", "lines", "simple"),
    [
        *(("f32", [f"f32[] {opcode}(a, b)"], opcode) for opcode in REDUCERS),
        *(("f32", [f"f32[] {line}"], None) for line in ("subtract(a, b)", "add(a, a)", "add(b, b)")),
        *(("bf16", WIDE, "add"), ("f32", [*NARROW, "f32[] convert(s)"], None)),
    ],
    ids=str,
)
def test_R2_one_operation_on_both_parameters_is_simple(
    kind: str, lines: list[str], simple: str | None
) -> None:
    """Converts to a wider float and back are ignored."""
    body = "\n".join([f"a = {kind}[] parameter(0)", f"b = {kind}[] parameter(1)", *lines[:-1]])
    text = f"HloModule m\nr {{\n{body}\nROOT r = {lines[-1]}\n}}\nENTRY e {{ x = f32[] parameter(0) }}"
    assert simple_reducer(parse.from_text(text).by_name["r"]) == simple


# ---- what the reader refuses before the verifier sees it -------------------------------------------


def damaged(change: Callable[[Any], object]) -> wire.Message:
    """A module of x, a constant c, y = negate(x) and z = negate(y), changed in its file."""
    c = constant("c", np.arange(6).reshape(2, 3))
    last = inst("y", "negate", MATRIX, "x"), inst("z", "negate", MATRIX, "y")
    whole = message_of(unverified(X, c, *last, others=(reducer("a"), reducer("b"))))
    *others, main = whole["computations"]
    parts = dict(zip("xcyz", main["instructions"], strict=True))
    change(SimpleNamespace(whole=whole, main=main, others=others, **parts))
    return whole


# What is changed of the module above, the error and what it says.
DAMAGED: dict[str, tuple[Callable[[Any], object], type[NeuronSimError], str]] = {
    name: (change, InvalidModel, match)
    for name, change, match in (
        ("a cycle", lambda m: m.y.update(operand_ids=[m.z["id"]]), "needs itself"),
        ("an instruction of itself", lambda m: m.y.update(operand_ids=[m.y["id"]]), "needs itself"),
        ("two instructions of one name", lambda m: m.z.update(name=m.y["name"]), "'y'"),
        ("two instructions of one id", lambda m: m.z.update(id=m.y["id"]), "same id"),
        ("two computations of one name", lambda m: m.others[1].update(name="a"), "two computations"),
        ("two computations of one id", lambda m: m.others[1].update(id=1), "same id"),
        ("no operand", lambda m: m.y.update(operand_ids=[99]), "operand 99"),
        ("no root", lambda m: m.main.update(root_id=99), "root"),
        ("no callee", lambda m: m.y.update(opcode="call", called_computation_ids=[99]), "99"),
        ("a call of nothing", lambda m: m.y.update(opcode="call"), "calls no computation"),
        ("a literal cut short", lambda m: m.c["literal"].update(f32s=b"\0" * 22), "literal"),
        ("of another type", lambda m: m.c["literal"]["shape"].update(element_type=4), "literal"),
        ("no literal", lambda m: m.c.pop("literal"), "literal"),
        ("a dynamic shape", lambda m: m.x["shape"].update(is_dynamic_dimension=[1, 0]), "NCC_EMOD025"),
        *(
            (f"{n} elements", lambda m, n=n: m.c["literal"].update(f32s=bytes(4 * n)), "elements")
            for n in (0, 1, 5, 7)
        ),
        *(
            (f"layout {o}", lambda m, o=o: m.x["shape"].update(layout={"minor_to_major": o}), "layout")
            for o in ([0], [0, 0], [0, 2], [0, 1, 2], [-1, 0])
        ),
    )
}
DAMAGED["a constant of a tuple"] = (
    lambda m: m.c.update(shape={"element_type": 13, "tuple_shapes": [m.c["shape"]]}),
    *(NeuronSimError, "tuple"),
)
DAMAGED["no entry"] = (
    lambda m: m.whole.update(entry_computation_id=0, entry_computation_name="nowhere"),
    *(InvalidModel, "nowhere"),
)
# Element types that are not read are named, each with AWS's code.
DAMAGED |= {
    name: (
        lambda m, number=number: m.x["shape"].update(element_type=number),
        *(UnsupportedType, rf"NCC_{code}.*{name}"),
    )
    for number, name, code in (
        *((21, "s4", "ESPP004"), (22, "u4", "ESPP004"), (26, "s2", "ESPP004"), (27, "u2", "ESPP004")),
        *((n, f"f8{kind}fnuz", "EVRF005") for n, kind in ((23, "e4m3b11"), (24, "e5m2"), (25, "e4m3"))),
        *((33, "f8e8m0fnu", "ESPP047"), (99, "99", "ESPP004")),
    )
}


@each_of(("change", "error", "match"), DAMAGED.values(), ids=DAMAGED)
def test_file_that_contradicts_itself_is_refused_by_the_reader(
    change: Callable[[Any], object], error: type[NeuronSimError], match: str
) -> None:
    message = damaged(change)
    with pytest.raises(error, match=match):
        reread(message)


def test_control_the_file_without_damage_is_read() -> None:
    verify(reread(damaged(lambda m: None)))


def test_cycle_among_computations() -> None:
    module = unverified(
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


@pytest.mark.parametrize(
    "dims",
    [[2**62, 2**62], [2**63 - 1], [-1], [2**62] * 64, [1] * 65],
    ids=lambda d: f"{d[:2]}x{len(d)}",
)
def test_dimensions_without_measure_are_refused_or_do_not_fit(dims: list[int]) -> None:
    shape = {"dimensions": dims, "layout": {}, "is_dynamic_dimension": []}
    message = damaged(lambda m: m.x["shape"].update(shape))
    with pytest.raises(NeuronSimError):
        compile_module(reread(message), Profile(), find_target("trn1"))


# What is done in a type, whose every use is refused or which only moves, and the end of the message.
CAST_ONLY = "convert to bfloat16 or float32"
PARTS = "compute on real and imaginary parts"
CONVOLUTION = "{0}[1,2,2] convolution(a, a), window={{size=1}}, dim_labels=b0f_0io->b0f"
LACKING = [
    (CONVOLUTION.format(kind), code, f"on every target (M1, M7): {advice}")
    for kind, code, advice in (
        ("f8e4m3fn", "NCC_EVRF051", f"{CAST_ONLY}, which have all of its values"),
        *(("c64", "NCC_EVRF004", PARTS), ("c128", "NCC_EVRF004", PARTS)),
        ("f64", "NCC_ESPP004", "convert to float32"),
    )
]
LACKING += [(f"f8e4m3fn[2] {o}(a, a)", f"NCC_EVRF051.*: {CAST_ONLY}", "") for o in ("add", "maximum")]


@each_of("target", ["trn1", "host"])
@each_of(("line", "match", "end"), LACKING)
def test_what_computes_in_a_type_that_trainium_lacks_names_awss_code_on_every_target(
    target: str, line: str, match: str, end: str
) -> None:
    source = f"HloModule m\nENTRY e {{ a = {line.split()[0]} parameter(0)  ROOT d = {line} }}"
    with pytest.raises(UnsupportedType, match=match) as caught:
        api.compile(source.encode(), target=target)
    assert str(caught.value).endswith(end)
    assert "TRN" not in str(caught.value)


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
    x = parameter("x", (2,))
    more = {} if opcode in ("call", "fusion") else {"dimensions": (0,)}
    y = inst("y", opcode, (2,), "x", called=(), **more)
    with pytest.raises(InvalidModel, match="calls no computation"):
        verify(unverified(x, y))


@pytest.mark.parametrize(
    ("opcode", "attribute", "said"),
    [
        ("get-tuple-element", "index", "(did you mean 'tuple_index'?)"),
        ("transpose", "permutation", "it has dimensions, frontend_attributes"),
        ("parameter", "parameter_number", "it has frontend_attributes, number"),
        ("add", "dimensions", "it has frontend_attributes"),
    ],
)
def test_a_misnamed_attribute_is_refused_where_it_is_made(
    opcode: str, attribute: str, said: str
) -> None:
    with pytest.raises(InvalidModel, match=f"y: {opcode} has no attribute '{attribute}'") as refused:
        inst("y", opcode, (2,), "x", **{attribute: 0})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "alias", ["{}: (-1, {}, may-alias)", "{}: (1, {})", "{-1}: (0, {})", "{}: (0, {-2})"]
)
def test_alias_of_what_is_not_there(alias: str) -> None:
    source = (
        f"HloModule m, input_output_alias={{ {alias} }}\nENTRY e {{ ROOT x = f32[2] parameter(0) }}"
    )
    with pytest.raises(InvalidModel):
        api.compile(source.encode())
