"""Connectionist temporal classification: the loss over all alignments of labels with steps of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.frontends import lax
from neuronsim.frontends.primitives import along, gathered_along, padded, where
from neuronsim.frontends.torch.table import Node, operator

_Lengths: TypeAlias = Array | Sequence[int]

_NEVER = -math.inf


def _added(*logarithms: Array) -> Array:
    """The logarithm of a sum; of nothing but zeros -Inf, without NaN."""
    most = logarithms[0]
    for x in logarithms[1:]:
        most = np.maximum(most, x)
    start = where(np.equal(most, _NEVER), 0, most).astype(most.dtype)
    total = np.exp(logarithms[0] - start)
    for x in logarithms[1:]:
        total = total + np.exp(x - start)
    return np.log(total) + start


def _moved(x: Array, by: int) -> Array:
    """The elements from so many places before, or behind, along the last axis."""
    before = (by, -by, 0)
    return padded(x, [(0, 0, 0)] * (x.ndim - 1) + [before], _NEVER)


class _Alignment:
    """Labels with a blank around each one, and what they have of each step's distribution."""

    def __init__(
        self, log_probs: Array, targets: Array, inputs: _Lengths, labels: _Lengths, blank: int
    ) -> None:
        self.inputs, self.labels = (asarray(x).astype(dtypes.int64) for x in (inputs, labels))
        steps, samples, classes = log_probs.shape
        known = targets.astype(dtypes.int64)
        if targets.ndim == 1:  # one sample's after the other's
            before = np.cumulative_sum(self.labels) - self.labels
            places = before[:, None] + np.arange(targets.shape[0])[None, :]
            last = max(targets.shape[0] - 1, 0)
            known = gathered_along(known, np.minimum(places, last), 0) if targets.shape[0] else known
            known = np.reshape(known, (samples, targets.shape[0]))
        known = np.minimum(np.maximum(known, 0), classes - 1)  # what pads them may be anything
        blanks = np.full(known.shape, blank, dtypes.int64)
        pairs = np.reshape(np.stack([blanks, known], axis=-1), (samples, 2 * known.shape[1]))
        self.line = np.concat([pairs, np.full((samples, 1), blank, dtypes.int64)], axis=1)
        self.count = self.line.shape[1]
        self.place = np.arange(self.count)[None, :]
        wide = np.broadcast_to(self.line[None], (steps, *self.line.shape))
        self.own = np.take_along_axis(log_probs, wide, axis=2)
        # A label may follow the one before it without a blank, if they are not the same.
        twice = np.equal(self.line[:, 2:], self.line[:, : self.count - 2])
        follows = np.logical_not(np.logical_or(np.equal(self.line[:, 2:], blank), twice))
        follows = follows if self.count > 2 else np.zeros((samples, 0), dtype=dtypes.boolean)
        no = np.zeros((samples, min(2, self.count)), dtype=dtypes.boolean)
        self.skips = np.concat([no, follows], axis=1)
        self.is_skipped = np.concat([follows, no], axis=1)

    def forward(self) -> Array:
        """For each step and place the logarithm of what leads there."""
        may = np.logical_and(
            np.less(self.place, 2), np.less_equal(self.place, 2 * self.labels[:, None])
        )
        start = where(may, self.own[0], _NEVER)

        def step(before: Array, own: Array) -> tuple[Array, Array]:
            jump = where(self.skips, _moved(before, 2), _NEVER)
            found = _added(before, _moved(before, 1), jump) + own
            return found, found

        return _with_rest(start, lax.scan(step, start, self.own[1:]) if len(self.own) > 1 else None)

    def backward(self) -> Array:
        """For each step and place the logarithm of what leads from there to the end."""
        last = np.equal(self.place, 2 * self.labels[:, None])
        last = np.logical_or(last, np.equal(self.place, 2 * self.labels[:, None] - 1))
        nothing = np.full(last.shape, _NEVER, self.own.dtype)
        times = np.arange(self.own.shape[0])

        def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            own, time = now
            jump = where(self.is_skipped, _moved(after, -2), _NEVER)
            found = _added(after, _moved(after, -1), jump) + own
            left = (self.inputs - 1 - time)[:, None]
            found = where(np.equal(left, 0), where(last, own, _NEVER), found)
            found = where(np.less(left, 0), _NEVER, found)
            return found, found

        found: Array = lax.scan(step, nothing, (self.own, times), reverse=True)[1]
        return found

    def losses(self, sums: Array) -> Array:
        """The negative logarithm of what leads to the last label, or to the blank behind it."""
        steps = np.maximum(self.inputs - 1, 0)
        at = np.broadcast_to(steps[None, :, None], (1, *sums.shape[1:]))
        final = np.take_along_axis(sums, at, axis=0)[0]
        ends = []
        for back in (0, 1):
            here = np.equal(self.place, 2 * self.labels[:, None] - back)
            ends.append(np.max(where(here, final, _NEVER), axis=1))
        loss = -_added(*ends)
        without = where(np.equal(self.labels, 0), 0, math.inf).astype(loss.dtype)
        return where(np.equal(self.inputs, 0), without, loss)


def _with_rest(first: Array, rest: tuple[Any, Array] | None) -> Array:
    return first[None] if rest is None else np.concat([first[None], rest[1]], axis=0)


@operator("aten._ctc_loss.default", "aten._ctc_loss.Tensor")
def _ctc_loss(
    node: Node,
    log_probs: Array,
    targets: Array,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array]:
    """The losses, and for their gradient what leads to each place: sample, step and place."""
    aligned = _Alignment(log_probs, targets, input_lengths, target_lengths, blank)
    sums = aligned.forward()
    return aligned.losses(sums), np.permute_dims(sums, (1, 0, 2))


@operator("aten._ctc_loss_backward.default", "aten._ctc_loss_backward.Tensor")
def _ctc_loss_backward(
    node: Node,
    gradient: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    losses: Array,
    sums: Array,
    blank: int,
    zero_infinity: bool = False,
) -> Array:
    """As PyTorch has it, of log_probs that a softmax gave."""
    aligned = _Alignment(log_probs, targets, input_lengths, target_lengths, blank)
    classes = log_probs.shape[2]
    through = aligned.forward() + aligned.backward() - aligned.own
    share = np.exp(through + losses[:, None])  # of each place in the loss
    is_class = np.equal(aligned.line[:, :, None], np.arange(classes)).astype(share.dtype)
    # time, sample, place by place, class
    used = np.permute_dims(np.matmul(np.permute_dims(share, (1, 0, 2)), is_class), (1, 0, 2))
    found = (np.exp(log_probs) - used) * gradient[:, None]
    time = along(np.arange(log_probs.shape[0]), 0, 3)
    counts = np.less(time, aligned.inputs[:, None])
    if zero_infinity:
        counts = np.logical_and(counts, np.not_equal(losses, math.inf)[:, None])
    return where(counts, found, 0).astype(log_probs.dtype)
