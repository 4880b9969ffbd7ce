"""The search of a whole model: slices of search for its workloads, each where it is predicted to gain most.

Programs that one workload's slice found are tried on the others of its class at once: similar tasks inform each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.search.trace import Trails
from gensor_tuner.strategies.parallel import KEEP, PARALLEL_FROM, Found, Request, Searcher

ALPHA, BETA, WINDOW = 0.2, 2.0, 3
#: What is left of hope after each slice in a row that brought less than LITTLE of a task's seconds.
FADING, LITTLE = 0.5, 1e-3


@dataclass
class Task:
    """A workload of the model: `calls` of it, its roofline `bound` in seconds, its operations, which others are like
    it; `best` holds its seconds before any slice and after each slice it had."""

    calls: float
    bound: float
    flops: float
    group: Hashable
    best: list[float] = field(default_factory=list)

    @property
    def slices(self) -> int:
        """How many it had."""
        return len(self.best) - 1

    @property
    def seconds(self) -> float:
        """The best known of one call."""
        return self.best[-1]

    def learn(self, seconds: float) -> None:
        """Another task's slice found a Program that takes this long here; no slice of this one's is counted."""
        self.best[-1] = min(self.best[-1], seconds)

    def stale(self) -> int:
        """Its latest slices in a row that brought next to nothing."""
        count = 0
        for before, after in zip(self.best[-2::-1], self.best[:0:-1], strict=True):
            if before - after > LITTLE * before:
                break
            count += 1
        return count


def end_to_end(tasks: Sequence[Task]) -> float:
    """Seconds of the whole model by the best of each task."""
    return sum(task.calls * task.seconds for task in tasks)


def gains(tasks: Sequence[Task]) -> list[float]:
    """Seconds of the whole model that one more slice of each task is predicted to save."""
    rate: dict[Hashable, float] = {}
    for task in tasks:
        rate[task.group] = max(rate.get(task.group, 0.0), task.flops / task.seconds)
    return [task.calls * _gain(task, rate[task.group]) for task in tasks]


def _gain(task: Task, rate: float) -> float:
    """Seconds of one call."""
    now = task.seconds
    window = min(WINDOW, task.slices)
    recent = (task.best[-1 - window] - now) / window if window else 0.0
    hope = max(now / max(task.slices, 1), now - BETA * task.flops / rate if rate else 0.0)
    hope = max(min(hope, now - task.bound), 0.0) * FADING ** task.stale()
    return ALPHA * recent + (1 - ALPHA) * hope


#: Evaluations of a slice; the elites it may start from; the Programs it hands to the other tasks of its class.
SLICE, ELITES, SHARED = 256, 4, 3
#: A slice in so many begins as a walk of its own does, not from what is known.
FRESH = 4
#: Share of the whole a slice must be predicted to save to be worth its time.
WORTH = 1e-4


def predicted(space: Space, programs: Sequence[Program]) -> dict[Program, float]:
    """Seconds on this space's workload of those Programs that are legal there."""
    found: dict[Program, float] = {}
    for family in space.families:
        points: dict[Program, np.ndarray] = {}
        for program in programs:
            with suppress(ValueError):  # another family's, or a value this workload's lattice lacks
                points[program] = family.point(program)
        if not points:
            continue
        stacked = np.array(list(points.values()))
        legal = family.legal(stacked)
        able = [program for program, fine in zip(points, legal, strict=True) if fine]
        found |= zip(able, family.potential(stacked[legal]).tolist(), strict=True)
    return found


def starting(space: Space) -> dict[Program, float]:
    """The families' own starters with their seconds: what is known before any search."""
    programs = [each for part in space.families for each in part.family.starters(space.workload, space.arch)]
    return predicted(space, programs)


def merged(founds: Sequence[Found]) -> Found:
    """What several walks of one workload found, as one of them would have: the best of all, with whole trails."""
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
    """Which slice of a task: its number, and the Programs it starts from beside what it finds itself."""

    task: int
    number: int
    start: tuple[Program, ...] = ()


class Campaign:
    """The tasks of a model, what was found for each, and the whole's predicted seconds."""

    def __init__(
        self,
        base: Request,
        calls: Mapping[str, tuple[Workload, float]],
        late: Callable[[], bool] = lambda: False,
    ):
        """`base`: a request that every slice is like; `calls`: each workload and its calls, by its key. Once it is
        `late`, what follows the first of them is left out."""
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
        space = Space(workload, self.arch, learnt=self.base.learnt)
        known = starting(space)
        best = min(known.values(), default=float("inf"))
        bound = bound_us(workload, self.arch) / 1e6
        self.workloads.append(workload)
        self.spaces.append(space)
        self._known.append(known)
        self.tasks.append(Task(count, bound, workload.flops(), workload.class_key(), [best]))

    @property
    def arch(self) -> Arch:
        """What is tuned for."""
        return self.base.arch

    def founds(self) -> dict[str, Found]:
        """What was found, by the keys of the workloads that had a slice."""
        taken = zip(self.workloads, self.found, strict=True)
        return {workload.key(): merged(founds) for workload, founds in taken if founds}

    @property
    def seconds(self) -> float:
        """Predicted seconds of the whole model."""
        return end_to_end(self.tasks)

    def next(self, count: int) -> list[Slice]:
        """At most `count` slices, of different tasks, that are predicted to gain most; first those of tasks that had
        none. Empty where no slice is worth its time."""
        fresh = [i for i, task in enumerate(self.tasks) if not task.slices]
        if fresh:
            fresh.sort(key=lambda i: -self.tasks[i].calls * self.tasks[i].seconds)
            return [self._slice(i) for i in fresh[:count]]
        gain = np.array(gains(self.tasks))
        order = np.argsort(-gain, kind="stable")[:count].tolist()
        return [self._slice(i) for i in order if gain[i] > WORTH * self.seconds]

    def _slice(self, i: int) -> Slice:
        """The next slice of a task: from the best Programs known, its own or others'; every FRESH-th begins anew."""
        number = self.tasks[i].slices
        best = sorted(self._known[i], key=lambda program: self._known[i][program])[:ELITES]
        return Slice(i, number, () if number % FRESH == FRESH - 1 else tuple(best))

    def request(self, each: Slice) -> Request:
        """What is asked of a searcher."""
        return replace(
            self.base,
            workload=self.workloads[each.task],
            seed=self.base.seed + each.number,
            start=each.start,
            evaluations=SLICE,
        )

    def take(self, each: Slice, found: Found) -> None:
        """Count a slice in."""
        task = self.tasks[each.task]
        task.best.append(task.seconds)
        self.found[each.task].append(found)
        self._known[each.task] |= dict(found.best)
        task.learn(found.best[0][1])
        self.evaluations += found.evaluations
        self._share(each.task, [program for program, _ in found.best[:SHARED]])

    def _share(self, source: int, programs: Sequence[Program]) -> None:
        """Try Programs that one task's slice found on the others of its class."""
        for i, other in enumerate(self.tasks):
            if i != source and other.group == self.tasks[source].group:
                news = predicted(self.spaces[i], [each for each in programs if each not in self._known[i]])
                self.evaluations += len(news)
                self._known[i] |= news
                other.learn(min(news.values(), default=float("inf")))

    def run(self, searcher: Searcher) -> Iterator[float]:
        """Slices until none is worth its time: the whole's seconds after each round, which keeps all jobs busy."""
        count = 1 if searcher.jobs == 1 else max(searcher.jobs, PARALLEL_FROM)
        while slices := self.next(count):
            for each, found in zip(slices, searcher.run([self.request(each) for each in slices]), strict=True):
                self.take(each, found)
            yield self.seconds
