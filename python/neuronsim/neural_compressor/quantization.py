"""`fit` of Neural Compressor 2.6: post-training quantization, with BF16 beside INT8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuronsim.errors import InvalidArgument
from neuronsim.neural_compressor.config import PostTrainingQuantConfig
from neuronsim.neural_compressor.conversion import Given
from neuronsim.neural_compressor.optimized import OptimizedModel
from neuronsim.neural_compressor.quantizing import quantized


def fit(
    model: Any,
    conf: PostTrainingQuantConfig | None = None,
    calib_dataloader: Any = None,
    eval_func: Callable[[Any], Any] | None = None,
    eval_dataloader: Any = None,
    eval_metric: Any = None,
    *,
    config: PostTrainingQuantConfig | None = None,
) -> OptimizedModel:
    """Quantize a model, which is any that `compile` takes, by the ranges of a loader's samples, as far
    as `eval_func(model)`, or a data loader and a metric, allow.

    Raises InvalidArgument without calibration data, and other NeuronSimErrors for a model, data or a
    configuration that do not fit.
    """
    given = config if conf is None else conf
    if not isinstance(given, PostTrainingQuantConfig):
        raise InvalidArgument(f"conf is a PostTrainingQuantConfig, not {given!r}"[:300])
    return quantized(model, given, calib_dataloader, Given(eval_func, eval_dataloader, eval_metric))
