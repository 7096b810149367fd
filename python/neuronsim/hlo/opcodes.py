"""What an instruction's attributes mean to the op table, and the opcodes that have no row in it."""

from __future__ import annotations

from typing import Any

from neuronsim import ops
from neuronsim.errors import InvalidArgument, UnsupportedOperator
from neuronsim.hlo.attribute_names import ATTRIBUTES
from neuronsim.hlo.instruction_settings import read_settings, stated_settings
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, simple_reducer

# Opcodes that arrange values and compute nothing.
STRUCTURE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "call", "fusion", "while", "conditional"}
    | {"opt-barrier", "after-all", "add-dependency"}
)

CONVERTS = frozenset({"convert", "reduce-precision"})  # round to another type or format, no more

# What gives another value at each call, on each replica.
VARIES = ops.COLLECTIVES | {"rng", "rng-get-and-update-state", "replica-id", "partition-id"}
# Not constant whatever the operands are: what depends on the run, the replica or a trip count.
NEVER_CONSTANT = VARIES | {
    *("parameter", "custom-call", "rng-bit-generator", "after-all"),
    *("while", "conditional", "infeed", "outfeed", "send", "recv"),
}

# What XLA's compiler wrote of a loop changes no value: the attribute is there where the file has it.
NOTED = frozenset({("while", "backend_config")})


def row(instruction: Instruction) -> ops.Op:
    """The op table's row of an instruction; raises UnsupportedOperator where there is none."""
    return ops.by_opcode(instruction.opcode, instruction.attributes)


def row_attributes(module: Module, instruction: Instruction) -> dict[str, Any]:
    """An instruction's attributes as the row takes them: with what HLO leaves to the result's shape
    (`dims` and `dtype`, or `results`, the types of several), what its frontend attributes state, the
    computations that it applies to elements (`computations`), and the simple reducer that the last of
    them is, or None (`reducer`).
    """
    attributes = {k: v for k, v in instruction.attributes.items() if k not in _NOT_OF_ROWS}
    if isinstance(instruction.shape, Shape):
        attributes["dims"] = instruction.shape.dims
        attributes["dtype"] = instruction.shape.dtype
    elif instruction.opcode in _STATES_ITS_ARRAY:
        raise InvalidArgument("gives one array, and the file says a tuple")
    else:
        attributes["results"] = instruction.result
    if instruction.opcode == "dot":
        attributes |= ops.algorithm_attributes(attributes.get("algorithm", ""))
    attributes |= read_settings(instruction).of_row
    if instruction.opcode == "custom-call":
        target, config = attributes["custom_call_target"], attributes.get("backend_config", b"")
        attributes |= ops.custom_call_attributes(target, config, instruction.result)
    if instruction.opcode == "partition-id":
        attributes["partitioned"] = _is_partitioned(module)
    if instruction.opcode in APPLIES_SCALARS:
        attributes["computations"] = tuple(
            scalar_computation(module, name, instruction.opcode) for name in instruction.called
        )
        attributes["reducer"] = next((c.reducer for c in attributes["computations"][-1:]), None)
    return attributes


_NOT_OF_ROWS = frozenset({"called", "frontend_attributes"})
# Opcodes whose one result is what their shape says.
_STATES_ITS_ARRAY = frozenset(
    {"broadcast", "reshape", "iota", "convert", "bitcast", "bitcast-convert", "rng"}
    | {"rng-get-and-update-state"}
)


def _is_partitioned(module: Module) -> bool:
    """Whether a module is one partition's program: its collectives name channels, as XLA's partitioner
    makes them, or there are none, and nothing asks for a replica.
    """
    instructions = list(module.instructions)
    collectives = [i for i in instructions if i.opcode in ops.COLLECTIVES]
    channels = any(i.attributes.get("channel_id") for i in instructions) or not collectives
    return channels and not any(i.opcode == "replica-id" for i in instructions)


# Opcodes whose computations are applied to elements, one by one.
APPLIES_SCALARS = frozenset(o for o, held in ATTRIBUTES.items() if "called" in held) - STRUCTURE


def scalar_computation(module: Module, name: str, what: str) -> ops.ScalarComputation:
    """A computation of scalars with its calls inlined; raises UnsupportedOperator for one that does
    more than elementwise arithmetic.
    """
    found = module.scalar_computations.get(name)
    if found is None:
        computation = module.by_name[name]
        for p in computation.parameters:
            if p.array.dims != ():
                raise InvalidArgument(f"its computation {name!r} takes {p.array.type}, not a scalar")
        types = tuple(p.array.dtype for p in computation.parameters)
        steps: list[ops.ScalarStep] = []
        arguments = [[n] for n in range(len(types))]
        results = _scalar_steps(module, computation, arguments, len(types), steps, what)
        reducer = simple_reducer(computation)
        found = ops.ScalarComputation(name, types, tuple(steps), tuple(results), reducer)
        module.scalar_computations[name] = found
    return found


def _scalar_steps(
    module: Module,
    computation: Computation,
    arguments: list[list[int]],
    count: int,
    steps: list[ops.ScalarStep],
    what: str,
) -> list[int]:
    """Adds the steps of a computation; returns the numbers of its results (a tuple is several)."""
    values: dict[str, list[int]] = {}
    for i in computation.instructions:
        if stated := stated_settings(i.attributes):
            raise InvalidArgument(
                f"computation {computation.name!r} of a {what} states {', '.join(stated)} of {i.name}: "
                "what is applied to elements rounds as the instruction that applies it"
            )
        operands = [values[o] for o in i.operands]
        if i.opcode == "parameter":
            values[i.name] = arguments[int(i.attributes["number"])]
        elif i.opcode == "tuple":
            values[i.name] = [n for o in operands for n in o]
        elif i.opcode == "get-tuple-element":
            values[i.name] = [operands[0][int(i.attributes["tuple_index"])]]
        elif i.opcode in ("call", "fusion"):
            callee = module.by_name[i.called[0]]
            values[i.name] = _scalar_steps(module, callee, operands, count, steps, what)
        elif isinstance(i.shape, Shape) and i.shape.dims == () and i.opcode in _SAME_SCALAR:
            values[i.name] = operands[0]
        else:
            steps.append(_scalar_step(i, [n for o in operands for n in o], computation, what))
            values[i.name] = [count + len(steps) - 1]
    return values[computation.root]


_SAME_SCALAR = frozenset({"reshape", "broadcast", "copy", "opt-barrier"})


def _scalar_step(
    i: Instruction, operands: list[int], computation: Computation, what: str
) -> ops.ScalarStep:
    if isinstance(i.shape, Shape) and i.shape.dims == ():
        if i.opcode == "constant":
            literal: ops.Bits = i.attributes["literal"]
            constant = int.from_bytes(literal.data.tobytes(), "little")
            return ops.ScalarStep(None, {}, (), i.shape.dtype, constant)
        if i.opcode in ops.OPCODES:
            op = row(i)
            if op.core is not None or op.name in ("convert", "reduce_precision"):
                return ops.ScalarStep(op, i.attributes, tuple(operands), i.shape.dtype)
    raise UnsupportedOperator(
        f"computation {computation.name!r} of a {what} has {i.opcode} ({i.name}): neuronsim applies "
        "elementwise arithmetic on scalars to elements: write the rest as instructions of its own"
    )
