"""Which task of a model deserves the next slice of search: the one whose slice is predicted to lower the whole most.

The gradient is that of L. Zheng and others, Ansor, OSDI 2020, section 6.2. With g the best seconds of a task so far, w
its calls and t the slices it had, a slice more is predicted to save

    w (alpha (g(t - d) - g(t)) / d + (1 - alpha) min(max(g / t, g - beta C / V), g - bound))

Its first term is what the last d slices brought; its second what may be hoped for: at first everything, less with
every slice, or to run its C operations at 1 / beta of the best rate V of a similar task. Ours beside Ansor's: no task
is hoped to get below its roofline bound, and hope fades with every slice in a row that brought nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

ALPHA, BETA, WINDOW = 0.2, 2.0, 3
#: What is left of hope after each slice in a row that brought less than LITTLE of a task's seconds.
FADING, LITTLE = 0.5, 1e-3


@dataclass
class Task:
    """A workload of the model: `calls` of it, its roofline `bound` in seconds, its operations, which others are like
    it; `best` holds its seconds before any slice and after each slice it had."""

    calls: float
    bound: float
    flops: float
    group: Hashable
    best: list[float] = field(default_factory=list)

    @property
    def slices(self) -> int:
        """How many it had."""
        return len(self.best) - 1

    @property
    def seconds(self) -> float:
        """The best known of one call."""
        return self.best[-1]

    def learn(self, seconds: float) -> None:
        """Another task's slice found a Program that takes this long here; no slice of this one's is counted."""
        self.best[-1] = min(self.best[-1], seconds)

    def stale(self) -> int:
        """Its latest slices in a row that brought next to nothing."""
        count = 0
        for before, after in zip(self.best[-2::-1], self.best[:0:-1], strict=True):
            if before - after > LITTLE * before:
                break
            count += 1
        return count


def end_to_end(tasks: Sequence[Task]) -> float:
    """Seconds of the whole model by the best of each task."""
    return sum(task.calls * task.seconds for task in tasks)


def gains(tasks: Sequence[Task]) -> list[float]:
    """Seconds of the whole model that one more slice of each task is predicted to save."""
    rate: dict[Hashable, float] = {}
    for task in tasks:
        rate[task.group] = max(rate.get(task.group, 0.0), task.flops / task.seconds)
    return [task.calls * _gain(task, rate[task.group]) for task in tasks]


def _gain(task: Task, rate: float) -> float:
    """Seconds of one call."""
    now = task.seconds
    window = min(WINDOW, task.slices)
    recent = (task.best[-1 - window] - now) / window if window else 0.0
    hope = max(now / max(task.slices, 1), now - BETA * task.flops / rate if rate else 0.0)
    hope = max(min(hope, now - task.bound), 0.0) * FADING ** task.stale()
    return ALPHA * recent + (1 - ALPHA) * hope
