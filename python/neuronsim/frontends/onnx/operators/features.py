"""Features and labels of classical models (ai.onnx.ml): numbers that are chosen, scaled, filled in,
encoded and joined.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.table import Node, learning_operator
from neuronsim.frontends.primitives import gathered_along, integers, is_known, joined, taken, where


@learning_operator("ArrayFeatureExtractor")
def _features(node: Node, x: Array, places: Array) -> Array:
    x = np.reshape(x, (1, -1)) if x.ndim == 1 else x
    places = np.reshape(places, (-1,))
    if is_known(places):
        return taken(x, integers(places), x.ndim - 1)
    return gathered_along(x, places, x.ndim - 1)


@learning_operator("Binarizer")
def _binarized(node: Node, x: Array) -> Array:
    return np.greater(x, asarray(node.get("threshold", 0.0), x.dtype)).astype(x.dtype)


@learning_operator("FeatureVectorizer")
def _joined_features(node: Node, *inputs: Array) -> Array:
    wide = [np.expand_dims(x, 0) if x.ndim == 1 else x for x in inputs]
    lines = [np.reshape(x, (x.shape[0], math.prod(x.shape[1:]))) for x in wide]
    sizes = node.get("inputdimensions") or [x.shape[1] for x in lines]
    if [x.shape[1] for x in lines] != list(sizes):
        raise node.refuse(f"whose inputdimensions {list(sizes)} are not the inputs'")
    return joined([x.astype(dtypes.float32) for x in lines], 1)


@learning_operator("Imputer")
def _imputed(node: Node, x: Array) -> Array:
    kind = "float" if x.dtype.kind == "float" else "int64"
    values, replaced = node.require(f"imputed_value_{kind}s"), node.get(f"replaced_value_{kind}", 0)
    is_missing = np.isnan(x) if replaced != replaced else np.equal(x, asarray(replaced, x.dtype))
    return where(is_missing, asarray(values, x.dtype), x)


@learning_operator("Normalizer")
def _normalized(node: Node, x: Array) -> Array:
    x = x.astype(dtypes.float32)
    match norm := node.get("norm", "MAX"):
        case "MAX":
            size = np.max(x, axis=-1, keepdims=True)
        case "L1":
            size = np.sum(np.abs(x), axis=-1, keepdims=True)
        case "L2":
            size = np.sqrt(np.sum(np.multiply(x, x), axis=-1, keepdims=True))
        case _:
            raise InvalidModel(f"the norm {norm!r}: it is MAX, L1 or L2")
    return np.divide(x, where(np.equal(size, 0), asarray(1, x.dtype), size))


@learning_operator("Scaler")
def _scaled(node: Node, x: Array) -> Array:
    x = x.astype(dtypes.float32)
    offset, scale = (asarray(node.require(n), dtypes.float32) for n in ("offset", "scale"))
    return np.multiply(np.subtract(x, offset), scale)


@learning_operator("OneHotEncoder")
def _one_hot(node: Node, x: Array) -> Array:
    if "cats_strings" in node.attributes:
        raise node.refuse("of strings: neuronsim has no arrays of them")
    found = np.equal(
        np.expand_dims(x.astype(dtypes.int64), x.ndim), asarray(node.require("cats_int64s"))
    )
    return found.astype(dtypes.float32)


@learning_operator("LabelEncoder", since=2)
def _relabelled(node: Node, x: Array) -> Array:
    keys, values = (_labels(node, name) for name in ("keys", "values"))
    if len(keys) != len(values):
        raise InvalidModel(f"{len(keys)} keys and {len(values)} values")
    rest = _default(node, values.dtype)
    if not len(keys):
        return np.broadcast_to(asarray(rest), x.shape)
    column = np.expand_dims(x, x.ndim)
    table = asarray(keys).astype(x.dtype)
    found = np.equal(column, table)
    if keys.dtype.kind == "f":
        found = np.logical_or(found, np.logical_and(np.isnan(column), np.isnan(table)))
    new = gathered_along(asarray(values), np.argmax(found, axis=x.ndim), 0)
    return where(np.any(found, axis=x.ndim), new, asarray(rest))


def _labels(node: Node, name: str) -> Any:
    for kind, dtype in (("int64s", numpy.int64), ("floats", numpy.float32), ("tensor", None)):
        if (found := node.get(f"{name}_{kind}")) is not None:
            return numpy.asarray(found, dtype)
    raise node.refuse("of strings: neuronsim has no arrays of them")


def _default(node: Node, dtype: Any) -> Any:
    if (tensor := node.get("default_tensor")) is not None:
        return numpy.asarray(tensor).reshape(()).astype(dtype)
    name, other = ("default_int64", -1) if dtype.kind in "iu" else ("default_float", -0.0)
    return numpy.asarray(node.get(name, other), dtype)


# What ends a classifier gives a map of labels to columns: these are the same numbers.
learning_operator("ZipMap")(lambda node, x: x)
