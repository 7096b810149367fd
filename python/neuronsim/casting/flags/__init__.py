"""What the options of a Neuron compiler that users paste decide, under a named release.

>>> from neuronsim.targets import find_release
>>> settings = parse_flags("--auto-cast all --auto-cast-type fp16", find_release("2.26")).settings
>>> settings.auto_cast, settings.auto_cast_type, settings.mixed_precision_accumulation
('all', 'fp16', False)
>>> parse_flags("--fast-math none", find_release("2.26"), "neuron-cc").settings.flag_line
'--fast-math fp32-cast-matmult-bf16 no-fast-relayout'
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from neuronsim import dtypes
from neuronsim.casting.flags import neuron_cc, neuronx_cc
from neuronsim.casting.flags.integer_downcast import INTEGER_DOWNCASTS
from neuronsim.casting.flags.options import (
    GivenOption,
    Option,
    find_option,
    read_options,
    right_most,
    split_flags,
)
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidFlag
from neuronsim.records import check_fields
from neuronsim.targets import AutoCast, CastType, Compiler, Release, at_least

CAST_TYPES: dict[str, DType] = {
    "bf16": dtypes.bfloat16,
    "fp16": dtypes.float16,
    "tf32": dtypes.tfloat32,
    "fp8_e4m3": dtypes.float8_e4m3,
}
# The guide of SDK 2.3 spells the value both ways; neuronsim prints `matmult`.
AUTO_CASTS: dict[str, AutoCast] = {
    "none": "none",
    "matmult": "matmult",
    "matmul": "matmult",
    "all": "all",
}
ALL_INTEGER_DOWNCASTS = tuple(INTEGER_DOWNCASTS)
OPTIONS: Mapping[Compiler, tuple[Option, ...]] = {
    "neuronx-cc": neuronx_cc.OPTIONS,
    "neuron-cc": neuron_cc.OPTIONS,
}
_ACCUMULATION = {
    "--enable-mixed-precision-accumulation": True,
    "--disable-mixed-precision-accumulation": False,
}
# What a plan or policy decides in their place.
CASTING = (
    *("--auto-cast", "--auto-cast-type", "--fast-math", "--fp32-cast"),
    "--enable-saturate-infinity",
)
# What the other compiler's users should give: the devices of each, and its options for casts.
_DEVICES = {"neuronx-cc": "Trainium and Inferentia2", "neuron-cc": "Inf1"}
_CASTING = {
    "neuronx-cc": "for trn1 use --auto-cast and --auto-cast-type",
    "neuron-cc": "for inf1 use --fast-math",
}

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_NEURON_CC_LEVELS = {"DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}


@dataclass(frozen=True)
class CastSettings:
    """What the flags and the release's defaults decide about values.

    `relayout` is the type of neuron-cc's fast transposes, "" for none (A3); `saturate_infinity` acts on
    transposes on the tensor engine (M8). `integer_downcast` names the operations that may compute on
    integers in a narrower type; `int_dot` is the profile's field (M7): `via_float32`, which AWS
    documents for trn1, where the user permits `dot` by name. `accumulation_given` says that
    a flag, not the release, decided `mixed_precision_accumulation`. Where a plan or policy decides the
    casts, the first two are "" (`without_casts`).
    """

    auto_cast: AutoCast
    auto_cast_type: CastType
    mixed_precision_accumulation: bool
    compiler: Compiler = "neuronx-cc"
    relayout: CastType = ""
    saturate_infinity: bool = False
    integer_downcast: tuple[str, ...] = ALL_INTEGER_DOWNCASTS
    int_dot: Literal["exact", "via_float32"] = "exact"
    accumulation_given: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def flag_line(self) -> str:
        """The settings as options that give them back, under the same release."""
        words = [self._cast_options()] if self.auto_cast else []
        if self.accumulation_given:
            words += [
                name for name, on in _ACCUMULATION.items() if on == self.mixed_precision_accumulation
            ]
        if self.saturate_infinity:
            words.append("--enable-saturate-infinity")
        if self.integer_downcast != ALL_INTEGER_DOWNCASTS or self.int_dot == "via_float32":
            listed = ",".join(self.integer_downcast) or "none"
            words.append(f"--implicit-integer-downcast {listed}")
        return " ".join(words)

    def without_casts(self) -> CastSettings:
        """The settings where a plan or policy decides what the options of CASTING else do."""
        return replace(self, auto_cast="", auto_cast_type="", relayout="", saturate_infinity=False)

    def _cast_options(self) -> str:
        if self.compiler == "neuron-cc":
            return neuron_cc.fast_math_line(self.auto_cast, self.auto_cast_type, self.relayout)
        if self.auto_cast == "none" and self.auto_cast_type == "bf16":  # every release's default
            return "--auto-cast none"
        return f"--auto-cast {self.auto_cast} --auto-cast-type {self.auto_cast_type}"


@dataclass(frozen=True)
class Message:
    """What a compiler's run has to say, and how important it is."""

    level: Level
    text: str


@dataclass(frozen=True)
class Flags:
    """Parsed options: the settings, the options that were given with their values, those that change no
    value, and what there is to say of them; and all `options` of the line, in its order.
    """

    settings: CastSettings
    given: Mapping[str, str] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    options: tuple[GivenOption, ...] = ()

    @property
    def deciding(self) -> tuple[str, ...]:
        """The given options that decide values."""
        return tuple(name for name in self.given if name not in self.without_effect)


