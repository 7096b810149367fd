"""Where the nodes of a graph come from: the module, and the line of the user's source."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuronsim.frontends.torch.tensors import require_torch
from neuronsim.hlo.module import Metadata

_FRAME = re.compile(r'File "([^"]*)", line (\d+), in ')
_GENERATED = re.compile(r'File "<eval_with_key>[^"]*", line \d+, in .*\n\s*(\w+) *[:=]')


@dataclass(frozen=True)
class Place:
    """A node's module by its path in the model, and a file and line of the user's (0 if not known)."""

    module: str = ""
    file: str = ""
    line: int = 0
    name: str = ""
    origin: str = ""  # the node's name before it was decomposed

    @property
    def text(self) -> str:
        """For messages: `model.py:12 (encoder.layer)`, or the node's name."""
        where = f"{os.path.basename(self.file)}:{self.line}" if self.line else self.name
        return f"{where} ({self.module})" if self.module else where

    def scope(self, name: str) -> str:
        """What instructions of a node of this name are called."""
        return f"{self.module}.{name}" if self.module else name

    def metadata(self, target: str) -> Metadata:
        """The metadata of instructions: op_name is the module's path and the name of the node in the
        exported program, which other tools show.
        """
        path = "/".join(filter(None, [self.module.replace(".", "/"), self.origin or self.name]))
        return Metadata(op_type=target, op_name=path, source_file=self.file, source_line=self.line)


@dataclass(frozen=True)
class Places:
    """Those of the nodes of a program before it was decomposed: of the graphs inside, by their names,
    what its decomposed nodes do not say themselves.
    """

    inner: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of_program(cls, graph_module: Any) -> Places:
        """Those of a program's inner graphs: of each node's name its module and its lines."""
        inner: dict[str, tuple[str, str]] = {}
        for m in list(graph_module.modules())[1:]:
            for n in getattr(getattr(m, "graph", None), "nodes", ()):
                if n.op == "call_function":
                    inner.setdefault(n.name, (_module_of(n), n.meta.get("stack_trace") or ""))
        return cls(inner)

    def of(self, n: Any) -> Place:
        """That of a node."""
        lines, module = n.meta.get("stack_trace") or "", _module_of(n)
        generated = _GENERATED.search(lines)
        if generated:
            module, lines = self.inner.get(generated[1], (module, ""))
        file, line = users_line_of(lines)
        return Place(module, file, line, n.name, _origin_of(n))


def _origin_of(n: Any) -> str:
    """The name of the node of the exported program that a decomposed node was made of."""
    return next((x.name for x in n.meta.get("from_node") or () if hasattr(x, "name")), "")


def _module_of(n: Any) -> str:
    """The path of the innermost module that a node is of."""
    stack = n.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if isinstance(entry, tuple)]
    last = str(paths[-1]) if paths else ""
    # As strict export and dynamo have them: L['self'].layer
    return (
        re.sub(r"\['?(\w+)'?\]", r".\1", last.removeprefix("L['self']")).lstrip(".").partition("@")[0]
    )


def users_line_of(lines: str) -> tuple[str, int]:
    """The innermost file and line of a stack's text that is the user's."""
    package = __file__.rpartition("frontends")[0]
    theirs = os.path.dirname(require_torch().__file__) + os.sep
    library = os.path.dirname(os.__file__) + os.sep
    found = ("", 0)
    for file, line in _FRAME.findall(lines):
        in_library = file.startswith(library) and "site-packages" not in file
        if not (in_library or file.startswith((package, theirs, "<", "torch/"))):
            found = (file, int(line))
    return found
