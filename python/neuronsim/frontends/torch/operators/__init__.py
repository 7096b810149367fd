"""The rows of ATen's operators, by subject."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):  # each adds its rows
    importlib.import_module(f"{__name__}.{_module.name}")
