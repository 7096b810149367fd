"""Tasks: trials that an executor of concurrent.futures runs in threads, processes, on other machines.

Only `submit` and futures are asked of it. A task names its workload by the hash: a process reads it
once, from a file where it is on this machine, and keeps it; one that has no such file says so, and the
workload then travels with a task, to about each such process once. A task whose worker was lost runs
again.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from neuronsim import processor
from neuronsim.errors import InvalidArgument, NeuronSimError, warn
from neuronsim.tuning.statistics import Statistics
from neuronsim.tuning.trials import Trial, Workload, run_trials

ATTEMPTS = 4  # of a task whose worker is lost
WAITED = 1.0  # seconds for tasks, after which it is asked whether there is time left
_KEPT = 4  # workloads that a process keeps


class Part(NamedTuple):
    """Trials that are run as one module, and the shard that they are run on."""

    trials: Sequence[Trial]
    shard: int


class Address(NamedTuple):
    """Where a task finds its workload: by the hash in its process, in a file, or in the task itself."""

    key: str
    path: str
    content: bytes | None = None


class Answer(NamedTuple):
    """Which process answers, and the statistics of each trial; None where it lacks the workload."""

    worker: str
    found: list[list[Statistics]] | None


Found = Callable[[Part, list[list[Statistics]]], None]
_workloads: OrderedDict[str, Workload] = OrderedDict()
_lock = threading.Lock()


def run_task(
    address: Address, trials: Sequence[Trial], shard: int, client: str, *, sketches: bool
) -> Answer:
    """What a worker does; in another process than the client's with one thread."""
    own = worker_name()
    if own != client and processor.num_threads() != 1:
        processor.set_num_threads(1)
    workload = _find(address)
    if workload is None:
        return Answer(own, None)
    return Answer(own, run_trials(workload, trials, [shard], sketches=sketches))


def worker_name() -> str:
    """The name of this process, unlike that of any other on this or another machine."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _find(address: Address) -> Workload | None:
    with _lock:
        found = _workloads.get(address.key)
    if found is not None:
        return found
    content = address.content
    if content is None:
        try:
            content = Path(address.path).read_bytes() if address.path else None
        except OSError:  # another machine
            content = None
    if content is None:
        return None
    read: Workload = pickle.loads(content)
    keep(read)
    return read


def keep(workload: Workload) -> None:
    """Keep a workload in this process, where threads find it."""
    with _lock:
        _workloads[workload.key] = workload
        while len(_workloads) > _KEPT:
            _workloads.popitem(last=False)


@dataclass
class Dispatch:
    """Runs parts of one workload by an executor. `sent` counts the tasks that carried the workload."""

    workload: Workload
    executor: Executor
    sent: int = 0
    _lacking: set[str] = field(default_factory=set)  # processes that said so

    @cached_property
    def _content(self) -> bytes | None:
        """The workload as bytes; None where it holds what cannot be sent, for threads alone."""
        try:
            return pickle.dumps(self.workload, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            return None

    @cached_property
    def _folder(self) -> str:
        folder = tempfile.mkdtemp(prefix="neuronsim-")  # this user's alone
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @cached_property
    def _address(self) -> Address:
        if self._content is None:
            return Address(self.workload.key, "")
        path = Path(self._folder) / self.workload.key
        path.write_bytes(self._content)
        return Address(self.workload.key, str(path))

    def run(
        self, parts: Iterable[Part], found: Found, check: Callable[[], None], *, sketches: bool
    ) -> None:
        """Tell `found` of each part, in whatever order they end; `check` may raise to end it."""
        running = _Running(self, sketches)
        keep(self.workload)
        try:
            for part in parts:
                running.submit(part)
            while running.pending or running.waiting:
                for part, statistics in running.ended():
                    found(part, statistics)
                check()
        finally:
            for future in running.pending:
                future.cancel()
            with _lock:
                _workloads.pop(self.workload.key, None)


class _Task(NamedTuple):
    part: Part
    carries: bool
    attempt: int


@dataclass
class _Running:
    """The tasks of one call: those `pending`, and the parts `waiting` until a process that lacked the
    workload has it.
    """

    dispatch: Dispatch
    sketches: bool
    pending: dict[Future[Answer], _Task] = field(default_factory=dict)
    waiting: list[Part] = field(default_factory=list)
    client: str = field(default_factory=worker_name)

    def submit(self, part: Part, *, carries: bool = False, attempt: int = 1) -> None:
        d = self.dispatch
        address = d._address
        if carries:
            address = address._replace(content=d._content)
            d.sent += 1
        future: Future[Answer]
        try:
            future = d.executor.submit(
                run_task, address, part.trials, part.shard, self.client, sketches=self.sketches
            )
        except (TypeError, NeuronSimError):
            raise  # of what it was given, not of its state
        except Exception as error:  # of its own class, as dask's without a scheduler
            _say_run_here("takes no more tasks", error)
            future = Future()
            future.set_result(self._here(part))
        self.pending[future] = _Task(part, carries, attempt)

    def _here(self, part: Part) -> Answer:
        d = self.dispatch
        return Answer(
            self.client, run_trials(d.workload, part.trials, [part.shard], sketches=self.sketches)
        )

    def ended(self) -> list[tuple[Part, list[list[Statistics]]]]:
        """What has ended since a task did, or nothing after WAITED seconds: time may be up."""
        done, _ = wait(list(self.pending), WAITED, return_when=FIRST_COMPLETED)
        found = []
        for future in done:
            task = self.pending.pop(future)
            answer = self._answer(future, task)
            if answer is None:
                continue
            if answer.found is None:
                self._lack(answer.worker, task.part)
            else:
                self.dispatch._lacking.discard(answer.worker)
                found.append((task.part, answer.found))
        self._release()
        return found

    def _answer(self, future: Future[Answer], task: _Task) -> Answer | None:
        """A task's answer; None where its worker was lost and it runs again."""
        try:
            return future.result()
        except (BrokenExecutor, CancelledError) as error:
            if task.attempt < ATTEMPTS:
                self.submit(task.part, carries=task.carries, attempt=task.attempt + 1)
                return None
            _say_run_here("lost its workers", error)
            return self._here(task.part)

    def _lack(self, worker: str, part: Part) -> None:
        if self.dispatch._content is None:
            raise InvalidArgument(
                "the workload cannot be sent to another process: give a metric of your own as "
                "module:function, or an executor of threads"
            )
        self.dispatch._lacking.add(worker)
        self.waiting.append(part)

    def _release(self) -> None:
        """Send the workload with as many tasks as there are processes that lack it; the others wait
        for these.
        """
        carriers = sum(t.carries for t in self.pending.values())
        while self.waiting and carriers < len(self.dispatch._lacking):
            self.submit(self.waiting.pop(0), carries=True)
            carriers += 1
        if not carriers:
            while self.waiting:
                self.submit(self.waiting.pop(0))


def _say_run_here(why: str, error: BaseException) -> None:
    warn(
        f"the executor {why} ({type(error).__name__}: {error}): their trials run here",
        RuntimeWarning,
    )
