"""Calls on one device with all that decides which kernel serves them: stored kernels, times, and the Plans kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gensor_kernels import config, forking
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.key import Calls
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.operators.types.workload import Workload

from .writeback import Notes

if TYPE_CHECKING:
    from gensor_kernels.dispatch.selection.pins import Pins

#: The key by which calls that copy their arrays share a timing (copy_race.py).
Kind = tuple[Any, ...]
#: Plans kept per device; beyond it they are all forgotten (a program whose shapes never repeat).
MOST_PLANS = 65536


def unseen(key: Any) -> None:
    """Stand for the look-up of Plans: no call has been seen before."""


def no_way(key: Any) -> bool:
    """Stand for the look-up of direct ways: there are none, and none are learned."""
    return False


class TunedCalls(Calls):
    """Calls whose kinds may race and be tuned.

    Attributes
    ----------
    plans : dict
        Plans by key.
    tuned, raced : set of str
        Keys of the Workloads that were tuned, and of those that have raced.
    loaded : set of str
        Digests of the kernels on the device.
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
        self.plans: dict[tuple[Any, ...], Any] = {}
        self.find: Callable[[Any], Any] = self.plans.get
        self.ways: dict[Any, Any] = {}
        self.tuned: set[str] = set()
        self.raced: set[str] = set()
        self.loaded: set[str] = set()
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

    def consider(self, workload: Workload) -> None:
        """Have a frequent Workload tuned in the background."""
        raise NotImplementedError

    def refine(self, workload: Workload) -> None:
        """Have a Workload with its first kernel tuned to the end in the background."""
        raise NotImplementedError

    def keep(self, key: Any, plan: Any) -> None:
        """Keep a Plan for later calls; the caller holds the lock."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what serves a call that is made of several. It is made for a new key; graph capture keeps none."""
        found = self.plans.get(key)
        if found is None:
            found = make()
            if not self.device.capturing():
                self.plans[key] = found
        return found

    def replace(self, old: Any, new: Any, workload: Workload) -> None:
        """Put a Plan into the place of one whose kind of call came so often that its Workload is worth tuning."""
        with self.lock:
            for key in [key for key, plan in self.plans.items() if plan is old]:
                self.plans[key] = new
        self.consider(workload)

    def renew(self, workload: Workload) -> None:
        """Plan calls again after a Workload was tuned; its kinds may race again."""
        self.library.reload()
        with self.lock:
            self.epoch += 1
            self.raced.discard(workload.key())
            self.wholes = {kind: times for kind, times in self.wholes.items() if kind[0] != workload.key()}
            self.plans.clear()
            self.ways.clear()

    def refresh(self) -> None:
        """Read the databases again and forget all that followed from them."""
        with self.lock:
            self.epoch += 1
            self.library.reload()
            for known in (self.plans, self.ways, self.wholes, self.tuned, self.raced, self.loaded):
                known.clear()

    def adapt(self, conditions: str) -> None:
        """Plan calls again under other conditions (see Device.conditions); all kinds may race again."""
        self.library.adapt(conditions)
        with self.lock:
            self.epoch += 1
            self.raced.clear()
            self.wholes.clear()
            self.plans.clear()
            self.ways.clear()
