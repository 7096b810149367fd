"""PyTorch's pytrees: arguments as their leaves, and results as the structures that a model returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuronsim.errors import InvalidModel
from neuronsim.frontends.torch.tensors import part_of_torch


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of arguments, in PyTorch's order."""
    return list(part_of_torch("utils._pytree").tree_leaves(tree))


@dataclass(frozen=True)
class Layout:
    """Where tensors stand in what a model returns: its structure, and of each leaf whether it is a
    tensor, or else what it is. `unread` are the names of its state that no result depends on.
    """

    spec: Any
    others: tuple[Any, ...]
    are_tensors: tuple[bool, ...]
    unread: tuple[str, ...] = ()

    def rebuilt(self, tensors: Sequence[Any]) -> Any:
        """What the model returns, with these tensors in it."""
        given = iter(tensors)
        pairs = zip(self.others, self.are_tensors, strict=True)
        leaves = [next(given) if is_tensor else x for x, is_tensor in pairs]
        return part_of_torch("utils._pytree").tree_unflatten(leaves, self.spec)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "structure": part_of_torch("utils._pytree").treespec_dumps(self.spec),
            "others": list(self.others),
            "are_tensors": list(self.are_tensors),
            "unread": list(self.unread),
        }

    @classmethod
    def from_dict(cls, header: Mapping[str, Any]) -> Layout:
        """What `to_dict` wrote. Raises InvalidModel for anything else."""
        try:
            spec = part_of_torch("utils._pytree").treespec_loads(header["structure"])
        except Exception as error:  # PyTorch's own, of several kinds
            way = "; import what defines it before" if "not registered" in str(error) else ""
            raise InvalidModel(f"its structure of results: {error}{way}") from error
        others, are_tensors = tuple(header["others"]), tuple(map(bool, header["are_tensors"]))
        if len(others) != len(are_tensors) or spec.num_leaves != len(others):
            raise InvalidModel("its structure of results has another number of leaves")
        return cls(spec, others, are_tensors, tuple(map(str, header["unread"])))
