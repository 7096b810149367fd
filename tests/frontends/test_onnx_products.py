"""ONNX's products, quantized integers, losses and Fourier transforms: traced as eager, and right by
ONNX's own evaluator.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.frontends.onnx_cases import BFLOAT16, Case, check, check_traced_as_eager, floats, onnx, run
from tests.frontends.onnx_coverage import uncovered
from tests.support.parameters import each_of

from neuronsim.errors import InvalidModel, UnsupportedOperator
from neuronsim.frontends.onnx.model import to_module
from neuronsim.frontends.onnx.operators import losses, products, quantization, signals

TYPE = onnx.TensorProto
A, B, C = floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)
MATRICES = floats(2, 3, 3)
X = 4 * floats(2, 6, 4)
U8, I8 = (np.random.default_rng(3).integers(0, 255, (3, 4)).astype(t) for t in (np.uint8, np.int8))
IMAGE, KERNEL = U8.reshape(1, 1, 3, 4), I8.reshape(3, 1, 2, 2)
SCALE, ZERO = np.float32(0.05), np.uint8(100)
QUARTERS = np.float32([-300, -10.5, -0.125, 0, 0.125, 0.375, 10, 300])

PRODUCTS = [
    Case("MatMul", [A, B], 2),
    Case("MatMul", [floats(2, 1, 3, 4), floats(3, 4, 2)], 2),
    Case("MatMul", [A[0], B], 2),
    Case("MatMul", [A.astype(np.float16), B.astype(np.float16)], 2),
    Case("MatMul", [U8.astype(np.int32), I8.T.astype(np.int32)], 2),
    Case("Gemm", [A, B], 2),
    Case("Gemm", [A, B, C], 3),
    Case("Gemm", [A, B, C], 3, {"alpha": 0.5, "beta": 0.25}),
    Case("Gemm", [A.T.copy(), B, C], 3, {"transA": 1}),
    Case("Gemm", [A, B.T.copy(), C], 3, {"transB": 1}),
    Case("Gemm", [A.T.copy(), B.T.copy(), np.float32(2)], 3, {"transA": 1, "transB": 1, "beta": 0.5}),
    Case("Gemm", [A.astype(np.float16), B.astype(np.float16), C.astype(np.float16)], 3, {"alpha": 0.5}),
    *[Case("Einsum", [floats(3, 4)], 1, {"equation": e}) for e in ("ij->ji", "ij->", "ij->i")],
    Case("Einsum", [MATRICES], 1, {"equation": "...ii->...i"}),
    Case("Einsum", [MATRICES], 1, {"equation": "bii->b"}),
    Case("Einsum", [A, B], 2, {"equation": "ij,jk"}),
    Case("Einsum", [MATRICES, MATRICES], 2, {"equation": "bij, bkj -> bik"}),
    Case("Einsum", [A, B, C], 3, {"equation": "ij,jk,k->i"}),
    Case("Einsum", [C, C], 2, {"equation": "i,j->ij"}),
    Case("Det", [MATRICES]),
    Case("Det", [np.float32([[0, 2, 1], [3, 0, 0], [0, 0, 4]])]),
    Case("Det", [np.float32([[1, 2], [2, 4]])], wanted=np.float32(0)),
    Case("Det", [floats(9, 9)]),
]

QUANTIZED = [
    *[Case("QuantizeLinear", [X, SCALE, t(3)], 3) for t in (np.uint8, np.int8, np.uint16, np.int16)],
    Case("QuantizeLinear", [X, SCALE], 2),
    Case("QuantizeLinear", [QUARTERS, np.float32(0.25), np.int8(1)], 3),
    Case("QuantizeLinear", [X, abs(floats(6)) + 1, np.arange(6, dtype=np.int8)], 3, {"axis": 1}),
    Case("QuantizeLinear", [X, abs(floats(2, 3, 4)) + 1], 2, {"axis": 1, "block_size": 2}),
    Case("QuantizeLinear", [X, SCALE], 2, {"output_dtype": TYPE.INT16}),
    Case("QuantizeLinear", [X.astype(np.float16), np.float16(0.5), np.int8(0)], 3),
    Case("QuantizeLinear", [X, np.float16(0.5), np.int8(0)], 3, {"precision": TYPE.FLOAT}),
    Case("QuantizeLinear", [200 * X, np.float32(1), ml_dtypes.float8_e4m3fn(0)], 3),
    Case("DequantizeLinear", [U8, SCALE, ZERO], 3),
    Case("DequantizeLinear", [I8, SCALE], 2),
    Case("DequantizeLinear", [U8.astype(np.int32), SCALE], 2),
    Case("DequantizeLinear", [U8, abs(C[:4]), np.uint8([1, 2, 3, 4])], 3, {"axis": -1}),
    Case("DequantizeLinear", [I8, abs(floats(3, 2))], 2, {"axis": 1, "block_size": 3}, wanted=(
        I8 * np.repeat(abs(floats(3, 2)), 3, 1)[:, :4]
    )),
    Case("DequantizeLinear", [U8, np.float16(0.5), ZERO], 3),
    Case("DequantizeLinear", [U8, SCALE, ZERO], 3, {"output_dtype": TYPE.FLOAT16}),
    Case("DequantizeLinear", [A.astype(ml_dtypes.float8_e5m2), SCALE], 2),
    Case("DynamicQuantizeLinear", [X], outputs=3),
    Case("DynamicQuantizeLinear", [abs(X)], outputs=3),
    Case("MatMulInteger", [U8, I8.T.copy()], 2),
    Case("MatMulInteger", [U8, I8.T.copy(), ZERO, np.int8([1, 2, 3])], 4),
    Case("MatMulInteger", [U8, I8.T.copy(), np.uint8([1, 2, 3])], 3, wanted=(
        (U8.astype(np.int32) - np.int32([[1], [2], [3]])) @ I8.T.astype(np.int32)
    )),
    Case("QLinearMatMul", [U8, SCALE, ZERO, I8.T.copy(), SCALE, np.int8(3), np.float32(2), ZERO], 8),
    Case("ConvInteger", [IMAGE, KERNEL, ZERO], 3, {"pads": [1, 1, 1, 1]}),
    Case("ConvInteger", [IMAGE, KERNEL, ZERO, np.int8([1, 2, 3])], 4, wanted=None),
    Case("QLinearConv", [
        *(IMAGE, SCALE, ZERO, KERNEL, abs(C[:3]), np.int8([0, 0, 0]), np.float32(3), ZERO),
        np.int32([9, -9, 0]),
    ], 9, {"strides": [1, 2]}),
]  # fmt: skip

CLASSES, TARGET = floats(3, 5, 2), np.int64([[0, 1], [4, 2], [2, 2]])
WEIGHTS = abs(floats(5, seed=4))

LOSSES = [
    Case(op, [CLASSES, TARGET, *weights], 2 + len(weights), {"reduction": how, **ignored})
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    for weights in ([], [WEIGHTS])
    for how in ("none", "sum", "mean")
    for ignored in ({}, {"ignore_index": 2}, {"ignore_index": -7})
] + [Case("SoftmaxCrossEntropyLoss", [CLASSES, TARGET], 2, outputs=2)]

SIGNAL, SPECTRUM = floats(2, 10, 1), floats(2, 10, 2)
FOURIER = np.fft.fft(SIGNAL[..., 0].astype(np.float64)).astype(np.complex64)


def _number(n: int) -> Any:
    return np.array(n, np.int64)


SIGNALS = [
    *[
        Case("DFT", [x, None, _number(1)], 1, {"inverse": i})
        for x in (SIGNAL, SPECTRUM) for i in (0, 1)
    ],
    *[Case("DFT", [SIGNAL, _number(n), _number(-2)], 1, {"onesided": 1}) for n in (6, 9, 16)],
    Case("DFT", [SPECTRUM, None, _number(0)]),
    Case("DFT", [SIGNAL], version=17, wanted=np.stack([FOURIER.real, FOURIER.imag], -1)),
    Case("STFT", [floats(2, 32, 1), _number(4), None, _number(8)]),
    Case("STFT", [floats(2, 32, 1), _number(5), abs(floats(9))], 1),
    Case("STFT", [floats(1, 32, 2), _number(4), None, _number(8)], 1, {"onesided": 0}),
    Case("MelWeightMatrix", [*map(_number, (8, 16, 8192)), np.float32(0), np.float32(4096)], 0),
]  # fmt: skip


@each_of("case", [*PRODUCTS, *QUANTIZED, *LOSSES, *SIGNALS], ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    check(case, 2e-3)


@pytest.mark.parametrize(
    ("module", "cases"),
    [(products, PRODUCTS), (quantization, QUANTIZED), (losses, LOSSES), (signals, SIGNALS)],
)
def test_every_row_has_a_case(module: Any, cases: list[Case]) -> None:
    assert uncovered(module, cases) == []


def test_gemm_is_one_dot_and_rounds_once() -> None:
    narrow = [x.astype(BFLOAT16) for x in (A.T.copy(), B, C)]
    case = Case("Gemm", narrow, 3, {"transA": 1, "alpha": 0.5})
    (found,) = check_traced_as_eager(case)
    opcodes = [i.opcode for i in to_module(case.model).entry_computation.instructions]
    assert opcodes.count("dot") == 1
    assert "transpose" not in opcodes
    exact = run(Case("Gemm", [x.astype(np.float32) for x in narrow], 3, {"transA": 1, "alpha": 0.5}))
    np.testing.assert_array_equal(found, exact[0].astype(BFLOAT16))


def test_infinity_is_quantized_to_the_limit() -> None:
    """ONNX's evaluator lets it wrap."""
    x = np.float32([-np.inf, np.inf])
    np.testing.assert_array_equal(
        run(Case("QuantizeLinear", [x, SCALE, np.int8(1)], 3))[0], np.int8([-128, 127])
    )


