"""Operations in which the replicas of a program take part together: R6, and data movement between them.

Each replica evaluates the row; what a group's members give to each other is a function of the operands
of all of them, which `Replica.meet` calls once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.ops.chains import CORE, core_code, core_name, is_host, make_chain, run_chain
from neuronsim.ops.computations import (
    ScalarComputation,
    applied_computations,
    check_computation,
    computation_chain,
    evaluate_computation,
    is_on_host,
)
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Evaluation,
    Exchange,
    Op,
    Result,
    Setting,
    by_name,
    one_or_tuple,
    sole_axis,
)

# What is the same array on no replica, or only by meeting the others: never folded.
COLLECTIVES = frozenset(
    {"all-reduce", "reduce-scatter", "all-gather", "all-to-all"}
    | {"collective-permute", "collective-broadcast"}
)

# ---- groups ----------------------------------------------------------------------------------------


def _check_groups(attributes: Attributes, *, same_size: bool = True) -> int | None:
    """The size of the replica groups; None where none are listed (all replicas are one group), or the
    sizes differ.
    """
    groups: Sequence[Sequence[int]] = attributes["replica_groups"]
    if attributes.get("use_global_device_ids") and not attributes["channel_id"]:
        raise InvalidArgument("use_global_device_ids needs a channel_id")
    listed = [n for g in groups for n in g]
    if not all(groups):
        raise InvalidArgument("an empty replica group")
    if len(set(listed)) != len(listed) or any(n < 0 for n in listed):
        raise InvalidArgument(f"replica groups {_braces(groups)} name a replica twice, or below 0")
    sizes = {len(g) for g in groups}
    if same_size and len(sizes) > 1:
        raise InvalidArgument(f"replica groups {_braces(groups)} of different sizes")
    return sizes.pop() if len(sizes) == 1 else None


def _braces(groups: Sequence[Sequence[int]]) -> str:
    """Replica groups or pairs as HLO writes them, at most eight."""
    listed = ["{" + ",".join(map(str, g)) + "}" for g in groups[:8]]
    return "{" + ",".join(listed + ["..."] * (len(groups) > 8)) + "}"


def with_groups(op: Op, attributes: Attributes, replicas: int) -> Attributes:
    """The attributes with the replica groups spelled out. Raises InvalidArgument for groups or pairs
    that do not go with this number of replicas.
    """
    if op.name == "collective_permute":
        named = {n for pair in attributes["source_target_pairs"] for n in pair}
        groups: Sequence[Sequence[int]] = attributes["source_target_pairs"]
    else:
        groups = attributes["replica_groups"] or (tuple(range(replicas)),)
        named = {n for g in groups for n in g}
        attributes = {**attributes, "replica_groups": groups}
    beyond = max(named, default=0)
    if beyond >= replicas:
        raise InvalidArgument(
            f"{_braces(groups)} names replica {beyond}, and the program is compiled for "
            f"{replicas} (numbered from 0): give compile replicas={beyond + 1}"
        )
    if op.name not in ("collective_permute", "collective_broadcast") and len(named) < replicas:
        raise InvalidArgument(
            f"replica groups {_braces(groups)} name {len(named)} replicas of {replicas}: every replica "
            "is in one"
        )
    return attributes


def _group(attributes: Attributes, setting: Setting) -> tuple[int, ...]:
    """The members of this replica's group, in the file's order; none where it is in no group."""
    replica = setting.replica
    groups: Sequence[Sequence[int]] = attributes["replica_groups"] or (range(replica.total),)
    return tuple(next((g for g in groups if replica.number in g), ()))


def _meet(
    setting: Setting, members: Sequence[int], operands: Sequence[Bits], exchange: Exchange
) -> tuple[BitsArray, ...]:
    """What this replica gets of `exchange`, once all members are at this instruction, in whichever trip
    of its loops each is.
    """
    if max(members) >= setting.replica.total:
        raise InvalidArgument(
            f"a group of replicas {tuple(members)} in a run of {setting.replica.total}: compile with "
            f"replicas={max(members) + 1}"
        )
    place = setting.path.rpartition("/")[0]
    return setting.replica.meet(place, members, operands, exchange)


def _part_of(stated: int, own: int) -> int:
    """How many parts of this length the stated one has; at least one."""
    return max(stated // own, 1) if own else 1


def _stated(attributes: Attributes, number: int) -> tuple[int, ...]:
    """The dimensions that the graph states for a result."""
    if "results" in attributes:
        results: Sequence[ArrayType] = attributes["results"]
        return results[number].dims if number < len(results) else ()
    return tuple(attributes["dims"])


# ---- all-reduce and reduce-scatter -------------------------------------------------------------------


def _check_reducer(operands: Sequence[ArrayType], attributes: Attributes) -> None:
    """A simple reducer says what to do, in each operand's own type, as XLA has it."""
    (computation,) = applied_computations(attributes, 1)
    for t in operands:
        if attributes["reducer"] is None:
            check_computation(computation, [t.dtype, t.dtype], [t.dtype])
        elif not is_host(t.dtype):
            core_name(by_name(attributes["reducer"]), t.dtype)


