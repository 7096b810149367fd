"""`neuronsim run` and `compile`: programs."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuronsim import api, ops, reports
from neuronsim.casting.flags import LEVELS, Message, verbosity
from neuronsim.cli.arguments import (
    MODELS,
    Declare,
    add_casts,
    add_model,
    add_threads,
    casts,
    given_for_compiling,
)
from neuronsim.cli.observations import SCHEMA as OBSERVATION
from neuronsim.cli.observations import (
    leave_out,
    observed,
    print_observed,
    print_timings,
    total_diagnostics,
)
from neuronsim.cli.output import PAGES, check_outputs, command_line, print_warning, progress_bar, write
from neuronsim.errors import FlagWarning, InvalidArgument, InvalidFlag, counted
from neuronsim.executor.diagnostics import OBSERVE, Observe
from neuronsim.executor.run import StepTiming
from neuronsim.frontends.hlo_files import FORMS as HLO_FORMS
from neuronsim.frontends.hlo_files import write_hlo
from neuronsim.hlo.findings import summary
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.processor import set_num_threads
from neuronsim.program import CompiledProgram
from neuronsim.program import load as load_program
from neuronsim.report_page.graph import graph_document
from neuronsim.setups import CompileRequest
from neuronsim.tables import output_console, print_text, say
from neuronsim.tuning.dataset import batches, load_dataset, run_batches
from neuronsim.whole_files import replacing


def declare_commands(declare: Declare) -> None:
    run = declare("run", _run, "Run a model on inputs under one setting.")
    add_model(run, f"{MODELS}, or a saved program (.nsim)")
    run.add_argument("--inputs", required=True, help=".npz: inputs by name, any number of samples")
    run.writes("--output", ".npz to write; without it the results are not kept", forms=(".npz",))
    run.add_argument("--observe", choices=OBSERVE[1:], help="print which instructions met what")
    run.writes("--json", "write what was met; - for standard output")
    run.writes("--report", "write what was met as an HTML page", forms=PAGES)
    run.add_argument("--timings", action="store_true", help="print which steps take longest")
    add_casts(run)
    add_threads(run)
    run.tell(
        "examples",
        (
            "neuronsim run model.hlo.pb --inputs x.npz --output y.npz --auto-cast all",
            "neuronsim run model.onnx --inputs x.npz --policy torch-cpu/bfloat16 --observe counts",
            "neuronsim run model.nsim --inputs x.npz --timings",
        ),
    )

    compile_ = declare("compile", _compile, "Compile a model under one setting to a .nsim file.")
    add_model(compile_)
    compile_.writes(
        "--output",
        ".nsim to write, or .hlo.pb, .hlo, .onnx: the model with its casts; default: the model's name",
    )
    compile_.add_argument("--strict", action="store_true", help="what `lint` finds is an error")
    add_casts(compile_)
    add_threads(compile_)
    compile_.tell(
        "examples",
        (
            "neuronsim compile model.hlo.pb --auto-cast matmult --auto-cast-type bf16",
            "neuronsim compile model.hlo.pb --policy tvm/float16 --output casts.hlo.pb",
            "neuronsim compile model.onnx --auto-cast all --output casts.onnx",
        ),
    )


def _run(options: argparse.Namespace) -> None:
    _check_run(options)
    program = _program(options)
    dataset = load_dataset(options.inputs, input_names=program.model.input_names())
    observe: Observe = options.observe or "off"
    met: list[dict[str, Any]] = []
    timings: list[tuple[StepTiming, ...]] = []

    def call(**inputs: Any) -> Any:
        result = program.results(**inputs, observe=observe)
        met.append(program.diagnostics)
        if options.timings and not timings:
            timings.append(program.timings(**inputs))
        return result

    with progress_bar("running") as progress:
        outputs = run_batches(
            call,
            program.model,
            dataset,
            lambda done: progress("running", done, len(batches(program.model, dataset))),
        )
    counts = total_diagnostics(met, program.constant_diagnostics)
    filler = batches(program.model, dataset).filler
    draws = program.setup.profile.rounding == "stochastic"  # other words in another call
    if filler is not None and counts.is_any and not draws:
        call(**filler.inputs)
        leave_out(counts, met[-1], program.constant_diagnostics, filler.copies, filler.size)
    found = observed(counts, program.module)
    if options.json is not None or options.report is not None:
        _write_observed(options, program, found, dataset.count)
    where = ""
    arrays = {f"output_{n}": _storable(a) for n, a in enumerate(outputs)}
    if options.output is not None:
        options.writing.append(options.output)
        with replacing(options.output) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        where = f" in {options.output}"
    setup = program.setup
    listed = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
    console = output_console()
    if options.json != "-":
        print_text(console, f"{setup.casts} ({setup.compiler}): {listed}{where}")
    for name, count in counts.of("int64_truncated").items():
        print_warning(f"{name}: {count} 64-bit integers lost their high 32 bits (C7)")
    for name, count in counts.of("outside_range").items():
        print_warning(ops.outside_range_warning(name, count))
    if options.json == "-":
        return
    title = (
        f"{options.model} under {setup.casts}, {counted(dataset.count, 'sample')} of {options.inputs}"
    )
    print_observed(found, observe, console, title)
    for timing in timings:
        print_timings(timing, program.module, console)


def _check_run(options: argparse.Namespace) -> None:
    """Before any work: what is to be written can be, and there is something to do."""
    if options.observe is None and (options.json is not None or options.report is not None):
        name = "json" if options.json is not None else "report"
        raise InvalidFlag(
            f"run --{name} writes what --observe counts or --observe full finds: give one"
        )
    if options.output is None and options.observe is None and not options.timings:
        raise InvalidFlag(
            "run needs --output FILE for the results, or --observe or --timings for what it prints"
        )


def _write_observed(
    options: argparse.Namespace,
    program: CompiledProgram,
    found: Sequence[Mapping[str, Any]],
    samples: int,
) -> None:
    setup = program.setup
    report = {
        "schema": OBSERVATION,
        "model": options.model,
        "fingerprint": fingerprint(program.model),
        "data": options.inputs,
        "casts": setup.casts,
        "release": setup.compiler,
        "target": setup.target.name,
        "samples": samples,
        "observe": options.observe,
        "instructions": found,
    }
    if options.report is not None:
        options.writing.append(options.report)
        graph = graph_document(program.model, program.plan, options.model)
        reports.write_report(options.report, [report, graph], command=command_line(options))
    if options.json is None:
        return
    text = json.dumps(report, indent=1, allow_nan=False)
    if options.json == "-":
        print(text)
    else:
        write(options, options.json, text + "\n")


def _program(options: argparse.Namespace) -> CompiledProgram:
    strict = getattr(options, "strict", False)
    if not options.model.endswith(".nsim"):
        asked = {**casts(options), "threads": options.threads, "strict": strict}
        data = getattr(options, "inputs", None)  # of `run`
        return api.compiled_for(CompileRequest(options.model, **asked), data)
    given = given_for_compiling(options) + ["--strict"] * strict
    if given:
        raise InvalidFlag(f"{options.model} is compiled already: {', '.join(given)} cannot change it")
    if options.threads is not None:
        set_num_threads(options.threads)
    return load_program(options.model)


def _storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy's file format has no bfloat16 and float8: float32 holds their values."""
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


