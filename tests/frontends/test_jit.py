"""`neuronsim.jit`: what is traced has the bits that it has without, and what cannot be says so where it
stands.
"""

from __future__ import annotations

import doctest
import importlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.support.commands import Commands
from tests.support.parameters import each_of
from tests.support.scripts import load_script

import neuronsim as np
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    NeuronSimError,
    UnknownValue,
    UnsupportedType,
)
from neuronsim.frontends.pytrees import flatten
from neuronsim.just_in_time import CompiledFunction

FOLDER = Path(__file__).parents[2] / "examples" / "arrays"


@cache
def example(name: str) -> Any:
    return load_script(FOLDER / f"{name}.py")


def drawn(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return np.asarray(numpy.random.default_rng(sum(shape)).uniform(low, high, shape)).astype(
        np.default_dtype()
    )


def black_scholes() -> tuple[Any, ...]:
    return drawn(9, low=80, high=120), drawn(4, 1, low=0.25, high=2), drawn(9, low=0.2, high=0.4)


def transformer() -> dict[str, Any]:
    shapes = dict.fromkeys("qkvo", (64, 64)) | {"up": (64, 256), "down": (256, 64)}
    return {name: drawn(*shape, low=-0.2, high=0.2) for name, shape in shapes.items()}


def lstm() -> dict[str, Any]:
    return {"x": drawn(1, 96), "h": drawn(24, 96, low=-0.4, high=0.4), "b": drawn(96)}


def network() -> dict[str, Any]:
    return {"w1": drawn(64, 32), "b1": drawn(32), "w2": drawn(32, 10), "b2": drawn(10)}


def board() -> Any:
    return np.asarray(numpy.random.default_rng(0).random((12, 16)) < 0.4)


LABELS = numpy.arange(50) % 10
TRACED: dict[str, Callable[[], tuple[Any, ...]]] = {
    "attention.softmax": lambda: (drawn(5, 7),),
    "attention.layer_norm": lambda: (drawn(5, 64),),
    "attention.gelu": lambda: (drawn(33),),
    "attention.positions": lambda: (),
    "attention.attention": lambda: (transformer(), drawn(24, 64)),
    "attention.block": lambda: (transformer(), drawn(24, 64)),
    "black_scholes.erf": lambda: (drawn(33),),
    "black_scholes.normal": lambda: (drawn(33),),
    "black_scholes.terms": black_scholes,
    "black_scholes.call": black_scholes,
    "black_scholes.put": black_scholes,
    "black_scholes.vega": black_scholes,
    "black_scholes.implied": lambda: (drawn(4, 9, low=3, high=9), *black_scholes()[:2]),
    "convolution.convolve": lambda: (drawn(2, 9, 8), drawn(3, 3)),
    "convolution.gaussian": lambda: (2, 1.2),
    "convolution.max_pool": lambda: (drawn(2, 8, 12), 4),
    "convolution.enlarge": lambda: (drawn(2, 4, 3), 3),
    "game_of_life.neighbours": lambda: (board(),),
    "game_of_life.step": lambda: (board(),),
    "gaussian_process.curve": lambda: (drawn(9),),
    "gaussian_process.kernel": lambda: (drawn(5), drawn(7), 0.6),
    "kmeans.squared_distances": lambda: (drawn(20, 6), drawn(4, 6)),
    "lstm.sigmoid": lambda: (drawn(9),),
    "lstm.cell": lambda: (lstm(), drawn(1, 1), drawn(1, 24), drawn(1, 24)),
    "lstm.run": lambda: (lstm(), drawn(6)),
    "mlp.forward": lambda: (network(), drawn(50, 64)),
    "mlp.gradients": lambda: (network(), drawn(50, 64), np.asarray(LABELS)),
}
REFUSED: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "gaussian_process.fit": (lambda: (drawn(9), drawn(9), 0.6), "cholesky"),
    "gaussian_process.predict": (lambda: (drawn(5), drawn(7), 0.6, drawn(5, 5), drawn(5)), "solve"),
    "lstm.readout": (lambda: (drawn(9, 24), drawn(9), 0.05), "solve"),
    "kmeans.first_centres": (lambda: (drawn(20, 6), numpy.random.default_rng(0)), "needs the values"),
    "game_of_life.is_glider": (lambda: (board(),), "needs the values"),
}


@contextmanager
def default_type(name: str) -> Iterator[None]:
    before = np.default_dtype()
    np.set_default_dtype(name)
    try:
        yield
    finally:
        np.set_default_dtype(before)


SETTINGS: dict[str, Callable[[], Any]] = {
    "float32": nullcontext,
    "bfloat16": lambda: default_type("bfloat16"),
    "profile": lambda: np.use_profile(subnormals="flush", divide="reciprocal_multiply"),
}


