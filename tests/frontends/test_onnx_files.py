"""Wrong and hostile ONNX files: an error of neuronsim's that says what and where, at once."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of

import neuronsim
from neuronsim import api
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    NeuronSimError,
    UnsupportedOperator,
    UnsupportedType,
)
from neuronsim.frontends.onnx import operators
from neuronsim.frontends.onnx.model import to_module
from neuronsim.hlo import proto
from neuronsim.tuning.dataset import bind_inputs

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

pytestmark = pytest.mark.isa_independent

SECONDS = 2.0
FREE_BYTES = 1 << 30  # what a file may make the process map


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """The block takes neither long nor much memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + FREE_BYTES, hard))
    start = time.process_time()  # what others do on the machine does not count
    try:
        yield
    finally:
        taken = time.process_time() - start
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert taken < SECONDS


@pytest.fixture
def limits() -> Iterator[None]:
    with bounded():
        yield


# ---- models -----------------------------------------------------------------------------------------


def of(name: str, *dims: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def constant(name: str, *values: int) -> Any:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(
        op, inputs.split(), outputs.split(), name=f"the_{op}_of_{outputs}", **attributes
    )


def model(
    nodes: list[Any],
    inputs: list[Any] | None = None,
    tensors: list[Any] | None = None,
    output: str = "y",
    *,
    functions: list[Any] | None = None,
    version: int = 20,
    domains: tuple[str, ...] = ("own",),
) -> Any:
    graph = helper.make_graph(
        nodes,
        "graph",
        [of("x", 2, 3)] if inputs is None else inputs,
        [helper.make_empty_tensor_value_info(output)],
        tensors or [],
    )
    opsets = [helper.make_opsetid("", version), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [])


def function(name: str, nodes: list[Any]) -> Any:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["x"], ["y"], nodes, opsets)


def called(name: str, inputs: str, outputs: str) -> Any:
    return node(name, inputs, outputs, domain="own")


SMALL = model(
    [
        node("MatMul", "x w", "a"),
        node("Add", "a b", "c"),
        node("Softmax", "c", "d", axis=-1),
        node("Reshape", "d shape", "e"),
        node("Slice", "e begin end", "y"),
    ],
    [of("x", "batch", 3)],
    [
        helper.make_tensor(
            "w", TensorProto.FLOAT, [3, 4], np.arange(12, dtype=np.float32).tobytes(), True
        ),
        helper.make_tensor("b", TensorProto.FLOAT, [4], [0.5, 1, 2, 3]),
        constant("shape", -1, 2),
        constant("begin", 0),
        constant("end", 2),
    ],
).SerializeToString()


def test_the_small_model_runs() -> None:
    found = neuronsim.compile(SMALL, auto_cast="none")(x=np.ones((1, 3), np.float32))
    assert found.shape == (2, 2)


# ---- bytes ------------------------------------------------------------------------------------------


def outcome(data: bytes) -> Exception | None:
    """Raises what is no error of ours, or took too long or too much."""
    with bounded():
        try:
            neuronsim.compile(to_module(data), auto_cast="none")
        except NeuronSimError as error:
            return error
    return None


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at : at + rng.randrange(1, 8)]
            case 3:
                changed[at:at] = rng.randbytes(rng.randrange(1, 8))
            case _:
                other = rng.randrange(len(changed))
                size = rng.randrange(1, 32)
                changed[at : at + size] = changed[other : other + size]
        if not changed:
            break
    return bytes(changed)


def try_mutants(count: int, seed: int) -> None:
    rng = random.Random(seed)
    ends = [outcome(mutated(SMALL, rng)) is None for _ in range(count)]
    assert any(ends)  # a control: some stay models,
    assert not all(ends)  # and some do not


NUMBERS = (-(2**63), -7, -1, 0, 1, 2, 3, 16, 1000, 2**31, 2**62)
ATTRIBUTES = ("axis", "axes", "kernel_shape", "pads", "strides", "to", "perm", "mode", "group", "k")


