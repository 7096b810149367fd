"""PyTorch's door: modules, functions, exported programs and files through compile, tune and trace."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.commands import Commands
from tests.support.places import ROOT
from tests.support.processes import run_python

import neuronsim
from neuronsim.errors import (
    InvalidArgument,
    InvalidData,
    InvalidModel,
    NeuronSimError,
    UnsupportedOperator,
    UnsupportedType,
)

torch = pytest.importorskip("torch")

import neuronsim.torch as door  # noqa: E402
from neuronsim.frontends.torch import tensors  # noqa: E402
from neuronsim.frontends.torch.exporting import DataDependent  # noqa: E402

nn = torch.nn
F = torch.nn.functional

pytestmark = [pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]


def perceptron(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).eval()


X = torch.linspace(-2, 2, 20).reshape(5, 4)


def near(found: Any, expected: Any, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), 1e-5, atol)


# ---- what is compiled ------------------------------------------------------------------------------


def test_an_exported_program_a_file_and_its_bytes(tmp_path: Path) -> None:
    network = perceptron()
    program = torch.export.export(network, (X,))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    for model in (program, path, str(path), path.read_bytes()):
        near(neuronsim.compile(model, auto_cast="none")(X), network(X))


def test_a_function_of_tensors_and_arrays_as_examples() -> None:
    found = neuronsim.compile(lambda x, y: {"sum": torch.relu(x) + y}, X, X[0], auto_cast="none")
    near(found(X, X[0])["sum"], torch.relu(X) + X[0])
    network = perceptron()
    near(neuronsim.compile(network, X.numpy(), auto_cast="none")(X.numpy()), network(X))


def test_every_command_takes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.export.save(torch.export.export(perceptron(), (X,)), "model.pt2")
    np.savez("inputs.npz", input=X.numpy())
    np.savez("x.npz", x=X.numpy(), labels=np.arange(5) % 3)
    for line in (
        "compile model.pt2 --auto-cast all --output model.nsim",
        "run model.pt2 --inputs inputs.npz --output y.npz --auto-cast none",
        "tune model.pt2 --data x.npz",
        "plan model.pt2 --auto-cast all",
        "lint model.pt2",
    ):
        assert commands.ok(*line.split())
    assert "0.linear.dot" in neuronsim.plan("model.pt2").decisions


class _Masked(nn.Module):
    """Takes arguments by name, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)

    def forward(self, input_ids: Any, attention_mask: Any = None, scale: Any = None) -> Any:
        x = self.table(input_ids)
        x = x if attention_mask is None else x * attention_mask[..., None]
        return x if scale is None else x * scale["by"]


def test_examples_by_name() -> None:
    network = _Masked().eval()
    given = {
        "input_ids": torch.arange(6).reshape(2, 3),
        "attention_mask": torch.tensor([[1, 1, 0]] * 2),
    }
    program = neuronsim.compile(network, example_kwargs=given, auto_cast="none")
    assert list(program.inputs) == ["input_ids", "attention_mask"]
    near(program(**given), network(**given))
    scaled = {"input_ids": given["input_ids"], "scale": {"by": torch.full((4,), 2.0)}}
    program = neuronsim.compile(network, example_kwargs=scaled, auto_cast="none")
    near(program(given["input_ids"], torch.full((4,), 2.0)), network(**scaled))
    exported = torch.export.export(network, (), given)
    near(neuronsim.compile(exported, example_kwargs=given, auto_cast="none")(**given), network(**given))


def test_examples_by_name_of_a_function_of_tensors() -> None:
    x, y = torch.ones(3), torch.full((3,), 2.0)
    program = neuronsim.compile(lambda a, b: torch.sin(a) + b, example_kwargs={"a": x, "b": y})
    near(program(a=x, b=y), torch.sin(x) + y)


class _OfMapping(nn.Module):
    def forward(self, x: Any) -> Any:
        return x["x"] * 2


def test_examples_by_name_are_told_of() -> None:
    given = {"input_ids": torch.zeros(2, 3, dtype=torch.int64)}
    with pytest.raises(NeuronSimError, match="arguments by name are given as example_kwargs"):
        neuronsim.compile(_Masked(), given)
    near(neuronsim.compile(_OfMapping(), {"x": X})(X), X * 2)
    with pytest.raises(TypeError, match=r"unexpected keyword .*example_kwargs"):
        neuronsim.compile(_Masked(), **given)
    with pytest.raises(InvalidArgument, match=r"no 'input_id' \(did you mean 'input_ids'"):
        neuronsim.compile(_Masked(), example_kwargs={"input_id": given["input_ids"]})
    with pytest.raises(InvalidArgument, match="example_kwargs is a dictionary"):
        neuronsim.compile(_Masked(), example_kwargs=(given["input_ids"],))
    with pytest.raises(InvalidArgument, match="'input_ids' is in several"):
        neuronsim.compile(_Masked(), example_kwargs=given, input_shapes={"input_ids": (2, 3)})


