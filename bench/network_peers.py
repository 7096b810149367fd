"""The timed networks of tests/data/make_networks.py in torch and ONNX, with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from tests.data.make_networks import BATCH_NORM_EPSILON, LAYER_NORM_EPSILON, Network
from torch.nn import functional

Values = npt.NDArray[Any]
HEADS = 6  # of the transformer at its full size
OPSET, IR_VERSION = 20, 9  # the first opset with Gelu


# ---- torch ---------------------------------------------------------------------------------------


def in_torch(network: Network, autocast: bool) -> Callable[[], Any]:
    """One inference in eager mode on the network's example; its weights stay cast between runs."""
    forward = TORCH[network.name](network.parameters)
    (x,) = (torch.from_numpy(v) for v in network.inputs)
    if network.name == "resnet18":
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    if not autocast:

        def run() -> Any:
            with torch.no_grad():
                return forward(x)

        return run
    torch.autocast_increment_nesting()  # else the end of autocast drops the cast weights

    def run_autocast() -> Any:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return forward(x)

    return run_autocast


def weight(values: Values) -> torch.nn.Parameter:
    """A parameter: autocast keeps the casts of nothing else."""
    return torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(values)))


def _torch_transformer(parameters: Any) -> Callable[[Any], Any]:
    layers: list[dict[str, Any]] = [
        {
            "norm1": [weight(p["norm1"][k]) for k in ("scale", "bias")],
            "norm2": [weight(p["norm2"][k]) for k in ("scale", "bias")],
            **{
                k: [weight(p[k]["weight"].T), weight(p[k]["bias"])]
                for k in ("qkv", "out", "up", "down")
            },
        }
        for p in parameters
    ]

    def forward(x: Any) -> Any:
        width = x.shape[-1:]
        for p in layers:
            y = functional.linear(
                functional.layer_norm(x, width, *p["norm1"], LAYER_NORM_EPSILON), *p["qkv"]
            )
            q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in y.chunk(3, -1))
            y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + functional.linear(y, *p["out"])
            y = functional.layer_norm(x, width, *p["norm2"], LAYER_NORM_EPSILON)
            x = x + functional.linear(functional.gelu(functional.linear(y, *p["up"])), *p["down"])
        return x

    return forward


def _torch_resnet18(parameters: Any) -> Callable[[Any], Any]:
    def kernel(values: Values) -> torch.nn.Parameter:
        oihw = weight(values.transpose(3, 2, 0, 1))
        return torch.nn.Parameter(oihw.detach().contiguous(memory_format=torch.channels_last))

    def norm(p: Any) -> list[Any]:
        return [torch.from_numpy(p[k]) for k in ("mean", "variance", "scale", "bias")]

    def layer(x: Any, kernel: Any, norm: list[Any], stride: int) -> Any:
        x = functional.conv2d(x, kernel, None, stride, kernel.shape[-1] // 2)
        return functional.batch_norm(x, *norm, eps=BATCH_NORM_EPSILON)

    stem: Any = kernel(parameters["stem"]["kernel"]), norm(parameters["stem"]["norm"])
    blocks: list[dict[str, Any]] = [
        {k: (kernel(v) if k.startswith("kernel") else norm(v)) for k, v in p.items()}
        for name, p in parameters.items()
        if name.startswith("stage")
    ]
    head = [weight(parameters["head"]["weight"].T), weight(parameters["head"]["bias"])]

    def forward(x: Any) -> Any:
        x = functional.max_pool2d(functional.relu_(layer(x, *stem, 2)), 3, 2, 1)
        for p in blocks:
            stride = 2 if "kernel0" in p else 1
            y = functional.relu_(layer(x, p["kernel1"], p["norm1"], stride))
            y = layer(y, p["kernel2"], p["norm2"], 1)
            if "kernel0" in p:
                x = layer(x, p["kernel0"], p["norm0"], stride)
            x = functional.relu_(y + x)
        return functional.linear(x.mean((2, 3)), *head)

    return forward


def _torch_lstm(parameters: Any) -> Callable[[Any], Any]:
    width = len(parameters["recurrent"])
    module: Any = torch.nn.LSTM(width, width)
    with torch.no_grad():
        module.weight_ih_l0.copy_(torch.from_numpy(parameters["input"].T.copy()))
        module.weight_hh_l0.copy_(torch.from_numpy(parameters["recurrent"].T.copy()))
        module.bias_ih_l0.copy_(torch.from_numpy(parameters["bias"]))
        module.bias_hh_l0.zero_()

    def forward(x: Any) -> Any:
        outputs, (h, c) = module(x)
        return outputs, h[0], c[0]

    return forward


TORCH: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "transformer": _torch_transformer,
    "resnet18": _torch_resnet18,
    "lstm": _torch_lstm,
}


# ---- onnxruntime ---------------------------------------------------------------------------------


