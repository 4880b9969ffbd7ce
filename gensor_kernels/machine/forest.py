"""Boosted trees as tables: many Programs at once in NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gensor_database.lazy import cached_property

#: Splits of a tree: a byte of them.
SPLITS = 8
#: Programs looked up at once, so that gathered values stay in the cache.
CHUNK = 1024
F = np.float32
_SHIFTS = np.arange(SPLITS, dtype=np.uint64)[:, None, None]


@dataclass(frozen=True)
class Forest:
    """Sums of regression trees, with a boundary after each bag.

    Attributes
    ----------
    columns, thresholds : np.ndarray
        (conditions,) every distinct split once.  Condition 0 never holds and stands for splits that a tree lacks.
    splits : np.ndarray
        (trees, SPLITS) conditions that are a tree's bits.
    tables : np.ndarray
        (trees, 2^SPLITS) float32 values of a tree.
    ends : np.ndarray
        (bags,) number of trees up to the end of each bag.
    """

    columns: np.ndarray
    thresholds: np.ndarray
    splits: np.ndarray
    tables: np.ndarray
    ends: tuple[int, ...]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Sums by bag for ``x`` (features, n) float32; float32 (bags, n)."""
        ends = list(pairwise((0, *self.ends)))
        return _joined([np.stack([v[a:b].sum(axis=0) for a, b in ends]) for v in self._values(x)])

    def mean(self, x: np.ndarray) -> np.ndarray:
        """The mean of the bags' sums (n,) float32, without the sums."""
        return _joined([values.sum(axis=0) for values in self._values(x)]) * F(1 / len(self.ends))

    def _values(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Return the value of every tree, (trees, up to CHUNK), chunk by chunk."""
        for start in range(0, max(x.shape[1], 1), CHUNK):
            yield self._looked_up(x[:, start : start + CHUNK])

    def _looked_up(self, x: np.ndarray) -> np.ndarray:
        """All trees at once; a byte per Program and condition, shifted and joined eight Programs at a time."""
        count = x.shape[1]
        holds = np.zeros((len(self.columns), -(-count // 8) * 8), dtype=np.uint8)
        np.greater(x.take(self.columns, axis=0), self.thresholds[:, None], out=holds.view(bool)[:, :count])
        bits = holds.view(np.uint64).take(self.splits.T, axis=0)
        bits <<= _SHIFTS
        where = np.bitwise_or.reduce(bits, axis=0).view(np.uint8)[:, :count] + self._starts
        return self.tables.take(where, mode="clip")

    @cached_property
    def _starts(self) -> np.ndarray:
        """Return the offset of each tree's values among all values, (trees, 1)."""
        return np.arange(len(self.tables), dtype=np.intp)[:, None] << SPLITS

    def and_(self, other: Forest, share: float) -> Forest:
        """``share`` of this one and all of another, bag by bag: one look-up in place of two."""
        trees, more = len(self.tables), len(other.tables)
        mine = np.split(np.arange(trees), self.ends[:-1])
        theirs = np.split(np.arange(trees, trees + more), other.ends[:-1])
        order = np.concatenate([each for pair in zip(mine, theirs, strict=True) for each in pair])
        splits = np.concatenate([self.splits, other.splits + len(self.columns)])
        tables = np.concatenate([self.tables * F(share), other.tables])
        columns, thresholds = (
            np.concatenate(each) for each in ((self.columns, other.columns), (self.thresholds, other.thresholds))
        )
        ends = tuple(a + b for a, b in zip(self.ends, other.ends, strict=True))
        return Forest(columns, thresholds, splits[order], tables[order], ends)

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


def _joined(chunks: list[np.ndarray]) -> np.ndarray:
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks, axis=-1)


def _tabulate(tree: Any, places: np.ndarray, splits: list[tuple[int, float]]) -> np.ndarray:
    """Return the values of ``tree`` at every combination of its bits, and append its splits in the order of the
    bits."""
    if isinstance(tree, int | float):
        return np.full(len(places), tree, dtype=F)
    column, threshold, low, high = tree
    bit = len(splits)
    splits.append((int(column), float(threshold)))
    below, above = _tabulate(low, places, splits), _tabulate(high, places, splits)
    return np.where(places >> bit & 1, above, below)
