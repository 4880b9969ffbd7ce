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
    """`[function(item) for item in items]` on `jobs` threads (default: every usable core), equal items once.

    Results keep the order of `items` whatever `jobs` is. `done(index, result)` is called in the caller's thread,
    in order, for progress bars. On an exception, Ctrl-C included, what has not started is dropped. Where no thread
    can be started, the caller's does the work.
    """
    executor = ThreadPoolExecutor(jobs or usable_cores())
    try:
        futures = _submitted(executor, function, items)
        known: dict[Item, Result] = {}
        results = []
        for index, item in enumerate(items):
            if item not in known:
                known[item] = futures[item].result() if item in futures else function(item)
            results.append(known[item])
            if done is not None:
                done(index, results[-1])
        return results
    finally:
        executor.shutdown(cancel_futures=True)


def _submitted(
    executor: ThreadPoolExecutor, function: Callable[[Item], Result], items: Sequence[Item]
) -> dict[Item, Future[Result]]:
    """What the threads work on; nothing where the system refuses to start one."""
    futures: dict[Item, Future[Result]] = {}
    for item in items:
        if item not in futures:
            try:
                futures[item] = executor.submit(function, item)
            except RuntimeError:
                executor.shutdown(cancel_futures=True)
                return {item: future for item, future in futures.items() if not future.cancelled()}
    return futures
