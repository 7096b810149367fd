"""The rungs of a ladder: AWS's settings of a target's compiler, and policies and plans beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from neuronsim import json_documents
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.post_training import FAMILIES, INT8_FAMILY
from neuronsim.casting.fields import MAX_BYTES, read_text
from neuronsim.casting.flags import CastSettings
from neuronsim.casting.flags.neuron_cc import find_casts
from neuronsim.casting.plans.plan import Plan, load_plan, make_plan
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.neuron import policy_of
from neuronsim.casting.policies.policy import Policy
from neuronsim.casting.policies.policy_file import load_policy
from neuronsim.dtypes import DType, float32, tfloat32
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile
from neuronsim.targets import AutoCast, CastType, Release, Target
from neuronsim.tuning.trials import Trial, reference_plan

# AWS's table of option combinations in the order of falling accuracy (`reference/neuron.md` 1.5).
LADDER: tuple[tuple[AutoCast, str], ...] = (
    ("none", "bf16"),
    ("matmult", "tf32"),
    ("all", "tf32"),
    ("matmult", "fp16"),
    ("all", "fp16"),
    ("matmult", "bf16"),
    ("all", "bf16"),
)
FLOAT32 = "float32"  # the first rung where the target has none without casts
FASTEST = {"neuronx-cc": "all/bf16", "neuron-cc": "all"}  # each compiler's last rung
# neuron-cc's values of --fast-math: AWS's four (`all` and `none` are what they stand for), from the
# last step of its flow for accuracy back to the default, and what lies between.
INF1_LADDER = (
    "none",
    "fp32-cast-matmult no-fast-relayout",
    "fp32-cast-matmult-fp16 no-fast-relayout",
    "fp32-cast-matmult",
    "fp32-cast-matmult-fp16",
    "fp32-cast-matmult-bf16",
    "fp32-cast-all-fp16 no-fast-relayout",
    "fp32-cast-all no-fast-relayout",
    "fp32-cast-all-fp16",
    "all",
)


@dataclass(frozen=True)
class Rung:
    """A setting to measure: its plan, the options that mean it ("" where none do), the low type, and
    the type to which the framework casts inputs and outputs, if it does. A plan that quantizes has as
    `parts` the rungs of which it has an instruction's decision, the first that has one.
    """

    name: str
    flags: str
    plan: Plan
    low: DType | None = None
    framework_type: DType | None = None
    parts: tuple[Rung, ...] = ()

    @property
    def quantizes(self) -> bool:
        """Whether the plan has scaled bytes in it."""
        return any(d.quantizes for d in self.plan.decisions.values())

    def runs_on(self, target: Target) -> bool:
        """Whether a target multiplies what the plan's products read: INT8 not everywhere."""
        return target.runs_int8 or not any(d.reads_integers for d in self.plan.decisions.values())

    @property
    def trial(self) -> Trial:
        return Trial(self.plan, self.framework_type)


def rung_name(s: CastSettings) -> str:
    """`none`, or the two values with a slash."""
    return "none" if s.auto_cast == "none" else f"{s.auto_cast}/{s.auto_cast_type}"


def scheme_of(name: str) -> str:
    """The scheme (`find_recipe`) that a rung's name says; "" of one that does not quantize.

    >>> scheme_of("int8/mse,uint8+bf16"), scheme_of("fp8_e4m3/minmax"), scheme_of("all/bf16")
    ('mse,uint8', 'minmax,fp8_e4m3', '')
    """
    family, _, scheme = name.partition("/")
    if family not in FAMILIES:
        return ""
    words = scheme.partition("+")[0]
    return words if family == INT8_FAMILY else f"{words},{family}"


def ladder_names(target: Target) -> list[str]:
    """The names of a target's rungs."""
    if target.compiler == "neuron-cc":
        return [FLOAT32, *INF1_LADDER]
    return ["none", *(f"{a}/{t}" for a, t in LADDER[1:])]


def inf1_policy(name: str, auto_cast_all: str = "documented") -> Policy:
    """The policy of a rung of INF1_LADDER, by whose name there is none, but for another `none`."""
    casts = find_casts(name.split())
    settings = CastSettings(*casts[:2], False, "neuron-cc", relayout=casts.relayout)
    return policy_of(settings, auto_cast_all)


def ladder(
    module: Module, release: Release, target: Target, profile: Profile, types: Sequence[str] = ()
) -> list[Rung]:
    """The rungs of a target's compiler, the most accurate first, float32 before all; then those of the
    `types` that it has not, as --auto-cast-type names them.
    """
    if target.compiler == "neuron-cc":
        if types:
            raise InvalidArgument(f"{target.name}'s rungs have the types of --fast-math, and no others")
        reference = Plan(**vars(reference_plan(module)))
        found = [Rung(FLOAT32, "", reference)]
        for line in INF1_LADDER:
            plan = make_plan(module, inf1_policy(line, profile.auto_cast_all), target)
            found.append(Rung(line, f"--fast-math {line}", plan, _low(plan)))
        return found
    known = [t for t in get_args(CastType) if t]
    for t in types:
        if t not in known:
            raise InvalidArgument(
                f"types (--types) are of {', '.join(known)}, not {t!r}{nearest(str(t), known)}"
            )
    accumulates = release.mixed_precision_accumulation
    found = []
    more = [t for t in types if t not in dict(LADDER).values()]
    asked: Sequence[tuple[AutoCast, str]] = [(a, t) for t in more for a in ("matmult", "all")]
    for auto_cast, cast_type in (*LADDER, *asked):
        s = CastSettings(auto_cast, cast(CastType, cast_type), accumulates)
        plan = make_plan(module, policy_of(s, profile.auto_cast_all), target)
        found.append(Rung(rung_name(s), s.flag_line, plan, _low(plan)))
    return found


def _low(plan: Plan) -> DType | None:
    """The narrowest type that a plan casts to."""
    types = {d.operand for d in plan.decisions.values()} - {float32}
    return min(types, key=lambda t: (t.bits, t.mantissa_bits), default=None)


def own_rung(
    source: Policy | Plan | str | Path,
    module: Module,
    target: Target,
    calibration: Calibration | None = None,
) -> Rung:
    """A policy or a plan, its file or a policy's name, as a rung of its own. Raises InvalidArgument."""
    if isinstance(source, Policy):
        plan = make_plan(module, source, target, calibration)
        return Rung(source.name, "", plan, _low(plan))
    if isinstance(source, Plan):
        check_plan(source, module, target)
        return Rung(source.policy, "", source, _low(source))
    if not isinstance(source, str | Path):
        raise InvalidArgument(f"a rung is a policy, a plan, or the name or file of one, not {source!r}")
    if is_plan(Path(source)):
        plan = load_plan(source)
        check_plan(plan, module, target)
    else:
        plan = make_plan(module, load_policy(source), target, calibration)
    return Rung(str(source), "", plan, _low(plan))


def is_plan(path: Path) -> bool:
    """Whether a file is a plan: a JSON document of that schema."""
    if path.suffix != ".json":
        return False
    body: Any = json_documents.parse(read_text(path, "plan or policy", MAX_BYTES))
    return isinstance(body, Mapping) and str(body.get("schema", "")).startswith("neuronsim.plan/")


def with_framework_types(rungs: Sequence[Rung]) -> list[Rung]:
    """Each rung of a low type that HLO has, followed by itself with inputs and outputs in it."""
    found = []
    for r in rungs:
        found.append(r)
        if r.low is not None and r.low is not tfloat32 and not r.low.is_open and not r.quantizes:
            found.append(Rung(f"{r.name} in/out", r.flags, r.plan, r.low, r.low))
    return found
