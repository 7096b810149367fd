"""The command `neuronsim`. Every error is one paragraph on stderr and exit status 2; a reader that
leaves before the end is none.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import neuronsim
from neuronsim import api, ops
from neuronsim.bench import PEERS, measure
from neuronsim.bench.report import print_measurements
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.flags import LEVELS, OPTIONS, Message, verbosity
from neuronsim.casting.flags.options import Option, find_option, option_name, split_flags
from neuronsim.casting.plans.explain import count_casts, describe, lines, type_difference
from neuronsim.casting.plans.plan import Plan, load_plan
from neuronsim.casting.plans.report import print_difference, print_explanation
from neuronsim.casting.policies.calibration import load_calibration
from neuronsim.errors import (
    FlagWarning,
    InaccessibleFile,
    InvalidArgument,
    InvalidFlag,
    NeuronSimError,
    inaccessible,
    nearest,
)
from neuronsim.executor.diagnostics import OBSERVE, Observe
from neuronsim.executor.report import print_diagnostics, print_timings, total_diagnostics
from neuronsim.executor.run import StepTiming
from neuronsim.hlo.conformance import Finding, group, locations, summary
from neuronsim.hlo.module import Module, graph_computations, inline_calls
from neuronsim.hlo.trip_counts import OTHERS
from neuronsim.processor import check_environment, pinned, set_num_threads
from neuronsim.program import load as load_program
from neuronsim.targets import SAME_CORE, TARGETS, find_release, operators
from neuronsim.tuning.dataset import load_dataset, run_batches
from neuronsim.tuning.ladder import METRICS
from neuronsim.tuning.report import print_ladder
from neuronsim.whole_files import check_writable, replacing, write_text

LONGEST_NUMBER = 20  # digits


class _Parser(argparse.ArgumentParser):
    """Errors as exceptions, so that they look like all others; no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        hint = '; write it as --flags="..."' if message.startswith("argument --flags") else ""
        raise InvalidFlag(f"{message}{hint} (see `{self.prog} --help`)")

    def options(self) -> list[str]:
        """The option strings of this parser."""
        return [text for action in self._actions for text in action.option_strings]


