"""How near XLA's result of an instruction must be to ours: bits, a bound in units in the last place,
or the rounding errors of a sum; and where contract rule D3 says that XLA is no oracle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.support.interpreter import Applied, as_numpy
from tests.support.words import words

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.profiles import Profile
from neuronsim.reference import formats
from neuronsim.reference.elementwise import FLOAT

# Units in the last place, by opcode and type, for the functions that XLA does not round correctly.
BOUNDS: dict[str, dict[str, int]] = json.loads(
    (Path(__file__).parents[1] / "data" / "xla_bounds.json").read_text()
)
# What XLA has no code for on CPUs: the exact twin is the oracle (E3).
NO_CODE = frozenset({"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"})
# No other implementation defines the words of rng, where its state begins, and AWS's custom calls; a
# bitcast is no operation of StableHLO, by way of which jaxlib compiles.
NO_ORACLE = frozenset({"rng", "rng-get-and-update-state", "custom-call", "bitcast"})
# Where XLA's own function is off by more than any bound (erf by 7 units): the twin must give our value.
FARTHER: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "erf": lambda x: (abs(x) > 3.6) & (abs(x) < 3.9),
    "exponential": lambda x: x > 88,
    "exponential-minus-one": lambda x: abs(x) < 0.42,
    "logistic": lambda x: x < -8,  # e^-x leaves float16, in which XLA computes it
    "tanh": lambda x: abs(x) > 5,
}
BATCH_NORMS = frozenset({"batch-norm-training", "batch-norm-inference", "batch-norm-grad"})
SUMS = BATCH_NORMS | {"reduce", "reduce-window", "dot", "convolution", "select-and-scatter", "scatter"}


@dataclass(frozen=True)
class Difference:
    """Where a result is not XLA's: the greatest distance beyond any bound."""

    applied: Applied
    number: int  # of the result
    where: np.ndarray
    distance: int
    theirs: np.ndarray

    def __str__(self) -> str:
        i, at = self.applied.instruction, int(np.flatnonzero(self.where)[0])
        operands = ", ".join(str(x.type) for x in self.applied.operands)
        computations = [self.applied.module.by_name[c] for c in i.called]
        called = [f"{j.name} {j.operands}" for c in computations for j in c.instructions]
        ours = as_numpy(self.applied.results[self.number])
        near = [
            as_numpy(x).ravel()[at] if x.data.shape == ours.shape else as_numpy(x).ravel()[:12]
            for x in self.applied.operands
        ]
        return (
            f"{i.opcode} of {operands} {dict(i.attributes)} {called}: result {self.number} at {at} is "
            f"{ours.ravel()[at]!r}, XLA's {self.theirs.ravel()[at]!r}, of {near}"
        )


def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Units in the last place between words of one float format; both zeros are one place."""
    sign = 1 << (8 * x.itemsize - 1)

    def place(w: np.ndarray) -> np.ndarray:
        magnitude = (w & w.dtype.type(sign - 1)).astype(np.int64)
        return np.where(w & w.dtype.type(sign), -magnitude, magnitude)

    return np.asarray(np.abs(place(x) - place(y)))


def values(x: ops.Bits) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaN
        return np.asarray(as_numpy(x)).astype(np.float64)


# ---- where XLA is no oracle (D3) -----------------------------------------------------------------

Mask = np.ndarray | bool


def flushed_subnormals(a: Applied, result: ops.Bits) -> Mask:
    """XLA on CPU reads float32 and bfloat16 subnormals as zero, and writes zero for them; C4 keeps
    them. It moves bfloat16 by way of float32.
    """
    if ops.moves_bits(row(a.instruction)) and result.dtype is not dtypes.bfloat16:
        return False
    least = 2.0**-126
    found = np.zeros(result.data.shape, bool)
    for x in (*a.operands, result):
        if x.dtype.exponent_bits == 8 and x.data.shape in ((), result.data.shape):
            magnitude = np.abs(values(x))
            found |= (magnitude > 0) & (magnitude < 2 * least)
    return found


def low_exponent_bits(a: Applied, result: ops.Bits) -> Mask:
    """XLA's power of integers reads six bits of the exponent; E8 is the power modulo 2^n."""
    if a.instruction.opcode != "power" or result.dtype.kind == "float":
        return False
    return np.asarray(a.operands[1].data >= 64)


def reduction_of_one_element(a: Applied, result: ops.Bits) -> Mask:
    """XLA gives the element itself, without the initial value, and keeps its -0; R2 adds the initial
    value.
    """
    i = a.instruction
    if i.opcode == "reduce":
        depth = math.prod(a.operands[0].data.shape[d] for d in i.attributes["dimensions"])
        return depth == 1
    return i.opcode == "reduce-window" and not i.attributes["window"]


