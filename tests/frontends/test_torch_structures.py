"""Structures of tensors that PyTorch does not know by itself: users' classes, Hugging Face's caches."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

import neuronsim
from neuronsim.errors import InvalidModel, UnsupportedType

torch = pytest.importorskip("torch")

import neuronsim.torch as door  # noqa: E402
from neuronsim.frontends.torch.caches import register_caches  # noqa: E402
from neuronsim.frontends.torch.structures import Layout  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)


@dataclass
class Pair:
    """A structure that nobody tells PyTorch of."""

    first: Any
    second: Any


class Cache:
    """A cache of keys, as Hugging Face's are."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    """What gives its cache beside its result, and goes on with one that it is given."""

    def forward(self, x: Any, cache: Cache | None = None) -> Any:
        keys = x if cache is None else torch.cat([cache.keys, x])
        return keys.sum(0), Cache(keys)


def gives_a_pair(x: Any) -> Pair:
    return Pair(x, x)


def takes_a_pair(pair: Pair, x: Any) -> Any:
    return pair.first + x


def test_a_class_that_is_not_registered_is_named() -> None:
    way = r"Pair.*register_dataclass\(Pair\).*register_pytree_node"
    with pytest.raises(UnsupportedType, match=f"gives_a_pair gives an object of {way}"):
        neuronsim.compile(gives_a_pair, X)
    with pytest.raises(UnsupportedType, match=f"takes_a_pair takes an object of {way}"):
        neuronsim.compile(takes_a_pair, Pair(X, X), X)


def test_a_saved_structure_asks_for_the_import_of_its_class() -> None:
    spec = '[1, {"type": "other.Cache", "context": "null", "children_spec": []}]'
    header = {"structure": spec, "others": [], "are_tensors": [], "unread": []}
    with pytest.raises(InvalidModel, match=r"other\.Cache.*not registered.*import what defines it"):
        Layout.from_dict(header)


def test_caches_are_registered_as_hugging_face_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a function that stands for its own."""
    tree = torch.utils._pytree
    modules = {n: ModuleType(n) for n in ("transformers", "transformers.exporters")}
    models: Any = ModuleType("transformers.modeling_utils")
    exporter: Any = ModuleType("transformers.exporters.exporter_dynamo")
    asked = []

    def register(model: Any) -> None:
        asked.append(model)
        if Cache not in tree.SUPPORTED_NODES:
            tree.register_pytree_node(
                Cache,
                lambda c: ([c.keys], None),
                lambda found, _: Cache(*found),
                flatten_with_keys_fn=lambda c: ([(tree.GetAttrKey("keys"), c.keys)], None),
            )

    models.PreTrainedModel, exporter.register_cache_pytrees_for_model = Model, register
    for name, module in {**modules, models.__name__: models, exporter.__name__: exporter}.items():
        monkeypatch.setitem(sys.modules, name, module)
    try:
        traced = door.trace(torch.nn.Sequential(Model()), X, auto_cast="none")
        total, cache = traced(X)
        assert isinstance(asked[0], Model)
        assert torch.equal(cache.keys, X)
        assert torch.equal(total, X.sum(0))
        total, cache = door.trace(Model(), (X, cache), auto_cast="none")(X, cache)
        assert torch.equal(cache.keys, torch.cat([X, X]))
        assert torch.equal(total, 2 * X.sum(0))
        register_caches(lambda x: x)  # whose parts are not known
        assert asked[-1] is exporter
    finally:
        tree.SUPPORTED_NODES.pop(Cache, None)


def test_a_model_of_hugging_face_gives_its_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=9, n_positions=8)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[1, 5, 7]])
    with torch.no_grad():
        expected = model(ids)
    found = door.trace(model, ids, auto_cast="none")(ids)
    torch.testing.assert_close(found.logits, expected.logits)
    theirs, mine = expected.past_key_values, found.past_key_values
    assert isinstance(mine, transformers.DynamicCache)
    torch.testing.assert_close(mine.layers[1].keys, theirs.layers[1].keys)
