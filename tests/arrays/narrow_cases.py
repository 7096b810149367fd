"""Calls of every function of the array API standard on arrays of a narrow type, and what the slow
twin gives for them: E1 of elementwise functions, R and M of sums, steps (R7), moved bits of others.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy
from float32_steps import number, steps
from tests.support.words import of_words, word_list

import neuronsim as np
from neuronsim import ops
from neuronsim.dtypes import DType
from neuronsim.reference import composites, elementwise, formats, order, sums
from neuronsim.reference.elementwise import FLOAT
from neuronsim.reference.formats import Number, decode, round_number
from neuronsim.reference.functions import NAN, SIGN

MOVED = "moved"  # bits and nothing else: of every type there is
CREATED = "C1"  # values rounded once, of every type that there are conversions to


@dataclass(frozen=True)
class Case:
    """A call on arrays of a type, what the twin gives for it, and the rule that decides."""

    found: Callable[[DType], Any]
    expected: Callable[[DType], Any]
    rule: str


# ---- arrays of the twin's words ----------------------------------------------------------------------


def drawn(dtype: DType, shape: tuple[int, ...] = (24,), seed: int = 0) -> np.Array:
    """Values around 1, -1 and 0; in the first row the least, the largest, zeros, Inf and NaN."""
    draw = numpy.random.default_rng([seed, len(shape), dtype.bits])
    values = draw.normal(0, 1.5, math.prod(shape)).tolist()
    found = [formats.from_float(dtype.name, v) for v in values]
    f = formats.FORMATS[dtype.name]
    unit = 1 << f.shift
    top = round_number(dtype.name, Number("inf", False))
    few = [0, unit, top - unit, top, f.nan_bits]
    few += [w | f.sign_bit for w in few]
    if shape[-1] > len(few):
        found[: len(few)] = draw.permutation(few).tolist()
    return of_words(found, dtype, shape)


def finite(dtype: DType, shape: tuple[int, ...], seed: int = 0, scale: float = 1.5) -> np.Array:
    draw = numpy.random.default_rng([seed, len(shape), dtype.bits])
    values = draw.normal(0, scale, math.prod(shape)).tolist()
    return of_words([formats.from_float(dtype.name, v) for v in values], dtype, shape)


def wide(x: np.Array) -> list[int]:
    """The elements as float32, which is exact."""
    return [formats.convert(x.dtype.name, "float32", w) for w in word_list(x)]


def stored(found: Sequence[int], dtype: DType, shape: tuple[int, ...] | None = None) -> np.Array:
    """Float32 words rounded once; a NaN is the canonical one (E6)."""
    canonical = [NAN if decode("float32", w).kind == "nan" else w for w in found]
    return of_words([formats.convert("float32", dtype.name, w) for w in canonical], dtype, shape)


def rows_of(x: np.Array) -> list[list[int]]:
    """The words of each row of a matrix."""
    flat, n = word_list(x), x.shape[-1]
    return [flat[i : i + n] for i in range(0, len(flat), n)]


def exactly(values: Sequence[Fraction | float], dtype: DType) -> np.Array:
    """Exact numbers rounded once (C1)."""

    def rounded(v: Fraction | float) -> int:
        exact = Number("finite", v < 0, abs(v)) if isinstance(v, Fraction) else formats.exact(v)
        return round_number(dtype.name, exact)

    return of_words([rounded(v) for v in values], dtype)


# ---- one element by one (E1, E6, E7, E9) -------------------------------------------------------------

X = functools.partial(drawn, seed=1)
Y = functools.partial(drawn, seed=2)


def rows_of_operands(dtype: DType, count: int, words: Callable[[np.Array], list[int]]) -> list[Any]:
    """The words of so many operands, one element after the other."""
    return list(zip(*(words(f(dtype)) for f in (X, Y)[:count]), strict=True))


def called(name: str, count: int) -> Callable[[DType], Any]:
    return lambda dtype: getattr(np, name)(*(f(dtype) for f in (X, Y)[:count]))


def of_numbers(name: str, function: Callable[..., int], count: int = 1) -> Case:
    def expected(dtype: DType) -> np.Array:
        return stored([function(*row) for row in rows_of_operands(dtype, count, wide)], dtype)

    return Case(called(name, count), expected, "E1")


def of_bits(name: str, function: Callable[..., int], count: int = 1, rule: str = "E6") -> Case:
    """Of the storage bits, whose sign it moves (E6); the function takes the sign bit last."""

    def expected(dtype: DType) -> np.Array:
        sign_bit = formats.FORMATS[dtype.name].sign_bit
        rows = rows_of_operands(dtype, count, word_list)
        return of_words([function(*row, sign_bit) for row in rows], dtype)

    return Case(called(name, count), expected, rule)


def true_or_false(name: str, function: Callable[..., bool], count: int, rule: str = "E7") -> Case:
    """Of float32 words, in E7's order FLOAT."""

    def expected(dtype: DType) -> numpy.ndarray:
        return numpy.array([function(*row) for row in rows_of_operands(dtype, count, wide)])

    return Case(called(name, count), expected, rule)


