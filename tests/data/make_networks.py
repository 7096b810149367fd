"""Networks written in JAX and exported as HLO modules, as users of a compiler hand them in.

    python -m tests.data.make_networks --out DIR [--only NAME]... [--reduced]

Needs jax. The weights are random with a fixed seed, of the usual scales; inference keeps them as
constants of the module, training takes them as inputs. Every network has a full and a reduced size;
tests/data/networks has the reduced ones.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from jaxlib import _hlo

Values = npt.NDArray[Any]
Tree = Any  # arrays in dicts, tuples and lists
REPLICA = "replica"


@dataclass(frozen=True)
class Network:
    """A function of `parameters` and `inputs`, with example values of both.

    With `closed` the parameters are constants of the module, else its first inputs. With `replicas`
    above 1 the module is one replica's program, and the examples have a leading axis of replicas.
    """

    name: str
    function: Callable[..., Any]
    parameters: Tree
    inputs: tuple[Values, ...]
    closed: bool = True
    replicas: int = 1

    @property
    def arguments(self) -> list[Values]:
        """The module's inputs, flattened as JAX flattens them."""
        given = self.inputs if self.closed else (self.parameters, *self.inputs)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(given)]

    @property
    def callable(self) -> Callable[..., Any]:
        """The function of the inputs; of the parameters too unless they are closed over."""
        if self.replicas > 1:
            return jax.vmap(self.function, axis_name=REPLICA)
        if not self.closed:
            return self.function
        return partial(self.function, jax.tree.map(jnp.asarray, self.parameters))

    @property
    def examples(self) -> tuple[Tree, ...]:
        """What `callable` takes."""
        return self.inputs if self.closed else (self.parameters, *self.inputs)


@contextmanager
def _without_places() -> Iterator[None]:
    """A file says nothing of where this script lies; other users of JAX in the process keep theirs."""
    before = jax.config.jax_traceback_in_locations_limit
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


@_without_places()
def to_hlo(network: Network) -> bytes:
    """The serialized HloModuleProto of a network, as JAX lowers it."""
    if network.replicas > 1:
        return _replica_program(network)
    lowered = jax.jit(network.callable).lower(*network.examples)
    return bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _replica_program(network: Network) -> bytes:
    """What one device of a data-parallel step is given: the body of its shard_map, as an entry."""
    mesh = AbstractMesh((network.replicas,), (REPLICA,), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(network.function, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    own = jax.tree.map(lambda x: x[0], network.examples)
    lowered = jax.jit(mapped).trace(*own).lower(lowering_platforms=("cpu",))
    options = _hlo.HloPrintOptions()
    options.print_metadata, options.print_large_constants = False, True
    text = lowered.compiler_ir("hlo").get_hlo_module().to_string(options)
    computations = text[text.index("\n%") :].split("\n\n")
    bodies = [c for c in computations if not c.startswith("ENTRY")]
    named = [c.replace("%xla.sdy.manual_computation_body", "ENTRY %step", 1) for c in bodies]
    module = _hlo.hlo_module_from_text(f"HloModule {network.name}\n" + "\n\n".join(named))
    return bytes(module.as_serialized_hlo_module_proto())


class _Weights:
    """Random weights by name; what a name gives does not depend on the order of the calls."""

    def __init__(self, network: str) -> None:
        self.network = network

    def normal(self, name: str, shape: tuple[int, ...], scale: float) -> Values:
        rng = np.random.default_rng(zlib.crc32(f"{self.network}/{name}".encode()))
        return np.float32(scale) * rng.standard_normal(shape, np.float32)

    def dense(self, name: str, rows: int, columns: int) -> dict[str, Values]:
        weight = self.normal(f"{name}/weight", (rows, columns), rows**-0.5)
        return {"weight": weight, "bias": self.normal(f"{name}/bias", (columns,), 0.02)}

    def kernel(self, name: str, side: int, channels: int, features: int) -> Values:
        """(height, width, channels, features), He's scale."""
        scale = (2 / (side * side * channels)) ** 0.5
        return self.normal(name, (side, side, channels, features), scale)

    def norm(self, name: str, features: int) -> dict[str, Values]:
        return {
            "scale": 1 + self.normal(f"{name}/scale", (features,), 0.1),
            "bias": self.normal(f"{name}/bias", (features,), 0.1),
        }

    def batch_norm(self, name: str, features: int) -> dict[str, Values]:
        return self.norm(name, features) | {
            "mean": self.normal(f"{name}/mean", (features,), 0.1),
            "variance": 1 + np.abs(self.normal(f"{name}/variance", (features,), 0.2)),
        }


# ---- layers --------------------------------------------------------------------------------------

BATCH_NORM_EPSILON = LAYER_NORM_EPSILON = 1e-5


def dense(x: jax.Array, p: Mapping[str, Values]) -> jax.Array:
    return x @ p["weight"] + p["bias"]


def convolution(
    x: jax.Array, kernel: Values, stride: int = 1, padding: int | None = None, groups: int = 1
) -> jax.Array:
    """NHWC with HWIO; padded by half of the kernel unless `padding` says otherwise."""
    pad = kernel.shape[0] // 2 if padding is None else padding
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(pad, pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def batch_norm(x: jax.Array, p: Mapping[str, Values]) -> jax.Array:
    return (x - p["mean"]) * lax.rsqrt(p["variance"] + BATCH_NORM_EPSILON) * p["scale"] + p["bias"]


def layer_norm(x: jax.Array, p: Mapping[str, Values]) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + LAYER_NORM_EPSILON) * p["scale"] + p["bias"]


def gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1 + lax.erf(x * np.float32(0.5**0.5)))


def max_pool(x: jax.Array, window: int, stride: int, padding: int = 0) -> jax.Array:
    pads = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), pads)


