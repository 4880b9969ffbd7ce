"""Many processes on one database at the same moment: python -m tests.campaigns.crowd WHAT PROCESSES JOURNAL FILES ...

All are forked from one that has imported everything, and start together; once for each of the FILES, which commas
separate. Prints their exit codes as JSON.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gensor_database import Store
from tests.doubles.store_rows import rows

from .lives.checks import set_journal


def commits(number: int, path: Path, count: str) -> None:
    seconds = []
    with Store.open(path) as store:
        for commit in range(int(count)):
            began = time.monotonic()
            store.add(*rows(number * int(count) + commit))
            seconds.append(time.monotonic() - began)
    path.with_name(f"seconds.{number}").write_text(json.dumps(seconds))


def tunes(number: int, path: Path, worker: str) -> None:
    from gensor_kernels.dispatch.tuning import background
    from gensor_kernels.dispatch.tuning.worker import Worker
    from tests.doubles.kernels import ARCH, workload

    os.environ["GENSOR_DB"] = str(path)
    background.WORKER = Worker((sys.executable, "-c", Path(worker).read_text(), str(number)))
    try:
        assert background.tune(workload(), ARCH)
    finally:
        background.WORKER.close()


def crowd(act: Callable[..., None], processes: int, *arguments: object) -> list[int]:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(processes)

    def member(number: int) -> None:
        start.wait()
        act(number, *arguments)

    members = [context.Process(target=member, args=(number,)) for number in range(processes)]
    for each in members:
        each.start()
    for each in members:
        each.join()
    return [each.exitcode for each in members]


def main() -> None:
    what, processes, journal, files, *arguments = sys.argv[1:]
    set_journal(journal)
    act = {"commits": commits, "tunes": tunes}[what]
    print(
        json.dumps([code for path in files.split(",") for code in crowd(act, int(processes), Path(path), *arguments)])
    )


if __name__ == "__main__":
    main()