def equal_bits(found: Any, expected: Any) -> None:
    ours, ours_tree = flatten(found)
    theirs, their_tree = flatten(expected)
    assert ours_tree == their_tree
    for a, b in zip(ours, map(np.asarray, theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


@each_of("setting", SETTINGS)
@each_of("name", TRACED)
def test_functions_of_the_examples_have_the_eager_bits(name: str, setting: str) -> None:
    module, _, function = name.partition(".")
    plain = getattr(example(module), function)
    with SETTINGS[setting]():
        expected = plain(*TRACED[name]())
        equal_bits(np.jit(plain)(*TRACED[name]()), expected)


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_need_values_are_refused_where_they_do(name: str) -> None:
    module, _, function = name.partition(".")
    arguments, said = REFUSED[name]
    with pytest.raises(NeuronSimError, match=said) as caught:
        np.jit(getattr(example(module), function))(*arguments())
    assert f"{module}.py:" in str(caught.value)


# Functions of x, y: float[3,4], s: float[4,4], p: above 0, v: float[5], n: int32[3,4], i: two indices,
# m: a mask.
EXPRESSIONS = """
    x[i - 3] | x[i - 3, i] | np.take(x, i - 3, axis=0) | np.take_along_axis(x, n % 4 - 4, axis=1)
    x+y | x-y | x*y | x/y | x//y | x%y | x**2 | p**y | -x | abs(x) | +x | x<y | x<=1 | x==y
    x!=y | x>y | n&3 | n^n | ~n | n<<1 | n>>1 | divmod(x,y) | x@s | x.T | x.mT | x[0]
    x[:,1:3] | x[::-1] | x[...,None] | x[i] | x[i,1] | x[:,i] | x[i,i] | x[np.asarray([2,0])]
    x[0,i] | np.exp(x) | np.log(p) | np.sqrt(p) | np.tanh(x) | np.sin(x) | np.exp2(x)
    np.log2(p) | np.log10(p) | np.atan(x) | np.erf(x) | np.erfc(x) | np.sigmoid(x) | np.gelu(x)
    np.silu(x) | np.softplus(x) | np.mish(x) | np.hypot(x,y) | np.logaddexp(x,y)
    np.copysign(x,y) | np.nextafter(x,y) | np.signbit(x) | np.isnan(x) | np.isinf(x)
    np.isfinite(x) | np.sign(x) | np.trunc(x) | np.floor(x) | np.ceil(x) | np.rint(x)
    np.round(x,1) | np.reciprocal(x) | np.square(x) | np.cbrt(x) | np.expm1(x) | np.log1p(p)
    np.atan2(x,y) | np.maximum(x,y) | np.minimum(x,0) | np.fmax(x,y) | np.fmin(x,y)
    np.clip(x,-1,1) | np.where(m,x,y) | np.heaviside(x,y) | np.deg2rad(x) | np.sinc(x)
    np.float_power(p,y) | np.fabs(x) | np.logical_and(m,x) | np.logical_not(x)
    np.logical_xor(m,m) | np.bitwise_count(n) | np.isclose(x,y) | np.modf(x) | np.spacing(x)
    np.positive(x) | np.isposinf(x) | np.angle(x) | np.sum(x) | np.sum(x,axis=0)
    np.sum(x,axis=1,keepdims=True) | np.sum(n) | np.sum(m) | np.prod(x,axis=1) | np.max(x)
    np.min(x,axis=0) | np.mean(x) | np.mean(x,axis=1) | np.var(x,axis=0) | np.std(x)
    np.any(m) | np.all(m,axis=0) | np.count_nonzero(m) | np.ptp(x,axis=0) | np.sum(x,where=m)
    np.argmax(x) | np.argmax(x,axis=1) | np.argmin(x,axis=0) | np.cumsum(x,axis=1)
    np.cumprod(x,axis=0) | np.cumulative_sum(v) | np.diff(x) | np.cov(x) | np.corrcoef(x)
    np.average(x,weights=p) | np.average(x,axis=1,weights=p[0],returned=True)
    np.cov(x,aweights=p[0]) | np.cov(x,fweights=abs(n[0])+1,aweights=p[1],ddof=0)
    np.sort(x) | np.sort(x,axis=0,descending=True) | np.argsort(x) | np.sort(x,axis=0)
    np.argsort(x,descending=True) | np.partition(x,1) | np.top_k(x,2) | np.reshape(x,(4,3))
    np.ravel(x) | np.transpose(x) | np.swapaxes(x,0,1) | np.moveaxis(x,0,1) | np.flip(x)
    np.flip(x,axis=0) | np.roll(x,2) | np.roll(x,1,axis=1) | np.rot90(x)
    np.concatenate([x,y]) | np.concat([x,y],axis=1) | np.stack([x,y]) | np.hstack([x,y])
    np.vstack([x,y]) | np.dstack([x,y]) | np.column_stack([v,v]) | np.split(x,2,axis=1)
    np.array_split(v,3) | np.tile(x,(2,1)) | np.repeat(x,2,axis=0) | np.expand_dims(x,1)
    np.squeeze(x[None]) | np.broadcast_to(v,(2,5)) | np.pad(x,1) | np.pad(x,1,mode='edge')
    np.pad(x,1,mode='reflect') | np.pad(x,((1,0),(0,2)),constant_values=3) | np.tril(x)
    np.triu(x,1) | np.diag(v) | np.diag(s) | np.diagonal(s) | np.trace(s) | np.eye(3)*v[0]
    np.meshgrid(v,v) | np.take(x,i,axis=0) | np.take(x,i)
    np.take_along_axis(x,np.argsort(x),axis=1) | np.insert(v,1,x[0,0]) | np.append(x,y)
    np.delete(v,1) | np.atleast_2d(v) | np.unstack(x) | np.block([[x,y],[y,x]])
    np.resize(v,(2,4)) | np.atleast_1d(x[0,0]) | np.flipud(x) | np.copy(x) | x.copy()
    x.astype('bfloat16') | x.astype('int32') | n.astype('float32') | np.asarray(x)
    np.astype(x,np.float16) | np.zeros_like(x) | np.ones_like(x) | np.full_like(x,2)
    np.empty_like(x)*0 | np.select([m],[x],0) | np.triu_indices(3) | x.flatten()
    np.real(x) | np.conj(x) | np.matmul(x,s) | np.dot(x,s) | np.inner(x,y)
    np.outer(v,v) | np.tensordot(x,s,axes=1) | np.vecdot(x,y) | np.einsum('ij,jk->ik',x,s)
    np.einsum('ij->j',x) | np.kron(x,s) | np.cross(x[:,:3],y[:,:3]) | np.linalg.norm(x)
    np.linalg.norm(x,axis=1) | np.linalg.vector_norm(x) | np.matvec(s,s[0])
    np.linalg.matrix_norm(x) | np.convolve(v,v) | np.gradient(v) | np.trapezoid(v)
    np.polyval(v,x) | np.linalg.matrix_power(s,3) | np.nn.softmax(x)
    np.nn.log_softmax(x,axis=0) | np.nn.relu(x) | np.nn.layer_norm(x,(4,))
    np.nn.rms_norm(x,(4,)) | np.nn.logsumexp(x,axis=1) | np.nn.elu(x) | np.nn.leaky_relu(x)
    np.nn.linear(x,s) | np.nn.conv2d(x[None,None],s[None,None,:2,:2])
    np.nn.conv1d(x[None],s[None,:3,:2]) | np.nn.one_hot(n%3,3) | np.nn.embedding(n%3,s)
    np.nn.batch_norm(x,v[:4],p[0]) | np.digitize(x,[-1,0,1]) | np.interp(x,np.sort(v),v)
"""
NEED_VALUES = """
    np.allclose(x, y) | np.array_equal(x, y) | np.unique(n) | np.nonzero(n) | np.extract(m, x) | x[m]
    np.linalg.solve(s, s) | np.linalg.inv(s) | np.histogram(v) | np.fft.fft(v) | np.digitize(x, v)
    float(x[0, 0]) | int(n[0, 0]) | bool(m[0, 0]) | x.tolist() | [0, 1][n[0, 0]] | numpy.asarray(x)
"""
NAMES = "x y s p v n i m"


def function_of(expression: str) -> Callable[..., Any]:
    found: Callable[..., Any] = eval(
        f"lambda {', '.join(NAMES.split())}: {expression}", {"np": np, "numpy": numpy}
    )
    return found


def listed(table: str) -> list[str]:
    return [e.strip() for line in table.strip().splitlines() for e in line.split(" | ")]


@cache
def operands(dtype: str) -> tuple[Any, ...]:
    draw = numpy.random.default_rng(0)
    floats = [draw.standard_normal(shape) for shape in ((3, 4), (3, 4), (4, 4), (3, 4), (5,))]
    floats[3] = numpy.abs(floats[3]) + 0.5
    n, i, m = draw.integers(-5, 9, (3, 4)), draw.integers(0, 3, 2), draw.random((3, 4)) < 0.5
    return (
        *(np.asarray(f, dtype) for f in floats),
        np.asarray(n, "int32"),
        np.asarray(i),
        np.asarray(m),
    )


@each_of("dtype", ["float32", "bfloat16"])
@each_of("expression", listed(EXPRESSIONS))
def test_traced_functions_have_the_eager_bits(expression: str, dtype: str) -> None:
    function = function_of(expression)
    try:
        expected = function(*operands(dtype))
    except NeuronSimError as error:  # then it is refused traced too
        with pytest.raises(type(error)):
            np.jit(function)(*operands(dtype))
        return
    equal_bits(np.jit(function)(*operands(dtype)), expected)


@each_of("expression", listed(NEED_VALUES))
def test_functions_of_values_are_refused(expression: str) -> None:
    with pytest.raises(UnknownValue, match="needs the values of a traced array"):
        np.jit(function_of(expression))(*operands("float32"))


DEVICE_TYPES = [name for name, t in np.dtypes.DTYPES.items() if t.device and name != "tfloat32"]
ORDERS: dict[str, Callable[[Any], Any]] = {
    "searchsorted": lambda a: [
        np.searchsorted(np.sort(a[0]), a, side=side) for side in ("left", "right")
    ],
    "searchsorted by a sorter": lambda a: np.searchsorted(a[1], a, sorter=np.argsort(a[1])),
    "lexsort": lambda a: [np.lexsort((a, a[:, ::-1]), axis=axis) for axis in (0, -1)],
    "median": lambda a: [np.median(a), np.median(a, axis=0, keepdims=True)],
    "nanmedian": lambda a: [np.nanmedian(a), np.nanmedian(a, axis=1)],
    **{
        f"{name} {method}": lambda a, name=name, method=method: [
            getattr(np, name)(a, [[0.3, 1.0], [0.0, 0.77]], axis=axis, method=method, keepdims=True)
            for axis in (0, None)
        ]
        for name in ("quantile", "nanquantile")
        for method in ("linear", "nearest", "averaged_inverted_cdf", "weibull")
    },
    "percentile": lambda a: [np.percentile(a, 40, axis=1), np.nanpercentile(a, 40, axis=1)],
}


def with_ties(dtype: str, *shape: int) -> Any:
    """Few values, each many times, with both zeros and, in floats, infinities and NaN."""
    draw = numpy.random.default_rng(len(dtype))
    values = draw.choice([-2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 7.0], shape)
    if np.dtypes.DTYPES[dtype].exponent_bits:
        values[draw.random(shape) < 0.2] = numpy.nan
        values[:, 2][draw.random(shape[0]) < 0.4] = numpy.inf
        values[0] = -numpy.nan
        values[1] = 0.5
    return (
        np.asarray(values).astype("int64").astype(dtype)
        if dtype[0] == "u"
        else np.asarray(values).astype(dtype)
    )


@pytest.mark.filterwarnings("ignore:a quantile of nothing but NaN")
@each_of("dtype", DEVICE_TYPES)
@each_of("name", ORDERS)
def test_orders_of_traced_values_have_the_eager_bits(name: str, dtype: str) -> None:
    a = with_ties(dtype, 6, 5)
    equal_bits(np.jit(ORDERS[name])(a), ORDERS[name](a))


def _written(function: Callable[..., Any]) -> Callable[[Any], Any]:
    def written(a: Any) -> Any:
        found = np.copy(a)
        function(found)
        return found

    return written


PLACES = numpy.random.default_rng(3).integers(-5, 5, (6, 2))
OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda a, name=name: [
            getattr(np, name)(a),
            getattr(np, name)(a, axis=0),
            getattr(np, name)(a, axis=1, keepdims=True),
        ]
        for name in ("nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nansum", "nanprod")
    },
    "less a correction": lambda a: [np.nanvar(a, ddof=1), np.nanstd(a, axis=1, ddof=4)],
    "of the chosen": lambda a: [np.mean(a, where=a > 0), np.var(a, axis=0, where=a > 0)],
    "isin": lambda a: [
        np.isin(a, numpy.asarray([0.0, 2.0]).astype("uint8")),
        np.isin(a, a[0]),
        np.isin(a, a[1:3], invert=True),
        np.isin(a, []),
    ],
    "isin of what is known": lambda a: np.isin(np.asarray([0, 1, 9], "uint8"), a),
    "compress": lambda a: [
        np.compress([True, False, True], a, axis=0),
        np.compress([False, True], a),
        a.compress([], axis=1),
    ],
    "fill_diagonal": _written(lambda a: np.fill_diagonal(a, 1)),
    "fill_diagonal of a view": _written(lambda a: np.fill_diagonal(a[1:, :4], 1)),
    "fill_diagonal again below": _written(lambda a: np.fill_diagonal(a, a[0, :3], wrap=True)),
    "fill_diagonal with nothing": _written(lambda a: np.fill_diagonal(a, a[0, :0])),
    "put_along_axis": _written(lambda a: np.put_along_axis(a, PLACES, a[:, 3:], axis=-1)),
}


