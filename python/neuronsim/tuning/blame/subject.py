"""What is blamed: a module, its plan and the data, and how far outputs are from float32's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import as_dtype
from neuronsim.errors import counted
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module
from neuronsim.profiles import Profile
from neuronsim.tuning.blame.graph import Dataflow
from neuronsim.tuning.blame.result import OutputFigures
from neuronsim.tuning.blame.runs import Listening
from neuronsim.tuning.dataset import output_shapes, without_a_number
from neuronsim.tuning.metrics import accuracy
from neuronsim.tuning.statistics import output_statistics

Decisions = Mapping[str, Decision]
Batch = tuple[
    Mapping[str, npt.NDArray[Any]], int
]  # inputs in the parameters' order, samples that count
Outputs = list[npt.NDArray[Any]]

MAX_TRACED = 4  # batches


@dataclass
class Subject:
    """What is blamed: a module and its plan, how decisions are compiled, and the data."""

    module: Module
    decisions: Decisions
    build: Callable[..., Listening]  # of decisions, and of another module where one follows
    profile: Profile
    batches: Sequence[Batch]
    are_runs: bool = False  # the outputs of each are one sample
    labels: npt.NDArray[np.int64] | None = None
    runs: int = 0
    flat: Module = field(init=False)
    flow: Dataflow = field(init=False)
    exact: list[Outputs] = field(init=False)

    def __post_init__(self) -> None:
        self.flat = inline_calls(self.module)
        self.flow = Dataflow(self.flat)
        self.exact = self.outputs(self.build({}))

    def outputs(self, program: Callable[..., Any]) -> list[Outputs]:
        """The outputs of each batch."""
        self.runs += 1
        return [_flat(program(*inputs.values())) for inputs, _ in self.batches]

    def measured(self, decisions: Decisions, module: Module | None = None) -> OutputFigures:
        """The figures of the outputs under some decisions, of this module or of another."""
        return self.figures(self.outputs(self.build(decisions, module)))

    def figures(self, found: Sequence[Outputs]) -> OutputFigures:
        """How far outputs are from float32's."""
        errors, worst, missing, differing = [0.0], [0.0], 0, [0.0]
        for a, b in zip(self._joined(found), self._joined(self.exact), strict=True):
            if as_dtype(a.dtype).kind not in ("float", "complex"):
                differing.append(output_statistics(a, b).share_differing)
                continue
            x, y = _wide(a), _wide(b)
            errors.append(output_statistics(x, y).relative_error)
            missing += int(np.count_nonzero(np.isfinite(y) & ~np.isfinite(x)))
            worst.append(float(np.max(sample_errors(x, y), initial=0.0)))
        top1 = None
        if self.labels is not None:
            shapes = output_shapes(self.flat, self.are_runs)
            top1 = accuracy([_wide(x) for x in self._joined(found)], shapes, self.labels)
        return OutputFigures(max(errors), max(worst), missing, max(differing), top1)

    def check_reference(self) -> list[str]:
        """A note where float32's own outputs are not finite; raises InvalidData where they are so
        throughout.
        """
        outputs = self._joined(self.exact)
        lacking = sum(int(np.count_nonzero(~np.isfinite(_wide(x)))) for x in outputs)
        if lacking and lacking == sum(x.size for x in outputs):
            raise without_a_number()
        told = "not finite in float32 either: where the setting gives the same, that counts as no error"
        said = f"{counted(lacking, 'value')} of the outputs {'is' if lacking == 1 else 'are'} {told}"
        return [said] if lacking else []

    def _joined(self, found: Sequence[Outputs]) -> Outputs:
        counted = [
            [self._samples(o, count) for o in outputs]
            for outputs, (_, count) in zip(found, self.batches, strict=True)
        ]
        return [np.concatenate(parts) for parts in zip(*counted, strict=True)]

    def _samples(self, x: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """An output's samples that count; one without axes is a sample."""
        return x[None] if self.are_runs or not x.ndim else x[:count]

    def worst_batches(self, found: Sequence[Outputs]) -> list[int]:
        """The numbers of the batches whose outputs are furthest off, the worst first."""
        grades = []
        for n, (a, b) in enumerate(zip(found, self.exact, strict=True)):
            count = self.batches[n][1]
            pairs = ([self._samples(_wide(o), count) for o in xy] for xy in zip(a, b, strict=True))
            errors = (sample_errors(x, y) for x, y in pairs)
            grades.append(max(float(np.max(e, initial=0.0)) for e in errors))
        order = sorted(range(len(grades)), key=lambda n: -grades[n])
        return order[:MAX_TRACED]


def sample_errors(found: npt.NDArray[Any], exact: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Each sample's error over its norm, or a hundredth of the samples' typical one (half of it where a
    sample is one number, which may be near 0 by chance); infinite where it is not finite although
    float32's is.
    """
    a, b = (np.abs(x) if np.iscomplexobj(x) else x for x in (found, exact))
    a, b = a.reshape(len(a), -1).astype(np.float64), b.reshape(len(b), -1).astype(np.float64)
    with np.errstate(all="ignore"):
        d = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)
        size = np.sqrt(np.square(np.where(np.isfinite(b), b, 0.0)).sum(1))
        least = 0.5 if b.shape[1] == 1 else 1e-2
        floor = max(least * float(np.sqrt(np.square(size).mean())) if size.size else 0.0, 1e-300)
        found_ = np.sqrt(np.square(d).sum(1)) / np.maximum(size, floor)
    return np.where(np.isnan(found_), math.inf, found_)


def _wide(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    kind = as_dtype(x.dtype).kind
    return x.astype(np.complex128 if kind == "complex" else np.float64)


def _flat(value: Any) -> Outputs:
    if isinstance(value, tuple):
        return [x for v in value for x in _flat(v)]
    return [np.asarray(value)]
