"""The operations: one row each, and `apply`, the one door to every evaluation.

A row says what an operation is called (NumPy, HLO, XlaBuilder), what its result's type is, how it is
evaluated on ndarrays of bits, which engine runs it, what the compiler's casts do to it and what it
costs. Arithmetic bodies are the core's (`csrc/ops.def`); data movement is NumPy's on the bits.

>>> by_name("exp").opcode, by_name("exp").engine
('exponential', 'scalar')
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import _core, dtypes
from neuronsim.composites import FORMULAS
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import (
    InvalidArgument,
    OutOfMemory,
    UnsupportedOperator,
    UnsupportedType,
    nearest,
)
from neuronsim.processor import check_environment
from neuronsim.profiles import Profile, current_profile, next_rounding

BitsArray: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Engine = Literal["tensor", "vector", "scalar", "gpsimd", "dma", "none"]
# What `--auto-cast` does to an operation (A1, A2): `matmult` under both settings, `compute` under
# `all`; data movement follows its operand; `host` instructions are never on an engine.
CastClass = Literal["matmult", "compute", "movement", "host"]


class ArrayType(NamedTuple):
    """Element type and dimensions of one array."""

    dtype: DType
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Bits:
    """One array as the evaluators see it: an ndarray of storage bits and what they mean."""

    data: BitsArray
    dtype: DType

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.data.shape)


class Setting(NamedTuple):
    """What an evaluation depends on beside its operands: the profile and, for stochastic rounding, the
    seed and where the operation stands ("call/computation/instruction/trip counts", S2).
    """

    profile: Profile
    seed: int = 0
    path: str = ""

    def identifier(self, tile: str = "") -> int:
        """The id of the operation's random words: 8 bytes of a SHA-256 (S2)."""
        if self.profile.rounding != "stochastic":
            return 0
        digest = hashlib.sha256(f"{self.path}/{tile}".encode()).digest()
        return int.from_bytes(digest[:8], "little")


@dataclass(frozen=True)
class DotDimensions:
    """Which dimensions a dot contracts and which it walks as batch, as HLO lists them."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class WindowDimension:
    """One dimension of a window, as HLO describes it. Padding and holes are no elements of a reduction
    (R4) and zeros of a convolution (M5); only the latter reverses its window.
    """

    size: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    def output_size(self, n: int) -> int:
        """How many windows lie in an axis of `n` elements."""
        base = (n - 1) * self.base_dilation + 1 if n else 0
        reach = (self.size - 1) * self.window_dilation + 1 if self.size else 0
        room = base + sum(self.padding) - reach
        return room // self.stride + 1 if room >= 0 else 0


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Which dimensions of a convolution's input, kernel and output are what, as HLO lists them.

    >>> str(ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)))
    'b01f_01io->b01f'
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @property
    def input(self) -> tuple[int, ...]:
        """The input's dimensions: batch, spatial, feature."""
        return (self.input_batch, *self.input_spatial, self.input_feature)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's dimensions: spatial, input feature, output feature."""
        return (*self.kernel_spatial, self.kernel_input_feature, self.kernel_output_feature)

    @property
    def output(self) -> tuple[int, ...]:
        """The output's dimensions: batch, spatial, feature."""
        return (self.output_batch, *self.output_spatial, self.output_feature)

    def __str__(self) -> str:
        spatial = [str(n) for n in range(len(self.input_spatial))]
        sides = (
            (self.input, ["b", *spatial, "f"]),
            (self.kernel, [*spatial, "i", "o"]),
            (self.output, ["b", *spatial, "f"]),
        )
        texts = ["".join(dict(sorted(zip(*side, strict=True))).values()) for side in sides]
        return f"{texts[0]}_{texts[1]}->{texts[2]}"


@dataclass(frozen=True)
class GatherDimensions:
    """Which dimensions of a gather's operand, start indices and result are what, as HLO lists them."""

    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ScatterDimensions:
    """Which dimensions of a scatter's operand, indices and updates are what, as HLO lists them."""

    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


Infer: TypeAlias = Callable[[Sequence[ArrayType], Attributes], ArrayType]
Evaluate: TypeAlias = Callable[["Op", Sequence[Bits], Attributes, ArrayType, Setting], BitsArray]


@dataclass(frozen=True)
class Op:
    """One operation. `core` names the row of `csrc/ops.def` that an elementwise operation runs,
    `on_bool` the row that takes its place on bool (E8); `identity` starts a reduction by it; `cost`
    names the instruction of the Neuron Kernel Interface whose documented formula prices it. An
    operation of arrays that HLO does not have has the opcode "".
    """

    name: str
    opcode: str
    xla_builder: str
    arity: int
    engine: Engine
    cast: CastClass
    cost: str
    infer: Infer
    evaluate: Evaluate
    core: str | None = None
    on_bool: str | None = None
    direction: str | None = None
    identity: float | None = None
    operator: str | None = None
    total_order: bool = False

    @property
    def label(self) -> str:
        """What messages call it: the HLO opcode, or the array name."""
        return self.opcode or self.name


# ---- result types ------------------------------------------------------------------------------


def _same_type(operands: Sequence[ArrayType], what: str) -> ArrayType:
    for t in operands[1:]:
        if t != operands[0]:
            raise InvalidArgument(f"{what} of different types: {', '.join(map(str, operands))}")
    return operands[0]