def repeated_initial_value(a: Applied, result: ops.Bits) -> Mask:
    """XLA cuts a reduction of 32 elements and more in pieces and starts each from the initial value,
    which it expects to be the identity; R2 adds it once.
    """
    i = a.instruction
    if i.opcode != "reduce" or _terms(a) <= 32:
        return False
    reducer = row_attributes(a.module, i)["reducer"]
    if reducer in ("maximum", "minimum", "bitwise_and", "bitwise_or"):
        return False
    return bool(np.any(values(a.operands[1]) != (1 if reducer == "multiply" else 0)))


def holes_of_infinite_weights(a: Applied, result: ops.Bits) -> Mask:
    """Padding and holes are zeros that count (M5), so that Inf and NaN beside them give NaN; XLA skips
    them, and has zeros of its own where it rewrites groups.
    """
    if a.instruction.opcode != "convolution":
        return False
    return not all(np.isfinite(values(x)).all() for x in a.operands)


def zeros_of_either_sign(a: Applied, result: ops.Bits) -> Mask:
    """XLA gives -0 for some sums and products of zeros, where a PSUM value of M2 is never -0, and drops
    the addition of a constant zero, which makes +0 of -0.
    """
    computations = [a.module.by_name[c] for c in a.instruction.called]
    adds_constants = any(i.opcode == "constant" for c in computations for i in c.instructions)
    if a.instruction.opcode not in ("dot", "convolution") and not adds_constants:
        return False
    return result.dtype.kind == "float" and values(result) == 0


def twice_rounded_integers(a: Applied, result: ops.Bits) -> Mask:
    """XLA rounds 64-bit integers to float32 on the way to a narrower float; C1 rounds once."""
    source = a.operands[0].dtype if a.operands else result.dtype
    narrow = result.dtype.kind == "float" and result.dtype.bits < 32
    return a.instruction.opcode == "convert" and source.kind != "float" and source.bits == 64 and narrow


def subnormal_of_float8(a: Applied, result: ops.Bits) -> Mask:
    """In float16, where XLA computes it, a float8 subnormal is normal: reduce-precision keeps other
    bits of it than C9, which keeps those of the operand's own format.
    """
    if a.instruction.opcode != "reduce-precision" or result.dtype.bits > 8:
        return False
    return np.abs(values(a.operands[0])) < 2.0 ** (1 - bias(result.dtype))


def float8_in_float16(a: Applied, result: ops.Bits) -> Mask:
    """XLA rounds quotients and roots of float8 to float16 first; E1 rounds the float32 value once."""
    functions = {"divide": np.divide, "sqrt": np.sqrt}
    function = functions.get(a.instruction.opcode)
    if function is None or result.dtype.kind != "float" or result.dtype.bits > 8:
        return False
    with np.errstate(all="ignore"):
        half = function(*(values(x) for x in a.operands)).astype(np.float16)
        twice = np.asarray(half.astype(np.float32)).astype(result.dtype.numpy)
    return np.asarray(twice.view(np.uint8) != words(result))


def unstable_sort(a: Applied, result: ops.Bits) -> Mask:
    """E10 sorts stably whatever the file says; XLA need not."""
    return a.instruction.opcode == "sort" and not a.instruction.attributes["is_stable"]


def inconsistent_comparator(a: Applied, result: ops.Bits) -> Mask:
    """A comparator of floats that calls NaN neither less nor equal: E10 is a certain merge then."""
    if a.instruction.opcode != "sort":
        return False
    (comparator,) = (a.module.by_name[c] for c in a.instruction.called)
    kinds = [i.attributes.get("comparison_type") for i in comparator.instructions]
    return "FLOAT" in kinds and any(np.isnan(values(x)).any() for x in a.operands)


def map_of_functions(a: Applied, result: ops.Bits) -> Mask:
    """The errors of XLA's functions grow in those that follow."""
    if a.instruction.opcode != "map":
        return False
    (mapped,) = (a.module.by_name[c] for c in a.instruction.called)
    return any(i.opcode in BOUNDS for i in mapped.instructions)


def unordered_scatter(a: Applied, result: ops.Bits) -> Mask:
    """XLA groups what select-and-scatter adds as it likes; R5 applies general computations in order."""
    if a.instruction.opcode != "select-and-scatter":
        return False
    return row_attributes(a.module, a.instruction)["reducer"] is None


