"""Ansor's search: evolution of randomly annotated sketches under a learned cost model.

L. Zheng and others, Ansor: Generating High-Performance Tensor Programs for Deep Learning, OSDI 2020, with the settings
of TVM's `SketchPolicy`: batches of 64; a population of 2048, of which up to a fifth are the best evaluated points; 4
generations; parents drawn in proportion to predicted throughput; mutation with probability 0.85, else crossover; a
random share of 0.05. A sketch is a family with its structural coordinates, which Ansor's rules decide: inlining, cache
stages, reduction split, instruction and epilogue route. The other coordinates are its annotation. LightGBM replaces
XGBoost, with its settings.
"""

from __future__ import annotations

import numpy as np

from gensor_tuner.search.walk import Walk

from .landscape import Codes, Landscape, Search
from .learned import CostModel, learn

POPULATION, GENERATIONS, MUTATION, MEASURED_SHARE = 2048, 4, 0.85, 0.2
#: Kinds of coordinates that sketch rules decide.
STRUCTURE = frozenset({"inline", "split", "stages", "layout", "instruction", "epilogue"})
#: SketchPolicy's XGBModel: depth 10, eta 0.2, gamma 1e-3, squared error weighted by throughput.
TREES = {"max_depth": 10, "num_leaves": 63, "learning_rate": 0.2, "min_gain_to_split": 1e-3}


class Evolution:
    """Populations of a landscape, one per batch."""

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
        elite = known[np.argsort(seconds, kind="stable")][: int(MEASURED_SHARE * POPULATION)]
        population = np.concatenate([elite, self.annotate(POPULATION - elite.size)])
        best: dict[int, float] = {}
        for generation in range(GENERATIONS + 1):
            scores = model(population)
            seen = dict(zip(population.tolist(), scores.tolist(), strict=True))
            best |= {code: score for code, score in seen.items() if code not in self.landscape.seconds}
            if generation < GENERATIONS:
                population = self._next(population, scores)
        return np.array(sorted(best, key=lambda code: (-best[code], code))[:count], np.int64)

    def _next(self, population: Codes, scores: np.ndarray) -> Codes:
        fitness = np.maximum(scores, 1e-9)
        mothers, fathers = self.rng.choice(population, (2, population.size), p=fitness / fitness.sum())
        mutated = self.rng.random(population.size) < MUTATION
        mothers[mutated] = self.landscape.mutate(mothers[mutated], self.rng)
        mothers[~mutated] = self.landscape.crossover(mothers[~mutated], fathers[~mutated], self.rng)
        return mothers


def search(task: Search) -> Walk:
    """Evolve until the evaluations are spent; raise ToolMissingError without LightGBM."""
    return learn(task, TREES, Evolution)
