"""The operators of language models that onnxruntime has kernels for, the fused ones of its optimiser of
transformers (com.microsoft) and ONNX's own: traced as eager, and its values.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import neuronsim
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedOperator

onnx = pytest.importorskip("onnx")
table = pytest.importorskip("neuronsim.frontends.onnx.table")


def drawn(*shape: int) -> Any:
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype(numpy.float32)


X, W = drawn(2, 5, 16), drawn(16, 48)
IDS = numpy.array([[1, 2, 3], [4, 0, 2]], numpy.int32)
MASK = numpy.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], numpy.int32)
LENGTHS = numpy.array([3, 5], numpy.int32)
LONG_MASK = numpy.concatenate([numpy.ones((2, 3), numpy.int32), MASK], 1)
BOTH = numpy.stack([drawn(2, 4, 3, 4), drawn(2, 4, 3, 4) + 1])  # keys and values of 3 places
HEADS = {"num_heads": 4}
SHARED = {"num_heads": 4, "kv_num_heads": 2}  # heads of 16
LOCAL = {**SHARED, "local_window_size": 3}
ROTARY = {**SHARED, "do_rotary": 1}
PROMPT = [drawn(2, 5, 64), drawn(2, 5, 32), drawn(2, 5, 32) + 1]
TOKEN = [drawn(2, 1, 64), drawn(2, 1, 32), drawn(2, 1, 32) + 1]
CHUNK = [drawn(1, 3, 64), drawn(1, 3, 32), drawn(1, 3, 32) + 1]
NO_PAST = [None, None]
PAST = [drawn(2, 2, 6, 16), drawn(2, 2, 6, 16) + 1]
ONE_PAST = [drawn(1, 2, 4, 16), drawn(1, 2, 4, 16) + 1]
GROUPED = [drawn(2, 4, 5, 16), drawn(2, 2, 5, 16), drawn(2, 2, 5, 16) + 1]
ANGLES = [numpy.cos(drawn(9, 8)), numpy.sin(drawn(9, 8))]


def past(*lengths: int) -> list[Any]:
    """Caches with so many keys of each sample: onnxruntime drops what lies behind them."""
    rows = numpy.arange(6) < numpy.reshape(lengths, (-1, 1, 1))
    return [x * rows[..., None].astype(numpy.float32) for x in PAST]


def ends(total: int, *places: int) -> list[Any]:
    """The places of the samples' last keys, and the length of the longest."""
    return [numpy.array(places, numpy.int32), numpy.array(total, numpy.int32)]


