"""Folders of AWS's compile cache, and files that are text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from neuronsim import api
from neuronsim.errors import InvalidFlag, InvalidModel, NeuronSimError
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.cache import cached_flags

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
    assert proto.read(folder).root.opcode == "dot"
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
        proto.read(tmp_path)


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
