"""Random array programs, run on neuronsim and on NumPy.

    python -m tests.arrays.random_programs --count 200000

A program is a few arrays of any type and layout and a chain of statements, each drawn from a table of
NumPy's functions, methods, operators and indices. After each statement both sides must have the same
errors or the same results: what moves bits, integers, bool and single float operations bit for bit,
functions and sums within a bound, shapes and types always (D1, E6, C8). What a documented rule makes
different is in EXCUSED. A finding is printed as a script, as short as dropping statements makes it.
"""

from __future__ import annotations

import math
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from tests import campaign

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import NeuronSimError
from neuronsim.ops import Bits

SECONDS = 2.0
CHUNK = 500  # programs of one process
LARGEST = 4096  # elements of an array that a program goes on with
MOST_AXES = 7

# The type on NumPy's side: float32 holds tfloat32.
THEIRS: dict[str, Any] = {
    n: numpy.dtype(t.numpy) if n != "tfloat32" else numpy.dtype(numpy.float32)
    for n, t in DTYPES.items()
}
INTEGERS = tuple(t.name for t in DTYPES.values() if t.kind in ("signed", "unsigned"))
NUMPYS = (*INTEGERS, "bool", "float16", "float32", "float64", "complex64", "complex128")
OWN = tuple(n for n in THEIRS if n not in NUMPYS)
TYPES = (*NUMPYS, "float32", "float32", "int64", "bool", *OWN)
LAYOUTS = (
    *("rows", "rows", "rows", "columns", "reversed", "strided", "repeated", "read-only", "unaligned"),
)
SPECIAL = (
    *(0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e-40, -3e-41, 6e-8, 65504.0, 3e38),
    *(0.5, 1.0),
)


# ---- the arrays ----------------------------------------------------------------------------------


def drawn(dtype: str, shape: tuple[int, ...], seed: int, layout: str = "rows") -> numpy.ndarray:
    """NumPy's array of a type, the same for the same arguments."""
    rng = numpy.random.default_rng([seed, len(shape)])
    t, plain, alike = THEIRS[dtype], seed % 3 > 0, seed % 12 == 0
    full = tuple(2 * n + 1 for n in shape) if layout == "strided" else shape
    if layout == "repeated":
        full = tuple(1 if n % 2 == 0 else n for n in shape)
    if layout == "columns":
        full = full[::-1]
    if t.kind == "b":
        data = numpy.asarray(rng.random(full) < 0.5)
    elif t.kind in "iu":
        info = numpy.iinfo(t)
        data = numpy.asarray(rng.integers(max(info.min, -5), 9, full)).astype(t)
        if not plain:
            wide = rng.integers(info.min, info.max, () if alike else full, dtype=t, endpoint=True)
            data = numpy.where(rng.random(full) < (1.0 if alike else 0.3), wide, data)
    else:
        with numpy.errstate(all="ignore"):
            values = numpy.rint(4 * rng.standard_normal(full)) / 2
            if seed % 2:
                values = values + rng.standard_normal(full) / 8
            if not plain:
                special = rng.choice(SPECIAL) if alike else rng.choice(SPECIAL, full)
                values = numpy.where(rng.random(full) < (1.0 if alike else 0.2), special, values)
            if t.kind == "c":
                values = values + 1j * numpy.rint(4 * rng.standard_normal(full))
            data = numpy.asarray(values).astype(t)
    data = numpy.array(data, t, ndmin=0).reshape(full)
    if dtype == "tfloat32":
        data = numpy.asarray(np.asarray(data).astype("tfloat32").astype("float32"))
        data = numpy.array(data)
    match layout:
        case "columns":
            data = data.T
        case "reversed" if shape:
            data = data[..., ::-1]
        case "strided":
            data = data[(..., *(slice(0, 2 * n, 2) for n in shape))]
        case "repeated":
            data = numpy.broadcast_to(data, shape)
        case "read-only":
            data.flags.writeable = False
        case "unaligned":
            raw = numpy.zeros(data.nbytes + 1, numpy.uint8)
            moved = raw[1:].view(numpy.uint8)[: data.nbytes].view(t).reshape(shape)
            moved[...] = data
            data = moved
    return data


def ours(dtype: str, shape: tuple[int, ...], seed: int, layout: str = "rows") -> np.Array:
    """The same array of neuronsim's."""
    data = drawn(dtype, shape, seed, layout)
    if dtype == "tfloat32":
        return np.Array(Bits(data, np.tfloat32))
    return np.asarray(data)


NAMES = tuple(dict.fromkeys(TYPES))


def environments() -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of a program, on our side and on NumPy's."""
    here: dict[str, Any] = {"np": np, "arr": ours, "cast": lambda x, t: x}
    there: dict[str, Any] = {"np": numpy, "arr": drawn, "cast": cast}
    for name in NAMES:
        if name == "bool":
            continue
        here[name] = DTYPES[name]
        there[name] = THEIRS[name]
    return here, there


def cast(x: Any, t: Any) -> Any:
    """The common type that C8's lattice gives, where NumPy's own is another."""
    return numpy.asarray(x).astype(t) if isinstance(x, numpy.ndarray | numpy.generic) else x


# ---- statements ----------------------------------------------------------------------------------

