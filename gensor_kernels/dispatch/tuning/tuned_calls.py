"""Calls on one device with all that decides which kernel serves them: stored kernels, times, and the Plans kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels import config, forking
from gensor_kernels.arrays import DeviceArray
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.kept import Kept, Key
from gensor_kernels.dispatch.key import Calls
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.turns import Turns

from .writeback import Notes

if TYPE_CHECKING:
    from gensor_kernels.dispatch.selection.pins import Pins

#: The key by which calls that copy their arrays share a timing (copy_race.py).
Kind = tuple[Any, ...]


def unseen(key: Key) -> None:
    """Stand for the look-up of Plans: no call has been seen before."""


def no_way(key: Key) -> bool:
    """Stand for the look-up of direct ways: there are none, and none are learned."""
    return False


class TunedCalls(Calls):
    """Calls whose kinds may race and be tuned.

    Attributes
    ----------
    plans : Kept
        Plans by key.
    turns, tunings : Turns
        Of threads with the same new kind of call, and of those that tune one Workload for theirs.
    tuned, raced : set of str
        Keys of the Workloads that were tuned, and of those that have raced.
    loaded : set of str
        Digests of the kernels on the device.
    compared : set of (str, str)
        Digests of kernels, each with the key of a Workload for which its result was compared with the library's.
    refuted : dict of str
        Why the library serves a Workload, by its key: a kernel computed something else.
    wholes : dict
        Microseconds of calls with their copies, ours and the library's.
    counts_hits : bool
        Whether calls whose Plan is there already are counted.
    epoch : int
        How often all Plans were forgotten: launches that were bound before are bound again.
    """

    def __init__(self, device: Device, library: Library, pins: Pins | None = None):
        self.device, self.library, self.pins = device, library, pins
        self.pointer, self.where, self.array = device.pointer, device.where, device.array
        self.troubles = (MemoryError, *device.refusals)
        self.ways: dict[Any, Any] = {}
        self.plans, self.turns, self.tunings = Kept(self.ways.clear), Turns(), Turns()
        self.find: Callable[[Any], Any] = self.plans.get
        self.tuned: set[str] = set()
        self.raced: set[str] = set()
        self.loaded: set[str] = set()
        self.compared: set[tuple[str, str]] = set()
        self.refuted: dict[str, str] = {}
        self.wholes: dict[Kind, tuple[float, float]] = {}
        self.notes = Notes()
        self.after_fork()
        forking.renew(self)
        library.conditions = device.conditions()

    def after_fork(self) -> None:
        """Renew the lock, forget all Plans and dry runs: a thread of the parent may have held a lock or a race."""
        self.lock = threading.RLock()
        self.plans.clear()
        self.ways.clear()
        self._detours = 0  # dry runs and bindings that are under way, of any thread
        self.epoch = getattr(self, "epoch", -1) + 1
        self.bypass()

    def bypass(self) -> None:
        """Serve every call like a first one while calls or hits are counted, or in a dry run."""
        self.counts_hits = bool(record.active) or config.counts_hits()
        slow = self.counts_hits or self._detours
        self.find = unseen if slow else self.plans.get
        self.way = no_way if slow else self.ways.get

    def kind_of(
        self, function: Any, inputs: Sequence[DeviceArray], parameters: Any, out: Any = None, precision: Any = None
    ) -> Any:
        """Return what the Plans of a kind of call share."""
        raise NotImplementedError

    def consider(self, workload: Workload) -> None:
        """Have a frequent Workload tuned in the background."""
        raise NotImplementedError

    def refine(self, workload: Workload) -> None:
        """Have a Workload with its first kernel tuned to the end in the background."""
        raise NotImplementedError

    def known(self, key: Key) -> Any:
        """Return the Plan of a key, or None."""
        plan = self.plans.get(key)
        if plan is None:
            with self.lock:
                plan = self.plans.recall(key)
        return plan

    def keep(self, key: Key, plan: Any, epoch: int) -> None:
        """Keep a Plan for later calls, unless Plans were forgotten since `epoch`, when it was begun: what it follows
        from may have changed."""
        with self.lock:
            if epoch == self.epoch:
                self.plans.keep(key, plan)

    def remember(self, key: Key, make: Callable[[], Any]) -> Any:
        """Return what serves a call that is made of several. It is made for a new key; graph capture keeps none."""
        found = self.known(key)
        if found is None:
            epoch, found = self.epoch, make()
            if not self.device.capturing():
                self.keep(key, found, epoch)
        return found

    def replace(self, old: Any, new: Any) -> None:
        """Put a Plan into the place of another."""
        with self.lock:
            for key in [key for key, plan in self.plans.both().items() if plan is old]:
                self.plans.keep(key, new)

    def give_up(self, workload: Workload, reason: str) -> None:
        """Plan all calls again: the library serves a Workload whose kernel computed something else."""
        with self.lock:
            self.refuted[workload.key()] = reason
            self.wholes.clear()
            self.expire()

    def renew(self, workload: Workload) -> None:
        """Plan calls again after a Workload was tuned; its kinds may race again."""
        self.library.reload()
        with self.lock:
            self.raced.discard(workload.key())
            self.wholes = {kind: times for kind, times in self.wholes.items() if kind[0] != workload.key()}
            self.expire()

    def expire(self) -> None:
        """Forget all Plans, also those of launches that are made without dispatch."""
        with self.lock:
            self.epoch += 1
            self.plans.clear()
            self.ways.clear()

    def refresh(self) -> None:
        """Read the databases again and forget all that followed from them."""
        with self.lock:
            self.expire()
            self.library.reload()
            for known in (self.wholes, self.tuned, self.raced, self.loaded, self.refuted):
                known.clear()

    def adapt(self, conditions: str) -> None:
        """Plan calls again under other conditions (see Device.conditions); all kinds may race again."""
        self.library.adapt(conditions)
        with self.lock:
            self.raced.clear()
            self.wholes.clear()
            self.expire()
