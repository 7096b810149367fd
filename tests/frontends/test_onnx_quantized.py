"""The quantized operators of com.microsoft and models that onnxruntime's own quantizer made, QOperator
and QDQ: 8-bit tensors are onnxruntime's but for ties of the exact value, one step off.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.quantized_values import BEFORE_ROUNDING, before_rounding, lies_at_a_tie

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
    "QAttention with a cache": (
        {"num_heads": 2, "unidirectional": 1},
        [
            RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8),
            RNG.integers(-128, 128, (8, 24)).astype(np.int8),
            RNG.standard_normal(24).astype(np.float32),
            *(f(0.01), f(0.02), None, u(120), np.int8(0)),
            RNG.standard_normal((2, 2, 2, 3, 4)).astype(np.float32),
        ],
    ),
}


def model_of(name: str, traces_weights: bool = False) -> tuple[Any, dict[str, Any]]:
    """The operator and its inputs. Onnxruntime's exact products ask for stored matrices of int8."""
    attributes, inputs = CASES[name]
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    outputs = [helper.make_empty_tensor_value_info("y")]
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    stored = () if traces_weights else (np.int8,)
    traced = [n for n, x in given.items() if x.ndim > 1 and x.dtype not in stored]
    made = ["y", "present"] if "cache" in name else ["y"]  # onnxruntime wants both
    node = helper.make_node(name.split()[0], names, made, domain="com.microsoft", **attributes)
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
    # Without VNNI onnxruntime's products of u8 by s8 saturate; with this, stored weights become u8.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def check_ties(found: Any, wanted: Any, node: Any, inputs: list[Any]) -> Any:
    """Where bytes that a node makes of these inputs differ: by one step, and where the exact value lies
    at a tie.
    """
    steps = np.abs(np.asarray(found).astype(int) - wanted.astype(int))
    assert steps.max(initial=0) <= 1, node.op_type
    if steps.any():
        exact = before_rounding(node, inputs)[steps > 0]
        assert lies_at_a_tie(exact).all(), (node.op_type, exact)
    return steps > 0


@pytest.mark.parametrize("name", CASES)
def test_microsoft_quantized_operators_are_onnxruntimes(name: str) -> None:
    """Floats by as much as their sums' order, bytes but for ties of the exact value."""
    model, inputs = model_of(name)
    found = np.asarray(neuronsim.compile(model, auto_cast="none")(**inputs))
    (wanted,) = by_onnxruntime(model, inputs)
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
        return
    (node,), given = model.graph.node, CASES[name][1]
    assert check_ties(found, wanted, node, given).mean() <= 0.005


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("QGemm", "MatMul", "DynamicQuantizeMatMul"))]
)
def test_traced_weights_give_what_stored_ones_give(name: str) -> None:
    (stored, inputs), (traced, all_inputs) = model_of(name), model_of(name, traces_weights=True)
    assert len(all_inputs) > len(inputs)
    found = neuronsim.compile(traced, auto_cast="none")(**all_inputs)
    wanted = neuronsim.compile(stored, auto_cast="none")(**inputs)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.split()[0] in BEFORE_ROUNDING and "floats" not in n]
)
def test_a_byte_that_is_wrong_is_at_no_tie(name: str) -> None:
    """The control: one step beside the right bytes is told from ties; the right ones are nearest."""
    model, inputs = model_of(name)
    (node,), given = model.graph.node, CASES[name][1]
    exact = before_rounding(node, given)
    assert lies_at_a_tie(exact).mean() < 0.3  # of ratios like 5/4 a quarter does
    found = np.asarray(neuronsim.compile(model, auto_cast="none")(**inputs)).astype(int)
    zero = found - np.rint(exact)
    inside = (found > 0) & (found < 255) & ~lies_at_a_tie(exact)
    assert (zero[inside] == zero[inside][0]).all()
    with pytest.raises(AssertionError):
        check_ties(found + 1, found, node, given)


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


QUANTIZING = {*BEFORE_ROUNDING, "QLinearWhere", "QLinearReduceMean"}


def with_all_tensors(path: Any) -> Any:
    """The model with all of its tensors of bytes, and what these are made of, as results too."""
    model = onnx.load(path)
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    made = {o for n in model.graph.node for o in n.output}
    wanted = [o for n in model.graph.node if n.op_type in QUANTIZING for o in (*n.output, *n.input)]
    own = {o.name for o in model.graph.output}
    for name in dict.fromkeys(wanted):
        if name in made - own:
            model.graph.output.append(inferred.get(name, helper.make_empty_tensor_value_info(name)))
    return model


