"""screen.cpp, built by this system's compiler: which float32 results are not certainly right."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

COMPILERS = ["g++", "clang++", "c++"]
FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]


def compiler() -> str | None:
    return next((c for c in map(shutil.which, COMPILERS) if c), None)


class Screening:
    """The library, built in `folder`."""

    def __init__(self, folder: Path) -> None:
        built = folder / "screen.so"
        source = str(Path(__file__).with_name("screen.cpp"))
        subprocess.run([compiler() or "c++", *FLAGS, source, "-o", str(built)], check=True)
        self._library = ctypes.CDLL(str(built))
        for function in ("screen", "screen_pairs", "near_ties"):
            getattr(self._library, function).restype = ctypes.c_int64

    def uncertain(self, name: str, result: Words, *operands: Words) -> npt.NDArray[np.int64]:
        """The places of the results that are wrong or too near a tie for double arithmetic."""
        places = np.empty(result.size, np.int64)
        run = self._library.screen if len(operands) == 1 else self._library.screen_pairs
        n = run(name.encode(), ctypes.c_int64(result.size), *map(_pointer, (*operands, result, places)))
        return places[: _known(n, name)]

    def near_ties(self, name: str, first: int, last: int, distance: float) -> Words:
        """The words from first to last whose value is within `distance`, relative to it, of a tie."""
        room = 1 << 16
        while True:
            words = np.empty(room, np.uint32)
            ends = ctypes.c_uint32(first), ctypes.c_uint32(last), ctypes.c_double(distance)
            n = self._library.near_ties(name.encode(), *ends, _pointer(words), ctypes.c_int64(room))
            if _known(n, name) <= room:
                return words[:n]
            room = n


def _pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _known(n: int, name: str) -> int:
    if n < 0:
        raise KeyError(name)
    return n
