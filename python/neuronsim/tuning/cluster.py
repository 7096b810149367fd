"""A dask cluster as an executor (extra `dask`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from neuronsim.errors import InvalidArgument, warn

LOCAL = "local"


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of a scheduler's address, or of a cluster of processes on this machine: `local`, a
    process for each processor, or `local:N`. It ends with the context.

    Raises InvalidArgument without dask, for another address, and for a scheduler that does not answer.
    """
    if importlib.util.find_spec("distributed") is None:
        raise InvalidArgument(
            "dask's cluster is not installed: pip install 'neuronsim[dask]'; an executor of "
            "concurrent.futures needs nothing"
        )
    distributed: Any = importlib.import_module("distributed")
    name, _, count = address.partition(":")
    cluster = None
    if name == LOCAL:
        if count and not (count.isascii() and count.isdigit() and int(count)):
            raise InvalidArgument(f"{address!r}: local:N is a cluster of N processes")
        cluster = distributed.LocalCluster(
            n_workers=int(count) if count else None,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
        )
    try:
        try:
            client = distributed.Client(cluster or address, timeout=10)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgument(f"no dask scheduler at {address!r}: {error}") from error
        with client:
            if not client.scheduler_info()["workers"]:
                warn(
                    f"the dask scheduler at {address!r} has no workers: trials wait until one joins it "
                    f"(dask worker {address})",
                    RuntimeWarning,
                )
            yield client.get_executor()
    finally:
        if cluster is not None:
            cluster.close()
