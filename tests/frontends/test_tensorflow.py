"""TensorFlow's door, with a stand-in for its functions: what it asks of them, and what it makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim.errors import InvalidArgument, InvalidData, InvalidModel, UnsupportedOperator

pytestmark = pytest.mark.isa_independent

# As TensorFlow has it: arguments, then variables and captured tensors; keys of dicts in their order.
TEXT = """HloModule f
ENTRY f {
  arg0.1 = f32[2,4] parameter(0)
  arg1.1 = f32[2] parameter(1)
  arg2.1 = f32[4,3] parameter(2)
  arg3.1 = f32[2] parameter(3)
  dot.1 = f32[2,3] dot(arg0.1, arg2.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  add.1 = f32[2] add(arg1.1, arg3.1)
  ROOT tuple.1 = (f32[2], f32[2,3]) tuple(add.1, dot.1)
}
"""
W = np.arange(12, dtype="f4").reshape(4, 3)
X = np.ones((2, 4), "f4")


class Variable:
    name = "dense/kernel:0"
    handle = SimpleNamespace()

    def numpy(self) -> Any:
        return W


class Tensor:
    def numpy(self) -> Any:
        return np.ones(2, "f4")


class Function:
    """What a tf.function has."""

    def __init__(self, outputs: Any = None) -> None:
        self.outputs = outputs or {"y": 0, "sum": 0}
        self.variable = Variable()
        self.stages: list[str] = []
        self.python_function = lambda x, options: None

    def experimental_get_compiler_ir(self, *args: Any) -> Any:
        def ir(stage: str) -> bytes:
            self.stages.append(stage)
            if len(args) != 2:
                raise ValueError("Binding inputs failed")
            from neuronsim.hlo import parse, proto

            return proto.to_bytes(parse.from_text(TEXT))

        return ir

    def get_concrete_function(self, *args: Any) -> Any:
        return SimpleNamespace(
            captured_inputs=[self.variable.handle, Tensor()],
            variables=[self.variable],
            structured_outputs=self.outputs,
        )


def test_variables_are_constants_and_pytrees_go_in_and_out() -> None:
    function, options = Function(), {"b": 5, "a": np.zeros(2, "f4")}
    program = neuronsim.compile(function, X, options, auto_cast="none")
    assert function.stages == ["hlo_serialized"]
    assert list(program.inputs) == ["x", "options.a"]
    weights = program.model.entry_computation.by_name["dense/kernel"]
    assert weights.attributes["literal"].data.tobytes() == W.tobytes()
    result = program(X, options)
    assert list(result) == ["sum", "y"]
    assert np.asarray(result["y"]).tolist() == (X @ W).tolist()
    assert np.asarray(result["sum"]).tolist() == [1, 1]
    assert program(X, {"a": [2.0, 3.0][0] * np.ones(2, "f4"), "b": 5})["sum"].tolist() == [3, 3]
    with pytest.raises(InvalidData, match=r"options.b is 6"):
        program(X, {"a": options["a"], "b": 6})


def test_arguments_can_be_constants() -> None:
    options = {"a": np.full(2, 4, "f4")}
    program = neuronsim.compile(Function(), X, options, constants=("options",), auto_cast="none")
    assert list(program.inputs) == ["x"]
    assert program(X)["sum"].tolist() == [5, 5]


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(UnsupportedOperator, match=r"TensorFlow makes no HLO .* Binding inputs"):
        neuronsim.compile(Function(), X, X, X)
    with pytest.raises(InvalidArgument, match=r"takes options, .* input_shapes=\{'options': "):
        neuronsim.compile(Function(), X)
    with pytest.raises(InvalidArgument, match=r"takes no 'option' \(did you mean 'options'\?\)"):
        neuronsim.compile(Function(), X, input_shapes={"option": (2,)})
    with pytest.raises(InvalidModel, match="without example arguments"):
        neuronsim.compile(Function())
    with pytest.raises(InvalidModel, match="4 parameters of 3 arrays and 2 variables"):
        neuronsim.compile(Function(), X, {"a": X, "b": X})
    with pytest.raises(InvalidArgument, match="changes variables"):
        neuronsim.compile(Function({"y": 0}), X, {"a": np.zeros(2, "f4")})


def test_arguments_may_be_told_by_their_names() -> None:
    data = {"x": np.ones((4, 4), "f4"), "options": np.ones((4,), "f4")}
    program = neuronsim.compile(
        Function(), input_shapes={"x": (2, 4), "options": (2,)}, auto_cast="none"
    )
    assert list(program.inputs) == ["x", "options"]
    assert program(X, np.zeros(2, "f4"))["sum"].tolist() == [1, 1]
    values = {"options": np.full(2, 4, "f4")}
    known = neuronsim.compile(Function(), X, input_values=values, auto_cast="none")
    assert list(known.inputs) == ["x"]
    assert known(X)["sum"].tolist() == [5, 5]
    tuned = neuronsim.tune(Function(), data, batch=2, strategy="ladder")
    assert tuned.samples == 4


def test_a_signature_takes_its_keywords_and_a_sole_one_may_be_x() -> None:
    class Signature(Function):
        structured_input_signature = ((), {"b": None, "a": None})

    program = neuronsim.compile(Signature(), input_shapes={"a": (2, 4), "b": (2,)}, auto_cast="none")
    assert list(program.inputs) == ["a", "b"]


def test_keras_on_tensorflow_is_not_taken_for_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras's code reads the names of all its backends."""
    jax = pytest.importorskip("jax")
    trackable = type("AutoTrackable", (), {"__module__": "tensorflow.python.trackable.autotrackable"})

    class Sequential(trackable):  # type: ignore[misc,valid-type]
        def __call__(self, inputs: Any) -> Any:
            return jax.numpy.asarray(inputs)

    class Asked(Exception):
        """That TensorFlow's door was."""

    def door(*_: Any) -> Any:
        raise Asked

    monkeypatch.setattr("neuronsim.reading.tensorflow_to_model", door)
    with pytest.raises(Asked):
        neuronsim.compile(Sequential(), X)


def test_a_layer_of_keras_without_weights_is_to_be_called_first() -> None:
    class Layer:
        built = False

        def __call__(self, x: Any) -> Any:
            return x

    Layer.__module__ = "keras.src.layers.layer"
    with pytest.raises(InvalidModel, match=r"Layer of Keras has no weights yet.*call it once"):
        neuronsim.compile(Layer(), X)
