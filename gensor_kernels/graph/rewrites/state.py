"""Tensors that a model keeps: what appends to them writes in place, from the kernel of a product where it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.lowerings.base import IN_PLACE

from .base import Rewrite, alone, producers

#: The standard's number of int32.
TENSOR_INT32 = 6


class InPlace(Rewrite):
    """TensorScatter(past, x, places) -> the same, written into `past`, which nothing else reads.

    Parameters
    ----------
    state : dict of str to str
        Results by the input that they replace in the next call.
    """

    def __init__(self, state: Mapping[str, str]):
        self.state = state

    def apply(self, graph: Graph) -> bool:
        """Mark all such nodes."""
        uses, changed = graph.uses(), False
        for place, node in enumerate(graph.nodes):
            if node.op != "TensorScatter" or node.attributes.get(IN_PLACE):
                continue
            past = node.inputs[0]
            if self.state.get(past) == node.outputs[0] and uses[past] == 1:
                graph.replaced(place, attributes={**node.attributes, IN_PLACE: 1})
                changed = True
        return changed


class Appends(Rewrite):
    """q, k, v = Split(MatMul(x, w; add b)), TensorScatter(past_k, k), TensorScatter(past_v, v) -> MatMulAppend(x, w).

    The columns of constant weights are reordered to keys, values, queries. `pairs` are the caches of keys and values
    (batch, capacity, columns) whose rows lie side by side.
    """

    def __init__(self, pairs: Mapping[str, str]):
        self.pairs = pairs

    def apply(self, graph: Graph) -> bool:
        """Replace the first such pattern."""
        made = producers(graph)
        return any(self._replace(graph, made, node) for node in graph.nodes if node.op == "Split")

    def _replace(self, graph: Graph, made: Mapping[str, int], split: Node) -> bool:
        place = made.get(split.inputs[0], -1)
        product = graph.nodes[place]
        if place < 0 or product.op != "MatMul" or not alone(graph, split.inputs[0]) or len(split.outputs) != 3:
            return False
        rank = len(graph.shape(split.inputs[0]) or ())
        if rank != 3 or split.attributes.get("axis", 0) not in (-1, 2):
            return False
        q, k, v = split.outputs
        stores = [self._store(graph, name) for name in (k, v)]
        if stores[0] is None or stores[1] is None or self.pairs.get(stores[0].inputs[0]) != stores[1].inputs[0]:
            return False
        places = [(*each.inputs, "")[2] for each in stores if each is not None]
        if places[0] != places[1] or made.get(places[0], -1) > place:
            return False
        columns = [(graph.shape(name) or (0,))[-1] for name in (q, k, v)]
        weights = graph.constants.get(product.inputs[1])
        if weights is None or weights.ndim != 2 or not all(isinstance(each, int) and each for each in columns):
            return False
        first, *more = (int(each) for each in columns if isinstance(each, int))
        if first > sum(more):  # the queries of a token must fit where the next token's keys and values lie
            return False
        order = np.roll(np.arange(sum(columns)), -first)  # type: ignore[arg-type]
        steps = []
        for step in product.epilogue:
            operand = graph.constants.get(step.operand)
            if step.operand and (operand is None or operand.shape not in ((), (1,), (len(order),))):
                return False
            if operand is not None and operand.size == len(order):
                step = step._replace(operand=graph.add(step.operand + ".kvq", operand[order]))
            steps.append(step)
        name = graph.add(product.inputs[1] + ".kvq", np.ascontiguousarray(weights[:, order]))
        inputs = (product.inputs[0], name, stores[0].inputs[0], stores[1].inputs[0], places[0])
        outputs = (q, stores[0].outputs[0], stores[1].outputs[0])
        joined = (*product.joined, "Split", "TensorScatter", "TensorScatter")
        graph.nodes[place] = replace(
            *(product,),
            **{"op": "MatMulAppend", "inputs": inputs, "outputs": outputs, "attributes": {IN_PLACE: 1}},
            **{"epilogue": tuple(steps), "joined": joined},
        )
        gone = {id(split), id(stores[0]), id(stores[1])}
        graph.nodes = [node for node in graph.nodes if id(node) not in gone]
        graph.tidy()
        return True

    def _store(self, graph: Graph, name: str) -> Node | None:
        """Return the node that appends a tensor to state along axis 1, if nothing else reads the tensor."""
        if not alone(graph, name):
            return None
        node = next(node for node in graph.nodes if name in node.reads())
        fits = node.op == "TensorScatter" and node.attributes.get(IN_PLACE) and node.inputs[1] == name
        linear = node.attributes.get("mode", "linear") in ("linear", b"linear")
        axis = node.attributes.get("axis", -2)
        return node if fits and linear and axis in (1, -2) and len(graph.shape(node.inputs[0]) or ()) == 3 else None


class Lengths(Rewrite):
    """Attention(..., nonpad_kv_seqlen=n) -> Attention(..., n as int32), the same for all layers: as kernels read it."""

    def apply(self, graph: Graph) -> bool:
        """Convert the first such tensor."""
        for place, node in enumerate(graph.nodes):
            name = (*node.inputs, *[""] * 7)[6] if node.op == "Attention" else ""
            found = graph.spec(name) if name else None
            if found is None or found.dtype == np.int32 or name in graph.constants:
                continue
            narrow = name + ".int32"
            graph.specs[narrow] = Spec(np.dtype(np.int32), found.shape)
            for number, each in enumerate(graph.nodes):
                if each.op == "Attention" and (*each.inputs, *[""] * 7)[6] == name:
                    graph.replaced(number, inputs=(*each.inputs[:6], narrow))
            graph.nodes.insert(place, Node("Cast", (name,), (narrow,), {"to": TENSOR_INT32}, narrow))
            return True
        return False


def stored(graph: Graph, state: Mapping[str, str], pairs: Mapping[str, str]) -> None:
    """Apply the rules of state to a graph; results that are written in place are no results of it any more."""
    for rule in (InPlace(state), Appends(pairs), Lengths()):
        while rule.apply(graph):
            pass
    written = {name for node in graph.nodes if node.attributes.get(IN_PLACE) for name in node.outputs}
    kept = {result for result in state.values() if result in written}
    graph.outputs = [name for name in graph.outputs if name not in kept]