FOLDS = """
add multiply subtract divide maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or
bitwise_xor floor_divide remainder left_shift right_shift fmax fmin gcd lcm hypot logaddexp power equal
less copysign arctan2 nextafter fmod
"""
SUBSCRIPTS = """
i i-> ij->i ij->j ...->... i...->... ij,jk->ik i,i-> i,j->ij ...i,...i->... ijk->kji ,-> ij,ij->ij ii->i
i,i ->
"""
# rule, names (a method's begins with a dot), arguments, keywords that may be there. The rules:
#   moved   bits, NaN payloads and -0 included
#   exact   bits, but any NaN is any other
#   equal   the same values, whatever the sign of zeros
#   near    a function of the elements: some units in the last place
#   sum     a sum, product or fold: bounded by the magnitudes that were added
#   shape   shape and type alone
# The arguments: x an array; y one that broadcasts against it, or a number, and the types of x and y are
# joined by C8; X an array of any shape; o one of one axis; i indices of x; m a mask like x; others are
# draws of `Drawing`.
TABLE = """
moved positive,negative x
exact abs x ; out=out where=m
exact absolute,fabs,sign x
exact floor x ; out=out
exact ceil,trunc,rint,fix x
near round x ; decimals=small
exact square x ; out=out
exact sqrt x ; out=out where=m
exact reciprocal,conj,conjugate x
moved real x
exact isnan,isinf,isfinite,signbit,isneginf,isposinf,iscomplex,isreal x
exact logical_not x ; out=out
exact invert,bitwise_count,spacing,nan_to_num x
near exp x ; out=out where=m
near exp2,expm1,log,log2,log10,log1p,sin,cos,tan,arcsin,arccos,arctan,sinh,cosh,tanh,arcsinh,arccosh x
near arctanh,cbrt,deg2rad,rad2deg x
sum sinc x
near angle,i0 x
exact modf,frexp x
exact add,subtract,multiply x y ; out=out where=m dtype=t
exact divide x y ; out=out where=m
equal maximum x y ; out=out where=m
equal minimum x y ; out=out
equal fmax,fmin x y
exact copysign,fmod,remainder x y
exact floor_divide x y ; out=out
exact divmod,nextafter,heaviside x y
exact ldexp x i
exact gcd,lcm,bitwise_and,bitwise_or,bitwise_xor,left_shift,right_shift,logical_and,logical_or x y
exact logical_xor x y
exact equal x y ; out=out where=m
exact not_equal,less,less_equal,greater,greater_equal x y
near power,float_power,arctan2,hypot,logaddexp,logaddexp2 x y
shape isclose,allclose x y
exact array_equal,array_equiv x y
equal clip x number number
equal .clip number number
sum sum x ; axis=axes keepdims=flag dtype=t where=m initial=number out=out
sum prod x ; axis=axes keepdims=flag where=m initial=number
sum mean x ; axis=axes keepdims=flag where=m
sum std x ; axis=axes keepdims=flag ddof=bit
sum var x ; axis=axes keepdims=flag correction=bit where=m
equal max x ; axis=axes keepdims=flag initial=number where=m
equal min x ; axis=axes keepdims=flag out=out
exact all x ; axis=axes keepdims=flag where=m out=out
exact any x ; axis=axes keepdims=flag where=m
exact argmax x ; axis=axis keepdims=flag out=out
exact argmin x ; axis=axis keepdims=flag
equal ptp x ; axis=axes keepdims=flag
exact count_nonzero x ; axis=axes keepdims=flag
sum cumsum x ; axis=axis dtype=t
sum cumprod x ; axis=axis
sum cumulative_sum,cumulative_prod x ; axis=axis include_initial=flag
sum nansum x ; axis=axes keepdims=flag
sum nanprod x ; axis=axes
equal nanmax x ; axis=axes
equal nanmin x ; axis=axes keepdims=flag
sum nanmean,nanstd x ; axis=axes
shape nanvar x ; axis=axes
sum median x ; axis=axes keepdims=flag
sum nanmedian,average x ; axis=axes
sum quantile x fraction ; axis=axes keepdims=flag
sum percentile,nanquantile x fraction ; axis=axes
sum .sum ; axis=axes keepdims=flag dtype=t out=out
sum .prod ; axis=axes
sum .mean ; axis=axes keepdims=flag
sum .std,.var ; axis=axes
equal .max ; axis=axes keepdims=flag
equal .min ; axis=axes
exact .all ; axis=axes
exact .any ; axis=axes keepdims=flag
exact .argmax,.argmin ; axis=axis
sum .cumsum,.cumprod ; axis=axis
near .round small
moved .copy
moved .flatten,.ravel ; order=order
moved .reshape shape
moved .transpose
moved .squeeze ; axis=axes
moved .swapaxes ax ax
moved .repeat counts ; axis=axis
moved .take i ; axis=axis mode=mode
moved .diagonal small ax ax
sum .trace small
moved .nonzero
moved .compress o_mask ; axis=axis
moved .choose xs ; mode=mode
moved .tolist,.item
moved .item small
moved .tobytes
exact .astype t
exact .searchsorted y
exact .view t
moved reshape x shape ; order=order copy=flag
moved ravel x ; order=order
moved transpose x
moved transpose,permute_dims x perm
moved matrix_transpose x
moved swapaxes x ax ax
moved moveaxis x axes axes
moved rollaxis x ax
moved squeeze x ; axis=axes
moved expand_dims x axes
moved broadcast_to x shape
moved broadcast_arrays x X
moved broadcast_shapes shape shape
moved atleast_1d,atleast_2d x
moved atleast_3d x X
moved flip x ; axis=axes
moved fliplr,flipud x
moved rot90 x small
moved rot90 x small axpair
moved roll x shifts ; axis=axes
moved concatenate,concat,stack xs ; axis=axis
moved vstack,hstack,dstack,column_stack,block xs
moved append x X ; axis=axis
moved tile x counts
moved repeat x counts ; axis=axis
moved split,array_split x sections ; axis=ax
moved hsplit,vsplit,dsplit x sections
moved unstack x ; axis=ax
moved pad x width ; mode=padmode
moved tril,triu,diag,diagflat x ; k=small
moved diagonal x ; offset=small axis1=ax axis2=ax
sum trace x ; offset=small
moved delete x obj ; axis=axis
moved insert x obj number ; axis=axis
moved insert x obj X ; axis=axis
moved resize x shape
exact kron x X
exact packbits x ; axis=axis bitorder=bitorder
exact unpackbits x ; axis=axis count=small bitorder=bitorder
equal sort x ; axis=axis
exact lexsort xs
shape partition x small
equal unique x
shape unique_values,unique_counts x
exact searchsorted o y ; side=side
moved take x i ; axis=axis mode=mode
moved take_along_axis x i ; axis=axis
moved select conditions xs number
moved compress o_mask x ; axis=axis
moved extract m x
moved where m x y
moved where m
moved nonzero,argwhere,flatnonzero x
moved ix_ o_i o_i
moved diag_indices small small
moved tril_indices small small small
moved triu_indices_from x
moved unravel_index i shape
moved ravel_multi_index is shape ; mode=mode
sum bincount o_i ; minlength=small
sum bincount o_i o
exact digitize x o_sorted ; right=flag
shape histogram x small
exact isin x X ; invert=flag
equal union1d,intersect1d,setdiff1d x X
sum diff x ; n=small axis=ax
sum ediff1d x
sum gradient,trapezoid x ; axis=ax
shape interp x o_sorted o
sum cross x y
sum dot,vdot,inner x X
exact outer x X
sum matmul x X
sum matmul x x
sum tensordot x X ; axes=small
sum vecdot x y
shape cov x ; rowvar=flag
shape corrcoef x
sum convolve,correlate o o ; mode=convmode
shape polyval o x
shape polyfit o o small
shape roots o
shape linalg.norm x ; axis=axes keepdims=flag ord=ord
shape linalg.det,linalg.inv x
shape linalg.solve x X
shape linalg.svdvals,linalg.svd,linalg.qr,linalg.eigh,linalg.eigvals,linalg.cholesky x
shape linalg.matrix_power x small
shape linalg.matrix_rank,linalg.pinv x
shape linalg.lstsq x X
shape linalg.slogdet x
sum linalg.trace x ; offset=small
moved linalg.diagonal x ; offset=small
sum linalg.multi_dot xs
shape linalg.vector_norm x ; axis=axes keepdims=flag
shape linalg.matrix_norm x ; keepdims=flag
shape fft.fft x ; n=small axis=ax norm=norm
shape fft.ifft x ; n=small axis=ax
shape fft.rfft,fft.irfft x ; n=small axis=ax norm=norm
shape fft.hfft,fft.ihfft x ; n=small axis=ax
shape fft.fft2 x ; s=pair axes=axpair
shape fft.fftn x ; s=shape axes=axes
shape fft.ifftn,fft.rfftn,fft.irfftn x ; axes=axes
shape fft.irfft2 x
moved fft.fftshift,fft.ifftshift x ; axes=axes
shape fft.fftfreq small
exact full shape number ; dtype=t
exact zeros,ones shape ; dtype=T
exact zeros_like x ; dtype=t shape=shape
exact full_like x number ; dtype=t
exact ones_like x ; shape=shape
exact asarray x ; dtype=t copy=true
exact array x ; dtype=t ndmin=small copy=flag
exact astype x t
moved copy x ; order=order
exact eye small small ; k=small dtype=T
exact tri small small small ; dtype=T
exact arange small small step ; dtype=Tnumber
exact linspace small small small ; dtype=Tnumber
moved meshgrid o o ; indexing=indexing sparse=flag
moved vander o_i small
moved indices shape
exact shape x
exact size x ; axis=axis
exact ndim,iscomplexobj,isrealobj,isscalar,unwrap,real_if_close x
moved nan_to_num x ; copy=flag
"""

