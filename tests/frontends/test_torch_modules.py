"""Modules of torch.nn and small networks, exported and compiled, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neuronsim

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

pytestmark = [pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]

VECTORS, SERIES, IMAGES, VOLUMES = (2, 8), (2, 4, 9), (2, 4, 8, 8), (1, 2, 4, 5, 6)

ACTIVATIONS = [
    *(nn.CELU(0.8), nn.ELU(), nn.GELU(), nn.GELU("tanh"), nn.GLU(), nn.Hardshrink(), nn.Hardsigmoid()),
    *(nn.Hardswish(), nn.Hardtanh(), nn.LeakyReLU(0.1), nn.LogSigmoid(), nn.LogSoftmax(1), nn.Mish()),
    *(nn.PReLU(), nn.ReLU(), nn.ReLU6(), nn.SELU(), nn.Sigmoid(), nn.SiLU(), nn.Softmax(1)),
    *(nn.Softmin(1), nn.Softplus(), nn.Softshrink(), nn.Softsign(), nn.Tanh(), nn.Tanhshrink()),
    *(nn.Threshold(0.1, -1.0), nn.Dropout(), nn.Identity(), nn.Flatten(), nn.Unflatten(1, (2, 4))),
]
LAYERS = [
    *(nn.Linear(8, 5), nn.Linear(8, 3, bias=False), nn.LayerNorm(8), nn.RMSNorm(8)),
    nn.BatchNorm1d(8),
]
OF_SERIES = [
    *(nn.Conv1d(4, 6, 3, padding=1), nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1)),
    *(nn.MaxPool1d(2), nn.AvgPool1d(3, 2, 1), nn.AdaptiveAvgPool1d(4), nn.AdaptiveMaxPool1d(3)),
    *(nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4), nn.ConstantPad1d(1, 0.5)),
    *(nn.ReflectionPad1d(2), nn.ReplicationPad1d(1), nn.ZeroPad1d(2), nn.CircularPad1d(1)),
    nn.Upsample(scale_factor=2, mode="linear"),
]
OF_IMAGES = [
    *(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, groups=4, dilation=2)),
    *(
        nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.BatchNorm2d(4),
        nn.InstanceNorm2d(4),
        nn.GroupNorm(4, 4),
    ),
    *(nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((3, 5))),
    *(nn.LocalResponseNorm(3), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)),
    *(nn.ReflectionPad2d(1), nn.ZeroPad2d((1, 2, 0, 1)), nn.Unfold(3), nn.Softmax2d(), nn.Dropout2d()),
    *(nn.Upsample(scale_factor=2), nn.UpsamplingBilinear2d(scale_factor=2), nn.LPPool2d(2, 2)),
]
OF_VOLUMES = [
    *(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(2), nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(2)),
    *(nn.ConvTranspose3d(2, 2, 2), nn.ReplicationPad3d(1), nn.LayerNorm([4, 5, 6])),
]
MODULES = {
    "activations": (ACTIVATIONS, VECTORS),
    "layers": (LAYERS, VECTORS),
    "series": (OF_SERIES, SERIES),
    "images": (OF_IMAGES, IMAGES),
    "volumes": (OF_VOLUMES, VOLUMES),
}


class Each(nn.Module):
    """The results of several modules of one input."""

    def __init__(self, modules: list[Any]) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)

    def forward(self, x: Any) -> Any:
        return tuple(m(x) for m in self.each)


class Together(nn.Module):
    """Modules, each with arguments of its own: what is exported once takes the time of one."""

    def __init__(self, modules: list[Any]) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)

    def forward(self, args: Any) -> Any:
        return [m(*given) for m, given in zip(self.each, args, strict=True)]


def run_together(modules: list[Any], args: list[tuple[Any, ...]]) -> list[list[Any]]:
    """The results of each module, compiled without casts."""
    together = Together(modules)
    program = neuronsim.compile(together, args, auto_cast="none")
    return [arrays(x) for x in program(args)]


def drawn(*dims: int, seed: int = 0) -> Any:
    return torch.randn(dims, generator=torch.Generator().manual_seed(seed))


def with_drawn_statistics(module: Any) -> Any:
    """In inference, with statistics that are not those of a new module."""
    for n, m in enumerate(module.modules()):
        if getattr(m, "running_var", None) is not None:
            m.running_mean.copy_(drawn(*m.running_mean.shape, seed=n))
            m.running_var.copy_(drawn(*m.running_var.shape, seed=n).abs() + 0.5)
    return module.eval()


def values(x: Any) -> Any:
    return x.detach().to(torch.float64).numpy()


def arrays(result: Any) -> list[Any]:
    return [
        np.asarray(x.astype("float64"))
        for x in (result if isinstance(result, tuple | list) else (result,))
    ]


def test_modules() -> None:
    torch.manual_seed(0)
    subjects = [(with_drawn_statistics(Each(m)), drawn(*dims)) for m, dims in MODULES.values()]
    found = run_together([e for e, _ in subjects], [(x,) for _, x in subjects])
    for (each, x), mine in zip(subjects, found, strict=True):
        for module, y in zip(each.each, mine, strict=True):
            np.testing.assert_allclose(y, values(module(x)), 1e-5, 2e-6, err_msg=repr(module))


def test_labels_behind_the_first_minus_1_are_none() -> None:
    """PyTorch's decomposition of MultiLabelMarginLoss counts them."""
    labels = torch.tensor([[3, 0, -1, 1, 2, 2], [-1] * 6, [1, 1, -1, -1, 0, 0]])
    losses = [nn.MultiLabelMarginLoss(reduction=r) for r in ("none", "mean", "sum")]
    args = drawn(3, 6), labels
    for loss, (found,) in zip(losses, run_together(losses, [args] * 3), strict=True):
        np.testing.assert_allclose(found, values(loss(*args)), 1e-5)


