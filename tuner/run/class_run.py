"""One class of Workloads, up to verified kernels: walk, compile, feed back, walk again, cover, verify.

This module neither prints nor writes to the database; `tune` stores the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.build import resources
from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.devices.device import Code
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.binaries import Binaries, Compile, inspect_binaries
from gensor_tuner.build.cover import CLEAN, PLAIN, SPILL_FREE, WITHIN, assign, limit_cover, preferring
from gensor_tuner.build.pool import Candidate, Pool, finalists
from gensor_tuner.measure.board import RemoteTimer, RemoteVerifier
from gensor_tuner.measure.timer import Timed, Timer
from gensor_tuner.measure.tournament import Calls, Contest, Recorded, Tournament, Trying
from gensor_tuner.search.trace import Trail, Trails
from gensor_tuner.strategies.request import Found, Request
from gensor_tuner.tasks.task import Executor
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.verify import Execute, Verdict

from .progress import Progress

Refusal = tuple[Candidate, Binary, Workload, Verdict]  # a picked kernel that failed verification
ROUNDS = 4  # of compiling and choosing, before the cover is limited to compiled candidates


@dataclass(frozen=True)
class Options:
    """Options of a run, with the defaults of the command line.

    `top` finalists are compiled (and, with a GPU, timed) per class; a class's cover has at most as many kernels, unless
    a row would have none. `graph` is "full", or "paper" for the actions of the Gensor paper. `verify` says where
    kernels are executed before use: "emulator", "device" (on the emulator first) or "none". `strategy` is a name in
    `gensor_tuner.strategies.STRATEGIES`. With `background`, another program uses the same GPU meanwhile, so times must
    not decide between kernels.
    """

    top: int = 16
    seed: int = 0
    jobs: int = 1
    graph: str = "full"
    verify: str = "emulator"
    strategy: str = "walk"
    background: bool = False


@dataclass(frozen=True)
class Chosen:
    """The kernel chosen for one Workload, its predicted seconds, and the results of compiler and verifier."""

    workload: Workload
    candidate: Candidate | None
    predicted: float
    binary: Binary | None
    verdicts: tuple[Verdict, ...]
    trail: Trail | None
    error: str | None = None
    timings: tuple[tuple[Candidate, Binary, Timed], ...] = ()
    vendor: Timed | None = None
    conditions: str = "{}"  # Device.conditions while the timings were taken
    #: False where a known candidate promises more, so that the next run continues with this workload
    settled: bool = True


@dataclass
class ClassRun:
    """The state of one class while it is tuned."""

    arch: Arch
    workloads: Sequence[Workload]
    options: Options
    executor: Executor
    progress: Progress = field(default_factory=Progress)
    timer: Timer | RemoteTimer | None = None
    verifier: DeviceVerifier | RemoteVerifier | None = None
    recorded: Recorded = lambda *_: None
    trying: Trying = lambda *_: None
    seconds: dict[str, float] = field(default_factory=dict)
    trails: Trails = field(default_factory=Trails)
    refused: list[Refusal] = field(default_factory=list)
    #: spaces of the workloads, where the caller has built them already
    laid: Sequence[Space] = ()
    #: returns True once timing should stop
    late: Callable[[], bool] = lambda: False
    #: walk each workload a second time, from its elites and the compiled finalists
    again: bool = True
    #: choose kernels for a portfolio, whose launches may divide k in other ways than they were tuned with
    relaunched: bool = False
    #: why a workload's walk could not be finished, by its number
    unwalked: dict[int, str] = field(default_factory=dict)

    def run(self) -> Iterator[Chosen]:
        """Yield the kernel of every workload as soon as it is verified."""
        if not self._skips():
            self.executor.prepare()
        founds = self._walk(self.first_requests)
        pool = Pool(self.workloads)
        self._gather(pool, dict(enumerate(founds)))
        self._compile(pool, finalists(pool, self._predict(pool), self.options.top))
        if self.again and self.options.graph != "paper":
            requests = [self._again(*each) for each in zip(self.workloads, founds, strict=True)]
            self._gather(pool, dict(enumerate(self._walk(requests))))
        seconds, picks = self._choose(pool)
        predicted = seconds
        if self.tournament is not None:
            with self._time("measure"):
                times, fastest = self.tournament.measured(pool)
            seconds, picks = self._complete_times(pool, self.tournament.stopped, (seconds, picks), (times, fastest))
        yield from self._verified(pool, predicted, seconds, picks)

    @cached_property
    def spaces(self) -> list[Space]:
        """The space of each workload, updated with compiler feedback as binaries are built."""
        return list(self.laid) or [Space(workload, self.arch) for workload in self.workloads]

    def _gather(self, pool: Pool, founds: Mapping[int, Found]) -> None:
        """Add Programs found by walks to the pool; `founds` maps the number of a workload to its walk's result."""
        # In order of keys: a kernel that several walks found has the same trail whatever the order of rows.
        for row in sorted(founds, key=lambda row: self.workloads[row].key()):
            if founds[row].lost:
                self.unwalked[row] = founds[row].lost
            programs = [program for program, _ in founds[row].best]
            pool.add(self.spaces[row], programs, siblings=self.options.graph == "full")
            for program, trail in zip(programs, founds[row].trails, strict=True):
                self.trails.add(program, trail)

    def _walk(self, requests: Sequence[Request]) -> list[Found]:
        with self._time("walk", len(requests)):
            return self.executor.map(requests, lambda *_: self.progress("walk", 1))

    @property
    def first_requests(self) -> list[Request]:
        """The first walk of every workload."""
        return [self._request(each) for each in self.workloads]

    def _request(self, workload: Workload) -> Request:
        options = self.options
        return Request(workload, self.arch, options.seed, options.graph, strategy=options.strategy)

    def _again(self, workload: Workload, found: Found) -> Request:
        """Return a second walk, from the elites and compiled finalists, with the compiler's feedback."""
        feedback = tuple(self.binaries.facts.values())
        start = dict.fromkeys([*(program for program, _ in found.best[:4]), *(facts.program for facts in feedback)])
        return replace(self._request(workload), seed=self.options.seed + 1, feedback=feedback, start=tuple(start))

    @cached_property
    def binaries(self) -> Binaries:
        """The binaries compiled so far."""
        return Binaries(self.arch, self.executor, self.progress)

    def _compile(self, pool: Pool, columns: Sequence[int]) -> int:
        new = {pool.candidates[column].name for column in columns if pool.candidates[column] not in self.binaries}
        with self._time("compile", len(new)):
            return self.binaries.compile(pool, columns, self.spaces)

    def _predict(self, pool: Pool) -> np.ndarray:
        return pool.relaunch_seconds(self.spaces) if self.relaunched else pool.seconds(self.spaces)

    def _choose(self, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """Cover the workloads and compile the chosen candidates, until compiling no longer changes the choice.

        Estimates must exceed compiled candidates by the potential's error; of equally fast ones the leanest is taken.
        """
        for attempt in range(ROUNDS + 1):
            seconds, compiled = self._predict(pool), self.binaries.among(pool)
            if attempt == ROUNDS:
                seconds[:, ~compiled] = np.inf
            preferred = preferring(seconds, *self._preferences(pool), (compiled, WITHIN))
            issued = pool.issued(self.spaces, compiled)
            picks = assign(preferred, limit_cover(preferred, pool.names, self.options.top, issued), pool.names)
            if not self._compile(pool, sorted({int(column) for column in picks if column >= 0})):
                break
        return seconds, picks

    def _preferences(self, pool: Pool) -> tuple[tuple[np.ndarray, float], ...]:
        """Return masks of preferred candidates, each with the slowdown it may cost; see `cover`."""
        return (~self.binaries.spilling(pool), SPILL_FREE), (pool.wide, CLEAN), (pool.plain, PLAIN)

    @cached_property
    def tournament(self) -> Tournament | None:
        """The tournament that times candidates, or None without a device."""
        if self.timer is None:
            return None
        most = 0 if self.timer.emulated else self.options.top  # times on the emulator carry no information
        timer = self.timer.on(self.executor)
        calls = Calls(self.recorded, self.trying, self.progress, self.late, self._failure)
        return Tournament(self.spaces, self.binaries, timer, most, calls)

    def _complete_times(
        self,
        pool: Pool,
        stopped: Iterable[int],
        predicted: tuple[np.ndarray, np.ndarray],
        measured: tuple[np.ndarray, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return measured seconds and picks; predictions for a workload whose kernels could not be timed."""
        seconds, picks = (each.copy() for each in measured)
        for row in stopped:
            if not np.isfinite(seconds[row]).any():
                seconds[row] = np.where(pool.alive, predicted[0][row], np.inf)
                picks[row] = predicted[1][row]
                if picks[row] < 0 or not pool.alive[picks[row]]:
                    picks[row] = _fastest(np.where(self.binaries.among(pool), seconds[row], np.inf))
        return seconds, picks

    def _failure(self, each: Candidate, reason: str, workload: Workload) -> None:
        """Remember a candidate that failed on the device: no database counts it as usable again."""
        verdict = Verdict("failed", reason, method="device", part=self.arch.part)
        self.refused.append((each, self.binaries[each], workload, verdict))

    def _verified(self, pool: Pool, predicted: np.ndarray, seconds: np.ndarray, picks: np.ndarray) -> Iterator[Chosen]:
        """Verify the picks; where a kernel fails, the workload's next best compiled candidate is tried."""
        todo = list(range(len(self.workloads)))
        seconds = np.where(self.binaries.among(pool), seconds, np.inf)
        while todo:
            self._verify(pool, [(int(picks[row]), self.workloads[row]) for row in todo if picks[row] >= 0])
            again = []
            for row in todo:
                column = int(picks[row])
                each = pool.candidates[column] if column >= 0 else None
                if each is None or self._skips() or self.judge.passed(each.name):
                    yield self._choice(row, each, predicted[row, column], pool)
                else:
                    seconds[row, column] = np.inf
                    picks[row] = _fastest(seconds[row])
                    self._refuse(pool, each, self.workloads[row])
                    again.append(row)
            todo = again

    def _refuse(self, pool: Pool, each: Candidate, workload: Workload) -> None:
        verdict = self.judge.verdicts[each.name][-1]
        if each.name not in pool.dead:
            pool.dead[each.name] = f"{verdict.outcome}: {verdict.detail}"
            self.refused.append((each, self.binaries[each], workload, verdict))

    def _skips(self) -> bool:
        return self.options.verify == "none"

    @cached_property
    def judge(self) -> Judge:
        """Runs the verification of picked candidates."""
        return Judge(self.executor, self.verifier, self.recorded, self.progress)

    def _verify(self, pool: Pool, pairs: Sequence[tuple[int, Workload]]) -> None:
        if self._skips():
            return
        picks: dict[str, Pick] = {}
        for column, workload in pairs:
            each = pool.candidates[column]
            picks.setdefault(each.name, (each, self.binaries[each], self.binaries.code(each), workload))
        with self._time("verify", sum(name not in self.judge.verdicts for name in picks)):
            self.judge.judge(picks)

    def _choice(self, row: int, each: Candidate | None, seconds: float, pool: Pool) -> Chosen:
        workload = self.workloads[row]
        # A task that no machine could finish may have led elsewhere: the next run takes this class up again.
        settled = not self.executor.lost
        if each is None or row in self.unwalked:
            reasons = sorted(set(pool.dead.values())) or ["no program of any family is legal here"]
            error = self.unwalked.get(row, "; ".join(reasons[:3]))
            return Chosen(workload, None, np.inf, None, (), None, error, settled=settled)
        contest = self.tournament.contests[row] if self.tournament is not None else Contest()
        trail = self._trail(pool, each.program, row)
        verdicts = () if self._skips() else self.judge.verdicts[each.name]
        times = tuple(contest.timed), contest.vendor, contest.conditions or "{}"
        return Chosen(workload, each, float(seconds), self.binaries[each], verdicts, trail, None, *times, settled)

    def _trail(self, pool: Pool, program: Program, row: int) -> Trail:
        """Return the actions that led to a Program, including the few that lead from a Program to its sibling."""
        origin = pool.origin[program]
        where = self.trails.end(origin)
        # A kernel of an earlier run may have been found for a workload that is not tuned now.
        space = self.spaces[self.workloads.index(where) if where in self.workloads else row]
        return self.trails.to(program, origin, space, self.options.seed)

    @contextmanager
    def _time(self, stage: str, steps: int = 0) -> Iterator[None]:
        self.progress.stage(stage, steps)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


def _fastest(seconds: np.ndarray) -> int:
    """Return the column of the least seconds (candidates,), -1 where all are infinite."""
    return int(np.argmin(seconds)) if np.isfinite(seconds).any() else -1


#: A candidate to execute: its binary, its code, and a workload of its class and epilogue.
Pick = tuple[Candidate, Binary, Code, Workload]


class Judge:
    """Verification of candidates: on the emulator, then on the device if requested; the last verdict counts."""

    def __init__(
        self,
        executor: Executor,
        verifier: DeviceVerifier | RemoteVerifier | None,
        recorded: Recorded,
        progress: Callable[[str, int], None],
    ):
        self.executor, self.verifier, self.recorded, self.progress = executor, verifier, recorded, progress
        self.verdicts: dict[str, tuple[Verdict, ...]] = {}

    def passed(self, name: str) -> bool:
        """Whether a candidate passed every execution."""
        found = self.verdicts.get(name, ())
        return bool(found) and found[-1].outcome == "ok"

    def judge(self, picks: Mapping[str, Pick]) -> None:
        """Execute the candidates that have no verdict yet."""
        for name, (each, binary, _, workload) in picks.items():
            if name not in self.verdicts and (known := self.recorded(each, binary, workload)) is not None:
                self.verdicts[name] = (known,)
        names = [name for name in picks if name not in self.verdicts]

        def executed(index: int, verdict: Verdict) -> None:
            name = names[index]
            each, _, code, workload = picks[name]
            if verdict.outcome == "ok" and self.executor.again is not None:
                verdict = self._repeat(self.executor.again, picks[name])
            self.verdicts[name] = (verdict,)
            if verdict.outcome == "ok" and self.verifier is not None:
                self.verdicts[name] = verdict, self.verifier.verify(each, code, workload)
            self.progress("verify", 1)

        self.executor.map([Execute(picks[name][0], picks[name][-1]) for name in names], executed)

    def _repeat(self, here: Executor, pick: Pick) -> Verdict:
        """Compile and execute again what another machine has made; its verdict says nothing where that differs."""
        each, binary, _, workload = pick
        resources.forget(binary.cubin, binary.target)  # what the other machine says of its machine code
        ((own, _),) = inspect_binaries(here.map([Compile(each.source(), binary.target)]), 1)
        if (own.cubin, own.entries, own.error) != (binary.cubin, binary.entries, binary.error):
            return Verdict("timeout", "a worker's binary is another than the one that is compiled here")
        (verdict,) = here.map([Execute(each, workload, anew=True)])
        return verdict
