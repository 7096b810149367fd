"""JAX's door: functions, pytrees, constants, what JAX lowers and exports, StableHLO, keys, refusals."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import neuronsim
from neuronsim import cli
from neuronsim.errors import (
    InvalidArgument,
    InvalidData,
    InvalidModel,
    UnsupportedOperator,
    UnsupportedType,
)
from neuronsim.errors import NeuronSimError as AnyError
from neuronsim.hlo import proto
from neuronsim.hlo.inlining import inline_calls

jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

pytestmark = pytest.mark.isa_independent

DRAWN = np.random.default_rng(0)
PARAMS = {"w": DRAWN.standard_normal((4, 3)).astype("f4"), "layers": [np.ones(3, "f4")]}
X = DRAWN.standard_normal((2, 4)).astype("f4")


class Result(NamedTuple):
    scores: Any
    extra: dict[str, Any]


def model(params: Any, x: Any, unread: Any = None) -> Any:
    with jax.named_scope("layer"):
        h = jnp.tanh(x @ params["w"] + params["layers"][0])
    return Result(jax.nn.softmax(h), {"sum": h.sum(), "none": None})


def compiled(*args: Any, **settings: Any) -> Any:
    return neuronsim.compile(*args, auto_cast="none", **settings)


def check(result: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """The same pytree, types and shapes, and values."""
    found, tree = jax.tree_util.tree_flatten(result)
    wanted, other = jax.tree_util.tree_flatten(expected)
    assert tree == other
    for a, b in zip(found, wanted, strict=True):
        if jax.dtypes.issubdtype(b.dtype, jax.dtypes.prng_key):
            b = jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), tolerance, tolerance)


FORMS: dict[str, Callable[[], Any]] = {
    "function": lambda: compiled(model, PARAMS, X),
    "jitted": lambda: compiled(jax.jit(model), PARAMS, X),
    "traced": lambda: compiled(jax.jit(model).trace(PARAMS, X)),
    "lowered": lambda: compiled(jax.jit(model).lower(PARAMS, X)),
    "compiled": lambda: compiled(jax.jit(model).lower(PARAMS, X).compile()),
    "exported": lambda: compiled(export.export(jax.jit(plain))(PARAMS, X)),
    "of shapes": lambda: compiled(
        model, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), PARAMS), X
    ),
    "of neuronsim's arrays": lambda: compiled(
        jax.jit(model), jax.tree.map(neuronsim.asarray, PARAMS), neuronsim.asarray(X)
    ),
}


def plain(params: Any, x: Any) -> Any:
    return tuple(model(params, x))


@pytest.mark.parametrize("form", FORMS)
def test_pytrees_in_and_out_of(form: str) -> None:
    program = FORMS[form]()
    expected = jax.jit(plain if form == "exported" else model)(PARAMS, X)
    check(program(PARAMS, X), expected)
    named = "argument_0" if form == "exported" else "params"
    assert [p.name for p in program.model.parameters][:2] == [f"{named}.layers.0", f"{named}.w"]
    check(program(PARAMS["layers"][0], PARAMS["w"], X), expected)  # its inputs, one by one
    with pytest.raises(InvalidData, match="the program was made for"):
        program({"w": X}, X)


def test_constants_become_constants_of_the_module() -> None:
    expected = jax.jit(model)(PARAMS, X)
    lowered = jax.jit(model).lower(PARAMS, X)
    for program in (
        compiled(model, PARAMS, X, constants=(0,)),
        compiled(model, PARAMS, X, constants=("params",)),
        compiled(jax.jit(model), PARAMS, X, constants=[0]),
        compiled(lowered, PARAMS, X, constants=(0,)),
    ):
        assert list(program.inputs) == ["x"]
        weights = program.model.entry_computation.by_name["params.w"]
        assert weights.opcode == "constant"
        assert weights.attributes["literal"].data.tobytes() == PARAMS["w"].tobytes()
        check(program(X), expected)
        check(program(x=X), expected)
        with pytest.raises(InvalidData, match="constant"):
            program(PARAMS, X)
    for constants, said in (((5,), "no argument 5"), (("param",), "params"), ("params", "positions")):
        with pytest.raises(InvalidArgument, match=said):
            compiled(model, PARAMS, X, constants=constants)
    with pytest.raises(InvalidArgument, match="give its values"):
        compiled(model, PARAMS, jax.ShapeDtypeStruct((2, 4), "float32"), constants=(1,))


def test_weights_become_constants_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{"w": PARAMS["w"], "layers.0": PARAMS["layers"][0]})
    program = compiled(model, PARAMS, X, weights=tmp_path / "w.npz")
    assert list(program.inputs) == ["x"]
    check(program(X), jax.jit(model)(PARAMS, X))
    part = compiled(plain, {"w": PARAMS["w"], "layers": [X[0, :3]]}, X, constants=(0,))
    assert list(part.inputs) == ["x"]


def test_static_and_unread_arguments() -> None:
    jitted = jax.jit(model, static_argnums=2)
    for constants in ((), (0,)):
        given = (X,) if constants else (PARAMS, X)
        check(compiled(jitted, PARAMS, X, 3, constants=constants)(*given), jitted(PARAMS, X, 3))
    unread = compiled(jax.jit(model), PARAMS, X, np.zeros(7))
    check(unread(PARAMS, X, np.zeros(7)), jax.jit(model)(PARAMS, X))
    settings = compiled(lambda x, power: x ** power["n"], X, {"n": 2, "f": jnp.sin})
    check(settings(X, {"n": 2, "f": jnp.sin}), X**2)
    with pytest.raises(InvalidData, match="the program was made for 2"):
        settings(X, {"n": 3, "f": jnp.sin})


def test_scopes_and_source_lines_are_metadata() -> None:
    line = model.__code__.co_firstlineno + 2
    for program in (FORMS["function"](), FORMS["lowered"](), FORMS["exported"]()):
        flat = inline_calls(program.model).entry_computation
        (dot,) = (i for i in flat.instructions if i.opcode == "dot")
        assert dot.metadata.op_name.endswith("layer/dot_general")
        assert Path(dot.metadata.source_file).name == "test_jax.py"
        assert dot.metadata.source_line == line
        lines = {i.opcode: i.metadata.source_line for i in flat.instructions}
        assert (lines["tanh"], lines["exponential"]) == (line, line + 1)
        assert program.model.parameters[1].metadata.op_name.endswith(".w")


def test_stablehlo_as_text_bytecode_and_export(tmp_path: Path) -> None:
    lowered = jax.jit(plain).lower(PARAMS, X)
    exported = export.export(jax.jit(plain))(PARAMS, X)
    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    expected = jax.tree.leaves(jax.jit(plain)(PARAMS, X))
    text = lowered.as_text()
    forms = (text.encode(), buffer.getvalue(), exported.mlir_module_serialized)
    forms += (lowered.as_text(debug_info=True).encode(), bytes(exported.serialize()))
    file = tmp_path / "model"
    for content in forms:
        file.write_bytes(content)
        for given in (content, file, str(file)):
            result = jax.tree.leaves(compiled(given)(PARAMS["layers"][0], PARAMS["w"], X))
            check(result, expected)
    assert list(compiled(text).inputs) == ["Arg_0", "Arg_1", "Arg_2"]
    assert list(compiled(buffer.getvalue()).inputs)[1:] == ["params.w", "x"]
    with pytest.raises(InvalidModel, match=r"jaxlib .* does not read this StableHLO"):
        compiled(text.replace("stablehlo.tanh", "stablehlo.unheard_of"))
    file.write_text(text[: len(text) // 2])
    with pytest.raises(InvalidModel, match=rf"^{re.escape(str(file))}: jaxlib .* does not read"):
        compiled(file)
    with pytest.raises(InvalidArgument, match="a model of StableHLO"):
        compiled(text, input_shapes={"x": (2, 2)})


def test_exported_functions_of_open_shapes() -> None:
    (b,) = export.symbolic_shape("b")
    exported = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((b, 4), jnp.float32))
    for program in (compiled(exported, batch=2), compiled(exported, X)):
        check(program(X), jnp.tanh(X))
    (c,) = export.symbolic_shape("c")
    inner = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((2, c), jnp.float32))
    with pytest.raises(InvalidArgument, match=r"the dimension c of 'argument_0' is not known"):
        compiled(inner)
    check(compiled(inner, input_shapes={"argument_0": (2, 4)})(X), jnp.tanh(X))


def test_random_keys() -> None:
    for key in (jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")):

        def drawn(key: Any, x: Any) -> Any:
            return jax.random.normal(key, (5,)) + x, jax.random.split(key)

        check(compiled(drawn, key, 1.0)(key, 1.0), jax.jit(drawn)(key, 1.0))


def test_numbers_of_python_are_inputs_as_jit_has_them() -> None:
    program = compiled(lambda x, n: jax.lax.fori_loop(0, n, lambda i, c: c * x, x), X, 3)
    check(program(X, 4), X**5)


def test_64_bits() -> None:
    with jax.enable_x64(True):
        program = neuronsim.compile(
            lambda x: jnp.cumsum(x) / 3, np.arange(4.0), auto_cast="none", target="host"
        )
        check(program(np.arange(4.0)), jnp.cumsum(jnp.arange(4.0)) / 3, 1e-15)


def uses_values(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return jnp.sin(x)


def uses_eigenvalues(x: Any) -> Any:
    values = jnp.linalg.eigh(x)[0]
    jax.debug.print("{}", values)
    return values


def test_refusals_name_the_operator_and_the_users_line() -> None:
    line = uses_values.__code__.co_firstlineno + 1
    with pytest.raises(InvalidModel, match=rf"test_jax.py:{line}: .* values of an array"):
        compiled(uses_values, X)
    line = uses_eigenvalues.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedOperator) as caught:
        compiled(uses_eigenvalues, X.T @ X)
    assert f"test_jax.py:{line}: eigh" in str(caught.value)
    assert "compile jax.jit(f).lower(...) for target 'host'" in str(caught.value)
    assert f"test_jax.py:{line + 1}: debug_print" in str(caught.value)
    with pytest.raises(InvalidArgument, match="missing a required argument"):
        compiled(model, PARAMS)
    with pytest.raises(InvalidArgument, match="give arrays"):
        compiled(jax.jit(model), PARAMS, "text")


def test_pallas_is_refused_by_name() -> None:
    from jax.experimental import pallas

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    def doubled(x: Any) -> Any:
        return pallas.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(UnsupportedOperator, match=r"pallas_call \(a kernel of Pallas"):
        compiled(doubled, X)


def test_which_functions_are_jaxs() -> None:
    from neuronsim.frontends.jax.belonging import is_jax

    def inside(x: Any) -> Any:
        import jax.numpy

        return jax.numpy.sin(x)

    def own(x: Any) -> Any:
        return neuronsim.sin(x)

    def neither(params: Any, x: Any) -> Any:
        return x @ params["w"]

    assert is_jax(model)
    assert is_jax(inside)
    assert is_jax(lambda x: model(PARAMS, x))
    assert is_jax(jax.jit(neither))
    assert not is_jax(own, (jnp.ones(3),))
    assert not is_jax(neither, (PARAMS, X))
    assert is_jax(neither, (jax.tree.map(jnp.asarray, PARAMS), X))
    check(compiled(neither, PARAMS, X)(PARAMS, X), X @ PARAMS["w"])
    hidden = {"f": jnp.tanh}
    check(compiled(lambda x: hidden["f"](x), X)(X), jnp.tanh(X))  # JAX says so when it is called


def test_functions_of_neuronsims_arrays_take_constants_and_pytrees_too() -> None:
    def own(params: Any, x: Any) -> Any:
        return {"y": neuronsim.tanh(x @ params["w"]), "z": (x,)}

    whole = compiled(own, PARAMS, X)
    constant = compiled(own, PARAMS, X, constants=(0,))
    assert list(constant.inputs) == ["x"]
    expected = {"y": np.tanh(X @ PARAMS["w"]), "z": (X,)}
    check(whole(PARAMS, X), expected)
    check(constant(X), expected)


def test_the_command_line_takes_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_train", raising=False)
    Path("own_train.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "W = jnp.eye(20, 3) + .1\n"
        "@jax.jit\n"
        "def model(tokens):\n"
        "    return jax.nn.softmax(W[tokens].mean(1))\n"
    )
    tokens = DRAWN.integers(0, 20, (6, 5)).astype("i4")
    np.savez("x.npz", tokens=tokens)
    assert not cli.main(["tune", "own_train:model", "--data", "x.npz", "--batch", "2"])
    assert "--auto-cast" in capsys.readouterr().out


@pytest.mark.parametrize("library", ["jax.numpy", "neuronsim"])
def test_the_arrays_of_pytrees_are_named_on_the_command_line(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_trees", raising=False)
    Path("own_trees.py").write_text(
        f"import {library} as np\n"
        "def model(params, x):\n"
        "    (first, second), b = params['layers'], params['b']\n"
        "    return np.tanh(np.tanh(x @ first) @ second) * b['scale'] + b['more']\n"
    )
    x, first, second, scale = (
        DRAWN.standard_normal(s).astype("f4") for s in ((6, 4), (4, 5), (5, 3), (3,))
    )
    weights = {"params.layers.0": first, "params.layers.1": second, "params.b.scale": scale}
    np.savez("x.npz", x=x)
    np.savez("w.npz", **weights)
    shapes = [
        w for n, a in weights.items() for w in ("--input-shape", f"{n}={','.join(map(str, a.shape))}")
    ]
    words = ["run", "own_trees:model", "--inputs", "x.npz", "--auto-cast", "none", *shapes]
    more = ["--weights", "w.npz", "--input-value", "params.b.more=2.0", "--output", "y.npz"]
    assert not cli.main([*words, *more])
    expected = np.tanh(np.tanh(x @ first) @ second) * scale + 2
    np.testing.assert_allclose(np.load("y.npz")["output_0"], expected, rtol=1e-5)
    program = neuronsim.compile(
        "own_trees:model",
        input_shapes={n: a.shape for n, a in weights.items()} | {"x": (6, 4)},
        input_values={"params.b.more": 2.0},
        auto_cast="none",
    )
    assert set(program.inputs) == {*weights, "x"}
    assert cli.main([*words, "--input-shape", "params=3", *more]) == 2
    assert "'params' is given as an array, and params.layers.0" in capsys.readouterr().err
    assert cli.main(["explain", "own_trees:model", "--input-shape", "x=6,4"]) == 2
    assert "by the names of their arrays, as in params.w" in capsys.readouterr().err


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = jax.jit(jnp.sin).lower(1.0).as_text()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: None if n in ("jax", "jaxlib") else found(n)
    )
    for given in ((text,), (jnp.sin, X)):
        with pytest.raises(AnyError, match=r"pip install 'neuronsim\[jax\]'"):
            neuronsim.compile(*given)


def test_a_saved_program_of_jax_takes_its_inputs(tmp_path: Path) -> None:
    """One by one, of a structure that the file cannot hold."""

    def ordered(params: Any, x: Any) -> Any:
        return OrderedDict(scores=model(params, x).scores, x=x)

    compiled(ordered, PARAMS, X).save(tmp_path / "p.nsim")
    found = neuronsim.load(tmp_path / "p.nsim")
    result = found(PARAMS["layers"][0], PARAMS["w"], X)
    check(list(result), jax.tree.leaves(jax.jit(ordered)(PARAMS, X)))


def test_a_saved_program_of_jax_takes_pytrees(tmp_path: Path) -> None:
    def plainly(params: Any, x: Any, factor: float) -> Any:
        scores, extra = plain(params, x)
        return {"scores": scores * factor, "extra": [extra, None]}

    program = compiled(plainly, PARAMS, X, 2.0)
    program.save(tmp_path / "p.nsim")
    found = neuronsim.load(tmp_path / "p.nsim")
    expected = jax.jit(plainly)(PARAMS, X, 2.0)
    check(found(PARAMS, X, 2.0), expected)
    check(found(dict(reversed(PARAMS.items())), factor=2.0, x=X), expected)
    with pytest.raises(InvalidData, match="the program was made for"):
        found({"w": X}, X, 2.0)


def test_a_saved_program_of_jax_takes_named_tuples(tmp_path: Path) -> None:
    class State(NamedTuple):
        mu: Any
        nu: Any

    def step(state: State, x: Any) -> State:
        return State({"w": state.mu["w"] * 0.9 + x}, (state.nu + x * x).sum(0))

    state = State({"w": X}, 2 * X)
    compiled(step, state, X).save(tmp_path / "p.nsim")
    found = neuronsim.load(tmp_path / "p.nsim")
    after = found(state, X)
    assert type(after).__name__ == "State"
    check((after.mu["w"], after.nu), tuple(jax.tree.leaves(jax.jit(step)(state, X))))
    with pytest.raises(InvalidData, match="the program was made for"):
        found(Result({"w": X}, X), X)


def test_modules_of_stack_frames_go_back_to_xla() -> None:
    data = jax.jit(jnp.tanh).lower(X).compiler_ir("hlo").as_serialized_hlo_module_proto()
    module = proto.from_bytes(data)
    assert module.root.metadata.source_line
    assert proto.from_bytes(proto.to_bytes(module)) == module


@pytest.mark.parametrize(
    "kind", ["!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<u8:f32:1, {0.5,0.25,0.125,1.0}>"]
)
@pytest.mark.parametrize("whole", [True, False])
def test_uniform_quantized_types_that_jaxlib_does_not_lower_are_named(kind: str, whole: bool) -> None:
    """Neither operators nor constants: jaxlib 0.10.2 has no pass that writes them as integers."""
    lines = (
        f"%0 = stablehlo.uniform_quantize %x : (tensor<2x4xf32>) -> tensor<2x4x{kind}>"
        if whole
        else "%0 = stablehlo.constant() {value = dense<1> : tensor<2x4xi8>} : () -> tensor<2x4x"
        + kind.replace("u8", "i8")
        + ">"
    )
    own = kind if whole else kind.replace("u8", "i8")
    text = f"""module @m {{
      func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {{
        {lines}
        %1 = stablehlo.uniform_dequantize %0 : (tensor<2x4x{own}>) -> tensor<2x4xf32>
        return %1 : tensor<2x4xf32>
      }}
    }}
    """
    with pytest.raises(UnsupportedType, match=r"does not lower .*!quant\.uniform<[iu]8:f32"):
        neuronsim.compile(text)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float16", "float8_e5m2", "float8_e4m3", "float8_e4m3fn", "int8", "bool"]
)
def test_arrays_of_jax_of_every_type_are_taken(name: str) -> None:
    """JAX exports no memory of the types that Python's buffers have no letter for."""
    x = jnp.asarray(np.asarray([0, 1, 1.5, -2, 0.125]), name)
    found = neuronsim.asarray(x)
    assert found.dtype == name
    np.testing.assert_array_equal(found.bits.data.view(np.uint8), np.asarray(x).view(np.uint8))
    if name != "float8_e4m3fn":  # which the device does not compute with
        assert neuronsim.compile(lambda a: a, x, auto_cast="none")(x).tolist() == found.tolist()
