"""JSON documents, strictly read: each key once, and numbers that JSON has.

>>> parse('{"depth": 1, "depth": 2}')
Traceback (most recent call last):
...
neuronsim.errors.InvalidArgument: the key 'depth' stands there twice
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from neuronsim.errors import InvalidArgument


def parse(text: str, *, not_finite: bool = False) -> Any:
    """What a JSON text says; with `not_finite` also Python's words for NaN and infinities. Raises
    InvalidArgument for anything else, deep nesting too.
    """
    try:
        constant = float if not_finite else _refuse
        return json.loads(text, object_pairs_hook=_unique, parse_constant=constant)
    except InvalidArgument:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(str(error)) from error


def finite(x: Any) -> Any:
    """What JSON can say of a value: numbers that are not finite are None."""
    if isinstance(x, Mapping):
        return {k: finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [finite(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidArgument(f"the key {key[:60]!r} stands there twice")
        found[key] = value
    return found


def _refuse(name: str) -> NoReturn:
    raise InvalidArgument(f"{name} is no number of JSON")
