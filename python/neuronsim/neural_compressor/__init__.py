"""Neural Compressor's interface, by its names of 1.14 (`experimental`) and 2.6 (`mix_precision`,
`quantization`, `config`), on neuronsim's planner, tuner and quantizer (docs/neural_compressor.md).
"""

from neuronsim.neural_compressor import config, data, experimental, metric, mix_precision, quantization
from neuronsim.neural_compressor.conf.config import conf
from neuronsim.neural_compressor.config import (
    AccuracyCriterion,
    MixedPrecisionConfig,
    PostTrainingQuantConfig,
    TuningCriterion,
)
from neuronsim.neural_compressor.loaders import Metric

__all__ = [
    "AccuracyCriterion",
    "Metric",
    "MixedPrecisionConfig",
    "PostTrainingQuantConfig",
    "TuningCriterion",
    "conf",
    "config",
    "data",
    "experimental",
    "metric",
    "mix_precision",
    "quantization",
]