# ---- images --------------------------------------------------------------------------------------


def resnet18(
    batch: int = 4, side: int = 224, width: int = 64, blocks: int = 2, classes: int = 1000
) -> Network:
    """Four stages of basic blocks, as ResNet-18 has them with two in each."""
    w = _Weights("resnet18")
    parameters: dict[str, Tree] = {
        "stem": {"kernel": w.kernel("stem", 7, 3, width), "norm": w.batch_norm("stem", width)}
    }
    channels = width
    for stage in range(4):
        for block in range(blocks):
            features, name = width << stage, f"stage{stage}/block{block}"
            p = {
                "kernel1": w.kernel(f"{name}/1", 3, channels, features),
                "norm1": w.batch_norm(f"{name}/1", features),
                "kernel2": w.kernel(f"{name}/2", 3, features, features),
                "norm2": w.batch_norm(f"{name}/2", features),
            }
            if channels != features:
                p["kernel0"] = w.kernel(f"{name}/0", 1, channels, features)
                p["norm0"] = w.batch_norm(f"{name}/0", features)
            parameters[name] = p
            channels = features
    parameters["head"] = w.dense("head", channels, classes)

    def function(parameters: Tree, x: jax.Array) -> jax.Array:
        p = parameters["stem"]
        x = jax.nn.relu(batch_norm(convolution(x, p["kernel"], 2), p["norm"]))
        x = max_pool(x, 3, 2, 1)
        for stage in range(4):
            for block in range(blocks):
                p = parameters[f"stage{stage}/block{block}"]
                stride = 2 if "kernel0" in p else 1
                y = jax.nn.relu(batch_norm(convolution(x, p["kernel1"], stride), p["norm1"]))
                y = batch_norm(convolution(y, p["kernel2"]), p["norm2"])
                if "kernel0" in p:
                    x = batch_norm(convolution(x, p["kernel0"], stride), p["norm0"])
                x = jax.nn.relu(x + y)
        return dense(x.mean((1, 2)), parameters["head"])

    return Network("resnet18", function, parameters, (w.normal("x", (batch, side, side, 3), 1.0),))


