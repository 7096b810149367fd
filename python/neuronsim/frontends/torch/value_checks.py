"""What PyTorch's own functions ask of the values of tensors before they compute, which export does not
know: left out where it is only a check, and spelled out without it where it is more.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from neuronsim.frontends.torch.tensors import part_of_torch, require_torch


@contextlib.contextmanager
def without_value_checks() -> Iterator[None]:
    """While PyTorch traces: distributions take their arguments as they are, and some functions of
    tensors are ours.
    """
    with _trusted_distributions(), _spelled():
        yield


@contextlib.contextmanager
def _trusted_distributions() -> Iterator[None]:
    """Without the checks of arguments that `torch.distributions` makes unless it is told not to."""
    kind = part_of_torch("distributions").Distribution
    before = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(before)


def _spelled() -> Any:
    """The mode in which calls of PyTorch's functions are those of ours."""
    torch = require_torch()
    ours: dict[Any, Callable[..., Any]] = {
        **dict.fromkeys((torch.cov, torch.Tensor.cov), _cov),
        **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), _corrcoef),
        torch.combinations: _combinations,
        torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    }

    class Spelled(part_of_torch("overrides").TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return ours.get(function, function)(*args, **(kwargs or {}))

    return Spelled()


# Their arguments have PyTorch's names.


def _cov(
    input: Any,  # noqa: A002
    *,
    correction: int = 1,
    fweights: Any = None,
    aweights: Any = None,
) -> Any:
    torch = require_torch()
    x = input.reshape(1, -1) if input.ndim < 2 else input
    weights = [w for w in (fweights, aweights) if w is not None]
    w = math.prod(weights[1:], start=weights[0]) if weights else None
    if w is None:
        degrees = max(x.shape[1] - correction, 0)
        x = weighted = x - x.mean(1, keepdim=True)
    else:
        total = w.sum()
        mean = (x * w).sum(1, keepdim=True) / total
        off = (w * aweights).sum() / total if aweights is not None else 1
        degrees = (total - correction * off).clamp(min=0)
        x = x - mean
        weighted = x * w
    return torch.div(x @ weighted.mH, degrees).squeeze()


def _corrcoef(input: Any) -> Any:  # noqa: A002
    torch = require_torch()
    found = _cov(input)
    if not found.ndim:
        return found / found
    deviations = found.diagonal().real.sqrt() if found.is_complex() else found.diagonal().sqrt()
    found = found / deviations[:, None] / deviations
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)


def _combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:  # noqa: A002
    torch = require_torch()
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(chosen(range(int(input.shape[0])), r))
    return input[torch.tensor(places, dtype=torch.int64).reshape(len(places), r)]


def _gaussian_nll_loss(
    input: Any,  # noqa: A002
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """PyTorch's, where a variance below `eps` counts as `eps`, a negative one too."""
    torch = require_torch()
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    elif var.shape != input.shape:
        differing = [m for n, m in zip(input.shape, var.shape, strict=False) if n != m]
        if input.ndim != var.ndim or differing != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    found = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        found = found + 0.5 * math.log(2 * math.pi)
    return found if reduction == "none" else getattr(found, reduction)()
