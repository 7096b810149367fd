"""`neuronsim tune`, `fix`, `quantize`: which setting, which plan beyond it, and what stays float32."""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuronsim import api, diagnosis
from neuronsim.casting.plans.plan import Plan
from neuronsim.cli.arguments import (
    FIGURES,
    SAME_MODEL,
    SAME_RELEASE,
    Declare,
    Parser,
    add_calibration,
    add_model,
    add_release,
    add_threads,
    add_trips,
    calibration,
    given_words,
    model_inputs,
    trips,
    version,
)
from neuronsim.cli.output import PAGES, check_outputs, print_warning, progress_bar, write, write_page
from neuronsim.errors import InvalidArgument, counted, first_few
from neuronsim.frontends.hlo_files import FORMS as HLO_FORMS
from neuronsim.frontends.hlo_files import write_hlo
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.onnx.files import is_onnx
from neuronsim.quantization import quantize as quantized_plan
from neuronsim.reading import read_model
from neuronsim.setups import DEFAULT_TARGET, CompileRequest
from neuronsim.tables import output_console, say
from neuronsim.targets import Target, find_target
from neuronsim.tuning.cluster import dask_executor
from neuronsim.tuning.dataset import load_dataset
from neuronsim.tuning.metrics import METRICS
from neuronsim.tuning.recipes import policy_text, source_recipe
from neuronsim.tuning.report import budget_of, deciding, failing_rung, print_ladder
from neuronsim.tuning.results import PlanResult, RungResult, TuneResult
from neuronsim.tuning.rungs import INF1_LADDER, inf1_policy, ladder_names, own_rung, scheme_of
from neuronsim.tuning.trials import MEMORY
from neuronsim.tuning.tuner import NAMES, gain_of, preferred

TIMEOUT = 300.0  # seconds
FIXED = "policy.toml"  # what `fix` writes where nothing is said
FIXED_PLAN = "plan.json"  # and of a base that quantizes, since policies have no scales
_PLANS = (".json", *HLO_FORMS, ".onnx")
_FORMS = (".toml", *_PLANS)
_SCHEME = (
    "a method of calibration (minmax, moving_average, percentile, entropy, mse) or weights, then "
    "uint8, symmetric, per-tensor, int32-bias, percentile:99.9, fp8_e4m3, fp8_e5m2, with commas between"
)


def declare_commands(declare: Declare) -> None:
    tune = declare("tune", _tune, "Measure every auto-cast setting on data and recommend one.")
    _add_question(tune)
    measured, search = tune.group(_MEASURED), tune.group(_SEARCH)
    measured.add_argument(
        "--rung",
        action="append",
        default=[],
        metavar="NAME",
        help="measure a policy (its name or file) or a plan's file too; several times for several",
    )
    measured.add_argument("--policy", metavar="FILE", help="the same for a policy of one's own")
    measured.add_argument("--plan", metavar="FILE", help="the same for a plan")
    measured.add_argument(
        "--low-inputs",
        action="store_true",
        help="each rung also with inputs and outputs cast by the framework",
    )
    search.add_argument("--strategy", default="pareto", help=f"{', '.join(NAMES)}; default: pareto")
    search.add_argument("--base", default="", metavar="RUNG", help="the rung that a search repairs")
    search.add_argument(
        "--types",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="TYPE,...",
        help="the low types to search, as --auto-cast-type names them, fp8_e4m3 too; what no fast one "
        "is enough for may have a wider one. Default: bf16,fp16,tf32",
    )
    search.add_argument(
        "--fix", action="store_true", help="search for the fewest float32 instructions, not for speed"
    )
    tune.tell(
        "examples",
        (
            "neuronsim tune model.onnx --data x.npz",
            "neuronsim tune model.onnx --data x.npz --tolerance 0.5% --report report.html",
            "neuronsim tune mymodel:forward --data x.npz --batch 8 --strategy ladder",
            "neuronsim tune model.onnx --data x.npz --rung tvm/float16 --output policy.toml",
        ),
    )
    tune.tell_names("metrics (--metric)", METRICS)
    fix = declare("fix", _fix, "Write the smallest set of float32 instructions that repairs a setting.")
    _add_question(fix)
    fix.group(_SEARCH).add_argument(
        "--base", default="all/bf16", help="a setting, policy or plan's file; default: all/bf16"
    )
    fix.tell(
        "examples",
        (
            "neuronsim fix model.onnx --data x.npz --base all/bf16",
            "neuronsim compile model.onnx --policy policy.toml      what it wrote, used",
        ),
    )
    fix.tell_names("metrics (--metric)", METRICS)
    _declare_quantize(declare)


