"""ONNX files: read with the onnx package, checked before anything is made of them.

Tensors that lie outside the file are read from its folder alone.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronsim import ops
from neuronsim.arrays.array_object import Array
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, InvalidModel, NeuronSimError, UnsupportedType
from neuronsim.frontends.onnx.carried import CARRIED, Carried, ElementType, unpacked
from neuronsim.hlo.module import fresh_name
from neuronsim.whole_files import open_regular, read_bytes, replacing

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto


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


@dataclass(frozen=True)
class Folder:
    """Where a model's file lies: by its name, and itself, if the name is a link (as in the stores of
    downloaded models, where each name of a folder is a link into another).
    """

    named: Path
    real: Path

    @classmethod
    def of(cls, model: Path) -> Folder:
        """That of a model's file."""
        return cls(model.parent.resolve(), model.resolve().parent)

    def find(self, location: str, what: str) -> Path:
        """A file of the folder; raises InvalidModel for one outside."""
        try:
            path = (self.named / location).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null byte
            raise InvalidModel(f"{what} lies in {location!r}: {error}") from error
        inside = any(path.is_relative_to(f) for f in (self.named, self.real))
        if not location or os.path.isabs(location) or not inside:
            raise InvalidModel(
                f"{what} lies in {location!r}, outside of the model's folder {self.named}"
            )
        return path


def read(model: Any) -> tuple[ModelProto, Folder | None]:
    """The model of a file, of its bytes or as it is, and the folder in which its tensors may lie."""
    onnx = require_onnx()
    if isinstance(model, onnx.ModelProto):
        return _with_output(model), None
    folder, what = None, "the ONNX model"
    if isinstance(model, bytes | bytearray | memoryview):
        content = bytes(model)
    else:
        content = read_bytes(model)
        folder, what = Folder.of(Path(model)), f"the ONNX model {str(model)!r}"
    if not content:
        raise InvalidModel(f"{what} is empty")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # protobuf's own DecodeError, whose module is not part of its interface
        raise InvalidModel(f"{what} is damaged or cut short: {error}") from error
    return _with_output(proto, what), folder


def _with_output(model: ModelProto, what: str = "the ONNX model") -> ModelProto:
    if not model.graph.output:
        raise InvalidModel(f"{what} has no graph, or one that has no output")
    return model


def check_graph(graph: GraphProto) -> None:
    """Raises InvalidModel for names of a graph, but for those of its nodes, that are no text."""
    check_text((graph.name,), "the graph")
    for values in (graph.input, graph.output, graph.initializer):
        check_text((v.name for v in values), "a value")
    for i in graph.input:
        check_text((d.dim_param for d in i.type.tensor_type.shape.dim), "a dimension")
    for t in graph.initializer:
        check_text((x for e in t.external_data for x in (e.key, e.value)), "a tensor's place")


def check_text(names: Iterable[str], of: str) -> None:
    """Raises InvalidModel for names that are not in UTF-8, which protobuf gives as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise InvalidModel(f"the name {name!r} of {of} is no text in UTF-8: the file is damaged")


def is_onnx(model: Any) -> bool:
    """Whether a model is ONNX's: a file's name, its bytes (which begin with the version of the format,
    where those of an HLO module begin with its name), or a ModelProto.
    """
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[:1]) == b"\x08"
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).lower().endswith(".onnx")
    return type(model).__name__ == "ModelProto" and hasattr(model, "opset_import")


def write(model: ModelProto, output: str | os.PathLike[str], folder: Folder | None) -> None:
    """Write a model; tensors that lie beside it stay where they are, in the same folder."""
    onnx = require_onnx()
    outside = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    if outside and folder and Path(output).parent.resolve() not in (folder.named, folder.real):
        raise InvalidArgument(
            f"the model's tensors lie in {folder.named}: write {os.fspath(output)!r} "
            "into that folder too"
        )
    with replacing(output) as file:
        file.write(model.SerializeToString())


def tensor(proto: TensorProto, folder: Folder | None) -> Array:
    """The array of a tensor; raises UnsupportedType, or InvalidModel for one whose bytes are not as
    many as its shape says.
    """
    onnx = require_onnx()
    dtype = element_type(proto.data_type, f"the tensor {proto.name!r}")
    dims = tuple(proto.dims)
    if any(n < 0 for n in dims):
        raise InvalidModel(f"the tensor {proto.name!r} has the shape {dims}")
    ops.check_dims(f"the tensor {proto.name!r}", dims)
    try:
        np.broadcast_to(np.uint8(0), dims)  # a shape that NumPy's arrays can have
        is_external = proto.data_location == onnx.TensorProto.EXTERNAL
        if isinstance(dtype, Carried):
            return unpacked(_packed(proto, dims, dtype, folder, is_external), dtype, dims)
        if is_external:
            mapped = _external(proto, dims, dtype, math.prod(dims) * dtype.itemsize, folder)
            return _array(np.frombuffer(mapped, dtype.storage).reshape(dims), dtype)
        data = onnx.numpy_helper.to_array(proto)
    except NeuronSimError:
        raise
    except Exception as error:  # ValueError, TypeError, and others for what contradicts itself
        raise InvalidModel(f"the tensor {proto.name!r} of {dtype.name}{list(dims)}: {error}") from error
    if data.shape != dims:
        raise InvalidModel(f"the tensor {proto.name!r} has {data.size} elements, and a shape of {dims}")
    return _array(data, dtype)


def _array(data: np.ndarray[Any, Any], dtype: DType) -> Array:
    """The array of a tensor's elements: aligned; bools of any byte but 0 are true."""
    if dtype.name == "bool" and data.size and data.view(np.uint8).max() > 1:
        data = data.view(np.uint8) != 0
    if not data.flags.aligned or not data.flags.c_contiguous:
        data = np.ascontiguousarray(data.copy()).reshape(data.shape)
    return Array(ops.Bits(data.view(dtype.storage), dtype))


