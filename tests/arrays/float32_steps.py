"""The steps of a composite (R7) by the twin: float32 values whose operators are its operations."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.words import word_list

import neuronsim as np
from neuronsim.dtypes import DType
from neuronsim.reference import formats, sums
from neuronsim.reference.elementwise import FLOAT


class Step:
    """A float32 value of the twin, whose operators are its operations."""

    def __init__(self, word: int) -> None:
        self.word = word

    def __add__(self, other: Step) -> Step:
        return Step(FLOAT["add"](self.word, other.word))

    def __sub__(self, other: Step) -> Step:
        return Step(FLOAT["subtract"](self.word, other.word))

    def __mul__(self, other: Step) -> Step:
        return Step(FLOAT["multiply"](self.word, other.word))

    def __truediv__(self, other: Step) -> Step:
        return Step(FLOAT["divide"](self.word, other.word))

    def __neg__(self) -> Step:
        return Step(self.word ^ 0x80000000)

    def to(self, dtype: DType) -> int:
        return formats.convert("float32", dtype.name, self.word)


def number(x: float) -> Step:
    return Step(formats.from_float("float32", x))


def steps(x: np.Array) -> list[Step]:
    return [Step(w) for w in word_list(x.astype("float32"))]


def total(values: Sequence[Step]) -> Step:
    """The sum by R2."""
    return Step(sums.reduce_float("add", "float32", [v.word for v in values], 0))
