"""Ctrl-C while the modules of a command are imported, which takes a second, ends it as it does later.
Imported by the command, this module sees to it.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
from typing import NoReturn


def _is_command() -> bool:
    """Whether this process is `python -m neuronsim` or the installed script, not a user's program."""
    program = sys.argv[0]
    if program == "-m":  # what Python writes there until it has found the module
        word = sys.orig_argv[-len(sys.argv)]  # neuronsim, or -mneuronsim
        return (word.partition("m")[2] if word.startswith("-") else word) == "neuronsim"
    if os.path.basename(program) != "neuronsim":
        return False
    schemes = [sysconfig.get_preferred_scheme("prefix"), sysconfig.get_preferred_scheme("user")]
    folders = [os.path.realpath(sysconfig.get_path("scripts", s)) for s in schemes]
    return os.path.dirname(os.path.realpath(program)) in folders


def _end_at_interrupt() -> None:
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Has Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    # No exception, which an extension that is half imported makes another of.
    os.write(2, b"neuronsim: interrupted; nothing was written\n")
    os._exit(130)


_end_at_interrupt()
