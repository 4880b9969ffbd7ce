"""Boosted trees as tables: many Programs at once in NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

#: Splits of a tree: a byte of them.
SPLITS = 8
#: Programs looked up at once: what is gathered for them stays in the cache.
CHUNK = 1024
F = np.float32
_SHIFTS = np.arange(SPLITS, dtype=np.uint64)


@dataclass(frozen=True)
class Forest:
    """Sums of trees, one per bag.

    ``columns`` and ``thresholds`` (conditions,) hold every distinct split once; ``splits`` (trees, SPLITS) says which
    of them are a tree's bits, ``tables`` (trees, 2^SPLITS) float32 its values, ``ends`` (bags,) behind which tree a
    bag ends.  Condition 0 never holds and stands for splits a tree does without.
    """

    columns: np.ndarray
    thresholds: np.ndarray
    splits: np.ndarray
    tables: np.ndarray
    ends: tuple[int, ...]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Sums for ``x`` (features, n) float32; float32 (bags, n)."""
        if x.shape[1] <= CHUNK:
            return self._sums(x)
        parts = (self._sums(x[:, start : start + CHUNK]) for start in range(0, x.shape[1], CHUNK))
        return np.concatenate(list(parts), axis=1)

    def _sums(self, x: np.ndarray) -> np.ndarray:
        """All trees at once; a byte per Program and condition, shifted and joined eight Programs at a time."""
        count = x.shape[1]
        holds = np.zeros((len(self.columns), -(-count // 8) * 8), dtype=np.uint8)
        np.greater(x.take(self.columns, axis=0), self.thresholds[:, None], out=holds.view(bool)[:, :count])
        words = holds.view(np.uint64)
        place = words.take(self.splits[:, 0], axis=0)
        for bit in range(1, SPLITS):
            shifted = words.take(self.splits[:, bit], axis=0)
            shifted <<= _SHIFTS[bit]
            place |= shifted
        where = place.view(np.uint8)[:, :count] + self._starts
        values = self.tables.take(where, mode="clip")
        return np.stack([values[start:end].sum(axis=0) for start, end in pairwise((0, *self.ends))])

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each tree's values begin among all (trees, 1)."""
        return np.arange(len(self.tables), dtype=np.intp)[:, None] << SPLITS

    @classmethod
    def of(cls, bags: Sequence[Sequence[Any]]) -> Forest:
        """From bags of trees as nested lists: [feature, threshold, tree at most, tree above], or a number.

        Raises ValueError for a tree of more than SPLITS splits, and for a bag without trees.
        """
        if not bags or not all(bags):
            raise ValueError("a bag has no trees")
        trees = [tree for bag in bags for tree in bag]
        conditions: dict[tuple[int, float], int] = {(0, float("inf")): 0}
        splits = np.zeros((len(trees), SPLITS), dtype=np.int64)
        tables = np.empty((len(trees), 1 << SPLITS), dtype=F)
        for index, tree in enumerate(trees):
            found: list[tuple[int, float]] = []
            tables[index] = _tabulate(tree, np.arange(1 << SPLITS), found)
            if len(found) > SPLITS:
                raise ValueError(f"a tree has {len(found)} splits, more than {SPLITS}")
            splits[index, : len(found)] = [conditions.setdefault(each, len(conditions)) for each in found]
        columns, thresholds = zip(*conditions, strict=True)
        ends = np.cumsum([len(bag) for bag in bags]).tolist()
        return cls(np.array(columns), np.array(thresholds, dtype=F), splits, tables, tuple(ends))


def _tabulate(tree: Any, places: np.ndarray, splits: list[tuple[int, float]]) -> np.ndarray:
    """Values of ``tree`` at every place; its splits are appended, their order is that of the bits."""
    if isinstance(tree, int | float):
        return np.full(len(places), tree, dtype=F)
    column, threshold, low, high = tree
    bit = len(splits)
    splits.append((int(column), float(threshold)))
    below, above = _tabulate(low, places, splits), _tabulate(high, places, splits)
    return np.where(places >> bit & 1, above, below)
