"""The array backend: NumPy's names on the device's number formats. A file is a chapter of the names."""

from collections.abc import Callable as _Callable
from typing import TYPE_CHECKING

from neuronsim.arrays import methods as methods  # which attaches them to Array
from neuronsim.arrays.array_object import Array as _Array
from neuronsim.arrays.chapters import CHAPTERS as CHAPTERS
from neuronsim.arrays.chapters import FUNCTIONS as FUNCTIONS

globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> _Callable[..., _Array]: ...  # those of FUNCTIONS
