"""Rules A1 and A2 read off a model, op by op in NumPy: every decided instruction reads float32 operands
rounded to the type and rounds its float32 results to it; so does a loop with what it carries, where HLO
has the type; all else keeps the types of the model.

It shares no code with the planner, the rewriter or the executor.
Values are float32, integer or bool ndarrays; a rounded value is kept as the float32 that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.support.interpreter import Steps, as_numpy, walk

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Module, Shape
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.profiles import Profile

Array = npt.NDArray[Any]
Value = Any  # an Array, or a tuple of values
Function = Callable[[Instruction, list[Array]], Value]

F32 = dtypes.float32
# What is about its operand's own bits or shape, and is on no engine.
ON_NO_ENGINE = {"bitcast-convert", "bitcast", "get-dimension-size", "real", "imag", "complex"}


def rounded(x: Array, low: DType) -> Array:
    """A float32 array rounded to a type, as float32; other arrays as they are."""
    if x.dtype != np.float32 or low is F32:
        return x
    if low is dtypes.tfloat32:
        bits = x.view(np.uint32).astype(np.uint64)
        even = bits + 0xFFF + (bits >> np.uint64(13) & np.uint64(1))  # no NaN in these tests
        return np.asarray(even & np.uint64(0xFFFFE000), np.uint32).view(np.float32)
    if low.is_open:  # C9; tests/casting/test_open_formats.py has it on fractions
        exponent = np.frexp(x.astype(np.float64))[1] - 1
        if low.exponent_bits == 8:
            exponent = np.maximum(exponent, -126)
        step = np.exp2(exponent - float(low.mantissa_bits))
        value = np.rint(x / step) * step
        bias = 2 ** (low.exponent_bits - 1) - 1
        value = np.where(abs(value) >= 2.0 ** (bias + 1), np.copysign(np.inf, x), value)
        if low.exponent_bits < 8:
            value = np.where(abs(value) < 2.0 ** (1 - bias), np.copysign(0, x), value)
        return np.asarray(value, np.float32)
    with np.errstate(over="ignore"):
        return x.astype(low.numpy).astype(np.float32)


def _compare(i: Instruction, v: list[Array]) -> Array:
    ordered = {"LT": np.less, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal}
    return np.asarray(ordered[i.attributes["comparison_direction"]](*v))


def _broadcast(i: Instruction, v: list[Array]) -> Array:
    shape = [1] * len(i.array.dims)
    for axis, size in zip(i.attributes["dimensions"], v[0].shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(v[0].reshape(shape), i.array.dims)


# Operations that NumPy computes as the contract does: exactly, or rounded once (E2).
FUNCTIONS: dict[str, Function] = {
    "add": lambda i, v: v[0] + v[1],
    "subtract": lambda i, v: v[0] - v[1],
    "multiply": lambda i, v: v[0] * v[1],
    "divide": lambda i, v: v[0] / v[1],
    "maximum": lambda i, v: np.maximum(*v),
    "minimum": lambda i, v: np.minimum(*v),
    "negate": lambda i, v: -v[0],
    "sqrt": lambda i, v: np.sqrt(v[0]),
    "select": lambda i, v: np.where(v[0], v[1], v[2]),
    "compare": _compare,
    "broadcast": _broadcast,
    "reshape": lambda i, v: v[0].reshape(i.array.dims),
    "convert": lambda i, v: v[0].astype(i.array.dtype.numpy),
}


def read_module(
    module: Module, inputs: list[Value], low: DType, auto_cast: str, **more: Function
) -> Value:
    """What the module gives under `auto_cast` to `low`; `more` has functions of further opcodes."""
    functions = FUNCTIONS | {name.replace("_", "-"): f for name, f in more.items()}

    def step(i: Instruction, operands: list[Value], path: str) -> Value:
        reads, gives = types(i, operands)
        result = functions[i.opcode](i, [rounded(v, reads) for v in operands])
        if isinstance(result, tuple):
            return tuple(rounded(r, gives) for r in result)
        return rounded(np.asarray(result), gives)

    def carried(state: Value, i: Instruction) -> Value:
        """What a loop carries, before each trip and after the last."""
        if auto_cast != "all" or low is dtypes.tfloat32 or has_complex(i):
            return state
        if isinstance(state, tuple):
            return tuple(carried(v, i) for v in state)
        return rounded(state, low)

    def has_complex(i: Instruction) -> bool:
        return any(s.dtype.kind == "complex" for s in i.shape.arrays())

    def types(i: Instruction, operands: list[Array]) -> tuple[DType, DType]:
        """What float32 operands and results are rounded to."""
        if i.opcode in ON_NO_ENGINE or has_complex(i) or any(v.dtype.kind == "c" for v in operands):
            return F32, F32
        if i.opcode in ("dot", "convolution"):
            if auto_cast == "none":
                return F32, F32
            return low, low if auto_cast == "all" else F32
        return (low, low) if auto_cast == "all" else (F32, F32)

    return walk(module, inputs, Steps(step, as_numpy, np.asarray, carried))


def by_rows(module: Module) -> dict[str, Function]:
    """The functions of all opcodes by the rows of the op table, for `read_module`."""

    def apply(i: Instruction, v: list[Array]) -> Value:
        read = [stored(x) for x in v]
        attributes = row_attributes(module, i)
        found = ops.evaluate(row(i), read, attributes, ops.Setting(Profile()), i.result)
        values = tuple(as_numpy(b) for b in found)
        return values[0] if isinstance(i.shape, Shape) else values

    return dict.fromkeys(ops.OPCODES, apply)


def stored(x: Array) -> ops.Bits:
    dtype = dtypes.as_dtype(x.dtype)
    return ops.Bits(np.ascontiguousarray(x).view(dtype.storage).reshape(x.shape), dtype)
