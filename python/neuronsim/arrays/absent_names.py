"""Why neuronsim leaves out names that NumPy has: what AttributeErrors and docs/numpy_coverage.md say.

>>> reason("numpy", "matrix")
'a matrix is an array of two axes'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from neuronsim.errors import AbsentName, UnsupportedType, nearest

# NumPy's namespace, its names, and the reason.
_ABSENT = (
    (
        "numpy",
        "bytes_ char character flexible object_ rec recarray record str_ strings void",
        "elements are numbers: there are no strings, objects or records",
    ),
    (
        "numpy",
        "busday_count busday_offset busdaycalendar datetime64 datetime_as_string datetime_data "
        "is_busday isnat timedelta64",
        "elements are numbers: there are no dates",
    ),
    (
        "numpy",
        "clongdouble complex256 float128 longdouble",
        "float64 and complex128 are the widest types",
    ),
    ("numpy", "asmatrix bmat matrix", "a matrix is an array of two axes"),
    (
        "numpy",
        "poly1d polynomial",
        "polynomials are arrays of coefficients: polyfit, polyval, polymul, polyder, roots, ...",
    ),
    (
        "numpy",
        "fromfile fromregex fromstring",
        "read with NumPy, then convert: asarray(numpy.fromfile(...))",
    ),
    ("numpy", "broadcast flatiter nditer nested_iters", "iterate over x, x.flat or ndindex(x.shape)"),
    ("numpy", "memmap", "load(file, mmap_mode='r') maps a file"),
    ("numpy", "ma", "there are no masked arrays: reductions take where="),
    ("numpy", "emath", "types do not depend on values: convert to a complex type first"),
    (
        "numpy",
        "ScalarType mintypecode sctypeDict typecodes typename",
        "types are DType objects, whose name and kind are words",
    ),
    ("numpy", "frompyfunc", "it gives arrays of objects; vectorize gives numbers"),
    ("numpy", "einsum_path", "einsum's order of products is fixed, since each of them rounds"),
    ("numpy", "row_stack", "NumPy's old name of vstack"),
    ("numpy", "sort_complex", "sort sorts complex numbers too"),
    ("numpy", "little_endian", "sys.byteorder says it"),
    (
        "numpy",
        "core ctypeslib exceptions f2py get_include getbufsize info setbufsize show_config "
        "show_runtime test typing",
        "it is about NumPy itself",
    ),
    ("numpy.random", "random_integers ranf sample", "NumPy's old names of randint and random_sample"),
    (
        "numpy.testing",
        "BLAS_SUPPORTS_FPE HAS_LAPACK64 HAS_REFCOUNT IS_64BIT IS_EDITABLE IS_INSTALLED IS_MUSL IS_PYPY "
        "IS_PYSTON IS_WASM IgnoreException KnownFailureException NOGIL_BUILD NUMPY_ROOT SkipTest "
        "TestCase assert_no_gc_cycles break_cycles build_err_msg check_support_sve "
        "clear_and_catch_warnings decorate_methods jiffies measure memusage overrides "
        "print_assert_equal run_threaded rundocs runstring suppress_warnings tempdir temppath verbose",
        "it serves NumPy's own tests",
    ),
    ("numpy.ndarray", "byteswap", "bits have the processor's order of bytes"),
    ("numpy.ndarray", "ctypes", "numpy.asarray(x).ctypes"),
    ("numpy.ndarray", "data", "memoryview(x), of types that the buffer protocol has"),
    ("numpy.ndarray", "dump dumps", "pickle.dump and pickle.dumps"),
    ("numpy.ndarray", "getfield setfield", "elements are numbers: there are no records"),
    ("numpy.ndarray", "resize", "it changes memory that others view: the function resize copies"),
    ("numpy.ndarray", "tofile", "save, or file.write(x.tobytes())"),
)

REASONS = {f"{space}.{name}": why for space, names, why in _ABSENT for name in names.split()}


def reason(space: str, name: str) -> str | None:
    """Why a name of one of NumPy's namespaces is left out; None of a name that is not NumPy's."""
    return REASONS.get(f"{space}.{name}")


def not_computed(space: str, name: str, known: Iterable[str], method: str = "") -> UnsupportedType:
    """The error of a function of NumPy's, or of a method of one, that was called with Arrays."""
    why = reason(space, name)
    return UnsupportedType(
        f"neuronsim has no {space}.{name}{method}{nearest(name, known)}: {f'{why}; or ' if why else ''}"
        "numpy.asarray the arrays first to use the host's numerics"
    )


def refuse(space: str, known: Sequence[str]) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`, for the module that stands for NumPy's namespace `space`: raises
    AbsentName, an AttributeError, with the nearest of the `known` names and NumPy's reason.
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807
        raise AbsentName(space.replace("numpy", "neuronsim"), name, known, reason(space, name))

    return __getattr__
