"""Blame, measured: runs side by side, the gravest loss, its repair; and again until none is left."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neuronsim.casting.decisions.post_training import known_names
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.lint.narrow_types import overflows
from neuronsim.dtypes import DType
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.ops import Bits
from neuronsim.tuning.blame.causes import (
    QUANTIZED,
    Loss,
    integer_source,
    is_computed,
    losses,
    named_instruction,
    narrow_types,
    powers,
    recurrences,
    share_of,
    stem_of,
)
from neuronsim.tuning.blame.flow import (
    Tallies,
    Tracer,
    digits_of,
    numbers,
    output_shares,
    scope_shares,
    unit_of,
)
from neuronsim.tuning.blame.graph import Dataflow
from neuronsim.tuning.blame.magnitudes import magnitudes_of
from neuronsim.tuning.blame.quantized import Mender, Operand, find_fault, with_fitting_biases
from neuronsim.tuning.blame.result import BlameResult, Cause, InstructionBlame, OutputFigures
from neuronsim.tuning.blame.rewrites import rewrites
from neuronsim.tuning.blame.runs import Instance, Listening, Sources, Values, listened, widened
from neuronsim.tuning.blame.subject import MAX_TRACED, Decisions, Subject
from neuronsim.tuning.blame.words import advice_on, evidence_of, said_of, said_of_quantized
from neuronsim.tuning.statistics import output_statistics

MAX_CAUSES = 5
_ENOUGH = 1 << 24  # elements of instructions' results: from so many on no further batch is traced
_USUAL_ROUNDINGS = 8.0  # of the narrowest type, in the outputs of a network of 50 instructions
_LATENT_BITS = 5.0  # that are worth a word though the outputs are as usual
_LEAST_BITS = 1.5  # that a cause loses
_CERTAIN_BITS = 2.5  # from which on a cause is kept though it is one of several that hide its repair
_REPAIRED = 0.5  # of the error that a repair must take away at least
_AS_GOOD = 1.25  # times the least error, which a simpler rewrite of a quantization may leave
_NEAR = (1, 2, 4, 1 << 30)  # steps upstream of a cause that are kept in float32 with it, tried in turn


def usual_error(flow: Dataflow, decisions: Decisions) -> float:
    """The relative error of a sample up to which roundings alone explain it: 8 of the narrowest type,
    more by the square root where a plan rounds more than 50 instructions.
    """
    count = sum(is_computed(i) for n, i in flow.instructions.items() if n in decisions)
    return _USUAL_ROUNDINGS * unit_of(narrow_types(decisions)) * max(1.0, math.sqrt(count / 50))


def is_usual(figures: OutputFigures, usual: float) -> bool:
    """Whether outputs are no further off than roundings explain."""
    return not figures.not_finite and figures.worst_sample <= usual and figures.differing <= 0.02


@dataclass
class _Trace:
    """The tallies of a round, and the total of the shares that were traced."""

    tallies: Tallies
    total: float
    values: Values
    lowered: Values


def _trace(subject: Subject, decisions: Decisions, lowered: Listening, exact: Listening) -> _Trace:
    """The flow of the worst batches under these decisions."""
    names = frozenset(subject.flow.instructions)
    tallies: Tallies = {}
    total = 0.0
    found = subject.outputs(lowered)
    kept: tuple[Values, Values] | None = None
    for n in subject.worst_batches(found):
        inputs, count = subject.batches[n]
        a = listened(exact, names, inputs, subject.profile)
        b = listened(lowered, names, inputs, subject.profile)
        subject.runs += 2
        tracer = Tracer(
            subject.flat, decisions, a, b, subject.profile, narrow_types(decisions), tallies
        )
        shares = []
        for k in range(len(subject.flat.root.shape.arrays())):
            instance = tracer.sources.of(subject.flat.root.name, "", k)
            x = a.at(instance)
            if instance is None or x is None:
                continue
            part = output_shares(x, _output(b, instance, x))
            if part.ndim and part.shape[0] > count:
                part[count:] = 0.0
            shares.append((instance, part))
        total += sum(float(s.sum()) for _, s in shares)
        tracer.run(shares)
        kept = kept or (a, b)
        if sum(x.data.size for xs in a.arrays.values() for x in xs) >= _ENOUGH:
            break
    assert kept is not None
    return _Trace(tallies, total, *kept)


def _output(values: Values, instance: Instance, exact: Bits) -> Bits:
    found = values.at(instance)
    return found if found is not None and found.data.shape == exact.data.shape else exact


def blame(
    subject: Subject,
    *,
    model: str,
    setting: str,
    data: str,
    samples: int,
    max_causes: int = MAX_CAUSES,
    replanned: Callable[[Module], Subject | None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> BlameResult:
    """What is to blame for the outputs' error, the gravest cause first. See `api.blame`."""
    start = time.perf_counter()
    notes = subject.check_reference()
    decisions = dict(subject.decisions)
    usual = usual_error(subject.flow, decisions)
    exact = subject.build({})
    first: _Trace | None = None
    causes: list[Cause] = []
    lowered = subject.build(decisions)
    begun = figures = subject.figures(subject.outputs(lowered))
    top = subject.figures(subject.exact).top1
    rounds = 0
    while narrow_types(decisions) and rounds < max_causes:
        if progress is not None:
            progress("blaming", rounds, max_causes)
        if first is not None and is_usual(figures, usual):
            break
        trace = _trace(subject, decisions, lowered, exact)
        first = first or trace
        if is_usual(figures, usual) or trace.total <= 0:
            notes += _latent(subject, trace, decisions)
            break
        cause = _gravest(subject, decisions, trace, figures)
        if cause is None:
            notes.append(_SPREAD)
            break
        decisions = _without(decisions, cause.keep_float32)
        rounds += 1
        causes = _joined(causes, cause, subject.flow)
        figures = cause.after
        lowered = subject.build(decisions)
    causes, more = _repairs(causes, figures)
    notes += [note for note in more if note not in notes]
    if replanned is not None:
        causes = _mended(subject, exact, _rewritten(subject, causes, replanned))
    if not causes and is_usual(begun, usual):
        notes.append(_NOTHING)
    if not is_usual(begun, usual):
        notes += _unmoved(begun, top)
    if first is not None and first.values.is_cut:
        notes.append("later trips of loops were not traced: their values exceed the memory bound")
    rows = _instructions(subject, first, subject.decisions) if first is not None else ()
    scopes = {n: i.metadata.op_name.rpartition("/")[0] for n, i in subject.flow.instructions.items()}
    sums = scope_shares(first.tallies, scopes) if first is not None else {}
    total = first.total if first is not None and first.total else 1.0
    return BlameResult(
        model=model,
        fingerprint=fingerprint(subject.module),
        setting=setting,
        data=data,
        samples=samples,
        traced=min(len(subject.batches), MAX_TRACED),
        usual=usual,
        float32_top1=top,
        lowered=begun,
        causes=tuple(causes),
        instructions=rows,
        scopes={k: v / total for k, v in sums.items() if v > 0},
        runs=subject.runs,
        notes=tuple(notes),
        seconds={"total": time.perf_counter() - start},
    )