class _CompilerOption(argparse.Action):
    """Keeps an option of the compilers, with its values, for `parse_flags`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name = self.option_strings[0]
        word = f"{name}={values}" if values else name
        namespace.compiler_options = [*namespace.compiler_options, word]


def _parser() -> _Parser:
    parser = _Parser(prog="neuronsim", description="What do the Neuron compiler's casts do to a model?")
    parser.add_argument("--version", action="version", version=f"neuronsim {neuronsim.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> _Parser:
        sub: _Parser = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run, parser=sub)
        return sub

    tune = command("tune", _tune, "Measure every auto-cast setting on data and recommend one.")
    tune.add_argument("model", help="an HLO module (.hlo.pb)")
    tune.add_argument("--data", required=True, help=".npz: inputs by name, optional labels")
    tune.add_argument("--metric", choices=METRICS, help="default: top1 with labels")
    tune.add_argument(
        "--tolerance", type=float, default=0.01, help="default: 0.01, for top1 one point of accuracy"
    )
    _add_trips(tune)
    tune.add_argument("--json", metavar="FILE", help="write all figures; - for standard output")
    _add_release(tune)
    _add_threads(tune)

    run = command("run", _run, "Run a model on inputs under one setting.")
    run.add_argument("model", help="an HLO module (.hlo.pb) or a saved program (.nsim)")
    run.add_argument("--inputs", required=True, help=".npz: inputs by name, any number of samples")
    run.add_argument("--output", required=True, help=".npz to write")
    run.add_argument("--observe", choices=OBSERVE[1:], help="print which instructions met what")
    run.add_argument("--timings", action="store_true", help="print which steps take longest")
    _add_casts(run)
    _add_threads(run)

    compile_ = command("compile", _compile, "Compile a model under one setting to a .nsim file.")
    compile_.add_argument("model", help="an HLO module (.hlo.pb)")
    compile_.add_argument("--output", help="the .nsim file to write; default: the model's name")
    compile_.add_argument("--strict", action="store_true", help="what `lint` finds is an error")
    _add_casts(compile_)
    _add_threads(compile_)

    calibrate = command(
        "calibrate", _calibrate, "Write what the values of each instruction are in float32, for rules."
    )
    calibrate.add_argument("model", help="an HLO module (.hlo.pb)")
    calibrate.add_argument("--data", required=True, help=".npz: inputs by name")
    calibrate.add_argument("--output", required=True, metavar="FILE", help="the JSON to write")

    plan = command("plan", _plan, "Write what a setting casts, instruction by instruction, to a file.")
    plan.add_argument("model", help="an HLO module (.hlo.pb)")
    plan.add_argument("--output", metavar="FILE", help="the JSON to write; default: standard output")
    _add_casts(plan)

    explain = command("explain", _explain, "Print what a setting casts, and why.")
    explain.add_argument("model", nargs="?", help="an HLO module; without it the profile is printed")
    explain.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="PATTERN",
        help="all on these: names, opcodes, types or op_names, with wildcards such as 'dot*'",
    )
    _add_trips(explain)
    explain.add_argument("--json", action="store_true", help="print everything as JSON")
    _add_casts(explain)

    diff = command("diff", _diff, "Print where two plans differ; exit status 1 if they do.")
    diff.add_argument("plans", nargs=2, metavar="PLAN", help="a plan in JSON")
    diff.add_argument("--model", help="the HLO module of both: the table then has opcodes")

    bench = command("bench", _bench, "Time a kernel, alone or against a peer in the same run.")
    bench.add_argument("--op", required=True, help="a kernel such as add, convert, sum, matmul")
    bench.add_argument(
        "--shape", default="4096x4096", help="lengths; matmul: [BATCHx]ROWSxDEPTHxCOLUMNS"
    )
    bench.add_argument(
        "--dtype",
        default="float32",
        help="a type; convert: SOURCE:TARGET; products that cast: float32:TYPE",
    )
    bench.add_argument("--layer", help="of a convolution, such as 64k7x7s2p3")
    bench.add_argument("--axis", type=int, help="of a reduction; default: all axes")
    bench.add_argument("--isa", help="default: the widest of this processor")
    bench.add_argument("--threads", type=int, default=1, help="default: 1")
    bench.add_argument("--peer", help=", ".join(PEERS))
    bench.add_argument("--touched", action="store_true", help="results to memory written before")
    bench.add_argument("--json", action="store_true", help="print all figures as JSON")

    lint = command(
        "lint",
        _lint,
        "Print what a model breaks of the constraints that AWS documents, and what its casts break.",
    )
    lint.add_argument("model", help="an HLO module (.hlo.pb)")
    _add_casts(lint)
    lint.add_argument("--strict", action="store_true", help="exit status 1 if there is a finding")
    lint.add_argument("--json", action="store_true", help="print all findings as JSON")

    listing = command(
        "list-operators",
        _list_operators,
        "Print operators by their XlaBuilder names: those that neuronsim executes, or with --sdk those "
        "that AWS documents for that release.",
    )
    listing.add_argument("--sdk", help="SDK or compiler version, such as 2.26 or 2.3.0.4")
    listing.add_argument("--compiler-version", help="the same")
    listing.add_argument("--framework", default="XLA", help="XLA, as in neuronx-cc; default: XLA")
    return parser


def _commands(parser: _Parser) -> list[str]:
    return [name for a in parser._actions if isinstance(a.choices, dict) for name in a.choices]


def _add_release(parser: _Parser) -> None:
    parser.add_argument("--sdk", help=f"SDK or compiler version; default: {api.DEFAULT_SDK}")
    parser.add_argument("--compiler-version", help="the same, such as 2.3.0.4")
    parser.add_argument(
        "--target", help=f"{', '.join((*TARGETS, *SAME_CORE))}; default: {api.DEFAULT_TARGET}"
    )


def _add_trips(parser: _Parser) -> None:
    parser.add_argument(
        "--trips",
        action="append",
        default=[],
        metavar="[LOOP=]N",
        help="trips of loops that do not count to a constant; default: their bound, or 1",
    )


def _trips(options: argparse.Namespace) -> dict[str, int]:
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


def _add_threads(parser: _Parser) -> None:
    parser.add_argument("--threads", type=int, help="default: all cores")


def _add_casts(parser: _Parser) -> None:
    parser.add_argument("--flags", default="", help="a line of options of neuronx-cc or neuron-cc")
    parser.add_argument("--policy", help="a policy's name or file, instead of the flags")
    parser.add_argument(
        "--calibration", metavar="FILE", help="what `calibrate` wrote, for a policy's rules on values"
    )
    parser.add_argument("--plan", help="a plan in JSON, instead of the flags")
    _add_release(parser)
    _add_compiler_options(parser)


def _add_compiler_options(parser: _Parser) -> None:
    """The options of both compilers that the parser has not yet."""
    by_name: dict[str, dict[str, Option]] = {}
    for compiler, table in OPTIONS.items():
        for o in table:
            if o.name not in parser.options():
                by_name.setdefault(o.name, {})[compiler] = o
    for name, options in by_name.items():
        first = next(iter(options.values()))
        parser.add_argument(
            name,
            *first.short,
            action=_CompilerOption,
            nargs=0 if first.values is None else "?",  # parse_flags says which are missing
            metavar="VALUE",
            help="; ".join(f"{compiler}: {o.accepted}" for compiler, o in options.items()),
        )
    parser.set_defaults(compiler_options=[])


@pinned
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = argparse.Namespace(status=0, writing=[])
    is_closed = sys.stdout is None
    with _standard_streams():
        try:
            if is_closed:
                raise InvalidArgument("standard output is closed: redirect it, to /dev/null at least")
            _run_command(sys.argv[1:] if arguments is None else arguments, options)
        except NeuronSimError as error:
            if getattr(error, "errno", None) == errno.EPIPE:  # the reader has what it wanted
                return int(options.status)
            _print_error(str(error))
            return 2
        except KeyboardInterrupt:
            begun = ", ".join(options.writing)
            _print_error(
                f"interrupted as it wrote {begun}: no regular file is half written"
                if begun
                else "interrupted; nothing was written"
            )
            return 130
    return int(options.status)


def _run_command(arguments: Sequence[str], options: argparse.Namespace) -> None:
    """Run a command; `options` then has its `status`, and the files that it was `writing`."""
    try:
        check_environment()
        words, parser = _words(arguments), _parser()
        _check_command(words, _commands(parser))
        _, unknown = parser.parse_known_args(words, options)
        if unknown:
            raise _unknown(options.command, options.parser.options(), unknown)
        with warnings.catch_warnings():
            warnings.simplefilter("always", FlagWarning)
            warnings.showwarning = _print_warning
            options.run(options)
    finally:  # also after --help, which ends the process
        sys.stdout.flush()


class _Stream(io.TextIOBase):
    """Standard output or standard error, whose failures are errors of ours. After one it takes no more,
    and `flush` says it again, since argparse does not hear it.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._failure: InaccessibleFile | None = None

    def write(self, text: str, /) -> int:
        with self._as_ours():
            try:
                return self._stream.write(text)
            except UnicodeEncodeError:
                encoded = text.encode(self.encoding, "backslashreplace")
                return self._stream.write(encoded.decode(self.encoding))

    def flush(self) -> None:
        with self._as_ours():
            self._stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            with suppress(OSError):  # what is left must not fail again as the process ends
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), self._stream.fileno())
            self._failure = inaccessible(f"cannot write to {self._name}", error)
            raise self._failure from error


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Standard output and error as `_Stream`s; a closed one's number is taken, that no file gets it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    null = open(os.devnull, "w")  # noqa: SIM115 (closed below)
    sys.stdout, sys.stderr = (
        _Stream(stream or null, name)
        for stream, name in zip(before, ("standard output", "standard error"), strict=True)
    )
    try:
        with null:
            yield
    finally:
        sys.stdout, sys.stderr = before


