"""Every public name of NumPy on our arrays: neuronsim's function or an error, no NumPy arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import neuronsim as np

pytestmark = pytest.mark.isa_independent  # what answers is tested, not the bits

X = np.asarray([1.5, -2.25, 4.0], dtype="bfloat16")
NUMBERS = numpy.array([[2.0, 0.5], [0.5, 4.0]])

# What NumPy computes, or hands over, without asking the protocols, and why that is no silent arithmetic
# on device types.
NOT_ASKED = {
    "asks __array__: the caller wants the host's array": (
        *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "asarray_chkfinite"),
        *("asmatrix", "bmat", "require"),
    ),
    "a range or a window of so many numbers: __index__ and __float__ of arrays without axes": (
        *("arange", "bartlett", "blackman", "hamming", "hanning", "kaiser"),
    ),
    "the digits of a number: __index__, __float__ in effect": (
        *("base_repr", "binary_repr", "format_float_positional", "format_float_scientific"),
    ),
    "shapes are integers, and the value of full becomes the host's": (
        *("broadcast_shapes", "empty", "ones", "zeros", "eye", "full", "identity", "indices", "tri"),
        *("mask_indices", "tril_indices", "triu_indices", "diag_indices"),
    ),
    "of types": ("isdtype", "issubdtype", "mintypecode", "promote_types", "typename"),
    "reads bytes, text or a file": (
        *("frombuffer", "fromstring", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt"),
    ),
    "asks __dlpack__ for the host's array": ("from_dlpack",),
    "calls a function with the host's indices": ("fromfunction",),
    "iterates: __float__ of each element": ("fromiter",),
    "makes a ufunc, whose calls are asked for": ("frompyfunc",),
    "asks only for the class, or for __iter__": ("isscalar", "iterable"),
    "walks the host's arrays": ("nested_iters",),
    "lists of coefficients": ("poly",),
}
NOT_ASKED_NAMES = set(itertools.chain.from_iterable(NOT_ASKED.values()))
SETTINGS = {
    *("errstate", "get_include", "getbufsize", "geterr", "geterrcall", "get_printoptions", "info"),
    *("printoptions", "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config"),
    *("show_runtime", "test"),
}


def arguments(dtype: Any) -> dict[str, tuple[Any, ...]]:
    """What the functions that take something other than one or two arrays are called with."""
    x = np.asarray(NUMBERS, dtype=dtype)
    v, n, mask = x[0], np.asarray([0, 1]), x > 1
    indices, three = np.asarray([[0, 1], [1, 0]]), np.ones(3, dtype=dtype)
    of_several: list[tuple[tuple[str, ...], tuple[Any, ...]]] = [
        (("column_stack", "concat", "concatenate", "dstack", "hstack", "row_stack"), ((x, x),)),
        (("stack", "vstack", "linalg.multi_dot"), ((x, x),)),
        (("dsplit", "hsplit", "vsplit"), (np.zeros((2, 2, 2), dtype=dtype), 2)),
        (("percentile", "nanpercentile"), (x, 50)),
        (("quantile", "nanquantile"), (x, 0.5)),
        (("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "ix_"), (n, n)),
        (("bitwise_left_shift", "bitwise_right_shift", "left_shift", "right_shift"), (n, n)),
        (("convolve", "correlate", "polyval", "polyadd", "polysub", "polymul", "polydiv"), (v, v)),
        (("histogram2d", "linspace", "geomspace"), (v, v)),
        (("logspace", "searchsorted", "linalg.outer"), (v, v)),
        (("array_split", "repeat", "split", "tile", "linalg.matrix_power"), (x, 2)),
        (("pad", "roll", "rollaxis"), (x, 1)),
        (("cumulative_prod", "cumulative_sum", "poly", "trim_zeros", "vander"), (v,)),
        (("moveaxis", "swapaxes"), (x, 0, 1)),
        (("cross", "linalg.cross"), (three, three)),
        (("linalg.solve", "linalg.tensorsolve"), (x, v)),
        (("resize", "reshape"), (x, (4,))),
        (("einsum", "einsum_path"), ("ij->ji", x)),
        (("place", "putmask"), (x.copy(), mask, v)),
    ]
    return {
        **{name: given for names, given in of_several for name in names},
        "apply_along_axis": (numpy.sum, 0, x),
        "apply_over_axes": (numpy.sum, x, [0]),
        "astype": (x, numpy.float64),
        "bincount": (n, v),
        "block": ([x, x],),
        "can_cast": ("float32", numpy.float64),
        "choose": (n, [v, v]),
        "compress": ([True, False], x),
        "interp": (v, v[::1], v),
        "copyto": (x.copy(), x),
        "digitize": (v, np.asarray([0.0, 1.0], dtype=dtype)),
        "expand_dims": (x, 0),
        "extract": (mask, x),
        "fill_diagonal": (x.copy(), 1),
        "histogramdd": ((v, v),),
        "insert": (x, 0, 1),
        "delete": (x, 0, 0),
        "ldexp": (v, n),
        "linalg.tensorinv": (np.asarray(numpy.eye(4).reshape(2, 2, 2, 2), dtype=dtype),),
        "packbits": (n,),
        "unpackbits": (n.astype("uint8"),),
        "piecewise": (v, [v > 1], [1, 2]),
        "polyfit": (v, v, 1),
        "put": (x.copy(), 0, 1),
        "put_along_axis": (x.copy(), indices, 1, 0),
        "ravel_multi_index": ((n, n), (2, 2)),
        "unravel_index": (n, (2, 2)),
        "broadcast_to": (x, (2, 2, 2)),
        "select": ([mask], [x]),
        "squeeze": (x[:, :1], 1),
        "take": (x, n),
        "take_along_axis": (x, indices, 0),
        "where": (mask, x, x),
    }


def public_functions() -> list[tuple[str, Callable[..., Any]]]:
    found = []
    for place, module in (("", numpy), ("linalg.", numpy.linalg), ("fft.", numpy.fft)):
        for name in sorted(module.__all__):
            function = getattr(module, name)
            if callable(function) and not isinstance(function, type) and name not in SETTINGS:
                found.append((place + name, function))
    return found


def leaves(x: Any) -> list[Any]:
    return [v for part in x for v in leaves(part)] if isinstance(x, list | tuple) else [x]


def host_arrays(result: Any) -> list[Any]:
    return [v for v in leaves(result) if isinstance(v, numpy.ndarray | numpy.generic | float | complex)]


def outcome(function: Callable[..., Any], args: Any) -> Any:
    """The result of a call, or the error that it raised; a file is not written."""
    try:
        return function(*args)
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore")  # of numbers that have no logarithm, and NumPy's of old names
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_public_function_of_numpy_computes_in_silence(dtype: str) -> None:
    silent, wordless, refused = [], [], set()
    for name, function in public_functions():
        # Anew, since put, copyto and others write into theirs.
        x, special = np.asarray(NUMBERS, dtype=dtype), arguments(dtype)
        if name in NOT_ASKED_NAMES or name in ("save", "savetxt", "savez", "savez_compressed"):
            continue
        calls = (
            [special[name]] if name in special else [(x,), (x, x), (x, 1), (x[0],), (np.asarray([3]),)]
        )
        results = [outcome(function, args) for args in calls]
        silent += [(name, r) for r in results if not isinstance(r, Exception) and host_arrays(r)]
        wordless += [name for r in results if isinstance(r, Exception) and not str(r)]
        if all(isinstance(r, Exception) for r in results):
            refused.add(name)
    assert silent == []
    assert wordless == []
    provided = {name for name in refused if name in np.__all__}
    assert provided == set()
    assert len(refused) < len(public_functions()) / 4


class Spy:
    asked = 0

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        self.asked += 1
        return None


def test_what_numpy_does_not_ask_for_is_listed_with_the_reason() -> None:
    asked = set()
    for name, function in public_functions():
        if "." in name or isinstance(function, numpy.ufunc):
            continue
        for count in (1, 2, 3):
            spy = Spy()
            outcome(function, [spy] * count)
            if spy.asked:
                asked.add(name)
    assert sorted(asked & NOT_ASKED_NAMES) == []
    assert {"sum", "sort", "reshape", "einsum"} <= asked
    assert {name for name, _ in public_functions()} >= NOT_ASKED_NAMES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_method_of_a_ufunc_computes_in_silence(dtype: str) -> None:
    x = np.asarray([2.0, 0.5, 1.0], dtype=dtype)
    works = 0
    for name, ufunc in public_functions():
        if not isinstance(ufunc, numpy.ufunc):
            continue
        calls = [
            lambda u=ufunc: u(*[x] * u.nin),
            lambda u=ufunc: u.reduce(x),
            lambda u=ufunc: u.accumulate(x),
            lambda u=ufunc: u.reduceat(x, [0, 1]),
            lambda u=ufunc: u.outer(x, x),
            lambda u=ufunc: u.at(x.copy(), [0], x[:1]),
            lambda u=ufunc: u.at(x.copy(), [0]),
            lambda u=ufunc: u(*[x] * u.nin, out=x.copy()),
            lambda u=ufunc: u(*[x] * u.nin, where=x > 1),
            lambda u=ufunc: u(*[numpy.ones(3, "f4")] * (u.nin - 1), x),
        ]
        for call in calls:
            result = outcome(call, ())
            assert not host_arrays(result) or isinstance(result, Exception), name
            assert not isinstance(result, Exception) or str(result), name
            works += isinstance(result, np.Array)
    assert works > 300


def test_lists_of_arrays_are_the_exception_that_numpy_converts_itself() -> None:
    # NumPy looks for the protocols in its arguments, not in lists of them, unless it joins these.
    assert isinstance(numpy.mean([X[0].astype("float32")]), numpy.floating)
    assert isinstance(numpy.stack([X, X]), np.Array)
