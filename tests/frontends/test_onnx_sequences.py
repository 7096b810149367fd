"""ONNX's sequences, of lengths that are known while a model is traced, and optionals, of which it is
known whether they have an element: traced as eager, and right by onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import neuronsim
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedType

onnx = pytest.importorskip("onnx")
parser = pytest.importorskip("onnx.parser")

X = numpy.random.default_rng(0).standard_normal((2, 5, 3)).astype(numpy.float32)
# Nodes of x float[2, 5, 3], whose last gives y.
CASES = {
    "a place": """
        s = SplitToSequence <axis = 1> (x)
        at = Constant <value = int64 {-2}> ()
        y = SequenceAt (s, at)""",
    "without the axis": """
        s = SplitToSequence <axis = 1, keepdims = 0> (x)
        at = Constant <value = int64 {3}> ()
        y = SequenceAt (s, at)""",
    "parts of one size": """
        two = Constant <value = int64 {2}> ()
        s = SplitToSequence <axis = -2> (x, two)
        r = SequenceErase (s, zero)
        y = ConcatFromSequence <axis = 1> (r)""",
    "parts of their own sizes": """
        sizes = Constant <value_ints = [1, 4]> ()
        s = SplitToSequence <axis = 1> (x, sizes)
        r = SequenceErase (s)
        at = Constant <value = int64 {0}> ()
        y = SequenceAt (r, at)""",
    "joined": """
        twice = Add (x, x)
        s = SequenceConstruct (x, twice, x)
        y = ConcatFromSequence <axis = -1> (s)""",
    "stacked": """
        twice = Add (x, x)
        s = SequenceConstruct (x, twice)
        y = ConcatFromSequence <axis = -1, new_axis = 1> (s)""",
    "a length": """
        s = SequenceConstruct (x, x)
        n = SequenceLength (s)
        f = Cast <to = 1> (n)
        y = Mul (x, f)""",
    "inserted": """
        e = SequenceEmpty ()
        a = SequenceInsert (e, x)
        twice = Add (x, x)
        b = SequenceInsert (a, twice, zero)
        i = Identity (b)
        y = ConcatFromSequence <axis = 0> (i)""",
    "grown in a loop": """
        e = SequenceEmpty ()
        steps = Constant <value = int64 {20}> ()
        go = Constant <value = bool {1}> ()
        s, last = Loop (steps, go, e, x) <body = step
            (int64 n, bool c, seq(float[2, 5, 3]) t, float[2, 5, 3] v)
            => (bool d, seq(float[2, 5, 3]) u, float[2, 5, 3] w) {
            d = Identity (c)
            w = Neg (v)
            u = SequenceInsert (t, w)
        }>
        y = ConcatFromSequence <axis = 0> (s)""",
    "mapped": """
        s = SplitToSequence <axis = 1> (x)
        m = SequenceMap (s, x) <body = each (float[2, 1, 3] a, float[2, 5, 3] b) => (float[2, 5, 3] c) {
            c = Mul (a, b)
        }>
        y = ConcatFromSequence <axis = 0> (m)""",
    "an optional that has an element": """
        o = Optional (x)
        has = OptionalHasElement (o)
        e = OptionalGetElement (o)
        y = If (has) <then_branch = g () => (float[2, 5, 3] a) { a = Neg (e) },
                      else_branch = h () => (float[2, 5, 3] b) { b = Identity (x) }>""",
    "an optional of a sequence": """
        s = SequenceConstruct (x, x)
        o = Optional (s)
        e = OptionalGetElement (o)
        y = ConcatFromSequence <axis = 0> (e)""",
}


def model_of(nodes: str, inputs: str = "float[2, 5, 3] x", output: str = "float[N, M, K] y") -> Any:
    zero = "zero = Constant <value = int64 {0}> ()"
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 17]> graph ({inputs}) => ({output}) {{ {zero} {nodes} }}'
    )


@pytest.mark.parametrize("name", CASES)
def test_sequences_have_the_eager_bits_and_onnxruntimes_values(name: str) -> None:
    model = model_of(CASES[name])
    found = numpy.asarray(neuronsim.compile(model, auto_cast="none")(X))
    known = numpy.asarray(neuronsim.compile(model, input_values={"x": X}, auto_cast="none")())
    assert known.tobytes() == found.tobytes()
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    numpy.testing.assert_array_equal(found, session.run(None, {"x": X})[0])


def test_a_sequence_as_an_output_is_refused() -> None:
    model = model_of("y = SequenceConstruct (x, x)", output="seq(float[2, 5, 3]) y")
    with pytest.raises(UnsupportedType, match=r"output 'y' is no tensor.*SequenceAt"):
        neuronsim.compile(model)


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ("s = SequenceConstruct (x) one = Constant <value = int64 {1}> () y = SequenceAt (s, one)",
         "place 1 of a sequence of 1"),
        ("y = SequenceAt (x, zero)", "a tensor where a sequence belongs"),
        ("s = SequenceConstruct (x, zero) y = SequenceAt (s, zero)", "a sequence of float32.*int64"),
        ("s = SequenceEmpty () y = ConcatFromSequence <axis = 0> (s)", "joins nothing"),
        ("four = Constant <value_ints = [4]> () s = SplitToSequence <axis = 1> (x, four) "
         "y = SequenceAt (s, zero)", r"splits axis 1 of .* into \[4\]"),
        ("s = SequenceConstruct (x) y = Add (s, x)", r"\(Add\)"),
    ],
)  # fmt: skip
def test_sequences_that_do_not_fit_are_named(nodes: str, error: str) -> None:
    with pytest.raises(NeuronSimError, match=error):
        neuronsim.compile(model_of(nodes))


def test_a_place_that_an_input_decides_is_asked_for() -> None:
    nodes = "s = SplitToSequence <axis = 1> (x) y = SequenceAt (s, p)"
    model = model_of(nodes, "float[2, 5, 3] x, int64 p")
    with pytest.raises(InvalidArgument, match=r"SequenceAt.*input 'p'.*input_values"):
        neuronsim.compile(model)


def test_steps_that_an_input_decides_are_asked_for() -> None:
    nodes = CASES["grown in a loop"].replace("steps = Constant <value = int64 {20}> ()", "")
    model = model_of(nodes, "float[2, 5, 3] x, int64 steps")
    with pytest.raises(InvalidArgument, match=r"Loop.*input 'steps'.*input_values"):
        neuronsim.compile(model)


def test_a_branch_that_an_input_decides_is_asked_for() -> None:
    branches = " ".join(
        f"{name}_branch = {name} () => (seq(float[2, 5, 3]) {name}s) "
        f"{{ {name}s = SequenceConstruct ({given}) }},"
        for name, given in (("then", "x"), ("else", "x, x"))
    )
    model = model_of(
        f"s = If (p) <{branches.rstrip(',')}> y = ConcatFromSequence <axis = 0> (s)",
        "float[2, 5, 3] x, bool p",
    )
    with pytest.raises(InvalidArgument, match=r"a branch gives a sequence.*input 'p'.*input_values"):
        neuronsim.compile(model)
    found = neuronsim.compile(model, input_values={"p": False})(X)
    assert numpy.asarray(found).shape == (4, 5, 3)


# ---- optionals --------------------------------------------------------------------------------------

ABSENT = """
    p = Identity (o)
    has = OptionalHasElement (p)
    y = If (has) <
        then_branch = g () => (float[2, 5, 3] a) { e = OptionalGetElement (p) a = Add (x, e) },
        else_branch = h () => (float[2, 5, 3] b) { b = Neg (x) }>"""
OPTIONAL_INPUT = "float[2, 5, 3] x, optional(float[N, 5, 3]) o"


def with_absent_optional() -> Any:
    """A model whose node Optional says a type, and gives nothing."""
    model = model_of(ABSENT.replace("(o)", "(nothing)"))
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2, 5, 3])
    model.graph.node.insert(0, onnx.helper.make_node("Optional", [], ["nothing"], type=kind))
    return model


def test_an_optional_without_an_element_chooses_the_other_branch() -> None:
    found = neuronsim.compile(with_absent_optional(), auto_cast="none")(X)
    numpy.testing.assert_array_equal(numpy.asarray(found), -X)


def test_an_optional_input_is_there_unless_its_value_is_none() -> None:
    model = model_of(ABSENT, OPTIONAL_INPUT)
    program = neuronsim.compile(model, auto_cast="none", input_shapes={"o": (2, 5, 3)})
    numpy.testing.assert_array_equal(numpy.asarray(program(x=X, o=X)), X + X)
    without = neuronsim.compile(model, auto_cast="none", input_values={"o": None})
    assert list(without.inputs) == ["x"]
    numpy.testing.assert_array_equal(numpy.asarray(without(X)), -X)


def test_none_is_no_value_of_a_tensor() -> None:
    with pytest.raises(InvalidArgument, match="'x' is None, and it is no optional one"):
        neuronsim.compile(model_of("y = Neg (x)"), input_values={"x": None})


def test_the_element_of_an_optional_without_one_is_refused() -> None:
    model = model_of("y = OptionalGetElement (o)", OPTIONAL_INPUT)
    with pytest.raises(InvalidModel, match=r"\(OptionalGetElement\): reads an optional that has no"):
        neuronsim.compile(model, input_values={"o": None})


def test_an_absent_optional_as_an_output_is_refused() -> None:
    model = model_of("y = Identity (o)", OPTIONAL_INPUT, "optional(float[N, 5, 3]) y")
    with pytest.raises(UnsupportedType, match="output 'y' is an optional one that has no element"):
        neuronsim.compile(model, input_values={"o": None})
    present = neuronsim.compile(model, auto_cast="none", input_shapes={"o": (1, 5, 3)})
    one = X[:1]
    numpy.testing.assert_array_equal(numpy.asarray(present(x=X, o=one)), one)


def test_an_optional_that_a_traced_condition_decides_is_asked_for() -> None:
    branches = "then_branch = g () => (optional(float[2, 5, 3]) a) { a = Optional (x) }"
    model = with_absent_optional()
    model.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    text = (
        f"o = If (c) <{branches}, else_branch = h () => (optional(float[2, 5, 3]) b) "
        "{ b = Identity (nothing) }>"
    )
    made = model_of(text + ABSENT, "float[2, 5, 3] x, bool c")
    made.graph.node.insert(0, model.graph.node[0])
    with pytest.raises(InvalidArgument, match=r"a sequence or an optional.*input 'c'.*input_values"):
        neuronsim.compile(made)
    for condition, wanted in ((True, X + X), (False, -X)):
        found = neuronsim.compile(made, auto_cast="none", input_values={"c": condition})(X)
        numpy.testing.assert_array_equal(numpy.asarray(found), wanted)


def test_a_loop_carries_an_absent_optional() -> None:
    """Its steps, whose number is known, are spelled out."""
    made = model_of(
        """
        steps = Constant <value = int64 {20}> ()
        go = Constant <value = bool {1}> ()
        last, y = Loop (steps, go, o, x) <body = step
            (int64 n, bool c, optional(float[2, 5, 3]) t, float[2, 5, 3] v)
            => (bool d, optional(float[2, 5, 3]) u, float[2, 5, 3] w) {
            d = Identity (c)
            has = OptionalHasElement (t)
            w = If (has) <then_branch = g () => (float[2, 5, 3] a) { a = Neg (v) },
                          else_branch = h () => (float[2, 5, 3] b) { b = Identity (v) }>
            u = Optional (v)
        }>""",
        OPTIONAL_INPUT,
    )
    found = neuronsim.compile(made, auto_cast="none", input_values={"o": None})(X)
    numpy.testing.assert_array_equal(numpy.asarray(found), -X)  # 19 steps negate
