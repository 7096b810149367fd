"""Composites of one row (R7): float32 steps, sums by R2, one rounding at the end.

A row is a list of encodings of a format; so is the result, of one element for a statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from neuronsim.reference.elementwise import FLOAT
from neuronsim.reference.formats import Number, convert, decode, from_float, round_number
from neuronsim.reference.functions import INF, NAN, SIGN
from neuronsim.reference.sums import reduce_float

Row = Sequence[int]


def softmax(format_name: str, row: Row, *, tile: int = 512) -> list[int]:
    """exp(x - max x) / sum of exp(x - max x).

    >>> [hex(w) for w in softmax("bfloat16", [0, 0])]
    ['0x3f00', '0x3f00']
    """
    centred, total = _exponentials(_widened(format_name, row), tile)
    return _rounded(format_name, [_divide(FLOAT["exp"](c), total) for c in centred])


def log_softmax(format_name: str, row: Row, *, tile: int = 512) -> list[int]:
    """(x - max x) - log(sum of exp(x - max x))."""
    centred, total = _exponentials(_widened(format_name, row), tile)
    logarithm = FLOAT["log"](total)
    return _rounded(format_name, [_subtract(c, logarithm) for c in centred])


def logsumexp(format_name: str, row: Row, *, tile: int = 512) -> list[int]:
    """log(sum of exp(x - m)) + m, where m is max x, or 0 where that is infinite."""
    wide = _widened(format_name, row)
    top = _maximum(wide)
    top = 0 if top & ~SIGN == INF else top
    total = _sum([FLOAT["exp"](_subtract(x, top)) for x in wide], tile)
    return _rounded(format_name, [FLOAT["add"](FLOAT["log"](total), top)])


def mean(format_name: str, row: Row, *, tile: int = 512) -> list[int]:
    """Sum x / n.

    >>> mean("float32", [0x3F800000, 0x40400000]) == [0x40000000]
    True
    """
    return _rounded(format_name, [_mean(_widened(format_name, row), tile)])


def var(format_name: str, row: Row, *, correction: float = 0, tile: int = 512) -> list[int]:
    """Sum (x - mean)^2 / (n - correction), in two passes; a negative divisor is 0."""
    return _rounded(format_name, [_variance(_widened(format_name, row), correction, tile)])


def std(format_name: str, row: Row, *, correction: float = 0, tile: int = 512) -> list[int]:
    """The square root of the variance."""
    variance = _variance(_widened(format_name, row), correction, tile)
    return _rounded(format_name, [FLOAT["sqrt"](variance)])


def vector_norm(format_name: str, row: Row, *, tile: int = 512) -> list[int]:
    """sqrt(sum x^2)."""
    return _rounded(format_name, [FLOAT["sqrt"](_squares(_widened(format_name, row), tile))])


def layer_norm(
    format_name: str,
    row: Row,
    weight: Row | None = None,
    bias: Row | None = None,
    *,
    epsilon: float = 1e-5,
    tile: int = 512,
) -> list[int]:
    """(x - mean) * rsqrt(var + epsilon) * weight + bias; weight and bias are float32."""
    wide = _widened(format_name, row)
    middle = _mean(wide, tile)
    centred = [_subtract(x, middle) for x in wide]
    return _rounded(format_name, _normalized(centred, weight, bias, epsilon, tile))


def rms_norm(
    format_name: str,
    row: Row,
    weight: Row | None = None,
    *,
    epsilon: float = 1e-5,
    tile: int = 512,
) -> list[int]:
    """The row x * rsqrt(mean of x^2 + epsilon) * weight, which is float32."""
    wide = _widened(format_name, row)
    return _rounded(format_name, _normalized(wide, weight, None, epsilon, tile))


def batch_norm(
    format_name: str,
    row: Row,
    mean: int,
    variance: int,
    weight: int | None = None,
    bias: int | None = None,
    *,
    epsilon: float = 1e-5,
) -> list[int]:
    """The elements of one channel with its statistics and terms, which are float32."""
    scale = FLOAT["rsqrt"](FLOAT["add"](variance, from_float("float32", epsilon)))
    result = [FLOAT["multiply"](_subtract(x, mean), scale) for x in _widened(format_name, row)]
    return _rounded(format_name, _affine(result, _repeated(weight, row), _repeated(bias, row)))


def xla_batch_norm(
    format_name: str,
    row: Row,
    mean: int,
    variance: int,
    weight: int,
    bias: int,
    *,
    epsilon: float = 1e-5,
) -> list[int]:
    """The same by XLA's formula: x * s + (bias - mean * s), s being weight * rsqrt(var + epsilon)."""
    times, plus = FLOAT["multiply"], FLOAT["add"]
    scale = times(weight, FLOAT["rsqrt"](plus(variance, from_float("float32", epsilon))))
    shift = _subtract(bias, times(mean, scale))
    return _rounded(format_name, [plus(times(x, scale), shift) for x in _widened(format_name, row)])


