"""Lint: what a plan is known to break in a model, read off the graph before anything runs.

>>> from neuronsim.casting.plans.plan import make_plan
>>> from neuronsim.casting.policies import find_policy, with_rules
>>> from neuronsim.hlo.parse import from_text
>>> module = from_text('''
... HloModule m
... ENTRY main {
...   x = f32[4] parameter(0)
...   c = f32[] constant(1e+05)
...   b = f32[4] broadcast(c), dimensions={}
...   ROOT y = f32[4] multiply(x, b)
... }''')
>>> policy = find_policy("all/fp16")
>>> findings = lint(module, make_plan(module, policy))
>>> [(f.instruction, f.rule) for f in findings]
[('c', 'constant beyond the type')]
>>> repaired = with_rules(policy, *float32_rules(findings))
>>> lint(module, make_plan(module, repaired))
()
"""

from __future__ import annotations

from collections.abc import Iterable

from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.decide import decide
from neuronsim.casting.decisions.record import PlanRecord
from neuronsim.casting.lint.planned_computation import PlannedComputation
from neuronsim.casting.lint.repairs import closed
from neuronsim.casting.lint.rules import CONTRACT, RULES, LintRule
from neuronsim.casting.policies import with_rules
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.casting.policies.rules import RuleContext
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.findings import Finding
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Instruction, Module, graph_computations
from neuronsim.profiles import Profile
from neuronsim.targets import Severity, Target


def lint(
    module: Module,
    plan: PlanRecord,
    target: Target | None = None,
    calibration: Calibration | None = None,
    *,
    profile: Profile | None = None,
) -> tuple[Finding, ...]:
    """What a plan is known to break in a module, in the order of `RULES`.

    Integers are judged with a `target`, rounded partial sums with a `profile`; a `calibration` replaces
    what the graph leaves open by what the values were. Raises InvalidArgument if the plan, or the
    calibration, is for another module, or the plan asks for types that the target lacks.
    """
    check_plan(plan, module, target)
    if calibration is not None:
        calibration.check(module)
    flat = inline_calls(module)
    context = RuleContext(flat, {}, calibration=calibration)
    scopes: dict[str, PlannedComputation] = {}
    for c in graph_computations(flat):
        scopes[c.name] = PlannedComputation(c, context, plan, target, profile, scopes)
    return tuple(
        _finding(row, scope, *broken)
        for row in RULES
        for scope in scopes.values()
        for broken in row.check(scope)
    )


def _finding(
    row: LintRule,
    scope: PlannedComputation,
    i: Instruction,
    message: str,
    keep: tuple[str, ...],
    severity: Severity | None = None,
) -> Finding:
    return Finding(
        computation=scope.computation.name,
        instruction=i.name,
        opcode=i.opcode,
        rule=row.name,
        code=row.label,
        severity=severity or row.severity,
        message=message,
        quotation=CONTRACT[row.label],
        source=f"docs/numerics.md, {row.label}",
        advice=row.advice,
        release="",
        keep_float32=closed(scope, keep, row.about) if keep else (),
    )


def float32_rules(findings: Iterable[Finding]) -> tuple[Rule, ...]:
    """The rules by which a policy keeps what findings name in float32 (`policies.with_rules`), one for
    each finding that names something.
    """
    findings = tuple(findings) if isinstance(findings, Iterable) else (findings,)
    for f in findings:
        if not isinstance(f, Finding):
            raise InvalidArgument(f"float32_rules takes what lint found, not {type(f).__name__}")
    return tuple(
        Rule(f"lint: {f.rule} ({f.instruction})", category="never", name=f.keep_float32)
        for f in findings
        if f.keep_float32
    )


MAX_ROUNDS = 6  # of a repair: keeping some values in float32 can bring others to light


def repaired(
    module: Module,
    policy: Policy,
    target: Target | None = None,
    calibration: Calibration | None = None,
    *,
    profile: Profile | None = None,
) -> tuple[Policy, tuple[Finding, ...]]:
    """The policy with rules that keep what lint finds in float32, and the findings that are left: those
    that no such rule repairs. The arguments are those of `lint`.
    """
    known: set[str] = set()
    for _ in range(MAX_ROUNDS):
        made = _planned(module, policy, target, calibration)
        findings = lint(module, made, target, calibration, profile=profile)
        named = {n for f in findings for n in f.keep_float32}
        if named <= known:
            return policy, findings
        known |= named
        policy = with_rules(policy, *float32_rules(findings))
    made = _planned(module, policy, target, calibration)
    return policy, lint(module, made, target, calibration, profile=profile)


def _planned(
    module: Module, policy: Policy, target: Target | None, calibration: Calibration | None
) -> PlanRecord:
    decided, kept = decide(inline_calls(module), policy, target, calibration)
    return PlanRecord(
        policy.name, module.name, fingerprint(module), decided, policy.keep_output_type, kept
    )