EXCLUSIONS: tuple[Callable[[Applied, ops.Bits], Mask], ...] = (
    flushed_subnormals,
    low_exponent_bits,
    reduction_of_one_element,
    repeated_initial_value,
    holes_of_infinite_weights,
    zeros_of_either_sign,
    twice_rounded_integers,
    subnormal_of_float8,
    float8_in_float16,
    unstable_sort,
    inconsistent_comparator,
    map_of_functions,
    unordered_scatter,
)


# ---- the comparison ------------------------------------------------------------------------------


def differences(
    applied: Applied, theirs: tuple[np.ndarray, ...], bounds: bool = True
) -> list[Difference]:
    """The results that are farther from XLA's than rule and bound allow. Without `bounds` a function
    has none.
    """
    found = []
    for n, (result, array) in enumerate(zip(applied.results, theirs, strict=True)):
        ours = words(result)
        other = np.ascontiguousarray(array).reshape(ours.shape).view(ours.dtype)
        wrong = ours != other
        if not wrong.any():
            continue
        far = wrong.astype(np.int64)
        if result.dtype.exponent_bits:
            far = np.where(wrong, np.maximum(distance(ours, other), 1), 0)
            # XLA computes float8 in float16 on CPUs, what moves bits too, and leaves another NaN.
            if not ops.moves_bits(row(applied.instruction)) or result.dtype.bits == 8:
                theirs_bits = ops.Bits(other.view(result.dtype.storage), result.dtype)
                both_nan = np.isnan(values(result)) & np.isnan(values(theirs_bits))
                wrong &= ~both_nan
                if _is_sum(applied, result.dtype):
                    wrong &= ~_within_the_rounding_of_terms(applied, n, values(theirs_bits))
            bound = BOUNDS.get(applied.instruction.opcode, {}).get(result.dtype.name, 0)
            if bounds:
                wrong &= far > bound
            if bounds and applied.instruction.opcode in FARTHER:
                wrong &= ~_proved(applied, result, wrong)
        for exclusion in EXCLUSIONS:
            wrong &= ~np.asarray(exclusion(applied, result))
        if wrong.any():
            found.append(Difference(applied, n, wrong, int(far[wrong].max()), array))
    return found


def _proved(a: Applied, result: ops.Bits, wrong: np.ndarray) -> np.ndarray:
    """Where the twin gives our value and XLA's function is known to be far from it."""
    near = FARTHER[a.instruction.opcode](values(a.operands[0]))
    found = np.zeros(result.data.shape, bool)
    for at in map(tuple, np.argwhere(wrong & near)):
        found[at] = correctly_rounded(a, at) == int(words(result)[at])
    return found


def correctly_rounded(a: Applied, at: tuple[int, ...]) -> int:
    """The twin's word of a function of one variable (E3)."""
    (x,) = a.operands
    name = x.dtype.name
    wide = formats.convert(name, "float32", int(words(x)[at]))
    return formats.convert("float32", name, FLOAT[row(a.instruction).name](wide))


