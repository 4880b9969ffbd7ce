"""The result of each row: as a line of JSON and of the table; stored as database rows, and read back from them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gensor_database.record import Kernel, Record, Timing, canonical
from gensor_database.record import Row as StoreRow
from gensor_database.store import Entry, Store
from gensor_kernels.dispatch.plans.comparison import SERVERS, Comparison, compare, compared
from gensor_kernels.dispatch.plans.comparison import json_fields as compared_fields
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, current_family, program_from_json
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import bound_us, sustained_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.tables import Column, Layout
from gensor_tuner.measure.timer import vendor_name
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store import uses
from gensor_tuner.store.kernel_rows import executed_rows, kernel_rows, verification_row
from gensor_tuner.store.uses import COMPARED, Call, model_of, without, words

from .class_run import Chosen, Options, Refusal

NEAR_BOUND = 2.0  # a row is near its bound when displayed_us <= 2 x bound_us
STAGES = ("walk", "compile", "verify", "measure")


@dataclass(frozen=True)
class Result:
    """The outcome of one workload: times in microseconds, `sustained_us` is the least displayed one."""

    workload: Workload | None
    status: str  # ok | failed | unsupported | skipped (the budget was spent before)
    kernel: str | None = None  # digest of the kernel row in the store
    family: str | None = None
    program: dict[str, int] = field(default_factory=dict)
    predicted_us: float | None = None
    bound_us: float | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    verified: str = "none"  # emulator | device | none
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    stored: bool = False  # found in the database by an earlier run
    sustained_us: float = 0.0
    arch: Arch | None = None

    @property
    def comparison(self) -> Comparison | None:
        """Its times next to those of CuPy's calls, and who serves, or None if it has no kernel."""
        if self.workload is None or self.arch is None or self.displayed_us is None:
            return None
        return compare(self.workload, self.arch, self.displayed_us, self.measured_us, self.vendor_us, self.family or "")

    @property
    def displayed_us(self) -> float | None:
        """The predicted time as displayed: never below `sustained_us`."""
        return None if self.predicted_us is None else max(self.predicted_us, self.sustained_us)


def json_fields(row: Row, result: Result, arch: Arch) -> dict[str, Any]:
    """Return one row for JSON: the documented keys first, then the arch, and what the shapes file says."""
    return {
        "workload": json.loads(result.workload.key()) if result.workload else None,
        **{name: getattr(result, name) for name in ("status", "kernel", "family")},
        "program": result.program or None,
        **{name: getattr(result, name) for name in ("predicted_us", "bound_us", "measured_us", "vendor_us")},
        **compared_fields(result.comparison),
        **{name: getattr(result, name) for name in ("verified", "registers", "spill_bytes", "shared_bytes")},
        "seconds": {stage: round(result.seconds.get(stage, 0.0), 4) for stage in STAGES},
        "error": result.error,
        "arch": arch.name,
        "part": arch.part,
        **{name: getattr(row, name) for name in ("name", "line", "count", "notes")},
    }


@cache
def provenance(options: Options, settled: bool = True) -> str:
    """Return the JSON that a record keeps about its run, nothing about the machine; a budget may leave it unsettled."""
    version = metadata.version("gensor-kernels")
    made: dict[str, object] = {"gensor_kernels": version, "seed": options.seed}
    made |= {"graph": options.graph, "top": options.top}
    # The default walk stays unnamed: rows from before strategies existed remain valid for it.
    made |= {} if options.strategy in ("walk", "paper") else {"strategy": options.strategy}
    return canonical(made if settled else made | {"settled": False})


def rows_for(
    chosen: Chosen, arch: Arch, options: Options, named: Callable[[str], str] = lambda text: text
) -> tuple[list[StoreRow], str | None]:
    """Return all rows for one workload's outcome, and the digest of its kernel; `named` adds uses to provenance."""
    rows: list[StoreRow] = []
    digest, abi, outcome, error = None, 0, "failed", chosen.error
    if chosen.candidate is not None and chosen.binary is not None:
        rows += executed_rows(chosen.candidate, chosen.binary, chosen.workload, chosen.verdicts, arch)
        rows += timing_rows(chosen, arch, options.background)
        abi, outcome = chosen.candidate.family.abi, "ok"
        digest = next(row.digest for row in rows if isinstance(row, Kernel))
    place = (chosen.workload.key(), arch.name, arch.part)
    figures = (chosen.predicted * 1e6 if digest else None, bound_us(chosen.workload, arch))
    walk = chosen.trail.to_json(chosen.workload) if chosen.trail else "{}"
    how = named(provenance(options, chosen.settled))
    rows.append(Record(*place, abi, digest, *figures, outcome, error, walk, how))
    return rows, digest


