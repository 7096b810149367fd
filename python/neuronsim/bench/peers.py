"""The same kernels in other libraries, on the same values."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from neuronsim.arrays.array import asarray, elementwise
from neuronsim.bench.kernels import CHAIN, Case
from neuronsim.errors import InvalidArgument, UnsupportedOperator

PEERS = ("numpy", "ml_dtypes", "torch", "op_by_op")
_TORCH_NAMES = {
    "negative": "neg",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_invert": "bitwise_not",
}

# What torch is asked to write into a given tensor.
_TORCH_OUT = ("convert", "add", "multiply", "maximum", "minimum")


def peer_run(peer: str, case: Case, threads: int, touched: bool = False) -> Callable[[], Any]:
    """The case in a peer, as a function of no arguments; with `touched` its result goes to memory that
    was written before.

    `numpy` computes in NumPy's own types (float32 and float16), `ml_dtypes` in its narrow types;
    `op_by_op` is neuronsim itself without the fusion of a chain. Raises InvalidArgument if the peer is
    unknown or not installed, UnsupportedOperator if it does not have the kernel or the type.
    """
    if peer not in PEERS:
        raise InvalidArgument(f"the peer is one of {', '.join(PEERS)}, not {peer!r}")
    writes = case.op == "convert" or (case.op != "chain" and not case.is_predicate)
    if touched and not (writes and (peer != "torch" or case.op in _TORCH_OUT)):
        raise UnsupportedOperator(f"{peer} has no {case.op} into touched memory to compare with")
    if peer == "op_by_op":
        return _own_run(case)
    if peer == "torch":
        return _torch_run(case, threads, touched)
    run = _numpy_run(peer, case, touched)
    return _with_blas_threads(run, threads) if case.op == "matmul" else run


def _own_run(case: Case) -> Callable[[], Any]:
    if case.op != "chain":
        raise UnsupportedOperator(f"op_by_op is a peer of chain, not of {case.op}")
    x, y = (asarray(v, case.dtype) for v in case.operands)
    return lambda: reduce(lambda last, name: elementwise(name, last, y), CHAIN, x)


def _with_blas_threads(run: Callable[[], Any], threads: int) -> Callable[[], Any]:
    """NumPy's BLAS takes every core unless it is told."""
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError as error:
        raise InvalidArgument(
            "timing NumPy's matmul at equal threads needs threadpoolctl: pip install threadpoolctl"
        ) from error

    def limited() -> Any:
        with limits(threads):
            return run()

    return limited


def _missing(peer: str, case: Case) -> UnsupportedOperator:
    return UnsupportedOperator(f"{peer} has no {case.op} of {case.dtype.name} to compare with")


def _numpy_run(peer: str, case: Case, touched: bool) -> Callable[[], Any]:
    types = {t.name for t in (case.dtype, case.target)}
    own = {"float32", "float16", "float64"}
    if (
        "tfloat32" in types
        or (peer == "numpy" and types - own)
        or (peer == "ml_dtypes" and types <= own)
    ):
        raise _missing(peer, case)
    operands = [v.astype(case.dtype.numpy) for v in case.operands]
    out = np.zeros(case.shape, case.target.numpy) if touched else None
    if out is not None:
        out.fill(0)
    if case.op == "convert":
        if out is not None:
            return lambda: np.copyto(out, operands[0], casting="unsafe")
        return lambda: operands[0].astype(case.target.numpy)
    if case.op == "chain":
        functions = [getattr(np, name) for name in CHAIN]
        return lambda: reduce(lambda last, f: f(last, operands[1]), functions, operands[0])
    if case.op not in vars(np) and case.op != "rsqrt":
        raise _missing(peer, case)
    if case.op == "rsqrt":
        return lambda: np.reciprocal(np.sqrt(operands[0]), out=out)
    function = getattr(np, case.op)
    if case.op in ("sum", "prod", "max", "min", "mean"):
        return lambda: function(operands[0], axis=case.axis)
    if out is not None:
        return lambda: function(*operands, out=out)
    return lambda: function(*operands)


def _no_function(*operands: Any) -> Any:
    """Stands for a function that torch does not have."""


def _torch_run(case: Case, threads: int, touched: bool) -> Callable[[], Any]:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InvalidArgument("the peer torch is not installed") from error
    torch.set_num_threads(threads)
    dtype, target = (getattr(torch, t.name, None) for t in (case.dtype, case.target))
    name = "to" if case.op == "convert" else _TORCH_NAMES.get(case.op, case.op)
    function: Callable[..., Any] = getattr(torch.Tensor, name, _no_function)
    if dtype is None or target is None or (function is _no_function and case.op != "chain"):
        raise _missing("torch", case)
    operands = [torch.from_numpy(v).to(dtype) for v in case.operands]
    if case.op == "chain":
        functions = [getattr(torch, _TORCH_NAMES.get(name, name)) for name in CHAIN]
        return lambda: reduce(lambda last, f: f(last, operands[1]), functions, operands[0])
    if case.op == "convert":
        if touched:
            out = torch.zeros(case.shape, dtype=target).fill_(0)
            return lambda: out.copy_(operands[0])
        return lambda: operands[0].to(target)
    if case.op in ("sum", "prod", "mean") and case.axis is not None:
        return lambda: function(operands[0], dim=case.axis)
    if case.op in ("max", "min") and case.axis is not None:
        function = torch.amax if case.op == "max" else torch.amin
        return lambda: function(operands[0], dim=case.axis)
    if touched:
        into = getattr(torch, _TORCH_NAMES.get(case.op, case.op))
        result = torch.zeros(case.shape, dtype=dtype).fill_(0)
        return lambda: into(*operands, out=result)
    return lambda: function(*operands)
