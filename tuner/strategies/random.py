"""Random legal points, without replacement."""

from __future__ import annotations

import numpy as np

from gensor_tuner.search.walk import Walk

from .landscape import Landscape, Search

#: Evaluations without a budget: as many as a walk of 48 x 200 steps makes.
USUAL = 20_000


def search(task: Search) -> Walk:
    """Evaluate random legal points until the evaluations are spent, or draws find no new point."""
    rng = np.random.Generator(np.random.PCG64(task.seed))
    landscape = Landscape(task, USUAL)
    landscape.evaluate(landscape.starts())
    before = -1
    while landscape.left and len(landscape.seconds) > before:
        before = len(landscape.seconds)
        landscape.evaluate(landscape.random(2 * landscape.left, rng))
    return landscape.found()
