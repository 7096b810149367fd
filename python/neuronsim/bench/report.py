"""Measurements as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from neuronsim.bench.measure import Measurement
from neuronsim.tables import print_table


def table_of(first: str, columns: Sequence[str]) -> Table:
    """An empty table: words in its first column, numbers in the others."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def shown(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
    """A number in a table; nothing for None."""
    return "" if value is None else f"{value * scale:.{digits}f}"


def print_measurements(measurements: Sequence[Measurement], console: Console) -> None:
    """Print one row for each measurement."""
    columns = ("isa", "threads", "ns/element", "GB/s", "GFLOP/s", "of limit", "peer", "ratio")
    rows = []
    for m in measurements:
        shape = "x".join(map(str, m.shape))
        ratio = "" if m.ratio is None else f"{m.ratio:.2f}"
        row = (
            f"{m.op} {m.dtype} {shape}" + f" {m.layer}" * bool(m.layer) + " touched" * m.touched,
            f"{m.isa}, {m.bfloat16_products}" if m.bfloat16_products else m.isa,
            str(m.threads),
            f"{m.ns_per_element:.3f}",
            f"{m.gb_per_s:.1f}",
            f"{m.gflop_per_s:.1f}",
            f"{m.of_limit:.2f}",
            m.peer or "",
            ratio,
        )
        rows.append(row)
    # Without a peer its two columns are left out, which gives a narrow terminal room for the names.
    count = len(columns) if any(m.peer for m in measurements) else len(columns) - 2
    kept = columns[:count]
    print_table(console, ("kernel", *kept), [row[: 1 + count] for row in rows], right=kept)
