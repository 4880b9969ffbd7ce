"""The progress of a run on stderr: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from tqdm import tqdm

from gensor_tuner.output import printable, say
from gensor_tuner.run.progress import Tracker

#: Seconds between two states of the bar.
TICK = 0.5
#: Seconds between two lines where stderr is no terminal: so many, or this share of the time that has passed.
INTERVAL, SHARE = 10.0, 0.1


class Shown(Tracker):
    """Shows a Tracker's text from the first second on, also while one long step runs."""

    def __init__(self, jobs: int, top: int, budget: float | None, rows: int, quiet: bool):
        super().__init__(jobs=jobs, top=top, budget=budget, rows=rows)
        self.stream = sys.stderr
        self.bar: tqdm | None = None
        self._quiet, self._ended, self._shown, self._last = quiet, threading.Event(), 0.0, ""
        if not quiet and self.stream.isatty():
            self.bar = tqdm(total=1.0, bar_format="{bar:20} {desc}", file=self.stream, leave=False, dynamic_ncols=True)

    def plan(self, classes: Sequence[Sequence[str]]) -> None:
        """Take the names of the rows that remain to be tuned, by class, and begin to show progress."""
        super().plan(classes)
        if not self._quiet:
            with suppress(RuntimeError):  # no thread can be started: progress is shown with every step
                threading.Thread(target=self._watch, name="gensor-progress", daemon=True).start()

    def begin(self, names: Sequence[str]) -> None:
        """Take the names of the rows that are worked on from now on."""
        super().begin(names)
        if not self._quiet and (not self._last or self._due()):
            self.show()

    def __call__(self, stage: str, count: int) -> None:
        """Take `count` more finished steps of a stage."""
        super().__call__(stage, count)
        if not self._quiet and self._due():
            self.show()

    def show(self) -> None:
        """Show the present state."""
        self._shown, text = self.clock(), printable(self.text())
        if self.bar is not None:
            self.bar.n = self.share
            self.bar.set_description_str(text)
        elif text != self._last:
            say(f"gensor-tune: {text}", file=self.stream, flush=True)
        self._last = text

    def notify(self, line: str) -> None:
        """Print a line on stderr, above the bar."""
        tqdm.write(printable(f"gensor-tune: {line}", None), file=self.stream)

    def row(self, line: str) -> None:
        """Print a line of the table on stdout, above the bar."""
        if self.bar is not None:
            tqdm.write(printable(line, None), file=sys.stdout)
        else:
            say(line, flush=True)

    def of(self, number: int) -> Shown:
        """Return the progress of a run: all runs share one bar."""
        return self

    def report(self, number: int) -> None:
        """Count a row of a run that is reported."""
        self.finished += 1

    def close(self) -> None:
        """Remove the bar and say no more."""
        self._ended.set()
        if self.bar is not None:
            self.bar.close()

    def _due(self) -> bool:
        now = self.clock()
        often = TICK if self.bar is not None else max(INTERVAL, SHARE * (now - self.began))
        return now - self._shown >= often

    def _watch(self) -> None:
        while not self._ended.wait(TICK):
            if self._due():
                self.show()