def changed_model(rng: random.Random) -> bytes:
    """The small model with other operators, inputs, attributes or numbers."""
    made = onnx.ModelProto.FromString(SMALL)
    graph = made.graph
    known = [*(t.name for t in graph.initializer), *(o for n in graph.node for o in n.output), "x", ""]
    for _ in range(rng.choice((1, 2, 3))):
        n = rng.choice(graph.node)
        match rng.randrange(5):
            case 0:
                n.op_type = rng.choice(operators.NAMES)
            case 1 if n.input:
                n.input[rng.randrange(len(n.input))] = rng.choice(known)
            case 2:
                n.input.append(rng.choice(known))
            case 3:
                value = rng.choice(
                    (rng.choice(NUMBERS), rng.choices(NUMBERS, k=2), 0.5, "SAME_UPPER", [0.5])
                )
                n.attribute.append(helper.make_attribute(rng.choice(ATTRIBUTES), value))
            case _:
                t = rng.choice(graph.initializer)
                t.dims[0] = rng.choice(NUMBERS)
                if t.int64_data:
                    t.int64_data[0] = rng.choice(NUMBERS)
                    t.dims[0] = len(t.int64_data)
    made.opset_import[0].version = rng.choice((7, 11, 13, 18, 24))
    return made.SerializeToString()


def try_changed(count: int, seed: int) -> None:
    rng = random.Random(seed)
    ends = [outcome(changed_model(rng)) is None for _ in range(count)]
    assert any(ends)
    assert not all(ends)


def test_changed_models() -> None:
    try_changed(400, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 17))
def test_many_changed_models(seed: int) -> None:
    try_changed(2_000, seed)


def test_truncated_files() -> None:
    ends = [outcome(SMALL[:n]) for n in range(0, len(SMALL), 7)]
    assert all(isinstance(e, NeuronSimError) for e in ends)


@pytest.mark.parametrize("size", [0, 1, 100, 10_000, 1_000_000])
def test_random_bytes(size: int) -> None:
    assert isinstance(outcome(b"\x08" + random.Random(size).randbytes(size)), InvalidModel)


def test_mutated_files() -> None:
    try_mutants(400, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1, 17))
def test_many_mutated_files(seed: int) -> None:
    try_mutants(2_000, seed)


def test_a_file_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for name in ("absent.onnx", "pipe.onnx"):
        with pytest.raises(NeuronSimError, match=re.escape(name)), bounded():
            neuronsim.compile(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b"hello world", "is damaged or cut short"), (b"\x08\x0a", "has no graph")],
)
def test_a_damaged_file_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(InvalidModel, match=rf"the ONNX model '.*net\.onnx' {said}"):
        neuronsim.compile(tmp_path / "net.onnx")


# ---- graphs -----------------------------------------------------------------------------------------

RELU = node("Relu", "x", "y")


def doubling(depth: int) -> Any:
    """Functions each of which calls the next one twice."""
    made = [function(f"F{depth}", [RELU])]
    for n in range(depth):
        made.append(function(f"F{n}", [called(f"F{n + 1}", "x", "a"), called(f"F{n + 1}", "a", "y")]))
    return model([called("F0", "x", "y")], functions=made)


def in_branches(depth: int) -> Any:
    """Branches in one another, each with a sibling that is short."""
    made = model([], [of("x", 2, 3), of("c", kind=TensorProto.BOOL)])
    graph = made.graph
    for n in range(depth):  # in place: protobuf does not copy what is nested as deep
        branch = graph.node.add(op_type="If", name=f"the_If_{n}", input=["c"], output=["y"])
        for name in ("else_branch", "then_branch"):
            a = branch.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
            a.g.name = "branch"
            a.g.output.add(name="y")
            if name == "else_branch":
                a.g.node.add(op_type="Identity", input=["x"], output=["y"])
            graph = a.g
    graph.node.add(op_type="Identity", input=["x"], output=["y"])
    return made


def endless_loop() -> Any:
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("Add", "s one", "t")],
        "body",
        [of("at", kind=TensorProto.INT64), of("go", kind=TensorProto.BOOL), of("s")],
        [of("again", kind=TensorProto.BOOL), of("t")],
    )
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    nodes = [
        node("Loop", "count  one".replace("  ", " yes "), "s_last", body=body),
        node("Add", "x s_last", "y"),
    ]
    most = helper.make_tensor("count", TensorProto.INT64, [], [2**62])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    return model(nodes, None, [one, most, yes])


def tensor(kind: int, dims: list[int], raw: bytes) -> Any:
    made = TensorProto(data_type=kind, raw_data=raw, name="w")
    made.dims.extend(dims)
    return model([node("Add", "x w", "y")], None, [made])


