"""The command `neuronsim`, and `python -m neuronsim`."""

from __future__ import annotations

import sys

from neuronsim.cli import main as run
from neuronsim.interrupts import raise_at_interrupt


def main() -> int:
    """Run the command line, whose modules are imported now: Ctrl-C is its own from here."""
    raise_at_interrupt()
    return run()


if __name__ == "__main__":
    sys.exit(main())
