"""Runs HLO texts on four replicas by XLA, in a process of its own: the number of host devices is set
before jax starts. `python -m tests.executor.replicas_by_xla CASES.npz RESULTS.npz`; see `main`.
"""

from __future__ import annotations

import os
import sys

import numpy as np

REPLICAS = 4


def main(cases: str, results: str) -> None:
    """CASES has `text_N` and `input_N`, an array with a leading axis of replicas; RESULTS gets
    `result_N_M`, the arrays of the M-th results, likewise.
    """
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={REPLICAS}"
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from jaxlib import _hlo, _jax, xla_client

    devices = jax.devices("cpu")[:REPLICAS]
    options = xla_client.CompileOptions()
    options.num_replicas = REPLICAS
    assignment = np.arange(REPLICAS).reshape(REPLICAS, 1)
    options.device_assignment = xla_client.DeviceAssignment.create(assignment)
    sharding = NamedSharding(Mesh(np.array(devices), ("replica",)), PartitionSpec("replica"))
    given, found = np.load(cases), {}
    for n in range(len(given.files) // 2):
        module = _hlo.hlo_module_from_text(str(given[f"text_{n}"])).as_serialized_hlo_module_proto()
        program = devices[0].client.compile_and_load(
            _jax.mlir.hlo_to_stablehlo(module), _jax.DeviceList(tuple(devices)), options
        )
        x = given[f"input_{n}"]
        parts = [jax.device_put(part, device) for part, device in zip(x, devices, strict=True)]
        whole = jax.make_array_from_single_device_arrays(
            (x.shape[0] * x.shape[1], *x.shape[2:]), sharding, parts
        )
        outputs = program.execute_sharded([whole]).disassemble_into_single_device_arrays()
        for m, arrays in enumerate(outputs):
            found[f"result_{n}_{m}"] = np.stack([np.asarray(a) for a in arrays])
    np.savez(results, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
