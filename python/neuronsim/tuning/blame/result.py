"""What blame found: the causes, every instruction's figures, sums by scope; as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from neuronsim.json_documents import finite
from neuronsim.processor import pinned
from neuronsim.tables import html_table
from neuronsim.tuning.blame.flow import Element
from neuronsim.tuning.blame.magnitudes import Magnitudes

SCHEMA = "neuronsim.blame/1"


@dataclass(frozen=True)
class OutputFigures:
    """How far the outputs are from float32's: the worst output's relative Frobenius error, that of the
    worst sample, how many values are not finite although float32's are, the share of elements of
    integer outputs that differ, and top-1 accuracy with labels.
    """

    error: float
    worst_sample: float
    not_finite: int
    differing: float
    top1: float | None = None


@dataclass(frozen=True)
class Cause:
    """An instruction that is to blame.

    `share` is the part of the outputs' error that passes it, `bits` the significant bits that it loses;
    `kind` one of docs/blame.md's classes, `evidence` the figures that prove it. `keep_float32` has the
    instructions that repair it together, of which `computing` compute. `before` and `after` are the
    outputs' figures with and without the repair, measured; so is `rewritten` with the source's repair.
    Of a quantization `operand` names what is quantized badly, and `channel` where it is.
    `type` is the one that loses the bits, `magnitudes` are those of the result and its operands.
    """

    instruction: str
    opcode: str
    kind: str
    share: float
    bits: float
    said: str
    advice: str
    scope: str
    source: str
    evidence: Mapping[str, float]
    element: Element | None
    keep_float32: tuple[str, ...]
    computing: int
    before: OutputFigures
    after: OutputFigures
    rewrite: str = ""
    rewritten: OutputFigures | None = None
    operand: str = ""
    channel: int | None = None
    type: str = ""
    magnitudes: tuple[Magnitudes, ...] = ()


@dataclass(frozen=True)
class InstructionBlame:
    """An instruction's figures: its own error's share of the outputs' (`own`), what of it is the
    rounding of its operands as it reads them (`reading`), the share that passes it (`through`), the
    significant bits that it loses, the relative error of the elements that pass it, and its class.
    """

    name: str
    opcode: str
    scope: str
    own: float
    reading: float
    through: float
    bits: float
    relative_error: float
    kind: str


@pinned
@dataclass(frozen=True, repr=False)
class BlameResult:
    """What moves a model's outputs under a setting, the gravest cause first.

    Without causes nothing stands out: either the outputs are within `usual`, the error that roundings
    of the narrowest type alone explain, or the error is spread over many instructions; `notes` say so.
    """

    model: str
    fingerprint: str
    setting: str
    data: str
    samples: int
    traced: int
    usual: float
    float32_top1: float | None
    lowered: OutputFigures
    causes: tuple[Cause, ...]
    instructions: tuple[InstructionBlame, ...]
    scopes: Mapping[str, float]
    runs: int
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        about = "; ".join(f"{name}: {said}" for name, said in self._summary()[:3])
        return f"<BlameResult {self.model} under {self.setting}: {about}>"

    def _repr_html_(self) -> str:
        return html_table(f"BlameResult {self.model} under {self.setting}", self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """Each cause with its kind and what to do, else what there is to say."""
        causes = [(c.instruction, f"{c.kind}; {c.advice}") for c in self.causes]
        return causes or [("nothing to blame", "; ".join(self.notes))]

    @property
    def keep_float32(self) -> tuple[str, ...]:
        """What to keep in float32 against all causes."""
        return tuple(dict.fromkeys(n for c in self.causes for n in c.keep_float32))

    def to_json(self) -> str:
        """Every figure as JSON with a schema name; numbers that are not finite are null."""
        body = asdict(self) | {"schema": SCHEMA, "keep_float32": self.keep_float32}
        return json.dumps(finite(body), indent=1, sort_keys=True, allow_nan=False)
