"""Structures of tensors that PyTorch does not know by itself: users' classes, Hugging Face's caches."""

from __future__ import annotations

import collections
import math
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim.errors import InvalidData, InvalidModel, UnsupportedType

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


@dataclass
class Result:
    """What a model gives, as Hugging Face's do: a class with the names of its parts."""

    logits: Any
    states: Any = None


class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any, mask: Any = None, *, others: Any, twice: bool = True) -> Any:
        total = x * others["scale"] + others["shift"][0]
        return {"result": Result(total * 2 if twice else total, [x, None]), "count": 3}


def test_a_program_takes_and_gives_what_the_model_does(tmp_path: Path) -> None:
    if Result not in torch.utils._pytree.SUPPORTED_NODES:
        torch.utils._pytree.register_dataclass(Result)
    others = {"shift": (X - 1,), "scale": X + 2}
    program = neuronsim.compile(
        Named(), X, None, example_kwargs={"others": others, "twice": True}, auto_cast="none"
    )
    want = 2 * (X * (X + 2) + X - 1)
    calls = (
        program(X, others=others),
        program(X, None, others={"scale": X + 2, "shift": (X - 1,)}, twice=True),
        program(X, X - 1, X + 2),
        program(X, others_scale=X + 2, others_shift_0=X - 1),
    )
    path = tmp_path / "program.nsim"
    program.save(path)
    for found in (*calls, neuronsim.load(path)(X, others=others)):
        assert list(found) == ["result", "count"]
        assert found["count"] == 3
        assert found["result"]._fields == ("logits", "states")
        np.testing.assert_array_equal(np.asarray(found["result"].logits), want)
        np.testing.assert_array_equal(np.asarray(found["result"][1][0]), X)
        assert found["result"].states[1] is None
        assert type(pickle.loads(pickle.dumps(found))["result"]) is type(found["result"])
    logits, x = program.results(X, others=others)
    np.testing.assert_array_equal(np.asarray(logits), want)
    np.testing.assert_array_equal(np.asarray(x), X)
    for wrong, message in (
        ({"others": others, "twice": False}, "twice is False: the program was made for True"),
        ({"others": others, "mask": X}, r"'mask' is \*: the program was made for None"),
        ({"others": {"scale": X}}, r"'others' is {'scale': \*}: the program was made for {'scale': "),
    ):
        with pytest.raises(InvalidData, match=message):
            program(X, **wrong)


class Ordered(torch.nn.Module):  # type: ignore[misc,name-defined]
    """What has a number between its arrays, and arrays that may be left out."""

    def forward(self, x: Any, n: int = 2, a: Any = None, b: Any = None, limit: float = 1.0) -> Any:
        total = x * n
        total = total if a is None else total + 10 * a
        total = total if b is None else total + 100 * b
        return {"total": total, "limit": limit}


def test_arguments_have_the_order_of_the_model(tmp_path: Path) -> None:
    kwargs = {"b": X + 2, "a": X + 1, "limit": math.inf}
    program = neuronsim.compile(Ordered(), X, example_kwargs=kwargs, auto_cast="none")
    want = np.asarray(Ordered()(X, **kwargs)["total"])
    program.save(tmp_path / "program.nsim")
    for p in (program, neuronsim.load(tmp_path / "program.nsim")):
        for found in (
            p(X, 2, X + 1, X + 2, math.inf),
            p(X, a=X + 1, b=X + 2),
            p(X, np.int64(2), X + 1, X + 2),
            p(X, X + 1, X + 2),  # the inputs one by one
            p(X.tolist(), b=(X + 2).tolist(), a=X + 1),
        ):
            np.testing.assert_array_equal(np.asarray(found["total"]), want)
            assert found["limit"] == math.inf
        with pytest.raises(InvalidData, match="n is 3: the program was made for 2"):
            p(X, 3, X + 1, X + 2)
    only_b = neuronsim.compile(Ordered(), X, example_kwargs={"b": X + 2}, auto_cast="none")
    found = only_b(X, 2, None, X + 2)["total"]
    np.testing.assert_array_equal(np.asarray(found), 2 * X + 100 * (X + 2))
    with pytest.raises(InvalidData, match=r"'a' is \*: the program was made for None"):
        only_b(X, a=X, b=X)
    with pytest.raises(InvalidData, match=r"limit is 2\.0: the program was made for 1\.0"):
        only_b(X, b=X, limit=2.0)


def test_results_of_pytorch_have_their_names() -> None:
    found = neuronsim.compile(lambda x: x.max(0), X, auto_cast="none")(X)
    np.testing.assert_array_equal(np.asarray(found.values), np.asarray(X.max(0).values))
    assert found.indices.tolist() == [1, 1, 1]


def test_dicts_of_other_classes_and_keys_of_several_kinds() -> None:
    given = {("a", 1): X, (None, 2): X + 1}
    program = neuronsim.compile(lambda d: d["a", 1] - d[None, 2], given, auto_cast="none")
    assert (np.asarray(program(collections.OrderedDict(given))) == -1).all()


def test_what_is_known_of_an_argument_is_no_input() -> None:
    program = neuronsim.compile(
        Named(),
        X,
        example_kwargs={"others": {"scale": X, "shift": (X,)}},
        input_values={"x": X.numpy()},
        auto_cast="none",
    )
    found = program(others={"scale": X, "shift": (X,)})
    np.testing.assert_array_equal(np.asarray(found["result"].logits), 2 * (X * X + X))
    with pytest.raises(InvalidData, match="'x' is a constant of the program"):
        program(x=X, others={"scale": X, "shift": (X,)})


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
