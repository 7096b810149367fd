"""Programs of the libraries around JAX (Flax, Equinox, Optax) as `neuronsim.compile(f, ...)` runs
them, against `jax.jit`: networks, and steps of their training.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neuronsim

jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")
linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
equinox = pytest.importorskip("equinox")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

pytestmark = pytest.mark.isa_independent

DRAWN = np.random.default_rng(1)
KEY = jax.random.key(0)
X = DRAWN.standard_normal((4, 8)).astype("f4")
Y = np.arange(4) % 3
IMAGES = DRAWN.standard_normal((2, 16, 16, 3)).astype("f4")
SEQUENCE = DRAWN.standard_normal((2, 7, 8)).astype("f4")
TOKENS = DRAWN.integers(0, 20, (2, 7)).astype("i4")
Case = tuple[Callable[..., Any], tuple[Any, ...], int]  # the last: how many arguments are constants


class Mlp(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        for width in (16, 16):
            x = linen.relu(linen.Dense(width)(x))
        return linen.Dense(3)(x)


class Cnn(linen.Module):
    @linen.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = linen.Conv(8, (3, 3))(x)
        x = linen.relu(linen.BatchNorm(use_running_average=not train)(x))
        x = linen.avg_pool(x, (2, 2), (2, 2))
        x = linen.GroupNorm(4)(linen.Conv(16, (3, 3), strides=2)(x))
        x = linen.Dropout(0.5, deterministic=not train)(x.reshape((x.shape[0], -1)))
        return linen.log_softmax(linen.Dense(10)(x))


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, tokens: Any) -> Any:
        x = linen.Embed(20, 16)(tokens) + self.param("places", linen.initializers.normal(), (7, 16))
        for _ in range(2):
            h = linen.LayerNorm()(x)
            x = x + linen.MultiHeadDotProductAttention(4)(h, h, mask=linen.make_causal_mask(tokens))
            x = x + linen.Dense(16)(linen.gelu(linen.Dense(32)(linen.LayerNorm()(x))))
        return linen.Dense(20)(linen.RMSNorm()(x))


class Vae(linen.Module):
    @linen.compact
    def __call__(self, x: Any, key: Any) -> Any:
        h = linen.relu(linen.Dense(16)(x))
        mean, log_variance = linen.Dense(4)(h), linen.Dense(4)(h)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return linen.Dense(8)(linen.relu(linen.Dense(16)(z))), mean, log_variance


def made(network: Any, *args: Any) -> Any:
    return jax.jit(network.init)(KEY, *args)


def mlp() -> Case:
    return Mlp().apply, (made(Mlp(), X), X), 1


def cnn() -> Case:
    return Cnn().apply, (made(Cnn(), IMAGES), IMAGES), 1


def cnn_in_training() -> Case:
    def run(variables: Any, x: Any, key: Any) -> Any:
        return Cnn().apply(variables, x, True, mutable=["batch_stats"], rngs={"dropout": key})

    return run, (made(Cnn(), IMAGES), IMAGES, KEY), 0


def transformer() -> Case:
    return Transformer().apply, (made(Transformer(), TOKENS), TOKENS), 1


def rnn() -> Case:
    network = linen.Bidirectional(linen.RNN(linen.GRUCell(6)), linen.RNN(linen.LSTMCell(6)))
    return network.apply, (made(network, SEQUENCE), SEQUENCE), 1


def vae() -> Case:
    def loss(variables: Any, x: Any, key: Any) -> Any:
        made, mean, log_variance = Vae().apply(variables, x, key)
        spread = 1 + log_variance - mean**2 - jnp.exp(log_variance)
        likely = optax.sigmoid_binary_cross_entropy(made, jax.nn.sigmoid(x)).sum(-1)
        return (likely - 0.5 * spread.sum(-1)).mean()

    return jax.value_and_grad(loss), (made(Vae(), X, KEY), X, KEY), 0


def gan_step() -> Case:
    generator, critic = equinox.nn.MLP(4, 8, 16, 1, key=KEY), equinox.nn.MLP(8, 1, 16, 1, key=KEY)

    def step(generator: Any, critic: Any, noise: Any, x: Any) -> Any:
        def lost(pair: Any) -> Any:
            made = jax.vmap(pair[0])(noise)
            real, fake = jax.vmap(pair[1])(x), jax.vmap(pair[1])(made)
            return (jax.nn.softplus(-real) + jax.nn.softplus(fake)).mean()

        gradients = equinox.filter_grad(lost)((generator, critic))
        up = jax.tree.map(lambda g: 0.1 * g, gradients[0])
        down = jax.tree.map(lambda g: -0.1 * g, gradients[1])
        return equinox.apply_updates(generator, up), equinox.apply_updates(critic, down)

    return equinox.filter_jit(step), (generator, critic, X[:, :4], X), 0


def adam_step() -> Case:
    state = TrainState.create(
        apply_fn=Mlp().apply, params=made(Mlp(), X)["params"], tx=optax.adam(1e-2)
    )

    def step(state: Any, x: Any, y: Any) -> Any:
        def lost(params: Any) -> Any:
            scores = state.apply_fn({"params": params}, x)
            return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

        loss, gradients = jax.value_and_grad(lost)(state.params)
        return state.apply_gradients(grads=gradients), loss

    return jax.jit(step), (state, X, Y), 0


def diffusion_step() -> Case:
    network = equinox.nn.MLP(9, 8, 16, 1, key=KEY)

    def sample(network: Any, x: Any, key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            x, t = carry
            time = jnp.full((len(x), 1), t / 5.0)
            noise = jax.vmap(network)(jnp.concatenate([x, time], 1))
            drawn = jax.random.normal(key, x.shape) * (t > 0)
            return ((x - 0.1 * noise) / jnp.sqrt(0.9) + 0.1 * drawn, t - 1), noise.mean()

        return jax.lax.scan(step, (x, 4), jax.random.split(key, 5))

    return sample, (network, X, KEY), 1


def scan() -> Case:
    cell = equinox.nn.GRUCell(8, 12, key=KEY)

    def run(cell: Any, xs: Any) -> Any:
        return jax.vmap(lambda x: jax.lax.scan(lambda h, v: (cell(v, h),) * 2, jnp.zeros(12), x))(xs)

    return run, (cell, SEQUENCE), 1


def vmap_of_grad() -> Case:
    def norm(variables: Any, x: Any, y: Any) -> Any:
        scores = Mlp().apply(variables, x)
        return optax.softmax_cross_entropy_with_integer_labels(scores, y)

    return jax.vmap(jax.grad(norm), (None, 0, 0)), (made(Mlp(), X), X, Y), 0


def nnx_network() -> Case:
    network = nnx.Sequential(
        nnx.Linear(8, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 3, rngs=nnx.Rngs(1))
    )
    return lambda network, x: network(x), (network, X), 1


def equinox_attention() -> Case:
    attention = equinox.nn.MultiheadAttention(2, 8, key=KEY)
    return lambda m, x: jax.vmap(lambda s: m(s, s, s))(x), (attention, SEQUENCE), 1


def optax_chain() -> Case:
    schedule = optax.cosine_decay_schedule(1.0, 100)
    rule = optax.chain(
        *(optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(0.1)),
        *(optax.scale_by_schedule(schedule), optax.scale(-1.0)),
    )
    params = {"w": jnp.ones((3, 3)), "b": jnp.zeros(3)}
    gradients = jax.tree.map(lambda a: a + 0.3, params)
    return rule.update, (gradients, rule.init(params), params), 0


# ---- as the pages of the libraries build them: networks, losses and steps of their examples --------


def gradient_accumulation() -> Case:
    """Optax's page on gradient accumulation: a perceptron on images, and optax.MultiSteps."""

    class Perceptron(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = x.reshape((x.shape[0], -1))
            for _ in range(2):
                x = linen.relu(linen.Dense(features=512)(x))
            return linen.Dense(features=10)(x)

    network, rule = Perceptron(), optax.MultiSteps(optax.sgd(1e-2), every_k_schedule=3)
    params = made(network, IMAGES)

    def loss(params: Any, batch: Any) -> Any:
        scores = network.apply(params, batch["image"])
        targets = jax.nn.one_hot(batch["label"], 10)
        return optax.softmax_cross_entropy(logits=scores, labels=targets).mean()

    def step(params: Any, state: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        updates, state = rule.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state = rule.init(params)
    batch = {"image": IMAGES, "label": np.arange(2)}
    for _ in range(2):  # so that the third call takes the step
        params, state, _ = jax.jit(step)(params, state, batch)
    return step, (params, state, batch), 0


def nnx_optimizer() -> Case:
    """Flax's page on nnx.Optimizer: two linear layers, Adam, gradients of a squared difference."""

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.linear1 = nnx.Linear(2, 3, rngs=rngs)
            self.linear2 = nnx.Linear(3, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.linear2(self.linear1(x))

    x, y = X[:1, :2], np.ones((1, 4), "f4")
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        value, gradients = nnx.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return value, nnx.state((model, optimizer))

    return step, (state, x, y), 0


def equinox_recurrent() -> Case:
    """Equinox's page on recurrent cells: a GRU scanned over a sequence, filtered gradients."""

    class Model(equinox.Module):
        cell: Any
        linear: Any

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.cell = equinox.nn.GRUCell(8, 16, key=first)
            self.linear = equinox.nn.Linear(16, 1, key=second)

        def __call__(self, xs: Any) -> Any:
            start = jnp.zeros(self.cell.hidden_size)
            last, _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), start, xs)
            return jax.nn.sigmoid(self.linear(last))[0]

    rule = optax.adam(3e-3)
    model = Model(KEY)
    state = rule.init(equinox.filter(model, equinox.is_inexact_array))

    def step(model: Any, state: Any, xs: Any, y: Any) -> Any:
        @equinox.filter_value_and_grad
        def loss(model: Any) -> Any:
            found = jax.vmap(model)(xs)
            return -jnp.mean(y * jnp.log(found) + (1 - y) * jnp.log(1 - found))

        value, gradients = loss(model)
        updates, state = rule.update(gradients, state)
        return value, equinox.apply_updates(model, updates), state

    return equinox.filter_jit(step), (model, state, SEQUENCE, np.float32([0, 1])), 0


QUICK = (mlp, adam_step, scan, vmap_of_grad, nnx_network, optax_chain)
OTHERS = (
    *(gradient_accumulation, nnx_optimizer, equinox_recurrent),
    *(cnn, cnn_in_training, transformer, rnn, vae, gan_step, diffusion_step, equinox_attention),
)


@pytest.mark.parametrize(
    "case",
    [*QUICK, *(pytest.param(case, marks=pytest.mark.exhaustive) for case in OTHERS)],
    ids=lambda case: case.__name__,
)
def test_program(case: Callable[[], Case]) -> None:
    function, args, constants = case()
    program = neuronsim.compile(function, *args, constants=(*range(constants),), auto_cast="none")
    result = program(*args[constants:])
    jitted = function if hasattr(function, "lower") else equinox.filter_jit(function)
    found, expected = jax.tree.leaves(result), jax.tree.leaves(jitted(*args))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if not hasattr(b, "dtype"):  # a setting of a module
            assert a is b or a == b
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), 1e-5, 1e-5)


