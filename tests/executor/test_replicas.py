"""Programs on several replicas: against XLA, rule R6 from end to end, errors that end every thread."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.test_interrupts import alarm
from tests.executor.replicas_by_xla import REPLICAS
from tests.support.processes import run_python
from tests.support.processors import check_everywhere
from tests.support.words import words

import neuronsim
from neuronsim import errors
from neuronsim.executor import replicas as runner
from neuronsim.executor.rendezvous import Rendezvous, Stopped
from neuronsim.profiles import Profile
from neuronsim.reference import sums

pytestmark = pytest.mark.isa_independent  # threads and meetings, whatever the kernels

ROOT = Path(__file__).parents[2]
N = REPLICAS
PREAMBLE = """HloModule m

add {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT c = TYPE[] OP(a, b)
}
"""


def text(body: str, dtype: str = "f32", op: str = "add") -> str:
    """A module whose entry has these instructions; its parameter is x."""
    return f"{PREAMBLE.replace('TYPE', dtype).replace('OP', op)}\nENTRY main {{\n{body}\n}}\n"


def compiled(source: str, replicas: int = N, **more: Any) -> neuronsim.api.CompiledProgram:
    return neuronsim.compile(source.encode(), auto_cast="none", replicas=replicas, **more)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """A replica's thread has ended when the call returns or raises, and none hangs."""
    timer = threading.Timer(60, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()
    timer.join()
    assert [t.name for t in threading.enumerate() if t.name.startswith("replica ")] == []


# ---- against XLA ---------------------------------------------------------------------------------

X = "  x = {0} parameter(0)\n"
# Body, element type, reducer, the shape of x.
BY_XLA: list[tuple[str, str, str, tuple[int, ...]]] = [
    ("ROOT y = s32[3,4] all-reduce(x), replica_groups={}, to_apply=add", "s32", "add", (3, 4)),
    (
        "ROOT y = s32[5] all-reduce(x), replica_groups={{0,2},{3,1}}, to_apply=add",
        "s32",
        "multiply",
        (5,),
    ),
    ("ROOT y = u8[5] all-reduce(x), replica_groups={{0,2,1},{3}}, to_apply=add", "u8", "minimum", (5,)),
    ("ROOT y = pred[5] all-reduce(x), replica_groups={}, to_apply=add", "pred", "and", (5,)),
    ("ROOT y = f32[64] all-reduce(x), replica_groups={}, to_apply=add", "f32", "maximum", (64,)),
    ("ROOT y = f32[64] all-reduce(x), replica_groups={}, to_apply=add", "f32", "add", (64,)),
    (
        "ROOT y = (f32[64], f32[64]) all-reduce(x, x), replica_groups={{3,1},{0,2}}, to_apply=add",
        *("f32", "add", (64,)),
    ),
    (
        "ROOT y = f32[64] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, "
        "use_global_device_ids=true, to_apply=add",
        *("f32", "add", (64,)),
    ),
    (
        "ROOT y = s32[2,2] reduce-scatter(x), replica_groups={{2,0},{1,3}}, dimensions={1}, "
        "to_apply=add",
        *("s32", "add", (2, 4)),
    ),
    (
        "ROOT y = f32[2,16] reduce-scatter(x), replica_groups={{0,1,2,3}}, dimensions={0}, "
        "to_apply=add",
        *("f32", "add", (8, 16)),
    ),
    (
        "ROOT y = f32[2,16] all-gather(x), replica_groups={{3,0,2,1}}, dimensions={1}",
        *("f32", "add", (2, 4)),
    ),
    ("ROOT y = s32[12] all-gather(x), replica_groups={}, dimensions={0}", "s32", "add", (3,)),
    (
        "ROOT y = s32[4,6] all-to-all(x), replica_groups={{3,0},{1,2}}, dimensions={1}",
        *("s32", "add", (4, 6)),
    ),
    (
        "p = s32[1,6] slice(x), slice={[0:1], [0:6]}\n  q = s32[1,6] slice(x), slice={[1:2], [0:6]}\n"
        "  ROOT y = (s32[1,6], s32[1,6]) all-to-all(p, q), replica_groups={{3,0},{1,2}}",
        *("s32", "add", (2, 6)),
    ),
    (
        "ROOT y = f32[2,2] collective-permute(x), source_target_pairs={{0,2},{2,3},{3,0}}",
        *("f32", "add", (2, 2)),
    ),
    (
        "r = u32[] replica-id()\n  p = u32[] partition-id()\n  s = s32[2] all-reduce(x), to_apply=add\n"
        "  ROOT y = (u32[], u32[], s32[2]) tuple(r, p, s)",
        *("s32", "add", (2,)),
    ),
]


def data(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "f32":
        return numbers(N, *shape, seed=seed)
    kinds = {"s32": np.int32, "u8": np.uint8, "pred": np.bool_}
    if dtype == "pred":
        return rng.random((N, *shape)) < 0.8
    info = np.iinfo(kinds[dtype])
    return rng.integers(info.min, info.max, (N, *shape), kinds[dtype], endpoint=True)


@pytest.fixture(scope="module")
def xla_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("the peer jax is not installed (extra `peers`)")
    folder = tmp_path_factory.mktemp("xla")
    cases: dict[str, Any] = {}
    for n, (body, dtype, op, shape) in enumerate(BY_XLA):
        cases[f"text_{n}"] = case_text(body, dtype, op, shape)
        cases[f"input_{n}"] = data(dtype, shape, n)
    np.savez(folder / "cases.npz", **cases)
    command = [sys.executable, "-m", "tests.executor.replicas_by_xla"]
    files = [str(folder / "cases.npz"), str(folder / "results.npz")]
    done = subprocess.run(
        command + files, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "results.npz"))


def case_text(body: str, dtype: str, op: str, shape: tuple[int, ...]) -> str:
    parameter = X.format(f"{dtype}[{','.join(map(str, shape))}]")
    return text(f"{parameter}  {body}", dtype, op)


@pytest.mark.parametrize("n", range(len(BY_XLA)))
def test_collective_agrees_with_xla(n: int, xla_results: dict[str, np.ndarray]) -> None:
    """Bit for bit, but for float32 sums: of four terms, whose errors are at most 3 eps of the sum of
    their magnitudes in either order.
    """
    body, dtype, op, shape = BY_XLA[n]
    x = data(dtype, shape, n)
    found = compiled(case_text(body, dtype, op, shape))(x)
    results = [np.asarray(r) for r in (found if isinstance(found, tuple) else (found,))]
    for m, result in enumerate(results):
        expected = xla_results[f"result_{n}_{m}"]
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if dtype == "f32" and op == "add" and "reduce" in body:
            bound = 3 * 2.0**-23 * np.abs(x).sum(axis=0).max()
            assert np.abs(result - expected).max() <= bound
        else:
            assert result.tobytes() == expected.tobytes()


# ---- whole programs ------------------------------------------------------------------------------

ALL_REDUCE = text(X.format("f32[40]") + "  ROOT y = f32[40] all-reduce(x), to_apply=add")
IN_LOOP = """
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sum = f32[8] all-reduce(v), replica_groups=GROUPS, to_apply=add
  half = f32[] constant(0.5)
  halves = f32[8] broadcast(half), dimensions={}
  scaled = f32[8] multiply(sum, halves)
  ROOT t = (s32[], f32[8]) tuple(next, scaled)
}

condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  r = u32[] replica-id()
  n = s32[] LIMIT
  ROOT lt = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=condition, body=body
  ROOT v = f32[8] get-tuple-element(w), index=1
}
"""


def loop(groups: str, limit: str) -> str:
    """A loop whose trips meet in these groups; without any it has no collective."""
    found = PREAMBLE.replace("TYPE", "f32").replace("OP", "add") + IN_LOOP.replace("LIMIT", limit)
    if not groups:
        return found.replace("all-reduce(v), replica_groups=GROUPS, to_apply=add", "negate(v)")
    return found.replace("GROUPS", groups)


def total(x: np.ndarray) -> np.ndarray:
    """R6 in the twin: the replicas' sum."""
    rows = zip(*(part.view(np.uint32).ravel().tolist() for part in x), strict=True)
    words = [sums.reduce_replicas("add", "float32", row) for row in rows]
    return np.array(words, np.uint32).view(np.float32).reshape(x.shape[1:])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_all_reduce_R6_of_a_program_is_the_twins(replicas: int) -> None:
    x = numbers(replicas, 40)
    found = np.asarray(compiled(ALL_REDUCE, replicas)(x))
    assert found.shape == (replicas, 40)
    assert all(row.tobytes() == total(x).tobytes() for row in found)


def test_loop_meets_in_every_trip() -> None:
    x = numbers(N, 8)
    found = np.asarray(compiled(loop("{}", "constant(5)"))(x))
    state = x
    for _ in range(5):
        state = np.stack([total(state) * np.float32(0.5)] * N)
    assert found.tobytes() == state.tobytes()


def test_groups_may_take_different_numbers_of_trips() -> None:
    x = numbers(N, 8)
    found = np.asarray(compiled(loop("{{0},{1},{2},{3}}", "convert(r)"))(x))
    for number in range(N):
        assert found[number].tobytes() == (x[number] * np.float32(0.5) ** number).tobytes()


def test_one_replica_is_alone_in_its_group() -> None:
    x = numbers(40)
    program = compiled(ALL_REDUCE, 1)
    assert np.asarray(program(x)).tobytes() == x.tobytes()
    assert np.asarray(program(x)).shape == (40,)


def test_collectives_of_constants_are_not_folded() -> None:
    body = (
        "  x = f32[] constant(3)\n  s = f32[] all-reduce(x), to_apply=add\n  r = u32[] replica-id()\n"
    )
    body += "  f = f32[] convert(r)\n  ROOT y = f32[] add(s, f)"
    assert np.asarray(compiled(text(body))()).tolist() == [12.0, 13.0, 14.0, 15.0]


def test_casts_of_all_sum_in_float32_and_round_once() -> None:
    x = numbers(N, 40)
    program = neuronsim.compile(ALL_REDUCE.encode(), auto_cast="all", auto_cast_type="bf16", replicas=N)
    found = np.asarray(program(x))
    rounded = np.asarray(neuronsim.asarray(x).astype("bfloat16").astype("float32"))
    expected = neuronsim.asarray(total(rounded)).astype("bfloat16").astype("float32")
    assert all(row.tobytes() == np.asarray(expected).tobytes() for row in found)
    assert found.tobytes() != np.stack([total(x)] * N).tobytes()


@pytest.mark.parametrize("kind", ["bf16", "tf32", "fp16"])
def test_casts_of_all_round_each_array_of_a_collective(kind: str) -> None:
    body = X.format("f32[2,4]") + "  n = s32[2,4] constant({{1,2,3,4},{5,6,7,8}})\n"
    body += "  e = f32[2,4] negate(x)\n  s = (f32[2,4], s32[2,4]) all-reduce(e, n), to_apply=add\n"
    body += (
        "  f = f32[2,4] get-tuple-element(s), index=0\n  i = s32[2,4] get-tuple-element(s), index=1\n"
    )
    body += "  g = f32[2,8] all-gather(f), dimensions={1}\n"
    body += "  r = f32[1,8] reduce-scatter(g), dimensions={0}, to_apply=add\n"
    body += "  ROOT y = (f32[1,8], s32[2,4]) tuple(r, i)"
    program = neuronsim.compile(text(body).encode(), auto_cast="all", auto_cast_type=kind, replicas=2)
    name = {"bf16": "bfloat16", "tf32": "tfloat32", "fp16": "float16"}[kind]

    def rounded(a: np.ndarray) -> np.ndarray:
        return np.asarray(neuronsim.asarray(a).astype(name).astype("float32"))

    x = numbers(2, 2, 4)
    first = rounded(total(-rounded(x)))
    second = rounded(first + first)
    floats, integers = (np.asarray(a) for a in program(x))
    assert floats.tobytes() == np.stack([np.tile(second, 2)[n : n + 1] for n in (0, 1)]).tobytes()
    assert integers.tolist() == [[[2, 4, 6, 8], [10, 12, 14, 16]]] * 2


def test_stochastic_rounding_S2_keeps_replicas_equal() -> None:
    """What is the same on every replica stays the same, as the weights of data-parallel training do."""
    body = X.format("f32[40]") + "  ROOT y = bf16[40] convert(x)"
    program = compiled(text(body), profile=Profile(rounding="stochastic"))
    found = np.asarray(program(numbers(40), seed=3).astype("float32"))
    again = np.asarray(program(numbers(40)).astype("float32"))
    assert all(row.tobytes() == found[0].tobytes() for row in found)
    assert again.tobytes() != found.tobytes()


def test_int64_C7_is_truncated_and_counted_over_the_replicas() -> None:
    source = text(X.format("s64[2]") + "  ROOT y = s64[2] all-reduce(x), to_apply=add", "s64")
    program = compiled(source, 2)
    found = np.asarray(program(np.array([[2**31 - 1, 5], [1, 6]], np.int64)))
    assert found.tolist() == [[-(2**31), 11]] * 2
    assert program.diagnostics["int64_truncated"] == {"y": 2}


def test_outside_range_E3_is_counted_over_the_replicas() -> None:
    source = text(X.format("f32[2]") + "  ROOT y = f32[2] log(x)")
    program = compiled(source, 2, profile=Profile(activation="neuron_range"))
    found = np.asarray(program(np.array([[1, 0], [0, 0]], np.float32)))
    assert np.isnan(found).tolist() == [[False, True], [True, True]]
    assert program.diagnostics["outside_range"] == {"y": 3}


def test_input_without_the_axis_is_the_same_for_every_replica() -> None:
    program = compiled(ALL_REDUCE, 2)
    x = numbers(40)
    assert np.asarray(program(x)).tolist() == [(x + x).tolist()] * 2
    with pytest.raises(errors.InvalidData, match="axis of 2 replicas"):
        program(numbers(3, 40))
    # 4 of an axis of 40 are no other batch.
    with pytest.raises(errors.InvalidData, match=r"axis of 2 replicas before that$"):
        program(numbers(4))
    with pytest.raises(errors.InvalidData, match=r"the model takes float32\[40\]$"):
        compiled(ALL_REDUCE, 1)(numbers(1, 40))


def test_results_of_a_tuple_have_the_axis() -> None:
    body = X.format("f32[3]") + "  n = f32[3] negate(x)\n  t = (f32[3]) tuple(n)\n"
    body += "  ROOT y = (f32[3], (f32[3])) tuple(x, t)"
    x = numbers(N, 3)
    plain, (negated,) = compiled(text(body))(x)
    assert np.asarray(plain).tobytes() == x.tobytes()
    assert np.asarray(negated).tobytes() == (-x).tobytes()


def test_saved_program_keeps_its_replicas(tmp_path: Path) -> None:
    program = compiled(ALL_REDUCE)
    program.save(tmp_path / "p.nsim")
    loaded = neuronsim.load(tmp_path / "p.nsim")
    x = numbers(N, 40)
    assert np.asarray(loaded(x)).tobytes() == np.asarray(program(x)).tobytes()


def test_partition_id_numbers_the_devices_of_a_partitioned_module() -> None:
    """XLA's partitioner gives its collectives channels; without them a replica is one partition."""
    body = X.format("f32[2]") + "  s = f32[2] all-reduce(x), CHANNELto_apply=add\n"
    body += "  p = u32[] partition-id()\n  ROOT y = (u32[], f32[2]) tuple(p, s)"
    x = numbers(N, 2)
    for channel, expected in (("", [0] * N), ("channel_id=1, ", list(range(N)))):
        places, _ = compiled(text(body.replace("CHANNEL", channel)))(x)
        assert np.asarray(places).tolist() == expected


def test_partition_id_numbers_the_devices_where_nothing_is_exchanged() -> None:
    """What `jax.lax.axis_index` becomes in a shard_map without collectives."""
    places = compiled(text("  ROOT p = u32[] partition-id()"))()
    assert np.asarray(places).tolist() == list(range(N))


def test_program_runs_on_another_instruction_set(restored_processor: None) -> None:
    x = numbers(N, 40)
    program = compiled(ALL_REDUCE)
    check_everywhere(lambda: words(program(x)))


def test_programs_run_at_once_do_not_meet() -> None:
    program = compiled(loop("{}", "constant(20)"))
    inputs = [numbers(N, 8, seed=n) for n in range(6)]
    expected = [np.asarray(program(x)).tobytes() for x in inputs]
    found: dict[int, bytes] = {}

    def call(n: int) -> None:
        found[n] = np.asarray(program(inputs[n])).tobytes()

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [found[n] for n in range(6)] == expected


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "replicas", "message"),
    [
        ("all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add", 1, "main/y.*replicas=4"),
        ("all-reduce(x), replica_groups={{0,1}}, to_apply=add", 4, "2 replicas of 4"),
        ("collective-permute(x), source_target_pairs={{0,4}}", 4, "main/y.*replicas=5"),
    ],
)
def test_groups_that_are_not_of_the_replicas_are_refused(
    line: str, replicas: int, message: str
) -> None:
    source = text(X.format("f32[4]") + f"  ROOT y = f32[4] {line}")
    with pytest.raises(errors.InvalidArgument, match=message):
        compiled(source, replicas)


