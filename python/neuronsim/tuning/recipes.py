"""What a plan means for a user: a policy file, and what to change in the model's source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies.policy import Policy
from neuronsim.casting.policies.policy_file import SCHEMA, toml_text
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, graph_computations
from neuronsim.tuning.results import KeptInstruction, PlanResult

LISTED = 12  # places that a recipe spells out


def policy_text(found: PlanResult, base: Plan, module: Module, inf1: Policy | None = None) -> str:
    """The plan as a policy file (TOML): its base, which must be a policy's name or file, or else be
    `inf1`'s, and a rule for each type that instructions have instead. A policy of it gives the same
    types.

    Raises InvalidArgument where the base is a plan's file, on which no policy can rest.
    """
    if found.base.endswith(".json") and base.policy != found.base:
        raise InvalidArgument(
            f"{found.base} is a plan, and a policy rests on another policy: write the plan (.json)"
        )
    rules = list(_rules(found, base, module))
    foundation = {"base": _base_name(found.base)}
    if inf1 is not None:
        foundation = {"base": inf1.name.partition("+")[0]}
        # A key of its own, which the name has too.
        foundation["relayout"] = inf1.relayout.name if inf1.relayout else "none"
    body = {"schema": SCHEMA, "name": found.name, **foundation, "rule": rules}
    return toml_text(body)


def _base_name(name: str) -> str:
    """A policy's name, or its file's whole path, since a base is looked up beside the file."""
    return str(Path(name).resolve()) if Path(name).suffix in (".toml", ".json") else name


def _rules(found: PlanResult, base: Plan, module: Module) -> Iterator[dict[str, Any]]:
    """Rules, their instructions in the module's order."""
    own, kept = found.plan.decisions, {k.name for k in found.kept}
    order = [i.name for c in graph_computations(inline_calls(module)) for i in c.instructions]
    gone = [n for n in order if n in base.decisions and n not in own]
    computing = [n for n in gone if n in kept]
    moved = [n for n in gone if n not in kept]
    if computing:
        yield _rule("the tolerance needs it in float32", computing, category="never")
    if moved:
        yield _rule("it only moves values, which stay float32", moved, category="never")
    other: dict[tuple[str, ...], list[str]] = {}
    for n in order:
        if n in own and n in base.decisions:
            a, b = own[n], base.decisions[n]
            types, of_base = (
                (d.operand.name, d.accumulate.name, d.output.name, d.rounding) for d in (a, b)
            )
            if types != of_base:
                other.setdefault(types, []).append(n)
    for (low, *others), names in other.items():
        stated = zip(("accumulate", "output", "rounding"), others, strict=True)
        more = {key: value for key, value in stated if value}
        yield _rule(f"the tolerance allows {low} here", names, category="always", low=low, **more)


def _rule(reason: str, names: Sequence[str], **decides: str) -> dict[str, Any]:
    return {"reason": reason, **decides, "name": [escaped(n) for n in names]}


def escaped(name: str) -> str:
    """A name that stands for itself where wildcards may stand."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def source_recipe(kept: Sequence[KeptInstruction]) -> str:
    """What to do in the model's source, framework by framework: the modules and lines of what stays
    wide.
    """
    if not kept:
        return "nothing stays in float32: the flags alone do it"
    places = _places(kept)
    listed = [f"    {place}: {', '.join(opcodes)}" for place, opcodes in list(places.items())[:LISTED]]
    more = len(places) - LISTED
    listed += [f"    and {more} more places, which the plan lists"] if more > 0 else []
    only_products = {k.opcode for k in kept} <= {"dot", "convolution"}
    types = (
        "float32" if all(k.type == "float32" for k in kept) else "float32, or the type that is named"
    )
    lines = [f"in the source, keep in {types}:", *listed]
    lines += ["PyTorch: around these modules"]
    lines += ['    with torch.autocast("xla", enabled=False): y = module(x.float())']
    if only_products:
        lines += ["JAX: around these products", '    with jax.default_matmul_precision("float32"): ...']
    else:
        lines += ["JAX: keep their arguments float32: f(x.astype(jax.numpy.float32))"]
    return "\n".join(lines)


def _places(kept: Sequence[KeptInstruction]) -> Mapping[str, list[str]]:
    """The operations by the module, node or source line that they are from."""
    found: dict[str, list[str]] = {}
    for k in kept:
        place = _module_of(k) or k.source or k.name
        if k.source and place != k.source:
            place = f"{place} ({k.source})"
        opcodes = found.setdefault(place, [])
        said = k.opcode if k.type == "float32" else f"{k.opcode} in {k.type}"
        if said not in opcodes:
            opcodes.append(said)
    return found


def _module_of(k: KeptInstruction) -> str:
    """The scope without the operation itself."""
    head, _, _ = k.scope.rpartition("/")
    return head or k.scope