def is_true(word: int) -> bool:
    return word & ~SIGN != 0  # C6: NaN is true


def next_after(dtype: DType) -> np.Array:
    pairs = rows_of_operands(dtype, 2, word_list)
    return of_words([elementwise.nextafter(dtype.name, *p) for p in pairs], dtype)


def clipped(dtype: DType) -> np.Array:
    low, high = (formats.convert("float32", dtype.name, number(v).word) for v in (-1.0, 0.75))
    bounds = [formats.convert(dtype.name, "float32", b) for b in (low, high)]
    return stored([FLOAT["clamp"](bounds[0], w, bounds[1]) for w in wide(X(dtype))], dtype)


FUNCTIONS_OF_ONE = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1"),
    *("floor", "log", "log1p", "log2", "log10", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
    "trunc",
)
FUNCTIONS_OF_TWO = (
    *("add", "atan2", "divide", "floor_divide", "hypot", "logaddexp", "maximum", "minimum"),
    *("multiply", "remainder", "subtract"),
)
COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")

ELEMENTWISE = {
    **{name: of_numbers(name, FLOAT[name]) for name in FUNCTIONS_OF_ONE},
    **{name: of_numbers(name, FLOAT[name], 2) for name in FUNCTIONS_OF_TWO},
    **{n: true_or_false(n, functools.partial(elementwise.compare, n), 2) for n in COMPARISONS},
    **{n: true_or_false(n, elementwise.PREDICATE[n], 1) for n in ("isfinite", "isinf", "isnan")},
    "pow": of_numbers("pow", FLOAT["power"], 2),
    "round": of_numbers("round", FLOAT["rint"]),
    "square": of_numbers("square", lambda a: FLOAT["multiply"](a, a)),
    # E9: an array's sign of -0 is +0.
    "sign": of_numbers("sign", lambda a: FLOAT["sign"](a) if a != SIGN else 0),
    "abs": of_bits("abs", lambda x, sign: x & ~sign),
    "negative": of_bits("negative", lambda x, sign: x ^ sign),
    "positive": of_bits("positive", lambda x, sign: x, rule=MOVED),
    "conj": of_bits("conj", lambda x, sign: x, rule=MOVED),
    "real": of_bits("real", lambda x, sign: x, rule=MOVED),
    "copysign": of_bits("copysign", lambda x, y, sign: x & ~sign | y & sign, 2),
    "signbit": true_or_false("signbit", lambda x: bool(x & SIGN), 1),
    "logical_not": true_or_false("logical_not", lambda x: not is_true(x), 1, "C6"),
    "logical_and": true_or_false("logical_and", lambda x, y: is_true(x) and is_true(y), 2, "C6"),
    "logical_or": true_or_false("logical_or", lambda x, y: is_true(x) or is_true(y), 2, "C6"),
    "logical_xor": true_or_false("logical_xor", lambda x, y: is_true(x) != is_true(y), 2, "C6"),
    "nextafter": Case(lambda t: np.nextafter(X(t), Y(t)), next_after, "E9"),
    "clip": Case(lambda t: np.clip(X(t), -1.0, 0.75), clipped, "E7"),
}

# ---- reductions (R2, R4, R7) -------------------------------------------------------------------------

TWO_TILES = (2, 530)


def reduced(name: str, reducer: str, start: float, make: Callable[[DType], np.Array]) -> Case:
    def expected(dtype: DType) -> np.Array:
        initial = formats.from_float(dtype.name, start)
        rows = rows_of(make(dtype))
        return of_words([sums.reduce_float(reducer, dtype.name, r, initial) for r in rows], dtype)

    return Case(lambda t: getattr(np, name)(make(t), axis=1), expected, "R2")


def summands(dtype: DType) -> np.Array:
    return finite(dtype, TWO_TILES)


