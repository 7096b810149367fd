"""XLA on a CPU as the oracle of single programs, and as a reader of files and text."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from neuronsim.hlo import proto, text
from neuronsim.hlo.module import Module


@functools.cache
def _compiled(text: str) -> tuple[Any, Any]:
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")
    from jaxlib import _hlo, _jax, xla_client  # an optional peer

    device = jax.local_devices(backend="cpu")[0]
    module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    program = device.client.compile_and_load(
        _jax.mlir.hlo_to_stablehlo(module), _jax.DeviceList((device,)), xla_client.CompileOptions()
    )
    return program, device


def run_by_xla(text: str, *arrays: Any) -> list[np.ndarray]:
    """HLO text on arrays; gives the arrays of its result."""
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")
    with jax.enable_x64(True):
        program, device = _compiled(text)
        return [np.asarray(r) for r in program.execute([jax.device_put(a, device) for a in arrays])]


def hlo() -> Any:
    return pytest.importorskip("jaxlib._hlo", reason="the peer XLA is not installed (extra `peers`)")


def _written_again(peer: Any) -> Module:
    return proto.from_bytes(peer.as_serialized_hlo_module_proto())


def through_file(module: Module) -> Module:
    """As XLA reads its file and writes it."""
    return _written_again(hlo().HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module)))


def through_text(module: Module) -> Module:
    """As XLA reads its text and writes a file."""
    return _written_again(hlo().hlo_module_from_text(text.to_text(module)))
