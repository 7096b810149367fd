"""Rules Q1 and Q3 in the core: the steps of a chain that end in bytes run as one pass over a tile. Each
form of them on every instruction set, against the exact twin: all inputs of 16 bits, 10^7 of float32
and of int32, and the neighbours of every number at which a byte changes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, ops, processor
from neuronsim.profiles import Profile
from neuronsim.reference import quantization as twin
from neuronsim.reference.formats import from_float
from tests.support.evaluation import CODES
from tests.support.words import bits

SCALES = {False: [0.05, 0.25, 3e-38, 1e36, 0.9999999], True: [0.05, 0.25, 1e-6, 1e36, 0.9999999]}


@dataclass(frozen=True)
class Case:
    """Bytes of float32 values by a division, or of int32 sums by a multiplication. With `arrays` the
    factors, and what is taken from the sums, are arrays.
    """

    to: str
    zero: int
    scale: float
    sums: bool = False
    arrays: bool = False
    clamp: bool = True

    @property
    def factor(self) -> np.float32:
        return np.float32(self.scale)

    def exact(self, key: int) -> int:
        """The twin's byte of a float32, by its place in the order of values, or of an int32."""
        kind: dict[str, Any] = {"bits": 8, "signed": self.to == "int8"}
        scale = float32_word(float(self.factor))
        if self.sums:
            return twin.requantize(key, (scale, ONE), ONE, self.zero, **kind)
        return twin.quantize(word_of(key), scale, self.zero, **kind)


@functools.cache
def float32_word(x: float) -> int:
    return from_float("float32", x)


ONE = float32_word(1.0)
CASES = [
    Case(to, zero, SCALES[sums][(n + 2 * arrays) % 5], sums, arrays, n % 2 != arrays)
    for sums in (False, True)
    for arrays in (False, True)
    for n, (to, zero) in enumerate([("uint8", 0), ("uint8", 100), ("int8", 0), ("int8", -128)])
]


def program_of(case: Case, limits: tuple[float, float] | None = None) -> Any:
    """A chain of the steps that a plan writes, on values, factors, and what is taken away."""
    inputs = ["int32" if case.sums else "float32"] + case.arrays * ["float32", "int32"]
    steps: list[ops.Link] = []

    def push(op: str, result: str, *operands: int) -> int:
        steps.append((CODES[op], _core.DTYPES.index(result), operands))
        return len(inputs) + len(steps) - 1

    def constant(value: Any, result: str) -> int:
        steps.append(ops.constant_link(bits(value, dtypes.DTYPES[result])))
        return len(inputs) + len(steps) - 1

    last = 0
    if case.sums:
        if case.arrays:
            last = push("subtract", "int32", last, 2)
        last = push("convert", "float32", last)
    factor = 1 if case.arrays else constant(case.factor, "float32")
    operands = (factor, last) if case.sums and case.arrays else (last, factor)
    last = push("multiply" if case.sums else "divide", "float32", *operands)
    last = push("rint", "float32", last)
    info = np.iinfo(case.to)
    ends = limits or (info.min - case.zero, info.max - case.zero)
    low, high = (constant(v, "float32") for v in ends)
    if case.clamp:
        last = push("clamp", "float32", low, last, high)
    else:
        last = push("minimum", "float32", push("maximum", "float32", last, low), high)
    if case.zero:
        last = push("convert", "int32", last)
        last = push("add", "int32", constant(case.zero, "int32"), last)
    last = push("convert", case.to, last)
    codes = [_core.DTYPES.index(t) for t in inputs]
    return _core.Chain(codes, steps, [last], ops.numerics(Profile()))


def run(
    case: Case, values: Any, counted: bool = False, limits: tuple[float, float] | None = None
) -> Any:
    """The bytes; what an array of factors or of numbers to take away holds changes no byte here."""
    n = values.size
    given = [values]
    if case.arrays:
        taken = np.arange(n, dtype=np.int32) * 7919
        given = [values + taken if case.sums else values, np.full(n, case.factor), taken]
    program = program_of(case, limits)
    if counted:
        result = ops.ArrayType(dtypes.DTYPES[case.to], (n,))
        records = ops.empty_records(program.link_count)
        (out,) = ops.run_chain(program, given, [result], 0, [], records)
        return out.view(case.to)
    out = np.empty(n, case.to)
    program.on(given, [out]).run()
    return out


def word_of(key: int) -> int:
    """The bits of the float32 at a place in the order of values, in which -0 and +0 are neighbours."""
    return key if key >= 0 else (-1 - key) | 1 << 31


def keys_of(values: Any) -> Any:
    """The places of float32 values in that order; int32 are theirs."""
    if values.dtype == np.int32:
        return values
    words = values.view(np.int32)
    return np.where(words >= 0, words, -1 - (words & 0x7FFFFFFF))


