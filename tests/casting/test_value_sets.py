"""Which formats hold the values of another: casting/application/value_sets.py against all values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.casting.rounding_cases import (
    FORMATS,
    OPEN,
    SPECIAL,
    Floats,
    all_bits,
    apply,
    bits_of,
    cases,
    magnitudes,
    rounded,
)
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.casting.value_sets import contains, values_of, values_of_reduce_precision
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Shape
from neuronsim.profiles import Profile

pytestmark = pytest.mark.isa_independent

F32, E4M3FN = dtypes.float32, dtypes.float8_e4m3fn
ALL = (F32, *FORMATS, E4M3FN, *OPEN)


def all_values(dtype: DType) -> Floats:
    """Every value of a format as float32; of a wide one its ends and what is special."""
    if dtype is F32:
        return SPECIAL[:9].view(np.float32)
    if dtype in OPEN:
        found = magnitudes(dtype)
        return np.concatenate([found, -found, np.array([np.inf, -np.inf], np.float32)])
    x = rounded(all_bits(dtype), F32, Profile()).data
    return np.asarray(x[~np.isnan(x)])


def keeps(values: Floats, dtype: DType) -> bool:
    """Whether rounding these to a format changes none."""
    x = ops.Bits(values, F32)
    back = rounded(rounded(x, dtype, Profile()), F32, Profile())
    return bool((bits_of(back) == bits_of(x)).all())


@each_of("narrow", ALL, ids=lambda t: t.name)
def test_a_format_contains_what_it_does_not_change(narrow: DType) -> None:
    for wide in ALL:
        assert contains(wide, narrow) == keeps(all_values(narrow), wide), wide.name


def reduced(x: Floats, exponent_bits: int, mantissa_bits: int) -> Floats:
    bits = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    i = Instruction("r", "reduce-precision", Shape(F32, x.shape), ("x",), bits)
    return apply(i, [ops.Bits(x, F32)], Profile()).data


@pytest.mark.parametrize("narrow", [*FORMATS, E4M3FN], ids=lambda t: t.name)
def test_reduce_precision_contains_what_it_does_not_change_C9(narrow: DType) -> None:
    x = all_values(narrow)
    for e, m in itertools.product(range(2, 9), range(1, 24)):
        same = (reduced(x, e, m).view(np.uint32) == x.view(np.uint32)).all()
        assert values_of_reduce_precision(e, m).contain(values_of(narrow)) == same, (e, m)


def test_what_a_reduce_precision_leaves_is_in_all_that_contain_it_C9() -> None:
    x = cases(dtypes.float8_e5m2)
    sizes = list(itertools.product((2, 3, 5, 6, 8), (1, 2, 3, 7, 10, 22, 23)))
    contained = 0
    for first, second in itertools.product(sizes, sizes):
        once = reduced(x, *first)
        if values_of_reduce_precision(*second).contain(values_of_reduce_precision(*first)):
            contained += 1
            assert (reduced(once, *second).view(np.uint32) == once.view(np.uint32)).all()
    assert len(sizes) < contained < len(sizes) ** 2 / 2