def narrow(bits: int, size: int, depth: int, zero_points: str = "") -> tuple[dict[str, Any], list[Any]]:
    """Weights of 6 columns in integers of so many bits, in blocks of `size`."""
    blocks = -(-depth // size)
    draw = numpy.random.default_rng(bits + size).integers
    codes = draw(0, 256, (6, blocks, size * bits // 8)).astype(numpy.uint8)
    zeros: Any = None
    if zero_points == "bytes":
        zeros = draw(0, 256, (6, -(-blocks * bits // 8))).astype(numpy.uint8)
    elif zero_points == "floats":
        zeros = drawn(6, blocks) + 7
    attributes = {"K": depth, "N": 6, "bits": bits, "block_size": size}
    return attributes, [drawn(2, 3, depth) / 2**bits, codes, drawn(6, blocks), zeros]


# The operator, its attributes and its inputs, None of those that are left out; a number without axes is
# the model's own.
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
    "Attention with a cache": ({**HEADS, "unidirectional": 1}, [X, W, drawn(48), None, BOTH]),
    "Attention with a cache and a mask": (HEADS, [X, W, drawn(48), LONG_MASK, BOTH]),
    "MultiHeadAttention with a cache": (
        {**HEADS, "unidirectional": 1},
        [X, drawn(2, 5, 16), drawn(2, 5, 16), None, None, None, *BOTH],
    ),
    "MultiHeadAttention with a cache, a bias and a mask": (
        HEADS,
        [X, drawn(2, 5, 16), drawn(2, 5, 16), drawn(48), LONG_MASK, drawn(2, 4, 5, 8), *BOTH],
    ),
    "MultiHeadAttention": (HEADS, [X, drawn(2, 7, 16), drawn(2, 7, 16)]),
    "MultiHeadAttention with a bias": (HEADS, [X, drawn(2, 7, 16), drawn(2, 7, 16), drawn(48)]),
    "MultiHeadAttention with a mask": (
        {**HEADS, "scale": 0.3},
        [X, drawn(2, 5, 16), drawn(2, 5, 16), None, MASK],
    ),
    "GroupQueryAttention": (SHARED, [*PROMPT, *NO_PAST, *ends(5, 4, 4)]),
    "GroupQueryAttention of one head": (
        {"num_heads": 4, "kv_num_heads": 1, "scale": 0.2},
        [PROMPT[0], *(x[..., :16] for x in PROMPT[1:]), *NO_PAST, *ends(5, 4, 4)],
    ),
    "GroupQueryAttention packed": (
        ROTARY,
        [numpy.concatenate(PROMPT, 2), None, None, *NO_PAST, *ends(5, 4, 4), *ANGLES],
    ),
    "GroupQueryAttention of a prompt after nothing": (
        ROTARY,
        [*PROMPT, *(x[:, :, :0] for x in PAST), *ends(5, 4, 4), *ANGLES],
    ),
    "GroupQueryAttention of a token": (SHARED, [*TOKEN, *PAST, *ends(7, 6, 6)]),
    "GroupQueryAttention of samples of their own lengths": (
        ROTARY,
        [*TOKEN, *past(6, 3), *ends(7, 6, 3), *ANGLES],
    ),
    "GroupQueryAttention in a cache of one length": (
        ROTARY,
        [*TOKEN, *past(4, 2), *ends(6, 4, 2), *ANGLES],
    ),
    "GroupQueryAttention in a longer cache": (LOCAL, [*TOKEN, *past(4, 2), *ends(5, 4, 2)]),
    "GroupQueryAttention of a chunk": (
        {**ROTARY, "rotary_interleaved": 1, "softcap": 2.0},
        [*CHUNK, *ONE_PAST, *ends(7, 6), *ANGLES],
    ),
    "GroupQueryAttention of a window": (LOCAL, [*PROMPT, *NO_PAST, *ends(5, 4, 4)]),
    "GroupQueryAttention of a window and a chunk": (LOCAL, [*CHUNK, *ONE_PAST, *ends(7, 6)]),
    "GroupQueryAttention rotated in part": (
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1},
        [*TOKEN, *(x.reshape(2, 1, 6, 32) for x in PAST), *ends(7, 6, 6), *ANGLES],
    ),
    "GroupQueryAttention of a prompt at places": (
        ROTARY,
        [*PROMPT, *NO_PAST, *ends(5, 4, 4), *ANGLES, numpy.arange(10).reshape(2, 5) % 8 + 1],
    ),
    "GroupQueryAttention of a chunk at places": (
        ROTARY,
        [*CHUNK, *ONE_PAST, *ends(7, 6), *ANGLES, numpy.array([[8, 0, 5]])],
    ),
    "GroupQueryAttention with a bias": (
        {**SHARED, "softcap": 3.0},
        [*TOKEN, *PAST, *ends(7, 6, 6), None, None, None, drawn(2, 1, 1, 7)],
    ),
    "GroupQueryAttention with sinks": (
        SHARED,
        [*PROMPT, *NO_PAST, *ends(5, 4, 4), None, None, None, None, drawn(4)],
    ),
    "GroupQueryAttention with a smooth softmax": (
        {**SHARED, "smooth_softmax": 1},
        [*TOKEN, *past(6, 4), *ends(7, 6, 4)],
    ),
    "GroupQueryAttention both ways": ({**SHARED, "causal": 0}, [*CHUNK, *ONE_PAST, *ends(7, 6)]),
    "RotaryEmbedding": ({}, [drawn(2, 5, 32), numpy.arange(10).reshape(2, 5) % 7, *ANGLES]),
    "RotaryEmbedding interleaved": (
        {"interleaved": 1},
        [drawn(2, 2, 5, 16), numpy.arange(10).reshape(2, 5) % 7, *ANGLES],
    ),
    "RotaryEmbedding from a place on": ({}, [drawn(2, 5, 32), numpy.array([3]), *ANGLES]),
    "RotaryEmbedding in part": (
        {"num_heads": 2, "rotary_embedding_dim": 16},
        [drawn(2, 5, 64), numpy.arange(10).reshape(2, 5) % 7, *ANGLES],
    ),
    "MatMulNBits of 2 bits": narrow(2, 16, 40),
    **{
        f"MatMulNBits of {bits} bits, blocks of {size}, {zeros or 'no'} zero points": narrow(
            bits, size, depth, zeros
        )
        for bits in (4, 8)
        for size, depth in ((16, 40), (32, 96), (64, 64), (128, 256))
        for zeros in ("", "bytes", *(["floats"] if bits == 4 else []))
    },
    "MatMulNBits with a bias": (
        narrow(4, 32, 64)[0],
        [*narrow(4, 32, 64)[1], None, drawn(6)],
    ),
    # By the functions that ONNX gives them, but for RMSNormalization.
    "ai.onnx.RotaryEmbedding": (
        {"num_heads": 2},
        [drawn(2, 5, 32), *ANGLES, numpy.arange(10).reshape(2, 5) % 7],
    ),
    "ai.onnx.RotaryEmbedding interleaved": (
        {"interleaved": 1},
        [drawn(2, 2, 5, 16), *ANGLES, numpy.arange(10).reshape(2, 5) % 7],
    ),
    "ai.onnx.RotaryEmbedding in part": (
        {"rotary_embedding_dim": 8},
        [drawn(2, 2, 5, 16), numpy.cos(drawn(2, 5, 4)), numpy.sin(drawn(2, 5, 4))],
    ),
    "ai.onnx.Attention of what came before": ({"is_causal": 1}, GROUPED),
    "ai.onnx.Attention of heads side by side": (
        {"is_causal": 1, "q_num_heads": 4, "kv_num_heads": 2},
        PROMPT,
    ),
    "ai.onnx.Attention with a cache": ({"is_causal": 1}, [*GROUPED, None, *PAST]),
    "ai.onnx.Attention with a cache, of a token": (
        {"is_causal": 1, "q_num_heads": 4, "kv_num_heads": 2},
        [*TOKEN, None, *PAST],
    ),
    "ai.onnx.Attention with a cache and a mask": (
        {"softcap": 2.0, "scale": 0.3},
        [*GROUPED, drawn(2, 1, 5, 11), *PAST],
    ),
    "ai.onnx.Attention with a row that sees nothing": ({}, [*GROUPED, numpy.tri(5, 5, -1, dtype=bool)]),
    "ai.onnx.Attention of lengths": (
        {"is_causal": 1},
        [GROUPED[0][:, :, :2].copy(), *GROUPED[1:], None, None, None, numpy.array([5, 3])],
    ),
    "ai.onnx.RMSNormalization": ({}, [X, drawn(16)]),
    "ai.onnx.RMSNormalization of two axes": ({"axis": 1, "epsilon": 1e-3}, [X, drawn(5, 16)]),
}
# Cases whose other outputs are compared as well; those that onnxruntime does not take without.
OUTPUTS = {
    "Attention with a cache": ["y0", "y1"],
    "MultiHeadAttention with a cache": ["y0", "y1", "y2"],
    "GroupQueryAttention": ["y0", "y1", "y2"],
    "ai.onnx.Attention with a cache": ["y0", "y1", "y2"],
}
MADE = {"EmbedLayerNormalization": 2}


def model_of(name: str, floats: Any = numpy.float32) -> tuple[Any, dict[str, Any]]:
    attributes, inputs = CASES[name]
    inputs = [x.astype(floats) if getattr(x, "dtype", None) == numpy.float32 else x for x in inputs]
    operator = name.split()[0].removeprefix("ai.onnx.")
    domain = "" if name.startswith("ai.onnx.") else table.MICROSOFT
    given = {f"x{n}": x for n, x in enumerate(inputs) if x is not None}
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(inputs)]
    helper = onnx.helper
    outputs = next((ys for case, ys in OUTPUTS.items() if name.startswith(case)), ["y0"])
    results = [f"y{n}" for n in range(MADE.get(operator, len(outputs)))]
    node = helper.make_node(operator, names, results, name="fused", domain=domain, **attributes)
    own = {n: given.pop(n) for n in list(given) if not given[n].ndim}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(floats))
    found = [helper.make_tensor_value_info(y, kind, None) for y in outputs]
    constants = [onnx.numpy_helper.from_array(x, n) for n, x in own.items()]
    graph = helper.make_graph([node], "graph", declared, found, constants)
    versions = [helper.make_opsetid("", 17 if domain else 24), helper.make_opsetid(table.MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10), given


def arrays(found: Any) -> list[Any]:
    return [numpy.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", CASES)
def test_fused_operators_have_the_eager_bits_and_onnxruntimes_values(name: str) -> None:
    model, given = model_of(name)
    shapes = {n: x.shape for n, x in given.items()}  # a declared length of 0 is an open one
    found = arrays(neuronsim.compile(model, input_shapes=shapes, auto_cast="none")(*given.values()))
    known = arrays(neuronsim.compile(model, input_values=given, auto_cast="none")())
    assert [x.tobytes() for x in known] == [x.tobytes() for x in found]
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for y, expected in zip(found, session.run(None, given), strict=True):
        numpy.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("GroupQ", "MatMulN", "MultiHead", "Rotary"))]
)
def test_operators_of_float16_are_near_onnxruntimes(name: str) -> None:
    """Within 2 units in the last place of the largest: onnxruntime rounds at other steps."""
    model, given = model_of(name, numpy.float16)
    shapes = {n: x.shape for n, x in given.items()}
    found = arrays(neuronsim.compile(model, input_shapes=shapes, auto_cast="none")(*given.values()))
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for y, expected in zip(found, session.run(None, given), strict=True):
        assert y.dtype == expected.dtype == numpy.float16
        error = abs(y.astype(float) - expected.astype(float)).max()
        assert error <= 2 * numpy.spacing(abs(expected).max())


def test_prompts_of_their_own_lengths_are_onnxruntimes_up_to_their_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies behind a sample's end is padding, of which the operator says nothing."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    name = "GroupQueryAttention of prompts"
    monkeypatch.setitem(CASES, name, (ROTARY, [*PROMPT, *NO_PAST, *ends(5, 4, 2), *ANGLES]))
    model, given = model_of(name)
    found = arrays(neuronsim.compile(model, auto_cast="none")(*given.values()))
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, given)
    numpy.testing.assert_allclose(found[0][0], wanted[0][0], rtol=2e-5, atol=2e-5)
    numpy.testing.assert_allclose(found[0][1, :3], wanted[0][1, :3], rtol=2e-5, atol=2e-5)
    for y, expected in zip(found[1:], wanted[1:], strict=True):
        numpy.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)


