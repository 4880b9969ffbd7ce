"""Predicted times of nodes: their lowerings in a dry run, on arrays of the same shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.explain import CallTime, find_call, find_time
from gensor_kernels.errors import GensorError, UnsupportedError

from .base import Run, Tensor
from .kept_times import KeptTimes

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.graph.ir.graph import Graph, Node

#: Axes of a tensor from the outermost to the innermost in memory, by name; others are in order.
Orders = Mapping[str, Sequence[int]]
#: Place of a node among some, and number of its result.
Made = tuple[int, int]
#: The answer for nodes with unknown shapes or times.
UNKNOWN = CallTime(None, False)
#: Errors of lowerings for nodes that no kernel computes.
REFUSED = (GensorError, ValueError, TypeError, np.exceptions.AxisError)


class Dry(Run):
    """A run that adds up the predicted times of calls instead of making them."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.xp = runtime, runtime.device.xp
        self.explained, self.values, self.variable = None, {}, set()
        self.microseconds: float | None = 0.0
        self.calls, self.staged = 0, False

    def device(self, value: Tensor) -> Tensor:
        """Return an array of the device with the same shape."""
        if value is None or self.runtime.device.emulated or not isinstance(value, np.ndarray):
            return value
        return self.runtime.device.empty(value.shape, value.dtype)

    def host(self, value: Tensor) -> np.ndarray:
        """Return a NumPy array; UnsupportedError for an array of the device."""
        if not isinstance(value, np.ndarray):
            raise UnsupportedError("a dry run computes no numbers")
        return value

    def call(self, function: Callable[..., Any], *args: Tensor, **keywords: Tensor) -> Tensor:
        """Add the predicted time of a call, and return an array like its result."""
        question = find_call(self.runtime, function, *map(self.device, args), **keywords)
        last = question.steps[-1] if question is not None and question.steps else question
        if question is None or last is None or last.call is None:
            raise UnsupportedError("no kernel takes the call")
        found = find_time(self.runtime, question)
        self.microseconds = None if found.us is None or self.microseconds is None else self.microseconds + found.us
        self.calls, self.staged = self.calls + 1, self.staged or found.staged
        return self.runtime.device.empty(last.call.result.shape, last.call.result.dtype)


#: Known answers, by what they depend on, for each Runtime and the epoch of its library; and those of other processes.
_known: WeakKeyDictionary[Runtime, tuple[object, dict[Hashable, CallTime], KeptTimes]] = WeakKeyDictionary()


def predict(graph: Graph, nodes: Sequence[Node]) -> float | None:
    """Return the predicted microseconds of the kernels of some nodes that read each other or the graph's tensors.

    Unknown without a device, and if a shape or a time is unknown: None.
    """
    try:
        runtime = current_runtime()
    except (GensorError, ImportError, RuntimeError):  # a machine without a GPU
        return None
    return answer(runtime, graph, nodes, {}).us


def answer(runtime: Runtime, graph: Graph, nodes: Sequence[Node], orders: Orders) -> CallTime:
    """Return the predicted microseconds of the kernels of some nodes, and whether calls copy an operand.

    Nodes of equal shapes and orders in memory are predicted once, in whichever graph.
    """
    known = _known.get(runtime)
    if known is None or known[0] is not runtime.library.epoch:  # other kernels or timings
        known = _known[runtime] = runtime.library.epoch, {}, KeptTimes(runtime)
    _, answers, kept = known
    made = {name: (place, number) for place, node in enumerate(nodes) for number, name in enumerate(node.outputs)}
    key = tuple(_about(graph, node, made, orders) for node in nodes)
    if key not in answers:
        found = kept.find(key)
        if found is None:
            found = _dry_run(runtime, graph, nodes, made, orders)
            kept.add(key, found)
        answers[key] = found
    return answers[key]


def keep_answers() -> None:
    """Keep the times that were predicted on the current device for other processes."""
    runtime = current_runtime()
    if runtime in _known:
        _known[runtime][2].keep(runtime)


def _about(graph: Graph, node: Node, made: Mapping[str, Made], orders: Orders) -> Hashable:
    """Return a key of all that a node's time depends on."""
    tensors: list[Hashable] = []
    for name in (*node.inputs, *(step.operand for step in node.epilogue)):
        spec = None if name in made or not name else graph.spec(name)
        values = graph.constants[name].tobytes() if _is_index(graph, name) else b""
        tensors.append(made.get(name) if spec is None else (spec.dtype, spec.shape, values, orders.get(name)))
    steps = tuple((step.name, step.scalar is None) for step in node.epilogue)
    attributes = repr(sorted(node.attributes.items())) if node.attributes else ""
    return node.op, attributes, tuple(tensors), steps, node.layout, len(node.outputs)


def _is_index(graph: Graph, name: str) -> bool:
    """Return whether a tensor is a constant of integers, such as axes, whose elements lowerings read."""
    return name in graph.constants and graph.constants[name].dtype.kind in "iub" and graph.constants[name].size <= 64


def _dry_run(
    runtime: Runtime, graph: Graph, nodes: Sequence[Node], made: Mapping[str, Made], orders: Orders
) -> CallTime:
    from . import lower

    run = Dry(runtime)
    for name in dict.fromkeys(name for node in nodes for name in node.reads() if name not in made):
        found = _stand_in(runtime, graph, name, orders.get(name))
        if found is None:
            return UNKNOWN
        run.values[name] = found
    for node in nodes:
        try:
            run.values.update(zip(node.outputs, lower(run, node), strict=False))
        except REFUSED:
            return UNKNOWN
    return CallTime(run.microseconds, run.staged)


def _stand_in(runtime: Runtime, graph: Graph, name: str, order: Sequence[int] | None) -> Tensor:
    """Return an array like a tensor, whose elements are not read, or None if its shape is unknown."""
    if _is_index(graph, name):
        return graph.constants[name]
    spec = graph.spec(name)
    if spec is None or spec.shape is None:
        return None
    shape = tuple(int(each) for each in spec.shape if isinstance(each, int))
    if len(shape) < len(spec.shape):
        return None
    if order is None:
        return runtime.device.empty(shape, spec.dtype)
    return runtime.device.empty(tuple(shape[axis] for axis in order), spec.dtype).transpose(np.argsort(order).tolist())
