"""Moves that take a second coordinate along: an inner tile grows and its block grows by the same ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .actions import Move

Points = NDArray[np.int64]


class Carry:
    """The carrying moves among `moves`, as tables of value indices.

    `table[carrier, outer, inner, new inner]` is the outer index that keeps outer value / inner value, or -1.
    """

    def __init__(self, axes: Sequence[Any], moves: Sequence[Move], place: NDArray[np.int64]):
        carried = [move for move in moves if move.carried >= 0]
        self.any = bool(carried)
        self.number = np.array([carried.index(move) if move in carried else -1 for move in moves])
        self.inner = np.array([move.axis for move in carried], np.int64)
        self.outer = np.array([move.carried for move in carried], np.int64)
        self.step = np.array([move.step for move in carried], np.int64)
        self.place = place[self.outer] if carried else place[:0]
        width = max((len(axis.values) for axis in axes), default=1)
        self.table = np.full((len(carried), width, width, width), -1, np.int64)
        for i, move in enumerate(carried):
            inner, outer = axes[move.axis].values, axes[move.carried].values
            index = {value: k for k, value in enumerate(outer)}
            for o, w, to in np.ndindex(len(outer), len(inner), len(inner)):
                if outer[o] % inner[w] == 0:
                    self.table[i, o, w, to] = index.get(outer[o] // inner[w] * inner[to], -1)

    def _find(self, points: Points, move: NDArray, distance: NDArray | int) -> tuple[NDArray, ...]:
        """Carrier numbers, outer coordinate numbers, old and new outer indices, for carrying moves only."""
        carrier = self.number[move]
        rows = np.arange(carrier.size)
        inner, outer = self.inner[carrier], self.outer[carrier]
        old, at = points[rows, outer], points[rows, inner]
        return carrier, outer, old, self.table[carrier, old, at, at + distance * self.step[carrier]]

    def codes(self, reached: NDArray, points: Points, row: NDArray, move: NDArray, distance: NDArray | int) -> NDArray:
        """`reached` with the outer coordinate's change added, -1 where it has no such value."""
        some = np.flatnonzero(self.number[move] >= 0) if self.any else ()
        if len(some):
            far = distance if isinstance(distance, int) else distance[some]
            carrier, _, old, new = self._find(points[row[some]], move[some], far)
            reached[some] = np.where(new < 0, -1, reached[some] + (new - old) * self.place[carrier])
        return reached

    def points(self, reached: Points, points: Points, move: NDArray, distance: NDArray | int) -> Points:
        """`reached` with the outer coordinate set."""
        some = np.flatnonzero(self.number[move] >= 0) if self.any else ()
        if len(some):
            far = distance if isinstance(distance, int) else distance[some]
            _, outer, _, new = self._find(points[some], move[some], far)
            reached[some, outer] = new
        return reached
