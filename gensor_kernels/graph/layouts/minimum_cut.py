"""Minimum cuts of a network with integer capacities (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque


class Network:
    """Directed edges with capacities between numbered vertices."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # of every edge; edge e ^ 1 is its reverse
        self._left: list[int] = []  # what an edge can still carry
        self._out: list[list[int]] = []

    def vertex(self) -> int:
        """Add a vertex and return its number."""
        self._out.append([])
        return len(self._out) - 1

    def join(self, start: int, end: int, capacity: int) -> None:
        """Add an edge."""
        for near, far, room in ((start, end, capacity), (end, start, 0)):
            self._out[near].append(len(self._ends))
            self._ends.append(far)
            self._left.append(room)

    def source_side(self, source: int, sink: int) -> set[int]:
        """Return the vertices on the source's side of a minimum cut, the fewest possible.

        The capacities that are left change; a network is cut once.
        """
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return {vertex for vertex, level in enumerate(levels) if level >= 0}
            self._block(levels, source, sink)

    def _levels(self, source: int) -> list[int]:
        """Return the distance of each vertex from the source over edges with room, -1 for the others."""
        levels = [-1] * len(self._out)
        levels[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self._out[vertex]:
                end = self._ends[edge]
                if self._left[edge] and levels[end] < 0:
                    levels[end] = levels[vertex] + 1
                    queue.append(end)
        return levels

    def _block(self, levels: list[int], source: int, sink: int) -> None:
        """Send flow along shortest paths until none has room."""
        tried = [0] * len(self._out)  # edges of each vertex that lead nowhere
        path: list[int] = []
        while True:
            vertex = self._ends[path[-1]] if path else source
            if vertex == sink:
                amount = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= amount
                    self._left[edge ^ 1] += amount
                del path[next(place for place, edge in enumerate(path) if not self._left[edge]) :]
                continue
            edges = self._out[vertex]
            while tried[vertex] < len(edges):
                edge = edges[tried[vertex]]
                if self._left[edge] and levels[self._ends[edge]] == levels[vertex] + 1:
                    path.append(edge)
                    break
                tried[vertex] += 1
            else:
                if not path:
                    return
                path.pop()
                tried[self._ends[path[-1]] if path else source] += 1