@functools.cache
def steps_of(case: Case) -> tuple[int, Any]:
    """The least byte, and the places from which on the twin gives each further one: it is monotone."""
    ends = (-(1 << 31), (1 << 31) - 1) if case.sums else (-1 - 0x7F800000, 0x7F800000)
    info, found = np.iinfo(case.to), []
    first, last = case.exact(ends[0]), case.exact(ends[1])
    for byte in range(first + 1, last + 1):
        low, high = found[-1] - 1 if found else ends[0], ends[1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if case.exact(middle) >= byte else (middle, high)
        found.append(high)
    assert info.min <= first < last <= info.max
    return first, np.array(found)


def check(case: Case, values: Any) -> None:
    first, steps = steps_of(case)
    expected = first + np.searchsorted(steps, keys_of(values), side="right")
    if values.dtype == np.float32:
        expected = np.where(np.isnan(values), case.zero, expected)
    for isa in processor.available_isas():
        processor.set_isa(isa)
        np.testing.assert_array_equal(run(case, values), expected, err_msg=str((isa, case)))


def shown(case: Case) -> str:
    return "-".join(str(v) for v in vars(case).values())


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_bytes_Q1_Q3_around_every_step(case: Case, restored_processor: None) -> None:
    """The last input of each byte and the first of the next: every tie, and its neighbours."""
    _, steps = steps_of(case)
    near = np.unique(np.add.outer(np.arange(-3, 4), steps).ravel())
    if case.sums:
        check(case, near[abs(near) < 1 << 31].astype(np.int32))
        return
    values = np.array([word_of(int(k)) for k in near], np.uint32).view(np.float32)
    more = np.float32([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38])
    check(case, np.concatenate([values, more]))


@pytest.mark.parametrize("case", [c for c in CASES if not c.sums], ids=shown)
def test_bytes_Q1_of_every_16_bit_input(case: Case, restored_processor: None) -> None:
    words = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        halves = words.view(np.float16).astype(np.float32)
    check(case, np.concatenate([(words.astype(np.uint32) << 16).view(np.float32), halves]))


@pytest.mark.parametrize("case", [CASES[n] for n in (0, 5, 9, 15)], ids=shown)
def test_bytes_Q1_Q3_of_ten_million_inputs(case: Case, restored_processor: None) -> None:
    """2.5 million to each of four forms: half of them drawn from all words, half from what fills the
    bytes.
    """
    rng = np.random.default_rng(33)
    count = 1_250_000
    words = rng.integers(0, 1 << 32, count, np.uint32)
    if case.sums:
        near = (rng.normal(0, 80, count) / case.factor).clip(-2e9, 2e9).astype(np.int32)
        check(case, np.concatenate([words.view(np.int32), near]))
        return
    with np.errstate(over="ignore"):
        near = rng.normal(0, 80, count).astype(np.float32) * case.factor
    check(case, np.concatenate([words.view(np.float32), near]))


@pytest.mark.parametrize("case", CASES[::5], ids=shown)
def test_bytes_D2_are_those_of_the_steps_one_by_one(case: Case, isa: str) -> None:
    """Counting what each step meets runs them one by one."""
    rng = np.random.default_rng(34)
    values = rng.normal(0, 80, 70_001).clip(-300, 300) * (1 if case.sums else case.factor)
    if case.sums:
        values = values / min(case.scale, 1)
    values = values.astype(np.int32 if case.sums else np.float32)
    found = run(case, values)
    assert len(np.unique(found)) > (1 if case.scale > 1 else 50)
    np.testing.assert_array_equal(run(case, values, counted=True), found)
    for n in (1, 15, 511, 513):  # short ones, and ends of tiles
        np.testing.assert_array_equal(run(case, values[:n]), found[:n])


@pytest.mark.parametrize(
    ("low", "high"), [(3.0, 200.0), (-9.0, -2.0), (-5.5, 99.25), (0.0, 256.0), (-1e9, 1e9), (5.0, -5.0)]
)
@pytest.mark.parametrize("zero", [0, 7])
def test_other_limits_D2_keep_their_meaning(low: float, high: float, zero: int, isa: str) -> None:
    """Limits without 0, which NaN is before it is moved, limits that are no integers or no bytes."""
    case = Case("uint8", zero, 0.5)
    x = np.float32([np.nan, -np.inf, -1e10, -3, -0.25, 0, 1.2, 60, 127.9, 128.1, 1e6, 3e9, np.inf])
    np.testing.assert_array_equal(
        run(case, x, limits=(low, high)), run(case, x, counted=True, limits=(low, high))
    )


def test_what_is_taken_may_be_a_number_D2(isa: str) -> None:
    """A constant that a pass reads is there when it runs."""
    steps = [
        ops.constant_link(bits(1000, dtypes.int32)),
        (CODES["subtract"], _core.DTYPES.index("int32"), [0, 1]),
        (CODES["convert"], _core.DTYPES.index("float32"), [2]),
        (CODES["rint"], _core.DTYPES.index("float32"), [3]),
        *(ops.constant_link(bits(v)) for v in (0, 255)),
        (CODES["clamp"], _core.DTYPES.index("float32"), [5, 4, 6]),
        (CODES["convert"], _core.DTYPES.index("uint8"), [7]),
    ]
    program = _core.Chain([_core.DTYPES.index("int32")], steps, [8], ops.numerics(Profile()))
    out = np.empty(600, np.uint8)
    program.on([np.arange(900, 1500, dtype=np.int32)], [out]).run()
    np.testing.assert_array_equal(out, np.clip(np.arange(-100, 500), 0, 255))
