"""The parameters of a module that another library made: their names, their places, and constants in the
place of those whose values are known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from neuronsim import ops
from neuronsim.hlo.module import Computation, Instruction, Metadata, Module, Shape


def set_parameters(
    module: Module,
    numbers: Sequence[int],
    labels: Sequence[str],
    constants: Mapping[int, ops.Bits],
    absent: Mapping[int, ops.ArrayType],
) -> Module:
    """The module of a function's leaves, which have `labels`: its parameters are the leaves `numbers`,
    in their order, and those of `absent` have none, since nothing reads them. `constants` are the
    leaves whose values are known.
    """
    entry = module.entry_computation
    place = parameter_numbers(len(labels), constants)
    names = _names(labels, {i.name for i in entry.instructions if i.opcode != "parameter"})
    renamed: dict[str, str] = {}
    made = [
        Instruction(names[n], "parameter", Shape(t.dtype, t.dims), (), {"number": place[n]})
        for n, t in absent.items()
        if n in place
    ]
    for i in entry.instructions:
        if i.opcode != "parameter":
            made.append(i.reading(renamed))
            continue
        leaf = numbers[i.attributes["number"]]
        renamed[i.name], origin = names[leaf], Metadata(op_name=labels[leaf])
        if leaf in place:
            own = {"number": place[leaf]}
            made.append(i.replace(name=names[leaf], attributes=own, metadata=origin))
        else:
            literal = {"literal": constants[leaf]}
            made.append(Instruction(names[leaf], "constant", i.shape, (), literal, origin))
    changed = Computation(entry.name, tuple(made), renamed.get(entry.root, entry.root))
    aliases = tuple(
        (output, place[numbers[number]], index, kind)
        for output, number, index, kind in module.input_output_alias
        if numbers[number] in place
    )
    return replace(
        module.replace_entry(changed),
        parameter_names=(),
        input_output_alias=aliases,
        entry_layout=None,
    )


def parameter_numbers(leaves: int, constants: Container[int]) -> dict[int, int]:
    """The number of the parameter that each of so many leaves is, but for the constants."""
    return {n: at for at, n in enumerate(n for n in range(leaves) if n not in constants)}


def _names(labels: Iterable[str], taken: set[str]) -> list[str]:
    """The labels; one that another instruction has gets an underscore."""
    names: list[str] = []
    for label in labels:
        name = label
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names
