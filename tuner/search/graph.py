"""The construction graph of one family: lattice points joined by the actions that are legal there.

A move along a coordinate is a ray of value indices; its edge goes to the nearest legal point on the ray. No legal point
is between the two ends of an edge, so the same ray backwards returns to the start: every edge has its inverse. The
values of some coordinates form a ring (`Move.wraps`).

Moves of an inner tile can carry a second coordinate along: the block grows by the same ratio. Moves of a ring can carry
its step along, which shrinks by the ratio by which the ring grows (`Carry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.families.core.lattice import Coordinate
from gensor_kernels.families.space import FamilySpace

from .actions import Move, moves

Points = NDArray[np.int64]
Numbers = NDArray[np.int64]
LEVEL_TOKENS = ("level+", "level-")


class SearchSpace(Protocol):
    """The search space of walks and strategies: a `Space`, or another union of lattices with the same methods."""

    @property
    def families(self) -> Sequence[FamilySpace]:
        """The lattice of each family."""


class Edges(NamedTuple):
    """Edges (e,) out of a list of points: row in the list, number of the move, target (e, d) and its completion."""

    row: Numbers
    move: Numbers
    target: Points
    whole: Points


class Graph:
    """Edges of a FamilySpace, vectorised. Points are (n, d) int64 arrays of value indices."""

    def __init__(self, space: FamilySpace, graph: str = "full"):
        """Build the "full" or "paper" graph; ValueError where an action is missing or points exceed 62 bits."""
        self.space = space
        self.name = graph
        self.moves: tuple[Move, ...] = tuple(moves(space.coordinates, graph))
        self.extents = np.array([len(axis.values) for axis in space.coordinates], np.int64)
        self.size = int(np.prod(self.extents.astype(object)))
        if self.size >= 1 << 62:
            raise ValueError(f"a lattice of {self.size} points does not fit 62-bit codes")
        self.place = np.asarray(space.encode(np.eye(len(self.extents), dtype=np.int64)), np.int64)
        self.top = int(self.extents[0]) - 1
        self._index = {move.token: i for i, move in enumerate(self.moves)}
        #: the directions of Cache (0) and Uncache (1) in this graph, and the numbers of their moves
        self.ways = np.array([way for way, token in enumerate(LEVEL_TOKENS) if token in self._index], np.int64)
        self.level_moves = np.array([self._index[LEVEL_TOKENS[way]] for way in self.ways], np.int64)
        # A default that is no lattice value is replaced by the next smaller value: bounds are all values but the first.
        self._bounds = [np.array(axis.values[1:]) for axis in space.coordinates]
        self._tabulate_rays()

    def _tabulate_rays(self) -> None:
        """Tabulate every (move, distance), in descending distance, with its change of the point."""
        axis = np.array([move.axis for move in self.moves], np.int64)
        step = np.array([move.step for move in self.moves], np.int64)
        self._room = np.where(step > 0, axis, axis + len(self.extents))
        self._rings = sorted({move.axis for move in self.moves if move.wraps})
        #: the memory level from which on each coordinate and each move exists
        self.axis_level = np.array([axis.level for axis in self.space.coordinates], np.int64)
        self.move_level = self.axis_level[axis]
        reach = np.where(axis == 0, 0, self.extents[axis] - 1)
        distance = np.arange(int(reach.max()), 0, -1)
        far, move = np.nonzero(distance[:, None] <= reach)
        self._ray_move, self._ray_distance = move, distance[far]
        self._ray_delta = np.eye(len(self.extents), dtype=np.int64)[axis[move]]
        self._ray_delta *= (step[move] * self._ray_distance)[:, None]
        self._carry = Carry(self.space.coordinates, self.moves, self._ray_move, self._ray_distance)

    def encode(self, points: Points) -> Numbers:
        """Return the codes (n,) of points (n, d)."""
        return points @ self.place

    def decode(self, codes: Numbers) -> Points:
        """Return the points (n, d) of codes (n,)."""
        return codes[:, None] // self.place % self.extents

    def edges(self, points: Points) -> Edges:
        """Return every edge from these points (n, d); coordinates of levels not reached yet have no edges."""
        row, move, ahead = self._along_rays(points)
        here, beyond = points, ahead
        if (points[:, 0] < self.top).any():
            # One call completes all partial points: the sources (Cache needs them) and the candidates ahead.
            whole = np.asarray(self.space.complete(np.concatenate([points, ahead])), np.int64)
            here, beyond = whole[: len(points)], whole[len(points) :]
        # Rays stay on the lattice and canonical, so only the family's own rules remain to be checked.
        space = self.space
        legal = np.flatnonzero(space.family.legal(space.columns(beyond), space.workload, space.arch))
        # Far candidates of a ray come first: written in this order, the nearest candidate remains.
        nearest = np.full((len(points), len(self.moves)), -1)
        nearest[row[legal], move[legal]] = legal
        row, move = np.nonzero(nearest >= 0)
        found = nearest[row, move]
        level, way, ends = self._between_levels(points, here)
        return Edges(
            row=np.concatenate([row, level]),
            move=np.concatenate([move, self.level_moves[way]]),
            target=np.concatenate([ahead[found], ends]),
            whole=np.concatenate([beyond[found], here[level]]),
        )

    def _along_rays(self, points: Points) -> tuple[Numbers, Numbers, Points]:
        """Return (row, move, point) of every lattice point on a ray from these points, in descending distance."""
        limit = np.concatenate([self.extents - 1 - points, points], axis=1)
        for axis in self._rings:
            limit[:, [axis, axis + len(self.extents)]] = self.extents[axis] - 1
        limit = limit[:, self._room]
        limit[self.move_level > points[:, :1]] = 0
        row, ray = np.nonzero(limit[:, self._ray_move] >= self._ray_distance)
        ahead = points[row] + self._ray_delta[ray]
        for axis in self._rings:
            ahead[:, axis] %= self.extents[axis]
        inside = self._carry.along(ahead, points, row, ray)
        if inside is not None:
            row, ray, ahead = row[inside], ray[inside], ahead[inside]
        return row, self._ray_move[ray], ahead

    def _between_levels(self, points: Points, whole: Points) -> tuple[Numbers, Numbers, Points]:
        """Return (row, way, target) of the edges of Cache and Uncache; `whole` are the completions of `points`.

        Uncache exists only where Cache leads straight back: where all coordinates of the level are at their defaults.
        """
        exist = np.stack([points[:, 0] < self.top, self._at_defaults(points)], axis=1)
        row, way = np.nonzero(exist[:, self.ways])
        level = points[row, 0] + np.array([1, -1])[self.ways[way]]
        target = np.where(self.axis_level <= level[:, None], whole[row], 0)
        target[:, 0] = level
        return row, way, target

    def _at_defaults(self, points: Points) -> NDArray[np.bool_]:
        """Return a mask of points above level 0 whose level holds only defaults: `descend(ascend(p)) == p`."""
        space = self.space
        wanted = space.family.defaults(space.columns(points), space.workload, space.arch)
        holds = points[:, 0] > 0
        for i, axis in enumerate(space.coordinates):
            if axis.level and len(axis.values) > 1:
                default = self._bounds[i].searchsorted(wanted[axis.name], side="right")
                holds &= (default == points[:, i]) | (points[:, 0] != axis.level)
        return holds

    def neighbours(self, points: Points) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the target (n, a, d) of every move from every point, itself without an edge, and the mask of edges."""
        targets = np.repeat(points[:, None, :], len(self.moves), axis=1)
        found = np.zeros(targets.shape[:2], bool)
        edges = self.edges(points)
        targets[edges.row, edges.move] = edges.target
        found[edges.row, edges.move] = True
        return targets, found

    def follow(self, point: Numbers, token: str) -> Numbers:
        """Return the point after the move called `token`; raise ValueError if the edge does not exist."""
        move = self._index.get(token)
        if move is None:
            raise ValueError(f"no action {token!r} in the {self.name} graph of {self.space.family.name}")
        targets, found = self.neighbours(point[None])
        if not found[0, move]:
            raise ValueError(f"action {token!r} does not exist at {point.tolist()}")
        return targets[0, move]

    def token(self, source: Numbers, target: Numbers) -> str:
        """Return the first move whose edge leads from `source` to `target`; raise ValueError if there is none."""
        targets, found = self.neighbours(source[None])
        same = np.flatnonzero(found[0] & (targets[0] == target).all(axis=1))
        if not same.size:
            raise ValueError(f"no edge from {source.tolist()} to {target.tolist()}")
        return self.moves[same[0]].token

    def scatter(self, count: int, rng: np.random.Generator, draws: int = 1 << 18) -> Points:
        """Return at most `count` legal complete points (n, d), drawn uniformly from at most `draws` lattice points."""
        found, have, tried = [np.empty((0, len(self.extents)), np.int64)], 0, 0
        while have < count and tried < draws:
            batch = min(max(2048, 64 * (count - have)), 1 << 16, draws - tried)
            points = rng.integers(0, self.extents, (batch, len(self.extents)))
            points[:, 0] = self.top
            # On the lattice and complete as they are: only the family's own rules remain to be checked.
            found.append(
                points[self.space.family.legal(self.space.columns(points), self.space.workload, self.space.arch)]
            )
            have, tried = have + len(found[-1]), tried + batch
        return np.concatenate(found)[:count]

    def reachable(self, start: Points, chunk: int = 2048) -> Numbers:
        """Return the sorted codes of all points reachable from `start` (n, d), by breadth-first search."""
        seen = np.unique(self.encode(start))
        layer = seen
        while layer.size:
            found = [self._step(layer[i : i + chunk]) for i in range(0, layer.size, chunk)]
            layer = np.setdiff1d(np.concatenate(found), seen)
            seen = np.union1d(seen, layer)
        return seen

    def _step(self, codes: Numbers) -> Numbers:
        """Return the distinct codes of all neighbours of the points with these codes."""
        targets, found = self.neighbours(self.decode(codes))
        return np.unique(self.encode(targets[found]))