@pytest.mark.filterwarnings("ignore:(maximum|minimum) of nothing but NaN")
@each_of("dtype", DEVICE_TYPES)
@each_of("name", OF_NUMBERS)
def test_functions_of_those_elements_that_are_numbers_have_the_eager_bits(
    name: str, dtype: str
) -> None:
    a = with_ties(dtype, 6, 5)
    try:
        expected = OF_NUMBERS[name](a)
    except NeuronSimError as error:
        with pytest.raises(type(error)):
            np.jit(OF_NUMBERS[name])(a)
        return
    equal_bits(np.jit(OF_NUMBERS[name])(a), expected)


K = numpy.asarray([2, 0, 1, 2, 1])
FAR = numpy.asarray([4, -2, 0, 4, 9])
# Functions of a: [6, 5], and of traced K and FAR.
BY_PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "choose": lambda a, k, far: [
        np.choose(k, [a[0], a[1], a[2]]),
        np.choose(k, [a[0], a[1], 7], mode="wrap"),
        np.choose(k - 1, [a[0], a[1]], mode="clip"),
        np.choose(K, [a[0], a[1], a[2]]),
    ],
    "piecewise": lambda a, k, far: [
        np.piecewise(a, [a < 0, a > 1], [lambda v: v * v, 3, lambda v: v + v]),
        np.piecewise(a, [a > 0], [1]),
        np.piecewise(a, [numpy.arange(30).reshape(6, 5) > 9], [lambda v, w: v * w, 2], 1),
        np.piecewise(a[0, 0], [a[0, 0] > 0], [5, 1]),
    ],
    "select of what is known": lambda a, k, far: np.select([a > 0, a < 0], [numpy.arange(5) + 5, 7], 3),
    "piecewise of what is known": lambda a, k, far: np.piecewise(
        np.asarray(numpy.arange(30).reshape(6, 5), "float32"), [a > 0], [lambda v: -v, lambda v: v / 2]
    ),
    "put": lambda a, k, far: [
        written(a, lambda t: np.put(t, far, a[0])),
        written(a, lambda t: np.put(t, far + 40, [1, 0], mode="wrap")),
        written(a, lambda t: np.put(t, far * 10, [1, 0], mode="clip")),
        written(a, lambda t: np.put(t, [3, -1, 3], a[1, 1:3])),
        written(a, lambda t: np.put(t, [3, -1, 31], a[1, 1:3], mode="wrap")),
        written(a, lambda t: np.put(t.T, far, a[0])),
        written(a, lambda t: np.put(t, far, a[:0])),
        written(numpy.arange(9), lambda t: np.put(t, k, k + 10)),
    ],
    "putmask": lambda a, k, far: [
        written(a, lambda t: np.putmask(t, a > 0, a[0, :3])),
        written(a, lambda t: np.putmask(t[1:, :2], a[1:, 2:4] > 0, a[:2])),
        written(numpy.arange(30).reshape(6, 5), lambda t: np.putmask(t, a > 0, 7)),
    ],
    "place": lambda a, k, far: [
        written(a, lambda t: np.place(t, a > 0, a[1, :4])),
        written(numpy.arange(30), lambda t: np.place(t, a.reshape(-1) > 0, [7, 8])),
    ],
    "flat": lambda a, k, far: written(a, lambda t: t.flat.__setitem__(slice(2, 9), a[2, :2])),
    "histogram": lambda a, k, far: [
        *np.histogram(a, bins=[-2, -1, 0, 1, 7]),
        *np.histogram(a, 4, range=(-1, 2)),
        *np.histogram(a, [1.0]),
        *np.histogram(k, bins=3, range=(0, 2)),
        np.histogram(K, 3, range=(0, 2), weights=a[5])[0],
    ],
    "histogram by density": lambda a, k, far: np.histogram(a, 4, range=(-1, 2), density=True)[0],
    "histogram2d": lambda a, k, far: np.histogram2d(a[1], a[2], [[-2, 0, 1], [0, 1, 2, 7]])[0],
    "bincount": lambda a, k, far: [
        np.bincount(k, minlength=3),
        np.bincount(k.astype("uint8"), minlength=9),
        np.bincount(k > 1, minlength=2),
        np.bincount(k[:0], minlength=2),
    ],
    "nanargmax": lambda a, k, far: [
        [f(a[1:]), f(a[1:], axis=1), f(a[1:], axis=0, keepdims=True), f(a[1:], keepdims=True)]
        for f in (np.nanargmax, np.nanargmin)
    ],
    "arrays of arrays": lambda a, k, far: [
        np.asarray([a[0], a[1]]),
        np.asarray([[a[0, 0], 2], [a[1, 1], a[2, 2]]]),
        np.asarray((a[0, 1], k[0]), dtype="float32"),
        np.array([K, k]),
        np.max([a[0, 0], a[1, 1]]),
    ],
    "moveaxis": lambda a, k, far: [
        np.moveaxis(a[None], (0, 1), (2, 0)),
        np.moveaxis(a[None], [2, 0], [0, -1]),
    ],
    "meshgrid": lambda a, k, far: [
        *np.meshgrid(a[0], numpy.asarray([0, 1], "float32"), k),
        *np.meshgrid(numpy.asarray([0, 1], "int8"), a[0], indexing="ij", sparse=True),
    ],
    "fftshift": lambda a, k, far: [np.fft.fftshift(a), np.fft.ifftshift(a, axes=1)],
    "unravel_index": lambda a, k, far: [
        *np.unravel_index(k, (2, 4)),
        *np.unravel_index(k, (2, 4), order="F"),
        *np.unravel_index(k[0], 7),
        np.ravel_multi_index((k % 2, k), (2, 5)),
        np.ravel_multi_index((k, k - 3), (3, 2), mode=("clip", "wrap"), order="F"),
        np.ravel_multi_index((K % 2, k), (2, 5), mode="clip"),
    ],
}


