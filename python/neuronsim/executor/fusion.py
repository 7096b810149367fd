"""What runs as part of a matrix product: the chain that makes an operand, while that is packed; the
chain that reads the product, before it is stored; and constant right operands, packed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neuronsim import _core, ops
from neuronsim.dtypes import DType
from neuronsim.executor.compilation import Compilation
from neuronsim.executor.steps import Call, Chain, Product, Step
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile

BYTES_OF_WORD = 4  # that the core multiplies together
MAX_PROLOGUE = 8  # links: packing runs them anew for every thread


@dataclass(frozen=True)
class _ProductStep(Step):
    """A step that runs a product."""

    action: Product


class Fuser:
    """Lets the dots and convolutions among the steps take in what they can; the values stay the same
    (D2). Each step's arrays are read by others or are among the `results`. `in_loop`: they are a loop's
    body.
    """

    def __init__(
        self, shared: Compilation, steps: Sequence[Step], results: Sequence[str], *, in_loop: bool
    ) -> None:
        self.types, self.constants = shared.types, shared.constants
        self.profile, self.known = shared.profile, shared.known
        self.steps, self.in_loop = steps, in_loop
        self.uses = Counter([*(o for s in steps for o in (*s.operands, *s.inner_reads)), *results])
        self.readers = {o: s for s in reversed(steps) for o in s.operands}
        self.makers = {s.output: s for s in steps if len(s.results) == 1}
        self.done: dict[str, Step] = {}
        self.absorbed: set[str] = set()

    def run(self) -> list[Step]:
        """The steps with products that took in others, without those."""
        nearest = self.profile.rounding == "nearest_even"  # else each step draws words of its own (S2)
        for s in self.steps:
            call = s.action
            if not isinstance(call, Call) or not _is_fusible(call, self.profile):
                continue
            operands = s.operands
            if nearest:
                call, operands = _with_vector_first(call, operands, self.types)
            own = Product(s.name, call, self.types[operands[1]])
            product = _ProductStep(s.name, s.computation, own, operands, s.results, s.members)
            product = self._with_padding(product)
            if nearest:
                for side in (0, 1):
                    product = self._with_prologue(product, side)
                product = self._with_epilogue(product)
            self.done[product.output] = self._with_packed(product)
        kept = [s for s in self.steps if len(s.results) != 1 or s.output not in self.absorbed]
        return [self.done.get(s.output, s) if len(s.results) == 1 else s for s in kept]

    def _with_packed(self, s: _ProductStep) -> _ProductStep:
        """The product with its right operand packed, if that is a constant. One that is not finite
        keeps its elements, so that what a product makes of them can be told from what it makes itself.
        """
        fusion, rhs = s.action.fusion, self.constants.get(s.operands[1])
        if rhs is None or fusion.rhs is not None:
            return s
        if not self.known.of("finite", rhs, lambda: _is_finite(rhs)):
            return s
        if self.in_loop and self._is_few(s, rhs):
            return s
        call, lhs = s.action.call, ops.standin(self.types[s.operands[0]])
        evaluation = call.evaluation([lhs, rhs], ops.Setting(self.profile))
        types = ops.left_type(evaluation, fusion), s.action.result.dtype
        attributes = repr(sorted(call.attributes.items()))
        what = (call.op.name, *types, attributes, self.profile, _core.isa())
        packed = self.known.of(what, rhs, lambda: ops.pack_columns(evaluation, fusion))
        return replace(s, action=replace(s.action, fusion=replace(fusion, packed=packed)))

    def _is_few(self, s: _ProductStep, rhs: Bits) -> bool:
        """Whether the product is one that a loop's trip computes without panels."""
        lhs = self.types[s.operands[0]]
        operands = [Bits(ops.empty(lhs), lhs.dtype), rhs]
        evaluation = s.action.call.evaluation(operands, ops.Setting(self.profile))
        return ops.is_few(evaluation, s.action.fusion)

    def _with_padding(self, s: _ProductStep) -> _ProductStep:
        """The convolution with the pad that makes its image, if nothing else reads that. The core pads
        with zeros (M5), and images of bytes with any number; those of a few channels it reads in place.
        """
        call, maker = s.action.call, self.makers.get(s.operands[0])
        if call.op.name != "convolution" or maker is None or self.uses[maker.output] > 1:
            return s
        if not isinstance(maker.action, Call) or maker.action.op.name != "pad":
            return s
        source, number = maker.operands
        if number not in self.constants or 0 in self.types[source].dims:
            return s
        value = self.constants[number].data
        has_zeros = not any(value.tobytes())
        dtype = self.types[source].dtype
        if not has_zeros and (dtype.exponent_bits or dtype.bits != 8):
            return s
        n: ops.ConvolutionDimensions = call.attributes["dimension_numbers"]
        features = s.action.rhs.dims[n.kernel_input_feature]
        own = features == 1 and call.attributes["feature_group_count"] > 1
        if not dtype.exponent_bits and features % BYTES_OF_WORD and not own:
            return s
        padding: Sequence[tuple[int, int, int]] = maker.action.attributes["padding"]
        if any(p != (0, 0, 0) for d, p in enumerate(padding) if d not in n.input_spatial):
            return s
        window: list[ops.WindowDimension] = []
        for w, d in zip(call.attributes["window"], n.input_spatial, strict=True):
            low, high, interior = padding[d]
            if min(low, high) < 0 or interior or w.base_dilation != 1:
                return s
            if not has_zeros and w.padding != (0, 0):
                return s
            window.append(replace(w, padding=(w.padding[0] + low, w.padding[1] + high)))
        self.absorbed.add(maker.output)
        attributes = {**call.attributes, "window": tuple(window), "padding_value": int(value)}
        action = replace(s.action, call=replace(call, attributes=attributes))
        operands = (source, *s.operands[1:])
        return replace(s, action=action, operands=operands, members=(*maker.members, *s.members))

    def _with_prologue(self, s: _ProductStep, side: int) -> _ProductStep:
        """The product with the chain that makes an operand of one array, if nothing else reads it."""
        maker = self.makers.get(s.operands[side])
        if maker is None or not isinstance(maker.action, Chain) or self.uses[maker.output] > 1:
            return s
        if "cast" in s.action.call.attributes:
            return s  # a dot's algorithm rounds what the chain gives
        if maker.output in self.done or maker.action.is_counted:
            return s
        if len(maker.operands) != 1 or len(maker.action.links) > MAX_PROLOGUE:
            return s
        (source,) = maker.operands
        taken_in = self.types[source]
        if taken_in.dims != maker.result.dims or not _is_taken(taken_in.dtype, maker.result.dtype):
            return s
        fused = (maker.action.program(self.profile), maker.result.dtype)
        before = s.action.fusion
        fusion = replace(before, rhs=fused) if side else replace(before, lhs=fused)
        operands = (*s.operands[:side], source, *s.operands[side + 1 :])
        self.absorbed.add(maker.output)
        names = list(s.action.prologues)
        names[side] = maker.action.instructions
        action = replace(s.action, fusion=fusion, prologues=(names[0], names[1]))
        return replace(s, action=action, operands=operands, members=(*maker.members, *s.members))

    def _with_epilogue(self, s: _ProductStep) -> _ProductStep:
        """The product with the chain that reads it, in whose place it then runs."""
        exact = self.profile.accumulate == "exact" and s.action.result.dtype.exponent_bits > 0
        if self.uses[s.output] > 1 or exact:
            return s
        reader = self.readers.get(s.output)
        if (
            reader is None
            or not isinstance(reader.action, Chain)
            or reader.action.is_counted
            or reader.output in self.done
            or reader.result.dims != s.action.result.dims
        ):
            return s
        # The product comes first among the chain's inputs.
        order = [reader.operands.index(s.output)]
        order += [n for n in range(len(reader.operands)) if n != order[0]]
        place = {old: new for new, old in enumerate(order)} | {
            n: n for n in range(len(order), len(order) + len(reader.action.links))
        }
        links = reader.action.renumbered(place)
        codes = tuple(reader.action.inputs[n] for n in order)
        outputs = (len(codes) + len(links) - 1,)
        program = ops.make_chain(codes, links, outputs, self.profile)
        fusion = replace(s.action.fusion, epilogue=(program, reader.result.dtype))
        self.absorbed.add(s.output)
        return replace(
            s,
            name=reader.name,
            action=replace(s.action, fusion=fusion, epilogue=reader.action.instructions),
            operands=(*s.operands, *(reader.operands[n] for n in order[1:])),
            results=reader.results,
            members=(*s.members, *reader.members),
        )


