"""`fit` of Neural Compressor 2.6: direct conversion to mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from neuronsim.errors import InvalidArgument
from neuronsim.neural_compressor.config import MixedPrecisionConfig
from neuronsim.neural_compressor.conversion import Given, convert
from neuronsim.neural_compressor.optimized import OptimizedModel


def fit(
    model: Any,
    conf: MixedPrecisionConfig | None = None,
    eval_func: Callable[[Any], Any] | None = None,
    eval_dataloader: Any = None,
    eval_metric: Any = None,
    *,
    config: MixedPrecisionConfig | None = None,
    executor: Executor | None = None,
) -> OptimizedModel:
    """Convert a model, which is any that `compile` takes, to the precisions of a configuration (`conf`,
    which 2.0 calls `config`), as far as `eval_func(model)`, or a data loader and a metric, allow;
    without these as far as can be. An `executor` of concurrent.futures runs the trials.

    Raises UnsupportedType for a precision that the device lacks, unless FORCE_BF16=1 is set, and other
    NeuronSimErrors for a model, data or a configuration that do not fit.
    """
    given = config if conf is None else conf
    if not isinstance(given, MixedPrecisionConfig):
        raise InvalidArgument(f"conf is a MixedPrecisionConfig, not {given!r}"[:300])
    return convert(model, given, Given(eval_func, eval_dataloader, eval_metric), executor)
