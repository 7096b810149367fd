"""Running a schedule on several replicas at once, each in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from neuronsim.errors import NeuronSimError
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.rendezvous import Rendezvous, Stopped
from neuronsim.executor.run import on_this_processor, run_schedule
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import Value
from neuronsim.ops import Bits, Replica
from neuronsim.profiles import RoundingState


def run_replicas(
    schedule: Schedule,
    inputs: Sequence[Mapping[str, Bits]],
    diagnostics: Diagnostics,
    words: RoundingState,
    observe: Observe = "off",
) -> list[Value]:
    """The results of one replica for each of these inputs; see `run_schedule`. `diagnostics` receives
    the sum of what they met. They draw the same words of stochastic rounding (S2).

    Raises DivergentReplicas if they wait for each other at different collectives, and else the error of
    the first replica that has one; no thread is left behind.
    """
    schedule = on_this_processor(schedule)
    schedule.recording(observe)  # once, before the threads ask for it
    rendezvous = Rendezvous(len(inputs))
    own = [Diagnostics() for _ in inputs]
    values: dict[int, Value] = {}
    errors: dict[int, BaseException] = {}

    def run(number: int) -> None:
        meet = partial(rendezvous.meet, number)
        replica = Replica(number, len(inputs), meet, rendezvous.check)
        try:
            values[number] = run_schedule(
                schedule,
                inputs[number],
                own[number],
                seed=words.seed,
                call=words.calls,
                replica=replica,
                observe=observe,
            )
        except Stopped:
            pass
        except BaseException as error:
            errors[number] = error
            rendezvous.stop()
        finally:
            rendezvous.leave(number)

    threads = [
        threading.Thread(target=run, args=(n,), name=f"replica {n}", daemon=True)
        for n in range(len(inputs))
    ]
    _run_all(threads, rendezvous)
    for number, error in sorted(errors.items()):
        if isinstance(error, NeuronSimError):
            raise type(error)(f"replica {number}: {error}") from error
        raise error
    if rendezvous.divergence is not None:
        raise rendezvous.divergence
    for c in own:
        diagnostics.add(c)
    return [values[n] for n in range(len(inputs))]


def _run_all(threads: Sequence[threading.Thread], rendezvous: Rendezvous) -> None:
    try:
        for t in threads:
            t.start()
        rendezvous.wait()
    except BaseException:  # Ctrl-C, or no more threads
        rendezvous.stop()
        for n, t in enumerate(threads):
            if t.ident is None:
                rendezvous.leave(n)
        rendezvous.wait()
        raise
    finally:
        for t in threads:
            if t.ident is not None:
                t.join()
