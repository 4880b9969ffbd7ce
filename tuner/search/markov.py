"""The Markov chain over a construction graph: transition probabilities, its schedule, and chains run together.

From Program s an action a to s' has benefit g = ln Phi(s) - ln Phi(s'), Phi being predicted seconds, and
P(a|s) is proportional to exp(g / tau); staying is one more choice with g = 0. The chain is memoryless. At a
fixed tau > 0 every edge and every self-loop has positive probability and every edge has its inverse, so on a
connected graph the chain is irreducible and aperiodic; the walk cools tau geometrically, in cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, Numbers
from .region import NOWHERE, Ids, Region

#: tau at the end of a cycle, so far below the tie-break that a chain spends most of a cycle descending to the
#: plainest of equals and resting there.
COLD = 1e-20


@dataclass(frozen=True)
class Schedule:
    """How many chains take how many steps each. tau falls geometrically from `hot` to COLD over each `cycle` of
    steps; then the chain starts again, from the next start that no chain has had, or from an elite point."""

    chains: int
    steps: int
    hot: float
    cycle: int

    def inverse_taus(self) -> NDArray[np.float32]:
        """1 / tau for each step of a cycle (cycle,)."""
        fraction = np.arange(self.cycle) / max(self.cycle - 1, 1)
        return (1 / (self.hot * (COLD / self.hot) ** fraction)).astype(np.float32)


def schedule(budget: int | None, actions: int, chains: int = 64, steps: int = 250) -> Schedule:
    """The schedule for at most `budget` distinct evaluations in a graph with `actions` moves per Program.

    A visited Program costs about half its moves in new evaluations, and a descent visits about a dozen. Where the
    budget is too small for `chains` descents, fewer chains share the same number of steps, in shorter cycles.
    """
    visits = np.inf if budget is None else budget / max(0.5 * actions, 1)
    if visits >= 40 * chains:
        return Schedule(chains, steps, hot=0.03, cycle=max(steps // 2, 1))
    few = int(np.clip(visits / 12, 1, min(chains, 4)))
    return Schedule(few, chains * steps // few, hot=0.02, cycle=min(40, steps))


def probabilities(log_phi: NDArray[np.float32], inverse_tau: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unnormalised P(a|s) (n, 1 + a) for rows of ln Phi whose column 0 is s itself; absent edges are inf.

    The most likely choice of each row has weight one, so nothing overflows and no row is all zero.
    """
    gain = (log_phi.min(axis=1, keepdims=True) - log_phi) * inverse_tau[:, None]
    return np.exp(gain, out=gain)


def choose(weights: NDArray[np.float32], uniform: NDArray[np.float32]) -> Numbers:
    """One column per row (n,), drawn in proportion to its weight, from uniform numbers (n,) in [0, 1)."""
    total = np.cumsum(weights, axis=1)
    return np.argmax(total > (uniform * total[:, -1])[:, None], axis=1)


def transition_matrix(graph: Graph, codes: Numbers, tau: float) -> NDArray[np.float64]:
    """The chain's matrix P (n, n) on the points with these sorted codes, at a fixed tau.

    Raises ValueError if an edge leaves the given set. For small spaces: it is dense.
    """
    points = graph.decode(codes)
    targets, found = graph.neighbours(points)
    row, move = np.nonzero(found)
    reached = graph.encode(targets[row, move])
    column = np.searchsorted(codes, reached)
    if not np.array_equal(codes[np.minimum(column, codes.size - 1)], reached):
        raise ValueError("an edge leads out of the given points")
    log_phi = np.log(graph.space.potential(points))
    matrix = np.eye(codes.size)
    np.add.at(matrix, (row, column), np.exp((log_phi[row] - log_phi[column]) / tau))
    return matrix / matrix.sum(axis=1, keepdims=True)


class Chains:
    """Chains over one region. They step together; those that stand on points whose edges are not known yet wait
    until they are the majority, so that edges are found for many points in one call."""

    def __init__(self, region: Region, starts: Ids, plan: Schedule, rng: np.random.Generator):
        """`starts`: evaluated ids, the most promising first; chains take them in this order."""
        self.region = region
        region.parent[starts] = NOWHERE
        self.starts = starts
        self.used = min(plan.chains, starts.size)
        self.at = np.resize(starts, plan.chains).astype(np.int32)
        self.best = self.at.copy()
        self.plan = plan
        self.rng = rng
        self.taken = np.zeros(plan.chains, np.int64)
        self._inverse_tau = plan.inverse_taus()

    def run(self) -> int:
        """Take every chain's steps, or stop where the budget ends; returns the steps taken in all."""
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
        """Columns of `edges` (n, 1 + a), one per chain, drawn by the transition probabilities."""
        now = self.taken[chains] % self.plan.cycle
        weights = probabilities(self.region.log_phi[edges], self._inverse_tau[now])
        total = np.cumsum(weights, axis=1)
        # Where only staying has a probability above zero it stays so until the cycle ends, tau only falling:
        # those steps are taken at once.
        rest = (total[:, -1] == weights[:, 0]).nonzero()[0]
        self.taken[chains[rest]] += self.plan.cycle - 1 - now[rest]
        drawn = self.rng.random(chains.size, dtype=np.float32) * total[:, -1]
        return (total > drawn[:, None]).argmax(axis=1)

    def _step(self, chains: Numbers) -> None:
        """One step of each of these chains, whose edges are known."""
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
        """Start these chains again: from starts not used yet, then from the best quarter of the chains' bests."""
        fresh = self.starts[self.used : self.used + due.size]
        self.used += fresh.size
        order = np.argsort(self.region.log_phi[self.best], kind="stable")
        elite = self.best[order[: max(order.size // 4, 1)]]
        picked = elite[self.rng.integers(elite.size, size=due.size - fresh.size)]
        self.at[due] = np.concatenate([fresh, picked])
