"""The minimum cut of a network: Dinic's algorithm ("Algorithm for solution of a problem of maximum flow
in networks with power estimation", 1970).

>>> minimum_cut(3, [(0, 2, 5), (2, 1, 3)], source=0, sink=1)
(3, {0, 2})
"""

from __future__ import annotations

from collections.abc import Sequence


def minimum_cut(
    nodes: int, arcs: Sequence[tuple[int, int, int]], source: int, sink: int
) -> tuple[int, set[int]]:
    """The least sum of capacities whose arcs part sink from source, and the nodes on the source's side;
    of several such cuts the one with the fewest. An arc is (from, to, capacity >= 0).
    """
    heads: list[int] = []
    room: list[int] = []  # what an arc can still take; that of its reverse is beside it
    out: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head, capacity in arcs:
        out[tail].append(len(heads))
        out[head].append(len(heads) + 1)
        heads += (head, tail)
        room += (capacity, 0)
    total = 0
    while True:
        level = _levels(out, heads, room, source)
        if level[sink] < 0:
            return total, {n for n in range(nodes) if level[n] >= 0}
        total += _blocking_flow(out, heads, room, level, source, sink)


def _levels(out: list[list[int]], heads: list[int], room: list[int], source: int) -> list[int]:
    """The arcs from the source to each node on the shortest way with room; -1 where there is none."""
    level = [-1] * len(out)
    level[source] = 0
    queue = [source]
    for node in queue:
        for arc in out[node]:
            if room[arc] and level[heads[arc]] < 0:
                level[heads[arc]] = level[node] + 1
                queue.append(heads[arc])
    return level


def _blocking_flow(
    out: list[list[int]], heads: list[int], room: list[int], level: list[int], source: int, sink: int
) -> int:
    """Fills ways from level to level until none has room left; gives what was added."""
    following = [0] * len(out)  # of each node the first arc that may have room
    total = 0
    path: list[int] = []
    node = source
    while True:
        if node == sink:
            added = min(room[arc] for arc in path)
            total += added
            for arc in path:
                room[arc] -= added
                room[arc ^ 1] += added
            full = next(n for n, arc in enumerate(path) if not room[arc])
            node = heads[path[full] ^ 1]
            del path[full:]
        elif following[node] < len(out[node]):
            arc = out[node][following[node]]
            if room[arc] and level[heads[arc]] == level[node] + 1:
                path.append(arc)
                node = heads[arc]
            else:
                following[node] += 1
        elif path:
            node = heads[path.pop() ^ 1]
            following[node] += 1
        else:
            return total
