"""Weights that are a module's parameters: from npz, safetensors and mappings, by name and number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.commands import Commands

import neuronsim
from neuronsim import api, dtypes
from neuronsim.errors import InvalidArgument, InvalidData, UnsupportedType
from neuronsim.frontends import safetensors
from neuronsim.frontends.weights import with_weights
from neuronsim.hlo import parse, proto
from neuronsim.hlo.module import Module

rng = np.random.default_rng(20)
KERNEL = rng.normal(size=(4, 3)).astype(np.float32)
BIAS = rng.normal(size=3).astype(np.float32)
X = rng.normal(size=(2, 4)).astype(np.float32)
WANTED = X @ KERNEL + BIAS

# As JAX names parameters, with the weights around the input, and an update in the memory of a weight.
TEXT = """\
HloModule layer, input_output_alias={ {1}: (0, {}, may-alias), {0}: (1, {}, may-alias) }
ENTRY main {
  p.1 = f32[3] parameter(0), metadata={op_name="params['dense']['bias']"}
  x.1 = f32[2,4] parameter(1), metadata={op_name="x"}
  k.1 = f32[4,3] parameter(2), metadata={op_name="params['dense']['kernel']"}
  d = f32[2,3] dot(x.1, k.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[2,3] broadcast(p.1), dimensions={1}
  y = f32[2,3] add(d, b)
  twice = f32[2,4] add(x.1, x.1)
  ROOT r = (f32[2,4], f32[2,3]) tuple(twice, y)
}
"""


@pytest.fixture
def module() -> Module:
    return parse.from_text(TEXT)


def write_safetensors(path: Path, tensors: dict[str, tuple[str, Any]]) -> Path:
    """As the format is documented, independently of the reader."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(np.shape(array)), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def result(program: api.CompiledProgram) -> np.ndarray[Any, Any]:
    found = program(x=X)
    assert isinstance(found, tuple)
    return np.asarray(found[1])


@pytest.mark.parametrize(
    ("kernel", "bias"),
    [
        ("k.1", "p.1"),
        ("k", "p"),
        ("2", "0"),
        (2, 0),
        ("arr_2", "arr_0"),
        ("params['dense']['kernel']", "params['dense']['bias']"),
        ("params.dense.kernel", "params/dense/bias"),
        ("dense.kernel", "bias"),
    ],
)
def test_weights_by_name_and_number(module: Module, kernel: Any, bias: Any) -> None:
    program = api.compile(module, auto_cast="none", weights={kernel: KERNEL, bias: BIAS})
    assert list(program.inputs) == ["x"]
    np.testing.assert_allclose(result(program), WANTED, rtol=1e-6)


def test_weights_of_a_pytree(module: Module) -> None:
    program = api.compile(module, weights={"dense": {"kernel": KERNEL, "bias": BIAS}})
    assert list(program.inputs) == ["x"]


def test_weights_of_an_npz(module: Module, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", k=KERNEL, p=BIAS)
    program = api.compile(module, auto_cast="none", weights=tmp_path / "w.npz")
    np.testing.assert_allclose(result(program), WANTED, rtol=1e-6)
    positional = tmp_path / "positional.npz"
    np.savez(positional, BIAS, X, KERNEL)
    assert not api.compile(module, weights=positional).inputs


def test_weights_of_safetensors(module: Module, tmp_path: Path) -> None:
    tensors = {"dense.kernel": ("F32", KERNEL), "dense.bias": ("F32", BIAS)}
    path = write_safetensors(tmp_path / "w.safetensors", tensors)
    program = api.compile(module, auto_cast="none", weights=str(path))
    np.testing.assert_allclose(result(program), WANTED, rtol=1e-6)


def test_weights_of_the_safetensors_library(module: Module, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "w.safetensors"
    library.save_file({"dense.kernel": KERNEL, "dense.bias": BIAS}, path)
    np.testing.assert_allclose(
        result(api.compile(module, auto_cast="none", weights=path)), WANTED, 1e-6
    )


def test_weights_of_shards(module: Module, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"kernel": ("F32", KERNEL)})
    write_safetensors(tmp_path / "b.safetensors", {"bias": ("F32", BIAS), "other": ("F32", BIAS)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"kernel": "a.safetensors", "bias": "b.safetensors"}}))
    np.testing.assert_allclose(
        result(api.compile(module, auto_cast="none", weights=index)), WANTED, 1e-6
    )
    index.write_text(json.dumps({"weight_map": {"kernel": "b.safetensors"}}))
    with pytest.raises(InvalidData, match="lack kernel"):
        api.compile(module, weights=index)
    index.write_text("[]")
    with pytest.raises(InvalidData, match="weight_map"):
        api.compile(module, weights=index)


TYPES = {
    "F64": np.float64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "C64": np.complex64,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool,
}


