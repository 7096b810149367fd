"""What type checkers know of neuronsim.arrays; written by `python python/make_stub.py`."""

import builtins
from typing import Any, TypedDict, Unpack

from neuronsim.dtypes import Casting, DTypeLike
from neuronsim.arrays import methods
from neuronsim.arrays.array_object import Array as Array
from neuronsim.arrays.calculus import (
    convolve as convolve, correlate as correlate, ediff1d as ediff1d, gradient as gradient,
    interp as interp, polyfit as polyfit, polyval as polyval, roots as roots, trapezoid as trapezoid,
    unwrap as unwrap,
)
from neuronsim.arrays.complex_numbers import (
    imag as imag, iscomplex as iscomplex, isreal as isreal, real as real,
    real_if_close as real_if_close,
)
from neuronsim.arrays.conversion import asarray as asarray
from neuronsim.arrays.creation import (
    array as array, asarray_chkfinite as asarray_chkfinite, ascontiguousarray as ascontiguousarray,
    asfortranarray as asfortranarray, copy as copy, diag as diag, diagflat as diagflat, empty as empty,
    empty_like as empty_like, eye as eye, frombuffer as frombuffer, fromiter as fromiter, full as full,
    full_like as full_like, identity as identity, ones as ones, ones_like as ones_like,
    require as require, tri as tri, tril as tril, triu as triu, vander as vander, zeros as zeros,
    zeros_like as zeros_like,
)
from neuronsim.arrays.cumulative import (
    cumprod as cumprod, cumsum as cumsum, cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum, diff as diff, nancumprod as nancumprod, nancumsum as nancumsum,
)
from neuronsim.arrays.einstein_summation import einsum as einsum
from neuronsim.arrays.elementwise import (
    angle as angle, clip as clip, isclose as isclose, isneginf as isneginf, isposinf as isposinf,
    nan_to_num as nan_to_num, round as round, sinc as sinc, where as where,
)
from neuronsim.arrays.error_handling import (
    errstate as errstate, geterr as geterr, geterrcall as geterrcall, seterr as seterr,
    seterrcall as seterrcall,
)
from neuronsim.arrays.files import (
    genfromtxt as genfromtxt, loadtxt as loadtxt, save as save, savetxt as savetxt, savez as savez,
    savez_compressed as savez_compressed,
)
from neuronsim.arrays.functional import (
    apply_along_axis as apply_along_axis, apply_over_axes as apply_over_axes, vectorize as vectorize,
)
from neuronsim.arrays.grids import (
    c_ as c_, fromfunction as fromfunction, indices as indices, meshgrid as meshgrid, mgrid as mgrid,
    ogrid as ogrid, r_ as r_,
)
from neuronsim.arrays.histograms import (
    bincount as bincount, digitize as digitize, histogram as histogram, histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges, histogramdd as histogramdd,
)
from neuronsim.arrays.indexing import (
    argwhere as argwhere, choose as choose, compress as compress, diag_indices as diag_indices,
    diag_indices_from as diag_indices_from, extract as extract, fill_diagonal as fill_diagonal,
    flatnonzero as flatnonzero, index_exp as index_exp, ix_ as ix_, mask_indices as mask_indices,
    ndenumerate as ndenumerate, ndindex as ndindex, nonzero as nonzero, piecewise as piecewise,
    place as place, put as put, put_along_axis as put_along_axis, putmask as putmask,
    ravel_multi_index as ravel_multi_index, s_ as s_, select as select, take as take,
    take_along_axis as take_along_axis, tril_indices as tril_indices,
    tril_indices_from as tril_indices_from, triu_indices as triu_indices,
    triu_indices_from as triu_indices_from, unravel_index as unravel_index,
)
from neuronsim.arrays.info import __array_namespace_info__ as __array_namespace_info__
from neuronsim.arrays.interop import (
    from_dlpack as from_dlpack, may_share_memory as may_share_memory, shares_memory as shares_memory,
)
from neuronsim.arrays.logic import (
    allclose as allclose, array_equal as array_equal, array_equiv as array_equiv,
)
from neuronsim.arrays.manipulation import (
    append as append, array_split as array_split, astype as astype, atleast_1d as atleast_1d,
    atleast_2d as atleast_2d, atleast_3d as atleast_3d, block as block,
    broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to, column_stack as column_stack, concat as concat,
    concatenate as concatenate, copyto as copyto, delete as delete, dsplit as dsplit, dstack as dstack,
    expand_dims as expand_dims, flip as flip, fliplr as fliplr, flipud as flipud, hsplit as hsplit,
    hstack as hstack, insert as insert, isfortran as isfortran, moveaxis as moveaxis, ndim as ndim,
    packbits as packbits, permute_dims as permute_dims, ravel as ravel, repeat as repeat,
    reshape as reshape, resize as resize, roll as roll, rollaxis as rollaxis, rot90 as rot90,
    shape as shape, size as size, split as split, squeeze as squeeze, stack as stack,
    swapaxes as swapaxes, tile as tile, transpose as transpose, trim_zeros as trim_zeros,
    unpackbits as unpackbits, unstack as unstack, vsplit as vsplit, vstack as vstack,
)
from neuronsim.arrays.order import (
    argmax as argmax, argmin as argmin, argpartition as argpartition, argsort as argsort,
    lexsort as lexsort, nanargmax as nanargmax, nanargmin as nanargmin, partition as partition,
    searchsorted as searchsorted, sort as sort, top_k as top_k,
)
from neuronsim.arrays.padding import pad as pad
from neuronsim.arrays.polynomials import (
    poly as poly, polyadd as polyadd, polyder as polyder, polydiv as polydiv, polyint as polyint,
    polymul as polymul, polysub as polysub,
)
from neuronsim.arrays.printing import (
    array2string as array2string, array_repr as array_repr, array_str as array_str,
    base_repr as base_repr, binary_repr as binary_repr,
    format_float_positional as format_float_positional,
    format_float_scientific as format_float_scientific, get_printoptions as get_printoptions,
    printoptions as printoptions, set_printoptions as set_printoptions,
)
from neuronsim.arrays.products import (
    cross as cross, diagonal as diagonal, dot as dot, inner as inner, kron as kron, matmul as matmul,
    matrix_transpose as matrix_transpose, matvec as matvec, outer as outer, tensordot as tensordot,
    trace as trace, vdot as vdot, vecdot as vecdot, vecmat as vecmat,
)
from neuronsim.arrays.progressions import (
    arange as arange, geomspace as geomspace, linspace as linspace, logspace as logspace,
)
from neuronsim.arrays.reductions import (
    all as all, amax as amax, amin as amin, any as any, count_nonzero as count_nonzero, max as max,
    mean as mean, min as min, nanmax as nanmax, nanmean as nanmean, nanmin as nanmin,
    nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar, prod as prod, ptp as ptp,
    reduce_window as reduce_window, std as std, sum as sum, var as var,
)
from neuronsim.arrays.sets import (
    intersect1d as intersect1d, isin as isin, setdiff1d as setdiff1d, setxor1d as setxor1d,
    union1d as union1d, unique as unique, unique_all as unique_all, unique_counts as unique_counts,
    unique_inverse as unique_inverse, unique_values as unique_values,
)
from neuronsim.arrays.statistics import (
    average as average, corrcoef as corrcoef, cov as cov, median as median, nanmedian as nanmedian,
    nanpercentile as nanpercentile, nanquantile as nanquantile, percentile as percentile,
    quantile as quantile,
)
from neuronsim.arrays.types import (
    can_cast as can_cast, common_type as common_type, dtype as dtype, finfo as finfo, iinfo as iinfo,
    iscomplexobj as iscomplexobj, isdtype as isdtype, isrealobj as isrealobj, isscalar as isscalar,
    issubdtype as issubdtype, iterable as iterable, min_scalar_type as min_scalar_type,
    promote_types as promote_types, result_type as result_type,
)
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.arrays.windows import (
    bartlett as bartlett, blackman as blackman, hamming as hamming, hanning as hanning, i0 as i0,
    kaiser as kaiser,
)

