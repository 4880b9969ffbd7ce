"""A graph for inputs of one signature: rewritten, and executed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.errors import GensorError, ModelError, UnsupportedError
from gensor_kernels.graph.ir.options import DEFAULT, Options
from gensor_kernels.graph.layouts.laid_out import Layouts, laid_out
from gensor_kernels.graph.layouts.prepacked import prepacked
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Run
from gensor_kernels.graph.rewrites import rewritten
from gensor_kernels.shown import shown

from .folding import fold

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node


class Weights:
    """Constants of a model on one device: plans of several signatures share equal ones."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...], tuple[int, ...], bytes], np.ndarray] = {}
        #: Copies on the device, by the identity of the NumPy array.
        self.placed: dict[int, Any] = {}

    def shared(self, value: np.ndarray) -> np.ndarray:
        """Return the first array that was equal to this one."""
        if value.dtype == object:  # text
            return value
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
        return self._arrays.setdefault((value.dtype.name, value.shape, value.strides, content), value)


class Plan:
    """A graph for inputs of one signature, rewritten, with its constants on one device.

    Parameters
    ----------
    graph : Graph
        Graph with all shapes inferred; it is changed.
    weights : Weights
        Constants that plans of the model share.
    options : Options
        Precision, and how weights are stored.
    """

    def __init__(self, graph: Graph, weights: Weights, options: Options = DEFAULT):
        fold(graph)
        self.graph = rewritten(graph, options)
        #: Layouts that were chosen by the times predicted for the current device; None where there is none.
        self.layouts: Layouts | None = None
        if _has_device():
            self.layouts = laid_out(self.graph)
            prepacked(self.graph)
        self.graph.constants = {name: weights.shared(value) for name, value in self.graph.constants.items()}
        self.ends = list(self.graph.last_reads())
        self.placed = weights.placed

    def run(self, inputs: Mapping[str, Any], watch: Any = None) -> tuple[Any, ...]:
        """Execute every node; `watch(node, explanations)` is called behind each."""
        run = Run(self.placed, explains=watch is not None)
        values = run.values
        values.update(self.graph.constants)
        values.update(inputs)
        for node, last in zip(self.graph.nodes, self.ends, strict=True):
            results = _computed(run, node)
            values.update(zip(node.outputs, results, strict=False))
            if watch is not None:
                watch(node, tuple(run.explained or ()))
                run.explained = []
            for name in last:
                values.pop(name, None)
        return tuple(run.device(values[name]) for name in self.graph.outputs)


def _has_device() -> bool:
    """Return whether there is a device whose kernels' times can be predicted."""
    try:
        return current_runtime().device.arch is not None
    except (GensorError, ImportError):
        return False


def _computed(run: Run, node: Node) -> tuple[Any, ...]:
    arguments = [run.values[each] if each else None for each in node.inputs]
    try:
        found = LOWERINGS[node.op](run, node, *arguments)
    except UnsupportedError as error:
        text = error.reason
        if text.startswith("node "):
            raise
        raise UnsupportedError(f"node {shown(node.name)} ({node}): {text}") from None
    except (ValueError, TypeError, IndexError) as error:
        raise ModelError(f"node {shown(node.name)} ({node}) cannot be computed: {error}") from error
    results = found if isinstance(found, tuple) else (found,)
    # NumPy makes scalars of arrays without axes.
    return tuple(np.asarray(each) if isinstance(each, np.generic) else each for each in results)
