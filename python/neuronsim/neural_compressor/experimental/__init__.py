"""The interface of Neural Compressor 1.14: `MixedPrecision`, `Quantization` and `common`."""

from neuronsim.neural_compressor.experimental import common
from neuronsim.neural_compressor.experimental.converters import MixedPrecision, Quantization

__all__ = ["MixedPrecision", "Quantization", "common"]