around = round
asanyarray = asarray

class _More(TypedDict, total=False):
    where: Any
    dtype: DTypeLike | None
    casting: Casting
    order: str
    subok: builtins.bool

class _Binary(Ufunc):
    def __call__(
        self, x1: Any, x2: Any, /, out: Any = None, **more: Unpack[_More]
    ) -> Array: ...

add: _Binary
arctan2: _Binary
atan2: _Binary
bitwise_and: _Binary
bitwise_left_shift: _Binary
bitwise_or: _Binary
bitwise_right_shift: _Binary
bitwise_xor: _Binary
copysign: _Binary
divide: _Binary
equal: _Binary
equal_total_order: _Binary
float_power: _Binary
floor_divide: _Binary
fmax: _Binary
fmin: _Binary
fmod: _Binary
gcd: _Binary
greater: _Binary
greater_equal: _Binary
greater_equal_total_order: _Binary
greater_total_order: _Binary
heaviside: _Binary
hypot: _Binary
lcm: _Binary
ldexp: _Binary
left_shift: _Binary
less: _Binary
less_equal: _Binary
less_equal_total_order: _Binary
less_total_order: _Binary
logaddexp: _Binary
logaddexp2: _Binary
logical_and: _Binary
logical_or: _Binary
logical_xor: _Binary
maximum: _Binary
minimum: _Binary
mod: _Binary
multiply: _Binary
nextafter: _Binary
not_equal: _Binary
not_equal_total_order: _Binary
pow: _Binary
power: _Binary
remainder: _Binary
right_shift: _Binary
shift_left: _Binary
shift_right_arithmetic: _Binary
shift_right_logical: _Binary
subtract: _Binary
true_divide: _Binary

