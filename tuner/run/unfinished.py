"""Walks and compilations of classes that are not stored yet: an interrupted run leaves them to the next one.

They are kept in the cache folder, in one file per database, only from an interruption to the end of the run that goes
on. Both follow from their keys alone, so that a run that takes them from the file stores the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gensor_database.record import text_digest
from gensor_database.trust import make_folder
from gensor_database.writing import written
from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.config import cache_dir
from gensor_kernels.errors import MALFORMED
from gensor_tuner.strategies.request import Found
from gensor_tuner.tasks.task import Executor, Result, Task, from_plain, ignore, to_plain

FOLDER = "unfinished"


class Unfinished:
    """Results of finished tasks by their keys: `known` are left from an interrupted run, `new` not stored yet."""

    def __init__(self, path: Path):
        self.path = path
        self.known: dict[Hashable, Any] = _read(path)
        self.new: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, database: Path) -> Unfinished:
        """Return what an interrupted run into `database` has left."""
        folder = cache_dir() / FOLDER
        make_folder(folder)
        return cls(folder / f"{text_digest(str(database.absolute()))[:32]}.json")

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *reason: object) -> None:
        """Delete the file where everything is stored; keep finished steps, whatever else has ended the run."""
        with suppress(OSError):  # a full disk may be what ends this run
            if reason[0] is None:
                self.path.unlink(missing_ok=True)
            else:
                self.save()

    def save(self) -> None:
        """Write everything for the next run."""
        kept = {**self.known, **self.new}
        walks = {str(key): each for key, each in kept.items() if isinstance(each, Found)}
        binaries = {str(key): each for key, each in kept.items() if isinstance(each, Binary)}
        if walks or binaries:
            with written(self.path) as file:
                json.dump(to_plain({"walks": walks, "binaries": binaries}), file)


class Keeping(Executor):
    """Runs tasks of a class on another executor, except for known results, and keeps finished ones."""

    def __init__(self, executor: Executor, unfinished: Unfinished | None):
        self.executor, self.unfinished = executor.own(), unfinished
        super().__init__(executor.jobs, executor.again)
        self.lost = self.executor.lost
        self._own: list[Hashable] = []

    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks, in their order."""
        kept = self.unfinished
        if kept is None:
            return self.executor.map(tasks, done)
        found = {index: kept.known[task.key] for index, task in enumerate(tasks) if task.key in kept.known}
        missing = [index for index in range(len(tasks)) if index not in found]

        def finished(place: int, result: Result) -> None:
            found[missing[place]] = result
            key = tasks[missing[place]].key
            if key is not None and not self.lost:
                kept.new[key] = result
                self._own.append(key)
            done(missing[place], result)

        for index, result in sorted(found.items()):
            done(index, result)
        self.executor.map([tasks[index] for index in missing], finished)
        return [found[index] for index in range(len(tasks))]

    def expect(self, tasks: Sequence[Task[Any]]) -> None:
        """Pass on those that are not known."""
        known = () if self.unfinished is None else self.unfinished.known
        self.executor.expect([task for task in tasks if task.key not in known])

    def prepare(self) -> None:
        """Pass on."""
        self.executor.prepare()

    def forget(self) -> None:
        """Drop what was kept: the class is stored."""
        if self.unfinished is not None:
            for key in self._own:
                self.unfinished.new.pop(key, None)
        self._own.clear()


def _read(path: Path) -> dict[Hashable, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        walks, binaries = from_plain(dict[str, Found], kept["walks"]), from_plain(dict[str, Binary], kept["binaries"])
        return dict([*walks.items(), *binaries.items()])
    except (OSError, *MALFORMED):  # absent, or of another version
        return {}
