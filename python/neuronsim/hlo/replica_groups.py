"""Replica groups: lists of device numbers, or XLA's short form: these counted up, reshaped, transposed.

>>> _replica_groups(Cursor("[2,2]<=[2,2]T(1,0)"))
((0, 2), (1, 3))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim.errors import InvalidModel, UnsupportedOperator
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
        raise UnsupportedOperator(
            "replica groups given by the axes of a mesh are not read: export the module with explicit "
            "replica groups"
        )
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


REPLICA_GROUPS = one_key(
    *("replica_groups", _replica_groups, show_groups),
    "replica_groups collective_device_list iota_collective_device_list mesh_axes_replica_group_list",
    *(_decode, lambda value: {"replica_groups": [{"replica_ids": list(group)} for group in value]}),
)
