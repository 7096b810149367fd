"""Custom calls: the row that each target is, with its attributes, and the rows that only they need.

docs/custom_calls.md says where the operands and configurations of each target are known from.

>>> custom_call_row("AwsNeuronGeluApprxTanh")
'gelu_tanh'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument, UnsupportedOperator, UnsupportedType, nearest
from neuronsim.ops.composites import ArraySteps, evaluate_composite, infer_by_rows, run_formula
from neuronsim.ops.decompositions import LAPACK, lapack_attributes
from neuronsim.ops.elementwise import converted
from neuronsim.ops.order import take_along
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Data,
    DotDimensions,
    Evaluation,
    Result,
    by_name,
    infer_same,
)

# The attributes of a row from a call's backend_config and the type that the file states.
Configure: TypeAlias = Callable[[str, Result], dict[str, Any]]


@dataclass(frozen=True)
class CustomCall:
    """A target: the op table's row, and the row's attributes by the call's backend_config."""

    row: str
    configure: Configure = lambda config, result: {}


def _rank(result: Result) -> int:
    return len((result if isinstance(result, ArrayType) else result[0]).dims)


def _integer(config: str, what: str) -> int:
    try:
        return int(config)
    except ValueError:
        raise InvalidArgument(f"a backend_config of {config!r}: it is the {what}, a number") from None


def _axis(config: str, rank: int) -> int:
    """The axis that a configuration names, from either end; the last where it says nothing."""
    axis = _integer(config, "axis") if config else rank - 1
    if not -rank <= axis < rank:
        raise InvalidArgument(f"a backend_config of {config!r} is no axis of {rank} dimensions")
    return axis % rank


def _along(config: str, result: Result) -> dict[str, Any]:
    return {"dimensions": (_axis(config, _rank(result)),)}


def _removed(config: str, result: Result) -> dict[str, Any]:
    return {"axis": _axis(config, _rank(result) + 1)}


def _largest(config: str, result: Result) -> dict[str, Any]:
    """k, which XLA's own targets leave to the result's shape."""
    if isinstance(result, ArrayType) or not result[0].dims:
        raise InvalidArgument("its shape is not a tuple of values and indices")
    if "largest = false" in config:
        raise UnsupportedOperator("a top-k of the least elements: reverse their order before it")
    return {"k": _integer(config, "k") if config.isdecimal() else result[0].dims[-1]}


def _collective_matmul(config: str, result: Result) -> dict[str, Any]:
    """`rhs_contracting_dim=0,tp_degree=1,num_groups=1,...`: dot(all-gather(lhs), rhs)."""
    settings = dict(part.partition("=")[::2] for part in config.split(",") if part)
    if _integer(settings.get("tp_degree", "1"), "tp_degree=") != 1:
        raise UnsupportedOperator(
            f"a collective matmul of tp_degree {settings['tp_degree']}: neuronsim executes one of "
            "degree 1; gather the left operand by an all-gather before a dot instead"
        )
    axis = _integer(settings.get("rhs_contracting_dim", "0"), "rhs_contracting_dim=")
    return {"dot_dimensions": DotDimensions((1,), (axis,))}


def _matmul(config: str, result: Result) -> dict[str, Any]:
    return {"dot_dimensions": DotDimensions((1,), (0,))}


def _resize(config: str, result: Result) -> dict[str, Any]:
    """Two digits: align_corners and half_pixel_centers."""
    if config not in ("", "00", "01", "10"):
        raise InvalidArgument(
            f"a backend_config of {config!r}: it is two digits, align_corners and half_pixel_centers, "
            "of which one may be 1"
        )
    return {"align_corners": config == "10", "half_pixel_centers": config == "01"}


def _border(config: str, result: Result) -> dict[str, Any]:
    return {"parts": (result,) if isinstance(result, ArrayType) else result}


def _lapack(target: str) -> Configure:
    return lambda config, result: lapack_attributes(target, config)


