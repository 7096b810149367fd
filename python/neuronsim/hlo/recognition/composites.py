"""Composites: softmax, norms, variances and activations, recognised where a graph spells them out.

A composite's kind is the name of its row in the op table. Patterns are data (`patterns`), one row of
`COMPOSITES` each; they were read off what JAX lowers its functions to, and off the formulas of R7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neuronsim.hlo.module import Computation, Module
from neuronsim.hlo.recognition.patterns import (
    Anything,
    Count,
    Elementwise,
    Given,
    Graph,
    Match,
    Number,
    OneOf,
    Op,
    Pattern,
    Reduce,
    Same,
    Spread,
)


@dataclass(frozen=True)
class Composite:
    """Instructions that together compute an operation of the op table.

    `members` holds the root, which gives the result, and what only members read: to change their types
    changes nothing else. `shared` holds the others that it consists of, which something outside reads
    too, or which such an instruction needs. Neither holds constants, nor the moves of a scale or an
    offset. `axes` are those of the input that its sums take. `parts` has instructions by what they are:
    `input`, `maximum`, `exponential`, `sum`, `mean`, `mean_of_squares` (of a variance in one pass),
    `variance`, `shifted_variance` (with epsilon), `inverse`, ...
    """

    kind: str
    root: str
    members: tuple[str, ...]
    shared: tuple[str, ...]
    input: str
    axes: tuple[int, ...]
    parts: Mapping[str, str]

    @property
    def instructions(self) -> tuple[str, ...]:
        """Members and shared instructions."""
        return (*self.members, *self.shared)


@dataclass(frozen=True)
class _Row:
    kind: str
    pattern: Pattern
    axes: Literal["any", "batch", "sample"] = "any"  # whether axis 0 is among those of the sums


def _one_of(*patterns: Pattern) -> OneOf:
    return OneOf(patterns)


def _op(opcode: str, *operands: Pattern, part: str = "") -> Op:
    return Op(opcode, operands, part)


def _product(a: Pattern, b: Pattern, c: Pattern) -> OneOf:
    """Three factors, associated in any way."""
    pairs = ((a, b, c), (b, c, a), (a, c, b))
    return OneOf(tuple(_op("multiply", _op("multiply", x, y), z) for x, y, z in pairs))


def _square(name: str, value: Pattern) -> OneOf:
    factor = Same(name, value)
    return _one_of(_op("multiply", factor, factor), _op("power", value, Number(2)))


def _mean(value: Pattern, part: str, total: str, less: int = 0) -> OneOf:
    sum_ = Reduce("add", value, total)
    return _one_of(
        _op("divide", sum_, Count(less), part=part),
        _op("multiply", sum_, Count(less, reciprocal=True), part=part),
    )


_X = Same("input", Anything())

# softmax and its relatives. JAX takes the maximum again with -Inf, and logsumexp replaces one that is
# not finite by 0.
_REDUCED_MAXIMUM = Reduce("maximum", _X, "maximum")
_MAXIMUM = _one_of(_REDUCED_MAXIMUM, _op("maximum", _REDUCED_MAXIMUM, Number(-math.inf)))
_FINITE_MAXIMUM = _one_of(
    _op("select", _op("is-finite", _MAXIMUM), _MAXIMUM, Number(0)),
    _MAXIMUM,
)
_SHIFTED = _op("subtract", _X, _FINITE_MAXIMUM, part="shifted")
_EXPONENTIAL = Same("exponential", _op("exponential", _one_of(_SHIFTED, _X), part="exponential"))
_SUM = Reduce("add", _EXPONENTIAL, "sum")


def _log_sum(exponent: Pattern) -> OneOf:
    total = Reduce("add", _op("exponential", exponent, part="exponential"), "sum")
    return _one_of(_op("log", _op("abs", total), part="log"), _op("log", total, part="log"))


_SOFTMAX = _one_of(
    _op("divide", _EXPONENTIAL, _SUM),
    _op("multiply", _EXPONENTIAL, _op("divide", Number(1), _SUM)),
)
_LOG_SUM_EXP = _one_of(_op("add", _log_sum(_SHIFTED), _FINITE_MAXIMUM), _log_sum(_X))
_SAME_SHIFTED = Same("shifted value", _SHIFTED)
_LOG_SOFTMAX = _one_of(
    _op("subtract", _SAME_SHIFTED, _log_sum(_SAME_SHIFTED)), _op("subtract", _X, _LOG_SUM_EXP)
)

# Statistics
_MEAN = _mean(_X, "mean", "sum")
_DEVIATION = _op("subtract", _X, _MEAN, part="deviation")
_MEAN_OF_SQUARES = _mean(_square("squared", _X), "mean_of_squares", "sum_of_squares")
_SQUARED_DEVIATION = _square("squared deviation", _DEVIATION)
_TWO_PASSES = _one_of(
    _mean(_SQUARED_DEVIATION, "variance", "sum_of_squares"),
    _mean(_SQUARED_DEVIATION, "variance", "sum_of_squares", less=1),  # the unbiased variance
)
_ONE_PASS = _op("subtract", _MEAN_OF_SQUARES, _square("squared mean", _MEAN), part="variance")
_VARIANCE = _one_of(
    _TWO_PASSES,
    _ONE_PASS,
    _op("maximum", _ONE_PASS, Number(0)),
)


def _shifted(variance: Pattern) -> OneOf:
    return _one_of(_op("add", variance, Number(), part="shifted_variance"), variance)


def _inverse(variance: Pattern) -> OneOf:
    """1 / sqrt(variance + epsilon)."""
    return _one_of(
        _op("rsqrt", variance, part="inverse"),
        _op("divide", Number(1), _op("sqrt", variance), part="inverse"),
        _op("power", variance, Number(-0.5), part="inverse"),
    )


def _normalized(centred: Pattern, variance: Pattern) -> OneOf:
    """A value over the root of a variance, perhaps with a scale."""
    inverse = _inverse(variance)
    plain = _one_of(
        _op("multiply", centred, inverse),
        _op("multiply", centred, _op("multiply", inverse, Spread())),
        _op("divide", centred, _op("sqrt", variance, part="inverse")),
    )
    return _one_of(_op("multiply", plain, Spread()), plain)


def _with_offset(normalized: Pattern) -> OneOf:
    return _one_of(_op("add", normalized, Spread()), normalized)


def _folded(mean: Pattern, variance: Pattern) -> Op:
    """x·scale + (offset - mean·scale)."""
    inverse = _inverse(variance)
    scale = Same("scale", _one_of(_op("multiply", inverse, Spread()), inverse))
    return _op(
        "add",
        _op("multiply", _X, scale),
        _op("subtract", Anything(), _op("multiply", scale, mean)),
    )


_NORM = _one_of(
    _with_offset(_normalized(_DEVIATION, _shifted(_VARIANCE))), _folded(_MEAN, _shifted(_VARIANCE))
)
_RMS_NORM = _normalized(_X, _shifted(_MEAN_OF_SQUARES))
# Statistics that are given.
_GIVEN = _op("add", Given(), Number(), part="shifted_variance")
_INFERENCE = _one_of(
    _with_offset(
        _one_of(
            _op(
                "multiply",
                _op(
                    "multiply",
                    _op("subtract", _X, Given(), part="deviation"),
                    _op("rsqrt", _GIVEN, part="inverse"),
                ),
                Spread(),
            ),
            _op(
                "multiply",
                _op("subtract", _X, Given(), part="deviation"),
                _one_of(
                    _op("multiply", _op("rsqrt", _GIVEN, part="inverse"), Spread()),
                    _op("rsqrt", _GIVEN, part="inverse"),
                ),
            ),
            _op(
                "divide",
                _op("subtract", _X, Given(), part="deviation"),
                _op("sqrt", _GIVEN, part="inverse"),
            ),
            # with the root's reciprocal folded
            _op(
                "multiply",
                _op("multiply", _op("subtract", _X, Given(), part="deviation"), Spread()),
                Spread(),
            ),
        )
    ),
    _folded(Given(), _GIVEN),
)

# Activations
_SIGMOID = _op(
    "divide",
    Number(1),
    _op("add", _op("exponential", _op("negate", _X), part="exponential"), Number(1)),
)
_SILU = _op("multiply", _X, _one_of(_op("logistic", _X), _SIGMOID))
_ROOT_OF_HALF = math.sqrt(0.5)
_ROOT_OF_TWO_OVER_PI = math.sqrt(2 / math.pi)
_ERF = _op(
    "erf",
    _one_of(
        _op("multiply", _X, Number(_ROOT_OF_HALF)),
        _op("divide", _X, Number(math.sqrt(2))),
    ),
)
_ERFC_ARGUMENT = Same(
    "erfc argument",
    _one_of(
        _op("multiply", _op("negate", _X), Number(_ROOT_OF_HALF)),
        _op("negate", _op("multiply", _X, Number(_ROOT_OF_HALF))),
    ),
)
# How XLA spells erfc out: 1 - erf(z) in the middle, a function of z beyond.
_ERFC = _op(
    "select",
    _op("compare", _op("abs", _ERFC_ARGUMENT), Number(1)),
    _op("subtract", Number(1), _op("multiply", _ERFC_ARGUMENT, Elementwise("erfc argument"))),
    Elementwise("erfc argument"),
)
_CUBE = _one_of(_op("multiply", _op("multiply", _X, _X), _X), _op("power", _X, Number(3)))
_TANH = _op(
    "tanh",
    _one_of(
        _op(
            "multiply",
            _op("add", _X, _op("multiply", _CUBE, Number(0.044715))),
            Number(_ROOT_OF_TWO_OVER_PI),
        ),
        _product(
            _X,
            Number(_ROOT_OF_TWO_OVER_PI),
            _op(
                "add",
                Number(1),
                _product(_X, _X, Number(0.044715)),
            ),
        ),
    ),
)


def _gelu(twice: Pattern) -> OneOf:
    """x·t / 2, t from 0 to 2."""
    halved = _op("multiply", _X, twice)
    return _one_of(_product(_X, Number(0.5), twice), _op("divide", halved, Number(2)))


_LOG_ONE_PLUS = _op(
    "log-plus-one",
    _op(
        "exponential",
        _op("negate", _op("abs", _one_of(_X, _op("subtract", _X, Number(0))))),
        part="exponential",
    ),
)
_STABLE_SOFTPLUS = _op("add", _op("maximum", _X, Number(0)), _LOG_ONE_PLUS)
_PLAIN_EXPONENTIAL = _op("exponential", _X, part="exponential")
_SOFTPLUS = _one_of(
    _op("select", _op("compare", Anything(), Anything()), Anything(), _STABLE_SOFTPLUS),
    _STABLE_SOFTPLUS,
    _op("log-plus-one", _PLAIN_EXPONENTIAL),
    _op("log", _op("add", _PLAIN_EXPONENTIAL, Number(1))),
)

# The first row that matches an instruction says what it is.
COMPOSITES = (
    _Row("batch_norm", _NORM, "batch"),
    _Row("layer_norm", _NORM, "sample"),
    _Row("rms_norm", _RMS_NORM),
    _Row("batch_norm", _INFERENCE),
    _Row("softmax", _SOFTMAX),
    _Row("log_softmax", _LOG_SOFTMAX),
    _Row("logsumexp", _LOG_SUM_EXP),
    _Row("var", _VARIANCE),
    _Row("mean", _MEAN),
    _Row("gelu", _gelu(_one_of(_op("add", _ERF, Number(1)), _ERFC))),
    _Row("gelu_tanh", _gelu(_op("add", _TANH, Number(1)))),
    _Row("silu", _SILU),
    _Row("sigmoid", _SIGMOID),
    _Row("softplus", _SOFTPLUS),
)
_ROWS: dict[str, list[_Row]] = {}
for _row in COMPOSITES:
    for _opcode in _row.pattern.opcodes or ():
        _ROWS.setdefault(_opcode, []).append(_row)


def recognise(computation: Computation, module: Module) -> tuple[Composite, ...]:
    """The composites of a computation of `inline_calls(module)`, in the program's order.

    One inside another is not given on its own: of a layer norm's variance only `parts` tells. They may
    share instructions otherwise: two softmaxes of the same exponential.
    """
    graph = Graph(computation, module)
    inside: set[str] = set()
    found = []
    for i in reversed(computation.instructions):  # the larger ones end later
        if i.opcode not in _ROWS or i.name in inside:
            continue
        for row in _ROWS[i.opcode]:
            m = graph.match(row.pattern, i.name)
            if m is not None and _fits(row, m):
                found.append(_composite(row.kind, i.name, m, graph))
                inside |= m.found
                break
    return tuple(reversed(found))


def _axes(m: Match) -> tuple[int, ...]:
    """The axes of the input that are summed."""
    reduced = m.axes or frozenset()
    labels = m.values["input"].axes
    return tuple(n for n, a in enumerate(labels) if a is not None and m.axis(a) in reduced)


def _fits(row: _Row, m: Match) -> bool:
    axes, rank = _axes(m), len(m.values["input"].axes)
    across = 0 in axes and len(axes) < rank
    return row.axes == "any" or across == (row.axes == "batch")


def _composite(kind: str, root: str, m: Match, graph: Graph) -> Composite:
    members = {root}
    order = sorted(m.found, key=graph.places.__getitem__)
    for name in reversed(order):
        users = graph.users[name]
        if users and name != graph.computation.root and all(u.name in members for u in users):
            members.add(name)
    parts = {n.removesuffix(" operand"): v for n, v in m.parts.items() if n == "input operand"} | {
        n: v for n, v in m.parts.items() if not n.endswith(" operand")
    }
    return Composite(
        kind,
        root,
        tuple(n for n in order if n in members),
        tuple(n for n in order if n not in members),
        parts["input"],
        _axes(m),
        parts,
    )
