"""What the interface gives back: a compiled program that also saves the planned model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuronsim import api
from neuronsim.frontends.composite_calls import with_composite_calls
from neuronsim.hlo import proto
from neuronsim.hlo.text import to_text
from neuronsim.neural_compressor.loaders import unwrapped
from neuronsim.program import CompiledProgram
from neuronsim.tuning.results import TuneResult
from neuronsim.whole_files import write_text


class OptimizedModel(CompiledProgram):
    """A compiled program. `source` is the model that it was made of, `tune_result` what a search found
    (None where there was none).
    """

    def __init__(
        self, source: Any, program: CompiledProgram, tune_result: TuneResult | None = None
    ) -> None:
        vars(self).update(vars(program))  # the same program, which is not compiled again
        self.source = unwrapped(source)
        self.tune_result = tune_result

    def save(self, path: str | Path) -> None:
        """Write the planned model by the suffix: HLO with its converts (.hlo.pb, .hlo), ONNX with its
        casts where the model is ONNX's (.onnx), the plan (.json); else the program as `.nsim`, which
        `neuronsim.load` reads.

        Raises InaccessibleFile if the file cannot be written, InvalidArgument for .onnx of
        another model.
        """
        name = str(path)
        if name.endswith(".hlo.pb"):
            proto.write(with_composite_calls(self.module), path)
        elif name.endswith(".hlo"):
            write_text(path, to_text(with_composite_calls(self.module)))
        elif name.endswith(".json"):
            write_text(path, self.plan.to_json() + "\n")
        elif name.endswith(".onnx"):
            api.export_onnx(self.source, self, path)
        else:
            super().save(path)