_COPIES = (
    *("AwsNeuronTransferWithStaticRing", "AwsNeuronLNCShardingConstraint"),
    *("Sharding", "xla.sdy.FuncResultSharding"),
    *("annotate_device_placement", "MoveToHost", "MoveToDevice", "LayoutConstraint"),
)
# Between the whole program and one device's part of it, which XLA's partitioner takes away.
_BORDERS = (
    *("SPMDFullToShardShape", "SPMDShardToFullShape"),
    *("xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"),
)
_MARKERS = (
    *(f"AwsNeuronModuleMarker{e}-{d}" for e in ("Start", "End") for d in ("Forward", "Backward")),
    *("NeuronBoundaryMarker-Start", "NeuronBoundaryMarker-End", "AwsNeuronDevicePrint"),
)

# With those that the rows name (`Op.custom_calls`).
CUSTOM_CALLS: dict[str, CustomCall] = {
    "AwsNeuronRmsNorm": CustomCall("neuron_rms_norm", _along),
    "AwsNeuronSoftmax": CustomCall("softmax", _along),
    "AwsNeuronSoftmaxBackward": CustomCall("softmax_backward", _along),
    "AwsNeuronCollectiveMatmul": CustomCall("dot", _collective_matmul),
    "AwsNeuronIntMatmult": CustomCall("dot", _matmul),
    "AwsNeuronArgMax": CustomCall("argmax", _removed),
    "AwsNeuronArgMin": CustomCall("argmin", _removed),
    "AwsNeuronTopK": CustomCall("neuron_top_k", _largest),
    "ResizeNearest": CustomCall("resize_nearest", _resize),
    "ResizeBilinear": CustomCall("resize_bilinear", _resize),
    "TopK": CustomCall("neuron_top_k", _largest),
    "mhlo.topk": CustomCall("neuron_top_k", _largest),
    **{target: CustomCall("lapack", _lapack(target)) for target in LAPACK},
    **{target: CustomCall("copy") for target in _COPIES},
    **{target: CustomCall("pass_through") for target in _MARKERS},
    **{target: CustomCall("pass_through", _border) for target in _BORDERS},
}

# Targets of rows by their own names, which HLO has no opcode for; their configuration is JSON.
OWN_PREFIX = "neuronsim."

# Targets that AWS's compiler knows and whose meaning a module does not hold.
_UNKNOWN_MEANING = {
    "AwsNeuronCustomOp": "the operator's C++ code is not in the module",
    "AwsNeuronCustomNativeKernel": "the kernel's code (NKI) is not in the module",
    "AwsNeuronDropoutMaskV1": "AWS publishes neither its operands nor its generator",
    "ResizeNearestGrad": "AWS publishes neither its operands nor its order of additions",
}


# Libraries of the host that frameworks call by custom calls, by how their targets begin.
_OF_THE_HOST = ("lapack_", "cusolver_", "cublas", "hipsolver", "cu_lu", "Cholesky", "Qr", "Eigh", "Lu")
_CALLBACKS = ("xla_python_", "xla_ffi_python_", "CallbackTo")


def _instead(target: str) -> str:
    """What to do in the place of a call that no device has."""
    if target.startswith(_CALLBACKS):
        return "It calls Python back: take jax.debug and callbacks out of the model"
    if target.startswith(_OF_THE_HOST):
        return (
            "It is linear algebra on the host: compute it outside the model (neuronsim.linalg has it "
            "for arrays) and pass the result in as an input or a constant"
        )
    return "Replace it by HLO operations (`neuronsim list-operators`), or compute it outside the model"


