"""What the frontend attributes of an instruction say of how it computes, since HLO's types cannot.

XLA keeps frontend attributes, texts by key, and reads none of them. Those of neuronsim begin with
`neuronsim.`; the others change no value here either.

>>> from neuronsim.hlo.module import Shape
>>> stated = {"neuronsim.accumulate": "bfloat16", "inlineable": "false"}
>>> shape = Shape(dtypes.float32, (4, 4))
>>> i = Instruction("y", "dot", shape, ("x", "x"), {"frontend_attributes": stated})
>>> read_settings(i).accumulate
neuronsim.bfloat16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType, as_dtype
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.hlo.module import Instruction, Shape

PREFIX = "neuronsim."
REASON = PREFIX + "reason"  # a text for people: why a plan has it so


@dataclass(frozen=True)
class InstructionSettings:
    """What an instruction states: the type of its sums (R1, M6), how it rounds ("" as the profile says,
    S1), the type in which a transpose runs on the tensor engine, with finite values for ±Inf (M8), and
    why.
    """

    accumulate: DType | None = None
    rounding: Literal["", "nearest_even", "stochastic"] = ""
    relayout: DType | None = None
    saturate_infinity: bool = False
    reason: str = ""

    @property
    def of_row(self) -> dict[str, Any]:
        """The attributes that the row of the op table takes."""
        stated = {
            "accumulate": self.accumulate,
            "relayout": self.relayout,
            "saturate_infinity": self.saturate_infinity,
        }
        return {name: value for name, value in stated.items() if value}


_NOTHING = InstructionSettings()


@dataclass(frozen=True)
class _Key:
    """The instructions that may have a key, and the values that it may have (() for any text)."""

    opcodes: frozenset[str] | None
    values: tuple[str, ...]


_FLOATS = tuple(t.name for t in dtypes.DTYPES.values() if t.exponent_bits and t.device)
_KEYS = {
    "neuronsim.accumulate": _Key(
        frozenset({"dot", "convolution", "reduce", "reduce-window"}),
        tuple(t.name for t in ops.ACCUMULATE_TYPES),
    ),
    "neuronsim.rounding": _Key(ops.OPCODES, ("nearest_even", "stochastic")),
    "neuronsim.relayout": _Key(frozenset({"transpose"}), _FLOATS),
    "neuronsim.saturate_infinity": _Key(frozenset({"transpose"}), ("true",)),
    REASON: _Key(None, ()),
}


def stated_settings(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The frontend attributes among an instruction's attributes that may change a value."""
    frontend: Mapping[str, str] = attributes.get("frontend_attributes", {})
    return {k: v for k, v in sorted(frontend.items()) if k.startswith(PREFIX) and k != REASON}


def read_settings(i: Instruction) -> InstructionSettings:
    """What an instruction's frontend attributes say. Raises InvalidArgument, with all problems, for a
    key or value of neuronsim's that does not exist or that the instruction cannot have.
    """
    frontend: Mapping[str, str] = i.attributes.get("frontend_attributes", {})
    stated = {k: v for k, v in frontend.items() if k.startswith(PREFIX)}
    if not stated:
        return _NOTHING
    accepted = [k for k, known in _KEYS.items() if known.opcodes is None or i.opcode in known.opcodes]
    problems = []
    for key, value in stated.items():
        if key not in accepted:
            what = "cannot be stated of this operator" if key in _KEYS else "is unknown"
            hint = nearest(key, accepted)
            problems.append(f"frontend attribute {key} {what}{hint}: it takes {', '.join(accepted)}")
        elif _KEYS[key].values and value not in _KEYS[key].values:
            listed = _KEYS[key].values
            hint = nearest(value, listed)
            problems.append(f"{key} is one of {', '.join(listed)}, not {value[:40]!r}{hint}")
    if not problems:
        problems = _contradictions(i, stated)
    if problems:
        raise InvalidArgument("; ".join(problems))
    types = {k: as_dtype(v) for k, v in stated.items() if _KEYS[k].values and v in dtypes.DTYPES}
    rounding: Any = stated.get("neuronsim.rounding", "")
    return InstructionSettings(
        accumulate=types.get("neuronsim.accumulate"),
        rounding=rounding,
        relayout=types.get("neuronsim.relayout"),
        saturate_infinity="neuronsim.saturate_infinity" in stated,
        reason=stated.get(REASON, ""),
    )


def _contradictions(i: Instruction, stated: Mapping[str, str]) -> list[str]:
    """What legal keys and values say that cannot be together."""
    accumulate = stated.get("neuronsim.accumulate")
    if accumulate is None:
        return []
    found = []
    if not (isinstance(i.shape, Shape) and i.shape.dtype.name in _FLOATS):
        given = ", ".join(s.dtype.name for s in i.shape.arrays())
        found.append(f"neuronsim.accumulate is of sums of one float array: it gives {given} (R1, M7)")
    if accumulate != "float32" and stated.get("neuronsim.rounding") == "stochastic":
        found.append(
            f"it sums in {accumulate} under stochastic rounding: S2 has no words for its steps; round "
            "to nearest_even, or sum in float32"
        )
    own = ops.algorithm_attributes(i.attributes.get("algorithm") or "").get("accumulate")
    if own is not None and own.name != accumulate:
        found.append(
            f"neuronsim.accumulate is {accumulate}, and its algorithm {i.attributes['algorithm']} sums "
            f"in {own.name}: leave one of them out"
        )
    return found
