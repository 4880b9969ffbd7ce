"""A run that records its requests for memory and its launches.

The first run of a plan determines the places of its requests in an arena. The next runs use them and keep their
launches: a run with the same requests, in which no kernel was still to race, is then bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.plans.bound import Binder, Repeat, repeat
from gensor_kernels.graph.lowerings.base import IN_PLACE

from .arena import Layout, Ledger
from .bound import Arena, Bound, Recompute, poison_steps
from .nodes import compute

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Node

    from .prepared import Prepared

#: Operators whose results follow from shapes alone.
OF_SHAPES = ("Shape", "Size")


class Learning:
    """One recorded run of a plan; `layout` has the places of the requests of the run before, if any."""

    def __init__(self, plan: Prepared, runtime: Runtime, layout: Layout | None):
        self.plan, self.runtime, self.device = plan, runtime, runtime.device
        self.epoch = runtime.epoch
        self.arena = None if layout is None else Arena(self.device, layout)
        self.ledger = Ledger(layout, self.arena.base if self.arena else 0)
        self.binder = Binder(self.device)
        self.run, self.fixed = plan.new_run(), plan.new_run()
        self.run.uploaded, self.run.variable = self.fixed.uploaded, self.fixed.variable
        self.run.on_upload = self.binder.note
        self.inputs: list[tuple[int, Any]] = []
        self.steps: list[Repeat] = []
        self.outputs: list[Any] = []

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the plan."""
        graph, values = self.plan.graph, self.run.values
        self.run.variable.update(self.plan.state)
        with ExitStack() as within:
            within.enter_context(self.device.lending(self.ledger.lease))
            if self.arena is not None:
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
        return self.arena.layout if self.arena is not None and self.ledger.follows else self.ledger.make_layout()

    def bound(self) -> Bound | None:
        """Return the plan on the run's memory, or None if its requests differed or a kernel may change."""
        same = self.ledger.follows and not self.ledger.in_use() and self.run.reader is None
        if self.arena is None or not same or not self.binder.settled or self.epoch != self.runtime.epoch:
            return None
        binder = self.binder
        return Bound(
            *(self.runtime, self.arena, self.inputs, self.outputs, self.steps, self.fixed),
            *(binder.switched, list(dict.fromkeys(binder.trials))),
        )

    def _take(self, inputs: Sequence[Any]) -> None:
        """Copy the inputs that are read."""
        self.ledger.begin(-1)
        for number, (name, array) in enumerate(zip(self.plan.graph.inputs, inputs, strict=True)):
            if name in self.plan.read:
                place = self.device.empty(tuple(array.shape), np.dtype(array.dtype))
                self.device.copy(place, array)
                self.run.values[name] = place
                self.run.variable.add(name)
                if self.arena is not None:
                    self.fixed.values[name] = self.arena.pin(place)
                    self.inputs.append((number, self.fixed.values[name]))

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
        if self.arena is not None:
            self._bind(self.arena, number, node, results)
        run.values.update(zip(node.outputs, results, strict=False))

    def _adopt(self, results: Sequence[Any]) -> tuple[Any, ...]:
        """Move results that NumPy allocated to places in the arena."""
        owners: dict[int, tuple[np.ndarray, int, Any]] = {}
        found = []
        for array in results:
            owner = array
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if array.size == 0 or self.binder.knows(array) or owner.base is not None:
                found.append(array)
                continue
            if id(owner) not in owners:
                lease = self.ledger.lease(owner.nbytes)
                if not lease.address and lease.returned is not None:
                    weakref.finalize(owner, lease.returned, lease.number)
                    lease.returned = None
                owners[id(owner)] = owner, lease.address, lease
            _, address, lease = owners[id(owner)]
            if address:
                at = address + array.ctypes.data - owner.ctypes.data
                moved = self.device.borrow(at, array.shape, array.strides, array.dtype, lease, 0)
                moved[...] = array
                array = moved
            found.append(array)
        return tuple(found)

    def _bind(self, arena: Arena, number: int, node: Node, results: Sequence[Any]) -> None:
        binder, places = self.binder, [arena.pin(array) for array in results]
        if binder.is_launches(results) and not node.attributes.get(IN_PLACE):
            for launched in binder.launches:
                self.steps += repeat(self.device, launched, arena.pin)
        else:
            fresh = [(place, array) for place, array in enumerate(places) if not binder.is_given(results[place])]
            self.steps.append(Recompute(arena, self.fixed, node, number, fresh))
        if self.device.emulated:
            self.steps += poison_steps(arena, number)
        self.fixed.values.update(zip(node.outputs, places, strict=False))
        binder.begin(())

    def _results(self) -> tuple[Any, ...]:
        """Return the results as arrays that the caller owns."""
        run, found = self.run, []
        for name in self.plan.graph.outputs:
            array = run.device(run.values[name])
            if self.arena is not None:
                self.outputs.append(self.arena.pin(array))
            if self.arena is not None or name not in run.variable:
                new = self.device.empty(tuple(array.shape), array.dtype)
                self.device.copy(new, array)
                array = new
            found.append(array)
        run.values.clear()
        return tuple(found)
