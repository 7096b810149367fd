"""Arrays of nothing but their shape, random numbers, and what shapes say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import fft
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.layers import psum_type
from neuronsim.dtypes import DType
from neuronsim.frontends.primitives import drawn
from neuronsim.frontends.torch.promotion import as_type
from neuronsim.frontends.torch.table import Node, operator
from neuronsim.frontends.torch.tensors import require_torch, to_array, torch_dtype

# Of the shape that these numbers are, or of that of an array.
_Like: TypeAlias = Sequence[int] | Array


def _shape(like: _Like) -> tuple[int, ...]:
    return like.shape if isinstance(like, Array) else tuple(like)


def _filled(like: _Like, value: Any, dtype: DType) -> Array:
    """One number everywhere, of which one is kept."""
    return np.broadcast_to(np.reshape(as_type(value, dtype), ()), _shape(like))


@operator("aten.full.default", "aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor")
def _full(node: Node, like: _Like, fill_value: Any, *, dtype: DType | None = None) -> Array:
    return _filled(like, fill_value, node.dtype)


@operator("aten.zeros.default", "aten.empty.memory_format", "aten.new_empty.default")
def _zeros(node: Node, size: Any, shape: Any = None, *, dtype: DType | None = None) -> Array:
    """What is empty in PyTorch holds zeros here."""
    return _filled(size if shape is None else shape, 0, node.dtype)


@operator("aten.zeros_like.default", "aten.empty_like.default")
def _zeros_like(node: Node, x: Array, *, dtype: DType | None = None) -> Array:
    return _filled(x, 0, node.dtype)


@operator("aten._new_zeros_with_same_feature_meta.default")
def _zeros_of_features(node: Node, x: Array, features: Array, *, self_num_batch_dims: int = 0) -> Array:
    """A tangent of zeros for `features`, in the batches of another one."""
    return _filled((*x.shape[:self_num_batch_dims], *features.shape), 0, node.dtype)


@operator("aten.ones.default", "aten.ones_like.default")
def _ones(node: Node, like: _Like, *, dtype: DType | None = None) -> Array:
    return _filled(like, 1, node.dtype)


@operator("aten.empty_strided.default", "aten.empty_permuted.default")
def _empty_strided(
    node: Node, size: Sequence[int], stride: Any, *, dtype: DType | None = None
) -> Array:
    return _filled(size, 0, node.dtype)


@operator("aten.scalar_tensor.default")
def _scalar_tensor(node: Node, value: Any, *, dtype: DType | None = None) -> Array:
    return np.reshape(as_type(value, node.dtype), ())


@operator("aten.arange.start_step", "aten.arange.default", "aten.arange.start")
def _arange(
    node: Node, start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None
) -> Array:
    first, last = (0, start) if end is None else (start, end)
    is_integer = node.dtype.kind in ("signed", "unsigned")
    wide: Any = numpy.arange(first, last, step, dtype="int64" if is_integer else "float64")
    return asarray(wide).astype(node.dtype)


@operator("aten.fft_fftfreq.default", "aten.fft_rfftfreq.default")
def _frequencies(node: Node, n: int, d: float = 1.0, *, dtype: DType | None = None) -> Array:
    """Of a Fourier transform's elements, for samples `d` apart."""
    of_real = "rfftfreq" in node.target
    return (fft.rfftfreq if of_real else fft.fftfreq)(n, d, dtype=node.dtype)


@operator(
    *(f"aten.{n}_window.{k}" for n in ("bartlett", "blackman", "hamming", "hann", "kaiser")
      for k in ("default", "periodic")),
    "aten.hamming_window.periodic_alpha", "aten.hamming_window.periodic_alpha_beta",
    "aten.kaiser_window.beta",
)  # fmt: skip
def _window(node: Node, *numbers: Any, dtype: DType | None = None) -> Array:
    """Of numbers alone: as PyTorch computes it."""
    _, name, overload = node.target.split(".")
    function = getattr(getattr(require_torch().ops.aten, name), overload)
    return to_array(function(*numbers, dtype=torch_dtype(node.dtype)))


@operator("prims.iota.default")
def _iota(node: Node, length: int, *, start: int, step: int, dtype: DType, **rest: Any) -> Array:
    return asarray(start + step * numpy.arange(length)).astype(node.dtype)


@operator("aten.eye.default", "aten.eye.m")
def _eye(node: Node, n: int, m: int | None = None, *, dtype: DType | None = None) -> Array:
    return np.eye(n, m, dtype=node.dtype)


# ---- random numbers --------------------------------------------------------------------------------


def _wide(dtype: DType) -> DType:
    return psum_type(np.zeros((), dtype=dtype))


