"""Factors and terms per channel behind a convolution."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node

from .base import Rewrite, alone, channels, joined, producers


class ChannelScales(Rewrite):
    """Mul(Conv(x, w, b), f) -> Conv(x, w * f, b * f); Add(Conv(x, w, b), s) -> Conv(x, w, b + s).

    f and s are constants with one number per output channel. Weights are computed in float64 and rounded once.
    """

    def apply(self, graph: Graph) -> bool:
        """Fold all such nodes, the first one of each convolution first."""
        made = producers(graph)
        for place, node in enumerate(graph.nodes):
            if node.op not in ("Mul", "Add") or len(node.inputs) != 2:
                continue
            for value, constant in (node.inputs, node.inputs[::-1]):
                position = made.get(value)
                if position is None or constant not in graph.constants or not alone(graph, value):
                    continue
                if _folded(graph, position, node, constant):
                    del graph.nodes[place]
                    return True
        return False


def _folded(graph: Graph, position: int, node: Node, constant: str) -> bool:
    conv = graph.nodes[position]
    shape = graph.shape(conv.outputs[0])
    if conv.op != "Conv" or conv.epilogue or shape is None or conv.inputs[1] not in graph.constants:
        return False
    has_bias = len(conv.inputs) > 2 and conv.inputs[2]
    if has_bias and conv.inputs[2] not in graph.constants:
        return False
    weights = graph.constants[conv.inputs[1]]
    vector = channels(graph.constants[constant], weights.shape[0], len(shape))
    if vector is None or vector.dtype != weights.dtype:
        return False
    wide = vector.astype(np.float64)
    bias = graph.constants[conv.inputs[2]].astype(np.float64) if has_bias else np.zeros(len(weights))
    first = conv.inputs[1]
    if node.op == "Mul":
        scaled = weights.astype(np.float64) * wide.reshape(-1, *(1,) * (weights.ndim - 1))
        first = graph.add(first, scaled.astype(weights.dtype))
        bias = bias * wide
    else:
        bias = bias + wide
    # A factor alone adds no bias.
    names = (graph.add(node.outputs[0] + ".bias", bias.astype(weights.dtype)),) if has_bias or node.op == "Add" else ()
    inputs = (conv.inputs[0], first, *names)
    graph.replaced(position, inputs=inputs, outputs=node.outputs, joined=joined(conv, node))
    return True
