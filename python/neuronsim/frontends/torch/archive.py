"""`.pt2` files: looked through before PyTorch reads them, and read without anything that runs code.

torch.export.load unpickles what a file asks it to, evaluates expressions of sizes as Python, and names
functions to call. Here a file has neither pickles (its sample inputs, which nobody needs, are left out)
nor compiled code, its expressions are of numbers and symbols, and its operators PyTorch's own.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from neuronsim import json_documents
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedOperator
from neuronsim.frontends.torch.silence import quietly
from neuronsim.frontends.torch.tensors import part_of_torch, require_torch
from neuronsim.whole_files import read_bytes

MAX_MEMBERS = 1_000_000
MAX_JSON = 1 << 30  # bytes of a program's description

_TARGET = re.compile(
    r"(torch\.ops\.(aten|prims|higher_order)\.\w+(\.\w+)?|_operator\.\w+|math\.\w+|torch\._?sym_\w+)"
)
# As torch.export writes sizes: numbers, symbols and functions of them, and no other name of sympy's.
_TOKEN = re.compile(
    r"\s*(?:([A-Za-z_]\w*)|'([A-Za-z]\w*)'|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([-+*/%(),<>=&|~!]))"
)
_SYMBOL = re.compile(r"[suzf]+\d+")
_POWER = re.compile(r"\*\*|Pow|LShift")
MAX_EXPONENT = 64  # of which an expression has one: more would be endless numbers
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        "Abs Add And BitwiseFn_bitwise_and BitwiseFn_bitwise_or CeilDiv CeilToInt CleanDiv Eq "
        "False FloatPow FloatTrueDiv FloorDiv FloorToInt Ge Gt Identity IntTrueDiv Integer "
        "LShift Le Lt Max Min Mod ModularIndexing Mul Ne Not Or Piecewise Pow PowByNatural "
        "PythonMod RShift Rational RoundDecimal RoundToInt Symbol ToFloat True TruncToFloat "
        "TruncToInt Where ceiling floor int_oo integer nonnegative oo positive sqrt",
    )
)


def is_archive(model: Any) -> bool:
    """Whether a model is a file of torch.export's by its name, or the bytes of one."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[:4]) == b"PK\x03\x04" and b"archive_format" in bytes(model)
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).lower().endswith(".pt2")
    return False


def load(model: Any) -> Any:
    """The ExportedProgram of a `.pt2` file, or of its bytes.

    Raises InvalidModel for one that is damaged, or that holds what would run when it is read;
    UnsupportedOperator for one with operators of other libraries.
    """
    torch = require_torch()
    content = bytes(model) if isinstance(model, bytes | bytearray | memoryview) else read_bytes(model)
    what = "the .pt2 file" if isinstance(model, bytes | bytearray | memoryview) else os.fspath(model)
    logged = _Logged()
    try:
        kept = _without_code(content, what)
        with quietly(), logged:
            program = torch.export.load(io.BytesIO(kept))
        program.example_inputs = None
        return program
    except NeuronSimError:
        raise
    except Exception as error:  # zipfile's, json's and PyTorch's own, of many kinds
        said = next(iter(str(logged.error or error).strip().splitlines()), type(error).__name__)
        raise InvalidModel(
            f"{what} is no program that torch.export.save of PyTorch {torch.__version__} writes: {said}"
        ) from error


class _Logged(logging.Handler):
    """The error that PyTorch logs where it then raises another, which tells to look at the log."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.error = self.error or record.exc_info[1]

    def __enter__(self) -> None:
        logging.getLogger("torch.export").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("torch.export").removeHandler(self)


def _without_code(content: bytes, what: str) -> bytes:
    """The archive without its sample inputs, which are pickled, once no other code is found in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        _check_members(members, what)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as copy:
            for member in members:
                data = archive.read(member)
                parts = PurePosixPath(member.filename).parts[1:]
                if parts[:2] == ("data", "sample_inputs"):
                    data = _no_inputs()
                elif parts[-1:] and parts[-1].endswith(".json"):
                    document = _checked_document(data, what, member.filename)
                    data = _with_tuples(document) or data
                copy.writestr(zipfile.ZipInfo(member.filename), data)
    return out.getvalue()


