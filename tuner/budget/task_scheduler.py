"""Search of a whole model: which workload gets the next slice of search.

The gradient is that of L. Zheng and others, Ansor, OSDI 2020, section 6.2. With g the best seconds of a task so far, w
its calls and t the slices it had, one more slice is predicted to save

    w (alpha (g(t - d) - g(t)) / d + (1 - alpha) min(max(g / t, g - beta C / V), g - bound))

The first term is the gain of the last d slices. The second is the hope: large at first and shrinking with every slice,
or reaching 1 / beta of the best rate V of a similar task with this task's C operations. Added to Ansor's formula: no
task is expected to get below its roofline bound, and hope fades with every consecutive slice without a gain.

Programs found for one workload are tried at once on the other workloads of its class: similar tasks inform each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.search.trace import Trails
from gensor_tuner.strategies.request import KEEP, Found, Request
from gensor_tuner.tasks.local import PARALLEL_FROM
from gensor_tuner.tasks.task import Executor

ALPHA, BETA, WINDOW = 0.2, 2.0, 3
#: Factor on hope after each consecutive slice that gained less than the share LITTLE of a task's seconds.
FADING, LITTLE = 0.5, 1e-3


@dataclass
class Task:
    """One workload: calls, roofline bound and operations of one, key of similar tasks, seconds after each slice."""

    calls: float
    bound: float
    flops: float
    group: Hashable
    best: list[float] = field(default_factory=list)

    @property
    def slices(self) -> int:
        """Number of slices so far."""
        return len(self.best) - 1

    @property
    def seconds(self) -> float:
        """Best known seconds of one call."""
        return self.best[-1]

    def learn(self, seconds: float) -> None:
        """Take in the seconds of a Program that another task's slice found; counts no slice for this task."""
        self.best[-1] = min(self.best[-1], seconds)

    def stale(self) -> int:
        """Return the number of latest consecutive slices that gained next to nothing."""
        count = 0
        for before, after in zip(self.best[-2::-1], self.best[:0:-1], strict=True):
            if before - after > LITTLE * before:
                break
            count += 1
        return count


def end_to_end(tasks: Sequence[Task]) -> float:
    """Return the seconds of the whole model with the best Program of each task."""
    return sum(task.calls * task.seconds for task in tasks)


def gains(tasks: Sequence[Task]) -> list[float]:
    """Return the predicted savings, in seconds of the whole model, of one more slice per task."""
    rate: dict[Hashable, float] = {}
    for task in tasks:
        rate[task.group] = max(rate.get(task.group, 0.0), task.flops / task.seconds)
    return [task.calls * _gain(task, rate[task.group]) for task in tasks]


def _gain(task: Task, rate: float) -> float:
    """Return the predicted savings of one more slice, in seconds of one call."""
    now = task.seconds
    window = min(WINDOW, task.slices)
    recent = (task.best[-1 - window] - now) / window if window else 0.0
    hope = max(now / max(task.slices, 1), now - BETA * task.flops / rate if rate else 0.0)
    hope = max(min(hope, now - task.bound), 0.0) * FADING ** task.stale()
    return ALPHA * recent + (1 - ALPHA) * hope


#: Evaluations of a slice; elites it may start from; Programs it shares with the other tasks of its class.
SLICE, ELITES, SHARED = 256, 4, 3
#: Every FRESH-th slice starts like an independent walk, not from known Programs.
FRESH = 4
#: Share of the model's time that a slice must be predicted to save to be worth taking.
WORTH = 1e-4


def predicted(space: Space, programs: Sequence[Program]) -> dict[Program, float]:
    """Return the seconds, on this space's workload, of the Programs that are legal there."""
    found: dict[Program, float] = {}
    for family in space.families:
        points: dict[Program, np.ndarray] = {}
        for program in programs:
            with suppress(ValueError):  # of another family, or with a value that this workload's lattice lacks
                points[program] = family.point(program)
        if not points:
            continue
        stacked = np.array(list(points.values()))
        legal = family.legal(stacked)
        able = [program for program, fine in zip(points, legal, strict=True) if fine]
        found |= zip(able, family.potential(stacked[legal]).tolist(), strict=True)
    return found


def starting(space: Space) -> dict[Program, float]:
    """Return the families' starters with their seconds: everything known before any search."""
    programs = [each for part in space.families for each in part.family.starters(space.workload, space.arch)]
    return predicted(space, programs)


