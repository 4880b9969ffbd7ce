"""The executor of a cluster: tasks run on its workers, and a task that no worker could finish leaves a reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future

from gensor_tuner.tasks.local import Local
from gensor_tuner.tasks.task import Executor, Result, Task, ignore

from .cluster import Cluster, LostTaskError


class Fleet(Executor):
    """Runs tasks on the workers of a cluster, those of `kinds_here` here; with `distrust`, stored ones here again."""

    def __init__(self, cluster: Cluster, here: Local, kinds_here: Sequence[str] = (), distrust: bool = False):
        super().__init__(cluster.jobs, here if distrust else None)
        self.cluster, self.here, self.kinds_here = cluster, here, kinds_here

    def own(self) -> Fleet:
        """Return a view with its own list `lost`."""
        return Fleet(self.cluster, self.here, self.kinds_here, self.again is not None)

    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks, in their order."""
        if tasks and tasks[0].kind in self.kinds_here:
            return self.here.map(tasks, done)
        futures: dict[Hashable, Future[Result]] = {}
        try:
            keys = [index if task.key is None else task.key for index, task in enumerate(tasks)]
            for key, task in zip(keys, tasks, strict=True):
                if key not in futures:
                    futures[key] = self.cluster.submit(task)
            results = []
            for index, (key, task) in enumerate(zip(keys, tasks, strict=True)):
                results.append(self._result(task, futures[key]))
                done(index, results[-1])
            return results
        except BaseException:
            for future in futures.values():
                future.cancel()
            raise

    def _result(self, task: Task[Result], future: Future[Result]) -> Result:
        try:
            return future.result()
        except LostTaskError as error:
            self.lost.append(f"{task.kind}: {error}")
            if task.part not in self.cluster.absent:  # which is reported once
                self.cluster.notify(f"gave up a task to {task.kind}: {error}")
            return task.lost(f"{task.kind} could not be finished: {error}")