HOSTILE: dict[str, tuple[Callable[[], Any], type[NeuronSimError], str]] = {
    "a cycle": (
        lambda: model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]),
        InvalidModel,
        "the_.*_of_[ab] .* needs itself",
    ),
    "an input that nothing gives": (
        lambda: model([node("Add", "x ghost", "y")]),
        InvalidModel,
        "the_Add_of_y reads 'ghost', which nothing gives",
    ),
    "an output that nothing gives": (
        lambda: model([RELU], output="z"),
        InvalidModel,
        "the output of graph reads 'z', which nothing gives",
    ),
    "two nodes with one output": (
        lambda: model([RELU, node("Abs", "x", "y")]),
        InvalidModel,
        "'y' is the output of two nodes",
    ),
    "two inputs of one name": (
        lambda: model([RELU], [of("x", 2), of("x", 3)]),
        InvalidModel,
        "two inputs .* 'x'",
    ),
    "no output": (
        lambda: helper.make_model(helper.make_graph([RELU], "graph", [of("x", 2)], [])),
        InvalidModel,
        "has no output",
    ),
    "too many inputs": (
        lambda: model([node("Relu", "x x x", "y")]),
        InvalidModel,
        "the_Relu_of_y .* does not take 3 inputs",
    ),
    "too many outputs": (
        lambda: model([node("Relu", "x", "a y")]),
        InvalidModel,
        "reads 'y', which nothing gives",
    ),
    "an attribute of another kind": (
        lambda: model([node("Softmax", "x", "y", axis="one")]),
        NeuronSimError,
        "the_Softmax_of_y .*axis",
    ),
    "an axis that is not there": (
        lambda: model([node("Softmax", "x", "y", axis=7)]),
        NeuronSimError,
        "the_Softmax_of_y",
    ),
    "shapes that do not fit": (
        lambda: model([node("Add", "x b", "y")], [of("x", 2, 3), of("b", 2, 5)]),
        InvalidArgument,
        "the_Add_of_y",
    ),
    "an unknown version of the operators": (
        lambda: model([RELU], version=4_000),
        UnsupportedOperator,
        "ai.onnx 4000: neuronsim reads",
    ),
    "version 0 of the operators": (lambda: model([RELU], version=0), UnsupportedOperator, "ai.onnx 0"),
    "an unknown domain": (
        lambda: model([node("Relu", "x", "y", domain="com.example")]),
        UnsupportedOperator,
        r"com\.example\.Relu \(the_Relu_of_y\)",
    ),
    "a function that calls itself": (
        lambda: model([called("F", "x", "y")], functions=[function("F", [called("F", "x", "y")])]),
        InvalidModel,
        "'F' of the domain 'own' calls itself",
    ),
    "functions that call each other": (
        lambda: model(
            [called("F", "x", "y")],
            functions=[function("F", [called("G", "x", "y")]), function("G", [called("F", "x", "y")])],
        ),
        InvalidModel,
        "calls itself",
    ),
    "functions that double 40 times": (lambda: doubling(40), UnsupportedOperator, "too often"),
    "functions nested 60 deep": (
        lambda: model(
            [called("F0", "x", "y")],
            functions=[
                *(function(f"F{n}", [called(f"F{n + 1}", "x", "y")]) for n in range(60)),
                function("F60", [RELU]),
            ],
        ),
        InvalidModel,
        "nested deeper than 50",
    ),
    "branches nested 60 deep": (lambda: in_branches(60), InvalidModel, "nested deeper|damaged"),
    "branches nested 400 deep": (lambda: in_branches(400), InvalidModel, "nested deeper|damaged"),
    "a loop of 2**62 known steps": (endless_loop, UnsupportedOperator, "the_Loop_of_s_last"),
    "a tensor of fewer bytes": (
        lambda: tensor(TensorProto.FLOAT, [2, 3], bytes(20)),
        InvalidModel,
        "'w' of float32",
    ),
    "a tensor of more bytes": (
        lambda: tensor(TensorProto.FLOAT, [2, 3], bytes(28)),
        InvalidModel,
        "'w' of float32",
    ),
    "a tensor of 2**60 elements": (
        lambda: tensor(TensorProto.FLOAT, [1 << 30, 1 << 30], bytes(24)),
        InvalidModel,
        "'w' of float32",
    ),
    "a tensor of 2**90 elements": (
        lambda: tensor(TensorProto.FLOAT, [1 << 30] * 3, bytes(24)),
        NeuronSimError,
        "'w'",
    ),
    "a tensor of huge dimensions without elements": (
        lambda: tensor(TensorProto.FLOAT, [0, 1 << 62, 1 << 62], b""),
        InvalidModel,
        "'w'",
    ),
    "a tensor of a negative dimension": (
        lambda: tensor(TensorProto.FLOAT, [-1, 3], bytes(24)),
        InvalidModel,
        r"'w' has the shape \(-1, 3\)",
    ),
    "a tensor of 65 axes": (
        lambda: tensor(TensorProto.FLOAT, [1] * 65, bytes(4)),
        NeuronSimError,
        "'w'.* axes",
    ),
    "a tensor of an unknown type": (lambda: tensor(99, [1], bytes(4)), InvalidModel, "element type 99"),
    "a tensor of strings": (lambda: tensor(TensorProto.STRING, [1], b""), UnsupportedType, "STRING"),
    "a huge input": (lambda: model([RELU], [of("x", 1 << 40, 1 << 40)]), NeuronSimError, "'x'"),
    "a huge constant": (
        lambda: model(
            [node("ConstantOfShape", "s", "c"), node("Exp", "c", "d"), node("Add", "x d", "y")],
            [of("x", 1)],
            [constant("s", 1 << 20, 1 << 16)],
        ),
        NeuronSimError,
        "the_",
    ),
    "a constant that does not fit in 64 bits": (
        lambda: model(
            [node("ConstantOfShape", "s", "y")], [of("x", 1)], [constant("s", 1 << 40, 1 << 40)]
        ),
        NeuronSimError,
        "the_ConstantOfShape_of_y",
    ),
}


