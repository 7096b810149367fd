"""TensorFlow: a `tf.function`, or what one calls, as the HLO that TensorFlow makes of it for XLA.

The package is not imported here: functions bring what is needed of it.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    NeuronSimError,
    UnsupportedOperator,
    nearest,
)
from neuronsim.frontends.calls import Argument, Calls, ReadModel, constant_positions
from neuronsim.frontends.functions import is_array, places
from neuronsim.frontends.parameters import parameter_numbers, set_parameters
from neuronsim.frontends.pytrees import Tree, flatten, unflatten
from neuronsim.hlo import proto

COMPILER_IR = "experimental_get_compiler_ir"


def is_tensorflow(model: Any) -> bool:
    """Whether a model is a `tf.function`, a signature of a saved model, or a layer of Keras that runs
    on TensorFlow: such a one is an object of TensorFlow's too, and none of JAX's, whose names Keras's
    code reads beside TensorFlow's.
    """
    if hasattr(model, COMPILER_IR):
        return True
    return callable(model) and any(c.__module__.startswith("tensorflow.") for c in type(model).__mro__)


def to_model(
    model: Any,
    example_args: Sequence[Any],
    example_kwargs: Mapping[str, Any],
    example_types: Mapping[str, ops.ArrayType],
    input_values: Mapping[str, Any],
    constants: Sequence[int | str] = (),
) -> ReadModel:
    """A function of TensorFlow for example arguments, by position or name, and for arrays of the types
    that its parameters have by name; `input_values` are arguments whose values are known. Its variables
    are constants, by their names.

    Raises InvalidArgument for arguments that do not fit and a function that changes variables,
    UnsupportedOperator for what TensorFlow cannot compile for XLA.
    """
    by_name = {**example_kwargs, **input_values}
    args = [
        _as_numpy(a) for a in (*example_args, *_others(model, example_args, example_types, by_name))
    ]
    function, names = _jitted(model, args)
    constants = (*constants, *(n for n in names if any(map(is_array, flatten(input_values.get(n))[0]))))
    try:
        data = getattr(function, COMPILER_IR)(*args)(stage="hlo_serialized")
        concrete = function.get_concrete_function(*args)
    except NeuronSimError:
        raise
    except Exception as error:  # of TensorFlow's own classes
        text = " ".join(str(error).split())[:500]
        raise UnsupportedOperator(f"TensorFlow makes no HLO of the function: {text}") from error
    module = proto.from_bytes(data)
    captured = _captured(concrete)
    number, arguments = itertools.count(), list[Argument]()
    values: dict[int, ops.Bits] = {}
    labels: list[str] = []
    fixed = constant_positions(constants, names)
    for at, (name, x) in enumerate(zip(names, args, strict=True)):
        leaves, tree = _flatten(x)
        own = [next(number) if is_array(leaf) else None for leaf in leaves]
        listed = tuple(places(name, _sorted(x)))
        labels += [label for label, n in zip(listed, own, strict=True) if n is not None]
        if at in fixed:
            values |= {n: asarray(v).bits for v, n in zip(leaves, own, strict=True) if n is not None}
            continue
        known = {p: leaves[p] for p, n in enumerate(own) if n is None}
        arguments.append(Argument(name, tree, tuple(own), listed, known))
    first = len(labels)
    if first + len(captured) != len(module.parameters):
        raise InvalidModel(
            f"TensorFlow made {len(module.parameters)} parameters of {first} arrays and "
            f"{len(captured)} variables: give a function whose tensors are all arguments or variables"
        )
    labels += _unique([name for name, _ in captured], labels)
    values |= {first + n: asarray(v).bits for n, (_, v) in enumerate(captured)}
    module = set_parameters(module, range(len(labels)), labels, values, {})
    results = _flatten(concrete.structured_outputs)
    if len(results[0]) != len(module.root.shape.arrays()):
        raise InvalidArgument(
            "the function changes variables, which are no results: return the new values instead"
        )
    inputs = parameter_numbers(len(labels), values)
    calls = Calls(
        tuple(_renumbered(a, inputs) for a in arguments),
        _flatten,
        lambda arrays: unflatten(results[1], arrays),
        unflatten,
        tuple(names[n] for n in sorted(fixed)),
    )
    return ReadModel(module, calls)


def _renumbered(a: Argument, inputs: Mapping[int, int]) -> Argument:
    own = tuple(n if n is None else inputs[n] for n in a.inputs)
    return Argument(a.name, a.tree, own, a.labels, a.known)


def _jitted(model: Any, args: Sequence[Any]) -> tuple[Any, list[str]]:
    """A function that TensorFlow compiles for XLA, and the names of its arguments."""
    names = _keywords(model)
    known = names or list(_parameters(model))
    listed = [known[n] if n < len(known) else f"argument_{n}" for n in range(len(args))]
    if "tensorflow" not in sys.modules:
        return model, listed

    def call(*given: Any) -> Any:
        return model(**dict(zip(names, given, strict=True))) if names else model(*given)

    call.__name__ = getattr(model, "__name__", type(model).__name__)
    return sys.modules["tensorflow"].function(call, jit_compile=True), listed


def _others(
    model: Any,
    example_args: Sequence[Any],
    example_types: Mapping[str, ops.ArrayType],
    by_name: Mapping[str, Any],
) -> list[Any]:
    """The arguments after those that are given, by what is said of their names: values, or zeros."""
    types = dict(example_types)
    needed = _parameters(model)
    left = list(needed)[len(example_args) :]
    required = [n for n in left if needed[n]]
    if len(required) == 1 and list(types) == ["x"]:
        types = {required[0]: types["x"]}
    said = {n: np.zeros(t.dims, t.dtype.numpy) for n, t in types.items()} | dict(by_name)
    for name in said:
        if name not in left:
            raise InvalidArgument(f"the function takes no {name!r}{nearest(name, left)}: {left}")
    found = list(itertools.takewhile(said.__contains__, left))
    missing = [n for n in left[len(found) :] if needed[n] or n in said]
    if missing:
        raise InvalidArgument(
            f"the function takes {', '.join(missing)}, of which, or of what stands before, nothing is "
            "said: give example arguments, neuronsim.compile(function, *example_inputs), the shapes of "
            f"arguments, input_shapes={{{missing[0]!r}: (...)}}, or data by these names"
        )
    return [said[n] for n in found]


def _keywords(model: Any) -> list[str]:
    """The arguments of a signature of a saved model, which has none by position."""
    positional, keywords = getattr(model, "structured_input_signature", ((), {}))
    return sorted(keywords) if keywords and not positional else []


def _parameters(model: Any) -> dict[str, bool]:
    """The names of a function's arguments, and whether each must be given."""
    if names := _keywords(model):
        return dict.fromkeys(names, True)
    called = getattr(model, "python_function", None) or getattr(model, "call", model)
    try:
        found = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p.default is p.empty for p in found if p.kind in kinds and p.name != "self"}