def _drawn(kind: str, like: _Like, dtype: DType, first: float = 0.0, second: float = 1.0) -> Array:
    return drawn(kind, first, second, _shape(like), _wide(dtype)).astype(dtype)


@operator("aten.rand.default", "aten.rand_like.default")
def _rand(node: Node, like: _Like, *, dtype: DType | None = None) -> Array:
    return _drawn("uniform", like, node.dtype)


@operator("aten.randn.default", "aten.randn_like.default")
def _randn(node: Node, like: _Like, *, dtype: DType | None = None) -> Array:
    return _drawn("normal", like, node.dtype)


@operator("aten.uniform.default")
def _uniform(node: Node, x: Array, first: float = 0.0, last: float = 1.0) -> Array:
    return _drawn("uniform", x, node.dtype, first, last)


@operator("aten.normal_functional.default")
def _normal(node: Node, x: Array, mean: float = 0.0, std: float = 1.0) -> Array:
    return _drawn("normal", x, node.dtype, mean, std)


@operator("aten.normal.float_float")
def _normal_of_size(
    node: Node, mean: float, std: float, size: Sequence[int], *, dtype: DType | None = None
) -> Array:
    return _drawn("normal", size, node.dtype, mean, std)


@operator("aten.exponential.default")
def _exponential(node: Node, x: Array, lambd: float = 1.0) -> Array:
    """By the inverse of its distribution; 1 - u is never 0."""
    uniform = _drawn("uniform", x, _wide(x.dtype))
    return (np.log1p(-uniform) / -lambd).astype(node.dtype)


@operator("aten.randint.default")
def _randint(node: Node, high: int, size: Sequence[int], *, dtype: DType | None = None) -> Array:
    return _integers(0, high, size, node.dtype)


@operator("aten.randint.low")
def _randint_from(
    node: Node, low: int, high: int, size: Sequence[int], *, dtype: DType | None = None
) -> Array:
    return _integers(low, high, size, node.dtype)


def _integers(low: int, high: int, size: Sequence[int], dtype: DType) -> Array:
    """Whole numbers of a range, of float32's 2^24 steps."""
    steps = np.floor(_drawn("uniform", size, dtypes.float32) * (high - low)).astype(dtypes.int64)
    return (np.minimum(steps, high - low - 1) + low).astype(dtype)


@operator("aten.randperm.default")
def _randperm(node: Node, n: int, *, dtype: DType | None = None) -> Array:
    """The order of numbers that are drawn."""
    order = np.argsort(_drawn("uniform", (n,), dtypes.float32), stable=True)
    return order.astype(node.dtype)


@operator("aten.native_dropout.default")
def _native_dropout(node: Node, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    """Elements kept with the probability 1 - p and scaled by its inverse, and which those are."""
    if train is False or p == 0:
        return x, np.ones(x.shape, dtype=dtypes.boolean)
    if p == 1:
        return np.zeros(x.shape, dtype=x.dtype), np.zeros(x.shape, dtype=dtypes.boolean)
    kept = np.less(_drawn("uniform", x.shape, dtypes.float32), 1 - p)
    scaled = np.multiply(x.astype(_wide(x.dtype)), 1 / (1 - p))
    return np.where(kept, scaled, asarray(0, scaled.dtype)).astype(x.dtype), kept


@operator("aten.bernoulli.p", "aten.bernoulli.default")
def _bernoulli(node: Node, x: Array, p: float | None = None) -> Array:
    uniform = _drawn("uniform", x.shape, _wide(x.dtype))
    return np.less(uniform, x.astype(uniform.dtype) if p is None else p).astype(node.dtype)


# ---- what shapes say, and known values --------------------------------------------------------------


operator("aten.sym_size.int")(lambda node, x, dim: x.shape[dim])
operator("aten.sym_numel.default")(lambda node, x: x.size)


@operator("aten.sym_stride.int")
def _stride(node: Node, x: Array, dim: int) -> int:
    """Of an array whose elements lie row after row."""
    steps = [1]
    for n in x.shape[:0:-1]:
        steps.append(steps[-1] * max(n, 1))
    return steps[::-1][dim]


operator("aten.sym_storage_offset.default")(lambda node, x: 0)
operator("aten.sym_is_contiguous.default")(lambda node, x: True)


@operator("aten._local_scalar_dense.default", "aten.item.default")
def _item(node: Node, x: Array) -> Any:
    """A value that must be known before the program runs."""
    return np.reshape(x, ()).tolist()


@operator(
    "aten._assert_scalar.default", "aten._assert_async.msg", "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default", "aten._assert_tensor_metadata.default",
)  # fmt: skip
def _assertion(node: Node, *args: Any, **keywords: Any) -> None:
    """What export knows of sizes, which the arrays' own shapes say."""
