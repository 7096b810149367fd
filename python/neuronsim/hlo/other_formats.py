"""Files that are taken for models: what they are, and the lines that bring a model in.

Nothing in them is run: a pickle is known by how it begins, and an archive by the names of its members.

>>> name_format(b"GGUF....", "llama.gguf").partition(":")[0]
'a GGUF file, the quantized weights of llama.cpp'
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from typing import NamedTuple


class _Format(NamedTuple):
    """How a format's files begin (or their names end), what they are, and what to do instead."""

    start: bytes
    what: str
    instead: str


_EXPORT = (
    "program = torch.export.export(network.eval(), example_inputs)\n    neuronsim.compile(program)"
)
_TENSORFLOW = (
    "function = tensorflow.saved_model.load(folder).signatures['serving_default']\n"
    "    neuronsim.compile(function, *example_inputs)"
)
_KERAS = (
    "network = keras.saving.load_model(file)  # Keras on TensorFlow\n"
    "    neuronsim.compile(network, *example_inputs)"
)
_TO_ONNX = "write the network as ONNX, and\n    neuronsim.compile('model.onnx')"
_WEIGHTS = (
    "weights have no steps: give the model, and these as its weights,\n"
    "    neuronsim.compile(model, ..., weights={file!r})"
)
_UNPICKLED = (
    "it may run code as it is read, so neuronsim opens none: load it where it was written, and\n    "
)

_BY_START = (
    _Format(rb"\x1f\x8b", "gzip", "unpack it first:\n    gunzip {file}"),
    _Format(
        rb"\x80[\x02-\x05]",
        "a pickle, such as torch's .pt or scikit-learn's .joblib",
        f"{_UNPICKLED}{_EXPORT}",
    ),
    _Format(rb"GGUF", "a GGUF file, the quantized weights of llama.cpp", "give the network that "
            f"they are of in float32:\n    {_EXPORT}"),
    _Format(rb"....TFL3", "a TFLite model", "give the network that it was converted from:\n    "
            + _TENSORFLOW),
    _Format(rb"\x89HDF\r\n", "HDF5, such as Keras's .h5", _KERAS),
    _Format(rb"[^\x00]{1,7}\x00{1,7}\{\s*\"", "safetensors", _WEIGHTS),
    _Format(rb"\x93NUMPY", "an array of NumPy", "give it as data, or as an argument:\n    "
            "neuronsim.compile(model, numpy.load({file!r}))"),
    _Format(rb"\x12\x01\x00\x00\x00\x00\x00\x00", "weights of MXNet", _TO_ONNX),
    _Format(rb"\x08\x01\x12[^\x00]{1,5}\n", "a SavedModel of TensorFlow", _TENSORFLOW),
    _Format(rb"\x08[\x01-\x20][\x10\x12]", "what looks like ONNX", "give it the ending .onnx"),
    _Format(rb"\x7fELF", "a compiled library or program", "give what it was compiled from"),
    _Format(rb"\s*<\?xml|\s*<net\b", "XML, such as OpenVINO's", _TO_ONNX),
    _Format(rb"\s*\{[^}]*\"(nodes|arg_nodes)\"\s*:", "a network of MXNet", _TO_ONNX),
    _Format(rb"\s*\{", "JSON", "give the model's own file"),
    _Format(rb"\s*(import|from|def|class) |#!.*python|\s*\"\"\"", "a script of Python",
            "name a function in it:\n    neuronsim.compile('{stem}:function', *example_arguments)"),
)  # fmt: skip
_BY_NAME = (
    _Format(rb"\.pt2$", "what torch.export saved",
            "neuronsim.compile(torch.export.load({file!r}))"),
    _Format(rb"\.neff$", "a NEFF, which neuronx-cc made of a model",
            "give what it was made of, the folder of the compile cache in which\n    "
            "model.hlo_module.pb lies: neuronsim.compile('MODULE_...')"),
    _Format(rb"\.(tflite)$", "a TFLite model", _TENSORFLOW),
    _Format(rb"\.(mlmodel|mlpackage)$", "a model of Core ML", _TO_ONNX),
    _Format(rb"\.(pdmodel|pdiparams)$", "a model of PaddlePaddle",
            "paddle2onnx writes ONNX of it:\n    neuronsim.compile('model.onnx')"),
    _Format(rb"\.(caffemodel|prototxt)$", "a model of Caffe", _TO_ONNX),
    _Format(rb"\.(ckpt|index|data-\d+-of-\d+)$", "a checkpoint", _WEIGHTS),
    _Format(rb"\.(msgpack)$", "a checkpoint of Flax", "restore it and give it as an argument:\n    "
            "neuronsim.compile(network.apply, parameters, *example_inputs, constants=(0,))"),
)  # fmt: skip
_BY_MEMBER = (
    _Format(rb"(^|/)constants\.pkl$", "TorchScript, a zip file of code and pickles",
            "give the network itself:\n    " + _EXPORT),
    _Format(rb"(^|/)(serialized_exported_program\.json|archive_format|models/model\.json)$",
            "what torch.export saved", "neuronsim.compile(torch.export.load({file!r}))"),
    _Format(rb"(^|/)data\.pkl$", "a zip file of torch.save, a pickle and its tensors",
            f"{_UNPICKLED}{_EXPORT}"),
    _Format(rb"^model\.weights\.h5$", "a model of Keras", _KERAS),
    _Format(rb"^program\.json$", "a saved program of neuronsim",
            "`neuronsim run` takes it, and neuronsim.load({file!r})"),
    _Format(rb"\.npy$", "a zip file of arrays, an .npz", _WEIGHTS),
)  # fmt: skip
_BY_FILE_IN_FOLDER = (
    _Format(rb"^saved_model\.pb(txt)?$", "a SavedModel of TensorFlow", _TENSORFLOW),
    _Format(rb"\.onnx$", "a folder of ONNX", "neuronsim.compile('{member}')"),
    _Format(rb"^(_METADATA|_CHECKPOINT_METADATA|manifest\.ocdbt)$", "a checkpoint of Orbax",
            "restore it and give it as an argument:\n    neuronsim.compile(function, parameters, "
            "*example_inputs, constants=(0,))"),
    _Format(rb"^(pytorch_model.*\.bin|model.*\.safetensors|adapter_config\.json)$",
            "a checkpoint of Hugging Face",
            "network = transformers.AutoModel.from_pretrained({file!r})\n    "
            "neuronsim.compile(network.eval(), *example_inputs)"),
    _Format(rb"^Manifest\.json$", "a package of Core ML", _TO_ONNX),
)  # fmt: skip