def _packed(
    proto: TensorProto,
    dims: tuple[int, ...],
    element: Carried,
    folder: Folder | None,
    is_external: bool,
) -> np.ndarray[Any, Any]:
    """The bytes of elements of which each holds several."""
    size = element.packed_size(math.prod(dims))
    if is_external:
        return _external(proto, dims, element, size, folder)
    if proto.HasField("raw_data"):
        codes = np.frombuffer(proto.raw_data, np.uint8)
    else:
        stored = np.array(proto.int32_data, np.int32)
        if stored.size and not -128 <= stored.min() <= stored.max() < 256:
            raise InvalidModel(
                f"the tensor {proto.name!r} of {element.name} has numbers that are no bytes"
            )
        codes = stored.astype(np.uint8)
    if codes.size != size:
        raise InvalidModel(
            f"the tensor {proto.name!r} of {element.name}{list(dims)} needs {size} bytes, and has "
            f"{codes.size}"
        )
    return codes


def _external(
    proto: TensorProto, dims: tuple[int, ...], dtype: ElementType, size: int, folder: Folder | None
) -> np.ndarray[Any, Any]:
    """The bytes of a tensor in a file beside the model's, which is mapped, not copied."""
    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise InvalidModel(
            f"the tensor {proto.name!r} lies in {location!r} beside the model: give the model's file, "
            "not its bytes"
        )
    path = folder.find(location, f"the tensor {proto.name!r}")
    try:
        offset = int(entries.get("offset", "0") or 0)
        stated = int(entries.get("length", "0") or 0)
    except ValueError as error:
        raise InvalidModel(f"the tensor {proto.name!r}: {error}") from error
    with open_regular(path) as file:
        there = os.fstat(file.fileno()).st_size
        if offset < 0 or (stated and stated != size) or offset + size > there:
            raise InvalidModel(
                f"the tensor {proto.name!r} of {dtype.name}{list(dims)} needs {size} bytes at {offset} "
                f"of {location!r}, which has {there} and for it {stated or size}"
            )
        if not size:
            return np.zeros(0, np.uint8)
        try:
            return np.memmap(file, np.uint8, "r", offset, (size,))
        except OSError as error:  # as of more maps than a process may have
            raise InvalidModel(f"the tensor {proto.name!r} of {location!r}: {error}") from error


def dtype_of(code: int, what: str) -> DType:
    """The type that ONNX numbers so, of what is computed with; raises UnsupportedType."""
    found = element_type(code, what)
    if isinstance(found, Carried):
        raise UnsupportedType(
            f"{what} is of {found.name}, which is no type to compute with: neuronsim takes it where "
            "ONNX stores, casts, quantizes and dequantizes"
        )
    return found


def element_type(code: int, what: str) -> ElementType:
    """The type that ONNX numbers so, also one that travels in another; raises UnsupportedType."""
    onnx = require_onnx()
    try:
        name = onnx.TensorProto.DataType.Name(code)
    except ValueError as error:
        raise InvalidModel(f"{what} has the element type {code}, which ONNX does not have") from error
    if name in CARRIED:
        return CARRIED[name]
    if name in _TYPES:
        return as_dtype(_TYPES[name])
    known = ", ".join([*_TYPES, *CARRIED])
    raise UnsupportedType(f"{what} is of {name}: neuronsim takes {known}")


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


def type_number(dtype: ElementType) -> int:
    """ONNX's number of a type; raises UnsupportedType for one that ONNX does not have."""
    name = (
        dtype.name
        if isinstance(dtype, Carried)
        else next((k for k, v in _TYPES.items() if v == dtype.name), None)
    )
    if name is None:
        raise UnsupportedType(f"ONNX has no {dtype.name}: export casts to bfloat16 or float16")
    return int(require_onnx().TensorProto.DataType.Value(name))


def graphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute of a node holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def names_read(node: NodeProto) -> list[str]:
    """The tensors that a node, and what lies in its subgraphs, reads: those inside these too."""
    found, pending = list(node.input), [node]
    while pending:
        for a in pending.pop().attribute:
            for graph in graphs_of(a):
                pending += graph.node
                found += [name for n in graph.node for name in n.input]
                found += [o.name for o in graph.output]
    return found


def taken_names(graph: GraphProto) -> set[str]:
    """The names of a graph's nodes and tensors, and of those of the graphs inside its nodes."""
    found = {t.name for t in (*graph.input, *graph.output, *graph.initializer)}
    for n in graph.node:
        found.update((n.name, *n.input, *n.output))
        for a in n.attribute:
            for inner in graphs_of(a):
                found |= taken_names(inner)
    return found


def store(model: ModelProto, name: str, array: np.ndarray[Any, Any], taken: set[str]) -> str:
    """Add a tensor to a model under this name, with a number if it is taken; gives the name."""
    onnx: Any = require_onnx()
    fresh = fresh_name(name, taken)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, fresh))
    return fresh


def node_name(node: NodeProto) -> str:
    """What messages and instructions call a node: its name, or that of its first output."""
    return node.name or next(filter(None, node.output), node.op_type)


def operator_set_version(model: ModelProto) -> int:
    """The version of ONNX's own operators that a model is written in."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
