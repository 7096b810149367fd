"""What lies in a traced array in the place of its ndarray: NumPy's functions and the op table's rows
are recorded, and what needs values says so.

>>> from neuronsim.frontends.recorder import Recorder, recording
>>> with recording(Recorder("main")) as recorder:
...     x = Tracer(recorder.parameter("x", ops.ArrayType(dtypes.float32, (2, 3))))
...     np.moveaxis(x, 0, 1).shape
(3, 2)
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.dtypes import as_dtype
from neuronsim.errors import (
    InvalidArgument,
    InvalidIndex,
    UnknownValue,
    UnsupportedType,
    users_line,
)
from neuronsim.frontends import movement
from neuronsim.frontends.movement import (
    broadcast,
    converted,
    is_basic,
    known,
    moved,
    reinterpreted,
    replaced,
    reshaped,
    row,
    row_major,
    sliced,
    transposed,
)
from neuronsim.frontends.recorder import Adopted, Value, active_recorder, recording

_View = Callable[[Value], Value]
# Instructions that make no element of several, beside those that compute with each.
_OF_EACH = frozenset({"bitcast-convert", "broadcast", "constant", "parameter", "reshape"})


class Tracer(np.lib.mixins.NDArrayOperatorsMixin):
    """The storage of an array whose values are not known yet. It is written by becoming another value;
    a view follows its base, and writes through it.
    """

    __slots__ = ("_back", "_base", "_forth", "_layout", "_pending", "_seen", "_value", "_version")
    __hash__ = None  # type: ignore[assignment]

    # What `rows` and `numpy_functions`, which are written with traced arrays, put here.
    record: ClassVar[Callable[..., ops.Bits]]
    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}
    ufuncs: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(
        self,
        value: Value,
        base: Tracer | None = None,
        forth: _View | None = None,
        back: Callable[[Value, Value], Value] | None = None,
        layout: Any = None,
    ) -> None:
        self._value, self._base, self._forth, self._back = value, base, forth, back
        self._layout = (
            row_major(value.type.dims, value.type.dtype.storage) if layout is None else layout
        )
        self._version = 0
        self._seen = base.version if base is not None else 0
        # What views wrote and nobody has read yet: how it goes into this memory.
        self._pending: list[_View] = []

    @property
    def version(self) -> int:
        """How often the memory was written."""
        return self._version if self._base is None else self._base.version

    @property
    def value(self) -> Value:
        """What the memory holds now."""
        if self._base is None:
            pending, self._pending = self._pending, []
            for put in pending:
                self._value = _recorded_around(self._value, put)
        elif self._seen != self.version:
            assert self._forth is not None
            self._value = _recorded_around(self._base.value, self._forth)
            self._seen = self.version
        return self._value

    def write(self, value: Value) -> None:
        """Put a value of the same type in the place of what is there."""
        if self._base is None:
            self._pending = []
            self._version += 1
        else:
            back = self._back
            if back is None:
                raise InvalidArgument("the array is read-only: write into a copy of it")
            self._base._put(lambda whole: back(whole, value))
        self._value, self._seen = value, self.version

    def _put(self, put: _View) -> None:
        """Has what a view wrote put into the memory once it is read."""
        if self._base is None:
            self._pending.append(put)
            self._version += 1
            return
        forth, back = self._forth, self._back
        if forth is None or back is None:
            raise InvalidArgument("the array is read-only: write into a copy of it")
        self._base._put(lambda whole: back(whole, put(forth(whole))))

    def view_of(
        self, forth: _View, back: Callable[[Value, Value], Value] | None, layout: Any
    ) -> Tracer:
        """Other elements of the same memory, which lie there as those of `layout` do."""
        return Tracer(forth(self.value), self, forth, back, layout)

    # ---- what an ndarray has -----------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.type.dims

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._value.type.dtype.storage)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self._layout.strides)

    @property
    def flags(self) -> Any:
        writeable = self._base is None or self._back is not None
        own = self._layout.flags
        return SimpleNamespace(
            writeable=writeable,
            c_contiguous=own.c_contiguous,
            f_contiguous=own.f_contiguous,
            fnc=own.fnc,
            aligned=True,
            owndata=self._base is None,
        )

    @property
    def layout(self) -> Any:
        """How the elements lie in memory: an ndarray whose elements nobody reads."""
        return self._layout

    @property
    def base(self) -> None:
        return None

    @property
    def T(self) -> Tracer:  # noqa: N802 (NumPy's name)
        return self.transpose()

    def setflags(self, write: bool | None = None, align: Any = None, uic: Any = None) -> None:
        """Nothing: what is read-only is a view that cannot be written."""

    @property
    def real(self) -> Tracer:
        """The real parts of complex elements."""
        return self.view_of(
            lambda v: row("real", [v]),
            lambda base, v: row("complex", [v, row("imag", [base])]),
            self._layout.real,
        )

    @property
    def imag(self) -> Tracer:
        """Their imaginary parts."""
        return self.view_of(
            lambda v: row("imag", [v]),
            lambda base, v: row("complex", [row("real", [base]), v]),
            self._layout.imag,
        )

    def transpose(self, *axes: Any) -> Tracer:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        order = tuple(range(self.ndim))[::-1] if given is None else tuple(map(operator.index, given))
        order = tuple(d % self.ndim if self.ndim else d for d in order)
        inverse = tuple(np.argsort(order).tolist())
        return self.view_of(
            lambda v: transposed(v, order),
            lambda base, v: transposed(v, inverse),
            self._layout.transpose(order),
        )

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Tracer:
        dims = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        numbers = np.broadcast_to(np.empty((), np.int8), self.shape)
        if order == "F" and self.ndim > 1:
            return self.T.reshape(_shape_of(numbers, dims)[::-1]).T
        dims, own = _shape_of(numbers, dims), self.shape
        try:
            layout = np.reshape(self._layout, dims, copy=False)
        except ValueError:  # elements that do not lie so: NumPy copies them
            return Tracer(reshaped(self.value, dims))
        return self.view_of(lambda v: reshaped(v, dims), lambda base, v: reshaped(v, own), layout)

    def ravel(self, order: str = "C") -> Tracer:
        return self.reshape(-1, order="C" if order == "K" else order)

    def flatten(self, order: str = "C") -> Tracer:
        return self.ravel(order).copy()

    def copy(self, order: str = "C") -> Tracer:
        return Tracer(self.value)

    def view(self, dtype: Any) -> Tracer:
        target = as_dtype(dtype)
        if target.itemsize != self.itemsize:
            raise UnsupportedType("a view of a traced array has elements of the same size")
        own = self._value.type.dtype
        return self.view_of(
            lambda v: reinterpreted(v, target),
            lambda base, v: reinterpreted(v, own),
            self._layout.view(target.storage),
        )

    def astype(self, dtype: Any, copy: bool = True) -> Tracer:
        if self._value.type.dtype.kind not in ("signed", "unsigned", "bool"):
            self._unknown("astype of its bits")
        return Tracer(converted(self.value, as_dtype(dtype)))

    def __len__(self) -> int:
        if not self.ndim:
            raise UnsupportedType("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tracer]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Tracer:
        parts = key if isinstance(key, tuple) else (key,)
        traced = _traced_key(parts)
        if traced is not None:
            return Tracer(movement.indexed(self.value, traced))
        if not is_basic(key):
            return Tracer(moved(self.value, lambda numbers: numbers[key]))
        if len(parts) == self.ndim and all(isinstance(k, int | np.integer) for k in parts):
            return Tracer(sliced(self.value, key))  # an element, which is copied
        return self.view_of(
            lambda v: sliced(v, key), lambda base, v: replaced(base, key, v), self._layout[key]
        )

    def __setitem__(self, key: Any, update: Any) -> None:
        parts = key if isinstance(key, tuple) else (key,)
        new = as_value(update, self._value)
        (mask,) = parts if len(parts) == 1 else (None,)
        if isinstance(mask, Tracer) and mask.value.type.dtype is dtypes.boolean and not new.type.dims:
            self.write(_where_set(self.value, mask.value, new))
            return
        traced = _traced_key(parts)
        if traced is None:
            self.write(replaced(self.value, key, new))
        else:
            self.write(movement.updated(self.value, traced, new))

    def update_at(self, key: Any, updates: Sequence[ops.Bits], step: Callable[..., ops.Bits]) -> None:
        """`self[key] = step(self[key], *updates)`, one element of the key after the other (R5): a
        scatter, whose computation is what `step` records; there is one update at most.
        """
        own, parts = self._value.type.dtype, key if isinstance(key, tuple) else (key,)
        given = [value_of(u) for u in updates]
        update = given[0] if given else known(0, own)

        def recorded(*scalars: Value) -> Value:
            return value_of(step(*map(traced_bits, scalars[: 1 + len(given)])))

        types = (own, update.type.dtype)
        computation = active_recorder().scalar_computation("update", types, recorded)
        traced = _traced_key(parts)
        if traced is not None:
            self.write(movement.updated(self.value, traced, update, computation))
            return
        places = np.asarray(np.arange(self.size, dtype=np.int64).reshape(self.shape)[key])
        self.write(movement.updated_at(self.value, places, update, computation))

    # ---- protocols ---------------------------------------------------------------------------------

    def __neuronsim_apply__(
        self, op: ops.Op, operands: Sequence[ops.Bits], attributes: ops.Attributes
    ) -> ops.Bits:
        """What `ops.apply` gives where an operand is traced."""
        return Tracer.record(op, operands, attributes)

    def __neuronsim_storage__(self, bits: ops.Bits) -> Tracer:
        """A known array as one that records: it is read at traced places."""
        return Tracer(value_of(bits))

    def __neuronsim_each__(self, function: Callable[[], Any], what: str) -> Any:
        """What a function of all elements gives, which stands for one of some of them: raises
        UnsupportedType where it makes an element of several.
        """
        recorder = active_recorder()
        before = len(recorder.instructions)
        found = function()
        for i in recorder.instructions[before:]:
            if i.opcode not in _OF_EACH and not ops.is_elementwise(
                ops.by_opcode(i.opcode, i.attributes)
            ):
                raise UnsupportedType(
                    f"{what} of a traced array runs its functions on all elements, so that they act on "
                    f"each alone: one has a {i.opcode}. Compute that outside of them"
                )
        return found

    def __neuronsim_adopt__(self, x: Any) -> None:
        """Makes a known array record, since what is written into it does."""
        active_recorder().shared.adopted.append(Adopted(weakref.ref(x), x._data, users_line()))
        x._data = Tracer(value_of(x.bits))

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        mover = Tracer.functions.get(function)
        if mover is None:
            self._unknown(f"numpy.{function.__name__}")
        return mover(*args, **keywords)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        recorded = Tracer.ufuncs.get(ufunc.__name__)
        if recorded is None or method != "__call__" or keywords:
            self._unknown(f"numpy.{ufunc.__name__}")
        return recorded(*inputs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(f"a traced array's storage has no {name!r}")
        return self._unknown(f"ndarray.{name}")

    def _unknown(self, what: str) -> NoReturn:
        raise UnknownValue(what, self.value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._unknown("an `if`, a number or an ndarray of it")

    def __bool__(self) -> bool:
        return bool(self._unknown("a branch on it"))

    def __index__(self) -> int:
        return int(self._unknown("it as an index or a length"))

    def __int__(self) -> int:
        return int(self._unknown("int() of it"))

    def __float__(self) -> float:
        return float(self._unknown("float() of it"))

    def tolist(self) -> Any:
        return self._unknown("its elements as Python's numbers")

    def item(self, *args: Any) -> Any:
        return self._unknown("an element as a Python number")

    def tobytes(self, order: Any = None) -> Any:
        return self._unknown("its bytes")


def _recorded_around(value: Value, function: _View) -> Value:
    """What a function makes of a value, recorded where the value was: loops and branches inside read it
    as a capture. Where it takes what an inner one made, it is recorded there.
    """
    inner = active_recorder()
    if value.recorder is inner or not value.recorder.encloses(inner):
        return function(value)
    try:
        with recording(value.recorder):
            return function(value)
    except InvalidArgument:
        return function(value)


def traced_bits(value: Value) -> ops.Bits:
    """What takes the place of the bits of an array that has this value."""
    data: Any = Tracer(value)
    return ops.Bits(data, value.type.dtype)


def is_traced(bits: ops.Bits) -> bool:
    """Whether the values of an array are recorded, not known."""
    return isinstance(bits.data, Tracer)


def value_of(bits: ops.Bits) -> Value:
    """The value of an array in the recording: a constant of one that is known."""
    if isinstance(bits.data, Tracer):
        return reinterpreted(bits.data.value, bits.dtype)
    data = np.asarray(bits.data)
    lies = [s != 0 or n <= 1 for s, n in zip(data.strides, data.shape, strict=True)]
    if 0 in data.shape or all(lies):
        return active_recorder().constant(ops.Bits(data, bits.dtype))
    # What NumPy repeats without memory HLO repeats too.
    once = np.asarray(data[tuple(slice(None) if kept else 0 for kept in lies)])
    dims = [n for n, kept in zip(data.shape, lies, strict=True) if kept]
    full = [n if kept else 1 for n, kept in zip(data.shape, lies, strict=True)]
    value = active_recorder().constant(ops.Bits(once.reshape(dims), bits.dtype))
    return broadcast(reshaped(value, full), data.shape)


def as_value(x: Any, like: Value) -> Value:
    """What is written into an array: its storage."""
    if isinstance(x, Tracer):
        return reinterpreted(x.value, like.type.dtype)
    return known(np.asarray(x), like.type.dtype)


# ---- indices ----------------------------------------------------------------------------------------


def _shape_of(numbers: Any, dims: Any) -> tuple[int, ...]:
    try:
        return tuple(numbers.reshape(dims).shape)
    except ValueError as error:
        raise InvalidArgument(f"an array of the shape {numbers.shape} cannot take {dims}") from error


def _traced_key(parts: Sequence[Any]) -> list[Any] | None:
    """The key with the values of its traced parts; None if it has none."""
    if not any(isinstance(k, Tracer) for k in parts):
        return None
    found: list[Any] = []
    for k in parts:
        if isinstance(k, Tracer):
            if k.value.type.dtype is dtypes.boolean:
                raise UnknownValue("how many elements a traced mask leaves", k.value)
            found.append(k.value)
        elif isinstance(k, np.ndarray | list):
            array = np.asarray(k)
            if array.dtype == bool:
                raise InvalidIndex("a mask beside traced indices: give its nonzero()")
            found.append(array)
        else:
            found.append(operator.index(k) if isinstance(k, np.integer) else k)
    return found


def _where_set(x: Value, mask: Value, update: Value) -> Value:
    """One value where a mask over the first axes holds, else what is there."""
    dims = x.type.dims
    if mask.type.dims != dims[: len(mask.type.dims)]:
        raise InvalidIndex(f"a mask of {mask.type.dims} does not index an array of {dims}")
    wide = reshaped(mask, mask.type.dims + (1,) * (len(dims) - len(mask.type.dims)))
    return row("select", [broadcast(wide, dims), broadcast(update, dims), x])
