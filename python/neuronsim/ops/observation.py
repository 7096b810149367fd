"""What an operation met: IEEE 754's exceptions, and conversions that saturate (docs/diagnostics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.ops.chains import (
    CONVERT,
    FLOAT32,
    TRUNCATED,
    as_32_bits,
    core_code,
    elementwise_chain,
    is_chained,
    link_tiles,
    make_chain,
    run_chain,
)
from neuronsim.ops.collectives import COLLECTIVES
from neuronsim.ops.elementwise import converted
from neuronsim.ops.products import NO_FUSION, Fusion, evaluate_product
from neuronsim.ops.rows import ArrayType, Attributes, Bits, Evaluation, Op, Setting
from neuronsim.profiles import Profile

# What C7 and E3 demand of every run to count, and what only an observed one does.
ALWAYS = ("int64_truncated", "outside_range")
EVENTS = tuple(name for name in _core.OBSERVED if name not in ALWAYS)
Events: TypeAlias = Mapping[str, int]
_Mask: TypeAlias = npt.NDArray[np.bool_]
_PLAIN = Setting(Profile())
# Elements of their results are elements of their operands, or none that arithmetic made.
_MOVES = frozenset({"movement", "host"})


class Origins(NamedTuple):
    """Which elements of a result are NaN although no operand is one, and which are Inf although all
    operands are finite.
    """

    nan: _Mask
    infinite: _Mask


def observe(e: Evaluation, results: Sequence[Bits]) -> dict[str, int]:
    """How many elements of the results overflowed, underflowed and so on, by name (EVENTS); what did
    not happen is left out.
    """
    if not is_judged(e.op, e.attributes):
        return {}
    if is_chained(e.op, [x.dtype for x in (*e.operands, *results)]):
        return _of_chain(e, results[0])
    found: dict[str, int] = {}
    for result in results:
        if _has_nan(result.dtype):
            _add(found, of_origins(find_origins(e, result)))
    if e.op.cast == "matmult" and results[0].dtype.exponent_bits:
        _add(found, observe_rounding(e, results[0]))
    elif e.op.name == "reduce" and e.attributes["reducer"] == "multiply":
        _add(found, {"underflow": _vanished_products(e, results[0])})
    return {name: count for name, count in found.items() if count}


def is_judged(op: Op, attributes: Attributes) -> bool:
    """Whether an operation computes, from operands that are all at hand: a collective has others. A
    transpose with a relayout does (M8).
    """
    computes = op.cast not in _MOVES or "relayout" in attributes
    return computes and op.opcode not in COLLECTIVES


def _add(found: dict[str, int], more: Events) -> None:
    for name, count in more.items():
        found[name] = found.get(name, 0) + count


def of_origins(origins: Origins) -> dict[str, int]:
    """Origins as counts of events."""
    return {
        "overflow": int(np.count_nonzero(origins.infinite)),
        "nan_origin": int(np.count_nonzero(origins.nan)),
    }


def _has_nan(dtype: DType) -> bool:
    return dtype.kind in ("float", "complex")


def is_elementwise(op: Op) -> bool:
    """Whether an element of the result is made of one element of each operand."""
    return op.core is not None or op.name in ("convert", "reduce_precision", "nextafter", "map")


def _of_chain(e: Evaluation, result: Bits) -> dict[str, int]:
    operands, dtype, setting = e.operands, result.dtype, e.setting
    if setting.profile.int64 == "truncate":  # it is the 32-bit instruction
        operands, dtype = [as_32_bits(x) for x in operands], TRUNCATED.get(dtype, dtype)
    types = tuple(x.dtype for x in operands)
    program, steps = elementwise_chain(e.op, e.attributes, types, dtype, setting.profile)
    ids = [setting.identifier(tile) for tile in link_tiles(steps)] if program.draws else []
    records = empty_records(len(steps))
    t = ArrayType(dtype, result.data.shape)
    run_chain(program, [x.data for x in operands], [t], setting.seed, ids, records)
    return {name: n for name, n in events_of(records.sum(0)).items() if name not in ALWAYS}


def empty_records(count: int) -> npt.NDArray[np.int64]:
    """Records of the core for some steps, which have met nothing."""
    return np.zeros((count, len(_core.OBSERVED)), np.int64)


def events_of(record: npt.NDArray[np.int64]) -> dict[str, int]:
    """What a record counts that is not none."""
    return {name: n for name, n in zip(_core.OBSERVED, record.tolist(), strict=True) if n}


# ---- where Inf and NaN come from ----------------------------------------------------------------


def find_origins(e: Evaluation, result: Bits, packed: bool = False) -> Origins:
    """The elements at which Inf and NaN begin. Where an element depends on many of the operands', and
    the operation is no product or simple reduce, every operand as a whole must be finite, or without
    NaN. `packed` says that the right operand of a product is finite and its elements are not at hand.
    """
    values = numbers(result)
    nan, infinite = np.isnan(values), np.isinf(values)
    if not nan.any() and not infinite.any():
        return Origins(nan, infinite)
    dims = result.data.shape
    arrays = [numbers(x) for x in e.operands if _has_nan(x.dtype)]
    if e.op.cast == "matmult":
        of_nan, of_infinite = _from_vectors(e, arrays, dims, packed)
    else:
        kept = _kept(e, arrays)
        of_nan, of_infinite = np.zeros(dims, np.bool_), np.zeros(dims, np.bool_)
        for x in arrays:
            of_nan |= kept(np.isnan(x), dims)
            of_infinite |= kept(~np.isfinite(x), dims)
    return Origins(nan & ~of_nan, infinite & ~of_infinite)


def numbers(x: Bits) -> npt.NDArray[Any]:
    """The elements as NumPy's: device floats as float32, which holds them."""
    return converted(x, dtypes.float32, _PLAIN).data if x.dtype.exponent_bits else x.data