def parse_flags(
    flags: str | Sequence[str], release: Release, compiler: Compiler = "neuronx-cc"
) -> Flags:
    """The settings of a flag line of a compiler under a release; the right-most of equal options wins.

    Raises InvalidFlag that names the flag, the accepted values and the nearest match, and the release
    that has what this one has not.
    """
    words = split_flags(flags)
    _reject_command(words)
    _reject_other_compiler(words, compiler)
    return decide_flags(read_options(words, OPTIONS[compiler], release), release, compiler)


def decide_flags(options: Sequence[GivenOption], release: Release, compiler: Compiler) -> Flags:
    """The same of options that were read already, of one line or of several."""
    given = {o.name: " ".join(values) for o, values in right_most(options)}
    if compiler == "neuron-cc":
        settings = _neuron_cc_settings(given)
    else:
        settings = _neuronx_cc_settings(given, release)
    silent = tuple(dict.fromkeys(o.name for o, _ in options if o.effect != "values"))
    messages = [*_messages([o for o, _ in options], settings, release), *_inert_type(given, settings)]
    return Flags(settings, given, silent, tuple(messages), tuple(options))


def verbosity(given: Mapping[str, str]) -> int:
    """The least level that is printed: that of `--verbose`, by name or as a number; default: warning.

    >>> verbosity({"--verbose": "35"}), verbosity({"--verbose": "INFO"}), verbosity({})
    (35, 20, 30)
    """
    text = given.get("--verbose", "warning")
    if text.isdecimal():
        return int(text)
    return _NEURON_CC_LEVELS[text] if text.isupper() else LEVELS[text]  # type: ignore[index]


def _neuronx_cc_settings(given: Mapping[str, str], release: Release) -> CastSettings:
    settings = CastSettings(
        AUTO_CASTS[given.get("--auto-cast", release.auto_cast)],
        cast(CastType, given.get("--auto-cast-type", release.auto_cast_type)),  # one of the option's
        release.mixed_precision_accumulation,
        saturate_infinity="--enable-saturate-infinity" in given,
    )
    decided = [name for name in given if name in _ACCUMULATION]
    if decided:
        on = _ACCUMULATION[decided[-1]]
        settings = replace(settings, mixed_precision_accumulation=on, accumulation_given=True)
    listed = given.get("--implicit-integer-downcast", "default")
    if listed != "default":
        names = {"all": ALL_INTEGER_DOWNCASTS, "none": ()}.get(listed, tuple(listed.split(",")))
        settings = replace(
            settings,
            integer_downcast=tuple(n for n in ALL_INTEGER_DOWNCASTS if n in names),
            int_dot="via_float32" if listed != "all" and "dot" in names else "exact",
        )
    return settings


def _neuron_cc_settings(given: Mapping[str, str]) -> CastSettings:
    fast_math = given.get("--fast-math", "").split()
    casts = neuron_cc.find_casts(fast_math, given.get("--fp32-cast", ""))
    # neuron.md 2.2: partial sums stay in float32 whatever is cast.
    return CastSettings(
        casts.auto_cast,
        casts.auto_cast_type,
        mixed_precision_accumulation=True,
        compiler="neuron-cc",
        relayout=casts.relayout,
        saturate_infinity="--enable-saturate-infinity" in given,
    )


def _messages(options: Sequence[Option], settings: CastSettings, release: Release) -> Iterator[Message]:
    for o in {o.name: o for o in options}.values():
        if o.deprecated and at_least(release, o.deprecated):
            instead = o.instead or f"{settings.flag_line} means the same"
            yield Message("warning", f"{o.name} is deprecated: {instead}")
        if o.effect != "values":
            what = "changes no value" if o.effect == "none" else "is ignored"
            note = f": {o.note}" if o.note else ""
            yield Message("warning" if note else "info", f"{o.name} {what}{note}")
        if o.several and o.effect == "values" and options.count(o) > 1:
            yield Message(
                "warning", f"of several {o.name} the right-most counts; one takes several values"
            )


def _inert_type(given: Mapping[str, str], settings: CastSettings) -> Iterator[Message]:
    if "--auto-cast-type" in given and settings.auto_cast == "none":
        text = (
            f"--auto-cast-type {settings.auto_cast_type} has no effect: --auto-cast none casts nothing"
        )
        yield Message("warning", text if "--auto-cast" in given else f"{text}, and is the default")


def _reject_command(words: Sequence[str]) -> None:
    """Raises InvalidFlag where a compiler's command precedes its options."""
    command = list(itertools.takewhile(lambda w: not w.startswith("-"), words))
    if command and command[0] in (*OPTIONS, "compile"):
        raise InvalidFlag(
            f"{' '.join(command)!r} is not an option but a command: give the options that follow it"
        )


def _reject_other_compiler(words: Sequence[str], compiler: Compiler) -> None:
    """Raises InvalidFlag for options that only the other compiler has."""
    other: Compiler = "neuron-cc" if compiler == "neuronx-cc" else "neuronx-cc"
    own, foreign = OPTIONS[compiler], OPTIONS[other]
    named = [w for w in words if w.startswith("-") and len(w) > 1]
    theirs = [o for w in named if not find_option(w, own) and (o := find_option(w, foreign))]
    if not theirs:
        return
    ours = [o for w in named if not find_option(w, foreign) and (o := find_option(w, own))]
    if ours:
        raise InvalidFlag(
            f"one line has flags of both compilers: {ours[0].name} of {compiler} "
            f"({_DEVICES[compiler]}) and {theirs[0].name} of {other} ({_DEVICES[other]}): "
            f"{' and '.join(_CASTING.values())}"
        )
    raise InvalidFlag(
        f"{theirs[0].name} is an option of {other} ({_DEVICES[other]}): {_CASTING[compiler]}"
    )
