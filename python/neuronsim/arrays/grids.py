"""Grids: the coordinates and indices of their points, and lines that slices say.

>>> c_[0:2, 3:5].tolist()
[[0, 3], [1, 4]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import lengths
from neuronsim.arrays.conversion import asarray, common_arrays
from neuronsim.arrays.creation import allocated
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.arrays.manipulation import concat, stack
from neuronsim.arrays.progressions import arange, linspace
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import REFUSALS, InvalidArgument, UnsupportedType, refusal

__all__ = ["c_", "fromfunction", "indices", "meshgrid", "mgrid", "ogrid", "r_"]


def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: Literal["xy", "ij"] = "xy"
) -> tuple[Array, ...]:
    """The coordinates of a grid, one array for each axis, each in its own type; of "xy" the first two
    axes are exchanged. `sparse` leaves the other axes at length 1, `copy=False` gives views.

    >>> [x.tolist() for x in meshgrid(asarray([1, 2]), asarray([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgument(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    lines = [asarray(x) for x in arrays]
    data = [x.bits.data for x in lines]
    try:
        grid = np.meshgrid(*data, copy=copy, sparse=sparse, indexing=indexing)
    except REFUSALS as error:
        raise refusal("meshgrid", error) from error
    return tuple(Array(ops.Bits(g, x.dtype)) for g, x in zip(grid, lines, strict=True))


def indices(dimensions: Sequence[int], dtype: DTypeLike = dtypes.int64, sparse: bool = False) -> Any:
    """The indices of the elements of an array: one array for each axis, stacked unless `sparse`."""
    target = array_type(dtype)
    dims = lengths(dimensions)
    if sparse:
        try:
            return tuple(asarray(x, target) for x in np.indices(dims, sparse=True))
        except REFUSALS as error:
            raise refusal("indices", error) from error
    return asarray(allocated(lambda: np.indices(dims), dims), target)


class Grid:
    """What `mgrid[...]` and `ogrid[...]` are: slices start:stop:step make the lines of a grid, as
    `arange` does, or as `linspace` does where the step is imaginary, 5j being 5 values with both ends.

    >>> mgrid[0:2, 0:1:3j].tolist()
    [[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]]
    """

    def __init__(self, *, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if not isinstance(key, tuple):
            return _grid_line(key)
        if not key:
            raise InvalidArgument("a grid has at least one axis")
        lines = common_arrays(*map(_grid_line, key))
        grid = meshgrid(*lines, indexing="ij", sparse=self._sparse)
        return grid if self._sparse else stack(grid)


mgrid, ogrid = Grid(sparse=False), Grid(sparse=True)


def _grid_line(part: slice) -> Array:
    if not isinstance(part, slice):
        raise UnsupportedType(f"a grid is made of slices, not of {part!r}")
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        found: Array = linspace(start, part.stop, int(abs(part.step)))
        return found
    return arange(start, part.stop, part.step)


class Joined:
    """What `r_[...]` and `c_[...]` are: arrays, numbers (weak, C8) and slices, which are lines as in
    `mgrid`, joined along an axis. A string as the first item says "axis", "axis,ndmin" or
    "axis,ndmin,place": the axis, the least number of axes, and where an item with fewer has its own.

    >>> r_[1:3, 0, asarray([7, 8])].tolist(), c_[asarray([1, 2]), asarray([3, 4])].tolist()
    ([1, 2, 0, 7, 8], [[1, 3], [2, 4]])
    """

    def __init__(self, axis: int, ndmin: int, place: int) -> None:
        self._layout = axis, ndmin, place

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, place = self._layout
        if items and isinstance(items[0], str):
            layout = items.pop(0)
            try:
                numbers = [int(v) for v in layout.split(",")]
            except ValueError:
                numbers = []
            if not 1 <= len(numbers) <= 3:
                raise InvalidArgument(
                    f"a layout is up to three integers, as in '0,2', not {layout!r}: there are no "
                    "matrices of NumPy's matrix class"
                )
            axis, ndmin, place = (*numbers, *self._layout[len(numbers) :])
        if not items:
            raise InvalidArgument("nothing to join: an item or more is needed")
        parts = common_arrays(*(_grid_line(x) if isinstance(x, slice) else x for x in items))
        return concat([_with_least_axes(x, ndmin, place) for x in parts], axis)


r_, c_ = Joined(0, 1, -1), Joined(-1, 2, 0)


def _with_least_axes(x: Array, ndmin: int, place: int) -> Array:
    """A view with `ndmin` axes at least, the array's own from the axis `place` on."""
    missing = max(ndmin - x.ndim, 0)
    before = min(max(place if place >= 0 else place + missing + 1, 0), missing)
    return x.reshape((*[1] * before, *x.shape, *[1] * (missing - before)))


def fromfunction(
    function: Callable[..., Any],
    shape: Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    like: Any = None,
    **kwargs: Any,
) -> Any:
    """What `function` gives for the indices of every element, one array of `shape` for each axis.

    >>> fromfunction(lambda i, j: i + 2 * j, (2, 2), dtype="int32").tolist()
    [[0, 2], [1, 3]]
    """
    return function(*indices(shape, default_dtype() if dtype is None else dtype), **kwargs)
