"""Arrays in NumPy's files, which keep the type.

A type that NumPy has is written as NumPy writes it. Any other is written as a structured array with one
field of storage bits that is named after the type, `[("bfloat16", "<u2")]`: NumPy opens it, and `load`
finds the type by the name. Objects are never pickled, and never unpickled.

>>> import io
>>> file = io.BytesIO()
>>> save(file, asarray([1.0, 0.3], dtype="bfloat16"))
>>> _ = file.seek(0)
>>> load(file)
Array([1. , 0.3], dtype=bfloat16)
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from tokenize import TokenError
from types import SimpleNamespace
from typing import IO, Any, Literal, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array, exact_values
from neuronsim.arrays.conversion import asarray, convert
from neuronsim.arrays.default_types import array_type, default_dtype
from neuronsim.dtypes import DType, DTypeLike, as_dtype
from neuronsim.errors import (
    REFUSALS,
    InaccessibleFile,
    InvalidArgument,
    InvalidData,
    NeuronSimError,
    UnsupportedType,
    inaccessible,
    refusal,
    with_warnings_at_the_users_line,
)
from neuronsim.whole_files import open_regular, replacing

# `load` is not among them: the package's is api.load, which reads compiled programs too.
__all__ = ["genfromtxt", "loadtxt", "save", "savetxt", "savez", "savez_compressed"]

File = str | os.PathLike[str] | IO[bytes]
MmapMode = Literal["r", "r+", "c"]

# What Python's zip and NumPy's header readers raise for damaged files.
DAMAGED = (
    ValueError,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,  # a place that a damaged archive says, and no file has
    OverflowError,
    RecursionError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    TokenError,
    TypeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
# Of text, whose encoding may be none.
_DAMAGED_TEXT = (*DAMAGED, AttributeError, LookupError)
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_BLOCK = 1 << 20
_LARGEST_DEFLATION = 1032  # what one byte of a deflate stream can stand for (zlib's technical notes)


def _is_numpys(dtype: DType) -> bool:
    """Whether the type is one of NumPy's own; bfloat16 and float8 are added to it by ml_dtypes."""
    return dtype is not dtypes.tfloat32 and dtype.numpy.isbuiltin == 1


# ---- writing -----------------------------------------------------------------------------------


def _labelled(x: Any) -> npt.NDArray[Any]:
    """The array as it is written: of NumPy's own type, or of one field that names the type."""
    a = asarray(x)
    if _is_numpys(a.dtype):
        return np.asarray(a)
    bits = np.ascontiguousarray(a.bits.data).reshape(a.shape)
    return bits.view([(a.dtype.name, a.dtype.storage)])


@contextmanager
def _writing(file: Any, suffix: str) -> Iterator[IO[bytes]]:
    """A file to write: the one that is given, or that of a name, to which the suffix is appended. What
    the system says of a name is InaccessibleFile already; a caller's own OSError passes.
    """
    try:
        if hasattr(file, "write"):
            if hasattr(file, "writable") and not file.writable():
                raise InvalidArgument("the file object is open for reading only")
            yield cast(IO[bytes], _Whole(file))
            return
        name = os.fsdecode(file)
        with replacing(name if name.endswith(suffix) else name + suffix) as stream:
            yield stream
    except (*REFUSALS, LookupError) as error:  # of an encoding too
        raise refusal("cannot write the arrays", error) from error


