"""Setups: what a program is compiled under, and how the arguments of `compile` decide it."""

from __future__ import annotations

import itertools
import os
import reprlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from neuronsim.casting.flags import (
    AUTO_CASTS,
    CASTING,
    CastSettings,
    Flags,
    Level,
    Message,
    decide_flags,
    parse_flags,
)
from neuronsim.casting.flags.options import GivenOption, option_name, right_most, split_flags
from neuronsim.casting.plans.plan import Plan, load_plan
from neuronsim.casting.policies.calibration import Calibration
from neuronsim.casting.policies.policy import Policy
from neuronsim.casting.policies.policy_file import load_policy
from neuronsim.errors import InvalidArgument, InvalidFlag
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.hlo.cache import cached_flags, compiler_of, find_entry
from neuronsim.profiles import (
    ROUNDING_VARIABLE,
    SEED_VARIABLE,
    Profile,
    default_profile,
    default_seed,
    stochastic_by,
)
from neuronsim.targets import SAME_CORE, TARGETS, Compiler, Release, Target, find_release, find_target

DEFAULT_SDK = "2.26"
DEFAULT_TARGET = "trn1"
FLAGS_VARIABLE = "NEURON_CC_FLAGS"


@dataclass(frozen=True, kw_only=True)
class CompilerSetting:
    """What a compiler is told; see `api.compile` for the fields of all three records."""

    flags: str | Sequence[str] = ""
    auto_cast: str | None = None
    auto_cast_type: str | None = None
    sdk: str = DEFAULT_SDK
    target: str | None = None


@dataclass(frozen=True)
class CastRequest(CompilerSetting, ModelInputs):
    """What `plan` and `lint` are asked: a model and what decides its casts."""

    model: Any
    _: KW_ONLY
    policy: Policy | str | Path | None = None
    plan: Plan | str | Path | None = None
    calibration: Calibration | None = None


@dataclass(frozen=True, kw_only=True)
class CompileRequest(CastRequest):
    """What `compile` is asked."""

    clean: bool = True
    profile: Profile | None = None
    threads: int | None = None
    replicas: int = 1
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("clean", self.clean), ("strict", self.strict)):
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} is True or False, not {value!r}")


@dataclass(frozen=True)
class Setup:
    """The records that `compile` freezes into a program, beside the plan."""

    settings: CastSettings
    release: Release
    target: Target
    profile: Profile
    without_effect: tuple[str, ...] = ()
    replicas: int = 1
    given: Mapping[str, str] = field(default_factory=dict)  # the flags with their values
    messages: tuple[Message, ...] = ()
    clean: bool = True  # `apply_plan`'s
    decided_by: str = ""  # the plan or policy that decided the casts in the flags' place

    @property
    def casts(self) -> str:
        """What decided the casts, in words: the flags, or the plan or policy and the other flags."""
        return " ".join(filter(None, (self.decided_by, self.settings.flag_line)))

    @property
    def compiler(self) -> str:
        """The release and the compiler whose flags count, in words."""
        return release_words(self.release, self.settings.compiler)


def release_words(release: Release, compiler: Compiler) -> str:
    """A release and its compiler of this kind, in words."""
    # neuron-cc's versions are not in RELEASES.
    return f"SDK {release.sdk}, neuron-cc" if compiler == "neuron-cc" else str(release)


class Inherited(NamedTuple):
    """Flags that act where a call gives none that decide values, where they are from, and how important
    it is to say so.
    """

    flags: str | list[str]
    origin: str
    level: Level


def find_setup(
    request: CastRequest, profile: Profile | None = None
) -> tuple[Setup, Policy | Plan | None]:
    """The setup of a request, whose model's folder or the environment may have flags too, and the plan
    or policy that decides the casts in the flags' place.
    """
    decider, decided_by = _decider(request.policy, request.plan)
    inherited, text = None, os.environ.get(FLAGS_VARIABLE, "").strip()
    folder = _folder(request.model)
    if folder is not None and (words := cached_flags(folder)):
        inherited = Inherited(words, "the model's folder", "info")
    elif text:
        inherited = Inherited(text, FLAGS_VARIABLE, "warning")
    setup = resolve(request, profile, decided_by=decided_by, inherited=inherited)
    if folder is not None:
        setup = replace(setup, messages=(*setup.messages, *_other_compiler(folder, setup.release)))
    return setup, decider


def _folder(model: Any) -> Path | None:
    """The folder of AWS's compile cache that a model is."""
    is_folder = isinstance(model, str | Path) and os.path.isdir(model)  # text of any length is none
    return find_entry(Path(str(model))) if is_folder else None


