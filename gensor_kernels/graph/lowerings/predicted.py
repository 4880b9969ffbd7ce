"""Predicted times of nodes: their lowerings in a dry run, on arrays that stand in for their tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.explain import explain
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.errors import GensorError, UnsupportedError

from .base import Run

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node


class Dry(Run):
    """A run in which functions of this package are asked about instead of called, and nothing is copied."""

    def __init__(self) -> None:
        self.runtime = current_runtime()
        self.xp = self.runtime.device.xp
        self.explained, self.values = None, {}
        self.microseconds: float | None = 0.0

    def device(self, value: Any) -> Any:
        """Return an array of the device with the same shape."""
        if value is None or self.runtime.device.emulated or not isinstance(value, np.ndarray):
            return value
        return self.runtime.device.empty(value.shape, value.dtype)

    def host(self, value: Any) -> np.ndarray:
        """Return a NumPy array; UnsupportedError for one that would have to be computed."""
        if not isinstance(value, np.ndarray):
            raise UnsupportedError("a dry run computes no numbers")
        return value

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Add the predicted time of a call, and return an array like its result."""
        arguments = [self.device(each) for each in args]
        found = explain(function, *arguments, **keywords)
        time = found.measured_us or found.predicted_us or found.library_us or found.bound_us
        self.microseconds = None if time is None or self.microseconds is None else self.microseconds + time
        with self.runtime.questioned():
            try:
                return function(*arguments, **keywords)
            except Question as question:
                result = question.call.result
                return self.runtime.device.empty(result.shape, result.dtype)


class Predictions:
    """Predicted times of nodes on the current device. Nodes of equal shapes and attributes are asked about once."""

    def __init__(self) -> None:
        self._known: dict[Any, float | None] = {}

    def __call__(self, graph: Graph, nodes: Sequence[Node]) -> float | None:
        """Return the predicted microseconds of the kernels of some nodes that read each other or the graph's tensors.

        None without a device, and where a shape or a time is not known.
        """
        key = tuple(_shape_of(graph, node) for node in nodes)
        if key not in self._known:
            self._known[key] = _predicted(graph, nodes)
        return self._known[key]


def _shape_of(graph: Graph, node: Node) -> Any:
    """Return what a node's time depends on."""
    specs = tuple(str(graph.spec(name)) for name in (*node.inputs, *(step.operand for step in node.epilogue)))
    return node.op, str(sorted(node.attributes.items())), specs, tuple(step.name for step in node.epilogue)


def _predicted(graph: Graph, nodes: Sequence[Node]) -> float | None:
    try:
        run = Dry()
    except (GensorError, ImportError, RuntimeError):  # a model is printed on a machine without a GPU
        return None
    made = {name for node in nodes for name in node.outputs}
    for node in nodes:
        for name in node.reads():
            if name not in made and name not in run.values:
                run.values[name] = _stand_in(run, graph, name)
    return run.microseconds if _computed(run, nodes) else None


def _stand_in(run: Run, graph: Graph, name: str) -> Any:
    if name in graph.constants:
        value = graph.constants[name]
        # Small constants may be shapes, which lowerings read.
        return value if value.size <= 64 else run.runtime.device.empty(value.shape, value.dtype)
    spec = graph.spec(name)
    if spec is None or spec.shape is None or not all(isinstance(each, int) for each in spec.shape):
        return None
    return run.runtime.device.empty(tuple(int(each) for each in spec.shape if isinstance(each, int)), spec.dtype)


def _computed(run: Dry, nodes: Sequence[Node]) -> bool:
    from . import LOWERINGS

    for node in nodes:
        arguments = [run.values[each] if each else None for each in node.inputs]
        if any(value is None for value, name in zip(arguments, node.inputs, strict=True) if name):
            return False
        try:
            found = LOWERINGS[node.op](run, node, *arguments)
        except (GensorError, ValueError, TypeError, np.exceptions.AxisError):
            return False
        run.values.update(zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=False))
    return True
