"""A queue of rows from races and tuning for the user's database; rows that cannot be written end with the process."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable
from weakref import WeakSet

from gensor_database import LockedStoreError, Row, Store
from gensor_database.errors import is_first_report
from gensor_kernels import config, forking

#: Seconds a call waits for other processes' locks; what is locked for longer is written with the next race.
PATIENCE = 0.2
EXIT_PATIENCE = 5.0


class Notes:
    """Rows that wait, and the database they are for."""

    def __init__(self) -> None:
        self._refused = False
        self.after_fork()
        forking.renew(self)
        _all.add(self)

    def after_fork(self) -> None:
        """Empty the queue, which the parent writes."""
        self._lock = threading.Lock()
        self._waiting: list[Row] = []

    def add(self, rows: Iterable[Row]) -> None:
        """Store rows, and whatever is waiting."""
        with self._lock:
            self._waiting += rows
        self.flush(PATIENCE)

    def flush(self, timeout: float) -> None:
        """Store what is waiting. That a database cannot be written is said once; one that is locked is tried later."""
        with self._lock:
            if self._refused or not self._waiting:
                self._waiting = []
                return
            database = config.own_database()
            if database is None:
                self._refused, self._waiting = True, []
                return
            try:
                with Store.open(database, timeout=timeout) as store:
                    store.add(*self._waiting)
                self._waiting = []
            except LockedStoreError as error:
                config.logger().info("what was measured is stored later: %s", error)
            except Exception as error:  # whatever it is: a call that was served waits for us
                self._refused, self._waiting = True, []
                say = config.logger().warning if is_first_report(database) else config.logger().info
                say("what was measured is kept for this process only: %s", error)


_all: WeakSet[Notes] = WeakSet()


@atexit.register
def _flush() -> None:
    for notes in list(_all):
        notes.flush(EXIT_PATIENCE)
