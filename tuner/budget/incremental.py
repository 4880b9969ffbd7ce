"""One class under a budget: kernels are added one at a time, in order of predicted savings for the model.

After each step, every available kernel is verified and serves all workloads of the class that it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.build.resources import disassemble_many
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.cover import SPILL_FREE, WITHIN, preferring
from gensor_tuner.build.pool import Candidate, Pool
from gensor_tuner.run.class_run import Chosen, ClassRun
from gensor_tuner.search.trace import Trail
from gensor_tuner.strategies.request import Found
from gensor_tuner.tasks.local import PARALLEL_FROM
from gensor_tuner.verify.verify import Verdict

#: A workload without a kernel counts as this multiple of its best known time.
UNSERVED = 10.0
#: Number of calls assumed for a workload that is never called.
TINY = 1e-9
#: A kernel is executed if it saves at least this share of the best candidate's predicted savings.
ENOUGH = 0.5


class Held(NamedTuple):
    """A verified kernel of an earlier run, and the actions that led to its Program."""

    program: Program
    constants: str
    binary: Binary
    verdicts: tuple[Verdict, ...]
    trail: Trail


@dataclass
class IncrementalRun(ClassRun):
    """A class that gains kernels step by step, from the results of search `founds` and the `held` kernels."""

    founds: Mapping[int, Found] = field(default_factory=dict)
    calls: np.ndarray = field(default_factory=lambda: np.empty(0))
    evaluations: int = 0
    held: Sequence[Held] = ()

    def __post_init__(self) -> None:
        self.calls = np.maximum(self.calls, TINY)
        self.pool = Pool(self.workloads)
        self._gather(self.pool, self.founds)
        #: names of verified candidates
        self.usable: list[str] = []
        #: verified since the last commit: kernel, binary, workload, verdicts
        self.fresh: list[tuple[Candidate, Binary, Workload, tuple[Verdict, ...]]] = []
        self._hold()
        self._measured: np.ndarray | None = None
        walked = self.founds if self.options.graph == "full" else ()
        self._unwalked = sorted(walked, key=lambda row: -self.calls[row] * self.founds[row].best[0][1])
        self._look()

    def _hold(self) -> None:
        """Begin with the kernels that earlier runs have stored, so that this run's time is spent on others."""
        cubins = [(each.binary.cubin, each.binary.target) for each in self.held]
        disassemble_many(cubins, self.options.jobs)  # together: each is remembered
        for each in self.held:
            space = next((space for space in self.spaces if each.trail.family in space.names), None)
            if space is not None and each.program not in self.trails:
                self.trails.add(each.program, each.trail)
                self.pool.add(space, [each.program], siblings=False)
        kernels = {(each.program, each.constants): each for each in self.held}
        for found in self.pool.candidates:
            kernel = kernels.get((found.program, found.constants))
            if kernel is not None and self.binaries.hold(self.pool, found, kernel.binary, self.spaces):
                self.judge.verdicts[found.name] = kernel.verdicts
                self.usable.append(found.name)
        self._most = self.options.top + len(self.usable)

    def _look(self) -> None:
        """Predict the seconds of each workload with each candidate, and with the available kernels."""
        self._seconds = seconds = self.pool.seconds(self.spaces)
        preferred = preferring(seconds, *self._preferences(self.pool))
        costs = np.where(np.isfinite(preferred), preferred, seconds * SPILL_FREE)
        if self._measured is not None:
            known = np.isfinite(self._measured).any(axis=1, keepdims=True)
            costs = np.where(known, self._measured, costs)
        best = costs.min(axis=1, initial=np.inf)
        self._costs, self._best = costs, np.where(np.isfinite(best), best, 0.0)
        self._now = np.minimum(costs[:, self._columns()].min(axis=1, initial=np.inf), UNSERVED * self._best)
        self.promise = float(self._gains(self._now).max(initial=0.0))

    def _columns(self) -> list[int]:
        return [column for column, each in enumerate(self.pool.candidates) if each.name in self.usable]

    def _gains(self, now: np.ndarray) -> np.ndarray:
        """Return the seconds of the model that each candidate saves (candidates,); `now`: seconds (workloads,)."""
        full = len(self.usable) >= self._most  # a further kernel is for rows that have none
        weights = self.calls * (now >= UNSERVED * self._best if full else now > WITHIN * self._best)
        return weights @ np.maximum(now[:, None] - self._costs, 0.0)

    def _picks(self, able: np.ndarray, least: float = 0.0) -> list[int]:
        """Pick greedily one candidate per job from the mask `able` (candidates,), each saving more than `least` s."""
        chosen: list[int] = []
        now = self._now
        while len(chosen) < self.options.jobs:
            gains = np.where(able, self._gains(now), 0.0)
            column = int(np.argmax(gains)) if len(gains) else 0
            if not len(gains) or gains[column] <= least:
                break
            chosen.append(column)
            now = np.minimum(now, self._costs[:, column])
        return chosen

    def _serving(self) -> dict[int, int]:
        columns = self._columns()
        found = {row: min(columns, key=costs.__getitem__, default=-1) for row, costs in enumerate(self._costs)}
        return {row: column for row, column in found.items() if column >= 0 and np.isfinite(self._costs[row, column])}

    @property
    def seconds_now(self) -> float:
        """Predicted seconds of all calls of workloads that have a kernel."""
        return float(sum(self.calls[row] * self._seconds[row, column] for row, column in self._serving().items()))

    @property
    def served(self) -> int:
        """Number of workloads that have a kernel."""
        return len(self._serving())

    @property
    def finished(self) -> bool:
        """Whether every workload is as fast as any known candidate and every second walk was taken."""
        return not self.promise and not self._unwalked

    def step(self) -> None:
        """Compile and verify one more kernel per job; where no candidate promises anything, walk again."""
        if not self.promise:
            return self._walk_on()
        picks = self._picks(np.ones(len(self.pool.candidates), bool))
        self._compile(self.pool, [c for c in picks if self.pool.candidates[c] not in self.binaries])
        self._look()
        if self._measured is None and self.tournament is not None:
            with self._time("measure"):
                self._measured, _ = self.tournament.measured(self.pool)
            self._look()
        compiled = self.binaries.among(self.pool)
        self._execute(self._picks(compiled, ENOUGH * self.promise if self.usable else 0.0))
        self._look()

    def _execute(self, columns: Sequence[int]) -> None:
        """Verify candidates, each on the workload that gains most from it."""
        saved = self.calls[:, None] * (self._now[:, None] - self._costs)
        rows = {column: int(np.argmax(saved[:, column])) for column in columns}
        self._verify(self.pool, [(column, self.workloads[row]) for column, row in rows.items()])
        for column, row in rows.items():
            each = self.pool.candidates[column]
            if self._skips() or self.judge.passed(each.name):
                self.usable.append(each.name)
                verdicts = () if self._skips() else self.judge.verdicts[each.name]
                self.fresh.append((each, self.binaries[each], self.workloads[row], verdicts))
            else:
                self._refuse(self.pool, each, self.workloads[row])

    def _walk_on(self) -> None:
        """Walk again, with compiler feedback, for the next few workloads in descending order of total time."""
        count = 1 if self.executor.jobs == 1 else max(self.executor.jobs, PARALLEL_FROM)
        rows, self._unwalked = self._unwalked[:count], self._unwalked[count:]
        asked = [self._again(self.workloads[row], self.founds[row]) for row in rows]
        found = self._walk([replace(each, evaluations=self.evaluations) for each in asked])
        self._gather(self.pool, dict(zip(rows, found, strict=True)))
        self._measured = None  # the columns of candidates have changed
        self._look()

    def chosen(self) -> Iterator[Chosen]:
        """Yield the best verified kernel of each workload that has one, and workloads that no Program can serve."""
        serving = self._serving()
        for row in range(len(self.workloads)):
            if row in serving:
                column = serving[row]
                found = self._choice(row, self.pool.candidates[column], self._seconds[row, column], self.pool)
                yield replace(found, settled=bool(self._costs[row, column] <= WITHIN * self._best[row]))
            elif row in self.founds and not np.isfinite(self._seconds[row]).any():  # others may not be searched yet
                yield self._choice(row, None, np.inf, self.pool)