def test_a_module_by_name_with_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    """`neuronsim tune train:model --data x.npz`: integers of the data stay integers."""
    monkeypatch.chdir(tmp_path)
    Path("by_name.py").write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = torch.nn.Embedding(9, 4)\n"
        "    def forward(self, tokens, scale):\n"
        "        return self.table(tokens) * scale\n"
        "model = M()\n"
    )
    np.savez("x.npz", tokens=np.arange(12).reshape(4, 3) % 9, scale=np.ones((4, 1, 4), np.float32))
    commands.ok("tune", "by_name:model", "--data", "x.npz", "--batch", "2")
    found = neuronsim.tune("by_name:model", "x.npz", batch=2)
    assert found.recommended


def test_modules_without_examples_say_what_is_needed() -> None:
    with pytest.raises(InvalidArgument, match=r"takes input, .*input_shapes=\{'input'"):
        neuronsim.compile(perceptron())
    with pytest.raises(InvalidArgument, match=r"takes no 'x': it takes input$"):
        neuronsim.compile(perceptron(), input_shapes={"x": (2, 4)})
    program = neuronsim.compile(perceptron(), input_shapes={"input": (2, 4)})
    assert program.inputs["input"].dims == (2, 4)


def test_pytrees_of_arguments_and_results() -> None:
    class Tree(nn.Module):
        def forward(self, pair: Any, *, scale: Any) -> Any:
            return {"a": pair[0] * scale, "b": [pair[1]["c"], None, 3]}

    args = ((X, {"c": X + 1}),)
    exported = torch.export.export(Tree(), args, {"scale": X[0]})
    found = neuronsim.compile(exported, auto_cast="none")
    assert list(found.inputs) == ["pair_0", "pair_1_c", "scale"]
    for result in (found(X, X + 1, X[0]), found(*args, scale=X[0])):
        near(result["a"], X * X[0])
        near(result["b"][0], X + 1)
        assert result["b"][1:] == [None, 3]
    with pytest.raises(InvalidData, match=r"'pair' is \(\*, \*\): the program was made for \(\*, {'c'"):
        found((X, X), scale=X[0])
    traced = door.trace(lambda pair: {"b": [pair[1]["c"] * 2, None, 3]}, args, auto_cast="none")
    result = traced(*args)
    assert result["b"][1:] == [None, 3]
    near(result["b"][0], 2 * (X + 1))


def test_optional_arguments_are_none() -> None:
    class Masked(nn.Module):
        def forward(self, x: Any, mask: Any = None, bias: Any = None) -> Any:
            return (x if mask is None else x * mask) + bias

    found = neuronsim.compile(Masked(), X, None, X[0], auto_cast="none")
    assert list(found.inputs) == ["x", "bias"]
    near(found(X, None, X[0]), X + X[0])
    near(found(X, mask=None, bias=X[0]), X + X[0])
    with pytest.raises(InvalidData, match="inputs missing: bias"):
        found(X, None)


# ---- types -----------------------------------------------------------------------------------------


def test_autocast_regions_are_types() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                y = self.one(x)
            return self.two(y.float())

    network = Mixed()
    program = neuronsim.compile(network, X, auto_cast="none")
    products = [i for i in program.model.entry_computation.instructions if i.opcode == "dot"]
    by_name = program.model.entry_computation.by_name
    operands = [by_name[i.operands[0]].shape.arrays()[0].dtype.name for i in products]
    assert operands == ["bfloat16", "float32"]
    near(program(X), network(X), atol=1e-2)


def test_modules_in_bfloat16_are_bfloat16() -> None:
    network = perceptron().to(torch.bfloat16)
    program = neuronsim.compile(network, X.to(torch.bfloat16), auto_cast="none")
    dtypes = {t.dtype.name for t in program.outputs}
    assert dtypes == {"bfloat16"}
    found = program(X.to(torch.bfloat16)).astype("float32")
    near(found, network(X.to(torch.bfloat16)).float(), atol=0.05)


# ---- shapes and values -----------------------------------------------------------------------------


def dynamic() -> Any:
    batch = torch.export.Dim("batch", min=2, max=16)
    return torch.export.export(perceptron(), (X,), dynamic_shapes=({0: batch},))


def test_dynamic_shapes_are_bound() -> None:
    for asked in ({"batch": 7}, {"input_shapes": {"input": (7, 4)}}):
        assert neuronsim.compile(dynamic(), **asked).inputs["input"].dims == (7, 4)
    assert neuronsim.compile(dynamic(), X).inputs["input"].dims == (5, 4)
    near(neuronsim.compile(dynamic(), X, auto_cast="none")(X), perceptron()(X))


