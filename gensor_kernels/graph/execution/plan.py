"""A graph for inputs of one signature: rewritten, and executed."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels import config, forking
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.observe import record
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.ir.derived import Derived
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.layouts.laid_out import Layouts, laid_out
from gensor_kernels.graph.layouts.prepacked import prepacked
from gensor_kernels.graph.lowerings.base import Constants, Run
from gensor_kernels.graph.rewrites import rewritten
from gensor_kernels.graph.rewrites.state import State, stored
from gensor_kernels.shown import shown

from .folding import fold
from .learning import Learning
from .nodes import computed

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Graph

    from .arena import Layout
    from .bound import Bound

#: Bound plans of a model on one device, each with its arena.
MOST_ARENAS = 8
#: Watched runs that end without a bound plan, before a plan is left to run node by node.
MOST_ATTEMPTS = 8


class Weights:
    """Constants of a model on one device: plans of several signatures share equal ones."""

    def __init__(self) -> None:
        #: Arrays by dtype, shape, order in memory and first elements: only arrays that agree so far are compared.
        self._arrays: dict[tuple[Any, ...], list[np.ndarray]] = {}
        #: Copies on the device, by the identity of the NumPy array.
        self.placed: dict[int, tuple[np.ndarray, Any]] = {}

        #: What rules and layouts made of the file's constants.
        self.derived = Derived()
        self.arenas = Arenas()

    def shared(self, value: np.ndarray) -> np.ndarray:
        """Return the first array that was equal to this one."""
        if value.dtype == object:  # text
            return value
        alike = self._arrays.setdefault((value.dtype.name, value.shape, value.strides, value.flat[:16].tobytes()), [])
        for each in alike:
            if each is value or np.array_equal(_bytes(each), _bytes(value)):
                return each
        alike.append(value)
        return value


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Arenas:
    """Bound plans of a model on one device: the one that was used longest ago gives way to a new one."""

    def __init__(self) -> None:
        self._all: dict[Bound, tuple[Plan, int]] = {}
        self._clock = itertools.count()
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """Make a new lock."""
        self._lock = threading.Lock()

    def keep(self, plan: Plan, stream: int, bound: Bound) -> None:
        """Keep a bound plan of a stream."""
        with self._lock:
            old = plan.bound.get(stream)
            if old is not None:
                self._drop(old)
            while len(self._all) >= MOST_ARENAS:
                self._drop(min(self._all, key=lambda each: each.used))
            self._all[bound] = plan, stream
            bound.clock = self._clock
            bound.used = next(self._clock)
            plan.bound[stream] = bound

    def _drop(self, bound: Bound) -> None:
        plan, stream = self._all.pop(bound)
        plan.bound.pop(stream, None)


class Plan:
    """A graph for inputs of one signature, rewritten, with its constants on one device.

    Its first calls are watched (learning.py); from then on each stream has memory and launches of its own (bound.py).

    Parameters
    ----------
    graph : Graph
        Graph with all shapes inferred; it is changed.
    weights : Weights
        Constants that plans of the model share.
    options : Options
        Precision, and how weights are stored.
    state : State, optional
        Inputs that a session keeps; they are no inputs of the plan's graph any more.
    """

    def __init__(self, graph: Graph, weights: Weights, options: Options = DEFAULT, state: State | None = None):
        graph.derived = weights.derived
        graph.derived.note(graph.constants.values())
        fold(graph)
        self.graph = rewritten(graph, options=options)
        #: Layouts that were chosen by the times predicted for the current device; None where there is none.
        self.layouts: Layouts | None = None
        if _has_device():
            self.layouts = laid_out(self.graph)
            prepacked(self.graph)
        #: Arrays that nodes write in place, by name.
        self.state: dict[str, Any] = {}
        if state is not None:
            stored(self.graph, *state)
            self.graph.specs |= {name: self.graph.inputs.pop(name) for name in state.results}
        self.graph.constants = {name: weights.shared(value) for name, value in self.graph.constants.items()}
        self.ends = list(self.graph.last_reads())
        self.read = {*(name for node in self.graph.nodes for name in node.reads()), *self.graph.outputs}
        self.constants = Constants(self.graph.constants.values(), weights.placed)
        self.arenas = weights.arenas
        #: Where the requests of the last watched run lie; None before the first.
        self.layout: Layout | None = None
        #: Why every call computes node by node; "" where that is not so.
        self.eager = ""
        self.bound: dict[int, Bound] = {}
        self._attempts = 0
        self.after_fork()
        forking.renew(self)

    def of(self, state: Mapping[str, Any]) -> Plan:
        """Return this plan for the state of a session, with memory and launches of its own."""
        plan = copy.copy(self)
        plan.state, plan.layout, plan.eager, plan.bound, plan._attempts = dict(state), None, "", {}, 0
        plan.after_fork()
        forking.renew(plan)
        return plan

    def after_fork(self) -> None:
        """Make a new lock."""
        self._turn = threading.Lock()

    def new_run(self, explains: bool = False) -> Run:
        """Return a new run of the graph."""
        return Run(self.constants, explains)

    def __call__(self, runtime: Runtime, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the graph: on memory and launches that are there, or node by node."""
        device = runtime.device
        if device.capturing():  # the caller's graph owns the memory
            with device.lasting():
                return self._by_nodes(inputs)
        stream = device.stream()
        bound = self.bound.get(stream)
        if bound is not None and bound.runtime is runtime and not record.active and bound.holds():
            return bound(inputs)
        # Each call counts while calls are recorded.
        if self.eager or record.active or (config.disabled() and not device.emulated):
            return self._by_nodes(inputs)
        if not self._turn.acquire(blocking=False):  # another thread is at it
            return self._by_nodes(inputs)
        try:
            return self._watched(runtime, stream, inputs)
        finally:
            self._turn.release()

    def _by_nodes(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return self.run(dict(zip(self.graph.inputs, inputs, strict=True)))

    def _watched(self, runtime: Runtime, stream: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the graph, and bind it where the run shows that it may be."""
        try:
            learning = Learning(self, runtime, self.layout)
        except MemoryError as error:
            self.eager = f"there is no memory for an arena of {self.layout.nbytes if self.layout else 0} bytes: {error}"
            return self._by_nodes(inputs)
        results = learning(inputs)
        self.layout, reader = learning.layout(), learning.run.reader
        if reader is not None:
            self.eager = f"node {shown(reader.name)} ({reader}) reads data back to the host"
            return results
        bound = learning.bound()
        if bound is not None:
            bound.capture()
            self._attempts = 0
            self.arenas.keep(self, stream, bound)
        else:
            self._attempts += 1
            if self._attempts == MOST_ATTEMPTS:
                self.eager = f"{MOST_ATTEMPTS} runs after one another asked for memory in different ways"
        return results

    def run(self, inputs: Mapping[str, Any], watch: Any = None) -> tuple[Any, ...]:
        """Execute every node.

        `watch(node, explanations, again, device)` is called behind each; `again()` computes the node once more.
        """
        run = self.new_run(explains=watch is not None)
        values = run.values
        values.update(self.graph.constants)
        values.update(self.state)
        values.update(inputs)
        for node, last in zip(self.graph.nodes, self.ends, strict=True):
            results = computed(run, node)
            values.update(zip(node.outputs, results, strict=False))
            if watch is not None:
                served, run.explained = tuple(run.explained or ()), None
                watch(node, served, partial(computed, run, node), run.runtime.device)
                run.explained = []
            for name in last:
                values.pop(name, None)
        outputs = [run.device(values[name]) for name in self.graph.outputs]
        # A constant stays what it is, whatever a caller does with a result.
        return tuple(
            result.copy() if name in self.graph.constants else result
            for name, result in zip(self.graph.outputs, outputs, strict=True)
        )


def _has_device() -> bool:
    """Return whether there is a device whose kernels' times can be predicted."""
    try:
        return current_runtime().device.arch is not None
    except (GensorError, ImportError):
        return False
