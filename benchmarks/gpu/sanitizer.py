"""A few kernels of every family under compute-sanitizer, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from .harness.journal import Journal
from .harness.session import Item, Session

STEP = "sanitizer"
#: Tools and their own options. CuPy probes for optional features: a failing API call is not a kernel's fault.
TOOLS = {"memcheck": ("--report-api-errors", "no"), "racecheck": ()}
ITEMS = r"((float16|float32|tf32|int8)>\w+ (kn|kk) \S+|^(rows|window|attention(_wgmma)?) .*|conv2d .*) starter 0$"
SECONDS = 120.0
LEAST = 10.0
END = 15.0  # seconds for the last kernel to end, and for the tool's own report
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


def items(session: Session) -> Iterator[Item]:
    """Yield one item per tool, each with its part of the time."""
    for place, tool in enumerate(TOOLS):
        yield Item(tool, partial(sanitize, session, tool, len(TOOLS) - place), limit=2 * SECONDS)


def sanitize(session: Session, tool: str, sharing: int = 1) -> dict[str, Any]:
    """Verify kernels with every access watched; `errors` is the tool's own count. The tool gets a `sharing`-th of the
    remaining time; `timeout` where that did not suffice for one kernel and a verdict."""
    program = shutil.which("compute-sanitizer")
    if session.emulate or program is None:
        return {"outcome": "skipped", "reason": "emulated" if session.emulate else "compute-sanitizer is not on PATH"}
    # A file, not a pipe, which the tool's children may hold open after the tool was ended.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as written:
        seconds = max(LEAST, min(SECONDS, session.left() / sharing - END))
        worker = [sys.executable, "-m", "benchmarks.device", "--worker", "families", "--sanitized", "--only", ITEMS]
        worker += ["--out", folder, "--seconds", str(seconds)]
        worker += [] if session.arch_name is None else ["--arch", session.arch_name]
        command = [program, "--tool", tool, *TOOLS[tool], "--target-processes", "all", *worker]
        with suppress(subprocess.TimeoutExpired):  # the worker ends itself before that
            subprocess.run(command, stdout=written, stderr=subprocess.STDOUT, timeout=seconds + END)
        written.seek(0)
        text = written.read().decode("utf-8", "replace")
        ends = Journal(Path(folder) / "results.jsonl").results()
    counts = [int(count) for count in SUMMARY.findall(text)]
    wrong = [item for (_, item), end in ends.items() if end["outcome"] != "ok"]
    found = {"errors": sum(counts), "kernels": len(ends), "not_ok": wrong}
    if not counts or not ends:
        return found | {"outcome": "timeout", "error": text[-2000:] or f"no verdict in {seconds:.0f} s"}
    clean = sum(counts) == 0 and not wrong
    return found | ({"outcome": "ok"} if clean else {"outcome": "wrong", "error": text[:4000]})