# The words behind a colon stand for OP, each in a row of its own.
STATEMENTS = """
moved {x}[...] = {y}
moved {x}[{index}] = {value}
exact {x}[{index}] += {number}
exact {x}[{index}] *= {y}
moved {x}.fill({number})
moved {x}.flat[{flat}] = {value}
exact {x} OP= {y} : + - * / // %
near {x} **= {y}
exact {x} OP= {y} : & | ^ << >>
sum {x} @= {X}
moved {x}.sort(axis={ax})
moved {x}.put({i}, {value})
moved np.put({x}, {i}, {value}, mode={mode})
moved np.OP({x}, {m}, {value}) : place putmask
moved np.copyto({x}, {y}, where={m}, casting={casting})
moved np.put_along_axis({x}, {i}, {value}, axis={axis})
moved np.fill_diagonal({x}, {number})
sum np.add.at({x}, {i}, {number})
exact np.multiply.at({x}, ({i}), {number})
exact np.negative.at({x}, {i})
exact np.subtract.at({x}, {i}, {value})
moved {x}.OP = {number} : real imag
moved {x}.shape = {shape}
"""
EXPRESSIONS = """
moved {x}.conj().copy()
moved np.trim_zeros({x}).copy()
moved {x}[{OP}] : index index index m i
moved {x}.flat[{flat}]
moved {x}.OP : T mT real
moved {x}.imag.copy()
moved np.imag({x}).copy()
moved list({x}.flat)
moved OP({x}) : list len bool
exact OP({x}) : int float complex
exact {number} in {x}
moved {x}.OP : shape ndim size
exact {x} OP {y} : + - * / // %
near {x} ** {y}
exact {number} OP {x} : + - * / // %
near {number} ** {x}
exact {number} OP {x} : >> <<
exact divmod({x}, {y})
exact {x} OP {y} : & | ^ << >> == != < <= > >=
sum {x} @ {X}
exact OP{x} : - + ~
exact abs({x})
sum np.{fold}.reduce({x}, axis={axes}, keepdims={flag})
sum np.{fold}.reduce({x}, axis={axis}, initial={number}, where={m})
sum np.{fold}.reduce({x})
sum np.{fold}.accumulate({x}, axis={ax})
sum np.{fold}.reduceat({x}, {o_i}, axis={ax})
sum np.{fold}.outer({x}, {X})
moved np.r_[{x}, {number}]
moved np.c_[{x}, {x}]
sum np.einsum("ij->ji", {x})
sum np.einsum("ij,jk", {x}, {X})
sum np.einsum("...i,i...", {x}, {X})
sum np.einsum("ii", {x})
sum np.einsum({subscripts}, {x})
sum np.einsum({subscripts}, {x}, {X})
exact np.argsort({x}, axis={axis}, stable=True)
shape np.apply_along_axis(np.sum, {ax}, {x})
shape np.apply_over_axes(np.sum, {x}, {axes})
exact np.can_cast({x}.dtype, {t})
"""


@dataclass(frozen=True)
class Step:
    """A statement, how NumPy says it, and by which rule the results are compared."""

    text: str
    theirs: str
    rule: str
    result: str = ""  # the variable that it sets


def rows(table: str) -> list[tuple[str, str]]:
    """The rule and the text of each row."""
    found = []
    for line in table.strip().splitlines():
        rule, _, text = line.partition(" ")
        text, _, words = text.partition(" : ")
        found += [(rule, text.replace("OP", word)) for word in words.split() or ("OP",)]
    return found


# Draws that choose one of a few: text as it stands in the statement.
CHOICES: dict[str, tuple[Any, ...]] = {
    "small": (0, 0, 1, 1, 2, 2, 3, 4, -1, -2, 5, 8),
    "bit": (0, 1),
    "step": (1, 1, 2, -1, 3),
    "fraction": ("0.5", "0.0", "1.0", "0.25", "[0.5, 0.25]", "[]"),
    "shifts": (1, -1, 0, 3, 100, (1, 2)),
    "sections": (1, 2, 3, 0, [1], [0, 2], [], [1, 1, 9], (2,)),
    "order": ("'C'", "'F'", "'A'", "'C'"),
    "mode": ("'raise'", "'wrap'", "'clip'"),
    "padmode": ("'constant'", "'edge'", "'wrap'", "'reflect'", "'symmetric'", "'maximum'", "'minimum'"),
    "bitorder": ("'big'", "'little'"),
    "side": ("'left'", "'right'"),
    "convmode": ("'full'", "'same'", "'valid'"),
    "casting": ("'same_kind'", "'safe'", "'unsafe'", "'no'", "'equiv'"),
    "indexing": ("'ij'", "'xy'"),
    "norm": ("'ortho'", "'forward'", "'backward'"),
    "ord": ("1", "2", "0", "-1", "-2", "float('inf')", "'fro'", "'nuc'", "3"),
    "fold": tuple(FOLDS.split()),
    "subscripts": tuple(map(repr, SUBSCRIPTS.split())),
}