def refusal_rows(refused: Iterable[Refusal], arch: Arch, known: Container[str]) -> list[StoreRow]:
    """Return rows for kernels that failed verification, so that no database treats them as usable again.

    Skips kernels whose digests are `known`, and verdicts that say nothing about the kernel's results: the emulator
    timed out (the machine may have been busy), or a device did not load the kernel.
    """
    rows: list[StoreRow] = []
    for candidate, compiled, workload, verdict in refused:
        parts = kernel_rows(candidate, compiled, workload, arch)
        if verdict.outcome in ("wrong", "failed") and parts[-1].digest not in known:
            rows += [*parts, verification_row(parts[-1], verdict)]
    return rows


def timing_rows(chosen: Chosen, arch: Arch, background: bool = False) -> list[StoreRow]:
    """Return all timings of a workload with their kernels; in the `background` a program used the same GPU."""
    rows: list[StoreRow] = []
    place = (chosen.workload.key(), arch.name, arch.part)
    for candidate, compiled, timed in chosen.timings:
        parts = kernel_rows(candidate, compiled, chosen.workload, arch)
        how = timed.samples(background), chosen.conditions
        rows += [*parts, Timing(*place, parts[-1].digest, None, timed.median_us, *how)]
    if chosen.vendor is not None:
        vendor, name = chosen.vendor, vendor_name(chosen.workload)
        rows.append(Timing(*place, None, name, vendor.median_us, vendor.samples(background), chosen.conditions))
    return rows


def result_of(chosen: Chosen, digest: str | None, arch: Arch, seconds: dict[str, float]) -> Result:
    """Return the result of a row that was just tuned."""
    bound = bound_us(chosen.workload, arch)
    if chosen.candidate is None or chosen.binary is None:
        return Result(chosen.workload, "failed", bound_us=bound, seconds=seconds, error=chosen.error)
    return replace(
        _served(chosen.workload, arch, chosen.candidate.program),
        kernel=digest,
        predicted_us=chosen.predicted * 1e6,
        bound_us=bound,
        measured_us=next((timed.median_us for each, _, timed in chosen.timings if each == chosen.candidate), None),
        vendor_us=chosen.vendor.median_us if chosen.vendor else None,
        verified=chosen.verdicts[-1].method if chosen.verdicts else "none",
        registers=chosen.binary.entries[chosen.candidate.entry].registers,
        spill_bytes=chosen.binary.spill_bytes,
        seconds=seconds,
    )


def _served(workload: Workload, arch: Arch, program: Program) -> Result:
    """Return what follows from a workload's Program alone."""
    shared = max(each.shared_bytes for each in FAMILIES[program.family].launches(program, workload))
    made = Result(workload, "ok", family=program.family, program=dict(program.values))
    return replace(made, shared_bytes=shared, sustained_us=sustained_us(workload, arch), arch=arch)


def find_result(store: Store, workload: Workload, arch: Arch, options: Options, settled: bool = True) -> Result | None:
    """Return the result that an earlier run with the same options left, or None; without `settled`, also a cut one."""
    entry = store.find(workload.key(), arch.name, arch.part)
    known = {provenance(options, each) for each in {True, settled}}
    if entry is None or without(entry.record.provenance) not in known:
        return None
    enough = {"device": entry.verified == "device", "none": True}.get(options.verify, entry.usable)
    if current_family(entry.kernel.family, entry.kernel.abi) is None or not enough:
        return None
    return _from_entry(entry, workload, arch)


def _from_entry(entry: Entry, workload: Workload, arch: Arch) -> Result | None:
    kernel, binary = entry.kernel, entry.binary(trusted=False)
    if binary is None:
        return None
    return replace(
        _served(workload, arch, program_from_json(kernel.program)),
        kernel=kernel.digest,
        predicted_us=entry.record.predicted_us,
        bound_us=entry.record.bound_us,
        verified=entry.verified,
        registers=json.loads(binary.facts).get(kernel.family, {}).get("registers", binary.registers),
        spill_bytes=binary.spill_bytes,
        stored=True,
    )


#: The most characters to which names, operators and sizes are aligned; on terminals, names and sizes have the share
#: `1 / SHARE` of a line, if that is more than a few.
TEXTS, SHARE, FEW = {"name": 40, "op": 22, "sizes": 40}, 4, 24
#: Models whose totals are printed one by one.
MOST_MODELS = 12
STATUSES = ("ok", "failed", "skipped", "unsupported")


