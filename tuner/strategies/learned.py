"""Strategies that learn a cost model from their own evaluations only: AutoTVM's annealing and Ansor's evolution.

Both evaluate batches of 64 with a random share of 0.05. LightGBM replaces XGBoost, with its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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
#: Kinds of coordinates that the rules of Ansor's sketches decide.
STRUCTURE = frozenset({"inline", "split", "stages", "layout", "instruction", "epilogue"})
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


class Annealer:
    """AutoTVM's search: parallel simulated annealing over a learned cost model; chains persist between batches.

    T. Chen and others, Learning to Optimize Tensor Programs, NeurIPS 2018, with the settings of the paper and of TVM's
    `XGBTuner`: 128 chains of 500 steps that continue from the previous batch; a temperature that falls linearly from 1
    to 0; an end after 50 steps without a better candidate. A step redraws one coordinate.
    """

    CHAINS, STEPS, PATIENCE, HOT = 128, 500, 50, 1.0
    #: XGBTuner: depth 3, eta 0.3, lambda 1, gamma 1e-4.
    TREES: ClassVar = {
        **{"max_depth": 3, "num_leaves": 8, "learning_rate": 0.3},
        **{"lambda_l2": 1.0, "min_gain_to_split": 1e-4},
    }

    def __init__(self, landscape: Landscape, rng: np.random.Generator):
        self.landscape, self.rng = landscape, rng
        self.at = landscape.random(self.CHAINS, rng)

    def propose(self, model: CostModel, count: int) -> Codes:
        """Return the `count` visited, unevaluated points of highest predicted throughput."""
        landscape, rng = self.landscape, self.rng
        scores = model(self.at)
        best = dict(zip(self.at.tolist(), scores.tolist(), strict=True))
        best = {code: score for code, score in best.items() if code not in landscape.seconds}
        since = 0
        for step in range(self.STEPS):
            ahead = landscape.mutate(self.at, rng)
            there = model(ahead)
            heat = self.HOT * (1 - step / self.STEPS)
            go = rng.random(self.at.size) < np.exp(np.minimum((there - scores) / (heat + 1e-5), 1))
            self.at, scores = np.where(go, ahead, self.at), np.where(go, there, scores)
            worst = min(best.values()) if len(best) >= count else -np.inf
            news = {
                code: score
                for code, score in zip(ahead.tolist(), there.tolist(), strict=True)
                if score > worst and code not in best and code not in landscape.seconds
            }
            since = 0 if news else since + 1
            best = dict(sorted((best | news).items(), key=lambda item: (-item[1], item[0]))[:count])
            if since > self.PATIENCE:
                break
        return np.array(list(best), np.int64)


class Evolution:
    """Ansor's search: evolution of randomly annotated sketches under a learned cost model, a population per batch.

    L. Zheng and others, Ansor: Generating High-Performance Tensor Programs for Deep Learning, OSDI 2020, with the
    settings of TVM's `SketchPolicy`: a population of 2048, of which up to a fifth are the best evaluated points; 4
    generations; parents drawn in proportion to predicted throughput; mutation with probability 0.85, else crossover. A
    sketch is a family with its structural coordinates, which Ansor's rules decide: inlining, cache stages, reduction
    split, instruction and epilogue route. The other coordinates are its annotation.
    """

    POPULATION, GENERATIONS, MUTATION, MEASURED_SHARE = 2048, 4, 0.85, 0.2
    #: SketchPolicy's XGBModel: depth 10, eta 0.2, gamma 1e-3, squared error weighted by throughput.
    TREES: ClassVar = {"max_depth": 10, "num_leaves": 63, "learning_rate": 0.2, "min_gain_to_split": 1e-3}

    def __init__(self, landscape: Landscape, rng: np.random.Generator):
        self.landscape, self.rng = landscape, rng

    def annotate(self, count: int) -> Codes:
        """Draw `count` random points: first a sketch, uniformly, then one of its annotations."""
        landscape = self.landscape
        pool = np.unique(np.concatenate([landscape.random(4 * count, self.rng), landscape.starts()]))
        _, sketch, sizes = np.unique(self._sketches(pool), return_inverse=True, return_counts=True)
        weight = 1 / sizes[sketch]
        return np.asarray(self.rng.choice(pool, count, p=weight / weight.sum()), np.int64)

    def _sketches(self, codes: Codes) -> Codes:
        """Return a number per point that is equal for points of one sketch."""
        landscape = self.landscape
        numbers = landscape.family_of(codes)
        result = np.empty(codes.size, np.int64)
        for number in np.unique(numbers):
            family, where = landscape.families[number], numbers == number
            structural = np.array([axis.kind in STRUCTURE for axis in family.coordinates])
            points = landscape.points(int(number), codes[where]) * structural
            result[where] = landscape.codes(int(number), points)
        return result

    def propose(self, model: CostModel, count: int) -> Codes:
        """Return the `count` points of highest predicted throughput over all generations."""
        known, seconds = self.landscape.known()
        elite = known[np.argsort(seconds, kind="stable")][: int(self.MEASURED_SHARE * self.POPULATION)]
        population = np.concatenate([elite, self.annotate(self.POPULATION - elite.size)])
        best: dict[int, float] = {}
        for generation in range(self.GENERATIONS + 1):
            scores = model(population)
            seen = dict(zip(population.tolist(), scores.tolist(), strict=True))
            best |= {code: score for code, score in seen.items() if code not in self.landscape.seconds}
            if generation < self.GENERATIONS:
                population = self._next(population, scores)
        return np.array(sorted(best, key=lambda code: (-best[code], code))[:count], np.int64)

    def _next(self, population: Codes, scores: np.ndarray) -> Codes:
        fitness = np.maximum(scores, 1e-9)
        mothers, fathers = self.rng.choice(population, (2, population.size), p=fitness / fitness.sum())
        mutated = self.rng.random(population.size) < self.MUTATION
        mothers[mutated] = self.landscape.mutate(mothers[mutated], self.rng)
        mothers[~mutated] = self.landscape.crossover(mothers[~mutated], fathers[~mutated], self.rng)
        return mothers


def learn(proposer: type[Annealer | Evolution], task: Search) -> Walk:
    """Spend a search's evaluations in batches: a random one, then proposals with a random share.

    Raises ToolMissingError without LightGBM.
    """
    rng = np.random.Generator(np.random.PCG64(task.seed))
    landscape = Landscape(task, USUAL)
    propose = proposer(landscape, rng).propose
    landscape.evaluate(np.concatenate([landscape.starts(), landscape.random(BATCH, rng)])[:BATCH])
    stuck = 0
    while landscape.left and landscape.seconds and stuck < 3:
        before = len(landscape.seconds)
        model = CostModel(landscape, proposer.TREES, int(rng.integers(1 << 31)))
        chosen = landscape.fresh(propose(model, BATCH))[: BATCH - round(EPSILON * BATCH)]
        landscape.evaluate(chosen)
        # Random points also fill a batch whose proposal is too small.
        landscape.evaluate(landscape.fresh(landscape.random(BATCH, rng))[: BATCH - chosen.size])
        stuck = stuck + 1 if len(landscape.seconds) == before else 0
    return landscape.found()
