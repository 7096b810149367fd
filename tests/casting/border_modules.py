"""Small modules on whose borders plans put converts, and the parts they are built of."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.graphs import inst, module_of, parameter

from neuronsim import dtypes, ops
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, TupleShape

F32, F16, S32 = dtypes.float32, dtypes.float16, dtypes.int32


def zero(name: str = "zero") -> Instruction:
    return inst(name, "constant", (), literal=ops.Bits(np.zeros((), np.float32), F32))


def pair(name: str, opcode: str) -> Computation:
    both = [inst(f"{name}.{n}", "parameter", (), number=k) for k, n in enumerate("ab")]
    own = f"{name}.s"
    return Computation(name, (*both, inst(own, opcode, (), *(p.name for p in both))), own)


def tuple_of(name: str, *elements: Instruction | tuple[str, Any]) -> Instruction:
    parts = [(e.name, e.shape) if isinstance(e, Instruction) else e for e in elements]
    names, shapes = zip(*parts, strict=True)
    return Instruction(name, "tuple", TupleShape(shapes), names)


def sums() -> Module:
    """Each instruction that has a type of its sums."""
    dot = ops.DotDimensions((1,), (0,))
    window = ops.WindowDimension(2)
    row = (ops.WindowDimension(1), window)
    numbers = ops.ConvolutionDimensions(0, 1, (2,), 0, 1, (2,), 0, 1, (2,))
    return module_of(
        parameter("x", (3, 4)),
        parameter("w", (4, 3), number=1),
        parameter("i", (2, 3, 5), number=2),
        parameter("k", (3, 3, 2), number=3),
        zero(),
        inst("d", "dot", (3, 3), "x", "w", dot_dimensions=dot),
        inst(
            "c", "convolution", (2, 3, 4), "i", "k", window=(window,), dimension_numbers=numbers,
            feature_group_count=1, batch_group_count=1,
        ),
        inst("r", "reduce", (3,), "x", "zero", dimensions=(1,), called=("add",)),
        inst("m", "reduce", (3,), "x", "zero", dimensions=(1,), called=("times",)),
        inst("v", "reduce-window", (3, 3), "x", "zero", window=row, called=("add",)),
        Instruction(
            "out", "tuple",
            TupleShape(tuple(Shape(F32, s) for s in ((3, 3), (2, 3, 4), (3,), (3,), (3, 3)))),
            tuple("dcrmv"),
        ),
        others=(pair("add", "add"), pair("times", "multiply")),
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
        zero(),
        inst("e", "exponential", (4,), "x"),
        inst("v", "reverse", (4,), "e", dimensions=(0,)),
        inst("d", "dot", (), "v", "e", dot_dimensions=ops.DotDimensions((0,), (0,))),
        inst("r", "reduce", (), "v", "zero", dimensions=(0,), called=("add",)),
        inst("t", "transpose", (3, 2), "m", dimensions=(1, 0)),
        inst("k", "compare", (4,), "e", "v", comparison_direction="LT", dtype=dtypes.boolean),
        inst("h", "convert", (4,), "e", dtype=F16),
        inst("s", "scatter", (4,), "x", "n", "u", scatter_dimensions=SCATTER, called=("add",)),
        others=(pair("add", "add"),),
    )


def network() -> Module:
    """A dense layer, its relu, and each row over its sum."""

    def constant(name: str, value: Any) -> Instruction:
        data = np.asarray(value, np.float32)
        return inst(name, "constant", data.shape, literal=ops.Bits(data, F32))

    rng = np.random.default_rng(8)
    pair = [inst(n, "parameter", (), number=k) for k, n in enumerate("ab")]
    total = Computation("sum", (*pair, inst("s", "add", (), "a", "b")), "s")
    return module_of(
        inst("x", "parameter", (4, 6), number=0),
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
        others=(total,),
    )