def test_dynamic_shapes_are_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"dimension 0 of the input 'input' \(s\d+\) is 17, .*2 to 16"
    ):
        neuronsim.compile(dynamic(), batch=17)
    with pytest.raises(InvalidArgument, match=r"torch.export.Dim.AUTO"):
        neuronsim.compile(dynamic(), input_shapes={"input": (7, 5)})
    with pytest.raises(InvalidArgument, match=r"no input 'inputs' \(did you mean 'input'\?\)"):
        neuronsim.compile(dynamic(), input_shapes={"inputs": (7, 4)})
    program = torch.export.export(
        perceptron(), (X.expand(3, 5, 4),), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},)
    )
    with pytest.raises(InvalidArgument, match=r"dimension 1 .*input_shapes=\{'input': \(3,N"):
        neuronsim.compile(program)


class ByValue(nn.Module):
    """Python that asks for a tensor's values."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:  # the line
            return x
        return -x


class ByCount(nn.Module):
    """A shape that depends on data."""

    def forward(self, x: Any) -> Any:
        return x[x > 0].reshape(2, -1).sum(1)  # the shape


@pytest.mark.parametrize(("network", "mark"), [(ByValue(), "# the line"), (ByCount(), "# the shape")])
def test_what_depends_on_data_is_an_error_at_the_users_line(network: Any, mark: str) -> None:
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(mark)
    )
    with pytest.raises(DataDependent, match=rf"test_torch.py:{line}[: ]"):
        neuronsim.compile(network, X)


def helper(x: Any) -> Any:
    return x.sin()


def function_with_a_helper(x: Any) -> Any:
    return helper(x.exp())


class WithAHelper(nn.Module):
    def forward(self, x: Any) -> Any:
        return helper(x.exp())


@pytest.mark.parametrize("model", [function_with_a_helper, WithAHelper()])
def test_lines_are_of_functions_and_of_what_they_call(model: Any) -> None:
    module = neuronsim.compile(model, X, auto_cast="none").module
    lines = {
        i.opcode: i.metadata.source_line for i in module.entry_computation.instructions if i.metadata
    }
    first = helper.__code__.co_firstlineno
    own = getattr(model, "forward", model).__code__.co_firstlineno
    assert lines["sine"] == first + 1
    assert lines["exponential"] == own + 1


def test_checks_of_values_are_left_out() -> None:
    def checked(x: Any) -> Any:
        torch._check_tensor_all(x > -1e9)
        return x + 1

    near(neuronsim.compile(checked, X, auto_cast="none")(X), X + 1)


def test_shapes_by_what_is_drawn_are_an_error() -> None:
    def drawn(x: Any) -> Any:
        noise = torch.rand_like(x)
        return noise[noise > 0.5]

    with pytest.raises(DataDependent, match=r"test_torch.py.*by values that are drawn while it runs"):
        neuronsim.compile(drawn, X)


def test_a_number_of_a_tensor_is_said_to_be_one() -> None:
    said = r"makes a Python number of values that depend on the input 'x': .* without \.item\(\)"
    with pytest.raises(DataDependent, match=said):
        neuronsim.compile(lambda x: x * x.max().item(), X)
    with pytest.raises(DataDependent, match=r"a Python number of values that are drawn while it runs"):
        neuronsim.compile(lambda x: x * torch.rand_like(x).max().item(), X)
    near(neuronsim.compile(lambda x: x * x.max(), X, auto_cast="none")(X), X * X.max())


def test_branches_and_loops_of_tensors() -> None:
    def branch(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    program = neuronsim.compile(branch, X, auto_cast="none")
    for x in (X + 1, X - 1):
        near(program(x)[0] if isinstance(program(x), tuple) else program(x), branch(x))


def test_unsupported_operators_are_listed_with_their_places() -> None:
    class Foreign(nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.linalg.ldl_factor(torch.fft.fft(x[:4]))
            return torch.special.airy_ai(x), *y

    with pytest.raises(UnsupportedOperator) as error:
        neuronsim.compile(Foreign(), X)
    text = str(error.value)
    assert "aten.linalg_ldl_factor_ex.default (test_torch.py:" in text
    assert (
        "in the place of which torch.linalg.lu_factor is read; aten.special_airy_ai.default (" in text
    )
    assert text.endswith("A Trn1 has no complex numbers: compute with their real and imaginary parts.")
    assert "with_effects" not in text


class Spectrogram(nn.Module):
    """The sizes of a short-time Fourier transform, in a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.register_buffer("window", torch.hann_window(32))

    def forward(self, x: Any) -> Any:
        spectrum = torch.stft(x, 32, 8, window=self.window, return_complex=True)
        return self.conv(spectrum.abs()[:, None]).relu().mean((2, 3)), spectrum.real, spectrum.imag


def opcodes(program: Any) -> set[str]:
    """What a program's instructions are, calls by their targets."""
    return {i.attributes.get("custom_call_target", i.opcode) for i in program.module.instructions}


