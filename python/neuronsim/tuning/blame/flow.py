"""Flow: where the error of the outputs comes from, traced back element by element (docs/blame.md).

Each element of an output has a share of its error, and hands it back to what made the error: to the
instruction's own rounding, or to the operands' elements, in proportion to the squares of what each
alone changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes, ops
from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import DType
from neuronsim.errors import NeuronSimError
from neuronsim.hlo.module import Instruction, Module, simple_reducer
from neuronsim.hlo.opcodes import STRUCTURE, row
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile
from neuronsim.tuning.blame.runs import (
    Instance,
    Sources,
    Values,
    evaluated,
    reverse_order,
    rounded,
    widened,
)

Floats: TypeAlias = npt.NDArray[np.float64]
HUGE = 1e30  # what a difference counts that is not finite
_TINY = 1e-300
_LEAST_SHARE = 1e-9  # of an array's largest: elements with less are not looked at
_COUNTED = 2.0**22
_BAD = 1e6  # how much more an output counts that is not finite where float32's is


class Known(NamedTuple):
    """The values of an operand: of the float32 run, of the lowered one, and as the instruction reads
    those under the plan.
    """

    exact: Bits
    lowered: Bits
    read: Bits
    instance: Instance | None


@dataclass
class Flow:
    """A share of the outputs' error that passes somewhere, and the sum of the binary logarithms of the
    relative errors of the elements that it passes, each weighted by its share.
    """

    share: float = 0.0
    logarithm: float = 0.0

    def add(self, weights: Floats, squares: Floats, values: Floats, unit: float) -> None:
        """Adds what elements pass on whose errors have these squares."""
        counted = weights > _LEAST_SHARE * weights.max(initial=0.0)
        share, logarithms = weights[counted], relative_bits(squares[counted], values[counted], unit)
        self.share += float(weights.sum())
        self.logarithm += float((share * logarithms).sum())

    @property
    def bits(self) -> float:
        """The binary logarithm of the relative error: the geometric mean of the elements'."""
        return self.logarithm / self.share if self.share > 0 else 0.0


@dataclass(frozen=True)
class Element:
    """One element of an instruction's result: its index, its values in both runs, and those of the
    operands that it is made of, where that is one of each.
    """

    index: tuple[int, ...]
    trips: str
    float32: float
    lowered: float
    operands: tuple[tuple[float, float], ...] = ()


@dataclass
class Tally:
    """What passes an instruction: the outputs' error that is its result's (`given`), by operand what
    comes from there (`taken`), its result's own rounding and that of the operands as it reads them.
    """

    given: Flow = field(default_factory=Flow)
    taken: dict[int, Flow] = field(default_factory=dict)
    own: float = 0.0
    reading: dict[int, float] = field(default_factory=dict)
    worst: Element | None = None
    weight: float = -1.0
    overflowed: float = 0.0  # shares of the error: where float32 is finite and lowered is Inf,
    nan: float = 0.0  # NaN,
    vanished: float = 0.0  # 0 or rounded where float32's is below the type's normal values,
    whole: float = 0.0  # and where float32's value is an integer that is rounded
    largest: float = 0.0  # magnitudes in float32 where the error passes
    smallest: float = np.inf
    cancelled: float = 0.0  # the logarithms of the operands' magnitudes over the result's, by share

    def of_operand(self, number: int) -> Flow:
        return self.taken.setdefault(number, Flow())


Tallies: TypeAlias = dict[str, Tally]
Shares: TypeAlias = dict[Instance, Floats]


def unit_of(types: Collection[DType]) -> float:
    """The relative error of the narrowest type's rounding."""
    digits = [digits_of(t) for t in types]
    return 2.0 ** -min(digits, default=dtypes.float32.mantissa_bits + 1)


def digits_of(dtype: DType) -> int:
    """The significant bits of a float type, or of an integer that a scale belongs to."""
    return dtype.mantissa_bits + 1 if dtype.exponent_bits else dtype.bits


def least_normal(dtype: DType) -> float:
    """A float type's least normal value; 0 of integers."""
    return dtype.smallest_normal if dtype.exponent_bits else 0.0


