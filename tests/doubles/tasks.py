"""Tasks that bring home their numbers, in spawned children too: a module that is quick to import."""

import time
from dataclasses import asdict, dataclass, field

from gensor_tuner.tasks.task import Task


@dataclass(frozen=True)
class Counted(Task[int]):
    """A number, returned a little later."""

    kind = "walk"
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

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, told):
        return cls(**told)

    def pack(self, result):
        return {"number": result}

    def unpack(self, packed):
        if packed["number"] != self.number:
            raise ValueError(f"{packed['number']} in place of {self.number}")
        return packed["number"]
