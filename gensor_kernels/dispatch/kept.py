"""Plans that a Runtime keeps: as many as have room, those that served last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Key = tuple[Any, ...]
#: Bytes of Plans kept per device.
MOST_BYTES = 64 * 2**20
#: Bytes of what serves calls that are made of several; a Chain of three products has 7,000 (see Plan.nbytes).
BYTES = 8 * 1024


class Kept(dict[Key, Any]):
    """Plans by key, in two generations: once the younger has half of the room, the older is forgotten.

    This dictionary is the younger one, so that the look-up of a warm call is `dict.get` and nothing else: what served
    last is not written down. A call whose Plan is of the older one takes the slow way, which asks `recall`, and its
    Plan is younger from then on: what is forgotten has not served since the generation before last. Who calls a method
    here holds the lock of the Runtime; others may look up meanwhile.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        #: called where Plans are forgotten: whatever else holds Plans drops them
        self._forget = forget
        self._older: dict[Key, Any] = {}
        self._bytes = 0

    def keep(self, key: Key, plan: Any) -> None:
        """Keep a Plan."""
        size = getattr(plan, "nbytes", BYTES)
        if self._bytes + size > MOST_BYTES // 2:
            self._older = dict(self)
            super().clear()
            self._bytes = 0
            self._forget()
        self[key] = plan
        self._bytes += size  # what it replaces still counts

    def recall(self, key: Key) -> Any:
        """Return the Plan of a key, which is of the younger generation from now on, or None."""
        plan = self.get(key)
        if plan is None and (plan := self._older.get(key)) is not None:
            self.keep(key, plan)
        return plan

    def both(self) -> dict[Key, Any]:
        """Return the Plans of both generations."""
        return {**self._older, **self}

    def clear(self) -> None:
        """Forget all Plans."""
        super().clear()
        self._older, self._bytes = {}, 0
