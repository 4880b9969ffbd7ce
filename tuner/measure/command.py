"""`gensor-tune measure`: stored kernels and CuPy timed on this machine's GPU, Workload by Workload."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from gensor_database import Record, Store, Timing, UnreadableStoreError, Verification, canonical, duration, winner
from gensor_kernels.dispatch.tuning.worker import Worker, WorkerError
from gensor_kernels.errors import GensorError
from gensor_kernels.families.validation import MALFORMED
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.gpu import GpuError
from gensor_tuner.output import say, sizes_text, write_line
from gensor_tuner.shapes.reader import read_shapes

#: The command that times kernels in a separate process; a memory limit and the databases follow.
COMMAND = (sys.executable, "-m", "gensor_tuner.measure.process")
PATIENCE = 300.0  # seconds one Workload may take
ATTEMPTS = 2  # before a kernel is blamed for a process that died or did not answer
FAILURES = 3  # consecutive failed Workloads before the device is given up


def start_worker(arguments: list[str]) -> Worker:
    """Return the worker, whose process starts with the first request."""
    return Worker((*COMMAND, *arguments), PATIENCE)


@dataclass
class Measured:
    """The outcome of one Workload: "ok", "known" from an earlier run; "unsupported", "skipped", "failed" with `error`.

    Times are in microseconds; `left` maps kernels that were not timed to the reason.
    """

    key: str
    name: str
    status: str
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

    def to_json(self, conditions: str) -> str:
        """Return the line of the `--json` file."""
        fields = {"workload": _workload_of(self.key), "status": self.status, "winner": self.winner}
        fields |= {"measured_us": self.measured_us, "vendor_us": self.vendor_us, "kernels": self.kernels}
        fields |= {"left": self.left, "conditions": json.loads(conditions), "seconds": round(self.seconds, 4)}
        return json.dumps(fields | {"error": self.error}, separators=(",", ":"))


class Asked(NamedTuple):
    """A Workload to measure; for an unusable row, status and error are set."""

    key: str
    name: str
    status: str | None = None
    error: str | None = None


class Measurement:
    """Times Workloads through `worker` and stores the times in `target`; `about` is the worker's description."""

    def __init__(self, worker: Worker, target: Store, readers: Sequence[Store], about: dict[str, Any]):
        self.worker, self.target, self.readers = worker, target, readers
        self.arch, self.part, self.conditions = about["arch"], about["part"], about["conditions"]
        self._in_a_row = 0

    def measure(self, key: str, name: str) -> Measured:
        """Measure one Workload and commit its rows; raise GpuError where the device is no longer usable."""
        began, reply = time.monotonic(), self._request(key)
        if reply["status"] == "ok":
            self.target.add(*(Timing(**row) for row in reply["rows"]))
        self._in_a_row = self._in_a_row + 1 if reply["status"] == "failed" else 0
        found = Measured(key, name, reply["status"], reply.get("error"), reply.get("kernels", 0), reply.get("left", {}))
        found.seconds = time.monotonic() - began
        if found.status in ("ok", "known"):
            best = winner(self._timings(key))
            if best is not None:
                found.winner, found.measured_us, found.vendor_us = best.kernel_digest, best.median_us, best.vendor_us
        if self._in_a_row >= FAILURES:
            raise GpuError(f"the GPU failed at {FAILURES} workloads one after the other, the last time: {found.error}")
        return found

    def _request(self, key: str) -> dict[str, Any]:
        """Return the worker's answer without the kernels that fail.

        A kernel at which the device faults once or the process ends twice is left out, and rejected in the database
        once other kernels show that the device works.
        """
        ends: Counter[str] = Counter()
        bad: dict[str, str] = {}
        while len(bad) < FAILURES:
            reply = self._reply({"workload": key, "without": list(bad)})
            trying = reply.get("trying")
            if reply["status"] not in ("fault", "ended"):
                if reply["status"] == "ok":
                    place = canonical({"part": self.part})
                    for kernel, reason in bad.items():
                        self.target.add(Verification(kernel, "device", "failed", reason, provenance=place))
                return reply | {"left": bad | reply.get("left", {})}
            if trying is None:
                return {"status": "failed", "error": reply["error"]}
            ends[trying] += 1
            if reply["status"] == "fault" or ends[trying] == ATTEMPTS:
                bad[trying] = reply["error"]
        return {"status": "failed", "error": f"{len(bad)} kernels, one after the other: {reply['error']}", "left": bad}

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = self.worker.ask(request)
        except WorkerError as failure:
            return {"status": "ended", "error": str(failure), "trying": failure.trying}
        if reply["status"] == "fault":
            self.worker.close()  # its CUDA context is lost
        return reply

    def _timings(self, key: str) -> Iterator[Timing]:
        rows = {row.digest: row for store in self.readers for row in store.timings(key, self.part)}
        return (row for row in rows.values() if row.device == self.conditions)


