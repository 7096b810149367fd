"""The same kernels in other libraries, or in neuronsim in another way, on the same values."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np

from neuronsim import ops, processor
from neuronsim.arrays.conversion import asarray
from neuronsim.arrays.evaluation import apply_elementwise
from neuronsim.bench.case import Case
from neuronsim.bench.kernels import CHAIN, COMPOSITES, PRODUCTS, make_case
from neuronsim.bench.onnx_convolution import convolution_in_onnxruntime
from neuronsim.bench.reading import reader
from neuronsim.bench.sgemm import sgemm_worker
from neuronsim.bench.sgemm_worker import blas
from neuronsim.errors import InvalidArgument, UnsupportedOperator

_SGEMM = {"sgemm": None, "sgemm_haswell": "Haswell"}
_OWN = ("op_by_op", "bfloat16", "one_thread")
PEERS = ("numpy", "ml_dtypes", "torch", "onnxruntime", *_SGEMM, *_OWN, "read")
Timer = Callable[[int], float]  # the seconds that so many runs take
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
_TORCH_OUT = ("convert", "add", "multiply", "maximum", "minimum", *ops.FUNCTIONS_OF_FLOATS)


def timer(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Timer:
    """The seconds of so many runs of a function.

    >>> timer(lambda: None)(3) > 0
    True
    """

    def seconds(runs: int) -> float:
        start = clock()
        for _ in range(runs):
            run()
        return clock() - start

    return seconds


@contextmanager
def open_peer(
    peer: str, case: Case, threads: int, touched: bool = False
) -> Iterator[tuple[Timer, str]]:
    """The case in a peer, with what it is told about threads in force, and a word on what computes it.

    Beside those of `peer_run` the peers are `sgemm`, NumPy's float32 product in a process of its own
    with the OpenBLAS kernels that fit the processor, and `sgemm_haswell`, the same with those of AVX2.
    """
    if peer in _SGEMM:
        if case.op != "matmul" or touched:
            raise _missing(peer, case)
        with sgemm_worker(case.shape, threads, _SGEMM[peer]) as found:
            yield found
        return
    run = peer_run(peer, case, threads, touched)
    if peer == "numpy" and case.op == "matmul":
        with _blas_limit(threads):
            yield timer(run), " ".join(blas().values())
    else:
        yield timer(run), ""


def peer_run(peer: str, case: Case, threads: int, touched: bool = False) -> Callable[[], Any]:
    """The case in a peer, as a function of no arguments; with `touched` its result goes to memory that
    was written before.

    `numpy` computes in NumPy's own types (float32 and float16), `ml_dtypes` in its narrow types,
    `onnxruntime` a convolution in float32. Neuronsim itself are `op_by_op`, without the fusion of a
    chain, `bfloat16`, the product of that type, and `one_thread`; `read` only reads as many bytes.
    Raises InvalidArgument if the peer is unknown or not installed, UnsupportedOperator if it does not
    have the kernel or the type.
    """
    if peer not in PEERS:
        raise InvalidArgument(f"the peer is one of {', '.join(PEERS)}, not {peer!r}")
    writes = case.op == "convert" or (case.op != "chain" and not case.is_predicate)
    if touched and not (writes and (peer != "torch" or case.op in _TORCH_OUT)):
        raise UnsupportedOperator(f"{peer} has no {case.op} into touched memory to compare with")
    if touched and peer not in ("numpy", "ml_dtypes", "torch"):
        raise UnsupportedOperator(f"{peer} writes no result into touched memory to compare with")
    if peer in _OWN:
        return _own_run(peer, case, threads)
    if peer == "read":
        return reader(case.bytes, threads)
    if peer == "onnxruntime" and case.op == "convolution" and case.dtype.name == "float32":
        return convolution_in_onnxruntime(case, threads)
    if peer == "torch":
        return _torch_run(case, threads, touched)
    if peer not in ("numpy", "ml_dtypes"):
        raise _missing(peer, case)
    return _numpy_run(peer, case, touched)


def _own_run(peer: str, case: Case, threads: int) -> Callable[[], Any]:
    if peer == "one_thread":

        def alone() -> Any:
            processor.set_num_threads(1)
            try:
                return case.run()
            finally:
                processor.set_num_threads(threads)

        return alone
    if peer == "bfloat16":
        if case.op not in PRODUCTS:
            raise UnsupportedOperator(f"{peer} is a peer of {' and '.join(PRODUCTS)}, not of {case.op}")
        return make_case(case.op, case.shape, "bfloat16", layer=case.layer).run
    if case.op != "chain":
        raise UnsupportedOperator(f"op_by_op is a peer of chain, not of {case.op}")
    x, y = (asarray(v, case.dtype) for v in case.operands)
    return lambda: reduce(lambda last, name: apply_elementwise(name, last, y), CHAIN, x)


@contextmanager
def _blas_limit(threads: int) -> Iterator[None]:
    """NumPy's BLAS takes every core unless it is told."""
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError as error:
        raise InvalidArgument(
            "timing NumPy's matmul at equal threads needs threadpoolctl: pip install threadpoolctl"
        ) from error
    with limits(threads, user_api="blas"):
        yield


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
    if case.op == "matmul":
        return lambda: operands[0] @ operands[1]
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
    places = (torch.nn.functional,) if case.op in COMPOSITES else (torch.Tensor, torch.nn.functional)
    found = (getattr(place, name) for place in places if hasattr(place, name))
    function: Callable[..., Any] = next(found, _no_function)
    if dtype is None or target is None or (function is _no_function and case.op != "chain"):
        raise _missing("torch", case)
    operands = [torch.from_numpy(v).to(dtype) for v in case.operands]
    if case.op in COMPOSITES:
        x, *terms = operands
        row = (case.shape[-1:],) if case.op == "layer_norm" else (-1,)
        return lambda: function(x, *row, *terms)
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
        into = getattr(torch.ops.aten, _TORCH_NAMES.get(case.op, case.op)).out
        result = torch.zeros(case.shape, dtype=dtype).fill_(0)
        return lambda: into(*operands, out=result)
    return lambda: function(*operands)