class _Whole:
    """A caller's file object, of which a write of fewer bytes than given is an error."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        size = len(data) if isinstance(data, str) else memoryview(data).nbytes
        written = self._file.write(data)
        if written is not None and written != size:  # objects may say nothing
            raise InaccessibleFile(f"cannot write the arrays: {written} of {size} were written")
        return size


def save(file: File, arr: Any, allow_pickle: bool = False) -> None:
    """Writes an array to a `.npy` file, with its type; `.npy` is appended to a name without it. A file
    of that name stays as it is until the new one is whole, and if that cannot be written. A file object
    is written into as it stands: its own OSErrors pass, and a write of fewer bytes is InaccessibleFile.
    """
    _refuse_pickle(allow_pickle)
    labelled = _labelled(arr)
    with _writing(file, ".npy") as stream:
        # Of a file NumPy takes the descriptor, and does not see the error of the last bytes.
        np.save(SimpleNamespace(write=stream.write), labelled, allow_pickle=False)


def savez(file: File, *args: Any, **kwds: Any) -> None:
    """Writes arrays to an uncompressed `.npz` file, each with its type: the positional ones are named
    arr_0, arr_1, ..., the others by their keywords.
    """
    _save_archive(np.savez, file, args, kwds)


def savez_compressed(file: File, *args: Any, **kwds: Any) -> None:
    """`savez` with deflated members."""
    _save_archive(np.savez_compressed, file, args, kwds)


def _save_archive(write: Any, file: File, args: tuple[Any, ...], kwds: dict[str, Any]) -> None:
    labelled = {name: _labelled(x) for name, x in kwds.items()}
    positional = [_labelled(x) for x in args]
    with _writing(file, ".npz") as stream:
        write(stream, *positional, **labelled)


def _refuse_pickle(allow_pickle: bool) -> None:
    if allow_pickle:
        raise InvalidArgument("allow_pickle: arrays hold numbers, and neuronsim unpickles nothing")


# ---- reading -----------------------------------------------------------------------------------


def load(
    file: File,
    mmap_mode: MmapMode | None = None,
    allow_pickle: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Array | NpzFile:
    """The array of a `.npy` file, or the arrays of a `.npz` file by name, each with its type.

    `dtype` names the type of files that do not: ml_dtypes' arrays that NumPy saved are voids. With
    `mmap_mode` ("r", "r+", "c") a `.npy` file is mapped, not read: while the array is used nobody may
    shorten it. Raises InvalidData for a file that is damaged, or that holds fewer bytes than its header
    says, and InaccessibleFile, an OSError, for one that is none.
    """
    _refuse_pickle(allow_pickle)
    if mmap_mode not in (None, "r", "r+", "c"):
        raise InvalidArgument(f"mmap_mode is 'r', 'r+', 'c' or None, not {mmap_mode!r}")
    named = None if dtype is None else array_type(dtype)
    if hasattr(file, "read"):
        return _load(cast(IO[bytes], file), named, file)
    with open_regular(file) as stream:
        return _load(stream, named, file, os.fspath(file), mmap_mode)


def _load(
    stream: IO[bytes],
    named: DType | None,
    file: Any,
    path: str | None = None,
    mmap_mode: MmapMode | None = None,
) -> Array | NpzFile:
    try:
        start = stream.tell()
        magic = stream.read(len(npy.MAGIC_PREFIX))
        end = stream.seek(0, os.SEEK_END)
        stream.seek(start)
        if magic[:2] == b"PK":
            return NpzFile(zipfile.ZipFile(stream if path is None else path), named)
        if magic == npy.MAGIC_PREFIX:
            return _read(stream, end, named, path, mmap_mode)
        raise InvalidData(
            "it starts neither as a .npy nor as a .npz file does (compile() reads models)"
        )
    except InvalidData as error:
        raise InvalidData(f"cannot load {_name(file)}: {error}") from error
    except NeuronSimError:
        raise
    except DAMAGED as error:
        raise InvalidData(f"cannot load {_name(file)}: {error}") from error


def _name(file: Any) -> str:
    return repr(os.fspath(file)) if isinstance(file, str | os.PathLike) else "the array file"


def _read(
    stream: IO[bytes],
    end: int,
    named: DType | None,
    path: str | None = None,
    mode: MmapMode | None = None,
) -> Array:
    """The array of a `.npy` stream that goes to `end`; in place if a path and a mode are given."""
    version = npy.read_magic(stream)
    if version not in _READERS:
        raise InvalidData(f"version {version[0]}.{version[1]} of the format has no arrays of numbers")
    shape, is_fortran, stored = with_warnings_at_the_users_line(_READERS[version], stream)
    if any(isinstance(n, bool) for n in shape):
        raise InvalidData(f"its header says that its shape is {shape}")
    dtype = _type(stored, named)
    size = math.prod(shape) * stored.itemsize
    if min(shape, default=0) < 0 or size > end - stream.tell():
        raise InvalidData(
            f"its header says {dtype.name}{list(shape)}, {size} bytes, and {end - stream.tell()} follow"
        )
    if path is not None and mode is not None and size:
        if not stored.isnative:
            raise InvalidArgument("the file has the other byte order: load it without mmap_mode")
        order: Literal["C", "F"] = "F" if is_fortran else "C"
        mapped = np.memmap(path, stored, mode, stream.tell(), shape, order)
        return _checked(mapped.view(np.ndarray).view(dtype.storage), dtype)
    content = np.empty(size, np.uint8)
    for start in range(0, size, _BLOCK):
        block = stream.read(min(_BLOCK, size - start))
        content[start : start + len(block)] = np.frombuffer(block, np.uint8)
    data = content.view(dtype.storage.newbyteorder("=" if stored.isnative else "S"))
    data = data.astype(dtype.storage, copy=False)
    return _checked(data.reshape(shape[::-1]).T if is_fortran else data.reshape(shape), dtype)


def _type(stored: np.dtype, named: DType | None) -> DType:
    """The element type of a file: what its header names, or what the caller does for voids."""
    if stored.hasobject:
        raise InvalidData("it holds pickled objects, which are never loaded")
    native = stored.newbyteorder("=")
    if native.names is None and native.kind == "V":
        if named is None or _is_numpys(named) or named.itemsize != native.itemsize:
            raise InvalidData(
                f"its elements are {native.itemsize} bytes without a type: say which one with dtype=, "
                'as in load(file, dtype="bfloat16")'
            )
        return named
    if native.names is not None:
        found = dtypes.DTYPES.get(native.names[0])
        if found is None or _is_numpys(found) or native != np.dtype([(found.name, found.storage)]):
            raise InvalidData(f"its elements are records, {native}: neuronsim has arrays of numbers")
    else:
        found = as_dtype(native)
    if named not in (None, found):
        raise InvalidArgument(
            f"the file holds {found.name}, not {named}: load it as it is, then use astype"
        )
    return found


def _checked(data: npt.NDArray[Any], dtype: DType) -> Array:
    """The array of the bits of a file, all of which its type must have."""
    if dtype is dtypes.boolean and data.view(np.uint8).max(initial=0) > 1:
        raise InvalidData("a bool in it is neither 0 nor 1")
    if dtype is dtypes.tfloat32 and (data.view(np.uint32) & 0x1FFF).any():
        raise InvalidData("a tfloat32 in it has a bit beyond the ten of its mantissa")
    return Array(ops.Bits(data, dtype))


class NpzFile(Mapping[str, Array]):
    """The arrays of a `.npz` file by name, read when asked for. Close it, or use it with `with`."""

    def __init__(self, archive: zipfile.ZipFile, dtype: DType | None = None) -> None:
        self._archive = archive
        self._dtype = dtype
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def __getitem__(self, key: str) -> Array:
        if key not in self:
            raise KeyError(f"{key!r} is not one of the arrays: {', '.join(self._members)}")
        info = self._members[key.removesuffix(".npy")]
        if info.file_size > _LARGEST_DEFLATION * max(info.compress_size, 1):
            raise InvalidData(
                f"{key!r} says that it has {info.file_size} bytes, more than its {info.compress_size} "
                "compressed ones can hold"
            )
        try:
            with self._archive.open(info) as stream:
                array = _read(stream, info.file_size, self._dtype)
                if stream.read(1):  # which also compares the checksum
                    raise InvalidData("bytes follow the array")
                return array
        except InvalidData as error:
            raise InvalidData(f"cannot load {key!r}: {error}") from error
        except UnsupportedType as error:
            raise UnsupportedType(f"cannot load {key!r}: {error}") from error
        except NeuronSimError:
            raise
        except DAMAGED as error:
            raise InvalidData(f"cannot load {key!r}: {error}") from error

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.removesuffix(".npy") in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"NpzFile with keys: {', '.join(self._members)}"

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file: no array is read from it any more."""
        self._archive.close()


