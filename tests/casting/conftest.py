"""Models that the cast tests share, built by hand from the IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.graphs import constant, module_of, reducer

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Instruction, Module, Shape, TupleShape

F32, F16, S32, PRED = dtypes.float32, dtypes.float16, dtypes.int32, dtypes.boolean


def _inst(
    name: str, opcode: str, dtype: DType, dims: tuple[int, ...], *operands: str, **attributes: Any
) -> Instruction:
    return Instruction(name, opcode, Shape(dtype, dims), operands, attributes)


@pytest.fixture(scope="session")
def model() -> Module:
    """A dense layer, its normalisation, a compare and select, and converts in every direction."""
    rng = np.random.default_rng(5)
    dot = ops.DotDimensions((1,), (0,))
    body = [
        _inst("x", "parameter", F32, (3, 5), number=0),
        _inst("n", "parameter", S32, (3,), number=1),
        constant("w", rng.normal(size=(5, 4))),
        constant("b", rng.normal(size=4)),
        constant("zero", 0.0),
        constant("eps", 1e-3),
        _inst("d", "dot", F32, (3, 4), "x", "w", dot_dimensions=dot),
        _inst("bb", "broadcast", F32, (3, 4), "b", dimensions=(1,)),
        _inst("s", "add", F32, (3, 4), "d", "bb"),
        _inst("m", "multiply", F32, (3, 4), "s", "s"),
        _inst("r", "reduce", F32, (3,), "m", "zero", dimensions=(1,), called=("sum",)),
        _inst("e", "broadcast", F32, (3,), "eps", dimensions=()),
        _inst("v", "add", F32, (3,), "r", "e"),
        _inst("q", "rsqrt", F32, (3,), "v"),
        _inst("qb", "broadcast", F32, (3, 4), "q", dimensions=(0,)),
        _inst("y", "multiply", F32, (3, 4), "s", "qb"),
        _inst("c", "compare", PRED, (3, 4), "y", "bb", comparison_direction="GT"),
        _inst("z", "select", F32, (3, 4), "c", "y", "bb"),
        _inst("nn", "add", S32, (3,), "n", "n"),
        _inst("nf", "convert", F32, (3,), "nn"),
        _inst("nb", "broadcast", F32, (3, 4), "nf", dimensions=(0,)),
        _inst("t", "add", F32, (3, 4), "z", "nb"),
        _inst("k", "convert", S32, (3, 4), "t"),
        _inst("h", "convert", F16, (3, 4), "t"),
        _inst("hh", "multiply", F16, (3, 4), "h", "h"),
    ]
    outputs = ("t", "k", "hh", "c", "r", "x")
    shapes = {i.name: i.shape for i in body}
    body.append(Instruction("out", "tuple", TupleShape(tuple(shapes[o] for o in outputs)), outputs))
    return module_of(*body, others=(reducer("sum"),))
