"""Programs as JAX lowers them, each a module in HLO text, of which lint must find what breaks alone.

    python -m tests.data.make_lint

Needs jax (0.10.2 wrote what is here) and optax (0.2.8).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

FOLDER = Path(__file__).parent / "lint"


def flash_attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax of q·kᵀ by blocks of 16 keys, with a running maximum."""

    def step(carried: Any, block: Any) -> Any:
        m, total, o = carried
        keys, values = block
        s = q @ keys.T
        new = jnp.maximum(m, s.max(-1))
        scale, p = jnp.exp(m - new), jnp.exp(s - new[:, None])
        return (new, total * scale + p.sum(-1), o * scale[:, None] + p @ values), None

    start = jnp.full((8,), -jnp.inf), jnp.zeros(8), jnp.zeros((8, 16))
    (_, total, o), _ = lax.scan(step, start, (k.reshape(4, 16, 16), v.reshape(4, 16, 16)))
    return o / total[:, None]


def segment_softmax(x: Any, ids: Any) -> Any:
    e = jnp.exp(x - jax.ops.segment_max(x, ids, 10)[ids])
    return e / jax.ops.segment_sum(e, ids, 10)[ids]


def masked_attention_grad(q: Any, k: Any, v: Any, mask: Any) -> Any:
    def attention(q: Any) -> Any:
        s = jnp.where(mask[:, None, None, :], jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4.0, -1e4)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s), v).sum()

    return jax.grad(attention)(q)


def cumulative_scan(x: Any) -> Any:
    """log(sum(exp)) of each beginning, as a tree of maxima and sums."""

    def join(a: Any, b: Any) -> Any:
        m = jnp.maximum(a[0], b[0])
        return m, a[1] * jnp.exp(a[0] - m) + b[1] * jnp.exp(b[0] - m)

    return lax.associative_scan(join, (x, jnp.ones_like(x)))


def sums_by_place(x: Any, places: Any) -> Any:
    """Into a slice of what the loop carries."""

    def add(k: Any, total: Any) -> Any:
        row = lax.dynamic_slice(total, (places[k], 0), (1, 16))
        return lax.dynamic_update_slice(total, row + x[k][None], (places[k], 0))

    return lax.fori_loop(0, 500, add, jnp.zeros((4, 16)))


def _array(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def _grad(f: Callable[..., Any], *numbers: int) -> Callable[..., Any]:
    return jax.grad(lambda *x: f(*x).sum(), numbers)


_HEADS = _array(2, 4, 8, 16)
_INT = jnp.int32
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "flash_attention": (flash_attention, (_array(8, 16), _array(64, 16), _array(64, 16))),
    "segment_softmax": (segment_softmax, (_array(2000), _array(2000, dtype=_INT))),
    "masked_attention_grad": (
        masked_attention_grad, (_HEADS, _HEADS, _HEADS, _array(2, 8, dtype=jnp.bool_))),
    "ctc_loss_grad": (
        _grad(optax.ctc_loss, 0),
        (_array(2, 20, 8), _array(2, 20), _array(2, 6, dtype=_INT), _array(2, 6))),
    "logsumexp_where": (
        lambda x, w: jax.nn.logsumexp(x, axis=-1, where=w),
        (_array(8, 16), _array(8, 16, dtype=jnp.bool_))),
    "logaddexp_grad": (_grad(jnp.logaddexp, 0, 1), (_array(8), _array(8))),
    "softplus_grad": (_grad(jax.nn.softplus, 0), (_array(8),)),
    "logsumexp_grad": (_grad(lambda x: jax.nn.logsumexp(x, axis=-1), 0), (_array(8, 16),)),
    "cumulative_scan": (cumulative_scan, (_array(8, 4),)),
    "erfc": (lax.erfc, (_array(64),)),
    "elu": (jax.nn.elu, (_array(8),)),
    "embedding_grad": (
        _grad(lambda t, i: jnp.take(t, i, axis=0) ** 2, 0), (_array(16, 8), _array(2000, dtype=_INT))),
    "sums_by_place": (sums_by_place, (_array(500, 16), _array(500, dtype=_INT))),
}  # fmt: skip


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (f, shapes) in PROGRAMS.items():
        text = jax.jit(f).lower(*shapes).compiler_ir("hlo").as_hlo_text()
        (FOLDER / f"{name}.hlo").write_text(text)
