"""Predicted times of nodes and of conversions in either layout, and weights in the order that kernels read fastest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.prepack import prepack
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings.base import FLOATS
from gensor_kernels.graph.lowerings.predicted import answer
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node

#: Share of the bandwidth that the array library's copy reaches where it reads or writes one side in short runs.
TRANSPOSING = 0.5
#: Axes of an image with channels last, from the outermost to the innermost in memory.
LAST = (0, 2, 3, 1)


class Times:
    """Predicted times of the nodes of a graph whose images have known extents."""

    def __init__(self, graph: Graph):
        self.graph, self._runtime = graph, current_runtime()

    def conversion(self, name: str) -> float:
        """Return the microseconds of a copy of a tensor in the other layout; 0 where both are the same."""
        spec, arch = self.graph.spec(name), self._runtime.device.arch
        assert spec is not None and spec.shape is not None
        _, channels, *image = (int(each or 0) for each in spec.shape)
        if channels == 1 or math.prod(image) == 1 or arch is None:
            return 0.0
        moved = 2 * math.prod(int(each or 0) for each in spec.shape) * spec.dtype.itemsize
        return float(max(moved / (arch.dram_gb_s * DRAM_EFFICIENCY * TRANSPOSING) * 1e-3, arch.launch_us))

    def of(self, node: Node, read_last: bool) -> float:
        """Return the predicted microseconds of a node of `node.layout` whose first input has channels last or first.

        Infinite if no kernel serves it so. Where both layouts agree, the time includes a copy that every call makes of
        the first input; a kernel that needs a copy does not count as reading the other layout.
        """
        graph, last = self.graph, node.layout == "last"
        if last and read_last and self._is_flat(node):
            return self.of(replace(node, layout="first"), False)
        images = {name: last for name in node.reads()} | {node.inputs[0]: read_last}
        orders: dict[str, tuple[int, ...]] = {}
        orders |= {name: LAST for name, is_last in images.items() if is_last and len(graph.shape(name) or ()) == 4}
        weights = weight_orders(graph, node)
        if weights is not None:
            orders[node.inputs[1]] = weights[last and node.inputs[1] in graph.constants]
        found = answer(self._runtime, graph, [node], orders)
        if not found.us or (found.staged and read_last != last):
            return math.inf
        return found.us + (self.conversion(node.inputs[0]) if found.staged else 0.0)

    def _is_flat(self, node: Node) -> bool:
        """Return whether a node computes element by element of whole images, whose order in memory does not count."""
        shapes = [self.graph.static(name) for name in node.reads()]
        known = all(shape is not None and (shape == shapes[0] or math.prod(shape) == 1) for shape in shapes)
        return known and node.op == "Elementwise"


def weight_orders(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the order of the axes in memory in which kernels read a convolution's weights, or None for other nodes.

    The orders are those for (channels first, channels last), outermost axis first.
    """
    if node.op == "ConvTranspose":
        return (1, 0, 2, 3), (1, 2, 3, 0)
    if node.op not in ("Conv", "IntegerConv"):
        return None
    shape, groups = graph.shape(node.inputs[1]), node.attribute("group")
    depthwise = shape is not None and groups > 1 and shape[0] == groups and shape[1] == 1
    return (0, 1, 2, 3), (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)


def in_order(graph: Graph, name: str, order: tuple[int, ...]) -> np.ndarray:
    """Return a copy of a constant with its axes in this order in memory, from the outermost to the innermost."""
    constant = graph.constants[name]

    def make() -> np.ndarray:
        return np.ascontiguousarray(constant.transpose(order)).transpose(np.argsort(order).tolist())

    return graph.derived.array(("order", order), [constant], make)


#: Rows of the other operand up to which a product is bound by reading its weights.
MOST_ROWS = 64


def prepack_weights(graph: Graph) -> None:
    """Store constant weights in the order in which products with few rows read them fastest and no call copies them."""
    orders: dict[Any, tuple[int, ...] | None] = {}
    made: dict[tuple[str, tuple[int, ...]], str] = {}
    for place, node in enumerate(graph.nodes):
        name = node.input(1)
        if name not in graph.constants:
            continue
        order = _order(graph, node, graph.constants[name], orders)
        if order is None:
            continue
        if (name, order) not in made:
            made[name, order] = graph.add(f"{name}.packed", in_order(graph, name, order))
        inputs = (node.inputs[0], made[name, order], *node.inputs[2:])
        graph.nodes[place] = replace(node, inputs=inputs)
    graph.tidy()


def _order(graph: Graph, node: Node, weights: Any, orders: dict[Any, tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """Return the best order of the axes of weights in memory, outermost first, or None for the present one."""
    if node.op == "ConvTranspose" and weights.ndim == 4 and weights.flags.c_contiguous:
        found = weight_orders(graph, node)
        return None if found is None else found[node.layout == "last"]
    shape = graph.shape(node.inputs[0]) if node.op in ("MatMul", "Gemm") else None
    if shape is None or weights.ndim != 2 or weights.dtype.name not in FLOATS or node.attribute("transA"):
        return None
    if not all(isinstance(each, int) for each in shape):
        return None
    rows = math.prod(int(each or 0) for each in shape[:-1])
    if not 0 < rows <= MOST_ROWS:
        return None
    axis = -1 if node.attribute("transB") else -2
    key = weights.shape, weights.dtype.name, axis, rows
    if key not in orders:
        # An array in the same order, whose elements are not read: weights are copied to the device when they are used.
        by_columns = weights.flags.f_contiguous and not weights.flags.c_contiguous
        given = current_runtime().device.empty(weights.shape[:: -1 if by_columns else 1], weights.dtype)
        given = given.T if by_columns else given
        orders[key] = (1, 0) if prepack(given, axis=axis, rows=rows) is not given else None
    return orders[key]
