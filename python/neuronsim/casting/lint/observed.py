"""What the data show: rules that judge by a calibration, and find nothing without one."""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuronsim import ops
from neuronsim.casting.lint.denominators import POLES
from neuronsim.casting.lint.narrow_types import digits, is_narrow, overflows, range_of
from neuronsim.casting.lint.planned_computation import MOVES, Broken, PlannedComputation
from neuronsim.casting.policies.calibration import share_rounded_to_zero
from neuronsim.casting.value_sets import values_of
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction

_KEPT_BITS = 4  # significant bits that a difference must keep
_SLOPE_ERROR = 0.125  # of an argument of an exponential, or an angle
_EXPONENTIALS = frozenset({"exponential", "exponential-minus-one"})
_ANGLES = frozenset({"sine", "cosine", "tan"})
_STEPS = frozenset({"floor", "ceil", "round-nearest-even", "round-nearest-afz"})
_TINY = 4.0  # times the least normal value


def _computed(scope: PlannedComputation) -> Iterator[tuple[Instruction, DType, ops.Statistics]]:
    """What computes and gives a narrow type, and its values."""
    for i in scope.computation.instructions:
        dtype, known = scope.gives(i), scope.observed(i.name)
        if known is None or dtype is None or not is_narrow(dtype) or i.opcode in MOVES:
            continue
        if i.opcode in ops.OPCODES and i.opcode not in ("constant", "parameter", "get-tuple-element"):
            yield i, dtype, known


def typical_exponent(s: ops.Statistics) -> int | None:
    """The median of the exponents of magnitudes that are finite and not zero."""
    half, seen = sum(s.exponents.values()) / 2, 0
    for e, n in sorted(s.exponents.items()):
        seen += n
        if seen >= half:
            return e
    return None


def values_beyond(scope: PlannedComputation) -> Broken:
    """A large `integer_pow`: values that the data show to be Inf in float16, of whatever operation."""
    for i, dtype, known in _computed(scope):
        folds = scope.depth(i) or i.opcode in ("scatter", "select-and-scatter")
        if folds or not overflows(known.largest, dtype) or _is_masked(scope, i, dtype):
            continue
        yield i, f"its values reach {known.largest:g} on the data: {range_of(dtype)}", (i.name,)


def _is_masked(scope: PlannedComputation, i: Instruction, dtype: DType) -> bool:
    """Whether what leaves the type is masked in a softmax: -Inf does no harm, as long as the data show
    that the maximum of each row is none.
    """
    for p in (c.parts for c in scope.composites):
        if "maximum" not in p or i.name not in (p.get("input"), p.get("shifted")):
            continue
        largest = scope.observed(p["maximum"])
        inside = {p["maximum"], p.get("shifted"), p.get("exponential")}
        if largest is not None and not overflows(largest.largest, dtype):
            return all(u.name in inside for u in scope.users[i.name])
    return False


def vanishing_values(scope: PlannedComputation) -> Broken:
    """Values that the data show to be 0 in the type although they are not: all of them as small, or
    read as a denominator or by a logarithm.
    """
    for i, dtype, known in _computed(scope):
        share = share_rounded_to_zero(known, dtype)
        if not share:
            continue
        poles = [u for u, n in scope.readers(i.name) if POLES.get(u.opcode) == n]
        roots = [u for u, _ in scope.readers(i.name) if u.opcode == "sqrt"]
        poles += [v for u in roots for v, n in scope.readers(u.name) if POLES.get(v.opcode) == n]
        least = values_of(dtype).smallest
        if poles:
            named = ", ".join(dict.fromkeys(f"{p.name} ({p.opcode})" for p in poles[:3]))
            what = (
                f"{share:.1%} of its values are 0 in {dtype.name}, below {least / 2:.2g}: {named} reads"
            )
            yield i, f"{what} them", (i.name, *(u.name for u in roots), *(p.name for p in poles))
        elif share > 0.3 and known.largest < _TINY * dtype.smallest_normal:
            yield (
                i,
                f"its values are up to {known.largest:.2g} on the data, and {share:.1%} of them 0 in "
                f"{dtype.name}, whose least value is {least:.2g}",
                (i.name,),
            )


def near_differences(scope: PlannedComputation) -> Broken:
    """A sum or difference whose terms the data show to be so much larger than the result that fewer
    than 4 significant bits of it are right.
    """
    parts = [c.parts for c in scope.composites]
    shifted = {p["shifted"] for p in parts if "shifted" in p}
    shifted |= {p["variance"] for p in parts if "mean_of_squares" in p and "variance" in p}
    for i, dtype, known in _computed(scope):
        if i.opcode not in ("add", "subtract") or i.name in shifted:
            continue
        terms = [scope.observed(o) for o in i.operands]
        sizes = [e for t in terms if t is not None and (e := typical_exponent(t)) is not None]
        result = typical_exponent(known)
        if result is None or not sizes:
            continue
        lost = max(sizes) - result
        most = result + digits(dtype) - _KEPT_BITS  # a term beyond it takes a typical result's bits
        large = max(_share_above(t, most) for t in terms if t is not None)
        # A mask's large terms are found again as large results: no difference of near values.
        if lost > digits(dtype) - _KEPT_BITS and _share_above(known, most - 1) < large / 2:
            yield (
                i,
                f"its terms are 2^{lost} times as large as its result on the data, and {dtype.name} "
                f"has {digits(dtype)} significant bits",
                (i.name,),
            )


def _share_above(s: ops.Statistics, exponent: int) -> float:
    """The share of all elements whose magnitudes are above a power of two."""
    return sum(n for e, n in s.exponents.items() if e > exponent) / max(s.elements, 1)


def steep_arguments(scope: PlannedComputation) -> Broken:
    """The sine of an angle, or the exponential of a number, that rounding to the type moves by more
    than 1/8 on the data; the logarithm of what is rounded to 1.
    """
    inside = {c.parts["exponential"] for c in scope.composites if "shifted" in c.parts}
    for i, dtype, known in _computed(scope):
        if i.opcode not in _ANGLES | _EXPONENTIALS | {"log"} or i.name in inside:
            continue
        given = scope.observed(i.operands[0])
        if given is None:
            continue
        if i.opcode == "log":
            typical = typical_exponent(known)
            if typical is not None and typical < _KEPT_BITS - digits(dtype):
                message = f"its argument is 1 but for 2^{typical} on the data"
                yield i, f"{message}, and {dtype.name} has {digits(dtype)} significant bits", (i.name,)
            continue
        largest = given.largest
        if i.opcode in _EXPONENTIALS:
            largest = math.log(known.largest) if known.largest > 1 else 0.0
        error = largest * dtype.eps / 2
        if error > _SLOPE_ERROR:
            what = f"its argument reaches {largest:g} on the data, where rounding to {dtype.name}"
            yield i, f"{what} is off by up to {error:.2g}", (i.name,)


def rounded_counts(scope: PlannedComputation) -> Broken:
    """What floor gives in bfloat16 where the data show integers beyond 256."""
    for i, dtype, known in _computed(scope):
        exact = 2 ** digits(dtype)
        if i.opcode in _STEPS and known.largest > exact:
            message = f"integers up to {known.largest:g} on the data in {dtype.name}"
            yield i, f"{message}, which holds all only up to {exact}", (i.name,)