def test_fourier_transforms_are_those_of_hlo_and_the_hosts() -> None:
    torch.manual_seed(0)
    network, x = Spectrogram().eval(), torch.randn(2, 256)
    program = neuronsim.compile(network, x, target="host", auto_cast="none")
    for found, expected in zip(program(x), network(x), strict=True):
        near(found, expected, 1e-5)
    assert opcodes(program) >= {"fft", "real", "imag"}
    with pytest.raises(UnsupportedType, match=r"\[NCC_EVRF004\] trn1 has no complex64: .*_fft_r2c"):
        neuronsim.compile(network, x)

    def through_time(x: Any) -> Any:
        window = torch.hann_window(16)
        y = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(y * torch.polar(torch.ones(9, 1), x[0, :9, None]), 16, 4, window=window)

    program = neuronsim.compile(through_time, x, target="host", auto_cast="none")
    near(program(x), through_time(x), 1e-5)


def test_fnet_runs_on_the_host() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    config = transformers.FNetConfig(**sizes, max_position_embeddings=16)
    network, tokens = transformers.FNetModel(config).eval(), torch.randint(0, 50, (2, 8))
    program = neuronsim.compile(network, tokens, target="host", auto_cast="none")
    for found, expected in zip(program(tokens), network(tokens).to_tuple(), strict=True):
        near(found, expected, 1e-5)


def test_linear_algebra_is_that_of_hlo_and_lapack(tmp_path: Path) -> None:
    """Recorded as JAX lowers it; refused for a device as there."""

    def whitened(x: Any) -> Any:
        covariance = x.T @ x + torch.eye(4)
        values, vectors = torch.linalg.eigh(covariance)
        root = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(root, x.T, upper=False)
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        again = (vectors * values) @ vectors.T, u @ torch.diag(s) @ v
        return z, torch.linalg.solve(covariance, x.T), torch.logdet(covariance), *again

    x = X + torch.sin(7 * X)
    program = neuronsim.compile(whitened, x, target="host", auto_cast="none")
    program.save(tmp_path / "whitened.nsim")
    loaded = neuronsim.load(tmp_path / "whitened.nsim")
    for found, same, expected in zip(program(x), loaded(x), whitened(x), strict=True):
        near(found, expected, 1e-4)
        assert np.asarray(found).tobytes() == np.asarray(same).tobytes()
    lapack = {f"lapack_s{routine}_ffi" for routine in ("getrf", "syevd", "gesdd")}
    assert opcodes(program) >= {"cholesky", "triangular-solve", *lapack}
    with pytest.raises(UnsupportedOperator, match=r"trn1 has no cholesky .* lapack_sgesdd_ffi"):
        neuronsim.compile(whitened, x)


def test_results_whose_shapes_export_does_not_know() -> None:
    torch.manual_seed(0)
    labels, lengths = torch.tensor([[1, 1, 2], [4, 3, 0]]), (torch.tensor([9, 7]), torch.tensor([3, 2]))

    def step(x: Any, labels: Any, inputs: Any, targets: Any) -> Any:
        x = x.detach().requires_grad_(True)
        loss = F.ctc_loss(x.log_softmax(-1), labels, inputs, targets)
        return loss, torch.autograd.grad(loss, x)[0]

    args = torch.randn(9, 2, 5), labels, *lengths
    program = neuronsim.compile(step, *args, auto_cast="none")
    for found, expected in zip(program(*args), step(*args), strict=True):
        near(found, expected, 1e-5)
    with pytest.raises(UnsupportedOperator, match="input_lengths and target_lengths as tensors"):
        neuronsim.compile(lambda x: F.ctc_loss(x, labels, (9, 7), (3, 2)), args[0])

    def solution(x: Any) -> Any:
        return torch.linalg.lstsq(x, x[:, :2].sin())[0]

    program = neuronsim.compile(solution, X.sin(), target="host", auto_cast="none")
    near(program(X.sin()), solution(X.sin()), 1e-4)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.det,
        lambda x: torch.linalg.slogdet(x.T)[1],
        lambda x: torch.linalg.slogdet(x)[1] + torch.linalg.inv(x).sum(),
        lambda x: torch.linalg.svdvals(x) * torch.linalg.qr(x)[1].abs().sum(),
        lambda x: torch.fft.rfft(x).abs(),
    ],
)
def test_gradients_of_linear_algebra(function: Any) -> None:
    """Some take the factors that their determinant was computed by."""

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(function(x).sum(), x)[0]

    x = torch.tensor([[3.0, 1, -0.5], [0.2, 2, 0.7], [-1.1, 0.4, 4]])
    program = neuronsim.compile(gradient, x, target="host", auto_cast="none")
    near(program(x), gradient(x), 1e-5)


