"""Tasks that bring home their numbers, in spawned children too: a module that is quick to import."""

import time
from dataclasses import dataclass, field

from gensor_tuner.tasks.task import Task


@dataclass(frozen=True)
class Counted(Task[int]):
    kind = "walk"
    answer = int
    in_python = True

    number: int
    sleep: float = field(default=0.05, kw_only=True)

    @property
    def key(self):
        return str(self.number)

    def run(self):
        time.sleep(self.sleep)
        return self.number

    def lost(self, reason):
        return -1

    def check(self, result):
        if result != self.number:
            raise ValueError(f"{result} in place of {self.number}")
