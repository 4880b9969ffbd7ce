"""The Markov chain over a construction graph: transition probabilities, cooling schedule, and lockstep chains.

From Program s an action a to s' has benefit g = ln Phi(s) - ln Phi(s'), where Phi is predicted seconds, and P(a|s) is
proportional to exp(g / tau); staying is one more choice with g = 0. The chain is memoryless. At a fixed tau > 0 every
edge and every self-loop has positive probability and every edge has its inverse, so on a connected graph the chain is
irreducible and aperiodic. The walk cools tau geometrically, in cycles; of many chains, those that have a
separate start are cold from the first step (docs/construction-graph.md, "Temperature and restarts").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .graph import Numbers
from .region import NOWHERE, Ids, Region

#: tau at the end of a cycle: so far below the tie-break that a chain spends most of a cycle descending to the plainest
#: of equally fast Programs and resting there.
COLD = 1e-20
#: tau where a cycle begins of chains that share another chain's start, as all that construct a Program from the minimal
#: one do, whatever the tau of others: colder chains would all go the same way.
SHARED_HOT = 0.3


@dataclass(frozen=True)
class Schedule:
    """Chains, steps per chain, and cooling: tau falls geometrically from `hot` to COLD over each `cycle`."""

    chains: int
    steps: int
    hot: float
    cycle: int

    def inverse_taus(self, hot: float | None = None) -> NDArray[np.float32]:
        """Return 1 / tau for each step of a cycle (cycle,) that begins at tau = `hot`, by default the schedule's."""
        fraction, hot = np.arange(self.cycle) / max(self.cycle - 1, 1), self.hot if hot is None else hot
        return (1 / (hot * (COLD / hot) ** fraction)).astype(np.float32)


def schedule(budget: int | None, actions: int, chains: int = 64, steps: int = 250) -> Schedule:
    """Return the schedule for at most `budget` distinct evaluations in a graph with `actions` moves per Program.

    A visited Program costs about half its moves in new evaluations, and a descent visits about a dozen Programs. If the
    budget is too small for `chains` descents, fewer chains share the same number of steps, in shorter cycles.

    Many chains are cold from their first step: their many starts find what warm steps find, and cost less. Few chains
    begin each cycle warm, to leave local optima.
    """
    visits = np.inf if budget is None else budget / max(0.5 * actions, 1)
    if visits >= 40 * chains:
        return Schedule(chains, steps, hot=COLD, cycle=max(steps // 2, 1))
    few = int(np.clip(visits / 12, 1, min(chains, 4)))
    return Schedule(few, chains * steps // few, hot=0.02, cycle=min(40, steps))


def probabilities(log_phi: NDArray[np.float32], inverse_tau: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return unnormalised P(a|s) (n, 1 + a) for rows of ln Phi whose column 0 is s itself; absent edges are inf.

    The most likely choice of each row has weight one, so no weight overflows and no row is all zero.
    """
    gain = (log_phi.min(axis=1, keepdims=True) - log_phi) * inverse_tau[:, None]
    return np.exp(gain, out=gain)


def choose(weights: NDArray[np.float32], uniform: NDArray[np.float32]) -> Numbers:
    """Draw one column per row (n,) in proportion to its weight, from uniform numbers (n,) in [0, 1)."""
    total = np.cumsum(weights, axis=1)
    return np.argmax(total > (uniform * total[:, -1])[:, None], axis=1)


class Chains:
    """Chains over one region; those on points with unknown edges wait until they are the majority."""

    def __init__(self, region: Region, starts: Ids, plan: Schedule, rng: np.random.Generator):
        """Place the chains at `starts`: evaluated ids, best first, a repeated one for chains that share a start."""
        self.region = region
        region.parent[starts] = NOWHERE
        self.starts = starts
        self.used = min(plan.chains, starts.size)
        self.at = np.resize(starts, plan.chains).astype(np.int32)
        self.best = self.at.copy()
        self.plan = plan
        self.rng = rng
        self.taken = np.zeros(plan.chains, np.int64)
        self._inverse_tau = np.stack([plan.inverse_taus(), plan.inverse_taus(SHARED_HOT)])
        own = np.unique(starts[: self.used], return_index=True)[1]
        self._shared = np.zeros(plan.chains, np.int64)
        self._shared[: self.used] = 1
        self._shared[own] = 0

    def run(self) -> int:
        """Take every chain's steps, or stop where the budget ends; return the total number of steps."""
        region = self.region
        while not region.exhausted:
            known = region.row[self.at] >= 0
            moving = self.taken < self.plan.steps
            ready = np.flatnonzero(known & moving)
            waiting = np.flatnonzero(moving & ~known)
            if waiting.size > ready.size:
                region.expand(np.unique(self.at[waiting]))
            elif ready.size:
                self._step(ready)
            else:
                break
        return int(self.taken.sum())

    def _draw(self, chains: Numbers, edges: Ids) -> Numbers:
        """Draw columns of `edges` (n, 1 + a), one per chain, by the transition probabilities."""
        now = self.taken[chains] % self.plan.cycle
        weights = probabilities(self.region.log_phi[edges], self._inverse_tau[self._shared[chains], now])
        total = np.cumsum(weights, axis=1)
        # If only staying has a positive probability, this holds until the end of the cycle because tau only falls:
        # the remaining steps are taken at once.
        rest = (total[:, -1] == weights[:, 0]).nonzero()[0]
        self.taken[chains[rest]] += self.plan.cycle - 1 - now[rest]
        drawn = self.rng.random(chains.size, dtype=np.float32) * total[:, -1]
        return (total > drawn[:, None]).argmax(axis=1)

    def _step(self, chains: Numbers) -> None:
        region = self.region
        here = self.at[chains]
        edges = region.edges[region.row[here]]
        target = edges[np.arange(chains.size), self._draw(chains, edges)]
        self.at[chains] = target
        first = region.parent[target] < 0
        if first.any():
            region.parent[target[first]] = here[first]
        better = region.log_phi[target] < region.log_phi[self.best[chains]]
        if better.any():
            self.best[chains[better]] = target[better]
        self.taken[chains] += 1
        due = chains[self.taken[chains] % self.plan.cycle == 0]
        if due.size:
            self._restart(due)

    def _restart(self, due: Numbers) -> None:
        """Restart these chains from unused starts, then from the best quarter of the chains' best points."""
        fresh = self.starts[self.used : self.used + due.size]
        self.used += fresh.size
        order = np.argsort(self.region.log_phi[self.best], kind="stable")
        elite = self.best[order[: max(order.size // 4, 1)]]
        picked = elite[self.rng.integers(elite.size, size=due.size - fresh.size)]
        self.at[due] = np.concatenate([fresh, picked])
