"""The same kernels in other libraries, on the same values."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from neuronsim.bench.kernels import Case
from neuronsim.errors import InvalidArgument, UnsupportedOperator

PEERS = ("numpy", "ml_dtypes", "torch")
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


def peer_run(peer: str, case: Case, threads: int) -> Callable[[], Any]:
    """The case in a peer, as a function of no arguments.

    `numpy` computes in NumPy's own types (float32 and float16), `ml_dtypes` in its narrow types.
    Raises InvalidArgument if the peer is unknown or not installed, UnsupportedOperator if it does not
    have the kernel or the type.
    """
    if peer not in PEERS:
        raise InvalidArgument(f"the peer is one of {', '.join(PEERS)}, not {peer!r}")
    if peer == "torch":
        return _torch_run(case, threads)
    run = _numpy_run(peer, case)
    return _with_blas_threads(run, threads) if case.op == "matmul" else run


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


def _numpy_run(peer: str, case: Case) -> Callable[[], Any]:
    types = {t.name for t in (case.dtype, case.target)}
    own = {"float32", "float16", "float64"}
    if (
        "tfloat32" in types
        or (peer == "numpy" and types - own)
        or (peer == "ml_dtypes" and types <= own)
    ):
        raise _missing(peer, case)
    operands = [v.astype(case.dtype.numpy) for v in case.operands]
    if case.op == "convert":
        return lambda: operands[0].astype(case.target.numpy)
    if case.op == "rsqrt":
        return lambda: np.reciprocal(np.sqrt(operands[0]))
    function = getattr(np, case.op)
    if case.op in ("sum", "prod", "max", "min", "mean"):
        return lambda: function(operands[0], axis=case.axis)
    return lambda: function(*operands)


def _no_function(*operands: Any) -> Any:
    """Stands for a function that torch does not have."""


def _torch_run(case: Case, threads: int) -> Callable[[], Any]:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InvalidArgument("the peer torch is not installed") from error
    torch.set_num_threads(threads)
    dtype, target = (getattr(torch, t.name, None) for t in (case.dtype, case.target))
    name = "to" if case.op == "convert" else _TORCH_NAMES.get(case.op, case.op)
    function: Callable[..., Any] = getattr(torch.Tensor, name, _no_function)
    if dtype is None or target is None or function is _no_function:
        raise _missing("torch", case)
    operands = [torch.from_numpy(v).to(dtype) for v in case.operands]
    if case.op == "convert":
        return lambda: operands[0].to(target)
    if case.op in ("sum", "prod", "mean") and case.axis is not None:
        return lambda: function(operands[0], dim=case.axis)
    if case.op in ("max", "min") and case.axis is not None:
        function = torch.amax if case.op == "max" else torch.amin
        return lambda: function(operands[0], dim=case.axis)
    return lambda: function(*operands)