def test_operators_are_told_by_the_names_that_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by those of a decomposition that leads nowhere, nor by one that fails."""

    def fails(x: Any) -> Any:
        raise NotImplementedError

    table, aten = torch._decomp.decomposition_table, torch.ops.aten
    monkeypatch.setitem(table, aten.special_bessel_j0.default, fails)
    for function, name in (
        (torch.special.airy_ai, "special_airy_ai"),
        (lambda x: torch.special.bessel_j0(x).abs(), "special_bessel_j0"),
    ):
        with pytest.raises(UnsupportedOperator, match=rf"does not read: aten\.{name}\.default \("):
            neuronsim.compile(function, X)


def test_a_tensor_without_elements_is_refused() -> None:
    program = neuronsim.compile(nn.ReLU(), X)
    with pytest.raises(NeuronSimError, match="from_dlpack of Tensor: Unknown device type meta"):
        program(X.to("meta"))
    with pytest.raises(NeuronSimError, match="device meta has no elements"):
        tensors.to_array(X.to("meta"))


# ---- state and weights -----------------------------------------------------------------------------


class Counter(nn.Module):
    """A cache that is written: in place, and through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.cache[1:].mul_(0.5)
        self.cache[0].copy_(x)
        return self.cache.sum(0) * self.calls


def test_buffers_that_are_written_are_state() -> None:
    theirs, mine = Counter(), door.trace(Counter(), X[0], auto_cast="none")
    for x in X:
        near(mine(x), theirs(x))
    near(mine.state["cache"], theirs.cache)
    with pytest.warns(UserWarning, match=r"writes 'calls', 'cache'.*neuronsim.torch.trace"):
        program = neuronsim.compile(Counter(), X[0], auto_cast="none")
    for x in X[:2]:
        near(program(x), Counter()(x))


def test_weights_are_swapped_without_a_new_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = door.trace(perceptron(), X, compiler_args="--auto-cast matmult --auto-cast-type bf16")
    decided = traced.program.plan.decisions
    import neuronsim.casting.plans.plan as planning

    monkeypatch.setattr(planning, "decide", None)  # nothing is planned from here on
    other = perceptron(1)
    traced.load_state_dict(other.state_dict())
    assert traced.program.plan.decisions == decided
    near(traced(X), other(X), atol=0.05)
    assert abs(traced(X) - perceptron(0)(X)).max() > 0.1
    with pytest.raises(InvalidArgument, match=r"missing: 0.bias.*left over: 9.weight"):
        traced.load_state_dict({"9.weight": X, "0.weight": other[0].weight})
    with pytest.raises(InvalidArgument, match=r"'0.weight' is float32\[5,4\]"):
        traced.load_state_dict({"0.weight": X}, strict=False)
    named_otherwise = {f"module.{n}": w for n, w in other.state_dict().items()}
    with pytest.raises(InvalidArgument, match=r"none of .*: module.0.weight, .*its own are 0.bias, 0"):
        door.with_weights(traced.program, named_otherwise)
    assert door.with_weights(traced.program, {}).plan.decisions == decided


def test_trace_saves_and_loads(tmp_path: Path) -> None:
    traced = door.trace(Counter(), X[0], auto_cast="none")
    traced(X[0])
    door.save(traced, tmp_path / "traced.pt")
    again = door.load(tmp_path / "traced.pt")
    assert torch.equal(again(X[1]), traced(X[1]))
    (tmp_path / "other.pt").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InvalidModel, match="no traced module"):
        door.load(tmp_path / "other.pt")


def test_trace_takes_the_arguments_of_torch_neuronx(tmp_path: Path) -> None:
    traced = door.trace(
        perceptron(), (X,), compiler_workdir=tmp_path, compiler_args=["--auto-cast", "all"],
        inline_weights_to_neff=True,
    )  # fmt: skip
    assert traced.program.setup.given["--auto-cast"] == "all"
    near(neuronsim.compile(tmp_path / "graph.hlo", auto_cast="none")(X), perceptron()(X))


