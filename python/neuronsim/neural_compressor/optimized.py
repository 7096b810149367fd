"""What the interface gives back: a compiled program that also saves the planned model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuronsim import api, whole_files
from neuronsim.errors import InvalidArgument, inaccessible
from neuronsim.frontends.hlo_files import write_hlo
from neuronsim.frontends.onnx.files import is_onnx
from neuronsim.neural_compressor.loaders import unwrapped
from neuronsim.program import CompiledProgram
from neuronsim.tuning.results import TuneResult


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
        """Write the planned model by the suffix: HLO with its converts (.pb, .hlo), ONNX with its casts
        where the model is ONNX's (.onnx), the plan (.json), or the program (.nsim), which
        `neuronsim.load` reads. A name without a suffix is a folder, which then has best_model.onnx or
        best_model.hlo.pb.

        Raises InaccessibleFile if the file cannot be written, InvalidArgument for another suffix, and
        for .onnx of a model that is not ONNX's.
        """
        name, suffix = str(path), Path(path).suffix
        if not suffix:
            own = "best_model.onnx" if is_onnx(self.source) else "best_model.hlo.pb"
            try:
                Path(path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise inaccessible(f"cannot make the folder {name!r}", error) from error
            self.save(Path(path) / own)
        elif suffix in (".pb", ".hlo"):
            write_hlo(self.module, path)
        elif suffix == ".json":
            whole_files.write_text(path, self.plan.to_json() + "\n")
        elif suffix == ".onnx":
            api.export_onnx(self.source, self, path)
        elif suffix == ".nsim":
            super().save(path)
        else:
            raise InvalidArgument(
                f"cannot write {name!r}: a model is saved as .pb, .hlo, .onnx, .json (its plan), .nsim "
                "or into a folder, whose name has no suffix"
            )