class Table:
    """A table whose columns fit the rows of one shapes file, and the terminal where it has a `width`."""

    def __init__(self, rows: Sequence[Row], archs: Sequence[str] = (), width: int | None = None):
        cells = [_head(row) for row in rows]

        def widest(title: str) -> int:
            found = max(len(title), *(len(each[title]) for each in cells)) if cells else len(title)
            most = TEXTS.get(title, found)
            return min(found, most if width is None else min(most, max(width // SHARE, FEW)))

        counted = any(row.count != 1 for row in rows)
        self.layout = Layout(
            [
                *([Column("arch", max(map(len, archs)))] if len(archs) > 1 else []),
                Column("name", widest("name"), shrinks=True),
                Column("op", widest("op"), shrinks=True, rank=4),
                Column("sizes", widest("sizes"), shrinks=True),
                Column("calls", widest("calls"), right=True, rank=0 if counted else 2),
                Column("dtype", widest("dtype")),
                *COMPARED,
                Column("verified", 8, rank=1),
            ],
            width,
        )

    def header(self) -> str:
        """Return the names of the columns."""
        return self.layout.header()

    def line(self, row: Row, result: Result, arch: str = "") -> str:
        """Return a row; without a kernel, it ends with the reason. Times are measured where both are."""
        cells = {"arch": arch, **_head(row, result.workload)}
        if row.error is not None or result.status != "ok" or result.displayed_us is None or result.bound_us is None:
            status, reason = ("bad row", row.error) if row.error is not None else (result.status, result.error)
            return self.layout.reason(cells, f"{status}: {reason}" if reason else status)
        times = compared(result.comparison, result.displayed_us, result.bound_us)
        return self.layout.line({**cells, **times, "verified": result.verified})


def _head(row: Row, workload: Workload | None = None) -> dict[str, str]:
    """Return the cells of a row that are known before it is tuned."""
    workload = workload or row.workload
    named = zip(("op", "sizes"), words(row, workload), strict=True)
    return {"name": row.name, **dict(named), "calls": str(row.count), "dtype": workload.kind if workload else ""}


class InOrder:
    """Passes results on in the order of the shapes file, each as soon as all rows before it have one."""

    def __init__(self, rows: Sequence[tuple[int, Row]], notify: Callable[[int, Row, Result], None]):
        """Prepare for rows, each with the number of its run; `notify(run, row, result)` is called for each."""
        self.notify = notify
        self._lines = [(run, row.line) for run, row in rows]
        self._found: dict[tuple[int, int], tuple[int, Row, Result]] = {}
        self._next = 0

    def add(self, run: int, row: Row, result: Result) -> None:
        """Take a result."""
        self._found[run, row.line] = run, row, result
        while self._next < len(self._lines) and self._lines[self._next] in self._found:
            self.notify(*self._found.pop(self._lines[self._next]))
            self._next += 1

    def rest(self) -> None:
        """Pass on the results that wait for rows without one: the run has ended."""
        for line in sorted(self._found):
            self.notify(*self._found[line])
        self._found.clear()


def totals(results: Sequence[tuple[Row, Result]], file: str) -> list[str]:
    """Return a sentence about each model, or about all where they are many: the times of its calls."""
    return uses.totals(((model_of(row, file), _call(row, result)) for row, result in results), MOST_MODELS)


def _call(row: Row, result: Result) -> Call:
    return Call(row.count, result.displayed_us, result.bound_us, result.comparison, result.family or "")


def summary(results: Sequence[Result]) -> list[str]:
    """Return sentences about a run: rows by status, kernels and classes, rows near their bound."""
    counts = Counter(result.status for result in results)
    counted = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    lines = [counted or "the shapes file has no rows"]
    served = [result for result in results if result.status == "ok" and result.workload is not None]
    if served:
        kernels = len({result.kernel for result in served})
        classes = len({result.workload.class_key() for result in served if result.workload is not None})
        lines[0] += f"; kernels: {kernels}, classes: {classes}"
        ratios = [r.displayed_us / r.bound_us for r in served if r.displayed_us and r.bound_us]
        near = sum(ratio <= NEAR_BOUND for ratio in ratios)
        spread = f"median ratio {float(np.median(ratios)):.2f}, worst {max(ratios):.2f}"
        lines.append(f"predicted within 2x of the bound: {near} of {len(served)} rows; {spread}")
        used = Counter(both.serves for each in served if (both := each.comparison))
        lines += [f"served by {name}, rows: {used[name]}; {what}" for name, what in SERVERS.items() if used[name]]
        # The same calls without a dtype would give int8; convolutions give int32 anyway.
        products = [each.workload for each in served if each.workload and each.workload.operator == "matmul"]
        if any([each.dtype[name] for name in "abc"] == ["int8", "int8", "int32"] for each in products):
            lines.append('int8 products have int32 results here: call them with dtype="int32", else they give int8')
    return lines


def next_steps(db: Path, users: bool) -> str:
    """Return the next commands; `users`: whether programs read this database by default."""
    path = shlex.quote(str(db))
    read = "your programs use these kernels from now on" if users else f"GENSOR_DB={path} python your_program.py"
    return f"next: gensor-tune report --db {path}; {read}"
