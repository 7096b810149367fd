"""Plan: for every instruction the types that it reads, sums in and gives, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from neuronsim import dtypes
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.decide import decide
from neuronsim.casting.decisions.record import PlanRecord
from neuronsim.casting.fields import MAX_BYTES, read_text
from neuronsim.casting.plans.explain import find_line, line_sentence, sentence
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy
from neuronsim.errors import InvalidArgument, counted, nearest
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import FlatModule, inline_calls
from neuronsim.hlo.module import Module
from neuronsim.processor import pinned
from neuronsim.tables import html_table
from neuronsim.targets import Target


@dataclass(frozen=True)
class Plan(PlanRecord):
    """What is decided for each instruction of a module (`PlanRecord` has the fields), to be applied and
    explained.
    """

    def __repr__(self) -> str:
        decided = "; ".join(f"{name} {value}" for name, value in self._summary())
        return f"<Plan {self.policy} of {self.module!r}: {decided}>"

    def _repr_html_(self) -> str:
        return html_table(f"Plan {self.policy} of {self.module}", self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """How many instructions are decided, and which types they give."""
        types = Counter(d.output.name for d in self.decisions.values())
        given = ", ".join(f"{count} give {name}" for name, count in types.most_common())
        rows = [("decided", counted(len(self.decisions), "instruction")), ("types", given)]
        rows.append(("kept", f"{len(self.kept)} for a reason"))
        return [(name, value) for name, value in rows if value and not value.startswith("0 ")]

    def apply(self, module: Module) -> FlatModule:
        """The module with every decision written out as converts; see `apply_plan`."""
        return apply_plan(module, self)

    def explain(self, name: str, module: Module | None = None) -> str:
        """One sentence on what the plan does to an instruction, and why.

        The module, where it is given, tells the instructions that the plan says nothing of, and which
        sum: without it only sums in another type than float32 are told. Raises InvalidArgument with the
        nearest name for an instruction that is not there.
        """
        if module is not None:
            return line_sentence(find_line(module, self, name), self)
        biased = {d.bias for d in self.decisions.values() if d.bias}
        known = {*self.kept, *self.decisions, *biased}
        if name not in known:
            raise InvalidArgument(
                f"the plan says nothing of an instruction {name!r}{nearest(name, known)}: give the "
                "module too, for those that the policy does not consider"
            )
        d = self.decisions.get(name)
        return sentence(self, name, sums=d is not None and d.accumulate is not dtypes.float32)


@pinned
def make_plan(
    module: Module,
    policy: Policy,
    target: Target | None = None,
    calibration: Calibration | None = None,
) -> Plan:
    """What a policy decides for a module, where a target has the types (`decisions.decide`). Rules on
    values need a calibration of the module. The instructions are those after `inline_calls`, in every
    computation that is executed instruction by instruction.

    Raises InvalidArgument, with all problems, for a policy that names unknown operations or
    contradicts itself, and for rules without what they need.
    """
    if calibration is not None:
        calibration.check(module)
    decided, kept = decide(inline_calls(module), policy, target, calibration)
    return Plan(policy.name, module.name, fingerprint(module), decided, policy.keep_output_type, kept)


@pinned
def load_plan(path: str | Path) -> Plan:
    """The plan in a JSON file. Raises InvalidArgument for any other file."""
    text = read_text(path, "plan", MAX_BYTES)
    try:
        return Plan.from_json(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from error
