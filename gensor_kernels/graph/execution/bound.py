"""A plan with its own memory: inputs, activations and launches have fixed addresses, so that a call is their replay.

The first run of a plan determines the places of its requests in an arena. The next runs use them and keep their
launches: a run with the same requests, in which no kernel was still to race, is then bound. On a GPU the launches are
one CUDA graph; without graphs, and on the emulator, a loop makes them.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels import forking
from gensor_kernels.config import logger
from gensor_kernels.dispatch.plans.bound import Binder, Repeat, repeat
from gensor_kernels.dispatch.plans.trial import HOT_RUN
from gensor_kernels.graph.ir.derived import owner_of
from gensor_kernels.graph.lowerings import compute
from gensor_kernels.graph.lowerings.base import IN_PLACE

from .arena import Arena, Layout, Ledger

if TYPE_CHECKING:
    from gensor_kernels.devices.lending import Lease
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.plans.trial import Trial
    from gensor_kernels.graph.ir.graph import Node
    from gensor_kernels.graph.lowerings.base import Run

    from .plan import Plan

#: Bound plans of a model on one device, each with its arena.
MOST_ARENAS = 8
#: Operators whose results follow from shapes alone.
OF_SHAPES = ("Shape", "Size")
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
            for place, target in self.targets:
                if device.pointer(results[place]) != device.pointer(target):
                    device.copy(target, results[place])


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


class Recording:
    """One run of a plan that records its requests for memory and its launches.

    `layout` has the places of the requests of the run before, if any: the launches are those of a Bound.
    """

    def __init__(self, plan: Plan, runtime: Runtime, layout: Layout | None):
        self.plan, self.runtime, self.device = plan, runtime, runtime.device
        self.run, self.fixed = plan.new_run(), plan.new_run()
        self.bound = None if layout is None else Bound(runtime, Arena(self.device, layout), self.fixed)
        self.ledger = Ledger(layout, self.bound.arena.base if self.bound else 0)
        self.binder = Binder(self.device)
        self.run.uploaded, self.run.variable = self.fixed.uploaded, self.fixed.variable
        self.run.on_upload = self.binder.note

    def __call__(self, inputs: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        """Compute the plan."""
        graph, values = self.plan.graph, self.run.values
        self.run.variable.update(self.plan.state)
        with ExitStack() as within:
            within.enter_context(self.device.lending(self.ledger.lease))
            if self.bound is not None:
                within.enter_context(self.runtime.bound_by(self.binder))
            self._take(inputs)
            for number, (node, last) in enumerate(zip(graph.nodes, self.plan.ends, strict=True)):
                self._compute(number, node)
                for name in last:
                    values.pop(name, None)
        self.binder.begin(())
        return self._results()

    def layout(self) -> Layout:
        """Return the places of the run's requests."""
        layout = self.ledger.layout
        return layout if layout is not None and self.ledger.follows else self.ledger.make_layout()

    def close(self) -> Bound | None:
        """Return the plan on the run's memory, or None if its requests differed or a kernel may change."""
        bound, same = self.bound, self.ledger.follows and not self.ledger.in_use() and self.run.reader is None
        if bound is None or not same or not self.binder.settled or bound.epoch != self.runtime.epoch:
            return None
        bound.close(self.binder)
        return bound

    def _take(self, inputs: Sequence[DeviceArray]) -> None:
        """Copy the inputs that are read."""
        self.ledger.begin(-1)
        for number, (name, array) in enumerate(zip(self.plan.graph.inputs, inputs, strict=True)):
            if name in self.plan.read:
                place = self.device.empty(tuple(array.shape), np.dtype(array.dtype))
                self.device.copy(place, array)
                self.run.values[name] = place
                self.run.variable.add(name)
                if self.bound is not None:
                    self.fixed.values[name] = self.bound.arena.pin(place)
                    self.bound.inputs.append((number, self.fixed.values[name]))

    def _compute(self, number: int, node: Node) -> None:
        run = self.run
        self.ledger.begin(number)
        if node.op in OF_SHAPES or run.variable.isdisjoint(node.reads()):
            with self.device.lending(None):  # the same in every run
                results = compute(run, node)
            self.fixed.values.update(zip(node.outputs, results, strict=False))
            run.values.update(zip(node.outputs, results, strict=False))
            return
        run.variable.update(node.outputs)
        given = [run.values[name] for name in node.reads()]
        self.binder.begin([array for array in given if self.device.is_array(array)])
        results = compute(run, node)
        if self.device.emulated:
            results = self._adopt(results)
        if self.bound is not None:
            self._bind(self.bound, number, node, results)
        run.values.update(zip(node.outputs, results, strict=False))

    def _adopt(self, results: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Move results that NumPy allocated to places in the arena."""
        owners: dict[int, tuple[np.ndarray, Lease]] = {}
        found = []
        for array in results:
            owner = owner_of(array)
            if array.size == 0 or self.binder.knows(array) or owner.base is not None:
                found.append(array)
                continue
            if id(owner) not in owners:
                lease = self.ledger.lease(owner.nbytes)
                if not lease.address and lease.returned is not None:
                    weakref.finalize(owner, lease.returned, lease.number)
                    lease.returned = None
                owners[id(owner)] = owner, lease
            _, lease = owners[id(owner)]
            if lease.address:
                at = lease.address + array.ctypes.data - owner.ctypes.data
                moved = self.device.borrow(at, array.shape, array.strides, array.dtype, lease, 0)
                moved[...] = array
                array = moved
            found.append(array)
        return tuple(found)

    def _bind(self, bound: Bound, number: int, node: Node, results: Sequence[DeviceArray]) -> None:
        """Keep the launches of a node, or the node where the array library computes it."""
        binder, arena = self.binder, bound.arena
        places = [arena.pin(array) for array in results]
        if binder.is_launches(results) and not node.attributes.get(IN_PLACE):
            for launched in binder.launches:
                bound.steps += repeat(self.device, launched, arena.pin)
        else:
            fresh = [(place, array) for place, array in enumerate(places) if not binder.is_given(results[place])]
            bound.steps.append(Recompute(arena, self.fixed, node, number, fresh))
        if self.device.emulated:
            bound.steps += arena.poison(number)
        self.fixed.values.update(zip(node.outputs, places, strict=False))
        binder.begin(())

    def _results(self) -> tuple[DeviceArray, ...]:
        """Return the results as arrays that the caller owns."""
        run, found = self.run, []
        for name in self.plan.graph.outputs:
            array = run.device(run.values[name])
            if self.bound is not None:
                self.bound.outputs.append(self.bound.arena.pin(array))
            if self.bound is not None or name not in run.variable:
                new = self.device.empty(tuple(array.shape), array.dtype)
                self.device.copy(new, array)
                array = new
            found.append(array)
        run.values.clear()
        return tuple(found)