def test_bags_of_computed_offsets_and_of_padding() -> None:
    torch.manual_seed(0)
    modes = ("sum", "mean", "max")
    bags = [nn.EmbeddingBag(11, 6, mode=mode, padding_idx=3) for mode in modes]
    bags += [nn.EmbeddingBag(11, 6, mode=mode, include_last_offset=True) for mode in modes]
    in_line = TOKENS.reshape(-1), torch.tensor([0, 4, 4, 8])
    args = [(TOKENS,)] * 3 + [in_line] * 3
    for bag, given, (found,) in zip(bags, args, run_together(bags, args), strict=True):
        np.testing.assert_allclose(found, values(bag(*given)), 1e-5, 1e-6, err_msg=repr(bag))


def test_gradients_through_rounded_floats() -> None:
    """On whose spelled out gradients PyTorch crashes, where its export has put the example in them."""

    def loss(x: Any) -> Any:
        return (torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7) ** 2).sum()

    program = neuronsim.compile(torch.func.grad(loss), drawn(4, 6), auto_cast="none")
    x = drawn(4, 6, seed=1)
    np.testing.assert_allclose(arrays(program(x))[0], values(torch.func.grad(loss)(x)), 1e-5)


def in_training_for_integers(network: Any, x: Any) -> Any:
    """As torch.ao prepares it, with the ranges of a call, which go on no more."""
    ao = pytest.importorskip("torch.ao.quantization")
    network.qconfig = ao.get_default_qat_qconfig("fbgemm")
    prepared = ao.prepare_qat(network.train())
    prepared(x)
    return prepared.apply(ao.disable_observer).eval()


def test_modules_in_training_for_integers() -> None:
    torch.manual_seed(0)
    x = drawn(4, 6)
    network = in_training_for_integers(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), x)
    program = neuronsim.compile(network, x, auto_cast="none")
    np.testing.assert_allclose(arrays(program(x))[0], values(network(x)), 1e-5, 1e-6)


def test_a_fake_quantize_that_asks_whether_it_observes_is_refused_with_the_one_that_does_not() -> None:
    ao = pytest.importorskip("torch.ao.quantization")
    network = nn.Sequential(nn.Linear(6, 3), ao.FakeQuantize())
    with pytest.raises(neuronsim.NeuronSimError, match="FusedMovingAvgObsFakeQuantize"):
        neuronsim.compile(network, drawn(4, 6))


