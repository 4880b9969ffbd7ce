"""What measured times say beside the potential: ln(measured / predicted) from its terms, in NumPy, with its doubt.

A Residual is plain numbers (JSON, never a pickle).  Trees have at most SPLITS splits each, so a tree is a table: every
split is one bit, and the bits of a tree are the place of its value among 2^SPLITS.  A few comparisons, one packing and
one look-up per tree serve thousands of Programs at once.

Levels, from what all parts share to what is known of one: trees over every measurement; on top of them, for each part
that was measured, how much of the shared trees holds there, trees of its own, and offsets for the part, for a dtype on
it, and for an operator of that dtype.  A part nobody measured gets the shared trees at UNSEEN of their size: half of
what one GPU taught turned out to be about that GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arch import Arch
from .roofline import DRAM_EFFICIENCY, SM_L2_BYTES, SUBCORES, Terms

#: Bumped when FEATURES or the meaning of the numbers change; other versions are refused.
VERSION = 1
#: Splits of a tree: a byte of them.
SPLITS = 8
#: Share of the shared trees that holds on a part without measurements.
UNSEEN = 0.5
F = np.float32
_SHIFTS = np.arange(SPLITS, dtype=np.uint64)

#: Ratios and sizes that say which resource a Program leans on; see `features`.
FEATURES = (
    *("compute", "shared", "l2", "dram", "alone", "together", "issue_per_multiply", "issue_per_math", "warps"),
    *(
        "residents",
        "resident_warps",
        "registers",
        "shared_bytes",
        "chain",
        "math",
        "wavefronts",
        "wavefront_per_multiply",
    ),
    *("rounds", "tail", "l2_bytes", "blocks", "issue", "dram_bytes", "epilogue"),
)


def features(terms: Terms, arch: Arch, extra: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
    """(features, n) float32: FEATURES of Programs on a part, then ``extra`` columns in their order.

    compute, shared, l2, dram and alone are clocks of an iteration as `roofline.seconds` has them, over the largest of
    the first four; the rest are terms and their ratios.  Trees ask for order only, so nothing needs a logarithm.
    """
    t = terms
    pipe = np.maximum(t.math, t.multiplies + t.issue)
    quarter = np.ceil(t.warps * F(1 / SUBCORES)) * pipe
    resident_warps = t.residents * t.warps
    compute = np.ceil(resident_warps * F(1 / SUBCORES)) * pipe
    shared = t.residents * t.wavefronts * F(128 / arch.smem_bytes_per_clk)
    running = t.residents * F(arch.sms)
    l2 = t.l2_bytes * np.maximum(t.residents * F(1 / SM_L2_BYTES), running * F(1 / arch.l2_bytes_per_clk))
    dram_clk = arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz
    dram = running * t.dram_bytes / (t.blocks * t.iterations) * F(1 / dram_clk)
    busiest = np.maximum(np.maximum(compute, shared), np.maximum(l2, dram))
    over = 1 / busiest
    rounds = t.blocks / running
    per_multiply = 1 / t.multiplies
    columns = (
        *(compute * over, shared * over, l2 * over, dram * over, (quarter + t.chain) * over),
        (compute + shared + l2) * over,
        *(t.issue * per_multiply, t.issue / t.math, t.warps, t.residents, resident_warps, t.registers, t.shared_bytes),
        *(t.chain / quarter, t.math, t.wavefronts / t.warps, t.wavefronts / t.warps * per_multiply),
        *(rounds, np.ceil(rounds) / rounds, t.l2_bytes, t.blocks, t.issue, t.dram_bytes),
        t.epilogue_busy / (t.math * t.iterations),
        *(extra.values() if extra else ()),
    )
    out = np.empty((len(columns), len(t.blocks)), dtype=F)
    for row, column in zip(out, columns, strict=True):
        row[:] = column
    return out


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
        count = x.shape[1]
        # One byte per Program and condition, shifted and joined eight Programs at a time.
        holds = np.zeros((len(self.columns), -(-count // 8) * 8), dtype=np.uint8)
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

        Raises ValueError for a tree of more than SPLITS splits.
        """
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


@dataclass(frozen=True)
class Part:
    """What is known of one part: ``weight`` of the shared trees there, own trees by bag, offsets, doubt.

    ``offsets`` add up: keys "", "dtype" and "dtype/operator".  ``noise`` is the standard deviation of what the trees
    leave unexplained.
    """

    weight: float
    noise: float
    offsets: Mapping[str, float] = field(default_factory=dict)
    trees: tuple[Any, ...] = ()


class Residual:
    """The model: ``names`` of its features, shared trees by bag (nested lists), parts by name.

    Raises ValueError where a tree is larger than a table holds, or splits by a feature there is not.
    """

    def __init__(self, names: Sequence[str], trees: Sequence[Any], parts: Mapping[str, Part], unseen_noise: float):
        self.names = tuple(names)
        self.trees = tuple(trees)
        self.parts = dict(parts)
        self.unseen = Part(weight=UNSEEN, noise=unseen_noise)
        self._shared = Forest.of(self.trees)
        self._own = {name: Forest.of(part.trees) for name, part in self.parts.items() if part.trees}
        for forest in (self._shared, *self._own.values()):
            if not 0 <= forest.columns.min() <= forest.columns.max() < max(len(self.names), 1):
                raise ValueError("a tree splits by a feature the model does not have")

    def predict(self, x: np.ndarray, part: str, dtype: str = "", operator: str = "") -> tuple[np.ndarray, np.ndarray]:
        """(ln(measured / predicted), its standard deviation) for ``x`` (features, n) of `names`; float32 (n,) each."""
        if len(x) != len(self.names):
            raise ValueError(f"the model has {len(self.names)} features, not {len(x)}")
        known = self.parts.get(part, self.unseen)
        bags = self._shared(x) * F(known.weight)
        if part in self._own:
            bags += self._own[part](x)
        offset = sum(known.offsets.get(key, 0.0) for key in ("", dtype, f"{dtype}/{operator}"))
        spread = bags.var(axis=0, ddof=min(len(bags) - 1, 1))
        return bags.mean(axis=0) + F(offset), np.sqrt(spread + F(known.noise**2))

    def to_json(self) -> str:
        """Canonical JSON text."""
        parts = {
            name: {"weight": p.weight, "noise": p.noise, "offsets": dict(p.offsets), "trees": list(p.trees)}
            for name, p in self.parts.items()
        }
        body = {"version": VERSION, "names": self.names, "trees": self.trees, "parts": parts}
        return json.dumps(body | {"unseen_noise": self.unseen.noise}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Residual:
        """The model of a JSON text; raises ValueError for another version or other numbers than this one writes."""
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("version") != VERSION:
            raise ValueError(f"not a residual of version {VERSION}")
        try:
            parts = {
                name: Part(p["weight"], p["noise"], p["offsets"], tuple(p["trees"]))
                for name, p in body["parts"].items()
            }
            return cls(body["names"], body["trees"], parts, body["unseen_noise"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"damaged residual: {error!r}") from error
