"""Replica groups: lists of device numbers, XLA's short form (these counted up, reshaped, transposed),
or axes of a mesh of devices.

>>> _replica_groups(Cursor("[2,2]<=[2,2]T(1,0)"))
((0, 2), (1, 3))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from neuronsim.errors import InvalidModel
from neuronsim.hlo import lexer
from neuronsim.hlo.attribute_kinds import one_key
from neuronsim.hlo.lexer import Cursor, braces, integer, integers, items
from neuronsim.hlo.wire import Message

Groups = tuple[tuple[int, ...], ...]

MAX_DEVICES = 1 << 16


def _replica_groups(c: Cursor) -> Groups:
    """`{{0,1},{2,3}}` or `[2,2]<=[4]`, which a permutation may follow."""
    if lexer.peek(c) == "{":
        return tuple(items(c, "{", "}", integers))
    if lexer.peek(c) != "[":
        lexer.fail(c, f"replica groups of this form are not read: {lexer.found(c)}")
    sizes = items(c, "[", "]", integer)
    lexer.expect(c, "<=")
    dims = items(c, "[", "]", integer)
    permutation = items(c, "(", ")", integer) if lexer.accept(c, "T") else []
    if len(sizes) != 2:
        lexer.fail(c, f"replica groups have two sizes, not {len(sizes)}")
    with lexer.located(c):
        return _expand_iota(sizes[0], sizes[1], dims, permutation)


def show_groups(value: Sequence[Sequence[int]]) -> str:
    return f"{{{','.join(map(braces, value))}}}"


def _decode(message: Message) -> Groups:
    if "mesh_axes_replica_group_list" in message:
        return _of_mesh(message["mesh_axes_replica_group_list"])
    devices = message.get("collective_device_list", {})
    iota = message.get("iota_collective_device_list") or devices.get("iota")
    if iota:
        return _expand_iota(
            iota.get("num_replica_groups", 0),
            iota.get("num_devices_per_group", 0),
            iota.get("iota_reshape_dims", []),
            iota.get("iota_transpose_perm", []),
        )
    groups = message.get("replica_groups") or devices.get("replica_groups") or ()
    return tuple(tuple(group.get("replica_ids", ())) for group in groups)


def _expand_iota(
    groups: int, devices: int, reshape: Sequence[int], permutation: Sequence[int]
) -> Groups:
    """The groups of `[groups,devices]<=[reshape]T(permutation)`.

    Raises InvalidModel where the numbers do not fit each other or name more than MAX_DEVICES.
    """
    dims = tuple(reshape) or (groups * devices,)
    axes = tuple(permutation) or tuple(range(len(dims)))
    size = groups * devices
    legal = min(groups, devices, *dims) > 0 and math.prod(dims[:64]) == size and len(dims) <= 32
    if not legal or sorted(axes) != list(range(len(dims))):
        raise InvalidModel(
            f"replica groups [{groups},{devices}]<={list(dims[:8])} contradict themselves"
        )
    if size > MAX_DEVICES:
        raise InvalidModel(f"replica groups of {size} devices: neuronsim reads up to {MAX_DEVICES}")
    numbers = np.arange(size).reshape(dims).transpose(axes).reshape(groups, devices)
    return tuple(map(tuple, numbers.tolist()))


def _of_mesh(message: Message) -> Groups:
    """The groups of devices along axes of a mesh, or along parts of these: the axes are cut where such
    a part begins and ends, and those of a group follow each other as in the mesh.

    Raises InvalidModel where the axes do not fit the mesh.
    """
    mesh, wanted = message.get("mesh", {}), message.get("axes", [])
    sizes = [axis.get("size", 0) for axis in mesh.get("axes", [])]
    iota = mesh.get("iota", {})
    if not sizes or min(sizes) < 1:
        raise InvalidModel(f"replica groups on a mesh of {sizes[:8]}: a mesh has axes of 1 and more")
    total = math.prod(sizes[:64])
    if total > MAX_DEVICES or len(sizes) > 32 or len(wanted) > 64:
        raise InvalidModel(
            f"replica groups along {len(wanted)} parts of a mesh of {len(sizes)} axes, {sizes[:8]}: "
            f"up to 64 parts, 32 axes and {MAX_DEVICES} devices are read"
        )
    if mesh.get("device_ids"):
        devices = tuple(mesh["device_ids"])
    else:
        (devices,) = _expand_iota(
            1, total, iota.get("reshape_dims", []), iota.get("transpose_perm", [])
        )
    parts = []
    for axis in wanted:
        number, sub = axis.get("mesh_axis_index", 0), axis.get("sub_axis_info")
        size = sizes[number] if number in range(len(sizes)) else 0
        first, count = (sub.get("pre_size", 0), sub.get("size", 0)) if sub else (1, size)
        if min(first, count) < 1 or not size or size % (first * count):
            raise InvalidModel(f"replica groups along {dict(axis)} of a mesh of {sizes}: no part of it")
        parts.append((number, first, first * count))
    dims: list[int] = []
    grouped: list[int] = []
    for number, size in enumerate(sizes):
        own = sorted((first, last) for n, first, last in parts if n == number)
        overlap = any(last > first for (_, last), (first, _) in itertools.pairwise(own))
        for a, b in itertools.pairwise(sorted({1, size, *itertools.chain(*own)})):
            if overlap or b % a:
                raise InvalidModel(f"replica groups along parts {own} of an axis of {size} overlap")
            if any(first <= a and b <= last for first, last in own):
                grouped.append(len(dims))
            dims.append(b // a)
    if len(devices) != total:
        raise InvalidModel(f"replica groups on a mesh of {sizes}, which has {len(devices)} devices")
    others = [d for d in range(len(dims)) if d not in grouped]
    numbers = np.array(devices).reshape(dims).transpose(others + grouped)
    return tuple(map(tuple, numbers.reshape(-1, math.prod(dims[d] for d in grouped)).tolist()))


REPLICA_GROUPS = one_key(
    *("replica_groups", _replica_groups, show_groups),
    "replica_groups collective_device_list iota_collective_device_list mesh_axes_replica_group_list",
    *(_decode, lambda value: {"replica_groups": [{"replica_ids": list(group)} for group in value]}),
)