def test_places_in_memory_are_those_of_the_tensor_however_it_lies() -> None:
    x = drawn(4, 6)
    for read, y in (
        (lambda x: x.t().as_strided((2, 3), (3, 1), 1), x),
        (lambda x: x.as_strided((2, 3), (3, 1), 1), x.t()),
        (lambda x: x[1:].as_strided((2, 3), (3, 1)), x),
        (lambda x: (x.t() + 1).as_strided((4, 6), (6, 1)), x),
    ):
        found = arrays(neuronsim.compile(read, y, auto_cast="none")(y))
        np.testing.assert_allclose(found[0], values(read(y)), 1e-6)

    def written(x: Any) -> Any:
        y = x.clone()
        y.as_strided((2, 3), (7, 2), 1).mul_(10)
        return y

    for x in (drawn(4, 6), drawn(6, 4).t()):
        found = arrays(neuronsim.compile(written, x, auto_cast="none")(x))
        np.testing.assert_allclose(found[0], values(written(x)), 1e-6)
    with pytest.raises(neuronsim.errors.UnsupportedOperator, match="reads memory around its tensor"):
        neuronsim.compile(lambda x: x[1:].as_strided((2, 3), (3, 1), 1), x)


@pytest.mark.parametrize("antialias", [False, True])
def test_images_of_bytes_are_not_resized_by_weights(antialias: bool) -> None:
    """PyTorch weighs them in integers of its own: floats came one step below."""

    def resize(x: Any) -> Any:
        return F.interpolate(x, size=(9, 5), mode="bilinear", antialias=antialias)

    with pytest.raises(neuronsim.errors.UnsupportedOperator, match="convert the image to float32"):
        neuronsim.compile(resize, torch.zeros(1, 2, 6, 7, dtype=torch.uint8))


@pytest.mark.parametrize("place", [-9, 8])
def test_known_indices_outside_of_their_axis_are_an_error(place: int) -> None:
    places = [0, place]
    reads = [
        lambda x: x[:, places],
        lambda x: F.embedding(torch.tensor(places), x.T),
        lambda x: x.index_select(1, torch.tensor(places)),
        lambda x: x.gather(1, torch.tensor([places])),
    ]
    for read in reads:
        with pytest.raises(neuronsim.errors.InvalidModel, match=f"index {place} of an axis of 8"):
            neuronsim.compile(read, drawn(2, 8))


def test_there_are_60_modules() -> None:
    assert len({repr(m) for modules, _ in MODULES.values() for m in modules}) >= 60


def ulps(x: Any, y: Any) -> Any:
    """How many bfloat16 numbers lie between."""
    a, b = (np.asarray(v, ml_dtypes.bfloat16).view(np.int16).astype(np.int64) for v in (x, y))
    a, b = (np.where(v < 0, -32768 - v, v) for v in (a, b))
    return np.abs(a - b)


# Of one rounding each, by PyTorch correctly: its erf, gelu, silu, sigmoid and log_softmax are not.
ROUNDED_ONCE = [
    *(nn.ReLU(), nn.ReLU6(), nn.Hardtanh(), nn.Tanh(), nn.Hardshrink(), nn.Threshold(0.1, -1.0)),
    *(nn.ELU(), nn.LeakyReLU(0.1), nn.Hardswish(), nn.Hardsigmoid(), nn.LayerNorm(8), nn.Softmax(1)),
    *(nn.Linear(8, 8), nn.Identity(), nn.Flatten(), nn.Softplus(), nn.CELU(0.8)),
]


def test_bfloat16_modules_are_within_an_ulp() -> None:
    torch.manual_seed(0)
    each = Each(ROUNDED_ONCE).eval().to(torch.bfloat16)
    x = drawn(64, 8).to(torch.bfloat16)
    program = neuronsim.compile(each, x, auto_cast="none")
    assert all(t.dtype.name == "bfloat16" for t in program.outputs)
    for module, mine, theirs in zip(ROUNDED_ONCE, arrays(program(x)), each(x), strict=True):
        near_zero = np.abs(mine - values(theirs)) < 2**-9 * np.abs(values(theirs)).max()
        apart = np.where(near_zero & isinstance(module, nn.Linear), 0, ulps(mine, values(theirs)))
        assert apart.max() <= 1, module


