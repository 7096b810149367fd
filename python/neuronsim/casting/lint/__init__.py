"""Lint: what a plan is known to break in a model, read off the graph before anything runs.

>>> from neuronsim.casting.plans.plan import make_plan
>>> from neuronsim.casting.policies.neuron import neuron_policy
>>> from neuronsim.hlo.parse import from_text
>>> module = from_text('''
... HloModule m
... ENTRY main {
...   x = f32[4] parameter(0)
...   c = f32[] constant(1e+05)
...   b = f32[4] broadcast(c), dimensions={}
...   ROOT y = f32[4] multiply(x, b)
... }''')
>>> [(f.instruction, f.rule) for f in lint(module, make_plan(module, neuron_policy("all", "fp16")))]
[('c', 'constant beyond the type')]
>>> lint(module, make_plan(module, neuron_policy("all", "bf16")))
()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.record import PlanRecord
from neuronsim.casting.lint.integers import integers_in_floats, truncated_indices
from neuronsim.casting.lint.intervals import ANY, interval_where
from neuronsim.casting.lint.loop_sums import narrow_sums
from neuronsim.casting.lint.narrow_types import digits, has_small_range, is_narrow, overflows, range_of
from neuronsim.casting.lint.planned_computation import MOVES, Broken, PlannedComputation
from neuronsim.casting.lint.sums import (
    is_square,
    narrow_accumulators,
    narrow_reducers,
    narrow_updates,
    rounded_tiles,
    sums_beyond,
)
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Rule
from neuronsim.casting.policies.rules import RuleContext
from neuronsim.casting.value_sets import values_of
from neuronsim.dtypes import DType
from neuronsim.hlo.conformance import Finding
from neuronsim.hlo.module import (
    Instruction,
    Module,
    graph_computations,
    inline_calls,
)
from neuronsim.profiles import Profile
from neuronsim.targets import Severity, Target

Check = Callable[[PlannedComputation], Broken]


def _least_normal(dtype: DType) -> float:
    return float(2.0 ** (2 - (1 << (dtype.exponent_bits - 1))))


def _vanishes(value: float, dtype: DType) -> str:
    """What becomes of a value below the normal ones."""
    if value <= values_of(dtype).smallest / 2:
        return f"becomes 0 in {dtype.name}, whose least value is {values_of(dtype).smallest:.3g}"
    return f"is subnormal in {dtype.name}, whose least normal value is {_least_normal(dtype):.3g}"


# ---- products -------------------------------------------------------------------------------------


def _rounded_products(scope: PlannedComputation) -> Broken:
    if scope.target is None:
        return
    for i in scope.computation.instructions:
        if i.opcode not in ("dot", "convolution"):
            continue
        own = {scope.by_name[o].array.dtype for o in i.operands}
        low = scope.reads(i, 0)
        if own != {dtypes.float32} or low is None or not is_narrow(low):
            continue
        if not scope.target.computes_with(dtypes.float32, "tensor", i.opcode):
            message = f"{scope.target.name} has no float32 product: whatever the flags say, operands"
            yield i, f"{message} are rounded, here to {low.name}, {digits(low)} significant bits", ()


# ---- statistics ----------------------------------------------------------------------------------

_NORMS = frozenset({"layer_norm", "batch_norm", "rms_norm", "var"})
_SUMS = ("sum", "sum_of_squares", "mean", "mean_of_squares", "variance")


def _narrow_statistics(scope: PlannedComputation) -> Broken:
    for c in scope.composites:
        sums = [c.parts[p] for p in _SUMS if p in c.parts] if c.kind in _NORMS else []
        for name in sums[:1]:
            i = scope.by_name[name]
            dtype = scope.gives(i)
            if dtype is not None and is_narrow(dtype) and digits(dtype) < 11:
                yield (
                    i,
                    f"the statistics of a {c.kind} over {scope.depth(i)} elements are rounded to "
                    f"{dtype.name}, {digits(dtype)} significant bits",
                    c.instructions,
                )


def _fast_variance(scope: PlannedComputation) -> Broken:
    for c in scope.composites:
        if "mean_of_squares" in c.parts and "variance" in c.parts:
            i = scope.by_name[c.parts["variance"]]
            types = [scope.reads(i, 0), scope.reads(i, 1), scope.gives(i)]
            narrow = [t for t in types if t is not None and is_narrow(t)]
            if narrow:
                yield (
                    i,
                    f"E[x^2] - E[x]^2 cancels in {narrow[0].name}, {digits(narrow[0])} significant "
                    f"bits: a "
                    f"variance below {2.0 ** -digits(narrow[0]):.2g} of the squared mean is lost",
                    c.instructions,
                )


# ---- softmax and exponentials --------------------------------------------------------------------

_SOFTMAXES = frozenset({"softmax", "log_softmax", "logsumexp"})


def _softmax_input(scope: PlannedComputation) -> Broken:
    for c in scope.composites:
        first = c.parts.get("shifted", c.parts.get("exponential")) if c.kind in _SOFTMAXES else None
        i = scope.by_name[first] if first is not None else None
        dtype = scope.reads(i, 0) if i is not None else None
        if i is None or dtype is None or not is_narrow(dtype):
            continue
        known = scope.observed(c.input)
        if known is None:
            error = _USUAL_LOGIT * dtype.eps / 2
            if has_small_range(dtype) or error > _LOGIT_ERROR:
                bounds = f"{range_of(dtype)}, and " if has_small_range(dtype) else ""
                yield (
                    i,
                    f"a {c.kind} reads {dtype.name}: {bounds}logits of {_USUAL_LOGIT:g} are off by up "
                    f"to {error:g}",
                    c.instructions,
                )
        else:
            error = known.largest * dtype.eps / 2
            if known.infinite or overflows(known.largest, dtype) or error > _LOGIT_ERROR:
                yield (
                    i,
                    f"a {c.kind} reads {dtype.name}: inputs reach {known.largest:g} on the data, where "
                    f"rounding is off by up to {error:.2g}, and {range_of(dtype)}",
                    c.instructions,
                )


_LOGIT_ERROR = 0.125  # of a logit: 13 % of a probability
_USUAL_LOGIT = 64.0


_EXPONENTIALS = frozenset({"exponential", "exponential-minus-one"})


def _unshifted_exponential(scope: PlannedComputation) -> Broken:
    safe = {
        c.parts["exponential"]
        for c in scope.composites
        # 1 / (1 + Inf) is 0, as it should be.
        if "exponential" in c.parts and ("shifted" in c.parts or c.kind in ("sigmoid", "silu"))
    }
    for i in scope.computation.instructions:
        dtype = scope.gives(i)
        if i.opcode not in _EXPONENTIALS or i.name in safe:
            continue
        if dtype is None or not has_small_range(dtype):
            continue
        operand, bound = i.operands[0], math.log(dtype.max)

        def is_below(predicate: str, truth: bool, operand: str = operand, bound: float = bound) -> bool:
            taken, _ = interval_where(scope.orderings, scope.intervals, operand, predicate, truth)
            return taken.high <= bound or scope.orderings.is_never_positive(operand, (predicate, truth))

        if scope.interval(operand).high > bound and not scope.is_only_selected(i, is_below):
            yield (
                i,
                f"its operand has no maximum taken away, and beyond {bound:.4g} its result is Inf: "
                f"{range_of(dtype)}",
                (i.name,),
            )


# ---- constants -----------------------------------------------------------------------------------

_UNHARMED = frozenset({"maximum", "minimum", "compare", "clamp", "is-finite"})


def _constants(scope: PlannedComputation) -> Iterator[tuple[Instruction, np.ndarray]]:
    for i in scope.computation.instructions:
        literal = i.attributes.get("literal") if i.opcode == "constant" else None
        if isinstance(literal, ops.Bits) and literal.dtype.kind == "float" and literal.data.size:
            yield i, literal.data.view(literal.dtype.numpy).astype(np.float64)


def _is_mask(values: np.ndarray) -> bool:
    """Whether a constant says minus infinity with a finite number."""
    return bool(values.min() <= -1e4 and values.max() <= 0)


def _harmed(scope: PlannedComputation, i: Instruction) -> list[tuple[Instruction, int]]:
    """The readers of a constant that give something else when it is infinite: not those that only
    compare, nor a maximum that begins with it.
    """
    return [
        (u, n)
        for u, n in scope.readers(i.name)
        if u.opcode not in _UNHARMED and not (u.opcode in ("reduce", "reduce-window") and n == 1)
    ]


def _overflowing(
    scope: PlannedComputation, *, masks: bool
) -> Iterator[tuple[Instruction, DType, float, list[tuple[Instruction, int]]]]:
    for i, values in _constants(scope):
        if _is_mask(values) is not masks:
            continue
        finite = values[np.isfinite(values)]
        if finite.size == 0:
            continue
        worst = float(finite[np.argmax(np.abs(finite))])
        for _, dtype in scope.narrowest(i.name):
            if overflows(worst, dtype):
                harmed = _harmed(scope, i)
                if harmed or i.name == scope.computation.root:
                    yield i, dtype, worst, harmed
                break


def _mask_constants(scope: PlannedComputation) -> Broken:
    for i, dtype, worst, harmed in _overflowing(scope, masks=True):
        becomes = "-Inf" if dtype.has_inf else "NaN"
        named = ", ".join(dict.fromkeys(f"{u.name} ({u.opcode})" for u, _ in harmed[:3]))
        if any(u.opcode == "multiply" for u, _ in harmed):
            effect = f"0 * Inf in {named} is NaN"
        else:
            effect = f"a row that {named} masks throughout is -Inf - (-Inf), NaN, in a softmax"
        yield (
            i,
            f"the mask constant {worst:g} becomes {becomes} in {dtype.name}: {range_of(dtype)}; "
            f"{effect}",
            _path(scope, i, (u.name for u, _ in harmed)),
        )


def _constants_beyond(scope: PlannedComputation) -> Broken:
    for i, dtype, worst, harmed in _overflowing(scope, masks=False):
        yield (
            i,
            f"{worst:g} becomes {'Inf' if dtype.has_inf else 'NaN'} in {dtype.name}: {range_of(dtype)}",
            _path(scope, i, (u.name for u, _ in harmed)),
        )


def _path(scope: PlannedComputation, i: Instruction, ends: Iterable[str]) -> tuple[str, ...]:
    """A constant, what moves it, and what reads it."""
    names, pending = {i.name: None}, [i.name]
    while pending:
        for u in scope.users[pending.pop()]:
            if u.opcode in MOVES and u.name not in names:
                names[u.name] = None
                pending.append(u.name)
    return tuple(names | dict.fromkeys(ends))


# What becomes Inf or NaN when its operand with this number is zero.
_POLES = {"rsqrt": 0, "log": 0, "divide": 1}
_VANISHING_SHARE = 0.01  # of a constant's elements


def _poles(scope: PlannedComputation, name: str) -> list[Instruction]:
    """The instructions to which a value that is added to another is an epsilon."""
    found = []
    for u, _ in scope.readers(name):
        if u.opcode in ("add", "maximum"):
            for v, n in scope.readers(u.name):
                roots = [(v, n)] if v.opcode != "sqrt" else list(scope.readers(v.name))
                found += [p for p, n in roots if _POLES.get(p.opcode) == n]
        elif u.opcode in _POLES:
            found += [u] if scope.source(u.operands[_POLES[u.opcode]]).name == name else []
    return found


def _small_constants(scope: PlannedComputation) -> Iterator[tuple[Instruction, str, list[Instruction]]]:
    """The constants of which a type loses elements, what becomes of them, and what they keep from 0."""
    for i, values in _constants(scope):
        nonzero = np.abs(values[(values != 0) & np.isfinite(values)])
        for _, dtype in scope.narrowest(i.name):
            lost = nonzero[nonzero < _least_normal(dtype)]
            if lost.size <= _VANISHING_SHARE * values.size:
                continue
            least = float(lost.min())
            what = f"{least:g} {_vanishes(least, dtype)}"
            if values.size > 1:
                what += f" ({lost.size} of {values.size} elements are as small)"
            yield i, what, _poles(scope, i.name) if least <= values_of(dtype).smallest / 2 else []
            break


def _vanishing_epsilons(scope: PlannedComputation) -> Broken:
    for i, what, poles in _small_constants(scope):
        if poles:
            named = ", ".join(dict.fromkeys(f"{p.name} ({p.opcode})" for p in poles[:3]))
            read_by = (u.name for u, _ in scope.readers(i.name))
            message = f"epsilon {what}: it no longer keeps {named} from 0"
            yield i, message, _path(scope, i, read_by)


def _vanishing_constants(scope: PlannedComputation) -> Broken:
    for i, what, poles in _small_constants(scope):
        if not poles:
            yield i, what, _path(scope, i, (u.name for u, _ in scope.readers(i.name)))


def _clamp_beyond(scope: PlannedComputation) -> Broken:
    """A value that was clamped to another 8-bit type's range."""
    for i in scope.computation.instructions:
        for number in range(min(1, len(i.operands))):
            dtype = scope.gives(i) if i.opcode == "convert" else scope.reads(i, number)
            clamp = scope.source(i.operands[number])
            if clamp.opcode not in ("clamp", "minimum", "maximum"):
                continue
            if dtype is None or dtype.kind != "float" or dtype.bits != 8 or not dtype.mantissa_bits:
                continue
            bound = scope.intervals.get(clamp.name, ANY).magnitude
            if overflows(bound, dtype):
                yield (
                    i,
                    (
                        f"{clamp.name} clamps to {bound:g}, and {range_of(dtype)}: what lies between "
                        f"becomes {'Inf' if dtype.has_inf else 'NaN'}"
                    ),
                    (clamp.name, i.name),
                )


