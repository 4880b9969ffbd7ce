"""A plan with its own memory: inputs, activations and launches have fixed addresses, so that a call is their replay.

On a GPU the launches are one CUDA graph; without graphs, and on the emulator, a loop makes them.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import forking
from gensor_kernels.config import logger
from gensor_kernels.devices.lending import POISON
from gensor_kernels.dispatch.plans.trial import HOT_RUN

from .arena import UNIT, Layout, Ledger
from .nodes import compute

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.devices.lending import Lease
    from gensor_kernels.dispatch.plans.bound import Repeat
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.plans.trial import Trial
    from gensor_kernels.graph.ir.graph import Node
    from gensor_kernels.graph.lowerings.base import Run

#: Bound plans of a model on one device, each with its arena.
MOST_ARENAS = 8


class Arena:
    """Memory for the places of a Layout, on the current stream."""

    def __init__(self, device: Device, layout: Layout):
        self.device, self.layout = device, layout
        self.owner = device.empty((layout.nbytes + UNIT,), np.dtype(np.uint8))
        self.base = -(-device.pointer(self.owner) // UNIT) * UNIT

    def pin(self, array: Any) -> Any:
        """Return an array that keeps the arena alive if it is part of it; other arrays unchanged."""
        at = self.device.pointer(array)
        if not self.base <= at < self.base + self.layout.nbytes:
            return array
        shape, strides = tuple(array.shape), tuple(array.strides)
        return self.device.borrow(at, shape, strides, array.dtype, self.owner, self.device.number)


class Recompute:
    """A node that uses the array library: each call computes it again and copies its results (`targets`, by number).

    Its requests for memory get their planned places. The device allocates memory for other requests, which `kept` keeps
    for the graph inside a capture.
    """

    def __init__(self, arena: Arena, run: Run, node: Node, number: int, targets: Sequence[tuple[int, Any]]):
        self.arena, self.run, self.node, self.number, self.targets = arena, run, node, number, targets
        self.kept: list[Lease] | None = None

    def __call__(self) -> None:
        """Compute the node."""
        device = self.arena.device
        ledger = Ledger(self.arena.layout, self.arena.base)
        ledger.begin(self.number)

        def lease(nbytes: int) -> Lease:
            found = ledger.lease(nbytes)
            if self.kept is not None and not found.address:
                self.kept.append(found)
            return found

        with device.lending(lease):
            results = compute(self.run, self.node)
            for place, target in self.targets:
                if device.pointer(results[place]) != device.pointer(target):
                    device.copy(target, results[place])


class Bound:
    """A plan bound to memory and launches, on one stream.

    `inputs` are places by the numbers of the inputs that are read, `outputs` results in the arena and constants, and
    `steps` compute these on tensors of `run` at fixed addresses. `switched`: launches depend on the library's TF32
    switch. `trials` are kinds of calls to be considered for tuning once they are frequent.
    """

    def __init__(
        self,
        runtime: Runtime,
        arena: Arena,
        inputs: Sequence[tuple[int, Any]],
        outputs: Sequence[Any],
        steps: Sequence[Repeat],
        run: Run,
        switched: bool,
        trials: Sequence[Trial],
    ):
        self.runtime, self.epoch, self.device = runtime, runtime.epoch, runtime.device
        self.arena, self.inputs, self.outputs, self.steps = arena, tuple(inputs), tuple(outputs), tuple(steps)
        self.run, self.switched, self.trials = run, switched, list(trials)
        self.kept: list[Lease] = []
        #: Calls so far, and why there is no CUDA graph.
        self.calls, self.reason = 0, ""
        #: Time of the last use, by a clock that all plans of a model share.
        self.clock, self.used = itertools.count(), 0
        self._new = [(each, tuple(each.shape), each.dtype) for each in self.outputs]
        self.launch: Callable[[], None] = self._loop
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self.lock = threading.Lock()

    @property
    def captured(self) -> bool:
        """Whether a call launches a CUDA graph."""
        return self.launch != self._loop

    def holds(self) -> bool:
        """Return whether dispatch would choose the same kernels again."""
        return self.epoch == self.runtime.epoch and not (self.switched and not self.device.tf32())

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the model: threads that share a stream take turns at enqueueing."""
        copy, empty, results = self.device.copy, self.device.empty, []
        with self.lock:
            self.calls += 1
            is_hot = self.calls == HOT_RUN
            self.used = next(self.clock)
            for number, place in self.inputs:
                copy(place, inputs[number])
            self.launch()
            for array, shape, dtype in self._new:
                new = empty(shape, dtype)
                copy(new, array)
                results.append(new)
        if is_hot:
            for trial in self.trials:
                trial.ripen()
        return tuple(results)

    def _loop(self) -> None:
        for step in self.steps:
            step()

    def capture(self) -> None:
        """Capture the launches into a graph if the device can."""
        again = [step for step in self.steps if isinstance(step, Recompute)]
        for step in again:
            step.kept = self.kept
        try:
            graph = self.device.capture_graph(self._loop)
        except Exception as error:  # the array library may be unable to run inside a capture
            logger().info("a model is not captured: %s", error)
            self.reason = f"its nodes cannot be captured: {error}"
            self.kept.clear()
        else:
            if graph is None:
                self.reason = f"{'the emulator' if self.device.emulated else 'the device'} has no graphs"
            else:
                self.launch = graph
        for step in again:
            step.kept = None


class Arenas:
    """Bound plans of a model on one device, of which the least recently used is replaced."""

    def __init__(self) -> None:
        self._all: dict[Bound, tuple[dict[int, Bound], int]] = {}
        self._clock = itertools.count()
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self._lock = threading.Lock()

    def keep(self, plan: dict[int, Bound], stream: int, bound: Bound) -> None:
        """Keep the bound plan of a stream, among those of its plan."""
        with self._lock:
            old = plan.get(stream)
            if old is not None:
                self._drop(old)
            while len(self._all) >= MOST_ARENAS:
                self._drop(min(self._all, key=lambda each: each.used))
            self._all[bound] = plan, stream
            bound.clock = self._clock
            bound.used = next(self._clock)
            plan[stream] = bound

    def _drop(self, bound: Bound) -> None:
        plan, stream = self._all.pop(bound)
        plan.pop(stream, None)


def _poison(address: int, nbytes: int) -> Repeat:
    def spoil() -> None:
        ctypes.memset(address, POISON, nbytes)

    return spoil


def poison_steps(arena: Arena, node: int) -> list[Repeat]:
    """Return functions that overwrite, on the emulator, the memory that is unused after a node."""
    places = arena.layout.places
    alive = [place for key, place in places.items() if key[0] <= node and (place.dies is None or place.dies > node)]
    dead = [place for place in places.values() if place.dies == node and not any(map(place.meets, alive))]
    return [_poison(arena.base + place.offset, place.nbytes) for place in dead]