def numbers(x: Bits) -> Floats:
    """An array's values in float64."""
    values = np.asarray(ops.numbers(x))
    return np.asarray(values.real if values.dtype.kind == "c" else values, np.float64)


def squared_difference(a: Floats, b: Floats) -> Floats:
    """The squares of differences; of what is not finite on one side HUGE's."""
    with np.errstate(all="ignore"):
        d = a - b
        squares = np.square(d)
        if np.isfinite(squares.sum()):
            return np.asarray(squares, np.float64)
    d = np.abs(d)
    d = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, d)
    return np.square(np.minimum(np.where(np.isfinite(d), d, HUGE), HUGE))


def relative_bits(squares: Floats, value: Floats, unit: float) -> Floats:
    """The binary logarithms of relative errors, whose squares over the values' are these: between those
    of a type's rounding and of 1, from which on nothing is right.
    """
    with np.errstate(all="ignore"):
        relative = np.sqrt(squares) / np.abs(value)
    relative = np.where(squares > 0, np.where(np.isnan(relative), 1.0, relative), unit)
    return np.asarray(np.log2(np.clip(relative, unit, 1.0)), np.float64)


class Tracer:
    """The flow of one pair of runs, into tallies by instruction; `types` are those that the plan rounds
    to.
    """

    def __init__(
        self,
        flat: Module,
        decisions: Mapping[str, Decision],
        exact: Values,
        lowered: Values,
        profile: Profile,
        types: Collection[DType],
        tallies: Tallies,
    ) -> None:
        self.unit = unit_of(types)
        self.least = max((least_normal(t) for t in types), default=0.0)
        self.flat, self.decisions, self.profile = flat, decisions, profile
        self.exact, self.lowered = exact, lowered
        self.sources = Sources(flat, exact)
        self.tallies = tallies
        self.shares: Shares = {}

    def run(self, outputs: Sequence[tuple[Instance, Floats]]) -> None:
        """Trace back these shares of the outputs' elements."""
        for instance, shares in outputs:
            self._hand(instance, shares)
        for name, trips in reverse_order(self.sources, self.exact):
            found = [k for k in self.shares if k.name == name and k.trips == trips]
            for instance in found:
                self._trace(instance, self.shares.pop(instance))

    def _hand(self, instance: Instance | None, shares: Floats) -> None:
        if instance is None:
            return
        before = self.shares.get(instance)
        self.shares[instance] = shares if before is None else before + shares

    def _operand(self, i: Instruction, number: int, trips: str) -> Known | None:
        instance = self.sources.of(i.operands[number], trips)
        exact = self.exact.at(instance)
        if instance is None or exact is None:
            return None
        lowered = self.lowered.at(instance)
        wide = widened(lowered) if lowered is not None else exact
        if wide.data.shape != exact.data.shape or wide.dtype is not exact.dtype:
            wide = exact
        d = self.decisions.get(i.name)
        if d is None:
            return Known(exact, wide, wide, instance)
        by = d.quantized_operands[number] if d.quantized_operands else None
        if by is not None:
            return Known(exact, wide, Bits(by.rounded(wide.data), wide.dtype), instance)
        shape = self.sources.instructions[instance.name].shape.arrays()[instance.number]
        read = rounded(wide, d.reads(shape.dtype, number), self.profile)
        return Known(exact, wide, read, instance)

    def _trace(self, instance: Instance, shares: Floats) -> None:
        i = self.sources.instructions[instance.name]
        exact = self.exact.at(instance)
        found = self.lowered.at(instance)
        if i.opcode in STRUCTURE or exact is None:
            return
        lowered = widened(found) if found is not None else exact
        if lowered.data.shape != exact.data.shape:
            lowered = exact
        tally = self.tallies.setdefault(i.name, Tally())
        a, b = numbers(exact), numbers(lowered)
        tally.given.add(shares, squared_difference(b, a), a, self.unit)
        known = [self._operand(i, n, instance.trips) for n in range(len(i.operands))]
        operands = [k for k in known if k is not None]
        self._note(tally, instance, shares, a, b, operands)
        if len(operands) != len(known) or not operands:
            tally.own += float(shares.sum())
            return
        try:
            split = self._split(i, instance, operands, a, b, shares)
        except NeuronSimError:  # an operation that this target's rows evaluate in programs alone
            split = None
        if split is None:
            tally.own += float(shares.sum())
            return
        own, parts = split
        tally.own += own
        for n, (k, part) in enumerate(zip(operands, parts, strict=True)):
            if part is not None:
                self._take(tally, n, k, part)

    def _note(
        self,
        tally: Tally,
        instance: Instance,
        shares: Floats,
        exact: Floats,
        lowered: Floats,
        operands: Sequence[Known],
    ) -> None:
        """What is known of the elements that pass: what became of them, and the worst."""
        if not shares.size or not shares.any():
            return
        i = self.sources.instructions[instance.name]
        whole, dims = shares, shares.shape
        size = self._terms(i, instance.number, exact, operands)
        counted = shares > _LEAST_SHARE * shares.max()
        shares, exact_, lowered_ = shares[counted], exact[counted], lowered[counted]
        finite, magnitude = np.isfinite(exact_), np.abs(exact_)
        tally.overflowed += float(shares[finite & np.isinf(lowered_)].sum())
        tally.nan += float(shares[finite & np.isnan(lowered_)].sum())
        small = (exact_ != 0) & (lowered_ != exact_) & (magnitude < self.least)
        tally.vanished += float(shares[small].sum())
        integral = finite & (exact_ == np.rint(exact_)) & (exact_ != lowered_)
        integral &= (magnitude > 2) & (magnitude < _COUNTED)  # above it all floats are integers
        tally.whole += float(shares[integral].sum())
        passing = magnitude[(shares > 1e-3 * shares.max()) & finite]
        tally.largest = max(tally.largest, float(passing.max(initial=0.0)))
        nonzero = passing[passing > 0]
        tally.smallest = min(tally.smallest, float(nonzero.min(initial=np.inf)))
        together = ops.is_elementwise(row(i))
        if size is not None:
            with np.errstate(all="ignore"):
                factor = np.nan_to_num(size[counted] / magnitude, nan=1.0, posinf=HUGE)
            tally.cancelled += float((shares * np.log2(np.clip(factor, 1.0, HUGE))).sum())
        shares = whole
        place = int(np.argmax(shares))
        if float(shares.flat[place]) <= tally.weight:
            return
        tally.weight = float(shares.flat[place])
        index = tuple(int(n) for n in np.unravel_index(place, shares.shape))

        def at(x: Bits) -> float:
            return float(np.broadcast_to(numbers(x), dims)[index])

        pairs = tuple((at(k.exact), at(k.read)) for k in operands) if together else ()
        tally.worst = Element(index, instance.trips, float(exact[index]), float(lowered[index]), pairs)

    def _terms(
        self, i: Instruction, number: int, exact: Floats, operands: Sequence[Known]
    ) -> Floats | None:
        """The magnitudes of what a sum adds up, of a product of its operands' ones; None for what is no
        sum.
        """
        if i.opcode in ("dot", "convolution") and len(operands) == 2:
            given = [Bits(np.abs(k.exact.data), k.exact.dtype) for k in operands]
            return self._evaluate(i, given, number)
        if i.opcode in ("add", "subtract"):
            terms = [np.broadcast_to(numbers(k.exact), exact.shape) for k in operands]
            return np.asarray(np.max([np.abs(t) for t in terms], axis=0), np.float64)
        added = i.opcode == "reduce" and simple_reducer(self.flat.by_name[i.called[0]]) == "add"
        if added and operands:
            return np.asarray(np.abs(numbers(operands[0].exact)).sum(tuple(i.attributes["dimensions"])))
        return None

    def _take(self, tally: Tally, number: int, k: Known, part: Floats) -> None:
        """Hand an operand's shares on: what is its rounding as it is read stays here."""
        exact, lowered, read = numbers(k.exact), numbers(k.lowered), numbers(k.read)
        by_reading = squared_difference(read, lowered)
        before = squared_difference(lowered, exact)
        tally.of_operand(number).add(part, before, exact, self.unit)
        total = by_reading + before
        kept = np.divide(by_reading, total, out=np.zeros_like(total), where=total > 0) * part
        tally.reading[number] = tally.reading.get(number, 0.0) + float(kept.sum())
        self._hand(k.instance, part - kept)

    # ---- what each operand alone changes ----------------------------------------------------------

    def _evaluate(self, i: Instruction, operands: Sequence[Bits], number: int) -> Floats:
        with np.errstate(all="ignore"):
            return numbers(evaluated(self.flat, i, operands, self.profile)[number])

    def _split(
        self,
        i: Instruction,
        instance: Instance,
        known: Sequence[Known],
        exact: Floats,
        lowered: Floats,
        shares: Floats,
    ) -> tuple[float, list[Floats | None]] | None:
        """The share that an instruction's rounding has, and the operands' shares by element."""
        changed = [not _same(k.read, k.exact) for k in known]
        wide = self._evaluate(i, [k.read for k in known], instance.number)
        own = squared_difference(lowered, wide)
        alone: list[Floats | None] = []
        for n in range(len(known)):
            if not changed[n]:
                alone.append(None)
            elif sum(changed) == 1:
                alone.append(squared_difference(wide, exact))
            else:
                mixed = [k.read if m == n else k.exact for m, k in enumerate(known)]
                alone.append(squared_difference(self._evaluate(i, mixed, instance.number), exact))
        total = own + sum((x for x in alone if x is not None), np.zeros_like(own))
        unexplained = (total == 0) & (shares > 0)
        if unexplained.any():  # only together they change it
            equal = sum(changed)
            alone = [x if x is None else np.where(unexplained, 1.0 / equal, x) for x in alone]
            own = np.where(unexplained, 0.0 if equal else 1.0, own)
            total = np.where(unexplained, 1.0, total)
        scaled = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
        parts = [
            None if x is None else self._inside(i, n, known, x * scaled, exact, lowered)
            for n, x in enumerate(alone)
        ]
        return float((own * scaled).sum()), parts

    def _inside(
        self,
        i: Instruction,
        number: int,
        known: Sequence[Known],
        part: Floats,
        exact: Floats,
        lowered: Floats,
    ) -> Floats:
        """An operand's part, by elements of the result, as one by elements of the operand."""
        k, op = known[number], row(i)
        dims = k.exact.data.shape
        if ops.is_elementwise(op):
            return part if part.shape == dims else np.asarray(part.sum(), np.float64).reshape(dims)
        error = squared_difference(numbers(k.read), numbers(k.exact))
        if op.opcode == "reduce" and number == 0 and len(known) == 2:
            reducer = simple_reducer(self.flat.by_name[i.called[0]])
            return _of_reduce(i, part, numbers(k.exact), error, exact, lowered, reducer)
        if op.opcode == "dot":
            return _of_dot(i, number, known, part, error)
        if op.cast == "movement":
            moved = self._moved(i, number, known, part)
            if moved is not None:
                return moved
        if op.opcode == "convolution" and number == 0:
            numbers_ = i.attributes["dimension_numbers"]
            batch, given = numbers_.input_batch, numbers_.output_batch
            if dims[batch] == part.shape[given]:
                sums = part.sum(tuple(n for n in range(part.ndim) if n != given))
                shape = tuple(dims[batch] if n == batch else 1 for n in range(len(dims)))
                axes = tuple(n for n in range(len(dims)) if n != batch)
                return _proportional(sums.reshape(shape), error, axes)
        return _proportional(part.sum(), error, None)

    def _moved(
        self, i: Instruction, number: int, known: Sequence[Known], part: Floats
    ) -> Floats | None:
        """The same for what moves elements: it is run on the places of the operand's elements."""
        size = known[number].exact.data.size
        if known[number].exact.dtype.kind != "float" or size >= 1 << 31:
            return None
        places = []
        for n, k in enumerate(known):
            if k.exact.dtype is not known[number].exact.dtype:
                places.append(k.exact)
                continue
            values = np.full(k.exact.data.shape, -1, np.int32)
            if n == number:
                values = np.arange(size, dtype=np.int32).reshape(values.shape)
            places.append(Bits(values, dtypes.int32))
        try:
            result = ArrayType(dtypes.int32, part.shape)
            plain = i.replace(shape=type(i.array)(dtypes.int32, part.shape))
            found = evaluated(self.flat, plain, places, self.profile)[0].data
        except NeuronSimError:
            return None
        assert result.dims == found.shape
        flat, mask = found.ravel(), found.ravel() >= 0
        sums = np.bincount(flat[mask], part.ravel()[mask], minlength=size)
        return np.asarray(sums.reshape(known[number].exact.data.shape), np.float64)


