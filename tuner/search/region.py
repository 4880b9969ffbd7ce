"""The part of a construction graph that a walk has seen, with every potential computed once.

Points get dense ids (`CodeTable`). A visited point's edges are a row of target ids, so a step of many chains from known
points is a gather. Id 0 stands for "no such edge": its potential is infinite, its
probability zero.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count

import numpy as np
from numpy.typing import NDArray

from .actions import plainness
from .graph import Graph, Numbers, Points

NOWHERE = 0
#: Relative cost of one value step away from the plainer choice, small enough to decide only between equal predictions.
TIE = 1e-4
Ids = NDArray[np.int32]


class Region:
    """Seen points of one graph.

    `phi[id]` is predicted seconds, NaN before evaluation; `log_phi` is ln phi plus the tie-break, which chains follow.
    `evaluations` counts the distinct complete Programs whose potential was computed; it never exceeds `budget`.
    """

    def __init__(self, graph: Graph, budget: int | None = None):
        """Start empty; `budget`: the most distinct complete Programs to evaluate, None for no limit."""
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
        self.rows = 0
        self._tie = -TIE * plainness(graph.space.coordinates, walking=True)
        self._found_tie = -TIE * plainness(graph.space.coordinates)
        self._rings = [i for i, axis in enumerate(graph.space.coordinates) if axis.kind == "stages"]
        self._outdone: list[Numbers] = []
        self._intern(np.array([graph.size], np.int64))
        self.phi[NOWHERE] = self.log_phi[NOWHERE] = np.inf

    def __len__(self) -> int:
        return len(self.table)

    def points(self, ids: NDArray[np.integer]) -> Points:
        """Return the lattice points (n, d) of these ids."""
        return self.graph.decode(self.table.codes[ids])

    def add(self, points: Points, whole: Points | None = None) -> Ids:
        """Return the ids of legal points (n, d), evaluated as far as the budget goes (`phi` is NaN beyond it).

        `whole`: their default completions, if known; a partial point has the potential of its completion.
        """
        ids, fresh = self._intern(self.graph.encode(points))
        if fresh.size:
            new, points = ids[fresh], points[fresh]
            partial = points[:, 0] != self.graph.top
            if partial.any():
                whole = self.graph.space.complete(points) if whole is None else whole[fresh]
                self._add_partial(new, points, whole, partial)
            else:
                self._evaluate(new, points)
        return ids

    def _intern(self, codes: Numbers) -> tuple[Ids, Numbers]:
        """Return the ids of codes and the positions of new codes (each once); arrays grow to hold them."""
        ids, fresh = self.table.intern(codes)
        size = len(self.table)
        old = size - fresh.size
        if size > len(self.phi):
            for name in ("log_phi", "phi", "complete", "row", "parent"):
                setattr(self, name, grown(getattr(self, name), size))
        self.phi[old:size] = self.log_phi[old:size] = np.nan
        self.complete[old:size] = False
        self.row[old:size] = self.parent[old:size] = -1
        return ids, fresh

    def _add_partial(self, ids: Ids, points: Points, whole: Points, partial: NDArray[np.bool_]) -> None:
        """Evaluate new points, of which some are `partial`; all completions are made in one call."""
        completed, fresh = self._intern(self.graph.encode(whole[partial]))
        self._evaluate(
            np.concatenate([ids[~partial], completed[fresh]]), np.concatenate([points[~partial], whole[partial][fresh]])
        )
        self._set(ids[partial], points[partial], self.phi[completed])

    def _evaluate(self, ids: Ids, points: Points) -> None:
        if self.budget is not None and ids.size > self.budget - self.evaluations:
            self.exhausted = True
            room = max(self.budget - self.evaluations, 0)
            ids, points = ids[:room], points[:room]
        if ids.size:
            self._set(ids, points, self.graph.space.potential(points))
            self.complete[ids] = True
            self.evaluations += ids.size

    def _set(self, ids: Ids, points: Points, seconds: NDArray[np.float64]) -> None:
        self.phi[ids] = seconds
        self.log_phi[ids] = np.log(seconds) + points @ self._tie

    def expand(self, ids: Ids) -> None:
        """Find and evaluate the neighbours of points (distinct evaluated ids) whose edges are unknown."""
        edges = self.graph.edges(self.points(ids))
        targets = np.full((ids.size, len(self.graph.moves)), NOWHERE, np.int32)
        targets[edges.row, edges.move] = self.add(edges.target, edges.whole)
        self._keep(ids, targets)

    def _keep(self, ids: Ids, targets: Ids) -> Numbers:
        rows = np.arange(self.rows, self.rows + ids.size)
        self.rows += ids.size
        self.edges = grown(self.edges, self.rows)
        self.edges[rows, 0] = ids
        self.edges[rows, 1:] = targets
        self.row[ids] = rows
        return rows

    def best(self, count: int) -> Numbers:
        """Return the ids of the `count` best complete points; ties go to the plainer, then to the smaller code."""
        candidates = self.complete[: len(self)].copy()
        for outdone in self._outdone:
            candidates[outdone] = False
        ids = np.flatnonzero(candidates)
        if ids.size > count:
            phi = self.phi[ids]
            ids = ids[phi <= np.partition(phi, count)[count]]
        tie = self.points(ids) @ self._found_tie
        return ids[np.lexsort((self.table.codes[ids], tie, self.phi[ids]))[:count]]

    def deepen(self, ids: Numbers) -> None:
        """Lengthen the rings of these Programs while predictions do not get worse; `best` then has the longest."""
        for axis in self._rings:
            while ids.size:
                ids = self._deeper(ids, axis)

    def _deeper(self, ids: Numbers, axis: int) -> Numbers:
        """Return the Programs whose ring, at `axis`, is the next longer and which are predicted to be no slower."""
        points = self.points(ids)
        points[:, axis] += 1
        room = points[:, axis] < self.graph.extents[axis]
        room[room] = self.graph.space.legal(points[room])
        seen = len(self)
        here, deeper = ids[room], self.add(points[room])
        # A slower Program may be among the best all the same, and then has a trail.
        self.parent[deeper[deeper >= seen]] = here[deeper >= seen]
        good = self.phi[deeper] <= self.phi[here]  # not where the budget has ended
        here, deeper = here[good], deeper[good]
        new = self.parent[deeper] == -1
        self.parent[deeper[new]] = here[new]
        self._outdone.append(here)
        return deeper

    def look_around(self, count: int) -> None:
        """Evaluate the neighbours of the `count` best Programs, best first, as far as the budget goes."""
        self.exhausted = False
        for ident in self.best(count).tolist():
            if self.exhausted:
                break
            edges = self.graph.edges(self.points(np.array([ident])))
            found = self.add(edges.target, edges.whole)
            # An unvisited point on the way to `ident` keeps its own way: no trail may return to itself.
            found = found[(self.parent[found] == -1) & ~np.isin(found, self.way(ident))]
            self.parent[found] = ident

    def way(self, node: int) -> list[int]:
        """Return the points from a start to `node`, along first visits, which form no loops."""
        points = [node]
        while (before := self.before(points[-1])) != NOWHERE:
            points.append(before)
        return points[::-1]

    def before(self, node: int) -> int:
        """Return the point from which `node` was first visited or seen; NOWHERE for a start, above a completion."""
        parent = int(self.parent[node])
        if parent >= 0:
            return parent
        row, _ = np.nonzero(self.edges[: self.rows, 1:] == node)
        if row.size:
            return int(self.edges[row[0], 0])
        point = self.points(np.array([node]))
        return int(self.add(self.graph.space.ascend(point), point)[0])

    def token(self, source: int, target: int) -> str:
        """Return the action on the edge between two seen points; raise ValueError if there is none."""
        row = int(self.row[source])
        if row >= 0:
            move = np.flatnonzero(self.edges[row, 1:] == target)
            if move.size:
                return self.graph.moves[move[0]].token
        ends = self.points(np.array([source, target]))
        return self.graph.token(ends[0], ends[1])


class CodeTable:
    """Dense ids of codes: 0, 1, 2, ... in the order of first appearance; `codes[i]` is the code with id i."""

    def __init__(self) -> None:
        self._ids: defaultdict[int, int] = defaultdict(count().__next__)
        self.codes = np.empty(1 << 13, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def intern(self, codes: Numbers) -> tuple[Ids, Numbers]:
        """Return the ids (n,) of `codes` (n,), and the positions of new ones, added in order of appearance."""
        before = len(self._ids)
        ids = np.fromiter(map(self._ids.__getitem__, codes.tolist()), np.int32, codes.size)
        new = np.flatnonzero(ids >= before)
        if new.size:
            new = new[np.unique(ids[new], return_index=True)[1]]
            self.codes = grown(self.codes, before + new.size)
            self.codes[before : before + new.size] = codes[new]
        return ids, new


def grown(array: NDArray, size: int) -> NDArray:
    """Return `array` with room for `size` rows: itself, or a copy of at least twice the length."""
    if size <= len(array):
        return array
    larger = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
