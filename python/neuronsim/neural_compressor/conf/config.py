"""Configurations with the keys of yaml files, as objects: `conf` in Python, `*_Conf` of a file.

>>> found = Settings()
>>> found.tuning.exit_policy.max_trials = 10
>>> found
{'tuning': {'exit_policy': {'max_trials': 10}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuronsim.neural_compressor.yaml_files import read_yaml


class Settings(dict[str, Any]):
    """Tables of tables whose keys are attributes too; a table is there once something is set in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.setdefault(name, Settings())

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


conf = Settings()


class MixedPrecision_Conf:  # noqa: N801  Neural Compressor's name
    """A yaml file whose tables are in `usr_cfg`, to be changed before a converter reads them."""

    def __init__(self, cfg_fname: str | Path) -> None:
        self.usr_cfg = _settings(read_yaml(cfg_fname))


class Quantization_Conf(MixedPrecision_Conf):  # noqa: N801
    """The same of `Quantization`."""


def _settings(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Settings({k: _settings(v) for k, v in value.items()})
    return value
