"""A plan with its own memory: inputs, activations and launches have fixed addresses, so that a call is their replay.

On a GPU the launches are one CUDA graph; without graphs, and on the emulator, a loop makes them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gensor_kernels import forking
from gensor_kernels.config import logger
from gensor_kernels.dispatch.plans.bound import Binder, Repeat
from gensor_kernels.dispatch.plans.trial import HOT_RUN
from gensor_kernels.graph.lowerings import compute

from .arena import Arena, Ledger

if TYPE_CHECKING:
    from gensor_kernels.devices.lending import Lease
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.plans.trial import Trial
    from gensor_kernels.graph.ir.graph import Node
    from gensor_kernels.graph.lowerings.base import Run

#: Bound plans of a model on one device, each with its arena.
MOST_ARENAS = 8
#: Numbers of uses: those of all bound plans are in one order.
_clock = itertools.count()


class Recompute:
    """A node that uses the array library: each call computes it again and copies its results (`targets`, by number).

    Its requests for memory get their planned places. The device allocates memory for other requests, which `kept` keeps
    for the graph inside a capture.
    """

    def __init__(self, arena: Arena, run: Run, node: Node, number: int, targets: Sequence[tuple[int, DeviceArray]]):
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
            moved = [
                (target, results[place])
                for place, target in self.targets
                if device.pointer(results[place]) != device.pointer(target)
            ]
            ledger.layout = None  # where requests differed from the planned ones, a result may be in another's place
            moved = [(target, source.copy() if self.arena.holds(source) else source) for target, source in moved]
            for target, source in moved:
                device.copy(target, source)


class Bound:
    """A plan bound to memory and launches, on one stream: a Recording fills it in.

    `steps` compute `outputs`, results in the arena and constants, from `inputs`, places by the numbers of the inputs
    that are read. They work on tensors of `run` at fixed addresses.
    """

    def __init__(self, runtime: Runtime, arena: Arena, run: Run):
        self.runtime, self.epoch, self.device = runtime, runtime.epoch, runtime.device
        self.arena, self.run = arena, run
        self.inputs: list[tuple[int, DeviceArray]] = []
        self.outputs: list[DeviceArray] = []
        self.steps: list[Repeat] = []
        #: Whether launches depend on the library's TF32 switch.
        self.switched = False
        #: Kinds of calls to be considered for tuning once they are frequent.
        self.trials: list[Trial] = []
        self.kept: list[Lease] = []
        #: Calls so far, why there is no CUDA graph, and the number of the last use.
        self.calls, self.reason, self.used = 0, "", next(_clock)
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

    def __call__(self, inputs: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        """Compute the model: threads that share a stream take turns at enqueueing."""
        copy, empty, results = self.device.copy, self.device.empty, []
        with self.lock:
            self.calls += 1
            is_hot = self.calls == HOT_RUN
            self.used = next(_clock)
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

    def close(self, binder: Binder) -> None:
        """End the recording; capture the launches into a graph if the device can."""
        self.switched, self.trials = binder.switched, list(dict.fromkeys(binder.trials))
        self._new = [(each, tuple(each.shape), each.dtype) for each in self.outputs]
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
        self._bound: dict[Bound, tuple[dict[int, Bound], int]] = {}
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self._lock = threading.Lock()

    def keep(self, bound: Bound, plan: dict[int, Bound], stream: int) -> None:
        """Keep the bound plan of a stream, among those of its plan."""
        with self._lock:
            if stream in plan:
                self._drop(plan[stream])
            while len(self._bound) >= MOST_ARENAS:
                self._drop(min(self._bound, key=lambda each: each.used))
            self._bound[bound] = plan, stream
            plan[stream] = bound

    def _drop(self, bound: Bound) -> None:
        plan, stream = self._bound.pop(bound)
        plan.pop(stream, None)
