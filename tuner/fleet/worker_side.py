"""Functions that run on workers: the only ones that a client sends, by their names."""

from __future__ import annotations

import os
from typing import Any

from . import wire
from .abilities import abilities

#: Events of workers: which task begins where.
TOPIC = "gensor"


def perform(kind: str, message: bytes, key: str) -> bytes:
    """Run one task; the client learns where it began, and counts from then."""
    from distributed import get_worker

    worker = get_worker()
    os.environ.setdefault("GENSOR_CACHE_DIR", os.path.join(worker.local_directory, "gensor-cache"))
    worker.log_event(TOPIC, {"key": key, "worker": worker.address})
    answered, gone = wire.answer(kind, message)
    if gone:  # its tasks go to other workers
        worker.loop.add_callback(worker.close, reason="gensor-device-gone")
    return answered


def offer() -> dict[str, Any]:
    """Return what this worker's machine can do."""
    return abilities().to_json()


async def advertise(resources: dict[str, float], dask_worker: Any = None) -> None:
    """Offer resources, on a worker that was started without them."""
    await dask_worker.set_resources(**resources)