def _other_compiler(folder: Path, release: Release) -> list[Message]:
    """What there is to say where the folder's path names another compiler than the release has."""
    version = compiler_of(folder)
    try:
        own = find_release(version) if version else release
    except InvalidArgument:  # one that neuronsim does not know
        return []
    if own == release:
        return []
    text = f"the folder is of neuronx-cc {version}: sdk={version!r} takes the defaults of {own}"
    return [Message("info", text)]


def _decider(
    policy: Policy | str | Path | None, plan: Plan | str | Path | None
) -> tuple[Policy | Plan | None, str]:
    """The plan or policy that decides the casts in the flags' place, and its name for messages."""
    for name, given, kind in (("policy", policy, Policy), ("plan", plan, Plan)):
        if not (given is None or isinstance(given, str | os.PathLike | kind)):
            raise InvalidArgument(
                f"{name} is a {kind.__name__}, its file or name, not {reprlib.repr(given)}"
            )
    if policy is not None and plan is not None:
        raise InvalidFlag("a plan and a policy both decide the casts: give one of them")
    if isinstance(plan, str | Path):
        loaded = load_plan(plan)
        return loaded, f"plan {loaded.policy} from {plan}"
    if plan is not None:
        return plan, f"plan {plan.policy}"
    if policy is None:
        return None, ""
    chosen = policy if isinstance(policy, Policy) else load_policy(policy)
    return chosen, f"policy {chosen.name}"


def resolve(
    setting: CompilerSetting,
    profile: Profile | None = None,
    *,
    decided_by: str = "",
    inherited: Inherited | None = None,
) -> Setup:
    """The setup that a setting means.

    Where `decided_by` names a plan or policy, flags cannot decide the casts, and inherited ones that
    would do not act. Raises InvalidFlag or InvalidArgument.
    """
    release, target = find_release(setting.sdk), setting.target
    if target is not None:
        find_target(target)
    if target in SAME_CORE:
        parse_flags(["--target", target], release)  # the release may be older
    keywords = {"--auto-cast": setting.auto_cast, "--auto-cast-type": setting.auto_cast_type}
    stated = {name: value for name, value in keywords.items() if value is not None}
    words = [*split_flags(setting.flags), *(f"{name}={value}" for name, value in stated.items())]
    if profile is not None and not isinstance(profile, Profile):
        raise InvalidArgument(f"profile is a Profile, such as neuronsim.Profile(), not {profile!r}")
    device = _find_device(words, target)
    parsed = parse_flags(words, release, device.compiler)
    _check_keywords(stated, parsed)
    if decided_by and (casts := [name for name in parsed.given if name in CASTING]):
        raise InvalidFlag(f"the {decided_by} decides the casts: it contradicts {', '.join(casts)}")
    notes: list[Message] = []
    if inherited is not None and parsed.deciding:
        instead = ", ".join(parsed.deciding)
        text = f"the flags of {inherited.origin} do not act: those that are given do ({instead})"
        notes = [Message(inherited.level, text)]
    elif inherited is not None:
        compiler = device.compiler
        device, acting, options, notes = _acting(inherited, words, release, target, decided_by)
        if device.compiler == compiler:
            parsed = decide_flags([*options, *parsed.options], release, compiler)
        else:  # what was read is another compiler's
            parsed = parse_flags([*acting, *words], release, device.compiler)
    settings = parsed.settings.without_casts() if decided_by else parsed.settings
    if profile is None:
        profile = _profile_of(settings, device)
        notes += _rounding_notes(device)
    else:
        notes += _overridden(settings, profile)
    return Setup(
        settings,
        release,
        device,
        profile,
        parsed.without_effect,
        given=parsed.given,
        messages=(*notes, *parsed.messages),
        decided_by=decided_by,
    )


def _find_device(words: Sequence[str], target: str | None) -> Target:
    """The target of the argument or of the flags, whose compiler's options the flags are."""
    pairs = itertools.zip_longest(words, words[1:], fillvalue="")
    values = [
        w.partition("=")[2] or following for w, following in pairs if option_name(w) == "--target"
    ]
    named = next((v for v in reversed(values) if v in TARGETS or v in SAME_CORE), None)
    device = find_target((named or DEFAULT_TARGET) if target is None else target)
    if named is not None and find_target(named) is not device:
        raise InvalidFlag(f"--target {named} in the flags contradicts the target {target}")
    return device