def test_shapes_of_another_number_of_replicas_are_refused() -> None:
    source = text(X.format("f32[4]") + "  ROOT y = f32[8] all-gather(x), dimensions={0}")
    assert np.asarray(compiled(source, 2)(numbers(2, 4))).shape == (2, 8)
    for replicas in (1, 4):
        with pytest.raises(errors.InvalidArgument, match="another number of replicas"):
            compiled(source, replicas)


@pytest.mark.parametrize("replicas", [0, -1, 257, 2.0, True, "4"])
def test_number_of_replicas_that_cannot_be(replicas: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="replicas is an integer from 1 to 256"):
        compiled(ALL_REDUCE, replicas)


def test_replicas_that_end_early_are_divergent() -> None:
    program = compiled(loop("{}", "convert(r)"))
    with pytest.raises(
        errors.DivergentReplicas, match="replicas 1, 2, 3 at body/sum, replica 0 at the end"
    ):
        program(numbers(N, 8))


def test_replica_that_ends_while_others_wait_is_divergent() -> None:
    rendezvous = Rendezvous(2)

    def wait() -> None:
        with pytest.raises(Stopped):
            rendezvous.meet(0, "0/main/c", (0, 1), [], lambda operands: [()] * len(operands))
        rendezvous.leave(0)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.1)  # it waits by then
    rendezvous.leave(1)
    waiting.join(10)
    found = rendezvous.divergence
    rendezvous.stop()
    waiting.join()
    assert "replica 0 at main/c, replica 1 at the end" in str(found)


