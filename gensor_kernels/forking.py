"""What a forked child must not take over: locks that other threads of its parent hold, processes, unwritten rows.

A child has one thread, the one that forked. A lock that another one held would stay held for ever there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet

Action = TypeVar("Action", bound=Callable[[], None])


class Forked(Protocol):
    """What has locks of its own."""

    def after_fork(self) -> None:
        """In a child: makes new locks, and lets go of what is the parent's."""


_owners: WeakSet[Forked] = WeakSet()


def renew(owner: Forked) -> None:
    """From now on `owner.after_fork()` is called in every forked child, as long as the owner lives."""
    _owners.add(owner)


def in_child(action: Action) -> Action:
    """Decorates a function that is to be called in every forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
    return action


@in_child
def _renew_all() -> None:
    for owner in list(_owners):
        owner.after_fork()
