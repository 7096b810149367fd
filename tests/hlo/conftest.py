"""XLA on a CPU as the oracle of single programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

RunByXla: TypeAlias = Callable[..., list[np.ndarray]]


@pytest.fixture(scope="session")
def run_by_xla() -> RunByXla:
    """Runs HLO text on arrays; gives the arrays of its result."""
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")
    from jaxlib import _hlo, _jax, xla_client

    device = jax.local_devices(backend="cpu")[0]

    @functools.cache
    def compiled(text: str) -> Any:
        module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        return device.client.compile_and_load(
            _jax.mlir.hlo_to_stablehlo(module), _jax.DeviceList((device,)), xla_client.CompileOptions()
        )

    def run(text: str, *arrays: Any) -> list[np.ndarray]:
        with jax.enable_x64(True):
            program = compiled(text)
            return [np.asarray(r) for r in program.execute([jax.device_put(a, device) for a in arrays])]

    return run
