"""A graph for inputs of one signature: rewritten, and computed node by node or bound to memory and launches."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gensor_kernels import config, forking
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.observe import record
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.layouts.laid_out import Layouts, choose_layouts
from gensor_kernels.graph.layouts.prepacked import prepack_weights
from gensor_kernels.graph.lowerings import compute
from gensor_kernels.graph.lowerings.base import WINDOWS, Run, spatial_axes
from gensor_kernels.graph.rewrites import rewrite
from gensor_kernels.graph.rewrites.quantised import LEAST, product_dtype
from gensor_kernels.graph.rewrites.state import State, keep_state
from gensor_kernels.shown import shown

from .bound import Arenas, Bound, Recording
from .folding import fold

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Graph

    from .arena import Layout
    from .weights import Weights

#: Recorded runs without a bound plan after which a plan runs node by node.
MOST_ATTEMPTS = 8


class Plan:
    """A graph for inputs of one signature, rewritten, with its constants on one device, and how its calls run.

    The graph has all shapes inferred, and is changed. Plans of a model share `weights` and `arenas`; `state` are inputs
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
    ):
        self.weights, self.arenas = weights, arenas or Arenas()
        graph.derived = weights.derived
        graph.derived.note(graph.constants.values())
        fold(graph)
        self.graph = rewrite(graph, options=options)
        #: Layouts that were chosen by times predicted for the current device, or None without a device.
        self.layouts: Layouts | None = None
        if _has_device():
            self.layouts = choose_layouts(self.graph)
            prepack_weights(self.graph)
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
        elif (bound := recording.close()) is not None:
            self._attempts = 0
            self.arenas.keep(bound, self.bound, stream)
        else:
            self._attempts += 1
            if self._attempts == MOST_ATTEMPTS:
                self.eager = f"{MOST_ATTEMPTS} runs in a row requested memory in different orders"
        return results

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


def refuse_early(graph: Graph, options: Options) -> None:
    """Raise UnsupportedError, when a model is made, for what no plan of its graph can compute.

    That is windows over more than two axes, complex numbers, and quantised float32 products.
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


def _has_device() -> bool:
    """Return whether there is a device whose kernels' times can be predicted."""
    try:
        return current_runtime().device.arch is not None
    except (GensorError, ImportError):
        return False