class Drawing:
    """The draws of one statement about the array `x`."""

    def __init__(self, rng: random.Random, arrays: dict[str, np.Array]) -> None:
        self.rng, self.arrays = rng, arrays
        self.x = rng.choice(list(arrays))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arrays[self.x].shape

    def some(self, wanted: Callable[[np.Array], bool]) -> str:
        """An array of the program's, one that is wanted if there is."""
        found = [n for n, a in self.arrays.items() if wanted(a)]
        return self.rng.choice(found or list(self.arrays))

    def new(self, shape: tuple[int, ...], dtype: str) -> str:
        layout = self.rng.choice(("rows", "rows", "columns", "reversed", "strided"))
        return f"arr({dtype!r}, {shape}, {self.rng.randrange(60)}, {layout!r})"

    def of(self, kind: str) -> str:
        few = CHOICES.get(kind)
        found = self.rng.choice(few) if few else getattr(self, "draw_" + kind)()
        return found if isinstance(found, str) else repr(found)

    # ---- arrays

    def draw_x(self) -> str:
        return self.x

    def broadcast(self) -> tuple[int, ...]:
        """A shape that broadcasts against x, mostly."""
        shape = tuple(1 if self.rng.random() < 0.15 else n for n in self.shape)
        shape = shape[self.rng.choice((0, 0, 0, 1)) :]
        if self.rng.random() < 0.1:
            shape = (self.rng.choice((1, 2)), *shape)
        return tuple(n + 1 for n in shape) if self.rng.random() < 0.03 else shape

    def draw_y(self) -> str:
        r = self.rng.random()
        t = self.arrays[self.x].dtype.name
        if r < 0.25:
            return self.of("number")
        if r < 0.5:
            same = [n for n, a in self.arrays.items() if a.dtype.name == t and a.shape == self.shape]
            if same:
                return self.rng.choice(same)
        if r < 0.6:
            return self.some(lambda a: True)
        return self.new(self.broadcast(), t if r < 0.8 else self.rng.choice(TYPES))

    def draw_X(self) -> str:
        if self.rng.random() < 0.5:
            return self.some(lambda a: a.dtype.name == self.arrays[self.x].dtype.name)
        shape = self.rng.choice((self.shape, self.shape[::-1], self.shape[-1:], self.random_shape()))
        return self.new(shape, self.rng.choice((self.arrays[self.x].dtype.name, "float32", "int64")))

    def random_shape(self) -> tuple[int, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 3, 4))
        return tuple(self.rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5)) for _ in range(rank))

    def draw_xs(self) -> str:
        t = self.arrays[self.x].dtype.name
        parts = [self.x]
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            shape = list(self.shape)
            if shape and self.rng.random() < 0.4:
                shape[self.rng.randrange(len(shape))] = self.rng.randrange(4)
            parts.append(self.rng.choice((self.x, self.new(tuple(shape), t))))
        return f"[{', '.join(parts)}]"

    def draw_o(self) -> str:
        t = self.arrays[self.x].dtype.name
        return self.new((self.rng.choice((0, 1, 2, 3, 5)),), t)

    def draw_o_sorted(self) -> str:
        t = self.arrays[self.x].dtype.name
        n = self.rng.choice((1, 2, 4))
        return f"np.arange({n}).astype({self.type_of((t,))})"

    def draw_o_i(self) -> str:
        count = self.rng.choice((0, 1, 2, 4))
        values = [self.rng.choice((0, 0, 1, 1, 2, 3, 7)) for _ in range(count)]
        return f"np.asarray({values}, dtype={self.rng.choice(('int64', 'int64', 'int32', 'uint8'))})"

    def draw_o_mask(self) -> str:
        n = self.rng.choice((*self.shape, 0, 2))
        return f"np.asarray({[self.rng.random() < 0.5 for _ in range(n)]}, dtype=np.bool)"

    def draw_m(self) -> str:
        shape = self.shape if self.rng.random() < 0.8 else self.broadcast()
        return self.rng.choice(("True",) + (self.new(shape, "bool"),) * 6)

    def draw_i(self) -> str:
        bound = min(self.shape, default=1)
        shape = self.rng.choice(((2,), (), (1, 2), (0,), self.shape, (3,)))
        count = math.prod(shape)
        low = -bound if self.rng.random() < 0.3 else 0
        high = max(low, bound - (self.rng.random() < 0.95))
        values = [self.rng.randint(low, high) for _ in range(count)]
        t = self.rng.choice(("int64", "int64", "int32", "int8"))
        return f"np.asarray({values}, dtype={t}).reshape({shape})"

    def draw_is(self) -> str:
        return f"({self.of('i')}, {self.of('i')})"

    def draw_conditions(self) -> str:
        count = self.rng.choice((1, 1, 2))
        return f"[{', '.join(self.new(self.shape, 'bool') for _ in range(count))}]"

    # ---- numbers, flags, words

    def draw_number(self) -> str:
        t = self.arrays[self.x].dtype
        ints = ("0", "1", "2", "-1", "3", "7", "True", "200")
        floats = ("0.5", "-0.0", "1e300", "float('nan')", "float('inf')", "1.5", "2.0", "1e-42")
        if t.kind in ("signed", "unsigned", "bool") and self.rng.random() < 0.8:
            return self.rng.choice(ints)
        if t.kind == "complex" and self.rng.random() < 0.3:
            return self.rng.choice(("1j", "(2-1j)"))
        if self.rng.random() < 0.02:
            return self.rng.choice(("1j", "2**70", "-2**63"))
        return self.rng.choice((*ints[:6], *floats))

    def draw_value(self) -> str:
        r = self.rng.random()
        if r < 0.5:
            return self.of("number")
        return self.of("y") if r < 0.9 else self.rng.choice(("[]", "[1]", "[1, 2]", "()", self.x))

    def draw_flag(self) -> bool:
        return self.rng.random() < 0.6

    def draw_true(self) -> bool:
        return True

    def draw_ax(self) -> int:
        rank = len(self.shape)
        if rank == 0 or self.rng.random() < 0.03:
            return self.rng.choice((0, -1, 1))
        return self.rng.randrange(-rank, rank)

    def draw_axis(self) -> Any:
        return None if self.rng.random() < 0.25 else self.draw_ax()

    def draw_axes(self) -> Any:
        r, rank = self.rng.random(), len(self.shape)
        if r < 0.15:
            return None
        if r < 0.65:
            return self.draw_ax()
        count = self.rng.randint(0, rank)
        axes = self.rng.sample(range(rank), count)
        return tuple(a - rank if self.rng.random() < 0.3 else a for a in axes)

    def draw_axpair(self) -> tuple[int, int]:
        return self.draw_ax(), self.draw_ax()

    def draw_perm(self) -> tuple[int, ...]:
        rank = len(self.shape)
        return tuple(self.rng.sample(range(rank), rank))

    def draw_shape(self) -> Any:
        size = math.prod(self.shape)
        options: list[Any] = [self.shape, self.shape[::-1], (size,), size, -1, (-1,), (1, *self.shape)]
        options += [(*self.shape, 1), (self.rng.randint(1, 3), *self.shape), self.random_shape(), ()]
        if self.shape:
            options += [(self.shape[0], -1), (-1, self.shape[-1])]
        return self.rng.choice(options)

    def draw_pair(self) -> tuple[int, int]:
        return self.rng.randint(0, 4), self.rng.randint(1, 4)

    def draw_counts(self) -> str:
        counts = [self.rng.randrange(4) for _ in range(self.rng.choice((*self.shape, 1, 2)))]
        return self.rng.choice(
            ("2", "0", "1", "3", repr(counts), "[]", "(2, 1)", f"np.asarray({counts}, dtype=int64)")
        )

    def draw_width(self) -> Any:
        one = self.rng.randint(0, 3), self.rng.randint(0, 3)
        return self.rng.choice((one[0], one, [one] * len(self.shape), 0))

    def draw_obj(self) -> str:
        slices = ("slice(0, 2)", "slice(None, None, 2)")
        return self.rng.choice(("0", "1", "-1", "[0, 1]", "[]", *slices, self.of("o_i"), "[0]"))

    def type_of(self, types: Sequence[str]) -> str:
        name = self.rng.choice(types)
        return "np.bool" if name == "bool" else name

    def draw_t(self) -> str:
        return self.type_of(TYPES)

    def draw_T(self) -> str:
        return self.type_of(NUMPYS)

    def draw_Tnumber(self) -> str:
        return self.rng.choice([t for t in NUMPYS if t != "bool"])

    # ---- indices

    def draw_flat(self) -> str:
        size = max(1, math.prod(self.shape))
        at = self.rng.randrange(-size, size)
        return self.rng.choice((str(at), ":", "::2", "[0, -1]", "[]", "1:", "::-1", f"{at}:", "..."))

    def draw_index(self) -> str:
        left, parts, used = list(self.shape), [], False
        advanced = self.rng.random() < 0.3
        while left and self.rng.random() < 0.85:
            n = left[0]
            r = self.rng.random()
            if r < 0.3:
                low, high = (self.rng.choice(("", self.rng.randint(-n - 1, n + 1))) for _ in range(2))
                step = self.rng.choice(("", "", ":1", ":2", ":-1", ":-2", ":3"))
                parts.append(f"{low}:{high}{step}")
            elif r < 0.5:
                parts.append(str(self.rng.randint(-n, n - (self.rng.random() < 0.95)) if n else 0))
            elif r < 0.6:
                parts.append(":")
            elif advanced and r < 0.8:
                count = self.rng.choice((0, 1, 2, 2))
                values = [self.rng.randint(-n, n - 1) if n else 0 for _ in range(count)]
                parts.append(self.rng.choice((repr(values), f"np.asarray({values}, dtype=int64)")))
            elif advanced and r < 0.9:
                parts.append(self.new((n,), "bool"))
            elif r < 0.95 and not used:
                parts.append("...")
                used = True
                left = left[self.rng.randrange(len(left)) :]
                continue
            else:
                parts.append("None")
                continue
            left.pop(0)
        if self.rng.random() < 0.1:
            parts.append("None")
        if not parts and self.rng.random() < 0.5:
            return self.rng.choice(("...", "()", "None", "True", "False", "..., None"))
        return (
            ", ".join(parts) + ("," if len(parts) == 1 and self.rng.random() < 0.3 else "")
            if parts
            else "..."
        )

    def draw_out(self) -> str:
        """An array of the program's that may be an operand too, or a new one."""
        shape = self.shape
        if self.rng.random() < 0.6:
            return self.some(lambda a: a.shape == shape)
        return self.new(
            shape, self.rng.choice((self.arrays[self.x].dtype.name, "float32", "bool", "int64"))
        )


