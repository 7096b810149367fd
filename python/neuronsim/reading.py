"""What a model is: any of the forms in which models come, as one verified module.

>>> module = read_model("examples/digits/model.hlo.pb")
>>> module.name
'jit_classify'
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from neuronsim import dtypes, ops, processor
from neuronsim.casting.flags import Message
from neuronsim.errors import FlagWarning, InvalidArgument, InvalidModel, warn
from neuronsim.frontends.calls import ReadModel
from neuronsim.frontends.composite_calls import with_rows
from neuronsim.frontends.functions import find_function, is_function, users_errors
from neuronsim.frontends.functions import to_model as function_to_model
from neuronsim.frontends.inputs import ModelInputs
from neuronsim.frontends.jax.belonging import is_jax, is_stage, packages, raised_in_jax
from neuronsim.frontends.jax.functions import to_model as jax_to_model
from neuronsim.frontends.jax.stablehlo import is_export, is_stablehlo, read_export
from neuronsim.frontends.jax.stablehlo import read as read_stablehlo
from neuronsim.frontends.onnx.files import is_onnx
from neuronsim.frontends.other_models import name_model
from neuronsim.frontends.pytorch_xla import as_traced
from neuronsim.frontends.tensorflow import is_tensorflow
from neuronsim.frontends.tensorflow import to_model as tensorflow_to_model
from neuronsim.frontends.torch.archive import is_archive
from neuronsim.frontends.torch.belonging import is_exported, is_torch
from neuronsim.frontends.weights import with_weights
from neuronsim.hlo import cache, proto
from neuronsim.hlo.asynchronous import with_synchronous_pairs
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify
from neuronsim.program import CompiledProgram
from neuronsim.tuning.dataset import sampled_inputs

_CLOSED = ModelInputs()  # of a model that states all of its inputs


@processor.pinned
def read_model(model: Any, inputs: ModelInputs = _CLOSED, data: Any = None) -> Module:
    """The verified module of a model in any of the forms that `compile` takes; what it leaves open of
    its inputs may be that of `data`. Raises InvalidModel and others.
    """
    found = read_verified(model, inputs, data)
    say(found.messages)
    return found.module


def _is_pytorch(model: Any) -> bool:
    """Whether a model is PyTorch's own, not a file that PyTorch/XLA has traced."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).endswith(".pt2")
    return "torch" in {c.__module__.partition(".")[0] for c in type(model).__mro__}


def read_verified(model: Any, inputs: ModelInputs, data: Any = None) -> ReadModel:
    """The same, with how it is called and what there is to say of it."""
    found = read_unverified(model, inputs, data)
    verify(found.module)
    return found


def read_unverified(model: Any, inputs: ModelInputs, data: Any = None) -> ReadModel:
    """The same, before its module is verified: lint tells of more than the first mistake."""
    found = _read_open(model, inputs, data)
    _check_batch(inputs.batch, found.module)
    module, said = as_traced(
        with_rows(with_synchronous_pairs(found.module)), os.environ, is_pytorch=_is_pytorch(model)
    )
    if inputs.weights is None:
        return replace(found, module=module, messages=said)
    bound = with_weights(module, inputs.weights)
    calls = found.calls and found.calls.without(module.parameters, bound.parameters)
    return ReadModel(bound, calls, said)


def _read_open(model: Any, inputs: ModelInputs, data: Any) -> ReadModel:
    if isinstance(model, str) and (function := find_function(model)) is not None:
        with users_errors(model):
            return _read_open(function, inputs, data)
    if inputs.input_types and (is_onnx(model) or is_archive(model) or is_exported(model)):
        raise InvalidArgument("input_types: an exported model states its inputs' types")
    if is_onnx(model):
        return _read_onnx(model, inputs, data)
    if inputs.outputs:
        raise InvalidArgument(
            "outputs: an ONNX model ends at other tensors than its own; others do not"
        )
    is_unbuilt = getattr(model, "built", True) is False and "keras" in packages(model)
    if is_unbuilt and not is_tensorflow(model):  # TensorFlow's functions make variables as they trace
        raise InvalidModel(
            f"{type(model).__name__} of Keras has no weights yet, which it makes of the first input "
            "that it sees: call it once, model(x), or model.build(shape), and then compile it"
        )
    if is_torch(model, inputs.examples):
        return _read_torch(model, inputs, data)
    if is_stablehlo(model):
        _refuse_inputs(inputs, "StableHLO")
        return read_stablehlo(model)
    model = read_export(model) if is_export(model) else model
    states = inputs.examples or inputs.input_shapes or data is not None
    if states and is_tensorflow(model):
        return tensorflow_to_model(model, *_arguments(inputs, data))
    if is_stage(model) or (states and is_jax(model, inputs.examples)):
        return _read_jax(model, inputs, data)
    if is_function(model) and states:
        try:
            return _read_function(model, inputs, data)
        except Exception as error:
            if not raised_in_jax(error):
                raise
        return _read_jax(model, inputs, data)
    found = ReadModel(_read_hlo(model))
    _refuse_inputs(inputs, "HLO")
    return found