def _kept(e: Evaluation, arrays: Sequence[npt.NDArray[Any]]) -> Any:
    """How a mask of an operand's elements becomes one of the results that depend on them."""
    if is_elementwise(e.op):
        return lambda mask, dims: np.broadcast_to(mask, dims)
    if e.op.name == "reduce" and len(arrays) == 2:
        axes = tuple(e.attributes["dimensions"])
        return lambda mask, dims: mask.any(axes) if mask.ndim == arrays[0].ndim else mask.any()
    return lambda mask, dims: mask.any()


def _from_vectors(
    e: Evaluation, arrays: Sequence[npt.NDArray[Any]], dims: tuple[int, ...], packed: bool
) -> tuple[_Mask, _Mask]:
    """Which results of a product read a NaN, and which an Inf or NaN: a product of 0 and 1 counts
    them.
    """
    casts = ("cast", "accumulate", "dtype")
    own: Attributes = {k: v for k, v in e.attributes.items() if k not in casts}
    result = ArrayType(dtypes.float32, dims)

    def reads(masks: Sequence[_Mask]) -> _Mask:
        found = np.zeros(dims, np.bool_)
        for side, mask in enumerate(masks):
            if (packed and side == 1) or not mask.any():
                continue
            shapes, taken = [x.shape for x in arrays], own
            if e.op.name == "convolution" and side == 1:
                shapes[0], taken = _with_padding(shapes[0], own)
            ones = [np.broadcast_to(np.float32(1), shape) for shape in shapes]
            ones[side] = np.asarray(mask, np.float32)  # a scalar where it has no dimensions
            pair = [Bits(x, dtypes.float32) for x in ones]
            found |= evaluate_product(Evaluation(e.op, pair, taken, result, _PLAIN)) > 0
        return found

    return reads([np.isnan(x) for x in arrays]), reads([~np.isfinite(x) for x in arrays])


def _with_padding(dims: tuple[int, ...], attributes: Attributes) -> tuple[tuple[int, ...], Attributes]:
    """The dimensions of a convolution's input with its padding and holes as elements, and the
    attributes that are left: a kernel's elements are read beside these too.
    """
    padded, window = list(dims), []
    for d, w in zip(attributes["dimension_numbers"].input_spatial, attributes["window"], strict=True):
        dilated = max((dims[d] - 1) * w.base_dilation + 1, 0)
        padded[d] = max(dilated + sum(w.padding), 0)
        window.append(replace(w, padding=(0, 0), base_dilation=1))
    return tuple(padded), {**attributes, "window": tuple(window)}


# ---- the last rounding of products ---------------------------------------------------------------


def rounds_sums(dtype: DType, profile: Profile) -> bool:
    """Whether a product's last rounding (M4) may lose a float32 sum altogether."""
    return dtype.exponent_bits > 0 and dtype is not dtypes.float32 and profile.rounding != "stochastic"


