"""`gensor-tune fleet worker`: this machine's processes for a scheduler, and one for its GPU."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gensor_kernels import config
from gensor_kernels.errors import GensorError
from gensor_kernels.install import command
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure.board import Board, BoardGoneError
from gensor_tuner.output import plural

from .abilities import FOLLOWS, abilities
from .connect import REMOTE, security_of
from .errors import FleetError

#: Seconds between attempts to reach a scheduler that is not there.
AGAIN_SECONDS = 5.0
#: Seconds that a process is given to end.
END_SECONDS = 10.0


def serve(scheduler: str, jobs: int, scratch: Path | None, tell: Callable[[str], None]) -> None:
    """Offer this machine to a scheduler until Ctrl-C; come back where the scheduler comes back.

    Parameters
    ----------
    scheduler : str
        "tcp://HOST:PORT" or "tls://HOST:PORT".
    jobs : int
        Processes that walk, compile and verify.
    scratch : Path or None
        The folder that tasks write to; None is a folder in the cache folder.
    tell : callable
        Called with lines for people.

    Raises
    ------
    FleetError
        Where Dask is missing, or the machine can do nothing.
    """
    try:
        import dask
        import distributed  # noqa: F401 - what a worker is
    except ImportError:
        raise FleetError(f"a worker needs Dask: {command('fleet')}") from None
    part = _part(tell)
    offered = abilities().resources(1)
    if not offered and part is None:
        reasons = "; ".join(abilities().why_not(kind) for kind in FOLLOWS)
        raise FleetError(f"this machine can do nothing for a cluster: {reasons}")
    folder = scratch or config.cache_dir() / "fleet"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kinds = [kind for kind in FOLLOWS if not abilities().why_not(kind)]
    count = jobs if kinds else 0
    told = f"{count} {plural('process', count)} to {', '.join(kinds)}" if count else "nothing to compile with"
    tell(f"{told}; {'no GPU' if part is None else f'a process that measures on {part}'}; scratch folder {folder}")
    # The process that measures has a child, which owns the GPU: Python forbids that to daemons.
    with dask.config.set({"distributed.worker.daemon": False}):
        asyncio.run(_Serving(scheduler, count, offered, part, folder, tell).forever())


def _part(tell: Callable[[str], None]) -> str | None:
    """Return the part of this machine's GPU; a process of its own opens it, and ends."""
    board = Board()
    try:
        with board:
            return board.part()
    except (GpuError, BoardGoneError) as error:
        if getattr(error, "worth_telling", True):
            tell(f"not measuring: {error}")
        return None


class _Serving:
    """The processes of this machine, for as long as a scheduler wants them."""

    def __init__(
        self,
        scheduler: str,
        count: int,
        offered: Mapping[str, float],
        part: str | None,
        folder: Path,
        tell: Callable[[str], None],
    ):
        self.scheduler, self.count, self.offered, self.part = scheduler, count, offered, part
        self.folder, self.tell = folder, tell
        self._ended: asyncio.Event | None = None

    async def forever(self) -> None:
        """Serve until a signal comes."""
        self._ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ended.set)
        waiting = False
        while not self._ended.is_set():
            if not await self._reachable():
                if not waiting:
                    self.tell(f"waiting for a scheduler at {self.scheduler}")
                waiting = True
                await self._sleep(AGAIN_SECONDS)
                continue
            waiting = False
            nannies = [self._nanny(number) for number in range(self.count)]
            nannies += [self._nanny(None)] if self.part is not None else []
            try:
                await asyncio.gather(*nannies)
                self.tell(f"serving {self.scheduler}")
                await self._while_serving(nannies)
            except (OSError, TimeoutError, RuntimeError) as error:
                self.tell(f"the scheduler at {self.scheduler} cannot be used: {error}")
                await self._sleep(AGAIN_SECONDS)
            finally:
                await asyncio.gather(*(each.close(timeout=END_SECONDS) for each in nannies), return_exceptions=True)

    async def _while_serving(self, nannies: list[Any]) -> None:
        """Wait until a signal comes, or every process has ended: their scheduler has gone."""
        from distributed import Status

        assert self._ended is not None
        ended = (Status.closed, Status.failed, Status.closing)
        while not self._ended.is_set() and not all(each.status in ended for each in nannies):
            if not await self._reachable():
                self.tell(f"the scheduler at {self.scheduler} has gone")
                return
            await self._sleep(AGAIN_SECONDS)

    async def _reachable(self) -> bool:
        from distributed.comm import connect

        with suppress(OSError, TimeoutError, asyncio.TimeoutError):
            comm = await connect(self.scheduler, timeout=AGAIN_SECONDS, **security_of(self.scheduler, "worker"))
            await comm.close()
            return True
        return False

    async def _sleep(self, seconds: float) -> None:
        assert self._ended is not None
        with suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def _nanny(self, number: int | None) -> Any:
        """Return the nanny of a process; None is the process that measures."""
        from distributed import Nanny
        from distributed.security import Security

        if number is None:
            resources = {f"part:{self.part}": 1.0, abilities().resource("part"): 1.0}
        else:
            resources = dict(self.offered)
        name = f"{os.uname().nodename}-{os.getpid()}-{'gpu' if number is None else number}"
        return Nanny(
            self.scheduler,
            nthreads=1,
            name=name,
            resources=resources,
            local_directory=str(self.folder),
            env={"GENSOR_CACHE_DIR": str(self.folder)},
            security=Security() if self.scheduler.startswith("tls") else None,
            silence_logs=50,
        )


def check(scheduler: str) -> None:
    """Raise GensorError unless this is the address of a scheduler."""
    if not REMOTE.match(scheduler):
        raise GensorError(f"--scheduler takes tcp://HOST:PORT or tls://HOST:PORT, not '{scheduler}'")
