"""A whole run: rows of a shapes file to results, class by class; each result is stored before it is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from gensor_database.lazy import cached_property
from gensor_database.record import Kernel, Record, Verification
from gensor_database.record import Row as StoreRow
from gensor_database.store import Store
from gensor_database.timings import REJECTING, newest_first
from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.memory import too_large
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.measure.board import RemoteTimer, RemoteVerifier
from gensor_tuner.measure.timer import Timer
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store.kernel_rows import executed_rows, kernel_rows
from gensor_tuner.store.uses import Use, name_records, uses_of, with_uses
from gensor_tuner.strategies import plain
from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import Executor
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.verify import Verdict

from .class_run import Chosen, ClassRun, Options
from .portfolios import offer, usual
from .progress import Progress
from .result import Result, find_result, refusal_rows, result_of, rows_for
from .unfinished import Keeping, Unfinished

Kind = TypeVar("Kind", bound=ClassRun)
Rows = dict[str, list[Row]]  # by the key of their workload
Groups = Mapping[str, Rows]  # by the key of their class


@dataclass
class Run:
    """A run of the tuner: `rows` turns rows of a shapes file into results, stored one by one in `store`.

    Earlier results in it are reused. Without a `timer` no kernel is timed. `unfinished` has walks and binaries of an
    interrupted run, and takes this run's own. Tasks run on `executor`, by default on this machine.
    """

    arch: Arch
    store: Store
    options: Options
    progress: Progress = field(default_factory=Progress)
    timer: Timer | RemoteTimer | None = None
    verifier: DeviceVerifier | RemoteVerifier | None = None
    #: called with each kernel before it runs on the device, and with None once the device is idle again
    trying: Callable[[Candidate | None, Binary | None, Workload], None] = lambda *_: None
    #: called with a line of text for people
    notify: Callable[[str], None] = lambda line: None
    clock: Callable[[], float] = time.monotonic
    unfinished: Unfinished | None = None
    executor: Executor | None = None
    #: name of the shapes file, under which records name the rows that they are for; None: they name none
    file: str | None = None
    #: all rows of that file, where the run is given a share of them
    in_file: Sequence[Row] | None = None

    def __post_init__(self) -> None:
        self.began = self.clock()
        self._uses: dict[str, list[Use]] = {}
        if self.options.verify == "device" and self.verifier is None:
            raise ValueError("verify='device' needs a DeviceVerifier")

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    def rows(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Result]]:
        """Yield every row with its result, committed by then; those that need no tuning first, then class by class."""
        todo = yield from self.known(rows)
        if todo:
            self.progress.plan([names_of(by_key) for by_key in todo.values()])
            with self.unfinished or nullcontext(), self.executor or Local(self.options.jobs) as executor:
                yield from self._tune_groups(todo, executor)

    def known(self, rows: Sequence[Row]) -> Generator[tuple[Row, Result], None, Groups]:
        """Yield the rows that need no tuning with their results, and return the others by class."""
        groups: dict[str, Rows] = {}
        for row in rows:
            if row.error is not None:
                yield row, Result(None, "failed", error=row.error)
            elif row.workload is None:
                yield row, Result(None, "unsupported", error=row.unsupported)
            elif (reason := self.unsupported(row.workload)) is not None:
                yield row, Result(row.workload, "unsupported", error=reason)
            else:
                by_key = groups.setdefault(row.workload.class_key(), {})
                by_key.setdefault(row.workload.key(), []).append(row)
        self._name(rows)
        todo: dict[str, Rows] = {}
        for group, by_key in groups.items():
            for key, same in by_key.items():
                stored = self._find_stored(same)
                if stored is None:
                    todo.setdefault(group, {})[key] = same
                else:
                    yield from ((row, stored) for row in same)
        return todo

    def _name(self, rows: Sequence[Row]) -> None:
        """Let the records of earlier runs name the present rows of this run's file."""
        if self.file is not None:
            self._uses = uses_of(rows if self.in_file is None else self.in_file, self.file)
            name_records(self.store, self.arch.name, self.arch.part, self.file, self._uses)

    def _with_names(self, workload: Workload, provenance: str) -> str:
        """Return a new record's provenance with the rows that it is for."""
        if self.file is None:
            return provenance
        before = newest_first(self.store.records(workload.key(), self.arch.name, self.arch.part))
        known = before[0].provenance if before else "{}"
        return with_uses(provenance, known, self.file, self._uses.get(workload.key(), ()))

    def _tune_groups(self, todo: Groups, executor: Executor) -> Iterator[tuple[Row, Result]]:
        works = [Work(0, by_key) for by_key in todo.values()]
        yield from ((row, result) for _, row, result in in_turn([self], works, executor))

    def unit(self, by_key: Rows) -> tuple[str, str]:
        """Return the capability and the key of a class: its kernels may serve every part of the capability."""
        return self.arch.name, workload_of(next(iter(by_key.values()))).class_key()

    def expect(self, by_key: Rows, executor: Executor) -> None:
        """Notify an executor which class comes next."""
        if self.timer is not None:  # walks would disturb the program that launches kernels
            return
        ahead = Keeping(executor, self.unfinished)
        ahead.expect(self._class_run(by_key, ahead).first_requests)

    def _class_run(self, by_key: Rows, executor: Executor) -> ClassRun:
        return self.class_run(ClassRun, [workload_of(rows) for rows in by_key.values()], executor)

    def _find_stored(self, rows: Sequence[Row], settled: bool = True) -> Result | None:
        """Return the result that an earlier run has left for rows of one workload, or None."""
        return find_result(self.store, workload_of(rows), self.arch, self.options, settled)

    def unsupported(self, workload: Workload) -> str | None:
        """Return the reason where no family serves the workload, its result is empty or it is too large, else None."""
        if operator(workload.operator).empty(workload):
            return "an empty result needs no kernel"
        try:
            if (excess := too_large(workload, self.arch)) is None:
                space = Space(workload, self.arch)
                if self.options.strategy == "exhaustive":
                    plain.admit(space)
            return excess
        except UnsupportedError as error:
            return error.reason

    def tuned(self, by_key: Rows, executor: Executor, whole: bool = False) -> Iterator[tuple[Row, Result]]:
        """Yield the rows of one class with their results, committed: row by row, or all in the end with `whole`.

        A run that is killed within a class continues with the remaining rows, which are another class with other
        candidates; with `whole` it stores what an uninterrupted run stores.
        """
        self.progress.begin(names_of(by_key))
        keeping = Keeping(executor, self.unfinished)
        run = self._class_run(by_key, keeping)
        # Before any row is stored: a class whose rows are all stored is not tuned again.
        further = self._for_any_size(by_key, run.workloads, keeping)
        found = self.stored_whole(run, list(run.run()), further) if whole else self.stored(run, run.run())
        for chosen, result in found:
            yield from ((row, result) for row in by_key[chosen.workload.key()])
        if not whole:
            self.portfolio(run, further)
        keeping.forget()

    def _for_any_size(self, by_key: Rows, asked: Sequence[Workload], executor: Executor) -> list[Chosen]:
        """Return verified kernels for the usual sizes of a class, where a row has `any_size`."""
        if self.options.verify == "none" or not any(row.any_size for rows in by_key.values() for row in rows):
            return []
        shapes = [shape for shape in usual(asked[0]) if shape not in asked and self.unsupported(shape) is None]
        # One walk each is enough: every size is also offered the Programs of all others.
        run = self.class_run(ClassRun, shapes, executor, again=False, relaunched=True)
        found = [chosen for chosen in run.run() if chosen.candidate is not None]
        self.keep(run, ())
        return found

    def stock(self, workloads: Iterable[Workload], executor: Executor) -> None:
        """Tune workloads, and store verified kernels that serve any epilogue, but no records."""
        classes: dict[str, list[Workload]] = {}
        for each in workloads:
            classes.setdefault(each.class_key(), []).append(each)
        for same in classes.values():
            run = self.class_run(ClassRun, same, executor)
            for chosen in run.run():
                self.store.add(*(row for _, rows in self._execute(chosen) for row in rows))
            self.keep(run, ())

    def class_run(self, kind: type[Kind], workloads: Sequence[Workload], executor: Executor, **more: Any) -> Kind:
        """Return a ClassRun (or subclass `kind`) for the workloads of a class."""
        return kind(
            *(self.arch, workloads, self.options, executor, self.progress, self.timer),
            verifier=self.verifier,
            recorded=self._record,
            trying=self.trying,
            **more,
        )

    def stored(self, run: ClassRun, chosen: Iterable[Chosen]) -> Iterator[tuple[Chosen, Result]]:
        """Commit the kernel chosen for each workload, then yield its result."""
        reported: dict[str, float] = {}
        for each in chosen:
            rows, digest = self._rows(each)
            self.keep(run, rows)
            yield each, result_of(each, digest, self.arch, _share(run, reported, len(run.workloads)))

    def stored_whole(
        self, run: ClassRun, chosen: Sequence[Chosen], further: Sequence[Chosen]
    ) -> list[tuple[Chosen, Result]]:
        """Commit all kernels of a class, its portfolio, then all its records; return the results."""
        made = [(each, *self._rows(each)) for each in chosen]
        rows = [row for _, parts, _ in made for row in parts]
        self.keep(run, [row for row in rows if not isinstance(row, Record)])
        self.portfolio(run, further)
        self.store.add(*(row for row in rows if isinstance(row, Record)))
        reported: dict[str, float] = {}
        share = partial(_share, run, reported, len(run.workloads))
        return [(each, result_of(each, digest, self.arch, share())) for each, _, digest in made]

    def _rows(self, each: Chosen) -> tuple[list[StoreRow], str | None]:
        return rows_for(each, self.arch, self.options, partial(self._with_names, each.workload))

    def keep(self, run: ClassRun, rows: Iterable[StoreRow]) -> None:
        """Commit rows, and the kernels refused since the last call."""
        self.store.add(*refusal_rows(run.refused, self.arch, self._rejections), *rows)
        run.refused.clear()

    @cached_property
    def _rejections(self) -> dict[str, Verification]:
        """Verifications by which the store rejects kernels, by kernel digest."""
        rows = (row for outcome in REJECTING for row in self.store.rows(Verification, outcome=outcome))
        return {row.kernel_digest: row for row in rows}

    def _record(self, candidate: Candidate, binary: Binary, workload: Workload) -> Verdict | None:
        """Return the verdict by which the store already rejects a kernel, else None."""
        if not self._rejections:
            return None
        row = self._rejections.get(kernel_rows(candidate, binary, workload, self.arch)[-1].digest)
        if row is None:
            return None
        return Verdict(row.outcome, f"so the database says: {row.error or 'no reason given'}", method=row.method)

    def portfolio(self, run: ClassRun, further: Sequence[Chosen] = ()) -> None:
        """Replace the portfolio of a class by the best few of its usable kernels, stored ones and `further` ones."""
        new = {kernel.digest: rows for each in further for kernel, rows in self._execute(each)}
        digests = offer(self.store, self.arch, run.workloads, new).best()
        if not digests:  # with --verify none, no kernel is usable
            return
        self.store.add(*(row for name in digests for row in new.get(name, ())))
        class_key = run.workloads[0].class_key()
        self.store.replace_portfolio(self.arch.name, self.arch.part, class_key, digests)

    def _execute(self, chosen: Chosen) -> Iterator[tuple[Kernel, list[StoreRow]]]:
        """Yield the row of a verified kernel that may serve any epilogue, with all rows that belong to it."""
        each, binary = chosen.candidate, chosen.binary
        if each is not None and binary is not None and not each.fixes_epilogue:
            rows = executed_rows(each, binary, chosen.workload, chosen.verdicts, self.arch)
            yield from ((row, rows) for row in rows if isinstance(row, Kernel))


