"""`python -m neuronsim`: the command `neuronsim`."""

from __future__ import annotations

import sys

from neuronsim.cli import main

sys.exit(main())