def written(a: Any, function: Callable[[Any], Any]) -> Any:
    found = np.array(a)
    function(found)
    return found


@each_of("dtype", DEVICE_TYPES)
@each_of("name", BY_PLACES)
def test_choices_places_and_counts_have_the_eager_bits(name: str, dtype: str) -> None:
    a = with_ties(dtype, 6, 5)
    if np.dtypes.DTYPES[dtype].exponent_bits:  # a number in each row and column
        a = np.where(numpy.arange(30).reshape(6, 5) % 6 == 2, np.asarray(-1, dtype), a)
    given = a, np.asarray(K), np.asarray(FAR)
    try:
        expected = BY_PLACES[name](*given)
    except NeuronSimError as error:  # of uint64 beside int64
        with pytest.raises(type(error)):
            np.jit(BY_PLACES[name])(*given)
        return
    equal_bits(np.jit(BY_PLACES[name])(*given), expected)


@each_of("dtype", ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3"])
def test_parts_of_floats_have_the_eager_bits(dtype: str) -> None:
    own = np.dtypes.DTYPES[dtype]
    draw = numpy.random.default_rng(5)
    words = draw.integers(0, 1 << own.bits, 4096, dtype=f"u{own.itemsize}")
    x = np.append(
        np.frombuffer(words.tobytes(), dtype=dtype),
        np.asarray([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1.0, -0.75]).astype(dtype),
    )
    equal_bits(np.jit(lambda a: [*np.frexp(a)])(x), [*np.frexp(x)])


def test_parts_of_float32_subnormals_have_the_eager_bits() -> None:
    words = numpy.asarray([*(1 << n for n in range(24)), (1 << 23) - 1, 0x80000001], "uint32")
    x = np.asarray(words.view("float32"))
    equal_bits(np.jit(lambda a: [*np.frexp(a)])(x), [*np.frexp(x)])
    wide = np.asarray(numpy.asarray([5e-324, 1e-310, -0.0, 3.5, -1e300, numpy.inf]), "float64")
    equal_bits(np.jit(lambda a: [*np.frexp(a)], target="host")(wide), [*np.frexp(wide)])


def test_traced_places_beyond_an_end_are_the_nearest_or_dropped() -> None:
    k = np.asarray([-1, 0, 5])
    assert np.jit(lambda k: np.choose(k, [10, 20, 30]))(k).tolist() == [10, 10, 30]
    assert np.jit(lambda k: np.bincount(k, minlength=2))(k).tolist() == [1, 0]
    assert np.jit(lambda k: written([1, 2, 3], lambda t: np.put(t, k, 0)))(k).tolist() == [0, 2, 0]
    nothing = np.asarray([numpy.nan, numpy.nan])
    assert np.jit(np.nanargmax)(nothing).tolist() == 0


@pytest.mark.parametrize(
    "function",
    [lambda v: v - np.mean(v), lambda v: np.flip(v), lambda v: np.cumsum(v), np.nn.softmax],
    ids=["a mean", "another element", "a running sum", "softmax"],
)
@pytest.mark.parametrize("known", [False, True])
def test_a_function_of_piecewise_that_looks_at_several_elements_is_refused(
    function: Callable[[Any], Any], known: bool
) -> None:
    a = with_ties("float32", 6, 5)
    with pytest.raises(UnsupportedType, match=r"piecewise of a traced array .* alone: one has a"):
        np.jit(lambda x: np.piecewise(a if known else x, [x > 0], [function]))(a)


def test_a_function_of_piecewise_that_gives_another_shape_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"gives float32\[3,1\]: one number, or one for"):
        np.jit(lambda x: np.piecewise(x, [x > 0], [lambda v: v[:, None]]))(np.ones(3))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: np.histogram(x), r"range is not given \(range=, or edges as bins\)"),
        (lambda x: np.histogram(x, 3, (0, 1), weights=x), "which weights a sum has"),
        (lambda x: np.bincount(x.astype("int32")), "the length of bincount without minlength"),
        (lambda x: np.bincount(x.astype("int32"), x, 3), "which weights a sum has"),
        (lambda x: np.zeros(x.astype("int32")), "needs the values of a traced array"),
        (lambda x: np.arange(9)[: x[0].astype("int32")], "lax.dynamic_slice"),
    ],
    ids=range(6),
)
def test_what_hangs_on_values_says_what_to_give(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(UnknownValue, match=said):
        np.jit(function)(np.ones(3))


def test_sequences_of_traced_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"sequences do not make an array: parts of \(3,\), \(\)"):
        np.jit(lambda x: np.asarray([x, x[0]]))(np.ones(3))