# ---- poles ---------------------------------------------------------------------------------------

_UNDERFLOWING = {
    "softmax": "a softmax",
    "sigmoid": "a sigmoid",
    "var": "a variance",
}


def _underflowing_operands(scope: PlannedComputation) -> Broken:
    kinds = {c.root: _UNDERFLOWING[c.kind] for c in scope.composites if c.kind in _UNDERFLOWING}
    for c in scope.composites:
        kinds |= {
            c.parts[p]: f"the {p.replace('_', ' ')} of a {c.kind}"
            for p in ("variance", "mean_of_squares")
            if p in c.parts
        }
    for i in scope.computation.instructions:
        if i.opcode not in _POLES or not i.operands:
            continue
        operand = scope.source(i.operands[_POLES[i.opcode]])
        if operand.opcode == "sqrt":
            operand = scope.source(operand.operands[0])
        dtype = scope.gives(operand)
        if operand.opcode == "exponential" and scope.intervals[operand.name].low < math.log(2.0**-24):
            what = "an exponential"
        elif is_square(operand):
            what = "a square"
        else:
            what = kinds.get(operand.name, "")
        if not what or dtype is None or not has_small_range(dtype):
            continue
        least = values_of(dtype).smallest
        name, bound = operand.name, least / 2

        def is_apart(predicate: str, truth: bool, name: str = name, bound: float = bound) -> bool:
            taken, nonzero = interval_where(scope.orderings, scope.intervals, name, predicate, truth)
            return nonzero or taken.low > bound

        if scope.interval(name).low > bound or scope.is_only_selected(i, is_apart):
            continue
        yield (
            i,
            (
                f"{operand.name} is {what} in {dtype.name}: below {least / 2:.2g} it is 0, where "
                f"{i.opcode} gives Inf or NaN"
            ),
            (operand.name, i.name),
        )


