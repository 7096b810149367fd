"""What PyTorch says of its own sources while it reads or exports a model: kept from the user."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator

from neuronsim.frontends.torch.tensors import require_torch

# What PyTorch traces with is the process's: modes, hooks, filters and tables, which two threads would
# take from each other.
_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what PyTorch warns of and logs of its own sources, and without the one operator that a
    whole layer of a transformer is in its fast path; one thread at a time.
    """
    with _ONE_AT_A_TIME, _without_words():
        yield


@contextlib.contextmanager
def _without_words() -> Iterator[None]:
    fast = require_torch().backends.mha
    before = fast.get_fastpath_enabled()
    handlers = _handlers_of_torch()  # tracebacks of what an error says already
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast.set_fastpath_enabled(False)
        for h in handlers:
            h.addFilter(_of_others)
        try:
            yield
        finally:
            fast.set_fastpath_enabled(before)
            for h in handlers:
                h.removeFilter(_of_others)


def _handlers_of_torch() -> list[logging.Handler]:
    """Those of PyTorch's loggers: some of its modules have their own."""
    loggers = list(logging.root.manager.loggerDict.items())
    own = [x for name, x in loggers if isinstance(x, logging.Logger) and is_of_torch(name)]
    return list(dict.fromkeys(h for x in own for h in x.handlers))


def is_of_torch(name: str) -> bool:
    """Whether a name is PyTorch's or one below it."""
    return f"{name}.".startswith("torch.")


def _of_others(record: logging.LogRecord) -> bool:
    return not is_of_torch(record.name)
