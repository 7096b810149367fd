"""PyTorch's tensors and types as neuronsim's, and the other way round."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from neuronsim.arrays.array_object import Array
from neuronsim.arrays.dlpack import from_dlpack
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidData, NeuronSimError, UnsupportedType

# PyTorch's names of the types that have others here.
_NAMES = {"float8_e4m3fn": "float8_e4m3fn", "bool": "bool"}


def require_torch() -> Any:
    """The torch package; raises NeuronSimError where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise NeuronSimError(
            "a model of PyTorch is read with the torch package, which is not installed: "
            "pip install 'neuronsim[torch]'"
        )
    return importlib.import_module("torch")  # by its name: type checkers need not read all of it


def part_of_torch(name: str) -> Any:
    """A module of PyTorch's, by its name in the package."""
    require_torch()
    return importlib.import_module(f"torch.{name}")


def dtype_of(x: Any, what: str = "a tensor") -> DType:
    """The type of a torch.dtype; raises UnsupportedType."""
    name = str(x).removeprefix("torch.")
    found = DTYPES.get(_NAMES.get(name, name))
    if found is None:
        raise UnsupportedType(f"{what} is of {x}, which neuronsim does not have")
    return found


def torch_dtype(dtype: DType) -> Any:
    """PyTorch's name of a type."""
    return getattr(require_torch(), dtype.name)


def to_array(x: Any) -> Array:
    """A tensor of the CPU's as an array of the same memory; one that lies elsewhere, or whose bits are
    not its elements (conjugated, quantized, sparse), is copied or refused.
    """
    torch = require_torch()
    if x.layout is not torch.strided or x.is_quantized:
        raise UnsupportedType(f"a tensor of the layout {x.layout} ({x.dtype}): make it dense")
    dtype_of(x.dtype)
    x = x.detach()
    if x.is_meta:
        raise InvalidData("a tensor on the device meta has no elements: give one that does")
    if x.device.type != "cpu":
        x = x.cpu()
    return Array(from_dlpack(x.resolve_conj().resolve_neg()))


def to_tensor(x: Array) -> Any:
    """An array as a tensor of the same memory; what cannot be written is copied."""
    torch = require_torch()
    if x.dtype.name == "tfloat32":
        x = x.astype("float32")
    if not x.bits.data.flags.writeable:
        x = x.copy()
    return torch.from_dlpack(x)
