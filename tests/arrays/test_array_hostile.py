"""Every public function refuses hostile arguments with our errors, quickly and in little memory."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests import campaign
from tests.support.parameters import each_of, some

import neuronsim as np
from neuronsim.errors import InvalidArgument, NeuronSimError, OutOfMemory
from neuronsim.profiles import rounding_state

pytestmark = [
    pytest.mark.isa_independent,  # what answers is tested, not the bits
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and time are Linux's"),
]

SPACES = {"": np, "linalg.": np.linalg, "fft.": np.fft, "nn.": np.nn}
# Of what is public, what has other tests of its errors, and why it is not here.
ELSEWHERE = {
    "of models, files and folders: test_api.py, test_array_files.py": (
        *("calibrate", "compile", "lint", "load", "plan", "tune", "genfromtxt", "loadtxt", "save"),
        *("savetxt", "savez", "savez_compressed"),
    ),
    "NumPy's own texts of Python's integers": ("base_repr", "binary_repr"),
    "settings of the process: test_processor.py, test_array_printing.py": (
        *("set_isa", "set_num_threads", "set_printoptions", "printoptions"),
    ),
}

MATRIX = np.asarray([[4.0, 1.0], [1.0, 3.0]])
ROW, INDICES, MASK = np.asarray([1.0, 2.0, 3.0]), np.asarray([0, 1]), np.asarray([True, False])
# What a parameter of a name takes; all others take arrays.
ORDINARY: dict[str, Any] = {
    **dict.fromkeys(("axes", "axis", "axis1", "ind", "kth", "obj", "source", "start", "seed"), 0),
    **dict.fromkeys(("axis2", "destination", "fill_value", "groups", "k", "n", "pad_width"), 1),
    **dict.fromkeys(("element", "ndim", "number", "shift", "val", "vals", "values"), 1),
    **dict.fromkeys(("indices_or_sections", "m", "ord", "repeats", "reps"), 2),
    **dict.fromkeys(("size", "M", "N", "length", "num", "num_classes", "stop"), 3),
    **dict.fromkeys(("dims", "dimensions", "new_shape", "s", "shape"), (2, 2)),
    **dict.fromkeys(("arrays", "tup"), (ROW, ROW)),
    **dict.fromkeys(("choices", "keys", "multi_index"), (INDICES, INDICES)),
    **dict.fromkeys(("arg1", "arg2", "dtype", "from_", "to", "type", "type1", "type2"), "float32"),
    **dict.fromkeys(("condition", "mask"), MASK),
    **dict.fromkeys(("func", "func1d"), np.sum),
    **dict.fromkeys(("b", "v"), ROW),
    **dict.fromkeys(("indices", "target"), INDICES),
    "beta": 1.5,
    "buffer": bytes(8),
    "choicelist": [INDICES],
    "condlist": [MASK],
    "function": lambda *i: i,
    "funclist": [1],
    "iter": [1, 2],
    "max_val": 1.0,
    "min_val": -1.0,
    "q": 0.5,
    "reducer": "add",
    "window": [np.WindowDimension(2)],
}

RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)
HOSTILE: dict[str, Any] = {
    "None": None,
    "a string": "text",
    "bytes": b"bytes",
    "an object": object(),
    "a class": int,
    "a function": len,
    "a dict": {"a": 1},
    "a set": {1, 2},
    "a generator": (i for i in ()),
    "NaN": math.nan,
    "Inf": math.inf,
    "1e300": 1e300,
    "1.5": 1.5,
    "1j": 1j,
    "True": True,
    "-1": -1,
    "2**62": 2**62,
    "2**70": 2**70,
    "-2**70": -(2**70),
    "a huge shape": (2**40, 2**40),
    "a huge length": (2**62,),
    "a negative shape": (-1, 2),
    "a mixed tuple": (1, "a"),
    "an empty list": [],
    "a list of None": [None],
    "strings": ["a"],
    "a ragged list": [[1, 2], [3]],
    "a list in itself": RECURSIVE,
    "integers beyond 64 bits": [2**70, -1],
    "objects": numpy.array([1, "a", None], object),
    "an array of strings": numpy.array(["a", "b"]),
    "dates": numpy.array(["2020-01-01"], "datetime64[D]"),
    "records": numpy.zeros(2, [("a", "i4")]),
    "long doubles": numpy.array([1, 2], numpy.longdouble),
    "another shape": np.ones((2, 1, 3)),
    "no elements": np.ones(0),
    "no arithmetic": np.asarray([1, 2], "float8_e4m3fn"),
    "complex numbers": np.asarray([1j, 2]),
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    other = set(itertools.chain.from_iterable(ELSEWHERE.values()))
    for prefix, space in SPACES.items():
        for name in space.__all__:
            found = getattr(space, name)
            if callable(found) and not isinstance(found, type) and name not in other:
                yield prefix + name, found
    for name, found in inspect.getmembers(np.Array, inspect.isroutine):
        if not name.startswith("_"):
            yield f"Array.{name}", found


FUNCTIONS = dict(functions())


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Some functions change settings."""
    default, errors, seed = np.default_dtype(), np.geterr(), rounding_state().seed
    receiver = np.geterrcall()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            np.set_default_dtype(default)
            np.seterr(**errors)
            np.seterrcall(receiver)
            np.seed_rounding(seed)


