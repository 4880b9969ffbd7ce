"""The Markov chain over a construction graph: transition probabilities, its schedule, and chains run together.

From Program s an action a to s' has benefit g = ln Phi(s) - ln Phi(s'), Phi being predicted seconds, and
P(a|s) is proportional to exp(g / tau); staying is one more choice with g = 0. The chain is memoryless. At a
fixed tau > 0 every edge and every self-loop has positive probability and every edge has its inverse, so on a
connected graph the chain is irreducible and aperiodic; the walk cools tau geometrically.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .graph import Graph
from .region import NOWHERE, Region


@dataclass(frozen=True)
class Schedule:
    """How many chains take how many steps each, and how tau falls (geometrically, from `hot` to `cold`).

    Every `restart` steps the chains whose own best is worst move to the best point of a better chain.
    """

    chains: int
    steps: int
    hot: float
    cold: float
    restart: int

    def inverse_taus(self) -> NDArray[np.float32]:
        """1 / tau for each step (steps,)."""
        fraction = np.arange(self.steps) / max(self.steps - 1, 1)
        return (1 / (self.hot * (self.cold / self.hot) ** fraction)).astype(np.float32)


def schedule(budget: int | None, actions: int, chains: int = 64, steps: int = 250) -> Schedule:
    """The schedule for at most `budget` distinct evaluations in a graph with `actions` moves per Program.

    A budget too small to let `chains` chains descend and wander makes them fewer and colder: a visited
    Program costs about half its moves in new evaluations, and a descent visits about twenty Programs.
    """
    visits = np.inf if budget is None else budget / max(0.5 * actions, 1)
    affordable = int(min(max(visits / 20, 2), chains))
    plenty = min(visits / (chains * 20), 1.0)
    return Schedule(chains=min(affordable, chains), steps=steps, hot=0.05 + 0.15 * plenty, cold=0.005, restart=50)


def probabilities(log_phi: NDArray[np.float32], inverse_tau: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unnormalised P(a|s) (n, 1 + a) for rows of ln Phi whose column 0 is s itself; absent edges are inf.

    The most likely choice of each row has weight one, so nothing overflows and no row is all zero.
    """
    gain = (log_phi.min(axis=1, keepdims=True) - log_phi) * inverse_tau[:, None]
    return np.exp(gain, out=gain)


def choose(weights: NDArray[np.float32], uniform: NDArray[np.float32]) -> NDArray[np.int64]:
    """One column per row (n,), drawn in proportion to its weight, from uniform numbers (n,) in [0, 1)."""
    total = np.cumsum(weights, axis=1)
    return np.argmax(total > (uniform * total[:, -1])[:, None], axis=1)


def transition_matrix(graph: Graph, codes: NDArray[np.int64], tau: float) -> NDArray[np.float64]:
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
    log_phi = np.log(graph.space.potential(graph.space.complete(points)))
    matrix = np.eye(codes.size)
    np.add.at(matrix, (row, column), np.exp((log_phi[row] - log_phi[column]) / tau))
    return matrix / matrix.sum(axis=1, keepdims=True)


class Chains:
    """Chains over one region. A chain that stands on a point with known edges steps at once; those that stand
    on new ground wait until half of the chains do, so that edges are found for many points in one call."""

    def __init__(self, region: Region, start: NDArray[np.int32], plan: Schedule, rng: np.random.Generator):
        """`start` (chains,): the ids they start from."""
        self.region = region
        self.at = start.astype(np.int32)
        self.best = self.at.copy()
        self.plan = plan
        self.rng = rng
        self.taken = np.zeros(start.size, np.int64)
        self._inverse_tau = plan.inverse_taus()
        self.started = np.unique(start)

    def run(self) -> int:
        """Take every chain's steps, or stop where the budget ends; returns the steps taken in all."""
        region, steps = self.region, self.plan.steps
        region.parent[self.started] = NOWHERE
        while not region.exhausted:
            moving = np.flatnonzero(self.taken < steps)
            if not moving.size:
                break
            known = region.row[self.at[moving]] >= 0
            waiting = moving.size - np.count_nonzero(known)
            if 2 * waiting > moving.size or waiting == moving.size:
                region.expand(np.unique(self.at[moving[~known]]))
                continue
            self._step(moving[known] if waiting else moving)
        return int(self.taken.sum())

    def _step(self, chains: NDArray[np.int64]) -> None:
        """One step of each of these chains, whose edges are known."""
        region = self.region
        here = self.at[chains]
        edges = region.edges[region.row[here]]
        log_phi = region.log_phi[edges]
        weights = probabilities(log_phi, self._inverse_tau[self.taken[chains]])
        column = choose(weights, self.rng.random(chains.size, dtype=np.float32))
        rows = np.arange(chains.size)
        target = edges[rows, column]
        self.at[chains] = target
        first = region.parent[target] < 0
        if first.any():
            region.parent[target[first]] = here[first]
        better = log_phi[rows, column] < region.log_phi[self.best[chains]]
        self.best[chains[better]] = target[better]
        self.taken[chains] += 1
        due = chains[self.taken[chains] % self.plan.restart == 0]
        if due.size:
            self._restart(due)

    def _restart(self, due: NDArray[np.int64]) -> None:
        """Move those of the `due` chains that are in the worse half to bests of the better quarter."""
        value = self.region.log_phi[self.best]
        order = np.argsort(value, kind="stable")
        elite = order[: max(order.size // 4, 1)]
        worse = due[value[due] > value[order[order.size // 2]]]
        if worse.size:
            picked = elite[self.rng.integers(elite.size, size=worse.size)]
            self.at[worse] = self.best[picked]
