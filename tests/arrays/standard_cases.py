"""Arguments for every function of the array API standard, drawn by hypothesis in a form that suits any
library of it: ndarrays stand for arrays and `Name` for what the namespace has under a name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tests.support.operators import IN_PLACE, OPERATORS

# "factors" are not unique: types and shapes are compared; test_array_linalg.py has the values.
Rule = Literal["exact", "elementwise", "sum", "product", "close", "factors"]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

REAL_FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATS = (*REAL_FLOATS, *COMPLEX)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = (*INTEGERS, *REAL_FLOATS)
NUMBERS = (*REALS, *COMPLEX)
ALL = ("bool", *NUMBERS)


@dataclass(frozen=True)
class Name:
    """What a namespace has under a name: a dtype, mostly."""

    name: str


@dataclass(frozen=True)
class Case:
    """One function: where its arguments come from, and how near its results must be."""

    arguments: st.SearchStrategy[Arguments]
    rule: Rule = "exact"


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, math.inf, -math.inf, math.nan, 1e-40, 3e38, 88.9, 1e-8)


@cache  # hypothesis validates each new strategy again
def elements(dtype: str, special: bool = True) -> st.SearchStrategy[Any]:
    """Values of a type: small ones, and the special ones of floats."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        info = np.iinfo(dtype)
        small = st.integers(max(info.min, -9), 9)
        return st.one_of(small, st.sampled_from((info.min, info.max))) if special else small
    width = 32 if dtype in ("float32", "complex64") else 64
    ordinary = st.floats(-20, 20, width=width)
    real = st.one_of(ordinary, st.sampled_from(SPECIAL)) if special else ordinary
    if kind == "c":
        return st.builds(complex, real, real)
    return real


SHAPES = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def arrays(
    dtypes: Sequence[str] = ALL, shape: Any = SHAPES, special: bool = True
) -> st.SearchStrategy[Any]:
    """Arrays of one of the types."""

    def of(dtype: str, dims: tuple[int, ...]) -> st.SearchStrategy[Any]:
        # Without a check of the elements: 1e-40 and 3e38 are rounded to the type.
        values = st.lists(elements(dtype, special), min_size=math.prod(dims), max_size=math.prod(dims))
        return values.map(lambda v: filled(v, dtype, dims))

    dims = shape if isinstance(shape, st.SearchStrategy) else st.just(shape)
    return st.tuples(st.sampled_from(dtypes), dims).flatmap(lambda p: of(*p))


