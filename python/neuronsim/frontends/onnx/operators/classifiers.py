"""Linear models and support vector machines (ai.onnx.ml), and the labels and scores of classifiers.
Labels that are texts are given as their numbers in the list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.lax import fori_loop
from neuronsim.frontends.onnx.table import Node, learning_operator
from neuronsim.frontends.primitives import gathered_along, joined, where

# ---- scores ------------------------------------------------------------------------------------------


def transformed(node: Node, scores: Array, transform: str | None = None) -> Array:
    """The scores [sample, class] by the node's post_transform."""
    match transform := transform or str(node.get("post_transform", "NONE")):
        case "NONE":
            return scores
        case "LOGISTIC":
            return np.sigmoid(scores)
        case "SOFTMAX":
            return nn.softmax(scores, axis=-1)
        case "SOFTMAX_ZERO":  # what is zero stays so
            counts = np.greater(np.abs(scores), asarray(1e-7, scores.dtype))
            e = np.exp(np.subtract(scores, np.max(scores, axis=-1, keepdims=True)))
            e = where(counts, e, asarray(0, e.dtype))
            total = np.sum(e, axis=-1, keepdims=True)
            return np.divide(e, where(np.equal(total, 0), asarray(1, e.dtype), total))
        case _:
            raise node.refuse(f"with the post_transform {transform!r}")


def of_classes(node: Node, classes: Sequence[Any], scores: Array) -> list[Array]:
    """The labels of the greatest scores, the first of equals, and the scores."""
    return [_label(classes, np.argmax(scores, axis=1)), transformed(node, scores)]


def of_one_score(node: Node, classes: Sequence[Any], score: Array, *, is_share: bool) -> list[Array]:
    """Labels and scores of two classes by one score [sample, 1] of the second: its share, from 0 to 1,
    or its distance from zero.
    """
    middle = asarray(0.5 if is_share else 0.0, score.dtype)
    label = np.greater(score[:, 0], middle).astype(dtypes.int64)
    if is_share and node.get("post_transform", "NONE") != "LOGISTIC":
        both = joined([np.subtract(asarray(1, score.dtype), score), score], 1)
        return [_label(classes, label), both]
    both = joined([np.negative(score), score], 1)
    return [_label(classes, label), transformed(node, both)]


def _label(classes: Sequence[Any], number: Array) -> Array:
    if not classes or isinstance(classes[0], str | bytes):
        return number.astype(dtypes.int64)
    return gathered_along(asarray(numpy.asarray(classes, numpy.int64)), number, 0)


# ---- linear models -----------------------------------------------------------------------------------


def _linear(node: Node, x: Array) -> Array:
    x = x.astype(dtypes.float32)
    weights = asarray(node.require("coefficients"), dtypes.float32)
    found = np.matmul(x, np.matrix_transpose(np.reshape(weights, (-1, x.shape[1]))))
    bias = node.get("intercepts")
    return np.add(found, asarray(bias, dtypes.float32)) if bias else found


@learning_operator("LinearRegressor")
def _linear_regressor(node: Node, x: Array) -> Array:
    return transformed(node, _linear(node, np.reshape(x, (-1, x.shape[-1]))))


@learning_operator("LinearClassifier")
def _linear_classifier(node: Node, x: Array) -> list[Array]:
    classes = node.get("classlabels_ints") or node.get("classlabels_strings") or ()
    scores = _linear(node, np.reshape(x, (-1, x.shape[-1])))
    if scores.shape[1] > 1 or len(classes) != 2:
        return of_classes(node, classes, scores)
    return of_one_score(node, classes, scores, is_share=False)


# ---- support vector machines -------------------------------------------------------------------------


def _kernel(node: Node, x: Array, vectors: Array) -> Array:
    """Of each sample and each vector."""
    kind = str(node.get("kernel_type", "LINEAR"))
    gamma, coef0, degree = (float(v) for v in node.get("kernel_params") or (0.0, 0.0, 0.0))
    if kind == "RBF":
        apart = np.subtract(np.expand_dims(x, 1), vectors)
        return np.exp(np.multiply(np.sum(np.multiply(apart, apart), axis=2), -gamma))
    dots = np.matmul(x, np.matrix_transpose(vectors))
    match kind:
        case "LINEAR":
            return dots
        case "POLY":
            return np.power(np.add(np.multiply(dots, gamma), coef0), degree)
        case "SIGMOID":
            return np.tanh(np.add(np.multiply(dots, gamma), coef0))
    raise InvalidModel(f"the kernel {kind!r}: it is LINEAR, POLY, RBF or SIGMOID")


def _machine(node: Node, x: Array, count: int) -> tuple[Array, Array]:
    """The kernel of each sample with the support vectors, and their coefficients; of a linear machine,
    which has none, the samples and the weights.
    """
    x = np.reshape(x.astype(dtypes.float32), (-1, x.shape[-1]))
    weights = asarray(node.require("coefficients"), dtypes.float32)
    if count == 0:
        return x, np.reshape(weights, (-1, x.shape[1]))
    vectors = np.reshape(asarray(node.require("support_vectors"), dtypes.float32), (count, -1))
    return _kernel(node, x, vectors), np.reshape(weights, (-1, count))