def _captured(concrete: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """The names and values of what a function reads beside its arguments: variables and constants."""
    handles = {id(v.handle): v for v in concrete.variables}
    found = []
    for n, tensor in enumerate(concrete.captured_inputs):
        source = handles.get(id(tensor), tensor)
        name = (
            getattr(source, "path", None) or getattr(source, "name", None)
            if id(tensor) in handles
            else ""
        )
        found.append(((name or f"captured_{n}").partition(":")[0], np.asarray(source.numpy())))
    return found


def _unique(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    seen, found = set(taken), []
    for name in names:
        own, n = name, itertools.count(1)
        while own in seen:
            own = f"{name}_{next(n)}"
        seen.add(own)
        found.append(own)
    return found


def _as_numpy(x: Any) -> Any:
    leaves, tree = flatten(x)
    return unflatten(tree, [np.asarray(v) if isinstance(v, Array) else v for v in leaves])


def _sorted(x: Any) -> Any:
    """A tree whose dicts are in the order of their keys, in which TensorFlow takes them apart."""
    if type(x) in (dict, OrderedDict):
        return {k: _sorted(x[k]) for k in sorted(x)}
    if isinstance(x, list | tuple):
        parts = [_sorted(v) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x


def _flatten(x: Any) -> tuple[list[Any], Tree]:
    return flatten(_sorted(x))
