"""The classes of several runs, one for each arch: a command's share of them, and many at once on a cluster.

Several commands without a scheduler tune all of a file, each a share. On a cluster, walks of other classes fill the
workers while one class waits for its compilations.
"""

from __future__ import annotations

import hashlib
import queue
import re
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import NamedTuple

from gensor_kernels.machine.arch import Arch
from gensor_tuner.shapes.reader import Row
from gensor_tuner.tasks.task import Executor

from .result import Result
from .tune import Run, Work

PATTERN = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})\Z")

#: A capability and the key of a class. Parts of one capability stay together: the portfolio of each is chosen from the
#: kernels that all of them have.
Class = tuple[str, str]


class Shard(NamedTuple):
    """The share `number` of `many`, from 1 on."""

    number: int
    many: int

    def __str__(self) -> str:
        return f"{self.number}/{self.many}"

    @classmethod
    def of(cls, text: str) -> Shard:
        """Return the shard of a text such as "3/16"; ValueError for another text."""
        found = PATTERN.match(text)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"--shard takes I/N with 1 <= I <= N, such as 3/16, not '{text}'")
        return cls(int(found[1]), int(found[2]))

    def rows(self, rows: Sequence[Sequence[Row]], archs: Sequence[Arch]) -> list[list[Row]]:
        """Return this share of each arch's rows; rows without a workload are the first shard's.

        Which share a class belongs to follows from the classes of the whole file and their workloads, whatever the
        order of rows: the largest classes first, each to the shard that has least so far.
        """
        owners = self._owners(rows, archs)

        def owner(row: Row, arch: Arch) -> int:
            return 1 if row.workload is None else owners[arch.name, row.workload.class_key()]

        return [[row for row in own if owner(row, arch) == self.number] for own, arch in zip(rows, archs, strict=True)]

    def describe(self, shares: Sequence[Sequence[Row]], whole: Sequence[Sequence[Row]]) -> str:
        """Return the size of this share, and of the whole, each arch counted."""
        classes = f"{_classes(shares)} of {_classes(whole)} classes"
        return f"shard {self}: {classes}, {sum(map(len, shares))} of {sum(map(len, whole))} rows"

    def _owners(self, rows: Sequence[Sequence[Row]], archs: Sequence[Arch]) -> dict[Class, int]:
        workloads = {
            (arch.name, row.workload.class_key(), arch.part, row.workload.key())
            for own, arch in zip(rows, archs, strict=True)
            for row in own
            if row.workload is not None
        }
        sizes: Counter[Class] = Counter(each[:2] for each in workloads)
        loads, owners = [0] * self.many, dict[Class, int]()
        digests = {each: hashlib.sha256("\0".join(each).encode()).hexdigest() for each in sizes}
        for each in sorted(sizes, key=lambda each: (-sizes[each], digests[each])):
            place = loads.index(min(loads))
            owners[each] = place + 1
            loads[place] += sizes[each]
        return owners


def _classes(shares: Sequence[Sequence[Row]]) -> int:
    """Return the number of classes, each arch's counted."""
    return sum(len({row.workload.class_key() for row in rows if row.workload is not None}) for rows in shares)


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