def test_every_fused_operator_has_a_case() -> None:
    rows = {
        name
        for (domain, name), versions in table.OPERATORS.items()
        if domain == table.MICROSOFT
        and "quanti" not in versions[0].function.__module__  # test_onnx_quantized.py has these
    } | {"MatMulNBits"}
    assert rows == {name.split()[0] for name in CASES if not name.startswith("ai.onnx.")}


def test_forms_that_are_not_taken_are_named() -> None:
    model, _ = model_of("Attention")
    attribute = onnx.helper.make_attribute("do_rotary", 1)
    model.graph.node[0].attribute.append(attribute)
    with pytest.raises(UnsupportedOperator, match=r"fused \(Attention\).*rotary"):
        neuronsim.compile(model)


@pytest.mark.parametrize(
    ("name", "attributes", "error"),
    [
        ("GroupQueryAttention", {"sliding_window_cache": 1}, r"fused \(GroupQ.*sliding_window_cache"),
        ("GroupQueryAttention", {"k_quant_type": "PER_TENSOR"}, "k_quant_type"),
        ("GroupQueryAttention", {"kv_num_heads": 3}, "4 heads of the query share 3"),
        ("RotaryEmbedding", {"scale": 2.0}, r"fused \(RotaryEmbedding\).*scale"),
        ("RotaryEmbedding", {"rotary_embedding_dim": 4}, "rotates 4 elements"),
        ("MatMulNBits of 2 bits", {"bits": 3}, r"fused \(MatMulNBits\).*of 3 bits"),
        ("MatMulNBits of 2 bits", {"weight_prepacked": 1}, "weight_prepacked"),
        ("MatMulNBits of 2 bits", {"block_size": 32}, r"fused \(MatMulNBits\)"),
    ],
)
def test_attributes_that_are_not_taken_are_named(
    name: str, attributes: dict[str, Any], error: str
) -> None:
    model, _ = model_of(name)
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    with pytest.raises(NeuronSimError, match=error):
        neuronsim.compile(model)


