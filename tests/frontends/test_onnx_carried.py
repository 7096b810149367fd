"""Element types that Trn1 lacks, whose values travel in others (integers of 2 and 4 bits, the float of
4 bits, float8 without negative zero, powers of two): stored, cast, quantized and dequantized as ONNX's
evaluator and onnxruntime have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neuronsim
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedOperator
from neuronsim.frontends.onnx.carried import CARRIED

onnx = pytest.importorskip("onnx")
parser = pytest.importorskip("onnx.parser")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto

pytestmark = pytest.mark.isa_independent

RNG = np.random.default_rng(4)
X = RNG.standard_normal((3, 12)).astype(np.float32)
FLOATS16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
INTEGERS = {"INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4}


def number(name: str) -> int:
    if name not in TensorProto.DataType.keys():  # noqa: SIM118 (an enum of protobuf's is no dict)
        pytest.skip(f"onnx {onnx.__version__} has no {name}")
    return int(TensorProto.DataType.Value(name))


def drawn(name: str, *dims: int) -> Any:
    """Codes of a type, as onnx's arrays have them."""
    codes = RNG.integers(0, 1 << CARRIED[name].bits, dims).astype(np.uint8)
    return CARRIED[name].values[codes].astype(CARRIED[name].numpy)


def model(nodes: list[Any], inputs: dict[str, Any], stored: dict[str, Any], version: int = 25) -> Any:
    """A model whose last node gives the output y."""
    if version > onnx.defs.onnx_opset_version():
        pytest.skip(f"onnx {onnx.__version__} has no version {version} of the operator set")
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in inputs.items()
    ]
    initializers = [numpy_helper.from_array(np.asarray(x), n) for n, x in stored.items()]
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "graph", declared, [y], initializers)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(op: str, inputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), ["y"], name="node", **attributes)


def run(made: Any, inputs: dict[str, Any]) -> Any:
    """The output of the program, which is that of the program whose inputs are all known."""
    program = neuronsim.compile(made, auto_cast="none", target="host")
    found = np.asarray(program(**inputs))
    known = neuronsim.compile(made, auto_cast="none", target="host", input_values=inputs)()
    assert found.dtype == np.asarray(known).dtype
    assert found.tobytes() == np.asarray(known).tobytes()
    return found


def by_evaluator(made: Any, inputs: dict[str, Any]) -> Any:
    from onnx.reference import ReferenceEvaluator  # which takes long to load

    with np.errstate(all="ignore"):
        return ReferenceEvaluator(made).run(None, inputs)[0]


def by_onnxruntime(made: Any, inputs: dict[str, Any]) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra peers)")
    options = runtime.SessionOptions()
    # Its optimiser multiplies weights of 4 bits by activations that it has quantized to 8.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    session = runtime.InferenceSession(made.SerializeToString(), options, providers=providers)
    return session.run(None, inputs)[0]


# ---- conversions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("name", CARRIED)
def test_every_float16_is_cast_as_onnx_does(name: str, saturate: int) -> None:
    is_integer = "INT" in name
    x = FLOATS16[np.isfinite(FLOATS16)] if is_integer else FLOATS16
    made = model([node("Cast", "x", to=number(name), saturate=saturate)], {"x": x}, {})
    found, wanted = run(made, {"x": x}), by_evaluator(made, {"x": x})
    assert found.dtype == CARRIED[name].carrier.numpy
    ours, theirs = (v.astype(np.float32) for v in (found, wanted))
    np.testing.assert_array_equal(ours, theirs)
    numbers = ~np.isnan(x) & ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(ours)[numbers], np.signbit(theirs)[numbers])


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_as_onnx_does(mode: str) -> None:
    x = RNG.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    x = np.append(x, np.float32([0, 2.0**-127, 1.5 * 2.0**-127, 3.3e38, 1.5, 2.5, 3]))
    to = number("FLOAT8E8M0")
    made = model([node("Cast", "x", to=to, round_mode=mode)], {"x": x}, {})
    found, wanted = run(made, {"x": x}), by_evaluator(made, {"x": x})
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


