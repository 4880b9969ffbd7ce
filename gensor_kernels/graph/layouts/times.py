"""Predicted times of nodes and of conversions in either layout, from what would serve them on the current device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.explain import explain
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Constants, Run
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY

if TYPE_CHECKING:
    from gensor_kernels.dispatch.observe.explanation import Explanation
    from gensor_kernels.graph.ir.graph import Graph, Node

#: Share of the bandwidth that the array library's copy reaches where it reads or writes one side in short runs.
TRANSPOSING = 0.5


class _Answered(Exception):
    """Ends a lowering at its call of a kernel, with what would serve the call."""

    def __init__(self, found: Explanation):
        super().__init__("a call that is only asked about")
        self.found = found


class _Asking(Run):
    """A run that computes nothing."""

    def __init__(self) -> None:
        super().__init__(Constants((), {}))

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Say what would serve the call."""
        raise _Answered(explain(function, *args, **keywords))


class Times:
    """Predicted times of the nodes of a graph.

    Parameters
    ----------
    graph : Graph
        Its images have known extents.
    """

    def __init__(self, graph: Graph):
        self.graph, self._run = graph, _Asking()
        self._known: dict[Any, float] = {}
        self._memory: Any = None

    def conversion(self, name: str) -> float:
        """Return the microseconds of a copy of a tensor in the other layout; 0 where both are the same."""
        spec, arch = self.graph.spec(name), self._run.runtime.device.arch
        assert spec is not None and spec.shape is not None
        _, channels, *image = (int(each or 0) for each in spec.shape)
        if channels == 1 or math.prod(image) == 1 or arch is None:
            return 0.0
        moved = 2 * math.prod(int(each or 0) for each in spec.shape) * spec.dtype.itemsize
        return float(max(moved / (arch.dram_gb_s * DRAM_EFFICIENCY * TRANSPOSING) * 1e-3, arch.launch_us))

    def of(self, node: Node, read_last: bool) -> float:
        """Return the predicted microseconds of a node of `node.layout` whose first input has channels last or first.

        Infinite where no kernel serves it so. A copy that every call would make of the first input is included where
        the layouts agree, and no way of reading the other layout.
        """
        last = node.layout == "last"
        key = self._key(node, read_last)
        if key not in self._known:
            self._known[key] = self._asked(node, read_last, last)
        return self._known[key]

    def _key(self, node: Node, read_last: bool) -> Any:
        steps = tuple((step.name, self._about(step.operand)) for step in node.epilogue)
        inputs = tuple(self._about(each) for each in node.inputs)
        return node.op, repr(sorted(node.attributes.items())), inputs, steps, node.layout, read_last

    def _about(self, name: str) -> Any:
        spec = self.graph.spec(name) if name else None
        if spec is not None and self._is_index(name):
            return tuple(self.graph.constants[name].ravel().tolist())
        return None if spec is None else (spec.shape, spec.dtype.name)

    def _is_index(self, name: str) -> bool:
        """Return whether a tensor is a constant of integers, such as axes."""
        return name in self.graph.constants and self.graph.constants[name].dtype.kind in "iub"

    def _asked(self, node: Node, read_last: bool, last: bool) -> float:
        orders = weight_orders(self.graph, node)
        arguments = []
        for place, name in enumerate(node.inputs):
            if place == 1 and orders is not None:
                arguments.append(self._array(name, orders[last and name in self.graph.constants]))
            elif self._is_index(name):
                arguments.append(self.graph.constants[name])
            else:
                arguments.append(self._image(name, read_last if place == 0 else last) if name else None)
        self._run.values = {each.operand: self._image(each.operand, last) for each in node.epilogue if each.operand}
        try:
            LOWERINGS[node.op](self._run, node, *arguments)
        except _Answered as answer:
            found = answer.found
        except UnsupportedError:
            return math.inf
        else:
            return math.inf
        time = found.measured_us or found.predicted_us or found.vendor_us or found.library_us
        if time is None or (found.staged and read_last != last):
            return math.inf
        return time + (self.conversion(node.inputs[0]) if found.staged else 0.0)

    def _image(self, name: str, last: bool) -> Any:
        spec = self.graph.spec(name)
        assert spec is not None and spec.shape is not None
        return self._array(name, (0, 2, 3, 1) if last and len(spec.shape) == 4 else range(len(spec.shape)))

    def _array(self, name: str, order: Sequence[int]) -> Any:
        """Return an array like a tensor with its axes in this order in memory; its elements are never read."""
        spec = self.graph.spec(name)
        assert spec is not None and spec.shape is not None
        shape = [int(each or 0) for each in spec.shape]
        stored = [shape[axis] for axis in order]
        size = math.prod(shape) * spec.dtype.itemsize
        if self._memory is None or self._memory.size < size:
            self._memory = self._run.xp.empty(max(size, 1 << 20), np.uint8)
        flat = self._memory[:size].view(spec.dtype)
        return flat.reshape(stored).transpose(np.argsort(list(order)).tolist())


def weight_orders(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the axes of a convolution's weights from the outermost to the innermost in memory.

    For (channels first, channels last): as kernels read them without a copy. None for other nodes.
    """
    if node.op == "ConvTranspose":
        return (1, 0, 2, 3), (1, 2, 3, 0)
    if node.op != "Conv":
        return None
    shape, groups = graph.shape(node.inputs[1]), node.attributes.get("group", 1)
    depthwise = shape is not None and groups > 1 and shape[0] == groups and shape[1] == 1
    return (0, 1, 2, 3), (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
