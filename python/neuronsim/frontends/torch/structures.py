"""PyTorch's pytrees: arguments as their leaves, and results as the structures that a model returns."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuronsim.errors import InvalidModel, UnsupportedType
from neuronsim.frontends.calls import Argument, Calls
from neuronsim.frontends.pytrees import Tree, flatten, flatten_by_names, named_tuple, unflatten
from neuronsim.frontends.torch.tensors import part_of_torch


def _taken_apart(x: Any) -> tuple[list[Any], Tree]:
    """The leaves of an argument and how they lie in a `plain` structure."""
    leaves, spec = part_of_torch("utils._pytree").tree_flatten(x)
    return flatten_by_names(plain(spec, leaves))


def structure_of(tree: Any) -> Any:
    """How PyTorch takes it apart."""
    return part_of_torch("utils._pytree").tree_structure(tree)


def calls_of(
    program: Any, inputs: Sequence[int | None], known: Mapping[int, Any], results: Layout
) -> Calls:
    """How an exported program is called as the model is: `inputs` are the numbers of the inputs that
    its leaves are, and `known` the values of those that are none; others have a value that it keeps.
    """
    positional, named = _parts(program.call_spec.in_spec)
    trees = [*_parts(positional), *_parts(named)]
    signature = program.module_call_graph[0].signature
    names = signature.forward_arg_names if signature is not None else None
    names = names or [*(f"argument_{n}" for n in range(len(_parts(positional)))), *named.context]
    labels = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    arguments, constants, at = [], [], 0
    for name, spec in zip(names, trees, strict=True):
        own = range(at, at + spec.num_leaves)
        at = own.stop
        # None is no leaf of the trees that calls have.
        marks = [None if known.get(n, n) is None else n for n in own]
        leaves, tree = flatten_by_names(plain(spec, marks))
        given = {place: known[n] for place, n in enumerate(leaves) if n in known}
        if leaves and not given and all(inputs[n] is None for n in leaves):
            constants.append(name)
            continue
        numbers, listed = [inputs[n] for n in leaves], [labels[n] for n in leaves]
        arguments.append(Argument(name, tree, tuple(numbers), tuple(listed), given))
    return Calls(tuple(arguments), _taken_apart, results.of_arrays, unflatten, tuple(constants))


def with_defaults(calls: Calls, parameters: Sequence[inspect.Parameter]) -> Calls:
    """With those parameters too that the examples left out, whose defaults the program has."""
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return calls
    own = {a.name: a for a in calls.arguments}
    arguments = []
    for p in parameters:
        if p.name in own:
            arguments.append(own.pop(p.name))
        elif p.name not in calls.constants and type(p.default) in (type(None), bool, int, float, str):
            leaves, tree = flatten(p.default)
            known = dict(enumerate(leaves))
            arguments.append(
                Argument(p.name, tree, (None,) * len(known), (p.name,) * len(known), known)
            )
    return replace(calls, arguments=(*arguments, *own.values()))


def _parts(spec: Any) -> Sequence[Any]:
    """The structures inside one; an older PyTorch has an attribute."""
    return list(spec.children() if hasattr(spec, "children") else spec.children_specs)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of arguments, in PyTorch's order."""
    return list(part_of_torch("utils._pytree").tree_leaves(tree))


def plain(spec: Any, leaves: Iterable[Any]) -> Any:
    """Leaves in tuples, lists and dicts, as a structure has them. Of another class it is a named tuple
    where its parts have names, as Hugging Face's results do, else a tuple.
    """
    rest = iter(leaves)

    def build(s: Any) -> Any:
        if s.is_leaf():
            return next(rest)
        parts = [build(c) for c in _parts(s)]
        kind, context = s.type, s.context
        if kind in (tuple, list):
            return kind(parts)
        if kind is collections.namedtuple:  # `context` is its class
            return context(*parts)
        if kind in (dict, collections.OrderedDict, collections.defaultdict):
            keys = context[1] if kind is collections.defaultdict else context
            return dict(zip(keys, parts, strict=True))
        names = context if isinstance(context, list) else []
        if kind.__module__ == "torch.return_types":
            names = list(kind.__match_args__)
        if names and isinstance(names[0], list):  # of a dataclass, before its fields that are None
            names = names[0]
        try:
            return named_tuple(kind.__name__, tuple(names))(*parts)
        except (TypeError, ValueError):  # of parts that have no names
            return tuple(parts)

    return build(spec)


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
        return part_of_torch("utils._pytree").tree_unflatten(self._leaves(tensors), self.spec)

    def of_arrays(self, arrays: Sequence[Any]) -> Any:
        """The same of arrays, in a `plain` structure."""
        return plain(self.spec, self._leaves(arrays))

    def _leaves(self, given: Sequence[Any]) -> list[Any]:
        rest = iter(given)
        pairs = zip(self.others, self.are_tensors, strict=True)
        return [next(rest) if is_tensor else x for x, is_tensor in pairs]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it. Raises UnsupportedType for a class that PyTorch does not write."""
        try:
            structure = part_of_torch("utils._pytree").treespec_dumps(self.spec)
        except Exception as error:  # PyTorch's own, of several kinds
            raise UnsupportedType(f"the structure of its results cannot be saved: {error}") from error
        return {
            "structure": structure,
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