@each_of("which", HOSTILE)
def test_hostile_graphs(which: str) -> None:
    make, kind, words = HOSTILE[which]
    hostile = made = make()
    with contextlib.suppress(Exception):  # protobuf writes no deep nesting
        hostile = made.SerializeToString()
    with pytest.raises(kind, match=words), bounded():
        neuronsim.compile(hostile, auto_cast="none")


def test_a_deep_chain_of_functions_and_branches_that_is_not_too_deep_runs() -> None:
    """The controls of the cases above."""
    x = np.float32([[-1, 0, 1]] * 2)
    for made in (doubling(5), in_branches(20)):
        given = {"x": x, **({"c": np.array(True)} if len(made.graph.input) > 1 else {})}
        found = neuronsim.compile(made, auto_cast="none")(**given)
        assert found.shape == (2, 3)


def test_unsupported_operators_are_listed_all_at_once_with_their_places() -> None:
    graph = helper.make_graph([node("Wrong", "x", "y")], "inner", [], [of("y", 2, 3)])
    made = model(
        [
            node("Reluu", "x", "a"),
            node("Reluu", "a", "b"),
            called("F", "b", "c"),
            node("If", "k", "y", then_branch=graph, else_branch=graph),
        ],
        [of("x", 2, 3), of("k", kind=TensorProto.BOOL)],
        functions=[
            function("F", [node("Foreign", "x", "y")]),
            function("Unused", [node("No", "x", "y")]),
        ],
    )
    with pytest.raises(UnsupportedOperator) as caught:
        to_module(made)
    text = str(caught.value)
    for part in (
        "Reluu (the_Reluu_of_a, the_Reluu_of_b) (did you mean 'Relu'?)",
        "Foreign (F/the_Foreign_of_y)",
        "Wrong (the_If_of_y/the_Wrong_of_y, the_If_of_y/the_Wrong_of_y)",
        "docs/onnx.md",
    ):
        assert part in text
    assert "No (" not in text


# ---- inputs -----------------------------------------------------------------------------------------


def test_an_open_dimension_is_named_with_its_readers() -> None:
    made = model([RELU], [of("x", "batch", "time", 4)])
    with pytest.raises(InvalidArgument) as caught:
        to_module(made)
    text = str(caught.value)
    for part in ("time", "'x'", "the_Relu_of_y", "input_shapes={'x'", "--input-shape x=1,N,..."):
        assert part in text
    assert to_module(made, input_shapes={"x": (2, 5, 4)}).root.shape.dims == (2, 5, 4)


