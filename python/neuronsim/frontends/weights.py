"""Weights of a module whose weights are parameters, as PyTorch/XLA, JAX and AWS's compile cache have
them: arrays by the parameters' names or numbers become constants, and the other parameters stay inputs.

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Computation, Shape
>>> shape = Shape(dtypes.float32, (2,))
>>> x, w = (Instruction(n, "parameter", shape, (), {"number": k}) for k, n in enumerate("xw"))
>>> y = Instruction("y", "add", shape, ("x", "w"))
>>> module = Module("m", "main", (Computation("main", (x, w, y), "y"),))
>>> bound = with_weights(module, {"w": np.ones(2, np.float32)})
>>> bound.input_names(), bound.entry_computation.by_name["w"].opcode
(('x',), 'constant')
"""

from __future__ import annotations

import os
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from neuronsim import json_documents
from neuronsim.arrays import files
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType
from neuronsim.errors import (
    InaccessibleFile,
    InvalidArgument,
    InvalidData,
    NeuronSimError,
    UnsupportedType,
    nearest,
)
from neuronsim.frontends import safetensors
from neuronsim.hlo.module import Alias, Instruction, Module, Shape
from neuronsim.ops import Bits
from neuronsim.profiles import default_profile, in_force
from neuronsim.whole_files import open_regular, read_bytes

Weights: TypeAlias = "str | os.PathLike[str] | Mapping[Any, Any]"

_INDEX = ".safetensors.index.json"
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_ROOT = re.compile(r"[^\[]*(\[[0-9]+\])?")
_LISTED = 20


def with_weights(module: Module, weights: Weights) -> Module:
    """The module with constants in the place of the parameters that have weights.

    `weights` are the name of an `.npz` or `.safetensors` file, of the `.safetensors.index.json` of
    several, or a mapping of arrays (or of such mappings, a pytree). A key is a parameter's name (the
    instruction's with or without its number, the one that the module's program shape has, or the
    framework's in the metadata, such as `params['dense']['kernel']`, whose parts a key may spell with
    dots or slashes, and without the first ones), or its number: 3, "3", or "arr_3", as numpy.savez
    calls arrays without names. Floats take the parameter's float type, to nearest (C2).

    Raises InvalidData that lists all keys that no parameter has, all whose arrays have another shape or
    type, and all parameters that belong to those that have weights and have none.
    """
    source = "weights" if isinstance(weights, Mapping) else str(weights)
    arrays = _read(weights)
    matches = _match(module, arrays)
    _complain(module, source, arrays, matches)
    values = {p: matches.values[key].bits for key, p in matches.parameters.items()}
    return _with_constants(module, values)


def _read(weights: Any) -> dict[str, Bits | Array]:
    """The arrays by their keys; raises InvalidData, or InvalidArgument for what holds none."""
    if isinstance(weights, Mapping):
        return {key: _array_of(key, value) for key, value in _leaves(weights)}
    if not isinstance(weights, str | os.PathLike):
        raise InvalidArgument(
            "weights are a file (.npz, .safetensors) or a mapping of arrays by the parameters' names "
            f"or numbers, not {reprlib.repr(weights)}"
        )
    path = Path(weights)
    if path.suffix in _PICKLES:
        raise InvalidArgument(
            f"{path} is a pickle, which may run code as it is read: write the weights once by "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )
    try:
        if path.name.endswith(_INDEX):
            return _read_shards(path)
        with open_regular(path) as file:
            is_zip = file.read(2) == b"PK"
        return _read_npz(path) if is_zip else dict(safetensors.read(path))
    except InaccessibleFile as error:
        raise InvalidData(f"cannot read the weights {str(path)!r}: {error.reason}") from error


