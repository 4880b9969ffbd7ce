"""Blocks that change what calls mean: the innermost of this thread or task, and those that are open in any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from . import forking

#: How the work of another thread comes into the blocks of the thread that starts it.
REMEDY = "a thread is within a block where its work is run by contextvars.copy_context().run"


class Blocks:
    """The blocks of one kind, each with a value.

    Attributes
    ----------
    own : ContextVar
        Value of the innermost block of this thread or task, None outside of them.
    open : list of tuple
        Of all threads' and tasks' blocks the value, and that of the block around it.
    """

    def __init__(self, name: str):
        self.own: ContextVar[Any] = ContextVar(name, default=None)
        self.open: list[tuple[Any, Any]] = []
        forking.renew(self)

    def after_fork(self) -> None:
        """Forget the blocks of the parent's other threads."""
        own = self.own.get()
        self.open = [each for each in self.open if each[0] is own]

    @contextmanager
    def within(self, value: Any) -> Iterator[None]:
        """Open a block."""
        entry = value, self.own.get()
        token = self.own.set(value)
        self.open.append(entry)
        try:
            yield
        finally:
            self.own.reset(token)
            if entry in self.open:  # it is not where a child was forked meanwhile
                self.open.remove(entry)

    def values(self) -> set[Any]:
        """Return the values of all open blocks."""
        return {value for value, _ in list(self.open)}

    def innermost(self) -> set[Any]:
        """Return the values of the open blocks without another one in them."""
        return self.values() - {outer for value, outer in list(self.open) if outer is not value}


emulated, deterministic = Blocks("gensor_kernels_emulated"), Blocks("gensor_kernels_deterministic")