def templates(row: str) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """A row of TABLE as the template of each name's call, and the keywords that it may have."""
    call, _, options = row.partition(" ; ")
    names, *arguments = call.split()
    keywords = tuple((k, v) for k, _, v in (option.partition("=") for option in options.split()))
    given = ", ".join("{" + a + "}" for a in arguments)
    heads = ("{x}" + n if n.startswith(".") else "np." + n for n in names.split(","))
    return [(f"{head}({given})", keywords) for head in heads]


CALLS = [(rule, *found) for rule, row in rows(TABLE) for found in templates(row)]


def statement(rng: random.Random, arrays: dict[str, np.Array], result: str) -> Step:
    """A statement about these arrays."""
    d = Drawing(rng, arrays)
    kind = rng.random()
    if kind < 0.6:
        rule, text, keywords = rng.choice(CALLS)
        chosen = [f"{k}={{{v}}}" for k, v in keywords if rng.random() < 0.4]
        if "where={m}" in chosen and "axis" not in dict(keywords) and "out={out}" not in chosen:
            chosen.append("out={out}")  # outside `where` NumPy's elements are undefined
        if chosen:
            text = text[:-1] + ("" if text.endswith(("(", "()")) else ", ") + ", ".join(chosen) + ")"
            text = text.replace("(, ", "(")
    elif kind < 0.82:
        rule, text = rng.choice(EXPRESSION_ROWS)
        keywords = ()
    else:
        rule, text = rng.choice(STATEMENT_ROWS)
        result = ""
    parts = re.split(r"\{(\w+)\}", text)
    here: list[str] = []
    there: list[str] = []
    x = d.arrays[d.x]
    y = d.of("y") if "{y}" in text else ""
    in_place = text.endswith("= {y}") and "[" not in text
    states_type = "dtype=" in text  # in which both sides compute
    joined = common_type(x, y, arrays) if y and (result or in_place) and not states_type else None
    if (
        rule in ("near", "sum")
        and not y
        and "round" not in text
        and x.dtype.kind in ("signed", "unsigned", "bool")
        and "np." in text
    ):
        joined = "float32" if rule == "near" else None
    for n, part in enumerate(parts):
        if n % 2 == 0:
            here.append(part)
            there.append(part)
            continue
        value = y if part == "y" else d.of(part)
        here.append(value)
        there.append(
            f"cast({value}, np.dtype('{joined}'))"
            if joined and part in ("x", "y")[not result :]
            else value
        )
    left = f"{result} = " if result else ""
    return Step(left + "".join(here), left + "".join(there), rule, result)


EXPRESSION_ROWS, STATEMENT_ROWS = rows(EXPRESSIONS), rows(STATEMENTS)


def common_type(x: np.Array, y: str, arrays: dict[str, np.Array]) -> str | None:
    """The type that C8 joins x and y in, where NumPy's is another."""
    made = re.match(r"arr\('(\w+)'", y)
    other: Any
    if y in arrays:
        other = arrays[y].dtype
    elif made:
        other = DTYPES[made[1]]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = eval(y)
    try:
        ours_joined = np.result_type(x.dtype, other)
    except NeuronSimError:
        return None
    try:
        theirs = numpy.result_type(
            THEIRS[x.dtype.name], THEIRS[other.name] if isinstance(other, DType) else other
        )
    except Exception:
        return ours_joined.name
    return None if theirs == THEIRS[ours_joined.name] else ours_joined.name


# ---- one program ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What is wrong with the last of these statements."""

    kind: str
    detail: str
    steps: tuple[Step, ...]

    @property
    def script(self) -> str:
        return "; ".join(s.text for s in self.steps)


def execute(text: str, result: str, names: dict[str, Any]) -> Any:
    exec(compile(text, "<program>", "exec"), names)
    return names[result] if result else None