def test_examples_by_name_have_the_shapes_of_open_dimensions() -> None:
    made = model([RELU], [of("x", "batch", "time", 4)])
    for example in (np.zeros((2, 5, 4), np.float32), np.zeros((2, 5, 4)).tolist()):
        program = neuronsim.compile(made, example_kwargs={"x": example}, auto_cast="none")
        assert program.inputs["x"].dims == (2, 5, 4)
    with pytest.raises(NeuronSimError):
        neuronsim.compile(made, example_kwargs={"x": [[1.0, 2.0], [3.0]]})


def test_a_batch_that_no_input_takes_is_refused() -> None:
    made = model([RELU], [of("x", 3, 4)])
    with pytest.raises(InvalidArgument, match=r"batch 8: .* no first dimension that is open \(float32"):
        api.read_model(made, api.ModelInputs(batch=8))
    assert api.read_model(made, api.ModelInputs(batch=3)).parameters[0].array.dims == (3, 4)
    whole = api.ModelInputs(batch=8, input_values={"x": np.ones((3, 4), np.float32)})
    with pytest.raises(InvalidArgument, match="batch 8: the model has no inputs, or the values of all"):
        api.read_model(made, whole)
    with pytest.raises(InvalidArgument, match="batch 8"):
        api.read_model(lambda x: neuronsim.exp(x), api.ModelInputs(batch=8, input_shapes={"x": (2, 4)}))


def test_an_unknown_input_has_the_nearest_name() -> None:
    made = model([node("Relu", "signal", "y")], [of("signal", 2)])
    for keywords in ({"input_shapes": {"singal": (2,)}}, {"input_values": {"singal": 1}}):
        with pytest.raises(InvalidArgument, match=r"no input 'singal' \(did you mean 'signal'\?\)"):
            to_module(made, **keywords)


@pytest.mark.parametrize("names", [("input.1", "onnx::Conv_0"), ("input.1", "input")])
def test_inputs_are_given_by_their_names_in_the_graph(names: tuple[str, str], tmp_path: Path) -> None:
    """PyTorch's exporter writes names that HLO spells otherwise."""
    nodes = [helper.make_node("Sub", list(names), ["y"])]
    made = model(nodes, [of(n, 2) for n in names])
    given = {names[0]: np.float32([5, 7]), names[1]: np.float32([1, 2])}
    program = neuronsim.compile(made, auto_cast="none")
    program.save(tmp_path / "model.nsim")
    proto.write(program.module, tmp_path / "model.hlo.pb")
    for p in (
        program,
        neuronsim.load(tmp_path / "model.nsim"),
        neuronsim.compile(tmp_path / "model.hlo.pb", auto_cast="none"),
    ):
        np.testing.assert_array_equal(np.asarray(p(**given)), [4, 5])
    assert bind_inputs(program.module, given).keys() == program.inputs.keys()


def test_a_shape_that_contradicts_the_declared_one() -> None:
    made = model([node("Add", "x z", "y")], [of("x", "n", 3), of("z", "n", 3)])
    for shapes in ({"x": (2, 4)}, {"x": (2,)}, {"x": (2, 3), "z": (4, 3)}, {"x": (-2, 3)}):
        with pytest.raises(NeuronSimError, match=r"input"):
            to_module(made, input_shapes=shapes)


def test_question_marks_name_no_dimension() -> None:
    """Some exporters write one for each dimension that they do not know."""
    made = model([RELU], [of("x", "?", 3, "?", "?")])
    assert to_module(made, input_shapes={"x": (2, 3, 48, 192)}).root.shape.dims == (2, 3, 48, 192)
    found = to_module(made, sample_shapes={"x": (3, 4, 5)})
    assert found.root.shape.dims == (1, 3, 4, 5)


def test_samples_of_every_dimension_say_the_first_one_too() -> None:
    """They are runs of a model without batches: its inputs have lengths of their own."""
    made = model([node("MatMul", "x z", "y")], [of("x", "rows", 3), of("z", "depth", "columns")])
    found = to_module(made, sample_shapes={"x": (7, 3), "z": (3, 2)})
    assert found.root.shape.dims == (7, 2)


