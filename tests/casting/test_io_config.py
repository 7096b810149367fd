"""--io-config of neuron-cc: where it is read from, and everything that does not fit the module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.graphs import inst, module_of, parameter

import neuronsim
from neuronsim import dtypes
from neuronsim.casting.flags.io_config import check_io_config
from neuronsim.errors import InvalidFlag
from neuronsim.hlo.module import Module, Shape, TupleShape

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F16, F32 = Shape(dtypes.float16, (1, 100)), Shape(dtypes.float32, (3,))
GOOD: dict[str, Any] = {
    "inputs": {"x": [[1, 100], "float16"], "y": [[3], "float32"]},
    "outputs": ["a", "b"],
}


@pytest.fixture(scope="module")
def module() -> Module:
    return module_of(
        *(parameter("x.1", F16), parameter("y.2", F32, 1)),
        *(inst("a", "negate", F16, "x.1"), inst("b", "negate", F32, "y.2")),
        inst("out", "tuple", TupleShape((F16, F32)), "a", "b"),
    )


def refused(config: Any, module: Module) -> str:
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(InvalidFlag) as error:
        check_io_config(text, module)
    return str(error.value)


def test_json_a_file_and_an_address_are_read(module: Module, tmp_path: Path) -> None:
    path = tmp_path / "io config.json"
    path.write_text(json.dumps(GOOD))
    for text in (json.dumps(GOOD), f"\n {json.dumps(GOOD)}", str(path), path.as_uri()):
        check_io_config(text, module)
    path.write_text("{}")  # the file decides, not its name
    for text in (str(path), path.as_uri()):
        assert "inputs are no object" in refused(text, module)


def test_names_may_be_those_of_tensorflow_and_a_sole_output_is_the_root(module: Module) -> None:
    names = {f"{n}:0": v for n, v in GOOD["inputs"].items()}
    check_io_config(json.dumps({"inputs": names, "outputs": ["b:0", "a:0"]}), module)
    sole = module_of(parameter("x", F32), inst("y", "negate", F32, "x"))
    check_io_config(json.dumps({"inputs": {"x": [[3], "float32"]}, "outputs": ["y"]}), sole)


def test_all_problems_are_listed_at_once(module: Module) -> None:
    wrong = {
        "inputs": {"x": [[100, 1], "float16"], "yy": [[3], "float32"]},
        "outputs": ["a", "c", "a"],
        "output": [],
    }
    message = refused(wrong, module)
    for part in (
        "it has 'output' (did you mean 'outputs'?)",
        "no input is named 'yy' (did you mean 'y'?)",
        "the input 'y' is missing",
        'input \'x\' is [[100, 1], "float16"], the model\'s [[1, 100], "float16"]',
        "no output is named 'c'",
        "the output 'b' is missing",
        "the output 'a' is given 2 times",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": [[1, 100], "float32"]}, 'the model\'s [[1, 100], "float16"]'),
        ({"x": [[1, 100], "half"]}, '[[1, 100], "half"]'),
        ({"x": [1, 100]}, "the model's"),
        ({"x": "float16"}, 'not a shape and a type such as [[1, 100], "float16"]'),
        ({"x": [[1, 100], "float16", 0]}, "not a shape and a type"),
    ],
)
def test_wrong_shapes_and_types(inputs: Any, message: str, module: Module) -> None:
    assert message in refused(GOOD | {"inputs": GOOD["inputs"] | inputs}, module)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("missing.json", "cannot be read from 'missing.json': No such file"),
        ("s3://bucket/io.json", "it accepts JSON, a file, a file:// address"),
        ("{'inputs'}", "the text is not JSON"),
        ("{" * 100_000, "not JSON"),
        ('{"inputs": [], "outputs": {}}', "its outputs are no list of names"),
        ('{"inputs": {}, "outputs": [1]}', "its outputs are no list of names"),
        ("a\x00b", "cannot be read"),
    ],
)
def test_what_cannot_be_read(text: str, message: str, module: Module) -> None:
    assert message in refused(text, module)


def test_a_file_without_an_object(module: Module, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[1]")
    assert "it is no object with inputs and outputs" in refused(str(path), module)


def test_compile_checks_it(module: Module) -> None:
    neuronsim.compile(module, target="inf1", flags=["--io-config", json.dumps(GOOD)])
    with pytest.raises(InvalidFlag, match="--io-config does not fit 'm'"):
        neuronsim.compile(module, target="inf1", flags=["--io-config", '{"inputs": {}, "outputs": []}'])
