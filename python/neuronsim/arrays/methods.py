"""What an Array has beside its memory: operators, NumPy's methods and NumPy's protocols, which call the
chapters and so are attached to it here, above them.

>>> x = asarray([1.0, 2.5, 1 / 3], dtype="bfloat16")
>>> x + 1
Array([2.   , 3.5  , 1.336], dtype=bfloat16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from neuronsim import ops
from neuronsim.arrays import evaluation, fft, linalg, stride_tricks
from neuronsim.arrays.absent_names import not_computed, reason
from neuronsim.arrays.array_object import Array, index_bits, shown
from neuronsim.arrays.chapters import FUNCTIONS
from neuronsim.arrays.conversion import (
    asarray,
    check_cast,
    convert,
    is_weak,
    let_record,
    weak_array,
    write,
)
from neuronsim.arrays.default_types import array_type
from neuronsim.arrays.doors import door
from neuronsim.arrays.elementwise import right_shift
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.arrays.indexing import compress, nonzero, put
from neuronsim.arrays.manipulation import squeeze, transpose
from neuronsim.arrays.order import partition, sort
from neuronsim.arrays.printing import array_repr, array_str
from neuronsim.arrays.products import matmul, matrix_transpose
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.dtypes import Casting, DTypeLike
from neuronsim.errors import (
    REFUSALS,
    AbsentName,
    InvalidArgument,
    InvalidIndex,
    UnsupportedType,
    refusal,
)
from neuronsim.processor import pinned

_Operator = Callable[[Array, Any], Array]


def _operators(symbol: str) -> tuple[_Operator, _Operator, _Operator]:
    """The method of a binary operator, its reflection and its in-place form, from the op table."""
    row = next(row for row in ops.OPS.values() if row.operator == symbol)
    name = row.name

    def method(self: Array, other: Any, *modulus: Any) -> Any:
        if modulus:  # pow's third argument
            raise UnsupportedType(f"{name} of {self.bits.type} has no modulus: use (x {symbol} y) % m")
        if not _is_operand(other):
            return NotImplemented
        return evaluation.evaluate_elementwise(name, self, other)

    def reflected(self: Array, other: Any) -> Any:
        return apply_elementwise(name, other, self) if _is_operand(other) else NotImplemented

    short = door(method, name)
    return short, reflected, _in_place(short, name)


def _unary(name: str) -> Callable[[Array], Array]:
    """The method of an operator of one array."""

    def method(self: Array) -> Array:
        return evaluation.evaluate_elementwise(name, self)

    return door(method, name)


def _in_place(method: _Operator, name: str) -> _Operator:
    """The operator that writes its result into its left operand, which keeps its type and shape."""

    def in_place(self: Array, other: Any) -> Any:
        result = method(self, other)
        if result is NotImplemented:
            return result
        # A product of matrices may have fewer axes, which would broadcast without a word.
        if result.shape != self.shape:
            raise InvalidArgument(
                f"{self.bits.type} keeps its shape in place: the result is {result.bits.type}"
            )
        return write(self, result)

    return door(in_place, name, writes=True)


def _is_operand(x: Any) -> bool:
    return isinstance(x, Array | np.ndarray | np.generic | int | float | complex | list | tuple)


# ---- NumPy's protocols ------------------------------------------------------------------------------


def array_ufunc(
    ufunc: np.ufunc, method: str, operands: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """What NumPy's own function does with Arrays among its operands: ours of that name, so that nothing
    falls back to NumPy's arithmetic. Raises UnsupportedType where there is none.
    """
    name = ufunc.__name__
    own = FUNCTIONS.get(name) if getattr(np, name, None) is ufunc else None
    if own is None or not (method == "__call__" or isinstance(own, Ufunc)):
        raise not_computed("numpy", name, FUNCTIONS, "" if method == "__call__" else f".{method}")
    if "axes" in keywords and all(a == tuple(range(-len(a), 0)) for a in keywords["axes"]):
        # As ndarray's @= says it: the last axes, which are ours anyhow.
        keywords = {key: value for key, value in keywords.items() if key != "axes"}
    found = (own if method == "__call__" else getattr(own, method))(*operands, **keywords)
    # NumPy's own arrays that were written into are what the caller gets back.
    out = keywords.get("out", ())
    return found if len(out) != 1 or out[0] is None else out[0]


def array_function(
    function: Any, types: Sequence[type], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """What `function` of NumPy is on Arrays: neuronsim's function of that name; nothing falls back to
    NumPy's own arithmetic.
    """
    if not all(issubclass(t, Array | np.ndarray) for t in types):
        return NotImplemented
    place, name = function.__module__.removeprefix("numpy").lstrip("."), function.__name__
    chapter = {"linalg": linalg, "fft": fft, "lib.stride_tricks": stride_tricks}.get(place)
    known = FUNCTIONS if chapter is None else {n: getattr(chapter, n) for n in chapter.__all__}
    if name not in known or (place and chapter is None):
        raise not_computed(function.__module__, name, known)
    return known[name](*args, **keywords)


# ---- methods ----------------------------------------------------------------------------------------


@pinned
class Flat:
    """The elements of an array in row-major order, as NumPy's flatiter."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return self._array.size

    def __iter__(self) -> Iterator[Array]:
        return iter(self._array.reshape(-1))

    def __getitem__(self, key: Any) -> Array:
        return self._array.reshape(-1)[key].copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        what = f"flat[{shown(key)}] of {self._array.bits.type}"
        try:
            places = np.arange(len(self))[index_bits(key)].reshape(-1)
        except REFUSALS as error:
            raise InvalidIndex(f"{what}: {error}") from error
        dtype = self._array.dtype
        given = weak_array(value, dtype) if is_weak(value) else asarray(value, dtype)
        if given.size == 0 != places.size:
            raise InvalidArgument(f"{what}: no values for {places.size} elements")
        try:
            np.put(self._array._data, places, given._data)  # again and again
        except REFUSALS as error:
            raise refusal(what, error) from error