def factors(dtype: DType) -> np.Array:
    """Near 1, so that no product of a row is 0 or Inf."""
    draw = numpy.random.default_rng(dtype.bits).choice([0.875, 1.0, -1.0, 1.125], 2 * 530)
    return of_words([formats.from_float(dtype.name, v) for v in draw.tolist()], dtype, TWO_TILES)


PREFIXES = (0, 7, 511, 512)  # the places where element by element would take too long


def cumulative(name: str, reducer: str, start: float, make: Callable[[DType], np.Array]) -> Case:
    def expected(dtype: DType) -> np.Array:
        initial = formats.from_float(dtype.name, start)
        heads = [row[: j + 1] for row in rows_of(make(dtype)) for j in PREFIXES]
        found = [sums.reduce_float(reducer, dtype.name, head, initial) for head in heads]
        return of_words(found, dtype, (2, len(PREFIXES)))

    return Case(lambda t: getattr(np, name)(make(t), axis=1)[:, list(PREFIXES)], expected, "R4")


def by_rows(
    call: Callable[[np.Array], Any],
    function: Callable[[str, list[int]], list[int]],
    make: Callable[[DType], np.Array] = lambda t: finite(t, (3, 11), 3),
) -> Case:
    """A composite of one row that gives one element."""

    def expected(dtype: DType) -> np.Array:
        return of_words([w for row in rows_of(make(dtype)) for w in function(dtype.name, row)], dtype)

    return Case(lambda t: call(make(t)), expected, "R7")


def twice_differed(dtype: DType) -> np.Array:
    x = steps(finite(dtype, (9,)))
    for _ in range(2):
        x = [b - a for a, b in itertools.pairwise(x)]
    return stored([v.word for v in x], dtype)


def every(dtype: DType) -> np.Array:
    """Rows with a zero, with nothing but zeros, and with NaN."""
    rows = [[1.0, 0.0, 2.0], [-0.0, 0.0, 0.0], [math.nan, 1.0, 0.5]]
    return of_words([formats.from_float(dtype.name, v) for r in rows for v in r], dtype, (3, 3))


def of_truth(name: str, function: Callable[[list[bool]], Any]) -> Case:
    def expected(dtype: DType) -> numpy.ndarray:
        rows = rows_of(of_words(wide(every(dtype)), np.float32, (3, 3)))
        return numpy.array([function([is_true(w) for w in row]) for row in rows])

    return Case(lambda t: getattr(np, name)(every(t), axis=1), expected, "C6")


REDUCTIONS = {
    "sum": reduced("sum", "add", 0.0, summands),
    "prod": reduced("prod", "multiply", 1.0, factors),
    "max": reduced("max", "maximum", -math.inf, lambda t: drawn(t, (2, 40), 4)),
    "min": reduced("min", "minimum", math.inf, lambda t: drawn(t, (2, 40), 5)),
    "cumulative_sum": cumulative("cumulative_sum", "add", 0.0, summands),
    "cumulative_prod": cumulative("cumulative_prod", "multiply", 1.0, factors),
    "mean": by_rows(lambda x: np.mean(x, axis=1), composites.mean, summands),
    "var": by_rows(lambda x: np.var(x, axis=1), composites.var),
    "std": by_rows(
        lambda x: np.std(x, axis=-1, correction=1), functools.partial(composites.std, correction=1)
    ),
    "diff": Case(lambda t: np.diff(finite(t, (9,)), n=2), twice_differed, "R7"),
    "all": of_truth("all", all),
    "any": of_truth("any", any),
    "count_nonzero": of_truth("count_nonzero", sum),
}

# ---- products (M2, M4) and norms ---------------------------------------------------------------------

DEPTH = 140  # more than a tile of 128


def product(x: np.Array, y: np.Array) -> np.Array:
    """The matrix product: one dot for each element."""
    name, columns = x.dtype.name, list(zip(*rows_of(y), strict=True))
    found = [sums.dot(name, name, name, r, c) for r in rows_of(x) for c in columns]
    return of_words(found, x.dtype, (x.shape[0], len(columns)))


def left(dtype: DType) -> np.Array:
    return finite(dtype, (2, DEPTH), 6, 0.5)


def right(dtype: DType) -> np.Array:
    return finite(dtype, (DEPTH, 3), 7, 0.5)


def dots(dtype: DType) -> np.Array:
    pairs = zip(rows_of(left(dtype)), rows_of(finite(dtype, (2, DEPTH), 8)), strict=True)
    return of_words([sums.dot(dtype.name, dtype.name, dtype.name, *p) for p in pairs], dtype)


