"""Arrays in files: the type and every bit come back, and damaged files are refused."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
from moved_bits import every_pattern
from tests.support.parameters import each_of
from tests.support.words import assert_same

import neuronsim as np
from neuronsim.arrays import files
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import (
    InaccessibleFile,
    InvalidArgument,
    InvalidData,
    InvalidModel,
    NeuronSimError,
    UnsupportedType,
)

pytestmark = pytest.mark.isa_independent

TYPES = list(DTYPES.values())
NUMPYS = [t for t in TYPES if t.numpy.isbuiltin == 1 and t is not np.tfloat32]
OTHERS = [t for t in TYPES if t not in NUMPYS]
IDS = {"ids": lambda t: t.name}


def drawn(dtype: DType, shape: tuple[int, ...] = (3, 4)) -> np.Array:
    """Arbitrary bits of a type: NaNs with payloads too."""
    return every_pattern(dtype, shape)[0]


# ---- .npy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES, **IDS)
@pytest.mark.parametrize("shape", [(3, 4), (), (0,), (2, 0, 3)], ids=str)
def test_type_shape_and_bits_come_back(dtype: DType, shape: tuple[int, ...], tmp_path: Path) -> None:
    for x in (drawn(dtype, shape), drawn(dtype, shape).T[::-1] if shape else drawn(dtype)):
        np.save(tmp_path / "x", x)  # .npy
        assert_same(np.load(tmp_path / "x.npy"), x)
        for mode in ("r", "r+", "c"):
            assert_same(np.load(str(tmp_path / "x.npy"), mode), x)


@pytest.mark.parametrize("dtype", NUMPYS, **IDS)
def test_numpys_types_are_written_as_numpy_writes_them(dtype: DType) -> None:
    ours, theirs = io.BytesIO(), io.BytesIO()
    np.save(ours, drawn(dtype))
    numpy.save(theirs, numpy.asarray(drawn(dtype)))
    assert ours.getvalue() == theirs.getvalue()


@pytest.mark.parametrize("dtype", OTHERS, **IDS)
def test_numpy_opens_the_other_types_by_their_names(dtype: DType) -> None:
    file = io.BytesIO()
    np.save(file, drawn(dtype))
    file.seek(0)
    field = numpy.load(file)[dtype.name]
    assert field.dtype == dtype.storage
    assert field.tobytes() == drawn(dtype).tobytes()


@each_of("order", "CF")
@each_of("code", ["<f4", ">f4", ">u2", "<f2", "|b1", ">c8"])
def test_numpys_files_of_both_orders(code: str, order: Any) -> None:
    given = numpy.array(numpy.arange(6).reshape(2, 3) % 2, code, order=order)
    file = io.BytesIO()
    numpy.save(file, given)
    file.seek(0)
    assert numpy.array_equal(numpy.asarray(np.load(file)), given)


def test_arrays_one_after_the_other_in_a_file() -> None:
    file = io.BytesIO()
    for i in range(3):
        np.save(file, np.full((i,), 0.3, np.bfloat16))
    file.seek(0)
    assert [np.load(file).size for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3"])
def test_files_of_ml_dtypes_need_the_word(name: str) -> None:
    given = numpy.array([1.0, 0.3], getattr(ml_dtypes, name))
    file = io.BytesIO()
    numpy.save(file, given)
    content = file.getvalue()
    assert_same(np.load(io.BytesIO(content), dtype=name), np.asarray(given))
    with pytest.raises(InvalidData, match=r"dtype="):
        np.load(io.BytesIO(content))
    with pytest.raises(InvalidData, match=r"dtype="):
        np.load(io.BytesIO(content), dtype=np.float32)


def test_a_file_that_names_its_type_takes_no_other() -> None:
    file = io.BytesIO()
    np.save(file, np.ones(2, np.bfloat16))
    file.seek(0)
    with pytest.raises(InvalidArgument, match="holds bfloat16"):
        np.load(file, dtype=np.float16)


def test_a_map_writes_through_and_a_copy_does_not(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(2, np.bfloat16))
    np.load(path, "c").bits.data[:] = 0x3F80
    assert np.load(path).tolist() == [0, 0]
    np.load(path, "r+").bits.data[:] = 0x3F80
    assert np.load(path).tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        np.load(path, "r").bits.data[:] = 0
    base = np.load(path, "r").bits.data
    while isinstance(base.base, numpy.ndarray):
        base = base.base
    assert isinstance(base, numpy.memmap)


# ---- .npz ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=lambda f: f.__name__)
def test_archives_keep_every_type(write: Any, tmp_path: Path) -> None:
    arrays = {t.name: drawn(t) for t in TYPES}
    write(tmp_path / "a.npz", [1.5, 2.5], **arrays)
    with np.load(tmp_path / "a.npz") as archive:
        assert sorted(archive.files) == sorted(archive) == sorted(["arr_0", *arrays])
        assert len(archive) == len(arrays) + 1
        for name, x in arrays.items():
            assert_same(archive[name], x)
        assert_same(archive["bfloat16.npy"], arrays["bfloat16"])
        assert archive["arr_0"].tolist() == [1.5, 2.5]
        assert "int8" in archive
        assert "int9" not in archive
        with pytest.raises(KeyError, match="int9"):
            archive["int9"]
    with numpy.load(tmp_path / "a.npz") as archive:
        assert archive["float16"].dtype == numpy.float16


def test_a_closed_archive_says_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=[1.0])
    archive = np.load(tmp_path / "a.npz")
    archive.close()
    with pytest.raises(InvalidData, match="closed"):
        archive["x"]


# ---- damaged and hostile files -------------------------------------------------------------------


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    length = (
        struct.pack("<H", len(header)) if version == b"\x01\x00" else struct.pack("<I", len(header))
    )
    return b"\x93NUMPY" + version + length + header.encode() + data


def header(descr: str = "'<f4'", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


HOSTILE = {
    "empty": b"",
    "text": b"1,2,3\n",
    "magic alone": b"\x93NUMPY",
    "short header": npy(header())[:40],
    "short data": npy(header(), b"\0" * 7),
    "huge shape": npy(header(shape="(1000000, 1000000, 1000000)"), b"\0" * 8),
    "beyond 64 bits": npy(header(shape=f"({2**70}, 0)")),
    "negative shape": npy(header(shape="(-1, -2)"), b"\0" * 8),
    "shape of a number": npy(header(shape="2"), b"\0" * 8),
    "objects": npy(header("'|O'"), b"\x80\x04N."),
    "objects in a record": npy(header("[('bfloat16', '|O')]"), b"\0" * 16),
    "record of another size": npy(header("[('bfloat16', '<u4')]"), b"\0" * 8),
    "record of another name": npy(header("[('brain', '<u2')]"), b"\0" * 4),
    "record of two": npy(header("[('bfloat16', '<u2'), ('x', '<u2')]"), b"\0" * 8),
    "code in the header": npy("__import__('os').abort()\n", b"\0" * 8),
    "open bracket in the header": npy("{'descr': ('<f4',\n", b"\0" * 8),
    "no Python in the header": npy("{'descr': '<f4' 1L}\n", b"\0" * 8),
    "long header": npy(header() + " " * 20000, b"\0" * 8),
    "unknown version": npy(header(), b"\0" * 8, b"\x09\x00"),
    "two as a bool": npy(header("'|b1'"), b"\x01\x02"),
    "tfloat32 with 23 bits": npy(header("[('tfloat32', '<f4')]"), b"\1\0\x80\x3f" * 2),
    **{
        f"shape {shape[:20]}": npy(header(shape=shape), bytes(256))
        for shape in (
            *("(True, 64)", "(False,)", "(2.0,)", "(2, None)", "((2,),)", "('2',)", "[2]", "{2}"),
            *("None", "(-1,)", "(0, -1)", "(1j,)", f"(0, {2**70})", f"({2**63},)"),
            *(f"({'1, ' * 65})", "(1e5,)"),
        )
    },
    **{
        f"type {descr[:20]}": npy(header(descr), bytes(256))
        for descr in (
            *("None", "1", "True", "[]", "{}", "()", "''", "'<f3'", "'(2,)<f4'", "'f4,f4'", "'V0'"),
            *("[('a', '<f4')]", "[('x', [('y', '<f4')])]", "[('bfloat16', '<u2', (2,))]", "b'<f4'"),
            *("[[[['f4']]]]", "('f4', (2,))", "{'names': ['a'], 'formats': ['f4']}", "'V8'", "'='"),
        )
    },
    **{
        f"header {text[:20]}": npy(text, bytes(256))
        for text in (
            *("{", "(" * 1000, "[" * 9000, "-" * 9000 + "1", "1", "'a'", "set()", "{1: 2, 'a': 3}"),
            "{'descr': '<f4', 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        )
    },
    **{f"version {v[0]}.{v[1]}": npy(header(), bytes(8), v) for v in (b"\0\0", b"\3\0", b"\1\1")},
    "zip without members": b"PK\x05\x06" + b"\0" * 10,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(InvalidData, match="cannot load"):
        np.load(path)
    with pytest.raises(InvalidData, match="cannot load"):
        np.load(io.BytesIO(HOSTILE[name]))
    if name not in ("two as a bool", "tfloat32 with 23 bits"):
        with pytest.raises(InvalidData, match="cannot load"):
            np.load(path, "r")


def test_the_control_is_accepted() -> None:
    assert np.load(io.BytesIO(npy(header(), b"\0" * 8))).tolist() == [0, 0]
    tfloat32 = npy(header("[('tfloat32', '<f4')]"), b"\0\0\x80\x3f" * 2)
    assert np.load(io.BytesIO(tfloat32)).tolist() == [1, 1]


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    return file.getvalue()


@each_of("name", [n for n in HOSTILE if not n.startswith("zip")])
def test_damaged_members_are_refused(name: str) -> None:
    archive = np.load(io.BytesIO(zipped(HOSTILE[name])))
    with pytest.raises(InvalidData, match="cannot load 'x'"):
        archive["x"]


def test_members_of_false_size_or_checksum_are_refused() -> None:
    good = zipped(npy(header(shape="(1024,)"), bytes(4096)))
    assert np.load(io.BytesIO(good))["x"].size == 1024
    entry = good.rindex(b"PK\x01\x02")
    large = bytearray(good)
    large[entry + 24 : entry + 28] = struct.pack("<I", 2**31)
    with pytest.raises(InvalidData, match="more than"):
        np.load(io.BytesIO(large))["x"]
    wrong = bytearray(good)
    wrong[entry + 16] ^= 1
    with pytest.raises(InvalidData, match="CRC"):
        np.load(io.BytesIO(wrong))["x"]
    with pytest.raises(InvalidData):
        np.load(io.BytesIO(good[:-30]))


def test_a_place_beyond_every_file_is_refused() -> None:
    good = zipped(npy(header(), bytes(8)))
    entry = good.rindex(b"PK\x01\x02")
    for at in range(entry, len(good)):
        wrong = bytearray(good)
        wrong[at] = 0xFF
        with contextlib.suppress(InvalidData, InvalidArgument):
            archive = np.load(io.BytesIO(wrong))
            [archive[name] for name in archive]


@pytest.mark.parametrize("dtype", [np.float32, np.bfloat16], **IDS)
def test_every_truncation_is_refused(dtype: DType) -> None:
    file = io.BytesIO()
    np.save(file, np.ones(3, dtype))
    content = file.getvalue()
    for length in range(len(content)):
        with pytest.raises(InvalidData):
            np.load(io.BytesIO(content[:length]))


def test_pickles_strings_and_missing_files(tmp_path: Path) -> None:
    path, text = tmp_path / "x.npy", tmp_path / "s.npy"
    numpy.save(text, numpy.array(["a"]))
    for call, error, said in (
        (lambda: np.load(path, allow_pickle=True), InvalidArgument, "pickle"),
        (lambda: np.save(path, [1.0], allow_pickle=True), InvalidArgument, "pickle"),
        (lambda: np.load(path), FileNotFoundError, None),
        (lambda: np.load(path, "w+"), InvalidArgument, "mmap_mode"),
        (lambda: np.load(text), UnsupportedType, "U1"),
    ):
        with pytest.raises(error, match=said):
            call()


def test_files_of_programs_are_loaded_as_before(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "model.hlo.pb"
    np.compile(model).save(tmp_path / "p.nsim")
    (tmp_path / "p.nsim").rename(tmp_path / "renamed")
    assert type(np.load(tmp_path / "renamed")).__name__ == "CompiledProgram"
    for call, error in (
        (lambda: files.load(tmp_path / "renamed")["plan.json"], InvalidData),
        (lambda: np.load(tmp_path / "missing.nsim"), InvalidModel),
        (lambda: np.load(model), InvalidData),
        (lambda: np.load(tmp_path), IsADirectoryError),
    ):
        with pytest.raises(error):
            call()


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.kind == "float"], **IDS)
def test_text_keeps_every_value(dtype: DType, tmp_path: Path) -> None:
    x = np.asarray([[1 / 3, -2.0], [0.0, 15.5]], dtype)
    np.savetxt(tmp_path / "x.txt", x)
    again = np.loadtxt(tmp_path / "x.txt", dtype)
    assert_same(again, x)
    assert again.tobytes() == np.genfromtxt(tmp_path / "x.txt", dtype).tobytes()


def test_text_is_rounded_once_from_float64() -> None:
    number = str(1 + 2**-8 + 2**-40)  # by way of float32 it would become 1 (C1)
    assert np.loadtxt([number, "1"], np.bfloat16).tolist() == [1.0078125, 1.0]
    assert np.loadtxt([number]).dtype is np.float32


def test_options_of_text() -> None:
    lines = ["# x y", "1;2;3", "4;5;6"]
    first, last = np.loadtxt(lines, np.int16, delimiter=";", usecols=(0, 2), unpack=True)
    assert (first.tolist(), last.tolist(), first.dtype) == ([1, 4], [3, 6], np.int16)
    missing = np.genfromtxt(["1,,3"], delimiter=",", filling_values=7)
    assert missing.tolist() == [1, 7, 3]
    assert np.loadtxt(["1+2j"], complex).tolist() == 1 + 2j
    for call, said in (
        (lambda: np.genfromtxt(["1,,3"], delimiter=",", usemask=True), "masked"),
        (lambda: np.loadtxt(["a"]), "row 0"),
        (lambda: np.genfromtxt(["1 2", "3"]), "Line #2"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            call()
    for read in (np.loadtxt, np.genfromtxt):
        with pytest.raises(NeuronSimError, match="cannot read the array file"):
            read(np.ones(3))
    out = io.StringIO()
    np.savetxt(out, np.asarray([1.5, 2], np.bfloat16), fmt="%.1f", header="v")
    assert out.getvalue() == "# v\n1.5\n2.0\n"


@pytest.mark.parametrize("read", [np.loadtxt, np.genfromtxt])
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_damaged_text_files_are_refused(read: Any, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    np.savetxt(path, drawn(np.float32, (300, 4)))
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], whole[:40] + b"x" * 20 + whole[60:], b"x"):
        path.write_bytes(damaged)
        with pytest.raises(NeuronSimError, match=r"cannot read .*x\."):
            read(path)


def test_encodings_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    np.savetxt(path, np.ones(3))
    for call in (
        lambda: np.loadtxt(path, encoding="nope"),
        lambda: np.genfromtxt(path, encoding="nope"),
        lambda: np.savetxt(path, np.ones(3), encoding="nope"),
        lambda: np.savetxt(io.BytesIO(), np.ones(3), encoding="nope"),
    ):
        with pytest.raises(NeuronSimError, match="unknown encoding: nope"):
            call()
    assert np.loadtxt(path).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["delimiter", "newline", "header", "footer", "comments"])
def test_options_of_text_that_are_none_are_named(name: str) -> None:
    with pytest.raises(UnsupportedType, match=f"savetxt: {name} is a text, not 3"):
        np.savetxt(io.BytesIO(), np.ones((2, 2)), **{name: 3})
    with pytest.raises(UnsupportedType, match="savetxt: delimiter is a text, not 3"):
        np.savetxt(io.BytesIO(), np.ones((2, 2)), "%g", 3)


WRITES = [np.save, np.savez, np.savez_compressed, np.savetxt]


@pytest.mark.parametrize("write", WRITES)
def test_a_file_object_for_reading_is_not_written(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"kept")
    with path.open("rb") as file, pytest.raises(InvalidArgument, match="open for reading only"):
        write(file, np.ones(3))
    assert path.read_bytes() == b"kept"


@pytest.mark.parametrize("write", WRITES)
def test_a_short_write_is_an_error_and_the_callers_own_errors_pass(write: Any) -> None:
    class Short(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data)[: max(len(data) - 1, 0)])

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "own error")

    class Silent(io.BytesIO):
        def write(self, data: Any) -> Any:
            super().write(data)

    with pytest.raises(InaccessibleFile, match=r"cannot write the arrays: \d+ of \d+"):
        write(Short(), np.ones(1000))
    with pytest.raises(OSError, match="own error"):
        write(Full(), np.ones(1000))
    file = Silent()
    write(file, np.ones(1000))
    assert file.tell() >= 100
