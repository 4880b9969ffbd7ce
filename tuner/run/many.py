"""The classes of several runs, one for each arch: all that are to be tuned, and many at once on a cluster.

While one class waits for its compilations, walks of others fill the workers of a cluster.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest

from gensor_tuner.shapes.reader import Row
from gensor_tuner.tasks.task import Executor

from .result import Result
from .tune import Run, Work

#: Classes in progress for each task that the cluster runs at once, and their limits: each is a thread of the client.
CLASSES_PER_JOB, FEWEST, MOST = 2, 4, 64

#: The number of a run, a row and its result; or the end of a class: its error, or None.
Message = tuple[int, Row, Result] | BaseException | None


def known(runs: Sequence[Run], rows: Sequence[Sequence[Row]]) -> Generator[tuple[int, Row, Result], None, list[Work]]:
    """Yield the rows of each run that need no tuning, and return the others by run and class."""
    todo: list[Work] = []
    for number, (run, own) in enumerate(zip(runs, rows, strict=True)):
        found = run.known(own)
        while True:
            try:
                row, result = next(found)
            except StopIteration as end:
                todo += [Work(number, by_key) for by_key in end.value.values()]
                break
            yield number, row, result
    return todo


def together(runs: Sequence[Run], todo: Sequence[Work], executor: Executor) -> Iterator[tuple[int, Row, Result]]:
    """Tune many classes at once, on a thread each; yield as `in_turn` does. The first error ends all."""
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    ended = threading.Event()

    def tune(works: Sequence[Work]) -> None:
        try:
            for number, by_key in works:
                for row, result in runs[number].tuned(by_key, executor, whole=True):
                    messages.put((number, row, result))
                    if ended.is_set():
                        return
            messages.put(None)
        except BaseException as error:
            messages.put(error)

    most = min(max(CLASSES_PER_JOB * executor.jobs, FEWEST), MOST)
    threads = ThreadPoolExecutor(most, "gensor-class")
    futures: list[Future[None]] = []
    try:
        futures += [threads.submit(tune, each) for each in _longest_first(runs, todo)]
        left = len(futures)
        while left:
            message = messages.get()
            if isinstance(message, BaseException):
                raise message
            if message is None:
                left -= 1
            else:
                yield message
    finally:
        ended.set()
        for future in futures:
            future.cancel()
        threads.shutdown(wait=False, cancel_futures=True)


def _longest_first(runs: Sequence[Run], todo: Sequence[Work]) -> Iterator[list[Work]]:
    """Yield the classes of all capabilities in turn, those with most workloads first.

    A class of several parts of one capability is tuned for one after the other, as in turn: each part's portfolio is
    chosen from the kernels that are stored for the capability by then.
    """
    together: dict[tuple[str, str], list[Work]] = {}
    for each in todo:
        together.setdefault(runs[each.run].unit(each.by_key), []).append(each)
    by_name: dict[str, list[list[Work]]] = {}
    for (name, _), works in sorted(together.items(), key=lambda each: -sum(len(work.by_key) for work in each[1])):
        by_name.setdefault(name, []).append(works)
    yield from (each for row in zip_longest(*by_name.values()) for each in row if each is not None)