def differing_bytes(model: Any, ours: Any, session: Any, x: dict[str, Any]) -> Any:
    """How many bytes of all the tensors differ from onnxruntime's: of those made of equal bytes, which
    differ at ties alone, and of those made of others; and how many there are.
    """
    names = [o.name for o in model.graph.output]
    stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    found, wanted = (dict(zip(names, run, strict=True)) for run in (ours, session.run(None, x)))
    known = stored | x | wanted
    others: set[str] = set()  # tensors that are made of bytes that differ
    differing, count = [0, 0], 0
    for node in model.graph.node:
        name, is_other = node.output[0], not others.isdisjoint(node.input)
        if node.op_type in QUANTIZING:
            if is_other:
                differs = np.asarray(found[name]) != wanted[name]
            else:
                inputs = [known[n] if n else None for n in node.input]
                differs = check_ties(found[name], wanted[name], node, inputs)
            differing[is_other] += int(differs.sum())
            count += differs.size
            is_other = bool(differs.any())
        if is_other:
            others.update(node.output)
    return np.array([*differing, count])


def quantized_by_onnxruntime(
    source: Any, target: Any, samples: list[dict[str, Any]], form: str, per_channel: bool
) -> Any:
    """Onnxruntime's static quantization of a model, and its options to run that as it is written."""
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        given = iter(samples)

        def get_next(self) -> Any:
            return next(self.given, None)

    quant_format = getattr(quantization.QuantFormat, form)
    quantization.quantize_static(
        source, target, Reader(), quant_format=quant_format, per_channel=per_channel
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if form == "QDQ":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def check_quantized(
    target: Any, options: Any, shapes: dict[str, Any], inputs: list[dict[str, Any]], whole: int
) -> None:
    """All 8-bit tensors on the first `whole` inputs, and the class on all."""
    model = with_all_tensors(target)
    program = neuronsim.compile(model, auto_cast="none", input_shapes=shapes)
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    found = [differing_bytes(model, program(**x), session, x) for x in inputs[:whole]]
    at_ties, behind, count = sum(found).tolist()
    print(f"{at_ties} bytes at ties, {behind} made of such, of {count}")
    assert count > 10_000
    assert at_ties <= count / 10_000
    assert behind <= count / 1_000
    program = neuronsim.compile(target, auto_cast="none", input_shapes=shapes)
    session = ort.InferenceSession(str(target), options, providers=providers)
    for x in inputs:
        ours, theirs = np.asarray(program(**x)), session.run(None, x)[0]
        np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))


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
    path, inputs = exported(kind, tmp_path)
    target = tmp_path / "quantized.onnx"
    options = quantized_by_onnxruntime(path, target, inputs[:20], form, per_channel)
    check_quantized(target, options, {"x": inputs[0]["x"].shape}, inputs, 10)


def magika_model() -> Path:
    magika = pytest.importorskip("magika")
    return Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_magika_quantized_statically(form: str, per_channel: bool, tmp_path: Any) -> None:
    """All 8-bit tensors of 2 x 20 files, and the class of 200: beginnings and ends of Python's own."""
    files = [f for f in sorted(Path(os.__file__).parent.rglob("*.py")) if f.stat().st_size >= 2048]
    words = [np.frombuffer(f.read_bytes(), np.uint8).astype(np.int32) for f in files[:240]]
    rows = np.stack([np.concatenate([w[:1024], w[-1024:]]) for w in words])
    inputs = [{"bytes": rows[at : at + 20]} for at in range(0, 200, 20)]
    target = tmp_path / "magika.onnx"
    samples = [{"bytes": rows[200 + n :][:20]} for n in (0, 20)]
    options = quantized_by_onnxruntime(magika_model(), target, samples, form, per_channel)
    check_quantized(target, options, {"bytes": (20, 2048)}, inputs, 2)


@pytest.mark.filterwarnings("ignore")
def test_magika_quantized_dynamically(tmp_path: Any) -> None:
    """Onnxruntime's quantize_dynamic of magika: DynamicQuantizeLinear, MatMulInteger, ConvInteger."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    target = tmp_path / "magika.onnx"
    quantization.quantize_dynamic(magika_model(), target)
    files = RNG.integers(0, 257, (20, 2048)).astype(np.int32)
    program = neuronsim.compile(target, auto_cast="none", input_shapes={"bytes": (5, 2048)})
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    for at in range(0, 20, 5):
        x = files[at : at + 5]
        found, (wanted, *_) = np.asarray(program(bytes=x)), session.run(None, {"bytes": x})
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
        assert np.abs(found - wanted).max() <= 0.02
