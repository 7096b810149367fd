"""Ctrl-C while the modules of a command are imported, which takes a second, ends it as it does later.
Imported by the command, this module sees to it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

MESSAGE = "neuronsim: interrupted; nothing was written"


def _end_at_interrupt() -> None:
    line = sys.orig_argv[1:3]
    is_command = line == ["-m", "neuronsim"] or [os.path.basename(w) for w in line[:1]] == ["neuronsim"]
    if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Has Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    # No exception, which an extension that is half imported makes another of.
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(130)


_end_at_interrupt()
