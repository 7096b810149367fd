"""Instructions run alone by XLA (jaxlib) on the operands that they had here.

Many are compiled at once: a module of instructions with parameters of their own, which no value joins.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jaxlib import _jax, xla_client
from tests.support.interpreter import Applied, as_numpy

from neuronsim import ops
from neuronsim.hlo import proto
from neuronsim.hlo.module import TOKEN, AnyShape, Computation, Instruction, Module, Shape, TupleShape

BATCH = 150
OPTIONS = {"xla_allow_excess_precision": False, "xla_backend_optimization_level": 0}


def joined(applied: Sequence[Applied]) -> Module:
    """A module of these instructions, each on parameters of its own."""
    computations: dict[str, Computation] = {}
    parameters: list[Instruction] = []
    body: list[Instruction] = []
    for n, a in enumerate(applied):
        names = []
        for x in a.operands:
            shape = Shape(x.dtype, x.data.shape)
            number = len(parameters)
            names.append(f"x{number}")
            parameters.append(Instruction(names[-1], "parameter", shape, (), {"number": number}))
        attributes = dict(a.instruction.attributes)
        if a.instruction.called:
            called = tuple(f"m{n}.{c}" for c in a.instruction.called)
            attributes["called"] = called
            for c in a.instruction.called:
                _include(a.module, c, f"m{n}.", computations)
        body.append(
            Instruction(f"y{n}", a.instruction.opcode, a.instruction.shape, tuple(names), attributes)
        )
    root = Instruction(
        "all", "tuple", TupleShape(tuple(i.shape for i in body)), tuple(i.name for i in body)
    )
    entry = Computation("main", (*parameters, *body, root), "all")
    return Module("alone", "main", (*computations.values(), entry))


def _include(module: Module, name: str, prefix: str, found: dict[str, Computation]) -> None:
    """Adds a computation and those that it calls, with a prefix before every name."""
    if prefix + name in found:
        return
    computation = module.by_name[name]
    instructions = []
    for i in computation.instructions:
        attributes = dict(i.attributes)
        if i.called:
            for c in i.called:
                _include(module, c, prefix, found)
            attributes["called"] = tuple(prefix + c for c in i.called)
        operands = tuple(prefix + o for o in i.operands)
        instructions.append(i.replace(name=prefix + i.name, operands=operands, attributes=attributes))
    found[prefix + name] = Computation(prefix + name, tuple(instructions), prefix + computation.root)


def execute(module: Module, inputs: Sequence[ops.Bits]) -> list[np.ndarray]:
    """The arrays of the root, in order."""
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(OPTIONS.items())
    device = jax.devices("cpu")[0]
    stable = _jax.mlir.hlo_to_stablehlo(proto.to_bytes(module))
    devices = _jax.DeviceList((device,))
    program = device.client.compile_and_load(stable, devices, options)
    with jax.enable_x64(True):
        arrays = [jax.device_put(as_numpy(x), device) for x in inputs]
        shards = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
        pairs = zip(shards, _flat(module.root.shape), strict=True)
        return [np.asarray(s[0]) for s, shape in pairs if shape != TOKEN]


def _flat(shape: AnyShape) -> list[AnyShape]:
    """The arrays and tokens inside a shape."""
    if isinstance(shape, Shape) or shape == TOKEN:
        return [shape]
    return [s for e in shape.elements for s in _flat(e)]


def alone(applied: Sequence[Applied]) -> list[tuple[np.ndarray, ...]]:
    """XLA's results of each instruction on its own operands."""
    found: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(applied), BATCH):
        batch = applied[start : start + BATCH]
        arrays = iter(execute(joined(batch), [x for a in batch for x in a.operands]))
        found += [tuple(next(arrays) for _ in a.results) for a in batch]
    return found