def test_example_arguments_say_what_is_open() -> None:
    made = model([node("Add", "x z", "y")], [of("x", "n", 3), of("z", "n", 3)])
    x = np.ones((5, 3), np.float32)
    assert np.asarray(neuronsim.compile(made, x)(x, x)).shape == (5, 3)
    with pytest.raises(InvalidArgument, match=r"3 example arguments, and the inputs are x, z"):
        neuronsim.compile(made, x, x, x)


def test_a_known_number_is_that_of_all_elements() -> None:
    made = model([node("Add", "x z", "y")], [of("x", "n", 3), of("z", "n", 3)])
    x = np.ones((2, 3), np.float32)
    program = neuronsim.compile(made, input_values={"z": 2.5}, batch=2, auto_cast="none")
    assert np.asarray(program(x)).tolist() == [[3.5] * 3] * 2
    with pytest.raises(InvalidArgument, match=r"'z' is \['n', 3\], and \[2\] is given"):
        to_module(made, input_values={"z": [1.0, 2.0]})


def test_a_value_that_must_be_known_is_named_with_its_reader() -> None:
    made = model([node("Reshape", "x s", "y")], [of("x", 2, 3), of("s", 2, kind=TensorProto.INT64)])
    with pytest.raises(InvalidArgument, match=r"the_Reshape_of_y .*'s'.*--input-value s="):
        to_module(made)
    assert to_module(made, input_values={"s": [3, 2]}).root.shape.dims == (3, 2)