def vgg(
    batch: int = 1,
    side: int = 224,
    stages: tuple[tuple[int, int], ...] = ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)),
    hidden: int = 4096,
    classes: int = 1000,
) -> Network:
    """Stages of (features, 3 x 3 layers), each with a maximum of 2 x 2 behind; VGG-11 by default."""
    w = _Weights("vgg")
    kernels: list[list[tuple[Values, Values]]] = []
    channels = 3
    for stage, (features, layers) in enumerate(stages):
        kernels.append([])
        for layer in range(layers):
            name = f"stage{stage}/layer{layer}"
            bias = w.normal(f"{name}/bias", (features,), 0.02)
            kernels[-1].append((w.kernel(name, 3, channels, features), bias))
            channels = features
    flat = channels * (side >> len(stages)) ** 2
    parameters = {
        "stages": kernels,
        "dense": [
            w.dense("dense0", flat, hidden),
            w.dense("dense1", hidden, hidden),
            w.dense("dense2", hidden, classes),
        ],
    }

    def function(parameters: Tree, x: jax.Array) -> jax.Array:
        for stage in parameters["stages"]:
            for kernel, bias in stage:
                x = jax.nn.relu(convolution(x, kernel) + bias)
            x = max_pool(x, 2, 2)
        x = x.reshape(x.shape[0], -1)
        first, second, last = parameters["dense"]
        return jax.nn.softmax(dense(jax.nn.relu(dense(jax.nn.relu(dense(x, first)), second)), last))

    return Network("vgg", function, parameters, (w.normal("x", (batch, side, side, 3), 1.0),))


def mobilenet(
    batch: int = 1,
    side: int = 224,
    stem: int = 32,
    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ),
    last: int = 1280,
    classes: int = 1000,
) -> Network:
    """Stages of (expansion, features, blocks, stride) of inverted residuals, as MobileNetV2's."""
    w = _Weights("mobilenet")
    parameters: dict[str, Tree] = {
        "stem": {"kernel": w.kernel("stem", 3, 3, stem), "norm": w.batch_norm("stem", stem)}
    }
    channels = stem
    plan: list[tuple[str, int, bool]] = []
    for stage, (expansion, features, blocks, first_stride) in enumerate(stages):
        for block in range(blocks):
            name, wide = f"stage{stage}/block{block}", channels * expansion
            stride = first_stride if block == 0 else 1
            parameters[name] = {
                "expand": w.kernel(f"{name}/expand", 1, channels, wide),
                "norm0": w.batch_norm(f"{name}/0", wide),
                "depthwise": w.kernel(f"{name}/depthwise", 3, 1, wide),
                "norm1": w.batch_norm(f"{name}/1", wide),
                "project": w.kernel(f"{name}/project", 1, wide, features),
                "norm2": w.batch_norm(f"{name}/2", features),
            }
            plan.append((name, stride, stride == 1 and channels == features))
            channels = features
    parameters["last"] = {
        "kernel": w.kernel("last", 1, channels, last),
        "norm": w.batch_norm("l", last),
    }
    parameters["head"] = w.dense("head", last, classes)

    def function(parameters: Tree, x: jax.Array) -> jax.Array:
        p = parameters["stem"]
        x = jax.nn.relu6(batch_norm(convolution(x, p["kernel"], 2), p["norm"]))
        for name, stride, residual in plan:
            p = parameters[name]
            y = jax.nn.relu6(batch_norm(convolution(x, p["expand"]), p["norm0"]))
            y = convolution(y, p["depthwise"], stride, groups=y.shape[-1])
            y = jax.nn.relu6(batch_norm(y, p["norm1"]))
            y = batch_norm(convolution(y, p["project"]), p["norm2"])
            x = x + y if residual else y
        p = parameters["last"]
        x = jax.nn.relu6(batch_norm(convolution(x, p["kernel"]), p["norm"]))
        return dense(x.mean((1, 2)), parameters["head"])

    return Network("mobilenet", function, parameters, (w.normal("x", (batch, side, side, 3), 1.0),))