@pytest.mark.parametrize("name", TYPES)
def test_safetensors_types(name: str, tmp_path: Path) -> None:
    values = np.array([[0, 1, 1], [0, 1, 0]]).astype(TYPES[name])
    # An odd length before it: the tensor lies at an odd address.
    tensors = {"odd": ("U8", np.zeros(3, np.uint8)), "w": (name, values)}
    found = safetensors.read(write_safetensors(tmp_path / "w", tensors))["w"]
    assert found.dtype is dtypes.as_dtype(values.dtype)
    assert found.data.tobytes() == values.tobytes()
    assert found.data.shape == (2, 3)
    assert found.data.flags.aligned


def test_a_float_weight_takes_the_parameters_type(tmp_path: Path) -> None:
    text = TEXT.replace("f32[4,3]", "bf16[4,3]").replace("f32[2,4]", "bf16[2,4]")
    narrow = {"kernel": ("BF16", KERNEL.astype(ml_dtypes.bfloat16)), "bias": ("F16", BIAS.astype("f2"))}
    path = write_safetensors(tmp_path / "w.safetensors", narrow)
    body = api.compile(parse.from_text(text), weights=path).model.entry_computation.by_name
    assert body["k.1"].attributes["literal"].data.tobytes() == narrow["kernel"][1].tobytes()
    assert body["p.1"].attributes["literal"].data.tolist() == BIAS.astype("f2").astype("f4").tolist()
    # float32 to bfloat16, to nearest even also where the context rounds stochastically.
    with neuronsim.use_profile(rounding="stochastic"):
        wide = with_weights(parse.from_text(text), {"kernel": KERNEL, "bias": BIAS})
    bits = wide.entry_computation.by_name["k.1"].attributes["literal"].data
    assert bits.tobytes() == narrow["kernel"][1].tobytes()


def test_everything_that_does_not_fit_is_listed_at_once(module: Module) -> None:
    weights = {"dense.kernel": KERNEL.T, "dense.bia": BIAS, "x": X.astype(int), "y": X}
    with pytest.raises(InvalidData) as caught:
        api.compile(module, weights=weights)
    for said in (
        "no parameter of the model is 'dense.bia' float32[3]",
        "'y' float32[2,4]".replace(",", ", "),
        "'dense.kernel' is float32[3, 4], k.1 takes float32[4,3]",
        "'x' is int64[2, 4], x.1 takes float32[2,4]",
        "missing beside those that are given: p.1 (params['dense']['bias']) float32[3]",
        "parameters without weights: 0 p.1",
    ):
        assert said in str(caught.value), said


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ("args[0]['kernel']", "args[1]"),
        ("state.params['kernel']", "state.opt_state[0].mu['kernel']"),
        ("params['kernel']", "batch['x']"),
    ],
)
def test_what_belongs_to_another_tree_is_an_input(given: str, other: str) -> None:
    text = TEXT.replace("params['dense']['kernel']", given).replace('op_name="x"', f'op_name="{other}"')
    text = text.replace("params['dense']['bias']", given.replace("kernel", "bias"))
    weights = {given: KERNEL, given.replace("kernel", "bias"): BIAS}
    assert list(api.compile(parse.from_text(text), weights=weights).inputs) == ["x"]
    with pytest.raises(InvalidData, match=r"missing beside those that are given: p\.1"):
        api.compile(parse.from_text(text), weights={given: KERNEL})


def test_two_weights_of_one_parameter(module: Module) -> None:
    with pytest.raises(InvalidData, match=r"given twice: k\.1 by 'k' and '2'"):
        api.compile(module, weights={"k": KERNEL, "2": KERNEL, "p": BIAS})


def test_no_weights(module: Module) -> None:
    with pytest.raises(InvalidData, match="holds no weights"):
        api.compile(module, weights={})


@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        (3, InvalidArgument, "weights are a file"),
        ("model.pt", InvalidArgument, "pickle.*save_file"),
        ("none.safetensors", InvalidData, "cannot read the weights"),
        ({"k": object()}, InvalidData, "'k' is no array"),
    ],
)
def test_what_holds_no_weights(module: Module, weights: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        api.compile(module, weights=weights)


def header(entry: Any, size: int = 8) -> bytes:
    text = json.dumps({"w": entry}).encode() if not isinstance(entry, bytes) else entry
    return len(text).to_bytes(8, "little") + text + bytes(size)


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "does not begin"),
        (b"\xff" * 8 + b"{}", "does not begin"),
        (header(b"[1]"), "no JSON object"),
        (header(b'{"w": 1, "w": 2}'), "twice"),
        (header(b"\xff\xfe"), "not JSON"),
        (header(b"[" * 100_000), "not JSON"),
        (header({"dtype": "F32"}), "does not say"),
        (header([1]), "does not say"),
        (header({**GOOD, "dtype": 3}), "does not say"),
        (header({**GOOD, "shape": [-2]}), "does not say"),
        (header({**GOOD, "shape": [True]}), "does not say"),
        (header({**GOOD, "data_offsets": [0, 9]}), "lies at"),
        (header({**GOOD, "data_offsets": [8, 0]}), "lies at"),
        (header({**GOOD, "data_offsets": [0]}), "lies at"),
        (header({**GOOD, "data_offsets": [4, 8], "shape": [1]}), "begins at byte 4"),
        (header(GOOD, 9), "cut or torn"),
        (header({**GOOD, "shape": [3]}), "takes 12"),
        (header({**GOOD, "shape": [1 << 40, 1 << 40]}), "elements"),
        (header({**GOOD, "shape": [1] * 65}), "axes"),
        (header({"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}, 0)[:-1] + b"}\x02", "above 1"),
    ],
)
def test_hostile_safetensors(data: bytes, match: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidData, match=match):
        safetensors.read(path)