class Work(NamedTuple):
    """A class that is to be tuned: the number of its run, and its rows by the key of their workload."""

    run: int
    by_key: Rows


def in_turn(runs: Sequence[Run], todo: Sequence[Work], executor: Executor) -> Iterator[tuple[int, Row, Result]]:
    """Tune one class after the other; yield the number of each row's run, the row and its result."""
    for each, following in zip_longest(todo, todo[1:]):
        if following is not None:
            runs[following.run].expect(following.by_key, executor)
        yield from ((each.run, row, result) for row, result in runs[each.run].tuned(each.by_key, executor))


def workload_of(rows: Sequence[Row]) -> Workload:
    """Return the workload that rows of one group have in common."""
    workload = rows[0].workload
    assert workload is not None
    return workload


def names_of(by_key: Rows) -> list[str]:
    """Return the name of each workload of a class: that of its first row."""
    return [rows[0].name for rows in by_key.values()]


def _share(run: ClassRun, reported: dict[str, float], rows: int) -> dict[str, float]:
    """Return this row's share of each stage's seconds; walks and compilations are split evenly over the class."""
    shares = {}
    for stage, total in run.seconds.items():
        if stage == "verify":  # the time since the previous row
            shares[stage] = total - reported.get(stage, 0.0)
            reported[stage] = total
        else:
            shares[stage] = total / rows
    return shares