def _declare_quantize(declare: Declare) -> None:
    quantize = declare("quantize", _quantize, "Write a plan by which products read INT8, by data.")
    add_model(quantize)
    quantize.add_argument("--data", required=True, help=".npz: inputs by name, optional labels")
    quantize.writes("--output", ", ".join(_PLANS), required=True, forms=_PLANS)
    quantize.add_argument("--scheme", default="minmax", help=f"{_SCHEME}; default: minmax")
    quantize.add_argument(
        "--others", metavar="POLICY", help="of the other instructions: bf16, or a policy's name or file"
    )
    add_calibration(quantize)
    quantize.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="products that stay float"
    )
    quantize.add_argument(
        "--tolerance", type=_share, help="leave products that lose most to the others until it is met"
    )
    quantize.add_argument("--target", help=f"what the model is for; default: {DEFAULT_TARGET}")
    quantize.tell(
        "examples",
        (
            "neuronsim quantize model.onnx --data x.npz --output int8.onnx",
            "neuronsim quantize model.onnx --data x.npz --scheme mse --others bf16 --output p.json",
        ),
    )


# The options by which `fix` is asked what `tune` was.
_SAME_QUESTION = ("metric", "tolerance", "criterion", "lower_is_better", "quantize", "timeout", "trips")
_MEASURED, _SEARCH = "what is measured", "the search"


def _add_question(parser: Parser) -> None:
    """The options of both: what is asked, how long it may take, and where the answer goes."""
    add_model(parser)
    _add_measured(parser)
    _add_search(parser)
    add_trips(parser)
    parser.writes("--json", FIGURES)
    parser.writes(
        "--report", "write an HTML page: the figures, and what breaks what fails", forms=PAGES
    )
    parser.writes(
        "--output",
        "write the better plan: a policy (.toml), the plan (.json), the planned model (.hlo.pb, .hlo, "
        ".onnx)",
        forms=_FORMS,
    )
    add_release(parser)
    add_threads(parser)


def _add_measured(parser: Parser) -> None:
    """What is asked."""
    measured = parser.group(_MEASURED)
    measured.add_argument("--data", required=True, help=".npz: inputs by name, optional labels")
    measured.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="a metric or module:function of outputs and labels; the first decides, others are "
        "reported too. Default: top1 with labels, else relative_error",
    )
    measured.add_argument(
        "--tolerance",
        type=_share,
        help="a number or per cent; default: 1%%, for top1 one point of accuracy, for sqnr 40 (dB)",
    )
    measured.add_argument(
        "--criterion", default="absolute", help="of the loss: absolute or relative; default: absolute"
    )
    measured.add_argument(
        "--lower-is-better", action="store_true", help="of a metric that is module:function"
    )
    measured.add_argument(
        "--quantize",
        action="append",
        default=[],
        metavar="SCHEME",
        help=f"INT8 too, alone and beside bf16: {_SCHEME}; several times for several",
    )
    add_calibration(measured)


def _add_search(parser: Parser) -> None:
    """How long it may take, and on which processes."""
    search = parser.group(_SEARCH)
    search.add_argument("--max-trials", type=int, metavar="N", help="end the search after N plans")
    search.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT,
        metavar="SECONDS",
        help="end after about these with the best so far, inf for no limit; of many samples only as "
        f"many are measured as there is time for. Default: {TIMEOUT:g}",
    )
    parser.writes("--journal", "write each finished trial down", title=_SEARCH)
    search.add_argument("--resume", action="store_true", help="go on with the journal that is there")
    search.add_argument(
        "--memory", type=int, default=MEMORY >> 20, help=f"MiB of trials at one time; {MEMORY >> 20}"
    )
    search.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="run the trials on the cluster of this scheduler, or on one of processes on this machine: "
        "local, or local:N",
    )


class _PerCent(float):
    """What was given per cent, of one."""


def _share(text: str) -> float:
    """A number, or per cent of one."""
    try:
        return _PerCent(float(text[:-1]) / 100) if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid float value: {text!r}") from None


def _asked(options: argparse.Namespace, progress: Any, **more: Any) -> TuneResult:
    if options.dask is not None:
        with dask_executor(options.dask) as executor:
            return _tuned(options, progress, executor=executor, **more)
    return _tuned(options, progress, **more)


