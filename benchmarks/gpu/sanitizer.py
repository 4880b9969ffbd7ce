"""Step 7: a few kernels of every family under compute-sanitizer, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .journal import Journal
from .session import Item, Session

STEP = "sanitizer"
TOOLS = ("memcheck", "racecheck")
ITEMS = r"((float16|float32|tf32|int8)>\w+ (kn|kk) \S+|^(rows|window|attention) .*|conv2d .*) starter 0$"
SECONDS = 120.0
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


def items(session: Session) -> Iterator[Item]:
    """One item per tool."""
    for tool in TOOLS:
        yield Item(tool, lambda tool=tool: sanitize(session, tool), limit=2 * SECONDS)  # type: ignore[misc]


def sanitize(session: Session, tool: str) -> dict[str, Any]:
    """Verify the kernels again with every access watched; `errors` is the tool's own count."""
    program = shutil.which("compute-sanitizer")
    if session.emulate or program is None:
        return {"outcome": "skipped", "reason": "emulated" if session.emulate else "compute-sanitizer is not on PATH"}
    with tempfile.TemporaryDirectory() as folder:
        seconds = min(SECONDS, max(10.0, session.left()))
        worker = [sys.executable, "-m", "benchmarks.device", "--worker", "families", "--sanitized", "--only", ITEMS]
        worker += ["--out", folder, "--seconds", str(seconds)]
        if session.arch_name is not None:
            worker += ["--arch", session.arch_name]
        command = [program, "--tool", tool, "--target-processes", "all", *worker]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
        ends = Journal(Path(folder) / "results.jsonl").results()
    text = done.stdout + done.stderr
    counts = [int(count) for count in SUMMARY.findall(text)]
    wrong = [item for (_, item), end in ends.items() if end["outcome"] != "ok"]
    if not counts or not ends:
        return {"outcome": "failed", "error": text[-2000:], "kernels": len(ends)}
    outcome = "ok" if sum(counts) == 0 and not wrong else "wrong"
    found = {"outcome": outcome, "errors": sum(counts), "kernels": len(ends), "not_ok": wrong}
    return found if outcome == "ok" else found | {"error": text[:4000]}
