"""Runs of `gensor-tune` itself: from its settings to tuned rows, their table and the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gensor_database.layers import PRETUNED
from gensor_database.record import Record
from gensor_database.store import Store, StoreError
from gensor_database.text import duration
from gensor_database.writing import is_replaceable
from gensor_kernels import config
from gensor_kernels.build import nvrtc
from gensor_kernels.dispatch.functions.complex_products import workload_of_reals
from gensor_kernels.errors import ConfigError
from gensor_kernels.machine.arch import Arch, lookup, peers
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.budget.run import BudgetedRun
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.measure.board import RemoteTimer, RemoteVerifier
from gensor_tuner.measure.timer import Timer, open_timer
from gensor_tuner.output import counts_text, json_lines, note, plural, say, terminal_width, write_json
from gensor_tuner.run import many
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.drawn import find_missed, mending
from gensor_tuner.run.many import Shard
from gensor_tuner.run.portfolios import library_of, ship
from gensor_tuner.run.result import InOrder, Result, Table, json_fields, next_steps, summary, totals
from gensor_tuner.run.tune import Run, in_turn, names_of
from gensor_tuner.run.unfinished import Unfinished
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.store.uses import name_of
from gensor_tuner.tasks.local import Local
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.verify import check_compilers

from .progress import ArchProgress, FleetShown, Shown

if TYPE_CHECKING:
    from gensor_tuner.fleet.cluster import Fleet

Verifier = DeviceVerifier | RemoteVerifier | None


@dataclass(frozen=True)
class Settings:
    """Settings of a run, from the command line: `arch_names` as they were written, the database `db` to tune into.

    Records name their rows where `named`, and the `model` in place of the file. Workers of a `cluster` are believed
    unless `distrust`. `shard`: tune this share of the classes alone.
    """

    arch_names: Sequence[str]
    db: Path
    options: Options
    measure: str = "never"
    budget: float | None = None
    json_path: Path | None = None
    quiet: bool = False
    named: bool = True
    model: str = ""
    cluster: str | None = None
    distrust: bool = False
    shard: Shard | None = None

    @property
    def archs(self) -> list[Arch]:
        """The parts to tune for."""
        return [lookup(name) for name in self.arch_names]


def tune(settings: Settings, shapes: Path) -> int:
    """Tune a shapes file for one arch or several; return 1 where a row was bad, failed or skipped, else 0."""
    archs, options = settings.archs, settings.options
    rows = read_shapes(shapes, (lambda line: None) if settings.model else note)
    whole = [rows_for(arch, rows) for arch in archs]
    shares = whole if settings.shard is None else settings.shard.rows(whole, archs)
    check_compilers(options.verify, options.jobs)
    label = settings.model or name_of(shapes)
    with ExitStack() as stack:
        fleet = stack.enter_context(open_fleet(settings)) if settings.cluster is not None else None
        if fleet is not None:
            options = replace(options, jobs=fleet.jobs)
        devices = [_open_device(arch, settings, fleet, stack) for arch in archs]
        if fleet is not None:
            required = settings.measure == "require" or options.verify == "device"
            fleet.cluster.ready((), [arch.part for arch in archs] if required else ())
        lines = stack.enter_context(json_lines(settings.json_path))
        store = stack.enter_context(Store.open(settings.db))
        unfinished = stack.enter_context(Unfinished.of(settings.db))
        progress = stack.enter_context(closing(_progress(settings, shares, fleet)))
        report = Report(settings, label, shares, progress, lines, fleet)
        say(report.table.header(), flush=True)
        runs = []
        for number, (arch, (timer, verifier)) in enumerate(zip(archs, devices, strict=True)):
            kind: Callable[..., Run] = Run
            if settings.budget is not None:
                searching = options.strategy == "walk" and options.graph == "full"  # others are compared by their finds
                packaged = stack.enter_context(_packaged_store(arch)) if searching else None
                kind = partial(BudgetedRun, budget=settings.budget, packaged=packaged, fell=report.fell)
            run = kind(
                *(arch, store, options, progress.of(number), timer, verifier),
                notify=progress.notify,
                unfinished=unfinished,
                executor=fleet,
                file=label if settings.named else None,
                in_file=whole[number],
            )
            runs.append(run)
        stack.callback(report.conclude)
        named_archs = ", ".join(f"{arch.name} ({arch.part})" for arch in archs)
        count = f"{len(rows)} {plural('row', len(rows))}"
        share = count if settings.shard is None else settings.shard.describe(shares, whole)
        note(f"{share} for {named_archs} into {settings.db}")
        for number, row, result in _tune_archs(runs, shares, settings.budget is not None, fleet, options):
            report.add(number, row, result)
    statuses = {result.status for *_, result in report.results}
    if "ok" in statuses:
        users = None
        with suppress(ConfigError):
            users = config.user_database()
        note(next_steps(settings.db, settings.db == users))
    return 1 if statuses & {"failed", "skipped"} else 0


def rows_for(arch: Arch, rows: Sequence[Row]) -> list[Row]:
    """Return the rows as the runtime serves them on a part: large products of complex64 are products of reals."""
    reals = (row.workload and workload_of_reals(row.workload, arch) for row in rows)
    return [replace(row, workload=each) if each else row for row, each in zip(rows, reals, strict=True)]


@dataclass
class Report:
    """The output of a run: a line of the table for each row in the file's order, lines of `--json`, the summary."""

    settings: Settings
    label: str
    shares: Sequence[Sequence[Row]]
    progress: Shown | FleetShown
    lines: TextIO | None
    fleet: Fleet | None
    results: list[tuple[int, Row, Result]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        every = [(number, row) for number, own in enumerate(self.shares) for row in own]
        self.table = Table([row for _, row in every], self.settings.arch_names, terminal_width(sys.stdout))
        line, names = self.table.line, self.settings.arch_names
        self._ordered = InOrder(every, lambda run, row, result: self.progress.row(line(row, result, names[run])))

    def add(self, number: int, row: Row, result: Result) -> None:
        """Report a row of the run with this number."""
        self.results.append((number, row, result))
        self.progress.report(number)
        write_json(self.lines, json_fields(row, result, self.settings.archs[number]))
        self._ordered.add(number, row, result)

    def fell(self, after_s: float, us: float, served: int, workloads: int) -> None:
        """Write a line about the end-to-end time of a model: of verified kernels once all workloads are served."""
        if self.settings.model:
            figures = {"after_s": round(after_s, 3), "end_to_end_us": us, "served": served, "workloads": workloads}
            write_json(self.lines, figures)

    def conclude(self) -> None:
        """Print the rest of the table and the summary, whatever has ended the run."""
        self.progress.close()
        self._ordered.rest()
        names, shard = self.settings.arch_names, self.settings.shard
        who = f"shard {shard}: " if shard is not None else ""  # not the totals of whole models
        every = sum(map(len, self.shares))
        if len(self.results) < every:
            note(f"{who}stopped after {len(self.results)} of {every} rows")
        for number, name in enumerate(names):
            own = [(row, result) for run, row, result in self.results if run == number]
            if not own and (every or shard):
                continue
            for line in (*summary([result for _, result in own]), *totals(own, self.label)):
                note(f"{who}{f'{name}: ' if len(names) > 1 else ''}{line}")
        took = duration((time.perf_counter() - self._began) * 1e6)
        compiled = nvrtc.compile_count() + (0 if self.fleet is None else self.fleet.cluster.counts["compile"])
        note(f"{took}, {compiled} {plural('compilation', compiled)}")


def _progress(settings: Settings, shares: Sequence[Sequence[Row]], fleet: Fleet | None) -> Shown | FleetShown:
    """Return the progress: one bar here, one for each arch on a cluster."""
    options = settings.options
    if fleet is None:
        return Shown(options.jobs, options.top, settings.budget, sum(map(len, shares)), settings.quiet)
    pairs = zip(settings.arch_names, shares, strict=True)
    bars = [ArchProgress(name, len(own), lambda: fleet.jobs) for name, own in pairs]
    return FleetShown(bars, fleet.cluster.at_work, settings.quiet)


def _open_device(
    arch: Arch, settings: Settings, fleet: Fleet | None, stack: ExitStack
) -> tuple[Timer | RemoteTimer | None, Verifier]:
    """Return the timer and the verifier for an arch, on this machine's GPU or on a cluster's; None without."""
    verify, measure = settings.options.verify == "device", settings.measure
    if fleet is not None:
        idle = measure == "never" or (measure == "auto" and not fleet.cluster.measuring(arch.part))
        timer = None if idle else RemoteTimer(arch.part, fleet)
        return timer, RemoteVerifier(arch.part, fleet) if verify else None
    try:
        verifier = stack.enter_context(DeviceVerifier(partial(open_gpu, arch))) if verify else None
    except GpuError as error:
        raise GpuError(f"--verify device needs a GPU of {arch.name}: {error}") from None
    return timer_for(arch, measure), verifier


def timer_for(arch: Arch, measure: str) -> Timer | None:
    """Return a timer on this machine's GPU, or None; with `--measure require`, raise GpuError instead of None."""
    if measure == "never":
        return None
    try:
        return open_timer(arch)
    except GpuError as error:
        if measure == "require":
            raise GpuError(f"--measure require needs a GPU of {arch.name}: {error}") from None
        if error.worth_telling:
            note(f"not measuring: {error}")
        return None


def _tune_archs(
    runs: Sequence[Run], rows: Sequence[Sequence[Row]], budgeted: bool, fleet: Fleet | None, options: Options
) -> Iterator[tuple[int, Row, Result]]:
    """Yield the rows of all runs with their results: by a budget, on a cluster, or class by class on this machine."""
    if budgeted:
        for number, run in enumerate(runs):
            yield from ((number, row, result) for row, result in run.rows(rows[number]))
        return
    todo = yield from many.known(runs, rows)
    for number, run in enumerate(runs):
        run.progress.plan([names_of(each.by_key) for each in todo if each.run == number or fleet is None])
    if fleet is not None:
        yield from many.together(runs, todo, fleet)
    elif todo:
        with Local(options.jobs) as executor:
            yield from in_turn(runs, todo, executor)


@contextmanager
def open_fleet(settings: Settings) -> Iterator[Fleet]:
    """Connect to a cluster that can run all tasks; FleetError where it cannot, in one sentence."""
    from gensor_tuner.fleet.cluster import Cluster, Fleet

    assert settings.cluster is not None
    here = Local(settings.options.jobs)
    with here, Cluster(settings.cluster, note) as cluster:
        cluster.ready(["compile", *(["verify"] if settings.options.verify != "none" else [])])
        walking = bool(cluster.able("walk"))
        if not walking:
            note("walks stay on this machine: no worker's processor and NumPy give the same last bits")
        if cluster.dashboard:
            note(f"Dask's dashboard: {cluster.dashboard}")
        yield Fleet(cluster, here, () if walking else ("walk",), settings.distrust)


def _packaged_store(arch: Arch) -> AbstractContextManager[Store | None]:
    """Open the packaged database of an arch, or None if it is absent or cannot be read."""
    try:
        return Store.open(PRETUNED / f"{arch.name}.db", readonly=True)
    except StoreError:
        return nullcontext()


def _of_part(drawn: list[Workload], store: Store, arch: Arch, part: Arch) -> list[Workload]:
    """Return the Workloads whose picks are judged on a part: the drawn ones, and those recorded for another part."""
    recorded = [] if part == arch else [Workload.from_json(row.key) for row in store.rows(Record, arch=arch.name)]
    return [*dict.fromkeys([*(each.with_epilogue(()) for each in recorded), *drawn])]


def pretune(arch_name: str, shapes: Path, out: Path | None, options: Options, drawn: int) -> int:
    """Tune the shapes, and `drawn` Workloads with bad picks, into the database that ships; builds resume."""
    arch = lookup(arch_name)
    target = out or Path(__file__).resolve().parents[2] / "database" / "pretuned" / f"{arch.name}.db"
    if not is_replaceable(target):  # checked before hours of work
        raise ConfigError(f"--out {target}: a database can take the place of a regular file only")
    scratch = config.cache_dir() / f"pretune-{arch.name}.db"
    code = tune(Settings([arch_name], scratch, options, named=False), shapes)
    with Store.open(scratch) as store:
        run = Run(arch, store, options)
        asked = [each for each in mending(drawn) if run.unsupported(each) is None]
        counts = ship(store, arch, target, asked)
        if asked:
            with Local(options.jobs) as executor:
                for part in peers(arch):
                    own = Run(part, store, options)
                    wanted = [each for each in _of_part(asked, store, arch, part) if own.unsupported(each) is None]
                    found = find_missed(wanted, part, library_of(store, part), executor)
                    note(f"{part.part}: {len(found)} of {len(wanted)} Workloads are tuned for further kernels")
                    own.stock(found, executor)
                    counts = ship(store, arch, target, asked)
    for leftover in scratch.parent.glob(f"{scratch.name}*"):
        leftover.unlink()
    say(f"{target}: {target.stat().st_size} bytes, {counts_text(dict(sorted(counts.items())))}")
    return code