def test_what_an_nnx_function_changes_in_place_is_said() -> None:
    class Counted(nnx.Module):
        def __init__(self) -> None:
            self.norm = nnx.BatchNorm(8, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.norm(x)

    network = Counted()
    with pytest.warns(UserWarning, match=r"changes .*norm.mean.*norm.var.* in place") as said:
        program = neuronsim.compile(lambda m, x: m(x), network, X, auto_cast="none")
    assert len(said) == 1
    np.testing.assert_allclose(np.asarray(program(network, X)), Counted()(X), 1e-5, 1e-5)

    def returned(m: Any, x: Any) -> Any:
        y = m(x)
        return y, nnx.state(m, nnx.BatchStat)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, state = neuronsim.compile(returned, Counted(), X, auto_cast="none")(Counted(), X)
    reference = Counted()
    np.testing.assert_allclose(np.asarray(y), reference(X), 1e-5, 1e-5)
    found = np.asarray(jax.tree.leaves(state)[0])
    np.testing.assert_allclose(
        found, jax.tree.leaves(nnx.state(reference, nnx.BatchStat))[0], 1e-5, 1e-5
    )


def test_an_object_with_its_weights_is_a_model() -> None:
    network = equinox.nn.MLP(8, 3, 16, 2, key=KEY)
    program = neuronsim.compile(network, X[0], auto_cast="none")
    assert list(program.inputs) == ["x"]
    assert program.model.entry_computation.by_name["model.layers.0.weight"].opcode == "constant"
    np.testing.assert_allclose(np.asarray(program(X[0])), network(X[0]), 1e-5, 1e-5)
    linear = nnx.Linear(8, 3, rngs=nnx.Rngs(0))
    found = neuronsim.compile(linear, X, auto_cast="none")(X)
    np.testing.assert_allclose(np.asarray(found), linear(X), 1e-5, 1e-5)
