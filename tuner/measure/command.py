"""`gensor-tune measure`: stored kernels and CuPy timed on this machine's GPU, Workload by Workload.

Nothing is compiled. A kernel that faults or hangs destroys the CUDA context of the board's process, not the command's.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from gensor_database import Catalog, Record, Store, Timing, UnreadableStoreError, Verification, canonical, duration
from gensor_database.timings import quiet, winner
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.library import Kernel, Library
from gensor_kernels.dispatch.selection.tiers import Request, candidates
from gensor_kernels.errors import MALFORMED, BuildError, ConfigError, GensorError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.validation import workload_of
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.own.stored import name_of
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError
from gensor_tuner.output import note, say, sizes_text, write_json
from gensor_tuner.shapes.reader import read_shapes

from .board import FAILED, NO_MEMORY, NOT_LOADED, Board, BoardGoneError
from .timer import Timed, vendor_name

PATIENCE = 300.0  # seconds that a kernel may take
CANDIDATES = 8  # kernels timed per Workload, the recorded kernel first
FAILURES = 3  # consecutive failed Workloads before the device is given up
NO_CUBIN = "it would have to be compiled: no cubin that may be loaded is stored for this arch"


@dataclass
class Measured:
    """The outcome of one Workload: "ok", "known" from an earlier run; "unsupported", "skipped", "failed" with `error`.

    Before the Workload is measured, `status` is "". Times are in microseconds; `left` maps kernels that were not timed
    to the reason.
    """

    key: str
    name: str
    status: str = ""
    error: str | None = None
    kernels: int = 0
    left: dict[str, str] = field(default_factory=dict)
    winner: str | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    seconds: float = 0.0

    def line(self) -> str:
        """Return the line of the table."""
        head = f"{self.name[:52]:<52} {self.status:<11}"
        if self.measured_us is None:
            return f"{head} {self.error or ''}".rstrip()
        theirs = f"{duration(self.vendor_us):>10} {self.vendor_us / self.measured_us:>6.2f}x" if self.vendor_us else ""
        return (
            f"{head} {self.kernels:>3} kernels {duration(self.measured_us):>10} {theirs:<21} "
            f"{(self.winner or 'cupy')[:12]}"
        )

    def fields(self, conditions: str) -> dict[str, Any]:
        """Return the line of the `--json` file."""
        fields = {"workload": _workload_of(self.key), "status": self.status, "winner": self.winner}
        fields |= {"measured_us": self.measured_us, "vendor_us": self.vendor_us, "kernels": self.kernels}
        fields |= {"left": self.left, "conditions": json.loads(conditions), "seconds": round(self.seconds, 4)}
        return fields | {"error": self.error}


def _workload_of(key: str) -> object:
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        return key[:200]


class Measurement:
    """Times Workloads of at most `memory` bytes on `board`, and stores the times in `target`, one of the `readers`."""

    def __init__(self, board: Board, target: Store, readers: Sequence[Store], memory: int | None):
        self.board, self.target, self.readers, self.memory = board, target, readers, memory
        self.arch, _, self.conditions = board.about()
        self.catalog = Catalog(readers, self.arch.name, {name: family.abi for name, family in FAMILIES.items()})
        self.library = Library(load.contents(self.catalog, self.arch))
        self._in_a_row = 0

    def measure(self, found: Measured) -> None:
        """Measure a Workload and commit its rows; raise GpuError where the device is no longer usable."""
        began = time.monotonic()
        try:
            found.status, found.error = self._measure(workload_of(found.key), found)
        except MALFORMED as error:
            found.status, found.error = "unsupported", f"not a workload of this version: {error}"
        found.seconds = time.monotonic() - began
        self._in_a_row = self._in_a_row + 1 if found.status == "failed" else 0
        if found.status in ("ok", "known"):
            rows = {row.digest: row for store in self.readers for row in store.timings(found.key, self.arch.part)}
            best = winner(row for row in rows.values() if row.device == self.conditions)
            if best is not None:
                found.winner, found.measured_us, found.vendor_us = best.kernel_digest, best.median_us, best.vendor_us
        if self._in_a_row >= FAILURES:
            raise GpuError(f"the GPU failed at {FAILURES} workloads one after the other, the last time: {found.error}")

    def _measure(self, workload: Workload, found: Measured) -> tuple[str, str | None]:
        """Return the status and the error."""
        stored = {kernel.digest: _stored(kernel) for kernel in self._candidates(workload)}
        found.left = {digest: NO_CUBIN for digest, each in stored.items() if each is None}
        chosen = {digest: each for digest, each in stored.items() if each is not None}
        done = chosen.keys() & self._timed(workload)
        todo = [digest for digest in chosen if digest not in done]
        found.kernels = len(done)
        if todo:
            needed = workload.bytes_moved()
            if self.memory is not None and needed > self.memory:
                return "unsupported", f"{NO_MEMORY}: its arrays have {needed} bytes, {self.memory} are allowed"
            try:
                times = self.board.time(workload, [chosen[digest] for digest in todo], vendor=True)
            except (RuntimeError, BoardGoneError) as error:
                return "failed", str(error)
            if times.lost:
                return "unsupported" if times.lost.startswith(NO_MEMORY) else "failed", times.lost
            reasons = [reason.removeprefix(NOT_LOADED).removeprefix(FAILED) for reason in times.why]
            found.left |= {digest: reason for digest, reason in zip(todo, reasons, strict=True) if reason}
            timed = {digest: each for digest, each in zip(todo, times.timed, strict=True) if each is not None}
            if timed:
                found.kernels += len(timed)
                self._add(workload, timed, times.vendor)
                place = canonical({"part": self.arch.part})
                bad = [(todo[index], "device", "failed", reasons[index]) for index in times.failed]
                self.target.add(*(Verification(*each, provenance=place) for each in bad))
                return "ok", None
        return ("known", None) if done else ("unsupported", next(iter(found.left.values()), self._why_none(workload)))

    def _candidates(self, workload: Workload) -> list[Kernel]:
        """Return the recorded kernel, then matching kernels of portfolios by descending likelihood."""
        request = Request(Problem(workload, Geometry((1, 1, 1)), ()), self.arch, False, True)
        ranked = sorted(candidates(request, self.library), key=lambda entry: entry[:3])
        recorded = self.library.record(workload)
        found = [*([recorded] if recorded is not None else []), *(entry[3] for entry in ranked)]
        return list(dict.fromkeys(found))[:CANDIDATES]

    def _timed(self, workload: Workload) -> set[str]:
        """Return the kernels timed under the current conditions.

        Races of the runtime (fewer samples) and times taken in the background of a program do not count.
        """
        rows = [row for store in self.readers for row in store.rows(Timing, key=workload.key(), part=self.arch.part)]
        current = [row for row in quiet(rows) if row.device == self.conditions]
        current = [row for row in current if not json.loads(row.samples).get("race")]
        return {row.kernel_digest for row in current if row.kernel_digest is not None}

    def _add(self, workload: Workload, timed: dict[str, Timed], vendor: Timed | None) -> None:
        place = (workload.key(), self.arch.name, self.arch.part)
        found: list[tuple[tuple[str | None, str | None], Timed]] = [((name, None), us) for name, us in timed.items()]
        found += [((None, vendor_name(workload)), vendor)] if vendor is not None else []
        rows = [Timing(*place, *who, us.median_us, us.samples(), self.conditions) for who, us in found]
        self.target.add(*rows)

    def _why_none(self, workload: Workload) -> str:
        key, arch = workload.key(), self.arch.name
        records = [row for store in self.readers for row in store.records(key, arch) if row.kernel_digest]
        for record in records:
            found = self.catalog.kernel(record.kernel_digest or "")
            if found is None:
                return "its kernel is missing, or of another ABI version: gensor-tune refresh rebuilds it"
            if not found.usable:
                return f"its kernel {found.kernel.digest[:12]} is not usable: verified {found.verified}"
        return "no stored kernel fits it"


def _stored(kernel: Kernel) -> tuple[Candidate, Code] | None:
    """Return a kernel for a timer, None without machine code."""
    try:
        code = kernel.code
    except BuildError:  # its rows are missing
        return None
    return (Candidate(kernel.program, canonical(dict(code.constants))), code) if code.cubin else None


def measure(
    path: Path, out: Path | None, shapes: Path | None, budget: float | None, memory: int | None, lines: TextIO | None
) -> int:
    """Time the kernels of the database at `path`; return 1 where a Workload failed or was not reached.

    Times go to the database `out`, by default the same. Only the rows of the file `shapes` are timed, by default all
    records of the device's arch; none is started after `budget` seconds. At most `memory` bytes of device memory are
    used. `lines` receives one JSON object per Workload.
    """
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with ExitStack() as stack:
        source = stack.enter_context(Store.open(path, readonly=True))
        target = stack.enter_context(_target(out or path))
        board = stack.enter_context(Board(0, memory, seconds=PATIENCE))
        run = Measurement(board, target, [target] if target.path == source.path else [target, source], memory)
        if not source.trusted:
            note(f"cubins of {path} are not loaded: others can write to it")
        note(f"measuring on {run.arch.part} {run.conditions} into {target.path}")
        for found in _rows_of_file(source, run.arch.name, shapes):
            if not found.status and budget is not None and time.monotonic() - began > budget:
                found.status = "skipped"
                found.error = f"the budget of {budget:g} s was spent before this workload; run again to go on"
            elif not found.status:
                run.measure(found)
            counts[found.status] += 1
            counts["won"] += found.measured_us is not None and found.winner is not None
            say(found.line(), flush=True)
            write_json(lines, found.fields(run.conditions))
    statuses = ("ok", "known", "unsupported", "skipped", "failed")
    summary = ", ".join(f"{counts[status]} {status}" for status in statuses if counts[status])
    timed = counts["ok"] + counts["known"]
    note(f"{summary or 'nothing to measure'}; kernels win {counts['won']} of {timed}")
    return 1 if counts["failed"] or counts["skipped"] else 0


def _target(path: Path) -> Store:
    try:
        return Store.open(path)
    except UnreadableStoreError as error:
        raise GensorError(f"{error}; --out FILE takes the times elsewhere, for merge") from None


def _rows_of_file(source: Store, arch: str, shapes: Path | None) -> list[Measured]:
    """Return the Workloads of a shapes file, or of every record of the arch, each once."""
    if shapes is None:
        return [_of_record(key) for key in sorted({row.key for row in source.rows(Record, arch=arch)})]
    found: dict[str, Measured] = {}
    for row in read_shapes(shapes):
        if row.workload is not None:
            key = row.workload.key()
            found.setdefault(key, Measured(key, _name(key)))
        else:
            status = "unsupported" if row.error is None else "failed"
            found[f"line {row.line}"] = Measured("null", row.name, status, row.error or row.unsupported)
    return list(found.values())


def _of_record(key: str) -> Measured:
    with suppress(ConfigError):
        return Measured(
            key, name_of(key), "unsupported", "your own kernel: gensor_kernels.own.load times it when called"
        )
    return Measured(key, _name(key))


def _name(key: str) -> str:
    try:
        workload = Workload.from_json(key)
        return f"{workload.operator} {sizes_text(workload)} {workload.kind} {'_'.join(workload.epilogue)}".strip()
    except MALFORMED:  # its measurement reports what is wrong with it
        return ascii(key)[:52]
