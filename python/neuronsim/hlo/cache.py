"""Folders of AWS's compile cache: `model.hlo_module.pb` beside `compile_flags.json`."""

from __future__ import annotations

from pathlib import Path

from neuronsim import json_documents
from neuronsim.errors import InaccessibleFile, InvalidArgument, InvalidFlag, MissingFile
from neuronsim.whole_files import read_bytes

MODULE_FILE = "model.hlo_module.pb"
FLAGS_FILE = "compile_flags.json"


def cached_flags(folder: str | Path) -> list[str]:
    """The compiler flags that a folder of the compile cache holds; none where it has no list of them.

    Raises InvalidFlag if the file is not a JSON list of strings.
    """
    path = Path(folder) / FLAGS_FILE
    try:
        flags = json_documents.parse(read_bytes(path).decode())
    except MissingFile:
        return []
    except InaccessibleFile as error:
        raise InvalidFlag(str(error)) from error
    except (InvalidArgument, UnicodeDecodeError) as error:
        raise InvalidFlag(f"{path} is not JSON: {error}") from error
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise InvalidFlag(f'{path} is not a JSON list of flags, such as ["--auto-cast=all"]')
    return flags
