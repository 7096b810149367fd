"""The errors of neuronsim: each message says what, where, why and what to do.

>>> from neuronsim.errors import InvalidArgument, NeuronSimError
>>> issubclass(InvalidArgument, NeuronSimError) and issubclass(InvalidArgument, ValueError)
True
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import numpy


class NeuronSimError(Exception):
    """Every error that neuronsim raises on purpose."""


class InvalidArgument(NeuronSimError, ValueError):
    """An argument of a function has a value, shape or type that it cannot have."""


class InvalidIndex(InvalidArgument, IndexError):
    """An index lies outside an array, or is no index."""


class IntegerOverflow(NeuronSimError, OverflowError):
    """An integer lies outside the range of its type."""


class UnsupportedBuffer(NeuronSimError, BufferError):
    """Memory cannot be shared with another library as it lies."""


class InaccessibleFile(InvalidArgument, OSError):
    """A file cannot be read or written: `reason` says why, and `errno` is the system's number of it."""

    reason: str = ""


class MissingFile(InaccessibleFile, FileNotFoundError):
    """There is no such file, or no such folder."""


class FileIsFolder(InaccessibleFile, IsADirectoryError):
    """A folder lies where a file is needed."""


class ForbiddenFile(InaccessibleFile, PermissionError):
    """The system does not let this user read or write a file."""


class InvalidModel(NeuronSimError):
    """A model file is damaged, or its graph contradicts itself."""


class InvalidData(NeuronSimError):
    """Input data do not fit the model."""


class InvalidFlag(NeuronSimError):
    """A compiler flag is unknown, has a value that it cannot have, or contradicts another."""


class UnsupportedOperator(NeuronSimError):
    """A graph has an operator, or a form of one, that neuronsim does not execute."""


class NonconformingModel(NeuronSimError):
    """A model breaks what AWS documents for the release, and `strict` makes that an error."""


class FloatingPointException(NeuronSimError, FloatingPointError):
    """An operation met one of IEEE 754's exceptions, and `errstate` makes that an error."""


class UnsupportedType(NeuronSimError, TypeError):
    """A value has an element type that the device, or the operation, does not have."""


class UnknownValue(NeuronSimError, TypeError):
    """What a traced function asks of an array whose values are not known before the program runs:
    `value` is what the recorder knows of it, `reader` the model's node that asks.
    """

    reader = ""

    def __init__(self, what: str, value: Any) -> None:
        file, line = users_line()
        super().__init__(
            f"{os.path.basename(file)}:{line}: {what} needs the values of a traced array "
            f"({value.type}), which are known when the program runs and not before: use functions of "
            "arrays (where, lax.cond, lax.while_loop, lax.dynamic_slice), or make the argument static"
        )
        self.value = value


class AbsentName(NeuronSimError, AttributeError):
    """A module has no such name. The message is made when it is read: `hasattr` stays quick."""

    def __init__(self, module: str, name: str, known: Sequence[str], reason: str | None = None) -> None:
        super().__init__(module, name, known, reason)

    def __str__(self) -> str:
        module, name, known, reason = self.args
        return f"{module} has no {name!r}{nearest(name, known)}{f': {reason}' if reason else ''}"


class FlagWarning(UserWarning):
    """What flags, or the environment in their place, do or fail to do, and a user should know."""


class OutOfMemory(NeuronSimError, MemoryError):
    """An array does not fit in this machine's memory, or in the target's."""


class DivergentReplicas(NeuronSimError):
    """Replicas wait for each other at different collectives, or for one that has ended."""


# What NumPy raises for arguments that it does not take; some functions a RuntimeError for 33 axes.
REFUSALS = (
    *(AttributeError, IndexError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError),
)

_STAND_INS = {
    IndexError: InvalidIndex,
    MemoryError: OutOfMemory,
    OverflowError: IntegerOverflow,
    TypeError: UnsupportedType,
}


