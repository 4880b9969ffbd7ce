"""Boosted trees as tables: many Programs at once in NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

#: Splits of a tree: a byte of them.
SPLITS = 8
#: Programs up to which all trees are looked up at once.
FEW = 512
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
        return self._few(x) if x.shape[1] <= FEW else self._many(x)

    def _few(self, x: np.ndarray) -> np.ndarray:
        """All trees at once: what costs is calling NumPy."""
        count = x.shape[1]
        holds = _bytes(len(self.columns), count)
        np.greater(x.take(self.columns, axis=0), self.thresholds[:, None], out=holds.view(bool)[:, :count])
        words = holds.view(np.uint64)
        place = words.take(self.splits[:, 0], axis=0)
        for bit in range(1, SPLITS):
            shifted = words.take(self.splits[:, bit], axis=0)
            shifted <<= _SHIFTS[bit]
            place |= shifted
        where = place.view(np.uint8)[:, :count] + self._starts
        return np.add.reduceat(self.tables.take(where, mode="clip"), (0, *self.ends[:-1]), axis=0)

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each tree's values begin among all (trees, 1)."""
        return np.arange(len(self.tables), dtype=np.intp)[:, None] << SPLITS

    def _many(self, x: np.ndarray) -> np.ndarray:
        """Tree by tree: what is looked up stays in the cache."""
        count = x.shape[1]
        holds = _bytes(len(self.columns), count)
        for row, column, threshold in zip(holds.view(bool), self.columns.tolist(), self.thresholds, strict=True):
            np.greater(x[column], threshold, out=row[:count])
        words = holds.view(np.uint64)
        place, shifted = np.empty_like(words[0]), np.empty_like(words[0])
        where, value = place.view(np.uint8)[:count], np.empty(count, dtype=F)
        sums = np.zeros((len(self.ends), count), dtype=F)
        begin = 0
        for total, end in zip(sums, self.ends, strict=True):
            for splits, table in zip(self.splits[begin:end].tolist(), self.tables[begin:end], strict=True):
                place[:] = words[splits[0]]
                for bit, split in enumerate(splits[1:], 1):
                    if split:
                        place |= np.left_shift(words[split], _SHIFTS[bit], out=shifted)
                total += table.take(where, out=value, mode="clip")
            begin = end
        return sums

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


def _bytes(conditions: int, count: int) -> np.ndarray:
    """A zero byte per condition and Program: shifted and joined eight Programs at a time."""
    return np.zeros((conditions, -(-count // 8) * 8), dtype=np.uint8)


def _tabulate(tree: Any, places: np.ndarray, splits: list[tuple[int, float]]) -> np.ndarray:
    """Values of ``tree`` at every place; its splits are appended, their order is that of the bits."""
    if isinstance(tree, int | float):
        return np.full(len(places), tree, dtype=F)
    column, threshold, low, high = tree
    bit = len(splits)
    splits.append((int(column), float(threshold)))
    below, above = _tabulate(low, places, splits), _tabulate(high, places, splits)
    return np.where(places >> bit & 1, above, below)
