"""Blame on a terminal: the first line answers; names are never cut."""

from __future__ import annotations

from neuronsim.errors import counted, first_few
from neuronsim.tables import say
from neuronsim.tuning.blame.result import BlameResult, Cause, OutputFigures

LISTED = 12  # names in a line, rows of a list


def print_blame(result: BlameResult) -> None:
    """Print the causes, and what else moves the outputs."""
    first = result.causes[0] if result.causes else None
    if first is None:
        say(
            f"Nothing stands out under {result.setting}: {described_figures(result.lowered)}",
            style="green",
        )
    else:
        others = len(result.causes) - 1
        more = f", and {others} more cause{'s' * (others > 1)}" if others else ""
        say(f"{first.instruction} is to blame ({first.kind}){more}: {first.said}", style="bold red")
        say(
            f"Under {result.setting} {described_figures(first.before)}; with what is named below in "
            f"float32 {described_figures(result.causes[-1].after)}."
        )
    for note in result.notes:
        say(note)
    for number, cause in enumerate(result.causes, start=1):
        say("")
        _print_cause(number, cause)
    if first is not None and len(result.scopes) > 1:
        say("\nOwn errors by scope, of the outputs' error:")
        for scope, share in list(result.scopes.items())[:LISTED]:
            if share >= 0.01:
                say(f"  {share:6.1%}  {scope or '(no scope)'}")
    top = f", float32's top-1 {result.float32_top1:.2%}" if result.float32_top1 is not None else ""
    say(
        f"\n{counted(result.samples, 'sample')} of {result.data}, {counted(result.runs, 'run')}{top}; "
        f"up to {result.usual:.2g} of a sample's norm is usual rounding"
    )


def _print_cause(number: int, c: Cause) -> None:
    place = ", ".join(p for p in (c.scope, c.source) if p)
    say(
        f"{number}. {c.instruction} ({c.opcode}){f' in {place}' if place else ''}: {c.kind}",
        style="bold",
    )
    if number > 1:
        say(f"   {c.said}")
    say(f"   {c.share:.0%} of the outputs' error passes it; it loses {c.bits:.1f} significant bits")
    say(f"   what to do: {c.advice}")
    moved = len(c.keep_float32) - c.computing
    more = f", with {moved} that move{'s' if moved == 1 else ''} their values" if moved else ""
    kept = f"{c.computing} computing instruction{'s' * (c.computing != 1)} in float32{more}"
    if not c.computing:
        kept = f"in float32 what only move{'s' if moved == 1 else ''} values"
    say(f"   or keep {kept}: {first_few(c.keep_float32, LISTED, ' ')}")
    say(f"   measured: {described_figures(c.before)}; after: {described_figures(c.after)}")
    if c.rewritten is not None:
        say(f"   rewritten ({c.rewrite}): {described_figures(c.rewritten)}")


def described_figures(f: OutputFigures) -> str:
    """The outputs' figures in a few words."""
    parts = []
    if f.not_finite:
        parts.append(f"{f.not_finite} outputs are not finite")
    else:
        parts.append(f"the worst sample is off by {f.worst_sample:.2g} of its norm")
    if f.differing:
        parts.append(f"{f.differing:.1%} of integer outputs differ")
    if f.top1 is not None:
        parts.append(f"top-1 is {f.top1:.2%}")
    return ", ".join(parts)
