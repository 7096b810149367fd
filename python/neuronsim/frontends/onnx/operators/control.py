"""If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import (
    InvalidModel,
    NeuronSimError,
    UnknownValue,
    UnsupportedOperator,
    UnsupportedType,
)
from neuronsim.frontends import lax
from neuronsim.frontends.onnx import files
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import (
    axis_of,
    flipped,
    integers,
    is_known,
    moved_axis,
)
from neuronsim.frontends.tracer import value_of
from neuronsim.ops import ArrayType

SHORT = 16  # loops of no more steps are spelled out
FEW = 4  # steps of a scan, which needs no values, that are
MOST = 1 << 20  # steps of a loop that cannot be one of HLO's


def run_body(node: Node, graph: Any, inputs: Sequence[Any]) -> list[Array]:
    """The outputs of a graph that a node has as an attribute."""
    assert node.run_subgraph is not None
    if len(inputs) < len(graph.input):
        raise InvalidModel(f"{graph.name or 'the body'} takes {len(graph.input)} inputs")
    return node.run_subgraph(graph, inputs)


@operator("If")
def _if(node: Node, condition: Array) -> list[Array]:
    branches = [node.require(k) for k in ("then_branch", "else_branch")]
    test = np.reshape(condition, ())
    if is_known(test):
        return run_body(node, branches[0 if bool(test) else 1], [])
    given: list[list[ArrayType]] = []

    def run(branch: Any) -> tuple[Array, ...]:
        found = tuple(run_body(node, branch, []))
        if not _are_arrays(found):
            raise node.refuse("a branch gives a sequence or an optional")
        given.append([x.bits.type for x in found])
        return found

    def run_in(branch: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[Array, ...]:
        return tuple(np.reshape(x, d) for x, d in zip(run_body(node, branch, []), shapes, strict=True))

    try:
        return list(lax.cond(test, *(partial(run, b) for b in branches)))
    except UnknownValue:
        raise
    except NeuronSimError as error:  # such as a branch that is made for another shape
        shapes = _of_one_element(given)
        if shapes:
            return list(lax.cond(test, *(partial(run_in, b, shapes) for b in branches)))
        unknown = UnknownValue("which branch runs", value_of(test.bits))
        unknown.reader = f"{node.name} (If), of which one branch does not run here ({error}),"
        raise unknown from error


def _of_one_element(given: Sequence[Sequence[ArrayType]]) -> list[tuple[int, ...]]:
    """The shapes of the branches' results where they differ in how many axes of length 1 an element
    has: the longer ones. None of other differences.
    """
    if len(given) != 2 or len(given[0]) != len(given[1]):
        return []
    found = []
    for a, b in zip(*given, strict=True):
        alike = a.dims == b.dims or a.size == b.size == 1
        if a.dtype is not b.dtype or not alike:
            return []
        found.append(max(a.dims, b.dims, key=len))
    return found


# ---- Loop --------------------------------------------------------------------------------------------


@operator("Loop")
def _loop(node: Node, most: Array | None, condition: Array | None, *state: Array) -> list[Array]:
    body = node.require("body")
    stacked = len(body.output) - 1 - len(state)
    if stacked < 0 or len(body.input) < 2 + len(state):
        raise InvalidModel(f"the body of a loop over {len(state)} arrays gives {len(body.output)}")
    go = asarray(True) if condition is None else np.reshape(condition, ()).astype(dtypes.boolean)
    if most is not None and is_known(most, go):
        count = int(most.reshape(()))
        if count > SHORT and bool(go) and _are_arrays(state):
            found = _counted(node, body, count, list(state))
            if found is not None:
                return found
    elif not is_known(go) or most is not None:
        return _while(node, body, most, go, list(state), stacked)
    return _spelled_out(node, body, most, go, list(state), stacked)


def _are_arrays(state: Sequence[Any]) -> bool:
    """Whether what is carried is none of a sequence or an absent optional, which HLO does not carry."""
    return all(isinstance(s, Array) for s in state)


def _spelled_out(
    node: Node, body: Any, most: Array | None, go: Array, state: list[Array], stacked: int
) -> list[Array]:
    """One step after the other, while it is known whether there is another."""
    count = MOST if most is None else int(most.reshape(()))
    rows: list[list[Array]] = [[] for _ in range(stacked)]
    at = 0
    while at < count and bool(go):
        if at == MOST:
            raise node.refuse(f"has more than {MOST} steps")
        if at == SHORT and not stacked and _are_arrays(state) and not is_known(*state):
            most_left = None if most is None else asarray(count, dtypes.int64)
            return _while(node, body, most_left, go, state, stacked, at)
        test, *found = run_body(node, body, [asarray(at, dtypes.int64), go, *state])
        state, ys = found[: len(state)], found[len(state) :]
        for column, y in zip(rows, ys, strict=True):
            column.append(y)
        go = np.reshape(test, ())
        at += 1
        if not is_known(go):
            limit = None if most is None else asarray(count, dtypes.int64)
            return _while(node, body, limit, go, state, stacked, at)
    return [*state, *(_stacked(body, len(state) + n, c) for n, c in enumerate(rows))]


def _stacked(body: Any, number: int, rows: Sequence[Array]) -> Array:
    if rows:
        return np.stack(rows)
    of = body.output[1 + number].type.tensor_type
    dims = [d.dim_value for d in of.shape.dim]
    dtype = files.dtype_of(of.elem_type, "what the steps give")
    return np.zeros((0, *dims), dtype=dtype)


def _counted(node: Node, body: Any, count: int, state: list[Array]) -> list[Array] | None:
    """A loop of so many steps, if no step decides that it is the last; None of others, and of those
    whose steps are not all alike.
    """

    def step(carry: tuple[Array, ...], at: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        test, *found = run_body(node, body, [at, asarray(True), *carry])
        if not is_known(test) or not bool(np.reshape(test, ())):
            raise _NotCountedError
        return tuple(found[: len(state)]), tuple(found[len(state) :])

    if is_known(*state):  # whose values the steps may need
        return None
    try:
        numbers = asarray(numpy.arange(count))
        carry, ys = lax.scan(step, tuple(state), numbers)
    except (_NotCountedError, UnknownValue, UnsupportedType, UnsupportedOperator):
        return None
    return [*carry, *ys]


class _NotCountedError(Exception):
    pass


def _while(
    node: Node,
    body: Any,
    most: Array | None,
    go: Array,
    state: list[Array],
    stacked: int,
    start: int = 0,
) -> list[Array]:
    """A loop whose condition is computed while it runs."""
    if stacked or not _are_arrays(state):  # as many arrays as there are steps
        integers(go)
        integers(go if most is None else most)
        does = "stacks what its steps give" if stacked else "carries a sequence or an optional"
        raise node.refuse(f"{does}, and how many steps there are depends on values")
    limit = None if most is None else np.reshape(most, ()).astype(dtypes.int64)

    def goes_on(s: Any) -> Array:
        return s[1] if limit is None else np.logical_and(s[1], s[0] < limit)

    def step(s: Any) -> Any:
        test, *found = run_body(node, body, [s[0], s[1], *s[2]])
        return s[0] + 1, np.reshape(test, ()), tuple(found)

    begin = (asarray(start, dtypes.int64), go, tuple(state))
    return list(lax.while_loop(goes_on, step, begin)[2])


# ---- Scan --------------------------------------------------------------------------------------------


@operator("Scan", since=8)
def _scan_of_batches(node: Node, lengths: Array | None, *given: Array) -> list[Array]:
    """Each sample's own scan: the first axis is the batch's, the second the steps'."""
    count = node.require("num_scan_inputs")
    if lengths is not None and any(
        n != given[-1].shape[1] for n in numpy.asarray(lengths).reshape(-1).tolist()
    ):
        raise node.refuse("takes no sequences of different lengths")
    backwards = node.get("directions") or [0] * count
    samples = []
    for n in range(given[0].shape[0]):
        own = [x[n] for x in given]
        samples.append(_scanned(node, own[:-count], own[-count:], backwards, []))
    return [np.stack(column) for column in zip(*samples, strict=True)]


