"""The words of a command line: what argparse reads of them, and what the options of several commands
mean.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import neuronsim
from neuronsim.casting.flags import OPTIONS
from neuronsim.casting.flags.options import Option, find_option, option_name, split_flags
from neuronsim.casting.policies.calibration import Calibration, load_calibration
from neuronsim.casting.policies.named import POLICIES
from neuronsim.errors import InvalidArgument, InvalidFlag, nearest
from neuronsim.hlo.trip_counts import OTHERS
from neuronsim.setups import DEFAULT_SDK, DEFAULT_TARGET
from neuronsim.targets import INT8, SAME_CORE, TARGETS, find_release

LONGEST_NUMBER = 20  # digits
_WIDTH = 78  # columns of what ends --help
_FEW = 8  # options that a line of usage names


class _WholeWords(argparse.RawDescriptionHelpFormatter):
    """Breaks no name at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        words = " ".join(text.split())
        return textwrap.wrap(words, width, break_on_hyphens=False, break_long_words=False)


class _Once(argparse._StoreAction):
    """An option's value. Raises InvalidFlag where it is given again, and is another: one would be
    dropped. (Of the compilers' own options, kept as words, the right-most counts, as there.)
    """

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = vars(self).setdefault("given", values)
        if option_string is not None and before is not values and before != values:
            raise InvalidFlag(f"{option_string} says {before} and {values}: give one of them")
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """Errors as exceptions, so that they look like all others; no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        kept = {"allow_abbrev": False, "formatter_class": _WholeWords}
        super().__init__(**{**options, **kept})
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self._told: list[str] = []
        # What names a file to write, by its key in the options, with the suffixes that it may have.
        self.outputs: dict[str, tuple[str, ...]] = {}
        self._positionals.title = "arguments"

    def format_help(self) -> str:
        """Usage with what must be given, and all options in their groups below it."""
        if self.usage is None and len(self._actions) > _FEW:
            needed = [a for a in self._actions if a.required or not a.option_strings]
            words = [" ".join((*a.option_strings[:1], (a.metavar or a.dest).upper())) for a in needed]  # type: ignore[union-attr]
            self.usage = " ".join(("%(prog)s", *words, "[OPTION ...]"))
        return super().format_help()

    def group(self, title: str) -> argparse._ArgumentGroup:
        """The group of options with this title, which --help shows together."""
        known = next((g for g in self._action_groups if g.title == title), None)
        return known or self.add_argument_group(title)

    def writes(
        self,
        option: str,
        text: str,
        *,
        forms: tuple[str, ...] = (),
        title: str = "what is written",
        **more: Any,
    ) -> None:
        """An option that names a file to write; all of them are shown together. Its suffix is one of
        the `forms`, if these are given.
        """
        added = self.group(title).add_argument(option, metavar="FILE", help=text, **more)
        self.outputs[added.dest] = forms

    def tell(self, title: str, lines: Iterable[str]) -> None:
        """Lines under a title at the end of --help."""
        self._told += [f"{title}:", *(f"  {line}" for line in lines), ""]
        self.epilog = "\n".join(self._told)

    def tell_names(self, title: str, names: Iterable[str]) -> None:
        """A list of names at the end of --help."""
        self.tell(title, textwrap.wrap(", ".join(names), _WIDTH - 2, break_on_hyphens=False))

    def error(self, message: str) -> NoReturn:
        hint = '; write it as --flags="..."' if message.startswith("argument --flags") else ""
        raise InvalidFlag(f"{message}{hint} (see `{self.prog} --help`)")

    def options(self) -> list[str]:
        """The option strings of this parser."""
        return [text for action in self._actions for text in action.option_strings]


Run: TypeAlias = Callable[[argparse.Namespace], None]
# Declares a command by its name, what runs it and a sentence on what it does.
Declare: TypeAlias = Callable[[str, Run, str], Parser]


def parse(
    commands: Iterable[Callable[[Declare], None]], words: Sequence[str], into: argparse.Namespace
) -> None:
    """Read a line of the commands that these functions declare; `into.run` then runs one of them.
    Raises InvalidFlag.
    """
    parser = Parser(prog="neuronsim", description="What do the Neuron compiler's casts do to a model?")
    parser.tell(
        "examples",
        (
            "neuronsim tune model.onnx --data x.npz     which setting, on your data",
            "neuronsim cost model.onnx                  what each setting takes, estimated",
            "neuronsim run model.onnx --inputs x.npz --auto-cast all --observe full",
            "                                           which instructions overflow, and where",
            "neuronsim COMMAND --help                   the options of a command",
        ),
    )
    parser.add_argument("--version", action="version", version=f"neuronsim {neuronsim.__version__}")
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def declare(name: str, run: Run, text: str) -> Parser:
        sub: Parser = added.add_parser(name, help=text, description=textwrap.fill(text, _WIDTH))
        sub.set_defaults(run=run, parser=sub)
        return sub

    for declare_commands in commands:
        declare_commands(declare)
    words = _words(words)
    _check_command(words, list(added.choices))
    _, unknown = parser.parse_known_args(words, into)
    if unknown:
        raise _unknown(into.command, into.parser, unknown)


def _check_command(words: Sequence[str], known: Sequence[str]) -> None:
    """Raises InvalidFlag where the first word is no command, or a compiler's, or there is none."""
    if not words:
        raise InvalidFlag(f"give a command: {', '.join(known)} (see `neuronsim --help`)")
    compiler = next((w for w in words[:2] if w in OPTIONS), None)
    if compiler is not None:
        raise InvalidFlag(
            f"write neuronsim in the place of {compiler}: `neuronsim compile MODEL` takes its options"
        )
    if not words[0].startswith("-") and words[0] not in known:
        near = nearest(words[0], known)
        raise InvalidFlag(f"there is no command {words[0]!r}{near}: it is one of {', '.join(known)}")


