"""Implementation of the subcommands that tune, show and export. Each returns an exit code; stdout carries data only."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gensor_database.exchange import export as export_store
from gensor_database.layers import PRETUNED
from gensor_database.store import Store, StoreError
from gensor_database.text import duration
from gensor_database.writing import is_replaceable
from gensor_kernels import config
from gensor_kernels.build import nvrtc, parallel
from gensor_kernels.errors import ConfigError, GensorError
from gensor_kernels.machine.arch import Arch, capability_name, lookup
from gensor_kernels.machine.arch import archs as all_archs
from gensor_tuner.budget.run import BudgetedRun
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.measure.on_board import RemoteTimer, RemoteVerifier
from gensor_tuner.measure.timer import Timer, open_timer
from gensor_tuner.output import beside, json_lines, plural, printable, say, write_line
from gensor_tuner.run import many
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.drawn import find_missed, mending
from gensor_tuner.run.result import Result, json_line
from gensor_tuner.run.shards import Shard
from gensor_tuner.run.shipped import library_of, ship
from gensor_tuner.run.table import InOrder, Table, next_steps, summary, totals
from gensor_tuner.run.tune import Run, in_turn, names_of
from gensor_tuner.run.unfinished import Unfinished
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.store.uses import name_of
from gensor_tuner.tasks.local import Local
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.verify import check_compilers

from .fleet_progress import ArchProgress, FleetShown
from .progress import Shown

if TYPE_CHECKING:
    from gensor_tuner.fleet.executor import Fleet


def cores(jobs: int) -> int:
    """Return the number of jobs for `--jobs`: 0 means every core this process may use."""
    return jobs or parallel.usable_cores()


def database(path: Path | None) -> Path:
    """Return the path given by `--db`, else the user's database from the environment."""
    return path if path is not None else config.user_database()


def existing_file(path: Path | None) -> Path:
    """Return the database's path, or raise ConfigError with advice where there is no such file."""
    file = database(path)
    if not os.path.exists(file):  # false also for a name that is too long
        raise ConfigError(f"{file} does not exist: tune into it first, or name another database with --db")
    return file


def existing(path: Path | None) -> Store:
    """Open the database for reading; errors as in `existing_file`."""
    return Store.open(existing_file(path), readonly=True)


def verifier_for(arch: Arch, verify: str) -> AbstractContextManager[DeviceVerifier | None]:
    """Return a context manager with the verifier for `--verify device`, or with None for the other methods.

    Raises GpuError where the GPU is missing or has another architecture.
    """
    if verify != "device":
        return nullcontext()
    try:
        return DeviceVerifier(partial(open_gpu, arch)).start()
    except GpuError as error:
        raise GpuError(f"--verify device needs a GPU of {arch.name}: {error}") from None


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
            say(f"gensor-tune: not measuring: {error}", file=sys.stderr)
        return None