def outer_product(dtype: DType) -> np.Array:
    pairs = itertools.product(wide(X(dtype)), wide(Y(dtype)[:5]))
    return stored([FLOAT["multiply"](*p) for p in pairs], dtype, (24, 5))


def crossed(dtype: DType) -> np.Array:
    found = []
    vectors = [steps(finite(dtype, (2, 3), seed)) for seed in (1, 2)]
    for i in (0, 3):
        a, b = (v[i : i + 3] for v in vectors)
        found += [a[j] * b[k] - a[k] * b[j] for j, k in ((1, 2), (2, 0), (0, 1))]
    return stored([v.word for v in found], dtype, (2, 3))


def traced(dtype: DType) -> np.Array:
    diagonal = word_list(finite(dtype, (6, 6)))[::7]
    return of_words([sums.reduce_float("add", dtype.name, diagonal, 0)], dtype, ())


PRODUCTS = {
    "matmul": Case(lambda t: np.matmul(left(t), right(t)), lambda t: product(left(t), right(t)), "M2"),
    "tensordot": Case(
        lambda t: np.tensordot(left(t).reshape(2, 20, 7), right(t).reshape(20, 7, 3)),
        lambda t: product(left(t), right(t)),
        "M2",
    ),
    "vecdot": Case(lambda t: np.vecdot(left(t), finite(t, (2, DEPTH), 8)), dots, "M2"),
}
LINALG = {
    **PRODUCTS,
    "cross": Case(lambda t: np.linalg.cross(finite(t, (2, 3), 1), finite(t, (2, 3), 2)), crossed, "R7"),
    "outer": Case(lambda t: np.linalg.outer(X(t), Y(t)[:5]), outer_product, "E1"),
    "trace": Case(lambda t: np.linalg.trace(finite(t, (6, 6))), traced, "R2"),
}

# ---- order (E10) -------------------------------------------------------------------------------------


def comes_first(a: Number, b: Number) -> bool:
    """NaN last, -0 equal to +0."""
    if "nan" in (a.kind, b.kind):
        return a.kind != "nan" and b.kind == "nan"
    return as_float(a) < as_float(b)


def as_float(x: Number) -> float:
    """The value as a float64, which holds those of all narrow types."""
    return {"nan": math.nan, "inf": math.copysign(math.inf, -1 if x.negative else 1)}.get(
        x.kind, float(x.value)
    )


def repeated(dtype: DType) -> np.Array:
    """Elements that occur more than once, zeros of both signs and NaN among them."""
    few = word_list(X(dtype))[:13]
    return of_words([*few, *few[::-1], *few[:3]], dtype)


def numbers_of(x: np.Array) -> list[Number]:
    return [decode(x.dtype.name, w) for w in word_list(x)]


def sorted_places(x: np.Array) -> list[int]:
    return order.merge_order(numbers_of(x), comes_first)


def extreme(sign: int) -> Callable[[DType], numpy.ndarray]:
    """The first NaN, else the first of the greatest."""

    def expected(dtype: DType) -> numpy.ndarray:
        x = [as_float(v) for v in numbers_of(repeated(dtype))]
        is_nan = [math.isnan(v) for v in x]
        ordinary = [sign * v for v in x]
        return numpy.array(is_nan.index(True) if any(is_nan) else ordinary.index(max(ordinary)))

    return expected


def distinct(x: np.Array) -> tuple[list[int], list[int], list[int]]:
    """The place of the first of each distinct element, ascending; which of them every element is; how
    many they are. Every NaN is one of its own.
    """
    values = [as_float(v) for v in numbers_of(x)]
    firsts: list[int] = []
    for place in sorted_places(x):
        if not firsts or values[place] != values[firsts[-1]]:
            firsts.append(place)
    inverse = [
        firsts.index(i) if math.isnan(v) else [values[f] for f in firsts].index(v)
        for i, v in enumerate(values)
    ]
    return firsts, inverse, [inverse.count(i) for i in range(len(firsts))]


def unique(name: str, *parts: int) -> Case:
    def expected(dtype: DType) -> Any:
        x = repeated(dtype)
        found = distinct(x)
        values = of_words([word_list(x)[i] for i in found[0]], dtype)
        return (values, *(numpy.array(found[i]) for i in parts)) if parts else values

    return Case(lambda t: getattr(np, name)(repeated(t)), expected, "E10")


