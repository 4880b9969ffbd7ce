"""The progress of a run on stderr: bars on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from tqdm import tqdm

from gensor_tuner.output import plural, printable, say
from gensor_tuner.run.progress import USUAL, Progress, Tracker, left_text

#: Seconds between two states of a bar.
TICK = 0.5
#: Seconds between two lines where stderr is no terminal: so many, or this share of the time that has passed.
INTERVAL, SHARE = 10.0, 0.1
#: Hosts that a line names.
MOST_HOSTS = 3


class Display:
    """Shows texts, each with a bar on a terminal, also while one long step runs; subclasses say which."""

    clock: Callable[[], float] = time.monotonic

    def __init__(self, totals: Sequence[float], quiet: bool):
        self.stream, self.quiet = sys.stderr, quiet
        self.began = self.clock()
        self._ended, self._shown, self._last = threading.Event(), 0.0, ""
        terminal = not quiet and self.stream.isatty()
        form = "{bar:20} {desc}"
        self.bars = [
            tqdm(total=total, bar_format=form, file=self.stream, leave=False, position=place, dynamic_ncols=True)
            for place, total in enumerate(totals if terminal else ())
        ]

    def states(self) -> list[tuple[float, str]]:
        """Return the value of each bar, and the text beside it."""
        raise NotImplementedError

    def show(self) -> None:
        """Show the present state."""
        states = self.states()
        for bar, (value, text) in zip(self.bars, states, strict=False):
            bar.n = value
            bar.set_description_str(printable(text))
        line = printable("; ".join(text for _, text in states), None)
        if not self.bars and line != self._last:
            say(f"gensor-tune: {line}", file=self.stream, flush=True)
        self._shown, self._last = self.clock(), line

    def notify(self, line: str) -> None:
        """Print a line on stderr, above the bars."""
        tqdm.write(printable(f"gensor-tune: {line}", None), file=self.stream)

    def row(self, line: str) -> None:
        """Print a line of the table on stdout, above the bars."""
        for each in line.splitlines():
            if self.bars:
                tqdm.write(printable(each, None), file=sys.stdout)
            else:
                say(each, flush=True)

    def close(self) -> None:
        """Remove the bars and say no more."""
        self._ended.set()
        for bar in self.bars:
            bar.close()

    def watch(self) -> None:
        """Show the state from time to time, unless the run is quiet."""
        if not self.quiet:
            with suppress(RuntimeError):  # no thread can be started: progress is shown with every step
                threading.Thread(target=self._watch, name="gensor-progress", daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(TICK):
            if self._due():
                self.show()

    def _due(self) -> bool:
        now = self.clock()
        return now - self._shown >= (TICK if self.bars else max(INTERVAL, SHARE * (now - self.began)))


class Shown(Display, Tracker):
    """Shows a Tracker's text with one bar, which all runs share."""

    def __init__(self, jobs: int, top: int, budget: float | None, rows: int, quiet: bool):
        Tracker.__init__(self, jobs=jobs, top=top, budget=budget, rows=rows)
        Display.__init__(self, [1.0], quiet)

    def states(self) -> list[tuple[float, str]]:
        """Return the share of the run's time that has passed, and its state."""
        return [(self.share, self.text())]

    def plan(self, classes: Sequence[Sequence[str]]) -> None:
        """Take the names of the rows that remain to be tuned, by class, and begin to show progress."""
        super().plan(classes)
        self.watch()

    def begin(self, names: Sequence[str]) -> None:
        """Take the names of the rows that are worked on from now on."""
        super().begin(names)
        if not self.quiet and (not self._last or self._due()):
            self.show()

    def __call__(self, stage: str, count: int) -> None:
        """Take `count` more finished steps of a stage."""
        super().__call__(stage, count)
        if not self.quiet and self._due():
            self.show()

    def of(self, number: int) -> Shown:
        """Return the progress of a run."""
        return self

    def report(self, number: int) -> None:
        """Count a row of a run that is reported."""
        self.finished += 1


class ArchProgress(Progress):
    """The remaining work of one arch, and its time at the rate so far; `jobs()` tasks at once are a first guess."""

    def __init__(self, name: str, rows: int, jobs: Callable[[], int], clock: Callable[[], float] = time.monotonic):
        self.name, self.rows, self.clock, self._jobs = name, rows, clock, jobs
        self.finished = self._before = self._tuned = 0
        self._began = clock()

    def plan(self, classes: Sequence[Sequence[str]]) -> None:
        """Take the names of the rows that remain to be tuned, by class."""
        self._tuned, self._before = sum(map(len, classes)), self.finished
        self._began = self.clock()

    @property
    def seconds_left(self) -> float:
        """Seconds until the last row is stored."""
        done = self.finished - self._before
        left = max(self._tuned - done, 0)
        if done < 1:
            return left * sum(USUAL.values()) / max(self._jobs(), 1)
        return (self.clock() - self._began) / done * left

    def text(self) -> str:
        """Return the state in one line."""
        return f"{self.name}: {self.finished} of {self.rows} rows, {left_text(self.seconds_left)} left"


class FleetShown(Display):
    """Display of the state of every arch next to its bar, and of the hosts at work, from running tasks by host."""

    def __init__(self, archs: Sequence[ArchProgress], at_work: Callable[[], Counter[str]], quiet: bool):
        super().__init__([each.rows for each in archs], quiet)
        self.archs, self.at_work, self._shown = archs, at_work, self.began
        self.watch()

    def states(self) -> list[tuple[float, str]]:
        """Return the rows of each arch that are done, and its state; the last one names the hosts."""
        hosts = self.at_work()
        work = ", ".join(f"{count} on {host or 'this machine'}" for host, count in hosts.most_common(MOST_HOSTS))
        if len(hosts) > MOST_HOSTS:
            work += f" and {len(hosts) - MOST_HOSTS} more {plural('host', len(hosts) - MOST_HOSTS)}"
        states = [(float(each.finished), each.text()) for each in self.archs]
        if work:
            states[-1] = states[-1][0], f"{states[-1][1]}; tasks: {work}"
        return states

    def of(self, number: int) -> ArchProgress:
        """Return the progress of a run."""
        return self.archs[number]

    def report(self, number: int) -> None:
        """Count a row of a run that is reported."""
        self.archs[number].finished += 1
