"""The options of `neuronx-cc compile` that users paste, under a named release.

>>> from neuronsim.targets import find_release
>>> parse_flags("--auto-cast all --auto-cast-type fp16", find_release("2.26")).settings
CastSettings(auto_cast='all', auto_cast_type='fp16', mixed_precision_accumulation=False)
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidFlag, nearest
from neuronsim.targets import AutoCast, Release

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


@dataclass(frozen=True)
class CastSettings:
    """What the flags and the release's defaults decide about casts."""

    auto_cast: AutoCast
    auto_cast_type: str
    mixed_precision_accumulation: bool

    @property
    def flag_line(self) -> str:
        """The setting as options that can be pasted into NEURON_CC_FLAGS."""
        if self.auto_cast == "none":
            return "--auto-cast none"
        return f"--auto-cast {self.auto_cast} --auto-cast-type {self.auto_cast_type}"


@dataclass(frozen=True)
class Option:
    """One option of the command line: its values (None for a bare flag, () for any text)."""

    name: str
    values: tuple[str, ...] | None
    short: str = ""


# `reference/neuron.md` 1.2. Those without a numeric effect are validated and reported.
OPTIONS = (
    Option("--auto-cast", tuple(AUTO_CASTS)),
    Option("--auto-cast-type", tuple(CAST_TYPES)),
    Option("--enable-mixed-precision-accumulation", None),
    Option("--disable-mixed-precision-accumulation", None),
    Option("--framework", ("XLA",)),
    Option("--target", ("trn1", "trn1n", "inf2")),  # all have NeuronCore-v2
    Option("--model-type", ("generic", "transformer", "unet-inference")),
    Option("--distribution-strategy", ("llm-training",)),
    Option("--optlevel", ("1", "2", "3"), short="-O"),
    Option("--enable-fast-context-switch", None),
    Option("--enable-fast-loading-neuron-binaries", None),
    Option("--logfile", ()),
    Option("--output", ()),
    Option("--verbose", ("info", "warning", "error", "critical", "debug")),
)
_NOT_YET = ("--enable-saturate-infinity", "--native-int64", "--implicit-integer-downcast")
_OTHER_COMPILER = ("--fast-math", "--fp32-cast", "--neuroncore-pipeline-cores", "--io-config")
_NUMERIC = OPTIONS[:4]


@dataclass(frozen=True)
class Flags:
    """Parsed options: the settings, the options that were given, and those that change no value."""

    settings: CastSettings
    given: tuple[str, ...] = field(default=())
    without_effect: tuple[str, ...] = field(default=())


def parse_flags(flags: str | Sequence[str], release: Release) -> Flags:
    """The settings of a flag line under a release; the right-most of equal options wins.

    Raises InvalidFlag that names the flag, the accepted values and the nearest match.
    """
    try:
        words = shlex.split(flags) if isinstance(flags, str) else list(flags)
    except ValueError as error:
        raise InvalidFlag(f"the flags {flags!r} cannot be split into words: {error}") from error
    settings = CastSettings(
        release.auto_cast, release.auto_cast_type, release.mixed_precision_accumulation
    )
    given: dict[str, str | None] = {}
    while words:
        option, value = _take_option(words)
        given[option.name] = value
    both = ("--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation")
    if all(name in given for name in both):
        raise InvalidFlag(f"{both[0]} and {both[1]} contradict each other: give one of them")
    if (cast := given.get("--auto-cast")) is not None:
        settings = replace(settings, auto_cast=AUTO_CASTS[cast])
    if (cast_type := given.get("--auto-cast-type")) is not None:
        settings = replace(settings, auto_cast_type=cast_type)
    for name, on in zip(both, (True, False), strict=True):
        if name in given:
            settings = replace(settings, mixed_precision_accumulation=on)
    numeric = {o.name for o in _NUMERIC}
    return Flags(settings, tuple(given), tuple(name for name in given if name not in numeric))


def _take_option(words: list[str]) -> tuple[Option, str | None]:
    word = words.pop(0)
    name, equals, attached = word.partition("=")
    name = name.replace("_", "-") if name.startswith("--") else name
    option = next((o for o in OPTIONS if name == o.name), None)
    if option is None and len(word) > 2:
        option = next((o for o in OPTIONS if o.short and word.startswith(o.short)), None)
        equals, attached = "=", word[2:].lstrip("=")
    if option is None:
        option = next((o for o in OPTIONS if o.short and name == o.short), None)
    if option is None:
        raise _unknown(word, name)
    if option.values is None:
        if equals:
            raise InvalidFlag(f"{option.name} takes no value, but {attached!r} was given")
        return option, None
    if not equals and not words:
        raise InvalidFlag(f"{option.name} needs a value{_accepted(option)}")
    value = attached if equals else words.pop(0)
    if option.values and value not in option.values:
        hint = nearest(value, option.values)
        raise InvalidFlag(f"{option.name} cannot be {value!r}{hint}{_accepted(option)}")
    return option, value


def _accepted(option: Option) -> str:
    return f": it accepts {', '.join(option.values)}" if option.values else ""


def _unknown(word: str, name: str) -> InvalidFlag:
    if name in _OTHER_COMPILER:
        return InvalidFlag(
            f"{name} is an option of neuron-cc (Inf1), whose casts are not there yet; for trn1 use "
            "--auto-cast and --auto-cast-type"
        )
    if name in _NOT_YET:
        return InvalidFlag(f"{name} changes values in a way that neuronsim does not emulate yet")
    if not name.startswith("-"):
        return InvalidFlag(f"{word!r} is not an option: the flags are those of neuronx-cc compile")
    return InvalidFlag(f"unknown flag {name}{nearest(name, [o.name for o in OPTIONS])}")
