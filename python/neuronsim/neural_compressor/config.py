"""The configuration of both interfaces: what is lowered, what may be lost, how long a search goes on.

>>> MixedPrecisionConfig(precisions="bf16, fp32").precisions
('bf16', 'fp32')
>>> AccuracyCriterion(criterion="absolute", tolerable_loss=0.005).tolerable_loss
0.005
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, ClassVar

from neuronsim.errors import FlagWarning, InvalidArgument, nearest, warn
from neuronsim.records import is_int

CRITERIA = ("relative", "absolute")
OBJECTIVES = ("performance", "modelsize", "footprint")
Dtypes = Mapping[str, Any]  # {"activation" or "weight": {"dtype": [...]}}


@dataclass(frozen=True)
class AccuracyCriterion:
    """How much worse than float32 a model's accuracy may be: `tolerable_loss` of the baseline
    (`relative`) or in its own unit (`absolute`).
    """

    higher_is_better: bool = True
    criterion: str = "relative"
    tolerable_loss: float = 0.01

    def __post_init__(self) -> None:
        _check_one_of("criterion", self.criterion, CRITERIA)
        if not isinstance(self.higher_is_better, bool):
            raise InvalidArgument(f"higher_is_better is True or False, not {self.higher_is_better!r}")
        loss = self.tolerable_loss
        if isinstance(loss, bool) or not isinstance(loss, int | float) or not 0 <= loss < math.inf:
            raise InvalidArgument(f"tolerable_loss is a number of at least 0, not {loss!r}")


@dataclass(frozen=True)
class TuningCriterion:
    """How a search goes on: its `strategy` (`conversion.STRATEGY_NAMES`), for at most `timeout` seconds
    (0: without a limit) and `max_trials` plans (None: without a limit), and what it makes small
    (`objective`): the number of float32 instructions and then the estimated time (performance), the
    bytes of the weights (modelsize), or of these and of all results that live at one time (footprint).
    """

    strategy: str = "basic"
    strategy_kwargs: Mapping[str, Any] | None = None
    timeout: float = 0
    max_trials: int | None = None
    objective: str = "performance"

    def __post_init__(self) -> None:
        found = self.objective
        if isinstance(found, list | tuple) and len(found) == 1:
            object.__setattr__(self, "objective", found[0])
        _check_one_of("objective", self.objective, OBJECTIVES)
        if not isinstance(self.timeout, int | float) or not 0 <= self.timeout < math.inf:
            raise InvalidArgument(f"timeout is a number of seconds, 0 for none, not {self.timeout!r}")
        most = self.max_trials
        if most is not None and not is_int(most, 1):
            raise InvalidArgument(f"max_trials is a number of at least 1, not {most!r}")
        if self.strategy_kwargs:
            warn(f"strategy_kwargs {dict(self.strategy_kwargs)} have no effect here", FlagWarning)


@dataclass(frozen=True)
class _Config:
    """What both configurations have. `device` is a target of `compile`; Neural Compressor's own `cpu`
    is trn1. By the names of `op_name_dict` (instructions; with a slash their scopes, `op_name`) and of
    `op_type_dict` (operations) types are allowed, as `op_wise` of yaml does. `example_inputs` are those
    of `compile` for models that are functions or modules.
    """

    device: str = "cpu"
    backend: str = "default"
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    quant_level: str | int = "auto"
    tuning_criterion: TuningCriterion = field(default_factory=TuningCriterion)
    accuracy_criterion: AccuracyCriterion = field(default_factory=AccuracyCriterion)
    excluded_precisions: Sequence[str] = ()
    op_name_dict: Mapping[str, Dtypes] | None = None
    op_type_dict: Mapping[str, Dtypes] | None = None
    example_inputs: Any = None
    model_name: str = ""  # what its policy is called

    # Neural Compressor's, for its frameworks; another value than the usual one is said to be unread.
    _UNREAD: ClassVar[tuple[str, ...]] = ("backend", "inputs", "outputs", "quant_level")

    def __post_init__(self) -> None:
        for name, kind in (
            ("tuning_criterion", TuningCriterion),
            ("accuracy_criterion", AccuracyCriterion),
        ):
            if not isinstance(getattr(self, name), kind):
                raise InvalidArgument(f"{name} is a {kind.__name__}, not {getattr(self, name)!r}")
        object.__setattr__(self, "excluded_precisions", listed(self.excluded_precisions))
        usual = {f.name: f.default for f in fields(self)}
        unread = [n for n in self._UNREAD if getattr(self, n) not in (usual[n], [], (), None)]
        if unread:
            warn(f"{', '.join(unread)} of {type(self).__name__} have no effect here", FlagWarning)


@dataclass(frozen=True)
class MixedPrecisionConfig(_Config):
    """What `mix_precision.fit` does. `precisions`, or `precision`, are the low types, the one to use
    first; fp32 among them says what is the case anyway.
    """

    precisions: str | Sequence[str] = "bf16"
    precision: InitVar[str | Sequence[str] | None] = None

    def __post_init__(self, precision: str | Sequence[str] | None) -> None:
        super().__post_init__()
        object.__setattr__(self, "precisions", listed(precision or self.precisions))


@dataclass(frozen=True)
class PostTrainingQuantConfig(_Config):
    """What `quantization.fit` does: `approach` static or weight_only, with the first
    `calibration_sampling_size` samples; `model_wise` as in yaml states types, scheme, granularity and
    algorithm. `framework` chooses which operations beside INT8 are BF16: tensorflow's or pytorch's
    conversion, else all.
    """

    approach: str = "static"
    calibration_sampling_size: int | Sequence[int] = 100
    model_wise: Mapping[str, Any] | None = None
    framework: str = ""
    domain: str = "auto"
    quant_format: str = "default"
    recipes: Mapping[str, Any] | None = None
    reduce_range: bool | None = None

    _UNREAD: ClassVar[tuple[str, ...]] = (
        *_Config._UNREAD,
        "domain",
        "quant_format",
        "recipes",
        "reduce_range",
    )


def listed(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """The parts of a text with commas, or of a list of such.

    >>> listed("uint8, bf16"), listed(["fp32"])
    (('uint8', 'bf16'), ('fp32',))
    """
    parts = [value] if isinstance(value, str) else list(value or ())
    if not all(isinstance(p, str) for p in parts):
        raise InvalidArgument(f"names with commas between them, or a list of names, not {value!r}")
    return tuple(word.strip() for p in parts for word in p.split(",") if word.strip())


def _check_one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidArgument(
            f"{name} is one of {', '.join(known)}, not {value!r}{nearest(value, known)}"
        )
