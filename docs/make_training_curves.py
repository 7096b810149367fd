"""Writes docs/tutorials/training.svg: the losses of the runs of training.md, whose code it runs.
`python docs/make_training_curves.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorials" / "training.md"
PICTURE = PAGE.with_suffix(".svg")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 60, 20, 20, 40
COLOURS = ("#222222", "#d95f02", "#1b9e77")


def curves() -> dict[str, list[float]]:
    """The losses of each run, by its name."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    found: dict[str, list[float]] = names["curves"]
    return found


def picture(runs: Mapping[str, Sequence[float]]) -> str:
    """The losses over the steps, on a logarithmic axis."""
    values = [v for losses in runs.values() for v in losses]
    low, high = math.log10(min(values)), math.log10(max(values))
    steps = max(map(len, runs.values())) - 1

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log10(loss)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in (0.05, 0.1, 0.2, 0.5, 1.0):
        if low <= math.log10(tick) <= high:
            parts.append(
                f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
            )
    for step in range(0, steps + 2, 50):
        at = f'x="{x(min(step, steps)):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text {at} text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{WIDTH / 2:g}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    for n, (name, losses) in enumerate(runs.items()):
        points = " ".join(f"{x(k):.1f},{y(v):.1f}" for k, v in enumerate(losses))
        colour, line = COLOURS[n % len(COLOURS)], TOP + 16 + 20 * n
        dashes = ' stroke-dasharray="6 4"' if n == 0 else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>'
            f'<path d="M{WIDTH - 220} {line - 4}h24" stroke="{colour}" stroke-width="2"{dashes}/>'
            f'<text x="{WIDTH - 188}" y="{line}">{name}: {losses[-1]:.4f}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(curves()), encoding="utf-8")