@contextlib.contextmanager
def limits(seconds: float = 2, memory: int = 1 << 30) -> Iterator[None]:
    """So much time of the processor, and so much memory beside what is in use; own settings."""
    used = next(w for w in Path("/proc/self/status").read_text().splitlines() if "VmSize" in w)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(used.split()[1]) * 1024 + memory, before[1]))
    try:
        with campaign.limit(seconds), own_settings():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def needed_of(call: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that have no default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(call).parameters.values()
    return [p for p in found if p.default is p.empty and p.kind in kinds]


def ordinary(parameters: list[inspect.Parameter], call: Callable[..., Any]) -> list[Any]:
    """Arguments that the function takes, if one of a few kinds of arrays makes them."""
    found: list[Any] = []
    for array in (INDICES, ROW, MATRIX):
        found = [array if p.name == "self" else ORDINARY.get(p.name, array) for p in parameters]
        with contextlib.suppress(Exception):
            call(*map(own, found))
            break
    return found


def own(x: Any) -> Any:
    """A copy of what a function may write into."""
    return x.copy() if isinstance(x, np.Array) else x


def calls(call: Callable[..., Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Each argument in turn is each of the hostile ones, the others are ordinary."""
    parameters = list(inspect.signature(call).parameters.values())
    needed = needed_of(call)
    usual = ordinary(needed, call)
    for p in parameters:
        optional_by_place = p.kind is p.POSITIONAL_ONLY and p not in needed
        if p.name == "self" or p.kind is p.VAR_KEYWORD or optional_by_place:
            continue
        for label, value in HOSTILE.items():
            arguments, keywords = [*map(own, usual)], {}
            if p in needed:
                arguments[needed.index(p)] = value
            elif p.kind is p.VAR_POSITIONAL:
                arguments.append(value)
            else:
                keywords[p.name] = value
            yield f"{p.name} is {label}", arguments, keywords


def foreign(call: Callable[..., Any], arguments: list[Any], keywords: dict[str, Any]) -> str:
    """What is wrong with how a function answers, or nothing."""
    try:
        call(*arguments, **keywords)
    except (NeuronSimError, TypeError):  # Python's own of what is no number, no text, no sequence
        return ""
    except campaign.TooSlow:
        return "it takes too long"
    except Exception as error:
        # An argument of several elements has no truth of its own, which its own method says.
        is_own = "truth value of an array" in str(error) or error.__traceback__.tb_next is None  # type: ignore[union-attr]
        return "" if is_own else f"{type(error).__name__}: {error}"[:200]
    return ""


def findings(name: str, every: int) -> list[str]:
    """Of every so manieth call, each function starting with another one."""
    found = []
    start = sum(map(ord, name)) % every
    with limits(seconds=20 if every == 1 else 4):
        for where, arguments, keywords in itertools.islice(calls(FUNCTIONS[name]), start, None, every):
            wrong = foreign(FUNCTIONS[name], arguments, keywords)
            if wrong:
                found.append(f"{name}, {where}: {wrong}")
    return found


@pytest.mark.parametrize("every", some([7, 1], 1))
def test_hostile_arguments_are_refused(every: int) -> None:
    assert [found for name in FUNCTIONS for found in findings(name, every)] == []


# Arrays that are easily forgotten: of every kind of type, without axes, without elements, of many axes.
UNUSUAL = [
    *(np.asarray(v) for v in (1.5, True, 3, 1j)),
    *(np.zeros((0, 1, 0, 3), dtype=t) for t in ("bfloat16", "int8", "complex128")),
    *(np.zeros(0, dtype=t) for t in ("bool", "float64")),
    *(np.ones((2, *[1] * 31, 2), dtype=t) for t in ("uint8", "float64", "tfloat32")),
    *(np.ones((2, *[1] * 62, 2), dtype=t) for t in ("float32", "bool", "complex64")),
    *(np.asarray(MATRIX, dtype=t) for t in ("tfloat32", "bool", "uint8", "float8_e4m3fn")),
    np.asarray([True, False, True]),
]


def arrays_in(result: Any) -> Iterator[np.Array]:
    if isinstance(result, np.Array):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from arrays_in(part)


def is_of_its_type(x: np.Array) -> bool:
    """Whether the storage is an ndarray of the type's own, of bits that are values."""
    data = x.bits.data
    if type(data) is not numpy.ndarray or data.dtype != x.dtype.storage:
        return False
    masks = {"bool": ("u1", 0xFE), "tfloat32": ("u4", 0x1FFF)}
    word, unset = masks.get(x.dtype.name, ("", 0))
    return not word or not (numpy.ascontiguousarray(data).view(word) & unset).any()


def unusual_calls(call: Callable[..., Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Each array argument, and all of them, are an unusual one; each axis, and `out`, with them."""
    parameters = list(inspect.signature(call).parameters.values())
    needed = needed_of(call)
    usual = ordinary(needed, call)
    are_arrays = [
        isinstance(u, np.Array) and p.name not in ORDINARY for p, u in zip(needed, usual, strict=True)
    ]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    optional = {p.name for p in parameters if p not in needed and p.kind in by_name}
    for x in UNUSUAL:
        everywhere = [x if is_array else u for u, is_array in zip(usual, are_arrays, strict=True)]
        yield f"{x.bits.type}", everywhere, {}
        for i, p in enumerate(needed):
            if sum(are_arrays) != 1 or not are_arrays[i]:
                yield f"{p.name} is {x.bits.type}", [*usual[:i], x, *usual[i + 1 :]], {}
        for name in {"axis", "axes"} & optional:
            for axis in (0, -1, None, (), (0,), (0, -1)):
                yield f"{x.bits.type}, {name} is {axis}", everywhere, {name: axis}
        if "out" in optional:
            yield f"{x.bits.type}, out is such", everywhere, {"out": x.copy()}


def is_pythons_own(error: BaseException) -> bool:
    """Of a call of what is no function, or without an argument: Python says so itself."""
    return isinstance(error, TypeError) and bool(
        re.search(r"not callable|missing \d+ required|multiple values", str(error))
    )


@each_of("name", FUNCTIONS)
def test_unusual_arrays_are_computed_with_or_refused(name: str) -> None:
    """No error of another library, and no result whose bits its type does not have."""
    wrong = []
    with limits(seconds=20, memory=4 << 30):
        for where, arguments, keywords in unusual_calls(FUNCTIONS[name]):
            try:
                result = FUNCTIONS[name](*map(own, arguments), **keywords)
            except NeuronSimError:
                continue
            except Exception as error:
                if not is_pythons_own(error):
                    wrong.append(f"{name}, {where}: {type(error).__name__}: {error}"[:200])
                continue
            if not all(map(is_of_its_type, arrays_in(result))):
                wrong.append(f"{name}, {where}: bits of another type")
    assert wrong == []


def test_most_functions_take_the_ordinary_arguments() -> None:
    """Otherwise their first check refuses everything."""
    refused = []
    for name, call in FUNCTIONS.items():
        try:
            with own_settings():
                call(*map(own, ordinary(needed_of(call), call)))
        except Exception:
            refused.append(name)
    assert len(refused) < len(FUNCTIONS) / 10, refused


def test_sequences_beyond_memory_and_depth() -> None:
    deep: Any = 1.0
    for _ in range(5000):
        deep = [deep]
    with limits():
        with pytest.raises(OutOfMemory):
            np.asarray(range(2**60))
        with pytest.raises(InvalidArgument):
            np.asarray(deep)
        for call, count in itertools.product((np.linspace, np.geomspace), (2**40, 2**62)):
            with pytest.raises(OutOfMemory):
                call(1, 2, count)
        with pytest.raises(InvalidArgument):
            np.repeat(np.ones((2, 2)), 2**62)  # where NumPy's own count wraps
        assert np.diff(np.ones(3), n=2**40).shape == (0,)


WIDE = np.broadcast_to(np.asarray(1.0), (30000, 30000))
WIDE_OF_HOST = np.broadcast_to(np.asarray(1.0, "float64"), (30000, 30000))
LINE = np.ones(30000)
TOO_LARGE: dict[str, Callable[[], Any]] = {
    "negative": lambda: -WIDE,
    "add": lambda: WIDE + WIDE,
    "multiply": lambda: WIDE * 2,
    "greater": lambda: WIDE > 0,
    "exp": lambda: np.exp(WIDE),
    "where": lambda: np.where(WIDE, WIDE, 0),
    "astype": lambda: WIDE.astype("float16"),
    "cumsum": lambda: np.cumsum(WIDE),
    "clip": lambda: np.clip(WIDE, 0, 1),
    "kron": lambda: np.kron(LINE, LINE),
    "outer": lambda: np.outer(LINE, LINE),
    "add.outer": lambda: np.add.outer(LINE, LINE),
    "einsum": lambda: np.einsum("i,j->ij", LINE, LINE),
    "inv": lambda: np.linalg.inv(WIDE),
    "fft": lambda: np.fft.fft(WIDE),
    "tolist": WIDE.tolist,
    "copy": WIDE.copy,
    "array": lambda: np.array(WIDE),
    "sort": lambda: np.sort(WIDE),
    "median": lambda: np.median(WIDE),
    "unique": lambda: np.unique(WIDE),
    "nonzero": lambda: np.nonzero(WIDE),
    "take": lambda: np.take(WIDE, np.arange(30000), axis=0),
    "an index": lambda: WIDE[np.arange(30000)],
    "float64": lambda: WIDE_OF_HOST + WIDE_OF_HOST,
    "normal": lambda: np.random.normal(size=10**10),
    "eye": lambda: np.eye(60000),
    "tri": lambda: np.tri(60000),
}


@each_of("name", TOO_LARGE)
def test_more_than_memory_is_out_of_memory(name: str) -> None:
    with limits(memory=700 << 20), pytest.raises(OutOfMemory) as raised:
        TOO_LARGE[name]()
    assert "bad_alloc" not in str(raised.value)


def test_out_of_memory_names_the_operation_and_its_arrays() -> None:
    with limits():
        with pytest.raises(
            OutOfMemory, match=r"^add of float32\[30000,30000\], float32\[30000,30000\]: "
        ):
            WIDE + WIDE
        with pytest.raises(OutOfMemory, match=r"^an index of float32\[30000,30000\], int64\[30000\]: "):
            WIDE[np.arange(30000)]
        with pytest.raises(OutOfMemory, match=r"^sort of float32\[30000,30000\]: "):
            np.sort(WIDE)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: {}[x],
        lambda x: [].pop(),
        lambda x: numpy.zeros(2).reshape(3),
        lambda x: numpy.ones(1 << 28),
        lambda x: [None for _ in itertools.count() if x is None],
    ],
)
def test_a_foreign_error_a_hang_and_too_much_memory_are_found(call: Callable[..., Any]) -> None:
    """The control."""
    with limits(seconds=0.2):
        assert foreign(lambda x: call(x), [1], {}) != ""
