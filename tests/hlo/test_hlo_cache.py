"""Folders of AWS's compile cache, and files that are text."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.commands import Commands

from neuronsim import api, dtypes
from neuronsim.errors import InvalidFlag, InvalidModel, NeuronSimError
from neuronsim.hlo import cache, parse, proto, text
from neuronsim.hlo.cache import CacheEntry, cached_flags, find_entry, list_cache

SOURCE = """\
HloModule small
ENTRY main {
  x = f32[2,2] parameter(0)
  w = f32[2,2] constant({ { 1, 2 }, { 3, 4 } })
  ROOT y = f32[2,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proto.write(parse.from_text(SOURCE), tmp_path / "model.hlo_module.pb")
    return tmp_path


def write_flags(folder: Path, flags: Any) -> None:
    (folder / "compile_flags.json").write_text(json.dumps(flags))


def test_folder_is_read_as_its_model(folder: Path) -> None:
    assert cache.read(folder).root.opcode == "dot"
    assert api.compile(str(folder)).model.root.opcode == "dot"


def test_cached_flags_are_those_of_the_folder(folder: Path) -> None:
    assert cached_flags(folder) == []
    write_flags(folder, ["--target=trn1", "--auto-cast=all"])
    assert cached_flags(folder) == ["--target=trn1", "--auto-cast=all"]


def test_compile_takes_the_flags_of_the_folder(folder: Path) -> None:
    write_flags(folder, ["--auto-cast=all", "--auto-cast-type=fp16"])
    settings = api.compile(folder).setup.settings
    assert (settings.auto_cast, settings.auto_cast_type) == ("all", "fp16")
    assert api.plan(folder).to_json() == api.plan(SOURCE.encode(), flags="--auto-cast all "
                                                  "--auto-cast-type fp16").to_json()  # fmt: skip


def test_flags_that_are_given_count_instead_of_the_folder(folder: Path) -> None:
    write_flags(folder, ["--auto-cast=all"])
    assert api.compile(folder, flags="--auto-cast none").setup.settings.auto_cast == "none"
    assert api.compile(folder, auto_cast="matmult").setup.settings.auto_cast == "matmult"


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"flags": []}', "[1]", '"-O1"', "\ud800", "[" * 100_000],
    ids=lambda c: repr(c)[:8],
)
def test_flags_file_that_is_no_list_of_flags(folder: Path, content: str) -> None:
    (folder / "compile_flags.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidFlag, match=r"compile_flags\.json"):
        cached_flags(folder)


def test_folder_without_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"model\.hlo_module\.pb"):
        cache.read(tmp_path)


@pytest.mark.parametrize("name", ["model.txt", "graph.hlo", "model.pb"])
def test_text_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(SOURCE)
    assert text.to_text(proto.read(path)) == text.to_text(parse.from_text(SOURCE))
    assert api.compile(path).model.root.opcode == "dot"
    proto.write(parse.from_text(SOURCE), path)
    assert proto.read(path).root.opcode == "dot"


def test_text_may_begin_with_a_comment() -> None:
    assert proto.from_bytes(b"\n// a dump\n/* of XLA */ " + SOURCE.encode()).root.opcode == "dot"


def test_error_in_a_text_file_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(SOURCE.replace("dot(x, w)", "dot(x; w)"))
    with pytest.raises(NeuronSimError, match=r"bad\.txt: line 5, column 26"):
        api.compile(path)


def test_compressed_file_says_so() -> None:
    with pytest.raises(InvalidModel, match="gzip"):
        proto.from_bytes(gzip.compress(SOURCE.encode()))


# ---- whole caches, as torch-neuronx and libneuronxla write them ----------------------------------

