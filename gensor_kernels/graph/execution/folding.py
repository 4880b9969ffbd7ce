"""Nodes of constants, computed once when a graph is made.

The optimiser of onnxscript folds small constants; weights that a file computes (ConstantOfShape) are left to this.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Host
from gensor_kernels.graph.lowerings.shapes import infer, known
from gensor_kernels.graph.readers.onnx_bounds import LARGEST_FOLDED, refuse_large


def fold(graph: Graph) -> None:
    """Replace nodes whose inputs are all constants, and shapes that are known, by their results.

    A node whose shape is not known beforehand is left to every run, and so are all nodes once the constants take
    LARGEST_FOLDED bytes. UnsupportedError names a node whose result alone takes more.
    """
    run, kept, folded = Host(), [], 0
    for node in graph.nodes:
        run.values = graph.constants
        infer(graph, node)
        if node.op in ("Shape", "Size") and (shape := known(graph, node.inputs[0])) is not None:
            stand_in = np.broadcast_to(np.zeros((), np.bool_), shape)  # nothing but its shape is read
            graph.constants[node.outputs[0]] = LOWERINGS[node.op](run, node, stand_in)
            continue
        constant = node.op in LOWERINGS and all(each in graph.constants for each in node.reads())
        size = _bytes(graph, node) if constant else None
        if size is None or folded + size > LARGEST_FOLDED:
            kept.append(node)
            continue
        try:
            found = LOWERINGS[node.op](run, node, *(graph.constants.get(each) for each in node.inputs))
        except UnsupportedError:
            kept.append(node)
            continue
        folded += size
        results = found if isinstance(found, tuple) else (found,)
        graph.constants.update(zip(node.outputs, map(np.asarray, results), strict=False))
    graph.nodes = kept


def _bytes(graph: Graph, node: Node) -> int | None:
    """Return the bytes of a node's results, None where a shape is unknown."""
    total = 0
    for name in filter(None, node.outputs):
        spec = graph.spec(name)
        if spec is None or spec.shape is None:
            return None
        extents = [each for each in spec.shape if isinstance(each, int)]
        if len(extents) < len(spec.shape):
            return None
        refuse_large(node.name, node.op, extents, spec.dtype.itemsize)
        total += math.prod(extents) * spec.dtype.itemsize
    return total
