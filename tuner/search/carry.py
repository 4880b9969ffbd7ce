"""Moves that take a second coordinate along: an inner tile grows and its block grows by the same ratio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .actions import Move

Numbers = NDArray[np.int64]


class Carry:
    """What carrying moves do to the coordinate they carry, as tables of value indices, by number of the ray."""

    def __init__(self, axes: Sequence[Any], moves: Sequence[Move], ray_move: Numbers, ray_distance: Numbers):
        """`ray_move` and `ray_distance` (r,): every move at every distance."""
        carried = [move for move in moves if move.carried >= 0]
        number = np.array([carried.index(move) if move in carried else -1 for move in moves], np.int64)
        self._carrier = number[ray_move]
        self._some = bool(carried)
        self._inner = np.array([move.axis for move in carried], np.int64)
        self._outer = np.array([move.carried for move in carried], np.int64)
        self._change = ray_distance * np.array([move.step for move in moves], np.int64)[ray_move]
        width = max(len(axis.values) for axis in axes)
        #: [carrier, outer, inner, new inner]: the outer index that keeps outer / inner value, or -1
        self._table = np.full((len(carried), width, width, width), -1, np.int64)
        for i, move in enumerate(carried):
            self._table[i] = _ratios(axes[move.carried].values, axes[move.axis].values, width)

    def along(self, ahead: Numbers, points: Numbers, row: Numbers, ray: Numbers) -> NDArray[np.bool_] | None:
        """Set the carried coordinate of the points `ahead` (n, d), reached from `points[row]` along `ray` (n,).

        Returns which of them there is such a value for (n,), or None if all moves stand alone.
        """
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
def _ratios(outer: tuple[int, ...], inner: tuple[int, ...], width: int) -> Numbers:
    """The table of one carrying move, padded to (width, width, width) with -1."""
    table = np.full((width, width, width), -1, np.int64)
    index = {value: i for i, value in enumerate(outer)}
    for o, w, to in np.ndindex(len(outer), len(inner), len(inner)):
        if outer[o] % inner[w] == 0:
            table[o, w, to] = index.get(outer[o] // inner[w] * inner[to], -1)
    return table
