"""Rules E: every row of csrc/ops.def against the twin, on every type that the row has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuronsim import _core, dtypes, processor
from neuronsim.errors import UnsupportedType
from neuronsim.reference import elementwise as twin
from neuronsim.reference import formats

if TYPE_CHECKING:
    from tests.core.conftest import Evaluate, RandomWords, Words

ROWS = {name: (arity, kind) for name, arity, kind in _core.OPS}
BINARY = [n for n, (arity, _) in ROWS.items() if arity == 2 and n in twin.FLOAT]
MOVING = ["negative", "abs"]
COMPARISONS = [n for n, (_, kind) in ROWS.items() if kind == "comparison"]
CORRECTLY_ROUNDED = ["sqrt", "rsqrt", "exp", "tanh"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NARROW = ["tfloat32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e3m4"]

_MAGNITUDES = [0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001]
_MAGNITUDES += [0x1F800000, 0x20000000, 0x33800000, 0x33800001, 0x34000000, 0x3F7FFFFF, 0x3F800000]
_MAGNITUDES += [0x3F800001, 0x40000000, 0x40400000, 0x4B000000, 0x4B7FFFFF, 0x7E800000, 0x7F000000]
_MAGNITUDES += [0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF]
SPECIAL = np.array([m | s for m in _MAGNITUDES for s in (0, 0x80000000)], np.uint32)


def test_every_row_has_a_twin() -> None:
    for name, (_, kind) in ROWS.items():
        if kind in ("arithmetic", "floating", "bitwise"):
            assert name in twin.FLOAT, name
        if kind in ("arithmetic", "bitwise", "integral") and name != "logical_not":
            assert name in twin.INTEGER, name
        if kind == "comparison":
            assert name in twin.COMPARISON, name
    assert {kind for _, kind in ROWS.values()} == {
        *("arithmetic", "floating", "integral", "bitwise", "comparison", "selection")
    }


# ---- float32 -----------------------------------------------------------------------------------


@cache
def float_pairs() -> tuple[Words, Words]:
    """Every pair of special values, and random patterns: of any exponent, and of close exponents."""
    rng = np.random.default_rng(10)
    a, b = (x.ravel() for x in np.meshgrid(SPECIAL, SPECIAL))
    drawn = rng.integers(0, 1 << 32, (2, 4000), np.uint32)
    close = drawn & np.uint32(0x807FFFFF) | rng.integers(121, 134, (2, 4000), np.uint32) << np.uint32(
        23
    )
    return np.concatenate([a, drawn[0], close[0]]), np.concatenate([b, drawn[1], close[1]])


@cache
def expected_of_pairs(name: str) -> Words:
    a, b = (x.tolist() for x in float_pairs())
    f = twin.FLOAT.get(name) or (lambda x, y: twin.compare(name, x, y))
    return np.array([f(x, y) for x, y in zip(a, b, strict=True)], np.uint32)


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_float32_E2_E7_equals_the_twin(isa: str, evaluate: Evaluate, name: str) -> None:
    a, b = float_pairs()
    assert np.array_equal(evaluate(name, ("float32", a), ("float32", b)), expected_of_pairs(name))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_float32_E2_is_the_processors_own_arithmetic(evaluate: Evaluate, name: str) -> None:
    """A third party at a million points: NumPy computes these four in IEEE binary32."""
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 1 << 32, (2, 1 << 20), np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    ours = evaluate(name, ("float32", a.view(np.uint32)), ("float32", b.view(np.uint32)))
    nan = np.isnan(expected)
    assert np.array_equal(ours[~nan], expected[~nan].view(np.uint32))
    assert set(ours[nan].tolist()) == {0x7FC00000}  # E6


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.floats(width=32), b=st.floats(width=32), name=st.sampled_from([*BINARY, *COMPARISONS]))
def test_float32_E2_on_hypothesis_floats(evaluate: Evaluate, a: float, b: float, name: str) -> None:
    words = np.array([a, b], np.float32).view(np.uint32)
    ours = evaluate(name, ("float32", words[:1]), ("float32", words[1:]))
    f = twin.FLOAT.get(name) or (lambda x, y: int(twin.compare(name, x, y)))
    assert ours.tolist() == [f(int(words[0]), int(words[1]))]


@pytest.mark.parametrize(
    ("a", "b", "largest", "smallest"),
    [
        (0x80000000, 0x00000000, 0x00000000, 0x80000000),
        (0x00000000, 0x80000000, 0x00000000, 0x80000000),
        (0x7F800001, 0x3F800000, 0x7FC00000, 0x7FC00000),
        (0x3F800000, 0xFFC00001, 0x7FC00000, 0x7FC00000),
    ],
)
def test_maximum_minimum_E7_zeros_and_nan(
    isa: str, evaluate: Evaluate, a: int, b: int, largest: int, smallest: int
) -> None:
    x, y = (("float32", np.array([v] * 20, np.uint32)) for v in (a, b))
    assert evaluate("maximum", x, y).tolist() == [largest] * 20
    assert evaluate("minimum", x, y).tolist() == [smallest] * 20


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"])
def test_bit_operations_E8_do_not_exist_for_floats(evaluate: Evaluate, name: str) -> None:
    x = ("float32", SPECIAL)
    with pytest.raises(UnsupportedType, match="float32"):
        evaluate(name, *[x] * ROWS[name][0])


@pytest.mark.parametrize("name", CORRECTLY_ROUNDED)
def test_functions_E3_do_not_exist_for_integers(evaluate: Evaluate, name: str) -> None:
    with pytest.raises(UnsupportedType, match="int32"):
        evaluate(name, ("int32", np.zeros(3, np.uint32)))


# ---- E3: correctly rounded ---------------------------------------------------------------------

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
    around = (edges.view(np.uint32)[:, None] + np.arange(-3, 4)).ravel().astype(np.uint32)
    return np.concatenate([SPECIAL, drawn, close, around, np.array(HARD[name], np.uint32)])


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


# ---- E1: narrow types --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BINARY, *CORRECTLY_ROUNDED, *COMPARISONS])
@pytest.mark.parametrize("type_name", NARROW)
def test_narrow_E1_loads_computes_and_rounds_once(
    restored_processor: None,
    evaluate: Evaluate,
    random_words: RandomWords,
    type_name: str,
    name: str,
) -> None:
    rng = np.random.default_rng(14)
    arity = ROWS[name][0]
    counts = (120, 60, 120) if name in ("exp", "tanh") else (250, 250, 200)
    columns = [
        np.concatenate([random_words(rng, type_name, n, m) for n, m in zip(counts, modes, strict=True)])
        for modes in itertools.repeat(("any", "near", "special"), arity)
    ]
    wide = [[formats.convert(type_name, "float32", w) for w in c.tolist()] for c in columns]
    if name in COMPARISONS:
        expected = [int(twin.compare(name, *p)) for p in zip(*wide, strict=True)]
    else:
        f = twin.FLOAT[name]
        expected = [formats.convert("float32", type_name, f(*p)) for p in zip(*wide, strict=True)]
    for isa in processor.available_isas():
        processor.set_isa(isa)
        assert evaluate(name, *((type_name, c) for c in columns)).tolist() == expected, isa


def test_narrow_E1_rounds_where_float32_is_between(isa: str, evaluate: Evaluate) -> None:
    """float16 1 + 2^-11 is a tie; the float32 sum with 2^-24 more is not, and rounds up."""
    one, tie = np.array([0x3C00], np.uint16), np.array([0x1001], np.uint16)  # 2^-11 + 2^-21
    assert evaluate("add", ("float16", one), ("float16", tie)).tolist() == [0x3C01]
    assert evaluate("add", ("float16", one), ("float16", tie - 1)).tolist() == [0x3C00]


# ---- E6: what moves bits -----------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["float32", *NARROW])
def test_negative_and_abs_E6_flip_the_sign_and_nothing_else(
    isa: str, evaluate: Evaluate, random_words: RandomWords, type_name: str
) -> None:
    rng = np.random.default_rng(15)
    words = np.concatenate([random_words(rng, type_name, 700, m) for m in ("any", "special")])
    sign = words.dtype.type(1 << (8 * words.itemsize - 1))
    assert np.array_equal(evaluate("negative", (type_name, words)), words ^ sign)
    assert np.array_equal(evaluate("abs", (type_name, words)), words & ~sign)


@pytest.mark.parametrize("type_name", ["float32", *NARROW, *SIGNED, *UNSIGNED, "bool"])
def test_select_E6_moves_bits(
    isa: str, evaluate: Evaluate, random_words: RandomWords, type_name: str
) -> None:
    rng = np.random.default_rng(16)
    condition = rng.integers(0, 2, 900, np.uint8)
    a, b = (random_words(rng, type_name, 900, "special") for _ in range(2))
    ours = evaluate("select", ("bool", condition), (type_name, a), (type_name, b))
    assert np.array_equal(ours, np.where(condition == 1, a, b))
    one = evaluate("select", ("bool", np.array(1, np.uint8)), (type_name, a), (type_name, b))
    assert np.array_equal(one, a)


@pytest.mark.parametrize("name", [*BINARY, *CORRECTLY_ROUNDED])
@pytest.mark.parametrize("type_name", ["float32", *NARROW])
def test_nan_E6_that_arithmetic_makes_is_canonical(
    isa: str, evaluate: Evaluate, type_name: str, name: str
) -> None:
    f = formats.FORMATS[type_name]
    lowest = ((1 << f.exponent_bits) - 1 << f.mantissa_bits) + 1 << f.shift
    nans = [f.nan_bits | s | p for s in (0, f.sign_bit) for p in (0, 1 << f.shift)]
    nans += [lowest, lowest | f.sign_bit]
    words = np.array(nans, f"u{dtypes.DTYPES[type_name].itemsize}")
    ours = evaluate(name, *[(type_name, words)] * ROWS[name][0])
    assert ours.tolist() == [f.nan_bits] * len(nans)


# ---- E8: integers and bool ---------------------------------------------------------------------


def integer_expectation(name: str, type_name: str, columns: list[list[int]]) -> list[int]:
    info = np.iinfo(type_name)
    if name in COMPARISONS:
        return [int(twin.COMPARISON[name](*p)) for p in zip(*columns, strict=True)]
    mask = (1 << info.bits) - 1
    return [twin.INTEGER[name](*p) & mask for p in zip(*columns, strict=True)]


@cache
def all_pairs_of_bytes(name: str, type_name: str) -> tuple[list[Words], Words]:
    values = np.arange(256, dtype=np.uint8)
    grid = [x.ravel() for x in np.meshgrid(values, values)] if ROWS[name][0] == 2 else [values]
    return grid, np.array(
        integer_expectation(name, type_name, [x.view(type_name).tolist() for x in grid]), np.uint8
    )


@pytest.mark.parametrize("name", [*twin.INTEGER, *COMPARISONS])
@pytest.mark.parametrize("type_name", ["int8", "uint8"])
def test_every_pair_of_bytes_E8_equals_python(
    isa: str, evaluate: Evaluate, type_name: str, name: str
) -> None:
    columns, expected = all_pairs_of_bytes(name, type_name)
    assert np.array_equal(evaluate(name, *((type_name, c) for c in columns)), expected)


@pytest.mark.parametrize("name", [*twin.INTEGER, *COMPARISONS])
@pytest.mark.parametrize("type_name", [*SIGNED[1:], *UNSIGNED[1:]])
def test_wide_integers_E8_equal_python(
    isa: str, evaluate: Evaluate, random_words: RandomWords, type_name: str, name: str
) -> None:
    info, rng = np.iinfo(type_name), np.random.default_rng(17)
    edges = np.array(
        [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], type_name
    )
    edges = np.concatenate([edges, -edges]).view(f"u{edges.itemsize}")
    grid = [x.ravel() for x in np.meshgrid(edges, edges)]
    columns = [np.concatenate([g, random_words(rng, type_name, 400)]) for g in grid[: ROWS[name][0]]]
    expected = integer_expectation(name, type_name, [c.view(type_name).tolist() for c in columns])
    assert evaluate(name, *((type_name, c) for c in columns)).tolist() == expected


@pytest.mark.parametrize("type_name", SIGNED)
def test_division_E8_by_zero_and_of_the_smallest(isa: str, evaluate: Evaluate, type_name: str) -> None:
    info = np.iinfo(type_name)
    a = np.array([7, -7, 0, info.min, info.min, -7, 7], type_name)
    b = np.array([0, 0, 0, 0, -1, 2, -2], type_name)
    word = f"u{a.itemsize}"
    ours = evaluate("divide", (type_name, a.view(word)), (type_name, b.view(word))).view(type_name)
    assert ours.tolist() == [-1, -1, -1, -1, info.min, -3, -3]


@pytest.mark.parametrize("type_name", UNSIGNED)
def test_division_E8_of_unsigned_by_zero_is_all_ones(
    isa: str, evaluate: Evaluate, type_name: str
) -> None:
    a, b = np.array([7, 0, 7], type_name), np.array([0, 0, 2], type_name)
    assert evaluate("divide", (type_name, a), (type_name, b)).tolist() == [
        np.iinfo(type_name).max
    ] * 2 + [3]


@pytest.mark.parametrize("name", [*twin.BOOL, *COMPARISONS])
def test_bool_E8_equals_the_twin(isa: str, evaluate: Evaluate, name: str) -> None:
    a, b = np.array([0, 0, 1, 1] * 9, np.uint8), np.array([0, 1, 0, 1] * 9, np.uint8)
    columns = [a, b][: ROWS[name][0]]
    f = twin.BOOL.get(name) or twin.COMPARISON[name]
    expected = [int(f(*p)) for p in zip(*(c.tolist() for c in columns), strict=True)]
    assert evaluate(name, *(("bool", c) for c in columns)).tolist() == expected


# ---- layouts and sizes -------------------------------------------------------------------------


def layouts(words: Words) -> Iterator[tuple[str, Words]]:
    """Views of a [6, 70, 40] array of words."""
    yield "dense", words
    yield "rows that are no multiple of a vector", words[:, :, :33]
    yield "every second", words[:, :, ::2]
    yield "backwards", words[::-1, ::-1, ::-1]
    yield "backwards in steps", words[::-2, :, 37::-3]
    yield "transposed", words.transpose(2, 0, 1)
    yield "a broadcast row", np.broadcast_to(words[2, 3], (50, 40))
    yield "a broadcast column", np.broadcast_to(words[2, :, 3:4], (70, 600))
    yield "one element", np.broadcast_to(words[1, 1, 1], (3, 500))
    yield "a window that overlaps", np.lib.stride_tricks.sliding_window_view(words[0, 0], 7)
    yield "no element", words[:, :0]
    yield "rank 0", words[0, 0, 0, ...]
    shifted = np.frombuffer(b"\0" + words.tobytes(), np.uint8)[1:]
    yield "not aligned", shifted.view(words.dtype)


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "float8_e4m3", "int8", "int64", "uint16"])
def test_every_layout_E1_gives_the_same_bits(
    isa: str, threads: int, evaluate: Evaluate, random_words: RandomWords, type_name: str
) -> None:
    rng = np.random.default_rng(18)
    words = random_words(rng, type_name, (6, 70, 40), "near")
    for label, view in layouts(words):
        dense = np.array(view, order="C")
        other = random_words(rng, type_name, view.shape, "near")
        expected = evaluate("subtract", (type_name, dense), (type_name, other))
        assert np.array_equal(evaluate("subtract", (type_name, view), (type_name, other)), expected), (
            label
        )
        condition = ("bool", (other & 1).astype(np.uint8))
        ours = evaluate("select", condition, (type_name, view), (type_name, other))
        assert np.array_equal(ours, np.where(other & 1 == 1, dense, other)), label


SIZES = [0, 1, 2, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 8191, 8192, 8193, 16385, 65535, 70001]


@pytest.mark.parametrize("n", SIZES)
def test_every_size_E1_around_tiles_and_grains(
    isa: str, threads: int, evaluate: Evaluate, random_words: RandomWords, n: int
) -> None:
    rng = np.random.default_rng(n)
    a, b = (random_words(rng, "float32", n, "near") for _ in range(2))
    ours = evaluate("add", ("float32", a), ("float32", b))
    assert np.array_equal(ours, (a.view(np.float32) + b.view(np.float32)).view(np.uint32))
    c = random_words(rng, "int16", n)
    ours = evaluate("multiply", ("int16", c), ("int16", c[::-1]))
    assert np.array_equal(ours.view(np.int16), c.view(np.int16) * c[::-1].view(np.int16))


# ---- chains ------------------------------------------------------------------------------------

CHAIN_FLOATS = ["float32", *NARROW]
CHAIN_INTEGERS = ["int8", "int32", "int64", "uint8", "uint32", "bool"]


def random_chain(rng: np.random.Generator) -> tuple[list[str], list[tuple[str, str, list[int]]]]:
    """Types of the inputs and up to ten well-typed steps (operation, result type, operands)."""
    values = [str(t) for t in rng.choice([*CHAIN_FLOATS, "int32", "bool"], rng.integers(1, 4))]
    inputs = list(values)
    steps: list[tuple[str, str, list[int]]] = []
    for _ in range(rng.integers(1, 11)):
        v = int(rng.integers(len(values)))
        same = [i for i, t in enumerate(values) if t == values[v]]
        bools = [i for i, t in enumerate(values) if t == "bool"]
        is_float = values[v] in CHAIN_FLOATS
        choices = [*BINARY, *CORRECTLY_ROUNDED, *MOVING] if is_float else list(twin.INTEGER)
        if values[v] == "bool":
            choices = ["bitwise_and", "bitwise_or", "bitwise_xor"]
        name = str(rng.choice([*choices, *COMPARISONS, "select", "convert", "convert"]))
        if name == "select" and not bools:
            name = "convert"
        if name == "convert":
            result = str(rng.choice([*CHAIN_FLOATS, *CHAIN_INTEGERS]))
            steps.append((name, result, [v]))
        else:
            operands = [int(rng.choice(same)) for _ in range(ROWS[name][0])]
            if name == "select":
                operands[0] = int(rng.choice(bools))
            result = "bool" if name in COMPARISONS else values[v]
            steps.append((name, result, operands))
        values.append(steps[-1][1])
    return inputs, steps


def compile_chain(
    inputs: list[str], steps: list[tuple[str, str, list[int]]], outputs: list[int]
) -> _core.TileProgram:
    codes = {name: i for i, (name, _, _) in enumerate(_core.OPS)} | {"convert": _core.CONVERT}
    listed = [(codes[op], _core.DTYPES.index(result), operands) for op, result, operands in steps]
    return _core.TileProgram([_core.DTYPES.index(t) for t in inputs], listed, outputs, True)


@pytest.mark.parametrize("seed", range(120))
def test_chain_D2_equals_op_by_op(
    restored_processor: None, evaluate: Evaluate, random_words: RandomWords, seed: int
) -> None:
    """Several steps of different types in registers, against the same steps through memory."""
    rng = np.random.default_rng(seed)
    inputs, steps = random_chain(rng)
    n = int(rng.choice([1, 100, 513, 1200]))
    modes = ["any", "near", "special"]
    values = [(t, random_words(rng, t, n, str(rng.choice(modes)))) for t in inputs]
    data = [words for _, words in values]
    for name, result, operands in steps:
        more = {"dtype": dtypes.DTYPES[result]} if name == "convert" else {}
        values.append((result, evaluate(name, *(values[i] for i in operands), **more)))
    every_step = list(range(len(inputs), len(values)))
    for outputs in (every_step, every_step[-1:]):
        program = compile_chain(inputs, steps, outputs)
        for isa in processor.available_isas():
            processor.set_isa(isa)
            results = [np.empty(n, values[i][1].dtype) for i in outputs]
            program.run(data, results)
            for i, ours in zip(outputs, results, strict=True):
                assert np.array_equal(ours, values[i][1]), (isa, i, inputs, steps)


def test_chain_D2_rounds_between_its_steps(isa: str) -> None:
    """(1 + 2^-9) - 1 is 0 in bfloat16; without the rounding of the sum it would be 2^-9."""
    one, small = np.array([0x3F80], np.uint16), np.array([0x3B00], np.uint16)
    steps = [("add", "bfloat16", [0, 1]), ("subtract", "bfloat16", [2, 0])]
    output = np.empty(1, np.uint16)
    compile_chain(["bfloat16", "bfloat16"], steps, [3]).run([one, small], [output])
    assert output.tolist() == [0]


@pytest.mark.parametrize("type_name", [*CHAIN_FLOATS, *CHAIN_INTEGERS, "float64"])
def test_chain_E6_an_input_that_is_an_output_moves_bits(
    isa: str, random_words: RandomWords, type_name: str
) -> None:
    words = random_words(np.random.default_rng(19), type_name, 600, "special")
    output = np.empty_like(words)
    compile_chain([type_name], [], [0]).run([words], [output])
    assert np.array_equal(output, words)


@pytest.mark.parametrize(
    ("inputs", "steps", "outputs", "message"),
    [
        (["float32"], [("add", "float32", [0])], [1], "takes 2 operands"),
        (["float32"], [("convert", "float32", [0, 0])], [1], "takes one operand"),
        (["float32"], [("exp", "float32", [1])], [1], "not computed yet"),
        (["float32"], [("exp", "float32", [-1])], [1], "not computed yet"),
        (["float32", "int32"], [("add", "float32", [0, 1])], [2], "do not go together"),
        (["float32"], [("bitwise_and", "float32", [0, 0])], [1], "not defined for float32"),
        (["int32"], [("exp", "int32", [0])], [1], "not defined for int32"),
        (["float64"], [("add", "float64", [0, 0])], [1], "not defined for float64"),
        (["float32"], [("less", "float32", [0, 0])], [1], "the result cannot be float32"),
        (["float32"], [("add", "int32", [0, 0])], [1], "the result cannot be int32"),
        (["float32"], [("select", "float32", [0, 0, 0])], [1], "must be bool"),
        (["float32"], [("exp", "float32", [0])], [2], "an output is not computed"),
    ],
)
def test_ill_typed_program_is_refused(
    inputs: list[str], steps: list[Any], outputs: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compile_chain(inputs, steps, outputs)


def test_unknown_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown operation"):
        _core.TileProgram([0], [(_core.CONVERT + 1, 0, [0])], [1], True)
    with pytest.raises(ValueError, match="unknown dtype"):
        _core.TileProgram([len(_core.DTYPES)], [], [0], True)


def test_wrong_arrays_are_refused() -> None:
    program = compile_chain(["float32"], [("exp", "float32", [0])], [1])
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for inputs, outputs in (
        ([], [y]),
        ([x], []),
        ([x[:3]], [y]),
        ([x.astype(np.float64)], [y]),
        ([x], [np.zeros(4, np.uint16)]),
        ([x], [np.zeros(8, np.float32)[::2]]),
    ):
        with pytest.raises(ValueError, match=r"number of|shapes differ|items are not|not dense"):
            program.run(inputs, outputs)
