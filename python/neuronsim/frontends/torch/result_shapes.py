"""Shapes of results that torch.export does not know, since PyTorch's hang on data: of operators whose
values do not, so that they have rows all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from neuronsim.frontends.torch.tensors import part_of_torch, require_torch


@contextlib.contextmanager
def knowing_shapes() -> Iterator[None]:
    """With functions that say them in the place of PyTorch's refusals."""
    known = getattr(part_of_torch("_subclasses.fake_impls"), "op_implementations_dict", None)
    if known is None:  # a PyTorch that keeps them elsewhere
        yield
        return
    ours = {op: f for op, f in _functions().items() if op not in known}
    known.update(ours)
    try:
        yield
    finally:
        for op in ours:
            known.pop(op, None)


def _functions() -> dict[Any, Callable[..., Any]]:
    aten = require_torch().ops.aten
    return {
        aten._ctc_loss.default: _ctc_loss,
        aten._ctc_loss.Tensor: _ctc_loss,
        aten._ctc_loss_backward.default: _ctc_loss_backward,
        aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
        aten.linalg_lstsq.default: _lstsq,
    }


def _ctc_loss(mode: Any, op: Any, log_probs: Any, targets: Any, *lengths: Any, **settings: Any) -> Any:
    """The losses, and sums for as many labels as there may be."""
    steps, samples, _ = log_probs.shape
    with mode:
        sums = log_probs.new_empty((samples, steps, 2 * targets.shape[-1] + 1))
        return log_probs.new_empty((samples,)), sums


def _ctc_loss_backward(mode: Any, op: Any, gradient: Any, log_probs: Any, *rest: Any) -> Any:
    with mode:
        return log_probs.new_empty(log_probs.shape)


def _lstsq(mode: Any, op: Any, a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """Those of matrices of full rank."""
    torch = require_torch()
    rows, columns = a.shape[-2:]
    is_vector = b.ndim == 1 or b.ndim == a.ndim - 1
    right = (*b.shape, 1) if is_vector else b.shape
    batch = tuple(torch.broadcast_shapes(a.shape[:-2], right[:-2]))
    real = torch.empty((), dtype=a.dtype, device="cpu").real.dtype
    has_residuals = rows > columns and driver not in (None, "gelsy")
    has_values = driver in ("gelsd", "gelss")
    with mode:
        return (
            a.new_empty((*batch, columns) if is_vector else (*batch, columns, right[-1])),
            a.new_empty((*batch, right[-1]) if has_residuals else (0,), dtype=real),
            a.new_empty((0,) if driver == "gels" else batch, dtype=torch.int64),
            a.new_empty((*batch, min(rows, columns)) if has_values else (0,), dtype=real),
        )
