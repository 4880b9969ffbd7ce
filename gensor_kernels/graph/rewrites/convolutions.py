"""Convolutions: batch norms, factors and terms per channel, and zeros around an image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.contractions import padding

from .base import channels, number, operators_of, rule


@rule("BatchNorms", "BatchNormalization")
def unfold_batch_norms(links: Links, node: Node) -> bool:
    """BatchNormalization(x; scale, bias, mean, var) -> Add(Mul(x, factor), shift), with constants of shape (c, 1, 1).

    factor = scale / sqrt(var + epsilon) and shift = bias - mean * factor are computed in float64.
    `fold_channel_scales` then folds them into the weights of the convolution before it.
    """
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


@rule("ChannelScales", "Mul", "Add")
def fold_channel_scales(links: Links, node: Node) -> bool:
    """Mul(Conv(x, w, b), f) -> Conv(x, w * f, b * f); Add(Conv(x, w, b), s) -> Conv(x, w, b + s).

    f and s are constants with one number per output channel. Weights are computed in float64 and rounded once.
    """
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


@rule("Paddings", "Conv")
def fold_paddings(links: Links, node: Node) -> bool:
    """Conv(Pad(x, pads)) -> Conv(x) with these pads, where spatial axes are padded with zeros."""
    pad = links.plain(node.inputs[0], "Pad")
    pads = None if pad is None else _zeros(links.graph, pad)
    shape, taps = links.graph.static(node.inputs[0]), links.graph.static(node.inputs[1])
    if pad is None or pads is None or (node.attribute("auto_pad") != "NOTSET" and (shape is None or taps is None)):
        return False
    ones = (1,) * (len(pads) // 2)
    strides, dilations = (node.attribute(each) or ones for each in ("strides", "dilations"))
    own = padding(node, (shape or (1, 1, *ones))[2:], (taps or (1, 1, *ones))[2:], strides, dilations)
    both = [low for low, _ in own] + [high for _, high in own]
    attributes = node.attributes | {
        "auto_pad": "NOTSET",
        "pads": tuple(a + b for a, b in zip(both, pads, strict=True)),
    }
    links.change(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)
    links.drop(pad.outputs)
    return True


def _zeros(graph: Graph, pad: Node) -> tuple[int, ...] | None:
    """Return the (begins, ends) of the spatial axes of a Pad node, None for other padding."""
    if pad.attribute("mode") != "constant":
        return None
    if (pad.input(2) and number(graph, pad.input(2)) != 0) or pad.input(3):
        return None
    if pad.inputs[1] not in graph.constants:
        return None
    pads = [int(each) for each in graph.constants[pad.inputs[1]]]
    half = len(pads) // 2
    if min(pads) < 0 or any(pads[:2]) or any(pads[half : half + 2]):
        return None
    return (*pads[2:half], *pads[half + 2 :])
