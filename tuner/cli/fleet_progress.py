"""The progress of a run on a cluster: a bar for each arch on a terminal, lines now and then anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from tqdm import tqdm

from gensor_tuner.output import plural, printable, say
from gensor_tuner.run.progress import USUAL, Progress, left_text

from .progress import INTERVAL, SHARE, TICK

#: Hosts that a line names.
MOST_HOSTS = 3


class ArchProgress(Progress):
    """The remaining work of one arch, and its time at the rate so far.

    `jobs()` is the number of tasks that the cluster runs at once, for the estimate before the first class has ended.
    """

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


class FleetShown:
    """Shows the state of every arch, and the hosts at work, from the first second on.

    `at_work()` is the number of running tasks by host.
    """

    def __init__(self, archs: Sequence[ArchProgress], at_work: Callable[[], Counter[str]], quiet: bool):
        self.archs, self.at_work, self.stream = archs, at_work, sys.stderr
        self.clock = time.monotonic
        self._began = self._told = self.clock()
        self._ended, self._last = threading.Event(), ""
        terminal = not quiet and self.stream.isatty()
        self.bars = [
            tqdm(total=each.rows, bar_format="{bar:20} {desc}", file=self.stream, leave=False, position=place)
            for place, each in enumerate(archs if terminal else ())
        ]
        if not quiet:
            with suppress(RuntimeError):  # no thread can be started: nothing is shown
                threading.Thread(target=self._watch, name="gensor-progress", daemon=True).start()

    def of(self, number: int) -> ArchProgress:
        """Return the progress of a run."""
        return self.archs[number]

    def show(self) -> None:
        """Show the present state."""
        hosts = self.at_work()
        work = ", ".join(f"{count} on {host or 'this machine'}" for host, count in hosts.most_common(MOST_HOSTS))
        if len(hosts) > MOST_HOSTS:
            work += f" and {len(hosts) - MOST_HOSTS} more {plural('host', len(hosts) - MOST_HOSTS)}"
        texts = [each.text() for each in self.archs]
        if work:
            texts[-1] += f"; tasks: {work}"
        for bar, each, text in zip(self.bars, self.archs, texts, strict=False):
            bar.n = each.finished
            bar.set_description_str(printable(text))
        line = printable("; ".join(texts), None)
        if not self.bars and line != self._last:
            say(f"gensor-tune: {line}", file=self.stream, flush=True)
        self._last, self._told = line, self.clock()

    def notify(self, line: str) -> None:
        """Print a line on stderr, above the bars."""
        tqdm.write(printable(f"gensor-tune: {line}", None), file=self.stream)

    def row(self, line: str) -> None:
        """Print a line of the table on stdout, above the bars."""
        if self.bars:
            tqdm.write(printable(line, None), file=sys.stdout)
        else:
            say(line, flush=True)

    def report(self, number: int) -> None:
        """Count a row of a run that is reported."""
        self.archs[number].finished += 1

    def close(self) -> None:
        """Remove the bars and say no more."""
        self._ended.set()
        for bar in self.bars:
            bar.close()

    def _watch(self) -> None:
        while not self._ended.wait(TICK):
            now = self.clock()
            if self.bars or now - self._told >= max(INTERVAL, SHARE * (now - self._began)):
                self.show()
