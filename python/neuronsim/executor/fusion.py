"""What runs as part of a matrix product: the chain that makes an operand, while that is packed; the
chain that reads the product, before it is stored; and constant right operands, packed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from neuronsim import _core, ops
from neuronsim.dtypes import DType
from neuronsim.executor.known_constants import KnownConstants
from neuronsim.executor.steps import Call, Chain, Product, Step
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile

BYTES_OF_WORD = 4  # that the core multiplies together
MAX_PROLOGUE = 8  # links: packing runs them anew for every thread


def fuse_products(
    steps: Sequence[Step],
    results: Sequence[str],
    types: Mapping[str, ArrayType],
    constants: Mapping[str, Bits],
    profile: Profile,
    known: KnownConstants,
) -> list[Step]:
    """The steps with dots and convolutions that took in what they can; the values stay the same (D2).

    `types` has every array. Each step's arrays are read by others or are among the `results`.
    """
    uses = Counter([*(o for s in steps for o in (*s.operands, *s.inner_reads)), *results])
    readers = {o: s for s in reversed(steps) for o in s.operands}
    makers = {s.output: s for s in steps if len(s.results) == 1}
    done: dict[str, Step] = {}
    absorbed: set[str] = set()
    for s in steps:
        if not _is_product(s, profile):
            continue
        product = replace(s, action=_product(s, types))
        product = _with_padding(product, makers, uses, types, constants, absorbed)
        if profile.rounding == "nearest_even":  # else each step draws words of its own (S2)
            for side in (0, 1):
                product = _with_prologue(product, side, makers, uses, types, absorbed, done, profile)
            product = _with_epilogue(product, readers, uses, absorbed, done, profile)
        product = _with_packed(product, types, constants, profile, known)
        done[product.output] = product
    kept = [s for s in steps if len(s.results) != 1 or s.output not in absorbed]
    return [done.get(s.output, s) if len(s.results) == 1 else s for s in kept]


def _is_product(s: Step, profile: Profile) -> bool:
    return (
        isinstance(s.action, Call)
        and s.action.op.cast == "matmult"
        and s.action.profile is profile
        and s.result is not None
        and ops.is_fusible(s.result.dtype, profile)
    )


def _product(s: Step, types: Mapping[str, ArrayType]) -> Product:
    assert isinstance(s.action, Call)
    assert s.result is not None
    rhs = types[s.operands[1]]
    return Product(s.name, s.action.op, s.action.attributes, rhs, s.result, ops.NO_FUSION)


def _with_packed(
    s: Step,
    types: Mapping[str, ArrayType],
    constants: Mapping[str, Bits],
    profile: Profile,
    known: KnownConstants,
) -> Step:
    """The product with its right operand packed, if that is a constant. One that is not finite keeps
    its elements, so that what a product makes of them can be told from what it makes itself.
    """
    assert isinstance(s.action, Product)
    fusion, rhs = s.action.fusion, constants.get(s.operands[1])
    if rhs is None or fusion.rhs is not None:
        return s
    if not known.of("finite", rhs, lambda: _is_finite(rhs)):
        return s
    lhs = types[s.operands[0]].dtype if fusion.lhs is None else fusion.lhs[1]
    p = s.action
    what = (p.op.name, lhs, p.result.dtype, repr(sorted(p.attributes.items())), profile, _core.isa())
    packed = known.of(
        what,
        rhs,
        lambda: ops.pack_columns(p.op, lhs, rhs, p.attributes, ops.Setting(profile), p.result),
    )
    return replace(s, action=replace(s.action, fusion=replace(fusion, packed=packed)))


def _with_padding(
    s: Step,
    makers: Mapping[str, Step],
    uses: Mapping[str, int],
    types: Mapping[str, ArrayType],
    constants: Mapping[str, Bits],
    absorbed: set[str],
) -> Step:
    """The convolution with the pad that makes its image, if nothing else reads that. The core pads with
    zeros (M5), and images of bytes with any number; those of a few channels it reads in place.
    """
    assert isinstance(s.action, Product)
    maker = makers.get(s.operands[0])
    if s.action.op.name != "convolution" or maker is None or uses[maker.output] > 1:
        return s
    if not isinstance(maker.action, Call) or maker.action.op.name != "pad":
        return s
    source, number = maker.operands
    if number not in constants or 0 in types[source].dims:
        return s
    value = constants[number].data
    has_zeros = not any(value.tobytes())
    dtype = types[source].dtype
    if not has_zeros and (dtype.exponent_bits or dtype.bits != 8):
        return s
    n: ops.ConvolutionDimensions = s.action.attributes["dimension_numbers"]
    features = s.action.rhs.dims[n.kernel_input_feature]
    own = features == 1 and s.action.attributes["feature_group_count"] > 1
    if not dtype.exponent_bits and features % BYTES_OF_WORD and not own:
        return s
    padding: Sequence[tuple[int, int, int]] = maker.action.attributes["padding"]
    if any(p != (0, 0, 0) for d, p in enumerate(padding) if d not in n.input_spatial):
        return s
    window: list[ops.WindowDimension] = []
    for w, d in zip(s.action.attributes["window"], n.input_spatial, strict=True):
        low, high, interior = padding[d]
        if min(low, high) < 0 or interior or w.base_dilation != 1:
            return s
        if not has_zeros and w.padding != (0, 0):
            return s
        window.append(replace(w, padding=(w.padding[0] + low, w.padding[1] + high)))
    absorbed.add(maker.output)
    attributes = {**s.action.attributes, "window": tuple(window), "padding_value": int(value)}
    operands = (source, *s.operands[1:])
    members = (*maker.members, *s.members)
    return replace(
        s, action=replace(s.action, attributes=attributes), operands=operands, members=members
    )


def _with_prologue(
    s: Step,
    side: int,
    makers: Mapping[str, Step],
    uses: Mapping[str, int],
    known: Mapping[str, ArrayType],
    absorbed: set[str],
    done: Mapping[str, Step],
    profile: Profile,
) -> Step:
    """The product with the chain that makes an operand of one array, if nothing else reads it."""
    assert isinstance(s.action, Product)
    maker = makers.get(s.operands[side])
    if maker is None or not isinstance(maker.action, Chain) or uses[maker.output] > 1:
        return s
    if "cast" in s.action.attributes:
        return s  # a dot's algorithm rounds what the chain gives
    taken = maker.output in absorbed or maker.output in done
    if taken or len(maker.operands) != 1 or len(maker.action.links) > MAX_PROLOGUE:
        return s
    (source,) = maker.operands
    assert maker.result is not None
    taken_in = known[source]
    if taken_in.dims != maker.result.dims or not _is_taken(taken_in.dtype, maker.result.dtype):
        return s
    program = _program(maker.action.links, (known[source],), profile)
    fused = (program, maker.result.dtype)
    before = s.action.fusion
    fusion = replace(before, rhs=fused) if side else replace(before, lhs=fused)
    operands = (*s.operands[:side], source, *s.operands[side + 1 :])
    absorbed.add(maker.output)
    names = list(s.action.prologues)
    names[side] = maker.action.instructions
    action = replace(s.action, fusion=fusion, prologues=(names[0], names[1]))
    return replace(s, action=action, operands=operands, members=(*maker.members, *s.members))


def _with_epilogue(
    s: Step,
    readers: Mapping[str, Step],
    uses: Mapping[str, int],
    absorbed: set[str],
    done: Mapping[str, Step],
    profile: Profile,
) -> Step:
    """The product with the chain that reads it, in whose place it then runs."""
    assert isinstance(s.action, Product)
    exact = profile.accumulate == "exact" and s.action.result.dtype.exponent_bits > 0
    if uses[s.output] > 1 or exact:
        return s
    reader = readers.get(s.output)
    if (
        reader is None
        or not isinstance(reader.action, Chain)
        or reader.output in done
        or reader.result is None
        or reader.result.dims != s.action.result.dims
    ):
        return s
    # The product comes first among the chain's inputs.
    order = [reader.operands.index(s.output)]
    order += [n for n in range(len(reader.operands)) if n != order[0]]
    place = {old: new for new, old in enumerate(order)} | {
        n: n for n in range(len(order), len(order) + len(reader.action.links))
    }
    links = tuple(
        (op, result, values if op == _core.CONSTANT else tuple(place[v] for v in values))
        for op, result, values in reader.action.links
    )
    codes = tuple(reader.action.inputs[n] for n in order)
    outputs = (len(codes) + len(links) - 1,)
    program = ops.make_chain(codes, links, outputs, profile)
    fusion = replace(s.action.fusion, epilogue=(program, reader.result.dtype))
    absorbed.add(s.output)
    return replace(
        reader,
        action=replace(s.action, fusion=fusion, epilogue=reader.action.instructions),
        operands=(*s.operands, *(reader.operands[n] for n in order[1:])),
        members=(*s.members, *reader.members),
    )


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


def _program(links: Sequence[ops.Link], inputs: Sequence[ArrayType], profile: Profile) -> _core.Chain:
    codes = tuple(ops.core_code(t.dtype, "a prologue") for t in inputs)
    return ops.make_chain(codes, tuple(links), (len(codes) + len(links) - 1,), profile)
