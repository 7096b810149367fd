"""Random numbers. A traced program draws them while it runs, from the seed of its call: an operator's
own seed, which says nothing of the generator, is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.layers import psum_type
from neuronsim.dtypes import DType
from neuronsim.frontends.onnx.files import dtype_of
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import drawn

_DISTRIBUTIONS = {
    "RandomUniform": ("uniform", {"low": 0.0, "high": 1.0}),
    "RandomNormal": ("normal", {"mean": 0.0, "scale": 1.0}),
}


def _dtype(node: Node, default: DType) -> DType:
    code = node.get("dtype")
    return default if code is None else dtype_of(code, "the attribute 'dtype'")


def _of_shape(name: str, parameters: dict[str, float]) -> Callable[..., Array]:
    def run(node: Node) -> Array:
        first, second = (node.get(k, v) for k, v in parameters.items())
        return drawn(name, first, second, node.require("shape"), _dtype(node, dtypes.float32))

    return run


def _like(name: str, parameters: dict[str, float]) -> Callable[..., Array]:
    def run(node: Node, x: Array) -> Array:
        first, second = (node.get(k, v) for k, v in parameters.items())
        return drawn(name, first, second, x.shape, _dtype(node, x.dtype))

    return run


for _name, _distribution in _DISTRIBUTIONS.items():
    operator(_name)(_of_shape(*_distribution))
    operator(f"{_name}Like")(_like(*_distribution))


@operator("Bernoulli", since=15)
def _bernoulli(node: Node, x: Array) -> Array:
    """1 with the probability that the element says. (In ONNX's body it is 1 with the other one.)"""
    found = drawn("uniform", 0.0, 1.0, x.shape, psum_type(x))
    return np.less(found, x.astype(found.dtype)).astype(_dtype(node, x.dtype))


@operator("Multinomial", since=7)
def _multinomial(node: Node, x: Array) -> Array:
    """Classes by the logarithms of their probabilities: the largest of each with Gumbel's noise."""
    batch, classes = x.shape
    dims = (batch, node.get("sample_size", 1), classes)
    uniform = drawn("uniform", 0.0, 1.0, dims, psum_type(x))
    noise = np.negative(np.log(np.negative(np.log(uniform))))
    found = np.argmax(np.add(np.expand_dims(x.astype(noise.dtype), 1), noise), axis=-1)
    return found.astype(_dtype(node, dtypes.int32))


@operator("Dropout")
def _dropout(node: Node, x: Array) -> tuple[Array, Array]:
    mask = dtypes.boolean if node.version >= 10 else x.dtype
    return x, np.ones(x.shape, dtype=mask)


@operator("Dropout", since=12)
def _dropout_by_mode(node: Node, x: Array, ratio: Any = None, training: Any = None) -> Any:
    """In inference, or where nothing is dropped, x itself."""
    if training is not None and bool(training.reshape(())):
        share = 0.5 if ratio is None else float(ratio.reshape(()))
        if share:
            raise node.refuse(
                f"drops {share:g} of the elements to train: export the model in eval mode"
            )
    return _dropout(node, x)
