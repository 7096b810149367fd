"""Programs of JAX's shard_map, as XLA's partitioner leaves them, on as many replicas as devices."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from tests.support.processes import run_python

from neuronsim import api
from neuronsim.errors import UnsupportedOperator

pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")

# JAX fixes the number of its devices as it starts, so it has a process of its own.
SCRIPT = """
import base64, json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

N = 4
mesh = Mesh(np.array(jax.devices()[:N]), ("i",))
x, w = (np.random.default_rng(n).normal(size=s).astype("f") for n, s in enumerate([(8, 16), (16, 4)]))
ring = [(n, (n + 1) % N) for n in range(N)]
rows, columns = P("i"), P(None, "i")
lax = jax.lax


def walk(x):
    step = lambda k, c: (lax.ppermute(c[0], "i", ring), c[1] + c[0])
    return lax.fori_loop(0, N, step, (x, jnp.zeros_like(x)))[1]


CASES = {
    "psum": (lambda x: lax.psum(x, "i"), (rows,), P()),
    "all_gather": (lambda x: lax.all_gather(x, "i", tiled=True)[None], (rows,), rows),
    "ppermute": (lambda x: lax.ppermute(x, "i", ring), (rows,), rows),
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True), (rows,), rows),
    "psum_scatter": (
        lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True), (rows,), rows),
    "a tensor-parallel layer": (lambda x, w: lax.psum(jax.nn.relu(x) @ w, "i"), (columns, rows), P()),
    "axis_index": (lambda x: x + lax.axis_index("i"), (rows,), rows),
    "axis_index and psum": (lambda x: lax.psum(x, "i") * lax.axis_index("i"), (rows,), rows),
    "a ring in a loop": (walk, (rows,), rows),
    "a gradient": (
        lambda x: jax.grad(lambda y: lax.psum((y**2).sum(), "i"))(x), (rows,), rows),
    "pmean and pmax": (lambda x: lax.pmean(x, "i") * lax.pmax(x, "i"), (rows,), P()),
    "a product that XLA partitions": (lambda x, w: x @ w, (columns, rows), P()),
}
found = {}
for name, (f, specs, out) in CASES.items():
    shards = tuple(NamedSharding(mesh, s) for s in specs)
    mapped = jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=out)
    if "XLA" in name:
        mapped = f
    jitted = jax.jit(
        mapped,
        in_shardings=shards if len(shards) > 1 else shards[0],
        out_shardings=NamedSharding(mesh, out),
    )
    given = (x, w)[: len(specs)]
    result, lowered = jitted(*given), jitted.lower(*given)
    (module,) = lowered.compile().runtime_executable().hlo_modules()
    parts = sorted(result.addressable_shards, key=lambda s: s.device.id)
    found[name] = {
        "module": base64.b64encode(module.as_serialized_hlo_module_proto()).decode(),
        "whole": base64.b64encode(
            lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()).decode(),
        "inputs": [
            np.stack(np.split(v, N, 1 if s == columns else 0)).tolist() for v, s in zip(given, specs)],
        "parts": [np.asarray(p.data).tolist() for p in parts],
    }
print(json.dumps(found))
"""
NAMES = (
    *("psum", "all_gather", "ppermute", "all_to_all", "psum_scatter", "a tensor-parallel layer"),
    *("axis_index", "axis_index and psum", "a ring in a loop", "a gradient", "pmean and pmax"),
    "a product that XLA partitions",
)


@pytest.fixture(scope="module")
def traced() -> dict[str, Any]:
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    cases: dict[str, Any] = json.loads(run_python(SCRIPT, **devices).stdout)
    assert tuple(cases) == NAMES
    return cases


def module_of(case: dict[str, Any], which: str) -> bytes:
    return base64.b64decode(case[which])


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_shard_map(name: str, traced: dict[str, Any]) -> None:
    case = traced[name]
    program = api.compile(module_of(case, "module"), auto_cast="none", replicas=4)
    found = program(*(np.array(x, np.float32) for x in case["inputs"]))
    assert not isinstance(found, tuple)
    np.testing.assert_allclose(np.asarray(found), case["parts"], rtol=1e-5, atol=1e-5)


def test_a_module_that_is_not_partitioned_says_how(traced: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedOperator, match=r"not partitioned yet.*(?s:.*)replicas=N"):
        api.compile(module_of(traced["a tensor-parallel layer"], "whole"))
