"""Files of HLO that other tools read."""

from __future__ import annotations

from pathlib import Path

from neuronsim import whole_files
from neuronsim.frontends.composite_calls import with_composite_calls
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module
from neuronsim.hlo.text import to_text

FORMS = (".hlo.pb", ".hlo")


def write_hlo(module: Module, path: str | Path) -> None:
    """Write a module as text where the name ends in .hlo, else as protobuf; what HLO has no opcode for
    has its formula as body. Raises InaccessibleFile if the file cannot be written.
    """
    made = with_composite_calls(module)
    if str(path).endswith(".hlo"):
        whole_files.write_text(path, to_text(made))
    else:
        proto.write(made, path)
