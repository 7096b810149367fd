"""magika under the settings that break it. Its labels are its own float32 answers, since no labelled
set is at hand, on files of Python and of this repository.
"""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import api

pytest.importorskip("onnx")
pytestmark = [pytest.mark.exhaustive, pytest.mark.isa_independent]
ROOTS = (Path(sysconfig.get_paths()["stdlib"]), Path(__file__).parents[2])
COUNT, OF_EACH = 200, 8


def features(path: Path) -> Any:
    """What magika reads of a file: its first and last 1024 bytes without space around, 256 where there
    are none.
    """
    content = path.read_bytes()
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    found = np.full(2048, 256, np.int32)
    found[: len(first)] = list(first)
    found[2048 - len(last) :] = list(last)
    return found


@pytest.fixture(scope="module")
def magika() -> Path:
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        pytest.skip("magika is not installed (extra peers)")
    return Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"


@pytest.fixture(scope="module")
def data(magika: Path) -> dict[str, Any]:
    by_suffix: dict[str, list[Path]] = {}
    for root in ROOTS:
        for path in sorted(root.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if path.suffix and path.is_file() and not hidden and path.stat().st_size > 200:
                by_suffix.setdefault(path.suffix, []).append(path)
    each = [p[:: max(1, len(p) // OF_EACH)][:OF_EACH] for p in by_suffix.values()]
    files = [path for paths in each for path in paths]
    more = [p for p in by_suffix[".py"] if p not in files]
    x = np.stack([features(p) for p in [*files, *more][:COUNT]])
    program = api.compile(magika, auto_cast="none", batch=8)
    scores = np.concatenate([np.asarray(program(x[n : n + 8])) for n in range(0, COUNT, 8)])
    return {"bytes": x, "labels": scores.argmax(axis=1)}


@pytest.mark.parametrize(("base", "most"), [("all/bf16", 20), ("all/fp16", 3)])
def test_few_instructions_repair_magika(
    base: str, most: int, magika: Path, data: dict[str, Any]
) -> None:
    found = api.tune(magika, data, batch=8, tolerance=0.002, base=base, fix=True, threads=2)
    plan = found.chosen_plan
    assert plan is not None
    broken = next(r for r in found.rungs if r.name == base)
    assert (broken.loss or 0) > 0.002
    assert 0 < len(plan.kept) <= most
    assert (plan.figures.loss or 0) <= 0.002
    assert {k.opcode for k in plan.kept} & {"reduce", "multiply", "subtract"}
    assert all("LayerNorm" in k.name for k in plan.kept)


def test_magika_has_an_int8_bf16_plan_faster_than_bf16_and_fp32(
    magika: Path, data: dict[str, Any]
) -> None:
    """Issue 24, done when 4: within the tolerance of a point, where the target runs INT8."""
    found = api.tune(
        magika, data, batch=8, tolerance=0.01, quantize="mse,symmetric", target="trn1+int8", threads=2
    )
    plan = found.chosen_plan
    assert plan is not None
    assert plan.base == "int8/mse,symmetric+bf16"
    assert (plan.figures.loss or 0) <= 0.01
    assert any(d.quantizes for d in plan.plan.decisions.values())
    able = [p.figures for p in found.plans if p.within and not p.base.startswith("int8")]
    able += [r for r in found.rungs if not r.name.startswith("int8") and (r.loss or 0) <= 0.01]
    assert plan.figures.estimated_seconds < 0.98 * min(r.estimated_seconds for r in able)
