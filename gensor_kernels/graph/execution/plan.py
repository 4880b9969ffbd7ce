"""A graph for inputs of one signature: rewritten, and computed node by node or bound to memory and launches.

The first run of a plan determines the places of its requests in an arena. The next runs use them and keep their
launches: a run with the same requests, in which no kernel was still to race, is then bound.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from gensor_kernels import config, forking
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.plans.bound import Binder, repeat
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.graph.ir.graph import owner_of
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.layouts.laid_out import Layouts, choose_layouts
from gensor_kernels.graph.layouts.times import prepack_weights
from gensor_kernels.graph.lowerings import compute
from gensor_kernels.graph.lowerings.base import IN_PLACE, WINDOWS, Run, spatial_axes
from gensor_kernels.graph.lowerings.predicted import keep_answers
from gensor_kernels.graph.readers.folding import fold
from gensor_kernels.graph.rewrites import rewrite
from gensor_kernels.graph.rewrites.quantised import LEAST, product_dtype
from gensor_kernels.graph.rewrites.state import State, keep_state
from gensor_kernels.shown import shown

from .arena import Arena, Layout, Ledger
from .bound import Arenas, Bound, Recompute

if TYPE_CHECKING:
    from gensor_kernels.devices.lending import Lease
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Graph, Node

    from .weights import Weights

#: Operators whose results follow from shapes alone.
OF_SHAPES = ("Shape", "Size")
#: Nodes before the first one that reads data back to the host from which they are bound on their own.
LEAST_BOUND = 4
#: Recorded runs without a bound plan after which a plan runs node by node.
MOST_ATTEMPTS = 8


class Plan:
    """A graph for inputs of one signature, rewritten, with its constants on one device, and how its calls run.

    The graph has all shapes inferred, and is changed; `ready` are the layouts of one that was rewritten before, True
    where it has none. Plans of a model share `weights` and `arenas`; `state` are inputs
    that a session keeps. The first calls are recorded, after which each stream has its own memory and launches
    (bound.py).
    """

    def __init__(
        self,
        graph: Graph,
        weights: Weights,
        options: Options = DEFAULT,
        state: State | None = None,
        arenas: Arenas | None = None,
        ready: Layouts | Literal[True] | None = None,
    ):
        self.weights, self.arenas = weights, arenas or Arenas()
        graph.derived, self.graph = weights.derived, graph
        #: Part for which layouts were chosen by predicted times, "" without a device; and the layouts, if any.
        self.part = part()
        self.layouts: Layouts | None = ready if isinstance(ready, Layouts) else None
        if ready is None:
            graph.derived.note(graph.constants.values())
            fold(graph)
            self.graph = rewrite(graph, options=options)
            if self.part:
                self.layouts = choose_layouts(self.graph)
                prepack_weights(self.graph)
                keep_answers()
        if state is not None:
            keep_state(self.graph, *state)
            self.graph.specs |= {name: self.graph.inputs.pop(name) for name in state.results}
        self.graph.constants = {name: weights.share(value) for name, value in self.graph.constants.items()}
        #: For each node the tensors that are unused after it.
        self.ends = list(self.graph.last_reads())
        #: Tensors that a node reads, or that are results.
        self.read = {*(name for node in self.graph.nodes for name in node.reads()), *self.graph.outputs}
        self._begin({})

    def _begin(self, state: dict[str, DeviceArray]) -> None:
        #: Arrays that nodes write in place, by name.
        self.state = state
        #: Places of the requests of the last recorded run, or None before the first.
        self.layout: Layout | None = None
        #: Why every call computes node by node, or "".
        self.eager = ""
        #: Where a node reads data back to the host: a plan of those before it, which is bound, and one of the others.
        self.parts: tuple[Plan, Plan] | None = None
        self.bound: dict[int, Bound] = {}
        self._attempts = 0
        self.after_fork()
        forking.renew(self)

    def of(self, state: Mapping[str, DeviceArray]) -> Plan:
        """Return a copy of this plan for the state of a session, with separate memory and launches."""
        plan = copy.copy(self)
        plan._begin(dict(state))
        return plan

    def after_fork(self) -> None:
        """Make a new lock."""
        self._turn = threading.Lock()

    def __call__(self, runtime: Runtime, inputs: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        """Compute the graph, bound or node by node."""
        device = runtime.device
        if device.capturing():  # the caller's graph owns the memory, and keeps the weights
            with device.lasting(self.weights.placed, self.state):
                return self._by_nodes(inputs)
        stream = device.stream()
        bound = self.bound.get(stream)
        if bound is not None and bound.runtime is runtime and not record.active and bound.holds():
            return bound(inputs)
        if self.parts is not None:
            head, tail = self.parts
            values = dict(zip(self.graph.inputs, inputs, strict=True))
            values.update(zip(head.graph.outputs, head(runtime, inputs), strict=True))
            return tail.run(values)
        # Every call of a node is counted while calls are recorded.
        if self.eager or record.active or (config.disabled() and not device.emulated):
            return self._by_nodes(inputs)
        if not self._turn.acquire(blocking=False):  # another thread records a run
            return self._by_nodes(inputs)
        try:
            return self._record(runtime, stream, inputs)
        finally:
            self._turn.release()

    def _record(self, runtime: Runtime, stream: int, inputs: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        """Compute the graph in a recorded run, and bind it if possible."""
        try:
            recording = Recording(self, runtime, self.layout)
        except MemoryError as error:
            self.eager = f"there is no memory for an arena of {self.layout.nbytes if self.layout else 0} bytes: {error}"
            return self._by_nodes(inputs)
        results = recording(inputs)
        self.layout, reader = recording.layout(), recording.run.reader
        if reader is not None:
            self.eager = f"node {shown(reader.name)} ({reader}) reads data back to the host"
            self.parts = self._split(next(place for place, each in enumerate(self.graph.nodes) if each is reader))
        elif (bound := recording.close()) is not None:
            self._attempts = 0
            self.arenas.keep(bound, self.bound, stream)
        else:
            self._attempts += 1
            if self._attempts == MOST_ATTEMPTS:
                self.eager = f"{MOST_ATTEMPTS} runs in a row requested memory in different orders"
        return results

    def _split(self, count: int) -> tuple[Plan, Plan] | None:
        """Return plans of the first nodes and of the others, or None where there are few before."""
        nodes, outputs = self.graph.nodes, self.graph.outputs
        later = {*outputs, *(name for node in nodes[count:] for name in node.reads())}
        handed = [name for node in nodes[:count] for name in node.outputs if name in later]
        if count < LEAST_BOUND or not handed:
            return None
        specs = {name: self.graph.specs[name] for name in handed if name in self.graph.specs}
        head = replace(self.graph, nodes=nodes[:count], outputs=handed)
        tail = replace(self.graph, nodes=nodes[count:], inputs=self.graph.inputs | specs)
        return self._part(head), self._part(tail)

    def _part(self, graph: Graph) -> Plan:
        """Return a plan of some of the nodes, which has the same constants and state."""
        part = copy.copy(self)
        part.graph, part.ends = graph, list(graph.last_reads())
        part.read = {*(name for node in graph.nodes for name in node.reads()), *graph.outputs}
        part._begin(self.state)
        return part

    def _by_nodes(self, inputs: Sequence[DeviceArray]) -> tuple[DeviceArray, ...]:
        return self.run(dict(zip(self.graph.inputs, inputs, strict=True)))

    def new_run(self, explains: bool = False) -> Run:
        """Return a new run of the graph, which has the constants and the state."""
        run = Run(self.weights.on, explains)
        run.values.update(self.graph.constants)
        run.values.update(self.state)
        return run

    def run(
        self, inputs: Mapping[str, DeviceArray], watch: Callable[..., object] | None = None
    ) -> tuple[DeviceArray, ...]:
        """Execute every node.

        `watch(node, explanations, again, device)` is called after each; `again()` computes the node once more.
        """
        run = self.new_run(explains=watch is not None)
        values = run.values
        values.update(inputs)
        for node, last in zip(self.graph.nodes, self.ends, strict=True):
            results = compute(run, node)
            values.update(zip(node.outputs, results, strict=False))
            if watch is not None:
                served, run.explained = tuple(run.explained or ()), None
                watch(node, served, partial(compute, run, node), run.runtime.device)
                run.explained = []
            for name in last:
                values.pop(name, None)
        outputs = [run.device(values[name]) for name in self.graph.outputs]
        # A caller may change a result, but not a constant.
        return tuple(
            result.copy() if name in self.graph.constants else result
            for name, result in zip(self.graph.outputs, outputs, strict=True)
        )


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
        self.ledger.begin(len(graph.nodes))  # results are read after the last node
        self.binder.begin(())
        return self._results()

    def layout(self) -> Layout:
        """Return the places of the run's requests."""
        layout = self.ledger.layout
        return layout if layout is not None and self.ledger.follows() else self.ledger.make_layout()

    def close(self) -> Bound | None:
        """Return the plan on the run's memory, or None if its requests differed or a kernel may change."""
        bound, same = self.bound, self.ledger.follows() and not self.ledger.in_use() and self.run.reader is None
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
        if binder.is_launches(results) and not node.attribute(IN_PLACE):
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


def refuse_early(graph: Graph, options: Options) -> None:
    """Raise UnsupportedError, when a model is made, for what no plan of its graph can compute.

    That is windows over more than three axes, complex numbers, and quantised float32 products.
    """
    for name, spec in (*graph.inputs.items(), *graph.specs.items()):
        if spec.dtype.kind == "c":
            raise UnsupportedError(f"tensor {shown(name)} is {spec.dtype.name}; a model takes real numbers")
    for node in graph.nodes:
        shape = graph.shape(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node.op in WINDOWS and shape is not None:
            spatial_axes(node, len(shape))
        if options.weights and options.dtype is None and node.op in ("Gemm", "MatMul"):
            matrix, known = graph.constants.get(node.inputs[1]), graph.spec(node.inputs[0]) is not None
            if matrix is not None and matrix.ndim == 2 and matrix.size >= LEAST and known:
                product_dtype(graph, node, options.weights)


def part() -> str:
    """Return the name of the current device's part, whose kernels' times can be predicted, or ""."""
    try:
        arch = current_runtime().device.arch
    except (GensorError, ImportError):
        return ""
    return "" if arch is None else arch.name
