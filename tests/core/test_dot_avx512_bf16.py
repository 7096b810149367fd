"""The profile `avx512_bf16` against this processor's own VDPBF16PS and VCVTNEPS2BF16 (M6, C4)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import avx512_bf16
from tests.support.draws import random_words
from tests.support.evaluation import evaluate, evaluate_dot
from tests.support.words import Words

COMPILERS = ["g++", "clang++", "c++"]
FLAGS = ["-std=c++17", "-O2", "-mavx512f", "-mavx512vl", "-mavx512bf16"]
BATCHED = ops.DotDimensions((2,), (1,), (0,), (0,))
# Batch and depth: about 10^6 lanes of VDPBF16PS with 64 rows and 64 columns.
SHAPES = [(8, 2), (4, 8), (4, 16), (4, 33), (4, 64)]
MODES = ["near", "any", "special", "tiny", "tiny", "smallest", "subnormal", "large"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vdpbf16ps")
    built: Path = folder / "vdpbf16ps"
    compiler = next((c for c in map(shutil.which, COMPILERS) if c), None)
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    source = str(Path(__file__).with_name("vdpbf16ps.cpp"))
    done = subprocess.run([compiler, *FLAGS, source, "-o", str(built)], capture_output=True, text=True)
    if done.returncode:
        if "avx512bf16" in done.stderr or "target" in done.stderr:
            pytest.skip(f"{compiler} does not know AVX-512 BF16")
        raise AssertionError(done.stderr)
    if subprocess.run([built, "convert", folder / "probe", "0", "1", "16"]).returncode == 77:
        pytest.skip("this processor has no AVX-512 BF16")
    return built


def instruction_dot(program: Path, x: Words, y: Words) -> Words:
    """The products [batch, rows, depth] x [batch, depth, columns] by chains of VDPBF16PS."""
    source, target = program.with_name("in"), program.with_name("out")
    source.write_bytes(x.tobytes() + y.tobytes())
    sizes = [*x.shape, y.shape[2]]
    subprocess.run([program, "dot", source, target, *map(str, sizes)], check=True)
    return np.fromfile(target, np.uint32).reshape(x.shape[0], x.shape[1], y.shape[2])


def our_dot(x: Words, y: Words) -> Words:
    more = {"dot_dimensions": BATCHED, "profile": avx512_bf16}
    return evaluate_dot("bfloat16", x, "bfloat16", y, **more)


def by_rule(words: Words) -> Words:
    """What the rules say differently: any NaN is the canonical one (C5, E6), and the sum enters PSUM,
    which starts at +0 and absorbs -0 (M2).
    """
    magnitude = words & np.uint32(0x7FFFFFFF)
    words = np.where(magnitude > 0x7F800000, np.uint32(0x7FC00000), words)
    return np.where(magnitude == 0, np.uint32(0), words)


def beside(mode: str) -> str:
    """The mode of the right operand."""
    return "by subnormal" if mode == "subnormal" else mode


def drawn(rng: np.random.Generator, shape: tuple[int, ...], mode: str) -> Words:
    """Words of one mode; few of the special ones, or every sum would be NaN."""
    words = random_words(rng, "bfloat16", shape, mode if mode in ("near", "any", "special") else "any")
    spans = {
        "tiny": (56, 68),  # products about 2^-126
        "smallest": (62, 65),
        "subnormal": (0, 3),
        "by subnormal": (248, 254),  # products about 1
        "large": (186, 195),  # products about 2^128
    }
    if mode in spans:
        low, high = spans[mode]
        exponent = rng.integers(low, high, shape).astype(np.uint16)
        words = words & np.uint16(0x807F) | exponent << np.uint16(7)
    if mode in ("any", "special"):
        words[rng.random(shape) < 0.9] = rng.choice(np.array([0, 0x8000, 0x3F80], np.uint16))
    return words


@pytest.mark.parametrize("seed", range(10))
def test_dot_M6_pairs_is_VDPBF16PS(seed: int, program: Path, isa: str) -> None:
    """10^7 random lanes with subnormals, NaN, Inf, overflows and results below 2^-126."""
    rng = np.random.default_rng([68, seed])
    for number, (batch, depth) in enumerate(SHAPES):
        mode = MODES[(seed + number) % len(MODES)]
        x = drawn(rng, (batch, 64, depth), mode)
        y = drawn(rng, (batch, depth, 64), beside(mode))
        found = our_dot(x, y)
        expected = by_rule(instruction_dot(program, x, y))
        np.testing.assert_array_equal(found, expected, err_msg=f"{mode}, depth {depth}")


def test_VDPBF16PS_is_proved_at_import_M2() -> None:
    # Where the instruction set is, the proof must have gone through, or products would be slow unseen.
    assert _core.pairs_are_proved() == ("x86-64-v4-bf16" in processor.available_isas())


def test_dot_C4_flushes_after_gradual_underflow_and_VDPBF16PS_before(program: Path, isa: str) -> None:
    """2^-126 - 2^-150 is a tie in float32 and rounds to 2^-126, which C4 keeps; with an unbounded
    exponent it is below 2^-126, and the instruction flushes it.
    """
    x = np.zeros((1, 1, 4), np.uint16)
    y = np.zeros((1, 4, 16), np.uint16)
    tiny = (127 - 75) << 7
    x[0, 0, :2], y[0, 0], y[0, 1] = [0x8000 | tiny, 0x0080], tiny, 0x3F80  # -2^-75 * 2^-75 + 2^-126
    found = our_dot(x, y)
    theirs = by_rule(instruction_dot(program, x, y))
    assert (set(found.ravel().tolist()), set(theirs.ravel().tolist())) == ({0x00800000}, {0})


def check_conversions(program: Path, first: int, step: int, count: int) -> None:
    target = program.with_name("converted")
    numbers = [str(n) for n in (first, step, count)]
    subprocess.run([program, "convert", target, *numbers], check=True)
    theirs = np.fromfile(target, np.uint16)
    words = (first + np.arange(count, dtype=np.uint64) * np.uint64(step)).astype(np.uint32)
    ours = evaluate("convert", ("float32", words), dtype=dtypes.bfloat16, profile=avx512_bf16)
    is_nan = words & np.uint32(0x7FFFFFFF) > 0x7F800000
    # C5: the canonical NaN with the source's sign; the instruction keeps the payload.
    sign = (words >> np.uint32(16)).astype(np.uint16) & np.uint16(0x8000)
    assert np.array_equal(ours[is_nan], sign[is_nan] | np.uint16(0x7FC0))
    assert (theirs[is_nan] & 0x7FFF > 0x7F80).all()
    assert np.array_equal(ours[~is_nan], theirs[~is_nan])


def test_convert_C4_is_VCVTNEPS2BF16_on_every_256th_word(program: Path, isa: str) -> None:
    check_conversions(program, 127, 256, 1 << 24)


def test_convert_C4_is_VCVTNEPS2BF16_about_ties_and_subnormals(program: Path) -> None:
    for sign in (0, 1 << 31):
        for start in (0, 0x007F8000, 0x00FF0000, 0x3F7F8000, 0x7F7F0000, 0x7F800000):
            check_conversions(program, sign + start, 1, 1 << 17)


@pytest.mark.exhaustive
def test_convert_C4_is_VCVTNEPS2BF16_on_every_word(program: Path) -> None:
    for part in range(256):
        check_conversions(program, part << 24, 1, 1 << 24)