def filled(values: list[Any], dtype: str, dims: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        return np.array(values, dtype).reshape(dims)


def called(*positional: Any, **keywords: Any) -> st.SearchStrategy[Arguments]:
    """A call with each argument drawn from its strategy; a keyword that is `absent` is left out."""
    fixed = [p if isinstance(p, st.SearchStrategy) else st.just(p) for p in positional]

    def call(args: tuple[Any, ...], named: dict[str, Any]) -> Arguments:
        return args, {k: v for k, v in named.items() if v is not ABSENT}

    return st.builds(call, st.tuples(*fixed), st.fixed_dictionaries(keywords))


ABSENT = object()
absent = st.just(ABSENT)


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((ABSENT, *values))


def dtype_or_none(*names: str) -> st.SearchStrategy[Any]:
    return st.sampled_from((ABSENT, None, *(Name(n) for n in names)))


def unary(dtypes: Sequence[str] = ALL) -> st.SearchStrategy[Arguments]:
    return called(arrays(dtypes))


@st.composite
def pairs(draw: st.DrawFn, dtypes: Sequence[str] = ALL, scalars: bool = True) -> Arguments:
    """Two operands of any of the types that broadcast, or an array and a Python number."""
    shapes = draw(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    first = draw(st.sampled_from(dtypes))
    # Mostly one type, since many pairs have no common one.
    second = draw(st.one_of(st.just(first), st.sampled_from(dtypes)))
    x = draw(arrays((first,), shapes.input_shapes[0]))
    y = draw(arrays((second,), shapes.input_shapes[1]))
    form = draw(st.integers(0, 5)) if scalars else 5
    if form > 1:
        return (x, y), {}
    kind = np.dtype(first).kind
    number: Any = {"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1 + 2j}[kind]
    return ((x, number) if form else (number, x)), {}


def axis_of(x: Any) -> st.SearchStrategy[int]:
    return st.integers(-x.ndim, x.ndim - 1) if x.ndim else st.just(0)


@st.composite
def with_axis(
    draw: st.DrawFn,
    dtypes: Sequence[str],
    optional: bool = True,
    several: bool = False,
    min_dims: int = 0,
    min_side: int = 0,
    special: bool = True,
    **keywords: st.SearchStrategy[Any],
) -> Arguments:
    """An array and an axis of it (or none, or several), and further keywords."""
    dims = npst.array_shapes(min_dims=min_dims, max_dims=3, min_side=min_side, max_side=5)
    x = draw(arrays(dtypes, dims, special))
    forms = ["absent", "none"] if optional else []
    forms += ["one"] if x.ndim else []
    forms += ["several"] if several and x.ndim else []
    form = draw(st.sampled_from(forms)) if forms else "absent"
    named = {k: draw(v) for k, v in keywords.items()}
    if form == "none":
        named["axis"] = None
    elif form == "one":
        named["axis"] = draw(axis_of(x))
    elif form == "several":
        named["axis"] = tuple(draw(st.lists(st.integers(0, x.ndim - 1), unique=True, max_size=x.ndim)))
    return (x,), {k: v for k, v in named.items() if v is not ABSENT}


keep = maybe(True, False)


def reduction(dtypes: Sequence[str], **more: Any) -> st.SearchStrategy[Arguments]:
    return with_axis(dtypes, several=True, keepdims=keep, special=False, **more)


@st.composite
def movement(draw: st.DrawFn, name: str) -> Arguments:
    """Arguments of a function that moves elements."""
    x = draw(arrays(ALL, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    n = x.ndim
    axes = list(range(n))
    axis = draw(axis_of(x))
    if name == "reshape":
        shapes = [(-1,), (x.size,), (1, x.size), tuple(reversed(x.shape))]
        return (x, draw(st.sampled_from(shapes))), draw(st.sampled_from(({}, {"copy": True})))
    if name == "permute_dims":
        return (x, tuple(draw(st.permutations(axes)))), {}
    if name == "expand_dims":
        return (x,), {"axis": draw(st.integers(-n - 1, n))}
    if name == "squeeze":
        x = x.reshape(*x.shape, 1)
        return (x, draw(st.sampled_from((-1, n, (n,))))), {}
    if name == "flip":
        return (x,), draw(st.sampled_from(({}, {"axis": None}, *([{"axis": axis}] if n else []))))
    if name == "roll":
        shift = draw(st.integers(-5, 5))
        if n and draw(st.booleans()):
            chosen = tuple(draw(st.lists(st.integers(0, n - 1), unique=True, min_size=1)))
            return (x, tuple(shift + i for i in range(len(chosen)))), {"axis": chosen}
        return (x, shift), draw(st.sampled_from(({}, *([{"axis": axis}] if n else []))))
    if name == "moveaxis":
        return (x, axis, draw(axis_of(x))) if n else (x, (), ()), {}
    if name == "repeat":
        counts = draw(
            st.one_of(st.integers(0, 3), arrays(("int64",), (x.shape[axis],), False))
            if n
            else st.integers(0, 3)
        )
        if isinstance(counts, np.ndarray):
            return (x, np.abs(counts) % 3), {"axis": axis}
        return (x, counts), draw(st.sampled_from(({}, *([{"axis": axis}] if n else []))))
    if name == "tile":
        return (x, tuple(draw(st.lists(st.integers(0, 3), max_size=4)))), {}
    if name == "broadcast_to":
        return (x, (*draw(st.lists(st.integers(0, 3), max_size=2)), *x.shape)), {}
    if name in ("tril", "triu", "matrix_transpose", "diagonal"):
        x = draw(arrays(ALL, npst.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4)))
        key = {"diagonal": "offset", "matrix_transpose": ""}.get(name, "k")
        named = {key: draw(st.integers(-5, 5))} if key and draw(st.booleans()) else {}
        return (x,), named
    if name == "unstack":
        x = x if n else x.reshape(1)
        return (x,), draw(st.sampled_from(({}, {"axis": axis if n else 0})))
    if name == "take":
        x = draw(arrays(ALL, npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
        axis = draw(axis_of(x))
        size = x.shape[axis]
        chosen = draw(st.lists(st.integers(-size, size - 1), max_size=5))
        named = {} if x.ndim == 1 and draw(st.booleans()) else {"axis": axis}
        return (x, np.array(chosen, draw(st.sampled_from(("int64", "int32"))))), named
    if name == "take_along_axis":
        x = draw(arrays(ALL, npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
        axis = draw(axis_of(x))
        dims = list(x.shape)
        dims[axis] = draw(st.integers(0, 4))
        indices = draw(arrays(("int64",), tuple(dims), False)) % x.shape[axis]
        return (x, indices), {"axis": axis} if draw(
            st.booleans()
        ) or axis % x.ndim != x.ndim - 1 else {}
    assert name == "astype"
    source = x.dtype.name
    targets = [t for t in ALL if source not in COMPLEX or t in ("bool", *COMPLEX)]
    if np.dtype(source).kind in "fc":
        # What a value outside the type becomes is no matter of the standard.
        x = np.where(np.isfinite(x) & (np.abs(x) < 100), np.abs(x.real), 1).astype(source)
    return (x, Name(draw(st.sampled_from(targets)))), draw(st.sampled_from(({}, {"copy": False})))


@st.composite
def joined(draw: st.DrawFn, stacked: bool) -> Arguments:
    """Arrays to concatenate or to stack, mostly of one type."""
    count = draw(st.integers(1, 3))
    dims = draw(npst.array_shapes(min_dims=0 if stacked else 1, max_dims=3, min_side=0, max_side=3))
    dtype = draw(st.sampled_from(ALL))
    axis = draw(st.integers(-len(dims), len(dims) - 1)) if dims else 0
    pieces = []
    for _ in range(count):
        own = list(dims)
        if not stacked:
            own[axis] = draw(st.integers(0, 3))
        kind = draw(st.one_of(st.just(dtype), st.sampled_from(ALL)))
        pieces.append(draw(arrays((kind,), tuple(own))))
    if not stacked and draw(st.integers(0, 3)) == 0:
        return (tuple(pieces),), {"axis": None}
    return (pieces,), draw(st.sampled_from(({"axis": axis}, {})))


@st.composite
def matrices(
    draw: st.DrawFn,
    dtypes: Sequence[str],
    square: bool = False,
    positive: bool = False,
    invertible: bool = False,
) -> Any:
    """A stack of matrices of moderate values; positive definite, or far from singular."""
    dtype = draw(st.sampled_from(dtypes))
    stack = draw(st.sampled_from(((), (2,), (0,), (2, 1))))
    rows = draw(st.integers(1 if invertible or positive else 0, 4))
    columns = rows if square or positive or invertible else draw(st.integers(0, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = generator.uniform(-2, 2, (*stack, rows, columns))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * generator.uniform(-2, 2, x.shape)
    if positive:
        x = x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(rows)
    elif invertible:
        x = x + 6 * np.eye(rows)
    return x.astype(dtype)


@st.composite
def contracted(draw: st.DrawFn, name: str) -> Arguments:
    """Operands of a product."""
    dtype = draw(st.sampled_from(NUMBERS))
    other = draw(st.one_of(st.just(dtype), st.sampled_from(NUMBERS)))
    depth = draw(st.integers(0, 5))
    if name == "matmul":
        left = draw(st.sampled_from(((depth,), (3, depth), (2, 3, depth), (2, 1, 2, depth))))
        right = draw(st.sampled_from(((depth,), (depth, 2), (2, depth, 4), (3, depth, 2))))
        return (draw(arrays((dtype,), left, False)), draw(arrays((other,), right, False))), {}
    if name == "vecdot":
        left = draw(st.sampled_from(((depth,), (3, depth), (2, 1, depth))))
        x, y = draw(arrays((dtype,), left, False)), draw(arrays((other,), (depth,), False))
        return (x, y), draw(st.sampled_from(({}, {"axis": -1})))
    if name == "outer":
        return (
            draw(arrays((dtype,), (depth,), False)),
            draw(arrays((other,), (draw(st.integers(0, 4)),), False)),
        ), {}
    if name == "cross":
        return (draw(arrays((dtype,), (2, 3), False)), draw(arrays((other,), (2, 3), False))), {}
    assert name == "tensordot"
    x, y = draw(arrays((dtype,), (2, 3, depth), False)), draw(arrays((other,), (3, depth, 2), False))
    forms = ({}, {"axes": 2}, {"axes": ((1, 2), (0, 1))}, {"axes": ([2], [1])})
    return (x, y), draw(st.sampled_from(forms))


@st.composite
def found_in_sorted(draw: st.DrawFn) -> Arguments:
    x = np.sort(draw(arrays(REALS, st.tuples(st.integers(0, 6)), False)))
    y = draw(arrays((x.dtype.name,), SHAPES, False))
    return (x, y), draw(st.sampled_from(({}, {"side": "left"}, {"side": "right"})))


@st.composite
def chosen(draw: st.DrawFn) -> Arguments:
    shapes = draw(npst.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3))
    condition = draw(arrays(("bool",), shapes.input_shapes[0]))
    first = draw(st.sampled_from(ALL))
    second = draw(st.one_of(st.just(first), st.sampled_from(ALL)))
    x = draw(arrays((first,), shapes.input_shapes[1]))
    y = draw(arrays((second,), shapes.input_shapes[2]))
    return (condition, x, y), {}


@st.composite
def clipped(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(REALS, SHAPES))
    low, high = sorted((draw(st.integers(0, 5)), draw(st.integers(0, 5))))
    form = draw(st.integers(0, 3))
    if form == 0:
        return (x,), {"min": low, "max": high}
    if form == 1:
        return (x,), draw(st.sampled_from(({"min": low}, {"max": high}, {"max": None}, {})))
    bounds = [np.full(x.shape[-1:], v, x.dtype) for v in (low, high)]
    return (x, *bounds), {}


@st.composite
def norms(draw: st.DrawFn, matrix: bool) -> Arguments:
    if matrix:
        x = draw(matrices(FLOATS, invertible=True))
        orders = (ABSENT, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
        named = {"ord": draw(st.sampled_from(orders)), "keepdims": draw(keep)}
        return (x,), {k: v for k, v in named.items() if v is not ABSENT}
    order = maybe(1, 2, 3, 0, 2.5, math.inf)
    return draw(with_axis(FLOATS, several=True, min_side=1, special=False, ord=order, keepdims=keep))


@st.composite
def transformed(draw: st.DrawFn, name: str) -> Arguments:
    """Arguments of a Fourier transform."""
    real = name.startswith(("rfft", "ihfft"))
    dtypes = REAL_FLOATS if real else COMPLEX
    x = draw(arrays(dtypes, npst.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=5), False))
    named: dict[str, Any] = {}
    if draw(st.booleans()):
        named["norm"] = draw(st.sampled_from(("backward", "ortho", "forward")))
    if name.endswith("n"):
        if draw(st.booleans()):
            named["axes"] = (-1,)
        return (x,), named
    if draw(st.booleans()):
        named["n"] = draw(st.integers(2, 6))
    if draw(st.booleans()):
        named["axis"] = draw(axis_of(x))
    return (x,), named


def created() -> dict[str, Case]:
    """The creation functions."""
    dims = st.one_of(st.integers(0, 4), st.tuples(), st.tuples(st.integers(0, 3), st.integers(0, 3)))
    types = dtype_or_none(*ALL)
    whole = st.integers(-9, 9)
    return {
        **dict.fromkeys(("zeros", "ones"), Case(called(dims, dtype=types))),
        **dict.fromkeys(("zeros_like", "ones_like"), Case(called(arrays(), dtype=types))),
        "full": Case(called(dims, st.sampled_from((1, True, 2.5, 1 + 2j)))),
        "full_like": Case(called(arrays(NUMBERS), st.integers(0, 9))),
        "eye": Case(
            called(st.integers(0, 4), st.sampled_from((None, 0, 3)), k=st.integers(-3, 3), dtype=types)
        ),
        "arange": Case(
            st.one_of(
                called(
                    whole, whole, st.sampled_from((1, 2, -3)), dtype=dtype_or_none("int64", "float32")
                ),
                called(
                    st.floats(-5, 5, width=16),
                    st.floats(-5, 5, width=16),
                    st.sampled_from((0.5, -0.25)),
                ),
                called(whole),
            )
        ),
        "linspace": Case(
            called(
                whole,
                whole,
                st.integers(0, 9),
                dtype=dtype_or_none(*REAL_FLOATS),
                endpoint=maybe(False, True),
            ),
            "close",
        ),
        "meshgrid": Case(
            called(arrays(("float32",), (3,)), arrays(("float32",), (2,)), indexing=maybe("xy", "ij"))
        ),
        **{name: Case(movement(name)) for name in ("tril", "triu")},
        "asarray": Case(
            st.one_of(
                called(arrays(), dtype=absent, copy=maybe(None, True)),
                called(
                    st.sampled_from((1, 2.5, True, 1j, [[1, 2], [3, 4]], [1.5, 2], [True], [])),
                    dtype=types,
                ),
            )
        ),
    }


def of_types() -> dict[str, Case]:
    """The functions of data types."""
    name = st.sampled_from(ALL).map(Name)
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating")
    kinds = (*kinds, "complex floating", "numeric")
    kind = st.one_of(st.sampled_from(kinds), name, st.tuples(st.sampled_from(kinds), name))
    several = st.lists(st.one_of(name, arrays(ALL, (2,))), min_size=1, max_size=3)
    return {
        "can_cast": Case(called(name, name)),
        "isdtype": Case(called(name, kind)),
        "result_type": Case(several.map(lambda v: (tuple(v), {}))),
        "astype": Case(movement("astype")),
    }


_MOSTLY_FLOATS = (*FLOATS, *FLOATS, "int32", "bool")
_OF_FLOATS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p"),
    *("log2", "log10", "reciprocal", "signbit", "sin", "sinh", "sqrt", "tan", "tanh"),
)
UNARY: dict[str, Sequence[str]] = {
    **dict.fromkeys(_OF_FLOATS, _MOSTLY_FLOATS),
    **dict.fromkeys(("abs", "ceil", "conj", "floor", "isfinite", "isinf", "isnan", "negative"), ALL),
    **dict.fromkeys(("positive", "real", "round", "sign", "square", "trunc"), ALL),
    "bitwise_invert": ("bool", *INTEGERS, "float32"),
    "imag": (*COMPLEX, "float32"),
    "logical_not": ("bool", "int32"),
}
_REAL = (*REAL_FLOATS, *REAL_FLOATS, "int32")
BINARY: dict[str, Sequence[str]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "pow"), ALL),
    "divide": _MOSTLY_FLOATS,
    **dict.fromkeys(("equal", "not_equal"), ALL),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "maximum", "minimum"), REALS),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), _REAL),
    **dict.fromkeys(("floor_divide", "remainder"), REALS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTEGERS, "float32")),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool", "bool", "int32")),
}
MOVEMENT = (
    *("broadcast_to", "expand_dims", "flip", "matrix_transpose", "moveaxis", "permute_dims", "repeat"),
    *("reshape", "roll", "squeeze", "take", "take_along_axis", "tile", "unstack"),
)
SUMS: tuple[tuple[str, Rule], ...] = (("sum", "sum"), ("prod", "product"))
UNIQUE = ("unique_all", "unique_counts", "unique_inverse", "unique_values")
CASES: dict[str, Case] = {
    **{name: Case(unary(dtypes), "elementwise") for name, dtypes in UNARY.items()},
    **{name: Case(pairs(dtypes), "elementwise") for name, dtypes in BINARY.items()},
    **{name: Case(movement(name)) for name in MOVEMENT},
    **created(),
    **of_types(),
    "broadcast_arrays": Case(pairs(scalars=False)),
    "broadcast_shapes": Case(called((3, 1), (1, 2), (2,))),
    **{name: Case(joined(stacked=name == "stack")) for name in ("concat", "stack")},
    "where": Case(chosen()),
    "clip": Case(clipped()),
    **{name: Case(reduction(NUMBERS, dtype=dtype_or_none("float64", "int64")), r) for name, r in SUMS},
    "mean": Case(reduction(FLOATS, min_side=1), "sum"),
    **dict.fromkeys(
        ("var", "std"), Case(reduction(REAL_FLOATS, min_side=1, correction=maybe(0, 0.5)), "close")
    ),
    **{
        f"cumulative_{name}": Case(
            with_axis(NUMBERS, optional=False, min_dims=1, special=False, include_initial=keep), r
        )
        for name, r in SUMS
    },
    **dict.fromkeys(("max", "min"), Case(with_axis(REALS, several=True, min_side=1, keepdims=keep))),
    **dict.fromkeys(("all", "any", "count_nonzero"), Case(with_axis(ALL, several=True, keepdims=keep))),
    "diff": Case(with_axis(NUMBERS, optional=False, min_dims=1, n=maybe(0, 1, 2)), "sum"),
    **dict.fromkeys(("argmax", "argmin"), Case(with_axis(REALS, min_side=1, keepdims=keep))),
    # Without stability equal elements are in any order.
    "argsort": Case(with_axis(REALS, optional=False, min_dims=1, descending=keep, stable=maybe(True))),
    "sort": Case(with_axis(REALS, optional=False, min_dims=1, descending=keep, stable=keep)),
    "nonzero": Case(called(arrays(ALL, npst.array_shapes(min_dims=1, max_dims=3, min_side=0)))),
    "searchsorted": Case(found_in_sorted()),
    "isin": Case(called(arrays(INTEGERS), arrays(INTEGERS, (3,)), invert=keep)),
    **dict.fromkeys(UNIQUE, Case(unary())),
    **{name: Case(contracted(name), "sum") for name in ("matmul", "tensordot", "vecdot")},
}

_square = matrices(FLOATS, invertible=True)
_positive = matrices(FLOATS, positive=True)
LINALG: dict[str, Case] = {
    **{name: CASES[name] for name in ("matmul", "matrix_transpose", "tensordot", "vecdot")},
    **dict.fromkeys(("det", "inv", "pinv", "slogdet"), Case(called(_square), "close")),
    **dict.fromkeys(("eig", "eigvals"), Case(called(_square), "factors")),
    **{name: Case(contracted(name), "sum") for name in ("cross", "outer")},
    "cholesky": Case(called(_positive, upper=keep), "close"),
    "diagonal": Case(movement("diagonal")),
    "eigh": Case(called(_positive), "factors"),
    "eigvalsh": Case(called(_positive), "close"),
    "matrix_norm": Case(norms(matrix=True), "close"),
    "matrix_power": Case(called(_square, st.integers(-2, 4)), "close"),
    "matrix_rank": Case(called(matrices(FLOATS)), "exact"),
    "qr": Case(called(matrices(FLOATS), mode=maybe("reduced", "complete")), "factors"),
    "solve": Case(
        _square.flatmap(lambda a: called(st.just(a), st.just(np.ones((*a.shape[:-1], 2), a.dtype)))),
        "close",
    ),
    "svd": Case(called(matrices(FLOATS), full_matrices=keep), "factors"),
    "svdvals": Case(called(matrices(FLOATS)), "close"),
    "trace": Case(
        called(
            arrays(NUMBERS, npst.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4), False),
            offset=maybe(0, 1, -1),
        ),
        "sum",
    ),
    "vector_norm": Case(norms(matrix=False), "close"),
}
FFT: dict[str, Case] = {
    **{n: Case(transformed(n), "close") for n in ("fft", "ifft", "fftn", "ifftn", "hfft", "ihfft")},
    **{n: Case(transformed(n), "close") for n in ("rfft", "irfft", "rfftn", "irfftn")},
    "fftfreq": Case(
        called(st.integers(1, 9), d=maybe(0.5, 2.0), dtype=dtype_or_none(*REAL_FLOATS)), "close"
    ),
    "rfftfreq": Case(
        called(st.integers(1, 9), d=maybe(0.5), dtype=dtype_or_none(*REAL_FLOATS)), "close"
    ),
    **dict.fromkeys(
        ("fftshift", "ifftshift"), Case(called(arrays(FLOATS, (3, 4)), axes=maybe(None, 0, (0, 1))))
    ),
}

