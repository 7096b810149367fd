"""Rule D1: the caller's floating-point environment changes no bit of what array functions and methods
give, those of the host's types (H1) among them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from test_array_numpy_names import arguments, outcome
from tests.core.test_determinism import HOSTILE, environment, mxcsr, on_x86  # noqa: F401 (a fixture)

import neuronsim as np
from neuronsim import random, testing
from neuronsim.arrays import FUNCTIONS

pytestmark = [on_x86, pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]

# Subnormals, ties of rounding, and numbers that no format holds.
VALUES = numpy.array([[2.0, 1 / 3, 1e-40, 3e-45], [-1e-310, 7.123456789e-39, 1e30, -0.7]])
# What changes a setting of the process or the thread, writes files, or gives memory as it is found.
SPACES = {"linalg": np.linalg, "fft": np.fft, "nn": np.nn, "testing": testing}
NOT_CALLED = {
    *("empty", "empty_like", "fromfile", "load", "save", "savetxt", "savez", "savez_compressed"),
    *("set_printoptions", "seterr", "seterrcall", "loadtxt", "genfromtxt", "bytes", "seed"),
    *("__class__", "__getattribute__", "__init__", "__new__", "__setattr__", "__delattr__", "dump"),
    *("__init_subclass__", "__subclasshook__", "__buffer__", "__dir__", "__dlpack__", "tofile"),
    *("get_state", "set_state"),
}
CHAPTERS = {
    "": FUNCTIONS,
    **{f"{n}.": {k: getattr(s, k) for k in s.__all__} for n, s in SPACES.items()},
    "Array.": {
        n: getattr(np.Array, n)
        for n in dir(np.Array)
        if callable(getattr(np.Array, n)) and (n.startswith("__") or not n.startswith("_"))
    },
}
DOORS = {
    place + name: door
    for place, chapter in CHAPTERS.items()
    for name, door in chapter.items()
    if callable(door) and name not in NOT_CALLED
}


def seen(x: Any) -> Any:
    """All that a caller sees of a result, bit for bit."""
    if isinstance(x, np.Array):
        return x.dtype.name, x.shape, x.tobytes()
    if isinstance(x, numpy.ndarray | numpy.generic):
        return str(x.dtype), str(x) if x.dtype == object else x.tobytes()
    if isinstance(x, tuple | list):
        return [seen(v) for v in x]
    if isinstance(x, Iterator):
        return [seen(v) for v in x]
    if isinstance(x, float):
        return x.hex()
    if isinstance(x, complex):
        return x.real.hex(), x.imag.hex()
    return type(x).__name__, "" if callable(x) else str(x)


def calls(name: str, dtype: str) -> list[tuple[Any, ...]]:
    """Arguments that fit one function or another; what does not fit is an error, whose text counts."""
    x = np.asarray(VALUES, dtype=dtype)
    square = np.asarray(VALUES[:, :2] + numpy.eye(2), dtype=dtype)
    known = {} if dtype == "complex64" else arguments(dtype)
    own = [known[n] for n in (name, name.rpartition(".")[2]) if n in known]
    return [
        *own[:1],
        *((x,), (x, x), (x, 0.1), (x, 1e-40), (x, 1), (x, 1e-40, 0.3), (x[0],), (x[0], x[0])),
        *((1e-40,), (0.1, 0.7), (1e-40, 3e-40, 0.1), (3,), ([1e-40, 0.1],), ((3, 2), 1e-40)),
        *((square,), (square, square), (square, square[0]), (VALUES > 0, x, 1e-40)),
    ]


def outcomes(dtype: str, word: int | None, mxcsr: Callable[[int | None], int]) -> list[Any]:  # noqa: F811
    """What every call gives, in the environment that the word stands for."""
    found = []
    for name, door in DOORS.items():
        for args in calls(name, dtype):
            given = copy.deepcopy(args)  # put, copyto and others write into theirs
            with np.use_profile() as profile:
                profile.forget()  # what was rounded before is no excuse
                if word is None:
                    result = outcome(door, given)
                else:
                    with environment(mxcsr, word):
                        result = outcome(door, given)
            found.append((name, args, seen(result)))
    return found


@pytest.mark.parametrize(
    "dtype",
    [
        *("bfloat16", "float64"),
        *(pytest.param(t, marks=pytest.mark.exhaustive) for t in ("float32", "complex64")),
    ],
)
def test_every_function_and_method_D1_gives_the_same_bits_in_any_environment(
    dtype: str,
    mxcsr: Callable[[int | None], int],  # noqa: F811
) -> None:
    """Rounded down, and up with flushed operands and results; test_environment.py has every mode."""
    expected = outcomes(dtype, None, mxcsr)
    for label in ("round down", "all of them"):
        found = outcomes(dtype, HOSTILE[label], mxcsr)
        pairs = zip(found, expected, strict=True)
        assert [(label, *f, e[2]) for f, e in pairs if f[2] != e[2]] == []


def test_control_the_doors_are_those_of_every_chapter() -> None:
    assert len(DOORS) > 580
    assert {"sum", "array_repr", "linalg.svd", "fft.fft", "nn.softmax", "Array.tolist"} <= set(DOORS)


@pytest.mark.parametrize("label", HOSTILE)
def test_random_D1_draws_the_same_numbers_in_any_environment(
    label: str,
    mxcsr: Callable[[int | None], int],  # noqa: F811
) -> None:
    draws: dict[str, dict[str, Any]] = {
        "normal": {},
        "uniform": {"low": 1e-40, "high": 3e-40},
        "gamma": {"shape": 0.7},
        "beta": {"a": 0.3, "b": 2},
        "exponential": {"scale": 1e-39},
        "poisson": {"lam": 3.3},
        "multivariate_normal": {"mean": [0, 1], "cov": [[2, 0.3], [0.3, 1]]},
    }

    def run() -> list[Any]:
        rng, legacy = random.default_rng(5), random.RandomState(5)
        found = [getattr(rng, n)(**given, size=9) for n, given in draws.items()]
        return [seen(x) for x in (*found, legacy.normal(size=9), rng.permuted(VALUES))]

    expected = run()
    with environment(mxcsr, HOSTILE[label]):
        found = run()
    assert found == expected


def test_a_door_D1_restores_the_environment_and_keeps_its_name(
    mxcsr: Callable[[int | None], int],  # noqa: F811
) -> None:
    """Errors too; and a function that is called back runs inside."""
    word = HOSTILE["all of them"]
    met: list[int] = []
    with environment(mxcsr, word):
        np.sum([1.0, 2.0])
        outcome(np.reshape, ([1.0], (7,)))
        np.apply_along_axis(lambda v: met.append(mxcsr(None)) or v, 0, [1.0])
        after = mxcsr(None)
    assert after & 0xFFC0 == word & 0xFFC0
    assert met[0] & 0xFFC0 == 0x1F80
    assert np.sum.__name__ == "sum"
    assert np.amax is np.max
