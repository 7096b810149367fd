"""Writes the generated tables of docs/casting.md and casting_lint.md: `python docs/make_casting.py`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from neuronsim import dtypes
from neuronsim.api import calibrate, read_model
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.lint.rules import RULES
from neuronsim.casting.plans.casts import casts
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies import POLICIES
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.operations import names_of
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, graph_computations
from neuronsim.hlo.recognition.composites import recognise
from neuronsim.targets import find_target

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("casting.md", "casting_lint.md")]
NETWORKS = {
    "digits": "examples/digits/model.hlo.pb",
    "transformer": "tests/data/networks/transformer.hlo.pb",
    "resnet18": "tests/data/networks/resnet18.hlo.pb",
}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def types() -> str:
    """The float types of rule F: range, precision, density."""
    rows = []
    for t in dtypes.DTYPES.values():
        if t.exponent_bits:
            has_subnormals = t.smallest_normal * 2.0**-t.mantissa_bits
            rows.append(
                [
                    f"`{t.name}`",
                    f"1/{t.exponent_bits}/{t.mantissa_bits}",
                    f"{has_subnormals:.4g}",
                    f"{t.smallest_normal:.4g}",
                    f"{t.max:.8g}",
                    f"{t.eps:.4g}",
                    f"{2**t.mantissa_bits}",
                    "Inf, NaN" if t.has_inf else "NaN",
                ]
            )
    header = ("type", "s/e/m", "least", "least normal", "largest", "epsilon", "values per octave")
    return table((*header, "special"), rows)


@cache
def modules() -> Mapping[str, Module]:
    """The networks, calls inlined."""
    return {name: inline_calls(read_model(ROOT / path)) for name, path in NETWORKS.items()}


@cache
def plan_of(network: str, policy: str) -> Plan:
    """What a policy decides for a network on trn1."""
    needs_values = any(rule.above is not None for rule in POLICIES[policy].rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that TVM's lists do not have
        values = calibration(network) if needs_values else None
        return make_plan(modules()[network], POLICIES[policy], find_target("trn1"), values)


@cache
def calibration(network: str) -> Calibration:
    """A float32 run: on 64 images of the digits' data, or on one batch of normal random numbers."""
    module = modules()[network]
    (x,) = [i for i in module.entry_computation.instructions if i.opcode == "parameter"]
    if network == "digits":
        with np.load(ROOT / "examples/digits/test.npz") as data:
            values = data["x"][:64]
    else:
        values = np.random.default_rng(0).standard_normal(x.array.dims, np.float32)
    return calibrate(module, {x.name.partition(".")[0]: values})


@cache
def decisions(network: str) -> str:
    """For each kind of operation of a network, what the policies that differ make of it."""
    rows = _kinds(modules()[network])
    columns: dict[tuple[str, ...], list[str]] = {}
    for policy in POLICIES:
        plan = plan_of(network, policy)
        cells = tuple(_cell([plan.decisions.get(n) for n in names]) for names in rows.values())
        columns.setdefault(cells, []).append(policy)
    titles = [f"{kind} ({len(names)})" for kind, names in rows.items()]
    body = [[title, *(cells[n] for cells in columns)] for n, title in enumerate(titles)]
    return table(("operations", *map(_families, columns.values())), body)


def _kinds(module: Module) -> Mapping[str, list[str]]:
    """The instructions of a network by what they are: a composite, an opcode, or data movement."""
    found: dict[str, list[str]] = {}
    for c in graph_computations(module):
        composites = {m: k for k in recognise(c, module) for m in k.members}
        for i in c.instructions:
            name, *others = names_of(i, module.by_name)
            if i.name in composites:
                name = composites[i.name].kind
            elif "movement" in others:
                name = "data movement"
            if i.opcode != "parameter":
                found.setdefault(name, []).append(i.name)
    first = ("dot", "convolution", "softmax", "layer_norm", "batch_norm", "gelu", "gelu_tanh")
    order = (*first, "reduce-add", "add", "multiply", "divide", "maximum")
    return {n: found[n] for n in (*order, *sorted(found.keys() - set(order))) if n in found}


def _cell(decided: Sequence[Decision | None]) -> str:
    """What becomes of some instructions, in few words."""
    words = [_word(d) for d in decided]
    if len(set(words)) == 1:
        return words[0]
    low = sum(word != "float32" for word in words)
    sums = ", sums low" if any("sums" in word for word in words) else ""
    return f"{'' if low == len(words) else f'{low} of {len(words)} '}low{sums}"


def _word(d: Decision | None) -> str:
    if d is None or (d.operand is d.output is dtypes.float32):
        return "float32"
    given = ", gives float32" if d.output is dtypes.float32 else ""
    return f"low{given}{', sums low' if d.accumulate is not dtypes.float32 else ''}"


def _families(names: Sequence[str]) -> str:
    """Names of policies; where those of all types are among them, once for all."""
    family = {name: name.partition("/")[0] for name in POLICIES}
    whole = [
        f for f in dict.fromkeys(family.values()) if {n for n in POLICIES if family[n] == f} <= {*names}
    ]
    several = [f for f in whole if list(family.values()).count(f) > 1]
    short = [f"{family[n]}/T" if family[n] in several else n for n in names]
    return "<br>".join(f"`{name}`" for name in dict.fromkeys(short))


def policies() -> str:
    """How many casts the policies make, and of how many bytes."""
    found: dict[tuple[str, ...], list[str]] = {}
    for policy in POLICIES:
        found.setdefault(tuple(_casts(network, policy) for network in NETWORKS), []).append(policy)
    rows = [[_families(names), *cells] for cells, names in found.items()]
    return table(("policy", *NETWORKS), rows)


@cache
def _casts(network: str, policy: str) -> str:
    module, plan = modules()[network], plan_of(network, policy)
    if not plan.decisions:
        return "none"
    clean, literal = (
        [c for c in casts(module, apply_plan(module, plan, clean=k), plan) if not c.of_constant]
        for k in (True, False)
    )
    sizes = [f"{sum(c.bytes for c in found) / 1024:,.1f}" for found in (clean, literal)]
    return f"{len(clean)}, {sizes[0]} KiB ({len(literal)}, {sizes[1]})"


def findings() -> str:
    """The rules of lint."""
    rows = []
    for rule in RULES:
        assert rule.check.__doc__ is not None
        what = " ".join(rule.check.__doc__.split())
        rows.append([f"`{rule.name}`", rule.severity, rule.label, what, rule.advice])
    return table(("Finding", "Severity", "Rule", "Example", "Repair in the source"), rows)


def page(text: str) -> str:
    """A page with its tables made anew."""
    tables: dict[str, Callable[[], str]] = {n: partial(decisions, n) for n in NETWORKS}
    for name, make in (tables | {"policies": policies, "types": types, "findings": findings}).items():
        begin = f"<!-- generated by docs/make_casting.py: {name} -->\n"
        if begin not in text:
            continue
        pattern = re.compile(re.escape(begin) + ".*?<!-- end -->", re.DOTALL)
        made = make()
        text = "".join(f"{begin}{made}<!-- end -->".join(pattern.split(text)))
    return text


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text()))
