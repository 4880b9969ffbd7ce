"""A Jetson's power mode can change while a program runs: timings of another mode no longer hold.

Driver and CuPy stay what they are as long as a process lives. Steady calls run no code that could notice, so a thread
looks; only where there are power modes.
"""

from __future__ import annotations

import json
import threading
from weakref import ref

from gensor_kernels import config

from .tuned_calls import TunedCalls

SECONDS = 10.0  # between two looks, each of one small file


def watch(runtime: TunedCalls, seconds: float = SECONDS) -> threading.Thread | None:
    """Start a thread that adapts `runtime` to changed conditions while it exists, or None if they cannot change."""
    if "power_mode" not in json.loads(runtime.library.conditions):
        return None
    thread = threading.Thread(target=_look, args=(ref(runtime), seconds), name="gensor-power-mode", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # there may be no more threads, and at a program's end there are none
        config.logger().info("a change of the power mode will not be noticed: %s", error)
        return None
    return thread


def _look(watched: ref[TunedCalls], seconds: float) -> None:
    pause = threading.Event()
    while not pause.wait(seconds):
        runtime = watched()
        if runtime is None:
            return
        try:
            found = runtime.device.conditions()
        except Exception as error:  # the driver is shutting down, say
            config.logger().info("the power mode is not watched any more: %s", error)
            return
        if found != runtime.library.conditions:
            config.logger().info("conditions changed from %s to %s", runtime.library.conditions, found)
            runtime.adapt(found)
        del runtime
