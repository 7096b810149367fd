"""A hash of a module, by which plans and calibrations know the one that they were made for.

>>> from neuronsim import dtypes
>>> from neuronsim.hlo.module import Computation, Instruction, Module, Shape
>>> x = Instruction("x", "parameter", Shape(dtypes.float32, (2,)), (), {"number": 0})
>>> len(fingerprint(Module("m", "main", (Computation("main", (x,), "x"),))))
16
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from neuronsim.hlo.array_sources import literals
from neuronsim.hlo.instruction_settings import stated_settings
from neuronsim.hlo.module import Instruction, Module
from neuronsim.hlo.opcodes import NOTED


def fingerprint(module: Module) -> str:
    """A hash of the module's instructions, their types and attributes and the constants' bits; not of
    layouts and metadata, which change no value. It is computed once for each module.
    """
    known: str | None = vars(module).get("_fingerprint")
    if known is None:
        known = vars(module)["_fingerprint"] = _hash(module)
    return known


def _hash(module: Module) -> str:
    digest = hashlib.sha256(repr((module.name, module.entry)).encode())
    for c in module.computations:
        digest.update(repr((c.name, c.root)).encode())
        for i in c.instructions:
            attributes = _stated(i) if i.attributes.get("literal") is None else []
            types = [(s.dtype.name, s.dims) for s in i.shape.arrays()]
            digest.update(repr((i.name, i.opcode, types, i.operands, attributes)).encode())
            for bits in literals(i.attributes.get("literal", ())):
                digest.update(np.ascontiguousarray(bits.data).data)
    return digest.hexdigest()[:16]


# What an attribute says that a file need not say.
_USUAL = {
    "feature_group_count": (1,),
    "batch_group_count": (1,),
    "comparison_type": ("FLOAT", "SIGNED", "UNSIGNED"),
}


def _stated(i: Instruction) -> list[tuple[str, Any]]:
    """The attributes as every file keeps them: without those that are as usual or change no value, and
    with fractions as float32.
    """
    own = {**i.attributes, "frontend_attributes": stated_settings(i.attributes)}
    return sorted(
        (name, float(np.float32(value)) if isinstance(value, float) else value)
        for name, value in own.items()
        if value and value not in _USUAL.get(name, ()) and (i.opcode, name) not in NOTED
    )