def has_far_integers(text: str, names: dict[str, Any]) -> bool:
    """Whether NumPy, which goes round an axis once for each time that an index contains it, would not
    end.
    """
    arrays = [
        names[n].bits.data for n in re.findall(r"v[0-9]+", text) if isinstance(names.get(n), np.Array)
    ]
    return bool(re.search(r"arr\('u?int(32|64)'", text)) or any(
        a.dtype.kind in "iu"
        and a.dtype.itemsize > 2
        and a.size
        and max(-int(a.min()), int(a.max())) > 10**6
        for a in arrays
    )


def run_step(step: Step, here: dict[str, Any], there: dict[str, Any], about: str) -> tuple[str, str]:
    """Run a statement on both sides: what kind of difference there is, or nothing."""
    problem: BaseException | None = None
    refusal: BaseException | None = None
    try:
        with campaign.limit(SECONDS):
            found = execute(step.text, step.result, here)
    except NeuronSimError as error:
        refusal = error
    except campaign.TooSlow:
        return "hang", f"more than {SECONDS} s"
    except Exception as error:
        problem = error
    if "'wrap'" in step.theirs and has_far_integers(step.text, here):
        return "both", ""
    if re.search("there is no decomposition|no other side", str(refusal)):  # NumPy's may never end
        return "both", ""
    theirs: BaseException | None = None
    try:
        with campaign.limit(10 * SECONDS):
            expected = execute(step.theirs, step.result, there)
    except Exception as error:
        theirs = error
    if isinstance(problem, NameError):
        return "both", ""  # a statement without those that it needs
    if problem is not None:
        return "foreign", f"{type(problem).__name__}: {problem}"
    if refusal is not None:
        if theirs is None:
            return "refused", f"{type(refusal).__name__}: {refusal}"
        return "both", ""
    if theirs is not None:
        return "accepted", f"{type(theirs).__name__}: {theirs}"
    wrong = ""
    if step.result:
        try:
            wrong = difference(found, expected, step.rule, about)
        except Exception as error:  # of what is an Array by name only
            return "foreign", f"{type(error).__name__} where the result is read: {error}"
    return ("different", wrong) if wrong else ("", "")


def difference(found: Any, expected: Any, rule: str, about: str) -> str:
    """What two results differ in."""
    if isinstance(expected, tuple | list) and not isinstance(found, np.Array):
        if not isinstance(found, tuple | list) or len(found) != len(expected):
            return f"{type(found).__name__} {found!r:.80}, NumPy's {expected!r:.80}"
        return next(
            filter(None, (difference(f, e, rule, about) for f, e in zip(found, expected, strict=True))),
            "",
        )
    if isinstance(found, np.Array) and isinstance(
        expected, numpy.ndarray | numpy.generic | int | float | complex
    ):
        return array_difference(found, numpy.asarray(expected), rule, about)
    if isinstance(found, np.Array):
        return f"an Array, NumPy's {expected!r:.80}"
    if isinstance(expected, numpy.generic | float | complex | numpy.ndarray):
        return array_difference(
            np.asarray(found), numpy.asarray(expected), "sum" if rule == "sum" else "near", about
        )
    return "" if found == expected else f"{found!r:.80}, NumPy's {expected!r:.80}"


# Where no type is given, floats are float32 (C8).
NARROWED = {"float64": ("float32",), "float16": ("float32",), "complex128": ("complex64",)}


def array_difference(found: np.Array, expected: numpy.ndarray, rule: str, about: str) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape}, NumPy's {expected.shape}"
    t, theirs = found.dtype, expected.dtype
    same = THEIRS[t.name] == theirs
    own = t.kind == "float" and theirs == numpy.float64 and "float64" not in about
    own |= theirs in {THEIRS[n] for n in OWN if n != "tfloat32"}
    own |= (t.name in OWN and theirs.kind not in "iub") or theirs.kind == "V"
    if not same and not own and t.name not in NARROWED.get(theirs.name, ()):
        return f"type {t.name}, NumPy's {theirs.name}"
    if found.size == 0 or rule == "shape":
        return ""
    ours_data = numpy.asarray(found.astype("float32") if t.name == "tfloat32" else found)
    if rule == "moved":
        if same and ours_data.tobytes() != expected.tobytes():
            return f"bits {ours_data.tolist()!r:.100}, NumPy's {expected.tolist()!r:.100}"
        return ""
    wide: Any = numpy.complex128 if t.kind == "complex" else numpy.float64
    if t.kind not in ("float", "complex"):
        equal = numpy.array_equal(ours_data, expected)
        return "" if equal else f"{ours_data.tolist()!r:.120}, NumPy's {expected.tolist()!r:.120}"
    with numpy.errstate(all="ignore"):
        a, b = ours_data.astype(wide), expected.astype(wide)
        agree = (a == b) | ((a != a) & (b != b))
        if rule == "exact" and same and t.kind == "float" and t.name != "tfloat32":
            agree &= (numpy.signbit(a) == numpy.signbit(b)) | (a != a)
        elif rule not in ("exact", "equal") or not same or t.kind == "complex" or t.name == "tfloat32":
            agree |= near(a, b, t, rule, theirs)
    if agree.all():
        return ""
    at = numpy.argwhere(~agree)[0]
    return f"at {at.tolist()} {a[tuple(at)]!r}, NumPy's {b[tuple(at)]!r}"


def near(a: numpy.ndarray, b: numpy.ndarray, t: DType, rule: str, theirs: Any) -> Any:
    """Within the bound of a rule: NumPy's functions and sums are rounded too, in the narrow type."""
    bits = 24 if t.kind == "complex" or t.mantissa_bits > 22 else t.mantissa_bits + 1
    eps = max(2.0 ** (1 - bits), 2.0**-10 if theirs == numpy.float16 else 0.0)
    least = 2.0**-126 if t.exponent_bits in (0, 8, 11) else 2.0 ** (2 - 2 ** (t.exponent_bits - 1))
    if rule == "sum":
        magnitudes = numpy.abs(b[numpy.isfinite(b)])
        scale = magnitudes.max(initial=1.0)
        # NumPy's accumulator of a narrow type stops growing; overflows differ by the order.
        odd = ~numpy.isfinite(a) | ~numpy.isfinite(b)
        return (numpy.abs(a - b) <= 64 * eps * scale + 1e-30) | odd
    bound = 8 * eps * numpy.abs(b) + 4 * eps * least
    largest = float(np.finfo(t).max) if t.kind == "float" else 1e38
    return (numpy.abs(a - b) <= bound) | (~numpy.isfinite(a) & (numpy.abs(b) >= 0.99 * largest))


