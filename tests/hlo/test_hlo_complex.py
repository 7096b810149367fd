"""Complex values in a graph (H1): parts move bits, arithmetic is NumPy's and agrees with XLA's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.hlo.single import of_arrays, run_on_host
from tests.hlo.xla import run_by_xla
from tests.support.parameters import each_of

import neuronsim
from neuronsim import api, dtypes, ops
from neuronsim.errors import InvalidModel, UnsupportedType
from neuronsim.hlo.module import Shape

F32, F64, C64, C128 = dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128
NAMES = {F32: "f32", F64: "f64", C64: "c64", C128: "c128"}


def run(opcode: str, result: dtypes.DType, *operands: tuple[dtypes.DType, Any]) -> np.ndarray:
    arrays = [neuronsim.asarray(np.asarray(a, t.numpy), t) for t, a in operands]
    module = of_arrays("y", opcode, Shape(result, arrays[0].shape), *arrays)
    return np.asarray(run_on_host(module, *arrays))


SPECIAL = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 1e-45]


@pytest.mark.parametrize(("part", "whole"), [(F32, C64), (F64, C128)])
def test_parts_H1_keep_their_bits(part: dtypes.DType, whole: dtypes.DType) -> None:
    real, imag = (np.array(x, part.numpy) for x in (SPECIAL, SPECIAL[::-1]))
    z = run("complex", whole, (part, real), (part, imag))
    assert z.dtype == whole.numpy
    for name, expected in (("real", real), ("imag", imag)):
        assert run(name, part, (whole, z)).tobytes() == expected.tobytes()
        # Of a scalar the part is one.
        assert run(name, part, (whole, z[2])).shape == ()
    assert run("real", part, (part, real)).tobytes() == real.tobytes()
    assert run("imag", part, (part, real)).tobytes() == np.zeros_like(real).tobytes()


@each_of(
    "opcode",
    [
        *("add", "subtract", "multiply", "divide", "power", "negate", "exponential", "log", "sqrt"),
        *("rsqrt", "sine", "cosine", "tan", "tanh", "logistic", "sign", "abs"),
        *("exponential-minus-one", "log-plus-one"),
    ],
)
def test_arithmetic_H1_agrees_with_xla(opcode: str) -> None:
    rng = np.random.default_rng(len(opcode))
    arity = 2 if opcode in ("add", "subtract", "multiply", "divide", "power") else 1
    arrays = [
        (rng.uniform(-1.5, 1.5, 50) + 1j * rng.uniform(-1.5, 1.5, 50)).astype(np.complex128)
        for _ in range(arity)
    ]
    result = F64 if opcode == "abs" else C128
    lines = [f"p{n} = c128[50] parameter({n})" for n in range(arity)]
    call = f"ROOT y = {NAMES[result]}[50] {opcode}({', '.join(f'p{n}' for n in range(arity))})"
    text = "\n".join(["HloModule m", "ENTRY main {", *lines, call, "}"])
    (theirs,) = run_by_xla(text, *arrays)
    ours = run(opcode, result, *((C128, a) for a in arrays))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_complex_of_other_types_is_refused() -> None:
    for types, error in (
        ([F32, F64], InvalidModel),
        ([dtypes.bfloat16, dtypes.bfloat16], UnsupportedType),
    ):
        with pytest.raises(error):
            run("complex", C64, *((t, [1, 2]) for t in types))
    with pytest.raises(UnsupportedType, match="int32"):
        run("real", F32, (dtypes.int32, [1, 2]))
    with pytest.raises(UnsupportedType, match="floor is not defined for complex64"):
        run("floor", C64, (C64, [1, 2]))
    assert ops.by_opcode("complex", {}).cast == "host"


@each_of("whole", [C64, C128], ids=lambda t: t.name)
@each_of("source", ["float32", "bfloat16", "float64", "int32", "int64", "bool", "float8_e4m3fn"])
def test_convert_to_complex_rounds_the_real_part_once_C1(source: str, whole: dtypes.DType) -> None:
    """2^60 + 2^36 + 1 is above a tie of float32, on which it falls by way of float64."""
    t = dtypes.DTYPES[source]
    values = {"int64": [2**60 + 2**36 + 1, -5], "float64": [1 + 2**-24 + 2**-50, -0.0]}
    x = np.asarray(values.get(source, [1, 0]), t.numpy)
    part = F32 if whole is C64 else F64
    found = run("convert", whole, (t, x))
    expected = x.astype(np.float64 if source == "float8_e4m3fn" else x.dtype).astype(part.numpy)
    assert found.real.tobytes() == expected.tobytes()
    assert found.imag.tobytes() == np.zeros(2, part.numpy).tobytes()
    assert np.asarray(neuronsim.asarray(x).astype(whole)).tobytes() == found.tobytes()


def test_convert_between_complex_types_rounds_each_part() -> None:
    x = np.array([1 / 3 + 1j / 7, -0.0 + 1e-50j, 1e300 - 2j])
    with np.errstate(over="ignore"):
        single = x.astype(np.complex64)
    assert run("convert", C64, (C128, x)).tobytes() == single.tobytes()
    assert run("convert", C128, (C64, single)).tobytes() == single.astype(np.complex128).tobytes()


def test_convert_to_complex_on_a_device_names_awss_code() -> None:
    source = b"HloModule m\nENTRY e { x = f32[2] parameter(0)  ROOT y = c64[2] convert(x) }"
    with pytest.raises(UnsupportedType, match="NCC_EVRF004") as caught:
        api.compile(source)
    assert "real and imaginary parts" in str(caught.value).lower()
