"""Asynchronous pairs: what starts an operation, and what waits for its result.

XLA's schedulers split collectives, copies and whole computations in two, so that others run meanwhile.
The values are those of the operation at the place of its start, which `with_synchronous_pairs` puts
there: everything after the readers knows these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neuronsim.errors import InvalidModel
from neuronsim.hlo.attribute_names import OWN_HALVES
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, TupleShape, without_layouts

STARTS = frozenset({*(f"{o}-start" for o in OWN_HALVES), "async-start"})
_ENDS = frozenset({*(f"{o}-done" for o in OWN_HALVES), "async-done", "async-update"})
# What crosses the program's border has halves too, which neuronsim does not run; the rest has none.
_NO_HALVES = frozenset({"send", "recv", "infeed", "outfeed", "parameter", "constant", "async", ""})


def written_half(opcode: str) -> tuple[str, str]:
    """Text writes `negate-start` for an async-start of a computation that is one negate: the operation
    and the half that an opcode means, or ("", "") where it is no such.

    >>> written_half("negate-start"), written_half("all-reduce-start")
    (('negate', 'async-start'), ('', ''))
    """
    base, _, half = opcode.rpartition("-")
    if half not in ("start", "update", "done") or base in OWN_HALVES | _NO_HALVES:
        return "", ""
    return base, f"async-{half}"


def wrapped(i: Instruction, base: str, name: str) -> Computation:
    """The computation that a `base-start` of text stands for: the operation alone."""
    shapes = i.shape.elements if isinstance(i.shape, TupleShape) else ()
    if len(shapes) < 2 or not isinstance(shapes[0], TupleShape):
        raise InvalidModel(f"{i.name}: {i.opcode} gives its operands' shapes, its result's and others")
    operands = shapes[0].elements
    if len(operands) != len(i.operands):
        raise InvalidModel(f"{i.name}: its shape has {len(operands)} operands, not {len(i.operands)}")
    parameters = tuple(
        Instruction(f"{name}.param_{n}", "parameter", shape, (), {"number": n})
        for n, shape in enumerate(operands)
    )
    names = tuple(p.name for p in parameters)
    root = Instruction(f"{name}.{base}", base, shapes[1], names, i.attributes)
    return Computation(name, (*parameters, root), root.name)


def with_synchronous_pairs(module: Module) -> Module:
    """The module with each operation in the place of its start, and the start's name for its end's.

    Raises InvalidModel for an end without a start, for one that gives another shape than the start
    says, and for what else reads a start.
    """
    changed = tuple(map(_synchronous, module.computations))
    if all(a is b for a, b in zip(changed, module.computations, strict=True)):
        return module
    return replace(module, computations=changed)


def _synchronous(c: Computation) -> Computation:
    if not any(i.opcode in STARTS | _ENDS for i in c.instructions):
        return c
    starts: dict[str, str] = {}  # what begins of the start's opcode, by all names of its state
    renamed: dict[str, str] = {}
    body: list[Instruction] = []
    for i in c.instructions:
        if i.opcode in _ENDS:
            start = _start_of(c, i, starts, renamed)
            renamed[i.name] = start
            if i.opcode == "async-update":
                starts[i.name] = starts[i.operands[0]]
            continue
        read = next((o for o in i.operands if o in starts), None)
        if read is not None:
            raise InvalidModel(
                f"{c.name}/{i.name} reads {read}, which only its {starts[read]}-done may"
            )
        if i.opcode in STARTS:
            starts[i.name] = i.opcode.removesuffix("-start")
            i = _operation(c, i)
        body.append(i.reading(renamed))
    if c.root in starts:
        raise InvalidModel(f"{c.name}: its root {c.root} is an operation that has not ended")
    return Computation(c.name, tuple(body), renamed.get(c.root, c.root))


def _start_of(
    c: Computation, end: Instruction, starts: Mapping[str, str], renamed: Mapping[str, str]
) -> str:
    """The name of the start that an end waits for."""
    operand = end.operands[0] if len(end.operands) == 1 else ""
    if operand not in starts or starts[operand] != end.opcode.rpartition("-")[0]:
        raise InvalidModel(f"{c.name}/{end.name} ({end.opcode}) does not wait for such a start")
    start = c.by_name[renamed.get(operand, operand)]
    if end.opcode != "async-update" and without_layouts(_result(c, start)) != without_layouts(
        end.shape
    ):
        raise InvalidModel(f"{c.name}/{end.name} gives another shape than {start.name} says")
    return start.name


def _operation(c: Computation, start: Instruction) -> Instruction:
    """The whole operation that a start begins."""
    opcode = "call" if start.opcode == "async-start" else start.opcode.removesuffix("-start")
    return start.replace(opcode=opcode, shape=_result(c, start))


def _result(c: Computation, start: Instruction) -> AnyShape:
    """The result's shape in what a start gives: the operands, the result, and its own state."""
    if start.opcode == "all-reduce-start":
        return start.shape
    place = 0 if start.opcode == "copy-start" else 1
    shapes = start.shape.elements if isinstance(start.shape, TupleShape) else ()
    if len(shapes) < 2:
        raise InvalidModel(f"{c.name}/{start.name}: {start.opcode} gives a tuple with its result")
    return shapes[place]
