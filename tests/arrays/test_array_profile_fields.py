"""Each field of Profile acts on the functions of arrays: they give what their rows give under it, which
tests/core/test_profile_fields.py compares with the twin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy
import pytest
from narrow_cases import finite
from tests.support.evaluation import evaluated
from tests.support.words import assert_same, of_words

import neuronsim as np
from neuronsim import ops
from neuronsim.dtypes import DTYPES, DType
from neuronsim.profiles import Profile, current_profile, rounding_state
from neuronsim.reference import formats
from neuronsim.reference.formats import round_number

NARROW = [t for t in DTYPES.values() if t.exponent_bits and t.device and t is not np.float32]
FLOAT8 = [t for t in NARROW if t.bits == 8]
WIDE_RANGE = [np.bfloat16, np.tfloat32, np.float32]  # that have the exponents of float32
DEEP = [np.bfloat16, np.float16, np.tfloat32]  # whose products have more bits than a sum keeps
BF16, SINGLE = [np.bfloat16], [np.float32]
SEED = 11

Operands = tuple[np.Array, ...]


@dataclass(frozen=True)
class Change:
    """What a field's value makes of a function, and what has the same bits under it."""

    value: str
    types: list[DType]
    call: Callable[..., np.Array]
    same: Callable[..., np.Array]
    operands: Callable[[DType], Operands]
    warns: str = ""


def row(name: str, **attributes: Any) -> Callable[..., np.Array]:
    """A row of the op table under the profile in force, as the first operation since seeding (S2)."""

    def run(*operands: np.Array) -> np.Array:
        setting = ops.Setting(current_profile(), SEED, f"0/eager/{name}/")
        return evaluated(name, *operands, setting=setting, **attributes)

    return run


# ---- functions and their rows ------------------------------------------------------------------------


def row_of_sum(x: np.Array) -> np.Array:
    return row("reduce", dimensions=(1,), reducer="add")(x, np.zeros((), x.dtype))


def of_matrices(**result: DType) -> Callable[..., np.Array]:
    return row("dot", dot_dimensions=ops.DotDimensions((1,), (0,)), **result)


def by_immediate(function: Callable[..., np.Array], value: float) -> Callable[..., np.Array]:
    """In float32, and rounded once more to the array's type (C8)."""
    return lambda x: function(x.astype("float32"), np.asarray(value)).astype(x.dtype)


ADD = (np.add, row("add"))
SUM = (lambda x: np.sum(x, axis=1), row_of_sum)
MEAN = (lambda x: np.mean(x, axis=1), row("mean", dimensions=(1,)))
VECDOT = (np.vecdot, row("dot", dot_dimensions=ops.DotDimensions((0,), (0,))))
EINSUM = (lambda x, y: np.einsum("ik,kj->ij", x, y), of_matrices())
CHANNELS = {"epsilon": 1e-5, "dimensions": (1,), "terms": ("weight", "bias")}
# Into float32, where a difference shows.
MATMUL = (lambda x, y: np.matmul(x, y, dtype=np.float32), of_matrices(dtype=np.float32))


def convert(dtype: str | DType) -> Any:
    t = np.dtype(dtype)
    return lambda x: x.astype(t), row("convert", dtype=t)


# ---- operands ----------------------------------------------------------------------------------------


def pairs(dtype: DType, scale: float = 1.5) -> Operands:
    return finite(dtype, (40,), 21, scale), finite(dtype, (40,), 22, scale)


def numbers(dtype: DType) -> Operands:
    return pairs(dtype)[:1]


def tiny_pairs(dtype: DType) -> Operands:
    """Their products are subnormal."""
    return pairs(dtype, 2.0**-66)


def subnormals(dtype: DType) -> Operands:
    return (np.asarray([[2.0**-127], [-(2.0**-128)], [2.0**-126], [3 * 2.0**-127]], dtype),)


def rows(dtype: DType) -> Operands:
    return (finite(dtype, (20, 9), 23),)


def long_rows(dtype: DType) -> Operands:
    return (finite(dtype, (2, 1100), 27),)


def large_pairs(dtype: DType) -> Operands:
    """Half the largest value and above, so that many sums overflow."""
    f = formats.FORMATS[dtype.name]
    top = round_number(dtype.name, formats.exact(math.inf))
    draw = numpy.random.default_rng(5).integers(top - (2 << f.mantissa_bits), top, (2, 30))
    signs = numpy.random.default_rng(6).integers(0, 2, (2, 30)) * f.sign_bit
    x, y = (draw | signs).tolist()
    return of_words(x, dtype), of_words(y, dtype)


def large_rows(dtype: DType) -> Operands:
    return (large_pairs(dtype)[0].reshape(5, 6),)


def large_matrices(dtype: DType) -> Operands:
    x, y = large_pairs(dtype)
    return x.reshape(3, 10), y.reshape(3, 10).T


def factors(dtype: DType) -> Operands:
    """Of sums whose order and roundings show: large values that cancel, deeper than a tile."""
    x, y = finite(dtype, (2, 300), 25, 0.5), finite(dtype, (300, 2), 26, 0.5)
    x[:, 3], x[:, 200] = 12.0, -12.0
    y[3], y[200] = 14.0, 14.0
    return x, y


def values(*found: Any, dtype: str = "") -> Callable[[DType], Operands]:
    """These, of a type or of the case's."""
    return lambda t: tuple(np.asarray(v, dtype or t) for v in found)


