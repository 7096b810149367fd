"""NumPy's random generators, whose draws are rounded once to a type of neuronsim.

NumPy draws, in float64 or in exact integers; each float is then rounded once (C1) to `dtype`, the
default float type if None. So a seed gives NumPy's numbers, rounded. A number below 1 may round to 1:
`random` in bfloat16 gives 1.0 for draws of 1 - 2**-9 and more.

>>> rng = default_rng(0)
>>> rng.normal(size=3, dtype="bfloat16")
Array([ 0.126, -0.132,  0.64 ], dtype=bfloat16)
>>> rng.integers(10, size=3).dtype
neuronsim.int64
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import MT19937 as MT19937
from numpy.random import PCG64 as PCG64
from numpy.random import PCG64DXSM as PCG64DXSM
from numpy.random import SFC64 as SFC64
from numpy.random import BitGenerator as BitGenerator
from numpy.random import Philox as Philox
from numpy.random import SeedSequence as SeedSequence

from neuronsim import ops
from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.array_object import Array, exact_values
from neuronsim.arrays.conversion import asarray, convert, native, write
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.dtypes import DTypeLike
from neuronsim.errors import REFUSALS, InvalidArgument, refusal
from neuronsim.processor import interruptible, pinned

# The distributions of numpy.random.Generator by what they draw.
_FLOATS = (
    *("beta", "chisquare", "dirichlet", "exponential", "f", "gamma", "gumbel", "laplace", "logistic"),
    *("lognormal", "multivariate_normal", "noncentral_chisquare", "noncentral_f", "normal", "pareto"),
    *("power", "random", "rayleigh", "standard_cauchy", "standard_exponential", "standard_gamma"),
    *("standard_normal", "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull"),
)
_INTEGERS = (
    *("binomial", "geometric", "hypergeometric", "logseries", "multinomial", "negative_binomial"),
    *("poisson", "zipf"),
)
# Each of whose draws is as many numbers as its parameters.
_OF_VECTORS = ("dirichlet", "multinomial", "multivariate_normal")
_OPERATIONS = 8  # of a drawn number, some nanoseconds
# Which of a method's positional arguments is NumPy's dtype.
_DTYPE_AT = {"random": 1, "standard_normal": 1, "standard_exponential": 1, "standard_gamma": 2}
# The names that RandomState has for the uniform and the normal distribution.
_LEGACY_FLOATS = ("rand", "randn", "random_sample")


def _host(x: Any) -> Any:
    """A parameter with its Arrays as ndarrays of their exact values."""
    if isinstance(x, Array):
        return exact_values(x)
    return type(x)(map(_host, x)) if isinstance(x, list | tuple) else x


def _probabilities(p: Any) -> Any:
    """Exact float64 probabilities; those of an Array, whose sum is 1 only within the error of their
    type, are divided by their sum, since NumPy asks for 1 within float64's.
    """
    exact = _host(p)
    if not isinstance(p, Array) or not p.dtype.exponent_bits:
        return exact
    total = exact.sum(axis=-1, keepdims=True)
    return np.where(abs(total - 1) <= p.dtype.eps**0.5, exact / total, exact)


def _drawn(values: Any, dtype: DTypeLike | None) -> Array:
    """NumPy's draw in a type: float64 rounded once, int64 kept."""
    x = asarray(np.asarray(values))
    if dtype is not None:
        return convert(x, array_type(dtype))
    return convert(x, default_dtype()) if x.dtype.kind == "float" else x


def _count(size: Any) -> int:
    """The elements of a shape, 1 of what is none."""
    lengths = size if isinstance(size, tuple | list) else (size,)
    whole = all(isinstance(n, int | np.integer) for n in lengths)
    return max(math.prod(map(int, lengths)), 1) if whole else 1


def _draw(draw: Callable[..., Any], count: int, *args: Any, **options: Any) -> Any:
    """What a function of NumPy's draws, not waited for after an interrupt if that is many elements."""
    with _refusals(draw.__name__):
        return interruptible(_OPERATIONS * count, draw, *args, **options)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        raise refusal(name, error) from error