def refusal(what: str, error: Exception) -> NeuronSimError:
    """The error of ours, of the same class, that stands for one of NumPy's and says where.

    >>> refusal("take", IndexError("7 is out of bounds"))
    InvalidIndex('take: 7 is out of bounds')
    """
    if isinstance(error, NeuronSimError) and not isinstance(error, AbsentName):
        return error  # else NumPy asked for the name
    kind = next((k for e, k in _STAND_INS.items() if isinstance(error, e)), InvalidArgument)
    return kind(f"{what}: {error}")


def out_of_memory(what: Any, operands: Sequence[Any], error: Exception) -> NeuronSimError:
    """The error of ours for a MemoryError in a call of `what`, a function or a name, with `operands`.

    >>> out_of_memory(sorted, (), MemoryError("std::bad_alloc"))
    OutOfMemory("sorted: there is not enough of this machine's memory")
    """
    if isinstance(error, NeuronSimError):
        return error
    name = what if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)
    arrays = ", ".join(
        f"{x.dtype}[{','.join(map(str, x.shape))}]"
        for x in operands
        if hasattr(x, "dtype") and isinstance(getattr(x, "shape", None), tuple)
    )
    said = str(error).removeprefix("std::bad_alloc")
    found = OutOfMemory(
        f"{'an index' if name == '_at' else name}{arrays and ' of ' + arrays}: there is not enough of "
        f"this machine's memory{said and ': ' + said}"
    )
    found.__cause__ = error
    return found


_INACCESSIBLE = {
    FileNotFoundError: MissingFile,
    IsADirectoryError: FileIsFolder,
    PermissionError: ForbiddenFile,
}


def inaccessible(what: str, error: OSError) -> InaccessibleFile:
    """The error of ours that stands for one of the system's.

    >>> inaccessible("cannot read 'x'", FileNotFoundError(2, "No such file or directory"))
    MissingFile("cannot read 'x': No such file or directory")
    """
    if isinstance(error, InaccessibleFile):
        return error
    kind = next((k for e, k in _INACCESSIBLE.items() if isinstance(error, e)), InaccessibleFile)
    reason = error.strerror or str(error)
    found = kind(f"{what}: {reason}")
    found.reason, found.errno = reason, error.errno
    return found


def nearest(name: object, known: Iterable[str]) -> str:
    """A clause that names the closest known spelling, whatever the case, or nothing.

    >>> nearest("matmull", ["matmult", "all"])
    " (did you mean 'matmult'?)"
    >>> nearest("FP16", ["bf16", "fp16"])
    " (did you mean 'fp16'?)"
    """
    spellings = {k.lower(): k for k in known}
    close = difflib.get_close_matches(str(name).lower(), spellings, n=1)
    return f" (did you mean {spellings[close[0]]!r}?)" if close else ""


def counted(n: int, noun: str) -> str:
    """A number of things, in words of messages.

    >>> counted(1, "sample"), counted(0, "sample")
    ('1 sample', '0 samples')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def first_few(texts: Sequence[object], most: int, separator: str = ", ") -> str:
    """The first of some texts, and how many more there are.

    >>> first_few(("a", "b", "c", "d"), 2)
    'a, b and 2 more'
    """
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(map(str, texts[:most])) + more


# What no user wrote: this package, and NumPy, whose operators may stand between a user and it.
_PACKAGES = (os.path.dirname(__file__) + "/", os.path.dirname(numpy.__file__) + "/")


def _users_frame() -> tuple[FrameType | None, int]:
    """The nearest frame outside the package that led here, and how many there are to it."""
    level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        level += 1
        frame = frame.f_back
    return frame, level


def users_line() -> tuple[str, int]:
    """The file and the line of the user's that led here."""
    frame, _ = _users_frame()
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning at the line of the user's that led here: the nearest one outside the package."""
    warnings.warn(message, category, stacklevel=_users_frame()[1])


def with_warnings_at_the_users_line(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """What another library's function gives; what it warns of, `warn` says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = function(*args, **keywords)
    for w in caught:
        warn(str(w.message), w.category)
    return found