def _workload_of(key: str) -> Any:
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        return key[:200]


def measure(
    path: Path,
    out: Path | None,
    shapes: Path | None,
    budget: float | None,
    memory: int | None,
    lines: TextIO | None,
    start: Callable[[list[str]], Worker] = start_worker,
) -> int:
    """Time the kernels of the database at `path`; return 1 where a Workload failed or was not reached.

    Times go to the database `out`, by default the same. Only the rows of the file `shapes` are timed, by default all
    records of the device's arch; none is started after `budget` seconds. At most `memory` bytes of device memory are
    used. `lines` receives one JSON object per Workload. Tests replace `start`, which starts the worker.
    """
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with ExitStack() as stack:
        source = stack.enter_context(Store.open(path, readonly=True))
        target = stack.enter_context(_target(out or path))
        paths = [str(each) for each in dict.fromkeys((target.path, source.path))]
        worker = stack.enter_context(closing(start([str(memory or 0), *paths])))
        about = _about(worker)
        if str(source.path) in about["untrusted"]:
            say(f"gensor-tune: cubins of {path} are not loaded: others can write to it", file=sys.stderr)
        run = Measurement(worker, target, [target] if target.path == source.path else [target, source], about)
        say(f"gensor-tune: measuring on {run.part} {run.conditions} into {target.path}", file=sys.stderr)
        for found in _results(run, _rows_of_file(source, run.arch, shapes), budget, began):
            counts[found.status] += 1
            counts["won"] += found.measured_us is not None and found.winner is not None
            say(found.line(), flush=True)
            write_line(lines, found.to_json(run.conditions))
    statuses = ("ok", "known", "unsupported", "skipped", "failed")
    told = ", ".join(f"{counts[status]} {status}" for status in statuses if counts[status])
    timed = counts["ok"] + counts["known"]
    say(f"gensor-tune: {told or 'nothing to measure'}; kernels win {counts['won']} of {timed}", file=sys.stderr)
    return 1 if counts["failed"] or counts["skipped"] else 0


def _target(path: Path) -> Store:
    try:
        return Store.open(path)
    except UnreadableStoreError as error:
        raise GensorError(f"{error}; --out FILE takes the times elsewhere, for merge") from None


def _about(worker: Worker) -> dict[str, Any]:
    try:
        reply = worker.ask({})
    except WorkerError as error:
        raise GpuError(f"the GPU did not answer: {error}") from None
    if reply["status"] != "ok":
        raise GpuError(str(reply["error"]))
    return reply


def _results(run: Measurement, asked: Sequence[Asked], budget: float | None, began: float) -> Iterator[Measured]:
    for key, name, status, error in asked:
        if status is not None:
            yield Measured(key, name, status, error)
        elif budget is not None and time.monotonic() - began > budget:
            reason = f"the budget of {budget:g} s was spent before this workload; run again to go on"
            yield Measured(key, name, "skipped", reason)
        else:
            yield run.measure(key, name)


def _rows_of_file(source: Store, arch: str, shapes: Path | None) -> list[Asked]:
    """Return the Workloads of a shapes file, or of every record of the arch, each once."""
    if shapes is None:
        return [Asked(key, _name(key)) for key in sorted({row.key for row in source.rows(Record, arch=arch)})]
    found: dict[str, Asked] = {}
    for row in read_shapes(shapes):
        if row.workload is not None:
            key = row.workload.key()
            found.setdefault(key, Asked(key, _name(key)))
        elif row.error is not None:
            found[f"line {row.line}"] = Asked("null", row.name, "failed", row.error)
        else:
            found[f"line {row.line}"] = Asked("null", row.name, "unsupported", row.unsupported)
    return list(found.values())


def _name(key: str) -> str:
    try:
        workload = Workload.from_json(key)
        return f"{workload.operator} {sizes_text(workload)} {workload.kind} {'_'.join(workload.epilogue)}".strip()
    except MALFORMED:  # the worker reports what is wrong with it
        return ascii(key)[:52]