def _joined(causes: Sequence[Cause], cause: Cause, flow: Dataflow) -> list[Cause]:
    """The causes with a further one; where an earlier one keeps its instruction in float32 already, it
    is that one's loss, and what is kept now completes its repair.
    """
    found = list(causes)
    for n, c in enumerate(causes):
        if cause.instruction != c.instruction and cause.instruction not in c.keep_float32:
            continue
        keep = {*c.keep_float32, *cause.keep_float32}
        found[n] = dataclasses.replace(
            c,
            keep_float32=tuple(name for name in flow.instructions if name in keep),
            computing=sum(is_computed(flow.instructions[name]) for name in keep),
        )
        found[-1] = dataclasses.replace(found[-1], after=cause.after)  # that of all together
        return found
    return [*causes, cause]


def _repairs(causes: Sequence[Cause], after: OutputFigures) -> tuple[list[Cause], list[str]]:
    """The causes up to the last one that is a repair, and notes on the others: what was kept after
    them made them none.
    """
    kept, notes = list(causes), []
    while kept and size_of(after) > _REPAIRED * size_of(kept[-1].before):
        if after.not_finite and kept[-1].kind in ("overflow", "nan"):  # it is one of several
            notes.append(f"{after.not_finite} outputs are not finite even so: more hides behind these")
            break
        kept.pop()
        notes = [_SPREAD]
    return kept, notes