def test_unknown_safetensors_types_are_listed(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "w", {"a": ("F4", BIAS), "b": ("F32", BIAS)})
    with pytest.raises(UnsupportedType, match=r"a \(F4\); it has F64, F32"):
        safetensors.read(path)


def test_the_parameters_that_stay_keep_names_aliases_and_numbers(module: Module) -> None:
    bound = with_weights(proto.from_bytes(proto.to_bytes(module)), {"k": KERNEL, "p": BIAS})
    assert [p.attributes["number"] for p in bound.parameters] == [0]
    assert bound.parameter_names == ("x.1",)
    assert bound.input_output_alias == (((0,), 0, (), "MAY_ALIAS"),)
    again = proto.from_bytes(proto.to_bytes(bound))
    np.testing.assert_allclose(result(api.compile(again, auto_cast="none")), WANTED, rtol=1e-6)


def test_inputs_that_look_like_weights_are_named(module: Module) -> None:
    program = api.compile(module)
    said = r"p float32\[3\], k float32\[4,3\] look like weights: give weights=, or --weights FILE"
    with pytest.raises(InvalidData, match=said):
        program(x=X)
    with pytest.raises(InvalidData, match=said):
        api.tune(module, {"x": X})
    with pytest.raises(InvalidData, match=r"inputs missing: x$"):  # no weight: as long as its samples
        api.compile(module, weights={"k": KERNEL, "p": BIAS})()
    with pytest.raises(InvalidData, match="--weights"):
        api.tune(module, {"x": X, "k": KERNEL, "p": BIAS})


def test_every_command_takes_weights(tmp_path: Path, commands: Commands) -> None:
    model, data, weights = tmp_path / "m.hlo", tmp_path / "x.npz", tmp_path / "w.npz"
    one_output = TEXT.replace("ROOT r", "r").replace("y = f32", "ROOT y = f32")
    model.write_text(one_output.replace(", input_output_alias={ {1}: (0, {}, may-alias), "
                                        "{0}: (1, {}, may-alias) }", ""))  # fmt: skip
    np.savez(data, x=X)
    np.savez(weights, k=KERNEL, p=BIAS)
    given = [str(model), "--weights", str(weights)]
    output = str(tmp_path / "y.npz")
    for line in (
        ["tune", *given, "--data", str(data)],
        ["run", *given, "--inputs", str(data), "--output", output, "--auto-cast=none"],
        ["plan", *given, "--output", str(tmp_path / "plan.json")],
        ["explain", *given],
        ["compile", *given, "--output", str(tmp_path / "m.nsim")],
        ["calibrate", *given, "--data", str(data), "--output", str(tmp_path / "c.json")],
    ):
        commands.ok(*line)
    assert commands.run("lint", *given)[0] in (0, 1)
    np.testing.assert_allclose(np.load(output)["output_0"], WANTED, rtol=1e-6)
    saved = ["run", str(tmp_path / "m.nsim"), "--weights", str(weights)]
    assert "--weights cannot change it" in commands.refused(
        *saved, "--inputs", str(data), "--output", output
    )
    plan = str(tmp_path / "plan.json")
    commands.ok("diff", plan, plan, "--model", str(model), "--weights", str(weights))


def test_weights_of_torch(module: Module) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 3)
    state = {"kernel": layer.weight.T, "bias": layer.bias}
    program = api.compile(module, auto_cast="none", weights=state)
    wanted = layer(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(result(program), wanted, rtol=1e-5, atol=1e-6)


def test_weights_of_a_lowered_function_of_jax() -> None:
    jax = pytest.importorskip("jax")

    def f(params: Any, x: Any) -> Any:
        return x @ params["dense"]["kernel"] + params["dense"]["bias"]

    tree = {"dense": {"kernel": KERNEL, "bias": BIAS}}
    lowered = jax.jit(f).lower(tree, X).compiler_ir("hlo").as_serialized_hlo_module_proto()
    program = api.compile(lowered, auto_cast="none", weights=tree)
    np.testing.assert_allclose(np.asarray(program(x=X)), WANTED, rtol=1e-6)
