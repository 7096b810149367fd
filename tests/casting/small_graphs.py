"""Small HLO modules written one instruction a line, for the worked examples of other tools.

>>> m = graph("x = parameter", "w = parameter", "d = dot x w", "y = tanh d")
>>> [i.opcode for i in m.entry_computation.instructions]
['parameter', 'parameter', 'dot', 'tanh']

Arrays are f32[4,4] where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.graphs import reducer

from neuronsim import dtypes, ops
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.policy import Policy
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Metadata, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

F32 = dtypes.float32
SQUARE = Shape(F32, (4, 4))
VECTOR = Shape(F32, (4,))
SCALAR = Shape(F32)
NORMED = Shape(F32, (2, 3, 3, 4))
STATE = TupleShape((SQUARE, Shape(dtypes.int32)))  # of a loop
NO = ops.Bits(np.zeros((), np.bool_), dtypes.boolean)

# What each word of a line stands for: opcode, shape, attributes.
WORDS: Mapping[str, tuple[str, Any, Mapping[str, Any]]] = {
    "dot": ("dot", SQUARE, {"dot_dimensions": ops.DotDimensions((1,), (0,))}),
    "constant": ("constant", SQUARE, {"literal": ops.Bits(np.full((4, 4), 0.5, np.float32), F32)}),
    "zero": ("constant", SCALAR, {"literal": ops.Bits(np.zeros((), np.float32), F32)}),
    "big": ("constant", SQUARE, {"literal": ops.Bits(np.full((4, 4), 1100, np.float32), F32)}),
    "spread": ("broadcast", SQUARE, {"dimensions": ()}),
    "rows": ("broadcast", SQUARE, {"dimensions": (0,)}),
    "columns": ("broadcast", SQUARE, {"dimensions": (1,)}),
    "vector": ("parameter", VECTOR, {}),
    "sum": ("reduce", VECTOR, {"dimensions": (1,), "called": ("sum",)}),
    "softmax": (
        "custom-call",
        SQUARE,
        {"custom_call_target": "AwsNeuronSoftmax", "backend_config": b"1"},
    ),
    "transpose": ("transpose", SQUARE, {"dimensions": (1, 0)}),
    "concatenate": ("concatenate", Shape(F32, (8, 4)), {"dimensions": (0,)}),
    "arange": ("iota", SQUARE, {"dimensions": (1,)}),
    "ints": ("parameter", Shape(dtypes.int32, (4, 4)), {}),
    "preds": ("parameter", Shape(dtypes.boolean, (4, 4)), {}),
    "compare": ("compare", Shape(dtypes.boolean, (4, 4)), {"comparison_direction": "LT"}),
    "to_int": ("convert", Shape(dtypes.int32, (4, 4)), {}),
    "to_float16": ("convert", Shape(dtypes.float16, (4, 4)), {}),
    "to_float32": ("convert", SQUARE, {}),
    "image": ("parameter", NORMED, {}),
    "conv": (
        "convolution",
        NORMED,
        {
            "window": (ops.WindowDimension(1), ops.WindowDimension(1)),
            "feature_group_count": 1,
            "batch_group_count": 1,
            "dimension_numbers": ops.ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
        },
    ),
    "kernel": ("parameter", Shape(F32, (1, 1, 4, 4)), {}),
    "batch_norm": ("batch-norm-inference", NORMED, {"epsilon": 1e-3, "feature_index": 3}),
    "batch_norm_training": (
        "batch-norm-training",
        TupleShape((NORMED, VECTOR, VECTOR)),
        {"epsilon": 1e-3, "feature_index": 3},
    ),
    "batch_norm_grad": (
        "batch-norm-grad",
        TupleShape((NORMED, VECTOR, VECTOR)),
        {"epsilon": 1e-3, "feature_index": 3},
    ),
    "count": ("parameter", Shape(dtypes.int32), {}),
    "carried": ("parameter", STATE, {}),
    "carry": ("tuple", STATE, {}),
    "while": ("while", STATE, {"called": ("body", "condition")}),
    "never": ("constant", Shape(dtypes.boolean), {"literal": NO}),
}


def graph(
    *lines: str, others: Sequence[Computation] = (), shapes: Mapping[str, Shape] | None = None
) -> Module:
    """The module of these lines; the last instruction, or a line `return a b`, is the result."""
    body: list[Instruction] = []
    numbers = 0
    for line in lines:
        words = line.split()
        if words[0] == "return":
            by_name = {i.name: i.shape for i in body}
            shape = TupleShape(tuple(by_name[n] for n in words[1:]))
            body.append(Instruction("out", "tuple", shape, tuple(words[1:])))
            continue
        name, word, operands = words[0], words[2], tuple(words[3:])
        opcode, shape, attributes = WORDS.get(word, (word, _like(body, operands), {}))
        if word.startswith("element"):
            opcode, attributes = "get-tuple-element", {"tuple_index": int(word[-1])}
            whole = next(i.shape for i in body if i.name == operands[0])
            shape = whole.elements[attributes["tuple_index"]]
        if opcode == "parameter":
            attributes = {"number": numbers}
            numbers += 1
        shape = (shapes or {}).get(name, shape)
        metadata = Metadata(op_name=f"net/{name}")
        body.append(Instruction(name, opcode, shape, operands, attributes, metadata))
    called = [reducer("sum")] if any("sum" in i.called for i in body) else []
    entry = Computation("main", tuple(body), body[-1].name)
    m = Module("m", "main", (*called, *others, entry))
    verify(m)
    return m


def looped(trip: Sequence[str], *entry: str) -> Module:
    """A module with loops over a square and a number; a trip's lines make a new square of `b.x`."""
    taken = ("b.s = carried", "b.x = element0 b.s", "b.n = element1 b.s")
    body = graph(*taken, *trip, f"b.out = carry {trip[-1].split()[0]} b.n")
    parts = {"body": body, "condition": graph("c.s = carried", "c.f = never")}
    others = [replace(m.entry_computation, name=name) for name, m in parts.items()]
    return graph(*entry, others=others)


def _like(body: Sequence[Instruction], operands: Sequence[str]) -> Any:
    shapes = {i.name: i.shape for i in body}
    return shapes[operands[-1]] if operands else SQUARE


def low_names(plan: Plan) -> set[str]:
    """The instructions that give another float type than float32, or read one."""
    return {n for n, d in plan.decisions.items() if (d.operand, d.output) != (F32, F32)}


def low_under(policy: Policy, module: Module) -> set[str]:
    return low_names(make_plan(module, policy))


def types(plan: Plan, name: str) -> tuple[DType, DType, DType]:
    d = plan.decisions[name]
    return d.operand, d.accumulate, d.output
