"""The command `neuronsim`, and `python -m neuronsim`."""

from __future__ import annotations

import sys

from neuronsim.interrupts import MESSAGE, raise_at_interrupt


def main() -> int:
    """Run the command line; Ctrl-C says while its modules are imported what it says later."""
    try:
        from neuronsim.cli import main as run
    except KeyboardInterrupt:
        print(MESSAGE, file=sys.stderr)
        return 130
    raise_at_interrupt()
    return run()


if __name__ == "__main__":
    sys.exit(main())
