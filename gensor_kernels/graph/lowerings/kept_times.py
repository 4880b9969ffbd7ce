"""Predicted times of nodes from earlier processes under equal conditions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from contextlib import suppress
from typing import TYPE_CHECKING

from gensor_database.writing import written
from gensor_kernels.dispatch.api.explain import CallTime
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.conditions import conditions, is_kept, kept_file, protect

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: Times that a file holds; those that were used last stay.
MOST_TIMES = 20_000
#: Errors of a file that is absent, cut, changed or unwritable.
UNUSABLE = (GensorError, OSError, ValueError, TypeError)


class KeptTimes:
    """The times of one file of the cache folder, and those that are to be written there."""

    def __init__(self, runtime: Runtime):
        self._conditions = conditions(runtime)
        self._times = self._read()
        self._asked: dict[str, CallTime] = {}

    def find(self, key: Hashable) -> CallTime | None:
        """Return the time that is kept for a key, or None."""
        name = _name(key)
        if name in self._times:
            self._asked[name] = self._times[name]
        return self._asked.get(name)

    def add(self, key: Hashable, found: CallTime) -> None:
        """Add the time of a key, which `keep` writes."""
        self._asked[_name(key)] = found

    def keep(self, runtime: Runtime) -> None:
        """Write the times that are new, unless the conditions have changed since the first was predicted."""
        asked = dict(self._asked)  # other threads may ask meanwhile
        if asked.keys() <= self._times.keys() or not self._conditions or self._conditions != conditions(runtime):
            return
        others = {name: each for name, each in {**self._read(), **self._times}.items() if name not in asked}
        self._times = dict([*others.items(), *asked.items()][-MOST_TIMES:])
        text = json.dumps(self._times)
        with suppress(*UNUSABLE):
            path = kept_file(self._conditions, ".json")
            with written(path) as file:
                file.write(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
            protect(path)

    def _read(self) -> dict[str, CallTime]:
        if self._conditions:
            with suppress(*UNUSABLE):
                file = kept_file(self._conditions, ".json")
                if is_kept(file):
                    digest, _, text = file.read_text(encoding="utf-8").partition("\n")
                    if hashlib.sha256(text.encode()).hexdigest() == digest:
                        return {name: CallTime(*each) for name, each in json.loads(text).items()}
        return {}


def _name(key: Hashable) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:32]
