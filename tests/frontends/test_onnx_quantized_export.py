"""Quantized plans back in ONNX models (QDQ): onnxruntime gives what the program gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes
from neuronsim.errors import InvalidArgument, NeuronSimError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.isa_independent
RNG = np.random.default_rng(240)
FLOAT = onnx.TensorProto.FLOAT
make = onnx.helper.make_node


def stored(**arrays: Any) -> list[Any]:
    return [onnx.numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in arrays.items()]


def model_of(nodes: list[Any], dims: list[Any], weights: list[Any], opset: int = 17) -> Any:
    x = onnx.helper.make_tensor_value_info("x", FLOAT, dims)
    y = onnx.helper.make_tensor_value_info("y", FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "m", [x], [y], weights)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8
    )


def draw(*dims: int) -> Any:
    return RNG.standard_normal(dims) * np.linspace(0.3, 3, dims[-1]) / np.sqrt(dims[0])


def dense() -> Any:
    """Gemm with its weights transposed, MatMul, one of two activations, and Einsum."""
    nodes = [
        make("Gemm", ["x", "w1", "b1"], ["h"], name="up", transB=1),
        make("Relu", ["h"], ["a"], name="act"),
        make("MatMul", ["a", "w2"], ["d"], name="down"),
        make("Transpose", ["d"], ["t"], name="turn", perm=[1, 0]),
        make("MatMul", ["d", "t"], ["p"], name="pairs"),
        make("MatMul", ["p", "d"], ["m"], name="mixed"),
        make("Einsum", ["m", "w3"], ["y"], name="head", equation="nk,ck->nc"),
    ]
    weights = stored(w1=draw(24, 16), b1=draw(24), w2=draw(24, 20), w3=draw(10, 20))
    return model_of(nodes, [8, 16], weights)


def convolutions() -> Any:
    nodes = [
        make("Conv", ["x", "k1", "b"], ["c"], name="first", pads=[1, 1, 1, 1]),
        make("Relu", ["c"], ["r"], name="act"),
        make("Conv", ["r", "k2"], ["d"], name="depthwise", group=6, pads=[1, 1, 1, 1]),
        make("GlobalAveragePool", ["d"], ["g"], name="pool"),
        make("Flatten", ["g"], ["f"], name="flat"),
        make("MatMul", ["f", "w"], ["y"], name="head"),
    ]
    weights = stored(
        k1=RNG.standard_normal((6, 3, 3, 3)) / 5, b=draw(6), k2=draw(6, 1, 3, 3), w=draw(6, 10)
    )
    return model_of(nodes, [8, 3, 9, 9], weights)


MODELS = {"dense": (dense, (8, 16)), "convolutions": (convolutions, (8, 3, 9, 9))}
SCHEMES = ["minmax", "minmax,symmetric,per-tensor,int32-bias", "minmax,uint8,int32-bias", "weights"]


def run(path: Any, x: Any, *, optimised: bool = False) -> Any:
    """What onnxruntime gives, node by node as it is written, or by its optimiser."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_quantized_plan_as_qdq_is_what_onnxruntime_gives(
    kind: str, scheme: str, tmp_path: Path
) -> None:
    build, dims = MODELS[kind]
    model = build()
    data = RNG.standard_normal((64, *dims[1:])).astype(np.float32)
    plan = neuronsim.quantize(model, {"x": data}, scheme)
    program = neuronsim.compile(model, plan=plan)
    path = tmp_path / "q.onnx"
    neuronsim.export_onnx(model, program, path)
    written = onnx.load(path)
    kinds = [n.op_type for n in written.graph.node]
    quantized = [n for n, d in plan.decisions.items() if d.quantizes]
    assert quantized
    weights = [t for t in written.graph.initializer if t.data_type == onnx.TensorProto.INT8 and t.dims]
    assert len([w for w in weights if len(w.dims) > 1]) == 3
    assert kinds.count("DequantizeLinear") > 3 - (scheme == "weights")
    assert ("QuantizeLinear" in kinds) == (scheme != "weights")
    names = {t.name for t in written.graph.initializer}
    assert not names & {"w1", "w2", "w3", "k1", "k2", "w"}  # bytes stand for them
    plain = tmp_path / "plain.onnx"
    onnx.save(model, plain)
    for start in range(0, 64, 8):
        x = data[start : start + 8]
        found, wanted, exact = run(path, x), np.asarray(program(x)), run(plain, x)
        # A sum in another order may tip a tie of what is quantized behind it.
        assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(exact - wanted)
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        # The optimiser quantizes what MatMul reads beside weights of bytes, and merges nodes.
        fused = run(path, x, optimised=True)
        assert np.linalg.norm(fused - wanted) < 2 * np.linalg.norm(exact - wanted)


def test_int8_beside_bf16_has_both_nodes(tmp_path: Path) -> None:
    model = dense()
    data = {"x": RNG.standard_normal((64, 16)).astype(np.float32)}
    plan = neuronsim.quantize(model, data, "minmax", others="bf16", exclude=("*head*",))
    program = neuronsim.compile(model, plan=plan)
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    kinds = {n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node}
    assert {"Cast", "QuantizeLinear", "DequantizeLinear"} <= kinds
    found, wanted = run(tmp_path / "q.onnx", data["x"][:8]), np.asarray(program(data["x"][:8]))
    assert np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)


