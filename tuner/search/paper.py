"""Paper mode: a reconstruction of Gensor's own selection, as a baseline for ablation.

The paper's formulas are not public. Their known properties (actions tile, cache and add virtual threads; tiling weighs
memory traffic against footprint, caching weighs latency against bandwidth; probabilities are normalised benefits) are
expressed here by the simplest formulas that have them. Nothing here may be quoted as the authors' text.

    Tile, Untile   B = [Q(T) / Q(T')] [F(T) / F(T')]    Q traffic into the tile's level, F its footprint there
    Cache          B = (L_slow + D / W_slow) / (L_fast + D / W_fast)    latency, bandwidth; D bytes of one step
    VThread        B = conflicts before / conflicts after
    P(a|s) = B(a) / sum of B over legal actions; Cache's B grows with the steps spent at a level

Chains start from the minimal Program at memory level 0. Predicted times of all visited Programs are computed at the end
to choose among them; they do not steer the chains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import Arch

from .graph import Graph, Numbers, Points
from .markov import Chains, Schedule, choose
from .region import NOWHERE, Ids, Region, grown

SHARED_LATENCY = 30.0  # clocks of a shared-memory access, the same on all parts
SHARED_BYTES = 128.0  # bytes per clock and SM: 32 banks of 4
REGISTER_LATENCY = 4.0  # clocks from one dependent instruction to the next
REGISTER_BYTES = 1536.0  # bytes per clock and SM: 4 schedulers x 32 lanes x 3 operands x 4
PATIENCE = 16.0  # steps at a level until Cache counts with its full benefit


def paper_schedule(chains: int, steps: int) -> Schedule:
    """Return a schedule without temperature and restarts: one cycle, whose tau is not used."""
    return Schedule(chains, steps, hot=1.0, cycle=steps + 1)


class PaperRegion(Region):
    """Seen points with the benefits of their edges (rows parallel to `edges`) instead of potentials."""

    def __init__(self, graph: Graph, budget: int | None = None):
        super().__init__(graph, budget)
        self.benefit = np.zeros(self.edges.shape, np.float32)

    def expand(self, ids: Ids) -> None:
        """Find the neighbours of points and the benefits of moving there."""
        points = self.points(ids)
        edges = self.graph.edges(points)
        targets = np.full((ids.size, len(self.graph.moves)), NOWHERE, np.int32)
        targets[edges.row, edges.move], _ = self._intern(self.graph.encode(edges.target))
        rows = self._keep(ids, targets)
        self.benefit = grown(self.benefit, self.rows)
        self.benefit[rows] = 0
        self.benefit[rows[edges.row], 1 + edges.move] = benefits(self.graph, points[edges.row], edges.whole, edges.move)

    def settle(self) -> None:
        """Evaluate every visited complete point, as far as the budget allows."""
        visited = np.flatnonzero((self.parent[: len(self)] >= 0) & np.isnan(self.phi[: len(self)]))
        points = self.points(visited)
        complete = points[:, 0] == self.graph.top
        self._evaluate(visited[complete], points[complete])


class PaperChains(Chains):
    """Chains that follow the reconstructed benefits; memoryless except for the steps spent at a level."""

    def __init__(self, region: PaperRegion, starts: Ids, plan: Schedule, rng: np.random.Generator):
        super().__init__(region, starts, plan, rng)
        self.benefit = lambda: region.benefit
        self.spent = np.ones(plan.chains, np.float32)
        self.cache = 1 + int(region.graph.level_moves[0])

    def _draw(self, chains: Numbers, edges: Ids) -> Numbers:
        """Draw columns of `edges` in proportion to the benefits; column 0 (stay) where no action is legal."""
        weights = self.benefit()[self.region.row[self.at[chains]]]
        weights[:, self.cache] *= self.spent[chains] / PATIENCE
        weights[:, 0] = weights[:, 1:].max(axis=1) <= 0
        column = choose(weights, self.rng.random(chains.size, dtype=np.float32))
        self.spent[chains] = np.where(column == self.cache, 1, self.spent[chains] + 1)
        return column


def benefits(graph: Graph, source: Points, target: Points, move: Numbers) -> NDArray[np.float32]:
    """Return B of going from each source point to its target by this move, (n,) float32, positive."""
    before, after = _quantities(graph.space, source), _quantities(graph.space, target)
    ratio = {name: before[name] / after[name] for name in before}
    actions = np.array([graph.moves[i].action for i in range(len(graph.moves))])[move]
    outer = graph.move_level[move] == 0
    tile = np.where(outer, ratio["traffic"] * ratio["shared"], ratio["wavefronts"] * ratio["registers"])
    worth = np.where(actions == "VThread", ratio["conflicts"], tile)
    return np.where(actions == "Cache", _descent(graph.space.arch, before, source[:, 0]), worth).astype(np.float32)


def _quantities(space: FamilySpace, points: Points) -> dict[str, NDArray[np.float64]]:
    """Return per point: total bytes into and wavefronts out of shared memory, both footprints, bytes of one step."""
    terms = space.terms(points)
    names = ("blocks", "iterations", "l2_bytes", "wavefronts", "shared_bytes", "registers")
    wide = (np.broadcast_to(np.asarray(getattr(terms, name), np.float64), (len(points),)) for name in names)
    blocks, iterations, step, *sizes = wide
    conflicts, shared, registers = (np.maximum(each, 1) for each in sizes)
    steps = blocks * iterations
    found = {"traffic": steps * step, "wavefronts": steps * conflicts, "conflicts": conflicts}
    return found | {"shared": shared, "registers": registers, "step": step}


def _descent(arch: Arch, before: dict[str, NDArray[np.float64]], level: Numbers) -> NDArray[np.float64]:
    """Return B of Cache: the time of one step's bytes from the upper level over that from the level it opens."""
    dram = arch.dram_gb_s / arch.clock_ghz / arch.sms
    moved = before["step"]
    to_shared = (arch.dram_latency + moved / dram) / (SHARED_LATENCY + moved / SHARED_BYTES)
    read = before["conflicts"] * SHARED_BYTES
    to_registers = (SHARED_LATENCY + read / SHARED_BYTES) / (REGISTER_LATENCY + read / REGISTER_BYTES)
    return np.where(level == 0, to_shared, to_registers)
