"""Values and public names at their first use: properties that are computed then, and names that packages import then.

`cached_property` is that of Python 3.12 for every Python, without a lock.

Up to Python 3.11 `functools.cached_property` holds one lock for all instances of a class while it computes: threads
wait for one another, and a forked child waits forever for a thread that it does not have.  Without the lock two threads
may both compute a value, and one of the two values stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
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


def public(package: str, names: Collection[str], modules: Sequence[str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports a public name from the first of `modules` that has it."""

    def __getattr__(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        for module in modules:
            found = vars(import_module(f"{package}.{module}"))
            if name in found:
                return vars(sys.modules[package]).setdefault(name, found[name])
        raise AssertionError(name)

    return __getattr__


__all__ = ["cached_property", "public"]
