"""The bench harness on tiny shapes: its fields, its peers, its errors. No test asserts a speed."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support.parameters import each_of

from neuronsim import _core, processor
from neuronsim.bench import Measurement, kernel_names, measure
from neuronsim.bench.kernels import make_case
from neuronsim.bench.peers import open_peer, peer_run
from neuronsim.bench.report import print_measurements
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedOperator, UnsupportedType

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]
# The rows that only integers have.
BITS = tuple(name for name, _, kind in _core.OPS if kind in ("integral", "integer"))
SAMPLE = Measurement(
    op="add",
    shape=(10, 20),
    dtype="float32",
    isa="x86-64",
    threads=1,
    peer="numpy",
    repeats=3,
    seconds=2e-6,
    peer_seconds=3e-6,
    touched=False,
    copy_seconds=1e-6,
    fma_seconds=5e-7,
    elements=200,
    bytes=2400,
    flops=200,
)


def shape_of(op: str) -> tuple[int, ...]:
    return (4, 5, 6) if op == "matmul" else (1, 2, 7, 8) if op == "convolution" else (5, 6)


def layer_of(op: str) -> str | None:
    return "3k3x3p1" if op == "convolution" else None


def dtype_of(op: str) -> str:
    return "int32" if op in BITS else "float32:float16" if op == "convert" else "float32"


# ---- figures -------------------------------------------------------------------------------------


def test_derived_figures_follow_from_the_measured() -> None:
    assert SAMPLE.ns_per_element == pytest.approx(10.0)
    assert SAMPLE.gb_per_s == pytest.approx(1.2)
    assert SAMPLE.gflop_per_s == pytest.approx(0.1)
    assert SAMPLE.of_limit == pytest.approx(0.5)
    assert dataclasses.replace(SAMPLE, fma_seconds=1.5e-6).of_limit == pytest.approx(0.75)
    assert SAMPLE.of_peak == pytest.approx(0.25)
    assert dataclasses.replace(SAMPLE, pairs_seconds=1e-6).of_peak == pytest.approx(0.5)
    assert dataclasses.replace(SAMPLE, pairs_seconds=1.5e-6).of_limit == pytest.approx(0.75)
    assert SAMPLE.ratio == pytest.approx(1.5)
    assert dataclasses.replace(SAMPLE, peer=None, peer_seconds=None).ratio is None


def test_the_dictionary_has_every_figure() -> None:
    derived = {"ns_per_element", "gb_per_s", "gflop_per_s", "of_limit", "of_peak", "ratio"}
    assert set(SAMPLE.to_dict()) == {f.name for f in dataclasses.fields(Measurement)} | derived


@each_of("op", kernel_names())
def test_every_kernel_can_be_measured(op: str) -> None:
    found = measure(op, shape_of(op), dtype_of(op), layer=layer_of(op), repeats=1)
    assert (found.op, found.shape, found.dtype) == (op, shape_of(op), dtype_of(op))
    assert (found.threads, found.peer, found.peer_seconds, found.repeats) == (1, None, None, 1)
    assert found.isa == processor.isa()
    assert 0 < found.seconds < 1
    assert 0 < found.copy_seconds < 1
    assert 0 <= found.fma_seconds < 1
    assert found.layer == layer_of(op)


@pytest.mark.parametrize("op", ["add", "convert", "maximum"])
@pytest.mark.parametrize("peer", ["numpy", "torch"])
def test_touched_results_are_written_in_place(op: str, peer: str) -> None:
    if peer == "torch":
        pytest.importorskip("torch", reason="extra `peers`")
    case = make_case(op, (5, 6), dtype_of(op))
    case.run_touched()
    found = measure(op, (5, 6), dtype_of(op), peer=peer, touched=True, repeats=1)
    assert found.touched
    assert found.ratio is not None


def test_a_chain_is_the_same_op_by_op() -> None:
    case = make_case("chain", (5, 6), "bfloat16")
    ours = peer_run("op_by_op", case, 1)().bits.data
    assert ours.tobytes() == case.run().tobytes()
    assert case.flops == 8 * 30


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "axis", "elements", "size", "flops"),
    [
        ("add", (10, 20), "float32", None, 200, 3 * 200 * 4, 200),
        ("exp", (10, 20), "bfloat16", None, 200, 2 * 200 * 2, 200),
        ("convert", (10, 20), "float32:bfloat16", None, 200, 200 * 6, 0),
        ("sum", (10, 20), "float32", None, 200, 804, 200),
        ("sum", (10, 20), "float16", 1, 200, 420, 200),
        ("max", (10, 20), "float16", -2, 200, 440, 200),
        ("matmul", (3, 4, 5), "bfloat16", None, 15, 2 * (12 + 20 + 15), 120),
        ("matmul", (2, 3, 4, 5), "float8_e5m2", None, 30, 2 * (12 + 20 + 15), 240),
        ("matmul", (3, 4, 5), "float32:bfloat16", None, 15, 4 * (12 + 20 + 15), 120),
    ],
)
def test_traffic_and_work_are_counted(
    op: str, shape: tuple[int, ...], dtype: str, axis: int | None, elements: int, size: int, flops: int
) -> None:
    case = make_case(op, shape, dtype, axis)
    assert (case.elements, case.bytes, case.flops) == (elements, size, flops)


# ---- the processor -------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", processor.available_isas())
def test_isa_and_threads_are_used_and_put_back(isa: str) -> None:
    """Also after an error."""
    processor.set_num_threads(1)
    before = processor.isa()
    found = measure("add", (7,), isa=isa, threads=2, repeats=1)
    assert (found.isa, found.threads) == (isa, 2)
    assert (processor.isa(), processor.num_threads()) == (before, 1)
    with pytest.raises(UnsupportedOperator):
        measure("nothing", (7,), isa=isa, threads=2)
    assert (processor.isa(), processor.num_threads()) == (before, 1)


# ---- peers ---------------------------------------------------------------------------------------


@each_of("op", [k for k in kernel_names() if hasattr(np, k) and k != "matmul" and k not in BITS])
def test_numpy_computes_the_same_kernel(op: str) -> None:
    case = make_case(op, (5, 6), dtype_of(op), axis=1 if op in ("sum", "mean") else None)
    theirs = np.asarray(peer_run("numpy", case, 1)())
    ours = np.asarray(case.run())
    assert ours.shape == theirs.shape
    assert np.allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-3)


def test_numpys_matmul_runs_with_as_many_threads() -> None:
    limits = pytest.importorskip("threadpoolctl", reason="extra `peers`")
    case = make_case("matmul", (3, 4, 5), "float32")
    assert np.allclose(peer_run("numpy", case, 1)(), np.asarray(case.run()), rtol=1e-5)
    with open_peer("numpy", case, 1) as (seconds, detail):
        assert seconds(2) > 0
        assert detail
        pools = [p for p in limits.threadpool_info() if p["user_api"] == "blas"]
        assert {p["num_threads"] for p in pools} == {1}


@pytest.mark.parametrize("op", ["add", "multiply", "convert"])
def test_ml_dtypes_computes_the_same_bits_of_bfloat16(op: str) -> None:
    case = make_case(op, (5, 6), "float32:bfloat16" if op == "convert" else "bfloat16")
    assert np.asarray(peer_run("ml_dtypes", case, 1)()).tobytes() == case.run().tobytes()


def test_a_peer_gives_a_ratio() -> None:
    found = measure("add", (9,), peer="numpy", repeats=2)
    assert found.peer == "numpy"
    assert found.peer_seconds is not None
    assert found.ratio == found.peer_seconds / found.seconds > 0


# ---- errors --------------------------------------------------------------------------------------

# Peers that cannot write into a touched result, operations whose results are fresh, types of no peer.
UNTOUCHED: list[dict[str, Any]] = [
    {"op": op, "peer": peer, "touched": True}
    for op, peer in (
        *(("chain", "numpy"), ("chain", "op_by_op"), ("isfinite", "numpy"), ("isnan", "torch")),
        *(("add", "read"), ("add", "one_thread")),
    )
]
ALWAYS_FRESH: list[dict[str, Any]] = [
    {"op": op, "shape": shape_of(op), "touched": True} for op in ("sum", "matmul")
]
NOT_OF_A_PEER: list[dict[str, Any]] = [
    {"peer": "numpy", "dtype": "bfloat16"},
    {"peer": "numpy", "op": "convert", "dtype": "float32:bfloat16"},
    *({"peer": peer, "dtype": "tfloat32"} for peer in ("numpy", "ml_dtypes")),
    {"peer": "ml_dtypes", "dtype": "float32"},
]


@each_of(
    ("arguments", "error", "message"),
    [
        ({"op": "ad"}, UnsupportedOperator, "did you mean 'add'"),
        ({"op": "select"}, UnsupportedOperator, "named 'select': `neuronsim bench --help` lists them"),
        ({"shape": ()}, InvalidArgument, "positive lengths"),
        ({"shape": (3, 0)}, InvalidArgument, "positive lengths"),
        ({"shape": (10**12, 10**12)}, InvalidArgument, ""),
        ({"dtype": "float99"}, UnsupportedType, "float99"),
        ({"dtype": "float32:bfloat16"}, InvalidArgument, "pair of types"),
        ({"op": "convert"}, InvalidArgument, "pair of types"),
        ({"op": "matmul"}, InvalidArgument, "ROWSxDEPTHxCOLUMNS"),
        ({"op": "matmul", "shape": (2,) * 5}, InvalidArgument, "BATCHx"),
        ({"op": "matmul", "shape": (1, 1 << 20, 1 << 20)}, InvalidArgument, "elements"),
        ({"op": "matmul", "shape": (2, 2, 2), "axis": 0}, InvalidArgument, "axis 0"),
        (
            {"op": "matmul", "shape": (2, 2, 2), "dtype": "float16:bfloat16"},
            InvalidArgument,
            "one type",
        ),
        ({"op": "matmul", "shape": (2, 2, 2), "dtype": "float32:int8"}, InvalidArgument, "float type"),
        ({"op": "convolution", "shape": (1, 2, 5)}, InvalidArgument, "needs a layer"),
        ({"op": "convolution", "shape": (1, 2, 5), "layer": "4"}, InvalidArgument, "a word such as"),
        ({"op": "convolution", "shape": (1, 2, 5), "layer": "4k3x3"}, InvalidArgument, "LENGTHxLENGTH"),
        ({"op": "convolution", "shape": (1, 2, 5), "layer": "4k9"}, InvalidArgument, "longer than"),
        ({"op": "convolution", "shape": (1, 3, 5), "layer": "4k3g2"}, InvalidArgument, "do not divide"),
        ({"op": "convolution", "shape": (1, 3, 5), "layer": "4k3s0"}, InvalidArgument, "at least 1"),
        ({"op": "convolution", "shape": (1, 3, 5), "layer": "4k99999999"}, InvalidArgument, "a word"),
        ({"layer": "4k3"}, InvalidArgument, "not add's"),
        ({"op": "sum", "axis": 1}, InvalidArgument, "axis 1"),
        ({"op": "sum", "axis": -2}, InvalidArgument, "axis -2"),
        ({"op": "bitwise_and"}, NeuronSimError, "not defined for float32"),
        ({"op": "mean", "dtype": "float8_e4m3fn"}, UnsupportedType, r"\(R7\) of float8_e4m3fn"),
        *((given, UnsupportedOperator, "touched") for given in UNTOUCHED),
        *((given, InvalidArgument, "always fresh") for given in ALWAYS_FRESH),
        *((g, UnsupportedOperator, f"{g['peer']} has no {g.get('op', 'add')}") for g in NOT_OF_A_PEER),
        ({"peer": "op_by_op"}, UnsupportedOperator, "peer of chain"),
        ({"peer": "sgemm"}, UnsupportedOperator, "sgemm has no add"),
        ({"peer": "onnxruntime"}, UnsupportedOperator, "onnxruntime has no add"),
        ({"peer": "bfloat16"}, UnsupportedOperator, "not of add"),
        ({"peer": "matlab"}, InvalidArgument, "numpy, ml_dtypes, torch"),
        ({"isa": "z80"}, InvalidArgument, "'z80' is not available"),
        ({"threads": 0}, InvalidArgument, "integer from 1 to 1024"),
        ({"repeats": 0}, InvalidArgument, "at least 1"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_what_does_not_exist_is_refused(
    arguments: dict[str, Any], error: type[NeuronSimError], message: str
) -> None:
    with pytest.raises(error, match=message or None):
        measure(**{"op": "add", "shape": (4,), "repeats": 1, **arguments})


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "shown"),
    [(lambda m: m, "1.50"), (lambda m: dataclasses.replace(m, peer_seconds=None), "")],
)
def test_the_table_has_a_row_a_measurement(
    change: Callable[[Measurement], Measurement], shown: str
) -> None:
    file = io.StringIO()
    print_measurements([change(SAMPLE)] * 2, Console(width=120, file=file))
    rows = [r for r in file.getvalue().splitlines() if "add float32 10x20" in r]
    assert len(rows) == 2
    assert rows[0].split()[-1] == (shown or "numpy")


SCRIPTS = sorted(p.stem for p in (Path(__file__).parents[2] / "bench").glob("*.py"))
WITHOUT_PEERS = """
import contextlib, io, json, runpy, sys
for name in ("jax", "torch", "onnx", "onnxruntime", "threadpoolctl"):
    sys.modules[name] = None
found = {}
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_module("bench." + script, run_name="__main__")
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
    found[script] = status, told.getvalue()
print(json.dumps(found))
"""


def test_scripts_without_their_peers_run_or_say_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PEERS, *(s for s in SCRIPTS if s != "network_peers")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for script, (status, told) in json.loads(done.stdout).items():
        if script in ("networks", "diagnostics"):
            assert "there is no jax" in f"{status}{told}", script
            assert 'pip install ".[peers]" torch' in f"{status}{told}"
        elif script == "families":
            assert "there is no jax" in f"{status}{told}"
        elif script == "quantized":
            assert "there is no onnx" in f"{status}{told}"
        else:
            assert (status, told) == (0, ""), script


@pytest.mark.parametrize("option", ["--bound", "--steps"])
def test_the_figures_of_calls_are_measured(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.calls", option, "--rounds", "1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "us" in done.stdout
