"""Processes that work for another one: they end when it is gone, however that came."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time

WATCH_SECONDS = 0.5


def follow(parent: int, limit_bytes: float = math.inf) -> None:
    """From now on this process ends with `parent`, or when it has used more memory than `limit_bytes`."""
    threading.Thread(target=watch, args=(parent, limit_bytes), name="gensor-watch", daemon=True).start()


def watch(parent: int, limit_bytes: float) -> None:
    """Ends this process and its children when the parent is another one than `parent`, or memory beyond the limit."""
    while os.getppid() == parent and _used_bytes() <= limit_bytes:
        time.sleep(WATCH_SECONDS)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():  # compilers and walkers are of this process's group
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _used_bytes() -> float:
    """The most memory this process ever used; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
