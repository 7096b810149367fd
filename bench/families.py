"""Small networks of many families against XLA on one thread: loops, sorting, gathering, random numbers.

pip install ".[peers]"
python -m bench.families [--only NAME]... [--rounds N] [--json FILE]

What costs here is seldom a product: trips of loops, single elements at computed places, chains of
integers. XLA runs the same jitted function on the same inputs, and the two take turns; a ratio is XLA's
time over ours (above 1 neuronsim is faster), in processor time. Results are compared first. `Python`
is how many steps of the compiled program, those inside loops included, are calls of Python.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np

import neuronsim
from neuronsim.bench.report import shown, table_of
from neuronsim.bench.suite import geometric_mean, load_average, terminal, write_figures

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError as missing:
    raise SystemExit(
        f"this bench compares with XLA, and there is no {missing.name}: run it as a module from the "
        'repository\'s folder, after pip install ".[peers]"'
    ) from None

Case = tuple[Callable[..., Any], tuple[Any, ...]]
_random = np.random.default_rng(7)


def _floats(*dims: int, scale: float = 1.0) -> Any:
    return jnp.asarray(_random.standard_normal(dims).astype(np.float32) * np.float32(scale))


def _integers(high: int, *dims: int) -> Any:
    return jnp.asarray(_random.integers(0, high, dims).astype(np.int32))


def _key() -> Any:
    return jnp.asarray(np.array([3, 11], np.uint32))


# ---- sequences by loops ----------------------------------------------------------------------------


def gru() -> Case:
    wx, wh, b = _floats(64, 192, scale=0.1), _floats(64, 192, scale=0.1), _floats(192)

    def run(x: Any) -> Any:
        def step(h: Any, x_t: Any) -> Any:
            gx, gh = x_t @ wx + b, h @ wh
            r = jax.nn.sigmoid(gx[:, :64] + gh[:, :64])
            z = jax.nn.sigmoid(gx[:, 64:128] + gh[:, 64:128])
            n = jnp.tanh(gx[:, 128:] + r * gh[:, 128:])
            h = (1 - z) * n + z * h
            return h, h

        return lax.scan(step, jnp.zeros((4, 64)), x)

    return run, (_floats(32, 4, 64),)


def ctc() -> Case:
    """The forward algorithm of CTC over a blank-interleaved target."""

    def run(logits: Any, labels: Any) -> Any:
        logs = jax.nn.log_softmax(logits)
        batch, length = labels.shape
        target = jnp.zeros((batch, 2 * length + 1), jnp.int32).at[:, 1::2].set(labels)
        shifted = jnp.pad(target, ((0, 0), (2, 0)))[:, :-2]
        skips = (target != 0) & (target != shifted)
        low = jnp.float32(-1e30)
        first = jnp.full(target.shape, low).at[:, 0].set(logs[:, 0, 0])

        def step(alpha: Any, frame: Any) -> Any:
            own = jnp.take_along_axis(frame, target, axis=1)
            one = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=low)[:, :-1]
            two = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=low)[:, :-2]
            alpha = jnp.logaddexp(jnp.logaddexp(alpha, one), jnp.where(skips, two, low)) + own
            return alpha, None

        alpha, _ = lax.scan(step, first, jnp.swapaxes(logs, 0, 1)[1:])
        return -jnp.logaddexp(alpha[:, -1], alpha[:, -2])

    return run, (_floats(4, 40, 20), 1 + _integers(19, 4, 10))


def viterbi() -> Case:
    def run(scores: Any, transitions: Any) -> Any:
        def forward(best: Any, score: Any) -> Any:
            each = best[:, None] + transitions
            return jnp.max(each, axis=0) + score, jnp.argmax(each, axis=0)

        best, back = lax.scan(forward, scores[0], scores[1:])

        def backward(state: Any, pointers: Any) -> Any:
            return pointers[state], state

        last = jnp.argmax(best)
        first, path = lax.scan(backward, last, back, reverse=True)
        return jnp.max(best), first, path

    return run, (_floats(64, 16), _floats(16, 16))


def beam_search() -> Case:
    width, words, steps = 4, 64, 16
    table, out = _floats(words, 32), _floats(32, words)

    def run(state: Any) -> Any:
        def body(carry: Any) -> Any:
            t, tokens, totals, states = carry
            states = jnp.tanh(states + table[tokens[:, t]])
            logs = jax.nn.log_softmax(states @ out) + totals[:, None]
            totals, places = lax.top_k(logs.reshape(-1), width)
            origin, word = places // words, places % words
            tokens = tokens[origin].at[:, t + 1].set(word)
            return t + 1, tokens, totals, states[origin]

        start = jnp.zeros((width, steps + 1), jnp.int32)
        totals = jnp.where(jnp.arange(width) == 0, 0.0, -1e9)
        carry = (0, start, totals, jnp.broadcast_to(state, (width, 32)))
        _, tokens, totals, _ = lax.while_loop(lambda c: c[0] < steps, body, carry)
        return tokens, totals

    return run, (_floats(32),)


def decode() -> Case:
    """Greedy decoding of one attention layer with a cache that is written in place."""
    wq, wk, wv, wo = (_floats(64, 64, scale=0.1) for _ in range(4))
    table = _floats(100, 64)

    def run(first: Any) -> Any:
        def step(carry: Any, t: Any) -> Any:
            token, keys, values = carry
            x = table[token]
            keys = lax.dynamic_update_slice(keys, (x @ wk)[None], (t, 0))
            values = lax.dynamic_update_slice(values, (x @ wv)[None], (t, 0))
            scores = jnp.where(jnp.arange(32) <= t, keys @ (x @ wq) / 8, -jnp.inf)
            x = x + (jax.nn.softmax(scores) @ values) @ wo
            token = jnp.argmax(table @ x).astype(jnp.int32)
            return (token, keys, values), token

        return lax.scan(step, (first, jnp.zeros((32, 64)), jnp.zeros((32, 64))), jnp.arange(32))[1]

    return run, (jnp.int32(5),)


def flash_attention() -> Case:
    def run(q: Any, k: Any, v: Any) -> Any:
        def body(n: Any, carry: Any) -> Any:
            acc, top, total = carry
            kb = lax.dynamic_slice(k, (n * 32, 0), (32, 32))
            vb = lax.dynamic_slice(v, (n * 32, 0), (32, 32))
            scores = q @ kb.T / np.float32(32) ** 0.5
            new = jnp.maximum(top, scores.max(axis=1))
            p, scale = jnp.exp(scores - new[:, None]), jnp.exp(top - new)
            return acc * scale[:, None] + p @ vb, new, total * scale + p.sum(axis=1)

        carry = (jnp.zeros_like(q), jnp.full(q.shape[0], -jnp.inf), jnp.zeros(q.shape[0]))
        acc, _, total = lax.fori_loop(0, k.shape[0] // 32, body, carry)
        return acc / total[:, None]

    return run, (_floats(64, 32), _floats(256, 32), _floats(256, 32))


# ---- routing, graphs, points -----------------------------------------------------------------------


def mixture_of_experts() -> Case:
    experts, gate = _floats(8, 32, 32, scale=0.2), _floats(32, 8)

    def run(x: Any) -> Any:
        weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
        combine = (jax.nn.one_hot(chosen, 8) * weights[..., None]).sum(axis=1)
        hidden = jnp.einsum("td,edf->etf", x, experts)
        return jnp.einsum("etf,te->tf", jax.nn.relu(hidden), combine)

    return run, (_floats(128, 32),)


def graph_network() -> Case:
    w1, w2 = _floats(64, 32, scale=0.1), _floats(32, 32, scale=0.1)

    def run(nodes: Any, senders: Any, receivers: Any) -> Any:
        for _ in range(3):
            messages = jax.nn.relu(jnp.concatenate([nodes[senders], nodes[receivers]], 1) @ w1)
            sums = jax.ops.segment_sum(messages, receivers, 128)
            tops = jax.ops.segment_max(messages, receivers, 128)
            nodes = jnp.tanh((sums + jnp.where(jnp.isfinite(tops), tops, 0)) @ w2) + nodes
        return nodes

    return run, (_floats(128, 32), _integers(128, 512), _integers(128, 512))


def point_network() -> Case:
    w1, w2 = _floats(6, 32), _floats(32, 32, scale=0.2)

    def run(points: Any) -> Any:
        apart = points[:, None] - points[None]
        near = jnp.argsort((apart * apart).sum(axis=-1), axis=1)[:, :8]
        grouped = points[near]
        features = jnp.concatenate([grouped - points[:, None], grouped], axis=-1)
        return jax.nn.relu(jax.nn.relu(features @ w1).max(axis=1) @ w2).max(axis=0)

    return run, (_floats(128, 3),)


def k_means() -> Case:
    def run(points: Any, centres: Any) -> Any:
        def step(_: Any, centres: Any) -> Any:
            apart = points[:, None] - centres[None]
            own = jnp.argmin((apart * apart).sum(axis=-1), axis=1)
            sums = jax.ops.segment_sum(points, own, 8)
            counts = jax.ops.segment_sum(jnp.ones(points.shape[0]), own, 8)
            return sums / jnp.maximum(counts, 1)[:, None]

        return lax.fori_loop(0, 10, step, centres)

    return run, (_floats(256, 4), _floats(8, 4))


# ---- random numbers --------------------------------------------------------------------------------


def vae() -> Case:
    w1, w2, w3, w4 = (_floats(a, b, scale=0.1) for a, b in ((64, 64), (64, 32), (16, 64), (64, 64)))

    def run(key: Any, x: Any) -> Any:
        mean, log_variance = jnp.split(jax.nn.relu(x @ w1) @ w2, 2, axis=1)
        z = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
        return jax.nn.sigmoid(jax.nn.relu(z @ w3) @ w4)

    return run, (_key(), _floats(32, 64))


def dropout() -> Case:
    w1, w2 = _floats(64, 128, scale=0.1), _floats(128, 64, scale=0.1)

    def run(key: Any, x: Any) -> Any:
        one, two = jax.random.split(key)
        h = jax.nn.gelu(x @ w1)
        h = jnp.where(jax.random.bernoulli(one, 0.9, h.shape), h / 0.9, 0)
        h = h @ w2
        return jnp.where(jax.random.bernoulli(two, 0.9, h.shape), h / 0.9, 0)

    return run, (_key(), _floats(32, 64))


def ppo_rollout() -> Case:
    w1, w2, v = _floats(4, 32, scale=0.5), _floats(32, 2, scale=0.5), _floats(32, scale=0.5)

    def run(key: Any, start: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, s = carry
            key, own = jax.random.split(key)
            h = jnp.tanh(s @ w1)
            logits = h @ w2
            action = jax.random.categorical(own, logits)
            log = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            force = jnp.where(action == 1, 1.0, -1.0)
            moved = s + 0.02 * jnp.stack([s[:, 1], force, s[:, 3], jnp.sin(s[:, 2]) - force], axis=1)
            done = jnp.abs(moved[:, 0]) > 2.4
            moved = jnp.where(done[:, None], jnp.zeros(4), moved)
            return (key, moved), (log, h @ v, done, 1.0 - done)

        _, (logs, values, done, rewards) = lax.scan(step, (key, start), None, length=32)

        def back(carry: Any, at: Any) -> Any:
            advantage, following = carry
            reward, value, ended = at
            delta = reward + 0.99 * following * (1 - ended) - value
            advantage = delta + 0.95 * 0.99 * (1 - ended) * advantage
            return (advantage, value), advantage

        zeros = jnp.zeros(start.shape[0])
        return logs, lax.scan(back, (zeros, zeros), (rewards, values, done), reverse=True)[1]

    return run, (_key(), _floats(8, 4, scale=0.1))


def particle_filter() -> Case:
    def run(key: Any, seen: Any) -> Any:
        def step(carry: Any, y: Any) -> Any:
            key, x = carry
            key, one, two = jax.random.split(key, 3)
            x = x + 0.1 * jax.random.normal(one, x.shape)
            weights = jax.nn.softmax(-((x - y) ** 2))
            points = (jnp.arange(256) + jax.random.uniform(two)) / 256
            return (key, x[jnp.searchsorted(jnp.cumsum(weights), points)]), x.mean()

        return lax.scan(step, (key, jnp.zeros(256)), seen)[1]

    return run, (_key(), _floats(16))


# ---- integers --------------------------------------------------------------------------------------


def integer_network() -> Case:
    w1, w2 = _integers(255, 64, 64) - 127, _integers(255, 64, 64) - 127

    def run(x: Any) -> Any:
        def rescale(acc: Any) -> Any:
            return jnp.clip((acc * 3 + (1 << 9)) >> 10, -128, 127)

        q = jnp.clip(jnp.round(x * 32), -128, 127).astype(jnp.int32)
        h = jnp.maximum(rescale(q @ w1), 0)
        return rescale(h @ w2).astype(jnp.float32) / 32

    return run, (_floats(32, 64),)


def sorting() -> Case:
    def run(x: Any, y: Any) -> Any:
        order = jnp.argsort(x)
        ranks = jnp.zeros(x.shape, jnp.int32).at[order].set(jnp.arange(x.shape[0], dtype=jnp.int32))
        found = jnp.searchsorted(x[order], y)
        return ranks, found, jnp.sort(y), jnp.median(x), lax.top_k(x, 16)

    return run, (_floats(2048), _floats(512))


def edit_distance() -> Case:
    def run(a: Any, b: Any) -> Any:
        start = jnp.arange(33, dtype=jnp.int32)

        def row(last: Any, c: Any) -> Any:
            swap = last[:-1] + (b != c).astype(jnp.int32)
            best = jnp.minimum(swap, last[1:] + 1)

            def cell(left: Any, up: Any) -> Any:
                new = jnp.minimum(left + 1, up)
                return new, new

            first = last[0] + 1
            return jnp.concatenate([first[None], lax.scan(cell, first, best)[1]]), None

        return lax.scan(row, start, a)[0][-1]

    return run, (_integers(4, 32), _integers(4, 32))


def game_of_life() -> Case:
    def run(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            around = sum(jnp.roll(x, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
            return ((around == 3) | ((around == 2) & (x == 1))).astype(jnp.int32)

        return lax.fori_loop(0, 16, step, x)

    return run, (_integers(2, 64, 64),)


def pooling_training() -> Case:
    kernel, w = _floats(3, 3, 1, 8, scale=0.3), _floats(7 * 7 * 8, 10, scale=0.1)

    def run(x: Any, labels: Any) -> Any:
        def loss(parameters: Any) -> Any:
            kernel, w = parameters
            h = lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            h = lax.reduce_window(
                jax.nn.relu(h), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            )
            logs = jax.nn.log_softmax(h.reshape(x.shape[0], -1) @ w)
            return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

        return jax.value_and_grad(loss)((kernel, w))

    return run, (_floats(8, 14, 14, 1), _integers(10, 8))


def conjugate_gradient() -> Case:
    a = _floats(32, 32, scale=0.1)
    matrix = a @ a.T + jnp.eye(32)

    def run(b: Any) -> Any:
        def body(carry: Any) -> Any:
            x, r, p, rr, n = carry
            ap = matrix @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + new / rr * p, new, n + 1

        carry = (jnp.zeros_like(b), b, b, b @ b, 0)
        return lax.while_loop(lambda c: (c[3] > 1e-6) & (c[4] < 64), body, carry)[0]

    return run, (_floats(32),)


def embedding_bag() -> Case:
    table = _floats(1000, 32)

    def run(words: Any) -> Any:
        bag = jnp.where((words > 0)[..., None], table[words], 0).sum(axis=1)
        return bag / jnp.maximum((words > 0).sum(axis=1), 1)[:, None]

    return run, (_integers(1000, 64, 16),)


# ---- large -----------------------------------------------------------------------------------------


def large_segment_sum() -> Case:
    return partial(jax.ops.segment_sum, num_segments=1000), (
        _floats(100_000, 8),
        _integers(1000, 100_000),
    )


def large_scatter_add() -> Case:
    return (lambda x, at, u: x.at[at].add(u)), (
        _floats(10_000, 64),
        _integers(10_000, 100_000),
        _floats(100_000, 64),
    )


def large_gather() -> Case:
    return (lambda x, at: x[at]), (_floats(100_000, 8), _integers(100_000, 1_000_000))


def large_sort() -> Case:
    return jnp.sort, (_floats(1_000_000),)


def large_argsort() -> Case:
    return jnp.argsort, (_floats(200_000),)


def large_top_k() -> Case:
    return (lambda x: lax.top_k(x, 100)), (_floats(100_000),)


def large_random() -> Case:
    return (lambda key: jax.random.uniform(key, (1_000_000,))), (_key(),)


FAMILIES = (
    gru, ctc, viterbi, beam_search, decode, flash_attention, mixture_of_experts, graph_network,
    point_network, k_means, vae, dropout, ppo_rollout, particle_filter, integer_network, sorting,
    edit_distance, game_of_life, pooling_training, conjugate_gradient, embedding_bag,
)  # fmt: skip
LARGE = (
    large_segment_sum, large_scatter_add, large_gather, large_sort, large_argsort, large_top_k,
    large_random,
)  # fmt: skip


def measure(case: Callable[[], Case], rounds: int) -> dict[str, Any]:
    """XLA's seconds and ours, the greatest difference, and the Python steps of our program."""
    function, examples = case()
    lowered = jax.jit(function).lower(*examples)
    executable = lowered.compile()
    proto = bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    program = neuronsim.compile(proto, auto_cast="none", threads=1)
    inputs = [np.asarray(x) for x in jax.tree.leaves(examples)]
    wait: Any = jax.block_until_ready
    theirs = [np.asarray(x) for x in jax.tree.leaves(wait(executable(*examples)))]
    found = program(*inputs)
    ours = [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]
    pairs = zip(_leaves(ours), theirs, strict=True)
    difference = max(float(np.max(np.abs(a.astype(float) - b), initial=0)) for a, b in pairs)
    runs = (lambda: wait(executable(*examples)), lambda: program(*inputs))
    counts = [max(1, int(0.01 / processor_seconds(run, 1))) for run in runs]
    pairs_of_times = [
        [processor_seconds(run, n) for run, n in zip(runs, counts, strict=True)] for _ in range(rounds)
    ]
    xla, own = map(min, zip(*pairs_of_times, strict=True))
    return {
        "XLA": xla,
        "neuronsim": own,
        "ratio": xla / own,
        "difference": difference,
        "python": len(program.python_steps),
    }


