"""The progress of a run: rows at work, steps of the current stage, and seconds left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gensor_database.text import duration

#: Processor seconds that one walk, one compilation and one verification usually take: the estimate of the first second.
USUAL = {"walk": 0.5, "compile": 1.0, "verify": 2.0}
#: Weight of these figures, in seconds, next to the seconds that this run's own classes took.
BELIEVED = 2.0
#: Finalists compiled and kernels verified for a usual class, whatever its number of rows.
COMPILED, VERIFIED = 10, 2


class Progress:
    """Listens to a run. This class keeps everything to itself."""

    def plan(self, classes: Sequence[Sequence[str]]) -> None:
        """Take the names of the rows that remain to be tuned, by class."""

    def begin(self, names: Sequence[str]) -> None:
        """Take the names of the rows that are worked on from now on."""

    def stage(self, stage: str, total: int = 0) -> None:
        """Take the stage that begins, with its number of steps where that is known."""

    def __call__(self, stage: str, count: int) -> None:
        """Take `count` more finished steps of a stage."""


@dataclass
class Tracker(Progress):
    """The state of a run with these Options, and the seconds it will still take, at most those of the `budget`."""

    jobs: int = 1
    top: int = 16
    budget: float | None = None
    clock: Callable[[], float] = time.monotonic
    rows: int = 0
    finished: int = 0

    #: classes that have not begun: how many rows of each
    _waiting: list[int] = field(default_factory=list)
    _names: Sequence[str] = ()
    _stage: str = ""
    _total: int = 0
    _steps: int = 0
    _since: float = 0.0
    _spent: dict[str, float] = field(default_factory=dict)
    _seconds_taken: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self._since = self.clock()

    def plan(self, classes: Sequence[Sequence[str]]) -> None:
        """Take the names of the rows that remain to be tuned, by class."""
        self._waiting = [len(names) for names in classes]

    def begin(self, names: Sequence[str]) -> None:
        """Take the names of the rows that are worked on from now on."""
        self._learn()
        if len(names) in self._waiting:
            self._waiting.remove(len(names))
        self._names, self._spent = tuple(names), {}
        self._enter("", 0)

    def stage(self, stage: str, total: int = 0) -> None:
        """Take the stage that begins, with its number of steps where that is known."""
        self._enter(stage, total)

    def __call__(self, stage: str, count: int) -> None:
        """Take `count` more finished steps of a stage."""
        if stage != self._stage:
            self._enter(stage, 0)
        self._steps += count

    def _enter(self, stage: str, total: int) -> None:
        now = self.clock()
        if self._stage:
            self._spent[self._stage] = self._spent.get(self._stage, 0.0) + now - self._since
        self._stage, self._total, self._steps, self._since = stage, total, 0, now

    def _learn(self) -> None:
        """Compare the seconds of the class that ends now with the figures that were expected."""
        self._enter("", 0)
        for stage, seconds in self._spent.items():
            taken, expected = self._seconds_taken.get(stage, (0.0, 0.0))
            self._seconds_taken[stage] = taken + seconds, expected + self._usual(stage, len(self._names))

    def _usual(self, stage: str, rows: int) -> float:
        """Return the seconds that a stage takes for a class, by the usual figures alone."""
        steps = {"walk": 2 * rows, "compile": min(self.top, COMPILED), "verify": min(rows, VERIFIED)}.get(stage, 0)
        return USUAL.get(stage, 0.0) * steps / max(min(self.jobs, steps), 1)

    def _expected_seconds(self, stage: str, rows: int) -> float:
        """Return the seconds that a stage takes for a class, by the seconds of the classes before it."""
        taken, expected = self._seconds_taken.get(stage, (0.0, 0.0))
        return self._usual(stage, rows) * (taken + BELIEVED) / (expected + BELIEVED)

    @property
    def seconds_left(self) -> float:
        """The seconds until the run ends, as far as is known now."""
        if self.budget is not None:
            return max(self.budget - (self.clock() - self.began), 0.0)
        left = sum(self._expected_seconds(stage, rows) for stage in USUAL for rows in self._waiting)
        for stage in USUAL if self._names else ():
            here = self.clock() - self._since if stage == self._stage else 0.0
            rest = self._expected_seconds(stage, len(self._names)) - self._spent.get(stage, 0.0) - here
            if here and self._steps and self._total:
                rest = max(rest, here / self._steps * (self._total - self._steps))
            left += max(rest, 0.0)
        return left

    @property
    def share(self) -> float:
        """The share of the run's seconds that has passed, from 0 to 1."""
        passed = self.clock() - self.began
        return passed / max(passed + self.seconds_left, 1e-9)

    def text(self) -> str:
        """Return the progress in one line.

        Examples
        --------
        >>> seen = Tracker(jobs=2, rows=12, clock=lambda: 0.0)
        >>> seen.plan([["fc1", "fc2", "fc3"]])
        >>> seen.begin(["fc1", "fc2", "fc3"])
        >>> seen.stage("walk", 3)
        >>> seen("walk", 1)
        >>> seen.text()
        '0 of 12 rows; walk 1 of 3: fc2, fc3; less than 10 s left'
        """
        parts = [f"{self.finished} of {self.rows} rows"]
        if self._stage:
            steps = f" {self._steps} of {self._total}" if self._total else f" {self._steps}" if self._steps else ""
            parts.append(f"{self._stage}{steps}: {self._at_work()}")
        elif self._names:
            parts.append(self._at_work())
        return "; ".join([*parts, f"{left_text(self.seconds_left)} left"])

    def _at_work(self) -> str:
        """Return the names of the rows at work: walks take them in order, other stages the whole class."""
        names = list(self._names)
        if self._stage == "walk" and self._total == len(names):
            names = names[self._steps : self._steps + self.jobs] or names[-1:]
        return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def left_text(seconds: float) -> str:
    """Return seconds as the estimate they are: with two digits, from ten seconds on."""
    return "less than 10 s" if seconds < 10 else f"about {duration(float(f'{seconds:.2g}') * 1e6)}"