def observe_rounding(e: Evaluation, result: Bits, fusion: Fusion = NO_FUSION) -> dict[str, int]:
    """Underflow and saturation where a product's sums are rounded to a narrower type."""
    if not rounds_sums(result.dtype, e.setting.profile):
        return {}
    wide = ArrayType(dtypes.float32, result.data.shape)
    sums = evaluate_product(e._replace(result=wide), fusion)
    steps = ((CONVERT, core_code(result.dtype, e.op.label), (0,)),)
    program = make_chain((FLOAT32,), steps, (1,), e.setting.profile)
    records = empty_records(1)
    run_chain(program, [sums], [result.type], records=records)
    found = events_of(records[0])
    return {name: found[name] for name in ("underflow", "saturated") if name in found}


def _vanished_products(e: Evaluation, result: Bits) -> int:
    """A product of elements that is zero although none of them is."""
    if not result.dtype.exponent_bits:
        return 0
    array, initial = (numbers(x) for x in e.operands)
    axes = tuple(e.attributes["dimensions"])
    given = (array != 0).all(axes) & np.isfinite(array).all(axes) & bool(initial != 0)
    return int(np.count_nonzero((numbers(result) == 0) & given))


# ---- statistics -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The elements of an instruction's results: how many are what, and the least and greatest magnitude
    of those that are finite and not zero (0 if there are none).

    `exponents` counts these by magnitude: e stands for those above 2^(e-1) and up to 2^e, so that sums
    of counts say exactly how many a type rounds to zero, to nearest even, whose least value is a power
    of two (C1).
    """

    elements: int
    nan: int
    infinite: int
    zero: int
    subnormal: int
    smallest: float
    largest: float
    exponents: Mapping[int, int]

    def __add__(self, other: Statistics) -> Statistics:
        least = [s.smallest for s in (self, other) if s.smallest > 0]
        return Statistics(
            self.elements + other.elements,
            self.nan + other.nan,
            self.infinite + other.infinite,
            self.zero + other.zero,
            self.subnormal + other.subnormal,
            min(least, default=0.0),
            max(self.largest, other.largest),
            dict(sorted((Counter(self.exponents) + Counter(other.exponents)).items())),
        )

    def without(self, filler: Statistics, copies: int, size: int) -> Statistics:
        """Without `copies` of a sample, of which `filler` met `size` and nothing else; itself where
        what that met does not come as often for each sample, or more often than it was met here.
        """
        names = ("elements", "nan", "infinite", "zero", "subnormal")
        met = [getattr(filler, n) for n in names]
        if any(n % size for n in (*met, *filler.exponents.values())):
            return self
        own = {
            n: getattr(self, n) - theirs // size * copies for n, theirs in zip(names, met, strict=True)
        }
        exponents = Counter(self.exponents)
        exponents.subtract({e: n // size * copies for e, n in filler.exponents.items()})
        if min(*own.values(), *exponents.values()) < 0:
            return self
        return replace(self, **own, exponents={e: n for e, n in exponents.items() if n})


def statistics(result: Bits) -> Statistics | None:
    """What an array consists of; None for one that has no floats."""
    if not _has_nan(result.dtype):
        return None
    magnitude = np.abs(numbers(result))
    usual = magnitude[np.isfinite(magnitude) & (magnitude > 0)]
    return Statistics(
        magnitude.size,
        int(np.count_nonzero(np.isnan(magnitude))),
        int(np.count_nonzero(np.isinf(magnitude))),
        int(np.count_nonzero(magnitude == 0)),
        int(np.count_nonzero(usual < _least_normal(result.dtype))),
        float(usual.min(initial=np.inf)) if usual.size else 0.0,
        float(usual.max(initial=0.0)),
        _count_exponents(usual),
    )


def _count_exponents(magnitudes: npt.NDArray[np.floating[Any]]) -> dict[int, int]:
    """Finite magnitudes above zero by their exponents."""
    if not magnitudes.size:
        return {}
    fractions, exponents = np.frexp(magnitudes)
    exponents -= fractions == 0.5  # frexp gives 2^e the exponent e + 1
    least = int(exponents.min())
    counts = np.bincount(exponents - least)
    return {least + n: int(c) for n, c in enumerate(counts.tolist()) if c}


def _least_normal(dtype: DType) -> float:
    if dtype.exponent_bits:
        return dtype.smallest_normal
    return float(np.finfo(dtype.numpy).tiny)