def _refuse_inputs(inputs: ModelInputs, kind: str) -> None:
    """Raises InvalidArgument for what says inputs' shapes or values, which such a model states."""
    unread = [n for n, v in vars(_CLOSED).items() if n != "weights" and getattr(inputs, n) != v]
    if unread:
        raise InvalidArgument(
            f"{', '.join(unread)}: a model of {kind} states its inputs' shapes and takes none"
        )


def _check_batch(batch: int, module: Module) -> None:
    """Raises InvalidArgument for a batch that none of a model's inputs took."""
    types = [p.array.type for p in module.parameters]
    if batch == 1 or any(t.dims[:1] == (batch,) for t in types):
        return
    if not types:
        raise InvalidArgument(
            f"batch {batch}: the model has no inputs, or the values of all are given: leave batch out"
        )
    listed = ", ".join(map(str, types))
    raise InvalidArgument(
        f"batch {batch}: the model's inputs have no first dimension that is open ({listed}): leave "
        "batch out, or say their shapes where the model takes others"
    )


# The operators of ONNX and of PyTorch are imported once such a model is there (cost of import): most
# commands need neither.
def _read_onnx(model: Any, inputs: ModelInputs, data: Any) -> ReadModel:
    from neuronsim.frontends.onnx.model import to_module

    module = to_module(
        model,
        input_shapes=inputs.stated_shapes,
        input_values=inputs.input_values,
        batch=inputs.batch,
        sample_shapes={n: t.dims for n, t in _sample_types(data).items()},
        composites=inputs.composites,
        outputs=inputs.outputs,
        examples=inputs.example_args,
    )
    return ReadModel(module)


def _read_torch(model: Any, inputs: ModelInputs, data: Any) -> ReadModel:
    from neuronsim.frontends.torch.reading import read

    return read(model, inputs, {} if data is None else sampled_inputs(data))


def _read_function(model: Any, inputs: ModelInputs, data: Any) -> ReadModel:
    keeps = inputs.composites == "kept"
    return function_to_model(model, *_arguments(inputs, data), keeps_composites=keeps)


def _read_jax(model: Any, inputs: ModelInputs, data: Any) -> ReadModel:
    return jax_to_model(model, *_arguments(inputs, data), inputs.batch)


def _arguments(
    inputs: ModelInputs, data: Any
) -> tuple[
    tuple[Any, ...],
    Mapping[str, Any],
    dict[str, ops.ArrayType],
    Mapping[str, Any],
    tuple[int | str, ...],
]:
    """What the readers of functions take: examples by position and by name, types by name, known
    values, and which examples are constants.
    """
    examples, values = inputs.example_kwargs or {}, inputs.input_values or {}
    return inputs.example_args, examples, _types(inputs, data), values, inputs.constants


def _types(inputs: ModelInputs, data: Any) -> dict[str, ops.ArrayType]:
    """The types of a function's parameters by name: of the data's samples, and of the shapes that are
    given, in float32 where the data say nothing else.
    """
    found = {n: t._replace(dims=(inputs.batch, *t.dims)) for n, t in _sample_types(data).items()}
    for name, dims in (inputs.input_shapes or {}).items():
        dtype = found[name].dtype if name in found else dtypes.float32
        found[name] = ops.ArrayType(dtype, tuple(dims))
    for name, dtype in inputs.stated_types.items():
        if name not in found:
            raise InvalidArgument(f"input_types: nothing says the shape of {name!r}: give input_shapes")
        found[name] = found[name]._replace(dtype=dtype)
    return {n: t for n, t in found.items() if n not in (inputs.input_values or {})}


def _sample_types(data: Any) -> dict[str, ops.ArrayType]:
    """The types of data without their first axis, which is samples; float64 stands for float32."""
    if data is None:
        return {}
    found: dict[str, ops.ArrayType] = {}
    for name, x in sampled_inputs(data).items():
        dtype = dtypes.as_dtype(x.dtype.newbyteorder("="))
        wide = dtype is dtypes.float64
        found[name] = ops.ArrayType(dtypes.float32 if wide else dtype, x.shape[1:])
    return found


def _read_hlo(model: Any) -> Module:
    if isinstance(model, Module):
        return model
    if isinstance(model, bytes | bytearray | memoryview):
        return proto.from_bytes(bytes(model) if isinstance(model, bytearray) else model)
    if isinstance(model, str) and "\n" in model:
        proto.from_bytes(model.encode(errors="surrogateescape"))  # which says what else it is
        raise InvalidModel(
            "a model's text is given as bytes, text.encode(): a str is the name of a file"
        )
    if isinstance(model, str | os.PathLike):
        return cache.read(os.fspath(model))
    raise InvalidModel(f"not a model but {kind_of(model)}")


def kind_of(model: Any) -> str:
    """What was given in the place of a model, and how it becomes one."""
    if isinstance(model, CompiledProgram):
        return "a program that is compiled already: call it, or give its .model"
    return name_model(model)


def is_traced(model: Any) -> bool:
    """Whether a model is Python's code, which is traced here, and no file that says what it was."""
    if isinstance(model, str):
        return find_function(model) is not None
    return callable(model) and not is_exported(model)


def say(messages: Sequence[Message]) -> None:
    for message in messages:
        if message.level == "warning":
            warn(message.text, FlagWarning)


def name_of(model: Any, module: Module) -> str:
    """What reports call a model: its file, else its module's name."""
    return os.fspath(model) if isinstance(model, str | os.PathLike) else module.name
