"""NumPy's protocols: its own functions on Arrays are ours of the same name, and nothing falls back to
NumPy's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neuronsim.arrays import fft, linalg
from neuronsim.arrays.absent_names import not_computed
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.chapters import FUNCTIONS
from neuronsim.arrays.ufuncs import Ufunc


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
    chapter = {"linalg": linalg, "fft": fft}.get(place)
    known = FUNCTIONS if chapter is None else {n: getattr(chapter, n) for n in chapter.__all__}
    if name not in known or place not in ("", "linalg", "fft"):
        raise not_computed(function.__module__, name, known)
    return known[name](*args, **keywords)