def _method(name: str, draws: str, source: type) -> Callable[..., Array]:
    at = _DTYPE_AT.get(name)
    arguments = (getattr(source, name).__doc__ or "").strip().partition("\n")[0]
    names = [a.partition("=")[0].strip(" )") for a in arguments.partition("(")[2].split(",")]
    size_at = names.index("size") if "size" in names else None

    def method(self: Any, *args: Any, dtype: DTypeLike | None = None, **options: Any) -> Array:
        if options.pop("out", None) is not None:
            raise InvalidArgument(f"{name}: there is no out=: assign the result, x[...] = ...")
        if at is not None and len(args) > at:
            dtype, args = args[at], args[:at] + args[at + 1 :]
        given = {key: (_probabilities if key == "pvals" else _host)(v) for key, v in options.items()}
        if name == "multinomial" and len(args) > 1:
            args = (args[0], _probabilities(args[1]), *args[2:])
        hosted = tuple(map(_host, args))
        if size_at is None:
            size: Any = hosted  # rand(2, 3)
        else:
            size = given.get("size", hosted[size_at] if len(hosted) > size_at else None)
        parameters = max((np.size(v) for v in (*hosted, *given.values()) if v is not size), default=1)
        n = _count(size)
        n = n * parameters if name in _OF_VECTORS else max(n, parameters)
        return _drawn(_draw(getattr(self._source, name), n, *hosted, **given), dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"numpy.random.{source.__name__}.{arguments}, {draws}."
    return method


class _Draws:
    """What Generator and RandomState share: NumPy's object, which draws, and the order of arrays."""

    _source: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Array]: ...  # the distributions

    def bytes(self, length: int) -> bytes:
        """Random bytes."""
        with _refusals("bytes"):
            drawn: bytes = self._source.bytes(length)
        return drawn

    def shuffle(self, x: Any, *args: Any, **options: Any) -> None:
        """Shuffles an Array, or a list, along its first axis, in place; moves bits."""
        with _refusals("shuffle"):
            self._source.shuffle(x.bits.data if isinstance(x, Array) else x, *args, **options)

    def permutation(self, x: Any, *args: Any, **options: Any) -> Array:
        """A shuffled copy of an array, or of the integers below `x`; moves bits."""
        return self._moved("permutation", x, *args, **options)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, *args: Any, **options: Any
    ) -> Array:
        """Elements of an array, or integers below `a`, each as likely as `p` says; moves bits. The
        probabilities of an Array are divided by their sum, which is 1 within the error of its type.
        """
        chances = None if p is None else _probabilities(p)
        return self._moved("choice", a, size, replace, chances, *args, **options)

    def _moved(self, name: str, x: Any, *args: Any, **options: Any) -> Array:
        draw = getattr(self._source, name)
        n = _count(options["size"] if "size" in options else args[0] if args else None)
        if isinstance(x, int | np.integer):
            return asarray(np.asarray(_draw(draw, max(n, int(x)), x, *args, **options)))
        a = asarray(x)
        if a.ndim == 0:
            return self._moved(name, a.item(), *args, **options)
        moved = _draw(draw, max(n, a.size), a.bits.data, *args, **options)
        return Array(ops.Bits(np.asarray(moved), a.dtype))


class Generator(_Draws):
    """NumPy's Generator; what it draws are Arrays. Make one with `default_rng`.

    Floats are drawn in float64 and rounded once to `dtype=`, the default float type if None.
    """

    def __init__(self, bit_generator: BitGenerator) -> None:
        with _refusals("Generator"):
            self._source = np.random.Generator(bit_generator)

    @property
    def bit_generator(self) -> BitGenerator:
        """NumPy's bit generator, with its state."""
        generator: BitGenerator = self._source.bit_generator
        return generator

    def spawn(self, n_children: int) -> list[Generator]:
        """Generators that are independent of this one and of each other."""
        with _refusals("spawn"):
            return [Generator(child.bit_generator) for child in self._source.spawn(n_children)]

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
    ) -> Array:
        """Integers of [low, high), or of [0, low), or with `endpoint` of [low, high]; exact."""
        return _integers(self._source.integers, low, high, size, dtype, endpoint)

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Array:
        """A copy whose elements are shuffled along an axis, each slice by itself; moves bits."""
        found = self._moved("permuted", x, axis=axis)
        return found if out is None else write(out, found)

    def multivariate_hypergeometric(self, *args: Any, **options: Any) -> Array:
        """numpy.random.Generator.multivariate_hypergeometric, exact integers."""
        given = {key: native(v) for key, v in options.items()}
        with _refusals("multivariate_hypergeometric"):
            drawn = self._source.multivariate_hypergeometric(*map(native, args), **given)
        return _drawn(drawn, None)

    def __repr__(self) -> str:
        return f"Generator({type(self.bit_generator).__name__})"


