"""`MixedPrecision` and `Quantization`: a configuration, attributes that are set, and a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neuronsim.errors import FlagWarning, InvalidArgument, nearest, warn
from neuronsim.neural_compressor.conf.config import MixedPrecision_Conf, Quantization_Conf
from neuronsim.neural_compressor.config import MixedPrecisionConfig, PostTrainingQuantConfig, listed
from neuronsim.neural_compressor.conversion import Given, convert
from neuronsim.neural_compressor.optimized import OptimizedModel
from neuronsim.neural_compressor.quantizing import quantized
from neuronsim.neural_compressor.yaml_files import (
    Document,
    mixed_precision_document,
    quantization_document,
)


class _Converter:
    """What both have: `model`, and `eval_func`, or `eval_dataloader` and `metric`, where accuracy
    decides.
    """

    # Neural Compressor's, for its frameworks: they change nothing here.
    _KNOWN: tuple[str, ...] = ("_config", "model", "eval_func", "eval_dataloader", "metric")
    _UNREAD = ("input", "output", "postprocess", "preprocess")

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises InvalidArgument for an attribute that there is not."""
        known = [n for n in self._KNOWN if not n.startswith("_")]
        if name in self._UNREAD:
            warn(f"{name} of {type(self).__name__} has no effect here", FlagWarning)
        elif name not in self._KNOWN:
            raise InvalidArgument(
                f"{type(self).__name__} has no {name}{nearest(name, known)}: it has {', '.join(known)}"
            )
        object.__setattr__(self, name, value)

    def __init__(self, document: Document) -> None:
        self._config: Any = document.config
        self.model: Any = None
        self.eval_func: Callable[[Any], Any] | None = None
        self.eval_dataloader: Any = document.eval_dataloader
        self.metric: Any = document.metric

    def _given(self) -> Given:
        return Given(self.eval_func, self.eval_dataloader, self.metric)


class MixedPrecision(_Converter):
    """Converts a model to low precisions: `MixedPrecision()`, of the file of a configuration, of its
    tables, or of a MixedPrecisionConfig. Without an evaluation everything that can be is lowered.
    """

    def __init__(
        self,
        conf_fname_or_obj: str
        | Path
        | Mapping[str, Any]
        | MixedPrecision_Conf
        | MixedPrecisionConfig
        | None = None,
    ) -> None:
        given = conf_fname_or_obj
        if isinstance(given, MixedPrecision_Conf):
            given = given.usr_cfg
        if given is None or isinstance(given, MixedPrecisionConfig):
            super().__init__(Document(given or MixedPrecisionConfig()))
        else:
            super().__init__(mixed_precision_document(given))

    _KNOWN = (*_Converter._KNOWN, "precisions")

    @property
    def precisions(self) -> tuple[str, ...]:
        """The low types, the one to use first."""
        return tuple(self._config.precisions)

    @precisions.setter
    def precisions(self, value: str | list[str]) -> None:
        self._config = dataclasses.replace(self._config, precisions=listed(value))

    def __call__(self) -> OptimizedModel:
        """The converted model, compiled. Raises NeuronSimError for what is wrong; nothing exits."""
        return convert(self.model, self._config, self._given())

    fit = __call__


class Quantization(_Converter):
    """Quantizes a model to INT8, with BF16 beside it: of the file of a configuration, of its tables, or
    of a PostTrainingQuantConfig. `calib_dataloader` gives the data of the calibration.
    """

    _KNOWN = (*_Converter._KNOWN, "calib_dataloader")

    def __init__(
        self,
        conf_fname_or_obj: str
        | Path
        | Mapping[str, Any]
        | Quantization_Conf
        | PostTrainingQuantConfig
        | None = None,
    ) -> None:
        given = conf_fname_or_obj
        if isinstance(given, Quantization_Conf):
            given = given.usr_cfg
        if given is None or isinstance(given, PostTrainingQuantConfig):
            document = Document(given or PostTrainingQuantConfig())
        else:
            document = quantization_document(given)
        super().__init__(document)
        self.calib_dataloader: Any = document.calib_dataloader

    def __call__(self) -> OptimizedModel:
        """The quantized model, compiled. Raises NeuronSimError for what is wrong; nothing exits."""
        return quantized(self.model, self._config, self.calib_dataloader, self._given())

    fit = __call__
