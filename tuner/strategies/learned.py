"""The learned cost model and the common loop of strategies that learn from their own evaluations only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.errors import ToolMissingError
from gensor_kernels.install import command
from gensor_tuner.search.walk import Walk

from .landscape import Codes, Landscape, Search

#: Evaluations without a budget: both publications measure about a thousand points per operator.
USUAL = 1024
#: Evaluations between two fits, and the random share of each batch: both publications' settings.
BATCH, EPSILON = 64, 0.05
#: Trees of a model: both publications' settings.
TREES_PER_MODEL = 100


class CostModel:
    """Boosted trees that predict throughput relative to the best known point: 1 is the best, 0 is hopeless."""

    def __init__(self, landscape: Landscape, settings: Mapping[str, Any], seed: int):
        """Fit to all evaluations so far; raise ToolMissingError without LightGBM."""
        try:
            import lightgbm
        except ImportError as error:
            raise ToolMissingError(f"this strategy learns a cost model with LightGBM: {command('learn')}") from error
        codes, seconds = landscape.known()
        self._landscape = landscape
        quiet = {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1, "seed": seed}
        leaves = {"min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 1e-3}
        settings = {"objective": "regression", **quiet, **leaves, **settings}
        throughput = seconds.min() / seconds
        data = lightgbm.Dataset(landscape.features(codes), throughput, params=settings, weight=throughput)
        self._model = lightgbm.train(settings, data, num_boost_round=TREES_PER_MODEL)
        self._scores: dict[int, float] = {}  # searches visit the same points repeatedly

    def __call__(self, codes: Codes) -> NDArray[np.float64]:
        """Return the predicted throughput of points (n,)."""
        new = np.array([code for code in dict.fromkeys(codes.tolist()) if code not in self._scores], np.int64)
        if new.size:
            predicted = self._model.predict(self._landscape.features(new), num_threads=1)
            self._scores.update(zip(new.tolist(), np.asarray(predicted).tolist(), strict=True))
        return np.array([self._scores[code] for code in codes.tolist()])


class Proposer(Protocol):
    """A search that proposes the points of highest predicted throughput."""

    def propose(self, model: CostModel, count: int) -> Codes:
        """Return `count` points, best first."""


def learn(
    task: Search, settings: Mapping[str, Any], proposer: Callable[[Landscape, np.random.Generator], Proposer]
) -> Walk:
    """Spend a search's evaluations in batches: a random one, then proposals with a random share."""
    rng = np.random.Generator(np.random.PCG64(task.seed))
    landscape = Landscape(task, USUAL)
    propose = proposer(landscape, rng).propose
    landscape.evaluate(np.concatenate([landscape.starts(), landscape.random(BATCH, rng)])[:BATCH])
    stuck = 0
    while landscape.left and landscape.seconds and stuck < 3:
        before = len(landscape.seconds)
        model = CostModel(landscape, settings, int(rng.integers(1 << 31)))
        chosen = landscape.fresh(propose(model, BATCH))[: BATCH - round(EPSILON * BATCH)]
        landscape.evaluate(chosen)
        # Random points also fill a batch whose proposal is too small.
        landscape.evaluate(landscape.fresh(landscape.random(BATCH, rng))[: BATCH - chosen.size])
        stuck = stuck + 1 if len(landscape.seconds) == before else 0
    return landscape.found()
