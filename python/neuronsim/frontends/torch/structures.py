"""PyTorch's pytrees: arguments as their leaves, and results as the structures that a model returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuronsim.frontends.torch.tensors import require_torch


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of arguments, in PyTorch's order."""
    require_torch()
    from torch.utils import _pytree

    return list(_pytree.tree_leaves(tree))


def rebuilt(layout: Any, tensors: Sequence[Any]) -> Any:
    """What a model returns, with these tensors in it: `layout` is `Recorded.results`."""
    require_torch()
    from torch.utils import _pytree

    spec, others, are_tensors = layout
    given = iter(tensors)
    leaves = [next(given) if t else x for x, t in zip(others, are_tensors, strict=True)]
    if spec is None:
        return leaves[0] if len(leaves) == 1 else tuple(leaves)
    return _pytree.tree_unflatten(leaves, spec)
