"""Functions of JAX as modules, and what JAX lowered or exported of them.

JAX lowers a function for the platform "neuron", whose rules are those of every device that has none of
its own: factorizations that a host gives to LAPACK are spelled out, or refused by their names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.conversion import asarray, native
from neuronsim.dtypes import as_dtype
from neuronsim.errors import InvalidArgument, InvalidModel, warn
from neuronsim.frontends.calls import Argument, Calls, ReadModel, constant_positions
from neuronsim.frontends.functions import parameter_names
from neuronsim.frontends.jax.belonging import is_stage, packages
from neuronsim.frontends.jax.lowering import PLATFORM, as_module, lower, trace
from neuronsim.frontends.jax.pytrees import (
    Given,
    as_input,
    is_array,
    is_key,
    is_scalar,
    label_of_origin,
    take_apart,
)
from neuronsim.frontends.jax.stablehlo import require_jax
from neuronsim.frontends.parameters import parameter_numbers, set_parameters
from neuronsim.frontends.pytrees import of_labels
from neuronsim.hlo.module import Module


def to_model(
    model: Any,
    example_args: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    example_types: Mapping[str, ops.ArrayType] | None = None,
    input_values: Mapping[str, Any] | None = None,
    constants: Sequence[int | str] = (),
    batch: int = 1,
) -> ReadModel:
    """A function of JAX for example arguments (arrays, numbers, jax.ShapeDtypeStruct), by position or
    name, and for arrays of the types that its parameters have by name, or what JAX lowered. `constants`
    are the arguments, by position or name, whose arrays become constants; `input_values` are such by
    name.

    Raises InvalidArgument for arguments that do not fit, UnsupportedOperator for what JAX has no rule
    for, InvalidModel for a function whose steps depend on the values of its arrays.
    """
    jax = require_jax("a function of JAX")
    example_args = jax.tree_util.tree_map(native, tuple(example_args))
    examples = jax.tree_util.tree_map(native, dict(example_kwargs or {}))
    types = dict(example_types or {})
    values = jax.tree_util.tree_map(native, dict(input_values or {}))
    if is_stage(model) and type(model).__name__ != "Exported":
        named = (*examples, *types, *values)
        if named:
            raise InvalidArgument(
                f"{', '.join(named)}: what JAX lowered states its inputs, and takes none"
            )
        given = take_apart(jax, [f"argument_{n}" for n in range(len(example_args))], example_args, {})
        return _of_stage(jax, model, given if example_args else None, constants)
    if is_stage(model):
        return _of_export(jax, model, example_args, types, batch, constants)
    function, only_arrays = _unwrapped(model)
    shapes = {n: jax.ShapeDtypeStruct(t.dims, t.dtype.numpy) for n, t in types.items()}
    args, keywords, names = _by_position(function, example_args, examples | of_labels(shapes | values))
    given = take_apart(jax, names, args, keywords)
    known = {n: _leaves(jax, v) for n, v in values.items()}
    constants = (
        *constants,
        *(n for n, v in known.items() if any(is_array(x) or is_scalar(x) for x in v)),
    )
    if hasattr(function, "lower"):  # jitted already
        return _of_stage(jax, trace(jax, function, args, keywords), given, constants)
    owner = getattr(function, "__self__", function)
    if any(map(is_array, _leaves(jax, owner))):  # an object with its weights, or a method of one
        own = take_apart(jax, ["model"], [owner], {})
        wanted = ("model", *(c + 1 if isinstance(c, int) and c >= 0 else c for c in constants))
        return _of_function(jax, _taking_object(function, owner), given.after(own), wanted)
    return _of_function(jax, function, given, constants, only_arrays=only_arrays)


def _leaves(jax: Any, x: Any) -> list[Any]:
    leaves: list[Any] = jax.tree_util.tree_leaves(x)
    return leaves


def _unwrapped(model: Any) -> tuple[Any, bool]:
    """A function without the `jit` of Equinox or of Flax's NNX around it, and whether that traces
    arrays alone, and no numbers.
    """
    kinds = packages(model)
    wrapped = getattr(model, "__wrapped__", None)
    if wrapped is not None and hasattr(model, "lower") and kinds & {"equinox", "flax"}:
        return wrapped, "equinox" in kinds
    return model, False


def _by_position(
    function: Any, args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], list[str]]:
    """The arguments of a call, those that can be by position, and the names of these."""
    known = parameter_names(function, args, keywords, type(function).__name__)
    rest, placed = dict(keywords), list(args)
    for name in known[len(placed) :]:
        if name not in rest:
            break
        placed.append(rest.pop(name))
    names = known[: len(placed)]
    return placed, rest, [*names, *(f"argument_{n}" for n in range(len(names), len(placed)))]


def _taking_object(function: Any, owner: Any) -> Callable[..., Any]:
    """The function, or the method, with its object as the first argument."""
    name = None if function is owner else function.__name__

    def call(model: Any, *args: Any, **keywords: Any) -> Any:
        return (model if name is None else getattr(model, name))(*args, **keywords)

    call.__name__ = type(owner).__name__ if name is None else name
    return call


def _of_stage(jax: Any, stage: Any, given: Given | None, constants: Sequence[int | str]) -> ReadModel:
    """What JAX made of a function, whose arguments `given` are examples of, where there are any."""
    stage = lower(stage)
    module = as_module(stage)
    tree, count = stage.in_tree, stage.in_tree.num_leaves
    kept = _kept(stage, count, len(module.parameters))
    origins = {n: p.metadata.op_name for n, p in zip(kept, module.parameters, strict=True)}
    stated = _arguments_of(jax, tree, origins, given)
    numbers = iter(range(count))
    places = [[next(numbers) for _ in labels] for labels in stated.labels]
    infos = jax.tree_util.tree_leaves(stage.args_info) if len(kept) < count else ()
    absent = {n: _type_of(jax, infos[n]) for n in range(count) if n not in kept}
    return _joined(jax, module, kept, stated, places, constants, absent, stage.out_tree.unflatten)


def _kept(stage: Any, count: int, parameters: int) -> list[int]:
    """The leaves that are parameters of what JAX lowered: it leaves out those that nothing reads."""
    if count == parameters:
        return list(range(count))
    lowering = getattr(stage, "_lowering", None)  # JAX says it nowhere else
    compiled = getattr(getattr(stage, "_executable", None), "_kept_var_idx", ())
    kept: Any = getattr(lowering, "compile_args", {}).get("kept_var_idx", compiled)
    if len(kept) != parameters:
        raise InvalidModel(
            f"JAX kept {parameters} of {count} arguments, and does not say which: give the function "
            "and its example arguments"
        )
    return sorted(kept)


def _arguments_of(jax: Any, tree: Any, origins: Mapping[int, str], given: Given | None) -> Given:
    """The arguments of what JAX made, named as it says where each parameter comes from; their leaves
    are those of the examples, without the static ones.
    """
    args, keywords = tree.unflatten(range(tree.num_leaves))
    trees = [jax.tree_util.tree_structure(a) for a in (*args, *keywords.values())]
    names = []
    for n, a in enumerate(args):
        known = [origins[leaf] for leaf in _leaves(jax, a) if origins.get(leaf)]
        root = re.match(r"[A-Za-z_]\w*", label_of_origin(known[0])) if known else None
        name = root[0] if root else f"argument_{n}"
        names.append(name if name not in names else f"argument_{n}")
    stated = take_apart(jax, names, args, keywords)
    if given is None:
        return replace(stated, leaves=tuple(() for _ in trees))
    examples, leaves = zip(given.trees, given.leaves, strict=True), []
    for of in trees:
        own = next((leaves for t, leaves in examples if t == of), None)
        if own is None:
            raise InvalidArgument(
                "the example arguments are not those that JAX lowered the function for"
            )
        leaves.append(own)
    return replace(stated, leaves=tuple(leaves))


def _type_of(jax: Any, info: Any) -> ops.ArrayType:
    """The type of an argument that nothing reads."""
    if is_key(jax, info.dtype):
        info = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(info.shape, info.dtype))
    return ops.ArrayType(as_dtype(info.dtype), tuple(info.shape))


def _of_export(
    jax: Any,
    exported: Any,
    example_args: Sequence[Any],
    types: Mapping[str, ops.ArrayType],
    batch: int,
    constants: Sequence[int | str],
) -> ReadModel:
    """What `jax.export` made, for examples, or for the shapes that it states."""
    args, keywords = exported.in_tree.unflatten(range(len(exported.in_avals)))
    names = [f"argument_{n}" for n in range(len(args))]
    labels = [name for own in take_apart(jax, names, args, keywords).labels for name in own]
    if example_args:
        args, keywords = example_args, {}
    else:
        stated = [
            jax.ShapeDtypeStruct(_dims(aval.shape, types.get(name), batch, name), aval.dtype)
            for aval, name in zip(exported.in_avals, labels, strict=True)
        ]
        args, keywords = exported.in_tree.unflatten(stated)
    given = take_apart(jax, names, args, keywords)

    def call(*args: Any, **keywords: Any) -> Any:
        return exported.call(*args, **keywords)

    call.__name__ = exported.fun_name
    is_open = any(type(n) is not int for aval in exported.in_avals for n in aval.shape)
    platforms = exported.platforms[:1]
    return _of_function(jax, call, given, constants, platforms=platforms, refine=is_open)


def _dims(shape: Sequence[Any], stated: ops.ArrayType | None, batch: int, name: str) -> tuple[int, ...]:
    """The dimensions of an argument of which some may be open."""
    if stated is not None:
        return stated.dims
    dims = [batch if at == 0 and type(n) is not int else n for at, n in enumerate(shape)]
    for n in dims:
        if type(n) is not int:
            example = ",".join(str(d) if type(d) is int else "N" for d in dims)
            raise InvalidArgument(
                f"the dimension {n} of {name!r} is not known: give example arguments, or "
                f"input_shapes={{{name!r}: ({example})}}, on the command line --input-shape "
                f"{name}={example}"
            )
    return tuple(dims)


@dataclass
class _Results:
    """How a function's results lie, which is known once it is traced: the arrays go to the places that
    are None in `leaves`.
    """

    tree: Any = None
    leaves: Sequence[Any] = ()
    changed: Sequence[str] = ()  # the leaves of arguments that the function gave other values

    def rebuild(self, arrays: Sequence[Any]) -> Any:
        rest = iter(arrays)
        return self.tree.unflatten([next(rest) if x is _ARRAY else x for x in self.leaves])


_ARRAY = object()


def _of_function(
    jax: Any,
    function: Callable[..., Any],
    given: Given,
    constants: Sequence[int | str],
    *,
    only_arrays: bool = False,
    platforms: Sequence[str] = (PLATFORM,),
    refine: bool = False,
) -> ReadModel:
    """A function that is traced with the leaves of its arguments that are arrays."""
    traced_leaves = [
        _traced(leaves, only_arrays=only_arrays or _holds_equinox(jax, tree, leaves))
        for tree, leaves in zip(given.trees, given.leaves, strict=True)
    ]
    flat = [x for leaves in given.leaves for x in leaves]
    is_traced = [t for own in traced_leaves for t in own]
    results = _Results()

    def of_leaves(*arrays: Any) -> list[Any]:
        rest = iter(arrays)
        args, keywords = given.rebuild(
            [next(rest) if t else x for x, t in zip(flat, is_traced, strict=True)]
        )
        found, results.tree = jax.tree_util.tree_flatten(function(*args, **keywords))
        after = jax.tree_util.tree_leaves([*args, *keywords.values()])
        results.changed = _changed(given, is_traced, arrays, after, found)
        is_result = [is_array(x) or is_scalar(x) for x in found]
        results.leaves = [_ARRAY if r else x for x, r in zip(found, is_result, strict=True)]
        return [x for x, r in zip(found, is_result, strict=True) if r]

    of_leaves.__name__ = getattr(function, "__name__", type(function).__name__).strip("<>")
    arrays = [x for x, t in zip(flat, is_traced, strict=True) if t]
    jitted = jax.jit(of_leaves, keep_unused=True)
    module = as_module(lower(trace(jax, jitted, arrays, {}), platforms), refine=refine)
    if results.changed:
        warn(
            f"{of_leaves.__name__} changes {', '.join(results.changed)} in place: a compiled program "
            "gives its results alone; return the new values too, such as flax.nnx.state(model)",
            UserWarning,
        )
    numbers = itertools.count()
    places = [[next(numbers) if t else None for t in own] for own in traced_leaves]
    return _joined(jax, module, range(len(arrays)), given, places, constants, {}, results.rebuild)


def _changed(
    given: Given,
    is_traced: Sequence[bool],
    before: Sequence[Any],
    after: Sequence[Any],
    results: Sequence[Any],
) -> list[str]:
    """The leaves that a function changed in its arguments, as modules of Flax's NNX are, and whose new
    values are none of its results.
    """
    labels = [label for own in given.labels for label in own]
    if len(after) != len(labels):
        return ["the structure of its arguments"]
    rest = iter(before)
    pairs = [(n, x) for n, t, x in zip(labels, is_traced, after, strict=True) if t]
    returned = set(map(id, results))
    return [n for n, x in pairs if x is not next(rest) and id(x) not in returned]


def _holds_equinox(jax: Any, tree: Any, leaves: Sequence[Any]) -> bool:
    """Whether an argument has a module of Equinox in it, whose numbers are settings."""
    found: list[bool] = []

    def is_module(x: Any) -> bool:
        found.append("equinox" in packages(x))
        return found[-1]

    jax.tree_util.tree_leaves(tree.unflatten(leaves), is_leaf=is_module)
    return any(found)


def _traced(leaves: Sequence[Any], *, only_arrays: bool) -> list[bool]:
    """Which leaves of an argument are traced: those that are arrays, and numbers as `jax.jit` does, if
    there is nothing else in the argument.
    """
    alone = only_arrays or not all(is_array(x) or is_scalar(x) for x in leaves)
    return [is_array(x) or (is_scalar(x) and not alone) for x in leaves]


def _joined(
    jax: Any,
    module: Module,
    kept: Sequence[int],
    given: Given,
    places: Sequence[Sequence[int | None]],
    constants: Sequence[int | str],
    absent: Mapping[int, ops.ArrayType],
    rebuild: Callable[[Sequence[Any]], Any],
) -> ReadModel:
    """The module, whose parameters are the leaves `kept`, with constants in the place of arguments; and
    its calls. `places` are the numbers of the leaves of each argument.
    """
    inside = {name for own in given.labels for name in own} - set(given.names)
    fixed = constant_positions([c for c in constants if c not in inside], given.names)
    labels: dict[int, str] = {}
    values: dict[int, ops.Bits] = {}
    types = {n: p.array.type for n, p in zip(kept, module.parameters, strict=True)}
    for at, (own, names) in enumerate(zip(places, given.labels, strict=True)):
        for place, (number, label) in enumerate(zip(own, names, strict=True)):
            if number is not None:
                labels[number] = label
                if at in fixed or label in constants:
                    type_ = types.get(number, absent.get(number))
                    values[number] = _bits(jax, given.leaves[at][place], type_, label)
    listed = [labels[n] for n in range(len(labels))]
    module = set_parameters(module, list(kept), listed, values, absent)
    inputs = parameter_numbers(len(labels), values)
    arguments = tuple(
        Argument(
            name,
            tree,
            tuple(inputs.get(n) if n is not None else None for n in own),
            names,
            {
                p: given.leaves[at][p]
                for p, n in enumerate(own)
                if (n is None or n in values) and given.leaves[at]
            },
        )
        for at, (name, tree, own, names) in enumerate(
            zip(given.names, given.trees, places, given.labels, strict=True)
        )
        if at not in fixed
    )

    def flatten(x: Any) -> tuple[list[Any], Any]:
        leaves, tree = jax.tree_util.tree_flatten(x)
        return [as_input(jax, leaf) for leaf in leaves], tree

    constant = tuple(given.names[n] for n in sorted(fixed))
    return ReadModel(module, Calls(arguments, flatten, rebuild, _unflatten, constant))


def _unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    return tree.unflatten(leaves)


def _bits(jax: Any, leaf: Any, type_: ops.ArrayType | None, label: str) -> ops.Bits:
    """The value of a leaf that is a constant, in the type in which the function reads it."""
    if type(leaf).__name__ == "ShapeDtypeStruct" or leaf is None or type_ is None:
        raise InvalidArgument(f"constants: {label} is to be a constant: give its values as an example")
    array = asarray(np.asarray(as_input(jax, leaf)))
    if array.bits.type != type_:
        array = array.astype(type_.dtype)
    if array.shape != type_.dims:
        raise InvalidArgument(f"constants: {label} is {array.bits.type}, the function reads {type_}")
    return array.bits
