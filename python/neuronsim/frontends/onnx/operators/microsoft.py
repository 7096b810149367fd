"""The fused operators that onnxruntime's optimiser of transformers writes (com.microsoft), by their
definitions in its docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from functools import partial

import numpy

from neuronsim import arrays as np
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.operators.indexing import written
from neuronsim.frontends.onnx.table import MICROSOFT, Node, operator
from neuronsim.frontends.primitives import (
    gathered_along,
    integers,
    is_known,
    joined,
    padded,
    part,
    taken,
)

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
    node: Node,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    bias: Array | None,
    kept: Array | None = None,
    sink: Array | None = None,
) -> Array:
    """softmax(query key^T scale + bias + mask) value, the heads side by side again; of the keys that
    are `kept`, with a score for none of them (`sink`). Heads of the query may share those of the keys.
    """
    batch, count, length, _ = query.shape
    scale = float(node.get("scale", 0.0)) or 1 / math.sqrt(query.shape[-1])
    together = _of_shared_heads(query, key.shape[1])
    scores = np.matmul(together, np.matrix_transpose(key)) * scale
    scores = np.reshape(scores, (batch, count, length, key.shape[2]))
    cap = float(node.get("softcap", 0.0))
    scores = np.tanh(scores / cap) * cap if cap else scores
    scores = scores if bias is None else scores + bias
    if mask is not None:
        scores = scores + mask
    if node.get("unidirectional", 0):
        rows, columns = scores.shape[-2:]
        later = np.triu(np.ones((rows, columns), dtype="bool"), columns - rows + 1)
        scores = np.where(later, float("-inf"), scores)
    if kept is not None:
        scores = np.where(kept, scores, float("-inf"))
    if sink is not None:
        scores = joined([scores, np.broadcast_to(sink, (batch, count, length, 1))], 3)
    weights = part(nn.softmax(scores), 3, 0, key.shape[2])
    mixed = np.matmul(_of_shared_heads(weights, key.shape[1]), value)
    mixed = np.reshape(mixed, (batch, count, length, value.shape[3]))
    return np.reshape(np.permute_dims(mixed, (0, 2, 1, 3)), (batch, length, count * value.shape[3]))


def _of_shared_heads(x: Array, count: int) -> Array:
    """[batch, heads, length, size] with the rows of the heads that share one below each other."""
    batch, heads, length, size = x.shape
    return x if heads == count else np.reshape(x, (batch, count, heads // count * length, size))


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
) -> list[Array]:
    if any(m is not None for m in more):
        raise node.refuse("with a cache that past and present share: neuronsim takes one that grows")
    if node.get("do_rotary", 0):
        raise node.refuse("with rotary embedding (do_rotary): neuronsim takes none")
    together = np.matmul(x, weights) if bias is None else np.matmul(x, weights) + bias
    return attended(node, together, mask, added, past)


def attended(
    node: Node, together: Array, mask: Array | None, added: Array | None, past: Array | None = None
) -> list[Array]:
    """Attention of the projections of query, key and value side by side, and all keys and values."""
    count = int(node.require("num_heads"))
    sizes = node.get("qkv_hidden_sizes") or [together.shape[-1] // 3] * 3
    parts = np.split(together, [sizes[0], sizes[0] + sizes[1]], axis=-1)
    query, key, value = (_heads(part, count) for part in parts)
    if past is not None:
        key, value = joined([past[0], key], 2), joined([past[1], value], 2)
    added_mask = _mask_of(node, mask, key.shape[2], together.dtype.name)
    found = [_attend(node, query, key, value, added_mask, added)]
    return [*found, np.stack([key, value])] if node.wants(1) else found


@fused("MultiHeadAttention")
def _multi_head_attention(
    node: Node,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    added: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *more: Array | None,
) -> list[Array]:
    if key is None or value is None:
        raise node.refuse("with packed inputs: neuronsim takes query, key and value")
    if any(m is not None for m in more) or node.wants(3):
        raise node.refuse(
            "with a cache that past and present share, or with the scores (qk): neuronsim takes a "
            "cache that grows"
        )
    if (past_key is None) != (past_value is None):
        raise InvalidModel("has one of past_key and past_value alone")
    count = int(node.require("num_heads"))
    if bias is not None:
        sizes = [query.shape[-1], query.shape[-1] + query.shape[-1]]
        of_query, of_key, of_value = np.split(bias, sizes)
        query, key, value = query + of_query, key + of_key, value + of_value
    keys, values = (x if x.ndim == 4 else _heads(x, count) for x in (key, value))
    if past_key is not None and past_value is not None:
        keys, values = joined([past_key, keys], 2), joined([past_value, values], 2)
    added_mask = _mask_of(node, mask, keys.shape[2], query.dtype.name)
    return [_attend(node, _heads(query, count), keys, values, added_mask, added), keys, values]


# ---- attention of a cache, whose heads share keys ---------------------------------------------------


@fused("GroupQueryAttention")
def _group_query_attention(
    node: Node,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    ends: Array,
    total: Array,
    cos: Array | None = None,
    sin: Array | None = None,
    position_ids: Array | None = None,
    bias: Array | None = None,
    head_sink: Array | None = None,
    *more: Array | None,
) -> list[Array]:
    """`ends` are the places of each sample's last keys; the new ones lie up to it, in the cache too."""
    _check_cache(node, more)
    if (past_key is None) != (past_value is None):
        raise InvalidModel("has one of past_key and past_value alone")
    count, shared = int(node.require("num_heads")), int(node.require("kv_num_heads"))
    queries, keys, values = _separated(query, key, value, count, shared)
    length = queries.shape[2]
    (all_,) = integers(total)
    starts = _starts(ends, length, all_)
    places = np.expand_dims(starts, 1) + asarray(numpy.arange(length, dtype=numpy.int32))
    if node.get("do_rotary", 0):
        if cos is None or sin is None:
            raise InvalidModel("rotates (do_rotary) without cos_cache and sin_cache")
        turns = places if position_ids is None else position_ids
        if position_ids is not None and length == all_:  # of a prompt the first one counts alone
            turns = position_ids[:1, :1] + asarray(numpy.arange(length))
        angles = _at(cos, turns), _at(sin, turns)
        interleaved = bool(node.get("rotary_interleaved", 0))
        queries, keys = (_rotated(x, *angles, interleaved) for x in (queries, keys))
    keys = _appended(past_key, keys, starts, places, all_)
    values = _appended(past_value, values, starts, places, all_)
    if bias is not None:
        bias = padded(bias, [(0, 0, 0)] * 3 + [(0, keys.shape[2] - bias.shape[3], 0)])
    sink = None
    if head_sink is not None:
        sink = np.reshape(head_sink, (1, count, 1, 1))
    elif node.get("smooth_softmax", 0) == 1:
        sink = np.zeros((1, 1, 1, 1), dtype=queries.dtype)
    kept = _kept(node, keys.shape[2], places, ends)
    return [_attend(node, queries, keys, values, None, bias, kept, sink), keys, values]