def test_traced_places_along_an_axis_are_refused_for_an_array_of_other_axes() -> None:
    function = _written(lambda a: np.put_along_axis(a, PLACES[0], 1, axis=0))
    with pytest.raises(InvalidArgument, match=r"the indices have as many axes, not 1"):
        np.jit(function)(with_ties("float32", 6, 5))


def test_a_traced_count_less_a_fraction_needs_values() -> None:
    with pytest.raises(UnknownValue):
        np.jit(lambda a: np.nanvar(a, ddof=0.5))(with_ties("float32", 6, 5))


UPDATES = [
    *("add", "multiply", "maximum", "divide", "fmax", "bitwise_xor", "logical_or", "hypot", "exp"),
    "negative",
]


def updated_in_turn(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def updated(x: Any, i: Any, b: Any) -> Any:
        found = [np.copy(x) for _ in range(5)]
        others = () if function.nin == 1 else (b,)
        function.at(found[0], i, *others)
        function.at(found[1], numpy.asarray([0, 3, -1, 3, 0]), *others)
        function.at(found[2], (slice(1, 4), i), *(o[:, :3].T for o in others))
        function.at(found[3], (i, 2), *(o[:, 0] for o in others))
        function.at(found[4], numpy.arange(6) % 2 == 0, *(o[:3] for o in others))
        return found

    return updated


@each_of("dtype", DEVICE_TYPES)
@each_of("name", UPDATES)
def test_updates_at_traced_places_come_in_turn_R5(name: str, dtype: str) -> None:
    x, i, update = with_ties(dtype, 6, 5), np.asarray([4, -2, 0, 4, 4]), updated_in_turn(name)
    given = (x, i, np.flip(x[:5]))
    try:
        expected = update(*given)
    except NeuronSimError as error:
        with pytest.raises(type(error)):
            np.jit(update)(*given)
        return
    equal_bits(np.jit(update)(*given), expected)
    into_known = np.jit(lambda i, b: update(x, i, b))
    equal_bits(into_known(*given[1:]), expected)


def test_updates_that_are_wider_than_the_array_are_rounded_in_turn_R5() -> None:
    def update(x: Any, b: Any) -> Any:
        found = np.copy(x)
        np.add.at(found, [0, 0, 0], b)
        return found

    given = np.ones(2, "bfloat16"), np.asarray([2.0**-8, 2.0**-8 + 2.0**-20, 3.0])
    equal_bits(np.jit(update)(*given), update(*given))


def test_updates_by_a_traced_mask_or_index_outside_say_so() -> None:
    def update(x: Any, key: Any) -> None:
        np.add.at(np.copy(x), key, x)

    with pytest.raises(UnknownValue, match="how many elements a traced mask leaves"):
        np.jit(update)(np.ones(3), np.ones(3) > 0)
    with pytest.raises(NeuronSimError, match="index 5 is out of bounds"):
        np.jit(lambda x: update(x, 5))(np.ones(3))


# ---- jit itself -------------------------------------------------------------------------------------


def test_one_compilation_per_signature() -> None:
    calls: list[Any] = []

    @np.jit
    def scaled(x: Any, k: float) -> Any:
        calls.append(x.shape)
        return x * k

    for _ in range(2):
        assert scaled(np.ones(3), 2.0).tolist() == [2, 2, 2]
        assert scaled(np.ones(4), 2.0).shape == (4,)
        assert scaled(np.ones(3), 3.0).tolist() == [3, 3, 3]
        assert scaled(np.ones(3, dtype="bfloat16"), 2.0).dtype.name == "bfloat16"
        with np.use_profile(subnormals="flush"):
            assert scaled(np.asarray([2.0**-127] * 3), 2.0).tolist() == [0, 0, 0]
    assert calls == [(3,), (4,), (3,), (3,), (3,)]
    assert isinstance(scaled, CompiledFunction)
    assert scaled.program(np.ones(3), 2.0).inputs == {"x": np.ones(3).bits.type}


def test_static_arguments_and_nested_results() -> None:
    @np.jit(static_argnames="flag")
    def chosen(x: Any, flag: bool, more: dict[str, Any]) -> Any:
        return ([x + more["a"]], None) if flag else {"other": x - more["b"][0]}

    more = {"a": np.ones(2), "b": (np.ones(2), 3)}
    assert chosen(np.ones(2), True, more)[0][0].tolist() == [2, 2]
    assert chosen(np.ones(2), flag=False, more=more)["other"].tolist() == [0, 0]
    with pytest.raises(InvalidArgument, match="static_argnames"):
        np.jit(lambda x: x, static_argnames=["y"])
    with pytest.raises(InvalidArgument, match="hashable"):
        np.jit(lambda x, y: x)(np.ones(1), bytearray(b"1"))


def test_settings_are_those_of_compile() -> None:
    x = np.asarray([[1.0, 2**-12]])
    cast = np.jit(lambda a, b: a @ b, auto_cast="matmult", auto_cast_type="bf16")
    y = np.asarray([[1.0 + 2**-10], [1.0]])
    assert cast(x, y).tolist() == [[float(np.asarray(1.0) + np.asarray(2**-12))]]
    assert cast(x, y).tolist() != np.jit(lambda a, b: a @ b)(x, y).tolist()  # the control


def test_writes_stay_inside_the_function() -> None:
    """What a traced function writes are its own arrays; its arguments stay as they are."""

    @np.jit
    def written(x: Any) -> Any:
        y = np.zeros(4)
        y[1:3] = x
        part = y[::-1]
        part[0] = 7.0
        y[np.asarray([1, 2]) - 1] += 1.0
        return y, part

    x = np.asarray([3.0, 4.0])
    equal_bits(written(x), written.__wrapped__(x))
    assert x.tolist() == [3.0, 4.0]


def test_a_traced_array_that_outlives_its_trace_is_refused() -> None:
    kept: list[Any] = []
    np.jit(lambda x: kept.append(x) or x)(np.ones(2))
    with pytest.raises(InvalidArgument, match="after its trace"):
        kept[0] + 1
    shared = np.zeros(2)
    alias = shared[:1]

    def leak(x: Any) -> Any:
        shared[:] = x
        return alias

    with pytest.raises(InvalidArgument, match="shares"):
        np.jit(leak)(np.ones(2))


def test_loops_and_branches_of_lax() -> None:
    def f(x: Any, n: Any) -> Any:
        w = x * 2
        a = np.lax.fori_loop(0, 5, lambda i, v: v * 0.5 + w[i % 3], x)
        start = (np.asarray(0), np.zeros(3))
        b = np.lax.while_loop(lambda s: np.sum(s[1]) < n, lambda s: (s[0] + 1, s[1] + np.abs(w)), start)
        c, ys = np.lax.scan(lambda c, v: (c + v, c * v), np.asarray(0.0), x)
        back = np.lax.scan(lambda c, v: (c + v, c * v), np.asarray(0.0), x, reverse=True)
        d = np.lax.cond(n > 3, lambda v: v + 1, lambda v: v - w, x)
        e = np.lax.switch(n.astype("int32"), [lambda v: v, lambda v: -v, lambda v: v * v], x)
        return a, b, c, ys, back, d, e, np.lax.map(lambda v: np.exp(v) + c, x)

    for n in (10.0, 0.0, 1.0):
        arguments = np.asarray([1.0, 2.0, 3.0]), np.asarray(n)
        equal_bits(np.jit(f)(*arguments), f(*arguments))


PLACES = [(0, 0), (1, 3), (-1, -2), (9, -9)]


@pytest.mark.parametrize("place", PLACES)
def test_slices_at_traced_starts(place: tuple[int, int]) -> None:
    def f(x: Any, i: Any, j: Any) -> Any:
        block = np.lax.dynamic_slice(x, (i, j), (2, 3))
        line = np.lax.dynamic_index_in_dim(x, i, keepdims=False)
        put = np.lax.dynamic_update_slice(x, block * 2, [j, i])
        return block, line, put, np.lax.dynamic_update_slice_in_dim(put, x[:, :1], j, 1)

    x, starts = drawn(4, 6), [np.asarray(v) for v in place]
    found = np.jit(f)(x, *starts)
    equal_bits(found, f(x, *starts))
    sizes = zip(place, (4, 6), (2, 3), strict=True)
    low, left = (min(max(p + n * (p < 0), 0), n - k) for p, n, k in sizes)
    assert found[0].tolist() == x[low : low + 2, left : left + 3].tolist()


def test_writes_at_traced_places_beside_slices() -> None:
    def f(x: Any, i: Any) -> Any:
        y = x * 1
        y[i, 1:4] = x[0, :3] * 2
        y[::2, i] = 7
        y[None, i, 5:] = 8
        return y

    x = drawn(4, 6)
    for i in (0, 2, 3):
        equal_bits(np.jit(f)(x, np.asarray(i)), f(x, np.asarray(i)))


def test_a_traced_array_prints_as_its_type() -> None:
    said = []

    def f(x: Any) -> Any:
        said.extend([str(x), f"{x[0]}", repr(x > 0)])
        return x

    np.jit(f)(drawn(4))
    assert said == [f"Array(traced {t})" for t in ("float32[4]", "float32[]", "bool[4]")]


def test_a_traced_truth_value_is_named() -> None:
    with pytest.raises(UnknownValue, match=r"an `if`, a number or an ndarray of it needs.*bool\[\]"):
        np.jit(lambda x: x if x.sum() > 0 else -x)(drawn(4))


def test_a_slice_that_begins_at_a_traced_place_names_its_function() -> None:
    with pytest.raises(UnknownValue, match=r"test_jit.py:\d+: .*lax.dynamic_slice"):
        np.jit(lambda x, i: x[i : i + 2])(np.ones(5), np.asarray(1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: np.lax.dynamic_slice(x, [0, 0], (1,)), "one for each axis"),
        (lambda x: np.lax.dynamic_slice(x, [0.5], (1,)), "begins at an integer"),
        (lambda x: np.lax.dynamic_slice_in_dim(x, 0, 1, axis=3), "axis 3"),
        (lambda x: np.lax.while_loop(lambda v: v.sum() < 3, lambda v: v.astype("int32"), x), "makes"),
        (lambda x: np.lax.while_loop(lambda v: v < 3, lambda v: v, x), "one bool"),
        (lambda x: np.lax.cond(x[0] > 0, lambda: x, lambda: x[0]), "different types"),
        (lambda x: np.lax.cond(x > 0, lambda: x, lambda: x), "one bool"),
        (lambda x: np.lax.scan(lambda c, v: (c, v), x, (x, x[:1])), "lengths"),
        (lambda x: np.lax.switch(x[0], [lambda: x]), "one integer"),
    ],
)
def test_wrong_loops_and_branches_say_what_is_wrong(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(NeuronSimError, match=said):
        np.jit(call)(np.ones(2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_orders_and_running_sums_run_in_the_core(dtype: str) -> None:
    numbers = numpy.random.default_rng(0).integers(-3, 4, (40, 7))
    x = np.asarray(numbers).astype(dtype)
    functions: list[Callable[[Any], Any]] = [
        lambda x: np.argsort(x, axis=0),
        lambda x: np.argsort(x, descending=True),
        lambda x: np.cumulative_sum(x, axis=0),
        lambda x: np.cumulative_prod(x, axis=1),
        lambda x: np.top_k(x, 3),
    ]
    for f in functions:
        jitted = np.jit(f)
        assert jitted.program(x).python_steps == ()
        found, expected = ([numpy.asarray(a) for a in flatten(v)[0]] for v in (jitted(x), f(x)))
        for a, b in zip(found, expected, strict=True):
            numpy.testing.assert_array_equal(a, b)


def test_instructions_know_the_users_line() -> None:
    program = np.jit(lambda x: np.tanh(x) + 1).program(np.ones(2))
    places = {i.metadata.source_file for i in program.model.entry_computation.instructions} - {""}
    assert places == {__file__}


def test_the_page_on_jit_is_right() -> None:
    page = Path(__file__).parents[2] / "docs" / "jit.md"
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 8
    assert found.failed == 0


def test_composites_are_kept_where_that_is_asked() -> None:
    def f(x: Any) -> Any:
        return np.nn.softmax(x), np.nn.layer_norm(x), np.mean(x, axis=0)

    x = np.asarray([[1.0, 2.0, 4.0], [0.5, 0.0, -1.0]], "bfloat16")
    spelled, kept = (np.compile(f, x, auto_cast="none", composites=c) for c in ("formulas", "kept"))
    equal_bits(kept(x), spelled(x))
    equal_bits(kept(x), f(x))
    opcodes = [i.opcode for i in kept.model.entry_computation.instructions]
    assert opcodes.count("custom-call") == 3
    assert "custom-call" not in [i.opcode for i in spelled.model.entry_computation.instructions]
    with pytest.raises(InvalidArgument, match="'formulas' or 'kept'"):
        np.compile(f, x, composites="whole")
    with pytest.raises(InvalidArgument, match="batch"):
        np.compile(f, x, batch=0)


def test_a_write_into_an_array_from_outside_is_refused_and_loses_nothing() -> None:
    state, kept = np.asarray([1.0, 2.0]), []

    def writes(x: Any) -> Any:
        state[0] = x[0]
        return x

    def keeps(x: Any) -> Any:
        y = np.zeros(2)
        y[:] = x
        kept.append(y)
        return x

    def fails(x: Any) -> Any:
        state[1] = x[0]
        return x.tolist()

    for function in (writes, keeps):
        with pytest.raises(InvalidArgument, match=r"test_jit.py:\d+: a traced value is written"):
            np.jit(function)(np.ones(2))
    with pytest.raises(UnknownValue):
        np.jit(fails)(np.ones(2))
    assert state.tolist() == [1.0, 2.0]
    assert kept[0].tolist() == [0.0, 0.0]
    assert np.jit(lambda x: np.lax.scan(lambda c, v: (c + v, v), x[0], x))(np.ones(3))[0].tolist() == 4


# What a second reading found: functions of x: float[4,6] whose writes and views are NumPy's.
def swapped(x: Any) -> Any:
    y = x * 1
    first = y[0, 0]
    y[0, 0] = y[0, 1]
    y[0, 1] = first
    return y


def of_turned(x: Any) -> Any:
    y = x * 1
    z, w = y.T.reshape(-1), np.ascontiguousarray(y.T)
    z[0], w[1] = 9, 8
    v = y[:, :2].reshape(2, 4)
    v[0] = 7
    return y, z, w, v, y.T.strides


def through_views(x: Any) -> Any:
    y = x * 1
    np.flip(y)[0] = 3
    np.split(y, 2)[1][0] = 4
    np.rot90(y)[0] = 5
    y.reshape(2, 2, 6)[1, 0] = 6
    return y


def scanned(x: Any) -> Any:
    known = np.lax.scan(lambda c, r: (c.__iadd__(r), r), np.zeros(6), x)
    return known, np.lax.scan(lambda c, r: (c.__iadd__(r), c * 1), x[0] * 1, x)


def written_before_a_branch(x: Any) -> Any:
    y = x * 1
    z, other = y[1], y[2]
    z[:] = x[0] * 3
    y[2] = 7
    taken = np.lax.cond(x[0, 0] > 0, lambda: y * 1, lambda: y * 2)
    looped = np.lax.fori_loop(0, 2, lambda k, c: c + other, x[0] * 0)
    return taken, looped, y, z, other


def looked_up(x: Any) -> Any:
    table, places = np.arange(6.0), np.astype(np.abs(x[0]), "int32") % 6
    return table[places], np.take(table, places), np.stack([table, table])[places % 2, places]


def numbers_in_branches(x: Any) -> Any:
    half = x.astype("bfloat16")
    test = x[0, 0] > 0
    return (
        np.lax.cond(test, lambda: 1.0, lambda: 2.0) * x,
        np.lax.cond(True, lambda k: half * k, lambda k: half + k, 2.0),
        np.lax.cond(test, lambda k: half * k, lambda k: half + k, 2.0),
        np.lax.fori_loop(0, 3, lambda k, c: c + x[0, 0], 0.0),
    )


@pytest.mark.parametrize(
    "function",
    [
        *(swapped, of_turned, through_views, scanned, written_before_a_branch, looked_up),
        numbers_in_branches,
    ],
)
def test_writes_views_and_regions_have_the_eager_bits(function: Callable[[Any], Any]) -> None:
    x = drawn(4, 6, low=1.0, high=5.0)
    equal_bits(np.jit(function)(x), function(x))


def test_static_values_that_are_equal_and_differ_are_two_programs() -> None:
    x = np.asarray([1, 2])
    times = np.jit(lambda x, k: x * k[0], static_argnames="k")
    assert [times(x, (k,)).dtype.name for k in (1, 1.0)] == ["int64", "float32"]
    keys = np.jit(lambda d: dict(d.items()))
    assert [type(next(iter(keys({k: x})))) for k in (1, True)] == [int, bool]


def test_examples_by_name() -> None:
    x, scale = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.asarray([1, 2, 3])
    program = np.compile(lambda x, scale: x * scale, x, example_kwargs={"scale": scale})
    assert program.inputs["scale"] == scale.bits.type
    assert (program(x, scale) == x * scale).all()
    program = np.compile(lambda x, scale: x + scale, example_kwargs={"x": x, "scale": scale})
    assert (program(x=x, scale=scale) == x + scale).all()
    with pytest.raises(InvalidArgument, match="'x' is an example argument by position and in"):
        np.compile(lambda x: x, x, example_kwargs={"x": x})


@pytest.mark.parametrize("door", ["numpy", "jax"])
def test_examples_by_name_are_what_they_are_by_position(door: str) -> None:
    """Trees, numbers and constants."""
    if door == "jax":
        jnp: Any = pytest.importorskip("jax.numpy")
    else:
        jnp = np
    x, w, b = (jnp.ones(s, dtype="float32") for s in ((4, 2), (2, 3), (3,)))

    def dense(x: Any, p: Any, doubles: Any = None) -> Any:
        return jnp.matmul(x, p["w"]) + p["b"] + (0.0 if doubles is None else doubles["by"])

    tree = {"w": w, "b": b}
    program = np.compile(dense, x, example_kwargs={"p": tree})
    assert list(program.inputs) == ["x", *sorted(f"p.{n}" for n in tree)] or door == "numpy"
    assert (numpy.asarray(program(x, p=tree)) == 3).all()
    program = np.compile(dense, x, example_kwargs={"p": tree}, constants=("p",))
    assert list(program.inputs) == ["x"]
    assert (numpy.asarray(program(x)) == 3).all()
    program = np.compile(
        dense, x, input_shapes={"p.w": (2, 3)}, input_values={"p.b": numpy.ones(3, numpy.float32)}
    )
    assert list(program.inputs) == ["x", "p.w"]
    assert (numpy.asarray(program(x, numpy.ones((2, 3), numpy.float32))) == 3).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: np.jit(lambda x: None)(np.ones(2)), "returns no array"),
        (lambda: np.compile(lambda x, y: x, np.ones(2)), "missing a required argument: 'y'"),
        (lambda: np.compile(lambda x: x, np.ones(2), np.ones(2)), "too many positional"),
        (lambda: np.compile(lambda x: x, input_shapes={"x": (-3,)}), "no tuple of lengths"),
        (lambda: np.compile(lambda x: x, input_shapes={"x": 3}), "no tuple of lengths"),
        (lambda: np.compile(lambda x: x, input_shapes={"x": (1 << 40, 1 << 40)}), "elements"),
        (lambda: np.export_onnx("model.onnx", 3, "q.onnx"), "program of compile"),
    ],
)
def test_mistakes_of_a_call_are_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(NeuronSimError, match=said):
        call()


