"""Batch norms of inference: a factor and a shift per channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec

from .base import Rewrite


class BatchNorms(Rewrite):
    """BatchNormalization(x; scale, bias, mean, var) -> Add(Mul(x, factor), shift), with constants of shape (c, 1, 1).

    factor = scale / sqrt(var + epsilon) and shift = bias - mean * factor are computed in float64. `ChannelScales` then
    folds them into the weights of a convolution in front.
    """

    def apply(self, graph: Graph) -> bool:
        """Replace every batch norm whose parameters are constants."""
        changed = False
        for place in reversed(range(len(graph.nodes))):
            node = graph.nodes[place]
            spec = graph.spec(node.inputs[0])
            if node.op != "BatchNormalization" or node.attributes.get("training_mode") or len(node.outputs) > 1:
                continue
            if spec is None or spec.shape is None or not all(each in graph.constants for each in node.inputs[1:]):
                continue
            graph.nodes[place : place + 1] = _scaled(graph, node, spec)
            changed = True
        return changed


def _scaled(graph: Graph, node: Node, spec: Spec) -> list[Node]:
    scale, bias, mean, variance = (graph.constants[each].astype(np.float64) for each in node.inputs[1:])
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    shape = (-1, *(1,) * (len(spec.shape or ()) - 2))
    result = node.outputs[0]
    first = graph.add(result + ".factor", factor.reshape(shape).astype(spec.dtype))
    second = graph.add(result + ".shift", (bias - mean * factor).reshape(shape).astype(spec.dtype))
    scaled = result + ".scaled"
    graph.specs[scaled] = spec
    graph.specs.setdefault(result, spec)
    multiplied = replace(node, op="Mul", inputs=(node.inputs[0], first), outputs=(scaled,), attributes={})
    return [multiplied, Node("Add", (scaled, second), node.outputs, {}, node.name + ".shift")]