def _compile(options: argparse.Namespace) -> None:
    output = options.output or f"{_model_name(options.model)}.nsim"
    if not output.endswith((".nsim", ".neff", ".onnx", *HLO_FORMS)):
        raise InvalidArgument(
            f"the output {output!r} must end in .nsim, .hlo.pb or .hlo for the model with its casts, "
            "or of an ONNX model in .onnx: its own nodes with the casts between them"
        )
    options.output = output
    check_outputs(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlagWarning)  # they are among the messages
        program = _program(options)
    setup = program.setup
    messages = list(setup.messages)
    messages.append(Message("info", f"{setup.target.name} is {setup.target.description}"))
    messages.append(
        Message("debug", f"the plan decides {counted(len(program.plan.decisions), 'instruction')}")
    )
    if program.python_steps:
        named = Counter(program.opcodes.get(name, name) for name in program.python_steps)
        listed = ", ".join(f"{count} x {opcode}" for opcode, count in named.items())
        messages.append(Message("info", f"the core has no steps for {listed}: these run in Python"))
    if program.conformance:
        rules = ", ".join(dict.fromkeys(f.label for f in program.conformance))
        text = (
            f"{options.model} breaks what AWS documents for {setup.release} "
            f"({summary(program.conformance)}: {rules}): see `neuronsim lint {options.model}`"
        )
        messages.append(Message("warning", text))
    check_outputs(options, {"--logfile": setup.given.get("--logfile")})
    options.writing.append(output)
    if output.endswith(".onnx"):
        api.export_onnx(options.model, program, output)
    elif output.endswith(HLO_FORMS):
        write_hlo(program.module, output)
    else:
        program.save(output)
    _print_messages(options, messages, verbosity(setup.given), setup.given.get("--logfile"))
    said = verbosity(setup.given) <= LEVELS["info"]  # among the messages
    inert = "" if said or not setup.without_effect else ", ".join(setup.without_effect)
    end = f"; without numeric effect: {inert}" if inert else ""
    say(f"{setup.casts} ({setup.compiler}): wrote {output}{end}")


def _model_name(path: str) -> str:
    """The name of a model without its folder and the endings of HLO files."""
    name = Path(path).resolve().name
    for ending in (".pb", ".txt", ".hlo", ".onnx"):
        name = name.removesuffix(ending)
    return name


def _print_messages(
    options: argparse.Namespace, messages: Sequence[Message], least: int, logfile: str | None
) -> None:
    """As neuronx-cc does: information to stdout, warnings to stderr; all of it to the log file too."""
    lines = [(m, f"{m.level}: {m.text}") for m in messages if LEVELS[m.level] >= least]
    if logfile is not None:
        write(options, logfile, "".join(f"{line}\n" for _, line in lines))
    for message, line in lines:
        print(line, file=sys.stdout if message.level in ("debug", "info") else sys.stderr)
