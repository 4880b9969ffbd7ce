"""A connection to a Dask cluster, and the executor that runs tasks on it.

A fault costs a task a retry on another worker; a task that no worker could finish leaves a reason.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gensor_kernels.errors import GensorError
from gensor_kernels.install import command
from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import Executor, Result, Task, from_plain, ignore

from . import wire
from .abilities import FOLLOWS, Abilities, abilities
from .connect import FleetError, connected, refill
from .wire import TOPIC, advertise, offer, perform

#: Runs of a task, each on another worker, before it counts as lost.
ATTEMPTS = 3
#: Seconds to connect, and for the first workers to come.
CONNECT_SECONDS, FIRST_SECONDS = 12.0, 12.0
#: Seconds to wait for a scheduler that has gone, and for a worker where none is left that can run a task.
GONE_SECONDS, NOBODY_SECONDS = 120.0, 300.0
TICK = 0.5
START = "gensor-tune fleet worker --scheduler"

Answer = TypeVar("Answer")


class LostTaskError(GensorError):
    """A task that no worker could finish."""


@dataclass
class Member:
    """A worker: its abilities, tasks at once, and the parts that it measures."""

    address: str
    name: str
    host: str
    threads: int
    abilities: Abilities
    resources: dict[str, float] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The parts of its GPUs."""
        return sorted(name.partition(":")[2] for name in self.resources if name.startswith("part:"))


@dataclass
class Running:
    """A task that was sent: to which workers alone, when and where it began, and how often."""

    task: Task[Any]
    future: Any
    only: frozenset[str] = frozenset()
    began: float | None = None
    worker: str = ""
    starts: int = 0
    hung: bool = False


