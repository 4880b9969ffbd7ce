"""The public functions as users call them: results, graph capture, several streams."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gensor_kernels
from gensor_tuner.shapes.reader import NoRowsError, read_shapes

from . import public_calls
from .harness.session import Item, Session
from .public_calls import Shown

STEP = "public"
STREAMS = 4
REHEARSED_CALLS = 4


def items(session: Session) -> Iterator[Item]:
    """Yield the functions and streams, with this run's database and trusted predictions."""
    os.environ["GENSOR_DB"] = str(session.out / "device.db")
    os.environ["GENSOR_TUNE"] = "predicted"
    shown = public_calls.calls(session.emulate)
    for name, each in shown.items() if not session.emulate else [*shown.items()][:: len(shown) // REHEARSED_CALLS]:
        yield Item(name, partial(function, session, name, each))
    if not session.emulate:
        yield Item("streams", lambda: streams(session))


def context(session: Session) -> AbstractContextManager[Any]:
    """Return the context of the calls: this GPU, or the emulator."""
    return gensor_kernels.emulated(session.arch.part) if session.emulate else nullcontext()


def placed(session: Session, drawn: public_calls.Arrays) -> public_calls.Arrays:
    """Return arrays on the device."""
    return public_calls.Arrays({name: session.device.xp.asarray(each) for name, each in drawn.items()})


def function(session: Session, name: str, shown: Shown) -> dict[str, Any]:
    """Call one public function: return its tiers and its error, directly and in a replayed graph.

    Products are captured, whoever serves them.
    """
    drawn = public_calls.draw(shown)
    arrays = placed(session, drawn)
    found: dict[str, Any] = {}
    with context(session):
        result = shown.call(arrays)
        session.synchronize()
        found["worst"] = public_calls.error(session.device.host(result), public_calls.reference(shown, drawn))
        found["tiers"] = tiers(lambda: shown.call(arrays))
        if not session.emulate:
            found["graph"] = capture(session, shown, arrays)
    worst = max(found["worst"], found.get("graph", {}).get("worst", 0.0))
    if name.startswith("matmul") and "not_captured" in found.get("graph", {}):
        return found | {"outcome": "wrong", "error": found["graph"]["not_captured"]}
    return found if worst <= 1 else found | {"outcome": "wrong", "error": f"{worst:.2f} times the tolerance"}


def tiers(call: Callable[[], Any]) -> dict[str, int]:
    """Return the number of parts of a call by tier, as a recording counts them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.csv"
        with gensor_kernels.record(path):
            call()
        try:
            return {f"tier {row.notes['tier']}": row.count for row in read_shapes(path)}
        except NoRowsError:  # no function of ours was called
            return {"CuPy": 1}


def capture(session: Session, shown: Shown, arrays: public_calls.Arrays) -> dict[str, Any]:
    """Capture a call and replay it on other numbers in the same memory, after all freed memory has been overwritten;
    return its error and the bytes that remain when the graph is gone, or CuPy's message where its own calls cannot be
    captured."""
    cupy: Any = session.device.xp
    pool = cupy.get_default_memory_pool()
    other = public_calls.draw(shown, seed=1)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        shown.call(arrays)  # loads kernels, and frees the blocks that capture takes: it may do neither itself
        stream.synchronize()
    session.synchronize()
    before = pool.used_bytes()
    try:
        with stream:
            stream.begin_capture()
            try:
                result = shown.call(arrays)
            finally:
                made = stream.end_capture()
    except Exception as error:
        if not session.healthy():
            raise
        return {"not_captured": f"{type(error).__name__}: {error}"[:200]}
    for name, each in other.items():
        arrays[name][...] = cupy.asarray(each)
    _overwrite(cupy, pool, stream)
    session.synchronize()
    made.launch(stream)
    stream.synchronize()
    worst = public_calls.error(session.device.host(result), public_calls.reference(shown, other))
    del result, made
    gc.collect()  # releases the memory of destroyed graphs
    return {"worst": worst, "kept_bytes": pool.used_bytes() - before}


def _overwrite(cupy: Any, pool: Any, stream: Any) -> None:
    """Fill the memory that a stream has freed with NaNs, and return it to the driver."""
    with stream:
        others = [cupy.full(1 << exponent, 0xFF, np.uint8) for exponent in range(9, 25) for _ in range(4)]
        stream.synchronize()
    others.clear()
    pool.free_all_blocks()


def streams(session: Session) -> dict[str, Any]:
    """Make the same call on several streams at once, each with other operands, several times over."""
    cupy: Any = session.device.xp
    shown = public_calls.calls(False)["matmul float16 1024x512x768 bias relu"]
    drawn = [public_calls.draw(shown, seed) for seed in range(STREAMS)]
    arrays = [placed(session, each) for each in drawn]
    lanes, results = [cupy.cuda.Stream(non_blocking=True) for _ in drawn], dict[int, Any]()
    session.synchronize()
    for _ in range(8):
        for number, (each, lane) in enumerate(zip(arrays, lanes, strict=True)):
            with lane:
                results[number] = shown.call(each)
    for lane in lanes:
        lane.synchronize()
    wanted = [public_calls.reference(shown, each) for each in drawn]
    worst = max(public_calls.error(session.device.host(results[number]), each) for number, each in enumerate(wanted))
    return {"worst": worst} | ({} if worst <= 1 else {"outcome": "wrong", "error": f"{worst:.2f} times the tolerance"})