def _tuned(options: argparse.Namespace, progress: Any, **more: Any) -> TuneResult:
    if options.metric[:1] == ["sqnr"] and isinstance(options.tolerance, _PerCent):
        raise InvalidArgument(
            f"--tolerance of sqnr is in dB, not {100 * options.tolerance:g}%: 40 is an error of 1 %"
        )
    return api.tune(
        options.model,
        options.data,
        metric=options.metric or None,
        tolerance=options.tolerance,
        criterion=options.criterion,
        higher_is_better=False if options.lower_is_better else None,
        max_trials=options.max_trials,
        timeout=options.timeout,
        quantize=options.quantize,
        calibration=calibration(options),
        journal=options.journal,
        resume=options.resume,
        memory=options.memory << 20,
        sdk=version(options),
        target=_target(options).name,
        threads=options.threads,
        trips=trips(options),
        progress=progress,
        **more,
        **model_inputs(options),
    )


def _tune(options: argparse.Namespace) -> None:
    _check_form(options)
    own = [r for r in (*options.rung, options.policy, options.plan) if r is not None]
    with progress_bar("reading", options.timeout) as progress:
        result = _asked(
            options,
            progress,
            strategy=options.strategy,
            rungs=own,
            base=options.base or (own[-1] if options.fix and own else ""),
            fix=options.fix,
            types=options.types,
            low_inputs=options.low_inputs,
        )
    if options.json == "-":
        print(result.to_json())
    else:
        if options.json is not None:
            write(options, options.json, result.to_json() + "\n")
        _print(options, result)
        if options.json is not None:
            say(f"\nall figures are in {options.json}")
    if options.output is not None:
        _write_plan(options, result, options.output)
    elif result.chosen_plan is not None and options.json != "-":
        integers = any(d.quantizes for d in result.chosen_plan.plan.decisions.values())
        option, file = ("plan", FIXED_PLAN) if integers else ("policy", FIXED)
        say(f"\n--output {file} writes it, for --{option} {file} of other commands")
    _write_report(options, result)


def _print(options: argparse.Namespace, result: TuneResult, repairs: str = "") -> None:
    """The ladder, with the words of this command that the next ones take too; of a setting that `fix`
    repairs the answer alone.
    """
    same = given_words(options, (*SAME_MODEL, "calibration", *SAME_RELEASE))
    asked = given_words(options, _SAME_QUESTION)
    print_ladder(result, output_console(), options.model, same, asked, repairs)


def _fix(options: argparse.Namespace) -> None:
    scheme = scheme_of(options.base)
    options.output = options.output or (FIXED_PLAN if scheme else FIXED)
    check_outputs(options)
    _check_form(options)
    if scheme and not options.quantize:
        options.quantize = [scheme]
    known = ladder_names(_target(options))
    own = [] if options.base in known or scheme else [options.base]
    with progress_bar("reading", options.timeout) as progress:
        result = _asked(options, progress, strategy="pareto", rungs=own, base=options.base, fix=True)
    if options.json is not None:
        text = result.to_json() + "\n"
        if options.json == "-":
            print(text, end="")
        else:
            write(options, options.json, text)
    if options.json != "-":
        _print(options, result, options.base)
        if options.json is not None:
            say(f"\nall figures are in {options.json}")
    _write_plan(options, result, options.output)
    _write_report(options, result)


def _quantize(options: argparse.Namespace) -> None:
    _check_form(options)
    module = read_model(options.model, ModelInputs(**model_inputs(options)), options.data)
    with progress_bar("float32") as progress:
        plan = quantized_plan(
            module,
            options.data,
            options.scheme,
            exclude=tuple(options.exclude),
            others=options.others,
            tolerance=options.tolerance,
            calibration=calibration(options),
            progress=lambda done, total: progress("float32", done, total),
        )
    _write_planned(options, plan, options.output)
    count = sum(d.quantizes for d in plan.decisions.values())
    say(f"wrote {options.output}: {plan.policy}, {counted(count, 'instruction')} quantized")
    for why, names in itertools.groupby(sorted(plan.kept, key=plan.kept.__getitem__), plan.kept.get):
        say(f"not quantized: {first_few(list(names), 3)}: {why}")
    if (note := _target(options).int8_note) and any(d.reads_integers for d in plan.decisions.values()):
        say(note)


def _write_report(options: argparse.Namespace, result: TuneResult) -> None:
    """The page of what was found, with the graph under the recommended plan or rung, and what is to
    blame for the setting that fails.
    """
    if options.report is None:
        return
    better = result.chosen_plan
    chosen = {"flags": result.flag_line} if better is None else {"plan": better.plan}
    inputs = {**model_inputs(options), "sdk": version(options), "target": _target(options).name}
    found = [result.to_json()]
    failing = failing_rung(result) if better is None else _rung_of(result, better.base)
    if failing is not None:
        option, value, flags = deciding(result, failing)
        decides: dict[str, Any] = {"flags": flags, **({option: value} if option else {})}
        with progress_bar("blaming") as progress:
            blamed = diagnosis.blame(
                options.model,
                _classified(options, result),
                rewrite=True,
                calibration=calibration(options),
                progress=progress,
                **inputs,
                **decides,
            )
        found.append(replace(blamed, data=options.data).to_json())
    write_page(options, [json.loads(d) for d in found], data=options.data, **inputs, **chosen)
    if options.json != "-":
        say(f"\nthe page is {options.report}")


