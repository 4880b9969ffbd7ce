"""Tournament of a class's candidates on a device: the times of each round choose the entrants of the next.

A Gaussian process over the terms of Programs updates the predictions after each batch. Boosted trees learn nothing from
eight times, and tuning takes a few dozen at most; for so few a Gaussian process is an exact closed formula that NumPy
evaluates in microseconds, and its doubt says which Program is worth the next measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.families.space import Space
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.binaries import Binaries
from gensor_tuner.build.cover import assign
from gensor_tuner.build.pool import Candidate, Pool
from gensor_tuner.verify.verify import Verdict

from .board import RemoteTimer
from .timer import Timed, Timer

BATCH = 16  # candidates timed together
QUIET, GAIN = 2, 0.01  # stop after QUIET consecutive rounds that gain less than the share GAIN
TIE_BAND = 1.01  # times within 1 % are equal


class Rounds:
    """The times of n candidates, corrected to the clock of the first round: the leader is timed again in each round."""

    def __init__(self, count: int):
        self.seconds = np.full(count, np.inf)  # measured; inf before a measurement
        self._quiet = 0

    def grow(self, count: int) -> None:
        """Let further candidates follow those that there are."""
        self.seconds = np.append(self.seconds, np.full(count, np.inf))

    def next(self, predicted: np.ndarray, features: np.ndarray, able: np.ndarray) -> list[int]:
        """Return the candidates of the next round, the leader first; empty when enough is known.

        `predicted` seconds (n,) and `features` (features, n) may change between rounds. Candidates in the mask `able`
        are chosen by prediction minus doubt.
        """
        able = able & np.isfinite(predicted)
        waiting = np.flatnonzero(able & ~np.isfinite(self.seconds))
        if not len(waiting) or self._quiet >= QUIET:
            return []
        judged = np.flatnonzero(able)
        known = np.flatnonzero(np.isfinite(self.seconds[judged]))
        ratios = np.log(self.seconds[judged[known]] / predicted[judged[known]])
        mean, doubt = Posterior(features[:, judged])(known, ratios)
        score = np.full(len(able), np.inf)
        score[judged] = np.log(predicted[judged]) + mean - doubt
        order = waiting[np.argsort(score[waiting], kind="stable")]
        leader = self.leader
        return [*([] if leader is None else [leader]), *order[:BATCH].tolist()]

    def fail(self, columns: Sequence[int]) -> None:
        """Forget the times of candidates that failed, a leader that was timed again among them."""
        self.seconds[[*columns]] = np.inf

    @property
    def leader(self) -> int | None:
        """The fastest candidate so far."""
        return int(np.argmin(self.seconds)) if np.isfinite(self.seconds).any() else None

    def add(self, columns: list[int], seconds: np.ndarray) -> float:
        """Record the times of a round, whose first column may be the leader; return the correction for clock drift."""
        leader, before = self.leader, self.seconds.min()
        drift = 1.0
        if leader is not None and columns[0] == leader:
            drift = float(self.seconds[leader] / seconds[0])
            columns, seconds = columns[1:], seconds[1:]
        self.seconds[columns] = seconds * drift
        gained = not np.isfinite(before) or self.seconds.min() < before * (1 - GAIN)
        self._quiet = 0 if gained else self._quiet + 1
        return drift


#: Standard deviation of ln(measured / predicted) before any measurement: 0.11 and 0.15 on the measured spaces.
DEVIATION = 0.15
#: Shares of the prior variance: common to all Programs of the Workload, common to similar Programs, and independent.
COMMON, ALIKE, OWN = 0.4, 0.3, 0.3
#: Length scale of similarity, in standard deviations of each feature.
LENGTH = 2.0
#: Weight of the prior variance, in measurements, when it is corrected by measurements.
PRIOR_WEIGHT = 8.0
#: Standard deviation of ln(time) between repeated measurements of one kernel.
NOISE = 0.01


class Posterior:
    """Posterior of ln(measured / predicted) for n Programs with features ``x`` (features, n)."""

    def __init__(self, x: np.ndarray):
        self._scaled = _standardised(x)
        self._square = np.square(self._scaled).sum(axis=0)

    def _prior(self, known: np.ndarray) -> np.ndarray:
        """Return the prior covariances (n, k) with the Programs at the places ``known`` (k,)."""
        scaled, square = self._scaled, self._square
        distance = square[:, None] + square[known] - 2 * scaled.T @ scaled[:, known]
        alike = COMMON + ALIKE * np.exp(-0.5 * np.maximum(distance, 0) / max(len(scaled), 1) / LENGTH**2)
        alike[known, np.arange(len(known))] += OWN
        return alike * DEVIATION**2

    def __call__(self, known: np.ndarray, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (mean (n,), standard deviation (n,)), given ``ratios`` (k,) at the places ``known`` (k,)."""
        variance = np.full(self._scaled.shape[1], (COMMON + ALIKE + OWN) * DEVIATION**2)
        if not len(known):
            return np.zeros(len(variance)), np.sqrt(variance)
        cross = self._prior(known)
        solved = np.linalg.solve(cross[known] + NOISE**2 * np.eye(len(known)), np.eye(len(known)))
        # The potential's error differs between Workloads.
        spread = (ratios @ solved @ ratios + PRIOR_WEIGHT) / (len(known) + PRIOR_WEIGHT)
        variance -= np.einsum("ij,ij->i", cross @ solved, cross)
        return cross @ (solved @ ratios), np.sqrt(np.maximum(spread * variance, 0))


