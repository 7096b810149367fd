"""Ensembles of decision trees (ai.onnx.ml): all trees of all samples go down one level at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.operators.classifiers import of_classes, of_one_score, transformed
from neuronsim.frontends.onnx.table import Node, learning_operator
from neuronsim.frontends.primitives import gathered_along, gathered_lines, where

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")  # the numbers of TreeEnsemble
_COMPARISONS: Mapping[str, Any] = {
    "LEQ": np.less_equal,
    "LT": np.less,
    "GTE": np.greater_equal,
    "GT": np.greater,
    "EQ": np.equal,
    "NEQ": np.not_equal,
}
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # and their numbers
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees: what each compares and where it leads to, leaves to themselves; what a
    leaf adds to each target (NaN: nothing), and the numbers of the trees' first nodes.
    """

    modes: Sequence[str]
    features: Any
    thresholds: Any
    on_true: Any
    on_false: Any
    missing_is_true: Any
    members: Sequence[Sequence[float]]
    weights: Any
    roots: Any

    @property
    def compares(self) -> Any:
        """Which nodes are no leaves."""
        return numpy.asarray([m != "LEAF" for m in self.modes], bool)

    @property
    def depth(self) -> int:
        """How many comparisons lead to the deepest leaf. Raises InvalidModel for trees without end."""
        return sum(1 for _ in self.levels()) - 1

    def levels(self) -> Iterator[Any]:
        """The nodes that each level of the trees reaches, from the first ones on."""
        at, inner = numpy.unique(self.roots), self.compares
        for _ in range(len(self.modes) + 1):
            yield at
            at = at[inner[at]]
            if not at.size:
                return
            at = numpy.unique(numpy.concatenate([self.on_true[at], self.on_false[at]]))
        raise InvalidModel("a tree's node leads to itself again")


def leaves(forest: Forest, x: Array) -> Array:
    """The leaf [sample, tree] in which each sample ends."""
    _check_numbers("features", forest.features[forest.compares], x.shape[1])
    features_of = numpy.where(forest.compares, forest.features, 0)  # a leaf's may be any
    here = np.broadcast_to(asarray(forest.roots), (x.shape[0], len(forest.roots)))

    def of_nodes(table: Any) -> Array:
        line = numpy.asarray(table)
        same = line.size and (line == line[0]).all()
        return asarray(line[0]) if same else gathered_along(asarray(line), here, 0)

    present = [m for m in _MODES if m in forest.modes]
    for _ in range(forest.depth):
        features = np.broadcast_to(of_nodes(features_of), here.shape)
        value = gathered_lines(x, features, 1)
        goes = asarray(numpy.zeros(here.shape, bool))
        for mode in present:
            if mode == "MEMBER":
                found = _is_member(forest, value, here)
            else:
                found = _COMPARISONS[mode](value, of_nodes(forest.thresholds.astype(x.dtype.numpy)))
            if len(present) > 1:
                has = of_nodes(numpy.asarray([m == mode for m in forest.modes]))
                found = np.logical_or(goes, np.logical_and(found, has))
            goes = found
        if forest.missing_is_true.any():
            goes = np.logical_or(
                goes, np.logical_and(np.isnan(value), of_nodes(forest.missing_is_true))
            )
        here = where(goes, of_nodes(forest.on_true), of_nodes(forest.on_false))
    return here


def _check_numbers(what: str, numbers: Any, count: int) -> None:
    line = numpy.asarray(numbers)
    if line.size and (line.min() < 0 or line.max() >= count):
        raise InvalidModel(f"numbers of {what} from {line.min()} to {line.max()}: there are {count}")


def _is_member(forest: Forest, value: Array, here: Array) -> Array:
    most = max(len(m) for m in forest.members)
    table = numpy.full((len(forest.modes), max(most, 1)), numpy.nan, value.dtype.numpy)
    for node, members in enumerate(forest.members):
        table[node, : len(members)] = members
    sets = gathered_along(asarray(table), here, 0)
    return np.any(np.equal(np.expand_dims(value, 2), sets), axis=2)


