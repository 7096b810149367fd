"""The same bytes of JSON from serial runs, threads, processes and dask clusters, and from one in which
a worker is killed midway; what is sent, and how often.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim import api
from neuronsim.errors import InvalidArgument
from neuronsim.tuning import tasks
from neuronsim.tuning.cluster import dask_executor
from neuronsim.tuning.dataset import load_dataset
from neuronsim.tuning.trials import MetricSpec, Trial, Workload, reference_plan

pytestmark = pytest.mark.isa_independent
_rng = np.random.default_rng(11)
X = _rng.standard_normal((40, 24)).astype(np.float32)
W = [neuronsim.asarray((_rng.standard_normal((24, 24)) / 5).astype(np.float32)) for _ in range(3)]


def network(x: Any) -> Any:
    h = neuronsim.tanh(x @ W[0]) + 20.0
    variance = (h * h).mean(axis=1, keepdims=True) - neuronsim.square(h.mean(axis=1, keepdims=True))
    return neuronsim.tanh((h - 20.0) * variance @ W[1])


MODULE = api.read_model(network, api.ModelInputs(batch=4), {"x": X})


def tuned(executor: Executor | None = None, **options: Any) -> str:
    found = api.tune(
        MODULE, {"x": X}, tolerance=0.02, base="all/bf16", fix=True, executor=executor, **options
    )
    body = json.loads(found.to_json())
    del body["seconds"]
    return json.dumps(body)


@pytest.fixture(scope="module")
def serial() -> str:
    return tuned()


def spawned(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def test_two_threads_give_the_bytes_of_one(serial: str) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert tuned(executor) == serial


def test_two_spawned_processes_give_the_same_bytes(serial: str) -> None:
    with spawned(2) as executor:
        assert tuned(executor) == serial


class Backwards(Executor):
    """Runs a batch of tasks only when someone waits, the last first."""

    def __init__(self) -> None:
        self._tasks: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._lock = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._tasks.append((future, lambda: fn(*args, **kwargs)))
            self._lock.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._tasks:
                    self._lock.wait()
            time.sleep(0.01)
            with self._lock:
                future, work = self._tasks.pop()
            if future.set_running_or_notify_cancel():
                future.set_result(work())


def test_the_order_in_which_tasks_end_changes_no_byte(serial: str) -> None:
    assert tuned(Backwards()) == serial


# ---- lost workers --------------------------------------------------------------------------------


class Breaking(Executor):
    """Breaks after some tasks, as a pool does whose process is killed."""

    def __init__(self, after: int, closed: Exception | None = None) -> None:
        self.left = after
        self.closed = closed or BrokenExecutor("the pool is no longer usable")

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.left < -3:
            raise self.closed
        self.left -= 1
        if self.left < 0:
            future.set_exception(BrokenExecutor("a process was killed"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.filterwarnings("ignore:the executor (lost its workers|takes no more tasks)")
@pytest.mark.parametrize("after", [0, 1, 7])
def test_lost_workers_tasks_run_again(serial: str, after: int) -> None:
    assert tuned(Breaking(after)) == serial


@pytest.mark.filterwarnings("ignore:the executor lost its workers")
def test_an_executor_may_refuse_by_an_error_of_its_own(serial: str) -> None:
    """As dask's does where its scheduler was killed."""

    class ClosedClientError(Exception):
        pass

    with pytest.warns(
        RuntimeWarning, match=r"takes no more tasks \(ClosedClientError: Client is closed"
    ):
        assert tuned(Breaking(1, ClosedClientError("Client is closed"))) == serial


class WithoutKeywords(Executor):
    def submit(self, fn: Any, /, *args: Any) -> Future[Any]:  # type: ignore[override]
        raise AssertionError


