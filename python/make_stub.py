"""Writes `python/neuronsim/__init__.pyi`, what type checkers and editors know of the package, from the
package itself: `python python/make_stub.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import neuronsim
from neuronsim import arrays
from neuronsim.arrays.ufuncs import Ufunc

PACKAGE = Path(__file__).parent / "neuronsim"
# What a call takes beside its operands, which inspect shows of every Ufunc too.
MORE = """
class _More(TypedDict, total=False):
    where: Any
    dtype: DTypeLike | None
    casting: Casting
    order: str
    subok: builtins.bool
"""
CALL = """
class _{kind}(Ufunc):
    def __call__({ignored}
        self, {operands}, /, out: Any = None, **more: Unpack[_More]
    ) -> {result}: ...
"""
KINDS = {
    (1, 1): ("Unary", "x: Any", "Array"),
    (2, 1): ("Binary", "x1: Any, x2: Any", "Array"),
    (3, 1): ("Ternary", "x1: Any, x2: Any, x3: Any", "Array"),
    (1, 2): ("UnaryOfTwo", "x: Any", "tuple[Array, Array]"),
    (2, 2): ("BinaryOfTwo", "x1: Any, x2: Any", "tuple[Array, Array]"),
}
HEAD = '"""What type checkers know of {what}; written by `python python/make_stub.py`."""\n\n'


@cache
def names_defined(module: str) -> frozenset[str]:
    """The names that a module's source binds at its top, which a type checker sees too."""
    found: set[str] = set()
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                bound = target.elts if isinstance(target, ast.Tuple) else [target]
                found.update(n.id for n in bound if isinstance(n, ast.Name))
    return frozenset(found)


def home(name: str, value: object) -> tuple[str, str] | None:
    """The module that defines a public name, and its name there."""
    own = getattr(value, "__module__", None)
    plain = getattr(value, "__wrapped__", value)  # as it is before the package pins its doors (D1)
    candidates = [neuronsim._LAZY.get(name), own, *(chapter.__name__ for chapter in arrays.CHAPTERS)]
    candidates += [f"neuronsim.arrays.{last}" for last in ("constants", "types", "ufuncs")]
    candidates.append("neuronsim.dtypes")
    for module in candidates:
        if module is None or not module.startswith("neuronsim."):
            continue
        for spelling in (name, getattr(value, "__name__", name), getattr(value, "name", name)):
            there = getattr(importlib.import_module(module), spelling, None)
            if (there is value or there is plain) and spelling in names_defined(module):
                return module, spelling
    return None


def stub_of(module: ModuleType, names: Sequence[str], own: str) -> str:
    """The text of the stub of a module: its `own` lines and what comes from each module, then the
    Ufuncs by the form of their call, other names of the same object, and numbers and strings.
    """
    imports = {"neuronsim.arrays.ufuncs": ["Ufunc"]}
    aliases: list[str] = []
    values: dict[str, list[str]] = {}
    for name in sorted(names):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            package, _, last = value.__name__.rpartition(".")
            imports.setdefault(package, []).append(f"{last} as {name}")
        elif isinstance(value, Ufunc):
            values.setdefault(f"_{KINDS[value.nin, value.nout][0]}", []).append(name)
        elif (found := home(name, value)) is None:
            values.setdefault(type(value).__name__, []).append(name)
        elif found[1] == name:
            imports.setdefault(found[0], []).append(f"{name} as {name}")
        elif found[1] in (*names, "Ufunc"):
            aliases.append(f"{name} = {found[1]}\n")
        else:
            values.setdefault(type(value).__name__, []).append(name)
    lines = [*_import_lines(imports), "\n", *aliases, *_value_lines(values)]
    return "".join([HEAD.format(what=module.__name__), own, *lines])


def package_stub() -> str:
    """The text of the stub of the package."""
    own = "from neuronsim.arrays import *\n"
    names = [n for n in (*neuronsim.__all__, "bench", "__version__") if n not in _starred()]
    return stub_of(neuronsim, names, own)


def _starred() -> set[str]:
    """The names of `neuronsim.arrays` that the package has by a star, which none with `_` before is."""
    return {"Array", *(n for n in arrays.__all__ if not n.startswith("_"))}


def arrays_stub() -> str:
    """The text of the stub of `neuronsim.arrays`, whose functions are its chapters'."""
    own = "import builtins\nfrom typing import Any, TypedDict, Unpack\n\n"
    own += "from neuronsim.dtypes import Casting, DTypeLike\n"
    own += "from neuronsim.arrays import methods\n"
    own += "from neuronsim.arrays.array_object import Array as Array\n"
    return stub_of(arrays, arrays.__all__, own)


def nn_stub() -> str:
    """The text of the stub of `neuronsim.nn`, which re-exports its chapters."""
    imports: dict[str, list[str]] = {}
    for name in sorted(neuronsim.nn.__all__):
        found = home(name, getattr(neuronsim.nn, name))
        imports.setdefault(found[0] if found else "neuronsim", []).append(f"{name} as {name}")
    return "".join([HEAD.format(what="neuronsim.nn"), *_import_lines(imports)])


STUBS = {
    PACKAGE / "__init__.pyi": package_stub,
    PACKAGE / "arrays" / "__init__.pyi": arrays_stub,
    PACKAGE / "arrays" / "nn.pyi": nn_stub,
}


def _import_lines(imports: dict[str, list[str]]) -> Iterator[str]:
    for module, names in sorted(imports.items()):
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= 104:
            yield line + "\n"
        else:
            unbroken = (name.replace(" ", "\0") for name in names)  # no line ends within "x as x"
            wrapped = textwrap.fill(", ".join(unbroken) + ",", 100).replace("\0", " ")
            yield f"from {module} import (\n{textwrap.indent(wrapped, '    ')}\n)\n"


def _value_lines(values: dict[str, list[str]]) -> Iterator[str]:
    kinds = {f"_{kind[0]}": kind for kind in KINDS.values()}
    yield MORE if kinds.keys() & values.keys() else ""
    for type_name, names in sorted(values.items()):
        if type_name in kinds:
            kind, operands, result = kinds[type_name]
            # Ufunc's own call says that there is one result.
            ignored = "" if result == "Array" else "  # type: ignore[override]"
            yield CALL.format(kind=kind, operands=operands, result=result, ignored=ignored)
        yield "\n"
        yield from (f"{name}: {type_name}\n" for name in names)


if __name__ == "__main__":
    for path, text in STUBS.items():
        path.write_text(text(), encoding="utf-8")
