"""Rule E3: the functions of one variable are correctly rounded, at hard, special and all inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from neuronsim import processor
from neuronsim.reference import elementwise as twin

if TYPE_CHECKING:
    from tests.core.conftest import Evaluate, Words

CORRECTLY_ROUNDED = ["sqrt", "rsqrt", "exp", "tanh"]

# The float32 inputs whose exact results lie nearest to a midpoint between two float32, found by
# searching all inputs with np.longdouble.
HARD = {
    "sqrt": [
        *(0x407FFFFF, 0x3F800001, 0x407FFFFD, 0x3FFC114A, 0x406E9372, 0x3F800003, 0x40551DBF),
        *(0x405AE03B, 0x407FFFFB, 0x3F925859, 0x3FB0C6C3, 0x4041BC4E, 0x402A177F, 0x3FA97BEF),
        *(0x3FF028AB, 0x407FFFF9, 0x3F800005, 0x3FCB41E9, 0x3FCDAEB2, 0x403B8BCC),
    ],
    "rsqrt": [
        *(0x403A18E3, 0x4009F038, 0x407FFFFE, 0x3FBA2A39, 0x3FD2208F, 0x3FED3230, 0x3F8A5C86),
        *(0x3FDAE942, 0x407DE1E1, 0x407DBBAC, 0x401DD16A, 0x4042ED16, 0x3FD19305, 0x40355499),
        *(0x3FA49C14, 0x3FD7AEA0, 0x4020BF32, 0x4023707B, 0x3FC653DA, 0x407FFFFA),
    ],
    "exp": [  # six for each sixteenth of an octave, as exp's table has a place for each
        *(0xC16912CD, 0xBBF0EDF1, 0x377EFF81, 0xBAE0E25C, 0x39C6BE5B, 0x38E69CC1),
        *(0x3D1A274E, 0x4034D02B, 0x3D7010DE, 0xC236E4B4, 0xBFAB7CE4, 0x3CB8389B),
        *(0xBFFC842D, 0xC2ABB454, 0xC233E0F0, 0xC1302DB4, 0x3DA59A3F, 0x3DD8A714),
        *(0x3DFB09D6, 0xBF157C82, 0x4039CB53, 0xC145C789, 0x423D1C5F, 0x3DE64041),
        *(0x3F5BC24C, 0x3F6064D8, 0xBEFFFEE9, 0xC0958582, 0xBF9AB562, 0x413F5C00),
        *(0x408B904B, 0xBEED01AF, 0xBEF903F8, 0x3E4C80CA, 0x3FCD05E6, 0x3F699F84),
        *(0xC159FA1E, 0xBEE0E6CD, 0x3E777FEC, 0x4016BD40, 0xBED8750D, 0x3E78D8DB),
        *(0xC0781533, 0x4178966E, 0x40A470E2, 0x40197AA8, 0x3E9A7FD4, 0x414C47CE),
        *(0x4288942B, 0x4283070F, 0x401B6C99, 0xC01A001D, 0x41AEA5EA, 0xC0A63302),
        *(0xBF81EADF, 0xC1F64B8C, 0xC018E939, 0x429675E7, 0x416EE114, 0x3EC16414),
        *(0x3FE67199, 0xBF76FD92, 0x41F77C01, 0xBFD04462, 0xC27D58D9, 0x3ED3D2A2),
        *(0xBE67B559, 0xBE5F667D, 0xBE715290, 0xBE47BE83, 0xBE699806, 0xC0E42C68),
        *(0xC069222D, 0xBE2A2C7B, 0x3F9C7C14, 0x41BB293E, 0xBE21A7B0, 0x40260F0C),
        *(0x41CBF87B, 0xBFBFA14B, 0xBDF128EB, 0x3FA1D683, 0xBE11F570, 0xC176581C),
        *(0xBDB393EB, 0xC0382E72, 0xBDA7D6C2, 0x3FA79EE2, 0xBDA7375D, 0x4098F549),
        *(0x4001B249, 0xC13D6631, 0xBCB8F40F, 0xBCE017BB, 0x428A94C5, 0xC03359CB),
    ],
    "tanh": [
        *(0x3AC37DE2, 0x3EEE0566, 0x3CD41B91, 0x40ACB4D0, 0x40C5E8CA, 0x3D7C3055, 0x3C96AE2E),
        *(0x40A6EF82, 0x3F20B67F, 0x3FF8BC7E, 0x4013CD84, 0x3BC8B605, 0x3F97FBC7, 0x3EF6AFEE),
        *(0x3ADBC904, 0x39B89BA2, 0x39B89BA3, 0x40C7B05F, 0x3F172BE6, 0x3E150CD4),
    ],
}


@cache
def function_inputs(name: str) -> Words:
    rng = np.random.default_rng(12)
    drawn = rng.integers(0, 1 << 32, 1500, np.uint32)
    close = rng.integers(0, 1 << 32, 2500, np.uint32) & np.uint32(0x807FFFFF)
    close |= rng.integers(100, 134, 2500, np.uint32) << np.uint32(23)
    edges = np.array(
        [89, 88.72283, 88.72284, -87.3, -103.97, -103.98, -104, -105, 9.01, 9.02, 10], "f4"
    )
    special = [0, 1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF]
    special += [0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    positive = np.array(special, np.uint32)
    around = (edges.view(np.uint32)[:, None] + np.arange(-3, 4)).ravel().astype(np.uint32)
    hard = np.array(HARD[name], np.uint32)
    return np.concatenate([positive, positive | np.uint32(1 << 31), drawn, close, around, hard])


@cache
def expected_of_function(name: str) -> Words:
    return np.array([twin.FLOAT[name](x) for x in function_inputs(name).tolist()], np.uint32)


@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_function_E3_equals_the_twin(isa: str, evaluate: Evaluate, name: str) -> None:
    x = function_inputs(name)
    assert np.array_equal(evaluate(name, ("float32", x)), expected_of_function(name))


LONGDOUBLE: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "tanh": np.tanh,
}


def wrongly_rounded(
    name: str, x: Words, y: Words, decide: Callable[[int], int]
) -> tuple[list[int], int]:
    """The inputs at which y is not the correctly rounded result, and how many had to be decided.

    An 80-bit result settles all but those within 2^-58 of a midpoint; `decide` settles these.
    """
    result = y.view(np.float32)
    with np.errstate(all="ignore"):
        exact = LONGDOUBLE[name](x.view(np.float32).astype(np.longdouble))
        below, above = (
            np.nextafter(result, np.float32(s * np.inf)).astype(np.longdouble) for s in (-1, 1)
        )
        wide = result.astype(np.longdouble)
        # Beyond the largest float32 the next value would be 2^128: its midpoint decides overflow.
        limit = np.ldexp(np.longdouble(1), 128)
        wide, below, above = (np.clip(v, -limit, limit) for v in (wide, below, above))
        low = np.where(result == -np.inf, -np.inf, (wide + below) / 2)
        high = np.where(result == np.inf, np.inf, (wide + above) / 2)
        slack = np.abs(exact) * np.longdouble(2) ** -58
        inside = (exact - slack > low) & (exact + slack < high)
        infinite = np.isinf(exact)
        inside = np.where(infinite, result == exact, inside)
        inside |= np.isnan(exact) & (y == 0x7FC00000)
        inside &= np.isnan(exact) | (np.signbit(exact) == np.signbit(result))
    asked = np.flatnonzero(~inside).tolist()
    return [int(x[i]) for i in asked if decide(int(x[i])) != int(y[i])], len(asked)


needs_80_bits = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="np.longdouble is no wider than float64 here"
)


@needs_80_bits
@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_function_E3_at_half_a_million_inputs(isa: str, evaluate: Evaluate, name: str) -> None:
    rng = np.random.default_rng(13)
    x = rng.integers(0, 1 << 31, 1 << 19, np.uint32)
    x[: 1 << 18] = x[: 1 << 18] & 0x7FFFFF | rng.integers(105, 134, 1 << 18, np.uint32) << np.uint32(23)
    if name in ("exp", "tanh"):
        x[::2] |= np.uint32(0x80000000)
    wrong, asked = wrongly_rounded(name, x, evaluate(name, ("float32", x)), twin.FLOAT[name])
    assert wrong == []
    assert asked < 100


@needs_80_bits
@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_control_E3_one_wrong_bit_is_noticed(evaluate: Evaluate, name: str) -> None:
    x = np.linspace(0.3, 5, 1000, dtype=np.float32).view(np.uint32)
    y = evaluate(name, ("float32", x)).copy()
    for i, step in ((10, 1), (500, -1), (999, 1)):
        y[i] = int(y[i]) + step
    wrong, _ = wrongly_rounded(name, x, y, twin.FLOAT[name])
    assert wrong == [int(x[10]), int(x[500]), int(x[999])]


@needs_80_bits
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_function_E3_at_every_input(restored_processor: None, evaluate: Evaluate, name: str) -> None:
    """MPFR decides what 80 bits cannot, in the format's own range and precision."""
    gmpy2 = pytest.importorskip("gmpy2")
    processor.set_isa(processor.available_isas()[-1])
    functions = {"sqrt": gmpy2.sqrt, "rsqrt": gmpy2.rec_sqrt, "exp": gmpy2.exp, "tanh": gmpy2.tanh}
    float32 = gmpy2.context(precision=24, emax=128, emin=-148, subnormalize=True)

    def decide(bits: int) -> int:
        argument = float(np.uint32(bits).view(np.float32))
        with gmpy2.context(float32):
            result = np.float32(float(functions[name](gmpy2.mpfr(argument))))
        return 0x7FC00000 if np.isnan(result) else int(result.view(np.uint32))

    step = 1 << 21
    for start in range(0, 1 << 32, step):
        x = np.arange(start, start + step, dtype=np.uint64).astype(np.uint32)
        wrong, asked = wrongly_rounded(name, x, evaluate(name, ("float32", x)), decide)
        assert wrong == [], [hex(w) for w in wrong[:5]]
        assert asked < step // 8
