"""Hugging Face's caches of keys and values as structures of tensors: torch.export takes and gives no
others, and a model for text gives its cache beside its logits unless it is told not to.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

from neuronsim.frontends.torch.belonging import is_module


def register_caches(model: Any) -> None:
    """Tells PyTorch what the caches of a model's parts are made of, by Hugging Face's own functions,
    where its models are imported already: nothing else has such parts.
    """
    of_models = sys.modules.get("transformers.modeling_utils")
    if of_models is None:
        return
    try:
        exporter = importlib.import_module("transformers.exporters.exporter_dynamo")
    except ImportError:  # an older release, which has a function for the usual cache or needs none
        with contextlib.suppress(ImportError, AttributeError):
            executorch = importlib.import_module("transformers.integrations.executorch")
            executorch.register_dynamic_cache_export_support()
        return
    parts = list(model.modules()) if is_module(model) else []
    of_each_class = {type(p): p for p in parts if isinstance(p, of_models.PreTrainedModel)}
    # The classes that all models share are registered beside those of the module that a part is of:
    # a function's parts are not known, and the exporter's own module has none.
    for part in of_each_class.values() or [exporter]:
        exporter.register_cache_pytrees_for_model(part)