# ---- the rules -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One rule: what it is called, how bad it is, the rule of the contract by which it happens, the
    repair in the source.
    """

    name: str
    severity: Severity
    label: str
    check: Check
    advice: str


RULES = (
    _Row("float32 product is rounded", "warning", "A1", _rounded_products,
         "expect it under --fast-math none too, or compile for trn1 with --auto-cast none"),
    _Row("normalisation in a narrow type", "warning", "A2", _narrow_statistics,
         "compute the mean and the variance in float32 and convert the normalised values"),
    _Row("fast variance", "error", "A2", _fast_variance,
         "take the variance about the mean, mean((x - mean(x))^2) (Flax: use_fast_variance=False)"),
    _Row("softmax of narrow logits", "warning", "A2", _softmax_input,
         "convert the logits to float32 before the softmax"),
    _Row("exponential without maximum", "error", "C3", _unshifted_exponential,
         "take the maximum away first: exp(x - max(x))"),
    _Row("mask constant becomes -Inf", "error", "C3", _mask_constants,
         "mask with select and a constant inside the type, -1e4 say, not with a type's least value"),
    _Row("constant beyond the type", "error", "C3", _constants_beyond,
         "scale the computation so that the constant lies inside the type"),
    _Row("epsilon vanishes", "error", "C2", _vanishing_epsilons,
         "use an epsilon that the type holds: 1e-4 in float16, say"),
    _Row("constant underflows", "warning", "C2", _vanishing_constants,
         "scale the computation so that the constant is a normal number of the type"),
    _Row("clamp beyond the type", "error", "C3", _clamp_beyond,
         "clamp to what the device's type holds: 240 for float8_e4m3"),
    _Row("sum beyond the type", "error", "R1", sums_beyond,
         "scale the elements before the sum, or take the mean of scaled values"),
    _Row("long sum in a narrow accumulator", "error", "R1", narrow_accumulators,
         "accumulate in float32"),
    _Row("updates add up in a narrow type", "error", "R5", narrow_updates,
         "scatter in float32, or sort the updates by place and sum each segment with a reduce"),
    _Row("reducer adds up in a narrow type", "error", "R2", narrow_reducers,
         "reduce each array by one add, which sums in float32"),
    _Row("partial sums are rounded", "warning", "R3", rounded_tiles,
         "give --enable-mixed-precision-accumulation"),
    _Row("64-bit indices are truncated", "error", "C7", truncated_indices,
         "compute indices in 32 bits: split a flat index in one for each dimension"),
    _Row("integers in a narrow float", "error", "C1", integers_in_floats,
         "count and index in integers"),
    _Row("loop carries a narrow sum", "error", "A2", narrow_sums,
         "count in integers, and carry sums in float32"),
    _Row("zero in a denominator", "warning", "C2", _underflowing_operands,
         "add an epsilon that the type holds, or take log_softmax for the log of a softmax"),
)  # fmt: skip

# What happens by a rule of the contract.
_CONTRACT = {
    "A1": "the tensor engine reads operands rounded to a type and gives float32 sums",
    "A2": "every float32 instruction reads operands rounded to the type and rounds its result to it",
    "C1": "a conversion of an integer to a float type is rounded",
    "C2": "conversions round to the nearest value; below half of the least value that is zero",
    "C3": "what lies beyond a type's largest value becomes Inf, or NaN in a type without it",
    "C7": "64-bit integers are their low 32 bits on Trn1",
    "R1": "sums are taken in float32, unless a plan says otherwise, and rounded once at their end",
    "R2": "a reducer of several operations runs as written, each step rounded to its type",
    "R5": "a scatter applies its updates one at a time, each result rounded to the operand's type",
    "R3": "without mixed-precision accumulation the result of each tile of a sum is rounded",
}


def lint(
    module: Module,
    plan: PlanRecord,
    target: Target | None = None,
    calibration: Calibration | None = None,
    *,
    profile: Profile | None = None,
) -> tuple[Finding, ...]:
    """What a plan is known to break in a module, in the order of `RULES`.

    Integers are judged with a `target`, rounded partial sums with a `profile`; a `calibration` replaces
    what the graph leaves open by what the values were. Raises InvalidArgument if the plan, or the
    calibration, is for another module, or the plan asks for types that the target lacks.
    """
    check_plan(plan, module, target)
    if calibration is not None:
        calibration.check(module)
    flat = inline_calls(module)
    context = RuleContext(flat, {}, calibration=calibration)
    scopes: dict[str, PlannedComputation] = {}
    for c in graph_computations(flat):
        scopes[c.name] = PlannedComputation(c, context, plan, target, profile, scopes)
    return tuple(
        _finding(row, scope, *broken)
        for row in RULES
        for scope in scopes.values()
        for broken in row.check(scope)
    )


def _finding(
    row: _Row, scope: PlannedComputation, i: Instruction, message: str, keep: tuple[str, ...]
) -> Finding:
    return Finding(
        computation=scope.computation.name,
        instruction=i.name,
        opcode=i.opcode,
        rule=row.name,
        code=row.label,
        severity=row.severity,
        message=message,
        quotation=_CONTRACT[row.label],
        source=f"docs/numerics.md, {row.label}",
        advice=row.advice,
        release="",
        keep_float32=keep,
    )


def float32_rules(findings: Iterable[Finding]) -> tuple[Rule, ...]:
    """The rules by which a policy keeps what findings name in float32, one for each finding that names
    something.
    """
    return tuple(
        Rule(f"lint: {f.rule} ({f.instruction})", category="never", name=f.keep_float32)
        for f in findings
        if f.keep_float32
    )