def test_a_signal_may_lack_its_last_axis() -> None:
    x, steps = floats(2, 32), [_number(4), None, _number(8)]
    np.testing.assert_array_equal(
        run(Case("STFT", [x, *steps]))[0], run(Case("STFT", [x[..., None], *steps]))[0]
    )


def test_products_of_float64_are_numpys_on_the_host() -> None:
    wide = [x.astype(np.float64) / 3 for x in (A, B)]
    (found,) = run(Case("MatMul", wide, 2))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, wide[0] @ wide[1])


def test_transforms_have_a_largest_length() -> None:
    with pytest.raises(UnsupportedOperator, match="shorter frames"):
        run(Case("DFT", [floats(1, 2, 1), _number(2**40)]))


@pytest.mark.parametrize("length", [7, 8])
def test_the_inverse_of_half_a_spectrum(length: int) -> None:
    x = floats(2, length, 1)
    forward = run(Case("DFT", [x, None, _number(1)], 1, {"onesided": 1}))[0]
    inverse = {"onesided": 1, "inverse": 1}
    back = run(Case("DFT", [forward, _number(length), _number(1)], 1, inverse))[0]
    np.testing.assert_allclose(back, x, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("Det", [A]), "square"),
        (Case("Gemm", [MATRICES, B], 2), "matrices"),
        (Case("DFT", [floats(2, 3, 3)]), "signal"),
        (Case("QuantizeLinear", [X, floats(2, 2, 4)], 2, {"block_size": 2}), "blocks of 2"),
    ],
)
def test_what_is_refused(case: Case, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        run(case)