@operator("Scan", since=9)
def _scan(node: Node, *given: Array) -> list[Array]:
    count = node.require("num_scan_inputs")
    state, sequences = given[: len(given) - count], given[len(given) - count :]
    axes = node.get("scan_input_axes") or [0] * count
    lines = [moved_axis(x, axis_of(a, x.ndim), 0) for x, a in zip(sequences, axes, strict=True)]
    backwards = node.get("scan_input_directions") or [0] * count
    reversed_outputs = node.get("scan_output_directions") or []
    found = _scanned(node, state, lines, backwards, reversed_outputs)
    to = node.get("scan_output_axes") or [0] * (len(found) - len(state))
    ys = found[len(state) :]
    return [
        *found[: len(state)],
        *(moved_axis(y, 0, axis_of(a, y.ndim)) for y, a in zip(ys, to, strict=True)),
    ]


def _scanned(
    node: Node,
    state: Sequence[Array],
    lines: Sequence[Array],
    backwards: Sequence[int],
    reversed_outputs: Sequence[int],
) -> list[Array]:
    body = node.require("body")
    xs = [flipped(x, [0]) if b else x for x, b in zip(lines, backwards, strict=True)]

    def step(carry: tuple[Array, ...], pieces: Sequence[Array]) -> tuple[Any, Any]:
        found = run_body(node, body, [*carry, *pieces])
        return tuple(found[: len(state)]), tuple(found[len(state) :])

    carry, ys = steps(step, tuple(state), xs)
    turned = reversed_outputs or [0] * len(ys)
    return [*carry, *(flipped(y, [0]) if t else y for y, t in zip(ys, turned, strict=True))]


def steps(step: Any, carry: Any, xs: Sequence[Array]) -> tuple[Any, Any]:
    """A scan along the first axis of arrays: the steps of a short one one after the other."""
    count = xs[0].shape[0]
    if count > FEW:
        return lax.scan(step, carry, tuple(xs))
    columns: list[Any] = []
    for n in range(count):
        carry, ys = step(carry, [np.reshape(x[n : n + 1], x.shape[1:]) for x in xs])
        columns.append(ys)
    return carry, tuple(np.stack(column) for column in zip(*columns, strict=True))
