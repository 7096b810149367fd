"""Quantized plans back in ONNX models (QDQ): onnxruntime gives what the program gives."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.casting.decisions.biases import find_biases, integer_bias
from neuronsim.casting.decisions.quantization import Quantization, quantization_of
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.hlo.fingerprint import fingerprint

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
    # Without VNNI onnxruntime's products of u8 by s8 saturate; with this, most weights become u8.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@functools.cache
def onnxruntime_saturates() -> bool:
    """Whether two products of u8 by s8 end at 32767, as VPMADDUBSW's do."""
    kinds = onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32
    a, b, y = (
        onnx.helper.make_tensor_value_info(*value)
        for value in zip("aby", kinds, ([1, 2], [2, 1], [1, 1]), strict=True)
    )
    graph = onnx.helper.make_graph([make("MatMulInteger", ["a", "b"], ["y"])], "m", [a, b], [y])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)}
    (sums,) = session.run(None, given)
    return int(sums.item()) != 2 * 255 * 127


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_quantized_plan_as_qdq_is_what_onnxruntime_gives(
    kind: str, scheme: str, optimised: bool, tmp_path: Path
) -> None:
    """Node by node as written; the optimiser quantizes what MatMul reads beside weights of bytes, and
    merges nodes.
    """
    if optimised and onnxruntime_saturates():
        pytest.skip("onnxruntime's merged products of u8 by s8 saturate on this processor")
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
        found, wanted = run(path, x, optimised=optimised), np.asarray(program(x))
        off, cost = (np.linalg.norm(y - wanted) for y in (found, run(plain, x)))
        # As written, a sum in another order may tip a tie of what is quantized behind it.
        assert off < (2 if optimised else 0.1) * cost
        if not optimised:
            np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))


def added() -> Any:
    """Products whose biases are added by nodes of their own, the second one's from the left."""
    nodes = [
        make("Conv", ["x", "k"], ["c"], name="conv"),
        make("Add", ["c", "b1"], ["d"], name="bias1"),
        make("Relu", ["d"], ["r"], name="act"),
        make("MatMul", ["r", "w"], ["m"], name="head"),
        make("Add", ["b2", "m"], ["y"], name="bias2"),
    ]
    weights = stored(
        k=RNG.standard_normal((6, 3, 3, 3)) / 5, b1=draw(6, 1, 1), w=draw(7, 4), b2=draw(4)
    )
    return model_of(nodes, [8, 3, 9, 9], weights)


def operations(path: Any, folder: Path) -> set[str]:
    """What onnxruntime's optimiser makes of a model."""
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimised.onnx"), 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return {n.op_type for n in onnx.load(folder / "optimised.onnx").graph.node}


@pytest.mark.parametrize("granularity", ["", ",per-tensor"])
@pytest.mark.parametrize(
    ("build", "biases", "fused"),
    [(dense, ["b1"], "QGemm"), (convolutions, ["b"], "QLinearConv"), (added, ["b1", "b2"], "")],
)
def test_biases_of_sums_Q7_are_int32_in_the_file(
    build: Any, biases: list[str], fused: str, granularity: str, tmp_path: Path
) -> None:
    """By the product of the scales, along the axis that they have in the file; onnxruntime's optimiser
    makes its operators of integers of it.
    """
    model = build()
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.standard_normal((32, *dims[1:])).astype(np.float32)
    plan = neuronsim.quantize(model, {"x": x}, f"minmax{granularity},int32-bias")
    assert sum(bool(d.bias) for d in plan.decisions.values()) == len(biases)
    program = neuronsim.compile(model, plan=plan)
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    found, wanted = run(tmp_path / "q.onnx", x[:8]), np.asarray(program(x[:8]))
    assert np.linalg.norm(found - wanted) < 1e-3 * np.linalg.norm(wanted)
    assert {fused} - {""} <= operations(tmp_path / "q.onnx", tmp_path)
    written = onnx.load(tmp_path / "q.onnx").graph
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in written.initializer}
    assert not tensors.keys() & set(biases)
    for name in biases:
        (node,) = (n for n in written.node if n.input and n.input[0] == f"{name}.int32")
        data, scale, zero = (tensors[t] for t in node.input)
        assert (node.op_type, data.dtype, scale.ndim) == ("DequantizeLinear", np.int32, not granularity)
        assert not zero.any()
        (exact,) = (onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)
        by = scale.reshape(-1, 1, 1) if exact.ndim == 3 and scale.ndim else scale
        np.testing.assert_array_equal(data, np.rint(exact.astype(np.float64) / by))


