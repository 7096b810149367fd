"""`neuronsim.jit`: what is traced has the bits that it has without, and what cannot be says so where it
stands.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.errors import InvalidArgument, NeuronSimError, UnknownValue
from neuronsim.frontends.pytrees import flatten
from neuronsim.just_in_time import CompiledFunction

FOLDER = Path(__file__).parents[2] / "examples" / "arrays"


@cache
def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"jit_example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def drawn(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return np.asarray(numpy.random.default_rng(sum(shape)).uniform(low, high, shape)).astype(
        np.default_dtype()
    )


def black_scholes() -> tuple[Any, ...]:
    return drawn(9, low=80, high=120), drawn(4, 1, low=0.25, high=2), drawn(9, low=0.2, high=0.4)


def transformer() -> dict[str, Any]:
    shapes = dict.fromkeys("qkvo", (64, 64)) | {"up": (64, 256), "down": (256, 64)}
    return {name: drawn(*shape, low=-0.2, high=0.2) for name, shape in shapes.items()}


def lstm() -> dict[str, Any]:
    return {"x": drawn(1, 96), "h": drawn(24, 96, low=-0.4, high=0.4), "b": drawn(96)}


def network() -> dict[str, Any]:
    return {"w1": drawn(64, 32), "b1": drawn(32), "w2": drawn(32, 10), "b2": drawn(10)}


def board() -> Any:
    return np.asarray(numpy.random.default_rng(0).random((12, 16)) < 0.4)


LABELS = numpy.arange(50) % 10
TRACED: dict[str, Callable[[], tuple[Any, ...]]] = {
    "attention.softmax": lambda: (drawn(5, 7),),
    "attention.layer_norm": lambda: (drawn(5, 64),),
    "attention.gelu": lambda: (drawn(33),),
    "attention.positions": lambda: (),
    "attention.attention": lambda: (transformer(), drawn(24, 64)),
    "attention.block": lambda: (transformer(), drawn(24, 64)),
    "black_scholes.erf": lambda: (drawn(33),),
    "black_scholes.normal": lambda: (drawn(33),),
    "black_scholes.terms": black_scholes,
    "black_scholes.call": black_scholes,
    "black_scholes.put": black_scholes,
    "black_scholes.vega": black_scholes,
    "black_scholes.implied": lambda: (drawn(4, 9, low=3, high=9), *black_scholes()[:2]),
    "convolution.convolve": lambda: (drawn(2, 9, 8), drawn(3, 3)),
    "convolution.gaussian": lambda: (2, 1.2),
    "convolution.max_pool": lambda: (drawn(2, 8, 12), 4),
    "convolution.enlarge": lambda: (drawn(2, 4, 3), 3),
    "game_of_life.neighbours": lambda: (board(),),
    "game_of_life.step": lambda: (board(),),
    "gaussian_process.curve": lambda: (drawn(9),),
    "gaussian_process.kernel": lambda: (drawn(5), drawn(7), 0.6),
    "kmeans.squared_distances": lambda: (drawn(20, 6), drawn(4, 6)),
    "lstm.sigmoid": lambda: (drawn(9),),
    "lstm.cell": lambda: (lstm(), drawn(1, 1), drawn(1, 24), drawn(1, 24)),
    "lstm.run": lambda: (lstm(), drawn(6)),
    "mlp.forward": lambda: (network(), drawn(50, 64)),
    "mlp.gradients": lambda: (network(), drawn(50, 64), np.asarray(LABELS)),
}
REFUSED: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "gaussian_process.fit": (lambda: (drawn(9), drawn(9), 0.6), "cholesky"),
    "gaussian_process.predict": (
        lambda: (drawn(5), drawn(7), 0.6, drawn(5, 5), drawn(5)),
        "solve",
    ),
    "lstm.readout": (lambda: (drawn(9, 24), drawn(9), 0.05), "solve"),
    "kmeans.first_centres": (lambda: (drawn(20, 6), numpy.random.default_rng(0)), "searchsorted"),
    "game_of_life.is_glider": (lambda: (board(),), "needs the values"),
}


@contextmanager
def default_type(name: str) -> Iterator[None]:
    before = np.default_dtype()
    np.set_default_dtype(name)
    try:
        yield
    finally:
        np.set_default_dtype(before)


SETTINGS: dict[str, Callable[[], Any]] = {
    "float32": nullcontext,
    "bfloat16": lambda: default_type("bfloat16"),
    "profile": lambda: np.use_profile(subnormals="flush", divide="reciprocal_multiply"),
}


def equal_bits(found: Any, expected: Any) -> None:
    ours, ours_tree = flatten(found)
    theirs, their_tree = flatten(expected)
    assert ours_tree == their_tree
    for a, b in zip(ours, map(np.asarray, theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", TRACED)
def test_functions_of_the_examples_have_the_eager_bits(name: str, setting: str) -> None:
    module, _, function = name.partition(".")
    plain = getattr(example(module), function)
    with SETTINGS[setting]():
        expected = plain(*TRACED[name]())
        equal_bits(np.jit(plain)(*TRACED[name]()), expected)


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_need_values_are_refused_where_they_do(name: str) -> None:
    module, _, function = name.partition(".")
    arguments, said = REFUSED[name]
    with pytest.raises(NeuronSimError, match=said) as caught:
        np.jit(getattr(example(module), function))(*arguments())
    assert f"{module}.py:" in str(caught.value)
