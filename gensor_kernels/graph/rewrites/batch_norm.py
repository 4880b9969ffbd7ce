"""Batch norms of inference: a factor and a shift per channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Node, Spec
from gensor_kernels.graph.ir.links import Links

from .base import Potential, Rewrite


class BatchNorms(Rewrite):
    """BatchNormalization(x; scale, bias, mean, var) -> Add(Mul(x, factor), shift), with constants of shape (c, 1, 1).

    factor = scale / sqrt(var + epsilon) and shift = bias - mean * factor are computed in float64. `ChannelScales` then
    folds them into the weights of the convolution before it.
    """

    roots = ("BatchNormalization",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        spec = links.graph.spec(node.inputs[0])
        if node.attribute("training_mode") or len(node.outputs) > 1 or spec is None or spec.shape is None:
            return False
        if not all(each in links.graph.constants for each in node.inputs[1:]):
            return False
        links.put(node, *_scale_and_shift(links, node, spec))
        return True


def _scale_and_shift(links: Links, node: Node, spec: Spec) -> list[Node]:
    graph = links.graph
    scale, bias, mean, variance = (graph.constants[each].astype(np.float64) for each in node.inputs[1:])
    factor = scale / np.sqrt(variance + node.attribute("epsilon"))
    shape = (-1, *(1,) * (len(spec.shape or ()) - 2))
    result = node.outputs[0]
    first = graph.add(result + ".factor", factor.reshape(shape).astype(spec.dtype))
    second = graph.add(result + ".shift", (bias - mean * factor).reshape(shape).astype(spec.dtype))
    scaled = links.fresh(result + ".scaled", node.inputs[0])
    graph.specs.setdefault(result, spec)
    multiplied = replace(node, op="Mul", inputs=(node.inputs[0], first), outputs=(scaled,), attributes={})
    return [multiplied, Node("Add", (scaled, second), node.outputs, {}, node.name + ".shift")]