def of_channel(dtype: DType) -> Operands:
    """Samples, and a channel's mean, variance, weight and bias."""
    terms = (np.asarray([v], dtype) for v in (1.5, 0.25, 0.75, 0.3))
    return pairs(dtype)[0].reshape(40, 1), *terms


# ---- the fields --------------------------------------------------------------------------------------

CHANGES: dict[str, list[Change]] = {
    "rounding": [
        Change("stochastic", NARROW, *ADD, pairs),
        Change("stochastic", NARROW, *SUM, rows),
        Change("stochastic", NARROW, *MEAN, rows),
    ],
    "subnormals": [
        Change("flush", WIDE_RANGE, np.multiply, row("multiply"), tiny_pairs),
        Change("flush", WIDE_RANGE, *VECDOT, tiny_pairs),
        Change("flush", WIDE_RANGE, *SUM, subnormals),
    ],
    "fp8_overflow": [
        change
        for value in ("saturate", "nan")
        for change in (
            Change(value, FLOAT8, *ADD, large_pairs),
            Change(value, FLOAT8, *SUM, large_rows),
            Change(value, FLOAT8, *EINSUM, large_matrices),
            *(
                Change(value, [t], *convert(t), values([1e6, -1e6, 300, 1.5], dtype="float32"))
                for t in FLOAT8
            ),
        )
    ],
    "int_to_float": [
        Change("exact", BF16, *convert("bfloat16"), values([1077936129, -1077936129, 7], dtype="int32"))
    ],
    "float_to_int": [
        Change("nearest", NARROW, *convert("int32"), values([0.5, 1.5, 2.5, -2.5, -0.75, 3.25]))
    ],
    "int64": [
        Change(
            *("truncate", BF16, np.sum, lambda x: np.asarray(5)),
            *(values([2**31, 2**31 + 5], dtype="int64"), "C7"),
        )
    ],
    "scalar": [
        Change("float32_immediate", NARROW, lambda x: x * 0.1, by_immediate(np.multiply, 0.1), numbers),
        Change(
            *("float32_immediate", NARROW, lambda x: np.remainder(x, 1 / 3)),
            *(by_immediate(np.remainder, 1 / 3), numbers),
        ),
    ],
    "divide": [
        Change("reciprocal_multiply", SINGLE, np.divide, row("divide"), pairs),
        Change("reciprocal_multiply", SINGLE, *MEAN, rows),
    ],
    "activation": [
        Change(
            *("neuron_range", [*NARROW, np.float32], np.sin, row("sin"), values([1.0, 4.0])),
            r"sin: 1 element outside.*neuron_range",
        )
    ],
    "int32_elementwise": [
        Change("via_float32", BF16, *ADD, values([2**24 + 1, 5], [0, 1], dtype="int32"))
    ],
    "mixed_precision_accumulation": [Change("off", [np.bfloat16, np.float8_e4m3], *SUM, long_rows)],
    "batch_norm": [Change("xla", SINGLE, np.nn.batch_norm, row("batch_norm", **CHANNELS), of_channel)],
    "accumulate": [
        Change("sequential", DEEP, *MATMUL, factors),
        Change("exact", DEEP, *MATMUL, factors),
        Change("product_bf16", [np.float16], *MATMUL, factors),
        Change("pairs", BF16, *MATMUL, factors),
    ],
    "int_dot": [
        Change(
            "via_float32", BF16, *VECDOT, values([2**25 + 1, 2, -(2**25), 5], [1] * 4, dtype="int32")
        )
    ],
    "transpose": [
        Change(
            *("tensor_engine", NARROW, lambda x: np.permute_dims(x, (1, 0))),
            *(row("transpose", dimensions=(1, 0)), values([[-0.0, 1.0], [2.0, -0.0]])),
        )
    ],
}
# Fields that no function of arrays can show, and why.
SILENT = {
    "rng_seed": "of RngBitGenerator, an instruction of graphs",
    "auto_cast_all": "of --auto-cast, which graphs have",
    "requantize": "of what a plan with bytes writes",
}


@pytest.fixture(autouse=True)
def own_seed() -> Iterator[None]:
    before = rounding_state().seed
    yield
    np.seed_rounding(before)


def test_every_field_with_a_choice_has_a_case_or_a_reason() -> None:
    choices = {f.name: set(f.metadata["values"][1:]) for f in fields(Profile)}
    choices = {name: others for name, others in choices.items() if others and name not in SILENT}
    assert {name: {c.value for c in changes} for name, changes in CHANGES.items()} == choices


EVERY = [
    pytest.param(name, change, dtype, id=f"{name}-{change.value}-{i}-{dtype.name}")
    for name, changes in CHANGES.items()
    for i, change in enumerate(changes)
    for dtype in change.types
]


@pytest.mark.parametrize(("name", "change", "dtype"), EVERY)
def test_a_field_acts_as_on_the_row(name: str, change: Change, dtype: DType) -> None:
    """Also where the function and the types were met before, under this profile or another."""
    operands = change.operands(dtype)
    plain = change.call(*operands)

    def stays_plain() -> None:
        for _ in range(2):
            assert_same(change.call(*operands), plain)

    with np.use_profile(**{name: change.value}):
        expected = change.same(*operands)
        assert plain.tobytes() != expected.tobytes()  # the field shows here
        for _ in range(2):
            np.seed_rounding(SEED)
            with pytest.warns(RuntimeWarning, match=change.warns) if change.warns else nullcontext():
                found = change.call(*operands)
            assert_same(found, expected)
            with np.use_profile(**{name: getattr(Profile(), name)}):
                stays_plain()
    stays_plain()
