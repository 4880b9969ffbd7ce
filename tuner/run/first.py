"""Serve first: one verified kernel for a call that waits; a full run replaces it later.

A kernel that is stored for the Workload's class serves where it is predicted to be good enough. Otherwise the best
Program of one walk is compiled and, at the same time, executed on the emulator. Records made here are not settled: the
next full run (tune.py) tunes the Workload again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gensor_database import open_layers
from gensor_database.record import Binary, Record, Source, Verification
from gensor_database.store import Store, StoredKernel
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.errors import GensorError
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import current_family, program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.cover import preferring
from gensor_tuner.build.pool import Candidate, Pool
from gensor_tuner.shapes.reader import Row
from gensor_tuner.tasks.task import Executor
from gensor_tuner.verify.verify import verify

from .class_run import ROUNDS, Chosen, ClassRun
from .result import NEAR_BOUND, Result, find_result, provenance
from .tune import Rows, Run, names_of, workload_of

#: A stored kernel, or the first that passes, serves within this factor of the best Program of a walk: seconds later the
#: refined kernel takes over.
GOOD_ENOUGH = 3.0


@dataclass
class FirstRun(ClassRun):
    """A class of one Workload, up to its first verified kernel."""

    #: predicted seconds of the best stored kernel
    at_hand: float = np.inf

    def run(self) -> Iterator[Chosen]:
        """Yield the best Program that compiles and passes verification; nothing if a stored kernel is good enough."""
        if not self._skips():
            self.executor.prepare()
        pool = Pool(self.workloads)
        self._gather(pool, dict(enumerate(self._walk(self.first_requests))))
        if self.at_hand <= GOOD_ENOUGH * pool.seconds(self.spaces).min(initial=np.inf):
            return
        for attempt in range(self.options.top + ROUNDS):
            seconds = pool.seconds(self.spaces)
            passed = [self._skips() or self.judge.passed(each.name) for each in pool.candidates]
            ready = self.binaries.among(pool) & np.array(passed, bool)  # compiled and verified
            if attempt >= ROUNDS and ready.any():
                seconds[:, ~ready] = np.inf
            preferred = preferring(seconds, (ready, GOOD_ENOUGH), *self._preferences(pool))
            column = int(np.argmin(preferred[0])) if np.isfinite(preferred).any() else -1
            if column < 0 or ready[column]:
                break
            self._try(pool, column)
        each = pool.candidates[column] if column >= 0 and ready[column] else None
        if each is not None and self.tournament is not None:
            with self._time("measure"):
                self.tournament.measured(pool)
        yield self._choice(0, each, seconds[0, column], pool)

    def _choice(self, row: int, each: Candidate | None, seconds: float, pool: Pool) -> Chosen:
        return replace(super()._choice(row, each, seconds, pool), settled=False)

    def _try(self, pool: Pool, column: int) -> None:
        """Compile a candidate and verify it; one that fails is dead in the pool."""
        each, (workload,) = pool.candidates[column], self.workloads

        def executed() -> None:  # the verdict is kept in the cache folder, where the judge finds it
            with suppress(GensorError, OSError):
                verify(each, workload)

        ahead = [executed] if self.options.jobs > 1 and self.options.verify == "emulator" else []
        works: list[Callable[[], object]] = [partial(self._compile, pool, [column]), *ahead]
        ordered_map(lambda work: work(), works, 2)
        if each.name in pool.dead or self._skips():
            return
        self._verify(pool, [(column, workload)])
        if not self.judge.passed(each.name):
            self._refuse(pool, each, workload)


@dataclass
class FirstKernels(Run):
    """A run that gives every Workload its first kernel; stored kernels are this database's and the packaged ones."""

    def _find_stored(self, rows: Sequence[Row], settled: bool = True) -> Result | None:
        """Return any earlier result: one that is not settled serves as well."""
        return super()._find_stored(rows, settled=False)

    def tuned(self, by_key: Rows, executor: Executor, whole: bool = False) -> Iterator[tuple[Row, Result]]:
        """Yield the rows of one class with their first results, committed."""
        self.progress.begin(names_of(by_key))
        for rows in by_key.values():
            result = self._first(workload_of(rows), executor)
            yield from ((row, result) for row in rows)

    def _first(self, workload: Workload, executor: Executor) -> Result:
        with open_layers(self.arch.name) as packaged:
            known = self._stored_kernel(workload, (self.store, *packaged.stores))
            if known is None or known[1] * 1e6 > NEAR_BOUND * bound_us(workload, self.arch):
                run = self.class_run(FirstRun, [workload], executor, at_hand=known[1] if known else np.inf)
                for _, result in self.stored(run, run.run()):
                    return result
            assert known is not None
            return self._serving(workload, *known)

    def _stored_kernel(self, workload: Workload, stores: Iterable[Store]) -> tuple[StoredKernel, float] | None:
        """Return the usable stored kernel of the class that is predicted fastest, with its seconds."""
        space = Space(workload, self.arch)
        pool, kernels = Pool([workload]), dict[Program, StoredKernel]()
        for store in stores:
            for each in store.kernels_for_class(workload.class_key(), self.arch.name):
                program = self._program(each, space)
                if program is not None:
                    kernels.setdefault(program, each)
        pool.add(space, kernels, siblings=False)
        (seconds,) = pool.seconds([space])
        for column in np.argsort(seconds, kind="stable"):
            wanted = pool.candidates[column]
            each = kernels[wanted.program]
            binary = each.binary() if np.isfinite(seconds[column]) else None
            if binary and (binary.target, binary.constants) == (self.arch.target, wanted.constants):
                return each, float(seconds[column])
        return None

    def _program(self, each: StoredKernel, space: Space) -> Program | None:
        """Return the Program of a usable kernel of a current family that serves the workload, else None."""
        family = current_family(each.kernel.family, each.kernel.abi)
        if not each.usable or family is None or family.name not in space.names:
            return None
        return program_from_json(each.kernel.program)

    def _serving(self, workload: Workload, stored: StoredKernel, seconds: float) -> Result:
        """Store a record that names a stored kernel, with the kernel itself if it comes from another store."""
        kernel, (holder, *_) = stored.kernel, stored.stores
        binary = holder.get(Binary, kernel.binary_digest)
        assert binary is not None
        source = holder.get(Source, binary.source_digest)
        verdicts = holder.rows(Verification, kernel_digest=kernel.digest)
        parts = [] if holder is self.store else [*([source] if source else ()), binary, kernel, *verdicts]
        place = (workload.key(), self.arch.name, self.arch.part)
        figures = (seconds * 1e6, bound_us(workload, self.arch))
        how = self._with_names(workload, provenance(self.options, settled=False))
        self.store.add(*parts, Record(*place, kernel.abi, kernel.digest, *figures, "ok", None, "{}", how))
        found = find_result(self.store, workload, self.arch, self.options, settled=False)
        assert found is not None
        return found
