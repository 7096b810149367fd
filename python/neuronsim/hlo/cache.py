"""Folders of AWS's compile cache: `model.hlo_module.pb` beside `compile_flags.json`."""

from __future__ import annotations

import json
from pathlib import Path

from neuronsim.errors import InvalidFlag

MODULE_FILE = "model.hlo_module.pb"
FLAGS_FILE = "compile_flags.json"


def cached_flags(folder: str | Path) -> list[str]:
    """The compiler flags that a folder of the compile cache holds; none where it has no list of them.

    Raises InvalidFlag if the file is not a JSON list of strings.
    """
    path = Path(folder) / FLAGS_FILE
    try:
        flags = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidFlag(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidFlag(f"{path} is not JSON: {error}") from error
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise InvalidFlag(f'{path} is not a JSON list of flags, such as ["--auto-cast=all"]')
    return flags