def _integers(
    draw: Callable[..., Any], low: Any, high: Any, size: Any, dtype: DTypeLike, *endpoint: bool
) -> Array:
    target = array_type(dtype)
    if target.kind not in ("signed", "unsigned", "bool"):
        raise InvalidArgument(f"integers are drawn in an integer type, not {target.name}: use astype")
    bounds = tuple(np.asarray(v) if isinstance(v, Array) else v for v in (low, high))
    n = max(_count(size), *map(np.size, bounds))
    return asarray(np.asarray(_draw(draw, n, *bounds, size, target.numpy, *endpoint)))


class RandomState(_Draws):
    """NumPy's legacy generator; what it draws are Arrays, floats rounded once to `dtype=`."""

    def __init__(self, seed: Any = None) -> None:
        with _refusals("RandomState"):
            self._source = np.random.RandomState(seed)

    def seed(self, seed: Any = None) -> None:
        """Starts again from a seed."""
        with _refusals("seed"):
            self._source.seed(seed)

    def get_state(self, legacy: bool = True) -> Any:
        """The state, as NumPy's function of this name gives it."""
        return self._source.get_state(legacy)

    def set_state(self, state: Any) -> None:
        """Puts a state of `get_state` back, NumPy's too."""
        with _refusals("set_state"):
            self._source.set_state(state)

    def randint(
        self, low: Any, high: Any = None, size: Any = None, dtype: DTypeLike = np.int64
    ) -> Array:
        """Integers of [low, high), or of [0, low); exact."""
        return _integers(self._source.randint, low, high, size, dtype)


_ROUNDED = "in float64, rounded once to dtype"
_EXACT = "exact integers; rounded to dtype if it is given"
for _name in _FLOATS:
    setattr(Generator, _name, _method(_name, _ROUNDED, np.random.Generator))
for _name in _INTEGERS:
    setattr(Generator, _name, _method(_name, _EXACT, np.random.Generator))
for _name in (*_FLOATS, *_LEGACY_FLOATS):
    setattr(RandomState, _name, _method(_name, _ROUNDED, np.random.RandomState))
for _name in _INTEGERS:
    setattr(RandomState, _name, _method(_name, _EXACT, np.random.RandomState))
for _class in (_Draws, Generator, RandomState):
    pinned(_class)


@pinned
def default_rng(seed: Any = None) -> Generator:
    """A Generator from a seed, as NumPy's default_rng makes it; a Generator is returned as it is."""
    if isinstance(seed, Generator):
        return seed
    given = np.asarray(seed) if isinstance(seed, Array) else seed
    with _refusals("default_rng"):
        return Generator(np.random.default_rng(given).bit_generator)


# The functions of the module draw from one RandomState, which is not NumPy's own.
_SHARED = RandomState()
_SHARED_NAMES = (
    *_FLOATS,
    *_INTEGERS,
    *_LEGACY_FLOATS,
    *("bytes", "choice", "get_state", "permutation", "randint", "seed", "set_state", "shuffle"),
)
globals().update({name: getattr(_SHARED, name) for name in _SHARED_NAMES})

# NumPy's sources of bits, as they are.
_SOURCES = ("BitGenerator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence")

__all__ = [
    *_SHARED_NAMES,
    *_SOURCES,
    *("Generator", "RandomState", "default_rng"),
]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Array]: ...  # the functions of _SHARED_NAMES

else:
    __getattr__ = refuse("numpy.random", __all__)
    __dir__ = __all__.copy
