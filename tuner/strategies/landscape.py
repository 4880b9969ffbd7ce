"""The search landscape of a strategy: the points of all families as one set of codes, with counted evaluations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gensor_database.lazy import cached_property
from gensor_kernels.families.core.program import Program
from gensor_tuner.search.actions import plainness
from gensor_tuner.search.graph import Graph, Numbers, Points, SearchSpace
from gensor_tuner.search.region import TIE
from gensor_tuner.search.trace import start_of
from gensor_tuner.search.walk import SIFTED, Walk

#: Draws for a redrawn or crossed point before its parent is kept.
TRIES = 4
Codes = Numbers


@dataclass(frozen=True)
class Search:
    """The task of a strategy: at most `evaluations` distinct points, by default its own; the rest as for `walk`."""

    space: SearchSpace
    seed: int = 0
    evaluations: int | None = None
    start: Sequence[Program] | Literal["random"] | None = None
    chains: int = 64
    steps: int = 250
    keep: int = 256
    traced: int = 1
    alike: Callable[[Program], Hashable] | None = None


class Landscape:
    """Complete points of all families of a space, each with a code: int64, unique over the families."""

    def __init__(self, search: Search, usual: int):
        """Give each point a number; `usual`: evaluations if the search names no number. ValueError beyond 62 bits."""
        self.search = search
        self.families = list(search.space.families)
        self.budget = usual if search.evaluations is None else search.evaluations
        sizes = [int(np.prod(family.extents.astype(object))) for family in self.families]
        if sum(sizes) >= 1 << 62:
            raise ValueError(f"lattices of {sum(sizes)} points do not fit 62-bit codes")
        self._first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.seconds: dict[int, float] = {}

    def family_of(self, codes: Codes) -> Numbers:
        """Return the number of each code's family (n,)."""
        return np.searchsorted(self._first, codes, side="right") - 1

    def points(self, number: int, codes: Codes) -> Points:
        """Return the lattice points (n, d) of codes of one family."""
        points: Points = self.families[number].decode(codes - self._first[number])
        return points

    def codes(self, number: int, points: Points) -> Codes:
        """Return the codes of points (n, d) of one family."""
        return np.asarray(self.families[number].encode(points) + self._first[number], np.int64)

    def _by_family(self, codes: Codes) -> list[tuple[int, Numbers]]:
        numbers = self.family_of(codes)
        return [(int(number), np.flatnonzero(numbers == number)) for number in np.unique(numbers)]

    @cached_property
    def graphs(self) -> list[Graph]:
        """The construction graph of each family."""
        return [Graph(family) for family in self.families]

    def starts(self) -> Codes:
        """Return the starts of a search: the Programs of `search.start`, or the families' own starters."""
        wanted = self.search.start
        if isinstance(wanted, str):
            return np.empty(0, np.int64)
        found = []
        for number, family in enumerate(self.families):
            programs = family.family.starters(family.workload, family.arch) if wanted is None else wanted
            for program in programs:
                try:
                    point = np.asarray(family.point(program))[None]
                except (KeyError, ValueError):  # of another family, or with a value that this lattice lacks
                    continue
                if family.legal(point)[0]:
                    found.append(self.codes(number, point))
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def random(self, count: int, rng: np.random.Generator) -> Codes:
        """Return about `count` random legal points, shuffled, in equal shares per family; fewer where few are legal."""
        share = -(-count // len(self.families))
        found = [self.codes(i, graph.scatter(share, rng)) for i, graph in enumerate(self.graphs)]
        return rng.permutation(np.concatenate(found))[:count]

    def mutate(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Redraw one coordinate of each point uniformly; a point stays where TRIES draws are illegal."""

        def draw(number: int, points: Points, where: Numbers) -> Points:
            extents = self.families[number].extents
            free = np.flatnonzero(extents[1:] > 1) + 1
            if free.size:
                axis = rng.choice(free, where.size)
                rows = np.arange(where.size)
                points[rows, axis] = (points[rows, axis] + rng.integers(1, extents[axis])) % extents[axis]
            return points

        return self._change(codes, draw)

    def crossover(self, codes: Codes, others: Codes, rng: np.random.Generator) -> Codes:
        """Draw every coordinate from the point or its partner; a point with a partner of another family stays."""
        partners = np.where(self.family_of(codes) == self.family_of(others), others, codes)

        def draw(number: int, points: Points, where: Numbers) -> Points:
            return np.where(rng.random(points.shape) < 0.5, points, self.points(number, partners[where]))

        return self._change(codes, draw)

    def _change(self, codes: Codes, draw: Callable[[int, Points, Numbers], Points]) -> Codes:
        """Return the first legal of TRIES points drawn per point; a point without any stays."""
        result = codes.copy()
        for number, where in self._by_family(codes):
            repeated = np.tile(where, TRIES)
            drawn = draw(number, self.points(number, codes[repeated]), repeated)
            legal = np.flatnonzero(self.families[number].legal(drawn))[::-1]
            result[repeated[legal]] = self.codes(number, drawn[legal])  # the first legal draw is written last
        return result

    @property
    def left(self) -> int:
        """Evaluations that may still be spent."""
        return max(self.budget - len(self.seconds), 0)

    def evaluate(self, codes: Codes) -> None:
        """Compute the potential of unknown points in their order, as far as the budget goes."""
        fresh = list(dict.fromkeys(code for code in codes.tolist() if code not in self.seconds))[: self.left]
        new = np.array(fresh, np.int64)
        for number, where in self._by_family(new):
            seconds = self.families[number].potential(self.points(number, new[where]))
            self.seconds.update(zip(new[where].tolist(), seconds.tolist(), strict=True))

    def known(self) -> tuple[Codes, NDArray[np.float64]]:
        """Return evaluated codes and their seconds, in the order of evaluation (grouped by family in each batch)."""
        return np.fromiter(self.seconds, np.int64, len(self.seconds)), np.array(list(self.seconds.values()))

    def fresh(self, codes: Codes) -> Codes:
        """Return the codes that were never evaluated, each once, in order."""
        return np.array(list(dict.fromkeys(c for c in codes.tolist() if c not in self.seconds)), np.int64)

    @cached_property
    def axes(self) -> list[str]:
        """Names of all families' coordinates."""
        return list(dict.fromkeys(axis.name for family in self.families for axis in family.coordinates[1:]))

    def features(self, codes: Codes) -> NDArray[np.float32]:
        """Return float32 features (n, features): the family's number, each coordinate's value or -1."""
        result = np.full((codes.size, 1 + len(self.axes)), -1, np.float32)
        for number, where in self._by_family(codes):
            family, points = self.families[number], self.points(number, codes[where])
            result[where, 0] = number
            for axis, column in zip(family.coordinates[1:], points.T[1:], strict=True):
                result[where, 1 + self.axes.index(axis.name)] = np.array(axis.values)[column]
        return result

    def found(self) -> Walk:
        """Return the best Programs as a Walk without actions."""
        codes, seconds = self.known()
        if not codes.size:
            raise ValueError("no legal Program was found: no family serves this workload, or the budget is zero")
        search = self.search
        numbers = self.family_of(codes)
        tie = np.zeros(codes.size)
        for number, where in self._by_family(codes):
            tie[where] = -TIE * (self.points(number, codes[where]) @ plainness(self.families[number].coordinates))
        order = np.lexsort((codes, tie, numbers, seconds))
        ranked: dict[Hashable, tuple[Program, float]] = {}
        for i in order[: search.keep if search.alike is None else SIFTED * search.keep].tolist():
            number = int(numbers[i])
            program = self.families[number].program(self.points(number, codes[i : i + 1])[0])
            ranked.setdefault(program if search.alike is None else search.alike(program), (program, float(seconds[i])))
        best = list(ranked.values())[: search.keep]
        return Walk(best, [start_of(program, "full") for program, _ in best[: search.traced]], len(codes), 0)
