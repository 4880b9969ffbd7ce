"""A real scheduler and real workers on this machine, with tasks that sleep: what is left is the cost of the fleet.

The scheduler has a process of its own, all workers share another one as threads, and the client is this process, so
that the processor seconds of each are known. In a real fleet each worker is a process.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from gensor_tuner.fleet import wire
from gensor_tuner.fleet.abilities import abilities
from gensor_tuner.fleet.cluster import Cluster
from gensor_tuner.fleet.executor import Fleet
from gensor_tuner.run import many
from gensor_tuner.shapes.reader import Row
from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import Executor, Task

KIND = "sleep"


@dataclass(frozen=True)
class Sleep(Task[int]):
    """A number, returned after so many seconds, with as many bytes there and back as a real task has."""

    kind = KIND

    number: int
    taken: float = 0.0
    asked: int = 0
    answered: int = 0

    def run(self) -> int:
        """Sleep."""
        time.sleep(self.taken)
        return self.number

    def lost(self, reason: str) -> int:
        """Return no number that a task has."""
        return -1

    def to_json(self) -> dict[str, Any]:
        """Return the arguments."""
        told = {"number": self.number, "taken": self.taken, "asked": self.asked, "answered": self.answered}
        return {**told, "bytes": _noise(self.asked)}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Sleep:
        """Return the task with these arguments."""
        return cls(told["number"], told["taken"], told["asked"], told["answered"])

    def pack(self, result: int) -> dict[str, Any]:
        """Return the number."""
        return {"number": result, "bytes": _noise(self.answered)}

    def unpack(self, packed: dict[str, Any]) -> int:
        """Return the number; ValueError for another one."""
        if packed["number"] != self.number:
            raise ValueError(f"{packed['number']} for {self.number}")
        return self.number


def _noise(count: int) -> str:
    """Return text that is as many bytes long in a message: compression halves hexadecimal digits."""
    return random.Random(count).randbytes(count).hex()


class Side:
    """A child process that runs one side of the cluster, and tells its processor seconds."""

    def __init__(self, target: Any, *given: Any):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *given), daemon=True)
        self._process.start()
        theirs.close()
        self.told = self._pipe.recv()

    def seconds(self) -> float:
        """Return the processor seconds so far."""
        self._pipe.send("seconds")
        return float(self._pipe.recv())

    def close(self) -> None:
        """End the process."""
        self._pipe.send("end")
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


async def _serve(pipe: Connection, told: object) -> None:
    pipe.send(told)
    while await asyncio.to_thread(pipe.recv) == "seconds":
        pipe.send(time.process_time())


def _quiet() -> None:
    """Keep what Dask says about every worker off the terminal."""
    warnings.simplefilter("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _scheduler(pipe: Connection) -> None:
    from distributed import Scheduler

    _quiet()

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            await _serve(pipe, scheduler.address)

    asyncio.run(serve())


def _workers(pipe: Connection, address: str, count: int) -> None:
    from contextlib import AsyncExitStack

    from distributed import Worker

    _quiet()
    wire.KINDS[KIND] = Sleep
    offered = {**abilities().resources(1), abilities().resource(KIND): 1.0}

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            made = [
                Worker(address, nthreads=1, resources=offered, dashboard=False, memory_limit=0) for _ in range(count)
            ]
            await asyncio.gather(*(stack.enter_async_context(each) for each in made))
            await _serve(pipe, count)

    asyncio.run(serve())


@dataclass
class Stand:
    """A cluster of stubs: its client, and the other two sides."""

    cluster: Cluster
    scheduler: Side
    workers: Side

    def seconds(self) -> dict[str, float]:
        """Return the processor seconds of each side so far."""
        sides = {"scheduler": self.scheduler.seconds(), "workers": self.workers.seconds()}
        return {"client": time.process_time(), **sides}


@contextmanager
def stand(count: int) -> Iterator[Stand]:
    """Start a scheduler and `count` workers of one thread each."""
    scheduler = Side(_scheduler)
    try:
        workers = Side(_workers, scheduler.told, count)
        try:
            with Cluster(scheduler.told) as cluster:
                cluster.ready([KIND])
                while len(cluster.able(KIND)) < count:
                    time.sleep(0.1)
                yield Stand(cluster, scheduler, workers)
        finally:
            workers.close()
    finally:
        scheduler.close()


def at_once(made: Stand, tasks: Sequence[Sleep]) -> dict[str, float]:
    """Send all tasks at once; return seconds, and the processor seconds of each side."""
    before, began = made.seconds(), time.perf_counter()
    futures = [made.cluster.submit(task) for task in tasks]
    numbers = [future.result() for future in futures]
    seconds, after = time.perf_counter() - began, made.seconds()
    if numbers != [task.number for task in tasks]:
        raise RuntimeError("results of other tasks")
    return {"seconds": seconds, **{f"{side}_s": after[side] - before[side] for side in before}}


class Replay:
    """A run of the tuner whose classes are measured ones: their tasks sleep, and come one stage after the other."""

    def __init__(self, classes: Sequence[dict[str, Any]], scale: float):
        self.classes, self.scale = classes, scale

    def unit(self, by_key: Any) -> tuple[str, str]:
        """Return a name of the class."""
        return "", str(next(iter(by_key.values())))

    def tuned(self, by_key: Any, executor: Executor, whole: bool) -> Iterator[tuple[Row, Any]]:
        """Replay one class."""
        (number,) = {rows for rows in by_key.values()}
        for stage in self.classes[number]["stages"]:
            count = max(1, len(stage["seconds"]))
            sizes = stage["asked"] // count, stage["result"] // count
            executor.map([Sleep(place, taken * self.scale, *sizes) for place, taken in enumerate(stage["seconds"])])
        yield number, None  # type: ignore[misc]


def replayed(made: Stand, classes: Sequence[dict[str, Any]], scale: float) -> dict[str, float]:
    """Tune classes together, as `gensor-tune --cluster` does; return seconds, and those of each side."""
    run: Any = Replay(classes, scale)
    work = [
        many.Work(0, {f"{number} {place}": number for place in range(each["workloads"])})  # type: ignore[misc]
        for number, each in enumerate(classes)
    ]
    before, began = made.seconds(), time.perf_counter()
    with Local(1) as here:
        done = [number for _, number, _ in many.together([run], work, Fleet(made.cluster, here))]
    seconds, after = time.perf_counter() - began, made.seconds()
    if sorted(done) != list(range(len(classes))):
        raise RuntimeError("classes are missing")
    return {"seconds": seconds, **{f"{side}_s": after[side] - before[side] for side in before}}
