"""How a program is called: its arguments as the model's own function takes them, and its results as
that gives them.

>>> from neuronsim.frontends.pytrees import LEAF, Tree, flatten, unflatten
>>> pair = Tree(tuple, (), (LEAF, LEAF))
>>> argument = Argument("p", pair, (0, 1), ("p.0", "p.1"))
>>> calls = Calls((argument,), flatten, lambda results: results[0], unflatten)
>>> calls.bind(((3.0, 4.0),), {})
({0: 3.0, 1: 4.0}, {})
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from neuronsim.casting.flags import Message
from neuronsim.errors import InvalidArgument, InvalidData, nearest
from neuronsim.hlo.module import Instruction, Module


@dataclass(frozen=True)
class Argument:
    """An argument of a function. For each leaf of its tree `inputs` holds the number of the input that
    it is, or None where the program knows its value, which is in `known`; `labels` are their names.
    """

    name: str
    tree: Any
    inputs: tuple[int | None, ...]
    labels: tuple[str, ...]
    known: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """The arguments that a call gives, a function that takes one apart into its leaves and their tree,
    one that puts a program's results together, and the first one's inverse, of a tree and leaves.
    `constants` are the arguments that no call gives.
    """

    arguments: tuple[Argument, ...]
    flatten: Callable[[Any], tuple[list[Any], Any]]
    rebuild: Callable[[Sequence[Any]], Any]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    constants: tuple[str, ...] = ()

    @cached_property
    def is_plain(self) -> bool:
        """Whether each argument is an array, and the input of its own number, up to those that are no
        inputs.
        """
        leaf = self.flatten(0.0)[1]
        count = sum(n is not None for a in self.arguments for n in a.inputs)
        first = enumerate(self.arguments[:count])
        return all(a.inputs == (n,) and a.tree == leaf for n, a in first)

    def bind(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[int, Any], dict[str, Any]]:
        """The inputs of a call by their numbers, and what it names that is no argument: the inputs
        themselves may be named too, and given one by one in the order of their numbers.

        Raises InvalidData for arguments of another tree or other known values.
        """
        while len(args) > len(self.arguments) and args[-1] is None:  # optional, and not given
            args = args[:-1]
        expected = [*self.arguments, *[None] * len(args)]
        flat = [self._flat(x, a) for x, a in zip(args, expected, strict=False)]
        if self._is_by_inputs(flat) and not any(a.name in named for a in self.arguments):
            return dict(enumerate(args)), dict(named)
        if len(args) > len(self.arguments):
            listed = ", ".join(a.name for a in self.arguments) or "none"
            constant = f"; {', '.join(self.constants)}: constants of it" if self.constants else ""
            raise InvalidData(f"{len(args)} arguments were given, the program takes {listed}{constant}")
        found: dict[int, Any] = {}
        for argument, (leaves, tree) in zip(self.arguments, flat, strict=False):
            found |= self._inputs_of(argument, leaves, tree)
        positional = {a.name for a in self.arguments[: len(args)]}
        by_name = {a.name: a for a in self.arguments}
        rest: dict[str, Any] = {}
        for name, value in named.items():
            if name in positional:
                raise InvalidData(f"argument {name!r} is given twice")
            if name in self.constants:
                raise InvalidData(f"argument {name!r} is a constant of the program, and no input")
            if name in by_name:
                found |= self._inputs_of(by_name[name], *self._flat(value, by_name[name]))
            elif value is not None:
                rest[name] = value
        return found, rest

    def without(self, before: Sequence[Instruction], after: Sequence[Instruction]) -> Calls:
        """The calls of a module some of whose parameters became constants."""
        numbers = {p.name: n for n, p in enumerate(after)}
        renumbered = {n: numbers.get(p.name) for n, p in enumerate(before)}
        arguments, constants = [], list(self.constants)
        for a in self.arguments:
            own = tuple(None if n is None else renumbered[n] for n in a.inputs)
            if any(n is not None for n in own) or own == a.inputs:
                arguments.append(replace(a, inputs=own))
            else:
                constants.append(a.name)
        return replace(self, arguments=tuple(arguments), constants=tuple(constants))

    def _flat(self, value: Any, argument: Argument | None) -> tuple[list[Any], Any]:
        """The leaves of a value and their tree. A list of numbers is an array where one belongs."""
        leaves, tree = self.flatten(value)
        leaf = self.flatten(0.0)[1]
        is_list = isinstance(value, list | tuple) and all(type(v) in (bool, int, float) for v in leaves)
        if is_list and leaves and (argument is None or argument.tree == leaf):
            return [value], leaf
        return leaves, tree

    def _is_by_inputs(self, flat: Sequence[tuple[list[Any], Any]]) -> bool:
        """Whether a call gives the inputs themselves rather than the arguments that they lie in."""
        count = sum(n is not None for a in self.arguments for n in a.inputs)
        trees = [a.tree for a in self.arguments]
        is_alike = len(flat) <= len(trees) and [t for _, t in flat] == trees[: len(flat)]
        # An array in the place of a number that the program knows is no argument.
        is_alike = is_alike and not any(
            getattr(leaves[place], "ndim", 0)
            for a, (leaves, _) in zip(self.arguments, flat, strict=False)
            for place in a.known
        )
        leaf = self.flatten(0.0)[1]
        return not is_alike and len(flat) == count and all(t == leaf for _, t in flat)

    def _inputs_of(self, argument: Argument, leaves: Sequence[Any], tree: Any) -> dict[int, Any]:
        if tree != argument.tree:
            raise InvalidData(
                f"argument {argument.name!r} is {_shown(tree)}: the program was made for "
                f"{_shown(argument.tree)}"
            )
        found: dict[int, Any] = {}
        for place, (number, leaf) in enumerate(zip(argument.inputs, leaves, strict=True)):
            if number is not None:
                found[number] = leaf
            elif place in argument.known and not _is_same(leaf, argument.known[place]):
                raise InvalidData(
                    f"{argument.labels[place]} is {reprlib.repr(leaf)}: the program was made for "
                    f"{reprlib.repr(argument.known[place])}, which is no array and a part of it"
                )
        return found


@dataclass(frozen=True)
class ReadModel:
    """A model as a module, how its function is called, if it is one, and what there is to say of it."""

    module: Module
    calls: Calls | None = None
    messages: tuple[Message, ...] = ()


def constant_positions(constants: Sequence[int | str], names: Sequence[str]) -> set[int]:
    """The positions of the arguments that are constants. Raises InvalidArgument for another."""
    found = set()
    for c in constants:
        if isinstance(c, str) and c in names:
            found.add(list(names).index(c))
        elif isinstance(c, int) and -len(names) <= c < len(names):
            found.add(c % len(names))
        else:
            near = nearest(c, names) if isinstance(c, str) else ""
            raise InvalidArgument(
                f"constants: there is no argument {c!r}{near} among the example arguments "
                f"({', '.join(names) or 'none'})"
            )
    return found


def _is_same(a: Any, b: Any) -> bool:
    try:
        if isinstance(a, float | np.floating) and isinstance(b, float | np.floating):
            return bool(a == b) or bool(a != a and b != b)
        if isinstance(a, int | np.integer) and isinstance(b, int | np.integer):
            return a == b and isinstance(a, bool) is isinstance(b, bool)
        return a is b or (type(a) is type(b) and bool(a == b))
    except (TypeError, ValueError):  # of what has no truth, as an array
        return False


def _shown(tree: Any) -> str:
    text = (
        str(tree).removeprefix("PyTreeDef(").removesuffix(")")
        if "PyTreeDef" in str(tree)
        else str(tree)
    )
    return text if len(text) <= 200 else f"{text[:200]}..."