def _unmoved(figures: OutputFigures, top1: float | None) -> list[str]:
    """A note where the outputs move and the metric does not."""
    if top1 is None or figures.top1 is None or figures.top1 < top1:
        return []
    return [
        f"the outputs move (the worst sample by {figures.worst_sample:.2g}), the metric does not: "
        f"top-1 is {figures.top1:.2%}, in float32 {top1:.2%}"
    ]


_NOTHING = "nothing is to blame: the outputs are within what roundings of the type explain"
_SPREAD = (
    "no single instruction explains what is left of the error: it is spread over many roundings; "
    "`neuronsim fix` finds a set that is within a tolerance"
)


def _latent(subject: Subject, trace: _Trace, decisions: Decisions) -> list[str]:
    """What is lost on the way although the outputs hardly move."""
    found = losses(trace.tallies, trace.total or 1.0, decisions, subject.flow)
    return [
        f"{x.name} loses {x.bits:.1f} significant bits ({x.kind}), though the outputs hardly move on "
        "these data: others may"
        for x in found[:1]
        if x.score >= _LATENT_BITS
    ]


def _instructions(
    subject: Subject, trace: _Trace, decisions: Decisions
) -> tuple[InstructionBlame, ...]:
    total = trace.total or 1.0
    found = []
    for x in losses(trace.tallies, total, decisions, subject.flow):
        t, i = trace.tallies[x.name], subject.flow.instructions[x.name]
        reading = sum(t.reading.values())
        found.append(
            InstructionBlame(
                name=x.name,
                opcode=i.opcode,
                scope=i.metadata.op_name,
                own=(t.own + reading) / total,
                reading=reading / total,
                through=x.share,
                bits=x.bits,
                relative_error=2.0**x.error_bits,
                kind=x.kind,
            )
        )
    return tuple(found)


def _rewritten(
    subject: Subject, causes: Sequence[Cause], replanned: Callable[[Module], Subject | None]
) -> list[Cause]:
    """The causes, with the known rewrite of the source that concerns each, measured."""
    known = list(rewrites(subject.module)) if causes else []
    found = []
    for cause in causes:
        concerned = {cause.instruction, *cause.keep_float32}
        best = cause
        for r in known:
            if cause.instruction not in r.instructions and len(concerned & r.instructions) < 2:
                continue
            again = replanned(r.module)
            if again is None:
                continue
            subject.runs += 1
            after = subject.figures(again.outputs(again.build(again.decisions)))
            if best.rewritten is None or size_of(after) < size_of(best.rewritten):
                best = dataclasses.replace(best, rewrite=r.name, rewritten=after)
        found.append(best)
    return found


def _mended(subject: Subject, exact: Listening, causes: Sequence[Cause]) -> list[Cause]:
    """The causes, with what mends a quantization best, measured."""
    decisions = dict(subject.decisions)
    found = []
    for cause in causes:
        if cause.channel is not None:
            tried = list(_mendings(subject, exact, decisions, cause))
            least = min((size_of(after) for _, after in tried), default=0.0)
            simplest = (m for m in tried if size_of(m[1]) <= _AS_GOOD * least)
            name, after = next(simplest, ("", cause.before))
            if size_of(after) < size_of(cause.before):
                cause = dataclasses.replace(cause, rewrite=name, rewritten=after)
        found.append(cause)
        decisions = _without(decisions, cause.keep_float32)
    return found


def _without(decisions: Decisions, keep: Iterable[str]) -> dict[str, Decision]:
    """The decisions once these instructions stay in float32."""
    kept = set(keep)
    return {n: d for n, d in decisions.items() if n not in kept}