def test_integers_of_biases_Q7_are_those_of_onnxruntimes_quantizer(tmp_path: Path) -> None:
    """Its own scales given."""
    quantizer = pytest.importorskip("onnxruntime.quantization")
    compared = 0
    for (build, dims), by_channel in itertools.product(MODELS.values(), (False, True)):
        model = build()
        onnx.save(model, tmp_path / "m.onnx")
        batches = iter([{"x": RNG.standard_normal(dims).astype(np.float32)} for _ in range(4)])

        class Reader(quantizer.CalibrationDataReader):  # type: ignore[misc, name-defined]
            def get_next(self, batches: Any = batches) -> Any:
                return next(batches, None)

        quantizer.quantize_static(
            str(tmp_path / "m.onnx"), str(tmp_path / "q.onnx"), Reader(), per_channel=by_channel
        )
        graph = onnx.load(tmp_path / "q.onnx").graph
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        exact = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        name = next(n for n in ("b1", "b") if n in exact)
        weight = {"b1": "w1", "b": "k1"}[name]
        scales = tensors["x_scale"] * tensors[f"{weight}_scale"].reshape(-1)
        count = scales.size
        by = Quantization(dtypes.int32, tuple(scales.tolist()), (0,) * count, 0 if count > 1 else None)
        np.testing.assert_array_equal(by.quantized(exact[name]), tensors[f"{name}_quantized"])
        compared += 1
    assert compared == 4


@pytest.mark.parametrize("kind", ["QGemm", "QLinearConv"])
@pytest.mark.parametrize("by_channel", [False, True])
def test_requantized_products_with_biases_Q7_are_onnxruntimes(
    kind: str, by_channel: bool, tmp_path: Path
) -> None:
    """The bytes of its operators of integers, whose int32 bias is in the sums too."""
    rng = np.random.default_rng(77)
    is_dot = kind == "QGemm"
    w = rng.normal(0, 0.5, (24, 10) if is_dot else (10, 4, 3, 3)).astype(np.float32)
    x = rng.normal(0, 1, (40, 24) if is_dot else (2, 4, 12, 12)).astype(np.float32)
    bias, axis = rng.normal(0, 2, 10).astype(np.float32), int(is_dot)

    def net(x: Any) -> Any:
        if is_dot:
            return neuronsim.matmul(x, neuronsim.asarray(w)) + neuronsim.asarray(bias)
        return nn.conv(x, neuronsim.asarray(w)) + neuronsim.asarray(bias.reshape(-1, 1, 1))

    lhs = quantization_of(-3, 4, dtypes.int8, symmetric=False)
    most = (
        np.abs(w).max(tuple(n for n in range(w.ndim) if n != axis)) if by_channel else np.abs(w).max()
    )
    rhs = quantization_of(-most, most, dtypes.int8, symmetric=True, axis=axis if by_channel else None)
    result = quantization_of(-6, 9, dtypes.int8, symmetric=False)
    model = neuronsim.compile(net, x, auto_cast="none").model
    ((name, found),) = find_biases(model.entry_computation, {"dot", "convolution"}).items()
    d = Decision(
        *[dtypes.float32] * 3, "by hand",
        quantized_operands=(lhs, rhs), quantized_result=result, bias=found.addition.name,
    )  # fmt: skip
    plan = Plan("by hand", model.name, fingerprint(model), {name: d})
    ours = result.quantized(np.asarray(neuronsim.compile(model, plan=plan)(x)))

    def numbers(q: Quantization) -> list[Any]:
        shape = -1 if q.axis is not None else ()
        zero = np.array(q.zero_point, np.int8).reshape(shape)
        return [np.array(q.scale, np.float32).reshape(shape), zero]

    _, integers = integer_bias(found, lhs, rhs)
    c = integers.reshape(-1)
    a, b, y = [lhs.quantized(x), *numbers(lhs)], [rhs.quantized(w), *numbers(rhs)], numbers(result)
    arrays = [*a, *b, c, *y] if is_dot else [*a, *b, *y, c]
    names = [f"t{n}" for n in range(len(arrays))]
    inputs = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(t), n)
        for t, n in zip(arrays, names, strict=True)
    ]
    node = make(kind, names, ["y"], domain="com.microsoft" if is_dot else "")
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT8, None)
    graph = onnx.helper.make_graph([node], "m", [], [out], inputs)
    sets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=sets, ir_version=8), tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {})[0], ours)


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