def _check_cache(node: Node, more: tuple[Array | None, ...]) -> None:
    """Raises UnsupportedOperator for the forms of a cache that onnxruntime has on some devices only."""
    names = ("k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens")
    given = [name for name, x in zip(names, more, strict=False) if x is not None]
    kinds = ("k_quant_type", "v_quant_type")
    given += [name for name in kinds if node.get(name, "NONE") not in ("NONE", "")]
    given += ["sliding_window_cache"] if node.get("sliding_window_cache", 0) else []
    given += ["output_qk"] if node.wants(3) else []
    if given:
        raise node.refuse(
            f"with {', '.join(given)}: neuronsim takes caches of floats that hold all keys. Export the "
            "model without"
        )


def _separated(
    query: Array, key: Array | None, value: Array | None, count: int, shared: int
) -> list[Array]:
    """Query, key and value [batch, heads, length, size], also of where they are side by side."""
    if count < 1 or shared < 1 or count % shared:
        raise InvalidModel(f"{count} heads of the query share {shared} of the keys")
    if key is None or value is None:
        if key is not None or value is not None or query.shape[2] % (count + 2 * shared):
            raise InvalidModel(
                f"query, key and value of {count} and {shared} heads in {query.bits.type}"
            )
        size = query.shape[2] // (count + 2 * shared)
        query, key, value = np.split(query, [count * size, (count + shared) * size], axis=-1)
    parts = ((query, count), (key, shared), (value, shared))
    if any(x.ndim != 3 or x.shape[2] % n for x, n in parts):
        shapes = ", ".join(str(x.bits.type) for x, _ in parts)
        raise InvalidModel(f"query, key and value of {count} and {shared} heads are {shapes}")
    return [_heads(x, n) for x, n in parts]