def test_parts_of_complex_arrays_are_views() -> None:
    def f(z: Any) -> Any:
        w = z * 2
        w.imag[1] = 7
        return np.real(w), w.imag, w

    z = np.asarray(numpy.array([1 + 2j, 3 - 4j], "c8"))
    equal_bits(np.jit(f, target="host")(z), f(z))


def test_mixed_products_of_the_host_run_as_their_common_type() -> None:
    x, y = numpy.linspace(0, 1, 6).reshape(2, 3), numpy.float32([[1, 2], [3, 4], [5, 6.1]])
    found = np.jit(lambda x, y: x @ y, target="host")(x, y)
    assert found.dtype is np.float64
    assert found.tolist() == (x @ y.astype("f8")).tolist()


# ---- saved programs, and functions by their names ----------------------------------------------------


def test_a_saved_program_is_called_as_its_function(tmp_path: Path) -> None:
    def own(params: Any, x: Any, scale: float) -> Any:
        y = x @ params["w"] + params["b"][0]
        return {"y": y * scale, "all": (x, [None, y])}

    params = {"w": drawn(6, 3), "b": (drawn(3),)}
    program = np.compile(own, params, drawn(4, 6), 2.0, auto_cast="none")
    program.save(tmp_path / "p.nsim")
    found = np.load(tmp_path / "p.nsim")
    turned = {"b": params["b"], "w": params["w"]}
    for result in (found(turned, drawn(4, 6), 2.0), found(scale=2.0, params=params, x=drawn(4, 6))):
        assert result["all"][1][0] is None
        equal_bits(result, program(params, drawn(4, 6), 2.0))
    with pytest.raises(NeuronSimError, match=r"scale is 3\.0: the program was made for 2\.0"):
        found(params, drawn(4, 6), 3.0)
    found.save(tmp_path / "q.nsim")
    again = np.load(tmp_path / "q.nsim")
    equal_bits(again(params, drawn(4, 6), 2.0), program(params, drawn(4, 6), 2.0))


