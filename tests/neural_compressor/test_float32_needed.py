"""How many instructions stay float32 by the default search and by the published procedure, both through
the interface and its criteria: of networks in which a setting is known to fail.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.tuning.broken_networks import BROKEN, FP16, Network

import neuronsim
from neuronsim.neural_compressor import (
    AccuracyCriterion,
    MixedPrecisionConfig,
    TuningCriterion,
    mix_precision,
)

pytestmark = pytest.mark.isa_independent
SHAPE = (16, 32)
NONE = 10**6
QUICK = ("fast_variance-bf16", "sum_of_squares-fp16", "small_norm-bf16")


def kept(network: Network, strategy: str, criterion: str) -> int:
    """How many instructions that compute stay float32 within 2 % of error; NONE where no plan does."""

    def model(x: Any) -> Any:
        return network.function(neuronsim, x)

    x = network.data(np.random.default_rng(3)).astype(np.float32)
    exact: list[np.ndarray] = []

    def error(program: Any) -> float:
        found = np.asarray(program(x), np.float64)
        exact.append(found)
        # The first call is float32's. A baseline of 1, so that both criteria are of one size.
        difference = np.linalg.norm(found - exact[0]) / np.linalg.norm(exact[0])
        return float(1 + np.nan_to_num(difference, nan=1e6, posinf=1e6))

    config = MixedPrecisionConfig(
        precisions="fp16" if network.low == FP16 else "bf16",
        example_inputs=(x,),
        accuracy_criterion=AccuracyCriterion(False, criterion, 0.02),
        tuning_criterion=TuningCriterion(strategy=strategy),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = mix_precision.fit(model, config, eval_func=error)
    assert error(found) <= 1.02 + 1e-9
    chosen = found.tune_result.chosen_plan if found.tune_result else None
    return NONE if chosen is None else len(chosen.kept)


def compare(networks: Any, criterion: str) -> tuple[int, int, int]:
    """How many networks failed, and of how many the default search needs fewer, and more."""
    fewer = more = count = 0
    for n in networks:
        ours, theirs = (kept(n, s, criterion) for s in ("basic", "automixedprecision"))
        if theirs == 0:  # nothing has to stay float32
            assert ours == 0, n.name
            continue
        count += 1
        fewer, more = fewer + (ours < theirs), more + (ours > theirs)
    return count, fewer, more


@pytest.mark.parametrize("criterion", ["relative", "absolute"])
def test_the_default_search_needs_no_more_float32(criterion: str) -> None:
    count, _, more = compare([n for n in BROKEN if n.name in QUICK], criterion)
    assert count >= 2
    assert more == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("criterion", ["relative", "absolute"])
def test_the_default_search_needs_no_more_float32_on_all_networks(criterion: str) -> None:
    count, fewer, more = compare(BROKEN, criterion)
    print(count, fewer, more)
    assert count >= 30
    assert more == 0
    assert 2 * fewer >= count
