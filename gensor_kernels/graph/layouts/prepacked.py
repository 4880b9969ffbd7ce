"""Weights of products and of transposed convolutions in the order in memory that kernels read fastest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.prepack import prepack
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings.base import FLOATS

from .times import in_order, weight_orders

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
        given = current_runtime().device.xp.asarray(weights)
        orders[key] = (1, 0) if prepack(given, axis=axis, rows=rows) is not given else None
    return orders[key]
