"""Many processes on one database at the same moment: python -m tests.campaigns.crowd WHAT PROCESSES JOURNAL FILES ...

All are forked from one that has imported everything, and start together when a pipe is closed; once for each of the
FILES, which commas separate. Prints their exit codes and stderr as JSON.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from gensor_database import Store
from tests.doubles.store_rows import rows

from .lives.checks import set_journal


def commits(number: int, path: Path, count: str) -> None:
    """Commits of different Workloads; their seconds go into a file."""
    seconds = []
    with Store.open(path) as store:
        for commit in range(int(count)):
            began = time.monotonic()
            store.add(*rows(number * int(count) + commit))
            seconds.append(time.monotonic() - began)
    path.with_name(f"seconds.{number}").write_text(json.dumps(seconds))


def tunes(number: int, path: Path, worker: str) -> None:
    """Every process tunes the same Workload, each by its tuning process."""
    from gensor_kernels.dispatch.tuning import background
    from gensor_kernels.dispatch.tuning.worker import Worker
    from tests.doubles.kernels import ARCH, workload

    os.environ["GENSOR_DB"] = str(path)
    background.WORKER = Worker((sys.executable, "-c", Path(worker).read_text(), str(number)))
    try:
        assert background.tune(workload(), ARCH)
    finally:
        background.WORKER.close()


def crowd(act: Callable[[int], None], processes: int) -> list[dict]:
    """Runs `act` in this number of processes at once."""
    waiting, start = os.pipe()
    children = []
    for number in range(processes):
        errors, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(start)
            os.dup2(theirs, 2)
            member(act, number, waiting)
        os.close(theirs)
        children.append((pid, errors))
    os.close(waiting)
    os.close(start)
    ends = []
    for pid, errors in children:
        with os.fdopen(errors, errors="replace") as pipe:
            said = pipe.read()
        ends.append({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "said": said})
    return ends


def member(act: Callable[[int], None], number: int, waiting: int) -> None:
    code = 1
    try:
        os.read(waiting, 1)  # until the last writer closes
        act(number)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    what, processes, journal, files, *arguments = sys.argv[1:]
    set_journal(journal)
    act = {"commits": commits, "tunes": tunes}[what]
    ends = []
    for path in map(Path, files.split(",")):
        ends += crowd(lambda number, path=path: act(number, path, *arguments), int(processes))
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