def name_format(start: bytes, file: str = "", content: bytes | memoryview | None = None) -> str:
    """What a file is that begins so, by its beginning and its name, and what to do instead; nothing of
    what may be a module of HLO. `content` is all of it, where it is at hand.
    """
    if start.startswith(b"PK\x03\x04"):
        found = _of_zip(file, content)
        return _told(found, file) if found else "a zip file: give a model in it"
    if _NODE.match(start) is not None:
        return _told(_Format(b"", "a frozen GraphDef of TensorFlow", _OF_GRAPH), file)
    for f in _BY_NAME:
        if re.search(f.start, file.encode(errors="replace")):
            return _told(f, file)
    for f in _BY_START:
        if re.match(f.start, start, re.DOTALL):
            return _told(f, file)
    return ""


def name_folder(folder: str) -> str:
    """What a folder is, by the names of its files, and what to do instead."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # which the reader says
        return ""
    for f in _BY_FILE_IN_FOLDER:
        member = next((n for n in names if re.search(f.start, n.encode(errors="replace"))), None)
        if member is not None:
            return _told(f, folder, os.path.join(folder, member))
    return ""


_OF_GRAPH = (
    "function = tensorflow.compat.v1.wrap_function(lambda: tensorflow.graph_util.import_graph_def("
    "graph), []).prune(inputs, outputs)\n    neuronsim.compile(function, *example_inputs)"
)
# The first node of a graph that tf.compat.v1 froze: its name and its operator.
_NODE = re.compile(
    rb"\n[^\n]{1,3}\n[^\n][\w./:\-]+\x12[^\n](Placeholder\w*|Const|NoOp|VarHandleOp|Variable\w*|Identity)"
)


def _of_zip(file: str, content: bytes | memoryview | None) -> _Format | None:
    try:
        with zipfile.ZipFile(file if content is None else io.BytesIO(content)) as archive:
            names = [n.encode(errors="replace") for n in archive.namelist()]
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None
    return next((f for f in _BY_MEMBER if any(re.search(f.start, n) for n in names)), None)


def _told(found: _Format, file: str, member: str = "") -> str:
    stem = os.path.splitext(os.path.basename(file))[0] or "module"
    instead = found.instead
    for key, value in (("{file!r}", repr(file or "file")), ("{file}", file or "file")):
        instead = instead.replace(key, value)
    return f"{found.what}: {instead.replace('{stem}', stem).replace('{member}', member)}"