def test_an_unknown_way_of_rounding_is_named() -> None:
    made = model([node("Cast", "x", to=number("FLOAT8E8M0"), round_mode="odd")], {"x": X}, {})
    with pytest.raises(InvalidModel, match=r"node \(Cast\).*round_mode 'odd'"):
        neuronsim.compile(made)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_keep_their_lowest_bits(name: str) -> None:
    x = np.arange(-300, 300, dtype=np.int32)
    made = model([node("Cast", "x", to=number(name))], {"x": x}, {})
    np.testing.assert_array_equal(run(made, {"x": x}), by_evaluator(made, {"x": x}).astype(np.int32))


# ---- quantization ----------------------------------------------------------------------------------

# Attributes, and the shapes of scales and zero points of an array [3, 12].
GRAINS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "one scale": ({}, ()),
    "by row": ({"axis": 0}, (3,)),
    "by column": ({"axis": -1}, (12,)),
    "in blocks of 4": ({"axis": 1, "block_size": 4}, (3, 3)),
    "in blocks of 2 rows": ({"axis": 0, "block_size": 2}, (2, 12)),
}


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize(
    ("name", "zeros"),
    [
        *((name, zeros) for name in (*INTEGERS, "INT2", "UINT2") for zeros in (True, False)),
        ("FLOAT4E2M1", False),  # floats have no zero points
        ("FLOAT8E4M3FNUZ", False),
    ],
)
def test_values_are_quantized_and_dequantized_as_onnx_does(name: str, grain: str, zeros: bool) -> None:
    attributes, dims = GRAINS[grain]
    scale = (0.1 + RNG.random(dims)).astype(np.float32)
    stored = {"scale": scale, **({"zero": drawn(name, *dims)} if zeros else {})}
    made = model(
        [
            helper.make_node(
                "QuantizeLinear", ["x", *stored], ["q"], output_dtype=number(name), **attributes
            ),
            node("DequantizeLinear", " ".join(["q", *stored]), **attributes),
        ],
        {"x": 4 * X},
        stored,
    )
    found = run(made, {"x": 4 * X})
    if "2 rows" in grain:  # the evaluator takes blocks that divide the axis alone
        del made.graph.input[0].type.tensor_type.shape.dim[:]
        wide = {"x": np.concatenate([4 * X, np.zeros((1, 12), np.float32)])}
        np.testing.assert_array_equal(found, by_evaluator(made, wide)[:3])
    else:
        np.testing.assert_array_equal(found, by_evaluator(made, {"x": 4 * X}))


@pytest.mark.parametrize("floats", [np.float32, np.float16])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("grain", ["one scale", "by row", "in blocks of 16"])
@pytest.mark.parametrize("name", INTEGERS)
def test_a_product_with_stored_weights_of_4_bits_is_onnxruntimes(
    name: str, grain: str, zeros: bool, floats: Any
) -> None:
    """As exporters of language models write it: DequantizeLinear of the stored bytes, then MatMul."""
    attributes, dims = {
        "one scale": ({}, ()),
        "by row": ({"axis": 1}, (7,)),
        "in blocks of 16": ({"axis": 0, "block_size": 16}, (3, 7)),
    }[grain]
    x = RNG.standard_normal((2, 5, 48)).astype(floats)
    stored = {"w": drawn(name, 48, 7), "scale": (0.1 + RNG.random(dims)).astype(floats)}
    stored |= {"zero": drawn(name, *dims)} if zeros else {}
    made = model(
        [
            helper.make_node("DequantizeLinear", [*stored], ["d"], **attributes),
            node("MatMul", "x d"),
        ],
        {"x": x},
        stored,
        version=21,
    )
    found, wanted = run(made, {"x": x}), by_onnxruntime(made, {"x": x})
    tolerance = {"rtol": 2e-3, "atol": 2e-2} if floats is np.float16 else {"rtol": 1e-5, "atol": 1e-4}
    np.testing.assert_allclose(found, wanted, **tolerance)


def test_scales_that_are_powers_of_two_are_multiplied_exactly() -> None:
    stored = {"w": drawn("FLOAT4E2M1", 3, 12), "scale": np.full((3, 3), 0.25)}
    stored["scale"] = stored["scale"].astype(CARRIED["FLOAT8E8M0"].numpy)
    made = model(
        [
            helper.make_node(
                "DequantizeLinear", ["w", "scale"], ["d"], axis=1, block_size=4,
                output_dtype=TensorProto.FLOAT,
            ),
            node("Add", "x d"),
        ],
        {"x": X},
        stored,
    )  # fmt: skip
    wanted = X + stored["w"].astype(np.float32) / 4
    np.testing.assert_array_equal(run(made, {"x": X}), wanted)


