"""Functions of arrays as modules: their arguments are traced.

>>> from neuronsim.arrays.conversion import asarray
>>> traced = trace(lambda x, k: {"scaled": x * k}, (asarray([1.0, 2.0]), 3.0))
>>> traced.module.root.opcode, traced.rebuild(["result"])
('multiply', {'scaled': 'result'})
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import os
import re
import sys
import sysconfig
import traceback
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray, is_weak
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedType, nearest
from neuronsim.frontends.calls import Argument, Calls, ReadModel, constant_positions
from neuronsim.frontends.pytrees import LEAF, Tree, flatten, of_labels, unflatten
from neuronsim.frontends.recorder import (
    Recorder,
    Value,
    current_recorder,
    recording,
    restore_adopted,
)
from neuronsim.frontends.tracer import traced_bits, value_of
from neuronsim.hlo.module import Module
from neuronsim.ops import ArrayType


@dataclass(frozen=True)
class Traced:
    """A function as a module: one parameter for each leaf of its arguments that is an array, `names`
    after the arguments; `rebuild` puts the module's results where the function returned them.
    """

    module: Module
    names: tuple[str, ...]
    results: Tree

    def rebuild(self, results: Sequence[Any]) -> Any:
        return unflatten(self.results, results)


def is_array(x: Any) -> bool:
    """Whether an argument is traced: an array; Python's numbers and all else are what they are."""
    return isinstance(x, Array | np.ndarray | np.generic) or (
        not is_weak(x) and hasattr(x, "__array__") and not callable(x)
    )


def trace(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    keeps_composites: bool = False,
    known: Container[str] = (),
) -> Traced:
    """The module of a function for arguments like these, whose arrays are traced, but for those with
    labels in `known`.

    Raises UnknownValue at the line that needs the values of an array, InvalidArgument for a result that
    is no array, and for a write of traced values into an array that the function did not make.
    """
    keywords = keywords or {}
    leaves, tree = flatten((tuple(args), dict(keywords)))
    labels = _labels(function, args, keywords)
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    outer = current_recorder()
    if outer is not None:
        raise InvalidArgument(f"{name} is traced inside another trace: call it there without jit")
    recorder = Recorder(name)
    recorder.shared.keeps_composites = keeps_composites
    with recording(recorder):
        given: list[Any] = []
        for label, leaf in zip(labels, leaves, strict=True):
            if label in known:
                given.append(_as_arrays(leaf))
            elif is_array(leaf):
                of = leaf.bits.type if isinstance(leaf, Array) else asarray(leaf).bits.type
                given.append(Array(traced_bits(recorder.parameter(label, of))))
            else:
                given.append(leaf)
        positional, named = unflatten(tree, given)
        found: list[Any] = []
        try:
            found, results = flatten(function(*positional, **named))
            values = [_result(name, x) for x in found]
            module = recorder.finish(values, as_tuple=results is not LEAF and len(values) != 1)
        except BaseException:
            with contextlib.suppress(InvalidArgument):
                restore_adopted(recorder, found)
            raise
        del positional, named, given
        restore_adopted(recorder, found)
    return Traced(module, tuple(p.name for p in recorder.parameters), results)


def _result(name: str, x: Any) -> Value:
    try:
        array = asarray(x)
    except NeuronSimError as error:
        raise UnsupportedType(f"{name} returns {type(x).__name__}: it returns arrays") from error
    return value_of(array.bits)