class Cluster:
    """The workers of a scheduler; a context manager.

    `address` is "tcp://HOST:PORT", "tls://HOST:PORT", "local", "local:N" for N processes here, or "dask" for the
    address in Dask's own configuration. `notify` is called with lines for people. Entering raises FleetError within
    half a minute where no cluster is reached or none of its workers is of use.
    """

    def __init__(self, address: str, notify: Callable[[str], None] = lambda line: None, clock=time.monotonic):
        self.address, self.notify, self.clock = address, notify, clock
        self.members: dict[str, Member] = {}
        self.refused: dict[str, str] = {}
        self.dashboard = ""
        self.counts: Counter[str] = Counter()
        self._running: dict[str, Running] = {}
        self._numbers = itertools.count()
        self._ended = False
        self._nobody: dict[str, float] = {}
        #: parts that were waited for in vain, each with the reason
        self.absent: dict[str | None, str] = {}
        self._error: BaseException | None = None

    def __enter__(self) -> Cluster:
        try:
            import distributed
        except ImportError:
            raise FleetError(f"--cluster needs Dask: {command('fleet')}") from None
        self._distributed = distributed
        for name in ("distributed.client", "distributed.core", "distributed.scheduler", "distributed.nanny"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gensor-fleet", daemon=True)
        self._thread.start()
        self._checkers = ThreadPoolExecutor(2, "gensor-check")
        try:
            self._call(self._open())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self._close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _close(self) -> None:
        self._ended = True
        with suppress(Exception):
            self._call(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._checkers.shutdown(cancel_futures=True)
        self._loop.close()

    async def _open(self) -> None:
        self._enlisting = asyncio.Lock()
        self._cluster, self._client = await connected(self.address, CONNECT_SECONDS)
        self._client.subscribe_topic(TOPIC, self._began)
        known = await self._client.scheduler.identity(n_workers=0)
        self.dashboard = self._client.dashboard_link if "dashboard" in known.get("services", {}) else ""
        self._watching = asyncio.ensure_future(self._watch())

    async def _leave(self) -> None:
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        if hasattr(self, "_watching"):
            self._watching.cancel()
        if hasattr(self, "_client"):
            await self._client.close(timeout=5)
            if self._cluster is not None:
                await self._cluster.close(timeout=10)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ready(self, kinds: Iterable[str], parts: Iterable[str] = ()) -> None:
        """Wait for workers that can run tasks of all kinds and measure on all parts; FleetError where there is none."""
        deadline = self.clock() + FIRST_SECONDS
        while True:
            self._call(self._enlist())
            lacking = [self._no_worker(kind) for kind in kinds if not self.able(kind)]
            lacking += [self._no_board(part) for part in parts if not self.measuring(part)]
            if not lacking:
                return
            if self.clock() > deadline:
                raise FleetError(lacking[0])
            time.sleep(TICK)

    def able(self, kind: str) -> list[Member]:
        """Return the workers whose results of a kind of task are the client's own."""
        resource = abilities().resource(kind)
        return [each for each in self.members.values() if resource in each.resources]

    def measuring(self, part: str) -> list[Member]:
        """Return the workers with a GPU of a part, and the client's version of the package."""
        resource = abilities().resource("part")
        return [each for each in self.members.values() if part in each.parts and resource in each.resources]

    @property
    def jobs(self) -> int:
        """Tasks at once of all workers that compile."""
        return max(1, sum(each.threads for each in self.able("compile")))

    @property
    def _where(self) -> str:
        return str(self._client.scheduler.address if self._client.scheduler else self.address)

    def _no_board(self, part: str) -> str:
        reasons = [f"{each.name}: {self._unable(each, 'part')}" for each in self.members.values() if part in each.parts]
        return self._lacks(f"measures on {part}", reasons, f"on such a machine, run {START} {self._where}")

    def _no_worker(self, kind: str) -> str:
        reasons = [f"{each.name}: {self._unable(each, kind)}" for each in self.members.values()]
        reasons += [f"{name}: {reason}" for name, reason in self.refused.items()]
        return self._lacks(f"can {kind}", reasons, f"{START} {self._where} starts one")

    def _lacks(self, ability: str, reasons: list[str], advice: str) -> str:
        return f"no worker of {self._where} {ability}" + (f" ({'; '.join(reasons[:3])})" if reasons else f": {advice}")

    def _unable(self, member: Member, kind: str) -> str:
        return member.abilities.why_not(kind, abilities()) or "it offers no such tasks"

    async def _enlist(self) -> None:
        async with self._enlisting:
            await self._enlist_new()

    async def _refill(self) -> None:
        if self._cluster is not None:
            refill(self._cluster)

    async def _enlist_new(self) -> None:
        found = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        for address in set(self.members) - set(found):
            del self.members[address]
        new = [address for address in found if address not in self.members and address not in self.refused]
        if not new:
            return
        answers = await self._client.run(offer, workers=new, on_error="return")
        for address, answered in answers.items():
            name = str(found[address].get("name", address))
            try:
                can = from_plain(Abilities, answered)
            except ValueError:
                reason = f"{type(answered).__name__}: {answered}"
                self.refused[address] = reason
                self.notify(f"worker {name} is not used: {reason}; it needs {command('tune')}")
                continue
            await self._take(address, name, found[address], can)

    async def _take(self, address: str, name: str, known: dict[str, Any], can: Abilities) -> None:
        threads, resources = int(known["nthreads"]), dict(known.get("resources") or {})
        boards = [each for each in resources if each.startswith("part:")]
        if not boards and not set(can.resources(threads)) <= set(resources):  # started by `dask worker`
            missing = can.resources(threads)
            await self._client.run(advertise, missing, workers=[address])
            resources |= missing
            await self._renew()
        member = Member(address, name, str(known.get("host", "")), threads, can, resources)
        for kind in FOLLOWS if not boards else ():
            reason = can.why_not(kind, abilities())
            if reason:
                self.notify(f"worker {name} cannot {kind}: {reason}")
        self.members[address] = member

    async def _renew(self) -> None:
        """Send tasks that wait for any worker once more: Dask does not look again where a worker's offer grows."""
        for running in list(self._running.values()):
            if running.began is None and running.future.status == "pending" and not self._could(running.task):
                await running.future.cancel()

    def _could(self, task: Task[Any]) -> bool:
        return bool(self.measuring(task.part) if task.part else self.able(task.kind))

    def submit(self, task: Task[Result]) -> Future[Result]:
        """Return the future of a task, which raises LostTaskError where no worker could finish it."""
        if self._error is not None:
            raise self._error
        return asyncio.run_coroutine_threadsafe(self._take_result(task, wire.asked(task)), self._loop)

    def at_work(self) -> Counter[str]:
        """Return how many tasks run now, by the host of their workers."""
        running = [each.worker for each in list(self._running.values()) if each.began is not None]
        return Counter(self.members[each].host if each in self.members else each for each in running)

    async def _take_result(self, task: Task[Result], message: bytes) -> Result:
        blamed: list[str] = []
        reasons: list[str] = []
        deaths = 0
        while len(reasons) < ATTEMPTS:
            if task.part in self.absent:
                reasons.append(self.absent[task.part])
                break
            key = f"gensor-{task.kind}-{self._client.id}-{next(self._numbers)}"
            running = self._send(task, message, key, blamed)
            try:
                answered = await running.future
                result = await self._loop.run_in_executor(self._checkers, wire.result_of, task, answered)
            except wire.CorruptError as error:
                reasons.append(f"{self._name(running)}: {error}")
            except (asyncio.CancelledError, CancelledError):
                if self._ended:
                    raise
                if task.part in self.absent:
                    continue
                if running.hung:
                    reasons.append(f"{self._name(running)}: it did not end within {task.seconds:g} s")
                elif self._error is not None:
                    raise self._error from None
                else:  # the scheduler has gone, or the task is to be sent again
                    await self._reconnect()
            except self._distributed.KilledWorker:
                # Dask also counts the deaths of workers where this task only waited its turn.
                deaths += max(running.starts, 1)
                if deaths >= ATTEMPTS:
                    reasons.append(f"{deaths} workers ended while they ran it")
                    break
                continue
            except Exception as error:
                reasons.append(f"{self._name(running)}: {type(error).__name__}: {error}")
            else:
                self.counts[task.kind] += 1
                return result
            finally:
                self._running.pop(key, None)
            blamed.append(running.worker)
        self.counts["lost"] += 1
        raise LostTaskError("; ".join(reasons))

    def _send(self, task: Task[Any], message: bytes, key: str, blamed: list[str]) -> Running:
        own = abilities()
        if task.part is None:
            needs, able = {own.resource(task.kind): 1}, self.able(task.kind)
        else:
            needs, able = {f"part:{task.part}": 1, own.resource("part"): 1}, self.measuring(task.part)
        others = [each.address for each in able if each.address not in blamed]
        where = {"resources": needs, "workers": others if blamed and others else None}
        future = self._client.submit(perform, task.kind, message, key, key=key, pure=False, **where)
        self._running[key] = Running(task, future, frozenset(others if blamed else ()))
        return self._running[key]

    def _name(self, running: Running) -> str:
        member = self.members.get(running.worker)
        return f"worker {member.name if member is not None else running.worker or 'unknown'}"

    def _began(self, event: tuple[float, Any]) -> None:
        facts = event[1]
        running = self._running.get(str(facts.get("key"))) if isinstance(facts, dict) else None
        if running is not None:
            running.began, running.worker = self.clock(), str(facts.get("worker", ""))
            running.starts += 1

    async def _reconnect(self) -> None:
        deadline = self.clock() + GONE_SECONDS
        while self._client.status != "running" and self.clock() < deadline and not self._ended:
            if self._client.status == "closed":
                break
            await asyncio.sleep(TICK)
        if self._client.status != "running" and not self._ended:
            advice = "what was reported is stored, and the same command goes on"
            self._error = FleetError(f"the scheduler {self.address} has gone; {advice}")
            raise self._error

    async def _watch(self) -> None:
        """Look after workers and tasks for as long as the client lives."""
        while not self._ended:
            await asyncio.sleep(TICK)
            for look in (self._refill, self._enlist, self._send_stranded, self._restart_hung, self._look_for_nobody):
                with suppress(Exception):  # the connection may be lost meanwhile, or a worker: it looks again soon
                    if self._client.status == "running":
                        await look()

    async def _send_stranded(self) -> None:
        """Send tasks again that were meant for workers which have all gone."""
        for running in list(self._running.values()):
            if running.only and running.only.isdisjoint(self.members):
                await running.future.cancel()

    async def _restart_hung(self) -> None:
        """Restart workers whose tasks take too long.

        A task whose worker has died waits for another one and has not hung. Only the scheduler knows: the members are
        those of the last look, and each restart takes seconds.
        """
        for key, running in list(self._running.items()):
            if running.began is None or self.clock() - running.began <= running.task.seconds:
                continue
            worker = running.worker
            assigned = await self._client.processing()
            if key not in assigned.get(worker, ()) or running.worker != worker or key not in self._running:
                continue
            running.hung, running.began = True, None
            self.notify(f"{self._name(running)} is restarted: a task did not end within {running.task.seconds:g} s")
            await running.future.cancel(force=True)
            try:
                await self._client.restart_workers([worker], timeout=20, raise_for_error=False)
            except ValueError:  # nobody watches this worker: it can only be sent away
                await self._client.retire_workers([worker], close_workers=True, remove=True)

    async def _look_for_nobody(self) -> None:
        """Give up tasks that have waited too long for a worker: those of a part, or else the run."""
        self.absent = {part: line for part, line in self.absent.items() if part and not self.measuring(part)}
        # Thousands of tasks run, of few kinds: a query per task would search thousands of workers every time.
        kinds = {(each.task.kind, each.task.part): each.task for each in self._running.values()}
        waiting = [task for task in kinds.values() if not self._could(task)]
        lacks = {self._no_board(task.part) if task.part else self._no_worker(task.kind): task.part for task in waiting}
        for line in lacks.keys() - self._nobody.keys():
            self.notify(f"tasks wait: {line}")
        now = self.clock()
        self._nobody = {line: self._nobody.get(line, now) for line in lacks}
        for line, since in self._nobody.items():
            # A task that is given up may end much later: the scheduler asks a closed worker for its result until
            # that times out.
            if now - since > NOBODY_SECONDS and lacks[line] not in self.absent:
                await self._give_up(lacks[line], line)

    async def _give_up(self, part: str | None, line: str) -> None:
        """Give up the tasks of a part, which come back with the reason; without a part, end the run."""
        if part is None:
            self._error = FleetError(line)
        else:
            self.absent[part] = line
            self.notify(f"tasks for {part} are given up until a worker has it")
        for running in list(self._running.values()):
            if part is None or running.task.part == part:
                await running.future.cancel()


class Fleet(Executor):
    """Runs tasks on the workers of a cluster, those of `kinds_here` here; with `distrust`, stored ones here again."""

    def __init__(self, cluster: Cluster, here: Local, kinds_here: Sequence[str] = (), distrust: bool = False):
        super().__init__(cluster.jobs, here if distrust else None)
        self.cluster, self.here, self.kinds_here = cluster, here, kinds_here

    def own(self) -> Fleet:
        """Return a view with its own list `lost`."""
        return Fleet(self.cluster, self.here, self.kinds_here, self.again is not None)

    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks, in their order."""
        if tasks and tasks[0].kind in self.kinds_here:
            return self.here.map(tasks, done)
        futures: dict[Hashable, Future[Result]] = {}
        try:
            keys = [index if task.key is None else task.key for index, task in enumerate(tasks)]
            for key, task in zip(keys, tasks, strict=True):
                if key not in futures:
                    futures[key] = self.cluster.submit(task)
            results = []
            for index, (key, task) in enumerate(zip(keys, tasks, strict=True)):
                results.append(self._result(task, futures[key]))
                done(index, results[-1])
            return results
        except BaseException:
            for future in futures.values():
                future.cancel()
            raise

    def _result(self, task: Task[Result], future: Future[Result]) -> Result:
        try:
            return future.result()
        except LostTaskError as error:
            self.lost.append(f"{task.kind}: {error}")
            if task.part not in self.cluster.absent:  # which is reported once
                self.cluster.notify(f"gave up a task to {task.kind}: {error}")
            return task.lost(f"{task.kind} could not be finished: {error}")