def _classified(options: argparse.Namespace, result: TuneResult) -> Any:
    """The data, without labels that are those of another metric than top1."""
    if result.rungs[0].top1 is not None:
        return options.data
    module = read_model(options.model, ModelInputs(**model_inputs(options)), options.data)
    return load_dataset(options.data, input_names=module.input_names()).inputs


def _rung_of(result: TuneResult, name: str) -> RungResult:
    return next(r for r in result.rungs if r.name == name)


def _check_form(options: argparse.Namespace) -> None:
    """Raises InvalidArgument for casts that are to be written into a model that is none of ONNX."""
    output, model = options.output or "", options.model
    if output.endswith(".onnx") and not is_onnx(model):
        others = ", ".join(f for f in options.parser.outputs["output"] if f != ".onnx")
        raise InvalidArgument(
            f"--output {output!r}: {model} is no model of ONNX, into which casts could be written; "
            f"{others} can be"
        )


def _write_plan(options: argparse.Namespace, result: TuneResult, path: str) -> None:
    """Write the better plan, and say what it means for the source; or why there is none."""
    found = result.chosen_plan

    def tell(text: str) -> None:
        if options.json == "-":
            print_warning(text)
        else:
            say(f"\n{text}")

    if found is None:
        if not result.plans:
            why = "none was found"
            if options.command != "fix":
                why = f"{result.recommended} needs none, or {why}"
            if result.search is not None and result.search.stopped:
                why = "the search ended before it found one"
                options.status = 1
            tell(f"no plan was written: {why}")
            return
        found = preferred(result.plans, budget_of(result)) or result.plans[0]
        tell(f"{_why_not_chosen(result, found)}")
    integers = any(d.quantizes for d in found.plan.decisions.values())
    if options.json != "-" and found.kept and not integers:
        say(f"\n{source_recipe(found.kept)}")
    _write_as(options, found, path)
    if options.json != "-":
        kept = len(found.kept)
        wider = f"{found.name}, {kept} computing instruction{'s' * (kept > 1)} wider than {found.base}"
        say(f"\nwrote {path}: {wider if kept else f'{found.base} as it is'}")


def _why_not_chosen(result: TuneResult, found: PlanResult) -> str:
    """Why the plan that is written all the same is not what is recommended."""
    if not found.within:
        return f"{found.name} is not within the tolerance; it is the best that was found"
    best = result.recommended_rung
    gain = gain_of(found, best)
    speed = f"only {gain:.2f}x the speed of" if gain > 1 else "no faster than"
    return (
        f"{found.name} is within the tolerance, but {speed} {best.name}, which is recommended since "
        "flags have no exceptions to keep up; it is written as --output asks"
    )


def _write_as(options: argparse.Namespace, found: PlanResult, path: str) -> None:
    if not path.endswith(".toml"):
        _write_planned(options, found.plan, path)
        return
    if any(d.quantizes for d in found.plan.decisions.values()):
        raise InvalidArgument(
            f"{path}: a policy has no scales: write the plan of {found.name} as .json"
        )
    module = read_model(options.model, ModelInputs(**model_inputs(options)), options.data)
    target = _target(options)
    of_inf1 = target.compiler == "neuron-cc" and found.base in INF1_LADDER
    inf1 = inf1_policy(found.base) if of_inf1 else None
    base = own_rung(inf1 or found.base, module, target, calibration(options)).plan
    write(options, path, policy_text(found, base, module, inf1))


def _write_planned(options: argparse.Namespace, plan: Plan, path: str) -> None:
    """Write a plan, or the model with it."""
    if path.endswith(".json"):
        write(options, path, plan.to_json() + "\n")
        return
    inputs = model_inputs(options)
    if path.endswith(".onnx"):
        request = CompileRequest(options.model, plan=plan, **inputs)
        api.export_onnx(options.model, api.compiled_for(request, options.data), Path(path))
        return
    module = read_model(options.model, ModelInputs(**inputs), options.data)
    options.writing.append(path)
    write_hlo(plan.apply(module), path)


def _target(options: argparse.Namespace) -> Target:
    return find_target(DEFAULT_TARGET if options.target is None else options.target)
