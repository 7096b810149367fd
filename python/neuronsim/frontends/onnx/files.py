"""ONNX files: read with the onnx package, checked before anything is made of them.

Tensors that lie outside the file are read from its folder alone.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedType
from neuronsim.whole_files import open_regular, replacing

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

MAX_RANK = 64


def require_onnx() -> Any:
    """The onnx package; raises NeuronSimError where it is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise NeuronSimError(
            "an ONNX model is read with the onnx package, which is not installed: "
            "pip install 'neuronsim[onnx]'"
        )
    import onnx  # an optional dependency
    import onnx.external_data_helper
    import onnx.numpy_helper

    return onnx


def read(model: Any) -> tuple[ModelProto, Path | None]:
    """The model of a file, of its bytes or as it is, and the folder in which its tensors may lie."""
    onnx = require_onnx()
    if isinstance(model, onnx.ModelProto):
        return model, None
    folder = None
    if isinstance(model, bytes | bytearray | memoryview):
        content = bytes(model)
    else:
        folder = Path(model).resolve().parent
        with open_regular(Path(model)) as file:
            content = file.read()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # protobuf's own DecodeError, whose module is not part of its interface
        raise InvalidModel(f"the ONNX model is damaged or cut short: {error}") from error
    if not proto.graph.node and not proto.graph.output:
        raise InvalidModel("the ONNX model has no graph")
    return proto, folder


def is_onnx(model: Any) -> bool:
    """Whether a model is ONNX's: a file's name, its bytes (which begin with the version of the format,
    where those of an HLO module begin with its name), or a ModelProto.
    """
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[:1]) == b"\x08"
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).lower().endswith(".onnx")
    return type(model).__name__ == "ModelProto" and hasattr(model, "opset_import")


def write(model: ModelProto, output: str | os.PathLike[str], folder: Path | None) -> None:
    """Write a model; tensors that lie beside it stay where they are, in the same folder."""
    onnx = require_onnx()
    outside = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    if outside and Path(output).resolve().parent != folder:
        raise InvalidArgument(
            f"the model's tensors lie in {folder}: write {os.fspath(output)!r} into that folder too"
        )
    with replacing(output) as file:
        file.write(model.SerializeToString())


def tensor(proto: TensorProto, folder: Path | None) -> Array:
    """The array of a tensor; raises UnsupportedType, or InvalidModel for one whose bytes are not as
    many as its shape says.
    """
    onnx = require_onnx()
    dtype = dtype_of(proto.data_type, f"the tensor {proto.name!r}")
    dims = tuple(proto.dims)
    if any(n < 0 for n in dims):
        raise InvalidModel(f"the tensor {proto.name!r} has the shape {dims}")
    ops.check_dims(f"the tensor {proto.name!r}", dims)
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return _external(proto, dims, dtype, folder)
    try:
        data = onnx.numpy_helper.to_array(proto)
    except Exception as error:  # ValueError, TypeError, and others for what contradicts itself
        raise InvalidModel(f"the tensor {proto.name!r} of {dtype.name}{list(dims)}: {error}") from error
    if data.shape != dims:
        raise InvalidModel(f"the tensor {proto.name!r} has {data.size} elements, and a shape of {dims}")
    return asarray(np.ascontiguousarray(data).reshape(dims))


def _external(proto: TensorProto, dims: tuple[int, ...], dtype: DType, folder: Path | None) -> Array:
    """A tensor of a file beside the model's, which is mapped, not copied."""
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise InvalidModel(
            f"the tensor {proto.name!r} lies in {location!r} beside the model: give the model's file, "
            "not its bytes"
        )
    path = (folder / location).resolve()
    if not location or os.path.isabs(location) or not path.is_relative_to(folder):
        raise InvalidModel(
            f"the tensor {proto.name!r} lies in {location!r}, outside of the model's folder {folder}"
        )
    try:
        offset = int(entries.get("offset", "0") or 0)
        stated = int(entries.get("length", "0") or 0)
    except ValueError as error:
        raise InvalidModel(f"the tensor {proto.name!r}: {error}") from error
    count = int(np.prod(dims, dtype=object)) if dims else 1
    size = count * dtype.itemsize
    with open_regular(path) as file:
        there = os.fstat(file.fileno()).st_size
        if offset < 0 or (stated and stated != size) or offset + size > there:
            raise InvalidModel(
                f"the tensor {proto.name!r} of {dtype.name}{list(dims)} needs {size} bytes at {offset} "
                f"of {location!r}, which has {there} and for it {stated or size}"
            )
        if not size:
            return Array(ops.Bits(np.zeros(dims, dtype.storage), dtype))
        mapped = np.memmap(file, np.uint8, "r", offset, (size,))
    return Array(ops.Bits(np.frombuffer(mapped, dtype.storage).reshape(dims), dtype))


def dtype_of(code: int, what: str) -> DType:
    """The type that ONNX numbers so; raises UnsupportedType."""
    onnx = require_onnx()
    try:
        name = onnx.TensorProto.DataType.Name(code)
    except ValueError as error:
        raise InvalidModel(f"{what} has the element type {code}, which ONNX does not have") from error
    if name in _TYPES:
        return as_dtype(_TYPES[name])
    raise UnsupportedType(f"{what} is of {name}: neuronsim takes {', '.join(_TYPES)}")


_TYPES = {
    "FLOAT": "float32",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "DOUBLE": "float64",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
    "BOOL": "bool",
    **{f"{u}INT{n}": f"{u.lower()}int{n}" for u in ("", "U") for n in (8, 16, 32, 64)},
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
}


def type_number(dtype: DType) -> int:
    """ONNX's number of a type."""
    name = next(k for k, v in _TYPES.items() if v == dtype.name)
    return int(require_onnx().TensorProto.DataType.Value(name))