def infer_all_reduce(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    _check_groups(attributes, same_size=False)
    _check_reducer(operands, attributes)
    return one_or_tuple(operands)


def evaluate_all_reduce(e: Evaluation) -> tuple[BitsArray, ...]:
    members = _group(e.attributes, e.setting)
    order = _ascending(members)

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        found = _combined([arrived[n] for n in order], e.attributes, e.setting)
        return [found] * len(arrived)

    return _meet(e.setting, members, e.operands, exchange)


def infer_reduce_scatter(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    size = _check_groups(attributes)
    _check_reducer(operands, attributes)
    results = []
    for n, t in enumerate(operands):
        axis = sole_axis(attributes, len(t.dims))
        stated = _stated(attributes, n)
        length = stated[axis] if len(stated) == len(t.dims) else 0
        parts = _part_of(t.dims[axis], length) if size is None else size
        if t.dims[axis] % parts:
            raise InvalidArgument(f"axis {axis} of {t} does not fall into {parts} equal parts")
        results.append(_with_length(t, axis, t.dims[axis] // parts))
    return one_or_tuple(results)


def evaluate_reduce_scatter(e: Evaluation) -> tuple[BitsArray, ...]:
    members = _group(e.attributes, e.setting)
    order = _ascending(members)
    (axis,) = e.attributes["dimensions"]

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        found = []
        for part in range(len(arrived)):
            blocks = [[_block(x, axis, part, len(arrived)) for x in arrived[n]] for n in order]
            found.append(_combined(blocks, e.attributes, e.setting))
        return found

    return _meet(e.setting, members, e.operands, exchange)


def _ascending(members: Sequence[int]) -> list[int]:
    """R6: the places in the group by replica number."""
    return sorted(range(len(members)), key=members.__getitem__)


def _with_length(t: ArrayType, axis: int, length: int) -> ArrayType:
    return ArrayType(t.dtype, (*t.dims[:axis], length, *t.dims[axis + 1 :]))


def _block(x: Bits, axis: int, number: int, count: int) -> Bits:
    """One of `count` equal parts along an axis."""
    length = x.data.shape[axis] // count
    where = (slice(None),) * axis + (slice(number * length, (number + 1) * length),)
    return Bits(x.data[where], x.dtype)


# A step of a fold: the accumulator and the next array; whether it is the last.
_FoldStep = Callable[[Bits, Bits, bool], Bits]


def _combined(
    replicas: Sequence[Sequence[Bits]], attributes: Attributes, setting: Setting
) -> tuple[BitsArray, ...]:
    """R6: each of the replicas' arrays from the first replica on. What one replica has alone moves."""
    if len(replicas) == 1:
        return _copies(replicas[0])
    found = []
    for n, arrays in enumerate(zip(*replicas, strict=True)):
        step = _fold_step(attributes, arrays[0].dtype, setting.of_result(n))
        acc = arrays[0]
        for m, x in enumerate(arrays[1:], 2):
            acc = step(acc, x, m == len(arrays))
        found.append(acc.data)
    return tuple(found)


def _fold_step(attributes: Attributes, dtype: DType, setting: Setting) -> _FoldStep:
    """A simple reducer takes floats in float32 and rounds once, another computation as typed."""
    if attributes["reducer"] is not None:
        return _simple_step(by_name(attributes["reducer"]), dtype, setting)
    (computation,) = applied_computations(attributes, 1)
    return lambda a, b, _: _applied(computation, a, b, setting)


def _simple_step(reducer: Op, dtype: DType, setting: Setting) -> _FoldStep:
    if is_host(dtype):
        function: np.ufunc = getattr(np, reducer.name)
        return lambda a, b, _: Bits(np.asarray(function(a.data, b.data)), dtype)
    opcode = CORE[core_name(reducer, dtype)]
    wide = dtypes.float32 if dtype.kind == "float" else dtype

    def step(a: Bits, b: Bits, last: bool) -> Bits:
        t = dtype if last else wide
        codes = tuple(core_code(x, reducer.label) for x in (a.dtype, b.dtype, t))
        program = make_chain(codes[:2], ((opcode, codes[2], (0, 1)),), (2,), setting.profile)
        ids = [setting.identifier()] if program.draws else []
        types = [ArrayType(t, a.data.shape)]
        (data,) = run_chain(program, [a.data, b.data], types, setting.seed, ids)
        return Bits(data, t)

    return step


def _applied(computation: ScalarComputation, a: Bits, b: Bits, setting: Setting) -> Bits:
    if is_on_host(computation):
        (found,) = evaluate_computation(computation, [a, b], setting)
        return found
    program = computation_chain(computation, setting.profile)
    (data,) = run_chain(program, [a.data, b.data], [a.type])
    return Bits(data, a.dtype)


# ---- data movement -----------------------------------------------------------------------------------


def infer_all_gather(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    size = _check_groups(attributes)
    results = []
    for n, t in enumerate(operands):
        axis = sole_axis(attributes, len(t.dims))
        stated = _stated(attributes, n)
        length = stated[axis] if len(stated) == len(t.dims) else 0
        parts = _part_of(length, t.dims[axis]) if size is None else size
        results.append(_with_length(t, axis, t.dims[axis] * parts))
    return one_or_tuple(results)


def evaluate_all_gather(e: Evaluation) -> tuple[BitsArray, ...]:
    (axis,) = e.attributes["dimensions"]

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        columns = zip(*arrived, strict=True)
        found = tuple(np.concatenate([x.data for x in c], axis) for c in columns)
        return [found] * len(arrived)

    return _meet(e.setting, _group(e.attributes, e.setting), e.operands, exchange)


def infer_all_to_all(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    size = _check_groups(attributes)
    if not attributes["dimensions"]:
        # Each operand goes to a member of the group.
        if size is not None and len(operands) != size:
            raise InvalidArgument(f"{len(operands)} operands for groups of {size} replicas")
        if any(t != operands[0] for t in operands):
            raise InvalidArgument(f"operands of different types: {', '.join(map(str, operands))}")
        return tuple(operands)
    axis = sole_axis(attributes, len(operands[0].dims))
    if len(operands) != 1:
        raise InvalidArgument("takes one operand where it splits a dimension")
    if operands[0].dims[axis] % (size or 1):
        raise InvalidArgument(f"axis {axis} of {operands[0]} does not fall into {size} equal parts")
    return operands[0]


def evaluate_all_to_all(e: Evaluation) -> tuple[BitsArray, ...]:
    axes: Sequence[int] = e.attributes["dimensions"]

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        count = len(arrived)
        if not axes:
            return [tuple(x[part].data.copy() for x in arrived) for part in range(count)]
        blocks = [[_block(x, axes[0], n, count).data for (x,) in arrived] for n in range(count)]
        return [(np.concatenate(b, axes[0]),) for b in blocks]

    return _meet(e.setting, _group(e.attributes, e.setting), e.operands, exchange)


def infer_collective_permute(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    pairs: Sequence[tuple[int, int]] = attributes["source_target_pairs"]
    for n, what in enumerate(("source", "target")):
        named = [pair[n] for pair in pairs]
        if len(set(named)) != len(named) or any(replica < 0 for replica in named):
            raise InvalidArgument(f"pairs {_braces(pairs)} name a {what} twice, or below 0")
    return one_or_tuple(operands)


def evaluate_collective_permute(e: Evaluation) -> tuple[BitsArray, ...]:
    sources: Mapping[int, int] = {target: n for n, target in e.attributes["source_target_pairs"]}

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        return [
            _copies(arrived[sources[n]]) if n in sources else _zeros(arrived[n])
            for n in range(len(arrived))
        ]

    return _meet(e.setting, range(e.setting.replica.total), e.operands, exchange)


def infer_collective_broadcast(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    _check_groups(attributes, same_size=False)
    return one_or_tuple(operands)


def evaluate_collective_broadcast(e: Evaluation) -> tuple[BitsArray, ...]:
    members = _group(e.attributes, e.setting)
    if not members:
        return _zeros(e.operands)

    def exchange(arrived: Sequence[Sequence[Bits]]) -> list[tuple[BitsArray, ...]]:
        return [_copies(arrived[0])] * len(arrived)

    return _meet(e.setting, members, e.operands, exchange)


def _copies(operands: Sequence[Bits]) -> tuple[BitsArray, ...]:
    """Their owner goes on, and may overwrite its own, before the others have read them."""
    return tuple(x.data.copy() for x in operands)


def _zeros(operands: Sequence[Bits]) -> tuple[BitsArray, ...]:
    return tuple(np.zeros_like(x.data) for x in operands)


# ---- where a replica stands --------------------------------------------------------------------------


def infer_device_number(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return ArrayType(dtypes.uint32, ())


def evaluate_replica_id(e: Evaluation) -> BitsArray:
    return np.array(e.setting.replica.number, np.uint32)


def evaluate_partition_id(e: Evaluation) -> BitsArray:
    """Each replica is one partition, unless the module was partitioned: then the devices are its
    partitions.
    """
    return np.array(e.setting.replica.number if e.attributes["partitioned"] else 0, np.uint32)