def places(dtype: DType) -> numpy.ndarray:
    """How many elements of the sorted ones come before each, equal ones too."""
    among = [as_float(v) for v in numbers_of(in_order(dtype))]
    wanted = [as_float(v) for v in numbers_of(X(dtype))]
    return numpy.array([len(among) if math.isnan(v) else sum(a <= v for a in among) for v in wanted])


def in_order(dtype: DType) -> np.Array:
    x = (-2.0, -1.0, -1.0, 0.0, 0.5, 1.0, 2.0)
    return of_words([formats.from_float(dtype.name, v) for v in x], dtype)


def members(dtype: DType) -> numpy.ndarray:
    among = {as_float(v) for v in numbers_of(Y(dtype)[:12])}
    wanted = [as_float(v) for v in numbers_of(X(dtype))]
    return numpy.array([not math.isnan(v) and v in among for v in wanted])


ORDER = {
    "argsort": Case(
        lambda t: np.argsort(repeated(t)), lambda t: numpy.array(sorted_places(repeated(t))), "E10"
    ),
    "sort": Case(
        lambda t: np.sort(repeated(t)),
        lambda t: of_words([word_list(repeated(t))[i] for i in sorted_places(repeated(t))], t),
        "E10",
    ),
    "argmax": Case(lambda t: np.argmax(repeated(t)), extreme(1), "E10"),
    "argmin": Case(lambda t: np.argmin(repeated(t)), extreme(-1), "E10"),
    "searchsorted": Case(lambda t: np.searchsorted(in_order(t), X(t), side="right"), places, "E10"),
    "isin": Case(lambda t: np.isin(X(t), Y(t)[:12]), members, "E10"),
    "unique_all": unique("unique_all", 0, 1, 2),
    "unique_counts": unique("unique_counts", 2),
    "unique_inverse": unique("unique_inverse", 1),
    "unique_values": unique("unique_values"),
}

# ---- moved bits --------------------------------------------------------------------------------------


def matrix(dtype: DType) -> np.Array:
    return drawn(dtype, (2, 12), 8)


def moved(call: Callable[[Any, Any], Any]) -> Case:
    """As NumPy moves unsigned integers of the width."""

    def expected(dtype: DType) -> Any:
        bits = numpy.ascontiguousarray(matrix(dtype).bits.data).view(f"u{dtype.itemsize}")
        return of_moved(call(numpy, bits), dtype)

    return Case(lambda dtype: call(np, matrix(dtype)), expected, MOVED)


def of_moved(found: Any, dtype: DType) -> Any:
    if isinstance(found, tuple | list):
        return type(found)(of_moved(v, dtype) for v in found)
    if found.dtype != numpy.dtype(f"u{dtype.itemsize}"):
        return found
    return np.Array(ops.Bits(numpy.ascontiguousarray(found).view(dtype.storage), dtype))


MASK = numpy.arange(24).reshape(2, 12) % 3 == 0

MOVEMENT = {
    "asarray": moved(lambda xp, x: xp.asarray(x)),
    "empty_like": moved(lambda xp, x: xp.zeros_like(x)),  # our memory is never what was there before
    "from_dlpack": Case(  # that knows some narrow types only: their storage words
        lambda t: np.from_dlpack(np.asarray(word_list(matrix(t)))),
        lambda t: numpy.array(word_list(matrix(t))),
        MOVED,
    ),
    "meshgrid": moved(lambda xp, x: tuple(xp.meshgrid(x[0], x[1, :2], indexing="ij"))),
    "where": moved(lambda xp, x: xp.where(xp.asarray(MASK), x, xp.flip(x))),
    "zeros_like": moved(lambda xp, x: xp.zeros_like(x)),
}
LINALG_MOVEMENT = {"diagonal": moved(lambda xp, x: xp.linalg.diagonal(x, offset=1))}

# ---- values rounded once (C1) ------------------------------------------------------------------------

# Halfway between neighbours of a type but for a little, which a rounding to float32 on the way loses.
TIES = [1 + 2.0**-p + s * 2.0**-45 for p in (3, 4, 5, 8, 9, 11, 12) for s in (-1, 0, 1)]
BEYOND = [247.9, 248.0, 1e5, -3e9, 1e-9, -0.0, math.inf, math.nan]


def created(call: Callable[[DType], Any], values: Callable[[], Sequence[Fraction | float]]) -> Case:
    return Case(call, lambda t: exactly(values(), t), CREATED)


def line(start: float, stop: float, count: int) -> list[Fraction]:
    step = (Fraction(stop) - Fraction(start)) / (count - 1)
    return [Fraction(start) + i * step for i in range(count)]