def in_onnxruntime(network: Network, threads: int) -> Callable[[], Any]:
    """One inference in a session with all of onnxruntime's optimisations, input and results bound."""
    (x,) = network.inputs
    if network.name == "resnet18":
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    graph = _Graph(x.shape)
    outputs = ONNX[network.name](graph, network.parameters)
    session = onnxruntime.InferenceSession(
        graph.serialized(outputs), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    held = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input("x", held)
    for name in outputs:
        binding.bind_output(name, "cpu")

    def run() -> Any:
        session.run_with_iobinding(binding)
        return [v.numpy() for v in binding.get_outputs()]

    return run


class _Graph:
    """An ONNX graph while it is written; values are known by name."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self.input_shape = input_shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: Values) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, op: str, *operands: Any, results: int = 1, **attributes: Any) -> Any:
        """The name of the result, or a list of names of several."""
        inputs = [o if isinstance(o, str) else self.constant(o) for o in operands]
        names = [f"{op}{len(self.nodes)}_{n}" for n in range(results)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if results == 1 else names

    def serialized(self, outputs: Sequence[str]) -> bytes:
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", kind, list(self.input_shape))],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.constants,
        )
        imports = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports)
        return bytes(model.SerializeToString())


def _onnx_transformer(g: _Graph, parameters: Any) -> list[str]:
    batch, tokens, width = g.input_shape
    depth = width // HEADS
    x = "x"

    def norm(x: str, p: Any) -> Any:
        return g.node(
            "LayerNormalization", x, p["scale"], p["bias"], axis=-1, epsilon=LAYER_NORM_EPSILON
        )

    def dense(x: str, p: Any) -> Any:
        return g.node("Add", g.node("MatMul", x, p["weight"]), p["bias"])

    def heads(x: str, order: list[int]) -> Any:
        return g.node(
            "Transpose", g.node("Reshape", x, np.array([batch, tokens, HEADS, depth])), perm=order
        )

    for p in parameters:
        q, k, v = g.node(
            "Split", dense(norm(x, p["norm1"]), p["qkv"]), results=3, axis=-1, num_outputs=3
        )
        scores = g.node("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
        attention = g.node("Softmax", g.node("Mul", scores, np.float32(depth**-0.5)), axis=-1)
        mixed = g.node(
            "Transpose", g.node("MatMul", attention, heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3]
        )
        mixed = g.node("Reshape", mixed, np.array([batch, tokens, width]))
        x = g.node("Add", x, dense(mixed, p["out"]))
        x = g.node("Add", x, dense(g.node("Gelu", dense(norm(x, p["norm2"]), p["up"])), p["down"]))
    return [x]


def _onnx_resnet18(g: _Graph, parameters: Any) -> list[str]:
    def layer(x: str, kernel: Values, norm: Any, stride: int) -> Any:
        side = kernel.shape[0]
        x = g.node(
            "Conv",
            x,
            kernel.transpose(3, 2, 0, 1),
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=[side // 2] * 4,
        )
        terms = [norm[k] for k in ("scale", "bias", "mean", "variance")]
        return g.node("BatchNormalization", x, *terms, epsilon=BATCH_NORM_EPSILON)

    stem = parameters["stem"]
    x = g.node("Relu", layer("x", stem["kernel"], stem["norm"], 2))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for name, p in parameters.items():
        if not name.startswith("stage"):
            continue
        stride = 2 if "kernel0" in p else 1
        y = layer(
            g.node("Relu", layer(x, p["kernel1"], p["norm1"], stride)), p["kernel2"], p["norm2"], 1
        )
        if "kernel0" in p:
            x = layer(x, p["kernel0"], p["norm0"], stride)
        x = g.node("Relu", g.node("Add", y, x))
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    return [g.node("Gemm", x, parameters["head"]["weight"], parameters["head"]["bias"])]


def _onnx_lstm(g: _Graph, parameters: Any) -> list[str]:
    width = len(parameters["recurrent"])

    def gates(values: Values) -> Values:
        """(1, gates, ...) in ONNX's order: input, output, forget, cell."""
        i, f, c, o = np.split(values.T, 4)
        return np.concatenate([i, o, f, c])[None]

    bias = gates(parameters["bias"])
    bias = np.concatenate([bias, np.zeros_like(bias)], -1)
    weights = gates(parameters["input"]), gates(parameters["recurrent"])
    outputs, h, c = g.node("LSTM", "x", *weights, bias, results=3, hidden_size=width)
    one = np.array([1])
    zero = np.array([0])
    return [g.node("Squeeze", outputs, one), g.node("Squeeze", h, zero), g.node("Squeeze", c, zero)]


ONNX: dict[str, Callable[[_Graph, Any], list[str]]] = {
    "transformer": _onnx_transformer,
    "resnet18": _onnx_resnet18,
    "lstm": _onnx_lstm,
}
