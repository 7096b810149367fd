"""Rule D1 on another processor: the kernels built for aarch64 and run under an emulator give the bits
of this machine's. Debian: qemu-user, g++-aarch64-linux-gnu.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference.formats import FORMATS

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
ROOT = Path(__file__).parents[2]
SOURCES = ["kernels", "dispatch", "dot", "pool", "program", "reduce", "rounding", "view"]
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-tree-pre", "-static", "-pthread"]
FLAGS += ["-DNEURONSIM_ISA_NAMESPACE=native", '-DNEURONSIM_ISA_NAME="aarch64"']
COUNT = 3000
REDUCERS = ["add", "multiply", "maximum", "minimum"]
Words = npt.NDArray[Any]


def mix(x: Words) -> Words:
    """SplitMix64, as digests.cpp has it."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def drawn(number: int) -> Words:
    return mix(np.arange(COUNT, dtype=np.uint64) | np.uint64(number << 32))


def values(name: str, operand: int) -> Words:
    word = drawn(operand)
    size = dtypes.DTYPES[name].itemsize
    if operand == 1 and name in FORMATS and name != "float64":
        f = FORMATS[name]
        exponent = np.uint64(((1 << f.exponent_bits) - 1) << (f.mantissa_bits + f.shift))
        word[1::2] = ((drawn(0) & exponent) | (word & ~exponent))[1::2]
    valid = 1 if name == "bool" else (1 << 8 * size) - 1 - (0x1FFF if name == "tfloat32" else 0)
    return (word & np.uint64(valid)).astype(f"u{size}")


def digest(words: Words) -> str:
    data = np.ascontiguousarray(words).view(np.uint8).ravel().astype(np.uint64)
    total = (data * mix(np.arange(data.size, dtype=np.uint64))).sum(dtype=np.uint64)
    return f"{int(total):016x}"


def run_program(op: int, types: list[str], result: str) -> str:
    codes = [_core.DTYPES.index(t) for t in types]
    step = (op, _core.DTYPES.index(result), list(range(len(types))))
    program = _core.TileProgram(codes, [step], [len(types)], ops.numerics(Profile()))
    output = np.empty(COUNT, f"u{dtypes.DTYPES[result].itemsize}")
    program.run([values(t, i) for i, t in enumerate(types)], [output])
    return digest(output)


def expected(label: str) -> str:
    """The digest of a case by the extension, found by its label."""
    kind, *rest = label.split()
    rows = {name: (n, arity, kind) for n, (name, arity, kind) in enumerate(_core.OPS)}
    plain = ops.numerics(Profile())
    if kind == "random_words":
        return digest(_core.random_words(1, 2, 5, 512))
    if kind == "convert":
        return run_program(_core.CONVERT, rest[:1], rest[1])
    if kind in ("reduce", "cumulative"):
        reducer, name = rest
        x, code = values(name, 0).reshape(2, -1), _core.DTYPES.index(name)
        output = np.empty(x.shape if kind == "cumulative" else 2, x.dtype)
        reduction = _core.Reduction(rows[reducer][0], code, 0, 512, False, plain, 0, [])
        _core.reduce(reduction, x, 1, np.zeros((), x.dtype), output, int(kind == "cumulative"))
        return digest(output)
    (name,) = rest
    if kind == "dot":
        a, b = values(name, 0).reshape(1, 10, 300), values(name, 1).reshape(1, 300, 10)
        output, code = np.empty((1, 10, 10), a.dtype), _core.DTYPES.index(name)
        sides = (a, code, 1, None, b.transpose(0, 2, 1), code, 1, None, 1)
        _core.dot(*sides, output, code, "fma", 0, 128, plain, 0, 0)
        return digest(output)
    op, arity, section = rows[kind]
    types = ["bool" if section == "selection" else name, *[name] * (arity - 1)]
    return run_program(op, types, "bool" if section == "comparison" else name)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    built: Path = tmp_path_factory.mktemp("aarch64") / "digests"
    sources = [str(ROOT / "csrc" / f"{name}.cpp") for name in SOURCES]
    here = str(Path(__file__).with_name("digests.cpp"))
    command = [COMPILER, *FLAGS, f"-I{ROOT / 'csrc'}", *sources, here, "-o", str(built)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return built


@pytest.mark.parametrize("threads", ["1", "2"])
def test_aarch64_D1_gives_the_same_bits(program: Path, threads: str) -> None:
    command = [EMULATOR, str(program), threads]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    first, *lines = listing.splitlines()
    assert first == "isa aarch64"
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines) > 1000
    assert [label for label, value in found.items() if expected(label) != value] == []
