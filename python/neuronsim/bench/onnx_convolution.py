"""A model of one Conv in onnxruntime, its weights known when the session is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from neuronsim.bench.case import Case
from neuronsim.errors import InvalidArgument

# What every onnxruntime since 1.17 reads.
_IR_VERSION = 8
_OPSET = 13


def convolution_in_onnxruntime(case: Case, threads: int) -> Callable[[], Any]:
    """The float32 convolution of the case as a function of no arguments.

    Weights are packed when the session is made, and input and result are bound, not copied: what
    onnxruntime needs at its best. Raises InvalidArgument if onnx or onnxruntime is not installed.
    """
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InvalidArgument("the peer onnxruntime needs: pip install onnx onnxruntime") from error
    assert case.layer is not None
    layer, helper = case.layer, onnx.helper
    x, w = case.operands
    rank = len(layer.kernel)
    node = helper.make_node(
        "Conv",
        ["x", "w"],
        ["y"],
        kernel_shape=list(layer.kernel),
        strides=[layer.stride] * rank,
        pads=[layer.padding] * (2 * rank),
        dilations=[layer.dilation] * rank,
        group=layer.groups,
    )
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "convolution",
        [helper.make_tensor_value_info("x", kind, list(x.shape))],
        [helper.make_tensor_value_info("y", kind, list(layer.output_shape(case.shape)))],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    imports = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=imports)
    return bound_run(model, x, threads)


def bound_run(model: Any, x: Any, threads: int) -> Callable[[], Any]:
    """A model from input `x` to output `y` as a function of no arguments, both bound, not copied."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    held = runtime.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input("x", held)
    binding.bind_output("y", "cpu")

    def run() -> Any:
        session.run_with_iobinding(binding)
        return binding, held

    return run
