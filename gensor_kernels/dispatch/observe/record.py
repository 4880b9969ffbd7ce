"""Recording: which calls a program makes, how often, and who served them, as a shapes file.

`GENSOR_RECORD=file.csv` records a whole process, `with record("file.csv"):` a part of it. While nothing is recorded,
calls do not pay for it: a Runtime's look-up of warm calls is replaced for as long as something is.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gensor_kernels import config, forking
from gensor_kernels.errors import GensorError

from .counters import runtimes

if TYPE_CHECKING:
    from .dry_run import Question
    from .record_file import Cells


class Counts:
    """Counts of calls, by their kind."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Clear all counts, and make a new lock."""
        self.lock = threading.Lock()

    def count(self, row: Cells, asked: Question | None = None) -> None:
        """Count one call of a kind; `asked` is the call, where it is one of ours."""
        raise NotImplementedError

    def write(self) -> None:
        """Write what is to be kept when the process ends."""


class Recording(Counts):
    """Counts that are to be added to one file. `users`: how many blocks (and the environment) record to it."""

    def __init__(self, path: Path):
        self.path, self.users = path, 0
        #: Whether any call was counted.
        self.used = False
        super().__init__()

    def reset(self) -> None:
        """Clear all counts, and make a new lock."""
        super().reset()
        self.counts: dict[Cells, int] = {}

    def count(self, row: Cells, asked: Question | None = None) -> None:
        """Count one call more."""
        with self.lock:
            self.used = True
            self.counts[row] = self.counts.get(row, 0) + 1

    def write(self) -> None:
        """Add what was counted to the file; warn where that cannot be done."""
        from .record_file import update

        with self.lock:
            counts, self.counts = self.counts, {}
        try:
            if counts or not self.path.exists():
                update(self.path, counts)
        except (OSError, GensorError) as error:
            _warn(self.path, f"{sum(counts.values())} recorded calls are lost", error)
        except BaseException:  # Ctrl-C: while this is being recorded to, they are written with the next ones
            with self.lock:
                for row, count in counts.items():
                    self.counts[row] = self.counts.get(row, 0) + count
            raise


class _Thread(threading.local):
    counted = 0


#: Warning of a block without counted calls.
NOTHING = (
    "nothing was recorded, for no call reached gensor_kernels: "
    'compile a PyTorch module by torch.compile(module, backend="gensor") or gensor_kernels.from_torch, '
    "and put CuPy code inside gensor_kernels.accelerate()"
)
#: The open recordings of all threads.
active: tuple[Counts, ...] = ()
_thread = _Thread()
_lock = forking.lock(sys.modules[__name__], "_lock", threading.RLock)
_environment_read = False
_at_exit = False


def attach(runtime: Any) -> None:
    """Attach a Runtime, once. The first one in a process reads `GENSOR_RECORD`.

    While anything is recorded, `runtime.bypass` lets warm calls take the way of first ones, on which they are counted.
    """
    global _environment_read
    with _lock:
        runtimes.add(runtime)
        path = None if _environment_read else config.record_file()
        _environment_read = True
        if path is not None:
            _start(path)
        runtime.bypass()


def count_calls() -> int:
    """Return how many calls of this thread have been counted."""
    return _thread.counted


def count(row: Cells, asked: Question | None = None) -> None:
    """Count one call of this thread in every recording."""
    _thread.counted += 1
    for recording in active:
        recording.count(row, asked)


def add(counts: Counts) -> None:
    """Tell `counts` of every call from now on, until `remove`."""
    global active
    with _lock:
        active = (*active, counts)
        _bypass()


def remove(counts: Counts) -> None:
    """Tell `counts` of no more calls."""
    global active
    with _lock:
        active = tuple(each for each in active if each is not counts)
        _bypass()


@contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[None]:
    """Count the calls that a program makes, as a shapes file for the tuner.

    Within the context, every distinct call of a public function is counted, whichever
    thread of this process makes it.

    Parameters
    ----------
    path : path
        Shapes file (CSV). It is made where it is absent; counts are added to a
        recording that is there. `gensor-tune --shapes` accepts it unchanged.

    Returns
    -------
    context manager
        It writes the file when the block is left, also by an exception. Blocks may be
        nested: each file gets every call once.

    Warns
    -----
    RuntimeWarning
        If the file cannot be written, or is not a recording. The file is left as it
        is, and calls are served. Also if no call was recorded.

    Notes
    -----
    `GENSOR_RECORD=shapes.csv` records a whole process.

    Examples
    --------
    >>> import csv
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"), gensor_kernels.record("shapes.csv"):
    ...     y = gensor_kernels.matmul(a, a.T)
    ...     y = gensor_kernels.matmul(a, a.T)
    >>> with open("shapes.csv") as file:
    ...     [row] = csv.DictReader(file)
    >>> row["op"], row["m"], row["n"], row["k"], row["count"]
    ('matmul', '2', '2', '3', '2')
    """
    recording = _start(Path(os.fsdecode(path)))
    ended = False
    try:
        yield
        ended = True
    finally:
        _stop(recording, ended)


def _start(path: Path) -> Recording | None:
    """Return the recording to a file, with one user more, or None if the file cannot be used."""
    global _at_exit
    from .record_file import check

    try:
        path = Path(os.path.realpath(path.expanduser()))  # the working folder may change; links stay links
        check(path)
    except (OSError, RuntimeError, GensorError) as error:  # RuntimeError: no home folder
        _warn(path, "calls are not recorded", error)
        return None
    with _lock:
        recording = next((each for each in active if isinstance(each, Recording) and each.path == path), None)
        if recording is None:
            recording = Recording(path)
            add(recording)
        recording.users += 1
        if not _at_exit:
            atexit.register(_write_all)
            _at_exit = True
    return recording


def _stop(recording: Recording | None, ended: bool) -> None:
    """Write what was counted; a warning if nothing was, unless an exception has ended the block before."""
    if recording is None:
        return
    with _lock:
        recording.users -= 1
        if recording.users:
            return
        remove(recording)
    recording.write()
    if ended and not recording.used:
        with suppress(ValueError):  # a stderr that is closed
            warnings.warn(NOTHING, RuntimeWarning, stacklevel=4)


def _bypass() -> None:
    for runtime in list(runtimes):
        runtime.bypass()


def _write_all() -> None:
    """Write, at exit, the recording of the environment, and those of blocks that threads have not left."""
    for recording in active:
        recording.write()


def _warn(path: Path, what: str, error: Exception) -> None:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    where = "" if str(path) in reason else f"{path}: "
    with suppress(ValueError):  # a stderr that is closed
        warnings.warn(f"{what}: {where}{reason}", RuntimeWarning, stacklevel=2)


@forking.in_child
def _after_fork() -> None:
    """Let a child count its own calls: those before the fork are the parent's."""
    for recording in active:
        recording.reset()
