"""Products of matrices and tensors."""

from __future__ import annotations

from neuronsim import arrays as np
from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.layers import psum_type
from neuronsim.arrays.products import contract
from neuronsim.arrays.steps import in_float32
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, operator

operator("MatMul")(lambda node, a, b: np.matmul(a, b))


@operator("Gemm")
def _gemm(node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    """The sum alpha A B + beta C: a dot over the axes that the transposes say, the rest in float32,
    rounded once.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise InvalidModel(f"{a.bits.type} and {b.bits.type}: both are matrices")
    left, right = (0 if node.get("transA", 0) else 1), (1 if node.get("transB", 0) else 0)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    adds = c is not None and beta != 0
    is_one_step = not adds and alpha == 1
    dtype = a.dtype if is_one_step else psum_type(a, b)
    found = contract(a.bits, b.bits, ops.DotDimensions((left,), (right,)), dtype)
    if is_one_step:
        return found
    found = _scaled(found, alpha)
    if adds:
        assert c is not None
        found = np.add(found, _scaled(c.astype(found.dtype), beta))
    return found.astype(a.dtype)


def _scaled(x: Array, factor: float) -> Array:
    """Integers are multiplied in the default float type, and cut."""
    return x if factor == 1 else np.multiply(x, factor).astype(x.dtype)


operator("Einsum", since=12)(lambda node, *operands: np.einsum(node.require("equation"), *operands))


@operator("Det", since=11)
@in_float32("x")
def _determinant(node: Node, x: Array) -> Array:
    """By Gauss's elimination with the largest pivot of each column, in float32 steps (R7)."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidModel(f"{x.bits.type} is no square matrix")
    found = np.ones(x.shape[:-2], dtype=x.dtype)
    for left in range(x.shape[-1], 0, -1):
        place = np.argmax(np.abs(x[..., 0]), axis=-1)
        is_pivot = np.equal(np.arange(left, dtype="int64"), np.expand_dims(place, -1))
        chosen = np.expand_dims(is_pivot, -1)
        row = np.sum(np.where(chosen, x, 0), axis=-2)
        pivot = row[..., 0]
        # The first row takes the pivot's place, which turns the sign.
        found = np.multiply(found, np.where(np.equal(place, 0), pivot, np.negative(pivot)))
        below = np.where(chosen, np.expand_dims(x[..., 0, :], -2), x)[..., 1:, :]
        divisor = np.where(np.equal(pivot, 0), 1, pivot)
        factors = np.divide(below[..., 0], np.expand_dims(divisor, -1))
        eliminated = np.multiply(np.expand_dims(factors, -1), np.expand_dims(row[..., 1:], -2))
        x = np.subtract(below[..., 1:], eliminated)
    return found
