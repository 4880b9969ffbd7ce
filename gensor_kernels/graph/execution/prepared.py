"""A graph for inputs of one signature: rewritten, and computed node by node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.layouts.laid_out import Layouts, choose_layouts
from gensor_kernels.graph.layouts.prepacked import prepack_weights
from gensor_kernels.graph.lowerings.base import Constants, Run
from gensor_kernels.graph.rewrites import rewrite
from gensor_kernels.graph.rewrites.state import State, keep_state

from .folding import fold
from .nodes import compute

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph

    from .weights import Weights


class Prepared:
    """A graph for inputs of one signature, rewritten, with its constants on one device.

    The graph has all shapes inferred, and is changed. Plans of a model share `weights`; `state` are inputs that a
    session keeps.
    """

    def __init__(self, graph: Graph, weights: Weights, options: Options = DEFAULT, state: State | None = None):
        graph.derived = weights.derived
        graph.derived.note(graph.constants.values())
        fold(graph)
        self.graph = rewrite(graph, options=options)
        #: Layouts that were chosen by times predicted for the current device, or None without a device.
        self.layouts: Layouts | None = None
        if _has_device():
            self.layouts = choose_layouts(self.graph)
            prepack_weights(self.graph)
        #: Arrays that nodes write in place, by name.
        self.state: dict[str, Any] = {}
        if state is not None:
            keep_state(self.graph, *state)
            self.graph.specs |= {name: self.graph.inputs.pop(name) for name in state.results}
        self.graph.constants = {name: weights.shared(value) for name, value in self.graph.constants.items()}
        #: For each node the tensors that are unused after it.
        self.ends = list(self.graph.last_reads())
        #: Tensors that a node reads, or that are results.
        self.read = {*(name for node in self.graph.nodes for name in node.reads()), *self.graph.outputs}
        self.constants = Constants(self.graph.constants.values(), weights.placed)

    def new_run(self, explains: bool = False) -> Run:
        """Return a new run of the graph, which has the constants and the state."""
        run = Run(self.constants, explains)
        run.values.update(self.graph.constants)
        run.values.update(self.state)
        return run

    def run(self, inputs: Mapping[str, Any], watch: Any = None) -> tuple[Any, ...]:
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


def _has_device() -> bool:
    """Return whether there is a device whose kernels' times can be predicted."""
    try:
        return current_runtime().device.arch is not None
    except (GensorError, ImportError):
        return False
