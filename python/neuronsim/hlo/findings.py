"""Findings: instructions that break a documented constraint, and what is told of several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuronsim.errors import counted, first_few
from neuronsim.targets import Severity


@dataclass(frozen=True)
class Finding:
    """An instruction that breaks a documented constraint: what, where, the rule in AWS's words, the
    release under which it holds and what to do. `code` is AWS's error code or empty.

    What a plan breaks (`casting.lint`) is a finding too: its `code` and `quotation` are of the numeric
    contract, `release` is empty, and a plan that keeps `keep_float32` in float32 lacks it.
    """

    computation: str
    instruction: str
    opcode: str
    rule: str
    code: str
    severity: Severity
    message: str
    quotation: str
    source: str
    advice: str
    release: str
    keep_float32: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The rule, with AWS's code where it has another name."""
        return f"{self.code}, {self.rule}" if self.code not in ("", self.rule) else self.rule


def group(findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], ...]:
    """The findings that say the same of several instructions together; errors first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for f in findings:
        groups.setdefault((f.rule, f.message), []).append(f)
    return tuple(tuple(g) for g in sorted(groups.values(), key=lambda g: g[0].severity))


def locations(findings: Sequence[Finding]) -> str:
    """The first instructions of findings, and how many follow."""
    return first_few([f"{f.computation}/{f.instruction} ({f.opcode})" for f in findings], 3)


def summary(findings: Sequence[Finding]) -> str:
    """How many errors and warnings.

    >>> summary(())
    'no findings'
    """
    words = []
    for severity in ("error", "warning"):
        number = sum(f.severity == severity for f in findings)
        if number:
            words.append(counted(number, severity))
    return " and ".join(words) or "no findings"