def batch_norm_training(
    format_name: str,
    row: Row,
    weight: int,
    bias: int,
    *,
    epsilon: float = 1e-5,
    one_pass: bool = False,
    tile: int = 512,
) -> tuple[list[int], int, int]:
    """The elements of one channel by their own statistics, and these; in one pass, as XLA has it, the
    variance is mean x^2 - mean^2.
    """
    wide = _widened(format_name, row)
    middle, spread = _mean(wide, tile), _variance(wide, 0, tile)
    if one_pass:
        squares = _divide(_squares(wide, tile), from_float("float32", len(wide)))
        spread = _subtract(squares, FLOAT["multiply"](middle, middle))
    out = batch_norm("float32", wide, middle, spread, weight, bias, epsilon=epsilon)
    ((mean,), (variance,)) = (_rounded(format_name, [x]) for x in (middle, spread))
    return _rounded(format_name, out), mean, variance


def batch_norm_grad(
    format_name: str,
    row: Row,
    weight: int,
    mean: int,
    variance: int,
    grad: Row,
    *,
    epsilon: float = 1e-5,
    tile: int = 512,
) -> tuple[list[int], int, int]:
    """The gradients of one channel's elements, weight and bias; the statistics are float32."""
    times, number = FLOAT["multiply"], from_float("float32", len(row))
    centred = [_subtract(x, mean) for x in _widened(format_name, row)]
    wide = _widened(format_name, grad)
    spread = FLOAT["add"](variance, from_float("float32", epsilon))
    inverse = FLOAT["rsqrt"](spread)
    total = _sum([times(g, c) for g, c in zip(wide, centred, strict=True)], tile)
    of_bias = _sum(wide, tile)
    factor = _divide(times(weight, inverse), number)
    out = []
    for g, c in zip(wide, centred, strict=True):
        along = _divide(times(total, c), spread)
        out.append(times(factor, _subtract(_subtract(times(g, number), of_bias), along)))
    of_terms = _rounded(format_name, [times(total, inverse), of_bias])
    return _rounded(format_name, out), of_terms[0], of_terms[1]


def gelu_backward(format_name: str, grad: Row, row: Row) -> list[int]:
    """The gradient times gelu'(x)."""
    return _rounded(format_name, _times_slope(format_name, "gelu_dx", grad, row))


def silu_backward(format_name: str, grad: Row, row: Row) -> list[int]:
    """The gradient times silu'(x)."""
    return _rounded(format_name, _times_slope(format_name, "silu_dx", grad, row))


def _times_slope(format_name: str, slope: str, grad: Row, row: Row) -> list[int]:
    pairs = zip(_widened(format_name, grad), _widened(format_name, row), strict=True)
    return [FLOAT["multiply"](g, FLOAT[slope](x)) for g, x in pairs]


def softmax_backward(format_name: str, grad: Row, row: Row, *, tile: int = 512) -> list[int]:
    """The softmax y, a row, times grad - sum(grad * y)."""
    grads, ys = _widened(format_name, grad), _widened(format_name, row)
    total = _sum([FLOAT["multiply"](g, y) for g, y in zip(grads, ys, strict=True)], tile)
    found = [FLOAT["multiply"](y, _subtract(g, total)) for g, y in zip(grads, ys, strict=True)]
    return _rounded(format_name, found)


def _repeated(term: int | None, row: Row) -> Row | None:
    return None if term is None else [term] * len(row)


def _widened(format_name: str, row: Row) -> list[int]:
    return [convert(format_name, "float32", x) for x in row]


def _rounded(format_name: str, row: Row) -> list[int]:
    """The one rounding; a NaN is the canonical one (E6)."""
    return [
        convert("float32", format_name, NAN if decode("float32", x).kind == "nan" else x) for x in row
    ]


def _maximum(row: Row) -> int:
    return reduce_float("maximum", "float32", row, INF | SIGN)


def _sum(row: Row, tile: int) -> int:
    return reduce_float("add", "float32", row, 0, tile=tile)


def _exponentials(row: Row, tile: int) -> tuple[list[int], int]:
    """The centred elements and the sum of their powers."""
    top = _maximum(row)
    centred = [_subtract(x, top) for x in row]
    return centred, _sum([FLOAT["exp"](c) for c in centred], tile)


def _mean(row: Row, tile: int) -> int:
    return _divide(_sum(row, tile), from_float("float32", len(row)))


def _squares(row: Row, tile: int) -> int:
    return _sum([FLOAT["multiply"](x, x) for x in row], tile)


def _variance(row: Row, correction: float, tile: int) -> int:
    middle = _mean(row, tile)
    divisor = max(len(row) - Fraction(correction), Fraction(0))
    n = round_number("float32", Number("finite", False, divisor))
    return _divide(_squares([_subtract(x, middle) for x in row], tile), n)


def _normalized(
    centred: Row, weight: Row | None, bias: Row | None, epsilon: float, tile: int
) -> list[int]:
    mean_square = _divide(_squares(centred, tile), from_float("float32", len(centred)))
    scale = FLOAT["rsqrt"](FLOAT["add"](mean_square, from_float("float32", epsilon)))
    return _affine([FLOAT["multiply"](c, scale) for c in centred], weight, bias)


def _affine(row: Row, weight: Row | None, bias: Row | None) -> list[int]:
    found = list(row)
    for term, step in ((weight, FLOAT["multiply"]), (bias, FLOAT["add"])):
        if term is not None:
            found = [step(x, t) for x, t in zip(found, term, strict=True)]
    return found


_divide: Callable[[int, int], int] = FLOAT["divide"]
_subtract: Callable[[int, int], int] = FLOAT["subtract"]
