"""Functions of arrays beside NumPy's of the same name, in float64."""

from __future__ import annotations

from typing import Any

import numpy

import neuronsim as np


def own(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, numpy.ndarray) else x


def agree(name: str, *arguments: Any, rtol: float = 1e-12, atol: float = 0, **options: Any) -> None:
    """A function of the namespace, or of one below, gives what NumPy's does."""
    found, expected = np, numpy
    for word in name.split("."):
        found, expected = getattr(found, word), getattr(expected, word)
    ours = found(*map(own, arguments), **{k: own(v) for k, v in options.items()})
    near(ours, expected(*arguments, **options), rtol, atol)


def near(found: Any, expected: Any, rtol: float, atol: float) -> None:
    """The same structure and shapes, and nearly the same values."""
    if isinstance(expected, tuple | list):
        for ours, theirs in zip(found, expected, strict=True):
            near(ours, theirs, rtol, atol)
        return
    assert found.shape == numpy.shape(expected)
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=rtol, atol=atol)