def scores(forest: Forest, x: Array, aggregate: str, base: Any) -> Array:
    """What the leaves add up to [sample, target]."""
    ends = leaves(forest, x)
    nothing = numpy.isnan(forest.weights)
    each = gathered_along(asarray(numpy.where(nothing, 0, forest.weights)), ends, 0)
    if aggregate in ("MIN", "MAX"):
        least = aggregate == "MIN"
        gives = gathered_along(asarray(~nothing), ends, 0)
        none = asarray(numpy.inf if least else -numpy.inf, each.dtype)
        found = (np.min if least else np.max)(where(gives, each, none), axis=1)
        found = where(np.any(gives, axis=1), found, asarray(0, each.dtype))
    else:
        found = np.sum(each, axis=1)
    if aggregate == "AVERAGE":
        found = np.divide(found, asarray(len(forest.roots), found.dtype))
    return found if base is None else np.add(found, asarray(base).astype(found.dtype))


# ---- of the attributes -------------------------------------------------------------------------------


def _numbers(node: Node, name: str, *, must: bool = False) -> Any:
    """A list of an attribute, or of the tensor that stands for it; None of neither, where it may be."""
    tensor = node.get(f"{name}_as_tensor")
    given = node.get(name) if tensor is None else tensor
    if given is None and not must:
        return None
    given = node.require(name) if given is None else given
    return numpy.asarray(given, numpy.float32 if tensor is None else None)


def _listed(node: Node, leaf: str, target: str, count: int) -> Forest:
    """The forest of lists that name each node by its tree and its number in it."""
    names = list(zip(node.require("nodes_treeids"), node.require("nodes_nodeids"), strict=True))
    number = {name: n for n, name in enumerate(names)}
    if len(number) != len(names):
        raise InvalidModel("two nodes of a tree have one number")
    modes = [str(m).removeprefix("BRANCH_") for m in node.require("nodes_modes")]
    for mode in modes:
        if mode not in (*_COMPARISONS, "LEAF"):
            raise node.refuse(f"with nodes of the mode {mode!r}")
    here = numpy.arange(len(names))

    def leads(attribute: str) -> Any:
        to = []
        for n, ((tree, own), k) in enumerate(zip(names, node.require(attribute), strict=True)):
            if modes[n] != "LEAF" and (tree, k) not in number:
                raise InvalidModel(f"node {own} of tree {tree} leads to {k}, which it has not")
            to.append(n if modes[n] == "LEAF" else number[tree, k])
        return numpy.asarray(to, numpy.int32)

    on_true, on_false = leads("nodes_truenodeids"), leads("nodes_falsenodeids")
    inner = numpy.asarray([m != "LEAF" for m in modes])
    roots = numpy.setdiff1d(here, numpy.concatenate([on_true[inner], on_false[inner]]))
    if sorted(names[n][0] for n in roots) != sorted({tree for tree, _ in names}):
        raise InvalidModel("a tree has no node to begin with, or several")
    values = _numbers(node, f"{leaf}_weights", must=True)
    _check_numbers(f"{leaf} {target}", node.require(f"{leaf}_{target}"), count)
    weights = numpy.full((len(names), count), numpy.nan, values.dtype)
    places = zip(
        node.require(f"{leaf}_treeids"), node.require(f"{leaf}_nodeids"),
        node.require(f"{leaf}_{target}"), values, strict=True,
    )  # fmt: skip
    for tree, k, column, weight in places:
        if (tree, k) not in number:
            raise InvalidModel(f"tree {tree} has no node {k}, to which it gives a weight")
        at = number[tree, k], column
        weights[at] = weight if numpy.isnan(weights[at]) else weights[at] + weight
    tracks = node.get("nodes_missing_value_tracks_true") or [0] * len(names)
    forest = Forest(
        modes,
        numpy.asarray(node.require("nodes_featureids"), numpy.int32),
        _numbers(node, "nodes_values", must=True),
        on_true,
        on_false,
        numpy.asarray(tracks, bool),
        [()] * len(names),
        weights,
        roots.astype(numpy.int32),
    )
    if numpy.unique(numpy.concatenate(list(forest.levels()))).size != len(names):
        raise InvalidModel("a tree has nodes that its first one does not lead to")
    return forest


def _in_floats(x: Array) -> Array:
    return x if x.dtype.kind == "float" else x.astype(dtypes.float32)


