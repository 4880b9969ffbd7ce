"""Times and bytes of the tasks of a real run, and the client's own seconds beside them.

The client is this process. Each task travels as it would to a Dask worker, to one child process that stands for all
workers, so that the caches of the two are apart. Seconds are those of processors, children (g++, nvdisasm) included:
on a machine with other work they tell more than those of the clock.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from gensor_database.record import Row as StoreRow
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.fleet import wire
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Rows, Run
from gensor_tuner.run.unfinished import Unfinished
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.tasks.task import Executor, Result, Task, ignore

SHAPES = Path(__file__).resolve().parents[2] / "examples" / "common_shapes.csv"
ARCHS = ("sm_87", "sm_90")
#: Classes with at most so many workloads, and how many of them a sample has: large classes are few.
STRATA = {1: 6, 2: 5, 4: 3, 14: 2, 10**9: 2}
#: A product of a class that no sample has: it lets the child import, and compile the emulator.
FIRST = {"op": "matmul", "dtype": "fp64", "m": "16", "n": "16", "k": "64"}


def processor() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def answered(kind: str, message: bytes) -> tuple[bytes, float, float]:
    """Run a task as a worker does; return its answer, its processor seconds and its seconds."""
    began, before = time.perf_counter(), processor()
    answer, _ = wire.answer(kind, message)
    return answer, processor() - before, time.perf_counter() - began


class Clocks:
    """Seconds of this process by what they are spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def spend(self, name: str, work: Callable[..., Any], *given: Any) -> Any:
        """Return what `work` returns, its processor seconds counted under a name."""
        began = time.process_time()
        try:
            return work(*given)
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began