METHODS: list[str] = []  # those that are the functions of their name, with the array first


def _method(name: str) -> Callable[..., Array]:
    METHODS.append(name)

    method = door(FUNCTIONS[name], None)
    method.__name__, method.__qualname__ = name, f"Array.{name}"
    method.__doc__ = f"The function `{name}` of this array."
    return method


class ArrayMethods:
    """What type checkers take for a base of Array."""

    __slots__ = ()

    all = _method("all")
    any = _method("any")
    argmax = _method("argmax")
    argmin = _method("argmin")
    argpartition = _method("argpartition")
    argsort = _method("argsort")
    choose = _method("choose")
    clip = _method("clip")
    conj = _method("conj")
    conjugate = _method("conjugate")
    cumprod = _method("cumprod")
    cumsum = _method("cumsum")
    diagonal = _method("diagonal")
    dot = _method("dot")
    max = _method("max")
    mean = _method("mean")
    min = _method("min")
    prod = _method("prod")
    ptp = _method("ptp")
    ravel = _method("ravel")
    repeat = _method("repeat")
    round = _method("round")
    searchsorted = _method("searchsorted")
    std = _method("std")
    sum = _method("sum")
    swapaxes = _method("swapaxes")
    take = _method("take")
    trace = _method("trace")
    var = _method("var")

    def nonzero(self) -> tuple[Array, ...]:
        """The function `nonzero` of this array."""
        return nonzero(self)

    def put(self, ind: Any, v: Any, mode: Any = "raise") -> None:
        """The function `put` of this array."""
        put(self, ind, v, mode)

    # ---- views ----

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The array with its axes reversed, by `permute_dims`."""
        return transpose(self)

    @property
    def mT(self) -> Array:  # noqa: N802 (the standard's name)
        """The transposed matrices, which the last two axes are, by `permute_dims`."""
        return matrix_transpose(self)

    @property
    def flat(self: Any) -> Flat:
        """The elements in row-major order, to iterate over, to index and to assign to."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    def transpose(self, *axes: Any) -> Array:
        """A view with the axes in the order `axes`, a tuple or integers; reversed without them."""
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return transpose(self, given)

    def squeeze(self: Any, axis: int | tuple[int, ...] | None = None) -> Array:
        """A view without the axes of length 1: those of `axis`, or all."""
        ones = tuple(d for d, n in enumerate(self.shape) if n == 1)
        return squeeze(self, ones if axis is None else axis)

    # ---- elements ----

    @partial(door, operation="convert")
    def astype(
        self: Any,
        dtype: DTypeLike,
        order: Literal["K", "A", "C", "F"] = "K",
        casting: Casting = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Array:
        """The elements converted by rules C, rounded once; a copy unless `copy` is false and the type
        stays.
        """
        target = array_type(dtype)
        if casting != "unsafe":
            check_cast(self._dtype, target, casting)
        found = convert(self, target)
        if found is not self and order in ("C", "K"):
            return found  # of its own, and row-major
        return asarray(found, order=order, copy=copy and found is self)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Array:
        """The elements, or along `axis` the subarrays, where `condition` holds."""
        return compress(condition, self, axis, out)

    def sort(
        self, axis: int = -1, kind: str | None = None, order: None = None, *, stable: bool | None = None
    ) -> None:
        """Sort along an axis in place (E10); the order is stable whatever `kind` is."""
        write(self, sort(self, axis, kind, order))

    def partition(
        self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None
    ) -> None:
        """Put the element `kth` along an axis where sorting puts it, smaller ones before it."""
        write(self, partition(self, kth, axis, kind, order))

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        given = weak_array(value, self._dtype) if is_weak(value) else asarray(value, self._dtype)
        places = index_bits(key)
        for x in (given._data, *(places if isinstance(places, tuple) else (places,))):
            if not isinstance(x, np.ndarray) and hasattr(x, "__neuronsim_adopt__"):
                let_record(self, x)
        try:
            self._data[places] = given._data
        except IndexError as error:
            raise InvalidIndex(f"{self.bits.type}[{shown(key)}]: {error}") from error
        except REFUSALS as error:
            raise refusal(f"{self.bits.type}[{shown(key)}] = {given.bits.type}", error) from error

    def __delitem__(self: Any, key: Any) -> None:
        raise InvalidArgument(
            f"elements of {self.bits.type} cannot be deleted: neuronsim.delete copies the others"
        )

    def __contains__(self, value: Any) -> bool:
        return _is_operand(value) and bool((self == value).bits.data.any())

    if not TYPE_CHECKING:  # who would take any name

        def __getattr__(self, name: str) -> Any:
            if hasattr(Array, name):  # a property, whose own AttributeError says more
                return object.__getattribute__(self, name)
            why = reason("numpy.ndarray", name)
            raise AbsentName("Array", name, () if why else _NAMES, why)

    # ---- as text ----

    def __repr__(self) -> str:
        return array_repr(self)

    def __str__(self) -> str:
        return array_str(self)

    # ---- NumPy's protocols ----

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return array_function(func, types, args, kwargs)

    # ---- operators ----

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _is_operand(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _is_operand(other) else NotImplemented

    __neg__, __abs__, __invert__ = map(_unary, ("negative", "abs", "bitwise_invert"))
    __add__, __radd__, __iadd__ = _operators("+")
    __sub__, __rsub__, __isub__ = _operators("-")
    __mul__, __rmul__, __imul__ = _operators("*")
    __truediv__, __rtruediv__, __itruediv__ = _operators("/")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators("//")
    __mod__, __rmod__, __imod__ = _operators("%")
    __pow__, __rpow__, __ipow__ = _operators("**")
    __lshift__, __rlshift__, __ilshift__ = _operators("<<")
    __and__, __rand__, __iand__ = _operators("&")
    __or__, __ror__, __ior__ = _operators("|")
    __xor__, __rxor__, __ixor__ = _operators("^")
    __eq__ = _operators("==")[0]  # type: ignore[assignment]  # elementwise
    __ne__ = _operators("!=")[0]  # type: ignore[assignment]
    __lt__ = _operators("<")[0]
    __le__ = _operators("<=")[0]
    __gt__ = _operators(">")[0]
    __ge__ = _operators(">=")[0]

    def __rshift__(self, other: Any) -> Array:
        return right_shift(self, other) if _is_operand(other) else NotImplemented

    def __rrshift__(self, other: Any) -> Array:
        return right_shift(other, self) if _is_operand(other) else NotImplemented

    @partial(door, operation="matmul")
    def __matmul__(self, other: Any) -> Array:
        return matmul(self, other) if _is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Array:
        return matmul(other, self) if _is_operand(other) else NotImplemented

    __irshift__ = _in_place(__rshift__, "right_shift")
    __imatmul__ = _in_place(__matmul__, "matmul")


def _attach() -> None:
    for name, method in vars(ArrayMethods).items():
        if isinstance(method, FunctionType):
            method.__qualname__ = f"Array.{name}"
    for name, method in vars(pinned(ArrayMethods)).items():
        if callable(method) or isinstance(method, property):
            setattr(Array, name, method)


_attach()

_NAMES = [name for name in dir(Array) if not name.startswith("_")]