def custom_call_row(target: str) -> str:
    """The name of a target's row; raises UnsupportedOperator for one that neuronsim cannot execute."""
    found = CUSTOM_CALLS.get(target)
    if found is not None:
        return found.row
    if target.startswith(OWN_PREFIX):
        return by_name(target.removeprefix(OWN_PREFIX)).name
    if target in _UNKNOWN_MEANING:
        raise UnsupportedOperator(
            f"neuronsim does not execute the custom call {target!r}: {_UNKNOWN_MEANING[target]}. "
            "Replace it by HLO operations, or compute it on the host and pass the result in"
        )
    raise UnsupportedOperator(
        f"[NCC_EVRF015] custom call {target!r}: the compiler encountered a custom call instruction "
        f"with a target name that is not recognized{nearest(target, CUSTOM_CALLS)}. "
        f"{_instead(target)}; docs/custom_calls.md lists those that neuronsim executes"
    )


def custom_call_attributes(target: str, backend_config: bytes, result: Result) -> dict[str, Any]:
    """The row's attributes for a call of a target with this configuration and stated type.

    >>> result = ArrayType(dtypes.float32, (2, 3))
    >>> custom_call_attributes("AwsNeuronSoftmax", b"1", result)
    {'dimensions': (1,)}
    """
    custom_call_row(target)
    if target.startswith(OWN_PREFIX):
        return _own_attributes(target, backend_config)
    config = backend_config.decode("utf-8", "replace").strip().strip('"')
    return CUSTOM_CALLS[target].configure(config, result)


def own_configuration(attributes: Attributes) -> bytes:
    """The backend_config of a call of a row by its own name.

    >>> own_configuration({"axis": 0})
    b'{"axis":0}'
    """
    return json.dumps(dict(sorted(attributes.items())), separators=(",", ":")).encode()