def ssd(
    side: int = 256,
    width: int = 32,
    scales: int = 4,
    anchors: int = 4,
    classes: int = 21,
    kept: int = 100,
) -> Network:
    """One image: heads at several scales, decoded boxes, top-k and greedy suppression of overlaps."""
    w = _Weights("ssd")
    parameters: dict[str, Tree] = {}
    channels = 3
    for level in range(scales + 2):
        features = min(width << level, 8 * width)
        parameters[f"level{level}"] = {
            "kernel": w.kernel(f"level{level}", 3, channels, features),
            "bias": w.normal(f"level{level}/bias", (features,), 0.02),
        }
        channels = features
        if level >= 2:
            parameters[f"level{level}"] |= {
                "scores": w.kernel(f"level{level}/scores", 3, features, anchors * classes),
                "boxes": 0.1 * w.kernel(f"level{level}/boxes", 3, features, anchors * 4),
            }
    first = side >> 3
    lengths = [max(first >> s, 1) for s in range(scales)]
    priors = np.concatenate([_priors(n, anchors, 1.5 / n) for n in lengths])

    def function(parameters: Tree, x: jax.Array) -> tuple[jax.Array, ...]:
        scores, offsets = [], []
        for level in range(scales + 2):
            p = parameters[f"level{level}"]
            x = jax.nn.relu(convolution(x, p["kernel"], 2) + p["bias"])
            if "scores" in p:
                scores.append(convolution(x, p["scores"]).reshape(-1, classes))
                offsets.append(convolution(x, p["boxes"]).reshape(-1, 4))
        probabilities = jax.nn.softmax(jnp.concatenate(scores))[:, 1:]
        decoded = _decode(jnp.concatenate(offsets), priors)
        best, best_class = probabilities.max(-1), probabilities.argmax(-1)
        values, indices = lax.top_k(best, kept)
        boxes = decoded[indices]
        return boxes, values, best_class[indices], _suppressed(boxes, 0.5)

    return Network("ssd", function, parameters, (w.normal("x", (1, side, side, 3), 1.0),))


def _priors(n: int, anchors: int, size: float) -> Values:
    """Boxes (centre y, centre x, height, width) at the cells of an n x n map."""
    centres = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n)
    ratios = np.float32(2.0) ** np.linspace(-1, 1, anchors, dtype=np.float32)
    y, x, r = np.meshgrid(centres, centres, ratios, indexing="ij")
    return np.stack([y, x, size * np.sqrt(r), size / np.sqrt(r)], -1).reshape(-1, 4).astype(np.float32)


def _decode(offsets: jax.Array, priors: Values) -> jax.Array:
    centres = priors[:, :2] + offsets[:, :2] * 0.1 * priors[:, 2:]
    sizes = priors[:, 2:] * jnp.exp(offsets[:, 2:] * 0.2)
    return jnp.clip(jnp.concatenate([centres - sizes / 2, centres + sizes / 2], -1), 0.0, 1.0)


def _suppressed(boxes: jax.Array, threshold: float) -> jax.Array:
    """Which boxes, best first, overlap no kept one before them by more than the threshold."""
    low = jnp.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = jnp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = jnp.prod(jnp.maximum(high - low, 0.0), -1)
    areas = jnp.prod(boxes[:, 2:] - boxes[:, :2], -1)
    overlap = common / jnp.maximum(areas[:, None] + areas[None, :] - common, 1e-6)
    numbers = jnp.arange(boxes.shape[0])

    def body(i: jax.Array, keep: jax.Array) -> jax.Array:
        clashes = (overlap[i] > threshold) & (numbers < i) & keep
        return keep.at[i].set(~clashes.any())

    return lax.fori_loop(0, boxes.shape[0], body, jnp.ones(boxes.shape[0], bool))


