"""The vendor's ladder: every setting of auto-cast measured on data, and the choice of a rung."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from neuronsim.casting.flags import CastSettings
from neuronsim.dtypes import as_dtype
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.array_sources import array_sources
from neuronsim.hlo.module import Module, inline_calls
from neuronsim.hlo.trip_counts import LoopTrips, Trips, loop_trips
from neuronsim.processor import pinned
from neuronsim.tables import html_table
from neuronsim.targets import AutoCast, Target
from neuronsim.tuning.cost import Estimate, estimate
from neuronsim.tuning.dataset import Dataset, batch_count, run_batches
from neuronsim.tuning.metrics import error_metrics, predictions, share_differing, top1

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
METRICS = ("top1", "relative_error")
Progress = Callable[[str, int, int], None]
SCHEMA = "neuronsim.tune/1"


class Runnable(Protocol):
    """What the ladder needs of a compiled program."""

    @property
    def module(self) -> Module: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def diagnostics(self) -> Mapping[str, Any]: ...
    @property
    def constant_diagnostics(self) -> Mapping[str, Mapping[str, int]]: ...
    def __call__(self, **named: Any) -> Any: ...


@dataclass(frozen=True)
class OutputError:
    """How far one of the model's outputs is from float32's: `output_N` of `run` is that of `index` N.

    `error` is what the tolerance is compared with: the relative Frobenius error of a floating output,
    of integers and truth values the share of elements that differ (`differing`).
    """

    index: int
    instruction: str
    type: str
    error: float
    relative_error: float | None
    max_error: float | None
    differing: float | None
    not_finite: int


@dataclass(frozen=True)
class RungResult:
    """One setting's figures; errors are against float32.

    `relative_error` and `max_error` are those of the floating output that has the worst of each, None
    where no output is floating; `outputs` has every output's. `top1` is None without labels and both
    top-1 figures where the model does not give one row of class scores for each sample.
    `int64_truncated` counts, by instruction, the 64-bit integers that lost their high half over all
    batches (C7).
    """

    name: str
    flags: str
    top1: float | None
    relative_error: float | None
    max_error: float | None
    not_finite: int
    top1_agreement: float | None
    weight_bytes: int
    estimated_seconds: float
    estimated_speedup: float
    int64_truncated: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[OutputError, ...] = ()

    @property
    def worst_error(self) -> float:
        """The largest error of any output: what a tolerance of relative_error is compared with."""
        return max((o.error for o in self.outputs), default=self.relative_error or 0.0)


@pinned
@dataclass(frozen=True)
class TuneResult:
    """The measured ladder and the recommended rung. The estimates count the `loops` with these trips,
    and of the `conditionals` the dearest branch.
    """

    model: str
    data: str
    data_fingerprint: str
    samples: int
    release: str
    target: str
    metric: str
    tolerance: float
    rungs: tuple[RungResult, ...]
    recommended: str
    seconds: Mapping[str, float]
    loops: tuple[LoopTrips, ...] = ()
    conditionals: tuple[str, ...] = ()

    def __repr__(self) -> str:
        about = "; ".join(f"{name} {value}" for name, value in self._summary()[:3])
        return f"<TuneResult {self.model}: {about}>"

    def _repr_html_(self) -> str:
        return html_table(f"TuneResult {self.model}", self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """The recommendation, what it is for, and every rung's figures."""
        r = self.recommended_rung
        accuracy = "" if r.top1 is None else f"accuracy {r.top1:.4g}, "
        error = f"{accuracy}error {r.worst_error:.3g}, speed-up {r.estimated_speedup:.3g}"
        data = f"{self.data}, {self.samples} samples, {self.metric} within {self.tolerance:g}"
        rows = [("recommended", f"{r.name}: {error}"), ("flags", r.flags), ("data", data)]
        for rung in self.rungs:
            figures = f"error {rung.worst_error:.3g}, speed-up {rung.estimated_speedup:.3g}"
            rows.append((rung.name, figures))
        return rows

    @property
    def recommended_rung(self) -> RungResult:
        """The rung to use."""
        return next(r for r in self.rungs if r.name == self.recommended)

    @property
    def flag_line(self) -> str:
        """The recommended options, for NEURON_CC_FLAGS."""
        return self.recommended_rung.flags

    def to_json(self) -> str:
        """Every figure as JSON; numbers that are not finite are null. `seconds` is the time taken
        here, the only part that two runs do not share.
        """
        body = asdict(self) | {"schema": SCHEMA, "flag_line": self.flag_line}
        return json.dumps(_finite(body), indent=1, sort_keys=True, allow_nan=False)


