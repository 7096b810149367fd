"""Python's operators of two arrays by their symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class Operator(NamedTuple):
    """Its names in Python and in the array API standard; a comparison has no form in place."""

    word: str
    function: str
    plain: Callable[[Any, Any], Any]
    in_place: Callable[[Any, Any], Any] | None


_NAMES = """
+ add add            - sub subtract       * mul multiply       / truediv divide
% mod remainder      // floordiv floor_divide                  ** pow pow
<< lshift bitwise_left_shift              >> rshift bitwise_right_shift
& and bitwise_and    | or bitwise_or      ^ xor bitwise_xor
== eq equal          != ne not_equal      < lt less
<= le less_equal     > gt greater         >= ge greater_equal
"""
_WORDS = _NAMES.split()
OPERATORS: dict[str, Operator] = {
    symbol: Operator(
        word, function, getattr(operator, f"__{word}__"), getattr(operator, f"__i{word}__", None)
    )
    for symbol, word, function in zip(_WORDS[::3], _WORDS[1::3], _WORDS[2::3], strict=True)
}
IN_PLACE = [symbol for symbol, o in OPERATORS.items() if o.in_place]
