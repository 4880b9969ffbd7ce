"""Properties that are computed once: `cached_property` of Python 3.12 for every Python, without a lock.

Up to Python 3.11 `functools.cached_property` holds one lock for all instances of a class while it computes: threads
wait for one another, and a forked child waits forever for a thread that it does not have.  Without the lock two threads
may both compute a value, and one of the two values stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    import functools
    from contextlib import nullcontext

    class cached_property(functools.cached_property):
        """A property that is computed at its first use and kept in the instance's dictionary."""

        def __init__(self, func: Callable[[Any], Any]):
            super().__init__(func)
            self.lock = nullcontext()


__all__ = ["cached_property"]
