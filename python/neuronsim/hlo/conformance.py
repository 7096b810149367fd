"""Conformance: which instructions of a module break what AWS documents for a release of the compiler.

>>> from neuronsim.targets import find_release, find_target
>>> release, target = find_release("2.3.0.4"), find_target("trn1")
>>> shape = Shape(dtypes.float32, (2,))
>>> x = Instruction("x", "parameter", shape, (), {"number": 0})
>>> y = Instruction("y", "power", shape, ("x", "x"))
>>> module = Module("m", "main", (Computation("main", (x, y), "y"),))
>>> [(f.instruction, f.rule, f.release) for f in check(module, release, target)]
[('y', 'note on Pow', 'SDK 2.6, neuronx-cc 2.3.0.4')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel
from neuronsim.hlo.array_sources import shown_elements
from neuronsim.hlo.error_codes import (
    COMPLEX64_SINCE,
    CUSTOM_CALL_TARGETS,
    ERROR_CODES,
    INTEGER_SCATTER_SINCE,
    TYPE_CODES,
)
from neuronsim.hlo.findings import Finding
from neuronsim.hlo.module import (
    INLINED,
    Computation,
    Instruction,
    Module,
    Shape,
    graph_computations,
    simple_reducer,
)
from neuronsim.hlo.opcodes import NEVER_CONSTANT
from neuronsim.processor import pinned
from neuronsim.targets import (
    KNOWN_ISSUES,
    SUPPORTED_OPERATORS,
    TABLE_NOTES,
    Constraint,
    Release,
    Target,
    at_least,
    listed_since,
    operators,
)

# ---- names of operators --------------------------------------------------------------------------

# What holds an HLO module together and is no operator; XLA inlines calls and fusions.
_NO_OPERATOR = frozenset({"parameter", "call", "fusion"})

# The names that AWS's table uses where they are not the op table's, nor the opcode in camel case.
_DOCUMENTED_NAMES = {
    "all-gather": "Allgather",
    "all-reduce": "Allreduce",
    "batch-norm-training": "Batchnorm",
    "batch-norm-grad": "Batchnormgrad",
    "batch-norm-inference": "Batchnorminference",
    "compare": "Compare",  # any direction and order
    "custom-call": "Customcall",
}

_ROW_NAMES = {op.opcode: op.xla_builder for op in ops.OPS.values() if op.opcode}


def operator_name(instruction: Instruction) -> str | None:
    """The name of an instruction in AWS's list, or what XlaBuilder calls it; None for parameters, calls
    and fusions.
    """
    opcode = instruction.opcode
    if opcode in _NO_OPERATOR:
        return None
    if opcode in ("and", "not") and _dtype(instruction) is dtypes.boolean:
        return f"Logical{opcode.capitalize()}"
    if opcode == "rng":
        normal = instruction.attributes.get("distribution") == "RNG_NORMAL"
        return "RngNormal" if normal else "RngUniform"
    if opcode in _DOCUMENTED_NAMES:
        return _DOCUMENTED_NAMES[opcode]
    return _ROW_NAMES.get(opcode) or "".join(word.capitalize() for word in opcode.split("-"))


# ---- compile-time constants ----------------------------------------------------------------------


def compile_time_constants(module: Module) -> Mapping[str, frozenset[str]]:
    """For each computation, the instructions that are constant at compile time: constants and what is
    computed from them, through calls too.
    """
    pure: dict[str, bool] = {}
    for c in module.computations:  # callees come first
        pure[c.name] = all(
            i.opcode == "parameter"
            or (i.opcode not in NEVER_CONSTANT and all(pure[name] for name in i.called))
            for i in c.instructions
        )
    passed: dict[str, list[bool]] = {}  # whether parameters are constant at every call; [] is no
    found: dict[str, frozenset[str]] = {}
    for c in reversed(module.computations):
        constant: set[str] = set()
        for i in c.instructions:
            known = [o in constant for o in i.operands]
            if i.opcode == "parameter":
                number, flags = int(i.attributes["number"]), passed.get(c.name, [])
                if 0 <= number < len(flags) and flags[number]:
                    constant.add(i.name)
            elif i.opcode not in NEVER_CONSTANT and all(known) and all(pure[n] for n in i.called):
                constant.add(i.name)
            for name in i.called:
                flags = known if i.opcode in INLINED else []
                earlier = passed.setdefault(name, flags)
                passed[name] = [a and b for a, b in zip(earlier, flags, strict=False)]
        found[c.name] = frozenset(constant)
    return found


_MOVES = ("broadcast", "reshape", "transpose", "copy", "convert")


def _origins(computation: Computation) -> dict[str, Instruction]:
    """For each instruction the one whose values it rearranges, or itself."""
    found: dict[str, Instruction] = {}
    for i in computation.instructions:
        found[i.name] = found[i.operands[0]] if i.opcode in _MOVES and i.operands else i
    return found


# ---- checks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scope:
    """What a check knows beside the instruction."""

    module: Module
    computation: Computation
    constants: frozenset[str]
    release: Release
    target: Target
    listed: frozenset[str]

    @cached_property
    def origins(self) -> Mapping[str, Instruction]:
        return _origins(self.computation)

    def operand(self, i: Instruction, number: int) -> Instruction:
        return self.computation.by_name[i.operands[number]]


Broken = Iterator[tuple[Constraint, str]]
Check = Callable[[Instruction, _Scope], Broken]


def _dtype(i: Instruction) -> DType | None:
    return i.shape.dtype if isinstance(i.shape, Shape) else None


def _dims(i: Instruction) -> tuple[int, ...]:
    return i.shape.dims if isinstance(i.shape, Shape) else ()


def _is_integer(dtype: DType | None, *widths: int) -> bool:
    return dtype is not None and dtype.kind in ("signed", "unsigned") and dtype.bits in widths


def _check_operator(i: Instruction, scope: _Scope) -> Broken:
    name = operator_name(i)
    if name is None or name in scope.listed:
        return
    later = listed_since(name)
    when = f"{later} is the first that lists it" if later else "nor of a later one"
    yield SUPPORTED_OPERATORS, f"{name} is not among the documented operators of this release, {when}"


# These move or name values that another instruction made, so that a type is reported once.
_HOLDERS = frozenset({"get-tuple-element", "tuple", "copy", "call", "while", "conditional"})


def _check_types(i: Instruction, scope: _Scope) -> Broken:
    inner_parameter = i.opcode == "parameter" and scope.computation.name != scope.module.entry
    if inner_parameter or i.opcode in _HOLDERS:
        return
    types = tuple(s.type for s in i.shape.arrays())
    for dtype in dict.fromkeys(t.dtype for t in types):
        if dtype not in scope.target.types and dtype in TYPE_CODES:
            if dtype is not dtypes.complex64 or not at_least(scope.release, COMPLEX64_SINCE):
                yield ERROR_CODES[TYPE_CODES[dtype]], f"its type is {dtype.name}"
        elif _is_integer(dtype, 64) and scope.target.truncates_int64:
            yield from _check_int64(i, dtype)
    for t in types:
        if t.nbytes > 4 * 2**30:
            yield ERROR_CODES["NCC_EVRF024"], f"{t} takes more than 4 GiB"


def _check_int64(i: Instruction, dtype: DType) -> Broken:
    values = shown_elements(i)
    if values is None:
        yield KNOWN_ISSUES["INT64"], f"{dtype.name} values lose their high 32 bits (C7)"
        return
    narrow = np.iinfo(np.uint32 if dtype.kind == "unsigned" else np.int32)
    if values.size == 0 or (values.min() >= narrow.min and values.max() <= narrow.max):
        return
    constraint = ERROR_CODES["NCC_ESFH002"] if dtype.kind == "unsigned" else KNOWN_ISSUES["INT64"]
    yield (
        constraint,
        f"the constant goes beyond {narrow.dtype.name}, from {values.min()} to {values.max()}",
    )


def _check_gather(i: Instruction, scope: _Scope) -> Broken:
    d: ops.GatherDimensions = i.attributes["gather_dimensions"]
    operand = scope.operand(i, 0)
    # XLA's remapped_offset_dims: the operand's dimensions that the result keeps.
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [axis for axis in range(len(_dims(operand))) if axis not in dropped]
    both = sorted(set(d.start_index_map) & set(kept))
    if both:
        yield (
            TABLE_NOTES["Gather"],
            f"start_index_map {d.start_index_map} and remapped_offset_dims {tuple(kept)} share {both}",
        )
    out = _iota_beyond(scope, scope.operand(i, 1), d.start_index_map, operand)
    if out:
        yield ERROR_CODES["NCC_EVRF056"], out


def _iota_beyond(
    scope: _Scope, indices: Instruction, index_map: Sequence[int], operand: Instruction
) -> str:
    """What an iota of single indices reaches beyond the operand, or nothing."""
    iota = scope.origins[indices.name]
    axes = iota.attributes.get("dimensions", ())
    if iota.opcode != "iota" or len(index_map) != 1 or not axes:
        return ""
    if not 0 <= axes[0] < len(_dims(iota)) or not 0 <= index_map[0] < len(_dims(operand)):
        return ""
    length, size = _dims(iota)[axes[0]], _dims(operand)[index_map[0]]
    if length <= size:
        return ""
    return f"{iota.name} gives indices in [0, {length}), {operand.name} has [0, {size})"


def _check_power(i: Instruction, scope: _Scope) -> Broken:
    exponent = scope.operand(i, 1)
    floats_accepted = at_least(scope.release, KNOWN_ISSUES["pow exponent"].until)
    why = ""
    if exponent.name not in scope.constants:
        why = "its exponent is not constant at compile time"
    elif not floats_accepted and not _has_integers(exponent, scope.origins[exponent.name]):
        why = "its exponent is not an integer"
    if why:
        yield TABLE_NOTES["Pow"], why
        yield KNOWN_ISSUES["pow exponent"], why
    if _is_integer(_dtype(i), 64):
        yield ERROR_CODES["NCC_EVRF062"], "its operands are 64-bit integers"


def _has_integers(i: Instruction, origin: Instruction) -> bool:
    """Whether an exponent's values are integers, as far as a literal, its origin, shows them."""
    values = shown_elements(origin)
    if i.array.dtype.kind != "float" or values is None or values.dtype.kind == "c":
        return i.array.dtype.kind != "complex"
    wide = values.astype(np.float64)
    return np.array_equal(np.rint(wide), wide)


