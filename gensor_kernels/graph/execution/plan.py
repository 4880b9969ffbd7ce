"""How the calls of one signature run: node by node, recorded, or bound to memory and launches."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels import config, forking
from gensor_kernels.dispatch.observe import record
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.shown import shown

from .learning import Learning
from .prepared import Prepared

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Graph
    from gensor_kernels.graph.rewrites.state import State

    from .arena import Layout
    from .bound import Bound
    from .weights import Weights

#: Recorded runs without a bound plan after which a plan runs node by node.
MOST_ATTEMPTS = 8


class Plan(Prepared):
    """A prepared graph, and how its calls run.

    The first calls are recorded (learning.py), after which each stream has its own memory and launches (bound.py).
    Parameters are those of Prepared.
    """

    def __init__(self, graph: Graph, weights: Weights, options: Options = DEFAULT, state: State | None = None):
        super().__init__(graph, weights, options, state)
        self.arenas = weights.arenas
        #: Places of the requests of the last recorded run, or None before the first.
        self.layout: Layout | None = None
        #: Why every call computes node by node, or "".
        self.eager = ""
        self.bound: dict[int, Bound] = {}
        self._attempts = 0
        self.after_fork()
        forking.renew(self)

    def of(self, state: Mapping[str, Any]) -> Plan:
        """Return a copy of this plan for the state of a session, with separate memory and launches."""
        plan = copy.copy(self)
        plan.state, plan.layout, plan.eager, plan.bound, plan._attempts = dict(state), None, "", {}, 0
        plan.after_fork()
        forking.renew(plan)
        return plan

    def after_fork(self) -> None:
        """Make a new lock."""
        self._turn = threading.Lock()

    def __call__(self, runtime: Runtime, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the graph, bound or node by node."""
        device = runtime.device
        if device.capturing():  # the caller's graph owns the memory, and keeps the weights
            with device.lasting(self.constants, self.state):
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
            return self._learn(runtime, stream, inputs)
        finally:
            self._turn.release()

    def _by_nodes(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return self.run(dict(zip(self.graph.inputs, inputs, strict=True)))

    def _learn(self, runtime: Runtime, stream: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the graph in a recorded run, and bind it if possible."""
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
            self.arenas.keep(self.bound, stream, bound)
        else:
            self._attempts += 1
            if self._attempts == MOST_ATTEMPTS:
                self.eager = f"{MOST_ATTEMPTS} runs in a row requested memory in different orders"
        return results
