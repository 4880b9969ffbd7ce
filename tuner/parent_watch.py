"""Child processes that end when their parent is gone, for whatever reason."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time

WATCH_SECONDS = 0.5


def follow(parent: int, limit_bytes: float = math.inf) -> None:
    """Start a thread that ends this process when `parent` is gone, or when memory use exceeds `limit_bytes`."""
    threading.Thread(target=watch, args=(parent, limit_bytes), name="gensor-watch", daemon=True).start()


def watch(parent: int, limit_bytes: float) -> None:
    """Wait until this process has another parent or uses too much memory; then end it and its children."""
    while os.getppid() == parent and _used_bytes() <= limit_bytes:
        time.sleep(WATCH_SECONDS)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():  # walkers belong to it; g++ ends with this process
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _used_bytes() -> float:
    """Return the peak memory of this process in bytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