def _mendings(
    subject: Subject, exact: Listening, decisions: Decisions, cause: Cause
) -> Iterator[tuple[str, OutputFigures]]:
    """What may mend a quantization, and the outputs' figures then: ranges are those on all data."""
    i = subject.flow.instructions[cause.instruction]
    number = 0
    runs = []
    for inputs, _ in subject.batches:
        values = listened(exact, frozenset(subject.flow.instructions), inputs, subject.profile)
        operands = [_operand(subject, decisions, values, i.name, n) for n in range(2)]
        if any(o is None for o in operands):
            return
        number = next((n for n, o in enumerate(operands) if o and o.given == cause.operand), 0)
        runs.append(operands[number])
    given = [o for o in runs if o is not None]

    def value_of(name: str) -> npt.NDArray[np.float32]:
        x = values.at(Sources(subject.flat, values).of(name, ""))
        assert x is not None
        return np.asarray(numbers(x), np.float32)

    mender = Mender(subject.flat, decisions, given[0], [o.values for o in given], value_of)
    for m in mender.mendings():
        fitting = with_fitting_biases(subject.flat.entry_computation, m.decisions)
        yield m.name, subject.measured(fitting, m.module)


# ---- one cause and its repair ---------------------------------------------------------------------


def _gravest(
    subject: Subject, decisions: Decisions, trace: _Trace, before: OutputFigures
) -> Cause | None:
    """The gravest loss whose repair takes most of the error away."""
    found = losses(trace.tallies, trace.total, decisions, subject.flow)
    states = [x for x in recurrences(found, subject.flow) if x.score >= _LEAST_BITS]
    inside = {n for x in states for n in x.together}
    single = [x for x in found if x.score >= _LEAST_BITS and x.name not in inside]
    candidates = sorted([*states, *single], key=lambda x: -x.score)[:3]
    candidates = candidates or [x for x in powers(found, subject.flow) if x.score >= _LEAST_BITS][:1]
    certain = None
    for loss in candidates:
        keep, after = _repair(subject, decisions, trace, loss, before)
        if not keep:
            continue
        if size_of(after) <= _REPAIRED * size_of(before):
            return _cause(subject, decisions, trace, loss, keep, before, after)
        if certain is None and loss.score >= _CERTAIN_BITS:
            certain = loss, keep, after
    if certain is None:
        return None
    loss, keep, after = certain
    places = _overflowing(subject, decisions, trace) if loss.kind == "overflow" else set()
    alike = frozenset(places | subject.flow.downstream(places, places.__contains__)) & decisions.keys()
    if alike > keep:  # each of these hides what the others' repair does
        together = subject.measured(_without(decisions, alike))
        if size_of(together) <= _REPAIRED * size_of(before):
            cause = _cause(subject, decisions, trace, loss, alike, before, together)
            more = sum(is_computed(subject.flow.instructions[n]) for n in places) - 1
            said = f"{cause.said}; so do those of {more} more, and only all together repair it"
            return dataclasses.replace(cause, said=said)
    return _cause(subject, decisions, trace, loss, keep, before, after)


def _overflowing(subject: Subject, decisions: Decisions, trace: _Trace) -> set[str]:
    """The instructions whose values in float32 leave the type that the plan gives them."""

    def leaves(name: str) -> bool:
        d = decisions.get(name)
        own = [t for t in narrow_types({name: d}) if t.exponent_bits] if d is not None else []
        largest = _largest(trace.values, name) if own else 0.0
        return any(overflows(largest, t) for t in own)

    return {n for n in subject.flow.instructions if leaves(n)}


def _largest(values: Values, name: str) -> float:
    """The largest finite magnitude that an instruction gave."""
    arrays = (np.abs(numbers(x)) for x in values.every(name))
    return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in arrays), default=0.0)


def size_of(figures: OutputFigures) -> float:
    """An error to compare: what is not finite counts most, then the worst sample."""
    worst = min(figures.worst_sample, 1e9)
    return worst + figures.differing + (1e9 + 1e9 * figures.not_finite if figures.not_finite else 0.0)


