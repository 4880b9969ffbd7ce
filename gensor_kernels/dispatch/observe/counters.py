"""Counters of the calls of this process.

Events are counted where counting costs little: first calls, races, tunings, calls of the array library.
Warm calls that a kernel serves are counted with `GENSOR_COUNT_HITS=1`, or while calls are recorded: they take the way
of first calls then, some microseconds longer.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any
from weakref import WeakSet

from gensor_kernels import config

#: All Runtimes of the process.
runtimes: WeakSet[Any] = WeakSet()


class Tally:
    """A number that threads may add to without waiting for each other."""

    def __init__(self) -> None:
        self._steps = count()
        self.add: Callable[[], int] = self._steps.__next__

    def value(self) -> int:
        """Return how often `add` was called."""
        return int(repr(self._steps)[len("count(") : -1])


misses, races, tunes, fallbacks = Tally(), Tally(), Tally(), Tally()
hits = {tier: Tally() for tier in range(5)}


def note_hit(plan: object) -> None:
    """Count a call whose Plan was there already; those of the array library are counted as they are served."""
    hits[getattr(plan, "tier", 0)].add()


def counters() -> dict[str, Any]:
    """Count what served the calls of this process.

    Returns
    -------
    dict
        hits : dict of int, or None
            Calls that kernels served without planning, by tier, or None if they are not
            counted: counting takes `GENSOR_COUNT_HITS=1`, or a recording, because it
            is a noticeable part of what such a call costs.
        misses : int
            Calls that had to be planned, the first calls of their kinds.
        races : int
            Races between kernels and the array library.
        tunes : int
            Tunings that ended with a kernel.
        fallbacks : int
            Calls that the array library served (tier 4).
        kinds : dict of int
            Kinds of calls that are known now, by the tier that serves them (0: nothing
            to compute).

    Notes
    -----
    With `GENSOR_LOG=info`, the process logs the counters when it ends.

    Examples
    --------
    >>> before = gensor_kernels.counters()["misses"]
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     y = gensor_kernels.matmul(a, a.T)
    ...     y = gensor_kernels.matmul(a, a.T)
    >>> gensor_kernels.counters()["misses"] - before
    1
    """
    served = {tier: hits[tier].value() for tier in (1, 2, 3)}
    return {
        "hits": served if any(served.values()) or config.counts_hits() else None,
        "misses": misses.value(),
        "races": races.value(),
        "tunes": tunes.value(),
        "fallbacks": fallbacks.value(),
        "kinds": _kinds(plan for runtime in list(runtimes) for plan in _plans(runtime)),
    }


def _plans(runtime: Any) -> Iterable[Any]:
    with runtime.lock:
        return runtime.plans.both().values()


def _kinds(plans: Iterable[Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for plan in plans:
        tier = getattr(plan, "tier", None)
        if tier is not None:  # what several Plans serve has none
            found[tier] = found.get(tier, 0) + 1
    return dict(sorted(found.items()))


@atexit.register
def _log() -> None:
    if misses.value():
        config.logger().info("counters: %s", counters())
