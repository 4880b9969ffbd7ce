"""Steps in subprocesses, so that a CUDA context that a bad kernel has poisoned ends with its process, not with the run.

A step's worker writes the journal and returns one of the codes below. After a poisoned context, a crash or a hang the
running item is recorded, and a fresh worker continues after it while the step's share of time lasts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .journal import Journal

COMPLETE, UNUSABLE, OUT_OF_TIME, POISONED = 0, 2, 3, 4
GRACE = 15.0  # seconds a worker may take to end after its time
ITEM_SECONDS = 90.0  # seconds after which an item counts as hanging
FLOOR = 10.0  # the fewest seconds of a step, of which starting a worker takes two
LEAST = 2.0  # seconds below which no worker is started


@dataclass(frozen=True)
class Step:
    """A step's name and its share of the time, relative to the remaining steps."""

    name: str
    share: float


@dataclass
class Supervisor:
    """Runs steps within `budget` seconds; `command(step, seconds)` is the command line of a worker."""

    journal: Journal
    command: Callable[[str, float], Sequence[str]]
    budget: float
    inputs: str = ""
    item_seconds: float = ITEM_SECONDS
    grace: float = GRACE
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the remaining seconds of the budget."""
        return self.budget - (time.monotonic() - self.began)

    def run(self, steps: Sequence[Step]) -> bool:
        """Run every step in its share; later steps share the unused time, and unfinished steps get the rest.

        Return False where no step can run on this machine at all.
        """
        for index, step in enumerate(steps):
            share = self.left() * step.share / sum(each.share for each in steps[index:])
            if not self._step(step.name, share):
                return False
        for step in steps:
            self._step(step.name, self.left())
        return True

    def _step(self, name: str, seconds: float) -> bool:
        deadline = time.monotonic() + min(max(seconds, FLOOR), self.left())
        while not self.journal.is_complete(name, self.inputs):
            left = deadline - time.monotonic()
            if left < LEAST:
                break
            code = self._worker(name, left)
            if code == COMPLETE:
                self.journal.write(event="complete", step=name, inputs=self.inputs)
            elif code == UNUSABLE:
                return False
            elif code == OUT_OF_TIME:
                break
            elif code != POISONED and not self._blame(name, code):
                break  # it died between items: another worker would die, too
        return True

    def _blame(self, step: str, code: int | None) -> bool:
        """Record the item that a worker was running when it ended; return False where there was none."""
        running = self.journal.running()
        outcome = "timeout" if code is None else "crashed"
        detail = "ended by the supervisor" if code is None else f"the worker ended with code {code}"
        if running is None or running["step"] != step:
            self.journal.write(event="end", step=step, item="(worker)", outcome=outcome, error=detail)
            return False
        self.journal.write(event="end", step=step, item=running["item"], outcome=outcome, error=detail)
        return True

    def _worker(self, step: str, seconds: float) -> int | None:
        """Return the exit code of a worker, or None where it had to be killed."""
        print(f"benchmarks.device: {step}, {seconds:.0f} s", file=sys.stderr, flush=True)
        # A new session: the worker's children end with it.
        process = subprocess.Popen(self.command(step, seconds), start_new_session=True)
        deadline = time.monotonic() + seconds + self.grace
        watched: tuple[str, float] | None = None
        try:
            while time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(0.2)
                watched = self._watch(watched)
                if watched is not None and time.monotonic() > watched[1]:
                    break
            return process.poll()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):  # it hangs inside the driver, where no signal reaches it
                    process.wait(10)

    def _watch(self, watched: tuple[str, float] | None) -> tuple[str, float] | None:
        """Return the running item and the time at which it counts as hanging."""
        running = self.journal.running()
        if running is None:
            return None
        name = f"{running['item']} {running['at']}"
        if watched is not None and watched[0] == name:
            return watched
        return name, time.monotonic() + (running.get("limit") or self.item_seconds)
