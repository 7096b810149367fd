"""Files as wholes: regular ones are read, and what is written takes its place all at once.

An output is written beside the file that it replaces and renamed when it is on the disk, so that a full
disk, an interrupt or a second run leaves either the old file or a whole new one, and no other. Symbolic
links are followed, hard links keep the old content; permissions and ownership of a file stay. What is
no regular file (a terminal, a pipe, /dev/stdout) is written straight.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     write_text(f"{folder}/plan.json", "{}")
...     os.listdir(folder), read_bytes(f"{folder}/plan.json")
(['plan.json'], b'{}')
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias

from neuronsim.errors import (
    InaccessibleFile,
    InvalidArgument,
    OutOfMemory,
    UnsupportedType,
    inaccessible,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FilePath: TypeAlias = str | os.PathLike[str]

_DESCRIPTOR = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d+)")
_MOST_LINKS = 40  # Linux's own limit
# Where a folder takes no new file, or not in the place of this one, but the file may be written.
_NO_NEW_FILE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")

# ---- reading -----------------------------------------------------------------------------------


@contextmanager
def open_regular(path: FilePath) -> Iterator[BinaryIO]:
    """A regular file to read. Raises InaccessibleFile for a folder, and at once for a pipe or a device,
    which may give nothing, or no end.
    """
    with _as_ours("read", path):
        descriptor = os.open(_text(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, "it is no regular file (Is a directory)")
            raise OSError(errno.EINVAL, "it is no regular file")
    with open(descriptor, "rb") as file:
        yield file


def read_rest(file: BinaryIO, path: FilePath) -> bytes:
    """The bytes of a file from where it stands. Raises OutOfMemory for more than this machine has."""
    size = os.fstat(file.fileno()).st_size - file.tell()
    try:
        if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise MemoryError
        with _as_ours("read", path):
            return file.read()
    except MemoryError as error:
        raise OutOfMemory(f"{path} has {size} bytes, more than this machine's memory") from error


def read_bytes(path: FilePath) -> bytes:
    """The bytes of a regular file."""
    with open_regular(path) as file:
        return read_rest(file, path)


# ---- writing -----------------------------------------------------------------------------------


def check_writable(path: FilePath) -> None:
    """Before any work, and changing nothing: raises InaccessibleFile where `replacing` would."""
    with _as_ours("write", path):
        place = _place(_text(path))
        if place.descriptor is not None:
            os.fstat(place.descriptor)
        elif place.status is not None:
            _check_access(place.target, os.W_OK)
        else:
            _check_access(os.path.dirname(place.target), os.W_OK | os.X_OK)


def _check_access(path: str, mode: int) -> None:
    if not os.access(path, mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def replacing(path: FilePath) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and else leaves nothing.

    Where a new file cannot take that place with the old one's owner (in a folder that cannot be
    written, of another user's, mounted on its own), the old file is written over once all of the new is
    there. Raises InaccessibleFile.
    """
    check_writable(path)
    with _as_ours("write", path):
        place = _place(_text(path))
    if place.descriptor is not None or place.is_straight:
        number = place.descriptor
        with _as_ours("write", path):
            raw = _Output(path, place.target if number is None else os.dup(number), "wb")
        with io.BufferedWriter(raw) as file:
            yield file
    else:
        yield from _beside(place, path)


class _Output(io.FileIO):
    """A file whose errors of writing are ours; those that a block meets elsewhere stay."""

    def __init__(self, output: FilePath, file: str | int, mode: str) -> None:
        self.output = output
        super().__init__(file, mode)

    def write(self, data: ReadableBuffer, /) -> int:
        with _as_ours("write", self.output):
            return super().write(data)

    def close(self) -> None:
        with _as_ours("write", self.output):
            super().close()


