"""Which rows of ONNX's operators no case runs."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from tests.frontends.onnx_cases import Case

from neuronsim.frontends.onnx.table import OPERATORS, lookup


def uncovered(module: ModuleType, cases: Iterable[Case]) -> list[str]:
    """The rows of a module of operators that are not among those of the cases."""
    covered = [lookup(c.domain, c.op_type, c.version) for c in cases]
    return [
        f"{row.op_type}-{row.since}"
        for rows in OPERATORS.values()
        for row in rows
        if row.function.__module__ == module.__name__ and not any(row is c for c in covered)
    ]