def _check_keywords(stated: Mapping[str, str], parsed: Flags) -> None:
    """Raises InvalidFlag where a keyword, one of the last options, says otherwise than the flags."""
    in_flags = {o.name: " ".join(v) for o, v in parsed.options[: len(parsed.options) - len(stated)]}
    for name, value in stated.items():
        chosen = parsed.given[name]
        before = in_flags.get(name, chosen)
        if AUTO_CASTS.get(before, before) != AUTO_CASTS.get(chosen, chosen):
            raise InvalidFlag(
                f"{name.strip('-').replace('-', '_')}={value!r} contradicts {name} {before} in the "
                "flags: give one of them"
            )


def _acting(
    inherited: Inherited, words: Sequence[str], release: Release, target: str | None, decided_by: str
) -> tuple[Target, list[str], Sequence[GivenOption], list[Message]]:
    """The target of inherited flags beside a call's own, the words and options of those that act, and
    what there is to say.
    """
    origin, level = inherited.origin, inherited.level
    try:
        acting = split_flags(inherited.flags)
        device = _find_device([*acting, *words], target)
        parsed = parse_flags(acting, release, device.compiler)
    except InvalidFlag as error:
        raise InvalidFlag(f"in {origin}: {error}") from error
    casts = [name for name in parsed.given if name in CASTING] if decided_by else []
    if not casts:
        said = Message(level, f"the flags are those of {origin}: {shlex.join(acting)}")
        return device, acting, parsed.options, [said]
    text = f"{', '.join(casts)} of {origin} has no effect: the {decided_by} decides the casts"
    messages = [Message(level, text)]
    options = [given for given in right_most(parsed.options) if given[0].name not in casts]
    others = [f"{o.name}={' '.join(values)}" if values else o.name for o, values in options]
    if others:
        messages.append(Message(level, f"the other flags are those of {origin}: {shlex.join(others)}"))
    return device, others, options, messages


def _profile_of(settings: CastSettings, device: Target) -> Profile:
    """The default profile, where the flags and the target decide otherwise."""
    accumulation = "on" if settings.mixed_precision_accumulation else "off"
    rounding = default_profile().rounding if device.rounds_stochastically else "nearest_even"
    profile = default_profile().replace(
        rounding=rounding,
        int64="truncate" if device.truncates_int64 else "keep",
        mixed_precision_accumulation=accumulation,
    )
    return profile.replace(int_dot="via_float32") if settings.int_dot == "via_float32" else profile


def _rounding_notes(device: Target) -> Iterator[Message]:
    """What there is to say where the environment turns stochastic rounding on."""
    variable = stochastic_by()
    stated = os.environ.get(ROUNDING_VARIABLE, "").strip()
    if not variable:
        if stated.strip("0") and stated.lower() != "false":
            text = f"{ROUNDING_VARIABLE}={stated} does not act: 1 turns stochastic rounding on, 0 off"
            yield Message("warning", text)
        return
    if not device.rounds_stochastically:
        text = f"{variable} does not act: {device.name} does not round stochastically"
        yield Message("warning", text)
        return
    also = (
        ""
        if variable == ROUNDING_VARIABLE
        else f", as torch-neuronx has it ({ROUNDING_VARIABLE}=0 not)"
    )
    text = f"{variable}={os.environ[variable]}: results in narrower floats round stochastically{also}"
    yield Message("warning", f"{text}, from the seed {default_seed()} ({SEED_VARIABLE})")


def _overridden(settings: CastSettings, profile: Profile) -> Iterator[Message]:
    """What flags say in vain against a profile that is given."""
    if (variable := stochastic_by()) and profile.rounding != "stochastic":
        text = f"the profile decides: its rounding is {profile.rounding!r}, and {variable} does not act"
        yield Message("warning", text)
    on = settings.mixed_precision_accumulation
    asked = {
        "mixed_precision_accumulation": ("on" if on else "off") if settings.accumulation_given else "",
        "int_dot": "via_float32" if settings.int_dot == "via_float32" else "",
    }
    for name, value in asked.items():
        if value and getattr(profile, name) != value:
            text = (
                f"the profile decides: its {name} is {getattr(profile, name)!r}, and the flags say "
                f"{value!r} in vain"
            )
            yield Message("warning", text)


def tuning_profile(profile: Profile | None, sdk: str, target: str) -> Profile:
    """The profile by which a target's settings run, all alike."""
    compiler = find_target(target).compiler
    flags = "--fast-math all" if compiler == "neuron-cc" else "--auto-cast none"
    return resolve(CompilerSetting(flags=flags, sdk=sdk, target=target), profile).profile
