"""The walk (`gensor_tuner.search.walk`), over the potential or, if evaluations are measurements, over a learned model.

If evaluations of a space are measured times, predictions cost nothing in comparison: the strategy walks over
predictions, evaluates the best predicted points, fits a residual to their times (`gensor_tuner.learn.fit`), and walks
again over prediction minus doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.machine.residual import Residual
from gensor_tuner.learn.fit import Measured, fit
from gensor_tuner.search import walk
from gensor_tuner.search.graph import Points, SearchSpace

from .landscape import Codes, Landscape, Search

#: Evaluations between two fits: the first batches are small, since every fit may change the potential's ranking.
FIRST, BATCH = 16, 64
#: Multiple of the doubt that is subtracted from a prediction: uncertain points are worth an evaluation.
BOLD = 1.0
#: Evaluations without a budget.
USUAL = 256
#: Chains and steps of a walk over predictions.
CHAINS, STEPS = 32, 100


def search(asked: Search) -> walk.Walk:
    """Walk; if evaluations are measured, learn from them (raises ToolMissingError without LightGBM)."""
    if any(hasattr(family, "prior") for family in asked.space.families):
        return _learning(asked)
    return walked(asked)


def walked(search: Search, graph: str = "full") -> walk.Walk:
    """Walk the construction graph as the search asks; the paper's graph ignores `start`."""
    return walk.walk(
        search.space,
        seed=search.seed,
        chains=search.chains,
        steps=search.steps,
        graph=graph,
        start=search.start if graph == "full" else None,
        budget=search.evaluations,
        keep=search.keep,
        traced=search.traced,
        alike=search.alike,
    )


class Predicted:
    """A family whose potential is the prediction minus its doubt."""

    def __init__(self, family: Any, model: Residual | None):
        self._family, self._model = family, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def potential(self, points: Points) -> NDArray[np.float64]:
        """Return seconds (n,)."""
        prior: NDArray[np.float64] = self._family.prior(points)
        if self._model is None:
            return prior
        name = self._family.family.name
        mean, doubt = self._model.predict(self._family.features(points), self._family.arch.part, name, name)
        return np.asarray(prior * np.exp(mean - BOLD * doubt), np.float64)


@dataclass(frozen=True)
class Predictions:
    """A space of `Predicted` families."""

    families: tuple[Predicted, ...]


def _learning(asked: Search) -> walk.Walk:
    landscape = Landscape(asked, USUAL)
    batch, number = FIRST, 0
    while landscape.left:
        before = len(landscape.seconds)
        model = _residual(landscape, asked.seed) if before else None
        predictions = Predictions(tuple(Predicted(family, model) for family in landscape.families))
        # Keep enough Programs that a batch of them is new.
        known = before + min(batch, landscape.left)
        found = walk.walk(
            cast(SearchSpace, predictions), seed=asked.seed + number, chains=CHAINS, steps=STEPS, keep=known
        )
        landscape.evaluate(landscape.fresh(_codes(landscape, found))[:batch])
        if len(landscape.seconds) == before:
            break
        batch, number = min(2 * batch, BATCH), number + 1
    return landscape.found()


def _residual(landscape: Landscape, seed: int) -> Residual:
    """Fit a residual to all evaluations."""
    codes, seconds = landscape.known()
    numbers = landscape.family_of(codes)
    samples = []
    for number, family in enumerate(cast(Sequence[Any], landscape.families)):  # with `prior` and `features`, see Search
        where = numbers == number
        points = landscape.points(number, codes[where])
        ratio = np.log(seconds[where] / family.prior(points))
        name = family.family.name
        samples.append(Measured(family.arch.part, name, name, family.features(points), ratio))
    return fit(samples, [str(i) for i in range(len(samples[0].x))], seed)


def _codes(landscape: Landscape, found: walk.Walk) -> Codes:
    """Return the codes of a walk's best Programs, best first."""
    number = {family.family.name: i for i, family in enumerate(landscape.families)}
    codes = []
    for program, _ in found.best:
        at = number[program.family]
        codes.append(landscape.codes(at, landscape.families[at].point(program)[None])[0])
    return np.array(codes, np.int64)