def _labels(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> list[str]:
    """A name for each leaf: the parameter's, with its place inside it."""
    parameters = parameter_names(function, args, keywords, "the function")
    names = [parameters[n] if n < len(parameters) else f"argument_{n}" for n in range(len(args))]
    found: list[str] = []
    for label, x in (*zip(names, args, strict=True), *keywords.items()):
        found += places(label, x)
    return found


def parameter_names(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], unnamed: str
) -> list[str]:
    """The names of a function's parameters that can be given by position, where it says them. Raises
    InvalidArgument for arguments that it does not take; `unnamed` is what that calls a function without
    a name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of what is not written in Python
        return []
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        name = getattr(function, "__name__", unnamed)
        raise InvalidArgument(
            f"{name}{signature}: {error}. Its arguments are example arguments, input_shapes "
            "(--input-shape), data, or input_values (--input-value); of dicts and lists by the names "
            "of their arrays, as in params.w or layers.0"
        ) from error
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [n for n, p in signature.parameters.items() if p.kind in kinds]


def places(label: str, x: Any) -> list[str]:
    """The names of the leaves of an argument that `flatten` gives: its own, with their places in it."""
    if type(x) in (dict, OrderedDict):
        return [p for k, v in x.items() for p in places(f"{label}.{k}", v)]
    if isinstance(x, list | tuple):
        return [p for n, v in enumerate(x) for p in places(f"{label}.{n}", v)]
    return [] if x is None else [label]


def is_function(x: Any) -> bool:
    """Whether a model is a Python function of arrays."""
    return callable(x) and not hasattr(x, "lower") and not isinstance(x, type)


_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")


def find_function(name: str) -> Callable[..., Any] | None:
    """The function that `module:function` names; None of what is no such name. The module is found as
    Python finds it, from the current folder too.

    Raises InvalidArgument if there is no such module, or nothing of that name in it, InvalidModel for
    what the module itself raises.
    """
    match = _NAME.fullmatch(name)
    if match is None or os.path.exists(name):
        return None
    module_name, path = match.groups()
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidArgument(f"{name!r}: {error}") from error
    except Exception as error:  # the module's own, of any kind
        raise _raised_by(name, error) from error
    finally:
        sys.path.remove(os.getcwd())
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{name!r}: {part!r} is no name of it{nearest(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidArgument(f"{name!r} is no function: it is of the type {type(found).__name__}")
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def users_errors(name: str) -> Iterator[None]:
    """What a function that was given by its name raises is InvalidModel, at the line that raised it."""
    try:
        yield
    except NeuronSimError:
        raise
    except Exception as error:  # the function's own, of any kind
        raise _raised_by(name, error) from error


def _raised_by(name: str, error: Exception) -> InvalidModel:
    frames = traceback.extract_tb(error.__traceback__)
    stdlib = (sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib", "platlib"))
    libraries = (os.path.dirname(os.path.dirname(__file__)), *stdlib, "<frozen")
    users = [f for f in frames if not f.filename.startswith(libraries)]
    where = "".join(f"{os.path.basename(f.filename)}:{f.lineno}: " for f in users[-1:])
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{os.path.basename(error.filename)}:{error.lineno}: "
    said = str(error).strip().partition("\n")[0]
    kind = type(error).__name__
    return InvalidModel(f"{where}{name!r} raises {kind}{': ' if said else ''}{said}")


def to_model(
    function: Callable[..., Any],
    example_args: Sequence[Any],
    example_kwargs: Mapping[str, Any],
    types: Mapping[str, ArrayType],
    input_values: Mapping[str, Any],
    constants: Sequence[int | str] = (),
    *,
    keeps_composites: bool = False,
) -> ReadModel:
    """A function for example arguments, by position or name, or for arrays of the types that its
    parameters have by name; `input_values` are arguments whose values are known, and so are the
    examples of `constants`, by position or name.
    """
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the function does not tell its parameters ({error}): wrap it in one"
        ) from error
    for name in (*example_kwargs, *types, *input_values):
        if name.partition(".")[0] not in names:
            raise InvalidArgument(f"the function has no parameter {name!r}{nearest(name, names)}")
    keywords: dict[str, Any] = {
        n: asarray(np.broadcast_to(np.zeros((), t.dtype.storage).view(t.dtype.numpy), t.dims))
        for n, t in types.items()
    }
    # A known leaf of an argument that has others stands among these.
    traced_roots = {n.partition(".")[0] for n in keywords}
    inside = {n: x for n, x in input_values.items() if n.partition(".")[0] in traced_roots}
    keywords = of_labels(keywords | inside)
    known = of_labels({n: x for n, x in input_values.items() if n not in inside})
    args, keywords = list(example_args), {**example_kwargs, **keywords}
    given = [names[n] if n < len(names) else f"argument_{n}" for n in range(len(args))]
    for name in example_kwargs:
        if name in given:
            raise InvalidArgument(f"{name!r} is an example argument by position and in example_kwargs")
    examples = {**dict(zip(given, args, strict=True)), **example_kwargs}
    listed = list(examples)
    fixed = {listed[n]: examples[listed[n]] for n in sorted(constant_positions(constants, listed))}
    if fixed:  # what follows them can be given by name alone
        keywords = {n: x for n, x in (examples | keywords).items() if n not in fixed}
        args, known = [], known | {n: _as_arrays(x) for n, x in fixed.items()}
    partial = functools.partial(function, **known)
    partial.__name__ = getattr(function, "__name__", "function")  # type: ignore[attr-defined]
    traced = trace(partial, args, keywords, keeps_composites=keeps_composites, known=inside)
    names = given[: len(args)]
    return ReadModel(traced.module, calls_of(traced, names, args, keywords, (*known,), inside))


def _as_arrays(x: Any) -> Any:
    leaves, tree = flatten(x)
    return unflatten(tree, [asarray(leaf) if is_array(leaf) else leaf for leaf in leaves])


def calls_of(
    traced: Traced,
    names: Sequence[str],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    constants: tuple[str, ...] = (),
    known: Container[str] = (),
) -> Calls:
    """How a program of what was traced is called: with arguments like those that it was traced for,
    whose arrays with labels in `known` are no inputs.
    """
    number, arguments = itertools.count(), []
    for name, x in (*zip(names, args, strict=True), *keywords.items()):
        leaves, tree = flatten(x)
        labels = tuple(places(name, x))
        inputs = tuple(
            next(number) if is_array(leaf) and label not in known else None
            for leaf, label in zip(leaves, labels, strict=True)
        )
        others = {at: leaf for at, leaf in enumerate(leaves) if not is_array(leaf)}
        arguments.append(Argument(name, tree, inputs, labels, others))
    return Calls(tuple(arguments), flatten, traced.rebuild, unflatten, constants)
