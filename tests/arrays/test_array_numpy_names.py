"""Every public name of NumPy on our arrays: neuronsim's function or an error, no NumPy arithmetic."""

from __future__ import annotations

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
    "array": "asks __array__: the caller wants the host's array",
    "asarray": "asks __array__",
    "asanyarray": "asks __array__",
    "ascontiguousarray": "asks __array__",
    "asfortranarray": "asks __array__",
    "asarray_chkfinite": "asks __array__",
    "asmatrix": "asks __array__ for a matrix of the host",
    "bmat": "asks __array__ for a matrix of the host",
    "require": "asks __array__",
    "arange": "a range of numbers: __float__ and __index__ of arrays without axes",
    "bartlett": "a window of so many numbers: __index__",
    "blackman": "a window of so many numbers: __index__",
    "hamming": "a window of so many numbers: __index__",
    "hanning": "a window of so many numbers: __index__",
    "kaiser": "a window of so many numbers: __index__",
    "base_repr": "the digits of an integer: __index__",
    "binary_repr": "the digits of an integer: __index__",
    "broadcast_shapes": "shapes are integers",
    "empty": "shapes are integers",
    "ones": "shapes are integers",
    "zeros": "shapes are integers",
    "eye": "shapes are integers",
    "full": "shapes are integers, and the value becomes the host's",
    "identity": "shapes are integers",
    "indices": "shapes are integers",
    "mask_indices": "shapes are integers",
    "tri": "shapes are integers",
    "tril_indices": "shapes are integers",
    "triu_indices": "shapes are integers",
    "diag_indices": "shapes are integers",
    "isdtype": "of types",
    "issubdtype": "of types",
    "mintypecode": "of types",
    "promote_types": "of types",
    "typename": "of types",
    "format_float_positional": "the digits of a number: __float__ in effect",
    "format_float_scientific": "the digits of a number: __float__ in effect",
    "frombuffer": "reads bytes: the buffer protocol",
    "fromstring": "reads text",
    "fromfile": "reads a file",
    "fromregex": "reads a file",
    "genfromtxt": "reads a file",
    "load": "reads a file",
    "loadtxt": "reads a file",
    "from_dlpack": "asks __dlpack__ for the host's array",
    "fromfunction": "calls a function with the host's indices",
    "fromiter": "iterates: __float__ of each element",
    "frompyfunc": "makes a ufunc, whose calls are asked for (REFUSED)",
    "isscalar": "asks only for the class",
    "iterable": "asks only for __iter__",
    "nested_iters": "walks the host's arrays",
    "poly": "lists of coefficients",
}
SETTINGS = {
    *("errstate", "get_include", "getbufsize", "geterr", "geterrcall", "get_printoptions", "info"),
    *("printoptions", "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config"),
    *("show_runtime", "test"),
}


def arguments(dtype: Any) -> dict[str, tuple[Any, ...]]:
    """What the functions that take something other than one or two arrays are called with."""
    x = np.asarray(NUMBERS, dtype=dtype)
    v, n, mask = x[0], np.asarray([0, 1]), x > 1
    indices = np.asarray([[0, 1], [1, 0]])
    joined = dict.fromkeys(
        (
            *("column_stack", "concat", "concatenate", "dstack", "hstack", "row_stack"),
            *("stack", "vstack", "linalg.multi_dot"),
        ),
        ((x, x),),
    )
    split = {name: (np.zeros((2, 2, 2), dtype=dtype), 2) for name in ("dsplit", "hsplit", "vsplit")}
    along = {
        name: (x, 50 if "percentile" in name else 0.5)
        for name in ("percentile", "quantile", "nanpercentile", "nanquantile")
    }
    return {
        **joined,
        **split,
        **along,
        "apply_along_axis": (numpy.sum, 0, x),
        "apply_over_axes": (numpy.sum, x, [0]),
        "array_split": (x, 2),
        "astype": (x, numpy.float64),
        "bincount": (n, v),
        "block": ([x, x],),
        "bitwise_and": (n, n),
        "bitwise_or": (n, n),
        "bitwise_xor": (n, n),
        "gcd": (n, n),
        "lcm": (n, n),
        "bitwise_left_shift": (n, n),
        "bitwise_right_shift": (n, n),
        "left_shift": (n, n),
        "right_shift": (n, n),
        "can_cast": ("float32", numpy.float64),
        "choose": (n, [v, v]),
        "compress": ([True, False], x),
        "convolve": (v, v),
        "correlate": (v, v),
        "polyval": (v, v),
        "interp": (v, v[::1], v),
        "copyto": (x.copy(), x),
        "cross": (np.ones(3, dtype=dtype), np.ones(3, dtype=dtype)),
        "linalg.cross": (np.ones(3, dtype=dtype), np.ones(3, dtype=dtype)),
        "cumulative_prod": (v,),
        "cumulative_sum": (v,),
        "digitize": (v, np.asarray([0.0, 1.0], dtype=dtype)),
        "einsum": ("ij->ji", x),
        "einsum_path": ("ij->ji", x),
        "expand_dims": (x, 0),
        "extract": (mask, x),
        "place": (x.copy(), mask, v),
        "putmask": (x.copy(), mask, v),
        "fill_diagonal": (x.copy(), 1),
        "histogram2d": (v, v),
        "histogramdd": ((v, v),),
        "insert": (x, 0, 1),
        "delete": (x, 0, 0),
        "moveaxis": (x, 0, 1),
        "rollaxis": (x, 1),
        "ix_": (n, n),
        "linspace": (v, v),
        "geomspace": (v, v),
        "logspace": (v, v),
        "ldexp": (v, n),
        "linalg.matrix_power": (x, 2),
        "linalg.solve": (x, v),
        "linalg.outer": (v, v),
        "linalg.tensorinv": (np.asarray(numpy.eye(4).reshape(2, 2, 2, 2), dtype=dtype),),
        "linalg.tensorsolve": (x, v),
        "packbits": (n,),
        "unpackbits": (n.astype("uint8"),),
        "pad": (x, 1),
        "piecewise": (v, [v > 1], [1, 2]),
        "polyfit": (v, v, 1),
        "vander": (v,),
        "poly": (v,),
        "put": (x.copy(), 0, 1),
        "put_along_axis": (x.copy(), indices, 1, 0),
        "ravel_multi_index": ((n, n), (2, 2)),
        "unravel_index": (n, (2, 2)),
        "repeat": (x, 2),
        "tile": (x, 2),
        "resize": (x, (4,)),
        "reshape": (x, (4,)),
        "broadcast_to": (x, (2, 2, 2)),
        "roll": (x, 1),
        "searchsorted": (v, v),
        "select": ([mask], [x]),
        "squeeze": (x[:, :1], 1),
        "swapaxes": (x, 0, 1),
        "split": (x, 2),
        "take": (x, n),
        "take_along_axis": (x, indices, 0),
        "trim_zeros": (v,),
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
        if name in NOT_ASKED or name in ("save", "savetxt", "savez", "savez_compressed"):
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
    assert sorted(asked & set(NOT_ASKED)) == []
    assert {"sum", "sort", "reshape", "einsum"} <= asked
    assert set(NOT_ASKED) <= {name for name, _ in public_functions()}


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