def _is_fusible(call: Call, profile: Profile) -> bool:
    return (
        call.op.cast == "matmult"
        and call.profile is profile
        and isinstance(call.result, ArrayType)
        and ops.is_fusible(call.result.dtype, profile)
    )


def _with_vector_first(
    call: Call, operands: tuple[str, ...], types: Mapping[str, ArrayType]
) -> tuple[Call, tuple[str, ...]]:
    """A matrix by a vector as the vector by the matrix, which then may be packed: each output is the
    same sum, multiplication commutes, and a sum's NaN is the canonical one (E6).
    """
    d: ops.DotDimensions | None = call.attributes.get("dot_dimensions")
    if d is None:
        return call, operands
    lhs, rhs = (len(types[o].dims) for o in operands)
    has_rows = lhs > len(d.lhs_batch + d.lhs_contracting)
    has_columns = rhs > len(d.rhs_batch + d.rhs_contracting)
    if has_columns or not has_rows:
        return call, operands
    turned = ops.DotDimensions(d.rhs_contracting, d.lhs_contracting, d.rhs_batch, d.lhs_batch)
    attributes = {**call.attributes, "dot_dimensions": turned}
    return replace(call, attributes=attributes), operands[::-1]


def _is_taken(source: DType, made: DType) -> bool:
    """Whether packing may run a chain from one type to the other: a program's floats are those of the
    device, and the kernels of integers take 32 bits.
    """
    if made.exponent_bits:
        return source.exponent_bits > 0
    return source.device and made.bits <= 32


def _is_finite(value: Bits) -> bool:
    t, data = value.dtype, value.data
    if not t.exponent_bits:
        return True
    if t.storage.kind == "f" or not t.has_inf:
        return bool(np.isfinite(ops.numbers(value)).all())
    top = ((1 << t.exponent_bits) - 1) << t.mantissa_bits  # the exponent of Inf and NaN
    return not np.any((data & data.dtype.type(top)) == top)