def _unknown(command: str, parser: Parser, unknown: Sequence[str]) -> InvalidFlag:
    """What a command has not: its options, or the words that follow none of them."""
    known = parser.options()
    names = [option_name(w) for w in unknown if w.startswith("-")]
    if not names:
        return InvalidFlag(f"{command} takes no further words: {', '.join(map(repr, unknown))}")
    if "--output" in (name.partition("=")[0] for name in names):
        files = [f"--{name}" for name in parser.outputs]
        writes = f"writes the files of {', '.join(files)}" if files else "prints what it finds"
        return InvalidFlag(f"{command} has no --output: it {writes}")
    hints = [nearest(name, known) for name in names]
    listed = ", ".join(f"{name!r}{hint}" for name, hint in zip(names, hints, strict=True))
    longs = ", ".join(o for o in known if o.startswith("--"))
    return InvalidFlag(f"{command} has no {listed}{'' if all(hints) else f': it takes {longs}'}")


def _words(arguments: Sequence[str]) -> list[str]:
    """The arguments as argparse reads them: `--flags` and the line after it as one word, since that
    begins like an option, so also an option that takes several values, which end at a file's name, and
    names with dashes, since AWS writes --distribution_strategy too.
    """
    rest, words = list(arguments), []
    while rest:
        word = rest.pop(0)
        name = word.partition("=")[0]
        if word == "--flags" and rest and (" " in rest[0] or rest[0].startswith("-")):
            word = f"--flags={rest.pop(0)}"
        elif " " not in name:
            word = option_name(word) + word[len(name) :]
        option = next((o for table in OPTIONS.values() if (o := find_option(word, table))), None)
        if option is not None and option.several:
            while rest and not rest[0].startswith("-") and not _is_file(rest[0], option):
                word += (" " if "=" in word else "=") + rest.pop(0)
        if option is not None and option.values and "=" not in word and rest:
            word += "=" if _is_file(rest[0], option) else ""  # argparse would take it
        words.append(word)
    return words


def _is_file(word: str, option: Option) -> bool:
    """Whether a word that could be an option's value is rather a file's name."""
    takes = option.takes(word) and not option.text  # which takes every word
    return not takes and (Path(word).suffix != "" or Path(word).exists())


# ---- options of several commands -----------------------------------------------------------------

MODELS = "HLO (.hlo.pb), ONNX (.onnx), StableHLO (.mlir), PyTorch (.pt2), or module:name in Python"
FIGURES = "write all figures; - for standard output"  # of --json