def frequencies(numerators: Sequence[int], distance: float) -> list[Fraction]:
    return [Fraction(k) / (7 * Fraction(distance)) for k in numerators]


CREATION = {
    "arange": created(
        lambda t: np.arange(0.1, 3.0, 0.3, dtype=t),
        lambda: [Fraction(0.1) + i * Fraction(0.3) for i in range(10)],
    ),
    "astype": created(
        lambda t: np.astype(np.asarray(TIES + BEYOND, dtype=np.float64), t), lambda: TIES + BEYOND
    ),
    "empty": created(lambda t: np.empty(3, dtype=t), lambda: [0.0] * 3),
    "eye": created(lambda t: np.eye(3, dtype=t).reshape(-1), lambda: [1.0, 0.0, 0.0, 0.0] * 2 + [1.0]),
    "full": created(lambda t: np.full(2, TIES[4], dtype=t), lambda: [TIES[4]] * 2),
    "full_like": created(lambda t: np.full_like(np.zeros(2, dtype=t), TIES[7]), lambda: [TIES[7]] * 2),
    "linspace": created(lambda t: np.linspace(-0.7, 9.1, 31, dtype=t), lambda: line(-0.7, 9.1, 31)),
    "ones": created(lambda t: np.ones(2, dtype=t), lambda: [1.0, 1.0]),
    "ones_like": created(lambda t: np.ones_like(np.zeros(2, dtype=t)), lambda: [1.0, 1.0]),
    "zeros": created(lambda t: np.zeros(2, dtype=t), lambda: [0.0, 0.0]),
    "imag": created(lambda t: np.imag(np.ones(2, dtype=t)), lambda: [0.0, 0.0]),
}
FFT_CREATION = {
    "fftfreq": created(
        lambda t: np.fft.fftfreq(7, 0.3, dtype=t), lambda: frequencies((0, 1, 2, 3, -3, -2, -1), 0.3)
    ),
    "rfftfreq": created(
        lambda t: np.fft.rfftfreq(7, 0.3, dtype=t), lambda: frequencies((0, 1, 2, 3), 0.3)
    ),
}

# ---- the table ---------------------------------------------------------------------------------------

CASES: dict[str, Case] = {
    **(ELEMENTWISE | REDUCTIONS | PRODUCTS | ORDER | MOVEMENT | CREATION),
    **{f"linalg.{n}": c for n, c in (LINALG | LINALG_MOVEMENT).items()},
    **{f"fft.{n}": c for n, c in FFT_CREATION.items()},
}

# What has no case, and why.
INTEGERS_ONLY = "of integers and bool: a narrow float is refused"
OF_TYPES = "of types or shapes, not of elements: test_array_types.py, test_array_info.py"
DECOMPOSITION = "a decomposition, the host's (H1): test_array_linalg.py"
TRANSFORM = "a Fourier transform, the host's (H1): test_array_fft.py"
STRICTS = "array_api_strict's own"
MOVED_ELSEWHERE = "of every type: test_array_manipulation.py, _index_functions.py, _creation.py"
IN_STEPS = "the twin's steps: test_array_linalg.py"
SHIFTED = "of every kind of type: test_array_fft.py"
WITHOUT_CASE: dict[str, Sequence[str]] = {
    INTEGERS_ONLY: (
        *("bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or"),
        *("bitwise_right_shift", "bitwise_xor"),
    ),
    OF_TYPES: (
        *("broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type"),
        "__array_namespace_info__",
    ),
    DECOMPOSITION: [
        f"linalg.{n}"
        for n in (
            *("cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_rank", "pinv", "qr"),
            *("slogdet", "solve", "svd", "svdvals"),
        )
    ],
    TRANSFORM: [
        f"fft.{n}"
        for n in ("fft", "fftn", "hfft", "ifft", "ifftn", "ihfft", "irfft", "irfftn", "rfft", "rfftn")
    ],
    MOVED_ELSEWHERE: (
        *("broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "matrix_transpose"),
        *("moveaxis", "nonzero", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack"),
        *("take", "take_along_axis", "tile", "tril", "triu", "unstack", "linalg.matrix_transpose"),
    ),
    IN_STEPS: ("linalg.matrix_power", "linalg.vector_norm", "linalg.matrix_norm"),
    SHIFTED: ("fft.fftshift", "fft.ifftshift"),
    STRICTS: (
        *("ArrayAPIStrictFlags", "Device", "get_array_api_strict_flags"),
        *("reset_array_api_strict_flags", "set_array_api_strict_flags"),
    ),
}
