"""Products in the harness: their casts, layers and peers, and the suite in bench/matmul.py."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support.parameters import each_of
from tests.support.scripts import load_script

from neuronsim import _core, dtypes, ops, processor
from neuronsim.arrays import nn
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.bench import PEERS, MemoryUse, kernel_names, measure, measure_memory, parse_layer
from neuronsim.bench.kernels import make_case
from neuronsim.bench.peers import open_peer, peer_run
from neuronsim.bench.reading import reader
from neuronsim.bench.sgemm import sgemm_worker
from neuronsim.errors import InvalidArgument, UnsupportedOperator

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]
SUITE = Path(__file__).parents[2] / "bench" / "matmul.py"
LAYERS = [
    ((1, 4, 9, 8), "6k3x3p1"),
    ((2, 4, 9, 8), "8k3x3s2p1g4"),
    ((1, 3, 20, 20), "5k7x7s2p3"),
    ((1, 6, 30), "4k5p2"),
    ((1, 6, 30), "6k3d2g6"),
]


@pytest.fixture(scope="module")
def suite() -> Any:
    return load_script(SUITE)


# ---- cases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["64k7x7s2p3", "1k1", "512k5p2", "32k3x3s2p1g32", "8k3x3d2", "9k1x2x3s4p5d6g7"]
)
def test_a_layer_is_a_word(word: str) -> None:
    assert str(parse_layer(word)) == word


@each_of("word", ["", "k3", "3", "3k", "3k3x", "3k3p1s1", "3k3s", "-3k3", "3k3 s1", "٣k3"])
def test_what_is_no_layer_is_refused(word: str) -> None:
    with pytest.raises(InvalidArgument, match="a layer is a word"):
        parse_layer(word)


def test_a_batched_product_is_numpys() -> None:
    case = make_case("matmul", (3, 4, 5, 6), "float32")
    expected = np.matmul(*case.operands)
    assert np.allclose(np.asarray(case.run()), expected, rtol=1e-5, atol=1e-5)
    assert case.elements == expected.size


@pytest.mark.parametrize("shape", [(3, 40, 5), (2, 3, 40, 5)])
def test_the_cast_rounds_the_operands_and_not_the_result(shape: tuple[int, ...]) -> None:
    case = make_case("matmul", shape, "float32:bfloat16")
    found = case.run()
    assert found.dtype is dtypes.float32
    batch = len(shape) - 3
    axes = tuple(range(batch))
    rounded = [asarray(v, dtypes.bfloat16).bits for v in case.operands]
    dims = ops.DotDimensions((batch + 1,), (batch,), axes, axes)
    expected = Array(ops.apply("dot", rounded, dot_dimensions=dims, dtype=dtypes.float32))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "pairs"),
    [
        ("float32", False),
        ("float16", False),
        ("tfloat32", False),
        ("float32:bfloat16", True),
        ("float32:float16", False),
        ("bfloat16", True),
        ("float8_e4m3", True),
        ("int8", False),
    ],
)
def test_the_peak_is_that_of_the_instruction_that_fits(dtype: str, pairs: bool) -> None:
    assert make_case("matmul", (2, 3, 4), dtype).multiplies_bfloat16 == pairs
    if dtype == "int8":
        return
    found = measure("matmul", (2, 3, 4), dtype, repeats=1)
    has_pairs = pairs and _core.run_pair_chains(1) > 0
    assert (found.pairs_seconds is not None) == has_pairs
    assert 0 < found.of_peak < math.inf


def test_adding_bfloat16_is_no_product_of_pairs() -> None:
    assert not make_case("add", (4,), "bfloat16").multiplies_bfloat16


@each_of(("shape", "layer"), LAYERS)
@each_of("dtype", ["float32", "bfloat16", "float32:bfloat16"])
def test_a_convolution_has_the_shape_that_its_layer_says(
    shape: tuple[int, ...], layer: str, dtype: str
) -> None:
    case = make_case("convolution", shape, dtype, layer=layer)
    found = case.run()
    assert found.shape == parse_layer(layer).output_shape(shape)
    assert case.elements == found.size
    assert case.flops == 2 * found.size * math.prod(case.operands[1].shape[1:])
    assert case.bytes == case.dtype.itemsize * (sum(v.size for v in case.operands) + found.size)


@pytest.mark.parametrize(("shape", "layer"), LAYERS)
def test_the_cast_of_a_convolution_is_of_its_operands(shape: tuple[int, ...], layer: str) -> None:
    case = make_case("convolution", shape, "float32:bfloat16", layer=layer)
    word = parse_layer(layer)
    x, w = (asarray(v, dtypes.bfloat16).astype(dtypes.float32) for v in case.operands)
    expected = nn.conv(
        x, w, stride=word.stride, padding=word.padding, dilation=word.dilation, groups=word.groups
    )
    assert case.run().tobytes() == expected.tobytes()


# ---- peers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "layer"), LAYERS)
def test_onnxruntime_computes_the_same_convolution(shape: tuple[int, ...], layer: str) -> None:
    pytest.importorskip("onnx", reason="extra `peers`")
    pytest.importorskip("onnxruntime", reason="extra `peers`")
    case = make_case("convolution", shape, "float32", layer=layer)
    binding, _ = peer_run("onnxruntime", case, 1)()
    assert np.allclose(binding.copy_outputs_to_cpu()[0], np.asarray(case.run()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_onnxruntime_is_a_peer_of_float32_operands(dtype: str) -> None:
    case = make_case("convolution", *LAYERS[0][:1], dtype, layer=LAYERS[0][1])
    with pytest.raises(UnsupportedOperator, match="onnxruntime has no convolution"):
        peer_run("onnxruntime", case, 1)


@pytest.mark.parametrize("core_type", [None, "Haswell"])
def test_numpy_in_a_process_of_its_own_takes_turns(core_type: str | None) -> None:
    pytest.importorskip("threadpoolctl", reason="extra `peers`")
    try:
        with sgemm_worker((2, 3, 4), 1, core_type) as (seconds, detail):
            assert 0 < seconds(1) < 10
            assert seconds(100) > 0
            assert core_type is None or core_type in detail
    except UnsupportedOperator as error:
        pytest.skip(str(error))


def test_the_openblas_of_the_peer_is_not_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("threadpoolctl", reason="extra `peers`")
    details = []
    for name in ("Haswell", "Prescott"):
        monkeypatch.setenv("OPENBLAS_CORETYPE", name)
        with sgemm_worker((2, 3, 4), 1) as (_, detail):
            details.append(detail)
    assert details[0] == details[1]


def test_an_openblas_that_does_not_exist_is_refused() -> None:
    pytest.importorskip("threadpoolctl", reason="extra `peers`")
    with (
        pytest.raises(UnsupportedOperator, match="no OpenBLAS for Z80"),
        sgemm_worker((2, 3, 4), 1, "Z80"),
    ):
        pass


def test_a_peers_process_that_ends_is_an_error() -> None:
    pytest.importorskip("threadpoolctl", reason="extra `peers`")
    with sgemm_worker((2, 3, 4), 1) as (seconds, _):
        assert seconds(0) >= 0
        with pytest.raises(InvalidArgument, match="ended with status"):
            seconds("many")  # type: ignore[arg-type]


def test_one_thread_is_a_peer_of_several() -> None:
    processor.set_num_threads(2)
    case = make_case("matmul", (3, 4, 5), "bfloat16")
    with open_peer("one_thread", case, 2) as (seconds, _):
        assert seconds(1) > 0
    assert processor.num_threads() == 2
    assert measure("matmul", (3, 4, 5), threads=2, peer="one_thread", repeats=1).ratio


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
def test_the_own_bfloat16_product_is_a_peer(dtype: str) -> None:
    case = make_case("matmul", (3, 4, 5), dtype)
    assert peer_run("bfloat16", case, 1)().dtype is dtypes.bfloat16
    assert measure("matmul", (3, 4, 5), dtype, peer="bfloat16", repeats=1).ratio


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 8, 1000, 100_000])
def test_the_reader_reads(size: int, threads: int) -> None:
    reader(size, threads)()


def test_a_pure_read_is_a_peer() -> None:
    found = measure("matmul", (1, 64, 64), peer="read", repeats=1)
    assert found.ratio is not None
    assert math.isfinite(found.ratio)


# ---- memory --------------------------------------------------------------------------------------


def test_memory_beside_operands_and_result() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        pytest.skip(f"no peak to reset: {error}")
    found = measure_memory("add", (1 << 21,), threads=2, isa=processor.available_isas()[0])
    assert (found.result, found.threads) == (1 << 23, 2)
    assert found.isa == processor.available_isas()[0]
    assert 0 <= found.mib < 8  # an operand more would be seen
    product = measure_memory("matmul", (64, 2048, 64), "bfloat16")
    assert product.result == 64 * 64 * 2
    assert set(product.to_dict()) == {f.name for f in dataclasses.fields(MemoryUse)} | {"mib"}


def test_memory_of_what_does_not_exist_says_why() -> None:
    with pytest.raises(InvalidArgument, match="no kernel is named 'nothing'"):
        measure_memory("nothing", (4,))


# ---- the suite -----------------------------------------------------------------------------------


def test_every_entry_of_the_suite_exists(suite: Any) -> None:
    entries = [e for group in suite.GROUPS.values() for e in group]
    for e in entries:
        assert e.op in kernel_names()
        assert e.peer in PEERS
        assert (e.layer is not None) == (e.op == "convolution")
        if e.layer is not None:
            assert min(e.layer.output_shape(e.shape)) >= 1
            assert min(e.layer.weight_shape(e.shape)) >= 1
    assert set(suite.TARGETS) <= set(suite.GROUPS)


def test_the_networks_end_as_they_should(suite: Any) -> None:
    resnet, mobilenet = suite.resnet50(), suite.mobilenet_v2()
    assert len(set(resnet)) == len(resnet) == 23
    assert resnet[-1][0] == (1, 512, 7, 7)
    assert ((1, 1024, 14, 14), parse_layer("2048k1x1s2")) in resnet
    assert mobilenet[-1] == ((1, 320, 7, 7), parse_layer("1280k1x1"))
    assert ((1, 960, 7, 7), parse_layer("960k3x3p1g960")) in mobilenet


def test_the_summary_has_the_geometric_mean_and_the_least(suite: Any) -> None:
    found = measure("matmul", (2, 3, 4), peer="read", repeats=1)
    measured = [
        dataclasses.replace(found, seconds=1.0, peer_seconds=s, threads=n)
        for s, n in ((2.0, 1), (8.0, 1), (3.0, 2))
    ]
    one, two = suite.summaries({"one-row": measured})
    assert (one["threads"], one["kernels"], one["least"]) == (1, 2, 2.0)
    assert one["mean"] == pytest.approx(4.0)
    assert (two["threads"], two["mean"]) == (2, pytest.approx(3.0))


def test_the_suite_runs_a_group(
    suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = suite.products("bfloat16", "read", ((1, 32, 32),))
    missing = suite.products("bfloat16", "sgemm_haswell", ((1, 2, 3),), isa="z80")
    monkeypatch.setitem(suite.GROUPS, "one-row", entries + missing)
    file = tmp_path / "found.json"
    words = ["matmul.py", "--only", "one-row", "--threads", "1", "--repeats", "1", "--json", str(file)]
    monkeypatch.setattr("sys.argv", words)
    suite.main()
    shown = capsys.readouterr().out
    assert "1x32x32" in shown
    assert "left out: matmul bfloat16 (1, 2, 3) against sgemm_haswell" in shown
    figures = json.loads(file.read_text())
    assert [m["group"] for m in figures["measurements"]] == ["one-row"]
    assert figures["summary"][0]["mean"] == pytest.approx(figures["measurements"][0]["ratio"])


def test_the_memory_table_has_a_row_a_figure(suite: Any) -> None:
    use = MemoryUse("matmul", (2, 3), "float32", None, "x86-64", 1, 1 << 20, 3 << 19)
    console = Console(width=120, record=True)
    console.print(suite.memory_table([use]))
    assert console.export_text().split("2x3")[1].split()[2:4] == ["1.5", "1.0"]