def _starts(ends: Array, length: int, total: int) -> Array:
    """Where the new keys of each sample begin: one place where it is known that all have the same."""
    if length == total:
        return asarray(numpy.zeros(1, numpy.int32))
    starts = np.maximum(np.reshape(ends, (-1,)).astype(dtypes.int32) + (1 - length), 0)
    return starts[:1] if is_known(starts) and len(set(integers(starts))) == 1 else starts


def _appended(past: Array | None, new: Array, starts: Array, places: Array, total: int) -> Array:
    """A cache with new keys, or values, at each sample's places; what it has behind them stays."""
    before = new[:, :, :0] if past is None else past
    count = new.shape[2]
    rest = max(total - before.shape[2], 0)
    whole = padded(before, [(0, 0, 0), (0, 0, 0), (0, rest, 0), (0, 0, 0)])
    if not (is_known(starts) and starts.size == 1):
        return written(whole, new, places, 2)
    (start,) = integers(starts)
    length = whole.shape[2]
    if start > before.shape[2] or start + count > length:
        raise InvalidModel(f"{count} keys after {start}, of {before.shape[2]} in the cache and {total}")
    return joined([part(whole, 2, 0, start), new, part(whole, 2, start + count, length)], 2)


def _kept(node: Node, length: int, places: Array, ends: Array) -> Array:
    """Which keys each query sees: those up to its own place, and no further back than the window."""
    keys = asarray(numpy.arange(length, dtype=numpy.int32))
    own = np.expand_dims(places, (1, 3))
    window = int(node.get("local_window_size", -1))
    if not node.get("causal", 1):
        return np.less_equal(keys, np.reshape(ends, (-1, 1, 1, 1)))
    kept = np.less_equal(keys, own)
    return kept if window < 0 else np.logical_and(kept, np.greater(keys, own - window))


# ---- rotary embedding -------------------------------------------------------------------------------


def _at(table: Array, places: Array) -> Array:
    """The rows of a table at places [batch, length]."""
    if is_known(places):
        rows = taken(table, integers(places), 0)
        return np.reshape(rows, (*places.shape, table.shape[1]))
    return gathered_along(table, places, 0)


def _rotated(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """[batch, heads, length, size], whose first pairs of elements are turned by the angles of their
    places [batch, length, half as many].
    """
    half = cos.shape[-1]
    if x.shape[3] < 2 * half or cos.shape != sin.shape:
        raise InvalidModel(f"rotates heads of {x.shape[3]} by {cos.bits.type} and {sin.bits.type}")
    first = part(x, 3, 0, 2 * half, 2) if interleaved else part(x, 3, 0, half)
    second = part(x, 3, 1, 2 * half, 2) if interleaved else part(x, 3, half, 2 * half)
    cos, sin = (np.expand_dims(t, 1) for t in (cos, sin))
    turned = [first * cos - second * sin, first * sin + second * cos]
    if interleaved:
        turned = [np.reshape(np.stack(turned, axis=-1), (*x.shape[:3], 2 * half))]
    return joined([*turned, part(x, 3, 2 * half, x.shape[3])], 3)


@fused("RotaryEmbedding")
def _rotary_embedding(node: Node, x: Array, places: Array, cos: Array, sin: Array) -> Array:
    """`places` are those of each sample, or where all of them begin."""
    if node.get("is_packed_batching", 0) or float(node.get("scale", 1.0)) != 1:
        raise node.refuse(
            "with is_packed_batching or a scale, which onnxruntime has on some devices only: export "
            "the model without"
        )
    turned = int(node.get("rotary_embedding_dim", 0)) or 2 * cos.shape[1]
    if turned != 2 * cos.shape[1]:
        raise InvalidModel(f"rotates {turned} elements of each head by {cos.bits.type}")
    count = int(node.get("num_heads", 0)) or max(x.shape[2] // turned, 1)
    if x.ndim not in (3, 4) or (x.ndim == 3 and x.shape[2] % count):
        raise InvalidModel(f"rotates the heads of {x.bits.type}")
    heads = _heads(x, count) if x.ndim == 3 else x
    if places.size == 1 and places.ndim < 2:
        places = np.reshape(places, (1, 1)) + asarray(numpy.arange(heads.shape[2]))
    interleaved = bool(node.get("interleaved", 0))
    found = _rotated(heads, _at(cos, places), _at(sin, places), interleaved)
    return found if x.ndim == 4 else np.reshape(np.permute_dims(found, (0, 2, 1, 3)), x.shape)
