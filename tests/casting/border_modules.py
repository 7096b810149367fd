"""Small modules on whose borders plans put converts, and the parts they are built of."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.graphs import computation, constant, inst, module_of, parameter, reducer

from neuronsim import dtypes, ops
from neuronsim.hlo.module import Instruction, Module, TupleShape

F16, S32 = dtypes.float16, dtypes.int32


def tuple_of(name: str, *elements: Instruction | tuple[str, Any]) -> Instruction:
    """Of instructions, or of names and their shapes."""
    parts = [e if isinstance(e, tuple) else (e.name, e.shape) for e in elements]
    shapes = tuple(inst("", "", s).shape for _, s in parts)
    return inst(name, "tuple", TupleShape(shapes), *(n for n, _ in parts))


def sums() -> Module:
    """Each instruction that has a type of its sums."""
    dot = ops.DotDimensions((1,), (0,))
    window = ops.WindowDimension(2)
    row = (ops.WindowDimension(1), window)
    numbers = ops.ConvolutionDimensions(0, 1, (2,), 0, 1, (2,), 0, 1, (2,))
    # Names of its own: XLA wants each name once in a module.
    pq = (parameter("p", ()), parameter("q", (), 1), inst("pq", "multiply", (), "p", "q"))
    return module_of(
        parameter("x", (3, 4)),
        parameter("w", (4, 3), number=1),
        parameter("i", (2, 3, 5), number=2),
        parameter("k", (3, 3, 2), number=3),
        constant("zero", 0.0),
        inst("d", "dot", (3, 3), "x", "w", dot_dimensions=dot),
        inst(
            "c", "convolution", (2, 3, 4), "i", "k", window=(window,), dimension_numbers=numbers,
            feature_group_count=1, batch_group_count=1,
        ),
        inst("r", "reduce", (3,), "x", "zero", dimensions=(1,), called=("add",)),
        inst("m", "reduce", (3,), "x", "zero", dimensions=(1,), called=("times",)),
        inst("v", "reduce-window", (3, 3), "x", "zero", window=row, called=("add",)),
        tuple_of("out", *zip("dcrmv", ((3, 3), (2, 3, 4), (3,), (3,), (3, 3)), strict=True)),
        others=(reducer("add"), computation("times", *pq)),
    )  # fmt: skip


SCATTER = ops.ScatterDimensions(
    inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
)


def borders() -> Module:
    return module_of(
        parameter("x", (4,)),
        parameter("m", (2, 3), number=1),
        parameter("n", (1,), number=2, dtype=S32),
        parameter("u", (1,), number=3),
        constant("zero", 0.0),
        inst("e", "exponential", (4,), "x"),
        inst("v", "reverse", (4,), "e", dimensions=(0,)),
        inst("d", "dot", (), "v", "e", dot_dimensions=ops.DotDimensions((0,), (0,))),
        inst("r", "reduce", (), "v", "zero", dimensions=(0,), called=("add",)),
        inst("t", "transpose", (3, 2), "m", dimensions=(1, 0)),
        inst("k", "compare", (4,), "e", "v", comparison_direction="LT", dtype=dtypes.boolean),
        inst("h", "convert", (4,), "e", dtype=F16),
        inst("s", "scatter", (4,), "x", "n", "u", scatter_dimensions=SCATTER, called=("add",)),
        others=(reducer("add"),),
    )


def network() -> Module:
    """A dense layer, its relu, and each row over its sum."""
    rng = np.random.default_rng(8)
    return module_of(
        parameter("x", (4, 6)),
        constant("w", rng.normal(size=(6, 5))),
        constant("bias", rng.normal(size=5)),
        constant("zero", 0.0),
        inst("d", "dot", (4, 5), "x", "w", dot_dimensions=ops.DotDimensions((1,), (0,))),
        inst("bb", "broadcast", (4, 5), "bias", dimensions=(1,)),
        inst("h", "add", (4, 5), "d", "bb"),
        inst("z", "broadcast", (4, 5), "zero", dimensions=()),
        inst("r", "maximum", (4, 5), "h", "z"),
        inst("t", "reduce", (4,), "r", "zero", dimensions=(1,), called=("sum",)),
        inst("tb", "broadcast", (4, 5), "t", dimensions=(0,)),
        inst("y", "divide", (4, 5), "r", "tb"),
        others=(reducer("sum"),),
    )
