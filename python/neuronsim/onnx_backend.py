"""neuronsim as a backend of ONNX's own test suite, and of whatever else runs models by that interface.

>>> from neuronsim.onnx_backend import NeuronSimBackend  # doctest: +SKIP
>>> NeuronSimBackend.prepare(onnx.load("model.onnx")).run([x])  # doctest: +SKIP

A model is compiled for the shapes of the inputs of each call, in float32; where values of inputs decide
shapes, for these values too. The target is the host, which has every type of ONNX that is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from neuronsim import api
from neuronsim.errors import UnsupportedType
from neuronsim.frontends.onnx.carried import CARRIED
from neuronsim.frontends.onnx.model import UnknownInput, to_module


class PreparedModel(BackendRep):
    """A model that is compiled when its inputs are known."""

    def __init__(self, model: onnx.ModelProto, settings: dict[str, Any]) -> None:
        self._model, self._settings = model, settings

    def run(self, inputs: Any, **keywords: Any) -> tuple[Any, ...]:
        """The outputs, as ndarrays, for inputs in the graph's order."""
        initialized = {t.name for t in self._model.graph.initializer}
        names = [i.name for i in self._model.graph.input if i.name not in initialized]
        given = dict(zip(names, inputs, strict=False))
        for name, x in given.items():
            if isinstance(x, list):  # as the suite gives sequences
                raise UnsupportedType(f"the input {name!r} is no tensor: neuronsim takes tensors")
        known: dict[str, Any] = {name: None for name, x in given.items() if x is None}
        while True:
            shapes = {n: np.shape(x) for n, x in given.items() if n not in known}
            try:
                module = to_module(self._model, input_shapes=shapes, input_values=known)
                break
            except UnknownInput as error:
                new = {n: given[n] for n in error.inputs if n not in known}
                if not new:
                    raise
                known |= new
        program = api.compile(module, **self._settings)
        found = program(*(_carrier_of(x) for n, x in given.items() if n not in known))
        results = found if isinstance(found, tuple) else (found,)
        outputs = self._model.graph.output
        return tuple(_declared(x, o) for x, o in zip(results, outputs, strict=True))


def _carrier_of(x: Any) -> Any:
    """An array of a type that neuronsim has not, in the one in which its values travel."""
    element = next((e for e in CARRIED.values() if e.numpy == getattr(x, "dtype", None)), None)
    return x if element is None else x.astype(element.carrier.numpy)


def _declared(x: Any, output: onnx.ValueInfoProto) -> Any:
    """An output as an ndarray, of the type that the model says where values travel in another."""
    array = np.asarray(x)
    name = onnx.TensorProto.DataType.Name(output.type.tensor_type.elem_type)
    return array.astype(CARRIED[name].numpy) if name in CARRIED else array


class NeuronSimBackend(Backend):
    """ONNX's interface of backends. `prepare` takes the keywords of `compile`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **settings: Any) -> PreparedModel:
        """A model that can be run."""
        return PreparedModel(model, {"auto_cast": "none", "target": "host", **settings})

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **settings: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node."""
        types = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x)
            )
            for name, x in zip(node.input, inputs, strict=True)
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = onnx.helper.make_graph([node], "node", types, outputs)
        return cls.prepare(onnx.helper.make_model(graph), device, **settings).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is emulated: it is always this one."""
        return device == "CPU"