@learning_operator("SVMRegressor")
def _svm_regressor(node: Node, x: Array) -> Array:
    kernel, weights = _machine(node, x, node.get("n_supports", 0))
    found = np.add(np.matmul(kernel, np.matrix_transpose(weights)), float(node.require("rho")[0]))
    if node.get("one_class", 0):
        one = asarray(1, found.dtype)
        return where(np.greater(found, 0), one, np.negative(one))
    return transformed(node, found)


@learning_operator("SVMClassifier")
def _svm_classifier(node: Node, x: Array) -> list[Array]:
    classes = node.get("classlabels_ints") or node.get("classlabels_strings") or ()
    counts, rho = list(node.get("vectors_per_class") or ()), node.require("rho")
    kernel, weights = _machine(node, x, sum(counts))
    if not counts:
        scores = np.add(np.matmul(kernel, np.matrix_transpose(weights)), float(rho[0]))
        if scores.shape[1] == 1 and len(classes) == 2:
            return of_one_score(node, classes, scores, is_share=False)
        return of_classes(node, classes, scores)
    starts = numpy.cumsum([0, *counts])
    own = [slice(int(starts[i]), int(starts[i + 1])) for i in range(len(counts))]
    pairs = list(combinations(range(len(counts)), 2))
    columns = numpy.zeros((sum(counts), len(pairs)), numpy.float32)
    known = numpy.asarray(weights)
    for n, (i, j) in enumerate(pairs):
        columns[own[i], n] = known[j - 1, own[i]]
        columns[own[j], n] = known[i, own[j]]
    scores = np.add(np.matmul(kernel, asarray(columns)), asarray(rho, dtypes.float32))
    wins = np.greater(scores, asarray(0, scores.dtype)).astype(dtypes.float32)
    ballots = numpy.zeros((2, len(pairs), len(counts)), numpy.float32)
    for n, (i, j) in enumerate(pairs):
        ballots[0, n, i] = ballots[1, n, j] = 1
    lost = np.subtract(asarray(1, wins.dtype), wins)
    votes = np.add(np.matmul(wins, asarray(ballots[0])), np.matmul(lost, asarray(ballots[1])))
    label = np.argmax(votes, axis=1)
    if node.get("prob_a"):
        scores = _shares(node, scores, len(counts), pairs)
    elif len(classes) == 2:
        scores = joined([np.negative(scores), scores], 1)
    return [_label(classes, label), transformed(node, scores)]


def _shares(node: Node, scores: Array, count: int, pairs: Sequence[tuple[int, int]]) -> Array:
    """The classes' probabilities of those of each pair (Platt's)."""
    a, b = (asarray(node.require(n), dtypes.float32) for n in ("prob_a", "prob_b"))
    of_first = np.sigmoid(np.negative(np.add(np.multiply(scores, a), b)))
    of_first = np.clip(of_first, 1e-7, 1 - 1e-7)
    of_second = np.subtract(asarray(1, scores.dtype), of_first)
    none = asarray(numpy.zeros(1, numpy.float32))
    place = {pair: n for n, pair in enumerate(pairs)}

    def share(i: int, j: int) -> Array:
        if i == j:
            return np.broadcast_to(none, (scores.shape[0],))
        return of_first[:, place[i, j]] if i < j else of_second[:, place[j, i]]

    r = np.stack([np.stack([share(i, j) for j in range(count)], 1) for i in range(count)], 1)
    return _coupled(r)


def _coupled(r: Array) -> Array:
    """The probabilities [sample, class] whose quotients are nearest to those of pairs [sample, class,
    class]: the iteration of Wu, Lin and Weng (2004), until no component is off by 0.005 / classes, or
    100 times, as libsvm has it.
    """
    count = r.shape[1]
    turned = np.matrix_transpose(r)
    diagonal = numpy.eye(count, dtype=bool)
    squares = np.expand_dims(np.sum(np.multiply(turned, turned), axis=2), 2)
    q = where(asarray(diagonal), squares, np.negative(np.multiply(turned, r)))
    limit = asarray(0.005 / count, r.dtype)

    def step(_: Any, p: Array) -> Array:
        qp = np.sum(np.multiply(q, np.expand_dims(p, 1)), axis=2)
        pqp = np.sum(np.multiply(p, qp), axis=1, keepdims=True)
        off = np.max(np.abs(np.subtract(qp, pqp)), axis=1, keepdims=True)
        new = p
        for t in range(count):
            of_t, own = qp[:, t : t + 1], q[:, t, t : t + 1]
            by = np.divide(np.subtract(pqp, of_t), own)
            total = np.add(by, asarray(1, p.dtype))
            grown = np.add(pqp, np.multiply(by, np.add(np.multiply(by, own), np.add(of_t, of_t))))
            pqp = np.divide(grown, np.multiply(total, total))
            qp = np.divide(np.add(qp, np.multiply(by, q[:, t, :])), total)
            added = np.multiply(by, asarray(diagonal[t].astype(numpy.float32)))
            new = np.divide(np.add(new, added), total)
        return where(np.less(off, limit), p, new)

    start = asarray(numpy.full((r.shape[0], count), 1 / count, numpy.float32))
    found: Array = fori_loop(0, max(100, count), step, start)
    return found