class Attended(nn.Module):
    """A cache that is an argument of the next call, as parameters whose next values are results."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.zeros(3, 4))
        self.register_buffer("calls", torch.zeros(1))
        self.proj = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        keys = torch.cat([self.keys[1:], self.proj(x)[None]])
        return torch.softmax(keys @ x, 0) @ keys, keys, self.calls + 1


def test_input_output_aliases_are_state_and_no_results(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Attended()
    aliases = {model.keys: 1, model.calls: 2}
    traced = door.trace(model, X[0], input_output_aliases=aliases, auto_cast="none")
    assert list(traced.state) == ["keys", "calls"]
    assert float(model.keys.abs().max()) == 0  # the module itself stays as it was
    with torch.no_grad():
        for n, x in enumerate(X, start=1):
            expected, keys, _ = model(x)
            near(traced(x), expected)
            model.keys.copy_(keys)
            near(traced.state["keys"], keys)
            assert float(traced.state["calls"][0]) == n
    door.save(traced, tmp_path / "traced.pt")
    again = door.load(tmp_path / "traced.pt")
    assert torch.equal(again(X[0]), traced(X[0]))
    for wrong, message in (
        ({torch.zeros(3): 1}, "a parameter or a buffer"),
        ({model.keys: 3}, "0 to 2"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            door.trace(model, X[0], input_output_aliases=wrong)


def test_dynamic_batch_size_runs_batch_by_batch(tmp_path: Path) -> None:
    traced = door.trace(perceptron(), X, dynamic_batch_size=True, auto_cast="none")
    door.save(traced, tmp_path / "traced.pt")
    for module in (traced, door.load(tmp_path / "traced.pt")):
        for count in (1, len(X), 2 * len(X) + 1):
            given = torch.linspace(-1, 1, 4 * count).reshape(count, 4)
            near(module(given), perceptron()(given))
    with pytest.raises(InvalidData, match="one number of samples"):
        traced(X[:0])
    with pytest.raises(InvalidArgument, match="the module has a state, calls, cache"):
        door.trace(Counter(), X[0], dynamic_batch_size=True)
    with pytest.raises(InvalidArgument, match="begins with the samples' axis"):
        door.trace(lambda x: x.sum(0), X, dynamic_batch_size=True)


def test_tensors_share_their_memory() -> None:
    array = tensors.to_array(X)
    assert array.bits.data.ctypes.data == X.data_ptr()
    back = tensors.to_tensor(array)
    assert back.data_ptr() == X.data_ptr()
    half = tensors.to_array(X.to(torch.bfloat16))
    assert tensors.to_tensor(half).dtype is torch.bfloat16


# ---- training --------------------------------------------------------------------------------------


class Step(nn.Module):
    """A loss and its gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.network = perceptron()

    def forward(self, x: Any, y: Any) -> Any:
        loss = F.cross_entropy(self.network(x), y)
        return loss, *torch.autograd.grad(loss, list(self.network.parameters()))


LABELS = torch.tensor([0, 2, 1, 1, 0])


def test_a_step_that_takes_gradients_runs() -> None:
    found = neuronsim.compile(Step(), X, LABELS, auto_cast="none")(X, LABELS)
    for mine, theirs in zip(found, Step()(X, LABELS), strict=True):
        near(mine, theirs)


def test_a_joint_graph_of_export_tunes() -> None:
    from torch.export.experimental import _export_forward_backward

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = perceptron()

        def forward(self, x: Any, y: Any) -> Any:
            return F.cross_entropy(self.network(x), y)

    joint = _export_forward_backward(torch.export.export(Loss(), (X, LABELS)))
    data = {"x": np.tile(X.numpy(), (2, 1)), "y": np.tile(LABELS.numpy(), 2)}
    result = neuronsim.tune(joint, data)
    assert result.recommended
    found = neuronsim.compile(joint, auto_cast="none")(X, LABELS)
    near(found[0], Loss()(X, LABELS))