class Carry:
    """Tables of value indices for moves that carry a second coordinate along, by number of the ray."""

    def __init__(self, axes: Sequence[Coordinate], moves: Sequence[Move], ray_move: Numbers, ray_distance: Numbers):
        """Tabulate; `ray_move` and `ray_distance` (r,) list every move at every distance."""
        carried = [move for move in moves if move.carried >= 0]
        number = np.array([carried.index(move) if move in carried else -1 for move in moves], np.int64)
        self._carrier = number[ray_move]
        self._some = bool(carried)
        self._inner = np.array([move.axis for move in carried], np.int64)
        self._outer = np.array([move.carried for move in carried], np.int64)
        self._change = ray_distance * np.array([move.step for move in moves], np.int64)[ray_move]
        width = max(len(axis.values) for axis in axes)
        #: [carrier, outer, inner, new inner]: the outer index that keeps the ratio or product of both values, or -1
        self._table = np.full((len(carried), width, width, width), -1, np.int64)
        for i, move in enumerate(carried):
            self._table[i] = _carried(axes[move.carried].values, axes[move.axis].values, width, move.product)

    def along(self, ahead: Numbers, points: Numbers, row: Numbers, ray: Numbers) -> NDArray[np.bool_] | None:
        """Set the carried coordinate of the points `ahead` (n, d); return the mask of those that have such a value."""
        if not self._some:
            return None
        rows = np.flatnonzero(self._carrier[ray] >= 0)
        carrier, source = self._carrier[ray[rows]], row[rows]
        outer, inner = self._outer[carrier], points[source, self._inner[carrier]]
        there = self._table[carrier, points[source, outer], inner, inner + self._change[ray[rows]]]
        ahead[rows, outer] = there
        inside = np.ones(len(ahead), bool)
        inside[rows] = there >= 0
        return inside


@lru_cache(maxsize=64)
def _carried(outer: tuple[int, ...], inner: tuple[int, ...], width: int, product: bool) -> Numbers:
    """Return the table of one carrying move, padded to (width, width, width) with -1."""
    table = np.full((width, width, width), -1, np.int64)
    index = {value: i for i, value in enumerate(outer)}
    for o, w, to in np.ndindex(len(outer), len(inner), len(inner)):
        if product:
            value, rest = divmod(outer[o] * inner[w], inner[to])
            table[o, w, to] = -1 if rest else index.get(value, -1)
        elif outer[o] % inner[w] == 0:
            table[o, w, to] = index.get(outer[o] // inner[w] * inner[to], -1)
    return table
