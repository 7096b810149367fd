"""The rows of ONNX's operators, by subject."""

import importlib
import pkgutil

from neuronsim.frontends.onnx.table import OPERATORS

for _module in pkgutil.iter_modules(__path__):  # each adds its rows
    importlib.import_module(f"{__name__}.{_module.name}")

NAMES = tuple(sorted({name for _, name in OPERATORS}))
