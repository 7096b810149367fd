"""XLA reads what neuronsim writes, as a file and as text, and computes the same from it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.hlo.xla import through_file, through_text
from tests.support.graphs import constant, inst, module_of, parameter, reducer
from tests.support.places import DIGITS

from neuronsim import api, dtypes, ops
from neuronsim.dtypes import DTYPES, DType
from neuronsim.hlo import proto, text
from neuronsim.hlo.module import Instruction, Metadata, Module, Shape

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

xla = pytest.importorskip("jaxlib._hlo", reason="the peer XLA is not installed (extra `peers`)")

HLO_TYPES = [t for t in DTYPES.values() if t is not dtypes.tfloat32]
F32 = dtypes.float32


def instructions(module: Module) -> list[tuple[Any, ...]]:
    """What the entry computes; XLA may list parameters in another order."""
    return sorted(
        (i.name, i.opcode, i.shape, i.operands, sorted(map(str, i.attributes.items())))
        for i in module.entry_computation.instructions
        if i.opcode != "constant"
    )


def literals(module: Module) -> dict[str, bytes]:
    return {
        i.name: i.attributes["literal"].data.tobytes()
        for i in module.entry_computation.instructions
        if i.opcode == "constant"
    }


def interesting(dtype: DType) -> np.ndarray:
    """Finite values of every kind, both zeros and the infinities; NaN payloads have no text."""
    if dtype is dtypes.boolean:
        return np.array([True, False])
    if dtype.kind == "complex":
        return np.array([1 - 2j, complex(-0.0, 0.5), complex(np.inf, -1)], dtype.numpy)
    if dtype.kind != "float":
        info = np.iinfo(dtype.numpy)
        return np.array([info.min, 0, 1, info.max], dtype.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.bits <= 16:
            values = np.arange(2**dtype.bits).astype(dtype.storage).view(dtype.numpy)
        else:
            spread = np.random.default_rng(1).standard_normal(200) * 10.0 ** np.arange(-100, 100)
            special = [0.0, -0.0, np.inf, -np.inf, 1e-40, 0.1]
            values = np.append(spread, special).astype(dtype.numpy)
        return values[~np.isnan(values.astype(np.float64))]


@pytest.mark.parametrize("dtype", HLO_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("through", [through_file, through_text])
def test_constants_of_every_type_reach_xla_as_file_and_text(dtype: DType, through: Any) -> None:
    module = module_of(constant("c", interesting(dtype), dtype))
    assert literals(through(module)) == literals(module)


def test_nan_and_empty_constants_reach_xla_as_text() -> None:
    values = np.array([[np.nan, 1.0]], np.float32)
    read = through_text(module_of(constant("c", values, F32)))
    assert np.isnan(read.root.attributes["literal"].data).tolist() == [[True, False]]
    empty = through_text(module_of(constant("c", np.zeros((2, 0), np.float32), F32)))
    assert empty.root.array.dims == (2, 0)


SQUARE = Shape(F32, (4, 4))
ORDER = {"comparison_direction": "LT", "comparison_type": "FLOAT"}
PRODUCT, OF_COLUMNS = ops.DotDimensions((1,), (0,)), ops.DotDimensions((0,), (0,), (1,), (1,))
ONE_OF_EACH = [
    *(inst("y", op, SQUARE, "x") for op in ("negate", "exponential", "rsqrt", "copy")),
    *(inst("y", op, SQUARE, "x", "x") for op in ("add", "divide", "maximum")),
    inst("y", "convert", (4, 4), "x", dtype=dtypes.bfloat16),
    inst("y", "reduce-precision", SQUARE, "x", exponent_bits=8, mantissa_bits=10),
    inst("y", "broadcast", (4, 2, 4), "x", dimensions=(0, 2)),
    inst("y", "reshape", (2, 8), "x"),
    inst("y", "transpose", SQUARE, "x", dimensions=(1, 0)),
    inst("y", "reverse", SQUARE, "x", dimensions=(0, 1)),
    inst("y", "slice", (2, 3), "x", slice=((0, 4, 2), (1, 4, 1))),
    inst("y", "concatenate", (4, 8), "x", "x", dimensions=(1,)),
    inst("y", "iota", (2, 3), dtype=dtypes.int32, dimensions=(1,)),
    inst("y", "compare", (4, 4), "x", "x", dtype=dtypes.boolean, **ORDER),
    inst("y", "dot", SQUARE, "x", "x", dot_dimensions=PRODUCT, algorithm=""),
    inst("y", "dot", (4,), "x", "x", dot_dimensions=OF_COLUMNS, algorithm=""),
]


@pytest.mark.parametrize("instruction", ONE_OF_EACH, ids=lambda i: i.opcode)
@pytest.mark.parametrize("through", [through_file, through_text])
def test_xla_reads_every_opcode_with_its_attributes(instruction: Instruction, through: Any) -> None:
    module = module_of(parameter("x", (4, 4)), instruction)
    assert instructions(through(module)) == instructions(module)


@pytest.mark.parametrize("through", [through_file, through_text])
def test_xla_reads_reduce_and_call(through: Any) -> None:
    module = module_of(
        parameter("x", (4, 4)),
        constant("c", 0.0),
        inst("r", "reduce", (4,), "x", "c", dimensions=(1,), called=("total",)),
        inst("y", "call", (), "c", "c", called=("total",), is_composite=False),
        others=(reducer("total"),),
    )
    assert instructions(through(module)) == instructions(module)


def test_xla_reads_quotes_in_metadata() -> None:
    name = 'f["a\\b"]'
    quoted = Instruction("y", "negate", SQUARE, ("x",), {}, Metadata(op_name=name))
    assert through_text(module_of(parameter("x", (4, 4)), quoted)).root.metadata.op_name == name


def test_text_of_the_example_gives_the_same_graph_and_weights() -> None:
    module = proto.read(DIGITS / "model.hlo.pb")
    read = through_text(module)
    assert instructions(read) == instructions(module)
    assert literals(read) == literals(module)


# ---- planned modules -----------------------------------------------------------------------------


def test_text_has_no_name_that_xla_cannot_read() -> None:
    program = api.compile(DIGITS / "model.hlo.pb", auto_cast="all", auto_cast_type="bf16")
    names = re.findall(r"%([^\s,()]+)", text.to_text(program.module, print_large_constants=False))
    assert all(re.fullmatch(r"[A-Za-z_][\w.\-]*", n) for n in names)
