"""Threads for tools that release the GIL: NVRTC, and programs run as subprocesses."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores this process may run on, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int | None = None,
    done: Callable[[int, Result], None] | None = None,
) -> list[Result]:
    """Return `[function(item) for item in items]`, computed on threads; equal items are computed once.

    There are `jobs` threads, by default one per usable core; if none can be started, the caller's thread does the work.
    `done(index, result)` is called in the caller's thread, in order, for progress bars.  After the first exception of a
    function, or Ctrl-C, items that have not started are dropped.  After Ctrl-C nobody waits for those that have, and
    `done` is called for those that have ended.
    """
    executor = ThreadPoolExecutor(jobs or usable_cores())
    wait = True
    futures: dict[Item, Future[Result]] = {}
    results: list[Result] = []
    try:
        futures = _submit(executor, function, items)
        known: dict[Item, Result] = {}
        for index, item in enumerate(items):
            if item not in known:
                known[item] = futures[item].result() if item in futures else function(item)
            results.append(known[item])
            if done is not None:
                done(index, results[-1])
        return results
    except KeyboardInterrupt:
        wait = False
        for index, item in enumerate(items[len(results) :], len(results)):
            future = futures.get(item)
            if done is not None and future is not None and future.done() and future.exception() is None:
                done(index, future.result())
        raise
    finally:
        executor.shutdown(wait, cancel_futures=True)


def _submit(
    executor: ThreadPoolExecutor, function: Callable[[Item], Result], items: Sequence[Item]
) -> dict[Item, Future[Result]]:
    """Return the futures of all items; none if the system refuses to start a thread."""
    futures: dict[Item, Future[Result]] = {}
    for item in items:
        if item not in futures:
            try:
                futures[item] = executor.submit(function, item)
            except RuntimeError:
                executor.shutdown(cancel_futures=True)
                return {item: future for item, future in futures.items() if not future.cancelled()}
    return futures
