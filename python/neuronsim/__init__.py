"""neuronsim: what do the Neuron compiler's casts do to a model, found out on a laptop.

Three things on one core: an array backend (`import neuronsim as np`), an executor for XLA HLO graphs
with the casts of `neuronx-cc`, and a tuner that says which setting to use. Every bit follows a rule of
docs/numerics.md.

>>> import neuronsim as np
>>> np.matmul(np.ones((2, 3), dtype=np.bfloat16), np.ones((3, 2), dtype=np.bfloat16))
Array([[3., 3.],
       [3., 3.]], dtype=bfloat16)
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from neuronsim import interrupts  # first: what follows takes time
from neuronsim.arrays import *  # noqa: F403
from neuronsim.arrays import __all__ as _functions
from neuronsim.arrays import fft, lib, linalg, nn
from neuronsim.arrays import types as _types
from neuronsim.arrays.absent_names import reason as _reason
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.constants import False_, True_, e, euler_gamma, inf, nan, newaxis, pi
from neuronsim.arrays.default_types import default_dtype, set_default_dtype
from neuronsim.arrays.device import Device
from neuronsim.arrays.ufuncs import Ufunc
from neuronsim.dtypes import DTYPES as _DTYPES
from neuronsim.dtypes import DType
from neuronsim.errors import AbsentName, NeuronSimError
from neuronsim.ops import WindowDimension
from neuronsim.processor import (
    available_isas,
    bfloat16_products,
    isa,
    num_threads,
    set_bfloat16_products,
    set_isa,
    set_num_threads,
)
from neuronsim.profiles import Profile, current_profile, seed_rounding, use_profile

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
ndarray = Array  # NumPy's names of the classes
ufunc = Ufunc
globals().update(_DTYPES)
globals().update({_name: getattr(_types, _name) for _name in _types.TYPE_NAMES})

# Loaded on first use, so that `import neuronsim` stays an array backend.
_LAZY = {
    name: f"neuronsim.{module}"
    for module, names in {
        "hlo.cache": ("CacheEntry", "list_cache"),
        "diagnosis": ("blame", "BlameResult"),
        "api": ("calibrate", "compile", "export_onnx", "lint", "load", "plan", "tune", "TuneResult"),
        "just_in_time": ("jit",),
        "casting.lint": ("float32_rules",),
        "reports": ("cost", "cost_ladder", "write_report"),
        "quantization": ("quantize",),
        "program": ("CompiledProgram",),
        "hlo.findings": ("Finding",),
        "casting.policies.calibration": ("Calibration",),
        "casting.plans.plan": ("Plan",),
        "casting.policies.policy": ("Policy", "Rule"),
        "targets": ("Target", "Release"),
    }.items()
    for name in names
}


def _loaded_on_first_use(name: str) -> ModuleType:
    """A module that runs when the first name is asked of it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    spec.loader.exec_module(module)
    return module


random = _loaded_on_first_use("neuronsim.arrays.random")
testing = _loaded_on_first_use("neuronsim.arrays.testing")
lax = _loaded_on_first_use("neuronsim.frontends.lax")
# As NumPy's, the sub-namespaces are imported by their names too: `from neuronsim.linalg import norm`.
for _name in ("fft", "lax", "lib", "linalg", "nn", "random", "testing"):
    sys.modules[f"neuronsim.{_name}"] = globals()[_name]
sys.modules["neuronsim.lib.stride_tricks"] = lib.stride_tricks

__all__ = [
    *_functions,
    *_LAZY,
    *_DTYPES,
    *_types.TYPE_NAMES,
    *("Array", "DType", "Device", "False_", "NeuronSimError", "Profile", "True_", "WindowDimension"),
    *("__array_api_version__", "available_isas", "bfloat16_products", "current_profile"),
    *("default_dtype", "e", "euler_gamma", "fft", "inf", "isa", "lax", "lib", "linalg", "nan"),
    *("ndarray", "newaxis"),
    *("nn", "num_threads", "pi", "random", "seed_rounding", "set_bfloat16_products"),
    *("set_default_dtype", "set_isa", "set_num_threads", "testing", "ufunc", "use_profile"),
]


def __getattr__(name: str) -> Any:
    if name in ("bench", "torch"):
        return importlib.import_module(f"neuronsim.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    why = _reason("numpy", name)
    # A name of NumPy's is nearest to a function of arrays, not to a class of the compiler's.
    raise AbsentName("neuronsim", name, __all__ if why is None else _functions, why)


def __dir__() -> list[str]:
    return sorted(__all__)