def unet(batch: int = 1, side: int = 128, width: int = 32, depth: int = 3, classes: int = 3) -> Network:
    """Two 3 x 3 layers a level, maxima on the way down, transposed convolutions on the way up."""
    w = _Weights("unet")
    parameters: dict[str, Tree] = {}
    channels = 1
    for level in range(depth + 1):
        features = width << level
        name = f"down{level}"
        parameters[name] = [
            w.kernel(f"{name}/0", 3, channels, features),
            w.kernel(f"{name}/1", 3, features, features),
        ]
        channels = features
    for level in reversed(range(depth)):
        features = width << level
        parameters[f"up{level}"] = [
            w.kernel(f"up{level}/transposed", 2, channels, features),
            w.kernel(f"up{level}/0", 3, 2 * features, features),
            w.kernel(f"up{level}/1", 3, features, features),
        ]
        channels = features
    parameters["head"] = w.kernel("head", 1, channels, classes)

    def function(parameters: Tree, x: jax.Array) -> jax.Array:
        skipped = []
        for level in range(depth + 1):
            if level:
                skipped.append(x)
                x = max_pool(x, 2, 2)
            for kernel in parameters[f"down{level}"]:
                x = jax.nn.relu(convolution(x, kernel))
        for level in reversed(range(depth)):
            transposed, *kernels = parameters[f"up{level}"]
            up = lax.conv_transpose(x, transposed, (2, 2), "VALID")
            x = jnp.concatenate([skipped[level], up], -1)
            for kernel in kernels:
                x = jax.nn.relu(convolution(x, kernel))
        return jax.nn.sigmoid(convolution(x, parameters["head"]))

    return Network("unet", function, parameters, (w.normal("x", (batch, side, side, 1), 1.0),))


# ---- sequences -----------------------------------------------------------------------------------


