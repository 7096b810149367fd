"""The journal of a search: a line of JSON for each trial that a shard of the data has finished, so that
a run that was killed goes on where it was.

A line is written whole or not at all; one that is cut off at the end of the file counts as none. Each
has a check of what it says. Figures that are not finite are Python's NaN and Infinity.
"""

from __future__ import annotations

import base64
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from neuronsim import json_documents
from neuronsim.errors import InvalidArgument, inaccessible
from neuronsim.tuning.statistics import Moments, OutputStatistics, Scores, Squares, Statistics

SCHEMA = "neuronsim.journal/2"
Key = tuple[str, int]  # a trial's, and the shard's number


class Journal:
    """The finished trials of a workload in a file. `found` are those that it had when it was opened.

    Raises InvalidArgument for a file that is there and is not to be resumed, or is of another model,
    data set, metric, setting or seed, InaccessibleFile where it cannot be read or written.
    """

    def __init__(self, path: str | Path, workload: str, *, resume: bool) -> None:
        self.path = Path(path)
        self.found: dict[Key, Statistics] = {}
        exists = self.path.exists() and self.path.stat().st_size > 0
        if exists and not resume:
            raise InvalidArgument(
                f"the journal {str(path)!r} is there already: go on with it by --resume (resume=True), "
                "or give another name"
            )
        try:
            end = self._read(workload) if exists else 0
            self._file: TextIO = open(self.path, "r+" if exists else "w", encoding="utf-8")  # noqa: SIM115
            self._file.seek(end)
            self._file.truncate()
        except OSError as error:
            raise inaccessible(f"cannot write the journal {str(path)!r}", error) from error
        if not end:
            self._write({"schema": SCHEMA, "workload": workload})

    def _read(self, workload: str) -> int:
        """Reads what is whole; returns where that ends."""
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        lines = content[:end].decode("utf-8", "replace").splitlines()
        if not lines:
            return 0
        header = self._parsed(lines[0], 1)
        if header.get("schema") != SCHEMA:
            raise InvalidArgument(f"{str(self.path)!r} is no journal of neuronsim ({SCHEMA})")
        if header.get("workload") != workload:
            raise InvalidArgument(
                f"the journal {str(self.path)!r} is of another model, data set, metric, setting or "
                "seed of stochastic rounding: it cannot be resumed with these"
            )
        for number, line in enumerate(lines[1:], start=2):
            body = self._parsed(line, number)
            said = {key: value for key, value in body.items() if key != "check"}
            if body.get("check") != _check(said):
                raise self._damaged(number, "it does not say what was written")
            self.found[body["trial"], body["shard"]] = from_json(body["statistics"])
        return end

    def _parsed(self, line: str, number: int) -> Mapping[str, Any]:
        try:
            body = json_documents.parse(line, not_finite=True)
        except InvalidArgument as error:
            raise self._damaged(number, str(error)) from error
        return body if isinstance(body, dict) else {}

    def _damaged(self, number: int, why: str) -> InvalidArgument:
        cure = "; without the line its trial runs again" if number > 1 else ""
        return InvalidArgument(
            f"the journal {str(self.path)!r} is damaged at line {number}: {why}{cure}"
        )

    def add(self, finished: Iterable[tuple[Key, Statistics]]) -> None:
        """Write the statistics of trials, at once."""
        for (trial, shard), s in finished:
            said = {"trial": trial, "shard": shard, "statistics": to_json(s)}
            self._write({**said, "check": _check(said)})
        self._flush()

    def _write(self, body: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(body) + "\n")
        except OSError as error:
            raise inaccessible(f"cannot write the journal {str(self.path)!r}", error) from error

    def _flush(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise inaccessible(f"cannot write the journal {str(self.path)!r}", error) from error

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


def _check(said: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(said).encode())


def to_json(s: Statistics) -> dict[str, Any]:
    """Statistics as JSON, whose floats come back with the same bits; arrays as .npy in base64."""
    return {
        "samples": s.samples,
        "outputs": [[getattr(o, f.name) for f in fields(o)] for o in s.outputs],
        "scores": {n: [getattr(v, f.name) for f in fields(v)] for n, v in s.scores.items()},
        "truncated": dict(s.truncated),
        "sketch": list(s.sketch),
        "results": [_encoded(a) for a in s.results],
    }


def from_json(body: Mapping[str, Any]) -> Statistics:
    """The statistics that `to_json` wrote."""
    return Statistics(
        samples=int(body["samples"]),
        outputs=tuple(_output(o) for o in body["outputs"]),
        scores={n: Scores(*v) for n, v in body["scores"].items()},
        truncated=dict(body["truncated"]),
        sketch=tuple(body["sketch"]),
        results=tuple(_decoded(text) for text in body["results"]),
    )


def _output(values: Any) -> OutputStatistics:
    *plain, distance, scale, moments, ulps = values
    elements, differing, not_finite, infinite, max_error = plain
    return OutputStatistics(
        elements=elements,
        differing=differing,
        not_finite=not_finite,
        infinite=infinite,
        max_error=max_error,
        distance=Squares(*distance),
        scale=Squares(*scale),
        moments=Moments(*moments),
        ulps=tuple(ulps),
    )


def _encoded(a: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, a, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _decoded(text: str) -> Any:
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
