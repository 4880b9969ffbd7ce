"""`gensor-tune fleet worker`: this machine's processes for a scheduler, and one for each of its GPUs."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gensor_kernels import config
from gensor_kernels.errors import GensorError
from gensor_kernels.install import command
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure.board import NUMBER, Board, BoardGoneError
from gensor_tuner.output import plural
from gensor_tuner.verify.device_process import EndedError

from .abilities import FOLLOWS, abilities
from .connect import REMOTE, WORKER_CONFIG, FleetError, reason, security_of

#: Seconds between attempts to reach a scheduler that is not there.
AGAIN_SECONDS = 5.0
#: Seconds that a process is given to end.
END_SECONDS = 10.0

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Offer:
    """A process to start: its name, the resources that it advertises, and the number of the GPU that it owns."""

    name: str
    resources: Mapping[str, float]
    gpu: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def serve(scheduler: str, jobs: int, scratch: Path | None, notify: Notify) -> None:
    """Offer this machine to a scheduler until Ctrl-C; FleetError without Dask, a certificate or an ability."""
    try:
        import dask
        import distributed  # noqa: F401 - what a worker is
    except ImportError:
        raise FleetError(f"a worker needs Dask: {command('fleet')}") from None
    _check_security(scheduler)
    parts = _parts(notify)
    offers = _offers(parts, jobs)
    if not offers:
        reasons = "; ".join(filter(None, (abilities().why_not(kind) for kind in FOLLOWS)))
        raise FleetError(f"this machine can do nothing for a cluster: {reasons}")
    folder = scratch or config.cache_dir() / "fleet"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    count = len(offers) - len(parts)
    kinds = ", ".join(kind for kind in FOLLOWS if not abilities().why_not(kind))
    summary = f"{count} {plural('process', count)} to {kinds}" if count else "nothing that compiles"
    boards = f"measuring on {', '.join(parts.values())}" if parts else "no GPU"
    notify(f"{summary}; {boards}; scratch folder {folder}")
    # The process that measures has a child, which owns the GPU: Python forbids that to daemons.
    with dask.config.set({"distributed.worker.daemon": False}):
        asyncio.run(_Serving(scheduler, offers, folder, notify).forever())


def _offers(parts: Mapping[int, str], jobs: int) -> list[Offer]:
    """Return the processes of a machine with these parts, by the number of their GPU."""
    able = abilities()
    resources = able.resources(1)
    # A board without a compiler measures, and nothing else: walks would disturb the times.
    count = 0 if not resources or (parts and able.why_not("compile")) else jobs
    offers = [Offer(str(number), resources) for number in range(count)]
    for number, part in parts.items():
        measuring = {f"part:{part}": 1.0, able.resource("part"): 1.0}
        offers.append(Offer(f"gpu{number}", measuring, number, {NUMBER: str(number)}))
    return offers


def _parts(notify: Notify) -> dict[int, str]:
    found: dict[int, str] = {}
    number, count = 0, 1
    while number < count:
        try:
            found[number], count = opened(number)
        except GpuError as error:
            if number or error.worth_telling:
                notify(f"not measuring on GPU {number}: {error}")
        number += 1
    return found


def opened(number: int) -> tuple[str, int]:
    """Return the part of a GPU and the number of GPUs; a process opens it and ends. GpuError where that fails."""
    try:
        with Board(number) as board:
            arch, count, _ = board.about()
    except (BoardGoneError, EndedError) as error:
        raise GpuError(str(error), worth_telling=True) from None
    return arch.part, count


class _Serving:
    """The processes of this machine, for as long as a scheduler wants them."""

    def __init__(self, scheduler: str, offers: list[Offer], folder: Path, notify: Notify):
        self.scheduler, self.offers, self.folder, self.notify = scheduler, offers, folder, notify
        self._there: bool | None = None

    async def forever(self) -> None:
        """Serve until a signal comes, or nothing is left to offer."""
        self._asking, ended = asyncio.Lock(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        keeping = [asyncio.ensure_future(self._keep(each)) for each in self.offers]
        signalled = asyncio.ensure_future(ended.wait())
        failing = asyncio.ensure_future(asyncio.wait(keeping, return_when=asyncio.FIRST_EXCEPTION))
        try:
            await asyncio.wait((signalled, failing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*keeping, signalled, failing):
                each.cancel()
            await asyncio.wait(keeping, timeout=2 * END_SECONDS)
            for process in multiprocessing.active_children():  # a nanny may not have managed
                process.kill()
        if not ended.is_set():
            for each in keeping:
                if each.done() and not each.cancelled():
                    each.result()  # raises its error, if it had one
            raise FleetError("no process is left that this machine could offer")

    async def _keep(self, offer: Offer) -> None:
        """Keep a process at work for as long as its GPU, if it owns one, can be opened."""
        served = False
        while await self._opens(offer, served):
            await self._come()
            nanny, served = self._nanny(offer), True
            try:
                await nanny
                await nanny.finished()
            except (OSError, TimeoutError, asyncio.TimeoutError, RuntimeError) as error:
                self.notify(f"process {offer.name} could not join {self.scheduler}: {reason(error)}")
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                with suppress(OSError, TimeoutError, asyncio.TimeoutError, RuntimeError):
                    await nanny.close(timeout=END_SECONDS)

    async def _opens(self, offer: Offer, served: bool) -> bool:
        """Return whether an offer still holds: a process that has ended may have done so because its GPU is gone."""
        if offer.gpu is None or not served:
            return True
        try:
            await asyncio.to_thread(opened, offer.gpu)
        except GpuError as error:
            self.notify(f"GPU {offer.gpu} cannot be opened any more, so nothing is measured on it: {error}")
            return False
        return True

    async def _come(self) -> None:
        """Wait until the scheduler is there; each change is reported once."""
        async with self._asking:
            while why := await self._unreachable():
                if self._there is not False:
                    self.notify(f"waiting for a scheduler at {self.scheduler}: {why}")
                self._there = False
                await asyncio.sleep(AGAIN_SECONDS)
            if not self._there:
                self.notify(f"serving {self.scheduler}")
            self._there = True

    async def _unreachable(self) -> str:
        from distributed.comm import connect

        try:
            comm = await connect(self.scheduler, timeout=AGAIN_SECONDS, **security_of(self.scheduler))
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            return reason(error)
        await comm.close()
        return ""

    def _nanny(self, offer: Offer) -> Any:
        from distributed import Nanny
        from distributed.security import Security

        return Nanny(
            self.scheduler,
            nthreads=1,
            name=f"{os.uname().nodename}-{os.getpid()}-{offer.name}",
            resources=dict(offer.resources),
            local_directory=str(self.folder),
            env={"GENSOR_CACHE_DIR": str(self.folder), **offer.environment},
            config=WORKER_CONFIG,
            security=Security() if self.scheduler.startswith("tls:") else None,
            silence_logs=50,
        )


def check(scheduler: str) -> None:
    """Raise GensorError unless this is the address of a scheduler."""
    if not REMOTE.match(scheduler) or scheduler.startswith("ws"):
        raise GensorError(f"--scheduler takes tcp://HOST:PORT or tls://HOST:PORT, not '{scheduler}'")


def _check_security(scheduler: str) -> None:
    """Raise FleetError where an address is encrypted and Dask's configuration has no certificates that can be read."""
    if not scheduler.startswith("tls:"):
        return
    try:
        context = security_of(scheduler).get("ssl_context")
    except (OSError, ValueError) as error:
        raise FleetError(f"the certificates of Dask's configuration cannot be used: {reason(error)}") from None
    if context is None:
        settings = "distributed.comm.tls.ca-file and distributed.comm.tls.worker"
        raise FleetError(f"{scheduler} needs certificates: set {settings} in Dask's configuration")
