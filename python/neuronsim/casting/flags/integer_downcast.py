"""`--implicit-integer-downcast`: operations on integers that the device computes in a narrower type.

Facts: `reference/neuron.md` 1.4 in the project's research notes, from AWS's command line reference of
SDK 2.32 and its pages of error codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from neuronsim.errors import UnsupportedOperator
from neuronsim.hlo import conformance
from neuronsim.hlo.findings import Finding, locations
from neuronsim.hlo.module import Module
from neuronsim.targets import Release, Target, at_least

SINCE = "2.32"


class IntegerDowncast(NamedTuple):
    """AWS's error code where it is not permitted, the type that computes, up to what that is exact, and
    the narrowest integers, in bits, that are refused.
    """

    code: str
    computed_in: str
    exact_to: str
    refused_from: int = 32


# By the names of the option's list. NeuronCore-v2 has 32-bit integer products, so that only those of
# 64 bits are refused there (NCC_EVRF035).
INTEGER_DOWNCASTS: Mapping[str, IntegerDowncast] = {
    "dot": IntegerDowncast("NCC_EVRF035", "float32", "2^24", 64),
    "scatter": IntegerDowncast("NCC_EVRF060", "float32", "2^24"),
    "all_reduce": IntegerDowncast("NCC_EVRF061", "float32", "2^24"),
    "reduce_scatter": IntegerDowncast("NCC_EVRF063", "float32", "2^24"),
    "pow": IntegerDowncast("NCC_EVRF062", "int32", "2^31", 64),
}


def check_integer_downcasts(
    module: Module, permitted: Collection[str], release: Release, target: Target
) -> tuple[str, ...]:
    """A warning for each operation of a module that computes integers in a narrower type, with its
    instructions and what that type holds exactly; nothing before SDK 2.32, which brought the option.

    `permitted` holds names of INTEGER_DOWNCASTS. Raises UnsupportedOperator, with AWS's code, for all
    instructions whose operation is not among them.
    """
    if not at_least(release, SINCE):
        return ()
    findings = conformance.check(module, release, target)
    warnings, refused = [], []
    for name, downcast in INTEGER_DOWNCASTS.items():
        found = [f for f in findings if f.code == downcast.code]
        if name not in permitted:
            refused += [(f, name) for f in found if _width(module, f) >= downcast.refused_from]
        elif found:
            warnings.append(
                f"{locations(found)}: integers are computed in {downcast.computed_in}, "
                f"which holds them up to {downcast.exact_to} [{downcast.code}]; "
                f"--implicit-integer-downcast permits {name}"
            )
    if refused:
        listed = "; ".join(f"{locations([f])}: {f.message} [{f.code}]" for f, _ in refused)
        names = {*permitted, *(name for _, name in refused)}
        needed = ",".join(name for name in INTEGER_DOWNCASTS if name in names)
        raise UnsupportedOperator(
            f"--implicit-integer-downcast does not permit what {target.name} computes in a narrower "
            f"type: {listed}. Cast to floating point, or permit it with --implicit-integer-downcast "
            f"{needed}"
        )
    return tuple(warnings)


def _width(module: Module, finding: Finding) -> int:
    """Bits of the widest integer operand."""
    computation = module.by_name[finding.computation]
    operands = computation.by_name[finding.instruction].operands
    types = [s.type.dtype for o in operands for s in computation.by_name[o].shape.arrays()]
    return max((t.bits for t in types if t.kind in ("signed", "unsigned")), default=0)
