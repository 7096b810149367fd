"""LSTM, GRU and RNN: one product for the inputs of all steps, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy

from neuronsim import arrays as np
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidModel
from neuronsim.frontends.onnx.operators.control import steps
from neuronsim.frontends.onnx.operators.indexing import reversed_sequences
from neuronsim.frontends.onnx.table import Node, operator
from neuronsim.frontends.primitives import flipped, is_known, joined, part

_Function: TypeAlias = Callable[[Array], Array]
_Product: TypeAlias = Callable[[Array, Array], Array]
_Step: TypeAlias = Callable[..., list[Array]]


def _plain(x: Array, weights: Array) -> Array:
    return x @ np.permute_dims(weights, (1, 0))


_DEFAULTS = {
    "affine": (1.0, 0.0),
    "elu": (1.0, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, 0.0),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, 0.0),
}


def _activation(name: str, alpha: float | None, beta: float | None) -> _Function:
    key = name.lower()
    first, second = _DEFAULTS.get(key, (1.0, 0.0))
    a, b = (first if alpha is None else alpha), (second if beta is None else beta)
    functions: dict[str, _Function] = {
        "affine": lambda x: x * a + b,
        "elu": lambda x: np.where(x < 0, np.expm1(x) * a, x),
        "hardsigmoid": lambda x: np.clip(x * a + b, 0, 1),
        "leakyrelu": lambda x: np.where(x < 0, x * a, x),
        "relu": lambda x: np.maximum(x, 0),
        "scaledtanh": lambda x: np.tanh(x * b) * a,
        "sigmoid": np.sigmoid,
        "softplus": np.softplus,
        "softsign": lambda x: x / (np.abs(x) + 1),
        "tanh": np.tanh,
        "thresholdedrelu": lambda x: np.where(x > a, x, asarray(0, x.dtype)),
    }
    if key not in functions:
        raise InvalidModel(f"the activation {name!r} is none of {', '.join(sorted(functions))}")
    return functions[key]


@dataclass(frozen=True)
class _Layer:
    """One direction: weights, biases and functions; `gates` is how many its steps have."""

    node: Node
    gates: int
    weights: Array  # of the input (gates * hidden, input)
    recurrent: Array  # of the state (gates * hidden, hidden)
    bias: Array | None  # of the input, then of the state
    peepholes: Array | None
    functions: Sequence[_Function]
    products: Sequence[_Product]  # with the weights, and with the state's

    @property
    def hidden(self) -> int:
        return self.recurrent.shape[1]

    def limited(self, x: Array) -> Array:
        """What an activation takes."""
        limit = self.node.get("clip")
        return np.clip(x, -limit, limit) if limit else x

    def inputs(self, x: Array) -> Array:
        """What the inputs of all steps (step, batch, input) add to the gates."""
        found = self.products[0](x, self.weights)
        if self.bias is None:
            return found
        count = self.gates * self.hidden
        own, more = part(self.bias, 0, 0, count), part(self.bias, 0, count, 2 * count)
        if self.node.op_type == "GRU":  # whose hidden gate may add its own after a product
            kept = part(more, 0, 0, 2 * self.hidden)
            more = joined([kept, np.zeros((self.hidden,), dtype=more.dtype)], 0)
        return found + (own + more)

    def state(self, h: Array) -> Array:
        """What the state (batch, hidden) adds to them."""
        return self.products[1](h, self.recurrent)

    def gate(self, x: Array, number: int) -> Array:
        """The part of a gate."""
        return part(x, x.ndim - 1, number * self.hidden, (number + 1) * self.hidden)


def _lstm_step(layer: _Layer, given: Array, state: Sequence[Array]) -> list[Array]:
    """Gates input, output, forget, cell."""
    h, c = state
    whole = given + layer.state(h)
    i, o, f, g = (layer.gate(whole, n) for n in range(4))
    p: list[Array | None] = [None] * 3
    if layer.peepholes is not None:
        p = [layer.gate(layer.peepholes, n) for n in range(3)]
    sigma, tau, eta = layer.functions
    i = sigma(layer.limited(i if p[0] is None else i + p[0] * c))
    g = tau(layer.limited(g))
    if layer.node.get("input_forget", 0):
        f = 1 - i
    else:
        f = sigma(layer.limited(f if p[2] is None else f + p[2] * c))
    new = f * c + i * g
    o = sigma(layer.limited(o if p[1] is None else o + p[1] * new))
    return [o * eta(new), new]  # not clipped, as onnxruntime has it


def _gru_step(layer: _Layer, given: Array, state: Sequence[Array]) -> list[Array]:
    """Gates update, reset, hidden."""
    (h,) = state
    n = layer.hidden
    sigma, tau = layer.functions
    own = layer.gate(given, 2)
    bias = None
    if layer.bias is not None:
        bias = part(layer.bias, 0, 5 * n, 6 * n)
    if layer.node.get("linear_before_reset", 0):
        whole = layer.state(h)
        z, r = (sigma(layer.limited(layer.gate(given, k) + layer.gate(whole, k))) for k in (0, 1))
        last = layer.gate(whole, 2)
        more = r * (last if bias is None else last + bias)
    else:
        both = h @ np.permute_dims(part(layer.recurrent, 0, 0, 2 * n), (1, 0))
        z, r = (sigma(layer.limited(layer.gate(given, k) + layer.gate(both, k))) for k in (0, 1))
        more = (r * h) @ np.permute_dims(part(layer.recurrent, 0, 2 * n, 3 * n), (1, 0))
        more = more if bias is None else more + bias
    candidate = tau(layer.limited(own + more))
    return [(1 - z) * candidate + z * h]


def _rnn_step(layer: _Layer, given: Array, state: Sequence[Array]) -> list[Array]:
    (h,) = state
    (function,) = layer.functions
    return [function(layer.limited(given + layer.state(h)))]


def _run(
    layer: _Layer,
    step: _Step,
    x: Array,
    state: Sequence[Array],
    lengths: Array | None,
    backwards: bool,
) -> tuple[Array, tuple[Array, ...]]:
    """The states after each step (step, batch, hidden), and the last; of a sample that has ended the
    state stays, and what it gives is 0.
    """
    if backwards:
        x = flipped(x, [0]) if lengths is None else reversed_sequences(x, lengths, 1, 0)
    xs = [layer.inputs(x)]
    if lengths is not None:
        at = asarray(numpy.arange(x.shape[0]).reshape(-1, 1, 1)).astype(lengths.dtype)
        xs.append(at < np.reshape(lengths, (1, -1, 1)))

    def one(carry: tuple[Array, ...], given: Sequence[Array]) -> tuple[Any, Any]:
        new = step(layer, given[0], carry)
        out = new[0]
        if lengths is not None:
            out = np.where(given[1], out, asarray(0, out.dtype))
            new = [np.where(given[1], a, b) for a, b in zip(new, carry, strict=True)]
        return tuple(new), (out,)

    carry, (ys,) = steps(one, tuple(state), xs)
    if backwards:
        ys = flipped(ys, [0]) if lengths is None else reversed_sequences(ys, lengths, 1, 0)
    return ys, carry


def _layers(
    node: Node,
    gates: int,
    names: Sequence[str],
    given: Sequence[Array | None],
    directions: int,
    products: Callable[[int], Sequence[_Product]] = lambda direction: (_plain, _plain),
) -> list[_Layer]:
    if any(x is not None and x.shape[:1] != (directions,) for x in given):
        raise InvalidModel(
            f"{directions} directions, and weights of "
            f"{', '.join(str(x.bits.type) for x in given if x is not None)}"
        )
    stated = node.get("activations") or [*names] * directions
    alphas, betas = iter(node.get("activation_alpha") or []), iter(node.get("activation_beta") or [])
    functions = []
    for name in stated:
        takes = name.lower() in _DEFAULTS
        has_beta = name.lower() in ("affine", "hardsigmoid", "scaledtanh")
        alpha = next(alphas, None) if takes else None
        functions.append(_activation(name, alpha, next(betas, None) if has_beta else None))
    each = len(names)
    if len(functions) != each * directions:
        raise InvalidModel(f"{len(functions)} activations, not {each * directions}")

    def one(x: Array | None, n: int) -> Any:
        return None if x is None else np.reshape(part(x, 0, n, n + 1), x.shape[1:])

    layers = []
    for n in range(directions):
        weights, recurrent, bias, peepholes = (one(x, n) for x in given)
        own = functions[n * each : (n + 1) * each]
        layers.append(_Layer(node, gates, weights, recurrent, bias, peepholes, own, products(n)))
    return layers


def _recurrent(
    node: Node,
    x: Array,
    layers: Sequence[_Layer],
    step: _Step,
    lengths: Array | None,
    initial: Sequence[Array | None],
) -> list[Array]:
    batch_first = bool(node.get("layout", 0))
    if batch_first:
        x = np.permute_dims(x, (1, 0, 2))
        initial = [None if s is None else np.permute_dims(s, (1, 0, 2)) for s in initial]
    if lengths is not None and is_known(lengths) and (numpy.asarray(lengths) == x.shape[0]).all():
        lengths = None
    columns, last = [], []
    for n, layer in enumerate(layers):
        zeros = np.zeros((x.shape[1], layer.hidden), dtype=x.dtype)
        start = [zeros if s is None else np.reshape(s[n : n + 1], zeros.shape) for s in initial]
        backwards = node.get("direction", "forward") == "reverse" or n == 1
        ys, carry = _run(layer, step, x, start, lengths, backwards)
        columns.append(ys)
        last.append(carry)
    found = np.stack(columns, 1)
    if batch_first:
        found = np.permute_dims(found, (2, 0, 1, 3))
    states = [np.stack(s, 1 if batch_first else 0) for s in zip(*last, strict=True)]
    return [found, *states]


def _directions(node: Node) -> int:
    direction = node.get("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise InvalidModel(f"the direction {direction!r}")
    return 2 if direction == "bidirectional" else 1


@operator("LSTM", since=7)
def _lstm(
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h: Array | None = None,
    c: Array | None = None,
    p: Array | None = None,
) -> list[Array]:
    return lstm(node, x, (w, r, b, p), lengths, (h, c))


def lstm(
    node: Node,
    x: Array,
    weights: Sequence[Array | None],
    lengths: Array | None,
    state: Sequence[Array | None],
    products: Callable[[int], Sequence[_Product]] = lambda direction: (_plain, _plain),
) -> list[Array]:
    """An LSTM of weights of the input and of the state, biases and peepholes, each by direction;
    `products` are those with the weights of a direction.
    """
    layers = _layers(node, 4, ("Sigmoid", "Tanh", "Tanh"), weights, _directions(node), products)
    return _recurrent(node, x, layers, _lstm_step, lengths, state)


def _of_one_state(gates: int, names: Sequence[str], step: _Step) -> Callable[..., list[Array]]:
    def run(
        node: Node,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
    ) -> list[Array]:
        layers = _layers(node, gates, names, (w, r, b, None), _directions(node))
        return _recurrent(node, x, layers, step, lengths, (h,))

    return run


operator("GRU", since=7)(_of_one_state(3, ("Sigmoid", "Tanh"), _gru_step))
operator("RNN", since=7)(_of_one_state(1, ("Tanh",), _rnn_step))
