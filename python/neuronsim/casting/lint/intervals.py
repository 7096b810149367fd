"""Intervals: between which numbers an instruction's values lie, as far as a computation alone shows.

Parameters of a float type can be anything; integers have the range of their type, and the index of an
iota, a pixel of eight bits, the result of a tanh or a clamp are bounded. The numbers are those of exact
arithmetic: a type's rounding is not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.policies.patterns import Graph
from neuronsim.casting.policies.recognition import Composite
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Shape


class Interval(NamedTuple):
    """The least and the greatest value; NaN is in none."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


ANY = Interval(-math.inf, math.inf)


def intervals(graph: Graph, composites: Iterable[Composite]) -> dict[str, Interval]:
    """The interval of every array of a computation. Composites add what their formulas imply: what is
    left of a maximum is not positive, and a softmax lies between 0 and 1.
    """
    implied: dict[str, Interval] = {}
    for c in composites:
        if "maximum" in c.parts and "shifted" in c.parts:
            implied[c.parts["shifted"]] = Interval(-math.inf, 0)
        if c.kind in _RESULTS:
            implied[c.root] = _RESULTS[c.kind]
        if "variance" in c.parts:
            implied[c.parts["variance"]] = Interval(0, math.inf)
    found: dict[str, Interval] = {}
    for i in graph.computation.instructions:
        if isinstance(i.shape, Shape):
            own = _interval(i, [found.get(o, ANY) for o in i.operands], graph)
            bound = implied.get(i.name, ANY)
            found[i.name] = Interval(max(own.low, bound.low), min(own.high, bound.high))
    return found


_RESULTS = {
    "softmax": Interval(0, 1),
    "sigmoid": Interval(0, 1),
    "log_softmax": Interval(-math.inf, 0),
    "softplus": Interval(0, math.inf),
}


def _of_type(dtype: DType) -> Interval:
    if dtype.kind in ("signed", "unsigned"):
        info = np.iinfo(dtype.numpy)
        return Interval(float(info.min), float(info.max))
    return Interval(0, 1) if dtype is dtypes.boolean else ANY


def _interval(i: Instruction, given: Sequence[Interval], graph: Graph) -> Interval:
    shape = i.array
    if i.opcode == "constant":
        return _of_literal(i, shape)
    if i.opcode == "iota":
        axis = i.attributes["dimensions"][0]
        return Interval(0, max(0, shape.dims[axis] - 1))
    if i.opcode == "reduce" and len(given) == 2:
        return _of_reduce(i, given, graph)
    if i.opcode == "multiply" and i.operands[0] == i.operands[1]:
        return Interval(0, given[0].magnitude ** 2)
    if i.opcode in _MOVES:
        return given[0]
    if i.opcode in _CHOICES and given:
        chosen = given[_CHOICES[i.opcode]]
        return Interval(min(g.low for g in chosen), max(g.high for g in chosen))
    function = _FUNCTIONS.get(i.opcode)
    if function is None:
        return _of_type(shape.dtype)
    found = function(*given)
    return Interval(*(x if not math.isnan(x) else y for x, y in zip(found, ANY, strict=True)))


def _of_literal(i: Instruction, shape: Shape) -> Interval:
    literal = i.attributes["literal"]
    values = literal.data.view(literal.dtype.numpy) if isinstance(literal, ops.Bits) else np.empty(0)
    if values.size == 0 or values.dtype.kind == "c":
        return _of_type(shape.dtype)
    # np.nanmin knows nothing of bfloat16.
    wide = values.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    return Interval(float(numbers.min()), float(numbers.max())) if numbers.size else ANY


def _of_reduce(i: Instruction, given: Sequence[Interval], graph: Graph) -> Interval:
    reducer = graph.reducer(i)
    if reducer in ("maximum", "minimum"):
        return Interval(min(g.low for g in given), max(g.high for g in given))
    if reducer != "add":
        return _of_type(i.array.dtype)
    dims = graph.by_name[i.operands[0]].array.dims
    count = math.prod(dims[d] for d in i.attributes["dimensions"])
    low, high = (count * x if x else 0.0 for x in given[0])
    return Interval(low + given[1].low, high + given[1].high)


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y if x and y else 0.0 for x in a for y in b]
    return Interval(min(corners), max(corners))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        return ANY
    corners = [x / y if not math.isinf(x) or not math.isinf(y) else 0.0 for x in a for y in b]
    return Interval(min(corners), max(corners))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _clamp(low: Interval, x: Interval, high: Interval) -> Interval:
    return Interval(min(max(low.low, x.low), high.low), min(max(low.high, x.high), high.high))


def _abs(x: Interval) -> Interval:
    return Interval(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), x.magnitude)


_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "copy", "convert", "slice", "reverse", "bitcast"}
    | {"reduce-precision", "gather", "dynamic-slice", "opt-barrier"}
)
_CHOICES = {  # the operands whose elements they take
    "select": slice(1, 3),
    "concatenate": slice(None),
    "pad": slice(0, 2),
    "dynamic-update-slice": slice(0, 2),
}
_FUNCTIONS: Mapping[str, Callable[..., Interval]] = {
    "add": lambda a, b: Interval(a.low + b.low, a.high + b.high),
    "subtract": lambda a, b: Interval(a.low - b.high, a.high - b.low),
    "multiply": _product,
    "divide": _quotient,
    "maximum": lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
    "minimum": lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    "clamp": _clamp,
    "negate": lambda a: Interval(-a.high, -a.low),
    "abs": _abs,
    "exponential": lambda a: Interval(_exp(a.low), _exp(a.high)),
    "sqrt": lambda a: Interval(math.sqrt(max(0, a.low)), math.sqrt(max(0, a.high))),
    "rsqrt": lambda a: Interval(0, math.inf),
    **dict.fromkeys(("tanh", "sine", "cosine", "erf", "sign"), lambda a: Interval(-1, 1)),
    "logistic": lambda a: Interval(0, 1),
}