def tune(
    arch_names: Sequence[str],
    shapes: Path,
    db: Path | None,
    options: Options,
    *,
    measure: str,
    budget: float | None,
    json_path: Path | None,
    quiet: bool,
    named: bool = True,
    model: str = "",
    cluster: str | None = None,
    distrust: bool = False,
    shard: Shard | None = None,
) -> int:
    """Tune a shapes file for one arch or several; return 1 where a row was bad, failed or skipped, else 0.

    Records name their rows where `named`. For the shapes of a `model`, they name the model in place of the file, and
    the lines of `--json` also report how the end-to-end time falls. `cluster` is the address of a Dask cluster, whose
    workers are believed unless `distrust`. `shard`: tune this share of the classes alone.
    """
    archs = [lookup(name) for name in arch_names]
    rows = read_shapes(shapes, lambda line: None if model else say(f"gensor-tune: {line}", sys.stderr))
    shares = [rows] * len(archs) if shard is None else shard.rows(rows, archs)
    every = sum(map(len, shares))
    check_compilers(options.verify, options.jobs)
    path, label = database(db), model or name_of(shapes)
    began = time.perf_counter()
    results: list[tuple[int, Row, Result]] = []
    with ExitStack() as stack:
        fleet = None if cluster is None else stack.enter_context(open_fleet(cluster, options, distrust))
        if fleet is not None:
            options = replace(options, jobs=fleet.jobs)
        verifiers: list[DeviceVerifier | RemoteVerifier | None]
        timers: list[Timer | RemoteTimer | None]
        if fleet is None:
            verifiers = [stack.enter_context(verifier_for(arch, options.verify)) for arch in archs]
            timers = [timer_for(arch, measure) for arch in archs]
        else:
            verifiers = [RemoteVerifier(arch.part, fleet) if options.verify == "device" else None for arch in archs]
            timers = [_remote_timer(arch, measure, fleet) for arch in archs]
            required = measure == "require" or options.verify == "device"
            fleet.cluster.ready((), [arch.part for arch in archs] if required else ())
        lines = stack.enter_context(json_lines(json_path))
        store = stack.enter_context(Store.open(path))
        unfinished = stack.enter_context(Unfinished.of(path))
        progress: Shown | FleetShown
        if fleet is None:
            progress = Shown(options.jobs, options.top, budget, every, quiet)
        else:
            bars = [
                ArchProgress(name, len(own), lambda: options.jobs) for name, own in zip(arch_names, shares, strict=True)
            ]
            progress = FleetShown(bars, fleet.cluster.at_work, quiet)
        stack.enter_context(closing(progress))
        table = Table(rows, arch_names)
        say(table.header(), flush=True)

        def conclude() -> None:
            """Print the rest of the table and the summary, whatever has ended the run."""
            progress.close()
            ordered.rest()
            who = "gensor-tune: " + (f"shard {shard}: " if shard is not None else "")  # not the totals of whole models
            for line in [] if len(results) == every else [f"stopped after {len(results)} of {every} rows"]:
                say(f"{who}{line}", sys.stderr)
            for number, name in enumerate(arch_names):
                own = [(row, result) for run, row, result in results if run == number]
                told = [*summary([result for _, result in own]), *totals(own, label)] if own or not rows else []
                for line in told:
                    say(f"{who}{f'{name}: ' if len(archs) > 1 else ''}{line}", sys.stderr)
            took = duration((time.perf_counter() - began) * 1e6)
            compiled = nvrtc.compile_count() + (0 if fleet is None else fleet.cluster.counts["compile"])
            say(f"gensor-tune: {took}, {compiled} {plural('compilation', compiled)}", file=sys.stderr, flush=True)

        ordered = InOrder(
            [(number, row) for number, own in enumerate(shares) for row in own],
            lambda number, row, result: progress.row(table.line(row, result, arch_names[number])),
        )
        searching = options.strategy == "walk" and options.graph == "full"  # others are compared on what they find

        def fell(after_s: float, us: float, served: int, workloads: int) -> None:
            """Write a line about the end-to-end time: of verified kernels once all workloads are served."""
            told = {"after_s": round(after_s, 3), "end_to_end_us": us, "served": served, "workloads": workloads}
            write_line(lines if model else None, json.dumps(told))

        runs = []
        for number, arch in enumerate(archs):
            kind: Callable[..., Run] = Run
            if budget is not None:
                packaged = stack.enter_context(_packaged_store(arch)) if searching else None
                kind = partial(BudgetedRun, budget=budget, packaged=packaged, fell=fell)
            shown = progress.of(number)
            run = kind(arch, store, options, shown, timers[number], verifiers[number], notify=progress.notify)
            run.unfinished, run.executor = unfinished, fleet
            run.file, run.in_file = label if named else None, rows
            runs.append(run)
        stack.callback(conclude)
        named_archs = ", ".join(f"{arch.name} ({arch.part})" for arch in archs)
        told = f"{len(rows)} {plural('row', len(rows))}" if shard is None else shard.describe(shares, rows)
        say(f"gensor-tune: {told} for {named_archs} into {path}", file=sys.stderr)
        for number, row, result in _tune_archs(runs, shares, budget is not None, fleet, options):
            results.append((number, row, result))
            progress.report(number)
            if row.error is not None and number == 0:  # the same for every arch
                progress.notify(row.error)
            write_line(lines, json_line(row, result, archs[number]))
            ordered.add(number, row, result)
    if any(result.status == "ok" for *_, result in results):
        say(f"gensor-tune: {next_steps(path, path == _users())}", file=sys.stderr)
    return 1 if any(result.status in ("failed", "skipped") for *_, result in results) else 0


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