def _check_members(members: list[zipfile.ZipInfo], what: str) -> None:
    names = [PurePosixPath(m.filename).parts for m in members]
    if len(members) > MAX_MEMBERS or len({m.filename for m in members}) != len(members):
        raise InvalidModel(f"{what} has {len(members)} members, or two of one name: it is damaged")
    if any(m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size for m in members):
        raise InvalidModel(f"{what} has compressed members, which torch.export.save does not write")
    if any(n[-1:] == ("version",) and len(n) == 1 for n in names):
        raise InvalidModel(
            f"{what} is in the format of before PyTorch 2.8, which holds pickles: load it with the "
            "PyTorch that wrote it, if you trust who did, and give the ExportedProgram, or save it anew"
        )
    if not any(n[1:2] == ("models",) for n in names):
        raise InvalidModel(f"{what} holds no exported program (models/*.json)")
    for parts in names:
        if parts[1:3] == ("data", "aotinductor"):
            raise InvalidModel(
                f"{what} holds compiled code of AOTInductor: save the program with torch.export.save"
            )
        if parts[-1].startswith(("custom_obj_", "opaque_obj_")):
            raise InvalidModel(
                f"{what} holds a pickled object ({parts[-1]}), which would run code when it is read"
            )


def _checked_document(data: bytes, what: str, name: str) -> Any:
    """What a document says. Raises for what it would have PyTorch unpickle, evaluate or call."""
    if len(data) > MAX_JSON:
        raise InvalidModel(f"{what}: {name} has {len(data)} bytes")
    foreign: set[str] = set()
    try:
        document = json_documents.parse(data.decode())
    except (InvalidArgument, UnicodeDecodeError) as error:
        raise InvalidModel(f"{what} is damaged: {name} is no JSON: {error}") from error
    for entry in _entries(document):
        if entry.get("use_pickle"):
            raise InvalidModel(
                f"{what}: {entry.get('path_name')} is pickled, and would run code when it is read: "
                "make the tensor a dense one of the CPU's before it is exported"
            )
        expression = entry.get("expr_str")
        if isinstance(expression, str) and not _is_of_numbers(expression):
            raise InvalidModel(f"{what}: {expression!r} is no expression of sizes")
        target = entry.get("target")
        is_node = isinstance(target, str) and "inputs" in entry and "outputs" in entry
        if is_node and not _TARGET.fullmatch(str(target)):
            foreign.add(str(target))
    if foreign:
        raise UnsupportedOperator(
            f"{what} calls {', '.join(sorted(foreign))}, which neuronsim does not read: a program has "
            "operators of PyTorch's own (aten, prims)"
        )
    return document


def _with_tuples(document: Any) -> bytes | None:
    """A program's document with tuples in the place of classes that PyTorch knows only where their
    library was imported (a model's output of Hugging Face), since tensors are taken and given in a
    row. None where it has no such class.
    """
    known = part_of_torch("utils._pytree").SERIALIZED_TYPE_TO_PYTHON_TYPE
    changes = False
    for entry in _entries(document):
        for key in ("in_spec", "out_spec"):
            if isinstance(entry.get(key), str):
                spec = json_documents.parse(entry[key])
                foreign = [n for n in _entries(spec) if n.get("type") and n["type"] not in known]
                for node in foreign:
                    node |= {"type": "builtins.tuple", "context": "null"}
                if foreign:
                    entry[key], changes = json.dumps(spec), True
    return json.dumps(document).encode() if changes else None


def _entries(document: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    pending = [document]
    while pending:
        x = pending.pop()
        if isinstance(x, dict):
            yield x
            pending += x.values()
        elif isinstance(x, list):
            pending += x


def _is_of_numbers(expression: str) -> bool:
    text, at, largest = expression.strip(), 0, 0.0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return False
        name, _, number, _ = token.groups()
        if name is not None and not (_SYMBOL.fullmatch(name) or name in _FUNCTIONS):
            return False
        largest = max(largest, float(number or 0))
        at = token.end()
    powers = len(_POWER.findall(text))
    return not powers or (powers == 1 and largest <= MAX_EXPONENT)


def _no_inputs() -> bytes:
    """What stands for sample inputs: none."""
    out = io.BytesIO()
    require_torch().save(((), {}), out)
    return out.getvalue()