def _finite(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def measure_rungs(
    module: Module,
    dataset: Dataset,
    settings: Sequence[CastSettings],
    build: Callable[[CastSettings], Runnable],
    *,
    metric: str | None,
    tolerance: float,
    release: str,
    target: Target,
    trips: Trips = None,
    progress: Progress | None = None,
) -> TuneResult:
    """Run every setting on the data; the first is the reference. See `api.tune`."""
    loop_trips(inline_calls(module), trips)  # raises before any work
    chosen = _check_metric(metric, dataset, _classes(module))
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise InvalidArgument(f"the tolerance is a number of at least 0, not {tolerance!r}")
    labels = dataset.labels if chosen == "top1" else None
    per_rung = batch_count(module, dataset)
    rungs: list[RungResult] = []
    seconds: dict[str, float] = {}
    estimates: list[Estimate] = []
    reference: Sequence[npt.NDArray[Any]] = ()
    for n, s in enumerate(settings):
        name = rung_name(s)
        start = time.perf_counter()

        def report(done: int, name: str = name, n: int = n) -> None:
            if progress is not None:
                progress(name, n * per_rung + done, len(settings) * per_rung)

        report(0)
        program = build(s)
        outputs, truncated = _run(program, module, dataset, report)
        reference = reference or outputs
        estimates.append(estimate(program.module, program.weight_bytes, target, trips))
        rung = _rung(module, s, outputs, reference, labels, program.weight_bytes, estimates)
        rungs.append(replace(rung, int64_truncated=truncated))
        seconds[name] = time.perf_counter() - start
    return TuneResult(
        model=module.name,
        data=dataset.source,
        data_fingerprint=dataset.fingerprint,
        samples=dataset.count,
        release=release,
        target=target.name,
        metric=chosen,
        tolerance=tolerance,
        rungs=tuple(rungs),
        recommended=recommend(rungs, chosen, tolerance).name,
        seconds=seconds,
        loops=estimates[0].loops,
        conditionals=estimates[0].conditionals,
    )


def _run(
    program: Runnable, module: Module, dataset: Dataset, report: Callable[[int], None]
) -> tuple[list[npt.NDArray[Any]], Mapping[str, int]]:
    """A program's outputs on the data, and the 64-bit integers that lost their high half."""
    of_constants = program.constant_diagnostics["int64_truncated"]
    truncated = Counter(of_constants)

    def call(**inputs: Any) -> Any:
        result = program(**inputs)
        met = program.diagnostics["int64_truncated"]
        truncated.update({k: v for k, v in met.items() if k not in of_constants})
        return result

    return [_wide(o) for o in run_batches(call, module, dataset, report)], dict(truncated)


def _rung(
    module: Module,
    s: CastSettings,
    outputs: Sequence[npt.NDArray[Any]],
    reference: Sequence[npt.NDArray[Any]],
    labels: npt.NDArray[Any] | None,
    weight_bytes: int,
    estimates: Sequence[Estimate],
) -> RungResult:
    """The figures of a setting, whose estimate is the last; the first is the reference's."""
    errors = _output_errors(module, outputs, reference)
    seconds = estimates[-1].seconds
    scores = _classes(module) is not None
    return RungResult(
        name=rung_name(s),
        flags=s.flag_line,
        top1=None if labels is None else top1(outputs[0], labels),
        relative_error=_worst(e.relative_error for e in errors),
        max_error=_worst(e.max_error for e in errors),
        not_finite=sum(e.not_finite for e in errors),
        top1_agreement=top1(outputs[0], predictions(reference[0])) if scores else None,
        weight_bytes=weight_bytes,
        estimated_seconds=seconds,
        estimated_speedup=estimates[0].seconds / seconds if seconds else 1.0,
        outputs=errors,
    )


def rung_name(s: CastSettings) -> str:
    """`none`, or the two values with a slash."""
    return "none" if s.auto_cast == "none" else f"{s.auto_cast}/{s.auto_cast_type}"


def _classes(module: Module) -> int | None:
    """How many classes the model's only output scores for each sample; None if it does not."""
    shapes = module.root.shape.arrays()
    scores = len(shapes) == 1 and len(shapes[0].dims) == 2 and shapes[0].dtype.kind == "float"
    return shapes[0].dims[1] if scores and shapes[0].dims[1] > 1 else None


def _check_metric(metric: str | None, dataset: Dataset, classes: int | None) -> str:
    if metric is None:
        metric = "relative_error" if dataset.labels is None else "top1"
    if metric not in METRICS:
        raise InvalidArgument(f"the metric is one of {', '.join(METRICS)}, not {metric!r}")
    if metric == "top1":
        if dataset.labels is None:
            raise InvalidData("the metric top1 needs labels: add an array `labels` to the data")
        if classes is None:
            raise InvalidData(
                "the metric top1 needs a model with one output [samples, classes]: use the metric "
                "relative_error for this one"
            )
        low, high = int(dataset.labels.min()), int(dataset.labels.max())
        if low < 0 or high >= classes:
            raise InvalidData(f"the labels go from {low} to {high}, the model has {classes} classes")
    return metric


def _wide(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An output's values as float64 or complex128, which hold them; integers as they are."""
    kind = as_dtype(output.dtype).kind
    if kind not in ("float", "complex"):
        return output
    return output.astype(np.complex128 if kind == "complex" else np.float64)


def _output_errors(
    module: Module, outputs: Sequence[npt.NDArray[Any]], reference: Sequence[npt.NDArray[Any]]
) -> tuple[OutputError, ...]:
    shapes = module.root.shape.arrays()
    sources = array_sources(module.entry_computation)[module.root.name]
    found = []
    for n, (output, expected, shape) in enumerate(zip(outputs, reference, shapes, strict=True)):
        place: dict[str, Any] = {"index": n, "instruction": sources[n][0].name, "type": str(shape.type)}
        if shape.dtype.kind in ("float", "complex"):
            figures = error_metrics(output, expected)
            error = figures["relative_error"]
            found.append(OutputError(**place, error=error, differing=None, **figures))
        else:
            share = share_differing(output, expected)
            found.append(OutputError(**place, error=share, **_EXACT, differing=share))
    return tuple(found)


_EXACT: dict[str, Any] = {"relative_error": None, "max_error": None, "not_finite": 0}


def _worst(errors: Iterable[float | None]) -> float | None:
    return max((e for e in errors if e is not None), default=None)


def recommend(rungs: Sequence[RungResult], metric: str, tolerance: float) -> RungResult:
    """The lowest estimated time within the tolerance; ties take the smaller error."""
    first = rungs[0]

    def loss(r: RungResult) -> float:
        if metric == "top1":
            return (first.top1 or 0.0) - (r.top1 or 0.0)
        return r.worst_error

    # A difference of accuracies is off by a few units in the last place of a float64.
    fitting = [r for r in rungs if loss(r) <= tolerance + 1e-12]
    return min(fitting, key=lambda r: (r.estimated_seconds, r.worst_error))
