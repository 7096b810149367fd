"""`neuronsim lint` and `list-operators`: what AWS documents, and what a model breaks of it; and
`list-graphs`: what a compile cache holds.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from neuronsim import api, ops
from neuronsim.cli.arguments import Declare, add_casts, add_model, casts, version
from neuronsim.cli.output import wide_console
from neuronsim.errors import InvalidFlag
from neuronsim.hlo.cache import CacheEntry, list_cache
from neuronsim.hlo.conformance import Finding, group, locations, summary
from neuronsim.setups import CastRequest
from neuronsim.targets import find_release, operators


def declare_commands(declare: Declare) -> None:
    lint = declare(
        "lint",
        _lint,
        "Print what a model breaks of the constraints that AWS documents, and what its casts break.",
    )
    add_model(lint)
    add_casts(lint)
    lint.add_argument("--strict", action="store_true", help="exit status 1 if there is a finding")
    lint.add_argument("--json", action="store_true", help="print all findings as JSON")

    listing = declare(
        "list-operators",
        _list_operators,
        "Print operators by their XlaBuilder names: those that neuronsim executes, or with --sdk those "
        "that AWS documents for that release.",
    )
    listing.add_argument("--sdk", help="SDK or compiler version, such as 2.26 or 2.3.0.4")
    listing.add_argument("--compiler-version", help="the same")
    graphs = declare(
        "list-graphs",
        _list_graphs,
        "Print the graphs of AWS's compile cache: what they are, their flags, what became of them.",
    )
    graphs.add_argument("folder", help="such as /var/tmp/neuron-compile-cache")
    graphs.add_argument("--json", action="store_true", help="print them as JSON")

    listing.add_argument("--framework", default="XLA", help="XLA, as in neuronx-cc; default: XLA")


def _lint(options: argparse.Namespace) -> None:
    setup, findings = api.lint_under_setup(CastRequest(options.model, **casts(options)))
    options.status = 1 if findings and options.strict else 0  # whether or not all of it is read
    if options.json:
        report = {
            "schema": "neuronsim.lint/1",
            "model": options.model,
            "release": setup.compiler,
            "target": setup.target.name,
            "findings": [asdict(f) for f in findings],
        }
        print(json.dumps(report, indent=1))
    else:
        _print_findings(f"{options.model} under {setup.compiler} on {setup.target.name}", findings)


def _print_findings(title: str, findings: Sequence[Finding]) -> None:
    console = wide_console(highlight=False)
    console.print(f"{title}: {summary(findings)}", markup=False, soft_wrap=True)
    groups = group(findings)
    if not groups:
        return
    table = Table("severity", "instructions", "what", "rule", "what to do")
    for g in groups:
        f = g[0]
        cells = (f.severity, locations(g), f.message, f.label, f.advice)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    for label, f in {g[0].label: g[0] for g in groups}.items():
        console.print(f'{label}: "{f.quotation}" ({f.source})', markup=False, soft_wrap=True)


def _list_graphs(options: argparse.Namespace) -> None:
    entries = list_cache(options.folder)
    if options.json:
        print(json.dumps([_entry(e) for e in entries], indent=1))
        return
    console = wide_console(highlight=False)
    usable = sum(not e.problem for e in entries)
    text = f"{options.folder}: {len(entries)} graphs, of which neuronsim can read {usable}"
    console.print(text, markup=False, soft_wrap=True)
    table = Table("folder", "state", "graph", "instructions", "inputs", "flags")
    for e in entries:
        what = (e.graph, str(e.instructions), _types(e.inputs)) if not e.problem else ("", "", "")
        cells = (str(e.folder.relative_to(options.folder)), e.state, *what, shlex.join(e.flags))
        table.add_row(*(Text(cell) for cell in cells))
    if entries:
        console.print(table)
    for e in entries:
        if e.problem:
            console.print(f"{e.folder}: {e.problem}", markup=False, soft_wrap=True)


def _types(types: Sequence[ops.ArrayType], most: int = 4) -> str:
    more = f" and {len(types) - most} more" if len(types) > most else ""
    return ", ".join(map(str, types[:most])) + more


def _entry(entry: CacheEntry) -> dict[str, Any]:
    lists = {"inputs": list(map(str, entry.inputs)), "outputs": list(map(str, entry.outputs))}
    return {**vars(entry), "folder": str(entry.folder), **lists}


def _list_operators(options: argparse.Namespace) -> None:
    if options.framework != "XLA":
        raise InvalidFlag(
            f"--framework cannot be {options.framework!r}: neuronx-cc and neuronsim know XLA only"
        )
    executed = {op.xla_builder for op in ops.OPS.values() if op.opcode} | {"Constant", "Tuple"}
    named = version(options, default="")
    for name in operators(find_release(named)) if named else sorted(executed):
        print(name)