def _check_reduce(i: Instruction, scope: _Scope) -> Broken:
    wrong = []
    if simple_reducer(scope.module.by_name[i.called[0]]) not in (
        "add",
        "multiply",
        "maximum",
        "minimum",
    ):
        wrong.append("its computation is not one minimum, maximum, addition or multiplication")
    inits = i.operands[len(i.operands) // 2 :]
    if any(name not in scope.constants for name in inits):
        wrong.append("its init is not constant at compile time")
    if wrong:
        yield TABLE_NOTES["Reduce"], " and ".join(wrong)


def _check_rng(i: Instruction, scope: _Scope) -> Broken:
    yield KNOWN_ISSUES["seed"], "the device does not use the seed that is set for it"


def _check_rng_bit_generator(i: Instruction, scope: _Scope) -> Broken:
    yield TABLE_NOTES["RngBitGenerator"], "the device ignores the state that it is given"
    yield from _check_rng(i, scope)
    algorithm = i.attributes.get("rng_algorithm")
    if algorithm != "RNG_DEFAULT":
        yield ERROR_CODES["NCC_EVRF006"], f"its algorithm is {algorithm}"


def _check_dynamic_update_slice(i: Instruction, scope: _Scope) -> Broken:
    if any(name not in scope.constants for name in i.operands[2:]):
        yield TABLE_NOTES["DynamicUpdateSlice"], "its index is not constant at compile time"


def _check_convolution(i: Instruction, scope: _Scope) -> Broken:
    window: Sequence[ops.WindowDimension] = i.attributes["window"]
    if any(w.base_dilation > 1 for w in window):
        if any(w.window_dilation > 1 for w in window):
            yield ERROR_CODES["NCC_EVRF010"], "it dilates its input and its kernel"
        if any(w.stride > 1 for w in window):
            yield ERROR_CODES["NCC_EVRF011"], "it dilates its input and has strides"


def _check_reduce_window(i: Instruction, scope: _Scope) -> Broken:
    window: Sequence[ops.WindowDimension] = i.attributes["window"]
    if any(w.base_dilation > 1 for w in window):
        yield ERROR_CODES["NCC_EVRF017"], "its base dilation is greater than 1"
    if any(w.window_dilation > 1 for w in window):
        yield ERROR_CODES["NCC_EVRF018"], "its window dilation is greater than 1"
    if len(i.operands) != 2:
        yield ERROR_CODES["NCC_EVRF019"], f"it has {len(i.operands)} operands"


def _check_top_k(i: Instruction, scope: _Scope) -> Broken:
    for name in i.operands[:1]:
        dtype = _dtype(scope.computation.by_name[name])
        if dtype in (dtypes.int32, dtypes.int64):
            yield ERROR_CODES["NCC_EVRF013"], f"its operand is {dtype.name}"


def _check_custom_call(i: Instruction, scope: _Scope) -> Broken:
    name = i.attributes.get("custom_call_target", "")
    if name not in CUSTOM_CALL_TARGETS:
        yield ERROR_CODES["NCC_EVRF015"], f"its target is {name!r}"
    elif name == "AwsNeuronTopK":
        yield from _check_top_k(i, scope)


def _check_scatter(i: Instruction, scope: _Scope) -> Broken:
    arrays = (len(i.operands) - 1) // 2
    operand, indices = scope.operand(i, 0), scope.operand(i, arrays)
    d: ops.ScatterDimensions = i.attributes["scatter_dimensions"]
    out = _iota_beyond(scope, indices, d.scatter_dims_to_operand_dims, operand)
    if out:
        yield ERROR_CODES["NCC_EVRF031"], out
    called = scope.module.by_name[i.called[0]]
    if called.by_name[called.root].opcode in ("parameter", "tuple"):
        return  # it overwrites
    data = {_dtype(scope.operand(i, n)) for n in range(len(i.operands)) if n != arrays}
    integers = sorted(
        t.name for t in data if t is not None and t.kind in ("signed", "unsigned", "bool")
    )
    if not integers:
        return
    wide = all(_is_integer(t, 32, 64) for t in data)
    code = "NCC_EVRF060" if wide and at_least(scope.release, INTEGER_SCATTER_SINCE) else "NCC_EVRF016"
    yield ERROR_CODES[code], f"it reduces {' and '.join(integers)} values"


def _wide_integers(code: str) -> Check:
    def check(i: Instruction, scope: _Scope) -> Broken:
        found = {_dtype(scope.computation.by_name[name]) for name in i.operands}
        names = sorted(t.name for t in found if t is not None and _is_integer(t, 32, 64))
        if names:
            yield ERROR_CODES[code], f"its operands are {' and '.join(names)}, computed in float32"

    return check


def _check_shift(i: Instruction, scope: _Scope) -> Broken:
    dtype = _dtype(scope.operand(i, 0))
    if dtype is not None and dtype.bits != 32:
        yield ERROR_CODES["NCC_EVRF022"], f"its first operand is {dtype.name}"


_CHECKS: dict[str, Check] = {
    "gather": _check_gather,
    "power": _check_power,
    "reduce": _check_reduce,
    "rng": _check_rng,
    "rng-bit-generator": _check_rng_bit_generator,
    "dynamic-update-slice": _check_dynamic_update_slice,
    "convolution": _check_convolution,
    "reduce-window": _check_reduce_window,
    "topk": _check_top_k,
    "custom-call": _check_custom_call,
    "scatter": _check_scatter,
    "dot": _wide_integers("NCC_EVRF035"),
    "all-reduce": _wide_integers("NCC_EVRF061"),
    "reduce-scatter": _wide_integers("NCC_EVRF063"),
    "shift-right-arithmetic": _check_shift,
}

# Operands that the checks read. A module with operators that neuronsim does not execute is not verified
# to the end.
_LEAST_OPERANDS = {
    "convert": 1,
    **dict.fromkeys(("gather", "power", "reduce", "dynamic-update-slice", "shift-right-arithmetic"), 2),
    "scatter": 3,
}


def _check_operand_counts(module: Module) -> None:
    for c in module.computations:
        for i in c.instructions:
            least = _LEAST_OPERANDS.get(i.opcode, 0)
            if len(i.operands) < least:
                raise InvalidModel(
                    f"[NCC_EVRF064] {c.name}/{i.name} ({i.opcode}): takes at least {least} operands, "
                    f"not {len(i.operands)}"
                )


@pinned
def check(module: Module, release: Release, target: Target) -> tuple[Finding, ...]:
    """What a module breaks of the constraints that AWS documents for a release and a device, in the
    program's order; nothing for the host and Inf1, which are no targets of neuronx-cc.

    Raises InvalidModel for an instruction that lacks operands.
    """
    if not target.clocks:
        return ()
    _check_operand_counts(module)
    every = (SUPPORTED_OPERATORS, *TABLE_NOTES.values(), *KNOWN_ISSUES.values(), *ERROR_CODES.values())
    holding = {c.rule for c in every if c.holds(release)}
    constants = compile_time_constants(module)
    listed = frozenset(operators(release))
    findings = []
    # Others are applied to elements, by an instruction whose own check looks at them.
    for computation in reversed(graph_computations(module)):  # callers come first
        scope = _Scope(module, computation, constants[computation.name], release, target, listed)
        for i in computation.instructions:
            for constraint, message in _broken(i, scope):
                if constraint.rule in holding:
                    findings.append(_finding(i, computation, constraint, message, release))
    return tuple(findings)


def _broken(i: Instruction, scope: _Scope) -> Broken:
    yield from _check_operator(i, scope)
    yield from _check_types(i, scope)
    if i.opcode in _CHECKS:
        yield from _CHECKS[i.opcode](i, scope)


def _finding(
    i: Instruction, computation: Computation, constraint: Constraint, message: str, release: Release
) -> Finding:
    return Finding(
        computation=computation.name,
        instruction=i.name,
        opcode=i.opcode,
        rule=constraint.rule,
        code=constraint.code,
        severity=constraint.severity,
        message=message,
        quotation=constraint.quotation,
        source=constraint.source,
        advice=constraint.advice,
        release=str(release),
    )
