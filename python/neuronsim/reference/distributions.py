"""Random numbers of a distribution, each from the words of its element (rule S2).

>>> hex(uniform("float32", 0, 0, 0, 0, 0x3F800000))
'0x3ecc4fd0'
"""

from __future__ import annotations

from fractions import Fraction
from math import pi

from neuronsim.reference.elementwise import FLOAT, compare, nextafter
from neuronsim.reference.formats import Number, convert, from_float, round_number
from neuronsim.reference.functions import INF, SIGN
from neuronsim.reference.random import word


def uniform(format_name: str, seed: int, place: int, index: int, low: int, high: int) -> int:
    """The element of a uniform distribution in [low, high): float32 steps, one rounding, and the value
    below `high` for one that rounds to it.
    """
    a, b = (convert(format_name, "float32", x) for x in (low, high))
    fraction = Number("finite", False, Fraction(word(seed, place, index) >> 8, 1 << 24))
    scaled = FLOAT["multiply"](round_number("float32", fraction), FLOAT["subtract"](b, a))
    found = convert("float32", format_name, FLOAT["add"](scaled, a))
    if compare("greater_equal", convert(format_name, "float32", found), b) and compare("less", a, b):
        return nextafter(format_name, high, convert("float32", format_name, INF | SIGN))
    return found


def normal(format_name: str, seed: int, place: int, index: int, mean: int, deviation: int) -> int:
    """The element of a normal distribution, by Box and Muller's transform in float32 steps."""
    first, second = (word(seed, place, 2 * index + n) >> 8 for n in (0, 1))
    u = round_number("float32", Number("finite", False, Fraction(first + 1, 1 << 24)))
    v = round_number("float32", Number("finite", False, Fraction(second, 1 << 24)))
    times, number = FLOAT["multiply"], from_float
    radius = FLOAT["sqrt"](times(FLOAT["log"](u), number("float32", -2.0)))
    found = times(radius, FLOAT["cos"](times(v, number("float32", 2 * pi))))
    scaled = times(found, convert(format_name, "float32", deviation))
    return convert("float32", format_name, FLOAT["add"](scaled, convert(format_name, "float32", mean)))


def uniform_integer(bits: int, seed: int, place: int, index: int, low: int, high: int) -> int:
    """The element of a uniform distribution of integers of `bits` bits, as encodings modulo 2^bits."""
    if bits == 64:
        drawn = word(seed, place, 2 * index) | word(seed, place, 2 * index + 1) << 32
    else:
        drawn = word(seed, place, index)
    length = (high - low) % (1 << bits)
    return (low + (drawn % length if length else 0)) % (1 << bits)
