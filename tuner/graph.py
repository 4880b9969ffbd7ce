"""The construction graph of one family: lattice points joined by the actions that are legal there.

A move along a coordinate is a ray of value indices; its edge goes to the nearest legal point on the ray. Nothing
legal lies between the two ends of an edge, so the same ray backwards leads home: every edge has its inverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .actions import Move, moves
from .carry import Carry

Points = NDArray[np.int64]
LEVEL_TOKENS = ("level+", "level-")


class Graph:
    """Edges of a FamilySpace, vectorised. Points are (n, d) int64 arrays of value indices."""

    def __init__(self, space: Any, graph: str = "full"):
        """`space` is a FamilySpace; `graph` is "full" or "paper".

        Raises ValueError where an action is missing or the lattice has 2^62 points or more.
        """
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
        axis = np.array([move.axis for move in self.moves], np.int64)
        step = np.array([move.step for move in self.moves], np.int64)
        self.delta = np.eye(len(self.extents), dtype=np.int64)[axis] * step[:, None]
        self.code_step = self.delta @ self.place
        self.carry = Carry(space.coordinates, self.moves, self.place)
        self._room = np.where(step > 0, axis, axis + len(self.extents))
        # A default that is no lattice value stands for the next smaller one: bounds are all values but the first.
        self._bounds = [np.array(axis.values[1:], np.int64) for axis in space.coordinates]
        self._level = np.array([space.coordinates[i].level for i in axis], np.int64)
        self.rays = axis != 0
        #: which of Cache and Uncache (0, 1) this graph has, and the numbers of their moves
        self.ways = np.array([way for way, token in enumerate(LEVEL_TOKENS) if token in self._index], np.int64)
        self.level_moves = np.array([self._index[LEVEL_TOKENS[way]] for way in self.ways], np.int64)

    def encode(self, points: Points) -> NDArray[np.int64]:
        """Codes (n,) of points (n, d)."""
        return points @ self.place

    def decode(self, codes: NDArray[np.int64]) -> Points:
        """Points (n, d) of codes (n,)."""
        return codes[:, None] // self.place % self.extents

    def limits(self, points: Points) -> NDArray[np.int64]:
        """How far each move's ray stays inside the lattice, (n, a): 0 where the action does not exist.

        Actions on coordinates of memory levels that are not reached yet do not exist. Cache and Uncache are no
        rays: theirs are 0 (see `levels`).
        """
        room = np.concatenate([self.extents - 1 - points, points], axis=1)[:, self._room]
        room *= self.rays & (self._level <= points[:, :1])
        return room

    def ahead(
        self, points: Points, codes: NDArray[np.int64], row: NDArray, move: NDArray, distance: NDArray | int
    ) -> NDArray[np.int64]:
        """Codes of the lattice points at `distance` along moves from some rows of `points` (with `codes`).

        -1 where a carried coordinate has no such value.
        """
        reached = codes[row] + distance * self.code_step[move]
        return self.carry.codes(reached, points, row, move, distance)

    def ahead_points(self, points: Points, move: NDArray, distance: NDArray | int) -> Points:
        """The lattice points at `distance` along one move from each point, where `ahead` found one."""
        far = distance if isinstance(distance, int) else distance[:, None]
        return self.carry.points(points + far * self.delta[move], points, move, distance)

    def levels(self, points: Points) -> tuple[Points, NDArray[np.bool_]]:
        """Targets (n, w, d) of the w of Cache and Uncache that this graph has, and which exist (n, w).

        Uncache exists only where Cache would lead straight back: where the level holds nothing but defaults.
        """
        targets = np.repeat(points[:, None, :], 2, axis=1)
        exist = np.stack([points[:, 0] < self.top, self._at_defaults(points)], axis=1)
        for way, move in enumerate((self.space.descend, self.space.ascend)):
            rows = np.flatnonzero(exist[:, way])
            if rows.size:
                targets[rows, way] = move(points[rows])
        return targets[:, self.ways], exist[:, self.ways]

    def _at_defaults(self, points: Points) -> NDArray[np.bool_]:
        """Which points are above level 0 and hold only defaults at their own level.

        The same as `descend(ascend(p)) == p`, without completing both.
        """
        space = self.space
        columns = space.columns(points)
        wanted = space.family.defaults(columns, space.workload, space.arch)
        holds = points[:, 0] > 0
        for i, axis in enumerate(space.coordinates):
            if axis.level and len(axis.values) > 1:
                default = self._bounds[i].searchsorted(wanted[axis.name], side="right")
                holds &= (default == points[:, i]) | (points[:, 0] != axis.level)
        return holds

    def neighbours(self, points: Points) -> tuple[Points, NDArray[np.bool_]]:
        """Targets (n, a, d) of every move from every point, and which of them exist (n, a).

        The target of an absent edge is the point itself.
        """
        limit = self.limits(points)
        codes = self.encode(points)
        targets = np.repeat(points[:, None, :], len(self.moves), axis=1)
        found = np.zeros(limit.shape, bool)
        for distance in range(1, int(limit.max(initial=0)) + 1):
            row, move = np.nonzero(~found & (limit >= distance))
            inside = self.ahead(points, codes, row, move, distance) >= 0
            row, move = row[inside], move[inside]
            ahead = self.ahead_points(points[row], move, distance)
            legal = np.asarray(self.space.legal(ahead), bool)
            row, move = row[legal], move[legal]
            targets[row, move] = ahead[legal]
            found[row, move] = True
        ends, exist = self.levels(points)
        found[:, self.level_moves] = exist
        targets[:, self.level_moves] = np.where(exist[:, :, None], ends, points[:, None, :])
        return targets, found

    def follow(self, point: NDArray[np.int64], token: str) -> NDArray[np.int64]:
        """The point that the move called `token` leads to. Raises ValueError if the edge does not exist."""
        move = self._index.get(token)
        if move is None:
            raise ValueError(f"no action {token!r} in the {self.name} graph of {self.space.family.name}")
        targets, found = self.neighbours(point[None])
        if not found[0, move]:
            raise ValueError(f"action {token!r} does not exist at {point.tolist()}")
        return targets[0, move]

    def token(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> str:
        """The first move whose edge leads from `source` to `target`. Raises ValueError if there is none."""
        targets, found = self.neighbours(source[None])
        same = np.flatnonzero(found[0] & (targets[0] == target).all(axis=1))
        if not same.size:
            raise ValueError(f"no edge from {source.tolist()} to {target.tolist()}")
        return self.moves[same[0]].token

    def reachable(self, start: Points, chunk: int = 4096) -> NDArray[np.int64]:
        """Sorted codes of every point that some path leads to from `start` (n, d), breadth first."""
        seen = np.unique(self.encode(start))
        layer = seen
        while layer.size:
            found = [self._step(part) for part in _chunks(layer, chunk)]
            layer = np.setdiff1d(np.concatenate(found), seen)
            seen = np.union1d(seen, layer)
        return seen

    def _step(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Distinct codes of all neighbours of the points with these codes."""
        targets, found = self.neighbours(self.decode(codes))
        return np.unique(self.encode(targets[found]))


def _chunks(codes: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    for begin in range(0, codes.size, size):
        yield codes[begin : begin + size]


def compact(tokens: Sequence[str]) -> str:
    """A path as one short string, repeats counted: ["k+", "k+", "m-"] -> "k+*2 m-"."""
    words: list[str] = []
    i = 0
    while i < len(tokens):
        run = i
        while run < len(tokens) and tokens[run] == tokens[i]:
            run += 1
        words.append(tokens[i] if run - i == 1 else f"{tokens[i]}*{run - i}")
        i = run
    return " ".join(words)


def expanded(text: str) -> list[str]:
    """The tokens of a compact path."""
    tokens: list[str] = []
    for word in text.split():
        token, _, count = word.partition("*")
        tokens.extend([token] * int(count or 1))
    return tokens