def _repair(
    subject: Subject, decisions: Decisions, trace: _Trace, loss: Loss, before: OutputFigures
) -> tuple[frozenset[str], OutputFigures]:
    """The nearest instructions around a loss that take most of its error away when they stay float32,
    and the outputs' figures then.
    """
    flow, types = subject.flow, narrow_types(decisions)

    def share(name: str, operand: int) -> float:
        return share_of(trace.tallies, name, operand)

    distances = flow.upstream(loss.name, share, 0.002)
    leaves = _leaving(subject, trace, types, loss)
    tried: list[tuple[frozenset[str], OutputFigures]] = []
    every = flow.upstream(loss.name, share, 0.002, products=True)
    quantized = loss.kind == QUANTIZED and any(decisions[loss.name].quantized_operands)
    first = [(0, distances)] if quantized else []
    for near, given in (*first, *((n, distances) for n in _NEAR), (_NEAR[-1], every)):
        close = {n for n, d in given.items() if d <= near} | loss.together
        keep = frozenset(close | flow.downstream(close, leaves)) & decisions.keys()
        if not keep or any(keep == k for k, _ in tried):
            continue
        tried.append((keep, subject.measured(_without(decisions, keep))))
    if not tried:
        return frozenset(), before
    best, usual = min(size_of(f) for _, f in tried), usual_error(flow, subject.decisions)
    return next(x for x in tried if size_of(x[1]) <= max(1.5 * best, min(usual, size_of(before) / 2)))


def _leaving(
    subject: Subject, trace: _Trace, types: Iterable[DType], loss: Loss
) -> Callable[[str], bool]:
    """Whether an instruction's values in float32 leave a type of the plan: those that the error passes,
    and for what is too large all.
    """
    narrow = [t for t in types if t.exponent_bits]

    def leaves(name: str) -> bool:
        i = subject.flow.instructions[name]
        if i.shape.arrays()[0].dtype.kind != "float":
            return False
        t = trace.tallies.get(name)
        largest = _largest(trace.values, name)
        smallest = t.smallest if t is not None else math.inf
        whole = loss.kind in ("integers", "discontinuity") and t is not None
        for dtype in narrow:
            least = dtype.smallest_normal
            if overflows(largest, dtype) or (t is not None and t.largest < least and smallest < least):
                return True
            if whole and t is not None and t.whole > 0 and t.largest > 2 ** digits_of(dtype):
                return True
        return False

    return leaves


def _cause(
    subject: Subject,
    decisions: Decisions,
    trace: _Trace,
    loss: Loss,
    keep: frozenset[str],
    before: OutputFigures,
    after: OutputFigures,
) -> Cause:
    flow, tallies = subject.flow, trace.tallies
    unit = unit_of(narrow_types(decisions))
    if loss.kind in ("discontinuity", "integers"):
        source = integer_source(loss.name, tallies, flow, unit)
        if source is not None:
            loss = dataclasses.replace(loss, name=source, kind="integers")
    i, t = flow.instructions[loss.name], tallies[loss.name]
    argument = _largest_argument(flow, tallies, loss.name)
    dtype = _type_of(decisions, loss.name)
    evidence = evidence_of(loss, t, dtype, argument)
    if loss.kind == "recurrence":
        evidence |= _growth(trace, loss)
    o = _quantized_operand(subject, decisions, trace, loss)
    fault = find_fault(o) if o is not None else None
    if loss.kind == QUANTIZED:
        loss = dataclasses.replace(loss, kind="rounding" if fault is None else fault.kind)
    if o is not None and fault is not None:
        evidence, said = dict(fault.evidence), said_of_quantized(o, fault)
    else:
        said = said_of(loss, i, t, dtype, evidence)
    named = flow.instructions[named_instruction(loss.name, flow)]
    origin = next((x for x in (named.metadata, i.metadata) if x.source_file), named.metadata)
    return Cause(
        instruction=named.name,
        opcode=named.opcode,
        kind=loss.kind,
        share=loss.share,
        bits=loss.bits,
        said=said,
        advice=advice_on(loss.kind, i.opcode),
        scope=named.metadata.op_name or i.metadata.op_name,
        source=f"{origin.source_file}:{origin.source_line}" if origin.source_file else "",
        evidence=evidence,
        element=t.worst,
        keep_float32=tuple(n for n in flow.instructions if n in keep),
        computing=sum(is_computed(flow.instructions[n]) for n in keep),
        before=before,
        after=after,
        operand=o.given if o is not None else "",
        channel=fault.channel if fault is not None else None,
        type=dtype.name,
        magnitudes=magnitudes_of(flow, trace.values, loss.name, dtype),
    )


