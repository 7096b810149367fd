"""Networks that JAX exports run from their protos and agree with XLA under `auto_cast="none"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import neuronsim

jax = pytest.importorskip("jax", reason="the peer JAX is not installed (extra `peers`)")

from jaxlib import _hlo  # noqa: E402
from tests.data import make_networks  # noqa: E402
from tests.support.parameters import some  # noqa: E402

FILES = Path(__file__).parents[1] / "data" / "networks"
# Of the Frobenius norm: a sum of n float32 terms in another order differs by about sqrt(n) 2^-24 of
# their norm, 4e-6 for the longest here (4,608 products), and few layers add up.
TOLERANCE = 1e-5


def flat(results: Any) -> list[npt.NDArray[Any]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(results)]


def differences(network: make_networks.Network, results: Any) -> list[float]:
    """For each result how far it is from XLA's: relative for floats, a count of elements otherwise."""
    expected = flat(jax.jit(network.callable)(*network.examples))
    found = flat(results)
    assert [f.shape for f in found] == [e.shape for e in expected]
    assert [f.dtype for f in found] == [e.dtype for e in expected]
    pairs = list(zip(found, expected, strict=True))
    assert all(np.isfinite(e).all() for e in expected)
    return [
        float(np.linalg.norm((f - e).ravel()) / np.linalg.norm(e.ravel()))
        if e.dtype.kind == "f"
        else float((f != e).sum())
        for f, e in pairs
    ]


def run(network: make_networks.Network) -> Any:
    replicas = {"replicas": network.replicas} if network.replicas > 1 else {}
    module = make_networks.to_hlo(network)
    program = neuronsim.compile(module, auto_cast="none", target="trn1", **replicas)
    results = program(*network.arguments)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def as_text(module: bytes) -> str:
    """All but the ids, which count what one process has made."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(_hlo.HloModule.from_serialized_hlo_module_proto(module).to_string(options))


@pytest.mark.parametrize("reduced", some([True, False], 1), ids=lambda r: "reduced" if r else "full")
@pytest.mark.parametrize("name", make_networks.NETWORKS)
def test_network_agrees_with_xla(name: str, reduced: bool) -> None:
    network = make_networks.make_network(name, reduced=reduced)
    assert max(differences(network, run(network))) <= TOLERANCE


@pytest.mark.parametrize("name", make_networks.NETWORKS)
def test_network_file_is_what_the_script_makes(name: str) -> None:
    made = make_networks.to_hlo(make_networks.make_network(name, reduced=True))
    assert as_text((FILES / f"{name}.hlo.pb").read_bytes()) == as_text(made)


@pytest.mark.parametrize("name", make_networks.NETWORKS)
def test_rounded_weights_are_outside_the_tolerance(name: str) -> None:
    """The control: bfloat16 parameters and inputs change every network's results by more."""
    network = make_networks.make_network(name, reduced=True)

    def rounded(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kept = x.dtype.kind != "f"
        return x if kept else np.asarray(neuronsim.asarray(x).astype("bfloat16").astype("float32"))

    parameters, inputs = jax.tree.map(rounded, (network.parameters, network.inputs))
    other = make_networks.Network(
        network.name, network.function, parameters, inputs, network.closed, network.replicas
    )
    results = jax.jit(other.callable)(*other.examples)
    assert max(differences(network, results)) > 10 * TOLERANCE
