"""What is wrong with how a product's operand is quantized (rules Q), and what mends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neuronsim import dtypes
from neuronsim.casting.decisions.biases import find_biases, why_not
from neuronsim.casting.decisions.post_training import PRODUCTS, channel_axis, known_names
from neuronsim.casting.decisions.quantization import Quantization, quantization_of
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.ranges import Seen, counts_values
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.tuning.blame.rewrites import Editor

Floats = npt.NDArray[np.float64]
Decisions = Mapping[str, Decision]

_CLIPPED = 0.3  # of an operand's error that is made by clipping, from which on that is its fault
_TINY = 1e-300
_OUTLIER = 8.0  # times what the typical channel reaches
_REACHED = 0.9  # of a channel's values lie below what it reaches: rare values say nothing of it
_SHARES = (99.99, 99.9, 99.0)  # percentiles that are tried
_SMOOTHED = (0.5, 1.0)  # how much of a channel's size goes into the weights


@dataclass(frozen=True)
class Operand:
    """A quantized operand of a product: its number, the name of what gives it, its values in float32,
    and whether it is there before the run.
    """

    product: Instruction
    number: int
    given: str
    values: npt.NDArray[np.float32]
    by: Quantization
    is_weight: bool


@dataclass(frozen=True)
class Fault:
    """What is wrong with a quantization: its class, the channel where it is, and the figures of it."""

    kind: str
    channel: int
    evidence: Mapping[str, float]


def find_fault(o: Operand) -> Fault:
    """The fault of an operand whose quantization moves the outputs."""
    x = np.where(np.isfinite(o.values), o.values, 0).astype(np.float64)
    low, high = (
        o.by.dequantized(np.full(x.shape, limit, o.by.type.numpy)).astype(np.float64)
        for limit in o.by.limits
    )
    step = float(np.max(o.by.scale))
    error = np.square(o.by.rounded(o.values) - x)
    outside = (x < low - step / 2) | (x > high + step / 2)
    clipped = float(error[outside].sum()) / (float(error.sum()) or 1.0)
    axis, sizes = _widest_channels(o, np.abs(x))
    typical = float(np.median(sizes)) or float(np.min(sizes, initial=np.inf, where=sizes > 0))
    typical = typical if np.isfinite(typical) else 0.0
    figures = {
        "smallest": float(x.min(initial=0.0)),
        "largest": float(x.max(initial=0.0)),
        "reaches": float(np.max(sizes, initial=0.0)),
        "extreme": float(np.abs(x).max(initial=0.0)),
        "low": float(low.min(initial=0.0)),
        "high": float(high.max(initial=0.0)),
        "clipped": float(outside.mean()) if x.size else 0.0,
        "clipped_share": clipped,
        "typical": typical,
        "step": step,
        "levels": typical / step,
        "axis": float(axis),
    }
    if clipped >= _CLIPPED:
        by_channel = _over_others(np.add, np.where(outside, error, 0.0), axis)
        return Fault("clipping", int(np.argmax(by_channel)), figures)
    channel = int(np.argmax(sizes))
    if axis != o.by.axis and figures["reaches"] >= _OUTLIER * typical > 0:
        return Fault("outlier channel", channel, figures)
    one_sided = o.by.is_symmetric and not (o.by.is_float or o.is_weight)
    if one_sided and (x.min(initial=0) >= 0 or x.max(initial=0) <= 0):
        return Fault("zero point lost", channel, figures)
    return Fault("scale too coarse", channel, figures)


def _over_others(reducer: np.ufunc, x: Floats, axis: int) -> Floats:
    others = tuple(n for n in range(x.ndim) if n != axis)
    return np.asarray(reducer.reduce(x, axis=others, initial=0)).reshape(-1)


def _widest_channels(o: Operand, sizes: Floats) -> tuple[int, Floats]:
    """The axis whose channels differ most in what they reach, and that: of activations one of those
    that the product sums along, of weights any.
    """
    found: list[tuple[float, int, Floats]] = []
    for axis in range(sizes.ndim) if o.is_weight else contracted(o.product)[o.number]:
        if sizes.shape[axis] > 1 and axis != o.by.axis:
            own = _reached(sizes, axis)
            found.append((float(own.max()) / (float(np.median(own)) or _TINY), axis, own))
    if not found:
        return 0, _reached(sizes, 0)
    _, axis, own = max(found, key=lambda f: f[0])
    return axis, own


def _reached(sizes: Floats, axis: int) -> Floats:
    rows = np.moveaxis(sizes, axis, 0).reshape(sizes.shape[axis], -1)
    return np.quantile(rows, _REACHED, axis=1) if rows.size else np.zeros(len(rows))


def contracted(i: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of each operand of a product along which it sums, but for a convolution's windows."""
    if i.opcode == "convolution":
        n = i.attributes["dimension_numbers"]
        return (n.input_feature,), (n.kernel_input_feature,)
    d = i.attributes["dot_dimensions"]
    return d.lhs_contracting, d.rhs_contracting


