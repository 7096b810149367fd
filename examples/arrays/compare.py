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
from rich.console import Console
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
    if value.ndim == 0:
        return f"{float(value):.4g}"
    return f"{' x '.join(map(str, value.shape))} numbers, mean {value.mean():.3g}"


def percent(part: float) -> str:
    if not numpy.isfinite(part):
        return "[red]not finite[/]"
    if part == 0:
        return "[green]equal[/]"
    colour = "green" if part < 1e-3 else "yellow" if part < 0.1 else "red"
    return f"[{colour}]{100 * part:.2g} %[/]"


def main(names: list[str]) -> None:
    table = Table(title="The same programs on NumPy (float64) and on Trn1's number formats")
    for column in ("program", "result", "NumPy", "float32 is off by", "bfloat16 is off by"):
        table.add_column(column, justify="right" if "off" in column else "left")
    start = time.perf_counter()
    for name in names or PROGRAMS:
        expected, single, half = run(name, numpy_instead=True), run(name), in_bfloat16(name)
        for i, (key, value) in enumerate(expected.items()):
            errors = (percent(error(found[key], value)) for found in (single, half))
            table.add_row(
                name if i == 0 else "", key, shown(value), *errors, end_section=i + 1 == len(expected)
            )
    console = Console()
    console.print(table)
    console.print(
        f"{time.perf_counter() - start:.1f} s. Off by 1 % says that the difference from NumPy's result is a\n"
        "hundredth of it in size. Green: nobody will notice; red: this program needs float32 somewhere."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
