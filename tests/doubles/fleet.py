"""Stub tasks for clusters: they count their runs in a folder, and fail as requested; a preload of Dask's workers."""

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from gensor_tuner.fleet import abilities, wire

from .tasks import Counted


@dataclass(frozen=True)
class Stub(Counted):
    """A number; the first `faults` runs fail in a way, such as die, hang, swell, raise or corrupt."""

    kind = "stub"
    in_python = False
    seconds = 60.0

    folder: str = ""
    fault: str = ""
    faults: int = 0
    sleep: float = field(default=0.0, kw_only=True)

    def runs(self):
        return len(list(Path(self.folder).glob(f"{self.number}.*")))

    def run(self):
        number = self.number
        if self.folder:
            before = self.runs()
            Path(self.folder, f"{number}.{uuid4().hex}").touch()
            if before < self.faults:
                number = FAULTS[self.fault](self)
        time.sleep(self.sleep)
        return number


def die(task):
    """End the process, once the scheduler knows that the run has begun: clients count these events."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    begun = {"key": worker.get_current_task(), "worker": worker.address}
    while begun not in [event for _, event in sync(worker.loop, worker.scheduler.events, topic=wire.TOPIC)]:
        time.sleep(0.05)
    os._exit(3)


def hang(task):
    time.sleep(600)


def swell(task):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 16))


def fail(task):
    raise RuntimeError("as planted")


def fail_then_hang(task):
    return fail(task) if task.runs() == 1 else hang(task)


def corrupt(task):
    """Change a bit of this answer on its way."""
    pack = wire.pack

    def changed(body):
        wire.pack = pack
        found = bytearray(pack(body))
        found[len(found) // 2] ^= 4
        return bytes(found)

    wire.pack = changed
    return task.number


def lie(task):
    return task.number + 1


FAULTS = {"die": die, "hang": hang, "swell": swell, "raise": fail, "corrupt": corrupt, "lie": lie}
FAULTS["raise, then hang"] = fail_then_hang


def dask_setup(worker):
    wire.KINDS[Stub.kind] = Stub


@contextmanager
def known():
    wire.KINDS[Stub.kind], abilities.FOLLOWS[Stub.kind] = Stub, ()
    try:
        yield
    finally:
        del wire.KINDS[Stub.kind], abilities.FOLLOWS[Stub.kind]