def test_a_tensor_that_two_nodes_read_is_quantized_once(tmp_path: Path) -> None:
    nodes = [
        make("MatMul", ["x", "q"], ["a"], name="a"),
        make("MatMul", ["x", "k"], ["b"], name="b"),
        make("Add", ["a", "b"], ["y"], name="sum"),
    ]
    model = model_of(nodes, [8, 16], stored(q=draw(16, 4), k=draw(16, 4)))
    x = RNG.standard_normal((32, 16)).astype(np.float32)
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}))
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    kinds = [n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node]
    assert kinds.count("QuantizeLinear") == 1
    assert kinds.count("DequantizeLinear") == 3


def test_channels_of_weights_that_a_node_turned_are_those_of_the_file(tmp_path: Path) -> None:
    """FusedMatMul's product reads the weights transposed: the scales run along their own axis."""
    node = make("FusedMatMul", ["x", "w"], ["y"], name="turned", transB=1, domain="com.microsoft")
    model = model_of([node], [8, 3, 6], stored(w=RNG.standard_normal((4, 6))))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    x = RNG.standard_normal((32, 3, 6)).astype(np.float32)
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}))
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    nodes = [n for n in onnx.load(tmp_path / "q.onnx").graph.node if n.op_type == "DequantizeLinear"]
    axes = [a.i for n in nodes for a in n.attribute if a.name == "axis"]
    assert axes == [0]
    np.testing.assert_allclose(run(tmp_path / "q.onnx", x[:8]), np.asarray(program(x[:8])), atol=1e-4)


def test_float8_e5m2_is_written_and_e4m3_which_onnx_has_not_is_refused(tmp_path: Path) -> None:
    nodes = [make("MatMul", ["x", "w"], ["y"], name="m")]
    x = RNG.standard_normal((32, 16)).astype(np.float32)
    for opset, scheme, error in (
        (19, "minmax,fp8_e5m2", None),
        (17, "minmax,fp8_e5m2", "of float8 is there from 19 on"),
        (19, "minmax,fp8_e4m3", "no float8_e4m3 that ends at 240"),
    ):
        model = model_of(nodes, [8, 16], stored(w=draw(16, 4)), opset)
        program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}, scheme))
        if error is None:
            neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
            found = run(tmp_path / "q.onnx", x[:8])
            np.testing.assert_allclose(found, np.asarray(program(x[:8])), rtol=1e-5, atol=1e-6)
        else:
            with pytest.raises(NeuronSimError, match=error):
                neuronsim.export_onnx(model, program, tmp_path / "q.onnx")


def test_an_old_operator_set_is_refused_with_what_to_do(tmp_path: Path) -> None:
    model = model_of([make("MatMul", ["x", "w"], ["y"], name="m")], [8, 16], stored(w=draw(16, 4)), 11)
    x = RNG.standard_normal((32, 16)).astype(np.float32)
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}))
    with pytest.raises(InvalidArgument, match="by channel is there from 13 on"):
        neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}, per_channel=False))
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    np.testing.assert_allclose(run(tmp_path / "q.onnx", x[:8]), np.asarray(program(x[:8])), atol=1e-4)


def test_products_of_no_single_nodes_inputs_are_left_out_with_a_warning(tmp_path: Path) -> None:
    """Of a node whose steps have several products no input is one's operand."""
    w, r = RNG.standard_normal((1, 12, 4)), RNG.standard_normal((1, 12, 3))
    nodes = [
        make("MatMul", ["x", "m"], ["h"], name="m"),
        make("Unsqueeze", ["h", "zero"], ["s"], name="u"),
        make("LSTM", ["s", "w", "r"], ["z", "", ""], name="lstm", hidden_size=3),
        make("Reshape", ["z", "shape"], ["y"], name="flat"),
    ]
    weights = stored(m=draw(16, 4), w=w, r=r)
    weights += [
        onnx.numpy_helper.from_array(np.array(v, np.int64), n)
        for n, v in (("zero", [0]), ("shape", [8, 3]))
    ]
    model = model_of(nodes, [8, 16], weights)
    x = RNG.standard_normal((32, 16)).astype(np.float32)
    plan = neuronsim.quantize(model, {"x": x})
    program = neuronsim.compile(model, plan=plan)
    many = sum(d.quantizes for d in plan.decisions.values()) > 1
    if many:
        with pytest.warns(match="is left out of the ONNX model"):
            neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    else:
        neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    nodes = onnx.load(tmp_path / "q.onnx").graph.node
    by_name = {n.name: n for n in nodes}
    assert by_name["m"].input[1] != "m"
    assert list(by_name["lstm"].input) == ["s", "w", "r"]


def test_magika_as_qdq_has_the_same_classes(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        pytest.skip("magika is not installed (extra peers)")
    path = Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    x = RNG.integers(0, 257, (8, 2048)).astype(np.int32)
    plan = neuronsim.quantize(path, {"bytes": x}, batch=4)
    assert {d.quantized_operands[0].type for d in plan.decisions.values()} == {dtypes.int8}  # type: ignore[union-attr]
    program = neuronsim.compile(path, plan=plan, input_shapes={"bytes": (4, 2048)})
    neuronsim.export_onnx(path, program, tmp_path / "q.onnx")
    assert (tmp_path / "q.onnx").stat().st_size < 0.6 * path.stat().st_size
    session = ort.InferenceSession(str(tmp_path / "q.onnx"), providers=["CPUExecutionProvider"])
    for start in (0, 4):
        found = session.run(None, {"bytes": x[start : start + 4]})[0]
        wanted = np.asarray(program(x[start : start + 4]))
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        assert np.linalg.norm(found - wanted) < 0.01 * np.linalg.norm(wanted)
