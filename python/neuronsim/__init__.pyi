"""What type checkers know of neuronsim; written by `python python/make_stub.py`."""

import builtins
from typing import Any

from neuronsim.dtypes import Casting, DTypeLike
from neuronsim import bench as bench
from neuronsim.api import (
    calibrate as calibrate, compile as compile, export_onnx as export_onnx, lint as lint, load as load,
    plan as plan, tune as tune,
)
from neuronsim.arrays import (
    __array_namespace_info__ as __array_namespace_info__, abs as abs, absolute as absolute,
    acos as acos, acosh as acosh, add as add, all as all, allclose as allclose, amax as amax,
    amin as amin, angle as angle, any as any, append as append, apply_along_axis as apply_along_axis,
    apply_over_axes as apply_over_axes, arange as arange, arccos as arccos, arccosh as arccosh,
    arcsin as arcsin, arcsinh as arcsinh, arctan as arctan, arctan2 as arctan2, arctanh as arctanh,
    argmax as argmax, argmin as argmin, argpartition as argpartition, argsort as argsort,
    argwhere as argwhere, around as around, array as array, array2string as array2string,
    array_equal as array_equal, array_equiv as array_equiv, array_repr as array_repr,
    array_split as array_split, array_str as array_str, asanyarray as asanyarray, asarray as asarray,
    asarray_chkfinite as asarray_chkfinite, ascontiguousarray as ascontiguousarray,
    asfortranarray as asfortranarray, asin as asin, asinh as asinh, astype as astype, atan as atan,
    atan2 as atan2, atanh as atanh, atleast_1d as atleast_1d, atleast_2d as atleast_2d,
    atleast_3d as atleast_3d, average as average, bartlett as bartlett, base_repr as base_repr,
    binary_repr as binary_repr, bincount as bincount, bitwise_and as bitwise_and,
    bitwise_count as bitwise_count, bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift, bitwise_not as bitwise_not, bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor, blackman as blackman,
    block as block, broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to, c_ as c_, can_cast as can_cast, cbrt as cbrt, ceil as ceil,
    choose as choose, clamp as clamp, clip as clip, column_stack as column_stack,
    common_type as common_type, compress as compress, concat as concat, concatenate as concatenate,
    conj as conj, conjugate as conjugate, convolve as convolve, copy as copy, copysign as copysign,
    copyto as copyto, corrcoef as corrcoef, correlate as correlate, cos as cos, cosh as cosh,
    count_leading_zeros as count_leading_zeros, count_nonzero as count_nonzero, cov as cov,
    cross as cross, cumprod as cumprod, cumsum as cumsum, cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum, deg2rad as deg2rad, degrees as degrees, delete as delete,
    diag as diag, diag_indices as diag_indices, diag_indices_from as diag_indices_from,
    diagflat as diagflat, diagonal as diagonal, diff as diff, digitize as digitize, divide as divide,
    divmod as divmod, dot as dot, dsplit as dsplit, dstack as dstack, dtype as dtype,
    ediff1d as ediff1d, einsum as einsum, empty as empty, empty_like as empty_like, equal as equal,
    equal_total_order as equal_total_order, erf as erf, erf_dx as erf_dx, erfc as erfc,
    errstate as errstate, exp as exp, exp2 as exp2, expand_dims as expand_dims, expm1 as expm1,
    extract as extract, eye as eye, fabs as fabs, fft as fft, fill_diagonal as fill_diagonal,
    finfo as finfo, fix as fix, flatnonzero as flatnonzero, flip as flip, fliplr as fliplr,
    flipud as flipud, float_power as float_power, floor as floor, floor_divide as floor_divide,
    fmax as fmax, fmin as fmin, fmod as fmod, format_float_positional as format_float_positional,
    format_float_scientific as format_float_scientific, frexp as frexp, from_dlpack as from_dlpack,
    frombuffer as frombuffer, fromfunction as fromfunction, fromiter as fromiter, full as full,
    full_like as full_like, gcd as gcd, gelu as gelu, gelu_dx as gelu_dx, gelu_sigmoid as gelu_sigmoid,
    gelu_sigmoid_dx as gelu_sigmoid_dx, gelu_tanh as gelu_tanh, genfromtxt as genfromtxt,
    geomspace as geomspace, get_printoptions as get_printoptions, geterr as geterr,
    geterrcall as geterrcall, gradient as gradient, greater as greater, greater_equal as greater_equal,
    greater_equal_total_order as greater_equal_total_order, greater_total_order as greater_total_order,
    hamming as hamming, hanning as hanning, heaviside as heaviside, histogram as histogram,
    histogram2d as histogram2d, histogram_bin_edges as histogram_bin_edges, histogramdd as histogramdd,
    hsplit as hsplit, hstack as hstack, hypot as hypot, i0 as i0, identity as identity, iinfo as iinfo,
    imag as imag, index_exp as index_exp, indices as indices, inner as inner, insert as insert,
    interp as interp, intersect1d as intersect1d, invert as invert, isclose as isclose,
    iscomplex as iscomplex, iscomplexobj as iscomplexobj, isdtype as isdtype, isfinite as isfinite,
    isfortran as isfortran, isin as isin, isinf as isinf, isnan as isnan, isneginf as isneginf,
    isposinf as isposinf, isreal as isreal, isrealobj as isrealobj, isscalar as isscalar,
    issubdtype as issubdtype, iterable as iterable, ix_ as ix_, kaiser as kaiser, kron as kron,
    lcm as lcm, ldexp as ldexp, left_shift as left_shift, less as less, less_equal as less_equal,
    less_equal_total_order as less_equal_total_order, less_total_order as less_total_order,
    lexsort as lexsort, linalg as linalg, linspace as linspace, loadtxt as loadtxt, log as log,
    log10 as log10, log1p as log1p, log2 as log2, logaddexp as logaddexp, logaddexp2 as logaddexp2,
    logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
    logical_xor as logical_xor, logspace as logspace, mask_indices as mask_indices, matmul as matmul,
    matrix_transpose as matrix_transpose, matvec as matvec, max as max, maximum as maximum,
    may_share_memory as may_share_memory, mean as mean, median as median, meshgrid as meshgrid,
    mgrid as mgrid, min as min, min_scalar_type as min_scalar_type, minimum as minimum, mish as mish,
    mod as mod, modf as modf, moveaxis as moveaxis, multiply as multiply, nan_to_num as nan_to_num,
    nanargmax as nanargmax, nanargmin as nanargmin, nancumprod as nancumprod, nancumsum as nancumsum,
    nanmax as nanmax, nanmean as nanmean, nanmedian as nanmedian, nanmin as nanmin,
    nanpercentile as nanpercentile, nanprod as nanprod, nanquantile as nanquantile, nanstd as nanstd,
    nansum as nansum, nanvar as nanvar, ndenumerate as ndenumerate, ndim as ndim, ndindex as ndindex,
    negative as negative, nextafter as nextafter, nn as nn, nonzero as nonzero, not_equal as not_equal,
    not_equal_total_order as not_equal_total_order, ogrid as ogrid, ones as ones,
    ones_like as ones_like, outer as outer, packbits as packbits, pad as pad, partition as partition,
    percentile as percentile, permute_dims as permute_dims, piecewise as piecewise, place as place,
    polyfit as polyfit, polyval as polyval, population_count as population_count, positive as positive,
    pow as pow, power as power, printoptions as printoptions, prod as prod,
    promote_types as promote_types, ptp as ptp, put as put, put_along_axis as put_along_axis,
    putmask as putmask, quantile as quantile, r_ as r_, rad2deg as rad2deg, radians as radians,
    random as random, ravel as ravel, ravel_multi_index as ravel_multi_index, real as real,
    real_if_close as real_if_close, reciprocal as reciprocal, reduce_window as reduce_window,
    remainder as remainder, repeat as repeat, require as require, reshape as reshape, resize as resize,
    result_type as result_type, right_shift as right_shift, rint as rint, roll as roll,
    rollaxis as rollaxis, roots as roots, rot90 as rot90, round as round,
    round_half_away as round_half_away, rsqrt as rsqrt, s_ as s_, save as save, savetxt as savetxt,
    savez as savez, savez_compressed as savez_compressed, searchsorted as searchsorted,
    select as select, set_printoptions as set_printoptions, setdiff1d as setdiff1d, seterr as seterr,
    seterrcall as seterrcall, setxor1d as setxor1d, shape as shape, shares_memory as shares_memory,
    shift_left as shift_left, shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical, sigmoid as sigmoid, sign as sign, signbit as signbit,
    silu as silu, silu_dx as silu_dx, sin as sin, sinc as sinc, sinh as sinh, size as size,
    softplus as softplus, sort as sort, spacing as spacing, split as split, sqrt as sqrt,
    square as square, squeeze as squeeze, stack as stack, std as std, subtract as subtract, sum as sum,
    swapaxes as swapaxes, take as take, take_along_axis as take_along_axis, tan as tan, tanh as tanh,
    tensordot as tensordot, testing as testing, tile as tile, top_k as top_k, trace as trace,
    transpose as transpose, trapezoid as trapezoid, tri as tri, tril as tril,
    tril_indices as tril_indices, tril_indices_from as tril_indices_from, trim_zeros as trim_zeros,
    triu as triu, triu_indices as triu_indices, triu_indices_from as triu_indices_from,
    true_divide as true_divide, trunc as trunc, union1d as union1d, unique as unique,
    unique_all as unique_all, unique_counts as unique_counts, unique_inverse as unique_inverse,
    unique_values as unique_values, unpackbits as unpackbits, unravel_index as unravel_index,
    unstack as unstack, unwrap as unwrap, vander as vander, var as var, vdot as vdot, vecdot as vecdot,
    vecmat as vecmat, vectorize as vectorize, vsplit as vsplit, vstack as vstack, where as where,
    zeros as zeros, zeros_like as zeros_like,
)
from neuronsim.arrays.array_object import Array as Array
from neuronsim.arrays.constants import (
    False_ as False_, True_ as True_, euler_gamma as euler_gamma, newaxis as newaxis,
)
from neuronsim.arrays.default_types import (
    default_dtype as default_dtype, set_default_dtype as set_default_dtype,
)
from neuronsim.arrays.device import Device as Device
from neuronsim.arrays.types import (
    bool_ as bool_, complexfloating as complexfloating, floating as floating, generic as generic,
    inexact as inexact, integer as integer, number as number, signedinteger as signedinteger,
    unsignedinteger as unsignedinteger,
)
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.casting.lint import float32_rules as float32_rules
from neuronsim.casting.plans.plan import Plan as Plan
from neuronsim.casting.policies.calibration import Calibration as Calibration
from neuronsim.casting.policies.policy import Policy as Policy, Rule as Rule
from neuronsim.diagnosis import blame as blame
from neuronsim.dtypes import (
    DType as DType, bfloat16 as bfloat16, complex128 as complex128, complex64 as complex64,
    float16 as float16, float32 as float32, float64 as float64, float8_e3m4 as float8_e3m4,
    float8_e4m3 as float8_e4m3, float8_e4m3fn as float8_e4m3fn, float8_e5m2 as float8_e5m2,
    int16 as int16, int32 as int32, int64 as int64, int8 as int8, tfloat32 as tfloat32,
    uint16 as uint16, uint32 as uint32, uint64 as uint64, uint8 as uint8,
)
from neuronsim.errors import NeuronSimError as NeuronSimError
from neuronsim.frontends import lax as lax
from neuronsim.hlo.cache import CacheEntry as CacheEntry, list_cache as list_cache
from neuronsim.hlo.conformance import Finding as Finding
from neuronsim.just_in_time import jit as jit
from neuronsim.ops.rows import WindowDimension as WindowDimension
from neuronsim.processor import (
    available_isas as available_isas, bfloat16_products as bfloat16_products, isa as isa,
    num_threads as num_threads, set_bfloat16_products as set_bfloat16_products, set_isa as set_isa,
    set_num_threads as set_num_threads,
)
from neuronsim.profiles import (
    Profile as Profile, current_profile as current_profile, seed_rounding as seed_rounding,
    use_profile as use_profile,
)
from neuronsim.program import CompiledProgram as CompiledProgram
from neuronsim.quantization import quantize as quantize
from neuronsim.reports import cost as cost, cost_ladder as cost_ladder, write_report as write_report
from neuronsim.targets import Release as Release, Target as Target
from neuronsim.tuning.blame.result import BlameResult as BlameResult
from neuronsim.tuning.results import TuneResult as TuneResult

byte = int8
cdouble = complex128
csingle = complex64
double = float64
half = float16
int_ = int64
intc = int32
intp = int64
long = int64
longlong = int64
ndarray = Array
short = int16
single = float32
ubyte = uint8
ufunc = Ufunc
uint = uint64
uintc = uint32
uintp = uint64
ulong = uint64
ulonglong = uint64
ushort = uint16

bool: DType

e: float
inf: float
nan: float
pi: float

__array_api_version__: str
__version__: str
