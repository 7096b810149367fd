"""Modules of one instruction, run by its row of the op table and by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import inst, parameter, unverified

from neuronsim import Array, api, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo import proto
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from neuronsim.hlo.opcodes import row, row_attributes
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile

BOOL = dtypes.boolean


def shape_of(result: ops.Result) -> AnyShape:
    if isinstance(result, ops.ArrayType):
        return Shape(*result)
    return TupleShape(tuple(Shape(*t) for t in result))


def computation(
    name: str,
    parameters: Sequence[DType],
    steps: Sequence[tuple[str, DType, Sequence[int], dict[str, Any]]],
    results: Sequence[int],
) -> Computation:
    """A computation of scalars. Values are numbered: the parameters, then the steps (opcode, type,
    operands, attributes); several results are a tuple.
    """
    body = [
        Instruction(f"{name}.{n}", "parameter", Shape(t), (), {"number": n})
        for n, t in enumerate(parameters)
    ]
    for opcode, t, operands, attributes in steps:
        names = tuple(f"{name}.{n}" for n in operands)
        body.append(Instruction(f"{name}.{len(body)}", opcode, Shape(t), names, attributes))
    root = f"{name}.{results[0]}"
    if len(results) > 1:
        root = f"{name}.{len(body)}"
        shape = TupleShape(tuple(body[n].shape for n in results))
        body.append(Instruction(root, "tuple", shape, tuple(f"{name}.{n}" for n in results)))
    return Computation(name, tuple(body), root)


def binary(name: str, opcode: str, t: DType, swapped: bool = False) -> Computation:
    return computation(name, [t, t], [(opcode, t, (1, 0) if swapped else (0, 1), {})], [2])


def comparison(name: str, direction: str, t: DType, kind: str = "") -> Computation:
    attributes = {"comparison_direction": direction, "comparison_type": kind}
    return computation(name, [t, t], [("compare", BOOL, (0, 1), attributes)], [2])


def assignment(name: str, t: DType) -> Computation:
    return computation(name, [t, t], [], [1])


def module_of(
    opcode: str,
    operands: Sequence[ops.ArrayType],
    attributes: dict[str, Any],
    computations: Sequence[Computation] = (),
    result: ops.Result | None = None,
) -> Module:
    """A program of the instruction alone; its shape is inferred where it is not given."""
    parameters = [
        Instruction(f"p{n}", "parameter", Shape(*t), (), {"number": n}) for n, t in enumerate(operands)
    ]
    if computations:
        attributes = {**attributes, "called": tuple(c.name for c in computations)}
    names = tuple(p.name for p in parameters)
    shape = TupleShape(()) if result is None else shape_of(result)
    alone = Instruction("root", opcode, shape, names, attributes)
    entry = Computation("main", (*parameters, alone), "root")
    module = Module("single", "main", (*computations, entry))
    if result is not None:
        return module
    inferred = row(alone).infer(operands, row_attributes(module, alone))
    entry = Computation("main", (*parameters, alone.replace(shape=shape_of(inferred))), "root")
    return module.replace_entry(entry)


def of_arrays(name: str, opcode: str, shape: AnyShape, *operands: Array, **attributes: Any) -> Module:
    """A program of the instruction alone, on parameters of the arrays' types."""
    given = [parameter(f"p{n}", x.shape, n, x.dtype) for n, x in enumerate(operands)]
    return unverified(*given, inst(name, opcode, shape, *(p.name for p in given), **attributes))


def run_on_host(module: Module, *operands: Any, **fields: str) -> Any:
    """What a program gives where nothing is cast, under a profile of these fields."""
    profile = Profile(**fields)
    return api.compile(module, auto_cast="none", target="host", profile=profile)(*operands)


def ours(
    module: Module,
    inputs: Sequence[ops.Bits],
    profile: Profile = Profile(),  # noqa: B008 (frozen)
) -> tuple[np.ndarray, ...]:
    """The results' words by the row, after the verifier's consent."""
    verify(module)
    root = module.root
    found = ops.evaluate(
        row(root), inputs, row_attributes(module, root), ops.Setting(profile), root.result
    )
    assert [x.type for x in found] == [s.type for s in root.shape.arrays()]
    return tuple(words(x.data) for x in found)


def words(data: np.ndarray) -> np.ndarray:
    """The storage bits as unsigned integers; complex numbers as two."""
    dense = np.array(data, order="C")
    if dense.dtype.kind == "c":
        dense = dense[..., np.newaxis].view(f"f{dense.itemsize // 2}")
    return dense.view(f"u{dense.itemsize}")


def theirs(module: Module, inputs: Sequence[ops.Bits]) -> tuple[np.ndarray, ...]:
    """The results' words by XLA on the CPU."""
    jax = pytest.importorskip("jax", reason="the peer XLA is not installed (extra `peers`)")
    client = pytest.importorskip("jaxlib.xla_client")
    core = pytest.importorskip("jaxlib._jax")
    device = jax.devices("cpu")[0]
    stable = core.mlir.hlo_to_stablehlo(proto.to_bytes(module))
    run = device.client.compile_and_load(stable, core.DeviceList((device,)), client.CompileOptions())
    with jax.enable_x64(True):
        arrays = [jax.device_put(np.asarray(x.data).view(x.dtype.numpy), device) for x in inputs]
        found = run.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return tuple(words(np.asarray(shards[0])) for shards in found)