def _infer_same(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return _same_type(operands, "operands")


def _infer_abs(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    real = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
    return operands[0]._replace(dtype=real.get(operands[0].dtype, operands[0].dtype))


def _infer_comparison(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return ArrayType(dtypes.boolean, _same_type(operands, "operands").dims)


def _infer_predicate(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return operands[0]._replace(dtype=dtypes.boolean)


def _infer_clamp(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    low, x, high = operands
    for bound in (low, high):
        if bound.dtype is not x.dtype or bound.dims not in (x.dims, ()):
            raise InvalidArgument(f"the bound {bound} does not clamp {x}")
    return x


def _infer_select(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    condition, *branches = operands
    result = _same_type(branches, "branches")
    if condition.dtype is not dtypes.boolean or condition.dims not in (result.dims, ()):
        raise InvalidArgument(f"the condition {condition} does not select between {result}")
    return result


def _infer_convert(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    target: DType = attributes["dtype"]
    for t in (operands[0].dtype, target):
        if t.kind == "complex" and t is not operands[0].dtype:
            raise UnsupportedType(f"convert to {t.name}: complex types are the host's (rule H1)")
    if operands[0].dtype.kind == "complex" and target.kind != "complex":
        raise UnsupportedType("convert of a complex value to a real type (C6): take its real part")
    return ArrayType(target, operands[0].dims)


def _infer_reduce_precision(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    exponent_bits, mantissa_bits = attributes["exponent_bits"], attributes["mantissa_bits"]
    if exponent_bits < 1 or mantissa_bits < 0:
        raise InvalidArgument(
            f"reduce-precision to {exponent_bits} exponent and {mantissa_bits} mantissa bits: the least "
            "are 1 and 0"
        )
    if not operands[0].dtype.exponent_bits or not operands[0].dtype.device:
        raise UnsupportedType(f"reduce-precision of {operands[0].dtype.name}: a device float is needed")
    return operands[0]


def _check_axes(axes: Sequence[int], rank: int, what: str) -> None:
    if len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes):
        raise InvalidArgument(f"{what} {tuple(axes)} are not distinct axes of {rank} dimensions")


def _sole_axis(attributes: Attributes, rank: int) -> int:
    axes: Sequence[int] = attributes["dimensions"]
    _check_axes(axes, rank, "dimensions")
    if len(axes) != 1:
        raise InvalidArgument(f"dimensions {tuple(axes)} must be one axis")
    return axes[0]


def _infer_broadcast(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, mapping = attributes["dims"], attributes["dimensions"]
    _check_axes(mapping, len(dims), "dimensions")
    if tuple(dims[d] for d in mapping) != operands[0].dims:
        raise InvalidArgument(f"{operands[0]} does not lie along axes {mapping} of {tuple(dims)}")
    return ArrayType(operands[0].dtype, tuple(dims))


def _infer_reshape(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    if math.prod(dims) != math.prod(operands[0].dims):
        raise InvalidArgument(f"{operands[0]} has not as many elements as shape {dims}")
    return ArrayType(operands[0].dtype, dims)


def _infer_transpose(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    axes = attributes["dimensions"]
    _check_axes(axes, len(operands[0].dims), "dimensions")
    if len(axes) != len(operands[0].dims):
        raise InvalidArgument(f"{tuple(axes)} does not permute the axes of {operands[0]}")
    return ArrayType(operands[0].dtype, tuple(operands[0].dims[a] for a in axes))


def _infer_reverse(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    _check_axes(attributes["dimensions"], len(operands[0].dims), "dimensions")
    return operands[0]


def _infer_slice(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    ranges: Sequence[tuple[int, int, int]] = attributes["slice"]
    dims = operands[0].dims
    if len(ranges) != len(dims):
        raise InvalidArgument(f"a slice of {operands[0]} needs {len(dims)} ranges")
    for (start, limit, stride), size in zip(ranges, dims, strict=True):
        if not (0 <= start <= limit <= size and stride >= 1):
            raise InvalidArgument(f"slice [{start}:{limit}:{stride}] leaves an axis of {size}")
    return ArrayType(operands[0].dtype, tuple(len(range(*r)) for r in ranges))


def _infer_concatenate(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    first = operands[0]
    axis = _sole_axis(attributes, len(first.dims))
    for t in operands[1:]:
        if (
            t.dtype is not first.dtype
            or len(t.dims) != len(first.dims)
            or any(a != b for d, (a, b) in enumerate(zip(t.dims, first.dims, strict=True)) if d != axis)
        ):
            raise InvalidArgument(f"{t} cannot follow {first} along axis {axis}")
    joined = sum(t.dims[axis] for t in operands)
    return ArrayType(first.dtype, (*first.dims[:axis], joined, *first.dims[axis + 1 :]))


def _infer_iota(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims = tuple(attributes["dims"])
    _sole_axis(attributes, len(dims))
    return ArrayType(attributes["dtype"], dims)


def _infer_reduce(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a reduction of {array} cannot be {initial}")
    _check_axes(attributes["dimensions"], len(array.dims), "dimensions")
    kept = (n for d, n in enumerate(array.dims) if d not in attributes["dimensions"])
    return ArrayType(array.dtype, tuple(kept))


def _infer_cumulative(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of a cumulative {array} cannot be {initial}")
    _check_axes([attributes["axis"]], len(array.dims), "axis")
    return array


MAX_WINDOW = 1 << 31
MAX_ELEMENTS = 1 << 62  # so that no place in an array leaves 64 bits


def _infer_reduce_window(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    array, initial = operands
    window: Sequence[WindowDimension] = attributes["window"]
    if initial != ArrayType(array.dtype, ()):
        raise InvalidArgument(f"the initial value of windows of {array} cannot be {initial}")
    if len(window) != len(array.dims):
        raise InvalidArgument(f"a window over {array} has {len(array.dims)} dimensions")
    _check_window(window)
    if any(d.reversal for d in window):
        raise InvalidArgument("the window of a reduction is not reversed: only a convolution's is (M5)")
    dims = tuple(d.output_size(n) for d, n in zip(window, array.dims, strict=True))
    return ArrayType(array.dtype, dims)


def _check_window(window: Sequence[WindowDimension]) -> None:
    for d in window:
        if not isinstance(d, WindowDimension):
            raise InvalidArgument(f"a window consists of WindowDimension, not {d!r}")
        lengths = (d.size, d.stride, d.base_dilation, d.window_dilation)
        if not all(isinstance(n, int) and 1 <= n <= MAX_WINDOW for n in lengths):
            raise InvalidArgument(
                f"sizes, strides and dilations of a window are from 1 to {MAX_WINDOW}: {d}"
            )
        if not all(isinstance(n, int) and abs(n) <= MAX_WINDOW for n in d.padding):
            raise InvalidArgument(f"the padding of a window is at most {MAX_WINDOW} either way: {d}")


def _infer_nextafter(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    result = _same_type(operands, "operands")
    if result.dtype.kind != "float" or not (result.dtype.device or is_host(result.dtype)):
        raise UnsupportedType(f"nextafter of {result.dtype.name}: the operands are device floats")
    return result


def _infer_argument(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, axis = operands[0].dims, attributes["axis"]
    _check_axes([axis], len(dims), "axis")
    if dims[axis] == 0:
        raise InvalidArgument(f"{operands[0]} has no element along axis {axis}")
    return ArrayType(dtypes.int64, (*dims[:axis], *dims[axis + 1 :]))


def _infer_argsort(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    _check_axes([attributes["axis"]], len(operands[0].dims), "axis")
    return ArrayType(dtypes.int64, operands[0].dims)


def _infer_top_k(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    dims, k = operands[0].dims, attributes["k"]
    if not dims or type(k) is not int or not 0 <= k <= dims[-1]:
        raise InvalidArgument(f"{operands[0]} has no {k} largest along its last axis")
    return ArrayType(dtypes.int64, (*dims[:-1], k))


def _infer_dot(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return _dot_type(*operands, attributes["dot_dimensions"], attributes.get("dtype"))


@lru_cache(4096)
def _dot_type(lhs: ArrayType, rhs: ArrayType, d: DotDimensions, dtype: DType | None) -> ArrayType:
    _check_axes(d.lhs_contracting + d.lhs_batch, len(lhs.dims), "lhs dimensions")
    _check_axes(d.rhs_contracting + d.rhs_batch, len(rhs.dims), "rhs dimensions")
    for left, right in ((d.lhs_contracting, d.rhs_contracting), (d.lhs_batch, d.rhs_batch)):
        if tuple(lhs.dims[i] for i in left) != tuple(rhs.dims[i] for i in right):
            raise InvalidArgument(f"dot of {lhs} and {rhs}: axes {left} and {right} do not match")
    free_lhs = (n for i, n in enumerate(lhs.dims) if i not in d.lhs_contracting + d.lhs_batch)
    free_rhs = (n for i, n in enumerate(rhs.dims) if i not in d.rhs_contracting + d.rhs_batch)
    batch = tuple(lhs.dims[i] for i in d.lhs_batch)
    dims = (*batch, *free_lhs, *free_rhs)
    if math.prod(dims) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"dot of {lhs} and {rhs}: the result would have {math.prod(dims)} elements"
        )
    return ArrayType(_product_type("dot", lhs.dtype, rhs.dtype, dtype), dims)


def _product_type(what: str, lhs: DType, rhs: DType, dtype: DType | None) -> DType:
    """The result's type of a dot or convolution; raises UnsupportedType for what M1 and M7 lack."""
    dtype = dtype or dtypes.result_type(lhs, rhs)
    operand_kinds = {_dot_kind(lhs), _dot_kind(rhs)}
    if operand_kinds != {_dot_kind(dtype)} or "host" in operand_kinds:
        raise UnsupportedType(
            f"{what} of {lhs.name} and {rhs.name} to {dtype.name}: operands and result must be "
            "all device floats, or all integers or bool (M1, M7)"
        )
    return dtype


def _dot_kind(dtype: DType) -> str:
    if dtype.kind in ("signed", "unsigned", "bool"):
        return "integer"
    return "float" if dtype.exponent_bits and dtype.device else "host"


def _infer_convolution(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    lhs, rhs = operands
    window = tuple(attributes["window"])
    numbers: ConvolutionDimensions = attributes["dimension_numbers"]
    groups = (attributes["feature_group_count"], attributes["batch_group_count"])
    return _convolution_type(lhs, rhs, window, numbers, *groups, attributes.get("dtype"))


@lru_cache(4096, typed=True)
def _convolution_type(
    lhs: ArrayType,
    rhs: ArrayType,
    window: tuple[WindowDimension, ...],
    d: ConvolutionDimensions,
    features: int,
    batches: int,
    dtype: DType | None,
) -> ArrayType:
    what = f"convolution of {lhs} and {rhs}"
    sides = (("input", d.input, lhs), ("kernel", d.kernel, rhs), ("output", d.output, None))
    for side, axes, t in sides:
        rank = len(window) + 2
        if sorted(axes) != list(range(rank)) or (t is not None and len(t.dims) != rank):
            raise InvalidArgument(
                f"{what}: a window of {len(window)} dimensions needs {rank} in the {side}, each "
                f"listed once: they are listed as {axes}"
            )
    _check_window(window)
    if not all(type(n) is int and n >= 1 for n in (features, batches)) or min(features, batches) > 1:
        raise InvalidArgument(
            f"{what}: feature_group_count {features} and batch_group_count {batches} must be positive "
            "integers, and one of them 1"
        )
    batch, feature = lhs.dims[d.input_batch], lhs.dims[d.input_feature]
    reads, writes = rhs.dims[d.kernel_input_feature], rhs.dims[d.kernel_output_feature]
    if reads * features != feature:
        raise InvalidArgument(
            f"{what}: the input has {feature} features, the kernel reads {reads} in each of {features} "
            "feature groups"
        )
    for length, name, groups in (
        (writes, "output features", features * batches),
        (batch, "batch", batches),
    ):
        if length % groups:
            raise InvalidArgument(f"{what}: {groups} groups do not divide the {name}, {length}")
    sizes = tuple(rhs.dims[a] for a in d.kernel_spatial)
    if sizes != tuple(w.size for w in window):
        raise InvalidArgument(f"{what}: the kernel is {sizes}, its window {tuple(window)}")
    dims = [0] * (len(window) + 2)
    dims[d.output_batch], dims[d.output_feature] = batch // batches, writes
    for axis, w, source in zip(d.output_spatial, window, d.input_spatial, strict=True):
        dims[axis] = w.output_size(lhs.dims[source])
        if lhs.dims[source] * w.base_dilation > MAX_ELEMENTS:
            raise InvalidArgument(f"{what}: the dilated input has more than {MAX_ELEMENTS} places")
    if math.prod(n for n in dims if n) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"{what}: a result of {tuple(dims)} has more than {MAX_ELEMENTS} elements"
        )
    return ArrayType(_product_type("convolution", lhs.dtype, rhs.dtype, dtype), tuple(dims))


# What a composite takes beside x: terms as long as a row, or statistics of each channel and such terms.
_TERMS = ("weight", "bias")


def _composite_operand(operands: Sequence[ArrayType], what: str, attributes: Attributes) -> ArrayType:
    x = operands[0]
    if x.dtype.kind != "float" or not (x.dtype.device or is_host(x.dtype)):
        raise UnsupportedType(
            f"{what} of {x.dtype.name}: a float type of the device is needed (rule F)"
        )
    _check_axes(attributes["dimensions"], len(x.dims), "dimensions")
    return x


def _infer_by_rows(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """A composite that gives a row for a row: softmax and the norms of layers."""
    x = _composite_operand(operands, "a composite (R7)", attributes)
    own = tuple(x.dims[d] for d in sorted(attributes["dimensions"]))
    for name, t in zip(attributes.get("terms", ()), operands[1:], strict=True):
        if name not in _TERMS or t.dims != own or t.dtype.kind != "float":
            raise InvalidArgument(f"the {name} {t} is not as long as a row of {x}: {list(own)}")
    return x


def _infer_statistic(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    """A composite that gives one element for a row."""
    x = _composite_operand(operands, "a composite (R7)", attributes)
    kept = (n for d, n in enumerate(x.dims) if d not in attributes["dimensions"])
    return ArrayType(x.dtype, tuple(kept))


def _infer_batch_norm(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    x = _composite_operand(operands, "batch_norm", attributes)
    own = tuple(x.dims[d] for d in attributes["dimensions"])
    for name, t in zip(("mean", "variance", *attributes["terms"]), operands[1:], strict=True):
        if t.dims != own or t.dtype.kind != "float":
            raise InvalidArgument(f"the {name} {t} is not as long as the channels of {x}: {list(own)}")
    return x


# ---- evaluation --------------------------------------------------------------------------------

CONVERT = _core.CONVERT  # the tile-program opcode of a conversion to the step's result type
_FLOAT32 = _core.DTYPES.index("float32")
_CORE = {name: index for index, (name, _, _) in enumerate(_core.OPS)}
_CORE_KINDS = {name: kind for name, _, kind in _core.OPS}
# The step that makes NaN of what lies outside the documented input range of a function.
_RANGES = {name: _core.RESTRICT + index for index, name in enumerate(_core.INPUT_RANGES)}
_NARROW = [DTYPES[name].exponent_bits > 0 and name != "float32" for name in _core.DTYPES]
_FLOAT_ONLY = ("floating", "function", "sign")
# What bool has beside comparisons and select (E8).
_ON_BOOL = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "logical_not"})

ProgramStep: TypeAlias = tuple[int, int, tuple[int, ...]]
TileProgram: TypeAlias = _core.TileProgram


def core_code(dtype: DType, what: str) -> int:
    """The core's number of an element type; raises UnsupportedType for the host's types."""
    if dtype.code is None:
        raise UnsupportedType(f"{what} of {dtype.name}: the device has no such type (rule F)")
    return dtype.code


def is_host(dtype: DType) -> bool:
    """Whether NumPy computes with the type on the host (H1)."""
    return dtype in (dtypes.float64, dtypes.complex64, dtypes.complex128)


def _core_name(op: Op, operand: DType) -> str:
    """The row of `csrc/ops.def` that runs an elementwise operation on a type; raises UnsupportedType
    where it does not exist.
    """
    if not operand.device:
        raise UnsupportedType(f"{op.label} of {operand.name}: the device has no such type (rule F)")
    name = op.on_bool if operand is dtypes.boolean and op.on_bool else op.core
    assert name is not None
    kind = _CORE_KINDS[name]
    on_bool = kind in ("comparison", "selection") or name in _ON_BOOL
    if kind in (("integral",) if operand.kind == "float" else _FLOAT_ONLY) or (
        operand is dtypes.boolean and not on_bool
    ):
        raise UnsupportedType(f"{op.label} is not defined for {operand.name}")
    return name


def lower(
    op: Op,
    attributes: Attributes,
    operands: Sequence[tuple[int, DType]],
    result: DType,
    profile: Profile,
    push: Callable[[ProgramStep], int],
) -> int:
    """An elementwise operation, convert or reduce-precision as tile-program steps.

    `operands` are the numbers and types of values; `push` adds a step and gives its value's number.
    Returns the number of the result.
    """
    code = core_code(result, op.label)
    numbers = tuple(n for n, _ in operands)
    source = operands[-1][1]
    if op.name == "convert":
        to_integer = source.kind == "float" and result.kind in ("signed", "unsigned")
        nearest = to_integer and profile.float_to_int == "nearest"
        return push((_core.CONVERT_NEAREST if nearest else CONVERT, code, numbers))
    if op.name == "reduce_precision":
        return _lower_reduce_precision(source, attributes, numbers[0], push)
    opcode = _CORE[_core_name(op, source)]
    if has_input_range(op, profile):  # E3
        assert op.core is not None
        numbers = (push((_RANGES[op.core], core_code(source, op.label), numbers)),)
    if op.name == "divide" and source.kind == "float" and profile.divide == "reciprocal_multiply":
        wide = core_code(dtypes.float32, op.label)
        inverse = push((_CORE["reciprocal"], wide, numbers[1:]))
        return push((_CORE["multiply"], code, (numbers[0], inverse)))
    narrow_integer = source.kind in ("signed", "unsigned") and source.bits <= 32
    arithmetic = op.core is not None and _CORE_KINDS[op.core] in ("reducer", "arithmetic")
    if narrow_integer and arithmetic and profile.int32_elementwise == "via_float32":  # E8
        wide = core_code(dtypes.float32, op.label)
        floats = tuple(push((CONVERT, wide, (n,))) for n in numbers)
        return push((_core.CONVERT_NEAREST, code, (push((opcode, wide, floats)),)))
    return push((opcode, code, numbers))


def _lower_reduce_precision(
    dtype: DType, attributes: Attributes, number: int, push: Callable[[ProgramStep], int]
) -> int:
    """C9: (8, 10) and (8, 7) are the conversions to tfloat32 and bfloat16, as stochastic rounding
    takes them.
    """
    code = core_code(dtype, "reduce-precision")
    exponent_bits, mantissa_bits = attributes["exponent_bits"], attributes["mantissa_bits"]
    if exponent_bits >= dtype.exponent_bits and mantissa_bits >= dtype.mantissa_bits:
        return push((CONVERT, code, (number,)))  # nothing to round: the bits move
    for t in (dtypes.tfloat32, dtypes.bfloat16):
        same = exponent_bits >= 8 and mantissa_bits == t.mantissa_bits
        if dtype is dtypes.float32 and same:
            there = push((CONVERT, core_code(t, "reduce-precision"), (number,)))
            return push((CONVERT, code, (there,)))
    packed = 32 * min(exponent_bits, dtype.exponent_bits) + min(mantissa_bits, dtype.mantissa_bits)
    return push((_core.REDUCE_PRECISION + packed, code, (number,)))


def outside_range_warning(name: str, count: int) -> str:
    """What is said of elements that `neuron_range` made NaN."""
    elements = "1 element" if count == 1 else f"{count} elements"
    return (
        f"{name}: {elements} outside the input range that AWS documents for the function became NaN "
        "(E3, activation='neuron_range')"
    )


def has_input_range(op: Op, profile: Profile) -> bool:
    """Whether a documented input range of the activation table holds for the operation (E3)."""
    return profile.activation == "neuron_range" and op.core in _RANGES


def count_outside_range(op: Op, operands: Sequence[Bits], profile: Profile) -> int:
    """How many numbers among the operand's elements `neuron_range` makes NaN."""
    if not has_input_range(op, profile) or not operands[0].dtype.exponent_bits:
        return 0
    (x,) = operands
    if x.dtype.code is None:
        return 0  # the host's types are on no engine
    boolean = core_code(dtypes.boolean, op.label)
    assert op.core is not None
    steps = (
        (_RANGES[op.core], x.dtype.code, (0,)),
        (_CORE["isnan"], boolean, (1,)),
        (_CORE["isnan"], boolean, (0,)),
        (_CORE["bitwise_xor"], boolean, (2, 3)),
    )
    program = tile_program((x.dtype.code,), steps, (4,), profile)
    (found,) = run_tile_program(program, [x.data], [ArrayType(dtypes.boolean, x.data.shape)])
    return int(np.count_nonzero(found))


_ON_COMPLEX = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "abs", "equal", "not_equal"}
)


def check_elementwise(op: Op, operand: DType, result: DType) -> None:
    """Raises UnsupportedType where an elementwise operation does not exist for a type."""
    if not is_host(operand):
        _core_name(op, operand)
        core_code(result, op.label)
        return
    integral = op.core is not None and _CORE_KINDS[op.core] == "integral"
    if integral or (operand.kind == "complex" and op.name not in (*_ON_COMPLEX, "select")):
        raise UnsupportedType(f"{op.label} is not defined for {operand.name}")


def numerics(profile: Profile) -> _core.Numerics:
    """The profile's choices as the core takes them."""
    found = profile.derived.get("numerics")
    if found is None:
        found = profile.derived["numerics"] = _core.Numerics(
            integers_via_float32=profile.int_to_float == "via_float32",
            fp8_overflow=profile.fp8_overflow,
            flush_subnormals=profile.subnormals == "flush",
            stochastic=profile.rounding == "stochastic",
        )
    return found


MAX_PROGRAMS = 4096


def tile_program(
    inputs: tuple[int, ...], steps: tuple[ProgramStep, ...], outputs: tuple[int, ...], profile: Profile
) -> _core.TileProgram:
    """A compiled tile program; equal programs of a profile are compiled once."""
    programs = profile.derived.setdefault("programs", {})
    key = (inputs, steps, outputs)
    found: _core.TileProgram | None = programs.get(key)
    if found is None:
        if len(programs) >= MAX_PROGRAMS:
            programs.clear()
        listed = [(op, result, list(operands)) for op, result, operands in steps]
        found = _core.TileProgram(list(inputs), listed, list(outputs), numerics(profile))
        programs[key] = found
    return found


def run_tile_program(
    program: _core.TileProgram,
    inputs: Sequence[BitsArray],
    results: Sequence[ArrayType],
    seed: int = 0,
    ids: Sequence[int] = (),
) -> list[BitsArray]:
    """Run a program over the dims of its results; inputs are broadcast to them without a copy.
    Stochastic rounding takes a seed and an id for each step (S2).
    """
    if len(results) == 1 and not ids:
        output = _core.run_dense(program, *inputs)
        if output is not None and output.shape == results[0].dims:
            return [output]
    outputs = [_empty(t) for t in results]
    dims = results[0].dims
    broadcast = [x if x.shape == dims else np.broadcast_to(x, dims) for x in inputs]
    program.run(broadcast, outputs, seed, list(ids))
    return outputs


def _empty(t: ArrayType) -> BitsArray:
    return _core.empty(core_code(t.dtype, "a result"), t.dims)


def step_tiles(steps: Sequence[ProgramStep]) -> list[str]:
    """What the steps of one operation put for the tile in their ids (S2): the last one that rounds to a
    narrower float nothing, the others their number.
    """
    rounding = [n for n, (_, code, _) in enumerate(steps) if _NARROW[code]]
    last = rounding[-1] if rounding else len(steps) - 1
    return ["" if n == last else str(n) for n in range(len(steps))]


def elementwise_program(
    op: Op, attributes: Attributes, operands: tuple[DType, ...], result: DType, profile: Profile
) -> tuple[_core.TileProgram, tuple[ProgramStep, ...]]:
    """The tile program of one operation, and its steps."""
    steps: list[ProgramStep] = []

    def push(step: ProgramStep) -> int:
        steps.append(step)
        return len(operands) + len(steps) - 1

    last = lower(op, attributes, list(enumerate(operands)), result, profile, push)
    codes = tuple(core_code(t, "an operand") for t in operands)
    return tile_program(codes, tuple(steps), (last,), profile), tuple(steps)


def _run_one(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    result: ArrayType,
    setting: Setting,
) -> BitsArray:
    types = tuple(x.dtype for x in operands)
    program, steps = elementwise_program(op, attributes, types, result.dtype, setting.profile)
    ids = [setting.identifier(tile) for tile in step_tiles(steps)] if program.draws() else []
    return run_tile_program(program, [x.data for x in operands], [result], setting.seed, ids)[0]


def _sigmoid_on_host(x: BitsArray) -> BitsArray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _normal_on_host(x: BitsArray) -> BitsArray:
    return np.asarray(_erfc(-x / math.sqrt(2)) / 2)


def _silu_dx_on_host(x: BitsArray) -> BitsArray:
    s = _sigmoid_on_host(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _gelu_dx_on_host(x: BitsArray) -> BitsArray:
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return np.asarray(_normal_on_host(x) + x * density)


def _with_limits(
    function: Callable[[BitsArray], BitsArray], at_plus_inf: float
) -> Callable[[BitsArray], BitsArray]:
    """The function with its limits at -Inf, -0, and at +Inf, where the formula has none (E3)."""

    def on_host(x: BitsArray) -> BitsArray:
        limited = np.where(x == np.inf, at_plus_inf, function(x))
        return np.where(x == -np.inf, -0.0, limited)

    return on_host


_erf = np.vectorize(math.erf, [np.float64])
_erfc = np.vectorize(math.erfc, [np.float64])
_ON_HOST: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "erfc": _erfc,
    "sigmoid": _sigmoid_on_host,
    "silu": _with_limits(lambda x: x * _sigmoid_on_host(x), math.inf),
    "gelu": _with_limits(lambda x: x * _normal_on_host(x), math.inf),
    "gelu_tanh": _with_limits(
        lambda x: x * _sigmoid_on_host(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)), math.inf
    ),
    "gelu_sigmoid": _with_limits(lambda x: x * _sigmoid_on_host(1.702 * x), math.inf),
    "softplus": lambda x: np.logaddexp(x, 0),
    "mish": _with_limits(lambda x: x * np.tanh(np.logaddexp(x, 0)), math.inf),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "silu_dx": _with_limits(_silu_dx_on_host, 1),
    "gelu_dx": _with_limits(_gelu_dx_on_host, 1),
    "gelu_sigmoid_dx": _with_limits(lambda x: _silu_dx_on_host(1.702 * x), 1),
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "round_half_away": lambda x: np.copysign(np.floor(np.abs(x) + (np.abs(x) % 1 >= 0.5)), x),
}


def _evaluate_on_host(op: Op, operands: Sequence[Bits]) -> BitsArray:
    values = [x.data for x in operands]
    with np.errstate(all="ignore"):
        if op.total_order:
            return np.asarray(
                getattr(np, op.name.removesuffix("_total_order"))(
                    *(order_keys(x, nan_last=False) for x in operands)
                )
            )
        function = _ON_HOST.get(op.name) or getattr(np, op.name)
        return np.asarray(function(*values))


def _evaluate_elementwise(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    if is_host(operands[-1].dtype):
        return _evaluate_on_host(op, operands)
    return _run_one(op, operands, attributes, result, setting)


def _evaluate_convert(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    if operands[0].dtype is result.dtype:
        return operands[0].data
    return _run_one(op, operands, attributes, result, setting)


def _evaluate_copy(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return operands[0].data


def _evaluate_broadcast(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x = operands[0].data
    order = sorted(range(x.ndim), key=lambda i: int(attributes["dimensions"][i]))
    aligned = x.transpose(order)
    shape = [1] * len(result.dims)
    for i in order:
        shape[attributes["dimensions"][i]] = x.shape[i]
    return np.broadcast_to(aligned.reshape(shape), result.dims)


def _evaluate_reshape(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return operands[0].data.reshape(result.dims)


def _evaluate_transpose(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, axes = operands[0], attributes["dimensions"]
    on_tensor_engine = setting.profile.transpose == "tensor_engine" and _dot_kind(x.dtype) == "float"
    if on_tensor_engine and axes and axes[-1] != len(axes) - 1:  # A3: it moves the minor-most axis
        return transpose_on_tensor_engine(x, axes, dtypes.float32, setting)
    return x.data.transpose(axes)


def _evaluate_reverse(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return np.flip(operands[0].data, tuple(attributes["dimensions"]))


def _evaluate_slice(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return operands[0].data[tuple(slice(*r) for r in attributes["slice"])]


def _evaluate_concatenate(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    return np.concatenate([x.data for x in operands], axis=attributes["dimensions"][0])


def _evaluate_iota(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    (axis,) = attributes["dimensions"]
    if 0 in result.dims:
        return np.empty(result.dims, result.dtype.storage)
    count = Bits(np.arange(result.dims[axis], dtype=np.int64), dtypes.int64)
    line_type = ArrayType(result.dtype, (result.dims[axis],))
    line = Bits(_run_one(by_name("convert"), [count], {}, line_type, setting), result.dtype)
    return _evaluate_broadcast(op, [line], {"dimensions": (axis,)}, result, setting)


def _evaluate_reduce(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    array, initial = operands
    reducer = by_name(attributes["reducer"])
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, reducer.name)
        axes = tuple(attributes["dimensions"])
        return np.asarray(host.reduce(array.data, axis=axes, initial=initial.data[()]))
    reduced = sorted(attributes["dimensions"])  # R2: ascending axis number, last fastest
    kept = [d for d in range(array.data.ndim) if d not in reduced]
    depth = math.prod(array.data.shape[d] for d in reduced)
    output = _empty(result)
    moved = array.data.transpose(kept + reduced)
    reduction = _reduction(reducer, array.dtype, attributes, depth, setting)
    _core.reduce(reduction, moved, len(kept), initial.data, output)
    return output


def _reduction(
    reducer: Op, dtype: DType, attributes: Attributes, depth: int, setting: Setting
) -> _core.Reduction:
    """Rules R1-R3 as the core takes them; `accumulate` is the plan's type of every step (R1)."""
    profile = setting.profile
    accumulate: DType = attributes.get("accumulate", dtypes.float32)
    stochastic = profile.rounding == "stochastic"
    if stochastic and accumulate is not dtypes.float32:
        raise UnsupportedOperator(
            f"a reduction that accumulates in {accumulate.name} under stochastic rounding: S2 has no "
            "words for its steps"
        )
    round_tiles = (
        profile.mixed_precision_accumulation == "off"
        and dtype.kind == "float"
        and dtype.bits <= 16
        and reducer.name in ("add", "multiply")
    )  # R3
    tiles = -(-depth // profile.reduce_tile) if round_tiles else 0
    return _core.Reduction(
        op=_CORE[_core_name(reducer, dtype)],
        dtype=core_code(dtype, reducer.label),
        accumulate=core_code(accumulate, reducer.label),
        tile=profile.reduce_tile,
        round_tiles=round_tiles,
        numerics=numerics(profile),
        seed=setting.seed,
        ids=[setting.identifier(t) for t in ("", *map(str, range(tiles)))] if stochastic else [],
    )


def _evaluate_cumulative(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    array, initial = operands
    axis, reducer = attributes["axis"], by_name(attributes["reducer"])
    if is_host(array.dtype):
        host: np.ufunc = getattr(np, reducer.name)
        return np.asarray(host(host.accumulate(array.data, axis=axis), initial.data))
    moved = np.moveaxis(array.data, axis, -1)
    output = _empty(ArrayType(result.dtype, moved.shape))
    reduction = _reduction(reducer, array.dtype, attributes, moved.shape[-1], setting)
    inner = math.prod(array.data.shape[axis + 1 :])
    _core.reduce(reduction, moved, moved.ndim - 1, initial.data, output, max(inner, 1))
    return np.moveaxis(output, -1, axis)


def _evaluate_reduce_window(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    array, initial = operands
    if is_host(array.dtype):
        raise UnsupportedType(f"reduce-window of {array.dtype.name}: the device has no such type")
    window: tuple[WindowDimension, ...] = attributes["window"]
    reducer = by_name(attributes["reducer"])
    elements = min(math.prod(d.size for d in window), array.data.size)
    output = _empty(result)
    reduction = _reduction(reducer, array.dtype, attributes, elements, setting)
    _core.reduce_windows(reduction, core_window(window), array.data, initial.data, output)
    return output


def core_window(window: Sequence[WindowDimension]) -> list[tuple[int, int, int, int, int]]:
    """A window as the core takes it: the high padding is in the output's shape."""
    return [(d.size, d.stride, d.padding[0], d.base_dilation, d.window_dilation) for d in window]


# ---- order (E10) -------------------------------------------------------------------------------


def order_keys(x: Bits, *, nan_last: bool = True) -> BitsArray:
    """Integers in the order of the elements, so that NumPy can compare them whatever the caller's
    floating-point environment is (D1).

    With `nan_last` -0 equals +0 and every NaN is the same and largest (array sort); without, the
    order is TOTALORDER.
    """
    t = x.dtype
    if t.kind != "float":
        return x.data
    word = np.dtype(f"i{t.itemsize}")
    bits = np.ascontiguousarray(x.data).reshape(x.data.shape).view(word)
    positive = word.type(np.iinfo(word).max)
    key: BitsArray = bits ^ ((bits >> (8 * t.itemsize - 1)) & positive)
    if not nan_last:
        return key
    magnitude = bits & positive
    if t.exponent_bits:
        shift = 8 * t.itemsize - t.bits
        top = ((1 << t.exponent_bits) - 1) << (t.mantissa_bits + shift)
        is_nan = magnitude > top if t.has_inf else magnitude == t.nan_bits
    else:
        is_nan = magnitude > np.array(np.inf, t.numpy).view(word)
    key = np.where(magnitude == 0, word.type(0), key)
    return np.where(is_nan, positive, key)


def _evaluate_argument(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    key = order_keys(operands[0])
    if op.name == "argmin" and operands[0].dtype.kind == "float":
        # The first NaN wins here too: it becomes the smallest key.
        key = np.where(key == np.iinfo(key.dtype).max, np.iinfo(key.dtype).min, key)
    find = np.argmax if op.name == "argmax" else np.argmin
    return np.asarray(find(key, axis=attributes["axis"]), np.int64)


def _evaluate_argsort(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    order = np.argsort(order_keys(operands[0]), axis=attributes["axis"], kind="stable")
    return np.asarray(order, np.int64)


def _evaluate_top_k(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    # ~key is in the opposite order, so that a stable sort leaves equal keys by index.
    order = np.argsort(~order_keys(operands[0], nan_last=False), axis=-1, kind="stable")
    return np.ascontiguousarray(order[..., : attributes["k"]], np.int64)


def _evaluate_nextafter(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, towards = operands
    if is_host(x.dtype):
        return np.asarray(np.nextafter(x.data, towards.data))
    # E9: one step on the type's own grid, which integer order follows.
    key, goal = order_keys(x), order_keys(towards)
    word = key.dtype
    nan = word.type(np.iinfo(word).max)
    unit = word.type(1 << (8 * x.dtype.itemsize - x.dtype.bits))
    magnitude = x.data.view(word) & nan
    sign = x.data.view(word) & ~nan
    away = (goal > key) == (key >= 0)
    stepped = np.where(away, magnitude + unit, magnitude - unit) | sign
    smallest = np.where(goal > key, unit, unit | ~nan)
    moved = np.where(magnitude == 0, smallest, stepped)
    result_bits = np.where(key == goal, towards.data.view(word), moved)
    quiet = np.array(x.dtype.nan_bits, f"u{x.dtype.itemsize}").view(word)
    found = np.where((key == nan) | (goal == nan), quiet, result_bits)
    return np.asarray(found, word).view(x.dtype.storage)


class Accumulation(NamedTuple):
    """How a matrix product adds up, as the core takes it: `fma` is M2 with tiles of this length,
    `exact`, `product_bf16` and `pairs` are M6's; every step's float32 result is rounded to `dtype`.
    """

    order: Literal["fma", "exact", "product_bf16", "pairs"] = "fma"
    dtype: DType = dtypes.float32
    tile: int = 128  # the depth of the tensor engine's array (M2)

    @property
    def core(self) -> tuple[str, int, int]:
        """The core's arguments."""
        return self.order, core_code(self.dtype, "an accumulate type"), self.tile


@dataclass(frozen=True)
class Fusion:
    """What a compiled program runs as part of a product: a program for each operand that computes its
    elements while they are packed, with their type; the right operand packed before; and an epilogue,
    whose inputs are the rounded sums and further arrays over the product's own dimensions.
    """

    lhs: tuple[_core.TileProgram, DType] | None = None
    rhs: tuple[_core.TileProgram, DType] | None = None
    packed: _core.PackedColumns | None = None
    epilogue: tuple[_core.TileProgram, DType] | None = None
    terms: tuple[BitsArray, ...] = ()

    def result(self, product: ArrayType) -> ArrayType:
        """What the product and its epilogue give."""
        return product if self.epilogue is None else ArrayType(self.epilogue[1], product.dims)


NO_FUSION = Fusion()
_PSUM128 = Accumulation()


def accumulation(
    lhs: DType, rhs: DType, depth: int, accumulate: DType | None, profile: Profile
) -> Accumulation:
    """The sums of a product of floats: by the profile's field and the plan's accumulate type (M6).

    Raises UnsupportedType or UnsupportedOperator for a combination that M6 does not have.

    >>> accumulation(dtypes.bfloat16, dtypes.bfloat16, 300, None, Profile(accumulate="sequential")).tile
    300
    """
    field, dtype = profile.accumulate, accumulate or dtypes.float32
    if field == "psum128" and dtype is dtypes.float32:
        return _PSUM128
    if dtype not in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
        raise UnsupportedType(f"a product sums in float32, float16 or bfloat16, not {dtype.name} (M6)")
    if field == "product_bf16" and max(lhs.bits, rhs.bits) > 16:
        raise UnsupportedType(
            f"accumulate='product_bf16' (M6) is for operands of 16 bits or fewer, not {lhs.name} and "
            f"{rhs.name}: cast them to bfloat16, or choose another value"
        )
    steps_of_fma = field in ("psum128", "sequential")
    if dtype is not dtypes.float32 and not steps_of_fma:
        raise UnsupportedOperator(
            f"a product that sums in {dtype.name} under accumulate={field!r}: M6 rounds fma results and "
            "PSUM additions to that type, which psum128 and sequential have"
        )
    draws = field in ("exact", "product_bf16") or dtype is not dtypes.float32
    if profile.rounding == "stochastic" and draws:
        raise UnsupportedOperator(
            f"a product with accumulate={field!r} that sums in {dtype.name} under stochastic rounding: "
            "S2 has no words for its roundings"
        )
    if field == "psum128":
        return Accumulation(dtype=dtype)
    if field == "sequential":
        return Accumulation(dtype=dtype, tile=max(depth, 1))
    if field == "pairs":
        return Accumulation("pairs", tile=max(depth, 1))
    return Accumulation("exact" if field == "exact" else "product_bf16")


class _Side(NamedTuple):
    """One operand of a product for the core: its data, their type, and the program that computes its
    elements while they are packed, of the type `dtype`.
    """

    data: BitsArray
    code: int
    program: _core.TileProgram | None
    dtype: DType


def _accumulation(
    lhs: DType, rhs: DType, depth: int, result: DType, attributes: Attributes, profile: Profile
) -> Accumulation:
    """The sums of a dot or convolution of these operands (M6); integers have no choice (M7)."""
    accumulate: DType | None = attributes.get("accumulate")
    if _dot_kind(result) == "integer":
        if accumulate is not None:
            raise UnsupportedType(f"a product in {result.name} does not sum in {accumulate.name} (M7)")
        return _PSUM128
    return accumulation(lhs, rhs, depth, accumulate, profile)


def _side(
    x: Bits,
    attributes: Attributes,
    setting: Setting,
    tile: str,
    fused: tuple[_core.TileProgram, DType] | None,
) -> _Side:
    """An operand of a product. The attribute `cast` has float32 rounded to that type first (A1)."""
    cast: DType | None = attributes.get("cast")
    code = core_code(x.dtype, "a product")
    if fused is not None:
        return _Side(x.data, code, *fused)
    if cast is None or x.dtype is not dtypes.float32 or cast is x.dtype:
        return _Side(x.data, code, None, x.dtype)
    cast_code = core_code(cast, "a cast")
    program = tile_program((code,), ((CONVERT, cast_code, (0,)),), (1,), setting.profile)
    if not program.draws():
        return _Side(x.data, code, program, cast)
    rounded = run_tile_program(
        program, [x.data], [ArrayType(cast, x.data.shape)], setting.seed, [setting.identifier(tile)]
    )
    return _Side(rounded[0], cast_code, None, cast)


def _goes_via_float32(result: DType, attributes: Attributes, profile: Profile) -> bool:
    """Whether a product of integers does (M7); to bool it is the or of ands in any case."""
    return (
        profile.int_dot == "via_float32"
        and result is not dtypes.boolean
        and _dot_kind(result) == "integer"
        and attributes.get("accumulate") is None
    )


def _evaluate_via_float32(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    """A product of integers as one of float32, rounded to the nearest and saturated (M7)."""
    floats = [_converted(x, dtypes.float32, setting) for x in operands]
    wide = ArrayType(dtypes.float32, result.dims)
    own = {name: value for name, value in attributes.items() if name != "cast"}
    total = op.evaluate(op, floats, own, wide, setting)
    back = (_core.CONVERT_NEAREST, core_code(result.dtype, op.label), (0,))
    program = tile_program((_FLOAT32,), (back,), (1,), setting.profile)
    return run_tile_program(program, [total], [result])[0]


def _converted(x: Bits, dtype: DType, setting: Setting) -> Bits:
    if x.dtype is dtype:
        return x
    result = ArrayType(dtype, x.data.shape)
    return Bits(_run_one(by_name("convert"), [x], {}, result, setting), dtype)


def _evaluate_dot(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    result: ArrayType,
    setting: Setting,
    fusion: Fusion = NO_FUSION,
) -> BitsArray:
    if _goes_via_float32(result.dtype, attributes, setting.profile):
        return _evaluate_via_float32(op, operands, attributes, result, setting)
    lhs, rhs = operands
    d: DotDimensions = attributes["dot_dimensions"]
    depth = math.prod([lhs.data.shape[i] for i in d.lhs_contracting])
    free_lhs, free_rhs, order_lhs, order_rhs = _dot_axes(d, lhs.data.ndim, rhs.data.ndim)
    with _memory_for(op, lhs, rhs, result):
        a = _side(lhs, attributes, setting, "lhs", fusion.lhs)
        b = _side(rhs, attributes, setting, "rhs", fusion.rhs)
        how = _accumulation(a.dtype, b.dtype, depth, result.dtype, attributes, setting.profile)
        left = (a.data.transpose(order_lhs), a.code, free_lhs, a.program)
        right = (b.data.transpose(order_rhs), b.code, free_rhs, b.program)
        return _run_dot(left, right, len(d.lhs_batch), result, how, setting, fusion)


@contextmanager
def _memory_for(op: Op, lhs: Bits, rhs: Bits, result: ArrayType) -> Iterator[None]:
    """Says which product there was no memory for."""
    try:
        yield
    except MemoryError as error:
        what = f"{op.name} of {lhs.type} and {rhs.type} to {result}"
        raise OutOfMemory(f"{what}: there is not as much memory") from error


# One operand as the core takes it: data, type, how many axes are free, the program that casts it.
DotSide: TypeAlias = tuple[BitsArray, int, int, _core.TileProgram | None]


def _run_dot(
    left: DotSide,
    right: DotSide,
    batch: int,
    result: ArrayType,
    how: Accumulation,
    setting: Setting,
    fusion: Fusion = NO_FUSION,
) -> BitsArray:
    output = _empty(fusion.result(result))
    code, choices = core_code(result.dtype, "dot"), numerics(setting.profile)
    draw = (setting.seed, setting.identifier())
    more: tuple[Any, ...] = ()
    if fusion is not NO_FUSION:
        terms = [np.broadcast_to(t, result.dims) for t in fusion.terms]
        more = (fusion.packed, fusion.epilogue[0] if fusion.epilogue else None, terms)
    _core.dot(*left, *right, batch, output, code, *how.core, choices, *draw, *more)
    return output


def pack_columns(
    op: Op, lhs: DType, rhs: Bits, attributes: Attributes, setting: Setting
) -> _core.PackedColumns | None:
    """A constant right operand packed for many products with left operands of the type `lhs`; None
    where the core would not use it.
    """
    if _dot_kind(lhs) != "float" or _dot_kind(rhs.dtype) != "float":
        return None
    if op.name == "dot":
        d: DotDimensions = attributes["dot_dimensions"]
        free = [i for i in range(rhs.data.ndim) if i not in d.rhs_contracting + d.rhs_batch]
        data = rhs.data.transpose((*d.rhs_batch, *free, *d.rhs_contracting))
        counts = (len(free), len(d.rhs_batch))
        depth = math.prod(rhs.data.shape[i] for i in d.rhs_contracting)
    elif attributes["feature_group_count"] * attributes["batch_group_count"] > 1:
        return None
    else:
        n: ConvolutionDimensions = attributes["dimension_numbers"]
        reversed_axes = tuple(i for i, v in enumerate(attributes["window"]) if v.reversal)
        data = np.moveaxis(np.flip(rhs.data.transpose(n.kernel), reversed_axes), -1, 0)
        counts, depth = (1, 0), math.prod(data.shape[1:])
    cast: DType | None = attributes.get("cast")
    if cast is not None and lhs is dtypes.float32:
        lhs = cast
    side = _side(Bits(data, rhs.dtype), attributes, setting, "rhs", None)
    how = _accumulation(lhs, side.dtype, depth, dtypes.float32, attributes, setting.profile)
    if how.order != "fma" or how.dtype is not dtypes.float32:
        return None
    if op.name != "dot" and data.shape[-1] % 2:
        lhs = dtypes.float32  # the core does not hold an odd number of features in pairs
    order, accumulate_code, tile = how.core
    return _core.PackedColumns(
        core_code(lhs, op.name),
        *(side.data, side.code, *counts, side.program),
        accumulate=order,
        accumulate_dtype=accumulate_code,
        tile=tile,
        numerics=numerics(setting.profile),
    )


@lru_cache(4096)
def _dot_axes(
    d: DotDimensions, lhs_rank: int, rhs_rank: int
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """How many axes of either side are free, and each side's order for the core: batch, free and
    contracting axes. The contraction index is row-major as the dot lists them (M2).
    """
    free_lhs = tuple(i for i in range(lhs_rank) if i not in d.lhs_contracting + d.lhs_batch)
    free_rhs = tuple(i for i in range(rhs_rank) if i not in d.rhs_contracting + d.rhs_batch)
    return (
        len(free_lhs),
        len(free_rhs),
        (*d.lhs_batch, *free_lhs, *d.lhs_contracting),
        (*d.rhs_batch, *free_rhs, *d.rhs_contracting),
    )


def _evaluate_convolution(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    result: ArrayType,
    setting: Setting,
    fusion: Fusion = NO_FUSION,
) -> BitsArray:
    if _goes_via_float32(result.dtype, attributes, setting.profile):
        return _evaluate_via_float32(op, operands, attributes, result, setting)
    lhs, rhs = operands
    window: Sequence[WindowDimension] = attributes["window"]
    d: ConvolutionDimensions = attributes["dimension_numbers"]
    with _memory_for(op, lhs, rhs, result):
        output = _empty(fusion.result(result))
        x = _side(lhs, attributes, setting, "lhs", fusion.lhs)
        w = _side(rhs, attributes, setting, "rhs", fusion.rhs)
        rows = [
            (v.size, v.stride, v.padding[0], v.base_dilation, v.window_dilation, v.reversal)
            for v in window
        ]
        kernel = w.data.transpose(d.kernel)
        depth = math.prod(kernel.shape[:-1])
        how = _accumulation(x.dtype, w.dtype, depth, result.dtype, attributes, setting.profile)
        _core.convolution(
            *(x.data.transpose(d.input), x.code, x.program),
            *(kernel, w.code, w.program),
            *(rows, attributes["feature_group_count"], attributes["batch_group_count"]),
            *(output.transpose(d.output), core_code(result.dtype, "convolution")),
            how.order,
            core_code(how.dtype, "an accumulate type"),
            how.tile,
            numerics(setting.profile),
            setting.seed,
            setting.identifier(),
            packed=fusion.packed,
            epilogue=fusion.epilogue[0] if fusion.epilogue else None,
            terms=[np.broadcast_to(t, result.dims).transpose(d.output) for t in fusion.terms],
        )
    return output


def transpose_on_tensor_engine(
    x: Bits, axes: Sequence[int], relayout: DType, setting: Setting, *, saturate_infinity: bool = False
) -> BitsArray:
    """A transpose as multiplications with the identity (M8): values round to the relayout type, and
    each block of 128 along the axis that becomes minor-most is a product by M2. `saturate_infinity`
    makes infinities of the relayout type its largest finite values first.
    """
    values = _converted(x, relayout, setting)
    words = values.data
    if saturate_infinity:
        words = _finite(values)
    moved = words.transpose(axes)
    ones = Bits(np.eye(_PSUM128.tile, dtype=np.float32), dtypes.float32)
    identity = _converted(ones, relayout, setting).data
    depth, code = moved.shape[-1], core_code(relayout, "a transpose")
    output = _empty(ArrayType(x.dtype, moved.shape))
    for start in range(0, depth, len(identity)):
        size = min(len(identity), depth - start)
        block = moved[..., start : start + size]
        left = (block, code, block.ndim - 1, None)
        right = (identity[:size, :size], code, 1, None)
        block_type = ArrayType(x.dtype, block.shape)
        output[..., start : start + size] = _run_dot(left, right, 0, block_type, _PSUM128, setting)
    return output


def _finite(x: Bits) -> BitsArray:
    """The words with the largest finite value of the type for Inf."""
    t = x.dtype
    words = x.data.view(f"u{t.itemsize}")
    unit = 1 << (8 * t.itemsize - t.bits)
    infinity = ((1 << t.exponent_bits) - 1) * unit << t.mantissa_bits
    magnitude = words & words.dtype.type((1 << (8 * t.itemsize - 1)) - 1)
    found = np.where(magnitude == infinity, words - words.dtype.type(unit), words)
    return np.asarray(found, words.dtype).view(t.storage)


# ---- composites (R7) ---------------------------------------------------------------------------


class _Steps:
    """The steps of a composite's formula over some axes: float32, or float64 on the host."""

    def __init__(self, dtype: DType, axes: Sequence[int], setting: Setting) -> None:
        self.dtype, self.axes, self.setting = dtype, tuple(axes), setting
        self.outside = 0  # elements that `neuron_range` made NaN (E3)

    def __call__(self, name: str, *operands: Bits | float) -> Bits:
        op = by_name(name)
        values = [x if isinstance(x, Bits) else self.number(x) for x in operands]
        dims = np.broadcast_shapes(*(x.data.shape for x in values))
        values = [Bits(np.broadcast_to(x.data, dims), x.dtype) for x in values]
        result = op.infer([x.type for x in values], {})
        self.outside += count_outside_range(op, values, self.setting.profile)
        return Bits(op.evaluate(op, values, {}, result, self.setting), result.dtype)

    def number(self, x: float) -> Bits:
        """A Python number rounded once (C1)."""
        return _converted(Bits(np.asarray(x, np.float64), dtypes.float64), self.dtype, self.setting)

    def reduce(self, reducer: str, x: Bits) -> Bits:
        op, start = by_name("reduce"), by_name(reducer).identity
        assert start is not None
        attributes = {"dimensions": self.axes, "reducer": reducer}
        operands = [x, Bits(np.asarray(start, self.dtype.storage), self.dtype)]
        result = op.infer([o.type for o in operands], attributes)
        found = op.evaluate(op, operands, attributes, result, self.setting)
        kept = tuple(1 if d in self.axes else n for d, n in enumerate(x.data.shape))
        return Bits(found.reshape(kept), self.dtype)

    def count(self, x: Bits) -> int:
        return math.prod(x.data.shape[d] for d in self.axes)


def _evaluate_formula(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    """A composite by its formula, each step over the whole array."""
    x, *others = operands
    axes = sorted(attributes["dimensions"])
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    own = [n if d in axes else 1 for d, n in enumerate(x.data.shape)]
    values = [x, *(Bits(t.data.reshape(own), t.dtype) for t in others)]
    values = [_converted(v, dtype, setting) for v in values]
    steps = _Steps(dtype, axes, setting)
    found: Bits = FORMULAS[op.name](steps, values, attributes)
    if steps.outside:
        warnings.warn(outside_range_warning(op.name, steps.outside), RuntimeWarning, stacklevel=7)
    return _converted(Bits(found.data.reshape(result.dims), dtype), result.dtype, setting).data


_LONGEST_ROW, _LONGEST_COLUMN = 1 << 16, 1 << 12


def _evaluate_composite(
    op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
) -> BitsArray:
    x, *terms = operands
    profile = setting.profile
    is_plain = (
        profile.rounding == "nearest_even"
        and profile.subnormals == "keep"
        and profile.divide == "ieee"
        and profile.fp8_overflow == "inf"
        and profile.activation == "exact"
    )
    axes = sorted(attributes["dimensions"])
    row = math.prod(x.data.shape[d] for d in axes)
    # Rows that fit the kernel's blocks; reductions are quicker along others.
    follows = axes == list(range(x.data.ndim - len(axes), x.data.ndim))
    fits = row <= (_LONGEST_ROW if follows else _LONGEST_COLUMN)
    if is_host(x.dtype) or not is_plain or attributes.get("ord", 2) != 2 or not fits:
        return _evaluate_formula(op, operands, attributes, result, setting)
    order = [*(d for d in range(x.data.ndim) if d not in axes), *axes]
    moved, kept = x.data.transpose(order), x.data.ndim - len(axes)
    by_rows = op.infer is _infer_by_rows
    output = _empty(ArrayType(x.dtype, moved.shape if by_rows else moved.shape[:kept]))
    wide = [_converted(t, dtypes.float32, setting).data for t in terms]
    _core.compose(
        *(op.name, core_code(x.dtype, op.label), profile.reduce_tile, moved, kept, output),
        epsilon=attributes.get("epsilon", 0.0),
        divisor=max(math.prod(moved.shape[kept:]) - attributes.get("correction", 0), 0),
        **dict(zip(attributes.get("terms", ()), map(np.ascontiguousarray, wide), strict=True)),
    )
    return output.transpose(np.argsort(order)) if by_rows else output


# ---- the rows ----------------------------------------------------------------------------------

OPS: dict[str, Op] = {}


def _elementwise(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cost: str,
    infer: Infer = _infer_same,
    core: str | None = None,
    **more: Any,
) -> None:
    OPS[name] = Op(
        name=name,
        opcode=opcode,
        xla_builder=xla_builder,
        arity=arity,
        engine=engine,
        cast="compute",
        cost=cost,
        infer=infer,
        evaluate=_evaluate_elementwise,
        core=core or name,
        **more,
    )


def _other(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cast: CastClass,
    cost: str,
    infer: Infer,
    evaluate: Evaluate,
) -> None:
    OPS[name] = Op(name, opcode, xla_builder, arity, engine, cast, cost, infer, evaluate)


# A wrong column is easier to see when the table stays a table.
# fmt: off
_elementwise("add",         "add",         "Add",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=0.0, operator="+")
_elementwise("subtract",    "subtract",    "Sub",   2, "vector", "tensor_tensor", operator="-")
_elementwise("multiply",    "multiply",    "Mul",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=1.0, operator="*")
_elementwise("divide",      "divide",      "Div",   2, "vector", "reciprocal",    operator="/")
_elementwise("maximum",     "maximum",     "Max",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=-math.inf)
_elementwise("minimum",     "minimum",     "Min",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=math.inf)
_elementwise("fmod",        "remainder",   "Rem",   2, "gpsimd", "tensor_tensor")
_elementwise("remainder",   "",            "",      2, "gpsimd", "tensor_tensor", operator="%")
_elementwise("floor_divide", "",           "",      2, "gpsimd", "tensor_tensor", operator="//")
_elementwise("power",       "power",       "Pow",   2, "gpsimd", "tensor_tensor", operator="**")
_elementwise("clamp",       "clamp",       "Clamp", 3, "vector", "tensor_tensor", _infer_clamp)
_elementwise("sign",        "sign",        "Sign",  1, "scalar", "activation")
_elementwise("floor",       "floor",       "Floor", 1, "scalar", "activation")
_elementwise("ceil",        "ceil",        "Ceil",  1, "scalar", "activation")
_elementwise("trunc",       "",            "",      1, "scalar", "activation")
_elementwise("rint",        "round-nearest-even", "RoundNearestEven", 1, "scalar", "activation")
_elementwise("round_half_away", "round-nearest-afz", "Round",         1, "scalar", "activation")
_elementwise("reciprocal",  "",            "",      1, "vector", "reciprocal")
_elementwise("copysign",    "",            "",      2, "vector", "tensor_tensor")
_elementwise("shift_left",             "shift-left",             "ShiftLeft",            2, "vector", "tensor_tensor", operator="<<")
_elementwise("shift_right_arithmetic", "shift-right-arithmetic", "ShiftRightArithmetic", 2, "vector", "tensor_tensor")
_elementwise("shift_right_logical",    "shift-right-logical",    "ShiftRightLogical",    2, "vector", "tensor_tensor")
_elementwise("population_count",       "popcnt",                 "PopulationCount",      1, "gpsimd", "tensor_scalar")
_elementwise("count_leading_zeros",    "count-leading-zeros",    "Clz",                  1, "gpsimd", "tensor_scalar")
_elementwise("sqrt",        "sqrt",        "Sqrt",  1, "scalar", "activation")
_elementwise("rsqrt",       "rsqrt",       "Rsqrt", 1, "scalar", "activation")
_elementwise("cbrt",        "cbrt",        "Cbrt",  1, "scalar", "activation")
_elementwise("exp",         "exponential", "Exp",   1, "scalar", "activation")
_elementwise("exp2",        "",            "",      1, "scalar", "activation")
_elementwise("expm1",       "exponential-minus-one", "Expm1", 1, "scalar", "activation")
_elementwise("log",         "log",         "Log",   1, "scalar", "activation")
_elementwise("log2",        "",            "",      1, "scalar", "activation")
_elementwise("log10",       "",            "",      1, "scalar", "activation")
_elementwise("log1p",       "log-plus-one", "Log1p", 1, "scalar", "activation")
_elementwise("sin",         "sine",        "Sin",   1, "scalar", "activation")
_elementwise("cos",         "cosine",      "Cos",   1, "scalar", "activation")
_elementwise("tan",         "tan",         "Tan",   1, "scalar", "activation")
_elementwise("asin",        "asin",        "Asin",  1, "scalar", "activation")
_elementwise("acos",        "acos",        "Acos",  1, "scalar", "activation")
_elementwise("atan",        "",            "",      1, "scalar", "activation")
_elementwise("atan2",       "atan2",       "Atan2", 2, "gpsimd", "tensor_tensor")
_elementwise("hypot",       "",            "",      2, "gpsimd", "tensor_tensor")
_elementwise("sinh",        "sinh",        "Sinh",  1, "scalar", "activation")
_elementwise("cosh",        "cosh",        "Cosh",  1, "scalar", "activation")
_elementwise("tanh",        "tanh",        "Tanh",  1, "scalar", "activation")
_elementwise("asinh",       "asinh",       "Asinh", 1, "scalar", "activation")
_elementwise("acosh",       "acosh",       "Acosh", 1, "scalar", "activation")
_elementwise("atanh",       "atanh",       "Atanh", 1, "scalar", "activation")
_elementwise("erf",         "erf",         "Erf",   1, "scalar", "activation")
_elementwise("erfc",        "",            "",      1, "scalar", "activation")
_elementwise("sigmoid",     "logistic",    "Logistic", 1, "scalar", "activation")
_elementwise("silu",         "", "", 1, "scalar", "activation")
_elementwise("gelu",         "", "", 1, "scalar", "activation")
_elementwise("gelu_tanh",    "", "", 1, "scalar", "activation")
_elementwise("gelu_sigmoid", "", "", 1, "scalar", "activation")
_elementwise("softplus",     "", "", 1, "scalar", "activation")
_elementwise("mish",         "", "", 1, "scalar", "activation")
_elementwise("erf_dx",       "", "", 1, "scalar", "activation")
_elementwise("silu_dx",      "", "", 1, "scalar", "activation")
_elementwise("gelu_dx",      "", "", 1, "scalar", "activation")
_elementwise("gelu_sigmoid_dx", "", "", 1, "scalar", "activation")
_elementwise("negative",    "negate",      "Neg",   1, "vector", "tensor_scalar")
_elementwise("abs",         "abs",         "Abs",   1, "vector", "tensor_scalar", _infer_abs)
_elementwise("bitwise_and",    "and", "And", 2, "vector", "tensor_tensor", operator="&")
_elementwise("bitwise_or",     "or",  "Or",  2, "vector", "tensor_tensor", operator="|")
_elementwise("bitwise_xor",    "xor", "Xor", 2, "vector", "tensor_tensor", operator="^")
_elementwise("bitwise_invert", "not", "Not", 1, "vector", "tensor_scalar", on_bool="logical_not")
_elementwise("equal",         "compare", "Eq", 2, "vector", "tensor_tensor", _infer_comparison, direction="EQ", operator="==")
_elementwise("not_equal",     "compare", "Ne", 2, "vector", "tensor_tensor", _infer_comparison, direction="NE", operator="!=")
_elementwise("less",          "compare", "Lt", 2, "vector", "tensor_tensor", _infer_comparison, direction="LT", operator="<")
_elementwise("less_equal",    "compare", "Le", 2, "vector", "tensor_tensor", _infer_comparison, direction="LE", operator="<=")
_elementwise("greater",       "compare", "Gt", 2, "vector", "tensor_tensor", _infer_comparison, direction="GT", operator=">")
_elementwise("greater_equal", "compare", "Ge", 2, "vector", "tensor_tensor", _infer_comparison, direction="GE", operator=">=")
_elementwise("equal_total_order",         "compare", "EqTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="EQ", total_order=True)
_elementwise("not_equal_total_order",     "compare", "NeTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="NE", total_order=True)
_elementwise("less_total_order",          "compare", "LtTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="LT", total_order=True)
_elementwise("less_equal_total_order",    "compare", "LeTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="LE", total_order=True)
_elementwise("greater_total_order",       "compare", "GtTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="GT", total_order=True)
_elementwise("greater_equal_total_order", "compare", "GeTotalOrder", 2, "vector", "tensor_tensor", _infer_comparison, direction="GE", total_order=True)
_elementwise("isfinite", "is-finite", "IsFinite", 1, "vector", "tensor_scalar", _infer_predicate)
_elementwise("isnan",    "",          "",         1, "vector", "tensor_scalar", _infer_predicate)
_elementwise("isinf",    "",          "",         1, "vector", "tensor_scalar", _infer_predicate)
_elementwise("signbit",  "",          "",         1, "vector", "tensor_scalar", _infer_predicate)
_elementwise("select",        "select",  "Select", 3, "vector", "copy_predicated", _infer_select)

_other("convert",   "convert",   "ConvertElementType", 1, "vector", "compute",  "tensor_copy",   _infer_convert, _evaluate_convert)
_other("reduce_precision", "reduce-precision", "ReducePrecision", 1, "vector", "compute", "tensor_copy", _infer_reduce_precision, _evaluate_elementwise)
_other("reduce",    "reduce",    "Reduce",         2, "vector", "compute",  "tensor_reduce", _infer_reduce,    _evaluate_reduce)
_other("cumulative", "",         "",               2, "vector", "compute",  "tensor_reduce", _infer_cumulative, _evaluate_cumulative)
_other("reduce_window", "",      "",               2, "vector", "compute",  "tensor_reduce", _infer_reduce_window, _evaluate_reduce_window)
_other("argmax",    "",          "",               1, "vector", "movement", "tensor_reduce", _infer_argument, _evaluate_argument)
_other("argmin",    "",          "",               1, "vector", "movement", "tensor_reduce", _infer_argument, _evaluate_argument)
_other("argsort",   "",          "",               1, "gpsimd", "movement", "tensor_copy",   _infer_argsort,  _evaluate_argsort)
_other("top_k",     "",          "",               1, "gpsimd", "movement", "tensor_copy",   _infer_top_k,    _evaluate_top_k)
_other("nextafter", "",          "",               2, "gpsimd", "compute",  "tensor_tensor", _infer_nextafter, _evaluate_nextafter)
_other("dot",       "dot",       "DotGeneral",     2, "tensor", "matmult",  "nc_matmul",     _infer_dot,       _evaluate_dot)
_other("convolution", "convolution", "ConvGeneralDilated", 2, "tensor", "matmult", "nc_matmul", _infer_convolution, _evaluate_convolution)
_other("broadcast", "broadcast", "BroadcastInDim", 1, "none",   "movement", "none",          _infer_broadcast, _evaluate_broadcast)
_other("reshape",   "reshape",   "Reshape",        1, "none",   "movement", "none",          _infer_reshape,   _evaluate_reshape)
_other("copy",      "copy",      "Copy",           1, "dma",    "movement", "dma",           _infer_same,      _evaluate_copy)
_other("transpose", "transpose", "Transpose",      1, "dma",    "movement", "dma",           _infer_transpose, _evaluate_transpose)
_other("reverse",   "reverse",   "Rev",            1, "dma",    "movement", "dma",           _infer_reverse,   _evaluate_reverse)
_other("slice",     "slice",     "Slice",          1, "none",   "movement", "none",          _infer_slice,     _evaluate_slice)
_other("concatenate", "concatenate", "Concatenate", -1, "dma",  "movement", "dma",           _infer_concatenate, _evaluate_concatenate)
_other("iota",      "iota",      "Iota",           0, "gpsimd", "compute",  "iota",          _infer_iota,      _evaluate_iota)
_other("softmax",     "",        "",               1, "scalar", "compute",  "activation",    _infer_by_rows,   _evaluate_composite)
_other("log_softmax", "",        "",               1, "scalar", "compute",  "activation",    _infer_by_rows,   _evaluate_composite)
_other("logsumexp",   "",        "",               1, "scalar", "compute",  "activation",    _infer_statistic, _evaluate_composite)
_other("layer_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", _infer_by_rows,   _evaluate_composite)
_other("rms_norm",    "",        "",              -1, "vector", "compute",  "tensor_tensor", _infer_by_rows,   _evaluate_composite)
_other("batch_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", _infer_batch_norm, _evaluate_formula)
_other("mean",        "",        "",               1, "vector", "compute",  "tensor_tensor", _infer_statistic, _evaluate_composite)
_other("var",         "",        "",               1, "vector", "compute",  "tensor_tensor", _infer_statistic, _evaluate_composite)
_other("std",         "",        "",               1, "vector", "compute",  "tensor_tensor", _infer_statistic, _evaluate_composite)
_other("vector_norm", "",        "",               1, "vector", "compute",  "tensor_tensor", _infer_statistic, _evaluate_composite)
# fmt: on

_BY_OPCODE = {(op.opcode, op.direction, op.total_order): op for op in OPS.values() if op.opcode}
OPCODES = frozenset(op.opcode for op in OPS.values() if op.opcode)
# Arrays of integers take the default float type first: NumPy's functions give them floats.
FUNCTIONS_OF_FLOATS = frozenset(
    op.name for op in OPS.values() if op.core is not None and _CORE_KINDS[op.core] == "function"
) | {"sqrt", "reciprocal", "atan2", "hypot"}


def by_name(name: str) -> Op:
    """The row with this array name; raises UnsupportedOperator with the nearest known name."""
    if name not in OPS:
        raise UnsupportedOperator(f"neuronsim has no operation {name!r}{nearest(name, OPS)}")
    return OPS[name]


def by_opcode(opcode: str, attributes: Attributes) -> Op:
    """The row of an HLO opcode; a compare's direction and order choose among
    twelve.
    """
    total_order = attributes.get("comparison_type") == "TOTALORDER"
    row = _BY_OPCODE.get((opcode, attributes.get("comparison_direction"), total_order))
    if row is None:
        raise UnsupportedOperator(
            f"[NCC_EVRF001] neuronsim does not execute the operator {opcode!r} yet"
            f"{nearest(opcode, OPCODES)}; it executes {', '.join(sorted(OPCODES))}"
        )
    return row


def evaluate(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    setting: Setting,
    result: ArrayType | None = None,
) -> Bits:
    """Evaluate a row on bits. `result` is the type that a graph states; else it is inferred."""
    check_environment()
    if result is None:
        result = op.infer([x.type for x in operands], attributes)
    return Bits(op.evaluate(op, operands, attributes, result, setting), result.dtype)


def evaluate_product(
    op: Op,
    operands: Sequence[Bits],
    attributes: Attributes,
    setting: Setting,
    result: ArrayType,
    fusion: Fusion,
) -> Bits:
    """A dot or a convolution with what is fused into it; `result` is the product's own type."""
    check_environment()
    run = _evaluate_dot if op.name == "dot" else _evaluate_convolution
    data = run(op, operands, attributes, result, setting, fusion)
    return Bits(data, fusion.result(result).dtype)


def apply(name: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """Evaluate an operation on arrays, or record it if an operand records.

    An operand with `__neuronsim_apply__(op, operands, attributes)` takes over, as a tracer does.
    """
    op = by_name(name)
    for x in operands:
        record = getattr(x, "__neuronsim_apply__", None)
        if record is not None:
            return record(op, operands, attributes)
    result = attributes.get("result")
    profile = current_profile()
    setting = Setting(profile)
    if profile.activation == "neuron_range":
        outside = count_outside_range(op, operands, profile)
        if outside:
            # The caller of a function of `arrays`, which comes here through two others.
            warnings.warn(outside_range_warning(name, outside), RuntimeWarning, stacklevel=5)
    if profile.rounding == "nearest_even" and profile.int64 == "keep":
        return evaluate(op, operands, attributes, setting, result)
    if result is None:
        result = op.infer([x.type for x in operands], attributes)
    if profile.rounding == "stochastic" and draws(op, operands, attributes, result):
        # S2: the place of this rounding operation in the sequence of the context's.
        state = next_rounding()
        setting = Setting(profile, state.seed, f"{state.calls}/eager/{name}/")
    if profile.int64 == "keep":
        return evaluate(op, operands, attributes, setting, result)
    pairs = [truncate_int64(x) for x in operands]
    value, changed = truncated(op, [x for x, _ in pairs], attributes, setting, result)
    changed += sum(n for _, n in pairs)
    if changed:
        message = f"{name}: {changed} 64-bit integers are others than in 64 bits (C7, int64='truncate')"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    return value


def moves_bits(op: Op) -> bool:
    """Whether an operation moves or flips bits and nothing else (E6)."""
    kind = None if op.core is None else _CORE_KINDS[op.core]
    return op.cast == "movement" or kind in ("bitwise", "sign", "selection") or op.name == "nextafter"


def draws(op: Op, operands: Sequence[Bits], attributes: Attributes, result: ArrayType) -> bool:
    """Whether an operation rounds float32 values to a narrower float under the profile in force (S1)."""
    t = result.dtype
    if t is dtypes.float32 or not t.exponent_bits or moves_bits(op):
        return False
    if op.core is None and op.name not in ("convert", "reduce_precision"):
        return True
    types = tuple(x.dtype for x in operands)
    if (op.name == "convert" and types[0] is t) or any(x.code is None for x in types):
        return False
    program, _ = elementwise_program(op, attributes, types, t, current_profile())
    return program.draws()


def truncated(
    op: Op, operands: Sequence[Bits], attributes: Attributes, setting: Setting, result: ArrayType
) -> tuple[Bits, int]:
    """C7: the 32-bit instruction for a 64-bit one, its result extended, and how many elements that
    changes. The operands are truncated already (`truncate_int64`).
    """
    arrays = [_as_32_bits(x) for x in operands] if op.name == "convert" else list(operands)
    value = evaluate(op, arrays, attributes, setting, result)
    if value.dtype not in _WIDE:
        return value, 0
    # The 32-bit instruction gives the low half of the 64-bit one, but for conversions from floats and
    # products through floats (M7), which saturate in 32 bits, and for shifts and counts of bits, whose
    # width is 32.
    saturates = (op.name == "convert" and arrays[0].dtype.kind == "float") or (
        op.name in ("dot", "convolution") and setting.profile.int_dot == "via_float32"
    )
    if saturates or (op.core is not None and op.name != "select"):
        narrow = _WIDE[value.dtype]
        own = {**attributes, "dtype": narrow} if saturates else attributes
        small = evaluate(op, [_as_32_bits(a) for a in arrays], own, setting)
        wide = small.data.astype(value.dtype.storage)
        return Bits(wide, value.dtype), int(np.count_nonzero(wide != value.data))
    return truncate_int64(value)


_WIDE = {dtypes.int64: dtypes.int32, dtypes.uint64: dtypes.uint32}


def truncate_int64(value: Bits) -> tuple[Bits, int]:
    """C7: 64-bit integers become their low 32 bits extended; with the count of changed elements."""
    if value.dtype not in _WIDE:
        return value, 0
    low = value.data.astype(_WIDE[value.dtype].storage).astype(value.dtype.storage)
    changed = int(np.count_nonzero(low != value.data))
    return (Bits(low, value.dtype) if changed else value), changed


def _as_32_bits(value: Bits) -> Bits:
    """A truncated 64-bit integer as the 32-bit one that the device has (C7)."""
    narrow = _WIDE.get(value.dtype)
    return value if narrow is None else Bits(value.data.astype(narrow.storage), narrow)