def _same(a: Bits, b: Bits) -> bool:
    return a is b or bool(np.array_equal(a.data, b.data))


def _proportional(part: Any, error: Floats, axes: tuple[int, ...] | None) -> Floats:
    """A part in proportion to the squares of an operand's errors."""
    total = error.sum(axes, keepdims=axes is not None)
    shared = np.divide(error, total, out=np.zeros_like(error), where=total > 0)
    return np.asarray(shared * part, np.float64)


def _of_reduce(
    i: Instruction,
    part: Floats,
    values: Floats,
    error: Floats,
    exact: Floats,
    lowered: Floats,
    reducer: str | None,
) -> Floats:
    axes = tuple(i.attributes["dimensions"])
    spread = np.expand_dims(part, axes)
    weights = error
    if reducer in ("maximum", "minimum"):
        ends = (values == np.expand_dims(exact, axes)) | (values == np.expand_dims(lowered, axes))
        chosen = np.where(ends, error, 0.0)
        weights = np.where(chosen.sum(axes, keepdims=True) > 0, chosen, error)
    return _proportional(spread, weights, axes)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _of_dot(i: Instruction, number: int, known: Sequence[Known], part: Floats, error: Floats) -> Floats:
    """A product's part: in proportion to the squares of the errors times those of the other operand."""
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    ranks = [k.exact.data.ndim for k in known]
    letters = iter(_LETTERS)
    names = [[""] * r for r in ranks]
    for left, right in zip(
        (*d.lhs_batch, *d.lhs_contracting), (*d.rhs_batch, *d.rhs_contracting), strict=True
    ):
        names[0][left] = names[1][right] = next(letters)
    for side in names:
        side[:] = [n or next(letters) for n in side]
    batch = [names[0][n] for n in d.lhs_batch]
    inner = {*batch, *(names[0][n] for n in d.lhs_contracting)}
    result = "".join(batch + [n for side in names for n in side if n not in inner])
    own, other = "".join(names[number]), "".join(names[1 - number])
    values = np.minimum(np.square(np.nan_to_num(numbers(known[1 - number].exact))), HUGE**2)
    total = np.einsum(f"{own},{other}->{result}", error, values, optimize=True)
    scaled = np.divide(part, total, out=np.zeros_like(part), where=total > _TINY)
    found = np.einsum(f"{result},{other}->{own}", scaled, values, optimize=True) * error
    lost = part.sum() - found.sum()
    if lost > 1e-9 * part.sum():  # where the other operand is zero: 0 * Inf
        found = found + _proportional(lost, error, None)
    return np.asarray(found, np.float64)


