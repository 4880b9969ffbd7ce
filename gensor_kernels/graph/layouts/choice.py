"""The layout of each node: exact, by a minimum cut.

Every node has one of two layouts, with a time for either. A tensor that is written in one layout and read in the other
is converted once for all its readers, or read directly by readers that can, whichever is faster. The sum of these times
is a cut of a network: nodes on the source's side have channels last. As only differing neighbours add costs, the
minimum cut is the optimum, also with residual edges and tensors with many readers.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

        What was sent stays sent: after `join` of more capacities only the difference is to be found.
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


#: Parts of a microsecond that times are rounded to, and more than all times of a graph.
PARTS, NEVER = 10_000, 2**62


@dataclass(frozen=True)
class Tensor:
    """A tensor between nodes, which are numbers."""

    #: Node that writes it.
    made: int
    #: Nodes that read it, each once.
    readers: tuple[int, ...]
    #: Microseconds of a copy in the other layout.
    conversion: float
    #: Further microseconds of a reader in the other layout, by the reader and whether it has channels last; infinite by
    #: default.
    direct: Mapping[tuple[int, bool], float] = field(default_factory=dict)

    def crossing(self, last: Sequence[bool]) -> tuple[float, bool]:
        """Return (microseconds, whether the tensor is converted) where nodes have these layouts."""
        others = [each for each in self.readers if last[each] != last[self.made]]
        apart = sum(self.direct.get((each, last[each]), math.inf) for each in others)
        return (self.conversion, True) if self.conversion < apart else (apart, False)


def total(times: Sequence[tuple[float, float]], tensors: Sequence[Tensor], last: Sequence[bool]) -> float:
    """Return the microseconds of all nodes and conversions; `times` are (channels first, channels last) per node."""
    own = sum(pair[side] for pair, side in zip(times, last, strict=True))
    return own + sum(each.crossing(last)[0] for each in tensors)


class Choice:
    """Layouts for which `total` is least, channels first where equal; known again after times of readers have grown.

    `times` are microseconds with channels first and with channels last, infinite for a layout that a node cannot have.
    """

    def __init__(self, times: Sequence[tuple[float, float]], tensors: Sequence[Tensor]):
        self._network = network = Network()
        self._source, self._sink = network.vertex(), network.vertex()
        self._nodes = nodes = [network.vertex() for _ in times]
        #: the two copies of each tensor: with channels last, and first
        self._copies = [(network.vertex(), network.vertex()) for _ in tensors]
        for node, (first, last) in zip(nodes, times, strict=True):
            network.join(self._source, node, _parts(first))  # cut where the node is on the sink's side
            network.join(node, self._sink, _parts(last))
        for number, (tensor, (copy_last, copy_first)) in enumerate(zip(tensors, self._copies, strict=True)):
            made = nodes[tensor.made]
            # A cut takes the copy, or each reader's own way.
            network.join(copy_last, made, _parts(tensor.conversion))
            network.join(made, copy_first, _parts(tensor.conversion))
            for reader, last in itertools.product(tensor.readers, (True, False)):
                self.slow(number, reader, last, tensor.direct.get((reader, last), math.inf))

    def slow(self, tensor: int, reader: int, last: bool, more: float) -> None:
        """Add microseconds to a reader's with channels last or first that reads a tensor in the other layout."""
        node, copies = self._nodes[reader], self._copies[tensor]
        self._network.join(*((node, copies[0]) if last else (copies[1], node)), _parts(more))

    def last(self) -> list[bool]:
        """Return for each node whether it has channels last."""
        side = self._network.source_side(self._source, self._sink)
        return [node in side for node in self._nodes]


def choose(times: Sequence[tuple[float, float]], tensors: Sequence[Tensor]) -> list[bool]:
    """Return for each node whether it has channels last; see Choice."""
    return Choice(times, tensors).last()


def _parts(value: float) -> int:
    return round(value * PARTS) if math.isfinite(value) else NEVER
