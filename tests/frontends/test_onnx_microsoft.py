"""The fused operators of onnxruntime's optimiser of transformers: traced as eager, and its values."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import neuronsim
from neuronsim.errors import UnsupportedOperator

onnx = pytest.importorskip("onnx")
table = pytest.importorskip("neuronsim.frontends.onnx.table")


def drawn(*shape: int) -> Any:
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype(numpy.float32)


X, W = drawn(2, 5, 16), drawn(16, 48)
IDS = numpy.array([[1, 2, 3], [4, 0, 2]], numpy.int32)
MASK = numpy.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], numpy.int32)
LENGTHS = numpy.array([3, 5], numpy.int32)
HEADS = {"num_heads": 4}
# The operator, its attributes and its inputs, None of those that are left out.
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "Gelu": ({}, [X]),
    "BiasGelu": ({}, [X, drawn(16)]),
    "FastGelu": ({}, [X]),
    "FastGelu with a bias": ({}, [X, drawn(16)]),
    "QuickGelu": ({"alpha": 1.5}, [X]),
    "FusedMatMul": ({"alpha": 0.5, "transB": 1}, [X, drawn(2, 7, 16)]),
    "FusedMatMul transposed": ({"transA": 1}, [drawn(2, 16, 5), drawn(2, 16, 3)]),
    "SkipLayerNormalization": ({"epsilon": 1e-5}, [X, drawn(2, 5, 16), drawn(16), drawn(16)]),
    "SkipLayerNormalization with a bias": ({}, [X, drawn(2, 5, 16), drawn(16), drawn(16), drawn(16)]),
    "SkipSimplifiedLayerNormalization": ({}, [X, drawn(2, 5, 16), drawn(16)]),
    "EmbedLayerNormalization": (
        {"epsilon": 1e-6},
        [IDS, IDS % 2, drawn(9, 8), drawn(6, 8), drawn(2, 8), drawn(8), drawn(8)],
    ),
    "EmbedLayerNormalization of words": (
        {},
        [IDS, None, drawn(9, 8), drawn(6, 8), None, drawn(8), drawn(8)],
    ),
    "Attention": (HEADS, [X, W, drawn(48)]),
    "Attention with a mask": (HEADS, [X, W, drawn(48), MASK]),
    "Attention with lengths": (HEADS, [X, W, drawn(48), LENGTHS]),
    "Attention of what came before": ({**HEADS, "unidirectional": 1}, [X, W, drawn(48)]),
    "MultiHeadAttention": (HEADS, [X, drawn(2, 7, 16), drawn(2, 7, 16)]),
    "MultiHeadAttention with a bias": (HEADS, [X, drawn(2, 7, 16), drawn(2, 7, 16), drawn(48)]),
    "MultiHeadAttention with a mask": (
        {**HEADS, "scale": 0.3},
        [X, drawn(2, 5, 16), drawn(2, 5, 16), None, MASK],
    ),
}


def model_of(name: str, outputs: int = 1) -> tuple[Any, dict[str, Any]]:
    attributes, inputs = CASES[name]
    given = {f"x{n}": x for n, x in enumerate(inputs) if x is not None}
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(inputs)]
    helper = onnx.helper
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(
        name.split()[0], names, results, name="fused", domain=table.MICROSOFT, **attributes
    )
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given.items()
    ]
    found = [helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "graph", declared, found)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(table.MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10), given


@pytest.mark.parametrize("name", CASES)
def test_fused_operators_have_the_eager_bits_and_onnxruntimes_values(name: str) -> None:
    model, given = model_of(name)
    if name.startswith("EmbedLayerNormalization"):  # onnxruntime wants the second output
        model, given = model_of(name, outputs=2)
    found = numpy.asarray(neuronsim.compile(model, auto_cast="none")(*given.values()))
    known = neuronsim.compile(model, input_values=given, auto_cast="none")()
    assert numpy.asarray(known).tobytes() == found.tobytes()
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(["y0"], given)[0]
    numpy.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_every_fused_operator_has_a_case() -> None:
    rows = {
        name
        for (domain, name), versions in table.OPERATORS.items()
        if domain == table.MICROSOFT
        and "quanti" not in versions[0].function.__module__  # test_onnx_quantized.py has these
    }
    assert rows == {name.split()[0] for name in CASES}


def test_forms_that_are_not_taken_are_named() -> None:
    model, _ = model_of("Attention")
    attribute = onnx.helper.make_attribute("do_rotary", 1)
    model.graph.node[0].attribute.append(attribute)
    with pytest.raises(UnsupportedOperator, match=r"fused \(Attention\).*rotary"):
        neuronsim.compile(model)