def write_text(path: FilePath, text: str) -> None:
    """Write a text, as UTF-8, in the place of a file's content."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"cannot write {_shown(path)}: its text has {text[error.start]!r}, which is no "
            "character of Unicode"
        ) from error
    with replacing(path) as file:
        file.write(data)


class _Place(NamedTuple):
    """Where an output goes: the file at the end of the links, as it is now, or a descriptor of this
    process, which /dev/stdout and its like name.
    """

    target: str
    status: os.stat_result | None = None
    is_straight: bool = False
    descriptor: int | None = None


def _place(path: str) -> _Place:
    """The place that a path names. Raises OSError, also where nothing can be written."""
    target, folder = path, ""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(target) or ".")
        target = os.path.join(folder, os.path.basename(target))
        if found := _DESCRIPTOR.fullmatch(target):
            if int(found[1]) == os.getpid():
                return _Place(target, descriptor=int(found[2]))
            return _Place(target, os.stat(target), is_straight=True)
        if not os.path.islink(target):
            break
        target = os.path.join(folder, os.readlink(target))
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    try:
        status = os.stat(target)
    except FileNotFoundError:
        os.stat(folder)  # which raises its own error
        status = None
    if path.endswith("/") or (status is not None and stat.S_ISDIR(status.st_mode)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return _Place(target, status, status is not None and not stat.S_ISREG(status.st_mode))


def _beside(place: _Place, path: FilePath) -> Iterator[BinaryIO]:
    """A new file in the folder of a place, renamed to it at the end."""
    temporary = os.path.join(os.path.dirname(place.target), f".neuronsim-{secrets.token_hex(8)}.tmp")
    fits = True
    with _as_ours("write", path):
        try:
            descriptor, has_name = _new_file(temporary)
        except OSError as error:
            if place.status is None or error.errno not in _NO_NEW_FILE:
                raise
            with tempfile.TemporaryFile() as elsewhere:
                descriptor, has_name, fits = os.dup(elsewhere.fileno()), False, False
        file = io.BufferedRandom(_Output(path, descriptor, "wb+"))
    try:
        with file:
            yield file
            with _as_ours("write", path):
                file.flush()
                os.fsync(file.fileno())
                if place.status is not None:
                    fits = fits and _take_after(file.fileno(), place.target, place.status)
                if fits and not has_name:
                    _name(file.fileno(), temporary)
                if not fits or not _renamed(temporary, place):
                    _write_over(place.target, file)
    finally:
        with suppress(FileNotFoundError, PermissionError):
            os.unlink(temporary)


def _new_file(name: str) -> tuple[int, bool]:
    """A file to write and read, with the permissions of new files, and whether it has its name yet:
    where the file system can, it has none until it is whole, so that a killed process leaves none.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.dirname(name), flags | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    else:
        if os.path.exists(f"/proc/self/fd/{descriptor}"):  # by which it gets its name
            return descriptor, False
        os.close(descriptor)
    return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666), True


def _name(descriptor: int, name: str) -> None:
    """Give a file without a name one."""
    # With a folder's descriptor, which an absolute path does not need, Python follows the link.
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor, follow_symlinks=True)


def _take_after(new: int, old: str, status: os.stat_result) -> bool:
    """Give a new file the owner, permissions and attributes of an old one; false if that cannot be."""
    try:
        own = os.fstat(new)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(new, status.st_uid, status.st_gid)
        os.fchmod(new, stat.S_IMODE(status.st_mode))
        for attribute in _attributes(old):
            os.setxattr(new, attribute, os.getxattr(old, attribute))
    except OSError as error:
        if error.errno not in _NO_NEW_FILE:
            raise
        return False
    return True


def _attributes(path: str) -> list[str]:
    """The extended attributes of a file that a new one takes over; none where there are no such."""
    try:
        return [name for name in os.listxattr(path) if name.startswith(_KEPT_ATTRIBUTES)]
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return []


def _renamed(temporary: str, place: _Place) -> bool:
    """Rename a whole file to its place; false if what is there can only be written over."""
    try:
        os.replace(temporary, place.target)
    except OSError as error:
        if place.status is None or error.errno not in _NO_NEW_FILE:
            raise
        return False
    return True


def _write_over(target: str, content: IO[bytes]) -> None:
    """Write a content that is whole over an existing file, whose room is reserved before."""
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    with open(target, "r+b") as file:
        before = os.fstat(file.fileno()).st_size
        try:
            if size > before:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            file.truncate(before)
            raise
        shutil.copyfileobj(content, file)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


# ---- names and errors --------------------------------------------------------------------------


@contextmanager
def _as_ours(verb: str, path: FilePath) -> Iterator[None]:
    """The system's errors, as those of ours that name the file."""
    name = _text(path)
    try:
        if not name:
            raise FileNotFoundError(errno.ENOENT, "its name is empty")
        try:
            if b"\0" in os.fsencode(name):
                raise OSError(errno.EINVAL, "no such file can be: its name has a null character")
        except UnicodeEncodeError as error:
            raise OSError(errno.EINVAL, "no such file can be: its name is no Unicode text") from error
        yield
    except InaccessibleFile:
        raise
    except OSError as error:
        raise inaccessible(f"cannot {verb} {_shown(path)}", error) from error


def _shown(path: FilePath) -> str:
    name = _text(path)
    return repr(name if len(name) <= 200 else f"{name[:100]}...{name[-100:]}")


def _text(path: FilePath) -> str:
    try:
        return os.fsdecode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise UnsupportedType(f"the path of a file is a text, not {path!r:.100}") from error