def transformer(
    batch: int = 8,
    tokens: int = 64,
    width: int = 384,
    heads: int = 6,
    hidden: int = 1536,
    layers: int = 6,
) -> Network:
    """An encoder: attention and an MLP a layer, each after a layer norm and around a residual."""
    w = _Weights("transformer")
    parameters = [_block(w, f"layer{n}", width, hidden) for n in range(layers)]

    def function(parameters: Tree, x: jax.Array) -> jax.Array:
        for p in parameters:
            q, k, v = (
                _split_heads(y, heads)
                for y in jnp.split(dense(layer_norm(x, p["norm1"]), p["qkv"]), 3, -1)
            )
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * np.float32((width // heads) ** -0.5)
            mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)
            x = x + dense(mixed.transpose(0, 2, 1, 3).reshape(x.shape), p["out"])
            x = x + dense(gelu(dense(layer_norm(x, p["norm2"]), p["up"])), p["down"])
        return x

    return Network("transformer", function, parameters, (w.normal("x", (batch, tokens, width), 1.0),))


def _block(w: _Weights, name: str, width: int, hidden: int) -> dict[str, Tree]:
    return {
        "norm1": w.norm(f"{name}/norm1", width),
        "qkv": w.dense(f"{name}/qkv", width, 3 * width),
        "out": w.dense(f"{name}/out", width, width),
        "norm2": w.norm(f"{name}/norm2", width),
        "up": w.dense(f"{name}/up", width, hidden),
        "down": w.dense(f"{name}/down", hidden, width),
    }


def _split_heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def gpt(
    batch: int = 2,
    prompt: int = 8,
    length: int = 64,
    width: int = 384,
    heads: int = 6,
    layers: int = 2,
    vocabulary: int = 1000,
) -> Network:
    """Greedy generation in a while loop, one token at a time, with a cache of keys and values.

    Gives the tokens and the logits of the last step.
    """
    w = _Weights("gpt")
    parameters = {
        "embedding": w.normal("embedding", (vocabulary, width), 1.0),
        "positions": w.normal("positions", (length, width), 0.5),
        "layers": [_block(w, f"layer{n}", width, 4 * width) for n in range(layers)],
        "norm": w.norm("norm", width),
    }
    depth = width // heads

    def attend(p: Tree, x: jax.Array, cache: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`cache` is (keys and values, batch, heads, length, depth)."""
        qkv = dense(layer_norm(x, p["norm1"]), p["qkv"]).reshape(batch, 3, heads, depth)
        new = qkv[:, 1:].transpose(1, 0, 2, 3)[:, :, :, None]
        cache = lax.dynamic_update_slice(cache, new, (0, 0, 0, t, 0))
        scores = jnp.einsum("bhd,bhtd->bht", qkv[:, 0], cache[0]) * np.float32(depth**-0.5)
        scores = jnp.where(jnp.arange(length) <= t, scores, -jnp.inf)
        mixed = jnp.einsum("bht,bhtd->bhd", jax.nn.softmax(scores), cache[1])
        return dense(mixed.reshape(batch, width), p["out"]), cache

    def function(parameters: Tree, given: jax.Array) -> tuple[jax.Array, jax.Array]:
        def body(state: Tree) -> Tree:
            t, tokens, caches, _ = state
            x = parameters["embedding"][tokens[:, t]] + parameters["positions"][t]
            after = []
            for p, cache in zip(parameters["layers"], caches, strict=True):
                mixed, cache = attend(p, x, cache, t)
                x = x + mixed
                x = x + dense(gelu(dense(layer_norm(x, p["norm2"]), p["up"])), p["down"])
                after.append(cache)
            logits = layer_norm(x, parameters["norm"]) @ parameters["embedding"].T
            chosen = logits.argmax(-1).astype(jnp.int32)
            following = jnp.where(t + 1 < prompt, tokens[:, t + 1], chosen)
            tokens = lax.dynamic_update_slice(tokens, following[:, None], (0, t + 1))
            return t + 1, tokens, after, logits

        tokens = jnp.zeros((batch, length), jnp.int32).at[:, :prompt].set(given)
        caches = [jnp.zeros((2, batch, heads, length, depth))] * layers
        state = jnp.int32(0), tokens, caches, jnp.zeros((batch, vocabulary))
        _, tokens, _, logits = lax.while_loop(lambda s: s[0] < length - 1, body, state)
        return tokens, logits

    rng = np.random.default_rng(0)
    return Network(
        "gpt", function, parameters, (rng.integers(vocabulary, size=(batch, prompt), dtype=np.int32),)
    )


def lstm(batch: int = 8, steps: int = 64, width: int = 256) -> Network:
    """One layer over time by scan, gates in the order input, forget, cell, output.

    Gives the outputs (steps, batch, width) and the last state.
    """
    w = _Weights("lstm")
    parameters = {
        "input": w.normal("input", (width, 4 * width), width**-0.5),
        "recurrent": w.normal("recurrent", (width, 4 * width), width**-0.5),
        "bias": w.normal("bias", (4 * width,), 0.1),
    }

    def function(parameters: Tree, xs: jax.Array) -> tuple[jax.Array, ...]:
        def step(state: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[Any, jax.Array]:
            h, c = state
            i, f, g, o = jnp.split(x + h @ parameters["recurrent"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((batch, width))
        (h, c), outputs = lax.scan(step, (zeros, zeros), xs @ parameters["input"] + parameters["bias"])
        return outputs, h, c

    return Network("lstm", function, parameters, (w.normal("x", (steps, batch, width), 1.0),))


# ---- training ------------------------------------------------------------------------------------


def training_step(
    batch: int = 32, side: int = 28, width: int = 32, hidden: int = 256, classes: int = 10
) -> Network:
    """A small CNN: loss, gradients and Adam. The parameters are weights, moments and a step count."""
    w = _Weights("training_step")
    weights = {
        "kernel0": w.kernel("kernel0", 3, 1, width),
        "kernel1": w.kernel("kernel1", 3, width, 2 * width),
        "dense0": w.dense("dense0", 2 * width * (side // 4) ** 2, hidden),
        "dense1": w.dense("dense1", hidden, classes),
    }
    # Moments of earlier steps: the first step alone would give the signs of the gradients.
    mean = jax.tree.map(lambda p: w.normal(f"mean{p.shape}", p.shape, 1e-3), weights)
    square = jax.tree.map(lambda p: w.normal(f"square{p.shape}", p.shape, 1e-3) ** 2 + 1e-6, weights)
    parameters = {"weights": weights, "mean": mean, "square": square, "step": np.int32(10)}

    def loss(weights: Tree, x: jax.Array, labels: jax.Array) -> jax.Array:
        for kernel in (weights["kernel0"], weights["kernel1"]):
            x = max_pool(jax.nn.relu(convolution(x, kernel)), 2, 2)
        x = jax.nn.relu(dense(x.reshape(batch, -1), weights["dense0"]))
        return _cross_entropy(dense(x, weights["dense1"]), labels)

    def function(parameters: Tree, x: jax.Array, labels: jax.Array) -> Tree:
        value, gradients = jax.value_and_grad(loss)(parameters["weights"], x, labels)
        return _adam(parameters, gradients), value

    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=batch, dtype=np.int32)
    inputs = (w.normal("x", (batch, side, side, 1), 1.0), labels)
    return Network("training_step", function, parameters, inputs, closed=False)


def data_parallel_step(
    batch: int = 16, width: int = 64, hidden: int = 128, classes: int = 10, replicas: int = 4
) -> Network:
    """An MLP's step of gradient descent with gradients averaged over the replicas by all-reduce."""
    w = _Weights("data_parallel_step")
    parameters = {
        "dense0": w.dense("dense0", width, hidden),
        "dense1": w.dense("dense1", hidden, classes),
    }

    def loss(parameters: Tree, x: jax.Array, labels: jax.Array) -> jax.Array:
        hidden_values = jnp.tanh(dense(x, parameters["dense0"]))
        return _cross_entropy(dense(hidden_values, parameters["dense1"]), labels)

    def function(parameters: Tree, x: jax.Array, labels: jax.Array) -> Tree:
        value, gradients = jax.value_and_grad(loss)(parameters, x, labels)
        gradients = lax.pmean(gradients, REPLICA)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), lax.pmean(value, REPLICA)

    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=(replicas, batch), dtype=np.int32)
    same = jax.tree.map(lambda p: np.stack([p] * replicas), parameters)
    inputs = (w.normal("x", (replicas, batch, width), 1.0), labels)
    return Network("data_parallel_step", function, same, inputs, closed=False, replicas=replicas)


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
    return -chosen.mean()


