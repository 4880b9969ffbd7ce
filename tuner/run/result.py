"""The result of each row: as a JSON line, as a line of the table, and in the summary of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import class_text, sizes_text
from gensor_tuner.shapes.reader import Row

STAGES = ("walk", "compile", "verify", "measure")
NEAR_BOUND = 2.0  # a row is near its bound when told_us <= 2 x bound_us


@dataclass(frozen=True)
class Result:
    """The outcome of one workload. Times are in microseconds; `seconds` holds this row's share of the tuning time.

    `sustained_us` is a lower limit for displayed predictions (`roofline.sustained_us`).
    """

    workload: Workload | None
    status: str  # ok | failed | unsupported
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

    @property
    def told_us(self) -> float | None:
        """The predicted time as displayed: never below `sustained_us`."""
        return None if self.predicted_us is None else max(self.predicted_us, self.sustained_us)

    def with_error(self, status: str, error: str) -> Result:
        """Return a copy with another status and the reason for it."""
        return replace(self, status=status, error=error)


def json_line(row: Row, result: Result) -> str:
    """Return one row as a JSON object: the documented keys first, then the shapes file's name, line and notes."""
    workload = json.loads(result.workload.key()) if result.workload else None
    fields: dict[str, Any] = {
        "workload": workload,
        "status": result.status,
        "kernel": result.kernel,
        "family": result.family,
        "program": result.program or None,
        "predicted_us": result.predicted_us,
        "bound_us": result.bound_us,
        "measured_us": result.measured_us,
        "vendor_us": result.vendor_us,
        "verified": result.verified,
        "registers": result.registers,
        "spill_bytes": result.spill_bytes,
        "shared_bytes": result.shared_bytes,
        "seconds": {stage: round(result.seconds.get(stage, 0.0), 4) for stage in STAGES},
        "error": result.error,
        "name": row.name,
        "line": row.line,
        "count": row.count,
        "notes": row.notes,
    }
    return json.dumps(fields, separators=(",", ":"))


HEADER = f"{'name':<28} {'sizes':<20} {'dtype':<13} {'status':<11} {'family':<17} {'kernel':<10} "
HEADER += f"{'predicted':>10} {'bound':>10} {'ratio':>6} {'regs':>5} {'verified':<8}"


def table_line(row: Row, result: Result) -> str:
    """Return one row of the table on stdout; a row without a kernel shows its reason instead."""
    sizes = sizes_text(result.workload) if result.workload else ""
    dtype = result.workload.kind if result.workload else ""
    head = f"{row.name[:28]:<28} {sizes:<20} {dtype:<13} {result.status:<11} "
    if result.status != "ok" or result.told_us is None or result.bound_us is None:
        return head + (result.error or "")
    ratio = result.told_us / result.bound_us
    times = f"{_microseconds(result.told_us):>10} {_microseconds(result.bound_us):>10} {ratio:>6.2f}"
    kernel = (result.kernel or "")[:10]
    return f"{head}{result.family:<17} {kernel:<10} {times} {result.registers or 0:>5} {result.verified:<8}"


def _microseconds(value: float) -> str:
    return f"{value:.1f} us" if value < 10_000 else f"{value / 1000:.1f} ms"


def end_to_end(results: Sequence[tuple[Row, Result]]) -> str:
    """Return a sentence with the sum of calls times predicted time over all rows that have a kernel."""
    served = [(row.count, result.told_us) for row, result in results if result.told_us is not None]
    total = sum(count * predicted for count, predicted in served)
    return f"end to end {total / 1e3:.4f} ms predicted for {len(served)} of {len(results)} rows, calls counted"


def summary(results: Sequence[Result]) -> list[str]:
    """Return sentences about a run: counts by status, kernels per class, rows near their bound."""
    counts = Counter(result.status for result in results)
    told = ", ".join(f"{counts[status]} {status}" for status in ("ok", "failed", "unsupported") if counts[status])
    lines = [told or "the shapes file has no rows"]
    served = [result for result in results if result.status == "ok" and result.workload is not None]
    by_class: dict[str, list[Result]] = {}
    for result in served:
        assert result.workload is not None
        by_class.setdefault(result.workload.class_key(), []).append(result)
    for group in by_class.values():
        workload = group[0].workload
        assert workload is not None
        kernels = len({result.kernel for result in group})
        lines.append(f"class {class_text(workload)}: {len(group)} rows, {kernels} kernels")
    near = [r for r in served if r.told_us and r.bound_us and r.told_us <= NEAR_BOUND * r.bound_us]
    if served:
        ratios = [r.told_us / r.bound_us for r in served if r.told_us and r.bound_us]
        lines.append(
            f"predicted within 2x of the bound: {len(near)} of {len(served)} rows; "
            f"median ratio {float(np.median(ratios)):.2f}, worst {max(ratios):.2f}"
        )
    return lines
