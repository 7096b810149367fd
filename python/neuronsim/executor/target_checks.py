"""What a target lacks for a module: that is said before anything is compiled."""

from __future__ import annotations

import math
import os

from neuronsim import ops
from neuronsim.dtypes import DType
from neuronsim.errors import OutOfMemory, UnsupportedOperator, UnsupportedType, first_few
from neuronsim.hlo.error_codes import ERROR_CODES, TYPE_CODES
from neuronsim.hlo.module import Module
from neuronsim.hlo.opcodes import row
from neuronsim.targets import Target


def check_target(module: Module, target: Target) -> None:
    """Raises UnsupportedType, UnsupportedOperator or OutOfMemory for what the target lacks."""
    check_types(module, target)
    check_operations(module, target)
    check_memory(module, target)


def check_types(module: Module, target: Target) -> None:
    """Raises UnsupportedType, with AWS's code, for element types that the target does not have."""
    found: dict[DType, list[str]] = {}
    for i in module.instructions:
        for shape in i.shape.arrays():
            if shape.dtype not in target.types:
                found.setdefault(shape.dtype, []).append(i.name)
    if found:
        dtype, where = next(iter(found.items()))
        code = "NCC_ESPP004" if dtype.device else TYPE_CODES[dtype]
        advice = ERROR_CODES[code].advice.capitalize()
        given = {p.name for p in module.parameters}.intersection(where)
        if dtype.name == "float64" and given:
            advice += f", and the example of {first_few(sorted(given), 3)}: NumPy's default is float64"
        raise UnsupportedType(
            f"[{code}] {target.name} has no {dtype.name}: instruction {first_few(where, 1)} of "
            f"{module.name!r} gives it. "
            f"{advice}; target 'host' runs it without a device"
        )


def check_operations(module: Module, target: Target) -> None:
    """Raises UnsupportedOperator, with AWS's code, for operations that only the host has."""
    found: dict[str, list[str]] = {}
    for i in module.instructions:
        if i.opcode in ops.OPCODES and not target.is_host and row(i).host_only:
            what = i.attributes.get("custom_call_target", i.opcode)
            found.setdefault(what, []).append(i.name)
    if found:
        listed = "; ".join(f"{what} ({first_few(names, 1)})" for what, names in sorted(found.items()))
        code = "NCC_EVRF001" if found.keys() & ops.OPCODES else "NCC_EVRF015"
        raise UnsupportedOperator(
            f"[{code}] {target.name} has no {listed} of {module.name!r}: compute it outside the model "
            "and pass the result in, or compile for target 'host' (--target host), where NumPy "
            "computes it (H1)"
        )


def check_memory(module: Module, target: Target) -> None:
    """Raises OutOfMemory for an array that is larger than the target's memory, or this machine's."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = ((target.memory, target.name, "[NCC_EOOM001] "), (here, "this machine", ""))
    for i in module.instructions:
        for shape in i.shape.arrays():
            # A zero-sized array is indexed by its other lengths all the same.
            size = math.prod(n for n in shape.dims if n) * shape.dtype.itemsize
            for limit, owner, code in limits:
                if size > limit:
                    raise OutOfMemory(
                        f"{code}{i.name} is {shape.type}: {size >> 30} GiB do not fit in the "
                        f"{limit >> 30} GiB of {owner}"
                    )
