"""Custom calls in a graph: AWS's compute ones by contract operations, markers as identity (R7, E10)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.hlo.single import of_arrays, run_on_host
from tests.support.parameters import each_of
from tests.support.words import words

import neuronsim as ns
from neuronsim import api, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel, UnsupportedOperator, UnsupportedType
from neuronsim.hlo.module import AnyShape, Module, Shape, TupleShape
from neuronsim.ops import custom_calls
from neuronsim.reference import composites as twin
from neuronsim.reference import formats

F32, BF16 = dtypes.float32, dtypes.bfloat16
# The targets of AWS's page on NCC_EVRF015.
AWS = {
    *("AwsNeuronErf", "AwsNeuronGelu", "AwsNeuronGeluApprxTanh", "AwsNeuronGeluBackward"),
    *("AwsNeuronSilu", "AwsNeuronSiluBackward", "AwsNeuronRmsNorm", "AwsNeuronSoftmax"),
    *("AwsNeuronSoftmaxBackward", "AwsNeuronCollectiveMatmul", "AwsNeuronIntMatmult"),
    *("AwsNeuronArgMax", "AwsNeuronArgMin", "AwsNeuronTopK", "AwsNeuronDropoutMaskV1"),
    *("AwsNeuronCustomNativeKernel", "AwsNeuronCustomOp", "AwsNeuronDevicePrint"),
    *("ResizeNearest", "ResizeBilinear", "ResizeNearestGrad", "AwsNeuronLNCShardingConstraint"),
    *("AwsNeuronTransferWithStaticRing", "AwsNeuronModuleMarkerStart-Forward"),
    *("AwsNeuronModuleMarkerStart-Backward", "AwsNeuronModuleMarkerEnd-Forward"),
    *("AwsNeuronModuleMarkerEnd-Backward", "NeuronBoundaryMarker-Start", "NeuronBoundaryMarker-End"),
}
REFUSED = {
    *("AwsNeuronDropoutMaskV1", "AwsNeuronCustomNativeKernel", "AwsNeuronCustomOp"),
    "ResizeNearestGrad",
}


def module(target: str, config: bytes, shape: AnyShape, *operands: ns.Array) -> Module:
    stated = {"custom_call_target": target, "backend_config": config}
    return of_arrays("call.1", "custom-call", shape, *operands, **stated)


def run(target: str, config: bytes, shape: AnyShape, *operands: ns.Array) -> Any:
    return run_on_host(module(target, config, shape, *operands), *operands, int64="keep")


def draw(seed: int, dims: tuple[int, ...], dtype: DType = F32) -> ns.Array:
    return ns.asarray(np.random.default_rng(seed).standard_normal(dims).astype(np.float32), dtype)


def same(x: ns.Array) -> Shape:
    return Shape(x.dtype, x.shape)


def test_every_target_of_aws_is_a_row_or_refused_with_its_reason() -> None:
    for target in AWS - REFUSED:
        assert custom_calls.custom_call_row(target) in ops.OPS
    for target in REFUSED:
        with pytest.raises(UnsupportedOperator, match=target) as caught:
            ops.by_opcode("custom-call", {"custom_call_target": target})
        assert "Replace it" in str(caught.value)
    assert {c.row for c in custom_calls.CUSTOM_CALLS.values()} <= set(ops.OPS)


@pytest.mark.parametrize("target", ["AwsNeuronSoftMax", "lapack_ssytrd_ffi", ""])
def test_unknown_target_is_named_with_awss_words(target: str) -> None:
    x = draw(0, (2, 3))
    with pytest.raises(UnsupportedOperator) as caught:
        run(target, b"", same(x), x)
    message = str(caught.value)
    assert "NCC_EVRF015" in message
    assert "a custom call instruction with a target name that is not recognized" in message
    assert f"'{target}'" in message
    assert "main/call.1" in message
    assert ("did you mean 'AwsNeuronSoftmax'" in message) == (target == "AwsNeuronSoftMax")
    assert "AwsNeuronTopK" not in message  # what to do, not what there is
    instead = "pass the result in" if target.startswith("lapack") else "Replace it by HLO operations"
    assert instead in message


@each_of("dtype", [F32, BF16, dtypes.float16], ids=lambda t: t.name)
@each_of(
    ("target", "function"),
    [
        ("AwsNeuronErf", ns.erf),
        ("AwsNeuronGelu", ns.nn.gelu),
        ("AwsNeuronGeluApprxTanh", ns.gelu_tanh),
        ("AwsNeuronSilu", ns.silu),
        ("mhlo.erf", ns.erf),
        ("mhlo.tan", ns.tan),
    ],
)
def test_activation_E3_is_the_array_function(target: str, function: Any, dtype: DType) -> None:
    x = draw(1, (40, 25), dtype) * 3
    assert words(run(target, b"", same(x), x)).tolist() == words(function(x)).tolist()


@pytest.mark.parametrize("dtype", [F32, BF16, dtypes.float16], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["gelu_backward", "silu_backward"])
def test_gradient_of_an_activation_R7_equals_the_twin(name: str, dtype: DType) -> None:
    target = f"AwsNeuron{name.split('_')[0].capitalize()}Backward"
    grad, x = draw(2, (6, 7), dtype), draw(3, (6, 7), dtype) * 3
    found = words(run(target, b"", same(x), grad, x)).tolist()
    function = getattr(twin, name)
    rows = zip(found, words(grad).tolist(), words(x).tolist(), strict=True)
    assert all(ours == function(dtype.name, g, r) for ours, g, r in rows)


@each_of("dtype", [F32, BF16], ids=lambda t: t.name)
@each_of("config", [b"", b"0", b"1", b"-1", b'"0"'])
def test_softmax_R7_and_its_gradient_equal_the_twin(config: bytes, dtype: DType) -> None:
    x, grad = draw(4, (5, 9), dtype) * 4, draw(5, (5, 9), dtype)
    axis = 0 if b"0" in config else 1
    rows = lambda a: np.moveaxis(words(a), axis, -1).tolist()  # noqa: E731
    y = run("AwsNeuronSoftmax", config, same(x), x)
    assert rows(y) == [twin.softmax(dtype.name, row) for row in rows(x)]
    found = run("AwsNeuronSoftmaxBackward", config, same(x), grad, y)
    pairs = zip(rows(grad), rows(y), strict=True)
    assert rows(found) == [twin.softmax_backward(dtype.name, g, r) for g, r in pairs]


@pytest.mark.parametrize(("source", "stated"), [(F32, F32), (F32, BF16), (BF16, BF16), (BF16, F32)])
@pytest.mark.parametrize("axis", [0, 2])
def test_rms_norm_R7_rounds_once_to_the_stated_type(source: DType, stated: DType, axis: int) -> None:
    """As transformers-neuronx calls it: of x, weight and epsilon, along one axis."""
    x, weight = draw(6, (4, 3, 5), source), draw(7, ((4, 3, 5)[axis],), F32)
    epsilon = ns.asarray(np.float32(1e-5))
    shape = Shape(stated, x.shape)
    found = run("AwsNeuronRmsNorm", str(axis).encode(), shape, x, weight, epsilon)
    assert found.dtype is stated
    rows = np.moveaxis(words(ns.astype(x, F32)), axis, -1).reshape(-1, x.shape[axis])
    expected = []
    for row in rows.tolist():
        wide = twin.rms_norm("float32", row, words(weight).tolist(), epsilon=float(np.float32(1e-5)))
        expected.append([formats.convert("float32", stated.name, w) for w in wide])
    moved = np.moveaxis(words(found), axis, -1).reshape(-1, x.shape[axis])
    assert moved.tolist() == expected


@pytest.mark.parametrize("index", [dtypes.uint32, dtypes.int32, dtypes.int64], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_argument_E10_in_the_stated_type(name: str, index: DType) -> None:
    x = np.array([[1, np.nan, np.nan], [-0.0, 0.0, -1], [3, 5, 5], [2, 2, 2]], np.float32)
    found = run(f"AwsNeuron{name}", b"1", Shape(index, (4,)), ns.asarray(x))
    assert found.dtype is index
    assert np.asarray(found).tolist() == ([1, 0, 1, 0] if name == "ArgMax" else [1, 2, 0, 0])
    with pytest.raises(InvalidModel, match=r"int64\[4\].*no axis|no axis"):
        run(f"AwsNeuron{name}", b"2", Shape(index, (4,)), ns.asarray(x))


@pytest.mark.parametrize("target", ["AwsNeuronTopK", "TopK", "mhlo.topk"])
@pytest.mark.parametrize("index", [dtypes.uint32, dtypes.int32], ids=lambda t: t.name)
def test_top_k_E10_gives_values_and_indices(target: str, index: DType) -> None:
    x = np.array([[1, 7, 7, -2, np.inf], [0, -0.0, 0, -0.0, np.nan]], np.float32)
    config = b"3" if target == "AwsNeuronTopK" else b""
    shape = TupleShape((Shape(F32, (2, 3)), Shape(index, (2, 3))))
    values, indices = run(target, config, shape, ns.asarray(x))
    assert indices.dtype is index
    assert np.asarray(indices).tolist() == [[4, 1, 2], [4, 0, 2]]
    np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(x, np.asarray(indices), -1))
    with pytest.raises(InvalidModel, match="9"):
        run("AwsNeuronTopK", b"9", shape, ns.asarray(x))
    with pytest.raises(InvalidModel, match="tuple of values and indices"):
        run("AwsNeuronTopK", b"3", Shape(F32, (2, 3)), ns.asarray(x))
    narrow = TupleShape((Shape(F32, (2, 3)), Shape(dtypes.int8, (2, 3))))
    with pytest.raises(UnsupportedType, match="int8"):
        run("AwsNeuronTopK", b"3", narrow, ns.asarray(x))


def test_matmuls_M2_M7_are_dots() -> None:
    a, b = (ns.asarray(np.random.default_rng(n).integers(-128, 128, (4, 4)), "int8") for n in (1, 2))
    found = run("AwsNeuronIntMatmult", b"", Shape(dtypes.int32, (4, 4)), a, b)
    product = np.asarray(a).astype(np.int32) @ np.asarray(b).astype(np.int32)
    assert np.asarray(found).tolist() == product.tolist()
    x, y = draw(8, (3, 200)), draw(9, (200, 5))
    config = b"rhs_contracting_dim=0,tp_degree=1,num_groups=1,use_sb_to_sb=0"
    found = run("AwsNeuronCollectiveMatmul", config, Shape(F32, (3, 5)), x, y)
    assert words(found).tolist() == words(x @ y).tolist()
    with pytest.raises(UnsupportedOperator, match="tp_degree 4"):
        run("AwsNeuronCollectiveMatmul", config.replace(b"=1,num", b"=4,num"), Shape(F32, (3, 5)), x, y)


@pytest.mark.parametrize("target", custom_calls._COPIES)
def test_annotations_move_bits(target: str) -> None:
    x = np.array([0x7FA00001, 0x80000000, 1, 0x3F800000], np.uint32).view(np.float32)
    array = ns.Array(ops.Bits(x, F32))
    assert words(run(target, b"", same(array), array)).tolist() == x.view(np.uint32).tolist()


@pytest.mark.parametrize("target", custom_calls._MARKERS)
def test_markers_pass_what_they_mark(target: str) -> None:
    x, y = draw(10, (2, 3)), ns.asarray(np.arange(4), "int32")
    assert words(run(target, b"", same(x), x)).tolist() == words(x).tolist()
    both = run(target, b"", TupleShape((same(x), same(y))), x, y)
    assert [words(v).tolist() for v in both] == [words(x).tolist(), words(y).tolist()]
    with pytest.raises(InvalidModel, match="the file says"):
        run(target, b"", TupleShape((same(y), same(x))), x, y)


def test_casts_reach_custom_calls() -> None:
    """A2: a composite is lowered like any operation of its engine, a marker moves."""
    x = draw(11, (4, 8))
    program = api.compile(module("AwsNeuronSoftmax", b"1", same(x), x), flags="--auto-cast all")
    expected = ns.nn.softmax(ns.astype(x, BF16), axis=1)
    assert words(program(x)).tolist() == words(ns.astype(expected, F32)).tolist()


# ---- resizing ----------------------------------------------------------------------------------------

MODES = [b'"00"', b'"10"', b'"01"', b""]


def place(i: int, length: int, size: int, mode: bytes) -> Fraction:
    if mode == b'"10"':
        return Fraction(i * (length - 1), max(size - 1, 1))
    if mode == b'"01"':
        return (Fraction(i) + Fraction(1, 2)) * length / size
    return Fraction(i * length, size)


@each_of("mode", MODES, ids=repr)
@each_of("dims", [(8, 6), (3, 9), (1, 1), (4, 3), (7, 2)], ids=str)
def test_resize_nearest_takes_elements(dims: tuple[int, int], mode: bytes) -> None:
    x = draw(12, (2, 4, 3, 5), BF16)
    found = words(run("ResizeNearest", mode, Shape(BF16, (2, *dims, 5)), x)).tolist()
    source = words(x)
    rounded = Fraction(1, 2) if mode == b'"10"' else 0
    rows = [int(place(i, 4, dims[0], mode) + rounded) for i in range(dims[0])]
    columns = [int(place(i, 3, dims[1], mode) + rounded) for i in range(dims[1])]
    assert found == source[:, rows][:, :, columns].tolist()


@each_of("mode", MODES, ids=repr)
@each_of("dims", [(8, 6), (3, 9), (4, 3), (2, 7)], ids=str)
def test_resize_bilinear_R7_is_by_float32_steps(dims: tuple[int, int], mode: bytes) -> None:
    """NumPy's float32 addition, subtraction and multiplication are IEEE's (E2)."""
    x = draw(13, (2, 4, 3, 5))
    found = run("ResizeBilinear", mode, Shape(F32, (2, *dims, 5)), x)
    expected = np.asarray(x)
    for axis in (2, 1):
        length, size = expected.shape[axis], dims[axis - 1]
        at = [
            place(i, length, size, mode) - (Fraction(1, 2) if b"01" in mode else 0) for i in range(size)
        ]
        at = [min(max(p, Fraction(0)), Fraction(length - 1)) for p in at]
        low = [int(p) for p in at]
        high = [min(n + 1, length - 1) for n in low]
        shape = [-1 if d == axis else 1 for d in range(4)]
        weight = np.array([np.float32(p - n) for p, n in zip(at, low, strict=True)]).reshape(shape)
        a, b = np.take(expected, low, axis), np.take(expected, high, axis)
        expected = a + (b - a) * weight
    assert words(found).tolist() == expected.view(np.uint32).tolist()
    with pytest.raises(InvalidModel, match="two digits"):
        run("ResizeBilinear", b'"11"', Shape(F32, (2, *dims, 5)), x)


def test_resize_bilinear_agrees_with_tensorflows_examples() -> None:
    """Of a ramp the value at a place is the place."""
    x = ns.asarray(np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1))
    shape = Shape(F32, (1, 1, 8, 1))
    ramps = {
        b'"00"': [0, 0.5, 1, 1.5, 2, 2.5, 3, 3],
        b'"01"': [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3],
    }
    for mode, expected in ramps.items():
        assert np.asarray(run("ResizeBilinear", mode, shape, x)).ravel().tolist() == expected
    corners = np.asarray(run("ResizeBilinear", b'"10"', shape, x)).ravel()
    np.testing.assert_allclose(corners, np.arange(8) * 3 / 7, rtol=1e-6)


@pytest.mark.parametrize(
    ("target", "shape", "operands", "error"),
    [
        ("ResizeNearest", Shape(F32, (2, 2, 2, 9)), [draw(0, (2, 4, 3, 5))], "axes 1 and 2"),
        ("ResizeNearest", Shape(F32, (2, 2)), [draw(0, (2, 4))], "axes 1 and 2"),
        ("AwsNeuronRmsNorm", Shape(F32, (2, 4)), [draw(0, (2, 4)), draw(0, (3,))], "takes 3 operands"),
        ("AwsNeuronGelu", Shape(BF16, (2,)), [draw(0, (2,))], "the file says"),
    ],
)
def test_call_that_does_not_fit(
    target: str, shape: Shape, operands: list[ns.Array], error: str
) -> None:
    with pytest.raises(InvalidModel, match=error):
        run(target, b"", shape, *operands)


def test_gradients_of_integers_are_refused() -> None:
    x = ns.asarray(np.arange(3), "int32")
    with pytest.raises(UnsupportedType, match="int32"):
        run("AwsNeuronGeluBackward", b"", same(x), x, x)
