"""The quantized operators of com.microsoft and models that onnxruntime's own quantizer made, QOperator
and QDQ: 8-bit tensors are onnxruntime's but for ties of the exact value, one step off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neuronsim

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(24)
U8 = RNG.integers(0, 256, (2, 6, 8, 8)).astype(np.uint8)
V8 = RNG.integers(0, 256, (2, 6, 8, 8)).astype(np.uint8)
A8, B8 = (
    RNG.integers(0, 256, (5, 12)).astype(np.uint8),
    RNG.integers(-128, 128, (12, 7)).astype(np.int8),
)
ROWS = RNG.standard_normal((5, 12)).astype(np.float32)
BY_COLUMN = (0.01 + RNG.random(7)).astype(np.float32)


def f(x: float) -> Any:
    return np.float32(x)


def u(x: int) -> Any:
    return np.uint8(x)


# The operator, its attributes and its inputs.
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "QLinearAdd": ({}, [U8, f(0.0213), u(100), V8, f(0.0317), u(7), f(0.0411), u(60)]),
    "QLinearMul": ({}, [U8, f(0.02), u(100), V8, f(0.03), u(7), f(0.1), u(60)]),
    "QLinearSigmoid": ({}, [U8, f(0.05), u(100), f(1 / 256), u(0)]),
    "QLinearLeakyRelu": ({"alpha": 0.1}, [U8, f(0.05), u(100), f(0.04), u(20)]),
    "QLinearConcat": ({"axis": 1}, [f(0.04), u(20), U8, f(0.05), u(100), V8, f(0.01), u(3)]),
    "QLinearAveragePool": (
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        [U8, f(0.0517), u(100), f(0.0412), u(90)],
    ),
    "QLinearGlobalAveragePool": ({"channels_last": 0}, [U8, f(0.05), u(100), f(0.005), u(90)]),
    "QLinearSoftmax": ({"axis": -1, "opset": 13}, [U8, f(0.05), u(100), f(1 / 256), u(0)]),
    "QLinearSoftmax of a matrix": ({"axis": 1, "opset": 9}, [U8, f(0.05), u(100), f(1 / 256), u(0)]),
    "QLinearWhere": ({}, [U8 > 127, U8, f(0.05), u(100), V8, f(0.02), u(1), f(0.05), u(80)]),
    "QGemm": (
        {"alpha": 1.0},
        [A8, f(0.02), u(100), B8, f(0.03), np.int8(0), np.arange(7, dtype=np.int32), f(0.3), u(128)],
    ),
    "QGemm by columns": (
        {"transB": 1},
        [A8, f(0.02), u(100), B8.T.copy(), BY_COLUMN, np.zeros(7, np.int8), None, f(9.0), u(128)],
    ),
    "QGemm to floats": ({}, [A8, f(0.02), u(100), B8, f(0.03), np.int8(0)]),
    "MatMulIntegerToFloat": ({}, [A8, B8, f(0.02), BY_COLUMN, u(9), np.zeros(7, np.int8)]),
    "MatMulIntegerToFloat with a bias": ({}, [A8, B8, f(0.02), f(0.1), u(9), np.int8(3), BY_COLUMN]),
    "DynamicQuantizeMatMul": ({}, [ROWS, B8, BY_COLUMN, None, BY_COLUMN]),
    "QuantizeLinear": ({}, [ROWS, f(0.02), u(100)]),
    "DequantizeLinear": ({}, [A8, f(0.02), u(100)]),
    "QAttention": (
        {"num_heads": 2},
        [
            RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8),
            RNG.integers(-128, 128, (8, 24)).astype(np.int8),
            RNG.standard_normal(24).astype(np.float32),
            *(f(0.01), f(0.02), None, u(120), np.int8(0)),
        ],
    ),
    "DynamicQuantizeLSTM": (
        {"hidden_size": 6, "direction": "bidirectional"},
        [
            RNG.standard_normal((7, 1, 4)).astype(np.float32),
            RNG.integers(-128, 128, (2, 4, 24)).astype(np.int8),
            RNG.integers(-128, 128, (2, 6, 24)).astype(np.int8),
            RNG.standard_normal((2, 48)).astype(np.float32),
            *(None, None, None, None),
            *(np.full(2, 0.006, np.float32), np.zeros(2, np.int8)),
            *(np.float32([0.004, 0.007]), np.zeros(2, np.int8)),
        ],
    ),
    "DynamicQuantizeLSTM by columns": (
        {"hidden_size": 6},
        [
            RNG.standard_normal((7, 1, 4)).astype(np.float32),
            RNG.integers(-128, 128, (1, 4, 24)).astype(np.int8),
            RNG.integers(-128, 128, (1, 6, 24)).astype(np.int8),
            *(None, None, None, None, None),
            *((0.002 + 0.01 * RNG.random((1, 24))).astype(np.float32), np.zeros((1, 24), np.int8)),
            *((0.002 + 0.01 * RNG.random((1, 24))).astype(np.float32), np.zeros((1, 24), np.int8)),
        ],
    ),
}


def model_of(name: str) -> tuple[Any, dict[str, Any]]:
    attributes, inputs = CASES[name]
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    outputs = [helper.make_empty_tensor_value_info("y")]
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    traced = [n for n, x in given.items() if x.ndim > 1]
    node = helper.make_node(name.split()[0], names, ["y"], domain="com.microsoft", **attributes)
    kinds = {n: helper.np_dtype_to_tensor_dtype(given[n].dtype) for n in given}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds[n], given[n].shape) for n in traced],
        outputs,
        [numpy_helper.from_array(x, n) for n, x in given.items() if n not in traced],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model, {n: given[n] for n in traced}


def by_onnxruntime(model: Any, inputs: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def compare(found: Any, wanted: Any, most: float) -> None:
    """Bytes differ in a share of `most` elements, by one step; floats as much as their sums' order."""
    found = np.asarray(found)
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
        return
    steps = np.abs(found.astype(int) - wanted.astype(int))
    assert steps.max(initial=0) <= 1
    assert (steps > 0).mean() <= most, (steps > 0).mean()


