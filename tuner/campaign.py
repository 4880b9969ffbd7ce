"""The search of a whole model: slices of search for its workloads, each where it is predicted to gain most.

Programs that one workload's slice found are tried on the others of its class at once: similar tasks inform each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.families import FAMILIES
from gensor_kernels.programs.program import Program
from gensor_kernels.programs.space import Space

from .allocation import Task, end_to_end, gains
from .search import KEEP, PARALLEL_FROM, Found, Request, Searcher
from .trail import Trails

#: Evaluations of a slice; the elites it may start from; the Programs it hands to the other tasks of its class.
SLICE, ELITES, SHARED = 256, 4, 3
#: A slice in so many begins as a walk of its own does, not from what is known.
FRESH = 4
#: Share of the whole a slice must be predicted to save to be worth its time.
WORTH = 1e-4


def predicted(space: Space, programs: Iterable[Program]) -> dict[Program, float]:
    """Seconds on this space's workload of those Programs that are legal there."""
    found: dict[Program, float] = {}
    for program in programs:
        if program.family not in space.names:
            continue
        family = space.family(program.family)
        try:
            point = family.point(program)[None]
        except ValueError:  # a value this workload's lattice lacks
            continue
        if family.legal(point)[0]:
            found[program] = float(family.potential(point)[0])
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

    def __init__(self, base: Request, calls: Mapping[str, tuple[Workload, float]]):
        """`base`: a request that every slice is like; `calls`: each workload and its calls, by its key."""
        self.base = base
        self.workloads = [workload for workload, _ in calls.values()]
        self.tasks = [
            Task(count, bound_us(workload, base.arch) / 1e6, workload.flops(), workload.class_key())
            for workload, count in calls.values()
        ]
        self.found: list[list[Found]] = [[] for _ in self.tasks]
        self.evaluations = 0
        self._known = [starting(space) for space in self.spaces]
        for task, known in zip(self.tasks, self._known, strict=True):
            task.best.append(min(known.values(), default=float("inf")))

    @cached_property
    def spaces(self) -> list[Space]:
        """Every workload's space."""
        return [Space(workload, self.arch, learnt=self.base.learnt) for workload in self.workloads]

    @property
    def arch(self) -> Arch:
        """What is tuned for."""
        return self.base.arch

    def founds(self) -> dict[str, Found]:
        """What was found, by the keys of the workloads that had a slice."""
        taken = zip(self.workloads, self.found, strict=True)
        return {workload.key(): merged(founds) for workload, founds in taken if founds}

    def urgency(self) -> dict[Hashable, float]:
        """By class: seconds of the model over the kernels they seem to need. A kernel that several workloads share is
        one kernel to compile and to verify."""
        seconds: dict[Hashable, float] = {}
        kernels: dict[Hashable, set[Program]] = {}
        for task, known in zip(self.tasks, self._known, strict=True):
            seconds[task.group] = seconds.get(task.group, 0.0) + task.calls * task.seconds
            kernels.setdefault(task.group, set()).update(sorted(known, key=lambda program: known[program])[:1])
        return {group: seconds[group] / max(len(kernels[group]), 1) for group in seconds}

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
