"""What runs as part of a matrix product: the chain that makes an operand, while that is packed; the
chain that reads the product, before it is stored; and constant right operands, packed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from neuronsim import ops
from neuronsim.executor.run import Call, Chain, Product, Step, Value
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile

MAX_PROLOGUE = 8  # steps: packing runs them anew for every thread


def fuse_products(
    steps: Sequence[Step],
    types: Mapping[str, ArrayType],
    constants: Mapping[str, Value],
    profile: Profile,
) -> list[Step]:
    """The steps with dots and convolutions that took in what they can; the values stay the same (D2).

    `types` has every input and constant. Every step but the root's is read by another.
    """
    uses = Counter(o for s in steps for o in s.operands)
    known = dict(types) | {s.name: s.result for s in steps if s.result is not None}
    makers = {s.name: s for s in steps}
    done: dict[str, Step] = {}
    absorbed: set[str] = set()
    for s in steps:
        if not _is_product(s):
            continue
        product = replace(s, action=_product(s))
        if profile.rounding == "nearest_even":  # else each step draws words of its own (S2)
            for side in (0, 1):
                product = _with_prologue(product, side, makers, uses, known, absorbed, done, profile)
            product = _with_epilogue(product, steps, uses, absorbed, done, profile)
        product = _with_packed(product, known, constants, profile)
        done[product.name] = product
    return [done.get(s.name, s) for s in steps if s.name not in absorbed]


def _is_product(s: Step) -> bool:
    return (
        isinstance(s.action, Call)
        and s.action.op.cast == "matmult"
        and s.result is not None
        and s.result.dtype.exponent_bits > 0
        and s.result.dtype.device
    )


def _product(s: Step) -> Product:
    assert isinstance(s.action, Call)
    assert s.result is not None
    return Product(s.action.op, s.action.attributes, s.result, ops.NO_FUSION)


def _with_packed(
    s: Step, known: Mapping[str, ArrayType], constants: Mapping[str, Value], profile: Profile
) -> Step:
    """The product with its right operand packed, if that is a constant."""
    assert isinstance(s.action, Product)
    fusion, rhs = s.action.fusion, constants.get(s.operands[1])
    if not isinstance(rhs, Bits) or fusion.rhs is not None:
        return s
    lhs = known[s.operands[0]].dtype if fusion.lhs is None else fusion.lhs[1]
    setting = ops.Setting(profile)
    packed = ops.pack_columns(s.action.op, lhs, rhs, s.action.attributes, setting)
    return replace(s, action=replace(s.action, fusion=replace(fusion, packed=packed)))


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
    if maker is None or not isinstance(maker.action, Chain) or uses[maker.name] > 1:
        return s
    taken = maker.name in absorbed or maker.name in done
    if taken or len(maker.operands) > 1 or len(maker.action.steps) > MAX_PROLOGUE:
        return s
    (source,) = maker.operands
    assert maker.result is not None
    if known[source].dims != maker.result.dims or not known[source].dtype.exponent_bits:
        return s
    program = _program(maker.action.steps, (known[source],), profile)
    fused = (program, maker.result.dtype)
    taken_in = s.action.fusion
    fusion = replace(taken_in, rhs=fused) if side else replace(taken_in, lhs=fused)
    operands = (*s.operands[:side], source, *s.operands[side + 1 :])
    absorbed.add(maker.name)
    action = replace(s.action, fusion=fusion)
    return replace(s, action=action, operands=operands, members=(*maker.members, *s.members))


def _with_epilogue(
    s: Step,
    steps: Sequence[Step],
    uses: Mapping[str, int],
    absorbed: set[str],
    done: Mapping[str, Step],
    profile: Profile,
) -> Step:
    """The product with the chain that reads it, in whose place it then runs."""
    assert isinstance(s.action, Product)
    if uses[s.name] > 1 or profile.accumulate == "exact":
        return s
    reader = next((r for r in steps if s.name in r.operands), None)
    if (
        reader is None
        or not isinstance(reader.action, Chain)
        or reader.name in done
        or reader.result is None
        or reader.result.dims != s.action.result.dims
    ):
        return s
    # The product comes first among the chain's inputs.
    order = [reader.operands.index(s.name)]
    order += [n for n in range(len(reader.operands)) if n != order[0]]
    place = {old: new for new, old in enumerate(order)} | {
        n: n for n in range(len(order), len(order) + len(reader.action.steps))
    }
    chain = tuple(
        (op, result, tuple(place[v] for v in values)) for op, result, values in reader.action.steps
    )
    codes = tuple(reader.action.inputs[n] for n in order)
    outputs = (len(codes) + len(chain) - 1,)
    program = ops.tile_program(codes, chain, outputs, profile)
    fusion = replace(s.action.fusion, epilogue=(program, reader.result.dtype))
    absorbed.add(s.name)
    return Step(
        reader.name,
        replace(s.action, fusion=fusion),
        (*s.operands, *(reader.operands[n] for n in order[1:])),
        reader.result,
        (*s.members, *reader.members),
    )


def _program(
    steps: Sequence[ops.ProgramStep], inputs: Sequence[ArrayType], profile: Profile
) -> ops.TileProgram:
    codes = tuple(ops.core_code(t.dtype, "a prologue") for t in inputs)
    return ops.tile_program(codes, tuple(steps), (len(codes) + len(steps) - 1,), profile)