def _adam(state: Tree, gradients: Tree, rate: float = 1e-3) -> Tree:
    step = state["step"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["square"], gradients)
    count = step.astype(jnp.float32)
    unbiased = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(
        lambda p, m, v: p - unbiased * m / (jnp.sqrt(v) + 1e-8), state["weights"], mean, square
    )
    return {"weights": weights, "mean": mean, "square": square, "step": step}


# ---- sizes ---------------------------------------------------------------------------------------

NETWORKS: dict[str, Callable[..., Network]] = {
    "resnet18": resnet18,
    "vgg": vgg,
    "mobilenet": mobilenet,
    "ssd": ssd,
    "unet": unet,
    "transformer": transformer,
    "gpt": gpt,
    "lstm": lstm,
    "training_step": training_step,
    "data_parallel_step": data_parallel_step,
}
REDUCED: dict[str, dict[str, Any]] = {
    "resnet18": {"batch": 1, "side": 32, "width": 2, "blocks": 1, "classes": 5},
    "vgg": {"side": 16, "stages": ((4, 1), (8, 2)), "hidden": 16, "classes": 10},
    "mobilenet": {
        "side": 16,
        "stem": 4,
        "stages": ((1, 4, 1, 1), (2, 6, 2, 2)),
        "last": 8,
        "classes": 5,
    },
    "ssd": {"side": 32, "width": 2, "scales": 2, "anchors": 2, "classes": 3, "kept": 6},
    "unet": {"side": 8, "width": 2, "depth": 2},
    "transformer": {"batch": 2, "tokens": 4, "width": 8, "heads": 2, "hidden": 16, "layers": 2},
    "gpt": {"prompt": 3, "length": 6, "width": 8, "heads": 2, "layers": 1, "vocabulary": 12},
    "lstm": {"batch": 2, "steps": 6, "width": 8},
    "training_step": {"batch": 4, "side": 8, "width": 4, "hidden": 16},
    "data_parallel_step": {"batch": 4, "width": 8, "hidden": 16},
}


def make_network(name: str, reduced: bool = False) -> Network:
    """The network of a name at one of its two sizes."""
    return NETWORKS[name](**(REDUCED[name] if reduced else {}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", action="append", choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--reduced", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or NETWORKS:
        network = make_network(name, options.reduced)
        path = options.out / f"{name}.hlo.pb"
        path.write_bytes(to_hlo(network))
        print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
