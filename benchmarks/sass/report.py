"""The comparison as a table and as JSON."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sass.acceptance import counterpart, per_result
from benchmarks.sass.workloads import ARCHS, cases
from gensor_tuner.output import plural

Rows = Sequence[Mapping[str, Any]]

HEAD = (
    "arch", "workload", "kernel", "configuration", "unit", "registers", "stack", "stages", "KiB in flight", "sums",
    "warps/scheduler", "instructions", "stalls/unit", "chain", "shared B/clk", "L2 B/clk", "ceiling", "rate",
    "epilogue instructions", "stalls", "stalls/result", "share at k 1024", "4096", "compile s",
)  # fmt: skip


def merge(old: Rows, new: Rows) -> list[Mapping[str, Any]]:
    """Return the rows of an earlier run with those of this one in their places, in the order of the workloads file."""
    rows = {(row["arch"], row["workload"]): row for row in (*old, *new)}
    archs = list(dict.fromkeys([*ARCHS, *(arch for arch, _ in rows)]))
    names = list(dict.fromkeys([*(case.name for case in cases()), *(name for _, name in rows)]))
    return [rows[arch, name] for arch in archs for name in names if (arch, name) in rows]


def compared_lines(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield our line of a row, and of each peer the kernel that ours is compared with."""
    if row["ours"] is not None:
        yield row["ours"]
    for lines in row["peers"].values():
        line = counterpart(lines, row["ours"])
        if line is not None:
            yield line


def table(rows: Rows) -> Iterator[str]:
    """Yield the lines of the Markdown table."""
    yield "| " + " | ".join(HEAD) + " |"
    yield "| " + " | ".join(["---"] * 5 + ["---:"] * (len(HEAD) - 5)) + " |"
    for row in rows:
        for line in compared_lines(row):
            yield "| " + " | ".join((row["arch"], row["workload"], *_cells(line, row.get("rows")))) + " |"


def _cells(line: Mapping[str, Any], rows: int | None) -> Iterator[str]:
    per = line["instructions_per_element"] or line["instructions_per_product"]
    shares = line["epilogue_shares"]
    yield from (line["maker"], line["configuration"], line["unit"] + (" group" if line["grouped"] else ""))
    yield from (str(line[name]) for name in ("registers", "stack_bytes", "stages"))
    yield f"{line['bytes_in_flight'] / 1024:.0f}"
    yield str(line.get("sums", 1))
    yield f"{line['warps_per_scheduler']:g}"
    yield f"{per:g}" + ("/element" if line["instructions_per_element"] else "/product")
    yield from (f"{line[name]:.3g}" for name in ("stalls_per_unit", "chain"))
    yield from (f"{line[name]:.0f}" for name in ("shared_bytes_per_clock", "l2_bytes_per_clock"))
    yield from (f"{line[name]:.4g}" for name in ("ceiling", "rate"))
    columns = [line["epilogue_instructions"], line["epilogue_stalls"], per_result(line, rows)]
    columns += [shares.get("1024"), shares.get("4096")]
    yield from ("" if value is None else f"{value:g}" for value in columns)
    yield f"{line['seconds']:.1f}"


def failing(rows: Rows) -> Iterator[str]:
    """Yield a line for each row that is not good enough, then their number among those that we or a peer have."""
    for row in rows:
        if row["failures"]:
            yield f"- {row['arch']} {row['workload']}: {'; '.join(row['failures'])}"
    compared = [row for row in rows if row["ours"] is not None or any(row["peers"].values())]
    failed = sum(bool(row["failures"]) for row in compared)
    yield f"\n{failed} of {len(compared)} {plural('row', len(compared))} not good enough"


def notes(rows: Rows) -> Iterator[str]:
    """Yield why rows have no kernel of a maker."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for maker, reason in row["refused"].items():
            reasons.setdefault(f"{maker}: {reason}", []).append(f"{row['arch']} {row['workload']}")
    yield from (f"- {reason} ({', '.join(names)})" for reason, names in reasons.items())


def load(path: Path) -> dict[str, Any]:
    """Return an earlier run's results; {} where there are none."""
    try:
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError):
        return {}
    return found


def save(path: Path, rows: Rows, versions: Mapping[str, str]) -> None:
    """Write the results; equal results give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"versions": dict(versions), "rows": rows}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