COMPILER = "neuronxcc-2.21.18209.0+043b1bf7"
TRAINED = """\
HloModule SyncTensorsGraph.9
ENTRY main {
  p0.1 = f32[2,3] parameter(0)
  p1.2 = f32[4,2] parameter(1)
  ROOT y.3 = f32[4,3] dot(p1.2, p0.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def add_entry(root: Path, name: str, source: str | None = SOURCE, **files: str) -> Path:
    """A folder of a cache: the module, where there is one, and other files by their names."""
    entry = root / COMPILER / name
    entry.mkdir(parents=True)
    if source is not None:
        proto.write(parse.from_text(source), entry / "model.hlo_module.pb")
    for file, content in files.items():
        (entry / file.replace("__", ".")).write_text(content)
    return entry


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache with two graphs that compiled, one that neuronx-cc refused, one that is being compiled,
    a damaged one and one without a module; and what optimum-neuron keeps beside them.
    """
    add_entry(
        tmp_path,
        "MODULE_1111+e30acd3a",
        model__neff="x",
        model__done="",
        compile_flags__json='["--auto-cast=all", "--auto-cast-type=fp16"]',
    )
    add_entry(tmp_path, "MODULE_2222+e30acd3a", TRAINED, model__neff="x", model__done="")
    add_entry(tmp_path, "MODULE_3333+d41d8cd9", model__log="[NCC_EVRF001]", compile_flags__json="[]")
    add_entry(tmp_path, "MODULE_4444+d41d8cd9", model__hlo_module__pb__lock="")
    damaged = add_entry(tmp_path, "MODULE_5555+d41d8cd9", model__done="")
    whole = (damaged / "model.hlo_module.pb").read_bytes()
    (damaged / "model.hlo_module.pb").write_bytes(whole[: len(whole) // 2])
    add_entry(tmp_path, "MODULE_6666+d41d8cd9", None, model__neff="x", model__done="")
    (tmp_path / COMPILER / "0_REGISTRY" / "0.4.5").mkdir(parents=True)
    return tmp_path


def test_graphs_of_a_cache_root(root: Path) -> None:
    entries = {e.folder.name[7:11]: e for e in list_cache(root)}
    assert list(entries) == ["1111", "2222", "3333", "4444", "5555", "6666"]
    assert {n: e.state for n, e in entries.items()} == {
        **dict.fromkeys(["1111", "2222", "5555", "6666"], "compiled"),
        "3333": "failed",
        "4444": "locked",
    }
    assert {e.compiler for e in entries.values()} == {"2.21.18209.0"}
    one, trained = entries["1111"], entries["2222"]
    assert one.flags == ("--auto-cast=all", "--auto-cast-type=fp16")
    assert (one.graph, one.instructions, len(one.inputs)) == ("small", 3, 1)
    assert trained.graph == "SyncTensorsGraph.9"
    types = [str(t) for t in (*trained.inputs, *trained.outputs)]
    assert types == ["float32[2,3]", "float32[4,2]", "float32[4,3]"]
    assert trained.inputs[0].dtype is dtypes.float32


def test_a_broken_entry_is_named_and_the_rest_usable(root: Path) -> None:
    problems = {e.folder.name[7:11]: e.problem for e in list_cache(root) if e.problem}
    assert "5555" in problems["5555"]
    assert "not an HloModuleProto" in problems["5555"]
    assert problems["6666"] == "it holds no model.hlo_module.pb"
    assert sorted(problems) == ["5555", "6666"]
    flags = root / COMPILER / "MODULE_1111+e30acd3a" / "compile_flags.json"
    flags.write_text("{")
    (broken,) = [e for e in list_cache(root) if e.folder.name.startswith("MODULE_1111")]
    assert "compile_flags.json is not JSON" in broken.problem
    for usable in (e for e in list_cache(root) if not e.problem):
        assert api.compile(usable.folder).outputs == usable.outputs


def test_a_root_of_several_graphs_lists_them(root: Path) -> None:
    with pytest.raises(InvalidModel) as caught:
        api.compile(root)
    said = str(caught.value)
    assert "holds 4 graphs: give the folder of one" in said
    assert (
        "MODULE_2222+e30acd3a: SyncTensorsGraph.9 of 3 instructions, compiled, inputs float32" in said
    )
    assert "These cannot be used:" in said
    assert "MODULE_6666+d41d8cd9: it holds no model.hlo_module.pb" in said
    for function in (api.plan, api.lint, find_entry, cache.read):
        with pytest.raises(InvalidModel, match="holds 4 graphs"):
            function(root)


def test_the_only_usable_graph_of_a_root_is_taken(root: Path) -> None:
    for number in ("2222", "3333", "4444"):
        (entry,) = root.glob(f"*/MODULE_{number}*")
        (entry / "model.hlo_module.pb").unlink()
    settings = api.compile(str(root)).setup.settings
    assert (settings.auto_cast, settings.auto_cast_type) == ("all", "fp16")  # with its flags
    (last,) = root.glob("*/MODULE_1111*")
    (last / "model.hlo_module.pb").unlink()
    with pytest.raises(InvalidModel, match=r"(?s)holds no .* cannot be used:.*MODULE_1111"):
        api.compile(root)


def test_weights_of_a_cache_entry(root: Path) -> None:
    (entry,) = root.glob("*/MODULE_2222*")
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(root / "weights.npz", **{"0": kernel})
    program = api.compile(entry, weights=root / "weights.npz", flags="--auto-cast none")
    x = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(np.asarray(program(x)), x @ kernel)
    result = api.tune(entry, {"p1": np.ones((8, 2), np.float32)}, weights={"p0": kernel})
    assert result.rungs


def test_graph_of_a_compiler_workdir(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    proto.write(parse.from_text(SOURCE), tmp_path / "model" / "graph.hlo")
    assert api.compile(tmp_path).model.root.opcode == "dot"
    assert api.compile(tmp_path / "model" / "graph.hlo").model.root.opcode == "dot"


def test_caches_of_2023(tmp_path: Path) -> None:
    entry = tmp_path / "neuronxcc-2.12.54.0+f631c2365" / "MODULE_0b0ead5e2dfe538e89a4+2c2d707e"
    entry.mkdir(parents=True)
    proto.write(parse.from_text(SOURCE), entry / "model.hlo.pb")
    (entry / "compile_flags.txt").write_text("--model-type=transformer --auto-cast=all\n")
    assert api.compile(entry).setup.settings.auto_cast == "all"
    (found,) = list_cache(tmp_path)
    flags = ("--model-type=transformer", "--auto-cast=all")
    parts = (entry, "not compiled", "2.12.54.0", flags, "small", 3, found.inputs, found.outputs)
    assert found == CacheEntry(*parts)
    (entry / "compile_flags.txt").write_text("--auto-cast='all")
    with pytest.raises(InvalidFlag, match="no line of flags"):
        api.compile(entry)


def test_the_compiler_of_a_cache_is_told(root: Path) -> None:
    (entry,) = root.glob("*/MODULE_2222*")
    told = [m.text for m in api.compile(entry, sdk="2.29").setup.messages if "neuronx-cc" in m.text]
    assert told == [
        "the folder is of neuronx-cc 2.21.18209.0: sdk='2.21.18209.0' takes the defaults of SDK 2.26, "
        "neuronx-cc 2.21.18209.0"
    ]
    assert not [m for m in api.compile(entry, sdk="2.26").setup.messages if "neuronx-cc" in m.text]


def test_list_graphs(root: Path, commands: Commands) -> None:
    out = commands.ok("list-graphs", str(root))
    assert "6 graphs, of which neuronsim can read 4" in out
    assert "SyncTensorsGraph.9" in out
    assert "--auto-cast=all" in out
    assert "MODULE_6666+d41d8cd9: it holds no model.hlo_module.pb" in out
    report = json.loads(commands.ok("list-graphs", str(root), "--json"))
    assert [e["state"] for e in report][:3] == ["compiled", "compiled", "failed"]
    assert report[1]["inputs"] == ["float32[2,3]", "float32[4,2]"]
    assert "is no folder" in commands.refused("list-graphs", str(root / "none"))
    one = str(next(root.glob("*/MODULE_2222*")))
    assert f"{one}: 1 graph, of which neuronsim can read 1\n" in commands.ok("list-graphs", one)


def test_commands_of_the_page_on_neurons_artefacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    """Every command of docs/neuron_artefacts.md, as it stands there, on a cache of its layout."""
    page = Path(__file__).parents[2] / "docs" / "neuron_artefacts.md"
    lines = re.findall(r"^    neuronsim (.*)$", page.read_text(), re.MULTILINE)
    add_entry(tmp_path / "cache", "MODULE_1+e30acd3a", model__done="")
    add_entry(tmp_path / "cache", "MODULE_2+e30acd3a", TRAINED)
    kernel, x = np.ones((2, 3), np.float32), np.ones((8, 2), np.float32)
    np.savez(tmp_path / "weights.npz", kernel)
    header = b'{"p0": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}'
    data = len(header).to_bytes(8, "little") + header + kernel.tobytes()
    (tmp_path / "weights.safetensors").write_bytes(data)
    np.savez(tmp_path / "x.npz", p1=x)
    np.savez(tmp_path / "a.npz", a=np.stack([np.eye(3, dtype=np.float32)] * 2))
    solve = "HloModule s\nENTRY e { a = f32[2,3,3] parameter(0)\n ROOT y = f32[2,3,3] cholesky(a) }"
    (tmp_path / "solve.hlo.pb").write_bytes(proto.to_bytes(parse.from_text(solve)))
    monkeypatch.chdir(tmp_path)
    assert len(lines) == 6
    for line in lines:
        commands.ok(*line.split())
    assert np.load("y.npz")["output_0"].shape == (2, 3, 3)
