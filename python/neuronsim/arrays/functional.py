"""Python functions applied to arrays, slice by slice or element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.axes import one_axis
from neuronsim.arrays.conversion import asarray, common_arrays
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.manipulation import broadcast_to, expand_dims, moveaxis, stack
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import InvalidArgument

__all__ = ["apply_along_axis", "apply_over_axes", "vectorize"]


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Array:
    """`func1d` of each vector along `axis`; what it returns takes the place of that axis.

    >>> apply_along_axis(lambda v: v[0] + v[-1], 0, [[1.0, 2.0], [3.0, 4.0]])
    Array([4., 6.], dtype=float32)
    """
    a = asarray(arr)
    at = one_axis(a.shape, axis)
    rows = moveaxis(a, at, -1)
    outer = rows.shape[:-1]
    if 0 in outer:
        raise InvalidArgument(f"apply_along_axis: {a.bits.type} has no vectors along axis {axis}")
    found = [asarray(func1d(rows[index], *args, **kwargs)) for index in np.ndindex(outer)]
    joined = stack(found)
    result = joined.reshape(outer + joined.shape[1:])
    inner = tuple(range(len(outer), result.ndim))
    return moveaxis(result, inner, tuple(range(at, at + len(inner))))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: int | Sequence[int]) -> Array:
    """`func(x, axis)` over one axis after the other; an axis that it takes away stays with length 1.

    >>> from neuronsim.arrays.reductions import sum
    >>> apply_over_axes(sum, [[1.0, 2.0], [3.0, 4.0]], (0, 1))
    Array([[10.]], dtype=float32)
    """
    found = asarray(a)
    for axis in axes if isinstance(axes, Iterable) else (axes,):
        # As a reduction does, an array without axes takes 0 and -1.
        at = axis if not found.ndim and axis in (0, -1) else one_axis(found.shape, axis)
        reduced = asarray(func(found, at))
        if reduced.ndim not in (found.ndim, found.ndim - 1):
            raise InvalidArgument(
                f"apply_over_axes: the function made {reduced.ndim} axes of {found.ndim}: it may take "
                "one away, or none"
            )
        found = reduced if reduced.ndim == found.ndim else expand_dims(reduced, axis=at)
    return found


class vectorize:  # noqa: N801 (NumPy's name)
    """A Python function of numbers as a function of arrays, broadcast: it is called once for every
    element with Python numbers, in the host's arithmetic, and each result is rounded once to the type
    of `otypes`, or to the default type of Python's numbers (C8). `excluded` names parameters that are
    handed on as they are.

    >>> vectorize(lambda a, b: a if a > b else b)([1.0, 5.0], 3.0)
    Array([3., 5.], dtype=float32)
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Sequence[DTypeLike] | DTypeLike | None = None,
        doc: str | None = None,
        excluded: Iterable[int | str] = (),
    ) -> None:
        self.pyfunc = pyfunc
        types: Any = [] if otypes is None else otypes
        # A string is one type's name or code here; NumPy's strings of several letters are not known.
        self.otypes = tuple(map(array_type, types if isinstance(types, list | tuple) else [types]))
        self.excluded = frozenset(excluded)
        self.__doc__ = doc or pyfunc.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, as one Array or, where the function gives tuples, as a tuple of them."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs)
        names = [name for name in given if name not in self.excluded]
        arrays = [common_arrays(given[name])[0] for name in names]
        dims = ops.broadcast_dims(*(a.shape for a in arrays))
        columns = [broadcast_to(a, dims).reshape(-1).tolist() for a in arrays]
        results = []
        for values in zip(*columns, strict=True):
            given.update(zip(names, values, strict=True))
            positional = [given[n] for n in range(len(args))]
            results.append(self.pyfunc(*positional, **{k: given[k] for k in kwargs}))
        if not results:
            if not self.otypes:
                raise InvalidArgument("vectorize of no elements: otypes= says the type of the result")
            empty = tuple(asarray([], t).reshape(dims) for t in self.otypes)
            return empty if len(empty) > 1 else empty[0]
        outputs = list(zip(*results, strict=True)) if isinstance(results[0], tuple) else [results]
        types = self.otypes or (None,) * len(outputs)
        found = tuple(
            asarray(list(column), t).reshape(dims) for column, t in zip(outputs, types, strict=True)
        )
        return found if isinstance(results[0], tuple) else found[0]
