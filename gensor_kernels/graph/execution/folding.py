"""Nodes of constants, computed once when a graph is made.

The optimiser of onnxscript folds small constants; this module folds weights that a file computes (ConstantOfShape).
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.lowerings import LOWERINGS, compute
from gensor_kernels.graph.lowerings.base import Host
from gensor_kernels.graph.lowerings.shapes import infer
from gensor_kernels.graph.readers.onnx_bounds import most_folded, refuse_large


def fold(graph: Graph) -> None:
    """Replace nodes whose inputs are all constants, and shapes that are known, by their results.

    Nodes that only the device computes stay. UnsupportedError names a node whose result exceeds the memory for computed
    constants; a result is freed after its last reader.
    """
    run, kept = Host(), []
    fixed, held = set(graph.constants), dict[str, int]()
    total = max(0, sum(each.nbytes for each in graph.constants.values()) - graph.weight_bytes)
    reads = Counter(name for node in graph.nodes for name in set(node.reads()))
    reads.update(graph.outputs)
    for node in graph.nodes:
        run.values = graph.constants
        infer(graph, node)
        if node.op in ("Shape", "Size") and (shape := graph.static(node.inputs[0])) is not None:
            stand_in = np.broadcast_to(np.zeros((), np.bool_), shape)  # only its shape is read
            graph.constants[node.outputs[0]] = LOWERINGS[node.op](run, node, stand_in)
            fixed.update(node.outputs)
            continue
        if node.op not in LOWERINGS or not fixed.issuperset(node.reads()):
            kept.append(node)
            continue
        sizes = _sizes(graph, node)
        total += sum(sizes.values())
        refuse_large(node.name, node.op, sum(sizes.values()), total, most_folded(graph.weight_bytes))
        held |= sizes
        fixed.update(node.outputs)
        if not graph.constants.keys() >= set(node.reads()) or not _fold_node(graph, run, node):
            kept.append(node)
            continue
        for name in set(node.reads()):
            reads[name] -= 1
            if not reads[name] and name in held:
                del graph.constants[name]
                total -= held.pop(name)
    graph.nodes = kept


def _fold_node(graph: Graph, run: Host, node: Node) -> bool:
    """Make a node's results constants; return False if only a kernel on the device computes them."""
    try:
        results = compute(run, node)
    except UnsupportedError:
        return False
    graph.constants.update(zip(node.outputs, results, strict=False))
    return True


def _sizes(graph: Graph, node: Node) -> dict[str, int]:
    """Return the bytes of a node's results, by name."""
    names = [name for name in node.outputs if name]
    shapes = [shape for name in names if (shape := graph.static(name)) is not None]
    if len(shapes) == len(names):
        sizes = zip(names, map(math.prod, shapes), strict=True)
        return {name: size * graph.specs[name].dtype.itemsize for name, size in sizes}
    # Results whose sizes depend on elements are places in the inputs (NonZero), or some of their elements (Compress).
    inputs = [graph.spec(name) for name in node.reads()]
    most = sum(
        math.prod(each for each in spec.shape or () if isinstance(each, int)) * max(len(spec.shape or ()), 1)
        for spec in inputs
        if spec is not None
    )
    return dict.fromkeys(names, 8 * most)
