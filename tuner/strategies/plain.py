"""Strategies that learn nothing: the walk over the construction graph, random points, and every point."""

from __future__ import annotations

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_tuner.search import walk as construction
from gensor_tuner.search.graph import SearchSpace
from gensor_tuner.search.walk import Walk

from .landscape import Landscape, Search

#: Evaluations without a budget: as many as a walk of 48 x 200 steps makes.
USUAL = 20_000
#: The most lattice points, legal or not, to enumerate: a matter of seconds.
MOST = 1 << 23


def walk(task: Search, graph: str = "full") -> Walk:
    """Walk the construction graph as the search asks; the paper's graph ignores `start`."""
    given = {**vars(task), "graph": graph, "start": task.start if graph == "full" else None}
    return construction.walk(budget=given.pop("evaluations"), **given)


def random(task: Search) -> Walk:
    """Evaluate random legal points until the evaluations are spent, or draws find no new point."""
    rng = np.random.Generator(np.random.PCG64(task.seed))
    landscape = Landscape(task, USUAL)
    landscape.evaluate(landscape.starts())
    before = -1
    while landscape.left and len(landscape.seconds) > before:
        before = len(landscape.seconds)
        landscape.evaluate(landscape.random(2 * landscape.left, rng))
    return landscape.found()


def admit(space: SearchSpace) -> int:
    """Return the number of lattice points to enumerate; raise UnsupportedError where there are too many."""
    looked = sum(int(np.prod(family.extents[1:].astype(object))) for family in space.families)
    if looked > MOST:
        raise UnsupportedError(f"its lattices have {looked:.0e} points, and an exhaustive search looks at {MOST:.0e}")
    return looked


def exhaustive(task: Search) -> Walk:
    """Evaluate every legal complete point in the order of codes, up to the number of evaluations (None: all)."""
    looked = admit(task.space)
    landscape = Landscape(task, looked)
    for number, family in enumerate(landscape.families):
        for points in family.enumerate():
            landscape.evaluate(landscape.codes(number, points))
    return landscape.found()