# What a documented rule makes different, by the kind of finding: what its statement and its detail
# have, and why.
CONVERSION = (
    r"(astype|dtype=|array\(|\.real = |\.imag = |full|fill|copyto|put|place|flat|\] = |out=|insert"
    r"|append|select|choose)"
)
EXCUSED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "refused": (
        ("", "float8_e4m3fn|device has no such type", "float8_e4m3fn has no arithmetic (rule F)"),
        ("", "not defined for bool", "bool has logic and comparisons (E8)"),
        ("", "not defined for complex", "complex numbers have no order (numpy_coverage.md)"),
        ("", "uint64 (with|and) int64|int64 (with|and) uint64", "no common type (C8)"),
        ("", "complex.* to (float|bool|u?int)|C6", "complex numbers do not become real ones (C6)"),
        ("", "operands and result must be all device floats", "products of device types (M1)"),
        (
            "",
            "same_kind|which an array of .* does not take",
            "in-place results are same_kind (arrays.md)",
        ),
        ("clip", "bounds are all", "clip keeps the type of its array (numpy_coverage.md)"),
        ("", "^IntegerOverflow: .* is outside", "a Python int takes the array's type (C8)"),
        (
            "",
            "no negative lengths|have no -|read-only|multi_dot needs|weights of the shape",
            "NumPy checks late",
        ),
        (r"tri\(", "is not negative", "numpy_coverage.md"),
        ("cum(sum|prod).*out=", "^InvalidArgument: out is", "the result's shape is out's"),
        ("copyto.*'(no|equiv|safe)'", "cast", "tfloat32 is a type of its own"),
        ("view", "are no bool values", "numpy_coverage.md"),
        (
            "",
            "tfloat32 values|ndmin|without a copy|shape in place|have no (common type|order)"
            "|no values for|no place among",
            "C8",
        ),
        ("cross", "elements, not 3", "numpy_coverage.md"),
        ("einsum", "differ in length", "a label has one length"),
        (
            "",
            "needs a copy|negative integer powers|give initial="
            "|is out of bounds for axis 0 with size 0",
            "C8",
        ),
    ),
    "accepted": (
        ("# .*(float8|bfloat16|tfloat32)", "", "NumPy has no such operation for types of ml_dtypes"),
        (
            "# .*bool",
            "boolean (negative|subtract|positive)|ufunc 'positive'",
            "bool as in numerics.md (E8)",
        ),
        ("", "cast|Cast", "assignments and out= convert (C6, arrays.md)"),
        ("(2rad|2deg).*# .*complex", "", "numpy_coverage.md"),
        ("", "OverflowError|cannot convert float", "a float outside an integer type saturates (C6)"),
        (
            "indices|fftshift|median|newaxis|quantile|percentile|(mean|std|var)\\(",
            "",
            "NumPy fails on its own steps",
        ),
        ("roots", "infs or NaNs", "on the host float32 quotients do not overflow (H1)"),
        (
            "",
            "did not contain a loop|Too many bins|float division|division by zero|Incompatible shape",
            "types and layouts",
        ),
        ("", "not reorderable", "the order of a fold is fixed (R2)"),
        (r"\.imag|np\.imag", "read-only", "the imaginary part of real numbers is an array of its own"),
        (r"\[\.\.\.\] = \[", "maximum number of dimension", "a list of one element is one"),
        ("percentile|quantile|median", "out of bounds", "NumPy fails on its own steps"),
        ("", "float16 is unsupported in linalg", "the device has float16 (H1)"),
        ("", "Error setting single item", "one element of `flat` takes the first of several"),
    ),
    "different": (
        (
            r"fmod|unwrap|reciprocal|isscalar|fft.*axes=\(\)|eigvals|bincount|matrix_rank",
            "",
            "numpy_coverage.md",
        ),
        (r"divmod|floor_divide|//", "inf|nan|-0.0|-1.0", "quotients of infinities (numpy_coverage.md)"),
        ("trapezoid.*# .*int", "", "NumPy's sums and differences of integers wrap"),
        (r"frexp.*# .*int(32|64)", "", "integers take the default float type (C8)"),
        ("linspace.*dtype=float64", r"float64\(", "each value is rounded once (C1)"),
        ("logaddexp", r"\(-?0\.0", "beside zero the rounding of the operands shows"),
        (r"power\.reduce", "", "NumPy's order is another (R2)"),
        (r"insert.*# .*float.*int", "", "C6"),
        (r"(outer|kron).*# .*float8.*int", "nan", "integers beyond the type are Inf (C2)"),
        (r"sort\(", r"-?0\.0\).*-?0\.0\)", "equal zeros keep their order"),
        (r"\.outer.*# .*float16.*int", "", "the common type (C8)"),
        ("(quantile|percentile|median).*# .*int", "", "NumPy's differences of integers wrap"),
        ("dtype=tfloat32", "", "NumPy has it as float32"),
        (
            r"[-*/+]= .*# (?=.*(bfloat16|float8|tfloat32))\w+ \w",
            "",
            "the common type is the wider (C8)",
        ),
        ("lstsq.*# .*(float8|bfloat16|float16|tfloat32)", "shape", "ranks are of the type's eps"),
        (r"gcd\.reduce.*initial=-", "", "the gcd of a negative number alone is its magnitude"),
        ("spacing|nextafter", "", "integers take the default float type (C8)"),
        ("lstsq", "type int64, NumPy's int32", "ranks are int64"),
        (r"pad\(.*mode='(maximum|minimum)'", "bits", "of zeros +0 is the larger (E7)"),
        (r"conj|square|round\(", "type bool", "bool stays bool (numpy_coverage.md)"),
        ("round.*# .*(float8|bfloat16|tfloat32)", "", "one rounding (R7)"),
        ("fft", "type complex64, NumPy's", "H1"),
        (r"\.flat\[.*(v[0-9]+).* = \1", "", "NumPy reads what it has written"),
        (
            r"(sign|sort|isin|unique|1d|round|dot|inner|trapezoid|allclose|1e-42|1e300)"
            r".*# .*(float8|bfloat16|tfloat32|bool)",
            "",
            "ml_dtypes and NumPy's bool",
        ),
        ("float_power|e300|e-42", "", "the operands' type, numbers by C8 (numpy_coverage.md)"),
        (r"roots|polyfit|setdiff1d", "type", "of nothing NumPy gives float64"),
        (
            CONVERSION + ".*(inf|nan|# .*int.*float|# .*float.*int)",
            r"^(v[0-9]+ afterwards: )?\[*-?[0-9]",
            "C6",
        ),
        (r"\.flat\[|np\.place", "afterwards", "NumPy reads what it has written"),
        ("nanquantile|nanpercentile", "shape", "of nothing NumPy forgets the axes"),
        (r"\.at\(.*# .*uint64", "", "NumPy's uint64 and int64 are float64"),
        (
            r"\*\*=? |shape = |power.*initial|can_cast.*(float8|bfloat16|tfloat32)",
            "",
            "numpy_coverage.md",
        ),
        (r"round.*# float16|cov|corrcoef|fft.*# .*64", "", "one rounding (R7)"),
        (r"(can_cast|nan_to_num|digitize).*# .*(float8|bfloat16|tfloat32)", "", "ml_dtypes' types"),
        (r"\.at\(", "inf|nan", "a Python number takes the array's type (C8)"),
        ("pinv", "type float32", "of nothing NumPy gives the operand"),
        (
            r"round.*int64|(std|var)\(.*int|arctan2.reduce|sqrt\(.*int|(expm1|log1p).*complex",
            "",
            "float32 steps (R7)",
        ),
        (r"(out=|insert|append|where|select).*# .*(tfloat32|bfloat16|float8)", "", "types of our own"),
    ),
}
CONVERTING = re.compile(r"astype|dtype=|out=|casting=|\.view\(|float8|bfloat16|tfloat32")


