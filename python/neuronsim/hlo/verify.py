"""The verifier: every instruction has the operands, attributes and type that its opcode asks for."""

from __future__ import annotations

from collections.abc import Sequence

from neuronsim import dtypes, ops
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    UnsupportedOperator,
    UnsupportedType,
    first_few,
)
from neuronsim.hlo.attribute_names import ATTRIBUTES
from neuronsim.hlo.error_codes import TYPE_CODES
from neuronsim.hlo.inlining import check_size
from neuronsim.hlo.instruction_settings import read_settings
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Literal,
    Module,
    Shape,
    TupleShape,
    row_major,
    without_layouts,
)
from neuronsim.hlo.opcodes import STRUCTURE, row, row_attributes


def verify(module: Module) -> None:
    """Raises InvalidModel for a graph that contradicts itself or is too large (`check_size`),
    UnsupportedOperator for one that neuronsim cannot execute. The latter lists every such operator.
    """
    check_size(module)
    unknown: dict[str, list[str]] = {}
    for computation in module.computations:
        for i in computation.instructions:
            if i.opcode not in STRUCTURE and i.opcode not in ops.OPCODES:
                unknown.setdefault(i.opcode, []).append(i.name)
    if unknown:
        listed = "; ".join(
            f"{opcode} ({first_few(names, 1)})" for opcode, names in sorted(unknown.items())
        )
        outward = any(opcode.startswith(_OUTWARD) for opcode in unknown)
        more = f" {', '.join(_OUTWARD)}: make what they carry inputs and results." if outward else ""
        raise UnsupportedOperator(
            f"[NCC_EVRF001] neuronsim does not execute these operators of {module.name!r} yet: "
            f"{listed}. `neuronsim list-operators` prints those that it does (XlaBuilder names): "
            f"replace them by these, or compute them outside the model.{more}"
        )
    for computation in module.computations:
        _verify_computation(module, computation)
    for path, number, inside, _ in module.input_output_alias:
        if not 0 <= number < len(module.parameters) or min((*path, *inside), default=0) < 0:
            raise InvalidModel(
                f"{module.name!r}: input_output_alias names element {path} of the result and {inside} "
                f"of parameter {number}, and there are {len(module.parameters)} parameters"
            )


_OUTWARD = ("send", "recv", "infeed", "outfeed")  # exchange with what is outside of the program


def _verify_computation(module: Module, computation: Computation) -> None:
    numbers = [p.attributes["number"] for p in computation.parameters]
    if numbers != list(range(len(numbers))):
        raise InvalidModel(f"computation {computation.name!r} numbers its parameters {numbers}")
    for i in computation.instructions:
        where = f"{computation.name}/{i.name}"
        try:
            _verify_instruction(module, computation, i)
        except (InvalidArgument, InvalidModel) as error:
            raise InvalidModel(f"[NCC_EVRF064] {where} ({i.opcode}): {error}") from error
        except UnsupportedOperator as error:
            raise UnsupportedOperator(f"{where} ({i.opcode}): {error}") from error
        except UnsupportedType as error:
            code = _code_of_type(computation, i)
            raise UnsupportedType(f"{code}{where} ({i.opcode}): {error}") from error


def _code_of_type(computation: Computation, i: Instruction) -> str:
    """AWS's code of the first type of an instruction that Trainium lacks. What is refused here is on
    every target, so that the advice is the operation's, not AWS's.
    """
    shapes = [s for n in (*(computation.by_name[o] for o in i.operands), i) for s in n.shape.arrays()]
    lacking = (TYPE_CODES[s.dtype] for s in shapes if s.dtype in TYPE_CODES and not s.dtype.device)
    code = next(lacking, None)
    return f"[{code}] " if code else ""


def _verify_instruction(module: Module, computation: Computation, i: Instruction) -> None:
    operands = [computation.by_name[o] for o in i.operands]
    if "called" in ATTRIBUTES.get(i.opcode, ()) and not i.called:
        raise InvalidArgument("calls no computation")
    if i.opcode in STRUCTURE:
        read_settings(i)
        _verify_structure(module, i, operands)
        return
    op, attributes = row(i), row_attributes(module, i)
    if op.arity >= 0 and len(operands) != op.arity:
        raise InvalidArgument(f"takes {op.arity} operands, not {len(operands)}")
    if op.arity < 0 and not operands:
        raise InvalidArgument("takes at least one operand")
    if i.opcode == "bitcast":
        _verify_layouts(i.array, operands[0].array)
    try:
        inferred = op.infer([o.array.type for o in operands], attributes)
    except KeyError as missing:  # what only an array's shape says
        if missing.args[0] not in ("dims", "dtype"):
            raise
        raise InvalidArgument("it gives one array, the file says a tuple") from missing
    stated = i.result
    if inferred != stated:
        raise InvalidArgument(f"its operands give {_listed(inferred)}, the file says {_listed(stated)}")
    if op.core is not None:
        ops.check_elementwise(op, operands[-1].array.dtype, i.array.dtype)


def verify_replicas(module: Module, replicas: int) -> None:
    """Raises InvalidArgument for a collective that does not go with this number of replicas."""
    for computation in module.computations:
        for i in computation.instructions:
            if i.opcode not in ops.COLLECTIVES:
                continue
            where = f"{computation.name}/{i.name} ({i.opcode})"
            types = [computation.by_name[o].array.type for o in i.operands]
            try:
                attributes = ops.with_groups(row(i), row_attributes(module, i), replicas)
                inferred = row(i).infer(types, attributes)
            except InvalidArgument as error:
                raise InvalidArgument(f"{where}: {error}") from error
            if inferred != i.result:
                raise InvalidArgument(
                    f"{where}: on {replicas} replicas it gives {_listed(inferred)}, the file says "
                    f"{_listed(i.result)}: compile for another number of replicas"
                )


