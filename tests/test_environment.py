"""Rule D1: the caller's floating-point environment changes no bit of what models are read as, planned,
compiled to, computed, measured and printed.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import cli
from neuronsim.casting.policies.policy_file import parse_policy, policy_to_json
from neuronsim.hlo import parse, proto, text
from tests.core.test_determinism import HOSTILE, environment, mxcsr, on_x86  # noqa: F401 (a fixture)

pytestmark = [
    on_x86,
    pytest.mark.isa_independent,
    pytest.mark.usefixtures("restored_settings"),
    pytest.mark.filterwarnings("ignore"),
]

Mxcsr = Callable[[int | None], int]

# Subnormals of each type, ties, decimal numbers that Python reads by a multiplication; some are folded.
DEVICE = b"""HloModule constants

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

ENTRY main {
  x = f32[4,6] parameter(0)
  c = f32[6] constant({1e-40, 3e-45, 1, 0.1, 123456.789e-7, -7.123456789e-39})
  d = f32[6] constant({0.3, 1e-39, 2e-45, 1.1754944e-38, 3, 16777217})
  h = bf16[6] constant({1e-40, 9.2e-41, 1.00390625, 0.1, 3e38, -1e-39})
  q = f16[6] constant({6e-8, 3e-8, 0.1, 65519, 1e-5, -6.1e-5})
  e = f8e4m3[6] constant({0.0009, 0.00195, 0.1, 247.9, 1.0625, -0.013})
  folded = f32[6] multiply(c, d)
  hw = f32[6] convert(h)
  qw = f32[6] convert(q)
  ew = f32[6] convert(e)
  s1 = f32[6] add(folded, hw)
  s2 = f32[6] add(qw, ew)
  s3 = f32[6] add(s1, s2)
  wide = f32[4,6] broadcast(s3), dimensions={1}
  y = f32[4,6] add(x, wide)
  g = f32[4,6] exponential(y)
  tiny = f32[4,6] broadcast(c), dimensions={1}
  ROOT r = f32[4,6] add(g, tiny)
}
"""
HOST = b"""HloModule host

ENTRY main {
  x = f64[4] parameter(0)
  c = f64[4] constant({1e-310, 0.1, 123456.789e-7, 3e-320})
  z = c64[4] constant({(1e-40, 0.1), (0.3, 3e-45), (1, -1e-39), (0.1, 0.7)})
  p = f64[4] multiply(x, c)
  q = f64[4] logistic(p)
  w = c64[4] multiply(z, z)
  v = c64[4] exponential(w)
  n = f32[4] convert(p)
  nz = c64[4] convert(n)
  vz = c64[4] add(v, nz)
  ROOT t = (f64[4], c64[4]) tuple(q, vz)
}
"""
X = {"x": np.float32(np.arange(24).reshape(4, 6) / 7 - 2)}
ON_HOST = np.array([1.0, 1 / 3, 3e-3, 1e5])
POLICY = json.dumps(
    {
        "schema": "neuronsim.policy/1",
        "name": "mine",
        "low": "bfloat16",
        "lists": {"always": ["compute"]},
        "rule": [{"reason": "small", "category": "never", "above": 0.1, "cancellation_above": 1e-310}],
    }
)


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """C's fesetround, which a caller reaches by ctypes."""
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    assert libm.fesetround(mode) == 0
    try:
        yield
    finally:
        libm.fesetround(before)


def results(program: Any, *inputs: Any, **options: Any) -> list[bytes]:
    found = program(*inputs, **options)
    return [x.tobytes() for x in (found if isinstance(found, tuple) else (found,))]


def timeless(tuned: str) -> str:
    """A tuner's JSON without the time that it took."""
    return re.sub(r'"seconds": {[^}]*}', "", tuned)