class Child(Executor):
    """Runs each task in the child process, one after the other, and keeps its figures.

    Attributes
    ----------
    stages : list of dict
        For each call of `map` with tasks: their kind, their processor seconds and their bytes there and back.
    """

    def __init__(self, pool: ProcessPoolExecutor, clocks: Clocks):
        super().__init__(1)
        self.pool, self.clocks = pool, clocks
        self.stages: list[dict[str, Any]] = []

    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks, in their order."""
        found: dict[Hashable, Result] = {}
        stage: dict[str, Any] = {"kind": "", "seconds": [], "wall": 0.0, "asked": 0, "result": 0}
        results = []
        for index, task in enumerate(tasks):
            key = index if task.key is None else task.key
            if key not in found:
                stage["kind"] = task.kind
                found[key] = self._one(task, stage)
            results.append(found[key])
            done(index, found[key])
        if tasks:
            self.stages.append(stage)
        return results

    def _one(self, task: Task[Result], stage: dict[str, Any]) -> Result:
        message = self.clocks.spend("asking", wire.asked, task)
        answer, seconds, wall = self.clocks.spend("waiting", self._answer, task.kind, message)
        stage["seconds"].append(round(seconds, 4))
        stage["wall"] += wall
        stage["asked"] += len(message)
        stage["result"] += len(answer)
        result: Result = self.clocks.spend("checking", wire.result_of, task, answer)
        return result

    def _answer(self, kind: str, message: bytes) -> tuple[bytes, float, float]:
        return self.pool.submit(answered, kind, message).result()


class ClockedStore(Store):
    """A database whose writes are counted."""

    clocks: Clocks
    written = 0

    def add(self, *rows: StoreRow) -> int:
        """Add rows."""
        self.written += len(rows)
        added: int = self.clocks.spend("storing", super().add, *rows)
        return added

    def replace_portfolio(self, *given: Any) -> None:
        """Replace a portfolio."""
        self.clocks.spend("storing", super().replace_portfolio, *given)


def classes(rows: Iterable[Row]) -> dict[str, dict[str, Workload]]:
    """Return the workloads of each class, by their keys."""
    found: dict[str, dict[str, Workload]] = {}
    for row in rows:
        if row.workload is not None:
            found.setdefault(row.workload.class_key(), {})[row.workload.key()] = row.workload
    return found


def strata(sizes: dict[str, int]) -> list[list[str]]:
    """Return the classes of each stratum, given the number of workloads of every class."""
    found: list[list[str]] = [[] for _ in STRATA]
    for name in sorted(sizes):
        found[next(place for place, most in enumerate(STRATA) if sizes[name] <= most)].append(name)
    return found


def sample(sizes: dict[str, int], seed: int) -> dict[str, float]:
    """Return the classes drawn, each with the number of classes that it stands for."""
    drawn = random.Random(seed)
    found = {}
    for names, count in zip(strata(sizes), STRATA.values(), strict=True):
        taken = drawn.sample(names, min(count, len(names)))
        found |= {name: len(names) / len(taken) for name in taken}
    return found


def measure(seed: int, tell: Callable[[str], None], archs: Sequence[str] = ARCHS) -> dict[str, Any]:
    """Tune the sampled classes for each arch; return the figures of each class, in order, and of the whole file."""
    rows = read_shapes(SHAPES)
    every = classes(rows)
    drawn = sample({name: len(each) for name, each in every.items()}, seed)
    found: list[dict[str, Any]] = []
    known: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GENSOR_CACHE_DIR"] = folder
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            _tuned(pool, Path(folder, "first.db"), archs[0], _first(Path(folder)), {}, lambda line: None)
            for arch in archs:
                taken = [row for row in rows if row.workload is not None and row.workload.class_key() in drawn]
                told, known[arch] = _tuned(pool, Path(folder, f"{arch}.db"), arch, taken, drawn, tell)
                found += told
    return {
        "shapes": SHAPES.name,
        "seed": seed,
        "rows": len(rows),
        "workloads": sum(map(len, every.values())),
        "classes": len(every),
        "archs": list(archs),
        "known_s_per_workload": sum(known.values()) / sum(each["workloads"] for each in found),
        "sample": found,
    }


def _first(folder: Path) -> list[Row]:
    path = folder / "first.csv"
    path.write_text(",".join(FIRST) + "\n" + ",".join(FIRST.values()) + "\n")
    return read_shapes(path)


def _tuned(
    pool: ProcessPoolExecutor,
    path: Path,
    arch: str,
    rows: list[Row],
    stands_for: dict[str, float],
    tell: Callable[[str], None],
) -> tuple[list[dict[str, Any]], float]:
    """Tune rows; return the figures of each class, and the client's seconds before the first class."""
    found = []
    with ClockedStore.open(path) as store, Unfinished.of(path) as unfinished:
        store.clocks = Clocks()
        run = Run(lookup(arch), store, Options(), unfinished=unfinished)
        before = time.process_time()
        groups = _groups(run, rows)
        known = time.process_time() - before
        for name, by_key in groups.items():
            clocks = store.clocks = Clocks()
            executor, written, began = Child(pool, clocks), store.written, time.process_time()
            statuses = [result.status for _, result in run.tuned(by_key, executor, whole=True)]
            client = time.process_time() - began - clocks.seconds.pop("waiting", 0.0)
            told = {
                "class": json.loads(name),
                "arch": arch,
                "stands_for": stands_for.get(name, 1.0),
                "workloads": len(by_key),
                "ok": sum(status == "ok" for status in statuses),
                "rows_written": store.written - written,
                "client_s": client,
                "client": dict(sorted(clocks.seconds.items())),
                "stages": executor.stages,
            }
            found.append(told)
            tasks = sum(sum(stage["seconds"]) for stage in executor.stages)
            tell(f"{arch} {len(by_key):4} workloads, tasks {tasks:7.2f} s, client {client:6.2f} s")
    return found, known


def _groups(run: Run, rows: list[Row]) -> dict[str, Rows]:
    found = run.known(rows)
    while True:
        try:
            next(found)
        except StopIteration as end:
            return dict(end.value)
