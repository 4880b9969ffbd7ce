"""AutoTVM's search: parallel simulated annealing over a learned cost model.

T. Chen and others, Learning to Optimize Tensor Programs, NeurIPS 2018, with the settings of the paper and of TVM's
`XGBTuner`: batches of 64; 128 chains of 500 steps that continue from the previous batch; a temperature that falls
linearly from 1 to 0; an end after 50 steps without a better candidate; a random share of 0.05. A step redraws one
coordinate. LightGBM replaces XGBoost, with its settings.
"""

from __future__ import annotations

import numpy as np

from gensor_tuner.search.walk import Walk

from .landscape import Codes, Landscape, Search
from .learned import CostModel, learn

CHAINS, STEPS, PATIENCE, HOT = 128, 500, 50, 1.0
#: XGBTuner: depth 3, eta 0.3, lambda 1, gamma 1e-4.
TREES = {"max_depth": 3, "num_leaves": 8, "learning_rate": 0.3, "lambda_l2": 1.0, "min_gain_to_split": 1e-4}


class Annealer:
    """Chains that persist between batches."""

    def __init__(self, landscape: Landscape, rng: np.random.Generator):
        self.landscape, self.rng = landscape, rng
        self.at = landscape.random(CHAINS, rng)

    def propose(self, model: CostModel, count: int) -> Codes:
        """Return the `count` visited, unevaluated points of highest predicted throughput."""
        landscape, rng = self.landscape, self.rng
        scores = model(self.at)
        best = dict(zip(self.at.tolist(), scores.tolist(), strict=True))
        best = {code: score for code, score in best.items() if code not in landscape.seconds}
        since = 0
        for step in range(STEPS):
            ahead = landscape.mutate(self.at, rng)
            there = model(ahead)
            heat = HOT * (1 - step / STEPS)
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
            if since > PATIENCE:
                break
        return np.array(list(best), np.int64)


def search(task: Search) -> Walk:
    """Anneal until the evaluations are spent; raise ToolMissingError without LightGBM."""
    return learn(task, TREES, Annealer)
