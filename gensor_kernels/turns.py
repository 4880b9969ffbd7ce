"""Turns of threads: those that would do the same thing wait for one another, all others do not."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from . import forking


class _Turn:
    """The lock of one key, and the number of threads that have it or wait for it."""

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0


class Turns:
    """Turns of threads at things with keys.

    A thread that has a turn here already waits for no other one: what it does inside may come back here (a signal's
    handler, a call within a call), and no circle of threads may wait for each other. Then two do the same thing.
    """

    def __init__(self) -> None:
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Forget the turns of the parent's threads."""
        self._lock = threading.RLock()  # a signal's handler may come here while its own thread holds it
        self._turns: dict[Hashable, _Turn] = {}
        self._own = threading.local()

    @contextmanager
    def at(self, key: Hashable) -> Iterator[None]:
        """Within it, no other thread has a turn at an equal key."""
        own = self._own
        if getattr(own, "busy", False):
            yield
            return
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                own.busy = True
                try:
                    yield
                finally:
                    own.busy = False
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users and self._turns.get(key) is turn:  # it is another one in a forked child
                    del self._turns[key]