# ---- text --------------------------------------------------------------------------------------


def _parsed(dtype: DTypeLike | None) -> tuple[DType, np.dtype]:
    """The type of a text file's array, and the type in which NumPy reads it."""
    target = default_dtype() if dtype is None else array_type(dtype)
    wide = {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}
    return target, wide.get(target.kind, target.numpy)


def loadtxt(fname: Any, dtype: DTypeLike | None = None, *args: Any, **options: Any) -> Array:
    """The numbers of a text file, with NumPy's options: NumPy reads floats as float64, then each is
    rounded once to `dtype`, the default float type if None.

    >>> loadtxt(["1 2.5", "3 0.1"], dtype="bfloat16")
    Array([[1. , 2.5],
           [3. , 0.1]], dtype=bfloat16)
    """
    return _read_text(np.loadtxt, fname, dtype, args, options)


def genfromtxt(fname: Any, dtype: DTypeLike | None = None, *args: Any, **options: Any) -> Array:
    """`loadtxt` for files in which values are missing, with NumPy's options but names and masks."""
    if options.get("usemask"):
        raise InvalidArgument(
            "usemask: there are no masked arrays; missing values become filling_values"
        )
    return _read_text(np.genfromtxt, fname, dtype, args, options)


def _read_text(
    read: Any, fname: Any, dtype: DTypeLike | None, args: tuple[Any, ...], options: dict[str, Any]
) -> Array:
    target, wide = _parsed(dtype)
    try:
        if isinstance(fname, str | os.PathLike) and os.path.exists(fname):
            with open_regular(fname):  # a pipe or a device may have no end
                pass
        found = with_warnings_at_the_users_line(read, fname, wide, *args, **options)
    except OSError as error:
        raise inaccessible(f"{read.__name__} cannot read {_name(fname)}", error) from error
    except _DAMAGED_TEXT as error:
        raise refusal(f"{read.__name__} cannot read {_name(fname)}", error) from error
    return convert(asarray(found), target)


def savetxt(fname: Any, X: Any, *args: Any, **options: Any) -> None:  # noqa: N803 (NumPy's name)
    """Writes an array of one or two axes as text, with NumPy's options, from its exact values; packed
    where the name ends in .gz, .bz2 or .xz.
    """
    given = dict(zip(_TEXT_OPTIONS, args, strict=False)) | options
    for name in _TEXT_OPTIONS[1:6]:
        if not isinstance(given.get(name, ""), str):
            raise UnsupportedType(f"savetxt: {name} is a text, not {given[name]!r}")
    values = exact_values(asarray(X))
    with _writing(fname, "") as stream, ExitStack() as opened:
        text: Any = stream
        if not hasattr(fname, "write"):
            compress = _COMPRESSED.get(os.path.splitext(os.fsdecode(fname))[1])
            packed = stream if compress is None else opened.enter_context(compress(stream, "wb"))
            text = io.TextIOWrapper(cast(Any, packed), options.get("encoding"), newline="")
            opened.callback(text.detach)
        np.savetxt(text, values, *args, **options)


# Of savetxt, in their order.
_TEXT_OPTIONS = ("fmt", "delimiter", "newline", "header", "footer", "comments", "encoding")
_COMPRESSED: Mapping[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