def _largest_argument(flow: Dataflow, tallies: Tallies, name: str) -> float:
    """The largest magnitude that an instruction met among its operands, of those that are off at the
    worst element if any is: the exponent 200 is not what a power loses by.
    """
    worst, operands = tallies[name].worst, len(flow.instructions[name].operands)
    read = worst.operands if worst is not None else ()
    known = len(read) == operands
    off = [n for n, (own, wide) in enumerate(read) if known and own != wide]
    numbers = off or range(operands)
    producers = (p for n in numbers for p in flow.producers(name, n))
    largest = [tallies[p].largest for p in producers if p in tallies]
    given = [abs(read[n][0]) for n in off] or [abs(own) for own, _ in read]
    return max([*largest, *given], default=0.0)


def _quantized_operand(
    subject: Subject, decisions: Decisions, trace: _Trace, loss: Loss
) -> Operand | None:
    """The operand whose quantization is the loss, if it is one."""
    d, reading = decisions.get(loss.name), trace.tallies[loss.name].reading
    if loss.kind != QUANTIZED or d is None or not reading:
        return None
    return _operand(subject, decisions, trace.values, loss.name, max(reading, key=lambda n: reading[n]))


def _operand(
    subject: Subject, decisions: Decisions, values: Values, name: str, number: int
) -> Operand | None:
    """A quantized operand of a product, with the values of a run."""
    i, by = subject.flow.instructions[name], decisions[name].quantized_operands[number]
    instance = Sources(subject.flat, values).of(i.operands[number], "")
    x = values.at(instance)
    if by is None or instance is None or x is None:
        return None
    known = instance.name in known_names(subject.flat.entry_computation)
    given = named_instruction(instance.name, subject.flow)
    return Operand(i, number, given, np.asarray(numbers(x), np.float32), by, known)


def _growth(trace: _Trace, loss: Loss) -> dict[str, float]:
    """How the error of a recurrence's state grows: relative errors in the first trip, half-way and in
    the last one, and the power of the number of trips that the latter two follow.
    """
    exact, lowered = trace.values, trace.lowered
    keys = [key for key in exact.arrays if key[0] == loss.name and key in lowered.arrays]
    if len(keys) == 1:  # steps that are written out
        alike = [(n, "") for n in loss.together if stem_of(n) == stem_of(loss.name)]
        order = {key: place for place, key in enumerate(exact.arrays)}
        keys = sorted((k for k in alike if k in order and k in lowered.arrays), key=order.__getitem__)
    errors = []
    for key in keys:
        pairs = zip(exact.arrays[key][:1], lowered.arrays[key][:1], strict=True)
        a, b = next((numbers(x), numbers(widened(y))) for x, y in pairs)
        errors.append(output_statistics(b, a).relative_error)
    first, half, last = (errors[n] for n in (0, (len(errors) - 1) // 2, -1))
    power = math.log2(last / half) if half > 0 and math.isfinite(last) and last > 0 else 0.0
    return {"trips": float(len(errors)), "first": first, "half": half, "last": last, "power": power}


def _type_of(decisions: Decisions, name: str) -> DType:
    """The narrow type of an instruction, or the plan's narrowest."""
    d = decisions.get(name)
    own = narrow_types({name: d}) if d is not None else set()
    return min(own or narrow_types(decisions), key=lambda t: (digits_of(t), t.name))
