"""results.jsonl: one JSON object per line, flushed at once, so that an interrupted run keeps its results.

Events are `begin` (an item starts), `end` (its outcome) and `complete` (a step has nothing left to do).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Outcomes of items that --retry repeats: an exception, a process that died or was killed. The others are ok, wrong,
#: failed and skipped.
RETRIED = ("error", "crashed", "timeout")


class Journal:
    """The file, for one writer at a time: the worker while it lives, otherwise its supervisor."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, **fields: Any) -> None:
        """Append one event."""
        line = json.dumps({**fields, "at": round(time.time(), 3)}, default=str)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every whole line, oldest first; skip a line that a power failure cut short."""
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def results(self, step: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the last `end` event of each (step, item)."""
        ends = (event for event in self.events() if event["event"] == "end")
        return {(e["step"], e["item"]): e for e in ends if step is None or e["step"] == step}

    def finished(self, step: str, since: float = 0.0) -> set[str]:
        """Return items of a step that need not run again; items that broke before `since` (seconds since 1970) must."""
        ends = self.results(step).items()
        return {item for (_, item), end in ends if end["outcome"] not in RETRIED or end["at"] >= since}

    def running(self) -> dict[str, Any] | None:
        """Return the `begin` event of an item that has not ended."""
        last: dict[str, Any] | None = None
        for event in self.events():
            if event["event"] == "begin":
                last = event
            elif event["event"] == "end":
                last = None
        return last

    def is_complete(self, step: str, inputs: str) -> bool:
        """Return whether the step has nothing left to do for these inputs (a digest of code and database)."""
        return any(e["event"] == "complete" and e["step"] == step and e["inputs"] == inputs for e in self.events())