# A zero point that other nodes move, and the node that asks for its type.
MOVES = {
    "as it is": "z = Identity (zero)",
    "reshaped": "s = Constant <value_ints = [1]> ()\n a = Reshape (zero, s)\n z = Squeeze (a)",
    "transposed": "z = Transpose (zero)",
    "in a branch": """
        yes = Constant <value = bool {1}> ()
        z = If (yes) <then_branch = g () => (a) { a = Identity (zero) },
                      else_branch = h () => (b) { b = Identity (zero) }>""",
    "in a function": "z = own.Same (zero)",
    "as a constant": "z = Constant <value = int4 {3}> ()",
    "of a shape": """
        s = Constant <value_ints = [1]> ()
        a = ConstantOfShape <value = int4[1] {3}> (s)
        z = Squeeze (a)""",
}


@pytest.mark.parametrize("reader", ["QuantizeLinear (x, scale, z)", "CastLike (x, z)"])
@pytest.mark.parametrize("move", MOVES)
def test_what_is_moved_keeps_its_type(move: str, reader: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 23, "own" : 1]>
    graph (float[3, 12] x) => (int4[3, 12] y) <float scale = {{0.1}}> {{
        {MOVES[move]}
        y = {reader}
    }}
    <domain: "own", opset_import: ["" : 23]>
    Same (a) => (b) {{ b = Identity (a) }}"""
    made = parser.parse_model(text.replace("int4", "int32"))
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT4
    for n in made.graph.node:
        for a in n.attribute:
            if a.t.data_type == TensorProto.INT32:
                a.t.CopyFrom(numpy_helper.from_array(np.full(a.t.dims, 3).astype(ml_dtypes.int4)))
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(3).astype(ml_dtypes.int4), "zero"))
    x = 40 * X
    found = run(made, {"x": x})
    wanted = np.clip(np.rint(x / np.float32(0.1)) + 3, -8, 7)
    if "CastLike" in reader:
        wanted = x.astype(np.int32).astype(ml_dtypes.int4)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))


@pytest.mark.parametrize("steps", [2, 40])
def test_what_a_loop_carries_beside_4_bits_keeps_its_own_type(steps: int) -> None:
    """A loop's states are each of a type of its own."""
    made = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
    graph (float[3, 12] x, int32 narrow, int8 wide) => (int8[3, 12] y) {{
        steps = Constant <value = int64 {{{steps}}}> ()
        go = Constant <value = bool {{1}}> ()
        a, b = Loop (steps, go, narrow, wide) <body = step
            (int64 n, bool c, int32 p, int8 q) => (bool d, int32 r, int8 s) {{
            d = Identity (c)
            r = Identity (p)
            s = Identity (q)
        }}>
        y = CastLike (x, b)
    }}""")
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT4
    x, values = 40 * X, {"narrow": np.int8(3), "wide": np.int8(3)}
    found = neuronsim.compile(made, auto_cast="none", target="host")(x=x, **values)
    np.testing.assert_array_equal(np.asarray(found), np.clip(x, -128, 127).astype(np.int8))
    assert np.asarray(found).max() > 7


def test_bits_of_a_type_that_travels_are_nobodys() -> None:
    made = model([node("BitCast", "w", to=TensorProto.INT8)], {}, {"w": drawn("INT4", 3)}, version=26)
    with pytest.raises(UnsupportedOperator, match=r"node \(BitCast\).*INT4"):
        neuronsim.compile(made)


def test_what_computes_in_such_a_type_is_refused() -> None:
    made = model([node("EyeLike", "x", dtype=number("INT4"))], {"x": X}, {})
    with pytest.raises(
        NeuronSimError, match=r"node \(EyeLike\).*INT4, which is no type to compute with"
    ):
        neuronsim.compile(made)


# ---- rows of a quantized table ---------------------------------------------------------------------


def packed(codes: Any, bits: int) -> Any:
    """Bytes that hold codes along the last axis, filled up with zeros."""
    each = 8 // bits
    wide = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)])
    parts = wide.reshape(*codes.shape[:-1], -1, each)
    return sum(parts[..., i] << bits * i for i in range(each)).astype(np.uint8)


def rows(kind: str, bits: int, axes: tuple[int, int], zeros: bool, floats: Any) -> tuple[Any, Any]:
    """GatherBlockQuantized of a table [6, 40, 36] in blocks of 16, and its indices."""
    gather_axis, quantize_axis = axes
    dims = [6, 40, 36]
    dims[quantize_axis] = -(-dims[quantize_axis] // 16)
    codes = [RNG.integers(0, 1 << bits, d) for d in ((6, 40, 36), dims)]
    store = (lambda c: packed(c, bits)) if kind == "bytes" else lambda c: _as(kind, c)
    stored = {"w": store(codes[0]), "scale": (0.1 + RNG.random(dims)).astype(floats)}
    stored |= {"zero": store(codes[1])} if zeros else {}
    indices = np.array([[1, -1], [0, 2]])
    attributes = {"gather_axis": gather_axis, "quantize_axis": quantize_axis, "block_size": 16}
    attributes |= {} if bits == 4 else {"bits": bits}
    inputs = " ".join(["w", "indices", *list(stored)[1:]])
    made = node("GatherBlockQuantized", inputs, domain="com.microsoft", **attributes)
    return model([made], {"indices": indices}, stored, version=21), {"indices": indices}


def _as(kind: str, codes: Any) -> Any:
    return CARRIED[kind].values[codes].astype(CARRIED[kind].numpy)


@pytest.mark.parametrize("floats", [np.float32, np.float16])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(
    ("kind", "bits", "axes"),
    [
        *(
            (k, 4, axes)
            for k in INTEGERS
            for axes in ((0, 2), (1, 2), (0, 1), (2, 1), (2, 2), (-3, -1))
        ),
        *(("bytes", bits, (0, 2)) for bits in (2, 4, 8)),
    ],
)
def test_rows_of_a_quantized_table_are_onnxruntimes(
    kind: str, bits: int, axes: tuple[int, int], zeros: bool, floats: Any
) -> None:
    made, inputs = rows(kind, bits, axes, zeros, floats)
    found, wanted = run(made, inputs), by_onnxruntime(made, inputs)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_forms_of_a_quantized_table_that_are_not_taken_are_named() -> None:
    made, _ = rows("bytes", 4, (0, 2), False, np.float32)
    attributes = made.graph.node[0].attribute
    attributes.append(helper.make_attribute("bits", 3))
    with pytest.raises(UnsupportedOperator, match=r"node \(GatherBlockQuantized\).*of 3 bits"):
        neuronsim.compile(made)
    made, _ = rows("bytes", 4, (0, 2), False, np.float32)
    next(a for a in made.graph.node[0].attribute if a.name == "quantize_axis").i = 1
    with pytest.raises(UnsupportedOperator, match="blocks along axis 1, which is not their last"):
        neuronsim.compile(made)


# ---- how they are stored and given -----------------------------------------------------------------


def sums_with(tensor: Any) -> Any:
    """A model that gives a stored tensor as float32."""
    made = model([node("Cast", "w", to=TensorProto.FLOAT)], {}, {})
    made.graph.initializer.append(tensor)
    return made


def stored_as(name: str, values: Any, where: str) -> Any:
    tensor = numpy_helper.from_array(values, "w")
    assert tensor.data_type == number(name)
    if where == "int32_data":
        codes = np.frombuffer(tensor.raw_data, np.uint8)
        tensor.ClearField("raw_data")
        tensor.int32_data.extend(codes.tolist())
    return tensor


@pytest.mark.parametrize("where", ["raw_data", "int32_data"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("name", CARRIED)
def test_stored_elements_are_read_whatever_their_number(name: str, count: int, where: str) -> None:
    values = drawn(name, count)
    made = sums_with(stored_as(name, values, where))
    found = np.asarray(neuronsim.compile(made, auto_cast="none", target="host")())
    np.testing.assert_array_equal(found, values.astype(np.float32))


@pytest.mark.parametrize("name", ["UINT4", "INT2", "FLOAT8E8M0"])
def test_elements_beside_the_model_are_read(name: str, tmp_path: Path) -> None:
    values = drawn(name, 3, 3)
    tensor = numpy_helper.from_array(values, "w")
    (tmp_path / "weights").write_bytes(b"\xff" + tensor.raw_data)
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights", "offset": "1", "length": str(size)}.items():
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(sums_with(tensor).SerializeToString())
    found = np.asarray(neuronsim.compile(path, auto_cast="none", target="host")())
    np.testing.assert_array_equal(found, values.astype(np.float32))
    (tmp_path / "weights").write_bytes(b"\xff" * size)
    with pytest.raises(InvalidModel, match=f"'w' of {name}.* needs {size} bytes at 1"):
        neuronsim.compile(path)


def damaged(dims: list[int], raw: bytes | None, stored: list[int] = ()) -> Any:  # type: ignore[assignment]
    tensor = TensorProto(data_type=TensorProto.INT4, name="w", int32_data=stored)
    tensor.dims.extend(dims)
    if raw is not None:
        tensor.raw_data = raw
    return tensor


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (damaged([3], b"\0"), "needs 2 bytes, and has 1"),
        (damaged([3], b"\0\0\0"), "needs 2 bytes, and has 3"),
        (damaged([3], None), "needs 2 bytes, and has 0"),
        (damaged([3], None, [1]), "needs 2 bytes, and has 1"),
        (damaged([4], None, [1, 256]), "numbers that are no bytes"),
        (damaged([4], None, [1, -129]), "numbers that are no bytes"),
        (damaged([1 << 30, 1 << 30], bytes(24)), "needs"),
        (damaged([-2, 2], b"\0"), "has the shape"),
        (damaged([0, 1 << 62, 1 << 62], b""), "'w'"),
        (damaged([1 << 30] * 3, b""), "'w'"),
    ],
)
def test_damaged_tensors_are_named(tensor: Any, said: str) -> None:
    with pytest.raises(NeuronSimError, match=rf"'w'.*{said}|{said}.*'w'|'w'"):
        neuronsim.compile(sums_with(tensor).SerializeToString())
    with pytest.raises(NeuronSimError, match=said):
        neuronsim.compile(sums_with(tensor).SerializeToString())


def test_an_input_of_4_bits_is_given_as_bytes() -> None:
    codes = drawn("INT4", 3, 12)
    made = model([node("DequantizeLinear", "x scale")], {"x": codes}, {"scale": np.float32(0.5)})
    program = neuronsim.compile(made, auto_cast="none")
    assert program.inputs["x"].dtype == neuronsim.int8
    found = np.asarray(program(x=codes.astype(np.int8)))
    np.testing.assert_array_equal(found, codes.astype(np.float32) / 2)
    known = neuronsim.compile(made, auto_cast="none", input_values={"x": codes})()
    np.testing.assert_array_equal(np.asarray(known), found)
    every = neuronsim.compile(made, auto_cast="none", input_values={"x": -8})()
    np.testing.assert_array_equal(np.asarray(every), np.full((3, 12), -4, np.float32))
    with pytest.raises(
        InvalidArgument, match=r"'x' is of INT4, and has no value 8: .* between -8 and 7"
    ):
        neuronsim.compile(made, input_values={"x": codes.astype(np.int8) * 0 + 8})


def test_a_plan_goes_back_into_a_model_with_weights_of_4_bits(tmp_path: Path) -> None:
    stored = {"w": drawn("INT4", 12, 7), "scale": np.float32(0.125)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale"], ["d"]), node("MatMul", "x d")]
    made = model(nodes, {"x": X}, stored, version=21)
    program = neuronsim.compile(made, auto_cast="all", auto_cast_type="bf16")
    neuronsim.export_onnx(made, program, tmp_path / "casts.onnx")
    exported = onnx.load(tmp_path / "casts.onnx")
    assert exported.graph.initializer[0].data_type == TensorProto.INT4
    assert "Cast" in {n.op_type for n in exported.graph.node}
    np.testing.assert_allclose(by_onnxruntime(exported, {"x": X}), np.asarray(program(x=X)), rtol=1e-6)
