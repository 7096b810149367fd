"""Commands of neuronsim, called in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Commands:
    """`commands.ok("explain", path)`: words are given one by one, a path as it is."""

    capsys: pytest.CaptureFixture[str]
    main: Callable[[list[str]], int | None]  # neuronsim.cli's

    def run(self, *words: object) -> tuple[int, str, str]:
        """The status, what was printed, and what was said on the standard error."""
        self.capsys.readouterr()
        try:
            status = int(self.main([str(word) for word in words]) or 0)
        except SystemExit as end:
            status = int(end.code or 0)
        return (status, *self.capsys.readouterr())

    def ok(self, *words: object) -> str:
        """What a command prints, which succeeds."""
        status, out, err = self.run(*words)
        assert status == 0, err
        return out

    def refused(self, *words: object) -> str:
        """What a command says that must fail: one paragraph, status 2, within a second."""
        start = time.process_time()
        status, out, err = self.run(*words)
        assert time.process_time() - start < 1.0
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("neuronsim: ")
        return err
