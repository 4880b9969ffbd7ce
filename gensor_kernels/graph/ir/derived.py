"""Arrays made of a model's constants: plans of several signatures share them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np

Found = TypeVar("Found")


class Derived:
    """Arrays by the constants that they were made of, and how, as long as anything uses them.

    Constants are known by identity; results of other arrays are not kept.
    """

    def __init__(self) -> None:
        #: Arrays that own memory, and their names, by identity.
        self._owners: dict[int, tuple[Callable[[], np.ndarray | None], Hashable]] = {}
        self._made: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()
        self._facts: dict[Hashable, Any] = {}

    def note(self, constants: Iterable[np.ndarray]) -> None:
        """Add constants of a file, which are kept from now on."""
        for each in constants:
            owner = owner_of(each)
            if id(owner) not in self._owners:
                self._owners[id(owner)] = (lambda owner=owner: owner), len(self._owners)  # type: ignore[misc]

    def array(self, how: Hashable, sources: Sequence[np.ndarray], make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the array that was made of `sources` before under an equal key `how`, or the result of `make`."""
        key = self._key(how, sources)
        found = None if key is None else self._made.get(key)
        if found is None:
            found = make()
            if key is not None:
                self._made[key] = found
                self._name(owner_of(found), key)
        return found

    def fact(self, what: Hashable, source: np.ndarray, ask: Callable[[], Found]) -> Found:
        """Return a fact about an array that is known under this key, or the result of `ask`."""
        key = self._key(what, [source])
        if key is None:
            return ask()
        if key not in self._facts:
            self._facts[key] = ask()
        found: Found = self._facts[key]
        return found

    def _key(self, how: Hashable, sources: Sequence[np.ndarray]) -> Hashable | None:
        key: list[Hashable] = [how]
        for each in sources:
            owner = owner_of(each)
            own, name = self._owners.get(id(owner), (None, None))
            if own is None or own() is not owner:
                return None
            offset = each.ctypes.data - owner.ctypes.data
            key.append((name, offset, each.shape, each.strides, each.dtype.name))
        return tuple(key)

    def _name(self, owner: np.ndarray, key: Hashable) -> None:
        place, owners = id(owner), self._owners
        if place not in owners:
            owners[place] = ref(owner, lambda _: owners.pop(place, None)), key


def owner_of(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
