"""Graphs of PyTorch with operators of quantized_decomposed give PyTorch's bytes and floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import dtypes
from neuronsim.errors import UnsupportedOperator
from neuronsim.frontends.torch import exporting
from neuronsim.frontends.torch.table import OPERATORS

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")
q = torch.ops.quantized_decomposed
pytestmark = pytest.mark.isa_independent
RNG = np.random.default_rng(213)
SCALE = 0.05


def values(*dims: int) -> Any:
    """Values in and out of range, ties of the scale, and what only one of a product with its reciprocal
    and a division puts beside a tie.
    """
    x = RNG.standard_normal(dims).astype(np.float32) * 3
    ties = (RNG.integers(-140, 140, dims) + 0.5).astype(np.float32) * np.float32(SCALE)
    every = ((np.arange(-140, 140) + 0.5) * np.float32(SCALE)).astype(np.float32)
    near = np.concatenate([np.nextafter(every, np.float32(end)) for end in (-9, 9)] + [every])
    apart = near[np.rint(near * np.float32(1 / SCALE)) != np.rint(near / np.float32(SCALE))]
    assert len(apart) > 3
    found = np.where(RNG.random(dims) < 0.3, ties, x)
    found.reshape(-1)[: len(apart)] = apart[: found.size]
    return torch.tensor(found)


S6 = torch.tensor(RNG.uniform(0.01, 0.2, 6).astype(np.float32))
Z6 = torch.tensor(RNG.integers(-5, 5, 6))
INT8, UINT8 = torch.int8, torch.uint8
X = values(40, 6)
BYTES = torch.tensor(RNG.integers(-128, 128, (40, 6)).astype(np.int8))

BYTE = (-128, 127, INT8)
CASES: dict[str, Any] = {
    "to bytes": lambda x: q.quantize_per_tensor(x, SCALE, 3, *BYTE),
    "to a part of uint8": lambda x: q.quantize_per_tensor(x, SCALE, 100, 3, 200, UINT8),
    "of bfloat16": lambda x: q.quantize_per_tensor(x.bfloat16(), SCALE, 0, *BYTE),
    "by the last axis": lambda x: q.quantize_per_channel(x, S6, Z6, 1, *BYTE),
    "by the first axis": lambda x: q.quantize_per_channel(x.T, S6, Z6, 0, -127, 127, INT8),
    "from bytes": lambda x: q.dequantize_per_tensor(BYTES, SCALE, 3, *BYTE) + x * 0,
    "from bytes to bfloat16": lambda x: _narrow(x) + x.bfloat16() * 0,
    "from bytes by channel": lambda x: q.dequantize_per_channel(BYTES, S6, Z6, 1, *BYTE) + x * 0,
    "without zero points": lambda x: q.dequantize_per_channel(BYTES, S6, None, 1, *BYTE) + x * 0,
    "by tensors": lambda x: _by_tensors(x, *map(torch.tensor, (SCALE, 3, -128, 127))),
    "per token": lambda x: _per_token(x, q.choose_qparams_per_token),
    "per token, asymmetric": lambda x: _per_token(x, q.choose_qparams_per_token_asymmetric),
    "dynamically": lambda x: _dynamically(x, q.choose_qparams.tensor, INT8),
    "dynamically, of one sign": lambda x: _dynamically(x.abs() + 2, q.choose_qparams.tensor, INT8),
    "dynamically, symmetric": lambda x: _dynamically(x, q.choose_qparams_symmetric.tensor, INT8),
}


def _narrow(x: Any) -> Any:
    return q.dequantize_per_tensor(BYTES, SCALE, 3, *BYTE, out_dtype=torch.bfloat16)


def _by_tensors(x: Any, scale: Any, *numbers: Any) -> Any:
    found = q.quantize_per_tensor.tensor2(x, scale, *numbers, INT8)
    return found, q.dequantize_per_tensor.tensor2(found, scale, *numbers, INT8)


def _per_token(x: Any, choose: Any) -> Any:
    scales, zeros = choose(x, INT8)
    scales = scales.float()  # PyTorch's are float64, which decides otherwise at a tie
    found = q.quantize_per_token(x, scales, zeros, -128, 127, INT8)
    return found, q.dequantize_per_token(found, scales, zeros, -128, 127, INT8, torch.float32)


def _dynamically(x: Any, choose: Any, dtype: Any) -> Any:
    scale, zero = choose(x, -128, 127, 1e-6, dtype)
    found = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, dtype)
    return found, q.dequantize_per_tensor.tensor(found, scale, zero, -128, 127, dtype)


@pytest.mark.parametrize("name", CASES)
def test_operators_give_pytorchs_bits(name: str) -> None:
    function = CASES[name]
    program = neuronsim.compile(function, X, auto_cast="none")
    wanted = function(X)
    found = program(X.numpy())
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for a, b in pairs:
        a = np.asarray(a)
        assert str(a.dtype) == str(b.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(a.astype(np.float32), b.float().numpy())


def test_every_row_has_a_case() -> None:
    met = set()
    for function in CASES.values():
        graph = exporting.export(function, (X,))[0].graph
        met |= {str(n.target) for n in graph.nodes if n.op == "call_function"}
    assert {name for name in OPERATORS if name.startswith("quantized_decomposed.")} <= met


class Quantized(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A network as PyTorch's export quantizer leaves it: weights of bytes by channel, with scales in
    float64, and activations quantized between layers.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        for name, (rows, columns) in {"a": (24, 6), "b": (10, 24)}.items():
            w = torch.randn(rows, columns) / columns**0.5
            scales = w.abs().amax(1) / 127
            zeros = torch.zeros(rows, dtype=torch.int64)
            stored = q.quantize_per_channel(w, scales, zeros, 0, -127, 127, INT8)
            self.register_buffer(f"{name}_weight", stored)
            self.register_buffer(f"{name}_scales", scales.double())
            self.register_buffer(f"{name}_zeros", zeros)

    def layer(self, name: str, x: Any, scale: float, zero: int) -> Any:
        x = q.quantize_per_tensor(x, scale, zero, -128, 127, INT8)
        x = q.dequantize_per_tensor(x, scale, zero, -128, 127, INT8)
        own = [getattr(self, f"{name}_{part}") for part in ("weight", "scales", "zeros")]
        return torch.nn.functional.linear(x, q.dequantize_per_channel(*own, 0, -127, 127, INT8))

    def forward(self, x: Any) -> Any:
        return self.layer("b", torch.relu(self.layer("a", x, 0.07, 4)), 0.05, -128)


def test_a_quantized_network_runs_with_its_scales_in_float64() -> None:
    model = Quantized().eval()
    program = neuronsim.compile(model, X, auto_cast="none")
    constants = [i for i in program.module.entry_computation.instructions if i.opcode == "constant"]
    assert sum(i.array.dtype is dtypes.int8 and len(i.array.dims) == 2 for i in constants) == 2
    found, wanted = np.asarray(program(X.numpy())), model(X).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    np.testing.assert_array_equal(found.argmax(1), wanted.argmax(1))


def test_ranges_of_narrow_floats_are_refused_by_name() -> None:
    def narrow(x: Any) -> Any:
        return _dynamically(x.bfloat16(), q.choose_qparams.tensor, INT8)

    with pytest.raises(UnsupportedOperator, match=r"choose_qparams.tensor of bfloat16"):
        neuronsim.compile(narrow, X, auto_cast="none")
