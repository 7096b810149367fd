"""Each program of this folder three times: with NumPy, in float32 and in bfloat16 of the device.

The source is the same but for its import line. Run `python examples/arrays/compare.py [program ...]`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import numpy
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import neuronsim

HERE = Path(__file__).parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.py") if p.name != Path(__file__).name)
IMPORT = "import neuronsim as np\n"


def run(name: str, numpy_instead: bool = False, **arguments: Any) -> dict[str, numpy.ndarray]:
    """What a program's main gives, as float64; with NumPy by replacing its import line."""
    source = (HERE / f"{name}.py").read_text()
    if source.count(IMPORT) != 1:
        raise ValueError(f"{name}.py has not exactly one line {IMPORT!r}")
    if numpy_instead:
        source = source.replace(IMPORT, "import numpy as np\n")
    program: dict[str, Any] = {"__name__": name, "__file__": str(HERE / f"{name}.py")}
    exec(compile(source, f"{name}.py", "exec"), program)
    with contextlib.redirect_stdout(io.StringIO()):
        results = program["main"](**arguments)
    return {key: numpy.asarray(numpy.asarray(v).tolist(), float) for key, v in results.items()}


def in_bfloat16(name: str, **arguments: Any) -> dict[str, numpy.ndarray]:
    """What a program gives when its numbers are bfloat16 unless it says otherwise."""
    before = neuronsim.default_dtype()
    neuronsim.set_default_dtype("bfloat16")
    try:
        return run(name, **arguments)
    finally:
        neuronsim.set_default_dtype(before)


def error(found: numpy.ndarray, expected: numpy.ndarray) -> float:
    """The size of the difference as a part of the expected result's size (Frobenius norms)."""
    size = float(numpy.linalg.norm(expected))
    return float(numpy.linalg.norm(found - expected)) / (size or 1.0)


def shown(value: numpy.ndarray) -> str:
    return f"[{' x '.join(map(str, value.shape))}]" if value.ndim else f"{float(value):.4g}"


def percent(part: float) -> str:
    if not numpy.isfinite(part):
        return "[red]not finite[/]"
    if part == 0:
        return "[green]nothing[/]"
    if part < 1e-5:
        return "[green]< 0.001 %[/]"
    return f"[{'green' if part < 0.01 else 'yellow' if part < 0.1 else 'red'}]{100 * part:.2g} %[/]"


def main(names: list[str]) -> None:
    title = "The same programs with NumPy (float64) and with Trn1's number formats"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("program", "result", "NumPy gives", "float32\noff by", "bfloat16\noff by"):
        table.add_column(column, justify="right" if "off" in column else "left", no_wrap=True)
    start = time.perf_counter()
    for name in names or PROGRAMS:
        expected, single, half = run(name, numpy_instead=True), run(name), in_bfloat16(name)
        for i, (key, value) in enumerate(expected.items()):
            errors = (percent(error(found[key], value)) for found in (single, half))
            last = i + 1 == len(expected)
            table.add_row("" if i else name, key, escape(shown(value)), *errors, end_section=last)
    console = Console()
    console.print(table)
    console.print(
        "Off by 1 %: the difference from NumPy's result is a hundredth of it. Red: beyond\n"
        "10 %, something in that program needs float32. All three ways together took\n"
        f"{time.perf_counter() - start:.1f} s."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