def test_a_total_length_that_an_input_decides_is_asked_for() -> None:
    model, _ = model_of("GroupQueryAttention of a token")
    total = model.graph.initializer.pop()
    model.graph.input.append(onnx.helper.make_tensor_value_info(total.name, total.data_type, []))
    with pytest.raises(InvalidArgument, match=rf"input '{total.name}'.*input_values"):
        neuronsim.compile(model)


@pytest.mark.parametrize(
    ("name", "place"),
    [("GroupQueryAttention of a token", 4), ("MultiHeadAttention with a cache", 6)],
)
def test_half_a_cache_is_refused(name: str, place: int) -> None:
    model, _ = model_of(name)
    model.graph.node[0].input[place] = ""
    with pytest.raises(InvalidModel, match="one of past_key and past_value"):
        neuronsim.compile(model)


def test_groups_of_weights_are_refused() -> None:
    model, _ = model_of("MatMulNBits with a bias")
    model.graph.node[0].input[4] = "x0"
    with pytest.raises(UnsupportedOperator, match="g_idx"):
        neuronsim.compile(model)


DECODER = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
graph (int64[B,S] ids, int64[B,T] mask, float[B,2,P,16] past_key, float[B,2,P,16] past_value)
    => (float[B,S,V] logits, float[B,2,T,16] present_key, float[B,2,T,16] present_value) {
    last = Constant <value = int64[1] {1}> ()
    sums = ReduceSum (mask, last)
    ends = Sub (sums, last)
    ends32 = Cast <to = 6> (ends)
    shape = Shape (mask)
    axis = Constant <value = int64 {1}> ()
    total = Gather (shape, axis)
    total32 = Cast <to = 6> (total)
    x = Gather (words, ids)
    n = SimplifiedLayerNormalization <axis = -1> (x, scale)
    qkv = com.microsoft.MatMulNBits <K = 64, N = 128, bits = 4, block_size = 32> (n, wqkv, sqkv)
    a, present_key, present_value = com.microsoft.GroupQueryAttention
        <num_heads = 4, kv_num_heads = 2, do_rotary = 1>
        (qkv, no_key, no_value, past_key, past_value, ends32, total32, cos, sin)
    o = com.microsoft.MatMulNBits <K = 64, N = 64, bits = 4, block_size = 32> (a, wo, so)
    y, mean, deviation, h = com.microsoft.SkipSimplifiedLayerNormalization (x, o, scale)
    columns = Transpose <perm = [1, 0]> (words)
    logits = MatMul (y, columns)
}"""


def test_a_decoder_goes_on_from_its_cache_as_onnxruntime_does() -> None:
    """As onnxruntime's builder of models writes one: the ends come from the mask, the total length from
    its shape; the second sample ends earlier.
    """
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    parser = pytest.importorskip("onnx.parser")
    rng = numpy.random.default_rng(0)
    model = parser.parse_model(DECODER)
    node = next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")
    node.input[1] = node.input[2] = ""
    own = {
        "words": drawn(64, 64) / 4, "scale": drawn(64) + 1,
        "wqkv": rng.integers(0, 256, (128, 2, 16), dtype=numpy.uint8), "sqkv": drawn(128, 2) / 16,
        "wo": rng.integers(0, 256, (64, 2, 16), dtype=numpy.uint8), "so": drawn(64, 2) / 16,
        "cos": numpy.cos(drawn(16, 8)), "sin": numpy.sin(drawn(16, 8)),
    }  # fmt: skip
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in own.items())
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    past = [numpy.zeros((2, 2, 0, 16), numpy.float32)] * 2
    for length, mask in ((5, [[1] * 5] * 2), (1, [[1] * 6] * 2), (1, [[1] * 7, [1] * 6 + [0]])):
        ids = rng.integers(0, 64, (2, length))
        given = dict(
            zip(("ids", "mask", "past_key", "past_value"), (ids, numpy.array(mask), *past), strict=True)
        )
        shapes = {n: x.shape for n, x in given.items()}
        program = neuronsim.compile(model, input_shapes=shapes, auto_cast="none")
        wanted = session.run(None, given)
        for y, expected in zip(program(*given.values()), wanted, strict=True):
            numpy.testing.assert_allclose(numpy.asarray(y), expected, rtol=2e-5, atol=2e-5)
        past = wanted[1:]