def seen(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What each door gives, by its name."""
    found: dict[str, Any] = {}
    settings = {
        "none": {"auto_cast": "none"},
        "all": {"auto_cast": "all", "auto_cast_type": "bf16"},
        "stochastic": {"auto_cast": "all", "profile": neuronsim.Profile(rounding="stochastic")},
        "saturate": {"auto_cast": "all", "auto_cast_type": "fp8_e4m3"},
    }
    for label, options in settings.items():
        program = neuronsim.compile(DEVICE, **options)
        found[f"run {label}"] = results(program, X["x"], seed=3)
        found[f"observe {label}"] = (
            results(program, X["x"], seed=3, observe="full"),
            program.diagnostics,
        )
        found[f"planned {label}"] = text.to_text(program.module), program.plan.to_json()
        program.save(folder / "saved.nsim")
        loaded = neuronsim.load(folder / "saved.nsim")
        found[f"load {label}"] = results(loaded, X["x"], seed=3), loaded.plan.to_json()
    host = neuronsim.compile(HOST, target="host", auto_cast="none")
    found["host"] = results(host, ON_HOST), text.to_text(host.module)
    for name, source in (("device", DEVICE), ("host", HOST)):
        module = parse.from_text(source.decode())
        data = proto.to_bytes(module)
        (folder / f"{name}.pb").write_bytes(data)
        found[f"text and proto {name}"] = data, text.to_text(proto.from_bytes(data))
    model = str(folder / "device.pb")
    found["lint"] = neuronsim.lint(model, auto_cast="all", auto_cast_type="fp16")
    calibration = neuronsim.calibrate(model, X)
    found["calibrate"] = calibration.to_json()
    found["policy"] = policy_to_json(parse_policy(POLICY, "json"))
    plan = neuronsim.plan(model, policy=parse_policy(POLICY, "json"), calibration=calibration)
    found["plan"] = plan.to_json(), plan.explain("g", neuronsim.compile(model).model)
    tuned = neuronsim.tune(model, X, metric="relative_error")
    found["tune"] = tuned.rungs, timeless(tuned.to_json())
    np.savez(folder / "x.npz", **X)
    for words in (
        ["explain", model, "--auto-cast", "all"],
        ["lint", model, "--auto-cast", "all", "--auto-cast-type", "fp16"],
        ["plan", model, "--auto-cast", "all", "--output", str(folder / "plan.json")],
        ["run", model, "--inputs", str(folder / "x.npz"), "--output", str(folder / "y.npz")],
        ["tune", model, "--data", str(folder / "x.npz"), "--json", str(folder / "tune.json")],
    ):
        assert cli.main(words) in (0, 1), words
        found[f"command {words[0]}"] = capsys.readouterr()
    found["files"] = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".json", ".pb")}
    found["files"]["tune.json"] = timeless(found["files"]["tune.json"].decode())
    with np.load(folder / "y.npz") as archive:
        found["files"] |= {n: archive[n].tobytes() for n in archive.files}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all environments, since results name their files."""
    return tmp_path_factory.mktemp("doors")


@pytest.fixture(scope="module")
def calm() -> dict[str, Any]:
    """What the doors give in the usual environment, once it is known."""
    return {}


@pytest.mark.parametrize("label", HOSTILE)
def test_every_door_to_models_D1_gives_the_same_in_any_environment(
    label: str,
    mxcsr: Mxcsr,  # noqa: F811
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    calm: dict[str, Any],
) -> None:
    if not calm:
        calm |= seen(folder, capsys)
    for file in folder.iterdir():
        file.unlink()
    with environment(mxcsr, HOSTILE[label]):
        found = seen(folder, capsys)
    assert [name for name in calm if repr(found[name]) != repr(calm[name])] == []


@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00], ids=["down", "up", "zero"])
def test_constants_D1_are_read_alike_under_fesetround(mode: int) -> None:
    calm = proto.to_bytes(parse.from_text(DEVICE.decode()))
    with rounding(mode):
        found = proto.to_bytes(parse.from_text(DEVICE.decode()))
    assert found == calm


def test_constants_D1_keep_their_subnormals_where_torch_flushes_them() -> None:
    torch = pytest.importorskip("torch")
    source = b"HloModule m\nENTRY e { ROOT c = f32[3] constant({1e-40, 3e-45, 1}) }"
    assert torch.set_flush_denormal(True)
    try:
        found = neuronsim.compile(source)()
        shown = str(found)
    finally:
        torch.set_flush_denormal(False)
    assert found.tobytes() == np.float32([1e-40, 3e-45, 1]).tobytes()
    assert shown == "[1.e-40 3.e-45 1.e+00]"