def _remote_timer(arch: Arch, measure: str, fleet: Fleet) -> RemoteTimer | None:
    """Return a timer on the workers that have a part, or None if no worker measures."""
    if measure == "never" or (measure == "auto" and not fleet.cluster.measuring(arch.part)):
        return None
    return RemoteTimer(arch.part, fleet)


def check_cluster(address: str) -> None:
    """Raise ConfigError unless an address is what `--cluster` takes."""
    from gensor_tuner.fleet.connect import AddressError, check

    try:
        check(address)
    except AddressError as error:
        raise ConfigError(str(error)) from None


@contextmanager
def open_fleet(address: str, options: Options, distrust: bool) -> Iterator[Fleet]:
    """Connect to a cluster that can run all tasks; FleetError where it cannot, in one sentence."""
    from gensor_tuner.fleet.cluster import Cluster
    from gensor_tuner.fleet.executor import Fleet

    def notify(line: str) -> None:
        say(f"gensor-tune: {line}", sys.stderr)

    here = Local(options.jobs)
    with here, Cluster(address, notify) as cluster:
        cluster.ready(["compile", *(["verify"] if options.verify != "none" else [])])
        walking = bool(cluster.able("walk"))
        if not walking:
            notify("walks stay on this machine: no worker's processor and NumPy give the same last bits")
        if cluster.dashboard:
            notify(f"Dask's dashboard: {cluster.dashboard}")
        yield Fleet(cluster, here, () if walking else ("walk",), distrust)


def _packaged_store(arch: Arch) -> AbstractContextManager[Store | None]:
    """Open the packaged database of an arch, or None if it is absent or cannot be read."""
    try:
        return Store.open(PRETUNED / f"{arch.name}.db", readonly=True)
    except StoreError:
        return nullcontext()


@contextmanager
def shapes_of(model: Path, arch: str, inputs: Sequence[str]) -> Iterator[Path]:
    """The shapes that a model calls, as a file that is there while they are tuned."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"{model.stem}.csv"
        model_shapes(model, out, arch, inputs)
        yield out


def model_shapes(model: Path, out: Path, arch: str, inputs: Sequence[str]) -> None:
    """Write the shapes that a model calls."""
    from gensor_tuner.shapes import from_model, model_cache

    model_cache.write(model, out, lookup(arch).name, from_model.extents_of(inputs))


def run_model(
    model: Path, emulate: str | None, inputs: Sequence[str], plot: Path | None, json_path: Path | None
) -> None:
    """Run a model once, and print its layers; with `plot`, time them where a GPU is, and draw them."""
    from gensor_tuner.report import layers as drawing
    from gensor_tuner.shapes import from_model

    with json_lines(json_path) as lines:
        found = from_model.layers(model, emulate, from_model.extents_of(inputs), timed=plot is not None)
        for line in drawing.json_lines(found) if lines is not None else ():
            write_line(lines, line)
        for line in str(found).split("\n"):
            say(line)
        if plot is not None:
            part = lookup(emulate).part if emulate else "this machine's GPU"
            drawing.plot(found, printable(f"{model.name} on {part}", 80), plot)
            say(f"gensor-tune: the plot is in {plot}", file=sys.stderr)


def _users() -> Path | None:
    try:
        return config.user_database()
    except ConfigError:
        return None


def capability(arch: str | None) -> str | None:
    """Return the compute capability that rows are stored under, for a part's or a capability's name.

    A capability that archs.toml does not list is accepted as it is.
    """
    return None if arch is None else capability_name(arch) or lookup(arch).name


def show(db: Path | None, arch: str | None, kernel: str | None, as_json: bool, source: bool) -> int:
    """Print all records, or the kernels whose digest begins with `kernel`, or the source of one."""
    from gensor_tuner.store.show import kernel_lines, record_lines, source_lines

    with existing(db) as store:
        if kernel is not None and source:
            lines = source_lines(store, kernel)
        elif kernel is not None:
            lines = list(kernel_lines(store, kernel))
            if not lines:
                raise GensorError(f"{store.path} has no kernel whose digest begins with '{kernel}'")
        else:
            lines = list(record_lines(store, capability(arch), as_json))
    for line in lines:
        say(line)
    return 0


def export(out: Path, db: Path | None, arch: str | None) -> int:
    """Write records in the format of the file's ending, or a compact database."""
    from gensor_tuner.store.export import write_records
    from gensor_tuner.store.inspection import counts_text

    only = capability(arch)
    with existing(db) as store:
        if out.suffix == ".db":
            if only is None:
                raise ConfigError("export to a database needs --arch sm_XX: a shipped database serves one capability")
            try:
                counts = export_store(store, out, only)
            except StoreError as error:  # its message names the unfinished temporary file
                raise ConfigError(f"{out} cannot be written: {str(error).rpartition(': ')[2]}") from None
            say(f"{out}: {counts_text(dict(sorted(counts.items())))} for {only}")
        else:
            count = write_records(store, out, only)
            say(f"{count} {plural('record', count)} in {'stdout' if str(out) == '-' else out}", file=beside(out))
    return 0