def processor_seconds(run: Callable[[], Any], count: int) -> float:
    """A call's time on the processor, in whichever thread: what others run meanwhile does not count."""
    run()
    began = time.process_time()
    for _ in range(count):
        run()
    return max((time.process_time() - began) / count, 1e-9)


def _leaves(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [leaf for v in values for leaf in _leaves(v)]
    return [np.asarray(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [f.__name__ for f in (*FAMILIES, *LARGE)]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=9, help="default: 9")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    console = terminal(120)
    load = load_average(console)
    began = time.time()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    groups: dict[str, dict[str, Any]] = {}
    for title, cases in (("networks", FAMILIES), ("large", LARGE)):
        chosen = [c for c in cases if not options.only or c.__name__ in options.only]
        rows = table_of(title, ["XLA us", "neuronsim us", "ratio", "Python", "difference"])
        found = groups[title] = {c.__name__: measure(c, options.rounds) for c in chosen}
        for name, f in found.items():
            times = [shown(f[k], 1e6, 1) for k in ("XLA", "neuronsim")]
            last = [str(f["python"]), f"{f['difference']:.1e}"]
            rows.add_row(name, *times, shown(f["ratio"]), *last)
        if found:
            ratios = [f["ratio"] for f in found.values()]
            console.print(rows)
            console.print(f"{title}: mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    write_figures(options.json, {"began": began, "load_average": load, **groups})


if __name__ == "__main__":
    main()
