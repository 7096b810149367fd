"""What is no model is named for what it is, with the lines that bring one in; nothing is unpickled."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of

import neuronsim
from neuronsim.errors import InvalidModel, NeuronSimError

pytestmark = pytest.mark.isa_independent

HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, pickle.dumps(Bomb()))
    return file.getvalue()


FILES: dict[str, tuple[bytes, str, str]] = {
    "old.pt": (pickle.dumps(Bomb()), "a pickle", "torch.export.export"),
    "raw.pkl": (pickle.dumps(Bomb()), "scikit-learn's .joblib", "neuronsim opens none"),
    "state.pt": (zipped("s/data.pkl", "s/version"), "torch.save", "torch.export.export"),
    "script.pt": (zipped("s/data.pkl", "s/constants.pkl"), "TorchScript", "torch.export.export"),
    "net.keras": (zipped("config.json", "model.weights.h5"), "Keras", "load_model"),
    "net.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5", "load_model"),
    "arrays.npz": (zipped("x.npy"), "an .npz", "weights='arrays.npz'"),
    "x.npy": (b"\x93NUMPY\x01\x00" + bytes(40), "an array of NumPy", "numpy.load('x.npy')"),
    "w.safetensors": (
        struct.pack("<Q", len(HEADER)) + HEADER + bytes(4),
        "safetensors",
        "weights='w.safetensors'",
    ),
    "llama.gguf": (b"GGUF\x03\0\0\0" + bytes(40), "GGUF", "neuronsim.compile"),
    "net.tflite": (b"\x1c\0\0\0TFL3" + bytes(40), "TFLite", "saved_model.load"),
    "net.neff": (bytes(64), "a NEFF", "model.hlo_module.pb"),
    "module.hlo.pb.gz": (gzip.compress(b"x" * 99), "gzip", "gunzip module.hlo.pb.gz"),
    "frozen.pb": (b"\n\x2e\n\x01x\x12\x0bPlaceholder" + bytes(60), "GraphDef", "wrap_function"),
    "net-symbol.json": (b'{\n "nodes": [], "arg_nodes": []}', "MXNet", "model.onnx"),
    "net-0000.params": (b"\x12\x01" + bytes(60), "MXNet", "model.onnx"),
    "train.py": (b"import jax\n", "a script of Python", "'train:function'"),
    "words.txt": (b"hello", "text, and text of HLO begins with HloModule", ""),
    "noise.bin": (b"\xff\xfe" * 99, "no kind that neuronsim knows", ""),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, what, line = FILES[name]
    Path(name).write_bytes(data)
    for model in (name, Path(name)):
        with pytest.raises(InvalidModel) as caught:
            neuronsim.compile(model)
        assert what in str(caught.value)
        assert line in str(caught.value)
        assert "wire type" not in str(caught.value)
    assert not Path("exploded").exists()


FOLDERS = {
    "saved_model.pb": ("SavedModel", "saved_model.load"),
    "model.safetensors": ("Hugging Face", "from_pretrained"),
    "_METADATA": ("Orbax", "constants=(0,)"),
    "model.onnx": ("ONNX", "model.onnx'"),
    "anything": ("holds no model.hlo_module.pb", ""),
}


@pytest.mark.parametrize("member", FOLDERS)
def test_folders(member: str, tmp_path: Path) -> None:
    (tmp_path / member).write_bytes(b"\x08\x01")
    what, line = FOLDERS[member]
    with pytest.raises(InvalidModel) as caught:
        neuronsim.compile(tmp_path)
    assert what in str(caught.value)
    assert line in str(caught.value)


def of_package(package: str, name: str, **attributes: Any) -> Any:
    """An object whose class is as one of another package."""
    made = type(name, (), attributes)
    made.__module__ = f"{package}.models"
    return made()


def call(self: Any, x: Any) -> Any:
    return x


OBJECTS: list[tuple[Any, str, str]] = [
    (of_package("sklearn", "LogisticRegression"), "a model of sklearn", "skl2onnx.to_onnx(model"),
    (of_package("xgboost", "XGBClassifier"), "a model of xgboost", "convert_xgboost"),
    (of_package("torch", "Linear", __call__=call), "PyTorch without example", "model.eval()"),
    (of_package("torch", "RecursiveScriptModule", __call__=call), "TorchScript", "torch.export"),
    (of_package("jaxlib", "PjitFunction", __call__=call), "without example", "*example_arguments"),
    (of_package("keras", "Sequential", __call__=call), "TensorFlow", "*example_arguments"),
    (of_package("tensorflow", "UserObject", signatures={}), "SavedModel", "signatures["),
    (of_package("tensorflow", "GraphDef"), "GraphDef", "wrap_function"),
    (of_package("flax", "Dense", init=1, apply=2), "a module of Flax", "model.apply, parameters"),
    (of_package("optax", "GradientTransformation"), "Optax", "model.update"),
    (of_package("onnxruntime", "InferenceSession"), "onnxruntime", "model.onnx"),
    (of_package("jax", "ClosedJaxpr"), "a jaxpr", "jaxpr_as_fun"),
    (np.ones(3), "an array", "neuronsim.compile(function, array)"),
    ({"w": np.ones(3)}, "weights", "weights=weights"),
    (lambda x: x, "a function without example arguments", "*example_arguments"),
    (types.SimpleNamespace, "a class", "model(...)"),
    (5, "builtins.int", "a function of arrays"),
]


@each_of(("model", "what", "line"), OBJECTS, ids=[o[1] for o in OBJECTS])
def test_objects(model: Any, what: str, line: str) -> None:
    for door in (neuronsim.compile, neuronsim.plan, neuronsim.lint):
        with pytest.raises(NeuronSimError) as caught:
            door(model)
        assert what in str(caught.value)
        assert line in str(caught.value)
