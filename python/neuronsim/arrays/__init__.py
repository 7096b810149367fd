"""The array backend: NumPy's names on the device's number formats. A file is a chapter of the names."""

from neuronsim.arrays import methods as methods  # which attaches them to Array
from neuronsim.arrays.chapters import CHAPTERS as CHAPTERS
from neuronsim.arrays.chapters import FUNCTIONS as FUNCTIONS

globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)
