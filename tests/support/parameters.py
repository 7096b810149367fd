"""Parameters of a family of tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def some(values: Iterable[Any], ordinary: int | Container[Any]) -> list[Any]:
    """All values: the ordinary run takes the first ones, or these, -m exhaustive the others."""
    return [
        v
        if (n < ordinary if isinstance(ordinary, int) else v in ordinary)
        else pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.exhaustive)
        for n, v in enumerate(values)
    ]


def each_of(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Callable[[Any], Any] | Iterable[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Arguments as pytest.mark.parametrize has them, and one test that goes through all rows and says
    which ones fail: for tables whose rows take less time than pytest for a test.
    """
    keys = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = [v if len(keys) > 1 else (v,) for v in values]
    assert rows
    assert not any(isinstance(v, ParameterSet) for row in rows for v in (row, *row)), "plain rows"

    if ids is None or callable(ids):
        labels = ["-".join(_label(value, ids) for value in row) for row in rows]
    else:
        labels = list(ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        given = [p for name, p in signature.parameters.items() if name not in keys]

        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            __tracebackhide__ = True
            cases = [
                (label, functools.partial(test, **dict(zip(keys, row, strict=True)), **fixtures))
                for label, row in zip(labels, rows, strict=True)
            ]
            run_all(cases)

        of_all.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return of_all

    return decorate


ends_at_first = False  # what fails: pytest's -x


def run_all(cases: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs each case; the first error of those that fail says how many do, and which."""
    __tracebackhide__ = True
    failed: dict[str, BaseException] = {}
    skipped: list[pytest.skip.Exception] = []
    for label, case in cases:
        try:
            case()
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except (Exception, pytest.fail.Exception) as error:
            failed[label] = error
            if ends_at_first:
                break
    if failed:
        first = next(iter(failed.values()))
        first.add_note(f"{len(failed)} of {len(cases)} cases fail: {', '.join(failed)}")
        raise first
    if skipped and len(skipped) == len(cases):
        raise skipped[0]


def _label(value: Any, ids: Callable[[Any], Any] | None) -> str:
    label = ids(value) if ids else getattr(value, "__name__", None)
    return str(value if label is None else label)