def not_the_twins(a: Applied, most: int = 4) -> list[tuple[int, ...]]:
    """The places, among so many of a function's result, where it is not the twin's word."""
    ours = words(a.results[0])
    places = [tuple(at) for at in np.argwhere(np.ones(ours.shape, bool))]
    chosen = places[:: max(1, len(places) // most)]
    return [at for at in chosen if correctly_rounded(a, at) != int(ours[at])]


def _is_sum(a: Applied, dtype: DType) -> bool:
    if a.instruction.opcode not in SUMS or not dtype.exponent_bits:
        return False
    attributes = row_attributes(a.module, a.instruction)
    return attributes.get("reducer", "add") in ("add", "multiply")


def _terms(a: Applied) -> int:
    """How many terms a result of a sum has at most."""
    i = a.instruction
    dims = [x.data.shape for x in a.operands]
    if i.opcode == "reduce":
        return math.prod(dims[0][d] for d in i.attributes["dimensions"]) + 1
    if i.opcode in ("reduce-window", "select-and-scatter"):
        return math.prod(w.size for w in i.attributes["window"]) + 1
    if i.opcode == "dot":
        return math.prod(dims[0][d] for d in i.attributes["dot_dimensions"].lhs_contracting)
    if i.opcode == "convolution":
        return (
            math.prod(w.size for w in i.attributes["window"])
            * dims[1][i.attributes["dimension_numbers"].kernel_input_feature]
        )
    return max(math.prod(d) for d in dims) + 1


def _within_the_rounding_of_terms(a: Applied, n: int, theirs: np.ndarray) -> np.ndarray:
    """Whether both lie as near to the exact value as any order of the additions brings them: n units
    of the terms' magnitude. A sum whose terms overflow on the way depends on its order.
    """
    result = a.results[n]
    if a.instruction.opcode in BATCH_NORMS:
        terms = _batch_norm_terms(a)
        scale = np.broadcast_to(terms[n], result.data.shape)
        # XLA sums squares and products in the operand's type.
        largest = max((float(np.max(t, initial=0.0)) for t in terms), default=0.0)
        magnitudes = [np.abs(values(x)).max(initial=0.0) for x in a.operands]
        if not largest * max(magnitudes) * _terms(a) < 2.0 ** bias(result.dtype):
            scale = np.full(result.data.shape, np.inf)
    else:
        scale = _magnitude(a)
    # XLA rounds every addition of a narrow reduce to its type (D3); a product adds in float32.
    narrow = a.instruction.opcode not in ("dot", "convolution")
    bits = result.dtype.mantissa_bits
    epsilon = 2.0 ** -(1 + (bits if narrow else 23))
    slack = 2 * _terms(a) * (epsilon * scale + 2.0**-126)
    slack += 2.0**-bits * np.abs(values(result)) + 2.0 ** (1 - bias(result.dtype) - bits)
    with np.errstate(invalid="ignore"):
        near = np.abs(values(result) - theirs) <= slack
    return np.asarray(near | ~np.isfinite(scale))


def _magnitude(a: Applied) -> np.ndarray:
    """The sum of the terms' magnitudes; infinite where a partial product may leave the range."""
    reducer = row_attributes(a.module, a.instruction).get("reducer")
    measure = _distance_from_one if reducer == "multiply" else _absolute
    scale = np.abs(values(_applied(a, [measure(x) for x in a.operands])[0]))
    if reducer == "multiply":
        scale = np.where(np.isfinite(scale), np.abs(values(a.results[0])), np.inf)
    return np.asarray(scale)


def _batch_norm_terms(a: Applied) -> list[np.ndarray]:
    """The magnitudes of what the formula of each result adds up. XLA's variance is the mean of squares
    without the square of the mean.
    """
    x, *lines = (np.abs(values(o)) for o in a.operands)
    axis = a.instruction.attributes["feature_index"]
    shape = [n if d == axis else 1 for d, n in enumerate(x.shape)]
    others = tuple(d for d in range(x.ndim) if d != axis)
    epsilon = a.instruction.attributes["epsilon"]

    def along(line: np.ndarray) -> np.ndarray:
        return line.reshape(shape)

    def mean(y: np.ndarray) -> np.ndarray:
        return np.asarray(y.sum(others) / max(1, x.size // max(1, shape[axis])))

    with np.errstate(all="ignore"):
        if a.instruction.opcode == "batch-norm-training":
            centre, spread = mean(x), np.abs(values(a.results[2])) + epsilon
            squares = mean(x * x)
            reach = (x + along(centre)) * along(1 + squares / spread) / along(np.sqrt(spread))
            return [reach * along(lines[0]) + along(lines[1]), centre, squares]
        if a.instruction.opcode == "batch-norm-inference":
            scale, offset, centre, variance = map(along, lines)
            return [(x + centre) / np.sqrt(variance + epsilon) * scale + offset]
        scale, centre, variance = map(along, lines[:3])
        gradient, root = lines[3], 1 / np.sqrt(variance + epsilon)
        reach = (x + centre) * root
        products = mean(gradient * reach)
        inner = gradient + along(mean(gradient)) + reach * along(products)
        count = x.size // max(1, shape[axis])
        return [scale * root * inner, products * count, mean(gradient) * count]


def _applied(a: Applied, operands: list[ops.Bits]) -> tuple[ops.Bits, ...]:
    """The instruction on other operands."""
    attributes = row_attributes(a.module, a.instruction)
    setting = ops.Setting(Profile())
    return ops.evaluate(row(a.instruction), operands, attributes, setting, a.instruction.result)


def _elementwise(name: str, *operands: ops.Bits) -> ops.Bits:
    (found,) = ops.evaluate(ops.by_name(name), operands, {}, ops.Setting(Profile()))
    return found


def _absolute(x: ops.Bits) -> ops.Bits:
    return _elementwise("abs", x) if x.dtype.exponent_bits else x


def _distance_from_one(x: ops.Bits) -> ops.Bits:
    """The greater of a number and its reciprocal; 1 for 0."""
    exact_zero = ops.Bits(np.asarray(values(x) == 0), dtypes.boolean)
    one = _elementwise("exp", ops.Bits(np.zeros_like(x.data), x.dtype))
    magnitude = _elementwise("select", exact_zero, one, _elementwise("abs", x))
    return _elementwise("maximum", magnitude, _elementwise("reciprocal", magnitude))


def bias(dtype: DType) -> int:
    return int(2 ** (dtype.exponent_bits - 1)) - 1
