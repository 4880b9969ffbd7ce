"""Tasks and results as bytes: JSON after its digest; and the functions that run on workers, the only ones sent by name.

Nothing here is ever unpickled, and every result is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback
import zlib
from dataclasses import asdict
from functools import partial
from typing import Any

from gensor_kernels.errors import MALFORMED, GensorError
from gensor_tuner.build.binaries import Compile
from gensor_tuner.measure.board import BoardGoneError, ExecuteOnDevice, Time
from gensor_tuner.strategies.request import Request
from gensor_tuner.tasks.task import Result, Task, from_plain, to_plain
from gensor_tuner.verify.verify import Execute

from .abilities import abilities

KINDS: dict[str, type[Task[Any]]] = {each.kind: each for each in (Request, Compile, Execute, Time, ExecuteOnDevice)}
DIGEST_BYTES = hashlib.sha256().digest_size
LARGEST = 1 << 28  # bytes of a message, inflated
#: Events of workers: which task begins where.
TOPIC = "gensor"
#: Characters kept from the end of a worker's traceback.
LONGEST_ERROR = 400


class CorruptError(GensorError):
    """Bytes that are no result of the requested task, or the reason why there is none."""


def pack(body: object) -> bytes:
    """Return a message."""
    text = zlib.compress(json.dumps(to_plain(body), separators=(",", ":")).encode(), 1)
    return hashlib.sha256(text).digest() + text


def unpack(message: bytes) -> dict[str, Any]:
    """Return the body of a message; CorruptError for other bytes than `pack` has made."""
    digest, text = bytes(message[:DIGEST_BYTES]), bytes(message[DIGEST_BYTES:])
    if hashlib.sha256(text).digest() != digest:
        raise CorruptError(f"{len(message)} bytes that do not match their digest")
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(text, LARGEST)
        body = json.loads(inflated, parse_int=partial(_positive, int), parse_float=partial(_positive, float))
    except (zlib.error, ValueError, RecursionError) as error:
        raise CorruptError(str(error)) from None
    if not isinstance(body, dict):
        raise CorruptError("no JSON object")
    return body


def _positive(kind: type[float], text: str) -> float:
    """Return the number in a text; ValueError below 0, because all are counts, seconds or microseconds."""
    if text.startswith("-"):
        raise ValueError(f"{text[:40]} is below 0")
    return kind(text)


def asked(task: Task[Any]) -> bytes:
    """Return the message that requests a task."""
    return pack(task.arguments())


def answer(kind: str, message: bytes) -> tuple[bytes, bool]:
    """Run a task on a worker; return its result or the reason for its absence, and whether the GPU has gone."""
    try:
        task = KINDS[kind].from_arguments(unpack(message))
        result = task.pack(task.run())
        return pack({"result": result}), False
    except Exception as error:  # whatever it is, another worker may do better
        return pack({"error": traceback.format_exc(limit=-2)[-LONGEST_ERROR:]}), isinstance(error, BoardGoneError)


def result_of(task: Task[Result], message: bytes) -> Result:
    """Return the result in a message; CorruptError unless it can be one of this task."""
    body = unpack(message)
    if "error" in body:
        raise CorruptError(str(body["error"]).strip().splitlines()[-1])
    try:
        return task.unpack(from_plain(task.answer, body["result"]))
    except MALFORMED as error:
        raise CorruptError(f"no result of this task: {type(error).__name__}: {str(error)[:LONGEST_ERROR]}") from None


def perform(kind: str, message: bytes, key: str) -> bytes:
    """Run one task; the client learns where it began, and counts from then."""
    from distributed import get_worker

    worker = get_worker()
    os.environ.setdefault("GENSOR_CACHE_DIR", os.path.join(worker.local_directory, "gensor-cache"))
    worker.log_event(TOPIC, {"key": key, "worker": worker.address})
    answered, gone = answer(kind, message)
    if gone:  # its tasks go to other workers
        worker.loop.add_callback(worker.close, reason="gensor-device-gone")
    return answered


def offer() -> dict[str, Any]:
    """Return what this worker's machine can do: its `Abilities`."""
    return asdict(abilities())


async def advertise(resources: dict[str, float], dask_worker: Any = None) -> None:
    """Offer resources, on a worker that was started without them."""
    await dask_worker.set_resources(**resources)
