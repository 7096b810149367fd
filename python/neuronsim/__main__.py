"""`python -m neuronsim`: the command `neuronsim`."""

from __future__ import annotations

import sys

from neuronsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