def output_shares(exact: Bits, lowered: Bits) -> Floats:
    """How much each element of an output counts: the square of its error over the mean square of its
    sample's values. Where an element is not finite although float32's is, those that are so count more.
    """
    a, b = numbers(exact), numbers(widened(lowered))
    found = squared_difference(b, a)
    if exact.dtype.kind == "float":
        axes = tuple(range(1, a.ndim))
        size = np.square(np.where(np.isfinite(a), a, 0.0))
        typical = float(size.mean()) if size.size else 0.0
        rows = size.mean(axes, keepdims=True) if a.ndim > 1 else np.full(a.shape, typical)
        found = found / np.maximum(np.maximum(rows, 1e-4 * typical), _TINY)
        bad = np.isfinite(a) & ~np.isfinite(b)
        found = np.where(bad, _BAD, np.minimum(found, 1.0)) * ((found > 0) | bad)
    else:
        found = (found > 0).astype(np.float64)
    return np.asarray(found, np.float64)


def scope_shares(tallies: Tallies, scopes: Mapping[str, str]) -> dict[str, float]:
    """The instructions' own shares summed by scope."""
    found: dict[str, float] = defaultdict(float)
    for name, t in tallies.items():
        found[scopes.get(name, "")] += t.own + sum(t.reading.values())
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
