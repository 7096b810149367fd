"""neuron-cc's `--io-config`: the inputs and outputs that a user states, compared with a module's.

Its form is `{"inputs": {"x": [[1, 100], "float16"]}, "outputs": ["y"]}` (`reference/neuron.md` 2.1 in
the project's research notes): in the command line itself, in a file, or at a file:// address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from neuronsim import json_documents
from neuronsim.errors import InaccessibleFile, InvalidArgument, InvalidFlag, nearest
from neuronsim.hlo.module import Module
from neuronsim.whole_files import read_bytes


def check_io_config(text: str, module: Module) -> None:
    """Compare an `--io-config` with a module: the inputs' names, shapes and types, and the outputs'
    names, which are those of the instructions that give them. Names may end in ":0", as TensorFlow's
    do.

    Raises InvalidFlag with all problems.
    """
    problems = list(_problems(_read(text), module))
    if problems:
        raise InvalidFlag(f"--io-config does not fit {module.name!r}: {'; '.join(problems)}")


def _read(text: str) -> Any:
    source, body = "the text", text
    if not text.lstrip().startswith("{"):
        source = repr(text)
        parts = urlsplit(text)
        if parts.scheme and parts.scheme != "file":
            raise InvalidFlag(
                f"--io-config cannot be read from {source}: it accepts JSON, a file, a file:// address"
            )
        try:
            body = read_bytes(unquote(parts.path) if parts.scheme else text).decode()
        except (InaccessibleFile, UnicodeDecodeError) as error:
            raise InvalidFlag(f"--io-config cannot be read from {source}: {error.reason}") from error
    try:
        return json_documents.parse(body)
    except InvalidArgument as error:
        raise InvalidFlag(f"--io-config: {source} is not JSON: {error}") from error


def _problems(config: Any, module: Module) -> Iterator[str]:
    if not isinstance(config, dict):
        yield "it is no object with inputs and outputs"
        return
    for key in config:
        if key not in ("inputs", "outputs"):
            yield f"it has {key!r}{nearest(key, ('inputs', 'outputs'))}, not only inputs and outputs"
    inputs, outputs = config.get("inputs"), config.get("outputs")
    if isinstance(inputs, dict):
        yield from _input_problems(inputs, module)
    else:
        yield "its inputs are no object of names"
    if isinstance(outputs, list) and all(isinstance(name, str) for name in outputs):
        yield from _name_problems("output", outputs, _output_names(module))
    else:
        yield "its outputs are no list of names"


def _input_problems(inputs: dict[str, Any], module: Module) -> Iterator[str]:
    names = module.input_names()
    yield from _name_problems("input", list(inputs), names)
    for name, parameter in zip(names, module.parameters, strict=True):
        if name not in inputs and f"{name}:0" not in inputs:
            continue
        stated = inputs.get(name, inputs.get(f"{name}:0"))
        own = [list(parameter.array.dims), parameter.array.dtype.name]
        if not isinstance(stated, list) or len(stated) != 2:
            yield f"input {name!r} is {stated!r}, not a shape and a type such as {json.dumps(own)}"
        elif json.dumps(stated) != json.dumps(own):  # where true is not 1
            yield f"input {name!r} is {json.dumps(stated)}, the model's {json.dumps(own)}"


def _name_problems(kind: str, stated: list[str], own: tuple[str, ...]) -> Iterator[str]:
    known = [name.removesuffix(":0") for name in stated]
    for name in known:
        if name not in own:
            yield f"no {kind} is named {name!r}{nearest(name, own)}"
    for name in own:
        if name not in known:
            yield f"the {kind} {name!r} is missing"
        elif known.count(name) > 1:
            yield f"the {kind} {name!r} is given {known.count(name)} times"


def _output_names(module: Module) -> tuple[str, ...]:
    root = module.root
    return root.operands if root.opcode == "tuple" else (root.name,)