def test_a_step_of_torch_func_runs() -> None:
    network = perceptron()
    state = {n: p.detach() for n, p in network.named_parameters()}

    def step(state: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return F.cross_entropy(torch.func.functional_call(network, p, (x,)), y)

        gradients, value = torch.func.grad_and_value(loss)(state)
        return value, {n: p - 0.1 * gradients[n] for n, p in state.items()}

    program = neuronsim.compile(step, state, X, LABELS, auto_cast="none")
    value, after = step(state, X, LABELS)
    for found, found_after in (program(*state.values(), X, LABELS), program(state, X, LABELS)):
        near(found, value)
        assert list(found_after) == list(after)
        for name, parameter in after.items():
            near(found_after[name], parameter)


def cubes(x: Any) -> Any:
    return (x**3).sum()


class Gradient(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.func.grad(cubes)(x)


STEPS = {
    "module": Gradient(),
    "function": lambda x: torch.func.grad(cubes)(x),
    "jacobian": lambda x: torch.func.jacrev(torch.sin)(x[0]),
    "of each sample": lambda x: torch.func.vmap(torch.func.grad(cubes))(x),
    "hessian": lambda x: torch.func.hessian(cubes)(x[0]),
    "forward": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_gradients_of_an_input_are_traced_however_they_are_written(step: Any) -> None:
    near(neuronsim.compile(step, X, auto_cast="none")(X), step(X))


def test_a_trace_that_fails_leaves_no_transform_open() -> None:
    """PyTorch runs the calls of a transform as nodes of a graph, of which the last may never come."""

    def step(x: Any) -> Any:
        return torch.func.jvp(lambda y: torch.masked_select(y, y > 0), (x,), (x,))

    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    with pytest.raises(NeuronSimError):
        neuronsim.compile(step, X)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == depth
    near(torch.func.jvp(torch.sin, (X,), (X,))[0], X.sin())
    near(neuronsim.compile(torch.sin, X, auto_cast="none")(X), X.sin())


def test_threads_export_at_once() -> None:
    """What PyTorch traces with is the process's."""

    def fit(a: Any, b: Any) -> Any:
        return torch.linalg.lstsq(a, b).solution

    examples = [(torch.randn(5, n), torch.randn(5, 2)) for n in (1, 2, 3, 4)]

    def compiled(example: Any) -> Any:
        return neuronsim.compile(fit, *example, target="host", auto_cast="none")(*example)

    with concurrent.futures.ThreadPoolExecutor(len(examples)) as pool:
        for found, (a, b) in zip(pool.map(compiled, examples), examples, strict=True):
            near(found, fit(a, b), 1e-5)


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("own", torch.randn(X.shape))

    def forward(self, a: Any, b: Any) -> Any:
        return a - 2 * b + self.own


def test_one_tensor_as_two_examples_is_two_inputs() -> None:
    module, other = Difference(), torch.randn(X.shape)
    for examples in ((X, X), (module.own, X), (X, module.own)):
        near(neuronsim.compile(module, *examples, auto_cast="none")(other, X), module(other, X))
        near(neuronsim.torch.trace(module, examples)(other, X), module(other, X))

    def step(a: Any, b: Any) -> Any:
        return torch.func.grad(lambda a: ((a * b) ** 2).sum())(a)

    near(neuronsim.compile(step, X, X, auto_cast="none")(other, X), step(other, X))
    near(neuronsim.compile(lambda a: a - 2 * X, X, auto_cast="none")(other), other - 2 * X)


def test_an_example_that_was_computed_may_be_written() -> None:
    def model(x: Any) -> Any:
        x.add_(1)
        return x * 2

    example = torch.ones(3, requires_grad=True) * 2
    near(neuronsim.compile(model, example, auto_cast="none")(torch.ones(3)), torch.full((3,), 4.0))


def test_functions_that_do_not_tell_their_parameters_are_named() -> None:
    with pytest.raises(InvalidArgument, match="does not tell its parameters"):
        neuronsim.compile(torch.exp, input_shapes={"input": (3,)})
    with pytest.raises(InvalidArgument, match="does not tell its parameters"):
        neuronsim.compile(torch.exp, X, input_types={"q": "int64"})
    near(neuronsim.compile(torch.exp, X, auto_cast="none")(X), torch.exp(X))


class Attention(torch.nn.Module):
    """As models of transformers are written: a product on a view of what the heads give."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 96) / 6)

    def forward(self, x: Any) -> Any:
        if not torch.compiler.is_exporting() and (x > 1e9).all():  # which a trace cannot ask
            return x
        q, k, v = (x @ self.weight).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        y = y.reshape(*y.shape[:-2], -1).contiguous()
        return torch.mm(y.view(-1, y.size(-1)), self.weight[:, :32])


def test_views_of_what_attention_gives() -> None:
    torch.manual_seed(0)
    network, x = Attention().eval(), torch.randn(2, 12, 32)
    near(neuronsim.compile(network, x, auto_cast="none")(x), network(x))


def test_a_training_step_with_attention() -> None:
    torch.manual_seed(0)
    network, x = Attention(), torch.randn(2, 12, 32)
    state = {n: p.detach() for n, p in network.named_parameters()}

    def step(x: Any) -> Any:
        def loss(p: Any) -> Any:
            return torch.func.functional_call(network, p, (x,)).square().mean()

        gradients, value = torch.func.grad_and_value(loss)(state)
        return value, gradients["weight"]

    for mine, theirs in zip(neuronsim.compile(step, x, auto_cast="none")(x), step(x), strict=True):
        near(mine, theirs)


def test_a_failed_export_prints_no_graph(capfd: pytest.CaptureFixture[str]) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(neuronsim.errors.NeuronSimError):
        neuronsim.compile(Branching(), X)
    with pytest.raises(neuronsim.errors.NeuronSimError, match="same reduction dim"):
        neuronsim.compile(torch.nn.Linear(3, 4), torch.ones(2, 5))
    assert capfd.readouterr() == ("", "")


def test_a_failed_export_logs_nothing() -> None:
    """PyTorch's modules have loggers of their own, whose handlers pytest takes."""
    code = """
import torch, neuronsim
try:
    neuronsim.compile(torch.nn.Linear(4, 3), torch.ones(2, 5))
except neuronsim.NeuronSimError as error:
    print(error)
"""
    done = run_python(code)
    assert ("same reduction dim" in done.stdout, done.stderr) == (True, "")


def test_the_backend_of_torch_compile_trains() -> None:
    torch.manual_seed(0)
    network = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    compiled = torch.compile(network, backend="neuronsim" if installed() else door.backend,
                             options={"auto_cast": "none"})  # fmt: skip
    gradients = []
    for run in (network, compiled):
        x = torch.linspace(-1, 1, 48).reshape(2, 3, 8).requires_grad_()
        network.zero_grad()
        run(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad.clone() for p in network.parameters())])
    for theirs, mine in zip(*gradients, strict=True):
        near(mine, theirs, atol=2e-5)


def installed() -> bool:
    return "neuronsim" in torch._dynamo.list_backends(exclude_tags=())


def test_the_backend_takes_tensors_that_python_writes_down() -> None:
    def joined(x: Any) -> Any:
        return torch.cat([torch.tensor([]), x[0]]) + torch.tensor(2.0)

    compiled = torch.compile(joined, backend=door.backend, options={"auto_cast": "none"})
    near(compiled(X), joined(X))


def test_the_backend_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = project["entry-points"]["torch_dynamo_backends"]
    assert group == {"neuronsim": "neuronsim.torch:backend"}
    assert callable(door.backend)
    assert "torch" in project["optional-dependencies"]


# ---- files that nobody should trust ----------------------------------------------------------------


def rewritten(path: Path, change: Any) -> Path:
    """The file with members changed: by name and bytes, None to leave one out."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    other = path.with_name("other.pt2")
    with zipfile.ZipFile(other, "w") as archive:
        for name, data in change(members).items():
            archive.writestr(name, data)
    return other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.pt2"
    torch.export.save(dynamic(), found)
    return found


class Boom:
    """What would leave a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_sample_inputs_are_never_unpickled(path: Path, tmp_path: Path) -> None:
    import pickle

    mark = tmp_path / "boom"
    bomb = pickle.dumps(Boom(mark))

    def change(members: dict[str, bytes]) -> dict[str, bytes]:
        return {n: bomb if "sample_inputs" in n else data for n, data in members.items()}

    near(neuronsim.compile(rewritten(path, change), X, auto_cast="none")(X), perceptron()(X))
    assert not mark.exists()


def replaced(before: str, after: str) -> Any:
    def change(members: dict[str, bytes]) -> dict[str, bytes]:
        assert any(before.encode() in data for data in members.values())
        return {n: data.replace(before.encode(), after.encode()) for n, data in members.items()}

    return change


def test_classes_of_libraries_that_are_not_imported_are_tuples(path: Path) -> None:
    """As in what is exported of a model of Hugging Face, read where nothing imports transformers."""
    known = r"\"type\": \"builtins.tuple\", \"context\": \"null\""
    other = r"\"type\": \"transformers.Output\", \"context\": \"[\\\"logits\\\"]\""
    program = neuronsim.compile(rewritten(path, replaced(known, other)), X, auto_cast="none")
    near(program(X), perceptron()(X))


def test_what_pytorch_cannot_read_it_says_once(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unread = rewritten(path, replaced('"as_tensor"', '"as_tensors"'))
    with pytest.raises(InvalidModel, match=r"other.pt2 is no program that torch.export.save") as e:
        neuronsim.compile(unread, X)
    assert "warnings above" not in str(e.value)
    assert capfd.readouterr().err == ""


HOSTILE = {
    "pickled weights": (replaced('"use_pickle": false', '"use_pickle": true'), "is pickled"),
    "an expression": (replaced("Symbol('s", "__import__('os').system('s"), "no expression of sizes"),
    "a power": (
        replaced("Symbol('s", "Pow(Integer(9), Pow(9, 9)) + Symbol('s"),
        "no expression of sizes",
    ),
    "a call": (replaced("torch.ops.aten.linear.default", "torch.hub.load"), "calls torch.hub.load"),
    "an object": (lambda m: {**m, "model/data/constants/custom_obj_0": b"x"}, "pickled object"),
    "compiled code": (lambda m: {**m, "model/data/aotinductor/m/x.so": b"x"}, "AOTInductor"),
    "no model": (lambda m: {n: d for n, d in m.items() if "models/" not in n}, "no exported program"),
    "no JSON": (
        lambda m: {n: b"{" if n.endswith("model.json") else d for n, d in m.items()},
        "is no JSON",
    ),
    "the older format": (
        lambda m: {"version": b"1", "serialized_state_dict.pt": b"x"},
        "holds pickles",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(path: Path, name: str) -> None:
    change, said = HOSTILE[name]
    with pytest.raises((InvalidModel, UnsupportedOperator), match=said):
        neuronsim.compile(rewritten(path, change), X)


def test_damaged_files_are_refused(path: Path) -> None:
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for n in range(12):
        damaged = bytearray(content)
        at = int(rng.integers(len(content)))
        if n % 2:
            del damaged[at:]
        else:
            damaged[at : at + 40] = rng.bytes(40)
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(NeuronSimError):
            neuronsim.compile(path, X)


def test_a_missing_extra_names_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "torch" else find(n, *a)
    )
    with pytest.raises(NeuronSimError, match=r"pip install 'neuronsim\[torch\]'"):
        neuronsim.compile(perceptron(), X)


def test_a_class_is_named() -> None:
    with pytest.raises(InvalidModel, match="a class: give an object of it"):
        neuronsim.compile(torch.nn.Linear, X)


def test_weights_that_eager_quantization_packed_are_named() -> None:
    layer = torch.ao.nn.quantized.dynamic.Linear(3, 4)
    with pytest.raises(UnsupportedOperator, match=r"Linear has weights that torch\.ao.*quantize"):
        neuronsim.compile(layer, X)


def test_torchscript_is_named() -> None:
    with pytest.raises(UnsupportedOperator, match="TorchScript"):
        neuronsim.compile(torch.jit.script(nn.ReLU()), X)