def _own_attributes(target: str, backend_config: bytes) -> dict[str, Any]:
    try:
        found = json.loads(backend_config or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(f"the backend_config of {target} is no JSON object of its attributes")
    return {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}


# ---- rows of custom calls alone ----------------------------------------------------------------------


def infer_pass_through(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    """What a marker marks: its operands, or the first where the file states one array. Between a
    program and one device's part of it arrays have other shapes (`parts`), unless it is the only one.
    """
    if "parts" in attributes and tuple(operands) != attributes["parts"]:
        raise UnsupportedOperator(
            "it cuts arrays into the parts of several devices (shard_map), and the module is not "
            "partitioned yet. Give one device's program, and replicas=N for N of them:\n"
            "    compiled = jax.jit(f).lower(*example_arguments).compile()\n"
            "    neuronsim.compile(compiled, replicas=N)"
        )
    return tuple(operands) if "results" in attributes else operands[0]


def evaluate_pass_through(e: Evaluation) -> Data:
    if isinstance(e.result, ArrayType):
        return e.operands[0].data
    return tuple(x.data for x in e.operands)


def infer_backward(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    result = infer_same(operands, attributes)
    if result.dtype.kind != "float" or not result.dtype.device:
        raise UnsupportedType(f"a gradient of {result.dtype.name}: a device float is needed (R7)")
    return result


def evaluate_backward(e: Evaluation) -> BitsArray:
    grad, other = e.operands
    axes = e.attributes.get("dimensions", ())
    found: Bits = run_formula(e.op, grad, [other], axes, e.attributes, e.setting)
    return converted(found, e.result.dtype, e.setting).data


def infer_neuron_rms_norm(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """Of x, weight and epsilon; the result may be of another float type than x."""
    x, weight, epsilon = operands
    infer_by_rows([x, weight], {**attributes, "terms": ("weight",)})
    if epsilon.dims or epsilon.dtype.kind != "float":
        raise InvalidArgument(f"an epsilon of {epsilon}: it is a float scalar")
    return ArrayType(attributes["dtype"], x.dims)


def evaluate_neuron_rms_norm(e: Evaluation) -> BitsArray:
    x, weight, epsilon = (converted(v, dtypes.float32, e.setting) for v in e.operands)
    own = {
        "dimensions": e.attributes["dimensions"],
        "terms": ("weight",),
        "epsilon": float(epsilon.data),
    }
    # The steps are float32's, so that only the result's conversion rounds again.
    found = evaluate_composite(Evaluation(by_name("rms_norm"), [x, weight], own, x.type, e.setting))
    return converted(Bits(found, dtypes.float32), e.result.dtype, e.setting).data


def infer_neuron_top_k(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    """Values and indices, these of the integer type that the file states."""
    order = by_name("top_k").infer_array(operands, attributes)
    index = attributes["results"][-1].dtype
    if index.kind not in ("signed", "unsigned") or index.bits < 32:
        raise UnsupportedType(f"indices of {index.name}: an integer of 32 or 64 bits is needed")
    return order._replace(dtype=operands[0].dtype), order._replace(dtype=index)


def evaluate_neuron_top_k(e: Evaluation) -> Data:
    """E10: TOTALORDER descending, equal keys by lower index."""
    (x,) = e.operands
    assert not isinstance(e.result, ArrayType)
    row = by_name("top_k")
    places = e.result[1]._replace(dtype=dtypes.int64)
    order = row.evaluate_array(e.operands, e.attributes, places, e.setting)
    return take_along(x.data, order, -1), order.astype(e.result[1].dtype.storage)


# ---- resizing: N, height, width, C -------------------------------------------------------------------


def infer_resize(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    (x,) = operands
    result = ArrayType(attributes["dtype"], tuple(attributes["dims"]))
    fits = len(x.dims) == len(result.dims) == 4 and x.dims[::3] == result.dims[::3]
    if not fits or 0 in x.dims[1:3]:
        raise InvalidArgument(f"{x} is not resized to {result}: axes 1 and 2 of four are")
    floats = x.dtype.kind == result.dtype.kind == "float" and x.dtype.device and result.dtype.device
    if not floats:
        raise UnsupportedType(f"a resizing of {x.dtype.name} to {result.dtype.name}: floats are needed")
    return result


def _places(length: int, size: int, attributes: Attributes) -> list[Fraction]:
    """Where in an axis of `length` elements each of `size` lies."""
    if attributes["align_corners"]:
        return [Fraction(i * (length - 1), max(size - 1, 1)) for i in range(size)]
    if attributes["half_pixel_centers"]:
        return [Fraction((2 * i + 1) * length, 2 * size) for i in range(size)]
    return [Fraction(i * length, size) for i in range(size)]


def evaluate_resize_nearest(e: Evaluation) -> BitsArray:
    """The element below the place, or with align_corners the nearest, of two the upper."""
    data = e.operands[0].data
    for axis in (1, 2):
        places = _places(data.shape[axis], e.result.dims[axis], e.attributes)
        half = Fraction(1, 2) if e.attributes["align_corners"] else Fraction(0)
        data = np.take(data, [int(p + half) for p in places], axis=axis)
    return converted(Bits(data, e.operands[0].dtype), e.result.dtype, e.setting).data


def evaluate_resize_bilinear(e: Evaluation) -> BitsArray:
    """R7: low + (high - low) * weight in float32 steps, along axis 2, then along axis 1."""
    step = ArraySteps(dtypes.float32, (), e.setting)
    found = converted(e.operands[0], dtypes.float32, e.setting)
    for axis in (2, 1):
        length = found.data.shape[axis]
        places = _places(length, e.result.dims[axis], e.attributes)
        if e.attributes["half_pixel_centers"]:
            places = [p - Fraction(1, 2) for p in places]
        floors = [p.numerator // p.denominator for p in places]
        low, high = (
            Bits(
                np.take(found.data, [min(max(f + n, 0), length - 1) for f in floors], axis=axis),
                found.dtype,
            )
            for n in (0, 1)
        )
        fractions = [float(p - f) for p, f in zip(places, floors, strict=True)]
        shape = [-1 if d == axis else 1 for d in range(4)]
        weight = Bits(np.array(fractions, np.float64).reshape(shape), dtypes.float64)
        weight = converted(weight, dtypes.float32, e.setting)
        found = step("add", low, step("multiply", step("subtract", high, low), weight))
    return converted(found, e.result.dtype, e.setting).data