def _standardised(x: np.ndarray) -> np.ndarray:
    """Return logarithms of the features that vary, scaled to mean 0 and deviation 1, outliers clipped."""
    logs = np.log(np.maximum(x.astype(np.float64), 1e-6))
    logs -= logs.mean(axis=1, keepdims=True)
    deviation = logs.std(axis=1, keepdims=True)
    differ = deviation[:, 0] > 1e-9
    return np.clip(logs[differ] / deviation[differ], -3, 3)


Entrant = tuple[Candidate, Binary, Timed]


#: Returns the verdict by which a database rejects a kernel; such a kernel is not run.
Recorded = Callable[[Candidate, Binary, Workload], Verdict | None]
#: Called with each kernel before it runs, and with None when the device has returned from all.
Trying = Callable[[Candidate | None, Binary | None, Workload], None]


class Calls(NamedTuple):
    """The functions that a tournament calls."""

    recorded: Recorded
    trying: Trying
    progress: Callable[[str, int], None]
    #: returns True once no further workload may begin
    late: Callable[[], bool] = lambda: False
    #: called with a candidate that failed on the device, the reason, and the workload
    failed: Callable[[Candidate, str, Workload], None] = lambda *_: None


@dataclass
class Contest:
    """The times of one workload's kernels and of the vendor's call, the conditions, and why it `stopped` early."""

    timed: list[Entrant] = field(default_factory=list)
    vendor: Timed | None = None
    conditions: str = ""
    stopped: str = ""


