"""Nodes of constants, computed once when a graph is made.

The optimiser of onnxscript folds small constants; weights that a file computes (ConstantOfShape) are left to this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Run
from gensor_kernels.graph.readers.onnx_bounds import LARGEST_FOLDED, refuse_large


class Host(Run):
    """A run on the host, by the array library alone."""

    def __init__(self) -> None:
        self.xp = np
        self.explained, self.values = None, {}

    def device(self, value: Any) -> Any:
        """Return the array itself."""
        return value

    def host(self, value: Any) -> np.ndarray:
        """Return the array itself."""
        return value

    def reads_back(self) -> None:
        """Do nothing: everything is on the host."""

    def call(self, function: Any, *args: Any, **keywords: Any) -> Any:
        """Leave a node that a kernel computes to the device."""
        raise UnsupportedError("kernels run on the device")


def fold(graph: Graph) -> None:
    """Replace nodes whose inputs are all constants by their results.

    A node whose shape is not known beforehand is left to every run, like any node once all constants take LARGEST_FOLDED
    bytes. UnsupportedError names a node whose result alone takes more.
    """
    run, kept, folded = Host(), [], 0
    for node in graph.nodes:
        run.values = graph.constants
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
        if spec is None or spec.shape is None or not all(isinstance(each, int) for each in spec.shape):
            return None
        refuse_large(node.name, node.op, spec.shape, spec.dtype.itemsize)
        total += int(np.prod(spec.shape, dtype=float)) * spec.dtype.itemsize
    return total
