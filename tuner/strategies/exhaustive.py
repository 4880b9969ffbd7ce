"""Evaluation of every legal point: the true optimum, for lattices small enough to enumerate."""

from __future__ import annotations

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_tuner.search.graph import SearchSpace
from gensor_tuner.search.walk import Walk

from .landscape import Landscape, Search

#: The most lattice points, legal or not, to enumerate: a matter of seconds.
MOST = 1 << 23


def admit(space: SearchSpace) -> int:
    """Return the number of lattice points to enumerate; raise UnsupportedError where there are too many."""
    looked = sum(int(np.prod(family.extents[1:].astype(object))) for family in space.families)
    if looked > MOST:
        raise UnsupportedError(f"its lattices have {looked:.0e} points, and an exhaustive search looks at {MOST:.0e}")
    return looked


def search(task: Search) -> Walk:
    """Evaluate every legal complete point in the order of codes, up to the number of evaluations (None: all)."""
    looked = admit(task.space)
    landscape = Landscape(task, looked)
    for number, family in enumerate(landscape.families):
        for points in family.enumerate():
            landscape.evaluate(landscape.codes(number, points))
    return landscape.found()