# ---- the array object: its operators, methods and attributes ---------------------------------------


@st.composite
def operated(draw: st.DrawFn, dtypes: Sequence[str], in_place: bool = False) -> Arguments:
    """An array and another operand: an array that broadcasts (into the first one), or a number."""
    first = draw(st.sampled_from(dtypes))
    second = draw(st.one_of(st.just(first), st.sampled_from(dtypes)))
    x = draw(arrays((first,)))
    if draw(st.integers(0, 3)) == 0:
        numbers = {"b": (True,), "i": (3, 0), "u": (3, 0), "f": (2.5, 2, -0.0), "c": (1 + 2j, 2.5, 3)}
        return (x, draw(st.sampled_from(numbers[np.dtype(first).kind]))), {}
    dims = [n if draw(st.integers(0, 3)) else 1 for n in x.shape]
    dims = dims[draw(st.integers(0, len(dims))) :]
    if not in_place and draw(st.booleans()):
        dims = [*draw(st.lists(st.integers(0, 3), max_size=1)), *x.shape]
    return (x, draw(arrays((second,), tuple(dims)))), {}


@st.composite
def indices(draw: st.DrawFn, x: Any) -> Any:
    """What indexes an array: integers, slices, None and an ellipsis; a mask; arrays of integers."""
    form = draw(st.integers(0, 3))
    if form == 2:
        return draw(arrays(("bool",), x.shape, False))
    if form == 3 and x.ndim and x.size:
        dims = draw(npst.mutually_broadcastable_shapes(num_shapes=x.ndim, max_dims=2, max_side=3))
        whole = [
            draw(arrays(("int64",), s, False)) % n
            for s, n in zip(dims.input_shapes, x.shape, strict=True)
        ]
        return tuple(int(i) if i.ndim == 0 and draw(st.booleans()) else i for i in whole)
    return draw(npst.basic_indices(x.shape, allow_newaxis=form == 1, allow_ellipsis=True))