def add_model(parser: Parser, text: str = MODELS, *, name: str = "model", **more: Any) -> None:
    """The model, and what it leaves open of its inputs."""
    parser.add_argument(name, help=text, **more)
    group = parser.group("the model's inputs and outputs")
    group.add_argument(
        "--input-shape",
        action="append",
        default=[],
        metavar="NAME=N,N[:TYPE]",
        help="the dimensions of an input where a model leaves some open; a function's type too",
    )
    group.add_argument(
        "--input-value",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an input whose value is known: a number, or [..] of them; then it is no input any more",
    )
    group.add_argument(
        "--weights",
        metavar="FILE",
        help=".npz or .safetensors: parameters by name or number that are constants",
    )
    group.add_argument("--batch", type=int, default=1, help="an open first dimension; default: 1")
    group.add_argument(
        "--outputs",
        metavar="NAME,NAME",
        help="tensors of an ONNX model where it ends, in the place of its own outputs",
    )


def model_inputs(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `compile` that these options are."""
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, str] = {}
    for text in options.input_shape:
        name, stated = _named("--input-shape NAME=N,N", text)
        dims, _, type_ = stated.partition(":")
        types |= {name: type_} if type_ else {}
        if type_ and getattr(options, "data", None):
            raise InvalidArgument(f"--input-shape {text[:80]!r}: the types are those of the data")
        numbers = dims.replace("x", ",").split(",") if dims else []
        if not all(n.isascii() and n.isdecimal() and len(n) <= LONGEST_NUMBER for n in numbers):
            raise InvalidArgument(
                f"--input-shape {text[:80]!r}: dimensions are numbers, as in x=8,2048"
            )
        shapes[name] = tuple(map(int, numbers))
    values: dict[str, Any] = {}
    for text in options.input_value:
        name, value = _named("--input-value NAME=VALUE", text)
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):
            raise InvalidArgument(
                f"--input-value {text[:80]!r}: a value is a number or a list of them, as in sr=16000"
            ) from None
    return {
        "input_shapes": shapes or None,
        "input_values": values or None,
        "batch": options.batch,
        "weights": options.weights,
        **({"input_types": types} if types else {}),
        **({"outputs": tuple(options.outputs.split(","))} if options.outputs else {}),
    }


# The options by which a further command is about the same model, release and target.
SAME_MODEL = ("input_shape", "input_value", "weights", "outputs", "batch")
SAME_RELEASE = ("sdk", "compiler_version", "target")


def given_words(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of these options that were given, as words for a further command."""
    actions = {action.dest: action for action in options.parser._actions}
    words = []
    for action in (actions[name] for name in names):
        value = getattr(options, action.dest)
        if value == action.default:
            continue
        option = action.option_strings[0]
        if action.nargs == 0:  # a switch
            words.append(option)
            continue
        words += [w for x in (value if isinstance(value, list) else [value]) for w in (option, str(x))]
    return words


def _named(usage: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not name or not equals:
        raise InvalidArgument(f"{usage}, not {text[:80]!r}")
    return name, value


def add_release(parser: Parser) -> None:
    group = parser.group("release and target")
    group.add_argument("--sdk", help=f"SDK or compiler version; default: {DEFAULT_SDK}")
    group.add_argument("--compiler-version", help="the same, such as 2.3.0.4")
    group.add_argument(
        "--target",
        help=f"{', '.join((*TARGETS, *SAME_CORE))}; {DEFAULT_TARGET}{INT8} for one as if its compiler "
        f"made INT8 products; default: {DEFAULT_TARGET}",
    )


def version(options: argparse.Namespace, default: str = DEFAULT_SDK) -> str:
    """The SDK or compiler version that --sdk or --compiler-version names."""
    named = [v for v in (options.sdk, options.compiler_version) if v is not None]
    if len(named) == 2 and find_release(named[0]) != find_release(named[1]):
        raise InvalidFlag(
            f"--sdk {named[0]} contradicts --compiler-version {named[1]}, which is that of "
            f"{find_release(named[1])}: give one of them"
        )
    return str(named[0]) if named else default


def add_trips(parser: Parser) -> None:
    parser.add_argument(
        "--trips",
        action="append",
        default=[],
        metavar="[LOOP=]N",
        help="trips of loops that do not count to a constant; default: their bound, or 1",
    )


def trips(options: argparse.Namespace) -> dict[str, int]:
    """The numbers of --trips by the loops' names; without a name it is that of all others."""
    found: dict[str, int] = {}
    for text in options.trips:
        name, _, number = text.rpartition("=")
        if not number.isascii() or not number.isdecimal() or len(number) > LONGEST_NUMBER:
            raise InvalidArgument(f"--trips is a number of trips, or LOOP=N, not {text[:80]!r}")
        if found.setdefault(name or OTHERS, int(number)) != int(number):
            raise InvalidArgument(
                f"--trips says {found[name or OTHERS]} and {text[:80]}: give one of them"
            )
    return found


def add_threads(parser: Parser) -> None:
    parser.add_argument("--threads", type=int, help="default: all cores")


# ---- what decides the casts ----------------------------------------------------------------------


def add_casts(parser: Parser) -> None:
    group = parser.group("what decides the casts")
    group.add_argument("--flags", default="", help="a line of options of neuronx-cc or neuron-cc")
    group.add_argument("--policy", help="a policy's name or file, instead of the flags")
    add_calibration(group)
    group.add_argument("--plan", help="a plan in JSON, instead of the flags")
    add_release(parser)
    _add_compiler_options(parser)
    parser.tell_names("policies (docs/policy_files.md)", POLICIES)


def add_calibration(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--calibration", metavar="FILE", help="what `calibrate` wrote, for a policy's rules on values"
    )


def calibration(options: argparse.Namespace) -> Calibration | None:
    return None if options.calibration is None else load_calibration(options.calibration)


def _add_compiler_options(parser: Parser) -> None:
    """The options of both compilers that the parser has not yet, kept as words for `parse_flags`, which
    says which values are missing.
    """
    by_name: dict[str, dict[str, Option]] = {}
    for compiler, table in OPTIONS.items():
        for o in table:
            # A command that writes none would take it for the compiler's, and drop it.
            if o.name not in (*parser.options(), "--output"):
                by_name.setdefault(o.name, {})[compiler] = o
    for name, options in by_name.items():
        first = next(iter(options.values()))
        kept: dict[str, Any] = {"action": "append_const", "const": name}
        if first.values is not None:
            kept = {"action": "append", "nargs": "?", "const": "", "type": partial(_kept, name)}
        casts = any(o.name in _OF_CASTS for o in options.values())
        group = parser.group("what decides the casts" if casts else "other options of the compilers")
        group.add_argument(
            *(name, *first.short),
            **kept,
            dest="compiler_options",
            default=[],
            metavar="VALUE",
            help="; ".join(f"{compiler}: {o.accepted}" for compiler, o in options.items()),
        )


# The options of the compilers that decide values; the others are read and have no numeric effect.
_OF_CASTS = frozenset(
    {"--auto-cast", "--auto-cast-type", "--fast-math", "--fp32-cast", "--enable-saturate-infinity"}
    | {"--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation"}
    | {"--native-int64", "--implicit-integer-downcast", "--io-config"}
)


def _kept(name: str, value: str) -> str:
    return f"{name}={value}" if value else name


def setting(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `compile` that the flags, the release and the target are."""
    return {
        "flags": [*split_flags(options.flags), *options.compiler_options],
        "sdk": version(options),
        "target": options.target,
    }


def given_for_compiling(options: argparse.Namespace) -> list[str]:
    """The options given that say how a model is read and compiled."""
    own = ["flags", "policy", "calibration", "plan", "sdk", "compiler_version", "target"]
    own += ["input_shape", "input_value", "weights", "outputs"]
    given = [f"--{name.replace('_', '-')}" for name in own if getattr(options, name)]
    given += ["--batch"] * (options.batch != 1)
    return given + [option_name(word) for word in options.compiler_options]


def casts(options: argparse.Namespace) -> dict[str, Any]:
    """The same, and what decides in the flags' place: a plan, or a policy with its calibration."""
    found = calibration(options)
    deciders = {"policy": options.policy, "plan": options.plan, "calibration": found}
    return setting(options) | deciders | model_inputs(options)