def excused(kind: str, text: str, detail: str) -> bool:
    return any(re.search(t, text) and re.search(d, detail) for t, d, _ in EXCUSED.get(kind, ()))


class Running:
    """A program while it runs on both sides."""

    def __init__(self) -> None:
        self.here, self.there = environments()
        self.variables: list[str] = []

    def arrays(self) -> dict[str, np.Array]:
        return {n: self.here[n] for n in self.variables}

    def run(self, step: Step) -> tuple[str, str]:
        """What is wrong with a statement, or nothing; both sides go on with our bits."""
        kind, detail = run_step(step, self.here, self.there, self.about(step))
        if step.result and kind == "":
            self.keep(step.result)
        if kind in ("refused", "accepted", "hang", "foreign"):
            if excused(kind, self.about(step), detail):
                self.agree(step, compare=False)
                return "excused", ""
            return kind, detail
        wrong = self.agree(step, compare=kind != "both")
        if kind == "":
            kind, detail = ("different", wrong) if wrong else ("", "")
        if kind == "different" and excused(kind, self.about(step), detail):
            return "excused", ""
        return kind, detail

    def about(self, step: Step) -> str:
        """The statement and the types that it is about."""
        named = [n for n in re.findall(r"v[0-9]+", step.text) if isinstance(self.here.get(n), np.Array)]
        types = {self.here[n].dtype.name for n in named} | set(re.findall(r"arr\('(\w+)'", step.text))
        return f"{step.text} # {' '.join(sorted(types))}"

    def keep(self, name: str) -> None:
        """The result of a statement is a variable if it is an array that is not too large."""
        found, theirs = self.here[name], self.there[name]
        if not isinstance(found, np.Array) or found.size > LARGEST or found.ndim > MOST_AXES:
            return
        if not isinstance(theirs, numpy.ndarray):
            # NumPy's scalars are no views.
            theirs = numpy.asarray(theirs)
            others = (self.here[n] for n in self.variables)
            if any(numpy.shares_memory(found.bits.data, o.bits.data) for o in others):
                found = found.copy()
        # NumPy keeps the order of the operands' axes in memory: then ravel is a view of other results.
        others = (self.there[n] for n in self.variables)
        if found.bits.data.flags.c_contiguous and not any(
            numpy.shares_memory(theirs, o) for o in others
        ):
            theirs = numpy.array(theirs, order="C") if theirs.flags.writeable else theirs
        self.here[name], self.there[name] = found, theirs
        self.variables.append(name)
        if len(self.variables) > 6:
            self.variables.pop(0)

    def agree(self, step: Step, *, compare: bool) -> str:
        """Compare all variables, of which a statement may have changed one; then NumPy has our bits."""
        wrong = ""
        rule = step.rule
        if rule == "moved" and (not step.result or CONVERTING.search(step.text)):
            rule = "exact"
        for name in self.variables:
            found, theirs = self.here[name], self.there[name]
            if not isinstance(found, np.Array):
                self.variables = [n for n in self.variables if isinstance(self.here[n], np.Array)]
                continue
            bits = plain(found)
            if (
                theirs.dtype == bits.dtype
                and theirs.shape == bits.shape
                and bits.tobytes() == theirs.tobytes()
            ):
                continue
            if compare and not wrong:
                wrong = array_difference(found, theirs, rule, self.about(step))
                if wrong:
                    wrong = f"{name} afterwards: {wrong}"
            if theirs.dtype == bits.dtype and theirs.shape == bits.shape and theirs.flags.writeable:
                theirs[...] = bits
            else:
                self.there[name] = numpy.array(bits)
        return wrong


def plain(x: np.Array) -> numpy.ndarray:
    """The array's bits as NumPy's side has them."""
    data = numpy.asarray(x.bits.data)
    return data.view(numpy.float32) if x.dtype.name == "tfloat32" else data.view(THEIRS[x.dtype.name])


def program(seed: int, counts: Counter[str], statements: int = 8) -> Finding | None:
    """Draw program number `seed` and run it to its end or its first finding."""
    rng = random.Random(f"program {seed}")
    running, steps = Running(), []
    for n in range(rng.choice((1, 2, 2, 3))):
        shape = Drawing.random_shape(Drawing(rng, {"v": np.zeros(0)}))
        made = (
            f"v{n} = arr({rng.choice(TYPES)!r}, {shape}, {rng.randrange(60)}, {rng.choice(LAYOUTS)!r})"
        )
        step = Step(made, made, "moved", f"v{n}")
        steps.append(step)
        running.run(step)
    for n in range(3, 3 + rng.randint(1, statements)):
        step = statement(rng, running.arrays(), f"v{n}")
        steps.append(step)
        kind, detail = running.run(step)
        counts[kind or "agrees"] += 1
        if kind not in ("", "both", "excused"):
            found = Finding(kind, detail, tuple(steps))
            return minimal(found) if kind != "hang" else found
    return None


def outcome(steps: tuple[Step, ...]) -> str:
    """The kind of finding that the last of these statements is, the others being none."""
    running = Running()
    kind = ""
    for n, step in enumerate(steps):
        kind = running.run(step)[0]
        if kind in ("foreign", "hang", "accepted", "refused", "different") and n < len(steps) - 1:
            return ""
    return kind


def minimal(found: Finding) -> Finding:
    """The finding without the statements that it does not need."""
    steps = list(found.steps)
    for n in reversed(range(len(steps) - 1)):
        shorter = (*steps[:n], *steps[n + 1 :])
        if outcome(shorter) == found.kind:
            del steps[n]
    return Finding(found.kind, found.detail, tuple(steps))


# ---- many programs -------------------------------------------------------------------------------


def run(start: int, count: int, at: Callable[[int], object] = lambda n: None) -> campaign.Outcome:
    """The programs of so many numbers."""
    outcome = campaign.Outcome()
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(start, start + count):
            at(seed)
            found = program(seed, outcome.counts)
            outcome.counts["programs"] += 1
            if found is not None:
                outcome.findings.append((seed, found.kind, found.detail, found.script))
    return outcome


if __name__ == "__main__":
    sys.exit(campaign.main("tests.arrays.random_programs", __doc__, run, count=200_000, chunk=CHUNK))
