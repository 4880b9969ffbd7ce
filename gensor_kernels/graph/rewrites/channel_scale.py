"""Factors and terms per channel after a convolution."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite, channels, operators_of


class ChannelScales(Rewrite):
    """Mul(Conv(x, w, b), f) -> Conv(x, w * f, b * f); Add(Conv(x, w, b), s) -> Conv(x, w, b + s).

    f and s are constants with one number per output channel. Weights are computed in float64 and rounded once.
    """

    roots = ("Mul", "Add")

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        for value, constant in (node.inputs, node.inputs[::-1]):
            conv = links.plain(value, "Conv")
            if conv is not None and constant in links.graph.constants and _fold(links, conv, node, constant):
                return True
        return False


def _fold(links: Links, conv: Node, node: Node, constant: str) -> bool:
    graph = links.graph
    shape = graph.shape(conv.outputs[0])
    if shape is None or conv.inputs[1] not in graph.constants:
        return False
    has_bias = bool(conv.input(2))
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
    links.take_in(conv, node, inputs=inputs, joined=operators_of(conv, node))
    return True
