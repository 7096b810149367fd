"""What a program gives, as a list of arrays."""

from __future__ import annotations

from typing import Any

from neuronsim.arrays.array_object import Array


def flat(value: Any) -> list[Array]:
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]
