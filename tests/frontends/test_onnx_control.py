"""ONNX's If, Loop and Scan: known and traced conditions, short and long loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import floats
from tests.support.parameters import each_of

import neuronsim
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.frontends.onnx.model import to_module

onnx = pytest.importorskip("onnx")
h = pytest.importorskip("onnx.helper")
FLOAT, INT, BOOL = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "INT64", "BOOL"))


def value(name: str, kind: int, dims: Any = None) -> Any:
    return h.make_tensor_value_info(name, kind, dims)


def model(nodes: Any, inputs: Any, outputs: Any, initializers: Any = ()) -> Any:
    graph = h.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])


def constant(name: str, x: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(x), name)


def run(m: Any, known: Any = (), **given: Any) -> list[Any]:
    """The outputs of the compiled model, some of whose inputs are known."""
    traced = {k: np.asarray(v) for k, v in given.items() if k not in known}
    module = to_module(
        m,
        input_shapes={k: v.shape for k, v in traced.items()},
        input_values={k: given[k] for k in known},
    )
    found = neuronsim.compile(module, auto_cast="none", target="host")(*traced.values())
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def wanted(m: Any, **given: Any) -> list[Any]:
    from onnx.reference import ReferenceEvaluator  # which takes long to load

    return list(ReferenceEvaluator(m).run(None, {k: np.asarray(v) for k, v in given.items()}))


def branches() -> Any:
    """`x + 1` or `x * x`, both of which read the outer `x`."""
    then = h.make_graph([h.make_node("Add", ["x", "one"], ["a"])], "then", [], [value("a", FLOAT)])
    other = h.make_graph([h.make_node("Mul", ["x", "x"], ["b"])], "other", [], [value("b", FLOAT)])
    node = h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="choose")
    inputs = [value("c", BOOL, [1]), value("x", FLOAT, [3])]
    return model([node], inputs, [value("y", FLOAT)], [constant("one", np.float32(1))])


@pytest.mark.parametrize("dims", [((), (1,)), ((1,), (1, 1)), ((3,), (3,))])
def test_branches_whose_one_element_has_axes_more_or_less(dims: Any) -> None:
    parts = [
        h.make_graph(
            [h.make_node(op, ["x"], ["sum"], keepdims=0), h.make_node("Reshape", ["sum", s], ["a"])],
            op, [], [value("a", FLOAT)],
        )
        for op, s in (("ReduceSum", "first"), ("ReduceProd", "second"))
    ]  # fmt: skip
    node = h.make_node("If", ["c"], ["y"], then_branch=parts[0], else_branch=parts[1], name="choose")
    shapes = [constant(n, np.int64(d)) for n, d in zip(("first", "second"), dims, strict=True)]
    inputs = [value("c", BOOL, [1]), value("x", FLOAT, [2])]
    m = model([node], inputs, [value("y", FLOAT)], shapes)
    given = {"x": floats(2)}
    if 3 in dims[0]:
        with pytest.raises(NeuronSimError, match="choose"):
            run(m, c=np.array([True]), **given)
        return
    for condition in (True, False):
        (found,) = run(m, c=np.array([condition]), **given)
        (expected,) = wanted(m, c=np.array([condition]), **given)
        assert found.shape == max(dims, key=len)
        np.testing.assert_allclose(found.reshape(()), expected.reshape(()), 1e-6)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("known", [(), ("c",)])
def test_if(condition: bool, known: tuple[str, ...]) -> None:
    x = floats(3)
    (found,) = run(branches(), known, c=np.array([condition]), x=x)
    np.testing.assert_array_equal(found, x + 1 if condition else x * x)


def test_a_traced_condition_is_a_conditional_and_a_known_one_is_not() -> None:
    opcodes = [
        {
            i.opcode
            for c in to_module(branches(), input_values=known).computations
            for i in c.instructions
        }
        for known in ({}, {"c": np.array([True])})
    ]
    assert "conditional" in opcodes[0]
    assert "conditional" not in opcodes[1]


def test_a_branch_that_takes_no_such_shape_asks_for_the_condition() -> None:
    m = branches()
    m.graph.node[0].attribute[0].g.node[0].input[1] = "odd"
    m.graph.initializer.append(constant("odd", floats(2)))
    x = floats(3)
    with pytest.raises(InvalidArgument, match=r"choose \(If\), of which.*input_values=\{'c'"):
        run(m, c=np.array([True]), x=x)
    np.testing.assert_array_equal(run(m, ("c",), c=np.array([True]), x=x)[0], x + 1)


def loop(count: int | None, *, stacks: bool = True, limit: float | None = None) -> Any:
    """`s = s * 0.9 + i`, which ends once its sum exceeds a limit; the states are stacked."""
    nodes = [
        h.make_node("Cast", ["i"], ["f"], to=FLOAT),
        h.make_node("Mul", ["s", "factor"], ["t"]),
        h.make_node("Add", ["t", "f"], ["new"]),
    ]
    if limit is None:
        nodes.append(h.make_node("Identity", ["go"], ["on"]))
    else:
        nodes.append(h.make_node("ReduceSum", ["new"], ["sum"], keepdims=0))
        nodes.append(h.make_node("Less", ["sum", "limit"], ["on"]))
    outputs = [value("on", BOOL, []), value("new", FLOAT, [2])]
    if stacks:
        nodes.append(h.make_node("Identity", ["new"], ["kept"]))
        outputs.append(value("kept", FLOAT, [2]))
    inputs = [value("i", INT, []), value("go", BOOL, []), value("s", FLOAT, [2])]
    body = h.make_graph(nodes, "body", inputs, outputs)
    names = ["count" if count is not None else "", "yes", "x"]
    results = ["last", *(["all"] if stacks else [])]
    initializers = [
        constant("yes", np.array(True)),
        constant("factor", np.float32(0.9)),
        constant("limit", np.float32(limit or 0)),
    ]
    if count is not None:
        initializers.append(constant("count", np.int64(count)))
    return model(
        [h.make_node("Loop", names, results, body=body, name="repeat")],
        [value("x", FLOAT, [2])],
        [value(r, FLOAT) for r in results],
        initializers,
    )


@pytest.mark.parametrize(
    "m",
    [
        loop(3),
        loop(40),
        loop(40, stacks=False),
        loop(50, stacks=False, limit=60.0),
        loop(3, stacks=False, limit=60.0),
        loop(None, stacks=False, limit=60.0),
    ],
    ids=["short", "long", "without outputs", "may end", "short that may end", "without a count"],
)
def test_loop(m: Any) -> None:
    x = floats(2)
    for found, right in zip(run(m, x=x), wanted(m, x=x), strict=True):
        np.testing.assert_allclose(found, right, 1e-6)
    for found, eager in zip(run(m, x=x), run(m, ("x",), x=x), strict=True):
        np.testing.assert_array_equal(found, eager)


@pytest.mark.parametrize(
    ("m", "loops"), [(loop(3), 0), (loop(40), 1), (loop(50, stacks=False, limit=60.0), 1)]
)
def test_long_loops_are_loops(m: Any, loops: int) -> None:
    entry = to_module(m).computations[-1]
    assert sum(i.opcode == "while" for i in entry.instructions) == loops


def test_outputs_of_unknown_number_are_an_error_that_names_the_input() -> None:
    with pytest.raises(InvalidArgument, match=r"repeat \(Loop\).*input_values=\{'x'"):
        to_module(loop(50, limit=60.0))


def scan(**attributes: Any) -> Any:
    """The running sum of the rows of `x`."""
    body = h.make_graph(
        [h.make_node("Add", ["s", "row"], ["new"]), h.make_node("Neg", ["new"], ["out"])],
        "body",
        [value("s", FLOAT, [3]), value("row", FLOAT, [3])],
        [value("new", FLOAT, [3]), value("out", FLOAT, [3])],
    )
    node = h.make_node(
        "Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes
    )
    inputs = [value("start", FLOAT, [3]), value("x", FLOAT)]
    return model([node], inputs, [value("last", FLOAT), value("all", FLOAT)])


@each_of("steps", [1, 4, 12])
@each_of(
    "attributes",
    [
        {},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1], "scan_output_axes": [-1]},
        {"scan_input_axes": [1]},
    ],
    ids=str,
)
def test_scan(steps: int, attributes: dict[str, Any]) -> None:
    x, start = floats(steps, 3), floats(3, seed=1)
    rows = x[::-1] if attributes.get("scan_input_directions") else x
    sums = np.cumsum(np.concatenate([start[None], rows]), 0, dtype=np.float32)[1:]
    stacked = -sums[::-1] if attributes.get("scan_output_directions") else -sums
    given = x.T.copy() if attributes.get("scan_input_axes") else x
    last, found = run(scan(**attributes), start=start, x=given)
    np.testing.assert_allclose(last, sums[-1], 1e-6)
    np.testing.assert_allclose(found, stacked.T if "scan_output_axes" in attributes else stacked, 1e-6)
