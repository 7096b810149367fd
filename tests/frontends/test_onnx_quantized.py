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
