"""Ufunc: an elementwise function as NumPy has it, with out=, where= and dtype=, and with reduce,
accumulate, outer, at and reduceat; and NumPy's protocol for its own.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes, ops
from neuronsim.arrays import cumulative, reductions
from neuronsim.arrays.array_object import Array, index_bits, traced_part
from neuronsim.arrays.axes import Axis, folded_axes, kept_shape, one_axis
from neuronsim.arrays.conversion import (
    INTEGRAL,
    asarray,
    convert,
    is_weak,
    let_record,
    weak_type,
    write,
)
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.evaluation import identity
from neuronsim.arrays.folds import FEW_LINES, FEW_STEPS, applies, fold, is_plain, running, update
from neuronsim.arrays.reductions import chosen
from neuronsim.dtypes import Casting, DType, DTypeLike, can_cast
from neuronsim.errors import REFUSALS, InvalidArgument, InvalidIndex, UnsupportedType, nearest, refusal
from neuronsim.processor import pinned

# The reductions and cumulative functions that are functions of their own.
_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "add": reductions.sum,
    "multiply": reductions.prod,
    "maximum": reductions.max,
    "minimum": reductions.min,
}
_TRUTHS: dict[str, Callable[..., Array]] = {
    "logical_and": reductions.all,
    "logical_or": reductions.any,
}
_CUMULATIVE: dict[str, Callable[..., Array]] = {
    "add": cumulative.cumulative_sum,
    "multiply": cumulative.cumulative_prod,
}
# What starts a reduction by the others, as in NumPy.
_IDENTITIES: dict[str, bool | int | float] = {
    "add": 0,
    "multiply": 1,
    "gcd": 0,
    "hypot": 0,
    "logaddexp": -np.inf,
    "logaddexp2": -np.inf,
    "logical_and": True,
    "logical_or": False,
    "logical_xor": False,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}
# Those that are exact, and so give the same bits in every order of evaluation: the reducers of the
# core's, of integers, and all.
_EXACT_IN_CORE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum"})
_EXACT = frozenset(
    {
        *_EXACT_IN_CORE,
        *("logical_and", "logical_or", "logical_xor", "fmax", "fmin", "gcd"),
    }
)


def _keywords(
    out: Any = None,
    *,
    where: Any = True,
    dtype: Any = None,
    casting: Casting = "same_kind",
    order: str = "K",
    subok: bool = True,
) -> None:
    """What every Ufunc takes beside its operands."""


_KEYWORDS = inspect.signature(_keywords).parameters


@pinned
class Ufunc(_core.Door):
    """An elementwise function of `nin` arrays that gives `nout`.

    >>> from neuronsim.arrays.evaluation import apply_elementwise
    >>> x = Array(ops.Bits(np.float32([1, 2, 4]), dtypes.float32))
    >>> add = Ufunc("add", lambda x1, x2: apply_elementwise("add", x1, x2), ("x1", "x2"), "The sum.")
    >>> add(x, 1, where=[True, False, True])
    Array([2., 0., 5.], dtype=float32)
    >>> add.reduce(x), add.outer(x, x).shape
    (Array(7., dtype=float32), (3, 3))
    """

    def __init__(
        self,
        name: str,
        compute: Callable[..., Array],
        parameters: Sequence[str],
        doc: str,
        *,
        nout: int = 1,
        predicate: bool = False,
        row: str | None = None,
        module: str | None = None,
    ) -> None:
        # On device types it is the row of that name, whose programs are tried first.
        super().__init__(self._evaluate, row)
        self.__name__ = self.__qualname__ = name
        self.__module__ = module or compute.__module__  # where pickle finds it by its name
        self.__doc__ = doc
        self.nin, self.nout = len(parameters), nout
        self.nargs = self.nin + nout
        self.identity = _IDENTITIES.get(name)
        self._compute = compute
        self._row = None if row is None else ops.by_name(row)
        self._predicate = predicate
        only = inspect.Parameter.POSITIONAL_ONLY
        operands = [inspect.Parameter(p, only) for p in parameters]
        self.__signature__ = inspect.Signature([*operands, *_KEYWORDS.values()])

    if TYPE_CHECKING:
        # A tuple of Arrays where nout is not 1: the few who call those unpack it.
        def __call__(self, /, *operands: Any, **keywords: Any) -> Array: ...

    def _evaluate(self, /, *operands: Any, **keywords: Any) -> Any:
        if keywords or len(operands) != self.nin:
            return self._call(*operands, **keywords)
        return self._compute(*operands)

    def __repr__(self) -> str:
        return f"<neuronsim ufunc {self.__name__!r}>"

    def _call(
        self,
        *operands: Any,
        out: Any = None,
        where: Any = True,
        dtype: DTypeLike | None = None,
        casting: Casting = "same_kind",
        **ignored: Any,
    ) -> Any:
        unknown = [k for k in ignored if k not in ("order", "subok")]
        if unknown:
            known = nearest(unknown[0], _KEYWORDS)
            raise UnsupportedType(f"{self.__name__}() has no argument {unknown[0]!r}{known}")
        given, outputs = operands[: self.nin], operands[self.nin :]
        if len(given) < self.nin or len(outputs) > self.nout or (outputs and out is not None):
            arrays = "1 array" if self.nin == 1 else f"{self.nin} arrays"
            raise UnsupportedType(f"{self.__name__}() takes {arrays}, not {len(operands)}")
        found: Any = self._compute(*(given if dtype is None else self._in_type(given, dtype, casting)))
        results = found if self.nout > 1 else (found,)
        if dtype is not None and results[0].dtype is not array_type(dtype):
            raise UnsupportedType(f"{self.__name__} gives {results[0].dtype.name}, not {dtype!r}")
        if not outputs and out is not None:
            outputs = out if isinstance(out, tuple) else (out,)
            if len(outputs) != self.nout:
                raise InvalidArgument(
                    f"{self.__name__}() gives {self.nout} arrays: out is a tuple of them"
                )
        outputs = (*outputs, *[None] * (self.nout - len(outputs)))
        pairs = zip(outputs, results, strict=True)
        written = tuple(_written(*pair, where, casting, broadcasts=True) for pair in pairs)
        return written if self.nout > 1 else written[0]

    def _in_type(
        self, operands: Sequence[Any], dtype: DTypeLike, casting: Casting = "same_kind"
    ) -> list[Any]:
        """The operands in `dtype`; a predicate's own type is no type of its operands."""
        target = array_type(dtype)
        if self._predicate and target is dtypes.boolean:
            return list(operands)
        converted = []
        for x in operands:
            a = asarray(x)
            # A Python number has no width of its own (C8), an integer no sign.
            source = dtypes.uint8 if is_weak(x) and isinstance(x, int) else a.dtype
            if not can_cast(source, target, "same_kind" if is_weak(x) else casting):
                raise UnsupportedType(
                    f"{self.__name__} in {target.name} of an operand of {a.dtype.name} is no "
                    f"{casting!r} cast: convert it with astype"
                )
            converted.append(asarray(x, target) if is_weak(x) else convert(a, target))
        return converted

    def reduce(
        self,
        x: Any,
        /,
        axis: Axis = 0,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Array:
        """The elements along `axis` combined: add, multiply, maximum and minimum by rule R2, all others
        from `initial`, else the identity, else the first element to the last (of several axes the last
        is the fastest), one rounding a step. Elements outside `where` are left out; a scalar has the
        axis 0, as in NumPy.
        """
        self._check_pairs("reduce")
        x = asarray(x)
        if self.__name__ in _TRUTHS and initial is None and dtype is None:
            given = {} if where is True else {"where": where}
            return _TRUTHS[self.__name__](x, axis=axis, out=out, keepdims=keepdims, **given)
        if self.__name__ in _REDUCTIONS:
            if dtype is not None and self.__name__ in ("maximum", "minimum"):
                x, dtype = self._in_step_type(x, dtype), None
            options = {"dtype": dtype, "out": out, "initial": initial}
            given = {k: v for k, v in options.items() if v is not None}
            if where is not True:
                given["where"] = where
            own = _REDUCTIONS[self.__name__]
            return own(x, axis=axis, keepdims=keepdims, **given)
        a = self._in_step_type(x, dtype)
        reduced = folded_axes(a.shape, axis)
        start = None if initial is None else asarray(initial, a.dtype)
        if start is None and self.identity is not None:
            start = convert(asarray(self.identity), a.dtype)
        if where is not True and start is None:
            raise InvalidArgument(f"{self.__name__}.reduce has no identity: where= needs initial=")
        kept = [d for d in range(a.ndim) if d not in reduced]

        def in_lines(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
            moved = data.transpose(*reduced, *kept)
            # The length said, since of no elements -1 is no length.
            length = math.prod(moved.shape[: len(reduced)])
            return moved.reshape(length, *moved.shape[len(reduced) :])

        lines = in_lines(a.bits.data)
        mask = None if where is True else in_lines(chosen(a, where))
        if start is None and not len(lines):
            raise InvalidArgument(f"{self.__name__}.reduce of no elements has no value")
        if mask is not None and start is not None and self.__name__ in _EXACT:
            # What changes nothing: the identity; without one, what it starts from (fmax, fmin).
            idle = start if self.identity is None else convert(asarray(self.identity), a.dtype)
            lines, mask = np.where(mask, lines, idle.bits.data), None
        bitwise = self.__name__ in _EXACT_IN_CORE and a.dtype.kind in INTEGRAL and is_plain()
        if bitwise and start is not None and not start.ndim:
            operands = [ops.Bits(lines, a.dtype), start.bits]
            found = Array(ops.apply("reduce", operands, dimensions=(0,), reducer=self.__name__))
        else:
            if start is not None:
                first = np.broadcast_to(start.bits.data, (1, *lines.shape[1:]))
                lines = np.concatenate([first, lines])
            if mask is not None:
                mask = np.concatenate([np.ones((1, *lines.shape[1:]), np.bool_), mask])
            x = Array(ops.Bits(lines, a.dtype))
            found = self._halved(x) if self.__name__ in _EXACT else self._folded(x, mask)
        if keepdims:
            found = found.reshape(kept_shape(a.shape, reduced))
        return _written(out, found)

    def accumulate(
        self, x: Any, /, axis: int = 0, dtype: DTypeLike | None = None, out: Any = None
    ) -> Array:
        """Element j combines the elements 0 to j along `axis`: add and multiply by rule R4, all others
        from the first to the last, one rounding a step.
        """
        self._check_pairs("accumulate")
        x = asarray(x)
        one_axis(x.shape, axis)  # which refuses others, and arrays without axes
        if self.__name__ in _CUMULATIVE:
            given = {} if dtype is None else {"dtype": dtype}
            return _written(out, _CUMULATIVE[self.__name__](x, axis=axis, **given))
        a = self._in_step_type(x, dtype)
        axis = one_axis(a.shape, axis)
        lines = Array(ops.Bits(np.moveaxis(a.bits.data, axis, 0), a.dtype))
        if self.__name__ in _EXACT_IN_CORE and a.dtype.kind in INTEGRAL and is_plain() and a.size:
            found = self._cumulated(lines)
        else:
            found = self._scanned(lines) if self.__name__ in _EXACT else self._steps(lines)
        return _written(out, Array(ops.Bits(np.moveaxis(found.bits.data, 0, axis), found.dtype)))

    def outer(self, a: Any, b: Any, /, **keywords: Any) -> Any:
        """The function of every element of `a` with every one of `b`."""
        self._check_pairs("outer")
        right = asarray(b)
        if not is_weak(a) and right.ndim:
            left = asarray(a)
            a = left.reshape((*left.shape, *[1] * right.ndim))
        return self(a, b, **keywords)

    def at(self, a: Any, indices: Any, b: Any = None, /) -> None:
        """`a[indices] = f(a[indices], b)` in place, one element of `indices` after the other, each
        application rounded to the type of `a` (R5). Traced it is a scatter.
        """
        if (b is None) != (self.nin == 1) or self.nout > 1:
            raise InvalidArgument(
                f"{self.__name__}.at takes an array, indices and {self.nin - 1} operands"
            )
        target = asarray(a, copy=False)
        if not target.flags.writeable:
            raise InvalidArgument(f"the array {target.bits.type} is read-only: write into a copy of it")
        others = [] if b is None else [asarray(b, weak_type(b, target.dtype) if is_weak(b) else None)]

        def step(*operands: ops.Bits) -> ops.Bits:
            new = self._compute(*map(Array, operands))
            if not can_cast(new.dtype, target.dtype, "same_kind"):
                raise UnsupportedType(
                    f"{self.__name__}.at gives {new.dtype.name}, which an array of {target.dtype.name} "
                    "does not take: convert the array with astype first"
                )
            return convert(new, target.dtype).bits

        key = index_bits(indices)
        parts = key if isinstance(key, tuple) else (key,)
        traced = traced_part((target._data, *(x._data for x in others), *parts))
        if traced is not None:
            let_record(target, traced)
        data = target.bits.data
        try:
            if traced is not None:
                data.update_at(key, [x.bits for x in others], step)  # type: ignore[attr-defined]
                return
            places = np.asarray(np.arange(data.size).reshape(data.shape)[key])
        except REFUSALS as error:
            raise refusal(f"{self.__name__}.at of {target.bits.type}", error) from error
        operands = []
        for other in others:
            try:
                # A copy: `b` may be of the memory that is written into.
                values = np.broadcast_to(other.bits.data, places.shape).flatten()
            except ValueError as error:
                raise InvalidArgument(
                    f"{self.__name__}.at: {other.shape} does not broadcast to {places.shape} places"
                ) from error
            operands = [Array(ops.Bits(values, other.dtype))]
            row = self._row if places.size > FEW_STEPS else None
            if row is not None and applies(row, target.dtype, other.dtype):
                update(row, target, places.ravel(), operands[0])
                return
        for turn in _rounds(places.ravel()):
            where = places.ravel()[turn]
            old = ops.Bits(data.flat[where], target.dtype)
            data.flat[where] = step(old, *(ops.Bits(v.bits.data[turn], v.dtype) for v in operands)).data

    def reduceat(
        self, x: Any, indices: Any, /, axis: int = 0, dtype: DTypeLike | None = None, out: Any = None
    ) -> Array:
        """`reduce` of x[indices[i]:indices[i + 1]] along `axis`, the last to its end; of the element
        x[indices[i]] alone where the next index is not larger.
        """
        self._check_pairs("reduceat")
        a = asarray(x)
        axis = one_axis(a.shape, axis)
        starts = asarray(indices)
        if starts.ndim != 1 or (starts.size and starts.dtype.kind not in ("signed", "unsigned")):
            raise InvalidArgument(f"{self.__name__}.reduceat takes a line of integers, not {indices!r}")
        n = a.shape[axis]
        if not all(0 <= i < n for i in starts.tolist()):
            raise InvalidIndex(
                f"{self.__name__}.reduceat: an index of {starts} is outside {n} elements"
            )
        first = starts.bits.data.astype(np.int64)
        counts = np.maximum(np.diff(first, append=n), 1)
        lines = np.moveaxis(a.bits.data, axis, 0)
        reduced = []
        for count in np.unique(counts):
            begins = first[counts == count]
            if count * math.prod(lines.shape[1:]) > _LONG_PART:
                groups = [lines[b : b + count, np.newaxis] for b in begins.tolist()]
            else:  # one reduction for all parts of a length
                groups = [lines[begins + np.arange(count)[:, np.newaxis]]]
            for group in groups:
                part = Array(ops.Bits(group, a.dtype))
                # One element is itself: it does not meet the identity.
                alone = count == 1
                one = self.accumulate(part, 0, dtype)[0] if alone else self.reduce(part, 0, dtype)
                reduced.append(one)
        if not reduced:
            reduced = [self.accumulate(Array(ops.Bits(lines[:0], a.dtype)), 0, dtype)]
        by_length = np.concatenate([r.bits.data for r in reduced])
        found = by_length[np.argsort(np.argsort(counts, kind="stable"))]
        return _written(out, Array(ops.Bits(np.moveaxis(found, 0, axis), reduced[0].dtype)))

    def _check_pairs(self, method: str) -> None:
        if (self.nin, self.nout) != (2, 1):
            raise InvalidArgument(
                f"{self.__name__}.{method}: only functions of two arrays have it, and give one"
            )

    def _in_step_type(self, x: Any, dtype: DTypeLike | None) -> Array:
        """An array in the type of what a step of a fold gives."""
        a = asarray(x)
        if dtype is not None:
            (a,) = self._in_type([a], dtype)
        none = Array(ops.Bits(a.bits.data.ravel()[:0], a.dtype))
        step: DType = self._compute(none, none).dtype
        return convert(a, step)

    def _applies(self, x: Array) -> bool:
        """Whether steps along the first axis, of one type, are many enough for one call of the core."""
        known = isinstance(x.bits.data, np.ndarray)  # a traced array records its steps
        row = self._row if known and len(x) > FEW_STEPS else None
        return row is not None and applies(row, x.dtype, x.dtype)

    def _folded(self, x: Array, mask: npt.NDArray[np.bool_] | None) -> Array:
        """The last of `_steps`."""
        return fold(self._row, x, mask) if self._row and self._applies(x) else self._steps(x, mask)[-1]

    def _steps(self, x: Array, mask: npt.NDArray[np.bool_] | None = None) -> Array:
        """Along the first axis: element j is f(element j - 1, x[j]), or element j - 1 where the mask
        does not hold.
        """
        if mask is None and self._row and x.size <= FEW_LINES * len(x) and self._applies(x):
            return running(self._row, x)
        found = [x.bits.data[:1]]
        for j in range(1, len(x)):
            pair = found[-1], x.bits.data[j : j + 1]
            one = self._compute(*(Array(ops.Bits(v, x.dtype)) for v in pair)).bits.data
            found.append(one if mask is None else np.where(mask[j : j + 1], one, found[-1]))
        return Array(ops.Bits(np.concatenate(found), x.dtype))

    def _cumulated(self, x: Array) -> Array:
        """`_scanned` of integers, of which a reducer of the core changes none."""
        same = self.identity
        start = identity(self.__name__, x.dtype) if same is None else convert(asarray(same), x.dtype)
        found = ops.apply("cumulative", [x.bits, start.bits], axis=0, reducer=self.__name__)
        found.data[:1] = x.bits.data[:1]  # which meets nothing
        return Array(found)

    def _halved(self, x: Array) -> Array:
        """The combination of all elements of the first axis, of which there is one at least."""
        data = x.bits.data
        while (n := len(data)) > 1:
            pairs = [Array(ops.Bits(data[k : n // 2 * 2 : 2], x.dtype)) for k in (0, 1)]
            data = np.concatenate([self._compute(*pairs).bits.data, data[n // 2 * 2 :]])
        return Array(ops.Bits(np.array(data[0]), x.dtype))  # not a view of what was reduced

    def _scanned(self, x: Array) -> Array:
        """Along the first axis: element j combines the elements 0 to j."""
        data, reach = x.bits.data.copy(), 1
        while reach < len(data):
            pairs = [Array(ops.Bits(v, x.dtype)) for v in (data[:-reach], data[reach:])]
            data[reach:] = self._compute(*pairs).bits.data
            reach *= 2
        return Array(ops.Bits(data, x.dtype))


def as_ufunc(nout: int = 1, *, predicate: bool = False) -> Callable[[Callable[..., Any]], Ufunc]:
    """Decorates a function of positional arrays that is to be a Ufunc."""

    def made(function: Callable[..., Any]) -> Ufunc:
        names = tuple(inspect.signature(function).parameters)
        doc = function.__doc__ or ""
        return Ufunc(function.__name__, function, names, doc, nout=nout, predicate=predicate)

    return made


def _written(
    out: Any,
    result: Array,
    where: Any = True,
    casting: Casting = "same_kind",
    *,
    broadcasts: bool = False,
) -> Array:
    """The result in `out`, where there is one; without it, zeros where `where` does not hold."""
    if isinstance(out, tuple):
        if len(out) != 1:
            raise InvalidArgument(f"out is one array, not a tuple of {len(out)}")
        (out,) = out
    if out is None:
        if where is True:
            return result
        chosen = asarray(where)
        try:
            dims = ops.broadcast_dims(result.shape, chosen.shape)
        except ValueError as error:
            raise InvalidArgument(f"{result.bits.type}, where {chosen.shape}: {error}") from error
        out = Array(ops.Bits(np.zeros(dims, result.dtype.storage), result.dtype))
    write(out, result, where, casting, broadcasts=broadcasts)
    return out  # type: ignore[no-any-return]


_LONG_PART = 4096  # elements, which are quicker reduced alone than copied beside others


def _rounds(places: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The positions of `places` in rounds, none of which meets a place twice, in their order (R5)."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    first = np.searchsorted(sorted_places, sorted_places)
    turn = np.empty_like(order)
    turn[order] = np.arange(len(order)) - first
    by_turn = np.argsort(turn, kind="stable")
    yield from np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if len(places) else ()
