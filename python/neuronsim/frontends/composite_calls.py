"""Rows that HLO has no opcode for as composite calls: the row's name and attributes, by which neuronsim
runs the row, and its formula as a body, which every other compiler of HLO runs.

>>> to_text({"axis": 1, "epsilon": 1e-05, "terms": ["weight"], "keep": True})
'{axis = 1 : i64, epsilon = 1e-05 : f64, keep = true, terms = ["weight"]}'
>>> from_text('{axis = [1, 2], epsilon = 1.0e-05 : f64}')
{'axis': [1, 2], 'epsilon': 1e-05}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from neuronsim import arrays as np
from neuronsim import composites, dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.errors import NeuronSimError
from neuronsim.frontends.primitives import where
from neuronsim.frontends.recorder import Recorder, recording
from neuronsim.frontends.rows import spelled_out
from neuronsim.frontends.tracer import traced_bits, value_of
from neuronsim.hlo.module import Computation, Instruction, Module, Shape, make_module
from neuronsim.hlo.opcodes import row_attributes

_NAME, _ATTRIBUTES, _VERSION = "composite.name", "composite.attributes", "composite.version"


def _far(x: Array) -> Array:
    """log(1 + e^-abs(x)), which is 0 far from 0."""
    return np.log1p(np.exp(-np.abs(x)))


def _normal(x: Array) -> Array:
    return (np.erf(x * math.sqrt(0.5)) + 1) * 0.5


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + _far(x)


def _logaddexp2(x: Array, y: Array) -> Array:
    nearer = _far((x - y) * math.log(2)) * (1 / math.log(2))
    return where(x == y, x + 1, np.maximum(x, y) + nearer)


# Of one element, in float32 (R7), or float64 on the host.
FORMULAS: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: np.exp(x * math.log(2)),
    "log2": lambda x: np.log(x) * (1 / math.log(2)),
    "log10": lambda x: np.log(x) * (1 / math.log(10)),
    "atan": lambda x: np.atan2(x, np.ones_like(x)),
    "hypot": lambda x, y: np.sqrt(x * x + y * y),
    "logaddexp": lambda x, y: where(x == y, x + math.log(2), np.maximum(x, y) + _far(x - y)),
    "logaddexp2": _logaddexp2,
    "erfc": lambda x: 1 - np.erf(x),
    "gelu_sigmoid": lambda x: x * np.sigmoid(x * 1.702),
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "erf_dx": lambda x: np.exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "silu_dx": lambda x: np.sigmoid(x) * (x * (1 - np.sigmoid(x)) + 1),
    "gelu_dx": lambda x: _normal(x) + x * np.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)),
    "gelu_sigmoid_dx": lambda x: np.sigmoid(x * 1.702) * (x * 1.702 * (1 - np.sigmoid(x * 1.702)) + 1),
    "isnan": lambda x: x != x,
    "isinf": lambda x: np.abs(x) == math.inf,
}


def with_composite_calls(module: Module) -> Module:
    """The module with its calls of rows by neuronsim's own names as composite calls, where a formula
    is their body; for files that others read.
    """
    made = Recorder("composites")
    made.shared.computations.update(module.by_name)
    made.shared.names.update(i.name for i in module.instructions)
    changed = {c.name: _with_calls(module, c, made) for c in module.computations}
    if all(changed[c.name] is c for c in module.computations):
        return module
    whole = {**made.shared.computations, **changed}
    return make_module(
        *(module.name, module.entry, whole.values()),
        parameter_names=module.parameter_names,
        input_output_alias=module.input_output_alias,
        entry_layout=module.entry_layout,
    )


def _with_calls(module: Module, c: Computation, made: Recorder) -> Computation:
    found = [_with_call(module, c, i, made) for i in c.instructions]
    alike = all(a is b for a, b in zip(found, c.instructions, strict=True))
    return c if alike else replace(c, instructions=tuple(found))


def _with_call(module: Module, c: Computation, i: Instruction, made: Recorder) -> Instruction:
    target = str(i.attributes.get("custom_call_target", ""))
    name = target.removeprefix(ops.OWN_PREFIX)
    known = name in FORMULAS or name in composites.FORMULAS
    if name == target or not known or not isinstance(i.shape, Shape):
        return i
    operands = [c.by_name[o].array.type for o in i.operands]
    body = _body(name, operands, i.shape.type, row_attributes(module, i), made)
    config = json.loads(i.attributes.get("backend_config") or b"{}")
    own = {_NAME: target, _ATTRIBUTES: to_text(config), _VERSION: "1"}
    frontend = {**i.attributes.get("frontend_attributes", {}), **own}
    attributes = {
        "called": (body,),
        "is_composite": True,
        "frontend_attributes": dict(sorted(frontend.items())),
    }
    return i.replace(opcode="call", attributes=attributes)


def _body(
    name: str,
    operands: list[ops.ArrayType],
    result: ops.ArrayType,
    attributes: Mapping[str, Any],
    made: Recorder,
) -> str:
    """Adds the computation of a row's formula, and gives its name."""
    inner = Recorder(f"{ops.OWN_PREFIX}{name}")
    inner.shared = made.shared
    with recording(inner):
        values = [inner.parameter("x", t) for t in operands]
        if name in composites.FORMULAS:
            found = spelled_out(ops.by_name(name), values, attributes)
        else:
            wide = dtypes.float64 if operands[0].dtype is dtypes.float64 else dtypes.float32
            arrays = [Array(traced_bits(v)).astype(wide) for v in values]
            found = value_of(np.astype(FORMULAS[name](*arrays), result.dtype).bits)
    return inner.keep(inner.computation(found))


