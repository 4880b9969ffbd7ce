"""Nodes of constants, computed once when a graph is made.

The optimiser of onnxscript folds small constants; weights that a file computes (ConstantOfShape) are left to this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.lowerings.base import Run


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
    """Replace nodes whose inputs are all constants by their results."""
    run, kept = Host(), []
    for node in graph.nodes:
        run.values = graph.constants
        if node.op in LOWERINGS and all(each in graph.constants for each in node.reads()):
            try:
                found = LOWERINGS[node.op](run, node, *(graph.constants.get(each) for each in node.inputs))
            except UnsupportedError:
                kept.append(node)
                continue
            results = found if isinstance(found, tuple) else (found,)
            graph.constants.update(zip(node.outputs, map(np.asarray, results), strict=False))
        else:
            kept.append(node)
    graph.nodes = kept