def _leaves(tree: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """What a mapping holds, or mappings inside it, by keys with dots between."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _array_of(key: Any, value: Any) -> Array:
    if isinstance(value, Array):
        return value
    try:
        detached = value.detach() if hasattr(value, "detach") else value  # a parameter of torch
        return asarray(detached)
    except NeuronSimError as error:
        raise InvalidData(f"the weight {key!r} is no array: {error}") from error


def _read_npz(path: Path) -> dict[str, Bits | Array]:
    try:
        archive = files.load(path)
    except UnsupportedType as error:
        raise InvalidData(f"{path}: {error}") from error
    assert isinstance(archive, files.NpzFile)
    with archive:
        return {name: archive[name] for name in archive.files}


def _read_shards(path: Path) -> dict[str, Bits | Array]:
    """The tensors of the files that an index names, which lie beside it."""
    try:
        index = json_documents.parse(read_bytes(path).decode())
        places = index["weight_map"]
        shards = sorted({os.path.basename(shard) for shard in places.values()})
    except (InvalidArgument, UnicodeDecodeError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, InaccessibleFile):
            raise
        raise InvalidData(f"{path} is no index of safetensors, which has a weight_map") from error
    found: dict[str, Bits | Array] = {}
    for shard in shards:
        tensors = safetensors.read(path.parent / shard)
        found |= {n: x for n, x in tensors.items() if os.path.basename(places.get(n, "")) == shard}
    if lacking := sorted(set(places) - set(found)):
        raise InvalidData(f"the files of {path} lack {_listed(lacking)}")
    return found


# ---- which parameter a key is ------------------------------------------------------------------------


@dataclass
class _Matches:
    """The parameter's name of each key that has one, its array as the parameter takes it, and what is
    to say of the others.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    left_over: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a name: of `params['dense']['kernel']` those of `params.dense.kernel`."""
    return tuple(re.findall(r"[\w-]+", name))


def _match(module: Module, arrays: Mapping[str, Bits | Array]) -> _Matches:
    parameters = module.parameters
    by_name = _unique_names(module)
    by_end = _ends(parameters)
    found = _Matches()
    owners: dict[str, str] = {}
    for key, array in arrays.items():
        number = re.fullmatch(r"(?:arr_)?([0-9]{1,6})", key)
        p = by_name.get(key)
        if p is None and number is not None and int(number[1]) < len(parameters):
            p = parameters[int(number[1])]
        p = p or _by_parts(by_end, key)
        if p is None:
            found.left_over.append(key)
        elif p.name in owners:
            found.twice.append(f"{p.name} by {owners[p.name]!r} and {key!r}")
        else:
            owners[p.name] = key
            problem, value = _fitted(p, array)
            if problem:
                found.misfits.append(f"{key!r} is {_typed(array)}, {p.name} {problem}")
            found.parameters[key] = p.name
            found.values[key] = value
    return found


def _unique_names(module: Module) -> dict[str, Instruction]:
    """Every name that is one parameter's only."""
    rows = [
        {p.name, short, p.metadata.op_name, *module.parameter_names[n : n + 1]} - {""}
        for n, (p, short) in enumerate(zip(module.parameters, module.input_names(), strict=True))
    ]
    counts = Counter(name for names in rows for name in names)
    pairs = zip(module.parameters, rows, strict=True)
    own = {p.name: p for p in module.parameters}
    return {name: p for p, names in pairs for name in names if counts[name] == 1} | own


def _ends(parameters: Sequence[Instruction]) -> dict[tuple[str, ...], list[Instruction]]:
    """The parameters by all ends of their framework's names in parts."""
    found: dict[tuple[str, ...], list[Instruction]] = {}
    for p in parameters:
        parts = _parts(p.metadata.op_name or p.name)
        for n in range(len(parts)):
            found.setdefault(parts[n:], []).append(p)
    return found


def _by_parts(ends: Mapping[tuple[str, ...], list[Instruction]], key: str) -> Instruction | None:
    """The one parameter whose name has the key's parts, or ends in them."""
    candidates = ends.get(_parts(key), [])
    whole = [p for p in candidates if _parts(p.metadata.op_name or p.name) == _parts(key)]
    chosen = whole or candidates
    return chosen[0] if len(chosen) == 1 else None


def _fitted(p: Instruction, array: Bits | Array) -> tuple[str, Array]:
    """The array as a parameter takes it, or what is wrong with it."""
    given = array if isinstance(array, Array) else Array(array)
    if not isinstance(p.shape, Shape):
        return "is a tuple, which takes no weights", given
    if given.shape != p.shape.dims:
        return f"takes {p.shape.type}", given
    if given.dtype is p.shape.dtype:
        return "", given
    if given.dtype.kind != "float" or p.shape.dtype.kind != "float":
        return f"takes {p.shape.type}", given
    with in_force(default_profile().replace(rounding="nearest_even")):
        return "", given.astype(p.shape.dtype)


# ---- what is wrong -----------------------------------------------------------------------------------


def _complain(
    module: Module, source: str, arrays: Mapping[str, Bits | Array], matches: _Matches
) -> None:
    if not arrays:
        raise InvalidData(f"{source} holds no weights")
    missing = _missing(module, set(matches.parameters.values()))
    if not (matches.left_over or matches.misfits or matches.twice or missing):
        return
    known = [n for n in _unique_names(module) if n]
    left = [f"{k!r} {_typed(arrays[k])}{nearest(k, known)}" for k in matches.left_over]
    lines = [
        ("no parameter of the model is", left),
        ("of another shape or type:", matches.misfits),
        ("given twice:", matches.twice),
        ("missing beside those that are given:", missing),
    ]
    listed = "".join(f"\n  {what} {_listed(found, '; ')}" for what, found in lines if found)
    free = [
        f"{n} {_described(p)}"
        for n, p in enumerate(module.parameters)
        if p.name not in matches.parameters.values()
    ]
    others = f"\n  parameters without weights: {_listed(free, '; ')}" if matches.left_over else ""
    raise InvalidData(f"{source} does not fit {module.name!r}:{listed}{others}")


def _missing(module: Module, given: set[str]) -> list[str]:
    """The parameters that belong to the same tree of the framework's as those that have weights: of
    `state.params['dense']['bias']` to `state.params`, of `args[0]['bias']` to `args[0]`.
    """
    names = {p.name: p.metadata.op_name for p in module.parameters}
    roots = {name: _ROOT.match(full)[0] for name, full in names.items()}  # type: ignore[index]
    inside = {name for name, root in roots.items() if root != names[name]}
    trees = {roots[name] for name in given & inside}
    return [
        _described(p)
        for p in module.parameters
        if p.name in inside and p.name not in given and roots[p.name] in trees
    ]


def _described(p: Instruction) -> str:
    named = f" ({p.metadata.op_name})" if p.metadata.op_name else ""
    return f"{p.name}{named} {p.result if isinstance(p.shape, Shape) else 'of a tuple'}"


def _typed(array: Bits | Array) -> str:
    bits = array.bits if isinstance(array, Array) else array
    dtype: DType = bits.dtype
    return f"{dtype.name}{list(np.shape(bits.data))}"


def _listed(found: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return separator.join(found[:_LISTED]) + more


def weights_hint(module: Module, missing: Sequence[str]) -> str:
    """A clause that names those of the inputs that are missing that look like weights: floats without
    the leading axis of the inputs that are there.
    """
    inputs = dict(zip(module.input_names(), module.parameters, strict=True))
    types = {n: p.shape.type for n, p in inputs.items() if isinstance(p.shape, Shape)}
    samples = {t.dims[:1] for n, t in types.items() if n not in missing}
    samples |= {t.dims[:1] for t in types.values() if t.dtype.kind in ("signed", "unsigned")}
    found = [
        f"{n} {types[n]}"
        for n in missing
        if n in types and types[n].dtype.kind == "float" and types[n].dims[:1] not in samples
    ]
    if not found or not samples:
        return ""
    verb = "looks like a weight" if len(found) == 1 else "look like weights"
    return (
        f". {_listed(found)} {verb}: give weights=, or --weights FILE (.npz or .safetensors), which "
        "makes constants of them (docs/neuron_artefacts.md)"
    )


# ---- constants in the place of parameters ------------------------------------------------------------


def _with_constants(module: Module, values: Mapping[str, Bits]) -> Module:
    """The module with these constants; the other parameters are numbered anew. What lay in the memory
    of a parameter that is none any more has memory of its own.
    """
    kept = [n for n, p in enumerate(module.parameters) if p.name not in values]
    numbers = {old: new for new, old in enumerate(kept)}
    entry = module.entry_computation
    body = tuple(
        _constant(i, values[i.name])
        if i.name in values
        else i.replace(attributes={**i.attributes, "number": numbers[i.attributes["number"]]})
        if i.opcode == "parameter"
        else i
        for i in entry.instructions
    )
    aliases: list[Alias] = [
        (output, numbers[number], inside, kind)
        for output, number, inside, kind in module.input_output_alias
        if number in numbers
    ]
    layout = module.entry_layout
    if layout is not None:
        layout = tuple(layout[0][n] for n in kept), layout[1]
    names = module.parameter_names
    return replace(
        module.replace_entry(replace(entry, instructions=body)),
        parameter_names=tuple(names[n] for n in kept if n < len(names)),
        input_output_alias=tuple(aliases),
        entry_layout=layout,
    )


def _constant(p: Instruction, value: Bits) -> Instruction:
    data = np.ascontiguousarray(value.data).reshape(value.data.shape)
    attributes = {k: v for k, v in p.attributes.items() if k != "number"}
    attributes["literal"] = Bits(data, value.dtype)
    return p.replace(opcode="constant", attributes=attributes, unread=b"")
