"""Python in a process of its own, which finds what this one finds."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(
    code: str, *arguments: object, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What the code prints, and how it ends."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
    )
