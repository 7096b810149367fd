"""StableHLO, as text, as bytecode, or as `jax.export` serializes it: jaxlib makes HLO of it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from typing import Any

from neuronsim.errors import InvalidModel, NeuronSimError, UnsupportedType
from neuronsim.frontends.calls import ReadModel
from neuronsim.frontends.jax.pytrees import label_of_origin
from neuronsim.frontends.parameters import set_parameters
from neuronsim.hlo import proto
from neuronsim.whole_files import open_regular, read_bytes

BYTECODE = b"ML\xefR"
# How text of MLIR begins.
_TEXT = re.compile(
    rb"\s*(//[^\n]*\n\s*)*(#[\w\-]+\s*=|(builtin\.)?module\b[^\n]*\{|\"builtin\.module\"|func\.func\b)"
)
_QUANTIZED = re.compile(r"!quant\.[\w.]+<[^>]{0,80}>?")
_PORTABLE = re.compile(rb"ML\xefR.StableHLO", re.DOTALL)  # in the dialect that keeps its versions apart
_START = 4096  # bytes in which text shows itself


def is_stablehlo(model: Any) -> bool:
    """Whether a model is MLIR's text or bytecode, or a file of it."""
    start = _beginning(model, _START)
    return start.startswith(BYTECODE) or _TEXT.match(start) is not None


def is_export(model: Any) -> bool:
    """Whether a model is what `jax.export` serialized, or a file of it: a table of the kind of
    FlatBuffers that holds bytecode of StableHLO.
    """
    start = _beginning(model, 8)
    table = int.from_bytes(start[:4], "little")
    if len(start) < 8 or not 8 <= table <= _START or start[4:] == b"TFL3":
        return False
    found = _PORTABLE.search(_content(model))
    return found is not None and found.start() > table


def _beginning(model: Any, length: int) -> bytes:
    """The first bytes of a model that is a file or its content; none of another."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[:length])
    if isinstance(model, str) and "\n" in model:
        return model[:length].encode(errors="replace")
    if not isinstance(model, str | os.PathLike):
        return b""
    try:
        with open_regular(model) as file:
            return file.read(length)
    except (NeuronSimError, ValueError):  # which the reader of HLO says
        return b""


def _content(model: Any) -> bytes:
    if isinstance(model, str) and "\n" in model:
        return model.encode()
    return bytes(model) if isinstance(model, bytes | bytearray | memoryview) else read_bytes(model)


def read(model: Any) -> ReadModel:
    """The module of StableHLO, of a file or its content. Its parameters have the names of the arguments
    that it says. Raises InvalidModel; UnsupportedType for quantized types, which jaxlib does not lower.
    """
    module = proto.from_bytes(_of_file(model).as_serialized_hlo_module_proto())
    labels = [label_of_origin(p.metadata.op_name) for p in module.parameters]
    if all(re.match(r"[A-Za-z_][\w.]*$", x) for x in labels) and len(set(labels)) == len(labels):
        module = set_parameters(module, range(len(labels)), labels, {}, {})
    return ReadModel(module)


def _of_file(model: Any) -> Any:
    """What jaxlib makes of a file, which its errors name, or of content."""
    try:
        return computation(_content(model))
    except (InvalidModel, UnsupportedType) as error:
        if not isinstance(model, str | os.PathLike) or (isinstance(model, str) and "\n" in model):
            raise
        raise type(error)(f"{os.fspath(model)}: {error}") from error


def computation(data: bytes, *, refine: bool = False) -> Any:
    """What jaxlib makes of StableHLO; `refine` puts the arguments' dimensions into what is open."""
    mlir, version = _jaxlib()
    try:
        if refine:
            data = mlir.refine_polymorphic_shapes(data)
        elif _PORTABLE.match(data) and version.startswith("0.4."):  # which does not read it itself
            data = mlir.deserialize_portable_artifact(data)
        return mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False)
    except Exception as error:  # of jaxlib's own classes
        if found := _QUANTIZED.search(str(error)):
            raise UnsupportedType(
                f"jaxlib {version} does not lower uniform quantized types of StableHLO ({found[0]}): "
                "`stablehlo-opt --stablehlo-legalize-quant-to-math` writes them as integers that it "
                "does; or give the float model, which neuronsim.quantize quantizes, or ONNX's QDQ form"
            ) from error
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise InvalidModel(
            f"jaxlib {version} does not read this StableHLO: {'; '.join(lines[:3])[:500]}. Text and "
            "bytecode are those of one version of MLIR: write the module with jax.export, or give "
            "jax.jit(f).lower(*example_arguments) itself"
        ) from error


def _jaxlib() -> tuple[Any, str]:
    """The functions of jaxlib for MLIR, and its version."""
    if importlib.util.find_spec("jaxlib") is None:
        raise NeuronSimError(
            "StableHLO is read with jaxlib, which is not installed: pip install 'neuronsim[jax]'"
        )
    version = importlib.import_module("jaxlib.version").__version__
    for name in ("_jax", "xla_extension"):  # since 0.6, and before
        try:
            return importlib.import_module(f"jaxlib.{name}").mlir, version
        except (ImportError, AttributeError):
            continue
    raise NeuronSimError(
        f"jaxlib {version} has no reader of StableHLO where neuronsim knows it: versions 0.4.30 to "
        "0.10.2 do, pip install 'neuronsim[jax]'"
    )


def read_export(model: Any) -> Any:
    """What `jax.export` serialized. Raises InvalidModel for what this jax does not read."""
    jax = require_jax("what jax.export serialized")
    try:
        export = importlib.import_module("jax.export")
        return export.deserialize(bytearray(_content(model)))
    except ImportError as error:  # of flatbuffers, or of absl
        raise NeuronSimError(
            f"what jax.export serialized needs {error.name}: pip install 'neuronsim[jax]'"
        ) from error
    except Exception as error:  # of FlatBuffers' and jax's own classes
        raise InvalidModel(
            f"jax {jax.__version__} does not read what looks like a function that jax.export "
            f"serialized: {error}"
        ) from error


def require_jax(what: str) -> Any:
    """The jax package; raises NeuronSimError where it is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise NeuronSimError(
            f"{what} is read with the jax package, which is not installed: pip install 'neuronsim[jax]'"
        )
    return importlib.import_module("jax")