def merged(founds: Sequence[Found]) -> Found:
    """Merge several walks of one workload into one result: the best Programs of all, with whole trails."""
    trails = Trails()
    seconds: dict[Program, float] = {}
    for found in founds:
        seconds |= dict(found.best)
        for (program, _), trail in zip(found.best, found.trails, strict=True):
            trails.add(program, trail)
    alike: dict[Hashable, Program] = {}
    for program in sorted(seconds, key=lambda each: seconds[each]):
        alike.setdefault(FAMILIES[program.family].main_loop(program), program)
    best = list(alike.values())[:KEEP]
    return Found(
        tuple((program, seconds[program]) for program in best),
        tuple(trails.of(program) for program in best),
        sum(found.evaluations for found in founds),
        sum(found.seconds for found in founds),
    )


@dataclass(frozen=True)
class Slice:
    """One slice of a task: its number, and Programs to start from."""

    task: int
    number: int
    start: tuple[Program, ...] = ()


class TaskScheduler:
    """The tasks of a model, the results of their slices, and the model's predicted seconds."""

    def __init__(
        self, base: Request, calls: Mapping[str, tuple[Workload, float]], late: Callable[[], bool] = lambda: False
    ):
        """Set up a task for each (workload, calls) until `late` returns True; `base`: template of requests."""
        self.base = base
        self.workloads: list[Workload] = []
        self.spaces: list[Space] = []
        self.tasks: list[Task] = []
        self.evaluations = 0
        self._known: list[dict[Program, float]] = []
        for workload, count in calls.values():
            if self.tasks and late():
                break
            self._add(workload, count)
        self.found: list[list[Found]] = [[] for _ in self.tasks]

    def _add(self, workload: Workload, count: float) -> None:
        arch = self.base.arch
        space = Space(workload, arch)
        known = starting(space)
        best = min(known.values(), default=float("inf"))
        bound = bound_us(workload, arch) / 1e6
        self.workloads.append(workload)
        self.spaces.append(space)
        self._known.append(known)
        self.tasks.append(Task(count, bound, workload.flops(), workload.class_key(), [best]))

    def founds(self) -> dict[str, Found]:
        """Return the merged results of every workload that had a slice, by key."""
        taken = zip(self.workloads, self.found, strict=True)
        return {workload.key(): merged(founds) for workload, founds in taken if founds}

    @property
    def seconds(self) -> float:
        """Predicted seconds of the whole model."""
        return end_to_end(self.tasks)

    def next(self, count: int) -> list[Slice]:
        """Return at most `count` slices of different tasks that are worth their time, by predicted gain."""
        fresh = [i for i, task in enumerate(self.tasks) if not task.slices]
        if fresh:
            fresh.sort(key=lambda i: -self.tasks[i].calls * self.tasks[i].seconds)
            return [self._slice(i) for i in fresh[:count]]
        gain = np.array(gains(self.tasks))
        order = np.argsort(-gain, kind="stable")[:count].tolist()
        return [self._slice(i) for i in order if gain[i] > WORTH * self.seconds]

    def _slice(self, i: int) -> Slice:
        """Return the task's next slice, from the best Programs known for it; every FRESH-th starts afresh."""
        number = self.tasks[i].slices
        best = sorted(self._known[i], key=lambda program: self._known[i][program])[:ELITES]
        return Slice(i, number, () if number % FRESH == FRESH - 1 else tuple(best))

    def request(self, each: Slice) -> Request:
        """Return the request of a slice for an executor."""
        return replace(
            self.base,
            workload=self.workloads[each.task],
            seed=self.base.seed + each.number,
            start=each.start,
            evaluations=SLICE,
        )

    def take(self, each: Slice, found: Found) -> None:
        """Record the result of a slice."""
        task = self.tasks[each.task]
        task.best.append(task.seconds)
        self.found[each.task].append(found)
        self._known[each.task] |= dict(found.best)
        task.learn(found.best[0][1])
        self.evaluations += found.evaluations
        self._share(each.task, [program for program, _ in found.best[:SHARED]])

    def _share(self, source: int, programs: Sequence[Program]) -> None:
        for i, other in enumerate(self.tasks):
            if i != source and other.group == self.tasks[source].group:
                news = predicted(self.spaces[i], [each for each in programs if each not in self._known[i]])
                self.evaluations += len(news)
                self._known[i] |= news
                other.learn(min(news.values(), default=float("inf")))

    def run(self, executor: Executor) -> Iterator[float]:
        """Run slices until none is worth its time; yield the model's seconds after each round of all jobs."""
        count = 1 if executor.jobs == 1 else max(executor.jobs, PARALLEL_FROM)
        while slices := self.next(count):
            for each, found in zip(slices, executor.map([self.request(each) for each in slices]), strict=True):
                self.take(each, found)
            yield self.seconds
