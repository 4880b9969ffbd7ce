"""Renewal of state in forked children: locks held by other threads of the parent, processes, unwritten rows.

A child has a single thread, the one that forked.  A lock held by another thread of the parent would stay locked
forever.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

Action = TypeVar("Action", bound=Callable[[], None])
Lock = TypeVar("Lock")


class Forked(Protocol):
    """An object that has locks."""

    def after_fork(self) -> None:
        """Make new locks in a child, and release the parent's resources."""


_owners: WeakSet[Forked] = WeakSet()
_locks: WeakKeyDictionary[object, dict[str, Callable[[], object]]] = WeakKeyDictionary()


def lock(owner: object, name: str, kind: Callable[[], Lock]) -> Lock:
    """Return a lock for the attribute `name` of an object or a module, which is a new one in every forked child."""
    _locks.setdefault(owner, {})[name] = kind
    return kind()


def renew(owner: Forked) -> None:
    """Call `owner.after_fork()` in every forked child from now on, as long as the owner lives."""
    _owners.add(owner)


def in_child(action: Action) -> Action:
    """Decorate a function to be called in every forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
    return action


@in_child
def _renew_all() -> None:
    for each, made in list(_locks.items()):
        for name, kind in made.items():
            setattr(each, name, kind())
    for owner in list(_owners):
        owner.after_fork()
