"""What type checkers know of neuronsim; written by `python python/make_stub.py`."""

from neuronsim.arrays import *
from neuronsim import bench as bench
from neuronsim.api import (
    calibrate as calibrate, compile as compile, export_onnx as export_onnx, lint as lint, load as load,
    plan as plan, tune as tune,
)
from neuronsim.arrays import (
    fft as fft, lib as lib, linalg as linalg, nn as nn, random as random, testing as testing,
)
from neuronsim.arrays.constants import (
    False_ as False_, True_ as True_, euler_gamma as euler_gamma, newaxis as newaxis,
)
from neuronsim.arrays.default_types import (
    default_dtype as default_dtype, set_default_dtype as set_default_dtype,
)
from neuronsim.arrays.device import Device as Device
from neuronsim.arrays.info import __array_namespace_info__ as __array_namespace_info__
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
from neuronsim.hlo.findings import Finding as Finding
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

ndarray: type