def with_rows(module: Module) -> Module:
    """The module with the rows in the place of composite calls that name them, whoever wrote these."""
    found = [
        replace(c, instructions=tuple(_with_row(c, i) for i in c.instructions))
        for c in module.computations
        if any(i.attributes.get("is_composite") for i in c.instructions)
    ]
    changed = {c.name: c for c in found}
    if all(changed[n] == module.by_name[n] for n in changed):
        return module
    return replace(module, computations=tuple(changed.get(c.name, c) for c in module.computations))


def _with_row(c: Computation, i: Instruction) -> Instruction:
    frontend = i.attributes.get("frontend_attributes", {})
    name = str(frontend.get(_NAME, ""))
    if not i.attributes.get("is_composite") or not name.startswith(ops.OWN_PREFIX):
        return i
    try:
        row = ops.by_name(name.removeprefix(ops.OWN_PREFIX))
        config = from_text(frontend.get(_ATTRIBUTES, "{}"))
        own = ops.own_configuration(config) if config else b""
        attributes = ops.custom_call_attributes(name, own, i.result)
        fits = row.infer([c.by_name[o].array.type for o in i.operands], attributes) == i.result
    except (NeuronSimError, KeyError, TypeError, ValueError):
        return i  # another's of the name: its body runs
    if row.opcode or not fits:
        return i
    rest = {k: v for k, v in frontend.items() if k not in (_NAME, _ATTRIBUTES, _VERSION)}
    called = {"custom_call_target": name, "backend_config": own}
    return i.replace(
        opcode="custom-call", attributes=called | ({"frontend_attributes": rest} if rest else {})
    )


# ---- attributes in MLIR's words ----------------------------------------------------------------------


def to_text(attributes: Mapping[str, Any]) -> str:
    """Attributes as a dictionary of MLIR."""

    def shown(x: Any) -> str:
        if isinstance(x, list | tuple):
            return f"[{', '.join(map(shown, x))}]"
        if isinstance(x, bool | str):
            return json.dumps(x)
        return f"{x!r} : {'i64' if isinstance(x, int) else 'f64'}"

    return "{" + ", ".join(f"{k} = {shown(v)}" for k, v in sorted(attributes.items())) + "}"


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\s*:\s*[if]\d+|(\w+)\s*=')


def from_text(text: str) -> dict[str, Any]:
    """What a dictionary of MLIR says of numbers, texts and lists. Raises ValueError for others."""

    def as_json(match: re.Match[str]) -> str:
        if match[1]:
            return f'"{match[1]}":'
        return match[0] if match[0].startswith('"') else ""

    found = json.loads(_TOKEN.sub(as_json, text))
    if not isinstance(found, dict):
        raise ValueError("no dictionary")
    return found
