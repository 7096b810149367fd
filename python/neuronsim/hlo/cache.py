"""AWS's compile caches, and the folders in which its tools leave a model's HLO.

torch-neuronx and JAX on Neuron (libneuronxla) keep each graph in a folder of its own,
`neuronxcc-<compiler>/MODULE_<hash of the graph>+<hash of the flags>`: `model.hlo_module.pb`,
`compile_flags.json` (a list), and what became of it: `model.neff` and `model.done`, or `model.log`
where neuronx-cc failed; a `.lock` while it works. Caches of 2023 have `model.hlo.pb` and
`compile_flags.txt`. `torch_neuronx.trace(compiler_workdir=...)` leaves a `graph.hlo`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from neuronsim import json_documents, ops
from neuronsim.errors import (
    InaccessibleFile,
    InvalidArgument,
    InvalidFlag,
    InvalidModel,
    MissingFile,
    NeuronSimError,
    counted,
    first_few,
)
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module
from neuronsim.hlo.other_formats import name_folder
from neuronsim.whole_files import read_bytes

MODULE_FILE = "model.hlo_module.pb"
MODULE_FILES = (MODULE_FILE, "model.hlo.pb", "graph.hlo")
FLAGS_FILE = "compile_flags.json"
OLD_FLAGS_FILE = "compile_flags.txt"
DEEPEST = 4  # folders below the one that is given
_ENTRY = re.compile(r"MODULE_\w+(\+\w+)?")
_COMPILER = re.compile(r"neuronxcc-(\d+(?:\.\d+)+)(\+\w+)?")

State = Literal["compiled", "failed", "locked", "not compiled"]


@dataclass(frozen=True)
class CacheEntry:
    """One graph of a compile cache: its folder, what neuronx-cc made of it, with which flags and in
    which version ("" where the path does not say); its name, its instructions in all computations, the
    types of its inputs and results. `problem` says why neuronsim cannot use it.
    """

    folder: Path
    state: State
    compiler: str = ""
    flags: tuple[str, ...] = ()
    graph: str = ""
    instructions: int = 0
    inputs: tuple[ops.ArrayType, ...] = ()
    outputs: tuple[ops.ArrayType, ...] = ()
    problem: str = ""


def read(path: str | Path) -> Module:
    """The module of a file (`proto.read`), or the only usable one in a folder (`find_entry`)."""
    return proto.read(module_file(find_entry(path)) if os.path.isdir(path) else path)


def module_file(folder: str | Path) -> Path:
    """The file with an entry's module; the newest name where there is none."""
    files = [Path(folder) / name for name in MODULE_FILES]
    return next((f for f in files if f.exists()), files[0])


def find_entry(folder: str | Path) -> Path:
    """The folder itself if it holds a module, else the only one below it that holds one that can be
    read. Raises InvalidModel that lists those that it holds, with what is wrong with each.

    Of one folder nothing is read.
    """
    found = list(_folders(Path(folder)))
    if len(found) == 1 and module_file(found[0]).exists():
        return found[0]
    entries = [_entry(f) for f in found]
    usable = [e for e in entries if not e.problem]
    if len(usable) == 1:
        return usable[0].folder
    broken = "".join(f"\n  {e.folder}: {e.problem}" for e in entries if e.problem)
    if not usable:
        if not entries and (kind := name_folder(str(folder))):
            raise InvalidModel(f"the folder {str(folder)!r} is {kind}")
        also = f"; what there is cannot be used:{broken}" if broken else ""
        raise InvalidModel(
            f"the folder {str(folder)!r} holds no {MODULE_FILE}: give a model's file, or a folder of "
            f"AWS's compile cache{also}"
        )
    listed = "".join(f"\n  {e.folder}: {described(e)}" for e in usable)
    also = f"\nThese cannot be used:{broken}" if broken else ""
    raise InvalidModel(
        f"the folder {str(folder)!r} holds {len(usable)} graphs: give the folder of one "
        f"(`neuronsim list-graphs` has more of them){listed}{also}"
    )


def described(entry: CacheEntry) -> str:
    """What an entry is, in words."""
    inputs = first_few(entry.inputs, 4) or "none"
    count = counted(entry.instructions, "instruction")
    return f"{entry.graph} of {count}, {entry.state}, inputs {inputs}"


def list_cache(root: str | Path) -> tuple[CacheEntry, ...]:
    """All graphs of a compile cache, or of any folder up to four levels above them, by their paths; one
    that is damaged has a `problem`. Raises InvalidModel for what is no folder.
    """
    if not isinstance(root, str | os.PathLike) or not os.path.isdir(root):
        raise InvalidModel(f"{str(root)!r} is no folder: give a compile cache, or a folder of one")
    return tuple(_entry(f) for f in _folders(Path(root)))


def _folders(root: Path) -> Iterator[Path]:
    """The folders at and below `root` that are entries, in order."""
    for path, folders, files in os.walk(root):
        folders.sort()
        below = len(Path(path).relative_to(root).parts)
        held = {*MODULE_FILES, FLAGS_FILE, OLD_FLAGS_FILE} & set(files)
        if held or (below and _ENTRY.fullmatch(Path(path).name)):
            folders.clear()
            yield Path(path)
        elif below >= DEEPEST:
            folders.clear()


def _entry(folder: Path) -> CacheEntry:
    own = CacheEntry(folder, _state(folder), compiler_of(folder))
    file = module_file(folder)
    if not file.exists():
        return replace(own, problem=f"it holds no {MODULE_FILE}")
    try:
        flags = tuple(cached_flags(folder))
        module = proto.read(file)
    except NeuronSimError as error:
        return replace(own, problem=str(error))
    parameters, result = module.program_shape
    return replace(
        own,
        flags=flags,
        graph=module.name,
        instructions=sum(len(c.instructions) for c in module.computations),
        inputs=tuple(a.type for p in parameters for a in p.arrays()),
        outputs=tuple(a.type for a in result.arrays()),
    )


def compiler_of(folder: Path) -> str:
    """The version of neuronx-cc whose cache a folder lies in, or ""."""
    parents = (_COMPILER.fullmatch(p.name) for p in folder.absolute().parents)
    return next((m[1] for m in parents if m), "")


def _state(folder: Path) -> State:
    names = set(os.listdir(folder))
    if "model.done" in names:
        return "compiled"
    if any(n.endswith(".lock") for n in names):
        return "locked"
    if "model.log" in names:
        return "failed"
    return "compiled" if "model.neff" in names else "not compiled"


def cached_flags(folder: str | Path) -> list[str]:
    """The compiler flags that an entry of the compile cache holds; none where it has no list of them.

    Raises InvalidFlag if the file is not a JSON list of strings.
    """
    path = Path(folder) / FLAGS_FILE
    try:
        flags = json_documents.parse(read_bytes(path).decode())
    except MissingFile:
        return _old_flags(Path(folder) / OLD_FLAGS_FILE)
    except InaccessibleFile as error:
        raise InvalidFlag(str(error)) from error
    except (InvalidArgument, UnicodeDecodeError) as error:
        raise InvalidFlag(f"{path} is not JSON: {error}") from error
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise InvalidFlag(f'{path} is not a JSON list of flags, such as ["--auto-cast=all"]')
    return flags


def _old_flags(path: Path) -> list[str]:
    """One line, as on a command line."""
    try:
        return shlex.split(read_bytes(path).decode())
    except MissingFile:
        return []
    except InaccessibleFile as error:
        raise InvalidFlag(str(error)) from error
    except ValueError as error:  # of UTF-8, or of quotes
        raise InvalidFlag(f"{path} is no line of flags: {error}") from error