BRANCHES = """
sums {
  v = f32[8] parameter(0)
  ROOT s = f32[8] all-reduce(v), to_apply=add
}

moves {
  v = f32[8] parameter(0)
  ROOT g = f32[8] collective-permute(v), source_target_pairs={{0,1},{1,0}}
}

ENTRY"""


def test_different_collectives_that_meet_are_divergent() -> None:
    body = X.format("f32[8]") + "  r = u32[] replica-id()\n  zero = u32[] constant(0)\n"
    body += "  is = pred[] compare(r, zero), direction=EQ\n"
    body += "  ROOT y = f32[8] conditional(is, x, x), true_computation=sums, false_computation=moves"
    program = compiled(text(body).replace("\nENTRY", BRANCHES), 2)
    with pytest.raises(errors.DivergentReplicas, match="replica 0 at sums/s, replica 1 at moves/g"):
        program(numbers(2, 8))


def test_error_of_a_replica_stops_loops_without_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(loop("", "constant(20000000)"))  # minutes
    failing(monkeypatch, 2, errors.OutOfMemory("no room"))
    begin = time.monotonic()
    with pytest.raises(errors.OutOfMemory, match="replica 2: no room"):
        program(numbers(N, 8))
    assert time.monotonic() - begin < 3


def failing(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """The run of one replica raises this before its first step."""
    run = runner.run_schedule

    def replaced(*arguments: Any, replica: Any, **more: Any) -> Any:
        if replica.number == number:
            time.sleep(0.05)  # the others are waiting by then
            raise error
        return run(*arguments, replica=replica, **more)

    monkeypatch.setattr(runner, "run_schedule", replaced)


def test_error_of_a_replica_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(ALL_REDUCE)
    with monkeypatch.context() as patch:
        failing(patch, 2, errors.OutOfMemory("no room"))
        with pytest.raises(errors.OutOfMemory, match="replica 2: no room"):
            program(numbers(N, 40))
    assert np.asarray(program(numbers(N, 40))).shape == (N, 40)


def test_error_that_is_not_of_neuronsim_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 1, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        compiled(ALL_REDUCE)(numbers(N, 40))


def test_error_in_the_exchange_is_that_of_the_first_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes last: each of the group gets it."""

    def refuse(*_: Any) -> Any:
        raise errors.UnsupportedType("no such type")

    program = compiled(ALL_REDUCE)
    monkeypatch.setattr("neuronsim.ops.collectives.run_chain", refuse)
    with pytest.raises(errors.UnsupportedType, match=r"replica 0: y \(all-reduce\): no such type"):
        program(numbers(N, 40))


def test_thread_that_does_not_start_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def replaced(thread: threading.Thread) -> None:
        if thread.name == "replica 3":
            raise RuntimeError("can't start new thread")
        start(thread)

    program = compiled(ALL_REDUCE)
    monkeypatch.setattr(threading.Thread, "start", replaced)
    with pytest.raises(RuntimeError, match="can't start"):
        program(numbers(N, 40))


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, neuronsim
program = neuronsim.compile(open(sys.argv[1], "rb").read(), auto_cast="none", replicas=4)
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    program(np.zeros((4, 8), np.float32))
except KeyboardInterrupt:
    left = [t.name for t in threading.enumerate() if t.name.startswith("replica")]
    print("interrupted", left, time.monotonic() - begin < 20)
"""


def test_interrupt_ends_a_long_collective() -> None:
    """Its kernel, too: the one that adds up does not hold what the others wait with."""
    replicas, n = 2, 1 << 23
    powers = "\n".join(f"  s{k + 1} = f32[] power(s{k}, b)" for k in range(14))
    program = compiled(
        f"""HloModule m
powers {{
  s0 = f32[] parameter(0)
  b = f32[] parameter(1)
{powers}
  ROOT s = f32[] negate(s14)
}}

ENTRY main {{
  x = f32[{n}] parameter(0)
  ROOT y = f32[{n}] all-reduce(x), replica_groups={{}}, to_apply=powers
}}
""",
        replicas,
    )
    x = np.full((replicas, n), 1.001, np.float32)

    def end(*arguments: object) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with alarm(end, 0.3), pytest.raises(KeyboardInterrupt):
        program(x)
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize("groups", ["{}", "{{0},{1},{2},{3}}", ""])
def test_interrupt_ends_every_replica(groups: str, tmp_path: Path) -> None:
    """Those that wait, those that meet nobody, and those whose loop has no collective."""
    (tmp_path / "m.txt").write_text(loop(groups, "constant(2000000000)"))
    done = run_python(INTERRUPTED, tmp_path / "m.txt", timeout=60)
    assert done.stdout == "interrupted [] True\n", done.stderr