@pytest.mark.parametrize("name", CASES)
def test_microsoft_quantized_operators_are_onnxruntimes(name: str) -> None:
    model, inputs = model_of(name)
    program = neuronsim.compile(model, auto_cast="none")
    (wanted,) = by_onnxruntime(model, inputs)
    compare(program(**inputs), wanted, most=0.005)


# ---- models of the quantizer of onnxruntime ----------------------------------------------------------


def exported(kind: str, folder: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A network of torch's as ONNX, and inputs drawn for it."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(24)

    class Convolutions(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(32, 32, 3, 2, 1)
            self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.pointwise, self.head = nn.Conv2d(16, 32, 1), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.pointwise(torch.relu(self.depthwise(torch.relu(self.first(x))))))
            y = nn.functional.leaky_relu(self.last(nn.functional.max_pool2d(x, 2)))
            y = torch.cat([y, torch.sigmoid(y) * y], 1)[:, :32] + y
            return self.head(y.mean((2, 3)))

    class Transformer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x).mean(1))

    network = (Convolutions if kind == "cnn" else Transformer)().eval()
    dims = (1, 3, 16, 16) if kind == "cnn" else (1, 12, 32)
    inputs = [{"x": RNG.standard_normal(dims).astype(np.float32)} for _ in range(200)]
    path = folder / f"{kind}.onnx"
    example = (torch.tensor(inputs[0]["x"]),)
    torch.onnx.export(
        network, example, str(path), input_names=["x"], output_names=["y"], dynamo=False,
        opset_version=17,
    )  # fmt: skip
    return path, inputs


def with_all_bytes(path: Any) -> Any:
    """The model with all of its tensors of bytes as results, beside its own."""
    model = onnx.load(path)
    stored = {i.name for i in model.graph.initializer}
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    own = {o.name for o in model.graph.output}
    for node in model.graph.node:
        quantizes = node.op_type in ("QuantizeLinear", "QGemm") or node.op_type.startswith("QLinear")
        name = node.output[0]
        if quantizes and name not in stored | own:
            model.graph.output.append(inferred.get(name, helper.make_empty_tensor_value_info(name)))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_models_of_onnxruntimes_quantizer(
    kind: str, form: str, per_channel: bool, tmp_path: Any
) -> None:
    """All their 8-bit tensors on 10 inputs, and the class on 200. A QDQ model is compared as it is
    written: the fusions of onnxruntime's optimiser give other bytes than the model (docs/quantization).
    """
    quantization = pytest.importorskip("onnxruntime.quantization")
    path, inputs = exported(kind, tmp_path)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        samples = iter(inputs[:20])

        def get_next(self) -> Any:
            return next(self.samples, None)

    target = tmp_path / "quantized.onnx"
    quant_format = getattr(quantization.QuantFormat, form)
    quantization.quantize_static(
        path, target, Reader(), quant_format=quant_format, per_channel=per_channel
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if form == "QDQ":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    shapes = {"x": inputs[0]["x"].shape}
    whole = with_all_bytes(target)
    program = neuronsim.compile(whole, auto_cast="none", input_shapes=shapes)
    session = ort.InferenceSession(
        whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    differing = count = 0
    for x in inputs[:10]:
        for found, wanted in zip(program(**x), session.run(None, x), strict=True):
            if wanted.dtype.kind == "f":
                continue
            steps = np.abs(np.asarray(found).astype(int) - wanted.astype(int))
            assert steps.max() <= 1
            differing, count = differing + int((steps > 0).sum()), count + steps.size
    assert count > 10_000
    assert differing <= count / 10_000, (differing, count)
    program = neuronsim.compile(target, auto_cast="none", input_shapes=shapes)
    session = ort.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    for x in inputs:
        assert np.asarray(program(**x)).argmax() == session.run(None, x)[0].argmax()


@pytest.mark.filterwarnings("ignore")
def test_magika_quantized_dynamically(tmp_path: Any) -> None:
    """Onnxruntime's quantize_dynamic of magika: DynamicQuantizeLinear, MatMulInteger, ConvInteger."""
    magika = pytest.importorskip("magika")
    quantization = pytest.importorskip("onnxruntime.quantization")
    from pathlib import Path

    source = Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
    target = tmp_path / "magika.onnx"
    quantization.quantize_dynamic(source, target)
    files = RNG.integers(0, 257, (20, 2048)).astype(np.int32)
    program = neuronsim.compile(target, auto_cast="none", input_shapes={"bytes": (5, 2048)})
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    for at in range(0, 20, 5):
        x = files[at : at + 5]
        found, (wanted, *_) = np.asarray(program(bytes=x)), session.run(None, {"bytes": x})
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        assert np.abs(found - wanted).max() <= 0.02
