"""A configuration in Python with the keys of yaml files: `conf` of Neural Compressor 1.14.

>>> found = Settings()
>>> found.tuning.exit_policy.max_trials = 10
>>> found
{'tuning': {'exit_policy': {'max_trials': 10}}}
"""

from __future__ import annotations

from typing import Any


class Settings(dict[str, Any]):
    """Tables of tables whose keys are attributes too; a table is there once something is set in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.setdefault(name, Settings())

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


conf = Settings()