@pytest.mark.parametrize("scheme", ["minmax", "minmax,int32-bias", "weights"])
def test_bytes_and_casts_of_one_product_with_a_bias(scheme: str, tmp_path: Path) -> None:
    """Weights of bytes are rounded as what they stand for; the bias is added in the other type."""
    nodes = [
        make("Gemm", ["x", "w1", "b1"], ["h"], transB=1, alpha=0.5),
        make("Relu", ["h"], ["a"]),
        make("Gemm", ["a", "w2", "b2"], ["y"]),
    ]
    weights = stored(w1=draw(24, 16), b1=draw(24), w2=draw(24, 20), b2=draw(20))
    model = model_of(nodes, [8, 16], weights)
    x = RNG.standard_normal((64, 16)).astype(np.float32)
    plan = neuronsim.quantize(model, {"x": x}, scheme, others="bf16")
    program = neuronsim.compile(model, plan=plan)
    neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    found, wanted = run(tmp_path / "q.onnx", x[:8]), np.asarray(program(x[:8]))
    assert np.linalg.norm(found - wanted) < 2e-7 * np.linalg.norm(wanted)


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


@pytest.mark.parametrize("inputs", [["s", "w", "r", "b"], ["s", "w", "r", "b", "", "h"]])
@pytest.mark.parametrize(("operator", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_what_a_recurrent_node_leaves_out_is_no_input(
    operator: str, gates: int, inputs: list[str], tmp_path: Path
) -> None:
    """PyTorch's form: a first state, and no lengths of sequences."""
    nodes = [
        make("Transpose", ["x"], ["s"], perm=[1, 0, 2]),
        make(operator, inputs, ["", "z"], name="rnn", hidden_size=3),
        make("Squeeze", ["z", "zero"], ["y"]),
    ]
    w, h = RNG.standard_normal((1, gates * 3, 4)), RNG.standard_normal((1, 8, 3))
    weights = stored(w=w, r=w[..., :3], b=RNG.standard_normal((1, gates * 6)), h=h)
    weights.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    model = model_of(nodes, [8, 5, 4], weights)
    x = RNG.standard_normal((32, 5, 4)).astype(np.float32)
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}))
    with pytest.warns(match="the quantization of . products is left out of the ONNX model"):
        neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
    written = {n.name: n for n in onnx.load(tmp_path / "q.onnx").graph.node}
    assert list(written["rnn"].input) == inputs
    plain = neuronsim.compile(model, auto_cast="none")
    np.testing.assert_allclose(run(tmp_path / "q.onnx", x[:8]), np.asarray(plain(x[:8])), atol=1e-5)


@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolutions_read_bytes_or_are_told(group: int, tmp_path: Path) -> None:
    """The product reads the kernel turned round, and that of groups in another order."""
    node = make("ConvTranspose", ["x", "w", "b"], ["y"], name="up", group=group, strides=[2])
    w = RNG.standard_normal((4, 6 // group, 3)) * np.linspace(0.3, 3, 6 // group)[:, None]
    model = model_of([node], [8, 4, 7], stored(w=w, b=draw(6)))
    x = RNG.standard_normal((32, 4, 7)).astype(np.float32)
    program = neuronsim.compile(model, plan=neuronsim.quantize(model, {"x": x}))
    if group == 1:
        neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
        wanted = np.asarray(program(x[:8]))
    else:
        with pytest.warns(match="the quantization of 1 products is left out"):
            neuronsim.export_onnx(model, program, tmp_path / "q.onnx")
        wanted = np.asarray(neuronsim.compile(model, auto_cast="none")(x[:8]))
    found = run(tmp_path / "q.onnx", x[:8])
    assert np.linalg.norm(found - wanted) < 2e-7 * np.linalg.norm(wanted)


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