class Checking(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise InvalidArgument("no room for a task of this size")


@pytest.mark.parametrize(
    ("executor", "error", "said"),
    [
        (WithoutKeywords(), TypeError, "unexpected keyword argument"),
        (Checking(), InvalidArgument, "no room for a task"),
    ],
)
def test_a_mistake_of_an_executor_is_no_loss_of_workers(
    executor: Executor, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        tuned(executor)


def test_time_is_looked_at_while_no_task_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Future()

    class Stopped(Exception):
        pass

    def check() -> None:
        raise Stopped

    monkeypatch.setattr(tasks, "WAITED", 0.01)
    own = Workload(MODULE, load_dataset({"x": X}), neuronsim.Profile(), "trn1", (MetricSpec("cosine"),))
    part = tasks.Part((Trial(reference_plan(MODULE)),), 0)
    with pytest.raises(Stopped):
        tasks.Dispatch(own, Idle()).run([part], lambda *_: None, check, sketches=False)


@pytest.mark.filterwarnings("ignore:the executor (lost its workers|takes no more tasks)")
def test_a_pool_whose_process_is_killed_midway(serial: str) -> None:
    killed = []
    with spawned(2) as executor:

        def progress(stage: str, done: int, total: int) -> None:
            if done and not killed and executor._processes:
                killed.append(next(iter(executor._processes)))
                os.kill(killed[0], signal.SIGKILL)

        assert tuned(executor, progress=progress) == serial
    assert killed


# ---- dask ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # dask's own
@pytest.mark.parametrize("killed", [False, True])
def test_a_dask_cluster_of_two_processes(serial: str, killed: bool) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    done_at: list[int] = []
    with cluster, distributed.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())
        assert len(set(workers)) == 2

        def progress(stage: str, done: int, total: int) -> None:
            if killed and done and not done_at:
                done_at.append(done)
                os.kill(workers[0], signal.SIGKILL)

        assert tuned(client.get_executor(), progress=progress) == serial
    assert bool(done_at) == killed


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_without_workers_is_said() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        said = pytest.warns(RuntimeWarning, match="has no workers: trials wait until one joins it")
        with said, dask_executor(cluster.scheduler_address):
            pass


@pytest.mark.filterwarnings("ignore")
def test_the_command_line_runs_on_a_local_cluster(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("distributed")
    from neuronsim.cli import main

    with np.load("examples/digits/test.npz") as data:
        np.savez(tmp_path / "data.npz", **{n: data[n][:64] for n in data.files})
    found = []
    for more in ([], ["--dask", "local:1"]):
        arguments = ["tune", "examples/digits/model.hlo.pb", "--data", str(tmp_path / "data.npz")]
        assert main([*arguments, "--strategy", "ladder", "--json", "-", *more]) == 0
        body = json.loads(capsys.readouterr().out)
        del body["seconds"]
        found.append(body)
    assert found[0] == found[1]
    assert main([*arguments, "--dask", "local:x"]) == 2
    assert "local:N" in capsys.readouterr().err


def test_dask_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match="neuronsim\\[dask\\]"), dask_executor("local"):
        pass


# ---- what is sent --------------------------------------------------------------------------------


class Elsewhere(Executor):
    """Workers of other machines: each knows what its own tasks brought, and no file."""

    def __init__(self, count: int) -> None:
        self._known: list[dict[str, Workload]] = [{} for _ in range(count)]
        self._turn = 0
        self.sizes: list[int] = []

    def submit(self, fn: Any, /, address: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        self._turn = (self._turn + 1) % len(self._known)
        own, here = self._known[self._turn], dict(tasks._workloads)
        name = f"worker {self._turn}"
        future: Future[Any] = Future()
        if address.content is not None:
            self.sizes.append(len(address.content))
        try:
            tasks._workloads.clear()
            tasks._workloads.update(own)
            answer = fn(address._replace(path=""), *args, **kwargs)
            own |= tasks._workloads
        finally:
            tasks._workloads.clear()
            tasks._workloads.update(here)
        future.set_result(answer._replace(worker=name))
        return future


@pytest.mark.parametrize("count", [1, 3])
def test_the_model_is_sent_to_each_process_about_once(serial: str, count: int) -> None:
    executor = Elsewhere(count)
    assert tuned(executor) == serial
    assert count <= len(executor.sizes) <= 2 * count


def test_a_process_keeps_what_it_was_sent_by_its_hash() -> None:
    own = Workload(MODULE, load_dataset({"x": X}), neuronsim.Profile(), "trn1", (MetricSpec("cosine"),))
    dispatch = tasks.Dispatch(own, Backwards())
    address = dispatch._address
    assert address.key == own.key
    # A pickle that no other user wrote.
    assert Path(address.path).parent.stat().st_mode & 0o077 == 0
    trial = Trial(reference_plan(MODULE))
    first = tasks.run_task(address, [trial], 0, "a client", sketches=False)
    assert first.found is not None
    Path(address.path).unlink()
    again = tasks.run_task(address, [trial], 0, "a client", sketches=False)
    assert again.found == first.found
    other = dataclasses.replace(own, target="inf1")
    lacking = tasks.run_task(
        tasks.Address(other.key, address.path), [trial], 0, "a client", sketches=False
    )
    assert lacking.found is None
    tasks._workloads.clear()
    folder = Path(address.path).parent
    del dispatch
    assert not folder.exists()


def test_a_worker_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = neuronsim.num_threads()
    try:
        neuronsim.set_num_threads(2)
        tasks.run_task(tasks.Address("none", ""), [], 0, tasks.worker_name(), sketches=False)
        assert neuronsim.num_threads() == 2  # the client's own process
        tasks.run_task(tasks.Address("none", ""), [], 0, "another process", sketches=False)
        assert neuronsim.num_threads() == 1
    finally:
        neuronsim.set_num_threads(before)


def test_a_metric_that_cannot_be_sent_is_said() -> None:
    own = 3.0
    with spawned(1) as executor, pytest.raises(InvalidArgument, match="module:function"):
        tuned(executor, metric=lambda outputs, labels: own)