def rewritten(path: Path, document: Any) -> Path:
    """The program with another document of how it is called."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    members["calls.json"] = document if isinstance(document, bytes) else json.dumps(document).encode()
    other = path.with_name("other.nsim")
    with zipfile.ZipFile(other, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return other


@pytest.mark.parametrize(
    "document",
    [
        b"{", [], {}, {"arguments": [], "results": 0, "constants": []},
        {"arguments": [["x", 0]], "results": 1, "constants": []},
        {"arguments": [["x", 0]], "results": {"set": [0]}, "constants": []},
        {"arguments": [["x", {"list": [0, 0]}]], "results": 0, "constants": []},
        {"arguments": [["x", {"dict": [["a", 0], ["a", None]]}]], "results": 0, "constants": []},
        {"arguments": [[3, 0]], "results": 0, "constants": []},
        {"arguments": [["x", 0]], "results": 0, "constants": [3]},
        b'{"arguments": [["x", ' + b'{"list": [' * 400 + b"0" + b"]}" * 400 + b']], "results": 0}',
    ],
)  # fmt: skip
def test_damaged_documents_of_calls_are_refused(tmp_path: Path, document: Any) -> None:
    np.compile(lambda x: x + 1, np.ones(2), auto_cast="none").save(tmp_path / "p.nsim")
    with pytest.raises(InvalidModel, match=r"other\.nsim is not a program"):
        np.load(rewritten(tmp_path / "p.nsim", document))


@pytest.fixture
def own_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_functions", raising=False)
    Path("own_functions.py").write_text(
        "import neuronsim as np\n"
        "TABLE = np.arange(12.0).reshape(6, 2)\n"
        "def looked_up(ids):\n"
        "    return TABLE[ids]\n"
        "def mistaken(ids):\n"
        "    return ids / {}['scale']\n"
    )


def test_a_function_by_its_name_takes_integers(own_functions: None, commands: Commands) -> None:
    ids = numpy.array([[0, 5], [2, 2]], numpy.int32)
    numpy.savez("x.npz", ids=ids)
    run = ["run", "own_functions:looked_up", "--inputs", "x.npz", "--output", "y.npz"]
    commands.ok(*run)
    assert numpy.load("y.npz")["output_0"].tolist() == numpy.arange(12.0).reshape(6, 2)[ids].tolist()
    shape = ["--input-shape", "ids=2,2:int32"]
    for command in (["explain"], ["plan"], ["lint"], ["cost"], ["compile", "--output", "p.nsim"]):
        commands.ok(command[0], "own_functions:looked_up", *command[1:], *shape)
    assert "int33" in commands.refused(
        "explain", "own_functions:looked_up", "--input-shape", "ids=2,2:int33"
    )
    assert "the types are those of the data" in commands.refused(
        "tune", "own_functions:looked_up", "--data", "x.npz", *shape
    )


def test_what_a_users_function_raises_is_shown_at_its_line(
    own_functions: None, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    numpy.savez("x.npz", ids=numpy.ones((2, 2), numpy.float32))
    said = commands.refused("tune", "own_functions:mistaken", "--data", "x.npz")
    assert "own_functions.py:6: 'own_functions:mistaken' raises KeyError: 'scale'" in said
    assert "Traceback" not in said
    with pytest.raises(KeyError):  # Python's own callers see their own error
        np.compile(importlib.import_module("own_functions").mistaken, np.ones(2))
    monkeypatch.delitem(sys.modules, "own_broken", raising=False)
    Path("own_broken.py").write_text("x = 1\ny = x.nothing\n")
    said = commands.refused("explain", "math:pi")
    assert "'math:pi' is no function: it is of the type float" in said
    assert "own_broken.py:2: 'own_broken:f' raises AttributeError" in commands.refused(
        "lint", "own_broken:f", "--input-shape", "x=2"
    )


def test_a_model_is_recorded_the_same_each_time() -> None:
    """Constants hang on no memory that was free again: plans and journals know a model by its hash."""

    def steps(x: Any) -> Any:
        for _ in range(20):
            x = x + np.asarray(numpy.full(96, 2.0, numpy.float32))
        return x + KEPT + KEPT

    found = np.compile(steps, numpy.ones(96, numpy.float32), auto_cast="none").model
    constants = [i for i in found.entry_computation.instructions if i.opcode == "constant"]
    assert len(constants) == 21  # each array is one, whichever memory it has


KEPT = np.asarray(numpy.full(96, 3.0, numpy.float32))


@each_of(
    "function",
    [
        lambda x, i: np.sort(x, axis=1),
        lambda x, i: np.sort(x, axis=0),
        lambda x, i: np.take(x, i, axis=1),
        lambda x, i: np.take_along_axis(x, x.astype("int32"), 0),
        lambda x, i: x[:, i],
        lambda x, i: x[i, i],
    ],
)
@each_of("dtype", ["float32", "bfloat16", "bool"])
def test_nothing_is_taken_of_no_elements(function: Callable[..., Any], dtype: str) -> None:
    """HLO's gather refuses slices of one element there, even if it takes none."""
    x, i = np.zeros((3, 0), dtype=dtype), np.zeros(0, dtype="int32")
    expected, found = function(x, i), np.jit(function)(x, i)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
