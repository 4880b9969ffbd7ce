"""Tensors that a model keeps: what appends to them writes in place, from the kernel of a product where it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.base import IN_PLACE

from .base import Potential, Rewrite, apply_everywhere, static

#: The standard's number of int32.
TENSOR_INT32 = 6


class InPlace(Rewrite):
    """TensorScatter(past, x, places) -> the same, written into `past`, which nothing else reads.

    Parameters
    ----------
    state : dict of str to str
        Results by the input that they replace in the next call.
    """

    roots = ("TensorScatter",)

    def __init__(self, state: Mapping[str, str]):
        self.state = state

    def apply(self, links: Links, node: Node, potential: Potential) -> bool:
        """Mark the node."""
        past = node.inputs[0]
        if node.attributes.get(IN_PLACE) or self.state.get(past) != node.outputs[0] or not links.alone(past):
            return False
        links.change(node, attributes={**node.attributes, IN_PLACE: 1})
        return True


class Appends(Rewrite):
    """q, k, v = Split(MatMul(x, w; add b)), TensorScatter(past_k, k), TensorScatter(past_v, v) -> MatMulAppend(x, w).

    The columns of constant weights are reordered to keys, values, queries. `pairs` are the caches of keys and values
    (batch, capacity, columns) whose rows lie side by side.
    """

    roots = ("Split",)

    def __init__(self, pairs: Mapping[str, str]):
        self.pairs = pairs

    def apply(self, links: Links, node: Node, potential: Potential) -> bool:
        """Let the product in front of the node store into the caches."""
        graph, joint = links.graph, node.inputs[0]
        product = links.maker(joint, "MatMul")
        shape = graph.shape(joint)
        if product is None or not links.alone(joint) or len(node.outputs) != 3 or shape is None or len(shape) != 3:
            return False
        q, k, v = node.outputs
        keys, values = (_store(links, name) for name in (k, v))
        if keys is None or values is None or self.pairs.get(keys.inputs[0]) != values.inputs[0]:
            return False
        places = (*keys.inputs, "")[2]
        if node.attributes.get("axis", 0) not in (-1, 2) or places != (*values.inputs, "")[2]:
            return False
        columns = [(static(graph, name) or (0,))[-1] for name in (q, k, v)]
        # The queries of a token must fit where the keys and the values of the next will lie.
        ordered = _reordered(links, product, columns) if 0 < columns[0] <= sum(columns[1:]) else None
        if ordered is None or links.when(places) > links.order(product):
            return False
        links.remove(keys)
        links.remove(values)
        links.remove(node)
        weights, steps = ordered
        links.change(
            product,
            op="MatMulAppend",
            inputs=(product.inputs[0], weights, keys.inputs[0], values.inputs[0], places),
            outputs=(q, keys.outputs[0], values.outputs[0]),
            attributes={IN_PLACE: 1},
            epilogue=steps,
            joined=(*product.joined, "Split", "TensorScatter", "TensorScatter"),
        )
        return True


def _store(links: Links, name: str) -> Node | None:
    """Return the node that appends a tensor to state along axis 1, if nothing else reads the tensor."""
    node = links.reader(name, "TensorScatter")
    if node is None or not node.attributes.get(IN_PLACE) or node.inputs[1] != name:
        return None
    linear = node.attributes.get("mode", "linear") in ("linear", b"linear")
    axis, rank = node.attributes.get("axis", -2), len(links.graph.shape(node.inputs[0]) or ())
    return node if linear and axis in (1, -2) and rank == 3 else None


def _reordered(links: Links, product: Node, columns: Sequence[int]) -> tuple[str, tuple[Step, ...]] | None:
    """Return the weights and the epilogue of a product whose first columns come last; None if they are not constant."""
    graph, weights = links.graph, links.graph.constants.get(product.inputs[1])
    order = np.roll(np.arange(sum(columns)), -columns[0])
    if weights is None or weights.shape[1:] != order.shape:
        return None
    steps = []
    for step in product.epilogue:
        operand = graph.constants.get(step.operand)
        if step.operand and (operand is None or operand.shape not in ((), (1,), order.shape)):
            return None
        if operand is not None and operand.size == order.size:
            step = step._replace(operand=graph.add(step.operand + ".kvq", operand[order]))
        steps.append(step)
    return graph.add(product.inputs[1] + ".kvq", np.ascontiguousarray(weights[:, order])), tuple(steps)


class Lengths(Rewrite):
    """Attention(..., nonpad_kv_seqlen=n) -> Attention(..., n as int32), the same for all layers: as kernels read it."""

    roots = ("Attention",)

    def apply(self, links: Links, node: Node, potential: Potential) -> bool:
        """Read a converted tensor."""
        name = (*node.inputs, *[""] * 7)[6]
        found = links.graph.spec(name) if name else None
        if found is None or found.dtype == np.int32 or name in links.graph.constants:
            return False
        narrow = name + ".int32"
        changed = replace(node, inputs=(*node.inputs[:6], narrow))
        if links.maker(narrow) is not None:
            links.put(node, changed)
        else:
            links.graph.specs[narrow] = Spec(np.dtype(np.int32), found.shape)
            links.put(node, Node("Cast", (name,), (narrow,), {"to": TENSOR_INT32}, narrow), changed)
        return True


def stored(graph: Graph, state: Mapping[str, str], pairs: Mapping[str, str]) -> None:
    """Apply the rules of state to a graph; results that are written in place are no results of it any more."""
    links = Links(graph)
    for rule in (InPlace(state), Appends(pairs), Lengths()):
        apply_everywhere(rule, links, lambda graph, nodes: None)
    links.store().tidy()
    written = {name for node in graph.nodes if node.attributes.get(IN_PLACE) for name in node.outputs}
    kept = {result for result in state.values() if result in written}
    graph.outputs = [name for name in graph.outputs if name not in kept]