# ---- networks --------------------------------------------------------------------------------------


class Attention(nn.Module):
    """scaled_dot_product_attention, causal and with a mask."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.masked = nn.Linear(16, 48), nn.Linear(16, 16), masked

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        given = {"attn_mask": mask[:, None, None, :]} if self.masked else {"is_causal": True}
        y = F.scaled_dot_product_attention(q, k, v, **given)
        return self.out(y.transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    """A recurrent layer after an embedding; its last states too."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        super().__init__()
        self.embedding, self.layer = (
            nn.Embedding(11, 6, padding_idx=0),
            kind(6, 5, batch_first=True, **settings),
        )

    def forward(self, tokens: Any) -> Any:
        y, last = self.layer(self.embedding(tokens))
        return (y, *(last if isinstance(last, tuple) else (last,)))


class Residual(nn.Module):
    """A block of a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


class Unet(nn.Module):
    """Down, up by a transposed convolution, and beside what was there."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(4, 8, 3, 2, 1), nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.norm, self.out = nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        y = F.silu(self.norm(self.down(x)))
        return self.out(torch.cat([x, self.up(y)], 1))


class Gather(nn.Module):
    """Indices, masks, sorting and writing in place."""

    def forward(self, x: Any, at: Any) -> Any:
        y = x.clone()
        y[:, 1:3] = 0.5
        y[at, 0] += 1.0
        top, where = x.topk(3)
        return y.masked_fill(x > 1, -1.0), top, where, x.gather(1, where), x.cumsum(1)[:, ::2]


TOKENS = torch.tensor([[1, 5, 0, 9], [3, 3, 10, 2]])
NETWORKS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "perceptron": (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)), (drawn(5, 8),)),
    "cnn": (
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)),
        (drawn(2, 4, 8, 8),),
    ),
    "residual": (Residual(), (drawn(2, 4, 8, 8),)),
    "unet": (Unet(), (drawn(2, 4, 8, 8),)),
    "causal attention": (Attention(False), (drawn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool))),
    "masked attention": (
        Attention(True),
        (drawn(2, 5, 16), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])),
    ),
    "transformer": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        (drawn(2, 5, 16),),
    ),
    "encoder and decoder": (
        nn.Transformer(16, 4, 1, 1, 32, batch_first=True),
        (drawn(2, 5, 16), drawn(2, 3, 16)),
    ),
    "lstm": (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), (TOKENS,)),
    "gru": (Recurrent(nn.GRU), (TOKENS,)),
    "embedding bag": (nn.EmbeddingBag(11, 6, mode="mean"), (TOKENS,)),
    "gather": (Gather(), (drawn(4, 6), torch.tensor([0, 2]))),
}


@pytest.mark.exhaustive
def test_networks() -> None:
    torch.manual_seed(0)
    networks = [with_drawn_statistics(network) for network, _ in NETWORKS.values()]
    found = run_together(networks, [args for _, args in NETWORKS.values()])
    for name, network, mine in zip(NETWORKS, networks, found, strict=True):
        expected = network(*NETWORKS[name][1])
        expected = expected if isinstance(expected, tuple) else (expected,)
        for x, y in zip(mine, expected, strict=True):
            np.testing.assert_allclose(x, values(y), 1e-5, 2e-6, err_msg=name)


def test_indices_of_64_bits_run_in_the_core_C7() -> None:
    """PyTorch's own indices, which trn1 truncates: nothing of them is left to Python."""
    program = neuronsim.compile(NETWORKS["gather"][0], drawn(4, 6), torch.tensor([0, 2]))
    assert program.python_steps == ()
    found = program(drawn(4, 6), torch.tensor([-1, 2]))
    expected = NETWORKS["gather"][0](drawn(4, 6), torch.tensor([-1, 2]))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-6)
    assert program.diagnostics["int64_truncated"] == {}