# ---- what mends it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mending:
    """A rewrite of a quantization: its name, the decisions after it, and the module, where that is
    another.
    """

    name: str
    decisions: Decisions
    module: Module | None = None


Batches = Sequence[npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Mender:
    """An operand of a module under these decisions, whose values are those of the batches in float32;
    `value_of` gives those of weights.
    """

    flat: Module
    decisions: Decisions
    o: Operand
    batches: Batches
    value_of: Callable[[str], npt.NDArray[np.float32]]

    def mendings(self) -> Iterator[Mending]:
        """All that may mend the quantization of the operand."""
        o = self.o
        if o.is_weight:
            axis = channel_axis(o.product, self.flat.entry_computation)
            if o.by.axis is None and axis is not None:
                yield self._requantized("per-channel scales", _by_channels(o.values, axis, o.by))
            return
        for name, seen in _ranges(self.batches, o.by.type):
            own = quantization_of(*seen.range(), o.by.type, symmetric=o.by.is_symmetric)
            if own != o.by:
                yield self._requantized(name, own)
            own = quantization_of(*seen.range(), o.by.type, symmetric=False)
            if o.by.is_symmetric and seen.method == "minmax" and not own.is_symmetric:
                yield self._requantized("a zero point", own)
        if o.number == 0:
            for share in _SMOOTHED:
                found = self._equalised(share)
                if found is not None:
                    yield found

    def _readers(self) -> list[Instruction]:
        """The products that read the operand's values quantized as it is."""
        name = self.o.product.operands[self.o.number]
        found = []
        for i in self.flat.entry_computation.instructions:
            d = self.decisions.get(i.name)
            if i.opcode in PRODUCTS and d is not None and d.quantized_operands:
                pairs = zip(i.operands, d.quantized_operands, strict=True)
                found += [i] if any(n == name and q == self.o.by for n, q in pairs) else []
        return found

    def _requantized(self, rewrite: str, own: Quantization) -> Mending:
        """With another quantization of the operand, for all that read it so."""
        found = dict(self.decisions)
        name = self.o.product.operands[self.o.number]
        for i in self._readers():
            pairs = zip(i.operands, found[i.name].quantized_operands, strict=True)
            changed = tuple(own if n == name and q == self.o.by else q for n, q in pairs)
            found[i.name] = dataclasses.replace(found[i.name], quantized_operands=changed)
        return Mending(rewrite, found)

    def _equalised(self, share: float) -> Mending | None:
        """Equalisation of neighbouring layers: the channels that a product sums along are divided by
        powers of two, which what gives them can do in its weights, and the product's weights multiplied
        by them: the same values in float32.
        """
        o = self.o
        known = known_names(self.flat.entry_computation)
        readers = [i for i in self._readers() if i.operands[1] in known and _is_plain(i)]
        if o.product.name not in [i.name for i in readers]:
            return None
        axis = contracted(o.product)[0][0]
        weights = {i.name: self.value_of(i.operands[1]) for i in readers}
        size = np.max(
            [_over_others(np.maximum, np.abs(x).astype(np.float64), axis) for x in self.batches], axis=0
        )
        own = np.max(
            [_over_others(np.maximum, np.abs(weights[i.name]), contracted(i)[1][0]) for i in readers],
            axis=0,
        )
        used = (size > 0) & (own > 0)
        if not used.any():
            return None
        wanted = np.where(used, size**share / np.where(used, own, 1.0) ** (1 - share), 1.0)
        factors = np.exp2(np.rint(np.log2(wanted / np.median(wanted[used])))) * used + ~used
        factors = factors.clip(2.0**-60, 2.0**60).astype(np.float32)
        if (factors == 1).all():
            return None
        return self._with_factors(readers, weights, factors)

    def _with_factors(
        self,
        readers: Sequence[Instruction],
        weights: Mapping[str, npt.NDArray[np.float32]],
        factors: npt.NDArray[np.float32],
    ) -> Mending:
        o, c = self.o, self.flat.entry_computation
        editor, found = Editor(self.flat, c), dict(self.decisions)
        name, first = o.product.operands[0], readers[0].name
        axis = contracted(o.product)[0][0]

        def scaled(source: str, by: npt.NDArray[np.float32], axis: int, before: str) -> str:
            shape = Shape(dtypes.float32, c.by_name[source].array.dims)
            vector = editor.constant(before, by, before)
            spread = editor.put(before, "broadcast", shape, (vector,), before, dimensions=(axis,))
            return editor.put(before, "multiply", shape, (source, spread), before)

        def along(by: npt.NDArray[np.float32], axis: int, rank: int) -> npt.NDArray[np.float32]:
            return by.reshape([-1 if n == axis else 1 for n in range(rank)])

        left = scaled(name, (1 / factors).astype(np.float32), axis, first)
        parts = [x / along(factors, axis, x.ndim) for x in self.batches]
        low, high = min(float(x.min()) for x in parts), max(float(x.max()) for x in parts)
        lhs = quantization_of(low, high, o.by.type, symmetric=o.by.is_symmetric)
        for i in readers:
            at = contracted(i)[1][0]
            values = weights[i.name] * along(factors, at, weights[i.name].ndim)
            before = found[i.name].quantized_operands[1]
            assert before is not None
            if before.axis is not None:
                rhs = _by_channels(values, before.axis, before)
            else:
                rhs = quantization_of(values.min(), values.max(), before.type, symmetric=True)
            editor.change(i.name, operands=(left, scaled(i.operands[1], factors, at, i.name)))
            found[i.name] = dataclasses.replace(found[i.name], quantized_operands=(lhs, rhs))
        return Mending("equalisation of neighbouring layers", found, editor.module_after())


def _by_channels(weights: npt.NDArray[np.float32], axis: int, by: Quantization) -> Quantization:
    others = tuple(n for n in range(weights.ndim) if n != axis)
    finite = np.where(np.isfinite(weights), weights, 0)
    low, high = finite.min(others, initial=0), finite.max(others, initial=0)
    return quantization_of(low, high, by.type, symmetric=True, axis=axis)


def _ranges(batches: Batches, own: dtypes.DType) -> Iterator[tuple[str, Seen]]:
    named = [
        ("the range of all values", Seen("minmax", type=own)),
        ("clipping by the least squared error", Seen("mse", type=own)),
    ]
    named += [(f"clipping by percentile {s:g}", Seen("percentile", s, own)) for s in _SHARES]
    for name, seen in named:
        for x in batches:
            seen.add(x)
        for x in batches if counts_values(seen.method) else ():
            seen.count(x)
        yield name, seen


def with_fitting_biases(c: Computation, decisions: Decisions) -> Decisions:
    """The decisions without the biases that sums may not take by these scales (Q7)."""
    found = dict(decisions)
    for name, bias in find_biases(c, {n for n, d in decisions.items() if d.bias}).items():
        lhs, rhs = decisions[name].quantized_operands
        if lhs is None or rhs is None or why_not(bias, lhs, rhs):
            found[name] = dataclasses.replace(decisions[name], bias="")
    return found


def _is_plain(i: Instruction) -> bool:
    if i.opcode == "convolution":
        return bool(i.attributes["feature_group_count"] == i.attributes["batch_group_count"] == 1)
    return all(len(axes) == 1 for axes in contracted(i))
