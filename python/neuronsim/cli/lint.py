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

from neuronsim import api, diagnosis, ops
from neuronsim.casting.policies.policy_file import policy_to_json, policy_to_toml
from neuronsim.cli.arguments import Declare, add_casts, add_model, casts, version
from neuronsim.cli.output import write
from neuronsim.errors import InvalidFlag, counted, first_few
from neuronsim.hlo.cache import CacheEntry, list_cache
from neuronsim.hlo.findings import Finding, group, locations, summary
from neuronsim.setups import CastRequest
from neuronsim.tables import output_console, print_table, say
from neuronsim.targets import find_release, operators
from neuronsim.tuning.blame.report import described_figures

_LISTED = 12  # instructions that a line names: the file has all


def declare_commands(declare: Declare) -> None:
    lint = declare(
        "lint",
        _lint,
        "Print what a model breaks of the constraints that AWS documents, and what its casts break.",
    )
    add_model(lint)
    add_casts(lint)
    lint.writes("--fix", "write a policy (.toml, .json) that repairs what is found")
    lint.add_argument(
        "--data", help=".npz: calibrates lint, and measures the repair, instead of --calibration alone"
    )
    lint.add_argument("--strict", action="store_true", help="exit status 1 if there is a finding")
    lint.add_argument("--json", action="store_true", help="print all findings as JSON")

    lint.tell("examples", ("neuronsim lint model.onnx --sdk 2.26 --auto-cast all --strict",))

    listing = declare(
        "list-operators",
        _list_operators,
        "Print operators by their XlaBuilder names: those that neuronsim executes, or with --sdk those "
        "that AWS documents for that release.",
    )
    listing.add_argument("--sdk", help="SDK or compiler version, such as 2.26 or 2.3.0.4")
    listing.add_argument("--compiler-version", help="the same")
    listing.add_argument("--framework", default="XLA", help="XLA, as in neuronx-cc; default: XLA")
    listing.tell(
        "examples",
        ("neuronsim list-operators", "neuronsim list-operators --sdk 2.3.0.4 | grep -i gather"),
    )
    graphs = declare(
        "list-graphs",
        _list_graphs,
        "Print the graphs of AWS's compile cache: what they are, their flags, what became of them.",
    )
    graphs.add_argument("folder", help="such as /var/tmp/neuron-compile-cache")
    graphs.add_argument("--json", action="store_true", help="print them as JSON")
    graphs.tell("examples", ("neuronsim list-graphs /var/tmp/neuron-compile-cache",))


def _lint(options: argparse.Namespace) -> None:
    request = CastRequest(options.model, **casts(options))
    repair = None
    if options.fix is not None or options.data is not None:
        setup, repair = diagnosis.repair(request, options.data)
        findings = repair.findings
    else:
        setup, findings = api.lint_under_setup(request)
    options.status = 1 if findings and options.strict else 0  # whether or not all of it is read
    if options.json:
        report = {
            "schema": "neuronsim.lint/1",
            "model": options.model,
            "release": setup.compiler,
            "target": setup.target.name,
            "findings": [asdict(f) for f in findings],
        }
        if repair is not None:
            report["repair"] = {
                "policy_file": options.fix,
                "keep_float32": repair.kept,
                "blamed": repair.blamed,
                "left": [asdict(f) for f in repair.left],
                "before": asdict(repair.before) if repair.before is not None else None,
                "after": asdict(repair.after) if repair.after is not None else None,
            }
        print(json.dumps(report, indent=1))
    else:
        _print_findings(f"{options.model} under {setup.compiler} on {setup.target.name}", findings)
    if repair is not None and options.fix is not None:
        text = policy_to_toml if options.fix.endswith(".toml") else policy_to_json
        write(options, options.fix, text(repair.policy))
        if not options.json:
            _print_repair(repair, options.fix)


def _print_repair(repair: diagnosis.Repair, path: str) -> None:
    """What the written policy keeps, what it repairs, measured, and what it cannot."""
    say(f"\nwrote {path}: it keeps {counted(len(repair.kept), 'instruction')} in float32")
    if repair.kept:
        say(f"  {first_few(repair.kept, _LISTED, ' ')}")
    if repair.blamed:
        say(f"of these blame found {len(repair.blamed)} on the data, beyond what lint does")
    if repair.before is not None and repair.after is not None:
        say(f"measured: {described_figures(repair.before)}; with it {described_figures(repair.after)}")
    for f in repair.left:
        say(f"not repaired: {f.instruction}, {f.rule} ({f.severity}): {f.advice}")
    if repair.unmended:
        say(f"not repaired: {repair.unmended}")
    if not repair.left and not repair.unmended:
        say("lint finds nothing under it. Use it with --policy")


def _print_findings(title: str, findings: Sequence[Finding]) -> None:
    console = output_console()
    say(f"{title}: {summary(findings)}")
    groups = group(findings)
    if not groups:
        return
    headers = ("instructions", "severity", "what", "rule", "what to do")
    first = [(locations(g), g[0].severity, g[0].message, g[0].label, g[0].advice) for g in groups]
    styles = ["red" if g[0].severity == "error" else None for g in groups]
    print_table(console, headers, first, styles=styles)
    for label, f in {g[0].label: g[0] for g in groups}.items():
        say(f'{label}: "{f.quotation}" ({f.source})')


def _list_graphs(options: argparse.Namespace) -> None:
    entries = list_cache(options.folder)
    if options.json:
        print(json.dumps([_entry(e) for e in entries], indent=1))
        return
    console = output_console()
    usable = sum(not e.problem for e in entries)
    text = f"{options.folder}: {counted(len(entries), 'graph')}, of which neuronsim can read {usable}"
    say(text)
    rows = []
    for e in entries:
        what = (e.graph, str(e.instructions), first_few(e.inputs, 4)) if not e.problem else ("", "", "")
        rows.append((str(e.folder.relative_to(options.folder)), e.state, *what, shlex.join(e.flags)))
    if entries:
        print_table(console, ("folder", "state", "graph", "instructions", "inputs", "flags"), rows)
    for e in entries:
        if e.problem:
            say(f"{e.folder}: {e.problem}")


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
