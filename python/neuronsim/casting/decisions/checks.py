"""Whether a plan fits a module and a target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from neuronsim import dtypes, ops
from neuronsim.casting import fields
from neuronsim.casting.conversions import travels_in_float32
from neuronsim.casting.decisions.biases import channel_axes, find_biases, why_not
from neuronsim.casting.decisions.castable import (
    is_castable,
    is_product,
    moves_minor_most,
    own_type,
    reads,
)
from neuronsim.casting.decisions.quantization import TYPES, Quantization
from neuronsim.casting.decisions.record import Decision, PlanRecord
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, first_few, nearest
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    CONTROL_FLOW,
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    simple_reducer,
)
from neuronsim.hlo.opcodes import row
from neuronsim.targets import Target


def check_plan(plan: PlanRecord, module: Module, target: Target | None = None) -> None:
    """Raises InvalidArgument, with all problems, if the plan was made for another module, names what
    it lacks, or asks for what cannot be: of an instruction, or of the target's engines.
    """
    flat = inline_calls(module)
    graphs = graph_computations(flat)
    names = {i.name for c in graphs for i in c.instructions}
    unknown = [n for n in (*plan.decisions, *plan.kept) if n not in names]
    problems = []
    if unknown:
        told = [f"{fields.shown(n)}{nearest(n[:100], names)}" for n in unknown[:_NAMED]]
        problems.append(f"it has no instruction {first_few([*told, *unknown[_NAMED:]], _NAMED)}")
    for c in graphs:
        alike: dict[str, list[str]] = {}  # which instructions have each problem
        for i in c.instructions:
            d = plan.decisions.get(i.name)
            for p in _problems(c, i, d, flat.by_name, target) if d is not None else ():
                # A sentence about one instruction stays its own.
                text = p if p.startswith(i.name) else p.replace(i.name, _NAME, 1)
                alike.setdefault(text, []).append(i.name)
        problems += [p.replace(_NAME, first_few(own, _NAMED)) for p, own in alike.items()]
        problems += [] if problems else _bias_problems(c, plan.decisions)
    problems += _loop_problems(graphs, plan.decisions)
    if plan.fingerprint != (own := fingerprint(module)):
        made = f"the plan was made for {fields.shown(plan.module)} ({plan.fingerprint}), this is {own}"
        problems.insert(0, f"{made}: another batch, shape or weight makes another module")
    if problems:
        raise InvalidArgument(
            f"the plan does not fit module {fields.shown(module.name)}: {fields.joined(problems)}"
        )


_NAMED = 4  # instructions of which one problem is
_NAME = "\0"


def _problems(
    computation: Computation,
    i: Instruction,
    d: Decision,
    by_name: Mapping[str, Computation],
    target: Target | None,
) -> list[str]:
    """What a decision asks of an instruction that cannot be."""
    if not (is_castable(computation, i) or (d.relayout and _is_float_transpose(i))):
        return [f"{i.name} is a {i.opcode} that keeps the types of the model (A2)"]
    if d.quantizes:
        return _quantization_problems(computation, i, d)
    found = [
        *_type_problems(i, d),
        *_slot_problems(computation, i, d),
        *_sum_problems(i, d, by_name),
        *_relayout_problems(i, d),
    ]
    if target is not None:
        found += _target_problems(computation, i, d, target)
    return found


def _type_problems(i: Instruction, d: Decision) -> list[str]:
    found = []
    own = own_type(i)
    if d.operand.kind != "float" or not d.operand.device:
        found.append(f"{i.name} cannot read {d.operand.name}")
    fits = d.output.kind == "float" and d.output.device if own is dtypes.float32 else d.output is own
    if not fits:
        found.append(f"{i.name} gives {own.name} and cannot give {d.output.name}")
    if i.opcode == "while" and (d.operand is not d.output or travels_in_float32(d.output)):
        found.append(
            f"{i.name} carries its values in one type that HLO has, not read as {d.operand.name} and "
            f"given as {d.output.name} (A2)"
        )
    opened = [t.name for t in dict.fromkeys((d.operand, d.output)) if t.is_open]
    if d.rounding == "stochastic" and opened:
        found.append(
            f"{i.name} cannot round stochastically to {_listed(opened)}: reduce-precision draws no "
            "words (C9, S1)"
        )
    return found


def _quantization_problems(computation: Computation, i: Instruction, d: Decision) -> list[str]:
    """Rules Q: a product reads both operands quantized, the left one as a whole, the right one with a
    zero point only as a whole; a result is quantized as a whole.
    """
    own = dataclasses.replace(
        Decision(dtypes.float32, dtypes.float32, dtypes.float32, d.reason),
        quantized_operands=d.quantized_operands,
        quantized_result=d.quantized_result,
        bias=d.bias,
    )
    found = []
    if d != own:
        found.append(f"{i.name} is quantized, so its float types are float32 and it states no more")
    if any(q is not None and q.type not in TYPES for q in (*d.quantized_operands, d.quantized_result)):
        found.append(f"{i.name} is quantized to int32, which biases alone are (Q7)")
    if not isinstance(i.shape, Shape) or i.shape.dtype is not dtypes.float32:
        return [*found, f"{i.name} gives no float32 array that could be quantized"]
    q = d.quantized_result
    if q is not None and q.axis is not None and (is_product(i) or len(q.scale) != _size(i, q.axis)):
        found.append(f"the scales of the result of {i.name} run along no axis of it that they may")
    if not any(d.quantized_operands):
        return found
    if i.opcode not in ("dot", "convolution") or len(d.quantized_operands) != 2:
        return [*found, f"{i.name} ({i.opcode}) does not read two quantized operands: products do"]
    if not all(d.quantized_operands) or any(
        s.dtype is not dtypes.float32 for s in reads(computation, i)
    ):
        return [*found, f"{i.name} reads both operands quantized, from float32, or none"]
    lhs, rhs = d.quantized_operands
    assert lhs is not None
    assert rhs is not None
    if lhs.axis is not None:
        found.append(f"the left operand of {i.name} is quantized as a whole: its scales leave the sums")
    if lhs.type is not rhs.type and (i.opcode == "convolution" or lhs.is_float or rhs.is_float):
        found.append(
            f"{i.name} reads {lhs.type.name} and {rhs.type.name}: convolutions and products of float8 "
            "read one type alone"
        )
    found += _right_problems(computation, i, rhs)
    return found


def _bias_problems(c: Computation, decisions: Mapping[str, Decision]) -> list[str]:
    """Of biases that the sums of products are to take (Q7)."""
    decided = ((i.name, decisions.get(i.name)) for i in c.instructions)
    biased = {n: d for n, d in decided if d is not None and d.bias}
    biases = find_biases(c, biased)
    found = []
    for n, d in biased.items():
        bias = biases.get(n)
        lhs, rhs = d.quantized_operands if len(d.quantized_operands) == 2 else (None, None)
        if bias is None or bias.addition.name != d.bias or lhs is None or rhs is None:
            found.append(f"{fields.shown(d.bias)} adds no bias to {n}, or {n} reads no bytes")
            continue
        if d.bias in decisions:
            found.append(f"{d.bias} is made in the sums of {n}, so it has no decision of its own")
        if why := why_not(bias, lhs, rhs):
            found.append(f"the bias of {d.bias} cannot be in the sums of {n}: {why}")
    return found


def _size(i: Instruction, axis: int) -> int:
    return i.array.dims[axis] if axis < len(i.array.dims) else -1


def _right_problems(computation: Computation, i: Instruction, rhs: Quantization) -> list[str]:
    dims = computation.by_name[i.operands[1]].array.dims
    if not rhs.is_symmetric and (rhs.axis is not None or i.opcode == "convolution"):
        return [f"the right operand of {i.name} has zero points: only a dot's, as a whole, may"]
    if rhs.axis is None:
        return []
    allowed = channel_axes(i, len(dims))
    if rhs.axis not in allowed:
        return [f"the scales of {i.name} run along axis {rhs.axis}: one of {_listed(allowed)} may"]
    if len(rhs.scale) != dims[rhs.axis]:
        return [f"{i.name} has {dims[rhs.axis]} channels and {len(rhs.scale)} scales"]
    return []


def _slot_problems(computation: Computation, i: Instruction, d: Decision) -> list[str]:
    """Of the numbers of operands and results that stay float32."""
    operands = [computation.by_name[o].shape for o in i.operands]
    found = []
    for what, numbers, shapes in (
        ("operand", d.float32_operands, operands),
        ("result", d.float32_results, i.shape.arrays()),
    ):
        if numbers and i.opcode in ("while", "constant"):
            found.append(f"{i.name} is a {i.opcode}: no {what} of it alone stays float32")
            continue
        float32 = [
            n for n, s in enumerate(shapes) if isinstance(s, Shape) and s.dtype is dtypes.float32
        ]
        wrong = [n for n in numbers if n not in float32]
        if wrong:
            where = f"its float32 {what}s are {_listed(float32)}" if float32 else "it has none"
            found.append(f"{i.name} has no float32 {what} {_listed(wrong)}: {where}")
    return found


def _sum_problems(i: Instruction, d: Decision, by_name: Mapping[str, Computation]) -> list[str]:
    if d.accumulate is dtypes.float32:
        return []
    if d.accumulate not in ops.ACCUMULATE_TYPES:
        accepted = _listed(t.name for t in ops.ACCUMULATE_TYPES)
        return [
            f"{i.name} cannot sum in {d.accumulate.name}: the types of sums are {accepted} (R1, M6)"
        ]
    if not _sums(i, by_name):
        return [
            f"{i.name} does not sum in {d.accumulate.name}: products, and add and multiply reduces and "
            "reduce-windows of one array, have a type of their sums (R1, M6)"
        ]
    if i.attributes.get("algorithm"):
        return [
            f"{i.name} sums as its algorithm {i.attributes['algorithm']} says, not in "
            f"{d.accumulate.name}"
        ]
    if d.rounding == "stochastic":
        return [
            f"{i.name} sums in {d.accumulate.name} under stochastic rounding: S2 has no words for its "
            "steps"
        ]
    return []


def _sums(i: Instruction, by_name: Mapping[str, Computation]) -> bool:
    if i.opcode in ("reduce", "reduce-window"):
        return simple_reducer(by_name[i.called[0]]) in ("add", "multiply")
    return i.opcode in ("dot", "convolution")


def _is_float_transpose(i: Instruction) -> bool:
    return i.opcode == "transpose" and own_type(i).exponent_bits > 0


def _relayout_problems(i: Instruction, d: Decision) -> list[str]:
    if d.relayout is None:
        if d.saturate_infinity:
            return [f"{i.name} saturates infinities only where it is a relayout (M8)"]
        return []
    if not _is_float_transpose(i):
        return [f"{i.name} ({i.opcode}) is no transpose of floats, so no relayout (A3, M8)"]
    found = []
    if d.relayout.is_open or not (d.relayout.exponent_bits and d.relayout.device):
        found.append(f"{i.name} cannot be a relayout in {d.relayout.name} (M8)")
    if not moves_minor_most(i):
        found.append(
            f"{i.name} is no relayout: its transpose by {tuple(i.attributes['dimensions'])} does not "
            "move the minor-most dimension (A3)"
        )
    return found


def _target_problems(
    computation: Computation, i: Instruction, d: Decision, target: Target
) -> list[str]:
    """Types that the engine of an instruction does not compute with. A product's sums are float32 and
    are given as such whatever it reads (M2, M4).
    """
    has_row = i.opcode in ops.OPCODES
    engine = row(i).engine if has_row else ""
    reads_float32 = any(s.dtype is dtypes.float32 for s in reads(computation, i))
    types = [d.operand] if reads_float32 or not has_row else []
    if d.float32_operands:
        types.append(dtypes.float32)
    product = is_product(i) and d.output is dtypes.float32
    if own_type(i) is dtypes.float32 and not product:
        types.append(d.output)
    lacking = [t for t in dict.fromkeys(types) if not target.computes_with(t, engine, i.opcode)]
    if d.relayout is not None and not target.computes_with(d.relayout, "tensor", i.opcode):
        lacking.append(d.relayout)
    where = f"its {engine} engine" if engine not in ("", "none") else "it"
    return [f"{target.name} lacks {t.name} for {i.name}: {where} has no such type" for t in lacking]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(v) or "the profile" for v in values)


def _loop_problems(graphs: Sequence[Computation], decisions: Mapping[str, Decision]) -> list[str]:
    """Computations that two callers would have in different types."""
    callers: dict[str, tuple[str, DType, str]] = {}
    problems = []
    for i in (i for c in graphs for i in c.instructions if i.opcode in CONTROL_FLOW):
        d = decisions.get(i.name) if i.opcode == "while" else None
        dtype, rounding = (d.output, d.rounding) if d else (dtypes.float32, "")
        for name in i.called:
            other, carried, rounded = callers.setdefault(name, (i.name, dtype, rounding))
            shared = f"{other} and {i.name} share {name} and cannot"
            if carried is not dtype:
                problems.append(f"{shared} carry {carried.name} and {dtype.name}")
            elif rounded != rounding:
                problems.append(f"{shared} round as {_listed([rounded, rounding])} say")
    return problems
