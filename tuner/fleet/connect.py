"""From the text of `--cluster` to a Dask client; each way to fail is one sentence."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from typing import Any

from gensor_kernels import config
from gensor_kernels.build import parallel
from gensor_kernels.errors import ConfigError, GensorError

from .abilities import abilities

LOCAL = re.compile(r"local(?::([1-9][0-9]{0,3}))?\Z")
REMOTE = re.compile(r"(tcp|tls|ws|wss)://[^\s/]+:[0-9]{1,5}/?\Z")
#: Dask's configuration of workers that we start: it would sample the stack of every walk a hundred times a second.
WORKER_CONFIG = {"distributed.worker.profile.enabled": False}
#: Workers that may end while they run a task, before a cluster of our own gives the task up.
FAILURES = 2
#: Attempts to start a cluster of our own.
STARTS = 2


class FleetError(GensorError):
    """The cluster cannot be used; what was reported is stored."""


class AddressError(ConfigError):
    """No address of a cluster."""


def check(address: str) -> None:
    """Raise AddressError unless this is what `--cluster` takes."""
    if address != "dask" and not LOCAL.match(address) and not REMOTE.match(address):
        known = "tcp://HOST:PORT, tls://HOST:PORT, local, local:N, or dask for the address in Dask's configuration"
        raise AddressError(f"--cluster takes {known}, not '{address}'")


async def connected(address: str, seconds: float) -> tuple[Any, Any]:
    """Return the cluster that was started here, or None, and a client; FleetError where no scheduler can be used."""
    found = LOCAL.match(address)
    if found:
        return await _start(int(found[1] or parallel.usable_cores()))
    try:
        return None, await _client(address, seconds)
    except (TimeoutError, OSError, asyncio.TimeoutError) as error:
        raise FleetError(f"no scheduler answers at {_address_of(address)}: {reason(error)}") from None
    except MemoryError:  # the first bytes of another protocol, read as the length of a message
        raise FleetError(f"no scheduler answers at {_address_of(address)}: the program there is not Dask's") from None
    except (RuntimeError, TypeError, ValueError, ImportError) as error:
        raise FleetError(f"the scheduler at {_address_of(address)} cannot be used: {reason(error)}") from None


async def _start(count: int) -> tuple[Any, Any]:
    """Start single-threaded worker processes here, as walks hold Python's lock; start again where one ends at once."""
    import dask
    from distributed import Client, LocalCluster

    why = ""
    for _ in range(STARTS):
        with dask.config.set({"distributed.scheduler.allowed-failures": FAILURES}):  # read when the scheduler starts
            cluster: Any = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                asynchronous=True,
                dashboard_address="127.0.0.1:0",
                resources=abilities().resources(1),
                env={"GENSOR_CACHE_DIR": str(config.cache_dir())},
                config=WORKER_CONFIG,
                silence_logs=50,
            )
            try:
                await cluster
                return cluster, await Client(cluster, asynchronous=True)
            except (RuntimeError, OSError, TimeoutError, asyncio.TimeoutError) as error:
                why = reason(error)
                with suppress(Exception):
                    await cluster.close(timeout=5)
    raise FleetError(f"the processes of --cluster local:{count} end while they start: {why}")


def security_of(address: str) -> dict[str, Any]:
    """Return the arguments of a worker's connections to an address: certificates of Dask's configuration for TLS."""
    from distributed.security import Security

    encrypted = address.startswith(("tls:", "wss:"))
    return dict(Security().get_connection_args("worker")) if encrypted else {}


def refill(cluster: Any) -> None:
    """Start workers of a local cluster in place of workers that ended while they started."""
    from distributed import Status

    count = len(cluster.worker_spec)
    gone = [name for name, each in cluster.workers.items() if each.status in (Status.closed, Status.failed)]
    for name in gone:
        cluster.worker_spec.pop(name, None)
        cluster.workers.pop(name, None)
    if len(cluster.workers) < count:
        cluster.scale(count)


async def _client(address: str, seconds: float) -> Any:
    import dask
    from distributed import Client
    from distributed.security import Security

    security = Security() if address.startswith(("tls:", "wss:")) else None
    given = None if address == "dask" else address
    if given is None and not dask.config.get("scheduler-address", None):
        raise ValueError("Dask's configuration names none: set DASK_SCHEDULER_ADDRESS")
    client = Client(given, asynchronous=True, timeout=seconds, security=security, set_as_default=False)
    try:
        return await asyncio.wait_for(client, seconds + 3)
    except BaseException:
        with suppress(Exception):
            await client.close(timeout=1)
        raise


def _address_of(address: str) -> str:
    import dask

    return str(dask.config.get("scheduler-address", None) or address) if address == "dask" else address


def reason(error: BaseException) -> str:
    """Return the innermost reason in one line: Dask wraps what the network has said."""
    while error.__cause__ is not None and not isinstance(error.__cause__, asyncio.CancelledError):
        error = error.__cause__
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or error}"
    text = " ".join(str(error).split())
    return text[:300] or "no answer in time"