@st.composite
def got(draw: st.DrawFn) -> Arguments:
    x = draw(arrays())
    return (x, draw(indices(x))), {}


@st.composite
def set_to(draw: st.DrawFn) -> Arguments:
    """An array, an index and what is written there: of the array's type, or a number."""
    x = draw(arrays())
    key = draw(indices(x))
    number: Any = {"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1 + 2j}[x.dtype.kind]
    dims = x[key].shape if draw(st.booleans()) and not isinstance(key, np.ndarray) else ()
    return (x, key, draw(st.one_of(st.just(number), arrays((x.dtype.name,), dims)))), {}


@st.composite
def multiplied_in_place(draw: st.DrawFn) -> Arguments:
    """Matrices and square ones, whose product has the shape of the first."""
    dtype, n = draw(st.sampled_from(NUMBERS)), draw(st.integers(0, 4))
    left = draw(st.sampled_from(((3, n), (2, 3, n), (0, n))))
    right = draw(st.sampled_from(((n, n), (n, n), (n,))))
    return (draw(arrays((dtype,), left, False)), draw(arrays((dtype,), right, False))), {}


_BY_OPERATOR = {f"__{o.word}__": o.function for o in OPERATORS.values()}
_REFLECTED = {f"__r{OPERATORS[symbol].word}__": OPERATORS[symbol].function for symbol in IN_PLACE}
_IN_PLACE = {f"__i{OPERATORS[symbol].word}__": OPERATORS[symbol].function for symbol in IN_PLACE}
# Of a method the function whose values it gives.
FUNCTION_OF: dict[str, str] = {
    **_BY_OPERATOR,
    **_REFLECTED,
    **_IN_PLACE,
    "__abs__": "abs",
    "__invert__": "bitwise_invert",
    "__neg__": "negative",
    "__pos__": "positive",
    **dict.fromkeys(("__matmul__", "__rmatmul__", "__imatmul__"), "matmul"),
}
REFLECTED = tuple(_REFLECTED)
ARRAY: dict[str, Case] = {
    **{n: Case(operated(BINARY[f]), "elementwise") for n, f in (_BY_OPERATOR | _REFLECTED).items()},
    **{n: Case(operated(BINARY[f], in_place=True), "elementwise") for n, f in _IN_PLACE.items()},
    **{n: Case(unary(UNARY[FUNCTION_OF[n]]), "elementwise") for n in ("__abs__", "__invert__")},
    **{n: Case(unary(UNARY[FUNCTION_OF[n]]), "elementwise") for n in ("__neg__", "__pos__")},
    "__matmul__": Case(contracted("matmul"), "sum"),
    "__imatmul__": Case(multiplied_in_place(), "sum"),
    "__rmatmul__": Case(contracted("matmul").map(lambda a: (a[0][::-1], {})), "sum"),
    "__bool__": Case(called(arrays(ALL, ()))),
    "__int__": Case(called(arrays(ALL, ()))),
    "__index__": Case(called(arrays(ALL, ()))),
    "__float__": Case(called(arrays(ALL, (), False))),
    "__complex__": Case(called(arrays(ALL, (), False))),
    "__getitem__": Case(got()),
    "__setitem__": Case(set_to()),
    "T": Case(st.one_of(unary(), called(arrays(ALL, (2, 3))))),
    **{n: Case(unary()) for n in ("mT", "dtype", "ndim", "shape", "size")},
}
