"""The vendor's ladder: every setting of auto-cast measured on data, and the choice of a rung."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from neuronsim.casting.flags import CastSettings
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.module import Module
from neuronsim.targets import AutoCast, Target
from neuronsim.tuning.cost import estimate
from neuronsim.tuning.dataset import Dataset, batch_count, run_batches
from neuronsim.tuning.metrics import error_metrics, predictions, top1

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
class RungResult:
    """One setting's figures; errors are against float32.

    `top1` is None without labels and both top-1 figures where the model does not give one row of class
    scores for each sample. `int64_truncated` counts, by instruction, the 64-bit integers that lost
    their high half over all batches (C7).
    """

    name: str
    flags: str
    top1: float | None
    relative_error: float
    max_error: float
    not_finite: int
    top1_agreement: float | None
    weight_bytes: int
    estimated_seconds: float
    estimated_speedup: float
    int64_truncated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TuneResult:
    """The measured ladder and the recommended rung."""

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
    progress: Progress | None = None,
) -> TuneResult:
    """Run every setting on the data; the first is the reference. See `api.tune`."""
    classes = _classes(module)
    chosen = _check_metric(metric, dataset, classes)
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise InvalidArgument(f"the tolerance is a number of at least 0, not {tolerance!r}")
    labels = dataset.labels if dataset.labels is not None else np.zeros(0, np.int64)
    per_rung = batch_count(module, dataset)
    rungs: list[RungResult] = []
    seconds: dict[str, float] = {}
    reference: npt.NDArray[np.float64] | None = None
    for n, s in enumerate(settings):
        name = rung_name(s)
        start = time.perf_counter()

        def report(done: int, name: str = name, n: int = n) -> None:
            if progress is not None:
                progress(name, n * per_rung + done, len(settings) * per_rung)

        report(0)
        program = build(s)
        truncated = Counter(program.constant_diagnostics["int64_truncated"])

        def call(program: Runnable = program, counts: Counter[str] = truncated, **inputs: Any) -> Any:
            result = program(**inputs)
            met = program.diagnostics["int64_truncated"]
            of_constants = program.constant_diagnostics["int64_truncated"]
            counts.update({k: v for k, v in met.items() if k not in of_constants})
            return result

        outputs = _side_by_side(run_batches(call, module, dataset, report))
        reference = outputs if reference is None else reference
        figures = error_metrics(outputs, reference)
        agreement = None if classes is None else top1(outputs, predictions(reference))
        cost = estimate(program.module, program.weight_bytes, target)
        baseline = rungs[0].estimated_seconds if rungs else cost.seconds
        rungs.append(
            RungResult(
                name=name,
                flags=s.flag_line,
                top1=None if chosen != "top1" else top1(outputs, labels),
                top1_agreement=agreement,
                weight_bytes=program.weight_bytes,
                estimated_seconds=cost.seconds,
                estimated_speedup=baseline / cost.seconds if cost.seconds else 1.0,
                int64_truncated=dict(truncated),
                **figures,
            )
        )
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


def _side_by_side(outputs: list[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Several outputs as one array [samples, values]."""
    return np.concatenate([o.astype(np.float64).reshape(len(o), -1) for o in outputs], axis=1)


def recommend(rungs: Sequence[RungResult], metric: str, tolerance: float) -> RungResult:
    """The lowest estimated time within the tolerance; ties take the smaller error."""
    first = rungs[0]

    def loss(r: RungResult) -> float:
        if metric == "top1":
            return (first.top1 or 0.0) - (r.top1 or 0.0)
        return r.relative_error

    # A difference of accuracies is off by a few units in the last place of a float64.
    fitting = [r for r in rungs if loss(r) <= tolerance + 1e-12]
    return min(fitting, key=lambda r: (r.estimated_seconds, r.relative_error))
