"""A plan on memory of its own: inputs, activations and launches have fixed addresses, so that a call is their replay.

On a GPU the launches are one CUDA graph. Where they cannot be captured, and on the emulator, they are made in a loop.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import forking
from gensor_kernels.config import logger
from gensor_kernels.devices.emulator.device import POISON
from gensor_kernels.dispatch.plans.trial import HOT_RUN

from .arena import UNIT, Layout, Ledger
from .nodes import computed

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.devices.lending import Lease
    from gensor_kernels.dispatch.plans.bound import Repeat
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.plans.trial import Trial
    from gensor_kernels.graph.ir.graph import Node
    from gensor_kernels.graph.lowerings.base import Run


class Arena:
    """Memory for the places of a Layout; it belongs to the stream that is current when it is made."""

    def __init__(self, device: Device, layout: Layout):
        self.device, self.layout = device, layout
        self.owner = device.empty((layout.nbytes + UNIT,), np.dtype(np.uint8))
        self.base = -(-device.pointer(self.owner) // UNIT) * UNIT

    def fixed(self, array: Any) -> Any:
        """Return an array in the arena as one that keeps the whole arena alive, any other array as it is."""
        at = self.device.pointer(array)
        if not self.base <= at < self.base + self.layout.nbytes:
            return array
        shape, strides = tuple(array.shape), tuple(array.strides)
        return self.device.borrowed(at, shape, strides, array.dtype, self.owner, self.device.number)


class Recompute:
    """A node that the array library takes part in: it is computed anew, and its results are copied to their places.

    Its requests for memory get the places that were planned for them. A request that was not foreseen gets memory of
    the device's own; with `kept`, inside a capture, this memory is kept for the graph.

    Parameters
    ----------
    targets : sequence of (int, array)
        Results that are new memory, by their number, and their places.
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
            results = computed(self.run, self.node)
            for place, target in self.targets:
                if device.pointer(results[place]) != device.pointer(target):
                    device.copy(target, results[place])


class Bound:
    """A plan bound to memory and launches, on one stream.

    Parameters
    ----------
    runtime : Runtime
    arena : Arena
    inputs : list of (int, array)
        Numbers of the inputs that are read, and their places.
    outputs : list of array
        Results within the arena, and constants.
    steps : list of callable
        What computes the results from the inputs.
    run : Run
        Tensors on memory that stays.
    switched : bool
        Whether launches depend on the array library's TF32 switch.
    trials : list of Trial
        Kinds of calls to be considered for tuning once they have come often.

    Attributes
    ----------
    reason : str
        Why there is no CUDA graph.
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
        self.calls, self.kept, self.reason = 0, [], ""  # type: int, list[Lease], str
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
        device = self.device
        with self.lock:
            self.calls += 1
            for number, place in self.inputs:
                device.copy(place, inputs[number])
            self.launch()
            results = tuple([self._new(each) for each in self.outputs])
        if self.calls == HOT_RUN:
            for trial in self.trials:
                trial.ripen()
        return results

    def _new(self, array: Any) -> Any:
        found = self.device.empty(array.shape, array.dtype)
        self.device.copy(found, array)
        return found

    def _loop(self) -> None:
        for step in self.steps:
            step()

    def capture(self) -> None:
        """Capture the launches into a graph, where the device has graphs and nothing forbids it."""
        again = [step for step in self.steps if isinstance(step, Recompute)]
        for step in again:
            step.kept = self.kept
        try:
            graph = self.device.captured(self._loop)
        except Exception as error:  # whatever the array library cannot do inside a capture, it can do in the loop
            logger().info("a model is not captured: %s", error)
            self.reason = f"its nodes cannot be captured: {error}"
            self.kept.clear()
        else:
            if graph is None:
                self.reason = f"{self.device.arch.part if self.device.arch else 'the device'} has no graphs"
            else:
                self.launch = graph
        for step in again:
            step.kept = None


def poisoned(arena: Arena, node: int) -> list[Repeat]:
    """Return the functions that spoil, on the emulator, what nothing reads any more behind a node."""
    places = arena.layout.places
    alive = [place for key, place in places.items() if key[0] <= node and (place.dies is None or place.dies > node)]
    dead = [place for place in places.values() if place.dies == node and not any(map(place.meets, alive))]
    return [partial(ctypes.memset, arena.base + place.offset, POISON, place.nbytes) for place in dead]
