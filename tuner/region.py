"""The part of a construction graph that a walk has seen, with every potential computed once.

Points get dense ids; a visited point's edges are kept as a row of target ids, so a step of many chains from
known points is a gather. Id 0 stands for "no such edge": its potential is infinite, its probability zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, Points
from .memo import CodeTable, grown

NOWHERE = 0


class Region:
    """Seen points of one graph. `log_phi[id]` is ln seconds; NaN where not evaluated, inf where illegal.

    `evaluations` counts the distinct complete Programs whose potential was computed; it never exceeds `budget`.
    """

    def __init__(self, graph: Graph, budget: int | None = None):
        """`budget`: how many distinct complete Programs may be evaluated; None is no limit."""
        self.graph = graph
        self.budget = budget
        self.evaluations = 0
        self.exhausted = False
        self.table = CodeTable()
        self.log_phi = np.empty(0, np.float32)
        self.phi = np.empty(0, np.float64)
        self.complete = np.empty(0, bool)
        self.row = np.empty(0, np.int32)
        self.parent = np.empty(0, np.int32)
        self.edges = np.zeros((64, len(graph.moves) + 1), np.int32)
        self._rows = 0
        self._intern(np.array([graph.size], np.int64))
        self.phi[NOWHERE] = self.log_phi[NOWHERE] = np.inf

    def __len__(self) -> int:
        return len(self.table)

    def points(self, ids: NDArray[np.integer]) -> Points:
        """The lattice points (n, d) of these ids."""
        return self.graph.decode(self.table.codes[ids])

    def add(self, points: Points) -> NDArray[np.int32]:
        """Ids of legal points (n, d), evaluated as far as the budget goes (`log_phi` NaN beyond it)."""
        ids, fresh = self._intern(self.graph.encode(points))
        self._judge(ids[fresh], points[fresh])
        wanted = fresh[np.isnan(self.phi[ids[fresh]])]
        self._evaluate(ids[wanted], points[wanted])
        return ids

    def _intern(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Ids of codes, and the positions of those never seen before (each once); arrays grow to hold them."""
        ids, fresh = self.table.intern(codes)
        count = len(self.table)
        old = count - fresh.size
        if count > len(self.phi):
            self.log_phi = grown(self.log_phi, count)
            self.phi = grown(self.phi, count)
            self.complete = grown(self.complete, count)
            self.row = grown(self.row, count)
            self.parent = grown(self.parent, count)
        self.phi[old:count] = self.log_phi[old:count] = np.nan
        self.complete[old:count] = False
        self.row[old:count] = self.parent[old:count] = -1
        return ids, fresh

    def _judge(self, ids: NDArray[np.int32], points: Points) -> None:
        """Give illegal points an infinite potential."""
        if ids.size:
            illegal = ids[~np.asarray(self.graph.space.legal(points), bool)]
            self.phi[illegal] = self.log_phi[illegal] = np.inf

    def _evaluate(self, ids: NDArray[np.int32], points: Points) -> None:
        """Compute the potential of legal points not evaluated yet; a partial one has that of its completion."""
        partial = points[:, 0] != self.graph.top
        if partial.any():
            below = points[partial]
            completed = self.add(np.asarray(self.graph.space.complete(below), np.int64))
            self.phi[ids[partial]] = self.phi[completed]
            self.log_phi[ids[partial]] = self.log_phi[completed]
            whole = ~partial & np.isnan(self.phi[ids])
            ids, points = ids[whole], points[whole]
        if self.budget is not None and ids.size > self.budget - self.evaluations:
            self.exhausted = True
            room = max(self.budget - self.evaluations, 0)
            ids, points = ids[:room], points[:room]
        if ids.size:
            seconds = self.graph.space.potential(points)
            self.phi[ids] = seconds
            self.log_phi[ids] = np.log(seconds)
            self.complete[ids] = True
            self.evaluations += ids.size

    def expand(self, ids: NDArray[np.int32]) -> None:
        """Find and evaluate the neighbours of points (distinct ids) whose edges are not known yet."""
        graph = self.graph
        points = self.points(ids)
        limit = graph.limits(points)
        targets = np.zeros(limit.shape, np.int32)
        row, move = np.nonzero(limit > 0)
        targets[row, move] = self._probe(points, row, move, 1)
        blocked = np.isposinf(self.log_phi[targets]) & (limit > 1)
        if blocked.any():
            self._look_further(points, limit, blocked, targets)
        targets[np.isposinf(self.log_phi[targets])] = NOWHERE
        self._change_level(points, targets)
        unknown = np.unique(targets[np.isnan(self.log_phi[targets])])
        if unknown.size:
            self._evaluate(unknown, self.points(unknown))
        rows = np.arange(self._rows, self._rows + ids.size, dtype=np.int32)
        self._rows += ids.size
        self.edges = grown(self.edges, self._rows)
        self.edges[rows, 0] = ids
        self.edges[rows, 1:] = targets
        self.row[ids] = rows

    def _probe(
        self, points: Points, row: NDArray[np.int64], move: NDArray[np.int64], distance: NDArray | int
    ) -> NDArray[np.int32]:
        """Ids of the points at `distance` along moves from rows of `points`, illegal ones marked as such."""
        graph = self.graph
        codes = graph.ahead(points, graph.encode(points), row, move, distance)
        codes[codes < 0] = graph.size
        ids, fresh = self._intern(codes)
        if fresh.size:
            far = distance if isinstance(distance, int) else distance[fresh]
            self._judge(ids[fresh], graph.ahead_points(points[row[fresh]], move[fresh], far))
        return ids

    def _change_level(self, points: Points, targets: NDArray[np.int32]) -> None:
        """Set the targets of Cache and Uncache; what they lead to is legal because its completion is."""
        ends, exist = self.graph.levels(points)
        row, way = np.nonzero(exist)
        if row.size:
            ids, _ = self._intern(self.graph.encode(ends[row, way]))
            targets[row, self.graph.level_moves[way]] = ids

    def _look_further(
        self, points: Points, limit: NDArray[np.int64], blocked: NDArray[np.bool_], targets: NDArray[np.int32]
    ) -> None:
        """Where the first point of a ray is illegal, set the target to the nearest legal one further on."""
        row, move = np.nonzero(blocked)
        count = limit[row, move] - 1
        ray = np.repeat(np.arange(row.size), count)
        distance = np.arange(ray.size) - np.repeat(np.cumsum(count) - count, count) + 2
        ids = self._probe(points, row[ray], move[ray], distance)
        legal = np.flatnonzero(~np.isposinf(self.log_phi[ids]))
        # Candidates of one ray stand in order of distance: written backwards, the nearest stays.
        legal = legal[::-1]
        targets[row[ray[legal]], move[ray[legal]]] = ids[legal]

    def before(self, node: int) -> int:
        """The point from which `node` was first visited, or first seen if never visited; NOWHERE for a start.

        The completion of a partial point is seen from that point's own completion one level less deep.
        """
        parent = int(self.parent[node])
        if parent >= 0:
            return parent
        row, _ = np.nonzero(self.edges[: self._rows, 1:] == node)
        if row.size:
            return int(self.edges[row[0], 0])
        return self._shallower(node)

    def token(self, source: int, target: int) -> str:
        """The action on the edge between these two seen points. Raises ValueError if there is none."""
        row = int(self.row[source])
        if row >= 0:
            move = np.flatnonzero(self.edges[row, 1:] == target)
            if move.size:
                return self.graph.moves[move[0]].token
        ends = self.points(np.array([source, target]))
        return self.graph.token(ends[0], ends[1])

    def _shallower(self, node: int) -> int:
        """The point one memory level above a completion that no visited point has as neighbour."""
        return int(self.add(self.graph.space.ascend(self.points(np.array([node]))))[0])
