"""A run within a time budget: search for the whole model first, then build kernels where they save most time.

Every step is short: a few slices of search, or one kernel per job compiled and verified. A step starts only if it
should end within the budget, judged by the duration of the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gensor_database.record import Record, Source, Verification
from gensor_database.store import Store
from gensor_database.text import duration
from gensor_kernels.build.nvrtc import toolchain
from gensor_kernels.families.registry import current_family, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import class_text, plural
from gensor_tuner.run.class_run import Chosen
from gensor_tuner.run.result import Result
from gensor_tuner.run.tune import Groups, Rows, Run, workload_of
from gensor_tuner.run.unfinished import Keeping
from gensor_tuner.search.trace import Trail, start_of
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store.kernel_rows import compiled_of, executed_rows, is_current, verdict_of
from gensor_tuner.strategies.request import Request
from gensor_tuner.tasks.task import Executor

from .incremental import Held, IncrementalRun
from .task_scheduler import SLICE, TaskScheduler, predicted

SEARCHING = 0.4  # share of the budget for search; the rest compiles and verifies
FALL = 1e-3  # relative drop of the model's predicted time that is worth a progress line


@dataclass
class BudgetedRun(Run):
    """A run that ends after `budget` seconds, with everything that is verified by then.

    Verified kernels of `packaged`, a database, count as made by an earlier run. `fell` is called with each fall of the
    model's predicted time: seconds since the run began, microseconds of all calls, served workloads, all workloads.
    """

    budget: float = field(kw_only=True)
    packaged: Store | None = field(default=None, kw_only=True)
    fell: Callable[[float, float, int, int], None] = field(default=lambda *_: None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._step_seconds: list[float] = []
        self._reported = np.inf
        self._names: dict[str, str] = {}

    def _tune_groups(self, todo: Groups, executor: Executor) -> Iterator[tuple[Row, Result]]:
        executor = Keeping(executor, self.unfinished)
        if self.options.verify != "none":
            executor.prepare()
        self._names = {key: rows[0].name for by_key in todo.values() for key, rows in by_key.items()}
        growing = self._begin_classes(todo, self._search(todo, executor), executor) if not self._is_spent() else {}
        try:
            self._grow(list(growing.values()))
        except BaseException:  # Ctrl-C, a full disk: verified kernels are kept
            for group, each in growing.items():
                list(self._results(todo[group], each))
            raise
        self._warn(todo, growing)
        for group, by_key in todo.items():
            yield from self._results(by_key, growing.get(group))

    def _is_spent(self, share: float = 1.0) -> bool:
        return self.elapsed > share * self.budget

    def _search(self, todo: Groups, executor: Executor) -> TaskScheduler:
        """Search slice by slice, for the workload with the largest predicted gain, within a share of the budget."""
        calls, options = self._calls(todo), self.options
        self.progress.begin([self._names[key] for key in calls])
        first = next(iter(calls.values()))[0]
        base = Request(first, self.arch, options.seed, options.graph, strategy=options.strategy)
        scheduler = TaskScheduler(base, calls, lambda: self._is_spent(SEARCHING))
        self._notify_search(scheduler)
        if not self._is_spent(SEARCHING):
            for _ in scheduler.run(executor):
                self._notify_search(scheduler)
                self.progress("search", 1)
                if self._is_spent(SEARCHING):
                    break
        return scheduler

    def _calls(self, todo: Groups) -> dict[str, tuple[Workload, float]]:
        """Return workloads with their numbers of calls, by key, in descending order of roofline bound times calls."""
        calls: dict[str, tuple[Workload, float]] = {}
        for rows in (rows for by_key in todo.values() for rows in by_key.values()):
            workload = workload_of(rows)
            calls[workload.key()] = workload, sum(row.count for row in rows)
        return dict(sorted(calls.items(), key=lambda each: -bound_us(each[1][0], self.arch) * each[1][1]))

    def _notify_search(self, scheduler: TaskScheduler) -> None:
        spent = f"{sum(task.slices for task in scheduler.tasks)} slices of {len(scheduler.tasks)} workloads"
        self._report(scheduler.seconds, f"predicted after {spent}", 0, len(scheduler.tasks))

    def _report(self, seconds: float, about: str, served: int, workloads: int) -> None:
        """Print the model's predicted time where it has fallen."""
        if seconds <= (1 - FALL) * self._reported:
            self._reported = seconds
            self.fell(self.elapsed, seconds * 1e6, served, workloads)
            self.notify(f"after {duration(self.elapsed * 1e6)}: end to end {duration(seconds * 1e6, 4)} {about}")

    def _begin_classes(self, todo: Groups, scheduler: TaskScheduler, executor: Executor) -> dict[str, IncrementalRun]:
        """Return the state of every class for which search found a Program."""
        founds, spaces = scheduler.founds(), dict(zip(scheduler.workloads, scheduler.spaces, strict=True))
        calls = {workload: task.calls for workload, task in zip(scheduler.workloads, scheduler.tasks, strict=True)}
        growing: dict[str, IncrementalRun] = {}
        for group in todo:
            workloads = [workload for workload in scheduler.workloads if workload.class_key() == group]
            found = {row: founds[w.key()] for row, w in enumerate(workloads) if w.key() in founds}
            if found:
                laid = [spaces[workload] for workload in workloads]
                growing[group] = self.class_run(
                    *(IncrementalRun, workloads, executor),
                    laid=laid,
                    founds=found,
                    calls=[calls[workload] for workload in workloads],
                    evaluations=SLICE,
                    held=[*self._kernels_of(self.store, group), *self._shipped_kernels(group, laid)],
                    late=self._is_spent,
                )
        self._reported = np.inf
        return growing

    def _shipped_kernels(self, class_key: str, spaces: Sequence[Space]) -> list[Held]:
        """Return the packaged kernels of a class that are the best ones for a workload, by predicted time."""
        if self.packaged is None:
            return []
        found = list(self._kernels_of(self.packaged, class_key))
        times = [predicted(space, [each.program for each in found]) for space in spaces]
        best = {min(each, key=each.__getitem__) for each in times if each}
        return [each for each in found if each.program in best]

    def _kernels_of(self, store: Store, class_key: str) -> Iterator[Held]:
        """Yield the stored kernels of a class that this version would make and verify in the same way."""
        if not store.trusted:
            return
        for each in store.kernels_for_class(class_key, self.arch.name):
            family, binary = current_family(each.kernel.family, each.kernel.abi), each.binary()
            enough = each.usable and self.options.verify in ("none", "emulator", each.verified)
            if not enough or binary is None or family is None:
                continue
            if binary.toolchain != toolchain() or binary.source_digest != Source.of(family.code).digest:
                continue
            program = program_from_json(each.kernel.program)
            own = {"kernel_digest": each.kernel.digest}
            passed = sorted(store.rows(Verification, outcome="ok", **own), key=lambda row: row.method, reverse=True)
            if not all(is_current(row) for row in passed):
                continue
            trails = (_trail(row) for row in store.rows(Record, **own))
            trail = next(trails, start_of(program, self.options.graph))
            yield Held(program, binary.constants, compiled_of(binary), tuple(map(verdict_of, passed)), trail)

    def _grow(self, classes: Sequence[IncrementalRun]) -> None:
        """Step classes until none promises anything or the budget would be exceeded; the highest promise first."""
        while self._fits() and (open_ := [each for each in classes if not each.finished]):
            # A layer without a kernel comes first, however short it is.
            chosen = max(open_, key=lambda each: (each.served < len(each.workloads), each.promise))
            before = self.elapsed
            self.progress.begin([self._names[workload.key()] for workload in chosen.workloads])
            chosen.step()
            self._step_seconds.append(self.elapsed - before)
            self._keep(chosen)
            self._report_kernels(classes)

    def _report_kernels(self, classes: Sequence[IncrementalRun]) -> None:
        served, rows = sum(each.served for each in classes), sum(len(each.workloads) for each in classes)
        count = sum(len(each.usable) for each in classes)
        kernels = f"{count} verified {plural('kernel', count)}"
        if served == rows:
            self._report(sum(each.seconds_now for each in classes), f"with {kernels}", served, rows)
        else:
            serve = "serve" if count != 1 else "serves"
            self.notify(f"after {duration(self.elapsed * 1e6)}: {kernels} {serve} {served} of {rows} workloads")

    def _keep(self, growing: IncrementalRun) -> None:
        """Store kernels that were verified or refused since the last call, whatever happens to this run later."""
        self.keep(growing, [row for each in growing.fresh for row in executed_rows(*each, self.arch)])
        growing.fresh.clear()

    def _fits(self) -> bool:
        """Whether a step of average duration fits the budget; the first step starts while any time is left."""
        usual = float(np.mean(self._step_seconds)) if self._step_seconds else 0.0
        return self.elapsed + usual <= self.budget

    def _results(self, by_key: Rows, growing: IncrementalRun | None) -> Iterator[tuple[Row, Result]]:
        """Yield the rows of one class: new kernels, results of an earlier run, or the reason for having none."""
        made: dict[str, Result] = {}
        if growing is not None:
            better = [each for each in growing.chosen() if not self._beaten(each, by_key)]
            made = {chosen.workload.key(): result for chosen, result in self.stored(growing, better)}
            self.portfolio(growing)
        for key, rows in by_key.items():
            result = made.get(key) or self._find_stored(rows, settled=False)
            if result is None:
                wrong = growing is not None and not growing.usable and bool(growing.judge.verdicts)
                before = "a kernel passed verification" if wrong else "this row had a kernel"
                error = f"the budget of {self.budget:g} s was spent before {before}; run again to go on"
                result = Result(workload_of(rows), "failed" if wrong else "skipped", error=error)
            yield from ((row, result) for row in rows)

    def _beaten(self, chosen: Chosen, by_key: Rows) -> bool:
        """Whether an earlier run left a result that is predicted to be at least as good."""
        before = self._find_stored(by_key[chosen.workload.key()], settled=False)
        if before is None or before.predicted_us is None:
            return False
        # The same kernel is stored again where it proved to be the best, so that the next run leaves its row alone.
        now = chosen.predicted * 1e6
        return before.predicted_us < now if chosen.settled else before.predicted_us <= now

    def _warn(self, todo: Groups, growing: Mapping[str, IncrementalRun]) -> None:
        """Print which classes got no kernel within the budget."""
        bare = [group for group in todo if group not in growing or not growing[group].usable]
        if bare and self._is_spent(0.9):
            names = [class_text(workload_of(next(iter(todo[group].values())))) for group in bare]
            self.notify(
                f"a budget of {self.budget:g} s is too small for a kernel of every class: {len(bare)} of {len(todo)} "
                f"have none ({'; '.join(names)}); run again to go on, or with a larger --budget"
            )


def _trail(row: Record) -> Trail:
    """Return the actions that led to a record's kernel, each in the space of its Workload."""
    workload = Workload.from_json(row.key)
    return Trail.from_json(row.walk, workload).within(workload)