class Tournament:
    """Times the candidates of a class on the workloads of `spaces`; compiles at most `most` further candidates."""

    def __init__(
        self, spaces: Sequence[Space], binaries: Binaries, timer: Timer | RemoteTimer, most: int, calls: Calls
    ):
        self.spaces, self.binaries, self.timer, self.most, self.calls = spaces, binaries, timer, most, calls
        self.contests = [Contest() for _ in spaces]

    @property
    def stopped(self) -> list[int]:
        """The numbers of the workloads whose contests stopped."""
        return [row for row, contest in enumerate(self.contests) if contest.stopped]

    def measured(self, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """Return (seconds (workloads, candidates), inf where not timed; each workload's fastest column)."""
        measured = np.full((len(self.spaces), len(pool.candidates)), np.inf)
        for row, space in enumerate(self.spaces):
            if self.calls.late():
                break
            measured[row] = self._workload(row, space, pool)
            self.calls.progress("measure", 1)
        # Times inside the tie band are equal to the row's best, so that names decide.
        best = measured.min(axis=1, keepdims=True)
        banded = np.where(measured <= best * TIE_BAND, best, measured)
        return measured, assign(banded, range(len(pool.candidates)), pool.names)

    def _workload(self, row: int, space: Space, pool: Pool) -> np.ndarray:
        """Run rounds until they gain nothing: compiled candidates first, then candidates made promising by times."""
        rounds, out = Rounds(len(pool.candidates)), np.zeros(len(pool.candidates), bool)
        contest = self.contests[row] = Contest()
        while not contest.stopped:
            more = contest.timed and self.most > 0
            able = np.ones(len(out), bool) if more else self.binaries.among(pool)  # possible entrants
            if not (columns := rounds.next(*pool.described(space), ~out & able)):
                break
            entrants = [c for c in self._compile(columns, pool) if self._runs(pool.candidates[c], space.workload, pool)]
            out[[column for column in columns if column not in entrants]] = True
            if entrants not in ([], [rounds.leader]):
                lost = self._round(contest, rounds, entrants, space.workload, pool)
                out[lost] = True
                rounds.fail(lost)
        return np.where(pool.alive, rounds.seconds, np.inf)

    def _compile(self, columns: Sequence[int], pool: Pool) -> list[int]:
        """Return the compiled candidates of a round, after compiling as many as the limit allows."""
        new = [column for column in columns if pool.candidates[column] not in self.binaries][: self.most]
        self.most -= self.binaries.compile(pool, new, self.spaces)
        return [column for column in columns if pool.candidates[column] in self.binaries]

    def _runs(self, each: Candidate, workload: Workload, pool: Pool) -> bool:
        """Whether a candidate can be timed.

        Candidates that do not compile or load become dead. A kernel that the store rejects is not run: it may have
        crashed a process.
        """
        if each.name in pool.dead or self.calls.recorded(each, self.binaries[each], workload) is not None:
            return False
        objection = self.timer.objection(each, self.binaries.code(each), workload)
        if objection:
            pool.dead[each.name] = f"not loaded: {objection}"
        return not objection

    def _round(self, contest: Contest, rounds: Rounds, columns: list[int], workload: Workload, pool: Pool) -> list[int]:
        """Time the candidates of a round; return the columns that have no time, because the device lost them."""
        chosen = [pool.candidates[column] for column in columns]

        def before(index: int) -> None:
            each = chosen[index] if index < len(chosen) else None
            self.calls.trying(each, self.binaries[each] if each is not None else None, workload)

        kernels = [(each, self.binaries.code(each)) for each in chosen]
        times = self.timer.times(workload, kernels, vendor=not contest.timed, before=before)
        if times.lost:
            contest.stopped = times.lost
            return columns
        contest.conditions = contest.conditions or times.conditions
        if contest.conditions != times.conditions:
            # Another driver or power mode, of another board of the part say, may order kernels otherwise.
            contest.stopped = f"the conditions {times.conditions} are not those of earlier times"
            return columns
        for index, (each, reason) in enumerate(zip(chosen, times.why, strict=True)):
            if reason:
                pool.dead[each.name] = reason
            if index in times.failed:
                self.calls.failed(each, reason, workload)
        kept = [(c, each, t) for c, each, t in zip(columns, chosen, times.timed, strict=True) if t is not None]
        if kept:
            again = rounds.leader == kept[0][0]
            drift = rounds.add([c for c, _, _ in kept], np.array([t.median_us * 1e-6 for _, _, t in kept]))
            found = [(each, self.binaries[each], t.scaled(drift)) for _, each, t in kept]
            contest.timed += found[again:]
            contest.vendor = contest.vendor or times.vendor
        return [column for column in columns if column not in {c for c, _, _ in kept}]
