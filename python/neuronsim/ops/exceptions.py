"""What eager operations do about IEEE 754's exceptions: what `errstate` asks for (docs/arrays.md)."""

from __future__ import annotations

import sys
from typing import NamedTuple

from neuronsim.errors import FloatingPointException, InvalidArgument, warn
from neuronsim.ops.observation import observe
from neuronsim.ops.rows import Bits, Evaluation
from neuronsim.profiles import exception_receiver


class _Exception(NamedTuple):
    """An event of `observe` as NumPy names it: the keyword of `errstate`, what `call` gets, its bit
    there, and what a message says, with the rule.
    """

    key: str
    name: str
    flag: int
    text: str


_EXCEPTIONS = {
    "division_by_zero": _Exception("divide", "divide by zero", 1, "divided by zero (E2)"),
    "overflow": _Exception("over", "overflow", 2, "overflowed to Inf (C3)"),
    "underflow": _Exception("under", "underflow", 4, "underflowed to zero (C4)"),
    "nan_origin": _Exception("invalid", "invalid value", 8, "became NaN (E6)"),
}
_SATURATED_FLOAT = _Exception("over", "overflow", 2, "saturated (C3, fp8_overflow='saturate')")
_SATURATED_INTEGER = _Exception("invalid", "invalid value", 8, "saturated, or were NaN (C6)")


def handle_exceptions(evaluation: Evaluation, result: Bits) -> None:
    """Ignore, warn of, raise, call, print or log what an operation met, as the context wants it."""
    handling = evaluation.setting.profile.handling
    assert handling is not None
    events = observe(evaluation, [result])
    if not events:
        return
    found = []
    for event, count in events.items():
        e = _EXCEPTIONS.get(event)
        if e is None:
            e = _SATURATED_FLOAT if result.dtype.kind == "float" else _SATURATED_INTEGER
        found.append((e, count))
    flags = sum({e.flag for e, _ in found})
    for e, count in found:
        size = result.data.size
        text = f"{evaluation.op.name}: {count} of {size} {result.dtype.name} elements {e.text}"
        _act(getattr(handling, e.key), e, text, flags)


def _act(mode: str, e: _Exception, text: str, flags: int) -> None:
    if mode == "warn":
        warn(text)
    elif mode == "raise":
        raise FloatingPointException(f"{text}: errstate({e.key}='raise') makes this an error")
    elif mode == "print":
        print(f"Warning: {text}", file=sys.stderr)
    elif mode in ("call", "log"):
        receiver = exception_receiver()
        if mode == "call" and callable(receiver):
            receiver(e.name, flags)
        elif mode == "log" and hasattr(receiver, "write"):
            receiver.write(f"Warning: {text}\n")
        else:
            wanted = "a function" if mode == "call" else "an object with a method `write`"
            raise InvalidArgument(
                f"{text}: errstate({e.key}={mode!r}) needs {wanted}: give it to seterrcall, or as call="
            )
