"""Rule D1 on another processor: the kernels built for aarch64 and run under an emulator give the bits
of this machine's. Debian: qemu-user, g++-aarch64-linux-gnu.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from neuronsim import _core, dtypes, ops
from neuronsim.profiles import Profile
from neuronsim.reference.formats import FORMATS
from tests.support.places import ROOT

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# Everything that needs no Python.
SOURCES = [p for p in sorted((ROOT / "csrc").rglob("*.cpp")) if "bindings" not in p.parts]
DIGESTS = Path(__file__).with_name("digests.cpp")
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-tree-pre", "-static", "-pthread"]
FLAGS += ["-DNEURONSIM_ISA_NAMESPACE=native", '-DNEURONSIM_ISA_NAME="aarch64"']
FLAGS += ["-DNEURONSIM_KERNELS=KERNELS(native)"]
COUNT = 3000
# What digests.cpp multiplies: rows, depth and columns; length, window, padding, groups, features read
# and written of a group.
DOTS = {"row": (1, 300, 10), "column": (29, 101, 1), "outer": (50, 1, 51)}
CONVOLUTIONS = {
    "direct": (31, 1, 0, 1, 40, 70),
    "image": (31, 3, 1, 1, 40, 25),
    "depthwise": (31, 3, 2, 40, 1, 2),
    "groups": (29, 3, 1, 4, 25, 9),
    "exact": (31, 3, 1, 1, 40, 25),
}
# The core's arguments for the sums of a product (M6).
MODELS = {
    "sequential": ("fma", "float32", 300),
    "exact": ("exact", "float32", 128),
    "pairs": ("pairs", "float32", 300),
    "to_bfloat16": ("fma", "bfloat16", 128),
    "to_float16": ("fma", "float16", 128),
    "product_bf16": ("product_bf16", "float32", 128),
}
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
    program = _core.Chain(codes, [step], [len(types)], ops.numerics(Profile()))
    output = np.empty(COUNT, f"u{dtypes.DTYPES[result].itemsize}")
    program.on([values(t, i) for i, t in enumerate(types)], [output]).run()
    return digest(output)


def sums_of(model: str) -> tuple[str, int, int]:
    order, dtype, tile = MODELS.get(model, ("fma", "float32", 128))
    return order, _core.DTYPES.index(dtype), tile


def factors(name: str, operand: int, *, tiny: bool = False) -> Words:
    """Values for products, as digests.cpp has them."""
    word = values(name, operand)
    if name not in FORMATS:
        return word
    f = FORMATS[name]
    place, top = word.dtype.type(f.mantissa_bits + f.shift), (1 << f.exponent_bits) - 1
    binades = 4 if f.exponent_bits < 4 else 8
    least = 0 if tiny and operand == 0 else (top >> 1) - binades // 2
    exponent = (word >> place) % word.dtype.type(binades) + word.dtype.type(least)
    others = word.dtype.type(np.iinfo(word.dtype).max ^ (top << int(place)))
    return word & others | exponent << place


def dot_of(name: str, case: str, *, tiny: bool, flush: bool) -> Words:
    rows, depth, columns = DOTS.get(case, (10, 300, 10))
    a, b = (factors(name, n, tiny=tiny) for n in (0, 1))
    a, b = a[: rows * depth], b[: depth * columns]
    # Where the case is about the sums, they are not rounded.
    code, to = (_core.DTYPES.index(t) for t in (name, "float32" if case in MODELS or tiny else name))
    output = np.empty((rows, columns), np.uint32 if to == 0 else a.dtype)
    numerics = ops.numerics(Profile(subnormals="flush" if flush else "keep"))
    side = (code, 1, None)
    product = _core.Product(side, side, 0, to, sums_of(case), numerics)
    product.on(a.reshape(rows, depth), b.reshape(depth, columns).T, output).run()
    return output


def convolution_of(name: str, case: str) -> Words:
    length, window, padding, groups, reads, writes = CONVOLUTIONS[case]
    x, w = factors(name, 0), factors(name, 1)
    x = x[: length * groups * reads].reshape(1, length, groups * reads)
    w = w[: window * reads * groups * writes].reshape(window, reads, groups * writes)
    output = np.empty((1, length + 2 * padding - window + 1, groups * writes), x.dtype)
    code = _core.DTYPES.index(name)
    shape = ([(window, 1, padding, 1, 1, False)], groups, 1)
    numerics = ops.numerics(Profile())
    sides = (code, None), (code, None)
    _core.Convolution(*sides, *shape, code, sums_of(case), numerics).on(x, w, output).run()
    return output


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
        reduction = _core.Reduction(rows[reducer][0], code, 0, 512, False, plain)
        reduction.on(x, 1, np.zeros((), x.dtype), output, int(kind == "cumulative")).run()
        return digest(output)
    if kind == "dot":
        return digest(dot_of(rest[0], rest[1], tiny="tiny" in rest, flush="flush" in rest))
    if kind == "convolution":
        return digest(convolution_of(rest[0], rest[1]))
    (name,) = rest
    op, arity, section = rows[kind]
    types = ["bool" if section == "selection" else name, *[name] * (arity - 1)]
    return run_program(op, types, "bool" if section == "comparison" else name)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    place: Path = tmp_path_factory.mktemp("aarch64")
    sources = [*SOURCES, DIGESTS]
    command = [COMPILER, *FLAGS, f"-I{ROOT / 'csrc'}", "-c"]
    objects = [place / f"{number}.o" for number in range(len(sources))]
    commands = [
        [*command, source, "-o", object_] for source, object_ in zip(sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda c: subprocess.run(c, cwd=place, check=True), commands))
    built = place / "digests"
    subprocess.run([COMPILER, *FLAGS, *objects, "-o", built], cwd=place, check=True)
    return built


@pytest.mark.isa_independent
def test_control_the_program_compiles_with_what_the_build_defines() -> None:
    """The other test needs a compiler that few have, so that it could rot unseen."""
    build = (ROOT / "csrc" / "CMakeLists.txt").read_text()
    defined = {flag[2:].partition("=")[0] for flag in FLAGS if flag.startswith("-D")}
    assert set(re.findall(r"(NEURONSIM_\w+)=", build)) == defined
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("c++ is not installed")
    command = [compiler, *FLAGS, f"-I{ROOT / 'csrc'}", "-fsyntax-only", DIGESTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.isa_independent
@pytest.mark.parametrize("threads", ["1", "2"])
def test_aarch64_D1_gives_the_same_bits(program: Path, threads: str) -> None:
    command = [EMULATOR, str(program), threads]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    first, *lines = listing.splitlines()
    assert first == "isa aarch64"
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines) > 1300
    assert [label for label, value in found.items() if expected(label) != value] == []