def detector() -> Any:
    """Scores and boxes, then what Trn1 does not run: it decides how many there are."""
    nodes = [
        helper.make_node("Sigmoid", ["raw"], ["scores"], name="score"),
        helper.make_node("Mul", ["anchors", "two"], ["boxes"], name="scale"),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"], name="nms"),
        helper.make_node("Gather", ["boxes", "kept"], ["found"], name="gather", axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("raw", TensorProto.FLOAT, [1, 2, 6]),
        helper.make_tensor_value_info("anchors", TensorProto.FLOAT, [1, 6, 4]),
    ]
    stored = [
        onnx.numpy_helper.from_array(np.array(3), "most"),
        onnx.numpy_helper.from_array(np.float32(2), "two"),
    ]
    outputs = [helper.make_tensor_value_info("found", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "detector", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_model_ends_at_other_outputs_in_front_of_what_cannot_be_compiled(tmp_path: Path) -> None:
    model, raw = detector(), np.linspace(-2, 2, 12, dtype=np.float32).reshape(1, 2, 6)
    with pytest.raises(
        InvalidArgument, match=r"nms.*outputs=\('boxes', 'scores'\).*--outputs boxes,scores"
    ):
        neuronsim.compile(model)
    program = neuronsim.compile(model, outputs=["scores"], auto_cast="all")
    assert list(program.inputs) == ["raw"]  # nothing else is needed
    assert len(program.module.entry_computation.instructions) < 8
    np.testing.assert_allclose(np.asarray(program(raw)), 1 / (1 + np.exp(-raw)), atol=0.01)
    neuronsim.export_onnx(model, program, tmp_path / "casts.onnx")
    kinds = [n.op_type for n in onnx.load(tmp_path / "casts.onnx").graph.node]
    assert "NonMaxSuppression" in kinds
    assert "Cast" in kinds
    boxes, scores = neuronsim.compile(model, outputs=("boxes", "scores"), auto_cast="none")(
        anchors=np.ones((1, 6, 4), np.float32), raw=raw
    )
    assert np.all(np.asarray(boxes) == 2)
    assert scores.shape == raw.shape
    found = neuronsim.tune(model, {"raw": np.repeat(raw, 4, 0)}, outputs=["scores"])
    assert found.samples == 4
    with pytest.raises(InvalidArgument, match=r"no tensor 'score' \(did you mean 'scores'\?\)"):
        neuronsim.compile(model, outputs=["score"])
    with pytest.raises(InvalidArgument, match=r"no tensor 'nope': its own outputs are found, and any"):
        neuronsim.compile(model, outputs=["nope"])
    with pytest.raises(InvalidArgument, match="an ONNX model ends at other tensors"):
        neuronsim.compile("examples/digits/model.hlo.pb", outputs=["scores"])
    for wrong in ("scores", ["scores", "scores"], [3]):
        with pytest.raises(InvalidArgument, match="outputs are different names of tensors"):
            neuronsim.compile(model, outputs=wrong)


def test_the_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NeuronSimError, match=re.escape("pip install 'neuronsim[onnx]'")):
        neuronsim.compile(SMALL)


# ---- tensors beside the file ------------------------------------------------------------------------


def external(folder: Path, dims: list[int], **entries: Any) -> Path:
    """A model in a folder whose tensor w lies outside of it."""
    made = model([node("Slice", "w begin end", "s"), node("Add", "x s", "y")], [of("x", 2)])
    w = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=dims)
    w.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        w.external_data.add(key=key, value=str(value))
    made.graph.initializer.extend([constant("begin", 4), constant("end", 6)])
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def numbers(path: Path, count: int = 8) -> None:
    path.write_bytes(np.arange(count, dtype=np.float32).tobytes())


def run(path: Path) -> list[float]:
    found: list[float] = neuronsim.compile(path, auto_cast="none")(x=np.zeros(2, np.float32)).tolist()
    return found


def test_a_tensor_beside_the_model(tmp_path: Path) -> None:
    path = external(tmp_path / "own", [8], location="data", offset=0, length=32)
    numbers(tmp_path / "own" / "data")
    assert run(path) == [4, 5]
    with pytest.raises(InvalidModel, match="give the model's file"):
        neuronsim.compile(path.read_bytes())


def test_a_tensor_at_an_odd_place(tmp_path: Path) -> None:
    path = external(tmp_path / "own", [8], location="data", offset=3)
    (tmp_path / "own" / "data").write_bytes(bytes(3) + np.arange(8, dtype=np.float32).tobytes())
    assert run(path) == [4, 5]


@pytest.mark.parametrize("way", ["..", "absolute", "link", "link of a folder", "null", "empty", "loop"])
def test_a_tensor_outside_of_the_folder(tmp_path: Path, way: str) -> None:
    numbers(tmp_path / "secret")
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(tmp_path / "secret")
    (own / "folder").symlink_to(tmp_path)
    (own / "loop").symlink_to(own / "loop")
    location = {
        "..": "../secret",
        "absolute": str(tmp_path / "secret"),
        "link": "link",
        "link of a folder": "folder/secret",
        "null": "a\0b",
        "empty": "",
        "loop": "loop",
    }[way]
    path = external(own, [8], location=location)
    with pytest.raises(NeuronSimError, match=r"'w'|loop"), bounded():
        run(path)


def test_a_folder_of_links_into_a_store(tmp_path: Path) -> None:
    """As downloads of models are kept: the model and its tensors are links to files of one folder."""
    store = tmp_path / "blobs"
    path = external(store, [8], location="model.data")
    numbers(store / "0123")
    named = tmp_path / "snapshot"
    named.mkdir()
    (named / "model.onnx").symlink_to(path)
    (named / "model.data").symlink_to(store / "0123")
    assert run(named / "model.onnx") == [4, 5]


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": 4},
        {"offset": -4},
        {"offset": 1 << 70},
        {"length": 16},
        {"length": 64},
        {"length": -1},
        {"offset": "four"},
    ],
    ids=str,
)
def test_a_tensor_of_another_size(tmp_path: Path, entries: dict[str, Any]) -> None:
    path = external(tmp_path / "own", [8], location="data", **entries)
    numbers(tmp_path / "own" / "data")
    with pytest.raises(InvalidModel, match="'w'"), bounded():
        run(path)


def test_a_tensor_in_a_pipe_or_nowhere(tmp_path: Path) -> None:
    path = external(tmp_path / "own", [8], location="data")
    with pytest.raises(NeuronSimError, match="data"), bounded():
        run(path)
    os.mkfifo(tmp_path / "own" / "data")
    with pytest.raises(NeuronSimError, match="data"), bounded():
        run(path)


def resident() -> int:
    """Bytes of memory that are this process's own."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) << 10


def test_a_model_of_more_than_2_gb_is_mapped_and_not_copied(tmp_path: Path) -> None:
    count = 5 << 28  # 5 GiB of float32, of which the file has but a page
    path = external(tmp_path / "own", [count], location="data", length=count * 4)
    with open(tmp_path / "own" / "data", "wb") as file:
        file.write(np.arange(8, dtype=np.float32).tobytes())
        file.truncate(count * 4)
    before, start = resident(), time.process_time()
    assert run(path) == [4, 5]
    assert time.process_time() - start < SECONDS
    assert resident() - before < 1 << 28
