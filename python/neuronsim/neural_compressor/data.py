"""The data loader under its name of Neural Compressor 2.6."""

from neuronsim.neural_compressor.loaders import DataLoader

__all__ = ["DataLoader"]