def _print_error(message: str) -> None:
    with suppress(InaccessibleFile):  # then only the status tells
        console = Console(stderr=True, highlight=False)
        console.print(f"neuronsim: {message}", style="red", markup=False, soft_wrap=True)


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


def _unknown(command: str, known: Sequence[str], unknown: Sequence[str]) -> InvalidFlag:
    """What a command has not: its options, or the words that follow none of them."""
    names = [option_name(w) for w in unknown if w.startswith("-")]
    if not names:
        return InvalidFlag(f"{command} takes no further words: {', '.join(map(repr, unknown))}")
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


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _check_writable(path: str | None) -> None:
    """Before any work: raises InvalidArgument if a file cannot be written there."""
    if path is None or path == "-":
        return
    if path.endswith(".neff"):
        raise InvalidArgument(
            f"cannot write {path!r}: neuronsim makes no NEFFs, which only neuronx-cc does; use .nsim"
        )
    check_writable(path)


@contextmanager
def _progress_bar(total_unknown: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr, on a terminal only."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(total_unknown, total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)


def _tune(options: argparse.Namespace) -> None:
    _check_writable(options.json)
    with _progress_bar("reading") as progress:
        result = api.tune(
            options.model,
            options.data,
            metric=options.metric,
            tolerance=options.tolerance,
            sdk=_version(options),
            target=api.DEFAULT_TARGET if options.target is None else options.target,
            threads=options.threads,
            trips=_trips(options),
            progress=progress,
        )
    if options.json == "-":
        print(result.to_json())
        return
    if options.json is not None:
        _write(options, options.json, result.to_json() + "\n")
    print_ladder(result, Console())
    if options.json is not None:
        print(f"\nall figures are in {options.json}")


def _write(options: argparse.Namespace, path: str, text: str) -> None:
    options.writing.append(path)
    write_text(path, text)


def _program(options: argparse.Namespace) -> api.CompiledProgram:
    if options.model.endswith(".nsim"):
        frozen = (
            *("flags", "policy", "calibration", "plan"),
            *("sdk", "compiler_version", "target", "strict"),
        )
        given = [f"--{n.replace('_', '-')}" for n in frozen if getattr(options, n, None)]
        given += [option_name(w) for w in options.compiler_options]
        if given:
            raise InvalidFlag(
                f"{options.model} is compiled already: {', '.join(given)} cannot change it"
            )
        if options.threads is not None:
            set_num_threads(options.threads)
        return load_program(options.model)
    return api.compile(
        options.model,
        **_setting(options),
        **_deciders(options),
        threads=options.threads,
        strict=getattr(options, "strict", False),
    )


def _deciders(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the casts instead of the flags: a plan, or a policy with its calibration."""
    path = options.calibration
    calibration = None if path is None else load_calibration(path)
    return {"policy": options.policy, "plan": options.plan, "calibration": calibration}


def _setting(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `compile` that the flags, the release and the target are."""
    return {
        "flags": [*split_flags(options.flags), *options.compiler_options],
        "sdk": _version(options),
        "target": options.target,
    }


def _version(options: argparse.Namespace, default: str = api.DEFAULT_SDK) -> str:
    """The SDK or compiler version that --sdk or --compiler-version names."""
    named = [v for v in (options.sdk, options.compiler_version) if v is not None]
    if len(named) == 2 and find_release(named[0]) != find_release(named[1]):
        raise InvalidFlag(
            f"--sdk {named[0]} contradicts --compiler-version {named[1]}, which is that of "
            f"{find_release(named[1])}: give one of them"
        )
    return str(named[0]) if named else default


def _run(options: argparse.Namespace) -> None:
    _check_writable(options.output)
    program = _program(options)
    dataset = load_dataset(options.inputs, input_names=program.model.input_names())
    observe: Observe = options.observe or "off"
    met: list[dict[str, Any]] = []
    timings: list[tuple[StepTiming, ...]] = []

    def call(**inputs: Any) -> Any:
        result = program(**inputs, observe=observe)
        met.append(program.diagnostics)
        if options.timings and not timings:
            timings.append(program.timings(**inputs))
        return result

    outputs = run_batches(call, program.model, dataset)
    arrays = {f"output_{n}": _storable(a) for n, a in enumerate(outputs)}
    options.writing.append(options.output)
    with replacing(options.output) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    setup = program.setup
    print(f"{setup.casts} ({setup.compiler}): {_listing(arrays)} in {options.output}")
    counts = total_diagnostics(met, program.constant_diagnostics)
    for name, count in counts.int64_truncated.items():
        print(
            f"warning: {name}: {count} 64-bit integers lost their high 32 bits (C7)",
            file=sys.stderr,
        )
    for name, count in counts.outside_range.items():
        print(f"warning: {ops.outside_range_warning(name, count)}", file=sys.stderr)
    console = Console(stderr=True)
    print_diagnostics(counts, observe, program.opcodes, console)
    for found in timings:
        print_timings(found, console)


def _storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy's file format has no bfloat16 and float8: float32 holds their values."""
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


def _listing(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    return ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())


def _compile(options: argparse.Namespace) -> None:
    output = options.output or f"{_model_name(options.model)}.nsim"
    if not output.endswith((".nsim", ".neff")):
        raise InvalidArgument(f"the output {output!r} must end in .nsim")
    _check_writable(output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlagWarning)  # they are among the messages
        program = _program(options)
    setup = program.setup
    messages = list(setup.messages)
    messages.append(Message("info", f"{setup.target.name} is {setup.target.description}"))
    messages.append(Message("debug", f"the plan decides {len(program.plan.decisions)} instructions"))
    if program.conformance:
        rules = ", ".join(dict.fromkeys(f.label for f in program.conformance))
        text = (
            f"{options.model} breaks what AWS documents for {setup.release} "
            f"({summary(program.conformance)}: {rules}): see `neuronsim lint {options.model}`"
        )
        messages.append(Message("warning", text))
    _check_writable(setup.given.get("--logfile"))
    options.writing.append(output)
    program.save(output)
    _print_messages(options, messages, verbosity(setup.given), setup.given.get("--logfile"))
    said = verbosity(setup.given) <= LEVELS["info"]  # among the messages
    inert = "" if said or not setup.without_effect else ", ".join(setup.without_effect)
    end = f"; without numeric effect: {inert}" if inert else ""
    print(f"{setup.casts} ({setup.compiler}): wrote {output}{end}")


def _model_name(path: str) -> str:
    """The name of a model without its folder and the endings of HLO files."""
    name = Path(path).resolve().name
    for ending in (".pb", ".txt", ".hlo"):
        name = name.removesuffix(ending)
    return name


def _print_messages(
    options: argparse.Namespace, messages: Sequence[Message], least: int, logfile: str | None
) -> None:
    """As neuronx-cc does: information to stdout, warnings to stderr; all of it to the log file too."""
    lines = [(m, f"{m.level}: {m.text}") for m in messages if LEVELS[m.level] >= least]
    if logfile is not None:
        _write(options, logfile, "".join(f"{line}\n" for _, line in lines))
    for message, line in lines:
        print(line, file=sys.stdout if message.level in ("debug", "info") else sys.stderr)


def _plan_of(options: argparse.Namespace) -> tuple[Module, Plan]:
    """The model and its plan under the given setting."""
    model = api.read_model(options.model)
    return model, api.plan(model, **_setting(options), **_deciders(options))


def _calibrate(options: argparse.Namespace) -> None:
    _check_writable(options.output)
    with _progress_bar("float32") as progress:
        found = api.calibrate(
            options.model,
            options.data,
            progress=lambda done, total: progress("float32", done, total),
        )
    _write(options, options.output, found.to_json() + "\n")
    print(f"the values of {len(found.values)} instructions of {options.model}: wrote {options.output}")


def _plan(options: argparse.Namespace) -> None:
    _check_writable(options.output)
    model, plan = _plan_of(options)
    if options.output is None:
        print(plan.to_json())
        return
    _write(options, options.output, plan.to_json() + "\n")
    count = sum(len(c.instructions) for c in graph_computations(inline_calls(model)))
    print(
        f"{plan.policy} decides {len(plan.decisions)} of {count} instructions: wrote {options.output}"
    )


def _explain(options: argparse.Namespace) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    if options.model is None:
        table = Table("field", "value", "rule", "evidence", "source")
        setup = api.resolve(**_setting(options))
        for f in setup.profile.describe():
            table.add_row(f["field"], str(f["value"]), f["rule"], f["evidence"], f["source"])
        console.print(table)
        return
    model, plan = _plan_of(options)
    planned = plan.apply(model)
    made, counts = count_casts(model, planned, plan, _trips(options))
    found = lines(model, plan, options.filter, planned)
    if options.json:
        report = {
            "schema": "neuronsim.explanation/1",
            "policy": plan.policy,
            "instructions": {line.instruction.name: describe(line, made, plan) for line in found},
            "types": {line.instruction.name: line.given for line in found},
            "casts": [asdict(c) for c in made],
            **asdict(counts),
        }
        print(json.dumps(report, indent=1))
    else:
        print_explanation(found, made, counts, plan, console, single=bool(options.filter))


def _diff(options: argparse.Namespace) -> None:
    first, second = (load_plan(path) for path in options.plans)
    if first.fingerprint != second.fingerprint:
        raise InvalidArgument(
            f"{options.plans[0]} was made for {first.module!r} ({first.fingerprint}), "
            f"{options.plans[1]} for {second.module!r} ({second.fingerprint}): plans of one module can "
            "be compared"
        )
    model = api.read_model(options.model) if options.model else None
    if model is not None:
        check_plan(first, model)
    differ = type_difference(first, second) or first.keep_output_type != second.keep_output_type
    options.status = 1 if differ else 0  # whether or not all of it is read
    console = Console(width=None if sys.stdout.isatty() else 140)
    print_difference(first, second, console, model)


def _bench(options: argparse.Namespace) -> None:
    parts = options.shape.lower().split("x")
    if not all(p.isdecimal() for p in parts):
        raise InvalidArgument(f"--shape is lengths such as 4096x1024, not {options.shape!r}")
    result = measure(
        options.op,
        tuple(int(p) for p in parts),
        options.dtype,
        axis=options.axis,
        layer=options.layer,
        threads=options.threads,
        isa=options.isa,
        peer=options.peer,
        touched=options.touched,
    )
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        print_measurements([result], Console(width=None if sys.stdout.isatty() else 140))


def _lint(options: argparse.Namespace) -> None:
    findings = api.lint(options.model, **_setting(options), **_deciders(options))
    options.status = 1 if findings and options.strict else 0  # whether or not all of it is read
    setup = api.setup_for(options.model, **_setting(options))
    if options.json:
        report = {
            "schema": "neuronsim.lint/1",
            "model": options.model,
            "release": setup.compiler,
            "target": setup.target.name,
            "findings": [asdict(f) for f in findings],
        }
        print(json.dumps(report, indent=1))
    else:
        _print_findings(f"{options.model} under {setup.compiler} on {setup.target.name}", findings)


def _print_findings(title: str, findings: Sequence[Finding]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(f"{title}: {summary(findings)}", markup=False, soft_wrap=True)
    groups = group(findings)
    if not groups:
        return
    table = Table("severity", "instructions", "what", "rule", "what to do")
    for g in groups:
        f = g[0]
        cells = (f.severity, locations(g), f.message, f.label, f.advice)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    for label, f in {g[0].label: g[0] for g in groups}.items():
        console.print(f'{label}: "{f.quotation}" ({f.source})', markup=False, soft_wrap=True)


def _list_operators(options: argparse.Namespace) -> None:
    if options.framework != "XLA":
        raise InvalidFlag(
            f"--framework cannot be {options.framework!r}: neuronx-cc and neuronsim know XLA only"
        )
    executed = {op.xla_builder for op in ops.OPS.values() if op.opcode} | {"Constant", "Tuple"}
    version = _version(options, default="")
    names = operators(find_release(version)) if version else sorted(executed)
    for name in names:
        print(name)
