"""Objects that are taken for models: what they are, and the lines that bring a model in."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_FORMS = (
    "a file of HLO, StableHLO or ONNX (its name or its bytes), a folder of AWS's compile cache, an "
    "onnx.ModelProto, a Module, or a function of arrays, of JAX or of TensorFlow with example arguments"
)
_EXAMPLES = "neuronsim.compile(model, *example_arguments)"
_SHAPES = f"{_EXAMPLES}\n    input_shapes={{'x': (8, 16)}}, on the command line --input-shape x=8,16"
_TO_ONNX = {
    "sklearn": "skl2onnx.to_onnx(model, samples)",
    "xgboost": "onnxmltools.convert_xgboost(model, initial_types=types)",
    "lightgbm": "onnxmltools.convert_lightgbm(model, initial_types=types)",
    "catboost": "onnx.load(model.save_model('model.onnx', format='onnx'))",
    "paddle": "paddle.onnx.export(model, 'model', input_spec=specs)",
    "mxnet": "onnx.load(mxnet.onnx.export_model(symbol, params, shapes))",
}


class _Kind(NamedTuple):
    """What is so, what it is, and what to do."""

    is_one: Callable[[Any, set[str]], bool]
    what: str
    instead: str


def _named(*names: str) -> Callable[[Any, set[str]], bool]:
    return lambda model, _: type(model).__name__ in names


_KINDS = (
    _Kind(
        lambda m, p: hasattr(m, "shape") and hasattr(m, "dtype"),
        "an array, and no model",
        "neuronsim.compile(function, array)",
    ),
    _Kind(
        lambda m, p: "torch" in p and type(m).__name__ == "ExportedProgram",
        "what torch.export made",
        "neuronsim.compile(model)",
    ),
    _Kind(
        lambda m, _: hasattr(m, "as_serialized_hlo_module_proto"),
        "",
        "neuronsim.compile(model.as_serialized_hlo_module_proto())",
    ),
    _Kind(
        lambda m, p: "jaxlib" in p and hasattr(m, "operation"),
        "a module of MLIR",
        "neuronsim.compile(model.operation.get_asm(enable_debug_info=True))",
    ),
    _Kind(
        _named("ClosedJaxpr", "Jaxpr"),
        "a jaxpr",
        "neuronsim.compile(jax.core.jaxpr_as_fun(model), *example_arguments)",
    ),
    _Kind(
        lambda m, p: "flax" in p and hasattr(m, "init") and hasattr(m, "apply"),
        "a module of Flax, whose parameters lie beside it",
        "neuronsim.compile(model.apply, parameters, *example_inputs, constants=(0,))",
    ),
    _Kind(
        _named("GradientTransformation", "GradientTransformationExtraArgs"),
        "an optimizer of Optax",
        "neuronsim.compile(model.update, gradients, state, parameters)",
    ),
    _Kind(
        lambda m, p: "jax" in p or "jaxlib" in p or (callable(m) and hasattr(m, "lower")),
        "a function of JAX without example arguments or shapes",
        _SHAPES,
    ),
    _Kind(
        _named("ScriptModule", "RecursiveScriptModule", "ScriptFunction", "TopLevelTracedModule"),
        "TorchScript: give the network itself",
        "program = torch.export.export(network.eval(), example_inputs)\n"
        "    neuronsim.compile(program)",
    ),
    _Kind(
        lambda m, p: "torch" in p and callable(m),
        "a network of PyTorch without example inputs",
        "neuronsim.compile(model.eval(), *example_inputs)",
    ),
    _Kind(
        lambda m, p: (
            hasattr(m, "experimental_get_compiler_ir")
            or (callable(m) and bool(p & {"tensorflow", "keras"}))
        ),
        "a function of TensorFlow, or a network of Keras, without example arguments",
        _EXAMPLES,
    ),
    _Kind(
        lambda m, p: "tensorflow" in p and hasattr(m, "signatures"),
        "a SavedModel that TensorFlow loaded",
        "neuronsim.compile(model.signatures['serving_default'], *example_inputs)",
    ),
    _Kind(
        lambda m, p: "tensorflow" in p and type(m).__name__ == "GraphDef",
        "a GraphDef of TensorFlow",
        "function = tensorflow.compat.v1.wrap_function(lambda: "
        "tensorflow.graph_util.import_graph_def(model), []).prune(inputs, outputs)\n"
        "    neuronsim.compile(function, *example_inputs)",
    ),
    _Kind(
        _named("InferenceSession"),
        "a session of onnxruntime: give the model's own file",
        "neuronsim.compile('model.onnx')",
    ),
    _Kind(
        lambda m, p: "transformers" in p and hasattr(m, "model"),
        "a pipeline of transformers: give the network in it",
        "neuronsim.compile(model.model.eval(), *example_inputs)",
    ),
    _Kind(
        lambda m, _: isinstance(m, type),
        "a class: give an object of it",
        "neuronsim.compile(model(...), *example_inputs)",
    ),
    _Kind(
        lambda m, p: isinstance(m, Mapping) and any(hasattr(v, "shape") for v in m.values()),
        "weights, which have no steps: give the model too",
        "neuronsim.compile(model, ..., weights=weights)",
    ),
    _Kind(
        lambda m, _: callable(m),
        "a function without example arguments or shapes",
        _SHAPES,
    ),
)  # fmt: skip


def name_model(model: Any) -> str:
    """What was given in the place of a model, and the lines by which it becomes one, or else the forms
    that models have.
    """
    classes = type(model).__mro__
    packages = {c.__module__.partition(".")[0] for c in classes} - {"builtins", "abc", "typing"}
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    for package, line in _TO_ONNX.items():
        if package in packages:
            return f"{name}, a model of {package}. ONNX brings it in:\n    neuronsim.compile({line})"
    for kind in _KINDS:
        if kind.is_one(model, packages):
            what = f", {kind.what}" if kind.what else ""
            return f"{name}{what}:\n    {kind.instead}"
    return f"{reprlib.repr(model)}, {name}: a model is {_FORMS}"
