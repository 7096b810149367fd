"""The programs of examples/arrays: only the import line differs, and float32 gives NumPy's results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import neuronsim
from tests.support.parameters import each_of
from tests.support.scripts import load_script

FOLDER = Path(__file__).parents[1] / "examples" / "arrays"
PROGRAMS = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "compare")

# A result of float32 is off by the roundings, 2**-24 each, of sums of up to 600 terms and by what the
# program makes of them; ten steps of Newton or a solved system multiply that by up to 50.
FLOAT32 = 600**0.5 * 50 * 2**-24  # 7e-5
# bfloat16 keeps 8 bits: a result of a few roundings is right within 2 %, sums of rounded terms within
# 15 %. What is a difference of near numbers has no such bound.
BFLOAT16 = 0.15
DIFFERENCES = {("lstm", "error")}


@pytest.fixture(scope="module")
def compare() -> Any:
    return load_script(FOLDER / "compare.py")


@pytest.fixture(scope="module")
def expected(compare: Any) -> dict[str, dict[str, numpy.ndarray]]:
    return {name: compare.run(name, numpy_instead=True) for name in PROGRAMS}


def test_there_are_ten_programs_of_ordinary_size() -> None:
    assert len(PROGRAMS) == 10
    for name in PROGRAMS:
        lines = (FOLDER / f"{name}.py").read_text().splitlines()
        assert 50 <= len(lines) <= 200
        assert [line for line in lines if "neuronsim" in line] == ["import neuronsim as np"]


@each_of("name", PROGRAMS)
def test_float32_gives_numpys_results(name: str, compare: Any, expected: dict[str, Any]) -> None:
    found = compare.run(name)
    assert list(found) == list(expected[name])
    for key, value in expected[name].items():
        assert found[key].shape == value.shape
        assert compare.error(found[key], value) <= FLOAT32, key
    if name == "game_of_life":
        assert all(numpy.array_equal(found[key], value) for key, value in expected[name].items())


@each_of("name", PROGRAMS)
def test_bfloat16_runs_and_is_near(name: str, compare: Any, expected: dict[str, Any]) -> None:
    found = compare.in_bfloat16(name)
    assert neuronsim.default_dtype() is neuronsim.float32
    errors = {key: compare.error(found[key], value) for key, value in expected[name].items()}
    assert all(numpy.isfinite(value).all() for value in found.values())
    assert all(e <= BFLOAT16 for key, e in errors.items() if (name, key) not in DIFFERENCES), errors
    # The control: bfloat16 does not pass for float32, and integers are exact in every type.
    assert (max(errors.values()) > FLOAT32) == (name != "game_of_life")


def test_the_comparison_is_a_table_with_every_result(
    compare: Any, expected: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    compare.main(["game_of_life", "pca"])
    text = capsys.readouterr().out
    assert all(key in text for name in ("game_of_life", "pca") for key in expected[name])
    assert "nothing" in text
    assert "< 0.001 %" in text


def test_a_program_runs_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "black_scholes.py")], capture_output=True, text=True, check=True
    )
    assert "call prices" in done.stdout
