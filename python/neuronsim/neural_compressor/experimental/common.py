"""What models are evaluated by, under the names of Neural Compressor 1.14."""

from neuronsim.neural_compressor.loaders import DataLoader, Metric, Model

__all__ = ["DataLoader", "Metric", "Model"]
