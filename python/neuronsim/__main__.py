"""The command `neuronsim`, and `python -m neuronsim`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line, whose modules take half a second to import: Ctrl-C says then what it says
    later.
    """
    try:
        from neuronsim.cli import main as run
    except KeyboardInterrupt:
        print("neuronsim: interrupted; nothing was written", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
