"""The fused operators that onnxruntime's optimiser of transformers writes (com.microsoft), by their
definitions in its docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from functools import partial

from neuronsim import arrays as np
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.frontends.onnx.table import MICROSOFT, Node, operator

fused = partial(operator, domain=MICROSOFT)
MASKED = -10000.0  # what is added to scores that a mask leaves out (mask_filter_value)


fused("Gelu")(lambda node, x: nn.gelu(x))
fused("BiasGelu")(lambda node, x, bias: nn.gelu(x + bias))
fused("FastGelu")(lambda node, x, bias=None: nn.gelu(x if bias is None else x + bias, "tanh"))
fused("QuickGelu")(lambda node, x: x * np.sigmoid(x * float(node.get("alpha", 1.702))))


@fused("FusedMatMul")
def _fused_matmul(node: Node, a: Array, b: Array) -> Array:
    if node.get("transBatchA", 0) or node.get("transBatchB", 0):
        raise node.refuse("transposes batches: neuronsim takes transA and transB")
    a = np.matrix_transpose(a) if node.get("transA", 0) and a.ndim > 1 else a
    b = np.matrix_transpose(b) if node.get("transB", 0) and b.ndim > 1 else b
    alpha = float(node.get("alpha", 1.0))
    found = np.matmul(a, b)
    return found if alpha == 1 else found * alpha


# ---- norms ------------------------------------------------------------------------------------------


@operator("SimplifiedLayerNormalization")
def _simplified_layer_norm(node: Node, x: Array, scale: Array) -> Array:
    if node.get("axis", -1) not in (-1, x.ndim - 1):
        raise node.refuse("normalises more than the last axis")
    return nn.rms_norm(x, scale, epsilon=node.get("epsilon", 1e-5))


def _with_skip(x: Array, skip: Array, bias: Array | None) -> Array:
    total = x + np.reshape(skip, (1,) * (x.ndim - skip.ndim) + skip.shape)
    return total if bias is None else total + bias


@fused("SkipLayerNormalization")
def _skip_layer_norm(
    node: Node,
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
) -> list[Array | None]:
    total = _with_skip(x, skip, bias)
    return [nn.layer_norm(total, gamma, beta, node.get("epsilon", 1e-12)), None, None, total]


@fused("SkipSimplifiedLayerNormalization")
def _skip_simplified_layer_norm(
    node: Node, x: Array, skip: Array, gamma: Array, bias: Array | None = None
) -> list[Array | None]:
    total = _with_skip(x, skip, bias)
    return [nn.rms_norm(total, gamma, epsilon=node.get("epsilon", 1e-5)), None, None, total]


@fused("EmbedLayerNormalization")
def _embed_layer_norm(
    node: Node,
    ids: Array,
    segments: Array | None,
    words: Array,
    positions: Array,
    segment_rows: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
) -> list[Array]:
    places = positions[: ids.shape[1]] if position_ids is None else np.take(positions, position_ids, 0)
    total = np.take(words, ids, axis=0) + places
    if segments is not None and segment_rows is not None:
        total = total + np.take(segment_rows, segments, axis=0)
    found = nn.layer_norm(total, gamma, beta, node.get("epsilon", 1e-12))
    kept = np.zeros(ids.shape[0], dtype="int32") if mask is None else np.sum(mask, axis=1)
    return [found, np.astype(kept, "int32"), total]


# ---- attention --------------------------------------------------------------------------------------


def _heads(x: Array, count: int) -> Array:
    """[batch, length, count * size] as [batch, count, length, size]."""
    return np.permute_dims(np.reshape(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def _attend(
    node: Node, query: Array, key: Array, value: Array, mask: Array | None, bias: Array | None
) -> Array:
    """softmax(query key^T scale + bias + mask) value, the heads side by side again."""
    scale = float(node.get("scale", 0.0)) or 1 / math.sqrt(query.shape[-1])
    scores = np.matmul(query, np.matrix_transpose(key)) * scale
    scores = scores if bias is None else scores + bias
    if mask is not None:
        scores = scores + mask
    if node.get("unidirectional", 0):
        rows, columns = scores.shape[-2:]
        later = np.triu(np.ones((rows, columns), dtype="bool"), columns - rows + 1)
        scores = np.where(later, float("-inf"), scores)
    mixed = np.matmul(nn.softmax(scores), value)
    batch, count, length, size = mixed.shape
    return np.reshape(np.permute_dims(mixed, (0, 2, 1, 3)), (batch, length, count * size))


def _mask_of(node: Node, given: Array | None, length: int, dtype: str) -> Array | None:
    """What a mask adds to the scores: 0 where it is 1, else `mask_filter_value`."""
    if given is None:
        return None
    if given.ndim == 1:  # how long each sequence is
        given = np.less(np.arange(length), given[:, None])
    elif given.ndim > 3:
        raise node.refuse(f"has a mask of {given.ndim} axes: neuronsim takes one to three")
    kept = given[:, None, None, :] if given.ndim == 2 else given[:, None]
    filtered = float(node.get("mask_filter_value", MASKED))
    return np.astype(np.where(np.not_equal(kept, 0), 0.0, filtered), dtype)


@fused("Attention")
def _attention(
    node: Node,
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    added: Array | None = None,
    *more: Array | None,
) -> Array:
    if past is not None or any(m is not None for m in more):
        raise node.refuse("with a past state: neuronsim takes none")
    if node.get("do_rotary", 0):
        raise node.refuse("with rotary embedding (do_rotary): neuronsim takes none")
    together = np.matmul(x, weights) if bias is None else np.matmul(x, weights) + bias
    return attended(node, together, mask, added)


def attended(node: Node, together: Array, mask: Array | None, added: Array | None) -> Array:
    """Attention of the projections of query, key and value side by side."""
    count = int(node.require("num_heads"))
    sizes = node.get("qkv_hidden_sizes") or [together.shape[-1] // 3] * 3
    parts = np.split(together, [sizes[0], sizes[0] + sizes[1]], axis=-1)
    query, key, value = (_heads(part, count) for part in parts)
    added_mask = _mask_of(node, mask, together.shape[1], together.dtype.name)
    return _attend(node, query, key, value, added_mask, added)


@fused("MultiHeadAttention")
def _multi_head_attention(
    node: Node,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    added: Array | None = None,
    *more: Array | None,
) -> Array:
    if key is None or value is None or any(m is not None for m in more):
        raise node.refuse("with packed inputs or a past state: neuronsim takes query, key and value")
    count = int(node.require("num_heads"))
    if bias is not None:
        sizes = [query.shape[-1], query.shape[-1] + query.shape[-1]]
        of_query, of_key, of_value = np.split(bias, sizes)
        query, key, value = query + of_query, key + of_key, value + of_value
    keys, values = (x if x.ndim == 4 else _heads(x, count) for x in (key, value))
    added_mask = _mask_of(node, mask, keys.shape[2], query.dtype.name)
    return _attend(node, _heads(query, count), keys, values, added_mask, added)
