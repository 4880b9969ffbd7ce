"""Minimum cuts of a network with integer capacities, by flow along shortest paths."""

from __future__ import annotations

from collections import deque
from itertools import pairwise


class Network:
    """Directed edges with capacities between numbered vertices."""

    def __init__(self) -> None:
        #: For each vertex, what the edge to another one can still carry.
        self._room: list[dict[int, int]] = []

    def vertex(self) -> int:
        """Add a vertex and return its number."""
        self._room.append({})
        return len(self._room) - 1

    def join(self, start: int, end: int, capacity: int) -> None:
        """Add an edge."""
        self._room[start][end] = self._room[start].get(end, 0) + capacity
        self._room[end].setdefault(start, 0)

    def source_side(self, source: int, sink: int) -> set[int]:
        """Return the vertices on the source's side of a minimum cut, the fewest possible.

        The capacities that are left change; a network is cut once.
        """
        for vertex in self._room[source].keys() & self._room[sink].keys():
            self._send([source, vertex, sink])
        while sink in (before := self._reach(source, sink)):
            path = [sink]
            while path[0] != source:
                path.insert(0, before[path[0]])
            self._send(path)
        return set(before)

    def _send(self, path: list[int]) -> None:
        """Send as much along a path as it can carry."""
        amount = min(self._room[start][end] for start, end in pairwise(path))
        for start, end in pairwise(path):
            self._room[start][end] -= amount
            self._room[end][start] += amount

    def _reach(self, source: int, sink: int) -> dict[int, int]:
        """Return the vertices that edges with room reach, up to the sink, each with the one before it."""
        before, queue = {source: source}, deque([source])
        while queue and sink not in before:
            vertex = queue.popleft()
            for end, room in self._room[vertex].items():
                if room and end not in before:
                    before[end] = vertex
                    queue.append(end)
        return before