def _listed(result: ops.Result) -> str:
    return str(result) if isinstance(result, ops.ArrayType) else f"({', '.join(map(str, result))})"


def _verify_layouts(*shapes: Shape) -> None:
    """A bitcast reads the same memory in another shape, which in row-major order is a reshape."""
    for s in shapes:
        if s.layout not in (None, row_major(len(s.dims))):
            raise UnsupportedOperator(
                f"bitcast with the layout {s.layout}: neuronsim takes modules as they are before a "
                "compiler chooses layouts, row-major"
            )


def _verify_structure(module: Module, i: Instruction, operands: list[Instruction]) -> None:
    if i.opcode in ("parameter", "constant"):
        if operands:
            raise InvalidArgument("takes no operands")
        if i.opcode == "constant" and not _has_shape(i.attributes["literal"], i.shape):
            raise InvalidArgument("its literal has another shape than the constant")
    elif i.opcode == "tuple":
        if not isinstance(i.shape, TupleShape) or len(i.shape.elements) != len(operands):
            raise InvalidArgument("its shape is not the tuple of its operands' shapes")
        for element, operand in zip(i.shape.elements, operands, strict=True):
            _require_equal(element, operand)
    elif i.opcode == "get-tuple-element":
        index = i.attributes["tuple_index"]
        shapes = (
            operands[0].shape.elements
            if len(operands) == 1 and isinstance(operands[0].shape, TupleShape)
            else ()
        )
        if not 0 <= index < len(shapes):
            raise InvalidArgument(f"element {index} of a value that has {len(shapes)}")
        _require_same_type(shapes[index], i)
    elif i.opcode in ("call", "fusion"):
        _verify_called(module, i, i.called[:1], operands)
    elif i.opcode == "while":
        _verify_while(module, i, operands)
    elif i.opcode == "conditional":
        _verify_conditional(module, i, operands)
    elif i.opcode in ("opt-barrier", "add-dependency"):
        if not operands:
            raise InvalidArgument("takes an operand")
        _require_same_type(operands[0].shape, i)
    elif i.opcode == "after-all" and i.shape.arrays():
        raise InvalidArgument("gives a token")


def _verify_called(
    module: Module, i: Instruction, called: Sequence[str], operands: Sequence[Instruction]
) -> None:
    """That the computations take these operands and give what the instruction does."""
    for name in called:
        callee = module.by_name[name]
        if len(callee.parameters) != len(operands):
            raise InvalidArgument(
                f"{callee.name!r} takes {len(callee.parameters)} arguments, not {len(operands)}"
            )
        for parameter, operand in zip(callee.parameters, operands, strict=True):
            _require_equal(parameter.shape, operand)
        _require_equal(i.shape, callee.by_name[callee.root])


def _verify_while(module: Module, i: Instruction, operands: list[Instruction]) -> None:
    if len(operands) != 1 or len(i.called) != 2:
        raise InvalidArgument("takes one operand, and calls a body and a condition")
    body, condition = i.called
    _require_same_type(operands[0].shape, i)
    _verify_called(module, i, [body], operands)
    goes_on = module.by_name[condition]
    root = goes_on.by_name[goes_on.root]
    if root.result != ops.ArrayType(dtypes.boolean, ()):
        raise InvalidArgument(f"its condition {condition!r} gives {_listed(root.result)}, not one bool")
    if len(goes_on.parameters) != 1:
        raise InvalidArgument(f"its condition {condition!r} takes {len(goes_on.parameters)} arguments")
    _require_equal(goes_on.parameters[0].shape, operands[0])


def _verify_conditional(module: Module, i: Instruction, operands: list[Instruction]) -> None:
    if not operands or len(operands) != len(i.called) + 1:
        raise InvalidArgument(
            f"{len(i.called)} branches take an operand each, after the one that chooses: there are "
            f"{len(operands)} operands"
        )
    if not i.called:
        raise InvalidArgument("there is no branch to choose")
    index = operands[0].array.type
    is_predicate = index == ops.ArrayType(dtypes.boolean, ())
    if not is_predicate and index != ops.ArrayType(dtypes.int32, ()):
        raise InvalidArgument(f"one bool or int32 chooses a branch, not {index}")
    if is_predicate and len(i.called) != 2:
        raise InvalidArgument(f"a bool chooses between two branches, not {len(i.called)}")
    for name, operand in zip(i.called, operands[1:], strict=True):
        _verify_called(module, i, [name], [operand])


def _has_shape(literal: Literal, shape: AnyShape) -> bool:
    if isinstance(shape, Shape) or isinstance(literal, ops.Bits):
        return isinstance(shape, Shape) and isinstance(literal, ops.Bits) and literal.type == shape.type
    return len(literal) == len(shape.elements) and all(map(_has_shape, literal, shape.elements))


def _require_equal(expected: Shape | TupleShape, operand: Instruction) -> None:
    if without_layouts(expected) != without_layouts(operand.shape):
        raise InvalidArgument(f"operand {operand.name!r} has another shape than is expected of it")


def _require_same_type(expected: Shape | TupleShape, i: Instruction) -> None:
    if without_layouts(expected) != without_layouts(i.shape):
        raise InvalidArgument("the file gives it another shape than the tuple's element has")