class _BinaryOfTwo(Ufunc):
    def __call__(  # type: ignore[override]
        self, x1: Any, x2: Any, /, out: Any = None, **more: Unpack[_More]
    ) -> tuple[Array, Array]: ...

divmod: _BinaryOfTwo

class _Ternary(Ufunc):
    def __call__(
        self, x1: Any, x2: Any, x3: Any, /, out: Any = None, **more: Unpack[_More]
    ) -> Array: ...

clamp: _Ternary

class _Unary(Ufunc):
    def __call__(
        self, x: Any, /, out: Any = None, **more: Unpack[_More]
    ) -> Array: ...

abs: _Unary
absolute: _Unary
acos: _Unary
acosh: _Unary
arccos: _Unary
arccosh: _Unary
arcsin: _Unary
arcsinh: _Unary
arctan: _Unary
arctanh: _Unary
asin: _Unary
asinh: _Unary
atan: _Unary
atanh: _Unary
bitwise_count: _Unary
bitwise_invert: _Unary
bitwise_not: _Unary
cbrt: _Unary
ceil: _Unary
conj: _Unary
conjugate: _Unary
cos: _Unary
cosh: _Unary
count_leading_zeros: _Unary
deg2rad: _Unary
degrees: _Unary
erf: _Unary
erf_dx: _Unary
erfc: _Unary
exp: _Unary
exp2: _Unary
expm1: _Unary
fabs: _Unary
fix: _Unary
floor: _Unary
gelu: _Unary
gelu_dx: _Unary
gelu_sigmoid: _Unary
gelu_sigmoid_dx: _Unary
gelu_tanh: _Unary
invert: _Unary
isfinite: _Unary
isinf: _Unary
isnan: _Unary
log: _Unary
log10: _Unary
log1p: _Unary
log2: _Unary
logical_not: _Unary
mish: _Unary
negative: _Unary
population_count: _Unary
positive: _Unary
rad2deg: _Unary
radians: _Unary
reciprocal: _Unary
rint: _Unary
round_half_away: _Unary
rsqrt: _Unary
sigmoid: _Unary
sign: _Unary
signbit: _Unary
silu: _Unary
silu_dx: _Unary
sin: _Unary
sinh: _Unary
softplus: _Unary
spacing: _Unary
sqrt: _Unary
square: _Unary
tan: _Unary
tanh: _Unary
trunc: _Unary

class _UnaryOfTwo(Ufunc):
    def __call__(  # type: ignore[override]
        self, x: Any, /, out: Any = None, **more: Unpack[_More]
    ) -> tuple[Array, Array]: ...

frexp: _UnaryOfTwo
modf: _UnaryOfTwo
