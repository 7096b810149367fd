"""Functions of PyTorch's that ask for values of tensors before they compute, exported and compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import neuronsim

torch = pytest.importorskip("torch")
F = torch.nn.functional
D = torch.distributions

pytestmark = [pytest.mark.isa_independent, pytest.mark.filterwarnings("ignore")]

GENERATOR = torch.Generator().manual_seed(0)


def f(*dims: int) -> Any:
    return torch.randn(dims, generator=GENERATOR)


def u(*dims: int) -> Any:
    return torch.rand(dims, generator=GENERATOR) * 0.8 + 0.1


def agree(function: Callable[..., Any], *examples: Any, rtol: float = 2e-5) -> None:
    expected = function(*examples)
    program: Any = neuronsim.compile(function, *examples, auto_cast="none", target="host")
    found = program(*examples)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for mine, theirs in pairs:
        np.testing.assert_allclose(np.asarray(mine), theirs.detach().numpy(), rtol, 2e-5)


def test_distributions_compute_without_their_checks() -> None:
    def policy(mean: Any, spread: Any, x: Any) -> Any:
        normal = D.Normal(mean, spread)
        squashed = D.TransformedDistribution(D.Independent(normal, 1), [D.TanhTransform()])
        choice = D.Categorical(logits=mean)
        return (
            normal.log_prob(x), normal.entropy(), normal.cdf(x), normal.icdf(spread),
            squashed.log_prob(x.tanh()), choice.entropy(), choice.log_prob(torch.tensor([0, 2])),
            D.kl_divergence(normal, D.Normal(0.0, 1.0)), D.Bernoulli(logits=mean).log_prob(x.round()),
            D.Beta(spread, spread + 1).log_prob(spread), D.Gamma(spread, spread).log_prob(spread),
            D.Gamma(spread, spread + 1).cdf(spread), D.StudentT(spread).log_prob(x),
            D.Dirichlet(spread).entropy(), D.Laplace(mean, spread).log_prob(x),
            D.MixtureSameFamily(choice, normal).log_prob(x[:, 0]),
            D.MultivariateNormal(mean, torch.eye(3) + 0.1).log_prob(x),
        )  # fmt: skip

    agree(policy, f(2, 3), u(2, 3), u(2, 3), rtol=2e-4)


def test_distributions_check_again_after_an_export() -> None:
    agree(lambda x: D.Normal(x, 1.0).log_prob(x), f(3))
    with pytest.raises(ValueError, match="scale"):
        D.Normal(0.0, torch.tensor(-1.0))


def test_covariances_and_correlations() -> None:
    counts = torch.tensor([1, 2, 3, 1, 5, 1, 1])
    agree(lambda x: (torch.cov(x), x.cov(correction=0), torch.corrcoef(x), x[0].cov()), f(3, 7))
    agree(lambda x: (x[0].corrcoef(), torch.cov(x, fweights=counts), torch.cov(x[:, :1])), f(3, 7))
    for off in (0, 1, 2):
        agree(lambda x, off=off: torch.cov(x, correction=off), f(3, 7))
        agree(lambda x, w, off=off: torch.cov(x, correction=off, aweights=w), f(3, 7), u(7))
        both = partial(torch.cov, correction=off, fweights=counts)
        agree(lambda x, w, both=both: both(x, aweights=w), f(3, 7), u(7))
    complex_rows = torch.complex(f(3, 7), f(3, 7))
    agree(lambda x: (torch.cov(x), torch.corrcoef(x)), complex_rows)


def test_combinations_of_known_length() -> None:
    agree(lambda x: (torch.combinations(x), torch.combinations(x, 3, True)), f(4))
    agree(lambda x: torch.combinations(x, 5), f(4))


def test_losses_of_variances() -> None:
    def losses(x: Any, y: Any, v: Any) -> Any:
        return (
            F.gaussian_nll_loss(x, y, v), torch.nn.GaussianNLLLoss(reduction="sum", full=True)(x, y, v),
            F.gaussian_nll_loss(x, y, v[:, 0], reduction="none"), F.gaussian_nll_loss(x, y, v[:, :1]),
            F.gaussian_nll_loss(x, y, v, eps=0.4), F.gaussian_nll_loss(x, y, 0.5),
        )  # fmt: skip

    agree(losses, f(3, 4), f(3, 4), u(3, 4))
    for wrong, settings in ((u(4), {}), (u(2, 4), {}), (u(3, 4), {"reduction": "all"})):
        with pytest.raises(neuronsim.NeuronSimError, match=r"incorrect size|all is not valid"):
            neuronsim.compile(
                lambda x, v, settings=settings: F.gaussian_nll_loss(x, x, v, **settings), f(3, 4), wrong
            )