def pretune(arch_name: str, shapes: Path, out: Path | None, options: Options, drawn: int) -> int:
    """Tune into a scratch database and export the rows of the arch as the database that ships with the package.

    Then `drawn` Workloads are walked, kernels are tuned where the picks of dispatch are far from the best (see
    `drawn.find_missed`), and the database is exported again.  An interrupted build resumes from the scratch database; a
    finished build deletes it.
    """
    from gensor_tuner.store.inspection import counts_text

    arch = lookup(arch_name)
    target = out or Path(__file__).resolve().parents[2] / "database" / "pretuned" / f"{arch.name}.db"
    if not is_replaceable(target):  # checked before hours of work
        raise ConfigError(f"--out {target}: a database can take the place of a regular file only")
    scratch = config.cache_dir() / f"pretune-{arch.name}.db"
    code = tune(
        [arch_name], shapes, scratch, options, measure="never", budget=None, json_path=None, quiet=False, named=False
    )
    with Store.open(scratch) as store:
        run = Run(arch, store, options)
        asked = [each for each in mending(drawn) if run.unsupported(each) is None]
        counts = ship(store, arch, target, asked)
        if asked:
            with Local(options.jobs) as executor:
                found = find_missed(asked, arch, library_of(store, arch), executor)
                told = f"{len(found)} of {len(asked)} drawn Workloads are tuned for further kernels"
                say(f"gensor-tune: {told}", sys.stderr)
                run.stock(found, executor)
            counts = ship(store, arch, target, asked)
    for leftover in scratch.parent.glob(f"{scratch.name}*"):
        leftover.unlink()
    size = target.stat().st_size
    say(f"{target}: {size} bytes, {counts_text(dict(sorted(counts.items())))}")
    return code


def archs() -> int:
    """Print the architecture table."""
    head = f"{'arch':<8} {'part':<22} {'SMs':>4} {'GHz':>6} {'GB/s':>6}"
    say(f"{head} {'fp32':>7} {'fp16':>7} {'int8':>7} {'fp16 kept':>9}  unsure")
    for arch in all_archs():
        peaks = [arch.peak(dtype) / 1e12 for dtype in ("float32", "float16", "int8")]
        kept = f"{arch.sustained['f16']:.1f}" if "f16" in arch.sustained else ""
        figures = " ".join(f"{peak:>7.1f}" for peak in peaks) + f" {kept:>9}"
        unsure = ", ".join(sorted(arch.unsure))
        say(
            f"{arch.name:<8} {arch.part:<22} {arch.sms:>4} {arch.clock_ghz:>6.2f} {arch.dram_gb_s:>6.0f} "
            f"{figures}  {unsure}"
        )
    say(
        json.dumps(
            {
                "unit": "fp32, fp16, int8 in TFLOP/s (TOP/s), dense, float32 or int32 accumulation",
                "fp16 kept": "the best published rate of large products on ordinary data, where power limits them",
            }
        ),
        file=sys.stderr,
    )
    return 0