@learning_operator("TreeEnsembleRegressor")
def _regressor(node: Node, x: Array) -> Array:
    forest = _listed(node, "target", "ids", node.get("n_targets", 1))
    aggregate = str(node.get("aggregate_function", "SUM"))
    if aggregate not in _AGGREGATES:
        raise InvalidModel(f"the aggregate function {aggregate!r}: it is one of {_AGGREGATES}")
    found = scores(forest, _in_floats(x), aggregate, _numbers(node, "base_values"))
    return transformed(node, found).astype(dtypes.float32)


@learning_operator("TreeEnsembleClassifier")
def _classifier(node: Node, x: Array) -> list[Array]:
    classes = node.get("classlabels_int64s") or node.get("classlabels_strings") or ()
    ids = set(node.require("class_ids"))
    forest = _listed(node, "class", "ids", len(classes) or 1 + max(ids, default=0))
    base = _numbers(node, "base_values")
    x = _in_floats(x)
    if len(ids) > 1 or len(classes) != 2:
        return of_classes(node, classes, scores(forest, x, "SUM", base).astype(dtypes.float32))
    # One score stands for both classes, and says of which sign it is by those of the weights.
    base = None if base is None else base[-1:]
    found = scores(forest, x, "SUM", None)[:, min(ids) : min(ids) + 1]
    found = found if base is None else np.add(found, asarray(base).astype(found.dtype))
    is_share = bool((numpy.nan_to_num(forest.weights) >= 0).all())
    return of_one_score(node, classes, found.astype(dtypes.float32), is_share=is_share)


@learning_operator("TreeEnsemble", since=5)
def _ensemble(node: Node, x: Array) -> Array:
    splits = numpy.asarray(node.require("nodes_splits"))
    weights = numpy.asarray(node.require("leaf_weights"))
    inner, count = len(splits), len(weights)
    numbers = numpy.asarray(node.require("nodes_modes")).reshape(-1).astype(int)
    aggregate, transform = node.get("aggregate_function", 1), node.get("post_transform", 0)
    for what, given, names in (
        ("nodes_modes", numbers, _MODES),
        ("aggregate_function", [aggregate], _AGGREGATES),
        ("post_transform", [transform], _TRANSFORMS),
        ("leaf_targetids", node.require("leaf_targetids"), range(node.require("n_targets"))),
        ("tree_roots", node.require("tree_roots"), range(inner)),
    ):
        _check_numbers(what, given, len(names))
    modes = [_MODES[m] for m in numbers]

    def leads(way: str) -> Any:
        to = numpy.asarray(node.require(f"nodes_{way}nodeids"), numpy.int32)
        is_leaf = numpy.asarray(node.require(f"nodes_{way}leafs"), bool)
        _check_numbers(f"nodes_{way}nodeids", to[is_leaf], count)
        _check_numbers(f"nodes_{way}nodeids", to[~is_leaf], inner)
        return numpy.concatenate([numpy.where(is_leaf, to + inner, to), inner + numpy.arange(count)])

    members: list[list[float]] = [[] for _ in range(inner + count)]
    sets = iter(numpy.asarray(node.get("membership_values", [])).reshape(-1).tolist())
    for at, mode in enumerate(modes):  # each set ends with NaN
        if mode == "MEMBER":
            members[at] = list(takewhile(lambda v: v == v, sets))
    targets = numpy.full((inner + count, node.require("n_targets")), numpy.nan, weights.dtype)
    targets[inner + numpy.arange(count), node.require("leaf_targetids")] = weights
    tracks = node.get("nodes_missing_value_tracks_true") or [0] * inner
    none = numpy.zeros(count)
    forest = Forest(
        [*modes, *["LEAF"] * count],
        numpy.concatenate([node.require("nodes_featureids"), none]).astype(numpy.int32),
        numpy.concatenate([splits, none.astype(splits.dtype)]),
        leads("true").astype(numpy.int32),
        leads("false").astype(numpy.int32),
        numpy.concatenate([numpy.asarray(tracks, bool), none.astype(bool)]),
        members,
        targets,
        numpy.asarray(node.require("tree_roots"), numpy.int32),
    )
    found = scores(forest, _in_floats(x), _AGGREGATES[aggregate], None)
    return transformed(node, found, _TRANSFORMS[transform])
